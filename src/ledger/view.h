/* A copy of a ledger and what was found out about it so far. */
#ifndef CENI_LEDGER_VIEW_H
#define CENI_LEDGER_VIEW_H

#include "ledger/file.h"
#include "trace/read_ledger.h"

typedef struct ceni_named_stack {
    cen_frame *frames;
    size_t count;
    bool tried;
} ceni_named_stack;

struct cen_ledger_view {
    ceni_ledger_file file;
    cen_ledger_info info;
    cen_ledger_device_info device[CEN_LEDGER_DEVICES];
    cen_ledger_failure failures[CENI_LEDGER_FAILURES]; /* the oldest first */
    size_t failure_count;
    ceni_ledger_names *names;
    bool names_tried;
    ceni_named_stack *named; /* by stack */
    const char **owners;     /* by module: who calls from it; NULL: it is passed over */
    char *owner_text;
    bool owners_made;
    cen_ledger_entry *then; /* what cen_ledger_view_then gave last */
    size_t then_count;
};

/* Makes a view of a copy, which it takes over also on failure. CEN_ERR_HOST_MEMORY; logged. */
cen_status ceni_ledger_view_make(ceni_ledger_file *file, cen_ledger_view **view);
/* From memory, as cen_ledger_read from a file; `name` stands for it in messages. */
cen_status ceni_ledger_read_memory(const char *name, const void *data, size_t size,
                                   cen_ledger_view **view, cen_read_error *error);

#endif
