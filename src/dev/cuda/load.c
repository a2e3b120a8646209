/* Finding the driver: dlopen, one symbol after the other, cuInit; once a process.
 *
 * Each function is asked for by its plain name and the version of the ABI that we were written for,
 * through cuGetProcAddress where the driver has it (which tools that interpose on the driver also
 * serve), else by its versioned symbol. What is missing is replaced by a function that says so. */
#include "dev/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef cu_result (*proc_address_fn)(const char *name, void **address, int version,
                                     unsigned long long flags, cu_enum *status);

static struct {
    ceni_cu cu;
    bool usable;
    char why[512];
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define SYM(name, suffix, version, args)                                                           \
    static cu_result missing_##name args {                                                         \
        return CU_ERROR_NOT_SUPPORTED;                                                             \
    }
#define SYM_AS(member, name, suffix, version, args) SYM(member, suffix, version, args)
#include "dev/cuda/syms.def"

static void *find(void *library, proc_address_fn proc_address, const char *name, const char *symbol,
                  int version) {
    void *address = NULL;
    cu_enum status = 0;
    if (proc_address &&
        proc_address(name, &address, version, CU_PROC_ADDRESS_LEGACY_STREAM, &status) ==
            CU_SUCCESS &&
        address) {
        return address;
    }
    return dlsym(library, symbol);
}

/* A function pointer from what dlsym gave: C has no cast for it, POSIX guarantees the bytes. */
static void set(void *function, void *address) {
    if (address) {
        memcpy(function, &address, sizeof address);
    }
}

static void load_symbols(void *library) {
    ceni_cu *cu = &driver.cu;
    proc_address_fn proc_address = NULL;
    set(&proc_address, dlsym(library, "cuGetProcAddress_v2"));
#define SYM(name, suffix, version, args) SYM_AS(name, name, suffix, version, args)
#define SYM_AS(member, name, suffix, version, args)                                                \
    cu->member = missing_##member;                                                                 \
    set(&cu->member, find(library, proc_address, #name, #name #suffix, version));
#include "dev/cuda/syms.def"
}

static void unusable(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(driver.why, sizeof driver.why, format, args);
    va_end(args);
}

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        unusable("no CUDA driver: %s", reason ? reason : "libcuda.so.1 cannot be loaded");
        return;
    }
    load_symbols(library);
    cu_result result = driver.cu.cuInit(0);
    if (result == CU_SUCCESS) {
        driver.usable = true;
        return;
    }
    const char *name = NULL, *text = NULL;
    driver.cu.cuGetErrorName(result, &name);
    driver.cu.cuGetErrorString(result, &text);
    switch (result) {
    case CU_ERROR_NO_DEVICE:
        unusable("no CUDA device is visible to this process");
        return;
    case CU_ERROR_STUB_LIBRARY:
        unusable("libcuda.so.1 is the toolkit's stub, not a driver");
        return;
    case CU_ERROR_NOT_SUPPORTED:
        unusable("the CUDA driver cannot be used: cuInit is not supported");
        return;
    default:
        unusable("the CUDA driver cannot be used: cuInit: %s (%u): %s", name ? name : "unknown",
                 result, text ? text : "no text");
    }
}

const ceni_cu *ceni_cuda_driver(const char **why) {
    pthread_once(&once, load);
    if (!driver.usable) {
        *why = driver.why;
        return NULL;
    }
    return &driver.cu;
}
