/* What the files of `cenote run` share. Everything it says goes to standard error, each line
 * marked as cenote's: standard output is the program's. */
#ifndef CENOTE_CLI_RUN_H
#define CENOTE_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cenote/ledger.h"
#include "cli/child.h"

enum { RUN_PATH = CLI_PATH };

typedef struct run_options {
    bool help, pool, leaks, watch, no_stacks, torch, ledger;
    uint64_t limit; /* 0: none */
    const char *trace, *json;
    int error_exitcode; /* 0: not asked for */
    char **command;     /* ends with NULL */
} run_options;

/* Prints "cenote: message" to standard error; of a text of several lines, each is marked. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void run_say_text(const char *text);
/* The program of a ledger, as much of it as a line has room for: "python train.py --dat...". */
#define RUN_PROGRAM 64
const char *run_program(char text[RUN_PROGRAM], const cen_ledger_view *view);
/* Where a stack was: "work (loop.c:23)". */
void run_where(cen_ledger_view *view, uint32_t stack, char *text, size_t size);

/* Finds the program and the interposer (run_target.c): CLI_OK, or the exit status, said why. */
int run_find_program(const char *name, char path[RUN_PATH]);
int run_find_preload(char path[RUN_PATH]);
/* Sets up the environment that the program gets (run_start.c). */
int run_set_environment(const run_options *options, const char *preload, const char *folder);

/* What the processes of the run write, as seen from here (run_watch.c). */
typedef struct run_process {
    char name[256]; /* of the ledger's file */
    cen_ledger_watch *watch;
    ino_t inode; /* of the file that is watched */
    uint32_t steps;
    uint64_t failures, looked_adds;
    uint64_t missed; /* failures from before it was watched: nobody waits to have them read */
    bool told;       /* who held what when a request failed */
    struct run_growth *growth;
    char *held_text;    /* who held what when it was looked at last, beside what NVML said */
    unsigned held_told; /* of so many devices */
} run_process;

typedef struct run_watcher {
    const run_options *options;
    const char *folder;
    run_process *processes;
    size_t count, capacity;
    int64_t next_look_ms;
} run_watcher;

/* Looks at what changed since the last call, and says what is to be said. */
void run_look(run_watcher *watcher);
void run_watcher_close(run_watcher *watcher);
/* NULL: it cannot be read (yet). */
cen_ledger_view *run_read(const run_watcher *watcher, const run_process *process);

/* Growth of programs with steps and of those without (run_growth.c). */
void run_growth_look(run_process *process, cen_ledger_view *view);
void run_growth_free(struct run_growth *growth);

/* Of how many devices in a text NVML told what the process holds, and of how many it did not. */
typedef struct run_told {
    unsigned told, untold;
} run_told;

/* Whose memory it is (run_owners.c), at a moment; NULL: no memory. The caller frees it.
 * NVML is asked if told is given. */
typedef enum run_moment { RUN_NOW, RUN_END, RUN_PEAK, RUN_FAILURE } run_moment;
char *run_owners_text(cen_ledger_view *view, run_moment moment, run_told *told);
/* Says why memory ran out (run_report.c); of a process's first failure, which has the text of whose
 * memory it was then, all that is known. */
void run_tell_failure(cen_ledger_view *view, const run_options *options, const char *owners);
/* After the end: leaks and the file of --json. How many entries leaked. */
uint64_t run_report_end(run_watcher *watcher, int status);

#endif
