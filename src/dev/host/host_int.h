/* The host backend's own state: one address space a process, devices in it, streams on them.
 *
 * A process has one address space, so its host devices share one `host_space`: reservations, what
 * is mapped in them, and pinned memory, under the lock `map`; streams and events under the lock
 * `run`. Both are held (`run` first) only to add or remove a device. Work
 * is done holding `map` for reading, so an unmap waits for the operation in progress and the next
 * one finds the memory gone: a fault is reported, never a SIGSEGV.
 *
 * Each open device is an emulated card of its own: memory and faults are not shared between two
 * devices opened with one ordinal. Access rights are bits, one a device, in each mapping. */
#ifndef CENI_HOST_INT_H
#define CENI_HOST_INT_H

#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "dev/dev.h"
#include "dev/host/handles.h"
#include "dev/host/host.h"
#include "dev/host/shared_event.h"
#include "kernels/table.h"

enum { HOST_DEVICES_MAX = 64 };

typedef struct host_device host_device;
typedef struct host_stream host_stream;
typedef struct host_op host_op;

/* Physical memory: a memfd of its own when exportable, else an extent of the device's. Counted
 * against the owner's capacity until its last handle and mapping are gone. What came from another
 * process, or from another device, is counted there. */
typedef struct host_mem {
    host_device *owner;
    struct host_mem *next; /* in the owner's list of memory with its own memfd */
    int fd;
    uint64_t offset;
    uint64_t size;
    bool exportable;
    bool on_host;      /* counts as nobody's: any device may map it */
    bool imported;     /* a view: counts as another's, any device may map it */
    bool read_only;    /* its descriptor allows no more */
    uint64_t dev, ino; /* of its own memfd, so that an import finds memory already here */
    size_t refs;       /* handles and mappings */
} host_mem;

/* A reserved range, and a mapping in it. Both are kept sorted by address, disjoint. */
typedef struct host_range {
    uint64_t addr, size;
    host_device *owner;
    bool segment; /* of segment_alloc: mapped as a whole, for good */
} host_range;

typedef struct host_mapping {
    uint64_t addr, size;
    host_mem *mem;
    uint64_t readers, writers; /* bit n: the device in slot n of the space */
} host_mapping;

typedef struct host_pinned {
    uint64_t addr, size;
    host_device *owner;
    bool registered; /* the caller's memory */
} host_pinned;

typedef struct host_space {
    pthread_rwlock_t map;
    host_handles pages; /* host_mem */
    host_range *ranges;
    size_t range_count, range_capacity;
    host_mapping *mappings;
    size_t mapping_count, mapping_capacity;
    host_pinned *pinned;
    size_t pinned_count, pinned_capacity;
    void *spare; /* memory maps in hand, NULL: spent */

    pthread_mutex_t run;
    pthread_cond_t changed; /* an operation or an event completed */
    host_handles streams, events;
    uint64_t captures; /* begun so far: the next one's id */

    host_device *devices[HOST_DEVICES_MAX];
    size_t users;
} host_space;

/* What a record made: done once the stream, or a signal, got there. Waits keep it alive. A foreign
 * one stands for another process's record, whose page (`shared`) says when that is complete. */
struct host_point {
    size_t refs;
    bool done;
    bool manual;
    bool foreign;
    uint64_t ns;
    uint64_t capture;    /* id of the capture it was recorded in, 0: none */
    host_shared *shared; /* NULL: not of a shared event */
    uint32_t number;     /* of the record in it */
    host_point *next_open;
};

typedef struct host_event {
    host_device *device;
    unsigned flags;
    host_point *point;   /* NULL: never recorded */
    host_shared *shared; /* NULL: not shared */
} host_event;

enum host_op_kind { HOST_COPY, HOST_FILL, HOST_KERNEL, HOST_FUNC, HOST_RECORD, HOST_WAIT };

struct host_op {
    host_op *next;
    enum host_op_kind kind;
    cen_addr dst, src;
    size_t size;
    host_device *src_device; /* whose rights reading src takes */
    uint8_t value;
    const ceni_kernel *kernel;
    cen_launch shape;
    void (*fn)(void *arg);
    void *arg;
    host_point *point;
    size_t data_size; /* a kernel's arguments, or a pageable source as it was at the call */
    unsigned char data[];
};

struct ceni_graph {
    uint64_t id;
    host_stream *origin;
    bool broken;
    host_op *ops, **tail;
};

struct host_stream {
    host_device *device;
    host_stream *next;
    cen_stream handle;
    int priority;
    uint32_t delay_us;
    host_op *head, **tail;
    bool running;  /* an operation is executing, its list position already taken */
    bool dying;    /* destroyed; ends when empty */
    bool finished; /* its thread is about to return: join it */
    bool threaded;
    pthread_t thread;
    pthread_cond_t work; /* something was queued */
    ceni_graph *capture;
};

struct host_device {
    cen_device base;
    host_space *space;
    unsigned slot; /* of space->devices; its bit in access rights */
    cen_host_options options;
    atomic_int error; /* sticky: CEN_ERR_FAULT or CEN_ERR_DEVICE_LOST */

    /* Under space->map. */
    uint64_t peers; /* bit n: this device may map memory of the device in slot n */
    uint64_t used;
    int fd;           /* memory of pages that are not exportable */
    uint64_t fd_size; /* beyond this nothing was handed out yet */
    host_range *holes;
    size_t hole_count, hole_capacity;
    host_mem *own_fds;

    /* Under space->run. */
    host_stream *streams; /* the default stream first */
    bool closing;
};

static inline host_device *host_of(cen_device *device) {
    return (host_device *)device;
}
static inline uint64_t host_bit(const host_device *device) {
    return (uint64_t)1 << device->slot;
}

/* options.c: the given options, then the environment, then defaults. */
cen_status ceni_host_options(const cen_host_options *given, cen_host_options *options);

/* limits.c: the status that errno of a failed call has, logged with the limit that was reached. */
cen_status ceni_host_map_failed(const char *what, int error);
cen_status ceni_host_fd_failed(const char *what, int error);
cen_status ceni_host_thread_failed(int error);
/* At the limit of memory maps the kernel refuses even what would need fewer of them, so a few are
 * kept in hand: spent, an unmap can be tried again (false: there were none). `map` is held. */
void ceni_host_spare_maps(host_space *space);
bool ceni_host_spend_maps(host_space *space);

/* space.c */
cen_status ceni_host_space_join(host_device *device);
void ceni_host_space_leave(host_device *device);
/* Index of the first element that ends after addr. */
size_t ceni_host_find_range(const host_range *ranges, size_t count, uint64_t addr);
size_t ceni_host_find_mapping(const host_space *space, uint64_t addr);
/* Whether the device may use [addr, addr + size). Memory outside of all reservations is the host's:
 * fine for copies; a kernel (`by_kernel`) needs it pinned. `map` is held. NULL, or why not. */
const char *ceni_host_denied(host_device *device, uint64_t addr, uint64_t size, bool write,
                             bool by_kernel);
/* Whether any of it is device or pinned memory. `map` is held. */
bool ceni_host_is_pageable(host_space *space, uint64_t addr, uint64_t size);

/* mem.c: physical memory; `map` is held for writing. */
cen_status ceni_host_mem_create(host_device *device, uint64_t size, unsigned flags, host_mem **mem);
/* Memory of another's file descriptor, which is not consumed; found if already here. */
cen_status ceni_host_mem_adopt(host_device *device, int fd, uint64_t size, host_mem **mem);
void ceni_host_mem_drop(host_mem *mem);
/* CEN_ERR_DEVICE_MEMORY: there is not as much left. */
cen_status ceni_host_mem_charge(const host_device *device, uint64_t size);

/* vmm.c, pages.c and segments.c */
cen_status ceni_host_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr);
cen_status ceni_host_va_free(cen_device *device, cen_addr addr, uint64_t size);
cen_status ceni_host_page_create(cen_device *device, uint64_t size, unsigned flags,
                                 ceni_page *page);
cen_status ceni_host_page_release(cen_device *device, ceni_page page);
cen_status ceni_host_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page);
cen_status ceni_host_page_unmap(cen_device *device, cen_addr addr, uint64_t size);
cen_status ceni_host_page_access(cen_device *device, cen_addr addr, uint64_t size,
                                 const ceni_grant *grants, size_t count);
cen_status ceni_host_page_export(cen_device *device, ceni_page page, int *fd);
cen_status ceni_host_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page);
cen_status ceni_host_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr);
cen_status ceni_host_segment_free(cen_device *device, cen_addr addr);
cen_status ceni_host_peer_enable(cen_device *device, cen_device *peer);
/* Reserves; `map` is held for writing. */
cen_status ceni_host_reserve(host_device *device, uint64_t size, uint64_t align, bool segment,
                             cen_addr *addr);
cen_status ceni_host_unreserve(host_space *space, size_t range);
/* Takes a range out of the table; its addresses stay taken. */
void ceni_host_forget_range(host_space *space, size_t range);
/* Maps memory into an unmapped part of a range, with these rights; takes a reference. */
cen_status ceni_host_map(host_space *space, uint64_t addr, host_mem *mem, uint64_t rights);
/* Takes mappings [first, last) out; their addresses are reserved again. */
cen_status ceni_host_unmap(host_space *space, size_t first, size_t last);
/* The same for addresses that are about to be unreserved. */
void ceni_host_forget(host_space *space, size_t first, size_t last);
/* Everything of the device, whoever mapped it. */
void ceni_host_memory_close(host_device *device);

/* pinned.c */
cen_status ceni_host_pinned_alloc(cen_device *device, size_t size, void **ptr);
cen_status ceni_host_pinned_free(cen_device *device, void *ptr);
cen_status ceni_host_pinned_register(cen_device *device, void *ptr, size_t size);
cen_status ceni_host_pinned_unregister(cen_device *device, void *ptr);
void ceni_host_pinned_close(host_device *device);

/* stream.c: queues; `run` is held where it says (locked). */
cen_status ceni_host_ready(host_device *device); /* CEN_OK, or the sticky error, logged */
cen_status ceni_host_streams_open(host_device *device);
void ceni_host_streams_close(host_device *device);
host_stream *ceni_host_stream_get(host_device *device, cen_stream stream); /* (locked) */
cen_status ceni_host_push(host_stream *stream, host_op *op); /* (locked) takes op, even failing */
void ceni_host_wait_idle(host_stream *stream);               /* (locked) */
/* A wait that is not over now would last forever: options.never_wait. */
bool ceni_host_would_hang(const host_device *device);
void ceni_host_pump(host_space *space); /* (locked) runs inline streams */
/* Waits until something may have changed. (locked) */
void ceni_host_wait_changed(host_space *space);
/* An inline stream's device: sees what other processes completed. (locked) */
void ceni_host_poll(host_device *device);
cen_status ceni_host_stream_create(cen_device *device, int priority, cen_stream *stream);
cen_status ceni_host_stream_destroy(cen_device *device, cen_stream stream);
cen_status ceni_host_stream_sync(cen_device *device, cen_stream stream);
cen_status ceni_host_stream_query(cen_device *device, cen_stream stream);

/* event.c */
host_point *ceni_host_point_new(bool manual);
void ceni_host_point_drop(host_point *point);                    /* (locked) NULL is ignored */
void ceni_host_point_done(host_space *space, host_point *point); /* (locked) */
void ceni_host_events_close(host_device *device);                /* (locked) */
void ceni_host_events_release_manual(host_device *device);       /* (locked) */
cen_status ceni_host_event_create(cen_device *device, unsigned flags, cen_event *event);
cen_status ceni_host_event_destroy(cen_device *device, cen_event event);
cen_status ceni_host_event_record(cen_device *device, cen_event event, cen_stream stream);
cen_status ceni_host_event_query(cen_device *device, cen_event event);
cen_status ceni_host_event_peek(cen_device *device, cen_event event);
cen_status ceni_host_event_sync(cen_device *device, cen_event event);
cen_status ceni_host_event_signal(cen_device *device, cen_event event);
cen_status ceni_host_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms);
cen_status ceni_host_stream_wait(cen_device *device, cen_stream stream, cen_event event);

/* share.c */
/* Whether a foreign point is done, without asking whether its process lives. (locked) */
bool ceni_host_foreign_done(host_point *point);
/* Waits for a foreign point, with `run` released meanwhile, at most about `ms`; done, too, when its
 * process is gone, which is logged. (locked) */
void ceni_host_foreign_pause(host_space *space, host_point *point, uint32_t ms);
/* A point for the latest record of an imported event, NULL: out of memory. (locked) */
host_point *ceni_host_foreign_point(host_shared *shared);
/* A query or, waiting, a sync of an imported event. (locked) */
cen_status ceni_host_foreign_settle(host_device *device, const char *what, host_shared *shared,
                                    bool wait);
cen_status ceni_host_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                  int *fd);
cen_status ceni_host_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                  cen_event *event);
/* The host has no such handles. */
cen_status ceni_host_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                   uint64_t *offset, uint64_t *bytes);
cen_status ceni_host_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                 cen_addr *addr, uint64_t *bytes);
cen_status ceni_host_legacy_close(cen_device *device, cen_addr addr);
cen_status ceni_host_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd);
/* NULL, logged: there is none. (locked) */
host_event *ceni_host_event_find(host_space *space, const char *what, cen_event event);
/* Enters an event into the table; drops point and shared if it cannot. (locked) */
cen_status ceni_host_event_add(host_device *device, unsigned flags, host_point *point,
                               host_shared *shared, cen_event *event);

/* work.c: what streams do. */
host_op *ceni_host_op_new(enum host_op_kind kind, size_t data_size);
void ceni_host_op_free(host_op *op); /* (locked) */
void ceni_host_execute(host_stream *stream, host_op *op);
void ceni_host_sleep_until(uint64_t ns); /* by ceni_now_ns */
cen_status ceni_host_copy(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                          cen_stream stream);
cen_status ceni_host_copy_peer(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                               cen_addr src, size_t size, cen_stream stream);
cen_status ceni_host_fill(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                          cen_stream stream);
cen_status ceni_host_launch(cen_device *device, const char *name, const cen_launch *shape,
                            void *const *args, size_t arg_count, cen_stream stream);
cen_status ceni_host_func(cen_device *device, cen_stream stream, void (*fn)(void *), void *arg);

/* capture.c: as dev/capture.h has it, in CUDA's global mode: querying or synchronising anything
 * breaks a capture; virtual-memory calls and recording on other streams do not. */
cen_status ceni_host_capture_begin(cen_device *device, cen_stream stream);
cen_status ceni_host_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph);
/* Enqueues the graph's copies, fills, kernels and host functions, in the order of recording. */
cen_status ceni_host_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream);
void ceni_host_graph_destroy(cen_device *device, ceni_graph *graph);
/* CEN_ERR_CAPTURE, breaking them, while a stream of the device captures. (locked) */
cen_status ceni_host_no_capture(host_device *device, const char *what);
/* As ceni_host_no_capture, taking `run`. */
cen_status ceni_host_no_capture_unlocked(host_device *device, const char *what);
void ceni_host_capture_op(ceni_graph *graph, host_op *op); /* (locked) */
/* The stream waits for a point recorded in a capture: it joins it. (locked) */
cen_status ceni_host_capture_join(host_stream *stream, const host_point *point);
/* Ends the captures of a device that closes. (locked) */
void ceni_host_captures_close(host_device *device);
cen_status ceni_host_stream_capturing(cen_device *device, cen_stream stream, bool *capturing);

#endif
