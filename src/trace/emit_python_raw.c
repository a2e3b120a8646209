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

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { OWNED_BY_C = 3, OBJECT_TYPE = 8, HASH = 24, TEXT_STATE = 32 };

/* Offsets of members, of 64-bit builds with the lock. */
typedef struct layout {
    unsigned version;
    unsigned thread_frame; /* in the thread's state, or in what `thread_cframe` points to */
    unsigned thread_cframe;
    unsigned code, previous, instruction, owner; /* of a frame */
    unsigned file, function, instructions;       /* of a code object */
    unsigned table, first_line;                  /* of it too: what its lines follow from */
    unsigned ascii, utf8;                        /* the text itself; a pointer to it */
} layout;

static const layout layouts[] = {
    {0x30b, 8, 56, 32, 48, 56, 69, 112, 128, 184, 136, 72, 48, 56},
    {0x30c, 0, 56, 0, 8, 56, 70, 112, 128, 192, 136, 68, 40, 48},
    {0x30d, 72, 0, 0, 8, 56, 70, 112, 128, 200, 136, 68, 40, 48},
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

static bool try_to_get(const void *object, unsigned offset, void *to, size_t size) {
    const char *from = (const char *)object + offset;
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)from, size};
    return object && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* In line, since it is no more than a load then. */
static inline bool get(const void *object, unsigned offset, void *to, size_t size) {
    if (atomic_load_explicit(&proven, memory_order_relaxed)) {
        memcpy(to, (const char *)object + offset, size);
        return true;
    }
    return try_to_get(object, offset, to, size);
}

static inline bool get_pointer(const void *object, unsigned offset, const void **to) {
    return get(object, offset, to, sizeof *to);
}

static inline bool is_of(const void *object, const void *type) {
    const void *its;
    return object && get_pointer(object, OBJECT_TYPE, &its) && its == type;
}

/* The text of a string object, which lasts as long as the object; CENI_NO_TEXT: there is none yet.
 */
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
    return get_pointer(object, l->utf8, &utf8) && utf8 ? utf8 : CENI_NO_TEXT;
}

/* ---- frames told apart by what they say ---- */

/* What a frame's names and its line follow from. Nothing in it is an address, since by the next
 * time something else may lie there: texts and tables count by the interpreter's hash of what they
 * hold, which it keeps with them. */
typedef struct said {
    uint64_t file, function, table, place;
} said;

/* Of a string or bytes object. One whose hash nobody asked for yet is hashed once. That needs no
 * lock: the object lasts as long as the frame, and who else hashes it stores the same. */
static inline bool hash_of(const ceni_python *python, const void *object, uint64_t *hash) {
    if (!get(object, HASH, hash, sizeof *hash)) {
        return false;
    }
    if (*hash == UINT64_MAX) {
        *hash = (uint64_t)python->hash_of((void *)(uintptr_t)object);
    }
    return *hash != UINT64_MAX;
}

/* Of what code objects refer to, only the code object's type is looked at once all was proven. */
static inline bool is_of_or_proven(const void *object, const void *type) {
    return atomic_load_explicit(&proven, memory_order_relaxed) || is_of(object, type);
}

static inline bool read_said(const ceni_python *python, const layout *l, const void *code,
                             const void *instruction, said *to) {
    const void *file, *function, *table;
    int32_t first_line;
    if (!is_of(code, python->code_type) || !get_pointer(code, l->file, &file) ||
        !get_pointer(code, l->function, &function) || !get_pointer(code, l->table, &table) ||
        !get(code, l->first_line, &first_line, sizeof first_line) ||
        !is_of_or_proven(file, python->text_type) ||
        !is_of_or_proven(function, python->text_type) ||
        !is_of_or_proven(table, python->bytes_type)) {
        return false;
    }
    uintptr_t offset = (uintptr_t)instruction - (uintptr_t)code;
    to->place = (uint64_t)(uint32_t)first_line << 32 | (uint32_t)offset;
    return hash_of(python, file, &to->file) && hash_of(python, function, &to->function) &&
           hash_of(python, table, &to->table);
}

/* Lines that were found lately: reading one from a code object's table takes longer than all else.
 * An entry is 40 bits of what it is for and 24 of the line. */
#define LINES     1024
#define LINE_MOST 0xffffffu
static _Atomic uint64_t lines[LINES];

static uint32_t line_at(const ceni_python *python, const layout *l, const void *code,
                        const void *instruction, uint64_t key) {
    _Atomic uint64_t *entry = &lines[key % LINES];
    uint64_t kept = atomic_load_explicit(entry, memory_order_relaxed);
    if (kept && kept >> 24 == key >> 24) {
        return (uint32_t)kept & LINE_MOST;
    }
    ptrdiff_t offset = (const char *)instruction - ((const char *)code + l->instructions);
    int found = python->line_of((void *)(uintptr_t)code, offset < 0 ? 0 : (int)offset);
    uint32_t line = found > 0 ? (uint32_t)found : 0;
    if (line <= LINE_MOST) {
        atomic_store_explicit(entry, (key >> 24 << 24) | line, memory_order_relaxed);
    }
    return line;
}

static bool read_frame(const ceni_python *python, const layout *l, const void *frame,
                       const void *code, cen_frame *to) {
    const void *file, *function, *instruction;
    said says;
    if (!get_pointer(frame, l->instruction, &instruction) ||
        !read_said(python, l, code, instruction, &says) || !get_pointer(code, l->file, &file) ||
        !get_pointer(code, l->function, &function)) {
        return false;
    }
    to->file = text_of(python, l, file);
    to->function = text_of(python, l, function);
    to->line = line_at(python, l, code, instruction, XXH3_64bits(&says, sizeof says));
    return to->file && to->function;
}

static const void *innermost(const layout *l, const void *thread) {
    const void *from = thread, *frame = NULL;
    if (l->thread_cframe && !get_pointer(thread, l->thread_cframe, &from)) {
        return NULL;
    }
    return get_pointer(from, l->thread_frame, &frame) ? frame : NULL;
}

/* A frame of the thread and what it runs; `code` is NULL if that is C's. False: it is not as we
 * know it, and nothing of the stack can be believed. */
static inline bool get_frame(const layout *l, const void *frame, const void **code,
                             const void **previous) {
    uint8_t owner;
    if (!get(frame, l->owner, &owner, sizeof owner) || !get_pointer(frame, l->code, code) ||
        !get_pointer(frame, l->previous, previous)) {
        return false;
    }
    if (owner == OWNED_BY_C) {
        *code = NULL;
        return true;
    }
    return *code != NULL;
}

size_t ceni_python_read(const ceni_python *python, const void *thread, cen_frame *frames,
                        size_t capacity) {
    const layout *l = layout_of(python->version);
    const void *frame = l ? innermost(l, thread) : NULL, *code, *previous;
    size_t count = 0;
    for (; frame && count < capacity; frame = previous) {
        if (!get_frame(l, frame, &code, &previous) ||
            (code && !read_frame(python, l, frame, code, &frames[count++]))) {
            return 0;
        }
    }
    if (count) {
        atomic_store_explicit(&proven, true, memory_order_relaxed);
    }
    return count;
}

bool ceni_python_hash(const ceni_python *python, const void *thread, uint64_t *hash) {
    const layout *l = layout_of(python->version);
    if (!l || !atomic_load_explicit(&proven, memory_order_relaxed)) {
        return false;
    }
    said all[CENI_NAMED_MAX];
    const void *code, *previous, *instruction;
    const void *frame = innermost(l, thread);
    size_t count = 0;
    for (; frame && count < CENI_NAMED_MAX; frame = previous) {
        if (!get_frame(l, frame, &code, &previous)) {
            return false;
        }
        if (code && (!get_pointer(frame, l->instruction, &instruction) ||
                     !read_said(python, l, code, instruction, &all[count++]))) {
            return false;
        }
    }
    *hash = count ? XXH3_64bits(all, count * sizeof *all) : 0;
    return true;
}
