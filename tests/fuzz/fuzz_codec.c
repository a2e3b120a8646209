/* Property: whatever the descriptor and the bytes of the parts, decoding ends in an error that was
 * logged or in a matrix, and writes and reads nothing beyond; and what it decodes to can be encoded
 * again, with sums that add up, and with the scales of the input where they are such. Seeds:
 * tests/fuzz/corpus/codec. */
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

/* A block of exactly `size` bytes that repeat the input. */
static uint8_t *part(const uint8_t *data, size_t size, uint64_t wanted) {
    uint8_t *bytes = malloc(wanted ? wanted : 1);
    require(bytes != NULL);
    for (uint64_t i = 0; i < wanted; i++) {
        bytes[i] = size ? data[i % size] : 0;
    }
    return bytes;
}

static void again(const cen_codec *codec, const cen_matrix *matrix, cen_codec_parts *parts) {
    cen_codec_sums total;
    require(!cen_codec_encode(codec, matrix, parts, NULL, &total));
    require(total.count == matrix->rows * matrix->cols);
    require(total.nan + total.infinite <= total.count && total.underflowed <= total.count);
    require(!cen_codec_decode(codec, parts, matrix));
}

/* The scales are any bytes. */
static void given(cen_codec codec, const cen_matrix *matrix, cen_codec_parts *parts) {
    codec.scales_given = codec.granularity != CEN_CODEC_UNSCALED;
    cen_codec_sums total;
    (void)cen_log_last_error();
    if (cen_codec_encode(&codec, matrix, parts, NULL, &total)) {
        require(codec.scales_given && *cen_log_last_error() != 0);
    } else {
        require(total.saturated <= total.count);
        require(!cen_codec_decode(&codec, parts, matrix));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const cen_dtype types[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    enum { HEADER = 8 };
    if (size < HEADER) {
        return 0;
    }
    cen_codec codec = {.format = (cen_codec_format)(data[0] % 12),
                       .granularity = (cen_codec_granularity)(data[1] % 7),
                       .group = data[2] % 4 * 32u,
                       .block_rows = data[3] % 5u,
                       .block_cols = data[4] % 70u,
                       .overflow = (cen_codec_overflow)(data[5] % 4),
                       .asymmetric = data[2] & 128};
    codec.group = codec.granularity == CEN_CODEC_GROUP ? codec.group : 0;
    codec.block_rows = codec.granularity == CEN_CODEC_BLOCK ? codec.block_rows : 0;
    codec.block_cols = codec.granularity == CEN_CODEC_BLOCK ? codec.block_cols : 0;
    uint64_t rows = data[6] % 9, cols = data[7];
    cen_codec_sizes sizes;
    if (cen_codec_bound(&codec, rows, cols, &sizes) || codec.format == CEN_CODEC_LOSSLESS_BF16) {
        return 0;
    }
    uint8_t *parts_memory[4] = {part(data + HEADER, size - HEADER, sizes.values),
                                part(data + HEADER, size - HEADER, sizes.scales),
                                part(data, size, sizes.zeros), part(data, size, sizes.metadata)};
    cen_codec_parts parts = {address(parts_memory[0]), address(parts_memory[1]),
                             address(parts_memory[2]), address(parts_memory[3]), sizes};
    cen_matrix to = {0, rows, cols, cols, types[data[5] / 4 % 3]};
    uint8_t *memory = part(data, size, rows * cols * (cen_dtype_bits(to.dtype) / 8));
    to.data = address(memory);
    (void)cen_log_last_error();
    if (cen_codec_decode(&codec, &parts, &to)) {
        require(*cen_log_last_error() != 0);
    }
    given(codec, &to, &parts);
    again(&codec, &to, &parts);
    for (int i = 0; i < 4; i++) {
        free(parts_memory[i]);
    }
    free(memory);
    return 0;
}
