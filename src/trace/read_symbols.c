/* The frames of a trace's stacks, and of a ledger's, with names, as the snapshot has them.
 *
 * A native frame that has none is told by its module and the offset in it: "libfoo.so+0x1234".
 * cenote's own frames, innermost, say nothing of the program and are left out: up to the last whose
 * name or module is cenote's, where few others (its static functions) lie between two such. */
#include "trace/read_trace.h"
#include "trace/symbols.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define STATIC_MOST 4 /* frames of static functions in a row */

typedef struct named_module {
    ceni_symbols *symbols;
    ceni_map frames; /* offset -> index of the reader's frame */
    bool tried;
} named_module;

struct ceni_namer {
    ceni_reader *reader;
    const ceni_module_record *records;
    size_t count;
    named_module modules[];
};

static cen_status intern_text(ceni_reader *reader, const char *text, uint32_t *id) {
    return ceni_intern_string(reader, (const uint8_t *)text, strlen(text), id);
}

static cen_status name_frame(ceni_namer *n, uint32_t module, uint64_t offset,
                             ceni_frame_key *frame) {
    const ceni_module_record *record = &n->records[module];
    named_module *m = &n->modules[module];
    if (!m->tried) {
        m->tried = true;
        m->symbols = ceni_symbols_open(ceni_string(n->reader, record->path),
                                       ceni_string(n->reader, record->build_id));
    }
    ceni_place place = {0};
    if (m->symbols) {
        (void)ceni_symbols_find(m->symbols, offset, &place);
    }
    char text[300];
    if (!place.function) {
        snprintf(text, sizeof text, "%.255s+0x%llx",
                 ceni_base_name(ceni_string(n->reader, record->path)), (unsigned long long)offset);
        place.function = text;
    }
    frame->line = place.line;
    frame->file = record->path;
    return intern_text(n->reader, place.function, &frame->function) ||
                   (place.file && intern_text(n->reader, place.file, &frame->file))
               ? n->reader->status
               : CEN_OK;
}

/* Each place is named once. */
static cen_status native_frame(ceni_namer *n, const ceni_frame_record *record, uint32_t *id) {
    ceni_map *known = &n->modules[record->module].frames;
    const uint64_t *found = ceni_map_get(known, record->at.offset);
    if (found) {
        *id = (uint32_t)*found;
        return CEN_OK;
    }
    ceni_frame_key frame;
    if (name_frame(n, record->module, record->at.offset, &frame) ||
        ceni_intern_frame(n->reader, &frame, id)) {
        return n->reader->status;
    }
    if (ceni_map_put(known, record->at.offset, *id)) {
        return ceni_read_fail(n->reader, CEN_ERR_HOST_MEMORY, "no memory for the frames");
    }
    return CEN_OK;
}

static bool is_own(const ceni_namer *n, uint32_t module, uint32_t frame) {
    const char *name = ceni_string(n->reader, n->reader->frames.at[frame].function);
    const char *path = ceni_string(n->reader, n->records[module].path);
    return !strncmp(name, "cen_", 4) || !strncmp(name, "ceni_", 5) ||
           !strncmp(ceni_base_name(path), "libcenote", 9);
}

static cen_status read_frame(ceni_namer *n, const ceni_frame_record *record, uint32_t *frame) {
    if (record->module != CENI_FILE_NONE) {
        return native_frame(n, record, frame);
    }
    ceni_frame_key key = {
        .file = record->at.named.file, .function = record->at.named.function, .line = record->line};
    return ceni_intern_frame(n->reader, &key, frame);
}

/* The frames of another language come first; cenote's own are the first of the native ones. */
cen_status ceni_namer_stack(ceni_namer *n, const ceni_frame_record *records, uint32_t count,
                            uint32_t *stack) {
    ceni_reader *reader = n->reader;
    size_t kept = 0, others = 0;
    reader->scratch.count = 0;
    if (CENI_ROOM(reader, reader->scratch, count)) {
        return reader->status;
    }
    uint32_t *frames = reader->scratch.at;
    for (uint32_t i = 0; i < count; i++) {
        bool native = records[i].module != CENI_FILE_NONE;
        uint32_t *frame = &frames[reader->scratch.count];
        if (read_frame(n, &records[i], frame)) {
            return reader->status;
        }
        if (native && others <= STATIC_MOST && is_own(n, records[i].module, *frame)) {
            reader->scratch.count = kept;
            others = 0;
        } else {
            reader->scratch.count++;
            kept += !native && kept + 1 == reader->scratch.count;
            others += native;
        }
    }
    *stack = CEN_NO_STACK;
    return reader->scratch.count ? ceni_intern_stack(reader, frames, reader->scratch.count, stack)
                                 : CEN_OK;
}

ceni_namer *ceni_namer_open(ceni_reader *reader, const ceni_module_record *records, size_t count) {
    ceni_namer *n = ceni_calloc(1, sizeof *n + count * sizeof *n->modules);
    if (!n) {
        (void)ceni_read_fail(reader, CEN_ERR_HOST_MEMORY, "no memory for the modules");
        return NULL;
    }
    n->reader = reader;
    n->records = records;
    n->count = count;
    return n;
}

void ceni_namer_close(ceni_namer *n) {
    for (size_t i = 0; n && i < n->count; i++) {
        ceni_symbols_close(n->modules[i].symbols);
        ceni_map_free(&n->modules[i].frames);
    }
    ceni_free(n);
}

cen_status ceni_trace_stacks(ceni_trace_file *file) {
    ceni_reader *reader = file->reader;
    if (CENI_ROOM(reader, file->stack_of, file->stacks.count)) {
        return reader->status;
    }
    ceni_namer *n = ceni_namer_open(reader, file->modules.at, file->modules.count);
    while (n && file->stack_of.count < file->stacks.count) {
        size_t i = file->stack_of.count;
        ceni_span span = file->stacks.at[i];
        if (ceni_namer_stack(n, span.count ? file->frames.at + span.first : NULL, span.count,
                             &file->stack_of.at[i])) {
            break;
        }
        file->stack_of.count++;
    }
    ceni_namer_close(n);
    return reader->status;
}
