/* The explanation for programs. docs/explain.md documents the keys; they only ever get company. */
#include "trace/diagnose_json.h"

#include "base/log.h"

#include <string.h>

/* Null where the recording has no segments. */
static json_t *held(const ceni_diag *diag, uint64_t n) {
    return diag->held_unknown ? json_null() : bytes(n);
}

static json_t *frames(builder *b, const ceni_diag *diag, uint32_t stack) {
    size_t count = 0;
    const cen_frame *f =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(diag->snapshot, stack, &count);
    return frame_list(b, f, count);
}

static json_t *user_frame(builder *b, const ceni_diag *diag, uint32_t stack) {
    const cen_frame *f = ceni_user_frame(diag->snapshot, stack);
    return f ? frame(b, f) : json_null();
}

typedef struct line_sink {
    builder *b;
    json_t *array;
} line_sink;

static void add_line(void *arg, const char *line) {
    line_sink *sink = arg;
    append(sink->b, sink->array, text(line));
}

static json_t *evidence(builder *b, const ceni_diag *diag) {
    line_sink sink = {b, json_array()};
    b->failed = !ceni_put_evidence(diag, add_line, &sink) || b->failed;
    return sink.array;
}

static json_t *actions(builder *b, const ceni_diag *diag) {
    json_t *array = json_array();
    for (size_t i = 0; i < diag->action_count; i++) {
        json_t *object = json_object();
        set(b, object, "text", text(diag->actions[i].text));
        set(b, object, "saves_bytes", bytes(diag->actions[i].bytes));
        set(b, object, "mark", text(ceni_mark_name(diag->actions[i].mark)));
        append(b, array, object);
    }
    return array;
}

static json_t *owners(builder *b, const ceni_diag *diag) {
    json_t *array = json_array();
    for (size_t i = 0; i < diag->owner_count; i++) {
        const ceni_owner *o = &diag->owners[i];
        json_t *object = json_object();
        set(b, object, "label", label(o));
        set(b, object, "at", o->user ? frame(b, o->user) : json_null());
        set(b, object, "bytes", bytes(o->bytes));
        set(b, object, "blocks", bytes(o->blocks));
        set(b, object, "inferred_blocks", bytes(o->inferred));
        append(b, array, object);
    }
    return array;
}

static json_t *suspects(builder *b, const ceni_diag *diag) {
    json_t *array = json_array();
    for (size_t i = 0; i < diag->suspect_count; i++) {
        const ceni_suspect *s = &diag->suspects[i];
        json_t *object = json_object();
        set(b, object, "frames", frames(b, diag, s->stack));
        set(b, object, "allocated_at", user_frame(b, diag, s->stack));
        set(b, object, "bytes_per_step", json_real(s->bytes_per_step));
        set(b, object, "blocks_per_step", json_real(s->blocks_per_step));
        set(b, object, "blocks", bytes(s->blocks));
        set(b, object, "bytes", bytes(s->bytes));
        set(b, object, "block_bytes", bytes(s->block_size));
        set(b, object, "steps_to_cap", s->steps_left < 0 ? json_null() : json_real(s->steps_left));
        append(b, array, object);
    }
    return array;
}

static void set_sums(builder *b, json_t *object, const ceni_segment_group *g) {
    set(b, object, "held_bytes", bytes(g->bytes));
    set(b, object, "live_bytes", bytes(g->live));
    set(b, object, "segments", bytes(g->segments));
    set(b, object, "hole_bytes", bytes(g->holes));
    set(b, object, "holes", bytes(g->hole_count));
    set(b, object, "largest_hole_bytes", bytes(g->hole_largest));
}

static json_t *holes(builder *b, const ceni_diag *diag) {
    json_t *object = json_object();
    set_sums(b, object, &diag->total);
    set(b, object, "segments_with_holes", bytes(diag->segments_with_holes));
    set(b, object, "empty_segment_bytes", bytes(diag->cached));
    json_t *streams = json_array();
    for (size_t i = 0; i < diag->stream_count; i++) {
        json_t *one = json_object();
        set(b, one, "stream", bytes(diag->streams[i].stream));
        set_sums(b, one, &diag->streams[i]);
        append(b, streams, one);
    }
    set(b, object, "by_stream", streams);
    return object;
}

static json_t *pools(builder *b, const ceni_diag *diag) {
    json_t *array = json_array();
    for (size_t i = 0; i < diag->pool_count; i++) {
        const ceni_segment_group *g = &diag->pools[i];
        json_t *object = json_object(), *most = json_array();
        set(b, object, "id", json_pack("[I,I]", (json_int_t)g->pool[0], (json_int_t)g->pool[1]));
        set_sums(b, object, g);
        for (size_t o = 0; o < 2 && g->owner[o] != CENI_NO_INDEX; o++) {
            ceni_owner owner = diag->owners[g->owner[o]];
            owner.inferred = owner.largest_count = 0;
            json_t *one = json_object();
            set(b, one, "label", label(&owner));
            set(b, one, "at", owner.user ? frame(b, owner.user) : json_null());
            set(b, one, "bytes", bytes(g->owner_bytes[o]));
            append(b, most, one);
        }
        set(b, object, "owners", most);
        append(b, array, object);
    }
    return array;
}

static json_t *steps(builder *b, const ceni_diag *diag) {
    static const char *const from[] = {"none", "marks", "inferred"};
    json_t *object = json_object(), *peaks = json_array(), *lows = json_array();
    for (size_t i = 0; i < diag->step_complete_count; i++) {
        append(b, peaks, bytes(diag->steps[i].peak));
        append(b, lows, bytes(diag->steps[i].low));
    }
    set(b, object, "from", text(from[diag->steps_from]));
    set(b, object, "complete", bytes(diag->step_complete_count));
    set(b, object, "peak_bytes", peaks);
    set(b, object, "low_bytes", lows);
    set(b, object, "growth_bytes", json_integer((json_int_t)diag->growth));
    return object;
}

static json_t *failed(builder *b, const ceni_diag *diag) {
    json_t *object = json_object();
    bool inferred = diag->request_stack == CEN_NO_STACK && diag->request_like != CEN_NO_STACK;
    uint32_t stack = inferred ? diag->request_like : diag->request_stack;
    ceni_str s = {0};
    ceni_put_failed(&s, diag);
    set(b, object, "text", from_str(&s));
    set(b, object, "requested_bytes", bytes(diag->request));
    set(b, object, "stream", bytes(diag->request_stream));
    set(b, object, "device_free_bytes",
        diag->free_unknown ? json_null() : bytes(diag->device_free));
    set(b, object, "failures", bytes(diag->failures));
    set(b, object, "at", diag->snapshot ? user_frame(b, diag, stack) : json_null());
    set(b, object, "inferred", json_boolean(inferred));
    return object;
}

static json_t *processes(builder *b, const ceni_diag *diag) {
    json_t *array = json_array();
    for (size_t i = 0; i < diag->process_count; i++) {
        append(b, array,
               json_pack("{s:I,s:I}", "pid", (json_int_t)diag->processes[i].pid, "bytes",
                         (json_int_t)diag->processes[i].bytes));
    }
    return array;
}

static void set_cap(builder *b, json_t *object, const ceni_diag *diag) {
    bool exact = diag->cap_low == diag->cap_high;
    set(b, object, "cap_bytes", known(diag->cap_low));
    set(b, object, "cap_from", text(ceni_cap_name(diag->cap_from)));
    set(b, object, "cap_low_bytes", known(diag->cap_low ? diag->cap_low : diag->held_peak));
    set(b, object, "cap_high_bytes",
        exact                          ? known(diag->cap_high)
        : diag->cap_high == UINT64_MAX ? json_null()
                                       : bytes(diag->cap_high));
    set(b, object, "cap_given_contradicted", json_boolean(diag->cap_contradicted));
}

static void set_device(builder *b, json_t *object, const ceni_diag *diag) {
    static const char *const moments[] = {"state", "peak", "failed"};
    set(b, object, "device", json_integer(diag->device));
    set(b, object, "verdict", text(cen_verdict_name(diag->verdict)));
    set(b, object, "next", diag->next ? text(cen_verdict_name(diag->next)) : json_null());
    set(b, object, "moment", text(moments[diag->moment]));
    set(b, object, "evidence", evidence(b, diag));
    set(b, object, "failed", diag->request ? failed(b, diag) : json_null());
    set(b, object, "live_bytes", bytes(diag->live));
    set(b, object, "held_bytes", held(diag, diag->held));
    set(b, object, "sufficient_bytes", bytes(diag->needed));
    set(b, object, "next_sufficient_bytes", known(diag->next_needed));
    set(b, object, "over_bytes", bytes(diag->over));
    set(b, object, "packing_buys_steps", bytes(diag->packed_steps));
    set_cap(b, object, diag);
    set(b, object, "live_peak_bytes", bytes(diag->live_peak));
    set(b, object, "held_peak_bytes", held(diag, diag->held_peak));
    set(b, object, "device_total_bytes", known(diag->device_total));
    set(b, object, "outside_bytes", bytes(diag->outside));
    set(b, object, "processes", processes(b, diag));
    set(b, object, "private_pool_bytes", bytes(diag->in_pools));
    set(b, object, "do_first", actions(b, diag));
    set(b, object, "suspects", suspects(b, diag));
    set(b, object, "steps", steps(b, diag));
    set(b, object, "holes", diag->held_unknown ? json_null() : holes(b, diag));
    set(b, object, "pools", pools(b, diag));
    set(b, object, "owners", owners(b, diag));
    if (diag->source) {
        set(b, object, "events", bytes(diag->source->event_count));
        set(b, object, "truncated", json_boolean(diag->source->truncated));
        set(b, object, "cut_off", json_boolean(ceni_is_cut_off(diag->snapshot)));
        set(b, object, "unknown_frees", bytes(diag->source->unknown_frees));
    }
}

json_t *ceni_json_explanation(builder *b, const cen_explanation *explanation) {
    json_t *root = json_object(), *others = json_array();
    set(b, root, "version", json_integer(1));
    set(b, root, "file", text(explanation->name));
    set(b, root, "source", text(explanation->devices[0].source ? "snapshot" : "log"));
    set_device(b, root, &explanation->devices[0]);
    for (size_t i = 1; i < explanation->device_count; i++) {
        json_t *object = json_object();
        set_device(b, object, &explanation->devices[i]);
        append(b, others, object);
    }
    set(b, root, "other_devices", others);
    return root;
}

cen_status cen_explain_json(const cen_explanation *explanation, char **json) {
    builder b = {false};
    json_t *root = explanation->ranks ? ceni_json_ranks(&b, explanation)
                                      : ceni_json_explanation(&b, explanation);
    char *dumped = b.failed ? NULL : json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    size_t length = dumped ? strlen(dumped) : 0;
    char *line = dumped ? realloc(dumped, length + 2) : NULL;
    if (!line) {
        free(dumped);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    memcpy(line + length, "\n", 2);
    *json = line;
    return CEN_OK;
}
