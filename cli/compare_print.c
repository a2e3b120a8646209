/* What `cenote compare` found, as text and as JSON. */
#include "cli/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/json.h"

static const char *const kinds[] = {
    [COMPARE_SAME] = "same",       [COMPARE_WITHIN] = "within", [COMPARE_DIFFERS] = "differs",
    [COMPARE_SHAPE] = "shape",     [COMPARE_TYPES] = "types",   [COMPARE_ONLY_A] = "only in A",
    [COMPARE_ONLY_B] = "only in B"};

static const cen_tensor *tensor_of(const compare_row *row) {
    return row->a ? row->a : row->b;
}

const uint64_t *compare_shape(const compare_row *row, int side, uint32_t *rank) {
    const cen_tensor *t = side ? row->b : row->a;
    const cen_quantized *decoded = &row->decoded[side];
    *rank = decoded->rank ? decoded->rank : t ? t->rank : 0;
    return decoded->rank ? decoded->shape : t ? t->shape : NULL;
}

static const char *shape_text(const compare_row *row, int side) {
    uint32_t rank = 0;
    const uint64_t *shape = compare_shape(row, side, &rank);
    return tensors_shape(shape, rank);
}

/* What cannot be compared first, then by how far it is off. */
static int by_badness(const void *a, const void *b) {
    const compare_row *x = a, *y = b;
    if (x->kind != y->kind) {
        return x->kind > y->kind ? -1 : 1;
    }
    const cen_tensor_difference *p = &x->difference, *q = &y->difference;
    if ((p->nonfinite > 0) != (q->nonfinite > 0)) {
        return p->nonfinite ? -1 : 1;
    }
    return (p->sqnr_db > q->sqnr_db) - (p->sqnr_db < q->sqnr_db);
}

static void print_difference(const compare_row *row) {
    const cen_tensor_difference *d = &row->difference;
    if (!d->numeric) {
        printf("  %s bytes differ\n", cli_grouped(d->different));
        return;
    }
    printf("  %12.6g %12.6g %8.2f %11.8f %15s", d->max_error, d->mse, d->sqnr_db, d->cosine,
           cli_grouped(d->different));
    printf(d->nonfinite ? "  %s not finite\n" : "\n", cli_grouped(d->nonfinite));
}

static void print_row(const compare_row *row, int name) {
    printf("  ");
    tensors_put(tensors_text(tensor_of(row)->name), name);
    switch (row->kind) {
    case COMPARE_SHAPE:
        printf("  %s in A, ", shape_text(row, 0));
        printf("%s in B\n", shape_text(row, 1));
        break;
    case COMPARE_TYPES:
        printf("  %s in A, %s in B: not comparable\n", row->a->type, row->b->type);
        break;
    case COMPARE_ONLY_A:
    case COMPARE_ONLY_B:
        printf("  %s\n", kinds[row->kind]);
        break;
    default:
        print_difference(row);
    }
}

void compare_print(const compare_result *r, size_t top) {
    size_t listed = 0, same = 0, within = 0;
    int name = 4;
    qsort(r->rows, r->count, sizeof *r->rows, by_badness);
    while (listed < r->count && r->rows[listed].kind != COMPARE_SAME) {
        listed++;
    }
    for (size_t i = 0; i < r->count; i++) {
        int n = i < listed && i < top ? cli_columns(tensors_text(tensor_of(&r->rows[i])->name)) : 0;
        name = n > name ? n : name;
        same += r->rows[i].kind == COMPARE_SAME;
        within += r->rows[i].kind == COMPARE_WITHIN;
    }
    printf("%s and %s: %s", r->name_a, r->name_b, r->same ? "THE SAME" : "THEY DIFFER");
    printf(", %zu of %zu tensors equal", same, r->count);
    printf(within ? ", %zu within what is allowed\n" : "\n", within);
    if (!listed || !top) {
        return;
    }
    printf("\n  %-*s  %12s %12s %8s %11s %15s\n", name, "name", "max error", "MSE", "SQNR dB",
           "cosine", "different");
    for (size_t i = 0; i < listed && i < top; i++) {
        print_row(&r->rows[i], name);
    }
    if (listed > top) {
        printf("  and %zu more\n", listed - top);
    }
}

static json_t *shape_json(const compare_row *row, int side) {
    uint32_t rank = 0;
    const uint64_t *shape = compare_shape(row, side, &rank);
    return (side ? row->b : row->a) ? tensors_shape_json(shape, rank) : json_null();
}

static json_t *type_json(const cen_tensor *t) {
    return t ? json_string(t->type) : json_null();
}

static json_t *difference_json(const compare_row *row) {
    const cen_tensor_difference *d = &row->difference;
    if (row->kind > COMPARE_DIFFERS) {
        return json_null();
    }
    bool n = d->numeric;
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "count", (json_int_t)d->count,
                     n ? "different" : "different_bytes", (json_int_t)d->different, "nonfinite",
                     n ? json_integer((json_int_t)d->nonfinite) : json_null(), "max_error",
                     n ? tensors_real(d->max_error) : json_null(), "mse",
                     n ? tensors_real(d->mse) : json_null(), "sqnr_db",
                     n ? tensors_real(d->sqnr_db) : json_null(), "cosine",
                     n ? tensors_real(d->cosine) : json_null());
}

int compare_print_json(const compare_result *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const compare_row *row = &r->rows[i];
        cli_json_append(&list,
                        json_pack("{s:s, s:s, s:[o,o], s:[o,o], s:o}", "name", tensor_of(row)->name,
                                  "result", kinds[row->kind], "types", type_json(row->a),
                                  type_json(row->b), "shapes", shape_json(row, 0),
                                  shape_json(row, 1), "difference", difference_json(row)));
    }
    return cli_json_print("compare", json_pack("{s:s, s:s, s:b, s:o}", "a", r->name_a, "b",
                                               r->name_b, "same", (int)r->same, "tensors", list));
}
