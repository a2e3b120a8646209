/* torch's allocator interface over cenote's pools, one a device.
 *
 * Derived from torch's pluggable allocator, so that what is not served here fails by name as torch
 * says it, and installed as torch's current allocator. Blocks are noted here with what torch asks
 * about them (size, stream, mempool, the context of the allocation); where they lie is the pool's.
 *
 * Memory pools that bring an allocator of their own (torch.cuda.MemPool(allocator)) are left to
 * torch's caching allocator, which stays beside this one for them. Nothing here is ever destroyed:
 * tensors may outlive every static object. In a forked child frees do nothing. */
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include "cenote/cenote.h"

namespace cenote {

namespace caching = c10::CachingDeviceAllocator;
namespace native = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;
using Context = std::shared_ptr<c10::GatheredContext>;

struct Block {
    size_t size;
    cudaStream_t stream;
    uint64_t pool; // the pool's private id; 0: the shared pool
    c10::DeviceIndex device;
    bool is_native; // torch's own allocator made it
    Context context;
};

// A mempool of torch's on a device, as begun, created or captured into.
struct PrivatePool {
    c10::DeviceIndex device;
    MempoolId_t id;
    uint64_t number; // the pool's private id
    int uses = 0;
    bool is_native = false;
    bool is_known = false; // to cenote's pool: something was allocated in it
};

// Allocations that go to a mempool for now: those for which the filter holds.
struct Route {
    PrivatePool *pool;
    std::function<bool(cudaStream_t)> filter;
    std::vector<cudaStream_t> bound; // streams that a graph captures, told to the pool
};

struct Device {
    std::mutex opening;
    std::atomic<cen_pool *> pool{nullptr};
    cen_device *device = nullptr;
    uint64_t total = 0;
    double fraction = 1.0;
    caching::DeviceStats stats; // but for what the pool counts
    std::vector<caching::TraceEntry> history;
    size_t history_next = 0;
    uint64_t reserved_seen = 0;
    uint64_t retries_before = 0, failures_before = 0, creates_before = 0, releases_before = 0;
};

struct Options {
    uint64_t limit_bytes = 0;      // of each device; 0: none
    uint64_t stack_min_bytes = 0;  // blocks from this size on are noted with a stack
    cen_ledger *ledger = nullptr;
};

class Allocator final : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
  public:
    Allocator(native::CUDAAllocator *beside, const Options &options);

    // allocator.cpp: blocks
    c10::DataPtr allocate(size_t size) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void *raw_alloc(size_t size) override;
    void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
    void raw_delete(void *ptr) override;
    void init(int device_count) override;
    bool initialized() override;
    double getMemoryFraction(c10::DeviceIndex device) override;
    void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
    void emptyCache(MempoolId_t id) override;
    void cacheInfo(c10::DeviceIndex device, size_t *largest) override;
    void *getBaseAllocation(void *ptr, size_t *size) override;
    void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override;
    native::ShareableHandle shareIpcHandle(void *ptr) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
    cudaError_t memcpyAsync(void *dst, int dst_device, const void *src, int src_device,
                            size_t count, cudaStream_t stream, bool p2p) override;
    std::string name() override;

    // pools.cpp: mempools, captures, checkpoints
    void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id,
                             std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override;
    void releasePool(c10::DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override;
    void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<native::CUDAAllocator> allocator) override;
    void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use) override;
    void setNoSplit(c10::DeviceIndex device, MempoolId_t id) override;
    bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override;
    std::shared_ptr<native::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                               MempoolId_t id) override;
    native::CheckpointDelta
    setCheckpointPoolState(c10::DeviceIndex device,
                           std::shared_ptr<native::AllocatorState> state) override;

    // report.cpp: what torch.cuda tells of memory
    caching::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
    void resetAccumulatedStats(c10::DeviceIndex device) override;
    void resetPeakStats(c10::DeviceIndex device) override;
    native::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
    bool isHistoryEnabled() override;
    void recordHistory(bool enabled, native::CreateContextFn recorder, size_t max_entries,
                       native::RecordContext when, bool clear,
                       const std::vector<std::string> &skip_actions) override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &data) override;
    void pushCompileContext(std::string &data) override;
    void popCompileContext() override;
    void setUserMetadata(const std::string &data) override;
    std::string getUserMetadata() override;
    void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override;
    void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override;

    // For module.cpp.
    cen_pool *pool_of(c10::DeviceIndex device);
    cen_ledger *ledger() const { return options_.ledger; }
    static void forked();

  private:
    Device &device_of(c10::DeviceIndex device);
    void *take(size_t size, c10::DeviceIndex device, cudaStream_t stream);
    // Allocates where the route says; NULL: no route holds.
    bool take_routed(size_t size, c10::DeviceIndex device, cudaStream_t stream, Block *block,
                     void **ptr, cen_status *status);
    cen_status take_private(PrivatePool &pool, Route &route, size_t size, cudaStream_t stream,
                            void **ptr);
    PrivatePool &private_pool(c10::DeviceIndex device, MempoolId_t id);
    PrivatePool *find_private(c10::DeviceIndex device, MempoolId_t id);
    void note_taken(void *ptr, Block block);
    [[noreturn]] void fail(c10::DeviceIndex device, size_t size, cudaStream_t stream,
                           cen_status status);
    void note_segments(c10::DeviceIndex device, bool there);
    std::string explanation(c10::DeviceIndex device);
    Context context_for(native::RecordContext wanted);
    void record(caching::TraceEntry::Action action, c10::DeviceIndex device, size_t addr,
                size_t size, cudaStream_t stream, const PrivatePool *pool, Context context);
    const PrivatePool *by_number(uint64_t number) const; // mutex_ is held
    void count(c10::DeviceIndex device, size_t size, bool taken);
    void report(void *ptr, int64_t size, c10::DeviceIndex device);

    native::CUDAAllocator *beside_; // torch's own
    Options options_;
    std::vector<std::unique_ptr<Device>> devices_;
    std::atomic<bool> initialized_here_{false};

    std::mutex mutex_; // guards all below, and each device's stats and history
    ska::flat_hash_map<void *, Block> blocks_;
    std::vector<std::unique_ptr<PrivatePool>> privates_;
    std::vector<Route> routes_;
    std::atomic<int> route_count_{0};
    std::vector<native::OutOfMemoryObserver> observers_;
    std::vector<native::AllocatorTraceTracker> trackers_;
    std::vector<caching::AnnotationEntry> annotations_;
    uint64_t next_private_ = 1;

    std::atomic<bool> history_{false};
    std::atomic<native::CreateContextFn> recorder_{nullptr};
    native::RecordContext when_ = native::RecordContext::NEVER;
    size_t history_most_ = 1;
    std::unordered_set<int> skipped_;
    std::string metadata_;
};

extern Allocator *installed;

// Bytes as torch counts a block.
inline size_t rounded(size_t size) { return (size + CEN_POOL_ALIGNMENT - 1) & ~(size_t)(CEN_POOL_ALIGNMENT - 1); }

// The last line that the library logged as an error on this thread.
std::string last_error();

} // namespace cenote
