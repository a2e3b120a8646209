/* The Python frames of the calling thread, through what the interpreter in this process exports.
 *
 * Nothing of Python is linked. Of versions whose insides are known, frames are read as they lie
 * (emit_python_raw.c), whether the thread holds the interpreter's lock or not. Others are asked
 * through their interface, by a thread that holds the lock. There, names are read once for each
 * code object, which is kept from then on, so that its address stays its name's. The collector is
 * held off meanwhile: what it would destroy may free device memory in the middle of the call that
 * is being noted. */
#include "cenote/trace.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "trace/emit_python.h"

typedef void *object;

/* X(result, name, parameters): of the interpreter's stable or documented interface. */
#define PYTHON_MAP(X)                                                                              \
    X(int, Py_IsInitialized, (void))                                                               \
    X(int, PyGILState_Check, (void))                                                               \
    X(object, PyGILState_GetThisThreadState, (void))                                               \
    X(int, PyCode_Addr2Line, (object code, int offset))                                            \
    X(ssize_t, PyObject_Hash, (object of))                                                         \
    X(object, PyThreadState_GetFrame, (object thread))                                             \
    X(object, PyFrame_GetBack, (object frame))                                                     \
    X(object, PyFrame_GetCode, (object frame))                                                     \
    X(int, PyFrame_GetLineNumber, (object frame))                                                  \
    X(object, PyObject_GetAttrString, (object from, const char *name))                             \
    X(const char *, PyUnicode_AsUTF8, (object text))                                               \
    X(void, Py_DecRef, (object of))                                                                \
    X(void, PyErr_Fetch, (object * type, object * value, object * traceback))                      \
    X(void, PyErr_Restore, (object type, object value, object traceback))                          \
    X(int, PyGC_Disable, (void))                                                                   \
    X(int, PyGC_Enable, (void))

static struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    PYTHON_MAP(MEMBER)
#undef MEMBER
} python;

/* A code object's names, its own strings. */
typedef struct code_names {
    const char *file, *function;
} code_names;

static struct {
    pthread_mutex_t lock;
    atomic_bool found; /* set last, and for good */
    ceni_python raw;
    ceni_map codes; /* code object: code_names */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool find(void *function, const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &address, sizeof address); /* C has no cast for it, POSIX has the bytes */
    return address != NULL;
}

/* The interpreter may be loaded after the first call. Py_Version is there from 3.11 on. */
static bool find_python(void) {
    if (atomic_load_explicit(&known.found, memory_order_acquire)) {
        return true;
    }
    pthread_mutex_lock(&known.lock);
    const unsigned long *version = known.found ? NULL : dlsym(RTLD_DEFAULT, "Py_Version");
    if (version) {
        bool all = true;
#define FIND(result, name, parameters) all = find(&python.name, #name) && all;
        PYTHON_MAP(FIND)
#undef FIND
        known.raw = (ceni_python){.version = (unsigned)(*version >> 16),
                                  .code_type = dlsym(RTLD_DEFAULT, "PyCode_Type"),
                                  .text_type = dlsym(RTLD_DEFAULT, "PyUnicode_Type"),
                                  .bytes_type = dlsym(RTLD_DEFAULT, "PyBytes_Type"),
                                  .line_of = python.PyCode_Addr2Line,
                                  .hash_of = python.PyObject_Hash};
        known.found = all;
    }
    bool found = known.found;
    pthread_mutex_unlock(&known.lock);
    return found;
}

/* The text stays as long as the code object that it is part of. */
static const char *attribute(object code, const char *name) {
    object text = python.PyObject_GetAttrString(code, name);
    const char *bytes = text ? python.PyUnicode_AsUTF8(text) : NULL;
    if (text) {
        python.Py_DecRef(text);
    }
    return bytes ? bytes : "";
}

/* Takes the reference to the code object, which is kept with its names. */
static code_names names_of(object code) {
    uint64_t key = (uintptr_t)code;
    pthread_mutex_lock(&known.lock);
    const uint64_t *found = ceni_map_get(&known.codes, key);
    const code_names *names = found ? (const code_names *)(uintptr_t)*found : NULL;
    pthread_mutex_unlock(&known.lock);
    if (names) {
        python.Py_DecRef(code);
        return *names;
    }
    code_names read = {attribute(code, "co_filename"), attribute(code, "co_qualname")};
    code_names *kept = ceni_malloc(sizeof *kept);
    pthread_mutex_lock(&known.lock);
    if (kept) {
        *kept = read;
        if (ceni_map_get(&known.codes, key) || ceni_map_put(&known.codes, key, (uintptr_t)kept)) {
            ceni_free(kept); /* the reference stays all the same: its strings are being read */
        }
    }
    pthread_mutex_unlock(&known.lock);
    return read;
}

static size_t walk(object frame, cen_frame *frames, size_t capacity) {
    size_t count = 0;
    while (frame && count < capacity) {
        int line = python.PyFrame_GetLineNumber(frame);
        code_names names = names_of(python.PyFrame_GetCode(frame));
        frames[count++] = (cen_frame){names.file, names.function, line > 0 ? (uint32_t)line : 0};
        object back = python.PyFrame_GetBack(frame);
        python.Py_DecRef(frame);
        frame = back;
    }
    if (frame) {
        python.Py_DecRef(frame);
    }
    return count;
}

static size_t ask(object thread, cen_frame *frames, size_t capacity) {
    object type, value, traceback; /* of an error on its way, which must not be disturbed */
    python.PyErr_Fetch(&type, &value, &traceback);
    int collected = python.PyGC_Disable();
    size_t count = walk(python.PyThreadState_GetFrame(thread), frames, capacity);
    if (collected) {
        python.PyGC_Enable();
    }
    python.PyErr_Restore(type, value, traceback);
    return count;
}

/* The state of the calling thread, its own whether it holds the lock or not; NULL: Python does not
 * know it. */
static object thread_here(void) {
    return find_python() && python.Py_IsInitialized() ? python.PyGILState_GetThisThreadState()
                                                      : NULL;
}

size_t cen_trace_python_frames(void *arg, cen_frame *frames, size_t capacity) {
    object thread = frames ? thread_here() : NULL;
    if (!thread) {
        return 0;
    }
    if (ceni_python_is_known(known.raw.version)) {
        return ceni_python_read(&known.raw, thread, frames, capacity);
    }
    return python.PyGILState_Check() ? ask(thread, frames, capacity) : 0;
}

bool ceni_python_hash_here(uint64_t *hash) {
    object thread = thread_here();
    if (!thread) {
        *hash = 0;
        return true;
    }
    return ceni_python_is_known(known.raw.version) && ceni_python_hash(&known.raw, thread, hash);
}
