/* Explanations: one diagnosis for each device that holds anything, worst first. */
#include "trace/diagnose_ranks.h"
#include "trace/format.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void release(ceni_diag *diag) {
    ceni_free(diag->steps);
    ceni_free(diag->records);
    ceni_free(diag->owners);
    ceni_free(diag->slot_owner);
    ceni_free(diag->streams);
    ceni_free(diag->pools);
    ceni_free(diag->suspects);
}

void cen_explanation_free(cen_explanation *explanation) {
    if (!explanation) {
        return;
    }
    for (size_t i = 0; explanation->devices && i < explanation->device_count; i++) {
        release(&explanation->devices[i]);
    }
    ceni_free(explanation->devices);
    ceni_ranks_free(explanation->ranks);
    cen_snapshot_free(explanation->owned);
    ceni_free(explanation->name);
    ceni_free(explanation);
}

cen_status ceni_explain_options_read(const cen_explain_options *given,
                                     cen_explain_options *options) {
    *options = (cen_explain_options){0};
    if (given && given->size < sizeof given->size) {
        return ceni_fail(CEN_ERR_INVALID, "explain: options.size is not set");
    }
    if (given) {
        memcpy(options, given, given->size < sizeof *given ? given->size : sizeof *given);
    }
    return CEN_OK;
}

cen_status ceni_explanation_new(const cen_explain_options *given, size_t devices,
                                cen_explanation **explanation) {
    cen_explain_options options;
    cen_status status = ceni_explain_options_read(given, &options);
    if (status) {
        return status;
    }
    cen_explanation *e = ceni_calloc(1, sizeof *e);
    if (e) {
        e->name = ceni_strdup(options.name ? options.name : "snapshot");
        e->devices = ceni_calloc(devices, sizeof *e->devices);
    }
    if (!e || !e->name || !e->devices) {
        cen_explanation_free(e);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    for (size_t i = 0; i < devices; i++) {
        e->devices[i].cap_given = options.cap_bytes;
        e->devices[i].device_total = options.device_total_bytes;
    }
    e->device_count = devices;
    *explanation = e;
    return CEN_OK;
}

static cen_status diagnose(ceni_diag *diag) {
    static cen_status (*const parts[])(ceni_diag *) = {ceni_diagnose_steps, ceni_diagnose_replay,
                                                       ceni_diagnose_owners, ceni_diagnose_holes};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        cen_status status = parts[i](diag);
        if (status) {
            return ceni_fail(status, "explain: out of memory");
        }
    }
    ceni_diagnose_verdict(diag);
    return CEN_OK;
}

/* Failures before the rest, then by bytes held. */
static int worst_first(const void *a, const void *b) {
    const ceni_diag *x = a, *y = b;
    if (!x->request != !y->request) {
        return x->request ? -1 : 1;
    }
    return x->held_peak < y->held_peak ? 1 : -(x->held_peak > y->held_peak);
}

cen_status cen_explain(const cen_snapshot *snapshot, const cen_explain_options *options,
                       cen_explanation **explanation) {
    if (!snapshot || !explanation) {
        return ceni_fail(CEN_ERR_INVALID, "cen_explain: %s is NULL",
                         snapshot ? "explanation" : "snapshot");
    }
    size_t count = cen_snapshot_device_count(snapshot);
    if (!count) {
        return ceni_fail(
            CEN_ERR_INVALID,
            ceni_origin_of(snapshot) == CENI_ORIGIN_CENOTE
                ? "cen_explain: no device in the trace holds anything: start it before "
                  "the pools are made"
                : "cen_explain: no device in the snapshot holds anything");
    }
    cen_explanation *e = NULL;
    cen_status status = ceni_explanation_new(options, count, &e);
    for (size_t i = 0; !status && i < count; i++) {
        ceni_diag *diag = &e->devices[i];
        diag->snapshot = snapshot;
        diag->source = cen_snapshot_get_device(snapshot, i);
        diag->device = diag->source->device;
        status = diagnose(diag);
    }
    if (status) {
        cen_explanation_free(e);
        return status;
    }
    qsort(e->devices, count, sizeof *e->devices, worst_first);
    *explanation = e;
    return CEN_OK;
}

cen_verdict cen_explanation_verdict(const cen_explanation *explanation) {
    return explanation->devices[0].verdict;
}

cen_verdict cen_explanation_next(const cen_explanation *explanation) {
    return explanation->devices[0].next;
}

static void put_losses(ceni_str *out, bool start_lost, bool cut_off) {
    if (start_lost || cut_off) {
        ceni_str_printf(out, " (%s%s%s)", start_lost ? "ring full, start lost" : "",
                        start_lost && cut_off ? "; " : "", cut_off ? "cut off" : "");
    }
}

bool ceni_is_cut_off(const cen_snapshot *snapshot) {
    const char *cut_off = cen_snapshot_setting(snapshot, CENI_CUT_OFF);
    return cut_off && !strcmp(cut_off, "True");
}

static void put_title(ceni_str *out, const cen_explanation *e, const ceni_diag *diag) {
    ceni_str_printf(out, "%s: ", e->name);
    if (!diag->source) {
        ceni_str_printf(out, "an out-of-memory message, device %d, no history\n", diag->device);
        return;
    }
    if (e->device_count > 1) {
        ceni_str_printf(out, "device %d of %zu, ", diag->device, e->device_count);
    } else {
        ceni_str_printf(out, "1 device, ");
    }
    if (diag->source->event_count) {
        ceni_put_count(out, diag->source->event_count);
        ceni_str_printf(out, " events");
    } else {
        ceni_str_printf(out, "no history: the state only");
    }
    bool start_lost = diag->source->event_count && diag->source->truncated;
    put_losses(out, start_lost, ceni_is_cut_off(diag->snapshot));
    ceni_str_printf(out, "\n");
}

cen_status cen_explain_text(const cen_explanation *explanation, char **text) {
    ceni_str out = {0};
    if (explanation->ranks) {
        ceni_text_ranks(&out, explanation->ranks);
    }
    for (size_t i = 0; i < explanation->device_count; i++) {
        ceni_str_printf(&out, i ? "\n" : "");
        put_title(&out, explanation, &explanation->devices[i]);
        ceni_text_device(&out, &explanation->devices[i]);
    }
    char *result = ceni_str_take(&out);
    if (!result) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    *text = result;
    return CEN_OK;
}
