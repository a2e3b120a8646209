/* What an explanation is made of. The parts fill one ceni_diag in this order, each reading only
 * what the ones before it wrote:
 *
 *   steps    where steps begin and end, their peaks, the moment that is judged
 *   replay   the blocks alive at that moment, and which of them outlive their steps
 *   owners   whose those blocks are
 *   holes    the segments at that moment, what is free in them, by stream and by private pool
 *   growth   the stacks whose blocks pile up step by step
 *   verdict  cap, verdict, forecast, actions
 *
 * then text and JSON print it. A log's message fills the sums by itself and joins at the verdict.
 */
#ifndef CENI_DIAGNOSE_H
#define CENI_DIAGNOSE_H

#include "cenote/explain.h"

#include "base/str.h"

#define CENI_PLOT_COLUMNS 64
#define CENI_ACTIONS      3
#define CENI_NO_INDEX     SIZE_MAX

typedef enum ceni_moment { CENI_MOMENT_STATE, CENI_MOMENT_PEAK, CENI_MOMENT_FAILED } ceni_moment;

typedef enum ceni_steps_from {
    CENI_STEPS_NONE,
    CENI_STEPS_MARKED,
    CENI_STEPS_INFERRED
} ceni_steps_from;

/* Events [first, end) of one step. The last one may be incomplete: see step_complete_count. */
typedef struct ceni_step {
    size_t first, end;
    uint64_t peak, low; /* most and least bytes live; a failed request counts in the peak */
} ceni_step;

/* What a stack says about an allocation made there. */
typedef enum ceni_kind {
    CENI_KIND_TENSORS, /* no more than the place is known */
    CENI_KIND_ACTIVATIONS,
    CENI_KIND_LOSS,
    CENI_KIND_OPTIMIZER_STATE,
    CENI_KIND_OPTIMIZER,
    CENI_KIND_WEIGHTS,
    CENI_KIND_RECOMPUTED,
    CENI_KIND_BACKWARD,
    CENI_KIND_GRAPH,
    /* without frames */
    CENI_KIND_BEFORE,
    CENI_KIND_GRADIENTS,
    CENI_KIND_AUTOGRAD,
    CENI_KIND_UNKNOWN,
    CENI_KINDS
} ceni_kind;

typedef struct ceni_owner {
    ceni_kind kind;
    const char *what;      /* the loss function, optimizer or C function by name; "" */
    const cen_frame *user; /* innermost frame of the user's; NULL: none */
    uint64_t bytes;
    uint64_t blocks;
    uint64_t inferred; /* blocks without frames, given to this owner by their size */
    uint64_t largest;  /* bytes of its largest block */
    uint64_t largest_count;
} ceni_owner;

/* A block of the history. */
typedef struct ceni_record {
    uint64_t addr, size, stream;
    size_t birth;   /* event; CENI_NO_INDEX: alive before the first */
    size_t death;   /* event; CENI_NO_INDEX: not freed up to the horizon */
    uint32_t stack; /* as recorded */
    uint32_t like;  /* without frames: the stack of the block whose size it shares, if any */
    uint32_t step;
    bool autograd; /* without frames, in a step whose backward had begun */
    bool gradient; /* ... and alive where the optimizer's step begins */
} ceni_record;

/* Segments grouped by stream, or by private pool. */
typedef struct ceni_segment_group {
    uint64_t stream;
    int64_t pool[2];
    uint64_t bytes, live, holes;
    uint64_t hole_count, hole_largest, segments;
    size_t owner[2]; /* private pools: its two largest owners; CENI_NO_INDEX */
    uint64_t owner_bytes[2];
} ceni_segment_group;

typedef struct ceni_suspect {
    uint32_t stack;      /* CEN_NO_STACK: blocks without frames, all of one size */
    uint64_t block_size; /* of the latest */
    uint64_t blocks, bytes;
    double blocks_per_step, bytes_per_step; /* requested bytes */
    double steps_left;                      /* until the cap; negative: no cap known */
} ceni_suspect;

typedef enum ceni_mark { CENI_COMPUTED, CENI_SIMULATED, CENI_GUESS } ceni_mark;

typedef struct ceni_action {
    char text[192];
    uint64_t bytes; /* what it saves */
    ceni_mark mark;
    bool needed; /* it is this verdict's own remedy: it has a place whatever its size */
} ceni_action;

typedef enum ceni_cap_from {
    CENI_CAP_NONE,
    CENI_CAP_GIVEN,     /* --cap */
    CENI_CAP_STATED,    /* a log's "allowed" */
    CENI_CAP_BRACKETED, /* between what was once held and what was refused */
    CENI_CAP_DEVICE     /* the device had no more: held + free */
} ceni_cap_from;

/* Processes on the device, from a log. */
#define CENI_PROCESSES 4
typedef struct ceni_process {
    uint64_t pid, bytes;
} ceni_process;

typedef struct ceni_diag {
    const cen_snapshot *snapshot;      /* NULL: from a log */
    const cen_snapshot_device *source; /* NULL: from a log */
    int device;

    ceni_moment moment;
    size_t event;   /* index of the moment's event */
    size_t horizon; /* events before it are judged; later ones are the unwinding after a failure */
    size_t failures;
    uint64_t request;            /* bytes refused; 0 when nothing failed */
    uint64_t request_stream;     /* the peak: of the allocation that reached it */
    uint64_t live, held, needed; /* at the moment; needed = live + request */
    uint64_t device_free;        /* at a failure */
    bool held_unknown;           /* no segments recorded: held is what was live, the least it was */
    bool free_unknown;           /* nor what the device had free: device_free is 0 */
    uint64_t live_peak, held_peak;
    uint32_t request_stack, request_like;

    ceni_steps_from steps_from;
    ceni_step *steps;
    size_t step_count, step_complete_count;
    double growth; /* bytes a step of the peaks, when steady; else 0 */

    ceni_record *records; /* alive at the moment, by address */
    size_t record_count;
    ceni_owner *owners; /* by bytes; the failed request counts */
    size_t owner_count;
    size_t *slot_owner; /* of each stack, then of each kind without frames */

    ceni_segment_group total, *streams, *pools;
    size_t stream_count, pool_count;
    uint64_t segments_with_holes;
    uint64_t cached; /* bytes of segments with nothing live in them */

    ceni_suspect *suspects;
    size_t suspect_count;
    uint64_t suspect_bytes;
    double suspect_growth;
    double untold_growth; /* bytes a step that the baseline grows by, of blocks without frames,
                             where no suspect was found; else 0 */

    uint64_t cap_given, cap_low, cap_high, device_total;
    ceni_cap_from cap_from;
    bool cap_contradicted;  /* the cap given cannot have refused the request */
    uint64_t outside;       /* bytes of others on the device, where known */
    uint64_t in_pools;      /* bytes reserved by private pools (a log: allocated in them) */
    uint64_t process_other; /* this process's bytes beyond the framework's, from a log */
    ceni_process processes[CENI_PROCESSES];
    size_t process_count;

    cen_verdict verdict, next;
    uint64_t over; /* what did not fit: needed - cap, or, if that fits, held + request - cap */
    uint64_t next_needed;  /* needed + a step's growth; 0: none seen */
    uint64_t packed_steps; /* steps that packing would buy, while they grow; 0: not said */
    ceni_action actions[CENI_ACTIONS];
    size_t action_count;
    uint64_t plot_live[CENI_PLOT_COLUMNS], plot_held[CENI_PLOT_COLUMNS];
} ceni_diag;

struct ceni_ranks;

struct cen_explanation {
    char *name;
    ceni_diag *devices; /* the one that failed, or holds most, first */
    size_t device_count;
    struct ceni_ranks *ranks; /* NULL: one file */
    cen_snapshot *owned;      /* what is explained, if it was read for this; NULL */
};

/* The options that the caller knew of when it was compiled; the others are 0. */
cen_status ceni_explain_options_read(const cen_explain_options *given,
                                     cen_explain_options *options);
cen_status ceni_explanation_new(const cen_explain_options *options, size_t devices,
                                cen_explanation **explanation);

/* The parts. Each returns CEN_OK or CEN_ERR_HOST_MEMORY. */
cen_status ceni_diagnose_steps(ceni_diag *diag);
cen_status ceni_diagnose_replay(ceni_diag *diag);
cen_status ceni_diagnose_owners(ceni_diag *diag);
size_t ceni_record_owner(const ceni_diag *diag, const ceni_record *record); /* an index */
/* A record's stack, or after all stacks the kind it is of without frames. */
size_t ceni_record_slot(const ceni_diag *diag, const ceni_record *record);
ceni_record ceni_request_record(const ceni_diag *diag); /* the failed request, as if granted */
cen_status ceni_diagnose_holes(ceni_diag *diag);
void ceni_diagnose_verdict(ceni_diag *diag);
uint64_t ceni_holes_elsewhere(const ceni_diag *diag); /* not on the stream of the moment */
void ceni_diagnose_actions(ceni_diag *diag);

/* The steps' boundaries (diagnose_steps.c) where no marks tell them: events at which a new step
 * begins, from the stack that recurs with the longest even period. */
cen_status ceni_infer_steps(const ceni_diag *diag, size_t **boundaries, size_t *count);

/* Growth: fed by the replay. */
typedef struct ceni_growth ceni_growth;
cen_status ceni_growth_new(const ceni_diag *diag, ceni_growth **growth);
cen_status ceni_growth_freed(ceni_growth *growth, const ceni_record *record);
cen_status ceni_growth_finish(ceni_growth *growth, ceni_diag *diag, const ceni_record *alive,
                              size_t count);
void ceni_growth_free(ceni_growth *growth);

/* What recorded it. */
typedef enum ceni_origin { CENI_ORIGIN_TORCH, CENI_ORIGIN_CENOTE } ceni_origin;
ceni_origin ceni_origin_of(const cen_snapshot *snapshot);
/* Whether it is of PyTorch's, so that its settings and ways are advice: what has no segments, such
 * as RMM's logs, is not, whatever format it was converted to. */
bool ceni_is_torch(const ceni_diag *diag);

bool ceni_is_cut_off(const cen_snapshot *snapshot); /* a trace whose end is missing */

/* Stacks. The innermost frame of the user's (not of an installed library), NULL: none. Whose a
 * frame of C's is depends on what recorded it. */
const cen_frame *ceni_user_frame(const cen_snapshot *snapshot, uint32_t stack);
bool ceni_is_user_frame(const cen_frame *frame, ceni_origin origin);
const cen_frame *ceni_frames_user(const cen_frame *frames, size_t count, ceni_origin origin);
ceni_kind ceni_frames_kind(const cen_frame *frames, size_t count, ceni_origin origin,
                           const char **what);
ceni_kind ceni_stack_kind(const cen_snapshot *snapshot, uint32_t stack, const char **what);
bool ceni_stack_in_autograd(const cen_snapshot *snapshot, uint32_t stack);
#define CENI_HASH_START 0xcbf29ce484222325u
uint64_t ceni_hash_text(uint64_t hash, const char *text);

/* Wording shared by text and JSON. */
uint64_t ceni_unit(const ceni_diag *diag);         /* bytes of the unit in which sums are printed */
void ceni_put_size(ceni_str *out, uint64_t bytes); /* "2.93 GiB", "4 B" */
void ceni_put_count(ceni_str *out, uint64_t n);    /* "40,000" */
void ceni_put_steps(ceni_str *out, uint64_t n);    /* "40,000 steps" */
void ceni_put_label(ceni_str *out, const ceni_owner *owner); /* "activations, train.py:43" */
void ceni_put_failed(ceni_str *out, const ceni_diag *diag);  /* who asked for what failed */
/* Calls line(arg, text) for each sentence of evidence; false: memory ran out. */
bool ceni_put_evidence(const ceni_diag *diag, void (*line)(void *arg, const char *text), void *arg);
/* "train.py:51 (forward) < train.py:54 (step)" and a newline: the user's frames, or the innermost
 * one, from `column` on. */
void ceni_put_frames(ceni_str *out, const cen_frame *frames, size_t count, ceni_origin origin,
                     size_t column);
const char *ceni_headline(cen_verdict verdict); /* "OUT OF CAPACITY" */
const char *ceni_mark_name(ceni_mark mark);
const char *ceni_cap_name(ceni_cap_from from);
void ceni_text_device(ceni_str *out, const ceni_diag *diag);
void ceni_text_tables(ceni_str *out, const ceni_diag *diag);

#endif
