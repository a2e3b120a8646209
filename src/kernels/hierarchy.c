/* The twins of hierarchy.cu: the same accesses in the same number, on the calling thread. */
#include "kernels/hierarchy.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "kernels/args.h"
#include "kernels/memory.h"

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t *words_at(void *const *args, size_t index) {
    return (uint64_t *)(uintptr_t)ceni_arg64(args, index);
}

static void give(uint64_t *out, uint64_t last, uint64_t start) {
    uint64_t ns = now_ns() - start;
    out[0] = last;
    out[1] = ns;
    out[2] = ns;
}

static ceni_kernel_range range(void *const *args, size_t addr, size_t size, bool write) {
    return (ceni_kernel_range){ceni_arg64(args, addr), ceni_arg64(args, size), write};
}

static ceni_kernel_range out_range(void *const *args, size_t index, uint64_t words) {
    return (ceni_kernel_range){ceni_arg64(args, index), words * sizeof(uint64_t), true};
}

CENI_TWIN(chase) {
    uint64_t at = ceni_arg64(args, 2), steps = ceni_arg64(args, 3) / CENI_CHASE_BATCH;
    uint64_t start = now_ns();
    for (uint64_t i = 0; i < steps * CENI_CHASE_BATCH; i++) {
        at = *(volatile const uint64_t *)(uintptr_t)at;
    }
    give(words_at(args, 4), at, start);
}

CENI_RANGES(chase) {
    ranges[0] = range(args, 0, 1, false);
    ranges[1] = out_range(args, 4, 3);
    return 2;
}

CENI_TWIN(chase_lines) {
    uint64_t base = ceni_arg64(args, 0), stride = ceni_arg64(args, 1), count = ceni_arg64(args, 2);
    uint64_t steps = ceni_arg64(args, 3) / CENI_CHASE_BATCH, *out = words_at(args, 4);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = base + i * stride, start = now_ns();
        for (uint64_t k = 0; k < steps * CENI_CHASE_BATCH; k++) {
            at = *(volatile const uint64_t *)(uintptr_t)at;
        }
        out[i] = now_ns() - start + (at ? 0 : 1);
    }
}

CENI_RANGES(chase_lines) {
    uint64_t stride = ceni_arg64(args, 1), count = ceni_arg64(args, 2);
    ranges[0] = (ceni_kernel_range){ceni_arg64(args, 0), stride * count, false};
    ranges[1] = out_range(args, 4, count);
    return 2;
}

CENI_TWIN(chase_shared) {
    uint32_t words[CENI_SHARED_BYTES_MAX / 4] = {0}, count = ceni_arg32(args, 0) / 4, at = 0;
    uint64_t steps = ceni_arg64(args, 1) / CENI_CHASE_BATCH;
    for (uint32_t i = 0; i < count; i++) {
        words[i] = (i + 17) % count * 4;
    }
    uint64_t start = now_ns();
    for (uint64_t i = 0; i < steps * CENI_CHASE_BATCH; i++) {
        at = *(volatile const uint32_t *)&words[at / 4];
    }
    give(words_at(args, 2), at, start);
}

CENI_RANGES(chase_shared) {
    ranges[0] = out_range(args, 2, 3);
    return 1;
}

/* The ^ of all words, once a round: of an even number of rounds 0. */
static uint32_t fold(const uint32_t *words, uint64_t count, uint64_t rounds) {
    uint32_t sum = 0;
    for (uint64_t r = 0; r < rounds; r++) {
        for (uint64_t i = 0; i < count; i++) {
            sum ^= words[i];
        }
        atomic_signal_fence(memory_order_seq_cst); /* so that each round reads anew */
    }
    return sum;
}

static uint32_t fold_args(void *const *args) {
    return fold((const uint32_t *)(uintptr_t)ceni_arg64(args, 0), ceni_arg64(args, 1) / 16 * 4,
                ceni_arg64(args, 2));
}

CENI_TWIN(read) {
    atomic_fetch_xor((_Atomic uint64_t *)words_at(args, 3), fold_args(args));
}

CENI_TWIN(read_l1) {
    for (uint32_t i = 0; i < grid[0]; i++) {
        atomic_fetch_add((_Atomic uint64_t *)words_at(args, 3), fold_args(args));
    }
}

CENI_RANGES(read) {
    ranges[0] = range(args, 0, 1, false);
    ranges[1] = out_range(args, 3, 1);
    return 2;
}

CENI_TWIN(read_shared) {
    uint32_t words[CENI_SHARED_BYTES_MAX / 4], count = ceni_arg32(args, 0) / 16 * 4;
    for (uint32_t i = 0; i < count; i++) {
        words[i] = ceni_mix_u32(1, i);
    }
    for (uint32_t i = 0; i < grid[0]; i++) {
        uint32_t sum = fold(words, count, ceni_arg64(args, 1));
        atomic_fetch_add((_Atomic uint64_t *)words_at(args, 2), sum);
    }
}

CENI_RANGES(read_shared) {
    ranges[0] = out_range(args, 2, 1);
    return 1;
}

CENI_TWIN(write) {
    uint32_t *dst = (uint32_t *)(uintptr_t)ceni_arg64(args, 0), value = ceni_arg32(args, 1);
    uint64_t count = ceni_arg64(args, 2) / 16 * 4, rounds = ceni_arg64(args, 3);
    for (uint64_t r = 0; r < rounds; r++) {
        for (uint64_t i = 0; i < count; i++) {
            dst[i] = value;
        }
        atomic_signal_fence(memory_order_seq_cst);
    }
}

CENI_RANGES(write) {
    ranges[0] = range(args, 0, 2, true);
    return 1;
}

CENI_TWIN(copy) {
    void *dst = (void *)(uintptr_t)ceni_arg64(args, 0);
    const void *src = (const void *)(uintptr_t)ceni_arg64(args, 1);
    uint64_t bytes = ceni_arg64(args, 2) / 16 * 16, rounds = ceni_arg64(args, 3);
    for (uint64_t r = 0; r < rounds; r++) {
        memcpy(dst, src, bytes);
        atomic_signal_fence(memory_order_seq_cst);
    }
}

CENI_RANGES(copy) {
    ranges[0] = range(args, 0, 2, true);
    ranges[1] = range(args, 1, 2, false);
    return 2;
}

CENI_TWIN(triad) {
    float *dst = (float *)(uintptr_t)ceni_arg64(args, 0), scale;
    const float *a = (const float *)(uintptr_t)ceni_arg64(args, 1);
    const float *b = (const float *)(uintptr_t)ceni_arg64(args, 2);
    uint64_t count = ceni_arg64(args, 4) / 16 * 4, rounds = ceni_arg64(args, 5);
    memcpy(&scale, args[3], sizeof scale);
    for (uint64_t r = 0; r < rounds; r++) {
        for (uint64_t i = 0; i < count; i++) {
            float product = scale * b[i];
            dst[i] = a[i] + product;
        }
        atomic_signal_fence(memory_order_seq_cst);
    }
}

CENI_RANGES(triad) {
    ranges[0] = range(args, 0, 4, true);
    ranges[1] = range(args, 1, 4, false);
    ranges[2] = range(args, 2, 4, false);
    return 3;
}

/* 0.5 * x is exact, so that one rounding is all there is, fused or not. */
static float step(float x) {
    return x * 0.5f + 1;
}

CENI_TWIN(fma) {
    uint64_t threads = (uint64_t)grid[0] * block[0], rounds = ceni_arg64(args, 0);
    for (uint64_t t = 0; t < threads; t++) {
        float x[CENI_FMA_CHAINS], sum = 0;
        for (int c = 0; c < CENI_FMA_CHAINS; c++) {
            x[c] = (float)c;
        }
        for (uint64_t r = 0; r < rounds; r++) {
            for (int c = 0; c < CENI_FMA_CHAINS; c++) {
                x[c] = step(x[c]);
            }
        }
        for (int c = 0; c < CENI_FMA_CHAINS; c++) {
            sum += x[c];
        }
        atomic_fetch_add((_Atomic uint64_t *)words_at(args, 1), (uint64_t)llrintf(sum));
    }
}

CENI_RANGES(fma) {
    ranges[0] = out_range(args, 1, 1);
    return 1;
}

CENI_TWIN(fma_chain) {
    uint64_t steps = ceni_arg64(args, 0) * CENI_CHASE_BATCH, start = now_ns();
    float x = 5;
    uint32_t bits;
    for (uint64_t i = 0; i < steps; i++) {
        x = step(x);
    }
    memcpy(&bits, &x, sizeof bits);
    give(words_at(args, 1), bits, start);
}

CENI_RANGES(fma_chain) {
    ranges[0] = out_range(args, 1, 3);
    return 1;
}
