/* Files that commands write. */
#include "cli/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Takes fd. 0, or errno. */
static int write_whole(int fd, const char *text, size_t size, bool keep) {
    FILE *out = fdopen(fd, "w");
    if (!out) {
        int error = errno;
        close(fd);
        return error;
    }
    bool written = fwrite(text, 1, size, out) == size && !fflush(out) && (!keep || !fsync(fd));
    int error = written ? 0 : errno;
    if (fclose(out) && !error) {
        error = errno;
    }
    return error;
}

/* Into a file beside it, which takes its place once it is whole. */
static int replace(const char *path, const char *text, size_t size) {
    char part[PATH_MAX];
    int length = snprintf(part, sizeof part, "%s.%ld.part", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof part) {
        return ENAMETOOLONG;
    }
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno;
    }
    int error = write_whole(fd, text, size, true);
    if (!error && rename(part, path)) {
        error = errno;
    }
    if (error) {
        unlink(part);
    }
    return error;
}

int cli_write_file(const char *command, const char *path, const char *text, size_t size) {
    struct stat st;
    char *real = realpath(path, NULL); /* a link stays one; NULL: there is none yet, most likely */
    const char *to = real ? real : path;
    int error = 0;
    if (stat(to, &st) || S_ISREG(st.st_mode)) {
        error = replace(to, text, size);
    } else { /* a device or a pipe */
        int fd = open(to, O_WRONLY | O_CLOEXEC);
        error = fd < 0 ? errno : write_whole(fd, text, size, false);
    }
    free(real);
    return error ? cli_failed(command, "%s: cannot be written: %s", path, strerror(error)) : CLI_OK;
}
