/* Events between processes. */
#include "tests/conformance/child.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "dev/capture.h"
#include "dev/host/host.h"

typedef struct offer {
    ceni_event_token token;
    bool has_fd;
} offer;

static void tell_event(const fixture *f, int socket, cen_event event) {
    offer o;
    int fd = -1;
    OK(ceni_dev_event_export(f->device, event, &o.token, &fd));
    o.has_fd = fd >= 0;
    child_tell(socket, &o, sizeof o, fd);
    if (fd >= 0) {
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
    }
}

static cen_event hear_event(const fixture *f, int socket) {
    offer o;
    cen_event event = 0;
    int fd = child_hear(socket, &o, sizeof o);
    assert_int_equal(fd >= 0, o.has_fd);
    OK(ceni_dev_event_import(f->device, &o.token, fd, &event));
    if (fd >= 0) {
        close(fd);
    }
    return event;
}

/* A stream that is held, with a shared event recorded behind the gate. */
typedef struct held {
    cen_stream stream;
    child_gate gate;
    cen_event event;
} held;

static void hold(const fixture *f, held *h) {
    OK(cen_stream_create(f->device, 0, &h->stream));
    OK(cen_event_create(f->device, CEN_EVENT_SHARED, &h->event));
    child_gate_close(f, &h->gate, h->stream);
    OK(cen_event_record(f->device, h->event, h->stream));
}

/* ---- what children do ---- */

/* Copies the first word of a page behind an event, and says what it read. */
static void play_reader(const fixture *f, int socket) {
    cen_device *d = f->device;
    const uint64_t size = d->granularity;
    cen_event event = hear_event(f, socket);
    char byte;
    int fd = child_hear(socket, &byte, 1);
    ceni_page page;
    cen_addr addr;
    cen_stream stream;
    void *to;
    ceni_grant grant = {d, CENI_ACCESS_READ};
    OK(ceni_dev_page_import(d, fd, size, &page));
    close(fd);
    OK(ceni_dev_va_reserve(d, size, 0, &addr));
    OK(ceni_dev_page_map(d, addr, size, page));
    OK(ceni_dev_page_access(d, addr, size, 1, &grant, 1));
    OK(cen_pinned_alloc(d, 4, &to));
    OK(cen_stream_create(d, 0, &stream));
    FAILS(CEN_ERR_NOT_READY, cen_event_query(d, event));
    OK(cen_stream_wait(d, stream, event));
    OK(cen_copy_async(d, address(to), addr, 4, stream));
    FAILS(CEN_ERR_NOT_READY, cen_stream_query(d, stream));
    child_tell_word(socket, 0); /* it may begin */
    OK(cen_stream_sync(d, stream));
    OK(cen_event_query(d, event));
    OK(cen_event_sync(d, event));
    child_tell_word(socket, *(uint32_t *)to);
    child_hear_word(socket); /* recorded again, behind a gate */
    FAILS(CEN_ERR_NOT_READY, cen_event_query(d, event));
    child_tell_word(socket, 1);
    OK(cen_event_sync(d, event));
    OK(cen_event_destroy(d, event));
    child_tell_word(socket, 2);
}

/* Offers an event that it never completes. */
static void play_recorder(const fixture *f, int socket) {
    held h;
    hold(f, &h);
    tell_event(f, socket, h.event);
    child_hear_word(socket); /* nobody says it */
}

/* The same, with a forked child that outlives it. */
static void play_forker(const fixture *f, int socket) {
    held h;
    hold(f, &h);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(120); /* should nobody end it */
        for (;;) {
            pause();
        }
    }
    child_tell_word(socket, (uint32_t)pid);
    tell_event(f, socket, h.event);
    child_hear_word(socket);
}

/* Offers an event that is complete, and ends. */
static void play_finisher(const fixture *f, int socket) {
    cen_event event;
    OK(cen_event_create(f->device, CEN_EVENT_SHARED, &event));
    OK(cen_event_record(f->device, event, 0));
    OK(cen_stream_sync(f->device, 0));
    tell_event(f, socket, event);
    child_hear_word(socket); /* imported */
}

/* Waits for an event as it was at three times. */
static void play_waiter(const fixture *f, int socket) {
    cen_device *d = f->device;
    cen_event event = hear_event(f, socket);
    cen_stream streams[3];
    OK(cen_event_query(d, event)); /* never recorded */
    for (int i = 0; i < 3; i++) {
        OK(cen_stream_create(d, 0, &streams[i]));
        OK(cen_stream_wait(d, streams[i], event));
        child_tell_word(socket, 0);
        child_hear_word(socket);
    }
    OK(cen_stream_sync(d, streams[0]));
    OK(cen_stream_sync(d, streams[1])); /* the first record is reached */
    FAILS(CEN_ERR_NOT_READY, cen_stream_query(d, streams[2]));
    child_tell_word(socket, 0);
    OK(cen_stream_sync(d, streams[2]));
}

static const child_role roles[] = {
    {"reader", play_reader},     {"recorder", play_recorder}, {"forker", play_forker},
    {"finisher", play_finisher}, {"waiter", play_waiter},
};

/* ---- tests ---- */

static void another_process_waits(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    held h;
    int fd = -1;
    OK(cen_stream_create(d, 0, &h.stream));
    OK(cen_event_create(d, CEN_EVENT_SHARED, &h.event));
    child_gate_close(f, &h.gate, h.stream);
    OK(cen_fill_async(d, m.addr, 0x5a, m.size, h.stream));
    OK(cen_event_record(d, h.event, h.stream));
    child c = child_start(f, "reader");
    tell_event(f, c.socket, h.event);
    OK(ceni_dev_page_export(d, m.pages[0], &fd));
    child_tell(c.socket, "x", 1, fd);
    close(fd);
    child_hear_word(c.socket);
    FAILS(CEN_ERR_NOT_READY, cen_event_query(d, h.event));
    child_gate_open(f, &h.gate);
    assert_int_equal(child_hear_word(c.socket), 0x5a5a5a5a);
    child_gate second;
    child_gate_close(f, &second, h.stream);
    OK(cen_event_record(d, h.event, h.stream));
    child_tell_word(c.socket, 0);
    child_hear_word(c.socket);
    child_gate_open(f, &second);
    child_hear_word(c.socket);
    child_end(c);
    OK(cen_stream_sync(d, h.stream));
}

/* A wait is for the record that was the latest when it was enqueued. */
static void a_wait_knows_its_record(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    child c = child_start(f, "waiter");
    cen_event event;
    cen_stream streams[2];
    child_gate gates[2];
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    tell_event(f, c.socket, event);
    child_hear_word(c.socket); /* waits for nothing */
    for (int i = 0; i < 2; i++) {
        OK(cen_stream_create(d, 0, &streams[i]));
        child_gate_close(f, &gates[i], streams[i]);
        OK(cen_event_record(d, event, streams[i]));
        child_tell_word(c.socket, 0);
        child_hear_word(c.socket); /* waits for that */
    }
    child_tell_word(c.socket, 0);
    child_gate_open(f, &gates[0]);
    child_hear_word(c.socket);
    child_gate_open(f, &gates[1]);
    child_end(c);
    OK(cen_event_sync(d, event));
}

/* What a process that was killed left open. */
static void expect_gone(fixture *f, cen_event event, cen_stream stream) {
    OK(cen_stream_sync(f->device, stream));
    suite_log_reset();
    FAILS(CEN_ERR_DEVICE_LOST, cen_event_query(f->device, event));
    assert_logged("is gone");
    FAILS(CEN_ERR_DEVICE_LOST, cen_event_sync(f->device, event));
    assert_logged("is gone");
    OK(cen_stream_wait(f->device, stream, event)); /* a later one, too */
    OK(cen_stream_sync(f->device, stream));
    OK(cen_fill_async(f->device, suite_map(f->device, 1, 0).addr, 1, 4, stream));
    OK(cen_stream_sync(f->device, stream)); /* the device is as it was */
}

/* CUDA never completes it: a stream that waited would hang, and its device could not be closed. */
static void a_dead_exporters_event_stays(fixture *f, child c, cen_event event) {
    FAILS(CEN_ERR_NOT_READY, cen_event_query(f->device, event));
    child_kill(c);
    usleep(100000);
    cen_status status = cen_event_query(f->device, event);
    print_message("[  NOTE    ] an event whose exporter was killed: %s\n", cen_status_name(status));
    OK(cen_event_destroy(f->device, event));
    OK(cen_fill_async(f->device, suite_map(f->device, 1, 0).addr, 1, 4, 0));
    OK(cen_stream_sync(f->device, 0)); /* the device is as it was */
}

static void a_dead_exporter_ends_waits(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    child c = child_start(f, "recorder");
    cen_event event = hear_event(f, c.socket);
    cen_stream stream;
    if (!d->backend->foreign_waits_end) {
        a_dead_exporters_event_stays(f, c, event);
        return;
    }
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_stream_wait(d, stream, event));
    FAILS(CEN_ERR_NOT_READY, cen_stream_query(d, stream));
    FAILS(CEN_ERR_NOT_READY, cen_event_query(d, event));
    suite_log_reset();
    child_kill(c);
    while (cen_stream_query(d, stream)) {
        usleep(1000);
    }
    assert_non_null(strstr(suite_log_line, "is gone"));
    assert_int_equal(suite_log_errors, 0);
    expect_gone(f, event, stream);
}

/* A forked child has the exporter's descriptors, but not its lock. */
static void a_forked_child_does_not_stand_in(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a process that uses CUDA does not fork");
    }
    child c = child_start(f, "forker");
    pid_t orphan = (pid_t)child_hear_word(c.socket);
    cen_event event = hear_event(f, c.socket);
    cen_stream stream;
    OK(cen_stream_create(f->device, 0, &stream));
    OK(cen_stream_wait(f->device, stream, event));
    FAILS(CEN_ERR_NOT_READY, cen_event_query(f->device, event));
    child_kill(c);
    expect_gone(f, event, stream);
    assert_int_equal(kill(orphan, SIGKILL), 0); /* it was there all the while */
}

static void what_was_complete_stays_so(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("what becomes of such events is the driver's");
    }
    child c = child_start(f, "finisher");
    cen_event event = hear_event(f, c.socket);
    child_tell_word(c.socket, 0);
    child_end(c);
    OK(cen_event_query(f->device, event));
    OK(cen_event_sync(f->device, event));
    OK(cen_stream_wait(f->device, 0, event));
    OK(cen_stream_sync(f->device, 0));
}

/* Importers see it when the device that was to complete it fails. */
static void a_lost_device_does_not_complete(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("only the host can be declared lost");
    }
    cen_device *d = f->device, *other = suite_open(f, 1, NULL);
    fixture there = *f;
    there.device = other;
    held h;
    hold(&there, &h);
    ceni_event_token token;
    int fd;
    cen_event event;
    OK(ceni_dev_event_export(other, h.event, &token, &fd));
    OK(ceni_dev_event_import(d, &token, fd, &event));
    close(fd);
    FAILS(CEN_ERR_NOT_READY, cen_event_query(d, event));
    OK(cen_stream_wait(d, 0, event));
    ceni_host_lose(other);
    OK(cen_stream_sync(d, 0)); /* the wait is over */
    FAILS(CEN_ERR_DEVICE_LOST, cen_event_query(d, event));
    cen_device_close(other);
    FAILS(CEN_ERR_DEVICE_LOST, cen_event_sync(d, event));
    OK(cen_fill_async(d, suite_map(d, 1, 0).addr, 1, 4, 0));
    OK(cen_stream_sync(d, 0)); /* it is the other one that is lost */
}

static void what_is_not_shared_is_refused(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    cen_event event, plain;
    ceni_event_token token;
    int fd = -7;
    FAILS(CEN_ERR_INVALID, cen_event_create(d, CEN_EVENT_SHARED | CEN_EVENT_TIMING, &event));
    FAILS(CEN_ERR_INVALID, cen_event_create(d, CEN_EVENT_SHARED | CEN_EVENT_MANUAL, &event));
    FAILS(CEN_ERR_INVALID, cen_event_create(d, 8, &event));
    OK(cen_event_create(d, 0, &plain));
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, ceni_dev_event_export(d, plain, &token, &fd));
    assert_int_equal(suite_log_errors, 1);
    assert_int_equal(fd, -7);
    FAILS(CEN_ERR_INVALID, ceni_dev_event_export(d, plain, NULL, &fd));
    memset(&token, 0x5e, sizeof token);
    event = 77;
    int other = open("/dev/null", O_RDWR | O_CLOEXEC);
    suite_log_reset();
    cen_status status = ceni_dev_event_import(d, &token, other, &event);
    assert_true(status < 0 && status != CEN_ERR_DEVICE_LOST);
    assert_int_equal(suite_log_errors, 1);
    assert_int_equal(event, 77);
    close(other);
}

/* An imported event is to be waited for only. */
static void an_import_is_not_recorded(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    ceni_event_token token;
    int fd;
    child c = child_start(f, "recorder");
    cen_event event = hear_event(f, c.socket);
    FAILS(CEN_ERR_INVALID, cen_event_record(d, event, 0));
    FAILS(CEN_ERR_INVALID, ceni_dev_event_export(d, event, &token, &fd));
    OK(cen_event_destroy(d, event));
    child_kill(c);
    OK(cen_stream_sync(d, 0));
}

/* A record is complete for others once those before it are. */
static void records_complete_in_order(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a process opens no event of its own on CUDA");
    }
    cen_device *d = f->device;
    cen_event event, imported;
    cen_stream streams[3];
    child_gate gates[3];
    ceni_event_token token;
    int fd;
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    OK(ceni_dev_event_export(d, event, &token, &fd));
    OK(ceni_dev_event_import(d, &token, fd, &imported));
    close(fd);
    for (int i = 0; i < 3; i++) {
        OK(cen_stream_create(d, 0, &streams[i]));
        child_gate_close(f, &gates[i], streams[i]);
        OK(cen_event_record(d, event, streams[i]));
    }
    const int order[] = {2, 0, 1};
    for (int i = 0; i < 3; i++) {
        FAILS(CEN_ERR_NOT_READY, cen_event_query(d, imported));
        child_gate_open(f, &gates[order[i]]);
        OK(cen_stream_sync(d, streams[order[i]]));
    }
    OK(cen_event_query(d, imported));
    OK(cen_event_destroy(d, event));
    OK(cen_event_query(d, imported));
}

/* ---- the host's page ---- */

static cen_status import_fd(cen_device *d, int fd) {
    const ceni_event_token token = {{0}};
    cen_event event;
    cen_status status = ceni_dev_event_import(d, &token, fd, &event);
    return status ? status : cen_event_destroy(d, event);
}

/* A file with the contents of an event's page, or with nothing, sealed as said. */
static int file_of(int like, size_t size, int seals) {
    char page[4096] = {0};
    int fd = memfd_create("made up", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(like < 0 || pread(like, page, sizeof page, 0) == sizeof page);
    assert_int_equal(pwrite(fd, page, sizeof page, 0), sizeof page);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void a_foreign_file_is_refused(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("CUDA's events need no file");
    }
    cen_device *d = f->device;
    const int both = F_SEAL_SHRINK | F_SEAL_GROW;
    cen_event event;
    ceni_event_token token;
    int real, fd;
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    OK(ceni_dev_event_export(d, event, &token, &real));
    const struct {
        int like;
        size_t size;
        int seals;
    } files[] = {{real, 4096, 0}, {real, 4096, F_SEAL_SHRINK}, {real, 4096, F_SEAL_GROW},
                 {real, 0, both}, {real, 8192, both},          {-1, 4096, both}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fd = file_of(files[i].like, files[i].size, files[i].seals);
        suite_log_reset();
        FAILS(CEN_ERR_INVALID, import_fd(d, fd));
        assert_logged("no shared event");
        close(fd);
    }
    FAILS(CEN_ERR_INVALID, import_fd(d, -1));
    fd = file_of(real, 4096, both); /* as good as one whose process is gone */
    OK(import_fd(d, fd));
    close(fd);
    close(real);
}

static void a_reader_cannot_write_the_page(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("CUDA's events need no file");
    }
    cen_device *d = f->device;
    cen_event event;
    ceni_event_token token;
    int fd;
    struct stat st;
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    OK(ceni_dev_event_export(d, event, &token, &fd));
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0022, 0); /* nor open it again for that, but for its user */
    assert_true(ftruncate(fd, 0) < 0);
    OK(import_fd(d, fd));
    OK(cen_event_destroy(d, event)); /* with what it has in flight */
    close(fd);
}

/* Whatever the page says, an importer does no more than wait. */
static void a_hostile_page_does_no_harm(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("CUDA's events need no file");
    }
    cen_device *d = f->device;
    cen_event event, imported;
    ceni_event_token token;
    cen_stream stream;
    char path[64];
    int fd;
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    OK(ceni_dev_event_export(d, event, &token, &fd));
    OK(ceni_dev_event_import(d, &token, fd, &imported));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int writable = open(path, O_RDWR | O_CLOEXEC); /* as its user may */
    uint32_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0);
    assert_ptr_not_equal(words, MAP_FAILED);
    OK(cen_stream_create(d, 0, &stream));
    const uint32_t recorded[] = {1, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        memset(words, 0xff, 4096);
        words[2] = 0;
        words[1] = recorded[i];
        cen_status status = cen_event_query(d, imported);
        assert_true(!status || status == CEN_ERR_NOT_READY || status == CEN_ERR_DEVICE_LOST);
        OK(cen_stream_wait(d, stream, imported));
        words[2] = recorded[i];
        OK(cen_stream_sync(d, stream));
    }
    for (int i = 0; i < 3; i++) { /* the exporter does not read it back */
        OK(cen_event_record(d, event, stream));
        OK(cen_event_sync(d, event));
    }
    assert_int_equal(words[1], 3);
    assert_int_equal(words[2], 3);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int reader = open(path, O_RDONLY | O_CLOEXEC); /* another one's description */
    assert_true(fcntl(reader, F_OFD_SETLK, &lock) < 0);
    OK(cen_event_destroy(d, event));
    assert_int_equal(fcntl(reader, F_OFD_SETLK, &lock),
                     0); /* which does not stand for the exporter */
    words[1] = 4;
    words[3] = 0;
    FAILS(CEN_ERR_DEVICE_LOST, cen_event_query(d, imported));
    munmap(words, 4096);
    close(reader);
    close(writable);
    close(fd);
}

static void a_capture_has_none(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("what a driver captures is its own");
    }
    cen_device *d = f->device;
    cen_event event;
    ceni_event_token token;
    cen_stream stream;
    ceni_graph *graph = NULL;
    int fd;
    OK(cen_stream_create(d, 0, &stream));
    OK(cen_event_create(d, CEN_EVENT_SHARED, &event));
    OK(ceni_dev_event_export(d, event, &token, &fd));
    OK(ceni_capture_begin(d, stream));
    FAILS(CEN_ERR_UNSUPPORTED, cen_event_record(d, event, stream));
    OK(ceni_capture_end(d, stream, &graph));
    ceni_graph_destroy(d, graph);
    OK(import_fd(d, fd));
    close(fd);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(another_process_waits),
    SUITE_TEST(a_wait_knows_its_record),
    SUITE_TEST(a_forked_child_does_not_stand_in),
    SUITE_TEST(what_was_complete_stays_so),
    SUITE_TEST(a_lost_device_does_not_complete),
    SUITE_TEST(what_is_not_shared_is_refused),
    SUITE_TEST(an_import_is_not_recorded),
    SUITE_TEST(records_complete_in_order),
    SUITE_TEST(a_foreign_file_is_refused),
    SUITE_TEST(a_reader_cannot_write_the_page),
    SUITE_TEST(a_hostile_page_does_no_harm),
    SUITE_TEST(a_capture_has_none),
    SUITE_TEST(a_dead_exporter_ends_waits),
};
CHILD_MAIN(tests, roles)
