/* The program to be run and the interposer: where they are, and whether the one reaches the other.
 *
 * The loader preloads nothing into a program that has more rights than its user, and a program
 * without a loader preloads nothing at all. Both would run unseen, so both are refused. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/run.h"

static const char command[] = "run";

static bool has_more_rights(int fd, const struct stat *st) {
    char capability[64];
    return (st->st_mode & S_ISUID && st->st_uid != geteuid()) ||
           (st->st_mode & S_ISGID && st->st_mode & S_IXGRP && st->st_gid != getegid()) ||
           (geteuid() && fgetxattr(fd, "security.capability", capability, sizeof capability) > 0);
}

/* Whether the file is a program of a machine that the interposer is not for, of 32 bits at least:
 * the loader would say that it ignores the interposer, and run the program unseen. */
static bool is_foreign(const char *head, size_t size) {
    return size > EI_CLASS && !memcmp(head, ELFMAG, SELFMAG) && head[EI_CLASS] != ELFCLASS64;
}

/* 1: has an interpreter, 0: has none, -1: no ELF file that says. */
static int has_loader(int fd, const char *head, size_t size) {
    Elf64_Ehdr header;
    if (size < sizeof header || memcmp(head, ELFMAG, SELFMAG) || head[EI_CLASS] != ELFCLASS64) {
        return -1;
    }
    memcpy(&header, head, sizeof header);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        off_t at = (off_t)(header.e_phoff + (uint64_t)i * header.e_phentsize);
        if (pread(fd, &part, sizeof part, at) != sizeof part) {
            return -1;
        }
        if (part.p_type == PT_INTERP) {
            return 1;
        }
    }
    return 0;
}

static int check(const char *name, const char *path, int depth);

/* A script is run by the program in its first line; `env` runs the one that it is given. */
static int check_script(const char *name, char *line, int depth) {
    line[strcspn(line, "\n")] = '\0';
    char *rest = line + 2;
    char *interpreter = strtok_r(rest, " \t", &rest);
    char *argument = strtok_r(rest, " \t", &rest);
    if (!interpreter) {
        return CLI_OK;
    }
    const char *base = strrchr(interpreter, '/');
    char path[RUN_PATH];
    if (base && !strcmp(base, "/env") && argument && *argument != '-' && !strchr(argument, '=')) {
        int status = cli_find_program(command, argument, path);
        return status ? status : check(name, path, depth);
    }
    return check(name, interpreter, depth);
}

static int check(const char *name, const char *path, int depth) {
    enum { DEEPEST = 4 };
    char head[512];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { /* it may be run without being read; then nothing can be said of it */
        return CLI_OK;
    }
    ssize_t got = pread(fd, head, sizeof head - 1, 0);
    size_t size = got > 0 ? (size_t)got : 0;
    head[size] = '\0';
    int loader = has_loader(fd, head, size);
    bool more = !fstat(fd, &st) && has_more_rights(fd, &st);
    close(fd);
    if (size > 2 && head[0] == '#' && head[1] == '!' && depth < DEEPEST) {
        return check_script(name, head, depth + 1);
    }
    if (more) {
        (void)cli_failed(command,
                         "%s: %s is setuid, setgid or has capabilities: nothing can be "
                         "preloaded into it",
                         name, path);
        return CLI_CANNOT;
    }
    if (is_foreign(head, size)) {
        (void)cli_failed(command, "%s: %s is no 64-bit program: nothing can be preloaded into it",
                         name, path);
        return CLI_CANNOT;
    }
    if (loader == 0) {
        (void)cli_failed(command, "%s: %s is linked statically: nothing can be preloaded into it",
                         name, path);
        return CLI_CANNOT;
    }
    return CLI_OK;
}

int run_find_program(const char *name, char path[RUN_PATH]) {
    int status = cli_find_program(command, name, path);
    return status ? status : check(name, path, 0);
}

/* ---- the interposer ---- */

/* The folder of this program, with a '/' at its end. */
static bool own_folder(char folder[RUN_PATH]) {
    ssize_t length = readlink("/proc/self/exe", folder, RUN_PATH - 1);
    if (length <= 0) {
        return false;
    }
    folder[length] = '\0';
    strrchr(folder, '/')[1] = '\0';
    return true;
}

static bool try_preload(char path[RUN_PATH], const char *folder, const char *below) {
    char tried[2 * RUN_PATH];
    snprintf(tried, sizeof tried, "%s%slibcenote_preload.so", folder, below);
    char *whole = realpath(tried, NULL);
    bool found = whole && strlen(whole) < RUN_PATH;
    if (found) {
        memcpy(path, whole, strlen(whole) + 1);
    }
    free(whole);
    return found;
}

int run_find_preload(char path[RUN_PATH]) {
    const char *asked = getenv("CENOTE_PRELOAD");
    char folder[RUN_PATH];
    if (asked && *asked) {
        char *whole = realpath(asked, NULL);
        if (!whole || strlen(whole) >= RUN_PATH) {
            free(whole);
            return cli_failed(command, "CENOTE_PRELOAD: %s: %s", asked, strerror(errno));
        }
        memcpy(path, whole, strlen(whole) + 1);
        free(whole);
    } else if (!own_folder(folder) ||
               (!try_preload(path, folder, "") && !try_preload(path, folder, "../lib/cenote/"))) {
        return cli_failed(command, "libcenote_preload.so is neither beside this program nor in "
                                   "../lib/cenote; CENOTE_PRELOAD can name it");
    }
    if (strpbrk(path, ": ")) {
        return cli_failed(command, "%s: the loader takes no path with a space or a colon", path);
    }
    return CLI_OK;
}
