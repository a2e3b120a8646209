/* What was never freed, gathered by stack: what the text and the JSON of it share. */
#ifndef CENI_LEDGER_LEAKS_H
#define CENI_LEDGER_LEAKS_H

#include "ledger/view.h"

/* Entries of one kind, on one device, from one stack. */
typedef struct ceni_leak {
    const cen_ledger_entry *first; /* one of them, for what they have in common */
    uint64_t bytes, count;
    int64_t oldest_us, newest_us; /* when the first and the last were added */
    uint32_t oldest_step, newest_step;
} ceni_leak;

typedef struct ceni_leaks {
    ceni_leak *at; /* most bytes first; the caller's to ceni_free */
    size_t count;
    uint64_t bytes, entries;
    uint64_t unjudged_bytes, unjudged; /* pages of pools whose blocks are not known */
} ceni_leaks;

/* CEN_ERR_HOST_MEMORY, logged; CEN_ERR_INVALID: an argument is NULL. */
cen_status ceni_leaks_find(const cen_ledger_view *view, const void *output, const char *call,
                           ceni_leaks *leaks);

#endif
