/* Property: whatever the bytes, loading a calibration ends in an error that was logged, or in one
 * whose counts add up, whose thresholds can be asked for, and that is written as it was read. The
 * checksum is made right first, as it would hide all that is behind it. Seeds:
 * tests/fuzz/corpus/calibration. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cenote/calibrate.h"
#include "cenote/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check(cen_calibration *c) {
    cen_calibration_stats stats;
    cen_calibration_channel channel;
    size_t bins;
    uint64_t sum = 0;
    float amax = 0;
    require(!cen_calibration_get_stats(c, &stats));
    const uint64_t *n = cen_calibration_bins(c, &bins);
    for (size_t i = 0; i < bins; i++) {
        sum += n[i];
    }
    require(sum + stats.zeros + stats.nan + stats.infinite == stats.count);
    require(stats.min <= stats.max && stats.amax >= 0);
    for (uint64_t i = 0; !cen_calibration_get_channel(c, i, &channel); i++) {
        const cen_calibration_stats *s = &channel.stats;
        require(s->count == s->nan + s->infinite ||
                (s->min >= stats.min && s->max <= stats.max && s->min <= s->max));
    }
    for (int how = CEN_THRESHOLD_MAX; how <= CEN_THRESHOLD_PERCENTILE; how++) {
        if (!cen_calibration_threshold(c, (cen_threshold)how, 99.9, NULL, &amax)) {
            require(amax >= 0 && amax <= stats.amax);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_calibration *c = NULL;
    uint8_t *bytes = malloc(size + 1);
    require(bytes);
    memcpy(bytes, data ? data : (const uint8_t *)"", data ? size : 0);
    if (size >= sizeof(uint64_t)) {
        uint64_t sum = XXH3_64bits(bytes, size - sizeof sum);
        memcpy(bytes + size - sizeof sum, &sum, sizeof sum);
    }
    (void)cen_log_last_error();
    if (cen_calibration_load_memory("fuzz", bytes, size, &c)) {
        require(!c && !strncmp(cen_log_last_error(), "fuzz:", 5));
    } else {
        check(c);
    }
    cen_calibration_free(c);
    free(bytes);
    return 0;
}
