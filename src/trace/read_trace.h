/* Reading cenote's own traces: blocks -> arrays (read_trace.c), events -> the records that the
 * snapshot is assembled from (read_order.c, read_events.c, read_state.c), native frames -> names
 * (read_symbols.c). */
#ifndef CENI_TRACE_READ_TRACE_H
#define CENI_TRACE_READ_TRACE_H

#include "trace/emit.h"
#include "trace/format.h"
#include "trace/read.h"

typedef struct ceni_clock_pair {
    uint64_t ticks, ns;
} ceni_clock_pair;

/* What the file holds, in its order. Ids of strings are the reader's. */
typedef struct ceni_trace_file {
    ceni_reader *reader;
    ceni_file_head head;
    bool ended; /* with an index: it was stopped, and nothing is missing */
    uint64_t lost;
    uint32_t empty;               /* the reader's empty string */
    CENI_ARRAY(uint32_t) strings; /* file's id -> reader's */
    CENI_ARRAY(ceni_module_record) modules;
    CENI_ARRAY(ceni_frame_record) frames;
    CENI_ARRAY(ceni_span) stacks;    /* of frames */
    CENI_ARRAY(uint32_t) stack_of;   /* file's id -> reader's */
    CENI_ARRAY(ceni_value) settings; /* keys and values in turn */
    CENI_ARRAY(ceni_event_record) events;
    CENI_ARRAY(ceni_clock_pair) clock; /* ascending, the start first */
} ceni_trace_file;

/* A block of the program's while the events are gone through. */
typedef struct ceni_live {
    uint64_t addr, size, stream;
    uint32_t stack;
    bool pending, before; /* before: there before the first event */
} ceni_live;

/* A range of addresses with memory behind it. */
typedef struct ceni_piece {
    uint64_t addr, end, stream;
    int64_t pool[2];
    bool plain, small;
} ceni_piece;

/* What a device holds at the end: pieces by address, none overlapping; live blocks by address. */
typedef struct ceni_final {
    CENI_ARRAY(ceni_piece) pieces;
    CENI_ARRAY(ceni_live) live;
} ceni_final;

/* An event's place in the order. */
typedef struct ceni_event_key {
    uint64_t ticks;
    size_t index; /* of the file's events */
    uint16_t device;
} ceni_event_key;

/* read_order.c: fills the reader's events, segments, blocks, notes; the root is *result. */
cen_status ceni_trace_events(ceni_trace_file *file, ceni_value *result);

/* read_events.c: a device's, in order; *events is the list of them. */
cen_status ceni_trace_device(ceni_trace_file *file, uint32_t device, const ceni_event_key *keys,
                             size_t count, ceni_value *events);
/* Ticks -> microseconds since 1970. */
int64_t ceni_trace_time_us(const ceni_trace_file *file, uint64_t ticks);

/* read_state.c */
cen_status ceni_final_map(ceni_reader *reader, ceni_final *final, const ceni_piece *piece);
cen_status ceni_final_unmap(ceni_reader *reader, ceni_final *final, uint64_t addr, uint64_t end);
/* Appends the device's segments and their blocks to the reader's. */
cen_status ceni_final_put(ceni_reader *reader, ceni_final *final, uint32_t device);
/* A list of `count` consecutive elements of `kind`, as a pickle's would be. */
cen_status ceni_trace_list(ceni_reader *reader, enum ceni_object_kind kind, size_t first,
                           size_t count, ceni_value *list);

/* read_symbols.c: names stacks. Records of modules hold the reader's strings, and stay. */
typedef struct ceni_namer ceni_namer;
/* NULL: no memory, which is the reader's failure. */
ceni_namer *ceni_namer_open(ceni_reader *reader, const ceni_module_record *records, size_t count);
void ceni_namer_close(ceni_namer *namer);
/* The reader's stack of these frames, whose strings are the reader's and whose modules are in
 * bounds; CEN_NO_STACK: nothing is left of it. */
cen_status ceni_namer_stack(ceni_namer *namer, const ceni_frame_record *records, uint32_t count,
                            uint32_t *stack);
/* Names the frames of all stacks, and fills stack_of. */
cen_status ceni_trace_stacks(ceni_trace_file *file);

/* read_trace.c: adds a setting of two of the reader's strings. */
cen_status ceni_trace_setting(ceni_trace_file *file, uint32_t key, uint32_t value);
void ceni_trace_file_free(ceni_trace_file *file);

#endif
