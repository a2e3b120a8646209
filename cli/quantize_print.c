/* What `cenote quantize` did, as text and as JSON. */
#include "cli/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"

static const char *scales_of(const cen_codec *codec, char text[32]) {
    if (codec->granularity == CEN_CODEC_GROUP) {
        snprintf(text, 32, "group of %" PRIu32, codec->group);
        return text;
    }
    return codec->granularity == CEN_CODEC_ROW ? "row" : NULL;
}

static int by_damage(const void *a, const void *b) {
    const cen_quantize_row *x = a, *y = b;
    if (!x->kept != !y->kept) {
        return x->kept ? 1 : -1;
    }
    if (x->report.sqnr_db < y->report.sqnr_db || x->report.sqnr_db > y->report.sqnr_db) {
        return x->report.sqnr_db < y->report.sqnr_db ? -1 : 1;
    }
    return strcmp(x->tensor->name, y->tensor->name);
}

static int by_reason(const void *a, const void *b) {
    const cen_quantize_row *x = a, *y = b;
    return strcmp(x->kept, y->kept);
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100 * (double)part / (double)whole : 100;
}

static void print_worst(const quantize_result *r, size_t count) {
    int name = 4;
    for (size_t i = 0; i < count; i++) {
        int n = cli_columns(tensors_text(r->rows[i].tensor->name));
        name = n > name ? n : name;
    }
    printf("\n  %-*s  %-13s %8s %12s %11s %15s %15s\n", name, "worst", "format", "SQNR dB",
           "max error", "cosine", "bytes before", "after");
    for (size_t i = 0; i < count; i++) {
        const cen_quantize_row *row = &r->rows[i];
        printf("  ");
        tensors_put(tensors_text(row->tensor->name), name);
        printf("  %-13s %8.2f %12.6g %11.8f %15s", cen_codec_format_name(row->codec.format),
               row->report.sqnr_db, row->report.max_error, row->report.cosine,
               cli_grouped(row->tensor->bytes));
        printf(" %15s\n", cli_grouped(row->bytes));
    }
}

/* Those that stay, counted by why; they are at the end of the rows. */
static void print_kept(cen_quantize_row *kept, size_t count) {
    if (count) {
        qsort(kept, count, sizeof *kept, by_reason);
    }
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && !strcmp(kept[i].kept, kept[i + n].kept);) {
            n++;
        }
        printf("  %zu kept: %s\n", n, kept[i].kept);
    }
}

void quantize_print(const quantize_result *r, size_t top) {
    char text[32];
    size_t made = 0;
    uint64_t before = 0, after = 0;
    if (r->count) {
        qsort(r->rows, r->count, sizeof *r->rows, by_damage);
    }
    for (size_t i = 0; i < r->count; i++) {
        made += !r->rows[i].kept;
        before += r->rows[i].tensor->bytes;
        after += r->rows[i].bytes;
    }
    const char *scales = r->codec ? scales_of(r->codec, text) : NULL;
    printf("%s -> %s: %s%s%s%s%s%s\n", r->in, r->out,
           r->codec ? cen_codec_format_name(r->codec->format) : "decoded",
           scales ? ", a scale each " : "", scales ? scales : "",
           r->codec && r->codec->asymmetric ? ", zero points" : "", r->calibrate ? ", cut by " : "",
           r->calibrate ? r->calibrate : "");
    printf("  %zu of %zu tensors %s\n", made, r->count, r->codec ? "encoded" : "decoded");
    printf("  tensors %s -> %s bytes, %.1f %%\n", cli_grouped(before), cli_grouped(after),
           share(after, before));
    printf("  files   %s -> %s bytes, %.1f %%\n", cli_grouped(r->file_before),
           cli_grouped(r->file_after), share(r->file_after, r->file_before));
    print_kept(r->rows + made, r->count - made);
    if (made && r->codec && top) {
        print_worst(r, made < top ? made : top);
    }
}

static json_t *report_json(const cen_codec_report *r) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "sqnr_db",
                     tensors_real(r->sqnr_db), "max_error", tensors_real(r->max_error),
                     "mean_error", tensors_real(r->mean_error), "mse", tensors_real(r->mse),
                     "cosine", tensors_real(r->cosine), "nan", (json_int_t)r->nan, "infinite",
                     (json_int_t)r->infinite, "saturated", (json_int_t)r->saturated, "overflowed",
                     (json_int_t)r->overflowed, "underflowed", (json_int_t)r->underflowed);
}

static json_t *row_json(const quantize_result *r, const cen_quantize_row *row) {
    char text[32];
    const char *scales = row->kept ? NULL : scales_of(&row->codec, text);
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "name", row->tensor->name, "kept",
        row->kept ? json_string(row->kept) : json_null(), "format",
        row->kept ? json_null() : json_string(cen_codec_format_name(row->codec.format)), "scales",
        scales ? json_string(scales) : json_null(), "threshold",
        row->threshold > 0 ? json_real((double)row->threshold) : json_null(), "bytes_before",
        (json_int_t)row->tensor->bytes, "bytes_after", (json_int_t)row->bytes, "error",
        row->kept || !r->codec ? json_null() : report_json(&row->report));
}

int quantize_print_json(const quantize_result *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++) {
        cli_json_append(&list, row_json(r, &r->rows[i]));
    }
    return cli_json_print(
        "quantize", json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "in", r->in, "out", r->out,
                              "format", r->codec ? cen_codec_format_name(r->codec->format) : "none",
                              "calibrate", r->calibrate ? r->calibrate : "minmax",
                              "file_bytes_before", (json_int_t)r->file_before, "file_bytes_after",
                              (json_int_t)r->file_after, "tensors", list));
}
