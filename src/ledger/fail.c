/* Requests that failed: noted, and, where somebody watches, held until they have been read.
 *
 * A word of the file tells who watches and another what they have read; the writer looks at it now
 * and then, so that a watcher needs no mapping of a file that is another's to cut off. */
#include "ledger/ledger_int.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define LOOK_NS 200000 /* between two looks at the answer */

static uint64_t note(cen_ledger *l, const ceni_ledger_failed *failed) {
    uint64_t count = atomic_load_explicit(&l->head->failures, memory_order_relaxed);
    l->head->failed[count % CENI_LEDGER_FAILURES] = *failed;
    atomic_store_explicit(&l->head->failures, count + 1, memory_order_release);
    ceni_ledger_event event = {.key = failed->free_bytes,
                               .bytes = failed->bytes,
                               .stream = failed->stream,
                               .time_us = failed->time_us,
                               .stack = failed->stack,
                               .device = failed->device,
                               .what = CENI_LEDGER_FAILED};
    ceni_ledger_note_event(l, &event);
    return count + 1;
}

/* A watcher that died without a word is not waited for. */
static bool watched(const cen_ledger *l) {
    uint64_t pid = atomic_load_explicit(&l->head->watcher, memory_order_acquire);
    return pid && (!kill((pid_t)pid, 0) || errno != ESRCH);
}

static void wait_for_answer(const cen_ledger *l, uint64_t failures, unsigned wait_ms) {
    uint64_t until = ceni_now_ns() + (uint64_t)wait_ms * 1000000;
    while (atomic_load_explicit(&l->head->answered, memory_order_acquire) < failures &&
           watched(l) && ceni_now_ns() < until) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

cen_status cen_ledger_failed(cen_ledger *l, unsigned device, uint64_t bytes, uint64_t free_bytes,
                             uint64_t stream, uint32_t stack, unsigned wait_ms) {
    cen_status status = ceni_ledger_check(l, "cen_ledger_failed");
    if (status) {
        return status;
    }
    if (device >= CEN_LEDGER_DEVICES) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_failed: device is %u, not below %d", device,
                         CEN_LEDGER_DEVICES);
    }
    ceni_ledger_failed failed = {.bytes = bytes < CENI_LEDGER_BYTES_MOST ? bytes
                                                                         : CENI_LEDGER_BYTES_MOST,
                                 .free_bytes = free_bytes,
                                 .stream = stream,
                                 .time_us = ceni_ledger_now_us(),
                                 .stack = stack,
                                 .device = (uint16_t)device};
    ceni_ledger_enter(l);
    if (stack >= CENI_LEDGER_COUNT(l, CENI_LEDGER_STACKS)) {
        failed.stack = CEN_LEDGER_NO_STACK;
    }
    uint64_t failures = note(l, &failed);
    ceni_ledger_leave(l, failed.time_us);
    wait_for_answer(l, failures, wait_ms);
    return CEN_OK;
}
