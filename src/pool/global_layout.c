/* How a block of the global pool would lie over the devices: sizes in whole pages, in order. */
#include "pool/global_int.h"

#include "base/log.h"
#include "base/mem.h"

#define STRIPE_MIN  ((uint64_t)2 << 20)
#define STRIPES     64
#define STRIPES_MAX 65536

static cen_status add_part(ceni_layout *l, int home, uint64_t size) {
    if (!size) {
        return CEN_OK;
    }
    if (ceni_grow(&l->parts, &l->capacity, l->count + 1, sizeof *l->parts)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_global_alloc: no memory for a layout");
    }
    l->parts[l->count++] = (ceni_span_page){.home = home, .size = size};
    return CEN_OK;
}

cen_status ceni_layout_one(cen_global *g, uint64_t size, int home, ceni_layout *layout) {
    (void)g;
    return add_part(layout, home, size);
}

/* The device asked for first, then those it reaches, by number. */
static size_t in_reach(const cen_global *g, int device, int order[CEN_GLOBAL_DEVICES]) {
    size_t count = 0;
    order[count++] = device;
    for (size_t i = 0; i < g->count; i++) {
        if ((int)i != device && g->members[device].reach >> i & 1 &&
            !atomic_load(&g->members[i].lost)) {
            order[count++] = (int)i;
        }
    }
    return count;
}

/* Whole pages in proportion to weights; what rounding leaves goes to the first with a weight, as
 * far as `room` (NULL: unlimited) allows. */
static cen_status by_weight(const cen_global *g, uint64_t size, const int *order, size_t count,
                            const double *weights, const uint64_t *room, ceni_layout *layout) {
    uint64_t unit = g->granularity, part[CEN_GLOBAL_DEVICES] = {0}, left = size;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    for (size_t i = 0; i < count; i++) {
        double share = weights[i] / sum * (double)(size / unit);
        part[i] = (uint64_t)share * unit;
        part[i] = part[i] < left ? part[i] : left;
        part[i] = room && part[i] > room[i] ? room[i] : part[i];
        left -= part[i];
    }
    for (size_t i = 0; i < count && left; i++) {
        uint64_t more = weights[i] > 0 ? left : 0;
        more = room && more > room[i] - part[i] ? room[i] - part[i] : more;
        part[i] += more;
        left -= more;
    }
    if (left) {
        return CEN_ERR_DEVICE_MEMORY;
    }
    cen_status status = CEN_OK;
    for (size_t i = 0; i < count && !status; i++) {
        status = add_part(layout, order[i], part[i]);
    }
    return status;
}

cen_status ceni_layout_by_room(cen_global *g, uint64_t size, int device, ceni_layout *layout) {
    int order[CEN_GLOBAL_DEVICES];
    double weights[CEN_GLOBAL_DEVICES];
    uint64_t room[CEN_GLOBAL_DEVICES], sum = 0;
    size_t count = in_reach(g, device, order);
    for (size_t i = 0; i < count; i++) {
        room[i] = ceni_global_room_of(g, order[i]) / g->granularity * g->granularity;
        weights[i] = (double)room[i];
        sum += room[i];
    }
    layout->placement = CEN_PLACE_WEIGHTED;
    return sum < size ? CEN_ERR_DEVICE_MEMORY
                      : by_weight(g, size, order, count, weights, room, layout);
}

static cen_status weighted(cen_global *g, uint64_t size, int device, const double *given,
                           ceni_layout *layout) {
    int order[CEN_GLOBAL_DEVICES];
    double weights[CEN_GLOBAL_DEVICES], sum = 0;
    size_t count = in_reach(g, device, order);
    for (size_t i = 0; i < g->count; i++) {
        bool in = false;
        for (size_t k = 0; k < count; k++) {
            in = in || order[k] == (int)i;
        }
        if (!(given[i] >= 0 && given[i] <= 1e18)) {
            return ceni_fail(CEN_ERR_INVALID, "cen_global_alloc: weights[%zu] is no weight", i);
        }
        if (given[i] > 0 && !in) {
            return ceni_fail(CEN_ERR_UNSUPPORTED,
                             "cen_global_alloc: device %d cannot reach device %zu", device, i);
        }
    }
    for (size_t i = 0; i < count; i++) {
        weights[i] = given[order[i]];
        sum += weights[i];
    }
    if (!(sum > 0)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_global_alloc: all weights are 0");
    }
    return by_weight(g, size, order, count, weights, NULL, layout);
}

static cen_status striped(cen_global *g, uint64_t size, int device, uint64_t stripe,
                          ceni_layout *layout) {
    int order[CEN_GLOBAL_DEVICES];
    size_t count = in_reach(g, device, order);
    if (!stripe) {
        stripe = size / STRIPES > STRIPE_MIN ? size / STRIPES : STRIPE_MIN;
    }
    if (stripe > size) {
        stripe = size;
    }
    stripe = ceni_global_round(g, stripe);
    if (size / stripe > STRIPES_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_global_alloc: %llu stripes of %llu bytes; at most %d can be mapped",
                         (unsigned long long)(size / stripe), (unsigned long long)stripe,
                         STRIPES_MAX);
    }
    cen_status status = CEN_OK;
    for (uint64_t at = 0, i = 0; at < size && !status; at += stripe, i++) {
        status = add_part(layout, order[i % count], size - at < stripe ? size - at : stripe);
    }
    return status;
}

cen_status ceni_layout_asked(cen_global *g, uint64_t size, int device,
                             const cen_global_request *request, ceni_layout *layout) {
    int order[CEN_GLOBAL_DEVICES];
    size_t count = in_reach(g, device, order);
    double equal[CEN_GLOBAL_DEVICES];
    if (count < 2) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "cen_global_alloc: device %d reaches no peer",
                         device);
    }
    layout->placement = request->placement;
    if (request->placement == CEN_PLACE_STRIPED) {
        return striped(g, size, device, request->stripe_bytes, layout);
    }
    if (request->placement == CEN_PLACE_WEIGHTED) {
        return request->weights ? weighted(g, size, device, request->weights, layout)
                                : ceni_layout_by_room(g, size, device, layout);
    }
    for (size_t i = 0; i < count; i++) {
        equal[i] = 1;
    }
    return by_weight(g, size, order, count, equal, NULL, layout);
}
