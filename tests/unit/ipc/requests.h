/* Requests of a world's actors. */
#ifndef TESTS_UNIT_IPC_REQUESTS_H
#define TESTS_UNIT_IPC_REQUESTS_H

#include "tests/unit/ipc/world.h"

static ceni_wire_builder request;

static inline const void *world_body(const world *w, unsigned i) {
    return (const char *)w->actors[i].reply.data + sizeof(ceni_wire_head);
}

/* A set of so many pages of 100 bytes, all of them in one message. */
static inline cen_status send_set(world *w, unsigned i, uint64_t id, uint32_t again,
                                  unsigned pages) {
    ceni_wire_set *b = ceni_wire_begin(&request, CENI_WIRE_SET, 2, sizeof *b);
    *b = (ceni_wire_set){.set = id,
                         .bytes = pages * 100,
                         .page_bytes = 100,
                         .page_count = pages,
                         .again = again,
                         .uuid = "HOST-0"};
    return world_send(w, i, &request, pages);
}

static inline uint64_t new_set(world *w, unsigned i, unsigned pages) {
    if (send_set(w, i, 0, 0, pages)) {
        return 0;
    }
    return ((const ceni_wire_set_reply *)world_body(w, i))->set;
}

typedef struct publication {
    uint64_t set, export_id, version, token;
    uint32_t flags, ttl_ms, access_count;
    const char *name;
    ceni_wire_access access[2];
} publication;

static inline cen_status send_publish(world *w, unsigned i, const publication *p) {
    ceni_wire_publish *b = ceni_wire_begin(&request, CENI_WIRE_PUBLISH, 3, sizeof *b);
    *b = (ceni_wire_publish){.set = p->set,
                             .export_id = p->export_id,
                             .version = p->version,
                             .token = {p->token ? p->token : 7, 8},
                             .flags = p->flags,
                             .access_count = p->access_count,
                             .directory_size = 3,
                             .once_ttl_ms = p->ttl_ms};
    b->name_size = p->name ? (uint32_t)strlen(p->name) : 0;
    ceni_wire_add(&request, p->access, p->access_count * sizeof *p->access);
    ceni_wire_add(&request, p->name ? p->name : "", b->name_size);
    if (!(p->flags & CENI_WIRE_DIRECTORY_FD)) {
        ceni_wire_add(&request, "dir", 3);
    }
    return world_send(w, i, &request,
                      !!(p->flags & CENI_WIRE_DIRECTORY_FD) + !!(p->flags & CENI_WIRE_EVENT_FD));
}

static inline uint64_t publish(world *w, unsigned i, uint64_t set, const char *name,
                               uint32_t flags) {
    const publication p = {.set = set, .name = name, .flags = flags};
    if (send_publish(w, i, &p)) {
        return 0;
    }
    return ((const ceni_wire_publish_reply *)world_body(w, i))->export_id;
}

static inline cen_status open_version(world *w, unsigned i, const char *name, uint64_t version,
                                      uint32_t flags, uint32_t wait_ms) {
    ceni_wire_open *b = ceni_wire_begin(&request, CENI_WIRE_OPEN, 4, sizeof *b);
    *b = (ceni_wire_open){.version = version, .flags = flags, .wait_ms = wait_ms};
    b->name_size = (uint32_t)strlen(name);
    ceni_wire_add(&request, name, b->name_size);
    return world_send(w, i, &request, 0);
}

static inline cen_status open_name(world *w, unsigned i, const char *name, uint32_t flags) {
    return open_version(w, i, name, 0, flags, 0);
}

static inline cen_status open_token(world *w, unsigned i, uint64_t export_id, uint64_t token) {
    ceni_wire_open *b = ceni_wire_begin(&request, CENI_WIRE_OPEN, 5, sizeof *b);
    *b = (ceni_wire_open){.export_id = export_id, .token = {token, 8}};
    return world_send(w, i, &request, 0);
}

/* CLOSE, WITHDRAW, REVOKE, DROP. */
static inline cen_status send_id(world *w, unsigned i, enum ceni_wire_type type, uint64_t id) {
    ceni_wire_id *b = ceni_wire_begin(&request, type, 6, sizeof *b);
    b->id = id;
    return world_send(w, i, &request, 0);
}

static inline cen_status send_pages(world *w, unsigned i, uint64_t set, uint32_t first) {
    ceni_wire_pages *b = ceni_wire_begin(&request, CENI_WIRE_PAGES, 7, sizeof *b);
    *b = (ceni_wire_pages){set, first, 0};
    return world_send(w, i, &request, 0);
}

static inline cen_status send_lease(world *w, unsigned i, uint64_t set, uint64_t export_id,
                                    bool write) {
    ceni_wire_lease *b = ceni_wire_begin(&request, CENI_WIRE_LEASE, 8, sizeof *b);
    *b = (ceni_wire_lease){export_id, set, write, 0};
    return world_send(w, i, &request, 0);
}

static inline cen_status send_watch(world *w, unsigned i, const char *name, bool on) {
    ceni_wire_watch *b = ceni_wire_begin(&request, CENI_WIRE_WATCH, 9, sizeof *b);
    *b = (ceni_wire_watch){on, (uint32_t)strlen(name)};
    ceni_wire_add(&request, name, b->name_size);
    return world_send(w, i, &request, 0);
}

static inline cen_status send_event(world *w, unsigned i, uint64_t export_id, uint32_t flags) {
    ceni_wire_event *b = ceni_wire_begin(&request, CENI_WIRE_EVENT, 10, sizeof *b);
    *b = (ceni_wire_event){.export_id = export_id, .flags = flags};
    return world_send(w, i, &request, !!(flags & CENI_WIRE_EVENT_FD));
}

static inline cen_status send_list(world *w, unsigned i, uint64_t cursor) {
    ceni_wire_list *b = ceni_wire_begin(&request, CENI_WIRE_LIST, 11, sizeof *b);
    b->cursor = cursor;
    return world_send(w, i, &request, 0);
}

#endif
