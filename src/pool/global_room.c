/* Room: how much each device could give, making it free, and taking back what was lent. */
#include "pool/global_int.h"

#include <stdlib.h>

#include "base/log.h"

bool ceni_global_capturing(cen_global *g) {
    bool capturing = false;
    for (size_t i = 0; i < g->count && !capturing; i++) {
        cen_pool *pool = g->members[i].pool;
        ceni_lock_take(&pool->lock);
        capturing = pool->capturing > 0;
        ceni_lock_leave(&pool->lock);
    }
    return capturing;
}

uint64_t ceni_global_driver_free(cen_global *g, int number) {
    uint64_t free_bytes = 0;
    if (atomic_load(&g->members[number].lost)) {
        return 0;
    }
    cen_status status = ceni_dev_obtainable(g->members[number].device, &free_bytes);
    if (ceni_is_loss(status)) {
        ceni_global_lose(g, number);
    }
    return status ? 0 : free_bytes;
}

void ceni_global_find_lost(cen_global *g) {
    for (size_t i = 0; i < g->count; i++) {
        (void)ceni_global_driver_free(g, (int)i);
    }
}

/* Host memory in local pools, through whichever device. */
static ceni_held host_held(cen_global *g) {
    ceni_held sum = {0};
    bool look = !ceni_global_capturing(g);
    for (size_t i = 0; i < g->count; i++) {
        ceni_home home = {g->members[i].device, true};
        ceni_held held = ceni_pool_held(g->members[i].pool, &home, look);
        sum.bytes += held.bytes;
        sum.idle += held.idle;
    }
    return sum;
}

static uint64_t host_left(cen_global *g) {
    if (!g->options.allow_host) {
        return 0;
    }
    /* What is kept goes back when its room is wanted. */
    uint64_t used = atomic_load(&g->host_bytes) + host_held(g).bytes;
    uint64_t limit = g->options.host_bytes ? g->options.host_bytes : UINT64_MAX;
    return limit > used ? limit - used : 0;
}

/* A device's pages in all local pools, or in all but its own. */
static ceni_held held_of(cen_global *g, int number, bool own) {
    ceni_home home = {g->members[number].device, false};
    ceni_held sum = {0};
    bool look = !ceni_global_capturing(g);
    for (size_t i = 0; i < g->count; i++) {
        if ((int)i != number || own) {
            ceni_held held = ceni_pool_held(g->members[i].pool, &home, look);
            sum.bytes += held.bytes;
            sum.idle += held.idle;
        }
    }
    return sum;
}

uint64_t ceni_global_room_of(cen_global *g, int home) {
    if (home == CEN_GLOBAL_HOST) {
        return host_left(g);
    }
    uint64_t free_bytes = ceni_global_driver_free(g, home);
    return atomic_load(&g->members[home].lost) ? 0
                                               : free_bytes + held_of(g, home, true).idle +
                                                     atomic_load(&g->members[home].kept_bytes);
}

/* Idle pages of a home in one local pool go back, also after moves; `wait`: what is pending too.
 */
static uint64_t vacate(cen_pool *pool, const ceni_home *home, uint64_t bytes, bool wait) {
    ceni_pool_enter(pool);
    uint64_t returned = ceni_pool_vacate(pool, home, bytes, wait);
    ceni_lock_leave(&pool->lock);
    return returned;
}

/* The notice's own allocations, on this thread, are not announced in turn: it would not end. */
static _Thread_local bool telling;

/* Asks a borrower's user for memory of a device, if any of it is in use. */
static void tell(cen_global *g, int number, int borrower, uint64_t wanted) {
    ceni_home home = {g->members[number].device, false};
    ceni_held held = ceni_pool_held(g->members[borrower].pool, &home, true);
    if (held.bytes > held.idle) {
        cen_global_notice n = {number, borrower, wanted, held.bytes - held.idle};
        telling = true;
        g->options.notice(g->options.notice_arg, &n);
        telling = false;
        (void)ceni_spans_finish(g, true); /* blocks that other devices' streams used */
    }
}

/* Has neighbours give memory of a device back; returns how much they did. */
static uint64_t take_back(cen_global *g, int number, uint64_t bytes, bool wait, bool notice) {
    enum { IDLE, WAITED_FOR, ASKED_FOR };
    ceni_home home = {g->members[number].device, false};
    uint64_t returned = 0;
    if (ceni_global_capturing(g)) {
        return 0;
    }
    for (int pass = IDLE; pass <= ASKED_FOR && returned < bytes; pass++) {
        if ((pass == WAITED_FOR && !wait) ||
            (pass == ASKED_FOR && (!notice || !g->options.notice || telling))) {
            continue;
        }
        for (size_t i = 0; i < g->count && returned < bytes; i++) {
            cen_pool *pool = g->members[i].pool;
            if ((int)i == number || !ceni_pool_held(pool, &home, false).bytes) {
                continue;
            }
            if (pass == ASKED_FOR) {
                tell(g, number, (int)i, bytes - returned);
            }
            returned += vacate(pool, &home, bytes - returned, pass != IDLE && wait);
        }
    }
    return returned;
}

/* Idle pages of a device in one local pool; `wait`: those behind pending work, too. */
static uint64_t release_from(cen_pool *pool, const ceni_home *home, uint64_t bytes, bool wait) {
    ceni_pool_enter(pool);
    ceni_magazines_flush(pool);
    ceni_pool_settle(pool, true);
    if (wait) {
        (void)ceni_pool_drain(pool);
    }
    uint64_t returned = ceni_pool_release_home(pool, home, bytes);
    ceni_lock_leave(&pool->lock);
    return returned;
}

bool ceni_global_make_room(cen_global *g, int number, uint64_t bytes, enum ceni_effort effort) {
    uint64_t free_bytes = ceni_global_driver_free(g, number);
    if (free_bytes >= bytes || ceni_global_capturing(g)) {
        return free_bytes >= bytes;
    }
    uint64_t lack = bytes - free_bytes, kept = ceni_spans_return(g, number, lack);
    lack -= kept < lack ? kept : lack;
    ceni_home home = {g->members[number].device, false};
    for (size_t i = 0; i < g->count && lack; i++) {
        uint64_t returned = release_from(g->members[i].pool, &home, lack, false);
        lack -= returned < lack ? returned : lack;
    }
    if (lack && effort >= CENI_WAITING) {
        uint64_t returned = release_from(g->members[number].pool, &home, lack, true);
        lack -= returned < lack ? returned : lack;
    }
    if (lack && effort >= CENI_WAITING) {
        (void)take_back(g, number, lack, true, effort == CENI_ASKING);
    }
    return ceni_global_driver_free(g, number) >= bytes;
}

typedef struct candidate {
    int number, rank;
    uint64_t room;
} candidate;

static int by_link(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return x->room == y->room ? x->number - y->number : x->room > y->room ? -1 : 1;
}

size_t ceni_global_peers(cen_global *g, int device, int peers[CEN_GLOBAL_DEVICES]) {
    candidate found[CEN_GLOBAL_DEVICES];
    size_t count = 0;
    for (size_t i = 0; i < g->count; i++) {
        if ((int)i != device && g->members[device].reach >> i & 1 &&
            !atomic_load(&g->members[i].lost)) {
            found[count++] =
                (candidate){(int)i, g->members[device].rank[i], ceni_global_room_of(g, (int)i)};
        }
    }
    qsort(found, count, sizeof *found, by_link);
    for (size_t i = 0; i < count; i++) {
        peers[i] = found[i].number;
    }
    return count;
}

cen_status cen_global_reclaim(cen_global *global, int device, uint64_t bytes, bool wait,
                              uint64_t *returned_bytes) {
    cen_status status = ceni_global_refuse(global, device, "cen_global_reclaim");
    if (!status && ceni_global_capturing(global)) {
        status = ceni_fail(CEN_ERR_CAPTURE, "cen_global_reclaim: a stream is capturing");
    }
    if (status) {
        return status;
    }
    uint64_t returned = take_back(global, device, bytes, wait, true);
    if (returned_bytes) {
        *returned_bytes = returned;
    }
    return CEN_OK;
}

static void room_of_device(cen_global *g, int number, cen_global_room *room) {
    ceni_member *m = &g->members[number];
    ceni_home home = {m->device, false};
    bool look = !ceni_global_capturing(g);
    ceni_held own = ceni_pool_held(m->pool, &home, look);
    ceni_held all = ceni_pool_held(m->pool, NULL, look);
    ceni_held lent = held_of(g, number, false);
    room->total_bytes = m->device->total_bytes;
    room->free_bytes = ceni_global_driver_free(g, number);
    room->idle_bytes = all.idle;
    room->kept_bytes = atomic_load(&m->kept_bytes);
    room->pool_bytes = own.bytes;
    room->borrowed_bytes = all.bytes - own.bytes;
    room->lent_bytes = lent.bytes;
    room->global_bytes = atomic_load(&m->global_bytes);
    room->pending_bytes = atomic_load(&m->pending_bytes);
    room->lost = atomic_load(&m->lost);
    room->available_bytes =
        room->lost ? 0 : room->free_bytes + own.idle + lent.idle + room->kept_bytes;
    room->largest_bytes = room->available_bytes / g->granularity * g->granularity;
}

static void room_of_host(cen_global *g, cen_global_room *room) {
    ceni_held held = host_held(g);
    uint64_t spans = atomic_load(&g->host_bytes);
    room->total_bytes = !g->options.allow_host  ? 0
                        : g->options.host_bytes ? g->options.host_bytes
                                                : UINT64_MAX;
    uint64_t left = host_left(g);
    room->kept_bytes = atomic_load(&g->host_kept);
    room->free_bytes =
        left == UINT64_MAX || left < room->kept_bytes ? left : left - room->kept_bytes;
    room->idle_bytes = held.idle;
    room->pending_bytes = atomic_load(&g->host_pending);
    room->lent_bytes = held.bytes;
    room->global_bytes = spans;
    room->available_bytes = left; /* what is kept goes back when its room is wanted */
    room->largest_bytes = left / g->granularity * g->granularity;
}

static uint64_t plus(uint64_t a, uint64_t b) {
    return a + b < a ? UINT64_MAX : a + b;
}

static void add_room(cen_global_room *sum, const cen_global_room *one) {
    sum->total_bytes = plus(sum->total_bytes, one->total_bytes);
    sum->free_bytes = plus(sum->free_bytes, one->free_bytes);
    sum->available_bytes = plus(sum->available_bytes, one->available_bytes);
    sum->idle_bytes += one->idle_bytes;
    sum->pool_bytes += one->pool_bytes;
    sum->global_bytes += one->global_bytes;
    sum->kept_bytes += one->kept_bytes;
    sum->lent_bytes += one->lent_bytes;
    sum->borrowed_bytes += one->borrowed_bytes;
    sum->pending_bytes += one->pending_bytes;
}

static void room_of_all(cen_global *g, cen_global_room *sum) {
    cen_global_room one[CEN_GLOBAL_DEVICES] = {{0}}, host = {0};
    room_of_host(g, &host);
    *sum = host;
    sum->idle_bytes = 0; /* the host's are in the local pools, too, and counted there */
    for (size_t i = 0; i < g->count; i++) {
        room_of_device(g, (int)i, &one[i]);
        add_room(sum, &one[i]);
    }
    for (size_t i = 0; i < g->count; i++) {
        uint64_t together = 0;
        for (size_t k = 0; k < g->count; k++) {
            together += g->members[i].reach >> k & 1 ? one[k].largest_bytes : 0;
        }
        if (!one[i].lost && together > sum->largest_bytes) {
            sum->largest_bytes = together;
        }
    }
}

cen_status cen_global_available(cen_global *global, int device, cen_global_room *room) {
    bool whole = device == CEN_GLOBAL_HOST || device == CEN_GLOBAL_ALL;
    cen_status status = ceni_global_refuse(global, whole ? 0 : device, "cen_global_available");
    if (!status && !room) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_global_available: room is NULL");
    }
    if (status) {
        return status;
    }
    cen_global_room own = {0};
    (void)ceni_spans_finish(global, false);
    if (device == CEN_GLOBAL_HOST) {
        room_of_host(global, &own);
    } else if (device == CEN_GLOBAL_ALL) {
        room_of_all(global, &own);
    } else {
        room_of_device(global, device, &own);
    }
    *room = own;
    return CEN_OK;
}
