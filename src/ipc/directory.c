#include "ipc/directory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

static const char magic[8] = "CENDIR1";

typedef struct head {
    char magic[8];
    uint64_t size; /* of the whole */
    uint32_t count;
    uint32_t reserved;
} head;

typedef struct entry {
    uint64_t offset, bytes;
    uint32_t name_at, name_size; /* from the start; the name ends with a NUL beyond its size */
    uint32_t meta_at, meta_size; /* meta_at is a multiple of 8 */
} entry;

typedef struct named {
    const char *name;
    uint32_t index;
} named;

static const entry *entries_of(const void *data) {
    return (const void *)((const char *)data + sizeof(head));
}

static const uint32_t *order_of(const void *data, uint32_t count) {
    return (const void *)(entries_of(data) + count);
}

static uint64_t padded(uint64_t size) {
    return (size + 7) & ~(uint64_t)7;
}

/* Where names and meta data begin. */
static uint64_t text_at(uint64_t count) {
    return sizeof(head) + count * sizeof(entry) + padded(count * sizeof(uint32_t));
}

static const char *name_of(const cen_share_item *item) {
    return item->name ? item->name : "";
}

static cen_status measure(const cen_share_item *items, size_t count, uint64_t *size) {
    uint64_t sum = count > CENI_DIRECTORY_MAX / sizeof(entry) ? UINT64_MAX : text_at(count);
    for (size_t i = 0; i < count && sum <= CENI_DIRECTORY_MAX; i++) {
        size_t name = strlen(name_of(&items[i]));
        if (name > CENI_DIRECTORY_NAME_MAX) {
            return ceni_fail(CEN_ERR_INVALID, "export: the name of item %zu has more than %d bytes",
                             i, CENI_DIRECTORY_NAME_MAX);
        }
        if (items[i].meta_bytes > CEN_SHARE_META_MAX || (items[i].meta_bytes && !items[i].meta)) {
            return ceni_fail(CEN_ERR_INVALID, "export: item %zu has %s", i,
                             items[i].meta ? "too much meta data" : "no meta data, but its size");
        }
        sum += padded(name + 1) + padded(items[i].meta_bytes);
    }
    if (sum > CENI_DIRECTORY_MAX) {
        return ceni_fail(CEN_ERR_INVALID,
                         "export: %zu items with their names and meta data take more than %d bytes",
                         count, CENI_DIRECTORY_MAX);
    }
    *size = sum;
    return CEN_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* The numbers of the items in the order of their names. */
static cen_status sort(const cen_share_item *items, size_t count, uint32_t *order) {
    named *list = ceni_malloc(count * sizeof *list);
    if (!list) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "export: no memory to sort %zu names", count);
    }
    for (size_t i = 0; i < count; i++) {
        list[i] = (named){name_of(&items[i]), (uint32_t)i};
    }
    qsort(list, count, sizeof *list, by_name);
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < count; i++) {
        order[i] = list[i].index;
        if (i && !strcmp(list[i - 1].name, list[i].name)) {
            status = ceni_fail(CEN_ERR_INVALID, "export: items %u and %u have one name, '%s'",
                               (unsigned)list[i - 1].index, (unsigned)list[i].index, list[i].name);
        }
    }
    ceni_free(list);
    return status;
}

cen_status ceni_directory_build(const cen_share_item *items, size_t count, cen_addr base,
                                void **data, size_t *size) {
    uint64_t whole;
    cen_status status = measure(items, count, &whole);
    if (status) {
        return status;
    }
    char *made = ceni_calloc(1, whole);
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "export: no memory for a directory of %zu items",
                         count);
    }
    head h = {.size = whole, .count = (uint32_t)count};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(made, &h, sizeof h);
    entry *entries = (void *)(made + sizeof h);
    uint64_t at = text_at(count);
    for (size_t i = 0; i < count; i++) {
        const cen_share_item *item = &items[i];
        size_t name = strlen(name_of(item));
        entries[i] = (entry){.offset = item->addr - base,
                             .bytes = item->bytes,
                             .name_at = (uint32_t)at,
                             .name_size = (uint32_t)name,
                             .meta_at = (uint32_t)(at + padded(name + 1)),
                             .meta_size = (uint32_t)item->meta_bytes};
        memcpy(made + at, name_of(item), name);
        if (item->meta_bytes) {
            memcpy(made + entries[i].meta_at, item->meta, item->meta_bytes);
        }
        at += padded(name + 1) + padded(item->meta_bytes);
    }
    status = sort(items, count, (uint32_t *)(void *)(entries + count));
    if (status) {
        ceni_free(made);
        return status;
    }
    *data = made;
    *size = whole;
    return CEN_OK;
}

/* Why an entry cannot be used; NULL if it can. */
static const char *entry_fault(const char *data, uint64_t size, uint64_t text, const entry *e,
                               uint64_t set_bytes) {
    if (e->offset > set_bytes || e->bytes > set_bytes - e->offset) {
        return "lies outside of its set";
    }
    if (e->name_size > CENI_DIRECTORY_NAME_MAX || e->name_at < text || e->name_at >= size ||
        e->name_size >= size - e->name_at || data[e->name_at + e->name_size] ||
        memchr(data + e->name_at, 0, e->name_size)) {
        return "has a name that cannot be read";
    }
    if (e->meta_size > CEN_SHARE_META_MAX || e->meta_at < text || e->meta_at > size ||
        e->meta_size > size - e->meta_at || e->meta_at % 8) {
        return "has meta data that cannot be read";
    }
    return NULL;
}

/* Strictly rising names make the order a permutation, and the names unique. */
static bool in_order(const char *data, uint32_t count) {
    const entry *entries = entries_of(data);
    const uint32_t *order = order_of(data, count);
    for (uint32_t i = 0; i < count; i++) {
        if (order[i] >= count || (i && strcmp(data + entries[order[i - 1]].name_at,
                                              data + entries[order[i]].name_at) >= 0)) {
            return false;
        }
    }
    return true;
}

cen_status ceni_directory_open(const void *data, size_t size, uint64_t set_bytes,
                               ceni_directory *directory) {
    head h;
    if (size < sizeof h) {
        return ceni_fail(CEN_ERR_TRUNCATED, "directory: %zu bytes are too few for its head", size);
    }
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic)) {
        return ceni_fail(CEN_ERR_FORMAT, "directory: it does not begin with '%s'", magic);
    }
    if (h.size != size || h.count > CENI_DIRECTORY_MAX / sizeof(entry) || text_at(h.count) > size) {
        return ceni_fail(h.size > size ? CEN_ERR_TRUNCATED : CEN_ERR_FORMAT,
                         "directory: %u items in %" PRIu64 " bytes, of which %zu are there",
                         (unsigned)h.count, h.size, size);
    }
    const entry *entries = entries_of(data);
    uint64_t text = text_at(h.count), bytes = 0;
    for (uint32_t i = 0; i < h.count; i++) {
        const char *fault = entry_fault(data, size, text, &entries[i], set_bytes);
        if (fault) {
            return ceni_fail(CEN_ERR_FORMAT, "directory: item %u %s", (unsigned)i, fault);
        }
        bytes += entries[i].bytes;
    }
    if (!in_order(data, h.count)) {
        return ceni_fail(CEN_ERR_FORMAT, "directory: its names are not in order");
    }
    *directory = (ceni_directory){.data = data, .count = h.count, .bytes = bytes};
    return CEN_OK;
}

void ceni_directory_item(const ceni_directory *directory, size_t index, cen_addr base,
                         cen_share_item *item) {
    const char *data = directory->data;
    const entry *e = &entries_of(data)[index];
    *item = (cen_share_item){.name = data + e->name_at,
                             .addr = base + e->offset,
                             .bytes = e->bytes,
                             .meta = e->meta_size ? data + e->meta_at : NULL,
                             .meta_bytes = e->meta_size};
}

bool ceni_directory_find(const ceni_directory *directory, const char *name, size_t *index) {
    const char *data = directory->data;
    const entry *entries = entries_of(data);
    const uint32_t *order = order_of(data, directory->count);
    size_t low = 0, high = directory->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int way = strcmp(data + entries[order[middle]].name_at, name);
        if (!way) {
            *index = order[middle];
            return true;
        }
        low = way < 0 ? middle + 1 : low;
        high = way < 0 ? high : middle;
    }
    return false;
}
