/* Calibration: what is counted on a device, on the host, and one element at a time is the same. */
#include "tests/conformance/suite.h"

#include <math.h>

#include "base/half.h"

enum { BINS = 255 << 9 };

static uint64_t random_state;

static uint32_t next(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* What is asked of a batch. */
typedef struct batch_case {
    cen_dtype dtype;
    cen_channels axis;
    uint64_t rows, cols, stride;
    int kind; /* of elements */
    uint64_t offset;
} batch_case;

enum { NORMAL, ANY_BITS, SPECIAL, CONSTANT, ZERO_FIRST, RECTIFIED, FEW_SPECIAL, KINDS };

static float bell(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (float)(next() >> 8) * 0x1p-24f;
    }
    return sum - 6;
}

static uint32_t element(int kind, uint64_t i) {
    static const uint32_t special[] = {0,          0x80000000u, 1,           0x807FFFFFu,
                                       0x7F800000, 0xFF800000u, 0x7FC00000u, 0xFFC00001u,
                                       0x7F7FFFFF, 0xFF7FFFFFu, 0x00800000u, 0x477FE000u};
    switch (kind) {
    case ANY_BITS:
        return next();
    case SPECIAL:
        return special[next() % 12];
    case CONSTANT:
        return ceni_float_bits(-3.0f);
    case RECTIFIED:
        return ceni_float_bits(fmaxf(bell(), 0.0f));
    case FEW_SPECIAL:
        return next() % 300 ? ceni_float_bits(bell()) : special[next() % 12];
    case ZERO_FIRST:
        return i < 700 ? 0 : ceni_float_bits(bell() * 1e-9f);
    default:
        return ceni_float_bits(bell());
    }
}

/* The batch's bytes, as many as it spans; between its rows lies what must not be counted. */
static uint8_t *make(const batch_case *b, size_t *bytes) {
    size_t width = b->dtype == CEN_FP32 ? 4 : 2, n = b->rows * b->stride;
    uint8_t *data = malloc(n * width + 16);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = i % b->stride < b->cols ? element(b->kind, i) : 0x7F800000u;
        uint16_t half =
            b->dtype == CEN_FP16 ? ceni_f16_of_float(ceni_float_of(bits)) : (uint16_t)(bits >> 16);
        memcpy(data + i * width, width == 4 ? (void *)&bits : (void *)&half, width);
    }
    *bytes = n * width;
    return data;
}

static float value_at(const batch_case *b, const uint8_t *data, uint64_t row, uint64_t col) {
    size_t at = row * b->stride + col;
    uint16_t half;
    float value;
    if (b->dtype == CEN_FP32) {
        memcpy(&value, data + at * 4, 4);
        return value;
    }
    memcpy(&half, data + at * 2, 2);
    return b->dtype == CEN_FP16 ? ceni_float_of_f16(half) : ceni_float_of_bf16(half);
}

/* ---- one element at a time ---- */

typedef struct slow {
    cen_calibration_stats stats;
    bool any;
    double sum, sum2;
} slow;

static bool below(float a, float b) {
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static void slow_add(slow *s, float x) {
    s->stats.count++;
    s->stats.nan += isnan(x) != 0;
    s->stats.infinite += isinf(x) != 0;
    if (!isfinite(x)) {
        return;
    }
    s->stats.zeros += x == 0;
    s->stats.min = !s->any || below(x, s->stats.min) ? x : s->stats.min;
    s->stats.max = !s->any || below(s->stats.max, x) ? x : s->stats.max;
    s->stats.amax = fabsf(x) > s->stats.amax ? fabsf(x) : s->stats.amax;
    s->sum += x;
    s->sum2 += (double)x * x;
    s->any = true;
}

static void same_stats(const cen_calibration_stats *a, const cen_calibration_stats *b) {
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->nan, b->nan);
    assert_int_equal(a->infinite, b->infinite);
    assert_int_equal(a->zeros, b->zeros);
    assert_int_equal(ceni_float_bits(a->min), ceni_float_bits(b->min));
    assert_int_equal(ceni_float_bits(a->max), ceni_float_bits(b->max));
    assert_int_equal(ceni_float_bits(a->amax), ceni_float_bits(b->amax));
}

/* Of finite elements, whose sizes add up to at most `sizes`. */
static void near_sum(double got, double wanted, double sizes) {
    if (!(fabs(got - wanted) <= sizes * 0x1p-40)) {
        fail_msg("%.17g is not near %.17g", got, wanted);
    }
}

static void check_whole(const cen_calibration *c, const batch_case *b, const uint8_t *data) {
    uint64_t *bins = calloc(BINS, sizeof *bins);
    slow all = {0};
    cen_calibration_stats stats;
    size_t count;
    assert_non_null(bins);
    for (uint64_t i = 0; i < b->rows * b->cols; i++) {
        float x = value_at(b, data, i / b->cols, i % b->cols), size = fabsf(x);
        slow_add(&all, x);
        if (isfinite(x) && x != 0) {
            size_t bin = ceni_float_bits(size) >> 14;
            assert_true(cen_calibration_edge(bin) <= size && size < cen_calibration_edge(bin + 1));
            bins[bin]++;
        }
    }
    OK(cen_calibration_get_stats(c, &stats));
    same_stats(&stats, &all.stats);
    const uint64_t *got = cen_calibration_bins(c, &count);
    assert_int_equal(count, BINS);
    assert_memory_equal(got, bins, BINS * sizeof *bins);
    free(bins);
}

static void check_channels(const cen_calibration *c, const batch_case *b, const uint8_t *data) {
    bool rows = b->axis == CEN_CHANNELS_ROWS;
    uint64_t channels = rows ? b->rows : b->axis ? b->cols : 0, length = rows ? b->cols : b->rows;
    cen_calibration_channel got;
    for (uint64_t i = 0; i < channels; i++) {
        slow one = {0};
        double sizes = 0;
        for (uint64_t k = 0; k < length; k++) {
            float x = value_at(b, data, rows ? i : k, rows ? k : i);
            slow_add(&one, x);
            sizes += isfinite(x) ? fabs((double)x) : 0;
        }
        OK(cen_calibration_get_channel(c, i, &got));
        same_stats(&got.stats, &one.stats);
        near_sum(got.sum, one.sum, sizes);
        near_sum(got.sum2, one.sum2, one.sum2);
    }
    FAILS(CEN_ERR_INVALID, cen_calibration_get_channel(c, channels, &got));
    suite_log_reset();
}

static void same(const cen_calibration *a, const cen_calibration *b, uint64_t channels) {
    cen_calibration_stats x, y;
    OK(cen_calibration_get_stats(a, &x));
    OK(cen_calibration_get_stats(b, &y));
    same_stats(&x, &y);
    assert_memory_equal(cen_calibration_bins(a, NULL), cen_calibration_bins(b, NULL),
                        BINS * sizeof(uint64_t));
    for (uint64_t i = 0; i < channels; i++) {
        cen_calibration_channel p, q;
        OK(cen_calibration_get_channel(a, i, &p));
        OK(cen_calibration_get_channel(b, i, &q));
        same_stats(&p.stats, &q.stats);
        assert_memory_equal(&p.sum, &q.sum, sizeof p.sum);
        assert_memory_equal(&p.sum2, &q.sum2, sizeof p.sum2);
    }
}

static uint64_t channels_of(const batch_case *b) {
    return b->axis == CEN_CHANNELS_ROWS ? b->rows : b->axis ? b->cols : 0;
}

/* ---- on the device ---- */

/* Device memory of so many bytes. */
static mapped room(cen_device *device, uint64_t bytes) {
    return suite_map(device, (size_t)((bytes + device->granularity - 1) / device->granularity), 0);
}

static cen_matrix matrix_of(const batch_case *b, cen_addr at) {
    return (cen_matrix){at, b->rows, b->cols, b->stride, b->dtype};
}

static void add_on_device(cen_device *device, const cen_calibration *c, cen_addr state,
                          const cen_matrix *batch) {
    cen_status status = cen_calibration_add_async(device, c, state, batch, 0);
    if (status == CEN_ERR_UNSUPPORTED) {
        suite_skip("the library was built without CUDA kernels");
    }
    OK(status);
}

static void run_case(cen_device *device, const batch_case *b) {
    size_t bytes;
    uint8_t *data = make(b, &bytes);
    uint64_t state_bytes;
    cen_calibration *here, *there;
    OK(cen_calibration_create(b->axis, channels_of(b), &here));
    OK(cen_calibration_create(b->axis, channels_of(b), &there));
    cen_matrix batch = matrix_of(b, address(data));
    OK(cen_calibration_add(here, &batch));
    check_whole(here, b, data);
    check_channels(here, b, data);

    OK(cen_calibration_bytes(there, &state_bytes));
    mapped state = room(device, state_bytes), memory = room(device, bytes + 16);
    suite_write(device, memory.addr + b->offset, data, bytes);
    OK(cen_fill_async(device, state.addr, 0xA5, state_bytes, 0));
    OK(cen_calibration_clear_async(device, there, state.addr, 0));
    batch = matrix_of(b, memory.addr + b->offset);
    add_on_device(device, there, state.addr, &batch);
    OK(cen_calibration_collect(device, there, state.addr, 0));
    same(there, here, channels_of(b));
    suite_unmap(device, &state);
    suite_unmap(device, &memory);
    cen_calibration_free(here);
    cen_calibration_free(there);
    free(data);
}

static void counts_of_every_shape(void **state) {
    fixture *f = *state;
    static const uint64_t shapes[][3] = {{1, 1, 1},       {3, 5, 8},      {7, 257, 257},
                                         {1, 5000, 5000}, {5000, 3, 7},   {33, 1031, 1040},
                                         {1100, 64, 64},  {70, 777, 784}, {40000, 2, 2}};
    static const cen_dtype dtypes[] = {CEN_FP32, CEN_FP16, CEN_BF16};
    random_state = 1;
    for (size_t s = 0; s < 9; s++) {
        for (int axis = CEN_CHANNELS_NONE; axis <= CEN_CHANNELS_COLUMNS; axis++) {
            for (size_t d = 0; d < 3; d++) {
                int kind = (int)((s + d + (size_t)axis) % KINDS);
                run_case(f->device, &(batch_case){.dtype = dtypes[d],
                                                  .axis = (cen_channels)axis,
                                                  .rows = shapes[s][0],
                                                  .cols = shapes[s][1],
                                                  .stride = shapes[s][2],
                                                  .kind = kind,
                                                  .offset = s % 4 * 4});
            }
        }
    }
}

static void counts_of_every_kind(void **state) {
    fixture *f = *state;
    random_state = 2;
    for (int kind = 0; kind < KINDS; kind++) {
        batch_case b = {.dtype = CEN_FP32, .axis = CEN_CHANNELS_ROWS, .rows = 3};
        b.cols = b.stride = 9000;
        b.kind = kind;
        run_case(f->device, &b);
        b = (batch_case){.dtype = CEN_BF16, .axis = CEN_CHANNELS_COLUMNS, .rows = 3000};
        b.cols = b.stride = 41;
        b.kind = kind;
        run_case(f->device, &b);
    }
}

/* More channels than parts are kept for. */
static void counts_of_many_channels(void **state) {
    fixture *f = *state;
    random_state = 3;
    batch_case b = {.dtype = CEN_FP16, .axis = CEN_CHANNELS_ROWS, .rows = 270000, .kind = NORMAL};
    b.cols = b.stride = 2;
    run_case(f->device, &b);
}

/* Batches one after another are those of the union, also when they are counted apart and merged. */
static void batches_add_up(void **state) {
    fixture *f = *state;
    cen_device *device = f->device;
    enum { BATCHES = 4 };
    batch_case b = {.dtype = CEN_FP32, .rows = 40, .cols = 90, .stride = 96};
    cen_calibration *all, *there, *merged, *one[BATCHES];
    uint64_t bytes;
    size_t size;
    random_state = 4;
    OK(cen_calibration_create(CEN_CHANNELS_NONE, 0, &all));
    OK(cen_calibration_create(CEN_CHANNELS_NONE, 0, &there));
    OK(cen_calibration_create(CEN_CHANNELS_NONE, 0, &merged));
    OK(cen_calibration_bytes(there, &bytes));
    mapped kept = room(device, bytes), memory = room(device, 40 * 96 * 4);
    OK(cen_calibration_clear_async(device, there, kept.addr, 0));
    for (int i = 0; i < BATCHES; i++) {
        b.kind = i;
        uint8_t *data = make(&b, &size);
        cen_matrix batch = matrix_of(&b, address(data)), on_device = matrix_of(&b, memory.addr);
        OK(cen_calibration_create(CEN_CHANNELS_NONE, 0, &one[i]));
        OK(cen_calibration_add(all, &batch));
        OK(cen_calibration_add(one[i], &batch));
        suite_write(device, memory.addr, data, size);
        add_on_device(device, there, kept.addr, &on_device);
        OK(cen_stream_sync(device, 0));
        free(data);
    }
    for (int i = BATCHES; i-- > 0;) { /* in whatever order */
        OK(cen_calibration_merge(merged, one[i]));
        cen_calibration_free(one[i]);
    }
    OK(cen_calibration_collect(device, there, kept.addr, 0));
    same(merged, all, 0);
    same(there, all, 0);
    suite_unmap(device, &kept);
    suite_unmap(device, &memory);
    cen_calibration_free(all);
    cen_calibration_free(there);
    cen_calibration_free(merged);
}

static void refuses(void **state) {
    fixture *f = *state;
    float data[6] = {0};
    cen_calibration *c;
    cen_matrix batch = {address(data), 2, 3, 3, CEN_FP32};
    OK(cen_calibration_create(CEN_CHANNELS_ROWS, 2, &c));
    FAILS(CEN_ERR_INVALID, cen_calibration_add_async(NULL, c, 8, &batch, 0));
    assert_logged("cen_calibration_add_async: device is NULL");
    FAILS(CEN_ERR_INVALID, cen_calibration_add_async(f->device, c, 12, &batch, 0));
    assert_logged("state is 0xc");
    batch.rows = 1;
    FAILS(CEN_ERR_INVALID, cen_calibration_add_async(f->device, c, 8, &batch, 0));
    assert_logged("batch has 1 channels, the calibration 2");
    batch.dtype = CEN_INT8;
    FAILS(CEN_ERR_INVALID, cen_calibration_add(c, &batch));
    assert_logged("cen_calibration_add: batch is of int8");
    batch = (cen_matrix){0, 2, 0, 0, CEN_FP32};
    OK(cen_calibration_add_async(f->device, c, 8, &batch, 0)); /* nothing to count, nothing done */
    OK(cen_calibration_add(c, &batch));
    cen_calibration_free(c);
}

/* A call of the device's fails: it is returned, and the calibration is as it was. */
static void device_failures(void **state) {
    fixture *f = *state;
    static const enum ceni_dev_op ops[] = {CENI_OP_fill, CENI_OP_launch, CENI_OP_launch,
                                           CENI_OP_copy, CENI_OP_stream_sync};
    batch_case b = {
        .dtype = CEN_FP32, .axis = CEN_CHANNELS_ROWS, .rows = 4, .cols = 3000, .stride = 3000};
    uint64_t bytes;
    size_t size;
    cen_calibration *c;
    OK(cen_calibration_create(b.axis, 4, &c));
    OK(cen_calibration_bytes(c, &bytes));
    uint8_t *data = make(&b, &size);
    mapped kept = room(f->device, bytes), memory = room(f->device, size);
    suite_write(f->device, memory.addr, data, size);
    cen_matrix batch = matrix_of(&b, memory.addr);
    OK(cen_calibration_clear_async(f->device, c, kept.addr, 0));
    add_on_device(f->device, c, kept.addr, &batch);
    for (size_t i = 0; i < 5; i++) {
        ceni_dev_fault(f->device, ops[i], i == 2 ? 2 : 1, false);
        cen_status status = cen_calibration_clear_async(f->device, c, kept.addr, 0);
        status = status ? status : cen_calibration_add_async(f->device, c, kept.addr, &batch, 0);
        status = status ? status : cen_calibration_collect(f->device, c, kept.addr, 0);
        assert_int_not_equal(status, CEN_OK);
        ceni_dev_fault(f->device, ops[i], 0, false);
        cen_calibration_stats stats;
        OK(cen_calibration_get_stats(c, &stats));
        assert_int_equal(stats.count, 0);
        OK(cen_stream_sync(f->device, 0));
    }
    suite_log_reset();
    suite_unmap(f->device, &kept);
    suite_unmap(f->device, &memory);
    cen_calibration_free(c);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(counts_of_every_shape),
        SUITE_TEST(counts_of_every_kind),
        SUITE_TEST(counts_of_many_channels),
        SUITE_TEST(batches_add_up),
        SUITE_TEST(refuses),
        SUITE_TEST(device_failures),
    };
    return suite_run(tests, sizeof tests / sizeof *tests);
}
