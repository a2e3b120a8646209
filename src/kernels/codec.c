/* Encoding and decoding on the host, row by row: pieces of a tile go straight from memory to memory
 * where the processor has loops for that, and take steps where not. */
#include "kernels/codec.h"

#include "kernels/codec_tile.h"

enum { TILE = CENI_CODEC_TILE, STEP = CENI_CODEC_STEP, AHEAD_MOST = 128 << 10 };

typedef struct worker {
    const ceni_codec_job *job;
    const ceni_codec_loops *loops;
    const ceni_codec_run_loops *straight; /* NULL: only steps */
    float s[TILE / STEP], r[TILE / STEP]; /* of a run's units */
    ceni_codec_tile tile;
} worker;

/* BF16 that saturates takes steps, and units that begin amid a vector; and 2:4, but for that of
 * 16-bit floats of the same type of which none is refused or cut. */
static const ceni_codec_run_loops *straight_of(const ceni_codec_loops *loops,
                                               const ceni_codec_job *job) {
    bool cut = job->kind == CENI_CODEC_BF16 && ceni_codec_is(job, CENI_CODEC_SATURATING);
    bool amid = ceni_codec_is(job, CENI_CODEC_SCALED) && job->unit_cols < job->cols &&
                job->unit_cols % STEP;
    if (!loops->runs || cut || amid) {
        return NULL;
    }
    if (ceni_codec_is(job, CENI_CODEC_SPARSE)) {
        bool same = job->kind == (job->dtype == CEN_BF16   ? CENI_CODEC_BF16
                                  : job->dtype == CEN_FP16 ? CENI_CODEC_FP16
                                                           : 0);
        if (!same || ceni_codec_is(job, CENI_CODEC_ONLY_SPARSE | CENI_CODEC_SATURATING)) {
            return NULL;
        }
    }
    return &loops->runs->of[ceni_codec_source(job)][job->kind];
}

static void worker_init(worker *w, const ceni_codec_loops *loops, const ceni_codec_job *job) {
    w->job = job;
    w->loops = loops;
    w->straight = straight_of(loops, job);
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
                            .infinite = job->kind == CENI_CODEC_BF16 ? 0x7F80 : 0x7C00,
                            .ahead = ahead_of(job, row)};
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

/* By given scales: not where codes are counted, nor where what is cut or a scale makes what is not
 * finite. */
static bool sums_go_straight(const ceni_codec_job *job, const ceni_codec_run *run) {
    if (!run->given) {
        return true;
    }
    float none = 0;
    for (size_t k = 0; k * run->width < run->n; k++) {
        none += run->s[k] * 0 + run->r[k] * 0;
    }
    return !run->z && none == 0 && (run->saturate || job->kind >= CENI_CODEC_INT8);
}

/* What a piece became is read back where it was written. */
static bool sum_straight(worker *w, const ceni_codec_run *run, const uint8_t *metadata,
                         ceni_codec_sums *sums) {
    const ceni_codec_runs *runs = w->loops->runs;
    ceni_codec_run back = *run;
    if (ceni_codec_is(w->job, CENI_CODEC_SPARSE)) {
        back.matrix = w->tile.code.u16;
        (void)runs->decode_sparse(&back, metadata);
        back.values = w->tile.code.u16;
    }
    back.matrix = w->tile.y;
    runs->of[0][w->job->kind].decode(&back);
    return runs->source[ceni_codec_source(w->job)].sums(run, w->tile.y, sums);
}

static bool encode_piece(worker *w, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
    ceni_codec_run run;
    uint8_t *metadata = ceni_codec_metadata_at(w->job, row, col);
    if (!run_of(w, row, col, n, &run) || (sums && !sums_go_straight(w->job, &run))) {
        return ceni_codec_encode_steps(&w->tile, row, col, n, sums);
    }
    size_t ahead = run.ahead;
    if (sums) { /* which take longer, so that there is time to fetch */
        run.ahead = 0;
    }
    if (ceni_codec_is(w->job, CENI_CODEC_SPARSE)) {
        w->loops->runs->encode_sparse(&run, metadata);
    } else {
        w->straight->encode(&run);
    }
    run.ahead = ahead;
    return !sums || sum_straight(w, &run, metadata, sums) ||
           ceni_codec_encode_steps(&w->tile, row, col, n, sums);
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
    if (ceni_codec_is(w->job, CENI_CODEC_SPARSE)) {
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
