/* The broker: made, run, stopped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "ipc/broker_int.h"

/* Of the descriptors that this process may have: what the pages, directories and events of one user
 * take at most, the connections of one user, of three each, and what of one user's waits to be
 * closed. The others are not starved. */
enum { FDS_SHARE = 2, CLIENTS_SHARE = 6, CLOSING_SHARE = 16 };

static uint64_t quota(void *arg, uint32_t uid) {
    const cen_broker_options *o = &((const cen_broker *)arg)->options;
    uint64_t bytes;
    if (o->user_quota && o->user_quota(o->user_quota_arg, uid, &bytes)) {
        return bytes;
    }
    return o->quota_bytes ? o->quota_bytes : UINT64_MAX;
}

static void close_descriptor(void *arg, uint32_t uid, int fd) {
    ceni_closer_close(((cen_broker *)arg)->closer, uid, fd);
}

/* As many descriptors as this process may have; how many that is. */
static uint32_t raise_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) {
        return 1024;
    }
    rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (soft != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = soft;
    }
    return limit.rlim_cur < INT32_MAX ? (uint32_t)limit.rlim_cur : INT32_MAX;
}

static uint32_t or_default(uint32_t value, uint32_t other) {
    return value ? value : other;
}

static cen_status make_state(cen_broker *broker) {
    static const ceni_state_calls calls = {.reply = ceni_broker_reply,
                                           .notice = ceni_broker_notice,
                                           .close = close_descriptor,
                                           .check = ceni_broker_check_fd,
                                           .read_only = ceni_broker_read_only,
                                           .quota = quota};
    const cen_broker_options *o = &broker->options;
    uint32_t descriptors = raise_limit();
    ceni_state_limits limits = {.clients = or_default(o->max_clients, 4096),
                                .sets = or_default(o->max_sets, 65536),
                                .exports = or_default(o->max_exports, 1048576),
                                .leases = or_default(o->max_leases, 4194304),
                                .fds = descriptors / FDS_SHARE};
    if (limits.clients > descriptors / CLIENTS_SHARE) {
        limits.clients = descriptors / CLIENTS_SHARE;
    }
    broker->closing_max = descriptors / CLOSING_SHARE;
    ceni_state_random random;
    if (!ceni_random(&random, sizeof random)) {
        return ceni_fail(CEN_ERR_IO, "broker: no random numbers: %s", strerror(errno));
    }
    broker->state = ceni_state_create(&limits, &calls, broker, &random);
    broker->closer = ceni_closer_create();
    return broker->state && broker->closer
               ? CEN_OK
               : ceni_fail(CEN_ERR_HOST_MEMORY, "broker: out of host memory");
}

/* Whether this process sees all users by their numbers: one line of /proc that maps them all. */
static bool sees_all_users(void) {
    char line[128] = "";
    FILE *file = fopen("/proc/self/uid_map", "re");
    if (!file) {
        return true;
    }
    unsigned long count = 0;
    if (fgets(line, sizeof line, file)) { /* first inside, first outside, how many */
        char *at = line;
        for (int i = 0; i < 3; i++) {
            count = strtoul(at, &at, 10);
        }
    }
    fclose(file);
    return count == UINT32_MAX;
}

static cen_status make_loop(cen_broker *broker) {
    broker->epoll = ceni_fd_move(epoll_create1(EPOLL_CLOEXEC));
    broker->spare = ceni_fd_move(epoll_create1(EPOLL_CLOEXEC));
    broker->wake = ceni_fd_move(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event wake = {.events = EPOLLIN}, come = {.events = EPOLLIN};
    come.data.u64 = (uintptr_t)broker;
    if (ceni_fault(CENI_FAULT_IO) || broker->epoll < 0 || broker->spare < 0 || broker->wake < 0 ||
        epoll_ctl(broker->epoll, EPOLL_CTL_ADD, broker->wake, &wake) ||
        epoll_ctl(broker->epoll, EPOLL_CTL_ADD, broker->listener, &come)) {
        return ceni_fail(CEN_ERR_LIMIT, "broker: its event loop: %s", strerror(errno));
    }
    broker->listening = true;
    return CEN_OK;
}

cen_status cen_broker_create(const cen_broker_options *options, cen_broker **out) {
    if (!out || (options && options->size != sizeof *options)) {
        return ceni_fail(CEN_ERR_INVALID, "broker: %s",
                         out ? "options.size is another version's" : "broker is NULL");
    }
    cen_broker *broker = ceni_calloc(1, sizeof *broker);
    if (!broker) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "broker: out of host memory");
    }
    if (options) {
        broker->options = *options;
    }
    broker->listener = broker->epoll = broker->wake = broker->spare = -1;
    broker->partly_mapped = !sees_all_users();
    cen_status status = make_state(broker);
    status = status ? status : ceni_broker_listen(broker);
    status = status ? status : make_loop(broker);
    if (status) {
        cen_broker_destroy(broker);
        return status;
    }
    *out = broker;
    return CEN_OK;
}

cen_status cen_broker_run(cen_broker *broker) {
    if (!broker) {
        return ceni_fail(CEN_ERR_INVALID, "broker: broker is NULL");
    }
    return ceni_broker_loop(broker);
}

void cen_broker_stop(cen_broker *broker) {
    uint64_t one = 1;
    if (!broker) {
        return;
    }
    int error = errno; /* as a signal handler has to leave it */
    atomic_store(&broker->stop, true);
    (void)!write(broker->wake, &one, sizeof one); /* it can fail only if the loop is awake */
    errno = error;
}

void cen_broker_destroy(cen_broker *broker) {
    if (!broker) {
        return;
    }
    ceni_broker_unlisten(broker);
    ceni_broker_close_all(broker);
    ceni_state_destroy(broker->state);
    ceni_closer_leave(broker->closer);
    int *const fds[] = {&broker->epoll, &broker->wake, &broker->spare};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
        }
    }
    ceni_free(broker);
}

const char *cen_broker_socket(const cen_broker *broker) {
    return !broker || broker->options.listen_fd ? "" : broker->address.sun_path;
}
