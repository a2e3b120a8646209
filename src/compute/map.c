/* Element-wise calls: steps checked, and the kernel chosen that is made for them, if there is one.
 */
#include "cenote/compute.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "compute/check.h"
#include "compute/compute.h"
#include "kernels/elementwise.h"

_Static_assert((int)CENI_MAP_SCALE == (int)CEN_MAP_SCALE, "kernels have their own names of steps");
_Static_assert((int)CENI_MAP_ROUND == (int)CEN_MAP_ROUND, "kernels have their own names of steps");
_Static_assert((int)CENI_MAP_STEPS == (int)CEN_MAP_OPS_MAX, "as many steps as the interface says");
_Static_assert((int)CENI_MAP_MATRICES == (int)CEN_MAP_MATRICES_MAX, "so many in registers");
_Static_assert(sizeof(ceni_map) < 256, "an argument's size is kept in a byte");

enum { THREADS = 256 };

static bool has_matrix(const cen_map_op *op) {
    return op->kind == CEN_MAP_ADD || op->kind == CEN_MAP_AXPY;
}

static cen_status check_step(size_t index, const cen_map_op *op, const cen_matrix *x,
                             const cen_matrix *out) {
    char name[32];
    snprintf(name, sizeof name, "step %zu's other", index);
    if ((int)op->kind < CEN_MAP_SCALE || op->kind > CEN_MAP_ROUND) {
        return ceni_fail(CEN_ERR_INVALID, "map: step %zu is of kind %d, which is none", index,
                         (int)op->kind);
    }
    if (op->kind == CEN_MAP_ROUND && op->dtype != CEN_FP32 && op->dtype != CEN_FP16 &&
        op->dtype != CEN_BF16) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "map: step %zu rounds to %s; fp32, fp16 and bf16 have kernels", index,
                         cen_dtype_name(op->dtype));
    }
    if (!has_matrix(op) && op->kind != CEN_MAP_BIAS) {
        return CEN_OK;
    }
    cen_status status =
        ceni_check_shape("map", name, op->other, op->kind == CEN_MAP_BIAS ? 1 : x->rows, x->cols);
    return status ? status : ceni_check_apart("map", "out", out, name, op->other, has_matrix(op));
}

static cen_status check_steps(const cen_map_op *ops, size_t count, const cen_matrix *x,
                              const cen_matrix *out) {
    size_t matrices = 0, biases = 0;
    if ((count && !ops) || count > CEN_MAP_OPS_MAX) {
        return ceni_fail(CEN_ERR_INVALID, "map: %zu steps%s; %d is the most", count,
                         ops ? "" : " at NULL", CEN_MAP_OPS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        cen_status status = check_step(i, &ops[i], x, out);
        if (status) {
            return status;
        }
        matrices += has_matrix(&ops[i]);
        biases += ops[i].kind == CEN_MAP_BIAS;
    }
    if (matrices > CEN_MAP_MATRICES_MAX || biases > CEN_MAP_BIASES_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "map: steps add %zu matrices and %zu rows; %d and %d are the most",
                         matrices, biases, CEN_MAP_MATRICES_MAX, CEN_MAP_BIASES_MAX);
    }
    return CEN_OK;
}

/* Without gaps all rows are one. */
static bool is_one_row(const cen_map_op *ops, size_t count, const cen_matrix *x,
                       const cen_matrix *out) {
    bool one = x->stride == x->cols && out->stride == out->cols;
    for (size_t i = 0; i < count; i++) {
        one &= ops[i].kind != CEN_MAP_BIAS &&
               (!has_matrix(&ops[i]) || ops[i].other->stride == x->cols);
    }
    return one;
}

static ceni_map map_of(const cen_map_op *ops, size_t count, const cen_matrix *x,
                       const cen_matrix *out) {
    ceni_map m = {.x = x->data,
                  .out = out->data,
                  .x_stride = x->stride,
                  .out_stride = out->stride,
                  .rows = x->rows,
                  .cols = x->cols,
                  .x_dtype = (uint16_t)x->dtype,
                  .out_dtype = (uint16_t)out->dtype,
                  .count = (uint16_t)count};
    for (size_t i = 0; i < count; i++) {
        const cen_map_op *op = &ops[i];
        bool other = has_matrix(op) || op->kind == CEN_MAP_BIAS;
        m.steps[i] =
            (ceni_map_step){other ? op->other->data : 0, other ? op->other->stride : 0, op->alpha,
                            (uint16_t)op->kind, (uint16_t)(other ? op->other->dtype : op->dtype)};
    }
    if (is_one_row(ops, count, x, out)) {
        m.cols *= m.rows;
        m.rows = 1;
    }
    return m;
}

/* ---- which kernel ---- */

static const struct {
    uint16_t kinds[2];
    const char *name;
} fixed[] = {
#define FIXED(name, first, second) {{CENI_MAP_##first, CENI_MAP_##second}, #name},
    CENI_MAP_FIXED(FIXED)
#undef FIXED
};

/* All matrices are of x's type. */
static bool of_one_type(const ceni_map *m) {
    bool one = m->out_dtype == m->x_dtype;
    for (uint32_t i = 0; i < m->count; i++) {
        bool other = m->steps[i].data != 0;
        one &= !other || m->steps[i].dtype == m->x_dtype;
    }
    return one;
}

static bool any_fp32(const ceni_map *m) {
    bool any = m->out_dtype == CEN_FP32 || m->x_dtype == CEN_FP32;
    for (uint32_t i = 0; i < m->count; i++) {
        any |= m->steps[i].dtype == CEN_FP32 &&
               (m->steps[i].data || m->steps[i].kind == CENI_MAP_ROUND);
    }
    return any;
}

/* Short rows: what a thread takes lies in several, and the row that is added is read once. */
static bool goes_down(const ceni_map *m, uint64_t piece) {
    uint64_t bytes = piece * ceni_operand_size(m->out_dtype);
    return m->rows > 1 && m->cols <= piece * THREADS && m->out % bytes == 0 &&
           m->out_stride % piece == 0;
}

/* Its name, and how many pieces a thread takes. */
static uint32_t choose(const ceni_map *m, char *name, size_t size) {
    const char *x = cen_dtype_name(m->x_dtype), *out = cen_dtype_name(m->out_dtype);
    if (!m->count) {
        snprintf(name, size, "cen_map_%s_to_%s", x, out);
        return 2;
    }
    for (size_t i = 0; m->count <= 2 && of_one_type(m) && i < sizeof fixed / sizeof *fixed; i++) {
        if (fixed[i].kinds[0] == m->steps[0].kind && fixed[i].kinds[1] == m->steps[1].kind) {
            snprintf(name, size, "cen_map_%s_%s", fixed[i].name, x);
            return 2;
        }
    }
    snprintf(name, size, "cen_map_chain_%d", any_fp32(m) ? 4 : 8);
    return 1;
}

/* Threads go along rows as far as these reach; the others of a block take further rows. */
static cen_launch shape_of(uint64_t rows, uint64_t pieces, uint32_t each) {
    uint32_t x = ceni_power((pieces + each - 1) / each, 1, THREADS), y = THREADS / x;
    return (cen_launch){{ceni_blocks(pieces, (uint64_t)x * each, CENI_GRID_X_MAX),
                         ceni_blocks(rows, y, CENI_GRID_Y_MAX), 1},
                        {x, y, 1},
                        0};
}

cen_status cen_compute_map(cen_device *device, const cen_map_op *ops, size_t op_count,
                           const cen_matrix *x, const cen_matrix *out, cen_stream stream) {
    cen_status status = ceni_check_device("map", device);
    status = status ? status : ceni_check_floats("map", "x", x);
    status = status ? status : ceni_check_shape("map", "out", out, x->rows, x->cols);
    status = status ? status : ceni_check_apart("map", "out", out, "x", x, true);
    status = status ? status : check_steps(ops, op_count, x, out);
    if (status || !x->rows || !x->cols) {
        return status;
    }
    if (!op_count && x->dtype == out->dtype) {
        return cen_compute_copy(device, x, out, stream);
    }
    ceni_map m = map_of(ops, op_count, x, out);
    char name[48];
    uint32_t each = choose(&m, name, sizeof name), piece = any_fp32(&m) ? 4 : 8;
    m.down = each > 1 && goes_down(&m, piece);
    cen_launch shape = m.down
                           ? shape_of((m.rows + each - 1) / each, (m.cols + piece - 1) / piece, 1)
                           : shape_of(m.rows, m.cols / piece + 2, each);
    return cen_kernel_launch(device, name, &shape, (void *[]){&m}, 1, stream);
}

/* ---- rows of bytes ---- */

/* One row where there are no gaps. */
static void join_rows(ceni_bytes *b, bool no_gaps) {
    if (no_gaps) {
        b->width *= b->rows;
        b->rows = 1;
    }
}

cen_status cen_compute_fill(cen_device *device, const void *element, const cen_matrix *out,
                            cen_stream stream) {
    cen_status status = ceni_check_device("fill", device);
    status = status ? status : ceni_check_matrix("fill", "out", out);
    if (!status && !element) {
        status = ceni_fail(CEN_ERR_INVALID, "fill: element is NULL");
    }
    if (status || !out->rows || !out->cols) {
        return status;
    }
    uint64_t size = cen_dtype_bits(out->dtype) / 8;
    ceni_bytes b = {.dst = out->data,
                    .dst_stride = out->stride * size,
                    .rows = out->rows,
                    .width = out->cols * size,
                    .unit = size};
    for (uint64_t at = 0; at < sizeof b.src; at += size) {
        memcpy((uint8_t *)&b.src + at, element, size);
    }
    join_rows(&b, out->stride == out->cols);
    cen_launch shape = shape_of(b.rows, b.width / 16 + 2, 1);
    return cen_kernel_launch(device, "cen_fill_rows", &shape, (void *[]){&b}, 1, stream);
}

cen_status cen_compute_copy(cen_device *device, const cen_matrix *x, const cen_matrix *out,
                            cen_stream stream) {
    cen_status status = ceni_check_device("copy", device);
    status = status ? status : ceni_check_matrix("copy", "x", x);
    status = status ? status : ceni_check_matrix("copy", "out", out);
    if (!status && (x->rows != out->rows || x->cols != out->cols || x->dtype != out->dtype)) {
        status = ceni_fail(CEN_ERR_INVALID, "copy: out is %llu x %llu %s, x %llu x %llu %s",
                           (unsigned long long)out->rows, (unsigned long long)out->cols,
                           cen_dtype_name(out->dtype), (unsigned long long)x->rows,
                           (unsigned long long)x->cols, cen_dtype_name(x->dtype));
    }
    status = status ? status : ceni_check_apart("copy", "out", out, "x", x, true);
    if (status || !x->rows || !x->cols || x->data == out->data) {
        return status;
    }
    uint64_t size = cen_dtype_bits(x->dtype) / 8;
    ceni_bytes b = {out->data, out->stride * size, x->data, x->stride * size,
                    x->rows,   x->cols * size,     size};
    join_rows(&b, x->stride == x->cols && out->stride == out->cols);
    cen_launch shape = shape_of(b.rows, b.width / 16 + 2, 1);
    return cen_kernel_launch(device, "cen_copy_rows", &shape, (void *[]){&b}, 1, stream);
}
