/* Property: whatever the bytes, decoding them as lossless BF16 ends in an error that was logged, or
 * in a matrix that comes back when it is encoded again. The first two bytes give the shape. Seeds:
 * tests/fuzz/corpus/lossless. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/codec.h"
#include "cenote/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static cen_addr address(const void *ptr) {
    return (cen_addr)(uintptr_t)ptr;
}

static const cen_codec lossless = {.format = CEN_CODEC_LOSSLESS_BF16};

static void again(const cen_matrix *matrix) {
    cen_codec_sizes sizes;
    uint64_t bytes = matrix->rows * matrix->cols * 2;
    require(!cen_codec_bound(&lossless, matrix->rows, matrix->cols, &sizes));
    uint8_t *stream = malloc(sizes.values + 1);
    uint16_t *back = malloc(bytes + 1);
    require(stream && back);
    cen_codec_parts parts = {.values = address(stream), .bytes = sizes};
    cen_matrix to = *matrix;
    to.data = address(back);
    require(!cen_codec_encode(&lossless, matrix, &parts, NULL, NULL));
    require(!cen_codec_decode(&lossless, &parts, &to));
    require(!memcmp(back, (const void *)(uintptr_t)matrix->data, bytes));
    free(stream);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    uint64_t rows = data[0] % 16, cols = data[1];
    uint16_t *memory = malloc(rows * cols * 2 + 1);
    require(memory != NULL);
    memset(memory, 0, rows * cols * 2);
    cen_codec_parts parts = {.values = address(data + 2), .bytes.values = size - 2};
    cen_matrix to = {address(memory), rows, cols, cols, CEN_BF16};
    (void)cen_log_last_error();
    if (cen_codec_decode(&lossless, &parts, &to)) {
        require(*cen_log_last_error() != 0);
    }
    again(&to);
    free(memory);
    return 0;
}
