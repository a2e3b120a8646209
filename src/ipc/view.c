/* What is open here: leases, and the views of them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ipc/client_int.h"

uint64_t ceni_name_hash(const char *name, size_t size, uint64_t version) {
    return name && size ? XXH64(name, size, version) : 0;
}

/* ---- making one of a reply ---- */

/* Maps a directory's file: of that size, and of such a kind that nobody can change it meanwhile. */
static cen_status map_directory(int fd, uint32_t size, void **data) {
    const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &st) || (uint64_t)st.st_size != size) {
        return ceni_fail(CEN_ERR_FORMAT, "open: the directory is no sealed file of %u bytes",
                         (unsigned)size);
    }
    void *map = ceni_fault(CENI_FAULT_HOST_MEMORY) ? MAP_FAILED
                                                   : mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: a directory of %u bytes cannot be mapped",
                         (unsigned)size);
    }
    *data = map;
    return CEN_OK;
}

static cen_status take_directory(const ceni_wire_open_reply *body, ceni_reply *reply,
                                 ceni_opened *lease) {
    if (body->flags & CENI_WIRE_DIRECTORY_FD) {
        cen_status status = map_directory(reply->fds[0], body->directory_size, &lease->data);
        if (status) {
            return status;
        }
        lease->mapped = true;
    } else {
        lease->data = ceni_malloc(body->directory_size);
        if (!lease->data) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "open: no memory for a directory");
        }
        memcpy(lease->data, reply->message.directory, body->directory_size);
    }
    lease->data_size = body->directory_size;
    return ceni_directory_open(lease->data, lease->data_size, lease->bytes, &lease->directory);
}

/* The event's descriptor is the one after the directory's. */
static void take_event(const ceni_wire_open_reply *body, ceni_reply *reply, ceni_opened *lease) {
    lease->shared.flags = body->flags & (CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN);
    memcpy(lease->shared.token, body->event, sizeof lease->shared.token);
    if (body->flags & CENI_WIRE_EVENT_FD) {
        int *fd = &reply->fds[body->flags & CENI_WIRE_DIRECTORY_FD ? 1 : 0];
        lease->shared.fd = *fd;
        *fd = -1;
    }
}

cen_status ceni_opened_new(ceni_reply *reply, ceni_opened **out) {
    const ceni_wire_open_reply *body = reply->message.body;
    ceni_opened *lease = ceni_calloc(1, sizeof *lease);
    if (!lease) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    }
    *lease = (ceni_opened){.id = body->export_id,
                           .version = body->version,
                           .set = body->set,
                           .bytes = body->bytes,
                           .page_bytes = body->page_bytes,
                           .page_count = body->page_count,
                           .owner_uid = body->owner_uid,
                           .flags = body->flags & (CENI_WIRE_KEEP | CENI_WIRE_ONCE),
                           .secret = {body->token[0], body->token[1]},
                           .access_count = body->access_count,
                           .write = body->write,
                           .shared = {.fd = -1},
                           .direct = -1};
    memcpy(lease->uuid, body->uuid, sizeof lease->uuid);
    memcpy(lease->access, reply->message.access, body->access_count * sizeof *lease->access);
    lease->name_hash =
        ceni_name_hash(reply->message.name, reply->message.name_size, lease->version);
    lease->name = ceni_calloc(1, (size_t)reply->message.name_size + 1);
    lease->close = ceni_calloc(1, sizeof *lease->close);
    cen_status status = CEN_OK;
    if (!lease->name || !lease->close) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    } else {
        memcpy(lease->name, reply->message.name, reply->message.name_size);
        lease->close->type = CENI_WIRE_CLOSE;
        lease->close->id = lease->id;
        status = take_directory(body, reply, lease);
    }
    if (status) {
        ceni_opened_free(lease);
        return status;
    }
    take_event(body, reply, lease);
    *out = lease;
    return CEN_OK;
}

void ceni_opened_free(ceni_opened *lease) {
    while (lease->events) {
        ceni_imported_event *event = lease->events;
        lease->events = event->next;
        (void)cen_event_destroy(event->device, event->event);
        ceni_free(event);
    }
    ceni_shared_event_close(&lease->shared);
    if (lease->mapped) {
        munmap(lease->data, lease->data_size);
    } else {
        ceni_free(lease->data);
    }
    if (lease->direct >= 0) {
        close(lease->direct);
    }
    ceni_free(lease->name);
    ceni_free(lease->close);
    ceni_free(lease);
}

/* ---- the tables; `lock` is held ---- */

cen_status ceni_opened_add(cen_share *share, ceni_opened *lease) {
    uint64_t self = (uint64_t)(uintptr_t)lease;
    if (ceni_map_put(&share->leases, lease->id, self)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    }
    if (!*lease->name) {
        return CEN_OK;
    }
    uint64_t *head = ceni_map_get(&share->opened, lease->name_hash);
    if (head) {
        lease->same_name = (ceni_opened *)(uintptr_t)*head;
        *head = self;
    } else if (ceni_map_put(&share->opened, lease->name_hash, self)) {
        (void)ceni_map_remove(&share->leases, lease->id, NULL);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "open: out of host memory");
    }
    return CEN_OK;
}

void ceni_opened_remove(cen_share *share, ceni_opened *lease) {
    (void)ceni_map_remove(&share->leases, lease->id, NULL);
    uint64_t *found = *lease->name ? ceni_map_get(&share->opened, lease->name_hash) : NULL;
    if (!found) {
        return;
    }
    ceni_opened *head = (ceni_opened *)(uintptr_t)*found, **link = &head;
    while (*link != lease) {
        link = &(*link)->same_name;
    }
    *link = lease->same_name;
    if (head) {
        *found = (uint64_t)(uintptr_t)head;
    } else {
        (void)ceni_map_remove(&share->opened, lease->name_hash, NULL);
    }
}

void ceni_opened_drop(cen_share *share, ceni_opened *lease) {
    if (--lease->refs) {
        return;
    }
    if (lease->direct >= 0) {
        uint8_t closed = CENI_DIRECT_CLOSED, said;
        /* What is left unread when a socket closes cuts off what its other end would read. */
        (void)shutdown(lease->direct, SHUT_RD);
        while (recv(lease->direct, &said, 1, MSG_DONTWAIT) == 1) {
        }
        /* If it cannot be said, the sender takes it for unclean. */
        (void)send(lease->direct, &closed, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else {
        ceni_opened_remove(share, lease);
        ceni_share_tell_later(share, &lease->close);
    }
    ceni_opened_free(lease);
}

/* ---- views ---- */

static void view_done(cen_share *share, ceni_work *work) {
    cen_share_view *view = (cen_share_view *)work; /* its first member */
    ceni_import_drop(share, view->import);
    ceni_opened_drop(share, view->lease);
    ceni_free(view);
}

void ceni_view_init(cen_share *share, cen_share_view *view, ceni_opened *lease,
                    ceni_import *import) {
    *view = (cen_share_view){.work = {.done = view_done},
                             .share = share,
                             .next = share->views,
                             .lease = lease,
                             .import = import};
    if (view->next) {
        view->next->before = view;
    }
    share->views = view;
}

cen_status cen_share_close(cen_share_view *view, cen_stream stream) {
    cen_status status = view ? ceni_share_check(view->share, "close") : CEN_OK;
    if (status || !view) {
        return status;
    }
    cen_share *share = view->share;
    pthread_mutex_lock(&share->lock);
    status = ceni_work_begin(&view->work, "close", view->import->device, stream);
    if (!status) {
        if (view->before) {
            view->before->next = view->next;
        } else {
            share->views = view->next;
        }
        if (view->next) {
            view->next->before = view->before;
        }
        ceni_work_queue(share, &view->work);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

static cen_status check_view(const cen_share_view *view, const char *what, const void *out) {
    if (!view || !out) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", what, view ? "the output" : "view");
    }
    return ceni_share_check(view->share, what);
}

cen_status cen_share_view_get_info(const cen_share_view *view, cen_share_view_info *info) {
    cen_status status = check_view(view, "view_get_info", info);
    if (status) {
        return status;
    }
    const ceni_opened *lease = view->lease;
    *info = (cen_share_view_info){.export_id = lease->id,
                                  .version = lease->version,
                                  .name = lease->name,
                                  .items = lease->directory.count,
                                  .bytes = lease->directory.bytes,
                                  .set_addr = view->import->addr,
                                  .set_bytes = view->import->bytes,
                                  .writable = view->import->write,
                                  .revoked = atomic_load(&lease->revoked)};
    memcpy(info->device_uuid, lease->uuid, sizeof info->device_uuid);
    return CEN_OK;
}

cen_status cen_share_view_item(const cen_share_view *view, size_t index, cen_share_item *item) {
    cen_status status = check_view(view, "view_item", item);
    if (!status && index >= view->lease->directory.count) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "view_item: item %zu of %u", index,
                           (unsigned)view->lease->directory.count);
    }
    if (!status) {
        ceni_directory_item(&view->lease->directory, index, view->import->addr, item);
    }
    return status;
}

cen_status cen_share_view_items(const cen_share_view *view, size_t first, cen_share_item *items,
                                size_t count, size_t *got) {
    cen_status status = check_view(view, "view_items", items ? got : NULL);
    if (status) {
        return status;
    }
    size_t there = view->lease->directory.count;
    size_t left = first < there ? there - first : 0;
    size_t given = count < left ? count : left;
    for (size_t i = 0; i < given; i++) {
        ceni_directory_item(&view->lease->directory, first + i, view->import->addr, &items[i]);
    }
    *got = given;
    return CEN_OK;
}

cen_status cen_share_view_find(const cen_share_view *view, const char *name, cen_share_item *item) {
    size_t index;
    cen_status status = check_view(view, "view_find", item);
    if (!status && !name) {
        status = ceni_fail(CEN_ERR_INVALID, "view_find: name is NULL");
    }
    if (!status && !ceni_directory_find(&view->lease->directory, name, &index)) {
        status = ceni_fail(CEN_ERR_NOT_FOUND, "view_find: the export has no item '%s'", name);
    }
    if (!status) {
        ceni_directory_item(&view->lease->directory, index, view->import->addr, item);
    }
    return status;
}
