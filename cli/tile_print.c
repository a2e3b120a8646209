/* The text of `cenote tile`: what it comes to, the kernels, then where everything lives. */
#include "cli/tile.h"

#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"

static bool is_one_plan(const cen_tile_map *m) {
    return m->fused.count == m->unfused.count;
}

static void print_head(const cen_tile_request *r, const cen_tile_map *m) {
    printf("%s x %s of %s, sm_%u: %u multiprocessors, L2 of %.4g MiB\n", cli_grouped(r->m),
           cli_grouped(r->k), cen_dtype_name(m->type), m->sm, m->multiprocessors,
           (double)m->l2_bytes / (1 << 20));
    if (m->has_product) {
        printf("tile %ux%ux%u, %u stage%s, %u warp%s that multipl%s\n", m->bm, m->bn, m->bk,
               m->stages, m->stages == 1 ? "" : "s", m->warps, m->warps == 1 ? "" : "s",
               m->warps == 1 ? "ies" : "y");
    }
    if (!is_one_plan(m)) {
        printf("fused: %zu kernel%s and %sB through HBM; unfused: %zu and %sB\n", m->fused.count,
               m->fused.count == 1 ? "" : "s", cli_si(m->fused.bytes[CEN_TILE_HBM]),
               m->unfused.count, cli_si(m->unfused.bytes[CEN_TILE_HBM]));
    }
    if (m->fused.judged && m->unfused.judged && !is_one_plan(m)) {
        printf("at the ceilings: %s fused, %s unfused\n", cli_time(m->fused.seconds),
               cli_time(m->unfused.seconds));
    }
}

static void print_bound(const cen_tile_kernel *k) {
    if (k->judged) {
        bool compute = k->bound == CEN_BOUND_COMPUTE;
        printf("     %s%s%s, %s at the ceilings\n", cen_bound_name(k->bound), compute ? "" : " by ",
               compute ? "" : k->bound_level, cli_time(k->seconds));
    } else if (k->balance > 0) {
        printf("     compute-bound if the ridge of HBM is below %.4g flop/B, else memory-bound\n",
               k->balance);
    } else {
        printf("     memory-bound\n");
    }
}

static void print_kernel(size_t number, const cen_tile_kernel *k) {
    printf("  %zu  %s\n", number, k->name);
    printf("     %-10s", "");
    for (int i = 0; i < CEN_TILE_LEVELS; i++) {
        printf("%12s", cen_tile_level_name((cen_tile_level)i));
    }
    printf("\n     %-10s", "moved");
    for (int i = 0; i < CEN_TILE_LEVELS; i++) {
        printf("%11sB", cli_si(k->bytes[i]));
    }
    printf("\n     %-10s", "flop/B");
    for (int i = 0; i < CEN_TILE_LEVELS; i++) {
        printf("%12.4g", k->intensity[i]);
    }
    printf("\n     %s block%s of %u threads, %u registers each%s, %s bytes shared\n",
           cli_grouped(k->blocks), k->blocks == 1 ? "" : "s", k->threads, k->registers,
           k->spills ? " AND SPILLS" : "", cli_grouped(k->shared_bytes));
    printf("     %u a multiprocessor (%s), occupancy %.2f; %.3g waves, the last %.3g full\n",
           k->resident, k->limit, k->occupancy, k->waves, k->tail);
    print_bound(k);
}

static void print_plan(const char *name, const cen_tile_plan *plan) {
    printf("\n%s\n", name);
    for (size_t i = 0; i < plan->count; i++) {
        print_kernel(i + 1, &plan->kernels[i]);
    }
}

static void print_places(const cen_tile_map *m) {
    bool both = !is_one_plan(m);
    printf("\n%-24s%12s%12s%10s%10s%s\n", "where it lives", "rows", "columns", "bytes",
           both ? "unfused" : "level", both ? "     fused" : "");
    for (size_t i = 0; i < m->place_count; i++) {
        const cen_tile_place *p = &m->places[i];
        printf("%-24s%12s%12s%9sB%10s", p->name, cli_grouped(p->rows), cli_grouped(p->cols),
               cli_si(p->bytes), cen_tile_level_name(p->unfused));
        if (both) {
            printf("%10s", cen_tile_level_name(p->fused));
        }
        putchar('\n');
    }
}

void tile_print(const cen_tile_request *r, const cen_tile_map *m) {
    print_head(r, m);
    if (is_one_plan(m)) {
        print_plan(m->fused.count == 1 ? "kernel" : "kernels: nothing can be fused", &m->fused);
    } else {
        print_plan("fused", &m->fused);
        print_plan("unfused", &m->unfused);
    }
    print_places(m);
}
