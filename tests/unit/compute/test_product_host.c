/* Products without a device: the bits of the host backend, in memory that nobody pinned, and the
 * same refusals. */
#include "cenote/product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { M = 37, N = 70, K = 150, SIDE = 9, CHANNELS = 6 };

/* What the device is to see; results are copied out. */
static struct {
    uint16_t a[M * K], b[N * K];
    float bias[N], scales[N], row[M];
    int8_t values[N * K];
    uint16_t d[M * N];
} memory;

static uint16_t other[M * N];

static void fill(void) {
    for (int i = 0; i < M * K; i++) {
        memory.a[i] = (uint16_t)(0x3c00 + i % 301 + (i % 2) * 0x8000);
    }
    for (int i = 0; i < N * K; i++) {
        memory.b[i] = (uint16_t)(0x3800 + i % 513 + (i % 3 == 0) * 0x8000);
        memory.values[i] = (int8_t)(i * 7 % 255 - 127);
    }
    for (int i = 0; i < N; i++) {
        memory.bias[i] = (float)i / 8;
        memory.scales[i] = 1.0f / (float)(64 + i);
    }
    for (int i = 0; i < M; i++) {
        memory.row[i] = 1.0f / (float)(1 + i);
    }
}

static cen_addr at(const void *pointer) {
    return (uintptr_t)pointer;
}

static cen_product product(const cen_codec *codec) {
    cen_product p = {.size = sizeof p,
                     .a = {at(memory.a), M, K, K, CEN_FP16},
                     .b = {at(memory.b), N, K, K, CEN_FP16},
                     .d = {at(memory.d), M, N, N, CEN_FP16},
                     .transpose_b = true,
                     .activation = CEN_ACTIVATION_GELU,
                     .alpha = 1,
                     .bias = at(memory.bias),
                     .bias_dtype = CEN_FP32,
                     .row_scale = at(memory.row)};
    if (codec) {
        p.b.data = 0;
        p.b_codec = codec;
        p.b_parts = (cen_codec_parts){.values = at(memory.values),
                                      .scales = at(memory.scales),
                                      .bytes = {.values = N * K, .scales = sizeof memory.scales}};
    }
    return p;
}

static cen_conv conv(void) {
    return (cen_conv){.size = sizeof(cen_conv),
                      .dtype = CEN_FP16,
                      .input = at(memory.a),
                      .weight = at(memory.b),
                      .output = at(memory.d),
                      .bias = at(memory.bias),
                      .bias_dtype = CEN_FP32,
                      .images = 2,
                      .height = SIDE,
                      .width = SIDE,
                      .channels = CHANNELS,
                      .filters = 12,
                      .filter_height = 3,
                      .filter_width = 2,
                      .stride = {2, 1},
                      .padding = {1, 1},
                      .activation = CEN_ACTIVATION_RELU};
}

/* What went to `other` by the device is what is in memory.d now, without one; and there is
 * something. */
static void same_bits(void) {
    static const uint16_t none[M * N];
    assert_memory_equal(memory.d, other, sizeof other);
    assert_memory_not_equal(memory.d, none, sizeof other);
    memset(memory.d, 0, sizeof memory.d);
}

static void keep(cen_device *device) {
    assert_int_equal(cen_stream_sync(device, 0), CEN_OK);
    memcpy(other, memory.d, sizeof other);
    memset(memory.d, 0, sizeof memory.d);
}

static void results_are_those_of_the_host_backend(void **state) {
    const cen_codec codec = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW};
    cen_device *device;
    assert_int_equal(cen_device_open("host", &device), CEN_OK);
    fill();
    for (int coded = 0; coded < 2; coded++) {
        cen_product p = product(coded ? &codec : NULL);
        assert_int_equal(cen_pinned_register(device, &memory, sizeof memory), CEN_OK);
        assert_int_equal(cen_product_run(device, &p, 0), CEN_OK);
        keep(device);
        assert_int_equal(cen_pinned_unregister(device, &memory), CEN_OK);
        p.kernel = "none of this name";
        assert_int_equal(cen_product_on_host(&p), CEN_OK);
        same_bits();
    }
    cen_conv c = conv();
    assert_int_equal(cen_pinned_register(device, &memory, sizeof memory), CEN_OK);
    assert_int_equal(cen_conv_run(device, &c, 0), CEN_OK);
    keep(device);
    cen_device_close(device);
    assert_int_equal(cen_conv_on_host(&c), CEN_OK);
    same_bits();
}

static void bad_ones_are_refused(void **state) {
    cen_product p = product(NULL);
    cen_conv c = conv();
    p.b.cols--;
    c.output = c.input;
    assert_int_equal(cen_product_on_host(&p), CEN_ERR_INVALID);
    assert_int_equal(cen_conv_on_host(&c), CEN_ERR_INVALID);
    assert_int_equal(cen_product_on_host(NULL), CEN_ERR_INVALID);
    assert_int_equal(cen_conv_on_host(NULL), CEN_ERR_INVALID);
}

static void empty_ones_do_nothing(void **state) {
    cen_product p = product(NULL);
    cen_conv c = conv();
    p.a.rows = p.d.rows = c.images = 0;
    memset(memory.d, 7, sizeof memory.d);
    memcpy(other, memory.d, sizeof other);
    assert_int_equal(cen_product_on_host(&p), CEN_OK);
    assert_int_equal(cen_conv_on_host(&c), CEN_OK);
    same_bits();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_host_backend),
        cmocka_unit_test(bad_ones_are_refused),
        cmocka_unit_test(empty_ones_do_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
