/* The results file made: its JSON, and how it is put where it belongs. */
#include "probe/results.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A JSON object in the making; NULL once memory ran out. What was not measured is left out. */
static void put(json_t **object, const char *key, json_t *value) {
    if (*object && (!value || json_object_set(*object, key, value))) {
        json_decref(*object);
        *object = NULL;
    }
    json_decref(value);
}

static void put_text(json_t **object, const char *key, const char *text) {
    if (*text) {
        put(object, key, json_string(text));
    }
}

static void put_whole(json_t **object, const char *key, uint64_t n) {
    if (n) {
        put(object, key, json_integer((json_int_t)n));
    }
}

static void put_real(json_t **object, const char *key, double n) {
    if (n > 0) {
        put(object, key, json_real(n));
    }
}

static void put_spread(json_t **object, const char *key, cen_probe_spread spread) {
    if (spread.low > 0) {
        put(object, key, json_pack("[f, f]", spread.low, spread.high));
    }
}

static json_t *level_json(const void *row) {
    const cen_probe_level *l = row;
    json_t *o = json_object();
    put_text(&o, "level", l->level);
    put_whole(&o, "capacity_bytes", l->capacity_bytes);
    put_whole(&o, "unit_bytes", l->unit_bytes);
    put_real(&o, "latency_ns", l->latency_ns);
    put_spread(&o, "latency_spread", l->latency_spread);
    put_real(&o, "latency_cycles", l->latency_cycles);
    put_real(&o, "bandwidth_gbps", l->bandwidth_gbps);
    put_spread(&o, "bandwidth_spread", l->bandwidth_spread);
    put_real(&o, "peak_gbps", l->peak_gbps);
    put_real(&o, "picojoules_per_byte", l->picojoules_per_byte);
    return o;
}

static json_t *skipped_json(const void *row) {
    const cen_probe_skipped *s = row;
    return json_pack("{s:s, s:s}", "level", s->level, "reason", s->reason);
}

static json_t *rate_json(const void *row) {
    const cen_probe_rate *r = row;
    return json_pack("{s:s, s:f}", "dtype", r->dtype, "flops", r->flops);
}

static json_t *transfer_json(const void *row) {
    const cen_probe_transfer *t = row;
    json_t *o = json_object();
    put_text(&o, "level", t->level);
    put_text(&o, "access", t->access);
    put_whole(&o, "threads", t->threads);
    put_whole(&o, "bytes", t->bytes);
    put_real(&o, "gbps", t->gbps);
    put_spread(&o, "spread", t->spread);
    return o;
}

static json_t *step_json(const void *row) {
    const cen_probe_step *s = row;
    json_t *o = json_object();
    put_whole(&o, "bytes", s->bytes);
    put_real(&o, "ns", s->ns);
    put_spread(&o, "spread", s->spread);
    return o;
}

/* `count` rows of `size` bytes. */
static json_t *list_json(const void *rows, size_t count, size_t size,
                         json_t *(*row_json)(const void *row)) {
    json_t *list = json_array();
    for (size_t i = 0; i < count && list; i++) {
        json_t *row = row_json((const char *)rows + i * size);
        if (!row || json_array_append_new(list, row)) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *device_json(const cen_probe_device *d) {
    json_t *o = json_object();
    put_text(&o, "name", d->name);
    put_whole(&o, "multiprocessors", d->multiprocessors);
    put_whole(&o, "page_bytes", d->page_bytes);
    put(&o, "levels", list_json(d->levels, d->level_count, sizeof *d->levels, level_json));
    put(&o, "skipped", list_json(d->skipped, d->skipped_count, sizeof *d->skipped, skipped_json));
    put(&o, "rates", list_json(d->rates, d->rate_count, sizeof *d->rates, rate_json));
    put(&o, "transfers",
        list_json(d->transfers, d->transfer_count, sizeof *d->transfers, transfer_json));
    put(&o, "steps", list_json(d->steps, d->step_count, sizeof *d->steps, step_json));
    return o;
}

/* With 15 digits a number of fewer is read back as it was; figures have 6 (ceni_probe_figure). */
static cen_status make_text(const cen_probe *probe, size_t flags, char **text) {
    json_t *root = json_object(), *devices = json_array();
    for (size_t i = 0; i < probe->device_count && devices; i++) {
        json_t *device = device_json(&probe->devices[i]);
        if (!device || json_array_append_new(devices, device)) {
            json_decref(devices);
            devices = NULL;
        }
    }
    put_text(&root, "date", probe->date);
    if (probe->quick) {
        put(&root, "quick", json_true());
    }
    put(&root, "devices", devices);
    char *made = root ? json_dumps(root, flags | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_probe_json: no memory for the text");
    }
    *text = made;
    return CEN_OK;
}

cen_status cen_probe_json(const cen_probe *probe, char **text) {
    if (!probe || !text) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_json: %s is NULL", probe ? "text" : "probe");
    }
    return make_text(probe, JSON_COMPACT, text);
}

/* The folders of a path, made as far as they are missing. What cannot be made shows when the file
 * is. */
static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) && errno != EEXIST) {
            ceni_log(CEN_LOG_DEBUG, "%s: cannot be made: %s", path, strerror(errno));
        }
        *slash = '/';
    }
}

/* The text as a line. */
static cen_status replace(const char *path, const char *text) {
    size_t size = strlen(text);
    char *line = ceni_malloc(size + 1);
    if (!line) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory to write it", path);
    }
    memcpy(line, text, size);
    line[size] = '\n';
    cen_status status = ceni_file_replace(path, line, size + 1);
    ceni_free(line);
    return status;
}

cen_status cen_probe_write(const cen_probe *probe, const char *path) {
    char kept[4096], *text = NULL;
    if (!probe) {
        return ceni_fail(CEN_ERR_INVALID, "cen_probe_write: probe is NULL");
    }
    if (!path) {
        cen_status status = cen_probe_path(kept, sizeof kept);
        if (status) {
            return status;
        }
        make_folders(kept);
        path = kept;
    }
    cen_status status = make_text(probe, JSON_INDENT(1), &text);
    if (!status) {
        status = replace(path, text);
        free(text);
    }
    return status;
}
