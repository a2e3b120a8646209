/* The table of operations that a backend fills, and the calls that the rest of the library makes.
 *
 * Nothing above src/dev calls a backend directly: ceni_dev_* and the public cen_* wrappers check
 * arguments, let tests make any call fail, count driver calls and their time, and forward. The two
 * backends never include each other.
 *
 * Contracts shared by all operations: outputs are set only on success; a failing operation has no
 * effect; any thread may call; CEN_ERR_DEVICE_LOST is returned, never a crash, once the device was
 * reset or the driver is shutting down. A failing operation logs why, once. */
#ifndef CENI_DEV_H
#define CENI_DEV_H

#include <stdatomic.h>

#include "base/fault.h"
#include "cenote/device.h"
#include "cenote/dtype.h"

typedef uint64_t ceni_page; /* one physical chunk; backend's own handle, never 0 */

/* HOST: in the host's memory, near the device; it does not count as the device's. */
enum { CENI_PAGE_EXPORTABLE = 1u, CENI_PAGE_RDMA = 2u, CENI_PAGE_HOST = 4u };

enum ceni_access { CENI_ACCESS_NONE = 0, CENI_ACCESS_READ = 1, CENI_ACCESS_READ_WRITE = 3 };

/* Who may access a range: the device that opened as `device` (itself or an enabled peer). */
typedef struct ceni_grant {
    cen_device *device;
    enum ceni_access access;
} ceni_grant;

/* What names a shared event in another process, beside a descriptor where one is needed. Plain
 * bytes; a token that somebody made up is refused by the driver. */
typedef struct ceni_event_token {
    uint8_t bytes[64];
} ceni_event_token;

/* The driver's name for memory of another process. */
typedef struct ceni_legacy_handle {
    uint8_t bytes[64];
} ceni_legacy_handle;

/* Each operation once: used for the table of fault points and of call statistics. */
/* clang-format off */
#define CENI_DEV_OPS(X)                                                                            \
    X(props) X(mem_info) X(va_reserve) X(va_free) X(page_create) X(page_release) X(page_map)       \
    X(page_unmap) X(page_access) X(page_export) X(page_import) X(segment_alloc)                    \
    X(segment_free) X(stream_create) X(stream_destroy) X(stream_sync) X(stream_query)              \
    X(stream_wait) X(stream_capturing) X(event_create) X(event_destroy) X(event_record)            \
    X(event_query) X(event_peek) X(event_sync) X(event_signal) X(event_elapsed) X(copy) X(copy_peer) X(fill)     \
    X(launch) X(host_func) X(pinned_alloc) X(pinned_free) X(pinned_register)                       \
    X(pinned_unregister) X(peer_can_access) X(peer_rank) X(peer_enable) X(event_export)            \
    X(event_import) X(legacy_export) X(legacy_open) X(legacy_close) X(dmabuf) X(limits)            \
    X(tensor_map) X(pixel_map) X(managed_alloc) X(managed_prefetch)
/* clang-format on */

enum ceni_dev_op {
#define CENI_OP_ENUM(name) CENI_OP_##name,
    CENI_DEV_OPS(CENI_OP_ENUM)
#undef CENI_OP_ENUM
        CENI_OP_COUNT
};

/* "page_map" and so on; "?" if out of range. */
const char *ceni_dev_op_name(enum ceni_dev_op op);

/* What a device tells of its memory beside cen_device_props; 0: it does not tell. */
typedef struct ceni_dev_limits {
    uint64_t l2_bytes;
    uint64_t shared_bytes;     /* a multiprocessor */
    uint64_t register_bytes;   /* a multiprocessor */
    uint64_t memory_clock_khz; /* of the memory, whose bus moves two words a cycle */
    uint32_t memory_bus_bits;
} ceni_dev_limits;

/* A matrix in the device's memory as its copy engine takes it, box by box: rows of `cols` elements,
 * `stride` bytes apart. A box is laid into shared memory row after row of 128 bytes, whose 16-byte
 * parts are exchanged by the row's number mod 8; what lies outside of the matrix is zero. */
typedef struct ceni_tiled {
    cen_addr data;   /* a multiple of 16 */
    uint64_t stride; /* a multiple of 16, less than 2^40 */
    uint64_t cols, rows;
    uint32_t box_cols, box_rows; /* 128 bytes of columns, at most 256 rows */
    cen_dtype dtype;
} ceni_tiled;

/* Images as the copy engine takes them for a convolution: [images, height, width, channels] without
 * gaps. A box is `pixels` x 64 channels, laid out as a row of ceni_tiled for each pixel. Its pixels
 * walk over a rectangle in steps, along x, then y, then to the next image: from `low` of the first
 * pixel to `high` of the last, both within. All are then moved by an offset that the copy names, of
 * 0 to 255 each way; what lies outside of an image or behind the last is zero. */
typedef struct ceni_pixels {
    cen_addr data;                            /* a multiple of 16 */
    uint32_t images, height, width, channels; /* channels: a multiple of 8 */
    int32_t low[2], high[2];                  /* x, y; -128 to 127 */
    uint32_t steps[2];                        /* x, y; 1 to 8 */
    uint32_t pixels;                          /* at most 256 */
    cen_dtype dtype;
} ceni_pixels;

/* What a kernel of the table takes for it, as an argument of 128 bytes. */
typedef struct ceni_tensor_map {
    _Alignas(128) uint64_t words[16];
} ceni_tensor_map;

typedef struct ceni_graph ceni_graph; /* the backend's own */

typedef struct ceni_backend ceni_backend;
struct ceni_backend {
    const char *name; /* "cuda", "host" */
    /* Whether a stream that waits for another process's event goes on when that process has died.
     * On CUDA it does not: it, and what waits for it, never ends. */
    bool foreign_waits_end;

    /* Number of devices; 0 without a driver, which is no error. */
    cen_status (*count)(int *count);
    /* Allocates a zeroed object whose first member is a cen_device, filled but for `backend` and
     * `pid`. `host` is NULL unless cen_device_open_host was called. */
    cen_status (*open)(int ordinal, const cen_host_options *host, cen_device **device);
    /* Waits for the device's streams, releases all, frees the object. */
    void (*close)(cen_device *device);

    cen_status (*props)(cen_device *device, cen_device_props *props);
    cen_status (*mem_info)(cen_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

    /* Reserves addresses, backed by nothing. size: a multiple of the granularity; align: 0 or a
     * power of two; at least the granularity is kept. */
    cen_status (*va_reserve)(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr);
    /* Exactly a range that va_reserve gave, with nothing mapped in it (else CEN_ERR_BUSY). */
    cen_status (*va_free)(cen_device *device, cen_addr addr, uint64_t size);
    /* size: a multiple of the granularity. CEN_ERR_DEVICE_MEMORY when the device is full. */
    cen_status (*page_create)(cen_device *device, uint64_t size, unsigned flags, ceni_page *page);
    /* Drops the handle; the memory goes when its last mapping and export do. */
    cen_status (*page_release)(cen_device *device, ceni_page page);
    /* Maps the whole page at [addr, addr+size) of a reserved range; size must be the page's. The
     * range must be unmapped (else CEN_ERR_BUSY). No access is granted yet. A page may be mapped
     * at several addresses. */
    cen_status (*page_map)(cen_device *device, cen_addr addr, uint64_t size, ceni_page page);
    /* Unmaps one or several whole mappings that fill the range exactly. Not stream-ordered: the
     * caller has seen every use complete. */
    cen_status (*page_unmap)(cen_device *device, cen_addr addr, uint64_t size);
    /* Sets who may access a range of whole mappings; count >= 1. */
    cen_status (*page_access)(cen_device *device, cen_addr addr, uint64_t size,
                              const ceni_grant *grants, size_t count);
    /* A file descriptor (O_CLOEXEC, the caller's to close) for an exportable page, and back. An
     * imported page is a view: it counts as its owner's memory, not as this device's. On the host
     * the descriptor must be sealed against shrinking and of that size; one that is open for
     * reading only gives a page that cannot be granted for writing (CEN_ERR_INVALID). `device` may
     * be another than the owner: one that reaches it; any on the host. */
    cen_status (*page_export)(cen_device *device, ceni_page page, int *fd);
    cen_status (*page_import)(cen_device *device, int fd, uint64_t size, ceni_page *page);
    /* Plain memory, for devices without virtual memory management (works everywhere). segment_free
     * may wait for all work on the device. */
    cen_status (*segment_alloc)(cen_device *device, uint64_t size, cen_addr *addr);
    cen_status (*segment_free)(cen_device *device, cen_addr addr);

    /* The rest as documented in cenote/device.h. Sizes of copies and fills are not 0. event_signal
     * is NULL where there are no manual events. */
    cen_status (*stream_create)(cen_device *device, int priority, cen_stream *stream);
    cen_status (*stream_destroy)(cen_device *device, cen_stream stream);
    cen_status (*stream_sync)(cen_device *device, cen_stream stream);
    cen_status (*stream_query)(cen_device *device, cen_stream stream);
    cen_status (*stream_wait)(cen_device *device, cen_stream stream, cen_event event);
    cen_status (*stream_capturing)(cen_device *device, cen_stream stream, bool *capturing);
    cen_status (*event_create)(cen_device *device, unsigned flags, cen_event *event);
    cen_status (*event_destroy)(cen_device *device, cen_event event);
    cen_status (*event_record)(cen_device *device, cen_event event, cen_stream stream);
    cen_status (*event_query)(cen_device *device, cen_event event);
    cen_status (*event_peek)(cen_device *device, cen_event event);
    cen_status (*event_sync)(cen_device *device, cen_event event);
    cen_status (*event_signal)(cen_device *device, cen_event event);
    cen_status (*event_elapsed)(cen_device *device, cen_event start, cen_event end, float *ms);
    cen_status (*copy)(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                       cen_stream stream);
    cen_status (*copy_peer)(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                            cen_addr src, size_t size, cen_stream stream);
    cen_status (*fill)(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                       cen_stream stream);
    cen_status (*launch)(cen_device *device, const char *name, const cen_launch *shape,
                         void *const *args, size_t arg_count, cen_stream stream);
    cen_status (*host_func)(cen_device *device, cen_stream stream, void (*fn)(void *), void *arg);
    cen_status (*pinned_alloc)(cen_device *device, size_t size, void **ptr);
    cen_status (*pinned_free)(cen_device *device, void *ptr);
    cen_status (*pinned_register)(cen_device *device, void *ptr, size_t size);
    cen_status (*pinned_unregister)(cen_device *device, void *ptr);
    cen_status (*peer_can_access)(cen_device *device, cen_device *peer, bool *can);
    /* How good the link to a reachable peer is: 0 is the best of the machine, then 1 and so on. */
    cen_status (*peer_rank)(cen_device *device, cen_device *peer, int *rank);
    cen_status (*peer_enable)(cen_device *device, cen_device *peer);

    /* For other processes; see ceni_dev_event_export and so on. */
    cen_status (*event_export)(cen_device *device, cen_event event, ceni_event_token *token,
                               int *fd);
    cen_status (*event_import)(cen_device *device, const ceni_event_token *token, int fd,
                               cen_event *event);
    cen_status (*legacy_export)(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                uint64_t *offset, uint64_t *bytes);
    cen_status (*legacy_open)(cen_device *device, const ceni_legacy_handle *handle, cen_addr *addr,
                              uint64_t *bytes);
    cen_status (*legacy_close)(cen_device *device, cen_addr addr);
    cen_status (*dmabuf)(cen_device *device, cen_addr addr, uint64_t bytes, int *fd);
    cen_status (*limits)(cen_device *device, ceni_dev_limits *limits);
    /* Optional; touches no memory. CEN_ERR_UNSUPPORTED: the driver has none. */
    cen_status (*tensor_map)(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map);
    cen_status (*pixel_map)(cen_device *device, const ceni_pixels *pixels, ceni_tensor_map *map);
    /* Optional, as tensor_map is; segment_free frees it. */
    cen_status (*managed_alloc)(cen_device *device, uint64_t size, cen_addr *addr);
    cen_status (*managed_prefetch)(cen_device *device, cen_addr addr, uint64_t size, bool to_host,
                                   cen_stream stream);

    /* For tests (dev/capture.h); optional. */
    cen_status (*capture_begin)(cen_device *device, cen_stream stream);
    cen_status (*capture_end)(cen_device *device, cen_stream stream, ceni_graph **graph);
    cen_status (*graph_launch)(cen_device *device, ceni_graph *graph, cen_stream stream);
    void (*graph_destroy)(cen_device *device, ceni_graph *graph);
};

/* Calls of one operation since the device was opened. */
typedef struct ceni_call_stats {
    _Atomic uint64_t calls;
    _Atomic uint64_t failures;
    _Atomic uint64_t ns;      /* host time spent; kept for va_*, page_* and segment_* only */
    _Atomic uint64_t handles; /* pages concerned: page_unmap and page_access of n mappings add n
                                 (as told by the caller); others 1 a call */
} ceni_call_stats;

/* What all backends' device objects begin with. */
struct cen_device {
    const ceni_backend *backend;
    int ordinal;
    int pid;         /* of the process that opened it: a forked child is refused */
    unsigned number; /* the trace's name for it (trace/emit.h) */
    uint64_t granularity;
    uint64_t total_bytes;
    bool vmm;
    uint32_t compute_capability; /* as in cen_device_props */
    uint32_t multiprocessors;
    _Atomic uint64_t withheld; /* bytes that the driver calls free and was seen not to give */
    ceni_fault_arm faults[CENI_OP_COUNT]; /* armed with ceni_dev_fault */
    ceni_call_stats stats[CENI_OP_COUNT];
};

/* Both backends, in every build; NULL-terminated. */
extern const ceni_backend *const ceni_backends[];
extern const ceni_backend ceni_backend_host;
extern const ceni_backend ceni_backend_cuda;

/* Whether a status says that the device will do nothing any more. */
static inline bool ceni_is_loss(cen_status status) {
    return status == CEN_ERR_DEVICE_LOST || status == CEN_ERR_FAULT;
}

/* Makes the n-th call of `op` from now fail with a fitting status, without reaching the backend;
 * sticky: those after it too. Also armed at open from CENOTE_FAULT="page_map:3,event_query:1+"
 * (a + means sticky). */
void ceni_dev_fault(cen_device *device, enum ceni_dev_op op, int64_t n, bool sticky);

/* As the operations of the table. */
cen_status ceni_dev_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr);
cen_status ceni_dev_va_free(cen_device *device, cen_addr addr, uint64_t size);
cen_status ceni_dev_page_create(cen_device *device, uint64_t size, unsigned flags, ceni_page *page);
cen_status ceni_dev_page_release(cen_device *device, ceni_page page);
cen_status ceni_dev_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page);
/* `handles`: how many mappings the range holds, for the statistics. */
cen_status ceni_dev_page_unmap(cen_device *device, cen_addr addr, uint64_t size, size_t handles);
cen_status ceni_dev_page_access(cen_device *device, cen_addr addr, uint64_t size, size_t handles,
                                const ceni_grant *grants, size_t count);
cen_status ceni_dev_page_export(cen_device *device, ceni_page page, int *fd);
cen_status ceni_dev_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page);
/* Bytes that could be had now: those that the driver calls free, less what it withholds. */
cen_status ceni_dev_obtainable(cen_device *device, uint64_t *bytes);
cen_status ceni_dev_peer_rank(cen_device *device, cen_device *peer, int *rank);
cen_status ceni_dev_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr);
cen_status ceni_dev_segment_free(cen_device *device, cen_addr addr);

/* As cen_event_query, but it breaks no capture, of whatever stream and thread: for threads of the
 * library's, which look at events at any time and do not know what the program captures. The event
 * must not have been recorded in a capture. */
cen_status ceni_dev_event_peek(cen_device *device, cen_event event);

/* What another process needs to wait for an event of this one, made with CEN_EVENT_SHARED: the
 * token, and a descriptor (O_CLOEXEC, the caller's to close), or -1 where the token is enough: CUDA
 * has the token only, the host a descriptor only, and its token is zero. */
cen_status ceni_dev_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                 int *fd);
/* An event that stands for it here; fd is not consumed. It may be waited for, queried and
 * synchronised with, not recorded, signalled or exported (CEN_ERR_INVALID); the caller destroys it.
 * A wait is for the exporter's latest record at the time of the call, and for its earlier ones. On
 * the host, when the exporting process ends before that record is complete, waits of streams end
 * with a warning in the log, and a query or sync gives CEN_ERR_DEVICE_LOST, which is not about
 * `device`. On CUDA the event stays incomplete for ever, and what waits for it hangs; an import
 * fails in the exporting process (CEN_ERR_INVALID), once that has ended, and for another user's
 * (CEN_ERR_DEVICE). Untrusted bytes and descriptors are safe to pass: CEN_ERR_INVALID. */
cen_status ceni_dev_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                 cen_event *event);

/* Memory of the driver's own (cuMemAlloc) for other processes. The handle stands for the whole
 * allocation: `offset` is addr's place in it, `bytes` its size. CEN_ERR_INVALID: no device memory;
 * CEN_ERR_UNSUPPORTED: memory without such handles, and the host backend. */
cen_status ceni_dev_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                  uint64_t *offset, uint64_t *bytes);
/* Where another process's allocation is mapped here, until it is closed as often as it was opened;
 * handles may be opened any number of times. The mapping dies with the owner's memory. `device` may
 * be a peer of the owner's. CEN_ERR_INVALID: no handle, or one of this process. */
cen_status ceni_dev_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                cen_addr *addr, uint64_t *bytes);
/* addr: anywhere in the mapping. */
cen_status ceni_dev_legacy_close(cen_device *device, cen_addr addr);
/* A dma-buf of a range, both multiples of the host's page size (CEN_ERR_INVALID); O_CLOEXEC, the
 * caller's to close. CEN_ERR_UNSUPPORTED. */
cen_status ceni_dev_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd);

cen_status ceni_dev_get_limits(cen_device *device, ceni_dev_limits *limits);

/* CEN_ERR_UNSUPPORTED: the device copies no boxes, as before compute capability 9.0 and on the
 * host. */
cen_status ceni_dev_tensor_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map);
cen_status ceni_dev_pixel_map(cen_device *device, const ceni_pixels *pixels, ceni_tensor_map *map);

/* Unified memory, which the driver moves to whoever uses it: by faults, or ahead of them in stream
 * order. It is measured, and never what a pool is made of. Freed with ceni_dev_segment_free.
 * CEN_ERR_UNSUPPORTED: where host and device do not share such memory page by page, and on the host
 * backend. */
cen_status ceni_dev_managed_alloc(cen_device *device, uint64_t size, cen_addr *addr);
cen_status ceni_dev_managed_prefetch(cen_device *device, cen_addr addr, uint64_t size, bool to_host,
                                     cen_stream stream);

#endif
