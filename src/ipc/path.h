/* Where the broker listens: at what is asked for, else what $CENOTE_BROKER says, else in the user's
 * own $XDG_RUNTIME_DIR, or in /run for the whole machine. */
#ifndef CENI_IPC_PATH_H
#define CENI_IPC_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "cenote/status.h"

/* For a client: the user's own if it is there. CEN_ERR_INVALID: it is longer than a socket's may
 * be. */
cen_status ceni_ipc_socket_path(const char *asked, char *path, size_t size);

typedef enum ceni_ipc_place {
    CENI_IPC_NAMED,  /* its folder has to be there */
    CENI_IPC_OWN,    /* of one user */
    CENI_IPC_SHARED, /* of the machine */
} ceni_ipc_place;
/* For a broker: the user's own unless that is root. CEN_ERR_INVALID as above. */
cen_status ceni_ipc_listen_path(const char *asked, char *path, size_t size, ceni_ipc_place *place);

#endif
