/* The directory of an export: its items' names, places and meta data (docs/formats/share.md).
 *
 * Flat and readable in place: a head, entries in the order of their export, the entries' numbers
 * sorted by name, then the bytes of names and meta data. Places are offsets into the set. The
 * publisher writes it, the broker passes it on unread, and a reader checks all of it before use:
 * the publisher may be anybody. */
#ifndef CENI_IPC_DIRECTORY_H
#define CENI_IPC_DIRECTORY_H

#include <stdbool.h>

#include "cenote/share.h"

enum {
    CENI_DIRECTORY_MAX = 64 << 20, /* bytes of one */
    CENI_DIRECTORY_NAME_MAX = 4096 /* of an item's name */
};

/* One that was checked; `data` stays the caller's. */
typedef struct ceni_directory {
    const void *data;
    uint32_t count;
    uint64_t bytes; /* of all items */
} ceni_directory;

/* Writes the directory of items of the set at `base`, whose places were checked; *data is freed
 * with ceni_free. CEN_ERR_INVALID: a name twice or too long, or too much in all. */
cen_status ceni_directory_build(const cen_share_item *items, size_t count, cen_addr base,
                                void **data, size_t *size);

/* Checks one, aligned to 8, of a set of set_bytes. CEN_ERR_FORMAT, CEN_ERR_TRUNCATED. */
cen_status ceni_directory_open(const void *data, size_t size, uint64_t set_bytes,
                               ceni_directory *directory);

/* Item `index` < count, of the set mapped at `base`; name and meta point into the data. */
void ceni_directory_item(const ceni_directory *directory, size_t index, cen_addr base,
                         cen_share_item *item);
/* The number of the item of that name. */
bool ceni_directory_find(const ceni_directory *directory, const char *name, size_t *index);

#endif
