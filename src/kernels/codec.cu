// Encoding and decoding, as codec.h says. A thread has eight neighbours of a row at a time, an
// octet, as a vector where they are aligned and one by one where not (codec_device.cuh), and
// several octets are on their way from memory at once. What a job asks for is the same for a whole
// launch, so branches on it do not diverge.
//
// A team has a row or a stretch of it: a block, or where rows are short a warp. A row whose scale
// is to be made stays in registers until it is known, so that it is read once; what is longer than
// a team holds is read again, from the cache.

#include "kernels/codec_scales.cuh"
#include "kernels/codec_tally.cuh"

namespace codec {

// ---- eight at a time ----

// The pair kept of four, as in codec_loops_body.h.
__device__ uint32_t pair_of(const float *v) {
    uint32_t a = __float_as_uint(v[0]) & MAGNITUDE, b = __float_as_uint(v[1]) & MAGNITUDE;
    uint32_t c = __float_as_uint(v[2]) & MAGNITUDE, d = __float_as_uint(v[3]) & MAGNITUDE;
    int ab = a < b, ac = a < c, ad = a < d, bc = b < c, bd = b < d, cd = c < d;
    uint32_t mask = (ab + ac + ad < 2 && a) | (!ab + bc + bd < 2 && b) << 1 |
                    (!ac + !bc + cd < 2 && c) << 2 | (!ad + !bd + !cd < 2 && d) << 3;
    return (uint32_t)(0x000E0DCE098E4DCEull >> 4 * mask) & 15;
}

// One of four, without indexing registers by what is only known when it runs.
template <typename T> __device__ T pick(const T *v, uint32_t index) {
    T low = index & 1 ? v[1] : v[0], high = index & 1 ? v[3] : v[2];
    return index & 2 ? high : low;
}

__device__ uint64_t metadata_at(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    return job.metadata + row * job.metadata_pitch + col / 8;
}

struct scales4 {
    scale of[4];

    __device__ scale at(int k) const {
        return of[k];
    }
    __device__ bool tame() const {
        return false;
    }
};

template <bool SUMS>
__device__ void encode_sparse(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                              const float x[EIGHT], const scales8 &s, tally &sums) {
    uint32_t pairs[2] = {pair_of(x), pair_of(x + 4)}, w[4] = {0};
    float kept[4];
    scales4 of;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t index = pairs[k / 2] >> k % 2 * 2 & 3;
        kept[k] = pick(x + k / 2 * 4, index);
        of.of[k] = pick(s.of + k / 2 * 4, index);
    }
    code<4>(job, kept, of, w);
    store_codes(job, values_at(job, row, col), n > 4 ? 4 : 2, w);
    uint8_t *to = (uint8_t *)metadata_at(job, row, col);
    uint8_t *end = (uint8_t *)(job.metadata + (row + 1) * job.metadata_pitch);
    *to++ = (uint8_t)(pairs[0] | pairs[1] << 4);
    while (col + EIGHT >= job.cols && to < end) {
        *to++ = 0xEE;
    }
    if (!SUMS || !job.sums) {
        return;
    }
    float back[4], y[EIGHT], t[EIGHT];
    value<4>(job, w, of, back);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t pair = pairs[k / 4], at = k % 4;
        bool second = at == pair >> 2, either = second || at == (pair & 3);
        y[k] = second ? back[k / 4 * 2 + 1] : either ? back[k / 4 * 2] : 0.0f;
        t[k] = !either ? 0.0f : has(job, CENI_CODEC_SCALED) ? __fmul_rn(x[k], s.of[k].r) : x[k];
    }
    add_cut<4>(job, 4, kept, of, sums);
    add(job, n, x, t, y, sums);
}

// ---- rows ----

__device__ int left_of(const ceni_codec_job &job, uint64_t octet) {
    uint64_t col = octet * EIGHT;
    return col >= job.cols ? 0 : job.cols - col < EIGHT ? (int)(job.cols - col) : EIGHT;
}

// What a team has in turn: a row whose scale is to be made, or a stretch of another.
__device__ uint64_t item_of(const ceni_codec_job &job, uint32_t turn) {
    uint64_t block = blockIdx.x + (uint64_t)turn * gridDim.x;
    return block * (blockDim.x / job.team) + threadIdx.x / job.team;
}

__device__ uint64_t row_of(const ceni_codec_job &job, uint64_t item) {
    return job.across == 1 ? item : job.rows == 1 ? 0 : item / job.across;
}

// Octet `first` of a row that begins at `base`, and the next ones, `step` apart.
template <bool WIDE>
__device__ void fetch_batch(const ceni_codec_job &job, uint64_t base, uint64_t first, unsigned step,
                            raw<WIDE> v[]) {
    constexpr int COUNT = batch<WIDE>(), BYTES = WIDE ? 32 : 16;
    if (left_of(job, first + (COUNT - 1) * step) == EIGHT && base % 16 == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            fetch_whole<WIDE>(base + (first + i * step) * BYTES, v[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint64_t octet = first + i * step;
        fetch<WIDE>(base + octet * BYTES, left_of(job, octet), v[i]);
    }
}

// The scale of a row of which the team's threads have the first octets already.
template <bool WIDE>
__device__ scale row_scale(const ceni_codec_job &job, uint64_t row, uint64_t base, unsigned lane,
                           const raw<WIDE> v[]) {
    constexpr int COUNT = batch<WIDE>();
    range e = {0, 0};
    widen<WIDE, COUNT>(job, v, e);
    uint64_t stretch = (uint64_t)COUNT * job.team;
    for (uint64_t at = stretch; at < over(job.cols, EIGHT); at += stretch) {
        raw<WIDE> more[COUNT];
        fetch_batch<WIDE>(job, base, at + lane, job.team, more);
        widen<WIDE, COUNT>(job, more, e);
    }
    scale made = scale_of(job, job.team == WARP ? over_lanes(job, e, WARP) : over_block(job, e));
    if (lane == 0) {
        write_scale(job, row, made);
    }
    return made;
}

// Of an octet in a group of 32, 64 or 128, whose lanes are neighbours. By whole warps.
template <bool WIDE>
__device__ scale group_scale(const ceni_codec_job &job, uint64_t row, uint64_t octet,
                             const raw<WIDE> &v) {
    range e = {0, 0};
    widen<WIDE, 1>(job, &v, e);
    int lanes = (int)job.unit_cols / EIGHT, shift = __ffs(lanes) - 1;
    scale made = scale_of(job, over_lanes(job, e, lanes));
    if (left_of(job, octet) && threadIdx.x % lanes == 0) {
        write_scale(job, row * job.units_across + (octet >> shift), made);
    }
    return made;
}

template <bool WIDE, bool SUMS, bool SPARSE>
__device__ void encode_octet(const ceni_codec_job &job, uint64_t row, uint64_t octet,
                             const raw<WIDE> &v, const scale &s, tally &sums) {
    int n = left_of(job, octet);
    float x[EIGHT];
    if (!n) {
        return;
    }
    expand<WIDE>(job, v, x);
    if (SPARSE) {
        scales8 all;
        spread_scale(s, n, all);
        encode_sparse<SUMS>(job, row, octet * EIGHT, n, x, all, sums);
    } else {
        encode_dense<SUMS>(job, row, octet * EIGHT, n, x, s, sums);
    }
}

// Octets of one scale that add_near may be asked of. false: nothing was done.
template <bool WIDE>
__device__ bool encode_near(const ceni_codec_job &job, uint64_t row, uint64_t first,
                            const raw<WIDE> v[], const scale &s, tally &sums) {
    constexpr int COUNT = batch<WIDE>();
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        most = larger<WIDE>(most, v[i]);
    }
    float top = largest<WIDE>(job, most);
    if (left_of(job, first + (COUNT - 1) * job.team) < EIGHT || !is_finite(top) ||
        !is_near(job, s)) {
        return false;
    }
    sums.largest = fmaxf(sums.largest, top);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float x[EIGHT];
        uint32_t w[4];
        expand<WIDE>(job, v[i], x);
        add_near(job, x, s, w, sums);
        store_codes(job, values_at(job, row, (first + i * job.team) * EIGHT), EIGHT, w);
    }
    return true;
}

// A row whose scale is to be made, or a batch for each thread of another, by a team.
template <bool WIDE, bool SUMS, bool SPARSE>
__device__ void encode_stretch(const ceni_codec_job &job, uint64_t row, uint64_t first,
                               tally &sums) {
    constexpr int COUNT = batch<WIDE>();
    unsigned lane = threadIdx.x % job.team;
    bool own = has(job, CENI_CODEC_OWN_SCALES), whole = own && job.unit_cols == job.cols;
    bool per_row = !own && job.unit_cols >= job.cols;
    uint64_t base = place(job, row, 0);
    raw<WIDE> v[COUNT];
    fetch_batch<WIDE>(job, base, first + lane, job.team, v);
    scale s = {1.0f, 1.0f, 0};
    if (whole) {
        s = row_scale<WIDE>(job, row, base, lane, v);
    } else if (per_row) {
        s = find_scale(job, row, 0);
    }
    for (uint64_t at = first;;) {
        bool done = SUMS && !SPARSE && (whole || per_row) &&
                    encode_near<WIDE>(job, row, at + lane, v, s, sums);
#pragma unroll 1
        for (int i = 0; !done && i < COUNT; i++) { // v[0], and then the next
            uint64_t octet = at + lane + i * job.team;
            if (own && !whole) {
                s = group_scale<WIDE>(job, row, octet, v[0]);
            } else if (!own && !per_row && left_of(job, octet)) {
                s = find_scale(job, row, octet * EIGHT);
            }
            encode_octet<WIDE, SUMS, SPARSE>(job, row, octet, v[0], s, sums);
#pragma unroll
            for (int k = 1; k < COUNT; k++) {
                v[k - 1] = v[k];
            }
        }
        at += (uint64_t)COUNT * job.team;
        if (!whole || at >= over(job.cols, EIGHT)) {
            return;
        }
        fetch_batch<WIDE>(job, base, at + lane, job.team, v);
    }
}

// A stretch of `count` rows, where an octet's elements have scales of their own: those of columns
// are found once for all rows.
template <bool WIDE, bool SUMS>
__device__ void encode_each(const ceni_codec_job &job, uint64_t row, uint64_t count,
                            uint64_t octet) {
    constexpr int COUNT = SUMS ? 1 : batch<WIDE>();
    bool columns = job.unit_cols == 1 && job.unit_rows >= job.rows;
    uint64_t col = octet * EIGHT, end = row + count;
    int n = left_of(job, octet);
    scales8 s;
    if (columns) {
        find_scales(job, row, col, n, s);
    }
    while (row < end) {
        raw<WIDE> v[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            fetch<WIDE>(place(job, row + i, col), row + i < end ? n : 0, v[i]);
        }
#pragma unroll 1
        for (int left = COUNT; left && row < end; left--, row++) { // v[0], and then the next
            float x[EIGHT];
            tally sums = {};
            expand<WIDE>(job, v[0], x);
            if (!columns) {
                find_scales(job, row, col, n, s);
            }
            if (n && has(job, CENI_CODEC_SPARSE)) {
                encode_sparse<SUMS>(job, row, col, n, x, s, sums);
            } else if (n) {
                encode_dense<SUMS>(job, row, col, n, x, s, sums);
            }
            if (SUMS) {
                __syncwarp();
                put_tally(job, row, sums);
            }
#pragma unroll
            for (int i = 1; i < COUNT; i++) {
                v[i - 1] = v[i];
            }
        }
    }
}

// A block's item is CENI_CODEC_EACH_ROWS rows by an octet a thread.
template <bool SUMS> __device__ void encode_all_each(const ceni_codec_job &job) {
    uint64_t across = over(over(job.cols, EIGHT), blockDim.x);
    uint64_t items = over(job.rows, CENI_CODEC_EACH_ROWS) * across;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        uint64_t row = item / across * CENI_CODEC_EACH_ROWS, left = job.rows - row;
        uint64_t count = left < CENI_CODEC_EACH_ROWS ? left : CENI_CODEC_EACH_ROWS;
        uint64_t octet = item % across * blockDim.x + threadIdx.x;
        if (job.dtype == CEN_FP32) {
            encode_each<true, SUMS>(job, row, count, octet);
        } else {
            encode_each<false, SUMS>(job, row, count, octet);
        }
    }
}

template <bool SUMS, bool SPARSE> __device__ void encode(const ceni_codec_job &job) {
    // By whole blocks if a block is a team, since its warps meet; else by whole warps.
    for (uint32_t turn = 0; item_of(job, turn) < job.items; turn++) {
        uint64_t item = item_of(job, turn), row = row_of(job, item);
        uint64_t first = (item - row * job.across) * job.team;
        tally sums = {};
        if (job.dtype == CEN_FP32) {
            encode_stretch<true, SUMS, SPARSE>(job, row, first * batch<true>(), sums);
        } else {
            encode_stretch<false, SUMS, SPARSE>(job, row, first * batch<false>(), sums);
        }
        if (SUMS && job.sums) {
            __syncwarp();
            put_tally(job, row, sums);
        }
    }
}

// ---- decoding ----

// Bytes of an octet's codes.
__device__ unsigned octet_bytes(const ceni_codec_job &job) {
    return bits_of(job) / (has(job, CENI_CODEC_SPARSE) ? 2 : 1);
}

// `bytes` of them, 16, 8 or 4, aligned so.
__device__ void fetch_codes(uint64_t at, unsigned bytes, uint32_t w[4]) {
    if (bytes == 16) {
        uint4 v = __ldg((const uint4 *)at);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else if (bytes == 8) {
        uint2 v = __ldg((const uint2 *)at);
        w[0] = v.x, w[1] = v.y;
    } else {
        w[0] = __ldg((const uint32_t *)at);
    }
}

template <typename S>
__device__ void decode_octet(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                             const uint32_t w[4], const S &s) {
    float y[EIGHT];
    value<EIGHT>(job, w, s, y);
    store8(job, place(job, row, col), n, y);
}

__device__ void decode_sparse(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                              const uint32_t w[4], uint32_t byte, const scales8 &s) {
    float kept[4], y[EIGHT];
    scales4 of;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        of.of[k] = pick(s.of + k / 2 * 4, byte >> 2 * k & 3);
    }
    value<4>(job, w, of, kept);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t pair = byte >> k / 4 * 4 & 15, at = k % 4;
        y[k] = at == pair >> 2 ? kept[k / 4 * 2 + 1] : at == (pair & 3) ? kept[k / 4 * 2] : 0.0f;
    }
    store8(job, place(job, row, col), n, y);
}

// One octet, for ends of rows and for what is not aligned or has scales of each its own.
__device__ void decode_any(const ceni_codec_job &job, uint64_t row, uint64_t octet) {
    uint64_t col = octet * EIGHT;
    int n = left_of(job, octet);
    uint32_t w[4] = {0};
    scales8 s;
    if (!n) {
        return;
    }
    if (each_its_own(job)) {
        find_scales(job, row, col, n, s);
    } else {
        spread_scale(find_scale(job, row, col), n, s);
    }
    if (has(job, CENI_CODEC_SPARSE)) {
        load_codes(job, values_at(job, row, col), n > 4 ? 4 : 2, w);
        decode_sparse(job, row, col, n, w, *(const uint8_t *)metadata_at(job, row, col), s);
    } else {
        load_codes(job, values_at(job, row, col), n, w);
        decode_octet(job, row, col, n, w, s);
    }
}

__device__ void decode_stretch(const ceni_codec_job &job, uint64_t row, uint64_t first) {
    constexpr int COUNT = CENI_CODEC_BATCH;
    unsigned step = job.team, bytes = octet_bytes(job);
    uint64_t from = values_at(job, row, 0);
    if (left_of(job, first + (COUNT - 1) * step) < EIGHT || from % bytes || each_its_own(job)) {
#pragma unroll 1
        for (int i = 0; i < COUNT; i++) {
            decode_any(job, row, first + i * step);
        }
        return;
    }
    uint32_t w[COUNT][4] = {}, pairs[COUNT] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        fetch_codes(from + (first + i * step) * bytes, bytes, w[i]);
        if (has(job, CENI_CODEC_SPARSE)) {
            pairs[i] = __ldg((const uint8_t *)metadata_at(job, row, (first + i * step) * EIGHT));
        }
    }
    bool per_row = job.unit_cols >= job.cols;
    scale s = find_scale(job, row, first * EIGHT);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint64_t col = (first + i * step) * EIGHT;
        if (i && !per_row) {
            s = find_scale(job, row, col);
        }
        if (has(job, CENI_CODEC_SPARSE)) {
            scales8 all;
            spread_scale(s, EIGHT, all);
            decode_sparse(job, row, col, EIGHT, w[i], pairs[i], all);
        } else {
            decode_octet(job, row, col, EIGHT, w[i], s);
        }
    }
}

__device__ void decode(const ceni_codec_job &job) {
    for (uint32_t turn = 0; item_of(job, turn) < job.items; turn++) {
        uint64_t item = item_of(job, turn), row = row_of(job, item);
        uint64_t first = (item - row * job.across) * job.team;
        decode_stretch(job, row, first * CENI_CODEC_BATCH + threadIdx.x % job.team);
    }
}

// ---- one unit ----

// Tiles of CENI_CODEC_TILE elements of a row, an octet a thread, of several tiles at once.
template <bool WIDE> __device__ range extremes(const ceni_codec_job &job) {
    constexpr int COUNT = batch<WIDE>(), BYTES = WIDE ? 32 : 16;
    uint64_t across = over(job.cols, CENI_CODEC_TILE), tiles = job.rows * across;
    range e = {0, 0};
    for (uint64_t first = blockIdx.x; first < tiles; first += (uint64_t)COUNT * job.extremes) {
        raw<WIDE> v[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            uint64_t tile = first + (uint64_t)i * job.extremes;
            uint64_t row = job.rows == 1 ? 0 : tile / across;
            uint64_t octet = (tile - row * across) * blockDim.x + threadIdx.x;
            int n = tile < tiles ? left_of(job, octet) : 0;
            fetch<WIDE>(place(job, row, 0) + octet * BYTES, n, v[i]);
        }
        widen<WIDE, COUNT>(job, v, e);
    }
    return e;
}

} // namespace codec

// Blocks of CENI_CODEC_TILE / 8 threads.
extern "C" __global__ void __launch_bounds__(CENI_CODEC_TILE / 8)
    cen_encode_extremes(ceni_codec_job job) {
    using namespace codec;
    range e = job.dtype == CEN_FP32 ? extremes<true>(job) : extremes<false>(job);
    e = over_block(job, e);
    if (threadIdx.x == 0 && blockIdx.x < job.extremes) {
        put_pair(job, blockIdx.x, e);
    }
}

extern "C" __global__ void cen_encode_scales(ceni_codec_job job) {
    using namespace codec;
    if (job.extremes) {
        range e = {0, 0};
        for (unsigned i = threadIdx.x; i < job.extremes; i += blockDim.x) {
            e = wider(e, get_pair(job, i));
        }
        e = over_block(job, e);
        if (threadIdx.x == 0 && blockIdx.x == 0) {
            write_scale(job, 0, scale_of(job, e));
        }
    } else if (job.unit_cols == 1) {
        column_scales(job);
    } else {
        unit_scales(job);
    }
}

extern "C" __global__ void __launch_bounds__(CENI_CODEC_TEAM_MAX, 2)
    cen_encode(ceni_codec_job job) {
    codec::encode<false, false>(job);
}

extern "C" __global__ void __launch_bounds__(CENI_CODEC_TEAM_MAX, 1)
    cen_encode_sums(ceni_codec_job job) {
    codec::encode<true, false>(job);
}

extern "C" __global__ void __launch_bounds__(CENI_CODEC_TEAM_MAX, 1)
    cen_encode_sparse(ceni_codec_job job) {
    codec::encode<true, true>(job);
}

extern "C" __global__ void __launch_bounds__(256, 2) cen_encode_each(ceni_codec_job job) {
    codec::encode_all_each<false>(job);
}

extern "C" __global__ void __launch_bounds__(256, 1) cen_encode_each_sums(ceni_codec_job job) {
    codec::encode_all_each<true>(job);
}

extern "C" __global__ void __launch_bounds__(256) cen_decode(ceni_codec_job job) {
    codec::decode(job);
}

// 2:4 without a report, of formats and types that the compiler knows. For compute capability 9.0,
// as are those of codec_whole.cu.
namespace codec {

template <uint32_t KIND, uint32_t DTYPE>
__device__ __forceinline__ ceni_codec_job sparse_job(const ceni_codec_job &all) {
    ceni_codec_job job = all;
    job.kind = KIND;
    job.dtype = DTYPE;
    job.flags = CENI_CODEC_SPARSE | (all.flags & CENI_CODEC_OWN_SCALES) |
                (KIND == CENI_CODEC_INT8 ? CENI_CODEC_SCALED | CENI_CODEC_SATURATING : 0);
    job.high = 127;
    job.low = -127;
    return job;
}

__device__ __forceinline__ void encode_24(const ceni_codec_job &job) {
    encode<false, true>(job);
}

} // namespace codec

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SPARSE_BODY(what, kind, dtype) codec::what(codec::sparse_job<kind, dtype>(job))
#else
#define SPARSE_BODY(...)
#endif
#define SPARSE_TYPE(form, kind, type, dtype)                                                       \
    extern "C" __global__ void __launch_bounds__(CENI_CODEC_TEAM_MAX, 2)                           \
        cen_encode_sparse_##form##_##type(const __grid_constant__ ceni_codec_job job) {            \
        SPARSE_BODY(encode_24, kind, dtype);                                                       \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4)                                           \
        cen_decode_sparse_##form##_##type(const __grid_constant__ ceni_codec_job job) {            \
        SPARSE_BODY(decode, kind, dtype);                                                          \
    }
#define SPARSE_FORM(form, kind)                                                                    \
    SPARSE_TYPE(form, kind, fp32, CEN_FP32)                                                        \
    SPARSE_TYPE(form, kind, fp16, CEN_FP16)                                                        \
    SPARSE_TYPE(form, kind, bf16, CEN_BF16)

CENI_CODEC_SPARSE_FORMS(SPARSE_FORM)
