/* Calibrations, and batches counted into them. */
#include "codec/calibrate.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/over.h"
#include "compute/check.h"
#include "dev/dev.h"

enum { WARP = 32, CHANNELS_BLOCK = 256, SEGMENT_LEAST = 1024 };
enum { MANY = 1 << 26, SEGMENT_LONG = 4096 /* of so many, where no sum depends on it */ };
enum { OCTAVES_MOST = 14, SHARED_KEPT = 2048 /* for a block itself, and the kernel's own */ };

cen_status cen_calibration_create(cen_channels channels, uint64_t count, cen_calibration **out) {
    if (!out) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_create: calibration is NULL");
    }
    if (channels > CEN_CHANNELS_COLUMNS) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_create: channels is %d, which is none",
                         (int)channels);
    }
    if (channels ? !count || count > (uint64_t)1 << 32 : count) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_create: count is %llu; it is %s",
                         (unsigned long long)count, channels ? "1 to 2^32" : "0 without channels");
    }
    cen_calibration *c = ceni_calloc(1, sizeof *c);
    if (c && count) {
        c->channels = ceni_calloc(count, sizeof *c->channels);
    }
    if (!c || (count && !c->channels)) {
        ceni_free(c);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_calibration_create: no memory for %llu channels",
                         (unsigned long long)count);
    }
    c->axis = channels;
    c->channel_count = count;
    *out = c;
    return CEN_OK;
}

void cen_calibration_free(cen_calibration *calibration) {
    if (calibration) {
        ceni_free(calibration->channels);
        ceni_free(calibration->parts);
        ceni_free(calibration);
    }
}

/* ---- batches ---- */

static uint64_t parts_most(const cen_calibration *c) {
    return c->channel_count > CENI_CALIBRATE_PARTS ? c->channel_count
           : c->channel_count                      ? (uint64_t)CENI_CALIBRATE_PARTS
                                                   : 0;
}

/* Short enough that there are many, and no more parts than there is room for. A warp's lanes go
 * through a segment together, so it is of whole steps. */
static void cut(ceni_calibrate_job *job, uint64_t length, uint64_t channels) {
    const uint64_t step = (uint64_t)CENI_CALIBRATE_LANES * CENI_CALIBRATE_RUN;
    uint64_t most = channels ? CENI_CALIBRATE_PARTS / channels : UINT64_MAX;
    uint64_t least = !channels && length >= MANY ? SEGMENT_LONG : SEGMENT_LEAST;
    uint64_t wanted = ceni_over(length, least);
    wanted = wanted < most ? wanted : most;
    job->segment = ceni_over(ceni_over(length, wanted ? wanted : 1), step) * step;
    job->segments = ceni_over(length, job->segment);
}

/* `call`: what failures begin with. */
static cen_status check_batch(const char *call, const cen_calibration *c, const cen_matrix *batch) {
    uint64_t count;
    cen_status status = ceni_check_matrix(call, "batch", batch);
    if (status) {
        return status;
    }
    if (batch->dtype != CEN_FP32 && batch->dtype != CEN_FP16 && batch->dtype != CEN_BF16) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: batch is of %s; calibration takes fp32, fp16 and bf16", call,
                         cen_dtype_name(batch->dtype));
    }
    uint64_t channels = c->axis == CEN_CHANNELS_ROWS ? batch->rows : batch->cols;
    if (c->axis && channels != c->channel_count) {
        return ceni_fail(CEN_ERR_INVALID, "%s: batch has %llu channels, the calibration %llu", call,
                         (unsigned long long)channels, (unsigned long long)c->channel_count);
    }
    if (__builtin_mul_overflow(batch->rows, batch->cols, &count) ||
        __builtin_add_overflow(count, c->state.count, &count)) {
        return ceni_fail(CEN_ERR_LIMIT, "%s: more elements in all than 64 bits count", call);
    }
    return CEN_OK;
}

/* Of a checked batch that is not empty. */
static ceni_calibrate_job job_of(const cen_calibration *c, const cen_matrix *batch, cen_addr state,
                                 cen_addr channels, cen_addr parts) {
    ceni_calibrate_job job = {.matrix = batch->data,
                              .rows = batch->rows,
                              .cols = batch->cols,
                              .stride = batch->stride,
                              .state = state,
                              .channels = channels,
                              .parts = parts,
                              .dtype = batch->dtype,
                              .axis = c->axis};
    if (!c->axis && (batch->rows == 1 || batch->stride == batch->cols)) {
        job.cols = batch->rows * batch->cols; /* one row, however short they are */
        job.rows = 1;
        job.stride = job.cols;
    }
    cut(&job, c->axis == CEN_CHANNELS_COLUMNS ? job.rows : job.cols, c->channel_count);
    return job;
}

cen_status cen_calibration_add(cen_calibration *c, const cen_matrix *batch) {
    if (!c) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_add: calibration is NULL");
    }
    cen_status status = check_batch("cen_calibration_add", c, batch);
    if (status || !batch->rows || !batch->cols) {
        return status;
    }
    if (c->axis && !c->parts) {
        c->parts = ceni_malloc(parts_most(c) * sizeof *c->parts);
        if (!c->parts) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_calibration_add: no memory for the parts");
        }
    }
    ceni_calibrate_job job =
        job_of(c, batch, (uintptr_t)&c->state, (uintptr_t)c->channels, (uintptr_t)c->parts);
    ceni_calibrate_host(&job);
    return CEN_OK;
}

/* ---- on a device: the state, the channels, the parts of a batch ---- */

static uint64_t kept_bytes(const cen_calibration *c) {
    return sizeof(ceni_calibrate_state) + c->channel_count * sizeof(ceni_calibrate_channel);
}

cen_status cen_calibration_bytes(const cen_calibration *c, uint64_t *bytes) {
    if (!c || !bytes) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_bytes: %s is NULL",
                         c ? "bytes" : "calibration");
    }
    *bytes = kept_bytes(c) + parts_most(c) * sizeof(ceni_calibrate_channel);
    return CEN_OK;
}

static cen_status check_state(const char *call, cen_device *device, const cen_calibration *c,
                              cen_addr state) {
    if (!device || !c) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", call,
                         device ? "calibration" : "device");
    }
    if (!state || state % 8) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: state is 0x%llx; an address over 0 and a multiple of 8 is expected",
                         call, (unsigned long long)state);
    }
    return CEN_OK;
}

cen_status cen_calibration_clear_async(cen_device *device, const cen_calibration *c, cen_addr state,
                                       cen_stream stream) {
    cen_status status = check_state("cen_calibration_clear_async", device, c, state);
    return status ? status : cen_fill_async(device, state, 0, kept_bytes(c), stream);
}

/* Blocks of `block` threads, as many as there is work for, and no more than are there at once. */
static cen_status launch(cen_device *device, const char *kernel, ceni_calibrate_job *job,
                         uint32_t block, uint64_t warps, cen_stream stream) {
    cen_device_props props;
    cen_status status = cen_device_get_props(device, &props);
    if (status) {
        return status;
    }
    uint64_t most = (uint64_t)props.multiprocessors * (CENI_CALIBRATE_BLOCK / block);
    uint64_t blocks = ceni_over(warps, block / WARP);
    blocks = blocks > most && most ? most : blocks;
    uint32_t shared =
        job->octaves ? job->octaves * CENI_CALIBRATE_OCTAVE + CENI_CALIBRATE_BEYOND : 0;
    const cen_launch shape = {{(uint32_t)blocks, 1, 1}, {block, 1, 1}, shared};
    void *args[] = {job};
    return cen_kernel_launch(device, kernel, &shape, args, 1, stream);
}

/* The window is as wide as a block's shared memory allows. */
static cen_status count_batch(cen_device *device, ceni_calibrate_job *job, uint64_t warps,
                              cen_stream stream) {
    ceni_dev_limits limits;
    cen_status status = ceni_dev_get_limits(device, &limits);
    if (status) {
        return status;
    }
    uint64_t room = limits.shared_bytes > SHARED_KEPT ? limits.shared_bytes - SHARED_KEPT : 0;
    uint64_t octaves = room / CENI_CALIBRATE_OCTAVE;
    job->octaves = octaves > OCTAVES_MOST ? OCTAVES_MOST : octaves ? (uint32_t)octaves : 1;
    status = launch(device, "cen_calibrate", job, CENI_CALIBRATE_BLOCK, warps, stream);
    job->octaves = 0;
    return status;
}

cen_status cen_calibration_add_async(cen_device *device, const cen_calibration *c, cen_addr state,
                                     const cen_matrix *batch, cen_stream stream) {
    static const char call[] = "cen_calibration_add_async";
    cen_status status = check_state(call, device, c, state);
    status = status ? status : check_batch(call, c, batch);
    if (status || !batch->rows || !batch->cols) {
        return status;
    }
    cen_addr channels = state + sizeof(ceni_calibrate_state);
    ceni_calibrate_job job = job_of(c, batch, state, channels, state + kept_bytes(c));
    bool columns = c->axis == CEN_CHANNELS_COLUMNS;
    uint64_t wide = batch->dtype == CEN_FP32 ? WARP : 2 * WARP;
    uint64_t warps = (columns ? ceni_over(job.cols, wide) : job.rows) * job.segments;
    status = count_batch(device, &job, warps, stream);
    if (!status && c->axis && job.segments > 1) {
        status = launch(device, "cen_calibrate_channels", &job, CHANNELS_BLOCK, c->channel_count,
                        stream);
    }
    return status;
}

/* ---- sums of two ---- */

static void add_channels(ceni_calibrate_channel *to, const ceni_calibrate_channel *from,
                         uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        to[i].nan += from[i].nan;
        to[i].infinite += from[i].infinite;
        to[i].zeros += from[i].zeros;
        to[i].sum += from[i].sum;
        to[i].sum2 += from[i].sum2;
        to[i].least = from[i].least > to[i].least ? from[i].least : to[i].least;
        to[i].most = from[i].most > to[i].most ? from[i].most : to[i].most;
    }
}

/* Every other count is at most that of all elements. */
static cen_status add_state(const char *call, cen_calibration *c, const ceni_calibrate_state *from,
                            const ceni_calibrate_channel *channels) {
    ceni_calibrate_state *to = &c->state;
    uint64_t count;
    if (__builtin_add_overflow(to->count, from->count, &count)) {
        return ceni_fail(CEN_ERR_LIMIT, "%s: more elements in all than 64 bits count", call);
    }
    to->count = count;
    to->nan += from->nan;
    to->infinite += from->infinite;
    to->zeros += from->zeros;
    to->least = from->least > to->least ? from->least : to->least;
    to->most = from->most > to->most ? from->most : to->most;
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        to->bins[i] += from->bins[i];
    }
    add_channels(c->channels, channels, c->channel_count);
    return CEN_OK;
}

cen_status cen_calibration_merge(cen_calibration *to, const cen_calibration *from) {
    if (!to || !from) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_merge: %s is NULL", to ? "from" : "to");
    }
    if (to == from) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_merge: to and from are one");
    }
    if (to->axis != from->axis || to->channel_count != from->channel_count) {
        static const char *const words[] = {"channels", "rows", "columns"};
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_merge: to has %llu %s, from %llu %s",
                         (unsigned long long)to->channel_count, words[to->axis],
                         (unsigned long long)from->channel_count, words[from->axis]);
    }
    return add_state("cen_calibration_merge", to, &from->state, from->channels);
}

cen_status cen_calibration_collect(cen_device *device, cen_calibration *c, cen_addr state,
                                   cen_stream stream) {
    cen_status status = check_state("cen_calibration_collect", device, c, state);
    if (status) {
        return status;
    }
    uint8_t *kept = ceni_malloc(kept_bytes(c));
    if (!kept) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_calibration_collect: no memory for %llu bytes",
                         (unsigned long long)kept_bytes(c));
    }
    status = cen_copy_async(device, (uintptr_t)kept, state, kept_bytes(c), stream);
    status = status ? status : cen_stream_sync(device, stream);
    if (!status) {
        status = add_state(
            "cen_calibration_collect", c, (const ceni_calibrate_state *)(void *)kept,
            (const ceni_calibrate_channel *)(void *)(kept + sizeof(ceni_calibrate_state)));
    }
    ceni_free(kept);
    return status;
}

/* ---- what was seen ---- */

static cen_calibration_stats stats_of(uint64_t count, uint64_t nan, uint64_t infinite,
                                      uint64_t zeros, uint32_t least, uint32_t most) {
    cen_calibration_stats s = {.count = count, .nan = nan, .infinite = infinite, .zeros = zeros};
    s.min = ceni_calibration_least(least);
    s.max = ceni_calibration_most(most);
    s.amax = fabsf(s.min) > fabsf(s.max) ? fabsf(s.min) : fabsf(s.max);
    return s;
}

cen_calibration_stats ceni_calibration_stats_of(const ceni_calibrate_state *s) {
    return stats_of(s->count, s->nan, s->infinite, s->zeros, s->least, s->most);
}

cen_status cen_calibration_get_channels(const cen_calibration *c, cen_channels *channels,
                                        uint64_t *count) {
    if (!c || !channels || !count) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_get_channels: %s is NULL",
                         !c         ? "calibration"
                         : channels ? "count"
                                    : "channels");
    }
    *channels = c->axis;
    *count = c->channel_count;
    return CEN_OK;
}

cen_status cen_calibration_get_stats(const cen_calibration *c, cen_calibration_stats *stats) {
    if (!c || !stats) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_get_stats: %s is NULL",
                         c ? "stats" : "calibration");
    }
    *stats = ceni_calibration_stats_of(&c->state);
    return CEN_OK;
}

cen_status cen_calibration_get_channel(const cen_calibration *c, uint64_t index,
                                       cen_calibration_channel *channel) {
    if (!c || !channel) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_get_channel: %s is NULL",
                         c ? "channel" : "calibration");
    }
    if (index >= c->channel_count) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_get_channel: index is %llu of %llu",
                         (unsigned long long)index, (unsigned long long)c->channel_count);
    }
    const ceni_calibrate_channel *from = &c->channels[index];
    channel->stats = stats_of(c->state.count / c->channel_count, from->nan, from->infinite,
                              from->zeros, from->least, from->most);
    channel->sum = from->sum;
    channel->sum2 = from->sum2;
    return CEN_OK;
}

const uint64_t *cen_calibration_bins(const cen_calibration *c, size_t *count) {
    if (count) {
        *count = c ? CENI_CALIBRATE_BINS : 0;
    }
    return c ? c->state.bins : NULL;
}

float cen_calibration_edge(size_t bin) {
    return bin < CENI_CALIBRATE_BINS ? ceni_float_of((uint32_t)bin << CENI_CALIBRATE_SHIFT)
                                     : INFINITY;
}
