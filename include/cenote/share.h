/* Sharing device memory between processes of one machine: one copy of the weights for all, and a
 * producer whose death takes nothing from its consumers.
 *
 * A process makes a set: pages of one device that lie side by side in every process that maps them.
 * It allocates blocks in the set and exports them, one or many at once, under a name with versions
 * or behind a token. Another process opens an export and gets addresses. After a process's first
 * import of a set, opening further exports of it makes no driver call.
 *
 * The broker (`cenote serve`, docs/share.md) holds the pages as file descriptors, knows who opened
 * what (a lease), and ends the leases of a process that dies. It opens no device. Without a broker,
 * an export goes to one other process over a socket that both have (cen_share_send).
 *
 * A set is what is protected: a process that may open one export of a set maps all of its pages, so
 * all exports of a set have the same access list. Mappings are read-only unless the list grants
 * writing and the reader asks for it. On the host backend the operating system enforces that; on
 * CUDA the descriptor of a page carries every right, and read-only is the mapping that this library
 * makes.
 *
 * Sizes are in bytes. Any thread may call, unless said otherwise; a connection has a thread of its
 * own, which ends leases once streams are done, hears the broker, and finds it again after a
 * restart. In a forked child everything here returns CEN_ERR_FORKED. Besides those named, any call
 * may return CEN_ERR_INVALID (the log names the argument), CEN_ERR_HOST_MEMORY, CEN_ERR_LIMIT (of
 * descriptors, or the broker's for this user), CEN_ERR_IO (the broker does not answer),
 * CEN_ERR_NO_BROKER, and what devices return. */
#ifndef CENOTE_SHARE_H
#define CENOTE_SHARE_H

#include "cenote/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_share cen_share;           /* this process's connection */
typedef struct cen_share_set cen_share_set;   /* pages that it made */
typedef struct cen_share_view cen_share_view; /* an export that it opened */

#define CEN_SHARE_NAME_MAX   255  /* bytes of a name: printable, no space; '/' divides by custom */
#define CEN_SHARE_TOKEN_SIZE 128  /* bytes of a token's text with its NUL */
#define CEN_SHARE_META_MAX   1024 /* bytes that an item carries for its readers */
#define CEN_SHARE_ACCESS_MAX 16   /* entries of an access list */

/* ---- the connection ---- */

typedef enum cen_share_notice_kind {
    CEN_SHARE_NEW_VERSION = 1, /* `name` has a newer `version`; for names watched or open here */
    CEN_SHARE_REVOKED = 2,     /* close the views of `export_id`: they may not be used any more */
    CEN_SHARE_IDLE = 3,        /* nobody has `export_id`, which was withdrawn, open any more */
    CEN_SHARE_PUBLISHER_GONE = 4, /* it died; views stay valid */
    CEN_SHARE_BROKER_GONE = 5,    /* memory stays; the connection looks for it again */
    CEN_SHARE_BROKER_BACK = 6,    /* and told it again what this process holds */
} cen_share_notice_kind;

typedef struct cen_share_notice {
    cen_share_notice_kind kind;
    uint64_t export_id; /* 0 where none is meant */
    uint64_t version;
    const char *name; /* "" where none is meant; valid during the call */
} cen_share_notice;

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_share_options {
    size_t size;
    const char *socket;  /* the broker's; default $CENOTE_BROKER, else $XDG_RUNTIME_DIR/cenote/
                            broker.sock if it is there, else /run/cenote/broker.sock */
    const char *label;   /* shown by `cenote holders`; default the program's name */
    bool no_broker;      /* connect to none: only cen_share_send and cen_share_receive share */
    uint32_t timeout_ms; /* for an answer; default 5000 */
    /* Called on the connection's thread. It may call anything here but cen_share_disconnect. */
    void (*notice)(void *arg, const cen_share_notice *notice);
    void *notice_arg;
} cen_share_options;

/* Connects. options may be NULL; a timeout_ms is waited for in full, whatever 32 bits hold.
 * CEN_ERR_NO_BROKER: nobody listens (the log says where). */
CEN_API cen_status cen_share_connect(const cen_share_options *options, cen_share **share);

/* Closes it: lets streams go on that wait for other processes (cen_share_wait), waits for the work
 * on closed views and for that which its exports name, ends every lease of this process, withdraws
 * its exports (those kept stay), frees its sets here. Views and sets are gone with it. A broker
 * that does not answer is waited for once, for timeout_ms: what it was not told by then ends with
 * this process. NULL is ignored. Nothing else may use it during or after the call. */
CEN_API void cen_share_disconnect(cen_share *share);

/* ---- publishing ---- */

/* Makes a set of `bytes` (rounded up to pages) on `device`, which must outlive it. page_bytes: 0
 * chooses the whole set, at most 1 GiB a page: every page costs each reader an import. With a
 * broker it counts against this user's quota from the first export until the set is destroyed and
 * its last lease has ended. CEN_ERR_DEVICE_MEMORY, CEN_ERR_UNSUPPORTED: pages of this device cannot
 * be exported. */
CEN_API cen_status cen_share_set_create(cen_share *share, cen_device *device, uint64_t bytes,
                                        uint64_t page_bytes, cen_share_set **set);
/* Withdraws what is exported of it and gives it up. The pages stay with their readers until the
 * last lease ends. Blocks must not be used by work any more. NULL is ignored. */
CEN_API cen_status cen_share_set_destroy(cen_share_set *set);
/* The range of addresses of the set here. */
CEN_API cen_status cen_share_set_range(const cen_share_set *set, cen_addr *addr, uint64_t *bytes);
/* A block of the set: contents undefined, aligned to 512. CEN_ERR_DEVICE_MEMORY: no free range of
 * the set is large enough. CEN_ERR_INVALID: 0 bytes. */
CEN_API cen_status cen_share_alloc(cen_share_set *set, uint64_t bytes, cen_addr *addr);
/* Frees a block after the work submitted so far to `stream`, and, if it is exported, withdraws the
 * exports that hold it: it is used again once their last lease has ended. A block that a process
 * without a sign of death (docs/share.md) left open is never used again. CEN_ERR_FOREIGN_POINTER,
 * CEN_ERR_DOUBLE_FREE. */
CEN_API cen_status cen_share_free(cen_share_set *set, cen_addr addr, cen_stream stream);

/* One of an export's items. */
typedef struct cen_share_item {
    const char *name; /* within the export, unique; "" or NULL if there is one item alone */
    cen_addr addr;    /* in the set, at any place of one block */
    uint64_t bytes;
    const void *meta; /* for readers, such as type and shape; may be NULL */
    size_t meta_bytes;
} cen_share_item;

typedef enum cen_share_who {
    CEN_SHARE_USER = 1,
    CEN_SHARE_GROUP = 2,
    CEN_SHARE_ALL = 3
} cen_share_who;
typedef struct cen_share_access {
    cen_share_who who;
    uint32_t id; /* of the user or group; with CEN_SHARE_ALL 0 */
    bool write;
} cen_share_access;

/* Zero-initialise, set `size` to sizeof, then what differs. */
typedef struct cen_share_export_options {
    size_t size;
    const char *name; /* NULL: only the token opens it. None begins with '#', or reads as a token or
                         as "name@3": CEN_ERR_INVALID. A name belongs to the user who first
                         published it for as long as there is a version */
    const cen_share_access *access; /* who may open it beside this user, who may write too */
    size_t access_count;
    bool keep;       /* it stays when its publisher ends, until it is withdrawn or revoked */
    bool keep_older; /* do not withdraw older versions of the name */
    bool once; /* the first to open it has it alone: that withdraws it. A parcel: what holds it
                  stays until then, also when it is freed (cen_share_free) or its publisher ends */
    uint32_t once_ttl_ms; /* how long one that nobody opens outlives its publisher; default 60000 */
    cen_stream stream;    /* readers' cen_share_wait orders them behind the work submitted to it so
                             far; see `synced` */
    bool synced; /* instead of that, wait here for the stream: no event is shared. Also what happens
                    where the device cannot share events */
} cen_share_export_options;

typedef struct cen_share_export_info {
    uint64_t id;      /* names the export for this and other clients of the broker, never 0 */
    uint64_t version; /* of its name, from 1; 0 without a name */
    char token[CEN_SHARE_TOKEN_SIZE]; /* text without spaces; opens it on this machine */
} cen_share_export_info;

/* Exports items that lie in one set. options may be NULL: one without a name. Older versions of the
 * name are withdrawn: those who have them open keep them. CEN_ERR_FOREIGN_POINTER: an item lies in
 * no block of a set of this connection (the log says which); CEN_ERR_PERMISSION: the name is
 * another user's; CEN_ERR_INVALID, also for an access list that differs from the one that the set
 * has already. */
CEN_API cen_status cen_share_export(cen_share *share, const cen_share_item *items, size_t count,
                                    const cen_share_export_options *options,
                                    cen_share_export_info *info);
/* Marks the export's contents as being written anew: readers' later cen_share_wait orders them
 * behind the work submitted so far to `stream`. By the exporter. It waits for the stream where
 * readers could not be told: the export has no event (`synced`), or the broker is gone.
 * CEN_ERR_NOT_FOUND; CEN_ERR_CAPTURE: the stream captures. */
CEN_API cen_status cen_share_mark(cen_share *share, uint64_t export_id, cen_stream stream);
/* No new reader may open it; its name, if this is the newest version, is free again. Readers keep
 * it. Its user may, from any process. CEN_ERR_PERMISSION: another user's, which this one may open;
 * of what it may not open either, or is not there, it hears CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_share_withdraw(cen_share *share, uint64_t export_id);
/* Withdraws it, and tells those who have it open that they must close it. The pages of one who does
 * not are not used again until it closes or dies: no process can take a mapping from another.
 * Errors as cen_share_withdraw. */
CEN_API cen_status cen_share_revoke(cen_share *share, uint64_t export_id);

/* ---- reading ---- */

enum { CEN_SHARE_WRITE = 1u };

/* Opens an export by name (the newest version), "name@version" or token, for `device`: the one that
 * it lies on or a peer that reaches it. Waits up to wait_ms until the name is published, and, but
 * in a notice, until a broker that is gone is back. Opening what is open already gives another view
 * of the same memory. CEN_ERR_NOT_FOUND: no such token, or no such name or version for this user;
 * CEN_ERR_PERMISSION: by a token, not for this user, or not for writing; CEN_ERR_UNSUPPORTED: it is
 * on another machine (across machines, use NCCL), or the device does not reach it. */
CEN_API cen_status cen_share_open(cen_share *share, cen_device *device, const char *what,
                                  unsigned flags, uint32_t wait_ms, cen_share_view **view);
/* Ends it after the work submitted so far to `stream`; the addresses are invalid for later work.
 * The lease ends with the last view of an export. NULL is ignored. Does not wait. */
CEN_API cen_status cen_share_close(cen_share_view *view, cen_stream stream);

typedef struct cen_share_view_info {
    uint64_t export_id, version;
    const char *name; /* "" without one; as long as the view */
    size_t items;
    uint64_t bytes;    /* of all items */
    cen_addr set_addr; /* where the set is mapped here */
    uint64_t set_bytes;
    bool writable;
    bool revoked;         /* close it */
    char device_uuid[48]; /* that it lies on */
} cen_share_view_info;
CEN_API cen_status cen_share_view_get_info(const cen_share_view *view, cen_share_view_info *info);
/* Item `index`, in the order of their export; name and meta live as long as the view.
 * CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_share_view_item(const cen_share_view *view, size_t index,
                                       cen_share_item *item);
/* Items `first`, `first` + 1, ... in one call: `*got` of them, `count` or, at the end, fewer. The
 * names and metas of a view's items all lie in one block of memory, which a binding may copy. */
CEN_API cen_status cen_share_view_items(const cen_share_view *view, size_t first,
                                        cen_share_item *items, size_t count, size_t *got);
/* The item of that name. CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_share_view_find(const cen_share_view *view, const char *name,
                                       cen_share_item *item);
/* Orders later work of `stream` behind the exporter's work that its export or its latest
 * cen_share_mark named; does not wait for it. If the exporter died before that was done, the
 * contents are what they are: CEN_ERR_DEVICE_LOST where that is known, and where it becomes known
 * later `stream` goes on, with a warning in the log. On CUDA, work that is not done yet is waited
 * for by a host function on `stream`, which blocks others that the driver runs on the same thread:
 * host functions that the exporter's work depends on must not be behind it. CEN_ERR_CAPTURE: the
 * stream captures. */
CEN_API cen_status cen_share_wait(cen_share_view *view, cen_stream stream);
/* Whether to hear of new versions of a name (CEN_SHARE_NEW_VERSION). */
CEN_API cen_status cen_share_watch(cen_share *share, const char *name, bool on);

/* ---- without a broker ---- */

/* Sends an export's pages, directory and event over a connected Unix socket (stream or seqpacket)
 * to a process that calls cen_share_receive; waits for it to take them, up to timeout_ms. The
 * lease ends when that process closes its view. If it ends in another way, the blocks are not used
 * again. On CUDA a process of another user cannot follow a later cen_share_mark: its
 * cen_share_wait gives CEN_ERR_DEVICE_LOST. */
CEN_API cen_status cen_share_send(cen_share *share, uint64_t export_id, int socket,
                                  uint32_t timeout_ms);
/* CEN_ERR_FORMAT: what came is no export; CEN_ERR_TRUNCATED: the other end closed before it was
 * whole; nothing is left open. */
CEN_API cen_status cen_share_receive(cen_share *share, cen_device *device, int socket,
                                     uint32_t timeout_ms, cen_share_view **view);

/* ---- memory that cenote did not allocate ---- */

/* A token for memory that cudaMalloc gave, by the driver's legacy handles; addr may lie anywhere in
 * it. The memory dies with its owner, and must not be freed before the others have closed it.
 * CEN_ERR_UNSUPPORTED: the host backend, or memory of another kind (the log says what to use). */
CEN_API cen_status cen_share_legacy_export(cen_device *device, cen_addr addr, uint64_t bytes,
                                           char token[CEN_SHARE_TOKEN_SIZE]);
/* In another process, for the memory's device or a peer; as often as wanted, to be closed as often.
 * CEN_ERR_FORMAT: the text is no token, or one for more than there is; CEN_ERR_UNSUPPORTED: it is
 * of another machine; CEN_ERR_INVALID: of an export, of this process, or the memory is gone. */
CEN_API cen_status cen_share_legacy_open(cen_device *device, const char *token, cen_addr *addr,
                                         uint64_t *bytes);
/* addr: what cen_share_legacy_open gave. Work on it must be complete. */
CEN_API cen_status cen_share_legacy_close(cen_device *device, cen_addr addr);
/* A dma-buf of [addr, addr + bytes), both multiples of the host's page size, for RDMA (ibv_reg_
 * dmabuf_mr); the caller closes it. CEN_ERR_UNSUPPORTED. */
CEN_API cen_status cen_share_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd);

/* ---- who holds what ---- */

typedef struct cen_share_client_info {
    uint64_t id;
    int pid; /* as the broker sees it; 0: in a PID namespace that it does not see */
    uint32_t uid, gid;
    char label[64];
    char container[64]; /* of its cgroup, shortened; "" outside one or unknown */
    bool connected;     /* false: its socket is closed, and it has not been seen to die */
} cen_share_client_info;
typedef struct cen_share_set_info {
    uint64_t id;
    uint64_t bytes;
    uint32_t pages;
    uint32_t uid;
    uint64_t publisher; /* client; 0: gone */
    int publisher_pid;  /* also of one that is gone */
    char device_uuid[48];
    uint32_t exports, importers; /* importers: clients that have an export of it open */
} cen_share_set_info;
typedef struct cen_share_export_listing {
    uint64_t id, set, version;
    char name[CEN_SHARE_NAME_MAX + 1];
    bool keep, withdrawn, revoked, written; /* written: somebody has it open for writing */
    uint32_t leases;
} cen_share_export_listing;
typedef struct cen_share_lease_info {
    uint64_t client, export_id;
    bool write;
} cen_share_lease_info;
/* What the broker holds that this user may see: all of it for root, else what is this user's, or
 * open by this user, and by name what this user may open. An orphan is a set whose publisher is 0.
 */
typedef struct cen_share_list {
    const cen_share_client_info *clients;
    size_t client_count;
    const cen_share_set_info *sets;
    size_t set_count;
    const cen_share_export_listing *exports;
    size_t export_count;
    const cen_share_lease_info *leases;
    size_t lease_count;
} cen_share_list;
CEN_API cen_status cen_share_list_read(cen_share *share, cen_share_list **list);
CEN_API void cen_share_list_free(cen_share_list *list);

#ifdef __cplusplus
}
#endif
#endif
