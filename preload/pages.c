/* Pages: made by one call, held by handles and mappings.
 *
 * A page counts from cuMemCreate until its last handle is released and its last mapping is gone,
 * whichever comes later. Its entry's key is the handle's number, which the driver may give again
 * while the page is only mapped: then the old entry goes by another key. Pages of other processes
 * are views. */
#include "preload/preload.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

typedef struct page {
    uint64_t key, bytes;
    unsigned handles, mappings;
    cen_ledger_kind kind;
    int device;
    bool own; /* of the interposer's pool */
} page;

typedef struct mapping {
    pl_addr addr;
    uint64_t size;
    page *page;
    struct mapping *next; /* while taken out */
} mapping;

static struct {
    pthread_mutex_t lock;
    ceni_map by_handle; /* page */
    ceni_map by_addr;   /* mapping */
    uint64_t renamed;
} pages = {.lock = PTHREAD_MUTEX_INITIALIZER};

void pl_fork_pages(void) {
    pthread_mutex_init(&pages.lock, NULL);
    pages.by_handle = pages.by_addr = (ceni_map){0}; /* the parent's memory stays, unused */
}

static page *page_of(pl_page handle) {
    const uint64_t *found = ceni_map_get(&pages.by_handle, handle);
    return found ? (page *)(uintptr_t)*found : NULL;
}

static mapping *mapping_at(pl_addr addr) {
    const uint64_t *found = ceni_map_get(&pages.by_addr, addr);
    return found ? (mapping *)(uintptr_t)*found : NULL;
}

/* A number of no handle's: the driver's are addresses or small. */
static uint64_t other_key(void) {
    return UINT64_C(0xfeed) << 48 | ++pages.renamed;
}

/* Under the lock. A page that goes by this handle's number is one that has no handle any more, or
 * is being released by another thread right now. */
static void insert(pl_page handle, const page *made) {
    page *old = page_of(handle);
    if (old) {
        old->key = other_key();
        pl_rename(old->kind, handle, old->key);
        (void)ceni_map_remove(&pages.by_handle, handle, NULL);
    }
    page *p = ceni_malloc(sizeof *p);
    if (p) {
        *p = *made;
        if (ceni_map_put(&pages.by_handle, handle, (uintptr_t)p)) {
            ceni_free(p);
        }
    }
}

/* Under the lock: ends the page if nothing holds it. */
static void end_if_unheld(page *p) {
    if (!p->handles && !p->mappings) {
        (void)pl_end(p->kind, p->key, NULL);
        ceni_free(p);
    }
}

static cen_ledger_kind kind_of(const pl_page_prop *prop) {
    return prop && prop->location.type != PL_LOCATION_DEVICE ? CEN_LEDGER_HOST : CEN_LEDGER_PAGE;
}

/* The pool of a program that uses libcenote, such as PyTorch's. */
static bool is_libcenote(const void *caller) {
    Dl_info info;
    const char *slash =
        dladdr(caller, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    return slash && !strncmp(slash, "/libcenote.so", strlen("/libcenote.so"));
}

pl_result cuMemCreate(pl_page *handle, size_t size, const pl_page_prop *prop, pl_flags flags) {
    PL_BEGIN(cuMemCreate, (handle, size, prop, flags))
    cen_ledger_kind kind = kind_of(prop);
    int device = prop && kind == CEN_LEDGER_PAGE ? prop->location.id : pl_device_now();
    device = device < PL_DEVICES ? device : -1;
    (void)pl_device_total(device);
    pl_result result = PL_OUT_OF_MEMORY;
    if (pl_ask(&request, kind, device, size, NULL)) {
        result = real->cuMemCreate(handle, size, prop, flags);
        if (result == PL_SUCCESS) {
            const page made = {.key = *handle,
                               .bytes = size,
                               .handles = 1,
                               .kind = kind,
                               .device = device,
                               .own = request.before == PL_POOL};
            request.stream = made.own                                    ? CEN_LEDGER_PAGE_OF_BLOCKS
                             : is_libcenote(__builtin_return_address(0)) ? CEN_LEDGER_PAGE_OF_POOL
                                                                         : CEN_LEDGER_PAGE_PLAIN;
            pthread_mutex_lock(&pages.lock);
            insert(*handle, &made);
            pthread_mutex_unlock(&pages.lock);
        }
        result = pl_done(&request, result, result == PL_SUCCESS ? *handle : 0);
    }
    return pl_leave(request.before, result);
}

pl_result cuMemRelease(pl_page handle) {
    PL_BEGIN(cuMemRelease, (handle))
    pthread_mutex_lock(&pages.lock);
    page *p = page_of(handle);
    pthread_mutex_unlock(&pages.lock);
    pl_result result = real->cuMemRelease(handle);
    if (p && result == PL_SUCCESS) {
        pthread_mutex_lock(&pages.lock);
        if (--p->handles == 0) {
            if (page_of(handle) == p && !p->mappings) {
                (void)ceni_map_remove(&pages.by_handle, handle, NULL);
            }
            end_if_unheld(p);
        }
        pthread_mutex_unlock(&pages.lock);
    }
    return pl_leave(request.before, result);
}

/* Another handle of a page that is mapped. */
pl_result cuMemRetainAllocationHandle(pl_page *handle, void *addr) {
    PL_BEGIN(cuMemRetainAllocationHandle, (handle, addr))
    pl_result result = real->cuMemRetainAllocationHandle(handle, addr);
    if (result == PL_SUCCESS) {
        pthread_mutex_lock(&pages.lock);
        mapping *m = mapping_at((uintptr_t)addr);
        page *p = m ? m->page : page_of(*handle);
        if (p &&
            (page_of(*handle) == p || !ceni_map_put(&pages.by_handle, *handle, (uintptr_t)p))) {
            p->handles++;
        }
        pthread_mutex_unlock(&pages.lock);
    }
    return pl_leave(request.before, result);
}

/* What is imported is another process's, or a page of ours that came back. */
pl_result cuMemImportFromShareableHandle(pl_page *handle, void *shared, pl_enum type) {
    PL_BEGIN(cuMemImportFromShareableHandle, (handle, shared, type))
    pl_result result = real->cuMemImportFromShareableHandle(handle, shared, type);
    if (result != PL_SUCCESS) {
        return pl_leave(request.before, result);
    }
    int device = pl_device_now();
    pthread_mutex_lock(&pages.lock);
    page *p = page_of(*handle);
    bool known = p && p->handles;
    if (known) {
        p->handles++;
    } else {
        const page made = {
            .key = *handle, .handles = 1, .kind = CEN_LEDGER_IMPORT, .device = device};
        insert(*handle, &made);
    }
    pthread_mutex_unlock(&pages.lock);
    if (!known) {
        (void)pl_ask(&request, CEN_LEDGER_IMPORT, device, 0, NULL);
        (void)pl_done(&request, result, *handle);
    }
    return pl_leave(request.before, result);
}

/* ---- mappings ---- */

static void add_mapping(pl_addr addr, uint64_t size, pl_page handle) {
    mapping *m = ceni_malloc(sizeof *m);
    pthread_mutex_lock(&pages.lock);
    page *p = page_of(handle);
    if (!m || !p || ceni_map_put(&pages.by_addr, addr, (uintptr_t)m)) {
        pthread_mutex_unlock(&pages.lock);
        ceni_free(m);
        return;
    }
    *m = (mapping){.addr = addr, .size = size, .page = p};
    p->mappings++;
    if (p->kind == CEN_LEDGER_IMPORT && p->bytes < size) { /* its size shows only now */
        p->bytes = size;
        pl_set_bytes(p->kind, p->device, p->key, size);
    }
    pthread_mutex_unlock(&pages.lock);
}

pl_result cuMemMap(pl_addr addr, size_t size, size_t offset, pl_page handle, pl_flags flags) {
    PL_BEGIN(cuMemMap, (addr, size, offset, handle, flags))
    pl_result result = real->cuMemMap(addr, size, offset, handle, flags);
    if (result == PL_SUCCESS) {
        add_mapping(addr, size, handle);
    }
    return pl_leave(request.before, result);
}

/* A range of unmapping holds whole mappings, with gaps of whole pages between them. */
static mapping *take_out(pl_addr addr, uint64_t size) {
    enum { SMALLEST = 64 << 10 };
    mapping *taken = NULL;
    pthread_mutex_lock(&pages.lock);
    for (pl_addr at = addr; at - addr < size;) {
        mapping *m = mapping_at(at);
        if (m) {
            (void)ceni_map_remove(&pages.by_addr, at, NULL);
            m->next = taken;
            taken = m;
        }
        at += m ? m->size : SMALLEST;
    }
    pthread_mutex_unlock(&pages.lock);
    return taken;
}

static void settle(mapping *taken, bool unmapped) {
    pthread_mutex_lock(&pages.lock);
    while (taken) {
        mapping *m = taken;
        taken = m->next;
        if (!unmapped && !ceni_map_put(&pages.by_addr, m->addr, (uintptr_t)m)) {
            continue;
        }
        page *p = m->page;
        ceni_free(m);
        if (--p->mappings == 0 && !p->handles) {
            if (page_of(p->key) == p) {
                (void)ceni_map_remove(&pages.by_handle, p->key, NULL);
            }
            end_if_unheld(p);
        }
    }
    pthread_mutex_unlock(&pages.lock);
}

pl_result cuMemUnmap(pl_addr addr, size_t size) {
    PL_BEGIN(cuMemUnmap, (addr, size))
    mapping *taken = take_out(addr, size);
    pl_result result = real->cuMemUnmap(addr, size);
    settle(taken, result == PL_SUCCESS);
    return pl_leave(request.before, result);
}

/* What the pool maps is open to the peers of its device too, as memory of cuMemAlloc's is. */
pl_result cuMemSetAccess(pl_addr addr, size_t size, const pl_access *grants, size_t count) {
    PL_BEGIN(cuMemSetAccess, (addr, size, grants, count))
    pl_result result = real->cuMemSetAccess(addr, size, grants, count);
    if (result == PL_SUCCESS && request.before == PL_POOL && count) {
        pl_pool_granted(grants[0].location.id, addr, size);
    }
    return pl_leave(request.before, result);
}

/* ---- the pool's own ---- */

void pl_pages_each_own(int device, void (*fn)(pl_addr addr, uint64_t size, int peer), int peer) {
    pthread_mutex_lock(&pages.lock);
    size_t count = 0;
    mapping *own = ceni_malloc(pages.by_addr.count * sizeof *own);
    for (size_t i = 0; own && i < pages.by_addr.capacity; i++) {
        if (pages.by_addr.slots[i].used) {
            const mapping *m = (const mapping *)(uintptr_t)pages.by_addr.slots[i].value;
            if (m->page->own && m->page->device == device) {
                own[count++] = *m;
            }
        }
    }
    pthread_mutex_unlock(&pages.lock);
    for (size_t i = 0; i < count; i++) {
        fn(own[i].addr, own[i].size, peer);
    }
    ceni_free(own);
}

void pl_pages_end_own(void) {
    pthread_mutex_lock(&pages.lock);
    for (size_t i = 0; i < pages.by_handle.capacity; i++) {
        if (pages.by_handle.slots[i].used) {
            const page *p = (page *)(uintptr_t)pages.by_handle.slots[i].value;
            if (p->own) {
                (void)pl_end(p->kind, p->key, NULL);
            }
        }
    }
    pthread_mutex_unlock(&pages.lock);
}
