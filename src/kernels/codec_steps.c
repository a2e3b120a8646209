/* Encoding and decoding on the host, step by step: a tile becomes floats, each step is a loop over
 * it, and what lies between the steps stays in the first cache. */
#include "kernels/codec_tile.h"

enum { TILE = CENI_CODEC_TILE, STEP = CENI_CODEC_STEP };
typedef ceni_codec_tile tile;

void ceni_codec_tile_init(tile *t, const ceni_codec_loops *loops, const ceni_codec_job *job) {
    t->loops = loops;
    t->job = job;
    t->unit = UINT64_MAX;
    if (!ceni_codec_is(job, CENI_CODEC_SCALED)) {
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

static void put_values(tile *t, uint64_t row, uint64_t col, size_t n) {
    size_t bytes;
    uint8_t *to = ceni_codec_values_at(t->job, row, col, n, &bytes);
    if (t->job->kind == CENI_CODEC_INT4) {
        t->loops->pack(t->code.i8, n, to);
    } else {
        memcpy(to, t->code.u8, bytes);
    }
}

static void get_values(tile *t, uint64_t row, uint64_t col, size_t n) {
    size_t bytes;
    const uint8_t *from = ceni_codec_values_at(t->job, row, col, n, &bytes);
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

void ceni_codec_put_metadata(tile *t, uint64_t row, uint64_t col, size_t groups) {
    size_t whole = (groups + word_groups(t->job) - 1) / word_groups(t->job) * word_groups(t->job);
    memset(t->nibbles + groups, 0xE, whole - groups);
    uint8_t *to = ceni_codec_metadata_at(t->job, row, col);
    for (size_t i = 0; i < whole / 2; i++) {
        to[i] = (uint8_t)(t->nibbles[2 * i] | t->nibbles[2 * i + 1] << 4);
    }
}

bool ceni_codec_get_metadata(tile *t, uint64_t row, uint64_t col, size_t groups) {
    const uint8_t *from = ceni_codec_metadata_at(t->job, row, col);
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
    ceni_codec_put_metadata(t, row, col, groups);
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
    bool rising = ceni_codec_get_metadata(t, row, col, groups);
    kept_scales(t, groups);
    get_values(t, row, col, 2 * groups);
    uncode(t, t->kept_s, t->kept_z, 2 * groups, y);
    t->loops->expand(y, t->nibbles, groups, t->y);
    return rising;
}

/* ---- sums ---- */

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

/* ---- all steps ---- */

bool ceni_codec_encode_steps(tile *t, uint64_t row, uint64_t col, size_t n, ceni_codec_sums *sums) {
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

bool ceni_codec_decode_floats(tile *t, uint64_t row, uint64_t col, size_t n) {
    tile_scales(t, row, col, n);
    if (ceni_codec_is(t->job, CENI_CODEC_SPARSE)) {
        return decode_sparse(t, row, col, n);
    }
    get_values(t, row, col, n);
    uncode(t, t->s, t->z, n, t->y);
    return true;
}

bool ceni_codec_decode_steps(tile *t, uint64_t row, uint64_t col, size_t n) {
    bool rising = ceni_codec_decode_floats(t, row, col, n);
    store(t, row, col, n);
    return rising;
}
