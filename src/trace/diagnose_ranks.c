/* The ranks of one job: each is diagnosed and summarised, then the one to explain is chosen and
 * diagnosed again, in full. From files, no more than one snapshot is in memory until then, and two
 * at the end. */
#include "trace/diagnose_ranks.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void ceni_ranks_free(ceni_ranks *ranks) {
    if (!ranks) {
        return;
    }
    for (size_t i = 0; ranks->ranks && i < ranks->count; i++) {
        ceni_free(ranks->ranks[i].name);
        ceni_free(ranks->ranks[i].uses);
        ceni_free(ranks->ranks[i].prefix);
    }
    for (size_t i = 0; i < ranks->stack_count; i++) {
        ceni_free(ranks->stacks[i].frames);
    }
    ceni_free(ranks->ranks);
    ceni_free(ranks->stacks);
    ceni_map_free(&ranks->by_key);
    ceni_free(ranks->differences);
    ceni_free(ranks);
}

/* Where snapshots come from: the caller has them, or files, which are read. */
typedef struct source {
    const cen_snapshot *const *snapshots; /* NULL: files */
    const char *const *names;
    size_t count;
} source;

/* A snapshot of the source; *owned is to be freed, and NULL if it is the caller's. */
static cen_status open_rank(const source *from, size_t place, const cen_snapshot **snapshot,
                            cen_snapshot **owned) {
    *owned = NULL;
    if (from->snapshots) {
        *snapshot = from->snapshots[place];
    } else {
        cen_status status = cen_snapshot_read(from->names[place], owned, NULL);
        if (status) {
            return status;
        }
        *snapshot = *owned;
    }
    if (!cen_snapshot_device_count(*snapshot)) {
        cen_snapshot_free(*owned);
        return ceni_fail(CEN_ERR_INVALID, "%s: no device in the snapshot holds anything",
                         from->names[place]);
    }
    return CEN_OK;
}

/* The prints of the sequence of allocations: the size and the stack of each. */
static cen_status print_sequence(ceni_rank *rank, const ceni_diag *diag) {
    size_t stacks = cen_snapshot_stack_count(diag->snapshot), count = 0;
    for (size_t i = 0; i < diag->horizon; i++) {
        count += diag->source->events[i].action == CEN_ACTION_ALLOC;
    }
    uint64_t *keys = ceni_malloc(stacks * sizeof *keys);
    rank->prefix = ceni_malloc(count * sizeof *rank->prefix);
    if (!keys || !rank->prefix) {
        ceni_free(keys);
        return CEN_ERR_HOST_MEMORY;
    }
    for (size_t i = 0; i < stacks; i++) {
        keys[i] = ceni_stack_key(diag->snapshot, (uint32_t)i);
    }
    uint64_t hash = CENI_HASH_START;
    for (size_t i = 0; i < diag->horizon; i++) {
        const cen_trace_event *e = &diag->source->events[i];
        if (e->action == CEN_ACTION_ALLOC) {
            uint64_t key = e->stack == CEN_NO_STACK ? 0 : keys[e->stack];
            hash = (hash ^ key) * 0x9fb21c651e98df25u;
            hash = (hash ^ hash >> 29 ^ e->size) * 0x9fb21c651e98df25u;
            rank->prefix[rank->alloc_count++] = (uint32_t)(hash >> 32);
        }
    }
    ceni_free(keys);
    return CEN_OK;
}

static cen_status summarise(ceni_ranks *ranks, ceni_rank *rank, const ceni_diag *diag) {
    uint64_t peak = diag->live_peak;
    rank->device = diag->device;
    rank->moment = diag->moment;
    rank->request = diag->request;
    rank->live = diag->live;
    rank->held = diag->held;
    rank->live_peak = peak;
    rank->held_peak = diag->held_peak;
    rank->needed = diag->needed > peak ? diag->needed : peak;
    rank->verdict = diag->verdict;
    rank->next = diag->next;
    rank->truncated = diag->source->truncated;
    cen_status status = ceni_ranks_uses(ranks, rank, diag);
    return status ? status : print_sequence(rank, diag);
}

static cen_status read_rank(ceni_ranks *ranks, size_t place, const source *from,
                            const cen_explain_options *options) {
    const cen_snapshot *snapshot;
    cen_snapshot *owned;
    cen_explanation *e = NULL;
    cen_status status = open_rank(from, place, &snapshot, &owned);
    if (status) {
        return status;
    }
    status = cen_explain(snapshot, options, &e);
    if (!status && summarise(ranks, &ranks->ranks[place], &e->devices[0])) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    cen_explanation_free(e);
    cen_snapshot_free(owned);
    return status;
}

static int by_number(const void *a, const void *b) {
    const ceni_rank *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static cen_status read_ranks(ceni_ranks *ranks, const source *from,
                             const cen_explain_options *options) {
    for (size_t i = 0; i < from->count; i++) {
        ranks->ranks[i].place = i;
        cen_status status = read_rank(ranks, i, from, options);
        if (status) {
            return status;
        }
    }
    qsort(ranks->ranks, ranks->count, sizeof *ranks->ranks, by_number);
    if (ceni_ranks_judge(ranks) || ceni_ranks_compare(ranks)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    return CEN_OK;
}

/* The allocation at a place of the sequence of the device that the rank was judged by. */
static cen_status find_alloc(ceni_ranks *ranks, const cen_snapshot *snapshot, const ceni_rank *rank,
                             ceni_rank_alloc *alloc) {
    size_t seen = 0;
    for (size_t d = 0; d < cen_snapshot_device_count(snapshot); d++) {
        const cen_snapshot_device *dev = cen_snapshot_get_device(snapshot, d);
        for (size_t i = 0; dev->device == rank->device && i < dev->event_count; i++) {
            const cen_trace_event *e = &dev->events[i];
            if (e->action != CEN_ACTION_ALLOC || seen++ != ranks->equal_allocs) {
                continue;
            }
            alloc->size = e->size;
            alloc->stack = CENI_NO_INDEX;
            return e->stack == CEN_NO_STACK ? CEN_OK
                                            : ceni_ranks_stack(ranks, snapshot, e->stack,
                                                               CENI_KIND_TENSORS, &alloc->stack);
        }
    }
    return CEN_OK;
}

/* What the two ranks allocate where their sequences part. */
static cen_status show_departure(ceni_ranks *ranks, const source *from,
                                 const cen_snapshot *explained) {
    const ceni_rank *here = &ranks->ranks[ranks->explained];
    const ceni_rank *there = &ranks->ranks[ranks->reference];
    const cen_snapshot *snapshot;
    cen_snapshot *owned;
    cen_status status = open_rank(from, there->place, &snapshot, &owned);
    if (status) {
        return status;
    }
    if (find_alloc(ranks, explained, here, &ranks->here) ||
        find_alloc(ranks, snapshot, there, &ranks->there)) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    cen_snapshot_free(owned);
    return status;
}

static cen_status find_departure(ceni_ranks *ranks, const source *from,
                                 const cen_snapshot *explained) {
    ceni_ranks_find_departure(ranks);
    for (size_t i = 0; i < ranks->count; i++) {
        ceni_free(ranks->ranks[i].prefix);
        ranks->ranks[i].prefix = NULL;
    }
    return ranks->sequence == CENI_SEQUENCE_DEPARTS ? show_departure(ranks, from, explained)
                                                    : CEN_OK;
}

/* The usual explanation of the one rank, with what was found of all. */
static cen_status explain_one(ceni_ranks *ranks, const source *from, cen_explain_options *options,
                              cen_explanation **explanation) {
    const ceni_rank *rank = &ranks->ranks[ranks->explained];
    const cen_snapshot *snapshot;
    cen_snapshot *owned;
    cen_explanation *e = NULL;
    cen_status status = open_rank(from, rank->place, &snapshot, &owned);
    if (status) {
        return status;
    }
    status = find_departure(ranks, from, snapshot);
    if (!status) {
        options->name = rank->name;
        status = cen_explain(snapshot, options, &e);
    }
    if (status) {
        cen_snapshot_free(owned);
        return status;
    }
    e->owned = owned;
    e->ranks = ranks;
    *explanation = e;
    return CEN_OK;
}

static cen_status explain_ranks(const source *from, const cen_explain_options *given,
                                cen_explanation **explanation) {
    cen_explain_options options;
    cen_status status = ceni_explain_options_read(given, &options);
    if (status) {
        return status;
    }
    options.size = sizeof options;
    ceni_ranks *ranks = ceni_calloc(1, sizeof *ranks);
    if (ranks) {
        ranks->count = from->count;
        ranks->ranks = ceni_calloc(from->count, sizeof *ranks->ranks);
    }
    if (!ranks || !ranks->ranks || ceni_ranks_number(ranks, from->names)) {
        status = ceni_fail(CEN_ERR_HOST_MEMORY, "explain: out of memory");
    }
    status = status ? status : read_ranks(ranks, from, &options);
    status = status ? status : explain_one(ranks, from, &options, explanation);
    if (status) {
        ceni_ranks_free(ranks);
    }
    return status;
}

/* A list of the caller's that must have no hole. */
static cen_status check_list(const char *function, const char *list, const void *const *elements,
                             size_t count) {
    if (!elements) {
        return ceni_fail(CEN_ERR_INVALID, "%s: %s is NULL", function, list);
    }
    for (size_t i = 0; i < count; i++) {
        if (!elements[i]) {
            return ceni_fail(CEN_ERR_INVALID, "%s: %s[%zu] is NULL", function, list, i);
        }
    }
    return CEN_OK;
}

static cen_status check(const char *function, size_t count, cen_explanation *const *explanation) {
    if (count < 2) {
        return ceni_fail(CEN_ERR_INVALID, "%s: count is %zu; ranks are compared from 2 on",
                         function, count);
    }
    if (!explanation) {
        return ceni_fail(CEN_ERR_INVALID, "%s: explanation is NULL", function);
    }
    return CEN_OK;
}

cen_status cen_explain_ranks(const cen_snapshot *const *snapshots, const char *const *names,
                             size_t count, const cen_explain_options *options,
                             cen_explanation **explanation) {
    static const char function[] = "cen_explain_ranks";
    cen_status status = check(function, count, explanation);
    if (!status) {
        status = check_list(function, "snapshots", (const void *const *)snapshots, count);
    }
    if (!status) {
        status = check_list(function, "names", (const void *const *)names, count);
    }
    source from = {.snapshots = snapshots, .names = names, .count = count};
    return status ? status : explain_ranks(&from, options, explanation);
}

/* Two of the files are read twice, which a pipe cannot be. */
static cen_status check_files(const source *from) {
    for (size_t i = 0; i < from->count; i++) {
        struct stat st;
        const char *path = from->names[i];
        if (ceni_fault(CENI_FAULT_IO) ? (errno = EIO) : stat(path, &st)) {
            return ceni_fail(CEN_ERR_IO, "%s: %s", path, strerror(errno));
        }
        if (!S_ISREG(st.st_mode)) {
            return ceni_fail(CEN_ERR_INVALID, "%s: not a file; ranks are read twice", path);
        }
    }
    return CEN_OK;
}

cen_status cen_explain_rank_files(const char *const *paths, size_t count,
                                  const cen_explain_options *options,
                                  cen_explanation **explanation) {
    static const char function[] = "cen_explain_rank_files";
    cen_status status = check(function, count, explanation);
    if (!status) {
        status = check_list(function, "paths", (const void *const *)paths, count);
    }
    source from = {.names = paths, .count = count};
    if (!status) {
        status = check_files(&from);
    }
    return status ? status : explain_ranks(&from, options, explanation);
}
