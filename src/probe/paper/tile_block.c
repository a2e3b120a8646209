/* A block's resources, estimated, and how many blocks a multiprocessor holds.
 *
 * Limits are those of the CUDA C++ Programming Guide's table of technical specifications for
 * compute capability 8.0 and 9.0; registers are given out by warps in units of 256, from four
 * parts of a quarter each, and each block takes 1 KiB of shared memory beside its own. Registers of
 * a thread are estimated: sums, fragments of operands (two sets, one of them in flight), and 32 to
 * 40 for addresses. */
#include "probe/paper/paper.h"

#include "base/log.h"

enum {
    KIB = 1024,
    WARP_REGISTER_UNIT = 256,
    SHARED_UNIT = 128,
    SHARED_OF_SYSTEM = 1024,
    BARRIER_BYTES = 16, /* two of each stage, where TMA fills it */
    PRODUCER_WARPS = 4, /* beside those that multiply, with wgmma */
    MAX_TILE = 1024
};

static const ceni_sm sms[] = {
    {80, 164 * KIB, 163 * KIB, 108, (uint64_t)40 << 20},
    {90, 228 * KIB, 227 * KIB, 132, (uint64_t)50 << 20},
};

const ceni_sm *ceni_sm_find(uint32_t sm) {
    for (size_t i = 0; i < sizeof sms / sizeof *sms; i++) {
        if (sms[i].sm == sm) {
            return &sms[i];
        }
    }
    return NULL;
}

static uint32_t round_up(uint32_t n, uint32_t unit) {
    return (n + unit - 1) / unit * unit;
}

uint32_t ceni_resident(const ceni_sm *sm, uint32_t threads, uint32_t registers, uint64_t shared,
                       const char **limit) {
    uint32_t warps = round_up(threads, CEN_WARP_LANES) / CEN_WARP_LANES;
    uint32_t by_warp = round_up(registers * CEN_WARP_LANES, WARP_REGISTER_UNIT);
    uint64_t bytes = (shared + SHARED_OF_SYSTEM + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
    const struct {
        uint64_t blocks;
        const char *name;
    } limits[] = {
        {CENI_SM_WARPS / warps, "warps"},
        {CENI_SM_BLOCKS, "blocks"},
        {CENI_SM_REGISTERS / by_warp / 4 * 4 / warps, "registers"},
        {sm->shared_bytes / bytes, "shared memory"},
    };
    size_t least = 0;
    for (size_t i = 1; i < sizeof limits / sizeof *limits; i++) {
        least = limits[i].blocks < limits[least].blocks ? i : least;
    }
    *limit = limits[least].name;
    return (uint32_t)limits[least].blocks;
}

static uint64_t blocks_of(const cen_tile_request *r, uint64_t widest, const ceni_block *b) {
    return ((r->m + b->bm - 1) / b->bm) * ((widest + b->bn - 1) / b->bn);
}

/* A tile of twice the rows or columns that there are would multiply zeros with half of it, and with
 * fewer tiles than multiprocessors some have nothing to do. */
static void shrink_tile(const cen_tile_request *r, uint64_t widest, uint32_t units, ceni_block *b) {
    uint32_t rows = b->math == CENI_MATH_WGMMA ? 64 : 16;
    while (b->bm > rows && b->bm / 2 >= r->m) {
        b->bm /= 2;
    }
    while (b->bn > 32 && b->bn / 2 >= widest) {
        b->bn /= 2;
    }
    while (b->bn > 64 && blocks_of(r, widest, b) < units) {
        b->bn /= 2;
    }
    while (b->bm > 64 && blocks_of(r, widest, b) < units) {
        b->bm /= 2;
    }
}

static void choose_tile(const cen_tile_request *r, uint64_t widest, uint32_t units, ceni_block *b) {
    bool wgmma = b->math == CENI_MATH_WGMMA, cores = b->math == CENI_MATH_CORES;
    b->stages = r->stages ? r->stages : cores ? 3 : 4;
    if (r->bm || r->bn || r->bk) {
        b->bm = r->bm;
        b->bn = r->bn;
        b->bk = r->bk;
        return;
    }
    b->bm = 128;
    b->bn = wgmma ? 256 : 128;
    b->bk = cores ? 16 : (wgmma ? 128 : 64) / b->elem;
    shrink_tile(r, widest, units, b);
}

static cen_status check_tile(const ceni_block *b) {
    uint32_t rows = b->math == CENI_MATH_WGMMA ? 64 : b->math == CENI_MATH_MMA ? 16 : 1;
    uint32_t columns = b->math == CENI_MATH_CORES ? 1 : 8;
    if (!b->bm || !b->bn || !b->bk || b->bm > MAX_TILE || b->bn > MAX_TILE || b->bk > MAX_TILE) {
        return ceni_fail(CEN_ERR_INVALID, "tile %ux%ux%u: each of the three is from 1 to %d", b->bm,
                         b->bn, b->bk, MAX_TILE);
    }
    if (b->bm % rows || b->bn % columns || b->bk % b->step) {
        return ceni_fail(CEN_ERR_INVALID,
                         "tile %ux%ux%u: its instructions take multiples of %ux%ux%u", b->bm, b->bn,
                         b->bk, rows, columns, b->step);
    }
    return CEN_OK;
}

/* Divides the tile into `parts` as square as can be; false: it cannot be divided so. */
static bool divide(ceni_block *b, uint32_t parts) {
    uint32_t rows = b->math == CENI_MATH_WGMMA ? 64 : b->math == CENI_MATH_MMA ? 16 : 1;
    uint32_t columns = b->math == CENI_MATH_CORES ? 1 : 8, best = UINT32_MAX;
    for (uint32_t down = 1; down <= parts; down++) {
        uint32_t across = parts / down;
        if (parts % down || b->bm % (down * rows) || b->bn % (across * columns)) {
            continue;
        }
        uint32_t wm = b->bm / down, wn = b->bn / across;
        if (wm + wn < best && (b->math != CENI_MATH_CORES || wm * wn >= CEN_WARP_LANES)) {
            best = wm + wn;
            b->parts = parts;
            b->wm = wm;
            b->wn = wn;
        }
    }
    return best != UINT32_MAX;
}

/* As many warps as leave a thread 64 sums, or 128 of wgmma's; fewer if the tile does not divide. */
static cen_status choose_warps(const cen_tile_request *r, ceni_block *b) {
    uint32_t each = b->math == CENI_MATH_WGMMA ? 4 : 1, sums = each == 4 ? 128 : 64, parts = 1;
    if (r->warps) {
        b->warps = r->warps;
        if (r->warps > 32 || r->warps % each || !divide(b, r->warps / each)) {
            return ceni_fail(CEN_ERR_INVALID, "%u warps do not share a tile of %ux%u evenly%s",
                             r->warps, b->bm, b->bn,
                             each == 4 ? "; with wgmma four go together" : "");
        }
        return CEN_OK;
    }
    while (parts * 2 * each <= 16 && parts * 2 * each * CEN_WARP_LANES * sums <= b->bm * b->bn) {
        parts *= 2;
    }
    while (parts && !divide(b, parts)) {
        parts /= 2;
    }
    b->warps = parts * each;
    return parts ? CEN_OK
                 : ceni_fail(CEN_ERR_INVALID, "tile %ux%u: too few elements for a warp", b->bm,
                             b->bn);
}

/* Elements of each operand that a thread of the ordinary cores holds for its part of the sums. */
static uint32_t thread_edges(const ceni_block *b) {
    uint32_t best = UINT32_MAX;
    for (uint32_t down = 1; down <= CEN_WARP_LANES; down *= 2) {
        uint32_t across = CEN_WARP_LANES / down;
        uint32_t edges = (b->wm + down - 1) / down + (b->wn + across - 1) / across;
        best = edges < best ? edges : best;
    }
    return best;
}

static void estimate_registers(ceni_block *b) {
    uint32_t lanes = b->warps * CEN_WARP_LANES, registers = (b->bm * b->bn + lanes - 1) / lanes;
    switch (b->math) {
    case CENI_MATH_CORES:
        registers += 2 * thread_edges(b) + 32;
        break;
    case CENI_MATH_MMA: /* an instruction's columns of K are 32 bytes */
        registers += 2 * ((b->wm + b->wn) * 32 / (CEN_WARP_LANES * 4)) + 40;
        break;
    default: /* operands come from shared memory */
        registers += 40;
    }
    registers = round_up(registers, 8);
    b->spills = registers > CENI_REGISTERS;
    b->registers = b->spills ? CENI_REGISTERS : registers;
}

static cen_status check_fit(const ceni_block *b, uint64_t shared) {
    const char *limit;
    if (shared > b->sm->shared_block_bytes) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%u stages of %ux%ux%u take %llu bytes of shared memory; a block of sm_%u "
                         "has at most %u",
                         b->stages, b->bm, b->bn, b->bk, (unsigned long long)shared, b->sm->sm,
                         b->sm->shared_block_bytes);
    }
    if (b->threads > 1024 || !ceni_resident(b->sm, b->threads, b->registers, shared, &limit)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "a block of %u threads with %u registers each does not fit into a "
                         "multiprocessor; give a smaller tile or other warps",
                         b->threads, b->registers);
    }
    return CEN_OK;
}

uint32_t ceni_multiplied_bytes(cen_dtype dtype) {
    switch (dtype) {
    case CEN_FP32:
    case CEN_TF32:
    case CEN_FP16:
    case CEN_BF16:
    case CEN_FP8_E4M3:
    case CEN_FP8_E5M2:
    case CEN_INT8:
        return cen_dtype_bits(dtype) / 8;
    default:
        return 0;
    }
}

cen_status ceni_block_make(const cen_tile_request *r, uint64_t widest, uint32_t units,
                           ceni_block *b) {
    *b = (ceni_block){.sm = ceni_sm_find(r->sm ? r->sm : 90),
                      .elem = ceni_multiplied_bytes(r->type)};
    if (b->sm->sm == 80 && (r->type == CEN_FP8_E4M3 || r->type == CEN_FP8_E5M2)) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "sm_80 does not multiply fp8");
    }
    b->math = r->type == CEN_FP32 ? CENI_MATH_CORES
              : b->sm->sm == 80   ? CENI_MATH_MMA
                                  : CENI_MATH_WGMMA;
    b->step = b->math == CENI_MATH_CORES ? 1 : 32 / b->elem;
    choose_tile(r, widest, units, b);
    cen_status status = check_tile(b);
    if (!status) {
        status = choose_warps(r, b);
    }
    if (status) {
        return status;
    }
    bool wgmma = b->math == CENI_MATH_WGMMA;
    b->threads = (b->warps + (wgmma ? PRODUCER_WARPS : 0)) * CEN_WARP_LANES;
    estimate_registers(b);
    uint64_t stage = (uint64_t)(b->bm + b->bn) * b->bk * b->elem + (wgmma ? BARRIER_BYTES : 0);
    status = check_fit(b, stage * b->stages);
    b->shared_bytes = (uint32_t)(stage * b->stages);
    return status;
}
