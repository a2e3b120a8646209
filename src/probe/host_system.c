/* What the system tells of the host: processors, caches, memory, NUMA nodes. */
#include "probe/host.h"

#include "base/log.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first line of a file below root, without its newline; false: it cannot be read. */
static bool read_line(const char *root, const char *path, char *line, size_t size) {
    char full[4096];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    bool got = file && fgets(line, (int)size, file);
    if (file) {
        fclose(file);
    }
    if (got) {
        line[strcspn(line, "\n")] = '\0';
    }
    return got;
}

/* The value of a line "key : value" of a file; false: there is none. */
static bool read_key(const char *root, const char *path, const char *key, char *value,
                     size_t size) {
    char full[4096], line[1024];
    bool found = false;
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        size_t length = strlen(key);
        const char *rest = line + length;
        if (strncmp(line, key, length) || (*rest != ':' && !isspace((unsigned char)*rest))) {
            continue;
        }
        rest += strspn(rest, " \t:");
        snprintf(value, size, "%.*s", (int)strcspn(rest, "\n"), rest);
        found = true;
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* The first number of a list such as "0-3,8"; -1: there is none. */
static int first_of(const char *list) {
    return isdigit((unsigned char)*list) ? (int)strtol(list, NULL, 10) : -1;
}

/* Whether a list such as "0-3,8" has the number. */
static bool list_has(const char *list, int number) {
    while (isdigit((unsigned char)*list)) {
        char *end;
        long from = strtol(list, &end, 10), to = from;
        if (*end == '-') {
            to = strtol(end + 1, &end, 10);
        }
        if (number >= from && number <= to) {
            return true;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

static void read_cpus(ceni_host_system *system) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) {
        CPU_SET(0, &set); /* one is there, or we were not running */
    }
    for (uint32_t cpu = 0; cpu < CENI_HOST_CPUS; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            system->cpus[system->cpu_count++] = cpu;
        }
    }
}

/* "32K", "1M". */
static uint64_t parse_size(const char *text) {
    char *end;
    uint64_t n = strtoull(text, &end, 10);
    return *end == 'K' ? n << 10 : *end == 'M' ? n << 20 : *end == 'G' ? n << 30 : n;
}

/* Adds one cache of one processor; it counts if the processor is the first of the allowed ones that
 * share it. */
static void add_cache(const char *root, ceni_host_system *system, uint32_t cpu, int index) {
    char path[128], text[1024];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index%d/type", cpu, index);
    char *name = strrchr(path, '/') + 1;
    size_t left = sizeof path - (size_t)(name - path);
    if (!read_line(root, path, text, sizeof text) || !strcmp(text, "Instruction")) {
        return;
    }
    snprintf(name, left, "level");
    int level = read_line(root, path, text, sizeof text) ? first_of(text) : -1;
    snprintf(name, left, "size");
    uint64_t bytes = read_line(root, path, text, sizeof text) ? parse_size(text) : 0;
    snprintf(name, left, "shared_cpu_list");
    if (level < 1 || level > CENI_HOST_CACHES || !bytes ||
        !read_line(root, path, text, sizeof text)) {
        return;
    }
    ceni_host_cache *cache = &system->caches[level - 1];
    cache->bytes = bytes;
    for (uint32_t i = 0; i < system->cpu_count && system->cpus[i] < cpu; i++) {
        if (list_has(text, (int)system->cpus[i])) {
            return;
        }
    }
    cache->count++;
}

static void read_caches(const char *root, ceni_host_system *system) {
    for (uint32_t i = 0; i < system->cpu_count; i++) {
        for (int index = 0; index < 8; index++) {
            add_cache(root, system, system->cpus[i], index);
        }
    }
    while (system->cache_count < CENI_HOST_CACHES && system->caches[system->cache_count].bytes) {
        system->cache_count++;
    }
}

/* Bytes of a line "MemTotal: 123 kB". */
static uint64_t memory_of(const char *root, const char *key) {
    char value[64];
    return read_key(root, "/proc/meminfo", key, value, sizeof value)
               ? strtoull(value, NULL, 10) << 10
               : 0;
}

static void read_memory(const char *root, ceni_host_system *system) {
    char limit[64], used[64];
    long pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    system->memory_bytes = memory_of(root, "MemTotal");
    system->free_bytes = memory_of(root, "MemAvailable");
    if (!system->memory_bytes) {
        system->memory_bytes = pages > 0 ? (uint64_t)pages * page : 0;
    }
    if (!system->free_bytes) {
        system->free_bytes = free_pages > 0 ? (uint64_t)free_pages * page : 0;
    }
    /* A container may have less. */
    if (read_line(root, "/sys/fs/cgroup/memory.max", limit, sizeof limit) &&
        read_line(root, "/sys/fs/cgroup/memory.current", used, sizeof used) &&
        isdigit((unsigned char)*limit)) {
        uint64_t max = strtoull(limit, NULL, 10), now = strtoull(used, NULL, 10);
        uint64_t rest = max > now ? max - now : 0;
        system->free_bytes = rest < system->free_bytes ? rest : system->free_bytes;
    }
}

/* The node of the first processor, and the one whose distance from it is the largest. */
static void read_nodes(const char *root, ceni_host_system *system) {
    enum { NODES = 64 };
    char list[1024], path[128], text[1024];
    if (!read_line(root, "/sys/devices/system/node/has_memory", list, sizeof list)) {
        return;
    }
    int farthest = -1;
    system->near_node = system->far_node = first_of(list);
    for (int node = 0; node < NODES; node++) {
        system->nodes += list_has(list, node);
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (read_line(root, path, text, sizeof text) && list_has(text, (int)system->cpus[0])) {
            system->near_node = node;
        }
    }
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", system->near_node);
    if (system->nodes < 2 || !read_line(root, path, text, sizeof text)) {
        return;
    }
    char *at = text;
    for (int node = 0; node < NODES && *at; node++) { /* one number a node that is there */
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (!read_line(root, path, list, sizeof list)) {
            continue;
        }
        int distance = (int)strtol(at, &at, 10);
        if (node != system->near_node && distance > farthest) {
            farthest = distance;
            system->far_node = node;
        }
    }
}

void ceni_host_system_read(const char *root, ceni_host_system *system) {
    *system = (ceni_host_system){0};
    if (read_key(root, "/proc/cpuinfo", "model name", system->name, sizeof system->name)) {
        ceni_one_line(system->name);
    }
    read_cpus(system);
    read_caches(root, system);
    read_memory(root, system);
    read_nodes(root, system);
}
