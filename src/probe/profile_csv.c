/* Comma-separated values as RFC 4180 has them: quoted fields may hold commas, lines and doubled
 * quotes. A field that is not quoted is taken as it is. */
#include "probe/profile.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static cen_status no_memory(const ceni_csv *csv) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for line %zu", csv->name, csv->line);
}

static cen_status begin_field(ceni_csv *csv) {
    if (csv->count == CENI_PROFILE_COLUMNS) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: line %zu: more than %d fields", csv->name, csv->line,
                         (int)CENI_PROFILE_COLUMNS);
    }
    if (ceni_grow(&csv->fields, &csv->capacity, csv->count + 1, sizeof *csv->fields)) {
        return no_memory(csv);
    }
    csv->fields[csv->count++] = csv->length;
    return CEN_OK;
}

static cen_status put(ceni_csv *csv, const char *from, size_t size) {
    if (ceni_grow(&csv->text, &csv->room, csv->length + size, 1)) {
        return no_memory(csv);
    }
    memcpy(csv->text + csv->length, from, size);
    csv->length += size;
    return CEN_OK;
}

static size_t lines_in(const char *from, size_t size) {
    size_t lines = 0;
    for (const char *end = from + size; (from = memchr(from, '\n', (size_t)(end - from))); from++) {
        lines++;
    }
    return lines;
}

/* From behind the opening quote to behind the closing one. */
static cen_status read_quoted(ceni_csv *csv) {
    for (;;) {
        const char *quote = memchr(csv->at, '"', (size_t)(csv->end - csv->at));
        if (!quote) {
            return ceni_fail(CEN_ERR_TRUNCATED,
                             "%s: line %zu: ends within a quoted field; the file is cut off, as by "
                             "a full disk",
                             csv->name, csv->line);
        }
        bool doubled = quote + 1 < csv->end && quote[1] == '"';
        size_t size = (size_t)(quote - csv->at) + doubled;
        csv->next_line += lines_in(csv->at, size);
        cen_status status = put(csv, csv->at, size);
        csv->at = quote + 1 + doubled;
        if (status || !doubled) {
            return status;
        }
    }
}

static cen_status read_plain(ceni_csv *csv) {
    const char *at = csv->at;
    while (at < csv->end && *at != ',' && *at != '\n' && *at != '\r') {
        at++;
    }
    cen_status status = put(csv, csv->at, (size_t)(at - csv->at));
    csv->at = at;
    return status;
}

static cen_status read_field(ceni_csv *csv) {
    cen_status status = begin_field(csv);
    if (status) {
        return status;
    }
    size_t begin = csv->length;
    if (csv->at < csv->end && *csv->at == '"') {
        csv->at++;
        status = read_quoted(csv);
    } else {
        status = read_plain(csv);
    }
    if (!status && csv->length > begin && memchr(csv->text + begin, 0, csv->length - begin)) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: line %zu: field %zu has a NUL byte; text is expected",
                         csv->name, csv->line, csv->count);
    }
    return status ? status : put(csv, "", 1);
}

cen_status ceni_csv_next(ceni_csv *csv) {
    csv->count = csv->length = 0;
    if (csv->at == csv->end) {
        return CEN_ERR_NOT_FOUND;
    }
    csv->next_line += !csv->next_line;
    csv->line = csv->next_line;
    for (;;) {
        cen_status status = read_field(csv);
        if (status) {
            return status;
        }
        if (csv->at < csv->end && *csv->at == '\r') {
            csv->at++;
        }
        if (csv->at == csv->end || *csv->at == '\n') {
            csv->at += csv->at < csv->end;
            csv->next_line++;
            return CEN_OK;
        }
        if (*csv->at != ',') {
            return ceni_fail(CEN_ERR_FORMAT, "%s: line %zu: a comma is expected behind field %zu",
                             csv->name, csv->line, csv->count);
        }
        csv->at++;
    }
}

void ceni_csv_skip_line(ceni_csv *csv) {
    const char *end = memchr(csv->at, '\n', (size_t)(csv->end - csv->at));
    csv->next_line += !csv->next_line;
    csv->next_line++;
    csv->at = end ? end + 1 : csv->end;
}

const char *ceni_csv_field(const ceni_csv *csv, size_t index) {
    return index < csv->count ? csv->text + csv->fields[index] : "";
}

void ceni_csv_free(ceni_csv *csv) {
    ceni_free(csv->text);
    ceni_free(csv->fields);
}
