/* The text of `cenote banks`, and its JSON; docs/banks.md has the keys. */
#include "cli/banks.h"

#include <stdio.h>

#include "cli/cmd.h"
#include "cli/json.h"

/* How the swizzle is written in C: "column ^ (row & 31)". */
static const char *expression(const cen_swizzle *s, char text[96]) {
    char bits[48], from[24] = "row";
    if (s->shift) {
        snprintf(from, sizeof from, "row >> %u", s->shift);
    }
    snprintf(bits, sizeof bits, "%s & %u", from, (1u << s->bits) - 1);
    if (!s->bits) {
        snprintf(text, 96, "column");
    } else if (s->base) {
        snprintf(text, 96, "column ^ ((%s) << %u)", bits, s->base);
    } else {
        snprintf(text, 96, "column ^ (%s)", bits);
    }
    return text;
}

/* The same as a swizzle of the element's number, as CuTe writes it, where a row has 2^n elements.
 * False: it has not. */
static bool as_cute(const cen_banks_tile *t, const cen_swizzle *s, char text[32]) {
    unsigned n = 0;
    while (n < 31 && t->cols >> n != 1) {
        n++;
    }
    if (t->cols != 1u << n || !s->bits) {
        return false;
    }
    snprintf(text, 32, "Swizzle<%u,%u,%u>", s->bits, s->base, n + s->shift - s->base);
    return true;
}

static void print_head(const banks_report *r) {
    static const char *const ways[] = {"along the rows", "down the columns",
                                       "along the rows, then down the columns"};
    const cen_banks_tile *t = &r->tile;
    printf("%s x %s elements of %u byte%s, ", cli_grouped(t->rows), cli_grouped(t->cols),
           t->elem_bytes, t->elem_bytes == 1 ? "" : "s");
    if (t->walk == CEN_WALK_STRIDED) {
        printf("one of every %u", t->stride);
    } else {
        fputs(ways[t->walk], stdout);
    }
    if (t->pad) {
        printf(", pad %u", t->pad);
    }
    if (r->result.degree > 1) {
        printf("\n%u-WAY CONFLICT\n", r->result.degree);
    } else {
        printf("\nNO CONFLICT\n");
    }
}

static void print_remedy(const banks_report *r) {
    char text[96], cute[32];
    const cen_swizzle *s = &r->remedy.swizzle;
    if (r->remedy.has_pad) {
        printf("  pad         %u element%s after each row, %s bytes in all: no conflict\n",
               r->remedy.pad, r->remedy.pad == 1 ? "" : "s",
               cli_grouped((uint64_t)r->remedy.pad * r->tile.rows * r->tile.elem_bytes));
    } else {
        printf("  pad         none removes it\n");
    }
    if (r->remedy.has_swizzle) {
        bool is_cute = as_cute(&r->tile, s, cute);
        printf("  swizzle     %s: no conflict%s%s\n", expression(s, text), is_cute ? "; " : "",
               is_cute ? cute : "");
    } else {
        printf("  swizzle     none removes it\n");
    }
}

void banks_print(const banks_report *r) {
    char text[96];
    const cen_banks_result *sum = &r->result;
    print_head(r);
    if (r->tile.swizzle.bits) {
        printf("  swizzled    %s\n", expression(&r->tile.swizzle, text));
    }
    printf("  accesses    %s of a warp; degree %u at worst, %.2f on average\n",
           cli_grouped(sum->accesses), sum->degree, sum->mean_degree);
    printf("  wavefronts  %s, ideally %s: %s by conflicts\n", cli_grouped(sum->wavefronts),
           cli_grouped(sum->ideal_wavefronts),
           cli_grouped(sum->wavefronts - sum->ideal_wavefronts));
    if (sum->degree > 1) {
        print_remedy(r);
    }
}

static json_t *swizzle_json(const banks_report *r, const cen_swizzle *s) {
    char text[96], cute[32];
    return json_pack("{s:i, s:i, s:i, s:s, s:o}", "bits", (int)s->bits, "base", (int)s->base,
                     "shift", (int)s->shift, "column", expression(s, text), "cute",
                     as_cute(&r->tile, s, cute) ? json_string(cute) : json_null());
}

static json_t *fix_json(const banks_report *r) {
    if (r->result.degree == 1) {
        return json_null();
    }
    return json_pack("{s:o, s:o}", "pad",
                     r->remedy.has_pad ? json_integer(r->remedy.pad) : json_null(), "swizzle",
                     r->remedy.has_swizzle ? swizzle_json(r, &r->remedy.swizzle) : json_null());
}

static json_t *degrees_json(const banks_report *r) {
    json_t *list = json_array();
    for (uint64_t i = 0; i < r->result.accesses; i++) {
        cen_bank_access access;
        bool failed = cen_banks_judge_access(&r->tile, i, &access);
        cli_json_append(&list, failed ? NULL : json_integer(access.degree));
    }
    return list;
}

int banks_print_json(const banks_report *r) {
    const cen_banks_tile *t = &r->tile;
    const cen_banks_result *sum = &r->result;
    return cli_json_print(
        "banks",
        json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}",
                  "degree", (json_int_t)sum->degree, "mean_degree", sum->mean_degree, "accesses",
                  (json_int_t)sum->accesses, "wavefronts", (json_int_t)sum->wavefronts,
                  "ideal_wavefronts", (json_int_t)sum->ideal_wavefronts, "conflicts",
                  (json_int_t)(sum->wavefronts - sum->ideal_wavefronts), "access",
                  banks_walks[t->walk], "rows", (json_int_t)t->rows, "cols", (json_int_t)t->cols,
                  "elem_bytes", (json_int_t)t->elem_bytes, "pad", (json_int_t)t->pad, "stride",
                  t->stride ? json_integer(t->stride) : json_null(), "swizzle",
                  t->swizzle.bits ? swizzle_json(r, &t->swizzle) : json_null(), "fix", fix_json(r),
                  "degrees", degrees_json(r)));
}
