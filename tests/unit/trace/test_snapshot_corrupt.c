/* Whatever the bytes: an error that names file, place and reason, logged once; nothing runs,
 * nothing leaks, nothing large is allocated. */
#include "cenote/snapshot.h"

#include "base/fault.h"
#include "cenote/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <zlib.h>

static size_t logged;

static void count_log(void *arg, cen_log_level level, const char *message) {
    assert_null(strchr(message, '\n'));
    logged++;
}

static size_t load(const char *name, uint8_t *data, size_t size) {
    char path[512];
    snprintf(path, sizeof path, TEST_DATA "/%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size = fread(data, 1, size, file);
    fclose(file);
    return size;
}

/* Reads bytes that have to be refused: with `status`, and `says` in the message. */
static void refused(const void *data, size_t size, cen_status status, const char *says) {
    cen_snapshot *snapshot = (cen_snapshot *)&logged; /* stays untouched */
    cen_read_error error;
    logged = 0;
    cen_status got = cen_snapshot_read_memory("x.pickle", data, size, &snapshot, &error);
    if (got != status || !strstr(error.message, says) || strncmp(error.message, "x.pickle: ", 10)) {
        fail_msg("got %d \"%s\", expected %d \"%s\"", got, error.message, status, says);
    }
    assert_ptr_equal(snapshot, (cen_snapshot *)&logged);
    assert_int_equal(logged, 1);
}

#define REFUSED(bytes, status, says) refused(bytes, sizeof(bytes) - 1, status, says)

static void other_files_are_named(void **state) {
    REFUSED("", CEN_ERR_FORMAT, "not a recording but empty; expected a PyTorch snapshot");
    REFUSED("PK\3\4....", CEN_ERR_FORMAT, "a zip archive, such as torch.save writes");
    REFUSED(" {\"segments\": []}", CEN_ERR_FORMAT, "JSON text");
    REFUSED("[1, 2]", CEN_ERR_FORMAT, "JSON text");
    REFUSED("\n<!DOCTYPE html>", CEN_ERR_FORMAT, "an HTML or XML page");
    REFUSED("Traceback (most recent call last):\n", CEN_ERR_FORMAT, "a Python traceback");
    REFUSED("(dp0\n.", CEN_ERR_FORMAT, "text (or a pickle of protocol 0 or 1)");
    REFUSED("\x28\xb5\x2f\xfd....", CEN_ERR_FORMAT, "zstd data");
    REFUSED("\0\1\2\3", CEN_ERR_FORMAT, "binary data of another kind");
    REFUSED("\x80\x06.", CEN_ERR_FORMAT, "pickle protocol 6; 2 to 5 are read");
    REFUSED("\x80\x01.", CEN_ERR_FORMAT, "pickle protocol 1; 2 to 5 are read");
    REFUSED("\x1f\x8b\7\0\0\0\0\0\0\0\0", CEN_ERR_FORMAT, "the gzip data is damaged");
    REFUSED("\x80\4K\1.", CEN_ERR_FORMAT, "a pickle, but not of a memory snapshot");
    REFUSED("\x80\4}.", CEN_ERR_FORMAT, "a pickle, but not of a memory snapshot");
}

static void code_is_refused(void **state) {
    static const char *const files[] = {"snapshots/os-system.p2.pickle",
                                        "snapshots/os-system.p4.pickle"};
    unlink("/tmp/cenote-was-run");
    for (int i = 0; i < 2; i++) {
        uint8_t data[256];
        size_t size = load(files[i], data, sizeof data);
        refused(data, size, CEN_ERR_FORMAT, "refused: it would run code (posix.system)");
    }
    assert_int_equal(access("/tmp/cenote-was-run", F_OK), -1);
    REFUSED("\x80\2cos\nsystem\n.", CEN_ERR_FORMAT,
            "byte 2: refused: it would run code (os.system)");
    REFUSED("\x80\4\x8c\2os\x8c\6system\x93.", CEN_ERR_FORMAT,
            "byte 14: refused: it would run code (os.system)");
    REFUSED("\x80\4\x93.", CEN_ERR_FORMAT, "refused");
    REFUSED(
        "\x80\2ca_module_whose_name_is_longer_than_what_a_message_keeps_of_it_by_far\nsystem\n.",
        CEN_ERR_FORMAT,
        "run code (a_module_whose_name_is_longer_than_what_a_message_keeps_of_it_b.system)");
    REFUSED("\x80\2cos", CEN_ERR_FORMAT, "run code (os.)");
    REFUSED("\x80\2NNR.", CEN_ERR_FORMAT, "opcode REDUCE");
    REFUSED("\x80\2NNb.", CEN_ERR_FORMAT, "opcode BUILD");
    REFUSED("\x80\2(ios\nsystem\n.", CEN_ERR_FORMAT, "opcode INST");
    REFUSED("\x80\2(No.", CEN_ERR_FORMAT, "opcode OBJ");
    REFUSED("\x80\2NN\x81.", CEN_ERR_FORMAT, "opcode NEWOBJ");
    REFUSED("\x80\2NN\x92.", CEN_ERR_FORMAT, "opcode NEWOBJ_EX");
    REFUSED("\x80\2\x82\1.", CEN_ERR_FORMAT, "opcode EXT1");
    REFUSED("\x80\2\x83\1\1.", CEN_ERR_FORMAT, "opcode EXT2");
    REFUSED("\x80\2\x84\1\1\1\1.", CEN_ERR_FORMAT, "opcode EXT4");
    REFUSED("\x80\2P1\n.", CEN_ERR_FORMAT, "opcode PERSID");
    REFUSED("\x80\2NQ.", CEN_ERR_FORMAT, "opcode BINPERSID");
    REFUSED("\x80\5\x97.", CEN_ERR_FORMAT, "out-of-band");
    REFUSED("\x80\4I1\n.", CEN_ERR_FORMAT, "0x49 is no opcode");
    REFUSED("\x80\4\xff.", CEN_ERR_FORMAT, "0xff is no opcode");
}

static void the_machine_is_safe(void **state) {
    REFUSED("\x80\4.", CEN_ERR_FORMAT, "too few values");
    REFUSED("\x80\4(.", CEN_ERR_FORMAT, "too few values");
    REFUSED("\x80\4e", CEN_ERR_FORMAT, "no mark");
    REFUSED("\x80\4(e", CEN_ERR_FORMAT, "no list");
    REFUSED("\x80\4(]N(se.", CEN_ERR_FORMAT, "too few values");
    REFUSED("\x80\4}(Nu.", CEN_ERR_FORMAT, "no dict");
    REFUSED("\x80\4}(NNe.", CEN_ERR_FORMAT, "no list");
    REFUSED("\x80\4N(NNu.", CEN_ERR_FORMAT, "no dict");
    REFUSED("\x80\4(0", CEN_ERR_TRUNCATED, "ends before");
    REFUSED("\x80\4\x94", CEN_ERR_FORMAT, "too few values");
    REFUSED("\x80\4h\0.", CEN_ERR_FORMAT, "memo index 0 was never set");
    REFUSED("\x80\2Nr\xff\xff\xff\xff.", CEN_ERR_FORMAT, "memo index 4294967295 is out of range");
    REFUSED("\x80\2Nr\3\0\0\0h\2.", CEN_ERR_FORMAT, "memo index 2 was never set");
    REFUSED("\x80\4X\xff\xff\xff\xff.", CEN_ERR_FORMAT, "a string of 4294967295 bytes");
    REFUSED("\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", CEN_ERR_FORMAT, "the limit is 16 MiB");
    REFUSED("\x80\4X\0\0\x10\0abc.", CEN_ERR_TRUNCATED, "byte 2: ends before");
    REFUSED("\x80\2\x8b\xff\xff\xff\xff.", CEN_ERR_FORMAT, "an integer of -1 bytes");
}

/* Values where a snapshot cannot have them. The dict's beginning, then a key and its value. */
static void values_out_of_range_are_refused(void **state) {
    REFUSED("\x80\4}(\x8c\6actionN\x8c\4addrK\1\x8c\4sizeJ\xff\xff\xff\xffu.", CEN_ERR_FORMAT,
            "'size' is not a size");
    REFUSED("\x80\4}(\x8c\6actionN\x8c\4sizeK\1\x8c\4addrJ\xff\xff\xff\xffu.", CEN_ERR_FORMAT,
            "'addr' is not a non-negative");
    REFUSED("\x80\4}(\x8c\6actionN\x8c\4addrK\1\x8c\4size\x8a\7\1\0\0\0\0\0\1u.", CEN_ERR_FORMAT,
            "'size' is not a size");
    REFUSED("\x80\4}(\x8c\6actionK\1\x8c\4addrK\1\x8c\4sizeK\1u.", CEN_ERR_FORMAT,
            "'action' is not a string");
    REFUSED("\x80\4}(\x8c\6actionN\x8c\4sizeK\1u.", CEN_ERR_FORMAT, "an event without 'addr'");
    REFUSED("\x80\4}(\x8c\6actionN\x8c\4addrK\1u.", CEN_ERR_FORMAT, "an event without 'size'");
    REFUSED("\x80\4}(\x8c\5stateN\x8c\4addrK\1u.", CEN_ERR_FORMAT, "a block without 'size'");
    REFUSED("\x80\4}(\x8c\5state\x8c\4gone\x8c\4sizeK\1u.", CEN_ERR_FORMAT,
            "'state' is not a known state");
    REFUSED("\x80\4}(\x8c\6blocks]\x8c\6deviceK\0u.", CEN_ERR_FORMAT,
            "a segment without 'address'");
    REFUSED("\x80\4}\x8c\6deviceK\0s.", CEN_ERR_FORMAT, "not of a memory snapshot");
    REFUSED("\x80\4}(\x8c\6blocks]\x8c\7addressK\0\x8c\ntotal_sizeK\0\x8c\6deviceM\0\4u.",
            CEN_ERR_FORMAT, "'device' is not an integer in its range");
    REFUSED("\x80\4}\x8c\10segments]K\1as.", CEN_ERR_FORMAT, "'segments' is no list of segments");
    REFUSED("\x80\4}\x8c\10segmentsK\1s.", CEN_ERR_FORMAT, "'segments' is no list of segments");
    REFUSED("\x80\4}\x8c\15device_traces]K\1as.", CEN_ERR_FORMAT,
            "'device_traces' is no list of lists");
    REFUSED("\x80\4}\x8c\15device_traces]]}aas.", CEN_ERR_FORMAT,
            "a device's trace is no list of events");
}

/* Bytes of a pickle, which end with no NUL. */
static void put(uint8_t *to, const char *bytes, size_t size) {
    memcpy(to, bytes, size);
}

static void endless_nesting_is_refused(void **state) {
    static uint8_t data[1 << 20];
    memset(data, '(', sizeof data);
    put(data, "\x80\4", 2);
    refused(data, sizeof data, CEN_ERR_FORMAT, "nested deeper than 1000");
    for (size_t i = 2; i < sizeof data; i++) { /* lists in lists without marks: no stack of C's */
        data[i] = i <= sizeof data / 2 ? ']' : i < sizeof data - 2 ? 'a' : '.';
    }
    refused(data, sizeof data, CEN_ERR_FORMAT, "not of a memory snapshot");
}

/* A compressed file of nothing but MEMOIZE. */
static void memory_stays_in_proportion(void **state) {
    size_t size = 256 << 20, packed_size = 1 << 20;
    uint8_t *data = malloc(1 << 20), *packed = malloc(packed_size);
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = packed;
    z.avail_out = (uInt)packed_size;
    memset(data, 0x94, 1 << 20);
    put(data, "\x80\4N", 3);
    for (size_t done = 0; done < size; done += 1 << 20) {
        z.next_in = data;
        z.avail_in = 1 << 20;
        assert_int_equal(deflate(&z, Z_NO_FLUSH), Z_OK);
        memset(data, 0x94, 3);
    }
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    refused(packed, packed_size - z.avail_out, CEN_ERR_FORMAT, "out of proportion");
    deflateEnd(&z);
    free(data);
    free(packed);
}

/* One frame dict, appended one by one: each step copies the stack so far. At first that costs
 * memory; a second list finds each stack made, and costs only time. */
static void time_stays_in_proportion(void **state) {
    static const char head[] = "\x80\4}\x8c\10filename\x8c\1fs\x94"
                               "0]";
    static uint8_t data[1 << 20];
    size_t at = sizeof head - 1;
    memcpy(data, head, at);
    for (; at + 3 < sizeof data; at += 3) {
        put(data + at, "h\0a", 3);
    }
    refused(data, at, CEN_ERR_FORMAT, "out of proportion");
    for (size_t i = sizeof head - 1; i + 3 < sizeof data; i += 3) {
        bool restart = (i - sizeof head + 1) / 3 % 6000 == 5999;
        put(data + i, restart ? "0]N" : "h\0a", 3);
        if (restart) {
            data[i + 2] = ']'; /* the list that grows; the one below stays empty */
        }
    }
    refused(data, at, CEN_ERR_FORMAT, "out of proportion");
}

static void cut_anywhere_it_is_an_error(void **state) {
    static const char *const files[] = {"snapshots/sparse.pickle", "snapshots/old-list.pickle",
                                        "snapshots/graphs-oom.c4.pickle.gz"};
    static uint8_t data[8192];
    for (size_t f = 0; f < 3; f++) {
        size_t size = load(files[f], data, sizeof data);
        for (size_t cut = 2; cut < size; cut++) {
            refused(data, cut, CEN_ERR_TRUNCATED, "end");
        }
        refused(data, 1, f < 2 ? CEN_ERR_TRUNCATED : CEN_ERR_FORMAT, "");
        refused(data, 0, CEN_ERR_FORMAT, "empty");
    }
}

/* Each byte changed: an error or a snapshot, and never more (run under sanitizers). */
static void changed_anywhere_it_is_survived(void **state) {
    static uint8_t data[2048];
    size_t size = load("snapshots/sparse.pickle", data, sizeof data);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            cen_snapshot *snapshot = NULL;
            data[i] ^= (uint8_t)(1 << bit);
            cen_snapshot_read_memory("x", data, size, &snapshot, NULL);
            cen_snapshot_free(snapshot);
            data[i] ^= (uint8_t)(1 << bit);
        }
    }
}

static void damaged_gzip_is_told(void **state) {
    static uint8_t data[8192];
    size_t size = load("snapshots/graphs-oom.c4.pickle.gz", data, sizeof data);
    data[size - 6] ^= 1; /* its checksum */
    refused(data, size, CEN_ERR_FORMAT, "the gzip data is damaged (incorrect data check)");
    /* Damage far behind the pickle's end is damage too. */
    uLong plain_size = 4 << 20;
    uint8_t *plain = calloc(1, plain_size);
    put(plain, "\x80\4}\x8c\10segments]s.", 16);
    z_stream z = {
        .next_in = plain, .avail_in = (uInt)plain_size, .next_out = data, .avail_out = sizeof data};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size = z.total_out;
    deflateEnd(&z);
    free(plain);
    cen_snapshot *snapshot;
    assert_int_equal(cen_snapshot_read_memory("x", data, size, &snapshot, NULL), CEN_OK);
    cen_snapshot_free(snapshot);
    refused(data, size - 1, CEN_ERR_TRUNCATED, "the gzip data ends too early");
    data[size - 6] ^= 1;
    refused(data, size, CEN_ERR_FORMAT, "incorrect data check");
}

/* Makes the n-th call fail for n = 1, 2, ... until the reading passes; returns how many did. */
static size_t fail_each(enum ceni_fault_point point, const char *name, cen_status expected) {
    char path[512];
    snprintf(path, sizeof path, TEST_DATA "/%s", name);
    for (int64_t n = 1;; n++) {
        cen_snapshot *snapshot = NULL;
        cen_read_error error;
        ceni_fault_set(&ceni_fault_points[point], n, false);
        logged = 0;
        cen_status status = cen_snapshot_read(path, &snapshot, &error);
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        if (!status) {
            cen_snapshot_free(snapshot);
            return (size_t)n - 1;
        }
        assert_int_equal(status, expected);
        assert_null(snapshot);
        assert_int_equal(logged, 1);
        assert_non_null(strstr(error.message, ".pickle"));
    }
}

static void every_failing_call_is_a_clean_error(void **state) {
    static const char *const files[] = {"snapshots/sparse.pickle", "snapshots/shared-events.pickle",
                                        "snapshots/graphs-oom.c2.pickle.gz",
                                        "snapshots/batches.pickle.gz"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        assert_true(fail_each(CENI_FAULT_HOST_MEMORY, files[f], CEN_ERR_HOST_MEMORY) > 20);
        assert_true(fail_each(CENI_FAULT_IO, files[f], CEN_ERR_IO) >= 2);
    }
}

/* pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 0, "size": 1, "frames": [{
 *     "filename": "a\x1b\n\x7f\u009b\u2028\u202e\u00f6", "name": "f", "line": 2}]}]]}, 2) */
static void control_characters_are_not_kept(void **state) {
    static const char pickle[] =
        "\200\002}q\000X\015\000\000\000device_tracesq\001]q\002]q\003}q\004(X\006\000"
        "\000\000actionq\005X\005\000\000\000allocq\006X\004\000\000\000addrq\007K\000X"
        "\004\000\000\000sizeq\010K\001X\006\000\000\000framesq\011]q\012}q\013(X\010\000"
        "\000\000filenameq\014X\016\000\000\000a\033\012\177\302\233\342\200\250\342\200"
        "\256\303\266q\015X\004\000\000\000nameq\016X\001\000\000\000fq\017X\004\000\000"
        "\000lineq\020K\002uauaas.";
    cen_snapshot *snapshot = NULL;
    size_t count;
    assert_int_equal(cen_snapshot_read_memory("x", pickle, sizeof pickle - 1, &snapshot, NULL),
                     CEN_OK);
    const cen_frame *frame =
        cen_snapshot_stack(snapshot, cen_snapshot_get_device(snapshot, 0)->events[0].stack, &count);
    assert_string_equal(frame->file, "a???????????\303\266");
    cen_snapshot_free(snapshot);

    cen_read_error error;
    assert_int_equal(cen_snapshot_read_memory("a\n\33", "x", 1, &snapshot, &error), CEN_ERR_FORMAT);
    assert_memory_equal(error.message, "a??: ", 5);
}

/* 70,000 events that make 2^48 bytes each: more than 64 bits hold. */
static void sums_do_not_overflow(void **state) {
    static const char *const actions[] = {"segment_alloc", "segment_free", "segment_map",
                                          "segment_unmap"};
    for (size_t a = 0; a < sizeof actions / sizeof *actions; a++) {
        size_t size = 0, room = 1 << 20;
        char *data = malloc(room);
        size +=
            (size_t)snprintf(data, room, "\x80\4}\x8c\15device_traces](](}q\1(\x8c\6action\x8c%c%s",
                             (int)strlen(actions[a]), actions[a]);
        static const char rest[] = "\x8c\4addrK\0\x8c\4size\x8a\7\0\0\0\0\0\0\1u";
        memcpy(data + size, rest, sizeof rest - 1);
        size += sizeof rest - 1;
        for (size_t i = 0; i < 70000; i++) {
            put((uint8_t *)data + size, "h\1", 2);
            size += 2;
        }
        put((uint8_t *)data + size, "ees.", 4);
        refused(data, size + 4, CEN_ERR_FORMAT,
                "device 0: segments of more than 2^62 bytes in all");
        free(data);
    }
}

static void what_cannot_be_opened_is_said(void **state) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    assert_int_equal(cen_snapshot_read("/nowhere/x.pickle", &snapshot, &error), CEN_ERR_IO);
    assert_string_equal(error.message,
                        "/nowhere/x.pickle: cannot be opened: No such file or directory");
    assert_int_equal(cen_snapshot_read("/tmp", &snapshot, &error), CEN_ERR_IO);
    assert_string_equal(error.message, "/tmp: reading failed: Is a directory");
    assert_int_equal(cen_snapshot_read(NULL, &snapshot, &error), CEN_ERR_INVALID);
    assert_int_equal(cen_snapshot_read("x", NULL, NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_snapshot_read_memory("x", NULL, 1, &snapshot, NULL), CEN_ERR_INVALID);
    cen_snapshot_free(NULL);
}

int main(void) {
    cen_log_set(count_log, NULL, CEN_LOG_DEBUG);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(code_is_refused),
        cmocka_unit_test(the_machine_is_safe),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(endless_nesting_is_refused),
        cmocka_unit_test(memory_stays_in_proportion),
        cmocka_unit_test(time_stays_in_proportion),
        cmocka_unit_test(cut_anywhere_it_is_an_error),
        cmocka_unit_test(changed_anywhere_it_is_survived),
        cmocka_unit_test(damaged_gzip_is_told),
        cmocka_unit_test(every_failing_call_is_a_clean_error),
        cmocka_unit_test(control_characters_are_not_kept),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(what_cannot_be_opened_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
