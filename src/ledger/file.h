/* Reading a ledger's file: a copy that is whole, and in which every index and place is in bounds.
 *
 * The bytes are read, never mapped: a file that is cut off meanwhile is a short read and no signal.
 * A copy is whole if the head's sequence was even and the same before and after. Where changes come
 * too fast for that, the reader asks the writer to hold still for some milliseconds; where the
 * writer is gone, what it left is taken as it is. */
#ifndef CENI_LEDGER_FILE_H
#define CENI_LEDGER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "ledger/format.h"

typedef struct ceni_ledger_file {
    ceni_ledger_head head;
    bool torn;                 /* its writer ended in the middle of a change */
    cen_ledger_entry *entries; /* by device, kind, key; each once */
    ceni_ledger_event *events; /* the oldest first */
    ceni_ledger_holding *holdings;
    ceni_ledger_span *stacks; /* of frames */
    ceni_frame_record *frames;
    ceni_module_record *modules;
    ceni_ledger_span *strings; /* of text */
    char *text;
    size_t entry_count, event_count, holding_count, stack_count, frame_count, module_count,
        string_count, text_size;
} ceni_ledger_file;

/* Where the bytes come from. */
typedef struct ceni_ledger_source {
    int fd; /* -1: memory */
    const uint8_t *data;
    uint64_t size; /* of the memory */
} ceni_ledger_source;

/* Why it could not be read, and where. */
typedef struct ceni_ledger_trouble {
    char message[128];
    uint64_t offset;
} ceni_ledger_trouble;

/* Whether bytes are the beginning of a ledger. */
bool ceni_ledger_looks(const uint8_t *data, size_t size);

/* CEN_ERR_IO, CEN_ERR_FORMAT, CEN_ERR_TRUNCATED, CEN_ERR_HOST_MEMORY, CEN_ERR_BUSY; nothing is
 * logged. The file is all zero after a failure. */
cen_status ceni_ledger_file_read(const ceni_ledger_source *source, ceni_ledger_file *file,
                                 ceni_ledger_trouble *trouble);
void ceni_ledger_file_free(ceni_ledger_file *file);

/* file_check.c: makes entries and events of the raw slots and the ring; all indices are in bounds
 * then. */
cen_status ceni_ledger_file_check(ceni_ledger_file *file, const ceni_ledger_slot *slots,
                                  size_t slot_count, ceni_ledger_trouble *trouble);
cen_status ceni_ledger_refuse(ceni_ledger_trouble *trouble, cen_status status, uint64_t offset,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The place of a region that is valid. */
static inline const ceni_ledger_place *ceni_ledger_place_of(const ceni_ledger_region *region) {
    return &region->place[atomic_load_explicit(&region->which, memory_order_acquire) & 1];
}

/* What a slot says, as an entry. */
static inline cen_ledger_entry ceni_ledger_entry_of(const ceni_ledger_slot *slot) {
    return (cen_ledger_entry){.key = slot->key,
                              .bytes = slot->bytes,
                              .stream = slot->stream,
                              .time_us = slot->time_us,
                              .stack = slot->stack,
                              .step = slot->step,
                              .device = slot->device,
                              .kind = slot->kind,
                              .less = slot->less != 0};
}

/* The end of a path that is too long for a message. */
static inline const char *ceni_ledger_short_name(const char *path) {
    enum { LONGEST = 80 };
    size_t length = strlen(path);
    return length > LONGEST ? path + length - LONGEST : path;
}

/* The bytes of an element of a region. */
uint32_t ceni_ledger_element(enum ceni_ledger_part part);

/* Field 22 of /proc/PID/stat; 0: there is no such process here. */
uint64_t ceni_ledger_start_ticks(long pid);

#endif
