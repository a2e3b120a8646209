/* A stand-in for NVML whose devices a test sets up: the symbol `fake_nvml` of the library. Built
 * twice: fake_nvml has all functions, fake_nvml_old only those that the first drivers had. */
#ifndef TESTS_FAKE_NVML_H
#define TESTS_FAKE_NVML_H

#include <stdbool.h>
#include <stddef.h>

enum { FAKE_DEVICES = 3, FAKE_PROCESSES = 100 };

typedef struct fake_process {
    unsigned pid;
    unsigned long long bytes;
} fake_process;

typedef struct fake_device {
    unsigned long long total, used, reserved;
    fake_process compute[FAKE_PROCESSES], graphics[FAKE_PROCESSES];
    unsigned compute_count, graphics_count;
    unsigned long long energy;
    unsigned energy_result;
    unsigned memory_v2_result, memory_result, compute_result, graphics_result, uuid_result;
} fake_device;

typedef struct fake_nvml_state {
    unsigned device_count;
    fake_device devices[FAKE_DEVICES];
    unsigned init_result;
    int inits, shutdowns;
    int inside, most_inside; /* calls under way */
    size_t stride;           /* of a listed process; 0: as declared */
    unsigned late;           /* so many processes more at each list after the first */
} fake_nvml_state;

#endif
