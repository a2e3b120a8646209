/* See trace/emit_gather.h. */
#include "trace/emit_gather.h"

#include "base/mem.h"
#include "trace/emit_python.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- stacks ---- */

/* Where the return addresses of a stack lay. A program asks for memory from the same few places
 * over and over: a stack of the same depth whose return addresses are all where they were is the
 * same, and need not be unwound. (A frame of varying size between two could in theory hide another
 * path, where old return addresses happen to lie in its place.) */
enum { RECENT = 4 };

typedef struct recent_stack {
    uintptr_t here; /* the address of the frame that asked; 0: nothing kept */
    size_t skip, count, kept;
    uintptr_t at[CENI_NATIVE_MAX]; /* where each return address lay, the skipped frames' too */
    uintptr_t address[CENI_NATIVE_MAX];
    uintptr_t native[CENI_NATIVE_MAX];
} recent_stack;

/* A thread's, made when it first asks: too large for the static room that a library which is loaded
 * late shares with all others. Stacks outside of the thread's own, as coroutines have, are always
 * unwound: they may be gone or smaller by the next time. */
typedef struct recent_stacks {
    uintptr_t low, high; /* of the thread's own stack */
    recent_stack at[RECENT];
} recent_stacks;

static pthread_once_t recent_once = PTHREAD_ONCE_INIT;
static pthread_key_t recent_key;
static bool recent_usable;

static void recent_open(void) {
    recent_usable = !pthread_key_create(&recent_key, ceni_free);
}

static void find_own_stack(recent_stacks *all) {
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes)) {
        return; /* no stack lies between 0 and 0 */
    }
    if (!pthread_attr_getstack(&attributes, &low, &size)) {
        all->low = (uintptr_t)low;
        all->high = all->low + size;
    }
    pthread_attr_destroy(&attributes);
}

/* NULL: there is no memory for it, and stacks are unwound. */
static recent_stacks *recent_of_thread(void) {
    pthread_once(&recent_once, recent_open);
    recent_stacks *all = recent_usable ? pthread_getspecific(recent_key) : NULL;
    if (all || !recent_usable || !(all = ceni_calloc(1, sizeof *all))) {
        return all;
    }
    find_own_stack(all);
    if (pthread_setspecific(recent_key, all)) {
        ceni_free(all);
        all = NULL;
    }
    return all;
}

typedef struct unwinding {
    ceni_raw_stack *stack;
    size_t skip;        /* frames still to be left out */
    bool begun;         /* the gatherer's own frame, which is the first, was seen */
    recent_stack *keep; /* NULL: this stack cannot be recognised */
    uintptr_t high;     /* the end of the thread's own stack */
} unwinding;

static void keep_place(unwinding *u, struct _Unwind_Context *context, uintptr_t pc, bool signal) {
    recent_stack *r = u->keep;
#if defined(__x86_64__)
    /* The caller pushed it right below the frame that it returns to. */
    uintptr_t at = _Unwind_GetCFA(context) - sizeof(uintptr_t);
    bool above = at > (r->kept ? r->at[r->kept - 1] : r->here);
    if (!signal && above && at < u->high && r->kept < CENI_NATIVE_MAX &&
        *(const uintptr_t *)at == pc) {
        r->at[r->kept] = at;
        r->address[r->kept++] = pc;
        return;
    }
#else
    (void)context, (void)pc, (void)signal;
#endif
    r->here = 0;
    u->keep = NULL;
}

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg) {
    unwinding *u = arg;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || u->stack->native_count == CENI_NATIVE_MAX) {
        return _URC_END_OF_STACK;
    }
    if (!u->begun) {
        u->begun = true;
        return _URC_NO_REASON;
    }
    if (u->keep) {
        keep_place(u, context, pc, before);
    }
    if (u->skip) {
        u->skip--;
        return _URC_NO_REASON;
    }
    u->stack->native[u->stack->native_count++] = pc - !before; /* within the call, not after it */
    return _URC_NO_REASON;
}

/* Sanitizers would object to reading what may be another frame's by now. */
__attribute__((no_sanitize("address", "thread"))) static bool
recognise(const recent_stack *r, uintptr_t here, size_t skip, ceni_raw_stack *stack) {
    if (r->here != here || r->skip != skip) {
        return false;
    }
    for (size_t i = 0; i < r->kept; i++) {
        if (*(const uintptr_t *)r->at[i] != r->address[i]) {
            return false;
        }
    }
    memcpy(stack->native, r->native, r->count * sizeof *r->native);
    stack->native_count = r->count;
    return true;
}

__attribute__((noinline)) void ceni_gather_native(ceni_raw_stack *stack, size_t skip) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    recent_stacks *all = recent_of_thread();
    bool own = all && here >= all->low && here < all->high;
    recent_stack *r = own ? &all->at[here / 64 % RECENT] : NULL;
    if (r && recognise(r, here, skip, stack)) {
        return;
    }
    if (r) {
        *r = (recent_stack){.here = here, .skip = skip};
    }
    unwinding u = {stack, skip, false, r, all ? all->high : 0};
    stack->native_count = 0;
    _Unwind_Backtrace(note_frame, &u);
    if (u.keep) {
        u.keep->count = stack->native_count;
        memcpy(u.keep->native, stack->native, stack->native_count * sizeof *stack->native);
    }
}

void ceni_gather_mark(ceni_raw_stack *s, cen_trace_stack_fn names) {
    uint64_t mark = 0;
    bool known = !names || (names == cen_trace_python_frames && ceni_python_hash_here(&mark));
    if (known && s->native_count) {
        mark = XXH3_64bits_withSeed(s->native, s->native_count * sizeof *s->native, mark);
    }
    s->mark = known ? mark : 0;
}

void ceni_gather_named(ceni_raw_stack *s, cen_trace_stack_fn names, void *arg) {
    size_t count = names ? names(arg, s->named, CENI_NAMED_MAX) : 0;
    s->named_count = count < CENI_NAMED_MAX ? count : CENI_NAMED_MAX;
    for (size_t i = 0; s->mark && i < s->named_count; i++) {
        if (!strcmp(s->named[i].file, CENI_NO_TEXT) ||
            !strcmp(s->named[i].function, CENI_NO_TEXT)) {
            s->mark = 0;
        }
    }
}

static uint64_t hash_text(const char *text, uint64_t seed) {
    return text ? XXH3_64bits_withSeed(text, strlen(text), seed) : seed;
}

uint64_t ceni_gather_hash(const ceni_raw_stack *s) {
    uint64_t hash = 0;
    for (size_t i = 0; i < s->named_count; i++) {
        hash = hash_text(s->named[i].file, hash);
        hash = hash_text(s->named[i].function, hash + s->named[i].line);
    }
    return XXH3_64bits_withSeed(s->native, s->native_count * sizeof *s->native, hash);
}

/* ---- modules ---- */

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

const char *ceni_module_describe(const ceni_module_seen *seen, char *path, size_t size,
                                 char build_id[CENI_BUILD_ID_MAX]) {
    build_id_of(seen->info, build_id, CENI_BUILD_ID_MAX);
    if (*seen->info->dlpi_name) {
        return seen->info->dlpi_name;
    }
    ssize_t length = readlink("/proc/self/exe", path, size - 1); /* the program has no name */
    path[length > 0 ? length : 0] = '\0';
    return path;
}

typedef struct search {
    uintptr_t pc;
    ceni_module_fn *know;
    void *arg;
} search;

static int look_at(struct dl_phdr_info *info, size_t size, void *arg) {
    const search *s = arg;
    ceni_module_seen seen = {.base = info->dlpi_addr, .low = UINTPTR_MAX, .info = info};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_LOAD) {
            uintptr_t from = info->dlpi_addr + ph->p_vaddr, to = from + ph->p_memsz;
            seen.low = from < seen.low ? from : seen.low;
            seen.high = to > seen.high ? to : seen.high;
        }
    }
    if (s->pc < seen.low || s->pc >= seen.high) {
        return 0;
    }
    s->know(s->arg, &seen);
    return 1;
}

bool ceni_module_at(uintptr_t pc, ceni_module_fn *know, void *arg) {
    search s = {pc, know, arg};
    return dl_iterate_phdr(look_at, &s);
}

bool ceni_module_find(const ceni_module_list *list, const ceni_module_seen *seen, uint32_t *id) {
    for (size_t i = 0; i < list->count; i++) {
        const struct ceni_module_known *m = &list->at[i];
        if (m->base == seen->base && m->low == seen->low && m->high == seen->high) {
            *id = m->id;
            return true;
        }
    }
    return false;
}

int ceni_module_note(ceni_module_list *list, const ceni_module_seen *seen, uint32_t id) {
    if (ceni_grow(&list->at, &list->capacity, list->count + 1, sizeof *list->at)) {
        return -1;
    }
    list->at[list->count++] = (struct ceni_module_known){seen->base, seen->low, seen->high, id};
    return 0;
}
