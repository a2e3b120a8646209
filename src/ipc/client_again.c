/* What a broker that was restarted is told, and the names that are watched. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ipc/client_int.h"

/* ---- names ---- */

static ceni_watch **find_watch(cen_share *share, const char *name) {
    ceni_watch **link = &share->watches;
    while (*link && strcmp((*link)->name, name)) {
        link = &(*link)->next;
    }
    return link;
}

static cen_status tell_watch(cen_share *share, const char *name, bool on) {
    ceni_wire_watch *body = ceni_client_begin(share, CENI_WIRE_WATCH, sizeof *body);
    *body = (ceni_wire_watch){.on = on, .name_size = (uint32_t)strlen(name)};
    ceni_wire_add(share->out, name, strlen(name));
    ceni_reply reply;
    cen_status status = ceni_client_call(share, NULL, 0, &reply);
    if (!status) {
        ceni_reply_close(&reply);
    }
    return status;
}

/* Changes what is wanted of a name, by a function of the watch, and tells the broker if that made
 * the first wish, or ended the last. */
static cen_status change_watch(cen_share *share, const char *name,
                               void (*change)(ceni_watch *watch, bool on), bool on) {
    ceni_turn_take(&share->wire);
    pthread_mutex_lock(&share->lock);
    ceni_watch **link = find_watch(share, name), *watch = *link;
    bool was = watch;
    if (!watch && on) {
        watch = ceni_calloc(1, sizeof *watch);
        if (watch) {
            memcpy(watch->name, name, strlen(name));
            *link = watch;
        }
    }
    if (watch) {
        change(watch, on);
    }
    bool now = watch && (watch->asked || watch->waiting);
    if (watch && !now) {
        *link = watch->next;
        ceni_free(watch);
    }
    pthread_mutex_unlock(&share->lock);
    cen_status status = CEN_OK;
    if (on && !watch) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "watch: out of host memory");
    } else if (was != now) {
        status = tell_watch(share, name, now);
        if (status && now) { /* nothing is watched that the broker does not know of */
            pthread_mutex_lock(&share->lock);
            link = find_watch(share, name);
            watch = *link;
            *link = watch ? watch->next : NULL;
            ceni_free(watch);
            pthread_mutex_unlock(&share->lock);
        }
    }
    ceni_turn_give(&share->wire);
    return status;
}

static void change_asked(ceni_watch *watch, bool on) {
    watch->asked = on;
}

static void change_waiting(ceni_watch *watch, bool on) {
    watch->waiting += on ? 1u : -1u;
}

cen_status cen_share_watch(cen_share *share, const char *name, bool on) {
    cen_status status = ceni_share_check(share, "watch");
    status = status ? status : ceni_share_name_check("watch", name);
    return status ? status : change_watch(share, name, change_asked, on);
}

cen_status ceni_share_watch_hold(cen_share *share, const char *name, bool on) {
    return change_watch(share, name, change_waiting, on);
}

cen_status ceni_client_watches(cen_share *share) {
    /* Only who holds `wire` changes the list. */
    for (const ceni_watch *w = share->watches; w; w = w->next) {
        cen_status status = tell_watch(share, w->name, true);
        if (status && !atomic_load(&share->connected)) {
            return status;
        }
    }
    return CEN_OK;
}

/* ---- sets, exports and leases ----
 *
 * What cannot be told while the connection holds (a quota that is smaller now, say) is logged, and
 * the rest is told all the same. */

static bool broken(const cen_share *share, cen_status status) {
    return status && !atomic_load(&share->connected);
}

static cen_status announce_export(cen_share *share, const ceni_offer *e) {
    uint64_t id, version;
    pthread_mutex_lock(&share->lock);
    bool withdrawn = e->withdrawn;
    ceni_shared_event shared = e->shared;
    shared.flags = e->cleared ? 0 : shared.flags;
    pthread_mutex_unlock(&share->lock);
    ceni_publication p = {.set = e->set->id,
                          .id = e->id,
                          .version = e->version,
                          .secret = e->secret,
                          .flags =
                              e->flags | CENI_WIRE_AGAIN | (withdrawn ? CENI_WIRE_WITHDRAWN : 0u),
                          .once_ttl_ms = e->once_ttl_ms,
                          .access = e->set->access,
                          .access_count = e->set->access_count,
                          .name = e->name,
                          .directory = e->directory,
                          .directory_size = e->directory_size,
                          .shared = &shared};
    return ceni_publish(share, &p, &id, &version);
}

static cen_status announce_set(cen_share *share, cen_share_set *set) {
    ceni_pages pages = {.bytes = set->bytes,
                        .page_bytes = set->page_bytes,
                        .page_count = set->page_count,
                        .uuid = set->uuid,
                        .device = set->device,
                        .pages = set->pages};
    uint64_t id = set->id;
    return ceni_publish_set(share, &pages, CENI_AGAIN_PUBLISHER, &id);
}

static cen_status announce_lease(cen_share *share, const ceni_opened *lease) {
    ceni_wire_lease *body = ceni_client_begin(share, CENI_WIRE_LEASE, sizeof *body);
    *body = (ceni_wire_lease){.export_id = lease->id, .set = lease->set, .write = lease->write};
    ceni_reply reply;
    cen_status status = ceni_client_call(share, NULL, 0, &reply);
    if (!status) {
        ceni_reply_close(&reply);
    }
    return status;
}

/* A reader of the set's user tells of the set, too: its publisher may be gone. */
static cen_status announce_for_owner(cen_share *share, const ceni_opened *lease,
                                     const ceni_import *import, bool set_is_told) {
    uint64_t id = lease->set, version;
    ceni_pages pages = {.bytes = lease->bytes,
                        .page_bytes = lease->page_bytes,
                        .page_count = lease->page_count,
                        .uuid = lease->uuid,
                        .fds = import->fds};
    cen_status status =
        set_is_told ? CEN_OK : ceni_publish_set(share, &pages, CENI_AGAIN_READER, &id);
    pthread_mutex_lock(&share->lock);
    bool withdrawn =
        lease->withdrawn || atomic_load(&lease->revoked) || lease->flags & CENI_WIRE_ONCE;
    ceni_shared_event shared = lease->shared;
    shared.flags = lease->orphan && lease->done ? 0 : shared.flags;
    pthread_mutex_unlock(&share->lock);
    ceni_publication p = {.set = lease->set,
                          .id = lease->id,
                          .version = lease->version,
                          .secret = lease->secret,
                          .flags = lease->flags | CENI_WIRE_AGAIN |
                                   (withdrawn ? CENI_WIRE_WITHDRAWN : 0u),
                          .access = lease->access,
                          .access_count = lease->access_count,
                          .name = *lease->name ? lease->name : NULL,
                          .directory = lease->data,
                          .directory_size = lease->data_size,
                          .shared = &shared};
    return status ? status : ceni_publish(share, &p, &id, &version);
}

/* What was queued for the old broker is void: what was withdrawn is told as such, what was closed
 * or dropped not at all. */
static void forget_told(cen_share *share) {
    pthread_mutex_lock(&share->lock);
    ceni_told *told = share->told;
    share->told = NULL;
    share->told_end = &share->told;
    pthread_mutex_unlock(&share->lock);
    while (told) {
        ceni_told *next = told->next;
        ceni_free(told);
        told = next;
    }
}

/* A lease as it is told: the tables may change meanwhile, but what it is made of is kept by a
 * reference. */
typedef struct held {
    ceni_opened *lease;
    ceni_import *import; /* with descriptors; NULL */
    bool set_is_told;
} held;

static ceni_import *with_descriptors(cen_share *share, uint64_t set) {
    uint64_t *found = ceni_map_get(&share->imports, set);
    ceni_import *import = found ? (ceni_import *)(uintptr_t)*found : NULL, *best = NULL;
    for (; import; import = import->next) {
        if (import->fds && (!best || import->write)) {
            best = import;
        }
    }
    return best;
}

static cen_status hold_leases(cen_share *share, held **out, size_t *count) {
    pthread_mutex_lock(&share->lock);
    size_t n = 0;
    ceni_map told = {0};
    held *list = ceni_malloc(share->leases.count * sizeof *list);
    for (size_t i = 0; list && i < share->leases.capacity; i++) {
        const ceni_map_slot *slot = &share->leases.slots[i];
        if (!slot->used) {
            continue;
        }
        held h = {.lease = (ceni_opened *)(uintptr_t)slot->value};
        h.import = with_descriptors(share, h.lease->set);
        h.set_is_told = ceni_map_get(&told, h.lease->set);
        /* Without memory for the note it is told twice, which is as good. */
        (void)ceni_map_put(&told, h.lease->set, 1);
        h.lease->refs++;
        if (h.import) {
            h.import->refs++;
        }
        list[n++] = h;
    }
    pthread_mutex_unlock(&share->lock);
    ceni_map_free(&told);
    if (!list) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "share: no memory to tell the broker of leases");
    }
    *out = list;
    *count = n;
    return CEN_OK;
}

static cen_status announce_leases(cen_share *share) {
    held *list;
    size_t count;
    cen_status status = hold_leases(share, &list, &count);
    if (status) {
        return status;
    }
    for (size_t i = 0; i < count && !broken(share, status); i++) {
        status = list[i].import
                     ? announce_for_owner(share, list[i].lease, list[i].import, list[i].set_is_told)
                     : CEN_OK;
        if (!broken(share, status)) {
            status = announce_lease(share, list[i].lease);
        }
    }
    pthread_mutex_lock(&share->lock);
    for (size_t i = 0; i < count; i++) {
        if (list[i].import) {
            ceni_import_drop(share, list[i].import);
        }
        ceni_opened_drop(share, list[i].lease);
    }
    pthread_mutex_unlock(&share->lock);
    ceni_free(list);
    return broken(share, status) ? status : CEN_OK;
}

/* ---- after a request whose reply was not read ----
 *
 * What the broker has for this client, and the client does not know of, is given back. */

static bool has_set(cen_share *share, uint64_t id) {
    pthread_mutex_lock(&share->lock);
    const cen_share_set *set = share->sets;
    while (set && set->id != id) {
        set = set->next;
    }
    pthread_mutex_unlock(&share->lock);
    return set;
}

static bool has(cen_share *share, const ceni_map *map, uint64_t id) {
    pthread_mutex_lock(&share->lock);
    bool there = ceni_map_get(map, id);
    pthread_mutex_unlock(&share->lock);
    return there;
}

/* Whether an export is not known here, or taken for withdrawn. */
static bool gave_up(cen_share *share, uint64_t id) {
    pthread_mutex_lock(&share->lock);
    const ceni_offer *export = ceni_offer_find(share, id);
    bool up = !export || export->withdrawn;
    pthread_mutex_unlock(&share->lock);
    return up;
}

static void give_back(cen_share *share, const cen_share_list *list) {
    cen_status expected = ceni_log_expect(CEN_ERR_NOT_FOUND);
    for (size_t i = 0; i < list->lease_count; i++) {
        const cen_share_lease_info *l = &list->leases[i];
        if (l->client == share->client && !has(share, &share->leases, l->export_id)) {
            (void)ceni_client_tell(share, CENI_WIRE_CLOSE, l->export_id);
        }
    }
    for (size_t i = 0; i < list->export_count; i++) {
        const cen_share_export_listing *e = &list->exports[i];
        if (!e->withdrawn && has_set(share, e->set) && gave_up(share, e->id)) {
            (void)ceni_client_tell(share, CENI_WIRE_WITHDRAW, e->id);
        }
    }
    for (size_t i = 0; i < list->set_count; i++) {
        const cen_share_set_info *s = &list->sets[i];
        if (s->publisher == share->client && !has_set(share, s->id)) {
            (void)ceni_client_tell(share, CENI_WIRE_DROP, s->id);
        }
    }
    ceni_log_expect(expected);
}

cen_status ceni_client_reconcile(cen_share *share) {
    cen_share_list *list;
    if (!share->unsure) {
        return CEN_OK;
    }
    cen_status status = ceni_client_list(share, &list);
    if (!status) {
        give_back(share, list);
        cen_share_list_free(list);
        share->unsure = !atomic_load(&share->connected);
    }
    return status;
}

/* The exports that the broker did not take, for a line of the log: the first are named. */
enum { NAMED_MOST = 8, NAME_SHOWN = 64 };
typedef struct refusals {
    size_t count, size;
    char names[NAMED_MOST * (NAME_SHOWN + 32)];
} refusals;

static void note_refusal(refusals *r, const ceni_offer *e) {
    const char *before = r->count ? ", " : "";
    char *at = r->names + r->size;
    size_t room = sizeof r->names - r->size;
    if (r->count++ >= NAMED_MOST) {
        return;
    }
    r->size += (size_t)(e->name ? snprintf(at, room, "%s'%.*s@%" PRIu64 "'", before, NAME_SHOWN,
                                           e->name, e->version)
                                : snprintf(at, room, "%s%#" PRIx64, before, e->id));
}

/* A set and its exports; without the set there is no place for them. */
static cen_status announce_all_of(cen_share *share, cen_share_set *set, refusals *refused) {
    if (!set->exports) {
        set->id = 0; /* it is told of with its next export */
    }
    cen_status of_set = set->id ? announce_set(share, set) : CEN_OK, status = of_set;
    for (const ceni_offer *e = set->exports; e && !broken(share, status); e = e->next) {
        ceni_ipc_step("client: before an export is told again");
        status = of_set ? of_set : announce_export(share, e);
        if (status && !broken(share, status)) {
            note_refusal(refused, e);
        }
    }
    return broken(share, status) ? status : CEN_OK;
}

/* Sets and exports are made and destroyed by who holds `wire`; but a notice of the old broker may
 * still end an export, which the thread hears, and it is the thread that is here. */
cen_status ceni_client_announce(cen_share *share) {
    forget_told(share);
    refusals refused = {0};
    cen_status status = CEN_OK;
    pthread_mutex_lock(&share->lock);
    cen_share_set *set = share->sets;
    pthread_mutex_unlock(&share->lock);
    for (; set && !status; set = set->next) {
        status = announce_all_of(share, set, &refused);
    }
    if (refused.count) {
        ceni_log(CEN_LOG_WARN,
                 "share: the broker that was started anew did not take %zu of the exports here: "
                 "%s%s; who has them open keeps them, and nobody else can open them",
                 refused.count, refused.names, refused.count > NAMED_MOST ? ", ..." : "");
    }
    return status ? status : announce_leases(share);
}
