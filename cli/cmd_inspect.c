/* cenote inspect: what is in a tensor file. */
#include "cli/cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/tensors.h"

typedef struct arguments {
    const char *file;
    bool stats, json, plain, help;
} arguments;

static const char usage[] =
    "usage: cenote inspect FILE [--stats] [--json]\n"
    "\n"
    "Lists the tensors of a safetensors file, with type, shape and bytes, and its metadata. FILE "
    "may\n"
    "be the index of a model in several files (its name ends in .index.json): then each of them "
    "is\n"
    "checked, and compared with what the index says. Nothing in a file is trusted.\n"
    "\n"
    "  --stats  also reads every tensor: smallest, largest, mean, deviation, NaNs, zeros\n"
    "  --json   one JSON object; its keys are in docs/tensors.md\n";

static int parse(int argc, char **argv, arguments *args) {
    for (int i = 1; i < argc; i++) {
        if (cli_end_of_options(argv[i], &args->plain)) {
            continue;
        }
        if (cli_is_operand(argv[i], args->plain)) {
            if (args->file) {
                return cli_usage_error("inspect", "one FILE, not '%s' and '%s'", args->file,
                                       argv[i]);
            }
            args->file = argv[i];
        } else if (cli_common_option(argv[i], &args->help, &args->json)) {
            continue;
        } else if (!strcmp(argv[i], "--stats")) {
            args->stats = true;
        } else {
            return cli_stray_word("inspect", argv[i]);
        }
    }
    return args->file || args->help
               ? CLI_OK
               : cli_usage_error("inspect", "FILE is missing; --help says more");
}

/* The figures of each tensor, in its place; has none of those without numbers. */
typedef struct contents {
    const char *name;
    const cen_tensors *tensors;
    cen_tensor_stats *stats; /* NULL: not asked for */
    size_t count;
    uint64_t bytes;
} contents;

static int read_stats(contents *c) {
    c->stats = calloc(c->count ? c->count : 1, sizeof *c->stats);
    if (!c->stats) {
        return cli_failed("inspect", "%s", cen_status_text(CEN_ERR_HOST_MEMORY));
    }
    for (size_t i = 0; i < c->count; i++) {
        const cen_tensor *t = cen_tensors_get(c->tensors, i);
        if (t->dtype && cen_tensors_stats(c->tensors, t, &c->stats[i])) {
            return cli_failed("inspect", "%s", cli_reason(cen_log_last_error()));
        }
    }
    return CLI_OK;
}

/* ---- as text ---- */

static void print_stats(const cen_tensor *t, const cen_tensor_stats *s) {
    if (!t->dtype) {
        printf("  no figures: %s is kept as bytes", t->type);
    } else if (s->count > s->nan + s->infinite) {
        printf("  %12.6g %12.6g %12.6g %12.6g %12.6g", s->min, s->max, s->mean, s->std, s->absmax);
    } else {
        printf("  %12s %12s %12s %12s %12s", "-", "-", "-", "-", "-");
    }
    if (t->dtype) {
        printf(" %10" PRIu64 " %10" PRIu64 " %10" PRIu64, s->nan, s->infinite, s->zeros);
    }
}

static void print_tensors(const contents *c) {
    int name = 4, type = 4, shape = 5;
    for (size_t i = 0; i < c->count; i++) {
        const cen_tensor *t = cen_tensors_get(c->tensors, i);
        int n = cli_columns(tensors_text(t->name)), k = (int)strlen(t->type);
        int s = (int)strlen(tensors_shape(t->shape, t->rank));
        name = n > name ? n : name;
        type = k > type ? k : type;
        shape = s > shape ? s : shape;
    }
    printf("\n  %-*s  %-*s  %-*s  %15s", name, "name", type, "type", shape, "shape", "bytes");
    if (c->stats) {
        printf("  %12s %12s %12s %12s %12s %10s %10s %10s", "min", "max", "mean", "std", "absmax",
               "NaN", "inf", "zeros");
    }
    putchar('\n');
    for (size_t i = 0; i < c->count; i++) {
        const cen_tensor *t = cen_tensors_get(c->tensors, i);
        printf("  ");
        tensors_put(tensors_text(t->name), name);
        printf("  %-*s  %-*s  %15s", type, t->type, shape, tensors_shape(t->shape, t->rank),
               cli_grouped(t->bytes));
        if (c->stats) {
            print_stats(t, &c->stats[i]);
        }
        putchar('\n');
    }
}

static void print_notes(const cen_tensors *tensors) {
    size_t count = cen_tensors_note_count(tensors);
    printf(count ? "\nmetadata\n" : "\nno metadata\n");
    for (size_t i = 0; i < count; i++) {
        const cen_tensor_note *note = cen_tensors_get_note(tensors, i);
        printf("  %s: %s\n", tensors_text(note->key), tensors_text(note->value));
    }
}

static void print(const contents *c) {
    char name[CLI_NAME];
    size_t shards = cen_tensors_shard_count(c->tensors);
    uint64_t bytes = 0;
    for (size_t i = 0; i < shards; i++) {
        bytes += cen_tensors_get_shard(c->tensors, i)->bytes;
    }
    printf("%s: %s tensor%s of %s bytes, in %zu file%s of %s\n", c->name,
           cli_grouped((uint64_t)c->count), c->count == 1 ? "" : "s", cli_grouped(c->bytes), shards,
           shards == 1 ? "" : "s", cli_grouped(bytes));
    for (size_t i = 0; i < shards && shards > 1; i++) {
        const cen_tensor_shard *shard = cen_tensors_get_shard(c->tensors, i);
        printf("  %s  %s bytes\n", cli_base_name(shard->path, name), cli_grouped(shard->bytes));
    }
    if (c->count) {
        print_tensors(c);
    }
    print_notes(c->tensors);
}

/* ---- as JSON ---- */

static json_t *stats_json(const cen_tensor *t, const cen_tensor_stats *s) {
    if (!t->dtype) {
        return json_null();
    }
    bool any = s->count > s->nan + s->infinite;
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "min", any ? json_real(s->min) : json_null(),
        "max", any ? json_real(s->max) : json_null(), "mean",
        any ? tensors_real(s->mean) : json_null(), "std", any ? tensors_real(s->std) : json_null(),
        "absmax", any ? json_real(s->absmax) : json_null(), "nan", (json_int_t)s->nan, "infinite",
        (json_int_t)s->infinite, "zeros", (json_int_t)s->zeros);
}

static json_t *tensor_json(const contents *c, size_t i) {
    const cen_tensor *t = cen_tensors_get(c->tensors, i);
    json_t *made =
        json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:I}", "name", t->name, "type", t->type, "dtype",
                  t->dtype ? json_string(cen_dtype_name(t->dtype)) : json_null(), "shape",
                  tensors_shape_json(t->shape, t->rank), "bytes", (json_int_t)t->bytes, "offset",
                  (json_int_t)t->offset, "file", (json_int_t)t->shard);
    if (made && c->stats && json_object_set_new(made, "stats", stats_json(t, &c->stats[i]))) {
        json_decref(made);
        made = NULL;
    }
    return made;
}

static json_t *files_json(const cen_tensors *tensors) {
    json_t *list = json_array();
    char name[CLI_NAME];
    for (size_t i = 0; i < cen_tensors_shard_count(tensors); i++) {
        const cen_tensor_shard *s = cen_tensors_get_shard(tensors, i);
        cli_json_append(&list, json_pack("{s:s, s:I, s:I}", "name", cli_base_name(s->path, name),
                                         "bytes", (json_int_t)s->bytes, "header_bytes",
                                         (json_int_t)s->header_bytes));
    }
    return list;
}

static json_t *notes_json(const cen_tensors *tensors) {
    json_t *object = json_object();
    for (size_t i = 0; i < cen_tensors_note_count(tensors) && object; i++) {
        const cen_tensor_note *note = cen_tensors_get_note(tensors, i);
        if (json_object_set_new(object, note->key, json_string(note->value))) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static int print_json(const contents *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->count; i++) {
        cli_json_append(&list, tensor_json(c, i));
    }
    return cli_json_print("inspect",
                          json_pack("{s:s, s:o, s:I, s:o, s:o}", "name", c->name, "files",
                                    files_json(c->tensors), "tensor_bytes", (json_int_t)c->bytes,
                                    "metadata", notes_json(c->tensors), "tensors", list));
}

int cmd_inspect(int argc, char **argv) {
    arguments args = {0};
    cen_tensors *tensors = NULL;
    char name[CLI_NAME];
    int status = parse(argc, argv, &args);
    if (status || args.help) {
        fputs(args.help && !status ? usage : "", stdout);
        return status;
    }
    if (!tensors_open("inspect", args.file, &tensors)) {
        return CLI_FAILED;
    }
    contents c = {.name = cli_base_name(args.file, name),
                  .tensors = tensors,
                  .count = cen_tensors_count(tensors)};
    for (size_t i = 0; i < c.count; i++) {
        c.bytes += cen_tensors_get(tensors, i)->bytes;
    }
    if (args.stats) {
        status = read_stats(&c);
    }
    if (!status && args.json) {
        status = print_json(&c);
    } else if (!status) {
        print(&c);
    }
    free(c.stats);
    cen_tensors_close(tensors);
    return status;
}
