/* Stream-ordered allocations on two streams; the last block of each round is freed on the other
 * stream. async [ROUNDS] */
#include "cuda_calls.h"

int main(int argc, char **argv) {
    long rounds = argument(argc, argv, 1, 30);
    handle streams[2];
    start();
    DO(cuStreamCreate(&streams[0], 1));
    DO(cuStreamCreate(&streams[1], 1));
    for (long round = 0; round < rounds; round++) {
        device_address blocks[4];
        for (int i = 0; i < 4; i++) {
            handle stream = streams[i % 2];
            DO(cuMemAllocAsync(&blocks[i], (size_t)(i + 1) << 20, stream));
            DO(cuMemsetD8Async(blocks[i], 1, (size_t)(i + 1) << 20, stream));
        }
        for (int i = 0; i < 3; i++) {
            DO(cuMemFreeAsync(blocks[i], streams[i % 2]));
        }
        DO(cuStreamSynchronize(streams[1]));
        DO(cuMemFreeAsync(blocks[3], streams[0]));
        DO(cuStreamSynchronize(streams[0]));
    }
    DO(cuStreamDestroy_v2(streams[0]));
    DO(cuStreamDestroy_v2(streams[1]));
    printf("%ld rounds\n", rounds);
    return 0;
}
