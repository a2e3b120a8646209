/* A device measured: what all parts need, and their order. */
#include "probe/gpu.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

bool ceni_gpu_failed(ceni_gpu *gpu, const char *level, const char *figure, cen_status status) {
    if (!status) {
        return false;
    }
    const char *reason = cen_log_last_error();
    ceni_draft_skip(gpu->draft, level, "%s: %s", figure,
                    *reason ? reason : cen_status_text(status));
    gpu->lost = gpu->lost || ceni_is_loss(status) || !ceni_gpu_idle(gpu);
    return true;
}

bool ceni_gpu_idle(ceni_gpu *gpu) {
    return !gpu->lost && !cen_stream_sync(gpu->device, gpu->stream) &&
           !cen_stream_sync(gpu->device, gpu->other);
}

cen_launch ceni_gpu_shape(const ceni_gpu *gpu, uint32_t blocks, uint32_t threads,
                          uint32_t shared_bytes) {
    return (cen_launch){{gpu->multiprocessors * blocks, 1, 1}, {threads, 1, 1}, shared_bytes};
}

cen_status ceni_gpu_launch(ceni_gpu *gpu, const char *kernel, cen_launch shape, void **args,
                           size_t arg_count, size_t words) {
    cen_status status =
        cen_kernel_launch(gpu->device, kernel, &shape, args, arg_count, gpu->stream);
    if (!status && words) {
        status = cen_copy_async(gpu->device, (cen_addr)(uintptr_t)gpu->result, gpu->out,
                                words * sizeof *gpu->result, gpu->stream);
    }
    return status ? status : cen_stream_sync(gpu->device, gpu->stream);
}

/* The milliseconds that a launch takes on the device. */
static cen_status time_launch(ceni_gpu *gpu, const ceni_gpu_work *work, double *ms) {
    float elapsed = 0;
    cen_device *d = gpu->device;
    cen_status status = cen_event_record(d, gpu->events[0], gpu->stream);
    if (!status) {
        status = cen_kernel_launch(d, work->kernel, &work->shape, work->args, work->arg_count,
                                   gpu->stream);
    }
    status = status ? status : cen_event_record(d, gpu->events[1], gpu->stream);
    status = status ? status : cen_stream_sync(d, gpu->stream);
    status = status ? status : cen_event_elapsed(d, gpu->events[0], gpu->events[1], &elapsed);
    if (!status) {
        *ms = elapsed > 1e-4f ? (double)elapsed : 1e-4;
    }
    return status;
}

cen_status ceni_gpu_rate(ceni_gpu *gpu, const ceni_gpu_work *work, ceni_samples *gbps) {
    double ms = 0, enough = gpu->quick ? 0.02 : 1;
    cen_status status = CEN_OK;
    for (*work->rounds = 1;; *work->rounds = *work->rounds * 3) {
        status = time_launch(gpu, work, &ms);
        if (status || ms >= enough || *work->rounds > 1000000000) {
            break;
        }
    }
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        status = time_launch(gpu, work, &ms);
        if (!status) {
            ceni_samples_add(gbps, work->bytes * (double)*work->rounds * 1e-6 / ms);
        }
    }
    return status;
}

/* ---- what is known without measuring ---- */

/* HBM's buses are wider than any other memory's. */
static const char *memory_level(const ceni_dev_limits *limits) {
    return limits->memory_bus_bits >= 1024 ? CEN_LEVEL_HBM : CEN_LEVEL_DRAM;
}

static void put_capacities(ceni_gpu *gpu) {
    static const char *const rows[] = {CEN_LEVEL_REGISTERS, CEN_LEVEL_SHARED, CEN_LEVEL_L1,
                                       CEN_LEVEL_L2,        "L2 far",         NULL,
                                       CEN_LEVEL_LINK,      CEN_LEVEL_PEER};
    const ceni_dev_limits *l = &gpu->limits;
    const uint64_t units[] = {l->register_bytes, l->shared_bytes};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i] ? rows[i] : gpu->memory_level;
        cen_probe_level *row = ceni_draft_level(gpu->draft, name);
        if (!row) {
            return;
        }
        if (i < 2) {
            row->unit_bytes = units[i];
            row->capacity_bytes = units[i] * gpu->multiprocessors;
        } else if (!strcmp(name, CEN_LEVEL_L2)) {
            row->capacity_bytes = l->l2_bytes;
        } else if (!rows[i]) {
            row->capacity_bytes = gpu->props.total_bytes;
            row->peak_gbps = ceni_probe_round(2e-6 * (double)l->memory_clock_khz *
                                              (double)l->memory_bus_bits / 8);
        }
    }
    if (!l->memory_clock_khz || !l->memory_bus_bits) {
        ceni_draft_skip(gpu->draft, gpu->memory_level,
                        "share of the theoretical peak: the device does not tell its clock");
    }
    ceni_draft_skip(gpu->draft, gpu->memory_level,
                    "generation: a driver does not tell it; the name is by the width of the bus");
}

/* ---- what all parts use ---- */

/* As much as is wanted of what is free: at most half. */
static cen_status take_memory(ceni_gpu *gpu) {
    uint64_t free_bytes = 0, g = gpu->props.granularity;
    uint64_t wanted = gpu->quick ? 12 * CENI_MIB : 3072 * CENI_MIB;
    cen_status status = ceni_dev_obtainable(gpu->device, &free_bytes);
    if (status) {
        return status;
    }
    wanted = wanted > free_bytes / 2 ? free_bytes / 2 : wanted;
    wanted = wanted / g * g;
    if (wanted < 4 * CENI_MIB) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "%llu MiB are free; 8 are needed",
                         (unsigned long long)(free_bytes / CENI_MIB));
    }
    status = ceni_dev_segment_alloc(gpu->device, wanted, &gpu->memory);
    if (!status) {
        gpu->memory_bytes = wanted;
    }
    return status;
}

static cen_status begin(ceni_gpu *gpu) {
    cen_device *d = gpu->device;
    const size_t out_bytes = CENI_GPU_OUT_WORDS * sizeof(uint64_t);
    void *result = NULL, *staging = NULL;
    cen_status status = cen_stream_create(d, 0, &gpu->stream);
    status = status ? status : cen_stream_create(d, 0, &gpu->other);
    for (int i = 0; i < 2 && !status; i++) {
        status = cen_event_create(d, CEN_EVENT_TIMING, &gpu->events[i]);
    }
    status = status ? status : take_memory(gpu);
    status = status ? status : ceni_dev_segment_alloc(d, gpu->props.granularity, &gpu->out);
    status = status ? status : cen_fill_async(d, gpu->out, 0, out_bytes, gpu->stream);
    status = status ? status : cen_fill_async(d, gpu->memory, 0, gpu->memory_bytes, gpu->stream);
    status = status ? status : cen_pinned_alloc(d, out_bytes, &result);
    gpu->result = result;
    uint64_t staged = gpu->quick ? 4 * CENI_MIB : 256 * CENI_MIB;
    staged = staged > gpu->memory_bytes / 2 ? gpu->memory_bytes / 2 : staged;
    status = status ? status : cen_pinned_alloc(d, staged, &staging);
    gpu->staging = staging;
    gpu->staging_bytes = staging ? staged : 0;
    return status ? status : cen_stream_sync(d, gpu->stream);
}

/* What is in use still is left for the device's closing, which waits. */
static void end(ceni_gpu *gpu) {
    cen_device *d = gpu->device;
    if (!ceni_gpu_idle(gpu)) {
        return;
    }
    if (gpu->staging) {
        cen_pinned_free(d, gpu->staging);
    }
    if (gpu->result) {
        cen_pinned_free(d, gpu->result);
    }
    if (gpu->out) {
        ceni_dev_segment_free(d, gpu->out);
    }
    if (gpu->memory) {
        ceni_dev_segment_free(d, gpu->memory);
    }
    for (int i = 0; i < 2; i++) {
        if (gpu->events[i]) {
            cen_event_destroy(d, gpu->events[i]);
        }
    }
    if (gpu->stream) {
        cen_stream_destroy(d, gpu->stream);
    }
    if (gpu->other) {
        cen_stream_destroy(d, gpu->other);
    }
}

cen_status ceni_probe_device(cen_device *const *devices, size_t count, size_t self, bool quick,
                             ceni_draft *draft) {
    static void (*const parts[])(ceni_gpu * gpu) = {ceni_gpu_latencies, ceni_gpu_bandwidths,
                                                    ceni_gpu_link,      ceni_gpu_peers,
                                                    ceni_gpu_managed,   ceni_gpu_energy};
    ceni_gpu gpu = {.device = devices[self],
                    .devices = devices,
                    .count = count,
                    .self = self,
                    .quick = quick,
                    .draft = draft,
                    .memory_level = CEN_LEVEL_DRAM};
    cen_status status = cen_device_get_props(gpu.device, &gpu.props);
    status = status ? status : ceni_dev_get_limits(gpu.device, &gpu.limits);
    if (status == CEN_ERR_FORKED) {
        return status;
    }
    if (ceni_gpu_failed(&gpu, "device", "what it is", status)) {
        return draft->status;
    }
    gpu.multiprocessors = gpu.props.multiprocessors ? gpu.props.multiprocessors : 1;
    gpu.memory_level = memory_level(&gpu.limits);
    snprintf(draft->device.name, sizeof draft->device.name, "%s", gpu.props.name);
    draft->device.multiprocessors = gpu.props.multiprocessors;
    put_capacities(&gpu);
    bool begun = !ceni_gpu_failed(&gpu, "device", "all that is measured", begin(&gpu));
    for (size_t i = 0; i < sizeof parts / sizeof *parts && begun && !gpu.lost; i++) {
        parts[i](&gpu);
    }
    if (begun && gpu.lost) {
        ceni_draft_skip(draft, "device",
                        "what follows in this list's order: the device was lost, or does not say "
                        "that it is done with what failed");
    }
    end(&gpu);
    return draft->status;
}
