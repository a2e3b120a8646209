/* The messages between clients and the broker (docs/formats/broker.md).
 *
 * A connection is a Unix socket of type SOCK_SEQPACKET: a message arrives whole or not at all. Each
 * begins with a ceni_wire_head; a body of fixed size follows, then variable parts whose lengths
 * the body has, in the order of its fields, each padded with zeros to 8 bytes. Numbers are
 * little-endian. File descriptors travel with the message that speaks of them (SCM_RIGHTS).
 *
 * A client sends a request and reads its reply, one at a time. What the broker has to tell unasked
 * goes to a second socket, whose one end the client sends with HELLO: notices, of the same form,
 * without an answer. */
#ifndef CENI_IPC_WIRE_H
#define CENI_IPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/directory.h"

enum {
    CENI_WIRE_VERSION = 1,
    CENI_WIRE_MAX = 32768,       /* bytes of a message */
    CENI_WIRE_FDS = 64,          /* descriptors of a message */
    CENI_WIRE_LABEL_MAX = 63,    /* bytes of a label */
    CENI_WIRE_PAGES_MAX = 65536, /* of a set */
    CENI_WIRE_INLINE_MAX = 4096, /* bytes of a directory in a message; longer ones are a memfd */
    CENI_WIRE_WHY_MAX = 256      /* bytes of a failed reply's text with its NUL */
};

/* All but NOTICE are a client's, each answered by a message of the same type. */
enum ceni_wire_type {
    CENI_WIRE_HELLO = 1,
    CENI_WIRE_SET = 2,
    CENI_WIRE_PUBLISH = 3,
    CENI_WIRE_OPEN = 4,
    CENI_WIRE_PAGES = 5,
    CENI_WIRE_CLOSE = 6,
    CENI_WIRE_WITHDRAW = 7,
    CENI_WIRE_REVOKE = 8,
    CENI_WIRE_DROP = 9,
    CENI_WIRE_LIST = 10,
    CENI_WIRE_WATCH = 11,
    CENI_WIRE_LEASE = 12,
    CENI_WIRE_EVENT = 13,
    CENI_WIRE_NOTICE = 32
};

typedef struct ceni_wire_head {
    uint32_t size; /* of the message, this included */
    uint16_t type;
    uint16_t version;
    uint32_t seq;   /* the client's; a reply repeats it; 0 in a notice */
    int32_t status; /* cen_status of a reply; else 0. A failed reply has no body but a text of why,
                       with its NUL (CENI_WIRE_WHY_MAX) */
} ceni_wire_head;

/* HELLO: first on a connection. Its body and the head stay what they are in every version. fds: the
 * broker's end of the notice socket, then, if the client has one, a pidfd of itself. resume: the
 * client id and secret that an earlier connection of the same process got; 0. What was counted as
 * that client's is the new connection's. */
typedef struct ceni_wire_hello {
    uint16_t version_min, version_max;
    uint32_t label_size;
    uint64_t resume, resume_secret;
    /* label: the program's name, at most 63 bytes, without control characters */
} ceni_wire_hello;
typedef struct ceni_wire_hello_reply {
    uint16_t version;
    uint16_t death_known; /* the broker will see the process die (a pidfd), not only its socket */
    uint32_t resumed;     /* 1: as asked; 0: the broker does not know that client (it restarted):
                             announce sets, exports and leases again */
    uint64_t client, secret;
    uint64_t instance; /* of the broker, random */
} ceni_wire_hello_reply;

/* SET: pages of a set, in order, at most CENI_WIRE_FDS in a message; fds: theirs. The first message
 * has set 0, the reply its id; the others name it. After a broker's restart the first, too, names
 * the id that the set had (`again`). All pages have page_bytes, the last may have less. The set
 * exists once all are there. A descriptor must be what a page of that device is: on the host a
 * memfd of its size, sealed against shrinking; on CUDA a character device. */
typedef struct ceni_wire_set {
    uint64_t set;
    uint64_t bytes, page_bytes;
    uint32_t page_count, first_page;
    uint32_t again; /* in each message. 1: by its publisher; 2: by a reader of its user, which
                       holds it up until that has published an export of it again */
    uint32_t reserved;
    char uuid[48];
} ceni_wire_set;
typedef struct ceni_wire_set_reply {
    uint64_t set;
} ceni_wire_set_reply;

enum {
    CENI_WIRE_KEEP = 1u,
    CENI_WIRE_KEEP_OLDER = 2u,
    CENI_WIRE_AGAIN = 4u, /* after a restart: export_id, version and token are those it had */
    CENI_WIRE_DIRECTORY_FD = 8u,
    CENI_WIRE_EVENT_FD = 16u,
    CENI_WIRE_EVENT_TOKEN = 32u,
    CENI_WIRE_WITHDRAWN = 64u, /* with AGAIN: it was withdrawn, leases may be left */
    CENI_WIRE_ONCE = 128u,
    CENI_WIRE_EVENT_CLEAR = 256u /* in EVENT: there is none any more */
};

typedef struct ceni_wire_access {
    uint32_t who, id, write, reserved;
} ceni_wire_access;

/* PUBLISH: with AGAIN from another than the set's publisher it is a lease of that reader, too; and
 * without KEEP it counts as withdrawn until the publisher announces it. fds: the directory (a memfd
 * sealed against writing, shrinking and growing) if DIRECTORY_FD, then the event's if EVENT_FD. */
typedef struct ceni_wire_publish {
    uint64_t set;
    uint64_t export_id, version; /* with AGAIN, else 0 */
    uint64_t token[2]; /* the secret half of a token: the client's choice, random, not 0 */
    uint32_t flags;
    uint32_t access_count;   /* ceni_wire_access each */
    uint32_t name_size;      /* without a NUL; 0: no name */
    uint32_t directory_size; /* bytes, inline or of the memfd; never 0 */
    uint32_t once_ttl_ms;    /* with ONCE */
    uint32_t reserved;
    uint8_t event[64]; /* the device's token of an event, with EVENT_TOKEN */
    /* access, name, directory if inline */
} ceni_wire_publish;
typedef struct ceni_wire_publish_reply {
    uint64_t export_id, version;
} ceni_wire_publish_reply;

/* OPEN: by name (version 0: the newest), or by export_id and token. With wait the reply comes when
 * the name is there, or with CEN_ERR_NOT_FOUND after wait_ms. PAGES: if the client has no other
 * export of the set open, the reply has its first pages, too, as many as there is room for. */
enum { CENI_WIRE_OPEN_WRITE = 1u, CENI_WIRE_OPEN_PAGES = 2u };
typedef struct ceni_wire_open {
    uint64_t export_id;
    uint64_t token[2];
    uint64_t version;
    uint32_t flags;
    uint32_t wait_ms;
    uint32_t name_size;
    uint32_t reserved;
    /* name */
} ceni_wire_open;
/* fds: as in PUBLISH, then the pages. */
typedef struct ceni_wire_open_reply {
    uint64_t export_id, version, set;
    uint64_t bytes, page_bytes; /* of the set */
    uint64_t token[2];
    uint32_t page_count;
    uint32_t flags; /* KEEP, ONCE, DIRECTORY_FD, EVENT_FD, EVENT_TOKEN */
    uint32_t write; /* granted */
    uint32_t owner_uid;
    uint32_t name_size;
    uint32_t directory_size;
    uint32_t access_count; /* the set's list, for a process of its user that announces it again */
    uint32_t
        orphan; /* 1: its publisher is not here: gone, or not back after the broker's restart */
    char uuid[48];
    uint8_t event[64];
    /* access, name, directory if inline */
} ceni_wire_open_reply;

/* PAGES: of a set that the client has a lease in; the reply has the fds of up to CENI_WIRE_FDS
 * pages from first_page on. Read-only ones where the kernel can make them so (memfd) and no lease
 * of the client in the set is for writing. */
typedef struct ceni_wire_pages {
    uint64_t set;
    uint32_t first_page, reserved;
} ceni_wire_pages;
typedef struct ceni_wire_pages_reply {
    uint64_t set;
    uint32_t first_page, count;
} ceni_wire_pages_reply;

/* CLOSE, WITHDRAW, REVOKE: of an export. EVENT: the exporter's new event (CENI_WIRE_EVENT_*; fds:
 * the event's), or that what it was for is complete (CLEAR, alone); or, from a reader, a request
 * for the current one; the reply is of the same form, and without flags if there is none or it was
 * the exporter's. Replies that have no structure here are empty. */
typedef struct ceni_wire_id {
    uint64_t id;
} ceni_wire_id;
/* DROP: the publisher gives up its set; exports that are left are withdrawn. ceni_wire_id. */
typedef struct ceni_wire_event {
    uint64_t export_id;
    uint32_t flags; /* FD, TOKEN or CLEAR; 0: asking */
    uint32_t reserved;
    uint8_t event[64];
} ceni_wire_event;

/* WATCH: notices of new versions of a name. */
typedef struct ceni_wire_watch {
    uint32_t on, name_size;
    /* name */
} ceni_wire_watch;

/* LEASE: after a restart, what this client has open. It counts at once, also before the export is
 * announced; it gives no right to PAGES, which who has it open has. */
typedef struct ceni_wire_lease {
    uint64_t export_id, set;
    uint32_t write, reserved;
} ceni_wire_lease;

/* LIST: records from `cursor` on (0: the first); cursor 0 in the reply: that was all. What changes
 * between two requests may be missing, nothing comes twice. */
typedef struct ceni_wire_list {
    uint64_t cursor;
} ceni_wire_list;
enum ceni_wire_record {
    CENI_WIRE_RECORD_CLIENT = 1, /* cen_share_client_info */
    CENI_WIRE_RECORD_SET = 2,    /* cen_share_set_info */
    CENI_WIRE_RECORD_EXPORT = 3, /* cen_share_export_listing */
    CENI_WIRE_RECORD_LEASE = 4   /* cen_share_lease_info */
};
typedef struct ceni_wire_list_reply {
    uint64_t cursor;
    uint32_t count, kind; /* records, all of one kind; none: this kind is over */
    /* records: the fields of the public structures, packed in order: integers as they are, bools as
     * u8, strings as u16 length and bytes */
} ceni_wire_list_reply;

/* NOTICE. WITHDRAWN goes to the publisher and to readers of its user, for the next broker's sake:
 * what they announce to it is withdrawn. EVENT: the exporter gave the export another event; who has
 * it open without one asks. That is sent before the exporter's request is answered. Programs do not
 * hear of either. */
enum { CENI_WIRE_NOTICE_WITHDRAWN = 16, CENI_WIRE_NOTICE_EVENT = 17 };
typedef struct ceni_wire_notice {
    uint32_t kind; /* cen_share_notice_kind, or the above */
    uint32_t name_size;
    uint64_t export_id, version;
    uint32_t unclean; /* with IDLE: a lease ended without a sign that its process is dead: the
                         memory must not be used again */
    uint32_t reserved;
    /* name */
} ceni_wire_notice;

/* ---- checked reading and writing ---- */

/* A message in hand: filled by ceni_wire_check, pointing into the caller's buffer, which is aligned
 * to 8. Parts that the type does not have are empty. */
typedef struct ceni_wire_message {
    ceni_wire_head head;
    const void *body;
    const char *name; /* or label; not terminated */
    uint32_t name_size;
    const ceni_wire_access *access;
    uint32_t access_count;
    const uint8_t *directory;
    uint32_t directory_size; /* inline bytes; 0 with a descriptor */
    const uint8_t *records;
    size_t records_size;
    const char *why; /* of a failed reply; terminated */
} ceni_wire_message;

enum ceni_wire_side { CENI_WIRE_REQUEST, CENI_WIRE_REPLY, CENI_WIRE_NOTIFY };

/* Checks everything that can be checked of a message alone: sizes, type, version, the bounds of the
 * variable parts, padding, names (printable, no space), counts, flags, and how many descriptors
 * came. CEN_ERR_FORMAT with why logged. */
cen_status ceni_wire_check(const void *data, size_t size, unsigned fds, enum ceni_wire_side side,
                           ceni_wire_message *message);

/* What a variable part takes in a message. */
static inline size_t ceni_wire_padded(size_t size) {
    return (size + 7) / 8 * 8;
}

/* A message being built; `size` grows. Too long a one fails at the end. */
typedef struct ceni_wire_builder {
    _Alignas(8) uint8_t data[CENI_WIRE_MAX];
    size_t size;
    bool overflow;
} ceni_wire_builder;
/* Begins a message and gives its zeroed body. */
void *ceni_wire_begin(ceni_wire_builder *builder, enum ceni_wire_type type, uint32_t seq,
                      size_t body_size);
/* Adds a variable part, padded. */
void ceni_wire_add(ceni_wire_builder *builder, const void *data, size_t size);
/* A failed reply. */
void ceni_wire_fail(ceni_wire_builder *builder, enum ceni_wire_type type, uint32_t seq,
                    cen_status status, const char *why);

/* Sends a message with descriptors, which stay the caller's; MSG_NOSIGNAL. Not logged:
 * CEN_ERR_NOT_READY: the socket is full (only with O_NONBLOCK or dont_wait); CEN_ERR_NO_BROKER: the
 * other end is gone. Logged: CEN_ERR_INVALID: it is too long; CEN_ERR_LIMIT: too many descriptors
 * are under way; CEN_ERR_IO. */
cen_status ceni_wire_send(int socket, const ceni_wire_builder *builder, const int *fds,
                          unsigned fd_count, bool dont_wait);
/* Receives one into an 8-aligned buffer of CENI_WIRE_MAX bytes; fds (room for CENI_WIRE_FDS) are
 * the caller's to close, O_CLOEXEC. Errors as above; CEN_ERR_LIMIT: descriptors were lost for want
 * of room in this process (those that came are closed; the buffer has the message); CEN_ERR_FORMAT:
 * longer than a message may be, or more descriptors. An empty message is taken for the end. */
cen_status ceni_wire_receive(int socket, void *buffer, size_t *size, int *fds, unsigned *fd_count,
                             bool dont_wait);
/* The same, without waiting; the descriptors of a message that is not taken go into the bin. */
typedef struct ceni_wire_bin {
    void (*close)(void *arg, int fd);
    void *arg;
} ceni_wire_bin;
cen_status ceni_wire_receive_into(int socket, void *buffer, size_t *size, int *fds,
                                  unsigned *fd_count, const ceni_wire_bin *bin);
/* The same, of at most `room` bytes: what a socket of type SOCK_STREAM has of a message. */
cen_status ceni_wire_receive_part(int socket, void *buffer, size_t room, size_t *size, int *fds,
                                  unsigned *fd_count, bool dont_wait);

#endif
