/* cenote serve: the broker through which processes share device memory. */
#include "cli/cmd.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cenote/broker.h"

enum { USERS_MAX = 256, LISTEN_FD = 3 /* the first that a service manager passes */ };

typedef struct user_quota {
    uint32_t uid;
    uint64_t bytes;
} user_quota;

typedef struct arguments {
    const char *socket;
    uint32_t mode;
    uint64_t quota;
    user_quota users[USERS_MAX];
    size_t user_count;
    bool help;
} arguments;

static const char usage[] =
    "usage: cenote serve [--socket PATH] [--mode MODE] [--quota SIZE]\n"
    "                    [--quota-user NAME=SIZE]...\n"
    "\n"
    "Runs the broker through which processes of this machine share device memory: it keeps the\n"
    "pages that they publish, hands them to who may open them, and ends what a process had open\n"
    "when that dies. It opens no device. Ends on SIGTERM or SIGINT; clients keep their memory,\n"
    "and come back to the broker that is started next.\n"
    "\n"
    "  --socket PATH           where it listens: default $CENOTE_BROKER, else\n"
    "                          $XDG_RUNTIME_DIR/cenote/broker.sock; for root\n"
    "                          /run/cenote/broker.sock\n"
    "  --mode MODE             who may connect, as the mode of that file: default 0600\n"
    "  --quota SIZE            what the sets of a user may have together\n"
    "  --quota-user NAME=SIZE  the same for one user, by name or number\n"
    "\n"
    "A socket that systemd passes is taken (cenote.socket), and readiness is told to it.\n";

/* ---- the command line ---- */

static int parse_mode(const char *value, uint32_t *mode) {
    char *end = NULL;
    /* A digit first: strtoul takes spaces and signs, too. */
    unsigned long number = *value >= '0' && *value <= '7' ? strtoul(value, &end, 8) : 0;
    if (!number || number > 0777 || *end) {
        return cli_usage_error("serve", "--mode needs the mode of a file in octal, such as 0660");
    }
    *mode = (uint32_t)number;
    return CLI_OK;
}

/* A user by name or number. */
static bool find_user(const char *name, uint32_t *uid) {
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    if (*name >= '0' && *name <= '9' && !*end && number < UINT32_MAX) {
        *uid = (uint32_t)number;
        return true;
    }
    struct passwd entry, *found = NULL;
    char room[4096];
    if (getpwnam_r(name, &entry, room, sizeof room, &found) || !found) {
        return false;
    }
    *uid = found->pw_uid;
    return true;
}

static int parse_user(const char *value, arguments *args) {
    char name[256];
    const char *equals = strchr(value, '=');
    size_t length = equals ? (size_t)(equals - value) : 0;
    if (!length || length >= sizeof name) {
        return cli_usage_error("serve", "--quota-user needs NAME=SIZE, such as ann=64GiB");
    }
    if (args->user_count == USERS_MAX) {
        return cli_usage_error("serve", "--quota-user may be given %d times", USERS_MAX);
    }
    memcpy(name, value, length);
    name[length] = '\0';
    user_quota *user = &args->users[args->user_count];
    if (!find_user(name, &user->uid)) {
        return cli_usage_error("serve", "--quota-user: there is no user '%s'", name);
    }
    args->user_count++;
    return cli_size_option("serve", "--quota-user", equals + 1, &user->bytes);
}

static int parse_one(int argc, char **argv, int *i, arguments *args) {
    const char *value;
    int status = CLI_OK;
    if (cli_common_option(argv[*i], &args->help, NULL)) {
        return CLI_OK;
    }
    if (cli_socket_option("serve", argc, argv, i, &args->socket, &status)) {
        return status;
    } else if ((value = cli_option_value("--mode", argc, argv, i))) {
        return parse_mode(value, &args->mode);
    } else if ((value = cli_option_value("--quota", argc, argv, i))) {
        return cli_size_option("serve", "--quota", value, &args->quota);
    } else if ((value = cli_option_value("--quota-user", argc, argv, i))) {
        return parse_user(value, args);
    } else {
        return cli_stray_word("serve", argv[*i]);
    }
    return CLI_OK;
}

/* ---- the service manager ---- */

/* 1 + the socket that it passed, 0 if it passed none. */
static int take_passed(const arguments *args, int *listen_fd) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid()) {
        return CLI_OK; /* meant for another process */
    }
    if (strcmp(count, "1")) {
        return cli_failed("serve", "the service manager passed %s sockets: one is taken", count);
    }
    if (args->socket || args->mode) {
        return cli_usage_error("serve", "--socket and --mode are the socket unit's where the "
                                        "service manager passes the socket");
    }
    *listen_fd = LISTEN_FD + 1;
    return CLI_OK;
}

/* Tells the service manager, if there is one. */
static void tell_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || !*path) {
        return;
    }
    size_t length = strlen(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, path, length < sizeof address.sun_path ? length : 0);
    if (*path == '@') { /* an abstract name */
        address.sun_path[0] = '\0';
    }
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (length >= sizeof address.sun_path || fd < 0 ||
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0) {
        fprintf(stderr, "cenote serve: warning: the service manager cannot be told: %s\n",
                strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
}

/* ---- serving ---- */

static cen_broker *running;

static void stop(int number) {
    cen_broker_stop(running);
}

static bool quota_of(void *arg, uint32_t uid, uint64_t *bytes) {
    const arguments *args = arg;
    for (size_t i = args->user_count; i-- > 0;) { /* the last word on a user counts */
        if (args->users[i].uid == uid) {
            *bytes = args->users[i].bytes;
            return true;
        }
    }
    return false;
}

/* Signals wait until there is a broker that they can stop. */
static cen_status serve(const cen_broker_options *options) {
    sigset_t ends, before;
    struct sigaction action = {.sa_handler = stop};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, &before);
    cen_status status = cen_broker_create(options, &running);
    if (status) {
        return status;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    const char *path = cen_broker_socket(running);
    fprintf(stderr, "cenote serve: listens on %s\n", *path ? path : "the socket that was passed");
    sigprocmask(SIG_SETMASK, &before, NULL);
    tell_manager("READY=1");
    status = cen_broker_run(running);
    tell_manager("STOPPING=1");
    sigprocmask(SIG_BLOCK, &ends, NULL); /* there is nothing to stop from now on */
    cen_broker_destroy(running);
    return status;
}

/* What helps a user whose place is not writable. */
static const char *hint(cen_status served, const arguments *args, int listen_fd) {
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *named = getenv("CENOTE_BROKER");
    if (served != CEN_ERR_IO || listen_fd || args->socket || (named && *named) || !geteuid()) {
        return "";
    }
    return runtime && *runtime
               ? "; --socket PATH names another place"
               : "; XDG_RUNTIME_DIR is not set, so --socket PATH has to name a place of yours";
}

int cmd_serve(int argc, char **argv) {
    static arguments args;
    int status = CLI_OK, listen_fd = 0;
    for (int i = 1; i < argc && !status; i++) {
        status = parse_one(argc, argv, &i, &args);
    }
    if (status) {
        return status;
    }
    if (args.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    status = take_passed(&args, &listen_fd);
    if (status) {
        return status;
    }
    cen_broker_options options = {.size = sizeof options,
                                  .socket = args.socket,
                                  .listen_fd = listen_fd,
                                  .mode = args.mode,
                                  .quota_bytes = args.quota,
                                  .user_quota = quota_of,
                                  .user_quota_arg = &args};
    cli_last_error last = {.command = "serve"};
    cen_log_set(cli_keep_error, &last, CEN_LOG_WARN);
    cen_status served = serve(&options);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    return served ? cli_failed("serve", "%s%s", last.text, hint(served, &args, listen_fd)) : CLI_OK;
}
