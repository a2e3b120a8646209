/* What the tests of tensor files share: files of a given header. */
#ifndef TEST_TENSOR_FILES_H
#define TEST_TENSOR_FILES_H

#include "tests/folder.h"

#include "cenote/log.h"
#include "cenote/tensor.h"

static inline void put_file(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* All of a file, and a NUL behind it. */
static inline char *get_file(const char *name, size_t *size) {
    FILE *file = fopen(in_folder(name), "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, (1 << 20) - 1, file);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

/* A file whose first 8 bytes say `length`, with that header and `data` bytes 0, 1, 2, ... */
static inline void put_claim(const char *name, uint64_t length, const char *header, size_t size,
                             size_t data) {
    uint8_t *bytes = malloc(8 + size + data + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(length >> (8 * i));
    }
    memcpy(bytes + 8, header, size);
    for (size_t i = 0; i < data; i++) {
        bytes[8 + size + i] = (uint8_t)i;
    }
    put_file(name, bytes, 8 + size + data);
    free(bytes);
}

static inline void put_tensors(const char *name, const char *header, size_t data) {
    put_claim(name, strlen(header), header, strlen(header), data);
}

static inline cen_tensors *open_tensors(const char *name) {
    cen_tensors *tensors = NULL;
    if (cen_tensors_open(in_folder(name), &tensors)) {
        fail_msg("%s", cen_log_last_error());
    }
    return tensors;
}

/* It is refused, with words that begin so after the file's name and ": ". */
static inline void refused(const char *name, cen_status expected, const char *words) {
    cen_tensors *tensors = NULL;
    char full[1024];
    cen_status status = cen_tensors_open(in_folder(name), &tensors);
    const char *said = cen_log_last_error();
    snprintf(full, sizeof full, "%s%s%s", in_folder(name), *words == ':' ? "" : ": ", words);
    if (strncmp(said, full, strlen(full)) != 0) {
        fail_msg("it says \"%s\", not \"%s...\"", said, full);
    }
    assert_int_equal(status, expected);
    assert_null(tensors);
}

#endif
