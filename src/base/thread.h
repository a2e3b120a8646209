/* Threads of the library's own in somebody else's program. */
#ifndef CENI_THREAD_H
#define CENI_THREAD_H

#include <stdbool.h>

/* Runs work(arg) on a thread that nobody joins, with a small stack and all signals blocked, which
 * are the program's. False: there is no thread. */
bool ceni_thread_detached(void *(*work)(void *), void *arg);

#endif
