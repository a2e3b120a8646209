#include "ipc/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

cen_status ceni_ipc_socket_path(const char *asked, char *path, size_t size) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    size_t most = sizeof((struct sockaddr_un *)0)->sun_path;
    int length = 0;
    asked = asked && *asked ? asked : getenv("CENOTE_BROKER");
    if (asked && *asked) {
        length = snprintf(path, size, "%s", asked);
    } else {
        length = runtime ? snprintf(path, size, "%s/cenote/broker.sock", runtime) : 0;
        if (!length || (size_t)length >= size || access(path, F_OK)) {
            length = snprintf(path, size, "/run/cenote/broker.sock");
        }
    }
    if (length < 0 || (size_t)length >= size || (size_t)length >= most) {
        return ceni_fail(CEN_ERR_INVALID, "the broker's socket: a path of %d bytes is too long",
                         length);
    }
    return CEN_OK;
}
