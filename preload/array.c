/* Arrays. Their bytes are those of their elements; how the driver lays them out, it does not say.
 * Of formats whose elements have no size of their own, such as compressed ones, the difference that
 * the call makes is measured. */
#include "preload/preload.h"

/* Bytes of a channel; 0: not known. */
static uint64_t channel_bytes(pl_enum format) {
    switch (format) {
    case 0x01: /* CU_AD_FORMAT_UNSIGNED_INT8 */
    case 0x08: /* CU_AD_FORMAT_SIGNED_INT8 */
        return 1;
    case 0x02: /* CU_AD_FORMAT_UNSIGNED_INT16 */
    case 0x09: /* CU_AD_FORMAT_SIGNED_INT16 */
    case 0x10: /* CU_AD_FORMAT_HALF */
        return 2;
    case 0x03: /* CU_AD_FORMAT_UNSIGNED_INT32 */
    case 0x0a: /* CU_AD_FORMAT_SIGNED_INT32 */
    case 0x20: /* CU_AD_FORMAT_FLOAT */
        return 4;
    default:
        return 0;
    }
}

static uint64_t or_one(uint64_t extent) {
    return extent ? extent : 1;
}

static uint64_t next_level(uint64_t extent) {
    return or_one(extent / 2);
}

/* Of all levels. Layers stay as many; a sparse or deferred array has no memory of its own. */
static uint64_t bytes_of(const pl_array3d_desc *desc, unsigned levels) {
    if (desc->flags & (PL_ARRAY_SPARSE | PL_ARRAY_DEFERRED)) {
        return 0;
    }
    uint64_t element = channel_bytes(desc->format) * or_one(desc->channels);
    uint64_t width = desc->width, height = or_one(desc->height), depth = or_one(desc->depth);
    uint64_t bytes = 0;
    bool layered = desc->flags & (PL_ARRAY_LAYERED | PL_ARRAY_CUBEMAP);
    for (unsigned level = 0; level < or_one(levels); level++) {
        bytes += width * height * depth * element;
        width = next_level(width);
        height = next_level(height);
        depth = layered ? depth : next_level(depth);
    }
    return bytes;
}

/* Of two dimensions, in the form of three. */
static pl_array3d_desc plane(size_t width, size_t height, pl_enum format, unsigned channels) {
    return (pl_array3d_desc){
        .width = width, .height = height, .format = format, .channels = channels};
}

typedef struct making {
    pl_request request;
    pl_measure measure;
    bool may, measured;
} making;

static making begin(int before, const pl_array3d_desc *desc, unsigned levels) {
    making m = {.request.before = before};
    uint64_t bytes = desc ? bytes_of(desc, levels) : 0;
    m.measured = desc && !channel_bytes(desc->format);
    m.may = pl_ask(&m.request, CEN_LEDGER_ARRAY, pl_device_now(), bytes, NULL);
    if (m.measured) {
        m.measure = pl_measure_begin(-1, false);
    }
    return m;
}

static pl_result finish(making *m, pl_result result, pl_ptr *array) {
    int64_t bytes = 0;
    uint64_t key = result == PL_SUCCESS ? (uintptr_t)*array : 0;
    bool measured = m->measured && result == PL_SUCCESS && pl_measure_end(&m->measure, &bytes);
    result = pl_done(&m->request, result, key);
    if (measured && bytes > 0) {
        pl_set_bytes(m->request.kind, m->request.device, key, (uint64_t)bytes);
    }
    return pl_leave(m->request.before, result);
}

pl_result cuArrayCreate(pl_ptr *array, const pl_array_desc_v1 *desc) {
    PL_BEGIN(cuArrayCreate, (array, desc))
    pl_array3d_desc wide = {0};
    if (desc) {
        wide = plane(desc->width, desc->height, desc->format, desc->channels);
    }
    making m = begin(request.before, desc ? &wide : NULL, 1);
    return m.may ? finish(&m, real->cuArrayCreate(array, desc), array)
                 : pl_leave(request.before, PL_OUT_OF_MEMORY);
}

pl_result cuArrayCreate_v2(pl_ptr *array, const pl_array_desc *desc) {
    PL_BEGIN(cuArrayCreate_v2, (array, desc))
    pl_array3d_desc wide = {0};
    if (desc) {
        wide = plane(desc->width, desc->height, desc->format, desc->channels);
    }
    making m = begin(request.before, desc ? &wide : NULL, 1);
    return m.may ? finish(&m, real->cuArrayCreate_v2(array, desc), array)
                 : pl_leave(request.before, PL_OUT_OF_MEMORY);
}

pl_result cuArray3DCreate(pl_ptr *array, const pl_array3d_desc_v1 *desc) {
    PL_BEGIN(cuArray3DCreate, (array, desc))
    pl_array3d_desc wide = {0};
    if (desc) {
        wide = (pl_array3d_desc){.width = desc->width,
                                 .height = desc->height,
                                 .depth = desc->depth,
                                 .format = desc->format,
                                 .channels = desc->channels,
                                 .flags = desc->flags};
    }
    making m = begin(request.before, desc ? &wide : NULL, 1);
    return m.may ? finish(&m, real->cuArray3DCreate(array, desc), array)
                 : pl_leave(request.before, PL_OUT_OF_MEMORY);
}

pl_result cuArray3DCreate_v2(pl_ptr *array, const pl_array3d_desc *desc) {
    PL_BEGIN(cuArray3DCreate_v2, (array, desc))
    making m = begin(request.before, desc, 1);
    return m.may ? finish(&m, real->cuArray3DCreate_v2(array, desc), array)
                 : pl_leave(request.before, PL_OUT_OF_MEMORY);
}

pl_result cuMipmappedArrayCreate(pl_ptr *array, const pl_array3d_desc *desc, unsigned levels) {
    PL_BEGIN(cuMipmappedArrayCreate, (array, desc, levels))
    making m = begin(request.before, desc, levels);
    return m.may ? finish(&m, real->cuMipmappedArrayCreate(array, desc, levels), array)
                 : pl_leave(request.before, PL_OUT_OF_MEMORY);
}

pl_result cuArrayDestroy(pl_ptr array) {
    PL_BEGIN(cuArrayDestroy, (array))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_ARRAY, (uintptr_t)array, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuArrayDestroy(array)));
}

pl_result cuMipmappedArrayDestroy(pl_ptr array) {
    PL_BEGIN(cuMipmappedArrayDestroy, (array))
    cen_ledger_entry entry;
    bool ended = pl_end(CEN_LEDGER_ARRAY, (uintptr_t)array, &entry);
    return pl_leave(request.before, pl_ended(ended, &entry, real->cuMipmappedArrayDestroy(array)));
}
