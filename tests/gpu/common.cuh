// What programs that run on a GPU share: calls that have to succeed, and the device that they need.
#include <cstdio>
#include <cstdlib>

static void require(cudaError_t result, const char *what) {
    if (result != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
        exit(1);
    }
}

static void require_device() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("no GPU\n");
        exit(77);
    }
}
