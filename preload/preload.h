/* The interposer behind `cenote run`: what its files share.
 *
 * A hook stands before a function of the CUDA driver. It calls the driver's own function with no
 * lock held and notes what came of it in the process's ledger. What cenote itself calls meanwhile
 * passes through: each thread knows whether it is inside. docs/run.md says what is counted how. */
#ifndef CENI_PRELOAD_H
#define CENI_PRELOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cenote/ledger.h"
#include "preload/abi.h"

#define PL_EXPORT __attribute__((visibility("default")))

/* ---- the driver's own functions (resolve.c); each can be called ---- */

typedef struct pl_driver {
#define HOOK(symbol, plain, version, streams, parameters, arguments) pl_result(*symbol) parameters;
#define USED(symbol, parameters)                                     pl_result(*symbol) parameters;
#include "preload/hooks.def"
} pl_driver;

#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    PL_EXPORT pl_result symbol parameters;
#include "preload/hooks.def"

/* Found at the first call. */
const pl_driver *pl_real(void);
/* The hook that stands before the function at `address`, or `address` itself. `streams`: which
 * default stream was asked for, where that tells two names of one function apart. */
void *pl_swap(void *address, unsigned streams);
/* For dlsym: the hook for a name that was asked of a library; NULL: whatever the C library says. */
void *pl_answer(void *handle, const char *name);
/* The C library's dlsym. */
extern void *(*pl_dlsym)(void *handle, const char *name);

/* ---- the process (state.c) ---- */

enum { PL_DEVICES = CEN_LEDGER_DEVICES, PL_FAILURE_WAIT_MS = 2000 };

typedef struct pl_settings {
    bool pool, stacks;
    uint64_t limit; /* of each device; UINT64_MAX: none */
} pl_settings;

/* Whose call it is: the program's, one that cenote makes, or one that cenote's pool makes, whose
 * pages are noted. */
enum pl_whose { PL_PROGRAM, PL_OWN, PL_POOL };

extern __thread int pl_inside __attribute__((tls_model("initial-exec")));
extern __thread bool pl_quiet __attribute__((tls_model("initial-exec"))); /* failures are no news */
extern pl_settings pl_set;

/* Begins a hook: true if the call is to be noted, and then pl_leave ends it and gives `result`. */
bool pl_enter(int *before);
pl_result pl_leave(int before, pl_result result);

/* The process's ledger; NULL: there is none. Made at the first call. */
cen_ledger *pl_ledger(void);
/* The device of the calling thread's context, named in the ledger; -1: there is no context. */
int pl_device_now(void);
/* Makes sure that the ledger knows a device; its UUID as NVML prints it. */
const char *pl_device_uuid(int device);
uint64_t pl_device_total(int device);

/* A forked child starts afresh: each part forgets what it kept. They do only what a signal handler
 * may do. */
void pl_fork_resolve(void);
void pl_fork_account(void);
void pl_fork_pages(void);
void pl_fork_streams(void);
void pl_fork_pool(void);

/* How every hook begins: what cenote itself calls passes through. */
#define PL_BEGIN(symbol, arguments)                                                                \
    const pl_driver *real = pl_real();                                                             \
    pl_request request = {.device = -1};                                                           \
    if (!pl_enter(&request.before)) {                                                              \
        return real->symbol arguments;                                                             \
    }

/* ---- entries (account.c) ---- */

typedef struct pl_request {
    int before; /* of pl_enter */
    int device; /* -1: unknown; nothing is noted */
    cen_ledger_kind kind;
    uint64_t bytes, stream;
    bool counted; /* against the limit */
} pl_request;

/* Whether a request may go to the driver; if it goes over the limit its failure is noted. */
bool pl_ask(pl_request *request, cen_ledger_kind kind, int device, uint64_t bytes, pl_ptr stream);
/* What came of it: an entry with the caller's stack, or a failure. Gives `result`. */
pl_result pl_done(pl_request *request, pl_result result, uint64_t key);
/* The same where no entry comes of it, only room was asked for. */
void pl_drop(pl_request *request);
/* An entry ends, before the driver can give its key again; false: there is none. `entry` may be
 * NULL. */
bool pl_end(cen_ledger_kind kind, uint64_t key, cen_ledger_entry *entry);
/* It did not end after all. */
void pl_restore(const cen_ledger_entry *entry);
/* The same if the driver refused to free what had an entry. Gives `result`. */
pl_result pl_ended(bool ended, const cen_ledger_entry *entry, pl_result result);
/* The entry goes by another key. */
void pl_rename(cen_ledger_kind kind, uint64_t key, uint64_t new_key);
/* Sets or adds to what an entry of a measured kind holds, and makes it if it is not there. */
void pl_set_bytes(cen_ledger_kind kind, int device, uint64_t key, uint64_t bytes);
void pl_add_measured(cen_ledger_kind kind, int device, uint64_t key, int64_t bytes);
/* Notes a failure for want of memory. */
void pl_failed(int device, uint64_t bytes, uint64_t stream);
/* What the program may see of a device's memory under the limit; either may be NULL. */
void pl_show(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* ---- what is measured around a call (measure.c) ---- */

enum pl_measured_by { PL_NOT, PL_BY_DRIVER, PL_BY_NVML, PL_BY_NVML_OWN };

typedef struct pl_measure {
    int device;
    enum pl_measured_by by;
    uint64_t used, held;
} pl_measure;

/* device -1: that of the context. `without_context`: the device may have none yet. */
pl_measure pl_measure_begin(int device, bool without_context);
/* What came to be in use meanwhile that no other entry tells. False: it could not be measured. */
bool pl_measure_end(const pl_measure *measure, int64_t *bytes);

/* ---- contexts (context.c) ---- */

/* The primary context of a device; NULL: nobody retained it. */
pl_ptr pl_primary_context(int device);

/* ---- captures and streams (stream.c) ---- */

/* Whether any stream of the process is being captured; and this one. */
bool pl_capturing(void);
bool pl_stream_capturing(pl_ptr stream);
/* The default stream that NULL means. */
static inline pl_ptr pl_stream_of(pl_ptr stream, unsigned streams) {
    return stream || streams == PL_LEGACY ? stream : PL_STREAM_PER_THREAD;
}

/* ---- pages (pages.c) ---- */

/* At the end: our pool holds nothing any more. */
void pl_pages_end_own(void);
/* Calls fn for each range of addresses where pages of the pool of a device are mapped. */
void pl_pages_each_own(int device, void (*fn)(pl_addr addr, uint64_t size, int peer), int peer);

/* ---- the pool (pool.c) ---- */

/* Each is tried before the driver where --pool is set; false: it is the driver's to do. */
bool pl_pool_alloc(uint64_t bytes, pl_ptr stream, bool async, pl_addr *addr, pl_result *result);
bool pl_pool_free(pl_addr addr, pl_ptr stream, bool async, pl_result *result);
bool pl_pool_range(pl_addr addr, pl_addr *base, size_t *size);
bool pl_pool_has(pl_addr addr);
/* Bytes that the pool of a device holds and no block uses. */
uint64_t pl_pool_idle(int device);
/* The program shares memory with other processes: from now on the driver serves it. */
void pl_pool_stop_for_ipc(void);
void pl_pool_reset(int device);
void pl_pool_stream_made(pl_ptr stream, unsigned flags);
void pl_pool_stream_gone(pl_ptr stream);
void pl_pool_peer(int device, int peer);
void pl_pool_granted(int device, pl_addr addr, uint64_t size);

#endif
