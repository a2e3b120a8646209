/* The codec's kernels as the host backend runs them. */
#include "kernels/args.h"
#include "kernels/codec_tile.h"

static ceni_codec_job job_of(void *const *args) {
    ceni_codec_job job;
    memcpy(&job, args[0], sizeof job);
    return job;
}

/* Tile `index` of the matrix, row by row. */
static void widen(const ceni_codec_loops *loops, const ceni_codec_job *job, uint64_t index,
                  float pair[2]) {
    uint64_t across = (job->cols + CENI_CODEC_TILE - 1) / CENI_CODEC_TILE;
    uint64_t col = index % across * CENI_CODEC_TILE;
    size_t n = (size_t)ceni_codec_least(job->cols - col, CENI_CODEC_TILE);
    ceni_codec_widen(loops, job, index / across, col, n, &pair[0], &pair[1]);
}

void ceni_twin_codec_extremes(const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void *const *args) {
    ceni_codec_job job = job_of(args);
    const ceni_codec_loops *loops = ceni_codec_loops_here();
    uint64_t tiles = job.rows * ((job.cols + CENI_CODEC_TILE - 1) / CENI_CODEC_TILE);
    for (uint64_t p = 0; p < job.extremes; p++) {
        float pair[2] = {0, 0};
        for (uint64_t i = p; i < tiles; i += job.extremes) {
            widen(loops, &job, i, pair);
        }
        memcpy((void *)(uintptr_t)(job.values + p * sizeof pair), pair, sizeof pair);
    }
}

void ceni_twin_codec_scales(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args) {
    ceni_codec_job job = job_of(args);
    float lo = 0, hi = 0;
    for (uint64_t p = 0; p < job.extremes; p++) {
        float pair[2];
        memcpy(pair, (const void *)(uintptr_t)(job.values + p * sizeof pair), sizeof pair);
        lo = pair[0] < lo ? pair[0] : lo;
        hi = pair[1] > hi ? pair[1] : hi;
    }
    if (job.extremes) {
        ceni_codec_scale_unit(&job, 0, lo, hi);
        return;
    }
    for (uint64_t row = 0; row < job.rows; row += job.unit_rows) {
        ceni_codec_scale_band(ceni_codec_loops_here(), &job, row);
    }
}

void ceni_twin_codec_encode(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args) {
    ceni_codec_job job = job_of(args);
    uint64_t row;
    (void)ceni_codec_encode_host(&job, (ceni_codec_sums *)(uintptr_t)job.sums, NULL, &row);
}

void ceni_twin_codec_decode(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                            void *const *args) {
    ceni_codec_job job = job_of(args);
    uint64_t row;
    (void)ceni_codec_decode_host(&job, false, &row);
}

/* ---- memory ---- */

static uint64_t element(const ceni_codec_job *job) {
    return job->dtype == CEN_FP32 ? 4 : 2;
}

static ceni_kernel_range matrix(const ceni_codec_job *job, bool write) {
    uint64_t elements = job->rows && job->cols ? (job->rows - 1) * job->stride + job->cols : 0;
    return (ceni_kernel_range){job->matrix, elements * element(job), write};
}

static uint64_t units(const ceni_codec_job *job) {
    return ceni_codec_is(job, CENI_CODEC_SCALED)
               ? (job->rows + job->unit_rows - 1) / job->unit_rows * job->units_across
               : 0;
}

static size_t scales(const ceni_codec_job *job, bool write, ceni_kernel_range *ranges) {
    bool zeros = ceni_codec_is(job, CENI_CODEC_ASYMMETRIC);
    ranges[0] = (ceni_kernel_range){job->scales, units(job) * sizeof(float), write};
    ranges[1] = (ceni_kernel_range){job->zeros, zeros ? units(job) : 0, write};
    return 2;
}

size_t ceni_ranges_codec_extremes(void *const *args, ceni_kernel_range *ranges) {
    ceni_codec_job job = job_of(args);
    ranges[0] = matrix(&job, false);
    ranges[1] = (ceni_kernel_range){job.values, (uint64_t)job.extremes * 8, true};
    return 2;
}

size_t ceni_ranges_codec_scales(void *const *args, ceni_kernel_range *ranges) {
    ceni_codec_job job = job_of(args);
    ranges[0] = job.extremes ? (ceni_kernel_range){job.values, (uint64_t)job.extremes * 8, false}
                             : matrix(&job, false);
    return 1 + scales(&job, true, ranges + 1);
}

static size_t all(void *const *args, bool encode, ceni_kernel_range *ranges) {
    ceni_codec_job job = job_of(args);
    size_t count =
        2 + scales(&job, encode && ceni_codec_is(&job, CENI_CODEC_OWN_SCALES), ranges + 2);
    ranges[0] = matrix(&job, !encode);
    ranges[1] = (ceni_kernel_range){job.values, job.rows * job.pitch, encode};
    ranges[count++] = (ceni_kernel_range){job.metadata, job.rows * job.metadata_pitch, encode};
    ranges[count++] =
        (ceni_kernel_range){job.sums, job.sums ? job.rows * sizeof(ceni_codec_sums) : 0, true};
    return count;
}

size_t ceni_ranges_codec_encode(void *const *args, ceni_kernel_range *ranges) {
    return all(args, true, ranges);
}

size_t ceni_ranges_codec_decode(void *const *args, ceni_kernel_range *ranges) {
    return all(args, false, ranges);
}
