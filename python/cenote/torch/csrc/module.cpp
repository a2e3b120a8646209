/* What Python calls, by ctypes: plain C functions; a text is an error's, or NULL. */
#include "allocator.h"

#include <cstring>
#include <pthread.h>

#include <c10/cuda/CUDACachingAllocator.h>

namespace cenote {

namespace {

thread_local std::string last_line;

void keep_line(void *, cen_log_level level, const char *message) {
    if (level == CEN_LOG_ERROR) {
        last_line = message;
    }
}

// An error's text for Python, until the next one of the thread.
const char *told(const std::string &text) {
    static thread_local std::string kept;
    kept = text;
    return kept.c_str();
}

} // namespace

std::string last_error() { return last_line; }

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
    cen_log_set(keep_line, nullptr, CEN_LOG_ERROR);
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
    static cen_ledger *ledger = options.ledger;
    (void)ledger;
    return nullptr;
}

/* For torch's pluggable allocator beneath a MemPool: a pool of cenote's a device, made when it is
 * first used. NULL: no memory; torch raises its own error. */
void *cenote_torch_pool_alloc(size_t size, int device, cudaStream_t stream);
void cenote_torch_pool_free(void *ptr, size_t size, int device, cudaStream_t stream);
}
