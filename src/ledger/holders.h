/* What cen_holders_read puts together: processes as /proc shows them, and the ledgers of each. */
#ifndef CENI_HOLDERS_H
#define CENI_HOLDERS_H

#include "cenote/holders.h"

/* ---- processes (holders_process.c) ---- */

/* Whether there is a process of that number here, seen or not. */
bool ceni_process_lives(int pid);
/* Its command line with the program's base name, on one line of valid UTF-8, else its short name,
 * else what NVML calls it; "" if nothing tells. */
void ceni_process_program(int pid, char *program, size_t size);
/* The name, or number, of the user whose it is; "" if it cannot be seen. */
void ceni_process_user(int pid, char *user, size_t size);

/* ---- ledgers (holders_ledgers.c) ---- */

typedef struct ceni_holder_ledger {
    int pid;
    bool physical; /* of the writer that sees all that the driver gives: "run" */
    cen_ledger_view *view;
} ceni_holder_ledger;

typedef struct ceni_holder_ledgers {
    ceni_holder_ledger *at; /* ledgers of one process are neighbours, its physical one first */
    size_t count, capacity;
} ceni_holder_ledgers;

/* The ledgers of this user whose processes live, or are among `listed`; removes those that nobody
 * has a use for. CEN_ERR_HOST_MEMORY. Freed with ceni_holder_ledgers_free also after a failure. */
cen_status ceni_holder_ledgers_read(ceni_holder_ledgers *files, const int *listed, size_t count);
void ceni_holder_ledgers_free(ceni_holder_ledgers *files);

/* ---- joining (holders_join.c) ---- */

/* Puts the ledgers `files` (of one process) beside what NVML says of it. CEN_ERR_HOST_MEMORY. */
cen_status ceni_holder_join(cen_holder *holder, const char *uuid, const ceni_holder_ledger *files,
                            size_t count);
#endif
