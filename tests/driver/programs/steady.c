/* Holds nothing: allocates, writes, reads back and frees, again and again.
 * steady [BYTES] [TIMES] */
#include <string.h>

#include "cuda_calls.h"

int main(int argc, char **argv) {
    size_t size = (size_t)argument(argc, argv, 1, 3 << 20);
    long times = argument(argc, argv, 2, 50);
    unsigned char *both = malloc(2 * size), *out = both, *in = both + size;
    if (!both) {
        return 2;
    }
    start();
    for (long i = 0; i < times; i++) {
        device_address address;
        memset(out, (int)(i + 1) & 255, size);
        DO(cuMemAlloc_v2(&address, size));
        DO(cuMemcpyHtoD_v2(address, out, size));
        DO(cuMemcpyDtoH_v2(in, address, size));
        DO(cuMemFree_v2(address));
        if (memcmp(in, out, size)) {
            fprintf(stderr, "time %ld: what was read is not what was written\n", i);
            free(both);
            return 1;
        }
    }
    printf("%ld times %zu bytes\n", times, size);
    free(both);
    return 0;
}
