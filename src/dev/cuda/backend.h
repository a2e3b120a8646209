/* The CUDA backend's own header: its device object, and what every operation shares.
 *
 * An operation is: enter (which makes the device's primary context current on this thread, unless
 * it is already), driver calls as long as none has failed, leave (which restores the caller's
 * context and turns the driver's result into a status, with one line in the log). */
#ifndef CENI_CUDA_BACKEND_H
#define CENI_CUDA_BACKEND_H

#include <pthread.h>

#include "dev/cuda/driver.h"
#include "dev/dev.h"

/* What a device object made and has not released yet; close releases it in this order. */
enum ceni_cuda_kind {
    CENI_CUDA_NOTHING,
    CENI_CUDA_STREAM,
    CENI_CUDA_EVENT, /* its "size" is one of those below */
    CENI_CUDA_VIEW,  /* of another process's memory (share.c) */
    CENI_CUDA_MAPPING,
    CENI_CUDA_VA,
    CENI_CUDA_PAGE,
    CENI_CUDA_SEGMENT,
    CENI_CUDA_PINNED,
    CENI_CUDA_REGISTERED,
    CENI_CUDA_KINDS
};

enum { CENI_CUDA_EVENT_OWN = 1, CENI_CUDA_EVENT_SHARED = 2, CENI_CUDA_EVENT_IMPORTED = 3 };

typedef struct ceni_cuda_thing {
    uint64_t handle;
    uint64_t size;
    enum ceni_cuda_kind kind;
    unsigned refs; /* an imported page can have the handle of one that is here */
} ceni_cuda_thing;

/* A hash set of things, by (kind, handle); src/dev/cuda/owned.c. */
typedef struct ceni_cuda_owned {
    pthread_mutex_t lock;
    ceni_cuda_thing *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} ceni_cuda_owned;

typedef struct ceni_cuda_device {
    cen_device base;
    const ceni_cu *cu;
    cu_device device;
    cu_context context; /* the primary one, retained */
    int least_priority, greatest_priority;
    bool export_fd, rdma, host_pages, dma_buf;
    int host_node; /* the NUMA node near the device */
    ceni_cuda_owned owned;
    pthread_mutex_t kernels_lock; /* of the three below, which a first launch sets */
    cu_module module;
    cu_function *functions; /* by index in ceni_kernels */
    uint32_t *shared_most;  /* shared bytes that each may be launched with, by the same index */
} ceni_cuda_device;

typedef struct ceni_cuda_scope {
    ceni_cuda_device *self;
    const ceni_cu *cu;
    cu_result result; /* of the last driver call; operations go on only while it is CU_SUCCESS */
    bool pushed;
} ceni_cuda_scope;

ceni_cuda_scope ceni_cuda_enter(cen_device *device);
/* The status of scope->result. If that is a failure, the formatted text says what was tried. */
cen_status ceni_cuda_leave(ceni_cuda_scope *scope, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for a failure that the driver reports less exactly than we know it. */
cen_status ceni_cuda_leave_as(ceni_cuda_scope *scope, cen_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

cen_status ceni_cuda_status(cu_result result);

/* Lets this thread make calls that a capture would forbid (loading code, pinning memory), which are
 * safe as they touch no captured work; gives what ceni_cuda_restore takes. */
cu_enum ceni_cuda_relax(const ceni_cu *cu);
void ceni_cuda_restore(const ceni_cu *cu, cu_enum mode);

/* Remembers a thing of a size > 0; false when host memory is exhausted. */
bool ceni_cuda_own(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle,
                   uint64_t size);
/* Forgets it, before it is released (afterwards the driver may give the handle out again). Returns
 * its size; 0 if it is not this device's. */
uint64_t ceni_cuda_disown(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle);

/* Its size; 0 if it is not this device's. */
uint64_t ceni_cuda_size_of(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t handle);
/* Whether a thing's handle lies in [from, from + size); looks at all. */
bool ceni_cuda_any_within(ceni_cuda_device *self, enum ceni_cuda_kind kind, uint64_t from,
                          uint64_t size);

/* Drops the loaded kernels; the context is current. */
void ceni_cuda_unload_kernels(ceni_cuda_device *self);

/* The operations, as ceni_backend has them. */
cen_status ceni_cuda_va_reserve(cen_device *device, uint64_t size, uint64_t align, cen_addr *addr);
cen_status ceni_cuda_va_free(cen_device *device, cen_addr addr, uint64_t size);
cen_status ceni_cuda_page_create(cen_device *device, uint64_t size, unsigned flags,
                                 ceni_page *page);
cen_status ceni_cuda_page_release(cen_device *device, ceni_page page);
cen_status ceni_cuda_page_map(cen_device *device, cen_addr addr, uint64_t size, ceni_page page);
cen_status ceni_cuda_page_unmap(cen_device *device, cen_addr addr, uint64_t size);
cen_status ceni_cuda_page_access(cen_device *device, cen_addr addr, uint64_t size,
                                 const ceni_grant *grants, size_t count);
cen_status ceni_cuda_page_export(cen_device *device, ceni_page page, int *fd);
cen_status ceni_cuda_page_import(cen_device *device, int fd, uint64_t size, ceni_page *page);

cen_status ceni_cuda_segment_alloc(cen_device *device, uint64_t size, cen_addr *addr);
cen_status ceni_cuda_segment_free(cen_device *device, cen_addr addr);
cen_status ceni_cuda_managed_alloc(cen_device *device, uint64_t size, cen_addr *addr);
cen_status ceni_cuda_managed_prefetch(cen_device *device, cen_addr addr, uint64_t size,
                                      bool to_host, cen_stream stream);
cen_status ceni_cuda_pinned_alloc(cen_device *device, size_t size, void **ptr);
cen_status ceni_cuda_pinned_free(cen_device *device, void *ptr);
cen_status ceni_cuda_pinned_register(cen_device *device, void *ptr, size_t size);
cen_status ceni_cuda_pinned_unregister(cen_device *device, void *ptr);

cen_status ceni_cuda_stream_create(cen_device *device, int priority, cen_stream *stream);
cen_status ceni_cuda_stream_destroy(cen_device *device, cen_stream stream);
cen_status ceni_cuda_stream_sync(cen_device *device, cen_stream stream);
cen_status ceni_cuda_stream_query(cen_device *device, cen_stream stream);
cen_status ceni_cuda_stream_wait(cen_device *device, cen_stream stream, cen_event event);
cen_status ceni_cuda_stream_capturing(cen_device *device, cen_stream stream, bool *capturing);
cen_status ceni_cuda_capture_begin(cen_device *device, cen_stream stream);
cen_status ceni_cuda_capture_end(cen_device *device, cen_stream stream, ceni_graph **graph);
cen_status ceni_cuda_graph_launch(cen_device *device, ceni_graph *graph, cen_stream stream);
void ceni_cuda_graph_destroy(cen_device *device, ceni_graph *graph);

cen_status ceni_cuda_event_create(cen_device *device, unsigned flags, cen_event *event);
cen_status ceni_cuda_event_destroy(cen_device *device, cen_event event);
cen_status ceni_cuda_event_record(cen_device *device, cen_event event, cen_stream stream);
cen_status ceni_cuda_event_query(cen_device *device, cen_event event);
cen_status ceni_cuda_event_peek(cen_device *device, cen_event event);
cen_status ceni_cuda_event_sync(cen_device *device, cen_event event);
cen_status ceni_cuda_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms);

cen_status ceni_cuda_event_export(cen_device *device, cen_event event, ceni_event_token *token,
                                  int *fd);
cen_status ceni_cuda_event_import(cen_device *device, const ceni_event_token *token, int fd,
                                  cen_event *event);
cen_status ceni_cuda_legacy_export(cen_device *device, cen_addr addr, ceni_legacy_handle *handle,
                                   uint64_t *offset, uint64_t *bytes);
cen_status ceni_cuda_legacy_open(cen_device *device, const ceni_legacy_handle *handle,
                                 cen_addr *addr, uint64_t *bytes);
cen_status ceni_cuda_legacy_close(cen_device *device, cen_addr addr);
/* One use less of a view at `addr`, in the current context. */
cu_result ceni_cuda_view_drop(const ceni_cuda_device *self, cu_deviceptr addr);
cen_status ceni_cuda_dmabuf(cen_device *device, cen_addr addr, uint64_t bytes, int *fd);

cen_status ceni_cuda_copy(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                          cen_stream stream);
cen_status ceni_cuda_copy_peer(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                               cen_addr src, size_t size, cen_stream stream);
cen_status ceni_cuda_fill(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                          cen_stream stream);
cen_status ceni_cuda_launch(cen_device *device, const char *name, const cen_launch *shape,
                            void *const *args, size_t arg_count, cen_stream stream);
cen_status ceni_cuda_tensor_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map);
cen_status ceni_cuda_pixel_map(cen_device *device, const ceni_pixels *pixels, ceni_tensor_map *map);
cen_status ceni_cuda_host_func(cen_device *device, cen_stream stream, void (*fn)(void *),
                               void *arg);

#endif
