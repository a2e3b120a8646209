/* The ledgers of a run, as they appear and change while its processes live. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/cmd.h"
#include "cli/run.h"

enum { LOOK_MS = 500 }; /* between looks at whole ledgers */

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void path_of(const run_watcher *watcher, const char *name, char path[RUN_PATH]) {
    snprintf(path, RUN_PATH, "%s/%s", watcher->folder, name);
}

cen_ledger_view *run_read(const run_watcher *watcher, const run_process *process) {
    char path[RUN_PATH];
    cen_ledger_view *view = NULL;
    path_of(watcher, process->name, path);
    return cen_ledger_read(path, &view, NULL) ? NULL : view;
}

static bool is_ledger(const char *name) {
    size_t length = strlen(name);
    return length > 7 && length < sizeof((run_process *)0)->name &&
           !strcmp(name + length - 7, ".ledger");
}

static run_process *enter(run_watcher *watcher, const char *name) {
    for (size_t i = 0; i < watcher->count; i++) {
        if (!strcmp(watcher->processes[i].name, name)) {
            return &watcher->processes[i];
        }
    }
    if (watcher->count == watcher->capacity) {
        size_t capacity = watcher->capacity ? 2 * watcher->capacity : 8;
        run_process *grown = realloc(watcher->processes, capacity * sizeof *grown);
        if (!grown) {
            return NULL;
        }
        watcher->processes = grown;
        watcher->capacity = capacity;
    }
    run_process *process = &watcher->processes[watcher->count++];
    memset(process, 0, sizeof *process);
    memcpy(process->name, name, strlen(name) + 1);
    return process;
}

static void forget(run_process *process) {
    cen_ledger_watch_close(process->watch);
    run_growth_free(process->growth);
    free(process->held_text);
}

/* Opens the ledger if it is new. A process that becomes another program by exec begins another file
 * in place of the one that is watched, which is kept open and so has an inode of its own. */
static void look_for(const run_watcher *watcher, run_process *process) {
    char path[RUN_PATH];
    struct stat st;
    path_of(watcher, process->name, path);
    if (stat(path, &st) || (process->watch && process->inode == st.st_ino)) {
        return;
    }
    forget(process);
    run_process fresh = {.inode = st.st_ino};
    memcpy(fresh.name, process->name, sizeof fresh.name);
    *process = fresh;
    if (cen_ledger_watch_open(path, &process->watch)) {
        process->watch = NULL;
    } else {
        uint32_t steps;
        cen_ledger_watch_counts(process->watch, &steps, &process->missed);
    }
}

/* Finds ledgers that are new; one that is being made is opened at a later look. */
static void find_new(run_watcher *watcher) {
    DIR *folder = opendir(watcher->folder);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        run_process *process = is_ledger(entry->d_name) ? enter(watcher, entry->d_name) : NULL;
        if (process) {
            look_for(watcher, process);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

/* The writer waits for the answer: what is to be had of this moment is read, then it is answered,
 * and only then all is explained. NVML tells of this moment only if the writer does wait: one that
 * failed before it was watched has gone on. */
static void look_at_failures(const run_watcher *watcher, run_process *process, uint64_t failures) {
    bool first = !process->failures, waits = failures > process->missed;
    process->failures = failures;
    cen_ledger_view *view = run_read(watcher, process);
    run_told told = {0};
    char *owners = first && view ? run_owners_text(view, RUN_FAILURE, waits ? &told : NULL) : NULL;
    cen_ledger_watch_answer(process->watch);
    if (view) {
        run_tell_failure(view, watcher->options, owners);
    }
    if (owners) { /* what was seen before says no more */
        process->told = true;
        free(process->held_text);
        process->held_text = NULL;
        process->held_told = 0;
    }
    free(owners);
    cen_ledger_view_free(view);
}

/* A process that ends leaves NVML's list before it is gone. What was said of it while it was there
 * stands. */
static void keep_owners(run_process *process, cen_ledger_view *view) {
    run_told told = {0};
    char *text = run_owners_text(view, RUN_NOW, &told);
    if (!text || (told.untold && told.told < process->held_told)) {
        free(text);
        return;
    }
    free(process->held_text);
    process->held_text = text;
    process->held_told = told.told;
}

static void look_at_all(const run_watcher *watcher, run_process *process) {
    cen_ledger_view *view = run_read(watcher, process);
    if (!view) {
        return;
    }
    if (watcher->options->watch) {
        run_growth_look(process, view);
    }
    const cen_ledger_info *info = cen_ledger_view_info(view);
    if (watcher->options->ledger && !info->closed) {
        keep_owners(process, view);
    }
    cen_ledger_view_free(view);
}

void run_look(run_watcher *watcher) {
    find_new(watcher);
    bool whole = now_ms() >= watcher->next_look_ms;
    for (size_t i = 0; i < watcher->count; i++) {
        run_process *process = &watcher->processes[i];
        uint32_t steps = 0;
        uint64_t failures = 0;
        if (!process->watch) {
            continue;
        }
        cen_ledger_watch_counts(process->watch, &steps, &failures);
        if (failures != process->failures) {
            look_at_failures(watcher, process, failures);
        }
        bool stepped = watcher->options->watch && steps != process->steps;
        process->steps = steps;
        if (stepped || (whole && (watcher->options->watch || watcher->options->ledger))) {
            look_at_all(watcher, process);
        }
    }
    if (whole) {
        watcher->next_look_ms = now_ms() + LOOK_MS;
    }
}

void run_watcher_close(run_watcher *watcher) {
    for (size_t i = 0; i < watcher->count; i++) {
        forget(&watcher->processes[i]);
    }
    free(watcher->processes);
}
