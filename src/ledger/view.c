/* Views: reading a ledger's file into one, and what it says as it stands. Sums are those of the
 * entries that are there, not the writer's. */
#include "ledger/view.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "ledger/ledger_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- made of a copy ---- */

static void fill_info(cen_ledger_view *v) {
    const ceni_ledger_head *h = &v->file.head;
    v->info = (cen_ledger_info){.pid = (int)h->pid,
                                .start_ticks = h->start_ticks,
                                .started_us = h->started_us,
                                .changed_us = atomic_load(&h->changed_us),
                                .closed = atomic_load(&h->closed),
                                .steps = atomic_load(&h->steps),
                                .adds = atomic_load(&h->adds),
                                .removes = atomic_load(&h->removes),
                                .failures = atomic_load(&h->failures),
                                .lost = atomic_load(&h->lost)};
    snprintf(v->info.program, sizeof v->info.program, "%s", h->program);
    snprintf(v->info.writer, sizeof v->info.writer, "%s", h->writer);
    ceni_one_line(v->info.program);
    ceni_one_line(v->info.writer);
}

static void fill_devices(cen_ledger_view *v) {
    uint64_t held[CEN_LEDGER_DEVICES] = {0}; /* modulo 2^64: what is taken off may come first */
    for (size_t i = 0; i < CEN_LEDGER_DEVICES; i++) {
        const ceni_ledger_device *from = &v->file.head.device[i];
        cen_ledger_device_info *to = &v->device[i];
        to->known = from->known;
        snprintf(to->uuid, sizeof to->uuid, "%s", from->uuid);
        snprintf(to->name, sizeof to->name, "%s", from->name);
        ceni_one_line(to->uuid);
        ceni_one_line(to->name);
        to->total_bytes = from->total_bytes;
    }
    for (size_t i = 0; i < v->file.entry_count; i++) {
        const cen_ledger_entry *e = &v->file.entries[i];
        cen_ledger_device_info *to = &v->device[e->device];
        to->bytes[e->kind] += e->less ? 0 - e->bytes : e->bytes;
        to->count[e->kind]++;
        if (cen_ledger_kind_is_summed(e->kind)) {
            held[e->device] += e->less ? 0 - e->bytes : e->bytes;
        }
    }
    for (size_t i = 0; i < CEN_LEDGER_DEVICES; i++) {
        uint64_t now = held[i] < INT64_MAX ? held[i] : 0, peak = v->file.head.device[i].peak_bytes;
        v->device[i].peak_bytes = peak > now ? peak : now;
    }
}

static void fill_failures(cen_ledger_view *v) {
    uint64_t all = v->info.failures;
    v->failure_count = all < CENI_LEDGER_FAILURES ? (size_t)all : CENI_LEDGER_FAILURES;
    for (size_t i = 0; i < v->failure_count; i++) {
        const ceni_ledger_failed *from =
            &v->file.head.failed[(all - v->failure_count + i) % CENI_LEDGER_FAILURES];
        v->failures[i] = (cen_ledger_failure){.bytes = from->bytes,
                                              .free_bytes = from->free_bytes,
                                              .stream = from->stream,
                                              .time_us = from->time_us,
                                              .stack = from->stack,
                                              .device = from->device};
    }
}

cen_status ceni_ledger_view_make(ceni_ledger_file *file, cen_ledger_view **view) {
    cen_ledger_view *v = ceni_calloc(1, sizeof *v);
    ceni_named_stack *named = ceni_calloc(file->stack_count, sizeof *named);
    if (!v || !named) {
        ceni_free(v);
        ceni_free(named);
        ceni_ledger_file_free(file);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "ledger: no memory for a view");
    }
    memcpy(&v->file, file, sizeof *file);
    v->named = named;
    fill_info(v);
    fill_devices(v);
    fill_failures(v);
    *view = v;
    return CEN_OK;
}

void cen_ledger_view_free(cen_ledger_view *v) {
    if (!v) {
        return;
    }
    for (size_t i = 0; i < v->file.stack_count; i++) {
        ceni_free(v->named[i].frames);
    }
    ceni_free(v->named);
    ceni_ledger_names_close(v->names);
    ceni_free(v->owners);
    ceni_free(v->owner_text);
    ceni_free(v->then);
    ceni_ledger_file_free(&v->file);
    ceni_free(v);
}

/* ---- read ---- */

static cen_status fail(const char *name, cen_status status, const ceni_ledger_trouble *trouble,
                       cen_read_error *error) {
    cen_read_error made = {.offset = trouble->offset};
    char place[32] = "";
    if (status == CEN_ERR_FORMAT || status == CEN_ERR_TRUNCATED) {
        snprintf(place, sizeof place, "byte %llu: ", (unsigned long long)trouble->offset);
    }
    snprintf(made.message, sizeof made.message, "%s: %s%s", ceni_ledger_short_name(name), place,
             trouble->message);
    ceni_one_line(made.message);
    if (error) {
        *error = made;
    }
    return ceni_fail(status, "%s", made.message);
}

static cen_status read_source(const char *name, const ceni_ledger_source *source,
                              cen_ledger_view **view, cen_read_error *error) {
    ceni_ledger_file file;
    ceni_ledger_trouble trouble;
    cen_status status = ceni_ledger_file_read(source, &file, &trouble);
    if (status) {
        return fail(name, status, &trouble, error);
    }
    status = ceni_ledger_view_make(&file, view);
    if (status && error) {
        *error = (cen_read_error){0};
        snprintf(error->message, sizeof error->message, "%s: no memory to read it",
                 ceni_ledger_short_name(name));
    }
    return status;
}

/* Opened for writing where that is allowed, so that a busy writer can be asked to hold still. */
static int open_file(const char *path) {
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 || (errno != EACCES && errno != EROFS && errno != EPERM)
               ? fd
               : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

cen_status cen_ledger_read(const char *path, cen_ledger_view **view, cen_read_error *error) {
    if (!path || !view) {
        if (error) {
            *error = (cen_read_error){.message = "path or view is NULL"};
        }
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_read: %s is NULL", path ? "view" : "path");
    }
    ceni_ledger_source source = {.fd = open_file(path)};
    if (source.fd < 0) {
        ceni_ledger_trouble trouble = {0};
        snprintf(trouble.message, sizeof trouble.message, "cannot be opened: %s", strerror(errno));
        return fail(path, CEN_ERR_IO, &trouble, error);
    }
    cen_status status = read_source(path, &source, view, error);
    close(source.fd);
    return status;
}

cen_status ceni_ledger_read_memory(const char *name, const void *data, size_t size,
                                   cen_ledger_view **view, cen_read_error *error) {
    ceni_ledger_source source = {.fd = -1, .data = data, .size = size};
    return read_source(name, &source, view, error);
}

/* Nothing changes meanwhile: the lock is held, and no change is under way. */
cen_status cen_ledger_look(cen_ledger *l, cen_ledger_view **view) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_look");
    if (status) {
        return status;
    }
    if (!view) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_look: view is NULL");
    }
    ceni_ledger_file file;
    ceni_ledger_trouble trouble;
    pthread_mutex_lock(&l->lock);
    ceni_ledger_source source = {.fd = ceni_ledger_fd(l)};
    if (source.fd < 0) {
        (void)ceni_ledger_refuse(&trouble, CEN_ERR_IO, 0, "the file is closed: %s",
                                 strerror(errno));
        status = CEN_ERR_IO;
    } else {
        status = ceni_ledger_file_read(&source, &file, &trouble);
    }
    pthread_mutex_unlock(&l->lock);
    return status ? fail("cen_ledger_look", status, &trouble, NULL)
                  : ceni_ledger_view_make(&file, view);
}

/* ---- asked ---- */

const cen_ledger_info *cen_ledger_view_info(const cen_ledger_view *view) {
    return &view->info;
}

const cen_ledger_device_info *cen_ledger_view_device(const cen_ledger_view *view, unsigned device) {
    return device < CEN_LEDGER_DEVICES ? &view->device[device] : NULL;
}

const cen_ledger_entry *cen_ledger_view_entries(const cen_ledger_view *view, size_t *count) {
    *count = view->file.entry_count;
    return view->file.entries;
}

const cen_ledger_failure *cen_ledger_view_failures(const cen_ledger_view *view, size_t *count) {
    *count = view->failure_count;
    return view->failures;
}

const cen_frame *cen_ledger_view_stack(cen_ledger_view *v, uint32_t stack, size_t *frame_count) {
    *frame_count = 0;
    if (stack >= v->file.stack_count) {
        return NULL;
    }
    if (!v->names_tried) {
        v->names_tried = true;
        if (ceni_ledger_names_open(&v->file, &v->names)) {
            ceni_log(CEN_LOG_WARN, "ledger: no memory to name its stacks");
        }
    }
    ceni_named_stack *named = &v->named[stack];
    if (!named->tried && v->names) {
        named->tried = true;
        if (ceni_ledger_names_stack(v->names, stack, &named->frames, &named->count)) {
            ceni_log(CEN_LOG_WARN, "ledger: no memory to name a stack");
        }
    }
    *frame_count = named->count;
    return named->frames;
}

cen_status cen_ledger_view_snapshot(cen_ledger_view *view, cen_snapshot **snapshot) {
    if (!view || !snapshot) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_view_snapshot: %s is NULL",
                         view ? "snapshot" : "view");
    }
    return ceni_ledger_snapshot(&view->file, snapshot);
}
