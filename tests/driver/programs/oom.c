/* Runs out of memory: allocates until the driver refuses, says what it said, exits with 3.
 * oom [BYTES OF EACH ALLOCATION] */
#include "cuda_calls.h"

__attribute__((noinline)) static unsigned grow_cache(size_t size) {
    device_address address;
    return cuMemAlloc_v2(&address, size);
}

int main(int argc, char **argv) {
    size_t size = (size_t)argument(argc, argv, 1, 64 << 20), held = 0;
    unsigned status;
    start();
    while (!(status = grow_cache(size))) {
        held += size;
    }
    printf("refused with %u after %zu bytes\n", status, held);
    return 3;
}
