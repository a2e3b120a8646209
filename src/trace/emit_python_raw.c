/* Python's frames without Python's lock.
 *
 * A thread that has given up the lock, as PyTorch does around most of its work, cannot call the
 * interpreter, and must not wait for the lock: who has it may be waiting for this thread. But its
 * own frames stand still meanwhile, and what they run stays alive; so they are read as they lie.
 * Where each member lies is known for the versions below. Every object must be of the type that it
 * should be; until that was so once, all is read by a system call that fails where plain reading
 * would crash. */
#include "trace/emit_python.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OWNED_BY_C = 3, OBJECT_TYPE = 8, TEXT_STATE = 32 };

/* Offsets of members, of 64-bit builds with the lock. */
typedef struct layout {
    unsigned version;
    unsigned thread_frame; /* in the thread's state, or in what `thread_cframe` points to */
    unsigned thread_cframe;
    unsigned code, previous, instruction, owner; /* of a frame */
    unsigned file, function, instructions;       /* of a code object */
    unsigned ascii, utf8;                        /* the text itself; a pointer to it */
} layout;

static const layout layouts[] = {
    {0x30b, 8, 56, 32, 48, 56, 69, 112, 128, 184, 48, 56},
    {0x30c, 0, 56, 0, 8, 56, 70, 112, 128, 192, 40, 48},
    {0x30d, 72, 0, 0, 8, 56, 70, 112, 128, 200, 40, 48},
};

static atomic_bool proven;

static const layout *layout_of(unsigned version) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].version == version && sizeof(void *) == 8) {
            return &layouts[i];
        }
    }
    return NULL;
}

bool ceni_python_is_known(unsigned version) {
    return layout_of(version) != NULL;
}

static bool get(const void *object, unsigned offset, void *to, size_t size) {
    const char *from = (const char *)object + offset;
    if (atomic_load_explicit(&proven, memory_order_relaxed)) {
        memcpy(to, from, size);
        return true;
    }
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
    return object && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

static bool get_pointer(const void *object, unsigned offset, const void **to) {
    return get(object, offset, to, sizeof *to);
}

static bool is_of(const void *object, const void *type) {
    const void *its;
    return object && get_pointer(object, OBJECT_TYPE, &its) && its == type;
}

/* The text of a string object, which lasts as long as the object; "?" if there is none yet. */
static const char *text_of(const ceni_python *python, const layout *l, const void *object) {
    uint32_t state;
    const void *utf8 = NULL;
    if (!is_of(object, python->text_type) || !get(object, TEXT_STATE, &state, sizeof state)) {
        return NULL;
    }
    bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
    if (compact && ascii) {
        return (const char *)object + l->ascii;
    }
    return get_pointer(object, l->utf8, &utf8) && utf8 ? utf8 : "?";
}

/* Lines that were found lately: reading one from a code object's table takes longer than all else.
 * An entry is 40 bits of what it is for and 24 of the line. The names are part of that, should a
 * code object lie where another did. */
#define LINES    1024
#define LINE_MAX 0xffffffu
static _Atomic uint64_t lines[LINES];

static uint32_t line_at(const ceni_python *python, const layout *l, const void *code,
                        const void *instruction, const void *file, const void *function) {
    uint64_t key = (uintptr_t)instruction * UINT64_C(0x9E3779B97F4A7C15);
    key = (key ^ (uintptr_t)file) * UINT64_C(0xC2B2AE3D27D4EB4F);
    key = (key ^ (uintptr_t)function) * UINT64_C(0x9E3779B97F4A7C15);
    key ^= key >> 29;
    _Atomic uint64_t *entry = &lines[key % LINES];
    uint64_t kept = atomic_load_explicit(entry, memory_order_relaxed);
    if (kept && kept >> 24 == key >> 24) {
        return (uint32_t)kept & LINE_MAX;
    }
    ptrdiff_t offset = (const char *)instruction - ((const char *)code + l->instructions);
    int found = python->line_of((void *)(uintptr_t)code, offset < 0 ? 0 : (int)offset);
    uint32_t line = found > 0 ? (uint32_t)found : 0;
    if (line <= LINE_MAX) {
        atomic_store_explicit(entry, (key >> 24 << 24) | line, memory_order_relaxed);
    }
    return line;
}

static bool read_frame(const ceni_python *python, const layout *l, const void *frame,
                       const void *code, cen_frame *to) {
    const void *file, *function, *instruction;
    if (!is_of(code, python->code_type) || !get_pointer(code, l->file, &file) ||
        !get_pointer(code, l->function, &function) ||
        !get_pointer(frame, l->instruction, &instruction)) {
        return false;
    }
    to->file = text_of(python, l, file);
    to->function = text_of(python, l, function);
    to->line = line_at(python, l, code, instruction, file, function);
    return to->file && to->function;
}

static const void *innermost(const layout *l, const void *thread) {
    const void *from = thread, *frame = NULL;
    if (l->thread_cframe && !get_pointer(thread, l->thread_cframe, &from)) {
        return NULL;
    }
    return get_pointer(from, l->thread_frame, &frame) ? frame : NULL;
}

size_t ceni_python_read(const ceni_python *python, const void *thread, cen_frame *frames,
                        size_t capacity) {
    const layout *l = layout_of(python->version);
    const void *frame = l ? innermost(l, thread) : NULL;
    size_t count = 0;
    while (frame && count < capacity) {
        const void *code, *previous;
        uint8_t owner;
        if (!get(frame, l->owner, &owner, sizeof owner) || !get_pointer(frame, l->code, &code) ||
            !get_pointer(frame, l->previous, &previous)) {
            return 0;
        }
        if (owner != OWNED_BY_C && !read_frame(python, l, frame, code, &frames[count++])) {
            return 0; /* not as we know it: nothing of it can be believed */
        }
        frame = previous;
    }
    if (count) {
        atomic_store_explicit(&proven, true, memory_order_relaxed);
    }
    return count;
}
