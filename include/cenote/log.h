/* Where the library's messages go. It prints nothing by itself: without a sink they are dropped. */
#ifndef CENOTE_LOG_H
#define CENOTE_LOG_H

#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cen_log_level {
    CEN_LOG_ERROR = 0, /* a call failed: which argument, and why; once for each failure */
    CEN_LOG_WARN = 1,  /* it worked, but not as asked */
    CEN_LOG_INFO = 2,
    CEN_LOG_DEBUG = 3
} cen_log_level;

/* Receives one message: a line without its newline, valid during the call only. It may be called
 * from any thread, and must not call back into cenote. */
typedef void (*cen_log_fn)(void *arg, cen_log_level level, const char *message);

/* Sends messages up to `level` to `fn` with `arg` (NULL: none, the default). While other threads
 * are in the library, a message may still reach the old `fn`, even with the new `arg`: set the sink
 * before they start, and change it when they are done. */
CEN_API void cen_log_set(cen_log_fn fn, void *arg, cen_log_level level);

/* What the calling thread's last failure said, with or without a sink: the message of level
 * CEN_LOG_ERROR, cut off after 511 bytes; "" if there was none since the thread's last call of this
 * function. For a binding that turns a status into its language's exception: call it at once. Valid
 * until the thread's next call of the library. */
CEN_API const char *cen_log_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
