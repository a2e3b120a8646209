/* Fault injection: each allocation, I/O call and device call passes a named point that tests arm.
 *
 * Unarmed, a point costs one relaxed load. Armed, the calls that pass it are counted and the n-th
 * fails (and, if asked, all after it). Device calls are armed for each device (dev/dev.h); these
 * points are the process's. */
#ifndef CENI_FAULT_H
#define CENI_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ceni_fault_point { CENI_FAULT_HOST_MEMORY, CENI_FAULT_IO, CENI_FAULT_POINTS };

/* A counter that fails the call at which it reaches zero. */
typedef struct ceni_fault_arm {
    _Atomic int64_t left; /* 0: not armed; n: the n-th call from now fails */
    atomic_bool sticky;   /* the calls after it fail too */
} ceni_fault_arm;

/* Arms `arm`: the n-th call from now fails, n >= 1; 0 disarms. */
void ceni_fault_set(ceni_fault_arm *arm, int64_t n, bool sticky);

/* True if this call has to fail. */
bool ceni_fault_hit_slow(ceni_fault_arm *arm);
static inline bool ceni_fault_hit(ceni_fault_arm *arm) {
    return atomic_load_explicit(&arm->left, memory_order_relaxed) && ceni_fault_hit_slow(arm);
}

/* The process's points. */
extern ceni_fault_arm ceni_fault_points[CENI_FAULT_POINTS];
static inline bool ceni_fault(enum ceni_fault_point point) {
    return ceni_fault_hit(&ceni_fault_points[point]);
}

#endif
