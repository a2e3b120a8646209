/* Sharing without a broker: an export's pages, directory and event go over a socket to one other
 * process, in the messages that the broker would send. With the first goes one end of a pair of
 * sockets, which is the lease: the receiver says there that it has taken the export, and that it
 * has closed it; its end closing without that is the end of a process that may have been at work.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "ipc/channel.h"
#include "ipc/client_int.h"

/* ---- sending ---- */

/* What is sent, as it was when the call began. */
typedef struct parcel {
    cen_share *share;
    ceni_offer *export;
    ceni_wire_builder *message;
    ceni_channel channel;
    int fds[2]; /* directory, event */
    unsigned fd_count;
    int *pages;
    uint32_t page_count;
    uint64_t set;
    int lease[2];    /* ours, the receiver's */
    bool pages_left; /* some may have arrived */
} parcel;

/* A descriptor that only reads, where the kernel can make one: as the broker gives to readers. */
static cen_status read_only(int *fd) {
    if (fcntl(*fd, F_GET_SEALS) < 0) {
        return CEN_OK; /* no memfd: its rights are the driver's matter */
    }
    int made = ceni_fd_reopen(*fd, O_RDONLY);
    if (made < 0 && ceni_fd_no_proc(errno)) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "send: there is no /proc of this process, which opens pages for reading "
                         "only; share through a broker");
    }
    if (made < 0) {
        return ceni_fail(CEN_ERR_LIMIT, "send: a page's descriptor: %s", strerror(errno));
    }
    close(*fd);
    *fd = made;
    return CEN_OK;
}

/* `lock` is held. */
static cen_status take_pages(parcel *p, const cen_share_set *set) {
    ceni_pages pages = {.device = set->device, .pages = set->pages};
    p->pages = ceni_malloc(set->page_count * sizeof *p->pages);
    cen_status status =
        p->pages ? CEN_OK : ceni_fail(CEN_ERR_HOST_MEMORY, "send: out of host memory");
    while (!status && p->page_count < set->page_count) {
        bool close_it;
        status = ceni_pages_fd(&pages, p->page_count, &p->pages[p->page_count], &close_it);
        if (!status) {
            status = read_only(&p->pages[p->page_count++]);
        }
    }
    return status;
}

/* The message that names the export, and its descriptors. `lock` is held. */
static cen_status describe(parcel *p) {
    const ceni_offer *e = p->export;
    const cen_share_set *set = e->set;
    bool in_line = e->directory_size <= CENI_WIRE_INLINE_MAX;
    size_t name_size = e->name ? strlen(e->name) : 0;
    cen_status status = CEN_OK;
    if (!in_line) {
        status = ceni_directory_file(e->directory, e->directory_size, &p->fds[0]);
        p->fd_count = !status;
    }
    if (!status && e->shared.flags & CENI_WIRE_EVENT_FD) {
        int copy = fcntl(e->shared.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (copy < 0) {
            return ceni_fail(CEN_ERR_LIMIT, "send: an event's descriptor: %s", strerror(errno));
        }
        p->fds[p->fd_count++] = copy;
    }
    if (status) {
        return status;
    }
    ceni_wire_open_reply *body = ceni_wire_begin(p->message, CENI_WIRE_OPEN, 1, sizeof *body);
    *body =
        (ceni_wire_open_reply){.export_id = e->id,
                               .version = e->version,
                               .set = set->id,
                               .bytes = set->bytes,
                               .page_bytes = set->page_bytes,
                               .token = {e->secret[0], e->secret[1]},
                               .page_count = set->page_count,
                               .flags = e->shared.flags | (in_line ? 0u : CENI_WIRE_DIRECTORY_FD),
                               .owner_uid = (uint32_t)geteuid(),
                               .name_size = (uint32_t)name_size,
                               .directory_size = (uint32_t)e->directory_size};
    memcpy(body->uuid, set->uuid, sizeof body->uuid);
    memcpy(body->event, e->shared.token, sizeof body->event);
    ceni_wire_add(p->message, e->name, name_size);
    ceni_wire_add(p->message, e->directory, in_line ? e->directory_size : 0);
    p->set = set->id;
    return CEN_OK;
}

static cen_status open_pair(int pair[2]) {
    if (ceni_fault(CENI_FAULT_IO) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        pair[0] = pair[1] = -1;
        return ceni_fail(CEN_ERR_LIMIT, "share: a pair of sockets: %s", strerror(errno));
    }
    pair[0] = ceni_fd_move(pair[0]);
    pair[1] = ceni_fd_move(pair[1]);
    return pair[0] < 0 || pair[1] < 0
               ? ceni_fail(CEN_ERR_LIMIT, "share: a socket: %s", strerror(errno))
               : CEN_OK;
}

/* Finds the export, holds it, and takes what is sent of it. */
static cen_status begin(parcel *p, uint64_t export_id) {
    cen_share *share = p->share;
    pthread_mutex_lock(&share->lock);
    p->export = ceni_offer_find(share, export_id);
    cen_status status = CEN_OK;
    if (!p->export || p->export->withdrawn) {
        status =
            ceni_fail(CEN_ERR_NOT_FOUND, "send: this connection exports no %#" PRIx64, export_id);
        p->export = NULL;
    } else {
        p->export->direct++;
        status = describe(p);
        status = status ? status : take_pages(p, p->export->set);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

static cen_status send_hello(parcel *p) {
    ceni_wire_builder *m = ceni_malloc(sizeof *m);
    if (!m) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "send: out of host memory");
    }
    ceni_wire_hello *body = ceni_wire_begin(m, CENI_WIRE_HELLO, 1, sizeof *body);
    *body = (ceni_wire_hello){.version_min = CENI_WIRE_VERSION,
                              .version_max = CENI_WIRE_VERSION,
                              .label_size = (uint32_t)strlen(p->share->label)};
    ceni_wire_add(m, p->share->label, body->label_size);
    cen_status status = ceni_channel_send(&p->channel, m, &p->lease[1], 1);
    ceni_free(m);
    return status;
}

static cen_status send_pages(parcel *p) {
    cen_status status = CEN_OK;
    for (uint32_t first = 0; !status && first < p->page_count; first += CENI_WIRE_FDS) {
        uint32_t count = p->page_count - first;
        count = count < CENI_WIRE_FDS ? count : CENI_WIRE_FDS;
        ceni_wire_pages_reply *body = ceni_wire_begin(p->message, CENI_WIRE_PAGES, 1, sizeof *body);
        *body = (ceni_wire_pages_reply){.set = p->set, .first_page = first, .count = count};
        p->pages_left = true;
        ceni_ipc_step("client: before pages are sent directly");
        status = ceni_channel_send(&p->channel, p->message, p->pages + first, count);
    }
    return status;
}

/* Until the receiver says that it has it. */
static cen_status wait_taken(parcel *p) {
    uint8_t byte = 0;
    cen_status status = ceni_channel_await(&p->channel, p->lease[0]);
    if (status) {
        return status;
    }
    ssize_t got = recv(p->lease[0], &byte, 1, MSG_DONTWAIT);
    if (got == 1 && byte == CENI_DIRECT_TAKEN) {
        return CEN_OK;
    }
    if (got == 1 && byte == CENI_DIRECT_REFUSED) {
        p->pages_left = false; /* it said that it uses none of them */
        return ceni_fail(CEN_ERR_IO, "send: the receiver could not open it; its log says why");
    }
    return ceni_fail(CEN_ERR_IO, "send: the receiver ended before it had opened it");
}

/* Lets go of what was held. What the receiver may have in use is not used again. An export may be
 * forgotten here, so `wire` is held: with that alone the thread walks them, to announce them. */
static void end(parcel *p, cen_status status, ceni_direct *direct) {
    cen_share *share = p->share;
    ceni_turn_take(&share->wire);
    pthread_mutex_lock(&share->lock);
    if (!status) {
        *direct = (ceni_direct){.next = share->directs, .fd = p->lease[0], .export = p->export};
        share->directs = direct;
        if (direct->export->cleared) {
            ceni_direct_tell(direct, CENI_DIRECT_DONE);
        }
        p->lease[0] = -1;
        ceni_share_wake(share);
    } else if (p->export) {
        p->export->direct--;
        ceni_offer_idle(share, p->export, p->pages_left);
    }
    pthread_mutex_unlock(&share->lock);
    ceni_turn_give(&share->wire);
    ceni_fd_close_all(p->lease, 2);
    ceni_fd_close_all(p->fds, p->fd_count);
    ceni_fd_close_all(p->pages, p->page_count);
    ceni_free(p->pages);
    ceni_free(p->message);
}

cen_status cen_share_send(cen_share *share, uint64_t export_id, int socket, uint32_t timeout_ms) {
    cen_status status = ceni_share_check(share, "send");
    if (status) {
        return status;
    }
    parcel p = {.share = share, .lease = {-1, -1}};
    status = ceni_channel_open(&p.channel, socket, timeout_ms);
    if (status) {
        return status;
    }
    ceni_direct *direct = ceni_malloc(sizeof *direct);
    p.message = ceni_malloc(sizeof *p.message);
    if (!direct || !p.message) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "send: out of host memory");
    }
    status = status ? status : open_pair(p.lease);
    status = status ? status : begin(&p, export_id);
    status = status ? status : send_hello(&p);
    status = status ? status : ceni_channel_send(&p.channel, p.message, p.fds, p.fd_count);
    status = status ? status : send_pages(&p);
    if (p.lease[1] >= 0) { /* the receiver has the other: its end is to be seen */
        close(p.lease[1]);
        p.lease[1] = -1;
    }
    status = status ? status : wait_taken(&p);
    end(&p, status, direct);
    if (status) {
        ceni_free(direct);
    }
    return status;
}

/* ---- receiving ---- */

static cen_status receive(const ceni_channel *channel, void *buffer, enum ceni_wire_side side,
                          enum ceni_wire_type type, ceni_reply *reply) {
    size_t size;
    reply->fd_count = 0;
    cen_status status = ceni_channel_receive(channel, buffer, &size, reply->fds, &reply->fd_count);
    if (status) {
        return status;
    }
    status = ceni_wire_check(buffer, size, reply->fd_count, side, &reply->message);
    if (!status && (reply->message.head.type != type || reply->message.head.status)) {
        status = ceni_fail(CEN_ERR_FORMAT, "receive: a message of type %u came, not of type %u",
                           (unsigned)reply->message.head.type, (unsigned)type);
    }
    if (status) {
        ceni_reply_close(reply);
    }
    return status;
}

/* The first message: the lease's socket. */
static cen_status receive_hello(const ceni_channel *channel, void *buffer, int *lease) {
    ceni_reply reply;
    int type = 0;
    socklen_t size = sizeof type;
    cen_status status = receive(channel, buffer, CENI_WIRE_REQUEST, CENI_WIRE_HELLO, &reply);
    if (status) {
        return status;
    }
    const ceni_wire_hello *body = reply.message.body;
    if (body->version_min > CENI_WIRE_VERSION || body->version_max < CENI_WIRE_VERSION) {
        status = ceni_fail(CEN_ERR_UNSUPPORTED, "receive: the sender speaks versions %u to %u",
                           (unsigned)body->version_min, (unsigned)body->version_max);
    } else if (reply.fd_count != 1 || getsockopt(reply.fds[0], SOL_SOCKET, SO_TYPE, &type, &size)) {
        status = ceni_fail(CEN_ERR_FORMAT, "receive: no socket came for the lease");
    } else {
        *lease = reply.fds[0];
        reply.fd_count = 0;
    }
    ceni_reply_close(&reply);
    return status;
}

static cen_status receive_pages(const ceni_channel *channel, void *buffer, const ceni_opened *lease,
                                int *fds, uint32_t *have) {
    while (*have < lease->page_count) {
        ceni_reply reply;
        cen_status status = receive(channel, buffer, CENI_WIRE_REPLY, CENI_WIRE_PAGES, &reply);
        if (status) {
            return status;
        }
        const ceni_wire_pages_reply *r = reply.message.body;
        if (r->first_page != *have || r->count > lease->page_count - *have) {
            ceni_reply_close(&reply);
            return ceni_fail(CEN_ERR_FORMAT, "receive: other pages came than the set has");
        }
        memcpy(fds + *have, reply.fds, r->count * sizeof *fds);
        *have += r->count;
    }
    return CEN_OK;
}

static cen_status receive_set(const ceni_channel *channel, void *buffer, cen_device *device,
                              const ceni_opened *lease, ceni_import **import) {
    int *fds = ceni_malloc(lease->page_count * sizeof *fds);
    uint32_t have = 0;
    if (!fds) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "receive: no memory for %u pages",
                         (unsigned)lease->page_count);
    }
    cen_status status = receive_pages(channel, buffer, lease, fds, &have);
    status = status ? status : ceni_import_reaches(device, lease->uuid);
    status = status ? status : ceni_import_map(device, false, lease, fds, false, import);
    ceni_fd_close_all(fds, have);
    ceni_free(fds);
    return status;
}

static void say(int lease, uint8_t what) {
    (void)send(lease, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static cen_status receive_export(const ceni_channel *channel, void *buffer, cen_device *device,
                                 int lease_fd, ceni_opened **lease, ceni_import **import) {
    ceni_reply reply;
    cen_status status = receive(channel, buffer, CENI_WIRE_REPLY, CENI_WIRE_OPEN, &reply);
    if (status) {
        return status;
    }
    status = ceni_opened_new(&reply, lease);
    ceni_reply_close(&reply);
    if (status) {
        return status;
    }
    (*lease)->refs = 1;
    (*lease)->direct = lease_fd;
    status = receive_set(channel, buffer, device, *lease, import);
    uint8_t taken = CENI_DIRECT_TAKEN;
    if (!status && send(lease_fd, &taken, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
        status = ceni_fail(CEN_ERR_TRUNCATED, "receive: the sender gave up");
        ceni_import_free(*import);
    }
    if (status) {
        (*lease)->direct = -1; /* the caller's again */
        ceni_opened_free(*lease);
    }
    return status;
}

cen_status cen_share_receive(cen_share *share, cen_device *device, int socket, uint32_t timeout_ms,
                             cen_share_view **out) {
    cen_status status = ceni_share_check(share, "receive");
    if (!status && (!device || !out)) {
        status = ceni_fail(CEN_ERR_INVALID, "receive: %s is NULL", device ? "view" : "device");
    }
    ceni_channel channel;
    status = status ? status : ceni_channel_open(&channel, socket, timeout_ms);
    if (status) {
        return status;
    }
    cen_share_view *view = ceni_malloc(sizeof *view);
    void *buffer = ceni_malloc(CENI_WIRE_MAX);
    ceni_opened *lease;
    ceni_import *import;
    int lease_fd = -1;
    status = view && buffer ? receive_hello(&channel, buffer, &lease_fd)
                            : ceni_fail(CEN_ERR_HOST_MEMORY, "receive: out of host memory");
    if (!status) {
        status = receive_export(&channel, buffer, device, lease_fd, &lease, &import);
        if (status) {
            say(lease_fd, CENI_DIRECT_REFUSED);
            close(lease_fd);
        }
    }
    ceni_free(buffer);
    if (status) {
        ceni_free(view);
        return status;
    }
    pthread_mutex_lock(&share->lock);
    ceni_view_init(share, view, lease, import);
    pthread_mutex_unlock(&share->lock);
    *out = view;
    return CEN_OK;
}
