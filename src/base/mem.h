/* The library's own host memory, every request of which can be made to fail (base/fault.h). */
#ifndef CENI_MEM_H
#define CENI_MEM_H

#include <stddef.h>

/* As malloc, calloc, realloc and free; NULL on failure. Zero sizes give a unique pointer. */
void *ceni_malloc(size_t size);
void *ceni_calloc(size_t count, size_t size);
void *ceni_realloc(void *ptr, size_t size);
/* Aligned to a power of two; freed with ceni_free. */
void *ceni_aligned(size_t alignment, size_t size);
char *ceni_strdup(const char *text);
void ceni_free(void *ptr);

/* Grows *array, of elements of `size` bytes, to hold at least `need`; *capacity counts elements and
 * at least doubles. Returns 0, or -1 with nothing changed when memory or size_t is exhausted. */
int ceni_grow(void *array, size_t *capacity, size_t need, size_t size);

#endif
