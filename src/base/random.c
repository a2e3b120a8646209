#include "base/random.h"

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "base/fault.h"

bool ceni_random(void *out, size_t size) {
    uint8_t *at = out;
    if (ceni_fault(CENI_FAULT_IO)) {
        errno = EIO;
        return false;
    }
    while (size) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR) {
            return false;
        }
        at += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    }
    return true;
}
