/* See ledger/file.h. */
#include "ledger/file.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRIES        4
#define HELD_TRIES   20
#define HOLD_NS      30000000             /* how long a writer is asked to hold still */
#define PATIENCE_NS  UINT64_C(2000000000) /* how long a reader tries */
#define BYTES_MAX    (UINT64_C(4) << 30)
#define HEAD_MAX     (UINT32_C(1) << 20)
#define MAGIC_KNOWN  7
#define AT(field)    offsetof(ceni_ledger_head, field)
#define ATOMIC(word) atomic_load_explicit(&(word), memory_order_relaxed)

cen_status ceni_ledger_refuse(ceni_ledger_trouble *trouble, cen_status status, uint64_t offset,
                              const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(trouble->message, sizeof trouble->message, format, args);
    va_end(args);
    trouble->offset = offset;
    return status;
}

bool ceni_ledger_looks(const uint8_t *data, size_t size) {
    return size >= MAGIC_KNOWN && !memcmp(data, CENI_LEDGER_MAGIC, MAGIC_KNOWN);
}

uint32_t ceni_ledger_element(enum ceni_ledger_part part) {
    static const uint32_t bytes[CENI_LEDGER_PARTS] = {
        [CENI_LEDGER_LIVE] = sizeof(ceni_ledger_slot),
        [CENI_LEDGER_EVENTS] = sizeof(ceni_ledger_event),
        [CENI_LEDGER_HOLDINGS] = sizeof(ceni_ledger_holding),
        [CENI_LEDGER_STACKS] = sizeof(ceni_ledger_span),
        [CENI_LEDGER_FRAMES] = sizeof(ceni_frame_record),
        [CENI_LEDGER_MODULES] = sizeof(ceni_module_record),
        [CENI_LEDGER_STRINGS] = sizeof(ceni_ledger_span),
        [CENI_LEDGER_TEXT] = 1,
    };
    return bytes[part];
}

#define START_FIELD 22 /* of /proc/PID/stat: when the process began, in ticks */

uint64_t ceni_ledger_start_ticks(long pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    size_t size = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[size] = '\0';
    const char *at = strrchr(line, ')'); /* the name, field 2, may hold anything */
    for (int field = 2; at && field < START_FIELD; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

/* ---- bytes ---- */

/* All of [offset, offset + size). */
static cen_status get(const ceni_ledger_source *source, uint64_t offset, void *to, size_t size,
                      ceni_ledger_trouble *trouble) {
    size_t have = 0;
    while (have < size) {
        ssize_t got;
        if (ceni_fault(CENI_FAULT_IO)) {
            errno = EIO;
            got = -1;
        } else if (source->fd >= 0) {
            got = pread(source->fd, (uint8_t *)to + have, size - have, (off_t)(offset + have));
        } else {
            uint64_t left = offset < source->size ? source->size - offset : 0;
            got = (ssize_t)(left < size ? left : size);
            if (got) {
                memcpy(to, source->data + offset, (size_t)got);
            }
        }
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return ceni_ledger_refuse(trouble, CEN_ERR_IO, offset, "reading failed: %s",
                                      strerror(errno));
        }
        have += (size_t)got;
        if (!got || (source->fd < 0 && have < size)) {
            return ceni_ledger_refuse(trouble, CEN_ERR_TRUNCATED, offset + have,
                                      "the ledger ends too early");
        }
    }
    return CEN_OK;
}

static cen_status check_head(const ceni_ledger_head *h, ceni_ledger_trouble *trouble) {
    if (memcmp(h->magic, CENI_LEDGER_MAGIC, sizeof h->magic) != 0) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, 0, "not a ledger of cenote's");
    }
    if (h->order != CENI_LEDGER_ORDER) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, AT(order),
                                  "a ledger of a machine with another order of bytes");
    }
    if (h->major != CENI_LEDGER_MAJOR) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, AT(major),
                                  "a ledger of version %u.%u; this cenote reads version %u",
                                  h->major, h->minor, CENI_LEDGER_MAJOR);
    }
    if (h->bytes < sizeof *h || h->bytes > HEAD_MAX || h->parts < CENI_LEDGER_PARTS) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, AT(bytes),
                                  "the ledger's head is damaged");
    }
    if (!memchr(h->program, 0, sizeof h->program) || !memchr(h->writer, 0, sizeof h->writer)) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, AT(program),
                                  "a name in the ledger's head has no end");
    }
    for (size_t i = 0; i < CEN_LEDGER_DEVICES; i++) {
        const ceni_ledger_device *d = &h->device[i];
        if (!memchr(d->uuid, 0, sizeof d->uuid) || !memchr(d->name, 0, sizeof d->name)) {
            return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, AT(device) + i * sizeof *d,
                                      "a device's name in the ledger has no end");
        }
    }
    return CEN_OK;
}

/* How many elements a region has; fails if they cannot be in a file of this length. */
static cen_status count_of(const ceni_ledger_file *file, enum ceni_ledger_part part,
                           uint64_t length, size_t *count, ceni_ledger_trouble *trouble) {
    const ceni_ledger_region *region = &file->head.region[part];
    const ceni_ledger_place *place = ceni_ledger_place_of(region);
    uint32_t element = ceni_ledger_element(part);
    uint64_t there = ATOMIC(region->count), where = AT(region) + part * sizeof *region;
    bool whole =
        part == CENI_LEDGER_LIVE || (part == CENI_LEDGER_EVENTS && there > place->capacity);
    there = whole ? place->capacity : there;
    if (region->element != element || there > place->capacity || place->offset > BYTES_MAX ||
        place->capacity > BYTES_MAX / element ||
        (part <= CENI_LEDGER_EVENTS && (place->capacity & (place->capacity - 1)))) {
        return ceni_ledger_refuse(trouble, CEN_ERR_FORMAT, where,
                                  "the ledger's region %d is damaged", (int)part);
    }
    if (there && place->offset + there * element > length) {
        return ceni_ledger_refuse(trouble, CEN_ERR_TRUNCATED, length,
                                  "the ledger ends before its region %d", (int)part);
    }
    *count = (size_t)there;
    return CEN_OK;
}

static cen_status get_region(const ceni_ledger_source *source, const ceni_ledger_file *file,
                             enum ceni_ledger_part part, uint64_t length, void *array,
                             size_t *count, ceni_ledger_trouble *trouble) {
    size_t there = 0, element = ceni_ledger_element(part);
    cen_status status = count_of(file, part, length, &there, trouble);
    if (status) {
        return status;
    }
    void *to = ceni_malloc(there * element);
    if (!to) {
        return ceni_ledger_refuse(trouble, CEN_ERR_HOST_MEMORY, 0, "no memory for the ledger");
    }
    const ceni_ledger_place *place = ceni_ledger_place_of(&file->head.region[part]);
    memcpy(array, &to, sizeof to);
    *count = there;
    return there ? get(source, place->offset, to, there * element, trouble) : CEN_OK;
}

/* ---- a copy ---- */

void ceni_ledger_file_free(ceni_ledger_file *f) {
    ceni_free(f->entries);
    ceni_free(f->events);
    ceni_free(f->holdings);
    ceni_free(f->stacks);
    ceni_free(f->frames);
    ceni_free(f->modules);
    ceni_free(f->strings);
    ceni_free(f->text);
    memset(f, 0, sizeof *f);
}

static cen_status length_of(const ceni_ledger_source *source, uint64_t *length,
                            ceni_ledger_trouble *trouble) {
    *length = source->size;
    if (source->fd >= 0) {
        off_t end = lseek(source->fd, 0, SEEK_END);
        if (end < 0) {
            return ceni_ledger_refuse(trouble, CEN_ERR_IO, 0, "reading failed: %s",
                                      strerror(errno));
        }
        *length = (uint64_t)end;
    }
    return CEN_OK;
}

/* The head and all regions as they are at this moment, or at several. */
static cen_status copy(const ceni_ledger_source *source, ceni_ledger_file *f,
                       ceni_ledger_slot **slots, size_t *slot_count, ceni_ledger_trouble *trouble) {
    uint64_t length;
    cen_status status = length_of(source, &length, trouble);
    status = status ? status : get(source, 0, &f->head, sizeof f->head, trouble);
    status = status ? status : check_head(&f->head, trouble);
#define REGION(part, array, count)                                                                 \
    status =                                                                                       \
        status ? status : get_region(source, f, CENI_LEDGER_##part, length, array, count, trouble)
    REGION(LIVE, slots, slot_count);
    REGION(EVENTS, &f->events, &f->event_count);
    REGION(HOLDINGS, &f->holdings, &f->holding_count);
    REGION(STACKS, &f->stacks, &f->stack_count);
    REGION(FRAMES, &f->frames, &f->frame_count);
    REGION(MODULES, &f->modules, &f->module_count);
    REGION(STRINGS, &f->strings, &f->string_count);
    REGION(TEXT, &f->text, &f->text_size);
#undef REGION
    return status;
}

/* One try: *whole tells whether nothing changed meanwhile. */
static cen_status try_once(const ceni_ledger_source *source, bool as_it_is, ceni_ledger_file *f,
                           bool *whole, ceni_ledger_trouble *trouble) {
    ceni_ledger_slot *slots = NULL;
    size_t slot_count = 0;
    uint64_t after = 0;
    cen_status status = copy(source, f, &slots, &slot_count, trouble);
    cen_status again = source->fd >= 0 ? get(source, AT(seq), &after, sizeof after, trouble)
                                       : (after = ATOMIC(f->head.seq), CEN_OK);
    uint64_t before = ATOMIC(f->head.seq);
    f->torn = before & 1;
    *whole = !again && before == after && (as_it_is || !f->torn);
    if (*whole && !status) {
        status = ceni_ledger_file_check(f, slots, slot_count, trouble);
    }
    ceni_free(slots);
    if (status || !*whole) {
        ceni_ledger_file_free(f);
    }
    return status ? status : again;
}

static bool lives(const ceni_ledger_source *source) {
    ceni_ledger_head head;
    ceni_ledger_trouble trouble;
    if (get(source, 0, &head, sizeof head, &trouble) || head.closed) {
        return false;
    }
    uint64_t ticks = ceni_ledger_start_ticks((long)head.pid);
    return ticks && ticks == head.start_ticks;
}

static void ask_to_hold(const ceni_ledger_source *source, uint64_t until) {
    ssize_t done = pwrite(source->fd, &until, sizeof until, AT(hold_until_ns));
    (void)done; /* where only reading is allowed, it is tried without */
}

static bool may_recover(cen_status status) {
    return status != CEN_ERR_HOST_MEMORY && status != CEN_ERR_IO;
}

/* A failure of a copy that changed meanwhile says nothing. */
static cen_status try_some(const ceni_ledger_source *source, int tries, long pause_ns,
                           ceni_ledger_file *f, bool *whole, ceni_ledger_trouble *trouble) {
    cen_status status = CEN_OK;
    for (int i = 0; i < tries && !*whole && may_recover(status); i++) {
        if (i) {
            nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        }
        status = try_once(source, false, f, whole, trouble);
    }
    return status;
}

/* A writer that is asked may be off its processor in the middle of a change: it gets time to come
 * back. */
cen_status ceni_ledger_file_read(const ceni_ledger_source *source, ceni_ledger_file *f,
                                 ceni_ledger_trouble *trouble) {
    memset(f, 0, sizeof *f);
    bool whole = false;
    if (source->fd < 0) {
        return try_once(source, true, f, &whole, trouble);
    }
    uint64_t patience = ceni_now_ns() + PATIENCE_NS;
    cen_status status = try_some(source, TRIES, 100000, f, &whole, trouble);
    while (!whole && may_recover(status) && ceni_now_ns() < patience && lives(source)) {
        ask_to_hold(source, ceni_now_ns() + HOLD_NS);
        status = try_some(source, HELD_TRIES, HOLD_NS / HELD_TRIES, f, &whole, trouble);
        ask_to_hold(source, 0);
    }
    if (whole || !may_recover(status)) {
        return status;
    }
    if (!lives(source)) {
        return try_once(source, true, f, &whole, trouble);
    }
    return ceni_ledger_refuse(trouble, CEN_ERR_BUSY, 0,
                              "the ledger changes too fast to be read whole");
}
