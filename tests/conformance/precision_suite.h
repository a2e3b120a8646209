/* What the suites of mixed precision share: numbers, and elements of any type. */
#ifndef PRECISION_SUITE_H
#define PRECISION_SUITE_H

#include "tests/conformance/suite.h"

#include <math.h>

#include "base/half.h"

static uint64_t random_state;

static inline uint32_t next(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static inline float number(void) { /* of several octaves, of either sign */
    float x = (float)(next() >> 8) * 0x1p-24f * (float)(1u << next() % 12);
    return next() % 2 ? x : -x;
}

static inline mapped room(cen_device *device, uint64_t bytes) {
    return suite_map(device, (size_t)((bytes + device->granularity - 1) / device->granularity), 0);
}

static inline uint64_t width_of(cen_dtype dtype) {
    return dtype == CEN_FP32 ? 4 : 2;
}

static inline float get(const uint8_t *from, cen_dtype dtype, uint64_t at) {
    uint16_t half;
    float x;
    if (dtype == CEN_FP32) {
        memcpy(&x, from + at * 4, 4);
        return x;
    }
    memcpy(&half, from + at * 2, 2);
    return dtype == CEN_FP16 ? ceni_float_of_f16(half) : ceni_float_of_bf16(half);
}

static inline void put(uint8_t *to, cen_dtype dtype, uint64_t at, float x) {
    uint16_t half = dtype == CEN_FP16 ? ceni_f16_of_float(x) : ceni_bf16_of_float(x);
    memcpy(to + at * width_of(dtype), dtype == CEN_FP32 ? (void *)&x : (void *)&half,
           width_of(dtype));
}

static inline void launched(cen_status status) {
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

#endif
