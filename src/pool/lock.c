#include "pool/lock.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS     16 /* looks at the lock before sleeping */
#define PAUSE_MAX 32 /* pauses between looks, from 1 doubling up to this */

static bool look(ceni_lock *lock) {
    unsigned pauses = 1;
    for (int i = 0; i < SPINS; i++) {
        for (unsigned k = 0; k < pauses; k++) {
            ceni_pause();
        }
        if (!atomic_load_explicit(&lock->word, memory_order_relaxed) && ceni_lock_try(lock)) {
            return true;
        }
        pauses = pauses < PAUSE_MAX ? pauses * 2 : PAUSE_MAX;
    }
    return false;
}

/* Who has slept takes the lock as one that others may sleep on: it cannot know that none does. */
void ceni_lock_wait(ceni_lock *lock) {
    if (look(lock)) {
        return;
    }
    /* Where threads outnumber processors the holder may wait for this one. */
    sched_yield();
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire)) {
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

void ceni_lock_wake(ceni_lock *lock) {
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void ceni_spin_wait(ceni_spin *spin) {
    do {
        for (int i = 0; atomic_load_explicit(&spin->held, memory_order_relaxed); i++) {
            if (i < SPINS) {
                ceni_pause();
            } else {
                sched_yield();
            }
        }
    } while (atomic_exchange_explicit(&spin->held, true, memory_order_acquire));
}
