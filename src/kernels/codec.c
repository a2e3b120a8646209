/* Encoding and decoding on the host. A tile becomes floats, each step is a loop over it, and what
 * lies between the steps stays in the first cache. */
#include "kernels/codec.h"

#include "kernels/codec_tile.h"

enum { TILE = CENI_CODEC_TILE, STEP = CENI_CODEC_STEP, AHEAD_MOST = 128 << 10 };

/* A tile on its way; what the steps leave to each other. */
typedef struct tile {
    const ceni_codec_loops *loops;
    const ceni_codec_job *job;
    uint64_t unit; /* that s, r and z are full of; UINT64_MAX: none */
    float x[TILE], y[TILE], s[TILE], r[TILE];
    int32_t z[TILE];
    union {
        int8_t i8[TILE];
        uint8_t u8[TILE];
        uint16_t u16[TILE];
    } code;
    uint8_t packed[TILE / 2];
    /* 2:4: the kept half, with the scales of where it came from, and a nibble for each group */
    float kept[TILE / 2], kept_s[TILE / 2], kept_r[TILE / 2];
    float sum_r[TILE]; /* r, and 0 where an element was pruned */
    int32_t kept_z[TILE / 2];
    uint8_t nibbles[TILE / 4];
    const ceni_codec_run_loops *straight; /* NULL: only steps */
    float run_s[TILE / STEP], run_r[TILE / STEP];
} tile;

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

static void tile_init(tile *t, const ceni_codec_loops *loops, const ceni_codec_job *job) {
    t->loops = loops;
    t->job = job;
    t->unit = UINT64_MAX;
    t->straight = straight_of(loops, job);
    if (!ceni_codec_is(job, CENI_CODEC_SCALED)) {
        t->run_s[0] = t->run_r[0] = 1.0f;
        for (size_t i = 0; i < TILE; i++) {
            t->s[i] = t->r[i] = t->kept_r[i / 2] = 1.0f;
        }
    }
    memset(t->z, 0, sizeof t->z);
}

static void fill_scales(tile *t, size_t from, size_t to, uint64_t unit) {
    float s = ceni_codec_scale(t->job, unit), r = 1.0f / s;
    for (size_t i = from; i < to; i++) {
        t->s[i] = s;
    }
    for (size_t i = from; i < to; i++) {
        t->r[i] = r;
    }
    if (ceni_codec_is(t->job, CENI_CODEC_ASYMMETRIC)) {
        int32_t z = ceni_codec_zero(t->job, unit);
        for (size_t i = from; i < to; i++) {
            t->z[i] = z;
        }
    }
}

/* Of groups, which begin and end with the tile, save for the row's last. */
static void group_scales(tile *t, uint64_t unit, size_t n) {
    size_t width = (size_t)t->job->unit_cols, units = (n + width - 1) / width;
    float s[TILE / 32], r[TILE / 32];
    memcpy(s, (const void *)(uintptr_t)(t->job->scales + unit * sizeof *s), units * sizeof *s);
    t->loops->inverse(s, units, r);
    t->loops->spread(s, r, units, width, t->s, t->r);
    for (size_t k = 0; ceni_codec_is(t->job, CENI_CODEC_ASYMMETRIC) && k < units; k++) {
        int32_t z = ceni_codec_zero(t->job, unit + k);
        for (size_t i = 0; i < width; i++) {
            t->z[k * width + i] = z;
        }
    }
}

/* s, r and z of the n elements from (row, col) on. */
static void tile_scales(tile *t, uint64_t row, uint64_t col, size_t n) {
    const ceni_codec_job *job = t->job;
    if (!ceni_codec_is(job, CENI_CODEC_SCALED)) {
        return;
    }
    uint64_t unit = row / job->unit_rows * job->units_across + col / job->unit_cols;
    if (job->unit_cols == 1) {
        memcpy(t->s, (const void *)(uintptr_t)(job->scales + unit * 4), n * sizeof *t->s);
        t->loops->inverse(t->s, n, t->r);
        for (size_t i = 0; ceni_codec_is(job, CENI_CODEC_ASYMMETRIC) && i < n; i++) {
            t->z[i] = ceni_codec_zero(job, unit + i);
        }
        return;
    }
    if (job->unit_rows == 1 && job->unit_cols % 32 == 0 && TILE % job->unit_cols == 0) {
        group_scales(t, unit, n);
        t->unit = UINT64_MAX;
        return;
    }
    uint64_t first = job->unit_cols - col % job->unit_cols; /* elements of the first unit */
    if (first >= n) {
        if (unit != t->unit) {
            fill_scales(t, 0, TILE, unit);
        }
        t->unit = unit;
        return;
    }
    t->unit = UINT64_MAX;
    for (size_t at = 0, end = (size_t)first; at < n; unit++) {
        fill_scales(t, at, end, unit);
        at = end;
        end = (size_t)ceni_codec_least(n, at + job->unit_cols);
    }
}

/* ---- codes ---- */

static void codes(tile *t, const float *x, const float *r, const int32_t *z, size_t n) {
    const ceni_codec_loops *loops = t->loops;
    bool saturate = ceni_codec_is(t->job, CENI_CODEC_SATURATING);
    switch (t->job->kind) {
    case CENI_CODEC_FP16:
        loops->to_f16(x, n, saturate, t->code.u16);
        return;
    case CENI_CODEC_BF16:
        loops->to_bf16(x, n, saturate, t->code.u16);
        return;
    case CENI_CODEC_E4M3:
        loops->to_e4m3(x, r, n, saturate, t->code.u8);
        return;
    case CENI_CODEC_E5M2:
        loops->to_e5m2(x, r, n, saturate, t->code.u8);
        return;
    default:
        break;
    }
    if (ceni_codec_is(t->job, CENI_CODEC_ASYMMETRIC)) {
        loops->to_int_zero(x, r, z, n, t->job->high, t->code.i8);
    } else {
        loops->to_int(x, r, n, (float)t->job->high, t->code.i8);
    }
}

static void uncode(tile *t, const float *s, const int32_t *z, size_t n, float *y) {
    const ceni_codec_loops *loops = t->loops;
    switch (t->job->kind) {
    case CENI_CODEC_FP16:
        loops->load_f16(t->code.u16, n, y);
        return;
    case CENI_CODEC_BF16:
        loops->load_bf16(t->code.u16, n, y);
        return;
    case CENI_CODEC_E4M3:
        loops->of_e4m3(t->code.u8, s, n, y);
        return;
    case CENI_CODEC_E5M2:
        loops->of_e5m2(t->code.u8, s, n, y);
        return;
    default:
        loops->of_int(t->code.i8, s, z, n, y);
        return;
    }
}

/* Where the values of (row, col) on are, and how many bytes n of them take. */
static uint8_t *values_at(const ceni_codec_job *job, uint64_t row, uint64_t col, size_t n,
                          size_t *bytes) {
    uint32_t bits = job->kind <= CENI_CODEC_BF16 ? 16 : job->kind == CENI_CODEC_INT4 ? 4 : 8;
    uint64_t place = ceni_codec_is(job, CENI_CODEC_SPARSE) ? col / 2 : col;
    *bytes = (n * bits + 7) / 8;
    return (uint8_t *)(uintptr_t)(job->values + row * job->pitch + place * bits / 8);
}

static void put_values(tile *t, uint64_t row, uint64_t col, size_t n) {
    size_t bytes;
    uint8_t *to = values_at(t->job, row, col, n, &bytes);
    if (t->job->kind == CENI_CODEC_INT4) {
        t->loops->pack(t->code.i8, n, to);
    } else {
        memcpy(to, t->code.u8, bytes);
    }
}

static void get_values(tile *t, uint64_t row, uint64_t col, size_t n) {
    size_t bytes;
    const uint8_t *from = values_at(t->job, row, col, n, &bytes);
    if (t->job->kind == CENI_CODEC_INT4) {
        t->loops->unpack(from, n, t->code.i8);
    } else {
        memcpy(t->code.u8, from, bytes);
    }
}

/* ---- 2:4 ---- */

/* Groups of a word of metadata: of 16 bits, or of 32 for values of 8. */
static size_t word_groups(const ceni_codec_job *job) {
    return job->kind == CENI_CODEC_INT8 ? 8 : 4;
}

static uint8_t *metadata_at(const ceni_codec_job *job, uint64_t row, uint64_t col) {
    return (uint8_t *)(uintptr_t)(job->metadata + row * job->metadata_pitch + col / 8);
}

static void put_metadata(tile *t, uint64_t row, uint64_t col, size_t groups) {
    size_t whole = (groups + word_groups(t->job) - 1) / word_groups(t->job) * word_groups(t->job);
    memset(t->nibbles + groups, 0xE, whole - groups);
    uint8_t *to = metadata_at(t->job, row, col);
    for (size_t i = 0; i < whole / 2; i++) {
        to[i] = (uint8_t)(t->nibbles[2 * i] | t->nibbles[2 * i + 1] << 4);
    }
}

/* false: indices that do not rise. */
static bool get_metadata(tile *t, uint64_t row, uint64_t col, size_t groups) {
    const uint8_t *from = metadata_at(t->job, row, col);
    uint8_t falling = 0;
    for (size_t i = 0; i < (groups + 1) / 2; i++) {
        t->nibbles[2 * i] = from[i] & 15;
        t->nibbles[2 * i + 1] = from[i] >> 4;
    }
    for (size_t g = 0; g < groups; g++) {
        falling |= (t->nibbles[g] & 3) >= t->nibbles[g] >> 2;
    }
    return !falling;
}

/* Scales of what was kept. */
static void kept_scales(tile *t, size_t groups) {
    if (!ceni_codec_is(t->job, CENI_CODEC_SCALED)) {
        return;
    }
    if (t->unit != UINT64_MAX) { /* all are the same */
        for (size_t i = 0; i < 2 * groups; i++) {
            t->kept_s[i] = t->s[0];
            t->kept_r[i] = t->r[0];
            t->kept_z[i] = t->z[0];
        }
        return;
    }
    for (size_t g = 0; g < groups; g++) {
        for (size_t k = 0; k < 2; k++) {
            size_t from = 4 * g + (t->nibbles[g] >> 2 * k & 3);
            t->kept_s[2 * g + k] = t->s[from];
            t->kept_r[2 * g + k] = t->r[from];
            t->kept_z[2 * g + k] = t->z[from];
        }
    }
}

/* false: the tile is not 2:4, and was pruned. */
static bool encode_sparse(tile *t, uint64_t row, uint64_t col, size_t n, bool back) {
    size_t groups = (n + 3) / 4;
    for (size_t i = n; i < 4 * groups; i++) {
        t->x[i] = 0;
        t->s[i] = t->r[i] = 1.0f; /* of a place behind the row's end */
        t->z[i] = 0;
        t->unit = UINT64_MAX;
    }
    bool sparse = t->loops->prune(t->x, n, t->kept, t->nibbles);
    kept_scales(t, groups);
    codes(t, t->kept, t->kept_r, t->kept_z, 2 * groups);
    put_values(t, row, col, 2 * groups);
    put_metadata(t, row, col, groups);
    if (back) {
        float y[TILE / 2];
        uncode(t, t->kept_s, t->kept_z, 2 * groups, y);
        t->loops->expand(y, t->nibbles, groups, t->y);
        t->loops->expand(t->kept_r, t->nibbles, groups, t->sum_r);
    }
    return sparse;
}

static bool decode_sparse(tile *t, uint64_t row, uint64_t col, size_t n) {
    size_t groups = (n + 3) / 4;
    float y[TILE / 2];
    for (size_t i = n; i < 4 * groups; i++) {
        t->s[i] = 1.0f;
        t->z[i] = 0;
        t->unit = UINT64_MAX;
    }
    bool rising = get_metadata(t, row, col, groups);
    kept_scales(t, groups);
    get_values(t, row, col, 2 * groups);
    uncode(t, t->kept_s, t->kept_z, 2 * groups, y);
    t->loops->expand(y, t->nibbles, groups, t->y);
    return rising;
}

/* ---- straight ---- */

/* Bytes from what is read to what is read soon, which comes from memory meanwhile: where a row is
 * read twice, for its scales and to be encoded, that is the next row, if the second cache holds
 * both. */
static size_t ahead_of(const ceni_codec_job *job, uint64_t row) {
    uint64_t bytes = job->stride * (job->dtype == CEN_FP32 ? 4 : 2);
    bool twice = ceni_codec_is(job, CENI_CODEC_OWN_SCALES) && job->unit_rows == 1;
    return twice && row + 1 < job->rows && bytes <= AHEAD_MOST ? (size_t)bytes : CENI_CODEC_AHEAD;
}

/* Of n elements, a multiple of STEP, from (row, col) on. false: they are not taken straight. */
static bool run_of(tile *t, uint64_t row, uint64_t col, size_t n, ceni_codec_run *run) {
    const ceni_codec_job *job = t->job;
    size_t bytes;
    if (!t->straight) {
        return false;
    }
    *run = (ceni_codec_run){.matrix = ceni_codec_element(job, row, col),
                            .values = values_at(job, row, col, n, &bytes),
                            .n = n,
                            .width = n,
                            .s = t->run_s,
                            .r = t->run_r,
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
    memcpy(t->run_s, (const void *)(uintptr_t)(job->scales + unit * sizeof(float)),
           units * sizeof(float));
    t->loops->inverse(t->run_s, units, t->run_r);
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

/* ---- rows ---- */

/* false: not of whole vectors, not with scales that may cut, or not of finite elements. */
static bool sum_vectors(const tile *t, uint64_t row, uint64_t col, size_t n,
                        ceni_codec_sums *sums) {
    const ceni_codec_runs *runs = t->loops->runs;
    const ceni_codec_job *job = t->job;
    if (!runs || n % STEP || ceni_codec_is(job, CENI_CODEC_GIVEN_SCALES)) {
        return false;
    }
    ceni_codec_run run = {.matrix = ceni_codec_element(job, row, col),
                          .n = n,
                          .width = n,
                          .r = t->r,
                          .unscaled = !ceni_codec_is(job, CENI_CODEC_SCALED),
                          .limit = job->limit,
                          .ahead = CENI_CODEC_AHEAD};
    return runs->source[ceni_codec_source(job)].sums(&run, t->y, sums);
}

static void sum_tile(tile *t, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
    const ceni_codec_job *job = t->job;
    bool sparse = ceni_codec_is(job, CENI_CODEC_SPARSE);
    if (sum_vectors(t, row, col, n, sums)) {
        return;
    }
    t->loops->sums(t->x, sparse ? t->sum_r : t->r, t->y, n, job->limit, sums);
    if (ceni_codec_is(job, CENI_CODEC_GIVEN_SCALES) && ceni_codec_is(job, CENI_CODEC_ASYMMETRIC)) {
        sums->saturated += sparse ? t->loops->cut_by_zero(t->kept, t->kept_r, t->kept_z,
                                                          (n + 3) / 4 * 2, job->high)
                                  : t->loops->cut_by_zero(t->x, t->r, t->z, n, job->high);
    }
}

/* false: it is not 2:4, and was pruned. */
static bool encode_steps(tile *t, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
    bool sparse = true;
    ceni_codec_load(t->loops, t->job, row, col, n, t->x);
    tile_scales(t, row, col, n);
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        sparse = encode_sparse(t, row, col, n, sums);
    } else {
        codes(t, t->x, t->r, t->z, n);
        put_values(t, row, col, n);
        if (sums) {
            uncode(t, t->s, t->z, n, t->y);
        }
    }
    if (sums) {
        sum_tile(t, row, col, n, sums);
    }
    return sparse;
}

/* What a piece became is read back where it was written. */
static bool sum_straight(tile *t, const ceni_codec_run *run, const uint8_t *metadata,
                         ceni_codec_sums *sums) {
    const ceni_codec_runs *runs = t->loops->runs;
    ceni_codec_run back = *run;
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        back.matrix = t->code.u16;
        (void)runs->decode_sparse(&back, metadata);
        back.values = t->code.u16;
    }
    back.matrix = t->y;
    runs->of[0][t->job->kind].decode(&back);
    return runs->source[ceni_codec_source(t->job)].sums(run, t->y, sums);
}

static bool encode_piece(tile *t, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
    ceni_codec_run run;
    uint8_t *metadata = metadata_at(t->job, row, col);
    if (!run_of(t, row, col, n, &run) || (sums && !sums_go_straight(t->job, &run))) {
        return encode_steps(t, row, col, n, sums);
    }
    size_t ahead = run.ahead;
    if (sums) { /* which take longer, so that there is time to fetch */
        run.ahead = 0;
    }
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        t->loops->runs->encode_sparse(&run, metadata);
    } else {
        t->straight->encode(&run);
    }
    run.ahead = ahead;
    return !sums || sum_straight(t, &run, metadata, sums) || encode_steps(t, row, col, n, sums);
}

/* Sums are made of whole steps and of the rest, whichever way they are made. */
static bool encode_row(tile *t, uint64_t row, ceni_codec_sums *sums) {
    uint64_t cols = t->job->cols;
    bool sparse = true;
    for (uint64_t col = 0; col < cols; col += TILE) {
        size_t n = (size_t)ceni_codec_least(cols - col, TILE), rest = n % STEP;
        if (n > rest) {
            sparse = encode_piece(t, row, col, n - rest, sums) && sparse;
        }
        if (rest) {
            sparse = encode_steps(t, row, col + n - rest, rest, sums) && sparse;
        }
    }
    return sparse;
}

bool ceni_codec_encode_with(const ceni_codec_loops *loops, const ceni_codec_job *job,
                            ceni_codec_sums *rows, ceni_codec_sums *total, uint64_t *dense_row) {
    bool scales = ceni_codec_is(job, CENI_CODEC_OWN_SCALES);
    tile t;
    tile_init(&t, loops, job);
    for (uint64_t row = 0; row < job->rows; row++) {
        ceni_codec_sums sums = {0};
        if (scales && row % job->unit_rows == 0) {
            ceni_codec_scale_band(t.loops, job, row);
            t.unit = UINT64_MAX;
        }
        if (!encode_row(&t, row, rows || total ? &sums : NULL) &&
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

static void store(const tile *t, uint64_t row, uint64_t col, size_t n) {
    void *to = ceni_codec_element(t->job, row, col);
    if (t->job->dtype == CEN_FP32) {
        t->loops->store_f32(t->y, n, (float *)to);
    } else if (t->job->dtype == CEN_FP16) {
        t->loops->store_f16(t->y, n, (uint16_t *)to);
    } else {
        t->loops->store_bf16(t->y, n, (uint16_t *)to);
    }
}

/* false: indices that do not rise. */
static bool decode_steps(tile *t, uint64_t row, uint64_t col, size_t n) {
    bool rising = true;
    tile_scales(t, row, col, n);
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        rising = decode_sparse(t, row, col, n);
    } else {
        get_values(t, row, col, n);
        uncode(t, t->s, t->z, n, t->y);
    }
    store(t, row, col, n);
    return rising;
}

static bool decode_piece(tile *t, uint64_t row, uint64_t col, size_t n) {
    ceni_codec_run run;
    if (!run_of(t, row, col, n, &run)) {
        return decode_steps(t, row, col, n);
    }
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        return t->loops->runs->decode_sparse(&run, metadata_at(t->job, row, col));
    }
    t->straight->decode(&run);
    return true;
}

static bool decode_row(tile *t, uint64_t row) {
    uint64_t cols = t->job->cols;
    bool rising = true;
    for (uint64_t col = 0; col < cols; col += TILE) {
        size_t n = (size_t)ceni_codec_least(cols - col, TILE), rest = n % STEP;
        if (n > rest) {
            rising = decode_piece(t, row, col, n - rest) && rising;
        }
        if (rest) {
            rising = decode_steps(t, row, col + n - rest, rest) && rising;
        }
    }
    return rising;
}

bool ceni_codec_decode_with(const ceni_codec_loops *loops, const ceni_codec_job *job, bool strict,
                            uint64_t *bad_row) {
    tile t;
    tile_init(&t, loops, job);
    for (uint64_t row = 0; row < job->rows; row++) {
        if (!decode_row(&t, row) && strict) {
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
