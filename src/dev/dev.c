/* Opening and closing devices by name, the refusal of forked ones, and injected failures.
 *
 * A device belongs to the process that opened it. Its pid is compared with one that a fork handler
 * keeps current, so the check costs a load on each call. */
#include "dev/dev.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dev/call.h"
#include "trace/emit.h"

_Atomic int ceni_call_pid;
static pthread_once_t pid_once = PTHREAD_ONCE_INIT;

static void note_pid(void) {
    atomic_store(&ceni_call_pid, (int)getpid());
}

static void watch_pid(void) {
    note_pid();
    pthread_atfork(NULL, NULL, note_pid);
}

int ceni_call_this_process(void) {
    pthread_once(&pid_once, watch_pid);
    return atomic_load(&ceni_call_pid);
}

const char *ceni_dev_op_name(enum ceni_dev_op op) {
    static const char *const names[] = {
#define NAME(name) #name,
        CENI_DEV_OPS(NAME)
#undef NAME
    };
    return (unsigned)op < CENI_OP_COUNT ? names[op] : "?";
}

cen_status ceni_call_refuse(const cen_device *device, enum ceni_dev_op op) {
    if (!device) {
        return ceni_fail(CEN_ERR_INVALID, "%s: device is NULL", ceni_dev_op_name(op));
    }
    return ceni_fail(CEN_ERR_FORKED, "%s: %s:%d was opened by process %d; open it again here",
                     ceni_dev_op_name(op), device->backend->name, device->ordinal, device->pid);
}

static cen_status injected_status(enum ceni_dev_op op) {
    switch (op) {
    case CENI_OP_page_create:
    case CENI_OP_segment_alloc:
        return CEN_ERR_DEVICE_MEMORY;
    case CENI_OP_page_map:
    case CENI_OP_page_export:
    case CENI_OP_page_import:
        return CEN_ERR_LIMIT;
    case CENI_OP_va_reserve:
    case CENI_OP_stream_create:
    case CENI_OP_event_create:
    case CENI_OP_pinned_alloc:
        return CEN_ERR_HOST_MEMORY;
    default:
        return CEN_ERR_DEVICE;
    }
}

cen_status ceni_call_injected(cen_device *device, enum ceni_dev_op op) {
    return ceni_fail(injected_status(op), "%s: failure injected on %s:%d", ceni_dev_op_name(op),
                     device->backend->name, device->ordinal);
}

void ceni_dev_fault(cen_device *device, enum ceni_dev_op op, int64_t n, bool sticky) {
    ceni_fault_set(&device->faults[op], n, sticky);
}

static int find_op(const char *name, size_t length) {
    for (int op = 0; op < CENI_OP_COUNT; op++) {
        const char *candidate = ceni_dev_op_name((enum ceni_dev_op)op);
        if (strlen(candidate) == length && !memcmp(candidate, name, length)) {
            return op;
        }
    }
    return -1;
}

/* One "op:n" or "op:n+" of CENOTE_FAULT; *end is where it stops. */
static cen_status arm_one(cen_device *device, const char *item, const char **end) {
    size_t length = strcspn(item, ",");
    *end = item + length;
    size_t name = strcspn(item, ":,");
    int op = find_op(item, name);
    if (op < 0) {
        return ceni_fail(CEN_ERR_INVALID, "CENOTE_FAULT: '%.*s' is no device operation", (int)name,
                         item);
    }
    char *after = NULL;
    long long n = item[name] == ':' ? strtoll(item + name + 1, &after, 10) : 0;
    bool sticky = after && *after == '+';
    if (n < 1 || after + sticky != *end) {
        return ceni_fail(CEN_ERR_INVALID, "CENOTE_FAULT: '%.*s' is not OP:N or OP:N+ with N >= 1",
                         (int)length, item);
    }
    ceni_dev_fault(device, (enum ceni_dev_op)op, n, sticky);
    return CEN_OK;
}

static cen_status arm_from_environment(cen_device *device) {
    const char *item = getenv("CENOTE_FAULT");
    cen_status status = CEN_OK;
    while (!status && item && *item) {
        status = arm_one(device, item, &item);
        item += *item == ',';
    }
    return status;
}

static const ceni_backend *find_backend(const char *name, size_t length) {
    for (const ceni_backend *const *b = ceni_backends; *b; b++) {
        if (strlen((*b)->name) == length && !memcmp((*b)->name, name, length)) {
            return *b;
        }
    }
    return NULL;
}

/* Gives the device its name in traces. */
static void enter_in_traces(cen_device *device) {
    cen_device_props props;
    const char *name = device->backend->props(device, &props) ? device->backend->name : props.name;
    device->number = ceni_trace_device_add(name, device->total_bytes);
}

static cen_status open_on(const ceni_backend *backend, int ordinal, const cen_host_options *host,
                          cen_device **device) {
    pthread_once(&pid_once, watch_pid);
    cen_device *opened;
    cen_status status = backend->open(ordinal, host, &opened);
    if (status) {
        return status;
    }
    opened->backend = backend;
    opened->pid = atomic_load(&ceni_call_pid);
    status = arm_from_environment(opened);
    if (status) {
        backend->close(opened);
        return status;
    }
    enter_in_traces(opened);
    *device = opened;
    return CEN_OK;
}

cen_status cen_device_open(const char *name, cen_device **device) {
    if (!name || !device) {
        return ceni_fail(CEN_ERR_INVALID, "device_open: %s is NULL", name ? "device" : "name");
    }
    size_t length = strcspn(name, ":");
    const ceni_backend *backend = find_backend(name, length);
    bool known = backend;
    long ordinal = 0;
    if (name[length] == ':') {
        const char *digits = name + length + 1;
        size_t count = strspn(digits, "0123456789");
        known = known && count > 0 && count < 6 && !digits[count];
        ordinal = strtol(digits, NULL, 10);
    }
    if (!known) {
        return ceni_fail(CEN_ERR_INVALID,
                         "device_open: '%s' is not cuda, cuda:N, host or host:N (N from 0)", name);
    }
    return open_on(backend, (int)ordinal, NULL, device);
}

cen_status cen_device_open_host(int ordinal, const cen_host_options *options, cen_device **device) {
    if (!device) {
        return ceni_fail(CEN_ERR_INVALID, "device_open_host: device is NULL");
    }
    return open_on(&ceni_backend_host, ordinal, options, device);
}

void cen_device_close(cen_device *device) {
    if (!device) {
        return;
    }
    if (device->pid != atomic_load(&ceni_call_pid)) {
        ceni_log(CEN_LOG_WARN, "device_close: %s:%d belongs to process %d; left as it is",
                 device->backend->name, device->ordinal, device->pid);
        return;
    }
    ceni_trace_device_remove(device->number);
    device->backend->close(device);
}

cen_status cen_device_count(const char *backend, int *count) {
    if (!backend || !count) {
        return ceni_fail(CEN_ERR_INVALID, "device_count: %s is NULL",
                         backend ? "count" : "backend");
    }
    const ceni_backend *found = find_backend(backend, strlen(backend));
    if (!found) {
        return ceni_fail(CEN_ERR_INVALID, "device_count: '%s' is neither cuda nor host", backend);
    }
    return found->count(count);
}
