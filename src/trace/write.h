/* Writing a trace's file, block after block. The live trace (ring.c) and what converts other
 * recordings both write through this.
 *
 *     ceni_writer writer;
 *     ceni_writer_open(&writer, fd, name, &start)     writes the file's head
 *     ceni_writer_string, _stack, _module, _device... define what events refer to
 *     ceni_writer_events(&writer, thread, records, count, now)
 *     ceni_writer_close(&writer, lost, now)           writes the index
 *
 * Definitions gather in memory and are written before the next events, so that no event in the file
 * refers to what is not there. The first failure to write ends it: the file is cut back to its last
 * whole block, the log says why, and later calls do nothing and return that status. Memory that
 * runs out makes a single definition fail (CENI_FILE_NONE), nothing else. Any thread may call. */
#ifndef CENI_TRACE_WRITE_H
#define CENI_TRACE_WRITE_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/fd.h"
#include "cenote/status.h"
#include "trace/format.h"

/* One moment by both clocks. Where ticks are nanoseconds the two are equal. */
typedef struct ceni_moment_pair {
    uint64_t ticks, ns;
} ceni_moment_pair;

/* Records of one kind that wait to be written. */
typedef struct ceni_gathered {
    uint8_t *data;
    size_t size, capacity;
    uint32_t count; /* that wait */
    uint32_t ids;   /* given so far */
} ceni_gathered;

typedef struct ceni_writer {
    int fd;
    ceni_fd_id id;    /* of its file: the program may close it, and use the number for its own */
    const char *name; /* for messages; the caller's, until closed */
    pthread_mutex_t lock;
    cen_status status;
    uint64_t end; /* of the last whole block: bytes written */
    ceni_moment_pair last;
    ceni_gathered strings, stacks, modules, devices, settings;
    ceni_index_record *index;
    size_t index_count, index_capacity;
    struct ceni_string_slot { /* finds a string's id: open addressing, at most half full */
        uint64_t hash;
        uint32_t id; /* + 1; 0: free */
    } * slots;
    size_t slot_count, slot_capacity;
} ceni_writer;

/* `fd`: opened for writing at its start, also a pipe; it stays the caller's to close. unix_ns: the
 * wall clock's time at `start`. On failure nothing needs to be closed. */
cen_status ceni_writer_open(ceni_writer *writer, int fd, const char *name, uint64_t pid,
                            ceni_moment_pair start, uint64_t unix_ns);

/* The id of a text: the same text, the same id. CENI_FILE_NONE: no memory. */
uint32_t ceni_writer_string(ceni_writer *writer, const char *text, size_t size);
/* A new id at each call: what is equal is the caller's to know. */
uint32_t ceni_writer_stack(ceni_writer *writer, const ceni_frame_record *frames, size_t count);
uint32_t ceni_writer_module(ceni_writer *writer, const char *path, const char *build_id);
/* CEN_ERR_HOST_MEMORY */
cen_status ceni_writer_device(ceni_writer *writer, uint32_t number, const char *name,
                              uint64_t total_bytes);
cen_status ceni_writer_setting(ceni_writer *writer, const char *key, const char *value);

/* Writes what is gathered and then a block of events. count 0: only the former. */
cen_status ceni_writer_events(ceni_writer *writer, uint32_t thread, const ceni_event_record *events,
                              size_t count, ceni_moment_pair now);

/* write_quietly.c: between the two, a full file and a pipe without a reader raise no signal;
 * `error` is the errno that what was done ended with, or 0. errno may change. */
typedef struct ceni_quiet {
    sigset_t old, before;
} ceni_quiet;
void ceni_quiet_begin(ceni_quiet *quiet);
void ceni_quiet_end(ceni_quiet *quiet, int error);

/* Writes all of the parts, which it uses up; 0, or an errno. No signal reaches the
 * program for it. */
int ceni_write_quietly(int fd, struct iovec *parts, size_t count);

/* Writes what is gathered and the index, and frees all. The status of the whole. */
cen_status ceni_writer_close(ceni_writer *writer, uint64_t lost, ceni_moment_pair now);

#endif
