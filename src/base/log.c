#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
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

/* Characters that would act on a terminal or on a line of text instead of being shown: controls,
 * separators of lines, changes of direction, and what has no width. Those that join letters stay:
 * scripts need them. */
static bool is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200b ||
           code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

/* The length of the UTF-8 sequence at `text`; 0: it is none. */
static size_t decode(const uint8_t *text, size_t size, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t lead = text[0];
    size_t length = lead < 0x80       ? 1
                    : lead >> 5 == 6  ? 2
                    : lead >> 4 == 14 ? 3
                    : lead >> 3 == 30 ? 4
                                      : 0;
    if (!length || length > size) {
        return 0;
    }
    *code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2) {
            return 0;
        }
        *code = *code << 6 | (text[i] & 63);
    }
    bool surrogate = *code >> 11 == 27;
    return *code < least[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

size_t ceni_text_length(const void *text, size_t size) {
    uint32_t code;
    size_t length = decode(text, size, &code);
    return length && !is_control(code) ? length : 0;
}

void ceni_one_line(char *text) {
    size_t size = strlen(text);
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t length = decode((const uint8_t *)text + at, size - at, &code);
        if (length && is_control(code)) {
            memset(text + at, '?', length);
        }
        at += length ? length : 1;
    }
}

void ceni_clean_text(char *text) {
    size_t size = strlen(text);
    for (size_t at = 0; at < size;) {
        size_t length = ceni_text_length(text + at, size - at);
        if (!length) {
            text[at] = '?';
        }
        at += length ? length : 1;
    }
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
