/* What contexts, code and graphs take of a device, which the driver does not say: the difference of
 * what is in use around the call that makes them.
 *
 * Where there is a context the driver says what is in use; else NVML does, of this process alone
 * where it can tell. What other calls of this process took or gave meanwhile, as its ledger has it,
 * is no part of the difference. What another process did meanwhile is, unless NVML tells them
 * apart: these figures are measured, not counted. */
#include "preload/preload.h"

#include "cenote/holders.h"

static bool look(int device, enum pl_measured_by by, uint64_t *used) {
    size_t free_bytes = 0, total = 0;
    uint64_t all = 0, own = CEN_BYTES_UNKNOWN;
    if (by == PL_BY_DRIVER) {
        if (pl_real()->cuMemGetInfo_v2(&free_bytes, &total) != PL_SUCCESS) {
            return false;
        }
        *used = total - free_bytes;
        return true;
    }
    pl_quiet = true; /* there are other ways to measure */
    cen_status status = cen_holders_used(pl_device_uuid(device), &all, &own);
    pl_quiet = false;
    if (status || (by == PL_BY_NVML_OWN && own == CEN_BYTES_UNKNOWN)) {
        return false;
    }
    *used = by == PL_BY_NVML_OWN ? own : all;
    return true;
}

static uint64_t held(int device) {
    return pl_ledger() ? cen_ledger_held_bytes(pl_ledger(), (unsigned)device) : 0;
}

static bool begin_by(pl_measure *m, enum pl_measured_by by) {
    bool told = look(m->device, by, &m->used);
    m->by = told ? by : PL_NOT;
    return told;
}

/* The driver tells of the device of the calling thread's context alone. */
pl_measure pl_measure_begin(int device, bool without_context) {
    pl_measure m = {.device = device >= 0 ? device : pl_device_now(), .by = PL_NOT};
    if (m.device < 0 || !pl_ledger() || pl_capturing()) {
        return m;
    }
    bool told = without_context && (begin_by(&m, PL_BY_NVML_OWN) || begin_by(&m, PL_BY_NVML));
    if (!told && pl_device_now() == m.device) {
        (void)begin_by(&m, PL_BY_DRIVER);
    }
    m.held = held(m.device);
    return m;
}

bool pl_measure_end(const pl_measure *measure, int64_t *bytes) {
    uint64_t used = 0;
    if (measure->by == PL_NOT || pl_capturing() || !look(measure->device, measure->by, &used)) {
        return false;
    }
    *bytes = (int64_t)(used - measure->used) - (int64_t)(held(measure->device) - measure->held);
    return true;
}
