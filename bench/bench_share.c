/* What sharing memory between processes costs: opening exports, publishing, and a reader's death.
 * The peer opens one handle for each block: the driver's own on CUDA, shm_open and mmap on the
 * host. Contents are checked after each timing.
 *
 * usage: bench_share   CENOTE_BENCH_DEVICE: "host:0" (the default), "cuda:0";
 *                      CENOTE_BENCH_MODEL: bytes of the model that is published; 20 GiB on a GPU,
 *                      else 256 MiB */
#include <pthread.h>
#include <semaphore.h>

#include "bench/share_child.h"

enum { RUNS = 7, TENSORS = 10000, EACH = 512, FURTHER = 500, MODEL_TENSORS = 300, KILLS = 11 };

#define MIB ((uint64_t)1 << 20)

typedef struct reader {
    pid_t pid;
    int socket;
} reader;

static const char *device_name;
static char folder[] = "/tmp/cenote-bench-XXXXXX", path[64];
static cen_device *device;
static cen_share *share;
static peer_handles *peer;
static bool on_gpu;
static const char *separator = "";
static sem_t idle;
static uint64_t idle_at;

static void clean_up(void) {
    if (path[0]) {
        unlink(path);
        rmdir(folder);
    }
    if (peer) {
        peer_handles_close(peer);
        peer = NULL;
    }
}

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_share: %s failed\n", what);
        exit(1);
    }
}

static void notice(void *arg, const cen_share_notice *n) {
    if (n->kind == CEN_SHARE_IDLE) {
        idle_at = bench_now();
        sem_post(&idle);
    }
}

/* ---- readers ---- */

static reader reader_start(void) {
    reader r;
    const char *arguments[3] = {"--reader", device_name, path};
    r.socket = start_child(arguments, &r.pid);
    need(r.socket >= 0, "starting a reader");
    return r;
}

static void tell(const reader *r, char what, uint32_t count, uint64_t bytes, const char *name) {
    share_order o = {.what = what, .count = count, .bytes = bytes};
    snprintf(o.name, sizeof o.name, "%s", name);
    need(send(r->socket, &o, sizeof o, MSG_NOSIGNAL) == sizeof o, "telling a reader");
}

static share_result hear(const reader *r) {
    share_result result;
    need(recv(r->socket, &result, sizeof result, 0) == sizeof result, "hearing a reader");
    need(result.ok, result.why);
    return result;
}

static share_result ask(const reader *r, char what, uint32_t count, uint64_t bytes,
                        const char *name) {
    tell(r, what, count, bytes, name);
    return hear(r);
}

static void reader_end(const reader *r) {
    int status;
    close(r->socket);
    need(waitpid(r->pid, &status, 0) == r->pid && !status, "a reader");
}

/* ---- publishing ---- */

static cen_share_set *make_set(uint64_t bytes, uint64_t page_bytes) {
    cen_share_set *set;
    need(!cen_share_set_create(share, device, bytes, page_bytes, &set), "making a set");
    return set;
}

/* A block of `count` parts of `each` bytes; part i begins with i + 1. */
static cen_addr make_block(cen_share_set *set, size_t count, uint64_t each) {
    cen_addr addr;
    need(!cen_share_alloc(set, count * each, &addr), "allocating");
    uint64_t *words = malloc(count * sizeof *words);
    need(words != NULL, "memory");
    for (size_t i = 0; i < count; i++) {
        words[i] = i + 1;
        need(!cen_copy_async(device, addr + i * each, (cen_addr)(uintptr_t)&words[i], sizeof *words,
                             0),
             "writing");
    }
    need(!cen_stream_sync(device, 0), "writing");
    free(words);
    return addr;
}

static cen_share_export_info export_block(const char *name, cen_addr addr, size_t count,
                                          uint64_t each) {
    cen_share_export_options options = {.size = sizeof options, .name = name, .synced = true};
    cen_share_export_info info;
    cen_share_item *items = calloc(count, sizeof *items);
    char(*names)[16] = calloc(count, sizeof *names);
    need(items && names, "memory");
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        items[i] = (cen_share_item){.name = names[i], .addr = addr + i * each, .bytes = each};
    }
    need(!cen_share_export(share, items, count, &options, &info), "exporting");
    free(items);
    free(names);
    return info;
}

/* `count` exports NAME/0 ... of one block each. */
static void export_each(const char *name, cen_share_set *set, size_t count) {
    char full[64];
    cen_addr *addrs = malloc(count * sizeof *addrs);
    uint64_t *words = malloc(count * sizeof *words);
    need(addrs && words, "memory");
    for (size_t i = 0; i < count; i++) {
        words[i] = i + 1;
        need(!cen_share_alloc(set, EACH, &addrs[i]), "allocating");
        need(!cen_copy_async(device, addrs[i], (cen_addr)(uintptr_t)&words[i], sizeof *words, 0),
             "writing");
    }
    need(!cen_stream_sync(device, 0), "writing");
    for (size_t i = 0; i < count; i++) {
        snprintf(full, sizeof full, "%s/%zu", name, i);
        (void)export_block(full, addrs[i], 1, EACH);
    }
    free(addrs);
    free(words);
}

static void destroy(cen_share_set *set) {
    need(!cen_share_set_destroy(set), "destroying a set");
}

/* Waits until all that readers closed is closed at the broker, too. */
static void settle(void) {
    size_t left = 1;
    while (left) {
        cen_share_list *list;
        need(!cen_share_list_read(share, &list), "listing");
        left = list->lease_count;
        cen_share_list_free(list);
        usleep(1000);
    }
}

/* ---- figures ---- */

typedef struct beside {
    const char *peer; /* NULL: none */
    bench_measure of_peer;
    double floor; /* 0: none */
    const char *reason;
    double target; /* 0: none */
} beside;

static void report(const char *what, const char *unit, bench_measure m, beside b) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, unit, m);
    if (b.peer) {
        bench_peer(stdout, b.peer, b.of_peer);
    } else {
        printf(", \"peer\": null");
    }
    if (b.floor > 0) {
        printf(", \"floor\": %.4g, \"floor_reason\": \"%s\"", b.floor, b.reason);
    }
    if (b.target > 0) {
        printf(", \"target\": %.4g", b.target);
    }
    printf("}");
    fflush(stdout);
}

/* A message to another process and its answer, in microseconds. */
static double round_trip(const reader *r) {
    enum { TRIPS = 1001 };
    static double samples[TRIPS];
    for (int i = 0; i < TRIPS; i++) {
        uint64_t start = bench_now();
        (void)ask(r, '.', 0, 0, "");
        samples[i] = us_since(start);
    }
    return bench_measure_of(samples, TRIPS).median;
}

/* Blocks of the peer, made here and opened by the reader: each one (first), or all (second). */
static share_result peer_opens(const reader *r, uint32_t count, uint64_t bytes) {
    peer_handle *handles = calloc(count, sizeof *handles);
    need(handles != NULL, "memory");
    for (uint32_t i = 0; i < count; i++) {
        need(peer_handles_make(peer, bytes, i + 1, &handles[i]), "making a peer's block");
    }
    tell(r, 'p', count, bytes, "");
    for (uint32_t i = 0; i < count; i += HANDLES_A_MESSAGE) {
        size_t left = count - i < HANDLES_A_MESSAGE ? count - i : HANDLES_A_MESSAGE;
        need(send(r->socket, &handles[i], left * sizeof *handles, MSG_NOSIGNAL) > 0,
             "telling a reader");
    }
    free(handles);
    return hear(r);
}

/* What a lookup in a table of hashes costs, under a lock that nobody else wants. */
static double lookup_ns(void) {
    enum { SLOTS = 4096, LOOKUPS = 1000000 };
    static uint64_t table[SLOTS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    volatile uint64_t sum = 0;
    uint64_t start = bench_now();
    for (uint64_t i = 0; i < LOOKUPS; i++) {
        pthread_mutex_lock(&lock);
        sum += table[i * UINT64_C(0x9e3779b97f4a7c15) >> 52];
        pthread_mutex_unlock(&lock);
    }
    return (double)(bench_now() - start) / LOOKUPS;
}

static void opens(const reader *r, double trip) {
    cen_share_set *set = make_set(4 * MIB, 0);
    cen_addr addr = make_block(set, 1, EACH);
    cen_share_export_info info = export_block(NULL, addr, 1, EACH);
    share_result peers = peer_opens(r, 64, 2 * MIB);
    report("open again in a process, by token", "ns", ask(r, 'a', 0, 0, info.token).first,
           (beside){.floor = lookup_ns(), .reason = "a lock and a lookup", .target = 1000});
    export_each("further", set, FURTHER);
    report("open a further export of a set, through the broker", "us",
           ask(r, 'e', FURTHER, 1, "further").first,
           (beside){peer_handles_name(peer), peers.first, trip,
                    "a message to another process and its answer", 20});
    destroy(set);
}

/* Fresh sets, so that each has to be mapped. */
static void first_opens(const reader *r, uint32_t pages, double trip) {
    double samples[RUNS];
    char what[96], name[64];
    cen_share_set *sets[RUNS];
    for (int run = 0; run < RUNS; run++) {
        sets[run] = make_set(pages * 2 * MIB, 2 * MIB);
        snprintf(name, sizeof name, "first-%u-%d", pages, run);
        export_each(name, sets[run], 1);
        samples[run] = ask(r, 'e', 1, 0, name).first.median / pages;
    }
    share_result peers = peer_opens(r, RUNS, 2 * MIB);
    snprintf(what, sizeof what, "first open of a set of %u %s, a page", pages,
             pages > 1 ? "pages" : "page");
    report(what, "us", bench_measure_of(samples, RUNS),
           (beside){peer_handles_name(peer), peers.first, trip / pages,
                    "a message to another process and its answer", 100});
    for (int run = 0; run < RUNS; run++) {
        destroy(sets[run]);
    }
}

static void many_tensors(const reader *r) {
    double one[RUNS], single[3];
    char name[64];
    bench_measure peers = peer_opens(r, TENSORS, EACH).second;
    peers.median /= 1000;
    peers.lowest = peers.highest = peers.median;
    for (int run = 0; run < RUNS; run++) {
        cen_share_set *set = make_set((uint64_t)TENSORS * EACH, 0);
        snprintf(name, sizeof name, "tensors-%d", run);
        (void)export_block(name, make_block(set, TENSORS, EACH), TENSORS, EACH);
        one[run] = ask(r, 'i', TENSORS, 0, name).first.median / 1000;
        destroy(set);
    }
    for (int run = 0; run < 3; run++) {
        cen_share_set *set = make_set((uint64_t)TENSORS * EACH, 0);
        snprintf(name, sizeof name, "single-%d", run);
        export_each(name, set, TENSORS);
        single[run] = ask(r, 'e', TENSORS, 0, name).second.median / 1000;
        destroy(set);
    }
    report("open 10,000 tensors of one export, each found by name", "ms",
           bench_measure_of(one, RUNS), (beside){peer_handles_name(peer), peers, 0, NULL, 50});
    report("open 10,000 exports of one tensor", "ms", bench_measure_of(single, 3),
           (beside){peer_handles_name(peer), peers, 0, NULL, 0});
}

static void publish(const reader *r, double trip) {
    const char *asked = getenv("CENOTE_BENCH_MODEL");
    uint64_t bytes = asked ? strtoull(asked, NULL, 0) : on_gpu ? 20480 * MIB : 256 * MIB;
    uint64_t each = bytes / MODEL_TENSORS / EACH * EACH;
    double samples[RUNS];
    char what[96], name[64];
    for (int run = 0; run < RUNS; run++) {
        cen_share_set *set = make_set(bytes, 0);
        cen_addr addr = make_block(set, MODEL_TENSORS, each);
        snprintf(name, sizeof name, "model-%d", run);
        (void)ask(r, 'w', MODEL_TENSORS, 0, name);
        usleep(50000); /* until it waits */
        uint64_t start = bench_now();
        (void)export_block(name, addr, MODEL_TENSORS, each);
        samples[run] = (double)(hear(r).at - start) / 1e6;
        destroy(set);
    }
    snprintf(what, sizeof what, "publish a model of %llu MiB until another process read of it",
             (unsigned long long)(bytes / MIB));
    report(what, "ms", bench_measure_of(samples, RUNS),
           (beside){.floor = 3 * trip / 1000,
                    .reason = "three messages to another process and their answers",
                    .target = 50});
}

/* A process that holds nothing: killed, until it is known to be dead. */
static double death_ms(void) {
    double samples[KILLS];
    for (int i = 0; i < KILLS; i++) {
        reader r = reader_start();
        (void)ask(&r, '.', 0, 0, "");
        uint64_t start = bench_now();
        kill(r.pid, SIGKILL);
        need(waitpid(r.pid, NULL, 0) == r.pid, "waiting for a reader");
        samples[i] = us_since(start) / 1000;
        close(r.socket);
    }
    return bench_measure_of(samples, KILLS).median;
}

static void deaths(void) {
    double samples[KILLS], floor = death_ms();
    cen_share_set *set = make_set(4 * MIB, 0);
    cen_addr addr = make_block(set, 1, EACH);
    for (int i = 0; i < KILLS; i++) {
        reader r = reader_start();
        cen_share_export_info info = export_block("held", addr, 1, EACH);
        (void)ask(&r, 'h', 0, 0, "held");
        need(!cen_share_withdraw(share, info.id), "withdrawing");
        uint64_t start = bench_now();
        kill(r.pid, SIGKILL);
        sem_wait(&idle);
        samples[i] = (double)(idle_at - start) / 1e6;
        need(waitpid(r.pid, NULL, 0) == r.pid, "waiting for a reader");
        close(r.socket);
    }
    report("kill -9 of a reader until its lease has ended", "ms", bench_measure_of(samples, KILLS),
           (beside){.floor = floor, .reason = "until its parent learns of it", .target = 100});
    destroy(set);
}

static void copies(const reader *r) {
    uint64_t bytes = on_gpu ? 1024 * MIB : 64 * MIB;
    cen_share_set *set = make_set(bytes, 0);
    (void)export_block("copied", make_block(set, 1, bytes), 1, bytes);
    share_result result = ask(r, 'b', 0, 0, "copied");
    report("copy from shared to private memory", "GB/s", result.first,
           (beside){.peer = "from private to private memory", .of_peer = result.second});
    destroy(set);
}

static bool start(void) {
    const char *arguments[3] = {"--broker", path, NULL};
    cen_share_options options = {.size = sizeof options, .socket = path, .notice = notice};
    pid_t pid;
    char byte;
    cen_device_props props;
    if (open_device(device_name, &device) || cen_device_get_props(device, &props) ||
        !props.export_fd) {
        return false;
    }
    need(mkdtemp(folder) != NULL, "making a folder");
    snprintf(path, sizeof path, "%s/broker.sock", folder);
    atexit(clean_up);
    int socket = start_child(arguments, &pid);
    need(socket >= 0 && read(socket, &byte, 1) == 1, "starting a broker");
    need(!cen_share_connect(&options, &share), "connecting");
    const char *why = peer_handles_open(device_name, &peer);
    need(!why, why ? why : "");
    return true;
}

int main(int argc, char **argv) {
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    if (argc == 5 && !strcmp(argv[1], "--reader")) {
        return reader_main(argv);
    }
    if (argc == 4 && !strcmp(argv[1], "--broker")) {
        return broker_main(argv);
    }
    device_name = getenv("CENOTE_BENCH_DEVICE");
    device_name = device_name ? device_name : "host:0";
    on_gpu = !strncmp(device_name, "cuda", 4);
    sem_init(&idle, 0, 0);
    if (!start()) {
        fprintf(stderr, "bench_share: skipped: no such device, or one whose pages stay its own\n");
        return 77;
    }
    reader r = reader_start();
    double trip = round_trip(&r);
    printf("{\"name\": \"share\", \"figures\": [");
    opens(&r, trip);
    first_opens(&r, 1, trip);
    first_opens(&r, 64, trip);
    many_tensors(&r);
    settle();
    publish(&r, trip);
    deaths();
    copies(&r);
    printf("\n]}\n");
    reader_end(&r);
    cen_share_disconnect(share);
    cen_device_close(device);
    return 0;
}
