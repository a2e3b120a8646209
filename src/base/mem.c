#include "base/mem.h"

#include "base/fault.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *ceni_malloc(size_t size) {
    return ceni_fault(CENI_FAULT_HOST_MEMORY) ? NULL : malloc(size ? size : 1);
}

void *ceni_calloc(size_t count, size_t size) {
    return ceni_fault(CENI_FAULT_HOST_MEMORY) ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *ceni_realloc(void *ptr, size_t size) {
    return ceni_fault(CENI_FAULT_HOST_MEMORY) ? NULL : realloc(ptr, size ? size : 1);
}

void *ceni_aligned(size_t alignment, size_t size) {
    void *ptr;
    return ceni_fault(CENI_FAULT_HOST_MEMORY) || posix_memalign(&ptr, alignment, size) ? NULL : ptr;
}

char *ceni_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = ceni_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void ceni_free(void *ptr) {
    free(ptr);
}

int ceni_grow(void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) {
        return 0;
    }
    size_t want = *capacity ? *capacity : 16;
    while (want < need) {
        if (want > SIZE_MAX / 2) {
            return -1;
        }
        want *= 2;
    }
    if (want > SIZE_MAX / size) {
        return -1;
    }
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = ceni_realloc(old, want * size);
    if (!grown) {
        return -1;
    }
    memcpy(array, &grown, sizeof grown);
    *capacity = want;
    return 0;
}
