/* The file behind a writer of tensors: as large as it will be from the start, written at any place,
 * and named in the end. Not trace/out.h's, whose bytes come one after another and which does not
 * see to it that they are on the disk. */
#ifndef CENI_SAFETENSORS_OUT_H
#define CENI_SAFETENSORS_OUT_H

#include "cenote/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ceni_tensor_out {
    int fd; /* -1: not open */
    char *target, *temporary;
    bool replaces; /* a file, whose these are: */
    mode_t mode;
    uid_t owner;
    gid_t group;
} ceni_tensor_out;

/* Makes a file of `bytes` bytes beside `path`. On failure too, ceni_tensor_out_close is to follow.
 */
cen_status ceni_tensor_out_open(ceni_tensor_out *out, const char *path, uint64_t bytes);
cen_status ceni_tensor_out_write(ceni_tensor_out *out, uint64_t offset, const void *data,
                                 uint64_t bytes);
/* Has it written to the disk, and gives it its name. */
cen_status ceni_tensor_out_name(ceni_tensor_out *out);
/* Removes what has no name yet, and frees all. */
void ceni_tensor_out_close(ceni_tensor_out *out);

#endif
