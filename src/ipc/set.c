/* Sets: pages side by side, and the blocks in them. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ipc/client_int.h"

/* Of a page whose size nobody chose. Every page costs each reader an import; a larger one is harder
 * to find room for. */
#define PAGE_MAX ((uint64_t)1 << 30)

/* ---- blocks; `lock` is held ---- */

void ceni_block_settle(ceni_block *block) {
    if (block->freed && block->work_done && !block->holds && !block->pins && !block->quarantined) {
        ceni_ranges_give(&block->set->ranges, block->range);
        ceni_free(block);
    }
}

static void block_work_done(cen_share *share, ceni_work *work) {
    ceni_block *block = (ceni_block *)work; /* its first member */
    block->work_done = true;
    ceni_block_settle(block);
}

static ceni_block *block_at(const cen_share_set *set, cen_addr addr) {
    ceni_range *range = addr < set->addr ? NULL : ceni_ranges_at(&set->ranges, addr - set->addr);
    return range && range->used ? range->owner : NULL;
}

ceni_block *ceni_block_find(cen_share *share, cen_addr addr, uint64_t bytes) {
    for (const cen_share_set *set = share->sets; set; set = set->next) {
        if (addr >= set->addr && addr - set->addr < set->bytes) {
            ceni_block *block = block_at(set, addr);
            uint64_t at = block ? addr - set->addr - block->range->offset : 0;
            return block && !block->freed && bytes <= block->range->size - at ? block : NULL;
        }
    }
    return NULL;
}

cen_status cen_share_alloc(cen_share_set *set, uint64_t bytes, cen_addr *addr) {
    cen_status status = set ? ceni_share_check(set->share, "alloc")
                            : ceni_fail(CEN_ERR_INVALID, "alloc: set is NULL");
    if (!status && (!bytes || !addr)) {
        status = ceni_fail(CEN_ERR_INVALID, "alloc: %s", addr ? "bytes is 0" : "addr is NULL");
    }
    if (status) {
        return status;
    }
    ceni_block *block = ceni_calloc(1, sizeof *block);
    if (!block) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "alloc: out of host memory");
    }
    bool no_memory;
    pthread_mutex_lock(&set->share->lock);
    ceni_range *range = ceni_ranges_take(&set->ranges, bytes, &no_memory);
    if (!range && !no_memory && set->share->works) {
        ceni_share_poll(set->share, false);
        range = ceni_ranges_take(&set->ranges, bytes, &no_memory);
    }
    if (range) {
        block->set = set;
        block->range = range;
        block->work.done = block_work_done;
        range->owner = block;
        *addr = set->addr + range->offset;
    } else {
        status = no_memory ? ceni_fail(CEN_ERR_HOST_MEMORY, "alloc: out of host memory")
                           : ceni_fail(CEN_ERR_DEVICE_MEMORY,
                                       "alloc: %" PRIu64 " bytes asked of a set of %" PRIu64
                                       ", of which %" PRIu64 " are free, at most %" PRIu64
                                       " of them side by side",
                                       bytes, set->bytes, set->bytes - set->ranges.used,
                                       ceni_ranges_largest(&set->ranges));
        ceni_free(block);
    }
    pthread_mutex_unlock(&set->share->lock);
    return status;
}

/* The exports that hold the block are withdrawn, but for parcels, which stay until they are opened.
 */
static void free_block(cen_share *share, ceni_block *block, const ceni_work *work) {
    block->freed = true;
    block->work.device = work->device;
    block->work.event = work->event;
    for (ceni_hold *h = block->holds, *next; h; h = next) {
        next = h->next;
        if (!(h->export->flags & CENI_WIRE_ONCE)) {
            ceni_offer_withdrawn(h->export);
        }
    }
    ceni_work_queue(share, &block->work);
}

static cen_status find_freeable(const cen_share_set *set, cen_addr addr, ceni_block **block) {
    ceni_block *found = block_at(set, addr);
    if (!found || set->addr + found->range->offset != addr) {
        return ceni_fail(CEN_ERR_FOREIGN_POINTER, "free: %#" PRIx64 " is no block of the set",
                         addr);
    }
    if (found->freed) {
        return ceni_fail(CEN_ERR_DOUBLE_FREE, "free: %#" PRIx64 " was freed already", addr);
    }
    *block = found;
    return CEN_OK;
}

cen_status cen_share_free(cen_share_set *set, cen_addr addr, cen_stream stream) {
    cen_status status = set ? ceni_share_check(set->share, "free")
                            : ceni_fail(CEN_ERR_INVALID, "free: set is NULL");
    if (status) {
        return status;
    }
    cen_share *share = set->share;
    ceni_work work = {0};
    ceni_block *block;
    pthread_mutex_lock(&share->lock);
    status = find_freeable(set, addr, &block);
    status = status ? status : ceni_work_begin(&work, "free", set->device, stream);
    if (!status) {
        free_block(share, block, &work);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

/* ---- sets ---- */

static cen_status check_device(cen_device *device, cen_device_props *props) {
    cen_status status = cen_device_get_props(device, props);
    if (!status && !(props->vmm && props->export_fd)) {
        status =
            ceni_fail(CEN_ERR_UNSUPPORTED,
                      "set_create: pages of %s cannot be exported (%s); share a copy through "
                      "the host, or memory of cudaMalloc with cen_share_legacy_export",
                      props->uuid,
                      props->vmm ? "no file descriptors for them" : "no virtual memory management");
    }
    return status;
}

static cen_status measure(cen_share_set *set, uint64_t bytes, uint64_t page_bytes) {
    uint64_t granule = set->device->granularity, most = UINT64_MAX - granule;
    if (!bytes || bytes > most || page_bytes > most) {
        return ceni_fail(CEN_ERR_INVALID, "set_create: %" PRIu64 " bytes in pages of %" PRIu64,
                         bytes, page_bytes);
    }
    set->bytes = (bytes + granule - 1) / granule * granule;
    page_bytes = page_bytes ? page_bytes : set->bytes < PAGE_MAX ? set->bytes : PAGE_MAX;
    set->page_bytes = (page_bytes + granule - 1) / granule * granule;
    uint64_t count = (set->bytes - 1) / set->page_bytes + 1;
    if (count > CENI_WIRE_PAGES_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "set_create: %" PRIu64 " pages: at most %d make a set; use larger ones",
                         count, CENI_WIRE_PAGES_MAX);
    }
    set->page_count = (uint32_t)count;
    return CEN_OK;
}

uint64_t ceni_set_page_size(uint64_t bytes, uint64_t page_bytes, uint32_t page) {
    uint64_t at = page * page_bytes;
    return bytes - at < page_bytes ? bytes - at : page_bytes;
}

static uint64_t page_size(const cen_share_set *set, uint32_t page) {
    return ceni_set_page_size(set->bytes, set->page_bytes, page);
}

/* Unmaps and releases the first `count` pages, and the range. A failure here is of a device that is
 * lost, and logged. */
static void drop_pages(cen_share_set *set, uint32_t count) {
    if (count) {
        uint64_t bytes = (count - 1) * set->page_bytes + page_size(set, count - 1);
        (void)ceni_dev_page_unmap(set->device, set->addr, bytes, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)ceni_dev_page_release(set->device, set->pages[i]);
    }
    (void)ceni_dev_va_free(set->device, set->addr, set->bytes);
}

static cen_status make_pages(cen_share_set *set) {
    cen_status status = ceni_dev_va_reserve(set->device, set->bytes, 0, &set->addr);
    if (status) {
        return status;
    }
    uint32_t made = 0;
    while (!status && made < set->page_count) {
        uint64_t size = page_size(set, made);
        status = ceni_dev_page_create(set->device, size, CENI_PAGE_EXPORTABLE, &set->pages[made]);
        if (!status) {
            status = ceni_dev_page_map(set->device, set->addr + made * set->page_bytes, size,
                                       set->pages[made]);
            if (status) {
                (void)ceni_dev_page_release(set->device, set->pages[made]);
            } else {
                made++;
            }
        }
    }
    ceni_grant grant = {set->device, CENI_ACCESS_READ_WRITE};
    status =
        status ? status : ceni_dev_page_access(set->device, set->addr, set->bytes, made, &grant, 1);
    if (status) {
        drop_pages(set, made);
    }
    return status;
}

static cen_status fill_set(cen_share_set *set) {
    set->pages = ceni_malloc(set->page_count * sizeof *set->pages);
    set->drop = ceni_calloc(1, sizeof *set->drop);
    if (!set->pages || !set->drop || ceni_ranges_open(&set->ranges, set->bytes)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "set_create: out of host memory");
    }
    set->drop->type = CENI_WIRE_DROP;
    return make_pages(set);
}

cen_status cen_share_set_create(cen_share *share, cen_device *device, uint64_t bytes,
                                uint64_t page_bytes, cen_share_set **out) {
    cen_device_props props;
    cen_status status = ceni_share_check(share, "set_create");
    if (!status && !out) {
        status = ceni_fail(CEN_ERR_INVALID, "set_create: set is NULL");
    }
    status = status ? status : check_device(device, &props);
    if (status) {
        return status;
    }
    cen_share_set *set = ceni_calloc(1, sizeof *set);
    if (!set) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "set_create: out of host memory");
    }
    set->share = share;
    set->device = device;
    memcpy(set->uuid, props.uuid, sizeof set->uuid);
    status = measure(set, bytes, page_bytes);
    status = status ? status : fill_set(set);
    if (status) {
        ceni_ranges_close(&set->ranges);
        ceni_free(set->pages);
        ceni_free(set->drop);
        ceni_free(set);
        return status;
    }
    pthread_mutex_lock(&share->lock);
    set->next = share->sets;
    if (set->next) {
        set->next->before = set;
    }
    share->sets = set;
    pthread_mutex_unlock(&share->lock);
    *out = set;
    return CEN_OK;
}

/* The blocks go with their set; what they wait for is waited for no more. */
static void free_blocks(cen_share_set *set) {
    for (ceni_range *r = ceni_ranges_at(&set->ranges, 0); r; r = r->after) {
        ceni_block *block = r->owner;
        if (!r->used || !block) {
            continue;
        }
        for (ceni_work **link = &set->share->works; *link; link = &(*link)->next) {
            if (*link == &block->work) {
                *link = block->work.next;
                break;
            }
        }
        if (block->work.event) {
            (void)cen_event_destroy(set->device, block->work.event);
        }
        ceni_free(block);
    }
}

void ceni_share_set_free(cen_share_set *set) {
    if (set->before) {
        set->before->next = set->next;
    } else {
        set->share->sets = set->next;
    }
    if (set->next) {
        set->next->before = set->before;
    }
    free_blocks(set);
    ceni_ranges_close(&set->ranges);
    drop_pages(set, set->page_count);
    ceni_free(set->pages);
    ceni_free(set->drop);
    ceni_free(set);
}

/* Leases given over sockets of its exports are let go of: their receivers have pages of their own.
 */
static void drop_directs(cen_share *share, const cen_share_set *set) {
    for (ceni_direct **link = &share->directs; *link;) {
        ceni_direct *direct = *link;
        if (direct->export->set == set) {
            *link = direct->next;
            close(direct->fd);
            ceni_free(direct);
        } else {
            link = &direct->next;
        }
    }
}

cen_status cen_share_set_destroy(cen_share_set *set) {
    cen_status status = set ? ceni_share_check(set->share, "set_destroy") : CEN_OK;
    if (status || !set) {
        return status;
    }
    cen_share *share = set->share;
    ceni_turn_take(&share->wire);
    ceni_offers_settle(share, set);
    pthread_mutex_lock(&share->lock);
    drop_directs(share, set);
    while (set->exports) {
        ceni_offer_free(share, set->exports);
    }
    if (set->id && !share->options.no_broker) {
        set->drop->id = set->id;
        ceni_share_tell_later(share, &set->drop);
    }
    ceni_share_set_free(set);
    pthread_mutex_unlock(&share->lock);
    ceni_client_flush(share);
    ceni_turn_give(&share->wire);
    return CEN_OK;
}

cen_status cen_share_set_range(const cen_share_set *set, cen_addr *addr, uint64_t *bytes) {
    if (!set || !addr || !bytes) {
        return ceni_fail(CEN_ERR_INVALID, "set_range: %s is NULL",
                         !set   ? "set"
                         : addr ? "bytes"
                                : "addr");
    }
    cen_status status = ceni_share_check(set->share, "set_range");
    if (!status) {
        *addr = set->addr;
        *bytes = set->bytes;
    }
    return status;
}
