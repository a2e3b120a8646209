/* How far one tensor is from another. */
#include "codec/tensor_values.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct sums {
    uint64_t different, nonfinite, lost;         /* lost: finite in the first only */
    double count, max_error, error2, a2, b2, ab; /* of the pairs that are finite */
} sums;

/* A piece's sums are made on their own, so that many small numbers are not lost beside a large sum.
 */
static void add_pieces(const double *a, const double *b, size_t count, sums *all) {
    sums s = {0};
    for (size_t i = 0; i < count; i++) {
        bool finite = isfinite(a[i]) && isfinite(b[i]);
        bool equal = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        double x = finite ? a[i] : 0, y = finite ? b[i] : 0, e = fabs(x - y);
        s.different += !equal;
        s.nonfinite += !equal && !finite;
        s.lost += isfinite(a[i]) && !finite;
        s.count += finite;
        s.max_error = e > s.max_error ? e : s.max_error;
        s.error2 += e * e;
        s.a2 += x * x;
        s.b2 += y * y;
        s.ab += x * y;
    }
    all->different += s.different;
    all->nonfinite += s.nonfinite;
    all->lost += s.lost;
    all->count += s.count;
    all->max_error = s.max_error > all->max_error ? s.max_error : all->max_error;
    all->error2 += s.error2;
    all->a2 += s.a2;
    all->b2 += s.b2;
    all->ab += s.ab;
}

static void conclude(const sums *s, cen_tensor_difference *d) {
    d->different = s->different;
    d->nonfinite = s->nonfinite;
    d->max_error = s->max_error;
    d->mse = s->count > 0 ? s->error2 / s->count : 0;
    d->sqnr_db = s->error2 > 0 ? 10 * log10(s->a2 / s->error2) : (double)INFINITY;
    bool both = s->a2 > 0 && s->b2 > 0;
    double cosine = both ? s->ab / (sqrt(s->a2) * sqrt(s->b2)) : 0;
    d->cosine = s->error2 > 0 ? fmin(cosine, 1) : 1; /* rounded, it may be more */
    if (s->lost) {                                   /* as in a codec's report */
        d->max_error = d->mse = INFINITY;
        d->sqnr_db = -INFINITY;
        d->cosine = 0;
    }
}

static uint64_t count_unequal(const uint8_t *a, const uint8_t *b, uint64_t count, uint32_t size) {
    uint64_t unequal = 0;
    for (size_t i = 0; i < count; i++) {
        unequal += memcmp(a + i * size, b + i * size, size) != 0;
    }
    return unequal;
}

/* The two files' tensors, and room for a piece of each. */
typedef struct pair {
    ceni_tensor_source a, b;
    double *x, *y;
} pair;

/* Counts elements of `size` bytes that are not the same to the bit. */
static cen_status compare_bytes(const pair *p, uint32_t size, uint64_t *different) {
    uint8_t *x = (uint8_t *)p->x, *y = (uint8_t *)p->y;
    uint64_t bytes = p->a.tensor->bytes;
    cen_status status = CEN_OK;
    *different = 0;
    for (uint64_t at = 0; at < bytes && !status; at += CENI_PIECE) {
        uint64_t n = bytes - at < CENI_PIECE ? bytes - at : CENI_PIECE;
        status = cen_tensors_read(p->a.file, p->a.tensor, at, n, x);
        if (!status) {
            status = cen_tensors_read(p->b.file, p->b.tensor, at, n, y);
        }
        *different += status ? 0 : count_unequal(x, y, n / size, size);
    }
    return status;
}

static cen_status compare_values(pair *p, cen_tensor_difference *d) {
    sums all = {0};
    cen_status status = CEN_OK;
    for (uint64_t at = 0; at < d->count && !status; at += CENI_PIECE) {
        uint64_t n = d->count - at < CENI_PIECE ? d->count - at : CENI_PIECE;
        status = ceni_tensor_source_read(&p->a, at, (size_t)n, p->x);
        if (!status) {
            status = ceni_tensor_source_read(&p->b, at, (size_t)n, p->y);
        }
        if (!status) {
            add_pieces(p->x, p->y, (size_t)n, &all);
        }
    }
    if (!status) {
        conclude(&all, d);
    }
    return status;
}

static bool is_wide(const ceni_tensor_source *source) {
    return source->dtype == CEN_INT64 || source->dtype == CEN_UINT64;
}

static cen_status compare(pair *p, cen_tensor_difference *d) {
    const cen_tensor *a = p->a.tensor, *b = p->b.tensor;
    if (p->a.count != p->b.count) {
        return ceni_fail(CEN_ERR_INVALID,
                         "tensor '%.200s' has %" PRIu64 " elements, and '%.200s' %" PRIu64, a->name,
                         p->a.count, b->name, p->b.count);
    }
    bool same = !strcmp(a->type, b->type) && !p->a.room && !p->b.room;
    *d = (cen_tensor_difference){.count = p->a.count, .numeric = p->a.dtype && p->b.dtype};
    if (!d->numeric && !same) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "tensor '%.200s': %s and %s are not comparable",
                         a->name, a->type, b->type);
    }
    if (!d->numeric) {
        return compare_bytes(p, 1, &d->different);
    }
    cen_status status = compare_values(p, d);
    if (!status && same && is_wide(&p->a)) {
        status = compare_bytes(p, a->bits / 8, &d->different);
    }
    return status;
}

cen_status cen_tensors_compare(const cen_tensors *a, const cen_tensor *of_a, const cen_tensors *b,
                               const cen_tensor *of_b, cen_tensor_difference *difference) {
    if (!a || !of_a || !b || !of_b || !difference) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensors_compare: %s is NULL",
                         !a      ? "a"
                         : !of_a ? "of_a"
                         : !b    ? "b"
                         : !of_b ? "of_b"
                                 : "difference");
    }
    double *room = ceni_malloc(2 * CENI_PIECE * sizeof *room);
    if (!room) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "tensor '%.200s': no memory to compare it",
                         of_a->name);
    }
    pair p = {.x = room, .y = room + CENI_PIECE};
    cen_tensor_difference made;
    cen_status status = ceni_tensor_source_open(a, of_a, &p.a);
    if (!status) {
        status = ceni_tensor_source_open(b, of_b, &p.b);
    }
    if (!status) {
        status = compare(&p, &made);
    }
    ceni_tensor_source_close(&p.a);
    ceni_tensor_source_close(&p.b);
    ceni_free(room);
    if (!status) {
        *difference = made;
    }
    return status;
}
