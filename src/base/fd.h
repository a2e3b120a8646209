/* Files that the library keeps open in somebody else's program.
 *
 * A program may have closed its standard streams, and would write what it prints into a file that
 * got one of their numbers: none of ours does. And it may close whatever it did not open itself,
 * after which the number is another file's, which the program owns: so a file is known by what it
 * is, and asked before it is written to or closed. */
#ifndef CENI_FD_H
#define CENI_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ceni_fd_id {
    dev_t device;
    ino_t inode;
} ceni_fd_id;

/* Moves a file that was just opened above the standard streams. The number to use, which closes on
 * exec; -1 with errno, and the file closed. fd < 0 is returned as it is. */
int ceni_fd_move(int fd);

/* Opens the file anew with `flags`, so that this descriptor's rights and locks are its own; moved
 * as above, O_CLOEXEC. -1 with errno: also where its mode forbids it. */
int ceni_fd_reopen(int fd, int flags);
/* Whether that errno of it says that no /proc is mounted, or one that this process is not in. */
bool ceni_fd_no_proc(int error);

/* Whether this process may make a file so large. Memory files count, too, and growing one beyond
 * RLIMIT_FSIZE raises SIGXFSZ, which ends a program: so what grows a file asks first. False, with
 * EFBIG: it may not. A limit that another thread lowers between the question and the call is met by
 * the call. */
bool ceni_fd_may_grow(uint64_t size);

/* Closes those of an array that are not negative. */
void ceni_fd_close_all(const int *fds, size_t count);

/* What the file is; all zero if that cannot be told. */
ceni_fd_id ceni_fd_identify(int fd);

/* Whether the number is still that file's. */
bool ceni_fd_is(int fd, ceni_fd_id id);

/* Closes a file that another process sent, or a socket in which files may wait unread. The last
 * close of a file may wait for its maker: a socket with SO_LINGER, a file of a file system that
 * does not answer. So what is no memfd is closed on a thread of its own. fd < 0 is ignored. */
void ceni_fd_close_foreign(int fd);

#endif
