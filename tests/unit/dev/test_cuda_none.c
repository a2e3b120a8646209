/* Without a driver there are no CUDA devices, which is no error, and the log says why. Skipped
 * where there is one. */
#include <stdio.h>
#include <string.h>

#include "cenote/log.h"
#include "dev/dev.h"

static char last_message[1024];

static void keep(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    snprintf(last_message, sizeof last_message, "%s", message);
}

static int fail(const char *what) {
    fprintf(stderr, "%s; the last message was: %s\n", what, last_message);
    return 1;
}

int main(void) {
    int count = -1;
    cen_device *device = NULL;
    cen_log_set(keep, NULL, CEN_LOG_INFO);
    if (cen_device_count("cuda", &count) != CEN_OK || count < 0) {
        return fail("counting is an error");
    }
    if (count > 0) {
        return 77;
    }
    if (strncmp(last_message, "cuda: ", 6) != 0) {
        return fail("the log does not say why there are none");
    }
    if (cen_device_open("cuda:0", &device) != CEN_ERR_NO_DEVICE || device) {
        return fail("opening does not say that there is no device");
    }
    return strncmp(last_message, "cuda:0: ", 8) == 0 ? 0 : fail("opening does not say why");
}
