/* Replies and notices. What does not fit into a socket is kept: one reply, after which its client
 * is not read from until that is sent; notices up to a bound, beyond which the client is cut off.
 * Descriptors are not kept, nor do many wait in a socket: they are of a number that all users
 * share. A client that reads its replies has room for them always. */
#include <errno.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/broker_int.h"

enum { NOTICES_MAX = 65536, NOTICES_EACH = 128 /* more for each lease and export */ };

void ceni_peer_drop_reply(ceni_peer *peer) {
    ceni_free(peer->reply);
    peer->reply = NULL;
}

/* Keeps a reply until the socket has room. */
static bool keep(ceni_peer *peer, const ceni_wire_builder *message, unsigned count) {
    peer->reply = count ? NULL : ceni_malloc(sizeof *peer->reply);
    if (!peer->reply) {
        return false;
    }
    memcpy(peer->reply->data, message->data, message->size);
    peer->reply->size = message->size;
    peer->reply->overflow = false;
    peer->stopped = false; /* it is read from again once this is sent */
    ceni_peer_watch(peer, CENI_EVENT_SOCKET, peer->socket, EPOLLOUT, false);
    return true;
}

void ceni_broker_reply(void *arg, void *at, const ceni_wire_builder *message, const int *fds,
                       unsigned count) {
    ceni_peer *peer = at;
    if (peer->doomed || peer->socket < 0) {
        return;
    }
    cen_status status = peer->reply ? CEN_ERR_INVALID /* it does not read its replies */
                                    : ceni_wire_send(peer->socket, message, fds, count, true);
    if (status == CEN_ERR_LIMIT && count) { /* too many descriptors are under way to it */
        ceni_wire_head head;
        memcpy(&head, message->data, sizeof head);
        ceni_wire_fail(&peer->broker->out, head.type, head.seq, CEN_ERR_LIMIT,
                       "too many descriptors of this user's are under way");
        status = ceni_wire_send(peer->socket, &peer->broker->out, NULL, 0, true);
        count = 0;
    }
    peer->owes = !status && count;
    if (!status && peer->stopped) {
        peer->stopped = false;
        ceni_peer_watch(peer, CENI_EVENT_SOCKET, peer->socket, EPOLLIN, false);
    }
    if (status == CEN_ERR_NOT_READY && !keep(peer, message, count)) {
        ceni_peer_doom(peer, "a reply that it does not read cannot be kept");
    } else if (status && status != CEN_ERR_NOT_READY) {
        ceni_peer_doom(peer, status == CEN_ERR_NO_BROKER ? NULL : "it takes no reply");
    }
}

bool ceni_peer_has_read(const ceni_peer *peer) {
    int unread = 0; /* what cannot be told is no offence */
    return !peer->owes || ioctl(peer->socket, SIOCOUTQ, &unread) || !unread;
}

void ceni_peer_send_more(ceni_peer *peer) {
    if (!peer->reply) {
        return;
    }
    cen_status status = ceni_wire_send(peer->socket, peer->reply, NULL, 0, true);
    if (status == CEN_ERR_NOT_READY) {
        return;
    }
    ceni_free(peer->reply);
    peer->reply = NULL;
    if (status) {
        ceni_peer_doom(peer, status == CEN_ERR_NO_BROKER ? NULL : "it takes no reply");
    } else {
        ceni_peer_watch(peer, CENI_EVENT_SOCKET, peer->socket, EPOLLIN, false);
    }
}

/* ---- notices ---- */

/* False: it is cut off. */
static bool enqueue(ceni_peer *peer, const ceni_wire_builder *message) {
    size_t left = peer->queue_size - peer->queue_sent;
    uint64_t bound =
        NOTICES_MAX + NOTICES_EACH * ceni_state_weight(peer->broker->state, peer->client);
    if (left + message->size > bound) {
        ceni_peer_doom(peer, "it does not read its notices");
        return false;
    }
    if (peer->queue_sent > left) { /* more is gone than is left: moving that is cheap */
        memmove(peer->queue, peer->queue + peer->queue_sent, left);
        peer->queue_size = left;
        peer->queue_sent = 0;
    }
    if (ceni_grow(&peer->queue, &peer->queue_capacity, peer->queue_size + message->size, 1)) {
        ceni_peer_doom(peer, "no memory for its notices");
        return false;
    }
    memcpy(peer->queue + peer->queue_size, message->data, message->size);
    peer->queue_size += message->size;
    if (!left && peer->greeted) {
        ceni_peer_watch(peer, CENI_EVENT_NOTICE, peer->notice, EPOLLOUT, false);
    }
    return true;
}

bool ceni_broker_notice(void *arg, void *at, const ceni_wire_builder *message) {
    ceni_peer *peer = at;
    if (peer->doomed || peer->notice < 0) {
        return false;
    }
    /* While it is greeted, what an earlier connection of its did not get comes first. */
    cen_status status = CEN_ERR_NOT_READY;
    if (peer->greeted && peer->queue_sent == peer->queue_size) {
        status = ceni_wire_send(peer->notice, message, NULL, 0, true);
    }
    if (status == CEN_ERR_NOT_READY) {
        return enqueue(peer, message);
    }
    if (status) {
        ceni_peer_doom(peer, status == CEN_ERR_NO_BROKER ? NULL : "it takes no notice");
    }
    return !status;
}

bool ceni_peer_take_notices(ceni_peer *peer, ceni_peer *before) {
    size_t size = peer->queue_size;
    if (before->queue_sent == before->queue_size) {
        return true;
    }
    if (ceni_grow(&before->queue, &before->queue_capacity, before->queue_size + size, 1)) {
        return false;
    }
    if (size) { /* nothing of it is sent yet */
        memcpy(before->queue + before->queue_size, peer->queue, size);
    }
    ceni_free(peer->queue);
    peer->queue = before->queue;
    peer->queue_capacity = before->queue_capacity;
    peer->queue_size = before->queue_size + size;
    peer->queue_sent = before->queue_sent;
    before->queue = NULL;
    before->queue_size = before->queue_sent = before->queue_capacity = 0;
    return true;
}

void ceni_peer_notice_more(ceni_peer *peer) {
    while (peer->queue_sent < peer->queue_size) {
        ceni_wire_head head;
        memcpy(&head, peer->queue + peer->queue_sent, sizeof head);
        ssize_t sent = send(peer->notice, peer->queue + peer->queue_sent, head.size,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                ceni_peer_doom(peer, NULL);
            }
            return; /* the event comes again */
        }
        peer->queue_sent += head.size;
    }
    peer->queue_size = peer->queue_sent = 0;
    ceni_peer_watch(peer, CENI_EVENT_NOTICE, peer->notice, 0, false);
}
