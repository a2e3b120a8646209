/* What torch.cuda tells of memory: statistics, snapshots and their history, and why it ran out. */
#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>

namespace cenote {

namespace {

using Action = caching::TraceEntry::Action;

enum { READER_WAIT_MS = 2000 }; // for `cenote run` to read what is held when memory runs out

thread_local std::vector<std::string> compile_contexts;

std::string human(uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    char text[32];
    snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return text;
}

void set(caching::StatArray &stats, int64_t current, int64_t peak) {
    for (size_t i : {(size_t)0, (size_t)2}) {
        stats[i].current = current;
        stats[i].peak = peak;
    }
}

} // namespace

// ---- statistics ----

/* What the pool counts is filled in when it is asked for. cenote has no small and large pools: what
 * is held is counted with the large ones. */
caching::DeviceStats Allocator::getDeviceStats(c10::DeviceIndex index) {
    Device &d = device_of(index);
    cen_pool_stats p;
    TORCH_CHECK(!cen_pool_get_stats(d.pool.load(), &p), "cenote: ", last_error());
    std::lock_guard<std::mutex> lock(mutex_);
    caching::DeviceStats &s = d.stats;
    set(s.reserved_bytes, (int64_t)p.reserved_bytes, (int64_t)p.reserved_peak_bytes);
    for (size_t i : {(size_t)0, (size_t)2}) {
        if (p.reserved_bytes >= d.reserved_seen) {
            s.reserved_bytes[i].allocated += (int64_t)(p.reserved_bytes - d.reserved_seen);
        } else {
            s.reserved_bytes[i].freed += (int64_t)(d.reserved_seen - p.reserved_bytes);
        }
        s.segment[i].current = (int64_t)p.segments;
        s.segment[i].peak = std::max(s.segment[i].peak, s.segment[i].current);
    }
    d.reserved_seen = p.reserved_bytes;
    s.active = s.allocation;
    s.active_bytes = s.allocated_bytes;
    for (size_t i : {(size_t)0, (size_t)2}) {
        s.active[i].current += (int64_t)p.pending_blocks;
        s.active_bytes[i].current += (int64_t)p.pending_bytes;
        s.active[i].peak = std::max(s.active[i].peak, s.active[i].current);
        s.active_bytes[i].peak = std::max(s.active_bytes[i].peak, s.active_bytes[i].current);
    }
    int64_t idle = std::max<int64_t>((int64_t)p.reserved_bytes - s.active_bytes[0].current, 0);
    set(s.inactive_split_bytes, idle, std::max(idle, s.inactive_split_bytes[0].peak));
    s.num_alloc_retries = (int64_t)(p.retries - d.retries_before);
    s.num_ooms = (int64_t)(p.failures - d.failures_before);
    s.num_device_alloc = (int64_t)(p.driver_kind_calls[1] - d.creates_before);
    s.num_device_free = (int64_t)(p.driver_kind_calls[5] - d.releases_before);
    return s;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex index) {
    Device &d = device_of(index);
    cen_pool_stats p;
    TORCH_CHECK(!cen_pool_get_stats(d.pool.load(), &p), "cenote: ", last_error());
    std::lock_guard<std::mutex> lock(mutex_);
    caching::DeviceStats &s = d.stats;
    for (caching::StatArray *stats :
         {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes,
          &s.reserved_bytes, &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
        for (auto &stat : *stats) {
            stat.reset_accumulated();
        }
    }
    d.retries_before = p.retries;
    d.failures_before = p.failures;
    d.creates_before = p.driver_kind_calls[1];
    d.releases_before = p.driver_kind_calls[5];
}

void Allocator::resetPeakStats(c10::DeviceIndex index) {
    Device &d = device_of(index);
    TORCH_CHECK(!cen_pool_reset_peaks(d.pool.load()), "cenote: ", last_error());
    std::lock_guard<std::mutex> lock(mutex_);
    caching::DeviceStats &s = d.stats;
    for (caching::StatArray *stats :
         {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes,
          &s.reserved_bytes, &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
        for (auto &stat : *stats) {
            stat.reset_peak();
        }
    }
}

// ---- history ----

Context Allocator::context_for(native::RecordContext wanted) {
    native::CreateContextFn recorder = recorder_.load(std::memory_order_relaxed);
    return recorder && when_ >= wanted ? recorder() : nullptr;
}

/* mutex_ is held. */
void Allocator::record(Action action, c10::DeviceIndex index, size_t addr, size_t size,
                       cudaStream_t stream, const PrivatePool *pool, Context context) {
    if (skipped_.count((int)action)) {
        return;
    }
    Device &d = *devices_[index];
    caching::TraceEntry entry(action, index, addr, size, stream,
                              pool ? pool->id : MempoolId_t{0, 0}, c10::getApproximateTime(),
                              when_ >= native::RecordContext::ALLOC ? std::move(context) : nullptr,
                              compile_contexts.empty() ? "" : compile_contexts.back(), metadata_);
    for (const auto &tracker : trackers_) {
        tracker(entry);
    }
    if (d.history.size() < history_most_) {
        d.history.push_back(std::move(entry));
    } else {
        d.history[d.history_next++] = std::move(entry);
        d.history_next %= history_most_;
    }
}

bool Allocator::isHistoryEnabled() { return history_; }

void Allocator::recordHistory(bool enabled, native::CreateContextFn recorder, size_t max_entries,
                              native::RecordContext when, bool clear,
                              const std::vector<std::string> &skip_actions) {
    std::lock_guard<std::mutex> lock(mutex_);
    recorder_ = when == native::RecordContext::NEVER ? nullptr : recorder;
    when_ = when;
    skipped_.clear();
    for (const std::string &action : skip_actions) {
        skipped_.insert((int)caching::parseTraceEntryAction(action));
    }
    max_entries = std::max<size_t>(1, max_entries);
    if (!enabled || clear || max_entries != history_most_) {
        for (auto &d : devices_) {
            d->history.clear();
            d->history_next = 0;
        }
        annotations_.clear();
    }
    history_most_ = max_entries;
    history_ = enabled;
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &data) {
    if (!history_) {
        return;
    }
    caching::AnnotationEntry entry(c10::cuda::current_device(), c10::getApproximateTime());
    for (const auto &pair : data) {
        entry.recordUserMetadata(pair.first, pair.second);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    annotations_.push_back(std::move(entry));
}

void Allocator::pushCompileContext(std::string &data) { compile_contexts.push_back(data); }

void Allocator::popCompileContext() {
    if (!compile_contexts.empty()) {
        compile_contexts.pop_back();
    }
}

void Allocator::setUserMetadata(const std::string &data) {
    std::lock_guard<std::mutex> lock(mutex_);
    metadata_ = data;
}

std::string Allocator::getUserMetadata() {
    std::lock_guard<std::mutex> lock(mutex_);
    return metadata_;
}

void Allocator::attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) {
    std::lock_guard<std::mutex> lock(mutex_);
    observers_.push_back(std::move(observer));
}

void Allocator::attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> lock(mutex_);
    trackers_.push_back(std::move(tracker));
}

// ---- snapshot ----

namespace {

bool collect(void *arg, const cen_pool_block_info *info) {
    static_cast<std::vector<cen_pool_block_info> *>(arg)->push_back(*info);
    return true;
}

std::vector<cen_pool_block_info> walk(cen_pool *pool) {
    std::vector<cen_pool_block_info> blocks;
    TORCH_CHECK(!cen_pool_walk(pool, collect, &blocks), "cenote: ", last_error());
    return blocks;
}

bool begins_segment(const cen_pool_block_info *last, const cen_pool_block_info &b) {
    return !last || last->addr + last->bytes != b.addr || last->private_id != b.private_id;
}

} // namespace

/* A segment is a run of blocks side by side of one mempool. */
native::SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces) {
    native::SnapshotInfo result;
    result.config_metadata = {};
    bool all = id == MempoolId_t{0, 0};
    for (size_t i = 0; i < devices_.size(); i++) {
        cen_pool *pool = devices_[i]->pool.load();
        std::vector<cen_pool_block_info> blocks;
        if (pool) {
            blocks = walk(pool);
        }
        std::lock_guard<std::mutex> lock(mutex_);
        const cen_pool_block_info *last = nullptr;
        bool wanted = false;
        for (const auto &b : blocks) {
            if (begins_segment(last, b)) {
                const PrivatePool *owner = b.private_id ? by_number(b.private_id) : nullptr;
                wanted = all || (owner && owner->id == id);
                if (wanted) {
                    result.segments.emplace_back();
                    auto &s = result.segments.back();
                    s.device = (c10::DeviceIndex)i;
                    s.address = b.addr;
                    s.is_large = true;
                    s.is_expandable = true;
                    s.stream = (void *)b.stream;
                    s.owner_private_pool_id = owner ? owner->id : MempoolId_t{0, 0};
                }
            }
            last = &b;
            if (!wanted) {
                continue;
            }
            auto &s = result.segments.back();
            s.blocks.emplace_back();
            auto &out = s.blocks.back();
            out.size = b.bytes;
            out.allocated = b.state == CEN_POOL_LIVE;
            out.active = out.allocated || b.state == CEN_POOL_PENDING;
            out.requested_size = out.active ? b.requested_bytes : 0;
            auto known = blocks_.find((void *)b.addr);
            if (known != blocks_.end() && out.allocated) {
                out.context_when_allocated = known->second.context;
            }
            s.total_size += b.bytes;
            s.allocated_size += out.allocated ? b.bytes : 0;
            s.active_size += out.active ? b.bytes : 0;
            s.requested_size += out.requested_size;
        }
        result.device_traces.emplace_back();
        if (include_traces) {
            const Device &d = *devices_[i];
            auto &trace = result.device_traces.back();
            trace.insert(trace.end(), d.history.begin() + (ptrdiff_t)d.history_next,
                         d.history.end());
            trace.insert(trace.end(), d.history.begin(),
                         d.history.begin() + (ptrdiff_t)d.history_next);
        }
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        result.external_annotations = annotations_;
    }
    // The times of entries are counter values until now.
    c10::ApproximateClockToUnixTimeConverter clock;
    auto convert = clock.makeConverter();
    for (auto &trace : result.device_traces) {
        for (auto &entry : trace) {
            entry.time_.t_ = convert(entry.time_.approx_t_) / 1000;
        }
    }
    for (auto &entry : result.external_annotations) {
        entry.time_.t_ = convert(entry.time_.approx_t_) / 1000;
    }
    native::SnapshotInfo beside = beside_->snapshot(id, include_traces);
    for (auto &s : beside.segments) { // of mempools with an allocator of their own
        result.segments.push_back(std::move(s));
    }
    return result;
}

// ---- failure ----

/* What the pool holds, as it is when memory ran out: the ledger knows blocks only until then. */
void Allocator::note_segments(c10::DeviceIndex index, bool there) {
    std::vector<cen_pool_block_info> segments;
    const cen_pool_block_info *last = nullptr;
    const std::vector<cen_pool_block_info> blocks = walk(devices_[index]->pool.load());
    for (const auto &b : blocks) {
        if (begins_segment(last, b)) {
            segments.push_back(b);
        } else {
            segments.back().bytes += b.bytes;
        }
        last = &b;
    }
    for (const auto &s : segments) {
        if (!there) {
            (void)cen_ledger_remove(options_.ledger, CEN_LEDGER_SEGMENT, (unsigned)index, s.addr,
                                    nullptr); // one that changed meanwhile stays until the next time
            continue;
        }
        cen_ledger_entry entry = {};
        entry.key = s.addr;
        entry.bytes = s.bytes;
        entry.stream = s.stream;
        entry.stack = CEN_LEDGER_NO_STACK;
        entry.device = (uint16_t)index;
        entry.kind = CEN_LEDGER_SEGMENT;
        (void)cen_ledger_add(options_.ledger, &entry); // one that is lost is counted there
    }
}

/* The words of `cenote explain` on what is held now; "" if they cannot be had. */
std::string Allocator::explanation(c10::DeviceIndex index) {
    Device &d = *devices_[index];
    std::string text;
    cen_ledger_view *view = nullptr;
    cen_snapshot *snapshot = nullptr;
    cen_explanation *explanation = nullptr;
    char *words = nullptr;
    cen_explain_options options = {};
    options.size = sizeof options;
    options.name = "cenote.torch";
    options.device_total_bytes = d.total;
    options.cap_bytes =
        d.fraction < 1 ? (uint64_t)(d.fraction * (double)d.total) : options_.limit_bytes;
    if (!cen_ledger_look(options_.ledger, &view) && !cen_ledger_view_snapshot(view, &snapshot) &&
        !cen_explain(snapshot, &options, &explanation) && !cen_explain_text(explanation, &words)) {
        text = words;
    }
    free(words);
    cen_explanation_free(explanation);
    cen_snapshot_free(snapshot);
    cen_ledger_view_free(view);
    return text;
}

void Allocator::fail(c10::DeviceIndex index, size_t size, cudaStream_t stream, cen_status status) {
    std::string reason = last_error();
    TORCH_CHECK(status == CEN_ERR_DEVICE_MEMORY, "cenote: allocating ", human(size),
                " on device ", (int)index, ": ", reason);
    Device &d = device_of(index);
    cen_pool_failure f = {};
    (void)cen_pool_last_failure(d.pool.load(), &f); // zeros if there is none
    std::string why;
    if (options_.ledger) {
        note_segments(index, true);
        (void)cen_ledger_failed(options_.ledger, (unsigned)index, size, f.device_free_bytes,
                                (uint64_t)stream, cen_ledger_stack_here(options_.ledger, 0),
                                READER_WAIT_MS); // kept for readers; the error below says it too
        why = explanation(index);
        note_segments(index, false);
    }
    std::vector<native::OutOfMemoryObserver> observers;
    Context context = context_for(native::RecordContext::STATE);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        observers = observers_;
        if (history_) {
            record(Action::OOM, index, f.device_free_bytes, size, stream, nullptr, context);
        }
    }
    uint64_t limit = f.limit_bytes == UINT64_MAX ? 0 : f.limit_bytes;
    c10::reportOutOfMemoryToProfiler((int64_t)size, f.live_bytes, f.reserved_bytes,
                                     c10::Device(c10::DeviceType::CUDA, index));
    for (const auto &observer : observers) {
        observer(index, size, limit ? limit : d.total, f.device_free_bytes);
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", human(size), ". GPU ",
        (int)index, ": ", human(d.total), " in all, ", human(f.device_free_bytes), " free. ",
        limit ? human(limit) + " allowed. " : "", human(f.live_bytes), " live, ",
        human(f.reserved_bytes), " held; ", human(f.stranded_private_bytes),
        " of that free in graphs' pools, ", human(f.pending_bytes), " freed but still in use.",
        why.empty() ? "" : "\n", why);
}

} // namespace cenote
