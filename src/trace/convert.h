/* The formats that a snapshot is written as: what cen_snapshot_write chooses from. A failure is
 * `out`'s. */
#ifndef CENI_TRACE_CONVERT_H
#define CENI_TRACE_CONVERT_H

#include "trace/out.h"

void ceni_write_torch(ceni_out *out, const cen_snapshot *snapshot);
void ceni_write_trace(ceni_out *out, const cen_snapshot *snapshot);
void ceni_write_chrome(ceni_out *out, const cen_snapshot *snapshot);

#endif
