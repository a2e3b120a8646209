/* Events that processes share: a page with counters, in a memfd. The exporter writes it, importers
 * read it and wait on it with a futex. All but ceni_host_shared_pause: `run` is held. */
#ifndef CENI_HOST_SHARED_EVENT_H
#define CENI_HOST_SHARED_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/status.h"

typedef struct host_point host_point;
typedef struct host_shared host_shared;

/* The exporter's, with one reference. */
cen_status ceni_host_shared_new(host_shared **shared);
/* An importer's, of a descriptor that is not consumed. */
cen_status ceni_host_shared_adopt(int fd, host_shared **shared);
host_shared *ceni_host_shared_keep(host_shared *shared);
void ceni_host_shared_drop(host_shared *shared);
bool ceni_host_shared_is_import(const host_shared *shared);
/* A descriptor for importers, the caller's to close. */
cen_status ceni_host_shared_export(const host_shared *shared, int *fd);

/* The exporter enqueues a record: numbers the point, which keeps the page. */
void ceni_host_shared_record(host_shared *shared, host_point *point);
/* The point was reached, or never will be: `lost` with its device. */
void ceni_host_shared_reach(host_point *point, bool lost);

/* Once, before the first event is made: a forked child gives up what holds its parent's place. */
void ceni_host_shared_watch_forks(void);

/* The number of the latest record, for an importer to wait for. */
uint32_t ceni_host_shared_latest(const host_shared *shared);
/* Whether that record is complete. Does not ask whether its process lives. */
bool ceni_host_shared_is_complete(const host_shared *shared, uint32_t number);
/* Waits for it, at most about `ms`, without any lock. CEN_ERR_NOT_READY: it is not complete;
 * CEN_ERR_DEVICE_LOST: it will not be, its process or device is gone. Logs nothing. */
cen_status ceni_host_shared_pause(const host_shared *shared, uint32_t number, uint32_t ms);

#endif
