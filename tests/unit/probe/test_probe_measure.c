/* What the probe of a host is made of: chains, steps, loops, threads, what the system tells. And a
 * probe of this host, whose results are read back as they were. No time is judged. */
#include "base/fault.h"
#include "base/mem.h"
#include "cenote/log.h"
#include "probe/host.h"
#include "probe/results.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- chains ---- */

static void chains_visit_every_line_once(void **state) {
    enum { LINES = 3000, LINE = 64 };
    static char memory[LINES * LINE];
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 7, 64, 1000, LINES};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (uint64_t seed = 0; seed < 5; seed++) {
            bool seen[LINES] = {false};
            uint64_t base = 0x7f0000001000, at = base;
            ceni_chain_make(memory, base, counts[i], LINE, seed);
            for (uint64_t n = 0; n < counts[i]; n++) {
                uint64_t index = (at - base) / LINE;
                assert_true(at >= base && (at - base) % LINE == 0 && index < counts[i]);
                assert_false(seen[index]);
                seen[index] = true;
                memcpy(&at, memory + index * LINE, sizeof at);
            }
            assert_int_equal(at, base);
        }
    }
}

static void chains_are_followed(void **state) {
    enum { LINES = 100 };
    static _Alignas(64) char memory[LINES * 64];
    uint64_t base = (uintptr_t)memory, by_hand = base;
    ceni_chain_make(memory, base, LINES, 64, 9);
    for (uint64_t steps = 0; steps < 2 * LINES; steps++) {
        assert_int_equal(ceni_host_follow(base, steps), by_hand);
        memcpy(&by_hand, (const void *)(uintptr_t)by_hand, sizeof by_hand);
    }
}

static void sizes_rise(void **state) {
    uint64_t sizes[64];
    size_t n = ceni_chain_sizes(4096, 1 << 20, 64, sizes, 64);
    assert_int_equal(n, 17);
    assert_int_equal(sizes[0], 4096);
    assert_int_equal(sizes[1], 6144);
    assert_int_equal(sizes[n - 1], 1 << 20);
    for (size_t i = 1; i < n; i++) {
        assert_true(sizes[i] > sizes[i - 1] && sizes[i] % 64 == 0);
    }
    assert_int_equal(ceni_chain_sizes(4096, 1 << 20, 64, sizes, 3), 3);
}

/* ---- steps ---- */

static void find(const double *ns, size_t count, const uint64_t *expected, size_t found) {
    cen_probe_step steps[32];
    uint64_t ends[8] = {0};
    for (size_t i = 0; i < count; i++) {
        steps[i] = (cen_probe_step){.bytes = i + 1, .ns = ns[i]};
    }
    assert_int_equal(ceni_steps_find(steps, count, ends, 8), found);
    assert_memory_equal(ends, expected, found * sizeof *ends);
}

static void steps_end_levels(void **state) {
    static const double flat[] = {1, 1, 1.1, 1, 1}, one[] = {1, 1, 1.1, 1.6, 3, 4, 4, 4, 4},
                        three[] = {1,  1.02, 1,    1,  3.7, 3.7, 3.8, 5,  9,
                                   14, 15,   15.5, 15, 40,  70,  80,  82, 80};
    static const uint64_t end_one[] = {3}, end_three[] = {4, 7, 13};
    find(flat, 5, NULL, 0);
    find(flat, 0, NULL, 0);
    find(one, 9, end_one, 1);
    find(three, 18, end_three, 3);
}

/* ---- figures ---- */

static void figures_are_medians(void **state) {
    ceni_samples s = {{0}, 0};
    assert_true(ceni_samples_figure(&s).median == 0);
    ceni_samples_add(&s, 4);
    ceni_samples_add(&s, 1);
    assert_true(ceni_samples_figure(&s).median == 2.5);
    ceni_samples_add(&s, 1.23456789);
    ceni_samples_add(&s, 9);
    ceni_samples_add(&s, 0.5);
    ceni_samples_add(&s, 100); /* one too many */
    ceni_figure f = ceni_samples_figure(&s);
    assert_true(f.median == 1.23457 && f.spread.low == 0.5 && f.spread.high == 9);
}

static void drafts_keep_what_is_known(void **state) {
    ceni_draft draft = {0};
    ceni_samples slow = {{1, 2, 3}, 3}, fast = {{5, 6, 7}, 3}, none = {{0}, 0};
    char reason[400];
    cen_probe_device d = {0};
    ceni_draft_level(&draft, "nothing");
    ceni_draft_latency(&draft, "nothing", &none, 0);
    ceni_draft_transfer(&draft, "L2", "read", 1, 64, &fast, false);
    ceni_draft_transfer(&draft, "L2", "read", 4, 64, &slow, true);
    ceni_draft_transfer(&draft, "L2", "write", 4, 64, &none, true);
    memset(reason, 'x', sizeof reason);
    reason[sizeof reason - 1] = '\0';
    ceni_draft_skip(&draft, "L3", "%s", reason);
    ceni_draft_skip(&draft, "L4", "two\nlines");
    assert_int_equal(ceni_draft_take(&draft, &d), CEN_OK);
    assert_int_equal(d.level_count, 1);
    assert_string_equal(d.levels[0].level, "L2");
    assert_true(d.levels[0].bandwidth_gbps == 2);
    assert_int_equal(d.transfer_count, 2);
    assert_int_equal(strlen(d.skipped[0].reason), sizeof d.skipped[0].reason - 1);
    assert_string_equal(d.skipped[0].reason + sizeof d.skipped[0].reason - 5, "x...");
    assert_string_equal(d.skipped[1].reason, "two?lines");
    ceni_free((void *)d.levels);
    ceni_free((void *)d.transfers);
    ceni_free((void *)d.skipped);
}

static void drafts_end_somewhere(void **state) {
    ceni_draft draft = {0};
    cen_probe_device d;
    for (int i = 0; i <= CENI_RESULTS_ROWS; i++) {
        assert_int_equal(draft.status, CEN_OK);
        ceni_draft_skip(&draft, "a", "b");
    }
    assert_int_equal(draft.status, CEN_ERR_LIMIT);
    assert_int_equal(ceni_draft_take(&draft, &d), CEN_ERR_LIMIT);
    ceni_draft_free(&draft);
}

/* ---- loops ---- */

enum { LOOP_WORDS = 4 * CENI_LOOP_BYTES / 8 };

static void loops_do_what_plain_ones_do(void **state) {
    static _Alignas(64) uint64_t from[LOOP_WORDS], to[LOOP_WORDS + 8];
    static _Alignas(64) float a[LOOP_WORDS], b[LOOP_WORDS], c[LOOP_WORDS + 16];
    const ceni_host_loops *loops;
    for (size_t i = 0; (loops = ceni_host_loops_at(i)); i++) {
        uint64_t sum = 0;
        print_message("%s\n", loops->name);
        for (uint64_t k = 0; k < LOOP_WORDS; k++) {
            from[k] = (k + 1) * 0x9E3779B97F4A7C15u;
            sum ^= from[k];
            a[k] = (float)k;
            b[k] = (float)(k % 7);
        }
        assert_int_equal(loops->read(from, sizeof from), sum);
        assert_int_equal(loops->read(from, 0), 0);
        memset(to, 0xee, sizeof to);
        loops->copy(to, from, sizeof from);
        assert_memory_equal(to, from, sizeof from);
        loops->write(to, sizeof from, 77);
        for (uint64_t k = 0; k < LOOP_WORDS; k++) {
            assert_int_equal(to[k], 77);
        }
        assert_int_equal(to[LOOP_WORDS], 0xeeeeeeeeeeeeeeee);
        c[LOOP_WORDS] = 5;
        loops->triad(c, a, b, sizeof a, 0.5f);
        for (uint64_t k = 0; k < LOOP_WORDS; k++) {
            assert_true(c[k] == a[k] + 0.5f * b[k]);
        }
        assert_true(c[LOOP_WORDS] == 5);
        /* Each chain begins with its number; x / 2 + 1 leads to 2. */
        float begin = 0, chains = (float)loops->fma_chains, width = (float)loops->fma_width;
        for (uint32_t k = 0; k < loops->fma_chains; k++) {
            begin += (float)k * width;
        }
        assert_true(loops->fma(0) == begin);
        assert_true(loops->fma(1) == begin / 2 + chains * width);
        assert_true(loops->fma(100) == 2 * chains * width);
    }
    assert_true(ceni_host_loops_best() == ceni_host_loops_at(0));
}

static void count_in(void *arg, uint32_t i) {
    int *counts = arg;
    counts[i]++;
}

static void crews_run_each_once(void **state) {
    ceni_host_system system = {.cpu_count = 0};
    ceni_crew *crew = NULL;
    int counts[5] = {0};
    ceni_host_system_read("", &system);
    assert_int_equal(ceni_crew_start(&system, 5, &crew), 0);
    for (int job = 1; job <= 20; job++) {
        assert_true(ceni_crew_run(crew, count_in, counts) > 0);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(counts[i], job);
        }
    }
    ceni_crew_stop(crew);
    ceni_crew_stop(NULL);
}

/* ---- what the system tells ---- */

static char folder[64];

static int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/cenote-probe-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT(cert-env33-c) */
}

static void put_file(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", folder, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void put_cache(uint32_t cpu, int index, const char *level, const char *type,
                      const char *size, const char *shared) {
    static const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
    const char *texts[] = {level, type, size, shared};
    char path[128];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%d/%s", cpu, index,
                 names[i]);
        put_file(path, texts[i]);
    }
}

static void systems_are_read(void **state) {
    ceni_host_system real, s;
    char list[64];
    ceni_host_system_read("", &real);
    assert_true(real.cpu_count > 0 && real.memory_bytes > 0 && real.free_bytes > 0);
    for (uint32_t i = 0; i < real.cpu_count; i++) {
        snprintf(list, sizeof list, "%u", real.cpus[i]);
        put_cache(real.cpus[i], 0, "1\n", "Data\n", "48K\n", list);
        put_cache(real.cpus[i], 1, "1\n", "Instruction\n", "64K\n", list);
        put_cache(real.cpus[i], 2, "2\n", "Unified\n", "2M\n", "0-4095\n");
    }
    put_file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some \tProcessor\n");
    put_file("/proc/meminfo", "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
    put_file("/sys/fs/cgroup/memory.max", "524288\n");
    put_file("/sys/fs/cgroup/memory.current", "4096\n");
    put_file("/sys/devices/system/node/has_memory", "0-2\n");
    put_file("/sys/devices/system/node/node0/cpulist", "\n");
    put_file("/sys/devices/system/node/node1/cpulist", "0-4095\n");
    put_file("/sys/devices/system/node/node2/cpulist", "\n");
    put_file("/sys/devices/system/node/node1/distance", "20 10 30\n");
    ceni_host_system_read(folder, &s);
    assert_string_equal(s.name, "Some ?Processor");
    assert_int_equal(s.cpu_count, real.cpu_count);
    assert_int_equal(s.cache_count, 2);
    assert_int_equal(s.caches[0].bytes, 48 << 10);
    assert_int_equal(s.caches[0].count, real.cpu_count);
    assert_int_equal(s.caches[1].bytes, 2 << 20);
    assert_int_equal(s.caches[1].count, 1);
    assert_int_equal(s.memory_bytes, 2048 << 10);
    assert_int_equal(s.free_bytes, 524288 - 4096);
    assert_int_equal(s.nodes, 3);
    assert_int_equal(s.near_node, 1);
    assert_int_equal(s.far_node, 2);
    put_file("/sys/fs/cgroup/memory.max", "max\n");
    ceni_host_system_read(folder, &s);
    assert_int_equal(s.free_bytes, 1024 << 10);
}

static void silent_systems_are_read(void **state) {
    ceni_host_system s;
    ceni_host_system_read("/nonexistent", &s);
    assert_string_equal(s.name, "");
    assert_int_equal(s.cache_count, 0);
    assert_int_equal(s.nodes, 0);
    assert_true(s.cpu_count > 0 && s.memory_bytes > 0);
}

/* ---- this host ---- */

static bool skips(const cen_probe_device *d, const char *level, const char *words) {
    for (size_t i = 0; i < d->skipped_count; i++) {
        if (!strcmp(d->skipped[i].level, level) && strstr(d->skipped[i].reason, words)) {
            return true;
        }
    }
    return false;
}

/* A device's results, gathered. */
static cen_probe *measure(const char *root, const char *dir) {
    ceni_host_probe options = {.root = root, .dir = dir, .quick = true};
    ceni_draft draft = {0};
    cen_probe *probe = ceni_calloc(1, sizeof *probe);
    probe->devices = ceni_calloc(1, sizeof *probe->devices);
    assert_int_equal(ceni_probe_host(&options, &draft), CEN_OK);
    assert_int_equal(ceni_draft_take(&draft, &probe->devices[0]), CEN_OK);
    ceni_draft_free(&draft);
    probe->device_count = 1;
    return probe;
}

/* Structures are filled over zeros, so their bytes are equal, too. */
static void assert_equal(const cen_probe_device *a, const cen_probe_device *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->multiprocessors, b->multiprocessors);
    assert_int_equal(a->page_bytes, b->page_bytes);
    assert_int_equal(a->level_count, b->level_count);
    assert_int_equal(a->skipped_count, b->skipped_count);
    assert_int_equal(a->rate_count, b->rate_count);
    assert_int_equal(a->transfer_count, b->transfer_count);
    assert_int_equal(a->step_count, b->step_count);
    assert_memory_equal(a->levels, b->levels, a->level_count * sizeof *a->levels);
    assert_memory_equal(a->skipped, b->skipped, a->skipped_count * sizeof *a->skipped);
    assert_memory_equal(a->rates, b->rates, a->rate_count * sizeof *a->rates);
    assert_memory_equal(a->transfers, b->transfers, a->transfer_count * sizeof *a->transfers);
    assert_memory_equal(a->steps, b->steps, a->step_count * sizeof *a->steps);
}

static void results_are_read_back(void **state) {
    char path[128];
    cen_probe *probe = NULL, *back = NULL;
    cen_probe_options options = {.size = sizeof options, .dir = folder, .quick = true};
    assert_int_equal(cen_probe_run(&options, &probe), CEN_OK);
    size_t count = cen_probe_device_count(probe);
    const cen_probe_device *host = cen_probe_get_device(probe, count - 1);
    assert_true(count > 0 && host->level_count > 1 && host->step_count > 10);
    assert_true(cen_probe_get_level(host, CEN_LEVEL_DRAM)->capacity_bytes > 0);
    assert_true(cen_probe_get_rate(host, "fp32") > 0);
    assert_true(cen_probe_get_level(host, CEN_LEVEL_DISK) || skips(host, CEN_LEVEL_DISK, folder));
    snprintf(path, sizeof path, "%s/a/b/p.json", folder);
    setenv("CENOTE_PROBE", path, 1);
    assert_int_equal(cen_probe_write(probe, NULL), CEN_OK);
    assert_int_equal(cen_probe_load(NULL, &back), CEN_OK);
    assert_int_equal(cen_probe_device_count(back), count);
    for (size_t i = 0; i < count; i++) {
        assert_equal(cen_probe_get_device(probe, i), cen_probe_get_device(back, i));
    }
    assert_string_equal(probe->date, back->date);
    assert_true(back->quick && strlen(back->date) == 10);
    cen_probe_free(probe);
    cen_probe_free(back);
}

static void hosts_without_word_are_measured(void **state) {
    cen_probe *probe = measure("/nonexistent", "/nonexistent");
    const cen_probe_device *d = cen_probe_get_device(probe, 0);
    assert_string_equal(d->name, "host");
    assert_true(skips(d, CEN_LEVEL_L1, "/sys does not tell of caches"));
    assert_true(skips(d, "DRAM far", "/sys does not tell of NUMA nodes"));
    assert_true(skips(d, CEN_LEVEL_DISK, "/nonexistent: cannot be looked at: No such file"));
    for (size_t i = 0; i < d->level_count; i++) {
        assert_true(!d->levels[i].capacity_bytes || !strcmp(d->levels[i].level, CEN_LEVEL_DRAM));
    }
    cen_probe_free(probe);
}

static void memory_is_no_disk(void **state) {
    struct stat st;
    if (stat("/dev/shm", &st)) {
        skip();
    }
    cen_probe *probe = measure("", "/dev/shm");
    assert_true(skips(cen_probe_get_device(probe, 0), CEN_LEVEL_DISK, "is memory, not a disk"));
    cen_probe_free(probe);
}

/* No signal ends the program where its files may not be that large. */
static void limits_of_files_are_kept(void **state) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, before.rlim_max}), 0);
    cen_probe *probe = measure("/nonexistent", folder);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(skips(cen_probe_get_device(probe, 0), CEN_LEVEL_DISK, folder));
    cen_probe_free(probe);
}

static void options_are_checked(void **state) {
    cen_probe *probe = NULL;
    cen_probe_options options = {.size = sizeof options, .dir = "/nonexistent"};
    assert_int_equal(cen_probe_run(&options, &probe), CEN_ERR_INVALID);
    assert_string_equal(cen_log_last_error(), "cen_probe_run: dir '/nonexistent' is no folder");
    options.size = 1;
    assert_int_equal(cen_probe_run(&options, &probe), CEN_ERR_INVALID);
    assert_int_equal(cen_probe_run(NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_probe_write(NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_probe_json(NULL, NULL), CEN_ERR_INVALID);
    assert_null(probe);
}

/* Nothing is left where writing failed, and what was there stays. */
static void writing_is_whole_or_not_at_all(void **state) {
    char path[128], line[64] = "";
    cen_probe *probe = NULL;
    assert_int_equal(cen_probe_load(TEST_DATA "/probe/gpu.json", &probe), CEN_OK);
    assert_int_equal(cen_probe_write(probe, "/nonexistent/p.json"), CEN_ERR_IO);
    assert_string_equal(cen_log_last_error(),
                        "/nonexistent/p.json: cannot be written: No such file or directory");
    snprintf(path, sizeof path, "%s/p.json", folder);
    for (int point = 0; point < CENI_FAULT_POINTS; point++) {
        cen_status status = CEN_ERR_IO;
        put_file("/p.json", "before\n");
        for (int64_t n = 1; status; n++) {
            ceni_fault_set(&ceni_fault_points[point], n, false);
            status = cen_probe_write(probe, path);
            ceni_fault_set(&ceni_fault_points[point], 0, false);
            FILE *file = fopen(path, "r");
            assert_non_null(file);
            assert_non_null(fgets(line, sizeof line, file));
            fclose(file);
            assert_string_equal(line, status ? "before\n" : "{\n");
            snprintf(line, sizeof line, "%s.%ld-0.part", path, (long)getpid());
            assert_int_equal(access(line, F_OK), -1);
        }
    }
    cen_probe_free(probe);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_visit_every_line_once),
        cmocka_unit_test(chains_are_followed),
        cmocka_unit_test(sizes_rise),
        cmocka_unit_test(steps_end_levels),
        cmocka_unit_test(figures_are_medians),
        cmocka_unit_test(drafts_keep_what_is_known),
        cmocka_unit_test(drafts_end_somewhere),
        cmocka_unit_test(loops_do_what_plain_ones_do),
        cmocka_unit_test(crews_run_each_once),
        IN_FOLDER(systems_are_read),
        cmocka_unit_test(silent_systems_are_read),
        IN_FOLDER(results_are_read_back),
        cmocka_unit_test(hosts_without_word_are_measured),
        cmocka_unit_test(memory_is_no_disk),
        IN_FOLDER(limits_of_files_are_kept),
        cmocka_unit_test(options_are_checked),
        IN_FOLDER(writing_is_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
