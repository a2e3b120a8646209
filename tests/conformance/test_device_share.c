/* Pages across file descriptors: within a process, and to a child over a Unix socket. */
#include "tests/conformance/suite.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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

static bool send_fd(int socket, int fd) {
    char byte = 'x', control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, 0) == 1;
}

static int receive_fd(int socket) {
    int fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1) {
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS) {
            memcpy(&fd, CMSG_DATA(header), sizeof fd);
        }
    }
    return fd;
}

/* In the child: 0 if the page holds `expect` throughout, after writing `reply` to its first word.
 */
static int use_in_child(int socket, uint32_t expect, uint32_t reply) {
    cen_host_options options = {.size = sizeof options, .inline_streams = true};
    cen_device *d;
    int fd = receive_fd(socket);
    if (fd < 0 || cen_device_open_host(0, &options, &d)) {
        return 1;
    }
    const uint64_t size = d->granularity;
    cen_addr addr;
    ceni_page page;
    ceni_grant grant = {d, CENI_ACCESS_READ_WRITE};
    if (ceni_dev_page_import(d, fd, size, &page) || ceni_dev_va_reserve(d, size, 0, &addr) ||
        ceni_dev_page_map(d, addr, size, page) ||
        ceni_dev_page_access(d, addr, size, 1, &grant, 1)) {
        return 2;
    }
    for (uint64_t i = 0; i < size / 4; i++) {
        uint32_t word = 0;
        if (cen_copy_async(d, address(&word), addr + i * 4, 4, 0) || word != expect) {
            return 3;
        }
    }
    if (cen_copy_async(d, addr, address(&reply), 4, 0)) {
        return 4;
    }
    cen_device_close(d);
    return 0;
}

static void a_child_shares_the_page(void **state) {
    fixture *f = *state;
    if (!f->host) {
        suite_skip("a forked child cannot use CUDA");
    }
    cen_device *d = f->device;
    mapped m = suite_map(d, 1, CENI_PAGE_EXPORTABLE);
    int sockets[2], fd = -1, status = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(use_in_child(sockets[1], 0x42424242, 0xcafe));
    }
    OK(cen_fill_async(d, m.addr, 0x42, m.size, 0));
    OK(cen_stream_sync(d, 0));
    OK(ceni_dev_page_export(d, m.pages[0], &fd));
    assert_true(send_fd(sockets[0], fd));
    close(fd);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(suite_word(d, m.addr), 0xcafe);
    close(sockets[0]);
    close(sockets[1]);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(an_import_is_the_same_memory),
    SUITE_TEST(what_cannot_be_shared_is_refused),
    SUITE_TEST(a_child_shares_the_page),
};
SUITE_MAIN(tests)
