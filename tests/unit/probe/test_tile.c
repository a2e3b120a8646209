/* The map of a tiled product against counts made block by block, occupancy against values worked
 * out by hand from the published limits, and what fusing saves against the intermediates' bytes. */
#include "base/fault.h"
#include "cenote/log.h"
#include "cenote/roofline.h"
#include "probe/paper/paper.h"
#include "tests/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static uint64_t random_state = 88172645463325252u;

static uint32_t below(uint32_t n) {
    return (uint32_t)(random_next(&random_state) >> 20) % n;
}

static cen_tile_map *make(const cen_tile_request *request) {
    cen_tile_map *map = NULL;
    assert_int_equal(cen_tile_make(request, &map), CEN_OK);
    return map;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Rows of the i-th strip of a tile's edge. */
static uint64_t strip(uint64_t i, uint32_t edge, uint64_t all) {
    return least(edge, all - i * edge);
}

typedef struct counts {
    double loads, executed;
    uint64_t blocks;
} counts;

static counts count_blocks(const cen_tile_request *r, uint32_t elem) {
    counts c = {0};
    for (uint64_t i = 0; i * r->bm < r->m; i++) {
        for (uint64_t j = 0; j * r->bn < r->n; j++) {
            c.blocks++;
            for (uint64_t k = 0; k < r->k; k += r->bk) {
                uint64_t deep = least(r->bk, r->k - k);
                uint64_t edges = strip(i, r->bm, r->m) + strip(j, r->bn, r->n);
                c.loads += (double)(edges * deep * elem);
                c.executed += 2.0 * r->bm * r->bn * r->bk;
            }
        }
    }
    return c;
}

/* Bytes of operands that come from HBM when blocks run together in rectangles of h x w: each reads
 * its strips of A and of B once. */
static uint64_t rectangles(const cen_tile_request *r, uint64_t h, uint64_t w, uint32_t elem) {
    uint64_t down = (r->m + r->bm - 1) / r->bm, across = (r->n + r->bn - 1) / r->bn, sum = 0;
    for (uint64_t top = 0; top < down; top += h) {
        for (uint64_t left = 0; left < across; left += w) {
            for (uint64_t i = top; i < least(top + h, down); i++) {
                sum += strip(i, r->bm, r->m) * r->k * elem;
            }
            for (uint64_t j = left; j < least(left + w, across); j++) {
                sum += strip(j, r->bn, r->n) * r->k * elem;
            }
        }
    }
    return sum;
}

static uint64_t best_rectangle(const cen_tile_request *r, uint64_t places, uint32_t elem) {
    uint64_t best = UINT64_MAX;
    for (uint64_t h = 1; h <= places; h++) {
        for (uint64_t w = 1; h * w <= places; w++) {
            best = least(best, rectangles(r, h, w, elem));
        }
    }
    return best;
}

static cen_tile_request random_product(void) {
    static const cen_dtype types[] = {CEN_FP32, CEN_TF32,     CEN_FP16,
                                      CEN_BF16, CEN_FP8_E4M3, CEN_INT8};
    static const uint32_t edges[] = {64, 128, 192, 256};
    cen_tile_request r = {.size = sizeof r, .m = 1 + below(1500), .n = 1 + below(1500)};
    r.k = 1 + below(300), r.type = types[below(6)], r.sm = below(2) ? 80 : 90;
    if (r.type == CEN_FP8_E4M3) {
        r.sm = 90;
    }
    r.bm = edges[below(3)], r.bn = edges[below(2)], r.bk = 32 * (1 + below(2)), r.stages = 2;
    r.multiprocessors = 1 + below(12), r.l2_bytes = below(2) ? 1 : (uint64_t)1 << 30;
    return r;
}

static void products_are_as_counted(void **state) {
    for (int round = 0; round < 300; round++) {
        cen_tile_request r = random_product();
        uint32_t elem = ceni_multiplied_bytes(r.type);
        cen_tile_map *map = make(&r);
        const cen_tile_kernel *k = map->fused.kernels;
        counts c = count_blocks(&r, elem);
        double out = (double)r.m * (double)r.n * elem, places = k->resident * r.multiprocessors;
        double in = r.l2_bytes > 1 ? (double)((r.m + r.n) * r.k * elem)
                                   : (double)best_rectangle(&r, (uint64_t)places, elem);
        assert_int_equal(map->fused.count, 1);
        assert_int_equal(k->blocks, c.blocks);
        assert_true(k->flops == 2.0 * (double)r.m * (double)r.n * (double)r.k);
        assert_true(k->executed_flops == c.executed);
        assert_true(k->bytes[CEN_TILE_L2] == c.loads + out);
        assert_true(k->bytes[CEN_TILE_HBM] == in + out);
        assert_true(k->bytes[CEN_TILE_SHARED] > 2 * c.loads * 0.99);
        assert_true(k->intensity[CEN_TILE_HBM] == k->flops / (in + out));
        assert_true(fabs(k->waves - (double)c.blocks / places) < 1e-9);
        double whole = floor(((double)c.blocks - 1) / places);
        assert_true(fabs(k->tail - ((double)c.blocks - whole * places) / places) < 1e-9);
        cen_tile_free(map);
    }
}

static void residents_follow_the_published_limits(void **state) {
    static const struct {
        uint32_t sm;
        cen_dtype type;
        uint32_t bm, bn, bk, stages, warps, threads, registers, shared, resident;
        const char *limit;
    } known[] = {
        /* The usual kernels: 8 x 8 sums a thread; 64 x 32 a warp; two warpgroups of 64 x 256. */
        {80, CEN_FP32, 128, 128, 8, 2, 8, 256, 128, 16384, 2, "registers"},
        {80, CEN_BF16, 128, 128, 32, 4, 8, 256, 152, 65536, 1, "registers"},
        {80, CEN_BF16, 64, 64, 32, 3, 4, 128, 104, 24576, 4, "registers"},
        {80, CEN_FP32, 128, 128, 32, 5, 8, 256, 128, 163840, 1, "shared memory"},
        {90, CEN_BF16, 128, 256, 64, 4, 8, 384, 168, 196672, 1, "registers"},
        {90, CEN_BF16, 64, 64, 64, 6, 4, 256, 72, 98400, 2, "shared memory"},
        {90, CEN_FP32, 16, 16, 16, 1, 1, 32, 56, 2048, 32, "blocks"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        cen_tile_request r = {.size = sizeof r, .m = 4096, .n = 4096, .k = 4096, .type = CEN_FP32};
        r.sm = known[i].sm, r.type = known[i].type, r.warps = known[i].warps;
        r.bm = known[i].bm, r.bn = known[i].bn, r.bk = known[i].bk, r.stages = known[i].stages;
        cen_tile_map *map = make(&r);
        const cen_tile_kernel *k = map->fused.kernels;
        assert_int_equal(k->threads, known[i].threads);
        assert_int_equal(k->registers, known[i].registers);
        assert_int_equal(k->shared_bytes, known[i].shared);
        assert_int_equal(k->resident, known[i].resident);
        assert_string_equal(k->limit, known[i].limit);
        double warps = (double)k->resident * k->threads / 32;
        assert_true(fabs(k->occupancy - warps / 64) < 1e-12);
        cen_tile_free(map);
    }
}

/* The traffic on the chip of one block of a tile, counted by hand. */
static void on_chip_traffic_by_hand(void **state) {
    cen_tile_request r = {.size = sizeof r, .m = 128, .n = 128, .k = 64, .type = CEN_BF16};
    r.bm = r.bn = 128, r.bk = 32, r.stages = 2, r.warps = 8, r.sm = 80;
    cen_tile_map *map = make(&r);
    double loads = 2 * 128 * 64 * 2;
    /* Eight warps of 64 x 32 (or 32 x 64) read 96 elements for each of 64 columns of K. */
    assert_true(map->fused.bytes[CEN_TILE_SHARED] == loads + 8 * 96 * 64 * 2);
    /* Sums read and written each 16 of K; A read for each 8 columns, B for each 16 rows. */
    assert_true(map->fused.bytes[CEN_TILE_REGISTERS] ==
                128.0 * 128 * 4 * 8 + 8 * (64.0 * 32 / 8 + 64.0 * 32 / 16) * 64 * 2);
    cen_tile_free(map);
    r.type = CEN_FP32;
    map = make(&r);
    assert_true(map->fused.bytes[CEN_TILE_REGISTERS] == 128.0 * 128 * 64 * 16);
    cen_tile_free(map);
}

static void fusing_saves_the_intermediates(void **state) {
    static const char *const tails[] = {"bias", "relu, bias", "gelu,scale, residual"};
    static const uint32_t steps[] = {1, 2, 3};
    for (int round = 0; round < 60; round++) {
        int which = (int)below(3);
        char chain[64];
        snprintf(chain, sizeof chain, "Linear, %s", tails[which]);
        cen_tile_request r = random_product();
        r.chain = chain;
        cen_tile_map *map = make(&r);
        double tensor = (double)r.m * (double)r.n * ceni_multiplied_bytes(r.type);
        double each = r.l2_bytes > 1 ? 1 : 2; /* written, and read where L2 does not hold it */
        assert_int_equal(map->fused.count, 1);
        assert_int_equal(map->unfused.count, 1 + steps[which]);
        assert_true(map->unfused.bytes[CEN_TILE_HBM] - map->fused.bytes[CEN_TILE_HBM] ==
                    steps[which] * each * tensor);
        assert_true(fabs(map->fused.kernels[0].flops - map->flops) < 1e-6 * map->flops);
        for (size_t i = 0; i < map->place_count; i++) {
            const cen_tile_place *p = &map->places[i];
            if (p->kind == CEN_TILE_INTERMEDIATE) {
                assert_int_equal(p->fused, CEN_TILE_REGISTERS);
                assert_int_equal(p->unfused, r.l2_bytes > 1 ? CEN_TILE_L2 : CEN_TILE_HBM);
                assert_true(p->bytes == tensor);
            }
        }
        cen_tile_free(map);
    }
}

static cen_tile_level level_of(const cen_tile_map *map, const char *name) {
    for (size_t i = 0; i < map->place_count; i++) {
        if (!strcmp(map->places[i].name, name)) {
            return map->places[i].fused;
        }
    }
    fail_msg("no place '%s'", name);
    return CEN_TILE_HBM;
}

static void narrow_products_go_together(void **state) {
    cen_tile_request r = {.size = sizeof r, .m = 4096, .n = 128, .k = 64, .type = CEN_BF16};
    r.bm = 128, r.bn = 128, r.bk = 64, r.stages = 2;
    r.chain = "linear 128, relu, linear 64";
    cen_tile_map *map = make(&r);
    assert_int_equal(map->fused.count, 1);
    const cen_tile_kernel *k = map->fused.kernels;
    assert_string_equal(k->name, "linear 128 + relu + linear 64");
    assert_int_equal(k->blocks, 32);
    assert_int_equal(k->shared_bytes, 2 * (256 * 64 * 2 + 16) + 128 * 128 * 2);
    /* The input, both weights and the result, each once. */
    double hbm = 2.0 * (4096 * 64 + 64 * 128 + 128 * 64 + 4096 * 64);
    assert_true(k->bytes[CEN_TILE_HBM] == hbm);
    assert_int_equal(level_of(map, "after relu 2"), CEN_TILE_SHARED);
    assert_int_equal(level_of(map, "after linear 1"), CEN_TILE_REGISTERS);
    assert_int_equal(level_of(map, "after linear 3"), CEN_TILE_HBM);
    cen_tile_free(map);
    r.chain = "linear 4096, relu, linear 64"; /* 1 MiB of rows: no block has that */
    map = make(&r);
    assert_int_equal(map->fused.count, 2);
    assert_int_equal(level_of(map, "after relu 2"), CEN_TILE_L2);
    cen_tile_free(map);
    r.chain = "relu, bias";
    map = make(&r);
    assert_false(map->has_product);
    assert_int_equal(map->fused.count, 1);
    assert_true(map->fused.bytes[CEN_TILE_HBM] == 2.0 * (2 * 4096 * 64 + 64));
    cen_tile_free(map);
}

/* Rows of two products' inputs are alive at once, and a weight that L2 does not hold is read by
 * each wave again. */
static void three_products_go_together(void **state) {
    cen_tile_request r = {.size = sizeof r, .m = 4096, .n = 128, .k = 64, .type = CEN_BF16};
    r.bm = 128, r.bn = 128, r.bk = 64, r.stages = 2, r.multiprocessors = 3, r.l2_bytes = 1;
    r.chain = "linear 128, linear 256, linear 64";
    cen_tile_map *map = make(&r);
    const cen_tile_kernel *k = map->fused.kernels;
    assert_int_equal(map->fused.count, 1);
    assert_int_equal(k->shared_bytes, 2 * (256 * 64 * 2 + 16) + 128 * (128 + 256) * 2);
    assert_int_equal(k->resident, 1);
    double weights = 2.0 * (64 * 128 + 128 * 256 + 256 * 64), waves = 11; /* of 32 blocks by 3 */
    assert_true(k->bytes[CEN_TILE_HBM] == weights * waves + 2 * 2.0 * 4096 * 64);
    /* A block reads all weights, and its rows for the only strip of the first product. */
    assert_true(k->bytes[CEN_TILE_L2] == weights * 32 + 2 * 2.0 * 4096 * 64);
    cen_tile_free(map);
}

static void ceilings_give_bounds(void **state) {
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load(TEST_DATA "/probe/gpu.json", &probe), CEN_OK);
    cen_tile_request r = {.size = sizeof r, .m = 8448, .n = 8192, .k = 8192, .type = CEN_FP32};
    r.type = CEN_BF16;
    cen_tile_map *map = make(&r);
    assert_false(map->fused.judged);
    assert_true(map->fused.kernels[0].balance > 100);
    cen_tile_free(map);
    r.device = cen_probe_get_device(probe, 0);
    map = make(&r);
    assert_int_equal(map->multiprocessors, 132);
    const cen_tile_kernel *k = map->fused.kernels;
    assert_true(k->judged && k->bound == CEN_BOUND_COMPUTE);
    /* 66 x 32 blocks are 16 on each of 132 multiprocessors. */
    assert_true(fabs(k->seconds / (2.0 * 8448 * 8192 * 8192 / 6.73e14) - 1) < 1e-9);
    cen_tile_free(map);
    r.m += 128; /* 32 blocks more: each multiprocessor may have a 17th */
    map = make(&r);
    k = map->fused.kernels;
    assert_true(fabs(k->seconds / (17 * 132 * (2.0 * 128 * 256 * 8192) / 6.73e14) - 1) < 1e-9);
    cen_tile_free(map);
    r.m = 1; /* a vector: its weight has to come from HBM */
    map = make(&r);
    k = map->fused.kernels;
    assert_true(k->judged && k->bound == CEN_BOUND_MEMORY);
    assert_string_equal(k->bound_level, "HBM");
    cen_tile_free(map);
    cen_probe_free(probe);
}

static void fails(cen_tile_request r, cen_status status, const char *words) {
    cen_tile_map *map = NULL;
    assert_int_equal(cen_tile_make(&r, &map), status);
    assert_null(map);
    const char *said = cen_log_last_error();
    if (!strstr(said, words)) {
        fail_msg("'%s' is not in '%s'", words, said);
    }
}

static void refuses_what_is_off(void **state) {
    const cen_tile_request good = {
        .size = sizeof good, .m = 64, .n = 64, .k = 64, .type = CEN_FP32};
    cen_tile_request r = good;
    r.size = 1;
    fails(r, CEN_ERR_INVALID, "request.size is 1; ");
    r = good, r.k = 0;
    fails(r, CEN_ERR_INVALID, "m, n and k are 64, 64 and 0; they are from 1 to 2147483647");
    r = good, r.type = CEN_INT64;
    fails(r, CEN_ERR_INVALID, "type int64 (9) is none of fp32");
    r = good, r.type = (cen_dtype)0;
    fails(r, CEN_ERR_INVALID, "type ? (0) is none of fp32");
    r = good, r.sm = 70;
    fails(r, CEN_ERR_INVALID, "sm_70");
    r = good, r.sm = 80, r.type = CEN_FP8_E4M3;
    fails(r, CEN_ERR_UNSUPPORTED, "fp8");
    r = good, r.bm = 64;
    fails(r, CEN_ERR_INVALID, "tile 64x0x0");
    r = good, r.type = CEN_BF16, r.bm = 96, r.bn = 64, r.bk = 32;
    fails(r, CEN_ERR_INVALID, "multiples of 64x8x16");
    r = good, r.type = CEN_BF16, r.bm = 256, r.bn = 256, r.bk = 128, r.stages = 4;
    fails(r, CEN_ERR_INVALID, "a block of sm_90 has at most 232448");
    r = good, r.warps = 7;
    fails(r, CEN_ERR_INVALID, "7 warps");
    r = good, r.bm = 512, r.bn = 512, r.bk = 4, r.warps = 16, r.stages = 1;
    fails(r, CEN_ERR_INVALID, "does not fit");
    r = good, r.stages = 65;
    fails(r, CEN_ERR_INVALID, "65 stages");
    r = good, r.bandwidth = NAN;
    fails(r, CEN_ERR_INVALID, "bandwidth");
    assert_int_equal(cen_tile_make(&good, NULL), CEN_ERR_INVALID);
    cen_tile_free(NULL);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    fails(good, CEN_ERR_HOST_MEMORY, "no memory");
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
}

static void reads_chains(void **state) {
    static const struct {
        const char *chain, *words;
    } bad[] = {
        {"", "item 1 is empty"},
        {"linear,,bias", "item 2 is empty"},
        {"linear, bias,", "item 3 is empty"},
        {"liner 5", "item 1, 'liner 5': no such operation"},
        {"linear 0", "item 1, 'linear 0': linear takes"},
        {"linear 2147483648", "linear takes its columns"},
        {"linear 99999999999999999", "linear takes its columns"},
        {"linear x", "linear takes its columns"},
        {"linear 4 4", "linear takes its columns"},
        {"bias 4", "only linear takes a number"},
        {"linear 000000000000000000000000000001", "item 1 is too long"},
    };
    cen_tile_request r = {.size = sizeof r, .m = 64, .n = 64, .k = 64, .type = CEN_FP32};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r.chain = bad[i].chain;
        fails(r, CEN_ERR_INVALID, bad[i].words);
    }
    char many[33 * 5]; /* "relu," each time, the last without a comma */
    for (size_t i = 0; i < sizeof many; i++) {
        many[i] = "relu,"[i % 5];
    }
    many[sizeof many - 1] = '\0';
    r.chain = many;
    fails(r, CEN_ERR_INVALID, "more than 32");
    many[32 * 5 - 1] = '\0';
    cen_tile_map *map = make(&r);
    assert_int_equal(map->unfused.count, 32);
    cen_tile_free(map);
    r.chain = " LINEAR  96 ,Bias,GeLU, linear";
    map = make(&r);
    assert_int_equal(map->unfused.count, 4);
    assert_string_equal(map->unfused.kernels[0].name, "linear 96");
    assert_string_equal(map->unfused.kernels[3].name, "linear 64");
    cen_tile_free(map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_as_counted),
        cmocka_unit_test(residents_follow_the_published_limits),
        cmocka_unit_test(on_chip_traffic_by_hand),
        cmocka_unit_test(fusing_saves_the_intermediates),
        cmocka_unit_test(narrow_products_go_together),
        cmocka_unit_test(three_products_go_together),
        cmocka_unit_test(ceilings_give_bounds),
        cmocka_unit_test(refuses_what_is_off),
        cmocka_unit_test(reads_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
