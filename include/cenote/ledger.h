/* The ledger: what a process holds of each device, entry by entry, with the stack that asked for
 * it.
 *
 * One process writes: the interposer behind `cenote run` and the allocator behind PyTorch. Others
 * read it while it lives and after it was killed, since it lies in a file that both map. It holds
 * every live entry, its stack once, the latest events (a ring), samples of what each stack holds
 * step after step, and the requests that failed. docs/formats/ledger.md has the format.
 *
 * Sizes are in bytes, times in microseconds of CLOCK_REALTIME. Writing functions may be called from
 * any thread; they take no lock while they call anything outside cenote, and allocate only when a
 * table grows. A ledger is not for a forked child: its writes do nothing there (CEN_ERR_FORKED). */
#ifndef CENOTE_LEDGER_H
#define CENOTE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/snapshot.h"
#include "cenote/status.h"
#include "cenote/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_ledger cen_ledger;
typedef struct cen_ledger_view cen_ledger_view;

#define CEN_LEDGER_DEVICES  64 /* most devices of a ledger */
#define CEN_LEDGER_NO_STACK UINT32_MAX

/* Name, value, text, and whether it is a share of the device's memory of its own (1) or lies in
 * another entry's, or is no memory of the device (0): only the first are summed. */
#define CEN_LEDGER_KIND_MAP(X)                                                                     \
    X(MEMORY, 0, "memory", 1)     /* cuMemAlloc, AllocPitch; key: address */                       \
    X(PAGE, 1, "page", 1)         /* cuMemCreate; key: the driver's handle */                      \
    X(POOL, 2, "driver pool", 1)  /* reserved by a pool of the driver's; key: the pool */          \
    X(ARRAY, 3, "array", 1)       /* CUDA arrays; key: the handle */                               \
    X(MANAGED, 4, "managed", 0)   /* unified memory, wherever it is; key: address */               \
    X(CONTEXT, 5, "context", 1)   /* measured around its making; key: the context */               \
    X(MODULE, 6, "module", 1)     /* measured around its loading; key: the module */               \
    X(GRAPH, 7, "graph", 1)       /* measured around its making; key: the graph */                 \
    X(ASYNC, 8, "async block", 0) /* cuMemAllocAsync, within a POOL; key: address */               \
    X(BLOCK, 9, "block", 0)       /* of a framework's allocator or cenote's pool; address */       \
    X(IMPORT, 10, "import", 0)    /* a view of another process's memory; key: address/handle */    \
    X(HOST, 11, "pinned host", 0) /* key: address */                                               \
    X(SEGMENT, 12, "segment", 0)  /* addresses that blocks lie in; key: address */

typedef enum cen_ledger_kind {
#define CEN_LEDGER_ENUM(name, value, text, summed) CEN_LEDGER_##name = (value),
    CEN_LEDGER_KIND_MAP(CEN_LEDGER_ENUM)
#undef CEN_LEDGER_ENUM
        CEN_LEDGER_KINDS
} cen_ledger_kind;

/* The text of a kind, such as "page"; "?" if unknown. */
CEN_API const char *cen_ledger_kind_text(cen_ledger_kind kind);
/* Whether entries of a kind are a share of the device's memory of their own; false if unknown. */
CEN_API bool cen_ledger_kind_is_summed(cen_ledger_kind kind);

/* What a page is for: pages of a pool are the pool's to free, and no leaks. */
typedef enum cen_ledger_page_use {
    CEN_LEDGER_PAGE_PLAIN = 0,
    CEN_LEDGER_PAGE_OF_BLOCKS = 1, /* of a pool of cenote's whose blocks have entries, too */
    CEN_LEDGER_PAGE_OF_POOL = 2    /* of one whose blocks have none here: they cannot be judged */
} cen_ledger_page_use;

typedef struct cen_ledger_entry {
    uint64_t key; /* with kind and device it names the entry */
    uint64_t bytes;
    uint64_t stream; /* of a PAGE: cen_ledger_page_use */
    int64_t time_us; /* when it was added; 0: now */
    uint32_t stack;  /* of this ledger, or CEN_LEDGER_NO_STACK */
    uint32_t step;   /* steps done when it was added; set by cen_ledger_add */
    uint16_t device; /* of this ledger */
    uint8_t kind;    /* cen_ledger_kind */
    bool less;       /* `bytes` came free instead of being taken (measured kinds) */
} cen_ledger_entry;

/* Zero-initialise, set `size` to sizeof, then what differs: a zero field means its default. */
typedef struct cen_ledger_options {
    size_t size;
    const char *writer;          /* who writes, for readers: "run", "torch"; default "" */
    cen_trace_stacks stacks;     /* native stacks of cen_ledger_stack_here */
    cen_trace_stack_fn stack_fn; /* frames of another language, before the native ones */
    void *stack_arg;
    uint32_t events; /* kept in the ring, rounded up to a power of two; default 65536 */
} cen_ledger_options;

/* ---- writing ---- */

/* Makes a ledger in `path` (created or replaced, mode 0600; NULL: memory of this process alone).
 * options may be NULL. CEN_ERR_IO, CEN_ERR_HOST_MEMORY, CEN_ERR_INVALID. */
CEN_API cen_status cen_ledger_create(const char *path, const cen_ledger_options *options,
                                     cen_ledger **ledger);
/* Marks it as closed by its writer and lets go of it; the file stays. NULL is ignored. */
CEN_API void cen_ledger_close(cen_ledger *ledger);

/* Makes a device known, before entries on it. uuid: as NVML prints it ("GPU-..."). CEN_ERR_INVALID:
 * device >= CEN_LEDGER_DEVICES. Saying it again changes it. */
CEN_API cen_status cen_ledger_device(cen_ledger *ledger, unsigned device, const char *uuid,
                                     const char *name, uint64_t total_bytes);

/* The stack of the calling thread as the options say, without `skip` innermost native frames;
 * CEN_LEDGER_NO_STACK if there is none or no room. */
CEN_API uint32_t cen_ledger_stack_here(cen_ledger *ledger, unsigned skip);
/* A stack of named frames, innermost first; strings are copied. */
CEN_API uint32_t cen_ledger_stack(cen_ledger *ledger, const cen_frame *frames, size_t count);

/* Adds a live entry, and its event. CEN_ERR_BUSY: the key is there already (it is replaced: the
 * writer missed its end); CEN_ERR_HOST_MEMORY, CEN_ERR_IO: there is no room; it is counted as
 * lost. */
CEN_API cen_status cen_ledger_add(cen_ledger *ledger, const cen_ledger_entry *entry);
/* Ends one; `removed` may be NULL. CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_ledger_remove(cen_ledger *ledger, cen_ledger_kind kind, unsigned device,
                                     uint64_t key, cen_ledger_entry *removed);
/* Looks one up on any device. CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_ledger_find(cen_ledger *ledger, cen_ledger_kind kind, uint64_t key,
                                   cen_ledger_entry *entry);
/* Sets the bytes of a live entry (a driver's pool that grew). CEN_ERR_NOT_FOUND. */
CEN_API cen_status cen_ledger_resize(cen_ledger *ledger, cen_ledger_kind kind, unsigned device,
                                     uint64_t key, uint64_t bytes);

/* The end of an iteration of the program: what each stack holds is sampled. */
CEN_API void cen_ledger_step(cen_ledger *ledger);

/* A request that failed for want of memory. Then, where a process watches (cen_ledger_watch_open),
 * waits up to `wait_ms` until it has read what is held now. */
CEN_API cen_status cen_ledger_failed(cen_ledger *ledger, unsigned device, uint64_t bytes,
                                     uint64_t free_bytes, uint64_t stream, uint32_t stack,
                                     unsigned wait_ms);

/* Bytes of summed kinds on a device; 0 in a forked child. */
CEN_API uint64_t cen_ledger_held_bytes(cen_ledger *ledger, unsigned device);

/* What the writer holds now, as a reader of its file would see it. CEN_ERR_HOST_MEMORY, CEN_ERR_IO,
 * CEN_ERR_FORKED, CEN_ERR_INVALID. */
CEN_API cen_status cen_ledger_look(cen_ledger *ledger, cen_ledger_view **view);

/* ---- reading ---- */

typedef struct cen_ledger_device_info {
    bool known;
    char uuid[48], name[128];
    uint64_t total_bytes;
    uint64_t bytes[CEN_LEDGER_KINDS]; /* live, by kind; of measured kinds the sum with sign */
    uint64_t count[CEN_LEDGER_KINDS];
    uint64_t peak_bytes; /* of the sum of summed kinds */
} cen_ledger_device_info;

typedef struct cen_ledger_info {
    int pid;
    uint64_t start_ticks; /* of the process, field 22 of /proc/PID/stat: tells a reused pid */
    int64_t started_us, changed_us;
    char program[256], writer[32];
    bool closed; /* the writer closed it: the program came to its end */
    uint32_t steps;
    uint64_t adds, removes, failures, lost;
} cen_ledger_info;

typedef struct cen_ledger_failure {
    uint64_t bytes, free_bytes, stream;
    int64_t time_us;
    uint32_t stack;
    uint16_t device;
} cen_ledger_failure;

/* Reads a ledger's file as it is now: a copy that does not change, for one thread at a time. error
 * may be NULL.
 * CEN_ERR_IO, CEN_ERR_FORMAT, CEN_ERR_TRUNCATED, CEN_ERR_HOST_MEMORY; CEN_ERR_BUSY: it changed too
 * fast to be read whole. */
CEN_API cen_status cen_ledger_read(const char *path, cen_ledger_view **view, cen_read_error *error);
CEN_API void cen_ledger_view_free(cen_ledger_view *view);

CEN_API const cen_ledger_info *cen_ledger_view_info(const cen_ledger_view *view);
/* device < CEN_LEDGER_DEVICES; NULL if beyond. */
CEN_API const cen_ledger_device_info *cen_ledger_view_device(const cen_ledger_view *view,
                                                             unsigned device);
CEN_API const cen_ledger_entry *cen_ledger_view_entries(const cen_ledger_view *view, size_t *count);
CEN_API const cen_ledger_failure *cen_ledger_view_failures(const cen_ledger_view *view,
                                                           size_t *count);

/* A moment in the past: when the last request failed, on whichever device, or when the sum of this
 * device was highest. */
typedef enum cen_ledger_moment { CEN_LEDGER_FAILURE, CEN_LEDGER_PEAK } cen_ledger_moment;
/* The entries as they were then, from the ring's events, in no order; of those that ended since,
 * time and step are 0. They live until the next call for this view, or as long as it.
 * CEN_ERR_NOT_FOUND: there was no such moment, or the ring does not reach back to it; nothing is
 * logged. CEN_ERR_INVALID, CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_ledger_view_then(cen_ledger_view *view, cen_ledger_moment moment,
                                        unsigned device, const cen_ledger_entry **entries,
                                        size_t *count);

/* A stack with names, innermost first, without cenote's own frames; NULL: none. Naming takes time:
 * modules are opened at the first call. */
CEN_API const cen_frame *cen_ledger_view_stack(cen_ledger_view *view, uint32_t stack,
                                               size_t *frame_count);
/* Whose memory an entry is, by kind and by the module that called the driver: "nccl", "cublas",
 * "torch", "cenote", "context", the program's name, ..., "unknown". It lives as long as the
 * view. */
CEN_API const char *cen_ledger_view_owner(cen_ledger_view *view, const cen_ledger_entry *entry);

/* Whether stacks hold more step after step: those whose live bytes never shrank and grew in each
 * of the last `steps` samples (at least 4, at most 31). Largest growth first; how many were
 * written is returned. */
typedef struct cen_ledger_growth {
    uint32_t stack;
    uint16_t device;
    uint64_t live_bytes, live_count;
    uint64_t step_bytes; /* more at each step, median */
    uint32_t steps;      /* for so many steps */
} cen_ledger_growth;
CEN_API size_t cen_ledger_view_growing(const cen_ledger_view *view, unsigned steps,
                                       cen_ledger_growth *growing, size_t capacity);

/* The same for the reader of a live process, without the cost of a copy: whether anything changed
 * (steps, failures) since the last look; and answering a writer that waits in cen_ledger_failed.
 * One process watches a ledger: the latest that opened it. CEN_ERR_IO, CEN_ERR_FORMAT,
 * CEN_ERR_HOST_MEMORY. */
typedef struct cen_ledger_watch cen_ledger_watch;
CEN_API cen_status cen_ledger_watch_open(const char *path, cen_ledger_watch **watch);
CEN_API void cen_ledger_watch_close(cen_ledger_watch *watch);
CEN_API void cen_ledger_watch_counts(cen_ledger_watch *watch, uint32_t *steps, uint64_t *failures);
CEN_API void cen_ledger_watch_answer(cen_ledger_watch *watch); /* what failed has been read */

/* What a ledger says, as a snapshot: for explain and convert. Its segments are the SEGMENT and
 * MEMORY entries, its blocks the BLOCK and ASYNC ones, and the MEMORY ones that no blocks lie in.
 * Other summed kinds, which have no address, are a segment with a block each at one that no driver
 * gives; what pages or driver pools have beyond blocks in them is a segment without any. Its
 * history is the ring, with a CEN_ACTION_OOM for each failure in it. docs/formats/ledger.md.
 * CEN_ERR_HOST_MEMORY, CEN_ERR_FORMAT. */
CEN_API cen_status cen_ledger_view_snapshot(cen_ledger_view *view, cen_snapshot **snapshot);

/* What was never freed, by stack, most bytes first: for people (80 columns; at most `top` stacks,
 * 0: 10) and for programs. Contexts, modules, driver pools and pages of pools are no leaks; of
 * pools whose blocks have no entries, the pages are told by their sum, as not judged. *leaked:
 * entries. The caller frees the text with free(). CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_ledger_leaks_text(cen_ledger_view *view, size_t top, char **text,
                                         uint64_t *leaked);
CEN_API cen_status cen_ledger_leaks_json(cen_ledger_view *view, char **json, uint64_t *leaked);

/* ---- where ledgers are ---- */

/* The folder of this user's ledgers: $CENOTE_LEDGER_DIR, else $XDG_RUNTIME_DIR/cenote, else
 * /dev/shm/cenote-UID; made with mode 0700 if it is not there. In it PID-WRITER.ledger.
 * CEN_ERR_IO: it cannot be made or is another user's; CEN_ERR_INVALID: `size` is too small. */
CEN_API cen_status cen_ledger_dir(char *path, size_t size);

#ifdef __cplusplus
}
#endif
#endif
