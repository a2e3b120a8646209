// Counting a matrix for calibration, as calibrate.h says. A warp has a segment of a row, whose lanes
// take eight neighbours at a time, or a segment of 32 columns, whose lanes take one column each.
//
// A block keeps the bins of 20 octaves in shared memory: those around the largest of what it sees
// first. What lies elsewhere goes to the bins in global memory at once, so that the choice changes
// the time and not the counts. Against contention neighbours of one bin are counted before they are
// added, and for BF16, of whose bins only each fourth is used, the warps share out the other three.

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

// The first n of eight neighbours.
__device__ void load8(const ceni_calibrate_job &job, uint64_t row, uint64_t col, int n,
                      uint32_t bits[RUN]) {
    uint64_t at = place(job, row, col);
    if (n < RUN || at % 16) {
#pragma unroll
        for (int k = 0; k < RUN; k++) {
            bits[k] = k < n ? load(job, row, col + k) : 0;
        }
    } else if (job.dtype == CEN_FP32) {
        uint4 a = ((const uint4 *)at)[0], b = ((const uint4 *)at)[1];
        bits[0] = a.x, bits[1] = a.y, bits[2] = a.z, bits[3] = a.w;
        bits[4] = b.x, bits[5] = b.y, bits[6] = b.z, bits[7] = b.w;
    } else {
        uint4 v = *(const uint4 *)at;
        uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            bits[2 * k] = bits_of(job.dtype, (uint16_t)words[k]);
            bits[2 * k + 1] = bits_of(job.dtype, (uint16_t)(words[k] >> 16));
        }
    }
}

// ---- bins ----

class counter {
  public:
    __device__ counter(const ceni_calibrate_job &job, shared &local, uint32_t base)
        : state(state_of(job)), bins(local.bins), base(base),
          lane(job.dtype == CEN_BF16 ? threadIdx.x / WARP % 4 : 0) {}

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
    uint32_t base, lane, last = 0, run = 0;
};

// The first bin of the window: two octaves above the largest of `bits` in the block, and the rest
// below. The bins are cleared.
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
    return top > OCTAVES ? (top - OCTAVES) << OCTAVE : 0;
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

template <bool channels>
__device__ void row_segment(const ceni_calibrate_job &job, uint64_t unit, counter &count,
                            seen &all) {
    uint64_t row = unit / job.segments, segment = unit % job.segments;
    uint64_t first = segment * job.segment, end = lesser(job.cols, first + job.segment);
    seen here = {};
    double sum = 0, sum2 = 0;
    for (uint64_t col = first + threadIdx.x % WARP * RUN; col < end; col += WARP * RUN) {
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
        row_segment<true>(job, unit, count, all);
    } else {
        row_segment<false>(job, unit, count, all);
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
extern "C" __global__ void __launch_bounds__(256) cen_calibrate(ceni_calibrate_job job) {
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
