/* The JSON of `cenote tile`; docs/tile.md has the keys. */
#include "cli/tile.h"

#include "cli/json.h"

static json_t *bytes_json(const double bytes[CEN_TILE_LEVELS]) {
    return json_pack("{s:o, s:o, s:o, s:o}", "HBM", cli_json_count(bytes[CEN_TILE_HBM]), "L2",
                     cli_json_count(bytes[CEN_TILE_L2]), "shared",
                     cli_json_count(bytes[CEN_TILE_SHARED]), "registers",
                     cli_json_count(bytes[CEN_TILE_REGISTERS]));
}

/* Null where no byte is moved. */
static json_t *intensity_json(const cen_tile_kernel *k) {
    json_t *object = json_object();
    for (int i = 0; i < CEN_TILE_LEVELS; i++) {
        json_t *value = k->bytes[i] > 0 ? json_real(k->intensity[i]) : json_null();
        if (!object || json_object_set_new(object, cen_tile_level_name((cen_tile_level)i), value)) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *bound_level(const cen_tile_kernel *k) {
    return k->judged && k->bound != CEN_BOUND_COMPUTE ? json_string(k->bound_level) : json_null();
}

static json_t *kernel_json(const cen_tile_kernel *k) {
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:i, s:i, s:b, s:i, s:i, s:s, s:f, s:f, s:f, s:o, "
        "s:o, s:o}",
        "name", k->name, "flops", cli_json_count(k->flops), "executed_flops",
        cli_json_count(k->executed_flops), "bytes", bytes_json(k->bytes), "intensity",
        intensity_json(k), "balance", cli_json_known(k->balance), "blocks", (json_int_t)k->blocks,
        "threads", (int)k->threads, "registers", (int)k->registers, "spills", (int)k->spills,
        "shared_bytes", (int)k->shared_bytes, "blocks_per_multiprocessor", (int)k->resident,
        "limit", k->limit, "occupancy", k->occupancy, "waves", k->waves, "tail", k->tail, "bound",
        k->judged ? json_string(cen_bound_name(k->bound)) : json_null(), "level", bound_level(k),
        "seconds", cli_json_known(k->seconds));
}

static json_t *plan_json(const cen_tile_plan *plan) {
    json_t *kernels = json_array();
    for (size_t i = 0; i < plan->count; i++) {
        cli_json_append(&kernels, kernel_json(&plan->kernels[i]));
    }
    return json_pack("{s:o, s:o, s:o}", "kernels", kernels, "bytes", bytes_json(plan->bytes),
                     "seconds", cli_json_known(plan->seconds));
}

static json_t *places_json(const cen_tile_map *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->place_count; i++) {
        const cen_tile_place *p = &m->places[i];
        cli_json_append(&list,
                        json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:s}", "name", p->name, "kind",
                                  cen_tile_kind_name(p->kind), "rows", (json_int_t)p->rows, "cols",
                                  (json_int_t)p->cols, "bytes", cli_json_count(p->bytes), "unfused",
                                  cen_tile_level_name(p->unfused), "fused",
                                  cen_tile_level_name(p->fused)));
    }
    return list;
}

static json_t *tile_json(const cen_tile_map *m) {
    return m->has_product
               ? json_pack("{s:i, s:i, s:i, s:i, s:i}", "bm", (int)m->bm, "bn", (int)m->bn, "bk",
                           (int)m->bk, "stages", (int)m->stages, "warps", (int)m->warps)
               : json_null();
}

int tile_print_json(const cen_tile_request *r, const cen_tile_map *m) {
    return cli_json_print(
        "tile", json_pack("{s:I, s:I, s:I, s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                          "m", (json_int_t)r->m, "n", (json_int_t)r->n, "k", (json_int_t)r->k,
                          "dtype", cen_dtype_name(m->type), "sm", (int)m->sm, "multiprocessors",
                          (int)m->multiprocessors, "l2_bytes", (json_int_t)m->l2_bytes, "tile",
                          tile_json(m), "flops", cli_json_count(m->flops), "peak_flops",
                          cli_json_known(m->peak_flops), "bandwidth", cli_json_known(m->bandwidth),
                          "fused", plan_json(&m->fused), "unfused", plan_json(&m->unfused),
                          "places", places_json(m)));
}
