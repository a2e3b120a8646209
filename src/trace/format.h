/* A trace as it is in the file: docs/formats/trace.md says the same in words.
 *
 * A header, then blocks, each with a head that tells its length, so that a reader hops over what it
 * does not know. Blocks are only ever appended, whole. All is little-endian, and every struct here
 * is laid out without holes, so that it can be written as it is.
 *
 * Versions. `major` changes when an old reader would misread: it refuses. `minor` changes when
 * something is added that an old reader may skip: kinds of blocks, kinds and flags of events, a
 * longer header. */
#ifndef CENI_TRACE_FORMAT_H
#define CENI_TRACE_FORMAT_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "traces are little-endian");

#define CENI_FILE_MAGIC                                                                            \
    "\x89"                                                                                         \
    "CENTRC\n" /* 8 bytes; the first is in no text */
#define CENI_FILE_MAJOR      1
#define CENI_FILE_MINOR      0
#define CENI_BLOCK_MAGIC     UINT32_C(0x4b4c4243) /* "CBLK" */
#define CENI_TAIL_MAGIC      "CENTREND"
#define CENI_CUT_OFF         "trace cut off" /* the setting, "True", of what was read without its end */
#define CENI_BLOCK_BYTES_MAX (UINT32_C(1) << 28) /* of a payload */

/* In place of a process, where a trace was made of another recording: of a history that may lack
 * its start, as a full ring's does, and of one that is whole. */
#define CENI_PID_RING UINT64_C(0)
#define CENI_PID_NONE UINT64_MAX

/* Ticks are those of one clock that the heads of blocks relate to nanoseconds of the system's
 * monotonic clock; this is the first such pair, and the wall clock's time then. */
typedef struct ceni_file_head {
    char magic[8];
    uint16_t major, minor;
    uint32_t bytes;     /* of this head; what is longer than known is skipped */
    uint64_t pid;       /* CENI_PID_RING, _NONE: no process's, but made of another recording */
    uint64_t ticks, ns; /* at the start */
    uint64_t unix_ns;
    uint64_t reserved;
    uint64_t check; /* XXH3, 64 bits, of the bytes before */
} ceni_file_head;
_Static_assert(sizeof(ceni_file_head) == 64, "no holes");

enum ceni_block_type {
    CENI_FILE_EVENTS = 1,   /* ceni_event_record[count], by one thread, in the order of emission */
    CENI_FILE_STRINGS = 2,  /* ceni_string_record, each followed by its bytes, padded to 4 */
    CENI_FILE_STACKS = 3,   /* ceni_stack_record, each followed by its frames */
    CENI_FILE_MODULES = 4,  /* ceni_module_record[count] */
    CENI_FILE_DEVICES = 5,  /* ceni_device_record[count] */
    CENI_FILE_SETTINGS = 6, /* ceni_setting_record[count] */
    CENI_FILE_INDEX = 7     /* ceni_index_record[count], ceni_file_tail; the last block */
};

typedef struct ceni_block_head {
    uint32_t magic;
    uint16_t type, flags; /* flags: 0 */
    uint32_t length;      /* of the payload, in bytes */
    uint32_t thread;      /* which thread's events, from 0; otherwise 0 */
    uint32_t count;       /* of records */
    uint32_t reserved;
    uint64_t first, last; /* events: the least and greatest of their times, in ticks */
    uint64_t ticks, ns;   /* when it was written, by both clocks */
    uint64_t check;       /* XXH3, 64 bits, of the payload, seeded with that of the bytes before */
} ceni_block_head;
_Static_assert(sizeof(ceni_block_head) == 64, "no holes");

/* kind and flags: trace/emit.h */
typedef struct ceni_event_record {
    uint64_t ticks, addr, size, stream;
    uint32_t stack; /* its id, or CENI_FILE_NONE */
    uint8_t kind, flags;
    uint16_t device;
} ceni_event_record;
_Static_assert(sizeof(ceni_event_record) == 40, "no holes");

#define CENI_FILE_NONE UINT32_MAX /* no stack, no string, no module */

/* Ids of strings, of stacks and of modules each count from 0 in the order of the file. */
typedef struct ceni_string_record {
    uint32_t size; /* in bytes; no NUL follows */
} ceni_string_record;

typedef struct ceni_stack_record {
    uint32_t frames;   /* innermost first */
    uint32_t reserved; /* 0 */
} ceni_stack_record;

/* A frame: an offset in a module, to be named when it is read, or a place that has names. */
typedef struct ceni_frame_record {
    uint32_t module; /* CENI_FILE_NONE: named */
    uint32_t line;   /* named */
    union {
        uint64_t offset; /* from where the module's file was loaded */
        struct {
            uint32_t file, function; /* strings */
        } named;
    } at;
} ceni_frame_record;
_Static_assert(sizeof(ceni_frame_record) == 16, "no holes");

typedef struct ceni_module_record {
    uint32_t path, build_id; /* strings; the id in hexadecimal */
} ceni_module_record;

typedef struct ceni_device_record {
    uint32_t number, name; /* what events call it; a string */
    uint64_t total_bytes;
} ceni_device_record;

typedef struct ceni_setting_record {
    uint32_t key, value; /* strings */
} ceni_setting_record;

typedef struct ceni_index_record {
    uint64_t offset; /* of the block's head in the file */
    uint64_t first, last;
    uint32_t type, count;
} ceni_index_record;

typedef struct ceni_file_tail {
    uint64_t lost;         /* events that were not written */
    uint64_t index_offset; /* of the index's head in the file */
    char magic[8];
} ceni_file_tail;
_Static_assert(sizeof(ceni_index_record) == 32 && sizeof(ceni_file_tail) == 24, "no holes");

#endif
