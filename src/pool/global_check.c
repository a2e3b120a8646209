/* The global pool's invariants: spans do not overlap and are filled by their pages, the figures are
 * their sums, and nobody holds memory that it cannot reach. */
#include "pool/global_int.h"

#include "base/log.h"

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
