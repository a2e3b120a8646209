/* What processes tell one another of the memory that they hold, for the test driver and the test
 * NVML: one file a process, named by its id, in the folder CENOTE_TEST_DRIVER_STATE. Without that
 * variable a process sees none but itself, and NVML none at all.
 *
 * A file holds the bytes in use of each device, as little-endian 64-bit numbers. It goes when its
 * process ends by itself; that of a killed process stays, and with it the memory: an orphan. */
#ifndef TESTS_DRIVER_STATE_H
#define TESTS_DRIVER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_STATE_DEVICES = 16, TD_UUID_TEXT = 48 };

typedef struct td_user {
    int pid;
    uint64_t used[TD_STATE_DEVICES];
} td_user;

/* The UUID of a device, as 16 bytes and as NVML prints it. */
void td_uuid(int ordinal, unsigned char bytes[16]);
void td_uuid_text(int ordinal, char text[TD_UUID_TEXT]);

void td_state_publish(int ordinal, uint64_t used);
void td_state_remove(void);
/* Calls fn for each process's file, this one's too. */
void td_state_each(void (*fn)(const td_user *user, void *arg), void *arg);
/* Bytes of a device that other processes hold. */
uint64_t td_state_others(int ordinal);

#endif
