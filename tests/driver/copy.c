/* Copies, fills and host functions, in stream order; the synchronous ones wait for themselves. */
#include <string.h>

#include "tests/driver/td.h"

/* Whose right reads `src`: its own card's where the driver allocated it, since such copies need no
 * peer access; else the stream's. */
static td_card *reader(const td_stream *stream, uint64_t src) {
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(src);
    bool plain = e && (e->kind == TD_MEMORY || e->kind == TD_SMALL || e->kind == TD_ASYNC);
    td_card *card = plain ? e->card : stream->context->card;
    pthread_mutex_unlock(&td_lock);
    return card;
}

/* A write to another card's allocation goes through that card, as the driver routes it. */
static cu_result copy(td_context *context, uint64_t dst, uint64_t src, size_t size,
                      cu_stream handle, bool wait) {
    td_stream *s;
    if (!size) {
        return CU_SUCCESS;
    }
    TD_NEED(dst && src);
    TD_TRY(td_stream_for_work(context, handle, &s));
    td_card *card = s->context->card, *to = reader(s, dst);
    if (to != card) {
        ceni_backend_host.peer_enable(card->device, to->device);
        pthread_mutex_lock(&td_lock);
        td_range_share(to, dst, card);
        pthread_mutex_unlock(&td_lock);
    }
    cen_status status =
        ceni_backend_host.copy_peer(card->device, dst, reader(s, src)->device, src, size, s->host);
    if (status == CEN_ERR_FAULT) {
        return CU_ERROR_INVALID_VALUE; /* found at the call: nothing is broken */
    }
    TD_TRY(td_result(status));
    return wait ? td_result(ceni_backend_host.stream_sync(card->device, s->host)) : CU_SUCCESS;
}

static cu_result enter_copy(const char *symbol, uint64_t dst, uint64_t src, size_t size,
                            cu_stream stream, bool wait) {
    td_context *context;
    TD_TRY(td_enter_context(symbol, &context));
    return copy(context, dst, src, size, stream, wait);
}

cu_result cuMemcpyAsync(cu_deviceptr dst, cu_deviceptr src, size_t size, cu_stream stream) {
    return enter_copy(__func__, dst, src, size, stream, false);
}

/* Host and device have one memory here: in stream order, nothing is moved. */
cu_result cuMemPrefetchAsync_v2(cu_deviceptr addr, size_t size, cu_location location,
                                unsigned flags, cu_stream handle) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(size && !flags);
    TD_NEED(location.type == CU_LOCATION_DEVICE || location.type == CU_LOCATION_HOST);
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(addr);
    bool whole = e && e->kind == TD_MANAGED && addr + size <= e->addr + e->size;
    pthread_mutex_unlock(&td_lock);
    TD_NEED(whole);
    return td_stream_for_work(context, handle, &s);
}

cu_result cuMemcpyHtoDAsync_v2(cu_deviceptr dst, const void *src, size_t size, cu_stream stream) {
    return enter_copy(__func__, dst, (uintptr_t)src, size, stream, false);
}

cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_deviceptr src, size_t size, cu_stream stream) {
    return enter_copy(__func__, (uintptr_t)dst, src, size, stream, false);
}

cu_result cuMemcpyDtoDAsync_v2(cu_deviceptr dst, cu_deviceptr src, size_t size, cu_stream stream) {
    return enter_copy(__func__, dst, src, size, stream, false);
}

cu_result cuMemcpy(cu_deviceptr dst, cu_deviceptr src, size_t size) {
    return enter_copy(__func__, dst, src, size, NULL, true);
}

cu_result cuMemcpyHtoD_v2(cu_deviceptr dst, const void *src, size_t size) {
    return enter_copy(__func__, dst, (uintptr_t)src, size, NULL, true);
}

cu_result cuMemcpyDtoH_v2(void *dst, cu_deviceptr src, size_t size) {
    return enter_copy(__func__, (uintptr_t)dst, src, size, NULL, true);
}

cu_result cuMemcpyDtoD_v2(cu_deviceptr dst, cu_deviceptr src, size_t size) {
    return enter_copy(__func__, dst, src, size, NULL, true);
}

cu_result cuMemcpyPeerAsync(cu_deviceptr dst, cu_context dst_context, cu_deviceptr src,
                            cu_context src_context, size_t size, cu_stream stream) {
    td_context *context, *to, *from;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_find_context(dst_context, &to));
    TD_TRY(td_find_context(src_context, &from));
    if (!size) {
        return CU_SUCCESS;
    }
    TD_NEED(dst && src);
    TD_TRY(td_stream_for_work(context, stream, &s));
    if (s->context->card != to->card) {
        return copy(context, dst, src, size, stream, false);
    }
    cen_status status =
        ceni_backend_host.copy_peer(to->card->device, dst, from->card->device, src, size, s->host);
    return status == CEN_ERR_FAULT ? CU_ERROR_INVALID_VALUE : td_result(status);
}

static cu_result fill(const char *symbol, uint64_t dst, unsigned char value, size_t size,
                      cu_stream stream, bool wait) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(symbol, &context));
    if (!size) {
        return CU_SUCCESS;
    }
    TD_NEED(dst);
    TD_TRY(td_stream_for_work(context, stream, &s));
    cen_device *device = s->context->card->device;
    cen_status status = ceni_backend_host.fill(device, dst, value, size, s->host);
    if (status == CEN_ERR_FAULT) {
        return CU_ERROR_INVALID_VALUE;
    }
    TD_TRY(td_result(status));
    return wait ? td_result(ceni_backend_host.stream_sync(device, s->host)) : CU_SUCCESS;
}

cu_result cuMemsetD8_v2(cu_deviceptr dst, unsigned char value, size_t size) {
    return fill(__func__, dst, value, size, NULL, true);
}

cu_result cuMemsetD8Async(cu_deviceptr dst, unsigned char value, size_t size, cu_stream stream) {
    return fill(__func__, dst, value, size, stream, false);
}

cu_result cuLaunchHostFunc(cu_stream stream, void (*fn)(void *), void *arg) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(fn);
    TD_TRY(td_stream_for_work(context, stream, &s));
    return td_result(ceni_backend_host.host_func(s->context->card->device, s->host, fn, arg));
}
