/* Ranks for programs. docs/explain.md documents the keys; they only ever get company. */
#include "trace/diagnose_json.h"

#include "trace/diagnose_ranks.h"

/* The largest are what tells. */
enum { MAX_DIFFERENCES = 100 };

static json_t *rank_object(builder *b, const ceni_rank *rank) {
    static const char *const moments[] = {"state", "peak", "failed"};
    static const char *const stands[] = {"within", "more", "less"};
    json_t *object = json_object();
    set(b, object, "rank", bytes(rank->number));
    set(b, object, "file", text(rank->name));
    set(b, object, "device", json_integer(rank->device));
    set(b, object, "moment", text(moments[rank->moment]));
    set(b, object, "failed", json_boolean(rank->moment == CENI_MOMENT_FAILED));
    set(b, object, "requested_bytes", known(rank->request));
    set(b, object, "live_bytes", bytes(rank->live));
    set(b, object, "held_bytes", bytes(rank->held));
    set(b, object, "needed_bytes", bytes(rank->needed));
    set(b, object, "live_peak_bytes", bytes(rank->live_peak));
    set(b, object, "held_peak_bytes", bytes(rank->held_peak));
    set(b, object, "verdict", text(cen_verdict_name(rank->verdict)));
    set(b, object, "next", rank->next ? text(cen_verdict_name(rank->next)) : json_null());
    set(b, object, "needs", text(stands[rank->need_stand]));
    set(b, object, "holds", text(stands[rank->held_stand]));
    set(b, object, "stands_out", json_boolean(rank->stands_out));
    return object;
}

static json_t *outlier(builder *b, const ceni_ranks *ranks) {
    static const char *const reasons[] = {"", "failed", "needs", "holds", "verdict"};
    json_t *object = json_object(), *members = json_array();
    set(b, object, "rank", bytes(ranks->ranks[ranks->explained].number));
    for (size_t i = 0; i < ranks->count; i++) {
        if (ranks->ranks[i].stands_out) {
            append(b, members, bytes(ranks->ranks[i].number));
        }
    }
    set(b, object, "ranks", members);
    set(b, object, "reason", text(reasons[ranks->outlier]));
    set(b, object, "weak", json_boolean(ceni_ranks_are_weak(ranks)));
    return object;
}

static json_t *groups(builder *b, const ceni_ranks *ranks) {
    json_t *array = json_array();
    for (size_t g = 0; g < ranks->group_count; g++) {
        json_t *members = json_array();
        for (size_t i = 0; i < ranks->count; i++) {
            if (ranks->ranks[i].group == g) {
                append(b, members, bytes(ranks->ranks[i].number));
            }
        }
        append(b, array, members);
    }
    return array;
}

static void set_place(builder *b, json_t *object, const ceni_rank_stack *stack) {
    const cen_frame *user = stack ? stack->owner.user : NULL;
    set(b, object, "label", stack ? label(&stack->owner) : text("no frames recorded"));
    set(b, object, "at", user ? frame(b, user) : json_null());
    set(b, object, "frames",
        frame_list(b, stack ? stack->frames : NULL, stack ? stack->frame_count : 0));
}

static json_t *differences(builder *b, const ceni_ranks *ranks) {
    json_t *array = json_array();
    for (size_t i = 0; i < ranks->difference_count && i < MAX_DIFFERENCES; i++) {
        const ceni_difference *d = &ranks->differences[i];
        json_t *object = json_object();
        set(b, object, "difference_bytes", json_integer((json_int_t)(d->bytes - d->median)));
        set(b, object, "bytes", bytes(d->bytes));
        set(b, object, "median_bytes", bytes(d->median));
        set(b, object, "blocks", bytes(d->blocks));
        set_place(b, object, &ranks->stacks[d->stack]);
        append(b, array, object);
    }
    return array;
}

static json_t *one_alloc(builder *b, const ceni_ranks *ranks, uint64_t rank,
                         const ceni_rank_alloc *alloc) {
    json_t *object = json_object();
    set(b, object, "rank", bytes(rank));
    set(b, object, "bytes", bytes(alloc->size));
    set_place(b, object, alloc->stack == CENI_NO_INDEX ? NULL : &ranks->stacks[alloc->stack]);
    return object;
}

static json_t *sequence(builder *b, const ceni_ranks *ranks) {
    static const char *const states[] = {"none", "start-lost", "same", "mixed", "departs"};
    bool departs = ranks->sequence == CENI_SEQUENCE_DEPARTS;
    json_t *object = json_object();
    set(b, object, "state", text(states[ranks->sequence]));
    set(b, object, "equal_allocations", bytes(ranks->equal_allocs));
    set(b, object, "here",
        departs ? one_alloc(b, ranks, ranks->ranks[ranks->explained].number, &ranks->here)
                : json_null());
    set(b, object, "there",
        departs ? one_alloc(b, ranks, ranks->ranks[ranks->reference].number, &ranks->there)
                : json_null());
    return object;
}

typedef struct missing_sink {
    builder *b;
    json_t *array;
} missing_sink;

static void add_missing(void *arg, uint64_t first, uint64_t last) {
    missing_sink *sink = arg;
    for (uint64_t n = first; n <= last; n++) {
        append(sink->b, sink->array, bytes(n));
    }
}

json_t *ceni_json_ranks(builder *b, const cen_explanation *explanation) {
    const ceni_ranks *ranks = explanation->ranks;
    json_t *root = json_object(), *all = json_array();
    missing_sink sink = {b, json_array()};
    for (size_t i = 0; i < ranks->count; i++) {
        append(b, all, rank_object(b, &ranks->ranks[i]));
    }
    ceni_ranks_missing(ranks, add_missing, &sink);
    set(b, root, "version", json_integer(1));
    set(b, root, "source", text("ranks"));
    set(b, root, "numbered_by", text(ranks->numbered ? "name" : "place"));
    set(b, root, "ranks", all);
    set(b, root, "missing_ranks", sink.array);
    set(b, root, "needed_median_bytes", bytes(ranks->need_median));
    set(b, root, "needed_threshold_bytes", bytes(ranks->need_threshold));
    set(b, root, "held_median_bytes", bytes(ranks->held_median));
    set(b, root, "held_threshold_bytes", bytes(ranks->held_threshold));
    set(b, root, "outlier", ranks->outlier ? outlier(b, ranks) : json_null());
    set(b, root, "groups", groups(b, ranks));
    set(b, root, "explained_rank", bytes(ranks->ranks[ranks->explained].number));
    set(b, root, "compared_ranks", bytes(ranks->other_count));
    set(b, root, "differences", differences(b, ranks));
    set(b, root, "sequence", sequence(b, ranks));
    set(b, root, "explanation", ceni_json_explanation(b, explanation));
    return root;
}
