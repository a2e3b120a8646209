/* Lossless BF16: exact for any data, shape and stride; small for weights; whatever else is in the
 * stream is said, and memory that is not there is not needed. */
#include "tests/unit/codec/reference.h"

#include "base/fault.h"
#include "cenote/log.h"

static const cen_codec lossless = {.format = CEN_CODEC_LOSSLESS_BF16};

/* Sums of twelve uniform numbers: close to a normal distribution, of a deviation of 0.02. */
static uint16_t weight(uint64_t *seed) {
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += (float)(random_next(seed) >> 40) * 0x1p-24f;
    }
    return (uint16_t)(to_bits(sum * 0.02f) >> 16);
}

static uint64_t round_trip(const uint16_t *data, uint64_t rows, uint64_t cols, uint64_t stride) {
    room r = room_make(&lossless, rows, cols);
    cen_matrix source = {ADDR(data), rows, cols, stride, CEN_BF16};
    cen_codec_sums sums;
    assert_int_equal(cen_codec_encode(&lossless, &source, &r.parts, NULL, &sums), CEN_OK);
    assert_true(r.parts.bytes.values <= r.sizes.values);
    assert_true(sums.count == rows * cols && sums.max_error == 0 && sums.error2 == 0);
    room_check(&r);
    uint64_t pitch = cols + 1;
    uint16_t *back = malloc((size_t)(rows * pitch) * 2 + 1);
    assert_non_null(back);
    memset(back, FILL, (size_t)(rows * pitch) * 2);
    cen_matrix to = {ADDR(back), rows, cols, pitch, CEN_BF16};
    assert_int_equal(cen_codec_decode(&lossless, &r.parts, &to), CEN_OK);
    for (uint64_t i = 0; i < rows; i++) {
        assert_memory_equal(back + i * pitch, data + i * stride, (size_t)cols * 2);
        assert_int_equal(back[i * pitch + cols], FILL * 0x101);
    }
    free(back);
    uint64_t bytes = r.parts.bytes.values;
    room_free(&r);
    return bytes;
}

static void everything_comes_back(void **state) {
    enum { MOST = 600 * 1000 };
    uint16_t *data = malloc(MOST * 2);
    uint64_t seed = 3;
    assert_non_null(data);
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < MOST; i++) {
            data[i] = kind == 0   ? weight(&seed)
                      : kind == 1 ? (uint16_t)(random_next(&seed) >> 20)
                                  : 0x7FC1;
        }
        (void)round_trip(data, 0, 5, 5);
        (void)round_trip(data, 5, 0, 5);
        (void)round_trip(data, 1, 1, 1);
        (void)round_trip(data, 300, 7, 9);
        (void)round_trip(data, 590, 1000, 1010);
        (void)round_trip(data, 1, 131072, 131072);
        (void)round_trip(data, 2, 131073, 131080);
    }
    free(data);
}

static void weights_become_small(void **state) {
    enum { COUNT = 1 << 20 };
    uint16_t *data = malloc(COUNT * 2);
    uint64_t seed = 9;
    assert_non_null(data);
    for (int i = 0; i < COUNT; i++) {
        data[i] = weight(&seed);
    }
    uint64_t bytes = round_trip(data, 1024, COUNT / 1024, COUNT / 1024);
    printf("%.4f of the size\n", (double)bytes / (COUNT * 2.0));
    assert_true((double)bytes <= 0.68 * COUNT * 2);
    free(data);
}

static void refused(const uint8_t *stream, uint64_t size, cen_status status, const char *why) {
    static uint16_t back[4096];
    uint8_t *copy = malloc((size_t)size + 1); /* so that a sanitizer sees what is read behind it */
    assert_non_null(copy);
    memcpy(copy, stream, (size_t)size);
    cen_codec_parts parts = {.values = ADDR(copy), .bytes.values = size};
    cen_matrix to = {ADDR(back), 4, 1000, 1000, CEN_BF16};
    (void)cen_log_last_error();
    assert_int_equal(cen_codec_decode(&lossless, &parts, &to), status);
    const char *said = cen_log_last_error();
    if (!strstr(said, why)) {
        fail_msg("said '%s', which lacks '%s'", said, why);
    }
    free(copy);
}

static void other_streams_are_refused(void **state) {
    static uint16_t data[4000];
    uint64_t seed = 4;
    for (int i = 0; i < 4000; i++) {
        data[i] = weight(&seed);
    }
    room r = room_make(&lossless, 4, 1000);
    cen_matrix source = {ADDR(data), 4, 1000, 1000, CEN_BF16};
    assert_int_equal(cen_codec_encode(&lossless, &source, &r.parts, NULL, NULL), CEN_OK);
    uint8_t *stream = r.memory[0] + GUARD;
    uint64_t size = r.parts.bytes.values;
    refused(stream, 3, CEN_ERR_TRUNCATED, "take more than");
    refused(stream, 4000, CEN_ERR_TRUNCATED, "take more than");
    refused(stream, size - 1, CEN_ERR_FORMAT, "has a size of");
    refused(stream, size + 1, CEN_ERR_FORMAT, "behind its end");
    stream[0] ^= 1;
    refused(stream, size, CEN_ERR_FORMAT, "begins otherwise");
    stream[0] ^= 1;
    stream[8] ^= 1;
    refused(stream, size, CEN_ERR_FORMAT, "has 4001 elements");
    stream[8] ^= 1;
    stream[19] ^= 0x80;
    refused(stream, size, CEN_ERR_FORMAT, "has a size of");
    stream[19] ^= 0x80;
    stream[20 + 4000] ^= 0xFF; /* the frame's first byte */
    refused(stream, size, CEN_ERR_FORMAT, "does not decode");
    room_free(&r);
}

static void memory_may_be_missing(void **state) {
    static uint16_t data[1000], back[1000];
    room r = room_make(&lossless, 1, 1000);
    cen_matrix source = {ADDR(data), 1, 1000, 1000, CEN_BF16}, to = source;
    to.data = ADDR(back);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(cen_codec_encode(&lossless, &source, &r.parts, NULL, NULL),
                     CEN_ERR_HOST_MEMORY);
    assert_int_equal(cen_codec_encode(&lossless, &source, &r.parts, NULL, NULL), CEN_OK);
    ceni_fault_set(&ceni_fault_points[CENI_FAULT_HOST_MEMORY], 1, false);
    assert_int_equal(cen_codec_decode(&lossless, &r.parts, &to), CEN_ERR_HOST_MEMORY);
    assert_int_equal(cen_codec_decode(&lossless, &r.parts, &to), CEN_OK);
    room_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(weights_become_small),
        cmocka_unit_test(other_streams_are_refused),
        cmocka_unit_test(memory_may_be_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
