/* Exports: withdrawn, revoked, over; their events. */
#include "ipc/state_int.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "ipc/step.h"

uint32_t ceni_export_publisher(const ceni_state *s, const ceni_export *e) {
    const ceni_set *set = ceni_set_at(s, e->set);
    return set->by_reader ? CENI_NONE : set->holder;
}

bool ceni_export_was_over(const ceni_state *s, uint32_t user, uint64_t id) {
    const ceni_user *u = ceni_user_at(s, user);
    for (uint32_t i = 0; i < u->over_count; i++) {
        if (u->over[i] == id) {
            return true;
        }
    }
    return ceni_state_gave_id(s, id) && ceni_export_find(s, id) == CENI_NONE;
}

/* Keeps the id of an export that is over, in the room that its announcement made. */
static void note_over(const ceni_state *s, const ceni_export *e) {
    ceni_user *u = ceni_user_at(s, ceni_set_at(s, e->set)->user);
    if (e->hidden || ceni_state_gave_id(s, e->id)) {
        return;
    }
    u->over[u->over_next] = e->id;
    u->over_next = (u->over_next + 1) % CENI_OVER_MAX;
    u->over_count += u->over_count < CENI_OVER_MAX;
}

static void export_free(ceni_state *s, uint32_t index) {
    ceni_export *e = ceni_export_at(s, index);
    uint32_t set_index = e->set;
    ceni_set *set = ceni_set_at(s, set_index);
    uint32_t publisher = ceni_export_publisher(s, e);
    note_over(s, e);
    if (publisher != CENI_NONE) {
        ceni_client_at(s, publisher)->export_count--;
    }
    ceni_set_count_fd(s, set, -((e->directory_fd >= 0) + (e->event_fd >= 0)));
    ceni_state_close_fd(s, set->user, &e->directory_fd);
    ceni_state_close_fd(s, set->user, &e->event_fd);
    ceni_free(e->directory);
    ceni_list_remove(&s->exports, offsetof(ceni_export, by_set), &set->exports, index);
    set->export_count--;
    ceni_user_at(s, set->user)->exports--;
    if (e->name != CENI_NONE) {
        ceni_list_remove(&s->exports, offsetof(ceni_export, by_name),
                         &ceni_name_at(s, e->name)->withdrawn, index);
        ceni_name_release(s, e->name);
    }
    ceni_slots_give(&s->exports, index);
    ceni_set_release(s, set_index);
}

void ceni_export_release(ceni_state *s, uint32_t index) {
    const ceni_export *e = ceni_export_at(s, index);
    if (!e->withdrawn || e->lease_count) {
        return;
    }
    uint32_t publisher = ceni_export_publisher(s, e);
    if (publisher != CENI_NONE && e->announced &&
        !ceni_notice_export(s, publisher, CEN_SHARE_IDLE, e)) {
        return; /* it hears of it when it is back */
    }
    export_free(s, index);
}

void ceni_export_shut(ceni_state *s, uint32_t index) {
    ceni_export *e = ceni_export_at(s, index);
    e->hidden = false;
    if (!e->withdrawn) {
        e->withdrawn = true;
        ceni_timer_stop(s, index | CENI_TIMER_EXPORT);
        if (e->name != CENI_NONE) {
            ceni_name *n = ceni_name_at(s, e->name);
            ceni_list_remove(&s->exports, offsetof(ceni_export, by_name), &n->living, index);
            ceni_list_push(&s->exports, offsetof(ceni_export, by_name), &n->withdrawn, index);
            n->living_count--;
        }
        ceni_export_release(s, index);
    }
}

void ceni_export_withdraw(ceni_state *s, uint32_t index, uint32_t by) {
    const ceni_export *e = ceni_export_at(s, index);
    if (!e->withdrawn || e->hidden) {
        ceni_notice_withdrawn(s, e, by);
        ceni_export_shut(s, index);
    }
}

cen_status ceni_state_on_withdraw(ceni_state *s, uint32_t client, const ceni_wire_message *m) {
    uint64_t id = ((const ceni_wire_id *)m->body)->id;
    uint32_t index = ceni_export_find(s, id), user = ceni_client_at(s, client)->user;
    ceni_export *e = index == CENI_NONE ? NULL : ceni_export_at(s, index);
    const ceni_set *set = e ? ceni_set_at(s, e->set) : NULL;
    bool write, known = set && ceni_set_allows(s, set, client, &write);
    if (!known) { /* nor does it hear whether there is one for others */
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "there is no export %" PRIx64, id);
    }
    if (user != set->user && ceni_user_at(s, user)->uid != 0) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION,
                                 "export %" PRIx64 " is user %" PRIu32 "'s, who may take it back, "
                                 "as may root",
                                 id, ceni_user_at(s, set->user)->uid);
    }
    ceni_ipc_step("broker: withdraws an export");
    if (m->head.type == CENI_WIRE_REVOKE && !e->revoked) {
        e->revoked = true;
        ceni_notice_readers(s, e, CEN_SHARE_REVOKED);
    }
    ceni_export_withdraw(s, index, client);
    ceni_wire_begin(&s->out, m->head.type, m->head.seq, 0);
    ceni_state_send(s, client, NULL, 0);
    return CEN_OK;
}

void ceni_export_set_event(ceni_state *s, ceni_export *e, uint32_t flags, const uint8_t event[64],
                           int *fd) {
    bool file = flags & CENI_WIRE_EVENT_FD;
    const ceni_set *set = ceni_set_at(s, e->set);
    ceni_set_count_fd(s, set, (int)file - (e->event_fd >= 0));
    ceni_state_close_fd(s, set->user, &e->event_fd);
    if (file) {
        e->event_fd = *fd;
        *fd = -1;
    }
    e->has_token = flags & CENI_WIRE_EVENT_TOKEN;
    memcpy(e->event, event, sizeof e->event);
}

static cen_status set_event(ceni_state *s, ceni_export *e, const ceni_wire_event *b, int *fds) {
    const char *why;
    bool file = b->flags & CENI_WIRE_EVENT_FD;
    const ceni_user *u = ceni_user_at(s, ceni_set_at(s, e->set)->user);
    if (file && !s->calls.check(s->arg, fds[0], CENI_FD_EVENT, 0, &why)) {
        return ceni_state_refuse(s, CEN_ERR_INVALID, "the event: %s", why);
    }
    if (file && e->event_fd < 0 && u->fds >= s->limits.fds) {
        return ceni_state_refuse(s, CEN_ERR_LIMIT,
                                 "user %" PRIu32 " has %" PRIu32 " descriptors "
                                 "here, which is the limit",
                                 u->uid, u->fds);
    }
    ceni_export_set_event(s, e, b->flags, b->event, fds);
    if (b->flags != CENI_WIRE_EVENT_CLEAR) {
        ceni_notice_readers(s, e, (cen_share_notice_kind)CENI_WIRE_NOTICE_EVENT);
    }
    return CEN_OK;
}

cen_status ceni_state_on_event(ceni_state *s, uint32_t client, const ceni_wire_message *m,
                               int *fds) {
    const ceni_wire_event *b = m->body;
    uint32_t index = ceni_export_find(s, b->export_id);
    if (index == CENI_NONE) {
        return ceni_state_refuse(s, CEN_ERR_NOT_FOUND, "there is no export %" PRIx64, b->export_id);
    }
    ceni_export *e = ceni_export_at(s, index);
    bool publisher = ceni_export_publisher(s, e) == client;
    if (!publisher && (b->flags || ceni_lease_find(s, client, index) == CENI_NONE)) {
        return ceni_state_refuse(s, CEN_ERR_PERMISSION,
                                 b->flags ? "export %" PRIx64 " is not this client's"
                                          : "this client does not have export %" PRIx64 " open",
                                 b->export_id);
    }
    cen_status status = b->flags ? set_event(s, e, b, fds) : CEN_OK;
    if (status) {
        return status;
    }
    ceni_wire_event *r = ceni_wire_begin(&s->out, CENI_WIRE_EVENT, m->head.seq, sizeof *r);
    r->export_id = e->id;
    if (!b->flags) {
        r->flags = (e->event_fd >= 0 ? CENI_WIRE_EVENT_FD : 0) |
                   (e->has_token ? CENI_WIRE_EVENT_TOKEN : 0);
        memcpy(r->event, e->event, sizeof r->event);
    }
    ceni_state_send(s, client, &e->event_fd, r->flags & CENI_WIRE_EVENT_FD ? 1 : 0);
    return CEN_OK;
}
