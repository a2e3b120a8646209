/* The gradients of layer norm: which kernels, and how many parts sums over rows are made in. */
#include "cenote/compute.h"

#include <stdio.h>

#include "base/log.h"
#include "compute/check.h"
#include "kernels/norm_back.h"

_Static_assert(sizeof(ceni_norm_back) < 256, "an argument's size is kept in a byte");

enum {
    BLOCK = 256,             /* threads, at least */
    PARTS = 264,             /* most: two blocks for each multiprocessor of the largest GPUs, */
    LARGE_PARTS = 132,       /* or one, of as many threads as there may be */
    STAGES_BYTES = 96 << 10, /* most shared memory of rows under way, which all GPUs have */
    COLUMN_ROWS = 8,         /* rows of threads of a block that goes down columns */
    COLUMN_PARTS = 64        /* most parts of those */
};

static const char call[] = "layer_norm_back";

static bool is_held(uint64_t cols) {
    return cols <= CENI_NORM_BACK_HELD * CENI_NORM_BACK_THREADS_MAX;
}

static bool is_whole(const ceni_norm_back *a) {
    uint32_t dtype = a->x.dtype;
    return a->cols * ceni_operand_size(dtype) % 16 == 0 && ceni_in_pieces(&a->x, dtype, a->rows) &&
           ceni_in_pieces(&a->dy, dtype, a->rows) && ceni_in_pieces(&a->dx, dtype, a->rows) &&
           ceni_in_pieces(&a->gamma, dtype, 1);
}

/* Blocks whose threads hold a row, and as many rows as make up BLOCK of them. */
static cen_launch held_shape(uint64_t rows, uint64_t cols) {
    uint32_t x = ceni_power((cols + CENI_NORM_BACK_HELD - 1) / CENI_NORM_BACK_HELD, 32,
                            CENI_NORM_BACK_THREADS_MAX);
    uint32_t y = x < BLOCK ? BLOCK / x : 1;
    uint32_t parts = x == CENI_NORM_BACK_THREADS_MAX ? LARGE_PARTS : PARTS;
    return (cen_launch){{ceni_blocks(rows, y, parts), 1, 1}, {x, y, 1}, 0};
}

static uint64_t parts_of(uint64_t rows, uint64_t cols) {
    return !rows           ? 0
           : is_held(cols) ? held_shape(rows, cols).grid[0]
                           : ceni_blocks(rows, COLUMN_ROWS, COLUMN_PARTS);
}

uint64_t cen_compute_layer_norm_back_work(uint64_t rows, uint64_t cols) {
    uint64_t bytes;
    bool fits = !__builtin_mul_overflow(parts_of(rows, cols) * 2 * sizeof(float), cols, &bytes);
    return fits ? bytes : UINT64_MAX; /* of columns that no matrix has */
}

static cen_status check_inputs(const cen_layer_norm_back *b) {
    const cen_matrix *x = b->x;
    cen_status status = ceni_check_floats(call, "x", x);
    status = status ? status : ceni_check_shape(call, "dy", b->dy, x->rows, x->cols);
    status = status || !b->gamma ? status : ceni_check_shape(call, "gamma", b->gamma, 1, x->cols);
    status = status ? status : ceni_check_column(call, "mean", b->mean, x->rows);
    status = status ? status : ceni_check_column(call, "rstd", b->rstd, x->rows);
    if (!status && b->dy->dtype != x->dtype) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "%s: dy is %s, x %s", call,
                         cen_dtype_name(b->dy->dtype), cen_dtype_name(x->dtype));
    }
    if (!status && x->rows && !x->cols) {
        return ceni_fail(CEN_ERR_INVALID, "%s: x has rows without columns", call);
    }
    return status;
}

/* `output` is apart from all inputs, but for dx in place, and from what was checked before it. */
static cen_status check_output(const cen_layer_norm_back *b, const char *name,
                               const cen_matrix *output, bool in_place) {
    const cen_matrix *others[] = {b->dy, b->x, b->gamma, b->mean, b->rstd};
    const char *names[] = {"dy", "x", "gamma", "mean", "rstd"};
    cen_status status = CEN_OK;
    for (int i = 0; i < 5 && output && !status; i++) {
        status = ceni_check_apart(call, name, output, names[i], others[i], in_place && i < 2);
    }
    return status;
}

static cen_status check_outputs(const cen_layer_norm_back *b, const cen_matrix *work) {
    const cen_matrix *outputs[] = {b->dx, b->dgamma, b->dbeta, work};
    const char *names[] = {"dx", "dgamma", "dbeta", "work"};
    cen_status status = CEN_OK;
    for (int i = 0; i < 4 && !status; i++) {
        if (outputs[i] && i < 3) {
            status = ceni_check_shape(call, names[i], outputs[i], i ? 1 : b->x->rows, b->x->cols);
        }
        status = status ? status : check_output(b, names[i], outputs[i], !i);
        for (int k = 0; k < i && outputs[i] && !status; k++) {
            status = ceni_check_apart(call, names[i], outputs[i], names[k], outputs[k], false);
        }
    }
    return status;
}

static cen_status check_work(const cen_layer_norm_back *b, const cen_scratch *work,
                             cen_matrix *matrix) {
    uint64_t bytes = cen_compute_layer_norm_back_work(b->x->rows, b->x->cols);
    if (!bytes || !(b->dgamma || b->dbeta)) {
        return CEN_OK;
    }
    if (!work || work->bytes < bytes) {
        return ceni_fail(CEN_ERR_INVALID, "%s: work has %llu bytes, and %llu are needed", call,
                         (unsigned long long)(work ? work->bytes : 0), (unsigned long long)bytes);
    }
    if (!work->data || work->data % 16) {
        return ceni_fail(CEN_ERR_INVALID, "%s: work lies at 0x%llx, which is no multiple of 16",
                         call, (unsigned long long)work->data);
    }
    *matrix = (cen_matrix){work->data, 1, bytes, bytes, CEN_UINT8};
    return CEN_OK;
}

static cen_status launch(cen_device *device, const char *name, cen_launch shape, ceni_norm_back *a,
                         cen_stream stream) {
    return cen_kernel_launch(device, name, &shape, (void *[]){a}, 1, stream);
}

/* Rows that a block holds; of whole ones further rows are under way meanwhile. */
static cen_status back_held(cen_device *device, ceni_norm_back *a, cen_stream stream) {
    cen_launch shape = held_shape(a->rows, a->cols);
    if (!is_whole(a)) {
        return launch(device, "cen_norm_back", shape, a, stream);
    }
    uint32_t stage = shape.block[0] * shape.block[1] *
                     CENI_NORM_BACK_STAGE((uint32_t)ceni_operand_size(a->x.dtype));
    a->stages = STAGES_BYTES / stage;
    if (a->stages > CENI_NORM_BACK_STAGES_MAX) {
        a->stages = CENI_NORM_BACK_STAGES_MAX;
    }
    shape.shared_bytes = (uint32_t)a->stages * stage;
    char name[40];
    snprintf(name, sizeof name, "cen_norm_back_%s", cen_dtype_name((cen_dtype)a->x.dtype));
    return launch(device, name, shape, a, stream);
}

/* Long rows: sums over rows first, as dx may be written over what they are made of. */
static cen_status back_wide(cen_device *device, ceni_norm_back *a, cen_stream stream) {
    cen_status status = CEN_OK;
    if (a->work) {
        cen_launch shape = {{ceni_blocks(a->cols, 128, CENI_GRID_X_MAX), (uint32_t)a->parts, 1},
                            {32, COLUMN_ROWS, 1},
                            0};
        status = launch(device, "cen_norm_back_columns", shape, a, stream);
    }
    if (status || !a->dx.data) {
        return status;
    }
    cen_launch shape = {
        {ceni_blocks(a->rows, 1, CENI_GRID_X_MAX), 1, 1}, {CENI_NORM_BACK_THREADS_MAX, 1, 1}, 0};
    return launch(device, "cen_norm_back_wide", shape, a, stream);
}

cen_status cen_compute_layer_norm_back(cen_device *device, const cen_layer_norm_back *back,
                                       const cen_scratch *work, cen_stream stream) {
    cen_matrix parts = {.dtype = CEN_UINT8};
    cen_status status = ceni_check_device(call, device);
    if (!status && !back) {
        return ceni_fail(CEN_ERR_INVALID, "%s: back is NULL", call);
    }
    status = status ? status : check_inputs(back);
    status = status ? status : check_work(back, work, &parts);
    status = status ? status : check_outputs(back, &parts);
    if (status || !back->x->cols) {
        return status;
    }
    ceni_norm_back a = {.dy = ceni_operand_of(back->dy),
                        .x = ceni_operand_of(back->x),
                        .gamma = ceni_operand_of(back->gamma),
                        .dx = ceni_operand_of(back->dx),
                        .dgamma = ceni_operand_of(back->dgamma),
                        .dbeta = ceni_operand_of(back->dbeta),
                        .mean = back->mean->data,
                        .mean_stride = back->mean->stride,
                        .rstd = back->rstd->data,
                        .rstd_stride = back->rstd->stride,
                        .work = parts.data,
                        .rows = back->x->rows,
                        .cols = back->x->cols,
                        .parts = parts_of(back->x->rows, back->x->cols)};
    if (a.rows && (a.work || a.dx.data)) {
        status = is_held(a.cols) ? back_held(device, &a, stream) : back_wide(device, &a, stream);
    }
    if (status || !(back->dgamma || back->dbeta)) {
        return status;
    }
    cen_launch shape = {{ceni_blocks(a.cols, 32, CENI_GRID_X_MAX), 1, 1}, {32, 8, 1}, 0};
    return launch(device, "cen_norm_back_sum", shape, &a, stream);
}
