/* Writing a pickle of protocol 4, with the opcodes that PyTorch's memory_viz page reads: it refuses
 * protocol 5 and does not know the long forms of strings and integers, nor POP or DUP.
 *
 * Texts that last are written once and named by their place in the memo afterwards; they are told
 * apart by their address, as the snapshot keeps each once. */
#ifndef CENI_TRACE_PICKLER_H
#define CENI_TRACE_PICKLER_H

#include "base/map.h"
#include "trace/opcode.h"
#include "trace/out.h"

typedef struct ceni_pickler {
    ceni_out *out;
    uint32_t memos;      /* objects in the memo */
    ceni_map texts;      /* a text's address -> its number */
    uint32_t *text_memo; /* by number: its place in the memo + 1; 0: not written yet */
    size_t text_count, text_capacity;
} ceni_pickler;

void ceni_pickler_free(ceni_pickler *p);
void ceni_pickle_op(ceni_pickler *p, uint8_t op);
void ceni_pickle_int(ceni_pickler *p, int64_t value);
void ceni_pickle_unsigned(ceni_pickler *p, uint64_t value);
void ceni_pickle_float(ceni_pickler *p, double value);
void ceni_pickle_bool(ceni_pickler *p, bool value);
/* A text that is written as it stands, and one that lasts as long as the pickler. */
void ceni_pickle_string(ceni_pickler *p, const char *text, size_t size);
void ceni_pickle_text(ceni_pickler *p, const char *text);
/* The number of a text that lasts, from 0; the same for the same address. */
uint32_t ceni_pickle_number(ceni_pickler *p, const char *text);

/* Puts the object just written into the memo and gives its place; later it is written again by
 * that. */
uint32_t ceni_pickle_memoize(ceni_pickler *p);
void ceni_pickle_get(ceni_pickler *p, uint32_t memo);

/* Items of a list, or pairs of a dict: call _item before each, with its index, and _end after the
 * last. `op` is OP_APPENDS or OP_SETITEMS. Readers take so many at once that they go in batches. */
#define CENI_PICKLE_BATCH 1000
static inline void ceni_pickle_item(ceni_pickler *p, uint8_t op, size_t index) {
    if (index % CENI_PICKLE_BATCH == 0) {
        if (index) {
            ceni_pickle_op(p, op);
        }
        ceni_pickle_op(p, OP_MARK);
    }
}
static inline void ceni_pickle_end(ceni_pickler *p, uint8_t op, size_t count) {
    if (count) {
        ceni_pickle_op(p, op);
    }
}

#endif
