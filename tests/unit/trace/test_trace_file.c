/* Traces as files: what the writer writes the reader reads, as a snapshot; and whatever is cut off
 * or damaged is told by its place, or read up to the last whole block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fault.h"
#include "cenote/explain.h"
#include "cenote/log.h"
#include "cenote/snapshot.h"
#include "trace/emit.h"
#include "trace/write.h"

#define MIB      ((uint64_t)1 << 20)
#define OK(call) assert_int_equal(call, CEN_OK)

static char last_log[512];
static int last_level = -1;

static void keep_log(void *arg, cen_log_level level, const char *message) {
    snprintf(last_log, sizeof last_log, "%s", message);
    last_level = (int)level;
}

static int set_up(void **state) {
    cen_log_set(keep_log, NULL, CEN_LOG_WARN);
    last_log[0] = '\0';
    return 0;
}

/* ---- a file in memory ---- */

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static ceni_event_record event(uint64_t ns, unsigned what, uint64_t addr, uint64_t size,
                               uint64_t stream, uint32_t stack) {
    return (ceni_event_record){.ticks = ns,
                               .addr = addr,
                               .size = size,
                               .stream = stream,
                               .stack = stack,
                               .kind = (uint8_t)what,
                               .flags = (uint8_t)(what >> 8)};
}

typedef void write_fn(ceni_writer *writer);

/* What `write` writes between open and close, through a real file. NULL data: it failed. */
static cen_status make(write_fn *write, bytes *made) {
    char path[] = "/tmp/cenote_trace_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    ceni_writer writer;
    *made = (bytes){0};
    ceni_moment_pair start = {1000, 1000}, end = {900000, 900000};
    cen_status status = ceni_writer_open(&writer, fd, "made", 7, start, 5000000);
    if (!status) {
        write(&writer);
        status = ceni_writer_close(&writer, 0, end);
    }
    made->size = (size_t)lseek(fd, 0, SEEK_END);
    made->data = malloc(made->size + 1);
    assert_int_equal(pread(fd, made->data, made->size, 0), (ssize_t)made->size);
    close(fd);
    return status;
}

static void write_all_kinds(ceni_writer *w) {
    uint32_t file = ceni_writer_string(w, "train.py", 8);
    uint32_t function = ceni_writer_string(w, "step", 4);
    uint32_t module = ceni_writer_module(w, "/no/such/lib.so", "abcd");
    ceni_frame_record frames[2] = {
        {.module = module, .at.offset = 0x1234},
        {.module = CENI_FILE_NONE, .line = 17, .at.named = {file, function}},
    };
    bool all = module != CENI_FILE_NONE; /* false only where memory is made to run out */
    uint32_t stack = ceni_writer_stack(w, all ? frames : frames + 1, all ? 2 : 1);
    uint32_t mark = ceni_writer_string(w, "forward", 7);
    (void)ceni_writer_device(w, 0, "card", 64 * MIB);
    (void)ceni_writer_setting(w, "mode", "fast");
    const ceni_event_record first[] = {
        event(1500, CENI_EVENT_MAP | CENI_EMIT_BEFORE, 0x100000, MIB, 3, CENI_FILE_NONE),
        event(1600, CENI_EVENT_ALLOC | CENI_EMIT_BEFORE, 0x100000, 1000, 3, stack),
        event(2000, CENI_EVENT_MAP, 0x200000, MIB, 3, CENI_FILE_NONE),
        event(5000, CENI_EVENT_ALLOC, 0x200000, 700, 3, stack),
        event(4000, CENI_EVENT_ALLOC, 0x200400, 512, 3, CENI_FILE_NONE), /* earlier, later */
    };
    const ceni_event_record second[] = {
        event(6000, CENI_EVENT_FREE | CENI_EMIT_PENDING, 0x200400, 512, 4, CENI_FILE_NONE),
        event(7000, CENI_EVENT_PRIVATE, 0, 9, 5, CENI_FILE_NONE),
        event(8000, CENI_EVENT_MAP | CENI_EMIT_PLAIN | CENI_EMIT_SMALL, 0x900000, MIB, 5,
              CENI_FILE_NONE),
        event(9000, CENI_EVENT_FREE, 0x100000, 1000, 3, CENI_FILE_NONE),
        event(9500, CENI_EVENT_OOM, 12345, 4 * MIB, 3, CENI_FILE_NONE),
        event(9600, CENI_EVENT_COPY, 0x200000, 100, 3, CENI_FILE_NONE),
        event(9700, 200, 1, 2, 3, CENI_FILE_NONE), /* a later version's */
        event(9800, CENI_EVENT_MARK, mark, 0, 0, CENI_FILE_NONE),
        event(9900, CENI_EVENT_STEP, 0, 1, 0, CENI_FILE_NONE),
    };
    ceni_event_record later[9];
    memcpy(later, second, sizeof second);
    later[7].device = later[8].device = CENI_EMIT_ALL_DEVICES;
    (void)ceni_writer_events(w, 0, first, 5, (ceni_moment_pair){100000, 100000});
    (void)ceni_writer_events(w, 1, later, 9, (ceni_moment_pair){200000, 200000});
}

static cen_snapshot *read_bytes(bytes b) {
    cen_snapshot *s = NULL;
    cen_read_error error = {{0}, 0};
    cen_status status = cen_snapshot_read_memory("t", b.data, b.size, &s, &error);
    if (status) {
        print_message("%s\n", error.message);
    }
    assert_int_equal(status, CEN_OK);
    return s;
}

static void check_event(const cen_trace_event *e, cen_action action, uint64_t addr, uint64_t size,
                        uint64_t stream, int64_t us) {
    assert_int_equal(e->action, action);
    assert_int_equal(e->addr, addr);
    assert_int_equal(e->size, size);
    assert_int_equal(e->stream, stream);
    assert_int_equal(e->time_us, us);
}

static void all_kinds_are_read(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    cen_snapshot *s = read_bytes(b);
    assert_int_equal(cen_snapshot_device_count(s), 1);
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    const cen_trace_event *e = d->events;
    assert_int_equal(d->event_count, 8);
    check_event(&e[0], CEN_ACTION_SEGMENT_MAP, 0x200000, MIB, 3, 5001);
    check_event(&e[1], CEN_ACTION_ALLOC, 0x200400, 512, 3, 5003); /* the time is what orders */
    check_event(&e[2], CEN_ACTION_ALLOC, 0x200000, 700, 3, 5004);
    check_event(&e[3], CEN_ACTION_FREE_REQUESTED, 0x200400, 512, 4, 5005);
    check_event(&e[4], CEN_ACTION_SEGMENT_ALLOC, 0x900000, MIB, 5, 5007);
    check_event(&e[5], CEN_ACTION_FREE_REQUESTED, 0x100000, 1000, 3, 5008);
    check_event(&e[6], CEN_ACTION_FREE_COMPLETED, 0x100000, 1000, 3, 5008);
    check_event(&e[7], CEN_ACTION_OOM, 12345, 4 * MIB, 3, 5008);

    size_t count;
    const cen_frame *frames = cen_snapshot_stack(s, e[2].stack, &count);
    assert_int_equal(count, 2);
    assert_string_equal(frames[0].function, "lib.so+0x1234");
    assert_string_equal(frames[1].function, "step");
    assert_string_equal(frames[1].file, "train.py");
    assert_int_equal(frames[1].line, 17);

    assert_int_equal(d->segment_count, 2);
    assert_int_equal(d->segments[0].addr, 0x100000); /* the two pieces are one */
    assert_int_equal(d->segments[0].size, 2 * MIB);
    assert_true(d->segments[0].expandable);
    assert_false(d->segments[1].expandable);
    assert_true(d->segments[1].small);
    assert_int_equal(d->segments[1].pool_id[1], 9);
    assert_int_equal(d->initial_count, 1);
    assert_int_equal(d->initial[0].addr, 0x100000);
    assert_int_equal(d->initial[0].stack, e[2].stack);
    assert_int_equal(d->initial_reserved, MIB);
    assert_int_equal(d->blocks[1].state, CEN_BLOCK_ACTIVE);
    assert_int_equal(d->blocks[1].requested, 700);
    assert_int_equal(d->blocks[1].size, 1024);
    assert_int_equal(d->blocks[2].state, CEN_BLOCK_PENDING_FREE);

    assert_int_equal(d->annotation_count, 2);
    assert_string_equal(d->annotations[0].name, "forward");
    assert_false(d->annotations[0].end);
    assert_string_equal(d->annotations[1].name, CENI_STEP_MARK);
    assert_true(d->annotations[1].end);
    assert_string_equal(cen_snapshot_setting(s, "mode"), "fast");
    assert_string_equal(cen_snapshot_setting(s, "device 0"), "card");
    assert_null(cen_snapshot_setting(s, "trace cut off"));
    assert_int_equal(last_log[0], 0);
    cen_snapshot_free(s);
    free(b.data);
}

static void strings_are_kept_once(void **state) {
    int fds[2];
    assert_int_equal(pipe(fds), 0); /* a pipe serves too */
    ceni_writer w;
    OK(ceni_writer_open(&w, fds[1], "pipe", 1, (ceni_moment_pair){1, 1}, 0));
    char text[16];
    for (uint32_t i = 0; i < 1000; i++) { /* through several sizes of the table */
        snprintf(text, sizeof text, "s%u", i);
        assert_int_equal(ceni_writer_string(&w, text, strlen(text)), i);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "s%u", i);
        assert_int_equal(ceni_writer_string(&w, text, strlen(text)), i);
    }
    OK(ceni_writer_close(&w, 0, (ceni_moment_pair){2, 2}));
    close(fds[0]);
    close(fds[1]);
}

/* ---- cut off, damaged, of other versions ---- */

/* Where blocks begin, and the end; the count. */
static size_t block_offsets(bytes b, size_t *offsets, size_t most) {
    size_t count = 0, at = sizeof(ceni_file_head);
    while (at < b.size && count < most) {
        ceni_block_head h;
        memcpy(&h, b.data + at, sizeof h);
        offsets[count++] = at;
        at += sizeof h + h.length;
    }
    assert_int_equal(at, b.size);
    return count;
}

static void any_cut_is_read_up_to_a_whole_block(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    size_t offsets[32], count = block_offsets(b, offsets, 32);
    assert_true(count > 5);
    for (size_t cut = 0; cut < b.size; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, b.data, cut);
        cen_snapshot *s = NULL;
        cen_read_error error;
        last_log[0] = '\0';
        cen_status status = cen_snapshot_read_memory("t", exact, cut, &s, &error);
        if (cut < sizeof(ceni_file_head)) {
            assert_true(status == CEN_ERR_TRUNCATED || (cut < 5 && status == CEN_ERR_FORMAT));
        } else {
            assert_int_equal(status, CEN_OK);
            assert_string_equal(cen_snapshot_setting(s, "trace cut off"), "True");
            assert_int_equal(last_level, CEN_LOG_WARN);
            bool whole = false;
            for (size_t i = 0; i < count; i++) {
                whole |= offsets[i] == cut;
            }
            assert_non_null(strstr(last_log, whole ? "was not stopped" : "within a block"));
            cen_snapshot_free(s);
        }
        free(exact);
    }
    free(b.data);
}

static void any_damage_is_noticed(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    for (size_t at = 0; at < b.size; at++) {
        b.data[at] ^= 0x40;
        cen_snapshot *s = NULL;
        cen_read_error error;
        /* Also a length that reaches beyond the end: what was cut off would have no tail. */
        assert_int_equal(cen_snapshot_read_memory("t", b.data, b.size, &s, &error), CEN_ERR_FORMAT);
        b.data[at] ^= 0x40;
    }
    free(b.data);
}

static void refuse(bytes b, cen_status expected, const char *text) {
    cen_snapshot *s = NULL;
    cen_read_error error;
    assert_int_equal(cen_snapshot_read_memory("t", b.data, b.size, &s, &error), expected);
    if (!strstr(error.message, text)) {
        fail_msg("'%s' has no '%s'", error.message, text);
    }
    assert_null(strchr(error.message, '\n'));
}

static void reseal_head(bytes b) {
    ceni_file_head head;
    memcpy(&head, b.data, sizeof head);
    head.check = XXH3_64bits(&head, offsetof(ceni_file_head, check));
    memcpy(b.data, &head, sizeof head);
}

static void reseal_block(bytes b, size_t at) {
    ceni_block_head h;
    memcpy(&h, b.data + at, sizeof h);
    h.check = XXH3_64bits_withSeed(b.data + at + sizeof h, h.length,
                                   XXH3_64bits(&h, offsetof(ceni_block_head, check)));
    memcpy(b.data + at, &h, sizeof h);
}

static void versions(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    b.data[offsetof(ceni_file_head, major)] = 2;
    reseal_head(b);
    refuse(b, CEN_ERR_FORMAT, "version 2.0; this cenote reads version 1");
    b.data[offsetof(ceni_file_head, major)] = 1;
    b.data[offsetof(ceni_file_head, minor)] = 9; /* newer, but nothing that misleads */
    reseal_head(b);
    cen_snapshot_free(read_bytes(b));
    b.data[6] ^= 1;
    refuse(b, CEN_ERR_FORMAT, "byte 0: a trace whose first bytes are damaged");
    b.data[6] ^= 1;
    b.data[40] ^= 1;
    refuse(b, CEN_ERR_FORMAT, "head is damaged");
    free(b.data);
}

/* A block of a kind that this version does not know, and a head that is longer, are skipped. */
static void unknown_blocks_are_skipped(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    size_t offsets[32];
    (void)block_offsets(b, offsets, 32);
    ceni_block_head h = {.magic = CENI_BLOCK_MAGIC, .type = 99, .length = 5};
    bytes longer = {malloc(b.size + sizeof h + 5 + 8), b.size + sizeof h + 5 + 8};
    uint8_t *to = longer.data;
    memcpy(to, b.data, sizeof(ceni_file_head));
    ((ceni_file_head *)(void *)to)->bytes += 8;
    reseal_head(longer);
    to += sizeof(ceni_file_head);
    memset(to, 0xff, 8);
    to += 8;
    memcpy(to, &h, sizeof h);
    memset(to + sizeof h, 0xee, 5);
    reseal_block(longer, (size_t)(to - longer.data));
    to += sizeof h + 5;
    memcpy(to, b.data + offsets[0], b.size - offsets[0]);
    cen_snapshot *s = read_bytes(longer);
    assert_int_equal(cen_snapshot_get_device(s, 0)->event_count, 8);
    cen_snapshot_free(s);
    free(longer.data);
    free(b.data);
}

/* Blocks may be empty. What others refer to is missed then. */
static void empty_blocks(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    size_t offsets[32], count = block_offsets(b, offsets, 32);
    for (size_t i = 0; i < count; i++) {
        ceni_block_head h, none;
        memcpy(&h, b.data + offsets[i], sizeof h);
        none = h;
        none.count = 0;
        memcpy(b.data + offsets[i], &none, sizeof none);
        reseal_block(b, offsets[i]);
        if (h.type == CENI_FILE_STRINGS || h.type == CENI_FILE_MODULES) {
            refuse(b, CEN_ERR_FORMAT, "contradicts itself");
        } else {
            cen_snapshot_free(read_bytes(b));
        }
        memcpy(b.data + offsets[i], &h, sizeof h);
        reseal_block(b, offsets[i]);
    }
    free(b.data);
}

/* Blocks that are sealed, but refer to what is not there or say more than they hold. */
static void contradictions(void **state) {
    bytes b;
    OK(make(write_all_kinds, &b));
    size_t offsets[32], count = block_offsets(b, offsets, 32);
    for (size_t i = 0; i < count; i++) {
        ceni_block_head h, more;
        memcpy(&h, b.data + offsets[i], sizeof h);
        more = h;
        more.count += 1000;
        memcpy(b.data + offsets[i], &more, sizeof more);
        reseal_block(b, offsets[i]);
        if (h.type != CENI_FILE_INDEX) {
            refuse(b, CEN_ERR_FORMAT, "contradicts itself");
        }
        memcpy(b.data + offsets[i], &h, sizeof h);
        /* the first string's id, or whatever stands there, out of range */
        uint32_t word, wrong = 0x7fffffff;
        if (h.type == CENI_FILE_MODULES || h.type == CENI_FILE_SETTINGS) {
            memcpy(&word, b.data + offsets[i] + sizeof h, sizeof word);
            memcpy(b.data + offsets[i] + sizeof h, &wrong, sizeof wrong);
            reseal_block(b, offsets[i]);
            refuse(b, CEN_ERR_FORMAT, "contradicts itself");
            memcpy(b.data + offsets[i] + sizeof h, &word, sizeof word);
        }
        reseal_block(b, offsets[i]);
    }
    cen_snapshot_free(read_bytes(b));
    free(b.data);
}

static void write_no_range(ceni_writer *w) {
    ceni_event_record e = event(2000, CENI_EVENT_MAP, UINT64_MAX - 5, 4096, 0, CENI_FILE_NONE);
    (void)ceni_writer_events(w, 0, &e, 1, (ceni_moment_pair){3000, 3000});
}

static void ranges_that_wrap_are_refused(void **state) {
    bytes b;
    OK(make(write_no_range, &b));
    refuse(b, CEN_ERR_FORMAT, "is no range");
    free(b.data);
}

/* Whatever shares the memory of streams and marks joins whatever the stream was. */
static void write_shared(ceni_writer *w) {
    const unsigned map = CENI_EVENT_MAP | CENI_EMIT_ANYONES;
    const ceni_event_record e[] = {
        event(1100, map, 0x200000, MIB, 1, CENI_FILE_NONE),
        event(1200, map, 0x300000, MIB, 2, CENI_FILE_NONE),
        event(1300, CENI_EVENT_ALLOC, 0x280000, MIB, 2, CENI_FILE_NONE), /* lies across both */
        event(1400, CENI_EVENT_MAP | CENI_EMIT_ANYONES, 0x400000, MIB, 1, CENI_FILE_NONE),
        event(1500, CENI_EVENT_UNMAP | CENI_EMIT_ANYONES, 0x400000, MIB, 1, CENI_FILE_NONE),
        event(1600, CENI_EVENT_MOVE, 0x280000, MIB, 2, CENI_FILE_NONE),
        event(1700, CENI_EVENT_ALLOC, 0x200000, MIB, 2, CENI_FILE_NONE),
    };
    (void)ceni_writer_events(w, 0, e, sizeof e / sizeof *e, (ceni_moment_pair){3000, 3000});
}

static void shared_memory_is_one_segment(void **state) {
    bytes b;
    OK(make(write_shared, &b));
    cen_snapshot *s = read_bytes(b);
    const cen_snapshot_device *d = cen_snapshot_get_device(s, 0);
    assert_int_equal(d->segment_count, 1);
    assert_int_equal(d->segments[0].size, 2 * MIB);
    assert_int_equal(d->segments[0].stream, 2);
    assert_int_equal(d->block_count, 2);
    assert_int_equal(d->blocks[0].addr, 0x200000);
    assert_int_equal(d->blocks[0].state, CEN_BLOCK_ACTIVE);
    assert_int_equal(d->blocks[1].state, CEN_BLOCK_INACTIVE);
    assert_int_equal(d->initial_count, 0);
    cen_snapshot_free(s);
    free(b.data);
}

/* ---- failures on the way ---- */

static void writing_fails_at_each_call(void **state) {
    for (int64_t n = 1; n < 100; n++) {
        bytes b;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], n, false);
        cen_status status = make(write_all_kinds, &b);
        bool hit = !atomic_load(&ceni_fault_points[CENI_FAULT_IO].left);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_IO], 0, false);
        if (!hit) {
            OK(status);
            assert_true(n > 3);
            free(b.data);
            return;
        }
        assert_int_equal(status, CEN_ERR_IO);
        assert_non_null(strstr(last_log, "made: writing failed"));
        if (b.size) { /* what is there is whole */
            cen_snapshot_free(read_bytes(b));
            size_t offsets[32];
            (void)block_offsets(b, offsets, 32);
        }
        free(b.data);
    }
    fail();
}

static void writing_lacks_memory_at_each_call(void **state) {
    for (int64_t n = 1; n < 1000; n++) {
        bytes b;
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], n, false);
        cen_status status = make(write_all_kinds, &b);
        bool hit = !atomic_load(&ceni_fault_points[CENI_FAULT_HOST_MEMORY].left);
        ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 0, false);
        assert_true(!status || (hit && status == CEN_ERR_HOST_MEMORY));
        cen_snapshot_free(read_bytes(b)); /* some of it, but nothing wrong */
        free(b.data);
        if (!hit) {
            assert_true(n > 5);
            return;
        }
    }
    fail();
}

static void reading_fails_at_each_call(enum ceni_fault_point point, cen_status expected) {
    bytes b;
    OK(make(write_all_kinds, &b));
    for (int64_t n = 1; n < 10000; n++) {
        cen_snapshot *s = NULL;
        cen_read_error error = {{0}, 0};
        ceni_fault_set(&ceni_fault_points[point], n, false);
        cen_status status = cen_snapshot_read_memory("t", b.data, b.size, &s, &error);
        bool hit = !atomic_load(&ceni_fault_points[point].left);
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        if (!hit) {
            OK(status);
            cen_snapshot_free(s);
            free(b.data);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(status, expected);
        assert_null(s);
        assert_true(*error.message);
    }
    fail();
}

static void reading_lacks_memory_at_each_call(void **state) {
    reading_fails_at_each_call(CENI_FAULT_HOST_MEMORY, CEN_ERR_HOST_MEMORY);
}

static void reading_fails_at_each_read(void **state) {
    reading_fails_at_each_call(CENI_FAULT_IO, CEN_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_kinds_are_read, set_up),
        cmocka_unit_test_setup(strings_are_kept_once, set_up),
        cmocka_unit_test_setup(any_cut_is_read_up_to_a_whole_block, set_up),
        cmocka_unit_test_setup(any_damage_is_noticed, set_up),
        cmocka_unit_test_setup(versions, set_up),
        cmocka_unit_test_setup(unknown_blocks_are_skipped, set_up),
        cmocka_unit_test_setup(empty_blocks, set_up),
        cmocka_unit_test_setup(contradictions, set_up),
        cmocka_unit_test_setup(ranges_that_wrap_are_refused, set_up),
        cmocka_unit_test_setup(shared_memory_is_one_segment, set_up),
        cmocka_unit_test_setup(writing_fails_at_each_call, set_up),
        cmocka_unit_test_setup(writing_lacks_memory_at_each_call, set_up),
        cmocka_unit_test_setup(reading_lacks_memory_at_each_call, set_up),
        cmocka_unit_test_setup(reading_fails_at_each_read, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
