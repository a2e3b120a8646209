/* Crash points: each step of the protocol, in a client and in the broker, passes one, and a test
 * kills the process at the n-th. Unarmed, a point costs one relaxed load. */
#ifndef CENI_IPC_STEP_H
#define CENI_IPC_STEP_H

#include "base/fault.h"

extern ceni_fault_arm ceni_ipc_steps;

/* The n-th step from now kills this process with SIGKILL; 0: none. Before that it writes its name,
 * with a newline, to the file `report`, if that is not negative. For tests. */
void ceni_ipc_step_arm(int64_t n, int report);

void ceni_ipc_step_die(const char *what);
static inline void ceni_ipc_step(const char *what) {
    if (ceni_fault_hit(&ceni_ipc_steps)) {
        ceni_ipc_step_die(what);
    }
}

#endif
