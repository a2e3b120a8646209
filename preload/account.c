/* Entries of the ledger, and the limit.
 *
 * What the process may hold of a device is judged by the sums of the ledger and the requests that
 * are on their way to the driver; both change under one lock, which nothing of the driver's is
 * called with. */
#include "preload/preload.h"

#include <pthread.h>

#include "cenote/trace.h"
#include "trace/emit.h"

static struct {
    pthread_mutex_t lock;
    uint64_t underway[PL_DEVICES];
} account = {.lock = PTHREAD_MUTEX_INITIALIZER};

void pl_fork_account(void) {
    pthread_mutex_init(&account.lock, NULL);
    for (int i = 0; i < PL_DEVICES; i++) {
        account.underway[i] = 0;
    }
}

/* Whose events a trace is to have: what a program asks for itself. A pool traces its own. */
static bool is_traced(cen_ledger_kind kind) {
    return kind == CEN_LEDGER_MEMORY || kind == CEN_LEDGER_ASYNC || kind == CEN_LEDGER_MANAGED;
}

static uint32_t stack_here(void) {
    return pl_set.stacks ? cen_ledger_stack_here(pl_ledger(), 0) : CEN_LEDGER_NO_STACK;
}

void pl_failed(int device, uint64_t bytes, uint64_t stream) {
    size_t free_bytes = 0, total = 0;
    if (device < 0 || !pl_ledger()) {
        return;
    }
    if (!pl_capturing()) {
        (void)pl_real()->cuMemGetInfo_v2(&free_bytes, &total);
    }
    if (bytes && ceni_tracing() && !pl_set.pool) { /* a pool tells its trace itself */
        ceni_emit(CENI_EVENT_OOM, (unsigned)device, free_bytes, bytes, stream);
    }
    (void)cen_ledger_failed(pl_ledger(), (unsigned)device, bytes, free_bytes, stream, stack_here(),
                            PL_FAILURE_WAIT_MS);
}

static bool has_room(int device, uint64_t bytes) {
    pthread_mutex_lock(&account.lock);
    uint64_t held = cen_ledger_held_bytes(pl_ledger(), (unsigned)device);
    held += account.underway[device];
    bool room = held <= pl_set.limit && bytes <= pl_set.limit - held;
    if (room) {
        account.underway[device] += bytes;
    }
    pthread_mutex_unlock(&account.lock);
    return room;
}

bool pl_ask(pl_request *request, cen_ledger_kind kind, int device, uint64_t bytes, pl_ptr stream) {
    request->kind = kind;
    request->device = device;
    request->bytes = bytes;
    request->stream = (uintptr_t)stream;
    request->counted = pl_set.limit != UINT64_MAX && device >= 0 &&
                       cen_ledger_kind_is_summed(kind) && pl_ledger() != NULL;
    if (!request->counted || has_room(device, bytes)) {
        return true;
    }
    request->counted = false;
    if (request->before != PL_POOL) { /* a pool has other ways still, and says when it fails */
        pl_failed(device, bytes, request->stream);
    }
    return false;
}

static void add(const pl_request *request, uint64_t key, uint32_t stack) {
    cen_ledger_entry entry = {.key = key,
                              .bytes = request->bytes,
                              .stream = request->stream,
                              .stack = stack,
                              .device = (uint16_t)request->device,
                              .kind = (uint8_t)request->kind};
    (void)cen_ledger_add(pl_ledger(), &entry); /* what is lost is counted there */
}

pl_result pl_done(pl_request *request, pl_result result, uint64_t key) {
    bool noted = result == PL_SUCCESS && request->device >= 0 && pl_ledger();
    uint32_t stack = noted ? stack_here() : CEN_LEDGER_NO_STACK;
    if (request->counted) {
        pthread_mutex_lock(&account.lock);
        account.underway[request->device] -= request->bytes;
        if (noted) {
            add(request, key, stack);
        }
        pthread_mutex_unlock(&account.lock);
    } else if (noted) {
        add(request, key, stack);
    }
    if (noted && is_traced(request->kind) && request->before == PL_PROGRAM) {
        cen_trace_alloc(request->device, key, request->bytes, (cen_stream)request->stream);
    }
    if (result == PL_OUT_OF_MEMORY && request->before != PL_POOL) {
        pl_failed(request->device, request->bytes, request->stream);
    }
    return result;
}

void pl_drop(pl_request *request) {
    if (request->counted) {
        pthread_mutex_lock(&account.lock);
        account.underway[request->device] -= request->bytes;
        pthread_mutex_unlock(&account.lock);
    }
}

bool pl_end(cen_ledger_kind kind, uint64_t key, cen_ledger_entry *entry) {
    cen_ledger_entry found;
    if (!pl_ledger() || cen_ledger_find(pl_ledger(), kind, key, &found) ||
        cen_ledger_remove(pl_ledger(), kind, found.device, key, &found)) {
        return false;
    }
    if (is_traced(kind)) {
        cen_trace_free(found.device, key, found.bytes, (cen_stream)found.stream);
    }
    if (entry) {
        *entry = found;
    }
    return true;
}

void pl_restore(const cen_ledger_entry *entry) {
    (void)cen_ledger_add(pl_ledger(), entry);
    if (is_traced((cen_ledger_kind)entry->kind)) {
        cen_trace_alloc(entry->device, entry->key, entry->bytes, (cen_stream)entry->stream);
    }
}

pl_result pl_ended(bool ended, const cen_ledger_entry *entry, pl_result result) {
    if (ended && result != PL_SUCCESS) {
        pl_restore(entry);
    }
    return result;
}

void pl_rename(cen_ledger_kind kind, uint64_t key, uint64_t new_key) {
    cen_ledger_entry entry;
    if (pl_end(kind, key, &entry)) {
        entry.key = new_key;
        pl_restore(&entry);
    }
}

void pl_set_bytes(cen_ledger_kind kind, int device, uint64_t key, uint64_t bytes) {
    if (device < 0 || !pl_ledger() ||
        cen_ledger_resize(pl_ledger(), kind, (unsigned)device, key, bytes) == CEN_OK || !bytes) {
        return;
    }
    pl_request request = {.device = device, .kind = kind, .bytes = bytes};
    add(&request, key, stack_here());
}

/* An entry has the stack of whoever made most of it: the first. */
void pl_add_measured(cen_ledger_kind kind, int device, uint64_t key, int64_t bytes) {
    cen_ledger_entry entry;
    if (device < 0 || !pl_ledger()) {
        return;
    }
    if (cen_ledger_find(pl_ledger(), kind, key, &entry)) {
        entry = (cen_ledger_entry){
            .key = key, .stack = stack_here(), .device = (uint16_t)device, .kind = (uint8_t)kind};
    } else {
        bytes += entry.less ? -(int64_t)entry.bytes : (int64_t)entry.bytes;
        (void)cen_ledger_remove(pl_ledger(), kind, entry.device, key, NULL);
    }
    entry.less = bytes < 0;
    entry.bytes = (uint64_t)(bytes < 0 ? -bytes : bytes);
    (void)cen_ledger_add(pl_ledger(), &entry);
}

void pl_show(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
    if (pl_set.limit == UINT64_MAX || device < 0 || !pl_ledger()) {
        return;
    }
    uint64_t held = cen_ledger_held_bytes(pl_ledger(), (unsigned)device);
    uint64_t left = held < pl_set.limit ? pl_set.limit - held : 0;
    if (free_bytes && *free_bytes > left) {
        *free_bytes = left;
    }
    if (total_bytes && *total_bytes > pl_set.limit) {
        *total_bytes = pl_set.limit;
    }
}
