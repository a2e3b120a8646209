/* What Python calls, by ctypes: plain C functions; a text is an error's, or NULL. */
#include "allocator.h"

#include <cstring>
#include <pthread.h>

#include <c10/cuda/CUDACachingAllocator.h>

namespace cenote {

namespace {

/* The pools beneath MemPools, one a device. */
cen_pool *beneath(int index) {
    static std::mutex mutex;
    static std::vector<cen_pool *> pools;
    std::lock_guard<std::mutex> lock(mutex);
    if (index < 0) {
        return nullptr;
    }
    if (pools.size() <= (size_t)index) {
        pools.resize((size_t)index + 1);
    }
    if (!pools[(size_t)index]) {
        cen_device *device = nullptr;
        cen_pool *pool = nullptr;
        std::string name = "cuda:" + std::to_string(index);
        if (cen_device_open(name.c_str(), &device) || cen_pool_create(device, nullptr, &pool)) {
            TORCH_WARN("cenote: ", name, ": ", last_error());
            cen_device_close(device);
            return nullptr;
        }
        pools[(size_t)index] = pool;
    }
    return pools[(size_t)index];
}

// An error's text for Python, until the next one of the thread.
const char *told(const std::string &text) {
    static thread_local std::string kept;
    kept = text;
    return kept.c_str();
}

} // namespace

std::string last_error() { return cen_log_last_error(); }

} // namespace cenote

extern "C" {

/* Puts cenote in the place of torch's allocator. stack_min_bytes: see cenote.torch.enable. */
const char *cenote_torch_enable(uint64_t limit_bytes, uint64_t stack_min_bytes,
                                const char *ledger_path) {
    using namespace cenote;
    static std::shared_ptr<Allocator> kept; // torch keeps it too
    if (installed) {
        return nullptr;
    }
    native::CUDAAllocator *beside = native::get();
    if (beside->initialized()) {
        return "CUDA is initialised already: call enable() before the first use of the GPU; in a "
               "notebook, restart the kernel";
    }
    Options options;
    options.limit_bytes = limit_bytes;
    options.stack_min_bytes = stack_min_bytes;
    if (stack_min_bytes != UINT64_MAX || ledger_path) {
        cen_ledger_options ledger = {};
        ledger.size = sizeof ledger;
        ledger.writer = "torch";
        ledger.stack_fn = cen_trace_python_frames;
        if (cen_ledger_create(ledger_path, &ledger, &options.ledger)) {
            return told(last_error());
        }
    }
    try {
        kept = std::make_shared<Allocator>(beside, options);
        installed = kept.get();
        pthread_atfork(nullptr, nullptr, Allocator::forked);
        torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(kept);
    } catch (const std::exception &e) {
        installed = nullptr;
        return told(e.what());
    }
    return nullptr;
}

/* The end of an iteration of the program, for traces and the ledger. */
void cenote_torch_step(void) {
    cen_trace_step();
    if (cenote::installed && cenote::installed->ledger()) {
        cen_ledger_step(cenote::installed->ledger());
    }
}

/* The pool behind torch's allocator on a device; NULL and *error if it cannot be made. */
cen_pool *cenote_torch_pool(int device, const char **error) {
    try {
        return cenote::installed->pool_of((c10::DeviceIndex)device);
    } catch (const std::exception &e) {
        *error = cenote::told(e.what());
        return nullptr;
    }
}

/* Beneath torch.cuda.MemPool, as a pluggable allocator: torch caches above it. NULL: there is no
 * memory, and torch says so with an error of its own. */
void *cenote_torch_beneath_alloc(size_t size, int device, cudaStream_t stream) {
    cen_pool *pool = cenote::beneath(device);
    void *ptr = nullptr;
    return pool && !cen_pool_alloc(pool, size, (cen_stream)stream, &ptr) ? ptr : nullptr;
}

void cenote_torch_beneath_free(void *ptr, size_t, int device, cudaStream_t stream) {
    if (cen_pool *pool = cenote::beneath(device)) {
        if (cen_pool_free(pool, ptr, (cen_stream)stream)) {
            TORCH_WARN("cenote: free of ", ptr, ": ", cenote::last_error());
        }
    }
}
}
