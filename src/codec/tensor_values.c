#include "codec/tensor_values.h"

#include "base/fp8.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static uint64_t load(const uint8_t *from, uint32_t bytes) {
    uint64_t bits = 0;
    for (uint32_t i = bytes; i-- > 0;) {
        bits = bits << 8 | from[i];
    }
    return bits;
}

static double fp64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double decode(cen_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case CEN_BOOL:
        return bits != 0;
    case CEN_INT8:
        return (int8_t)bits;
    case CEN_INT16:
        return (int16_t)bits;
    case CEN_INT32:
        return (int32_t)bits;
    case CEN_INT64:
        return (double)(int64_t)bits;
    case CEN_FP8_E4M3:
        return (double)ceni_float_of_e4m3((uint8_t)bits);
    case CEN_FP8_E5M2:
        return (double)ceni_float_of_e5m2((uint8_t)bits);
    case CEN_FP16:
        return (double)ceni_float_of_f16((uint16_t)bits);
    case CEN_BF16:
        return (double)ceni_float_of_bf16((uint16_t)bits);
    case CEN_FP32:
        return (double)ceni_float_of((uint32_t)bits);
    case CEN_FP64:
        return fp64(bits);
    default: /* UINT8 to UINT64 */
        return (double)bits;
    }
}

void ceni_values_decode(cen_dtype dtype, const uint8_t *from, size_t count, double *to) {
    uint32_t bytes = cen_dtype_bits(dtype) / 8;
    for (size_t i = 0; i < count; i++) {
        to[i] = decode(dtype, load(from + i * bytes, bytes));
    }
}

cen_status cen_tensors_values(const cen_tensors *tensors, const cen_tensor *tensor, uint64_t first,
                              uint64_t count, double *to) {
    if (!tensors || !tensor || (!to && count)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensors_values: %s is NULL",
                         !tensors  ? "tensors"
                         : !tensor ? "tensor"
                                   : "to");
    }
    if (!tensor->dtype) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "tensor '%.200s': %s has no numbers that are read",
                         tensor->name, tensor->type);
    }
    if (first > tensor->count || count > tensor->count - first) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_tensors_values: tensor '%.200s' has %" PRIu64 " elements; %" PRIu64
                         " from %" PRIu64 " on are asked for",
                         tensor->name, tensor->count, count, first);
    }
    uint32_t size = tensor->bits / 8;
    uint8_t bytes[8192];
    cen_status status = CEN_OK;
    while (count && !status) {
        uint64_t most = sizeof bytes / size, n = count < most ? count : most;
        status = cen_tensors_read(tensors, tensor, first * size, n * size, bytes);
        if (!status) {
            ceni_values_decode(tensor->dtype, bytes, (size_t)n, to);
        }
        to += n;
        first += n;
        count -= n;
    }
    return status;
}

/* ---- what they are like ---- */

/* Sums of a piece, whose mean is taken first: so that nothing is lost beside a large mean. */
typedef struct moments {
    double count, mean, squares; /* squares: of the distances from the mean */
} moments;

static moments moments_of(const double *values, size_t count, double scale) {
    moments m = {0};
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += isfinite(values[i]) ? values[i] * scale : 0;
        m.count += isfinite(values[i]);
    }
    m.mean = m.count > 0 ? sum / m.count : 0;
    for (size_t i = 0; i < count; i++) {
        double d = isfinite(values[i]) ? values[i] * scale - m.mean : 0;
        m.squares += d * d;
    }
    return m;
}

static void join(moments *all, moments m) {
    double count = all->count + m.count, d = m.mean - all->mean;
    if (m.count > 0) {
        all->squares += m.squares + d * d * (all->count * m.count / count);
        all->mean += d * (m.count / count);
        all->count = count;
    }
}

static void count_values(const double *values, size_t count, bool *any, cen_tensor_stats *s) {
    for (size_t i = 0; i < count; i++) {
        double v = values[i];
        s->nan += isnan(v) != 0;
        s->infinite += isinf(v) != 0;
        s->zeros += v == 0;
        if (isfinite(v)) {
            s->min = !*any || v < s->min ? v : s->min;
            s->max = !*any || v > s->max ? v : s->max;
            s->absmax = fabs(v) > s->absmax ? fabs(v) : s->absmax;
            *any = true;
        }
    }
}

/* Whose squares and sums a double holds; what is lost of small ones is nothing beside the large. */
static double scale_for(double absmax) {
    return absmax > 0x1p470 ? 0x1p-600 : absmax < 0x1p-400 ? 0x1p600 : 1;
}

static cen_status read_stats(const cen_tensors *tensors, const cen_tensor *tensor, double scale,
                             double *values, cen_tensor_stats *stats) {
    cen_tensor_stats made = {.count = tensor->count};
    moments all = {0};
    bool any = false;
    cen_status status = cen_tensors_values(tensors, tensor, 0, 0, values); /* has it numbers? */
    for (uint64_t at = 0; at < tensor->count && !status; at += CENI_PIECE) {
        uint64_t rest = tensor->count - at, n = rest < CENI_PIECE ? rest : CENI_PIECE;
        status = cen_tensors_values(tensors, tensor, at, n, values);
        if (!status) {
            count_values(values, (size_t)n, &any, &made);
            join(&all, moments_of(values, (size_t)n, scale));
        }
    }
    if (!status) { /* rounded, they may be beyond what there can be */
        made.mean = fmin(fmax(all.mean / scale, made.min), made.max);
        made.std = all.count > 0 ? fmin(sqrt(all.squares / all.count) / scale, made.absmax) : 0;
        *stats = made;
    }
    return status;
}

cen_status cen_tensors_stats(const cen_tensors *tensors, const cen_tensor *tensor,
                             cen_tensor_stats *stats) {
    if (!tensors || !tensor || !stats) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensors_stats: %s is NULL",
                         !tensors  ? "tensors"
                         : !tensor ? "tensor"
                                   : "stats");
    }
    double *values = ceni_malloc(CENI_PIECE * sizeof *values);
    if (!values) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory to read it",
                         tensor->name);
    }
    cen_tensor_stats made = {0};
    cen_status status = read_stats(tensors, tensor, 1, values, &made);
    double scale = scale_for(made.absmax);
    if (!status && made.absmax > 0 && scale != 1) {
        status = read_stats(tensors, tensor, scale, values, &made);
    }
    ceni_free(values);
    if (!status) {
        *stats = made;
    }
    return status;
}
