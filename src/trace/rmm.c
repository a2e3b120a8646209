/* RMM's log of allocations: CSV as its logging_resource_adaptor writes it, a line for each call.
 *
 *     Thread,Time,Action,Pointer,Size,Stream
 *     2342727,15:47:02.841961,allocate,0x10012400000,1048576,0x2
 *
 * The lines become the events of device 0 (a log does not name its device, but is one device's), in
 * the log's order, which is that of the calls wherever it matters: a free is logged before it is
 * made. A free is requested and complete in one, as the memory is RMM's again. docs/formats/
 * snapshot.md says which forms of the fields are read.
 *
 * The log is written through a buffer, so a killed process leaves a last line that is cut off
 * anywhere: a line without its end is not read. */
#include "trace/read.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 4096, FIELDS_MAX = 32 };

static const int64_t DAY_US = INT64_C(86400000000);

enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };
static const char *const names[COLUMNS] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

typedef struct rmm_log {
    ceni_reader *reader;
    const uint8_t *at;         /* where the next line begins, in the source's window */
    uint64_t line;             /* number of the line before, from 1 */
    char text[LINE_MAX_BYTES]; /* that line; its fields end with NUL */
    char *fields[FIELDS_MAX];
    size_t field_count, header_count;
    int place[COLUMNS]; /* which field a column is; -1: none */
    int64_t days_us, last_us;
} rmm_log;

bool ceni_rmm_looks(const uint8_t *data, size_t size) {
    return (size >= 7 && !memcmp(data, "Thread,", 7)) || (size >= 5 && !memcmp(data, "Time,", 5));
}

/* ---- lines ---- */

static cen_status fail(rmm_log *log, const char *what, const char *found, const char *expected) {
    return ceni_read_fail(log->reader, CEN_ERR_FORMAT, "line %llu: %s '%.24s'; expected %s",
                          (unsigned long long)log->line, what, found, expected);
}

/* Reads the next line into log->text; *end when there is none. */
static cen_status next_line(rmm_log *log, bool *end) {
    ceni_reader *reader = log->reader;
    ceni_source *source = &reader->source;
    const uint8_t *stop = memchr(log->at, '\n', (size_t)(source->end - log->at));
    if (!stop) {
        if (ceni_source_fill(reader, log->at, LINE_MAX_BYTES)) {
            return reader->status;
        }
        log->at = source->window;
        stop = memchr(log->at, '\n', (size_t)(source->end - log->at));
    }
    log->line++;
    size_t size = (size_t)((stop ? stop : source->end) - log->at);
    reader->offset = source->base + (uint64_t)(log->at - source->window);
    if (size >= LINE_MAX_BYTES) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "line %llu: longer than %d bytes",
                              (unsigned long long)log->line, LINE_MAX_BYTES);
    }
    *end = !stop;
    if (stop && memchr(log->at, 0, size)) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "line %llu: a byte 0; expected text",
                              (unsigned long long)log->line);
    }
    memcpy(log->text, log->at, size);
    size -= size && log->text[size - 1] == '\r';
    log->text[size] = 0;
    log->at = stop ? stop + 1 : source->end;
    return CEN_OK;
}

static cen_status split(rmm_log *log) {
    char *at = log->text;
    log->field_count = 0;
    do {
        if (log->field_count == FIELDS_MAX) {
            return ceni_read_fail(log->reader, CEN_ERR_FORMAT, "line %llu: more than %d fields",
                                  (unsigned long long)log->line, FIELDS_MAX);
        }
        log->fields[log->field_count++] = at;
        at = strchr(at, ',');
        if (at) {
            *at++ = 0;
        }
    } while (at);
    return CEN_OK;
}

/* ---- fields ---- */

static const char *field(const rmm_log *log, enum column column) {
    return log->fields[log->place[column]];
}

/* All of `text` as digits of a base; no sign, no spaces. */
static bool parse_digits(const char *text, int base, uint64_t *value) {
    uint64_t made = 0;
    const char *at = text;
    for (; *at; at++) {
        static const char digits[] = "0123456789abcdef";
        char lower = (char)(*at >= 'A' && *at <= 'F' ? *at + ('a' - 'A') : *at);
        const char *digit = memchr(digits, lower, (size_t)base);
        if (!digit || made > (UINT64_MAX - 15) / (uint64_t)base) {
            return false;
        }
        made = made * (uint64_t)base + (uint64_t)(digit - digits);
    }
    *value = made;
    return at != text;
}

/* A pointer is hexadecimal. A stream is too if it says so or has such digits; older versions wrote
 * it as a decimal number. C's printf has "(nil)" for the null pointer. */
static bool parse_address(const char *text, bool decimal, uint64_t *value) {
    if (!strcmp(text, "(nil)")) {
        *value = 0;
        return true;
    }
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return parse_digits(text + 2, 16, value);
    }
    return (decimal && parse_digits(text, 10, value)) || parse_digits(text, 16, value);
}

/* A fraction of a second: after a point its digits, after a colon (older) microseconds. */
static bool parse_fraction(const char *text, char mark, int64_t *us) {
    uint64_t value;
    size_t length = strlen(text);
    if (length > 18 || !parse_digits(text, 10, &value)) {
        return false;
    }
    for (; mark == '.' && length < 6; length++) {
        value *= 10;
    }
    for (; mark == '.' && length > 6; length--) {
        value /= 10;
    }
    *us = (int64_t)value;
    return value < 1000000;
}

/* "15:47:02.841961", "15:47:02:841961", or seconds: "1634567890.123456". */
static bool parse_time(const char *text, bool *of_day, int64_t *us) {
    char copy[64], *parts[4] = {copy};
    size_t count = 1, length = strlen(text);
    char mark = 0;
    if (length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length + 1);
    for (char *at = copy; *at; at++) {
        if (*at == ':' || *at == '.') {
            if (count == 4 || mark == '.') {
                return false;
            }
            mark = *at;
            *at = 0;
            parts[count++] = at + 1;
        }
    }
    bool fraction = mark == '.' || count == 4;
    size_t whole = fraction ? count - 1 : count;
    uint64_t seconds = 0, part;
    int64_t rest = 0;
    for (size_t i = 0; i < whole; i++) {
        if (!parse_digits(parts[i], 10, &part) || part > UINT32_MAX || (i && part > 60)) {
            return false;
        }
        seconds = seconds * 60 + part;
    }
    *of_day = whole == 3;
    if (seconds > UINT32_MAX || (whole != 1 && whole != 3) ||
        (fraction && !parse_fraction(parts[whole], mark, &rest))) {
        return false;
    }
    *us = (int64_t)seconds * 1000000 + rest;
    return true;
}

/* Threads take the time before they take their turn, so that it may go back a little; by half a day
 * or more, it is another day. */
static int64_t in_order(rmm_log *log, int64_t us, bool of_day) {
    us += log->days_us;
    if (of_day && us < log->last_us - DAY_US / 2) {
        log->days_us += DAY_US;
        us += DAY_US;
    }
    log->last_us = us > log->last_us ? us : log->last_us;
    return log->last_us;
}

/* ---- events ---- */

static cen_status read_header(rmm_log *log) {
    bool end = false;
    if (next_line(log, &end) || split(log)) {
        return log->reader->status;
    }
    for (int column = 0; column < COLUMNS; column++) {
        log->place[column] = -1;
        for (size_t i = 0; i < log->field_count; i++) {
            if (!strcmp(log->fields[i], names[column])) {
                log->place[column] = (int)i;
            }
        }
        if (log->place[column] < 0 && column != THREAD) { /* older logs do not have it */
            return ceni_read_fail(log->reader, CEN_ERR_FORMAT,
                                  "line 1: no column '%s'; expected RMM's header "
                                  "Thread,Time,Action,Pointer,Size,Stream",
                                  names[column]);
        }
    }
    log->header_count = log->field_count;
    return CEN_OK;
}

/* The event of a line, without its action. */
static cen_status read_fields(rmm_log *log, cen_trace_event *event) {
    bool of_day;
    int64_t us;
    if (!parse_time(field(log, TIME), &of_day, &us)) {
        return fail(log, "time", field(log, TIME), "HH:MM:SS.microseconds");
    }
    if (!parse_address(field(log, POINTER), false, &event->addr)) {
        return fail(log, "pointer", field(log, POINTER), "a hexadecimal address");
    }
    if (!parse_digits(field(log, SIZE), 10, &event->size) || event->size > CENI_READ_SIZE_MAX) {
        return fail(log, "size", field(log, SIZE), "bytes, at most 2^48");
    }
    if (!parse_address(field(log, STREAM), true, &event->stream)) {
        return fail(log, "stream", field(log, STREAM), "a number or 0x and hexadecimal digits");
    }
    event->time_us = in_order(log, us, of_day);
    return CEN_OK;
}

static cen_status add(rmm_log *log, const cen_trace_event *event, cen_action action) {
    ceni_reader *reader = log->reader;
    if (CENI_ROOM(reader, reader->events, 1)) {
        return reader->status;
    }
    cen_trace_event *to = &reader->events.at[reader->events.count++];
    *to = *event;
    to->action = (uint8_t)action;
    return CEN_OK;
}

static cen_status read_call(rmm_log *log) {
    ceni_reader *reader = log->reader;
    cen_trace_event event = {.stack = CEN_NO_STACK};
    if (log->field_count != log->header_count) {
        return ceni_read_fail(reader, CEN_ERR_FORMAT, "line %llu: %zu fields; expected %zu",
                              (unsigned long long)log->line, log->field_count, log->header_count);
    }
    if (read_fields(log, &event)) {
        return reader->status;
    }
    const char *action = field(log, ACTION);
    if (!strcmp(action, "allocate failure")) {
        event.addr = CEN_FREE_UNKNOWN;
        return add(log, &event, CEN_ACTION_OOM);
    }
    bool is_free = !strcmp(action, "free") || !strcmp(action, "deallocate");
    if (!is_free && strcmp(action, "allocate") != 0) {
        return fail(log, "action", action, "allocate, allocate failure or free");
    }
    if (!event.addr) {
        return CEN_OK; /* no bytes asked for, none given */
    }
    if (!is_free) {
        return add(log, &event, CEN_ACTION_ALLOC);
    }
    return add(log, &event, CEN_ACTION_FREE_REQUESTED)
               ? reader->status
               : add(log, &event, CEN_ACTION_FREE_COMPLETED);
}

/* The structure that a pickle with these events would have been folded into. */
static cen_status make_root(ceni_reader *reader, ceni_value *result) {
    if (CENI_ROOM(reader, reader->objects, 3) || CENI_ROOM(reader, reader->lists, 2) ||
        CENI_ROOM(reader, reader->runs, 2) || CENI_ROOM(reader, reader->roots, 1)) {
        return reader->status;
    }
    size_t count = reader->events.count;
    reader->runs.at[0] = (ceni_run){.first = 0, .count = count};
    reader->runs.at[1] = (ceni_run){.first = 0, .count = 1};
    reader->runs.count = 2;
    reader->lists.at[0] = count ? (ceni_items){.head = 1, .tail = 1, .kind = CENI_EVENT}
                                : (ceni_items){.kind = CENI_EMPTY};
    reader->lists.at[1] = (ceni_items){.head = 2, .tail = 2, .kind = CENI_ITEMS};
    reader->lists.count = 2;
    reader->roots.at[0] = (ceni_root_record){.segments = ceni_make(CENI_NONE, 0),
                                             .traces = ceni_make(CENI_LIST, 1),
                                             .settings = ceni_make(CENI_NONE, 0),
                                             .notes = ceni_make(CENI_NONE, 0)};
    reader->roots.count = 1;
    reader->objects.at[0] = (uint64_t)0 << 8 | CENI_ITEMS;
    reader->objects.at[1] = (uint64_t)1 << 8 | CENI_ITEMS;
    reader->objects.at[2] = (uint64_t)0 << 8 | CENI_ROOT;
    reader->objects.count = 3;
    *result = ceni_make(CENI_DICT, 2);
    return CEN_OK;
}

cen_status ceni_rmm_run(ceni_reader *reader, ceni_value *result) {
    rmm_log log = {.reader = reader, .at = reader->source.window};
    reader->no_ring = true;
    if (read_header(&log)) {
        return reader->status;
    }
    for (;;) {
        bool end = false;
        if (next_line(&log, &end)) {
            return reader->status;
        }
        if (end) {
            return make_root(reader, result);
        }
        if (*log.text && (split(&log) || read_call(&log))) {
            return reader->status;
        }
    }
}
