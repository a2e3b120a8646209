/* A launch's arguments, as twins read them. */
#ifndef CENI_KERNELS_ARGS_H
#define CENI_KERNELS_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t ceni_arg64(void *const *args, size_t index) {
    uint64_t value;
    memcpy(&value, args[index], sizeof value);
    return value;
}

static inline uint32_t ceni_arg32(void *const *args, size_t index) {
    uint32_t value;
    memcpy(&value, args[index], sizeof value);
    return value;
}

#endif
