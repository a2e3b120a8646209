/* What noting a block costs, measured beneath bench/bench_stacks.py: the ledger's part of it, from
 * the thread whose Python frames are of interest. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "cenote/ledger.h"

enum { LINE = 64, CLOCKS = 1000, ROUNDS_MOST = 10000 };

static volatile unsigned char *swept;
static size_t swept_bytes;

/* What a program's own work does to the caches between two blocks. */
static void sweep(size_t bytes) {
    if (bytes > swept_bytes) {
        free((void *)swept);
        swept = calloc(1, bytes);
        swept_bytes = swept ? bytes : 0;
    }
    for (size_t at = 0; at < bytes && at < swept_bytes; at += LINE) {
        swept[at]++;
    }
}

static double clock_ns(void) {
    uint64_t start = bench_now();
    for (int i = 1; i < CLOCKS; i++) {
        (void)bench_now();
    }
    return (double)(bench_now() - start) / CLOCKS;
}

/* The median of what `rounds` blocks took in nanoseconds, each noted, with its stack or without,
 * and removed. The caches are swept by `bytes` before each one. Negative: the ledger has failed. */
CEN_API double probe_notes(cen_ledger *ledger, int rounds, size_t bytes, bool with_stack) {
    static double clock, taken[ROUNDS_MOST];
    clock = clock > 0 ? clock : clock_ns();
    if (rounds < 1 || rounds > ROUNDS_MOST) {
        return -1;
    }
    for (int i = 0; i < rounds; i++) {
        cen_ledger_entry entry = {.key = 4096, .bytes = 1 << 20, .kind = CEN_LEDGER_BLOCK};
        sweep(bytes);
        uint64_t start = bench_now();
        entry.stack = with_stack ? cen_ledger_stack_here(ledger, 0) : CEN_LEDGER_NO_STACK;
        cen_status status = cen_ledger_add(ledger, &entry);
        status = status ? status : cen_ledger_remove(ledger, CEN_LEDGER_BLOCK, 0, entry.key, NULL);
        taken[i] = (double)(bench_now() - start) - clock;
        if (status) {
            return -1;
        }
    }
    return bench_measure_of(taken, (size_t)rounds).median;
}

/* ---- a thread of C's ---- */

typedef struct work {
    cen_ledger *ledger;
    int rounds;
    bool known;
    double taken;
} work;

static void find(void *function, const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &address, sizeof address);
}

static void *run(void *arg) {
    work *w = arg;
    int (*ensure)(void);
    void *(*save)(void);
    void (*restore)(void *), (*release)(int);
    find(&ensure, "PyGILState_Ensure");
    find(&save, "PyEval_SaveThread");
    find(&restore, "PyEval_RestoreThread");
    find(&release, "PyGILState_Release");
    int state = w->known ? ensure() : 0;
    void *thread = w->known ? save() : NULL;
    w->taken = probe_notes(w->ledger, w->rounds, 0, true);
    if (w->known) {
        restore(thread);
        release(state);
    }
    return NULL;
}

/* The same on a thread without Python frames. `known`: one that the interpreter knows, as those of
 * autograd's backward are. */
CEN_API double probe_thread(cen_ledger *ledger, int rounds, bool known) {
    pthread_t thread;
    work w = {.ledger = ledger, .rounds = rounds, .known = known, .taken = -1};
    if (!pthread_create(&thread, NULL, run, &w)) {
        pthread_join(thread, NULL);
    }
    return w.taken;
}
