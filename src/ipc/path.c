#include "ipc/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

#define SOCKET "/cenote/broker.sock"

static cen_status join(const char *folder, const char *rest, char *path, size_t size) {
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path, room = size < most ? size : most;
    int length = snprintf(path, room, "%s%s", folder, rest);
    if (length >= 0 && (size_t)length < room) {
        return CEN_OK;
    }
    return ceni_fail(CEN_ERR_INVALID,
                     "the broker's socket: a path of %d bytes is too long, it may have %zu", length,
                     room - 1);
}

/* What was asked for, by argument or environment; NULL: nothing. */
static const char *named(const char *asked) {
    asked = asked && *asked ? asked : getenv("CENOTE_BROKER");
    return asked && *asked ? asked : NULL;
}

static bool is_there(const char *folder) {
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    int length = snprintf(path, sizeof path, "%s" SOCKET, folder);
    return length >= 0 && (size_t)length < sizeof path && !access(path, F_OK);
}

static cen_status choose(const char *asked, bool own, char *path, size_t size) {
    return asked ? join(asked, "", path, size)
                 : join(own ? getenv("XDG_RUNTIME_DIR") : "/run", SOCKET, path, size);
}

cen_status ceni_ipc_socket_path(const char *asked, char *path, size_t size) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    return choose(named(asked), runtime && *runtime && is_there(runtime), path, size);
}

cen_status ceni_ipc_listen_path(const char *asked, char *path, size_t size, ceni_ipc_place *place) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool own = geteuid() != 0 && runtime && *runtime;
    cen_status status = choose(named(asked), own, path, size);
    if (!status) {
        *place = named(asked) ? CENI_IPC_NAMED : own ? CENI_IPC_OWN : CENI_IPC_SHARED;
    }
    return status;
}
