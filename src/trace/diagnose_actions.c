/* What to do first: up to three changes, by the bytes they save, each marked.
 *
 * Computed: the bytes are in the file and the change frees exactly them. Guess: a rule of thumb,
 * stated in docs/explain.md. The remedy of the verdict itself always has a place. */
#include "trace/diagnose.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOSS_CHUNKS = 8, OFFERS = 16 };
/* Owners below this part of what is needed are not worth a change. */
static const double MIN_PART = 0.05;

typedef struct offers {
    ceni_action all[OFFERS];
    size_t count;
} offers;

static void offer(offers *o, uint64_t bytes, ceni_mark mark, bool needed, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void offer(offers *o, uint64_t bytes, ceni_mark mark, bool needed, const char *format, ...) {
    if (!bytes || o->count == OFFERS) {
        return;
    }
    ceni_action *a = &o->all[o->count++];
    *a = (ceni_action){.bytes = bytes, .mark = mark, .needed = needed};
    va_list args;
    va_start(args, format);
    vsnprintf(a->text, sizeof a->text, format, args);
    va_end(args);
}

static void place(char *text, size_t size, const cen_frame *user) {
    if (user && !*user->file) {
        snprintf(text, size, "%s", user->function);
    } else if (user) {
        snprintf(text, size, "%s:%u", ceni_base_name(user->file), user->line);
    } else {
        snprintf(text, size, "no frames");
    }
}

/* The bytes of a kind; `at` gets the places of its first owners. */
static uint64_t of_kind(const ceni_diag *diag, ceni_kind kind, char *at, size_t size) {
    uint64_t bytes = 0;
    size_t used = 0, named = 0;
    at[0] = '\0';
    for (size_t i = 0; i < diag->owner_count; i++) {
        const ceni_owner *owner = &diag->owners[i];
        if (owner->kind != kind) {
            continue;
        }
        bytes += owner->bytes;
        bool worth = (double)owner->bytes >= MIN_PART * (double)diag->needed;
        if (named < 2 && worth && used < size) {
            char one[96];
            place(one, sizeof one, owner->user);
            used += (size_t)snprintf(at + used, size - used, "%s%s", named++ ? ", " : "", one);
        }
    }
    return named ? bytes : 0;
}

static void offer_owners(const ceni_diag *diag, offers *o) {
    char at[160], recomputed[160];
    uint64_t bytes = of_kind(diag, CENI_KIND_LOSS, at, sizeof at);
    offer(o, bytes - bytes / LOSS_CHUNKS, CENI_COMPUTED, false,
          "compute the loss in %d chunks (%s)", LOSS_CHUNKS, at);
    bytes = of_kind(diag, CENI_KIND_ACTIVATIONS, at, sizeof at);
    if (!of_kind(diag, CENI_KIND_RECOMPUTED, recomputed, sizeof recomputed)) {
        offer(o, bytes / 2, CENI_GUESS, false, "checkpoint activations (%s)", at);
    }
    bytes = of_kind(diag, CENI_KIND_OPTIMIZER_STATE, at, sizeof at);
    offer(o, bytes - bytes / 4, CENI_GUESS, false, "keep the optimizer's state in 8 bits (%s)", at);
    bytes = of_kind(diag, CENI_KIND_OPTIMIZER, at, sizeof at);
    offer(o, bytes, CENI_GUESS, false, "foreach=False in the optimizer (%s)", at);
}

static void offer_leak(const ceni_diag *diag, offers *o) {
    if (diag->verdict != CEN_VERDICT_LEAK) {
        return;
    }
    for (size_t i = 0; i < diag->suspect_count && i < 2; i++) {
        const ceni_suspect *s = &diag->suspects[i];
        char at[96];
        place(at, sizeof at, ceni_user_frame(diag->snapshot, s->stack));
        offer(o, s->bytes, CENI_COMPUTED, i == 0,
              s->block_size <= 512 && ceni_is_torch(diag)
                  ? "keep numbers (.item()), not tensors from %s"
                  : "let go of what is allocated at %s",
              at);
    }
}

/* Against fragmentation; where another allocator was recorded nothing is known that would help. */
static void offer_packing(const ceni_diag *diag, offers *o) {
    const char *expandable =
        diag->snapshot ? cen_snapshot_setting(diag->snapshot, "expandable_segments") : NULL;
    bool on = expandable && !strcmp(expandable, "True");
    uint64_t held = diag->moment == CENI_MOMENT_PEAK ? diag->held_peak : diag->held;
    uint64_t holes = held > diag->live ? held - diag->live : 0;
    if (ceni_is_torch(diag)) {
        offer(o, holes, on ? CENI_GUESS : CENI_COMPUTED, true,
              on ? "torch.cuda.empty_cache() between phases that differ"
                 : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    } else if (ceni_origin_of(diag->snapshot) == CENI_ORIGIN_CENOTE) {
        offer(o, holes, CENI_GUESS, true,
              "make blocks movable (cen_movable_alloc), then cen_pool_defragment");
    }
}

static void offer_holes(const ceni_diag *diag, offers *o) {
    if (diag->verdict == CEN_VERDICT_FRAGMENTATION) {
        offer_packing(diag, o);
    }
    for (size_t i = 0; i < diag->stream_count && diag->verdict == CEN_VERDICT_STRANDED_STREAM;
         i++) {
        if (diag->streams[i].stream != diag->request_stream) {
            offer(o, diag->streams[i].holes, CENI_COMPUTED, true,
                  "free all of stream %" PRIu64 "'s blocks, or allocate on one stream",
                  diag->streams[i].stream);
            break;
        }
    }
    bool stranded = diag->verdict == CEN_VERDICT_STRANDED_POOL;
    if (stranded || (double)diag->in_pools >= MIN_PART * (double)diag->needed) {
        offer(o, diag->in_pools, CENI_COMPUTED, stranded,
              "release the private pools (CUDA graphs), or share one");
    }
}

static void offer_outside(const ceni_diag *diag, offers *o) {
    if (diag->verdict != CEN_VERDICT_OUTSIDE) {
        return;
    }
    if (diag->process_count) {
        offer(o, diag->processes[0].bytes, CENI_COMPUTED, true,
              "stop process %" PRIu64 ", or use another device", diag->processes[0].pid);
    } else {
        offer(o, diag->outside ? diag->outside : diag->over, CENI_COMPUTED, true,
              "stop the others on the device (nvidia-smi names them)");
    }
}

static void offer_capacity(const ceni_diag *diag, offers *o) {
    bool trains = ceni_is_torch(diag);
    const char *by = trains ? " (batch, length)" : "";
    if (diag->growth > 0 && diag->verdict != CEN_VERDICT_LEAK) {
        offer(o, (uint64_t)diag->growth, CENI_COMPUTED, false,
              trains ? "keep the batch or length of the step before"
                     : "keep the sizes of the step before");
    }
    if (diag->verdict == CEN_VERDICT_CAPACITY && diag->over && diag->owner_count) {
        const cen_frame *user = diag->owners[0].user;
        char at[96];
        place(at, sizeof at, user);
        offer(o, diag->over, CENI_COMPUTED, o->count == 0,
              user ? "shrink what is needed (most is from %s)" : "shrink what is needed%s",
              user ? at : by);
    } else if (diag->verdict == CEN_VERDICT_CAPACITY && diag->over) {
        offer(o, diag->over, CENI_COMPUTED, true, "shrink what is needed%s", by);
    }
}

static int by_bytes(const void *a, const void *b) {
    const ceni_action *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : -(x->bytes > y->bytes);
}

void ceni_diagnose_actions(ceni_diag *diag) {
    offers o = {.count = 0};
    if (diag->verdict == CEN_VERDICT_HEALTHY && diag->next != CEN_VERDICT_CAPACITY) {
        return;
    }
    bool failed = diag->moment == CENI_MOMENT_FAILED;
    if (diag->verdict == CEN_VERDICT_CAPACITY ||
        (diag->verdict == CEN_VERDICT_FRAGMENTATION && failed) ||
        (diag->verdict == CEN_VERDICT_HEALTHY)) {
        offer_owners(diag, &o);
    }
    offer_leak(diag, &o);
    offer_holes(diag, &o);
    offer_outside(diag, &o);
    offer_capacity(diag, &o);
    qsort(o.all, o.count, sizeof *o.all, by_bytes);
    size_t wanted = 0;
    for (size_t i = 0; i < o.count; i++) {
        wanted += o.all[i].needed;
    }
    for (size_t i = 0; i < o.count && diag->action_count < CENI_ACTIONS; i++) {
        size_t left = CENI_ACTIONS - diag->action_count;
        if (o.all[i].needed || left > wanted) {
            diag->actions[diag->action_count++] = o.all[i];
            wanted -= o.all[i].needed;
        }
    }
}
