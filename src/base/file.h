/* Files that are read and written whole. */
#ifndef CENI_FILE_H
#define CENI_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cenote/status.h"

/* Reads all of a file, which the caller frees with ceni_free; a pipe will do. CEN_ERR_NOT_FOUND:
 * there is none; CEN_ERR_IO; CEN_ERR_FORMAT: it is longer than `limit` bytes, a whole number of
 * MiB; CEN_ERR_HOST_MEMORY. Messages begin with the path. */
cen_status ceni_file_read(const char *path, size_t limit, char **data, size_t *size);

/* Opens a plain file for reading, above the standard streams, and says what it is.
 * CEN_ERR_NOT_FOUND: there is none; CEN_ERR_IO: also a folder, a pipe or a device, of which none is
 * waited for. */
cen_status ceni_file_open(const char *path, int *fd, struct stat *st);

/* Reads exactly that many bytes from `offset` on; `path` is for the message. CEN_ERR_TRUNCATED: the
 * file ends before; CEN_ERR_IO. Any thread, several of one file too. */
cen_status ceni_file_read_at(const char *path, int fd, uint64_t offset, uint64_t bytes, void *to);

/* Writes a file of its own beside `path`, which it then takes the place of; on failure what was
 * there stays, and the other one is gone. Any thread. A symbolic link stays one, and a character
 * device, such as /dev/null, is written to. CEN_ERR_IO; CEN_ERR_INVALID: a path that is too long,
 * or of a pipe, a socket or a block device. */
cen_status ceni_file_replace(const char *path, const void *bytes, size_t size);

#endif
