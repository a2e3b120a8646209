/* Bytes that a kernel moves at each level, and the operations it executes.
 *
 * A product of [m, k] by [k, n] in tiles: each block reads its rows of A and its columns of B from
 * L2 into shared memory, so A is read once for each column of blocks, and B once for each row.
 * Blocks that run together read the same from HBM once: they are taken to form a rectangle, the
 * best that fits. docs/tile.md has the formulas. */
#include "probe/paper/paper.h"

#include <math.h>
#include <stdio.h>

enum { SUM_BYTES = 4, VECTOR_BYTES = 16, PLAIN_THREADS = 256, PLAIN_REGISTERS = 32 };

/* A product of the chain, with its blocks. */
typedef struct product {
    double m, n, k, padded_k;
    double down, across; /* blocks */
    double a, b;         /* bytes of the operands */
} product;

static double over(double n, double unit) {
    return ceil(n / unit);
}

static product product_of(const ceni_tile *t, const ceni_op *op) {
    const ceni_block *b = &t->block;
    product p = {.m = (double)t->request->m, .n = (double)op->out, .k = (double)op->in};
    p.padded_k = over(p.k, b->bk) * b->bk;
    p.down = over(p.m, b->bm);
    p.across = over(p.n, b->bn);
    p.a = p.m * p.k * b->elem;
    p.b = p.k * p.n * b->elem;
    return p;
}

bool ceni_tile_stays(const ceni_tile *t, uint64_t cols) {
    return (double)t->request->m * (double)cols * t->block.elem <= (double)t->l2_bytes;
}

/* Whether what goes into the operation was left in L2 by the kernel before. */
static bool comes_from_l2(const ceni_tile *t, size_t op) {
    return op && ceni_tile_stays(t, t->chain.ops[op].in);
}

/* The first operation after `from` that multiplies; `to` if there is none. */
static size_t next_product(const ceni_tile *t, size_t from, size_t to) {
    size_t i = from + 1;
    while (i < to && t->chain.ops[i].kind != CENI_OP_LINEAR) {
        i++;
    }
    return i;
}

uint64_t ceni_tile_shared(const ceni_tile *t, size_t from, size_t to) {
    uint64_t most = 0, before = 0;
    if (t->chain.ops[from].kind != CENI_OP_LINEAR) {
        return 0;
    }
    /* A product's rows stay until the next one has read them, which makes rows of its own. */
    for (size_t i = next_product(t, from, to); i < to; i = next_product(t, i, to)) {
        uint64_t rows = t->chain.ops[i].in * t->block.bm * t->block.elem;
        most = before + rows > most ? before + rows : most;
        before = rows;
    }
    return t->block.shared_bytes + most;
}

/* How often A and B are read from HBM: blocks of one wave form a rectangle of `places` at most. */
static void rereads(const product *p, double places, double *a, double *b) {
    double best = INFINITY;
    uint64_t rows = (uint64_t)fmin(p->down, places);
    for (uint64_t h = 1; h <= rows; h++) {
        double w = fmax(1, floor(places / (double)h));
        double ra = over(p->across, w), rb = over(p->down, (double)h);
        if (ra * p->a + rb * p->b < best) {
            best = ra * p->a + rb * p->b;
            *a = ra;
            *b = rb;
        }
    }
}

/* What a product moves between shared memory, registers and the units that multiply. */
static void add_on_chip(const ceni_tile *t, const product *p, cen_tile_kernel *k) {
    const ceni_block *b = &t->block;
    double blocks = p->down * p->across, tile = (double)b->bm * b->bn;
    double edges = (double)b->parts * (b->wm + b->wn); /* of A and B, each part reads its own */
    double sums = blocks * tile * (p->padded_k / b->step) * 2 * SUM_BYTES;
    k->bytes[CEN_TILE_SHARED] += blocks * p->padded_k * edges * b->elem;
    k->bytes[CEN_TILE_REGISTERS] += sums;
    if (b->math == CENI_MATH_CORES) {
        k->bytes[CEN_TILE_REGISTERS] += blocks * tile * p->padded_k * 2 * b->elem;
    } else if (b->math == CENI_MATH_MMA) { /* 16 x 8 sums an instruction */
        double each = (double)b->wm * b->wn;
        k->bytes[CEN_TILE_REGISTERS] +=
            blocks * b->parts * p->padded_k * b->elem * (each / 8 + each / 16);
    }
    k->executed_flops += blocks * tile * p->padded_k * 2;
}

/* A product that is a kernel's first, or alone in it: its blocks cover the result. */
static void add_product(const ceni_tile *t, size_t op, double places, cen_tile_kernel *k) {
    product p = product_of(t, &t->chain.ops[op]);
    double a = 1, b = 1, loads = p.a * p.across + p.b * p.down;
    if (p.a + p.b > (double)t->l2_bytes) {
        rereads(&p, places, &a, &b);
    }
    if (comes_from_l2(t, op)) {
        a = 0;
    }
    k->bytes[CEN_TILE_HBM] += p.a * a + p.b * b;
    k->bytes[CEN_TILE_L2] += loads;
    k->bytes[CEN_TILE_SHARED] += loads;
    add_on_chip(t, &p, k);
}

/* Products one after another in a kernel: a block has whole rows, which stay in shared memory, and
 * goes through all of each weight. */
static void add_products(const ceni_tile *t, size_t from, size_t to, double places,
                         cen_tile_kernel *k) {
    double weights = 0;
    for (size_t i = from; i < to; i = next_product(t, i, to)) {
        weights += product_of(t, &t->chain.ops[i]).b;
    }
    bool stay = weights <= (double)t->l2_bytes;
    for (size_t i = from; i < to; i = next_product(t, i, to)) {
        product p = product_of(t, &t->chain.ops[i]);
        double loads = p.b * p.down + (i == from ? p.a * p.across : 0);
        k->bytes[CEN_TILE_HBM] += p.b * (stay ? 1 : over(p.down, places));
        k->bytes[CEN_TILE_HBM] += i == from && !comes_from_l2(t, i) ? p.a : 0;
        k->bytes[CEN_TILE_L2] += loads;
        k->bytes[CEN_TILE_SHARED] += loads + (i == from ? 0 : p.a); /* the rows are written once */
        add_on_chip(t, &p, k);
    }
}

/* An operation on each element: what comes with it, and the sums that it changes in registers. */
static void add_elements(const ceni_tile *t, size_t op, double down, cen_tile_kernel *k) {
    const ceni_op *o = &t->chain.ops[op];
    double m = (double)t->request->m, operand = ceni_op_operand(o, m) * t->block.elem;
    k->bytes[CEN_TILE_HBM] += operand;
    k->bytes[CEN_TILE_L2] += o->kind == CENI_OP_RESIDUAL ? operand : operand * down;
    k->bytes[CEN_TILE_REGISTERS] += m * (double)o->out * 2 * SUM_BYTES;
    k->flops += m * (double)o->out * ceni_op_flops(o->kind);
}

static void put_name(const ceni_tile *t, size_t from, size_t to, cen_tile_kernel *k) {
    size_t used = 0;
    for (size_t i = from; i < to && used < sizeof k->name; i++) {
        const ceni_op *o = &t->chain.ops[i];
        const char *plus = i > from ? " + " : "";
        int length = o->kind == CENI_OP_LINEAR
                         ? snprintf(k->name + used, sizeof k->name - used, "%slinear %llu", plus,
                                    (unsigned long long)o->out)
                         : snprintf(k->name + used, sizeof k->name - used, "%s%s", plus,
                                    ceni_op_name(o->kind));
        used += (size_t)(length > 0 ? length : 0);
    }
}

static void put_block(const ceni_tile *t, size_t from, size_t to, cen_tile_kernel *k) {
    const ceni_op *first = &t->chain.ops[from];
    double m = (double)t->request->m, blocks;
    if (first->kind == CENI_OP_LINEAR) {
        bool several = next_product(t, from, to) < to;
        product p = product_of(t, first);
        blocks = several ? p.down : p.down * p.across;
        k->threads = t->block.threads;
        k->registers = t->block.registers;
        k->spills = t->block.spills;
        k->shared_bytes = (uint32_t)ceni_tile_shared(t, from, to);
    } else { /* a vector of 16 bytes for each thread */
        blocks = over(over(m * (double)first->out * t->block.elem, VECTOR_BYTES), PLAIN_THREADS);
        k->threads = PLAIN_THREADS;
        k->registers = PLAIN_REGISTERS;
    }
    k->blocks = (uint64_t)blocks;
    k->resident = ceni_resident(t->block.sm, k->threads, k->registers, k->shared_bytes, &k->limit);
    k->occupancy = (double)k->resident * k->threads / CEN_WARP_LANES / CENI_SM_WARPS;
    double places = (double)k->resident * t->multiprocessors;
    k->waves = blocks / places;
    k->tail = (blocks - (over(blocks, places) - 1) * places) / places;
}

/* Against the ceilings, with multiprocessors that have no block or wait for the last ones. */
static void judge(const ceni_tile *t, cen_tile_kernel *k) {
    double blocks = (double)k->blocks, units = t->multiprocessors;
    double busy = blocks / (over(blocks, units) * units);
    cen_traffic traffic[CEN_TILE_LEVELS] = {{.level = NULL}};
    size_t count = 0;
    k->balance = k->executed_flops / busy / k->bytes[CEN_TILE_HBM];
    if (t->bandwidth <= 0 || (t->peak_flops <= 0 && k->executed_flops > 0)) {
        return;
    }
    traffic[count++] = (cen_traffic){.bytes = k->bytes[CEN_TILE_HBM], .bandwidth = t->bandwidth};
    for (int i = CEN_TILE_L2; i <= CEN_TILE_SHARED; i++) {
        const char *name = cen_tile_level_name((cen_tile_level)i);
        const cen_probe_level *level = cen_probe_get_level(t->request->device, name);
        if (level && level->bandwidth_gbps > 0 && k->bytes[i] > 0) {
            traffic[count++] = (cen_traffic){.level = name, .bytes = k->bytes[i]};
        }
    }
    const cen_work work = {.size = sizeof work,
                           .flops = k->executed_flops / busy,
                           .peak_flops = t->peak_flops,
                           .traffic = traffic,
                           .traffic_count = count,
                           .device = t->request->device};
    cen_roofline_result r;
    if (!cen_roofline_judge(&work, &r)) {
        k->judged = true;
        k->bound = r.bound;
        k->seconds = r.seconds;
        snprintf(k->bound_level, sizeof k->bound_level, "%s",
                 r.level ? r.levels[r.level].level : cen_tile_level_name(CEN_TILE_HBM));
    }
}

void ceni_tile_kernel(const ceni_tile *t, size_t from, size_t to, cen_tile_kernel *k) {
    const ceni_op *first = &t->chain.ops[from], *last = &t->chain.ops[to - 1];
    double m = (double)t->request->m, elem = t->block.elem, down = 1;
    *k = (cen_tile_kernel){.name = ""};
    put_name(t, from, to, k);
    put_block(t, from, to, k);
    if (first->kind == CENI_OP_LINEAR) {
        double places = (double)k->resident * t->multiprocessors;
        down = over(m, t->block.bm);
        if (next_product(t, from, to) < to) {
            add_products(t, from, to, places, k);
        } else {
            add_product(t, from, places, k);
        }
    } else {
        double in = m * (double)first->in * elem;
        k->bytes[CEN_TILE_HBM] += comes_from_l2(t, from) ? 0 : in;
        k->bytes[CEN_TILE_L2] += in;
    }
    for (size_t i = from; i < to; i++) {
        if (t->chain.ops[i].kind == CENI_OP_LINEAR) {
            k->flops += 2 * m * (double)t->chain.ops[i].in * (double)t->chain.ops[i].out;
        } else {
            add_elements(t, i, down, k);
        }
    }
    double out = m * (double)last->out * elem;
    k->bytes[CEN_TILE_HBM] += out;
    k->bytes[CEN_TILE_L2] += out;
    for (int i = 0; i < CEN_TILE_LEVELS; i++) {
        k->intensity[i] = k->bytes[i] > 0 ? k->flops / k->bytes[i] : 0;
    }
    judge(t, k);
}
