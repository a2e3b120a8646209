/* Call stacks as they are gathered, before any file knows them, and the modules that their places
 * lie in. The trace and the ledger both stand on it. */
#ifndef CENI_TRACE_EMIT_GATHER_H
#define CENI_TRACE_EMIT_GATHER_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/trace.h"

#define CENI_NATIVE_MAX   64
#define CENI_NAMED_MAX    64
#define CENI_BUILD_ID_MAX 65 /* in hexadecimal, with its end */

typedef struct ceni_raw_stack {
    size_t named_count, native_count;
    cen_frame named[CENI_NAMED_MAX];
    uintptr_t native[CENI_NATIVE_MAX]; /* places within the calls, innermost first */
    uint64_t mark;                     /* tells it apart before its frames are named; 0: unknown */
} ceni_raw_stack;

/* Fills `native`, without the caller's `skip` innermost frames; 0: the caller is the first. */
void ceni_gather_native(ceni_raw_stack *stack, size_t skip);
/* Sets `mark`, where what `names` gives can be told apart without calling it. `native` is filled.
 * Stacks of one mark have the same hash, but not the other way round. */
void ceni_gather_mark(ceni_raw_stack *stack, cen_trace_stack_fn names);
/* Fills `named`. The mark is taken back from a stack that may have more names later. */
void ceni_gather_named(ceni_raw_stack *stack, cen_trace_stack_fn names, void *arg);
/* Tells stacks apart; what the names say counts, not where they lie. */
uint64_t ceni_gather_hash(const ceni_raw_stack *stack);

/* A module that is loaded. */
typedef struct ceni_module_seen {
    uintptr_t base, low, high; /* loaded at; [low, high) are its segments */
    const struct dl_phdr_info *info;
} ceni_module_seen;

/* Calls `know` with the module around pc, while the loader's list is held; false: there is none. */
typedef void ceni_module_fn(void *arg, const ceni_module_seen *seen);
bool ceni_module_at(uintptr_t pc, ceni_module_fn *know, void *arg);
/* The path of a module, which is `path` or the loader's own, and its build id ("": it has none). */
const char *ceni_module_describe(const ceni_module_seen *seen, char *path, size_t size,
                                 char build_id[CENI_BUILD_ID_MAX]);

/* A list of modules that a file knows by number. One that was loaded where another had been is
 * told from it by its range only. */
typedef struct ceni_module_list {
    struct ceni_module_known {
        uintptr_t base, low, high;
        uint32_t id;
    } * at;
    size_t count, capacity;
} ceni_module_list;

/* True: it is known as *id. */
bool ceni_module_find(const ceni_module_list *list, const ceni_module_seen *seen, uint32_t *id);
/* 0; -1: no memory. */
int ceni_module_note(ceni_module_list *list, const ceni_module_seen *seen, uint32_t id);

#endif
