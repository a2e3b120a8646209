// Encoding and decoding, as codec.h says. A thread has eight neighbours of a row at a time: they are
// loaded, scaled, coded and stored as vectors where they are aligned, one by one where not
// (codec_device.cuh). What a job asks for is the same for a whole launch, so branches on it do not
// diverge.

#include "kernels/codec_device.cuh"

namespace codec {

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
                sums->saturated += cut_by_zero(job, x[k], s.r[k], s.z[k]);
                add(*sums, x[k], scaled ? __fmul_rn(x[k], s.r[k]) : x[k], y, job.limit);
            }
        }
    }
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
            sums->saturated += cut_by_zero(job, x[k], s.r[k], s.z[k]);
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

extern "C" __global__ void cen_encode_extremes(ceni_codec_job job) {
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

extern "C" __global__ void cen_encode_scales(ceni_codec_job job) {
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

extern "C" __global__ void __launch_bounds__(256, 4) cen_encode(ceni_codec_job job) {
    codec::encode<false>(job, codec_shared);
}

extern "C" __global__ void __launch_bounds__(256, 2)
cen_encode_sums(ceni_codec_job job) {
    codec::encode<true>(job, codec_shared);
}

extern "C" __global__ void cen_decode(ceni_codec_job job) {
    using namespace codec;
    uint64_t across = over(over(job.cols, EIGHT), blockDim.x), items = job.rows * across;
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
        uint64_t octet = item % across * blockDim.x + threadIdx.x;
        if (left_of(job, octet)) {
            decode8(job, item / across, octet * EIGHT, left_of(job, octet));
        }
    }
}
