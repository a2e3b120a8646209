/* Encoding that may cost so much and no more. */
#include "codec/codec.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"

static cen_status check_budget(const cen_codec_budget *b) {
    const struct {
        const char *name;
        double value, least, most;
    } all[] = {{"max_error", b->max_error, 0, INFINITY},
               {"min_sqnr_db", b->min_sqnr_db, -INFINITY, INFINITY},
               {"min_cosine", b->min_cosine, 0, 1},
               {"max_saturated", b->max_saturated, 0, 1},
               {"max_underflowed", b->max_underflowed, 0, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!(all[i].value >= all[i].least && all[i].value <= all[i].most)) {
            return ceni_fail(CEN_ERR_INVALID, "budget.%s is %g; it is from %g to %g", all[i].name,
                             all[i].value, all[i].least, all[i].most);
        }
    }
    return CEN_OK;
}

static cen_codec bare(cen_codec_format format) {
    return (cen_codec){.format = format};
}

/* The wider codec; false: there is none. */
static bool widen(const cen_codec *codec, cen_dtype source, cen_codec *wider) {
    *wider = *codec;
    wider->scales_given = false; /* what was given clips to the narrower range */
    switch (codec->format) {
    case CEN_CODEC_INT4:
        wider->format = CEN_CODEC_INT8;
        return true;
    case CEN_CODEC_SPARSE_INT8:
        wider->format = CEN_CODEC_INT8;
        wider->refuse_dense = false;
        return true;
    case CEN_CODEC_SPARSE_FP16:
        *wider = bare(CEN_CODEC_FP16);
        return true;
    case CEN_CODEC_SPARSE_BF16:
    case CEN_CODEC_FP16:
        *wider = bare(CEN_CODEC_BF16);
        return true;
    case CEN_CODEC_INT8:
    case CEN_CODEC_FP8_E4M3:
    case CEN_CODEC_FP8_E5M2:
        *wider = bare(source == CEN_FP16 ? CEN_CODEC_FP16 : CEN_CODEC_BF16);
        return true;
    default:
        return false;
    }
}

cen_status cen_codec_wider(const cen_codec *codec, cen_dtype source, cen_codec *wider) {
    cen_status status = cen_codec_check(codec);
    if (status) {
        return status;
    }
    if (!wider) {
        return ceni_fail(CEN_ERR_INVALID, "wider is NULL");
    }
    cen_codec found;
    if (!widen(codec, source, &found)) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "no codec is wider than %s",
                         cen_codec_format_name(codec->format));
    }
    *wider = found;
    return CEN_OK;
}

static uint64_t more(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

cen_status cen_codec_budget_bound(const cen_codec *codec, const cen_codec_budget *budget,
                                  cen_dtype source, uint64_t rows, uint64_t cols,
                                  cen_codec_sizes *sizes) {
    cen_codec_sizes most, next;
    cen_codec c;
    if (!budget || !sizes) {
        return ceni_fail(CEN_ERR_INVALID, "%s is NULL", budget ? "sizes" : "budget");
    }
    cen_status status = check_budget(budget);
    status = status ? status : cen_codec_bound(codec, rows, cols, &most);
    if (status) {
        return status;
    }
    c = *codec;
    for (cen_codec wider; !budget->refuse && widen(&c, source, &wider); c = wider) {
        if ((status = cen_codec_bound(&wider, rows, cols, &next))) {
            return status;
        }
        most.values = more(most.values, next.values);
        most.scales = more(most.scales, next.scales);
        most.zeros = more(most.zeros, next.zeros);
        most.metadata = more(most.metadata, next.metadata);
    }
    *sizes = most;
    return CEN_OK;
}

const char *ceni_codec_too_much(const cen_codec_budget *b, const cen_codec_sums *sums, char *text,
                                size_t size) {
    cen_codec_report r;
    cen_codec_report_of(sums, &r);
    double count = r.count ? (double)r.count : 1;
    const struct {
        const char *what;
        double value, limit;
        bool passed;
    } all[] = {
        {"the largest error over the largest element is", r.max_error / (r.largest ? r.largest : 1),
         b->max_error, r.max_error > b->max_error * r.largest},
        {"the SQNR in dB is", r.sqnr_db, b->min_sqnr_db, r.sqnr_db < b->min_sqnr_db},
        {"the cosine is", r.cosine, b->min_cosine, r.cosine < b->min_cosine},
        {"the share that saturated is", (double)r.saturated / count, b->max_saturated,
         (double)r.saturated > b->max_saturated * count},
        {"the share that underflowed is", (double)r.underflowed / count, b->max_underflowed,
         (double)r.underflowed > b->max_underflowed * count},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].limit != 0 && all[i].passed) {
            snprintf(text, size, "%s %.6g, the limit %.6g", all[i].what, all[i].value,
                     all[i].limit);
            return text;
        }
    }
    if (b->finite_only && r.overflowed) {
        snprintf(text, size, "%llu elements overflowed", (unsigned long long)r.overflowed);
        return text;
    }
    return NULL;
}

/* Whether there is room for the codec, and for all that it may fall back to. */
static cen_status check_room(const cen_codec_sizes *room, const cen_codec_sizes *needed) {
    const struct {
        const char *name;
        uint64_t room, needed;
    } parts[] = {{"values", room->values, needed->values},
                 {"scales", room->scales, needed->scales},
                 {"zeros", room->zeros, needed->zeros},
                 {"metadata", room->metadata, needed->metadata}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].room < parts[i].needed) {
            return ceni_fail(CEN_ERR_INVALID,
                             "parts.%s has room for %llu bytes; with what the budget may fall back "
                             "to, %llu are needed",
                             parts[i].name, (unsigned long long)parts[i].room,
                             (unsigned long long)parts[i].needed);
        }
    }
    return CEN_OK;
}

/* With one codec; *why is set if it costs too much. */
static cen_status attempt(const cen_codec *codec, const cen_codec_budget *budget,
                          const cen_matrix *source, cen_codec_parts *parts, cen_codec_sums *rows,
                          cen_codec_sums *sums, char *text, size_t size, const char **why) {
    cen_status status = cen_codec_encode(codec, source, parts, rows, sums);
    if (status) {
        return status;
    }
    if (budget->finite_only && (sums->nan || sums->infinite)) {
        return ceni_fail(CEN_ERR_LIMIT, "source has %llu NaN and %llu infinities",
                         (unsigned long long)sums->nan, (unsigned long long)sums->infinite);
    }
    *why = ceni_codec_too_much(budget, sums, text, size);
    return CEN_OK;
}

static cen_status encode_within(const cen_codec *codec, const cen_codec_budget *budget,
                                const cen_matrix *source, cen_codec_parts *parts,
                                cen_codec_sums *rows, cen_codec_sums *sums, cen_codec *used) {
    const cen_codec_sizes room = parts->bytes;
    char text[160];
    for (cen_codec c = *codec, wider;; c = wider) {
        const char *why = NULL;
        parts->bytes = room;
        cen_status status = attempt(&c, budget, source, parts, rows, sums, text, sizeof text, &why);
        if (status) {
            return status;
        }
        if (!why) {
            *used = c;
            return CEN_OK;
        }
        const char *name = cen_codec_format_name(c.format);
        if (budget->refuse || !widen(&c, source->dtype, &wider)) {
            return ceni_fail(CEN_ERR_LIMIT, "%s is over its budget: %s", name, text);
        }
        ceni_log(CEN_LOG_WARN, "%s is over its budget: %s; encoded as %s", name, text,
                 cen_codec_format_name(wider.format));
    }
}

cen_status cen_codec_encode_within(const cen_codec *codec, const cen_codec_budget *budget,
                                   const cen_matrix *source, cen_codec_parts *parts,
                                   cen_codec_sums *rows, cen_codec_sums *total, cen_codec *used) {
    cen_codec_sizes needed;
    cen_codec_sums sums;
    if (!source || !parts || !used) {
        return ceni_fail(CEN_ERR_INVALID, "%s is NULL",
                         !source  ? "source"
                         : !parts ? "parts"
                                  : "used");
    }
    cen_status status =
        cen_codec_budget_bound(codec, budget, source->dtype, source->rows, source->cols, &needed);
    status = status ? status : check_room(&parts->bytes, &needed);
    if (status) {
        return status;
    }
    const cen_codec_sizes before = parts->bytes;
    status = encode_within(codec, budget, source, parts, rows, &sums, used);
    if (status) {
        parts->bytes = before;
    } else if (total) {
        *total = sums;
    }
    return status;
}
