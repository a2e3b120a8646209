/* Who holds what of each device: NVML's processes beside the ledgers of those that run under
 * cenote.
 *
 * NVML is loaded at run time (libnvidia-ml.so.1). Any thread may call. Sizes are in bytes. */
#ifndef CENOTE_HOLDERS_H
#define CENOTE_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/ledger.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_holders cen_holders;

#define CEN_BYTES_UNKNOWN UINT64_MAX

/* Bytes of a process by whose doing they are: "torch", "nccl", "context", ... */
typedef struct cen_holder_owner {
    char name[64];
    uint64_t bytes;
} cen_holder_owner;

/* A process on a device. */
typedef struct cen_holder {
    int pid;
    char program[256]; /* "" where it cannot be seen */
    char user[64];
    uint64_t device_bytes; /* as NVML counts; CEN_BYTES_UNKNOWN where it does not tell, or does
                              not list a process that has a ledger */
    bool dead; /* no such process here any more: an orphan, or one of another namespace */
    bool has_ledger;
    /* The ledger is of `cenote run`, which sees all; else it has only what an allocator took. */
    bool physical;
    /* The sum of the summed kinds; of an allocator's ledger that has none of them, its segments. */
    uint64_t ledger_bytes;
    uint64_t kind_bytes[CEN_LEDGER_KINDS]; /* of its ledger */
    const cen_holder_owner *owners;        /* of ledger_bytes, most bytes first */
    size_t owner_count;
    int64_t unexplained_bytes; /* device_bytes - ledger_bytes, where both are known; else 0 */
} cen_holder;

typedef struct cen_holder_device {
    int index; /* NVML's */
    char uuid[48], name[128];
    uint64_t total_bytes, used_bytes, free_bytes;
    uint64_t reserved_bytes;   /* by the driver; 0 where NVML counts it as used */
    int64_t unclaimed_bytes;   /* used_bytes - what the processes hold: of processes that cannot be
                                  seen, or that are gone; CEN_BYTES_UNKNOWN parts count as 0 */
    const cen_holder *holders; /* most bytes first */
    size_t holder_count;
} cen_holder_device;

/* Looks now. A device that NVML fails for is left out, which is warned of, unless all are. Ledgers
 * are this user's; those of processes that are gone are removed (docs/holders.md).
 * CEN_ERR_NO_DEVICE: there is no NVML here, or no device (the log says which); CEN_ERR_UNSUPPORTED,
 * CEN_ERR_HOST_MEMORY, CEN_ERR_DEVICE. */
CEN_API cen_status cen_holders_read(cen_holders **holders);
CEN_API void cen_holders_free(cen_holders *holders);
CEN_API size_t cen_holders_device_count(const cen_holders *holders);
CEN_API const cen_holder_device *cen_holders_device(const cen_holders *holders, size_t index);

/* Bytes in use of the device with this UUID, by all (`used_bytes`) and by this process
 * (`own_bytes`, CEN_BYTES_UNKNOWN where NVML does not tell, as in a container with process
 * identifiers of its own). Either may be NULL. CEN_ERR_NOT_FOUND: no such device;
 * CEN_ERR_NO_DEVICE, CEN_ERR_HOST_MEMORY, CEN_ERR_DEVICE as above. */
CEN_API cen_status cen_holders_used(const char *uuid, uint64_t *used_bytes, uint64_t *own_bytes);

#ifdef __cplusplus
}
#endif
#endif
