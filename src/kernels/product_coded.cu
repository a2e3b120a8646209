// Products whose B is encoded, on the tensor cores' mma: B is decoded on the way into shared
// memory.
//
// A thread copies runs of 16 encoded neighbours of a row, and decodes the same ones one stage
// before they are multiplied: it waits for its own copies alone, and one barrier a stage serves
// both A's stage and the decoded B. Of that there are two, so that one is written while the other
// is read. Elements become FP32 as docs/codecs.md says, and are rounded to A's type; what lies
// behind the last is 0, whatever it decodes to.
//
// cen_product_coded makes tiles of 128 x 128 as cen_product_mma does; cen_product_coded64 and
// cen_product_coded16 of 64 and 16 x 32, whose sum the warps of a block share, in slices: few rows
// leave only the columns to make blocks of, and what takes time is to read B and to decode it.

#include "kernels/codec.h"
#include "kernels/product_mma.cuh"

namespace product {

__device__ __forceinline__ void copy_8(uint32_t to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

__device__ __forceinline__ bool has(const ceni_codec_job &w, uint32_t flag) {
    return (w.flags & flag) != 0;
}

__device__ __forceinline__ uint32_t code_bits(const ceni_codec_job &w) {
    return w.kind <= CENI_CODEC_BF16 ? 16 : w.kind == CENI_CODEC_INT4 ? 4 : 8;
}

// Units are all columns wide, or a power of two: no division is needed to find one in a row, nor to
// find the row of units, save of blocks.
__device__ __forceinline__ uint32_t unit_shift(const ceni_codec_job &w) {
    return w.unit_cols >= w.cols ? 31 : 31 - (uint32_t)__clz((int)w.unit_cols);
}

__device__ __forceinline__ uint64_t unit_of(const ceni_codec_job &w, uint32_t shift, uint32_t row,
                                            uint32_t col) {
    uint32_t rows = (uint32_t)w.unit_rows;
    uint32_t band = rows == 1 ? row : w.unit_rows >= w.rows ? 0 : row / rows;
    return band * w.units_across + (col >> shift);
}

// Scales and zero points of a run: of one unit, as units are whole runs wide, or each of its own,
// as they are a column wide.
struct run_scales {
    float s, z;
    const float *each; // nullptr: there is one
    const int8_t *zeros;
    uint32_t count;

    __device__ __forceinline__ run_scales(const ceni_codec_job &w, uint32_t shift, uint32_t row,
                                          uint32_t col, uint32_t n, float copied)
        : s(1), z(0), each(nullptr), zeros(nullptr), count(n) {
        bool asymmetric = has(w, CENI_CODEC_ASYMMETRIC);
        if (!has(w, CENI_CODEC_SCALED)) {
            return;
        }
        s = copied;
        if (n && (asymmetric || w.unit_cols == 1)) {
            uint64_t unit = unit_of(w, shift, row, col);
            zeros = asymmetric ? (const int8_t *)w.zeros + unit : nullptr;
            if (w.unit_cols == 1) {
                each = (const float *)w.scales + unit;
            } else {
                z = (float)*zeros;
            }
        }
    }

    // What the i-th is by its own scale; something finite behind the row's last.
    __device__ __forceinline__ float by_own(float v, uint32_t i) const {
        if (i >= count) {
            return 0;
        }
        return (zeros ? v - (float)zeros[i] : v) * each[i];
    }
};

// The i-th byte of a word, its sign bit turned, as a whole number: with 2^23 for an exponent.
__device__ __forceinline__ float whole_of(uint32_t turned, uint32_t i, float z) {
    uint32_t bits = __byte_perm(turned, 0x4B000000u, 0x7650u | i);
    return __uint_as_float(bits) - (8388736.0f + z); // 2^23 + 128
}

__device__ __forceinline__ float nibble_of(uint32_t turned, uint32_t i, float z) {
    uint32_t bits = (turned >> 4 * i & 15) | 0x4B000000u;
    return __uint_as_float(bits) - (8388616.0f + z); // 2^23 + 8
}

// The i-th and next byte of a word, as the upper bytes of halves.
__device__ __forceinline__ uint32_t spread_bytes(uint32_t word, uint32_t i) {
    return __byte_perm(word, 0, i ? 0x3424u : 0x1404u);
}

__device__ __forceinline__ void two_e5m2(uint32_t word, uint32_t i, float v[2]) {
    uint32_t halves = spread_bytes(word, i); // a byte of E5M2 is the upper one of an FP16
    v[0] = float_of_f16((uint16_t)halves), v[1] = float_of_f16((uint16_t)(halves >> 16));
}

__device__ __forceinline__ void two_e4m3(uint32_t word, uint32_t i, float v[2]) {
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)(word >> 8 * i)));
    v[0] = float_of_f16((uint16_t)halves), v[1] = float_of_f16((uint16_t)(halves >> 16));
#else
    // In an FP16's place it is the number but for the exponent's bias, subnormal or not, save for
    // NaN.
    uint32_t bytes = spread_bytes(word, i);
    uint32_t halves = (bytes & 0x80008000u) | (bytes & 0x7F007F00u) >> 1;
    for (uint32_t j = 0; j < 2; j++) {
        float value = float_of_f16((uint16_t)(halves >> 16 * j)) * 256;
        v[j] = fabsf(value) == 480 ? __uint_as_float(0x7FFFFFFFu) : value;
    }
#endif
}

// Eight neighbours, of which the first is the run's `first`-th, as halves in four words.
template <bool BF16>
__device__ __forceinline__ void decode_eight(uint32_t kind, const run_scales &scales,
                                             uint32_t first, const uint32_t codes[2],
                                             uint32_t to[4]) {
    float v[8];
    if (kind == CENI_CODEC_INT8) {
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            v[k] = whole_of(codes[k / 4] ^ 0x80808080u, k % 4, scales.z);
        }
    } else if (kind == CENI_CODEC_INT4) {
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            v[k] = nibble_of(codes[0] ^ 0x88888888u, k, scales.z);
        }
    } else if (kind == CENI_CODEC_E5M2) {
#pragma unroll
        for (uint32_t k = 0; k < 8; k += 2) {
            two_e5m2(codes[k / 4], k % 4, v + k);
        }
    } else {
#pragma unroll
        for (uint32_t k = 0; k < 8; k += 2) {
            two_e4m3(codes[k / 4], k % 4, v + k);
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < 8; k++) {
        v[k] = scales.each ? scales.by_own(v[k], first + k) : v[k] * scales.s;
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        to[k] = halves_of<BF16>(v[2 * k], v[2 * k + 1]);
    }
}

// The two that are kept of the run's group-th four, the first in the low half.
template <bool BF16>
__device__ __forceinline__ uint32_t kept_pair(uint32_t kind, const run_scales &scales,
                                              uint32_t group, const uint32_t codes[2],
                                              uint32_t first, uint32_t second) {
    uint32_t word = codes[group % 2];
    if (kind == CENI_CODEC_INT8) {
        uint32_t bytes = codes[0] ^ 0x80808080u, i = group % 2 * 2;
        float a = whole_of(bytes, i, scales.z), b = whole_of(bytes, i + 1, scales.z);
        a = scales.each ? scales.by_own(a, group * 4 + first) : a * scales.s;
        b = scales.each ? scales.by_own(b, group * 4 + second) : b * scales.s;
        return halves_of<BF16>(a, b);
    }
    if (kind == (BF16 ? CENI_CODEC_BF16 : CENI_CODEC_FP16)) {
        return word;
    }
    uint16_t low = (uint16_t)word, high = (uint16_t)(word >> 16);
    return BF16 ? halves_of<BF16>(float_of_f16(low), float_of_f16(high))
                : halves_of<BF16>(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
}

// Two groups of four from the run's `group`-th on, zeros where nothing was kept; of indices that
// are the same the second counts.
template <bool BF16>
__device__ __forceinline__ void expand_eight(uint32_t kind, const run_scales &scales,
                                             uint32_t group, const uint32_t codes[2],
                                             uint32_t nibbles, uint32_t to[4]) {
#pragma unroll
    for (uint32_t g = 0; g < 2; g++) {
        uint32_t nibble = nibbles >> 4 * (group + g), first = nibble & 3, second = nibble >> 2 & 3;
        uint32_t pair = kept_pair<BF16>(kind, scales, group + g, codes, first, second);
        uint64_t low = first == second ? 0 : pair & 0xFFFFu, high = pair >> 16;
        uint64_t four = low << 16 * first | high << 16 * second;
        to[2 * g] = (uint32_t)four, to[2 * g + 1] = (uint32_t)(four >> 32);
    }
}

// How an encoded B gets into shared memory. ALONG: its rows lie along the sum. `stage` has the
// values of all runs, then their metadata, of which two runs share a word and each has a copy, then
// scales.
template <bool BF16, bool ALONG, uint32_t ROWS> struct coded_tile {
    enum : uint32_t {
        COLS = CENI_CODED_COLS(ROWS),
        SLICES = CENI_CODED_SLICES(ROWS),
        RUNS = CENI_CODED_RUNS(ROWS),
        RUN = CENI_CODED_RUN,
        DEPTH = ROW_BYTES / 2,
        LENGTH = DEPTH * SLICES
    };
    const ceni_codec_job &w;
    uint32_t first, end, depth; // columns of B as it is multiplied; the sum's length
    uint32_t run_bytes, shift;
    bool wide;

    struct run {
        uint32_t row, col, count; // as it lies; count: of the 16 those that are there
        uint32_t mn, step;        // in the tile
    };

    __device__ __forceinline__ run run_of(uint32_t id, uint32_t tile) const {
        run r;
        if (ALONG) {
            // Two rows of each slice, as A's.
            r.mn = id / 2 % 2 + id / (4 * SLICES) * 2;
            r.step = id / 4 % SLICES * DEPTH + id % 2 * RUN;
            r.row = first + r.mn, r.col = tile * LENGTH + r.step;
            r.count = r.row < end && r.col < depth ? depth - r.col : 0;
        } else {
            r.mn = id % (COLS / RUN) * RUN;
            r.step = id / (COLS / RUN);
            r.row = tile * LENGTH + r.step, r.col = first + r.mn;
            r.count = r.row < depth && r.col < end ? end - r.col : 0;
        }
        r.count = r.count < RUN ? r.count : RUN;
        return r;
    }

    // Of the first `count` elements of a run.
    __device__ __forceinline__ uint32_t bytes_of(uint32_t count) const {
        uint32_t kept = has(w, CENI_CODEC_SPARSE) ? (count + 3) / 4 * 2 : count;
        return count == RUN ? run_bytes : (kept * code_bits(w) + 7) / 8;
    }

    // One by one, where the memory is not aligned to runs.
    __device__ __forceinline__ void fetch_bytes(unsigned char *to, const unsigned char *from,
                                                uint32_t bytes) const {
#pragma unroll 8
        for (uint32_t i = 0; i < RUN; i++) {
            to[i] = i < bytes ? from[i] : 0;
        }
    }

    __device__ __forceinline__ void fetch_metadata(unsigned char *word, const run &r) const {
        const unsigned char *from = (const unsigned char *)w.metadata;
        from += r.count ? r.row * w.metadata_pitch + r.col / 32 * 4 : 0;
        if (wide) {
            copy_4(shared_address(word), from, r.count != 0);
        } else if (r.count) {
            uint32_t at = r.col / RUN % 2 * 2; // rows have whole words of 16 bits
            word[at] = from[at], word[at + 1] = from[at + 1];
        }
    }

    __device__ __forceinline__ void fetch(unsigned char *stage, uint32_t tile) const {
#pragma unroll
        for (uint32_t i = 0; i < RUNS / CENI_TILE_THREADS; i++) {
            uint32_t id = threadIdx.x + i * CENI_TILE_THREADS;
            run r = run_of(id, tile);
            uint32_t bytes = bytes_of(r.count);
            const unsigned char *from = (const unsigned char *)w.values;
            unsigned char *to = stage + id * RUN, *word = stage + RUNS * RUN + id * 4;
            from += r.count ? r.row * w.pitch + (run_bytes == RUN ? r.col : r.col / 2) : 0;
            if (!wide) {
                fetch_bytes(to, from, bytes);
            } else if (run_bytes == RUN) {
                copy_16(shared_address(to), from, bytes);
            } else {
                copy_8(shared_address(to), from, bytes);
            }
            if (has(w, CENI_CODEC_SPARSE)) {
                fetch_metadata(word, r);
            }
            if (has(w, CENI_CODEC_SCALED) && w.unit_cols != 1) {
                const float *scale = (const float *)w.scales;
                scale += r.count ? unit_of(w, shift, r.row, r.col) : 0;
                copy_4(shared_address(word + RUNS * 4), scale, r.count != 0);
            }
        }
    }

    __device__ __forceinline__ void store(unsigned char *to, const run &r, uint32_t half,
                                          const uint32_t v[4]) const {
        uint32_t slice = r.step / DEPTH;
        uint32_t at =
            ALONG ? slice * (COLS * ROW_BYTES) + along_at(r.mn, r.step % DEPTH / 8 + half, slice)
                  : across_at<COLS>(r.step, r.mn / 8 + half);
        *(uint4 *)(to + at) = make_uint4(v[0], v[1], v[2], v[3]);
    }

    __device__ __forceinline__ void decode(unsigned char *to, const unsigned char *stage,
                                           uint32_t tile) const {
        uint32_t each = run_bytes / 2;
        bool sparse = has(w, CENI_CODEC_SPARSE);
#pragma unroll 1
        for (uint32_t i = 0; i < RUNS / CENI_TILE_THREADS; i++) {
            uint32_t id = threadIdx.x + i * CENI_TILE_THREADS;
            run r = run_of(id, tile);
            const unsigned char *from = stage + id * RUN, *word = stage + RUNS * RUN + id * 4;
            uint32_t nibbles = sparse ? *(const uint32_t *)word >> r.col / RUN % 2 * 16 : 0;
            run_scales scales(w, shift, r.row, r.col, r.count, *(const float *)(word + RUNS * 4));
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t *at = (const uint32_t *)(from + half * each);
                const uint32_t codes[2] = {at[0], each == 8 ? at[1] : 0};
                uint32_t v[4];
                if (sparse) {
                    expand_eight<BF16>(w.kind, scales, half * 2, codes, nibbles, v);
                } else {
                    decode_eight<BF16>(w.kind, scales, half * 8, codes, v);
                }
                if (r.count < RUN) {
#pragma unroll
                    for (uint32_t k = 0; k < 4; k++) {
                        uint32_t one = half * 8 + 2 * k;
                        v[k] = one >= r.count ? 0 : one + 1 == r.count ? v[k] & 0xFFFFu : v[k];
                    }
                }
                store(to, r, half, v);
            }
        }
    }
};

// Which part of a tile a warp has: of those of a slice, GROUPS, each multiplies COUNT times 16
// rows.
template <uint32_t ROWS> struct coded_warp {
    enum : uint32_t {
        SLICES = CENI_CODED_SLICES(ROWS),
        GROUPS = CENI_TILE_THREADS / 32 / SLICES,
        ACROSS = CENI_CODED_COLS(ROWS) / 32,
        COUNT = ROWS / 16 * ACROSS / GROUPS
    };
    uint32_t slice, row, col;

    __device__ __forceinline__ coded_warp() {
        uint32_t warp = threadIdx.x / 32, group = warp % GROUPS;
        slice = warp / GROUPS;
        row = group / ACROSS * (COUNT * 16), col = group % ACROSS * 32;
    }
};

// Sums of all slices, into the stages of the first one's warps.
template <uint32_t ROWS> __device__ __forceinline__ void add_slices(float *stages) {
    constexpr uint32_t GROUPS = coded_warp<ROWS>::GROUPS, STAGE = CENI_STAGE_BYTES / 4;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < GROUPS * 16 * 32; i += CENI_TILE_THREADS) {
        float *at = stages + i / 512 * STAGE + i % 512 / 32 * CENI_STAGE_STRIDE + i % 32, sum = *at;
        for (uint32_t slice = 1; slice < CENI_CODED_SLICES(ROWS); slice++) {
            sum += at[slice * GROUPS * STAGE];
        }
        *at = sum;
    }
}

template <typename T, uint32_t ROWS>
__device__ __forceinline__ void finish_coded(const args &p, place tile,
                                             const float sums[coded_warp<ROWS>::COUNT][4][4],
                                             unsigned char *shared) {
    coded_warp<ROWS> warp;
    float *stage = (float *)(shared + threadIdx.x / 32 * CENI_STAGE_BYTES);
#pragma unroll 1 // what finishes is there once
    for (uint32_t i = 0; i < warp.COUNT; i++) {
        stage_sums<T, warp.COUNT>(stage, sums, i);
        if (warp.SLICES > 1) {
            __syncthreads();
            add_slices<ROWS>((float *)shared);
            __syncthreads();
        }
        if (warp.slice == 0) {
            finish_stage<false>(p, stage, tile.row * ROWS + warp.row + i * 16,
                                tile.col * CENI_CODED_COLS(ROWS) + warp.col);
        }
    }
}

template <typename T, bool A_ALONG, bool B_ALONG, uint32_t ROWS>
__device__ __forceinline__ void product_coded(const args &p, const ceni_codec_job &w) {
    constexpr uint32_t STAGES = CENI_CODED_STAGES(ROWS), COLS = CENI_CODED_COLS(ROWS);
    constexpr uint32_t SLICES = CENI_CODED_SLICES(ROWS), COUNT = coded_warp<ROWS>::COUNT;
    constexpr uint32_t A_BYTES = CENI_CODED_A_BYTES(ROWS), B_BYTES = CENI_CODED_B_BYTES(ROWS);
    constexpr uint32_t CODED = CENI_CODED_RUNS(ROWS) * CENI_CODED_RUN_BYTES;
    extern __shared__ __align__(1024) unsigned char dynamic[];
    unsigned char *decoded = dynamic + STAGES * A_BYTES, *coded = decoded + 2 * B_BYTES;
    place tile = place_of(blockIdx.x, tiles_of(p.m, ROWS), tiles_of(p.n, COLS));
    mma_tile<T, A_ALONG, ROWS, SLICES> a = mma_tile_a<T, A_ALONG, ROWS, SLICES>(p, tile);
    coded_tile<T::IS_BF16, B_ALONG, ROWS> b = {w,
                                               tile.col * COLS,
                                               p.n,
                                               p.k,
                                               code_bits(w) * (has(w, CENI_CODEC_SPARSE) ? 1 : 2),
                                               unit_shift(w),
                                               (p.wide & CENI_WIDE_B) != 0};
    float sums[COUNT][4][4] = {};
    uint32_t tiles = tiles_of(p.k, ROW_BYTES / 2 * SLICES);
    coded_warp<ROWS> warp;
    // A stage is copied STAGES - 2 turns before it is decoded, and multiplied a turn later.
#pragma unroll 1
    for (int32_t t = 2 - (int32_t)STAGES; t <= (int32_t)tiles; t++) {
        uint32_t now = (uint32_t)t, next = now + STAGES - 2;
        if (t >= 0) {
            copies_wait<STAGES - 3>();
            __syncthreads(); // what is multiplied now is there; what was before is not read now
        }
        if (next < tiles) {
            a.load(dynamic + next % STAGES * A_BYTES, next);
            b.fetch(coded + next % STAGES * CODED, next);
        }
        copies_commit();
        if (now < tiles) {
            b.decode(decoded + now % 2 * B_BYTES, coded + now % STAGES * CODED, now);
        }
        if (t > 0) {
            uint32_t then = now - 1;
            uint32_t at_a = shared_address(dynamic) + then % STAGES * A_BYTES;
            uint32_t at_b = shared_address(decoded) + then % 2 * B_BYTES;
            multiply_slice<T, A_ALONG, B_ALONG, COUNT, ROWS, COLS>(
                sums, at_a + warp.slice * (A_BYTES / SLICES),
                at_b + warp.slice * (B_BYTES / SLICES), warp.row, warp.col, warp.slice);
        }
    }
    copies_wait<0>();
    __syncthreads();
    finish_coded<T, ROWS>(p, place_of(block_again(), tiles_of(p.m, ROWS), tiles_of(p.n, COLS)),
                          sums, dynamic);
}

} // namespace product

#define CENI_CODED(name, type, a_along, b_along, rows)                                             \
    extern "C" __global__ void __launch_bounds__(CENI_TILE_THREADS, 2) cen_product_##name(         \
        const __grid_constant__ ceni_product_args p, const __grid_constant__ ceni_codec_job w) {   \
        product::product_coded<product::type, a_along, b_along, rows>(p, w);                       \
    }
#define CENI_CODED_LAYOUTS(name, type, rows)                                                       \
    CENI_CODED(name##_nn, type, true, false, rows)                                                 \
    CENI_CODED(name##_nt, type, true, true, rows)                                                  \
    CENI_CODED(name##_tn, type, false, false, rows)                                                \
    CENI_CODED(name##_tt, type, false, true, rows)
CENI_CODED_LAYOUTS(coded_bf16, bf16, 128)
CENI_CODED_LAYOUTS(coded_fp16, fp16, 128)
CENI_CODED_LAYOUTS(coded64_bf16, bf16, 64)
CENI_CODED_LAYOUTS(coded64_fp16, fp16, 64)
CENI_CODED_LAYOUTS(coded16_bf16, bf16, 16)
CENI_CODED_LAYOUTS(coded16_fp16, fp16, 16)
#undef CENI_CODED_LAYOUTS
#undef CENI_CODED
