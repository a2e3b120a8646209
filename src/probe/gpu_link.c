/* Copies between a device and the host, and between devices. */
#include "probe/gpu.h"

#include "base/clock.h"
#include "base/log.h"
#include "kernels/hierarchy.h"
#include "ledger/nvml.h"
#include "probe/host.h"

#include <stdio.h>
#include <string.h>

enum direction { TO_DEVICE, TO_HOST, BOTH, DIRECTIONS };
static const char *const names[DIRECTIONS] = {"H2D", "D2H", "both"};

/* Copies of `chunk`, so many that they take a while, through all of the buffers. */
typedef struct copies {
    cen_addr host;
    uint64_t host_bytes;
    enum direction direction;
    uint64_t chunk, total; /* each way */
} copies;

/* The halves keep what goes one way from what goes the other. */
static cen_status enqueue(ceni_gpu *gpu, const copies *c, enum direction way) {
    bool upper = c->direction == BOTH && way == TO_HOST;
    uint64_t span = c->host_bytes < gpu->memory_bytes ? c->host_bytes : gpu->memory_bytes;
    uint64_t room = c->direction == BOTH ? span / 2 : span, base = upper ? span / 2 : 0, at = 0;
    cen_stream stream = upper ? gpu->other : gpu->stream;
    cen_status status = CEN_OK;
    for (uint64_t done = 0; done < c->total && !status; done += c->chunk) {
        at = at + c->chunk > room ? 0 : at;
        cen_addr host = c->host + base + at, device = gpu->memory + base + at;
        status = cen_copy_async(gpu->device, way == TO_DEVICE ? device : host,
                                way == TO_DEVICE ? host : device, c->chunk, stream);
        at += c->chunk;
    }
    return status;
}

static cen_status copy_once(ceni_gpu *gpu, const copies *c, double *gbps) {
    uint64_t start = ceni_now_ns();
    cen_status status = CEN_OK;
    if (c->direction != TO_HOST) {
        status = enqueue(gpu, c, TO_DEVICE);
    }
    if (!status && c->direction != TO_DEVICE) {
        status = enqueue(gpu, c, TO_HOST);
    }
    status = status ? status : cen_stream_sync(gpu->device, gpu->stream);
    status = status ? status : cen_stream_sync(gpu->device, gpu->other);
    if (!status) {
        double bytes = (double)c->total * (c->direction == BOTH ? 2 : 1);
        *gbps = bytes / (double)(ceni_now_ns() - start);
    }
    return status;
}

/* Each chunk size, each direction; `both` too if asked. False: it failed, which was noted. */
static bool measure_kind(ceni_gpu *gpu, const char *kind, cen_addr host, uint64_t host_bytes,
                         bool both) {
    char access[32];
    copies c = {.host = host, .host_bytes = host_bytes};
    for (int way = TO_DEVICE; way < (both ? DIRECTIONS : BOTH); way++) {
        c.direction = (enum direction)way;
        snprintf(access, sizeof access, "%s %s", names[way], kind);
        uint64_t most = gpu->quick ? 256 * CENI_KIB : 64 * CENI_MIB;
        most = most > host_bytes / 2 ? host_bytes / 2 : most;
        for (c.chunk = 4 * CENI_KIB; c.chunk <= most; c.chunk *= 4) {
            ceni_samples samples = {{0}, 0};
            uint64_t least = gpu->quick ? 64 * CENI_KIB : 4 * CENI_MIB;
            c.total = c.chunk * 2 < least ? least : c.chunk * 2;
            double gbps = 0;
            cen_status status = copy_once(gpu, &c, &gbps); /* the first is slower */
            for (int i = 0; i < CENI_SAMPLES && !status; i++) {
                status = copy_once(gpu, &c, &gbps);
                ceni_samples_add(&samples, gbps);
            }
            if (ceni_gpu_failed(gpu, CEN_LEVEL_LINK, access, status)) {
                return false;
            }
            ceni_draft_transfer(gpu->draft, CEN_LEVEL_LINK, access, 0, c.chunk, &samples,
                                way != BOTH);
        }
    }
    return true;
}

/* What the link promises one way: lanes of their generation's rate, less the coding. */
static void put_peak(ceni_gpu *gpu) {
    static const double lane_gbps[] = {0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
    ceni_nvml_device nvml = NULL;
    ceni_nvml_why why;
    unsigned generation = 0, lanes = 0;
    cen_status status = ceni_nvml_find(gpu->props.uuid, &nvml, &why);
    status = status ? status : ceni_nvml_pcie(nvml, &generation, &lanes, &why);
    bool known = !status && generation >= 1 && generation <= sizeof lane_gbps / sizeof *lane_gbps;
    cen_probe_level *link = known ? ceni_draft_level(gpu->draft, CEN_LEVEL_LINK) : NULL;
    if (link) {
        link->peak_gbps = ceni_probe_round(lane_gbps[generation - 1] * lanes);
    } else {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_LINK, "share of the theoretical peak: %s",
                        status ? why.text : "the link's generation is not known");
    }
}

static void measure_registered(ceni_gpu *gpu, char *host, uint64_t bytes) {
    cen_status status = cen_pinned_register(gpu->device, host, bytes);
    if (!ceni_gpu_failed(gpu, CEN_LEVEL_LINK, "registered", status)) {
        measure_kind(gpu, "registered", (cen_addr)(uintptr_t)host, bytes, false);
        status = ceni_gpu_idle(gpu) ? cen_pinned_unregister(gpu->device, host) : CEN_OK;
        ceni_gpu_failed(gpu, CEN_LEVEL_LINK, "registered", status);
    }
}

void ceni_gpu_link(ceni_gpu *gpu) {
    uint64_t bytes = gpu->staging_bytes > 128 * CENI_MIB ? 128 * CENI_MIB : gpu->staging_bytes;
    cen_addr pinned = (cen_addr)(uintptr_t)gpu->staging;
    put_peak(gpu);
    if (!measure_kind(gpu, "pinned", pinned, gpu->staging_bytes, true)) {
        return;
    }
    ceni_host_memory plain = {0};
    int error = ceni_host_memory_take(&plain, bytes, -1);
    if (error) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_LINK, "registered and pageable: no host memory: %s",
                        strerror(error));
        return;
    }
    memset(plain.data, 0, bytes);
    cen_addr host = (cen_addr)(uintptr_t)plain.data;
    if (measure_kind(gpu, "pageable", host, bytes, false)) {
        measure_registered(gpu, plain.data, bytes);
    }
    if (ceni_gpu_idle(gpu)) { /* else it stays: it may be copied to at any time */
        ceni_host_memory_drop(&plain);
    }
}

/* ---- peers ---- */

typedef struct pair {
    cen_device *peer;
    cen_addr memory; /* of the peer, half of it for each direction */
    uint64_t half;
    cen_stream stream; /* of the peer */
} pair;

static cen_status exchange(ceni_gpu *gpu, const pair *p, bool both, double *gbps) {
    enum { COPIES = 4 };
    uint64_t start = ceni_now_ns();
    cen_status status = CEN_OK;
    for (int i = 0; i < COPIES && !status; i++) {
        status =
            cen_copy_peer_async(p->peer, p->memory, gpu->device, gpu->memory, p->half, p->stream);
        if (!status && both) {
            status = cen_copy_peer_async(gpu->device, gpu->memory + p->half, p->peer,
                                         p->memory + p->half, p->half, gpu->stream);
        }
    }
    status = status ? status : cen_stream_sync(p->peer, p->stream);
    status = status ? status : cen_stream_sync(gpu->device, gpu->stream);
    if (!status) {
        *gbps = (double)p->half * COPIES * (both ? 2 : 1) / (double)(ceni_now_ns() - start);
    }
    return status;
}

static cen_status measure_exchange(ceni_gpu *gpu, const pair *p, size_t number, bool both) {
    ceni_samples samples = {{0}, 0};
    char access[32];
    double gbps = 0;
    snprintf(access, sizeof access, "to %zu%s", number, both ? ", both ways" : "");
    cen_status status = exchange(gpu, p, both, &gbps);
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        status = exchange(gpu, p, both, &gbps);
        ceni_samples_add(&samples, gbps);
    }
    if (!status) {
        ceni_draft_transfer(gpu->draft, CEN_LEVEL_PEER, access, 0, p->half, &samples, !both);
    }
    return status;
}

/* A kernel here follows a chain that lies there; the nearest peer's counts. */
static cen_status measure_latency(ceni_gpu *gpu, const pair *p) {
    uint64_t bytes = CENI_MIB, lines = bytes / CENI_GPU_LINE,
             steps = gpu->quick ? 1 << 11 : 1 << 14;
    void *args[] = {(void *)&p->memory, &bytes, (void *)&p->memory, &steps, &gpu->out};
    const cen_launch alone = {{1, 1, 1}, {32, 1, 1}, 0};
    ceni_samples ns = {{0}, 0}, cycles = {{0}, 0};
    ceni_chain_make(gpu->staging, p->memory, lines, CENI_GPU_LINE, bytes);
    cen_status status =
        cen_copy_async(p->peer, p->memory, (cen_addr)(uintptr_t)gpu->staging, bytes, p->stream);
    status = status ? status : cen_stream_sync(p->peer, p->stream);
    for (int i = 0; i < CENI_SAMPLES && !status; i++) {
        status = ceni_gpu_launch(gpu, "cen_chase_l2", alone, args, 5, 3);
        if (!status) {
            ceni_samples_add(&cycles, (double)gpu->result[1] / (double)steps);
            ceni_samples_add(&ns, (double)gpu->result[2] / (double)steps);
        }
    }
    const cen_probe_level *peer = status ? NULL : ceni_draft_level(gpu->draft, CEN_LEVEL_PEER);
    double found = ceni_samples_figure(&ns).median;
    if (peer && (peer->latency_ns <= 0 || found < peer->latency_ns)) {
        ceni_draft_latency(gpu->draft, CEN_LEVEL_PEER, &ns, ceni_samples_figure(&cycles).median);
    }
    return status;
}

static cen_status measure_pair(ceni_gpu *gpu, size_t number, pair *p) {
    uint64_t free_bytes = 0, wanted = gpu->quick ? 4 * CENI_MIB : 512 * CENI_MIB;
    cen_status status = ceni_dev_obtainable(p->peer, &free_bytes);
    wanted = wanted > free_bytes / 2 ? free_bytes / 2 : wanted;
    wanted = wanted > gpu->memory_bytes ? gpu->memory_bytes : wanted;
    p->half = wanted / 2 / (64 * CENI_KIB) * (64 * CENI_KIB);
    if (!status && p->half < CENI_MIB) {
        return ceni_fail(CEN_ERR_DEVICE_MEMORY, "device %zu has too little free memory", number);
    }
    status = status ? status : ceni_dev_segment_alloc(p->peer, 2 * p->half, &p->memory);
    status = status ? status : cen_stream_create(p->peer, 0, &p->stream);
    status = status ? status : cen_peer_enable(gpu->device, p->peer);
    status = status ? status : cen_peer_enable(p->peer, gpu->device);
    status = status ? status : cen_fill_async(p->peer, p->memory, 0, 2 * p->half, p->stream);
    status = status ? status : measure_exchange(gpu, p, number, false);
    status = status ? status : measure_exchange(gpu, p, number, true);
    return status ? status : measure_latency(gpu, p);
}

static void measure_peer(ceni_gpu *gpu, size_t number) {
    pair p = {.peer = gpu->devices[number]};
    char what[48];
    bool can = false;
    snprintf(what, sizeof what, "device %zu", number);
    if (!p.peer) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_PEER, "%s could not be opened", what);
        return;
    }
    cen_status status = cen_peer_can_access(gpu->device, p.peer, &can);
    if (!status && !can) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_PEER, "%s cannot be reached from here", what);
        return;
    }
    status = status ? status : measure_pair(gpu, number, &p);
    ceni_gpu_failed(gpu, CEN_LEVEL_PEER, what, status);
    if (!ceni_gpu_idle(gpu) || (p.stream && cen_stream_sync(p.peer, p.stream))) {
        return; /* closing the peer waits, and frees */
    }
    if (p.stream) {
        cen_stream_destroy(p.peer, p.stream);
    }
    if (p.memory) {
        ceni_dev_segment_free(p.peer, p.memory);
    }
}

void ceni_gpu_peers(ceni_gpu *gpu) {
    if (gpu->count < 2) {
        ceni_draft_skip(gpu->draft, CEN_LEVEL_PEER, "there is one device");
    }
    for (size_t i = 0; i < gpu->count && !gpu->lost; i++) {
        if (i != gpu->self) {
            measure_peer(gpu, i);
        }
    }
}
