#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The sink, one of the library's few globals (docs/design.md lists them). */
static _Atomic(cen_log_fn) sink_fn;
static _Atomic(void *) sink_arg;
static atomic_int sink_level;

void cen_log_set(cen_log_fn fn, void *arg, cen_log_level level) {
    atomic_store(&sink_fn, NULL);
    atomic_store(&sink_arg, arg);
    atomic_store(&sink_level, (int)level);
    atomic_store(&sink_fn, fn);
}

static _Thread_local cen_status expected;

cen_status ceni_log_expect(cen_status status) {
    cen_status before = expected;
    expected = status;
    return before;
}

cen_log_level ceni_log_level(cen_status status) {
    return status && status == expected ? CEN_LOG_DEBUG : CEN_LOG_ERROR;
}

void ceni_one_line(char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
        }
    }
}

void ceni_clean_text(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at >= 0xc2 && *at < 0xe0 ? 1 : (*at & 0xf0) == 0xe0 ? 2 : -1;
        more = *at >= 0xf0 && *at < 0xf5 ? 3 : more;
        int good = 0;
        while (good < more && (at[good + 1] & 0xc0) == 0x80) {
            good++;
        }
        bool longer = more == 2 && *at == 0xe0 && at[1] < 0xa0;  /* than needed */
        bool half = more == 2 && *at == 0xed && at[1] >= 0xa0;   /* of a pair of UTF-16 */
        bool control = more == 1 && *at == 0xc2 && at[1] < 0xa0; /* C1 */
        bool off = more == 3 && ((*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] >= 0x90));
        if (more < 0 || good < more || longer || half || control || off) {
            *at++ = '?';
        } else {
            at += more + 1;
        }
    }
    ceni_one_line(text);
}

void ceni_join_lines(char *text) {
    static const char white[] = " \t\n\v\f\r";
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool space = strchr(white, *from) != NULL;
        if (!space) {
            *to++ = *from;
        } else if (to > text && to[-1] != ' ') {
            *to++ = ' ';
        }
    }
    *to = '\0';
}

/* What this thread's last failure said, and whether it was asked for. */
static _Thread_local char last_error[512];
static _Thread_local bool last_error_taken;

const char *cen_log_last_error(void) {
    if (last_error_taken) {
        last_error[0] = '\0';
    }
    last_error_taken = true;
    return last_error;
}

void ceni_log(cen_log_level level, const char *format, ...) {
    cen_log_fn fn = atomic_load(&sink_fn);
    bool wanted = fn && (int)level <= atomic_load(&sink_level);
    if (!wanted && level != CEN_LOG_ERROR) {
        return;
    }
    int saved = errno;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ceni_one_line(line);
    if (level == CEN_LOG_ERROR) {
        snprintf(last_error, sizeof last_error, "%s", line);
        last_error_taken = false;
    }
    if (wanted) {
        fn(atomic_load(&sink_arg), level, line);
    }
    errno = saved;
}
