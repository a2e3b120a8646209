/* What the tests of cen_holders_read set up: a folder for ledgers, processes that hold memory, and
 * their ledgers. Each case runs in a process of its own (fake_load.h). */
#ifndef TESTS_HOLDERS_WORLD_H
#define TESTS_HOLDERS_WORLD_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "cenote/holders.h"
#include "fake_load.h"

static char world[64]; /* the folder of ledgers */

static void make_world(void) {
    snprintf(world, sizeof world, "/tmp/cenote-holders-XXXXXX");
    EXPECT(mkdtemp(world));
    setenv("CENOTE_LEDGER_DIR", world, 1);
}

static void drop_world(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", world);
    EXPECT(!system(command));
}

/* A path below the folder; valid until the eighth call after. */
static const char *in_world(const char *folder, int pid, const char *writer) {
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s%d-%s.ledger", world, folder, pid, writer);
    return path;
}

static bool exists(const char *path) {
    return !access(path, F_OK);
}

/* A ledger of this process's with one device. */
static cen_ledger *new_ledger(const char *folder, const char *writer, const char *uuid) {
    cen_ledger_options options = {.size = sizeof options, .writer = writer};
    cen_ledger *ledger = NULL;
    EXPECT(!cen_ledger_create(in_world(folder, getpid(), writer), &options, &ledger));
    EXPECT(!cen_ledger_device(ledger, 0, uuid, "Fake GPU", 1 << 30));
    return ledger;
}

static void add_entry(cen_ledger *ledger, cen_ledger_kind kind, uint64_t key, uint64_t bytes,
                      bool less) {
    cen_ledger_entry entry = {.key = key,
                              .bytes = bytes,
                              .stack = CEN_LEDGER_NO_STACK,
                              .kind = (uint8_t)kind,
                              .less = less};
    EXPECT(!cen_ledger_add(ledger, &entry));
}

/* A process with a ledger of 100 bytes in pages on the first device; it lives until it is killed.
 */
static pid_t start_holder(const char *folder, const char *writer) {
    int ready[2];
    EXPECT(!pipe(ready));
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a case that fails leaves nobody behind */
        cen_ledger *ledger = new_ledger(folder, writer, "GPU-fake-0");
        add_entry(ledger, CEN_LEDGER_PAGE, 1, 100, false);
        EXPECT(write(ready[1], "x", 1) == 1);
        for (;;) {
            pause();
        }
    }
    char byte;
    close(ready[1]);
    EXPECT(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return pid;
}

static void kill_holder(pid_t pid) {
    EXPECT(!kill(pid, SIGKILL));
    EXPECT(waitpid(pid, NULL, 0) == pid);
}

static void list_process(unsigned device, int pid, unsigned long long bytes) {
    fake_device *d = &fake->devices[device];
    d->compute[d->compute_count++] = (fake_process){(unsigned)pid, bytes};
}

static cen_holders *look(void) {
    cen_holders *holders = NULL;
    EXPECT(!cen_holders_read(&holders));
    return holders;
}

#endif
