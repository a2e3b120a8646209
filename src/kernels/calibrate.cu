// Counting a matrix for calibration, as calibrate.h says. A warp has a segment of a row, whose
// lanes take eight neighbours at a time, or a segment of as many columns as it has lanes, or of
// twice as many where two elements are in a word. What it has seen goes to the bins of its block
// (calibrate_window.cuh), and at a segment's end to the channel's record and the block's totals.

#include "kernels/calibrate_window.cuh"

namespace calibrate {

constexpr int ROWS = 8;

__device__ uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Where the window begins: so that it ends an octave above the largest of `bits` in the block, with
// normal numbers. Its words are cleared.
__device__ uint32_t open_window(const ceni_calibrate_job &job, uint32_t bits) {
    __shared__ uint32_t largest[32];
    uint32_t size = bits & MAGNITUDE;
    size = __reduce_max_sync(ALL, size < INFINITE ? size : 0);
    if (threadIdx.x % WARP == 0) {
        largest[threadIdx.x / WARP] = size;
    }
    uint32_t words = (job.octaves * CENI_CALIBRATE_OCTAVE + CENI_CALIBRATE_BEYOND) / 4;
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
        calibrate_window[i] = 0;
    }
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / WARP; i++) {
        size = max(size, largest[i]);
    }
    uint32_t end = min((size ? size >> 23 : 127) + 2, 255u);
    return (end > job.octaves ? end - job.octaves : 1) << 23;
}

// ---- what is seen ----

struct seen {
    uint32_t nan, infinite, zeros, least, most;
};

// Of this block.
__shared__ ceni_calibrate_channel total;

// Counts an element, but not as a zero. False if it is no number of use.
__device__ bool add_seen(uint32_t bits, seen &to) {
    uint32_t size = bits & MAGNITUDE, key = ceni_calibrate_key(bits);
    to.nan += size > INFINITE;
    to.infinite += size == INFINITE;
    if (size < INFINITE) {
        to.least = max(to.least, ~key);
        to.most = max(to.most, key);
    }
    return size < INFINITE;
}

// The extremes of one place in a word, if there are any.
template <uint32_t dtype>
__device__ void add_inside(const inside<dtype> &from, int which, seen &to) {
    uint32_t least = element<dtype>(from.least, which), most = element<dtype>(from.most, which);
    if ((least & MAGNITUDE) < INFINITE) {
        add_seen(least, to);
        add_seen(most, to);
    }
}

__device__ void post(ceni_calibrate_channel *to, const seen &s) {
    if (s.nan | s.infinite) {
        atomicAdd((word *)&to->nan, (word)s.nan);
        atomicAdd((word *)&to->infinite, (word)s.infinite);
    }
    if (s.zeros) {
        atomicAdd((word *)&to->zeros, (word)s.zeros);
    }
    if (s.least) {
        atomicMax(&to->least, s.least);
        atomicMax(&to->most, s.most);
    }
}

// To a channel's record, if there is one, and to the block's.
__device__ void post_both(ceni_calibrate_channel *record, const seen &s) {
    if (record) {
        post(record, s);
    }
    post(&total, s);
}

// Where a segment's counts go: to its part, or to the channel whose only segment it is.
__device__ ceni_calibrate_channel *record_of(const ceni_calibrate_job &job, uint64_t channel,
                                             uint64_t segment) {
    return job.segments == 1
               ? (ceni_calibrate_channel *)job.channels + channel
               : (ceni_calibrate_channel *)job.parts + channel * job.segments + segment;
}

// A part is empty first; of a channel all is added to what it has.
__device__ void open_record(const ceni_calibrate_job &job, ceni_calibrate_channel *record) {
    if (job.segments > 1) {
        *record = {};
    }
}

__device__ void close_record(const ceni_calibrate_job &job, ceni_calibrate_channel *record,
                             double sum, double sum2) {
    if (job.segments > 1) {
        record->sum = sum;
        record->sum2 = sum2;
    } else {
        atomicAdd(&record->sum, sum);
        atomicAdd(&record->sum2, sum2);
    }
}

// Products of two floats are exact.
__device__ void add_moments(uint32_t bits, double &sum, double &sum2) {
    double x = __uint_as_float(bits);
    sum = __dadd_rn(sum, x);
    sum2 = __fma_rn(x, x, sum2);
}

// Goes through a step's words that have elements beyond the window. What is no number becomes 0.
// records: of the places in a word, one or more.
template <uint32_t dtype, int n, int places>
__device__ void sort_out(const window<dtype> &bins, uint32_t (&w)[n],
                         ceni_calibrate_channel *const (&records)[places]) {
    seen found[places] = {};
#pragma unroll 1
    for (int k = 0; k < n; k++) {
        uint32_t v = 0, keep = ALL;
#pragma unroll
        for (int i = 0; i < n; i++) {
            v = i == k ? w[i] : v;
        }
#pragma unroll
        for (int which = 0; which < in_word<dtype>; which++) {
            uint32_t bits = element<dtype>(v, which);
            if (!add_seen(bits, found[which % places])) {
                keep &= in_word<dtype> == 1 ? 0 : which ? 0xFFFFu : 0xFFFF0000u;
            }
            bins.add_beyond(bits);
        }
#pragma unroll
        for (int i = 0; i < n; i++) {
            w[i] &= i == k ? keep : ALL;
        }
    }
#pragma unroll
    for (int which = 0; which < places; which++) {
        post_both(records[which], found[which]);
    }
}

// ---- rows ----

__device__ seen meet(const seen &lane) {
    return {__reduce_add_sync(ALL, lane.nan), __reduce_add_sync(ALL, lane.infinite),
            __reduce_add_sync(ALL, lane.zeros), __reduce_max_sync(ALL, lane.least),
            __reduce_max_sync(ALL, lane.most)};
}

// Of so many neighbours, a power of two, in a tree.
__device__ double meet(double lane, int lanes) {
    for (int step = lanes / 2; step; step /= 2) {
        lane = __dadd_rn(lane, __shfl_down_sync(ALL, lane, step, lanes));
    }
    return lane;
}

template <uint32_t dtype> struct row {
    ceni_calibrate_channel *record[1]; // or none
    inside<dtype> in;
    double sum, sum2;
};

template <uint32_t dtype, bool channels, int n>
__device__ void row_words(const window<dtype> &bins, uint32_t (&w)[n], row<dtype> &to) {
    if (!bins.template add<false>(w, to.in)) {
        sort_out(bins, w, to.record);
    }
    if (channels) {
#pragma unroll
        for (int k = 0; k < n; k++) {
            add_moments(element<dtype>(w[k], 0), to.sum, to.sum2);
            if (in_word<dtype> == 2) {
                add_moments(element<dtype>(w[k], 1), to.sum, to.sum2);
            }
        }
    }
}

// Eight words: of two runs, where a run is of four.
template <uint32_t dtype> __device__ void fetch_words(uint64_t at, uint32_t (&w)[8]) {
    uint4 a = __ldg((const uint4 *)at);
    uint4 b = __ldg((const uint4 *)(at + (dtype == CEN_FP32 ? 16 : WARP * 16)));
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w;
    w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// A lane's runs from `at` on, of the `left` elements from there to the segment's end. Eight words
// are on their way and as many at work.
template <uint32_t dtype, bool channels>
__device__ void row_runs(const window<dtype> &bins, uint64_t at, int64_t left, row<dtype> &to) {
    constexpr int STEP = WARP * RUN, RUNS = in_word<dtype>;
    constexpr int LEAST = (RUNS - 1) * STEP + RUN, BYTES = WARP * 32;
    if (at % 16 == 0 && left >= LEAST) {
        uint32_t next[8];
        fetch_words<dtype>(at, next);
#pragma unroll 1
        for (; left >= LEAST; left -= RUNS * STEP, at += BYTES) {
            uint32_t now[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                now[k] = next[k];
            }
            if (left >= RUNS * STEP + LEAST) {
                fetch_words<dtype>(at + BYTES, next);
            }
            row_words<dtype, channels>(bins, now, to);
        }
    }
#pragma unroll 1
    for (; left >= RUN; left -= STEP, at += BYTES / RUNS) {
        run<dtype> r = fetch<dtype>(at);
        row_words<dtype, channels>(bins, r.w, to);
    }
}

// A segment's last elements, less than a run.
template <uint32_t dtype>
__device__ void row_rest(const window<dtype> &bins, uint64_t at, int n, row<dtype> &to) {
    seen here = {};
#pragma unroll 1
    for (int k = 0; k < n; k++) {
        uint32_t bits = load<dtype>(at + k * (4 / in_word<dtype>));
        here.zeros += !(bits & MAGNITUDE);
        bins.add_one(bits);
        add_moments(add_seen(bits, here) ? bits : 0, to.sum, to.sum2);
    }
    post_both(to.record[0], here);
}

template <uint32_t dtype, bool channels>
__device__ void row_segment(const ceni_calibrate_job &job, uint64_t unit,
                            const window<dtype> &bins) {
    constexpr int STEP = WARP * RUN;
    uint64_t row_at = job.rows == 1 ? 0 : unit / job.segments, lane = threadIdx.x % WARP;
    uint64_t segment = unit - row_at * job.segments, first = segment * job.segment;
    uint64_t length = lesser(job.cols - first, job.segment), rest = length % STEP;
    row<dtype> r = {{channels ? record_of(job, row_at, segment) : nullptr}, nothing<dtype>(), 0, 0};
    if (channels && lane == 0) {
        open_record(job, r.record[0]);
    }
    __syncwarp();
    row_runs<dtype, channels>(bins, place<dtype>(job, row_at, first + lane * RUN),
                              (int64_t)length - (int64_t)lane * RUN, r);
    if (rest % RUN && rest / RUN == lane) {
        uint64_t col = first + length - rest % RUN;
        row_rest(bins, place<dtype>(job, row_at, col), (int)(rest % RUN), r);
    }
    seen here = {};
    here.zeros = r.in.zeros;
    for (int i = 0; i < in_word<dtype>; i++) {
        add_inside(r.in, i, here);
    }
    __syncwarp();
    here = meet(here);
    r.sum = channels ? meet(r.sum, WARP) : 0;
    r.sum2 = channels ? meet(r.sum2, WARP) : 0;
    if (lane == 0) {
        post_both(r.record[0], here);
        if (channels) {
            close_record(job, r.record[0], r.sum, r.sum2);
        }
    }
}

// ---- columns: a lane has those of a word ----

template <uint32_t dtype> struct columns {
    ceni_calibrate_channel *record[in_word<dtype>]; // the second may be none
    double sum[in_word<dtype>], sum2[in_word<dtype>];
    inside<dtype> in;
};

template <uint32_t dtype, int n>
__device__ void column_run(const window<dtype> &bins, uint32_t (&w)[n], columns<dtype> &c) {
    if (!bins.template add<true>(w, c.in)) {
        sort_out(bins, w, c.record);
    }
#pragma unroll
    for (int k = 0; k < n; k++) {
#pragma unroll
        for (int i = 0; i < in_word<dtype>; i++) {
            add_moments(element<dtype>(w[k], i), c.sum[i], c.sum2[i]);
        }
    }
}

// Rows of which a column's zeros fit into half a word.
template <uint32_t dtype>
__device__ void column_rows(const window<dtype> &bins, uint64_t at, uint64_t pitch, int rows,
                            columns<dtype> &c) {
    bool both = c.record[in_word<dtype> - 1], whole = both && (at | pitch) % 4 == 0;
    if (whole && rows >= ROWS) {
        uint32_t next[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++, at += pitch) {
            next[k] = __ldg((const uint32_t *)at);
        }
        for (; rows >= ROWS; rows -= ROWS) { // as many on their way as at work
            uint32_t now[ROWS];
            bool more = rows >= 2 * ROWS;
#pragma unroll
            for (int k = 0; k < ROWS; k++) {
                now[k] = next[k];
                if (more) {
                    next[k] = __ldg((const uint32_t *)at);
                    at += pitch;
                }
            }
            column_run(bins, now, c);
        }
    }
#pragma unroll 1
    for (; rows > 0; rows--, at += pitch) {
        uint32_t now[1] = {dtype == CEN_FP32 ? *(const uint32_t *)at : half_at(at)};
        if (in_word<dtype> == 2 && both) {
            now[0] |= half_at(at + 2) << 16;
        }
        column_run(bins, now, c);
    }
}

template <uint32_t dtype> __device__ uint64_t strips_of(const ceni_calibrate_job &job) {
    constexpr uint64_t WIDE = WARP * in_word<dtype>;
    return (job.cols + WIDE - 1) / WIDE;
}

template <uint32_t dtype>
__device__ void column_segment(const ceni_calibrate_job &job, uint64_t unit,
                               const window<dtype> &bins) {
    constexpr uint64_t MOST = 1 << 15;
    uint64_t strips = strips_of<dtype>(job), segment = unit / strips;
    uint64_t col = (unit % strips * WARP + threadIdx.x % WARP) * in_word<dtype>;
    uint64_t first = segment * job.segment, end = lesser(job.rows, first + job.segment);
    if (col >= job.cols) {
        return;
    }
    columns<dtype> c = {};
#pragma unroll
    for (int i = 0; i < in_word<dtype>; i++) {
        if (col + i < job.cols) {
            c.record[i] = record_of(job, col + i, segment);
            open_record(job, c.record[i]);
        }
    }
    for (uint64_t row = first; row < end; row += MOST) {
        c.in = nothing<dtype>();
        column_rows(bins, place<dtype>(job, row, col), job.stride * (4 / in_word<dtype>),
                    (int)lesser(MOST, end - row), c);
#pragma unroll
        for (int i = 0; i < in_word<dtype>; i++) {
            seen here = {};
            here.zeros = in_word<dtype> == 1 ? c.in.zeros : c.in.zeros >> 16 * i & 0xFFFFu;
            add_inside(c.in, i, here);
            if (c.record[i]) {
                post_both(c.record[i], here);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < in_word<dtype>; i++) {
        if (c.record[i]) {
            close_record(job, c.record[i], c.sum[i], c.sum2[i]);
        }
    }
}

// ---- the whole ----

template <uint32_t dtype, int axis>
__device__ void run_units(const ceni_calibrate_job &job, const window<dtype> &bins, uint64_t unit,
                          uint64_t units) {
    for (; unit < units; unit += gridDim.x * (blockDim.x / WARP)) {
        if constexpr (axis == CENI_CALIBRATE_COLUMNS) {
            column_segment(job, unit, bins);
        } else {
            row_segment<dtype, axis == CENI_CALIBRATE_ROWS>(job, unit, bins);
        }
        __syncwarp();
    }
}

// An element that this thread is going to meet, or 0.
template <uint32_t dtype>
__device__ uint32_t sample(const ceni_calibrate_job &job, uint64_t unit, uint64_t units) {
    if (unit >= units) {
        return 0;
    }
    bool columns = job.axis == CENI_CALIBRATE_COLUMNS;
    uint64_t strips = strips_of<dtype>(job), lane = threadIdx.x % WARP;
    uint64_t row = columns ? unit / strips * job.segment : unit / job.segments;
    uint64_t col = columns ? (unit % strips * WARP + lane) * in_word<dtype>
                           : unit % job.segments * job.segment + lane * RUN;
    return col < job.cols ? load<dtype>(place<dtype>(job, row, col)) : 0;
}

// The block's totals, which all its threads have added to.
__device__ void finish(const ceni_calibrate_job &job) {
    ceni_calibrate_state *state = (ceni_calibrate_state *)job.state;
    if (threadIdx.x == 0) {
        atomicAdd((word *)&state->nan, (word)total.nan);
        atomicAdd((word *)&state->infinite, (word)total.infinite);
        atomicAdd((word *)&state->zeros, (word)total.zeros);
        atomicMax(&state->least, total.least);
        atomicMax(&state->most, total.most);
        if (blockIdx.x == 0) {
            atomicAdd((word *)&state->count, (word)(job.rows * job.cols));
        }
    }
}

template <uint32_t dtype> __device__ void count(const ceni_calibrate_job &job) {
    uint64_t warps = blockDim.x / WARP, unit = blockIdx.x * warps + threadIdx.x / WARP;
    uint64_t units =
        (job.axis == CENI_CALIBRATE_COLUMNS ? strips_of<dtype>(job) : job.rows) * job.segments;
    if (threadIdx.x == 0) {
        total = {};
    }
    const window<dtype> bins(job, open_window(job, sample<dtype>(job, unit, units)));
    if (job.axis == CENI_CALIBRATE_COLUMNS) {
        run_units<dtype, CENI_CALIBRATE_COLUMNS>(job, bins, unit, units);
    } else if (job.axis == CENI_CALIBRATE_ROWS) {
        run_units<dtype, CENI_CALIBRATE_ROWS>(job, bins, unit, units);
    } else {
        run_units<dtype, CENI_CALIBRATE_WHOLE>(job, bins, unit, units);
    }
    bins.close();
    finish(job);
}

__device__ uint64_t meet(uint64_t lane, int lanes) {
    for (int step = lanes / 2; step; step /= 2) {
        lane += __shfl_down_sync(ALL, lane, step, lanes);
    }
    return lane;
}

__device__ uint32_t meet_most(uint32_t lane, int lanes) {
    for (int step = lanes / 2; step; step /= 2) {
        lane = max(lane, __shfl_down_sync(ALL, lane, step, lanes));
    }
    return lane;
}

} // namespace calibrate

extern "C" __global__ void __launch_bounds__(CENI_CALIBRATE_BLOCK)
    cen_calibrate(ceni_calibrate_job job) {
    if (job.dtype == CEN_BF16) {
        calibrate::count<CEN_BF16>(job);
    } else if (job.dtype == CEN_FP16) {
        calibrate::count<CEN_FP16>(job);
    } else {
        calibrate::count<CEN_FP32>(job);
    }
}

// A channel has as many lanes as segments, a power of two of them and a warp's at most.
extern "C" __global__ void __launch_bounds__(256) cen_calibrate_channels(ceni_calibrate_job job) {
    using namespace calibrate;
    int lanes = 1;
    while (lanes < WARP && (unsigned)lanes < job.segments) {
        lanes *= 2;
    }
    uint64_t channels = job.axis == CENI_CALIBRATE_ROWS ? job.rows : job.cols;
    uint64_t each = WARP / lanes, warps = blockDim.x / WARP, lane = threadIdx.x % lanes;
    uint64_t first = (blockIdx.x * warps + threadIdx.x / WARP) * each;
    for (; first < channels; first += gridDim.x * warps * each) {
        uint64_t channel = first + threadIdx.x % WARP / lanes;
        bool there = channel < channels;
        const ceni_calibrate_channel *parts =
            (const ceni_calibrate_channel *)job.parts + channel * job.segments;
        uint64_t nan = 0, infinite = 0, zeros = 0;
        uint32_t least = 0, most = 0;
        double sum = 0, sum2 = 0;
        for (uint64_t i = lane; there && i < job.segments; i += lanes) {
            ceni_calibrate_channel p = parts[i];
            nan += p.nan;
            infinite += p.infinite;
            zeros += p.zeros;
            least = max(least, p.least);
            most = max(most, p.most);
            sum = __dadd_rn(sum, p.sum);
            sum2 = __dadd_rn(sum2, p.sum2);
        }
        nan = meet(nan, lanes);
        infinite = meet(infinite, lanes);
        zeros = meet(zeros, lanes);
        least = meet_most(least, lanes);
        most = meet_most(most, lanes);
        sum = meet(sum, lanes);
        sum2 = meet(sum2, lanes);
        if (there && lane == 0) {
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
