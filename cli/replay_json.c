/* Replays as JSON; docs/replay.md documents the keys. */
#include "cli/replay_report.h"

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0;
}

static json_t *bytes(uint64_t n) {
    return json_integer((json_int_t)n);
}

/* Null where the recording has no clock. */
static json_t *seconds(double s) {
    return s > 0 ? json_real(s) : json_null();
}

static json_t *frames_json(const replay_outcome *o, uint32_t stack) {
    json_t *list = json_array();
    size_t count = 0;
    const cen_frame *frames =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(o->snapshot, stack, &count);
    for (size_t i = 0; frames && i < count; i++) {
        json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "file", frames[i].file, "line",
                                              (json_int_t)frames[i].line, "function",
                                              frames[i].function));
    }
    return list;
}

static json_t *request_json(const replay_outcome *o) {
    const replay_cap *c = &o->capped.cap;
    bool before = c->event == SIZE_MAX;
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "event",
        before ? json_null() : json_integer((json_int_t)c->event), "time_us",
        before ? json_null() : json_integer(o->d->events[c->event].time_us), "requested_bytes",
        bytes(c->requested_bytes), "live_bytes", bytes(c->live_bytes), "reserved_bytes",
        bytes(c->reserved_bytes), "pending_bytes", bytes(c->pending_bytes), "largest_free_bytes",
        c->fit ? bytes(c->largest_free_bytes) : json_null(), "frames", frames_json(o, c->stack));
}

static json_t *cap_json(const replay_outcome *o) {
    const replay_cap *c = &o->capped.cap;
    return json_pack("{s:o, s:b, s:b, s:o, s:o, s:o, s:o}", "cap_bytes", bytes(o->cap_bytes),
                     "fits", c->fit == REPLAY_FITS, "completed", c->fit != REPLAY_LACKS_SERVED,
                     "failed_requests", bytes(c->tried), "failed_requests_served", bytes(c->served),
                     c->fit ? "lacking_bytes" : "spare_bytes", bytes(c->margin_bytes), "at",
                     c->at_request ? request_json(o) : json_null());
}

static json_t *curve_json(const replay_outcome *o) {
    json_t *points = json_array();
    for (size_t i = 0; i < REPLAY_CURVE_POINTS; i++) {
        const replay_result *r = &o->curve[i];
        json_array_append_new(points,
                              json_pack("{s:o, s:o, s:f, s:o, s:f, s:f}", "page_bytes",
                                        bytes(replay_curve_mib[i] << 20), "reserved_peak_bytes",
                                        bytes(r->reserved_peak_bytes), "utilization",
                                        ratio(r->requested_peak_bytes, r->reserved_peak_bytes),
                                        "driver_calls", bytes(r->driver_calls), "driver_seconds",
                                        r->driver_seconds, "driver_seconds_second_half",
                                        r->driver_seconds_second_half));
    }
    return points;
}

static json_t *recorded_json(const replay_recorded *r) {
    if (r->reserved_unknown) {
        return json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "reserved_peak_bytes", "utilization",
                         "largest_hole_bytes", "driver_calls", "driver_seconds",
                         "driver_seconds_second_half");
    }
    return json_pack(
        "{s:o, s:f, s:o, s:o, s:f, s:f}", "reserved_peak_bytes", bytes(r->reserved_peak_bytes),
        "utilization", ratio(r->requested_peak_bytes, r->reserved_peak_bytes), "largest_hole_bytes",
        bytes(r->largest_hole_bytes), "driver_calls", bytes(r->driver_calls), "driver_seconds",
        r->driver_seconds, "driver_seconds_second_half", r->driver_second_half);
}

static json_t *own_json(const replay_result *r) {
    return json_pack("{s:o, s:f, s:o, s:o, s:f, s:f, s:o}", "reserved_peak_bytes",
                     bytes(r->reserved_peak_bytes), "utilization",
                     ratio(r->requested_peak_bytes, r->reserved_peak_bytes), "largest_hole_bytes",
                     bytes(r->largest_hole_bytes), "driver_calls", bytes(r->driver_calls),
                     "driver_seconds", r->driver_seconds, "driver_seconds_second_half",
                     r->driver_seconds_second_half, "remapped_bytes", bytes(r->remapped_bytes));
}

json_t *replay_json(const replay_outcome *o) {
    const replay_result *r = &o->own;
    const replay_recorded *rec = &o->recorded;
    json_t *j =
        json_pack("{s:i, s:o, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "device", o->d->device, "requested_peak_bytes", bytes(r->requested_peak_bytes),
                  "recorded", recorded_json(rec), "cenote", own_json(r), "oom", rec->oom,
                  "truncated", o->d->truncated, "events", bytes(o->d->event_count), "operations",
                  bytes(rec->operations), "recorded_seconds", seconds(rec->seconds),
                  "recorded_seconds_second_half", seconds(rec->second_half_seconds),
                  "private_pools", bytes(r->private_ids), "unknown_frees", bytes(r->unknown_frees),
                  "lost_frees", bytes(r->lost_frees), "pending_frees", bytes(r->pending_frees));
    bool ok = j && (!o->cap_bytes || !json_object_set_new(j, "cap", cap_json(o))) &&
              (!o->with_curve || !json_object_set_new(j, "curve", curve_json(o)));
    if (!ok) {
        json_decref(j);
        return NULL;
    }
    return j;
}
