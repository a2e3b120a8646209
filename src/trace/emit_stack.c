/* Call stacks: gathered, told apart by 64 bits of hash, and each defined once in the file.
 *
 * A thread knows the stacks it saw lately; only one that it does not know takes the lock, and only
 * one that nobody saw yet is taken apart into (module, offset). Naming them is the reader's. */
#include "trace/emit_gather.h"
#include "trace/ring.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { SKIP = 2 };

static struct {
    pthread_mutex_t lock;
    bool open;
    cen_trace_options options;
    uint32_t generation;
    struct slot {
        uint64_t hash;
        uint32_t id; /* + 1; 0: free */
    } * slots;
    size_t count, capacity;
    ceni_module_list modules;
    _Atomic uint64_t stacks;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- frames; the table's lock is held ---- */

typedef struct place {
    uintptr_t base;
    uint32_t module;
} place;

/* The module is entered if the file does not know it. */
static void know_module(void *arg, const ceni_module_seen *seen) {
    place *to = arg;
    char build_id[CENI_BUILD_ID_MAX], program[4096];
    if (!ceni_module_find(&table.modules, seen, &to->module)) {
        const char *path = ceni_module_describe(seen, program, sizeof program, build_id);
        uint32_t id = ceni_writer_module(&ceni_trace.writer, path, build_id);
        if (id == CENI_FILE_NONE || ceni_module_note(&table.modules, seen, id)) {
            return;
        }
        to->module = id;
    }
    to->base = seen->base;
}

static ceni_frame_record native_frame(uintptr_t pc) {
    place found = {.module = CENI_FILE_NONE};
    (void)ceni_module_at(pc, know_module, &found);
    ceni_frame_record frame = {.module = found.module};
    if (found.module != CENI_FILE_NONE) {
        frame.at.offset = pc - found.base;
        return frame;
    }
    char text[32];
    int length = snprintf(text, sizeof text, "0x%llx", (unsigned long long)pc);
    frame.at.named.file = ceni_writer_string(&ceni_trace.writer, "", 0);
    frame.at.named.function = ceni_writer_string(&ceni_trace.writer, text, (size_t)length);
    return frame;
}

static ceni_frame_record named_frame(const cen_frame *from) {
    const char *file = from->file ? from->file : "";
    const char *function = from->function ? from->function : "";
    ceni_frame_record frame = {.module = CENI_FILE_NONE, .line = from->line};
    frame.at.named.file = ceni_writer_string(&ceni_trace.writer, file, strlen(file));
    frame.at.named.function = ceni_writer_string(&ceni_trace.writer, function, strlen(function));
    return frame;
}

/* ---- the table; its lock is held ---- */

static struct slot *probe(uint64_t hash) {
    size_t at = hash & (table.capacity - 1);
    while (table.slots[at].id && table.slots[at].hash != hash) {
        at = (at + 1) & (table.capacity - 1);
    }
    return &table.slots[at];
}

static int grow(void) {
    struct slot *old = table.slots;
    size_t count = table.capacity, capacity = count ? 2 * count : 256;
    struct slot *slots = ceni_calloc(capacity, sizeof *slots);
    if (!slots) {
        return -1;
    }
    table.slots = slots;
    table.capacity = capacity;
    for (size_t i = 0; i < count; i++) {
        if (old[i].id) {
            *probe(old[i].hash) = old[i];
        }
    }
    ceni_free(old);
    return 0;
}

static uint32_t find_or_add(const ceni_raw_stack *s, uint64_t hash) {
    if (2 * (table.count + 1) > table.capacity && grow()) {
        return CENI_FILE_NONE;
    }
    struct slot *slot = probe(hash);
    if (slot->id) {
        return slot->id - 1;
    }
    ceni_frame_record frames[CENI_NAMED_MAX + CENI_NATIVE_MAX];
    size_t count = 0;
    for (size_t i = 0; i < s->named_count; i++) {
        frames[count++] = named_frame(&s->named[i]);
    }
    for (size_t i = 0; i < s->native_count; i++) {
        frames[count++] = native_frame(s->native[i]);
    }
    uint32_t id = ceni_writer_stack(&ceni_trace.writer, frames, count);
    if (id != CENI_FILE_NONE) {
        *slot = (struct slot){hash, id + 1};
        table.count++;
        atomic_fetch_add(&table.stacks, 1);
    }
    return id;
}

/* ---- what a thread saw lately: by a stack's mark, or if it has none by its hash ---- */

static ceni_stack_seen *seen_at(ceni_ring *ring, uint64_t known_by) {
    return &ring->seen[known_by % CENI_STACK_CACHE];
}

static uint32_t seen_before(ceni_ring *ring, uint64_t known_by, uint32_t generation) {
    const ceni_stack_seen *seen = seen_at(ring, known_by);
    return seen->hash == known_by && seen->generation == generation ? seen->id : CENI_FILE_NONE;
}

uint32_t ceni_stack_here(ceni_ring *ring, uint32_t *generation) {
    ceni_raw_stack s;
    s.native_count = 0;
    pthread_mutex_lock(&table.lock);
    cen_trace_options options = table.options;
    bool open = table.open;
    *generation = table.generation;
    pthread_mutex_unlock(&table.lock);
    if (!open) {
        return CENI_FILE_NONE;
    }
    if (options.stacks == CEN_TRACE_NATIVE_STACKS) {
        ceni_gather_native(&s, SKIP);
    }
    ceni_gather_mark(&s, options.stack_fn);
    uint32_t id = s.mark ? seen_before(ring, s.mark, *generation) : CENI_FILE_NONE;
    if (id != CENI_FILE_NONE) {
        return id;
    }
    ceni_gather_named(&s, options.stack_fn, options.stack_arg);
    if (!s.named_count && !s.native_count) {
        return CENI_FILE_NONE;
    }
    uint64_t hash = ceni_gather_hash(&s);
    id = s.mark ? CENI_FILE_NONE : seen_before(ring, hash, *generation);
    if (id != CENI_FILE_NONE) {
        return id;
    }
    pthread_mutex_lock(&table.lock);
    bool same = table.open && table.generation == *generation;
    id = same ? find_or_add(&s, hash) : CENI_FILE_NONE;
    pthread_mutex_unlock(&table.lock);
    if (id != CENI_FILE_NONE) {
        uint64_t known_by = s.mark ? s.mark : hash;
        *seen_at(ring, known_by) = (ceni_stack_seen){known_by, id, *generation};
    }
    return id;
}

uint64_t ceni_stacks_count(void) {
    return atomic_load(&table.stacks);
}

void ceni_stacks_open(const cen_trace_options *options) {
    pthread_mutex_lock(&table.lock);
    table.options = *options;
    table.generation = ceni_trace.generation;
    table.open = true;
    atomic_store(&table.stacks, 0);
    pthread_mutex_unlock(&table.lock);
}

void ceni_stacks_close(void) {
    pthread_mutex_lock(&table.lock);
    table.open = false;
    ceni_free(table.slots);
    ceni_free(table.modules.at);
    table.slots = NULL;
    table.modules = (ceni_module_list){0};
    table.count = table.capacity = 0;
    pthread_mutex_unlock(&table.lock);
}
