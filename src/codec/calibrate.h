/* What the files of calibration share. */
#ifndef CENI_CODEC_CALIBRATE_H
#define CENI_CODEC_CALIBRATE_H

#include "base/half.h"
#include "cenote/calibrate.h"
#include "kernels/calibrate.h"

struct cen_calibration {
    cen_channels axis;
    uint64_t channel_count;
    ceni_calibrate_channel *channels;
    ceni_calibrate_channel *parts; /* of a batch; made with the first one on the host */
    ceni_calibrate_state state;
};

static inline uint64_t ceni_calibration_finite(const cen_calibration *c) {
    return c->state.count - c->state.nan - c->state.infinite;
}

/* The least and the largest finite element by the keys that a state or a channel keeps of them; 0
 * if there was none. */
static inline float ceni_calibration_least(uint32_t key) {
    return key ? ceni_float_of(ceni_calibrate_bits(~key)) : 0;
}
static inline float ceni_calibration_most(uint32_t key) {
    return key ? ceni_float_of(ceni_calibrate_bits(key)) : 0;
}

/* Of all elements. */
cen_calibration_stats ceni_calibration_stats_of(const ceni_calibrate_state *state);

/* For codecs as cen_calibration_threshold takes them; there are finite elements, and amax > 0. */
cen_status ceni_calibration_entropy(const cen_calibration *c, uint32_t levels, float amax,
                                    float *threshold);
cen_status ceni_calibration_mse(const cen_calibration *c, cen_dtype kind, float amax,
                                float *threshold);

#endif
