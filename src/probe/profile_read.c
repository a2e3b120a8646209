/* A recording of ncu's taken apart: launches, which are gathered by kernel, shape and device.
 *
 * Two tables are read. Of the raw page a line is a launch and a column a counter, with a line of
 * units below the names; of the details page a line is a counter, and those of a launch have its
 * number. Lines around the table are ncu's own ("==PROF== ...") or the program's. */
#include "probe/profile.h"

#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum column { ID, PROCESS, KERNEL, BLOCK, GRID, DEVICE, METRIC, UNIT, VALUE, COLUMNS };
static const char *const names[COLUMNS] = {"ID",          "Process ID",  "Kernel Name",
                                           "Block Size",  "Grid Size",   "Device",
                                           "Metric Name", "Metric Unit", "Metric Value"};

enum { DEVICE_MAX = 9999 };

/* A launch while it is read. */
typedef struct launch {
    bool there;
    char id[64], process[64], kernel[CENI_PROFILE_NAME], grid[48], block[48];
    uint32_t device;
    size_t counter[CENI_TERMS]; /* that gave the value; ceni_counter_count: none */
    double value[CENI_TERMS];
    char odd[CENI_TERMS][32]; /* what was in its place */
} launch;

typedef struct reading {
    ceni_csv csv;
    cen_profile *profile;
    ceni_map map;          /* from a hash to the first row that has it */
    size_t place[COLUMNS]; /* which field a column is; SIZE_MAX: none */
    size_t *counters;      /* of the raw page, for each field */
    char **units;
    size_t header_count;
    bool quoted; /* so are all lines of the table */
    bool units_next;
    char error[256]; /* ncu's first */
    bool says;       /* there is a line of ncu's own */
    bool forbidden;
    launch launch;
} reading;

const char *ceni_profile_text(cen_profile *profile, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = ceni_strdup(text);
    if (!copy || ceni_grow(&profile->texts, &profile->text_capacity, profile->text_count + 1,
                           sizeof *profile->texts)) {
        ceni_free(copy);
        profile->failed = true;
        return "";
    }
    return profile->texts[profile->text_count++] = copy;
}

static cen_status no_memory(const reading *r) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its kernels", r->csv.name);
}

/* ---- rows ---- */

static uint64_t hash(uint64_t h, const char *text) {
    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return h * UINT64_C(31) + 1;
}

static bool is_row(const ceni_profile_row *row, const launch *l) {
    return row->out.device == l->device && !strcmp(row->out.kernel, l->kernel) &&
           !strcmp(row->out.grid, l->grid) && !strcmp(row->out.block, l->block);
}

static ceni_profile_row *make_row(reading *r, uint64_t key, ceni_profile_row *next) {
    cen_profile *p = r->profile;
    ceni_profile_row *row = ceni_calloc(1, sizeof *row);
    char *name = ceni_strdup(r->launch.kernel);
    if (!row || !name || ceni_grow(&p->rows, &p->capacity, p->count + 1, sizeof(void *)) ||
        ceni_map_put(&r->map, key, (uint64_t)(uintptr_t)row)) {
        ceni_free(row);
        ceni_free(name);
        return NULL;
    }
    row->name = name;
    row->next = next;
    row->out.kernel = name;
    row->out.device = r->launch.device;
    memcpy(row->out.grid, r->launch.grid, sizeof row->out.grid);
    memcpy(row->out.block, r->launch.block, sizeof row->out.block);
    return p->rows[p->count++] = row;
}

static cen_status find_row(reading *r, ceni_profile_row **found) {
    const launch *l = &r->launch;
    uint64_t key = hash(hash(hash(l->device, l->kernel), l->grid), l->block);
    const uint64_t *first = ceni_map_get(&r->map, key);
    ceni_profile_row *row = first ? (ceni_profile_row *)(uintptr_t)*first : NULL, *head = row;
    while (row && !is_row(row, l)) {
        row = row->next;
    }
    if (!row && r->profile->count == CENI_PROFILE_ROWS) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: line %zu: more than %d kernels in different shapes",
                         r->csv.name, r->csv.line, (int)CENI_PROFILE_ROWS);
    }
    row = row ? row : make_row(r, key, head);
    *found = row;
    return row ? CEN_OK : no_memory(r);
}

static void add_term(ceni_sum *sum, const launch *l, ceni_term term) {
    if (l->counter[term] < ceni_counter_count) {
        bool timed = l->counter[CENI_TIME] < ceni_counter_count;
        sum->known++;
        sum->total += l->value[term];
        sum->timed += timed ? l->value[term] * l->value[CENI_TIME] : 0;
    } else if (!*sum->odd) {
        memcpy(sum->odd, l->odd[term], sizeof sum->odd);
    }
}

static cen_status end_launch(reading *r) {
    ceni_profile_row *row;
    if (!r->launch.there) {
        return CEN_OK;
    }
    cen_status status = find_row(r, &row);
    for (size_t t = 0; t < CENI_TERMS && !status; t++) {
        add_term(&row->sums[t], &r->launch, (ceni_term)t);
    }
    if (!status) {
        row->out.launches++;
    }
    r->launch.there = false;
    return status;
}

static const char *column(const reading *r, enum column c) {
    return ceni_csv_field(&r->csv, r->place[c]);
}

/* A device's number; where the recording does not tell, 0. */
static cen_status read_device(const reading *r, uint32_t *device) {
    const char *text = column(r, DEVICE);
    size_t digits = strspn(text, "0123456789");
    unsigned long number = strtoul(text, NULL, 10);
    if (text[digits] || digits > 9 || number > DEVICE_MAX) {
        char said[32];
        snprintf(said, sizeof said, "%s", text);
        ceni_clean_text(said);
        return ceni_fail(CEN_ERR_FORMAT,
                         "%s: line %zu: Device: '%s' is not the number of a device, 0 to %d",
                         r->csv.name, r->csv.line, said, DEVICE_MAX);
    }
    *device = (uint32_t)number;
    return CEN_OK;
}

static cen_status begin_launch(reading *r) {
    launch *l = &r->launch;
    *l = (launch){.there = true};
    for (size_t t = 0; t < CENI_TERMS; t++) {
        l->counter[t] = ceni_counter_count;
    }
    snprintf(l->id, sizeof l->id, "%s", column(r, ID));
    snprintf(l->process, sizeof l->process, "%s", column(r, PROCESS));
    snprintf(l->kernel, sizeof l->kernel, "%s", column(r, KERNEL));
    snprintf(l->grid, sizeof l->grid, "%s", column(r, GRID));
    snprintf(l->block, sizeof l->block, "%s", column(r, BLOCK));
    ceni_clean_text(l->kernel);
    ceni_clean_text(l->grid);
    ceni_clean_text(l->block);
    return read_device(r, &l->device);
}

static void set_counter(launch *l, size_t counter, const char *value, const char *unit) {
    ceni_term term = ceni_counters[counter].term;
    double number;
    if (counter >= l->counter[term]) { /* another name of it was there */
        return;
    }
    if (ceni_counter_parse(counter, value, unit, &number)) {
        l->counter[term] = counter;
        l->value[term] = number;
    } else if (!*l->odd[term]) {
        bool is_number = ceni_counter_parse(counter, value, "", &number);
        snprintf(l->odd[term], sizeof l->odd[term], "%.15s%s%.14s", *value ? value : "nothing",
                 is_number ? " " : "", is_number ? unit : "");
        ceni_clean_text(l->odd[term]);
    }
}

/* ---- tables ---- */

static void forget_header(reading *r) {
    for (size_t i = 0; i < r->header_count; i++) {
        ceni_free(r->units ? r->units[i] : NULL);
    }
    ceni_free(r->units);
    ceni_free(r->counters);
    r->units = NULL;
    r->counters = NULL;
    r->header_count = 0;
}

static bool is_header(const reading *r) {
    bool id = false, kernel = false;
    for (size_t i = 0; i < r->csv.count; i++) {
        id = id || !strcmp(ceni_csv_field(&r->csv, i), names[ID]);
        kernel = kernel || !strcmp(ceni_csv_field(&r->csv, i), names[KERNEL]);
    }
    return id && kernel;
}

static cen_status take_header(reading *r) {
    size_t count = r->csv.count;
    forget_header(r);
    for (size_t c = 0; c < COLUMNS; c++) {
        r->place[c] = SIZE_MAX;
        for (size_t i = 0; i < count && r->place[c] == SIZE_MAX; i++) {
            r->place[c] = strcmp(ceni_csv_field(&r->csv, i), names[c]) ? SIZE_MAX : i;
        }
    }
    r->counters = ceni_calloc(count, sizeof *r->counters);
    r->units = ceni_calloc(count, sizeof *r->units);
    if (!r->counters || !r->units) {
        return no_memory(r);
    }
    r->header_count = count;
    for (size_t i = 0; i < count; i++) {
        r->counters[i] = ceni_counter_find(ceni_csv_field(&r->csv, i));
    }
    r->units_next = true;
    return CEN_OK;
}

static bool is_details(const reading *r) {
    return r->place[METRIC] != SIZE_MAX && r->place[VALUE] != SIZE_MAX;
}

/* Below the names of the raw page: a line without a launch's number. */
static cen_status take_units(reading *r) {
    for (size_t i = 0; i < r->header_count; i++) {
        if (r->counters[i] < ceni_counter_count) {
            r->units[i] = ceni_strdup(ceni_csv_field(&r->csv, i));
            if (!r->units[i]) {
                return no_memory(r);
            }
        }
    }
    return CEN_OK;
}

static cen_status take_details(reading *r) {
    launch *l = &r->launch;
    bool same =
        l->there && !strcmp(l->id, column(r, ID)) && !strcmp(l->process, column(r, PROCESS));
    cen_status status = same ? CEN_OK : end_launch(r);
    if (status) {
        return status;
    }
    status = same ? CEN_OK : begin_launch(r);
    if (status) {
        return status;
    }
    size_t counter = ceni_counter_find(column(r, METRIC));
    if (counter < ceni_counter_count) {
        set_counter(l, counter, column(r, VALUE), column(r, UNIT));
    }
    return CEN_OK;
}

static cen_status take_raw(reading *r) {
    cen_status status = begin_launch(r);
    if (status) {
        return status;
    }
    for (size_t i = 0; i < r->header_count; i++) {
        if (r->counters[i] < ceni_counter_count) {
            set_counter(&r->launch, r->counters[i], ceni_csv_field(&r->csv, i),
                        r->units[i] ? r->units[i] : "");
        }
    }
    return end_launch(r);
}

static cen_status take_record(reading *r) {
    if (is_header(r)) {
        cen_status status = end_launch(r);
        return status ? status : take_header(r);
    }
    if (!r->header_count) {
        return CEN_OK; /* a line of the program's */
    }
    if (r->csv.count != r->header_count) {
        bool last = r->csv.at == r->csv.end && r->csv.count < r->header_count;
        return ceni_fail(last ? CEN_ERR_TRUNCATED : CEN_ERR_FORMAT,
                         "%s: line %zu: %zu fields; the table's head has %zu%s", r->csv.name,
                         r->csv.line, r->csv.count, r->header_count,
                         last ? "; the file is cut off, as by a full disk" : "");
    }
    bool first = r->units_next;
    r->units_next = false;
    if (is_details(r)) {
        return take_details(r);
    }
    return first && !*column(r, ID) ? take_units(r) : take_raw(r);
}

/* ---- lines around them ---- */

/* "==ERROR== ...": the first is kept for the message of a recording without kernels. */
static void take_message(reading *r) {
    static const char error[] = "==ERROR== ";
    const char *line = r->csv.at;
    const char *end = memchr(line, '\n', (size_t)(r->csv.end - line));
    size_t size = (size_t)((end ? end : r->csv.end) - line);
    r->says = true;
    r->forbidden = r->forbidden || memmem(line, size, "ERR_NVGPUCTRPERM", 16);
    if (!*r->error && size > sizeof error && !memcmp(line, error, sizeof error - 1)) {
        size -= sizeof error - 1;
        size = size < sizeof r->error ? size : sizeof r->error - 1;
        memcpy(r->error, line + sizeof error - 1, size);
        r->error[size] = '\0';
        ceni_join_lines(r->error);
        ceni_clean_text(r->error);
    }
}

static bool starts(const ceni_csv *csv, const char *text) {
    size_t size = strlen(text);
    return (size_t)(csv->end - csv->at) >= size && !memcmp(csv->at, text, size);
}

/* Whether what follows is a record: before the head of a table only that is. */
static bool is_record(reading *r) {
    const ceni_csv *csv = &r->csv;
    if (!r->header_count) {
        r->quoted = starts(csv, "\"ID\",");
        return r->quoted || starts(csv, "ID,");
    }
    return r->quoted ? *csv->at == '"' : *csv->at != '\n' && *csv->at != '\r';
}

static cen_status read_all(reading *r) {
    cen_status status = CEN_OK;
    while (!status && r->csv.at < r->csv.end) {
        if (starts(&r->csv, "==")) {
            take_message(r);
            ceni_csv_skip_line(&r->csv);
        } else if (!is_record(r)) {
            ceni_csv_skip_line(&r->csv);
        } else {
            status = ceni_csv_next(&r->csv);
            status = status ? status : take_record(r);
        }
    }
    return status ? status : end_launch(r);
}

/* ---- the whole ---- */

static int by_time(const void *a, const void *b) {
    const ceni_profile_row *const *x = a, *const *y = b;
    const cen_profile_row *p = &(*x)->out, *q = &(*y)->out;
    double s = p->figures[CEN_PROFILE_SECONDS].value, t = q->figures[CEN_PROFILE_SECONDS].value;
    if (s < t || s > t) {
        return s < t ? 1 : -1;
    }
    int order = strcmp(p->kernel, q->kernel);
    order = order ? order : strcmp(p->grid, q->grid);
    order = order ? order : strcmp(p->block, q->block);
    return order ? order : (p->device > q->device) - (p->device < q->device);
}

static void share_time(cen_profile *profile) {
    double all = 0;
    for (size_t i = 0; i < profile->count; i++) {
        const cen_profile_value *seconds = &profile->rows[i]->out.figures[CEN_PROFILE_SECONDS];
        all = seconds->missing ? NAN : all + seconds->value;
    }
    for (size_t i = 0; i < profile->count && all > 0; i++) {
        cen_profile_row *row = &profile->rows[i]->out;
        row->time_share = row->figures[CEN_PROFILE_SECONDS].value / all;
    }
}

static cen_status finish(reading *r) {
    cen_profile *p = r->profile;
    if (!p->count && r->forbidden) {
        return ceni_fail(CEN_ERR_PERMISSION, "%s: ncu may not count (ERR_NVGPUCTRPERM)",
                         r->csv.name);
    }
    if (!p->count && !r->header_count && !r->says) {
        return ceni_fail(
            CEN_ERR_FORMAT,
            "%s: no recording: neither a table as 'ncu --csv --page raw' writes it nor "
            "a line of ncu's own",
            r->csv.name);
    }
    if (!p->count) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "%s: no kernel was profiled%s%s", r->csv.name,
                         *r->error ? "; ncu: " : "", r->error);
    }
    for (size_t i = 0; i < p->count; i++) {
        ceni_profile_figure(p, p->rows[i]);
        ceni_profile_judge(p, p->rows[i]);
    }
    if (p->failed) {
        return no_memory(r);
    }
    qsort(p->rows, p->count, sizeof(void *), by_time);
    share_time(p);
    return CEN_OK;
}

cen_status cen_profile_read_memory(const char *name, const void *data, size_t size,
                                   cen_profile **profile) {
    if (!name || !data || !profile) {
        return ceni_fail(CEN_ERR_INVALID, "cen_profile_read_memory: %s is NULL",
                         !name   ? "name"
                         : !data ? "data"
                                 : "profile");
    }
    if (!size) {
        return ceni_fail(CEN_ERR_TRUNCATED, "%s: the file is empty", name);
    }
    reading *r = ceni_calloc(1, sizeof *r);
    cen_profile *made = ceni_calloc(1, sizeof *made);
    if (!r || !made) {
        ceni_free(r);
        ceni_free(made);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its kernels", name);
    }
    r->csv = (ceni_csv){.name = name, .at = data, .end = (const char *)data + size};
    r->profile = made;
    cen_status status = read_all(r);
    status = status ? status : finish(r);
    forget_header(r);
    ceni_csv_free(&r->csv);
    ceni_map_free(&r->map);
    ceni_free(r);
    if (status) {
        cen_profile_free(made);
        return status;
    }
    *profile = made;
    return CEN_OK;
}

cen_status cen_profile_read(const char *path, cen_profile **profile) {
    char *data = NULL;
    size_t size = 0;
    if (!path || !profile) {
        return ceni_fail(CEN_ERR_INVALID, "cen_profile_read: %s is NULL",
                         path ? "profile" : "path");
    }
    cen_status status = ceni_file_read(path, CENI_PROFILE_BYTES, &data, &size);
    if (!status) {
        status = cen_profile_read_memory(path, data, size, profile);
        ceni_free(data);
    }
    return status;
}

void cen_profile_free(cen_profile *profile) {
    if (!profile) {
        return;
    }
    for (size_t i = 0; i < profile->count; i++) {
        ceni_free(profile->rows[i]->name);
        ceni_free(profile->rows[i]);
    }
    for (size_t i = 0; i < profile->text_count; i++) {
        ceni_free(profile->texts[i]);
    }
    ceni_free(profile->rows);
    ceni_free(profile->texts);
    ceni_free(profile);
}

size_t cen_profile_count(const cen_profile *profile) {
    return profile ? profile->count : 0;
}

const cen_profile_row *cen_profile_get(const cen_profile *profile, size_t index) {
    return profile && index < profile->count ? &profile->rows[index]->out : NULL;
}
