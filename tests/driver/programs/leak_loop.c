/* Leaks: each step keeps 1 MiB that it never frees, beside buffers that it does free.
 * leak_loop [STEPS] [MICROSECONDS BETWEEN THEM] */
#include <unistd.h>

#include "cuda_calls.h"

enum { MIB = 1 << 20 };

__attribute__((noinline)) static device_address keep_loss(void) {
    device_address loss;
    DO(cuMemAlloc_v2(&loss, MIB));
    return loss;
}

__attribute__((noinline)) static device_address make_activations(size_t size) {
    device_address activations;
    DO(cuMemAlloc_v2(&activations, size));
    return activations;
}

__attribute__((noinline)) static void train_step(long step) {
    device_address activations = make_activations((size_t)(8 + step % 3) * MIB);
    device_address loss = keep_loss();
    DO(cuMemFree_v2(activations));
    printf("step %ld loss at %llx\n", step, loss);
    fflush(stdout);
}

int main(int argc, char **argv) {
    long steps = argument(argc, argv, 1, 20), pause = argument(argc, argv, 2, 0);
    start();
    for (long step = 1; step <= steps; step++) {
        train_step(step);
        if (pause) {
            usleep((useconds_t)pause);
        }
    }
    return 0;
}
