/* A library's matrix product on operands that are striped over two GPUs: cuBLAS, found at run time,
 * computes on one device's stream and knows nothing of where the pages lie. CENOTE_CUBLAS names the
 * library's file where the loader does not find it. */
#include <dlfcn.h>

#include "tests/conformance/suite.h"

enum { N = 2048, NO_TRANSPOSE = 0 };

typedef struct cublas {
    void *library;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int transpose_a, int transpose_b, int m, int n, int k,
                const float *alpha, const float *a, int lda, const float *b, int ldb,
                const float *beta, float *c, int ldc);
} cublas;

static void *symbol(const cublas *blas, const char *name) {
    void *found = dlsym(blas->library, name);
    assert_non_null(found);
    return found;
}

static bool load(cublas *blas) {
    const char *names[] = {getenv("CENOTE_CUBLAS"), "libcublas.so.13", "libcublas.so.12"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !blas->library; i++) {
        blas->library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    if (blas->library) {
        *(void **)&blas->create = symbol(blas, "cublasCreate_v2");
        *(void **)&blas->destroy = symbol(blas, "cublasDestroy_v2");
        *(void **)&blas->set_stream = symbol(blas, "cublasSetStream_v2");
        *(void **)&blas->gemm = symbol(blas, "cublasSgemm_v2");
    }
    return blas->library;
}

/* Element (i, j) of the operands, small whole numbers: sums of products are exact in float. */
static float element(int which, int i, int j) {
    return (float)((i * (which ? 3 : 5) + j * (which ? 7 : 11)) % 9 - 4);
}

static float *operand(int which) {
    float *values = malloc(sizeof *values * N * N);
    assert_non_null(values);
    for (int j = 0; j < N; j++) {
        for (int i = 0; i < N; i++) {
            values[j * N + i] = element(which, i, j);
        }
    }
    return values;
}

static double expected(int i, int j) {
    double sum = 0;
    for (int k = 0; k < N; k++) {
        sum += (double)element(0, i, k) * (double)element(1, k, j);
    }
    return sum;
}

static void multiply(const cublas *blas, cen_device *device, void *const *matrices) {
    cen_stream stream;
    void *handle = NULL;
    const float one = 1, zero = 0;
    const size_t bytes = sizeof(float) * N * N;
    float *host[2] = {operand(0), operand(1)}, *product = malloc(bytes);
    assert_non_null(product);
    OK(cen_stream_create(device, 0, &stream));
    for (int i = 0; i < 2; i++) {
        OK(cen_copy_async(device, (cen_addr)matrices[i], (cen_addr)host[i], bytes, stream));
    }
    assert_int_equal(blas->create(&handle), 0);
    assert_int_equal(blas->set_stream(handle, (void *)stream), 0);
    assert_int_equal(blas->gemm(handle, NO_TRANSPOSE, NO_TRANSPOSE, N, N, N, &one, matrices[0], N,
                                matrices[1], N, &zero, matrices[2], N),
                     0);
    OK(cen_copy_async(device, (cen_addr)product, (cen_addr)matrices[2], bytes, stream));
    OK(cen_stream_sync(device, stream));
    for (int j = 0; j < N; j += 61) {
        for (int i = 0; i < N; i += 67) {
            assert_true((double)product[j * N + i] == expected(i, j));
        }
    }
    assert_int_equal(blas->destroy(handle), 0);
    OK(cen_stream_destroy(device, stream));
    free(host[0]);
    free(host[1]);
    free(product);
}

static void a_library_multiplies_striped_matrices(void **state) {
    fixture *f = *state;
    cublas blas = {0};
    int count = 0;
    if (f->host || suite_test_driver(f)) {
        suite_skip("cuBLAS computes on GPUs only");
    }
    OK(cen_device_count("cuda", &count));
    if (count < 2) {
        suite_skip("one GPU only");
    }
    if (!load(&blas)) {
        suite_skip("cuBLAS is not here (CENOTE_CUBLAS names its file)");
    }
    cen_device *devices[2] = {f->device, suite_open(f, 1, NULL)};
    cen_global *global;
    void *matrices[3];
    const cen_global_request request = {
        .size = sizeof request, .placement = CEN_PLACE_STRIPED, .stripe_bytes = (size_t)2 << 20};
    OK(cen_global_create(devices, 2, NULL, &global));
    for (int i = 0; i < 3; i++) {
        cen_global_report where;
        OK(cen_global_alloc(global, sizeof(float) * N * N, 0, &request, &matrices[i], &where));
        assert_int_equal(where.device_bytes[0], where.device_bytes[1]);
    }
    multiply(&blas, devices[0], matrices);
    for (int i = 0; i < 3; i++) {
        OK(cen_global_free(global, matrices[i], 0, 0));
    }
    OK(cen_global_destroy(global));
    cen_device_close(devices[1]);
    dlclose(blas.library);
}

static const struct CMUnitTest tests[] = {
    SUITE_TEST(a_library_multiplies_striped_matrices),
};
SUITE_MAIN(tests)
