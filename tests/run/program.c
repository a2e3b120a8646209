/* A program that uses the CUDA driver in one of the ways that programs do, for the tests of
 * `cenote run`: program HOW WHAT [NUMBER...]. HOW: linked, dlsym or proc. It prints what it found,
 * a line each, and fails with 3 where the driver gave what it should not. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned result;
typedef unsigned long long addr;

#define FUNCTION(name, suffix, version, args) result name##suffix args;
#include "tests/run/functions.def"

static struct {
#define FUNCTION(name, suffix, version, args) result(*name) args;
#include "tests/run/functions.def"
} cu;

static void set(void *function, void *address) {
    memcpy(function, &address, sizeof address);
}

static void *by_proc(const char *name, int version) {
    static result (*find)(const char *, void **, int, unsigned long long, unsigned *);
    void *address = NULL;
    unsigned status = 0;
    if (!find) { /* as a runtime does: it asks for the function with which it asks */
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        set(&find, dlsym(library, "cuGetProcAddress_v2"));
        if (!find || find("cuGetProcAddress", &address, 12000, 0, &status)) {
            exit(3);
        }
        set(&find, address);
    }
    return find(name, &address, version, 0, &status) ? NULL : address;
}

static void find_all(const char *how) {
    if (!strcmp(how, "linked")) {
#define FUNCTION(name, suffix, version, args) cu.name = name##suffix;
#include "tests/run/functions.def"
        return;
    }
    void *library = strcmp(how, "dlsym") ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
#define FUNCTION(name, suffix, version, args)                                                      \
    set(&cu.name, library ? dlsym(library, #name #suffix) : by_proc(#name, version));
#include "tests/run/functions.def"
}

static void need(result r) {
    if (r) {
        fprintf(stderr, "the driver says %u\n", r);
        exit(3);
    }
}

__attribute__((noinline)) static addr work(size_t size) {
    addr at = 0;
    need(cu.cuMemAlloc(&at, size)); /* THE LINE */
    return at;
}

static void start(void) {
    void *context = NULL;
    need(cu.cuInit(0));
    need(cu.cuDevicePrimaryCtxRetain(&context, 0));
    need(cu.cuCtxSetCurrent(context));
}

enum { MIB = 1 << 20 };

static void leak(long count, long pause_us) {
    for (long i = 0; i < count; i++) {
        addr other = work(2 * MIB);
        (void)work(MIB);
        need(cu.cuMemFree(other));
        usleep((useconds_t)pause_us);
    }
}

/* As a process on its way out that NVML lists no more: the test driver's file is gone. */
static void leave_nvml(void) {
    const char *folder = getenv("CENOTE_TEST_DRIVER_STATE");
    char path[4096];
    usleep(1500000); /* cenote looks at what is there */
    snprintf(path, sizeof path, "%s/%d", folder ? folder : ".", (int)getpid());
    if (unlink(path)) {
        exit(3);
    }
    usleep(1500000); /* and at what is left */
}

static void oom(long mib) {
    addr at = 0;
    printf("failed with %u\n", cu.cuMemAlloc(&at, (size_t)mib * MIB));
}

/* What it held when it failed is gone soon after. */
static void spike(long mib) {
    addr held = work(100 * MIB);
    oom(mib);
    need(cu.cuMemFree(held));
}

static void info(void) {
    size_t free_bytes = 0, total = 0, device = 0;
    need(cu.cuMemGetInfo(&free_bytes, &total));
    (void)cu.cuMemGetInfo(NULL, &total); /* some programs do */
    need(cu.cuDeviceTotalMem(&device, 0));
    printf("free %zu total %zu device %zu\n", free_bytes, total, device);
}

static void *pairs(void *count) {
    unsigned seed = (unsigned)(size_t)&count;
    void *context = NULL;
    need(cu.cuDevicePrimaryCtxRetain(&context, 0));
    need(cu.cuCtxSetCurrent(context));
    for (long i = 0; i < *(long *)count; i++) {
        char wrote = (char)rand_r(&seed), read = 0;
        addr at = work((size_t)(1 + i % 5) * MIB);
        need(cu.cuMemcpyHtoD(at + 12345, &wrote, 1));
        need(cu.cuMemcpyDtoH(&read, at + 12345, 1));
        if (read != wrote) {
            exit(3);
        }
        need(cu.cuMemFree(at));
    }
    return NULL;
}

static void threads(long count, long each) {
    pthread_t made[16];
    for (long i = 0; i < count && i < 16; i++) {
        pthread_create(&made[i], NULL, pairs, &each);
    }
    for (long i = 0; i < count && i < 16; i++) {
        pthread_join(made[i], NULL);
    }
}

static void async(long count) {
    void *stream = NULL;
    need(cu.cuStreamCreate(&stream, 1));
    for (long i = 0; i < count; i++) {
        addr at = 0;
        need(cu.cuMemAllocAsync(&at, MIB, stream));
        need(i % 2 ? cu.cuMemFree(at) : cu.cuMemFreeAsync(at, stream));
    }
    addr kept = 0;
    need(cu.cuMemAllocAsync(&kept, 3 * MIB, stream));
    need(cu.cuStreamDestroy(stream));
}

/* A block that is freed while a stream captures. */
static void capture(void) {
    void *stream = NULL, *graph = NULL;
    addr at = work(MIB);
    need(cu.cuStreamCreate(&stream, 1));
    need(cu.cuStreamBeginCapture(stream, 2));
    need(cu.cuMemFree(at));
    addr other = work(MIB); /* the driver's own */
    need(cu.cuStreamEndCapture(stream, &graph));
    need(cu.cuMemFree(other));
    need(cu.cuMemFree(work(MIB)));
}

static void range(void) {
    addr at = work(3 * MIB), base = 0;
    size_t size = 0;
    need(cu.cuMemGetAddressRange(&base, &size, at));
    printf("%s %zu\n", base == at ? "base" : "other", size);
    need(cu.cuMemGetAddressRange(&base, &size, at + MIB));
    printf("%s %zu\n", base == at ? "base" : "other", size);
    need(cu.cuMemFree(at));
}

/* A page lives as long as its handle or its mapping, whichever goes last. */
static void pages(bool unmap) {
    const unsigned prop[16] = {1, 0, 1, 0}; /* pinned memory of device 0 */
    unsigned long long page = 0, other = 0;
    addr at = 0;
    need(cu.cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    need(cu.cuMemCreate(&page, 4 * MIB, prop, 0));
    need(cu.cuMemMap(at, 4 * MIB, 0, page, 0));
    need(cu.cuMemRelease(page));
    need(cu.cuMemCreate(&other, 6 * MIB, prop, 0));
    if (unmap) {
        need(cu.cuMemUnmap(at, 4 * MIB));
    }
    need(cu.cuMemCreate(&page, 2 * MIB, prop, 0));
    need(cu.cuMemRelease(page));
}

static void ipc(void) {
    char handle[64];
    addr at = work(MIB);
    printf("handle %u\n", cu.cuIpcGetMemHandle(handle, at));
    addr later = work(MIB);
    printf("later %u\n", cu.cuIpcGetMemHandle(handle, later));
    need(cu.cuMemFree(later));
    need(cu.cuMemFree(at));
}

static void forks(void) {
    pid_t child = fork();
    if (!child) {
        start();
        (void)work(5 * MIB);
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    start();
    (void)work(7 * MIB);
    if (status) {
        exit(3);
    }
}

/* As a program does that closes whatever it did not open itself; but the test driver
 * lives in files, too, which it keeps. */
static void close_ours(void) {
    for (int fd = 3; fd < 1024; fd++) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        if (strstr(path, ".ledger") || strstr(path, ".cenotrace")) {
            close(fd);
        }
    }
}

/* Frees when everybody thinks that it is over: an exit function from before the first call. */
static addr late[4];

static void free_late(void) {
    for (int i = 0; i < 4; i++) {
        if (cu.cuMemFree(late[i])) {
            _exit(3);
        }
    }
}

static void at_exit(void) {
    atexit(free_late);
    start();
    for (int i = 0; i < 4; i++) {
        late[i] = work(MIB);
    }
}

/* As dlsym's manual has it: what dlerror says is asked after each question. */
static void ask_dlerror(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    (void)dlerror();
    void *address = dlsym(library, "cuMemAlloc_v2");
    const char *error = dlerror();
    printf("%s, %s\n", address ? "found" : "not found", error ? error : "no error");
}

/* Becomes another program, which runs out of memory. */
static void become(char **argv) {
    (void)work(3 * MIB);
    usleep(300000); /* cenote looks at what is there */
    execl("/proc/self/exe", argv[0], argv[1], "oom", "16777216", NULL);
    exit(3);
}

/* A daemon has no standard streams, and prints all the same. */
static void no_streams(void) {
    for (int fd = 0; fd < 3; fd++) {
        close(fd);
    }
    start();
    (void)work(MIB);
    for (int fd = 0; fd < 3; fd++) {
        (void)!write(fd, "printed", strlen("printed"));
    }
}

/* Closes what it did not open itself, and has files of its own by the same numbers. */
static void own_files(const char *folder) {
    enum { FILES = 64 };
    close_ours();
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/own%d", folder, i);
        int fd = creat(path, 0600);
        if (fd < 0 || write(fd, "own", 3) != 3) {
            exit(3);
        }
    }
    for (int i = 0; i < 20000; i++) {
        (void)work(512);
    }
}

/* What a reset ends is no block any more, and what comes after it is served again. */
static void reset(void) {
    for (int i = 0; i < 3; i++) {
        start();
        addr gone = work(5 * MIB), at = work(MIB);
        need(cu.cuMemFree(at));
        need(cu.cuDevicePrimaryCtxReset(0));
        printf("late %u\n", cu.cuMemFree(gone));
    }
}

/* What starts the driver itself, if at all; false: another thing is asked for. */
static bool done_without_start(const char *what) {
    static const struct {
        const char *name;
        void (*run)(void);
    } table[] = {{"fork", forks},
                 {"atexit", at_exit},
                 {"dlerror", ask_dlerror},
                 {"nostreams", no_streams},
                 {"reset", reset}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(what, table[i].name)) {
            table[i].run();
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 2;
    }
    const char *what = argv[2];
    long a = argc > 3 ? strtol(argv[3], NULL, 10) : 0, b = argc > 4 ? strtol(argv[4], NULL, 10) : 0;
    find_all(argv[1]);
    if (done_without_start(what)) {
        return 0;
    }
    if (!strcmp(what, "chdir")) {
        (void)!chdir("/");
    }
    start();
    if (!strcmp(what, "leak") || !strcmp(what, "chdir")) {
        leak(a, b);
    } else if (!strcmp(what, "oom")) {
        oom(a);
    } else if (!strcmp(what, "spike")) {
        spike(a);
    } else if (!strcmp(what, "info")) {
        (void)work(MIB);
        info();
    } else if (!strcmp(what, "threads")) {
        threads(a, b);
    } else if (!strcmp(what, "async")) {
        async(a);
    } else if (!strcmp(what, "capture")) {
        capture();
    } else if (!strcmp(what, "range")) {
        range();
    } else if (!strcmp(what, "pages")) {
        pages(a);
    } else if (!strcmp(what, "ipc")) {
        ipc();
    } else if (!strcmp(what, "closefds")) {
        close_ours();
        leak(a, 0);
    } else if (!strcmp(what, "exec")) {
        become(argv);
    } else if (!strcmp(what, "ownfiles")) {
        own_files(argv[3]);
    } else if (!strcmp(what, "killed") || !strcmp(what, "unlisted")) {
        leak(a, 0);
        if (!strcmp(what, "unlisted")) {
            leave_nvml();
        }
        raise(SIGKILL);
    } else if (!strcmp(what, "exit")) {
        return (int)a;
    } else if (!strcmp(what, "sleep")) {
        puts("ready");
        fflush(stdout);
        sleep(60);
    } else {
        return 2;
    }
    return 0;
}
