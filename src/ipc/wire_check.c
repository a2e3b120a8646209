/* Checking messages: what is not refused here can be used without a look at a size. */
#include "ipc/wire.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

/* A message being read. */
typedef struct cursor {
    const uint8_t *at;
    size_t left;
    const char *type;
    enum ceni_wire_side side;
} cursor;

static const char *const sides[] = {"request", "reply", "notice"};

#define REFUSE(c, what, ...)                                                                       \
    ceni_fail(CEN_ERR_FORMAT, "a %s %s " what, (c)->type, sides[(c)->side], __VA_ARGS__)

#define REQUIRE(c, holds, what)                                                                    \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            return REFUSE(c, "%s", what);                                                          \
        }                                                                                          \
    } while (0)

/* Takes `size` bytes and their padding. */
static cen_status take(cursor *c, size_t size, const char *what, const void **part) {
    size_t padded = ceni_wire_padded(size);
    if (size > c->left || padded > c->left) {
        return REFUSE(c, "ends before its %s of %zu bytes", what, size);
    }
    for (size_t i = size; i < padded; i++) {
        if (c->at[i]) {
            return REFUSE(c, "has a %s that is not padded with zeros", what);
        }
    }
    *part = c->at;
    c->at += padded;
    c->left -= padded;
    return CEN_OK;
}

static cen_status take_name(cursor *c, uint32_t size, ceni_wire_message *message) {
    if (size > CEN_SHARE_NAME_MAX) {
        return REFUSE(c, "has a name of %" PRIu32 " bytes: at most %d are allowed", size,
                      CEN_SHARE_NAME_MAX);
    }
    const void *part;
    cen_status status = take(c, size, "name", &part);
    if (status) {
        return status;
    }
    const unsigned char *text = part;
    for (uint32_t i = 0; i < size; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return REFUSE(c, "has a name with the byte 0x%02x: it must be printable, without space",
                          text[i]);
        }
    }
    if (size && *text == '#') {
        return REFUSE(c, "has a name that begins with '%c', as the number of an export does",
                      *text);
    }
    message->name = part;
    message->name_size = size;
    return CEN_OK;
}

static cen_status take_access(cursor *c, uint32_t count, ceni_wire_message *message) {
    if (count > CEN_SHARE_ACCESS_MAX) {
        return REFUSE(c, "has an access list of %" PRIu32 ": at most %d are allowed", count,
                      CEN_SHARE_ACCESS_MAX);
    }
    const void *part;
    cen_status status = take(c, count * sizeof(ceni_wire_access), "access list", &part);
    if (status) {
        return status;
    }
    message->access = part;
    message->access_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const ceni_wire_access *a = &message->access[i];
        REQUIRE(c, a->who >= CEN_SHARE_USER && a->who <= CEN_SHARE_ALL && a->write <= 1,
                "has an access entry of no known kind");
        REQUIRE(c, !a->reserved && (a->who != CEN_SHARE_ALL || !a->id),
                "has an access entry with a field that must be 0");
    }
    return CEN_OK;
}

static cen_status take_directory(cursor *c, uint32_t size, uint32_t flags,
                                 ceni_wire_message *message) {
    bool file = flags & CENI_WIRE_DIRECTORY_FD;
    uint32_t max = file ? CENI_DIRECTORY_MAX : CENI_WIRE_INLINE_MAX;
    if (!size || size > max) {
        return REFUSE(c, "has a directory of %" PRIu32 " bytes: 1 to %" PRIu32 " are allowed here",
                      size, max);
    }
    const void *part;
    cen_status status = take(c, file ? 0 : size, "directory", &part);
    if (!status) {
        message->directory = file ? NULL : part;
        message->directory_size = file ? 0 : size;
    }
    return status;
}

static bool zero(const uint8_t *bytes, size_t size) {
    while (size && !*bytes) {
        bytes++;
        size--;
    }
    return !size;
}

static cen_status check_event(const cursor *c, uint32_t flags, const uint8_t event[64]) {
    REQUIRE(c, (flags & CENI_WIRE_EVENT_TOKEN) || zero(event, 64), "has an event without its flag");
    return CEN_OK;
}

static cen_status check_uuid(const cursor *c, const char uuid[48]) {
    size_t length = strnlen(uuid, 48);
    REQUIRE(c, length > 0 && length < 48 && zero((const uint8_t *)uuid + length, 48 - length),
            "has a device's UUID that is empty or does not end");
    for (size_t i = 0; i < length; i++) {
        REQUIRE(c, uuid[i] > ' ' && uuid[i] <= '~', "has a device's UUID that is not printable");
    }
    return CEN_OK;
}

static unsigned event_fds(uint32_t flags) {
    return flags & CENI_WIRE_EVENT_FD ? 1 : 0;
}
static unsigned export_fds(uint32_t flags) {
    return event_fds(flags) + (flags & CENI_WIRE_DIRECTORY_FD ? 1 : 0);
}

/* ---- requests: each takes its variable parts and says how many descriptors belong to it ---- */

typedef struct fd_range {
    unsigned min, max;
} fd_range;

static cen_status hello(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_hello *b = m->body;
    *fds = (fd_range){1, 2};
    REQUIRE(c, b->version_min <= b->version_max, "has a range of versions that is empty");
    REQUIRE(c, b->label_size <= CENI_WIRE_LABEL_MAX, "has a label that is too long");
    if (b->version_min > CENI_WIRE_VERSION) { /* what else it holds is not known here */
        c->left = 0;
        return CEN_OK;
    }
    const void *part;
    cen_status status = take(c, b->label_size, "label", &part);
    if (status) {
        return status;
    }
    m->name = part;
    m->name_size = b->label_size;
    for (uint32_t i = 0; i < m->name_size; i++) {
        REQUIRE(c, (unsigned char)m->name[i] >= ' ' && m->name[i] != 0x7f,
                "has a label with a control character");
    }
    return CEN_OK;
}

static cen_status set(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_set *b = m->body;
    REQUIRE(c, b->bytes && b->page_bytes && b->page_count, "has no pages");
    REQUIRE(c, b->page_count <= CENI_WIRE_PAGES_MAX, "has too many pages");
    REQUIRE(c, (b->bytes - 1) / b->page_bytes + 1 == b->page_count,
            "has another number of pages than its bytes make");
    REQUIRE(c, b->first_page < b->page_count, "begins after its last page");
    REQUIRE(c, b->again <= 2 && !b->reserved, "has a field with an unknown value");
    REQUIRE(c, b->again ? b->set != 0 : !b->set == !b->first_page,
            "names no set where it continues one, or one where it begins");
    unsigned left = b->page_count - b->first_page;
    *fds = (fd_range){1, left < CENI_WIRE_FDS ? left : CENI_WIRE_FDS};
    return check_uuid(c, b->uuid);
}

static cen_status publish(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_publish *b = m->body;
    const uint32_t known = CENI_WIRE_KEEP | CENI_WIRE_KEEP_OLDER | CENI_WIRE_AGAIN |
                           CENI_WIRE_DIRECTORY_FD | CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN |
                           CENI_WIRE_WITHDRAWN | CENI_WIRE_ONCE;
    bool again = b->flags & CENI_WIRE_AGAIN;
    *fds = (fd_range){export_fds(b->flags), export_fds(b->flags)};
    REQUIRE(c, !(b->flags & ~known), "has an unknown flag");
    REQUIRE(c, !b->reserved && ((b->flags & CENI_WIRE_ONCE) || !b->once_ttl_ms),
            "has a field with an unknown value");
    REQUIRE(c, b->set != 0, "names no set");
    REQUIRE(c, b->token[0] | b->token[1], "has no token");
    REQUIRE(c, again == (b->export_id != 0) && (again && b->name_size) == (b->version != 0),
            "has an id or version where it must not, or none where it must");
    REQUIRE(c, again || !(b->flags & CENI_WIRE_WITHDRAWN), "is new and withdrawn");
    cen_status status = check_event(c, b->flags, b->event);
    status = status ? status : take_access(c, b->access_count, m);
    status = status ? status : take_name(c, b->name_size, m);
    return status ? status : take_directory(c, b->directory_size, b->flags, m);
}

static cen_status open_request(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_open *b = m->body;
    const uint32_t known = CENI_WIRE_OPEN_WRITE | CENI_WIRE_OPEN_PAGES;
    REQUIRE(c, !(b->flags & ~known) && !b->reserved, "has an unknown flag");
    bool token = b->token[0] | b->token[1];
    REQUIRE(c,
            b->name_size ? !b->export_id && !token
                         : b->export_id && token && !b->version && !b->wait_ms,
            "has neither a name nor an id with its token, or both");
    return take_name(c, b->name_size, m);
}

static cen_status pages(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_pages *b = m->body;
    REQUIRE(c, !b->reserved, "has a field with an unknown value");
    return CEN_OK;
}

static cen_status id(cursor *c, ceni_wire_message *m, fd_range *fds) {
    return CEN_OK;
}

static cen_status watch(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_watch *b = m->body;
    REQUIRE(c, b->on <= 1 && b->name_size, "has no name, or neither on nor off");
    return take_name(c, b->name_size, m);
}

static cen_status lease(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_lease *b = m->body;
    REQUIRE(c, b->export_id && b->set && b->write <= 1 && !b->reserved,
            "has no export or set, or a field with an unknown value");
    return CEN_OK;
}

static cen_status event(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_event *b = m->body;
    bool clear = c->side == CENI_WIRE_REQUEST && b->flags == CENI_WIRE_EVENT_CLEAR;
    const uint32_t known = CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN;
    *fds = (fd_range){event_fds(b->flags), event_fds(b->flags)};
    REQUIRE(c, (clear || !(b->flags & ~known)) && !b->reserved, "has an unknown flag");
    return check_event(c, b->flags, b->event);
}

/* ---- replies ---- */

static cen_status hello_reply(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_hello_reply *b = m->body;
    REQUIRE(c, b->death_known <= 1 && b->resumed <= 1, "has a field with an unknown value");
    return CEN_OK;
}

static cen_status open_reply(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_open_reply *b = m->body;
    const uint32_t known = CENI_WIRE_KEEP | CENI_WIRE_ONCE | CENI_WIRE_DIRECTORY_FD |
                           CENI_WIRE_EVENT_FD | CENI_WIRE_EVENT_TOKEN;
    unsigned others = export_fds(b->flags), room = CENI_WIRE_FDS - others;
    *fds = (fd_range){others, others + (b->page_count < room ? b->page_count : room)};
    REQUIRE(c, !(b->flags & ~known) && b->write <= 1 && b->orphan <= 1,
            "has a field with an unknown value");
    REQUIRE(c, b->export_id && b->set && b->bytes && b->page_bytes,
            "names no export, or a set without pages");
    REQUIRE(c, b->page_count <= CENI_WIRE_PAGES_MAX, "has too many pages");
    REQUIRE(c, (b->bytes - 1) / b->page_bytes + 1 == b->page_count,
            "has another number of pages than its bytes make");
    cen_status status = check_uuid(c, b->uuid);
    status = status ? status : check_event(c, b->flags, b->event);
    status = status ? status : take_access(c, b->access_count, m);
    status = status ? status : take_name(c, b->name_size, m);
    return status ? status : take_directory(c, b->directory_size, b->flags, m);
}

static cen_status pages_reply(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_pages_reply *b = m->body;
    REQUIRE(c, b->count && b->count <= CENI_WIRE_FDS, "has no pages or too many");
    *fds = (fd_range){b->count, b->count};
    return CEN_OK;
}

static cen_status list_reply(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_list_reply *b = m->body;
    REQUIRE(c, b->kind >= CENI_WIRE_RECORD_CLIENT && b->kind <= CENI_WIRE_RECORD_LEASE,
            "has records of an unknown kind");
    m->records = c->at;
    m->records_size = c->left;
    c->left = 0;
    return CEN_OK;
}

static cen_status notice(cursor *c, ceni_wire_message *m, fd_range *fds) {
    const ceni_wire_notice *b = m->body;
    REQUIRE(c,
            (b->kind >= CEN_SHARE_NEW_VERSION && b->kind <= CEN_SHARE_BROKER_BACK) ||
                b->kind == CENI_WIRE_NOTICE_WITHDRAWN || b->kind == CENI_WIRE_NOTICE_EVENT,
            "is of an unknown kind");
    REQUIRE(c, b->unclean <= 1 && !b->reserved, "has a field with an unknown value");
    return take_name(c, b->name_size, m);
}

typedef cen_status (*part_fn)(cursor *c, ceni_wire_message *m, fd_range *fds);
typedef struct type_row {
    const char *name;
    struct {
        bool known;
        size_t body;
        part_fn parts;
    } of[3]; /* by side */
} type_row;

#define BODY(type, fn)                                                                             \
    { true, sizeof(type), fn }
#define EMPTY                                                                                      \
    { true, 0, id }
static const type_row types[] = {
    [CENI_WIRE_HELLO] = {"HELLO",
                         {BODY(ceni_wire_hello, hello), BODY(ceni_wire_hello_reply, hello_reply)}},
    [CENI_WIRE_SET] = {"SET", {BODY(ceni_wire_set, set), BODY(ceni_wire_set_reply, id)}},
    [CENI_WIRE_PUBLISH] = {"PUBLISH",
                           {BODY(ceni_wire_publish, publish), BODY(ceni_wire_publish_reply, id)}},
    [CENI_WIRE_OPEN] = {"OPEN",
                        {BODY(ceni_wire_open, open_request),
                         BODY(ceni_wire_open_reply, open_reply)}},
    [CENI_WIRE_PAGES] = {"PAGES",
                         {BODY(ceni_wire_pages, pages), BODY(ceni_wire_pages_reply, pages_reply)}},
    [CENI_WIRE_CLOSE] = {"CLOSE", {BODY(ceni_wire_id, id), EMPTY}},
    [CENI_WIRE_WITHDRAW] = {"WITHDRAW", {BODY(ceni_wire_id, id), EMPTY}},
    [CENI_WIRE_REVOKE] = {"REVOKE", {BODY(ceni_wire_id, id), EMPTY}},
    [CENI_WIRE_DROP] = {"DROP", {BODY(ceni_wire_id, id), EMPTY}},
    [CENI_WIRE_LIST] = {"LIST", {BODY(ceni_wire_list, id), BODY(ceni_wire_list_reply, list_reply)}},
    [CENI_WIRE_WATCH] = {"WATCH", {BODY(ceni_wire_watch, watch), EMPTY}},
    [CENI_WIRE_LEASE] = {"LEASE", {BODY(ceni_wire_lease, lease), EMPTY}},
    [CENI_WIRE_EVENT] = {"EVENT", {BODY(ceni_wire_event, event), BODY(ceni_wire_event, event)}},
    [CENI_WIRE_NOTICE] = {"NOTICE", {{0}, {0}, BODY(ceni_wire_notice, notice)}},
};

static cen_status take_why(cursor *c, ceni_wire_message *m) {
    REQUIRE(c, c->left && c->left <= CENI_WIRE_WHY_MAX && memchr(c->at, 0, c->left),
            "failed without a reason that ends");
    m->why = (const char *)c->at;
    c->left = 0;
    return CEN_OK;
}

static cen_status take_body(cursor *c, const type_row *row, ceni_wire_message *m, fd_range *fds) {
    if (c->side == CENI_WIRE_REPLY && m->head.status) {
        return take_why(c, m);
    }
    cen_status status = take(c, row->of[c->side].body, "body", &m->body);
    return status ? status : row->of[c->side].parts(c, m, fds);
}

/* The head, but for the sequence, of which anything may come. */
static cen_status check_head(size_t size, enum ceni_wire_side side, const ceni_wire_head *head) {
    if (head->size != size) {
        return ceni_fail(CEN_ERR_FORMAT, "a message of %zu bytes says that it has %" PRIu32, size,
                         head->size);
    }
    if (head->type >= sizeof types / sizeof *types || !types[head->type].of[side].known) {
        return ceni_fail(CEN_ERR_FORMAT, "a %s of the unknown type %u", sides[side], head->type);
    }
    /* A client of another version gets an answer to HELLO, whose beginning stays what it is. */
    if (head->version != CENI_WIRE_VERSION && head->type != CENI_WIRE_HELLO) {
        return ceni_fail(CEN_ERR_FORMAT, "a %s %s of version %u: this is version %d",
                         types[head->type].name, sides[side], head->version, CENI_WIRE_VERSION);
    }
    if (head->status && (side != CENI_WIRE_REPLY || head->status > 0)) {
        return ceni_fail(CEN_ERR_FORMAT, "a %s %s with status %" PRId32, types[head->type].name,
                         sides[side], head->status);
    }
    return CEN_OK;
}

cen_status ceni_wire_check(const void *data, size_t size, unsigned fds, enum ceni_wire_side side,
                           ceni_wire_message *message) {
    ceni_wire_message m = {.name = "", .why = ""};
    if (size < sizeof m.head || size > CENI_WIRE_MAX) {
        return ceni_fail(CEN_ERR_FORMAT, "a message of %zu bytes: %zu to %d are allowed", size,
                         sizeof m.head, CENI_WIRE_MAX);
    }
    memcpy(&m.head, data, sizeof m.head);
    cen_status status = check_head(size, side, &m.head);
    if (status) {
        return status;
    }
    const type_row *row = &types[m.head.type];
    cursor c = {(const uint8_t *)data + sizeof m.head, size - sizeof m.head, row->name, side};
    fd_range range = {0, 0};
    status = take_body(&c, row, &m, &range);
    if (status) {
        return status;
    }
    if (c.left) {
        return REFUSE(&c, "has %zu bytes too many", c.left);
    }
    if (fds < range.min || fds > range.max) {
        return REFUSE(&c, "with %u descriptors: %u to %u belong to it", fds, range.min, range.max);
    }
    *message = m;
    return CEN_OK;
}
