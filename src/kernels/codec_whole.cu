// The kernels of codec_whole.cuh and codec_columns.cuh. They are for compute capability 9.0 only:
// elsewhere cen_encode and cen_decode do it, and these have nothing in them, so that the image
// holds them once.
#include "kernels/codec_columns.cuh"
#include "kernels/codec_whole.cuh"

// Threads of a block at most, and blocks that are to fit a multiprocessor's registers.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WHOLE_BODY(what, ...) codec::what<codec::__VA_ARGS__>(job)
#else
#define WHOLE_BODY(...)
#endif
#define WHOLE_KERNEL(name, threads, blocks, ...)                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ ceni_codec_job job) {                                         \
        WHOLE_BODY(__VA_ARGS__);                                                                   \
    }
#define WHOLE_ENCODE(form_name, kind, zeros, by, units, type, dtype)                               \
    WHOLE_KERNEL(cen_encode_##form_name##_##by##_##type, CENI_CODEC_TEAM_MAX, 3, encode_whole,     \
                 form<kind, zeros, codec::units, dtype>, false)                                    \
    WHOLE_KERNEL(cen_encode_sums_##form_name##_##by##_##type, CENI_CODEC_TEAM_MAX, 2,              \
                 encode_whole, form<kind, zeros, codec::units, dtype>, true)
#define WHOLE_DECODE(form_name, kind, zeros, by, units, type, dtype)                               \
    WHOLE_KERNEL(cen_decode_##form_name##_##by##_##type, 256, 6, decode_whole,                     \
                 form<kind, zeros, codec::units, dtype>)
#define WHOLE_TYPES(X, ...)                                                                        \
    X(__VA_ARGS__, fp32, CEN_FP32)                                                                 \
    X(__VA_ARGS__, fp16, CEN_FP16)                                                                 \
    X(__VA_ARGS__, bf16, CEN_BF16)
#define WHOLE_ENCODER(...) WHOLE_TYPES(WHOLE_ENCODE, __VA_ARGS__)
#define WHOLE_DECODER(...) WHOLE_TYPES(WHOLE_DECODE, __VA_ARGS__)

#define WHOLE_COLUMNS(form_name, kind, zeros, by, units, type, dtype)                              \
    WHOLE_KERNEL(cen_encode_##form_name##_##by##_##type, 256, 4, columns_whole,                    \
                 form<kind, zeros, codec::units, dtype>, true)                                     \
    WHOLE_KERNEL(cen_decode_##form_name##_##by##_##type, 256, 4, columns_whole,                    \
                 form<kind, zeros, codec::units, dtype>, false)
#define WHOLE_COLUMN(...) WHOLE_TYPES(WHOLE_COLUMNS, __VA_ARGS__)

CENI_CODEC_ENCODERS(WHOLE_ENCODER)
CENI_CODEC_DECODERS(WHOLE_DECODER)
CENI_CODEC_SCALED_FORMS(WHOLE_COLUMN, column, COLUMN)

extern "C" __global__ void __launch_bounds__(1024, 1)
    cen_encode_column_scales(const __grid_constant__ ceni_codec_job job) {
    if (job.dtype == CEN_FP32) {
        codec::column_most<true>(job);
    } else {
        codec::column_most<false>(job);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    cen_encode_block_scales(const __grid_constant__ ceni_codec_job job) {
    if (job.flags & CENI_CODEC_ASYMMETRIC) {
        codec::own_blocks_of<true>(job);
    } else {
        codec::own_blocks_of<false>(job);
    }
}
#undef WHOLE_BODY
#undef WHOLE_BODY
#undef WHOLE_KERNEL
#undef WHOLE_ENCODE
#undef WHOLE_DECODE
#undef WHOLE_TYPES
#undef WHOLE_ENCODER
#undef WHOLE_DECODER
#undef WHOLE_COLUMNS
#undef WHOLE_COLUMN
