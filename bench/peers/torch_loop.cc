// PyTorch's caching allocator through its own C++ interface, so that the loops are those of
// bench/bench.c and no interpreter is measured. Built by peer_torch.py against the installed torch.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

extern "C" {
#include "bench/bench.h"
}

static uint64_t torch_alloc(void *, size_t size) {
    try {
        return (uint64_t)c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(
            size, c10::cuda::getCurrentCUDAStream().stream());
    } catch (...) {
        return 0;
    }
}

static void torch_release(void *, uint64_t addr, size_t) {
    c10::cuda::CUDACachingAllocator::raw_delete((void *)addr);
}

static const bench_allocator allocator = {"torch", nullptr, torch_alloc, torch_release};

extern "C" bool torch_pairs(size_t size, bench_measure *ns) {
    return bench_pairs(&allocator, 1, size, ns);
}

extern "C" bool torch_pattern(bench_measure *ns) {
    return bench_pattern(&allocator, 1, ns);
}
