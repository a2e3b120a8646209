/* The environment of the program: the interposer, and what it is to do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/run.h"

/* Puts `first` before what a list of paths holds already. */
static int put_before(const char *name, const char *first) {
    const char *old = getenv(name);
    char *list = NULL;
    if (old && *old) {
        if (asprintf(&list, "%s:%s", first, old) < 0) {
            return -1;
        }
    } else {
        list = strdup(first);
    }
    int failed = !list || setenv(name, list, 1);
    free(list);
    return failed;
}

/* A setting of an outer `cenote run` is not this one's. */
static int set_flag(const char *name, bool on) {
    return on ? setenv(name, "1", 1) : unsetenv(name);
}

/* The program may change its folder before the file is made. */
static int set_trace(const char *file) {
    if (!file) {
        return unsetenv("CENOTE_RUN_TRACE");
    }
    char folder[RUN_PATH], path[2 * RUN_PATH];
    if (*file == '/') {
        return setenv("CENOTE_RUN_TRACE", file, 1);
    }
    if (!getcwd(folder, sizeof folder)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return setenv("CENOTE_RUN_TRACE", path, 1);
}

/* Where the package's start-up hook is: in the source tree that this was built in, or installed
 * beside the interposer. */
static int find_package(const char *preload, char package[RUN_PATH]) {
    static const char *const places[] = {"python", "../python"};
    char folder[RUN_PATH], tried[2 * RUN_PATH];
    struct stat st;
    const char *asked = getenv("CENOTE_PYTHON");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(preload, '/') - preload), preload);
    for (size_t i = 0; i <= sizeof places / sizeof *places; i++) {
        if (!i) {
            snprintf(tried, sizeof tried, "%s", asked ? asked : "");
        } else {
            snprintf(tried, sizeof tried, "%s/%s", folder, places[i - 1]);
        }
        size_t length = strlen(tried);
        snprintf(tried + length, sizeof tried - length, "/cenote/_startup/sitecustomize.py");
        if (!stat(tried, &st)) {
            tried[length] = '\0';
            char *whole = realpath(tried, NULL);
            snprintf(package, RUN_PATH, "%s", whole ? whole : tried);
            free(whole);
            return CLI_OK;
        }
    }
    return cli_failed("run",
                      "--torch: the Python package is neither in %s/python nor in "
                      "%s/../python; CENOTE_PYTHON can name its folder",
                      folder, folder);
}

static int set_torch(const char *preload) {
    char package[RUN_PATH], startup[2 * RUN_PATH];
    int status = find_package(preload, package);
    if (status) {
        return status;
    }
    snprintf(startup, sizeof startup, "%s/cenote/_startup:%s", package, package);
    if (put_before("PYTHONPATH", startup) || setenv("CENOTE_TORCH", "1", 1)) {
        return cli_failed("run", "the environment: %s", strerror(errno));
    }
    return CLI_OK;
}

int run_set_environment(const run_options *options, const char *preload, const char *folder) {
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)options->limit);
    if (put_before("LD_PRELOAD", preload) || setenv("CENOTE_LEDGER_DIR", folder, 1) ||
        set_flag("CENOTE_RUN_POOL", options->pool) ||
        set_flag("CENOTE_RUN_NO_STACKS", options->no_stacks) ||
        (options->limit ? setenv("CENOTE_RUN_LIMIT", limit, 1) : unsetenv("CENOTE_RUN_LIMIT")) ||
        set_trace(options->trace)) {
        return cli_failed("run", "the environment: %s", strerror(errno));
    }
    return options->torch ? set_torch(preload) : CLI_OK;
}
