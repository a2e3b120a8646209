/* Property: whatever the bytes, reading them as ncu's recording ends in an error that was logged,
 * or in rows that keep what profile.h promises: a figure is known, finite and not negative, or has
 * its reason; texts are one line of UTF-8, as JSON needs them; rows are in order. Seeds:
 * tests/fuzz/corpus/profile. The same bytes as what ncu offers: a list of metrics comes of it. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/log.h"
#include "cenote/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void check_text(const char *text, bool empty) {
    json_t *copy = json_string(text);
    require(copy && (empty || *text));
    json_decref(copy);
    for (; *text; text++) {
        require((unsigned char)*text >= 0x20 && *text != 0x7f);
    }
}

static void check_row(const cen_profile_row *row) {
    check_text(row->kernel, true);
    check_text(row->reason, false);
    check_text(row->advice, row->bound == CEN_PROFILE_BY_UNKNOWN);
    check_text(row->limit, true);
    require(memchr(row->grid, 0, sizeof row->grid) && memchr(row->block, 0, sizeof row->block));
    check_text(row->grid, true);
    check_text(row->block, true);
    require(row->launches > 0 && row->time_share >= 0 && row->time_share <= 1);
    require((unsigned)row->bound < CEN_PROFILE_BOUNDS && row->bound_share >= 0);
    for (int f = 0; f < CEN_PROFILE_FIGURES; f++) {
        const cen_profile_value *v = &row->figures[f];
        require(isfinite(v->value) && v->value >= 0);
        if (v->missing) {
            check_text(v->missing, false);
            require(v->value <= 0);
        }
    }
}

static void check_metrics(const uint8_t *data, size_t size) {
    char *offered = malloc(size + 1), *metrics = NULL;
    memcpy(offered, data, size);
    offered[size] = '\0';
    require(!cen_profile_metrics(offered, &metrics) && strstr(metrics, "launch__"));
    free(metrics);
    free(offered);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_profile *profile = NULL;
    check_metrics(data, size);
    (void)cen_log_last_error();
    if (cen_profile_read_memory("fuzz", data, size, &profile)) {
        require(!profile && !strncmp(cen_log_last_error(), "fuzz:", 5));
        return 0;
    }
    require(cen_profile_count(profile) > 0);
    for (size_t i = 0; i < cen_profile_count(profile); i++) {
        const cen_profile_row *row = cen_profile_get(profile, i);
        check_row(row);
        require(!i || cen_profile_get(profile, i - 1)->figures[CEN_PROFILE_SECONDS].value >=
                          row->figures[CEN_PROFILE_SECONDS].value);
    }
    require(!cen_profile_get(profile, cen_profile_count(profile)));
    cen_profile_free(profile);
    return 0;
}
