// Encoding and decoding of what is whole and aligned: octets of 16 bytes or two times 16 that all
// have one scale and no zero points (codec.h). The format and the type are known when
// compiled, and a thread has four octets on their way before it looks at the first: else the
// arithmetic and not the memory would be what takes the time. The bytes are those of codec.cu.

#include "kernels/codec_device.cuh"

namespace codec {

// No code times a scale below this is beyond FP32's numbers.
constexpr float SCALE_SAFE = 0x1p110f;

template <uint32_t DTYPE> struct octet {
    uint4 quads[DTYPE == CEN_FP32 ? 2 : 1];
};

// The job with what is known put in.
template <uint32_t KIND, uint32_t DTYPE, bool SPARSE>
__device__ __forceinline__ ceni_codec_job known(const ceni_codec_job &job) {
    ceni_codec_job k = job;
    k.kind = KIND;
    k.dtype = DTYPE;
    k.flags &= ~(uint32_t)(CENI_CODEC_SPARSE | CENI_CODEC_ASYMMETRIC);
    k.flags |= SPARSE ? CENI_CODEC_SPARSE : 0;
    k.high = KIND == CENI_CODEC_INT4 ? 7 : 127;
    k.low = -k.high;
    return k;
}

template <uint32_t DTYPE>
__device__ __forceinline__ octet<DTYPE> load_octet_whole(uint64_t at, bool there) {
    octet<DTYPE> o = {};
    if (there) {
#pragma unroll
        for (int i = 0; i < (int)(sizeof o / 16); i++) {
            o.quads[i] = ((const uint4 *)at)[i];
        }
    }
    return o;
}

// The bits of the largest finite size. They are in the order of the sizes, so that infinities and NaN
// show at the top, and only then is one looked at after the other.
template <uint32_t DTYPE>
__device__ __forceinline__ uint32_t largest_of(const octet<DTYPE> &o) {
    uint32_t most = 0;
    constexpr bool wide = DTYPE == CEN_FP32;
#pragma unroll
    for (int i = 0; i < (int)(sizeof o / 16); i++) {
        const uint4 q = o.quads[i];
        const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            most = wide ? max(most, words[k] & MAGNITUDE) : __vmaxu2(most, words[k] & 0x7FFF7FFFu);
        }
    }
    if (!wide) {
        most = __float_as_uint(of_half(DTYPE, (uint16_t)max(most >> 16, most & 0xFFFFu)));
    }
    if (most >= INFINITE) {
        float x[EIGHT];
        split8<wide>(DTYPE, o.quads, x);
        most = 0;
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            uint32_t size = __float_as_uint(x[k]) & MAGNITUDE;
            most = size < INFINITE ? max(most, size) : most;
        }
    }
    return most;
}

// In each thread of a block of whole warps.
__device__ __forceinline__ uint32_t largest_in_block(uint32_t size) {
    __shared__ uint32_t warps[32];
    uint32_t lane = threadIdx.x % 32;
    size = __reduce_max_sync(ALL, size);
    __syncthreads(); // until all have read what was there before
    if (lane == 0) {
        warps[threadIdx.x / 32] = size;
    }
    __syncthreads();
    return __reduce_max_sync(ALL, lane < blockDim.x / 32 ? warps[lane] : 0);
}

__device__ __forceinline__ scale scale_of_largest(const ceni_codec_job &job, uint32_t size) {
    return scale_of(job, {0, __uint_as_float(size)});
}

// Of the group of an octet, whose lanes are neighbours. By whole warps.
template <uint32_t DTYPE>
__device__ __forceinline__ scale group_scale(const ceni_codec_job &job, uint64_t first,
                                             uint32_t index, bool there, const octet<DTYPE> &o) {
    uint32_t lanes = (uint32_t)job.unit_cols / EIGHT, size = largest_of(o);
    for (uint32_t step = lanes / 2; step; step /= 2) {
        size = max(size, __shfl_xor_sync(ALL, size, step));
    }
    scale made = scale_of_largest(job, size);
    if (there && threadIdx.x % lanes == 0) {
        write_scale(job, first + index / lanes, made);
    }
    return made;
}

// Two FP8 in the low bits, the first lowest; the instruction saturates.
template <uint32_t KIND> __device__ __forceinline__ uint32_t two_fp8(float low, float high) {
    uint16_t two = 0;
#if __CUDA_ARCH__ >= 890
    if (KIND == CENI_CODEC_E4M3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    }
#endif
    return two;
}

#if __CUDA_ARCH__ >= 890
constexpr bool FP8_INSTRUCTIONS = true;
#else
constexpr bool FP8_INSTRUCTIONS = false;
#endif

// As code_of() without a zero point, which leaves nothing to be cut before it is added.
template <uint32_t KIND>
__device__ __forceinline__ uint16_t code_without_zero(const ceni_codec_job &job, float x, float r) {
    if (KIND >= CENI_CODEC_INT8) {
        return (uint16_t)max(min(__float2int_rn(__fmul_rn(x, r)), job.high), job.low);
    }
    return code_of(job, x, r, 0);
}

// Of eight codes, or of 2:4 four.
template <uint32_t KIND, bool SPARSE> __device__ constexpr uint32_t code_bytes() {
    return (KIND <= CENI_CODEC_BF16 ? 16 : KIND == CENI_CODEC_INT4 ? 4 : 8) / (SPARSE ? 2 : 1);
}

template <uint32_t KIND>
__device__ __forceinline__ void put_octet(const ceni_codec_job &job, uint64_t at,
                                          const float x[EIGHT], float r) {
    constexpr bool fp8 = KIND == CENI_CODEC_E4M3 || KIND == CENI_CODEC_E5M2;
    if (fp8 && FP8_INSTRUCTIONS && has(job, CENI_CODEC_SATURATING)) {
        uint32_t words[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float *v = x + 4 * k;
            words[k] = two_fp8<KIND>(__fmul_rn(v[0], r), __fmul_rn(v[1], r)) |
                       two_fp8<KIND>(__fmul_rn(v[2], r), __fmul_rn(v[3], r)) << 16;
        }
        *(uint2 *)at = make_uint2(words[0], words[1]);
        return;
    }
    uint16_t q[EIGHT];
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        q[k] = code_without_zero<KIND>(job, x[k], r);
    }
    if (KIND <= CENI_CODEC_BF16) {
        store_words(at, EIGHT, q);
    } else if (KIND == CENI_CODEC_INT4) {
        *(uint32_t *)at = (uint32_t)join_codes(job, EIGHT, q);
    } else {
        *(uint64_t *)at = join_codes(job, EIGHT, q);
    }
}

template <uint32_t KIND>
__device__ __forceinline__ void put_sparse(const ceni_codec_job &job, uint64_t row, uint64_t col,
                                           uint64_t at, const float x[EIGHT], float r) {
    uint32_t pairs[2] = {pair_of(x), pair_of(x + 4)};
    uint16_t q[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        q[k] = code_without_zero<KIND>(job, pick(x + k / 2 * 4, pairs[k / 2] >> k % 2 * 2 & 3), r);
    }
    if (KIND <= CENI_CODEC_BF16) {
        *(uint2 *)at = make_uint2(two(q[0], q[1]), two(q[2], q[3]));
    } else {
        *(uint32_t *)at = (q[0] & 0xFFu) | (q[1] & 0xFFu) << 8 | (q[2] & 0xFFu) << 16 |
                          (q[3] & 0xFFu) << 24;
    }
    uint8_t *to = (uint8_t *)metadata_at(job, row, col);
    uint8_t *end = (uint8_t *)(job.metadata + (row + 1) * job.metadata_pitch);
    *to++ = (uint8_t)(pairs[0] | pairs[1] << 4);
    while (col + EIGHT >= job.cols && to < end) {
        *to++ = 0xEE;
    }
}

// The unit of an octet in a band of units.
__device__ __forceinline__ uint32_t unit_across(const ceni_codec_job &job, uint32_t index) {
    return job.unit_cols >= job.cols ? 0 : index / (uint32_t)(job.unit_cols / EIGHT);
}

// What a block has at once: STRETCH octets of a row for each thread, the k-th at(k).
struct stretch {
    uint64_t row;
    uint32_t first, end;
    __device__ __forceinline__ uint32_t at(int k) const {
        return first + k * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ bool has(int k) const {
        return at(k) < end;
    }
};

// Calls body(stretch) for those of this block: rows go along x of the grid, a row along y.
template <typename Body>
__device__ __forceinline__ void over_stretches(const ceni_codec_job &job, Body body) {
    uint32_t octets = (uint32_t)(job.cols / EIGHT), length = STRETCH * blockDim.x;
    for (uint64_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
        for (uint64_t first = (uint64_t)blockIdx.y * length; first < octets;
             first += (uint64_t)gridDim.y * length) {
            body(stretch{row, (uint32_t)first, octets});
        }
    }
}

// The first unit of a row's band, of scales that have units in one row or in several.
__device__ __forceinline__ uint64_t first_unit(const ceni_codec_job &job, uint64_t row) {
    return (job.unit_rows == 1 ? row : row / job.unit_rows) * job.units_across;
}

// With ROW a stretch is a row, whose scale is made of it.
template <uint32_t KIND, uint32_t DTYPE, bool ROW, bool SPARSE>
__device__ __forceinline__ void encode_octets(const ceni_codec_job &given) {
    const ceni_codec_job job = known<KIND, DTYPE, SPARSE>(given);
    const bool scaled = has(job, CENI_CODEC_SCALED), own = has(job, CENI_CODEC_OWN_SCALES);
    constexpr uint32_t BYTES = code_bytes<KIND, SPARSE>();
    over_stretches(job, [&](stretch here) {
        uint64_t base = place(job, here.row, 0), to = values_at(job, here.row, 0);
        uint64_t first = !ROW && scaled ? first_unit(job, here.row) : 0;
        octet<DTYPE> in[STRETCH];
#pragma unroll
        for (int k = 0; k < STRETCH; k++) {
            in[k] = load_octet_whole<DTYPE>(base + (uint64_t)here.at(k) * sizeof in[k],
                                            here.has(k));
        }
        scale made = {1.0f, 1.0f, 0};
        if (ROW) {
            uint32_t size = 0;
#pragma unroll
            for (int k = 0; k < STRETCH; k++) {
                size = max(size, largest_of(in[k]));
            }
            made = scale_of_largest(job, largest_in_block(size));
            if (threadIdx.x == 0) {
                write_scale(job, here.row, made);
            }
        }
#pragma unroll
        for (int k = 0; k < STRETCH; k++) {
            if (!ROW && own) {
                made = group_scale(job, first, here.at(k), here.has(k), in[k]);
            } else if (!ROW && scaled && here.has(k)) {
                made = read_scale(job, first + unit_across(job, here.at(k)));
            }
            if (here.has(k)) {
                float x[EIGHT];
                split8<DTYPE == CEN_FP32>(DTYPE, in[k].quads, x);
                uint64_t at = to + (uint64_t)here.at(k) * BYTES;
                if (SPARSE) {
                    put_sparse<KIND>(job, here.row, (uint64_t)here.at(k) * EIGHT, at, x, made.r);
                } else {
                    put_octet<KIND>(job, at, x, made.r);
                }
            }
        }
    });
}

// With SPARSE words[3] is the metadata.
template <uint32_t KIND, bool SPARSE>
__device__ __forceinline__ void load_words(uint64_t at, uint64_t metadata, uint32_t words[4]) {
    constexpr uint32_t BYTES = code_bytes<KIND, SPARSE>();
    if constexpr (BYTES == 16) {
        uint4 v = *(const uint4 *)at;
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else if constexpr (BYTES == 8) {
        uint2 v = *(const uint2 *)at;
        words[0] = v.x, words[1] = v.y;
    } else {
        words[0] = *(const uint32_t *)at;
    }
    if (SPARSE) {
        words[3] = *(const uint8_t *)metadata;
    }
}

template <uint32_t KIND, bool SPARSE>
__device__ __forceinline__ void values_of(const ceni_codec_job &job, const uint32_t words[4],
                                          float s, float y[EIGHT]) {
    uint16_t q[EIGHT];
    split_codes(job, words, q);
    constexpr int CODES = SPARSE ? 4 : EIGHT;
    float v[CODES];
#pragma unroll
    for (int i = 0; i < CODES; i++) {
        v[i] = unscaled_of(job, q[i], 0);
        v[i] = KIND <= CENI_CODEC_BF16 ? v[i] : __fmul_rn(v[i], s);
    }
    if (KIND > CENI_CODEC_BF16 && !(s < SCALE_SAFE)) {
#pragma unroll
        for (int i = 0; i < CODES; i++) {
            v[i] = value_of(job, q[i], s, 0);
        }
    }
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        if (SPARSE) {
            uint32_t pair = words[3] >> i / 4 * 4 & 15, at = i % 4;
            float first = at == (pair & 3) ? v[i / 4 * 2] : 0.0f;
            y[i] = at == pair >> 2 ? v[i / 4 * 2 + 1] : first;
        } else {
            y[i] = v[i % CODES];
        }
    }
}

template <uint32_t KIND, uint32_t DTYPE, bool SPARSE>
__device__ __forceinline__ void decode_octets(const ceni_codec_job &given) {
    const ceni_codec_job job = known<KIND, DTYPE, SPARSE>(given);
    const bool scaled = has(job, CENI_CODEC_SCALED);
    constexpr uint32_t BYTES = code_bytes<KIND, SPARSE>();
    over_stretches(job, [&](stretch here) {
        uint64_t from = values_at(job, here.row, 0), to = place(job, here.row, 0);
        uint64_t first = scaled ? first_unit(job, here.row) : 0;
        uint32_t words[STRETCH][4];
        float s[STRETCH];
#pragma unroll
        for (int k = 0; k < STRETCH; k++) {
            s[k] = 1.0f;
            if (here.has(k)) {
                load_words<KIND, SPARSE>(
                    from + (uint64_t)here.at(k) * BYTES,
                    SPARSE ? metadata_at(job, here.row, (uint64_t)here.at(k) * EIGHT) : 0,
                    words[k]);
                if (scaled) {
                    s[k] = ((const float *)job.scales)[first + unit_across(job, here.at(k))];
                }
            }
        }
#pragma unroll
        for (int k = 0; k < STRETCH; k++) {
            if (here.has(k)) {
                float y[EIGHT];
                values_of<KIND, SPARSE>(job, words[k], s[k], y);
                join8<DTYPE == CEN_FP32>(
                    DTYPE, to + (uint64_t)here.at(k) * sizeof(octet<DTYPE>), y);
            }
        }
    });
}

} // namespace codec

#define BY_DTYPE(kind, body, ...)                                                                  \
    case kind:                                                                                     \
        if (job.dtype == CEN_FP32) {                                                               \
            codec::body<kind, CEN_FP32 __VA_ARGS__>(job);                                          \
        } else if (job.dtype == CEN_BF16) {                                                        \
            codec::body<kind, CEN_BF16 __VA_ARGS__>(job);                                          \
        } else {                                                                                   \
            codec::body<kind, CEN_FP16 __VA_ARGS__>(job);                                          \
        }                                                                                          \
        break;
#define SCALED_KINDS(...)                                                                          \
    BY_DTYPE(CENI_CODEC_E4M3, __VA_ARGS__)                                                         \
    BY_DTYPE(CENI_CODEC_E5M2, __VA_ARGS__)                                                         \
    BY_DTYPE(CENI_CODEC_INT8, __VA_ARGS__)                                                         \
    BY_DTYPE(CENI_CODEC_INT4, __VA_ARGS__)
#define KINDS(...)                                                                                 \
    BY_DTYPE(CENI_CODEC_FP16, __VA_ARGS__)                                                         \
    BY_DTYPE(CENI_CODEC_BF16, __VA_ARGS__)                                                         \
    SCALED_KINDS(__VA_ARGS__)
#define SPARSE_ROWS(...) BY_DTYPE(CENI_CODEC_INT8, __VA_ARGS__)
#define SPARSE_KINDS(...)                                                                          \
    BY_DTYPE(CENI_CODEC_FP16, __VA_ARGS__)                                                         \
    BY_DTYPE(CENI_CODEC_BF16, __VA_ARGS__)                                                         \
    SPARSE_ROWS(__VA_ARGS__)
#define KERNEL(name, threads, blocks, kinds)                                                       \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ ceni_codec_job job) {                                         \
        switch (job.kind) { kinds }                                                                \
    }
#define COMMA ,
KERNEL(cen_encode_rows, 1024, 1, SCALED_KINDS(encode_octets, COMMA true COMMA false))
KERNEL(cen_encode_octets, 256, 4, KINDS(encode_octets, COMMA false COMMA false))
KERNEL(cen_decode_octets, 256, 4, KINDS(decode_octets, COMMA false))
KERNEL(cen_encode_sparse_rows, 1024, 1, SPARSE_ROWS(encode_octets, COMMA true COMMA true))
KERNEL(cen_encode_sparse_octets, 256, 4, SPARSE_KINDS(encode_octets, COMMA false COMMA true))
KERNEL(cen_decode_sparse_octets, 256, 4, SPARSE_KINDS(decode_octets, COMMA true))
#undef COMMA
#undef KERNEL
#undef KINDS
#undef SPARSE_KINDS
#undef SPARSE_ROWS
#undef SCALED_KINDS
#undef BY_DTYPE
