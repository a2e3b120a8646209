/* Files that commands write. */
#include "cli/cmd.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_write_file(const char *command, const char *path, const char *text, size_t size) {
    struct stat st;
    FILE *out = fopen(path, "we");
    bool plain = out && !fstat(fileno(out), &st) && S_ISREG(st.st_mode);
    bool failed = !out || fwrite(text, 1, size, out) != size;
    int error = errno;
    if (out && fclose(out) && !failed) {
        failed = true;
        error = errno;
    }
    if (failed && plain) {
        unlink(path);
    }
    return failed ? cli_failed(command, "%s: cannot be written: %s", path, strerror(error))
                  : CLI_OK;
}
