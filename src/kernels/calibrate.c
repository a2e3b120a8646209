/* Calibration on the host, a tile at a time: first what a compiler makes vectors of, then the bins.
 */
#include "kernels/calibrate.h"

#include <string.h>

#include "base/half.h"
#include "cenote/dtype.h"
#include "kernels/args.h"

#define MAGNITUDE 0x7FFFFFFFu
#define INFINITE  0x7F800000u

enum { TILE = 1024, LANES = CENI_CALIBRATE_LANES, RUN = CENI_CALIBRATE_RUN };

static uint64_t least_of(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void load(const ceni_calibrate_job *job, uint64_t row, uint64_t col, size_t n,
                 uint32_t *restrict bits) {
    uint64_t at = row * job->stride + col;
    const uint16_t *half = (const uint16_t *)(uintptr_t)job->matrix + at;
    if (job->dtype == CEN_FP32) {
        memcpy(bits, (const uint32_t *)(uintptr_t)job->matrix + at, n * sizeof *bits);
    } else if (job->dtype == CEN_FP16) {
        for (size_t i = 0; i < n; i++) {
            bits[i] = ceni_float_bits(ceni_float_of_f16(half[i]));
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            bits[i] = (uint32_t)half[i] << 16;
        }
    }
}

/* Everything of a tile but its sums: to the state, and to a part if there is one. */
static void tally(ceni_calibrate_state *state, const uint32_t *bits, size_t n,
                  ceni_calibrate_channel *part) {
    uint32_t nan = 0, infinite = 0, zeros = 0, least = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t size = bits[i] & MAGNITUDE, good = size < INFINITE ? UINT32_MAX : 0;
        uint32_t key = ceni_calibrate_key(bits[i]), low = ~key & good, high = key & good;
        nan += size > INFINITE;
        infinite += size == INFINITE;
        zeros += !size;
        least = low > least ? low : least;
        most = high > most ? high : most;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t size = bits[i] & MAGNITUDE;
        if (size < INFINITE) {
            state->bins[size >> CENI_CALIBRATE_SHIFT]++;
        }
    }
    state->bins[0] -= zeros;
    state->nan += nan;
    state->infinite += infinite;
    state->zeros += zeros;
    state->least = least > state->least ? least : state->least;
    state->most = most > state->most ? most : state->most;
    if (part) {
        part->nan += nan;
        part->infinite += infinite;
        part->zeros += zeros;
        part->least = least > part->least ? least : part->least;
        part->most = most > part->most ? most : part->most;
    }
}

static double finite(uint32_t bits) {
    return (double)ceni_float_of((bits & MAGNITUDE) < INFINITE ? bits : 0);
}

/* The lanes' sums meet as a warp's do: each with the one so many further, nearer each time. */
static double meet(double *lanes) {
    for (size_t step = LANES / 2; step; step /= 2) {
        for (size_t l = 0; l < step; l++) {
            lanes[l] += lanes[l + step];
        }
    }
    return lanes[0];
}

static ceni_calibrate_channel *records(uint64_t addr) {
    return (ceni_calibrate_channel *)(uintptr_t)addr;
}

static ceni_calibrate_state *state_of(const ceni_calibrate_job *job) {
    return (ceni_calibrate_state *)(uintptr_t)job->state;
}

static void row_segment(const ceni_calibrate_job *job, uint64_t row, uint64_t segment) {
    uint32_t bits[TILE];
    double sum[LANES] = {0}, sum2[LANES] = {0};
    uint64_t first = segment * job->segment, end = least_of(job->cols, first + job->segment);
    ceni_calibrate_channel part = {0}, *to = job->axis ? &part : NULL;
    for (uint64_t col = first; col < end; col += TILE) {
        size_t n = (size_t)least_of(TILE, end - col);
        load(job, row, col, n, bits);
        tally(state_of(job), bits, n, to);
        for (size_t i = 0; to && i < n; i++) {
            double x = finite(bits[i]);
            sum[i / RUN % LANES] += x;
            sum2[i / RUN % LANES] += x * x;
        }
    }
    if (to) {
        part.sum = meet(sum);
        part.sum2 = meet(sum2);
        records(job->parts)[row * job->segments + segment] = part;
    }
}

/* Rows of a segment for a tile of columns, whose parts lie `segments` apart. */
static void column_segment(const ceni_calibrate_job *job, uint64_t col, size_t n,
                           uint64_t segment) {
    uint32_t bits[TILE];
    ceni_calibrate_channel *parts = records(job->parts) + col * job->segments + segment;
    uint64_t first = segment * job->segment, end = least_of(job->rows, first + job->segment);
    for (size_t i = 0; i < n; i++) {
        memset(&parts[i * job->segments], 0, sizeof *parts);
    }
    for (uint64_t row = first; row < end; row++) {
        load(job, row, col, n, bits);
        tally(state_of(job), bits, n, NULL);
        for (size_t i = 0; i < n; i++) {
            ceni_calibrate_channel *part = &parts[i * job->segments];
            uint32_t size = bits[i] & MAGNITUDE, key = ceni_calibrate_key(bits[i]);
            double x = finite(bits[i]);
            part->nan += size > INFINITE;
            part->infinite += size == INFINITE;
            part->zeros += !size;
            part->least = size < INFINITE && ~key > part->least ? ~key : part->least;
            part->most = size < INFINITE && key > part->most ? key : part->most;
            part->sum += x;
            part->sum2 += x * x;
        }
    }
}

static void count(const ceni_calibrate_job *job) {
    if (job->axis == CENI_CALIBRATE_COLUMNS) {
        for (uint64_t segment = 0; segment < job->segments; segment++) {
            for (uint64_t col = 0; col < job->cols; col += TILE) {
                column_segment(job, col, (size_t)least_of(TILE, job->cols - col), segment);
            }
        }
    } else {
        for (uint64_t row = 0; row < job->rows; row++) {
            for (uint64_t segment = 0; segment < job->segments; segment++) {
                row_segment(job, row, segment);
            }
        }
    }
    state_of(job)->count += job->rows * job->cols;
}

static void add_parts(const ceni_calibrate_job *job, uint64_t channel) {
    const ceni_calibrate_channel *parts = records(job->parts) + channel * job->segments;
    ceni_calibrate_channel *to = records(job->channels) + channel;
    double sum[LANES] = {0}, sum2[LANES] = {0};
    for (uint64_t i = 0; i < job->segments; i++) {
        const ceni_calibrate_channel *p = &parts[i];
        to->nan += p->nan;
        to->infinite += p->infinite;
        to->zeros += p->zeros;
        to->least = p->least > to->least ? p->least : to->least;
        to->most = p->most > to->most ? p->most : to->most;
        sum[i % LANES] += p->sum;
        sum2[i % LANES] += p->sum2;
    }
    to->sum += meet(sum);
    to->sum2 += meet(sum2);
}

static uint64_t channel_count(const ceni_calibrate_job *job) {
    return job->axis == CENI_CALIBRATE_ROWS      ? job->rows
           : job->axis == CENI_CALIBRATE_COLUMNS ? job->cols
                                                 : 0;
}

void ceni_calibrate_host(const ceni_calibrate_job *job) {
    count(job);
    for (uint64_t i = 0; i < channel_count(job); i++) {
        add_parts(job, i);
    }
}

/* ---- twins ---- */

static ceni_calibrate_job job_of(void *const *args) {
    ceni_calibrate_job job;
    memcpy(&job, args[0], sizeof job);
    return job;
}

void ceni_twin_calibrate(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         void *const *args) {
    ceni_calibrate_job job = job_of(args);
    count(&job);
    for (uint64_t i = 0; job.segments == 1 && i < channel_count(&job); i++) {
        add_parts(&job, i);
    }
}

void ceni_twin_calibrate_channels(const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t shared_bytes, void *const *args) {
    ceni_calibrate_job job = job_of(args);
    for (uint64_t i = 0; i < channel_count(&job); i++) {
        add_parts(&job, i);
    }
}

static ceni_kernel_range parts_range(const ceni_calibrate_job *job, bool write) {
    uint64_t parts = channel_count(job) * job->segments;
    return (ceni_kernel_range){job->parts, parts * sizeof(ceni_calibrate_channel), write};
}

static ceni_kernel_range channels_range(const ceni_calibrate_job *job) {
    return (ceni_kernel_range){job->channels, channel_count(job) * sizeof(ceni_calibrate_channel),
                               true};
}

size_t ceni_ranges_calibrate(void *const *args, ceni_kernel_range *ranges) {
    ceni_calibrate_job job = job_of(args);
    uint64_t elements = job.rows && job.cols ? (job.rows - 1) * job.stride + job.cols : 0;
    uint64_t size = job.dtype == CEN_FP32 ? 4 : 2;
    ranges[0] = (ceni_kernel_range){job.matrix, elements * size, false};
    ranges[1] = (ceni_kernel_range){job.state, sizeof(ceni_calibrate_state), true};
    ranges[2] = parts_range(&job, true);
    ranges[3] = channels_range(&job);
    return job.segments == 1 ? 4 : 3;
}

size_t ceni_ranges_calibrate_channels(void *const *args, ceni_kernel_range *ranges) {
    ceni_calibrate_job job = job_of(args);
    ranges[0] = parts_range(&job, false);
    ranges[1] = channels_range(&job);
    return 2;
}
