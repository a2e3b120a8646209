/* The pool's locks.
 *
 * ceni_lock: a word of 0 (free), 1 (held) or 2 (held, and someone may sleep on it).
 *
 * The pool is held for a few tens of nanoseconds as a rule, and for a driver call at times. So a
 * thread that finds it held first spins, for about as long as several turns take, and sleeps then.
 * It is not fair: whoever runs goes first, which keeps the pool's data in one processor's cache.
 *
 * ceni_spin: held for a few loads and stores only, and mostly by threads of one processor, so it is
 * rarely seen held; then its holder was preempted, and is let run. Leaving it is a plain store. */
#ifndef CENI_POOL_LOCK_H
#define CENI_POOL_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ceni_lock {
    _Atomic uint32_t word;
} ceni_lock;

void ceni_lock_wait(ceni_lock *lock);
void ceni_lock_wake(ceni_lock *lock);

static inline bool ceni_lock_try(ceni_lock *lock) {
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void ceni_lock_take(ceni_lock *lock) {
    if (!ceni_lock_try(lock)) {
        ceni_lock_wait(lock);
    }
}

static inline void ceni_lock_leave(ceni_lock *lock) {
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2) {
        ceni_lock_wake(lock);
    }
}

typedef struct ceni_spin {
    atomic_bool held;
} ceni_spin;

void ceni_spin_wait(ceni_spin *spin);

static inline void ceni_spin_take(ceni_spin *spin) {
    if (atomic_exchange_explicit(&spin->held, true, memory_order_acquire)) {
        ceni_spin_wait(spin);
    }
}

static inline void ceni_spin_leave(ceni_spin *spin) {
    atomic_store_explicit(&spin->held, false, memory_order_release);
}

/* Lets the processor know that this thread only waits. */
static inline void ceni_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
