/* What removes the conflicts of a walk, found by trying: there are few candidates, and most fail at
 * the first access. */
#include "probe/paper/paper.h"

static bool has_conflict(const cen_banks_tile *t) {
    uint64_t count = ceni_banks_accesses(t);
    for (uint64_t i = 0; i < count; i++) {
        /* The far end first: a walk of two directions may be in order in the first. */
        if (ceni_banks_access(t, count - 1 - i).degree > 1) {
            return true;
        }
    }
    return false;
}

/* Whole rows of banks change nothing, so a padding below one is enough. */
static void search_pad(cen_banks_tile t, cen_banks_remedy *remedy) {
    uint32_t around = CEN_BANKS * CEN_BANK_BYTES / t.elem_bytes;
    t.swizzle = (cen_swizzle){0};
    for (t.pad = 0; t.pad < around; t.pad++) {
        if ((uint64_t)t.rows * (t.cols + t.pad) * t.elem_bytes > CEN_SHARED_MAX) {
            return;
        }
        if (!has_conflict(&t)) {
            remedy->has_pad = true;
            remedy->pad = t.pad;
            return;
        }
    }
}

/* The power of two that divides the columns bounds what may be exchanged; more columns than lie in
 * all banks, or bits of rows that are not there, make no difference. */
static void search_swizzle(cen_banks_tile t, cen_banks_remedy *remedy) {
    uint32_t width = 0, rows = 0, across = 0;
    while (!(t.cols & (((uint32_t)2 << width) - 1))) {
        width++;
    }
    while (rows < 16 && (t.rows - 1) >> rows) {
        rows++;
    }
    while ((t.elem_bytes << across) < CEN_BANKS * CEN_BANK_BYTES) {
        across++;
    }
    width = width < across ? width : across;
    t.pad = 0;
    for (uint32_t bits = 0; bits <= width; bits++) {
        for (uint32_t shift = 0; shift <= (bits ? rows : 0); shift++) {
            for (uint32_t base = 0; base <= (bits ? width - bits : 0); base++) {
                t.swizzle = (cen_swizzle){bits, base, shift};
                if (!has_conflict(&t)) {
                    remedy->has_swizzle = true;
                    remedy->swizzle = t.swizzle;
                    return;
                }
            }
        }
    }
}

cen_banks_remedy ceni_banks_search(const cen_banks_tile *tile) {
    cen_banks_remedy remedy = {0};
    search_pad(*tile, &remedy);
    search_swizzle(*tile, &remedy);
    return remedy;
}
