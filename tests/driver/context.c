/* Contexts: each device's primary one, those that programs create, and the stack of every thread.
 * A context takes memory of its card, as a real one does. Ended contexts are kept: their handles
 * stay on stacks. */
#include "base/mem.h"
#include "tests/driver/td.h"

enum { STACK_MAX = 64 };

td_context *td_contexts;
static _Thread_local td_context *stack[STACK_MAX];
static _Thread_local size_t depth;

cu_result td_current(td_context **context) {
    td_context *top = depth ? stack[depth - 1] : NULL;
    if (!top) {
        return CU_ERROR_INVALID_CONTEXT;
    }
    if (!top->live) {
        return CU_ERROR_CONTEXT_DESTROYED;
    }
    *context = top;
    return CU_SUCCESS;
}

static td_context *known(cu_context handle) {
    pthread_mutex_lock(&td_lock);
    td_context *c = td_contexts;
    while (c && (cu_context)c != handle) {
        c = c->next;
    }
    pthread_mutex_unlock(&td_lock);
    return c;
}

cu_result td_find_context(cu_context handle, td_context **context) {
    td_context *c = known(handle);
    if (!c) {
        return CU_ERROR_INVALID_CONTEXT;
    }
    if (!c->live) {
        return CU_ERROR_CONTEXT_DESTROYED;
    }
    *context = c;
    return CU_SUCCESS;
}

/* (locked) */
static cu_result begin(td_context *context, unsigned flags) {
    uint64_t size = td_mib_setting("CENOTE_TEST_DRIVER_CONTEXT_MIB", 300);
    cu_result result;
    context->own = (td_range){0};
    if (size) {
        TD_TRY(td_range_take(context->card, size, &context->own));
    }
    td_stream *legacy = td_stream_add(context, 0, 0, &result);
    if (!legacy) {
        td_range_drop(context->card, context->own);
        return result;
    }
    legacy->legacy = true;
    context->flags = flags;
    context->live = true;
    return CU_SUCCESS;
}

static void end(td_context *context) {
    td_streams_end_context(context);
    pthread_mutex_lock(&td_lock);
    td_pool_end_context(context);
    td_memory_end_context(context);
    td_modules_end_context(context);
    td_range_drop(context->card, context->own);
    context->live = false;
    context->users = 0;
    context->peers = 0;
    pthread_mutex_unlock(&td_lock);
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_NEED(context);
    pthread_mutex_lock(&td_lock);
    td_context *primary = &card->primary;
    cu_result result = primary->live ? CU_SUCCESS : begin(primary, primary->flags);
    if (result == CU_SUCCESS) {
        primary->users++;
        *context = (cu_context)primary;
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    pthread_mutex_lock(&td_lock);
    bool live = card->primary.live;
    bool last = live && --card->primary.users == 0;
    pthread_mutex_unlock(&td_lock);
    if (last) {
        end(&card->primary);
    }
    return live ? CU_SUCCESS : CU_ERROR_INVALID_CONTEXT;
}

cu_result cuDevicePrimaryCtxReset_v2(cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    if (card->primary.live) {
        end(&card->primary);
    }
    return CU_SUCCESS;
}

cu_result cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    TD_NEED(flags && active);
    *flags = card->primary.flags;
    *active = card->primary.live;
    return CU_SUCCESS;
}

cu_result cuDevicePrimaryCtxSetFlags_v2(cu_device device, unsigned flags) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, device, &card));
    card->primary.flags = flags;
    return CU_SUCCESS;
}

static cu_result push(td_context *context) {
    if (depth == STACK_MAX) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = context;
    return CU_SUCCESS;
}

static cu_result create(const char *symbol, cu_context *context, unsigned flags, cu_device device) {
    td_card *card;
    TD_TRY(td_enter_device(symbol, device, &card));
    TD_NEED(context);
    td_context *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    made->card = card;
    made->small.card = card;
    pthread_mutex_lock(&td_lock);
    cu_result result = begin(made, flags);
    if (result == CU_SUCCESS) {
        made->next = td_contexts;
        td_contexts = made;
    }
    pthread_mutex_unlock(&td_lock);
    if (result != CU_SUCCESS) {
        ceni_free(made);
        return result;
    }
    TD_TRY(push(made));
    *context = (cu_context)made;
    return CU_SUCCESS;
}

cu_result cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device) {
    return create(__func__, context, flags, device);
}

cu_result cuCtxCreate_v3(cu_context *context, cu_affinity *affinities, int count, unsigned flags,
                         cu_device device) {
    return count ? CU_ERROR_NOT_SUPPORTED : create(__func__, context, flags, device);
}

cu_result cuCtxCreate_v4(cu_context *context, cu_context_params *params, unsigned flags,
                         cu_device device) {
    return params ? CU_ERROR_NOT_SUPPORTED : create(__func__, context, flags, device);
}

cu_result cuCtxDestroy_v2(cu_context context) {
    td_context *c;
    TD_TRY(td_enter(__func__));
    TD_TRY(td_find_context(context, &c));
    if (c->primary) {
        return CU_ERROR_INVALID_CONTEXT;
    }
    end(c);
    if (depth && stack[depth - 1] == c) {
        depth--;
    }
    return CU_SUCCESS;
}

cu_result cuCtxGetCurrent(cu_context *context) {
    TD_TRY(td_enter(__func__));
    TD_NEED(context);
    *context = depth ? (cu_context)stack[depth - 1] : NULL;
    return CU_SUCCESS;
}

cu_result cuCtxSetCurrent(cu_context context) {
    td_context *c = NULL;
    TD_TRY(td_enter(__func__));
    if (!context) {
        depth -= depth > 0;
        return CU_SUCCESS;
    }
    TD_TRY(td_find_context(context, &c));
    if (!depth) {
        return push(c);
    }
    stack[depth - 1] = c;
    return CU_SUCCESS;
}

cu_result cuCtxPushCurrent_v2(cu_context context) {
    td_context *c;
    TD_TRY(td_enter(__func__));
    TD_TRY(td_find_context(context, &c));
    return push(c);
}

cu_result cuCtxPopCurrent_v2(cu_context *context) {
    TD_TRY(td_enter(__func__));
    if (!depth) {
        return CU_ERROR_INVALID_CONTEXT;
    }
    depth--;
    if (context) {
        *context = (cu_context)stack[depth];
    }
    return CU_SUCCESS;
}

cu_result cuCtxGetDevice(cu_device *device) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(device);
    *device = context->card->ordinal;
    return CU_SUCCESS;
}

cu_result cuCtxGetDevice_v2(cu_device *device, cu_context context) {
    td_context *c;
    TD_TRY(td_enter(__func__));
    TD_TRY(context ? td_find_context(context, &c) : td_current(&c));
    TD_NEED(device);
    *device = c->card->ordinal;
    return CU_SUCCESS;
}

cu_result cuCtxGetFlags(unsigned *flags) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(flags);
    *flags = context->flags;
    return CU_SUCCESS;
}

cu_result cuCtxGetApiVersion(cu_context context, unsigned *version) {
    td_context *c;
    TD_TRY(td_enter(__func__));
    TD_TRY(context ? td_find_context(context, &c) : td_current(&c));
    TD_NEED(version);
    *version = 3020;
    return CU_SUCCESS;
}

cu_result cuCtxSynchronize(void) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    return td_context_wait(context);
}

cu_result cuCtxSynchronize_v2(cu_context context) {
    td_context *c;
    TD_TRY(td_enter(__func__));
    TD_TRY(context ? td_find_context(context, &c) : td_current(&c));
    return td_context_wait(c);
}

cu_result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    if (least) {
        *least = 0;
    }
    if (greatest) {
        *greatest = -5;
    }
    return CU_SUCCESS;
}

/* The card's memory that is there already becomes the peer's too; what comes later sees the bit. */
cu_result cuCtxEnablePeerAccess(cu_context peer, unsigned flags) {
    td_context *context, *other;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_find_context(peer, &other));
    td_card *card = context->card;
    if (flags || other->card == card) {
        return flags ? CU_ERROR_INVALID_VALUE : CU_ERROR_INVALID_DEVICE;
    }
    uint64_t bit = (uint64_t)1 << other->card->ordinal;
    if (context->peers & bit) {
        return CU_ERROR_PEER_ALREADY_ENABLED;
    }
    if (ceni_backend_host.peer_enable(card->device, other->card->device)) {
        return CU_ERROR_PEER_UNSUPPORTED;
    }
    pthread_mutex_lock(&td_lock);
    context->peers |= bit;
    td_range_share(other->card, 0, card);
    pthread_mutex_unlock(&td_lock);
    return CU_SUCCESS;
}

cu_result cuCtxDisablePeerAccess(cu_context peer) {
    td_context *context, *other;
    TD_TRY(td_enter_context(__func__, &context));
    TD_TRY(td_find_context(peer, &other));
    uint64_t bit = (uint64_t)1 << other->card->ordinal;
    if (!(context->peers & bit)) {
        return CU_ERROR_PEER_NOT_ENABLED;
    }
    context->peers &= ~bit;
    return CU_SUCCESS;
}
