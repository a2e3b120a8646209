/* Unified memory: how fast it goes where it is used, when that is found out by a fault, and when it
 * was asked for ahead. */
#include "probe/gpu.h"

#include "base/clock.h"
#include "base/log.h"
#include "kernels/hierarchy.h"

#include <string.h>

static const char level[] = CEN_LEVEL_UNIFIED;

typedef struct managed {
    cen_addr addr;
    uint64_t bytes;
} managed;

enum way { TO_DEVICE_BY_FAULT, TO_HOST_BY_FAULT, TO_DEVICE_AHEAD, TO_HOST_AHEAD, WAYS };
static const char *const names[WAYS] = {"to device by fault", "to host by fault",
                                        "to device by prefetch", "to host by prefetch"};

/* A byte of each page of the host's, so that all of it is there. */
static void touch(const managed *m) {
    volatile char *at = (char *)(uintptr_t)m->addr;
    for (uint64_t i = 0; i < m->bytes; i += 4 * CENI_KIB) {
        at[i] = (char)(at[i] + 1);
    }
}

/* Milliseconds of a kernel that reads all, or of a move ahead. */
static cen_status time_way(ceni_gpu *gpu, const managed *m, enum way way, double *ms) {
    cen_device *d = gpu->device;
    uint64_t bytes = m->bytes, rounds = 1;
    void *args[] = {(void *)&m->addr, &bytes, &rounds, &gpu->out};
    cen_launch shape = ceni_gpu_shape(gpu, 2, 512, 0);
    float elapsed = 0;
    cen_status status = cen_event_record(d, gpu->events[0], gpu->stream);
    if (!status && way == TO_DEVICE_BY_FAULT) {
        status = cen_kernel_launch(d, "cen_read", &shape, args, 4, gpu->stream);
    } else if (!status) {
        status = ceni_dev_managed_prefetch(d, m->addr, m->bytes, way == TO_HOST_AHEAD, gpu->stream);
    }
    status = status ? status : cen_event_record(d, gpu->events[1], gpu->stream);
    status = status ? status : cen_stream_sync(d, gpu->stream);
    status = status ? status : cen_event_elapsed(d, gpu->events[0], gpu->events[1], &elapsed);
    *ms = elapsed > 1e-4f ? (double)elapsed : 1e-4;
    return status;
}

/* There and back: each way begins where the one before it left all. */
static cen_status travel(ceni_gpu *gpu, const managed *m, ceni_samples *gbps) {
    cen_status status = CEN_OK;
    for (int way = 0; way < WAYS && !status; way++) {
        double ms = 0;
        if (way == TO_HOST_BY_FAULT) {
            uint64_t start = ceni_now_ns();
            touch(m);
            ms = (double)(ceni_now_ns() - start + 1) * 1e-6;
        } else {
            status = time_way(gpu, m, (enum way)way, &ms);
        }
        if (!status) {
            ceni_samples_add(&gbps[way], (double)m->bytes * 1e-6 / ms);
        }
    }
    return status;
}

/* A chain with a line in each so many bytes, each of which is a fault of its own. */
static cen_status measure_latency(ceni_gpu *gpu, const managed *m) {
    uint64_t apart = gpu->quick ? 64 * CENI_KIB : 2 * CENI_MIB, bytes = m->bytes;
    uint64_t lines = bytes / apart / CENI_CHASE_BATCH * CENI_CHASE_BATCH;
    void *args[] = {(void *)&m->addr, &bytes, (void *)&m->addr, &lines, &gpu->out};
    const cen_launch alone = {{1, 1, 1}, {32, 1, 1}, 0};
    ceni_samples ns = {{0}, 0}, cycles = {{0}, 0};
    cen_status status = CEN_OK;
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        touch(m);
        ceni_chain_make((void *)(uintptr_t)m->addr, m->addr, lines, apart, bytes);
        status = ceni_gpu_launch(gpu, "cen_chase_l2", alone, args, 5, 3);
        if (!status) {
            ceni_samples_add(&cycles, (double)gpu->result[1] / (double)lines);
            ceni_samples_add(&ns, (double)gpu->result[2] / (double)lines);
        }
    }
    if (!status) {
        ceni_draft_latency(gpu->draft, level, &ns, ceni_samples_figure(&cycles).median);
    }
    return status;
}

static cen_status take(ceni_gpu *gpu, managed *m) {
    uint64_t free_bytes = 0, wanted = gpu->quick ? 2 * CENI_MIB : 256 * CENI_MIB;
    cen_status status = ceni_dev_obtainable(gpu->device, &free_bytes);
    m->bytes =
        (wanted > free_bytes / 4 ? free_bytes / 4 : wanted) / (2 * CENI_MIB) * (2 * CENI_MIB);
    if (!status && !m->bytes) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "too little memory is free");
    }
    return status ? status : ceni_dev_managed_alloc(gpu->device, m->bytes, &m->addr);
}

void ceni_gpu_managed(ceni_gpu *gpu) {
    managed m = {0};
    ceni_samples gbps[WAYS] = {{{0}, 0}};
    if (ceni_gpu_failed(gpu, level, "all of it", take(gpu, &m))) {
        return;
    }
    memset((void *)(uintptr_t)m.addr, 0, m.bytes);
    cen_status status = CEN_OK;
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        status = travel(gpu, &m, gbps);
    }
    for (int way = 0; way < WAYS && !status; way++) {
        ceni_draft_transfer(gpu->draft, level, names[way], 0, m.bytes, &gbps[way], true);
    }
    if (!ceni_gpu_failed(gpu, level, "bandwidth", status)) {
        ceni_gpu_failed(gpu, level, "latency by fault", measure_latency(gpu, &m));
    }
    if (ceni_gpu_idle(gpu)) {
        ceni_gpu_failed(gpu, level, "freeing it", ceni_dev_segment_free(gpu->device, m.addr));
    }
}
