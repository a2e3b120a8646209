/* Devices: CUDA GPUs through the driver, and the host backend that behaves like one without a GPU.
 *
 * Addresses of device memory are integers (cen_addr); on both backends an address is valid in this
 * process's unified address space. Streams and events are handles: on CUDA the CUstream and CUevent
 * themselves, so a framework's stream can be passed as it is; 0 is the default stream (on the host
 * a stream like the others: it orders nothing but itself). Unless said otherwise a function may be
 * called from any thread, sizes are in bytes, and output arguments are set only on success.
 *
 * Any call on a device may return CEN_ERR_INVALID (the log names the argument), CEN_ERR_FORKED,
 * CEN_ERR_DEVICE, CEN_ERR_DEVICE_LOST (on CUDA also once an operation met memory that it may not
 * use; on the host that is CEN_ERR_FAULT), CEN_ERR_HOST_MEMORY and CEN_ERR_LIMIT. What waits or
 * queries returns CEN_ERR_CAPTURE while a stream captures, which breaks the capture. */
#ifndef CENOTE_DEVICE_H
#define CENOTE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_device cen_device;
typedef uint64_t cen_addr;
typedef uintptr_t cen_stream;
typedef uintptr_t cen_event;

/* How the host backend behaves. Zero-initialise, set `size` to sizeof, then what differs from the
 * defaults; a zero field means its default. Environment variables (named beside each field) apply
 * where the field is zero. */
typedef struct cen_host_options {
    size_t size;
    uint32_t devices;           /* CENOTE_HOST_DEVICES, 2 */
    uint64_t capacity;          /* CENOTE_HOST_CAPACITY, bytes a device; 8 GiB */
    uint64_t granularity;       /* CENOTE_HOST_GRANULARITY, a power of two >= 4096; 2 MiB */
    uint64_t copy_bytes_per_us; /* CENOTE_HOST_COPY_BYTES_PER_US, 0 unlimited */
    uint32_t copy_latency_us;   /* CENOTE_HOST_COPY_LATENCY_US, 0 none */
    uint32_t stream_delay_us;   /* CENOTE_HOST_STREAM_DELAY_US, before each stream operation */
    uint32_t peer_group;        /* CENOTE_HOST_PEER_GROUP, devices reach each other within groups of
                                   so many neighbouring ordinals; 0 all */
    bool inline_streams;        /* CENOTE_HOST_INLINE: no threads; an operation runs when enqueued,
                                   or when the event that its stream waits for is signalled. Until
                                   then a sync of the stream waits for another thread to signal */
    bool no_vmm;     /* CENOTE_HOST_NO_VMM: as a device without virtual memory management */
    bool never_wait; /* with inline_streams, for a program whose only thread signals: a sync that
                        would wait for a signal returns CEN_ERR_NOT_READY instead */
} cen_host_options;

typedef struct cen_device_props {
    char name[128];
    char uuid[48];        /* "GPU-xxxxxxxx-xxxx-..." as NVML prints it; "HOST-n" on the host */
    int ordinal;          /* within its backend */
    uint64_t total_bytes; /* of device memory */
    uint64_t granularity; /* sizes and addresses of pages are multiples of this */
    bool vmm;             /* pages can be created, mapped and moved */
    bool export_fd;       /* pages can be exported as file descriptors */
    bool rdma;            /* pages can be made RDMA capable */
    uint32_t compute_capability; /* major * 10 + minor; 0 on the host */
    uint32_t multiprocessors;
} cen_device_props;

/* Opens a device named "cuda", "cuda:N", "host" or "host:N" (N from 0). Opening the same device
 * again gives an independent object: on CUDA over the same hardware (the primary context is
 * retained), on the host an emulated card of its own, with its own capacity. CEN_ERR_NO_DEVICE: no
 * driver or no such ordinal (the log says which); CEN_ERR_INVALID: the name is malformed. */
CEN_API cen_status cen_device_open(const char *name, cen_device **device);

/* Opens host device `ordinal` with options (NULL: defaults and environment). */
CEN_API cen_status cen_device_open_host(int ordinal, const cen_host_options *options,
                                        cen_device **device);

/* Closes it: waits for its streams, then releases what is left. NULL is ignored. Nothing else may
 * use the device during or after the call. */
CEN_API void cen_device_close(cen_device *device);

/* Devices of a backend ("cuda" or "host"). 0 when the backend has none, as with no driver. */
CEN_API cen_status cen_device_count(const char *backend, int *count);

CEN_API cen_status cen_device_get_props(cen_device *device, cen_device_props *props);
/* Bytes free now, whoever holds the others, and in all. */
CEN_API cen_status cen_device_mem_info(cen_device *device, uint64_t *free_bytes,
                                       uint64_t *total_bytes);

/* Streams. Priorities follow CUDA: lower numbers are greater; out of range is clamped. Destroying a
 * stream lets the work in it finish. */
CEN_API cen_status cen_stream_create(cen_device *device, int priority, cen_stream *stream);
CEN_API cen_status cen_stream_destroy(cen_device *device, cen_stream stream);
CEN_API cen_status cen_stream_sync(cen_device *device, cen_stream stream);
/* CEN_OK when all work is done, CEN_ERR_NOT_READY when not. */
CEN_API cen_status cen_stream_query(cen_device *device, cen_stream stream);
CEN_API cen_status cen_stream_wait(cen_device *device, cen_stream stream, cen_event event);
/* Whether the stream is being captured into a graph. Never breaks a capture. */
CEN_API cen_status cen_stream_capturing(cen_device *device, cen_stream stream, bool *capturing);

/* Events. One that was never recorded is complete. A manual event (host backend only) completes
 * when cen_event_signal is called, not when a stream reaches it: tests and replay use it to decide
 * when work ends. It is pending from its creation, and again from a record after a signal; closing
 * its device completes it. A shared event is one that other processes can wait for
 * (cenote/share.h); it goes with neither of the others, and is not recorded in a capture.
 * CEN_ERR_UNSUPPORTED: one on the host, where no /proc is mounted. */
enum { CEN_EVENT_TIMING = 1u, CEN_EVENT_MANUAL = 2u, CEN_EVENT_SHARED = 4u };
CEN_API cen_status cen_event_create(cen_device *device, unsigned flags, cen_event *event);
CEN_API cen_status cen_event_destroy(cen_device *device, cen_event event);
CEN_API cen_status cen_event_record(cen_device *device, cen_event event, cen_stream stream);
CEN_API cen_status cen_event_query(cen_device *device, cen_event event);
CEN_API cen_status cen_event_sync(cen_device *device, cen_event event);
CEN_API cen_status cen_event_signal(cen_device *device, cen_event event);
/* Milliseconds from `start` to `end`, both recorded with CEN_EVENT_TIMING and complete. */
CEN_API cen_status cen_event_elapsed(cen_device *device, cen_event start, cen_event end, float *ms);

/* Asynchronous copies and fills, in stream order. `dst` and `src` may be device, pinned or pageable
 * memory, in any direction; a pageable copy may return only when the host memory has been used. */
CEN_API cen_status cen_copy_async(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                                  cen_stream stream);
/* From memory of `src_device` to memory of `dst_device`, of one backend; stream of `dst_device`. */
CEN_API cen_status cen_copy_peer_async(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                                       cen_addr src, size_t size, cen_stream stream);
CEN_API cen_status cen_fill_async(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                                  cen_stream stream);

/* Launches a kernel of the built-in table by name. `args` are pointers to the arguments, as for
 * cuLaunchKernel, `arg_count` of them; the values are read before the call returns.
 * CEN_ERR_NOT_FOUND: no such kernel; CEN_ERR_UNSUPPORTED: the library was built without CUDA
 * kernels. */
typedef struct cen_launch {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
} cen_launch;
CEN_API cen_status cen_kernel_launch(cen_device *device, const char *name, const cen_launch *shape,
                                     void *const *args, size_t arg_count, cen_stream stream);

/* Calls fn(arg) on a thread of the backend's once the stream gets there. It must not call device
 * functions. */
CEN_API cen_status cen_host_func(cen_device *device, cen_stream stream, void (*fn)(void *arg),
                                 void *arg);

/* Pinned host memory: allocated, or existing memory registered. */
CEN_API cen_status cen_pinned_alloc(cen_device *device, size_t size, void **ptr);
CEN_API cen_status cen_pinned_free(cen_device *device, void *ptr);
CEN_API cen_status cen_pinned_register(cen_device *device, void *ptr, size_t size);
CEN_API cen_status cen_pinned_unregister(cen_device *device, void *ptr);

/* Whether `device` can map memory of `peer`, and enabling it (idempotent). */
CEN_API cen_status cen_peer_can_access(cen_device *device, cen_device *peer, bool *can);
CEN_API cen_status cen_peer_enable(cen_device *device, cen_device *peer);

#ifdef __cplusplus
}
#endif
#endif
