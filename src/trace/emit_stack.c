/* Call stacks: gathered, told apart by 64 bits of hash, and each defined once in the file.
 *
 * A thread knows the stacks it saw lately; only one that it does not know takes the lock, and only
 * one that nobody saw yet is taken apart into (module, offset). Naming them is the reader's. */
#include "trace/ring.h"

#include "base/mem.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { NATIVE_MAX = 64, NAMED_MAX = 64, SKIP = 2 };

typedef struct stack {
    size_t named_count, native_count, skip;
    cen_frame named[NAMED_MAX];
    uintptr_t native[NATIVE_MAX];
} stack;

/* A module as the file knows it. */
typedef struct module {
    uintptr_t base, low, high; /* loaded at; [low, high) are its segments */
    uint32_t id;
} module;

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
    module *modules;
    size_t module_count, module_capacity;
    _Atomic uint64_t stacks;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- gathering ---- */

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg) {
    stack *s = arg;
    if (s->skip) {
        s->skip--;
        return _URC_NO_REASON;
    }
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || s->native_count == NATIVE_MAX) {
        return _URC_END_OF_STACK;
    }
    s->native[s->native_count++] = pc - !before; /* within the call, not after it */
    return _URC_NO_REASON;
}

static uint64_t hash_text(const char *text, uint64_t seed) {
    return text ? XXH3_64bits_withSeed(text, strlen(text), seed) : seed;
}

static uint64_t hash_of(const stack *s) {
    uint64_t hash = 0;
    for (size_t i = 0; i < s->named_count; i++) {
        hash = hash_text(s->named[i].file, hash);
        hash = hash_text(s->named[i].function, hash + s->named[i].line);
    }
    return XXH3_64bits_withSeed(s->native, s->native_count * sizeof *s->native, hash);
}

/* ---- modules ---- */

typedef struct search {
    uintptr_t pc;
    const module *found;
} search;

static void build_id_of(const struct dl_phdr_info *info, char *to, size_t size) {
    *to = '\0';
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        const char *note = (const char *)info->dlpi_addr + ph->p_vaddr, *end = note + ph->p_memsz;
        while (ph->p_type == PT_NOTE && note + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) head;
            memcpy(&head, note, sizeof head);
            const char *name = note + sizeof head;
            const uint8_t *id = (const uint8_t *)name + ((head.n_namesz + 3) & ~3u);
            if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 && !memcmp(name, "GNU", 4)) {
                for (size_t k = 0; k < head.n_descsz && 2 * k + 2 < size; k++) {
                    snprintf(to + 2 * k, 3, "%02x", id[k]);
                }
                return;
            }
            note = (const char *)id + ((head.n_descsz + 3) & ~3u);
        }
    }
}

static const module *add_module(const struct dl_phdr_info *info, uintptr_t low, uintptr_t high) {
    char build_id[65], program[4096];
    const char *path = info->dlpi_name;
    if (!*path) { /* the program itself, which comes without a name */
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        program[length > 0 ? length : 0] = '\0';
        path = program;
    }
    build_id_of(info, build_id, sizeof build_id);
    if (ceni_grow(&table.modules, &table.module_capacity, table.module_count + 1,
                  sizeof *table.modules)) {
        return NULL;
    }
    uint32_t id = ceni_writer_module(&ceni_trace.writer, path, build_id);
    if (id == CENI_FILE_NONE) {
        return NULL;
    }
    module *m = &table.modules[table.module_count++];
    *m = (module){info->dlpi_addr, low, high, id};
    return m;
}

/* The module around s->pc, entered if the file does not know it. A module that was loaded where
 * another had been is told from it by its range only. */
static int look_at_module(struct dl_phdr_info *info, size_t size, void *arg) {
    search *s = arg;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_LOAD) {
            uintptr_t from = info->dlpi_addr + ph->p_vaddr, to = from + ph->p_memsz;
            low = from < low ? from : low;
            high = to > high ? to : high;
        }
    }
    if (s->pc < low || s->pc >= high) {
        return 0;
    }
    for (size_t i = 0; i < table.module_count; i++) {
        const module *m = &table.modules[i];
        if (m->base == info->dlpi_addr && m->low == low && m->high == high) {
            s->found = m;
            return 1;
        }
    }
    s->found = add_module(info, low, high);
    return 1;
}

static ceni_frame_record native_frame(uintptr_t pc) {
    search s = {.pc = pc};
    dl_iterate_phdr(look_at_module, &s);
    ceni_frame_record frame = {.module = CENI_FILE_NONE};
    if (s.found) {
        frame.module = s.found->id;
        frame.at.offset = pc - s.found->base;
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

static uint32_t find_or_add(const stack *s, uint64_t hash) {
    if (2 * (table.count + 1) > table.capacity && grow()) {
        return CENI_FILE_NONE;
    }
    struct slot *slot = probe(hash);
    if (slot->id) {
        return slot->id - 1;
    }
    ceni_frame_record frames[NAMED_MAX + NATIVE_MAX];
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

uint32_t ceni_stack_here(ceni_ring *ring, uint32_t *generation) {
    stack s;
    s.named_count = s.native_count = 0;
    s.skip = SKIP;
    pthread_mutex_lock(&table.lock);
    cen_trace_options options = table.options;
    bool open = table.open;
    *generation = table.generation;
    pthread_mutex_unlock(&table.lock);
    if (!open) {
        return CENI_FILE_NONE;
    }
    if (options.stack_fn) {
        size_t count = options.stack_fn(options.stack_arg, s.named, NAMED_MAX);
        s.named_count = count < NAMED_MAX ? count : NAMED_MAX;
    }
    if (options.stacks == CEN_TRACE_NATIVE_STACKS) {
        _Unwind_Backtrace(note_frame, &s);
    }
    if (!s.named_count && !s.native_count) {
        return CENI_FILE_NONE;
    }
    uint64_t hash = hash_of(&s);
    ceni_stack_seen *seen = &ring->seen[hash % CENI_STACK_CACHE];
    if (seen->hash == hash && seen->generation == *generation) {
        return seen->id;
    }
    pthread_mutex_lock(&table.lock);
    bool same = table.open && table.generation == *generation;
    uint32_t id = same ? find_or_add(&s, hash) : CENI_FILE_NONE;
    pthread_mutex_unlock(&table.lock);
    if (id != CENI_FILE_NONE) {
        *seen = (ceni_stack_seen){hash, id, *generation};
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
    ceni_free(table.modules);
    table.slots = NULL;
    table.modules = NULL;
    table.count = table.capacity = table.module_count = table.module_capacity = 0;
    pthread_mutex_unlock(&table.lock);
}
