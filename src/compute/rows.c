/* Calls along rows: how many threads and blocks a row has goes by its length, its alignment and by
 * how many there are, never by the device, so that sums are made in one order everywhere. */
#include "cenote/compute.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "compute/check.h"
#include "kernels/rows.h"

_Static_assert(sizeof(ceni_rows) < 256, "an argument's size is kept in a byte");

enum {
    BLOCK = 256,         /* threads, at least, where rows are short */
    ROW_THREADS = 512,   /* most for a row that is held, or read twice */
    SUM_THREADS = 256,   /* most for one that is read once, however long */
    ALIGNMENT = 3,       /* elements by which a row may be shifted in its slab */
    ENOUGH_BLOCKS = 512, /* to keep a GPU busy */
    SPLIT_COLS = 16384,  /* least of a split */
    WARP_ROWS = 8,       /* of a block whose warps have a row each */
    WHOLE_BLOCK = 128    /* threads, about, of one whose rows take several */
};

/* A row is split where there are too few of them. */
static uint32_t splits_of(uint64_t rows, uint64_t cols) {
    uint64_t wanted = rows && rows < ENOUGH_BLOCKS ? ENOUGH_BLOCKS / rows : 1;
    uint64_t most = cols / SPLIT_COLS;
    wanted = wanted < most ? wanted : most;
    wanted = wanted < CENI_ROWS_SPLITS_MAX ? wanted : CENI_ROWS_SPLITS_MAX;
    return wanted > 1 ? (uint32_t)wanted : 1;
}

uint64_t cen_compute_rows_work(uint64_t rows, uint64_t cols) {
    uint32_t splits = splits_of(rows, cols);
    return splits > 1 ? rows * splits * CENI_ROWS_PART_BYTES : 0;
}

/* Uses the work if it is enough. */
static cen_status take_work(const char *call, ceni_rows *a, const cen_scratch *work) {
    uint64_t bytes = cen_compute_rows_work(a->rows, a->cols);
    a->splits = 1;
    if (!work || !bytes || work->bytes < bytes) {
        return CEN_OK;
    }
    if (!work->data || work->data % CENI_ROWS_PART_BYTES) {
        return ceni_fail(CEN_ERR_INVALID, "%s: work lies at 0x%llx, which is no multiple of %d",
                         call, (unsigned long long)work->data, CENI_ROWS_PART_BYTES);
    }
    a->work = work->data;
    a->splits = splits_of(a->rows, a->cols);
    return CEN_OK;
}

static cen_matrix work_matrix(const ceni_rows *a) {
    uint64_t bytes = a->splits > 1 ? a->rows * a->splits * CENI_ROWS_PART_BYTES : 0;
    return (cen_matrix){a->work, 1, bytes, bytes, CEN_UINT8};
}

/* Blocks of at least BLOCK threads; of a split row no other is in the same. */
static cen_launch shape_of(const ceni_rows *a, uint32_t threads_most) {
    uint64_t threads = (a->cols + ALIGNMENT + CENI_ROWS_HELD - 1) / CENI_ROWS_HELD;
    uint32_t x = ceni_power(threads, 32, threads_most), y = x < BLOCK ? BLOCK / x : 1;
    y = a->splits > 1 ? 1 : y;
    return (cen_launch){{ceni_blocks(a->rows, y, CENI_GRID_X_MAX), a->splits, 1}, {x, y, 1}, 0};
}

static cen_status launch(cen_device *device, const char *name, cen_launch shape, ceni_rows *a,
                         cen_stream stream) {
    return cen_kernel_launch(device, name, &shape, (void *[]){a}, 1, stream);
}

/* ---- rows in whole pieces of 16 bytes ---- */

/* Gamma or beta, which may be FP32 whatever the rows are. */
static bool is_whole_factor(const ceni_operand *factor, uint32_t dtype) {
    return ceni_in_pieces(factor, dtype, 1) || ceni_in_pieces(factor, CEN_FP32, 1);
}

/* Is it what those kernels take, and few enough for one group to hold? */
static bool is_whole(const ceni_rows *a) {
    uint32_t dtype = a->x.dtype;
    uint64_t bytes = a->cols * ceni_operand_size(dtype);
    return a->splits == 1 && bytes && bytes % 16 == 0 &&
           bytes <= 16ull * CENI_ROWS_WHOLE_PIECES * CENI_ROWS_WHOLE_THREADS &&
           ceni_in_pieces(&a->x, dtype, a->rows) && ceni_in_pieces(&a->y, dtype, a->rows) &&
           is_whole_factor(&a->gamma, dtype) && is_whole_factor(&a->beta, dtype);
}

/* A warp a row as far as it reaches, then no more warps than hold it. */
static cen_status launch_whole(cen_device *device, const char *name, uint32_t most, ceni_rows *a,
                               cen_stream stream) {
    uint64_t pieces = a->cols * ceni_operand_size(a->x.dtype) / 16;
    uint32_t each = ceni_power((pieces + 31) / 32, 2, CENI_ROWS_WHOLE_PIECES);
    uint32_t x = (uint32_t)((pieces + 32 * each - 1) / (32 * each) * 32);
    uint32_t y = x == 32 ? WARP_ROWS : x < WHOLE_BLOCK ? WHOLE_BLOCK / x : 1;
    cen_launch shape = {
        {ceni_blocks(a->rows, (uint64_t)y * CENI_ROWS_WHOLE_ROWS(each, most), CENI_GRID_X_MAX), 1,
         1},
        {x, y, 1},
        0};
    char whole[48];
    snprintf(whole, sizeof whole, "%s_%s_%u", name, cen_dtype_name((cen_dtype)a->x.dtype), each);
    return launch(device, whole, shape, a, stream);
}

/* ---- sum and largest magnitude ---- */

typedef struct reduction {
    const char *call, *kernel, *combine;
} reduction;

static cen_status reduce(const reduction *r, cen_device *device, const cen_matrix *x,
                         const cen_scratch *work, const cen_matrix *out, cen_stream stream) {
    cen_status status = ceni_check_device(r->call, device);
    status = status ? status : ceni_check_floats(r->call, "x", x);
    status = status ? status : ceni_check_column(r->call, "out", out, x->rows);
    status = status ? status : ceni_check_apart(r->call, "out", out, "x", x, false);
    if (status || !x->rows) {
        return status;
    }
    ceni_rows a = {.x = ceni_operand_of(x),
                   .out = out->data,
                   .out_stride = out->stride,
                   .rows = x->rows,
                   .cols = x->cols};
    status = take_work(r->call, &a, work);
    cen_matrix parts = work_matrix(&a);
    status = status ? status : ceni_check_apart(r->call, "work", &parts, "x", x, false);
    status = status ? status : ceni_check_apart(r->call, "work", &parts, "out", out, false);
    if (!status && is_whole(&a)) {
        return launch_whole(device, r->kernel, CENI_ROWS_WHOLE_PIECES, &a, stream);
    }
    status = status ? status : launch(device, r->kernel, shape_of(&a, SUM_THREADS), &a, stream);
    if (status || a.splits == 1) {
        return status;
    }
    cen_launch shape = {{ceni_blocks(a.rows, 128, CENI_GRID_X_MAX), 1, 1}, {128, 1, 1}, 0};
    return launch(device, r->combine, shape, &a, stream);
}

cen_status cen_compute_row_sum(cen_device *device, const cen_matrix *x, const cen_scratch *work,
                               const cen_matrix *out, cen_stream stream) {
    static const reduction sum = {"row_sum", "cen_row_sum", "cen_row_combine_sum"};
    return reduce(&sum, device, x, work, out, stream);
}

cen_status cen_compute_row_absmax(cen_device *device, const cen_matrix *x, const cen_scratch *work,
                                  const cen_matrix *out, cen_stream stream) {
    static const reduction absmax = {"row_absmax", "cen_row_absmax", "cen_row_combine_absmax"};
    return reduce(&absmax, device, x, work, out, stream);
}

/* ---- what is written back to rows ---- */

/* Of those that hold a row there is one for each type. */
typedef struct rewriting {
    const char *call, *held, *part, *wide;
    uint32_t whole_pieces; /* under way in a thread whose rows are whole */
} rewriting;

static cen_status rewrite(const rewriting *r, cen_device *device, ceni_rows *a, cen_stream stream) {
    if (is_whole(a)) {
        return launch_whole(device, r->held, r->whole_pieces, a, stream);
    }
    if (a->splits == 1 && a->cols + ALIGNMENT <= (uint64_t)CENI_ROWS_HELD * ROW_THREADS) {
        char name[40];
        snprintf(name, sizeof name, "%s_%s", r->held, cen_dtype_name((cen_dtype)a->x.dtype));
        return launch(device, name, shape_of(a, ROW_THREADS), a, stream);
    }
    if (a->splits == 1) {
        return launch(device, r->wide, shape_of(a, ROW_THREADS), a, stream);
    }
    cen_status status = launch(device, r->part, shape_of(a, ROW_THREADS), a, stream);
    return status ? status : launch(device, r->wide, shape_of(a, ROW_THREADS), a, stream);
}

cen_status cen_compute_softmax(cen_device *device, const cen_matrix *x, const cen_scratch *work,
                               const cen_matrix *out, cen_stream stream) {
    static const rewriting softmax = {"softmax", "cen_row_softmax", "cen_row_softmax_part",
                                      "cen_row_softmax_wide", CENI_ROWS_WHOLE_PIECES};
    cen_status status = ceni_check_device(softmax.call, device);
    status = status ? status : ceni_check_floats(softmax.call, "x", x);
    status = status ? status : ceni_check_shape(softmax.call, "out", out, x->rows, x->cols);
    status = status ? status : ceni_check_apart(softmax.call, "out", out, "x", x, true);
    if (status || !x->rows || !x->cols) {
        return status;
    }
    ceni_rows a = {
        .x = ceni_operand_of(x), .y = ceni_operand_of(out), .rows = x->rows, .cols = x->cols};
    status = take_work(softmax.call, &a, work);
    cen_matrix parts = work_matrix(&a);
    status = status ? status : ceni_check_apart(softmax.call, "work", &parts, "x", x, false);
    status = status ? status : ceni_check_apart(softmax.call, "work", &parts, "out", out, false);
    return status ? status : rewrite(&softmax, device, &a, stream);
}

static cen_status check_norm(const cen_layer_norm *n) {
    static const char call[] = "layer_norm";
    const cen_matrix *x = n->x, *outputs[] = {n->y, n->mean, n->rstd};
    const char *names[] = {"y", "mean", "rstd"};
    cen_status status = ceni_check_floats(call, "x", x);
    status = status ? status : ceni_check_shape(call, "y", n->y, x->rows, x->cols);
    status = status || !n->gamma ? status : ceni_check_shape(call, "gamma", n->gamma, 1, x->cols);
    status = status || !n->beta ? status : ceni_check_shape(call, "beta", n->beta, 1, x->cols);
    status = status || !n->mean ? status : ceni_check_column(call, "mean", n->mean, x->rows);
    status = status || !n->rstd ? status : ceni_check_column(call, "rstd", n->rstd, x->rows);
    for (int i = 0; i < 3 && !status; i++) {
        if (!outputs[i]) {
            continue;
        }
        status = ceni_check_apart(call, names[i], outputs[i], "x", x, !i);
        status = status ? status
                        : ceni_check_apart(call, names[i], outputs[i], "gamma", n->gamma, false);
        status =
            status ? status : ceni_check_apart(call, names[i], outputs[i], "beta", n->beta, false);
        for (int k = 0; k < i && !status; k++) {
            status = ceni_check_apart(call, names[i], outputs[i], names[k], outputs[k], false);
        }
    }
    if (!status && !(n->epsilon >= 0 && n->epsilon < INFINITY)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: epsilon is %g; it is finite, and at least 0", call,
                         (double)n->epsilon);
    }
    if (!status && x->rows && !x->cols) {
        return ceni_fail(CEN_ERR_INVALID, "%s: x has rows without columns", call);
    }
    return status;
}

/* Work overlaps nothing that is used beside it. */
static cen_status check_norm_work(const cen_layer_norm *n, const ceni_rows *a) {
    const cen_matrix *others[] = {n->x, n->y, n->gamma, n->beta, n->mean, n->rstd};
    const char *names[] = {"x", "y", "gamma", "beta", "mean", "rstd"};
    cen_matrix parts = work_matrix(a);
    cen_status status = CEN_OK;
    for (int i = 0; i < 6 && !status; i++) {
        status = ceni_check_apart("layer_norm", "work", &parts, names[i], others[i], false);
    }
    return status;
}

cen_status cen_compute_layer_norm(cen_device *device, const cen_layer_norm *norm,
                                  const cen_scratch *work, cen_stream stream) {
    static const rewriting layer_norm = {"layer_norm", "cen_row_layer_norm", "cen_row_moments_part",
                                         "cen_row_layer_norm_wide", CENI_ROWS_WHOLE_NORM_PIECES};
    cen_status status = ceni_check_device(layer_norm.call, device);
    if (!status && !norm) {
        return ceni_fail(CEN_ERR_INVALID, "layer_norm: norm is NULL");
    }
    status = status ? status : check_norm(norm);
    if (status || !norm->x->rows) {
        return status;
    }
    ceni_rows a = {.x = ceni_operand_of(norm->x),
                   .y = ceni_operand_of(norm->y),
                   .gamma = ceni_operand_of(norm->gamma),
                   .beta = ceni_operand_of(norm->beta),
                   .out = norm->mean ? norm->mean->data : 0,
                   .out_stride = norm->mean ? norm->mean->stride : 0,
                   .rstd = norm->rstd ? norm->rstd->data : 0,
                   .rstd_stride = norm->rstd ? norm->rstd->stride : 0,
                   .rows = norm->x->rows,
                   .cols = norm->x->cols,
                   .epsilon = norm->epsilon};
    status = take_work(layer_norm.call, &a, work);
    status = status ? status : check_norm_work(norm, &a);
    return status ? status : rewrite(&layer_norm, device, &a, stream);
}
