/* What the broker costs by itself, spoken to in raw messages: 1,000 clients that open and close
 * exports 10,000 times a second in all, and what a lease takes of its memory.
 *
 * usage: bench_broker */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cenote/broker.h"
#include "cenote/log.h"
#include "ipc/wire.h"

enum {
    CLIENTS = 1000,
    EXPORTS = 200,
    RATE = 10000, /* a second */
    SECONDS = 5,
    OPERATIONS = RATE * SECONDS,
    PAGE = 65536,
    TRIPS = 2001
};

typedef struct client {
    int socket, notices;
    uint32_t seq;
    uint64_t open; /* an export; 0: none */
} client;

static char folder[] = "/tmp/cenote-bench-XXXXXX", path[64];
static pid_t broker_pid;
static client clients[CLIENTS];
static uint64_t ids[EXPORTS];
static ceni_wire_builder out;
static uint64_t in[CENI_WIRE_MAX / 8];
static ceni_wire_message reply;

static void clean_up(void) {
    if (path[0]) {
        unlink(path);
        rmdir(folder);
    }
}

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_broker: %s failed: %s\n", what, cen_log_last_error());
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_broker: %s\n", message);
}

/* ---- the broker, and a process that echoes ---- */

static int descriptor(const char *word) {
    return (int)strtol(word, NULL, 10);
}

static int broker_main(char **argv) {
    cen_broker_options options = {.size = sizeof options, .socket = argv[2]};
    cen_broker *broker;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cen_broker_create(&options, &broker) || write(descriptor(argv[3]), "", 1) != 1) {
        return 1;
    }
    return cen_broker_run(broker) ? 1 : 0;
}

static int echo_main(char **argv) {
    char message[256];
    int socket = descriptor(argv[3]);
    ssize_t size;
    while ((size = recv(socket, message, sizeof message, 0)) > 0) {
        (void)!send(socket, message, (size_t)size, MSG_NOSIGNAL);
    }
    return 0;
}

/* This program anew, with one end of a socket pair; the other end. */
static int start_child(const char *what, pid_t *pid) {
    int ends[2];
    char fd[16];
    need(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "a pair of sockets");
    snprintf(fd, sizeof fd, "%d", ends[1]);
    *pid = fork();
    if (!*pid) {
        (void)fcntl(ends[1], F_SETFD, 0);
        execl("/proc/self/exe", "bench_broker", what, path, fd, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return ends[0];
}

/* Microseconds until a message came back from another process. */
static double round_trip(void) {
    static double samples[TRIPS];
    pid_t pid;
    char message[96] = {0};
    int socket = start_child("--echo", &pid);
    for (int i = 0; i < TRIPS; i++) {
        uint64_t start = bench_now();
        need(send(socket, message, sizeof message, 0) > 0 &&
                 recv(socket, message, sizeof message, 0) > 0,
             "an echo");
        samples[i] = (double)(bench_now() - start) / 1000;
    }
    close(socket);
    (void)waitpid(pid, NULL, 0);
    return bench_measure_of(samples, TRIPS).median;
}

/* Seconds of a processor that the broker used. */
static double broker_cpu(void) {
    char file[64], line[1024] = "";
    snprintf(file, sizeof file, "/proc/%d/stat", (int)broker_pid);
    FILE *f = fopen(file, "r");
    need(f && fgets(line, sizeof line, f), "reading stat");
    fclose(f);
    char *at =
        strrchr(line, ')'); /* what the name ends with is field 2, the first of the times 14 */
    for (int field = 2; at && field < 14; field++) {
        at = strchr(at + 1, ' ');
    }
    need(at != NULL, "reading stat");
    unsigned long user = strtoul(at, &at, 10), system = strtoul(at, &at, 10);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double broker_bytes(void) {
    char file[64], line[256];
    unsigned long long kib = 0;
    snprintf(file, sizeof file, "/proc/%d/status", (int)broker_pid);
    FILE *f = fopen(file, "r");
    need(f != NULL, "reading status");
    while (fgets(line, sizeof line, f) && !kib) {
        kib = strncmp(line, "VmRSS:", 6) ? 0 : strtoull(line + 6, NULL, 10);
    }
    fclose(f);
    need(kib > 0, "reading status");
    return (double)kib * 1024;
}

/* ---- messages ---- */

static cen_status call(client *c, const int *fds, unsigned count) {
    int got[CENI_WIRE_FDS];
    unsigned got_count = 0;
    size_t size = 0;
    cen_status status = ceni_wire_send(c->socket, &out, fds, count, false);
    status = status ? status : ceni_wire_receive(c->socket, in, &size, got, &got_count, false);
    for (unsigned i = 0; i < got_count; i++) {
        close(got[i]);
    }
    status = status ? status : ceni_wire_check(in, size, got_count, CENI_WIRE_REPLY, &reply);
    return status ? status : (cen_status)reply.head.status;
}

static void connect_client(client *c) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pair[2];
    memcpy(address.sun_path, path, sizeof path);
    c->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    need(c->socket >= 0 && !connect(c->socket, (struct sockaddr *)&address, sizeof address),
         "connecting");
    need(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "a pair of sockets");
    ceni_wire_hello *h = ceni_wire_begin(&out, CENI_WIRE_HELLO, ++c->seq, sizeof *h);
    *h = (ceni_wire_hello){CENI_WIRE_VERSION, CENI_WIRE_VERSION, 5, 0, 0};
    ceni_wire_add(&out, "bench", 5);
    need(!call(c, &pair[1], 1), "saying HELLO");
    close(pair[1]);
    c->notices = pair[0];
}

static void publish_all(client *c) {
    int page = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    need(page >= 0 && !ftruncate(page, PAGE) && !fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK),
         "making a page");
    ceni_wire_set *s = ceni_wire_begin(&out, CENI_WIRE_SET, ++c->seq, sizeof *s);
    s->bytes = s->page_bytes = PAGE;
    s->page_count = 1;
    memcpy(s->uuid, "HOST-0", sizeof "HOST-0");
    need(!call(c, &page, 1), "making a set");
    close(page);
    uint64_t set = ((const ceni_wire_set_reply *)reply.body)->set;
    for (unsigned i = 0; i < EXPORTS; i++) {
        char name[32];
        int size = snprintf(name, sizeof name, "export/%u", i);
        ceni_wire_publish *p = ceni_wire_begin(&out, CENI_WIRE_PUBLISH, ++c->seq, sizeof *p);
        *p = (ceni_wire_publish){.set = set,
                                 .token = {1, i},
                                 .name_size = (uint32_t)size,
                                 .directory_size = sizeof name};
        ceni_wire_add(&out, name, (size_t)size);
        ceni_wire_add(&out, name, sizeof name);
        need(!call(c, NULL, 0), "publishing");
        ids[i] = ((const ceni_wire_publish_reply *)reply.body)->export_id;
    }
}

static void open_export(client *c, unsigned number) {
    char name[32];
    int size = snprintf(name, sizeof name, "export/%u", number);
    ceni_wire_open *o = ceni_wire_begin(&out, CENI_WIRE_OPEN, ++c->seq, sizeof *o);
    o->name_size = (uint32_t)size;
    ceni_wire_add(&out, name, (size_t)size);
    need(!call(c, NULL, 0), "opening");
    c->open = ((const ceni_wire_open_reply *)reply.body)->export_id;
    need(c->open == ids[number], "opening what was asked for");
}

static void close_export(client *c) {
    ceni_wire_id *b = ceni_wire_begin(&out, CENI_WIRE_CLOSE, ++c->seq, sizeof *b);
    b->id = c->open;
    need(!call(c, NULL, 0), "closing");
    c->open = 0;
}

/* ---- figures ---- */

static const char *separator = "";
static void report(const char *what, const char *unit, bench_measure m, double floor,
                   const char *reason, double target) {
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, unit, m);
    printf(", \"peer\": null, \"floor\": %.4g, \"floor_reason\": \"%s\", \"target\": %.4g}", floor,
           reason, target);
}

/* Operations that are due at fixed times: one that begins late counts from when it was due. */
static void pace(double trip) {
    static double late[OPERATIONS];
    double cpu = broker_cpu();
    uint64_t start = bench_now();
    for (unsigned i = 0; i < OPERATIONS; i++) {
        uint64_t due = start + (uint64_t)i * (1000000000 / RATE);
        client *c = &clients[1 + i / 2 * 7 % (CLIENTS - 1)];
        while (bench_now() < due) {
        }
        if (i % 2) {
            close_export(c);
        } else {
            open_export(c, i / 2 % EXPORTS);
        }
        late[i] = (double)(bench_now() - due) / 1000;
    }
    double took = (double)(bench_now() - start) / 1e9;
    double share = (broker_cpu() - cpu) / OPERATIONS * 1e6;
    bench_measure all = bench_measure_of(late, OPERATIONS);
    double p99 = late[OPERATIONS / 100 * 99];
    const char *one = "a message to another process and its answer";
    report("1,000 clients, 10,000 operations a second, an operation", "us", all, trip, one, 100);
    report("the same, 99 of 100 are within", "us", (bench_measure){p99, p99, p99}, trip, one, 1000);
    report("the same, the broker's time an operation", "us", (bench_measure){share, share, share},
           trip / 2, "half of that message and answer", 100);
    need(took < SECONDS * 1.5, "keeping the pace");
}

static void weigh(void) {
    double before = broker_bytes();
    for (unsigned i = 1; i < CLIENTS; i++) {
        for (unsigned k = 0; k < EXPORTS; k++) {
            open_export(&clients[i], k);
        }
    }
    double each = (broker_bytes() - before) / ((CLIENTS - 1) * EXPORTS);
    report("memory of the broker a lease", "B", (bench_measure){each, each, each}, 16,
           "the numbers of a client and an export", 100);
}

int main(int argc, char **argv) {
    struct rlimit files;
    char byte;
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    if (argc == 4) {
        return !strcmp(argv[1], "--broker") ? broker_main(argv) : echo_main(argv);
    }
    need(!getrlimit(RLIMIT_NOFILE, &files), "asking for limits");
    files.rlim_cur = files.rlim_max;
    need(!setrlimit(RLIMIT_NOFILE, &files), "raising limits");
    if (files.rlim_cur < CLIENTS * 6 + 1000) { /* a user's share of the broker's connections */
        fprintf(stderr, "bench_broker: skipped: too few descriptors are allowed\n");
        return 77;
    }
    need(mkdtemp(folder) != NULL, "making a folder");
    snprintf(path, sizeof path, "%s/broker.sock", folder);
    atexit(clean_up);
    double trip = round_trip();
    int socket = start_child("--broker", &broker_pid);
    need(read(socket, &byte, 1) == 1, "starting a broker");
    for (unsigned i = 0; i < CLIENTS; i++) {
        connect_client(&clients[i]);
    }
    publish_all(&clients[0]);
    printf("{\"name\": \"broker\", \"figures\": [");
    pace(trip);
    weigh();
    printf("\n]}\n");
    return 0;
}
