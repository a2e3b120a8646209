/* A row's figures from the sums of its counters. A figure needs its counters in every launch;
 * docs/profile.md has the formulas. */
#include "probe/profile.h"

#include "base/log.h"

#include <math.h>

const char *cen_profile_key(cen_profile_figure figure) {
    static const char *const keys[] = {
#define CENI_KEY(name, key, unit) key,
        CEN_PROFILE_FIGURE_MAP(CENI_KEY)
#undef CENI_KEY
    };
    return (unsigned)figure < CEN_PROFILE_FIGURES ? keys[figure] : "?";
}

/* A row that is worked on. */
typedef struct work {
    cen_profile *profile;
    ceni_profile_row *row;
} work;

static bool known(const work *w, ceni_term term) {
    return w->row->sums[term].known == w->row->out.launches;
}

static double total(const work *w, ceni_term term) {
    return w->row->sums[term].total;
}

/* The mean over the time of the launches; over the launches where a time is not known. */
static double mean(const work *w, ceni_term term) {
    const ceni_sum *sum = &w->row->sums[term];
    double time = known(w, CENI_TIME) ? total(w, CENI_TIME) : 0;
    return time > 0 ? sum->timed / time : sum->total / (double)sum->known;
}

static void lack(work *w, cen_profile_figure figure, const char *why) {
    w->row->out.figures[figure] = (cen_profile_value){.missing = why};
}

static void lack_term(work *w, cen_profile_figure figure, ceni_term term) {
    const ceni_sum *sum = &w->row->sums[term];
    const char *name = ceni_term_name(term);
    if (*sum->odd) {
        lack(w, figure, ceni_profile_text(w->profile, "%s is '%s'", name, sum->odd));
    } else {
        lack(w, figure, ceni_profile_text(w->profile, "%s is not in the recording", name));
    }
}

static void set(work *w, cen_profile_figure figure, double value) {
    if (isfinite(value)) {
        w->row->out.figures[figure] = (cen_profile_value){.value = value};
    } else {
        lack(w, figure, "out of range");
    }
}

static void set_mean(work *w, cen_profile_figure figure, ceni_term term) {
    if (known(w, term)) {
        set(w, figure, mean(w, term));
    } else {
        lack_term(w, figure, term);
    }
}

static void set_total(work *w, cen_profile_figure figure, ceni_term term) {
    if (known(w, term)) {
        set(w, figure, total(w, term));
    } else {
        lack_term(w, figure, term);
    }
}

/* ---- bytes ---- */

/* Means of ratios weigh as much as the sectors that they are of. */
static void set_sector(work *w, cen_profile_figure figure, ceni_term term, ceni_term sectors,
                       const char *none) {
    if (known(w, sectors) && total(w, sectors) <= 0) {
        lack(w, figure, none);
    } else {
        set_mean(w, figure, term);
    }
}

/* What the instructions' addresses make necessary, where it was recorded: the counter of the unit
 * counts what waits for others, too. */
static void set_banks(work *w) {
    bool exact = known(w, CENI_SHARED) && known(w, CENI_SHARED_IDEAL);
    ceni_term all = exact ? CENI_SHARED : CENI_SHARED_ALL;
    if (!exact && (!known(w, CENI_SHARED_ALL) || !known(w, CENI_CONFLICTS))) {
        lack_term(w, CEN_PROFILE_BANK_RATIO,
                  known(w, CENI_SHARED_ALL) ? CENI_CONFLICTS : CENI_SHARED_ALL);
        return;
    }
    double ideal =
        exact ? total(w, CENI_SHARED_IDEAL) : total(w, CENI_SHARED_ALL) - total(w, CENI_CONFLICTS);
    if (total(w, all) <= 0) {
        lack(w, CEN_PROFILE_BANK_RATIO, "the kernel uses no shared memory");
    } else if (ideal <= 0) {
        lack(w, CEN_PROFILE_BANK_RATIO, "more conflicts than wavefronts were counted");
    } else {
        set(w, CEN_PROFILE_BANK_RATIO, total(w, all) / ideal);
    }
}

static void set_bytes(work *w) {
    if (!known(w, CENI_DRAM_READ) || !known(w, CENI_DRAM_WRITE)) {
        lack_term(w, CEN_PROFILE_DRAM_BYTES,
                  known(w, CENI_DRAM_READ) ? CENI_DRAM_WRITE : CENI_DRAM_READ);
    } else {
        set(w, CEN_PROFILE_DRAM_BYTES, total(w, CENI_DRAM_READ) + total(w, CENI_DRAM_WRITE));
    }
    set_total(w, CEN_PROFILE_L2_BYTES, CENI_L2_BYTES);
    set_total(w, CEN_PROFILE_L1_BYTES, CENI_L1_BYTES);
    set_sector(w, CEN_PROFILE_LOAD_BYTES, CENI_LOAD, CENI_LOAD_SECTORS,
               "the kernel loads nothing from global memory");
    set_sector(w, CEN_PROFILE_STORE_BYTES, CENI_STORE, CENI_STORE_SECTORS,
               "the kernel stores nothing to global memory");
    set_banks(w);
}

/* ---- operations ---- */

/* Three counters that every device has, and up to three that only some have. */
static void set_operations(work *w, cen_profile_figure figure, const ceni_term terms[6]) {
    double sum = 0;
    for (size_t i = 0; i < 6 && terms[i] < CENI_TERMS; i++) {
        if (known(w, terms[i])) {
            sum += total(w, terms[i]);
        } else if (i < 3) {
            lack_term(w, figure, terms[i]);
            return;
        }
    }
    set(w, figure, sum);
}

/* A device has some of these counters; fp16 and fp8 are counted whole or in two parts. Tensor cores
 * that were never at work made no operations, and those that were made some. */
static void set_tensor(work *w) {
    static const ceni_term terms[] = {CENI_T_BF16,    CENI_T_TF32,  CENI_T_FP64,    CENI_T_INT8,
                                      CENI_T_FP16,    CENI_T_FP8,   CENI_T_FP16_16, CENI_T_FP16_32,
                                      CENI_T_FP8_OFF, CENI_T_FP8_ON};
    bool any = false, idle = known(w, CENI_TENSOR_PIPE) && total(w, CENI_TENSOR_PIPE) <= 0;
    double sum = 0;
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        ceni_term t = terms[i];
        bool part = ((t == CENI_T_FP16_16 || t == CENI_T_FP16_32) && known(w, CENI_T_FP16)) ||
                    ((t == CENI_T_FP8_OFF || t == CENI_T_FP8_ON) && known(w, CENI_T_FP8));
        any = any || known(w, t);
        sum += known(w, t) && !part ? total(w, t) : 0;
    }
    bool worked = known(w, CENI_TENSOR_PIPE) && !idle;
    if (idle || (any && (sum > 0 || !worked))) {
        set(w, CEN_PROFILE_TENSOR, sum);
    } else if (any) {
        lack(w, CEN_PROFILE_TENSOR,
             "tensor cores worked, and the recording has no counter of their operations' type");
    } else {
        lack_term(w, CEN_PROFILE_TENSOR, CENI_T_BF16);
    }
}

/* The sum of the four kinds, and what it is to each byte of DRAM. */
static void set_intensity(work *w) {
    const cen_profile_value *f = w->row->out.figures;
    double sum = 0;
    for (int kind = CEN_PROFILE_FP32; kind <= CEN_PROFILE_TENSOR; kind++) {
        if (f[kind].missing) {
            lack(w, CEN_PROFILE_OPERATIONS, f[kind].missing);
            lack(w, CEN_PROFILE_INTENSITY, f[kind].missing);
            return;
        }
        sum += f[kind].value;
    }
    set(w, CEN_PROFILE_OPERATIONS, sum);
    if (f[CEN_PROFILE_DRAM_BYTES].missing) {
        lack(w, CEN_PROFILE_INTENSITY, f[CEN_PROFILE_DRAM_BYTES].missing);
    } else if (f[CEN_PROFILE_DRAM_BYTES].value <= 0) {
        lack(w, CEN_PROFILE_INTENSITY, "no byte of DRAM was moved");
    } else {
        set(w, CEN_PROFILE_INTENSITY, sum / f[CEN_PROFILE_DRAM_BYTES].value);
    }
}

static void set_all_operations(work *w) {
    static const ceni_term fp32[6] = {CENI_FADD,  CENI_FMUL,  CENI_FFMA,
                                      CENI_FADD2, CENI_FMUL2, CENI_FFMA2};
    static const ceni_term fp64[6] = {CENI_DADD, CENI_DMUL, CENI_DFMA, CENI_TERMS};
    static const ceni_term fp16[6] = {CENI_HADD, CENI_HMUL, CENI_HFMA, CENI_TERMS};
    set_operations(w, CEN_PROFILE_FP32, fp32);
    set_operations(w, CEN_PROFILE_FP64, fp64);
    set_operations(w, CEN_PROFILE_FP16, fp16);
    set_tensor(w);
    set_intensity(w);
}

/* ---- shares ---- */

/* What waits behind L1's own unit: the instructions that feed it, where they are recorded. */
static void set_l1_share(work *w) {
    set_mean(w, CEN_PROFILE_L1_SHARE, CENI_L1);
    if (known(w, CENI_L1) && known(w, CENI_L1_FEED) && mean(w, CENI_L1_FEED) > mean(w, CENI_L1)) {
        set(w, CEN_PROFILE_L1_SHARE, mean(w, CENI_L1_FEED));
    }
}

/* Which resource allows the fewest blocks a multiprocessor; its warps, if none allows fewer. */
static const char *find_limit(const work *w) {
    static const struct {
        ceni_term term;
        const char *name;
    } limits[] = {{CENI_LIMIT_WARPS, "warps"},
                  {CENI_LIMIT_REGISTERS, "registers"},
                  {CENI_LIMIT_SHARED, "shared memory"},
                  {CENI_LIMIT_BLOCKS, "blocks"}};
    const char *name = "";
    double least = INFINITY;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (!known(w, limits[i].term)) {
            return "";
        }
        if (mean(w, limits[i].term) < least) {
            least = mean(w, limits[i].term);
            name = limits[i].name;
        }
    }
    return name;
}

void ceni_profile_figure(cen_profile *profile, ceni_profile_row *row) {
    static const struct {
        cen_profile_figure figure;
        ceni_term term;
    } means[] = {
        {CEN_PROFILE_DRAM_SHARE, CENI_DRAM},       {CEN_PROFILE_L2_SHARE, CENI_L2},
        {CEN_PROFILE_COMPUTE_SHARE, CENI_COMPUTE}, {CEN_PROFILE_TENSOR_SHARE, CENI_TENSOR_PIPE},
        {CEN_PROFILE_L2_HIT, CENI_L2_HIT},         {CEN_PROFILE_L1_HIT, CENI_L1_HIT},
        {CEN_PROFILE_OCCUPANCY, CENI_WARPS},       {CEN_PROFILE_OCCUPANCY_MOST, CENI_WARPS_MOST},
        {CEN_PROFILE_REGISTERS, CENI_REGISTERS},   {CEN_PROFILE_WAVES, CENI_WAVES}};
    work w = {.profile = profile, .row = row};
    set_total(&w, CEN_PROFILE_SECONDS, CENI_TIME);
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
        set_mean(&w, means[i].figure, means[i].term);
    }
    set_l1_share(&w);
    set_bytes(&w);
    set_all_operations(&w);
    row->out.limit = find_limit(&w);
}

static double share_of(double amount, double seconds, double ceiling) {
    double share = seconds > 0 && ceiling > 0 ? amount / seconds / ceiling : 0;
    return isfinite(share) ? share : 0;
}

cen_status cen_profile_measure(const cen_profile_row *row, const cen_probe_device *device,
                               cen_profile_measured *measured) {
    if (!row || !device || !measured) {
        return ceni_fail(CEN_ERR_INVALID, "cen_profile_measure: %s is NULL",
                         !row      ? "row"
                         : !device ? "device"
                                   : "measured");
    }
    const cen_probe_level *memory = cen_probe_get_memory(device);
    const cen_probe_level *l2 = cen_probe_get_level(device, CEN_LEVEL_L2);
    double seconds = row->figures[CEN_PROFILE_SECONDS].value;
    *measured =
        (cen_profile_measured){.dram = share_of(row->figures[CEN_PROFILE_DRAM_BYTES].value, seconds,
                                                memory ? memory->bandwidth_gbps * 1e9 : 0),
                               .l2 = share_of(row->figures[CEN_PROFILE_L2_BYTES].value, seconds,
                                              l2 ? l2->bandwidth_gbps * 1e9 : 0),
                               .fp32 = share_of(row->figures[CEN_PROFILE_FP32].value, seconds,
                                                cen_probe_get_rate(device, "fp32"))};
    return CEN_OK;
}
