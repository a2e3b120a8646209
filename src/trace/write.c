/* Whole blocks, or nothing: a block goes out with what it refers to in one writev, and one that did
 * not arrive whole is cut off again. See trace/write.h. */
#include "trace/write.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What goes out in one call: each block is a head and a payload. */
enum { BLOCKS_MAX = 7 };
typedef struct batch {
    ceni_block_head heads[BLOCKS_MAX];
    struct iovec parts[2 * BLOCKS_MAX];
    size_t blocks;
    uint64_t bytes;
} batch;

/* ---- the file ---- */

/* Cuts off what did not arrive whole; a pipe keeps it. */
static void end_early(ceni_writer *w, int error) {
    w->status = CEN_ERR_IO;
    if (ceni_fd_is(w->fd, w->id) && !ftruncate(w->fd, (off_t)w->end)) {
        (void)lseek(w->fd, (off_t)w->end, SEEK_SET);
    }
    ceni_log(CEN_LOG_ERROR,
             "trace: %s: writing failed after %llu bytes, so the trace ends there: %s", w->name,
             (unsigned long long)w->end, strerror(error));
    errno = error; /* for the caller, too */
}

static cen_status put_bytes(ceni_writer *w, struct iovec *parts, size_t count, uint64_t bytes) {
    int error = ceni_fd_is(w->fd, w->id) ? ceni_write_quietly(w->fd, parts, count) : EBADF;
    if (error) {
        end_early(w, error);
        return w->status;
    }
    w->end += bytes;
    return CEN_OK;
}

/* ---- blocks ---- */

static void add_block(batch *b, ceni_block_head head, const void *payload, ceni_moment_pair now) {
    ceni_block_head *h = &b->heads[b->blocks];
    *h = head;
    h->magic = CENI_BLOCK_MAGIC;
    h->ticks = now.ticks;
    h->ns = now.ns;
    h->check =
        XXH3_64bits_withSeed(payload, h->length, XXH3_64bits(h, offsetof(ceni_block_head, check)));
    b->parts[2 * b->blocks] = (struct iovec){h, sizeof *h};
    b->parts[2 * b->blocks + 1] = (struct iovec){(void *)(uintptr_t)payload, h->length};
    b->blocks++;
    b->bytes += sizeof *h + h->length;
}

static void add_gathered(batch *b, uint16_t type, const ceni_gathered *g, ceni_moment_pair now) {
    if (g->count) {
        ceni_block_head head = {.type = type, .length = (uint32_t)g->size, .count = g->count};
        add_block(b, head, g->data, now);
    }
}

static void reset(ceni_gathered *g) {
    g->size = 0;
    g->count = 0;
}

/* Enters the batch's blocks into the index and writes them; what was gathered is gone then. */
static cen_status put_batch(ceni_writer *w, batch *b) {
    if (ceni_grow(&w->index, &w->index_capacity, w->index_count + b->blocks, sizeof *w->index)) {
        w->status = ceni_fail(CEN_ERR_HOST_MEMORY,
                              "trace: %s: no memory for the index, so the trace ends", w->name);
        return w->status;
    }
    uint64_t at = w->end;
    for (size_t i = 0; i < b->blocks; i++) {
        const ceni_block_head *h = &b->heads[i];
        w->index[w->index_count + i] =
            (ceni_index_record){at, h->first, h->last, h->type, h->count};
        at += sizeof *h + h->length;
    }
    if (put_bytes(w, b->parts, 2 * b->blocks, b->bytes)) {
        return w->status;
    }
    w->index_count += b->blocks;
    reset(&w->strings);
    reset(&w->stacks);
    reset(&w->modules);
    reset(&w->devices);
    reset(&w->settings);
    return CEN_OK;
}

static void add_definitions(ceni_writer *w, batch *b, ceni_moment_pair now) {
    add_gathered(b, CENI_FILE_STRINGS, &w->strings, now);
    add_gathered(b, CENI_FILE_MODULES, &w->modules, now);
    add_gathered(b, CENI_FILE_STACKS, &w->stacks, now);
    add_gathered(b, CENI_FILE_DEVICES, &w->devices, now);
    add_gathered(b, CENI_FILE_SETTINGS, &w->settings, now);
}

/* Both clocks only go forward in the file, whichever thread comes to write first. */
static ceni_moment_pair forward(ceni_writer *w, ceni_moment_pair now) {
    if (now.ticks < w->last.ticks || now.ns < w->last.ns) {
        return w->last;
    }
    w->last = now;
    return now;
}

static cen_status put_definitions(ceni_writer *w, ceni_moment_pair now) {
    batch b = {.blocks = 0};
    add_definitions(w, &b, now);
    return b.blocks ? put_batch(w, &b) : CEN_OK;
}

cen_status ceni_writer_events(ceni_writer *w, uint32_t thread, const ceni_event_record *events,
                              size_t count, ceni_moment_pair now) {
    pthread_mutex_lock(&w->lock);
    now = forward(w, now);
    const size_t most = CENI_BLOCK_BYTES_MAX / sizeof *events;
    do {
        batch b = {.blocks = 0};
        if (w->status) {
            break;
        }
        add_definitions(w, &b, now);
        size_t some = count < most ? count : most;
        if (some) {
            ceni_block_head head = {.type = CENI_FILE_EVENTS,
                                    .length = (uint32_t)(some * sizeof *events),
                                    .thread = thread,
                                    .count = (uint32_t)some,
                                    .first = events->ticks,
                                    .last = events->ticks};
            for (size_t i = 1; i < some; i++) {
                uint64_t ticks = events[i].ticks;
                head.first = ticks < head.first ? ticks : head.first;
                head.last = ticks > head.last ? ticks : head.last;
            }
            add_block(&b, head, events, now);
        }
        if (b.blocks) {
            (void)put_batch(w, &b);
        }
        events += some;
        count -= some;
    } while (count);
    cen_status status = w->status;
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- definitions; the lock is held ---- */

/* Room for a record of `size` bytes; what is gathered goes out first where it would become too
 * much for one block. */
static uint8_t *room(ceni_writer *w, ceni_gathered *g, size_t size) {
    if (w->status || size > CENI_BLOCK_BYTES_MAX || g->ids == CENI_FILE_NONE) {
        return NULL;
    }
    if (g->size + size > CENI_BLOCK_BYTES_MAX && put_definitions(w, w->last)) {
        return NULL;
    }
    if (ceni_grow(&g->data, &g->capacity, g->size + size, 1)) {
        return NULL;
    }
    uint8_t *at = g->data + g->size;
    g->size += size;
    g->count++;
    return at;
}

static struct ceni_string_slot *probe(const ceni_writer *w, uint64_t hash) {
    size_t at = hash & (w->slot_capacity - 1);
    while (w->slots[at].id && w->slots[at].hash != hash) {
        at = (at + 1) & (w->slot_capacity - 1);
    }
    return &w->slots[at];
}

static int grow_slots(ceni_writer *w) {
    struct ceni_string_slot *old = w->slots;
    size_t count = w->slot_capacity, capacity = count ? 2 * count : 256;
    struct ceni_string_slot *slots = ceni_calloc(capacity, sizeof *slots);
    if (!slots) {
        return -1;
    }
    w->slots = slots;
    w->slot_capacity = capacity;
    for (size_t i = 0; i < count; i++) {
        if (old[i].id) {
            *probe(w, old[i].hash) = old[i];
        }
    }
    ceni_free(old);
    return 0;
}

/* Texts are told apart by 64 bits of hash alone: they are not kept once written. */
static uint32_t add_string(ceni_writer *w, const char *text, size_t size) {
    if (2 * (w->slot_count + 1) > w->slot_capacity && grow_slots(w)) {
        return CENI_FILE_NONE;
    }
    uint64_t hash = XXH3_64bits(text, size);
    struct ceni_string_slot *slot = probe(w, hash);
    if (slot->id) {
        return slot->id - 1;
    }
    ceni_string_record record = {(uint32_t)size};
    size_t padded = (size + 3) & ~(size_t)3;
    uint8_t *to = size < CENI_BLOCK_BYTES_MAX ? room(w, &w->strings, sizeof record + padded) : NULL;
    if (!to) {
        return CENI_FILE_NONE;
    }
    memcpy(to, &record, sizeof record);
    memset(to + sizeof record, 0, padded);
    memcpy(to + sizeof record, text, size);
    *slot = (struct ceni_string_slot){hash, ++w->strings.ids};
    w->slot_count++;
    return slot->id - 1;
}

/* Appends a record that consists of `size` bytes and gives its id. */
static uint32_t add_record(ceni_writer *w, ceni_gathered *g, const void *record, size_t size) {
    uint8_t *to = room(w, g, size);
    if (!to) {
        return CENI_FILE_NONE;
    }
    memcpy(to, record, size);
    return g->ids++;
}

uint32_t ceni_writer_string(ceni_writer *w, const char *text, size_t size) {
    pthread_mutex_lock(&w->lock);
    uint32_t id = add_string(w, text, size);
    pthread_mutex_unlock(&w->lock);
    return id;
}

uint32_t ceni_writer_stack(ceni_writer *w, const ceni_frame_record *frames, size_t count) {
    ceni_stack_record record = {.frames = (uint32_t)count};
    size_t bytes = count * sizeof *frames;
    if (count > CENI_BLOCK_BYTES_MAX / sizeof *frames) {
        return CENI_FILE_NONE;
    }
    pthread_mutex_lock(&w->lock);
    uint32_t id = CENI_FILE_NONE;
    uint8_t *to = room(w, &w->stacks, sizeof record + bytes);
    if (to) {
        memcpy(to, &record, sizeof record);
        if (count) {
            memcpy(to + sizeof record, frames, bytes);
        }
        id = w->stacks.ids++;
    }
    pthread_mutex_unlock(&w->lock);
    return id;
}

uint32_t ceni_writer_module(ceni_writer *w, const char *path, const char *build_id) {
    pthread_mutex_lock(&w->lock);
    ceni_module_record record = {add_string(w, path, strlen(path)),
                                 add_string(w, build_id, strlen(build_id))};
    uint32_t id = record.path == CENI_FILE_NONE || record.build_id == CENI_FILE_NONE
                      ? CENI_FILE_NONE
                      : add_record(w, &w->modules, &record, sizeof record);
    pthread_mutex_unlock(&w->lock);
    return id;
}

cen_status ceni_writer_device(ceni_writer *w, uint32_t number, const char *name,
                              uint64_t total_bytes) {
    pthread_mutex_lock(&w->lock);
    ceni_device_record record = {number, add_string(w, name, strlen(name)), total_bytes};
    uint32_t id = record.name == CENI_FILE_NONE
                      ? CENI_FILE_NONE
                      : add_record(w, &w->devices, &record, sizeof record);
    cen_status status = w->status ? w->status : id == CENI_FILE_NONE ? CEN_ERR_HOST_MEMORY : CEN_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

cen_status ceni_writer_setting(ceni_writer *w, const char *key, const char *value) {
    pthread_mutex_lock(&w->lock);
    ceni_setting_record record = {add_string(w, key, strlen(key)),
                                  add_string(w, value, strlen(value))};
    uint32_t id = record.key == CENI_FILE_NONE || record.value == CENI_FILE_NONE
                      ? CENI_FILE_NONE
                      : add_record(w, &w->settings, &record, sizeof record);
    cen_status status = w->status ? w->status : id == CENI_FILE_NONE ? CEN_ERR_HOST_MEMORY : CEN_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* ---- begin and end ---- */

static void release(ceni_writer *w) {
    ceni_free(w->strings.data);
    ceni_free(w->stacks.data);
    ceni_free(w->modules.data);
    ceni_free(w->devices.data);
    ceni_free(w->settings.data);
    ceni_free(w->index);
    ceni_free(w->slots);
    pthread_mutex_destroy(&w->lock);
}

cen_status ceni_writer_open(ceni_writer *w, int fd, const char *name, uint64_t pid,
                            ceni_moment_pair start, uint64_t unix_ns) {
    *w = (ceni_writer){.fd = fd, .id = ceni_fd_identify(fd), .name = name, .last = start};
    ceni_file_head head = {.magic = CENI_FILE_MAGIC,
                           .major = CENI_FILE_MAJOR,
                           .minor = CENI_FILE_MINOR,
                           .bytes = sizeof head,
                           .pid = pid,
                           .ticks = start.ticks,
                           .ns = start.ns,
                           .unix_ns = unix_ns};
    head.check = XXH3_64bits(&head, offsetof(ceni_file_head, check));
    pthread_mutex_init(&w->lock, NULL);
    cen_status status = put_bytes(w, &(struct iovec){&head, sizeof head}, 1, sizeof head);
    if (status) {
        release(w);
    }
    return status;
}

/* The index lists what is before it; its tail says where it begins. */
static cen_status put_index(ceni_writer *w, uint64_t lost, ceni_moment_pair now) {
    ceni_file_tail tail = {.lost = lost, .index_offset = w->end};
    memcpy(tail.magic, CENI_TAIL_MAGIC, sizeof tail.magic);
    size_t bytes = w->index_count * sizeof *w->index,
           capacity = w->index_capacity * sizeof *w->index;
    if (bytes + sizeof tail > CENI_BLOCK_BYTES_MAX) {
        return CEN_OK; /* readable without it */
    }
    if (ceni_grow(&w->index, &capacity, bytes + sizeof tail, 1)) {
        w->status = ceni_fail(CEN_ERR_HOST_MEMORY, "trace: %s: no memory for the index", w->name);
        return w->status;
    }
    memcpy((uint8_t *)w->index + bytes, &tail, sizeof tail);
    batch b = {.blocks = 0};
    ceni_block_head head = {.type = CENI_FILE_INDEX,
                            .length = (uint32_t)(bytes + sizeof tail),
                            .count = (uint32_t)w->index_count};
    add_block(&b, head, w->index, now);
    return put_bytes(w, b.parts, 2, b.bytes);
}

cen_status ceni_writer_close(ceni_writer *w, uint64_t lost, ceni_moment_pair now) {
    now = forward(w, now);
    cen_status status = w->status;
    status = status ? status : put_definitions(w, now);
    status = status ? status : put_index(w, lost, now);
    release(w);
    return status;
}
