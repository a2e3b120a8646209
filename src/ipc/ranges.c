#include "ipc/ranges.h"

#include "base/mem.h"

enum { BY_OFFSET, BY_SIZE };
enum { ALIGN = 512 };

static bool less(const ceni_range *a, const ceni_range *b, int by) {
    return by == BY_SIZE && a->size != b->size ? a->size < b->size : a->offset < b->offset;
}

/* Splits the tree into those before `at`, and the others. */
static void split(ceni_range *tree, const ceni_range *at, int by, ceni_range **low,
                  ceni_range **high) {
    while (tree) {
        if (less(tree, at, by)) {
            *low = tree;
            low = &tree->right[by];
            tree = *low;
        } else {
            *high = tree;
            high = &tree->left[by];
            tree = *high;
        }
    }
    *low = *high = NULL;
}

static ceni_range *join(ceni_range *low, ceni_range *high, int by) {
    ceni_range *root = NULL, **link = &root;
    while (low && high) {
        if (low->weight > high->weight) {
            *link = low;
            link = &low->right[by];
            low = *link;
        } else {
            *link = high;
            link = &high->left[by];
            high = *link;
        }
    }
    *link = low ? low : high;
    return root;
}

static void insert(ceni_ranges *ranges, ceni_range *range, int by) {
    ceni_range **link = &ranges->roots[by];
    while (*link && (*link)->weight >= range->weight) {
        link = less(*link, range, by) ? &(*link)->right[by] : &(*link)->left[by];
    }
    ceni_range *below = *link;
    *link = range;
    split(below, range, by, &range->left[by], &range->right[by]);
}

static void take_out(ceni_ranges *ranges, ceni_range *range, int by) {
    ceni_range **link = &ranges->roots[by];
    while (*link != range) {
        link = less(*link, range, by) ? &(*link)->right[by] : &(*link)->left[by];
    }
    *link = join(range->left[by], range->right[by], by);
}

static ceni_range *range_new(ceni_ranges *ranges, uint64_t offset, uint64_t size) {
    ceni_range *range = ceni_calloc(1, sizeof *range);
    if (range) {
        ranges->seed = ranges->seed * 1664525u + 1013904223u;
        range->weight = ranges->seed ^ ranges->seed >> 16;
        range->offset = offset;
        range->size = size;
    }
    return range;
}

int ceni_ranges_open(ceni_ranges *ranges, uint64_t size) {
    *ranges = (ceni_ranges){.size = size, .seed = 1};
    ceni_range *all = range_new(ranges, 0, size);
    if (!all) {
        return -1;
    }
    insert(ranges, all, BY_OFFSET);
    insert(ranges, all, BY_SIZE);
    return 0;
}

void ceni_ranges_close(ceni_ranges *ranges) {
    ceni_range *range = ceni_ranges_at(ranges, 0);
    while (range) {
        ceni_range *after = range->after;
        ceni_free(range);
        range = after;
    }
    *ranges = (ceni_ranges){0};
}

/* The smallest free range of at least `size`. */
static ceni_range *best_fit(const ceni_ranges *ranges, uint64_t size) {
    ceni_range *best = NULL;
    for (ceni_range *at = ranges->roots[BY_SIZE]; at;) {
        if (at->size >= size) {
            best = at;
            at = at->left[BY_SIZE];
        } else {
            at = at->right[BY_SIZE];
        }
    }
    return best;
}

ceni_range *ceni_ranges_take(ceni_ranges *ranges, uint64_t size, bool *no_memory) {
    *no_memory = false;
    if (size > ranges->size) {
        return NULL;
    }
    size = (size + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
    ceni_range *range = best_fit(ranges, size);
    if (!range) {
        return NULL;
    }
    ceni_range *rest = NULL;
    if (range->size > size) {
        rest = range_new(ranges, range->offset + size, range->size - size);
        if (!rest) {
            *no_memory = true;
            return NULL;
        }
    }
    take_out(ranges, range, BY_SIZE);
    range->used = true;
    range->size = size;
    ranges->used += size;
    if (rest) {
        rest->before = range;
        rest->after = range->after;
        if (rest->after) {
            rest->after->before = rest;
        }
        range->after = rest;
        insert(ranges, rest, BY_OFFSET);
        insert(ranges, rest, BY_SIZE);
    }
    return range;
}

/* The range takes in what follows it, which goes. */
static void swallow(ceni_ranges *ranges, ceni_range *range) {
    ceni_range *after = range->after;
    take_out(ranges, after, BY_OFFSET);
    range->size += after->size;
    range->after = after->after;
    if (range->after) {
        range->after->before = range;
    }
    ceni_free(after);
}

void ceni_ranges_give(ceni_ranges *ranges, ceni_range *range) {
    ranges->used -= range->size;
    range->used = false;
    range->owner = NULL;
    if (range->after && !range->after->used) {
        take_out(ranges, range->after, BY_SIZE);
        swallow(ranges, range);
    }
    if (range->before && !range->before->used) {
        range = range->before;
        take_out(ranges, range, BY_SIZE);
        swallow(ranges, range);
    }
    insert(ranges, range, BY_SIZE);
}

ceni_range *ceni_ranges_at(const ceni_ranges *ranges, uint64_t offset) {
    ceni_range *at = offset < ranges->size ? ranges->roots[BY_OFFSET] : NULL;
    while (at && (offset < at->offset || offset - at->offset >= at->size)) {
        at = offset < at->offset ? at->left[BY_OFFSET] : at->right[BY_OFFSET];
    }
    return at;
}

uint64_t ceni_ranges_largest(const ceni_ranges *ranges) {
    const ceni_range *at = ranges->roots[BY_SIZE];
    while (at && at->right[BY_SIZE]) {
        at = at->right[BY_SIZE];
    }
    return at ? at->size : 0;
}

static size_t count_nodes(const ceni_range *at, int by) {
    return at ? 1 + count_nodes(at->left[by], by) + count_nodes(at->right[by], by) : 0;
}

bool ceni_ranges_verify(const ceni_ranges *ranges) {
    uint64_t at = 0, used = 0;
    size_t all = 0, unused = 0;
    const ceni_range *before = NULL;
    for (const ceni_range *r = ceni_ranges_at(ranges, 0); r; before = r, r = r->after) {
        if (r->offset != at || !r->size || r->before != before ||
            (before && !before->used && !r->used) || ceni_ranges_at(ranges, at) != r) {
            return false;
        }
        at += r->size;
        used += r->used ? r->size : 0;
        all++;
        unused += !r->used;
    }
    return at == ranges->size && used == ranges->used &&
           count_nodes(ranges->roots[BY_OFFSET], BY_OFFSET) == all &&
           count_nodes(ranges->roots[BY_SIZE], BY_SIZE) == unused;
}
