/* A model in several files, by its index: {"metadata": {"total_size": N}, "weight_map": {tensor:
 * file}}. */
#include "codec/safetensors.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cen_status no_memory(const char *path) {
    return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for it", path);
}

static cen_status parse(const char *path, const char *text, size_t size, json_t **root) {
    json_error_t error = {0};
    json_t *made = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!made && json_error_code(&error) == json_error_out_of_memory) {
        return no_memory(path);
    }
    if (!made) {
        return ceni_fail(CEN_ERR_FORMAT, "%s:%d:%d: %s", path, error.line, error.column,
                         ceni_json_fault(&error));
    }
    if (!json_is_object(json_object_get(made, "weight_map"))) {
        json_decref(made);
        return ceni_fail(CEN_ERR_FORMAT, "%s: weight_map: an object is expected", path);
    }
    *root = made;
    return CEN_OK;
}

static cen_status load(cen_tensors *tensors, const char *path, json_t **root) {
    int fd = -1;
    struct stat st;
    cen_status status = ceni_file_open(path, &fd, &st);
    if (status) {
        return status;
    }
    tensors->has_index = true;
    tensors->index = (ceni_fd_id){st.st_dev, st.st_ino};
    uint64_t size = (uint64_t)st.st_size;
    char *text = NULL;
    if (size > CEN_TENSOR_HEADER_MAX) {
        status = ceni_fail(CEN_ERR_FORMAT, "%s: %" PRIu64 " bytes; %u are the most", path, size,
                           CEN_TENSOR_HEADER_MAX);
    } else if (!(text = ceni_malloc((size_t)size))) {
        status = no_memory(path);
    } else {
        status = ceni_file_read_at(path, fd, 0, size, text);
    }
    close(fd);
    if (!status) {
        status = parse(path, text, (size_t)size, root);
    }
    ceni_free(text);
    return status;
}

/* An index names files beside it, and must not lead anywhere else. */
static bool is_plain_name(const char *name) {
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files' names, each once, in order; they are the tree's. */
static cen_status list_files(const char *path, json_t *map, const char ***files, size_t *count) {
    size_t n = 0, kept = 0;
    const char **names = ceni_malloc((json_object_size(map) + 1) * sizeof *names);
    if (!names) {
        return no_memory(path);
    }
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        const char *name = json_string_value(json_object_iter_value(at));
        if (!name || !is_plain_name(name)) {
            ceni_free(names);
            return ceni_fail(CEN_ERR_FORMAT,
                             "%s: weight_map: '%.200s': the name of a file beside the index is "
                             "expected, without a folder",
                             path, json_object_iter_key(at));
        }
        names[n++] = name;
    }
    if (n) {
        qsort(names, n, sizeof *names, by_text);
    }
    for (size_t i = 0; i < n; i++) {
        if (!kept || strcmp(names[i], names[kept - 1]) != 0) {
            names[kept++] = names[i];
        }
    }
    *files = names;
    *count = kept;
    return CEN_OK;
}

static cen_status open_file(cen_tensors *tensors, const char *index, const char *name) {
    ceni_str path = {0};
    ceni_str_printf(&path, "%.*s%s", (int)(ceni_base_name(index) - index), index, name);
    char *full = ceni_str_take(&path);
    if (!full) {
        return no_memory(index);
    }
    cen_status status = ceni_tensors_open_file(tensors, full);
    ceni_free(full);
    return status;
}

/* What the index says of each tensor against what the files hold. */
static cen_status compare(const cen_tensors *tensors, const char *path, json_t *map) {
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        const char *name = json_object_iter_key(at);
        const char *file = json_string_value(json_object_iter_value(at));
        const cen_tensor *tensor = cen_tensors_find(tensors, name);
        if (!tensor ||
            strcmp(ceni_base_name(tensors->shards[tensor->shard].told.path), file) != 0) {
            return ceni_fail(CEN_ERR_FORMAT, "%s: weight_map: tensor '%.200s' is not in %.128s",
                             path, name, file);
        }
    }
    if (json_object_size(map) != tensors->count) { /* fewer: each of the map's is there */
        return ceni_fail(CEN_ERR_FORMAT, "%s: weight_map: %zu tensors; the files have %zu", path,
                         json_object_size(map), tensors->count);
    }
    return CEN_OK;
}

/* Programs disagree on what the sum counts, so that it is no error. */
static void compare_size(const cen_tensors *tensors, const char *path, const json_t *root) {
    const json_t *told = json_object_get(json_object_get(root, "metadata"), "total_size");
    uint64_t sum = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        sum += tensors->tensors[i].bytes;
    }
    if (told && (double)sum != json_number_value(told)) {
        ceni_log(CEN_LOG_WARN,
                 "%s: metadata: total_size is %.0f; the tensors have %" PRIu64 " bytes", path,
                 json_number_value(told), sum);
    }
}

cen_status ceni_tensors_open_index(cen_tensors *tensors, const char *path) {
    json_t *root = NULL;
    const char **files = NULL;
    size_t count = 0;
    cen_status status = load(tensors, path, &root);
    if (status) {
        return status;
    }
    json_t *map = json_object_get(root, "weight_map");
    status = list_files(path, map, &files, &count);
    for (size_t i = 0; i < count && !status; i++) {
        status = open_file(tensors, path, files[i]);
    }
    if (!status) {
        status = count ? ceni_tensors_sort_names(tensors)
                       : ceni_fail(CEN_ERR_FORMAT, "%s: weight_map: it is empty", path);
    }
    if (!status) {
        status = compare(tensors, path, map);
    }
    if (!status) {
        compare_size(tensors, path, root);
    }
    ceni_free(files);
    json_decref(root);
    return status;
}
