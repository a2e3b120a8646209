// Counting a matrix for calibration, as calibrate.h says. A warp has a segment of a row, whose
// lanes take eight neighbours at a time, or a segment of 32 columns, whose lanes take one column
// each.
//
// A block keeps the bins of some octaves in shared memory, as many as fit below twice the largest
// of what it sees first. What lies elsewhere goes to the bins in global memory at once, so that the
// choice changes the time and not the counts.
//
// So that lanes do not wait for each other, neighbours have a copy of these bins each: 32 for BF16,
// of whose bins only each fourth is used, and else 8. A word has two counts of 16 bits, of what is
// positive and what is negative, so that BF16's extremes follow from the bins. Who counts sees what
// was there before, and takes a word to global memory that is half full; until then each other
// thread adds eight at most, which is far from the other half.

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/calibrate.h"

namespace calibrate {

constexpr int WARP = CENI_CALIBRATE_LANES, RUN = CENI_CALIBRATE_RUN;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u;
constexpr unsigned ALL = 0xFFFFFFFFu;

using word = unsigned long long;

struct seen {
    uint32_t nan, infinite, zeros, least, most;
};

__device__ uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

__device__ ceni_calibrate_state *state_of(const ceni_calibrate_job &job) {
    return (ceni_calibrate_state *)job.state;
}

__device__ uint32_t bits_of(uint32_t dtype, uint16_t half) {
    if (dtype == CEN_BF16) {
        return (uint32_t)half << 16;
    }
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return __float_as_uint(value);
}

__device__ uint64_t place(const ceni_calibrate_job &job, uint64_t row, uint64_t col) {
    return job.matrix + (row * job.stride + col) * (job.dtype == CEN_FP32 ? 4 : 2);
}

__device__ uint32_t load(const ceni_calibrate_job &job, uint64_t row, uint64_t col) {
    uint64_t at = place(job, row, col);
    return job.dtype == CEN_FP32 ? *(const uint32_t *)at
                                 : bits_of(job.dtype, *(const uint16_t *)at);
}

// Eight neighbours as they lie: the first n, and 0 for the others.
struct raw {
    uint4 low, high; // the second only of FP32
};

__device__ raw fetch(const ceni_calibrate_job &job, uint64_t row, uint64_t col, int n) {
    raw v = {};
    uint64_t at = place(job, row, col);
    if (n == RUN && at % 16 == 0) {
        v.low = __ldg((const uint4 *)at);
        if (job.dtype == CEN_FP32) {
            v.high = __ldg((const uint4 *)at + 1);
        }
        return v;
    }
    uint32_t w[8] = {};
#pragma unroll
    for (int k = 0; k < RUN; k++) {
        if (k < n && job.dtype == CEN_FP32) {
            w[k] = ((const uint32_t *)at)[k];
        } else if (k < n) {
            w[k / 2] |= (uint32_t)((const uint16_t *)at)[k] << k % 2 * 16;
        }
    }
    return {make_uint4(w[0], w[1], w[2], w[3]), make_uint4(w[4], w[5], w[6], w[7])};
}

__device__ void expand(const ceni_calibrate_job &job, const raw &v, uint32_t bits[RUN]) {
    uint32_t w[4] = {v.low.x, v.low.y, v.low.z, v.low.w};
    if (job.dtype == CEN_FP32) {
        bits[0] = w[0], bits[1] = w[1], bits[2] = w[2], bits[3] = w[3];
        bits[4] = v.high.x, bits[5] = v.high.y, bits[6] = v.high.z, bits[7] = v.high.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        bits[2 * k] = bits_of(job.dtype, (uint16_t)w[k]);
        bits[2 * k + 1] = bits_of(job.dtype, (uint16_t)(w[k] >> 16));
    }
}

// ---- bins ----

extern __shared__ uint32_t calibrate_window[];

__device__ void add_key(uint32_t bits, seen &to) {
    uint32_t key = ceni_calibrate_key(bits);
    to.least = max(to.least, ~key);
    to.most = max(to.most, key);
}

class window {
  public:
    __device__ window(const ceni_calibrate_job &job, uint32_t low)
        : job(job), low(low), wide(job.octaves << 23), bf16(job.dtype == CEN_BF16),
          mask(bf16 ? ~127u : ~31u), copy(threadIdx.x * 4 & ~mask) {
    }

    // Counts the first n of eight, behind which are zeros. `extremes`: they will be asked for
    // these, not for all only. All eight add, be it nothing, so that none waits for the one before.
    template <bool extremes>
    __device__ void add(const uint32_t bits[RUN], int n, seen &to, seen &all) {
        uint32_t before[RUN], out = 0;
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            uint32_t beyond = (bits[k] & MAGNITUDE) - low, one = (int)bits[k] < 0 ? 1u << 16 : 1u;
            bool in = beyond < wide;
            before[k] = atomicAdd(word_at(in ? beyond : 0), in ? one : 0);
            out |= in ? 0 : 1u << k;
        }
        if (extremes || !bf16) {
            add_extremes(bits, out, to);
        }
        uint32_t any = 0;
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            any |= before[k];
        }
        if (any & 0x80008000u) {
            empty(bits, all);
        }
        out &= (1u << n) - 1;
        if (out) {
#pragma unroll
            for (int k = 0; k < RUN; k++) {
                if (out >> k & 1) {
                    add_out(bits[k], to);
                }
            }
        }
    }

    // What is still here to global memory. By whole blocks.
    __device__ void close(seen &to) {
        uint32_t copies = bf16 ? 32 : 8, bins = (wide >> 11) / copies;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < bins; i += blockDim.x) {
            uint32_t positive = 0, negative = 0;
            for (uint32_t c = 0; c < copies; c++) { // each lane begins with another bank
                uint32_t n = calibrate_window[i * copies + (c + threadIdx.x) % copies];
                positive += n & 0xFFFFu;
                negative += n >> 16;
            }
            take(low + (i * copies << 11), positive, negative, to);
        }
    }

  private:
    // Words are 2^11 of a magnitude apart, all copies of a bin side by side.
    __device__ uint32_t *word_at(uint32_t beyond) const {
        return calibrate_window + ((beyond >> 9 & mask) | copy) / 4;
    }

    __device__ void put(uint32_t size, uint32_t count) const {
        if (count) {
            atomicAdd((word *)&state_of(job)->bins[size >> CENI_CALIBRATE_SHIFT], (word)count);
        }
    }

    // Counts of a bin, and of BF16 its elements, which are all the same but for their signs.
    __device__ void take(uint32_t size, uint32_t positive, uint32_t negative, seen &to) const {
        put(size, positive + negative);
        if (bf16 && positive) {
            add_key(size, to);
        }
        if (bf16 && negative) {
            add_key(size | ~MAGNITUDE, to);
        }
    }

    __device__ void empty(const uint32_t bits[RUN], seen &all) const {
#pragma unroll 1
        for (int k = 0; k < RUN; k++) {
            uint32_t size = MAGNITUDE;
#pragma unroll
            for (int i = 0; i < RUN; i++) {
                size = i == k ? bits[i] & MAGNITUDE : size;
            }
            if (size - low < wide) {
                uint32_t n = atomicExch(word_at(size - low), 0u);
                take(size, n & 0xFFFFu, n >> 16, all);
            }
        }
    }

    // Of those that are not out, which are neither 0 nor beyond all numbers.
    __device__ void add_extremes(const uint32_t bits[RUN], uint32_t out, seen &to) const {
        float least = __uint_as_float(INFINITE), most = -least;
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            float x = __uint_as_float(bits[k]);
            least = out >> k & 1 ? least : fminf(least, x);
            most = out >> k & 1 ? most : fmaxf(most, x);
        }
        if (least <= most) {
            to.least = max(to.least, ~ceni_calibrate_key(__float_as_uint(least)));
            to.most = max(to.most, ceni_calibrate_key(__float_as_uint(most)));
        }
    }

    __device__ void add_out(uint32_t bits, seen &to) const {
        uint32_t size = bits & MAGNITUDE;
        if (size >= INFINITE) {
            to.nan += size > INFINITE;
            to.infinite += size == INFINITE;
            return;
        }
        add_key(bits, to);
        to.zeros += !size;
        put(size, size != 0);
    }

    const ceni_calibrate_job &job;
    const uint32_t low, wide;
    const bool bf16;
    const uint32_t mask, copy;
};

// Where the window begins: so that it ends an octave above the largest of `bits` in the block, with
// normal numbers. Its words are cleared.
__device__ uint32_t open_window(const ceni_calibrate_job &job, uint32_t bits) {
    __shared__ uint32_t largest[32];
    uint32_t size = bits & MAGNITUDE;
    size = __reduce_max_sync(ALL, size < INFINITE ? size : 0);
    if (threadIdx.x % WARP == 0) {
        largest[threadIdx.x / WARP] = size;
    }
    for (uint32_t i = threadIdx.x; i < job.octaves << 12; i += blockDim.x) {
        calibrate_window[i] = 0;
    }
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / WARP; i++) {
        size = max(size, largest[i]);
    }
    uint32_t end = min((size ? size >> 23 : 127) + 2, 255u);
    return (end > job.octaves ? end - job.octaves : 1) << 23;
}

// ---- segments ----

__device__ double meet(double lane) {
    for (int step = WARP / 2; step; step /= 2) {
        lane = __dadd_rn(lane, __shfl_down_sync(ALL, lane, step));
    }
    return lane;
}

__device__ uint64_t meet(uint64_t lane) {
    for (int step = WARP / 2; step; step /= 2) {
        lane += __shfl_down_sync(ALL, lane, step);
    }
    return lane;
}

__device__ seen meet(const seen &lane) {
    return {__reduce_add_sync(ALL, lane.nan), __reduce_add_sync(ALL, lane.infinite),
            __reduce_add_sync(ALL, lane.zeros), __reduce_max_sync(ALL, lane.least),
            __reduce_max_sync(ALL, lane.most)};
}

__device__ void join(seen &to, const seen &from) {
    to.nan += from.nan;
    to.infinite += from.infinite;
    to.zeros += from.zeros;
    to.least = max(to.least, from.least);
    to.most = max(to.most, from.most);
}

__device__ void store_part(const ceni_calibrate_job &job, uint64_t channel, uint64_t segment,
                           const seen &s, double sum, double sum2) {
    ((ceni_calibrate_channel *)job.parts)[channel * job.segments + segment] = {
        s.nan, s.infinite, s.zeros, sum, sum2, s.least, s.most};
}

__device__ void add_moments(uint32_t bits, double &sum, double &sum2) {
    double x = (bits & MAGNITUDE) < INFINITE ? (double)__uint_as_float(bits) : 0.0;
    sum = __dadd_rn(sum, x);
    sum2 = __dadd_rn(sum2, __dmul_rn(x, x));
}

template <bool channels>
__device__ void row_segment(const ceni_calibrate_job &job, uint64_t unit, window &bins, seen &all) {
    uint64_t row = job.rows == 1 ? 0 : unit / job.segments, segment = unit - row * job.segments;
    uint64_t first = segment * job.segment, end = lesser(job.cols, first + job.segment);
    uint64_t col = first + threadIdx.x % WARP * RUN;
    seen here = {};
    double sum = 0, sum2 = 0;
    raw next = {};
    if (col < end) {
        next = fetch(job, row, col, (int)lesser(RUN, end - col));
    }
    for (; col < end; col += WARP * RUN) { // one step ahead
        uint32_t bits[RUN];
        int n = (int)lesser(RUN, end - col);
        raw v = next;
        if (col + WARP * RUN < end) {
            uint64_t at = col + WARP * RUN;
            next = fetch(job, row, at, (int)lesser(RUN, end - at));
        }
        expand(job, v, bits);
        bins.add<channels>(bits, n, here, all);
        if (channels) {
#pragma unroll
            for (int k = 0; k < RUN; k++) { // places behind the n-th are 0
                add_moments(bits[k], sum, sum2);
            }
        }
    }
    join(all, here);
    if (channels) {
        __syncwarp();
        seen warp = meet(here);
        sum = meet(sum);
        sum2 = meet(sum2);
        if (threadIdx.x % WARP == 0) {
            store_part(job, row, segment, warp, sum, sum2);
        }
    }
}

__device__ void column_segment(const ceni_calibrate_job &job, uint64_t unit, window &bins,
                               seen &all) {
    uint64_t strips = (job.cols + WARP - 1) / WARP;
    uint64_t col = unit % strips * WARP + threadIdx.x % WARP, segment = unit / strips;
    uint64_t first = segment * job.segment, end = lesser(job.rows, first + job.segment);
    if (col >= job.cols) {
        return;
    }
    seen here = {};
    double sum = 0, sum2 = 0;
    for (uint64_t row = first; row < end; row += RUN) {
        uint32_t bits[RUN];
        int n = (int)lesser(RUN, end - row);
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            bits[k] = k < n ? load(job, row + k, col) : 0;
        }
        bins.add<true>(bits, n, here, all);
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            add_moments(bits[k], sum, sum2);
        }
    }
    join(all, here);
    store_part(job, col, segment, here, sum, sum2);
}

__device__ void run_unit(const ceni_calibrate_job &job, uint64_t unit, window &bins, seen &all) {
    if (job.axis == CENI_CALIBRATE_COLUMNS) {
        column_segment(job, unit, bins, all);
    } else if (job.axis == CENI_CALIBRATE_ROWS) {
        row_segment<true>(job, unit, bins, all);
    } else {
        row_segment<false>(job, unit, bins, all);
    }
}

// An element that this thread is going to meet, or 0.
__device__ uint32_t sample(const ceni_calibrate_job &job, uint64_t unit, uint64_t units) {
    if (unit >= units) {
        return 0;
    }
    bool columns = job.axis == CENI_CALIBRATE_COLUMNS;
    uint64_t strips = (job.cols + WARP - 1) / WARP, lane = threadIdx.x % WARP;
    uint64_t row = columns ? unit / strips * job.segment : unit / job.segments;
    uint64_t col =
        columns ? unit % strips * WARP + lane : unit % job.segments * job.segment + lane * RUN;
    return col < job.cols ? load(job, row, col) : 0;
}

__device__ void finish(const ceni_calibrate_job &job, const seen &all) {
    ceni_calibrate_state *state = state_of(job);
    seen warp = meet(all);
    if (threadIdx.x % WARP == 0) {
        atomicAdd((word *)&state->nan, (word)warp.nan);
        atomicAdd((word *)&state->infinite, (word)warp.infinite);
        atomicAdd((word *)&state->zeros, (word)warp.zeros);
        atomicMax(&state->least, warp.least);
        atomicMax(&state->most, warp.most);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        atomicAdd((word *)&state->count, (word)(job.rows * job.cols));
    }
}

} // namespace calibrate

extern "C" __global__ void __launch_bounds__(CENI_CALIBRATE_BLOCK)
    cen_calibrate(ceni_calibrate_job job) {
    using namespace calibrate;
    uint64_t strips = (job.cols + WARP - 1) / WARP, warps = blockDim.x / WARP;
    uint64_t units = (job.axis == CENI_CALIBRATE_COLUMNS ? strips : job.rows) * job.segments;
    uint64_t unit = blockIdx.x * warps + threadIdx.x / WARP;
    window bins(job, open_window(job, sample(job, unit, units)));
    seen all = {};
    for (; unit < units; unit += gridDim.x * warps) {
        run_unit(job, unit, bins, all);
        __syncwarp();
    }
    bins.close(all);
    finish(job, all);
}

extern "C" __global__ void __launch_bounds__(256) cen_calibrate_channels(ceni_calibrate_job job) {
    using namespace calibrate;
    uint64_t channels = job.axis == CENI_CALIBRATE_ROWS ? job.rows : job.cols;
    uint64_t warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    for (uint64_t channel = blockIdx.x * warps + threadIdx.x / WARP; channel < channels;
         channel += gridDim.x * warps) {
        const ceni_calibrate_channel *parts =
            (const ceni_calibrate_channel *)job.parts + channel * job.segments;
        uint64_t nan = 0, infinite = 0, zeros = 0;
        uint32_t least = 0, most = 0;
        double sum = 0, sum2 = 0;
        for (uint64_t i = lane; i < job.segments; i += WARP) {
            ceni_calibrate_channel p = parts[i];
            nan += p.nan;
            infinite += p.infinite;
            zeros += p.zeros;
            least = max(least, p.least);
            most = max(most, p.most);
            sum = __dadd_rn(sum, p.sum);
            sum2 = __dadd_rn(sum2, p.sum2);
        }
        nan = meet(nan);
        infinite = meet(infinite);
        zeros = meet(zeros);
        least = __reduce_max_sync(ALL, least);
        most = __reduce_max_sync(ALL, most);
        sum = meet(sum);
        sum2 = meet(sum2);
        if (lane == 0) {
            ceni_calibrate_channel *to = (ceni_calibrate_channel *)job.channels + channel;
            to->nan += nan;
            to->infinite += infinite;
            to->zeros += zeros;
            to->least = max(to->least, least);
            to->most = max(to->most, most);
            to->sum = __dadd_rn(to->sum, sum);
            to->sum2 = __dadd_rn(to->sum2, sum2);
        }
    }
}
