/* The types of elements that a tensor file may have. */
#include "codec/safetensors.h"

#include <string.h>

static const ceni_tensor_type types[] = {
#define CENI_TYPE_ROW(name, bits, dtype) {name, bits, (cen_dtype)(dtype)},
    CEN_TENSOR_TYPE_MAP(CENI_TYPE_ROW)
#undef CENI_TYPE_ROW
};

enum { TYPES = sizeof types / sizeof *types };

const ceni_tensor_type *ceni_tensor_type_find(const char *name) {
    for (size_t i = 0; i < TYPES; i++) {
        if (!strcmp(types[i].name, name)) {
            return &types[i];
        }
    }
    return NULL;
}

const char *cen_tensor_type(cen_dtype dtype) {
    for (size_t i = 0; i < TYPES; i++) {
        if (dtype && types[i].dtype == dtype) {
            return types[i].name;
        }
    }
    return NULL;
}

bool ceni_tensor_measure(const ceni_tensor_type *type, const uint64_t *shape, uint32_t rank,
                         uint64_t *count, uint64_t *bytes) {
    uint64_t product = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] && product > UINT64_MAX / shape[i]) {
            return false;
        }
        product *= shape[i];
    }
    if (product > UINT64_MAX / type->bits || product * type->bits % 8) {
        return false;
    }
    *count = product;
    *bytes = product * type->bits / 8;
    return true;
}
