/* Prototypes of all that the test driver exports, for itself and for programs linked against it. */
#ifndef TESTS_DRIVER_ENTRIES_H
#define TESTS_DRIVER_ENTRIES_H

#include "tests/driver/abi.h"

#define TD_EXPORT                                   __attribute__((visibility("default")))
#define SYM(name, suffix, version, args)            TD_EXPORT cu_result name##suffix args;
#define SYM_AS(member, name, suffix, version, args) TD_EXPORT cu_result name##suffix args;
#define ENTRY(name, suffix, version, args)          TD_EXPORT cu_result name##suffix args;
#define THREAD(name, suffix, thread, version, args, call)                                          \
    TD_EXPORT cu_result name##suffix##thread args;
#define SAME(name, suffix, target, version, args, call) TD_EXPORT cu_result name##suffix args;
#define NARROW(name, version)                           TD_EXPORT cu_result name(void);
#include "tests/driver/entries.def"

#endif
