// Counting a matrix for calibration, as calibrate.h says. A warp has a segment of a row, whose lanes
// take eight neighbours at a time, or a segment of 32 columns, whose lanes take one column each.
//
// A block keeps the bins of 20 octaves in shared memory: those around the largest of what it sees
// first. What lies elsewhere goes to the bins in global memory at once, so that the choice changes
// the time and not the counts. For BF16, of whose bins only each fourth is used, neighbouring lanes
// share out the other three, so that all banks are. Octets that are aligned and finite, almost all,
// cost some ten instructions an element; the others are gone through one by one.

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/calibrate.h"

namespace calibrate {

constexpr int WARP = CENI_CALIBRATE_LANES, RUN = CENI_CALIBRATE_RUN, WARPS = 8, AHEAD = 4;
constexpr int OCTAVE = 23 - CENI_CALIBRATE_SHIFT, OCTAVES = 20, WINDOW = OCTAVES << OCTAVE;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u;
constexpr unsigned ALL = 0xFFFFFFFFu;

using word = unsigned long long;

struct shared {
    uint32_t bins[WINDOW];
    uint32_t outside[WARP]; // what is not counted, a lane's each
    uint32_t largest[WARPS];
};

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

// Eight neighbours of 16 bytes, of FP32 two times 16.
template <uint32_t DTYPE>
__device__ __forceinline__ void split8(const uint4 *quads, uint32_t bits[RUN]) {
#pragma unroll
    for (int q = 0; q < (DTYPE == CEN_FP32 ? 2 : 1); q++) {
        const uint32_t words[4] = {quads[q].x, quads[q].y, quads[q].z, quads[q].w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (DTYPE == CEN_FP32) {
                bits[4 * q + k] = words[k];
            } else {
                bits[2 * k] = bits_of(DTYPE, (uint16_t)words[k]);
                bits[2 * k + 1] = DTYPE == CEN_BF16 ? words[k] & 0xFFFF0000u
                                                    : bits_of(DTYPE, (uint16_t)(words[k] >> 16));
            }
        }
    }
}

// The first n of eight neighbours.
__device__ void load8(const ceni_calibrate_job &job, uint64_t row, uint64_t col, int n,
                      uint32_t bits[RUN]) {
#pragma unroll
    for (int k = 0; k < RUN; k++) {
        bits[k] = k < n ? load(job, row, col + k) : 0;
    }
}

// ---- ends ----

// The least and the largest of what was taken, by comparisons that know no floats: without a sign the
// largest is the least number if any is negative; with it, the largest number unless all are. Of BF16
// there are two to a word.
template <uint32_t DTYPE> struct ends {
    static constexpr bool TWO = DTYPE == CEN_BF16;
    uint32_t high = 0, low = ~0u, top = TWO ? 0x80008000u : 0x80000000u;

    __device__ __forceinline__ void take(uint32_t word) {
        high = TWO ? __vmaxu2(high, word) : max(high, word);
        low = TWO ? __vminu2(low, word) : min(low, word);
        top = TWO ? __vmaxs2(top, word) : (uint32_t)max((int32_t)top, (int32_t)word);
    }

    __device__ __forceinline__ void take(const ends &other) {
        high = TWO ? __vmaxu2(high, other.high) : max(high, other.high);
        low = TWO ? __vminu2(low, other.low) : min(low, other.low);
        top = TWO ? __vmaxs2(top, other.top) : (uint32_t)max((int32_t)top, (int32_t)other.top);
    }

    __device__ __forceinline__ void take8(const uint4 *quads) {
        if (DTYPE == CEN_FP16) {
            uint32_t bits[RUN];
            split8<DTYPE>(quads, bits);
#pragma unroll
            for (int k = 0; k < RUN; k++) {
                take(bits[k]);
            }
        } else {
#pragma unroll
            for (int q = 0; q < (TWO ? 1 : 2); q++) {
                take(quads[q].x), take(quads[q].y), take(quads[q].z), take(quads[q].w);
            }
        }
    }

    // As the bits of floats.
    __device__ __forceinline__ uint32_t bits_high() const {
        return TWO ? max(high & 0xFFFF0000u, high << 16) : high;
    }
    __device__ __forceinline__ uint32_t bits_top() const {
        return TWO ? (uint32_t)max((int32_t)(top & 0xFFFF0000u), (int32_t)(top << 16)) : top;
    }
    __device__ __forceinline__ uint32_t bits_low() const {
        return TWO ? min(low & 0xFFFF0000u, low << 16) : low;
    }

    __device__ __forceinline__ bool finite() const {
        return bits_high() < (INFINITE | 1u << 31) && (int32_t)bits_top() < (int32_t)INFINITE;
    }

    __device__ __forceinline__ void give(seen &to) const {
        if (low == ~0u) { // nothing was taken: it is the bits of no number
            return;
        }
        uint32_t least = bits_high() >> 31 ? bits_high() : bits_low();
        uint32_t most = bits_top() >> 31 ? bits_low() : bits_top();
        to.least = max(to.least, ~ceni_calibrate_key(least));
        to.most = max(to.most, ceni_calibrate_key(most));
    }
};

// ---- bins ----

// By an address that is not made each time anew.
__device__ __forceinline__ void count_one(uint32_t shared_address) {
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(shared_address) : "memory");
}

__device__ __forceinline__ uint32_t shared_address(const void *place) {
    return (uint32_t)__cvta_generic_to_shared(place);
}

class counter {
  public:
    __device__ counter(const ceni_calibrate_job &job, shared &local, uint32_t base)
        : state(state_of(job)), bins(local.bins), base(base),
          lane(job.dtype == CEN_BF16 ? threadIdx.x % 4 : 0),
          place(shared_address(local.bins) + lane * 4),
          outside(shared_address(&local.outside[threadIdx.x % WARP])) {}

    // Eight finite elements.
    template <uint32_t DTYPE>
    __device__ __forceinline__ void add_octet(const uint4 *quads, seen &to) {
        uint32_t bits[RUN], farthest = 0;
        split8<DTYPE>(quads, bits);
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            uint32_t at = ((bits[k] & MAGNITUDE) >> CENI_CALIBRATE_SHIFT) - base;
            farthest = max(farthest, at);
            count_one(at < WINDOW ? place + at * 4 : outside); // without a branch
        }
        if (farthest < WINDOW) {
            return;
        }
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            uint32_t size = bits[k] & MAGNITUDE, bin = size >> CENI_CALIBRATE_SHIFT;
            if (!size) {
                to.zeros++;
            } else if (bin - base >= WINDOW) {
                atomicAdd((word *)&state->bins[bin], (word)1);
            }
        }
    }

    __device__ void add(uint32_t bits, seen &to) {
        uint32_t size = bits & MAGNITUDE, key = ceni_calibrate_key(bits);
        if (size >= INFINITE) {
            to.nan += size > INFINITE;
            to.infinite += size == INFINITE;
            return;
        }
        to.least = max(to.least, ~key);
        to.most = max(to.most, key);
        if (!size) {
            to.zeros++;
            return;
        }
        uint32_t bin = size >> CENI_CALIBRATE_SHIFT;
        if (bin != last) {
            put();
            last = bin;
        }
        run++;
    }

    // What is still with this thread.
    __device__ void put() {
        uint32_t at = last - base;
        if (run && at < WINDOW) {
            atomicAdd(&bins[at | lane], run);
        } else if (run) {
            atomicAdd((word *)&state->bins[last], (word)run);
        }
        run = 0;
    }

  private:
    ceni_calibrate_state *state;
    uint32_t *bins;
    uint32_t base, lane, place, outside, last = 0, run = 0;
};

// The first bin of the window: two octaves above the largest of `bits` in the block, and the rest
// below, but never the first bins, where zeros would be. The bins are cleared.
__device__ uint32_t open_window(shared &local, uint32_t bits) {
    uint32_t size = bits & MAGNITUDE;
    size = __reduce_max_sync(ALL, size < INFINITE ? size : 0);
    if (threadIdx.x % WARP == 0) {
        local.largest[threadIdx.x / WARP] = size;
    }
    for (int i = threadIdx.x; i < WINDOW; i += blockDim.x) {
        local.bins[i] = 0;
    }
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / WARP; i++) {
        size = max(size, local.largest[i]);
    }
    uint32_t top = (size ? size >> 23 : 127) + 3;
    return top > OCTAVES ? (top - OCTAVES) << OCTAVE : 1 << OCTAVE;
}

__device__ void flush(const ceni_calibrate_job &job, shared &local, uint32_t base) {
    uint32_t mask = job.dtype == CEN_BF16 ? ~3u : ~0u;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < WINDOW; i += blockDim.x) {
        uint32_t n = local.bins[i];
        if (n) {
            atomicAdd((word *)&state_of(job)->bins[(base + i) & mask], (word)n);
            local.bins[i] = 0;
        }
    }
    __syncthreads();
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

// The octets of a lane that are whole and aligned, AHEAD at a time; the column after them.
template <uint32_t DTYPE, bool channels>
__device__ __forceinline__ uint64_t whole_octets(const ceni_calibrate_job &job, uint64_t row,
                                                 uint64_t col, uint64_t end, counter &count,
                                                 seen &here, double &sum, double &sum2) {
    constexpr int QUADS = DTYPE == CEN_FP32 ? 2 : 1, N = AHEAD / QUADS;
    uint64_t from = place(job, row, 0);
    ends<DTYPE> all;
    for (; col + (N - 1) * WARP * RUN + RUN <= end; col += N * WARP * RUN) {
        const uint4 *quads = (const uint4 *)from + col / RUN * QUADS;
        uint4 in[N][QUADS];
#pragma unroll
        for (int i = 0; i < N; i++) {
#pragma unroll
            for (int q = 0; q < QUADS; q++) {
                in[i][q] = quads[i * WARP * QUADS + q];
            }
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            ends<DTYPE> here8;
            here8.take8(in[i]);
            bool finite = here8.finite();
            if (finite) {
                all.take(here8);
                count.add_octet<DTYPE>(in[i], here);
            }
#pragma unroll 1
            for (int k = 0; !finite && k < RUN; k++) { // rare: read anew
                count.add(load(job, row, col + i * WARP * RUN + k), here);
            }
            if (channels) {
                uint32_t bits[RUN];
                split8<DTYPE>(in[i], bits);
#pragma unroll
                for (int k = 0; k < RUN; k++) {
                    add_moments(bits[k], sum, sum2);
                }
            }
        }
    }
    all.give(here);
    return col;
}

template <uint32_t DTYPE, bool channels>
__device__ void row_segment(const ceni_calibrate_job &job, uint64_t unit, counter &count,
                            seen &all) {
    uint64_t row = unit / job.segments, segment = unit - row * job.segments;
    uint64_t first = segment * job.segment, end = lesser(job.cols, first + job.segment);
    uint64_t col = first + threadIdx.x % WARP * RUN;
    seen here = {};
    double sum = 0, sum2 = 0;
    if (place(job, row, first) % 16 == 0 && first % RUN == 0) {
        col = whole_octets<DTYPE, channels>(job, row, col, end, count, here, sum, sum2);
    }
    for (; col < end; col += WARP * RUN) {
        uint32_t bits[RUN];
        int n = (int)lesser(RUN, end - col);
        load8(job, row, col, n, bits);
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            if (k < n) {
                count.add(bits[k], here);
                if (channels) {
                    add_moments(bits[k], sum, sum2);
                }
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

template <bool channels>
__device__ void row_segment_of_type(const ceni_calibrate_job &job, uint64_t unit, counter &count,
                                    seen &all) {
    if (job.dtype == CEN_FP32) {
        row_segment<CEN_FP32, channels>(job, unit, count, all);
    } else if (job.dtype == CEN_BF16) {
        row_segment<CEN_BF16, channels>(job, unit, count, all);
    } else {
        row_segment<CEN_FP16, channels>(job, unit, count, all);
    }
}

__device__ void column_segment(const ceni_calibrate_job &job, uint64_t unit, counter &count,
                               seen &all) {
    uint64_t strips = (job.cols + WARP - 1) / WARP;
    uint64_t col = unit % strips * WARP + threadIdx.x % WARP, segment = unit / strips;
    uint64_t first = segment * job.segment, end = lesser(job.rows, first + job.segment);
    if (col >= job.cols) {
        return;
    }
    seen here = {};
    double sum = 0, sum2 = 0;
    for (uint64_t row = first; row < end; row += AHEAD) {
        uint32_t bits[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            bits[k] = row + k < end ? load(job, row + k, col) : 0;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (row + k < end) {
                count.add(bits[k], here);
                add_moments(bits[k], sum, sum2);
            }
        }
    }
    join(all, here);
    store_part(job, col, segment, here, sum, sum2);
}

__device__ void run_unit(const ceni_calibrate_job &job, uint64_t unit, counter &count, seen &all) {
    if (job.axis == CENI_CALIBRATE_COLUMNS) {
        column_segment(job, unit, count, all);
    } else if (job.axis == CENI_CALIBRATE_ROWS) {
        row_segment_of_type<true>(job, unit, count, all);
    } else {
        row_segment_of_type<false>(job, unit, count, all);
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
    uint64_t col = columns ? unit % strips * WARP + lane
                           : unit % job.segments * job.segment + lane * RUN;
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

// Blocks of whole warps, at most WARPS of them.
extern "C" __global__ void __launch_bounds__(256, 4) cen_calibrate(ceni_calibrate_job job) {
    using namespace calibrate;
    __shared__ shared local;
    uint64_t strips = (job.cols + WARP - 1) / WARP, warps = blockDim.x / WARP;
    uint64_t units = (job.axis == CENI_CALIBRATE_COLUMNS ? strips : job.rows) * job.segments;
    uint64_t unit = blockIdx.x * warps + threadIdx.x / WARP;
    uint64_t width = job.axis == CENI_CALIBRATE_COLUMNS ? WARP : 1, held = 0;
    uint32_t base = open_window(local, sample(job, unit, units));
    counter count(job, local, base);
    seen all = {};
    for (uint64_t first = blockIdx.x * warps; first < units; first += gridDim.x * warps) {
        if (unit < units) {
            run_unit(job, unit, count, all);
        }
        __syncwarp();
        unit += gridDim.x * warps;
        held += warps * width * job.segment;
        if (held >> 31) { // the bins here have 32 bits
            count.put();
            flush(job, local, base);
            held = 0;
        }
    }
    count.put();
    flush(job, local, base);
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
