#include "kernels/table.h"

#include <string.h>

#include "kernels/calibrate.h"
#include "kernels/codec.h"
#include "kernels/elementwise.h"
#include "kernels/hierarchy.h"
#include "kernels/memory.h"
#include "kernels/norm_back.h"
#include "kernels/precision.h"
#include "kernels/product.h"
#include "kernels/rows.h"
#include "kernels/transpose.h"

#define SIZES(...)                                                                                 \
    (const uint8_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

/* Rows of the table, each with its comma, as lists of kernels are made of them. */
/* clang-format off */
/* A kernel whose one argument is a structure. */
#define ONE(name, type, twin, ranges)                                                              \
    {name, 1, SIZES(sizeof(type)), ceni_twin_##twin, ceni_ranges_##ranges},
#define OWN(name, type)         ONE("cen_" #name, type, name, name)
#define PRODUCT(name)           ONE(name, ceni_product_args, product, product)
#define MAPPED(name)                                                                               \
    {name, 3, SIZES(sizeof(ceni_product_args), 128, 128), ceni_twin_product, ceni_ranges_product},
#define MAPPED_OUT(name)                                                                           \
    {name, 4, SIZES(sizeof(ceni_product_args), 128, 128, 128), ceni_twin_product,                  \
     ceni_ranges_product},
#define LAYOUTS(ROW, name)      ROW(name "_nn") ROW(name "_nt") ROW(name "_tn") ROW(name "_tt")
#define CODED(name)                                                                                \
    {name, 2, SIZES(sizeof(ceni_product_args), sizeof(ceni_codec_job)), ceni_twin_coded,           \
     ceni_ranges_coded},
#define CONV(name)              ONE(name, ceni_conv_args, conv, conv)
#define CONV_MAPPED(name)                                                                          \
    {name, 2, SIZES(sizeof(ceni_conv_args), 128), ceni_twin_conv, ceni_ranges_conv},
#define CONV_BOXES(name)                                                                           \
    {name, 4, SIZES(sizeof(ceni_conv_args), 128, 128, 128), ceni_twin_conv, ceni_ranges_conv},
#define MAP(name)               ONE("cen_map_" name, ceni_map, map, map)
#define MAP_FIXED(n, ...)       MAP(#n "_fp32") MAP(#n "_fp16") MAP(#n "_bf16")
#define MAP_CAST(from, to, ...) MAP(#from "_to_" #to)
#define ROWS(name, ranges)      ONE("cen_" #name, ceni_rows, name, rows_##ranges)
#define HELD_ROWS(name, type)   ONE("cen_" #name "_" #type, ceni_rows, name, rows_apply)
#define WHOLE_TYPE(name, ranges, type)                                                             \
    ONE("cen_" #name "_" type "_2", ceni_rows, name, rows_##ranges)                                \
    ONE("cen_" #name "_" type "_4", ceni_rows, name, rows_##ranges)                                \
    ONE("cen_" #name "_" type "_8", ceni_rows, name, rows_##ranges)
#define WHOLE_ROWS(name, ranges)                                                                   \
    WHOLE_TYPE(name, ranges, "fp32") WHOLE_TYPE(name, ranges, "fp16")                              \
    WHOLE_TYPE(name, ranges, "bf16")
#define TRANSPOSE(name)         ONE("cen_" #name, ceni_transpose, transpose, transpose)
#define CODEC(name, what)       ONE(name, ceni_codec_job, codec_##what, codec_##what)

#define CODEC_TYPES(name, what) CODEC(name "_fp32", what) CODEC(name "_fp16", what) CODEC(name "_bf16", what)
#define ENCODER(form, kind, zeros, by, units)                                                      \
    CODEC_TYPES("cen_encode_" #form "_" #by, encode)                                               \
    CODEC_TYPES("cen_encode_sums_" #form "_" #by, encode)
#define DECODER(form, kind, zeros, by, units) CODEC_TYPES("cen_decode_" #form "_" #by, decode)

#define COLUMN(form, kind, zeros, by, units)                                                       \
    CODEC_TYPES("cen_encode_" #form "_" #by, encode)                                               \
    CODEC_TYPES("cen_decode_" #form "_" #by, decode)

#define SPARSE(form, kind)                                                                         \
    CODEC_TYPES("cen_encode_sparse_" #form, encode)                                                \
    CODEC_TYPES("cen_decode_sparse_" #form, decode)

const ceni_kernel ceni_kernels[] = {
    {"cen_fill_u32", 3, SIZES(8, 4, 8), ceni_twin_fill_u32, ceni_ranges_fill_u32},
    {"cen_pattern_u32", 3, SIZES(8, 4, 8), ceni_twin_pattern_u32, ceni_ranges_pattern_u32},
    {"cen_check_u32", 4, SIZES(8, 4, 8, 8), ceni_twin_check_u32, ceni_ranges_check_u32},
    {"cen_spin", 1, SIZES(8), ceni_twin_spin, NULL},
    {"cen_chase", 5, SIZES(8, 8, 8, 8, 8), ceni_twin_chase, ceni_ranges_chase},
    {"cen_chase_l2", 5, SIZES(8, 8, 8, 8, 8), ceni_twin_chase, ceni_ranges_chase},
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
    PRODUCT("cen_product_naive")
    PRODUCT("cen_product_coalesced")
    PRODUCT("cen_product_shared")
    LAYOUTS(PRODUCT, "cen_product_fp32")
    LAYOUTS(PRODUCT, "cen_product_fp32_64")
    LAYOUTS(PRODUCT, "cen_product_mma_bf16")
    LAYOUTS(PRODUCT, "cen_product_mma_fp16")
    PRODUCT("cen_product_mma_int8")
    LAYOUTS(MAPPED_OUT, "cen_product_wgmma_bf16")
    LAYOUTS(MAPPED_OUT, "cen_product_wgmma_fp16")
    LAYOUTS(MAPPED, "cen_product_wgmma128_bf16")
    LAYOUTS(MAPPED, "cen_product_wgmma128_fp16")
    LAYOUTS(MAPPED_OUT, "cen_product_wgmma_pair_bf16")
    LAYOUTS(MAPPED_OUT, "cen_product_wgmma_pair_fp16")
    LAYOUTS(CODED, "cen_product_coded_bf16")
    LAYOUTS(CODED, "cen_product_coded_fp16")
    LAYOUTS(CODED, "cen_product_coded64_bf16")
    LAYOUTS(CODED, "cen_product_coded64_fp16")
    LAYOUTS(CODED, "cen_product_coded16_bf16")
    LAYOUTS(CODED, "cen_product_coded16_fp16")
    CONV("cen_conv_fp32")
    CONV("cen_conv_fp32_64")
    CONV("cen_conv_mma_bf16")
    CONV("cen_conv_mma_fp16")
    CONV_MAPPED("cen_conv_wgmma256_bf16")
    CONV_MAPPED("cen_conv_wgmma256_fp16")
    CONV_MAPPED("cen_conv_wgmma128_bf16")
    CONV_MAPPED("cen_conv_wgmma128_fp16")
    CONV_MAPPED("cen_conv_wgmma64_bf16")
    CONV_MAPPED("cen_conv_wgmma64_fp16")
    CONV_BOXES("cen_conv_boxes256_bf16")
    CONV_BOXES("cen_conv_boxes256_fp16")
    CONV_BOXES("cen_conv_boxes128_bf16")
    CONV_BOXES("cen_conv_boxes128_fp16")
    CONV_BOXES("cen_conv_boxes64_bf16")
    CONV_BOXES("cen_conv_boxes64_fp16")
    CONV_BOXES("cen_conv_held64_bf16")
    CONV_BOXES("cen_conv_held64_fp16")
    CENI_MAP_FIXED(MAP_FIXED)
    CENI_MAP_CASTS(MAP_CAST)
    MAP("chain_4")
    MAP("chain_8")
    OWN(fill_rows, ceni_bytes)
    OWN(copy_rows, ceni_bytes)
    CENI_ROWS_KERNELS(ROWS)
    HELD_ROWS(row_softmax, fp32)
    HELD_ROWS(row_softmax, fp16)
    HELD_ROWS(row_softmax, bf16)
    HELD_ROWS(row_layer_norm, fp32)
    HELD_ROWS(row_layer_norm, fp16)
    HELD_ROWS(row_layer_norm, bf16)
    WHOLE_ROWS(row_sum, reduce)
    WHOLE_ROWS(row_absmax, reduce)
    WHOLE_ROWS(row_softmax, apply)
    WHOLE_ROWS(row_layer_norm, apply)
    OWN(norm_back, ceni_norm_back)
    ONE("cen_norm_back_fp32", ceni_norm_back, norm_back, norm_back)
    ONE("cen_norm_back_fp16", ceni_norm_back, norm_back, norm_back)
    ONE("cen_norm_back_bf16", ceni_norm_back, norm_back, norm_back)
    OWN(norm_back_wide, ceni_norm_back)
    OWN(norm_back_columns, ceni_norm_back)
    OWN(norm_back_sum, ceni_norm_back)
    CENI_TRANSPOSE_KERNELS(TRANSPOSE)
    CODEC("cen_encode_extremes", extremes)
    CODEC("cen_encode_scales", scales)
    CODEC("cen_encode", encode)
    CODEC("cen_encode_sums", encode)
    CODEC("cen_encode_sparse", encode)
    CODEC("cen_encode_each", encode)
    CODEC("cen_encode_each_sums", encode)
    CODEC("cen_decode", decode)
    CENI_CODEC_ENCODERS(ENCODER)
    CENI_CODEC_DECODERS(DECODER)
    CENI_CODEC_SCALED_FORMS(COLUMN, column, COLUMN)
    CENI_CODEC_SPARSE_FORMS(SPARSE)
    CODEC("cen_encode_column_scales", scales)
    CODEC("cen_encode_block_scales", scales)
    OWN(calibrate, ceni_calibrate_job)
    OWN(calibrate_channels, ceni_calibrate_job)
    OWN(scaler_check, ceni_scaler_job)
    OWN(scaler_update, ceni_scaler_job)
    OWN(fp8_amax, ceni_fp8_job)
    OWN(fp8_update, ceni_fp8_job)
    OWN(adamw_begin, ceni_adamw_job)
    OWN(adamw_step, ceni_adamw_job)
    {0},
};
/* clang-format on */

const ceni_kernel *ceni_kernel_find(const char *name) {
    for (const ceni_kernel *k = ceni_kernels; k->name; k++) {
        if (!strcmp(k->name, name)) {
            return k;
        }
    }
    return NULL;
}
