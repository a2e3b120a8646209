/* What an agent (agent.h) does: commands with up to four words after them. Views, blocks and
 * exports are named by small numbers. */
#ifndef AGENT_MAIN_H
#define AGENT_MAIN_H

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cenote/cenote.h"
#include "ipc/broker_int.h"
#include "ipc/client_int.h"
#include "ipc/step.h"
#include "tests/files.h"

enum { AGENT_MANY = 64 };

typedef struct agent_state {
    cen_device *device;
    cen_share *share;
    cen_share_set *set;
    cen_share_view *views[AGENT_MANY];
    cen_addr blocks[AGENT_MANY];
    uint64_t bytes[AGENT_MANY];
    int view_count, block_count;
    atomic_bool gate;     /* stream 0 is held */
    bool denied;          /* a leak checker could not look into this process either */
    pthread_mutex_t lock; /* of the notices */
    cen_share_notice notices[256];
    size_t notice_count;
    /* the answer */
    uint64_t a, b;
    char text[512];
} agent_state;

typedef struct agent_words {
    const char *w[5];
    uint64_t n[5];
} agent_words;

static agent_state agent_self = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void agent_notice(void *arg, const cen_share_notice *notice) {
    agent_state *s = arg;
    pthread_mutex_lock(&s->lock);
    if (s->notice_count < 256) {
        s->notices[s->notice_count++] = *notice;
    }
    pthread_mutex_unlock(&s->lock);
}

static cen_status agent_connect(agent_state *s, const agent_words *w) {
    cen_share_options options = {.size = sizeof options, .notice = agent_notice, .notice_arg = s};
    options.socket = w->w[1];
    options.no_broker = !strcmp(w->w[1], "-");
    options.label = "agent";
    options.timeout_ms = (uint32_t)w->n[2];
    return cen_share_connect(&options, &s->share);
}

static cen_status agent_disconnect(agent_state *s, const agent_words *w) {
    cen_share_disconnect(s->share);
    s->share = NULL;
    s->set = NULL;
    s->view_count = s->block_count = 0;
    return CEN_OK;
}

static cen_status agent_set(agent_state *s, const agent_words *w) {
    return cen_share_set_create(s->share, s->device, w->n[1], w->n[2], &s->set);
}

static cen_status agent_drop(agent_state *s, const agent_words *w) {
    cen_status status = cen_share_set_destroy(s->set);
    s->set = NULL;
    return status;
}

/* alloc BYTES: the block's number. */
static cen_status agent_alloc(agent_state *s, const agent_words *w) {
    s->a = (uint64_t)s->block_count;
    s->bytes[s->block_count] = w->n[1];
    cen_status status = cen_share_alloc(s->set, w->n[1], &s->blocks[s->block_count]);
    s->b = status ? 0 : s->blocks[s->block_count];
    s->block_count += !status;
    return status;
}

static cen_status agent_fill(agent_state *s, const agent_words *w) {
    cen_status status =
        cen_fill_async(s->device, s->blocks[w->n[1]], (uint8_t)w->n[2], s->bytes[w->n[1]], 0);
    return status ? status : cen_stream_sync(s->device, 0);
}

static cen_status agent_free(agent_state *s, const agent_words *w) {
    return cen_share_free(s->set, s->blocks[w->n[1]], 0);
}

/* gate: holds stream 0 until `ungate`. */
static void agent_hold(void *arg) {
    while (atomic_load((atomic_bool *)arg)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}
static cen_status agent_gate(agent_state *s, const agent_words *w) {
    atomic_store(&s->gate, true);
    return cen_host_func(s->device, 0, agent_hold, &s->gate);
}
static cen_status agent_ungate(agent_state *s, const agent_words *w) {
    atomic_store(&s->gate, false);
    return CEN_OK;
}
static cen_status agent_sync(agent_state *s, const agent_words *w) {
    return cen_stream_sync(s->device, 0);
}
static cen_status agent_query(agent_state *s, const agent_words *w) {
    return cen_stream_query(s->device, 0);
}

/* Waits until the broker knows that the work of what is exported is done, unless it is held: what
 * becomes of it is another matter. */
static void agent_settle(agent_state *s) {
    bool settled = false;
    while (!settled && !atomic_load(&s->gate)) {
        ceni_turn_take(&s->share->wire);
        pthread_mutex_lock(&s->share->lock);
        settled = !s->share->unsettled ||
                  !(s->share->options.no_broker || atomic_load(&s->share->connected));
        pthread_mutex_unlock(&s->share->lock);
        ceni_turn_give(&s->share->wire);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

/* export NAME FLAGS BLOCK COUNT: the block in COUNT items "0", "1" and so on, the number being the
 * meta data, too; a name of "-" is none. Flags: k keep, o keep_older, 1 once, t for 200 ms at most,
 * s synced, r all may read, w all may write. */
static cen_status agent_export(agent_state *s, const agent_words *w) {
    size_t count = w->n[4] ? w->n[4] : 1;
    uint64_t each = s->bytes[w->n[3]] / count;
    cen_share_item *items = calloc(count, sizeof *items);
    char(*names)[16] = calloc(count, sizeof *names);
    cen_share_access access = {.who = CEN_SHARE_ALL, .write = strchr(w->w[2], 'w')};
    cen_share_export_options options = {.size = sizeof options};
    cen_share_export_info info;
    for (size_t i = 0; i < count; i++) {
        int size = snprintf(names[i], sizeof names[i], "%zu", i);
        items[i] = (cen_share_item){.name = names[i],
                                    .addr = s->blocks[w->n[3]] + i * each,
                                    .bytes = each,
                                    .meta = names[i],
                                    .meta_bytes = (size_t)size};
    }
    options.name = strcmp(w->w[1], "-") ? w->w[1] : NULL;
    options.keep = strchr(w->w[2], 'k');
    options.keep_older = strchr(w->w[2], 'o');
    options.once = strchr(w->w[2], '1');
    options.once_ttl_ms = strchr(w->w[2], 't') ? 200 : 0;
    options.synced = strchr(w->w[2], 's');
    options.access = &access;
    options.access_count = strpbrk(w->w[2], "rw") ? 1 : 0;
    cen_status status = cen_share_export(s->share, items, count, &options, &info);
    if (!status) {
        s->a = info.id;
        s->b = info.version;
        snprintf(s->text, sizeof s->text, "%s", info.token);
        agent_settle(s);
    }
    free(items);
    free(names);
    return status;
}

static cen_status agent_mark(agent_state *s, const agent_words *w) {
    cen_status status = cen_share_mark(s->share, w->n[1], 0);
    if (!status) {
        agent_settle(s);
    }
    return status;
}
static cen_status agent_withdraw(agent_state *s, const agent_words *w) {
    return cen_share_withdraw(s->share, w->n[1]);
}
static cen_status agent_revoke(agent_state *s, const agent_words *w) {
    return cen_share_revoke(s->share, w->n[1]);
}

/* open WHAT FLAGS WAIT: the view's number and what it is of. */
static cen_status agent_open(agent_state *s, const agent_words *w) {
    s->a = (uint64_t)s->view_count;
    cen_status status = cen_share_open(s->share, s->device, w->w[1], (unsigned)w->n[2],
                                       (uint32_t)w->n[3], &s->views[s->view_count]);
    cen_share_view_info info;
    if (!status && !cen_share_view_get_info(s->views[s->view_count], &info)) {
        s->b = info.export_id;
    }
    s->view_count += !status;
    return status;
}

static cen_status agent_close(agent_state *s, const agent_words *w) {
    return cen_share_close(s->views[w->n[1]], 0);
}

static cen_status agent_await(agent_state *s, const agent_words *w) {
    return cen_share_wait(s->views[w->n[1]], 0);
}

/* event VIEW: whether it came with an event. */
static cen_status agent_event(agent_state *s, const agent_words *w) {
    pthread_mutex_lock(&s->share->lock);
    s->a = s->views[w->n[1]]->lease->shared.flags != 0;
    pthread_mutex_unlock(&s->share->lock);
    return CEN_OK;
}

/* info VIEW: items and version, and letters: w writable, r revoked. */
static cen_status agent_info(agent_state *s, const agent_words *w) {
    cen_share_view_info info;
    cen_status status = cen_share_view_get_info(s->views[w->n[1]], &info);
    if (!status) {
        s->a = info.items;
        s->b = info.version;
        snprintf(s->text, sizeof s->text, ".%s%s", info.writable ? "w" : "",
                 info.revoked ? "r" : "");
    }
    return status;
}

/* peek VIEW ITEM [any]: its first word, in order behind the exporter's work, its size and meta
 * data; `any`: also if that work was not done when the exporter died. */
static cen_status agent_peek(agent_state *s, const agent_words *w) {
    cen_share_item item;
    uint32_t word = 0;
    cen_status status = cen_share_view_find(s->views[w->n[1]], w->w[2], &item);
    status = status ? status : cen_share_wait(s->views[w->n[1]], 0);
    status = status == CEN_ERR_DEVICE_LOST && *w->w[3] ? CEN_OK : status;
    status =
        status ? status : cen_copy_async(s->device, (cen_addr)(uintptr_t)&word, item.addr, 4, 0);
    status = status ? status : cen_stream_sync(s->device, 0);
    if (!status) {
        s->a = word;
        s->b = item.bytes;
        snprintf(s->text, sizeof s->text, "%.*s", (int)item.meta_bytes, (const char *)item.meta);
    }
    return status;
}

/* poke VIEW ITEM BYTE: fills it. */
static cen_status agent_poke(agent_state *s, const agent_words *w) {
    cen_share_item item;
    cen_status status = cen_share_view_find(s->views[w->n[1]], w->w[2], &item);
    status =
        status ? status : cen_fill_async(s->device, item.addr, (uint8_t)w->n[3], item.bytes, 0);
    return status ? status : cen_stream_sync(s->device, 0);
}

/* stab VIEW: a store of the processor's into a mapping of the host backend. */
static cen_status agent_stab(agent_state *s, const agent_words *w) {
    cen_share_item item;
    cen_status status = cen_share_view_item(s->views[w->n[1]], 0, &item);
    if (!status) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
        signal(SIGBUS, SIG_DFL);
        *(volatile char *)(uintptr_t)item.addr = 1;
    }
    return status;
}

/* notice KIND MS: waits for one of the kind, which is taken; its export and version. */
static cen_status agent_take_notice(agent_state *s, const agent_words *w) {
    for (uint64_t ms = 0; ms <= w->n[2]; ms++) {
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < s->notice_count; i++) {
            cen_share_notice *n = &s->notices[i];
            if (n->kind == (cen_share_notice_kind)w->n[1]) {
                s->a = n->export_id;
                s->b = n->version;
                n->kind = (cen_share_notice_kind)0;
                pthread_mutex_unlock(&s->lock);
                return CEN_OK;
            }
        }
        pthread_mutex_unlock(&s->lock);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return CEN_ERR_NOT_FOUND;
}

static cen_status agent_watch(agent_state *s, const agent_words *w) {
    return cen_share_watch(s->share, w->w[1], w->n[2]);
}

/* list WHAT: how many the broker lists of clients, sets, exports or leases; connected clients or
 * orphans among them. */
static cen_status agent_list(agent_state *s, const agent_words *w) {
    cen_share_list *list;
    cen_status status = cen_share_list_read(s->share, &list);
    if (status) {
        return status;
    }
    switch (w->w[1][0]) {
    case 'c':
        s->a = list->client_count;
        for (size_t i = 0; i < list->client_count; i++) {
            s->b += list->clients[i].connected;
        }
        break;
    case 's':
        s->a = list->set_count;
        for (size_t i = 0; i < list->set_count; i++) {
            s->b += !list->sets[i].publisher;
        }
        break;
    case 'e':
        s->a = list->export_count;
        break;
    default:
        s->a = list->lease_count;
        break;
    }
    cen_share_list_free(list);
    return CEN_OK;
}

/* held: open descriptors, and mapped pages of the host backend. */
static cen_status agent_held(agent_state *s, const agent_words *w) {
    s->a = files_of(getpid());
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        s->b += strstr(line, "memfd:cenote") != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    return CEN_OK;
}

static cen_status agent_free_bytes(agent_state *s, const agent_words *w) {
    return cen_device_mem_info(s->device, &s->a, &s->b);
}

static cen_status agent_send(agent_state *s, const agent_words *w) {
    return cen_share_send(s->share, w->n[1], (int)w->n[2], (uint32_t)w->n[3]);
}

static cen_status agent_receive(agent_state *s, const agent_words *w) {
    s->a = (uint64_t)s->view_count;
    cen_status status = cen_share_receive(s->share, s->device, (int)w->n[1], (uint32_t)w->n[2],
                                          &s->views[s->view_count]);
    s->view_count += !status;
    return status;
}

/* become USER: whose also the group is. Root only. */
static cen_status agent_become(agent_state *s, const agent_words *w) {
    return setgid((gid_t)w->n[1]) || setuid((uid_t)w->n[1]) ? CEN_ERR_PERMISSION : CEN_OK;
}

/* fork: what a forked child gets. */
static cen_status agent_fork(agent_state *s, const agent_words *w) {
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        cen_share_view *view;
        cen_share_list *list;
        bool refused = cen_share_open(s->share, s->device, "x", 0, 0, &view) == CEN_ERR_FORKED &&
                       cen_share_list_read(s->share, &list) == CEN_ERR_FORKED &&
                       cen_share_alloc(s->set, 1, &s->blocks[0]) == CEN_ERR_FORKED;
        cen_share_disconnect(s->share);
        _exit(refused ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && !status ? CEN_OK : CEN_ERR_CORRUPT;
}

/* deny: from now on what looks into other processes kills this one, as containers may not do it. */
static cen_status agent_deny(agent_state *s, const agent_words *w) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return CEN_ERR_UNSUPPORTED; /* the search for leaks does look into its process */
#else
#define AGENT_DENIED(number)                                                                       \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
        AGENT_DENIED(438),                     /* pidfd_getfd */
        AGENT_DENIED(SYS_ptrace),
        AGENT_DENIED(SYS_process_vm_readv),
        AGENT_DENIED(SYS_process_vm_writev),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    s->denied = true;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
               ? CEN_ERR_UNSUPPORTED
               : CEN_OK;
#endif
}

static bool agent_map_id(const char *path, unsigned id) {
    char line[32];
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int size = snprintf(line, sizeof line, "%u %u 1", id, id);
    bool written = fd >= 0 && write(fd, line, (size_t)size) == size;
    if (fd >= 0) {
        close(fd);
    }
    return written;
}
/* hide: from now on this process sees no /proc, as in a container without one. Before its first
 * thread: a new user namespace takes no others. */
static cen_status agent_hide(agent_state *s, const agent_words *w) {
    unsigned user = (unsigned)getuid();
    s->denied = true;
    if (unshare(CLONE_NEWNS) &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !agent_map_id("/proc/self/uid_map", user))) {
        return CEN_ERR_UNSUPPORTED;
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
                   mount("none", "/proc", "tmpfs", 0, NULL)
               ? CEN_ERR_UNSUPPORTED
               : CEN_OK;
}

/* foreign: exports memory that is of no set; the text is why that fails. */
static cen_status agent_foreign(agent_state *s, const agent_words *w) {
    cen_pool *pool;
    void *at;
    cen_share_export_info info;
    cen_status status = cen_pool_create(s->device, NULL, &pool);
    status = status ? status : cen_pool_alloc(pool, 4096, 0, &at);
    if (status) {
        return status;
    }
    cen_share_item item = {.name = "weights", .addr = (cen_addr)(uintptr_t)at, .bytes = 4096};
    status = cen_share_export(s->share, &item, 1, NULL, &info);
    snprintf(s->text, sizeof s->text, "%s", cen_log_last_error());
    (void)cen_pool_free(pool, at, 0);
    (void)cen_pool_destroy(pool);
    return status;
}

/* arm N: dies at the N-th step of the protocol from now; steps: how many it went through since. */
enum { AGENT_STEPS_MOST = 1 << 20 };
static cen_status agent_arm(agent_state *s, const agent_words *w) {
    ceni_ipc_step_arm(w->n[1] ? (int64_t)w->n[1] : AGENT_STEPS_MOST,
                      getenv("CENOTE_TEST_LOG") ? 2 : -1);
    return CEN_OK;
}

static uint64_t agent_steps_done(void) {
    return AGENT_STEPS_MOST - (uint64_t)atomic_load(&ceni_ipc_steps.left);
}

static cen_status agent_steps(agent_state *s, const agent_words *w) {
    s->a = agent_steps_done();
    return CEN_OK;
}

/* ---- a broker ---- */

static cen_broker *agent_serving;

static void agent_stop(int number) {
    cen_broker_stop(agent_serving); /* NOLINT(bugprone-signal-handler): made for it */
}

/* serve SOCKET [N]: armed as by `arm`. When it was stopped it answers with its steps. */
static cen_status agent_serve(agent_state *s, const agent_words *w, int socket) {
    cen_broker_options options = {.size = sizeof options, .socket = w->w[1], .mode = 0666};
    cen_status status = cen_broker_create(&options, &agent_serving);
    char answer[64];
    signal(SIGTERM, agent_stop);
    (void)agent_arm(s, &(agent_words){.n = {0, w->n[2]}});
    int size = snprintf(answer, sizeof answer, "%d 0 0 -", (int)status);
    if (send(socket, answer, (size_t)size + 1, MSG_NOSIGNAL) > 0 && !status) {
        status = cen_broker_run(agent_serving);
        cen_broker_destroy(agent_serving);
        size =
            snprintf(answer, sizeof answer, "0 %llu 0 -", (unsigned long long)agent_steps_done());
        (void)!send(socket, answer, (size_t)size + 1, MSG_NOSIGNAL); /* if anybody wants to know */
    }
    _exit(status ? 1 : 0);
}

/* ---- the loop ---- */

typedef cen_status (*agent_fn)(agent_state *s, const agent_words *w);
static const struct {
    const char *name;
    agent_fn fn;
} agent_commands[] = {
    {"connect", agent_connect}, {"disconnect", agent_disconnect},
    {"set", agent_set},         {"drop", agent_drop},
    {"alloc", agent_alloc},     {"fill", agent_fill},
    {"free", agent_free},       {"export", agent_export},
    {"mark", agent_mark},       {"withdraw", agent_withdraw},
    {"revoke", agent_revoke},   {"open", agent_open},
    {"close", agent_close},     {"info", agent_info},
    {"peek", agent_peek},       {"poke", agent_poke},
    {"stab", agent_stab},       {"notice", agent_take_notice},
    {"watch", agent_watch},     {"list", agent_list},
    {"held", agent_held},       {"memory", agent_free_bytes},
    {"become", agent_become},   {"fork", agent_fork},
    {"send", agent_send},       {"receive", agent_receive},
    {"arm", agent_arm},         {"steps", agent_steps},
    {"deny", agent_deny},       {"foreign", agent_foreign},
    {"gate", agent_gate},       {"ungate", agent_ungate},
    {"sync", agent_sync},       {"query", agent_query},
    {"wait", agent_await},      {"event", agent_event},
    {"hide", agent_hide},
};

static cen_status agent_do(agent_state *s, const agent_words *w, int socket) {
    for (size_t i = 0; i < sizeof agent_commands / sizeof *agent_commands; i++) {
        if (!strcmp(w->w[0], agent_commands[i].name)) {
            return agent_commands[i].fn(s, w);
        }
    }
    return !strcmp(w->w[0], "serve") ? agent_serve(s, w, socket) : CEN_ERR_INVALID;
}

static cen_status agent_open_device(const char *name, cen_device **device) {
    if (strncmp(name, "host:", 5)) {
        return cen_device_open(name, device);
    }
    cen_host_options options = {.size = sizeof options, .capacity = (uint64_t)1 << 30};
    return cen_device_open_host((int)strtol(name + 5, NULL, 10), &options, device);
}

static void agent_log(void *arg, cen_log_level level, const char *message) {
    if (getenv("CENOTE_TEST_LOG")) {
        fprintf(stderr, "[%d] %s\n", (int)getpid(), message);
    }
}

static bool agent_needs_device(const char *command) { /* a broker opens none */
    return strcmp(command, "serve") && strcmp(command, "hide");
}

static int agent_main(const char *device, int socket) {
    agent_state *s = &agent_self;
    char line[1024], answer[1024];
    (void)fcntl(socket, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    atomic_store(&ceni_broker_files_stand_in, strncmp(device, "host", 4) != 0);
    cen_log_set(agent_log, NULL, CEN_LOG_DEBUG);
    while (recv(socket, line, sizeof line, 0) > 0 && strcmp(line, "end")) {
        agent_words w = {{"", "", "", "", ""}, {0}};
        char *save = NULL, *word = strtok_r(line, " ", &save);
        for (int i = 0; word && i < 5; i++, word = strtok_r(NULL, " ", &save)) {
            w.w[i] = word;
            w.n[i] = strtoull(word, NULL, 0);
        }
        s->a = s->b = 0;
        s->text[0] = 0;
        cen_status status = CEN_OK;
        if (!s->device && agent_needs_device(w.w[0])) {
            status = agent_open_device(device, &s->device);
        }
        status = status ? status : agent_do(s, &w, socket);
        int size = snprintf(answer, sizeof answer, "%d %llu %llu %s", (int)status,
                            (unsigned long long)s->a, (unsigned long long)s->b,
                            s->text[0] ? s->text : "-");
        if (send(socket, answer, (size_t)size + 1, MSG_NOSIGNAL) < 0) {
            return 1;
        }
    }
    cen_share_disconnect(s->share);
    cen_device_close(s->device);
    int result = send(socket, "0 0 0 -", 8, MSG_NOSIGNAL) < 0;
    if (s->denied) {
        _exit(result);
    }
    return result;
}

#endif
