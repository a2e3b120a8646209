/* Who holds what: NVML's list (a stand-in) beside /proc and ledgers of real processes, of which
 * some are killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/file.h>

#include "base/fault.h"
#include "holders_world.h"

#define NEW FAKE_NVML_DIR

static void joins(void) {
    cen_ledger *run = new_ledger("", "run", "GPU-fake-0");
    cen_ledger *torch = new_ledger("", "torch", "GPU-fake-0");
    add_entry(run, CEN_LEDGER_PAGE, 1, 300, false);
    add_entry(run, CEN_LEDGER_CONTEXT, 2, 50, false);
    add_entry(run, CEN_LEDGER_MODULE, 3, 10, true);
    add_entry(run, CEN_LEDGER_HOST, 4, 1000, false);
    add_entry(torch, CEN_LEDGER_PAGE, 1, 300, false);
    add_entry(torch, CEN_LEDGER_SEGMENT, 2, 400, false);
    add_entry(torch, CEN_LEDGER_BLOCK, 3, 200, false);
    fake->devices[0].used = 1000;
    fake->devices[0].reserved = 24;
    list_process(0, getpid(), 400);
    cen_holders *holders = look();
    EXPECT(cen_holders_device_count(holders) == 1 && !cen_holders_device(holders, 1));
    const cen_holder_device *d = cen_holders_device(holders, 0);
    EXPECT(!strcmp(d->uuid, "GPU-fake-0") && !strcmp(d->name, "Fake GPU") && d->index == 0);
    EXPECT(d->total_bytes == 1 << 30 && d->used_bytes == 1000 && d->reserved_bytes == 24);
    EXPECT(d->unclaimed_bytes == 600 && d->holder_count == 1);
    const cen_holder *h = d->holders;
    EXPECT(h->pid == getpid() && h->device_bytes == 400 && !h->dead && *h->user);
    EXPECT(!strncmp(h->program, "test_holders", 12));
    EXPECT(h->has_ledger && h->physical && h->ledger_bytes == 340 && h->unexplained_bytes == 60);
    EXPECT(h->kind_bytes[CEN_LEDGER_PAGE] == 300 && h->kind_bytes[CEN_LEDGER_CONTEXT] == 50);
    EXPECT(h->kind_bytes[CEN_LEDGER_MODULE] == 0 && h->kind_bytes[CEN_LEDGER_HOST] == 1000);
    EXPECT(h->kind_bytes[CEN_LEDGER_SEGMENT] == 400 && h->kind_bytes[CEN_LEDGER_BLOCK] == 200);
    uint64_t owned = 0;
    for (size_t i = 0; i < h->owner_count; i++) {
        EXPECT(*h->owners[i].name && (!i || h->owners[i - 1].bytes >= h->owners[i].bytes));
        owned += h->owners[i].bytes;
    }
    EXPECT(owned >= 340 && owned <= 350); /* what came free is no owner's */
    cen_holders_free(holders);
    cen_ledger_close(run);
    cen_ledger_close(torch);
}

/* An allocator's ledger alone: its pages, or if it has none its segments, stand for the memory. */
static void takes_allocators(void) {
    cen_ledger *torch = new_ledger("", "torch", "GPU-fake-0");
    add_entry(torch, CEN_LEDGER_SEGMENT, 2, 400, false);
    add_entry(torch, CEN_LEDGER_BLOCK, 3, 200, false);
    list_process(0, getpid(), 500);
    cen_holders *holders = look();
    const cen_holder *h = cen_holders_device(holders, 0)->holders;
    EXPECT(h->has_ledger && !h->physical && h->ledger_bytes == 400 && h->unexplained_bytes == 100);
    EXPECT(h->owner_count == 1 && h->owners[0].bytes == 400);
    EXPECT(cen_holders_device(holders, 0)->unclaimed_bytes == -500);
    cen_holders_free(holders);
    add_entry(torch, CEN_LEDGER_PAGE, 5, 300, false);
    holders = look();
    h = cen_holders_device(holders, 0)->holders;
    EXPECT(h->ledger_bytes == 300 && h->unexplained_bytes == 200);
    cen_holders_free(holders);
    cen_ledger_close(torch);
}

/* Two processes; one is killed, at first with its memory still held. */
static void tells_orphans(void) {
    pid_t lives = start_holder("", "run"), dies = start_holder("", "run");
    kill_holder(dies);
    list_process(0, lives, 100);
    list_process(0, dies, 130);
    fake->devices[0].used = 230;
    cen_holders *holders = look();
    const cen_holder_device *d = cen_holders_device(holders, 0);
    EXPECT(d->holder_count == 2 && d->unclaimed_bytes == 0);
    EXPECT(d->holders[0].pid == dies && d->holders[0].dead && !*d->holders[0].user);
    EXPECT(*d->holders[0].program); /* its ledger says what it was */
    EXPECT(d->holders[0].ledger_bytes == 100 && d->holders[0].unexplained_bytes == 30);
    EXPECT(d->holders[1].pid == lives && !d->holders[1].dead);
    EXPECT(d->holders[1].ledger_bytes == 100 && d->holders[1].unexplained_bytes == 0);
    cen_holders_free(holders);
    fake->devices[0].compute_count = 1;
    EXPECT(exists(in_world("", dies, "run")));
    holders = look();
    EXPECT(cen_holders_device(holders, 0)->holder_count == 1);
    EXPECT(!exists(in_world("", dies, "run")) && exists(in_world("", lives, "run")));
    cen_holders_free(holders);
    kill_holder(lives);
}

/* A ledger that another process left, whose number is another's now. */
static void tells_reused(void) {
    pid_t was = start_holder("", "run"), is = start_holder("", "torch");
    kill_holder(was);
    EXPECT(!rename(in_world("", was, "run"), in_world("", is, "run")));
    list_process(0, is, 120);
    cen_holders *holders = look();
    const cen_holder *h = cen_holders_device(holders, 0)->holders;
    EXPECT(h->pid == is && h->has_ledger && !h->physical && h->ledger_bytes == 100);
    EXPECT(!exists(in_world("", is, "run")) && exists(in_world("", is, "torch")));
    cen_holders_free(holders);
    kill_holder(is);
}

/* The same number, and another time of its start. */
static void tells_restarted(void) {
    pid_t pid = start_holder("", "run");
    const char *path = in_world("", pid, "run");
    cen_ledger_view *view = NULL;
    EXPECT(!cen_ledger_read(path, &view, NULL));
    uint64_t ticks = cen_ledger_view_info(view)->start_ticks, other = ticks - 1, at = 0;
    cen_ledger_view_free(view);
    int fd = open(path, O_RDWR), changed = 0;
    for (off_t from = 0; pread(fd, &at, sizeof at, from) == sizeof at && from < 4096; from += 8) {
        if (at == ticks) {
            EXPECT(pwrite(fd, &other, sizeof other, from) == sizeof other);
            changed++;
        }
    }
    close(fd);
    EXPECT(ticks && changed);
    list_process(0, pid, 120);
    cen_holders *holders = look();
    EXPECT(!cen_holders_device(holders, 0)->holders->has_ledger);
    cen_holders_free(holders);
    kill_holder(pid);
}

static void make_folder(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", world, name);
    EXPECT(!mkdir(path, 0700));
}

/* In the folder of a `cenote run` that lives everything is left; elsewhere, what a process still
 * writes that has another number here. */
static void leaves_alone(void) {
    char living[32], dead[32], path[128];
    pid_t gone = start_holder("", "run");
    snprintf(living, sizeof living, "run-%d/", getpid());
    snprintf(dead, sizeof dead, "run-%d/", gone);
    make_folder(living);
    make_folder(dead);
    pid_t a = start_holder(living, "run"), b = start_holder(dead, "run");
    pid_t c = start_holder(dead, "torch"), d = start_holder("", "run");
    list_process(0, c, 100);
    kill_holder(gone);
    kill_holder(a);
    kill_holder(b);
    EXPECT(!rename(in_world("", d, "run"), in_world("", gone, "run")));
    cen_holders *holders = look();
    EXPECT(cen_holders_device(holders, 0)->holders->ledger_bytes == 100);
    cen_holders_free(holders);
    EXPECT(exists(in_world(living, a, "run")) && !exists(in_world(dead, b, "run")));
    EXPECT(exists(in_world(dead, c, "torch")) && exists(in_world("", gone, "run")));
    kill_holder(c);
    kill_holder(d);
    fake->devices[0].compute_count = 0;
    holders = look();
    cen_holders_free(holders);
    snprintf(path, sizeof path, "%s/%s", world, dead);
    EXPECT(!exists(path) && !exists(in_world("", gone, "run")));
}

/* A run in another container has its folder locked: what its processes left is its own to read. */
static void leaves_locked(void) {
    char folder[32], path[128];
    pid_t gone = start_holder("", "run");
    snprintf(folder, sizeof folder, "run-%d/", gone);
    make_folder(folder);
    snprintf(path, sizeof path, "%s/%s", world, folder);
    int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(!flock(lock, LOCK_EX));
    pid_t pid = start_holder(folder, "run");
    kill_holder(gone);
    kill_holder(pid);
    cen_holders_free(look());
    EXPECT(exists(in_world(folder, pid, "run")));
    close(lock);
    cen_holders_free(look());
    EXPECT(!exists(path));
}

/* Of living processes that NVML does not list, as in some containers, the ledger tells. */
static void takes_unlisted(void) {
    pid_t pid = start_holder("", "run");
    fake->device_count = 2;
    list_process(0, 1, ~0ull);
    fake->devices[0].used = 70;
    cen_holders *holders = look();
    const cen_holder_device *d = cen_holders_device(holders, 0);
    EXPECT(d->holder_count == 2 && d->unclaimed_bytes == 70);
    EXPECT(d->holders[0].pid == pid && d->holders[0].device_bytes == CEN_BYTES_UNKNOWN);
    EXPECT(d->holders[0].ledger_bytes == 100 && d->holders[0].unexplained_bytes == 0);
    EXPECT(d->holders[1].pid == 1 && !d->holders[1].dead && !d->holders[1].has_ledger);
    EXPECT(cen_holders_device(holders, 1)->holder_count == 0);
    cen_holders_free(holders);
    kill_holder(pid);
}

/* The kernel closes what is closed at an exec a moment before the new program's arguments show. */
static void await_arguments(pid_t pid) {
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    ssize_t got = 0;
    for (int i = 0; got < 1 && i < 10000; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        EXPECT(fd >= 0);
        got = read(fd, &byte, 1);
        close(fd);
    }
    EXPECT(got == 1);
}

/* Programs may call themselves anything. */
static void cleans_names(void) {
    int ready[2];
    char byte;
    EXPECT(!pipe2(ready, O_CLOEXEC));
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char name[] = "/x/\xc3\xa4\x1b\xff\xe2\x82", seconds[] = "600";
        execv("/bin/sleep", (char *[]){name, seconds, NULL});
        _exit(1);
    }
    close(ready[1]);
    EXPECT(read(ready[0], &byte, 1) == 0); /* it runs the other program */
    await_arguments(pid);
    list_process(0, pid, 10);
    list_process(0, 4000000, 5);
    cen_holders *holders = look();
    const cen_holder *h = cen_holders_device(holders, 0)->holders;
    EXPECT(!strcmp(h[0].program, "\xc3\xa4???? 600"));
    EXPECT(!strcmp(h[1].program, "driver's 4000000") && h[1].dead);
    cen_holders_free(holders);
    kill_holder(pid);
}

static void tells_used(void) {
    uint64_t used = 1, own = 1;
    fake->devices[0].used = 77;
    EXPECT(cen_holders_used("GPU-fake-0", &used, &own) == CEN_OK);
    EXPECT(used == 77 && own == CEN_BYTES_UNKNOWN);
    list_process(0, getpid(), 33);
    EXPECT(cen_holders_used("GPU-fake-0", NULL, &own) == CEN_OK && own == 33);
    used = own = 1;
    EXPECT(cen_holders_used("GPU-none", &used, &own) == CEN_ERR_NOT_FOUND);
    EXPECT(used == 1 && own == 1 && message_count == 1);
    EXPECT(cen_holders_used(NULL, &used, &own) == CEN_ERR_INVALID && message_count == 2);
    fake->devices[0].compute_result = 15;
    EXPECT(cen_holders_used("GPU-fake-0", &used, &own) == CEN_ERR_DEVICE && used == 1);
    EXPECT(cen_holders_used("GPU-fake-0", &used, NULL) == CEN_OK && used == 77);
}

static void fails(void) {
    cen_holders *holders = NULL;
    EXPECT(cen_holders_read(NULL) == CEN_ERR_INVALID);
    fake->device_count = 0;
    message_count = 0;
    EXPECT(cen_holders_read(&holders) == CEN_ERR_NO_DEVICE && !holders && message_count == 1);
    fake->device_count = 3;
    fake->devices[1].compute_result = 15;
    holders = look();
    EXPECT(cen_holders_device_count(holders) == 2 && message_count == 2);
    EXPECT(cen_holders_device(holders, 1)->index == 2);
    EXPECT(strstr(last_message, "GPU 1 is left out: NVML: "));
    cen_holders_free(holders);
    holders = NULL;
    fake->device_count = 1;
    fake->devices[0].compute_result = 15;
    EXPECT(cen_holders_read(&holders) == CEN_ERR_DEVICE && !holders && message_count == 3);
    cen_holders_free(NULL);
}

/* Each allocation, then each look at a file, fails once. Without files there is less to tell. */
static void survives_faults(void) {
    pid_t pid = start_holder("", "run"), gone = start_holder("", "torch");
    kill_holder(gone);
    list_process(0, pid, 100);
    list_process(0, gone, 100);
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        for (int nth = 1;; nth++) {
            cen_holders *holders = NULL;
            ceni_fault_set(&ceni_fault_points[point], nth, false);
            message_count = 0;
            cen_status status = cen_holders_read(&holders);
            bool hit = !ceni_fault_points[point].left;
            ceni_fault_set(&ceni_fault_points[point], 0, false);
            EXPECT((status == CEN_OK) == (holders != NULL));
            EXPECT(!status || (status == CEN_ERR_HOST_MEMORY && message_count >= 1));
            cen_holders_free(holders);
            if (!hit) {
                EXPECT(!status && nth > 4);
                break;
            }
        }
    }
    kill_holder(pid);
}

static void in_world_child(void (*body)(void)) {
    make_world();
    in_child(body, NEW);
    drop_world();
}

#define CASE(name)                                                                                 \
    static void test_##name(void **state) {                                                        \
        in_world_child(name);                                                                      \
    }
CASE(joins)
CASE(takes_allocators)
CASE(tells_orphans)
CASE(tells_reused)
CASE(tells_restarted)
CASE(leaves_alone)
CASE(leaves_locked)
CASE(takes_unlisted)
CASE(cleans_names)
CASE(tells_used)
CASE(fails)
CASE(survives_faults)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joins),           cmocka_unit_test(test_takes_allocators),
        cmocka_unit_test(test_tells_orphans),   cmocka_unit_test(test_tells_reused),
        cmocka_unit_test(test_tells_restarted), cmocka_unit_test(test_leaves_alone),
        cmocka_unit_test(test_leaves_locked),   cmocka_unit_test(test_takes_unlisted),
        cmocka_unit_test(test_cleans_names),    cmocka_unit_test(test_tells_used),
        cmocka_unit_test(test_fails),           cmocka_unit_test(test_survives_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
