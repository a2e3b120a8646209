#include "cenote/compute.h"

#include <stdio.h>

#include "base/log.h"
#include "compute/check.h"
#include "kernels/transpose.h"

enum { PADDED_TILE = 32 };

/* Every row begins at a multiple of 16 bytes. */
static bool in_quads(const cen_matrix *m, uint64_t size) {
    return m->data % 16 == 0 && (m->stride * size % 16 == 0 || m->rows <= 1);
}

static cen_status check(cen_device *device, const cen_matrix *x, const cen_matrix *out) {
    cen_status status = ceni_check_device("transpose", device);
    status = status ? status : ceni_check_matrix("transpose", "x", x);
    status = status ? status : ceni_check_matrix("transpose", "out", out);
    if (!status && (x->rows != out->cols || x->cols != out->rows)) {
        return ceni_fail(CEN_ERR_INVALID, "transpose: out is %llu x %llu, x %llu x %llu",
                         (unsigned long long)out->rows, (unsigned long long)out->cols,
                         (unsigned long long)x->rows, (unsigned long long)x->cols);
    }
    if (!status && x->dtype != out->dtype) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "transpose: x is %s, out %s",
                         cen_dtype_name(x->dtype), cen_dtype_name(out->dtype));
    }
    return status ? status : ceni_check_apart("transpose", "out", out, "x", x, false);
}

cen_status cen_compute_transpose(cen_device *device, const cen_matrix *x, const cen_matrix *out,
                                 cen_stream stream) {
    cen_status status = check(device, x, out);
    if (status || !x->rows || !x->cols) {
        return status;
    }
    uint64_t size = cen_dtype_bits(x->dtype) / 8;
    bool quads = in_quads(x, size) && in_quads(out, size);
    uint32_t tile = quads ? (uint32_t)CENI_TRANSPOSE_TILE(size) : PADDED_TILE;
    ceni_transpose t = {out->data, x->data, out->stride, x->stride, x->rows, x->cols, size};
    cen_launch shape = {{ceni_blocks(x->cols, tile, CENI_GRID_X_MAX),
                         ceni_blocks(x->rows, tile, CENI_GRID_Y_MAX), 1},
                        {quads ? 256 : 32, quads ? 1 : 8, 1},
                        0};
    char name[40];
    snprintf(name, sizeof name, "cen_transpose_%s%u", quads ? "" : "padded_", (unsigned)size);
    return cen_kernel_launch(device, name, &shape, (void *[]){&t}, 1, stream);
}
