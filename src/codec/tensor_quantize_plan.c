/* What becomes of each tensor, and what the output is made of. */
#include "codec/tensor_quantize.h"

#include "base/log.h"
#include "base/mem.h"
#include "codec/codec.h"

#include <fnmatch.h>
#include <string.h>

/* ---- which ---- */

static bool fits_any(const char *name, const char *const *patterns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!fnmatch(patterns[i], name, 0)) {
            return true;
        }
    }
    return false;
}

/* A pattern that fits no name is likely to be misspelt. */
static void warn_of_idle(const ceni_quantize_job *job, const char *list,
                         const char *const *patterns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < job->count && !fits_any(cen_tensors_get(job->in, at)->name, &patterns[i], 1)) {
            at++;
        }
        if (at == job->count) {
            ceni_log(CEN_LOG_WARN, "%s '%.200s' fits the name of no tensor", list, patterns[i]);
        }
    }
}

static bool has_tensor(const cen_tensors *in, const char *name, const char *end, bool *failed) {
    char *full = ceni_quantized_text("", name, end);
    *failed |= !full;
    bool found = full && cen_tensors_find(in, full);
    ceni_free(full);
    return found;
}

static const char *why_kept_type(const cen_codec *codec, const cen_tensor *tensor) {
    if (tensor->dtype != CEN_FP32 && tensor->dtype != CEN_FP16 && tensor->dtype != CEN_BF16) {
        return "not F32, F16 or BF16";
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16 && tensor->dtype != CEN_BF16) {
        return "not BF16";
    }
    if (cen_codec_format_dtype(codec->format) == tensor->dtype &&
        (codec->format == CEN_CODEC_FP16 || codec->format == CEN_CODEC_BF16)) {
        return "of that type already";
    }
    return NULL;
}

static const char *why_kept(const ceni_quantize_job *job, const cen_tensor *tensor, bool *failed) {
    const cen_quantize_options *o = job->options;
    if (cen_quantized_is_part(job->in, tensor)) {
        return "a part of a quantised one";
    }
    if (tensor->rank < 2) {
        return "fewer than two dimensions";
    }
    if (tensor->rank > CEN_QUANTIZED_RANK || !tensor->count) {
        return tensor->count ? "too many dimensions" : "empty";
    }
    if (o->include_count && !fits_any(tensor->name, o->include, o->include_count)) {
        return "not included";
    }
    if (fits_any(tensor->name, o->exclude, o->exclude_count)) {
        return "excluded";
    }
    if (has_tensor(job->in, tensor->name, CENI_SCALES_END, failed) ||
        has_tensor(job->in, tensor->name, CENI_ZEROS_END, failed) ||
        has_tensor(job->in, tensor->name, CENI_METADATA_END, failed)) {
        return "a tensor has the name of a part of it";
    }
    return why_kept_type(&o->codec, tensor);
}

static cen_status choose(const ceni_quantize_job *job, const cen_tensor *tensor,
                         ceni_quantize_item *item) {
    bool failed = false;
    cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
    cen_status status = cen_quantized_find(job->in, tensor->name, &item->q);
    ceni_log_expect(before);
    if (status != CEN_ERR_NOT_FOUND) {
        item->why = "quantised already";
        return status;
    }
    item->why = why_kept(job, tensor, &failed);
    if (failed) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory", tensor->name);
    }
    if (!item->why) {
        cen_quantized *q = &item->q;
        item->made = CENI_ENCODED;
        *q = (cen_quantized){
            .codec = job->options->codec, .dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(q->shape, tensor->shape, tensor->rank * sizeof *tensor->shape);
        ceni_quantized_matrix(tensor, &q->rows, &q->cols);
    }
    return CEN_OK;
}

/* ---- within a budget ---- */

static bool has_budget(const cen_codec_budget *b) {
    return b->max_error > 0 || b->min_sqnr_db != 0 || b->min_cosine > 0 || b->max_saturated > 0 ||
           b->max_underflowed > 0 || b->finite_only || b->refuse;
}

/* Tries wider and wider codecs, with a threshold of their own if there is a calibration; where
 * there is none that is less than the tensor itself, it is kept. */
static cen_status keep_to_budget(ceni_quantize_job *job, const cen_tensor *tensor,
                                 const cen_calibration *calibration, ceni_quantize_item *item) {
    const cen_codec_budget *budget = &job->options->budget;
    char text[160];
    for (;;) {
        cen_codec *codec = &item->q.codec, wider;
        cen_status status = ceni_quantize_encode(job, tensor, item);
        const char *why =
            status ? NULL : ceni_codec_too_much(budget, &item->sums, text, sizeof text);
        bool finite = !budget->finite_only || !(item->sums.nan + item->sums.infinite);
        if (status || (!why && finite)) {
            return status;
        }
        if (!finite) {
            item->made = CENI_KEPT;
            item->why = "not finite";
            return CEN_OK;
        }
        if (budget->refuse) {
            return ceni_fail(CEN_ERR_LIMIT, "tensor '%.200s': %s is over its budget: %s",
                             tensor->name, cen_codec_format_name(codec->format), text);
        }
        cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
        bool none = cen_codec_wider(codec, tensor->dtype, &wider) != CEN_OK;
        ceni_log_expect(before);
        none = none || cen_codec_format_dtype(wider.format) == tensor->dtype;
        ceni_log(CEN_LOG_WARN, "tensor '%.200s': %s is over its budget: %s; %s%s", tensor->name,
                 cen_codec_format_name(codec->format), text, none ? "kept as it is" : "encoded as ",
                 none ? "" : cen_codec_format_name(wider.format));
        if (none) {
            item->made = CENI_KEPT;
            item->why = "over its budget";
            return CEN_OK;
        }
        *codec = wider;
        if (calibration && (status = ceni_quantize_threshold(job, calibration, item))) {
            return status;
        }
    }
}

/* With a threshold and a budget, where they are wanted. */
static cen_status fit(ceni_quantize_job *job, const cen_tensor *tensor, ceni_quantize_item *item) {
    const cen_quantize_options *o = job->options;
    cen_calibration *calibration = NULL;
    cen_status status = CEN_OK;
    if (o->threshold) {
        status = ceni_quantize_calibrate(job, tensor, item, &calibration);
        status = status ? status : ceni_quantize_threshold(job, calibration, item);
    }
    if (!status && has_budget(&o->budget)) {
        status = keep_to_budget(job, tensor, calibration, item);
    } else if (!status && o->codec.format == CEN_CODEC_LOSSLESS_BF16) {
        status = ceni_quantize_encode(job, tensor, item);
    }
    cen_calibration_free(calibration);
    return status;
}

cen_status ceni_quantize_plan(ceni_quantize_job *job) {
    const cen_quantize_options *o = job->options;
    bool budget = has_budget(&o->budget), lossless = o->codec.format == CEN_CODEC_LOSSLESS_BF16;
    cen_status status = CEN_OK;
    warn_of_idle(job, "include", o->include, o->include_count);
    warn_of_idle(job, "exclude", o->exclude, o->exclude_count);
    for (size_t i = 0; i < job->count && !status; i++) {
        status = choose(job, cen_tensors_get(job->in, i), &job->items[i]);
    }
    job->total *= 1u + (budget || lossless) + (o->threshold != CEN_THRESHOLD_MAX);
    for (size_t i = 0; i < job->count && !status; i++) {
        const cen_tensor *tensor = cen_tensors_get(job->in, i);
        ceni_quantize_item *item = &job->items[i];
        if (item->made != CENI_ENCODED) {
            continue;
        }
        status = cen_codec_bound(&item->q.codec, item->q.rows, item->q.cols, &item->sizes);
        status = status ? status : fit(job, tensor, item);
        if (!status && !lossless && item->made == CENI_ENCODED) { /* of a wider codec, maybe */
            status = cen_codec_bound(&item->q.codec, item->q.rows, item->q.cols, &item->sizes);
        }
    }
    return status;
}

/* ---- the output ---- */

static cen_status make_texts(const cen_tensor *tensor, ceni_quantize_item *item) {
    item->texts[0] = ceni_quantized_text("", tensor->name, CENI_SCALES_END);
    item->texts[1] = ceni_quantized_text("", tensor->name, CENI_ZEROS_END);
    item->texts[2] = ceni_quantized_text("", tensor->name, CENI_METADATA_END);
    item->texts[3] = ceni_quantized_text(CENI_QUANTIZED_KEY, tensor->name, "");
    item->texts[4] = ceni_quantized_describe(&item->q);
    for (size_t i = 0; i < CENI_TEXTS; i++) {
        if (!item->texts[i]) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory", tensor->name);
        }
    }
    return CEN_OK;
}

static void add_spec(ceni_quantize_job *job, const char *name, const char *type, uint32_t rank,
                     const uint64_t *shape) {
    job->specs[job->spec_count++] = (cen_tensor_spec){name, type, rank, shape};
}

static cen_status lay_out_encoded(ceni_quantize_job *job, const cen_tensor *tensor,
                                  ceni_quantize_item *item) {
    const cen_codec_sizes *s = &item->sizes;
    const struct {
        const char *type;
        uint64_t bytes, size;
    } parts[] = {{"F32", s->scales, 4},
                 {"I8", s->zeros, 1},
                 {item->q.codec.format == CEN_CODEC_SPARSE_INT8 ? "U32" : "U16", s->metadata,
                  item->q.codec.format == CEN_CODEC_SPARSE_INT8 ? 4 : 2}};
    uint32_t rank = 0;
    cen_status status = make_texts(tensor, item);
    if (status) {
        return status;
    }
    ceni_quantized_shape(&item->q, s->values, &rank, item->shapes[0]);
    add_spec(job, tensor->name, ceni_quantized_type(item->q.codec.format), rank, item->shapes[0]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t *shape = item->shapes[i + 1];
        if (parts[i].bytes) {
            shape[0] = item->q.rows;
            shape[1] = parts[i].bytes / parts[i].size / item->q.rows;
            add_spec(job, item->texts[i], parts[i].type, 2, shape);
        }
    }
    job->notes[job->note_count++] = (cen_tensor_note){item->texts[3], item->texts[4]};
    return CEN_OK;
}

/* Notes of the input that still hold in the output. */
static void copy_notes(ceni_quantize_job *job) {
    size_t before = strlen(CENI_QUANTIZED_KEY);
    for (size_t i = 0; i < cen_tensors_note_count(job->in); i++) {
        const cen_tensor_note *note = cen_tensors_get_note(job->in, i);
        bool description = !strncmp(note->key, CENI_QUANTIZED_KEY, before);
        const cen_tensor *of = description ? cen_tensors_find(job->in, note->key + before) : NULL;
        if (!of || job->items[of - cen_tensors_get(job->in, 0)].made == CENI_KEPT) {
            job->notes[job->note_count++] = *note;
        }
    }
}

cen_status ceni_quantize_lay_out(ceni_quantize_job *job) {
    job->specs = ceni_calloc(job->count * CENI_PARTS, sizeof *job->specs);
    job->notes = ceni_calloc(job->count + cen_tensors_note_count(job->in), sizeof *job->notes);
    if (!job->specs || !job->notes) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its layout", job->out);
    }
    copy_notes(job);
    cen_status status = CEN_OK;
    for (size_t i = 0; i < job->count && !status; i++) {
        const cen_tensor *t = cen_tensors_get(job->in, i);
        ceni_quantize_item *item = &job->items[i];
        item->first = job->spec_count;
        if (item->made == CENI_ENCODED) {
            status = lay_out_encoded(job, t, item);
        } else if (item->made == CENI_DECODED) {
            add_spec(job, t->name, cen_tensor_type(item->q.dtype), item->q.rank, item->q.shape);
        } else if (item->made == CENI_KEPT) {
            add_spec(job, t->name, t->type, t->rank, t->shape);
        }
    }
    return status;
}
