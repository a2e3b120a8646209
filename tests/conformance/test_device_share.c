/* Pages across file descriptors: within a process, and to others over a Unix socket. */
#include "tests/conformance/child.h"

#include <sys/mman.h>
#include <sys/stat.h>

static void an_import_is_the_same_memory(void **state) {
    cen_device *d = ((fixture *)*state)->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    uint64_t before = suite_free_bytes(d);
    int fd = -1;
    ceni_page again;
    cen_addr addr;
    OK(ceni_dev_page_export(d, m.pages[0], &fd));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    OK(ceni_dev_page_import(d, fd, m.size, &again));
    close(fd);
    assert_true(suite_free_bytes(d) + d->granularity > before); /* counted once */
    OK(ceni_dev_va_reserve(d, m.size, 0, &addr));
    OK(ceni_dev_page_map(d, addr, m.size, again));
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    OK(ceni_dev_page_access(d, addr, m.size, 1, &grant, 1));
    OK(cen_fill_async(d, addr, 0x77, m.size, 0));
    assert_int_equal(suite_word(d, m.addr), 0x77777777);
    suite_unmap(d, &m); /* the import keeps the memory */
    assert_int_equal(suite_word(d, addr), 0x77777777);
    OK(ceni_dev_page_unmap(d, addr, m.size, 1));
    OK(ceni_dev_page_release(d, again));
    assert_true(suite_free_bytes(d) >= before + m.size);
}

static void what_cannot_be_shared_is_refused(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    ceni_page plain, page;
    int fd = -7;
    OK(ceni_dev_page_create(d, d->granularity, 0, &plain));
    suite_log_reset();
    assert_true(ceni_dev_page_export(d, plain, &fd) < 0);
    assert_int_equal(suite_log_errors, 1);
    assert_int_equal(fd, -7);
    assert_true(ceni_dev_page_import(d, -1, d->granularity, &page) < 0);
    FILE *file = tmpfile();
    assert_true(ceni_dev_page_import(d, fileno(file), d->granularity, &page) < 0);
    fclose(file);
    if (f->host) {
        FAILS(CEN_ERR_UNSUPPORTED, ceni_dev_page_create(d, d->granularity, CENI_PAGE_RDMA, &page));
        OK(ceni_dev_page_create(d, d->granularity, CENI_PAGE_EXPORTABLE, &page));
        OK(ceni_dev_page_export(d, page, &fd));
        FAILS(CEN_ERR_INVALID, ceni_dev_page_import(d, fd, 2 * d->granularity, &page));
        assert_true(ftruncate(fd, 0) < 0); /* an importer cannot be left with nothing */
        close(fd);
        fd = memfd_create("unsealed", MFD_CLOEXEC);
        assert_int_equal(ftruncate(fd, (off_t)d->granularity), 0);
        FAILS(CEN_ERR_INVALID, ceni_dev_page_import(d, fd, d->granularity, &page));
        close(fd);
    }
}

/* Maps the page of a descriptor at addresses of its own. */
static cen_addr map_fd(cen_device *d, int fd, ceni_page *page) {
    cen_addr addr;
    OK(ceni_dev_page_import(d, fd, d->granularity, page));
    OK(ceni_dev_va_reserve(d, d->granularity, 0, &addr));
    OK(ceni_dev_page_map(d, addr, d->granularity, *page));
    return addr;
}

static cen_status grant(cen_device *d, cen_addr addr, cen_device *to, enum ceni_access access) {
    const ceni_grant g = {to, access};
    return ceni_dev_page_access(d, addr, d->granularity, 1, &g, 1);
}

static void unmap(cen_device *d, cen_addr addr, ceni_page page) {
    OK(ceni_dev_page_unmap(d, addr, d->granularity, 1));
    OK(ceni_dev_page_release(d, page));
    OK(ceni_dev_va_free(d, addr, d->granularity));
}

static int reopen(int fd, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    assert_true(again >= 0);
    return again;
}

static void send_page(const fixture *f, int socket, ceni_page page) {
    int fd = -1;
    OK(ceni_dev_page_export(f->device, page, &fd));
    child_tell(socket, "x", 1, fd);
    close(fd);
}

static int receive_page(int socket) {
    char byte;
    int fd = child_hear(socket, &byte, 1);
    assert_true(fd >= 0);
    return fd;
}

/* ---- what children do ---- */

/* Reads all of the page, and writes its first word. */
static void play_writer(const fixture *f, int socket) {
    cen_device *d = f->device;
    ceni_page page;
    int fd = receive_page(socket);
    cen_addr addr = map_fd(d, fd, &page);
    close(fd);
    OK(grant(d, addr, d, CENI_ACCESS_READ_WRITE));
    uint32_t *words = malloc(d->granularity), reply = 0xcafe;
    suite_read(d, words, addr, d->granularity);
    for (uint64_t i = 0; i < d->granularity / 4; i++) {
        assert_int_equal(words[i], 0x42424242);
    }
    free(words);
    suite_write(d, addr, &reply, sizeof reply);
}

/* Keeps the page, and reads it once its owner is dead. */
static void play_keeper(const fixture *f, int socket) {
    cen_device *d = f->device;
    ceni_page page;
    int fd = receive_page(socket);
    cen_addr addr = map_fd(d, fd, &page);
    close(fd);
    OK(grant(d, addr, d, CENI_ACCESS_READ));
    child_tell_word(socket, 0);
    child_hear_word(socket);
    assert_int_equal(suite_word(d, addr), 0x17171717);
    unmap(d, addr, page); /* it lets go before it ends */
    child_tell_word(socket, 0);
}

/* Owns a page, until it is killed. */
static void play_owner(const fixture *f, int socket) {
    mapped m = suite_map(f->device, 1, CENI_PAGE_EXPORTABLE);
    OK(cen_fill_async(f->device, m.addr, 0x17, m.size, 0));
    OK(cen_stream_sync(f->device, 0));
    send_page(f, socket, m.pages[0]);
    child_hear_word(socket); /* nobody says it */
}

/* Imports on another device than the owner's. */
static void play_peer(const fixture *f, int socket) {
    cen_device *d = suite_open(f, 1, NULL);
    ceni_page page;
    int fd = receive_page(socket);
    cen_addr addr = map_fd(d, fd, &page);
    close(fd);
    OK(grant(d, addr, d, CENI_ACCESS_READ_WRITE));
    assert_int_equal(suite_word(d, addr), 0x31313131);
    OK(cen_fill_async(d, addr, 0x32, 4, 0));
    OK(cen_stream_sync(d, 0));
    unmap(d, addr, page);
    cen_device_close(d);
}

static const child_role roles[] = {
    {"writer", play_writer},
    {"keeper", play_keeper},
    {"owner", play_owner},
    {"peer", play_peer},
};

/* ---- tests ---- */

static void another_process_shares_the_page(void **state) {
    fixture *f = *state;
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    OK(cen_fill_async(d, m.addr, 0x42, m.size, 0));
    OK(cen_stream_sync(d, 0));
    child c = child_start(f, "writer");
    send_page(f, c.socket, m.pages[0]);
    child_end(c);
    assert_int_equal(suite_word(d, m.addr), 0xcafe);
}

/* The memory lives as long as anybody has it, whoever made it. */
static void a_page_outlives_its_owner(void **state) {
    fixture *f = *state;
    child owner = child_start(f, "owner"), keeper = child_start(f, "keeper");
    int fd = receive_page(owner.socket);
    child_tell(keeper.socket, "x", 1, fd);
    child_hear_word(keeper.socket);
    child_kill(owner);
    child_tell_word(keeper.socket, 0);
    child_hear_word(keeper.socket);
    child_end(keeper);
    ceni_page page; /* in flight it was all the while */
    cen_addr addr = map_fd(f->device, fd, &page);
    close(fd);
    OK(grant(f->device, addr, f->device, CENI_ACCESS_READ));
    assert_int_equal(suite_word(f->device, addr), 0x17171717);
    unmap(f->device, addr, page);
}

static void a_peer_imports(void **state) {
    fixture *f = *state;
    int devices = 0;
    OK(cen_device_count(f->host ? "host" : "cuda", &devices));
    if (devices < 2) {
        suite_skip("there is one device only");
    }
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    OK(cen_fill_async(d, m.addr, 0x31, m.size, 0));
    OK(cen_stream_sync(d, 0));
    child c = child_start(f, "peer");
    send_page(f, c.socket, m.pages[0]);
    child_end(c);
    assert_int_equal(suite_word(d, m.addr), 0x32323232);
}

static void an_import_counts_as_its_owners(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("others may use the device meanwhile");
    }
    cen_device *d = f->device;
    const cen_host_options tiny = {.capacity = d->granularity};
    cen_device *other = suite_open(f, 1, &tiny);
    mapped m = suite_map(d, 3, CENI_PAGE_EXPORTABLE);
    uint64_t mine = suite_free_bytes(d), theirs = suite_free_bytes(other);
    ceni_page pages[3], own;
    cen_addr addrs[3];
    for (int i = 0; i < 3; i++) { /* more than it could have of its own */
        int fd = -1;
        OK(ceni_dev_page_export(d, m.pages[i], &fd));
        addrs[i] = map_fd(other, fd, &pages[i]);
        close(fd);
        OK(grant(other, addrs[i], other, CENI_ACCESS_READ_WRITE));
        OK(grant(other, addrs[i], d, CENI_ACCESS_READ)); /* and any device of the process */
    }
    assert_int_equal(suite_free_bytes(other), theirs);
    assert_int_equal(suite_free_bytes(d), mine);
    OK(ceni_dev_page_create(other, d->granularity, 0, &own));
    for (int i = 0; i < 3; i++) {
        unmap(other, addrs[i], pages[i]);
    }
    assert_int_equal(suite_free_bytes(other), 0);
    OK(ceni_dev_page_release(other, own));
    assert_int_equal(suite_free_bytes(other), theirs);
    assert_int_equal(suite_free_bytes(d), mine);
    cen_device_close(other);
}

static void a_read_only_descriptor_gives_no_more(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a descriptor of CUDA's carries every right");
    }
    cen_device *d = f->device, *other = suite_open(f, 1, NULL);
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    OK(cen_fill_async(d, m.addr, 0x61, m.size, 0));
    OK(cen_stream_sync(d, 0));
    int fd = -1;
    struct stat st;
    OK(ceni_dev_page_export(d, m.pages[0], &fd));
    int reading = reopen(fd, O_RDONLY), writing = reopen(fd, O_WRONLY);
    ceni_page page, full;
    cen_addr addr = map_fd(other, reading, &page), whole = map_fd(other, fd, &full);
    suite_log_reset();
    FAILS(CEN_ERR_INVALID, grant(other, addr, other, CENI_ACCESS_READ_WRITE));
    assert_logged("read-only");
    OK(grant(other, addr, other, CENI_ACCESS_READ));
    assert_int_equal(suite_word(other, addr), 0x61616161);
    FAILS(CEN_ERR_FAULT, cen_fill_async(other, addr, 1, 4, 0));
    OK(grant(other, addr, other, CENI_ACCESS_NONE));
    OK(grant(other, whole, other, CENI_ACCESS_READ_WRITE)); /* with a descriptor that may */
    OK(cen_fill_async(other, whole, 0x62, 4, 0));
    OK(cen_stream_sync(other, 0));
    assert_int_equal(suite_word(d, m.addr), 0x62626262);
    ceni_page none;
    FAILS(CEN_ERR_INVALID, ceni_dev_page_import(other, writing, m.size, &none));
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0022, 0); /* nobody else opens it again for writing */
    unmap(other, addr, page);
    unmap(other, whole, full);
    cen_device_close(other);
    close(fd);
    close(reading);
    close(writing);
}

/* Nothing that is cut off later, and nothing sealed against writing as if it were not. */
static void seals_are_minded(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a descriptor of CUDA's has none");
    }
    cen_device *d = f->device;
    ceni_page page;
    int fd = memfd_create("made up", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)d->granularity), 0);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_import(d, fd, d->granularity, &page));
    int reading = reopen(fd, O_RDONLY);
    FAILS(CEN_ERR_INVALID, ceni_dev_page_import(d, reading, d->granularity, &page));
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    void *probe = mmap(NULL, d->granularity, PROT_NONE, MAP_SHARED, fd, 0);
    if (probe == MAP_FAILED) {
        suite_skip("this kernel (before 6.7) maps no file that is sealed against writing");
    }
    munmap(probe, d->granularity);
    cen_addr addr = map_fd(d, fd, &page);
    FAILS(CEN_ERR_INVALID, grant(d, addr, d, CENI_ACCESS_READ_WRITE));
    OK(grant(d, addr, d, CENI_ACCESS_READ));
    assert_int_equal(suite_word(d, addr), 0);
    unmap(d, addr, page);
    close(fd);
    close(reading);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(an_import_is_the_same_memory),
    SUITE_TEST(what_cannot_be_shared_is_refused),
    SUITE_TEST(another_process_shares_the_page),
    SUITE_TEST(a_page_outlives_its_owner),
    SUITE_TEST(a_peer_imports),
    SUITE_TEST(an_import_counts_as_its_owners),
    SUITE_TEST(a_read_only_descriptor_gives_no_more),
    SUITE_TEST(seals_are_minded),
};
CHILD_MAIN(tests, roles)
