/* Files that are read and written whole. */
#ifndef CENI_FILE_H
#define CENI_FILE_H

#include <stddef.h>

#include "cenote/status.h"

/* Reads all of a file, which the caller frees with ceni_free; a pipe will do. CEN_ERR_NOT_FOUND:
 * there is none; CEN_ERR_IO; CEN_ERR_FORMAT: it is longer than `limit` bytes, a whole number of
 * MiB; CEN_ERR_HOST_MEMORY. Messages begin with the path. */
cen_status ceni_file_read(const char *path, size_t limit, char **data, size_t *size);

/* Writes a file of its own beside `path`, which it then takes the place of; on failure what was
 * there stays, and the other one is gone. Any thread. A symbolic link stays one, and a character
 * device, such as /dev/null, is written to. CEN_ERR_IO; CEN_ERR_INVALID: a path that is too long,
 * or of a pipe, a socket or a block device. */
cen_status ceni_file_replace(const char *path, const void *bytes, size_t size);

#endif
