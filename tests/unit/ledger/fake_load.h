/* Loads a stand-in for NVML before the library looks for it: what has its name is found loaded. */
#ifndef TESTS_FAKE_LOAD_H
#define TESTS_FAKE_LOAD_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cenote/log.h"
#include "fake_nvml.h"

static char last_message[1024];
static int message_count;
static fake_nvml_state *fake;

static void keep_message(void *arg, cen_log_level level, const char *message) {
    snprintf(last_message, sizeof last_message, "%s", message);
    message_count++;
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last message: %s)\n", __FILE__, __LINE__,          \
                    #condition, last_message);                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void load_fake(const char *folder) {
    char path[1024];
    snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    EXPECT(library);
    fake = dlsym(library, "fake_nvml");
    EXPECT(fake);
}

/* Runs a case in a child, as NVML is loaded once a process; folder: of the stand-in, NULL: none. */
static void in_child(void (*body)(void), const char *folder) {
    pid_t child = fork();
    assert_int_not_equal(child, -1);
    if (!child) {
        cen_log_set(keep_message, NULL, CEN_LOG_WARN);
        if (folder) {
            load_fake(folder);
        }
        body();
        exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
