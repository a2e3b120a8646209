/* Strings, modules and frames of a ledger's copy as the reader has them, and its stacks by name. */
#include "trace/read_ledger.h"

#include "base/mem.h"

#include <string.h>

cen_status ceni_ledger_text(ceni_reader *reader, const char *text, uint32_t *id) {
    return ceni_intern_string(reader, (const uint8_t *)text, strlen(text), id);
}

cen_status ceni_ledger_take_names(ceni_reader *reader, const ceni_ledger_file *from,
                                  ceni_trace_file *to) {
    if (ceni_ledger_text(reader, "", &to->empty) ||
        CENI_ROOM(reader, to->strings, from->string_count) ||
        CENI_ROOM(reader, to->modules, from->module_count) ||
        CENI_ROOM(reader, to->frames, from->frame_count)) {
        return reader->status;
    }
    for (size_t i = 0; i < from->string_count; i++) {
        const ceni_ledger_span *span = &from->strings[i];
        if (ceni_intern_string(reader, (const uint8_t *)from->text + span->first, span->count,
                               &to->strings.at[i])) {
            return reader->status;
        }
        to->strings.count++;
    }
#define STRING(id) ((id) == CENI_FILE_NONE ? to->empty : to->strings.at[id])
    for (size_t i = 0; i < from->module_count; i++) {
        const ceni_module_record *m = &from->modules[i];
        to->modules.at[to->modules.count++] =
            (ceni_module_record){STRING(m->path), STRING(m->build_id)};
    }
    for (size_t i = 0; i < from->frame_count; i++) {
        ceni_frame_record frame = from->frames[i];
        if (frame.module == CENI_FILE_NONE) {
            frame.at.named.file = STRING(frame.at.named.file);
            frame.at.named.function = STRING(frame.at.named.function);
        }
        to->frames.at[to->frames.count++] = frame;
    }
#undef STRING
    return CEN_OK;
}

struct ceni_ledger_names {
    ceni_reader *reader;
    ceni_trace_file file;
    const ceni_ledger_file *from;
    ceni_namer *namer;
};

cen_status ceni_ledger_names_open(const ceni_ledger_file *file, ceni_ledger_names **names) {
    ceni_ledger_names *n = ceni_calloc(1, sizeof *n);
    ceni_reader *reader = ceni_calloc(1, sizeof *reader);
    if (!n || !reader) {
        ceni_free(n);
        ceni_free(reader);
        return CEN_ERR_HOST_MEMORY;
    }
    *n = (ceni_ledger_names){.reader = reader, .from = file, .file = {.reader = reader}};
    reader->source.stored = file->text_size;
    if (!ceni_ledger_take_names(reader, file, &n->file)) {
        n->namer = ceni_namer_open(reader, n->file.modules.at, n->file.modules.count);
    }
    cen_status status = reader->status;
    if (status) {
        ceni_ledger_names_close(n);
    } else {
        *names = n;
    }
    return status;
}

void ceni_ledger_names_close(ceni_ledger_names *n) {
    if (n) {
        ceni_namer_close(n->namer);
        ceni_trace_file_free(&n->file);
        ceni_reader_free(n->reader);
        ceni_free(n);
    }
}

/* Frames and their text in one piece: the reader's arrays move as it learns more. */
static cen_frame *copy_frames(const ceni_reader *reader, ceni_span span) {
    size_t bytes = 0;
    for (size_t i = 0; i < span.count; i++) {
        const ceni_frame_key *key = &reader->frames.at[reader->stack_frames.at[span.first + i]];
        bytes += reader->strings.at[key->file].size + reader->strings.at[key->function].size + 2;
    }
    cen_frame *frames = ceni_malloc(span.count * sizeof *frames + bytes);
    char *text = frames ? (char *)(frames + span.count) : NULL;
    for (size_t i = 0; frames && i < span.count; i++) {
        const ceni_frame_key *key = &reader->frames.at[reader->stack_frames.at[span.first + i]];
        size_t file = reader->strings.at[key->file].size + 1;
        size_t function = reader->strings.at[key->function].size + 1;
        memcpy(text, ceni_string(reader, key->file), file);
        memcpy(text + file, ceni_string(reader, key->function), function);
        frames[i] = (cen_frame){.file = text, .function = text + file, .line = key->line};
        text += file + function;
    }
    return frames;
}

cen_status ceni_ledger_names_stack(ceni_ledger_names *n, uint32_t stack, cen_frame **frames,
                                   size_t *count) {
    const ceni_ledger_span *from = &n->from->stacks[stack];
    uint32_t id = CEN_NO_STACK;
    *frames = NULL;
    *count = 0;
    if (ceni_namer_stack(n->namer, from->count ? n->file.frames.at + from->first : NULL,
                         from->count, &id) ||
        id == CEN_NO_STACK) {
        return n->reader->status;
    }
    *frames = copy_frames(n->reader, n->reader->stacks.at[id]);
    *count = *frames ? n->reader->stacks.at[id].count : 0;
    return *frames ? CEN_OK : CEN_ERR_HOST_MEMORY;
}
