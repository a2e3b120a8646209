/* A tensor file in fewer bits, and back. */
#include "codec/tensor_quantize.h"

#include "base/log.h"
#include "base/mem.h"
#include "codec/codec.h"

#include <inttypes.h>

static cen_status check(const cen_tensors *in, const char *out, const cen_quantize_options *options,
                        const cen_quantize_row *rows) {
    if (!in || !out || !options || (!rows && cen_tensors_count(in))) {
        return ceni_fail(CEN_ERR_INVALID, "quantising a file: %s is NULL",
                         !in        ? "in"
                         : !out     ? "out"
                         : !options ? "options"
                                    : "rows");
    }
    if (options->size != sizeof *options) {
        return ceni_fail(CEN_ERR_INVALID, "options.size is %zu; %zu is expected", options->size,
                         sizeof *options);
    }
    if (cen_tensors_reads(in, out)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: is what is read, and would be replaced", out);
    }
    /* A description of nothing might become one of a tensor of the output. */
    return cen_quantized_check(in);
}

static cen_status check_threshold(const cen_quantize_options *o) {
    if (o->threshold > CEN_THRESHOLD_MSE) {
        return ceni_fail(CEN_ERR_INVALID, "options.threshold is %d, which is none",
                         (int)o->threshold);
    }
    if (o->threshold && (!o->codec.granularity || o->codec.asymmetric)) {
        return ceni_fail(CEN_ERR_INVALID, "options.threshold is set, and options.codec has %s",
                         o->codec.granularity ? "zero points" : "no scales");
    }
    if (o->threshold == CEN_THRESHOLD_ENTROPY && ceni_codec_is_fp8(o->codec.format)) {
        return ceni_fail(CEN_ERR_INVALID, "options.threshold: entropy is of int8 and int4");
    }
    if (o->threshold == CEN_THRESHOLD_PERCENTILE && !(o->percentile > 0 && o->percentile <= 100)) {
        return ceni_fail(CEN_ERR_INVALID, "options.percentile is %g; it is over 0 to 100",
                         o->percentile);
    }
    return CEN_OK;
}

static cen_status check_codec(const cen_quantize_options *o) {
    cen_status status = cen_codec_check(&o->codec);
    if (!status && !ceni_quantized_fits(&o->codec)) {
        return ceni_fail(CEN_ERR_INVALID, "options.codec has scales neither by rows nor by groups");
    }
    if (!status && o->codec.scales_given) {
        return ceni_fail(CEN_ERR_INVALID, "options.codec.scales_given is set, and none are given");
    }
    bool no_include = !o->include && o->include_count;
    if (no_include || (!o->exclude && o->exclude_count)) {
        return ceni_fail(CEN_ERR_INVALID, "options.%s is NULL, and options.%s_count is not 0",
                         no_include ? "include" : "exclude", no_include ? "include" : "exclude");
    }
    status = status ? status : check_threshold(o);
    cen_codec_sizes sizes; /* for the check of the budget that it begins with */
    return status ? status : cen_codec_budget_bound(&o->codec, &o->budget, CEN_FP32, 1, 1, &sizes);
}

static cen_status write_items(ceni_quantize_job *job) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < job->count && !status; i++) {
        const cen_tensor *tensor = cen_tensors_get(job->in, i);
        ceni_quantize_item *item = &job->items[i];
        switch (item->made) {
        case CENI_ENCODED:
            status = ceni_quantize_encode(job, tensor, item);
            break;
        case CENI_DECODED:
            status = ceni_quantize_decode(job, tensor, item);
            break;
        case CENI_KEPT:
            status = ceni_quantize_copy(job, tensor, item);
            break;
        case CENI_LEFT_OUT:
            break;
        }
    }
    return status;
}

static cen_status write_out(ceni_quantize_job *job) {
    cen_status status = ceni_quantize_lay_out(job);
    if (!status) {
        status = cen_tensor_writer_open(job->out, job->specs, job->spec_count, job->notes,
                                        job->note_count, &job->writer);
    }
    if (status) {
        return status;
    }
    status = write_items(job);
    if (status) {
        cen_tensor_writer_drop(job->writer);
        return status;
    }
    return cen_tensor_writer_finish(job->writer);
}

/* What an encoded tensor does not hold, and its figures do not count. */
static void warn_of_lost(const cen_quantize_row *row) {
    const char *name = row->tensor->name;
    const cen_codec *codec = &row->codec;
    bool integers = ceni_codec_is_int(codec->format), fp8 = ceni_codec_is_fp8(codec->format);
    if (row->report.nan && integers) {
        ceni_log(CEN_LOG_WARN, "tensor '%.200s': %" PRIu64 " NaNs became 0", name, row->report.nan);
    }
    if (row->report.infinite && (integers || fp8) && codec->overflow != CEN_CODEC_NONFINITE) {
        ceni_log(CEN_LOG_WARN,
                 "tensor '%.200s': %" PRIu64 " infinities became the largest number that their "
                 "scale makes",
                 name, row->report.infinite);
    }
}

static void report(const ceni_quantize_job *job, cen_quantize_row *rows) {
    for (size_t i = 0; i < job->count; i++) {
        const ceni_quantize_item *item = &job->items[i];
        const cen_tensor *tensor = cen_tensors_get(job->in, i);
        const cen_codec_sizes *s = &item->sizes;
        cen_quantize_row row = {.tensor = tensor, .kept = item->why};
        if (item->made == CENI_ENCODED) {
            row.codec = item->q.codec;
            row.threshold = item->threshold;
            cen_codec_report_of(&item->sums, &row.report);
            row.bytes = s->values + s->scales + s->zeros + s->metadata;
        } else if (item->made == CENI_DECODED) {
            row.codec = item->q.codec;
            row.bytes = item->q.rows * item->q.cols * (cen_dtype_bits(item->q.dtype) / 8);
        } else if (item->made == CENI_KEPT) {
            row.bytes = tensor->bytes;
        }
        warn_of_lost(&row);
        rows[i] = row;
    }
}

static void free_job(ceni_quantize_job *job) {
    for (size_t i = 0; i < job->count && job->items; i++) {
        for (size_t n = 0; n < CENI_TEXTS; n++) {
            ceni_free(job->items[i].texts[n]);
        }
    }
    ceni_free(job->items);
    ceni_free(job->specs);
    ceni_free(job->notes);
}

static cen_status plan_decoding(ceni_quantize_job *job) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < job->count && !status; i++) {
        const cen_tensor *tensor = cen_tensors_get(job->in, i);
        ceni_quantize_item *item = &job->items[i];
        cen_status before = ceni_log_expect(CEN_ERR_NOT_FOUND);
        status = cen_quantized_find(job->in, tensor->name, &item->q);
        ceni_log_expect(before);
        bool part = cen_quantized_is_part(job->in, tensor);
        if (!status) {
            item->made = CENI_DECODED;
        } else if (status == CEN_ERR_NOT_FOUND) {
            item->made = part ? CENI_LEFT_OUT : CENI_KEPT;
            item->why = part ? "a part of a quantised one" : "not quantised";
            status = CEN_OK;
        }
    }
    return status;
}

static cen_status run(const cen_tensors *in, const char *out, const cen_quantize_options *options,
                      cen_status (*plan)(ceni_quantize_job *job), cen_quantize_row *rows) {
    ceni_quantize_job job = {
        .in = in, .out = out, .options = options, .count = cen_tensors_count(in)};
    for (size_t i = 0; i < job.count; i++) {
        job.total += cen_tensors_get(in, i)->bytes;
    }
    job.items = ceni_calloc(job.count, sizeof *job.items);
    cen_status status =
        job.items ? plan(&job)
                  : ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for %zu tensors", out, job.count);
    if (!status) {
        status = write_out(&job);
    }
    if (!status) {
        report(&job, rows);
    }
    free_job(&job);
    return status;
}

cen_status cen_quantize(const cen_tensors *in, const char *out, const cen_quantize_options *options,
                        cen_quantize_row *rows) {
    cen_status status = check(in, out, options, rows);
    if (!status) {
        status = check_codec(options);
    }
    return status ? status : run(in, out, options, ceni_quantize_plan, rows);
}

cen_status cen_dequantize(const cen_tensors *in, const char *out,
                          const cen_quantize_options *options, cen_quantize_row *rows) {
    cen_status status = check(in, out, options, rows);
    return status ? status : run(in, out, options, plan_decoding, rows);
}
