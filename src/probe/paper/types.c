/* Types of numbers: names and sizes. */
#include "cenote/roofline.h"

#include "base/log.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
#define TYPE_ROW(name, value, text, bytes) [value] = {text, bytes},
    CEN_TYPE_MAP(TYPE_ROW)
#undef TYPE_ROW
};
enum { TYPES = sizeof types / sizeof *types };

static const struct {
    const char *name;
    cen_type type;
} others[] = {
    {"f32", CEN_TYPE_FP32},      {"float32", CEN_TYPE_FP32}, {"float", CEN_TYPE_FP32},
    {"f16", CEN_TYPE_FP16},      {"float16", CEN_TYPE_FP16}, {"half", CEN_TYPE_FP16},
    {"bfloat16", CEN_TYPE_BF16}, {"float8", CEN_TYPE_FP8},   {"f8", CEN_TYPE_FP8},
    {"i8", CEN_TYPE_INT8},
};

cen_status cen_type_find(const char *name, cen_type *type) {
    if (!name || !type) {
        return ceni_fail(CEN_ERR_INVALID, "cen_type_find: %s is NULL", name ? "type" : "name");
    }
    for (int i = 0; i < TYPES; i++) {
        if (!strcmp(name, types[i].name)) {
            *type = (cen_type)i;
            return CEN_OK;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!strcmp(name, others[i].name)) {
            *type = others[i].type;
            return CEN_OK;
        }
    }
    return ceni_fail(CEN_ERR_NOT_FOUND,
                     "cen_type_find: '%s' is none of fp32, tf32, fp16, bf16, fp8 and int8", name);
}

static bool is_type(cen_type type) {
    return (int)type >= 0 && (int)type < TYPES;
}

const char *cen_type_name(cen_type type) {
    return is_type(type) ? types[type].name : "?";
}

uint32_t cen_type_bytes(cen_type type) {
    return is_type(type) ? types[type].bytes : 0;
}
