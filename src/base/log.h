/* Messages to the user's sink. A function that fails says why here, once, where it is decided. */
#ifndef CENI_LOG_H
#define CENI_LOG_H

#include "cenote/log.h"

/* Replaces control characters by '?': a name from outside may hold any. */
void ceni_one_line(char *text);

/* Formats and delivers a message if the sink wants its level. errno is preserved. */
void ceni_log(cen_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs an error and returns `status`, so that failing reads: return ceni_fail(CEN_ERR_INVALID, ...)
 */
cen_status ceni_fail(cen_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
