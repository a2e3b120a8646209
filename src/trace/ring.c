/* The hot path: an event into the own thread's buffer, and the buffer into the file. trace/ring.h
 * says how an owner and who stops the trace keep out of each other's way. */
#include "trace/ring.h"

#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* What makes a ring's owner and others agree: see trace/ring.h. */
static bool barrier_register(void) {
#if defined(__linux__)
    return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
#else
    return false;
#endif
}

static void barrier_all(void) {
#if defined(__linux__)
    if (!atomic_load(&ceni_trace.locked_enter)) {
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
#endif
}

atomic_bool ceni_trace_is_on;

/* Nearer than what __tls_get_addr finds; eight bytes of a process's static room. */
static _Thread_local ceni_ring *own __attribute__((tls_model("initial-exec")));
static pthread_key_t end_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

/* Nobody else is in the ring. */
static cen_status write_out(ceni_ring *ring) {
    uint32_t count = atomic_load_explicit(&ring->count, memory_order_relaxed);
    if (!count) {
        return CEN_OK;
    }
    ceni_moment_pair now = ceni_trace_moment();
    cen_status status =
        ceni_writer_events(&ceni_trace.writer, ring->thread, ring->records, count, now);
    if (status) {
        atomic_fetch_add(&ceni_trace.lost, count);
        atomic_store(&ceni_trace_is_on, false);
    }
    atomic_fetch_add_explicit(&ring->flushed, count, memory_order_relaxed);
    atomic_store_explicit(&ring->count, 0, memory_order_relaxed);
    ring->flushed_ns = now.ns;
    return status;
}

/* Nothing of what the program does may change with it: errno, cancellation. */
cen_status ceni_ring_flush(ceni_ring *ring) {
    int saved = errno, state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    cen_status status = write_out(ring);
    pthread_setcancelstate(state, NULL);
    errno = saved;
    return status;
}

bool ceni_ring_make_room(ceni_ring *ring) {
    ring->records = ceni_malloc(ceni_trace.buffer_events * sizeof *ring->records);
    ring->capacity = ring->records ? ceni_trace.buffer_events : 0;
    if (!ring->records) {
        atomic_fetch_add(&ceni_trace.lost, 1);
    }
    return ring->records;
}

/* ---- a ring's life ---- */

/* A thread ends. */
static void end_ring(void *arg) {
    ceni_ring *ring = arg;
    own = NULL;
    if (atomic_load(&ceni_trace.forked)) {
        return; /* it may be half-written, and its neighbours are gone */
    }
    pthread_mutex_lock(&ceni_trace.lock);
    if (ceni_trace.open) {
        (void)ceni_ring_flush(ring);
    }
    ceni_trace.gone_events += ring->flushed;
    ceni_ring **at = &ceni_trace.rings;
    while (*at != ring) {
        at = &(*at)->next;
    }
    *at = ring->next;
    pthread_mutex_unlock(&ceni_trace.lock);
    ceni_free(ring->records);
    ceni_free(ring);
}

static void set_up(void) {
    have_key = !pthread_key_create(&end_key, end_ring);
    atomic_store(&ceni_trace.locked_enter, !barrier_register());
}

static ceni_ring *new_ring(void) {
    pthread_once(&once, set_up);
    ceni_ring *ring = have_key ? ceni_calloc(1, sizeof *ring) : NULL;
    if (!ring || pthread_setspecific(end_key, ring)) {
        ceni_free(ring);
        return NULL;
    }
    pthread_mutex_lock(&ceni_trace.lock);
    ring->thread = ceni_trace.threads++;
    ring->next = ceni_trace.rings;
    ceni_trace.rings = ring;
    pthread_mutex_unlock(&ceni_trace.lock);
    own = ring;
    return ring;
}

ceni_ring *ceni_ring_own(void) {
    return own ? own : new_ring();
}

/* ---- all rings; state.lock is held ---- */

void ceni_rings_halt(void) {
    atomic_store(&ceni_trace_is_on, false);
    barrier_all();
    for (ceni_ring *ring = ceni_trace.rings; ring; ring = ring->next) {
        while (atomic_load_explicit(&ring->busy, memory_order_acquire)) {
            sched_yield();
        }
    }
}

void ceni_rings_collect(void) {
    for (ceni_ring *ring = ceni_trace.rings; ring; ring = ring->next) {
        (void)ceni_ring_flush(ring);
    }
}

void ceni_rings_reset(void) {
    pthread_once(&once, set_up);
    ceni_trace.threads = 0;
    for (ceni_ring *ring = ceni_trace.rings; ring; ring = ring->next) {
        ceni_free(ring->records);
        ring->records = NULL;
        ring->capacity = 0;
        ring->count = 0;
        ring->flushed = 0;
        ring->thread = ceni_trace.threads++;
    }
}

uint64_t ceni_rings_events(void) {
    uint64_t sum = ceni_trace.gone_events;
    for (ceni_ring *ring = ceni_trace.rings; ring; ring = ring->next) {
        sum += ring->flushed + ring->count;
    }
    return sum;
}

/* ---- emitting ---- */

/* Apart from the hot path, which has no use for it. */
static __attribute__((noinline)) uint32_t stack_of(ceni_ring *ring, uint32_t *generation) {
    return ceni_stack_here(ring, generation);
}

static __attribute__((noinline)) void count_lost(void) {
    atomic_fetch_add(&ceni_trace.lost, 1);
}

static inline void emit(uint64_t ticks, enum ceni_event what, unsigned device, uint64_t addr,
                        uint64_t size, uint64_t stream) {
    unsigned kind = (unsigned)what & 255;
    ceni_ring *ring = ceni_ring_own();
    if (!ring) {
        count_lost();
        return;
    }
    uint32_t generation = 0, stack = CENI_FILE_NONE;
    if (atomic_load_explicit(&ceni_trace.stack_kinds, memory_order_relaxed) >> kind & 1) {
        stack = stack_of(ring, &generation);
    }
    if (!ceni_ring_enter(ring)) {
        return;
    }
    ceni_event_record *r = ceni_ring_next(ring);
    if (r) {
        r->ticks = ticks;
        r->addr = addr;
        r->size = size;
        r->stream = stream;
        /* another trace may have been started meanwhile */
        r->stack = generation == ceni_trace.generation ? stack : CENI_FILE_NONE;
        r->kind = (uint8_t)kind;
        r->flags = (uint8_t)((unsigned)what >> 8);
        r->device = (uint16_t)device;
        ceni_ring_commit(ring);
        if (kind == CENI_EVENT_OOM) {
            (void)ceni_ring_flush(ring);
        }
    }
    ceni_ring_leave(ring);
}

void ceni_emit_at(uint64_t ticks, enum ceni_event what, unsigned device, uint64_t addr,
                  uint64_t size, uint64_t stream) {
    emit(ticks, what, device, addr, size, stream);
}

void ceni_emit(enum ceni_event what, unsigned device, uint64_t addr, uint64_t size,
               uint64_t stream) {
    emit(ceni_trace_ticks_after(), what, device, addr, size, stream);
}
