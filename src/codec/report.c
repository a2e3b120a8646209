/* What encoding cost, from sums. */
#include "codec/codec.h"

#include <math.h>

void cen_codec_sums_add(cen_codec_sums *total, const cen_codec_sums *sums) {
    if (total && sums) {
        ceni_codec_sums_add((ceni_codec_sums *)total, (const ceni_codec_sums *)sums);
    }
}

static double cosine_of(const cen_codec_sums *s) {
    if (s->x2 == 0 || s->y2 == 0) {
        return s->x2 == s->y2 ? 1 : 0;
    }
    double cosine = s->xy / (sqrt(s->x2) * sqrt(s->y2));
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

void cen_codec_report_of(const cen_codec_sums *s, cen_codec_report *report) {
    if (!s || !report) {
        return;
    }
    uint64_t counted = s->count - s->nan - s->infinite - s->overflowed;
    *report = (cen_codec_report){.largest = s->largest,
                                 .max_error = s->max_error,
                                 .mean_error = counted ? s->error / (double)counted : 0,
                                 .mse = counted ? s->error2 / (double)counted : 0,
                                 .sqnr_db = INFINITY,
                                 .cosine = cosine_of(s),
                                 .nan = s->nan,
                                 .infinite = s->infinite,
                                 .saturated = s->saturated,
                                 .overflowed = s->overflowed,
                                 .underflowed = s->underflowed,
                                 .count = s->count};
    if (s->error2 > 0) {
        report->sqnr_db = 10 * log10(s->x2 / s->error2);
    }
    if (s->overflowed) {
        report->max_error = report->mean_error = report->mse = INFINITY;
        report->sqnr_db = -INFINITY;
        report->cosine = 0;
    }
}
