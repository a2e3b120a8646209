/* Loading NVML, and its calls. Each function is looked up by the names that it had, newest first;
 * what an older driver lacks is gone without, or answered by an older form. */
#include "ledger/nvml.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef unsigned nvml_result; /* an enum of theirs */

/* Member, arguments, and the symbols that it may be, newest first. */
#define NVML_FUNCTION_MAP(X)                                                                       \
    X(init, (void), "nvmlInit_v2", "nvmlInit")                                                     \
    X(shutdown, (void), "nvmlShutdown")                                                            \
    X(count, (unsigned *), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")                          \
    X(by_index, (unsigned, ceni_nvml_device *), "nvmlDeviceGetHandleByIndex_v2",                   \
      "nvmlDeviceGetHandleByIndex")                                                                \
    X(by_uuid, (const char *, ceni_nvml_device *), "nvmlDeviceGetHandleByUUID")                    \
    X(uuid, (ceni_nvml_device, char *, unsigned), "nvmlDeviceGetUUID")                             \
    X(name, (ceni_nvml_device, char *, unsigned), "nvmlDeviceGetName")                             \
    X(memory_v2, (ceni_nvml_device, nvml_memory_v2 *), "nvmlDeviceGetMemoryInfo_v2")               \
    X(memory_v1, (ceni_nvml_device, nvml_memory_v1 *), "nvmlDeviceGetMemoryInfo")                  \
    X(process_name, (unsigned, char *, unsigned), "nvmlSystemGetProcessName")                      \
    X(energy, (ceni_nvml_device, unsigned long long *), "nvmlDeviceGetTotalEnergyConsumption")     \
    X(pcie_generation, (ceni_nvml_device, unsigned *), "nvmlDeviceGetMaxPcieLinkGeneration")       \
    X(pcie_width, (ceni_nvml_device, unsigned *), "nvmlDeviceGetMaxPcieLinkWidth")                 \
    X(gpm_support, (ceni_nvml_device, nvml_gpm_support *), "nvmlGpmQueryDeviceSupport")            \
    X(gpm_alloc, (ceni_nvml_sample *), "nvmlGpmSampleAlloc")                                       \
    X(gpm_free, (ceni_nvml_sample), "nvmlGpmSampleFree")                                           \
    X(gpm_take, (ceni_nvml_device, ceni_nvml_sample), "nvmlGpmSampleGet")                          \
    X(gpm_metrics, (nvml_gpm_metrics *), "nvmlGpmMetricsGet")

typedef nvml_result (*list_fn)(ceni_nvml_device, unsigned *, void *);

/* What lists processes: those that compute, that draw, that compute through MPS. */
enum { LISTS = 3 };
static const char *const list_symbols[LISTS] = {"nvmlDeviceGetComputeRunningProcesses",
                                                "nvmlDeviceGetGraphicsRunningProcesses",
                                                "nvmlDeviceGetMPSComputeRunningProcesses"};

/* Most bytes of a process in a list: some drivers write more than the version says (stride_of). */
enum { STRIDE_MAX = 32 };

static struct {
    pthread_mutex_t lock; /* held around every call */
    void *library;
    bool looked; /* for the library */
    bool forked; /* started by the parent of this process */
    bool started;
    char missing[256]; /* why there is no library */
#define NVML_MEMBER(member, args, ...) nvml_result(*member) args;
    NVML_FUNCTION_MAP(NVML_MEMBER)
#undef NVML_MEMBER
    const char *(*error_text)(nvml_result);
    struct {
        list_fn list;
        size_t stride;
    } lists[LISTS];
} nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) {
    pthread_mutex_lock(&nvml.lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&nvml.lock);
}

static void in_child(void) {
    nvml.forked = nvml.started;
    pthread_mutex_unlock(&nvml.lock);
}

static cen_status say(cen_status status, ceni_nvml_why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static cen_status say(cen_status status, ceni_nvml_why *why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return status;
}

static cen_status say_result(nvml_result result, ceni_nvml_why *why, const char *call) {
    const char *text = nvml.error_text ? nvml.error_text(result) : NULL;
    cen_status status = CEN_ERR_DEVICE;
    switch (result) {
    case CENI_NVML_DRIVER_NOT_LOADED:
    case CENI_NVML_LIBRARY_NOT_FOUND:
        status = CEN_ERR_NO_DEVICE;
        break;
    case CENI_NVML_NOT_SUPPORTED:
    case CENI_NVML_FUNCTION_NOT_FOUND:
        status = CEN_ERR_UNSUPPORTED;
        break;
    case CENI_NVML_NOT_FOUND:
        status = CEN_ERR_NOT_FOUND;
        break;
    case CENI_NVML_MEMORY:
        status = CEN_ERR_HOST_MEMORY;
        break;
    default:
        break;
    }
    return say(status, why, "NVML: %s: %s (%u)", call, text ? text : "no text", result);
}

/* A function pointer from what dlsym gave: C has no cast for it, POSIX guarantees the bytes. */
static void look_up(void *function, const char *const *names) {
    void *address = NULL;
    for (; *names && !address; names++) {
        address = dlsym(nvml.library, *names);
    }
    if (address) {
        memcpy(function, &address, sizeof address);
    }
}

static void look_up_lists(void) {
    static const char *const versions[] = {"_v3", "_v2", ""};
    for (size_t i = 0; i < LISTS; i++) {
        for (size_t v = 0; v < 3 && !nvml.lists[i].list; v++) {
            char symbol[64];
            snprintf(symbol, sizeof symbol, "%s%s", list_symbols[i], versions[v]);
            look_up(&nvml.lists[i].list, (const char *const[]){symbol, NULL});
            nvml.lists[i].stride = v < 2 ? sizeof(nvml_process_v2) : sizeof(nvml_process_v1);
        }
    }
}

static void load(void) {
    nvml.looked = true;
    pthread_atfork(before_fork, after_fork, in_child);
    nvml.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml.library) {
        const char *reason = dlerror();
        snprintf(nvml.missing, sizeof nvml.missing, "no NVML: %s",
                 reason ? reason : "libnvidia-ml.so.1 cannot be loaded");
        return;
    }
#define NVML_LOOK_UP(member, args, ...)                                                            \
    look_up(&nvml.member, (const char *const[]){__VA_ARGS__, NULL});
    NVML_FUNCTION_MAP(NVML_LOOK_UP)
#undef NVML_LOOK_UP
    look_up(&nvml.error_text, (const char *const[]){"nvmlErrorString", NULL});
    look_up_lists();
    if (!nvml.init || !nvml.shutdown || !nvml.count || !nvml.by_index || !nvml.by_uuid ||
        !nvml.uuid || !nvml.name || !nvml.memory_v1 || !nvml.lists[0].list) {
        snprintf(nvml.missing, sizeof nvml.missing, "libnvidia-ml.so.1 is not NVML, or too old");
    }
}

/* Takes the lock and makes the library usable. On failure the lock is free again. A start that
 * failed is tried again at the next call: a driver may be loaded later. */
static cen_status enter(ceni_nvml_why *why) {
    pthread_mutex_lock(&nvml.lock);
    if (!nvml.looked) {
        load();
    }
    cen_status status = CEN_OK;
    if (*nvml.missing) {
        status = say(CEN_ERR_NO_DEVICE, why, "%s", nvml.missing);
    } else if (!nvml.started || nvml.forked) {
        if (nvml.forked) {
            nvml.shutdown(); /* what this process inherited; whether it could is all one */
        }
        nvml_result result = nvml.init();
        nvml.started = result == CENI_NVML_OK;
        nvml.forked = false;
        status = result ? say_result(result, why, "nvmlInit") : CEN_OK;
    }
    if (status) {
        pthread_mutex_unlock(&nvml.lock);
    }
    return status;
}

static cen_status leave(nvml_result result, ceni_nvml_why *why, const char *call) {
    cen_status status = result ? say_result(result, why, call) : CEN_OK;
    pthread_mutex_unlock(&nvml.lock);
    return status;
}

cen_status ceni_nvml_count(unsigned *count, ceni_nvml_why *why) {
    unsigned n = 0;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    status = leave(nvml.count(&n), why, "nvmlDeviceGetCount");
    if (!status) {
        *count = n;
    }
    return status;
}

cen_status ceni_nvml_at(unsigned index, ceni_nvml_device *device, ceni_nvml_why *why) {
    ceni_nvml_device found = NULL;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    status = leave(nvml.by_index(index, &found), why, "nvmlDeviceGetHandleByIndex");
    if (!status) {
        *device = found;
    }
    return status;
}

cen_status ceni_nvml_find(const char *uuid, ceni_nvml_device *device, ceni_nvml_why *why) {
    ceni_nvml_device found = NULL;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    nvml_result result = nvml.by_uuid(uuid, &found);
    /* A text that is no device's is an argument out of place to some drivers. */
    result = result == CENI_NVML_INVALID_ARGUMENT ? CENI_NVML_NOT_FOUND : result;
    status = leave(result, why, "nvmlDeviceGetHandleByUUID");
    if (!status) {
        *device = found;
    }
    return status;
}

cen_status ceni_nvml_identity(ceni_nvml_device device, char uuid[48], char name[128],
                              ceni_nvml_why *why) {
    char u[96] = "", n[96] = ""; /* the longest that NVML gives, of either */
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    nvml_result result = nvml.uuid(device, u, sizeof u);
    const char *call = "nvmlDeviceGetUUID";
    if (!result) {
        result = nvml.name(device, n, sizeof n);
        call = "nvmlDeviceGetName";
    }
    status = leave(result, why, call);
    if (!status) {
        snprintf(uuid, 48, "%s", u);
        snprintf(name, 128, "%s", n);
    }
    return status;
}

cen_status ceni_nvml_memory_of(ceni_nvml_device device, ceni_nvml_memory *memory,
                               ceni_nvml_why *why) {
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    nvml_memory_v2 m = {.version = NVML_MEMORY_V2};
    nvml_result result = nvml.memory_v2 ? nvml.memory_v2(device, &m) : CENI_NVML_NOT_SUPPORTED;
    if (result) { /* some drivers have the function and yet refuse */
        nvml_memory_v1 old = {0};
        result = nvml.memory_v1(device, &old);
        m = (nvml_memory_v2){.total = old.total, .free = old.free, .used = old.used};
    }
    status = leave(result, why, "nvmlDeviceGetMemoryInfo");
    if (!status) {
        *memory = (ceni_nvml_memory){
            .total = m.total, .used = m.used, .free = m.free, .reserved = m.reserved};
    }
    return status;
}

typedef struct raw_list {
    unsigned char *data; /* room for `capacity` of STRIDE_MAX bytes */
    size_t capacity;
    unsigned count;
} raw_list;

/* Drivers of one branch wrote 32 bytes for each process where 24 were declared, and 16 have been
 * seen, too. So the size is learnt: the buffer is larger than any needs, filled with a pattern, and
 * its last byte that changed tells. */
enum { PATTERN = 0xA5 };

static size_t stride_of(const raw_list *raw, size_t declared) {
    size_t end = raw->capacity * STRIDE_MAX;
    while (end && raw->data[end - 1] == PATTERN) {
        end--;
    }
    size_t stride = end / raw->count;
    bool whole = end % raw->count == 0 && stride % 8 == 0;
    return whole && stride >= sizeof(nvml_process_v1) && stride <= STRIDE_MAX ? stride : declared;
}

/* One list, raw. More processes may come between a call and the next, thus a few attempts. */
static nvml_result read_list(list_fn list, ceni_nvml_device device, raw_list *raw) {
    nvml_result result = CENI_NVML_INSUFFICIENT_SIZE;
    size_t need = 32;
    for (int attempt = 0; attempt < 8 && result == CENI_NVML_INSUFFICIENT_SIZE; attempt++) {
        if (need > 1u << 20 || ceni_grow(&raw->data, &raw->capacity, need, STRIDE_MAX)) {
            return CENI_NVML_MEMORY;
        }
        memset(raw->data, PATTERN, raw->capacity * STRIDE_MAX);
        raw->count = (unsigned)raw->capacity;
        result = list(device, &raw->count, raw->data);
        need = (raw->count > raw->capacity ? raw->count : raw->capacity) + 16;
    }
    raw->count = result || raw->count > raw->capacity ? 0 : raw->count;
    return result;
}

typedef struct process_list {
    ceni_nvml_process *at;
    size_t count, capacity;
} process_list;

/* A process may be in several lists, and of MIG's instances in one of them several times. */
static int add(process_list *list, const nvml_process_v1 *process, size_t known) {
    for (size_t i = 0; i < known; i++) {
        if (list->at[i].pid == (int)process->pid) {
            return 0;
        }
    }
    for (size_t i = known; i < list->count; i++) {
        if (list->at[i].pid == (int)process->pid) {
            bool tells = list->at[i].bytes != CENI_NVML_UNKNOWN && process->bytes != ULLONG_MAX;
            list->at[i].bytes = tells ? list->at[i].bytes + process->bytes : CENI_NVML_UNKNOWN;
            return 0;
        }
    }
    if (ceni_grow(&list->at, &list->capacity, list->count + 1, sizeof *list->at)) {
        return -1;
    }
    list->at[list->count++] = (ceni_nvml_process){
        .pid = (int)process->pid,
        .bytes = process->bytes == ULLONG_MAX ? CENI_NVML_UNKNOWN : process->bytes};
    return 0;
}

static nvml_result add_list(size_t which, ceni_nvml_device device, process_list *list) {
    raw_list raw = {0};
    size_t known = list->count;
    nvml_result result = read_list(nvml.lists[which].list, device, &raw);
    size_t stride = raw.count ? stride_of(&raw, nvml.lists[which].stride) : 0;
    for (unsigned i = 0; i < raw.count && !result; i++) {
        nvml_process_v1 process;
        memcpy(&process, raw.data + i * stride, sizeof process);
        if (process.pid <= INT_MAX && add(list, &process, known)) {
            result = CENI_NVML_MEMORY;
        }
    }
    ceni_free(raw.data);
    return result;
}

cen_status ceni_nvml_processes(ceni_nvml_device device, ceni_nvml_process **processes,
                               size_t *count, ceni_nvml_why *why) {
    process_list list = {0};
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    nvml_result result = add_list(0, device, &list);
    for (size_t i = 1; i < LISTS && !result; i++) {
        /* Many devices draw nothing, and say so by an error. */
        if (nvml.lists[i].list && add_list(i, device, &list) == CENI_NVML_MEMORY) {
            result = CENI_NVML_MEMORY;
        }
    }
    status = leave(result, why, list_symbols[0]);
    if (status) {
        ceni_free(list.at);
        return status;
    }
    *processes = list.at;
    *count = list.count;
    return CEN_OK;
}

cen_status ceni_nvml_energy(ceni_nvml_device device, uint64_t *millijoules, ceni_nvml_why *why) {
    unsigned long long counted = 0;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    status = leave(nvml.energy ? nvml.energy(device, &counted) : CENI_NVML_FUNCTION_NOT_FOUND, why,
                   "nvmlDeviceGetTotalEnergyConsumption");
    if (!status) {
        *millijoules = counted;
    }
    return status;
}

cen_status ceni_nvml_pcie(ceni_nvml_device device, unsigned *generation, unsigned *width,
                          ceni_nvml_why *why) {
    unsigned g = 0, w = 0;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    nvml_result result = CENI_NVML_FUNCTION_NOT_FOUND;
    const char *call = "nvmlDeviceGetMaxPcieLinkGeneration";
    if (nvml.pcie_generation && nvml.pcie_width && !(result = nvml.pcie_generation(device, &g))) {
        result = nvml.pcie_width(device, &w);
        call = "nvmlDeviceGetMaxPcieLinkWidth";
    }
    status = leave(result, why, call);
    if (!status) {
        *generation = g;
        *width = w;
    }
    return status;
}

cen_status ceni_nvml_counts(ceni_nvml_device device, ceni_nvml_why *why) {
    nvml_gpm_support support = {.version = NVML_GPM_V1};
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    bool complete =
        nvml.gpm_support && nvml.gpm_alloc && nvml.gpm_free && nvml.gpm_take && nvml.gpm_metrics;
    nvml_result result =
        complete ? nvml.gpm_support(device, &support) : CENI_NVML_FUNCTION_NOT_FOUND;
    status = leave(result, why, "nvmlGpmQueryDeviceSupport");
    if (!status && !support.supported) {
        status = say(CEN_ERR_UNSUPPORTED, why, "NVML: the device has no GPM counters");
    }
    return status;
}

cen_status ceni_nvml_sample_make(ceni_nvml_sample *sample, ceni_nvml_why *why) {
    ceni_nvml_sample made = NULL;
    cen_status status = enter(why);
    if (status) {
        return status;
    }
    status = leave(nvml.gpm_alloc(&made), why, "nvmlGpmSampleAlloc");
    if (!status) {
        *sample = made;
    }
    return status;
}

void ceni_nvml_sample_free(ceni_nvml_sample sample) {
    ceni_nvml_why why;
    if (sample && !enter(&why)) {
        (void)leave(nvml.gpm_free(sample), &why, "nvmlGpmSampleFree");
    }
}

cen_status ceni_nvml_sample_take(ceni_nvml_device device, ceni_nvml_sample sample,
                                 ceni_nvml_why *why) {
    cen_status status = enter(why);
    return status ? status : leave(nvml.gpm_take(device, sample), why, "nvmlGpmSampleGet");
}

cen_status ceni_nvml_sample_compare(ceni_nvml_sample first, ceni_nvml_sample second,
                                    const unsigned *ids, size_t count, double *values,
                                    ceni_nvml_why *why) {
    nvml_gpm_metrics asked = {
        .version = NVML_GPM_V1, .count = (unsigned)count, .first = first, .second = second};
    for (size_t i = 0; i < count; i++) {
        asked.metrics[i].id = ids[i];
    }
    cen_status status = enter(why);
    status = status ? status : leave(nvml.gpm_metrics(&asked), why, "nvmlGpmMetricsGet");
    for (size_t i = 0; i < count && !status; i++) {
        values[i] = asked.metrics[i].result ? (double)NAN : asked.metrics[i].value;
    }
    return status;
}

bool ceni_nvml_program(int pid, char *name, size_t size) {
    ceni_nvml_why why;
    char found[1024] = "";
    if (enter(&why)) {
        return false;
    }
    bool got = nvml.process_name && !nvml.process_name((unsigned)pid, found, sizeof found);
    got = got && *found;
    pthread_mutex_unlock(&nvml.lock);
    if (got) {
        snprintf(name, size, "%s", found);
    }
    return got;
}
