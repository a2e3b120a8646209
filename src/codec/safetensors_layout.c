/* What a header says, taken together: names and keys that are there once, bytes that all belong to
 * one tensor each. */
#include "codec/safetensors.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b) {
    const cen_tensor *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

cen_status ceni_tensors_check_layout(cen_tensors *tensors, const ceni_tensors_shard *shard) {
    cen_tensor *of = tensors->tensors + shard->first;
    const cen_tensor_shard *file = &shard->told;
    uint64_t end = 0, data = file->bytes - file->header_bytes;
    if (shard->count) {
        qsort(of, shard->count, sizeof *of, by_place);
    }
    for (size_t i = 0; i < shard->count; i++) {
        if (of[i].offset != end) {
            return ceni_fail(CEN_ERR_FORMAT,
                             "%s: tensor '%.200s' begins at byte %" PRIu64
                             " of the data; the one before ends at %" PRIu64,
                             file->path, of[i].name, of[i].offset, end);
        }
        end += of[i].bytes; /* no wrap: it is data_offsets[1], which fits */
        of[i].offset += file->header_bytes;
    }
    if (end > data) {
        return ceni_fail(CEN_ERR_TRUNCATED,
                         "%s: cut off: %" PRIu64 " bytes of data, and its tensors have %" PRIu64,
                         file->path, data, end);
    }
    if (end < data) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: %" PRIu64 " bytes at its end belong to no tensor",
                         file->path, data - end);
    }
    return CEN_OK;
}

static int by_name(const void *a, const void *b) {
    const cen_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

cen_status ceni_tensors_sort_names(cen_tensors *tensors) {
    tensors->by_name = ceni_malloc(tensors->count * sizeof(void *));
    if (!tensors->by_name) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for %zu tensors",
                         tensors->shards[0].told.path, tensors->count);
    }
    for (size_t i = 0; i < tensors->count; i++) {
        tensors->by_name[i] = &tensors->tensors[i];
    }
    if (tensors->count) {
        qsort(tensors->by_name, tensors->count, sizeof(void *), by_name);
    }
    for (size_t i = 1; i < tensors->count; i++) {
        const cen_tensor *a = tensors->by_name[i - 1], *b = tensors->by_name[i];
        if (!strcmp(a->name, b->name)) {
            uint32_t later = a->shard > b->shard ? a->shard : b->shard;
            return ceni_fail(CEN_ERR_FORMAT, "%s: tensor '%.200s' is there twice",
                             tensors->shards[later].told.path, a->name);
        }
    }
    return CEN_OK;
}

const cen_tensor *cen_tensors_find(const cen_tensors *tensors, const char *name) {
    cen_tensor key = {.name = name};
    const cen_tensor *wanted = &key;
    if (!tensors || !name || !tensors->count) {
        return NULL;
    }
    const cen_tensor **found =
        bsearch(&wanted, tensors->by_name, tensors->count, sizeof(void *), by_name);
    return found ? *found : NULL;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const cen_tensor_note *)a)->key, ((const cen_tensor_note *)b)->key);
}

cen_status ceni_tensors_sort_notes(cen_tensors *tensors, size_t first) {
    size_t count = tensors->note_count - first;
    if (!count) {
        return CEN_OK;
    }
    cen_tensor_note *notes = tensors->notes + first;
    qsort(notes, count, sizeof *notes, by_key);
    for (size_t i = 1; i < count; i++) {
        if (!strcmp(notes[i - 1].key, notes[i].key)) {
            return ceni_fail(CEN_ERR_FORMAT, "%s: header: __metadata__: '%.200s' is there twice",
                             tensors->shards[tensors->shard_count - 1].told.path, notes[i].key);
        }
    }
    return CEN_OK;
}

/* Few files have much metadata: what is new is looked for among all that was there. */
void ceni_tensors_merge_notes(cen_tensors *tensors, size_t first) {
    size_t kept = first;
    for (size_t i = first; i < tensors->note_count; i++) {
        if (first &&
            bsearch(&tensors->notes[i], tensors->notes, first, sizeof *tensors->notes, by_key)) {
            ceni_free((char *)tensors->notes[i].key);
        } else {
            tensors->notes[kept++] = tensors->notes[i];
        }
    }
    tensors->note_count = kept;
    if (kept) {
        qsort(tensors->notes, kept, sizeof *tensors->notes, by_key);
    }
}

const char *cen_tensors_find_note(const cen_tensors *tensors, const char *key) {
    cen_tensor_note wanted = {.key = key};
    if (!tensors || !key || !tensors->note_count) {
        return NULL;
    }
    const cen_tensor_note *found =
        bsearch(&wanted, tensors->notes, tensors->note_count, sizeof *tensors->notes, by_key);
    return found ? found->value : NULL;
}
