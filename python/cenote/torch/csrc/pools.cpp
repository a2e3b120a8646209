/* Mempools: private pools of cenote's, for graphs that are captured and for whoever asks for one.
 *
 * torch says with a filter which streams' allocations go to a mempool. A graph's capture begins
 * with a stream that does not capture yet, so its filter does not hold then: that stream and those
 * that join it are told to the pool until the end. Any other filter is by thread or stream, and its
 * allocations are bracketed one by one. */
#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>

namespace cenote {

namespace {

struct State final : native::AllocatorState {
    MempoolId_t id;
    std::vector<std::pair<void *, Block>> blocks;
};

bool captures(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

} // namespace

PrivatePool *Allocator::find_private(c10::DeviceIndex device, MempoolId_t id) {
    for (auto &p : privates_) {
        if (p->device == device && p->id == id) {
            return p.get();
        }
    }
    return nullptr;
}

PrivatePool &Allocator::private_pool(c10::DeviceIndex device, MempoolId_t id) {
    PrivatePool *pool = find_private(device, id);
    if (!pool) {
        privates_.push_back(std::make_unique<PrivatePool>());
        pool = privates_.back().get();
        pool->device = device;
        pool->id = id;
        pool->number = next_private_++;
    }
    return *pool;
}

const PrivatePool *Allocator::by_number(uint64_t number) const {
    for (const auto &p : privates_) {
        if (p->number == number) {
            return p.get();
        }
    }
    return nullptr;
}

void Allocator::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id,
                                   std::shared_ptr<native::CUDAAllocator> allocator) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool &pool = private_pool(device, id);
    // An allocator that came with the pool; this one itself is no other.
    pool.is_native = pool.is_native || (allocator && allocator.get() != this);
    pool.uses++;
    if (pool.is_native) {
        beside_->createOrIncrefPool(device, id, std::move(allocator));
    }
}

void Allocator::beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id,
                                    std::function<bool(cudaStream_t)> filter) {
    cen_pool *pool = pool_of(device);
    cudaStream_t current = c10::cuda::getCurrentCUDAStream(device);
    bool by_capture = !filter(current);
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool &p = private_pool(device, id);
    p.uses++;
    Route route = {&p, std::move(filter), {}};
    if (p.is_native) {
        beside_->beginAllocateToPool(device, id, route.filter);
    } else if (by_capture) {
        cen_status status = cen_pool_capture_begin(pool, (cen_stream)current, p.number);
        TORCH_CHECK(!status, "cenote: ", last_error());
        p.is_known = true;
        route.bound.push_back(current);
    }
    routes_.push_back(std::move(route));
    route_count_.store((int)routes_.size(), std::memory_order_release);
}

void Allocator::endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = routes_.begin();
    while (at != routes_.end() && !(at->pool->device == device && at->pool->id == id)) {
        ++at;
    }
    TORCH_CHECK(at != routes_.end(), "cenote: endAllocateToPool: nothing allocates to the pool");
    if (at->pool->is_native) {
        beside_->endAllocateToPool(device, id);
    }
    std::vector<cudaStream_t> bound = std::move(at->bound);
    routes_.erase(at);
    route_count_.store((int)routes_.size(), std::memory_order_release);
    for (cudaStream_t stream : bound) {
        cen_status status =
            cen_pool_capture_end(devices_[device]->pool.load(), (cen_stream)stream);
        TORCH_CHECK(!status, "cenote: ", last_error());
    }
}

cen_status Allocator::take_private(PrivatePool &p, Route &route, size_t size, cudaStream_t stream,
                                   void **ptr) {
    cen_pool *pool = devices_[p.device]->pool.load();
    cen_stream s = (cen_stream)stream;
    if (std::find(route.bound.begin(), route.bound.end(), stream) != route.bound.end()) {
        return cen_pool_alloc(pool, size, s, ptr);
    }
    cen_status status = cen_pool_capture_begin(pool, s, p.number);
    if (status) {
        return status;
    }
    p.is_known = true;
    if (captures(stream)) { // it joined the capture: its end is the route's
        route.bound.push_back(stream);
        return cen_pool_alloc(pool, size, s, ptr);
    }
    status = cen_pool_alloc(pool, size, s, ptr);
    cen_status ended = cen_pool_capture_end(pool, s);
    return status ? status : ended;
}

bool Allocator::take_routed(size_t size, c10::DeviceIndex device, cudaStream_t stream,
                            Block *block, void **ptr, cen_status *status) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (Route &route : routes_) {
        if (route.pool->device != device || !route.filter(stream)) {
            continue;
        }
        block->pool = route.pool->number;
        block->is_native = route.pool->is_native;
        if (block->is_native) {
            lock.unlock(); // torch's own throws what it has to say
            *ptr = beside_->raw_alloc_with_stream(size, stream);
            *status = CEN_OK;
        } else {
            *status = take_private(*route.pool, route, size, stream, ptr);
        }
        return true;
    }
    return false;
}

void Allocator::releasePool(c10::DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    if (!pool) {
        return;
    }
    pool->uses--;
    if (pool->is_native) {
        beside_->releasePool(device, id);
    }
    if (pool->uses > 0) {
        return;
    }
    if (pool->is_known) {
        cen_status status =
            cen_pool_capture_release(devices_[device]->pool.load(), pool->number);
        TORCH_CHECK(!status, "cenote: ", last_error());
    }
    // Its live blocks are ordinary ones from now on, save those of torch's own allocator.
    for (auto &b : blocks_) {
        if (b.second.pool == pool->number) {
            b.second.pool = 0;
        }
    }
    privates_.erase(std::find_if(privates_.begin(), privates_.end(),
                                 [&](const auto &p) { return p.get() == pool; }));
}

int Allocator::getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    return pool ? pool->uses : 0;
}

void Allocator::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    if (pool && pool->is_native) {
        beside_->setUseOnOOM(device, id, use);
        return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!use, "cenote: MemPool(use_on_oom=True) is not supported: release "
                                      "the pool to let others have its memory");
}

/* Blocks of a private pool are split as they are needed and never handed out with a rest. */
void Allocator::setNoSplit(c10::DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    if (pool && pool->is_native) {
        beside_->setNoSplit(device, id);
    }
}

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void *> &expected) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    TORCH_CHECK(pool, "cenote: checkPoolLiveAllocations: no such mempool");
    if (pool->is_native) {
        return beside_->checkPoolLiveAllocations(device, id, expected);
    }
    size_t live = 0;
    for (const auto &b : blocks_) {
        if (b.second.pool == pool->number) {
            if (!expected.count(b.first)) {
                return false;
            }
            live++;
        }
    }
    return live == expected.size();
}

std::shared_ptr<native::AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex device,
                                                                      MempoolId_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    PrivatePool *pool = find_private(device, id);
    TORCH_CHECK(pool, "cenote: getCheckpointState: no such mempool");
    if (pool->is_native) {
        return beside_->getCheckpointState(device, id);
    }
    auto state = std::make_shared<State>();
    state->id = id;
    for (const auto &b : blocks_) {
        if (b.second.pool == pool->number) {
            state->blocks.emplace_back(b.first, b.second);
        }
    }
    return state;
}

/* Blocks that are live now and were then stay as they are, and are told as both: what holds them
 * lets go without freeing, and what the graph knows takes hold. */
native::CheckpointDelta
Allocator::setCheckpointPoolState(c10::DeviceIndex device,
                                  std::shared_ptr<native::AllocatorState> given) {
    auto *state = dynamic_cast<State *>(given.get());
    if (!state) {
        return beside_->setCheckpointPoolState(device, std::move(given));
    }
    native::CheckpointDelta delta;
    std::vector<std::pair<void *, Block>> gone, wanted;
    uint64_t number;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        PrivatePool *pool = find_private(device, state->id);
        TORCH_CHECK(pool, "cenote: setCheckpointPoolState: no such mempool");
        number = pool->number;
        for (const auto &b : blocks_) {
            if (b.second.pool == number) {
                delta.ptrs_freed.push_back(b.first);
                gone.emplace_back(b.first, b.second);
            }
        }
    }
    for (const auto &b : state->blocks) {
        auto same = std::find_if(gone.begin(), gone.end(), [&](const auto &g) {
            return g.first == b.first && g.second.size == b.second.size &&
                   g.second.stream == b.second.stream;
        });
        if (same == gone.end()) {
            wanted.push_back(b);
        } else {
            gone.erase(same);
        }
    }
    for (const auto &b : gone) {
        raw_delete(b.first);
    }
    for (const auto &b : wanted) {
        cen_status status =
            cen_pool_alloc_at(devices_[device]->pool.load(), number, b.first, b.second.size,
                              (cen_stream)b.second.stream);
        TORCH_CHECK(!status, "cenote: the graph's memory cannot be had again: ", last_error());
        Block block = b.second;
        block.pool = number;
        note_taken(b.first, std::move(block));
    }
    for (const auto &b : state->blocks) {
        delta.dataptrs_allocd.emplace_back(b.first, b.first, raw_deleter(),
                                           c10::Device(c10::DeviceType::CUDA, device));
    }
    return delta;
}

} // namespace cenote
