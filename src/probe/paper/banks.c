/* Bank conflicts, counted: which words the lanes of a pass want, and how many of them one bank has.
 */
#include "cenote/roofline.h"

#include "base/log.h"

#include "probe/paper/paper.h"

enum { MAX_WORDS = CEN_WARP_LANES }; /* of one pass: 128 bytes at most */

/* The most different words that a bank is asked for by lanes [from, to). */
static uint32_t pass_degree(const uint32_t *offsets, uint32_t from, uint32_t to, uint32_t bytes) {
    uint32_t words[MAX_WORDS], held = 0, asked[CEN_BANKS] = {0}, worst = 0;
    uint32_t each = bytes > CEN_BANK_BYTES ? bytes / CEN_BANK_BYTES : 1;
    for (uint32_t i = from * each; i < to * each; i++) {
        uint32_t word = offsets[i / each] / CEN_BANK_BYTES + i % each, j = 0;
        while (j < held && words[j] != word) {
            j++;
        }
        if (j == held) {
            words[held++] = word;
            uint32_t count = ++asked[word % CEN_BANKS];
            worst = count > worst ? count : worst;
        }
    }
    return worst;
}

cen_bank_access ceni_banks_count(const uint32_t *offsets, uint32_t lanes, uint32_t bytes) {
    uint32_t together =
        bytes > CEN_BANK_BYTES ? CEN_WARP_LANES * CEN_BANK_BYTES / bytes : CEN_WARP_LANES;
    cen_bank_access access = {0};
    for (uint32_t from = 0; from < lanes; from += together) {
        uint32_t to = from + together < lanes ? from + together : lanes;
        uint32_t degree = pass_degree(offsets, from, to, bytes);
        access.degree = degree > access.degree ? degree : access.degree;
        access.wavefronts += degree;
        access.ideal_wavefronts++;
    }
    return access;
}

static bool is_access_size(uint32_t bytes) {
    return bytes && bytes <= 16 && !(bytes & (bytes - 1));
}

cen_status cen_banks_warp(const uint32_t *offsets, uint32_t lanes, uint32_t bytes,
                          cen_bank_access *access) {
    if (!offsets || !access) {
        return ceni_fail(CEN_ERR_INVALID, "cen_banks_warp: %s is NULL",
                         offsets ? "access" : "offsets");
    }
    if (!lanes || lanes > CEN_WARP_LANES) {
        return ceni_fail(CEN_ERR_INVALID, "cen_banks_warp: lanes is %u; 1 to 32 is expected",
                         lanes);
    }
    if (!is_access_size(bytes)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_banks_warp: bytes is %u; one access has 1, 2, 4, 8 or 16", bytes);
    }
    for (uint32_t i = 0; i < lanes; i++) {
        if (offsets[i] % bytes) { /* so no access that starts below 2^32 ends beyond it */
            return ceni_fail(CEN_ERR_INVALID,
                             "cen_banks_warp: offsets[%u] is %u, no multiple of the %u bytes", i,
                             offsets[i], bytes);
        }
    }
    *access = ceni_banks_count(offsets, lanes, bytes);
    return CEN_OK;
}

/* Elements that one walk in a single direction visits. */
static uint64_t visited(const cen_banks_tile *t) {
    uint64_t all = (uint64_t)t->rows * t->cols;
    return t->walk == CEN_WALK_STRIDED ? (all + t->stride - 1) / t->stride : all;
}

static uint64_t one_way(const cen_banks_tile *t) {
    return (visited(t) + CEN_WARP_LANES - 1) / CEN_WARP_LANES;
}

uint64_t ceni_banks_accesses(const cen_banks_tile *t) {
    return t->walk == CEN_WALK_TRANSPOSED ? 2 * one_way(t) : one_way(t);
}

static uint32_t offset_of(const cen_banks_tile *t, uint32_t row, uint32_t column) {
    const cen_swizzle *s = &t->swizzle;
    uint32_t turned = column ^ ((row >> s->shift & (((uint32_t)1 << s->bits) - 1)) << s->base);
    return (row * (t->cols + t->pad) + turned) * t->elem_bytes;
}

cen_bank_access ceni_banks_access(const cen_banks_tile *t, uint64_t index) {
    uint32_t offsets[CEN_WARP_LANES], lanes = 0;
    bool down = t->walk == CEN_WALK_COLUMN;
    if (t->walk == CEN_WALK_TRANSPOSED && index >= one_way(t)) {
        index -= one_way(t);
        down = true;
    }
    uint64_t all = visited(t), step = t->walk == CEN_WALK_STRIDED ? t->stride : 1;
    for (uint64_t i = index * CEN_WARP_LANES; i < all && lanes < CEN_WARP_LANES; i++) {
        uint32_t at = (uint32_t)(i * step); /* below the rows times the columns */
        offsets[lanes++] = down ? offset_of(t, at % t->rows, at / t->rows)
                                : offset_of(t, at / t->cols, at % t->cols);
    }
    return ceni_banks_count(offsets, lanes, t->elem_bytes);
}

static cen_status check_swizzle(const char *call, const cen_banks_tile *t) {
    const cen_swizzle *s = &t->swizzle;
    if (s->bits > 16 || s->base > 16 || s->shift > 16) {
        return ceni_fail(CEN_ERR_INVALID, "%s: swizzle %u,%u,%u: none of the three is over 16",
                         call, s->bits, s->base, s->shift);
    }
    if (s->bits && t->cols % ((uint64_t)1 << (s->bits + s->base))) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: swizzle %u,%u,%u leaves the row: its %llu columns do not divide %u",
                         call, s->bits, s->base, s->shift,
                         (unsigned long long)1 << (s->bits + s->base), t->cols);
    }
    return CEN_OK;
}

static cen_status check_tile(const char *call, const cen_banks_tile *t) {
    if (!t) {
        return ceni_fail(CEN_ERR_INVALID, "%s: tile is NULL", call);
    }
    if (t->size != sizeof *t) {
        return ceni_fail(CEN_ERR_INVALID, "%s: tile.size is %zu; %zu is expected", call, t->size,
                         sizeof *t);
    }
    if (!t->rows || !t->cols) {
        return ceni_fail(CEN_ERR_INVALID, "%s: the tile has no %s", call,
                         t->rows ? "columns" : "rows");
    }
    if (!is_access_size(t->elem_bytes)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: an element of %u bytes; one access has 1, 2, 4, 8 or 16", call,
                         t->elem_bytes);
    }
    if ((int)t->walk < CEN_WALK_ROW || t->walk > CEN_WALK_STRIDED) {
        return ceni_fail(CEN_ERR_INVALID, "%s: no walk %d", call, (int)t->walk);
    }
    if ((t->walk == CEN_WALK_STRIDED) != (t->stride != 0)) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s", call,
                         t->stride ? "a stride is for the strided walk"
                                   : "the strided walk needs a stride of 1 or more");
    }
    uint64_t row = ((uint64_t)t->cols + t->pad) * t->elem_bytes;
    if (row > CEN_SHARED_MAX || row * t->rows > CEN_SHARED_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "%s: %u rows of %llu bytes do not fit into shared memory, of which a "
                         "block has at most %u bytes",
                         call, t->rows, (unsigned long long)row, CEN_SHARED_MAX);
    }
    return check_swizzle(call, t);
}

cen_status cen_banks_judge(const cen_banks_tile *tile, cen_banks_result *result) {
    cen_status status = check_tile("cen_banks_judge", tile);
    if (status || !result) {
        return status ? status : ceni_fail(CEN_ERR_INVALID, "cen_banks_judge: result is NULL");
    }
    cen_banks_result r = {.accesses = ceni_banks_accesses(tile)};
    double sum = 0;
    for (uint64_t i = 0; i < r.accesses; i++) {
        cen_bank_access access = ceni_banks_access(tile, i);
        r.degree = access.degree > r.degree ? access.degree : r.degree;
        r.wavefronts += access.wavefronts;
        r.ideal_wavefronts += access.ideal_wavefronts;
        sum += access.degree;
    }
    r.mean_degree = sum / (double)r.accesses;
    *result = r;
    return CEN_OK;
}

cen_status cen_banks_judge_access(const cen_banks_tile *tile, uint64_t index,
                                  cen_bank_access *access) {
    cen_status status = check_tile("cen_banks_judge_access", tile);
    if (status || !access) {
        return status ? status
                      : ceni_fail(CEN_ERR_INVALID, "cen_banks_judge_access: access is NULL");
    }
    if (index >= ceni_banks_accesses(tile)) {
        return ceni_fail(CEN_ERR_NOT_FOUND,
                         "cen_banks_judge_access: there are %llu accesses, no number %llu",
                         (unsigned long long)ceni_banks_accesses(tile), (unsigned long long)index);
    }
    *access = ceni_banks_access(tile, index);
    return CEN_OK;
}

cen_status cen_banks_find_remedy(const cen_banks_tile *tile, cen_banks_remedy *remedy) {
    cen_status status = check_tile("cen_banks_find_remedy", tile);
    if (status || !remedy) {
        return status ? status
                      : ceni_fail(CEN_ERR_INVALID, "cen_banks_find_remedy: remedy is NULL");
    }
    *remedy = ceni_banks_search(tile);
    return CEN_OK;
}
