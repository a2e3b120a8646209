/* Telling the broker of sets and exports: the first time, and again after its restart. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "ipc/client_int.h"

cen_status ceni_pages_fd(const ceni_pages *pages, uint32_t page, int *fd, bool *close_it) {
    int made = -1;
    *close_it = pages->device;
    if (!pages->device) {
        *fd = pages->fds[page];
        return CEN_OK;
    }
    cen_status status = ceni_dev_page_export(pages->device, pages->pages[page], &made);
    if (!status && (made = ceni_fd_move(made)) < 0) {
        status = ceni_fail(CEN_ERR_LIMIT, "share: a page's descriptor: %s", strerror(errno));
    }
    if (!status) {
        *fd = made;
    }
    return status;
}

/* The descriptors of some pages, sent. */
static cen_status send_pages(cen_share *share, const ceni_pages *pages, uint32_t first,
                             uint32_t count, ceni_reply *reply) {
    int fds[CENI_WIRE_FDS];
    bool close_them = false;
    uint32_t made = 0;
    cen_status status = CEN_OK;
    while (!status && made < count) {
        status = ceni_pages_fd(pages, first + made, &fds[made], &close_them);
        made += !status;
    }
    status = status ? status : ceni_client_call(share, fds, count, reply);
    ceni_fd_close_all(fds, close_them ? made : 0);
    return status;
}

cen_status ceni_publish_set(cen_share *share, const ceni_pages *pages, enum ceni_again again,
                            uint64_t *id) {
    uint64_t set = *id;
    for (uint32_t first = 0; first < pages->page_count; first += CENI_WIRE_FDS) {
        uint32_t count = pages->page_count - first;
        count = count < CENI_WIRE_FDS ? count : CENI_WIRE_FDS;
        ceni_wire_set *body = ceni_client_begin(share, CENI_WIRE_SET, sizeof *body);
        *body = (ceni_wire_set){.set = set,
                                .bytes = pages->bytes,
                                .page_bytes = pages->page_bytes,
                                .page_count = pages->page_count,
                                .first_page = first,
                                .again = again};
        memcpy(body->uuid, pages->uuid, sizeof body->uuid);
        ceni_reply reply;
        cen_status status = send_pages(share, pages, first, count, &reply);
        if (status) {
            return status;
        }
        set = ((const ceni_wire_set_reply *)reply.message.body)->set;
        ceni_reply_close(&reply);
        ceni_ipc_step("client: some pages are told");
    }
    *id = set;
    return CEN_OK;
}

cen_status ceni_directory_file(const void *data, size_t size, int *out) {
    int fd = ceni_fault(CENI_FAULT_IO)
                 ? -1
                 : ceni_fd_move(memfd_create("cenote-directory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const char *at = data;
    size_t left = size;
    while (fd >= 0 && ceni_fd_may_grow(size) && left) {
        ssize_t wrote = write(fd, at, left);
        if (wrote < 0 && errno != EINTR) {
            break;
        }
        at += wrote > 0 ? wrote : 0;
        left -= wrote > 0 ? (size_t)wrote : 0;
    }
    if (fd < 0 || left ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        cen_status status =
            ceni_fail(CEN_ERR_LIMIT, "share: a directory of %zu bytes: %s", size, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *out = fd;
    return CEN_OK;
}

cen_status ceni_publish(cen_share *share, const ceni_publication *p, uint64_t *id,
                        uint64_t *version) {
    int fds[2], directory = -1;
    unsigned count = 0;
    bool in_line = p->directory_size <= CENI_WIRE_INLINE_MAX;
    if (!in_line) {
        cen_status status = ceni_directory_file(p->directory, p->directory_size, &directory);
        if (status) {
            return status;
        }
        fds[count++] = directory;
    }
    if (p->shared->flags & CENI_WIRE_EVENT_FD) {
        fds[count++] = p->shared->fd;
    }
    ceni_wire_publish *body = ceni_client_begin(share, CENI_WIRE_PUBLISH, sizeof *body);
    *body = (ceni_wire_publish){.set = p->set,
                                .export_id = p->id,
                                .version = p->name ? p->version : 0,
                                .token = {p->secret[0], p->secret[1]},
                                .flags = p->flags | p->shared->flags |
                                         (in_line ? 0 : CENI_WIRE_DIRECTORY_FD),
                                .access_count = p->access_count,
                                .name_size = p->name ? (uint32_t)strlen(p->name) : 0,
                                .directory_size = (uint32_t)p->directory_size,
                                .once_ttl_ms = p->once_ttl_ms};
    if (p->shared->flags) {
        memcpy(body->event, p->shared->token, sizeof body->event);
    }
    ceni_wire_add(share->out, p->access, p->access_count * sizeof *p->access);
    ceni_wire_add(share->out, p->name, p->name ? strlen(p->name) : 0);
    ceni_wire_add(share->out, p->directory, in_line ? p->directory_size : 0);
    ceni_reply reply;
    cen_status status = ceni_client_call(share, fds, count, &reply);
    if (directory >= 0) {
        close(directory);
    }
    if (!status) {
        const ceni_wire_publish_reply *r = reply.message.body;
        *id = r->export_id;
        *version = r->version;
        ceni_reply_close(&reply);
    }
    return status;
}
