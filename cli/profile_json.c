/* The JSON of `cenote profile`; docs/profile.md has the keys. */
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/json.h"
#include "cli/profile.h"

static const char command[] = "profile";

static json_t *measured_json(const profile_options *options, const cen_profile_row *row) {
    cen_profile_measured m = {0};
    if (!profile_measured(options, row, &m)) {
        return json_null();
    }
    return json_pack("{s:o, s:o, s:o}", "dram", cli_json_known(m.dram), "l2", cli_json_known(m.l2),
                     "fp32", cli_json_known(m.fp32));
}

/* False: no memory. */
static bool set(json_t *object, const char *key, json_t *value) {
    return !json_object_set_new(object, key, value);
}

static json_t *row_json(const profile_options *options, const cen_profile_row *row) {
    const cen_profile_value *hit = &row->figures[CEN_PROFILE_L2_HIT];
    json_t *missing = json_object();
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:i, s:I, s:f, s:s, s:f, s:s, s:s, s:s, s:b}", "kernel",
                  row->kernel, "grid", row->grid, "block", row->block, "device", (int)row->device,
                  "launches", (json_int_t)row->launches, "time_share", row->time_share, "bound",
                  cen_profile_bound_name(row->bound), "bound_share", row->bound_share, "reason",
                  row->reason, "advice", row->advice, "limit", row->limit, "l2_hit_low",
                  !hit->missing && hit->value < CEN_PROFILE_L2_HIT_LOW);
    bool good = root && missing;
    for (int f = 0; f < CEN_PROFILE_FIGURES && good; f++) {
        const cen_profile_value *v = &row->figures[f];
        const char *key = cen_profile_key((cen_profile_figure)f);
        good = v->missing
                   ? set(root, key, json_null()) && set(missing, key, json_string(v->missing))
                   : set(root, key, json_real(v->value));
    }
    good = good && set(root, "measured", measured_json(options, row));
    if (!good || json_object_set(root, "missing", missing)) {
        json_decref(root);
        root = NULL;
    }
    json_decref(missing);
    return root;
}

static json_t *profile_json(const profile_options *options, const cen_profile *profile) {
    json_t *kernels = json_array();
    uint64_t taken = 0;
    for (size_t i = 0; i < cen_profile_count(profile); i++) {
        const cen_profile_row *row = cen_profile_get(profile, i);
        if (profile_takes(options, row) && (taken++ < options->top || !options->top)) {
            cli_json_append(&kernels, row_json(options, row));
        }
    }
    return json_pack("{s:i, s:s, s:I, s:o}", "version", 1, "source", "ncu", "kernel_count",
                     (json_int_t)taken, "kernels", kernels);
}

/* ---- devices ---- */

static json_t *share_json(double share) {
    return share < 0 ? json_null() : json_real(share);
}

static json_t *shares_json(const double *shares) {
    json_t *object = json_object();
    for (int s = 0; s < CEN_SAMPLE_SHARES; s++) {
        if (!set(object, cen_sample_key((cen_sample_share)s), share_json(shares[s]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *device_json(const cen_sample_device *device) {
    json_t *moments = json_array();
    double mean[CEN_SAMPLE_SHARES], most[CEN_SAMPLE_SHARES];
    for (int s = 0; s < CEN_SAMPLE_SHARES; s++) {
        profile_mean m = profile_mean_of(device, (cen_sample_share)s, 0, device->count);
        mean[s] = m.mean;
        most[s] = m.most;
    }
    for (size_t i = 0; i < device->count; i++) {
        const cen_sample_moment *m = &device->moments[i];
        cli_json_append(&moments, json_pack("{s:f, s:f, s:o}", "seconds", m->seconds, "length",
                                            m->length, "shares", shares_json(m->shares)));
    }
    return json_pack("{s:i, s:s, s:o, s:o, s:o}", "device", (int)device->index, "name",
                     device->name, "mean", shares_json(mean), "most", shares_json(most), "moments",
                     moments);
}

static json_t *samples_json(const profile_result *result) {
    json_t *devices = json_array();
    for (size_t i = 0; i < cen_sampler_count(result->sampler); i++) {
        cli_json_append(&devices, device_json(cen_sampler_get(result->sampler, i)));
    }
    return json_pack("{s:i, s:s, s:s, s:o}", "version", 1, "source", "gpm", "why", result->why,
                     "devices", devices);
}

int profile_print_json(FILE *out, const profile_options *options, const profile_result *result) {
    return cli_json_print_to(out, command,
                             result->profile ? profile_json(options, result->profile)
                                             : samples_json(result));
}
