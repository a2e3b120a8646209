/* Channels that stand out, and factors that spread them over both operands. */
#include "codec/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* The finite element of the largest size; of two the positive one. */
static float extreme(const ceni_calibrate_channel *channel) {
    float least = ceni_calibration_least(channel->least);
    float most = ceni_calibration_most(channel->most);
    return -least > fabsf(most) ? least : most;
}

static int larger_first(const void *left, const void *right) {
    const cen_outlier *a = left, *b = right;
    float x = fabsf(a->value), y = fabsf(b->value);
    return x != y ? (x < y ? 1 : -1) : a->channel < b->channel ? -1 : 1;
}

/* How many there are, of which the first `room` go into `list`; and the largest size of the rest.
 */
static uint64_t beyond(const cen_calibration *c, float threshold, cen_outlier *list, uint64_t room,
                       float *rest) {
    uint64_t found = 0;
    float left = 0;
    for (uint64_t i = 0; i < c->channel_count; i++) {
        float value = extreme(&c->channels[i]), size = fabsf(value);
        if (size <= threshold) {
            left = size > left ? size : left;
        } else if (found++ < room) {
            list[found - 1] = (cen_outlier){i, value};
        }
    }
    *rest = left;
    return found;
}

cen_status cen_calibration_outliers(const cen_calibration *c, float threshold,
                                    cen_outlier *outliers, uint64_t room, uint64_t *count,
                                    float *rest) {
    if (!c || !count || (room && !outliers)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_outliers: %s is NULL",
                         !c       ? "calibration"
                         : !count ? "count"
                                  : "outliers");
    }
    if (!c->axis || !(threshold >= 0)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_outliers: %s",
                         c->axis ? "threshold is negative or no number"
                                 : "the calibration has no channels");
    }
    float left;
    uint64_t found = beyond(c, threshold, NULL, 0, &left);
    if (room && found) {
        cen_outlier *all = ceni_malloc(found * sizeof *all);
        if (!all) {
            return ceni_fail(CEN_ERR_HOST_MEMORY,
                             "cen_calibration_outliers: no memory for %llu channels",
                             (unsigned long long)found);
        }
        (void)beyond(c, threshold, all, found, &left);
        qsort(all, found, sizeof *all, larger_first);
        memcpy(outliers, all, (found < room ? found : room) * sizeof *all);
        ceni_free(all);
    }
    *count = found;
    if (rest) {
        *rest = left;
    }
    return CEN_OK;
}

cen_status cen_calibration_smooth(const cen_calibration *x, const cen_calibration *w, double alpha,
                                  float *scales) {
    if (!x || !w || !scales) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_smooth: %s is NULL",
                         !x   ? "x"
                         : !w ? "w"
                              : "scales");
    }
    if (!x->axis || !w->axis || x->channel_count != w->channel_count) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_smooth: x has %llu channels, w %llu",
                         (unsigned long long)x->channel_count,
                         (unsigned long long)w->channel_count);
    }
    if (!(alpha >= 0 && alpha <= 1)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_smooth: alpha is %g; it is 0 to 1",
                         alpha);
    }
    for (uint64_t i = 0; i < x->channel_count; i++) {
        double a = fabsf(extreme(&x->channels[i])), b = fabsf(extreme(&w->channels[i]));
        double s = a > 0 && b > 0 ? pow(a, alpha) / pow(b, 1 - alpha) : 1;
        scales[i] = (float)(s < 0x1p-64 ? 0x1p-64 : s > 0x1p64 ? 0x1p64 : s);
    }
    return CEN_OK;
}
