/* Where ledgers are: a folder of this user's that nobody else can write to. */
#include "cenote/ledger.h"

#include "base/fault.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int name_it(char *to, size_t size) {
    const char *asked = getenv("CENOTE_LEDGER_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    if (asked && *asked) {
        return snprintf(to, size, "%s", asked);
    }
    if (runtime && *runtime) {
        return snprintf(to, size, "%s/cenote", runtime);
    }
    return snprintf(to, size, "/dev/shm/cenote-%lu", (unsigned long)geteuid());
}

cen_status cen_ledger_dir(char *path, size_t size) {
    char made[4096];
    struct stat there;
    if (!path) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_dir: path is NULL");
    }
    int length = name_it(made, sizeof made);
    if (length < 0 || (size_t)length >= sizeof made || (size_t)length >= size) {
        return ceni_fail(CEN_ERR_INVALID, "cen_ledger_dir: size is %zu; the path needs %d", size,
                         length + 1);
    }
    if (ceni_fault(CENI_FAULT_IO) || (mkdir(made, 0700) && errno != EEXIST) ||
        lstat(made, &there)) {
        return ceni_fail(CEN_ERR_IO, "cen_ledger_dir: %s: cannot be made: %s", made,
                         strerror(errno));
    }
    if (S_ISLNK(there.st_mode) && stat(made, &there)) {
        return ceni_fail(CEN_ERR_IO, "cen_ledger_dir: %s: %s", made, strerror(errno));
    }
    if (!S_ISDIR(there.st_mode) || there.st_uid != geteuid()) {
        return ceni_fail(CEN_ERR_IO, "cen_ledger_dir: %s is %s", made,
                         S_ISDIR(there.st_mode) ? "another user's" : "no folder");
    }
    memcpy(path, made, (size_t)length + 1);
    return CEN_OK;
}
