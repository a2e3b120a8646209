/* Where the broker listens. */
#ifndef CENI_IPC_PATH_H
#define CENI_IPC_PATH_H

#include <stddef.h>

#include "cenote/status.h"

/* The path asked for, or the default that cen_share_options says. CEN_ERR_INVALID: it is longer
 * than a socket's may be. */
cen_status ceni_ipc_socket_path(const char *asked, char *path, size_t size);

#endif
