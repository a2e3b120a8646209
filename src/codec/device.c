/* Encoding and decoding on a device: the job goes to kernels of the table. */
#include "codec/codec.h"

#include <stdio.h>

#include "base/log.h"
#include "base/over.h"
#include "dev/dev.h"

enum { WARP = 32, BLOCK = 256, GRID_MAX = 1 << 22, COLS_MAX = 1 << 30, KERNEL_NAME = 64 };

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
                         ceni_codec_job *job, cen_stream stream) {
    cen_launch shape = {{at_most(grid, GRID_MAX), 1, 1}, {block, 1, 1}, 0};
    void *args[] = {job};
    return cen_kernel_launch(device, name, &shape, args, 1, stream);
}

/* By teams, each of which takes `batch` octets a thread at once: a warp where that is a row, or as
 * many threads as have one, up to `most`. `whole`: a row is for one team, however long. Returns the
 * threads of a block. */
static uint32_t set_teams(uint64_t batch, uint32_t most, bool whole, ceni_codec_job *job) {
    uint64_t octets = ceni_over(job->cols, 8), warps = ceni_over(ceni_over(octets, batch), WARP);
    job->team = at_most(warps, most / WARP) * WARP;
    job->across = whole ? 1 : ceni_over(octets, batch * job->team);
    job->items = job->rows * job->across;
    return job->team > WARP ? job->team : BLOCK;
}

/* Where neighbours have scales of their own: blocks of CENI_CODEC_EACH_ROWS rows. Returns how many.
 */
static uint64_t set_columns(ceni_codec_job *job) {
    job->team = BLOCK;
    job->items =
        ceni_over(job->rows, CENI_CODEC_EACH_ROWS) * ceni_over(ceni_over(job->cols, 8), BLOCK);
    return job->items;
}

/* Of what is of one scale; NULL: there are no kernels of its own for it. A decoder has no scales to
 * make, so that a row's are as those of all. */
static const char *units_of(const ceni_codec_job *job, bool encode) {
    bool own = job->flags & CENI_CODEC_OWN_SCALES;
    if (!(job->flags & CENI_CODEC_SCALED) || job->unit_cols >= job->cols) {
        return own ? "row" : "one";
    }
    if (job->unit_cols == 1) {
        return job->unit_rows >= job->rows && !job->sums && job->rows < 1u << 31 ? "column" : NULL;
    }
    bool octets = job->unit_cols % 8 == 0 && (job->unit_cols & (job->unit_cols - 1)) == 0;
    return own || (octets && !encode) ? "group" : octets ? "block" : NULL;
}

/* Whether rows are of whole octets, which lie aligned in the matrix and in the values. */
static bool is_aligned(const ceni_codec_job *job, uint64_t bits) {
    uint64_t step = job->stride * (job->dtype == CEN_FP32 ? 4 : 2);
    bool rows = job->rows == 1 || (step % 16 == 0 && job->pitch % bits == 0);
    return job->cols % 8 == 0 && job->cols <= COLS_MAX && job->matrix % 16 == 0 &&
           job->values % bits == 0 && rows;
}

/* "cen_encode", "cen_encode_sums" or "cen_decode", of which a kernel of the job's own form has the
 * form's name behind. false: none has, or the device is not what they are compiled for. */
static bool own_kernel(const cen_device *device, const char *what, bool encode, uint32_t block,
                       const ceni_codec_job *job, char *name, size_t size) {
    static const char *const forms[][2] = {
        [CENI_CODEC_FP16] = {"fp16", NULL},    [CENI_CODEC_BF16] = {"bf16", NULL},
        [CENI_CODEC_E4M3] = {"e4m3", NULL},    [CENI_CODEC_E5M2] = {"e5m2", NULL},
        [CENI_CODEC_INT8] = {"int8", "int8z"}, [CENI_CODEC_INT4] = {"int4", "int4z"}};
    bool half = job->kind <= CENI_CODEC_BF16, saturate = job->flags & CENI_CODEC_SATURATING;
    bool zeros = job->flags & CENI_CODEC_ASYMMETRIC;
    bool apart = (job->flags & CENI_CODEC_SCALED) && job->unit_cols < job->cols;
    uint64_t bits = half ? 16 : job->kind == CENI_CODEC_INT4 ? 4 : 8;
    const char *type = job->dtype == CEN_FP32 ? "fp32" : job->dtype == CEN_FP16 ? "fp16" : "bf16";
    const char *form = forms[job->kind][zeros], *units = units_of(job, encode);
    if (device->compute_capability != 90 || saturate == half) {
        return false;
    }
    if (job->flags & CENI_CODEC_SPARSE) {
        (void)snprintf(name, size, "%s_sparse_%s_%s", what, form, type);
        return !job->sums && !zeros && !(apart && job->unit_cols % 8);
    }
    bool counted = (job->flags & CENI_CODEC_GIVEN_SCALES) && job->sums;
    if (counted || !units || !is_aligned(job, bits) ||
        ceni_over(job->items, block / job->team) > GRID_MAX) {
        return false;
    }
    (void)snprintf(name, size, "%s_%s_%s_%s", what, form, units, type);
    return true;
}

/* Rows that lie without a gap, in the matrix and in the values, are one, where no unit and no byte
 * is of two and nothing is told by rows. */
static void join_rows(const cen_codec *codec, ceni_codec_job *job) {
    bool grouped = codec->granularity == CEN_CODEC_GROUP && job->cols % codec->group == 0;
    bool one = !codec->granularity || codec->granularity == CEN_CODEC_TENSOR;
    uint64_t bits = cen_dtype_bits(cen_codec_format_dtype(codec->format));
    if (job->sums || job->stride != job->cols || (job->flags & CENI_CODEC_SPARSE) ||
        job->cols * bits % 8 || !(one || grouped)) {
        return;
    }
    job->cols = job->stride = job->cols * job->rows;
    job->pitch *= job->rows;
    job->units_across *= job->rows;
    if (one) {
        job->unit_rows = job->units_across = 1;
        job->unit_cols = job->cols;
    }
    job->rows = 1;
}

/* Scales of units of several rows, in a pass of their own; of one unit in two steps, the first of
 * which leaves pairs where the values will be. */
static cen_status make_scales(cen_device *device, ceni_codec_job *job, uint64_t bytes,
                              cen_stream stream) {
    uint64_t units = ceni_over(job->rows, job->unit_rows) * job->units_across;
    uint64_t tiles = job->rows * ceni_over(job->cols, CENI_CODEC_TILE);
    if (units == 1 && tiles > 1 && bytes >= 16) {
        job->extremes = at_most(tiles, CENI_CODEC_EXTREMES_MAX);
        job->extremes = at_most(bytes / 8, job->extremes);
        ceni_codec_job flat = *job; /* rows without gaps are one */
        if (job->stride == job->cols) {
            flat.cols = flat.stride = job->rows * job->cols;
            flat.rows = 1;
        }
        cen_status status = launch(device, "cen_encode_extremes", job->extremes,
                                   CENI_CODEC_TILE / 8, &flat, stream);
        return status ? status : launch(device, "cen_encode_scales", 1, BLOCK, job, stream);
    }
    bool columns = job->unit_cols == 1, zeros = job->flags & CENI_CODEC_ASYMMETRIC;
    if (columns && job->unit_rows >= job->rows && !zeros && is_aligned(job, 1)) {
        job->team = job->cols >= 8192 ? 8 : job->cols >= 4096 ? 4 : 2;
        return launch(device, "cen_encode_column_scales", ceni_over(job->cols, 8 * job->team), 1024,
                      job, stream);
    }
    bool octets = job->unit_cols % 8 == 0 && job->unit_rows * job->unit_cols < 1u << 31;
    if (octets && units > 1 && units <= GRID_MAX && is_aligned(job, 1)) {
        job->team = BLOCK;
        return launch(device, "cen_encode_block_scales", units, BLOCK, job, stream);
    }
    uint64_t items =
        columns ? ceni_over(job->rows, job->unit_rows) * ceni_over(job->cols, WARP) : units;
    return launch(device, "cen_encode_scales", items, BLOCK, job, stream);
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
    /* A team makes the scales of its row, save of the only row: that is for all. */
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
    char own[KERNEL_NAME];
    if ((job.flags & CENI_CODEC_SCALED) && job.unit_cols < job.cols && job.unit_cols % 8) {
        const char *each = sums ? "cen_encode_each_sums" : "cen_encode_each";
        uint64_t items = set_columns(&job);
        bool has_own = own_kernel(device, "cen_encode", true, BLOCK, &job, own, sizeof own);
        return launch(device, has_own ? own : each, items, BLOCK, &job, stream);
    }
    bool whole = in_row && !codec->scales_given && codec->granularity == CEN_CODEC_ROW;
    uint64_t batch = job.dtype == CEN_FP32 ? CENI_CODEC_BATCH_WIDE : CENI_CODEC_BATCH;
    join_rows(codec, &job);
    uint32_t block = set_teams(batch, whole ? CENI_CODEC_TEAM_MAX : BLOCK, whole, &job);
    const char *name = sums ? "cen_encode_sums" : "cen_encode";
    if (own_kernel(device, name, true, block, &job, own, sizeof own)) {
        name = own;
    } else if (job.flags & CENI_CODEC_SPARSE) {
        name = "cen_encode_sparse";
    }
    return launch(device, name, ceni_over(job.items, block / job.team), block, &job, stream);
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
    join_rows(codec, &job);
    char own[KERNEL_NAME];
    uint32_t block = set_teams(CENI_CODEC_BATCH, BLOCK, false, &job);
    bool columns = codec->granularity == CEN_CODEC_COLUMN && job.cols > 1;
    ceni_codec_job by_columns = job;
    uint64_t items = set_columns(&by_columns);
    if (columns && own_kernel(device, "cen_decode", false, BLOCK, &by_columns, own, sizeof own)) {
        return launch(device, own, items, BLOCK, &by_columns, stream);
    }
    bool has_own =
        !columns && own_kernel(device, "cen_decode", false, block, &job, own, sizeof own);
    return launch(device, has_own ? own : "cen_decode", ceni_over(job.items, block / job.team),
                  block, &job, stream);
}
