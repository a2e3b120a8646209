/* What memory-bound kernels take, against what the same bytes take: element-wise steps one by one
 * and fused, casts, copies, reductions along rows, softmax, layer norm and its gradients,
 * transposes.
 *
 * usage: bench_compute [DEVICE]   ("cuda:0" where there is a GPU, else "host"; CENOTE_BENCH_DEVICE)
 * Prints {"name", "about", "figures"}, in microseconds. Each result is first compared with doubles.
 * A floor is the least bytes at the bandwidth of a plain copy, or of a plain read, measured here.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/driver/compute_expect.h"
#include "cenote/cenote.h"
#include "kernels/elementwise.h"
#include "kernels/transpose.h"

enum { ROUNDS = 21, EACH_MAX = 20, PROBE_COLS = 4 };

/* Of both the element-wise cases and those along rows. */
typedef struct shape {
    uint64_t rows, cols;
} shape;

static cen_device *device;
static cen_pool *pool;
static cen_event from, to;
static bool gpu;
static double copy_rate, read_rate; /* bytes a microsecond */
static const char *separator = "";

static void need(cen_status status, const char *what) {
    if (status) {
        fprintf(stderr, "bench_compute: %s: %s\n", what, cen_status_text(status));
        exit(1);
    }
}

static void print_log(void *arg, cen_log_level level, const char *message) {
    (void)arg;
    (void)level;
    fprintf(stderr, "bench_compute: %s\n", message);
}

/* ---- matrices ---- */

static uint64_t size_of(cen_dtype dtype) {
    return cen_dtype_bits(dtype) / 8;
}

static cen_matrix make(uint64_t rows, uint64_t cols, cen_dtype dtype) {
    void *block;
    need(cen_pool_alloc(pool, rows * cols * size_of(dtype), 0, &block), "allocating");
    return (cen_matrix){(cen_addr)(uintptr_t)block, rows, cols, cols, dtype};
}

static void drop(const cen_matrix *m) {
    need(cen_pool_free(pool, (void *)(uintptr_t)m->data, 0), "freeing");
}

static void move(cen_addr dst, cen_addr src, uint64_t bytes) {
    need(cen_copy_async(device, dst, src, bytes, 0), "copying");
    need(cen_stream_sync(device, 0), "waiting");
}

/* In [-2, 2), new in each run; made as fp32 in pieces, and rounded on the device. */
static void randomise(const cen_matrix *m) {
    static uint64_t random;
    enum { PIECE = 1 << 16 };
    float *host = malloc(PIECE * sizeof *host);
    cen_matrix piece = make(1, PIECE, CEN_FP32);
    random = random ? random : bench_now();
    for (uint64_t at = 0; at < m->rows * m->cols; at += PIECE) {
        uint64_t left = m->rows * m->cols - at;
        piece.cols = left < PIECE ? left : PIECE;
        for (uint64_t i = 0; i < piece.cols; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            host[i] = (float)(random >> 40) * 0x1p-22f - 2;
        }
        cen_matrix part = {m->data + at * size_of(m->dtype), 1, piece.cols, piece.cols, m->dtype};
        move(piece.data, (cen_addr)(uintptr_t)host, piece.cols * sizeof *host);
        need(cen_compute_map(device, NULL, 0, &piece, &part, 0), "rounding");
    }
    need(cen_stream_sync(device, 0), "waiting");
    drop(&piece);
    free(host);
}

/* `count` elements from (row, 0) on, as doubles; to be freed. */
static double *values(const cen_matrix *m, uint64_t row, uint64_t count) {
    uint64_t size = size_of(m->dtype);
    uint8_t *bytes = malloc(count * size);
    double *doubles = malloc(count * sizeof *doubles);
    move((cen_addr)(uintptr_t)bytes, m->data + row * m->stride * size, count * size);
    for (uint64_t i = 0; i < count; i++) {
        doubles[i] = value_of(bytes + i * size, m->dtype);
    }
    free(bytes);
    return doubles;
}

/* ||got - expected|| / ||expected||; NaN does not pass. */
static void compare(const char *what, const double *got, const double *expected, uint64_t count,
                    cen_dtype dtype) {
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        apart += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    if (!(sqrt(apart) <= tolerance(dtype) * sqrt(size))) {
        fprintf(stderr, "bench_compute: %s: off by %g of its size\n", what, sqrt(apart / size));
        exit(1);
    }
}

/* ---- one case: what runs, and what is right ---- */

enum op { COPY, CAST, ADD, RELU, GELU, FUSED, UNFUSED, CHAIN, SUM, ABSMAX, SOFTMAX, NORM, BACK };

typedef struct work {
    enum op op;
    cen_matrix x, y, out, bias, column[2], factors[2], scratch;
} work;

static void run_fused(const work *w) {
    cen_map_op ops[] = {{.kind = CEN_MAP_BIAS, .other = &w->bias}, {.kind = CEN_MAP_GELU_TANH}};
    need(cen_compute_map(device, ops, 2, &w->x, &w->out, 0), "bias and gelu");
}

static void run_unfused(const work *w) {
    cen_map_op bias = {.kind = CEN_MAP_BIAS, .other = &w->bias}, gelu = {.kind = CEN_MAP_GELU_TANH};
    need(cen_compute_map(device, &bias, 1, &w->x, &w->out, 0), "bias");
    need(cen_compute_map(device, &gelu, 1, &w->out, &w->out, 0), "gelu");
}

/* As run_fused, but by the kernel that takes any steps. */
static void run_chain(const work *w) {
    ceni_map m = {.x = w->x.data,
                  .out = w->out.data,
                  .x_stride = w->x.stride,
                  .out_stride = w->out.stride,
                  .rows = w->x.rows,
                  .cols = w->x.cols,
                  .x_dtype = (uint16_t)w->x.dtype,
                  .out_dtype = (uint16_t)w->out.dtype,
                  .count = 2,
                  .steps = {{w->bias.data, 0, 0, CENI_MAP_BIAS, (uint16_t)w->bias.dtype},
                            {.kind = CENI_MAP_GELU_TANH}}};
    int piece = w->x.dtype == CEN_FP32 ? 4 : 8;
    uint64_t blocks = w->x.cols / (256 * (uint64_t)piece) + 1;
    cen_launch at = {
        {(uint32_t)blocks, (uint32_t)(w->x.rows < 65535 ? w->x.rows : 65535), 1}, {256, 1, 1}, 0};
    need(cen_kernel_launch(device, piece == 4 ? "cen_map_chain_4" : "cen_map_chain_8", &at,
                           (void *[]){&m}, 1, 0),
         "chain");
}

static void run_norm(const work *w) {
    cen_layer_norm norm = {&w->x,   &w->factors[0], &w->factors[1], 1e-5f,
                           &w->out, &w->column[0],  &w->column[1]};
    need(cen_compute_layer_norm(device, &norm, NULL, 0), "layer norm");
}

static void run_back(const work *w) {
    cen_layer_norm_back back = {&w->y,         &w->x,   &w->bias,       &w->column[0],
                                &w->column[1], &w->out, &w->factors[0], &w->factors[1]};
    cen_scratch scratch = {w->scratch.data, w->scratch.cols};
    need(cen_compute_layer_norm_back(device, &back, &scratch, 0), "layer norm backward");
}

static void run_step(const work *w, cen_map_kind kind) {
    cen_map_op op = {.kind = kind, .other = &w->y};
    need(cen_compute_map(device, &op, kind ? 1 : 0, &w->x, &w->out, 0), "a step");
}

static void run(const work *w) {
    switch (w->op) {
    case COPY:
        need(cen_compute_copy(device, &w->x, &w->out, 0), "copy");
        break;
    case CAST:
        run_step(w, 0);
        break;
    case ADD:
        run_step(w, CEN_MAP_ADD);
        break;
    case RELU:
        run_step(w, CEN_MAP_RELU);
        break;
    case GELU:
        run_step(w, CEN_MAP_GELU);
        break;
    case FUSED:
        run_fused(w);
        break;
    case UNFUSED:
        run_unfused(w);
        break;
    case CHAIN:
        run_chain(w);
        break;
    case SUM:
        need(cen_compute_row_sum(device, &w->x, NULL, &w->column[0], 0), "sum");
        break;
    case ABSMAX:
        need(cen_compute_row_absmax(device, &w->x, NULL, &w->column[0], 0), "absmax");
        break;
    case SOFTMAX:
        need(cen_compute_softmax(device, &w->x, NULL, &w->out, 0), "softmax");
        break;
    case NORM:
        run_norm(w);
        break;
    case BACK:
        run_back(w);
        break;
    }
}

static double step_of(enum op op, double x, double y, double bias) {
    return op == ADD                                     ? x + y
           : op == RELU                                  ? (x < 0 ? 0 : x)
           : op == GELU                                  ? x / 2 * erfc(-x / sqrt(2))
           : op == FUSED || op == UNFUSED || op == CHAIN ? gelu_tanh(x + bias)
                                                         : x;
}

/* One row of what is written back, as it should be. */
static void expect_row(const work *w, uint64_t row, double *expected) {
    uint64_t count = w->x.cols;
    double *x = values(&w->x, row, count), *y = values(&w->y, row, count);
    double *bias = values(&w->bias, 0, count), mean, rstd;
    if (w->op == SOFTMAX) {
        expect_softmax(x, count, expected);
    } else if (w->op == NORM) {
        double *gamma = values(&w->factors[0], 0, count), *beta = values(&w->factors[1], 0, count);
        moments(x, count, &mean, &rstd);
        for (uint64_t j = 0; j < count; j++) {
            expected[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
        }
        free(gamma);
        free(beta);
    } else if (w->op == BACK) {
        expect_back(x, y, bias, count, expected);
    } else {
        for (uint64_t j = 0; j < count; j++) {
            expected[j] = step_of(w->op, x[j], y[j], bias[j]);
        }
    }
    free(x);
    free(y);
    free(bias);
}

static void check_column(const work *w, const char *what, uint64_t row) {
    double *x = values(&w->x, row, w->x.cols), *got = values(&w->column[0], row, 1);
    double expected = 0, size = 0;
    for (uint64_t j = 0; j < w->x.cols; j++) {
        expected = w->op == SUM ? expected + x[j] : fmax(expected, fabs(x[j]));
        size += fabs(x[j]);
    }
    if (!(fabs(got[0] - expected) <= 1e-5 * size)) {
        fprintf(stderr, "bench_compute: %s: %g, not %g\n", what, got[0], expected);
        exit(1);
    }
    free(x);
    free(got);
}

/* The first columns' gradients of gamma and beta, of which only these columns are brought over. */
static void check_factors(const work *w, const char *what) {
    cen_matrix x = w->x, y = w->y, xs = make(x.rows, PROBE_COLS, x.dtype);
    cen_matrix ys = make(x.rows, PROBE_COLS, y.dtype);
    x.cols = y.cols = PROBE_COLS;
    need(cen_compute_copy(device, &x, &xs, 0), "copying columns");
    need(cen_compute_copy(device, &y, &ys, 0), "copying columns");
    double *xv = values(&xs, 0, x.rows * PROBE_COLS), *yv = values(&ys, 0, x.rows * PROBE_COLS);
    double *mean = values(&w->column[0], 0, x.rows), *rstd = values(&w->column[1], 0, x.rows);
    double *gamma = values(&w->factors[0], 0, PROBE_COLS), expected[2][PROBE_COLS] = {{0}};
    double *beta = values(&w->factors[1], 0, PROBE_COLS);
    for (uint64_t i = 0; i < x.rows * PROBE_COLS; i++) {
        uint64_t row = i / PROBE_COLS, col = i % PROBE_COLS;
        expected[0][col] += yv[i] * (xv[i] - mean[row]) * rstd[row];
        expected[1][col] += yv[i];
    }
    compare(what, gamma, expected[0], PROBE_COLS, w->factors[0].dtype);
    compare(what, beta, expected[1], PROBE_COLS, w->factors[1].dtype);
    double *all[] = {xv, yv, mean, rstd, gamma, beta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
    drop(&xs);
    drop(&ys);
}

static void check(const work *w, const char *what) {
    uint64_t rows[] = {0, w->x.rows / 2, w->x.rows - 1};
    need(
        cen_fill_async(device, w->out.data, 0xFF, w->x.rows * w->x.cols * size_of(w->out.dtype), 0),
        "poisoning");
    run(w);
    for (int i = 0; i < 3; i++) {
        if (w->op == SUM || w->op == ABSMAX) {
            check_column(w, what, rows[i]);
            continue;
        }
        double *expected = malloc(w->x.cols * sizeof *expected);
        double *got = values(&w->out, rows[i], w->x.cols);
        expect_row(w, rows[i], expected);
        compare(what, got, expected, w->x.cols, w->out.dtype);
        free(expected);
        free(got);
    }
    if (w->op == BACK) {
        check_factors(w, what);
    }
}

/* ---- times ---- */

/* Microseconds of one call, of so many behind each other. */
static bench_measure measure(void (*call)(const void *arg), const void *arg) {
    double samples[ROUNDS];
    int each = gpu ? EACH_MAX : 1;
    call(arg);
    for (int i = 0; i < ROUNDS; i++) {
        float ms;
        need(cen_event_record(device, from, 0), "recording");
        for (int k = 0; k < each; k++) {
            call(arg);
        }
        need(cen_event_record(device, to, 0), "recording");
        need(cen_event_sync(device, to), "waiting");
        need(cen_event_elapsed(device, from, to, &ms), "timing");
        samples[i] = (double)ms * 1000 / each;
    }
    return bench_measure_of(samples, ROUNDS);
}

static void call_work(const void *arg) {
    run(arg);
}

static void figure(const char *what, bench_measure us, double bytes, bool only_read) {
    double rate = only_read ? read_rate : copy_rate;
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, what, "us", us);
    printf(", \"floor\": %.6g, \"floor_reason\": \"%.4g MB at %.4g GB/s, a plain %s\"}",
           bytes / rate, bytes / 1e6, rate / 1000, only_read ? "read" : "copy");
}

typedef struct plain {
    const char *kernel;
    uint64_t dst, src, bytes;
} plain;

static void call_plain(const void *arg) {
    plain p = *(const plain *)arg;
    uint64_t rounds = 1, run = 512 * 4 * 16; /* what a block moves at a time */
    cen_launch at = {{(uint32_t)((p.bytes + run - 1) / run), 1, 1}, {512, 1, 1}, 0};
    bool copies = p.dst && strstr(p.kernel, "copy");
    void *copy[] = {&p.dst, &p.src, &p.bytes, &rounds},
         *read[] = {&p.src, &p.bytes, &rounds, &p.dst};
    need(cen_kernel_launch(device, p.kernel, &at, copies ? copy : read, 4, 0), p.kernel);
}

static void measure_rates(const cen_matrix *x, const cen_matrix *out) {
    uint64_t bytes = x->rows * x->cols * size_of(x->dtype);
    plain copy = {"cen_copy", out->data, x->data, bytes},
          read = {"cen_read", out->data, x->data, bytes};
    copy_rate = 2 * (double)bytes / measure(call_plain, &copy).lowest;
    read_rate = (double)bytes / measure(call_plain, &read).lowest;
}

/* ---- the cases ---- */

static const struct {
    const char *name;
    enum op op;
    double moves; /* matrices of x's type that are read or written */
} cases[] = {
    {"copy", COPY, 2},
    {"add", ADD, 3},
    {"relu", RELU, 2},
    {"gelu", GELU, 2},
    {"bias + gelu, one call each", UNFUSED, 2},
    {"bias + gelu, any steps", CHAIN, 2},
    {"bias + gelu", FUSED, 2},
    {"sum of rows", SUM, 1},
    {"largest magnitude of rows", ABSMAX, 1},
    {"softmax", SOFTMAX, 2},
    {"layer norm", NORM, 2},
    {"layer norm backward", BACK, 3},
};

static work make_work(shape s, cen_dtype dtype) {
    uint64_t scratch = cen_compute_layer_norm_back_work(s.rows, s.cols);
    work w = {.x = make(s.rows, s.cols, dtype),
              .y = make(s.rows, s.cols, dtype),
              .out = make(s.rows, s.cols, dtype),
              .bias = make(1, s.cols, dtype),
              .column = {make(s.rows, 1, CEN_FP32), make(s.rows, 1, CEN_FP32)},
              .factors = {make(1, s.cols, CEN_FP32), make(1, s.cols, CEN_FP32)},
              .scratch = make(1, scratch, CEN_UINT8)};
    cen_matrix *filled[] = {&w.x, &w.y, &w.bias, &w.factors[0], &w.factors[1]};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        randomise(filled[i]);
    }
    return w;
}

static void drop_work(const work *w) {
    const cen_matrix *all[] = {&w->x,          &w->y,          &w->out,
                               &w->bias,       &w->column[0],  &w->column[1],
                               &w->factors[0], &w->factors[1], &w->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        drop(all[i]);
    }
}

static void measure_shape(shape s, cen_dtype dtype) {
    work w = make_work(s, dtype);
    double bytes = (double)(s.rows * s.cols * size_of(dtype));
    if (copy_rate == 0) {
        measure_rates(&w.x, &w.out);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[128];
        snprintf(what, sizeof what, "%s, %s, %" PRIu64 " x %" PRIu64, cases[i].name,
                 cen_dtype_name(dtype), s.rows, s.cols);
        w.op = cases[i].op;
        check(&w, what); /* layer norm leaves what its gradients need */
        figure(what, measure(call_work, &w), cases[i].moves * bytes, cases[i].moves == 1);
    }
    drop_work(&w);
}

static void measure_casts(shape s) {
    static const cen_dtype types[][2] = {
        {CEN_FP32, CEN_BF16}, {CEN_BF16, CEN_FP32}, {CEN_FP32, CEN_FP16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        work w = make_work(s, types[i][0]);
        cen_matrix own = w.out, other = make(s.rows, s.cols, types[i][1]);
        char what[128];
        snprintf(what, sizeof what, "cast to %s, %s, %" PRIu64 " x %" PRIu64,
                 cen_dtype_name(types[i][1]), cen_dtype_name(types[i][0]), s.rows, s.cols);
        w.op = CAST;
        w.out = other;
        check(&w, what);
        figure(what, measure(call_work, &w),
               (double)(s.rows * s.cols * (size_of(types[i][0]) + size_of(types[i][1]))), false);
        w.out = own;
        drop_work(&w);
        drop(&other);
    }
}

/* ---- transposes: each rung ---- */

typedef struct transposing {
    const char *kernel; /* NULL: the call */
    cen_matrix x, out;
} transposing;

static void call_transpose(const void *arg) {
    const transposing *t = arg;
    if (!t->kernel) {
        need(cen_compute_transpose(device, &t->x, &t->out, 0), "transpose");
        return;
    }
    ceni_transpose args = {t->out.data, t->x.data, t->out.stride,      t->x.stride,
                           t->x.rows,   t->x.cols, size_of(t->x.dtype)};
    cen_launch at = {
        {(uint32_t)(t->x.cols / 32 + 1), (uint32_t)(t->x.rows / 32 + 1), 1}, {32, 8, 1}, 0};
    need(cen_kernel_launch(device, t->kernel, &at, (void *[]){&args}, 1, 0), t->kernel);
}

static void measure_transpose(const char *name, const char *kernel, shape s, cen_dtype dtype) {
    transposing t = {kernel, make(s.rows, s.cols, dtype), make(s.cols, s.rows, dtype)};
    char what[128];
    uint64_t size = size_of(dtype);
    cen_matrix bytes = {t.x.data, 1, s.rows * s.cols * size / 4, s.rows * s.cols * size / 4,
                        CEN_FP32};
    snprintf(what, sizeof what, "transpose%s, %s, %" PRIu64 " x %" PRIu64, name,
             cen_dtype_name(dtype), s.rows, s.cols);
    randomise(&bytes);
    need(cen_fill_async(device, t.out.data, 0xFF, s.rows * s.cols * size, 0), "poisoning");
    call_transpose(&t);
    /* One column of x is one row of the result. */
    cen_matrix column = t.x, row = t.out, gathered = make(s.rows, 1, dtype);
    column.data += (s.cols - 3) * size;
    column.cols = 1;
    need(cen_compute_copy(device, &column, &gathered, 0), "copying a column");
    uint8_t *expected = malloc(s.rows * size), *got = malloc(s.rows * size);
    move((cen_addr)(uintptr_t)expected, gathered.data, s.rows * size);
    move((cen_addr)(uintptr_t)got, row.data + (s.cols - 3) * row.stride * size, s.rows * size);
    if (memcmp(expected, got, s.rows * size)) {
        fprintf(stderr, "bench_compute: %s is wrong\n", what);
        exit(1);
    }
    free(expected);
    free(got);
    figure(what, measure(call_transpose, &t), 2 * (double)(s.rows * s.cols * size), false);
    drop(&t.x);
    drop(&t.out);
    drop(&gathered);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : getenv("CENOTE_BENCH_DEVICE");
    int gpus = 0;
    cen_log_set(print_log, NULL, CEN_LOG_ERROR);
    need(cen_device_count("cuda", &gpus), "counting GPUs");
    name = name ? name : gpus ? "cuda:0" : "host";
    gpu = !strncmp(name, "cuda", 4);
    need(cen_device_open(name, &device), "opening");
    need(cen_pool_create(device, NULL, &pool), "making a pool");
    need(cen_event_create(device, CEN_EVENT_TIMING, &from), "making an event");
    need(cen_event_create(device, CEN_EVENT_TIMING, &to), "making an event");
    shape square = gpu ? (shape){16384, 8192} : (shape){96, 256};
    shape narrow = gpu ? (shape){262144, 512} : (shape){300, 64};
    printf("{\"name\": \"compute\", \"about\": \"Each kernel alone, %d calls behind each other "
           "between "
           "two events, over matrices that no cache holds.\", \"figures\": [",
           gpu ? EACH_MAX : 1);
    measure_shape(square, CEN_FP32);
    measure_shape(square, CEN_BF16);
    measure_shape(narrow, CEN_FP16);
    measure_casts(square);
    measure_transpose(" element by element", "cen_transpose_naive_4", square, CEN_FP32);
    measure_transpose(" in shared memory", "cen_transpose_shared_4", square, CEN_FP32);
    measure_transpose(" padded", "cen_transpose_padded_4", square, CEN_FP32);
    measure_transpose("", NULL, square, CEN_FP32);
    measure_transpose("", NULL, square, CEN_INT8);
    measure_transpose("", NULL, square, CEN_BF16);
    measure_transpose("", NULL, square, CEN_FP64);
    printf("\n]}\n");
    need(cen_event_destroy(device, from), "destroying an event");
    need(cen_event_destroy(device, to), "destroying an event");
    cen_pool_destroy(pool);
    cen_device_close(device);
    return 0;
}
