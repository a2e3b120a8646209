/* Measuring: what the host's part and the GPUs' share. */
#ifndef CENI_PROBE_H
#define CENI_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/probe.h"
#include "cenote/profile.h"

#define CENI_KIB ((uint64_t)1 << 10)
#define CENI_MIB ((uint64_t)1 << 20)

/* How often each figure is measured. */
enum { CENI_SAMPLES = 5 };

/* Samples of one figure. */
typedef struct ceni_samples {
    double at[CENI_SAMPLES];
    size_t count;
} ceni_samples;

/* A figure as it is kept: the median, lowest and highest, each of 6 digits. */
typedef struct ceni_figure {
    double median;
    cen_probe_spread spread;
} ceni_figure;

/* Past CENI_SAMPLES the sample is dropped. */
void ceni_samples_add(ceni_samples *samples, double value);
/* All zero if there is no sample. */
ceni_figure ceni_samples_figure(const ceni_samples *samples);
/* Rounded to 6 digits, so that what is written is what is read back. */
double ceni_probe_round(double value);

/* A device's results while they are gathered. Adding fails when memory is out, which is remembered
 * in `status`. Zero-initialise; ceni_draft_free unless ceni_draft_take took it. */
typedef struct ceni_draft {
    cen_probe_device device;
    cen_probe_level *levels;
    cen_probe_skipped *skipped;
    cen_probe_rate *rates;
    cen_probe_transfer *transfers;
    cen_probe_step *steps;
    size_t level_room, skipped_room, rate_room, transfer_room, step_room;
    cen_status status;
} ceni_draft;

/* The level of that name, made if need be; NULL when memory is out. Valid until the next one is
 * made. */
cen_probe_level *ceni_draft_level(ceni_draft *draft, const char *level);
/* A figure without samples is left as it is. cycles 0: not measured. */
void ceni_draft_latency(ceni_draft *draft, const char *level, const ceni_samples *ns,
                        double cycles);
/* Adds the row, and makes it the level's bandwidth if it is the highest so far and `whole`: of the
 * whole device. */
void ceni_draft_transfer(ceni_draft *draft, const char *level, const char *access, uint32_t threads,
                         uint64_t bytes, const ceni_samples *gbps, bool whole);
void ceni_draft_step(ceni_draft *draft, uint64_t bytes, const ceni_samples *ns);
void ceni_draft_rate(ceni_draft *draft, const char *dtype, double flops);
/* Reasons that are too long end in "..." */
void ceni_draft_skip(ceni_draft *draft, const char *level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Hands over the device; levels of which nothing came to be known are left out. */
cen_status ceni_draft_take(ceni_draft *draft, cen_probe_device *device);
void ceni_draft_free(ceni_draft *draft);

/* A chain for dependent accesses: `lines` lines of `line` bytes, each beginning with the address of
 * the next, in an order that visits every line once and then begins again. The lines are written
 * at `memory`, and will be followed at the address `base`. */
void ceni_chain_make(void *memory, uint64_t base, uint64_t lines, uint64_t line, uint64_t seed);

/* Sizes in steps of about 1.4, each a multiple of `line`, from `from` up to `to`: fills at most
 * `room`, returns how many. */
size_t ceni_chain_sizes(uint64_t from, uint64_t to, uint64_t line, uint64_t *sizes, size_t room);

/* Where latencies rise: the sizes up to which one level serves all, smallest first; the last level
 * has no end. Returns how many ends. */
size_t ceni_steps_find(const cen_probe_step *steps, size_t count, uint64_t *ends, size_t room);

/* The name of the n-th level of caches, from 0. */
const char *ceni_cache_name(size_t n);

/* Joins neighbours among the moments of a sampled device (sampler.c); how many are left. */
size_t ceni_moments_join(cen_sample_moment *moments, size_t count);

/* Measures the host. root: of the system's tree, "" save in tests. */
typedef struct ceni_host_probe {
    const char *root;
    const char *dir; /* as cen_probe_options */
    bool quick;
} ceni_host_probe;
cen_status ceni_probe_host(const ceni_host_probe *options, ceni_draft *draft);

/* Measures devices[self], of `count` devices that are its peers or itself. Any backend's. */
cen_status ceni_probe_device(cen_device *const *devices, size_t count, size_t self, bool quick,
                             ceni_draft *draft);

#endif
