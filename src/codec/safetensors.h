/* Tensor files inside: what is open, and how a header is taken apart. */
#ifndef CENI_SAFETENSORS_H
#define CENI_SAFETENSORS_H

#include "cenote/tensor.h"

#include "base/fd.h"

typedef struct ceni_tensor_type {
    const char *name;
    uint32_t bits;
    cen_dtype dtype;
} ceni_tensor_type;

/* One of an array in safetensors' order. NULL: it has none of that spelling. */
const ceni_tensor_type *ceni_tensor_type_find(const char *name);

typedef struct ceni_tensors_shard {
    cen_tensor_shard told;
    int fd; /* -1: not open */
    ceni_fd_id id;
    size_t first, count; /* its tensors */
} ceni_tensors_shard;

/* A tensor's shape and name are one block of memory, which begins with the shape. */
struct cen_tensors {
    char *path; /* as it was opened: of the file, or of the index */
    ceni_tensors_shard *shards;
    cen_tensor *tensors;
    const cen_tensor **by_name;
    cen_tensor_note *notes; /* key and value are one block, which begins with the key */
    size_t shard_count, shard_capacity, count, capacity, note_count, note_capacity;
    bool has_index;
    ceni_fd_id index; /* the file that names the shards */
};

/* Whether a path is opened as an index. */
bool ceni_tensor_path_is_index(const char *path);

/* Elements and bytes of a shape; false: too many, or the last byte is not full. */
bool ceni_tensor_measure(const ceni_tensor_type *type, const uint64_t *shape, uint32_t rank,
                         uint64_t *count, uint64_t *bytes);

/* What the header of a shard says, appended to tensors and notes; offsets count from the file's
 * start. What it says of bytes is not compared with anything yet. */
cen_status ceni_tensors_parse(cen_tensors *tensors, uint32_t shard, const char *text, size_t size);

/* Brings the shard's tensors into the order of their bytes, and sees that these are all of its
 * bytes, each once. */
cen_status ceni_tensors_check_layout(cen_tensors *tensors, const ceni_tensors_shard *shard);

/* The notes of the last shard, from number `first` on: a key that is there twice is refused. Then
 * they join those before, but for keys that were said already. */
cen_status ceni_tensors_sort_notes(cen_tensors *tensors, size_t first);
void ceni_tensors_merge_notes(cen_tensors *tensors, size_t first);

/* Opens one file as the next shard. */
cen_status ceni_tensors_open_file(cen_tensors *tensors, const char *path);
/* Opens the shards of an index, and compares it with what they hold. */
cen_status ceni_tensors_open_index(cen_tensors *tensors, const char *path);
/* by_name; a name that is there twice is refused. */
cen_status ceni_tensors_sort_names(cen_tensors *tensors);

#endif
