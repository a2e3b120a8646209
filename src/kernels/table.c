#include "kernels/table.h"

#include <string.h>

#include "kernels/codec.h"
#include "kernels/hierarchy.h"
#include "kernels/memory.h"

#define SIZES(...)                                                                                 \
    (const uint8_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define JOB SIZES(sizeof(ceni_codec_job))

const ceni_kernel ceni_kernels[] = {
    {"cen_fill_u32", 3, SIZES(8, 4, 8), ceni_twin_fill_u32, ceni_ranges_fill_u32},
    {"cen_pattern_u32", 3, SIZES(8, 4, 8), ceni_twin_pattern_u32, ceni_ranges_pattern_u32},
    {"cen_check_u32", 4, SIZES(8, 4, 8, 8), ceni_twin_check_u32, ceni_ranges_check_u32},
    {"cen_spin", 1, SIZES(8), ceni_twin_spin, NULL},
    {"cen_chase", 4, SIZES(8, 8, 8, 8), ceni_twin_chase, ceni_ranges_chase},
    {"cen_chase_l2", 4, SIZES(8, 8, 8, 8), ceni_twin_chase, ceni_ranges_chase},
    {"cen_chase_lines", 5, SIZES(8, 8, 8, 8, 8), ceni_twin_chase_lines, ceni_ranges_chase_lines},
    {"cen_chase_shared", 3, SIZES(4, 8, 8), ceni_twin_chase_shared, ceni_ranges_chase_shared},
    {"cen_read", 4, SIZES(8, 8, 8, 8), ceni_twin_read, ceni_ranges_read},
    {"cen_read_l1", 4, SIZES(8, 8, 8, 8), ceni_twin_read_l1, ceni_ranges_read},
    {"cen_read_shared", 3, SIZES(4, 8, 8), ceni_twin_read_shared, ceni_ranges_read_shared},
    {"cen_write", 4, SIZES(8, 4, 8, 8), ceni_twin_write, ceni_ranges_write},
    {"cen_copy", 4, SIZES(8, 8, 8, 8), ceni_twin_copy, ceni_ranges_copy},
    {"cen_triad", 6, SIZES(8, 8, 8, 4, 8, 8), ceni_twin_triad, ceni_ranges_triad},
    {"cen_fma", 2, SIZES(8, 8), ceni_twin_fma, ceni_ranges_fma},
    {"cen_fma_chain", 2, SIZES(8, 8), ceni_twin_fma_chain, ceni_ranges_fma_chain},
    {"cen_encode_extremes", 1, JOB, ceni_twin_codec_extremes, ceni_ranges_codec_extremes},
    {"cen_encode_scales", 1, JOB, ceni_twin_codec_scales, ceni_ranges_codec_scales},
    {"cen_encode", 1, JOB, ceni_twin_codec_encode, ceni_ranges_codec_encode},
    {"cen_encode_sums", 1, JOB, ceni_twin_codec_encode, ceni_ranges_codec_encode},
    {"cen_decode", 1, JOB, ceni_twin_codec_decode, ceni_ranges_codec_decode},
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
