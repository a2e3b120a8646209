#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

enum { STACK = 65536 };

bool ceni_thread_detached(void *(*work)(void *), void *arg) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) {
        return false;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = !pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) &&
                 !pthread_attr_setstacksize(&attributes, STACK) &&
                 !pthread_create(&thread, &attributes, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}
