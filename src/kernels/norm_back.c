/* The twins of norm_back.cu: rows in pieces, means along them double. */
#include "kernels/norm_back.h"

#include <string.h>

enum { PIECE = 256, COLUMNS_BLOCK_ROWS = 8 };

static ceni_norm_back back_of(void *const *args) {
    ceni_norm_back a;
    memcpy(&a, args[0], sizeof a);
    return a;
}

typedef struct piece {
    float dy[PIECE], g[PIECE], h[PIECE];
    float rstd;
    size_t count;
} piece;

static float at(uint64_t data, uint64_t stride, uint64_t row) {
    return ((const float *)(uintptr_t)data)[row * stride];
}

static void load(const ceni_norm_back *a, uint64_t row, uint64_t col, piece *p) {
    float mean = at(a->mean, a->mean_stride, row), gamma[PIECE];
    p->rstd = at(a->rstd, a->rstd_stride, row);
    p->count = a->cols - col < PIECE ? a->cols - col : PIECE;
    ceni_operand_load(&a->dy, row, col, p->count, p->dy);
    ceni_operand_load(&a->x, row, col, p->count, p->h);
    if (a->gamma.data) {
        ceni_operand_load(&a->gamma, 0, col, p->count, gamma);
    }
    for (size_t i = 0; i < p->count; i++) {
        p->h[i] = (p->h[i] - mean) * p->rstd;
        p->g[i] = a->gamma.data ? p->dy[i] * gamma[i] : p->dy[i];
    }
}

static void put_dx(const ceni_norm_back *a, uint64_t row) {
    double sum_g = 0, sum_gh = 0;
    piece p;
    for (uint64_t col = 0; col < a->cols; col += PIECE) {
        load(a, row, col, &p);
        for (size_t i = 0; i < p.count; i++) {
            float product = p.g[i] * p.h[i];
            sum_g += p.g[i];
            sum_gh += product;
        }
    }
    float mean_g = (float)(sum_g / (double)a->cols), mean_gh = (float)(sum_gh / (double)a->cols);
    for (uint64_t col = 0; col < a->cols; col += PIECE) {
        load(a, row, col, &p);
        for (size_t i = 0; i < p.count; i++) {
            p.g[i] = p.rstd * (p.g[i] - mean_g - p.h[i] * mean_gh);
        }
        ceni_operand_store(&a->dx, row, col, p.count, p.g);
    }
}

/* Adds a row to its part: rows go to parts in turn, `together` at a time. */
static void add_to_part(const ceni_norm_back *a, uint64_t row, uint64_t together) {
    float *gamma = (float *)(uintptr_t)a->work + row / together % a->parts * 2 * a->cols;
    float *beta = gamma + a->cols;
    piece p;
    for (uint64_t col = 0; col < a->cols; col += PIECE) {
        load(a, row, col, &p);
        for (size_t i = 0; i < p.count; i++) {
            gamma[col + i] += p.dy[i] * p.h[i];
            beta[col + i] += p.dy[i];
        }
    }
}

static void put_parts(const ceni_norm_back *a, uint64_t together) {
    memset((void *)(uintptr_t)a->work, 0, a->parts * 2 * a->cols * sizeof(float));
    for (uint64_t row = 0; row < a->rows; row++) {
        add_to_part(a, row, together);
    }
}

void ceni_twin_norm_back(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    ceni_norm_back a = back_of(args);
    if (a.work) { /* first: dx may be written over what is read */
        put_parts(&a, block[1]);
    }
    if (a.dx.data) {
        ceni_twin_norm_back_wide(grid, block, shared_bytes, args);
    }
}

void ceni_twin_norm_back_wide(const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void *const *args) {
    ceni_norm_back a = back_of(args);
    for (uint64_t row = 0; row < a.rows; row++) {
        put_dx(&a, row);
    }
}

void ceni_twin_norm_back_columns(const uint32_t grid[3], const uint32_t block[3],
                                 uint32_t shared_bytes, void *const *args) {
    ceni_norm_back a = back_of(args);
    put_parts(&a, COLUMNS_BLOCK_ROWS);
}

void ceni_twin_norm_back_sum(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                             void *const *args) {
    ceni_norm_back a = back_of(args);
    const float *work = (const float *)(uintptr_t)a.work;
    for (uint64_t col = 0; col < a.cols; col++) {
        double gamma = 0, beta = 0;
        for (uint64_t i = 0; i < a.parts; i++) {
            gamma += work[i * 2 * a.cols + col];
            beta += work[(i * 2 + 1) * a.cols + col];
        }
        float sums[2] = {(float)gamma, (float)beta};
        if (a.dgamma.data) {
            ceni_operand_store(&a.dgamma, 0, col, 1, &sums[0]);
        }
        if (a.dbeta.data) {
            ceni_operand_store(&a.dbeta, 0, col, 1, &sums[1]);
        }
    }
}

static ceni_kernel_range matrix_range(const ceni_norm_back *a, const ceni_operand *o, uint64_t rows,
                                      bool write) {
    return ceni_operand_range(o->data, o->stride, rows, a->cols, ceni_operand_size(o->dtype),
                              write);
}

static ceni_kernel_range work_range(const ceni_norm_back *a, bool write) {
    uint64_t bytes = a->work ? a->parts * 2 * a->cols * sizeof(float) : 0;
    return (ceni_kernel_range){a->work, bytes, write};
}

/* What is read to get at g and h: 5 ranges. */
static void inputs(const ceni_norm_back *a, ceni_kernel_range *ranges) {
    ranges[0] = matrix_range(a, &a->dy, a->rows, false);
    ranges[1] = matrix_range(a, &a->x, a->rows, false);
    ranges[2] = matrix_range(a, &a->gamma, 1, false);
    ranges[3] = ceni_operand_range(a->mean, a->mean_stride, a->rows, 1, sizeof(float), false);
    ranges[4] = ceni_operand_range(a->rstd, a->rstd_stride, a->rows, 1, sizeof(float), false);
}

size_t ceni_ranges_norm_back(void *const *args, ceni_kernel_range *ranges) {
    ceni_norm_back a = back_of(args);
    inputs(&a, ranges);
    ranges[5] = matrix_range(&a, &a.dx, a.rows, true);
    ranges[6] = work_range(&a, true);
    return 7;
}

size_t ceni_ranges_norm_back_wide(void *const *args, ceni_kernel_range *ranges) {
    ceni_norm_back a = back_of(args);
    inputs(&a, ranges);
    ranges[5] = matrix_range(&a, &a.dx, a.rows, true);
    return 6;
}

size_t ceni_ranges_norm_back_columns(void *const *args, ceni_kernel_range *ranges) {
    ceni_norm_back a = back_of(args);
    inputs(&a, ranges);
    ranges[5] = work_range(&a, true);
    return 6;
}

size_t ceni_ranges_norm_back_sum(void *const *args, ceni_kernel_range *ranges) {
    ceni_norm_back a = back_of(args);
    ranges[0] = work_range(&a, false);
    ranges[1] = matrix_range(&a, &a.dgamma, 1, true);
    ranges[2] = matrix_range(&a, &a.dbeta, 1, true);
    return 3;
}
