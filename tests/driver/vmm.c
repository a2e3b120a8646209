/* Virtual memory management: pages as handles that count their users, mappings as entries of the
 * table. A page lives as long as a handle or a mapping of it. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/driver/td.h"

struct td_page {
    td_page *next;
    td_card *card;
    ceni_page host;
    uint64_t size;
    size_t handles, mappings;
    uint64_t dev, ino; /* of the file it was exported as, 0: never */
};

static ceni_map live; /* pages */
static td_page *pages;

static td_page *find(cu_handle handle) {
    const td_page *page = ceni_map_get(&live, handle) ? (td_page *)(uintptr_t)handle : NULL;
    return page && page->handles ? (td_page *)(uintptr_t)handle : NULL;
}

static void drop_unused(td_page *page) {
    if (page->handles || page->mappings) {
        return;
    }
    td_page **link = &pages;
    while (*link != page) {
        link = &(*link)->next;
    }
    *link = page->next;
    ceni_backend_host.page_release(page->card->device, page->host);
    td_publish(page->card);
    ceni_map_remove(&live, (uintptr_t)page, NULL);
    ceni_free(page);
}

/* A handle for a page that the host made; released if it cannot be kept. */
static cu_result keep(td_card *card, ceni_page host, uint64_t size, cu_handle *handle) {
    td_page *page = ceni_calloc(1, sizeof *page);
    if (!page || ceni_map_put(&live, (uintptr_t)page, 1)) {
        ceni_free(page);
        ceni_backend_host.page_release(card->device, host);
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *page = (td_page){.next = pages, .card = card, .host = host, .size = size, .handles = 1};
    pages = page;
    td_publish(card);
    *handle = (uintptr_t)page;
    return CU_SUCCESS;
}

cu_result cuMemGetAllocationGranularity(size_t *granularity, const cu_alloc_prop *prop,
                                        cu_enum option) {
    td_card *card;
    TD_TRY(td_enter(__func__));
    TD_NEED(granularity && prop);
    int id = prop->location.type == CU_LOCATION_DEVICE ? prop->location.id : 0;
    TD_TRY(td_enter_device(__func__, id, &card));
    *granularity = card->device->granularity;
    return CU_SUCCESS;
}

cu_result cuMemAddressReserve(cu_deviceptr *addr, size_t size, size_t align, cu_deviceptr hint,
                              unsigned long long flags) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, 0, &card));
    TD_NEED(addr && size && size % card->device->granularity == 0 && !(align & (align - 1)));
    uint64_t start;
    cen_status status = ceni_backend_host.va_reserve(card->device, size, align, &start);
    TD_TRY(td_result(status));
    *addr = start;
    return CU_SUCCESS;
}

cu_result cuMemAddressFree(cu_deviceptr addr, size_t size) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, 0, &card));
    return td_result(ceni_backend_host.va_free(card->device, addr, size));
}

cu_result cuMemCreate(cu_handle *handle, size_t size, const cu_alloc_prop *prop,
                      unsigned long long flags) {
    td_card *card;
    TD_TRY(td_enter(__func__));
    TD_NEED(handle && prop && prop->type == CU_ALLOC_PINNED && !flags);
    bool on_host = prop->location.type == CU_LOCATION_HOST_NUMA;
    TD_NEED(on_host || prop->location.type == CU_LOCATION_DEVICE);
    TD_TRY(td_enter_device(__func__, on_host ? 0 : prop->location.id, &card));
    TD_NEED(size && size % card->device->granularity == 0);
    if (prop->handle_types & ~(cu_enum)CU_HANDLE_FD || prop->flags.rdma) {
        return CU_ERROR_NOT_SUPPORTED;
    }
    ceni_page host;
    pthread_mutex_lock(&td_lock);
    cu_result result = on_host ? CU_SUCCESS : td_card_check_room(card, size);
    if (result == CU_SUCCESS) {
        unsigned wanted =
            (prop->handle_types ? CENI_PAGE_EXPORTABLE : 0u) | (on_host ? CENI_PAGE_HOST : 0u);
        result = td_result(ceni_backend_host.page_create(card->device, size, wanted, &host));
    }
    if (result == CU_SUCCESS) {
        result = keep(card, host, size, handle);
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuMemRelease(cu_handle handle) {
    TD_TRY(td_enter(__func__));
    pthread_mutex_lock(&td_lock);
    td_page *page = find(handle);
    if (page) {
        page->handles--;
        drop_unused(page);
    }
    pthread_mutex_unlock(&td_lock);
    return page ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}

cu_result cuMemRetainAllocationHandle(cu_handle *handle, void *addr) {
    TD_TRY(td_enter(__func__));
    TD_NEED(handle);
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds((uintptr_t)addr);
    bool mapped = e && e->kind == TD_MAPPED;
    if (mapped) {
        e->page->handles++;
        *handle = (uintptr_t)e->page;
    }
    pthread_mutex_unlock(&td_lock);
    return mapped ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}

static cu_result map(uint64_t addr, uint64_t size, uint64_t offset, td_page *page) {
    TD_NEED(page && !offset && size);
    const td_entry entry = {.addr = addr,
                            .size = size,
                            .room = size,
                            .kind = TD_MAPPED,
                            .card = page->card,
                            .page = page};
    TD_TRY(td_result(ceni_backend_host.page_map(page->card->device, addr, size, page->host)));
    cu_result result = td_table_add(&entry);
    if (result == CU_SUCCESS) {
        page->mappings++;
    } else {
        ceni_backend_host.page_unmap(page->card->device, addr, size);
    }
    return result;
}

cu_result cuMemMap(cu_deviceptr addr, size_t size, size_t offset, cu_handle handle,
                   unsigned long long flags) {
    TD_TRY(td_enter(__func__));
    pthread_mutex_lock(&td_lock);
    cu_result result = map(addr, size, offset, find(handle));
    pthread_mutex_unlock(&td_lock);
    return result;
}

cu_result cuMemUnmap(cu_deviceptr addr, size_t size) {
    td_card *card;
    TD_TRY(td_enter_device(__func__, 0, &card));
    TD_NEED(size);
    pthread_mutex_lock(&td_lock);
    cu_result result = td_result(ceni_backend_host.page_unmap(card->device, addr, size));
    for (uint64_t at = addr; result == CU_SUCCESS && at < addr + size;) {
        const td_entry e = *td_table_at(at); /* the host has seen that mappings fill the range */
        td_table_remove(at);
        e.page->mappings--;
        drop_unused(e.page);
        at += e.room;
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}

/* Here, as on CUDA, a peer needs no enabling to be granted pages. */
cu_result cuMemSetAccess(cu_deviceptr addr, size_t size, const cu_access_desc *grants,
                         size_t count) {
    td_card *card;
    TD_TRY(td_enter(__func__));
    TD_NEED(grants && count && count <= TD_CARDS_MAX && size);
    ceni_grant list[TD_CARDS_MAX];
    pthread_mutex_lock(&td_lock);
    const td_entry *e = td_table_holds(addr);
    td_card *owner = e && e->kind == TD_MAPPED ? e->card : NULL;
    pthread_mutex_unlock(&td_lock);
    TD_NEED(owner);
    for (size_t i = 0; i < count; i++) {
        if (grants[i].location.type != CU_LOCATION_DEVICE) {
            return CU_ERROR_NOT_SUPPORTED;
        }
        TD_TRY(td_enter_device(__func__, grants[i].location.id, &card));
        TD_NEED(grants[i].flags == CU_PROT_NONE || grants[i].flags == CU_PROT_READ ||
                grants[i].flags == CU_PROT_READ_WRITE);
        list[i] = (ceni_grant){card->device, (enum ceni_access)grants[i].flags};
        for (int n = 0; n < td_card_count; n++) { /* whosever pages lie in the range */
            if (&td_cards[n] != card) {
                ceni_backend_host.peer_enable(card->device, td_cards[n].device);
            }
        }
    }
    return td_result(ceni_backend_host.page_access(owner->device, addr, size, list, count));
}

cu_result cuMemExportToShareableHandle(void *shared, cu_handle handle, cu_enum type,
                                       unsigned long long flags) {
    TD_TRY(td_enter(__func__));
    TD_NEED(shared && type == CU_HANDLE_FD && !flags);
    int fd = -1;
    pthread_mutex_lock(&td_lock);
    td_page *page = find(handle);
    cu_result result =
        page ? td_result(ceni_backend_host.page_export(page->card->device, page->host, &fd))
             : CU_ERROR_INVALID_VALUE;
    struct stat st;
    if (result == CU_SUCCESS && !fstat(fd, &st)) {
        page->dev = (uint64_t)st.st_dev;
        page->ino = (uint64_t)st.st_ino;
    }
    pthread_mutex_unlock(&td_lock);
    if (result == CU_SUCCESS) {
        *(int *)shared = fd;
    }
    return result;
}

/* A page that is here already keeps its handle, which then has to be released once more. */
cu_result cuMemImportFromShareableHandle(cu_handle *handle, void *shared, cu_enum type) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(handle && type == CU_HANDLE_FD);
    int fd = (int)(intptr_t)shared;
    struct stat st;
    TD_NEED(!fstat(fd, &st) && st.st_size > 0);
    ceni_page host;
    pthread_mutex_lock(&td_lock);
    td_page *page = pages;
    while (page && (page->dev != (uint64_t)st.st_dev || page->ino != (uint64_t)st.st_ino)) {
        page = page->next;
    }
    cu_result result = CU_SUCCESS;
    if (page) {
        page->handles++;
        *handle = (uintptr_t)page;
    } else {
        td_card *card = context->card;
        result =
            td_result(ceni_backend_host.page_import(card->device, fd, (uint64_t)st.st_size, &host));
        if (result == CU_SUCCESS) {
            result = keep(card, host, (uint64_t)st.st_size, handle);
        }
    }
    pthread_mutex_unlock(&td_lock);
    return result;
}
