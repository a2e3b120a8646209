#include "cenote/dtype.h"

#include "base/log.h"

#include <stddef.h>
#include <string.h>

static const struct {
    cen_dtype dtype;
    uint32_t bits;
    const char *name;
} types[] = {
#define CEN_DTYPE_ROW(name, value, bits, text) {CEN_##name, bits, text},
    CEN_DTYPE_MAP(CEN_DTYPE_ROW)
#undef CEN_DTYPE_ROW
};

enum { TYPES = sizeof types / sizeof *types };

static const struct {
    const char *name;
    cen_dtype dtype;
} others[] = {
    {"f64", CEN_FP64},        {"float64", CEN_FP64},  {"double", CEN_FP64},  {"f32", CEN_FP32},
    {"float32", CEN_FP32},    {"float", CEN_FP32},    {"f16", CEN_FP16},     {"float16", CEN_FP16},
    {"half", CEN_FP16},       {"bfloat16", CEN_BF16}, {"fp8", CEN_FP8_E4M3}, {"f8", CEN_FP8_E4M3},
    {"float8", CEN_FP8_E4M3}, {"i8", CEN_INT8},
};

uint32_t cen_dtype_bits(cen_dtype dtype) {
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].dtype == dtype) {
            return types[i].bits;
        }
    }
    return 0;
}

const char *cen_dtype_name(cen_dtype dtype) {
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].dtype == dtype) {
            return types[i].name;
        }
    }
    return "?";
}

cen_status cen_dtype_find(const char *name, cen_dtype *dtype) {
    if (!name || !dtype) {
        return ceni_fail(CEN_ERR_INVALID, "a type of elements: name or dtype is NULL");
    }
    for (size_t i = 0; i < TYPES; i++) {
        if (!strcmp(types[i].name, name)) {
            *dtype = types[i].dtype;
            return CEN_OK;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!strcmp(others[i].name, name)) {
            *dtype = others[i].dtype;
            return CEN_OK;
        }
    }
    return ceni_fail(CEN_ERR_NOT_FOUND, "\"%.32s\" is no type of elements", name);
}
