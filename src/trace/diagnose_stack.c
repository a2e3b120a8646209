/* What a stack of frames tells: whose line it is, and what kind of memory.
 *
 * Only names that the frames carry are used. The user's frame is the innermost one outside
 * installed libraries; the kind is read off the frames inside it, innermost first, then off the
 * enclosing ones for what encloses everything (an optimizer's step, a recomputation).
 *
 * Frames of C and C++ are PyTorch's own in a recording of PyTorch's. In one of cenote's they are
 * the program's, where their lines are known: those of libraries seldom have any. */
#include "trace/diagnose.h"

#include <string.h>

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

ceni_origin ceni_origin_of(const cen_snapshot *snapshot) {
    bool cenote = snapshot && cen_snapshot_setting(snapshot, "cenote");
    return cenote ? CENI_ORIGIN_CENOTE : CENI_ORIGIN_TORCH;
}

bool ceni_is_torch(const ceni_diag *diag) {
    return !diag->snapshot ||
           (ceni_origin_of(diag->snapshot) == CENI_ORIGIN_TORCH && !diag->held_unknown);
}

/* Files of C++ frames, which a recording with stacks="all" has below Python's. */
static bool is_native_file(const char *file) {
    static const char *const ends[] = {".cpp", ".cc", ".cu", ".cuh", ".h", ".c", ".so"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends_with(file, ends[i])) {
            return true;
        }
    }
    return strstr(file, ".so.") != NULL;
}

static bool begins_with(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

/* cenote's own functions, and those of the C library that are around a program's and its threads':
 * with debug information they have lines, too. */
static bool is_around(const cen_frame *frame) {
    static const char *const starts[] = {"cen_", "ceni_", "__libc_start_"};
    static const char *const names[] = {"_start",  "start_thread", "clone",
                                        "__clone", "clone3",       "__clone3"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (begins_with(frame->function, starts[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(frame->function, names[i])) {
            return true;
        }
    }
    return false;
}

bool ceni_is_user_frame(const cen_frame *frame, ceni_origin origin) {
    static const char *const library[] = {"site-packages/", "dist-packages/", "lib/python3.",
                                          "lib64/python3."};
    const char *file = frame->file;
    if (!*file || *file == '<' || !strcmp(file, "??")) {
        return false;
    }
    if (origin == CENI_ORIGIN_CENOTE ? !frame->line || is_around(frame) : is_native_file(file)) {
        return false;
    }
    for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
        if (strstr(file, library[i])) {
            return false;
        }
    }
    return true;
}

const cen_frame *ceni_frames_user(const cen_frame *frames, size_t count, ceni_origin origin) {
    for (size_t i = 0; i < count; i++) {
        if (ceni_is_user_frame(&frames[i], origin)) {
            return &frames[i];
        }
    }
    return count ? &frames[0] : NULL;
}

const cen_frame *ceni_user_frame(const cen_snapshot *snapshot, uint32_t stack) {
    size_t count = 0;
    const cen_frame *frames =
        stack == CEN_NO_STACK ? NULL : cen_snapshot_stack(snapshot, stack, &count);
    return ceni_frames_user(frames, count, ceni_origin_of(snapshot));
}

uint64_t ceni_hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return (hash ^ 0xff) * 0x100000001b3u;
}

static bool is_loss(const cen_frame *f) {
    return strstr(f->file, "nn/functional.py") &&
           (strstr(f->function, "loss") || strstr(f->function, "cross_entropy") ||
            strstr(f->function, "kl_div"));
}

/* A frame that decides the kind by itself; false: it does not. */
static bool frame_kind(const cen_frame *f, ceni_kind *kind, const char **what) {
    if (strstr(f->file, "torch/optim/")) {
        *kind = strstr(f->function, "_init_group") || strstr(f->function, "_init_state")
                    ? CENI_KIND_OPTIMIZER_STATE
                    : CENI_KIND_OPTIMIZER;
        *what = ceni_base_name(f->file);
    } else if (is_loss(f)) {
        *kind = CENI_KIND_LOSS;
        *what = f->function;
    } else if (strstr(f->file, "torch/utils/checkpoint.py") &&
               (strstr(f->function, "recompute") || strstr(f->function, "unpack"))) {
        *kind = CENI_KIND_RECOMPUTED;
    } else if (strstr(f->file, "torch/autograd/")) {
        *kind = CENI_KIND_BACKWARD;
    } else if (strstr(f->file, "torch/cuda/graphs.py")) {
        *kind = CENI_KIND_GRAPH;
    } else if (ends_with(f->file, "nn/modules/module.py") && !strcmp(f->function, "_apply")) {
        *kind = CENI_KIND_WEIGHTS;
    } else {
        return false;
    }
    return true;
}

/* The function that allocates, where no more is told of a program of C's. */
static const char *function_of(const cen_frame *frames, size_t count, ceni_origin origin) {
    const cen_frame *user =
        origin == CENI_ORIGIN_CENOTE ? ceni_frames_user(frames, count, origin) : NULL;
    return user ? user->function : "";
}

ceni_kind ceni_frames_kind(const cen_frame *frames, size_t count, ceni_origin origin,
                           const char **what) {
    *what = "";
    ceni_kind kind = CENI_KIND_TENSORS;
    bool decided = false, inside = true;
    for (size_t i = 0; i < count; i++) {
        ceni_kind found;
        const char *name = "";
        if (frame_kind(&frames[i], &found, &name)) {
            /* Recomputed activations pass through autograd: the outer reason wins there only. */
            if (found == CENI_KIND_RECOMPUTED || (!decided && inside)) {
                kind = found;
                *what = name;
                decided = true;
            }
        } else if (!decided && !strcmp(frames[i].function, "forward") &&
                   !(origin == CENI_ORIGIN_CENOTE && is_native_file(frames[i].file))) {
            kind = CENI_KIND_ACTIVATIONS;
        }
        inside = inside && !ceni_is_user_frame(&frames[i], origin);
    }
    if (kind == CENI_KIND_TENSORS) {
        *what = function_of(frames, count, origin);
    }
    return kind;
}

ceni_kind ceni_stack_kind(const cen_snapshot *snapshot, uint32_t stack, const char **what) {
    size_t count;
    const cen_frame *frames = cen_snapshot_stack(snapshot, stack, &count);
    return ceni_frames_kind(frames, count, ceni_origin_of(snapshot), what);
}

bool ceni_stack_in_autograd(const cen_snapshot *snapshot, uint32_t stack) {
    size_t count;
    const cen_frame *frames = cen_snapshot_stack(snapshot, stack, &count);
    for (size_t i = 0; i < count; i++) {
        if (strstr(frames[i].file, "torch/autograd/") &&
            strstr(frames[i].function, "_make_grads")) {
            return true;
        }
    }
    return false;
}
