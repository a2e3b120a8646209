#include "trace/convert.h"

#include "base/log.h"

#include <stdio.h>

static cen_status invalid(const char *what, cen_read_error *error) {
    if (error) {
        *error = (cen_read_error){0};
        snprintf(error->message, sizeof error->message, "%s", what);
    }
    return ceni_fail(CEN_ERR_INVALID, "writing a snapshot: %s", what);
}

cen_status cen_snapshot_write(const cen_snapshot *snapshot, cen_format format, const char *path,
                              cen_read_error *error) {
    if (!snapshot || !path) {
        return invalid(path ? "snapshot is NULL" : "path is NULL", error);
    }
    void (*write)(ceni_out *, const cen_snapshot *) = NULL;
    switch (format) {
    case CEN_FORMAT_TORCH:
        write = ceni_write_torch;
        break;
    case CEN_FORMAT_TRACE:
        write = ceni_write_trace;
        break;
    case CEN_FORMAT_CHROME:
        write = ceni_write_chrome;
        break;
    }
    if (!write) {
        return invalid("no such format", error);
    }
    ceni_out out;
    ceni_out_open(&out, path);
    if (!out.status) {
        write(&out, snapshot);
    }
    return ceni_out_close(&out, error);
}
