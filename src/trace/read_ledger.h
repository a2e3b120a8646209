/* Ledgers as recordings: a copy (ledger/file.h) -> the events of a trace, which are read as such;
 * and the names of a ledger's stacks, one at a time. */
#ifndef CENI_TRACE_READ_LEDGER_H
#define CENI_TRACE_READ_LEDGER_H

#include "ledger/file.h"
#include "trace/read_trace.h"

/* Reads a ledger to its end; the result is as a pickle's would be. */
cen_status ceni_ledger_run(ceni_reader *reader, ceni_value *result);
/* The same of a copy. */
cen_status ceni_ledger_convert(ceni_reader *reader, const ceni_ledger_file *file,
                               ceni_value *result);

/* read_ledger_names.c: the copy's strings, modules and frames in `to`, and a string of ours. */
cen_status ceni_ledger_take_names(ceni_reader *reader, const ceni_ledger_file *from,
                                  ceni_trace_file *to);
cen_status ceni_ledger_text(ceni_reader *reader, const char *text, uint32_t *id);

/* snapshot.c: a copy as a snapshot. Logged. */
cen_status ceni_ledger_snapshot(const ceni_ledger_file *file, cen_snapshot **snapshot);

/* Names of a copy's stacks; the copy outlives them. Nothing is logged. */
typedef struct ceni_ledger_names ceni_ledger_names;
/* CEN_ERR_HOST_MEMORY, CEN_ERR_FORMAT: the names are out of proportion to the file. */
cen_status ceni_ledger_names_open(const ceni_ledger_file *file, ceni_ledger_names **names);
void ceni_ledger_names_close(ceni_ledger_names *names);
/* Frames with names, in one piece that is the caller's to ceni_free; NULL and count 0: none. */
cen_status ceni_ledger_names_stack(ceni_ledger_names *names, uint32_t stack, cen_frame **frames,
                                   size_t *count);

#endif
