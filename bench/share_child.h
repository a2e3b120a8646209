/* The other processes of bench_share: itself, started anew, since a forked child could not use
 * CUDA. A reader gets orders over a socket and answers each with what it measured. */
#ifndef CENOTE_BENCH_SHARE_CHILD_H
#define CENOTE_BENCH_SHARE_CHILD_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/peers/handles.h"
#include "cenote/cenote.h"

enum { SHARE_SAMPLES = 16384, HANDLES_A_MESSAGE = 256 };

typedef struct share_order {
    char what; /* a letter of share_tasks */
    uint32_t count;
    uint64_t bytes; /* of an item */
    char name[CEN_SHARE_TOKEN_SIZE];
} share_order;

typedef struct share_result {
    bool ok;
    char why[128];
    uint64_t at; /* when what was waited for had come */
    bench_measure first, second;
} share_result;

typedef struct share_reader {
    int socket;
    const char *name;
    cen_device *device;
    cen_share *share;
    peer_handles *peer;
    share_result result;
} share_reader;

static double samples_of[SHARE_SAMPLES];

#define TRY(reader, call)                                                                          \
    do {                                                                                           \
        cen_status try_status = (call);                                                            \
        if (try_status) {                                                                          \
            snprintf((reader)->result.why, sizeof(reader)->result.why, "%s: %s", #call,            \
                     cen_status_text(try_status));                                                 \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool share_fail(share_reader *r, const char *why) {
    snprintf(r->result.why, sizeof r->result.why, "%s", why);
    return false;
}

static double us_since(uint64_t start) {
    return (double)(bench_now() - start) / 1000;
}

/* Whether the block at `addr` begins with that word, as its publisher wrote it. */
static bool holds(share_reader *r, cen_addr addr, uint64_t word) {
    uint64_t seen = 0;
    TRY(r, cen_copy_async(r->device, (cen_addr)(uintptr_t)&seen, addr, sizeof seen, 0));
    TRY(r, cen_stream_sync(r->device, 0));
    return seen == word ? true : share_fail(r, "the contents are others");
}

/* Item i of a view begins with i + 1. */
static bool view_holds(share_reader *r, cen_share_view *view, size_t i, uint64_t word) {
    cen_share_item item;
    TRY(r, cen_share_wait(view, 0));
    TRY(r, cen_share_view_item(view, i, &item));
    return holds(r, item.addr, word);
}

/* Opening what is open: `second` is the floor, a lock and a lookup. */
static bool open_again(share_reader *r, const share_order *o) {
    enum { ROUNDS = 41, OPENS = 1000 };
    static cen_share_view *views[OPENS];
    cen_share_view *first;
    TRY(r, cen_share_open(r->share, r->device, o->name, 0, 0, &first));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = bench_now();
        for (int i = 0; i < OPENS; i++) {
            TRY(r, cen_share_open(r->share, r->device, o->name, 0, 0, &views[i]));
        }
        samples_of[round] = us_since(start) * 1000 / OPENS;
        if (!view_holds(r, views[OPENS - 1], 0, 1)) {
            return false;
        }
        for (int i = 0; i < OPENS; i++) {
            TRY(r, cen_share_close(views[i], 0));
        }
    }
    r->result.first = bench_measure_of(samples_of, ROUNDS);
    TRY(r, cen_share_close(first, 0));
    return true;
}

/* Opens NAME/0 ...: `first` is each, without the one before which nothing of the set was open if
 * `bytes` says that there is one; `second` is their sum in one sample. */
static bool open_each(share_reader *r, const share_order *o) {
    cen_share_view **views = calloc(o->count, sizeof *views);
    char name[CEN_SHARE_NAME_MAX];
    double sum = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        snprintf(name, sizeof name, "%s/%u", o->name, i);
        uint64_t start = bench_now();
        TRY(r, cen_share_open(r->share, r->device, name, 0, 0, &views[i]));
        samples_of[i] = us_since(start);
        sum += samples_of[i];
    }
    for (uint32_t i = 0; i < o->count; i++) {
        if (!view_holds(r, views[i], 0, i + 1)) {
            return false;
        }
        TRY(r, cen_share_close(views[i], 0));
    }
    free(views);
    r->result.first = bench_measure_of(samples_of + o->bytes, o->count - o->bytes);
    r->result.second = (bench_measure){sum, sum, sum};
    return true;
}

/* One export of `count` items, each found by name: `first` in all. */
static bool open_items(share_reader *r, const share_order *o) {
    cen_share_item *items = calloc(o->count, sizeof *items);
    char(*names)[16] = calloc(o->count, sizeof *names);
    cen_share_view *view;
    for (uint32_t i = 0; i < o->count; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%u", i);
    }
    uint64_t start = bench_now();
    TRY(r, cen_share_open(r->share, r->device, o->name, 0, 0, &view));
    for (uint32_t i = 0; i < o->count; i++) {
        TRY(r, cen_share_view_find(view, names[i], &items[i]));
    }
    double us = us_since(start);
    for (uint32_t i = 0; i < o->count; i++) {
        if (!holds(r, items[i].addr, i + 1)) {
            return false;
        }
    }
    TRY(r, cen_share_close(view, 0));
    free(items);
    free(names);
    r->result.first = (bench_measure){us, us, us};
    return true;
}

static bool say(share_reader *r) {
    return send(r->socket, &r->result, sizeof r->result, MSG_NOSIGNAL) == sizeof r->result;
}

/* Waits for a name, and reads the first bytes of what it gets. */
static bool wait_for(share_reader *r, const share_order *o) {
    cen_share_view *view;
    uint64_t word = 0;
    cen_share_item item;
    r->result.ok = true;
    if (!say(r)) {
        return false;
    }
    TRY(r, cen_share_open(r->share, r->device, o->name, 0, 60000, &view));
    TRY(r, cen_share_wait(view, 0));
    TRY(r, cen_share_view_item(view, 0, &item));
    TRY(r, cen_copy_async(r->device, (cen_addr)(uintptr_t)&word, item.addr, sizeof word, 0));
    TRY(r, cen_stream_sync(r->device, 0));
    r->result.at = bench_now();
    for (uint32_t i = 0; i < o->count; i++) {
        if (!view_holds(r, view, i, i + 1)) {
            return false;
        }
    }
    TRY(r, cen_share_close(view, 0));
    return word == 1 ? true : share_fail(r, "the contents are others");
}

static bool hold(share_reader *r, const share_order *o) {
    cen_share_view *view; /* until the process is killed */
    TRY(r, cen_share_open(r->share, r->device, o->name, 0, 0, &view));
    return view_holds(r, view, 0, 1);
}

/* GB/s of copies, by the device's clock. */
static bool copy_rate(share_reader *r, cen_addr to, cen_addr from, uint64_t bytes, double *rate) {
    enum { COPIES = 10 };
    cen_event start, end;
    float ms;
    TRY(r, cen_event_create(r->device, CEN_EVENT_TIMING, &start));
    TRY(r, cen_event_create(r->device, CEN_EVENT_TIMING, &end));
    TRY(r, cen_event_record(r->device, start, 0));
    for (int i = 0; i < COPIES; i++) {
        TRY(r, cen_copy_async(r->device, to, from, bytes, 0));
    }
    TRY(r, cen_event_record(r->device, end, 0));
    TRY(r, cen_event_sync(r->device, end));
    TRY(r, cen_event_elapsed(r->device, start, end, &ms));
    TRY(r, cen_event_destroy(r->device, start));
    TRY(r, cen_event_destroy(r->device, end));
    *rate = (double)bytes * COPIES / ((double)ms * 1e6);
    return true;
}

/* From the mapping of an export, and beside it from private memory, to private memory. */
static bool bandwidth(share_reader *r, const share_order *o) {
    enum { RUNS = 9 };
    double shared[RUNS], own[RUNS], warm;
    void *from, *to;
    cen_pool *pool;
    cen_share_view *view;
    cen_share_item item;
    TRY(r, cen_share_open(r->share, r->device, o->name, 0, 0, &view));
    TRY(r, cen_share_wait(view, 0));
    TRY(r, cen_share_view_item(view, 0, &item));
    TRY(r, cen_pool_create(r->device, NULL, &pool));
    TRY(r, cen_pool_alloc(pool, item.bytes, 0, &from));
    TRY(r, cen_pool_alloc(pool, item.bytes, 0, &to));
    cen_addr own_addr = (cen_addr)(uintptr_t)from, to_addr = (cen_addr)(uintptr_t)to;
    TRY(r, cen_fill_async(r->device, own_addr, 1, item.bytes, 0));
    bool ok = copy_rate(r, to_addr, item.addr, item.bytes, &warm);
    for (int run = 0; ok && run < RUNS; run++) {
        ok = copy_rate(r, to_addr, own_addr, item.bytes, &own[run]) &&
             copy_rate(r, to_addr, item.addr, item.bytes, &shared[run]);
    }
    ok = ok && holds(r, to_addr, 1);
    TRY(r, cen_pool_free(pool, from, 0));
    TRY(r, cen_pool_free(pool, to, 0));
    TRY(r, cen_pool_destroy(pool));
    TRY(r, cen_share_close(view, 0));
    if (ok) {
        r->result.first = bench_measure_of(shared, RUNS);
        r->result.second = bench_measure_of(own, RUNS);
    }
    return ok;
}

/* The peer's blocks, whose handles come next: `first` is each of them, `second` all. */
static bool open_handles(share_reader *r, const share_order *o) {
    peer_handle *handles = calloc(o->count, sizeof *handles);
    uint64_t *addrs = calloc(o->count, sizeof *addrs), word;
    double sum = 0;
    const char *why = r->peer ? NULL : peer_handles_open(r->name, &r->peer);
    for (size_t i = 0; i < o->count; i += HANDLES_A_MESSAGE) {
        size_t left = o->count - i < HANDLES_A_MESSAGE ? o->count - i : HANDLES_A_MESSAGE;
        if (recv(r->socket, &handles[i], left * sizeof *handles, 0) < 0) {
            return false;
        }
    }
    if (why) {
        return share_fail(r, why);
    }
    for (uint32_t i = 0; i < o->count; i++) {
        uint64_t start = bench_now();
        if (!peer_handles_map(r->peer, &handles[i], o->bytes, &addrs[i])) {
            return share_fail(r, "a handle cannot be opened");
        }
        samples_of[i] = us_since(start);
        sum += samples_of[i];
    }
    for (uint32_t i = 0; i < o->count; i++) {
        if (!peer_handles_word(r->peer, addrs[i], &word) || word != i + 1) {
            return share_fail(r, "the contents of a handle are others");
        }
    }
    free(handles);
    free(addrs);
    r->result.first = bench_measure_of(samples_of, o->count);
    r->result.second = (bench_measure){sum, sum, sum};
    return true;
}

static bool echo(share_reader *r, const share_order *o) {
    return true;
}

static const struct {
    char what;
    bool (*fn)(share_reader *r, const share_order *o);
} share_tasks[] = {{'a', open_again}, {'e', open_each}, {'i', open_items},   {'w', wait_for},
                   {'h', hold},       {'b', bandwidth}, {'p', open_handles}, {'.', echo}};

static void print_log(void *arg, cen_log_level level, const char *message) {
    fprintf(stderr, "bench_share: %s\n", message);
}

static cen_status open_device(const char *name, cen_device **device) {
    cen_host_options host = {
        .size = sizeof host, .inline_streams = true, .capacity = (uint64_t)64 << 30};
    bool gpu = !strncmp(name, "cuda", 4);
    return gpu ? cen_device_open(name, device) : cen_device_open_host(0, &host, device);
}

/* usage: --reader DEVICE SOCKET FD */
static int reader_main(char **argv) {
    share_reader r = {.socket = atoi(argv[4]), .name = argv[2]};
    cen_share_options options = {.size = sizeof options, .socket = argv[3], .label = "reader"};
    share_order o;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (open_device(argv[2], &r.device) || cen_share_connect(&options, &r.share)) {
        return 1;
    }
    while (recv(r.socket, &o, sizeof o, 0) == sizeof o) {
        r.result = (share_result){.ok = false};
        for (size_t i = 0; i < sizeof share_tasks / sizeof *share_tasks; i++) {
            if (share_tasks[i].what == o.what) {
                r.result.ok = share_tasks[i].fn(&r, &o);
            }
        }
        if (!say(&r)) {
            break;
        }
    }
    cen_share_disconnect(r.share);
    cen_device_close(r.device);
    return 0;
}

/* usage: --broker SOCKET FD: writes a byte once it listens */
static int broker_main(char **argv) {
    cen_broker_options options = {.size = sizeof options, .socket = argv[2]};
    cen_broker *broker;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cen_broker_create(&options, &broker) || write(atoi(argv[3]), "", 1) != 1) {
        return 1;
    }
    return cen_broker_run(broker) ? 1 : 0;
}

/* Starts this program with arguments and one end of a socket pair as the last; the other end. */
static int start_child(const char *const arguments[3], pid_t *pid) {
    int ends[2];
    char fd[16];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        return -1;
    }
    snprintf(fd, sizeof fd, "%d", ends[1]);
    char *argv[6] = {"bench_share"};
    int count = 1;
    for (; count < 4 && arguments[count - 1]; count++) {
        argv[count] = (char *)arguments[count - 1];
    }
    argv[count] = fd;
    *pid = fork();
    if (!*pid) {
        (void)fcntl(ends[1], F_SETFD, 0);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(ends[1]);
    return ends[0];
}

#endif
