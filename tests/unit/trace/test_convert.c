/* What is written is what was read, whole or not at all, and within what the programs that open it
 * can read. */
#include "cenote/cenote.h"

#include "base/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    strcpy(folder, "/tmp/cenote-convert-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* How many files there are; they are removed if `clear`. */
static size_t files(bool clear) {
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (clear) {
                unlink(in_folder(entry->d_name));
            }
        }
    }
    closedir(dir);
    return count;
}

static int drop_folder(void **state) {
    files(true);
    return rmdir(folder);
}

static cen_snapshot *read_file(const char *path) {
    cen_snapshot *snapshot = NULL;
    cen_read_error error;
    if (cen_snapshot_read(path, &snapshot, &error)) {
        fail_msg("%s", error.message);
    }
    return snapshot;
}

static char *bytes_of(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = NULL;
    *size = 0;
    for (size_t got = 1; got;) {
        data = realloc(data, *size + (1 << 20) + 1);
        assert_non_null(data);
        got = fread(data + *size, 1, 1 << 20, file);
        *size += got;
    }
    data[*size] = 0;
    fclose(file);
    return data;
}

/* ---- the same again ---- */

static void same_stack(const cen_snapshot *a, uint32_t of_a, const cen_snapshot *b, uint32_t of_b) {
    size_t count_a = 0, count_b = 0;
    const cen_frame *x = cen_snapshot_stack(a, of_a, &count_a);
    const cen_frame *y = cen_snapshot_stack(b, of_b, &count_b);
    assert_int_equal(count_a, count_b);
    for (size_t i = 0; i < count_a; i++) {
        assert_string_equal(x[i].file, y[i].file);
        assert_string_equal(x[i].function, y[i].function);
        assert_int_equal(x[i].line, y[i].line);
    }
}

static void same_events(const cen_snapshot *a, const cen_snapshot_device *x, const cen_snapshot *b,
                        const cen_snapshot_device *y) {
    assert_int_equal(x->event_count, y->event_count);
    for (size_t i = 0; i < x->event_count; i++) {
        const cen_trace_event *e = &x->events[i], *f = &y->events[i];
        assert_int_equal(e->action, f->action);
        assert_int_equal(e->addr, f->addr);
        assert_int_equal(e->size, f->size);
        assert_int_equal(e->stream, f->stream);
        assert_int_equal(e->time_us, f->time_us);
        same_stack(a, e->stack, b, f->stack);
    }
    assert_int_equal(x->initial_count, y->initial_count);
    assert_int_equal(x->initial_reserved, y->initial_reserved);
    assert_int_equal(x->unknown_frees, y->unknown_frees);
}

static void same_blocks(const cen_snapshot *a, const cen_snapshot_block *x, const cen_snapshot *b,
                        const cen_snapshot_block *y, size_t count) {
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(x[i].addr, y[i].addr);
        assert_int_equal(x[i].size, y[i].size);
        assert_int_equal(x[i].requested, y[i].requested);
        assert_int_equal(x[i].state, y[i].state);
        same_stack(a, x[i].stack, b, y[i].stack);
    }
}

/* A trace does not say how large a block was made for what was asked, nor how free memory is cut.
 */
static void same_live_blocks(const cen_snapshot *a, const cen_snapshot_device *x,
                             const cen_snapshot *b, const cen_snapshot_device *y) {
    size_t at = 0;
    for (size_t i = 0; i < x->block_count; i++) {
        const cen_snapshot_block *block = &x->blocks[i];
        if (block->state == CEN_BLOCK_INACTIVE) {
            continue;
        }
        while (at < y->block_count && y->blocks[at].state == CEN_BLOCK_INACTIVE) {
            at++;
        }
        assert_true(at < y->block_count);
        assert_int_equal(block->addr, y->blocks[at].addr);
        assert_int_equal(block->requested, y->blocks[at].requested);
        assert_int_equal(block->state, y->blocks[at].state);
        same_stack(a, block->stack, b, y->blocks[at++].stack);
    }
    for (; at < y->block_count; at++) {
        assert_int_equal(y->blocks[at].state, CEN_BLOCK_INACTIVE);
    }
}

static void same_segments(const cen_snapshot *a, const cen_snapshot_device *x,
                          const cen_snapshot *b, const cen_snapshot_device *y) {
    assert_int_equal(x->segment_count, y->segment_count);
    for (size_t i = 0; i < x->segment_count; i++) {
        const cen_snapshot_segment *s = &x->segments[i], *t = &y->segments[i];
        assert_int_equal(s->addr, t->addr);
        assert_int_equal(s->size, t->size);
        assert_int_equal(s->stream, t->stream);
        assert_memory_equal(s->pool_id, t->pool_id, sizeof s->pool_id);
        assert_int_equal(s->expandable, t->expandable);
        assert_int_equal(s->small, t->small);
    }
}

static void same_state(const cen_snapshot *a, const cen_snapshot_device *x, const cen_snapshot *b,
                       const cen_snapshot_device *y, bool blocks_too) {
    same_segments(a, x, b, y);
    if (!blocks_too) {
        same_live_blocks(a, x, b, y);
        return;
    }
    for (size_t i = 0; i < x->segment_count; i++) {
        const cen_snapshot_segment *s = &x->segments[i], *t = &y->segments[i];
        if (s->block_count == t->block_count) { /* else gaps were filled */
            same_blocks(a, x->blocks + s->first_block, b, y->blocks + t->first_block,
                        s->block_count);
        }
    }
}

static void same_annotations(const cen_snapshot_device *x, const cen_snapshot_device *y) {
    assert_int_equal(x->annotation_count, y->annotation_count);
    for (size_t i = 0; i < x->annotation_count; i++) {
        assert_string_equal(x->annotations[i].name, y->annotations[i].name);
        assert_int_equal(x->annotations[i].time_us, y->annotations[i].time_us);
        assert_int_equal(x->annotations[i].end, y->annotations[i].end);
    }
}

static char *explained(const cen_snapshot *snapshot) {
    cen_explanation *explanation = NULL;
    char *json = NULL;
    assert_int_equal(cen_explain(snapshot, NULL, &explanation), CEN_OK);
    assert_int_equal(cen_explain_json(explanation, &json), CEN_OK);
    cen_explanation_free(explanation);
    return json;
}

static void same(const cen_snapshot *a, const cen_snapshot *b, bool blocks_too) {
    static const char *const settings[] = {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size",
                                           "garbage_collection_threshold", "expandable_segments",
                                           "roundup_power2_divisions"};
    assert_int_equal(cen_snapshot_device_count(a), cen_snapshot_device_count(b));
    for (size_t i = 0; i < cen_snapshot_device_count(a); i++) {
        const cen_snapshot_device *x = cen_snapshot_get_device(a, i);
        const cen_snapshot_device *y = cen_snapshot_get_device(b, i);
        assert_int_equal(x->device, y->device);
        same_events(a, x, b, y);
        same_state(a, x, b, y, blocks_too);
        same_annotations(x, y);
        assert_int_equal(x->truncated, y->truncated);
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *x = cen_snapshot_setting(a, settings[i]);
        const char *y = cen_snapshot_setting(b, settings[i]);
        assert_int_equal(!x, !y);
        if (x) {
            assert_string_equal(x, y);
        }
    }
    if (cen_snapshot_device_count(a)) {
        char *x = explained(a), *y = explained(b);
        assert_string_equal(x, y);
        free(x);
        free(y);
    }
}

/* Calls fn for each recording of a pattern that can be read. */
static size_t for_each_in(const char *pattern, void (*fn)(const cen_snapshot *snapshot)) {
    size_t read = 0;
    char path[256];
    glob_t found;
    snprintf(path, sizeof path, TEST_DATA "%s", pattern);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        cen_snapshot *snapshot = NULL;
        if (!cen_snapshot_read(found.gl_pathv[i], &snapshot, NULL)) {
            read++;
            fn(snapshot);
            cen_snapshot_free(snapshot);
        }
    }
    globfree(&found);
    return read;
}

static size_t for_each(void (*fn)(const cen_snapshot *snapshot)) {
    return for_each_in("/traces/*.gz", fn) + for_each_in("/snapshots/*", fn) +
           for_each_in("/logs/rmm*", fn) + for_each_in("/../fuzz/corpus/snapshot/*", fn);
}

/* memory_viz lays the blocks of a segment side by side, so they have to be all that is in it. */
static void blocks_tile(const cen_snapshot *snapshot) {
    for (size_t i = 0; i < cen_snapshot_device_count(snapshot); i++) {
        const cen_snapshot_device *d = cen_snapshot_get_device(snapshot, i);
        for (size_t s = 0; s < d->segment_count; s++) {
            uint64_t at = d->segments[s].addr;
            for (size_t b = 0; b < d->segments[s].block_count; b++) {
                const cen_snapshot_block *block = &d->blocks[d->segments[s].first_block + b];
                assert_int_equal(block->addr, at);
                at += block->size;
            }
            assert_int_equal(at, d->segments[s].addr + d->segments[s].size);
        }
    }
}

static void gaps_are_filled(void **state) {
    static const char pickle[] =
        "\x80\4}(\x8c\x08segments](}(\x8c\7addressM\0\x10\x8c\x0atotal_sizeM\0\4\x8c\6blocks]("
        "}(\x8c\7addressM\0\x11\x8c\4sizeM\0\1\x8c\5state\x8c\x10"
        "active_allocatedu"
        "}(\x8c\7addressM\x80\x12\x8c\4sizeM\0\1\x8c\5state\x8c\x10"
        "active_allocatedu"
        "eueu.";
    cen_snapshot *snapshot = NULL;
    const char *path = in_folder("a.pickle");
    assert_int_equal(cen_snapshot_read_memory("x", pickle, sizeof pickle - 1, &snapshot, NULL),
                     CEN_OK);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
    cen_snapshot *again = read_file(path);
    same(snapshot, again, false);
    assert_int_equal(cen_snapshot_get_device(again, 0)->block_count, 5);
    blocks_tile(again);
    cen_snapshot_free(snapshot);
    cen_snapshot_free(again);
    files(true);
}

static void torch_again(const cen_snapshot *snapshot) {
    static const char *const names[] = {"a.pickle", "a.pickle.gz"};
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(names[i]);
        assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
        cen_snapshot *again = read_file(path);
        same(snapshot, again, true);
        cen_snapshot_free(again);
    }
    assert_int_equal(files(true), 2);
}

static void torch_is_torch_again(void **state) {
    assert_true(for_each(torch_again) > 40);
}

/* Torch -> trace -> torch; the trace both plain and compressed. */
static void through_a_trace(const cen_snapshot *snapshot) {
    static const char *const names[] = {"a.cenotrace", "a.cenotrace.gz"};
    for (int i = 0; i < 2; i++) {
        const char *path = in_folder(names[i]);
        assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TRACE, path, NULL), CEN_OK);
        cen_snapshot *trace = read_file(path);
        same(snapshot, trace, false);
        path = in_folder("a.pickle");
        assert_int_equal(cen_snapshot_write(trace, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
        cen_snapshot *torch = read_file(path);
        same(snapshot, torch, false);
        same(trace, torch, true);
        cen_snapshot_free(trace);
        cen_snapshot_free(torch);
    }
    assert_int_equal(files(true), 3);
}

static void traces_keep_what_was_recorded(void **state) {
    assert_int_equal(for_each_in("/traces/*.gz", through_a_trace), 12);
    assert_int_equal(for_each_in("/logs/rmm*", through_a_trace), 2);
    static const char *const made[] = {"batches", "double", "empty", "free",
                                       "graphs",  "old",    "state", "truncated"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        char pattern[64];
        snprintf(pattern, sizeof pattern, "/snapshots/%s*", made[i]);
        assert_true(for_each_in(pattern, through_a_trace) > 0);
    }
}

/* Also where the history contradicts the final state: the events are what they were. */
static void events_again(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.cenotrace");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TRACE, path, NULL), CEN_OK);
    cen_snapshot *again = read_file(path);
    assert_int_equal(cen_snapshot_device_count(again), cen_snapshot_device_count(snapshot));
    for (size_t i = 0; i < cen_snapshot_device_count(again); i++) {
        const cen_snapshot_device *x = cen_snapshot_get_device(snapshot, i);
        const cen_snapshot_device *y = cen_snapshot_get_device(again, i);
        assert_int_equal(x->device, y->device);
        assert_int_equal(x->event_count, y->event_count);
        for (size_t e = 0; e < x->event_count; e++) {
            assert_int_equal(x->events[e].action, y->events[e].action);
            assert_int_equal(x->events[e].addr, y->events[e].addr);
            same_stack(snapshot, x->events[e].stack, again, y->events[e].stack);
        }
    }
    cen_snapshot_free(again);
}

static void every_event_is_in_the_trace(void **state) {
    assert_true(for_each(events_again) > 40);
}

/* ---- what memory_viz can read ---- */

/* The bytes after an opcode, for those that PyTorch's page knows; -1: it does not. */
static int operand(const uint8_t *at) {
    switch (at[0]) {
    case '(':
    case '.':
    case ']':
    case '}':
    case 'a':
    case 'e':
    case 'u':
    case 'N':
    case 0x86: /* TUPLE2 */
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
    case 0x94: /* MEMOIZE */
        return 0;
    case 0x80: /* PROTO */
    case 'K':
    case 'h':
        return 1;
    case 'M':
        return 2;
    case 'J':
    case 'j':
        return 4;
    case 'G':
        return 8;
    case 0x8a: /* LONG1 */
    case 0x8c: /* SHORT_BINUNICODE */
        return 1 + at[1];
    case 'X':
        return 4 + (at[1] | at[2] << 8 | at[3] << 16);
    default:
        return -1;
    }
}

static void only_known_opcodes(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.pkl");
    size_t size;
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, NULL), CEN_OK);
    char *data = bytes_of(path, &size);
    const uint8_t *at = (const uint8_t *)data, *end = at + size;
    assert_memory_equal(at, "\x80\4", 2);
    while (at < end && *at != '.') {
        int more = operand(at);
        if (more < 0) {
            fail_msg("opcode 0x%02x at byte %td", *at, at - (const uint8_t *)data);
        }
        at += 1 + more;
    }
    assert_ptr_equal(at + 1, end);
    free(data);
}

static void memory_viz_knows_the_opcodes(void **state) {
    assert_true(for_each(only_known_opcodes) > 40);
}

/* ---- Chrome ---- */

static uint64_t peak_of(const cen_snapshot_device *device) {
    uint64_t now = 0, peak = 0;
    for (size_t i = 0; i < device->initial_count; i++) {
        now += device->initial[i].size;
    }
    peak = now;
    for (size_t i = 0; i < device->event_count; i++) {
        const cen_trace_event *e = &device->events[i];
        now += e->action == CEN_ACTION_ALLOC ? e->size : 0;
        peak = now > peak ? now : peak;
        if (e->action == CEN_ACTION_FREE_COMPLETED) {
            now -= e->size < now ? e->size : now;
        }
    }
    return peak;
}

/* One slice after another with the same id: it begins, then it ends under the same name. */
static void check_slice(json_t *open, const json_t *event, bool begins) {
    char id[32];
    if (strcmp(json_string_value(json_object_get(event, "cat")), "block") != 0) {
        return;
    }
    snprintf(id, sizeof id, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(event, "id")));
    json_t *name = json_object_get(event, "name"), *begun = json_object_get(open, id);
    if (begins) {
        assert_null(begun);
        assert_int_equal(json_object_set(open, id, name), 0);
    } else {
        assert_non_null(begun);
        assert_string_equal(json_string_value(begun), json_string_value(name));
        assert_int_equal(json_object_del(open, id), 0);
    }
}

static void chrome(const cen_snapshot *snapshot) {
    const char *path = in_folder("a.json");
    json_error_t error;
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_CHROME, path, NULL), CEN_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *open = json_object();
    if (!root) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    const json_t *events = json_object_get(root, "traceEvents");
    uint64_t peaks[16] = {0};
    size_t failures = 0, expected = 0, index;
    json_t *event;
    json_array_foreach(events, index, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        json_int_t pid = json_integer_value(json_object_get(event, "pid"));
        assert_true(phase && name && json_is_integer(json_object_get(event, "ts")));
        if (*phase == 'b' || *phase == 'e') {
            check_slice(open, event, *phase == 'b');
        }
        failures += !strcmp(name, "out of memory");
        if (*phase == 'C' && !strcmp(name, "allocated")) {
            uint64_t bytes = (uint64_t)json_integer_value(
                json_object_get(json_object_get(event, "args"), "bytes"));
            peaks[pid] = bytes > peaks[pid] ? bytes : peaks[pid];
        }
    }
    for (size_t i = 0; i < cen_snapshot_device_count(snapshot); i++) {
        const cen_snapshot_device *device = cen_snapshot_get_device(snapshot, i);
        assert_int_equal(peaks[device->device], peak_of(device));
        for (size_t e = 0; e < device->event_count; e++) {
            expected += device->events[e].action == CEN_ACTION_OOM;
        }
    }
    assert_int_equal(failures, expected);
    assert_int_equal(json_object_size(open), 0);
    json_decref(open);
    json_decref(root);
}

static void chrome_adds_up(void **state) {
    assert_true(for_each(chrome) > 40);
}

/* Names with what JSON escapes, and more than a line of them. */
static void chrome_escapes(void **state) {
    static const char pickle[] = "\x80\4}(\x8c\x0d"
                                 "device_traces]](}(\x8c\6action\x8c\5alloc\x8c\4addrJ\0\0\1\0"
                                 "\x8c\4sizeM\0\1\x8c\6frames](}(\x8c\x08"
                                 "filename\x8c\6a\"\\.py\x8c\4name\x8c\2\xc3\xa4\x8c\4lineK\7ue"
                                 "ueau.";
    cen_snapshot *snapshot = NULL;
    size_t size;
    assert_int_equal(cen_snapshot_read_memory("x", pickle, sizeof pickle - 1, &snapshot, NULL),
                     CEN_OK);
    chrome(snapshot);
    char *text = bytes_of(in_folder("a.json"), &size);
    assert_non_null(strstr(text, "\"name\":\"a\\\"\\\\.py:7 \xc3\xa4\""));
    free(text);
    cen_snapshot_free(snapshot);
}

/* ---- whole or not at all ---- */

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode;
}

static void files_get_their_permissions(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/snapshots/sparse.pickle");
    char real[512], link[512];
    strcpy(real, in_folder("real.pickle"));
    strcpy(link, in_folder("link.pickle"));
    files(true);
    mode_t before = umask(027);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, real, NULL), CEN_OK);
    umask(before);
    assert_int_equal(mode_of(real) & 07777, 0640);

    /* One that is replaced keeps them, and a link stays a link. */
    assert_int_equal(chmod(real, 0600), 0);
    assert_int_equal(symlink("real.pickle", link), 0);
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_CHROME, link, NULL), CEN_OK);
    assert_true(S_ISLNK(mode_of(link)));
    assert_int_equal(mode_of(real) & 07777, 0600);
    size_t size;
    char *text = bytes_of(real, &size);
    assert_int_equal(text[0], '{');
    free(text);
    assert_int_equal(files(true), 2);

    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, "/dev/null", NULL), CEN_OK);
    assert_true(S_ISCHR(mode_of("/dev/null")));
    cen_snapshot_free(snapshot);
}

static void calls_are_checked(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/snapshots/sparse.pickle");
    cen_read_error error;
    const char *path = in_folder("no/such/a.pickle");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, path, &error), CEN_ERR_IO);
    assert_non_null(strstr(error.message, "a.pickle: cannot be made: No such file or directory"));
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, folder, &error), CEN_ERR_IO);
    assert_non_null(strstr(error.message, "cannot be written: Is a directory"));
    assert_int_equal(cen_snapshot_write(NULL, CEN_FORMAT_TORCH, "a", &error), CEN_ERR_INVALID);
    assert_string_equal(error.message, "snapshot is NULL");
    assert_int_equal(cen_snapshot_write(snapshot, CEN_FORMAT_TORCH, NULL, &error), CEN_ERR_INVALID);
    assert_int_equal(cen_snapshot_write(snapshot, (cen_format)9, "a", NULL), CEN_ERR_INVALID);
    assert_int_equal(files(false), 0);
    cen_snapshot_free(snapshot);
}

/* Each call of a kind fails once: the file is what it was, and nothing else is there. */
static void fail_each(const cen_snapshot *snapshot, cen_format format, const char *name,
                      enum ceni_fault_point point, cen_status expected) {
    for (int64_t n = 1;; n++) {
        FILE *file = fopen(in_folder(name), "w");
        assert_non_null(file);
        fputs("before", file);
        fclose(file);
        cen_read_error error = {.message = ""};
        ceni_fault_set(&ceni_fault_points[point], n, false);
        cen_status status = cen_snapshot_write(snapshot, format, in_folder(name), &error);
        bool passed = ceni_fault_points[point].left > 0;
        ceni_fault_set(&ceni_fault_points[point], 0, false);
        if (passed) {
            assert_int_equal(status, CEN_OK);
            assert_true(n > 2);
            break;
        }
        assert_int_equal(status, expected);
        assert_non_null(strstr(error.message, name));
        size_t size;
        char *text = bytes_of(in_folder(name), &size);
        assert_string_equal(text, "before");
        free(text);
        assert_int_equal(files(false), 1);
    }
    assert_int_equal(files(true), 1);
}

static void each_failure_leaves_the_file_alone(void **state) {
    cen_snapshot *snapshot = read_file(TEST_DATA "/traces/graphs-oom.pickle.gz");
    static const struct {
        cen_format format;
        const char *name;
    } forms[] = {{CEN_FORMAT_TORCH, "f.pickle"},    {CEN_FORMAT_TORCH, "f.pickle.gz"},
                 {CEN_FORMAT_TRACE, "f.cenotrace"}, {CEN_FORMAT_TRACE, "f.cenotrace.gz"},
                 {CEN_FORMAT_CHROME, "f.json"},     {CEN_FORMAT_CHROME, "f.json.gz"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        fail_each(snapshot, forms[i].format, forms[i].name, CENI_FAULT_IO, CEN_ERR_IO);
        fail_each(snapshot, forms[i].format, forms[i].name, CENI_FAULT_HOST_MEMORY,
                  CEN_ERR_HOST_MEMORY);
    }
    cen_snapshot_free(snapshot);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_is_torch_again),
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(traces_keep_what_was_recorded),
        cmocka_unit_test(every_event_is_in_the_trace),
        cmocka_unit_test(memory_viz_knows_the_opcodes),
        cmocka_unit_test(chrome_adds_up),
        cmocka_unit_test(chrome_escapes),
        cmocka_unit_test(files_get_their_permissions),
        cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(each_failure_leaves_the_file_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
