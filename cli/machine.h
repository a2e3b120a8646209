/* Ceilings, as the commands that judge on paper get them: a results file of a probe, and options
 * that stand for figures of it or take their place. */
#ifndef CENOTE_CLI_MACHINE_H
#define CENOTE_CLI_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/probe.h"
#include "cenote/roofline.h"

/* Zero-initialise; cli_machine_close frees what cli_machine_open made. */
typedef struct cli_machine {
    const char *file; /* --machine; NULL: this machine's, if it was measured */
    uint64_t number;  /* --device */
    bool has_number;
    double peak_flops, bandwidth; /* --peak-flops, --bandwidth; 0: not given */
    cen_probe *probe;
    const cen_probe_device *device; /* NULL: there is no results file */
} cli_machine;

/* Takes argv[*i] and its value if it is one of --machine, --device, --peak-flops and --bandwidth;
 * false: it is another argument. *status: the exit status so far. */
bool cli_machine_option(const char *command, int argc, char **argv, int *i, cli_machine *machine,
                        int *status);

/* Takes argv[*i] and its value if it is --dtype, in the same way. */
bool cli_type_option(const char *command, int argc, char **argv, int *i, cen_dtype *type,
                     int *status);

/* Reads the results file that was named, or this machine's own where `wanted` and there is one.
 * Returns the exit status; one line on stderr says what failed. */
int cli_machine_open(const char *command, bool wanted, cli_machine *machine);
void cli_machine_close(cli_machine *machine);

/* Where ceilings can be had, for the line that says that there are none. */
#define CLI_MACHINE_MISSING                                                                        \
    "measure this machine with 'cenote probe', name its results with --machine FILE, or give "     \
    "--peak-flops and --bandwidth"

#endif
