/* cenote compare: how far the tensors of one file are from those of another. */
#include "cli/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tensors.h"

/* As cmp and diff: 1 is what the comparison came to. */
enum { COMPARE_EXIT_SAME = 0, COMPARE_EXIT_DIFFER = 1, COMPARE_EXIT_TROUBLE = 2 };

typedef struct arguments {
    const char *files[2];
    int count;
    double tolerance, sqnr;
    bool has_tolerance, has_sqnr, json, plain, help;
    uint64_t top;
} arguments;

static const char usage[] =
    "usage: cenote compare A B [--tolerance E] [--sqnr DB] [--top N] [--json]\n"
    "\n"
    "Says of each tensor of the safetensors file A how far that of the same name in B is from it:\n"
    "largest error, mean squared error, ratio of signal to error and cosine; and which are "
    "missing,\n"
    "or of another shape. Types need not be the same, and what 'cenote quantize' made is decoded\n"
    "first. A and B may be indices of models in several files.\n"
    "\n"
    "  --tolerance E  elements that are no more than E apart count as the same\n"
    "  --sqnr DB      tensors whose error is DB decibels below their signal count as the same\n"
    "  --top N        lists the N worst tensors; 20 if not given\n"
    "  --json         one JSON object with all tensors; its keys are in docs/tensors.md\n"
    "\n"
    "Exit status: 0 the same, 1 they differ, 2 it failed or the call's words are off.\n";

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    const char *value;
    if (cli_end_of_options(argv[*i], &args->plain)) {
        return CLI_OK;
    }
    if (cli_is_operand(argv[*i], args->plain)) {
        if (args->count == 2) {
            return cli_usage_error("compare", "two files, A and B; '%s' is one too many", argv[*i]);
        }
        args->files[args->count++] = argv[*i];
    } else if (cli_common_option(argv[*i], &args->help, &args->json)) {
        return CLI_OK;
    } else if ((value = cli_option_value("--tolerance", argc, argv, i))) {
        args->has_tolerance = true;
        return cli_amount_option("compare", "--tolerance", value, "an error", "1e-3",
                                 &args->tolerance);
    } else if ((value = cli_option_value("--sqnr", argc, argv, i))) {
        args->has_sqnr = true;
        return cli_amount_option("compare", "--sqnr", value, "decibels", "30", &args->sqnr);
    } else if ((value = cli_option_value("--top", argc, argv, i))) {
        return cli_whole_option("compare", "--top", value, 0, INT32_MAX, &args->top);
    } else {
        return cli_stray_word("compare", argv[*i]);
    }
    return CLI_OK;
}

static int parse(int argc, char **argv, arguments *args) {
    int status = CLI_OK;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, args);
    }
    if (!status && !args->help && args->count < 2) {
        status = cli_usage_error("compare", "A and B are needed; --help says more");
    }
    return status;
}

/* How a tensor is quantised, which stays zero if it is not. */
static cen_status look_up(const cen_tensors *in, const cen_tensor *t, cen_quantized *decoded) {
    cen_status status = t ? cen_quantized_find(in, t->name, decoded) : CEN_OK;
    return status == CEN_ERR_NOT_FOUND ? CEN_OK : status;
}

static bool same_shape(const compare_row *row) {
    uint32_t n = 0, m = 0;
    const uint64_t *x = compare_shape(row, 0, &n), *y = compare_shape(row, 1, &m);
    return n == m && (!n || !memcmp(x, y, n * sizeof *x));
}

static compare_kind judge(const arguments *args, const cen_tensor_difference *d) {
    bool limited = args->has_tolerance || args->has_sqnr;
    if (!d->different) {
        return COMPARE_SAME;
    }
    if (!limited || !d->numeric || d->nonfinite) {
        return COMPARE_DIFFERS;
    }
    bool off = (args->has_tolerance && d->max_error > args->tolerance) ||
               (args->has_sqnr && d->sqnr_db < args->sqnr);
    return off ? COMPARE_DIFFERS : COMPARE_WITHIN;
}

static cen_status compare_pair(const arguments *args, const cen_tensors *a, const cen_tensors *b,
                               compare_row *row) {
    if (!same_shape(row)) {
        row->kind = COMPARE_SHAPE;
        return CEN_OK;
    }
    cen_status status = cen_tensors_compare(a, row->a, b, row->b, &row->difference);
    row->kind = status ? COMPARE_TYPES : judge(args, &row->difference);
    return status == CEN_ERR_UNSUPPORTED ? CEN_OK : status;
}

/* Fills the row of tensors that are there in one file or in both. */
static cen_status compare_row_of(const arguments *args, const cen_tensors *a, const cen_tensors *b,
                                 compare_row *row) {
    cen_status status = look_up(a, row->a, &row->decoded[0]);
    status = status ? status : look_up(b, row->b, &row->decoded[1]);
    if (!status && row->a && row->b) {
        return compare_pair(args, a, b, row);
    }
    row->kind = row->a ? COMPARE_ONLY_A : COMPARE_ONLY_B;
    return status;
}

/* Scales and the like are compared by what they make of the tensor that they belong to. */
static bool stands_alone(const cen_tensors *in, const cen_tensor *t) {
    return !cen_quantized_is_part(in, t);
}

static cen_status compare_all(const arguments *args, const cen_tensors *a, const cen_tensors *b,
                              compare_result *result) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < cen_tensors_count(a) && !status; i++) {
        const cen_tensor *t = cen_tensors_get(a, i);
        if (stands_alone(a, t)) {
            compare_row *row = &result->rows[result->count++];
            *row = (compare_row){.a = t, .b = cen_tensors_find(b, t->name)};
            status = compare_row_of(args, a, b, row);
        }
    }
    for (size_t i = 0; i < cen_tensors_count(b) && !status; i++) {
        const cen_tensor *t = cen_tensors_get(b, i);
        if (stands_alone(b, t) && !cen_tensors_find(a, t->name)) {
            compare_row *row = &result->rows[result->count++];
            *row = (compare_row){.b = t};
            status = compare_row_of(args, a, b, row);
        }
    }
    result->same = true;
    for (size_t i = 0; i < result->count; i++) {
        result->same &= result->rows[i].kind <= COMPARE_WITHIN;
    }
    return status;
}

static int trouble(const char *why) {
    cli_failed("compare", "%s", cli_reason(why));
    return COMPARE_EXIT_TROUBLE;
}

static int report(const arguments *args, const cen_tensors *a, const cen_tensors *b) {
    char name_a[CLI_NAME], name_b[CLI_NAME];
    size_t most = cen_tensors_count(a) + cen_tensors_count(b);
    compare_result result = {.name_a = cli_base_name(args->files[0], name_a),
                             .name_b = cli_base_name(args->files[1], name_b),
                             .rows = calloc(most + 1, sizeof *result.rows)};
    if (!result.rows) {
        return trouble(cen_status_text(CEN_ERR_HOST_MEMORY));
    }
    int status = compare_all(args, a, b, &result) ? trouble(cen_log_last_error()) : 0;
    if (!status && args->json) {
        status = compare_print_json(&result) ? COMPARE_EXIT_TROUBLE : 0;
    } else if (!status) {
        compare_print(&result, (size_t)args->top);
    }
    free(result.rows);
    return status ? status : result.same ? COMPARE_EXIT_SAME : COMPARE_EXIT_DIFFER;
}

int cmd_compare(int argc, char **argv) {
    arguments args = {.top = 20};
    cen_tensors *a = NULL, *b = NULL;
    int status = parse(argc, argv, &args);
    if (status || args.help) {
        fputs(args.help && !status ? usage : "", stdout);
        return status;
    }
    status = COMPARE_EXIT_TROUBLE;
    if (tensors_open("compare", args.files[0], &a) && tensors_open("compare", args.files[1], &b)) {
        status = report(&args, a, b);
    }
    cen_tensors_close(a);
    cen_tensors_close(b);
    return status;
}
