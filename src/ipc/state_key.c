/* How the state finds things: by ids, by names, by pairs. */
#include "ipc/state_int.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/mem.h"

static uint64_t of_id(uint64_t id, uint64_t seed) {
    return XXH3_64bits_withSeed(&id, sizeof id, seed);
}
static uint64_t of_pair(uint32_t a, uint32_t b, uint64_t seed) {
    return of_id((uint64_t)a << 32 | b, seed);
}

static uint64_t user_hash(const void *item, uint64_t seed) {
    return of_id(((const ceni_user *)item)->uid, seed);
}
static uint64_t client_hash(const void *item, uint64_t seed) {
    return of_id(((const ceni_client *)item)->id, seed);
}
static uint64_t set_hash(const void *item, uint64_t seed) {
    return of_id(((const ceni_set *)item)->id, seed);
}
static uint64_t export_hash(const void *item, uint64_t seed) {
    return of_id(((const ceni_export *)item)->id, seed);
}
static uint64_t lease_hash(const void *item, uint64_t seed) {
    const ceni_lease *l = item;
    return of_pair(l->client, l->export, seed);
}
static uint64_t pending_hash(const void *item, uint64_t seed) {
    return of_id(((const ceni_pending *)item)->export_id, seed);
}
static uint64_t link_hash(const void *item, uint64_t seed) {
    const ceni_link *l = item;
    return of_pair(l->from, l->to, seed);
}
static uint64_t name_hash(const void *item, uint64_t seed) {
    const ceni_name *n = item;
    return XXH3_64bits_withSeed(n->text, n->size, seed);
}
static uint64_t watch_hash(const void *item, uint64_t seed) {
    const ceni_watch *w = item;
    return of_pair(w->client, w->name, seed);
}

void ceni_state_init_slots(ceni_state *s) {
    ceni_slots_init(&s->users, sizeof(ceni_user), s->seed, user_hash);
    ceni_slots_init(&s->clients, sizeof(ceni_client), s->seed, client_hash);
    ceni_slots_init(&s->sets, sizeof(ceni_set), s->seed, set_hash);
    ceni_slots_init(&s->exports, sizeof(ceni_export), s->seed, export_hash);
    ceni_slots_init(&s->leases, sizeof(ceni_lease), s->seed, lease_hash);
    ceni_slots_init(&s->pending, sizeof(ceni_pending), s->seed, pending_hash);
    ceni_slots_init(&s->links, sizeof(ceni_link), s->seed, link_hash);
    ceni_slots_init(&s->names, sizeof(ceni_name), s->seed, name_hash);
    ceni_slots_init(&s->watches, sizeof(ceni_watch), s->seed, watch_hash);
}

/* Walks the chain of `hash` to the item for which `matches` holds; `it` is that item. */
#define FIND(slots, type, hash, matches)                                                           \
    do {                                                                                           \
        uint32_t index = ceni_slots_first(slots, hash);                                            \
        while (index != CENI_NONE) {                                                               \
            const type *it = ceni_slots_at(slots, index);                                          \
            if (matches) {                                                                         \
                break;                                                                             \
            }                                                                                      \
            index = it->slot.next;                                                                 \
        }                                                                                          \
        return index;                                                                              \
    } while (0)

uint32_t ceni_user_find(const ceni_state *s, uint32_t uid) {
    FIND(&s->users, ceni_user, of_id(uid, s->seed), it->uid == uid);
}
uint32_t ceni_client_find(const ceni_state *s, uint64_t id) {
    FIND(&s->clients, ceni_client, of_id(id, s->seed), it->id == id);
}
uint32_t ceni_set_find(const ceni_state *s, uint64_t id) {
    FIND(&s->sets, ceni_set, of_id(id, s->seed), it->id == id);
}
uint32_t ceni_export_find(const ceni_state *s, uint64_t id) {
    FIND(&s->exports, ceni_export, of_id(id, s->seed), it->id == id);
}
uint32_t ceni_lease_find(const ceni_state *s, uint32_t client, uint32_t export) {
    FIND(&s->leases, ceni_lease, of_pair(client, export, s->seed),
         it->client == client && it->export == export);
}
uint32_t ceni_link_find(const ceni_state *s, enum ceni_link_kind kind, uint32_t from, uint32_t to) {
    from |= (uint32_t)kind << 30;
    FIND(&s->links, ceni_link, of_pair(from, to, s->seed), it->from == from && it->to == to);
}
uint32_t ceni_watch_find(const ceni_state *s, uint32_t client, uint32_t name) {
    FIND(&s->watches, ceni_watch, of_pair(client, name, s->seed),
         it->client == client && it->name == name);
}
uint32_t ceni_name_find(const ceni_state *s, const char *text, uint32_t size) {
    FIND(&s->names, ceni_name, XXH3_64bits_withSeed(text, size, s->seed),
         it->size == size && !memcmp(it->text, text, size));
}

static uint32_t pending_from(const ceni_state *s, uint32_t index, uint64_t export_id) {
    while (index != CENI_NONE && ceni_pending_at(s, index)->export_id != export_id) {
        index = ceni_pending_at(s, index)->slot.next;
    }
    return index;
}
uint32_t ceni_pending_first(const ceni_state *s, uint64_t export_id) {
    return pending_from(s, ceni_slots_first(&s->pending, of_id(export_id, s->seed)), export_id);
}
uint32_t ceni_pending_next(const ceni_state *s, uint32_t index, uint64_t export_id) {
    return pending_from(s, ceni_pending_at(s, index)->slot.next, export_id);
}

uint32_t ceni_user_get(ceni_state *s, uint32_t uid) {
    uint32_t index = ceni_user_find(s, uid);
    if (index == CENI_NONE && (index = ceni_slots_take(&s->users)) != CENI_NONE) {
        ceni_user_at(s, index)->uid = uid;
        ceni_slots_insert(&s->users, index);
    }
    return index;
}

void ceni_user_release(ceni_state *s, uint32_t user) {
    ceni_user *u = ceni_user_at(s, user);
    /* What has leases is a client, what has exports a set. */
    if (!u->clients && !u->sets && !u->over_count) {
        uint64_t *over = u->over;
        ceni_slots_give(&s->users, user);
        ceni_free(over);
    }
}

uint32_t ceni_name_get(ceni_state *s, const char *text, uint32_t size) {
    uint32_t index = ceni_name_find(s, text, size);
    if (index != CENI_NONE) {
        return index;
    }
    char *copy = ceni_malloc(size);
    index = copy ? ceni_slots_take(&s->names) : CENI_NONE;
    if (index == CENI_NONE) {
        ceni_free(copy);
        return CENI_NONE;
    }
    memcpy(copy, text, size);
    ceni_name *n = ceni_name_at(s, index);
    n->text = copy;
    n->size = size;
    n->owner = n->living = n->withdrawn = n->watches = n->waiting = CENI_NONE;
    ceni_slots_insert(&s->names, index);
    return index;
}

void ceni_name_release(ceni_state *s, uint32_t name) {
    ceni_name *n = ceni_name_at(s, name);
    if (n->living == CENI_NONE && n->withdrawn == CENI_NONE && n->watches == CENI_NONE &&
        n->waiting == CENI_NONE) {
        char *text = n->text;
        ceni_slots_give(&s->names, name); /* looks at the text */
        ceni_free(text);
    }
}
