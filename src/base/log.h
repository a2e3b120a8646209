/* Messages to the user's sink. A function that fails says why here, once, where it is decided. */
#ifndef CENI_LOG_H
#define CENI_LOG_H

#include <stddef.h>

#include "cenote/log.h"

/* The length of the UTF-8 sequence at `text`, of `size` bytes, at least 1; 0: it is none, or a
 * character that would act on a terminal or hide: a control, a separator of lines, a change of
 * direction, one without width. */
size_t ceni_text_length(const void *text, size_t size);
/* Replaces the bytes of such characters by '?': a name from outside may hold any. */
void ceni_one_line(char *text);
/* Beside that, of what is no valid UTF-8, as JSON needs it. */
void ceni_clean_text(char *text);
/* Before it, for text of several lines, such as a program in a command line: white space of any
 * length becomes one space. */
void ceni_join_lines(char *text);

/* Formats and delivers a message if the sink wants its level. errno is preserved. */
void ceni_log(cen_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error and gives `status`, so that failing reads: return ceni_fail(CEN_ERR_INVALID, ...).
 * A macro, so that compilers and analysers see which status comes back. */
#define ceni_fail(status, ...) (ceni_log(ceni_log_level(status), __VA_ARGS__), (status))

/* From now on this thread's failures with `status` are logged as CEN_LOG_DEBUG: the caller has
 * another way to go on, or says itself what failed. CEN_OK: none. Returns what was expected before,
 * to be set again. */
cen_status ceni_log_expect(cen_status status);
/* The level of a failure: CEN_LOG_ERROR unless it is expected. */
cen_log_level ceni_log_level(cen_status status);

#endif
