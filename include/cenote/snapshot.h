/* Memory snapshots: what was recorded of an allocator, read into plain arrays.
 *
 * Reads PyTorch's pickles (torch.cuda.memory._snapshot() and _dump_snapshot(), protocols 2 to 5),
 * cenote's own traces (cenote/trace.h) and ledgers (cenote/ledger.h), and RMM's logs of allocations
 * (CSV: Thread, Time, Action, Pointer, Size, Stream), each plain or gzip; which it is shows in the
 * file's first bytes. The
 * reader builds plain data and runs nothing that a file says. A snapshot is immutable once read:
 * any number of threads may use it. Strings are UTF-8 without control characters and owned by the
 * snapshot. Sizes are in bytes, times in microseconds of the recording's clock. */
#ifndef CENOTE_SNAPSHOT_H
#define CENOTE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_snapshot cen_snapshot;

/* Where an error was found in a file. */
typedef struct cen_read_error {
    char message[256]; /* one line: the file, the place (byte offset or path), what was expected */
    uint64_t offset;   /* in the uncompressed stream */
} cen_read_error;

#define CEN_NO_STACK     UINT32_MAX
#define CEN_FREE_UNKNOWN UINT64_MAX /* in place of the free bytes of a CEN_ACTION_OOM */

typedef struct cen_frame {
    const char *file;
    const char *function;
    uint32_t line;
} cen_frame;

typedef enum cen_action {
    CEN_ACTION_ALLOC,
    CEN_ACTION_FREE_REQUESTED,
    CEN_ACTION_FREE_COMPLETED,
    CEN_ACTION_SEGMENT_ALLOC,
    CEN_ACTION_SEGMENT_FREE,
    CEN_ACTION_SEGMENT_MAP,
    CEN_ACTION_SEGMENT_UNMAP,
    CEN_ACTION_SNAPSHOT,
    CEN_ACTION_OOM,
    CEN_ACTION_OTHER /* an action this version does not know; counted, otherwise ignored */
} cen_action;

typedef struct cen_trace_event {
    uint64_t addr; /* CEN_ACTION_OOM: the device's free bytes at that moment, where known */
    uint64_t size;
    uint64_t stream;
    int64_t time_us; /* 0 where the recording has no times */
    uint32_t stack;  /* index of a stack, or CEN_NO_STACK when the event has no frames */
    uint8_t action;  /* cen_action */
} cen_trace_event;

typedef enum cen_block_state {
    CEN_BLOCK_INACTIVE,
    CEN_BLOCK_ACTIVE,      /* allocated */
    CEN_BLOCK_PENDING_FREE /* free requested, a stream still uses it */
} cen_block_state;

typedef struct cen_snapshot_block {
    uint64_t addr;
    uint64_t size;
    uint64_t requested; /* = size where the recording does not tell */
    uint32_t stack;
    uint8_t state; /* cen_block_state */
} cen_snapshot_block;

typedef struct cen_snapshot_segment {
    uint64_t addr;
    uint64_t size;
    uint64_t stream;
    int64_t pool_id[2]; /* (0, 0): the default pool; others are private */
    size_t first_block; /* its blocks: the device's blocks[first_block] and block_count - 1 more */
    size_t block_count;
    bool expandable;
    bool small;
} cen_snapshot_segment;

/* "START" and "END" marks that a profiler or optimizer put in, such as "Optimizer.step#AdamW.step".
 */
typedef struct cen_annotation {
    const char *name;
    int64_t time_us;
    bool end;
} cen_annotation;

/* A block alive before the first event: from rewinding the history from the final state. */
typedef struct cen_initial_block {
    uint64_t addr;
    uint64_t size; /* requested bytes */
    uint64_t stream;
    uint32_t stack;
} cen_initial_block;

/* One device of the snapshot. Arrays are in the file's order; segments and blocks by address. */
typedef struct cen_snapshot_device {
    int device;
    const cen_trace_event *events;
    size_t event_count;
    const cen_snapshot_segment *segments;
    size_t segment_count;
    const cen_snapshot_block *blocks;
    size_t block_count;
    const cen_initial_block *initial; /* alive before the first event; by address */
    size_t initial_count;
    uint64_t initial_reserved;         /* bytes in segments before the first event */
    const cen_annotation *annotations; /* by time */
    size_t annotation_count;
    size_t unknown_frees; /* completed frees that find no live block: freed twice */
    bool truncated;       /* recording was on before the first event (docs/formats/snapshot.md) */
} cen_snapshot_device;

/* Reads a snapshot file ("-": standard input). error may be NULL. CEN_ERR_IO, CEN_ERR_FORMAT (not a
 * snapshot, corrupt, or it needs code to be run), CEN_ERR_TRUNCATED, CEN_ERR_HOST_MEMORY;
 * CEN_ERR_BUSY: a ledger that changed too fast to be read whole. */
CEN_API cen_status cen_snapshot_read(const char *path, cen_snapshot **snapshot,
                                     cen_read_error *error);
/* The same from memory; `name` stands for the file in messages. */
CEN_API cen_status cen_snapshot_read_memory(const char *name, const void *data, size_t size,
                                            cen_snapshot **snapshot, cen_read_error *error);
CEN_API void cen_snapshot_free(cen_snapshot *snapshot);

/* Devices that hold anything (segments or events), in order of their number. */
CEN_API size_t cen_snapshot_device_count(const cen_snapshot *snapshot);
CEN_API const cen_snapshot_device *cen_snapshot_get_device(const cen_snapshot *snapshot,
                                                           size_t index);

/* Stacks are interned: equal stacks have equal indices; some may be used by no event. Frames are
 * innermost first. */
CEN_API size_t cen_snapshot_stack_count(const cen_snapshot *snapshot);
CEN_API const cen_frame *cen_snapshot_stack(const cen_snapshot *snapshot, uint32_t stack,
                                            size_t *frame_count);

/* The allocator's settings as recorded, by key ("expandable_segments" -> "False"); NULL: not there.
 */
CEN_API const char *cen_snapshot_setting(const cen_snapshot *snapshot, const char *key);

/* What a snapshot can be written as. */
typedef enum cen_format {
    CEN_FORMAT_TORCH,  /* PyTorch's snapshot as a pickle, which its memory_viz page opens */
    CEN_FORMAT_TRACE,  /* cenote's trace (docs/formats/trace.md) */
    CEN_FORMAT_CHROME, /* Chrome's trace events as JSON, for Perfetto; cannot be read back */
} cen_format;

/* Writes a snapshot to a file ("-": standard output), which appears whole or not at all; gzip if
 * its name ends in ".gz". error may be NULL; its offset stays 0. CEN_ERR_IO, CEN_ERR_HOST_MEMORY,
 * CEN_ERR_INVALID: an argument is NULL, or no such format; CEN_ERR_FORMAT: a range of addresses
 * that a trace cannot hold. No signal (SIGPIPE, SIGXFSZ) reaches the program for it.
 * docs/convert.md says what each format keeps. */
CEN_API cen_status cen_snapshot_write(const cen_snapshot *snapshot, cen_format format,
                                      const char *path, cen_read_error *error);

#ifdef __cplusplus
}
#endif
#endif
