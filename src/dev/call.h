/* What every wrapper does around a backend's operation: refuse NULL and forked devices, count, and
 * fail when a test asked for it. A wrapper reads:
 *
 *     cen_status status = ceni_call_enter(device, CENI_OP_fill);
 *     if (!status) status = ...argument checks...
 *     return ceni_call_leave(device, CENI_OP_fill, status ? status : backend->fill(...));
 */
#ifndef CENI_DEV_CALL_H
#define CENI_DEV_CALL_H

#include "base/log.h"
#include "dev/dev.h"

/* The id of this process, kept current across forks without a system call, once something was
 * opened that belongs to it. */
extern _Atomic int ceni_call_pid;
/* The same, for what is being opened. */
int ceni_call_this_process(void);

/* CEN_ERR_INVALID: device is NULL; CEN_ERR_FORKED: another process opened it. */
cen_status ceni_call_refuse(const cen_device *device, enum ceni_dev_op op);

/* The status that an injected failure of `op` has, logged. */
cen_status ceni_call_injected(cen_device *device, enum ceni_dev_op op);

static inline cen_status ceni_call_enter(cen_device *device, enum ceni_dev_op op) {
    if (!device || device->pid != atomic_load_explicit(&ceni_call_pid, memory_order_relaxed)) {
        return ceni_call_refuse(device, op);
    }
    atomic_fetch_add_explicit(&device->stats[op].calls, 1, memory_order_relaxed);
    return ceni_fault_hit(&device->faults[op]) ? ceni_call_injected(device, op) : CEN_OK;
}

/* CEN_ERR_NOT_READY is an answer, not a failure. */
static inline cen_status ceni_call_leave(cen_device *device, enum ceni_dev_op op,
                                         cen_status status) {
    if (status && status != CEN_ERR_NOT_READY && device) {
        atomic_fetch_add_explicit(&device->stats[op].failures, 1, memory_order_relaxed);
    }
    return status;
}

/* A required pointer. */
static inline cen_status ceni_call_need(const void *pointer, enum ceni_dev_op op,
                                        const char *argument) {
    return pointer ? CEN_OK
                   : ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", ceni_dev_op_name(op), argument);
}

#endif
