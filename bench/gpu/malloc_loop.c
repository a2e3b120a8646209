/* cudaMalloc and cudaFree in pairs, by size: what a program that uses the CUDA runtime and has no
 * allocator of its own pays, bare or under `cenote run --pool`.
 *
 * usage: malloc_loop
 * Prints {"peer", "figures"}, each figure the microseconds of a pair: the median, the least and the
 * most. The runtime is loaded when the program runs, or is part of it in malloc_loop_static, as
 * nvcc links it. Exits with 77, and says why, where there is no runtime or no GPU. */
#include <dlfcn.h>
#include <stdlib.h>

#include "bench/bench.h"

enum { PAIRS_MOST = 400, PAIRS_LEAST = 11, WARM_UP = 3 };
#define SIZE_NS UINT64_C(500000000) /* for one size */

/* cudaError_t and its 0, cudaSuccess; cudaErrorMemoryAllocation. */
enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };

static const struct {
    size_t bytes;
    const char *name;
} sizes[] = {
    {(size_t)64 << 10, "64 KiB"}, {(size_t)1 << 20, "1 MiB"},     {(size_t)4 << 20, "4 MiB"},
    {(size_t)64 << 20, "64 MiB"}, {(size_t)256 << 20, "256 MiB"}, {(size_t)1 << 30, "1 GiB"},
};

#ifdef MALLOC_LOOP_STATIC
int cudaMalloc(void **addr, size_t size);
int cudaFree(void *addr);

static const char *const runtime = "CUDA runtime, linked statically";

static bool load(int (**alloc)(void **, size_t), int (**release)(void *)) {
    *alloc = cudaMalloc;
    *release = cudaFree;
    return true;
}
#else
static const char *const runtime = "CUDA runtime, loaded";

static bool load(int (**alloc)(void **, size_t), int (**release)(void *)) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) {
        library = dlopen(names[i], RTLD_NOW);
    }
    if (!library) {
        fprintf(stderr, "malloc_loop: skipped: %s\n", dlerror());
        return false;
    }
    *(void **)alloc = dlsym(library, "cudaMalloc");
    *(void **)release = dlsym(library, "cudaFree");
    return *alloc && *release;
}
#endif

static void need(int error, const char *call, const char *size) {
    if (error) {
        fprintf(stderr, "malloc_loop: %s, %s: %s (cudaError %d)\n", call, size,
                error == OUT_OF_MEMORY ? "out of memory" : "failed", error);
        exit(1);
    }
}

int main(void) {
    int (*alloc)(void **, size_t) = NULL, (*release)(void *) = NULL;
    if (!load(&alloc, &release)) {
        return 77;
    }
    int error = release(NULL); /* starts the runtime on the first GPU */
    if (error != SUCCESS) {
        fprintf(stderr, "malloc_loop: skipped: no usable GPU (cudaError %d)\n", error);
        return 77;
    }
    printf("{\"peer\": \"%s\", \"figures\": [", runtime);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double samples[PAIRS_MOST];
        size_t count = 0;
        char what[64];
        uint64_t begun = bench_now();
        for (int pair = -WARM_UP; pair < PAIRS_MOST; pair++) {
            void *addr = NULL;
            uint64_t start = bench_now();
            if (pair >= PAIRS_LEAST && start - begun > SIZE_NS) {
                break;
            }
            need(alloc(&addr, sizes[i].bytes), "cudaMalloc", sizes[i].name);
            need(release(addr), "cudaFree", sizes[i].name);
            if (pair >= 0) {
                samples[count++] = (double)(bench_now() - start) / 1000;
            }
        }
        snprintf(what, sizeof what, "cudaMalloc + cudaFree, %s", sizes[i].name);
        printf("%s\n  ", i ? "," : "");
        bench_figure(stdout, what, "us", bench_measure_of(samples, count));
        printf("}");
    }
    printf("\n]}\n");
    return 0;
}
