/* Stacks of a ledger: each once, by 64 bits of hash, as in a trace. One that was noted lately is
 * recognised by its mark, without a lock and before its frames are named. Any other that is known
 * costs its names and a look into a map; only a new one is taken apart into (module, offset),
 * without the lock, since the loader's own is needed for that. */
#include "ledger/ledger_int.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define STACKS_MAX (UINT64_C(1) << 24)
#define TEXT_MAX   (UINT64_C(1) << 30)
#define STRING_MAX 4096 /* of one: what is longer is cut */

/* ---- interning; the lock is held ---- */

/* Where `count` elements more go; NULL: no room. They are there once commit is called. */
static void *append(cen_ledger *l, enum ceni_ledger_part part, uint64_t count) {
    return ceni_ledger_room(l, part, count)
               ? NULL
               : (char *)l->mapped[part] + CENI_LEDGER_COUNT(l, part) * ceni_ledger_element(part);
}

static uint64_t commit(cen_ledger *l, enum ceni_ledger_part part, uint64_t count) {
    uint64_t first = CENI_LEDGER_COUNT(l, part);
    atomic_store_explicit(&l->head->region[part].count, first + count, memory_order_release);
    return first;
}

static uint32_t string(cen_ledger *l, const char *text, size_t size) {
    size = size < STRING_MAX ? size : STRING_MAX;
    uint64_t hash = XXH3_64bits(text, size);
    const uint64_t *known = ceni_map_get(&l->strings, hash);
    if (known) {
        return (uint32_t)*known;
    }
    char *to = CENI_LEDGER_COUNT(l, CENI_LEDGER_TEXT) > TEXT_MAX
                   ? NULL
                   : append(l, CENI_LEDGER_TEXT, size);
    ceni_ledger_span *span = to ? append(l, CENI_LEDGER_STRINGS, 1) : NULL;
    uint64_t id = CENI_LEDGER_COUNT(l, CENI_LEDGER_STRINGS);
    if (!span || ceni_map_put(&l->strings, hash, id)) {
        return CENI_FILE_NONE;
    }
    memcpy(to, text, size);
    *span = (ceni_ledger_span){(uint32_t)commit(l, CENI_LEDGER_TEXT, size), (uint32_t)size};
    commit(l, CENI_LEDGER_STRINGS, 1);
    return (uint32_t)id;
}

static uint32_t string_of(cen_ledger *l, const char *text) {
    return string(l, text ? text : "", text ? strlen(text) : 0);
}

static uint32_t module(cen_ledger *l, const char *path, const char *build_id) {
    ceni_module_record record = {string_of(l, path), string_of(l, build_id)};
    ceni_module_record *to = append(l, CENI_LEDGER_MODULES, 1);
    if (!to) {
        return CENI_FILE_NONE;
    }
    *to = record;
    return (uint32_t)commit(l, CENI_LEDGER_MODULES, 1);
}

/* ---- native frames; without the lock ---- */

typedef struct place {
    cen_ledger *ledger;
    uintptr_t base;
    uint32_t module;
} place;

/* The loader's list is held here, and the ledger's lock inside it, never the other way round. */
static void know_module(void *arg, const ceni_module_seen *seen) {
    place *to = arg;
    cen_ledger *l = to->ledger;
    to->base = seen->base;
    pthread_mutex_lock(&l->lock);
    bool known = ceni_module_find(&l->modules, seen, &to->module);
    pthread_mutex_unlock(&l->lock);
    if (known) {
        return;
    }
    char build_id[CENI_BUILD_ID_MAX], program[STRING_MAX];
    const char *path = ceni_module_describe(seen, program, sizeof program, build_id);
    ceni_ledger_enter(l);
    if (!ceni_module_find(&l->modules, seen, &to->module)) {
        uint32_t id = module(l, path, build_id);
        if (id != CENI_FILE_NONE && !ceni_module_note(&l->modules, seen, id)) {
            to->module = id;
        }
    }
    ceni_ledger_leave(l, atomic_load_explicit(&l->head->changed_us, memory_order_relaxed));
}

static ceni_frame_record native_frame(cen_ledger *l, uintptr_t pc) {
    place found = {.ledger = l, .module = CENI_FILE_NONE};
    (void)ceni_module_at(pc, know_module, &found);
    ceni_frame_record frame = {.module = found.module};
    frame.at.offset = found.module == CENI_FILE_NONE ? pc : pc - found.base;
    return frame;
}

/* ---- stacks ---- */

static ceni_frame_record named_frame(cen_ledger *l, const cen_frame *from) {
    ceni_frame_record frame = {.module = CENI_FILE_NONE, .line = from->line};
    frame.at.named.file = string_of(l, from->file);
    frame.at.named.function = string_of(l, from->function);
    return frame;
}

/* A place in no module, such as one in code made at run time, is named by its address. */
static ceni_frame_record settle(cen_ledger *l, ceni_frame_record native) {
    if (native.module == CENI_FILE_NONE) {
        char text[32];
        snprintf(text, sizeof text, "0x%llx", (unsigned long long)native.at.offset);
        native.at.named.file = string_of(l, "");
        native.at.named.function = string_of(l, text);
    }
    return native;
}

/* The lock is held. */
static uint32_t find(const cen_ledger *l, uint64_t hash) {
    const uint64_t *known = ceni_map_get(&l->stacks, hash);
    return known ? (uint32_t)*known : CEN_LEDGER_NO_STACK;
}

/* The lock is held. */
static uint32_t add_stack(cen_ledger *l, uint64_t hash, const cen_frame *named, size_t named_count,
                          const ceni_frame_record *native, size_t native_count) {
    size_t count = named_count + native_count;
    uint64_t id = CENI_LEDGER_COUNT(l, CENI_LEDGER_STACKS);
    ceni_frame_record *frames = append(l, CENI_LEDGER_FRAMES, count);
    ceni_ledger_span *span = frames && id < STACKS_MAX ? append(l, CENI_LEDGER_STACKS, 1) : NULL;
    if (!span || ceni_map_put(&l->stacks, hash, id)) {
        return CEN_LEDGER_NO_STACK;
    }
    for (size_t i = 0; i < named_count; i++) {
        frames[i] = named_frame(l, &named[i]);
    }
    for (size_t i = 0; i < native_count; i++) {
        frames[named_count + i] = settle(l, native[i]);
    }
    *span = (ceni_ledger_span){(uint32_t)commit(l, CENI_LEDGER_FRAMES, count), (uint32_t)count};
    commit(l, CENI_LEDGER_STACKS, 1);
    return (uint32_t)id;
}

static uint32_t intern(cen_ledger *l, const cen_frame *named, size_t named_count,
                       const uintptr_t *native, size_t native_count, uint64_t hash) {
    pthread_mutex_lock(&l->lock);
    uint32_t id = find(l, hash);
    pthread_mutex_unlock(&l->lock);
    if (id != CEN_LEDGER_NO_STACK) {
        return id;
    }
    ceni_frame_record frames[CENI_NATIVE_MAX];
    for (size_t i = 0; i < native_count; i++) {
        frames[i] = native_frame(l, native[i]);
    }
    ceni_ledger_enter(l);
    id = find(l, hash);
    if (id == CEN_LEDGER_NO_STACK) {
        id = add_stack(l, hash, named, named_count, frames, native_count);
    }
    ceni_ledger_leave(l, atomic_load_explicit(&l->head->changed_us, memory_order_relaxed));
    return id;
}

/* ---- stacks noted lately; without the lock ---- */

static uint32_t recall(cen_ledger *l, uint64_t mark) {
    ceni_ledger_recent *r = &l->recent[mark % CENI_LEDGER_RECENT];
    uint64_t id = atomic_load_explicit(&r->id, memory_order_relaxed);
    uint64_t its = atomic_load_explicit(&r->mark, memory_order_relaxed) ^ id;
    return its == mark ? (uint32_t)id : CEN_LEDGER_NO_STACK;
}

static void remember(cen_ledger *l, uint64_t mark, uint32_t id) {
    ceni_ledger_recent *r = &l->recent[mark % CENI_LEDGER_RECENT];
    atomic_store_explicit(&r->id, id, memory_order_relaxed);
    atomic_store_explicit(&r->mark, mark ^ id, memory_order_relaxed);
}

uint32_t cen_ledger_stack_here(cen_ledger *l, unsigned skip) {
    if (ceni_ledger_check(l, "cen_ledger_stack_here")) {
        return CEN_LEDGER_NO_STACK;
    }
    ceni_raw_stack s;
    s.native_count = 0;
    if (l->options.stacks == CEN_TRACE_NATIVE_STACKS) {
        ceni_gather_native(&s, (size_t)skip + 1);
    }
    ceni_gather_mark(&s, l->options.stack_fn);
    uint32_t id = s.mark ? recall(l, s.mark) : CEN_LEDGER_NO_STACK;
    if (id != CEN_LEDGER_NO_STACK) {
        return id;
    }
    ceni_gather_named(&s, l->options.stack_fn, l->options.stack_arg);
    if (!s.named_count && !s.native_count) {
        return CEN_LEDGER_NO_STACK;
    }
    id = intern(l, s.named, s.named_count, s.native, s.native_count, ceni_gather_hash(&s));
    if (s.mark && id != CEN_LEDGER_NO_STACK) {
        remember(l, s.mark, id);
    }
    return id;
}

uint32_t cen_ledger_stack(cen_ledger *l, const cen_frame *frames, size_t count) {
    if (ceni_ledger_check(l, "cen_ledger_stack") || !frames || !count) {
        return CEN_LEDGER_NO_STACK;
    }
    ceni_raw_stack s;
    s.native_count = 0;
    s.named_count = count < CENI_NAMED_MAX ? count : CENI_NAMED_MAX;
    memcpy(s.named, frames, s.named_count * sizeof *frames);
    return intern(l, s.named, s.named_count, NULL, 0, ceni_gather_hash(&s));
}
