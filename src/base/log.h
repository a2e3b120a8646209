/* Messages to the user's sink. A function that fails says why here, once, where it is decided. */
#ifndef CENI_LOG_H
#define CENI_LOG_H

#include "cenote/log.h"

/* Replaces control characters by '?': a name from outside may hold any. */
void ceni_one_line(char *text);

/* Formats and delivers a message if the sink wants its level. errno is preserved. */
void ceni_log(cen_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error and gives `status`, so that failing reads: return ceni_fail(CEN_ERR_INVALID, ...).
 * A macro, so that compilers and analysers see which status comes back. */
#define ceni_fail(status, ...) (ceni_log(CEN_LOG_ERROR, __VA_ARGS__), (status))

#endif
