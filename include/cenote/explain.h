/* Why memory ran out, or would: the verdict on a snapshot or on the text of an out-of-memory error.
 *
 * The judgement is made at the moment that matters: the failed request if there is one, else the
 * peak; a snapshot without a history is judged as it stands. docs/explain.md states each verdict,
 * its thresholds with their reasons, and the JSON's keys. Sizes are in bytes. An explanation is
 * immutable: any number of threads may use it. */
#ifndef CENOTE_EXPLAIN_H
#define CENOTE_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/snapshot.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_explanation cen_explanation;

/* Name and value of each verdict, in one place; the name is the string in the JSON. */
#define CEN_VERDICT_MAP(X)                                                                         \
    X(NONE, 0, "")                                                                                 \
    X(HEALTHY, 1, "healthy")                                                                       \
    X(CAPACITY, 2, "capacity")               /* more is needed than is allowed */                  \
    X(FRAGMENTATION, 3, "fragmentation")     /* it would have fit packed */                        \
    X(STRANDED_STREAM, 4, "stranded-stream") /* free, but bound to another stream */               \
    X(STRANDED_POOL, 5, "stranded-pool")     /* free, but bound to a private pool */               \
    X(LEAK, 6, "leak")                       /* allocations that stay, step by step */             \
    X(OUTSIDE, 7, "outside")                 /* held by others than the framework */

typedef enum cen_verdict {
#define CEN_VERDICT_ENUM(name, value, text) CEN_VERDICT_##name = (value),
    CEN_VERDICT_MAP(CEN_VERDICT_ENUM)
#undef CEN_VERDICT_ENUM
} cen_verdict;

/* Zero-initialise and set `size` to sizeof; a zero field means not known. */
typedef struct cen_explain_options {
    size_t size;
    const char *name;            /* of the file, for the output; copied */
    uint64_t cap_bytes;          /* the framework's own limit */
    uint64_t device_total_bytes; /* the device's memory */
} cen_explain_options;

/* Explains a snapshot, which must outlive the explanation. options may be NULL.
 * CEN_ERR_INVALID: no device in it holds anything, or options->size is not set;
 * CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_explain(const cen_snapshot *snapshot, const cen_explain_options *options,
                               cen_explanation **explanation);

/* Explains the snapshots of the ranks of one job, at least two, together: which rank stands out
 * first, then which stack makes the difference, then the verdict on that rank. names: of the files,
 * copied. The rank is the number in the name where each has one of its own, else the place in the
 * list. options->name is not used; the cap is each rank's. The snapshots must outlive the
 * explanation. Errors as cen_explain's. */
CEN_API cen_status cen_explain_ranks(const cen_snapshot *const *snapshots, const char *const *names,
                                     size_t count, const cen_explain_options *options,
                                     cen_explanation **explanation);

/* The same from files, one in memory at a time and two at the end, which are read again: for ranks
 * whose snapshots do not fit in memory together. Errors as cen_snapshot_read's and cen_explain's;
 * CEN_ERR_INVALID too: one is no file. A file that cannot be read fails the whole. */
CEN_API cen_status cen_explain_rank_files(const char *const *paths, size_t count,
                                          const cen_explain_options *options,
                                          cen_explanation **explanation);

/* Explains the last "CUDA out of memory" message in a text such as a job's log. `text` need not end
 * with NUL and may contain any bytes. CEN_ERR_NOT_FOUND: there is no such message in it;
 * CEN_ERR_FORMAT: there is, but without the sizes that decide. */
CEN_API cen_status cen_explain_log(const char *text, size_t size,
                                   const cen_explain_options *options,
                                   cen_explanation **explanation);

CEN_API void cen_explanation_free(cen_explanation *explanation);

/* The verdict at the moment that matters, and the forecast: what the next step meets if the growth
 * seen goes on (CEN_VERDICT_NONE: nothing to forecast from). Of ranks: those of the one explained.
 */
CEN_API cen_verdict cen_explanation_verdict(const cen_explanation *explanation);
CEN_API cen_verdict cen_explanation_next(const cen_explanation *explanation);

/* The string of a verdict, such as "stranded-pool"; "" for CEN_VERDICT_NONE and unknown values. */
CEN_API const char *cen_verdict_name(cen_verdict verdict);

/* The explanation for people (verdict first, within 80 columns) and for programs (one JSON object
 * and a newline). The caller frees the result with free(). CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_explain_text(const cen_explanation *explanation, char **text);
CEN_API cen_status cen_explain_json(const cen_explanation *explanation, char **json);

#ifdef __cplusplus
}
#endif
#endif
