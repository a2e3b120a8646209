/* How a block of the global pool would lie over the devices: sizes in whole pages, in order. */
#include "pool/global_int.h"

#include <math.h>

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

/* Whole pages in proportion to weights, each part rounded by at most one page; what the limits in
 * `room` (NULL: none) leave over goes to whoever has room. */
static cen_status by_weight(const cen_global *g, uint64_t size, const int *order, size_t count,
                            const double *weights, const uint64_t *room, ceni_layout *layout) {
    uint64_t unit = g->granularity, pages = size / unit, left = size;
    uint64_t part[CEN_GLOBAL_DEVICES] = {0};
    double sum = 0, until = 0;
    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    for (size_t i = 0; i < count; i++) {
        until += weights[i]; /* parts end where the share of all so far does */
        uint64_t end = (uint64_t)ceil(until / sum * (double)pages - 1e-9) * unit;
        uint64_t begin = size - left;
        part[i] = weights[i] > 0 && end > begin ? end - begin : 0;
        part[i] = part[i] < left ? part[i] : left;
        left -= part[i];
    }
    for (size_t i = 0; i < count && room; i++) {
        uint64_t over = part[i] > room[i] ? part[i] - room[i] : 0;
        part[i] -= over;
        left += over;
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

/* The weights of the devices in reach, in their order; NULL: equal ones. */
static cen_status read_weights(const cen_global *g, int device, const double *given,
                               const int *order, size_t count, double *weights) {
    double sum = 0;
    for (size_t i = 0; i < count && !given; i++) {
        weights[i] = 1;
    }
    if (!given) {
        return CEN_OK;
    }
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
    return sum > 0 ? CEN_OK : ceni_fail(CEN_ERR_INVALID, "cen_global_alloc: all weights are 0");
}

/* Who is next: the one that is farthest behind its share of what was dealt so far. */
static size_t deal(double *credit, const double *weights, size_t count) {
    size_t next = 0;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
        credit[i] += weights[i];
        next = credit[i] > credit[next] ? i : next;
    }
    credit[next] -= sum;
    return next;
}

static cen_status striped(const cen_global *g, uint64_t size, const int *order, size_t count,
                          const double *weights, uint64_t stripe, ceni_layout *layout) {
    double credit[CEN_GLOBAL_DEVICES] = {0};
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
    for (uint64_t at = 0; at < size && !status; at += stripe) {
        size_t next = deal(credit, weights, count);
        status = add_part(layout, order[next], size - at < stripe ? size - at : stripe);
    }
    return status;
}

cen_status ceni_layout_asked(cen_global *g, uint64_t size, int device,
                             const cen_global_request *request, ceni_layout *layout) {
    int order[CEN_GLOBAL_DEVICES];
    size_t count = in_reach(g, device, order);
    double weights[CEN_GLOBAL_DEVICES];
    if (count < 2) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "cen_global_alloc: device %d reaches no peer",
                         device);
    }
    layout->placement = request->placement;
    if (request->placement == CEN_PLACE_WEIGHTED && !request->weights) {
        return ceni_layout_by_room(g, size, device, layout);
    }
    const double *given = request->placement == CEN_PLACE_SPLIT ? NULL : request->weights;
    cen_status status = read_weights(g, device, given, order, count, weights);
    if (status) {
        return status;
    }
    return request->placement == CEN_PLACE_STRIPED
               ? striped(g, size, order, count, weights, request->stripe_bytes, layout)
               : by_weight(g, size, order, count, weights, NULL, layout);
}
