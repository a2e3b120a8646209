/* Memory to measure in. */
#include "probe/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

/* Binds a range to a node of NUMA, before it is touched; 0 or the errno. There is no libc call. */
static int bind_to(void *data, size_t bytes, int node) {
    enum { BIND = 2 }; /* MPOL_BIND */
    unsigned long mask[16] = {0};
    size_t bits = 8 * sizeof *mask;
    if (node < 0 || (size_t)node >= 16 * bits) {
        return EINVAL;
    }
    mask[(size_t)node / bits] = 1ul << ((size_t)node % bits);
    return syscall(SYS_mbind, data, bytes, BIND, mask, 16 * bits, 0) ? errno : 0;
}

int ceni_host_memory_take(ceni_host_memory *memory, uint64_t bytes, int node) {
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    char *mapped = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return errno;
    }
    uint64_t off = (HUGE_PAGE - (uintptr_t)mapped % HUGE_PAGE) % HUGE_PAGE;
    *memory = (ceni_host_memory){mapped + off, bytes, mapped, whole};
    int error = node >= 0 ? bind_to(mapped, whole, node) : 0;
    if (error) {
        ceni_host_memory_drop(memory);
        return error;
    }
    (void)madvise(memory->data, whole - HUGE_PAGE, MADV_HUGEPAGE); /* a wish */
    return 0;
}

void ceni_host_memory_drop(ceni_host_memory *memory) {
    if (memory->mapped) {
        munmap(memory->mapped, memory->mapped_bytes);
    }
    *memory = (ceni_host_memory){0};
}

/* The sizes that /proc/self/smaps tells of the mapping that holds our memory. */
uint64_t ceni_host_memory_page(const ceni_host_memory *memory) {
    static const char key[] = "AnonHugePages:";
    char line[512];
    bool ours = false, told = false;
    uint64_t huge = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *end;
        uint64_t from = strtoull(line, &end, 16),
                 to = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;
        if (to) { /* a mapping's head: "7f0000000000-7f0000200000 rw-p ..." */
            ours = from < (uintptr_t)memory->data + memory->bytes && to > (uintptr_t)memory->data;
        } else if (ours && !strncmp(line, key, strlen(key))) {
            huge += strtoull(line + strlen(key), NULL, 10) << 10;
            told = true;
        }
    }
    if (file) {
        fclose(file);
    }
    uint64_t plain = (uint64_t)sysconf(_SC_PAGESIZE);
    return !told ? 0 : huge >= memory->bytes / 2 ? HUGE_PAGE : plain;
}
