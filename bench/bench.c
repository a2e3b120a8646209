#include "bench/bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "bench/pattern.h"

/* A round of pairs is long beside starting it, and short beside the time slice of another program,
 * which then spoils few rounds. With several threads it lasts longer than a slice, so that they are
 * preempted as they would be. */
enum { ROUND_NS = 500000, ROUND_NS_THREADS = 4000000 };
enum { ROUNDS = 41, WARM_UP = 1000, PAIRS_LEAST = 500, PAIRS_MOST = 200000 };

uint64_t bench_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_measure bench_measure_of(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, order);
    return (bench_measure){samples[count / 2], samples[0], samples[count - 1]};
}

typedef struct member member;

/* What the threads of one measurement share. The first thread takes the time between rounds, while
 * the others wait at the barrier. */
typedef struct crew {
    pthread_barrier_t barrier;
    void (*work)(member *m);
    int threads, warm_ups, rounds;
    size_t size;
    int count; /* of pairs or steps in this round, for each thread */
    double samples[ROUNDS];
    member *members;
} crew;

struct member {
    crew *crew;
    const bench_allocator *allocator;
    uint64_t start, end;
    bool failed;
    /* of the pattern */
    uint64_t random, addrs[PATTERN_SLOTS];
    size_t sizes[PATTERN_SLOTS], filled;
};

static void do_pairs(member *m) {
    const bench_allocator *a = m->allocator;
    size_t size = m->crew->size;
    for (int i = 0; i < m->crew->count; i++) {
        uint64_t addr = a->alloc(a->state, size);
        if (!addr) {
            m->failed = true;
            return;
        }
        a->release(a->state, addr, size);
    }
}

static void fill(member *m) {
    const bench_allocator *a = m->allocator;
    for (m->random = PATTERN_SEED; m->filled < PATTERN_SLOTS && !m->failed; m->filled++) {
        m->sizes[m->filled] = pattern_size(&m->random);
        m->addrs[m->filled] = a->alloc(a->state, m->sizes[m->filled]);
        m->failed = !m->addrs[m->filled];
    }
}

static void do_pattern(member *m) {
    const bench_allocator *a = m->allocator;
    for (int i = 0; i < m->crew->count && !m->failed; i++) {
        size_t slot = pattern_slot(&m->random), size = pattern_size(&m->random);
        a->release(a->state, m->addrs[slot], m->sizes[slot]);
        m->addrs[slot] = a->alloc(a->state, size);
        m->sizes[slot] = size;
        m->failed = !m->addrs[slot];
    }
}

static void empty(member *m) {
    for (size_t slot = 0; slot < m->filled; slot++) {
        if (m->addrs[slot]) {
            m->allocator->release(m->allocator->state, m->addrs[slot], m->sizes[slot]);
        }
    }
}

/* The time of a round, from the first start to the last end, becomes its sample; after one that
 * warms up, the number of pairs. */
static void note(crew *c, int round) {
    uint64_t start = UINT64_MAX, end = 0;
    for (int i = 0; i < c->threads; i++) {
        start = c->members[i].start < start ? c->members[i].start : start;
        end = c->members[i].end > end ? c->members[i].end : end;
    }
    double each = (double)(end - start) / ((double)c->count * c->threads);
    if (round >= 0) {
        c->samples[round] = each;
        return;
    }
    double count = (c->threads > 1 ? ROUND_NS_THREADS : ROUND_NS) / (each * c->threads);
    c->count = count > PAIRS_MOST ? PAIRS_MOST : count < PAIRS_LEAST ? PAIRS_LEAST : (int)count;
}

/* Spreads threads over the processors that the process may use: left alone, those woken at a
 * barrier may share the waker's for a whole round. */
static void pin(int number) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) || !CPU_COUNT(&all)) {
        return;
    }
    int left = number % CPU_COUNT(&all);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && !left--) {
            CPU_SET(cpu, &one);
        }
    }
    (void)pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *serve(void *arg) {
    member *m = arg;
    crew *c = m->crew;
    if (c->threads > 1) {
        pin((int)(m - c->members));
    }
    if (m->allocator->attach) {
        m->allocator->attach(m->allocator->state);
    }
    if (c->work == do_pattern) {
        fill(m);
    }
    for (int round = -c->warm_ups; round < c->rounds; round++) {
        pthread_barrier_wait(&c->barrier);
        m->start = bench_now();
        c->work(m);
        m->end = bench_now();
        pthread_barrier_wait(&c->barrier);
        if (m == c->members) {
            note(c, round);
        }
    }
    empty(m);
    return NULL;
}

static bool run(crew *c, const bench_allocator *allocators, bench_measure *ns) {
    pthread_t ids[BENCH_THREADS];
    bool ok = true;
    c->members = calloc((size_t)c->threads, sizeof *c->members);
    if (!c->members) {
        return false;
    }
    pthread_barrier_init(&c->barrier, NULL, (unsigned)c->threads);
    for (int i = 0; i < c->threads; i++) {
        c->members[i].crew = c;
        c->members[i].allocator = &allocators[i];
        if (pthread_create(&ids[i], NULL, serve, &c->members[i])) {
            abort(); /* the others would wait for it for ever */
        }
    }
    for (int i = 0; i < c->threads; i++) {
        pthread_join(ids[i], NULL);
        ok &= !c->members[i].failed;
    }
    pthread_barrier_destroy(&c->barrier);
    free(c->members);
    *ns = bench_measure_of(c->samples, (size_t)c->rounds);
    return ok;
}

bool bench_pairs(const bench_allocator *allocators, int threads, size_t size, bench_measure *ns) {
    crew c = {.work = do_pairs,
              .threads = threads,
              .warm_ups = 2,
              .rounds = ROUNDS,
              .size = size,
              .count = WARM_UP};
    return run(&c, allocators, ns);
}

bool bench_pattern(const bench_allocator *allocators, int threads, bench_measure *ns) {
    crew c = {.work = do_pattern,
              .threads = threads,
              .rounds = PATTERN_STEPS / PATTERN_CHUNK,
              .count = PATTERN_CHUNK};
    return run(&c, allocators, ns);
}

void bench_figure(FILE *out, const char *what, const char *unit, bench_measure measure) {
    fprintf(out, "{\"what\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, \"spread\": [%.6g, %.6g]",
            what, unit, measure.median, measure.lowest, measure.highest);
}

void bench_peer(FILE *out, const char *name, bench_measure measure) {
    fprintf(out, ", \"peer\": {\"name\": \"%s\", \"median\": %.6g, \"spread\": [%.6g, %.6g]}", name,
            measure.median, measure.lowest, measure.highest);
}
