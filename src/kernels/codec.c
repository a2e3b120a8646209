/* Encoding and decoding on the host, row by row: pieces of a tile go straight from memory to memory
 * where the processor has loops for that, and take steps where not. */
#include "kernels/codec.h"

#include "kernels/codec_tile.h"

enum { TILE = CENI_CODEC_TILE, STEP = CENI_CODEC_STEP, AHEAD_MOST = 128 << 10 };

typedef struct worker {
    const ceni_codec_job *job;
    const ceni_codec_loops *loops;
    const ceni_codec_run_loops *straight; /* NULL: only steps */
    bool sparse, as_is;                   /* 2:4; what is kept of it is its own code */
    float s[TILE / STEP], r[TILE / STEP]; /* of a run's units */
    ceni_codec_tile tile;
} worker;

static bool is_as_is(const ceni_codec_job *job) {
    bool same = job->kind == (job->dtype == CEN_BF16   ? CENI_CODEC_BF16
                              : job->dtype == CEN_FP16 ? CENI_CODEC_FP16
                                                       : 0);
    return same && !ceni_codec_is(job, CENI_CODEC_SATURATING);
}

/* Units that begin amid a vector take steps. */
static const ceni_codec_run_loops *straight_of(const ceni_codec_loops *loops,
                                               const ceni_codec_job *job) {
    bool amid = ceni_codec_is(job, CENI_CODEC_SCALED) && job->unit_cols < job->cols &&
                job->unit_cols % STEP;
    return !loops->runs || amid ? NULL : &loops->runs->of[ceni_codec_source(job)][job->kind];
}

static void worker_init(worker *w, const ceni_codec_loops *loops, const ceni_codec_job *job) {
    w->job = job;
    w->loops = loops;
    w->straight = straight_of(loops, job);
    w->sparse = ceni_codec_is(job, CENI_CODEC_SPARSE);
    w->as_is = is_as_is(job);
    w->s[0] = w->r[0] = 1.0f;
    ceni_codec_tile_init(&w->tile, loops, job);
}

/* Bytes from what is read to what is read soon, which comes from memory meanwhile: where a row is
 * read twice, for its scales and to be encoded, that is the next row, if the second cache holds
 * both. */
static size_t ahead_of(const ceni_codec_job *job, uint64_t row) {
    uint64_t bytes = job->stride * (job->dtype == CEN_FP32 ? 4 : 2);
    bool twice = ceni_codec_is(job, CENI_CODEC_OWN_SCALES) && job->unit_rows == 1;
    return twice && row + 1 < job->rows && bytes <= AHEAD_MOST ? (size_t)bytes : CENI_CODEC_AHEAD;
}

/* The units of n elements from (row, col) on. false: they do not begin with them. */
static bool units_of(worker *w, uint64_t row, uint64_t col, size_t n, ceni_codec_run *run) {
    const ceni_codec_job *job = w->job;
    if (!ceni_codec_is(job, CENI_CODEC_SCALED)) {
        return true;
    }
    uint64_t unit = row / job->unit_rows * job->units_across + col / job->unit_cols;
    size_t units = 1;
    if (job->unit_cols - col % job->unit_cols < n) {
        if (TILE % job->unit_cols) {
            return false;
        }
        run->width = (size_t)job->unit_cols;
        units = (n + run->width - 1) / run->width;
    }
    memcpy(w->s, (const void *)(uintptr_t)(job->scales + unit * sizeof(float)),
           units * sizeof(float));
    w->loops->inverse(w->s, units, w->r);
    if (ceni_codec_is(job, CENI_CODEC_ASYMMETRIC)) {
        run->z = (const int8_t *)(uintptr_t)(job->zeros + unit);
    }
    return true;
}

/* Of n elements, a multiple of STEP, from (row, col) on. false: they are not taken straight. */
static bool run_of(worker *w, uint64_t row, uint64_t col, size_t n, ceni_codec_run *run) {
    const ceni_codec_job *job = w->job;
    size_t bytes;
    if (!w->straight) {
        return false;
    }
    *run = (ceni_codec_run){.matrix = ceni_codec_element(job, row, col),
                            .values = ceni_codec_values_at(job, row, col, n, &bytes),
                            .n = n,
                            .width = n,
                            .s = w->s,
                            .r = w->r,
                            .saturate = ceni_codec_is(job, CENI_CODEC_SATURATING),
                            .unscaled = !ceni_codec_is(job, CENI_CODEC_SCALED),
                            .given = ceni_codec_is(job, CENI_CODEC_GIVEN_SCALES),
                            .limit = job->limit,
                            .infinite = job->dtype == CEN_BF16 ? 0x7F80 : 0x7C00,
                            .ahead = ahead_of(job, row)};
    if (!units_of(w, row, col, n, run)) {
        return false;
    }
    /* What is kept of 2:4 is to be a multiple, too. */
    return !w->sparse || w->as_is || (n % (2 * STEP) == 0 && run->width % (2 * STEP) == 0);
}

/* The half that is kept, which lies at `kept`. */
static ceni_codec_run half_of(const ceni_codec_run *run, void *kept) {
    ceni_codec_run half = *run;
    half.matrix = kept;
    half.n /= 2;
    half.width /= 2;
    half.ahead = 0;
    return half;
}

/* By given scales: not where codes are counted, or all but what was pruned, nor where what is cut
 * or a scale makes what is not finite. */
static bool sums_go_straight(const worker *w, const ceni_codec_run *run) {
    if (!run->given) {
        return true;
    }
    float none = 0;
    for (size_t k = 0; k * run->width < run->n; k++) {
        none += run->s[k] * 0 + run->r[k] * 0;
    }
    bool finite = run->saturate || w->job->kind >= CENI_CODEC_INT8;
    return !w->sparse && !run->z && none == 0 && finite;
}

/* What became of a piece, as floats, from where it was written. */
static const float *read_back(worker *w, const ceni_codec_run *run, uint64_t row, uint64_t col) {
    const ceni_codec_runs *runs = w->loops->runs;
    ceni_codec_tile *t = &w->tile;
    ceni_codec_run back = *run;
    back.matrix = t->y;
    if (w->sparse && w->as_is) {
        back.matrix = t->code.u16;
        (void)runs->decode_sparse(&back, ceni_codec_metadata_at(w->job, row, col));
        back.matrix = t->y;
        back.values = t->code.u16;
    } else if (w->sparse) {
        back = half_of(run, t->kept);
    }
    runs->of[0][w->job->kind].decode(&back);
    if (w->sparse && !w->as_is) {
        (void)ceni_codec_get_metadata(t, row, col, run->n / 4);
        w->loops->expand(t->kept, t->nibbles, run->n / 4, t->y);
    }
    return t->y;
}

/* What is kept goes to `kept`, in the matrix's type. false: it was not 2:4, which is told of FP32
 * alone. */
static bool prune(worker *w, const ceni_codec_run *run, uint64_t row, uint64_t col, void *kept) {
    if (w->job->dtype == CEN_FP32) {
        const float *x = (const float *)run->matrix;
        bool sparse = w->loops->prune(x, run->n, (float *)kept, w->tile.nibbles);
        ceni_codec_put_metadata(&w->tile, row, col, run->n / 4);
        return sparse;
    }
    ceni_codec_run to = *run;
    to.values = kept;
    w->loops->runs->encode_sparse(&to, ceni_codec_metadata_at(w->job, row, col));
    return true;
}

static bool encode_run(worker *w, const ceni_codec_run *run, uint64_t row, uint64_t col) {
    if (!w->sparse) {
        w->straight->encode(run);
        return true;
    }
    bool sparse = prune(w, run, row, col, w->as_is ? run->values : w->tile.kept);
    if (!w->as_is) {
        ceni_codec_run half = half_of(run, w->tile.kept);
        w->straight->encode(&half);
    }
    return sparse;
}

static bool encode_piece(worker *w, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
    ceni_codec_run run;
    if (!run_of(w, row, col, n, &run) || (sums && !sums_go_straight(w, &run))) {
        return ceni_codec_encode_steps(&w->tile, row, col, n, sums);
    }
    size_t ahead = run.ahead;
    if (sums) { /* which take longer, so that there is time to fetch */
        run.ahead = 0;
    }
    bool sparse = encode_run(w, &run, row, col);
    run.ahead = ahead;
    if (!sums) {
        return sparse;
    }
    const ceni_codec_source_loops *source = &w->loops->runs->source[ceni_codec_source(w->job)];
    return source->sums(&run, read_back(w, &run, row, col), sums)
               ? sparse
               : ceni_codec_encode_steps(&w->tile, row, col, n, sums);
}

/* Sums are made of whole steps and of the rest, whichever way they are made. */
static bool encode_row(worker *w, uint64_t row, ceni_codec_sums *sums) {
    uint64_t cols = w->job->cols;
    bool sparse = true;
    for (uint64_t col = 0; col < cols; col += TILE) {
        size_t n = (size_t)ceni_codec_least(cols - col, TILE), rest = n % STEP;
        if (n > rest) {
            sparse = encode_piece(w, row, col, n - rest, sums) && sparse;
        }
        if (rest) {
            sparse = ceni_codec_encode_steps(&w->tile, row, col + n - rest, rest, sums) && sparse;
        }
    }
    return sparse;
}

bool ceni_codec_encode_with(const ceni_codec_loops *loops, const ceni_codec_job *job,
                            ceni_codec_sums *rows, ceni_codec_sums *total, uint64_t *dense_row) {
    bool scales = ceni_codec_is(job, CENI_CODEC_OWN_SCALES);
    worker w;
    worker_init(&w, loops, job);
    if (ceni_codec_is(job, CENI_CODEC_ONLY_SPARSE) && job->dtype != CEN_FP32) {
        w.straight = NULL; /* vectors of halves prune, and do not tell */
    }
    for (uint64_t row = 0; row < job->rows; row++) {
        ceni_codec_sums sums = {0};
        if (scales && row % job->unit_rows == 0) {
            ceni_codec_scale_band(w.loops, job, row);
            w.tile.unit = UINT64_MAX;
        }
        if (!encode_row(&w, row, rows || total ? &sums : NULL) &&
            ceni_codec_is(job, CENI_CODEC_ONLY_SPARSE)) {
            *dense_row = row;
            return false;
        }
        if (rows) {
            rows[row] = sums;
        }
        if (total) {
            ceni_codec_sums_add(total, &sums);
        }
    }
    return true;
}

bool ceni_codec_encode_host(const ceni_codec_job *job, ceni_codec_sums *rows,
                            ceni_codec_sums *total, uint64_t *dense_row) {
    return ceni_codec_encode_with(ceni_codec_loops_here(), job, rows, total, dense_row);
}

static bool decode_piece(worker *w, uint64_t row, uint64_t col, size_t n) {
    ceni_codec_run run;
    if (!run_of(w, row, col, n, &run)) {
        return ceni_codec_decode_steps(&w->tile, row, col, n);
    }
    if (w->sparse && !w->as_is) {
        ceni_codec_run half = half_of(&run, w->tile.kept);
        w->straight->decode(&half);
        run.values = w->tile.kept;
        if (w->job->dtype == CEN_FP32) {
            bool rising = ceni_codec_get_metadata(&w->tile, row, col, n / 4);
            w->loops->expand(w->tile.kept, w->tile.nibbles, n / 4, (float *)run.matrix);
            return rising;
        }
    }
    if (w->sparse) {
        return w->loops->runs->decode_sparse(&run, ceni_codec_metadata_at(w->job, row, col));
    }
    w->straight->decode(&run);
    return true;
}

static bool decode_row(worker *w, uint64_t row) {
    uint64_t cols = w->job->cols;
    bool rising = true;
    for (uint64_t col = 0; col < cols; col += TILE) {
        size_t n = (size_t)ceni_codec_least(cols - col, TILE), rest = n % STEP;
        if (n > rest) {
            rising = decode_piece(w, row, col, n - rest) && rising;
        }
        if (rest) {
            rising = ceni_codec_decode_steps(&w->tile, row, col + n - rest, rest) && rising;
        }
    }
    return rising;
}

bool ceni_codec_decode_with(const ceni_codec_loops *loops, const ceni_codec_job *job, bool strict,
                            uint64_t *bad_row) {
    worker w;
    worker_init(&w, loops, job);
    for (uint64_t row = 0; row < job->rows; row++) {
        if (!decode_row(&w, row) && strict) {
            *bad_row = row;
            return false;
        }
    }
    return true;
}

bool ceni_codec_decode_host(const ceni_codec_job *job, bool strict, uint64_t *bad_row) {
    return ceni_codec_decode_with(ceni_codec_loops_here(), job, strict, bad_row);
}

void ceni_codec_decode_block(const ceni_codec_job *job, uint64_t row, size_t rows, uint64_t col,
                             size_t cols, float *to, size_t stride) {
    ceni_codec_tile t;
    ceni_codec_tile_init(&t, ceni_codec_loops_here(), job);
    for (size_t i = 0; i < rows; i++) {
        ceni_codec_decode_floats(&t, row + i, col, cols);
        memcpy(to + i * stride, t.y, cols * sizeof *to);
    }
}

void ceni_codec_sums_add(ceni_codec_sums *to, const ceni_codec_sums *from) {
    to->count += from->count;
    to->nan += from->nan;
    to->infinite += from->infinite;
    to->saturated += from->saturated;
    to->overflowed += from->overflowed;
    to->underflowed += from->underflowed;
    to->largest = from->largest > to->largest ? from->largest : to->largest;
    to->max_error = from->max_error > to->max_error ? from->max_error : to->max_error;
    to->error += from->error;
    to->error2 += from->error2;
    to->x2 += from->x2;
    to->y2 += from->y2;
    to->xy += from->xy;
}
