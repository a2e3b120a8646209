/* The state's invariants. What one list says must be what the other lists, the counts and the
 * hashes say. */
#include "ipc/state_int.h"

#include <inttypes.h>

#include "base/log.h"

#define HOLDS(condition, what, index)                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return ceni_fail(CEN_ERR_CORRUPT, "the broker's state: " what " (item %" PRIu32 ")",   \
                             index);                                                               \
        }                                                                                          \
    } while (0)

/* Each live item of a type, by its number i. */
#define EACH(slots, i)                                                                             \
    for (uint32_t i = 0; i < (slots).used; i++)                                                    \
        if (((const ceni_slot *)ceni_slots_at(&(slots), i))->flags & CENI_SLOT_LIVE)

static uint32_t length(const ceni_slots *slots, size_t offset, uint32_t head) {
    uint32_t count = 0, prev = CENI_NONE;
    for (uint32_t i = head; i != CENI_NONE; count++) {
        const ceni_slot *slot = ceni_slots_at(slots, i);
        const ceni_links *links = ceni_links_of(slots, offset, i);
        if (!(slot->flags & CENI_SLOT_LIVE) || links->prev != prev || count > slots->live) {
            return CENI_NONE; /* equals no count */
        }
        prev = i;
        i = links->next;
    }
    return count;
}
#define LENGTH(slots, type, field, head) length(&(slots), offsetof(type, field), head)

static cen_status verify_users(const ceni_state *s) {
    EACH(s->users, i) {
        const ceni_user *u = ceni_user_at(s, i);
        ceni_user sum = {.uid = u->uid};
        EACH(s->clients, c) {
            const ceni_client *client = ceni_client_at(s, c);
            sum.clients += client->user == i;
            sum.leases += client->user == i ? client->lease_count : 0;
        }
        EACH(s->sets, k) {
            const ceni_set *set = ceni_set_at(s, k);
            if (set->user == i) {
                sum.sets++;
                sum.exports += set->export_count;
                sum.bytes += set->bytes;
                sum.fds += set->pages_have;
            }
        }
        EACH(s->exports, e) {
            const ceni_export *export = ceni_export_at(s, e);
            if (ceni_set_at(s, export->set)->user == i) {
                sum.fds += (export->directory_fd >= 0) + (export->event_fd >= 0);
            }
        }
        HOLDS(ceni_user_find(s, u->uid) == i, "a user is not found", i);
        HOLDS(u->clients || u->sets || u->over_count, "a user has nothing", i);
        HOLDS(u->clients == sum.clients && u->sets == sum.sets && u->exports == sum.exports,
              "a user's counts", i);
        HOLDS(u->leases == sum.leases && u->fds == sum.fds && u->bytes == sum.bytes,
              "a user's quota", i);
    }
    return CEN_OK;
}

static cen_status verify_clients(const ceni_state *s) {
    EACH(s->clients, i) {
        const ceni_client *c = ceni_client_at(s, i);
        uint32_t exports = 0;
        for (uint32_t k = c->sets; k != CENI_NONE; k = ceni_set_at(s, k)->by_holder.next) {
            const ceni_set *set = ceni_set_at(s, k);
            HOLDS(set->holder == i, "a client has a set that it does not hold", i);
            exports += set->by_reader ? 0 : set->export_count;
        }
        HOLDS(c->export_count == exports, "a client's number of exports", i);
        HOLDS(ceni_client_find(s, c->id) == i, "a client is not found", i);
        HOLDS(c->lease_count == LENGTH(s->leases, ceni_lease, by_client, c->leases) +
                                    LENGTH(s->pending, ceni_pending, by_client, c->pending),
              "a client's number of leases", i);
        HOLDS(c->watch_count == LENGTH(s->watches, ceni_watch, by_client, c->watches),
              "a client's number of watches", i);
        HOLDS(c->connected || c->wait_name == CENI_NONE, "a client waits that is not there", i);
        HOLDS((c->timer == CENI_NONE) == (c->wait_name == CENI_NONE), "a client's timer", i);
        /* What it had when it went may be over since. */
        HOLDS(c->connected || c->death_known, "a client is away whose death is not told", i);
    }
    return CEN_OK;
}

static cen_status verify_sets(const ceni_state *s) {
    EACH(s->sets, i) {
        const ceni_set *set = ceni_set_at(s, i);
        HOLDS(ceni_set_find(s, set->id) == i, "a set is not found", i);
        HOLDS(set->holder != CENI_NONE || set->export_count, "a set that nothing holds", i);
        HOLDS(set->holder != CENI_NONE || !set->by_reader, "a set's reader is gone", i);
        HOLDS(set->export_count == LENGTH(s->exports, ceni_export, by_set, set->exports),
              "a set's number of exports", i);
        HOLDS(set->pages_have <= set->page_count, "a set's pages", i);
        HOLDS(!set->export_count || (set->pages_have == set->page_count && set->listed),
              "a set has exports before its pages", i);
        uint32_t importers = 0;
        EACH(s->links, l) {
            const ceni_link *link = ceni_link_at(s, l);
            importers += link->from >> 30 == CENI_CLIENT_SET && link->to == i;
        }
        HOLDS(set->importers == importers && !set->busy, "a set's importers", i);
    }
    return CEN_OK;
}

static cen_status verify_exports(const ceni_state *s) {
    EACH(s->exports, i) {
        const ceni_export *e = ceni_export_at(s, i);
        uint32_t writers = 0;
        for (uint32_t l = e->leases; l != CENI_NONE; l = ceni_lease_at(s, l)->by_export.next) {
            HOLDS(ceni_lease_at(s, l)->export == i, "an export has another's lease", i);
            writers += !!(ceni_lease_at(s, l)->slot.flags & CENI_LEASE_WRITE);
        }
        uint32_t publisher = ceni_export_publisher(s, e);
        HOLDS(ceni_export_find(s, e->id) == i, "an export is not found", i);
        HOLDS(e->lease_count == LENGTH(s->leases, ceni_lease, by_export, e->leases) &&
                  e->writers == writers,
              "an export's number of leases", i);
        HOLDS(!e->withdrawn || e->lease_count ||
                  (e->announced && !ceni_client_at(s, publisher)->connected),
              "an export is over", i);
        HOLDS(!e->announced || publisher != CENI_NONE, "an export's publisher is gone", i);
        HOLDS(!e->hidden || (e->withdrawn && !e->announced), "an export is hidden", i);
        HOLDS(!e->withdrawn || e->timer == CENI_NONE, "a withdrawn export's timer", i);
        HOLDS(e->withdrawn || !e->revoked, "an export is revoked and not withdrawn", i);
        HOLDS(e->withdrawn || !e->once || !e->lease_count, "a parcel is taken and there", i);
        HOLDS((e->name == CENI_NONE) == !e->version, "an export's version", i);
    }
    return CEN_OK;
}

static cen_status verify_names(const ceni_state *s) {
    uint32_t named = 0, watches = 0;
    EACH(s->exports, i) {
        named += ceni_export_at(s, i)->name != CENI_NONE;
    }
    EACH(s->names, i) {
        const ceni_name *n = ceni_name_at(s, i);
        uint32_t living = LENGTH(s->exports, ceni_export, by_name, n->living);
        uint32_t withdrawn = LENGTH(s->exports, ceni_export, by_name, n->withdrawn);
        uint32_t watching = LENGTH(s->watches, ceni_watch, by_name, n->watches);
        uint32_t waiting = LENGTH(s->clients, ceni_client, by_name, n->waiting);
        HOLDS(ceni_name_find(s, n->text, n->size) == i, "a name is not found", i);
        HOLDS(living == n->living_count && living <= CENI_VERSIONS_MAX, "a name's versions", i);
        HOLDS(withdrawn != CENI_NONE && watching != CENI_NONE && waiting != CENI_NONE,
              "a name's lists", i);
        HOLDS(living || withdrawn || watching || waiting, "a name that nothing has", i);
        for (uint32_t e = n->living; e != CENI_NONE; e = ceni_export_at(s, e)->by_name.next) {
            const ceni_export *export = ceni_export_at(s, e);
            HOLDS(!export->withdrawn && export->name == i && export->version <= n->last_version &&
                      ceni_set_at(s, export->set)->user == n->owner,
                  "a name's living export", i);
        }
        for (uint32_t e = n->withdrawn; e != CENI_NONE; e = ceni_export_at(s, e)->by_name.next) {
            HOLDS(ceni_export_at(s, e)->withdrawn && ceni_export_at(s, e)->name == i,
                  "a name's withdrawn export", i);
        }
        named -= living + withdrawn;
        watches += watching;
    }
    HOLDS(!named && watches == s->watches.live, "exports or watches without their name", named);
    return CEN_OK;
}

/* The link's counts against the leases of its client, or of its user's clients. */
static cen_status verify_link(const ceni_state *s, uint32_t index) {
    const ceni_link *l = ceni_link_at(s, index);
    uint32_t kind = l->from >> 30, from = l->from & 0x3fffffff, count = 0, writes = 0, granted = 0;
    EACH(s->leases, i) {
        const ceni_lease *lease = ceni_lease_at(s, i);
        uint32_t set = ceni_export_at(s, lease->export)->set;
        uint32_t user = ceni_client_at(s, lease->client)->user;
        uint32_t owner = ceni_set_at(s, set)->user;
        if ((kind == CENI_USER_SET ? user : lease->client) == from &&
            (kind == CENI_CLIENT_OWNER ? owner : set) == l->to &&
            (kind == CENI_CLIENT_SET || user != owner)) {
            count++;
            writes += !!(lease->slot.flags & CENI_LEASE_WRITE);
            granted += !!(lease->slot.flags & CENI_LEASE_GRANTED);
        }
    }
    HOLDS(count && count == l->count && writes == l->writes && granted == l->granted,
          "the number of leases in a set", index);
    return CEN_OK;
}

static cen_status verify_leases(const ceni_state *s) {
    uint32_t in_sets = 0;
    EACH(s->leases, i) {
        const ceni_lease *l = ceni_lease_at(s, i);
        HOLDS(ceni_client_at(s, l->client)->slot.flags & CENI_SLOT_LIVE, "a lease of nobody", i);
        HOLDS(ceni_export_at(s, l->export)->slot.flags & CENI_SLOT_LIVE, "a lease of nothing", i);
        HOLDS(ceni_lease_find(s, l->client, l->export) == i, "a lease is not found", i);
    }
    EACH(s->links, i) {
        const ceni_link *l = ceni_link_at(s, i);
        in_sets += l->from >> 30 == CENI_CLIENT_SET ? l->count : 0;
        cen_status status = verify_link(s, i);
        if (status) {
            return status;
        }
    }
    HOLDS(in_sets == s->leases.live, "leases outside sets", in_sets);
    EACH(s->pending, i) {
        uint64_t id = ceni_pending_at(s, i)->export_id;
        HOLDS(ceni_export_find(s, id) == CENI_NONE, "a lease waits for what is there", i);
    }
    return CEN_OK;
}

static cen_status verify_timers(const ceni_state *s) {
    uint64_t before = 0;
    for (size_t i = 0; i < s->timer_count; i++) {
        uint32_t timer = s->timers[i], index = timer & ~CENI_TIMER_EXPORT;
        bool export = timer & CENI_TIMER_EXPORT;
        uint32_t place = export ? ceni_export_at(s, index)->timer : ceni_client_at(s, index)->timer;
        uint32_t parent = i ? s->timers[(i - 1) / 2] : timer;
        before = parent & CENI_TIMER_EXPORT
                     ? ceni_export_at(s, parent & ~CENI_TIMER_EXPORT)->deadline
                     : ceni_client_at(s, parent)->deadline;
        uint64_t deadline =
            export ? ceni_export_at(s, index)->deadline : ceni_client_at(s, index)->deadline;
        HOLDS(place == i && before <= deadline, "a timer's place", index);
    }
    return CEN_OK;
}

cen_status ceni_state_verify(const ceni_state *s) {
    cen_status status = verify_users(s);
    status = status ? status : verify_clients(s);
    status = status ? status : verify_sets(s);
    status = status ? status : verify_exports(s);
    status = status ? status : verify_names(s);
    status = status ? status : verify_leases(s);
    return status ? status : verify_timers(s);
}
