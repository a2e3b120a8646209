/* Types of elements, as kernels, codecs and tensor files name them. */
#ifndef CENOTE_DTYPE_H
#define CENOTE_DTYPE_H

#include <stdint.h>

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name, value, bits of an element, text. FP8 is OFP8: E4M3 has no infinity (448 is its largest
 * number, S.1111.111 is NaN), E5M2 has IEEE's. INT4 lies two to a byte, the first in the low half.
 * TF32 is FP32 in memory, of which tensor cores multiply 10 bits of the mantissa: a way to compute,
 * which nothing is stored as. */
#define CEN_DTYPE_MAP(X)                                                                           \
    X(BOOL, 1, 8, "bool")                                                                          \
    X(INT4, 2, 4, "int4")                                                                          \
    X(INT8, 3, 8, "int8")                                                                          \
    X(UINT8, 4, 8, "uint8")                                                                        \
    X(INT16, 5, 16, "int16")                                                                       \
    X(UINT16, 6, 16, "uint16")                                                                     \
    X(INT32, 7, 32, "int32")                                                                       \
    X(UINT32, 8, 32, "uint32")                                                                     \
    X(INT64, 9, 64, "int64")                                                                       \
    X(UINT64, 10, 64, "uint64")                                                                    \
    X(FP8_E4M3, 11, 8, "fp8_e4m3")                                                                 \
    X(FP8_E5M2, 12, 8, "fp8_e5m2")                                                                 \
    X(FP16, 13, 16, "fp16")                                                                        \
    X(BF16, 14, 16, "bf16")                                                                        \
    X(FP32, 15, 32, "fp32")                                                                        \
    X(FP64, 16, 64, "fp64")                                                                        \
    X(TF32, 17, 32, "tf32")

typedef enum cen_dtype {
#define CEN_DTYPE_ENUM(name, value, bits, text) CEN_##name = (value),
    CEN_DTYPE_MAP(CEN_DTYPE_ENUM)
#undef CEN_DTYPE_ENUM
} cen_dtype;

/* Bits of one element; 0 if unknown. Any thread. */
CEN_API uint32_t cen_dtype_bits(cen_dtype dtype);

/* The type's name, such as "bf16"; "?" if unknown. Never NULL. Any thread. */
CEN_API const char *cen_dtype_name(cen_dtype dtype);

/* The type of a name as cen_dtype_name gives it, or as frameworks write it in lower case
 * ("float16", "bfloat16", "f32"; "fp8" is fp8_e4m3). CEN_ERR_NOT_FOUND: there is none of that name.
 * Any thread. */
CEN_API cen_status cen_dtype_find(const char *name, cen_dtype *dtype);

#ifdef __cplusplus
}
#endif
#endif
