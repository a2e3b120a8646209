/* Eight threads that allocate and free at once, each with a function of its own kind of size.
 * threads [TIMES] */
#define LOOK_UP
#include <pthread.h>

#include "cuda_calls.h"

enum { THREADS = 8 };

static handle context;
static long times;

static void *work(void *arg) {
    size_t size = (size_t)(uintptr_t)arg << 18;
    DO(cuCtxSetCurrent(context));
    for (long i = 0; i < times; i++) {
        device_address one, two;
        DO(cuMemAlloc_v2(&one, size));
        DO(cuMemAlloc_v2(&two, size * 3));
        DO(cuMemFree_v2(one));
        DO(cuMemFree_v2(two));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    times = argument(argc, argv, 1, 100);
    start();
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 1))) {
            return 2;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d threads, %ld times\n", THREADS, times);
    return 0;
}
