#include "base/fault.h"

ceni_fault_arm ceni_fault_points[CENI_FAULT_POINTS];

void ceni_fault_set(ceni_fault_arm *arm, int64_t n, bool sticky) {
    atomic_store(&arm->sticky, sticky);
    atomic_store(&arm->left, n);
}

bool ceni_fault_hit_slow(ceni_fault_arm *arm) {
    int64_t left = atomic_load(&arm->left);
    while (left > 0) {
        /* The exchange decides which of several threads makes the n-th call. */
        int64_t next = left > 1 ? left - 1 : atomic_load(&arm->sticky);
        if (atomic_compare_exchange_weak(&arm->left, &left, next)) {
            return left == 1;
        }
    }
    return false;
}
