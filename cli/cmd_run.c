/* cenote run: a program with the interposer in it; what it holds is watched from here, and told
 * after its end. */
#include "cli/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run.h"

static const char command[] = "run";

static const char usage[] =
    "usage: cenote run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs a program and keeps account of all device memory that it holds, through any library.\n"
    "If memory runs out it says whose the memory is, and why it did not do. The program's output\n"
    "and its exit status stay its own; what cenote says goes to standard error.\n"
    "\n"
    "  --leaks             after the end: what was never freed, by the line that asked for it\n"
    "  --error-exitcode N  --leaks, and exit status N if something was not freed\n"
    "  --watch             while it runs: lines whose memory grows and never shrinks\n"
    "  --ledger            after the end: who held what of each device\n"
    "  --limit SIZE        the most to hold of each device, such as 20GiB\n"
    "  --pool              cenote's pool serves cuMemAlloc, cuMemAllocAsync and their frees\n"
    "  --trace FILE        a trace of the first process; FILE.PID of each other\n"
    "  --torch             PyTorch uses cenote's allocator, which accounts for each tensor\n"
    "  --no-stacks         no stacks: less to say, at less cost for each call\n"
    "  --json FILE         leaks and failures for programs; docs/run.md has the keys\n"
    "\n"
    "Exit status: the program's, or 128 and the number of the signal that ended it; N where\n"
    "something was not freed; 1 cenote failed before the program ran, 2 the call's words are off,\n"
    "126 the program cannot be run, or nothing can be preloaded into it, 127 there is none.\n";

/* ---- the call's words ---- */

static int read_exitcode(const char *value, run_options *options) {
    char *end = NULL;
    long code = *value ? strtol(value, &end, 10) : 0;
    if (code < 1 || code > 255 || *end) {
        return cli_usage_error(command, "--error-exitcode: '%s' is no status from 1 to 255", value);
    }
    options->error_exitcode = (int)code;
    options->leaks = true;
    return CLI_OK;
}

static int read_file(const char *name, const char *value, const char **file) {
    *file = value;
    return *value ? CLI_OK : cli_usage_error(command, "%s needs a file", name);
}

static bool read_flag(const char *word, run_options *options) {
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--help", &options->help},   {"-h", &options->help},
                 {"--pool", &options->pool},   {"--leaks", &options->leaks},
                 {"--watch", &options->watch}, {"--no-stacks", &options->no_stacks},
                 {"--torch", &options->torch}, {"--ledger", &options->ledger}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!strcmp(word, flags[i].name)) {
            *flags[i].flag = true;
            return true;
        }
    }
    return false;
}

/* Options end at "--" or at the first other word, which is the command. */
static int parse(int argc, char **argv, run_options *options) {
    int i = 1, status = CLI_OK;
    for (; i < argc && argv[i][0] == '-' && !status; i++) {
        const char *value;
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (read_flag(argv[i], options)) {
            continue;
        }
        if ((value = cli_option_value("--limit", argc, argv, &i))) {
            status = cli_size_option(command, "--limit", value, &options->limit);
        } else if ((value = cli_option_value("--error-exitcode", argc, argv, &i))) {
            status = read_exitcode(value, options);
        } else if ((value = cli_option_value("--trace", argc, argv, &i))) {
            status = read_file("--trace", value, &options->trace);
        } else if ((value = cli_option_value("--json", argc, argv, &i))) {
            status = read_file("--json", value, &options->json);
        } else {
            status = cli_stray_word(command, argv[i]);
        }
    }
    options->command = argv + i;
    if (!status && !options->help && options->watch && options->no_stacks) {
        return cli_usage_error(command, "--watch tells of stacks, and --no-stacks keeps none");
    }
    if (!status && !options->help && i >= argc) {
        return cli_usage_error(command, "no command; as in: cenote run --leaks -- ./program");
    }
    return status;
}

/* A file that cannot be made is told before the program runs, not after. */
static int try_file(const char *path) {
    FILE *file = path ? fopen(path, "we") : NULL;
    if (path && !file) {
        return cli_failed(command, "%s: %s", path, strerror(errno));
    }
    if (file) {
        fclose(file);
    }
    return CLI_OK;
}

/* The same of a trace, which the program makes: what is there stays until it does, and a program
 * that uses no CUDA leaves none. What is no plain file may not take being opened twice. */
static int try_trace(const char *path) {
    struct stat st;
    bool there = path && !stat(path, &st);
    if (!path || (there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        return CLI_OK;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC | (there ? 0 : O_CREAT | O_EXCL), 0666);
    if (fd < 0) {
        return cli_failed(command, "%s: %s", path, strerror(errno));
    }
    close(fd);
    if (!there) {
        unlink(path);
    }
    return CLI_OK;
}

/* ---- the folder of the run's ledgers ---- */

/* A run holds a lock on its folder: processes in other containers, where its number means nothing,
 * may share the place of its folder. -1: somebody holds it, or it is gone. */
static int lock_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, &st) || !st.st_nlink)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Of runs that were killed, also of one that had our number: a folder often lies in memory. */
static void remove_dead(const char *parent) {
    DIR *all = opendir(parent);
    const struct dirent *entry;
    while (all && (entry = readdir(all))) {
        char path[RUN_PATH + 256], *end = NULL;
        long pid = strncmp(entry->d_name, "run-", 4) ? 0 : strtol(entry->d_name + 4, &end, 10);
        if (pid > 0 && (!*end || *end == '.') &&
            (pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH))) {
            snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
            int fd = lock_folder(path);
            if (fd >= 0) {
                cli_remove_folder(path);
                close(fd);
            }
        }
    }
    if (all) {
        closedir(all);
    }
}

/* run-PID, or run-PID.N where a process elsewhere with the same number has it. *lock: to be closed
 * at the end. */
static int make_own(const char *parent, char folder[RUN_PATH], int *lock) {
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        int length = snprintf(folder, RUN_PATH, "%s/run-%d", parent, (int)getpid());
        if (i) {
            snprintf(folder + length, RUN_PATH - (size_t)length, ".%d", i);
        }
        if (mkdir(folder, 0700)) {
            if (errno != EEXIST) {
                break;
            }
        } else if ((*lock = lock_folder(folder)) >= 0) {
            return CLI_OK;
        }
    }
    return cli_failed(command, "%s: %s", folder, strerror(errno));
}

/* The program may change its folder before it uses this one, so the whole path is found. */
static int make_folder(char folder[RUN_PATH], int *lock) {
    char parent[RUN_PATH - 32], whole[PATH_MAX];
    cli_last_error last = {.text = ""};
    cen_log_set(cli_keep_error, &last, CEN_LOG_ERROR);
    cen_status status = cen_ledger_dir(parent, sizeof parent);
    cen_log_set(NULL, NULL, CEN_LOG_ERROR);
    if (status) {
        return cli_failed(command, "%s", last.text);
    }
    if (!realpath(parent, whole) || strlen(whole) >= sizeof parent) {
        return cli_failed(command, "%s: %s", parent, strerror(errno));
    }
    remove_dead(whole);
    return make_own(whole, folder, lock);
}

/* ---- running ---- */

/* A run while it goes on: what the child is started with, and what watches it. */
typedef struct run {
    const run_options *options;
    const char *program, *preload, *folder;
    run_watcher watcher;
} run;

static int start(void *arg) {
    const run *r = arg;
    if (run_set_environment(r->options, r->preload, r->folder)) {
        return CLI_FAILED;
    }
    return cli_exec(command, r->program, r->options->command);
}

static void look(void *arg) {
    run *r = arg;
    run_look(&r->watcher);
}

static int run_in(const run_options *options, const char *program, const char *preload,
                  const char *folder) {
    run r = {options, program, preload, folder, {.options = options, .folder = folder}};
    const cli_child child = {.start = start, .look = look, .arg = &r};
    int status = 0, failed = cli_child_run(command, &child, &status);
    if (failed) {
        return failed;
    }
    uint64_t leaked = run_report_end(&r.watcher, status);
    run_watcher_close(&r.watcher);
    return !status && leaked && options->error_exitcode ? options->error_exitcode : status;
}

int cmd_run(int argc, char **argv) {
    run_options options = {0};
    int status = parse(argc, argv, &options);
    if (status) {
        return status;
    }
    if (options.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    char program[RUN_PATH], preload[RUN_PATH], folder[RUN_PATH];
    cli_hold_streams();
    status = run_find_program(options.command[0], program);
    status = status ? status : run_find_preload(preload);
    status = status ? status : try_trace(options.trace);
    status = status ? status : try_file(options.json);
    int lock = -1;
    status = status ? status : make_folder(folder, &lock);
    if (status) {
        return status;
    }
    status = run_in(&options, program, preload, folder);
    cli_remove_folder(folder);
    close(lock);
    return status;
}
