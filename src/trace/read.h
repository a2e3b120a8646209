/* The snapshot reader's insides.
 *
 * A file passes through four steps, each in its own file:
 *   source.c    bytes: file, standard input or memory, plain or gzip, as a sliding window
 *   pickle.c    the pickle machine: opcodes -> values on a stack; it knows nothing of snapshots
 *   fold.c      dicts and lists of values -> compact records (record.c), as soon as they are filled
 *   assemble.c  records -> a cen_snapshot (devices, sorted segments), rewind.c its initial state
 * rmm.c reads RMM's logs: lines -> records, in place of the second and third; read_trace.c does the
 * same with cenote's traces.
 * intern.c keeps each string, frame and stack once.
 *
 * Invariants
 * - A value is 8 bytes: a tag and a payload. Everything larger lives in the reader's arrays and is
 *   named by index, so the memo and the stack stay small, and a memo entry of a dict or list keeps
 *   meaning the same object before and after it was filled and folded.
 * - Nothing is freed while reading. All arrays grow through ceni_read_grow(), which holds what is
 *   kept to CENI_READ_KEPT_FREE + CENI_READ_KEPT_FACTOR times the bytes of the file read so far.
 * - The first failure is recorded with ceni_read_fail() and ends the reading. */
#ifndef CENI_TRACE_READ_H
#define CENI_TRACE_READ_H

#include "cenote/snapshot.h"

#include <zlib.h>

/* Limits, stated in docs/formats/snapshot.md. */
#define CENI_READ_STREAM_MAX  (UINT64_C(64) << 30) /* bytes after decompression */
#define CENI_READ_STRING_MAX  (UINT64_C(16) << 20)
#define CENI_READ_MARKS_MAX   1000                /* nesting depth */
#define CENI_READ_SIZE_MAX    (UINT64_C(1) << 48) /* bytes of a block or segment */
#define CENI_READ_DEVICES_MAX 1024
#define CENI_READ_KEPT_FREE   (UINT64_C(256) << 20)
#define CENI_READ_KEPT_FACTOR 64

/* ---- source.c ---- */

#define CENI_SOURCE_PAD 32 /* readable zero bytes after the window's end */

typedef struct ceni_source {
    int fd; /* -1: memory */
    const uint8_t *memory;
    size_t memory_left;
    z_stream z;
    uint8_t *raw; /* compressed bytes; NULL: plain */
    bool close_fd, z_ended, eof;
    uint8_t *window, *end; /* the window's bytes: [window, end) */
    size_t capacity;
    uint64_t base;   /* the stream's offset of window[0] */
    uint64_t stored; /* bytes of the file read */
} ceni_source;

/* ---- values ---- */

typedef uint64_t ceni_value; /* tag in the low 4 bits, payload above */

enum ceni_tag {
    CENI_UNSET, /* an empty memo entry; never on the stack */
    CENI_OTHER, /* plain data that no snapshot needs: bytes, sets, large integers, odd tuples */
    CENI_NONE,
    CENI_BOOL,
    CENI_INT,   /* signed 60 bits */
    CENI_WIDE,  /* index into wide: an unsigned integer beyond them */
    CENI_FLOAT, /* index into wide: its bits */
    CENI_STR,   /* index of a string */
    CENI_PAIR,  /* index into wide: a tuple of two values */
    CENI_LIST,  /* index into objects */
    CENI_DICT   /* index into objects */
};

static inline ceni_value ceni_make(enum ceni_tag tag, uint64_t payload) {
    return payload << 4 | tag;
}
static inline enum ceni_tag ceni_tag_of(ceni_value value) {
    return (enum ceni_tag)(value & 15);
}
static inline uint64_t ceni_payload(ceni_value value) {
    return value >> 4;
}

/* An object is a list or dict: its kind in the low 8 bits, an index of that kind's array above. */
enum ceni_object_kind {
    CENI_EMPTY,
    CENI_PLAIN, /* a dict that is none of the following; index into plains */
    CENI_EVENT,
    CENI_FRAME,
    CENI_SEGMENT,
    CENI_BLOCK,
    CENI_HISTORY, /* {addr, real_size, frames} of older recordings */
    CENI_NOTE,    /* an annotation */
    CENI_ROOT,
    CENI_STACK, /* a list of frames */
    CENI_ITEMS, /* any other list; index into lists */
    CENI_MIXED  /* as the kind of a list's items: not all the same, or plain */
};

/* The strings that the reader knows, interned first, so that their index is this enum. */
/* clang-format off */
#define CENI_WORD_MAP(X) \
    X(action) X(addr) X(size) X(stream) X(time_us) X(frames) X(device_free) X(filename) \
    X(line) X(name) X(address) X(requested_size) X(state) X(history) X(real_size) X(device) \
    X(total_size) X(segment_type) X(segment_pool_id) X(is_expandable) X(blocks) X(segments) \
    X(device_traces) X(allocator_settings) X(external_annotations) X(stage) X(alloc) \
    X(free_requested) X(free_completed) X(segment_alloc) X(segment_free) X(segment_map) \
    X(segment_unmap) X(snapshot) X(oom) X(inactive) X(active_allocated) \
    X(active_pending_free) X(active_awaiting_free) X(small) X(large) X(START) X(END)
/* clang-format on */
enum ceni_word {
#define CENI_WORD_ENUM(word) CENI_W_##word,
    CENI_WORD_MAP(CENI_WORD_ENUM)
#undef CENI_WORD_ENUM
        CENI_WORDS
};
_Static_assert(CENI_W_stage < 64, "keys fit a 64-bit set");

typedef struct ceni_text {
    uint64_t offset; /* in the reader's text, ends with NUL */
    uint32_t size;
} ceni_text;

typedef struct ceni_frame_key {
    uint32_t file, function, line; /* strings' indices */
} ceni_frame_key;

typedef struct ceni_span {
    size_t first;
    uint32_t count;
} ceni_span;

typedef struct ceni_slot {
    uint32_t hash, id; /* id + 1; 0: free */
} ceni_slot;

/* Finds the index of an equal element; see intern.c. */
typedef struct ceni_table {
    ceni_slot *slots;
    size_t capacity, count;
} ceni_table;

/* Items of a list as runs of consecutive indices, chained: what a list holds was nearly always
 * made one after the other. */
typedef struct ceni_run {
    size_t first, count, next; /* next: index + 1, 0: last */
} ceni_run;

typedef struct ceni_items {
    size_t head, tail; /* runs, index + 1 */
    uint8_t kind;
} ceni_items;

typedef struct ceni_plain {
    size_t head, tail; /* entries, index + 1 */
} ceni_plain;

typedef struct ceni_entry {
    ceni_value key, value;
    size_t next;
} ceni_entry;

typedef struct ceni_segment_record {
    cen_snapshot_segment segment;
    uint32_t device;
    ceni_value blocks;
} ceni_segment_record;

typedef struct ceni_block_record {
    cen_snapshot_block block;
    bool has_address, has_requested;
    ceni_value history;
} ceni_block_record;

typedef struct ceni_history_record {
    uint64_t real_size;
    uint32_t stack;
} ceni_history_record;

typedef struct ceni_note_record {
    int64_t time_us;
    uint32_t name, device;
    size_t order; /* in the file */
    bool end;
} ceni_note_record;

typedef struct ceni_root_record {
    ceni_value segments, traces, settings, notes;
} ceni_root_record;

/* A growing array of `type`. */
#define CENI_ARRAY(type)                                                                           \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count, capacity;                                                                    \
    }

typedef struct ceni_reader {
    const char *name;
    ceni_source source;
    uint64_t kept;  /* bytes in the arrays below */
    uint64_t moved; /* bytes of stacks copied because their list was filled in pieces */

    cen_status status; /* the first failure */
    char message[146]; /* with 80 bytes of name and an offset it fits cen_read_error */
    uint64_t offset;
    bool at_offset;  /* the failure has a place in the stream */
    bool no_ring;    /* events are never lost for lack of room, as PyTorch's history's are */
    bool doubtful;   /* it is only that a dict looks like a known one and is none */
    char doubt[146]; /* the first such, told if that dict turns out to be needed */
    uint64_t doubt_offset;

    CENI_ARRAY(ceni_value) stack;
    CENI_ARRAY(ceni_value) memo;
    size_t marks[CENI_READ_MARKS_MAX];
    size_t mark_count;

    CENI_ARRAY(uint64_t) objects;
    CENI_ARRAY(uint64_t) wide;
    CENI_ARRAY(ceni_items) lists;
    CENI_ARRAY(ceni_run) runs;
    CENI_ARRAY(ceni_plain) plains;
    CENI_ARRAY(ceni_entry) entries;
    CENI_ARRAY(cen_trace_event) events;
    CENI_ARRAY(ceni_segment_record) segments;
    CENI_ARRAY(ceni_block_record) blocks;
    CENI_ARRAY(ceni_history_record) histories;
    CENI_ARRAY(ceni_note_record) notes;
    CENI_ARRAY(ceni_root_record) roots;

    CENI_ARRAY(char) text;
    CENI_ARRAY(char) clean; /* scratch: a string made valid UTF-8 */
    CENI_ARRAY(ceni_text) strings;
    CENI_ARRAY(ceni_frame_key) frames;
    CENI_ARRAY(uint32_t) stack_frames;
    CENI_ARRAY(ceni_span) stacks;
    CENI_ARRAY(uint32_t) scratch; /* frames of the stack being made */
    ceni_table string_table, frame_table, stack_table;
} ceni_reader;

/* ---- the result ---- */

typedef struct ceni_setting {
    size_t key, value; /* offsets in setting_text */
} ceni_setting;

struct cen_snapshot {
    cen_snapshot_device *devices;
    size_t device_count;
    cen_trace_event *events;
    cen_trace_event **copied; /* a device's events where they were not one run; by device */
    cen_snapshot_segment *segments;
    cen_snapshot_block *blocks;
    cen_annotation *annotations;
    char *text;
    cen_frame *frames;
    ceni_span *stacks;
    size_t stack_count;
    ceni_setting *settings;
    size_t setting_count;
    char *setting_text;
    bool no_ring; /* the reader's */
};

/* ---- snapshot.c ---- */

/* Records the first failure: what was found and what is expected, without file and offset. */
cen_status ceni_read_fail(ceni_reader *reader, cen_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void ceni_reader_free(ceni_reader *reader);

/* Makes room for `need` elements (see ceni_grow), within what may be kept. */
cen_status ceni_read_grow(ceni_reader *reader, void *array, size_t *capacity, size_t need,
                          size_t size);
/* Fails when `bytes`, kept or moved, are out of proportion to what has been read. */
cen_status ceni_read_charge(ceni_reader *reader, uint64_t bytes);
#define CENI_ROOM(reader, array, more)                                                             \
    ((array).count + (more) <= (array).capacity                                                    \
         ? CEN_OK                                                                                  \
         : ceni_read_grow(reader, &(array).at, &(array).capacity, (array).count + (more),          \
                          sizeof *(array).at))

/* Opens the file, standard input ("-") or memory (path NULL); finds out whether it is gzip. */
cen_status ceni_source_open(ceni_reader *reader, const char *path, const void *data, size_t size);
void ceni_source_close(ceni_source *source);
/* Moves the window to begin at `from` (in it) and fills it to `need` bytes at least; fewer only at
 * the stream's end. */
cen_status ceni_source_fill(ceni_reader *reader, const uint8_t *from, size_t need);
/* Reads the rest and throws it away: so that a damaged gzip file is told from a whole one. */
cen_status ceni_source_drain(ceni_reader *reader);
/* What bytes that are no recording look like ("a zip archive (torch.save writes such)"). */
const char *ceni_source_looks(const uint8_t *data, size_t size);

/* ---- intern.c ---- */

cen_status ceni_intern_words(ceni_reader *reader);
cen_status ceni_intern_string(ceni_reader *reader, const uint8_t *text, size_t size, uint32_t *id);
cen_status ceni_intern_frame(ceni_reader *reader, const ceni_frame_key *key, uint32_t *id);
cen_status ceni_intern_stack(ceni_reader *reader, const uint32_t *frames, size_t count,
                             uint32_t *id);
static inline const char *ceni_string(const ceni_reader *reader, uint32_t id) {
    return reader->text.at + reader->strings.at[id].offset;
}

/* ---- pickle.c ---- */

/* Runs the machine to STOP; the result is the pickle's value. */
cen_status ceni_pickle_run(ceni_reader *reader, ceni_value *result);

/* refuse.c: fails because of the opcode before p. */
cen_status ceni_pickle_refuse(ceni_reader *reader, const uint8_t **op, const uint8_t *p);

/* The known word that a value is, or CENI_WORDS. */
static inline enum ceni_word ceni_word_of(ceni_value value) {
    return ceni_tag_of(value) == CENI_STR && ceni_payload(value) < CENI_WORDS
               ? (enum ceni_word)ceni_payload(value)
               : CENI_WORDS;
}

/* ---- rmm.c ---- */

/* Whether bytes are the beginning of RMM's log. */
bool ceni_rmm_looks(const uint8_t *data, size_t size);
/* Reads one to its end; the result is as a pickle's would be. */
cen_status ceni_rmm_run(ceni_reader *reader, ceni_value *result);

/* ---- read_trace.c ---- */

/* Whether bytes are the beginning of a trace of cenote's. */
bool ceni_trace_looks(const uint8_t *data, size_t size);
/* Reads one to its end; the result is as a pickle's would be. */
cen_status ceni_trace_run(ceni_reader *reader, ceni_value *result);

/* ---- record.c ---- */

/* Sets keys of an object's record (of a dict's kind other than frame). */
cen_status ceni_record_set(ceni_reader *reader, uint64_t object, const ceni_value *pairs,
                           size_t count);
cen_status ceni_record_frame(ceni_reader *reader, ceni_frame_key *frame, ceni_value key,
                             ceni_value value);

/* ---- fold.c ---- */

/* A list gets items; a dict gets `count` pairs of key and value. */
cen_status ceni_fold_append(ceni_reader *reader, size_t object, const ceni_value *items,
                            size_t count);
cen_status ceni_fold_set(ceni_reader *reader, size_t object, const ceni_value *pairs, size_t count);
/* After a doubtful failure: notes it and makes the dict a plain one, so that reading goes on. */
cen_status ceni_fold_doubt(ceni_reader *reader, size_t object, uint64_t offset);

/* ---- assemble.c, settings.c, rewind.c ---- */

cen_status ceni_assemble(ceni_reader *reader, ceni_value result, cen_snapshot **snapshot);
/* The kind of a list's items (CENI_EMPTY: none) and its first run (index + 1); -1: not a list. */
int ceni_list_kind(const ceni_reader *reader, ceni_value list, size_t *run);
cen_status ceni_assemble_settings(ceni_reader *reader, ceni_value settings, cen_snapshot *snapshot);
/* The shortest text that reads back as the same number, with a point, as Python prints it. */
void ceni_float_text(char *to, size_t size, uint64_t bits);
/* Fills initial, initial_reserved, unknown_frees and truncated from the other fields. */
cen_status ceni_rewind(ceni_reader *reader, cen_snapshot_device *device);

#endif
