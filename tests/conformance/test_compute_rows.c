/* What goes along rows, against doubles: every shape up to 40 x 40, long rows that have a block or
 * several, any alignment and stride, special values, and twice the same bits. */
#include "tests/conformance/compute_suite.h"

enum { SIDE = 40 };

/* Rows and columns: around what a warp, a block and two reads hold, and what is split. */
static const uint64_t longer[][2] = {
    {3, 127},   {9, 1021},  {5, 1022},  {2, 4093},   {3, 8189}, {2, 8193},
    {1, 16381}, {2, 16382}, {3, 40000}, {1, 100001}, {600, 33}, {30, 600},
};
enum { LONGER = sizeof longer / sizeof *longer };

/* The same in whole pieces of 16 bytes, of which a thread has 1 to 8 of one row or several. */
static const uint64_t whole_shapes[][2] = {
    {1, 8},    {70, 8},   {19, 136}, {33, 256}, {67, 512},  {17, 520},  {18, 1024}, {9, 1544},
    {9, 2048}, {5, 2056}, {3, 3072}, {3, 6144}, {2, 16384}, {1, 16392}, {1, 32768}, {1, 32776},
};
enum { WHOLE_SHAPES = sizeof whole_shapes / sizeof *whole_shapes };

/* What all of a case's matrices are, gamma and beta aside, while rows are to be whole. */
static const cen_dtype *whole;

static cen_dtype of_any_type(void) {
    return whole ? *whole : any_type();
}

/* Gamma's and beta's, which may be FP32 in any case. */
static cen_dtype of_factor_type(void) {
    return any_below(2) ? CEN_FP32 : of_any_type();
}

static cen_matrix place(area *a, uint64_t rows, uint64_t cols, cen_dtype dtype) {
    return whole ? area_place(a, rows, cols, any_below(2) * 16, 0, dtype)
                 : area_any(a, rows, cols, dtype);
}

typedef void (*with_shape)(area *a, uint64_t rows, uint64_t cols);

static void every_shape(void **state, with_shape test) {
    area a = area_make(state);
    for (uint64_t rows = 1; rows <= SIDE; rows++) {
        for (uint64_t cols = 1; cols <= SIDE; cols++) {
            test(&a, rows, cols);
        }
    }
    for (size_t i = 0; i < LONGER; i++) {
        for (int n = 0; n < 2; n++) {
            test(&a, longer[i][0], longer[i][1]);
        }
    }
    for (int t = 0; t < 3; t++) {
        whole = &float_types[t];
        for (size_t i = 0; i < WHOLE_SHAPES; i++) {
            test(&a, whole_shapes[i][0], whole_shapes[i][1]);
        }
    }
    whole = NULL;
    area_end(&a);
}

/* As much memory as wanted, or none at times. */
static cen_scratch scratch(area *a, uint64_t bytes, cen_matrix *m) {
    *m = area_place(a, 1, bytes, 0, 0, CEN_INT8);
    return (cen_scratch){m->data, bytes};
}

static double u(double shares) {
    return shares * UNIT;
}

/* ---- sum and largest magnitude ---- */

static void sum_of(const area *a, const cen_matrix *x, uint64_t row, double *sum, double *size,
                   double *most) {
    *sum = *size = *most = 0;
    for (uint64_t j = 0; j < x->cols; j++) {
        double value = area_in(a, x, row, j);
        *sum += value;
        *size += fabs(value);
        *most = fabs(value) > *most ? fabs(value) : *most;
    }
}

static void reduce_one(area *a, uint64_t rows, uint64_t cols) {
    area_clear(a);
    cen_matrix x = place(a, rows, cols, of_any_type()), parts;
    cen_matrix sum = place(a, rows, 1, CEN_FP32), most = place(a, rows, 1, CEN_FP32);
    cen_scratch work = scratch(a, cen_compute_rows_work(rows, cols), &parts);
    const cen_scratch *given = any_below(3) ? &work : NULL;
    area_fill(a, &x, any_float(), 3);
    area_push(a);
    called(cen_compute_row_sum(a->device, &x, given, &sum, 0));
    called(cen_compute_row_absmax(a->device, &x, given, &most, 0));
    area_pull(a, (const cen_matrix *[]){&sum, &most, &parts}, 3);
    for (uint64_t i = 0; i < rows; i++) {
        double expected, size, largest;
        sum_of(a, &x, i, &expected, &size, &largest);
        double bound = u(24 + (double)cols / 1024) * size;
        near("sum", area_out(a, &sum, i, 0), expected, bound, CEN_FP32, i, cols);
        same_value("absmax", area_out(a, &most, i, 0), (float)largest, i, cols);
    }
}

static void sums_and_magnitudes(void **state) {
    every_shape(state, reduce_one);
}

static void rows_without_elements_are_zero(void **state) {
    area a = area_make(state);
    area_clear(&a);
    cen_matrix x = {.rows = 5, .dtype = CEN_FP16}, sum = area_place(&a, 5, 1, 1, 0, CEN_FP32);
    cen_matrix most = area_place(&a, 5, 1, 0, 0, CEN_FP32);
    area_push(&a);
    called(cen_compute_row_sum(a.device, &x, NULL, &sum, 0));
    called(cen_compute_row_absmax(a.device, &x, NULL, &most, 0));
    area_pull(&a, (const cen_matrix *[]){&sum, &most}, 2);
    for (uint64_t i = 0; i < 5; i++) {
        same_value("sum", area_out(&a, &sum, i, 0), 0, i, 0);
        same_value("absmax", area_out(&a, &most, i, 0), 0, i, 0);
    }
    area_end(&a);
}

/* ---- softmax ---- */

static void check_softmax(const area *a, const cen_matrix *x, const cen_matrix *out, uint64_t row) {
    double most = -INFINITY, total = 0;
    for (uint64_t j = 0; j < x->cols; j++) {
        most = fmax(most, area_in(a, x, row, j));
    }
    for (uint64_t j = 0; j < x->cols; j++) {
        total += exp(area_in(a, x, row, j) - most);
    }
    for (uint64_t j = 0; j < x->cols; j++) {
        double expected = exp(area_in(a, x, row, j) - most) / total;
        double bound = u(256 + (double)x->cols / 1024) * expected + 0x1p-126;
        near("softmax", area_out(a, out, row, j), expected, isnan(expected) ? 0 : bound, out->dtype,
             row, j);
    }
}

static void softmax_of(area *a, const cen_matrix *x, const cen_matrix *out,
                       const cen_matrix *parts) {
    cen_scratch work = {parts->data, parts->cols};
    area_push(a);
    called(cen_compute_softmax(a->device, x, &work, out, 0));
    area_pull(a, (const cen_matrix *[]){out, parts}, 2);
    for (uint64_t i = 0; i < x->rows; i++) {
        check_softmax(a, x, out, i);
    }
}

static void softmax_one(area *a, uint64_t rows, uint64_t cols) {
    area_clear(a);
    cen_matrix x = place(a, rows, cols, of_any_type()), out = x, parts;
    if (any_below(3)) {
        out = place(a, rows, cols, of_any_type());
    } else {
        out.dtype = x.dtype == CEN_FP32 ? CEN_FP32 : float_types[1 + any_below(2)];
    }
    uint64_t bytes = any_below(2) ? cen_compute_rows_work(rows, cols) : 0;
    scratch(a, bytes, &parts);
    area_fill(a, &x, 8 * any_float(), any_below(2) ? 4 : 60);
    softmax_of(a, &x, &out, &parts);
}

static void softmax(void **state) {
    every_shape(state, softmax_one);
}

/* Minus infinity, infinity, NaN, at each end of a row, in short rows and in split ones. */
static void softmax_of_what_is_not_finite(void **state) {
    static const uint64_t widths[] = {1, 5, 33, 2000, 40000};
    area a = area_make(state);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        uint64_t cols = widths[w];
        area_clear(&a);
        cen_matrix x = area_place(&a, 7, cols, 0, 0, CEN_FP32), parts;
        cen_matrix out = area_place(&a, 7, cols, 0, 0, CEN_FP32);
        scratch(&a, cen_compute_rows_work(7, cols), &parts);
        area_fill(&a, &x, 0, 2);
        for (uint64_t j = 0; j < cols; j++) {
            area_set(&a, &x, 0, j, -INFINITY);
            area_set(&a, &x, 1, j, j == cols / 2 ? 3 : -INFINITY);
            area_set(&a, &x, 2, j, j ? -INFINITY : NAN);
        }
        area_set(&a, &x, 3, cols - 1, NAN);
        area_set(&a, &x, 4, 0, INFINITY);
        area_set(&a, &x, 5, cols - 1, -INFINITY);
        softmax_of(&a, &x, &out, &parts);
    }
    area_end(&a);
}

/* A NaN anywhere in a row is its largest magnitude; infinity, unless there is one. */
static void magnitudes_keep_nan(void **state) {
    static const uint64_t widths[] = {1, 7, 100, 3000, 40000};
    area a = area_make(state);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (int t = 0; t < 3; t++) {
            uint64_t cols = widths[w];
            area_clear(&a);
            cen_matrix x = area_place(&a, 3, cols, 3, 1, float_types[t]), parts;
            cen_matrix out = area_place(&a, 3, 1, 0, 0, CEN_FP32);
            cen_scratch work = scratch(&a, cen_compute_rows_work(3, cols), &parts);
            area_fill(&a, &x, 0, 2);
            area_set(&a, &x, 0, any_below(cols), NAN);
            area_set(&a, &x, 1, any_below(cols), -INFINITY);
            area_set(&a, &x, 2, any_below(cols), -3);
            area_push(&a);
            called(cen_compute_row_absmax(a.device, &x, &work, &out, 0));
            area_pull(&a, (const cen_matrix *[]){&out, &parts}, 2);
            same_value("absmax", area_out(&a, &out, 0, 0), NAN, 0, cols);
            same_value("absmax", area_out(&a, &out, 1, 0), INFINITY, 1, cols);
            same_value("absmax", area_out(&a, &out, 2, 0), 3, 2, cols);
        }
    }
    area_end(&a);
}

/* ---- layer norm ---- */

/* A row's exact mean, mean magnitude, and spread. */
static void moments_of(const area *a, const cen_matrix *x, uint64_t row, double epsilon,
                       double *mean, double *size, double *spread) {
    double squares = 0, sum, most;
    sum_of(a, x, row, &sum, size, &most);
    *mean = sum / (double)x->cols;
    *size /= (double)x->cols;
    for (uint64_t j = 0; j < x->cols; j++) {
        double apart = area_in(a, x, row, j) - *mean;
        squares += apart * apart;
    }
    *spread = sqrt(squares / (double)x->cols + epsilon);
}

typedef struct norm_case {
    cen_matrix x, y, gamma, beta, mean, rstd, parts;
    bool gamma_there, beta_there, stats_there;
    float epsilon;
} norm_case;

static void check_norm_row(const area *a, const norm_case *n, uint64_t i) {
    double mean, size, spread, cols = (double)n->x.cols;
    moments_of(a, &n->x, i, n->epsilon, &mean, &size, &spread);
    double share = u(64 + cols / 512) * (1 + size / spread);
    if (n->stats_there) {
        near("mean", area_out(a, &n->mean, i, 0), mean, u(24 + cols / 1024) * size, CEN_FP32, i, 0);
        near("rstd", area_out(a, &n->rstd, i, 0), 1 / spread, share / spread, CEN_FP32, i, 0);
    }
    for (uint64_t j = 0; j < n->x.cols; j++) {
        double apart = (area_in(a, &n->x, i, j) - mean) / spread;
        double gamma = n->gamma_there ? area_in(a, &n->gamma, 0, j) : 1;
        double beta = n->beta_there ? area_in(a, &n->beta, 0, j) : 0;
        double bound = share * (fabs(gamma) * (1 + fabs(apart)) + fabs(beta));
        near("layer norm", area_out(a, &n->y, i, j), apart * gamma + beta, bound, n->y.dtype, i, j);
    }
}

static norm_case any_norm(area *a, uint64_t rows, uint64_t cols) {
    area_clear(a);
    norm_case n = {.x = place(a, rows, cols, of_any_type()),
                   .gamma = place(a, 1, cols, of_factor_type()),
                   .beta = place(a, 1, cols, of_factor_type()),
                   .mean = place(a, rows, 1, CEN_FP32),
                   .rstd = place(a, rows, 1, CEN_FP32),
                   .gamma_there = any_below(4),
                   .beta_there = any_below(4),
                   .stats_there = any_below(2),
                   .epsilon = any_below(2) ? 1e-5f : 1e-2f};
    n.y = n.x;
    if (any_below(3)) {
        n.y = place(a, rows, cols, of_any_type());
    }
    scratch(a, any_below(2) ? cen_compute_rows_work(rows, cols) : 0, &n.parts);
    area_fill(a, &n.x, 2 * any_float(), 1.5f);
    area_fill(a, &n.gamma, 1, 0.5f);
    area_fill(a, &n.beta, 0, 1);
    return n;
}

static void norm_one(area *a, uint64_t rows, uint64_t cols) {
    norm_case n = any_norm(a, rows, cols);
    cen_layer_norm call = {.x = &n.x,
                           .gamma = n.gamma_there ? &n.gamma : NULL,
                           .beta = n.beta_there ? &n.beta : NULL,
                           .epsilon = n.epsilon,
                           .y = &n.y,
                           .mean = n.stats_there ? &n.mean : NULL,
                           .rstd = n.stats_there ? &n.rstd : NULL};
    cen_scratch work = {n.parts.data, n.parts.cols};
    area_push(a);
    called(cen_compute_layer_norm(a->device, &call, &work, 0));
    const cen_matrix *outputs[] = {&n.y, &n.parts, &n.mean, &n.rstd};
    area_pull(a, outputs, n.stats_there ? 4 : 2);
    for (uint64_t i = 0; i < rows; i++) {
        check_norm_row(a, &n, i);
    }
}

static void layer_norm(void **state) {
    every_shape(state, norm_one);
}

/* ---- its gradients ---- */

typedef struct back_case {
    cen_matrix dy, x, gamma, mean, rstd, dx, dgamma, dbeta, parts;
    bool gamma_there;
} back_case;

static back_case any_back(area *a, uint64_t rows, uint64_t cols) {
    cen_dtype dtype = of_any_type();
    area_clear(a);
    back_case b = {.dy = place(a, rows, cols, dtype),
                   .x = place(a, rows, cols, dtype),
                   .gamma = place(a, 1, cols, of_any_type()),
                   .mean = place(a, rows, 1, CEN_FP32),
                   .rstd = place(a, rows, 1, CEN_FP32),
                   .dx = place(a, rows, cols, of_any_type()),
                   .dgamma = place(a, 1, cols, of_any_type()),
                   .dbeta = place(a, 1, cols, of_any_type()),
                   .gamma_there = any_below(4)};
    scratch(a, cen_compute_layer_norm_back_work(rows, cols), &b.parts);
    if (!any_below(3)) {
        b.dx = any_below(2) ? b.x : b.dy;
    }
    area_fill(a, &b.x, any_float(), 2);
    area_fill(a, &b.dy, 0.1f, 1);
    area_fill(a, &b.gamma, 1, 0.5f);
    for (uint64_t i = 0; i < rows; i++) {
        double mean, size, spread;
        moments_of(a, &b.x, i, 1e-3, &mean, &size, &spread);
        area_set(a, &b.mean, i, 0, (float)mean);
        area_set(a, &b.rstd, i, 0, (float)(1 / spread));
    }
    return b;
}

static void g_and_h(const area *a, const back_case *b, uint64_t i, uint64_t j, double *g,
                    double *h) {
    double mean = area_in(a, &b->mean, i, 0), rstd = area_in(a, &b->rstd, i, 0);
    *g = area_in(a, &b->dy, i, j) * (b->gamma_there ? (double)area_in(a, &b->gamma, 0, j) : 1);
    *h = (area_in(a, &b->x, i, j) - mean) * rstd;
}

static void check_dx(const area *a, const back_case *b, uint64_t i) {
    double g, h, sum_g = 0, sum_gh = 0, size_g = 0, size_gh = 0, cols = (double)b->x.cols;
    double rstd = area_in(a, &b->rstd, i, 0);
    for (uint64_t j = 0; j < b->x.cols; j++) {
        g_and_h(a, b, i, j, &g, &h);
        sum_g += g / cols, sum_gh += g * h / cols;
        size_g += fabs(g) / cols, size_gh += fabs(g * h) / cols;
    }
    for (uint64_t j = 0; j < b->x.cols; j++) {
        g_and_h(a, b, i, j, &g, &h);
        double size = rstd * (fabs(g) + size_g + fabs(h) * size_gh);
        near("dx", area_out(a, &b->dx, i, j), rstd * (g - sum_g - h * sum_gh),
             u(64 + cols / 512) * size, b->dx.dtype, i, j);
    }
}

static void check_factors(const area *a, const back_case *b) {
    for (uint64_t j = 0; j < b->x.cols; j++) {
        double gamma = 0, beta = 0, gamma_size = 0, beta_size = 0, g, h;
        for (uint64_t i = 0; i < b->x.rows; i++) {
            double dy = area_in(a, &b->dy, i, j);
            g_and_h(a, b, i, j, &g, &h);
            gamma += dy * h, beta += dy;
            gamma_size += fabs(dy * h), beta_size += fabs(dy);
        }
        double share = u(64 + (double)b->x.rows / 8);
        near("dgamma", area_out(a, &b->dgamma, 0, j), gamma, share * gamma_size, b->dgamma.dtype, 0,
             j);
        near("dbeta", area_out(a, &b->dbeta, 0, j), beta, share * beta_size, b->dbeta.dtype, 0, j);
    }
}

static void back_one(area *a, uint64_t rows, uint64_t cols) {
    back_case b = any_back(a, rows, cols);
    uint64_t wanted = any_below(4); /* 0: dx alone; 1: the others alone; else all */
    cen_layer_norm_back call = {.dy = &b.dy,
                                .x = &b.x,
                                .gamma = b.gamma_there ? &b.gamma : NULL,
                                .mean = &b.mean,
                                .rstd = &b.rstd,
                                .dx = wanted == 1 ? NULL : &b.dx,
                                .dgamma = wanted ? &b.dgamma : NULL,
                                .dbeta = wanted ? &b.dbeta : NULL};
    cen_scratch work = {b.parts.data, b.parts.cols};
    const cen_matrix *outputs[4];
    size_t count = 0;
    if (wanted != 1) {
        outputs[count++] = &b.dx;
    }
    if (wanted) {
        outputs[count++] = &b.dgamma;
        outputs[count++] = &b.dbeta;
        outputs[count++] = &b.parts;
    }
    area_push(a);
    called(cen_compute_layer_norm_back(a->device, &call, &work, 0));
    area_pull(a, outputs, count);
    for (uint64_t i = 0; i < rows && call.dx; i++) {
        check_dx(a, &b, i);
    }
    if (wanted) {
        check_factors(a, &b);
    }
}

static void layer_norm_back(void **state) {
    every_shape(state, back_one);
}

/* Without rows, the gradients of gamma and beta are zero. */
static void gradients_of_nothing(void **state) {
    area a = area_make(state);
    area_clear(&a);
    const cen_matrix none = {.cols = 9, .stride = 9, .dtype = CEN_BF16};
    const cen_matrix column = {.cols = 1, .stride = 1, .dtype = CEN_FP32};
    cen_matrix dgamma = area_place(&a, 1, 9, 0, 1, CEN_FP32);
    cen_matrix dbeta = area_place(&a, 1, 9, 0, 3, CEN_FP16);
    cen_layer_norm_back call = {.dy = &none,
                                .x = &none,
                                .mean = &column,
                                .rstd = &column,
                                .dgamma = &dgamma,
                                .dbeta = &dbeta};
    assert_int_equal(cen_compute_layer_norm_back_work(0, 9), 0);
    area_push(&a);
    called(cen_compute_layer_norm_back(a.device, &call, NULL, 0));
    area_pull(&a, (const cen_matrix *[]){&dgamma, &dbeta}, 2);
    for (uint64_t j = 0; j < 9; j++) {
        same_value("dgamma", area_out(&a, &dgamma, 0, j), 0, 0, j);
        same_value("dbeta", area_out(&a, &dbeta, 0, j), 0, 0, j);
    }
    area_end(&a);
}

/* ---- all of them ---- */

/* The same call gives the same bits. */
static void twice_is_the_same(void **state) {
    area a = area_make(state);
    for (uint64_t n = 0; n < 4; n++) {
        static const uint64_t shapes[][2] = {{300, 200}, {2, 50000}, {50, 9000}, {700, 31}};
        norm_case f = any_norm(&a, shapes[n][0], shapes[n][1]);
        if (f.y.data == f.x.data) {
            n--;
            continue;
        }
        cen_layer_norm call = {
            .x = &f.x, .gamma = &f.gamma, .y = &f.y, .mean = &f.mean, .rstd = &f.rstd};
        cen_scratch work = {f.parts.data, f.parts.cols};
        area_push(&a);
        called(cen_compute_layer_norm(a.device, &call, &work, 0));
        suite_read(a.device, a.host, a.memory, a.used);
        called(cen_compute_layer_norm(a.device, &call, &work, 0));
        suite_read(a.device, a.got, a.memory, a.used);
        assert_memory_equal(a.host, a.got, a.used);
    }
    area_end(&a);
}

static void what_is_wrong_is_named(void **state) {
    area a = area_make(state);
    cen_device *d = a.device;
    area_clear(&a);
    cen_matrix x = area_place(&a, 4, 6, 2, 0, CEN_FP16), out = area_place(&a, 4, 6, 0, 0, CEN_FP32);
    cen_matrix column = area_place(&a, 4, 1, 0, 0, CEN_FP32), half = column, other = x;
    half.dtype = CEN_FP16;
    other.dtype = CEN_BF16;
    FAILS(CEN_ERR_INVALID, cen_compute_row_sum(NULL, &x, NULL, &column, 0));
    assert_logged("row_sum: device is NULL");
    FAILS(CEN_ERR_INVALID, cen_compute_row_sum(d, &x, NULL, &out, 0));
    assert_logged("row_sum: out is 4 x 6, not 4 x 1");
    FAILS(CEN_ERR_UNSUPPORTED, cen_compute_row_absmax(d, &x, NULL, &half, 0));
    assert_logged("row_absmax: out is fp16");
    FAILS(CEN_ERR_INVALID, cen_compute_softmax(d, &x, NULL, &column, 0));
    assert_logged("softmax: out is 4 x 1, not 4 x 6");
    cen_layer_norm norm = {.x = &x, .y = &out, .epsilon = -1};
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm(d, NULL, NULL, 0));
    assert_logged("layer_norm: norm is NULL");
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm(d, &norm, NULL, 0));
    assert_logged("layer_norm: epsilon is -1");
    norm.gamma = &column;
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm(d, &norm, NULL, 0));
    assert_logged("layer_norm: gamma is 4 x 1, not 1 x 6");
    norm = (cen_layer_norm){.x = &x, .y = &out, .mean = &column, .rstd = &column};
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm(d, &norm, NULL, 0));
    assert_logged("layer_norm: rstd and mean overlap");
    cen_layer_norm_back back = {
        .dy = &x, .x = &x, .mean = &column, .rstd = &column, .dx = &out, .dgamma = &out};
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm_back(d, &back, NULL, 0));
    assert_logged("work has 0 bytes, and 48 are needed");
    back.dgamma = NULL;
    back.dy = &other;
    FAILS(CEN_ERR_UNSUPPORTED, cen_compute_layer_norm_back(d, &back, NULL, 0));
    assert_logged("dy is bf16, x fp16");
    back =
        (cen_layer_norm_back){.dy = &x, .x = &x, .mean = &column, .rstd = &column, .dx = &column};
    FAILS(CEN_ERR_INVALID, cen_compute_layer_norm_back(d, &back, NULL, 0));
    assert_logged("dx is 4 x 1");
    cen_matrix long_row = area_place(&a, 1, 40000, 0, 0, CEN_FP32), one = column;
    one.rows = 1;
    cen_scratch work = {long_row.data, cen_compute_rows_work(1, 40000)};
    assert_true(work.bytes > 0);
    FAILS(CEN_ERR_INVALID, cen_compute_row_sum(d, &long_row, &work, &one, 0));
    assert_logged("row_sum: work and x overlap");
    work.data++;
    FAILS(CEN_ERR_INVALID, cen_compute_row_sum(d, &long_row, &work, &one, 0));
    assert_logged("no multiple of 16");
    area_end(&a);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(sums_and_magnitudes),
    SUITE_TEST(rows_without_elements_are_zero),
    SUITE_TEST(softmax),
    SUITE_TEST(softmax_of_what_is_not_finite),
    SUITE_TEST(magnitudes_keep_nan),
    SUITE_TEST(layer_norm),
    SUITE_TEST(layer_norm_back),
    SUITE_TEST(gradients_of_nothing),
    SUITE_TEST(twice_is_the_same),
    SUITE_TEST(what_is_wrong_is_named),
};
SUITE_MAIN(tests)
