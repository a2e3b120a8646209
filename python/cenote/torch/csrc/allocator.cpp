/* Blocks: taken from the pool of their device for a stream, given back to it. */
#include "allocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

namespace cenote {

Allocator *installed;

namespace {

std::atomic<bool> is_forked{false};

void delete_block(void *ptr) { installed->raw_delete(ptr); }

} // namespace

void Allocator::forked() { is_forked = true; }

Allocator::Allocator(native::CUDAAllocator *beside, const Options &options)
    : CUDAPluggableAllocator([](size_t, int, cudaStream_t) -> void * { return nullptr; },
                             [](void *, size_t, int, cudaStream_t) {}),
      beside_(beside), options_(options) {}

void Allocator::init(int device_count) {
    beside_->init(device_count);
    for (int i = (int)devices_.size(); i < device_count; i++) {
        devices_.push_back(std::make_unique<Device>());
    }
    initialized_here_ = true;
}

bool Allocator::initialized() { return initialized_here_; }

std::string Allocator::name() { return "cenote"; }

/* The device's pool, made when it is first asked for: a process of one GPU opens no other. */
Device &Allocator::device_of(c10::DeviceIndex index) {
    TORCH_CHECK(index >= 0 && (size_t)index < devices_.size(), "cenote: no CUDA device ",
                (int)index);
    Device &d = *devices_[index];
    if (d.pool.load(std::memory_order_acquire)) {
        return d;
    }
    std::lock_guard<std::mutex> lock(d.opening);
    if (d.pool.load()) {
        return d;
    }
    c10::cuda::CUDAGuard guard(index); // the primary context is the current one
    std::string name = "cuda:" + std::to_string(index);
    cen_device *device = d.device;
    cen_status status = device ? CEN_OK : cen_device_open(name.c_str(), &device);
    TORCH_CHECK(!status, "cenote: ", name, ": ", last_error());
    d.device = device;
    uint64_t free_bytes = 0;
    TORCH_CHECK(!cen_device_mem_info(device, &free_bytes, &d.total), "cenote: ", last_error());
    cen_pool_options options = {};
    options.size = sizeof options;
    options.limit_bytes = options_.limit_bytes;
    if (d.fraction < 1.0) {
        options.limit_bytes = (uint64_t)(d.fraction * (double)d.total);
    }
    cen_pool *pool = nullptr;
    TORCH_CHECK(!cen_pool_create(device, &options, &pool), "cenote: ", last_error());
    if (options_.ledger) {
        cen_device_props props;
        if (!cen_device_get_props(device, &props)) {
            cen_ledger_device(options_.ledger, (unsigned)index, props.uuid, props.name, d.total);
        }
    }
    d.pool.store(pool, std::memory_order_release);
    return d;
}

cen_pool *Allocator::pool_of(c10::DeviceIndex index) { return device_of(index).pool.load(); }

void Allocator::count(c10::DeviceIndex index, size_t size, bool taken) {
    caching::DeviceStats &s = devices_[index]->stats;
    size_t kind = size <= 1048576 ? 1 : 2; // torch's small and large pools
    for (size_t i : {(size_t)0, kind}) {
        if (taken) {
            s.allocation[i].increase(1);
            s.requested_bytes[i].increase(size);
            s.allocated_bytes[i].increase(rounded(size));
        } else {
            s.allocation[i].decrease(1);
            s.requested_bytes[i].decrease(size);
            s.allocated_bytes[i].decrease(rounded(size));
        }
    }
}

void Allocator::note_taken(void *ptr, Block block) {
    const Context context = block.context;
    const size_t size = block.size;
    const cudaStream_t stream = block.stream;
    const c10::DeviceIndex device = block.device;
    const PrivatePool *pool;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        pool = block.pool ? by_number(block.pool) : nullptr;
        blocks_[ptr] = std::move(block);
        count(device, size, true);
        if (history_.load(std::memory_order_relaxed)) {
            record(caching::TraceEntry::ALLOC, device, (size_t)ptr, size, stream, pool, context);
        }
    }
    if (options_.ledger) {
        cen_ledger_entry entry = {};
        entry.key = (uint64_t)ptr;
        entry.bytes = size;
        entry.stream = (uint64_t)stream;
        entry.stack = size >= options_.stack_min_bytes ? cen_ledger_stack_here(options_.ledger, 0)
                                                       : CEN_LEDGER_NO_STACK;
        entry.device = (uint16_t)device;
        entry.kind = CEN_LEDGER_BLOCK;
        (void)cen_ledger_add(options_.ledger, &entry); // one that is lost is counted there
    }
}

void Allocator::report(void *ptr, int64_t size, c10::DeviceIndex device) {
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
        cen_pool_stats s = {};
        (void)cen_pool_get_stats(devices_[device]->pool.load(), &s); // zeros if not
        c10::reportMemoryUsageToProfiler(ptr, size, s.allocated_bytes, s.reserved_bytes,
                                         c10::Device(c10::DeviceType::CUDA, device));
    }
}

void *Allocator::take(size_t size, c10::DeviceIndex index, cudaStream_t stream) {
    if (!size) {
        return nullptr;
    }
    TORCH_CHECK(!is_forked, "cenote: CUDA cannot be used in a forked child; start it with spawn");
    Device &d = device_of(index);
    Block block = {size, stream, 0, index, false, context_for(native::RecordContext::STATE)};
    void *ptr = nullptr;
    cen_status status = CEN_OK;
    if (C10_LIKELY(!route_count_.load(std::memory_order_acquire)) ||
        !take_routed(size, index, stream, &block, &ptr, &status)) {
        status = cen_pool_alloc(d.pool.load(std::memory_order_relaxed), size, (cen_stream)stream,
                                &ptr);
    }
    if (C10_UNLIKELY(status != CEN_OK)) {
        fail(index, size, stream, status);
    }
    note_taken(ptr, std::move(block));
    report(ptr, (int64_t)size, index);
    if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
        (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, (uintptr_t)ptr);
    }
    return ptr;
}

c10::DataPtr Allocator::allocate(size_t size) {
    c10::DeviceIndex index = c10::cuda::current_device();
    void *ptr = take(size, index, c10::cuda::getCurrentCUDAStream(index));
    return {ptr, ptr, size ? delete_block : &c10::detail::deleteNothing,
            c10::Device(c10::DeviceType::CUDA, index)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const { return delete_block; }

void *Allocator::raw_alloc(size_t size) {
    c10::DeviceIndex index = c10::cuda::current_device();
    return take(size, index, c10::cuda::getCurrentCUDAStream(index));
}

void *Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
    return take(size, c10::cuda::current_device(), stream);
}

/* The block is forgotten before the pool has it back: from then on it may be another's. */
void Allocator::raw_delete(void *ptr) {
    if (!ptr || is_forked) {
        return;
    }
    Block block;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        auto at = blocks_.find(ptr);
        if (at == blocks_.end()) {
            lock.unlock();
            TORCH_CHECK(false, "cenote: invalid device pointer: ", ptr);
        }
        block = std::move(at->second);
        blocks_.erase(at);
        count(block.device, block.size, false);
        if (history_.load(std::memory_order_relaxed)) {
            const PrivatePool *pool = block.pool ? by_number(block.pool) : nullptr;
            record(caching::TraceEntry::FREE_REQUESTED, block.device, (size_t)ptr, block.size,
                   block.stream, pool, nullptr);
            record(caching::TraceEntry::FREE_COMPLETED, block.device, (size_t)ptr, block.size,
                   block.stream, pool, nullptr);
        }
    }
    if (options_.ledger) {
        (void)cen_ledger_remove(options_.ledger, CEN_LEDGER_BLOCK, (unsigned)block.device,
                                (uint64_t)ptr, nullptr); // not there: it was lost, and counted
    }
    if (const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace()) {
        (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, (uintptr_t)ptr);
    }
    if (block.is_native) {
        beside_->raw_delete(ptr);
        return;
    }
    cen_status status =
        cen_pool_free(devices_[block.device]->pool.load(), ptr, (cen_stream)block.stream);
    if (C10_UNLIKELY(status && status != CEN_ERR_DEVICE_LOST)) { // lost: the process is ending
        TORCH_WARN("cenote: free of ", ptr, ": ", last_error());
    }
    report(ptr, -(int64_t)block.size, block.device);
}

void Allocator::recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) {
    if (!ptr.get() || ptr.get_deleter() != delete_block) {
        return; // no block of ours: another library's memory
    }
    Block block;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto at = blocks_.find(ptr.get());
        TORCH_CHECK(at != blocks_.end(), "cenote: invalid device pointer: ", ptr.get());
        block = at->second;
    }
    if (block.is_native) {
        c10::DataPtr view(ptr.get(), ptr.get(), beside_->raw_deleter(), ptr.device());
        beside_->recordStream(view, stream);
        (void)view.release_context(); // a view: it frees nothing
    } else if (block.stream != stream.stream()) {
        cen_status status = cen_pool_use(devices_[block.device]->pool.load(), ptr.get(),
                                         (cen_stream)stream.stream());
        TORCH_CHECK(!status, "cenote: record_stream: ", last_error());
    }
}

double Allocator::getMemoryFraction(c10::DeviceIndex index) { return device_of(index).fraction; }

void Allocator::setMemoryFraction(double fraction, c10::DeviceIndex index) {
    TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction ", fraction,
                ": it must be between 0 and 1");
    Device &d = device_of(index);
    d.fraction = fraction;
    uint64_t bytes = (uint64_t)(fraction * (double)d.total);
    uint64_t limit = fraction < 1 ? (bytes ? bytes : 1) : options_.limit_bytes;
    TORCH_CHECK(!cen_pool_set_limit(d.pool.load(), limit), "cenote: ", last_error());
}

void Allocator::emptyCache(MempoolId_t id) {
    if (route_count_.load()) {
        return; // while a graph is captured nothing can be given back
    }
    for (auto &d : devices_) {
        if (cen_pool *pool = d->pool.load()) {
            cen_status status = cen_pool_trim(pool, 0, true, nullptr);
            TORCH_CHECK(!status || status == CEN_ERR_CAPTURE, "cenote: empty_cache: ",
                        last_error());
        }
    }
    beside_->emptyCache(id);
}

void Allocator::cacheInfo(c10::DeviceIndex index, size_t *largest) {
    Device &d = device_of(index);
    cen_pool_stats stats;
    TORCH_CHECK(!cen_pool_get_stats(d.pool.load(), &stats), "cenote: ", last_error());
    uint64_t free_bytes = 0, total = 0, room = 0;
    if (!cen_device_mem_info(d.device, &free_bytes, &total)) {
        uint64_t limit = d.fraction < 1 ? (uint64_t)(d.fraction * (double)total)
                                        : (options_.limit_bytes ? options_.limit_bytes : total);
        room = limit > stats.reserved_bytes ? limit - stats.reserved_bytes : 0;
        room = room < free_bytes ? room : free_bytes;
    }
    // Idle pages and new ones lie behind each other in one block, so both count.
    uint64_t idle = stats.reserved_bytes - stats.private_reserved_bytes;
    idle = idle > stats.allocated_bytes ? idle - stats.allocated_bytes : 0;
    *largest = std::max<uint64_t>(stats.largest_free_bytes, idle + room);
}

void *Allocator::getBaseAllocation(void *ptr, size_t *size) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = blocks_.find(ptr);
    TORCH_CHECK(at != blocks_.end(), "cenote: invalid device pointer: ", ptr);
    if (at->second.is_native) {
        return beside_->getBaseAllocation(ptr, size);
    }
    if (size) {
        *size = rounded(at->second.size);
    }
    return ptr;
}

native::ShareableHandle Allocator::shareIpcHandle(void *ptr) {
    bool is_native = false;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto at = blocks_.find(ptr);
        is_native = at != blocks_.end() && at->second.is_native;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_native, "cenote: a CUDA tensor cannot be sent to another process (shareIpcHandle): its "
                   "memory is mapped page by page, which CUDA IPC does not share. Call "
                   "cenote.torch.share_queues() before, or send it as a CPU tensor");
    return beside_->shareIpcHandle(ptr);
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
    return beside_->getIpcDevPtr(std::move(handle));
}

void Allocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
    beside_->enablePeerAccess(device, peer);
    Device &from = device_of(device), &to = device_of(peer);
    cen_status status = cen_pool_grant(to.pool.load(), from.device);
    TORCH_CHECK(!status, "cenote: device ", (int)device, " cannot be given access to ", (int)peer,
                ": ", last_error());
}

/* Mapped memory that was not opened to a peer is copied by the call that names both devices. */
cudaError_t Allocator::memcpyAsync(void *dst, int dst_device, const void *src, int src_device,
                                   size_t count, cudaStream_t stream, bool p2p) {
    if (p2p || dst_device == src_device) {
        return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
    }
    return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
}

} // namespace cenote
