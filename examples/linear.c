/* A layer in 8 bits: activations are calibrated on what was seen before, weights get a scale a row,
 * and one kernel multiplies them, scales, adds a bias and takes GELU. Runs on any Linux machine;
 * "cuda:0" as argument: on a GPU. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cenote/cenote.h"

enum { TOKENS = 32, INPUTS = 256, OUTPUTS = 64 };

static void check(cen_status status, const char *what) {
    if (status) {
        fprintf(stderr, "%s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "log: %s\n", message);
}

/* About normally distributed, the same in each run. */
static void fill(float *to, size_t count, float deviation) {
    static uint32_t state = 1;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int n = 0; n < 12; n++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / (1 << 24);
        }
        to[i] = (sum - 6) * deviation;
    }
}

static cen_addr address(const void *data) {
    return (cen_addr)(uintptr_t)data;
}

static cen_matrix matrix(const void *data, uint64_t rows, uint64_t cols, cen_dtype dtype) {
    return (cen_matrix){address(data), rows, cols, cols, dtype};
}

/* The scale that keeps what batches of activations had, but for what is rare and far out. */
static float calibrate(void) {
    static float batch[TOKENS * INPUTS];
    const cen_matrix seen = matrix(batch, TOKENS, INPUTS, CEN_FP32);
    const cen_codec codec = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR};
    cen_calibration *calibration;
    float amax;
    check(cen_calibration_create(CEN_CHANNELS_NONE, 0, &calibration), "calibration");
    for (int i = 0; i < 16; i++) {
        fill(batch, TOKENS * INPUTS, 1);
        check(cen_calibration_add(calibration, &seen), "add");
    }
    check(cen_calibration_threshold(calibration, CEN_THRESHOLD_MSE, 0, &codec, &amax), "threshold");
    cen_calibration_free(calibration);
    return amax / 127;
}

/* `values` has room for as many bytes as `source` has elements, `scales` for one a unit: what
 * cen_codec_bound would say of this codec. */
static void encode(const char *what, const cen_codec *codec, const cen_matrix *source,
                   cen_addr values, cen_addr scales) {
    cen_codec_parts parts = {.values = values, .scales = scales};
    cen_codec_sums sums;
    cen_codec_report report;
    check(cen_codec_bound(codec, source->rows, source->cols, &parts.bytes), "bound");
    check(cen_codec_encode(codec, source, &parts, NULL, &sums), "encode");
    cen_codec_report_of(&sums, &report);
    printf("%s: %.1f dB, cosine %.5f, %llu cut off\n", what, report.sqnr_db, report.cosine,
           (unsigned long long)report.saturated);
}

/* Device memory that holds `bytes` bytes of `from`. */
static void *place(cen_device *device, cen_pool *pool, const void *from, size_t bytes) {
    void *block;
    check(cen_pool_alloc(pool, bytes, 0, &block), "alloc");
    check(cen_copy_async(device, (cen_addr)block, address(from), bytes, 0), "copy");
    return block;
}

/* How far the layer's output is from what FP32 gives, in decibels. */
static double sqnr(const float *x, const float *w, const float *bias, const float *y) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < TOKENS * OUTPUTS; i++) {
        double sum = bias[i % OUTPUTS];
        for (size_t k = 0; k < INPUTS; k++) {
            sum += (double)x[i / OUTPUTS * INPUTS + k] * (double)w[i % OUTPUTS * INPUTS + k];
        }
        double exact = sum / 2 * (1 + erf(sum / sqrt(2))), error = exact - (double)y[i];
        signal += exact * exact;
        noise += error * error;
    }
    return 10 * log10(signal / noise);
}

int main(int argc, char **argv) {
    static float x[TOKENS * INPUTS], w[OUTPUTS * INPUTS], bias[OUTPUTS], y[TOKENS * OUTPUTS];
    static float w_scales[OUTPUTS];
    static int8_t x_values[TOKENS * INPUTS], w_values[OUTPUTS * INPUTS];
    cen_device *device;
    cen_pool *pool;
    cen_log_set(print_log, NULL, CEN_LOG_WARN);
    check(cen_device_open(argc > 1 ? argv[1] : "host:0", &device), "device");
    check(cen_pool_create(device, NULL, &pool), "pool");

    float x_scale = calibrate();
    fill(x, TOKENS * INPUTS, 1);
    fill(w, OUTPUTS * INPUTS, 0.06f);
    fill(bias, OUTPUTS, 0.1f);
    const cen_matrix xs = matrix(x, TOKENS, INPUTS, CEN_FP32);
    const cen_matrix ws = matrix(w, OUTPUTS, INPUTS, CEN_FP32);
    const cen_codec by_threshold = {
        .format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .scales_given = true};
    const cen_codec by_rows = {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW};
    encode("activations", &by_threshold, &xs, address(x_values), address(&x_scale));
    encode("weights", &by_rows, &ws, address(w_values), address(w_scales));

    void *blocks[] = {place(device, pool, x_values, sizeof x_values),
                      place(device, pool, w_values, sizeof w_values),
                      place(device, pool, w_scales, sizeof w_scales),
                      place(device, pool, bias, sizeof bias), place(device, pool, y, sizeof y)};
    const cen_product product = {.size = sizeof product,
                                 .a = matrix(blocks[0], TOKENS, INPUTS, CEN_INT8),
                                 .b = matrix(blocks[1], OUTPUTS, INPUTS, CEN_INT8),
                                 .d = matrix(blocks[4], TOKENS, OUTPUTS, CEN_FP32),
                                 .transpose_b = true,
                                 .activation = CEN_ACTIVATION_GELU,
                                 .alpha = x_scale,
                                 .col_scale = (cen_addr)blocks[2],
                                 .bias = (cen_addr)blocks[3],
                                 .bias_dtype = CEN_FP32};
    check(cen_product_run(device, &product, 0), "product");
    check(cen_copy_async(device, (cen_addr)y, (cen_addr)blocks[4], sizeof y, 0), "copy");
    check(cen_stream_sync(device, 0), "sync");
    double decibels = sqnr(x, w, bias, y);
    printf("layer: %.1f dB\n", decibels);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        check(cen_pool_free(pool, blocks[i], 0), "free");
    }
    check(cen_pool_destroy(pool), "destroy");
    cen_device_close(device);
    return decibels > 30 ? 0 : 1;
}
