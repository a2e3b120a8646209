/* Who holds what of each device: NVML's list, /proc, and the ledgers, put together. */
#include "cenote/holders.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "ledger/holders.h"
#include "ledger/nvml.h"

static_assert(CEN_BYTES_UNKNOWN == CENI_NVML_UNKNOWN, "one is passed on as the other");

struct cen_holders {
    cen_holder_device *devices;
    size_t count;
};

/* What NVML says of the processes of one device, and then of others that have a ledger. */
typedef struct found {
    ceni_nvml_process *at;
    size_t count, capacity;
} found;

typedef struct look {
    cen_holders *holders;
    found *found; /* of each device */
    ceni_holder_ledgers ledgers;
} look;

static cen_status read_device(unsigned index, cen_holder_device *device, found *processes,
                              ceni_nvml_why *why) {
    ceni_nvml_device handle;
    ceni_nvml_memory memory;
    cen_status status = ceni_nvml_at(index, &handle, why);
    status = status ? status : ceni_nvml_identity(handle, device->uuid, device->name, why);
    status = status ? status : ceni_nvml_memory_of(handle, &memory, why);
    status = status ? status : ceni_nvml_processes(handle, &processes->at, &processes->count, why);
    if (status) {
        return status;
    }
    processes->capacity = processes->count;
    device->index = (int)index;
    device->total_bytes = memory.total;
    device->used_bytes = memory.used;
    device->free_bytes = memory.free;
    device->reserved_bytes = memory.reserved;
    return CEN_OK;
}

/* All devices that answer. */
static cen_status read_devices(look *l, unsigned count) {
    ceni_nvml_why why = {.text = ""};
    for (unsigned i = 0; i < count; i++) {
        cen_holder_device *device = &l->holders->devices[l->holders->count];
        cen_status status = read_device(i, device, &l->found[l->holders->count], &why);
        if (status == CEN_ERR_HOST_MEMORY) {
            return ceni_fail(status, "%s", why.text);
        }
        if (status) {
            *device = (cen_holder_device){0};
            if (count > 1) {
                ceni_log(CEN_LOG_WARN, "GPU %u is left out: %s", i, why.text);
            }
        } else {
            l->holders->count++;
        }
    }
    if (!l->holders->count) {
        return ceni_fail(CEN_ERR_DEVICE, "no device answers: %s", why.text);
    }
    return CEN_OK;
}

/* Reads the ledgers, those of processes that are gone only where NVML lists them. */
static cen_status read_ledgers(look *l) {
    size_t count = 0;
    for (size_t i = 0; i < l->holders->count; i++) {
        count += l->found[i].count;
    }
    int *listed = ceni_calloc(count, sizeof *listed);
    if (!listed) {
        return CEN_ERR_HOST_MEMORY;
    }
    count = 0;
    for (size_t i = 0; i < l->holders->count; i++) {
        for (size_t p = 0; p < l->found[i].count; p++) {
            listed[count++] = l->found[i].at[p].pid;
        }
    }
    cen_status status = ceni_holder_ledgers_read(&l->ledgers, listed, count);
    ceni_free(listed);
    return status;
}

/* The ledgers of a process: neighbours among all. */
static const ceni_holder_ledger *ledgers_of(const look *l, int pid, size_t *count) {
    const ceni_holder_ledger *first = NULL;
    *count = 0;
    for (size_t i = 0; i < l->ledgers.count; i++) {
        if (l->ledgers.at[i].pid == pid) {
            first = first ? first : &l->ledgers.at[i];
            ++*count;
        }
    }
    return first;
}

static bool is_found(const found *f, int pid) {
    for (size_t i = 0; i < f->count; i++) {
        if (f->at[i].pid == pid) {
            return true;
        }
    }
    return false;
}

static cen_status add_holder(const look *l, cen_holder_device *device, cen_holder *holder,
                             const ceni_nvml_process *process) {
    size_t count;
    const ceni_holder_ledger *ledgers = ledgers_of(l, process->pid, &count);
    *holder = (cen_holder){.pid = process->pid, .device_bytes = process->bytes};
    holder->dead = !ceni_process_lives(process->pid);
    ceni_process_program(process->pid, holder->program, sizeof holder->program);
    ceni_process_user(process->pid, holder->user, sizeof holder->user);
    if (!*holder->program && count) { /* it is gone, but its ledger says what it was */
        snprintf(holder->program, sizeof holder->program, "%s",
                 cen_ledger_view_info(ledgers->view)->program);
        ceni_clean_text(holder->program);
    }
    return ceni_holder_join(holder, device->uuid, ledgers, count);
}

static int by_bytes(const void *a, const void *b) {
    const cen_holder *x = a, *y = b;
    uint64_t s = x->device_bytes == CEN_BYTES_UNKNOWN ? x->ledger_bytes : x->device_bytes;
    uint64_t t = y->device_bytes == CEN_BYTES_UNKNOWN ? y->ledger_bytes : y->device_bytes;
    return s != t ? (s > t ? -1 : 1) : (x->pid > y->pid) - (x->pid < y->pid);
}

/* Fills in a device's holders: NVML's, and living processes that NVML does not list but whose
 * ledger holds something there. */
static cen_status add_holders(look *l, size_t index) {
    cen_holder_device *device = &l->holders->devices[index];
    const found *f = &l->found[index];
    cen_holder *holders = ceni_calloc(f->count + l->ledgers.count, sizeof *holders);
    if (!holders) {
        return CEN_ERR_HOST_MEMORY;
    }
    device->holders = holders;
    int64_t unclaimed = (int64_t)device->used_bytes;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < f->count && !status; i++) {
        status = add_holder(l, device, &holders[device->holder_count++], &f->at[i]);
        unclaimed -= f->at[i].bytes == CEN_BYTES_UNKNOWN ? 0 : (int64_t)f->at[i].bytes;
    }
    for (size_t i = 0; i < l->ledgers.count && !status; i++) {
        ceni_nvml_process process = {.pid = l->ledgers.at[i].pid, .bytes = CEN_BYTES_UNKNOWN};
        if (is_found(f, process.pid) || !ceni_process_lives(process.pid) ||
            (i && l->ledgers.at[i - 1].pid == process.pid)) {
            continue;
        }
        cen_holder *holder = &holders[device->holder_count++];
        status = add_holder(l, device, holder, &process);
        if (!status && !holder->ledger_bytes) {
            ceni_free((void *)holder->owners);
            device->holder_count--;
        }
    }
    device->unclaimed_bytes = unclaimed;
    qsort(holders, device->holder_count, sizeof *holders, by_bytes);
    return status;
}

static cen_status read_all(look *l) {
    unsigned count = 0;
    ceni_nvml_why why;
    cen_status status = ceni_nvml_count(&count, &why);
    if (status) {
        return ceni_fail(status, "%s", why.text);
    }
    if (!count) {
        return ceni_fail(CEN_ERR_NO_DEVICE, "NVML lists no device");
    }
    l->holders = ceni_calloc(1, sizeof *l->holders);
    l->found = ceni_calloc(count, sizeof *l->found);
    if (l->holders) {
        l->holders->devices = ceni_calloc(count, sizeof *l->holders->devices);
    }
    if (!l->found || !l->holders || !l->holders->devices) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "no host memory for %u devices", count);
    }
    status = read_devices(l, count);
    if (status) {
        return status;
    }
    status = read_ledgers(l);
    for (size_t i = 0; i < l->holders->count && !status; i++) {
        status = add_holders(l, i);
    }
    return status ? ceni_fail(status, "no host memory for the processes") : CEN_OK;
}

cen_status cen_holders_read(cen_holders **holders) {
    if (!holders) {
        return ceni_fail(CEN_ERR_INVALID, "cen_holders_read: holders is NULL");
    }
    look l = {0};
    cen_status status = read_all(&l);
    for (size_t i = 0; l.found && l.holders && i < l.holders->count; i++) {
        ceni_free(l.found[i].at);
    }
    ceni_free(l.found);
    ceni_holder_ledgers_free(&l.ledgers);
    if (status) {
        cen_holders_free(l.holders);
        return status;
    }
    *holders = l.holders;
    return CEN_OK;
}

void cen_holders_free(cen_holders *holders) {
    for (size_t i = 0; holders && i < holders->count; i++) {
        for (size_t h = 0; h < holders->devices[i].holder_count; h++) {
            ceni_free((void *)holders->devices[i].holders[h].owners);
        }
        ceni_free((void *)holders->devices[i].holders);
    }
    if (holders) {
        ceni_free(holders->devices);
    }
    ceni_free(holders);
}

size_t cen_holders_device_count(const cen_holders *holders) {
    return holders ? holders->count : 0;
}

const cen_holder_device *cen_holders_device(const cen_holders *holders, size_t index) {
    return holders && index < holders->count ? &holders->devices[index] : NULL;
}

/* What NVML says of this process; unknown where it does not list it. */
static cen_status own_bytes(ceni_nvml_device device, uint64_t *bytes, ceni_nvml_why *why) {
    ceni_nvml_process *processes = NULL;
    size_t count = 0;
    cen_status status = ceni_nvml_processes(device, &processes, &count, why);
    if (status == CEN_ERR_UNSUPPORTED) {
        count = 0;
        status = CEN_OK;
    }
    *bytes = CEN_BYTES_UNKNOWN;
    for (size_t i = 0; i < count && !status; i++) {
        if (processes[i].pid == (int)getpid()) {
            *bytes = processes[i].bytes;
        }
    }
    ceni_free(processes);
    return status;
}

cen_status cen_holders_used(const char *uuid, uint64_t *used_bytes, uint64_t *own_bytes_out) {
    ceni_nvml_device device;
    ceni_nvml_memory memory = {0};
    uint64_t own = CEN_BYTES_UNKNOWN;
    ceni_nvml_why why;
    if (!uuid) {
        return ceni_fail(CEN_ERR_INVALID, "cen_holders_used: uuid is NULL");
    }
    cen_status status = ceni_nvml_find(uuid, &device, &why);
    if (!status && used_bytes) {
        status = ceni_nvml_memory_of(device, &memory, &why);
    }
    if (!status && own_bytes_out) {
        status = own_bytes(device, &own, &why);
    }
    if (status) {
        return ceni_fail(status, "cen_holders_used: %s: %s", uuid, why.text);
    }
    if (used_bytes) {
        *used_bytes = memory.used;
    }
    if (own_bytes_out) {
        *own_bytes_out = own;
    }
    return CEN_OK;
}
