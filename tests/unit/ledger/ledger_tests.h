/* What the ledger's tests share. */
#ifndef LEDGER_TESTS_H
#define LEDGER_TESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cenote/ledger.h"

#define MIB      ((uint64_t)1 << 20)
#define OK(call) assert_int_equal(call, CEN_OK)

/* A path of this process's that is not there yet. */
static inline const char *fresh_path(void) {
    static char path[128];
    static int number;
    snprintf(path, sizeof path, "/tmp/cenote-ledger-%d-%d", (int)getpid(), number++);
    unlink(path);
    return path;
}

static inline cen_ledger_entry an_entry(cen_ledger_kind kind, uint64_t key, uint64_t bytes,
                                        uint32_t stack) {
    return (cen_ledger_entry){.key = key, .bytes = bytes, .stack = stack, .kind = (uint8_t)kind};
}

/* The id of a stack of one frame. */
static inline uint32_t stack_named(cen_ledger *ledger, const char *function) {
    cen_frame frame = {.file = "train.py", .function = function, .line = 12};
    return cen_ledger_stack(ledger, &frame, 1);
}

#endif
