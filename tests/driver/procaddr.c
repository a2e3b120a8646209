/* cuGetProcAddress, and the entries that only stand for others: the variants whose default stream
 * is the thread's own, older names, and those of 32 bits. */
#include <string.h>

#include "tests/driver/td.h"

typedef void (*any_function)(void);

enum kind { PLAIN, PER_THREAD };

static const struct {
    const char *name;
    int version;
    enum kind kind;
    any_function function;
} entries[] = {
#define SYM(name, suffix, version, args) {#name, version, PLAIN, (any_function)name##suffix},
#define SYM_AS(member, name, suffix, version, args)                                                \
    {#name, version, PLAIN, (any_function)name##suffix},
#define ENTRY(name, suffix, version, args) {#name, version, PLAIN, (any_function)name##suffix},
#define THREAD(name, suffix, thread, version, args, call)                                          \
    {#name, version, PER_THREAD, (any_function)name##suffix##thread},
#define SAME(name, suffix, target, version, args, call)                                            \
    {#name, version, PLAIN, (any_function)name##suffix},
#define NARROW(name, version) {#name, version, PLAIN, (any_function)name},
#include "tests/driver/entries.def"
};

#define SYM(name, suffix, version, args)
#define SYM_AS(member, name, suffix, version, args)
#define ENTRY(name, suffix, version, args)
#define THREAD(name, suffix, thread, version, args, call)                                          \
    cu_result name##suffix##thread args {                                                          \
        bool before = td_thread_default;                                                           \
        td_thread_default = true;                                                                  \
        cu_result result = name##suffix call;                                                      \
        td_thread_default = before;                                                                \
        return result;                                                                             \
    }
#define SAME(name, suffix, target, version, args, call)                                            \
    cu_result name##suffix args {                                                                  \
        return name##target call;                                                                  \
    }
#define NARROW(name, version)                                                                      \
    cu_result name(void) {                                                                         \
        return CU_ERROR_NOT_SUPPORTED;                                                             \
    }
#include "tests/driver/entries.def"

/* The newest entry of a name that a program of `version` knows. */
static cu_enum find(const char *symbol, int version, bool per_thread, any_function *function) {
    int best = -1, best_version = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (strcmp(entries[i].name, symbol) != 0 ||
            (entries[i].kind == PER_THREAD && !per_thread)) {
            continue;
        }
        known = true;
        bool newer = entries[i].version > best_version ||
                     (entries[i].version == best_version && entries[i].kind == PER_THREAD);
        bool better = best >= 0 && entries[best].kind != entries[i].kind
                          ? entries[i].kind == PER_THREAD
                          : newer;
        if (entries[i].version <= version && (best < 0 || better)) {
            best = (int)i;
            best_version = entries[i].version;
        }
    }
    if (best < 0) {
        return known ? CU_PROC_ADDRESS_TOO_OLD : CU_PROC_ADDRESS_NOT_FOUND;
    }
    *function = entries[best].function;
    return CU_PROC_ADDRESS_FOUND;
}

cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags,
                              cu_enum *status) {
    int newest = 0;
    cuDriverGetVersion(&newest);
    TD_NEED(symbol && address && version > 0 && version <= newest && flags <= 2);
    any_function function = NULL;
    cu_enum found = find(symbol, version, flags == CU_PROC_ADDRESS_PER_THREAD, &function);
    memcpy(address, &function, sizeof function);
    if (status) {
        *status = found;
    }
    return CU_SUCCESS;
}

cu_result cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, address, version, flags, NULL);
}

cu_result cuGetExportTable(const void **table, const cu_uuid *id) {
    return CU_ERROR_NOT_FOUND;
}
