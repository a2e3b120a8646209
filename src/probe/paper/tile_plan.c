/* The chain as kernels, one for each operation and fused, and where everything lives in both. */
#include "probe/paper/paper.h"

#include "probe/results.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PLACES = 2 * CENI_CHAIN_MAX + 3 };

/* The map with the arrays that it points to. */
typedef struct whole {
    cen_tile_map map;
    cen_tile_kernel unfused[CENI_CHAIN_MAX], fused[CENI_CHAIN_MAX];
    cen_tile_place places[MAX_PLACES];
    size_t starts[CENI_CHAIN_MAX + 1]; /* of the fused kernels, in operations */
} whole;

const char *cen_tile_level_name(cen_tile_level level) {
    static const char *const names[] = {CEN_LEVEL_HBM, CEN_LEVEL_L2, CEN_LEVEL_SHARED,
                                        CEN_LEVEL_REGISTERS};
    return (int)level >= 0 && level <= CEN_TILE_REGISTERS ? names[level] : "?";
}

const char *cen_tile_kind_name(cen_tile_kind kind) {
    static const char *const names[] = {"operand", "intermediate", "result", "buffer"};
    return (int)kind >= 0 && kind <= CEN_TILE_BUFFER ? names[kind] : "?";
}

/* The end of the fused kernel that begins with the operation: elementwise operations go along with
 * what made their input, and another product does where the rows between fit beside its tiles. */
static size_t fused_end(const ceni_tile *t, size_t from) {
    const ceni_op *ops = t->chain.ops;
    size_t to = from + 1;
    for (; to < t->chain.count; to++) {
        if (ops[to].kind == CENI_OP_LINEAR &&
            (ops[from].kind != CENI_OP_LINEAR ||
             ceni_tile_shared(t, from, to + 1) > t->block.sm->shared_block_bytes)) {
            break;
        }
    }
    return to;
}

static void add_up(cen_tile_plan *plan, const cen_tile_kernel *kernels, size_t count) {
    *plan = (cen_tile_plan){.kernels = kernels, .count = count, .judged = true};
    for (size_t i = 0; i < count; i++) {
        for (int level = 0; level < CEN_TILE_LEVELS; level++) {
            plan->bytes[level] += kernels[i].bytes[level];
        }
        plan->judged = plan->judged && kernels[i].judged;
        plan->seconds += kernels[i].seconds;
    }
    plan->seconds = plan->judged ? plan->seconds : 0;
}

static void add_place(whole *w, cen_tile_place place, double elem) {
    place.bytes = (double)place.rows * (double)place.cols * elem;
    w->places[w->map.place_count++] = place;
}

/* Where the result of an operation that is not the last lives until the next one has read it. */
static cen_tile_level between(const ceni_tile *t, size_t op) {
    return ceni_tile_stays(t, t->chain.ops[op].out) ? CEN_TILE_L2 : CEN_TILE_HBM;
}

static cen_tile_level fused_between(const ceni_tile *t, const whole *w, size_t op) {
    for (size_t i = 0; i < w->map.fused.count; i++) {
        if (w->starts[i] == op + 1) {
            return between(t, op);
        }
    }
    return t->chain.ops[op + 1].kind == CENI_OP_LINEAR ? CEN_TILE_SHARED : CEN_TILE_REGISTERS;
}

static void put_op_places(const ceni_tile *t, whole *w, size_t i) {
    const ceni_op *op = &t->chain.ops[i];
    bool last = i + 1 == t->chain.count, linear = op->kind == CENI_OP_LINEAR;
    double operand = ceni_op_operand(op, (double)t->request->m);
    cen_tile_place place = {.kind = CEN_TILE_OPERAND, .cols = op->out};
    if (operand > 0) {
        place.rows = linear ? op->in : op->kind == CENI_OP_RESIDUAL ? t->request->m : 1;
        snprintf(place.name, sizeof place.name, "%s of %s %zu", linear ? "weight" : "operand",
                 ceni_op_name(op->kind), i + 1);
        add_place(w, place, t->block.elem);
    }
    place = (cen_tile_place){.kind = last ? CEN_TILE_RESULT : CEN_TILE_INTERMEDIATE,
                             .rows = t->request->m,
                             .cols = op->out};
    snprintf(place.name, sizeof place.name, "after %s %zu", ceni_op_name(op->kind), i + 1);
    place.unfused = last ? CEN_TILE_HBM : between(t, i);
    place.fused = last ? CEN_TILE_HBM : fused_between(t, w, i);
    add_place(w, place, t->block.elem);
}

static void put_places(const ceni_tile *t, whole *w) {
    const ceni_block *b = &t->block;
    add_place(w,
              (cen_tile_place){.name = "input",
                               .kind = CEN_TILE_OPERAND,
                               .rows = t->request->m,
                               .cols = t->request->k},
              b->elem);
    for (size_t i = 0; i < t->chain.count; i++) {
        put_op_places(t, w, i);
    }
    if (t->has_product) {
        add_place(w,
                  (cen_tile_place){.name = "tiles in flight, a block",
                                   .kind = CEN_TILE_BUFFER,
                                   .rows = (uint64_t)b->stages * (b->bm + b->bn),
                                   .cols = b->bk,
                                   .unfused = CEN_TILE_SHARED,
                                   .fused = CEN_TILE_SHARED},
                  b->elem);
        add_place(w,
                  (cen_tile_place){.name = "sums, a block",
                                   .kind = CEN_TILE_BUFFER,
                                   .rows = b->bm,
                                   .cols = b->bn,
                                   .unfused = CEN_TILE_REGISTERS,
                                   .fused = CEN_TILE_REGISTERS},
                  4);
    }
    w->map.places = w->places;
}

static void put_plans(const ceni_tile *t, whole *w) {
    size_t count = 0;
    for (size_t i = 0; i < t->chain.count; i++) {
        ceni_tile_kernel(t, i, i + 1, &w->unfused[i]);
        w->map.flops += w->unfused[i].flops;
    }
    add_up(&w->map.unfused, w->unfused, t->chain.count);
    for (size_t from = 0; from < t->chain.count;) {
        size_t to = fused_end(t, from);
        w->starts[count] = from;
        ceni_tile_kernel(t, from, to, &w->fused[count++]);
        from = to;
    }
    add_up(&w->map.fused, w->fused, count);
}

static cen_status check(const cen_tile_request *r) {
    if (!r) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tile_make: request is NULL");
    }
    if (r->size != sizeof *r) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tile_make: request.size is %zu; %zu is expected",
                         r->size, sizeof *r);
    }
    if (!r->m || !r->n || !r->k || r->m > INT32_MAX || r->n > INT32_MAX || r->k > INT32_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_tile_make: m, n and k are %llu, %llu and %llu; they are from 1 to "
                         "2147483647",
                         (unsigned long long)r->m, (unsigned long long)r->n,
                         (unsigned long long)r->k);
    }
    if (!ceni_multiplied_bytes(r->type)) {
        return ceni_fail(
            CEN_ERR_INVALID,
            "cen_tile_make: type %s (%d) is none of fp32, tf32, fp16, bf16, fp8 and int8",
            cen_dtype_name(r->type), (int)r->type);
    }
    if (r->sm && !ceni_sm_find(r->sm)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tile_make: sm_%u is neither sm_80 nor sm_90", r->sm);
    }
    if (r->stages > 64 || r->multiprocessors > CENI_MULTIPROCESSORS) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_tile_make: %u stages, of at most 64; %u multiprocessors, of at most "
                         "%d",
                         r->stages, r->multiprocessors, CENI_MULTIPROCESSORS);
    }
    if (!(r->peak_flops >= 0) || !(r->bandwidth >= 0) || isinf(r->peak_flops) ||
        isinf(r->bandwidth)) {
        return ceni_fail(
            CEN_ERR_INVALID,
            "cen_tile_make: peak_flops is %g, bandwidth %g; they are finite, and at least 0",
            r->peak_flops, r->bandwidth);
    }
    return CEN_OK;
}

/* What the request leaves open comes from the device's results, else from the architecture. */
static cen_status settle(const cen_tile_request *r, ceni_tile *t) {
    const cen_probe_level *l2 = cen_probe_get_level(r->device, CEN_LEVEL_L2);
    const cen_probe_level *memory = cen_probe_get_memory(r->device);
    uint32_t counted = r->device ? r->device->multiprocessors : 0;
    uint64_t widest = 0;
    const ceni_sm *sm = ceni_sm_find(r->sm ? r->sm : 90);
    *t = (ceni_tile){.request = r};
    t->multiprocessors = r->multiprocessors ? r->multiprocessors
                         : counted          ? counted
                                            : sm->multiprocessors;
    cen_status status = ceni_chain_parse(r->chain ? r->chain : "linear", r->k, r->n, &t->chain);
    for (size_t i = 0; !status && i < t->chain.count; i++) {
        if (t->chain.ops[i].kind == CENI_OP_LINEAR) {
            t->has_product = true;
            widest = t->chain.ops[i].out > widest ? t->chain.ops[i].out : widest;
        }
    }
    if (!status) {
        status = ceni_block_make(r, widest ? widest : r->n, t->multiprocessors, &t->block);
    }
    if (status) {
        return status;
    }
    t->l2_bytes = r->l2_bytes                ? r->l2_bytes
                  : l2 && l2->capacity_bytes ? l2->capacity_bytes
                                             : sm->l2_bytes;
    t->peak_flops =
        r->peak_flops > 0 ? r->peak_flops : cen_probe_get_rate(r->device, cen_dtype_name(r->type));
    t->bandwidth = r->bandwidth > 0 ? r->bandwidth : memory ? memory->bandwidth_gbps * 1e9 : 0;
    return CEN_OK;
}

cen_status cen_tile_make(const cen_tile_request *request, cen_tile_map **map) {
    ceni_tile tile;
    cen_status status = check(request);
    if (!status && !map) {
        status = ceni_fail(CEN_ERR_INVALID, "cen_tile_make: map is NULL");
    }
    if (!status) {
        status = settle(request, &tile);
    }
    if (status) {
        return status;
    }
    whole *w = ceni_calloc(1, sizeof *w);
    if (!w) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_tile_make: no memory for the map");
    }
    const ceni_block *b = &tile.block;
    w->map = (cen_tile_map){.type = request->type,
                            .sm = b->sm->sm,
                            .bm = b->bm,
                            .bn = b->bn,
                            .bk = b->bk,
                            .stages = b->stages,
                            .warps = b->warps,
                            .multiprocessors = tile.multiprocessors,
                            .l2_bytes = tile.l2_bytes,
                            .has_product = tile.has_product,
                            .peak_flops = tile.peak_flops,
                            .bandwidth = tile.bandwidth};
    put_plans(&tile, w);
    put_places(&tile, w);
    *map = &w->map;
    return CEN_OK;
}

void cen_tile_free(cen_tile_map *map) {
    ceni_free(map); /* the first member of the whole */
}
