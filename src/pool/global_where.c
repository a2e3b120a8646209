/* Where blocks of the global pool lie: of its own by their pages, of local pools by theirs. */
#include "pool/global_int.h"

#include "base/log.h"

typedef struct home_sum {
    const cen_global *global;
    cen_global_report *report;
} home_sum;

static void add_home(void *arg, const ceni_home *home, uint64_t bytes) {
    const home_sum *sum = arg;
    int number = ceni_global_number(sum->global, home);
    sum->report->mapped_bytes += bytes;
    sum->report->reachable &= ceni_global_granted(sum->global, number);
    *(number == CEN_GLOBAL_HOST ? &sum->report->host_bytes : &sum->report->device_bytes[number]) +=
        bytes;
}

static cen_status where_in_pool(cen_global *g, ceni_member *m, const void *block,
                                cen_global_report *report) {
    size_t bytes;
    cen_status status = cen_pool_block_size(m->pool, block, &bytes);
    if (status) {
        return status;
    }
    *report = (cen_global_report){
        .requested_bytes = bytes, .reachable = ((uint64_t)1 << g->count) - 1, .local_pool = true};
    home_sum sum = {g, report};
    ceni_pool_homes(m->pool, (uintptr_t)block, bytes, add_home, &sum);
    bool at_home = report->device_bytes[m->number] == report->mapped_bytes;
    bool on_host = report->host_bytes && report->host_bytes == report->mapped_bytes;
    bool on_peer = false;
    for (size_t i = 0; i < g->count; i++) {
        on_peer = on_peer || report->device_bytes[i] == report->mapped_bytes;
    }
    report->placement = at_home   ? CEN_PLACE_LOCAL
                        : on_host ? CEN_PLACE_HOST
                        : on_peer ? CEN_PLACE_PEER
                                  : CEN_PLACE_WEIGHTED;
    return CEN_OK;
}

cen_status cen_global_where(cen_global *global, const void *block, cen_global_report *report) {
    cen_status status = ceni_global_refuse(global, 0, "cen_global_where");
    if (!status && !report) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_global_where: report is NULL");
    }
    if (status) {
        return status;
    }
    ceni_lock_take(&global->lock);
    const ceni_span *s = ceni_span_find(global, (uintptr_t)block);
    bool freed = s && s->pending; /* of a local pool's block too, which takes it for live */
    bool found = s && s->pages && !freed;
    if (found) {
        ceni_span_report(s, report);
    }
    ceni_lock_leave(&global->lock);
    if (found) {
        return CEN_OK;
    }
    ceni_member *owner = freed ? NULL : ceni_global_owner(global, block);
    return owner ? where_in_pool(global, owner, block, report)
                 : ceni_fail(CEN_ERR_FOREIGN_POINTER,
                             "cen_global_where: %p is no block of this pool", block);
}

static int home_in_span(const ceni_span *s, uint64_t addr) {
    uint64_t at = s->addr;
    size_t i = 0;
    while (at + s->pages[i].size <= addr) {
        at += s->pages[i++].size;
    }
    return s->pages[i].home;
}

typedef struct one_home {
    const cen_global *global;
    int number;
} one_home;

static void take_home(void *arg, const ceni_home *home, uint64_t bytes) {
    one_home *found = arg;
    (void)bytes;
    found->number = ceni_global_number(found->global, home);
}

cen_status cen_global_home(cen_global *global, const void *byte, int *device) {
    cen_status status = ceni_global_refuse(global, 0, "cen_global_home");
    if (!status && !device) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_global_home: device is NULL");
    }
    if (status) {
        return status;
    }
    uint64_t addr = (uintptr_t)byte;
    one_home found = {global, CEN_GLOBAL_ALL};
    ceni_lock_take(&global->lock);
    const ceni_span *s = ceni_span_find(global, addr);
    if (s && s->pages) {
        found.number = home_in_span(s, addr);
    }
    ceni_lock_leave(&global->lock);
    for (size_t i = 0; i < global->count && found.number == CEN_GLOBAL_ALL; i++) {
        ceni_pool_homes(global->members[i].pool, addr, 1, take_home, &found);
    }
    if (found.number == CEN_GLOBAL_ALL) {
        return ceni_fail(CEN_ERR_FOREIGN_POINTER, "cen_global_home: %p is not in this pool", byte);
    }
    *device = found.number;
    return CEN_OK;
}
