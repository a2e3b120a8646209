/* Verdicts: what bounds a kernel, by the busiest of what it needs, and what to try first. The
 * thresholds, with their reasons, are in docs/profile.md. */
#include "probe/profile.h"

/* From this share on, what is busiest holds the kernel up; below it, nothing is busy enough to. */
static const double BUSY = 0.6;
/* A launch that takes less is not much longer than launching it. */
static const double SHORT_SECONDS = 5e-6;
/* Of the 32 bytes of a sector: less is used of what is moved for its neighbours' sake. */
static const double HALF_A_SECTOR = 16;
/* Wavefronts beyond the ideal that are worth a change of layout. */
static const double CONFLICTS = 1.2;
/* Of the warps that fit: below it, more of them would hide more latency. */
static const double FEW_WARPS = 0.5;
/* Nothing left to gain but by moving or computing less. */
static const double NEAR = 0.8;
/* DRAM gives little more than nine tenths of its nominal peak. From this share on it is what L2
 * waits for, if most of what L2 is asked for is not in it: what it fetches is work of its own, too.
 */
static const double DRAM_FULL = 0.75;
static const double FEW_HITS = 0.5;

const char *cen_profile_bound_name(cen_profile_bound bound) {
    static const char *const texts[] = {
#define CENI_BOUND_TEXT(name, text) text,
        CEN_PROFILE_BOUND_MAP(CENI_BOUND_TEXT)
#undef CENI_BOUND_TEXT
    };
    return (unsigned)bound < CEN_PROFILE_BOUNDS ? texts[bound] : "?";
}

static bool has(const cen_profile_row *row, cen_profile_figure figure) {
    return !row->figures[figure].missing;
}

static double get(const cen_profile_row *row, cen_profile_figure figure) {
    return row->figures[figure].value;
}

static double percent(const cen_profile_row *row, cen_profile_figure figure) {
    return 100 * get(row, figure);
}

static bool below(const cen_profile_row *row, cen_profile_figure figure, double value) {
    return has(row, figure) && get(row, figure) < value;
}

/* ---- what to try ---- */

/* Loads and stores that use few bytes of what they move; NULL: none do. */
static const char *try_coalesced(cen_profile *p, const cen_profile_row *row) {
    bool loads = below(row, CEN_PROFILE_LOAD_BYTES, HALF_A_SECTOR);
    bool stores = below(row, CEN_PROFILE_STORE_BYTES, HALF_A_SECTOR);
    cen_profile_figure worse = CEN_PROFILE_LOAD_BYTES;
    if (!loads && !stores) {
        return NULL;
    }
    if (!loads ||
        (stores && get(row, CEN_PROFILE_STORE_BYTES) < get(row, CEN_PROFILE_LOAD_BYTES))) {
        worse = CEN_PROFILE_STORE_BYTES;
    }
    return ceni_profile_text(
        p,
        "uncoalesced %s use %.1f of each 32-byte sector: let neighbouring threads touch "
        "neighbouring addresses, turning tiles in shared memory if need be",
        worse == CEN_PROFILE_LOAD_BYTES ? "loads" : "stores", get(row, worse));
}

static const char *try_dram(cen_profile *p, const cen_profile_row *row) {
    if (below(row, CEN_PROFILE_L2_HIT, CEN_PROFILE_L2_HIT_LOW) &&
        get(row, CEN_PROFILE_DRAM_SHARE) < NEAR) {
        return ceni_profile_text(p,
                                 "L2 hits %.0f%%: let blocks that run at a time share what they "
                                 "read, in tiles that L2 holds",
                                 percent(row, CEN_PROFILE_L2_HIT));
    }
    return "move fewer bytes: fuse it with the kernel before or after, or store a narrower type";
}

static const char *try_l1(cen_profile *p, const cen_profile_row *row) {
    if (has(row, CEN_PROFILE_BANK_RATIO) && get(row, CEN_PROFILE_BANK_RATIO) > CONFLICTS) {
        return ceni_profile_text(p,
                                 "bank conflicts make %.1f times the wavefronts: pad or swizzle "
                                 "the tile; 'cenote banks' finds how",
                                 get(row, CEN_PROFILE_BANK_RATIO));
    }
    return "reuse more in registers: several results a thread, and loads of 16 bytes";
}

static const char *try_compute(const cen_profile_row *row) {
    double scalar = get(row, CEN_PROFILE_FP32) + get(row, CEN_PROFILE_FP16);
    if (has(row, CEN_PROFILE_FP32) && has(row, CEN_PROFILE_TENSOR) &&
        scalar > get(row, CEN_PROFILE_TENSOR)) {
        return "tensor cores are idle: if it is a product, bf16, fp16 or tf32 on them is faster";
    }
    return "compute less: a narrower type, or fewer instructions around the arithmetic";
}

static const char *try_latency(cen_profile *p, const cen_profile_row *row) {
    if (below(row, CEN_PROFILE_OCCUPANCY_MOST, FEW_WARPS) && *row->limit) {
        return ceni_profile_text(p,
                                 "%s allow only %.0f%% of the warps: use less of them a block, so "
                                 "that more warps hide the latency",
                                 row->limit, percent(row, CEN_PROFILE_OCCUPANCY_MOST));
    }
    if (below(row, CEN_PROFILE_OCCUPANCY, FEW_WARPS)) {
        return ceni_profile_text(p,
                                 "only %.0f%% of the warps are there: more blocks or warps, or "
                                 "several loads in flight in each thread",
                                 percent(row, CEN_PROFILE_OCCUPANCY));
    }
    return "more work in flight in each thread: unrolled or asynchronous loads, fewer barriers";
}

static const char *try_small(cen_profile *p, const cen_profile_row *row) {
    if (below(row, CEN_PROFILE_WAVES, 1)) {
        return ceni_profile_text(p,
                                 "its blocks fill %.0f%% of the device: split the work over more "
                                 "of them, or run it beside other kernels",
                                 percent(row, CEN_PROFILE_WAVES));
    }
    return "launches cost as much as the work: fuse it with its neighbours, or launch a graph";
}

static const char *find_advice(cen_profile *p, const cen_profile_row *row) {
    bool memory = row->bound == CEN_PROFILE_BY_DRAM || row->bound == CEN_PROFILE_BY_L2 ||
                  row->bound == CEN_PROFILE_BY_L1;
    bool conflicts = row->bound == CEN_PROFILE_BY_L1 && has(row, CEN_PROFILE_BANK_RATIO) &&
                     get(row, CEN_PROFILE_BANK_RATIO) > CONFLICTS;
    const char *advice = memory && !conflicts ? try_coalesced(p, row) : NULL;
    if (advice) {
        return advice;
    }
    switch (row->bound) {
    case CEN_PROFILE_BY_DRAM:
        return try_dram(p, row);
    case CEN_PROFILE_BY_L2:
        return "keep what is read again closer: tiles in shared memory, larger ones if it has them";
    case CEN_PROFILE_BY_L1:
        return try_l1(p, row);
    case CEN_PROFILE_BY_COMPUTE:
        return try_compute(row);
    case CEN_PROFILE_BY_LATENCY:
        return try_latency(p, row);
    case CEN_PROFILE_BY_SMALL:
        return try_small(p, row);
    default:
        return "";
    }
}

/* ---- what bounds it ---- */

static const struct {
    cen_profile_figure figure;
    cen_profile_bound bound;
} ceilings[] = {{CEN_PROFILE_DRAM_SHARE, CEN_PROFILE_BY_DRAM},
                {CEN_PROFILE_L2_SHARE, CEN_PROFILE_BY_L2},
                {CEN_PROFILE_L1_SHARE, CEN_PROFILE_BY_L1},
                {CEN_PROFILE_COMPUTE_SHARE, CEN_PROFILE_BY_COMPUTE}};
enum { CEILINGS = sizeof ceilings / sizeof *ceilings };

/* Short launches, and such as do not fill the device. */
static bool is_small(const cen_profile_row *row) {
    return below(row, CEN_PROFILE_SECONDS, SHORT_SECONDS * (double)row->launches) ||
           below(row, CEN_PROFILE_WAVES, 1);
}

static void decide(cen_profile_row *row) {
    for (size_t i = 0; i < CEILINGS; i++) {
        double share = get(row, ceilings[i].figure);
        if (share > row->bound_share) {
            row->bound_share = share;
            row->bound = ceilings[i].bound;
        }
    }
    if (row->bound == CEN_PROFILE_BY_L2 && below(row, CEN_PROFILE_L2_HIT, FEW_HITS) &&
        get(row, CEN_PROFILE_DRAM_SHARE) >= DRAM_FULL) {
        row->bound = CEN_PROFILE_BY_DRAM;
        row->bound_share = get(row, CEN_PROFILE_DRAM_SHARE);
    }
    if (row->bound_share < BUSY) {
        row->bound_share = 0;
        row->bound = is_small(row) ? CEN_PROFILE_BY_SMALL : CEN_PROFILE_BY_LATENCY;
    }
}

void ceni_profile_judge(cen_profile *profile, ceni_profile_row *row) {
    cen_profile_row *out = &row->out;
    for (size_t i = 0; i < CEILINGS; i++) {
        if (!has(out, ceilings[i].figure)) {
            out->bound = CEN_PROFILE_BY_UNKNOWN;
            out->reason = out->figures[ceilings[i].figure].missing;
            out->advice = "";
            return;
        }
    }
    decide(out);
    out->reason = ceni_profile_text(
        profile, "of their peaks: DRAM %.0f%%, L2 %.0f%%, L1 %.0f%%, compute %.0f%%",
        percent(out, CEN_PROFILE_DRAM_SHARE), percent(out, CEN_PROFILE_L2_SHARE),
        percent(out, CEN_PROFILE_L1_SHARE), percent(out, CEN_PROFILE_COMPUTE_SHARE));
    out->advice = find_advice(profile, out);
}
