/* A program of calls run again and again, of which the n-th fails, for n from 1 on until the
 * program does not come that far; once by itself, and once with all that follow. */
#ifndef CONFORMANCE_FAULTS_H
#define CONFORMANCE_FAULTS_H

#include "tests/conformance/suite.h"

#include "base/fault.h"

typedef struct faults {
    ceni_fault_arm *arm;
    int64_t left; /* while the test itself calls */
} faults;

/* What the test does for itself does not fail. */
static inline void pause_faults(faults *f) {
    f->left = atomic_load(&f->arm->left);
    atomic_store(&f->arm->left, 0);
}

static inline void resume_faults(faults *f) {
    atomic_store(&f->arm->left, f->left);
}

/* Whether the call that was to fail came. */
static inline bool faults_came(const faults *f, bool sticky) {
    return atomic_load(&f->arm->left) <= (sticky ? 1 : 0);
}

/* attempt: runs the program, and returns whether the call came; within `most` it does not. Returns
 * how many calls were made to fail. */
static inline int64_t each_fault(bool (*attempt)(void *base, ceni_fault_arm *arm, int64_t n,
                                                 bool sticky),
                                 void *base, ceni_fault_arm *arm, int64_t most) {
    int64_t failed = 0;
    for (int sticky = 0; sticky < 2; sticky++) {
        int64_t n = 1;
        while (n < most && attempt(base, arm, n, sticky)) {
            n += SUITE_STRIDE;
            failed++;
        }
        assert_true(n < most);
    }
    return failed;
}

#endif
