/* Whose memory an entry is: by its kind, else by who called the driver, which is the innermost
 * native frame that lies in none of the driver's, the runtime's, the C library's and cenote's
 * modules. A runtime that is linked into a library has that library as its module, which is right.
 * Python calls the driver through ctypes in places: there the package of its own frames tells. */
#include "ledger/view.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 64

static bool begins(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

static bool any(const char *text, const char *const *starts) {
    for (; *starts; starts++) {
        if (begins(text, *starts)) {
            return true;
        }
    }
    return false;
}

/* "" if modules of this name are passed over. */
static const char *known_name(const char *path, const char *base) {
    static const char *const through[] = {"libcuda.so", "libcudart",  "libcenote", "libc.so",
                                          "libc-",      "libpthread", "libdl.so",  "libdl-",
                                          "ld-linux",   "ld-2",       "ld.so",     "linux-vdso",
                                          "libffi",     "_ctypes",    "libstdc++", NULL};
    static const struct {
        const char *start, *owner;
    } libraries[] = {
        {"libnccl", "nccl"},   {"libcublas", "cublas"}, {"libcudnn", "cudnn"},
        {"libcufft", "cufft"}, {"libtorch", "torch"},   {"libc10", "torch"},
    };
    if (any(base, through)) {
        return "";
    }
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        if (begins(base, libraries[i].start)) {
            return libraries[i].owner;
        }
    }
    return strstr(path, "/cupy") ? "cupy" : strstr(path, "/numba/") ? "numba" : NULL;
}

/* "/opt/libengine-2.so.1" -> "engine-2". */
static void short_module(const char *base, char *to) {
    const char *from = strstr(base, ".so") && begins(base, "lib") ? base + 3 : base;
    const char *end = strstr(from, ".cpython"), *so = strstr(from, ".so");
    end = end ? end : so ? so : from + strlen(from);
    size_t length = (size_t)(end - from);
    length = length < NAME_MAX_BYTES ? length : NAME_MAX_BYTES - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

static void copy_string(const ceni_ledger_file *f, uint32_t id, char *to, size_t size) {
    size_t length = id == CENI_FILE_NONE ? 0 : f->strings[id].count;
    length = length < size ? length : size - 1;
    memcpy(to, length ? f->text + f->strings[id].first : "", length);
    to[length] = '\0';
}

/* Who calls from each module, once. */
static void make_owners(cen_ledger_view *v) {
    const ceni_ledger_file *f = &v->file;
    v->owners_made = true;
    v->owners = ceni_calloc(f->module_count, sizeof *v->owners);
    v->owner_text = ceni_calloc(f->module_count, NAME_MAX_BYTES);
    for (size_t i = 0; v->owners && v->owner_text && i < f->module_count; i++) {
        char path[4096], *to = v->owner_text + i * NAME_MAX_BYTES;
        copy_string(f, f->modules[i].path, path, sizeof path);
        const char *base = ceni_base_name(path), *known = known_name(path, base);
        short_module(base, to);
        ceni_one_line(to);
        v->owners[i] = known ? (*known ? known : NULL) : *to ? to : "unknown";
    }
}

/* The package that the frames of Python lie in, of those that call the driver through ctypes. */
static const char *package_of(const cen_ledger_view *v, const ceni_ledger_span *span) {
    static const char *const packages[] = {"numba", "cupy", "torch", "jax", "tensorflow"};
    for (uint32_t i = 0; i < span->count; i++) {
        const ceni_frame_record *frame = &v->file.frames[span->first + i];
        char file[4096], folder[32];
        if (frame->module != CENI_FILE_NONE) {
            continue;
        }
        copy_string(&v->file, frame->at.named.file, file, sizeof file);
        for (size_t k = 0; k < sizeof packages / sizeof *packages; k++) {
            snprintf(folder, sizeof folder, "/%s/", packages[k]);
            if (strstr(file, folder)) {
                return packages[k];
            }
        }
    }
    return NULL;
}

/* NULL: no frame tells. */
static const char *caller_of(const cen_ledger_view *v, const ceni_ledger_span *span, bool *native) {
    *native = false;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t module = v->file.frames[span->first + i].module;
        if (module != CENI_FILE_NONE) {
            *native = true;
            if (v->owners[module]) {
                return v->owners[module];
            }
        }
    }
    return NULL;
}

static const char *owner_of_stack(cen_ledger_view *v, uint32_t stack) {
    if (!v->owners_made) {
        make_owners(v);
    }
    if (stack >= v->file.stack_count || !v->owners || !v->owner_text) {
        return NULL;
    }
    bool native;
    const ceni_ledger_span *span = &v->file.stacks[stack];
    const char *caller = caller_of(v, span, &native);
    if (!caller || begins(caller, "python")) {
        const char *package = package_of(v, span);
        caller = package ? package : caller;
    }
    return caller ? caller : native ? "cenote" : NULL;
}

const char *cen_ledger_view_owner(cen_ledger_view *v, const cen_ledger_entry *entry) {
    switch (entry->kind) {
    case CEN_LEDGER_CONTEXT:
    case CEN_LEDGER_MODULE:
    case CEN_LEDGER_GRAPH:
    case CEN_LEDGER_POOL:
        return cen_ledger_kind_text((cen_ledger_kind)entry->kind);
    default:
        break;
    }
    const char *owner = owner_of_stack(v, entry->stack);
    return owner ? owner : !strcmp(v->info.writer, "torch") ? "torch" : "unknown";
}
