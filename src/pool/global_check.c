/* Where blocks of the global pool lie, and its invariants. */
#include "pool/global_int.h"

#include "base/clock.h"
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

typedef struct sums {
    uint64_t device[CEN_GLOBAL_DEVICES], pending[CEN_GLOBAL_DEVICES], host;
    size_t pending_count;
} sums;

static const char *check_span(const cen_global *g, const ceni_span *s, const ceni_span *before,
                              sums *sum) {
    uint64_t size = 0;
    if (before && before->addr + before->size > s->addr) {
        return "two blocks overlap";
    }
    sum->pending_count += s->pending;
    for (size_t i = 0; i < s->page_count; i++) {
        int home = s->pages[i].home;
        size += s->pages[i].size;
        if (home == CEN_GLOBAL_HOST) {
            sum->host += s->pages[i].size;
            continue;
        }
        if (!(g->members[s->device].reach >> home & 1)) {
            return "a page's device cannot be reached";
        }
        sum->device[home] += s->pages[i].size;
        sum->pending[home] += s->pending ? s->pages[i].size : 0;
    }
    return s->pages && size != s->size ? "pages do not fill a block" : NULL;
}

/* The lock is held: what is being made or returned is counted, but in no table, so counters may
 * be ahead of the sums, never behind. */
static const char *check_spans(const cen_global *g) {
    sums sum = {{0}, {0}, 0, 0};
    const char *wrong = NULL;
    for (size_t i = 0; i < g->count; i++) {
        uint64_t kept = 0;
        for (const ceni_span *s = g->kept; s; s = s->next) {
            kept += ceni_span_bytes(s, (int)i);
        }
        if (atomic_load(&g->members[i].kept_bytes) < kept) {
            return "a device's figures are not the sum of what is kept";
        }
    }
    for (size_t i = 0; i < g->span_count && !wrong; i++) {
        wrong = check_span(g, g->spans[i], i ? g->spans[i - 1] : NULL, &sum);
    }
    for (size_t i = 0; i < g->count && !wrong; i++) {
        if (atomic_load(&g->members[i].global_bytes) < sum.device[i] ||
            atomic_load(&g->members[i].pending_bytes) != sum.pending[i]) {
            wrong = "a device's figures are not the sum of its blocks";
        }
    }
    if (!wrong &&
        (sum.pending_count != g->pending_count || atomic_load(&g->host_bytes) < sum.host)) {
        wrong = "figures are not the sum of the blocks";
    }
    return wrong;
}

/* Borrowed pages come from devices that the borrower can reach. */
static const char *check_borrowed(const cen_global *g, const ceni_member *m) {
    const char *wrong = NULL;
    ceni_lock_take(&m->pool->lock);
    for (const ceni_pool_page *p = m->pool->pages; p && !wrong; p = p->next) {
        bool found = p->home.host;
        for (size_t i = 0; i < g->count; i++) {
            found = found || (g->members[i].device == p->home.device && m->reach >> i & 1);
        }
        wrong = found ? NULL : "a local pool holds a page that its device cannot reach";
    }
    ceni_lock_leave(&m->pool->lock);
    return wrong;
}

cen_status cen_global_verify(cen_global *global) {
    cen_status status = ceni_global_refuse(global, 0, "cen_global_verify");
    if (status) {
        return status;
    }
    ceni_lock_take(&global->lock);
    const char *wrong = check_spans(global);
    ceni_lock_leave(&global->lock);
    for (size_t i = 0; i < global->count && !wrong; i++) {
        wrong = check_borrowed(global, &global->members[i]);
    }
    if (wrong) {
        return ceni_fail(CEN_ERR_CORRUPT, "global pool: %s", wrong);
    }
    for (size_t i = 0; i < global->count && !status; i++) {
        status = cen_pool_verify(global->members[i].pool);
    }
    return status;
}
