/* Encoding and decoding on a device: the job goes to kernels of the table. */
#include "codec/codec.h"

#include "base/log.h"

enum { WARP = 32, BLOCK_MAX = 256, STRETCH = 4, GRID_MAX = 1 << 22 };
/* Of the kernels of whole octets: threads of a short row, and most of one whose scale is made. */
enum { BLOCK_SHORT = 128, BLOCK_ROW = 1024, GRID_Y_MAX = 65535 };

static uint64_t over(uint64_t count, uint64_t by) {
    return count / by + (count % by != 0);
}

static uint32_t at_most(uint64_t count, uint32_t most) {
    return count < most ? (uint32_t)count : most;
}

static cen_status check_device(cen_device *device, const cen_codec *codec,
                               const ceni_codec_job *job) {
    if (!device) {
        return ceni_fail(CEN_ERR_INVALID, "device is NULL");
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "lossless bf16 is coded on the host only");
    }
    if (codec->refuse_dense) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "codec.refuse_dense: only the host can refuse");
    }
    return ceni_codec_job_aligned(job);
}

static cen_status launch(cen_device *device, const char *name, uint64_t grid, uint32_t block,
                         uint32_t shared, ceni_codec_job *job, cen_stream stream) {
    cen_launch shape = {{at_most(grid, GRID_MAX), 1, 1}, {block, 1, 1}, shared};
    void *args[] = {job};
    return cen_kernel_launch(device, name, &shape, args, 1, stream);
}

/* Threads of a block that has rows of so many octets. */
static uint32_t threads(uint64_t octets) {
    return octets >= BLOCK_MAX ? BLOCK_MAX : (uint32_t)over(octets, WARP) * WARP;
}

/* Scales of units of several rows, in a pass of their own; of one unit in two steps, the first of
 * which leaves pairs where the values will be. */
static cen_status make_scales(cen_device *device, ceni_codec_job *job, uint64_t bytes,
                              cen_stream stream) {
    uint64_t units = over(job->rows, job->unit_rows) * job->units_across;
    uint64_t tiles = job->rows * over(job->cols, CENI_CODEC_TILE);
    if (units == 1 && tiles > 1 && bytes >= 16) {
        job->extremes = at_most(tiles, CENI_CODEC_EXTREMES_MAX);
        job->extremes = at_most(bytes / 8, job->extremes);
        cen_status status = launch(device, "cen_encode_extremes", job->extremes,
                                   CENI_CODEC_TILE / 8, 0, job, stream);
        return status ? status : launch(device, "cen_encode_scales", 1, BLOCK_MAX, 0, job, stream);
    }
    uint64_t items =
        job->unit_cols == 1 ? over(job->rows, job->unit_rows) * over(job->cols, WARP) : units;
    return launch(device, "cen_encode_scales", items, BLOCK_MAX, 0, job, stream);
}

/* Whether the kernels of whole octets can do it (kernels/codec.h). */
static bool in_octets(const ceni_codec_job *job) {
    uint64_t element = cen_dtype_bits((cen_dtype)job->dtype) / 8;
    uint64_t codes = job->kind <= CENI_CODEC_BF16   ? 16
                     : job->kind == CENI_CODEC_INT4 ? 4
                                                    : 8; /* bytes of eight */
    codes /= job->flags & CENI_CODEC_SPARSE ? 2 : 1;
    bool aligned = job->matrix % 16 == 0 && job->stride * element % 16 == 0 &&
                   job->values % codes == 0 && job->pitch % codes == 0;
    bool one_scale =
        !(job->flags & CENI_CODEC_SCALED) || job->unit_cols >= job->cols || job->unit_cols % 8 == 0;
    return aligned && one_scale && job->cols % 8 == 0 && job->cols / 8 <= INT32_MAX &&
           !(job->flags & CENI_CODEC_ASYMMETRIC);
}

/* A thread has STRETCH octets, save in short rows, which have enough threads. */
static uint32_t octet_threads(uint64_t octets, uint32_t most) {
    uint32_t block = at_most(over(octets, (uint64_t)STRETCH * WARP) * WARP, most);
    uint32_t least = at_most(over(octets, WARP) * WARP, BLOCK_SHORT);
    return block > least ? block : least;
}

static cen_status launch_octets(cen_device *device, const char *name, uint32_t most,
                                ceni_codec_job *job, cen_stream stream) {
    uint64_t octets = job->cols / 8;
    uint32_t block = octet_threads(octets, most);
    cen_launch shape = {{at_most(job->rows, INT32_MAX),
                         at_most(over(octets, (uint64_t)STRETCH * block), GRID_Y_MAX), 1},
                        {block, 1, 1},
                        0};
    void *args[] = {job};
    return cen_kernel_launch(device, name, &shape, args, 1, stream);
}

/* Values and metadata, and the scales of units in one row. */
static cen_status encode(cen_device *device, ceni_codec_job *job, cen_stream stream) {
    uint64_t octets = over(job->cols, 8);
    uint64_t bytes = job->cols * (cen_dtype_bits((cen_dtype)job->dtype) / 8);
    uint32_t block = threads(octets);
    bool whole = (job->flags & CENI_CODEC_OWN_SCALES) && job->unit_cols == job->cols;
    bool fits = !whole || octets <= (uint64_t)STRETCH * BLOCK_ROW;
    if (!job->sums && fits && in_octets(job)) {
        static const char *const names[2][2] = {
            {"cen_encode_octets", "cen_encode_rows"},
            {"cen_encode_sparse_octets", "cen_encode_sparse_rows"}};
        return launch_octets(device, names[(job->flags & CENI_CODEC_SPARSE) != 0][whole],
                             whole ? BLOCK_ROW : BLOCK_MAX, job, stream);
    }
    uint64_t items = whole ? job->rows : job->rows * over(octets, (uint64_t)STRETCH * block);
    uint32_t shared = whole && bytes <= CENI_CODEC_SHARED ? (uint32_t)over(bytes, 16) * 16 : 0;
    return launch(device, job->sums ? "cen_encode_sums" : "cen_encode", items, block, shared, job,
                  stream);
}

cen_status cen_codec_encode_async(cen_device *device, const cen_codec *codec,
                                  const cen_matrix *source, const cen_codec_parts *parts,
                                  cen_addr sums, cen_stream stream) {
    ceni_codec_job job;
    cen_status status = ceni_codec_job_make(codec, source, parts, true, &job);
    status = status ? status : check_device(device, codec, &job);
    if (status) {
        return status;
    }
    if (sums % sizeof(uint64_t)) {
        return ceni_fail(CEN_ERR_INVALID, "sums lies at 0x%llx, which is no multiple of 8",
                         (unsigned long long)sums);
    }
    if (sums && source->rows) {
        status = cen_fill_async(device, sums, 0, source->rows * sizeof(cen_codec_sums), stream);
    }
    if (status || !job.rows) {
        return status;
    }
    /* A block makes the scales of its row, save of the only row: that is for all blocks. */
    bool in_row = codec->granularity == CEN_CODEC_GROUP ||
                  (codec->granularity == CEN_CODEC_ROW && job.rows > 1);
    if (in_row && !codec->scales_given) {
        job.flags |= CENI_CODEC_OWN_SCALES;
    } else if (codec->granularity && !codec->scales_given) {
        status = make_scales(device, &job, parts->bytes.values, stream);
    }
    if (status) {
        return status;
    }
    job.sums = sums;
    return encode(device, &job, stream);
}

cen_status cen_codec_decode_async(cen_device *device, const cen_codec *codec,
                                  const cen_codec_parts *parts, const cen_matrix *to,
                                  cen_stream stream) {
    ceni_codec_job job;
    cen_status status = ceni_codec_job_make(codec, to, parts, false, &job);
    status = status ? status : check_device(device, codec, &job);
    if (status || !job.rows) {
        return status;
    }
    if (in_octets(&job)) {
        const char *name =
            job.flags & CENI_CODEC_SPARSE ? "cen_decode_sparse_octets" : "cen_decode_octets";
        return launch_octets(device, name, BLOCK_MAX, &job, stream);
    }
    uint64_t octets = over(job.cols, 8);
    uint32_t block = threads(octets);
    return launch(device, "cen_decode", job.rows * over(octets, block), block, 0, &job, stream);
}
