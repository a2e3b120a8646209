#include "trace/emit_gather.h"

#include "base/mem.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- stacks ---- */

typedef struct unwinding {
    ceni_raw_stack *stack;
    size_t skip;
} unwinding;

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg) {
    unwinding *u = arg;
    if (u->skip) {
        u->skip--;
        return _URC_NO_REASON;
    }
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (!pc || u->stack->native_count == CENI_NATIVE_MAX) {
        return _URC_END_OF_STACK;
    }
    u->stack->native[u->stack->native_count++] = pc - !before; /* within the call, not after it */
    return _URC_NO_REASON;
}

/* Its own frame is the first that the unwinder sees. */
__attribute__((noinline)) void ceni_gather_native(ceni_raw_stack *stack, size_t skip) {
    unwinding u = {stack, skip + 1};
    stack->native_count = 0;
    _Unwind_Backtrace(note_frame, &u);
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
