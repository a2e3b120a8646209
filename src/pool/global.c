/* The global pool: its devices, the links between them, and what their local pools ask of it. */
#include "pool/global_int.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dev/call.h"

#define SMALL_BYTES ((uint64_t)32 << 20)

cen_status ceni_global_refuse(const cen_global *global, int device, const char *call) {
    if (!global) {
        return ceni_fail(CEN_ERR_INVALID, "%s: global is NULL", call);
    }
    if (global->members[0].device->pid !=
        atomic_load_explicit(&ceni_call_pid, memory_order_relaxed)) {
        return ceni_fail(CEN_ERR_FORKED, "%s: the pool belongs to the parent process", call);
    }
    if (device < 0 || (size_t)device >= global->count) {
        return ceni_fail(CEN_ERR_NO_DEVICE, "%s: there is no device %d; there are %zu", call,
                         device, global->count);
    }
    return CEN_OK;
}

ceni_home ceni_global_home_of(cen_global *global, int home, int device) {
    return home == CEN_GLOBAL_HOST ? (ceni_home){global->members[device].device, true}
                                   : (ceni_home){global->members[home].device, false};
}

uint64_t ceni_global_granted(const cen_global *global, int home) {
    uint64_t granted = home == CEN_GLOBAL_HOST ? ((uint64_t)1 << global->count) - 1
                                               : global->members[home].granted;
    for (size_t i = 0; i < global->count; i++) {
        granted &= ~((uint64_t)atomic_load(&global->members[i].lost) << i);
    }
    return granted;
}

size_t ceni_global_grants(const cen_global *global, uint64_t granted, ceni_grant *grants) {
    size_t count = 0;
    for (size_t i = 0; i < global->count; i++) {
        if (granted >> i & 1) {
            grants[count++] = (ceni_grant){global->members[i].device, CENI_ACCESS_READ_WRITE};
        }
    }
    return count;
}

int ceni_global_number(const cen_global *global, const ceni_home *home) {
    for (size_t i = 0; i < global->count && !home->host; i++) {
        if (global->members[i].device == home->device) {
            return (int)i;
        }
    }
    return CEN_GLOBAL_HOST;
}

/* What a local pool asks: see ceni_lenders. */

static bool reclaim(void *arg, uint64_t bytes) {
    const ceni_member *m = arg;
    cen_global *g = m->global;
    uint64_t free_bytes = ceni_global_driver_free(g, m->number);
    bool finished = ceni_spans_finish(g, false);
    bool room = ceni_global_make_room(g, m->number, bytes, CENI_AT_ONCE);
    if (!room && ceni_spans_finish(g, true)) {
        finished = true;
        room = ceni_global_make_room(g, m->number, bytes, CENI_AT_ONCE);
    }
    room = room || ceni_global_make_room(g, m->number, bytes, CENI_ASKING);
    return room || finished || ceni_global_driver_free(g, m->number) > free_bytes;
}

/* Peers in turn, the host, and peers again, whose pending work is waited for then. */
static bool lender(void *arg, uint64_t bytes, unsigned *attempt, ceni_home *home) {
    const ceni_member *m = arg;
    cen_global *g = m->global;
    int peers[CEN_GLOBAL_DEVICES];
    uint64_t size = ceni_global_round(g, bytes);
    size_t count = g->options.no_borrowing ? 0 : ceni_global_peers(g, m->number, peers);
    while (!g->options.no_borrowing && *attempt < 2 * count + 1) {
        size_t turn = (*attempt)++;
        int number =
            turn == count ? CEN_GLOBAL_HOST : peers[turn < count ? turn : turn - count - 1];
        bool can = turn > count || ceni_global_room_of(g, number) >= size;
        if (can && number == CEN_GLOBAL_HOST) {
            (void)ceni_spans_return(g, CEN_GLOBAL_HOST, UINT64_MAX); /* the limit is for both */
        } else if (can) {
            can =
                ceni_global_make_room(g, number, size, turn > count ? CENI_WAITING : CENI_AT_ONCE);
        }
        if (can) {
            *home = ceni_global_home_of(g, number, m->number);
            return true;
        }
    }
    return false;
}

_Static_assert(CEN_GLOBAL_DEVICES <= CENI_GRANTS_MAX, "a grant for each device");

static size_t grants(void *arg, const ceni_home *home, ceni_grant *list) {
    const ceni_member *m = arg;
    uint64_t granted = ceni_global_granted(m->global, ceni_global_number(m->global, home));
    return ceni_global_grants(m->global, granted | (uint64_t)1 << m->number, list);
}

/* Whether one device reaches another, and how well; peer access is enabled on the way. */
static cen_status link_devices(ceni_member *m, const ceni_member *peer) {
    bool can = m == peer;
    cen_status status = CEN_OK;
    if (m != peer) {
        status = cen_peer_can_access(m->device, peer->device, &can);
    }
    if (!status && can && m != peer) {
        status = cen_peer_enable(m->device, peer->device);
        status =
            status ? status : ceni_dev_peer_rank(m->device, peer->device, &m->rank[peer->number]);
    }
    if (!status && can) {
        m->reach |= (uint64_t)1 << peer->number;
    }
    return status;
}

static cen_status link_all(cen_global *g) {
    cen_status status = CEN_OK;
    for (size_t i = 0; i < g->count; i++) {
        for (size_t k = 0; k < g->count && !status; k++) {
            status = link_devices(&g->members[i], &g->members[k]);
            g->members[k].granted |= (g->members[i].reach >> k & 1) << i;
        }
    }
    return status;
}

static cen_status check_devices(cen_device *const *devices, size_t count) {
    if (!devices || !count || count > CEN_GLOBAL_DEVICES) {
        return ceni_fail(CEN_ERR_INVALID, "cen_global_create: %zu devices, expected 1 to %d",
                         devices ? count : 0, CEN_GLOBAL_DEVICES);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (devices[i] == devices[k]) {
                return ceni_fail(CEN_ERR_INVALID, "cen_global_create: devices %zu and %zu are one",
                                 k, i);
            }
        }
        if (!devices[i] || devices[i]->backend != devices[0]->backend) {
            return ceni_fail(CEN_ERR_INVALID, "cen_global_create: device %zu is %s", i,
                             devices[i] ? "of another backend" : "NULL");
        }
        if (!devices[i]->vmm) {
            return ceni_fail(CEN_ERR_UNSUPPORTED,
                             "cen_global_create: device %zu has no virtual memory management", i);
        }
    }
    return CEN_OK;
}

static cen_status read_options(const cen_global_options *options, cen_global_options *own) {
    if (options && options->size < sizeof(size_t)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_global_create: options.size is not set");
    }
    if (options) {
        memcpy(own, options, options->size < sizeof *own ? options->size : sizeof *own);
    }
    if (!own->small_bytes) {
        own->small_bytes = SMALL_BYTES;
    }
    if (!own->pool.size) {
        own->pool.size = sizeof own->pool;
    }
    if (own->pool.size < sizeof(size_t)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_global_create: options.pool.size is not set");
    }
    return CEN_OK;
}

/* What is preallocated comes once the pools know who is to have access. */
static cen_status open_members(cen_global *g) {
    cen_pool_options options = g->options.pool;
    options.preallocate_bytes = 0;
    cen_status status = CEN_OK;
    for (size_t i = 0; i < g->count && !status; i++) {
        ceni_member *m = &g->members[i];
        m->lenders = (ceni_lenders){m, reclaim, lender, grants};
        status = cen_pool_create(m->device, &options, &m->pool);
        if (!status) {
            m->pool->lenders = &m->lenders;
        }
    }
    for (size_t i = 0; i < g->count && !status && g->options.pool.preallocate_bytes; i++) {
        status = cen_pool_preallocate(g->members[i].pool, g->options.pool.preallocate_bytes);
    }
    return status;
}

cen_status cen_global_create(cen_device *const *devices, size_t count,
                             const cen_global_options *options, cen_global **global) {
    cen_status status = check_devices(devices, count);
    if (!status && !global) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_global_create: global is NULL");
    }
    cen_global_options own = {0};
    status = status ? status : read_options(options, &own);
    if (status) {
        return status;
    }
    cen_global *g = ceni_calloc(1, sizeof *g);
    if (!g) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_global_create: no memory");
    }
    g->options = own;
    g->count = count;
    for (size_t i = 0; i < count; i++) {
        ceni_member *m = &g->members[i];
        m->global = g;
        m->number = (int)i;
        m->device = devices[i];
        if (devices[i]->granularity > g->granularity) {
            g->granularity = devices[i]->granularity;
        }
    }
    status = link_all(g);
    status = status ? status : open_members(g);
    if (status) {
        cen_global_destroy(g);
        return status;
    }
    *global = g;
    return CEN_OK;
}

cen_status cen_global_destroy(cen_global *global) {
    if (!global) {
        return CEN_OK;
    }
    cen_status status = ceni_global_refuse(global, 0, "cen_global_destroy");
    if (status) {
        return status;
    }
    ceni_global_find_lost(global);
    ceni_spans_close(global);
    for (size_t i = 0; i < global->count; i++) {
        cen_status one = cen_pool_destroy(global->members[i].pool);
        status = status ? status : one;
    }
    ceni_free(global->spans);
    ceni_free(global);
    return status;
}

cen_pool *cen_global_pool(cen_global *global, int device) {
    return ceni_global_refuse(global, device, "cen_global_pool") ? NULL
                                                                 : global->members[device].pool;
}

/* A device that unmaps in place of a lost one; if all are lost, that one itself. */
static cen_device *mapper_for(const cen_global *g, int number) {
    for (size_t i = 0; i < g->count; i++) {
        if (!atomic_load(&g->members[i].lost)) {
            return g->members[i].device;
        }
    }
    return g->members[number].device;
}

cen_device *ceni_global_mapper(const cen_global *g, int number) {
    return atomic_load(&g->members[number].lost) ? mapper_for(g, number)
                                                 : g->members[number].device;
}

void ceni_global_lose(cen_global *g, int number) {
    if (atomic_exchange(&g->members[number].lost, true)) {
        return;
    }
    ceni_log(CEN_LOG_WARN, "global pool: device %d is lost; its memory is not used any more",
             number);
    ceni_home home = {g->members[number].device, false};
    (void)ceni_spans_return(g, number, UINT64_MAX);
    for (size_t i = 0; i < g->count; i++) {
        cen_pool *pool = g->members[i].pool;
        if (!pool) {
            continue; /* it could not be made, and what is there is being destroyed */
        }
        ceni_pool_enter(pool);
        if (atomic_load(&g->members[i].lost)) {
            ceni_pool_lose(pool, mapper_for(g, (int)i));
        }
        if ((int)i != number) {
            ceni_pool_lose_home(pool, &home);
        }
        ceni_lock_leave(&pool->lock);
    }
}
