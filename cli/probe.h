/* What `cenote probe` prints: text for people, comma-separated values, and a drawing. */
#ifndef CENOTE_CLI_PROBE_H
#define CENOTE_CLI_PROBE_H

#include "cenote/probe.h"

/* "64 KiB", "3.906 GiB": four digits; "-" for 0. Four texts are in use at a time at most. */
const char *probe_size(uint64_t bytes);

void probe_print(const cen_probe *probe, bool quick);
void probe_print_csv(const cen_probe *probe);
/* Returns the exit status; one line on stderr says what failed. */
int probe_write_svg(const cen_probe *probe, const char *path);

#endif
