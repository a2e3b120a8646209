#include "kernels/table.h"

#include <string.h>

#include "kernels/memory.h"

#define SIZES(...)                                                                                 \
    (const uint8_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

const ceni_kernel ceni_kernels[] = {
    {"cen_fill_u32", 3, SIZES(8, 4, 8), ceni_twin_fill_u32, ceni_ranges_fill_u32},
    {"cen_pattern_u32", 3, SIZES(8, 4, 8), ceni_twin_pattern_u32, ceni_ranges_pattern_u32},
    {"cen_check_u32", 4, SIZES(8, 4, 8, 8), ceni_twin_check_u32, ceni_ranges_check_u32},
    {"cen_spin", 1, SIZES(8), ceni_twin_spin, NULL},
    {0},
};

const ceni_kernel *ceni_kernel_find(const char *name) {
    for (const ceni_kernel *k = ceni_kernels; k->name; k++) {
        if (!strcmp(k->name, name)) {
            return k;
        }
    }
    return NULL;
}
