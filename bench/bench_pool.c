/* What an allocation and its free cost on a warm pool, by size and by threads, beside the driver's
 * stream-ordered pool on a GPU, and beside glibc's malloc, which gives out memory of the host and
 * keeps no stream order, elsewhere.
 *
 * usage: bench_pool   CENOTE_BENCH_DEVICE: "cuda:0" where there is a GPU, else "host". On the host
 * backend streams run inline and the memory is never touched. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/peers/async.h"
#include "cenote/cenote.h"

#define CAPACITY    ((uint64_t)64 << 30) /* of the host device: the pattern of eight threads fits */
#define HOST_TARGET 60.0                 /* nanoseconds a pair */

typedef struct user {
    cen_pool *pool;
    cen_stream stream;
} user;

static cen_device *device;
static cen_pool *pool;
static bool on_gpu;
static bench_allocator driver_pool; /* on a GPU */
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_pool: %s failed\n", what);
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_pool: %s\n", message);
}

static uint64_t pool_alloc(void *state, size_t size) {
    const user *u = state;
    void *block = NULL;
    return cen_pool_alloc(u->pool, size, u->stream, &block) ? 0 : (uint64_t)(uintptr_t)block;
}

static void pool_release(void *state, uint64_t addr, size_t size) {
    (void)size;
    const user *u = state;
    (void)cen_pool_free(u->pool, (void *)(uintptr_t)addr, u->stream);
}

static uint64_t malloc_alloc(void *state, size_t size) {
    (void)state;
    return (uint64_t)(uintptr_t)malloc(size);
}

static void malloc_release(void *state, uint64_t addr, size_t size) {
    (void)state;
    (void)size;
    free((void *)(uintptr_t)addr);
}

/* --- the floor: what every pair does at least, without any bookkeeping of blocks --- */

static struct floor_state {
    _Alignas(64) atomic_flag lock;
    _Atomic(void *) streams[64];
    _Atomic(void *) *_Atomic index;
    uint32_t live;
} ground = {.lock = ATOMIC_FLAG_INIT};

/* Finds a stream, takes a lock that nobody wants, changes one word under it. */
static uint64_t __attribute__((noinline)) floor_half(struct floor_state *f, uint64_t key) {
    uint64_t slot = key * 0x9E3779B97F4A7C15u >> 58;
    uint64_t found =
        (uint64_t)(uintptr_t)atomic_load_explicit(&f->streams[slot], memory_order_acquire);
    while (atomic_flag_test_and_set_explicit(&f->lock, memory_order_acquire)) {
    }
    f->live ^= 1;
    atomic_flag_clear_explicit(&f->lock, memory_order_release);
    return found + 512;
}

static uint64_t floor_alloc(void *state, size_t size) {
    (void)state;
    return floor_half(&ground, size);
}

/* The same, behind two dependent loads: whose block this is. */
static void floor_release(void *state, uint64_t addr, size_t size) {
    (void)state;
    _Atomic(void *) *leaf = atomic_load_explicit(&ground.index, memory_order_acquire);
    void *owner = atomic_load_explicit(&leaf[addr >> 9 & 63], memory_order_acquire);
    (void)floor_half(&ground, size + (uint64_t)(uintptr_t)owner);
}

static double measure_floor(void) {
    const bench_allocator allocator = {"floor", NULL, floor_alloc, floor_release, NULL};
    bench_measure ns;
    ground.index = ground.streams;
    need(bench_pairs(&allocator, 1, 512, &ns), "measuring the floor");
    return ns.median;
}

/* --- correctness, before and after anything is timed --- */

static int order(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Many blocks of a size: apart from each other, aligned, freed once only; leaves the pool warm. */
static void check_size(cen_stream stream, size_t size) {
    enum { MOST = 64 };
    uintptr_t at[MOST];
    int count = size > (8 << 20) ? 8 : MOST;
    size_t bytes;
    for (int i = 0; i < count; i++) {
        void *block;
        need(!cen_pool_alloc(pool, size, stream, &block), "allocating");
        need(!cen_pool_block_size(pool, block, &bytes) && bytes == size, "the size of a block");
        at[i] = (uintptr_t)block;
    }
    need(!cen_pool_verify(pool), "checking the pool with blocks");
    qsort(at, (size_t)count, sizeof *at, order);
    for (int i = 0; i < count; i++) {
        need(at[i] % CEN_POOL_ALIGNMENT == 0, "an aligned address");
        need(!i || at[i] - at[i - 1] >= size, "blocks apart from each other");
    }
    for (int i = 0; i < count; i++) {
        need(!cen_pool_free(pool, (void *)at[i], stream), "freeing");
    }
    cen_log_set(NULL, NULL, CEN_LOG_ERROR); /* which the next call would use */
    need(cen_pool_free(pool, (void *)at[0], stream) == CEN_ERR_DOUBLE_FREE, "a second free");
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
}

static void check_pool(void) {
    cen_pool_stats stats;
    need(!cen_pool_verify(pool), "checking the pool");
    need(!cen_pool_get_stats(pool, &stats) && !stats.blocks && !stats.requested_bytes,
         "freeing everything");
}

/* --- the measurements --- */

static void print(const char *what, bench_measure ns, const bench_allocator *peer,
                  bench_measure peer_ns, double target) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, "ns", ns);
    bench_peer(stdout, peer->name, peer_ns);
    if (target > 0) {
        printf(", \"target\": %.4g", target);
    }
    printf(", \"floor\": %.4g, \"floor_reason\": \"two lock operations and four loads, in cache\"}",
           measure_floor());
}

/* size 0: the mixed pattern. */
static bench_measure measure(const bench_allocator *allocators, int threads, size_t size) {
    bench_measure ns;
    bool ok = size ? bench_pairs(allocators, threads, size, &ns)
                   : bench_pattern(allocators, threads, &ns);
    need(ok, allocators->name);
    return ns;
}

static bench_measure measure_peer(int threads, bool own_streams, size_t size,
                                  bench_allocator *peer) {
    bench_allocator peers[BENCH_THREADS];
    *peer = on_gpu ? driver_pool
                   : (bench_allocator){"glibc malloc", NULL, malloc_alloc, malloc_release, NULL};
    for (int i = 0; i < threads; i++) {
        peers[i] = *peer;
        need(!on_gpu || peer_async_copy(&driver_pool, own_streams, &peers[i]), "copying the peer");
    }
    bench_measure ns = measure(peers, threads, size);
    for (int i = 0; on_gpu && i < threads; i++) {
        peer_async_close(&peers[i]);
    }
    return ns;
}

/* Returns the median. target 0: on the host HOST_TARGET, on a GPU a tenth of the peer. */
static double compare(const char *what, int threads, bool own_streams, size_t size, double target) {
    user users[BENCH_THREADS] = {{0}};
    bench_allocator own[BENCH_THREADS] = {{0}}, peer;
    for (int i = 0; i < threads; i++) {
        users[i] = (user){pool, 0};
        if (own_streams || !i) {
            need(!cen_stream_create(device, 0, &users[i].stream), "making a stream");
        } else {
            users[i].stream = users[0].stream;
        }
        own[i] = (bench_allocator){"the pool", &users[i], pool_alloc, pool_release, NULL};
        if (size) {
            check_size(users[i].stream, size);
        }
    }
    bench_measure ns = measure(own, threads, size);
    check_pool();
    bench_measure peer_ns = measure_peer(threads, own_streams, size, &peer);
    print(what, ns, &peer, peer_ns,
          target != 0 ? target
          : on_gpu    ? peer_ns.median / 10
                      : HOST_TARGET);
    for (int i = 0; i < threads; i++) {
        if (own_streams || !i) {
            need(!cen_pool_stream_release(pool, users[i].stream), "releasing a stream");
            need(!cen_stream_destroy(device, users[i].stream), "destroying a stream");
        }
    }
    return ns.median;
}

static void open_pool(void) {
    need(!cen_pool_create(device, NULL, &pool), "creating a pool");
}

static void close_pool(void) {
    check_pool();
    need(!cen_pool_destroy(pool), "destroying the pool");
}

static void each_size(void) {
    static const struct {
        size_t size;
        const char *what;
    } cases[] = {
        {512, "alloc + free, 512 B"},       {4 << 10, "alloc + free, 4 KiB"},
        {64 << 10, "alloc + free, 64 KiB"}, {1 << 20, "alloc + free, 1 MiB"},
        {2 << 20, "alloc + free, 2 MiB"},   {64 << 20, "alloc + free, 64 MiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_pool(); /* which then knows of one stream */
        (void)compare(cases[i].what, 1, true, cases[i].size, 0);
        close_pool();
    }
}

/* Eight threads shall not pay more a pair than two. */
static void threads_together(void) {
    static const struct {
        size_t size;
        const char *what;
    } cases[] = {{4 << 10, "alloc + free, 4 KiB"}, {2 << 20, "alloc + free, 2 MiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int own = 1; own >= 0; own--) {
            double two = -1;
            open_pool();
            for (int threads = 2; threads <= BENCH_THREADS; threads *= 4) {
                char what[96];
                snprintf(what, sizeof what, "%s, %d threads, %s", cases[i].what, threads,
                         own ? "a stream each" : "one stream");
                two = compare(what, threads, own, cases[i].size, two);
            }
            close_pool();
        }
    }
}

static void patterns(void) {
    static const int threads[] = {1, 2, BENCH_THREADS};
    double two = -1;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        char what[64];
        snprintf(what, sizeof what, "mixed pattern, a pair, %d thread%s", threads[i],
                 threads[i] > 1 ? "s" : "");
        open_pool();
        two = compare(what, threads[i], true, 0, threads[i] == BENCH_THREADS ? two : -1);
        close_pool();
    }
}

int main(void) {
    const char *name = getenv("CENOTE_BENCH_DEVICE");
    int gpus = 0;
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    need(!cen_device_count("cuda", &gpus), "counting GPUs");
    name = name ? name : gpus ? "cuda:0" : "host";
    on_gpu = !strncmp(name, "cuda", 4);
    if (on_gpu) {
        const char *colon = strchr(name, ':');
        int ordinal = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
        const char *why = peer_async_open(ordinal, &driver_pool);
        if (why || cen_device_open(name, &device)) {
            fprintf(stderr, "bench_pool: skipped: %s\n", why ? why : "no such device");
            return 77;
        }
    } else {
        cen_host_options options = {
            .size = sizeof options, .capacity = CAPACITY, .inline_streams = true};
        need(!cen_device_open_host(0, &options, &device), "opening the host device");
    }
    printf("{\"name\": \"pool\", \"figures\": [");
    each_size();
    threads_together();
    patterns();
    printf("\n]}\n");
    if (on_gpu) {
        peer_async_close(&driver_pool);
    }
    cen_device_close(device);
    return 0;
}
