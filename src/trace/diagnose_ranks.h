/* The ranks of one job, explained together. The parts fill one ceni_ranks in this order:
 *
 *   numbers    which rank each file is, from its name
 *   ranks      a summary of each rank: its figures, and a print of its sequence of allocations
 *   stacks     ... and its live bytes by stack
 *   outlier    which ranks stand out, which form groups, which one is explained
 *   compare    the explained rank's stacks, and its sequence, against those of the others
 *
 * then text and JSON print it, and after it the usual explanation of the one rank.
 *
 * A summary needs nothing of its snapshot: stacks are copied, each once for all ranks. So files can
 * be read one after another, and hundreds of ranks fit in memory. Ranks are in order of their
 * number; stacks are equal when all of their frames are, by a hash of 64 bits. */
#ifndef CENI_DIAGNOSE_RANKS_H
#define CENI_DIAGNOSE_RANKS_H

#include "trace/diagnose.h"

#include "base/map.h"

/* A stack, or a kind of memory without frames. */
typedef struct ceni_rank_stack {
    cen_frame *frames; /* own copies, innermost first */
    size_t frame_count;
    ceni_owner owner; /* what its label needs; no sums */
    ceni_origin origin;
} ceni_rank_stack;

/* What a rank has live of a stack at its moment; a failed request counts as if granted. */
typedef struct ceni_rank_use {
    size_t stack;
    uint64_t bytes, blocks;
} ceni_rank_use;

/* How a rank's figure lies to the median of all. */
typedef enum ceni_stand { CENI_STAND_WITHIN, CENI_STAND_MORE, CENI_STAND_LESS } ceni_stand;

typedef struct ceni_rank {
    uint64_t number;
    size_t place; /* in the list that was given */
    char *name;   /* the file's, without the folders that all share */
    int device;   /* the one that failed, or holds most */
    ceni_moment moment;
    uint64_t request, live, held, live_peak, held_peak;
    uint64_t needed; /* the peak of live bytes; at a failure, if that is more, with the request */
    cen_verdict verdict, next;
    bool truncated;

    ceni_rank_use *uses; /* by stack */
    size_t use_count;
    uint32_t *prefix; /* of each allocation: a hash of the sequence up to it */
    size_t alloc_count;

    ceni_stand need_stand, held_stand;
    bool stands_out;
    size_t group; /* CENI_NO_INDEX: none */
} ceni_rank;

/* Why the ranks that stand out do. */
typedef enum ceni_outlier {
    CENI_OUTLIER_NONE,
    CENI_OUTLIER_FAILED, /* they failed, others did not */
    CENI_OUTLIER_NEED,
    CENI_OUTLIER_HELD,   /* they need as much, but hold more or less */
    CENI_OUTLIER_VERDICT /* their verdict is another than most ranks' */
} ceni_outlier;

typedef struct ceni_difference {
    size_t stack;
    uint64_t bytes, blocks, median; /* here; the median of the others */
} ceni_difference;

typedef enum ceni_sequence {
    CENI_SEQUENCE_NONE, /* no others to compare with, or no history */
    CENI_SEQUENCE_LOST, /* the ring buffer lost the start */
    CENI_SEQUENCE_SAME,
    CENI_SEQUENCE_MIXED, /* the others differ among themselves from here on */
    CENI_SEQUENCE_DEPARTS
} ceni_sequence;

/* One allocation of a sequence. */
typedef struct ceni_rank_alloc {
    uint64_t size;
    size_t stack; /* CENI_NO_INDEX: no frames */
} ceni_rank_alloc;

typedef struct ceni_ranks {
    ceni_rank *ranks; /* by number */
    size_t count;
    bool numbered; /* the names tell the numbers; else they are places in the list */

    ceni_rank_stack *stacks;
    size_t stack_count, stack_capacity;
    ceni_map by_key; /* -> index of the stack */

    ceni_outlier outlier;
    size_t outlier_count;
    size_t explained;                     /* index of a rank */
    uint64_t need_median, need_threshold; /* off by more than this stands out */
    uint64_t held_median, held_threshold;
    size_t group_count; /* 0, or at least 2 */
    size_t other_count; /* the ranks that the explained one is compared with */

    ceni_difference *differences; /* by size of the difference */
    size_t difference_count;
    ceni_sequence sequence;
    size_t equal_allocs, reference; /* departs: from this rank's sequence, after so many */
    ceni_rank_alloc here, there;
} ceni_ranks;

void ceni_ranks_free(ceni_ranks *ranks);

/* Sets each rank's number and `numbered`. */
cen_status ceni_ranks_number(ceni_ranks *ranks, const char *const *paths);
/* The stack's index; it is copied if it is new. CEN_NO_STACK: `kind` tells it instead. */
cen_status ceni_ranks_stack(ceni_ranks *ranks, const cen_snapshot *snapshot, uint32_t stack,
                            ceni_kind kind, size_t *index);
/* The key of a stack: equal for equal frames. */
uint64_t ceni_stack_key(const cen_snapshot *snapshot, uint32_t stack);
cen_status ceni_ranks_uses(ceni_ranks *ranks, ceni_rank *rank, const ceni_diag *diag);
cen_status ceni_ranks_judge(ceni_ranks *ranks);
/* Whether a rank is one of the others that the explained rank is compared with. */
bool ceni_rank_is_other(const ceni_ranks *ranks, size_t at);
/* Of two ranks neither is the usual one, unless one failed. */
bool ceni_ranks_are_weak(const ceni_ranks *ranks);
cen_status ceni_ranks_compare(ceni_ranks *ranks);
void ceni_ranks_find_departure(ceni_ranks *ranks);
static inline uint64_t ceni_distance(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}
uint64_t ceni_median(uint64_t *values, size_t count); /* sorts them */

/* What is printed. */
void ceni_text_ranks(ceni_str *out, const ceni_ranks *ranks);
void ceni_text_rank_tables(ceni_str *out, const ceni_ranks *ranks);
/* A sum in the unit of all sums, and that unit's name: "GiB", or "MiB" where all are less. */
double ceni_ranks_num(const ceni_ranks *ranks, uint64_t bytes);
const char *ceni_ranks_unit(const ceni_ranks *ranks);
void ceni_put_rank_label(ceni_str *out, const ceni_ranks *ranks, size_t stack);
/* The numbers of missing ranks, up to the largest there is; only where fewer are missing than
 * there are, as other numbers are none of ranks. Calls missing(arg, first, last) for each run. */
void ceni_ranks_missing(const ceni_ranks *ranks,
                        void (*missing)(void *arg, uint64_t first, uint64_t last), void *arg);

#endif
