/* The energy of a byte: what a device takes while it reads, less what it takes while it is idle. */
#include "probe/gpu.h"

#include "base/clock.h"
#include "ledger/nvml.h"

#include <string.h>
#include <time.h>

/* A steady run of reads of `bytes` for so long; how many bytes it read. */
static cen_status run(ceni_gpu *gpu, uint64_t bytes, uint64_t ns, double *moved) {
    uint64_t rounds = bytes < (uint64_t)1 << 28 ? 31 : 1, until = ceni_now_ns() + ns;
    const cen_launch shape = ceni_gpu_shape(gpu, 2, 512, 0);
    void *args[] = {&gpu->memory, &bytes, &rounds, &gpu->out};
    cen_status status = CEN_OK;
    *moved = 0;
    while (!status && ceni_now_ns() < until) {
        for (int i = 0; i < 8 && !status; i++) { /* so many at once that it never waits for us */
            status = cen_kernel_launch(gpu->device, "cen_read", &shape, args, 4, gpu->stream);
            *moved += (double)bytes * (double)rounds;
        }
        status = status ? status : cen_stream_sync(gpu->device, gpu->stream);
    }
    return status;
}

/* Joules, and the seconds in which they were taken. */
typedef struct meter {
    ceni_nvml_device device;
    uint64_t millijoules, ns;
} meter;

static cen_status read_meter(meter *m, double *joules, double *seconds, ceni_nvml_why *why) {
    uint64_t now = 0;
    cen_status status = ceni_nvml_energy(m->device, &now, why);
    if (!status) {
        uint64_t ns = ceni_now_ns();
        *joules = (double)(now - m->millijoules) * 1e-3;
        *seconds = (double)(ns - m->ns) * 1e-9;
        m->millijoules = now;
        m->ns = ns;
    }
    return status;
}

static void measure_level(ceni_gpu *gpu, meter *m, const char *level, uint64_t bytes, uint64_t ns,
                          double idle_watts) {
    ceni_nvml_why why;
    double joules = 0, seconds = 0, moved = 0;
    cen_status status = read_meter(m, &joules, &seconds, &why);
    if (!status && ceni_gpu_failed(gpu, level, "energy", run(gpu, bytes, ns, &moved))) {
        return;
    }
    status = status ? status : read_meter(m, &joules, &seconds, &why);
    if (status) {
        ceni_draft_skip(gpu->draft, level, "energy: %s", why.text);
        return;
    }
    double more = joules - idle_watts * seconds;
    cen_probe_level *row = more > 0 ? ceni_draft_level(gpu->draft, level) : NULL;
    if (row) {
        row->picojoules_per_byte = ceni_probe_round(more * 1e12 / moved);
    } else {
        ceni_draft_skip(gpu->draft, level, "energy: the counter told no more than while idle");
    }
}

void ceni_gpu_energy(ceni_gpu *gpu) {
    uint64_t ns = gpu->quick ? 20000000 : 2000000000, l2 = gpu->limits.l2_bytes * 2 / 5 / 512 * 512;
    ceni_nvml_why why;
    meter m = {0};
    double joules = 0, seconds = 0;
    cen_status status = ceni_nvml_find(gpu->props.uuid, &m.device, &why);
    status = status ? status : read_meter(&m, &joules, &seconds, &why);
    if (!status) {
        struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        while (nanosleep(&left, &left)) {
        }
        status = read_meter(&m, &joules, &seconds, &why);
    }
    if (status) {
        ceni_draft_skip(gpu->draft, gpu->memory_level, "energy: %s", why.text);
        return;
    }
    double idle_watts = joules / seconds;
    measure_level(gpu, &m, gpu->memory_level, gpu->memory_bytes, ns, idle_watts);
    if (l2 && l2 <= gpu->memory_bytes && !gpu->lost) {
        measure_level(gpu, &m, CEN_LEVEL_L2, l2, ns, idle_watts);
    }
}
