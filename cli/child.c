#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd.h"

enum { POLL_MS = 50 };

void cli_hold_streams(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd < STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *at) {
    return remove(path);
}

void cli_remove_folder(const char *folder) {
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- finding ---- */

static bool is_program(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && !access(path, X_OK);
}

int cli_search_program(const char *name, char path[CLI_PATH]) {
    struct stat st;
    const char *list = getenv("PATH");
    list = list ? list : "/usr/local/bin:/usr/bin:/bin";
    bool there = false;
    if (strchr(name, '/')) {
        snprintf(path, CLI_PATH, "%s", name);
        there = !stat(path, &st);
        list = NULL;
        if (is_program(path)) {
            return CLI_OK;
        }
    }
    while (list && *name) {
        size_t length = strcspn(list, ":");
        snprintf(path, CLI_PATH, "%.*s%s%s", (int)length, list, length ? "/" : "./", name);
        if (is_program(path)) {
            return CLI_OK;
        }
        there = there || !stat(path, &st);
        list = list[length] ? list + length + 1 : NULL;
    }
    return there ? CLI_CANNOT : CLI_NOT_FOUND;
}

int cli_find_program(const char *command, const char *name, char path[CLI_PATH]) {
    int status = cli_search_program(name, path);
    if (status) {
        (void)cli_failed(
            command, status == CLI_CANNOT ? "%s: not executable" : "%s: command not found", name);
    }
    return status;
}

/* ---- running ---- */

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* How they were when the first program was started. They stay with us from then on, so that what
 * is left to do after its end is done. */
static struct {
    bool taken;
    sigset_t waited, blocked;
    struct sigaction child;
} signals;

/* Whoever started us may have ignored SIGCHLD, and then no exit status would be kept for us. The
 * program gets all of it as it was. */
static void take_signals(void) {
    if (signals.taken) {
        return;
    }
    sigemptyset(&signals.waited);
    sigaddset(&signals.waited, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++) {
        sigaddset(&signals.waited, forwarded[i]);
    }
    sigprocmask(SIG_BLOCK, &signals.waited, &signals.blocked);
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &usual, &signals.child);
    signals.taken = true;
}

static void restore_signals(void) {
    sigaction(SIGCHLD, &signals.child, NULL);
    sigprocmask(SIG_SETMASK, &signals.blocked, NULL);
}

/* What the terminal sends goes to the whole group, and so to the program already. */
static void forward(const siginfo_t *info, pid_t child) {
    if (info->si_signo != SIGCHLD && info->si_code != SI_KERNEL) {
        kill(child, info->si_signo);
    }
}

static int status_of(int waited) {
    return WIFSIGNALED(waited) ? 128 + WTERMSIG(waited) : WEXITSTATUS(waited);
}

static int wait_for(const cli_child *child, pid_t pid) {
    int waited = 0;
    for (;;) {
        const struct timespec poll = {.tv_nsec = POLL_MS * 1000000L};
        siginfo_t info;
        if (sigtimedwait(&signals.waited, &info, &poll) > 0) {
            forward(&info, pid);
        }
        pid_t ended = waitpid(pid, &waited, WNOHANG);
        if (ended == pid || (ended < 0 && errno == ECHILD)) {
            break;
        }
        if (child->look) {
            child->look(child->arg);
        }
    }
    if (child->look) {
        child->look(child->arg);
    }
    return status_of(waited);
}

int cli_exec(const char *command, const char *program, char **argv) {
    execv(program, argv);
    if (errno == ENOEXEC) { /* a script without a first line that says so */
        execvp(argv[0], argv);
    }
    (void)cli_failed(command, "%s: %s", program, strerror(errno));
    return CLI_CANNOT;
}

int cli_child_run(const char *command, const cli_child *child, int *status) {
    take_signals();
    pid_t pid = fork();
    if (pid < 0) {
        return cli_failed(command, "fork: %s", strerror(errno));
    }
    if (!pid) {
        restore_signals();
        _exit(child->start(child->arg));
    }
    *status = wait_for(child, pid);
    return CLI_OK;
}
