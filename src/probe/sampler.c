/* Devices sampled: NVML's counters (GPM) from one look to the next. */
#include "cenote/profile.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/nvml.h"
#include "probe/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Counters are read this far apart; the driver wants a tenth of a second at least. */
static const uint64_t PERIOD_NS = 100 * 1000 * 1000;
/* Past so many moments, neighbours are joined, and each later one covers twice the time. */
enum { MOMENTS = 512 };

typedef struct sampled {
    cen_sample_device out;
    cen_sample_moment moments[MOMENTS];
    ceni_nvml_device device;
    ceni_nvml_sample last, next;
    uint64_t last_ns;
} sampled;

struct cen_sampler {
    sampled **devices;
    size_t count, capacity;
    uint64_t start_ns, looked_ns, period_ns;
};

static const char *const keys[CEN_SAMPLE_SHARES][2] = {
#define CENI_SHARE(name, key, text) {key, text},
    CEN_SAMPLE_MAP(CENI_SHARE)
#undef CENI_SHARE
};

const char *cen_sample_key(cen_sample_share share) {
    return (unsigned)share < CEN_SAMPLE_SHARES ? keys[share][0] : "?";
}

const char *cen_sample_text(cen_sample_share share) {
    return (unsigned)share < CEN_SAMPLE_SHARES ? keys[share][1] : "?";
}

/* ---- opening ---- */

static void free_device(sampled *d) {
    if (d) {
        ceni_nvml_sample_free(d->last);
        ceni_nvml_sample_free(d->next);
        ceni_free(d);
    }
}

static cen_status open_device(unsigned index, sampled *d, ceni_nvml_why *why) {
    char uuid[48];
    d->out.index = index;
    d->out.moments = d->moments;
    cen_status status = ceni_nvml_at(index, &d->device, why);
    status = status ? status : ceni_nvml_identity(d->device, uuid, d->out.name, why);
    status = status ? status : ceni_nvml_counts(d->device, why);
    status = status ? status : ceni_nvml_sample_make(&d->last, why);
    status = status ? status : ceni_nvml_sample_make(&d->next, why);
    status = status ? status : ceni_nvml_sample_take(d->device, d->last, why);
    d->last_ns = ceni_now_ns();
    return status;
}

/* A device that does not count is passed over; *status keeps why the last one was. */
static cen_status add_device(cen_sampler *s, unsigned index, cen_status *status,
                             ceni_nvml_why *why) {
    sampled *d = ceni_calloc(1, sizeof *d);
    if (!d || ceni_grow(&s->devices, &s->capacity, s->count + 1, sizeof(void *))) {
        ceni_free(d);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_sampler_open: no memory for device %u", index);
    }
    cen_status opened = open_device(index, d, why);
    if (opened) {
        free_device(d);
        *status = opened;
    } else {
        s->devices[s->count++] = d;
    }
    return CEN_OK;
}

static cen_status add_all(cen_sampler *s) {
    ceni_nvml_why why = {""};
    unsigned count = 0;
    cen_status status = ceni_nvml_count(&count, &why), added = CEN_OK;
    for (unsigned i = 0; i < count && !added; i++) {
        added = add_device(s, i, &status, &why);
    }
    if (added || s->count) {
        return added;
    }
    return ceni_fail(status ? status : CEN_ERR_NO_DEVICE, "cen_sampler_open: %s",
                     status ? why.text : "the driver has no device");
}

cen_status cen_sampler_open(cen_sampler **sampler) {
    if (!sampler) {
        return ceni_fail(CEN_ERR_INVALID, "cen_sampler_open: sampler is NULL");
    }
    cen_sampler *s = ceni_calloc(1, sizeof *s);
    if (!s) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_sampler_open: no memory for a sampler");
    }
    cen_status status = add_all(s);
    if (status) {
        cen_sampler_close(s);
        return status;
    }
    s->start_ns = s->looked_ns = ceni_now_ns();
    s->period_ns = PERIOD_NS;
    *sampler = s;
    return CEN_OK;
}

void cen_sampler_close(cen_sampler *sampler) {
    for (size_t i = 0; sampler && i < sampler->count; i++) {
        free_device(sampler->devices[i]);
    }
    if (sampler) {
        ceni_free(sampler->devices);
        ceni_free(sampler);
    }
}

/* ---- looking ---- */

static cen_sample_moment join(const cen_sample_moment *a, const cen_sample_moment *b) {
    cen_sample_moment both = {.seconds = b->seconds, .length = a->length + b->length};
    for (size_t i = 0; i < CEN_SAMPLE_SHARES; i++) {
        bool told = a->shares[i] >= 0 && b->shares[i] >= 0;
        both.shares[i] =
            told ? (a->shares[i] * a->length + b->shares[i] * b->length) / both.length : -1;
    }
    return both;
}

size_t ceni_moments_join(cen_sample_moment *moments, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        moments[i] = join(&moments[2 * i], &moments[2 * i + 1]);
    }
    if (count % 2) {
        moments[count / 2] = moments[count - 1];
    }
    return (count + 1) / 2;
}

static void keep(sampled *d, double seconds, double length, const double *values) {
    cen_sample_moment *m = &d->moments[d->out.count++];
    *m = (cen_sample_moment){.seconds = seconds, .length = length};
    for (size_t i = 0; i < CEN_SAMPLE_SHARES; i++) {
        m->shares[i] = isfinite(values[i]) && values[i] >= 0 ? values[i] / 100 : -1;
    }
}

static void look(const cen_sampler *s, sampled *d) {
    /* NVML's numbers of what CEN_SAMPLE_MAP lists. */
    static const unsigned ids[CEN_SAMPLE_SHARES] = {2, 3, 10, 5, 12, 13, 11};
    double values[CEN_SAMPLE_SHARES];
    ceni_nvml_why why;
    if (ceni_nvml_sample_take(d->device, d->next, &why)) {
        return;
    }
    uint64_t now = ceni_now_ns();
    cen_status status =
        ceni_nvml_sample_compare(d->last, d->next, ids, CEN_SAMPLE_SHARES, values, &why);
    if (!status && now > d->last_ns) {
        keep(d, (double)(now - s->start_ns) * 1e-9, (double)(now - d->last_ns) * 1e-9, values);
    }
    ceni_nvml_sample old = d->last;
    d->last = d->next;
    d->next = old;
    d->last_ns = now;
}

cen_status cen_sampler_take(cen_sampler *sampler) {
    if (!sampler) {
        return ceni_fail(CEN_ERR_INVALID, "cen_sampler_take: sampler is NULL");
    }
    uint64_t now = ceni_now_ns();
    if (now - sampler->looked_ns < sampler->period_ns) {
        return CEN_OK;
    }
    sampler->looked_ns = now;
    bool full = false;
    for (size_t i = 0; i < sampler->count; i++) {
        look(sampler, sampler->devices[i]);
        full = full || sampler->devices[i]->out.count == MOMENTS;
    }
    for (size_t i = 0; i < sampler->count && full; i++) {
        sampled *d = sampler->devices[i];
        d->out.count = ceni_moments_join(d->moments, d->out.count);
    }
    sampler->period_ns *= full ? 2 : 1;
    return CEN_OK;
}

size_t cen_sampler_count(const cen_sampler *sampler) {
    return sampler ? sampler->count : 0;
}

const cen_sample_device *cen_sampler_get(const cen_sampler *sampler, size_t index) {
    return sampler && index < sampler->count ? &sampler->devices[index]->out : NULL;
}
