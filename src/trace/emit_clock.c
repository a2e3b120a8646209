/* Ticks: the processor's time-stamp counter where it runs evenly and alike on all processors, as
 * the processor and the kernel say; nanoseconds of the monotonic clock elsewhere. */
#include "trace/ring.h"

#include "base/clock.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The kernel goes over to one of these when it finds that the counters disagree. */
static bool kernel_distrusts(void) {
    static const char *const others[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies"};
    char text[32] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[size > 0 ? size : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!strcmp(text, others[i])) {
            return true;
        }
    }
    return false;
}

static bool counter_is_even(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8 && !kernel_distrusts();
}

enum { UNKNOWN, COUNTER, CLOCK };
static atomic_int source;

static int find_source(void) {
    int found = counter_is_even() ? COUNTER : CLOCK;
    atomic_store_explicit(&source, found, memory_order_relaxed);
    return found;
}

static inline bool has_counter(void) {
    int s = atomic_load_explicit(&source, memory_order_relaxed);
    return (s ? s : find_source()) == COUNTER;
}

static inline uint64_t counter(void) {
    return __builtin_ia32_rdtsc();
}

/* Not before what came before has been done. */
static inline uint64_t counter_after(void) {
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
}
#else
static inline bool has_counter(void) {
    return false;
}
static inline uint64_t counter(void) {
    return 0;
}
static inline uint64_t counter_after(void) {
    return 0;
}
#endif

uint64_t ceni_trace_ticks(void) {
    return has_counter() ? counter() : ceni_now_ns();
}

uint64_t ceni_trace_ticks_after(void) {
    return has_counter() ? counter_after() : ceni_now_ns();
}

/* The pair whose two readings are the closest of a few: the thread may be interrupted between. */
ceni_moment_pair ceni_trace_moment(void) {
    if (!has_counter()) {
        uint64_t ns = ceni_now_ns();
        return (ceni_moment_pair){ns, ns};
    }
    ceni_moment_pair best = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t before = counter_after();
        uint64_t ns = ceni_now_ns();
        uint64_t width = counter_after() - before;
        if (width < least) {
            least = width;
            best = (ceni_moment_pair){before + width / 2, ns};
        }
    }
    return best;
}

uint64_t ceni_trace_unix_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
