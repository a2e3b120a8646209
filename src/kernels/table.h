/* The built-in kernels: each with its CUDA image (src/kernels/NAME.cu, compiled to one fatbin) and
 * its twin in C that the host backend runs. Backends look kernels up here by name. */
#ifndef CENI_KERNELS_TABLE_H
#define CENI_KERNELS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs the whole grid on the calling thread. */
typedef void (*ceni_kernel_twin)(const uint32_t grid[3], const uint32_t block[3],
                                 uint32_t shared_bytes, void *const *args);

/* Memory that a launch touches, so that the host backend can refuse what a GPU would fault on. */
enum { CENI_KERNEL_RANGES_MAX = 16 };
typedef struct ceni_kernel_range {
    uint64_t addr, size;
    bool write;
} ceni_kernel_range;

typedef struct ceni_kernel {
    const char *name; /* also the symbol's name in the CUDA image (extern "C") */
    size_t arg_count;
    const uint8_t *arg_sizes; /* bytes of each argument, so that a launch can copy the values */
    ceni_kernel_twin twin;
    /* Fills `ranges`, returns how many; NULL: the kernel touches no memory. */
    size_t (*ranges)(void *const *args, ceni_kernel_range ranges[CENI_KERNEL_RANGES_MAX]);
} ceni_kernel;

extern const ceni_kernel ceni_kernels[]; /* ends with a NULL name */
const ceni_kernel *ceni_kernel_find(const char *name);

/* The embedded fatbin, which knows its size; NULL when the library was built without nvcc. */
extern const unsigned char *const ceni_kernels_image;

#endif
