/* Exports: items of one set under a name or behind a token. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ipc/client_int.h"

/* ---- what is exported; `lock` is held ---- */

ceni_offer *ceni_offer_find(cen_share *share, uint64_t id) {
    uint64_t *found = ceni_map_get(&share->exports, id);
    return found ? (ceni_offer *)(uintptr_t)*found : NULL;
}

static uint64_t name_key(const char *name) {
    return XXH64(name, strlen(name), 0);
}

static ceni_offer *newest(cen_share *share, const char *name) {
    uint64_t *found = ceni_map_get(&share->named, name_key(name));
    return found ? (ceni_offer *)(uintptr_t)*found : NULL;
}

static void unname(cen_share *share, ceni_offer *export) {
    uint64_t *found = export->name ? ceni_map_get(&share->named, name_key(export->name)) : NULL;
    if (!found) {
        return;
    }
    ceni_offer *head = (ceni_offer *)(uintptr_t)*found, **link = &head;
    while (*link && *link != export) {
        link = &(*link)->older;
    }
    if (*link) {
        *link = export->older;
    }
    if (head) {
        *found = (uint64_t)(uintptr_t)head;
    } else {
        (void)ceni_map_remove(&share->named, name_key(export->name), NULL);
    }
}

static void drop_holds(ceni_offer *export) {
    for (size_t i = 0; i < export->hold_count; i++) {
        ceni_hold *h = &export->holds[i];
        if (h->before) {
            h->before->next = h->next;
        } else {
            h->block->holds = h->next;
        }
        if (h->next) {
            h->next->before = h->before;
        }
        ceni_block_settle(h->block);
    }
    export->hold_count = 0;
}

/* What an export is made of, linked or not. */
static void free_parts(ceni_offer *export) {
    if (export->event) {
        (void)cen_event_destroy(export->set->device, export->event);
    }
    ceni_shared_event_close(&export->shared);
    ceni_free(export->directory);
    ceni_free(export->holds);
    ceni_free(export->name);
    ceni_free(export->withdrawal);
    ceni_free(export);
}

void ceni_offer_free(cen_share *share, ceni_offer *export) {
    unname(share, export);
    (void)ceni_map_remove(&share->exports, export->id, NULL);
    if (export->before) {
        export->before->next = export->next;
    } else {
        export->set->exports = export->next;
    }
    if (export->next) {
        export->next->before = export->before;
    }
    drop_holds(export);
    ceni_offer_forget_event(share, export);
    free_parts(export);
}

void ceni_offer_withdrawn(ceni_offer *export) {
    cen_share *share = export->set->share;
    if (export->withdrawn) {
        return;
    }
    export->withdrawn = true;
    if (share->options.no_broker) {
        export->idle = true;
        ceni_offer_idle(share, export, false);
    } else {
        export->withdrawal->id = export->id;
        ceni_share_tell_later(share, &export->withdrawal);
    }
}

void ceni_offer_idle(cen_share *share, ceni_offer *export, bool unclean) {
    for (size_t i = 0; unclean && i < export->hold_count; i++) {
        export->holds[i].block->quarantined = true;
    }
    if (export->idle && !export->direct) {
        ceni_offer_free(share, export);
    }
}

/* ---- making one ---- */

static cen_status check_access(const cen_share_export_options *o) {
    if (o->access_count > CEN_SHARE_ACCESS_MAX || (o->access_count && !o->access)) {
        return ceni_fail(CEN_ERR_INVALID, "export: an access list of %zu entries%s",
                         o->access_count, o->access ? "" : " that is NULL");
    }
    for (size_t i = 0; i < o->access_count; i++) {
        const cen_share_access *a = &o->access[i];
        if (a->who < CEN_SHARE_USER || a->who > CEN_SHARE_ALL ||
            (a->who == CEN_SHARE_ALL && a->id)) {
            return ceni_fail(CEN_ERR_INVALID, "export: entry %zu of the access list names nobody",
                             i);
        }
    }
    return CEN_OK;
}

static cen_status check_arguments(const cen_share *share, const cen_share_item *items, size_t count,
                                  const cen_share_export_options *options,
                                  const cen_share_export_info *info) {
    cen_status status = ceni_share_check(share, "export");
    if (!status && (!items || !count || !info)) {
        status = ceni_fail(CEN_ERR_INVALID, "export: %s",
                           !items  ? "items is NULL"
                           : !info ? "info is NULL"
                                   : "count is 0");
    }
    if (!status && options->size != sizeof *options) {
        status = ceni_fail(CEN_ERR_INVALID, "export: options.size is %zu, not %zu", options->size,
                           sizeof *options);
    }
    status = status ? status : check_access(options);
    if (!status && options->name) {
        status = ceni_share_name_check("export", options->name);
    }
    for (size_t i = 0; !status && i < count; i++) {
        if (!items[i].bytes) {
            status = ceni_fail(CEN_ERR_INVALID, "export: item %zu has 0 bytes", i);
        }
    }
    return status;
}

/* The access list as it travels; the first export of a set fixes it. `wire` is held until that
 * export is known: of two that are made at once, neither goes out with the other's list. */
static cen_status set_access(cen_share_set *set, const cen_share_export_options *o) {
    ceni_wire_access list[CEN_SHARE_ACCESS_MAX] = {{0}};
    for (size_t i = 0; i < o->access_count; i++) {
        list[i] = (ceni_wire_access){
            .who = o->access[i].who, .id = o->access[i].id, .write = o->access[i].write};
    }
    if (set->has_access && (set->access_count != o->access_count ||
                            memcmp(set->access, list, o->access_count * sizeof *list))) {
        return ceni_fail(CEN_ERR_INVALID,
                         "export: the set's access list is another: one set is open to the same "
                         "users in all of its exports");
    }
    memcpy(set->access, list, sizeof list);
    set->access_count = (uint32_t)o->access_count;
    return CEN_OK;
}

/* The export's blocks, each once, which must not go meanwhile. */
static cen_status pin_blocks(cen_share *share, const cen_share_item *items, size_t count,
                             ceni_offer *export) {
    uint64_t mark = ++share->marks;
    for (size_t i = 0; i < count; i++) {
        ceni_block *block = ceni_block_find(share, items[i].addr, items[i].bytes);
        if (!block || (export->set && block->set != export->set)) {
            return ceni_fail(CEN_ERR_FOREIGN_POINTER,
                             "export: item %zu, %" PRIu64 " bytes at %#" PRIx64 ", lies in %s", i,
                             items[i].bytes, items[i].addr,
                             block ? "another set than the first item"
                                   : "no live block of this connection");
        }
        export->set = block->set;
        if (block->mark != mark) {
            block->mark = mark;
            block->pins++;
            export->holds[export->hold_count++] = (ceni_hold){.export = export, .block = block};
        }
    }
    return CEN_OK;
}

static void unpin_blocks(ceni_offer *export) {
    for (size_t i = 0; i < export->hold_count; i++) {
        export->holds[i].block->pins--;
        ceni_block_settle(export->holds[i].block);
    }
    export->hold_count = 0;
}

static void link_holds(ceni_offer *export) {
    for (size_t i = 0; i < export->hold_count; i++) {
        ceni_hold *h = &export->holds[i];
        h->next = h->block->holds;
        if (h->next) {
            h->next->before = h;
        }
        h->block->holds = h;
        h->block->pins--;
    }
}

static cen_status prepare(cen_share *share, const cen_share_item *items, size_t count,
                          const cen_share_export_options *o, ceni_offer *export) {
    export->holds = ceni_malloc(count * sizeof *export->holds);
    export->name = o->name ? ceni_strdup(o->name) : NULL;
    export->withdrawal = ceni_calloc(1, sizeof *export->withdrawal);
    if (!export->holds || !export->withdrawal || (o->name && !export->name)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "export: no memory for %zu items", count);
    }
    export->withdrawal->type = CENI_WIRE_WITHDRAW;
    export->flags = (o->keep ? CENI_WIRE_KEEP : 0u) | (o->keep_older ? CENI_WIRE_KEEP_OLDER : 0u) |
                    (o->once ? CENI_WIRE_ONCE : 0u);
    export->once_ttl_ms = o->once ? o->once_ttl_ms : 0; /* 0: the broker's default */
    cen_status status = ceni_share_random(export->secret);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&share->lock);
    status = pin_blocks(share, items, count, export);
    pthread_mutex_unlock(&share->lock);
    if (!status) {
        status = ceni_directory_build(items, count, export->set->addr, &export->directory,
                                      &export->directory_size);
    }
    return status ? status
                  : ceni_shared_event_make(export->set->device, o->stream, o->synced,
                                           &export->event, &export->shared);
}

/* Without a broker ids are this process's; random, since a receiver may hear of several. */
static cen_status name_locally(cen_share *share, ceni_offer *export) {
    uint64_t random[2];
    cen_status status = ceni_share_random(random);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&share->lock);
    const ceni_offer *last = export->name ? newest(share, export->name) : NULL;
    export->set->id = export->set->id ? export->set->id : random[1] | 1;
    export->id = random[0] | 1;
    export->version = !export->name ? 0 : last ? last->version + 1 : 1;
    pthread_mutex_unlock(&share->lock);
    return CEN_OK;
}

static cen_status tell(cen_share *share, ceni_offer *export) {
    cen_share_set *set = export->set;
    if (share->options.no_broker) {
        return name_locally(share, export);
    }
    ceni_pages pages = {.bytes = set->bytes,
                        .page_bytes = set->page_bytes,
                        .page_count = set->page_count,
                        .uuid = set->uuid,
                        .device = set->device,
                        .pages = set->pages};
    cen_status status = set->id ? CEN_OK : ceni_publish_set(share, &pages, CENI_FIRST, &set->id);
    ceni_publication p = {.set = set->id,
                          .secret = export->secret,
                          .flags = export->flags,
                          .once_ttl_ms = export->once_ttl_ms,
                          .access = set->access,
                          .access_count = set->access_count,
                          .name = export->name,
                          .directory = export->directory,
                          .directory_size = export->directory_size,
                          .shared = &export->shared};
    return status ? status : ceni_publish(share, &p, &export->id, &export->version);
}

/* What a newer version does to those before it. The broker, if there is one, knows. */
static void supersede(cen_share *share, ceni_offer *export) {
    for (ceni_offer *e = newest(share, export->name), *older; e; e = older) {
        older = e->older;
        if (!(export->flags & CENI_WIRE_KEEP_OLDER)) {
            if (share->options.no_broker) {
                ceni_offer_withdrawn(e);
            } else {
                e->withdrawn = true;
            }
        }
    }
}

/* Enters it in the tables, where there is room for it. */
static void enter(cen_share *share, ceni_offer *export) {
    link_holds(export);
    export->next = export->set->exports;
    if (export->next) {
        export->next->before = export;
    }
    export->set->exports = export;
    export->set->has_access = true;
    if (export->name) {
        supersede(share, export);
        export->older = newest(share, export->name);
        (void)ceni_map_put(&share->named, name_key(export->name), (uint64_t)(uintptr_t) export);
    }
    if (export->event) {
        ceni_offer_unsettled(share, export);
    }
}

/* Room in the tables before the broker is told: after that nothing may fail. */
static cen_status reserve(cen_share *share, const ceni_offer *export) {
    uint64_t key = ++share->local_ids; /* of a broker's ids, which are random, none is so small */
    bool named = export->name && !newest(share, export->name);
    if (ceni_map_put(&share->exports, key, 0) ||
        (named && ceni_map_put(&share->named, name_key(export->name), 0))) {
        (void)ceni_map_remove(&share->exports, key, NULL);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "export: no memory to note it");
    }
    (void)ceni_map_remove(&share->exports, key, NULL);
    if (named) {
        (void)ceni_map_remove(&share->named, name_key(export->name), NULL);
    }
    return CEN_OK;
}

static cen_status publish(cen_share *share, const cen_share_export_options *o, ceni_offer *export,
                          cen_share_export_info *info) {
    ceni_turn_take(&share->wire);
    ceni_client_flush(share);
    pthread_mutex_lock(&share->lock);
    cen_status status = set_access(export->set, o);
    status = status ? status : reserve(share, export);
    pthread_mutex_unlock(&share->lock);
    status = status ? status : tell(share, export);
    if (!status) {
        pthread_mutex_lock(&share->lock);
        (void)ceni_map_put(&share->exports, export->id, (uint64_t)(uintptr_t) export);
        enter(share, export);
        *info = (cen_share_export_info){.id = export->id, .version = export->version};
        ceni_token token = {.kind = CENI_TOKEN_EXPORT,
                            .export_id = export->id,
                            .secret = {export->secret[0], export->secret[1]}};
        ceni_token_write(&token, info->token);
        pthread_mutex_unlock(&share->lock);
    }
    ceni_turn_give(&share->wire);
    return status;
}

cen_status cen_share_export(cen_share *share, const cen_share_item *items, size_t count,
                            const cen_share_export_options *options, cen_share_export_info *info) {
    const cen_share_export_options defaults = {.size = sizeof defaults};
    options = options ? options : &defaults;
    cen_status status = check_arguments(share, items, count, options, info);
    if (status) {
        return status;
    }
    ceni_offer *export = ceni_calloc(1, sizeof *export);
    if (!export) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "export: out of host memory");
    }
    export->shared.fd = -1;
    status = prepare(share, items, count, options, export);
    status = status ? status : publish(share, options, export, info);
    if (status) {
        pthread_mutex_lock(&share->lock);
        unpin_blocks(export);
        pthread_mutex_unlock(&share->lock);
        free_parts(export);
    }
    return status;
}

/* ---- later ---- */

/* WITHDRAW or REVOKE of an export, of this process or not. */
static cen_status take_back(cen_share *share, const char *what, enum ceni_wire_type type,
                            uint64_t export_id) {
    cen_status status = ceni_share_check(share, what);
    if (status) {
        return status;
    }
    ceni_turn_take(&share->wire);
    ceni_client_flush(share);
    pthread_mutex_lock(&share->lock);
    ceni_offer *export = ceni_offer_find(share, export_id);
    if (export && share->options.no_broker) {
        ceni_offer_withdrawn(export);
    } else if (export && atomic_load(&share->connected)) {
        export->withdrawn = true; /* whatever becomes of the answer */
    } else if (share->options.no_broker) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "%s: this connection exports no %#" PRIx64, what,
                           export_id);
    }
    pthread_mutex_unlock(&share->lock);
    if (!share->options.no_broker) {
        status = ceni_client_tell(share, type, export_id);
    }
    ceni_turn_give(&share->wire);
    return status;
}

cen_status cen_share_withdraw(cen_share *share, uint64_t export_id) {
    return take_back(share, "withdraw", CENI_WIRE_WITHDRAW, export_id);
}

cen_status cen_share_revoke(cen_share *share, uint64_t export_id) {
    return take_back(share, "revoke", CENI_WIRE_REVOKE, export_id);
}
