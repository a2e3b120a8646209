/* Nsight Compute's command: where it is, which counters it has, and how it is called. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/profile.h"

static const char command[] = "profile";
enum { CANDIDATES = 16, TEXT = 8 << 20 };

/* ---- what it prints ---- */

typedef struct asking {
    const char *ncu, *file;
    const char *option;
} asking;

static int start_asking(void *arg) {
    const asking *a = arg;
    char *words[] = {(char *)a->ncu, (char *)a->option, NULL};
    int in = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(a->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(in, STDERR_FILENO) < 0) {
        return CLI_FAILED;
    }
    return cli_exec(command, a->ncu, words);
}

/* What `ncu OPTION` prints, for the caller to free(); "" if it fails. NULL: no memory. */
static char *ask(const char *ncu, const char *option, const profile_folder *folder) {
    char file[CLI_PATH];
    snprintf(file, sizeof file, "%s/answer", folder->path);
    asking a = {.ncu = ncu, .file = file, .option = option};
    const cli_child child = {.start = start_asking, .arg = &a};
    int status = 1;
    if (cli_child_run(command, &child, &status)) {
        status = 1;
    }
    char *text = calloc(1, TEXT);
    FILE *answer = text && !status ? fopen(file, "re") : NULL;
    if (answer) {
        text[fread(text, 1, TEXT - 1, answer)] = '\0';
        fclose(answer);
    }
    unlink(file);
    return text;
}

/* ---- where it is ---- */

typedef struct candidates {
    char paths[CANDIDATES][CLI_PATH];
    size_t count;
} candidates;

static void add(candidates *all, const char *path) {
    char whole[PATH_MAX];
    if (all->count == CANDIDATES || access(path, X_OK) || !realpath(path, whole) ||
        strlen(path) >= CLI_PATH) {
        return;
    }
    for (size_t i = 0; i < all->count; i++) {
        char other[PATH_MAX];
        if (realpath(all->paths[i], other) && !strcmp(whole, other)) {
            return;
        }
    }
    memcpy(all->paths[all->count++], path, strlen(path) + 1);
}

/* "Version 2025.3.1.0 (build ...)" as one number; 0: it does not say. */
static uint64_t version_of(const char *ncu, const profile_folder *folder) {
    char *text = ask(ncu, "--version", folder);
    const char *at = text ? strstr(text, "Version ") : NULL;
    uint64_t version = 0;
    at = at ? at + strlen("Version ") : "";
    for (int part = 0; part < 4; part++) {
        char *end = NULL;
        unsigned long number = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        version = version << 16 | (number & 0xffff);
        at = end && *end == '.' ? end + 1 : "";
    }
    free(text);
    return version;
}

static const char *newest(const candidates *all, const profile_folder *folder) {
    size_t best = 0;
    uint64_t best_version = 0;
    for (size_t i = 0; i < all->count && all->count > 1; i++) {
        uint64_t version = version_of(all->paths[i], folder);
        if (version > best_version) {
            best_version = version;
            best = i;
        }
    }
    return all->paths[best];
}

static void gather(candidates *all) {
    char path[CLI_PATH];
    glob_t found;
    if (!cli_search_program("ncu", path)) {
        add(all, path);
    }
    add(all, "/usr/local/cuda/bin/ncu");
    if (!glob("/opt/nvidia/nsight-compute/*/ncu", 0, NULL, &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            add(all, found.gl_pathv[i]);
        }
        globfree(&found);
    }
}

int profile_find_ncu(const profile_options *options, const profile_folder *folder,
                     char path[CLI_PATH], bool *found, char why[256]) {
    const char *named = options->ncu, *by = "--ncu";
    if (!named) {
        named = getenv("CENOTE_NCU");
        by = "CENOTE_NCU";
    }
    *found = true;
    if (named && *named) {
        return cli_search_program(named, path)
                   ? cli_failed(command, "%s: %s: no such program", by, named)
                   : CLI_OK;
    }
    candidates *all = calloc(1, sizeof *all);
    if (!all) {
        return cli_failed(command, "%s", strerror(errno));
    }
    gather(all);
    *found = all->count > 0;
    if (*found) {
        snprintf(path, CLI_PATH, "%s", newest(all, folder));
    } else {
        snprintf(why, 256,
                 "ncu is neither in PATH nor in /usr/local/cuda/bin nor in "
                 "/opt/nvidia/nsight-compute, and --ncu or CENOTE_NCU name none");
    }
    free(all);
    return CLI_OK;
}

/* ---- how it is called ---- */

char *profile_metrics(const char *ncu, const profile_folder *folder) {
    char *offered = ask(ncu, "--query-metrics", folder), *metrics = NULL;
    if (!offered || cen_profile_metrics(offered, &metrics)) {
        (void)cli_failed(command, "no memory for the metrics");
    }
    free(offered);
    return metrics;
}

bool profile_ncu_words(const profile_options *options, const char *ncu, const char *metrics,
                       const char *file, char *const *program, profile_words *words) {
    static char kernel[CLI_PATH], launches[24];
    const char *const fixed[] = {ncu,
                                 "--csv",
                                 "--page",
                                 "raw",
                                 "--print-units",
                                 "base",
                                 "--log-file",
                                 file,
                                 "--target-processes",
                                 "all",
                                 "--clock-control",
                                 "none",
                                 "--metrics",
                                 metrics};
    enum { FIXED = sizeof fixed / sizeof *fixed, MORE = 7 };
    size_t count = 0;
    while (program[count]) {
        count++;
    }
    char **all = calloc(FIXED + MORE + count, sizeof *all);
    if (!all) {
        (void)cli_failed(command, "%s", strerror(errno));
        return false;
    }
    size_t n = FIXED;
    memcpy(all, fixed, sizeof fixed);
    if (options->launches) {
        snprintf(launches, sizeof launches, "%llu", (unsigned long long)options->launches);
        all[n++] = (char *)"--launch-count";
        all[n++] = launches;
    }
    if (options->kernel) {
        snprintf(kernel, sizeof kernel, "regex:%s", options->kernel);
        all[n++] = (char *)"--kernel-name-base";
        all[n++] = (char *)"demangled";
        all[n++] = (char *)"--kernel-name";
        all[n++] = kernel;
    }
    memcpy(all + n, program, count * sizeof *all);
    *words = (profile_words){.words = all, .count = n + count};
    return true;
}
