/* A file being written: it appears under its name whole, or not at all.
 *
 * The bytes go to a new file in the same folder, which takes the name in the end. What is there
 * already and is no plain file (a pipe, a terminal, /dev/null) is written to directly, and so is
 * standard output ("-"). A name that ends in ".gz" makes the bytes gzip.
 *
 * The first failure is kept and what comes after it does nothing, so that writers need not look at
 * each call: ceni_out_close says in the end whether all went well. */
#ifndef CENI_TRACE_OUT_H
#define CENI_TRACE_OUT_H

#include "cenote/snapshot.h"

#include <sys/types.h>
#include <zlib.h>

typedef struct ceni_out {
    const char *name; /* for messages */
    char *target;     /* what the new file becomes; NULL: it is written to directly */
    char *temporary;
    int fd;      /* -1: not open */
    mode_t mode; /* of the file that is replaced; 0: none is */
    bool gzip, close_fd, logged;
    z_stream z;
    uint8_t *buffer, *packed; /* bytes to be written; the same, compressed */
    size_t size;
    cen_status status;
    char message[128];
} ceni_out;

/* Never fails by itself: ceni_out_close tells. */
void ceni_out_open(ceni_out *out, const char *path);
void ceni_out_fail(ceni_out *out, cen_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ceni_out_put(ceni_out *out, const void *data, size_t size);
/* For what writes to a file itself: the file, or one without a name that ceni_out_take then takes
 * the bytes from. Before anything is put. -1: it failed. */
int ceni_out_file(ceni_out *out);
void ceni_out_take(ceni_out *out, int fd);
void ceni_out_printf(ceni_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Gives the file its name, or removes it if anything failed; logs the failure, and tells it in
 * `error` if that is given. */
cen_status ceni_out_close(ceni_out *out, cen_read_error *error);

#endif
