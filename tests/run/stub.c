/* What program.c is linked with, as programs are with the toolkit's stub: the names, no driver. */
#include <stddef.h>

typedef unsigned result;
typedef unsigned long long addr;

#define FUNCTION(name, suffix, version, args)                                                      \
    __attribute__((visibility("default"))) result name##suffix args;                               \
    result name##suffix args {                                                                     \
        return 34; /* CUDA_ERROR_STUB_LIBRARY */                                                   \
    }
#include "tests/run/functions.def"
