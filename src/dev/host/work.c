/* What streams do: copies, fills, kernels, host functions. Ranges are checked twice: at the call,
 * where an error has no effect, and when the operation runs, where it poisons the device as an
 * illegal access does on CUDA. A kernel's ranges are known only when it runs. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "dev/host/host_int.h"

enum { KERNEL_ARGS_MAX = 16 };

void ceni_host_sleep_until(uint64_t ns) {
    struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

host_op *ceni_host_op_new(enum host_op_kind kind, size_t data_size) {
    host_op *op = ceni_malloc(sizeof *op + data_size);
    if (op) {
        *op = (host_op){.kind = kind, .data_size = data_size};
    }
    return op;
}

void ceni_host_op_free(host_op *op) {
    ceni_host_point_drop(op->point);
    ceni_free(op);
}

static void poison(host_device *device, const char *what, const char *why, uint64_t addr,
                   uint64_t size) {
    int none = CEN_OK;
    ceni_log(CEN_LOG_ERROR, "host:%d: a %s at [0x%llx, +%llu) meets %s", device->base.ordinal, what,
             (unsigned long long)addr, (unsigned long long)size, why);
    atomic_compare_exchange_strong(&device->error, &none, CEN_ERR_FAULT);
}

static void run_copy(host_device *device, const host_op *op) {
    const cen_host_options *o = &device->options;
    uint64_t until = ceni_now_ns() + (uint64_t)o->copy_latency_us * 1000;
    if (o->copy_bytes_per_us) {
        until += (uint64_t)((double)op->size * 1000 / (double)o->copy_bytes_per_us);
    }
    void *dst = (void *)(uintptr_t)op->dst;
    const void *src = op->data_size ? (const void *)op->data : (const void *)(uintptr_t)op->src;
    pthread_rwlock_rdlock(&device->space->map);
    const char *why = ceni_host_denied(device, op->dst, op->size, true, false);
    const char *why_src =
        op->data_size ? NULL : ceni_host_denied(op->src_device, op->src, op->size, false, false);
    if (!why && !why_src) {
        memmove(dst, src, op->size);
    }
    pthread_rwlock_unlock(&device->space->map);
    if (why) {
        poison(device, "copy's write", why, op->dst, op->size);
    } else if (why_src) {
        poison(device, "copy's read", why_src, op->src, op->size);
    } else if (o->copy_latency_us || o->copy_bytes_per_us) {
        ceni_host_sleep_until(until);
    }
}

static void run_fill(host_device *device, const host_op *op) {
    pthread_rwlock_rdlock(&device->space->map);
    const char *why = ceni_host_denied(device, op->dst, op->size, true, false);
    if (!why) {
        memset((void *)(uintptr_t)op->dst, op->value, op->size);
    }
    pthread_rwlock_unlock(&device->space->map);
    if (why) {
        poison(device, "fill", why, op->dst, op->size);
    }
}

static void run_kernel(host_device *device, const host_op *op) {
    const ceni_kernel *kernel = op->kernel;
    void *args[KERNEL_ARGS_MAX];
    size_t at = 0;
    for (size_t i = 0; i < kernel->arg_count; i++) {
        args[i] = (void *)(op->data + at);
        at += (kernel->arg_sizes[i] + 7u) & ~(size_t)7;
    }
    ceni_kernel_range ranges[CENI_KERNEL_RANGES_MAX];
    size_t count = kernel->ranges ? kernel->ranges(args, ranges) : 0;
    const char *why = NULL;
    size_t i = 0;
    if (count) {
        pthread_rwlock_rdlock(&device->space->map);
    }
    for (; !why && i < count; i++) {
        why = ranges[i].size
                  ? ceni_host_denied(device, ranges[i].addr, ranges[i].size, ranges[i].write, true)
                  : NULL;
    }
    if (!why) {
        kernel->twin(op->shape.grid, op->shape.block, op->shape.shared_bytes, args);
    }
    if (count) {
        pthread_rwlock_unlock(&device->space->map);
    }
    if (why) {
        poison(device, kernel->name, why, ranges[i - 1].addr, ranges[i - 1].size);
    }
}

void ceni_host_execute(host_stream *stream, host_op *op) {
    host_device *device = stream->device;
    if (atomic_load(&device->error)) {
        return;
    }
    switch (op->kind) {
    case HOST_COPY:
        run_copy(device, op);
        break;
    case HOST_FILL:
        run_fill(device, op);
        break;
    case HOST_KERNEL:
        run_kernel(device, op);
        break;
    case HOST_FUNC:
        op->fn(op->arg);
        break;
    case HOST_RECORD:
        op->point->ns = ceni_now_ns();
        break;
    case HOST_WAIT:
        break;
    }
}

/* Queues an operation; NULL: it could not be made. */
static cen_status enqueue(host_device *device, cen_stream stream, host_op *op, bool wait) {
    if (!op) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "host:%d: an operation: out of host memory",
                         device->base.ordinal);
    }
    cen_status status = CEN_ERR_INVALID;
    pthread_mutex_lock(&device->space->run);
    host_stream *s = ceni_host_stream_get(device, stream);
    if (!s) {
        ceni_host_op_free(op);
    } else {
        status = ceni_host_push(s, op);
        if (!status && wait && !s->capture && !device->options.inline_streams) {
            ceni_host_wait_idle(s);
            status = ceni_host_ready(device);
        }
    }
    pthread_mutex_unlock(&device->space->run);
    return status;
}

static cen_status denied(host_device *device, const char *what, uint64_t addr, size_t size,
                         bool write) {
    const char *why = ceni_host_denied(device, addr, size, write, false);
    return why ? ceni_fail(CEN_ERR_FAULT, "%s: [0x%llx, +%zu) is %s for host:%d", what,
                           (unsigned long long)addr, size, why, device->base.ordinal)
               : CEN_OK;
}

static bool is_capturing(host_device *device, cen_stream stream) {
    bool capturing = false;
    return !ceni_host_stream_capturing(&device->base, stream, &capturing) && capturing;
}

/* A pageable source is read at the call, as CUDA stages it; a pageable destination is waited for,
 * except on an inline stream, which can only be waited for by running it. */
static cen_status copy(host_device *device, cen_addr dst, host_device *src_device, cen_addr src,
                       size_t size, cen_stream stream) {
    host_space *space = device->space;
    cen_status status = ceni_host_ready(device);
    status = status ? status : ceni_host_ready(src_device);
    if (status) {
        return status;
    }
    pthread_rwlock_rdlock(&space->map);
    status = denied(device, "copy: dst", dst, size, true);
    status = status ? status : denied(src_device, "copy: src", src, size, false);
    bool stage = ceni_host_is_pageable(space, src, size);
    bool wait = ceni_host_is_pageable(space, dst, size);
    pthread_rwlock_unlock(&space->map);
    if (status) {
        return status;
    }
    stage = stage && !is_capturing(device, stream);
    host_op *op = ceni_host_op_new(HOST_COPY, stage ? size : 0);
    if (op) {
        op->dst = dst;
        op->src = src;
        op->src_device = src_device;
        op->size = size;
        if (stage) {
            memcpy(op->data, (const void *)(uintptr_t)src, size);
        }
    }
    return enqueue(device, stream, op, wait);
}

cen_status ceni_host_copy(cen_device *device, cen_addr dst, cen_addr src, size_t size,
                          cen_stream stream) {
    return copy(host_of(device), dst, host_of(device), src, size, stream);
}

cen_status ceni_host_copy_peer(cen_device *dst_device, cen_addr dst, cen_device *src_device,
                               cen_addr src, size_t size, cen_stream stream) {
    return copy(host_of(dst_device), dst, host_of(src_device), src, size, stream);
}

cen_status ceni_host_fill(cen_device *device, cen_addr dst, uint8_t value, size_t size,
                          cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    pthread_rwlock_rdlock(&d->space->map);
    status = denied(d, "fill: dst", dst, size, true);
    pthread_rwlock_unlock(&d->space->map);
    if (status) {
        return status;
    }
    host_op *op = ceni_host_op_new(HOST_FILL, 0);
    if (op) {
        op->dst = dst;
        op->size = size;
        op->value = value;
    }
    return enqueue(d, stream, op, false);
}

cen_status ceni_host_launch(cen_device *device, const char *name, const cen_launch *shape,
                            void *const *args, size_t arg_count, cen_stream stream) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    const ceni_kernel *kernel = ceni_kernel_find(name);
    if (!kernel) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "launch: no kernel '%s'", name);
    }
    if (arg_count != kernel->arg_count || arg_count > KERNEL_ARGS_MAX) {
        return ceni_fail(CEN_ERR_INVALID, "launch: '%s' takes %zu arguments, not %zu", name,
                         kernel->arg_count, arg_count);
    }
    size_t size = 0;
    for (size_t i = 0; i < arg_count; i++) {
        size += (kernel->arg_sizes[i] + 7u) & ~(size_t)7;
    }
    host_op *op = ceni_host_op_new(HOST_KERNEL, size);
    if (op) {
        op->kernel = kernel;
        op->shape = *shape;
        size_t at = 0;
        for (size_t i = 0; i < arg_count; i++) {
            memcpy(op->data + at, args[i], kernel->arg_sizes[i]);
            at += (kernel->arg_sizes[i] + 7u) & ~(size_t)7;
        }
    }
    return enqueue(d, stream, op, false);
}

cen_status ceni_host_func(cen_device *device, cen_stream stream, void (*fn)(void *), void *arg) {
    host_device *d = host_of(device);
    cen_status status = ceni_host_ready(d);
    if (status) {
        return status;
    }
    host_op *op = ceni_host_op_new(HOST_FUNC, 0);
    if (op) {
        op->fn = fn;
        op->arg = arg;
    }
    return enqueue(d, stream, op, false);
}
