/* The twins of rows.cu: a row is gone through in pieces, its sums are double. */
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256, LANES = 8 };

static ceni_rows rows_of(void *const *args) {
    ceni_rows a;
    memcpy(&a, args[0], sizeof a);
    return a;
}

static void give(uint64_t to, uint64_t stride, uint64_t row, float value) {
    if (to) {
        ((float *)(uintptr_t)to)[row * stride] = value;
    }
}

static float *part(const ceni_rows *a, uint64_t row, uint64_t split) {
    return (float *)(uintptr_t)(a->work + (row * a->splits + split) * CENI_ROWS_PART_BYTES);
}

/* What is to be added up of a value: the value; exp(x - most); the square of x - most. */
enum term { VALUE, POWER, SQUARE };

static double add_up(const float *x, size_t count, enum term term, float around) {
    double sums[LANES] = {0}, total = 0;
    float y[PIECE] = {0};
    for (size_t i = 0; i < count; i++) {
        float apart = x[i] - around;
        y[i] = term == VALUE ? x[i] : term == SQUARE ? apart * apart : expf(apart);
    }
    for (size_t i = 0; i < PIECE; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            sums[k] += y[i + k];
        }
    }
    for (size_t k = 0; k < LANES; k++) {
        total += sums[k];
    }
    return total;
}

/* Columns [from, to) of a row. */
typedef struct span {
    uint64_t row, from, to;
} span;

static span split_of(const ceni_rows *a, uint64_t row, uint64_t split) {
    return (span){row, a->cols / a->splits * split,
                  split + 1 == a->splits ? a->cols : a->cols / a->splits * (split + 1)};
}

static size_t load(const ceni_rows *a, const span *s, uint64_t col, float *x) {
    size_t count = s->to - col < PIECE ? s->to - col : PIECE;
    ceni_operand_load(&a->x, s->row, col, count, x);
    return count;
}

static double sum_of(const ceni_rows *a, const span *s, enum term term, float around) {
    float x[PIECE];
    double total = 0;
    for (uint64_t col = s->from; col < s->to; col += PIECE) {
        size_t count = load(a, s, col, x);
        total += add_up(x, count, term, around);
    }
    return total;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The bits of magnitudes order as they do, NaN above all. */
static float larger(float a, float b) {
    return bits_of(a) > bits_of(b) ? a : b;
}

static float absmax_of(const ceni_rows *a, const span *s) {
    float x[PIECE];
    uint32_t most = 0;
    for (uint64_t col = s->from; col < s->to; col += PIECE) {
        size_t count = load(a, s, col, x);
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = bits_of(x[i]) & 0x7FFFFFFFu;
            most = bits > most ? bits : most;
        }
    }
    memcpy(x, &most, sizeof most);
    return x[0];
}

static float largest_of(const ceni_rows *a, const span *s) {
    float x[PIECE], most = -INFINITY;
    for (uint64_t col = s->from; col < s->to; col += PIECE) {
        size_t count = load(a, s, col, x);
        for (size_t i = 0; i < count; i++) {
            most = x[i] > most ? x[i] : most;
        }
    }
    return most;
}

static float base(float most) {
    return most == -INFINITY ? 0 : most;
}

/* What a part holds, as rows.h says. */
static void powers_of(const ceni_rows *a, const span *s, float *words) {
    words[0] = largest_of(a, s);
    words[1] = (float)sum_of(a, s, POWER, base(words[0]));
}

static void moments_of(const ceni_rows *a, const span *s, float *words) {
    uint64_t count = s->to - s->from;
    words[0] = (float)count;
    words[1] = count ? (float)(sum_of(a, s, VALUE, 0) / (double)count) : 0;
    words[2] = (float)sum_of(a, s, SQUARE, words[1]);
}

static void sums_of(const ceni_rows *a, const span *s, float *words) {
    words[0] = (float)sum_of(a, s, VALUE, 0);
}

static void absmaxes_of(const ceni_rows *a, const span *s, float *words) {
    words[0] = absmax_of(a, s);
}

typedef void (*stat)(const ceni_rows *a, const span *s, float *words);

static void write_parts(const ceni_rows *a, stat of) {
    for (uint64_t row = 0; row < a->rows; row++) {
        for (uint32_t i = 0; i < a->splits; i++) {
            span s = split_of(a, row, i);
            of(a, &s, part(a, row, i));
        }
    }
}

static void reduce(const ceni_rows *a, stat of) {
    if (a->splits > 1) {
        write_parts(a, of);
        return;
    }
    for (uint64_t row = 0; row < a->rows; row++) {
        span s = {row, 0, a->cols};
        float words[3];
        of(a, &s, words);
        give(a->out, a->out_stride, row, words[0]);
    }
}

void ceni_twin_row_sum(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                       void *const *args) {
    ceni_rows a = rows_of(args);
    reduce(&a, sums_of);
}

void ceni_twin_row_absmax(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                          void *const *args) {
    ceni_rows a = rows_of(args);
    reduce(&a, absmaxes_of);
}

void ceni_twin_row_combine_sum(const uint32_t grid[3], const uint32_t block[3],
                               uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    for (uint64_t row = 0; row < a.rows; row++) {
        float total = 0;
        for (uint32_t i = 0; i < a.splits; i++) {
            total += part(&a, row, i)[0];
        }
        give(a.out, a.out_stride, row, total);
    }
}

void ceni_twin_row_combine_absmax(const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    for (uint64_t row = 0; row < a.rows; row++) {
        float most = 0;
        for (uint32_t i = 0; i < a.splits; i++) {
            most = larger(most, part(&a, row, i)[0]);
        }
        give(a.out, a.out_stride, row, most);
    }
}

static void put_softmax(const ceni_rows *a, uint64_t row, float most, float total) {
    span s = {row, 0, a->cols};
    float x[PIECE], inverse = 1 / total;
    for (uint64_t col = 0; col < a->cols; col += PIECE) {
        size_t count = load(a, &s, col, x);
        for (size_t i = 0; i < count; i++) {
            x[i] = expf(x[i] - most) * inverse;
        }
        ceni_operand_store(&a->y, row, col, count, x);
    }
}

void ceni_twin_row_softmax_part(const uint32_t grid[3], const uint32_t block[3],
                                uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    write_parts(&a, powers_of);
}

void ceni_twin_row_softmax(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                           void *const *args) {
    ceni_rows a = rows_of(args);
    for (uint64_t row = 0; row < a.rows; row++) {
        span s = {row, 0, a.cols};
        float words[2];
        powers_of(&a, &s, words);
        put_softmax(&a, row, words[0], words[1]);
    }
}

void ceni_twin_row_softmax_wide(const uint32_t grid[3], const uint32_t block[3],
                                uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    if (a.splits == 1) {
        ceni_twin_row_softmax(grid, block, shared_bytes, args);
        return;
    }
    for (uint64_t row = 0; row < a.rows; row++) {
        float most = -INFINITY, total = 0;
        for (uint32_t i = 0; i < a.splits; i++) {
            most = part(&a, row, i)[0] > most ? part(&a, row, i)[0] : most;
        }
        for (uint32_t i = 0; i < a.splits; i++) {
            total += part(&a, row, i)[1] * expf(part(&a, row, i)[0] - base(most));
        }
        put_softmax(&a, row, most, total);
    }
}

static void load_factor(const ceni_operand *o, uint64_t col, size_t count, float without,
                        float *to) {
    if (o->data) {
        ceni_operand_load(o, 0, col, count, to);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = without;
    }
}

static void put_norm(const ceni_rows *a, uint64_t row, const float *words) {
    span s = {row, 0, a->cols};
    float x[PIECE], gamma[PIECE], beta[PIECE];
    float mean = words[1], rstd = 1 / sqrtf(words[2] / words[0] + a->epsilon);
    give(a->out, a->out_stride, row, mean);
    give(a->rstd, a->rstd_stride, row, rstd);
    for (uint64_t col = 0; col < a->cols; col += PIECE) {
        size_t count = load(a, &s, col, x);
        load_factor(&a->gamma, col, count, 1, gamma);
        load_factor(&a->beta, col, count, 0, beta);
        for (size_t i = 0; i < count; i++) {
            x[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
        }
        ceni_operand_store(&a->y, row, col, count, x);
    }
}

void ceni_twin_row_moments_part(const uint32_t grid[3], const uint32_t block[3],
                                uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    write_parts(&a, moments_of);
}

void ceni_twin_row_layer_norm(const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    for (uint64_t row = 0; row < a.rows; row++) {
        span s = {row, 0, a.cols};
        float words[3];
        moments_of(&a, &s, words);
        put_norm(&a, row, words);
    }
}

static void combine_moments(float *a, const float *b) {
    float count = a[0] + b[0], apart = b[1] - a[1], share = b[0] / count;
    if (b[0] > 0) {
        a[2] += b[2] + apart * apart * a[0] * share;
        a[1] += apart * share;
        a[0] = count;
    }
}

void ceni_twin_row_layer_norm_wide(const uint32_t grid[3], const uint32_t block[3],
                                   uint32_t shared_bytes, void *const *args) {
    ceni_rows a = rows_of(args);
    if (a.splits == 1) {
        ceni_twin_row_layer_norm(grid, block, shared_bytes, args);
        return;
    }
    for (uint64_t row = 0; row < a.rows; row++) {
        float words[3] = {0};
        for (uint32_t i = 0; i < a.splits; i++) {
            combine_moments(words, part(&a, row, i));
        }
        put_norm(&a, row, words);
    }
}

/* ---- what each touches ---- */

static ceni_kernel_range matrix_range(const ceni_rows *a, const ceni_operand *o, uint64_t rows,
                                      bool write) {
    return ceni_operand_range(o->data, o->stride, rows, a->cols, ceni_operand_size(o->dtype),
                              write);
}

static ceni_kernel_range column_range(const ceni_rows *a, uint64_t data, uint64_t stride) {
    return ceni_operand_range(data, stride, a->rows, 1, sizeof(float), true);
}

static ceni_kernel_range work_range(const ceni_rows *a, bool write) {
    uint64_t bytes = a->splits > 1 ? CENI_ROWS_PART_BYTES : 0;
    return (ceni_kernel_range){a->work, a->rows * a->splits * bytes, write};
}

size_t ceni_ranges_rows_reduce(void *const *args, ceni_kernel_range *ranges) {
    ceni_rows a = rows_of(args);
    ranges[0] = matrix_range(&a, &a.x, a.rows, false);
    ranges[1] = a.splits > 1 ? work_range(&a, true) : column_range(&a, a.out, a.out_stride);
    return 2;
}

size_t ceni_ranges_rows_combine(void *const *args, ceni_kernel_range *ranges) {
    ceni_rows a = rows_of(args);
    ranges[0] = work_range(&a, false);
    ranges[1] = column_range(&a, a.out, a.out_stride);
    return 2;
}

size_t ceni_ranges_rows_apply(void *const *args, ceni_kernel_range *ranges) {
    ceni_rows a = rows_of(args);
    ranges[0] = matrix_range(&a, &a.x, a.rows, false);
    ranges[1] = matrix_range(&a, &a.y, a.rows, true);
    ranges[2] = matrix_range(&a, &a.gamma, 1, false);
    ranges[3] = matrix_range(&a, &a.beta, 1, false);
    ranges[4] = column_range(&a, a.out, a.out_stride);
    ranges[5] = column_range(&a, a.rstd, a.rstd_stride);
    ranges[6] = work_range(&a, false);
    return 7;
}
