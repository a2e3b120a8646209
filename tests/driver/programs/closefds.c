/* Closes every file descriptor from 3 up, as programs do that start daemons, before it uses the
 * driver; what was preloaded has to live with it. */
#define LOOK_UP
#include <unistd.h>

#include "cuda_calls.h"

int main(void) {
    device_address address;
    for (int fd = 3; fd < 1024; fd++) {
        close(fd);
    }
    start();
    for (int i = 0; i < 10; i++) {
        DO(cuMemAlloc_v2(&address, 1 << 20));
        if (i % 2) {
            DO(cuMemFree_v2(address));
        }
    }
    printf("allocated after closing\n");
    return 0;
}
