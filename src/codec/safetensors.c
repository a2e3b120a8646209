/* Tensor files opened and read. */
#include "codec/safetensors.h"

#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t little64(const uint8_t bytes[8]) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* How long the header is, which is known to be in the file. */
static cen_status read_length(const char *path, int fd, uint64_t size, uint64_t *length) {
    uint8_t bytes[8];
    if (size < sizeof bytes) {
        return ceni_fail(CEN_ERR_TRUNCATED,
                         "%s: %" PRIu64 " bytes; a tensor file has 8 and a header at least", path,
                         size);
    }
    cen_status status = ceni_file_read_at(path, fd, 0, sizeof bytes, bytes);
    if (status) {
        return status;
    }
    uint64_t n = little64(bytes);
    if (n > CEN_TENSOR_HEADER_MAX) {
        return ceni_fail(CEN_ERR_FORMAT,
                         "%s: no tensor file: a header of %" PRIu64 " bytes; %u are the most", path,
                         n, CEN_TENSOR_HEADER_MAX);
    }
    if (n > size - sizeof bytes) {
        return ceni_fail(CEN_ERR_TRUNCATED,
                         "%s: a header of %" PRIu64 " bytes is announced, and %" PRIu64 " follow",
                         path, n, size - sizeof bytes);
    }
    *length = n;
    return CEN_OK;
}

static cen_status read_header(cen_tensors *tensors, ceni_tensors_shard *shard) {
    const char *path = shard->told.path;
    uint64_t length = 0;
    cen_status status = read_length(path, shard->fd, shard->told.bytes, &length);
    if (status) {
        return status;
    }
    char *text = ceni_malloc((size_t)length);
    if (!text) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its header", path);
    }
    size_t first = tensors->note_count;
    status = ceni_file_read_at(path, shard->fd, 8, length, text);
    if (!status) {
        status =
            ceni_tensors_parse(tensors, (uint32_t)(shard - tensors->shards), text, (size_t)length);
    }
    ceni_free(text);
    shard->told.header_bytes = 8 + length;
    shard->count = tensors->count - shard->first;
    if (!status) {
        status = ceni_tensors_check_layout(tensors, shard);
    }
    if (!status) {
        status = ceni_tensors_sort_notes(tensors, first);
    }
    if (!status) {
        ceni_tensors_merge_notes(tensors, first);
    }
    return status;
}

cen_status ceni_tensors_open_file(cen_tensors *tensors, const char *path) {
    if (ceni_grow(&tensors->shards, &tensors->shard_capacity, tensors->shard_count + 1,
                  sizeof *tensors->shards)) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", path);
    }
    ceni_tensors_shard shard = {.fd = -1, .first = tensors->count};
    shard.told.path = ceni_strdup(path);
    if (!shard.told.path) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", path);
    }
    struct stat st;
    cen_status status = ceni_file_open(path, &shard.fd, &st);
    if (!status) {
        shard.told.bytes = (uint64_t)st.st_size;
        shard.id = (ceni_fd_id){st.st_dev, st.st_ino};
    }
    tensors->shards[tensors->shard_count++] = shard;
    return status ? status : read_header(tensors, &tensors->shards[tensors->shard_count - 1]);
}

bool ceni_tensor_path_is_index(const char *path) {
    static const char end[] = ".index.json";
    size_t length = strlen(path), size = sizeof end - 1;
    return length >= size && !strcmp(path + length - size, end);
}

cen_status cen_tensors_open(const char *path, cen_tensors **tensors) {
    if (!path || !tensors) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensors_open: %s is NULL",
                         path ? "tensors" : "path");
    }
    cen_tensors *made = ceni_calloc(1, sizeof *made);
    if (!made || !(made->path = ceni_strdup(path))) {
        ceni_free(made);
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", path);
    }
    cen_status status = ceni_tensor_path_is_index(path) ? ceni_tensors_open_index(made, path)
                                                        : ceni_tensors_open_file(made, path);
    if (!status && !made->by_name) {
        status = ceni_tensors_sort_names(made);
    }
    if (status) {
        cen_tensors_close(made);
        return status;
    }
    *tensors = made;
    return CEN_OK;
}

void cen_tensors_close(cen_tensors *tensors) {
    if (!tensors) {
        return;
    }
    for (size_t i = 0; i < tensors->count; i++) {
        ceni_free((uint64_t *)tensors->tensors[i].shape);
    }
    for (size_t i = 0; i < tensors->note_count; i++) {
        ceni_free((char *)tensors->notes[i].key);
    }
    for (size_t i = 0; i < tensors->shard_count; i++) {
        ceni_fd_close_all(&tensors->shards[i].fd, 1);
        ceni_free((char *)tensors->shards[i].told.path);
    }
    ceni_free(tensors->tensors);
    ceni_free(tensors->by_name);
    ceni_free(tensors->notes);
    ceni_free(tensors->shards);
    ceni_free(tensors->path);
    ceni_free(tensors);
}

size_t cen_tensors_count(const cen_tensors *tensors) {
    return tensors ? tensors->count : 0;
}

const cen_tensor *cen_tensors_get(const cen_tensors *tensors, size_t index) {
    return tensors && index < tensors->count ? &tensors->tensors[index] : NULL;
}

size_t cen_tensors_note_count(const cen_tensors *tensors) {
    return tensors ? tensors->note_count : 0;
}

const cen_tensor_note *cen_tensors_get_note(const cen_tensors *tensors, size_t index) {
    return tensors && index < tensors->note_count ? &tensors->notes[index] : NULL;
}

size_t cen_tensors_shard_count(const cen_tensors *tensors) {
    return tensors ? tensors->shard_count : 0;
}

const cen_tensor_shard *cen_tensors_get_shard(const cen_tensors *tensors, size_t index) {
    return tensors && index < tensors->shard_count ? &tensors->shards[index].told : NULL;
}

static bool is_file(const ceni_fd_id *id, const struct stat *st) {
    return id->device == st->st_dev && id->inode == st->st_ino;
}

bool cen_tensors_reads(const cen_tensors *tensors, const char *path) {
    struct stat st;
    if (!tensors || !path || stat(path, &st)) {
        return false;
    }
    bool reads = tensors->has_index && is_file(&tensors->index, &st);
    for (size_t i = 0; i < tensors->shard_count && !reads; i++) {
        reads = is_file(&tensors->shards[i].id, &st);
    }
    return reads;
}

cen_status cen_tensors_read(const cen_tensors *tensors, const cen_tensor *tensor, uint64_t offset,
                            uint64_t bytes, void *to) {
    if (!tensors || !tensor || (!to && bytes)) {
        return ceni_fail(CEN_ERR_INVALID, "cen_tensors_read: %s is NULL",
                         !tensors  ? "tensors"
                         : !tensor ? "tensor"
                                   : "to");
    }
    if (tensor->shard >= tensors->shard_count || offset > tensor->bytes ||
        bytes > tensor->bytes - offset) {
        return ceni_fail(CEN_ERR_INVALID,
                         "cen_tensors_read: tensor '%.200s' has %" PRIu64 " bytes; %" PRIu64
                         " from %" PRIu64 " on are asked for",
                         tensor->name, tensor->bytes, bytes, offset);
    }
    const ceni_tensors_shard *shard = &tensors->shards[tensor->shard];
    return ceni_file_read_at(shard->told.path, shard->fd, tensor->offset + offset, bytes, to);
}
