// Encoding and decoding, as codec.h says. A thread has eight neighbours of a row at a time: they are
// loaded, scaled, coded and stored as vectors where they are aligned, one by one where not. All
// arithmetic is by intrinsics that round once and are never contracted, so that the bytes are those
// of the host twins. What a job asks for is the same for a whole launch, so branches on it do not
// diverge.

#include <stdint.h>

#include "base/fp8.h"
#include "cenote/dtype.h"
#include "kernels/codec.h"

namespace codec {

constexpr int EIGHT = 8, STRETCH = 4;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u;
constexpr unsigned ALL = 0xFFFFFFFFu;

__device__ bool has(const ceni_codec_job &job, uint32_t flag) {
    return job.flags & flag;
}

__device__ uint64_t over(uint64_t count, uint64_t by) {
    return (count + by - 1) / by;
}

// ---- elements ----

__device__ float of_f16(uint16_t half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

__device__ uint16_t to_f16(float value) {
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ float of_bf16(uint16_t half) {
    return __uint_as_float((uint32_t)half << 16);
}

__device__ uint16_t to_bf16(float value) {
    uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ float of_half(uint32_t dtype, uint16_t half) {
    return dtype == CEN_FP16 ? of_f16(half) : of_bf16(half);
}

__device__ uint64_t element_bytes(uint32_t dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

__device__ uint64_t place(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    return job.matrix + (row * job.stride + col) * element_bytes(job.dtype);
}

// The first n of eight elements; 0 for the others.
__device__ void load8(const ceni_codec_job &job, uint64_t at, int n, float x[EIGHT]) {
    bool whole = n == EIGHT && at % 16 == 0;
    if (job.dtype == CEN_FP32) {
        const float *from = (const float *)at;
        if (whole) {
            float4 a = ((const float4 *)at)[0], b = ((const float4 *)at)[1];
            x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
            x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
            return;
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            x[k] = k < n ? from[k] : 0.0f;
        }
        return;
    }
    const uint16_t *from = (const uint16_t *)at;
    if (whole) {
        uint4 v = *(const uint4 *)at;
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[2 * k] = of_half(job.dtype, (uint16_t)words[k]);
            x[2 * k + 1] = of_half(job.dtype, (uint16_t)(words[k] >> 16));
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        x[k] = k < n ? of_half(job.dtype, from[k]) : 0.0f;
    }
}

__device__ float one_nan(float y) {
    return (__float_as_uint(y) & MAGNITUDE) > INFINITE ? __uint_as_float(MAGNITUDE) : y;
}

__device__ uint32_t two(uint16_t low, uint16_t high) {
    return low | (uint32_t)high << 16;
}

// `count` of eight 16-bit words, whose address is a multiple of 2.
__device__ void store_words(uint64_t at, int count, const uint16_t w[EIGHT]) {
    if (count == EIGHT && at % 16 == 0) {
        *(uint4 *)at =
            make_uint4(two(w[0], w[1]), two(w[2], w[3]), two(w[4], w[5]), two(w[6], w[7]));
        return;
    }
    if (count == 4 && at % 8 == 0) {
        *(uint2 *)at = make_uint2(two(w[0], w[1]), two(w[2], w[3]));
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (k < count) {
            ((uint16_t *)at)[k] = w[k];
        }
    }
}

__device__ void store8(const ceni_codec_job &job, uint64_t at, int n, const float y[EIGHT]) {
    if (job.dtype == CEN_FP32) {
        if (n == EIGHT && at % 16 == 0) {
            ((float4 *)at)[0] =
                make_float4(one_nan(y[0]), one_nan(y[1]), one_nan(y[2]), one_nan(y[3]));
            ((float4 *)at)[1] =
                make_float4(one_nan(y[4]), one_nan(y[5]), one_nan(y[6]), one_nan(y[7]));
            return;
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            if (k < n) {
                ((float *)at)[k] = one_nan(y[k]);
            }
        }
        return;
    }
    uint16_t w[EIGHT];
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        w[k] = job.dtype == CEN_FP16 ? to_f16(y[k]) : to_bf16(y[k]);
    }
    store_words(at, n, w);
}

// ---- scales ----

struct range {
    float lo, hi; // symmetric: hi is the largest size
};

__device__ void widen(const ceni_codec_job &job, const float x[EIGHT], range &r) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t bits = __float_as_uint(x[k]), size = bits & MAGNITUDE;
        bool finite = size < INFINITE;
        if (has(job, CENI_CODEC_ASYMMETRIC)) {
            float v = finite ? x[k] : 0.0f;
            r.lo = v < r.lo ? v : r.lo;
            r.hi = v > r.hi ? v : r.hi;
        } else {
            float v = finite ? __uint_as_float(size) : 0.0f;
            r.hi = v > r.hi ? v : r.hi;
        }
    }
}

__device__ range wider(range a, range b) {
    return {b.lo < a.lo ? b.lo : a.lo, b.hi > a.hi ? b.hi : a.hi};
}

// Over `width` neighbouring lanes, a power of two.
__device__ range over_lanes(range r, int width) {
    for (int step = width / 2; step; step /= 2) {
        range other = {__shfl_xor_sync(ALL, r.lo, step), __shfl_xor_sync(ALL, r.hi, step)};
        r = wider(r, other);
    }
    return r;
}

// Over the block; every thread gets it. Blocks have whole warps.
__device__ range over_block(range r) {
    __shared__ range warps[32];
    r = over_lanes(r, 32);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = r;
    }
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
        r = wider(r, warps[w]);
    }
    return r;
}

struct scale {
    float s, r;
    int z;
};

__device__ scale scale_of(const ceni_codec_job &job, range e) {
    scale made = {1.0f, 1.0f, 0};
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        made.s = __fsub_rn(__fdiv_rn(e.hi, job.divisor), __fdiv_rn(e.lo, job.divisor));
    } else {
        made.s = __fdiv_rn(e.hi, job.divisor);
    }
    made.s = made.s < 0x1p-126f ? 0x1p-126f : made.s;
    made.r = __fdiv_rn(1.0f, made.s);
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        made.z = job.low - __float2int_rn(__fmul_rn(e.lo, made.r));
    }
    return made;
}

__device__ void write_scale(const ceni_codec_job &job, uint64_t unit, scale made) {
    ((float *)job.scales)[unit] = made.s;
    if (has(job, CENI_CODEC_ASYMMETRIC)) {
        ((int8_t *)job.zeros)[unit] = (int8_t)made.z;
    }
}

__device__ scale read_scale(const ceni_codec_job &job, uint64_t unit) {
    scale got = {((const float *)job.scales)[unit], 0, 0};
    got.r = __fdiv_rn(1.0f, got.s);
    got.z = has(job, CENI_CODEC_ASYMMETRIC) ? ((const int8_t *)job.zeros)[unit] : 0;
    return got;
}

// Scales of eight neighbours: of one unit, or each of its own.
struct scales8 {
    float s[EIGHT], r[EIGHT];
    int z[EIGHT];
};

__device__ void same_scales(scale one, int n, scales8 &all) {
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        all.s[k] = k < n ? one.s : 1.0f;
        all.r[k] = k < n ? one.r : 1.0f;
        all.z[k] = k < n ? one.z : 0;
    }
}

__device__ void find_scales(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                            scales8 &all) {
    if (!has(job, CENI_CODEC_SCALED)) {
        same_scales({1.0f, 1.0f, 0}, 0, all);
        return;
    }
    uint64_t first = row / job.unit_rows * job.units_across;
    if (job.unit_cols >= job.cols || job.unit_cols % EIGHT == 0) {
        same_scales(read_scale(job, first + col / job.unit_cols), n, all);
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        scale one = {1.0f, 1.0f, 0};
        if (k < n) {
            one = read_scale(job, first + (col + k) / job.unit_cols);
        }
        all.s[k] = one.s;
        all.r[k] = one.r;
        all.z[k] = one.z;
    }
}

// ---- codes ----

__device__ uint16_t cut_half(uint16_t code, uint16_t infinite, bool saturate) {
    return saturate && (code & 0x7FFF) == infinite ? code - 1 : code;
}

__device__ uint16_t code_of(const ceni_codec_job &job, float x, float r, int z) {
    bool saturate = has(job, CENI_CODEC_SATURATING);
    float t = __fmul_rn(x, r);
    switch (job.kind) {
    case CENI_CODEC_FP16: return cut_half(to_f16(x), 0x7C00, saturate);
    case CENI_CODEC_BF16: return cut_half(to_bf16(x), 0x7F80, saturate);
    case CENI_CODEC_E4M3: return ceni_e4m3_of_float(t, saturate);
    case CENI_CODEC_E5M2: return ceni_e5m2_of_float(t, saturate);
    default: break;
    }
    // NaN becomes 0. Cut before z is added, which then cannot overflow.
    int q = __float2int_rn(t);
    q = (q > 1024 ? 1024 : q < -1024 ? -1024 : q) + z;
    return (uint16_t)(q > job.high ? job.high : q < job.low ? job.low : q);
}

__device__ float back(float value, float s) {
    float y = __fmul_rn(value, s);
    y = y > 0x1.FFFFFEp127f ? 0x1.FFFFFEp127f : y;
    return y < -0x1.FFFFFEp127f ? -0x1.FFFFFEp127f : y;
}

__device__ float value_of(const ceni_codec_job &job, uint16_t code, float s, int z) {
    switch (job.kind) {
    case CENI_CODEC_FP16: return of_f16(code);
    case CENI_CODEC_BF16: return of_bf16(code);
    case CENI_CODEC_E4M3: return back(ceni_float_of_e4m3((uint8_t)code), s);
    case CENI_CODEC_E5M2: {
        float v = ceni_float_of_e5m2((uint8_t)code);
        return (code & 0x7F) == 0x7C ? v : back(v, s);
    }
    default: return back((float)((int8_t)code - z), s);
    }
}

__device__ uint32_t bits_of(const ceni_codec_job &job) {
    return job.kind <= CENI_CODEC_BF16 ? 16 : job.kind == CENI_CODEC_INT4 ? 4 : 8;
}

// Where the values of (row, col) on are; col is a multiple of 8.
__device__ uint64_t values_at(const ceni_codec_job &job, uint64_t row, uint64_t col) {
    uint64_t at = has(job, CENI_CODEC_SPARSE) ? col / 2 : col;
    return job.values + row * job.pitch + at * bits_of(job) / 8;
}

// `count` of eight bytes.
__device__ void store_bytes(uint64_t at, int count, uint64_t bytes) {
    if (count == 8 && at % 8 == 0) {
        *(uint64_t *)at = bytes;
    } else if (count == 4 && at % 4 == 0) {
        *(uint32_t *)at = (uint32_t)bytes;
    } else {
        for (int k = 0; k < count; k++) {
            ((uint8_t *)at)[k] = (uint8_t)(bytes >> 8 * k);
        }
    }
}

__device__ uint64_t load_bytes(uint64_t at, int count) {
    if (count == 8 && at % 8 == 0) {
        return *(const uint64_t *)at;
    }
    if (count == 4 && at % 4 == 0) {
        return *(const uint32_t *)at;
    }
    uint64_t bytes = 0;
    for (int k = 0; k < count; k++) {
        bytes |= (uint64_t)((const uint8_t *)at)[k] << 8 * k;
    }
    return bytes;
}

__device__ void store_codes(const ceni_codec_job &job, uint64_t at, int count,
                            const uint16_t q[EIGHT]) {
    if (bits_of(job) == 16) {
        store_words(at, count, q);
        return;
    }
    uint64_t bytes = 0;
    bool four = job.kind == CENI_CODEC_INT4;
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint64_t code = k < count ? q[k] & (four ? 0xFu : 0xFFu) : 0;
        bytes |= code << (four ? 4 * k : 8 * k);
    }
    store_bytes(at, four ? (count + 1) / 2 : count, bytes);
}

__device__ void load_codes(const ceni_codec_job &job, uint64_t at, int count, uint16_t q[EIGHT]) {
    if (bits_of(job) == 16) {
        uint64_t low = 0, high = 0;
        if (count == EIGHT && at % 16 == 0) {
            ulonglong2 v = *(const ulonglong2 *)at;
            low = v.x, high = v.y;
        } else {
            low = load_bytes(at, count < 4 ? 2 * count : 8);
            high = load_bytes(at + 8, count < 4 ? 0 : 2 * count - 8);
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            q[k] = (uint16_t)((k < 4 ? low : high) >> k % 4 * 16);
        }
        return;
    }
    bool four = job.kind == CENI_CODEC_INT4;
    uint64_t bytes = load_bytes(at, four ? (count + 1) / 2 : count);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t code = (uint32_t)(bytes >> (four ? 4 * k : 8 * k)) & (four ? 0xFu : 0xFFu);
        q[k] = (uint16_t)(four && code & 8 ? code | 0xF0u : code);
    }
}

// ---- sums ----

struct tally {
    unsigned nan, infinite, saturated, overflowed, underflowed, count;
    double largest, max_error, error, error2, x2, y2, xy;
};

__device__ void add(tally &to, float x, float t, float y, float limit) {
    uint32_t x_size = __float_as_uint(x) & MAGNITUDE, y_size = __float_as_uint(y) & MAGNITUDE;
    to.count++;
    to.nan += x_size > INFINITE;
    to.infinite += x_size == INFINITE;
    to.saturated += fabsf(t) > limit && y_size < INFINITE;
    to.overflowed += x_size < INFINITE && y_size >= INFINITE;
    to.underflowed += x_size && x_size < INFINITE && !y_size;
    if (x_size < INFINITE && y_size < INFINITE) {
        double a = x, b = y, e = fabs(__dsub_rn(a, b));
        to.largest = fmax(to.largest, fabs(a));
        to.max_error = fmax(to.max_error, e);
        to.error += e;
        to.error2 += e * e;
        to.x2 += a * a;
        to.y2 += b * b;
        to.xy += a * b;
    }
}

__device__ void put_count(uint64_t *to, unsigned count) {
    count = __reduce_add_sync(ALL, count);
    if (threadIdx.x % 32 == 0 && count) {
        atomicAdd((unsigned long long *)to, (unsigned long long)count);
    }
}

__device__ void put_sum(double *to, double sum) {
    for (int step = 16; step; step /= 2) {
        sum += __shfl_xor_sync(ALL, sum, step);
    }
    if (threadIdx.x % 32 == 0 && sum != 0) {
        atomicAdd(to, sum);
    }
}

// Numbers that are not negative are in the order of their bits.
__device__ void put_most(double *to, double most) {
    for (int step = 16; step; step /= 2) {
        most = fmax(most, __shfl_xor_sync(ALL, most, step));
    }
    if (threadIdx.x % 32 == 0 && most > 0) {
        atomicMax((unsigned long long *)to, (unsigned long long)__double_as_longlong(most));
    }
}

// By whole warps.
__device__ void put_tally(const ceni_codec_job &job, uint64_t row, const tally &t) {
    ceni_codec_sums *to = (ceni_codec_sums *)job.sums + row;
    put_count(&to->count, t.count);
    put_count(&to->nan, t.nan);
    put_count(&to->infinite, t.infinite);
    put_count(&to->saturated, t.saturated);
    put_count(&to->overflowed, t.overflowed);
    put_count(&to->underflowed, t.underflowed);
    put_most(&to->largest, t.largest);
    put_most(&to->max_error, t.max_error);
    put_sum(&to->error, t.error);
    put_sum(&to->error2, t.error2);
    put_sum(&to->x2, t.x2);
    put_sum(&to->y2, t.y2);
    put_sum(&to->xy, t.xy);
}

// ---- eight at a time ----

__device__ void encode_dense(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                             const float x[EIGHT], const scales8 &s, tally *sums) {
    uint16_t q[EIGHT];
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        q[k] = code_of(job, x[k], s.r[k], s.z[k]);
    }
    store_codes(job, values_at(job, row, col), n, q);
    if (sums) {
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            if (k < n) {
                float y = value_of(job, q[k], s.s[k], s.z[k]);
                bool scaled = has(job, CENI_CODEC_SCALED);
                add(*sums, x[k], scaled ? __fmul_rn(x[k], s.r[k]) : x[k], y, job.limit);
            }
        }
    }
}

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

__device__ void encode_sparse(const ceni_codec_job &job, uint64_t row, uint64_t col, int n,
                              const float x[EIGHT], const scales8 &s, tally *sums) {
    uint32_t pairs[2] = {pair_of(x), pair_of(x + 4)};
    uint16_t q[EIGHT] = {0};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int g = k / 2 * 4;
        uint32_t index = pairs[k / 2] >> k % 2 * 2 & 3;
        q[k] = code_of(job, pick(x + g, index), pick(s.r + g, index), pick(s.z + g, index));
    }
    store_codes(job, values_at(job, row, col), n > 4 ? 4 : 2, q);
    uint8_t *to = (uint8_t *)metadata_at(job, row, col);
    uint8_t *end = (uint8_t *)(job.metadata + (row + 1) * job.metadata_pitch);
    *to++ = (uint8_t)(pairs[0] | pairs[1] << 4);
    while (col + EIGHT >= job.cols && to < end) {
        *to++ = 0xEE;
    }
    if (!sums) {
        return;
    }
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t pair = pairs[k / 4], at = k % 4;
        bool first = at == (pair & 3), second = at == pair >> 2;
        float y = 0, t = 0;
        if (first || second) {
            uint16_t code = second ? q[k / 4 * 2 + 1] : q[k / 4 * 2];
            y = value_of(job, code, s.s[k], s.z[k]);
            t = has(job, CENI_CODEC_SCALED) ? __fmul_rn(x[k], s.r[k]) : x[k];
        }
        if (k < n) {
            add(*sums, x[k], t, y, job.limit);
        }
    }
}

__device__ void decode8(const ceni_codec_job &job, uint64_t row, uint64_t col, int n) {
    scales8 s;
    uint16_t q[EIGHT];
    float y[EIGHT];
    find_scales(job, row, col, n, s);
    if (!has(job, CENI_CODEC_SPARSE)) {
        load_codes(job, values_at(job, row, col), n, q);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            y[k] = value_of(job, q[k], s.s[k], s.z[k]);
        }
        store8(job, place(job, row, col), n, y);
        return;
    }
    uint32_t byte = *(const uint8_t *)metadata_at(job, row, col);
    load_codes(job, values_at(job, row, col), n > 4 ? 4 : 2, q);
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        uint32_t pair = byte >> k / 4 * 4 & 15, at = k % 4;
        uint16_t code = at == pair >> 2 ? q[k / 4 * 2 + 1] : q[k / 4 * 2];
        bool kept = at == pair >> 2 || at == (pair & 3);
        y[k] = kept ? value_of(job, code, s.s[k], s.z[k]) : 0.0f;
    }
    store8(job, place(job, row, col), n, y);
}

// ---- rows ----

__device__ int left_of(const ceni_codec_job &job, uint64_t octet) {
    uint64_t col = octet * EIGHT;
    return col >= job.cols ? 0 : job.cols - col < EIGHT ? (int)(job.cols - col) : EIGHT;
}

// From a row that begins at `base`.
__device__ void load_octet(const ceni_codec_job &job, uint64_t base, uint64_t octet,
                           float x[EIGHT]) {
    load8(job, base + octet * EIGHT * element_bytes(job.dtype), left_of(job, octet), x);
}

// Scales of an octet in a group of 32, 64 or 128, whose lanes are neighbours. By whole warps.
__device__ void group_scales(const ceni_codec_job &job, uint64_t row, uint64_t octet,
                             const float x[EIGHT], scales8 &s) {
    range e = {0, 0};
    widen(job, x, e);
    int lanes = (int)job.unit_cols / EIGHT, n = left_of(job, octet);
    scale made = scale_of(job, over_lanes(e, lanes));
    if (n && threadIdx.x % lanes == 0) {
        write_scale(job, row * job.units_across + octet / lanes, made);
    }
    same_scales(made, n, s);
}

// Copies a row to shared memory, so that it is read once for its scale and its codes.
__device__ uint64_t keep_row(const ceni_codec_job &job, uint64_t from, void *shared) {
    uint64_t bytes = job.cols * element_bytes(job.dtype), words = from % 16 ? 0 : bytes / 16;
#pragma unroll 4
    for (uint64_t i = threadIdx.x; i < words; i += blockDim.x) {
        ((uint4 *)shared)[i] = ((const uint4 *)from)[i];
    }
    for (uint64_t i = words * 8 + threadIdx.x; i < bytes / 2; i += blockDim.x) {
        ((uint16_t *)shared)[i] = ((const uint16_t *)from)[i];
    }
    __syncthreads();
    return (uint64_t)shared;
}

__device__ scale row_scale(const ceni_codec_job &job, uint64_t row, uint64_t base) {
    range e = {0, 0};
    for (uint64_t octet = threadIdx.x; octet < over(job.cols, EIGHT); octet += blockDim.x) {
        float x[EIGHT];
        load_octet(job, base, octet, x);
        widen(job, x, e);
    }
    scale made = scale_of(job, over_block(e));
    if (threadIdx.x == 0) {
        write_scale(job, row, made);
    }
    return made;
}

// A block has a row, if the row's scale is to be made of it, or else a stretch of STRETCH octets for
// each thread.
template <bool SUMS> __device__ void encode(const ceni_codec_job &job, void *shared) {
    bool own = has(job, CENI_CODEC_OWN_SCALES), whole = own && job.unit_cols == job.cols;
    bool kept = whole && job.cols * element_bytes(job.dtype) <= CENI_CODEC_SHARED;
    uint64_t octets = over(job.cols, EIGHT), stretch = (uint64_t)STRETCH * blockDim.x;
    uint64_t across = whole ? 1 : over(octets, stretch), items = job.rows * across;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        uint64_t row = item / across, first = item % across * stretch;
        uint64_t end = whole || octets - first < stretch ? octets : first + stretch;
        uint64_t base = place(job, row, 0);
        scale made = {1.0f, 1.0f, 0};
        tally sums = {};
        if (kept) {
            base = keep_row(job, base, shared);
        }
        if (whole) {
            made = row_scale(job, row, base);
        }
        // Whole warps, since those of a group talk to each other.
        for (uint64_t octet = first + threadIdx.x; octet - threadIdx.x % 32 < end;
             octet += blockDim.x) {
            int n = left_of(job, octet);
            float x[EIGHT];
            scales8 s;
            load_octet(job, base, octet, x);
            if (whole) {
                same_scales(made, n, s);
            } else if (own) {
                group_scales(job, row, octet, x, s);
            } else {
                find_scales(job, row, octet * EIGHT, n, s);
            }
            if (n && has(job, CENI_CODEC_SPARSE)) {
                encode_sparse(job, row, octet * EIGHT, n, x, s, SUMS ? &sums : nullptr);
            } else if (n) {
                encode_dense(job, row, octet * EIGHT, n, x, s, SUMS ? &sums : nullptr);
            }
        }
        if (SUMS) {
            put_tally(job, row, sums);
        }
        if (kept) {
            __syncthreads();
        }
    }
}

// ---- units of several rows ----

// One column each: neighbouring threads have neighbouring columns, so that rows are read together.
__device__ void column_scales(const ceni_codec_job &job) {
    __shared__ range rows[8][33];
    unsigned lane = threadIdx.x % 32, part = threadIdx.x / 32, parts = blockDim.x / 32;
    uint64_t bands = over(job.rows, job.unit_rows), across = over(job.cols, 32);
    for (uint64_t item = blockIdx.x; item < bands * across; item += gridDim.x) {
        uint64_t band = item / across, col = item % across * 32 + lane;
        uint64_t first = band * job.unit_rows, end = first + job.unit_rows;
        range e = {0, 0};
        for (uint64_t row = first + part; row < end && row < job.rows; row += parts) {
            float x[EIGHT];
            load8(job, place(job, row, col), col < job.cols ? 1 : 0, x);
            widen(job, x, e);
        }
        rows[part][lane] = e;
        __syncthreads();
        for (unsigned p = 0; part == 0 && p < parts; p++) {
            e = wider(e, rows[p][lane]);
        }
        if (part == 0 && col < job.cols) {
            write_scale(job, band * job.units_across + col, scale_of(job, e));
        }
        __syncthreads();
    }
}

__device__ void unit_scales(const ceni_codec_job &job) {
    uint64_t bands = over(job.rows, job.unit_rows), width = over(job.unit_cols, EIGHT);
    for (uint64_t unit = blockIdx.x; unit < bands * job.units_across; unit += gridDim.x) {
        uint64_t top = unit / job.units_across * job.unit_rows;
        uint64_t left = unit % job.units_across * job.unit_cols;
        uint64_t rows = job.rows - top < job.unit_rows ? job.rows - top : job.unit_rows;
        uint64_t cols = job.cols - left < job.unit_cols ? job.cols - left : job.unit_cols;
        range e = {0, 0};
        for (uint64_t i = threadIdx.x; i < rows * width; i += blockDim.x) {
            uint64_t row = top + i / width, col = i % width * EIGHT;
            int n = col >= cols ? 0 : cols - col < EIGHT ? (int)(cols - col) : EIGHT;
            float x[EIGHT];
            load8(job, place(job, row, left + col), n, x);
            widen(job, x, e);
        }
        e = over_block(e);
        if (threadIdx.x == 0) {
            write_scale(job, unit, scale_of(job, e));
        }
        __syncthreads();
    }
}

// Pairs lie in `values`, which may be aligned to a byte.
__device__ void put_pair(const ceni_codec_job &job, uint64_t index, range e) {
    uint64_t bits = __float_as_uint(e.lo) | (uint64_t)__float_as_uint(e.hi) << 32;
    store_bytes(job.values + index * 8, 8, bits);
}

__device__ range get_pair(const ceni_codec_job &job, uint64_t index) {
    uint64_t bits = load_bytes(job.values + index * 8, 8);
    return {__uint_as_float((uint32_t)bits), __uint_as_float((uint32_t)(bits >> 32))};
}

} // namespace codec

extern "C" __global__ void cen_codec_extremes(ceni_codec_job job) {
    using namespace codec;
    uint64_t across = over(job.cols, CENI_CODEC_TILE), tiles = job.rows * across;
    range e = {0, 0};
    for (uint64_t tile = blockIdx.x; tile < tiles; tile += job.extremes) {
        uint64_t first = tile % across * (CENI_CODEC_TILE / EIGHT);
        for (unsigned i = threadIdx.x; i < CENI_CODEC_TILE / EIGHT; i += blockDim.x) {
            float x[EIGHT];
            load_octet(job, place(job, tile / across, 0), first + i, x);
            widen(job, x, e);
        }
    }
    e = over_block(e);
    if (threadIdx.x == 0 && blockIdx.x < job.extremes) {
        put_pair(job, blockIdx.x, e);
    }
}

extern "C" __global__ void cen_codec_scales(ceni_codec_job job) {
    using namespace codec;
    if (job.extremes) {
        range e = {0, 0};
        for (unsigned i = threadIdx.x; i < job.extremes; i += blockDim.x) {
            e = wider(e, get_pair(job, i));
        }
        e = over_block(e);
        if (threadIdx.x == 0 && blockIdx.x == 0) {
            write_scale(job, 0, scale_of(job, e));
        }
    } else if (job.unit_cols == 1) {
        column_scales(job);
    } else {
        unit_scales(job);
    }
}

extern __shared__ uint4 codec_shared[];

extern "C" __global__ void __launch_bounds__(256, 4) cen_codec_encode(ceni_codec_job job) {
    codec::encode<false>(job, codec_shared);
}

extern "C" __global__ void __launch_bounds__(256, 2)
cen_codec_encode_sums(ceni_codec_job job) {
    codec::encode<true>(job, codec_shared);
}

extern "C" __global__ void cen_codec_decode(ceni_codec_job job) {
    using namespace codec;
    uint64_t across = over(over(job.cols, EIGHT), blockDim.x), items = job.rows * across;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        uint64_t octet = item % across * blockDim.x + threadIdx.x;
        if (left_of(job, octet)) {
            decode8(job, item / across, octet * EIGHT, left_of(job, octet));
        }
    }
}
