/* Closes files that clients sent, and sockets in which such files may wait unread. The last close
 * of a file may wait for its maker: a socket with SO_LINGER, a file of a file system that does not
 * answer. So what may be such a file is closed by threads, of which each user has a few; while
 * these wait, the user's other files do. Nobody else's are held up, and how many wait tells who
 * sends such files. */
#ifndef CENI_IPC_CLOSER_H
#define CENI_IPC_CLOSER_H

#include <stddef.h>
#include <stdint.h>

enum { CENI_CLOSER_THREADS = 4 /* of a user */ };

typedef struct ceni_closer ceni_closer;

/* NULL: no memory. */
ceni_closer *ceni_closer_create(void);
/* No more files come. Those that wait are closed when they can be, and the memory goes then. NULL
 * is ignored. */
void ceni_closer_leave(ceni_closer *closer);

/* Closes a file that this user sent; fd < 0 is ignored. */
void ceni_closer_close(ceni_closer *closer, uint32_t uid, int fd);
/* Closes a connection to this user, a Unix socket of type seqpacket: its other end knows at once.
 */
void ceni_closer_hang_up(ceni_closer *closer, uint32_t uid, int socket);

/* How many of a user's files are still to be closed. */
size_t ceni_closer_count(ceni_closer *closer, uint32_t uid);

#endif
