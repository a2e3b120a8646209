// What src/kernels/wgmma.cuh takes for granted of Hopper, each thing apart, so that one run says which
// of them is wrong: how the copy engine lays boxes out, how wgmma finds operands, barriers of two
// blocks, turns of warpgroups and registers that they give each other, and how boxes leave.
//
// usage: hopper [STEP...]: each step is a process that has 20 seconds. Exit status: 0 all are right,
// 1 one is wrong or hung (which is named), 77 there is no GPU of compute capability 9.0.

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "kernels/wgmma_finish.cuh"
#include "maps.cuh"

enum { SECONDS = 20, STEPS = 64 };

// ---- host ----

typedef std::vector<uint16_t> halves;

// BF16 of a small whole number, exact.
static uint16_t bf16_of(int value) {
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static int value_at(uint32_t row, uint32_t col, int seed) {
    return (int)((row * 7 + col * 3 + row * col % 11 + (uint32_t)seed) % 13) - 6;
}

static halves matrix_of(uint32_t rows, uint32_t cols, int seed) {
    halves m(rows * cols);
    for (uint32_t i = 0; i < rows * cols; i++) {
        m[i] = bf16_of(value_at(i / cols, i % cols, seed));
    }
    return m;
}

template <typename T> static T *on_device(const std::vector<T> &from) {
    T *to;
    require(cudaMalloc(&to, from.size() * sizeof(T)), "cudaMalloc");
    require(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return to;
}

template <typename T> static std::vector<T> from_device(const T *from, size_t count) {
    std::vector<T> to(count);
    require(cudaGetLastError(), "launching");
    require(cudaDeviceSynchronize(), "running");
    require(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return to;
}

// Where the half of column `col` lies in row `row` of a box, in halves.
__host__ __device__ static uint32_t swizzled(uint32_t row, uint32_t col) {
    return row * BOX_COLS + ((col / 8 ^ row % 8) * 8 + col % 8);
}

// What a box at (row, col) of a matrix is in shared memory; zeros where it lies outside.
static bool is_box(const halves &got, size_t at, const halves &m, uint32_t rows, uint32_t cols, uint32_t row,
                   uint32_t col, uint32_t box_rows) {
    for (uint32_t r = 0; r < box_rows; r++) {
        for (uint32_t c = 0; c < BOX_COLS; c++) {
            bool inside = row + r < rows && col + c < cols;
            uint16_t want = inside ? m[(row + r) * cols + col + c] : 0, is = got[at + swizzled(r, c)];
            if (is != want) {
                fprintf(stderr, "row %u, column %u of the box is %04x, not %04x\n", r, c, is, want);
                return false;
            }
        }
    }
    return true;
}

template <typename Kernel> static void allow_shared(Kernel kernel, int bytes) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "cudaFuncSetAttribute");
}

// ---- device ----

extern __shared__ __align__(1024) unsigned char dynamic[];

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
using namespace product;

// One barrier for `arrivals`, seen by the copy engine and the other block.
__device__ static void begin_barrier(uint64_t *barrier, uint32_t arrivals) {
    if (threadIdx.x == 0) {
        barrier_init(shared_address(barrier), arrivals);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        stores_seen_by_engines();
    }
    __syncthreads();
}

// An operand into shared memory by ordinary stores: as the stages of wgmma_tiles.cuh have it.
template <bool ALONG> __device__ static void put_operand(uint16_t *to, const uint16_t *from, uint32_t mn) {
    for (uint32_t i = threadIdx.x; i < mn * STEPS; i += blockDim.x) {
        uint32_t row = i / STEPS, k = i % STEPS;
        to[ALONG ? swizzled(row, k) : row / 64 * (BOX_BYTES / 2) + swizzled(k, row % 64)] = from[i];
    }
}

// Sums as a warpgroup has them, to a matrix of `cols` columns.
template <int COUNT> __device__ static void put_sums(float *to, const float (&sums)[COUNT], uint32_t cols) {
    uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        to[(row + i / 2 % 2 * 8) * cols + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
    }
}
#endif

__global__ void take_box(const __grid_constant__ tensor_map map, uint32_t row, uint32_t col, uint32_t bytes,
                         uint16_t *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ uint64_t barrier;
    begin_barrier(&barrier, 1);
    uint32_t at = shared_address(&barrier);
    if (threadIdx.x == 0) {
        barrier_expect(at, bytes);
        copy_box(shared_address(dynamic), &map, col, row, at);
    }
    barrier_wait(at, 0);
    for (uint32_t i = threadIdx.x; i < bytes / 2; i += blockDim.x) {
        out[i] = ((uint16_t *)dynamic)[i];
    }
#endif
}

__global__ void take_pixels(const __grid_constant__ tensor_map map, int x, int y, uint32_t image, uint32_t channel,
                            uint32_t right, uint32_t down, uint16_t *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ uint64_t barrier;
    begin_barrier(&barrier, 1);
    uint32_t at = shared_address(&barrier);
    if (threadIdx.x == 0) {
        barrier_expect(at, ROWS * BOX_COLS * 2);
        copy_pixels(shared_address(dynamic), &map, channel, x, y, image, right, down, at);
    }
    barrier_wait(at, 0);
    for (uint32_t i = threadIdx.x; i < ROWS * BOX_COLS; i += blockDim.x) {
        out[i] = ((uint16_t *)dynamic)[i];
    }
#endif
}

// Two warpgroups multiply 64 rows each: A of 128 x 64, B of 64 x COLS, given as rows and columns
// that lie along the sum.
template <int COLS, bool A_ALONG, bool B_ALONG>
__global__ void __launch_bounds__(256) multiply(const uint16_t *a, const uint16_t *b, float *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    uint16_t *in_a = (uint16_t *)dynamic, *in_b = in_a + ROWS * STEPS;
    put_operand<A_ALONG>(in_a, a, ROWS);
    put_operand<B_ALONG>(in_b, b, COLS);
    stores_seen_by_engines();
    __syncthreads();
    float sums[COLS / 2];
    uint32_t group = threadIdx.x / 128;
    uint64_t at_a = describe<A_ALONG>(shared_address(in_a) + group * BOX_BYTES);
    uint64_t at_b = describe<B_ALONG>(shared_address(in_b));
    wgmma_begin();
#pragma unroll
    for (uint32_t k = 0; k < STEPS / 16; k++) {
        wgmma<!A_ALONG, !B_ALONG>(wgmma_bf16(), sums, at_a + k * step_16<A_ALONG>(), at_b + k * step_16<B_ALONG>(), k);
    }
    wgmma_commit();
    wgmma_wait<0>();
    put_sums(out, sums, COLS);
#endif
}

// A warpgroup brings A by cp.async, 64 rows along the sum, and the other multiplies it.
__global__ void __launch_bounds__(256) gather(const uint16_t *a, const uint16_t *b, float *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ uint64_t full;
    uint16_t *in_a = (uint16_t *)dynamic, *in_b = in_a + 64 * STEPS;
    put_operand<true>(in_b, b, 128);
    stores_seen_by_engines();
    begin_barrier(&full, 128);
    if (threadIdx.x < 128) {
        for (uint32_t part = threadIdx.x; part < 64 * 8; part += 128) {
            copy_16_near(shared_address(in_a + swizzled(part / 8, part % 8 * 8)), a + part * 8, 16);
        }
        copies_commit();
        copies_wait<0>();
        stores_seen_by_engines();
        barrier_arrive(shared_address(&full));
    } else {
        float sums[64];
        uint64_t at_a = describe<true>(shared_address(in_a)), at_b = describe<true>(shared_address(in_b));
        barrier_wait(shared_address(&full), 0);
        wgmma_begin();
#pragma unroll
        for (uint32_t k = 0; k < STEPS / 16; k++) {
            wgmma<0, 0>(wgmma_bf16(), sums, at_a + k * step_16<true>(), at_b + k * step_16<true>(), k);
        }
        wgmma_commit();
        wgmma_wait<0>();
        put_sums(out - 64 * 128, sums, 128); // this warpgroup's threads begin at 128
    }
#endif
}

// Each of two blocks brings one box to both, and then says so to both.
__global__ void __cluster_dims__(2, 1, 1) share_boxes(const __grid_constant__ tensor_map map, uint16_t *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ uint64_t full, read;
    begin_barrier(&full, 1);
    begin_barrier(&read, 2);
    pair_sync();
    uint32_t rank = pair_rank(), at = shared_address(&full);
    for (uint32_t round = 0; round < 4; round++) {
        if (threadIdx.x == 0) {
            barrier_wait(shared_address(&read), round % 2 ^ 1);
            barrier_expect(at, 2 * BOX_BYTES);
            copy_box_to_both(shared_address(dynamic) + rank * BOX_BYTES, &map, round * BOX_COLS, rank * 64, at);
        }
        barrier_wait(at, round % 2);
        for (uint32_t i = threadIdx.x; i < BOX_BYTES; i += blockDim.x) {
            out[(blockIdx.x * 4 + round) * BOX_BYTES + i] = ((uint16_t *)dynamic)[i];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            barrier_arrive(shared_address(&read));
            barrier_arrive_other(shared_address(&read), rank ^ 1);
        }
    }
    pair_sync();
#endif
}

// A warp takes a box of `more` in whole rows, reads it as matrices, and sends it out with the value of
// each place added, from two boxes in turn.
__global__ void __launch_bounds__(32) send_boxes(const __grid_constant__ tensor_map map, const uint16_t *more,
                                                 uint32_t cols, uint32_t boxes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    uint32_t lane = threadIdx.x;
    for (uint32_t i = 0; i < boxes; i++) {
        uint32_t box = shared_address(dynamic) + i % 2 * OUT_BYTES;
        if (lane == 0) {
            boxes_wait<1>();
        }
        __syncwarp();
        for (uint32_t part = lane; part < OUT_BYTES / 16; part += 32) {
            uint32_t row = part / 8, col = i * OUT_COLS + part % 8 * 8;
            prefetch_far((uint64_t)more);
            prefetch_near((uint64_t)more);
            uint4 halves = col < cols ? *(const uint4 *)(more + row * cols + col) : make_uint4(0, 0, 0, 0);
            store_shared_16(box + swizzled(row, part % 8 * 8) * 2, halves);
        }
        __syncwarp();
        for (uint32_t group = 0; group < OUT_GROUPS; group += 2) {
            uint32_t words[4];
            load_matrices(group_pair(box, group), words);
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t row = lane / 4 + j % 2 * 8, col = i * OUT_COLS + (group + j / 2) * 8 + lane % 4 * 2;
                float2 v = floats_of<true>(words[j]);
                words[j] = halves_of<true>(v.x + (float)((row + col) % 16), v.y + (float)((row + col + 1) % 16));
            }
            store_matrices(group_pair(box, group), words);
        }
        stores_seen_by_engines();
        __syncwarp();
        if (lane == 0) {
            store_box(&map, box, i * OUT_COLS, 0);
            boxes_commit();
        }
    }
    if (lane == 0) {
        boxes_wait<0>();
    }
#endif
}

// The second warpgroup waits for the first to say that it may go on, round after round.
__global__ void __launch_bounds__(256) take_turns(uint32_t *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ uint32_t said;
    for (uint32_t round = 0; round < 4; round++) {
        if (threadIdx.x == 0) {
            said = round + 1;
        }
        if (threadIdx.x < 128) {
            group_goes_on();
        } else {
            group_waits();
            out[round * 128 + threadIdx.x - 128] = said;
        }
        __syncthreads();
    }
#endif
}

// GELU of pairs, each of a number and one that must leave it alone.
__global__ void gelu_pairs(const float *in, float *out, uint32_t count) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    for (uint32_t i = threadIdx.x * 2; i < count; i += blockDim.x * 2) {
        out[i] = in[i], out[i + 1] = in[i + 1];
        gelu_tanh_two(out[i], out[i + 1]);
    }
#endif
}

// A warpgroup gives up registers for two others, which have 128 sums each.
__global__ void __launch_bounds__(384, 1) exchange(float *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        out[threadIdx.x - 128] = (float)threadIdx.x;
    }
#endif
}

// ---- steps ----

static void step_box(uint32_t rows, uint32_t cols, uint32_t row, uint32_t col, uint32_t box_rows) {
    halves m = matrix_of(rows, cols, 1);
    tensor_map map = map_of(on_device(m), rows, cols, box_rows);
    size_t count = box_rows * BOX_COLS;
    uint16_t *out = on_device(halves(count, 0xFFFF));
    allow_shared(take_box, 48 * 1024);
    take_box<<<1, 128, count * 2>>>(map, row, col, (uint32_t)count * 2, out);
    if (!is_box(from_device(out, count), 0, m, rows, cols, row, col, box_rows)) {
        exit(1);
    }
}

// All taps of 128 windows from the first on, and their 64 channels from `channel` on.
static void step_pixels(images m, int first, int channel) {
    halves data = matrix_of((uint32_t)(m.count * m.y.size * m.x.size), (uint32_t)m.channels, 4);
    tensor_map map = m.map(on_device(data));
    uint16_t *out = on_device(halves(ROWS * BOX_COLS, 0xFFFF));
    int each = m.y.windows() * m.x.windows(), at = first % each;
    for (int tap = 0; tap < m.y.filter * m.x.filter; tap++) {
        int down = tap / m.x.filter, right = tap % m.x.filter;
        take_pixels<<<1, 128, ROWS * BOX_COLS * 2>>>(map, m.x.first(at % m.x.windows()), m.y.first(at / m.x.windows()),
                                                     (uint32_t)(first / each), (uint32_t)channel,
                                                     (uint32_t)(right * m.x.dilation),
                                                     (uint32_t)(down * m.y.dilation), out);
        halves got = from_device(out, ROWS * BOX_COLS);
        for (int i = 0; i < ROWS * BOX_COLS; i++) {
            int pixel = m.pixel(first + i / BOX_COLS, down, right), c = channel + i % BOX_COLS;
            uint16_t want = pixel < 0 ? 0 : data[(size_t)pixel * m.channels + c];
            uint16_t is = got[swizzled((uint32_t)i / BOX_COLS, (uint32_t)i % BOX_COLS)];
            if (is != want) {
                fprintf(stderr, "tap (%d, %d), window %d, channel %d is %04x, not %04x\n", down, right,
                        first + i / BOX_COLS, c, is, want);
                exit(1);
            }
        }
    }
}

// out: the product of the first rows of what matrix_of makes of seeds 2 and 5.
static void need_product(const float *out, uint32_t rows, uint32_t cols) {
    std::vector<float> got = from_device(out, rows * cols);
    for (uint32_t i = 0; i < rows * cols; i++) {
        int want = 0;
        for (uint32_t k = 0; k < STEPS; k++) {
            want += value_at(i / cols, k, 2) * value_at(i % cols, k, 5);
        }
        if (got[i] != (float)want) {
            fprintf(stderr, "row %u, column %u is %g, not %d\n", i / cols, i % cols, got[i], want);
            exit(1);
        }
    }
}

template <int COLS, bool A_ALONG, bool B_ALONG> static void step_multiply() {
    halves a = matrix_of(ROWS, STEPS, 2), b = matrix_of(COLS, STEPS, 5);
    float *out = on_device(std::vector<float>(ROWS * COLS, -1e30f));
    int bytes = (ROWS + COLS) * STEPS * 2;
    allow_shared(multiply<COLS, A_ALONG, B_ALONG>, bytes);
    multiply<COLS, A_ALONG, B_ALONG><<<1, 256, bytes>>>(on_device(a), on_device(b), out);
    need_product(out, ROWS, COLS);
}

static void step_gather() {
    halves a = matrix_of(64, STEPS, 2), b = matrix_of(128, STEPS, 5);
    float *out = on_device(std::vector<float>(64 * 128, -1e30f));
    gather<<<1, 256, (64 + 128) * STEPS * 2>>>(on_device(a), on_device(b), out);
    need_product(out, 64, 128);
}

static void step_share() {
    const uint32_t cols = 4 * BOX_COLS, size = product::BOX_BYTES;
    halves m = matrix_of(128, cols, 3);
    tensor_map map = map_of(on_device(m), 128, cols, 64);
    uint16_t *out = on_device(halves(8 * size, 0xFFFF));
    share_boxes<<<2, 128, 2 * size>>>(map, out);
    halves got = from_device(out, 8 * size);
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t round = i / 2 % 4, half = i % 2;
        if (!is_box(got, i * size / 2, m, 128, cols, half * 64, round * BOX_COLS, 64)) {
            fprintf(stderr, "block %u, round %u, the box of block %u\n", i / 8, round, half);
            exit(1);
        }
    }
}

static void step_exchange() {
    float *out = on_device(std::vector<float>(256, 0));
    exchange<<<1, 384>>>(out);
    std::vector<float> got = from_device(out, 256);
    for (uint32_t i = 0; i < 256; i++) {
        if (got[i] != (float)(i + 128)) {
            fprintf(stderr, "thread %u wrote %g\n", i + 128, got[i]);
            exit(1);
        }
    }
}

// Boxes over both ends of D, whose rows are a multiple of 16 bytes apart; what surrounds it stays.
static void step_send(uint32_t rows, uint32_t cols) {
    const uint32_t stride = 152, all = 20 * stride;
    halves more = matrix_of(16, cols, 4);
    uint16_t *out = on_device(halves(all, 0x4242));
    tensor_map map = map_of(out, rows, cols, 16, stride);
    send_boxes<<<1, 32, 2 * product::OUT_BYTES>>>(map, on_device(more), cols, 3);
    halves got = from_device(out, all);
    for (uint32_t i = 0; i < all; i++) {
        uint32_t row = i / stride, col = i % stride;
        bool inside = row < rows && col < cols;
        uint16_t want = inside ? bf16_of(value_at(row, col, 4) + (int)((row + col) % 16)) : 0x4242;
        if (got[i] != want) {
            fprintf(stderr, "row %u, column %u is %04x, not %04x\n", row, col, got[i], want);
            exit(1);
        }
    }
}

static void step_turns() {
    uint32_t *out = on_device(std::vector<uint32_t>(4 * 128, 0));
    take_turns<<<1, 256>>>(out);
    std::vector<uint32_t> got = from_device(out, 4 * 128);
    for (uint32_t i = 0; i < 4 * 128; i++) {
        if (got[i] != i / 128 + 1) {
            fprintf(stderr, "round %u, thread %u saw %u\n", i / 128, i % 128, got[i]);
            exit(1);
        }
    }
}

static void step_gelu() {
    const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 0, -9, 9};
    std::vector<float> in;
    for (int i = -2000; i <= 2000; i++) {
        in.push_back((float)i / 200);
        in.push_back(odd[(i + 2000) % 8]);
    }
    float *out = on_device(in);
    gelu_pairs<<<1, 256>>>(on_device(in), out, (uint32_t)in.size());
    std::vector<float> got = from_device(out, in.size());
    for (size_t i = 0; i < in.size(); i++) {
        double x = in[i], u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
        double want = x == -INFINITY ? 0 : x * 0.5 * (1 + tanh(u));
        double most = 0x1p-20 * (x < 0 ? fmin(-x, 64) : x);
        if (isnan(x) ? !isnan(got[i]) : got[i] != (float)want && !(fabs(got[i] - want) <= most)) {
            fprintf(stderr, "of %g beside %g it is %g, not %g\n", x, in[i ^ 1], got[i], want);
            exit(1);
        }
    }
}

static const struct step {
    const char *name;
    void (*run)();
} steps[] = {
    {"box of rows", [] { step_box(300, 200, 128, 64, 128); }},
    {"box of 256 rows", [] { step_box(300, 200, 0, 0, 256); }},
    {"box of steps", [] { step_box(300, 200, 64, 64, 64); }},
    {"box over both ends", [] { step_box(300, 200, 256, 192, 128); }},
    {"box outside", [] { step_box(100, 64, 128, 0, 128); }},
    {"box of one row", [] { step_box(1, 8, 0, 0, 128); }},
    {"pixels as they lie", [] { step_pixels({1, 64, {16, 1, 1, 1, 0}, {16, 1, 1, 1, 0}}, 0, 0); }},
    {"pixels, padded", [] { step_pixels({1, 64, {14, 3, 1, 1, 1}, {14, 3, 1, 1, 1}}, 0, 0); }},
    {"pixels, padded, to the end", [] { step_pixels({1, 64, {16, 3, 1, 1, 1}, {16, 3, 1, 1, 1}}, 128, 0); }},
    {"pixels by 2", [] { step_pixels({1, 64, {31, 3, 2, 1, 1}, {32, 3, 2, 1, 1}}, 0, 0); }},
    {"pixels of two images", [] { step_pixels({2, 64, {14, 3, 1, 1, 1}, {14, 3, 1, 1, 1}}, 128, 0); }},
    {"pixels of many images", [] { step_pixels({9, 64, {4, 3, 1, 1, 1}, {5, 3, 1, 1, 1}}, 10, 0); }},
    {"pixels behind the last image", [] { step_pixels({2, 64, {7, 3, 1, 1, 1}, {7, 3, 1, 1, 1}}, 64, 0); }},
    {"pixels, the next channels", [] { step_pixels({1, 192, {16, 3, 1, 1, 1}, {16, 3, 1, 1, 1}}, 0, 64); }},
    {"pixels, sides that differ", [] { step_pixels({3, 128, {20, 2, 3, 5, 2}, {11, 5, 1, 2, 3}}, 33, 64); }},
    {"wgmma 256, A along, B along", step_multiply<256, true, true>},
    {"wgmma 256, A along, B across", step_multiply<256, true, false>},
    {"wgmma 256, A across, B along", step_multiply<256, false, true>},
    {"wgmma 256, A across, B across", step_multiply<256, false, false>},
    {"wgmma 128, A along, B along", step_multiply<128, true, true>},
    {"wgmma 128, A along, B across", step_multiply<128, true, false>},
    {"wgmma 128, A across, B along", step_multiply<128, false, true>},
    {"wgmma 128, A across, B across", step_multiply<128, false, false>},
    {"wgmma 64, A along, B along", step_multiply<64, true, true>},
    {"gathered by cp.async", step_gather},
    {"boxes to both blocks, barriers of both", step_share},
    {"registers given up", step_exchange},
    {"boxes sent out", [] { step_send(16, 136); }},
    {"boxes sent out over both ends", [] { step_send(11, 104); }},
    {"turns of two warpgroups", step_turns},
    {"GELU of two at once", step_gelu},
};

static void need_hopper() {
    cudaDeviceProp device;
    require_device();
    require(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    if (device.major != 9) {
        printf("no GPU of compute capability 9.0\n");
        exit(77);
    }
}

// In a process of its own, which the alarm ends if it hangs.
static int run_apart(const step &s) {
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        need_hopper();
        s.run();
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        printf("%s: %s\n", s.name, WTERMSIG(status) == SIGALRM ? "HUNG" : "KILLED");
    } else if (WEXITSTATUS(status) != 77) {
        printf("%s: %s\n", s.name, WEXITSTATUS(status) ? "WRONG" : "right");
    }
    fflush(stdout);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int count, char **names) {
    int worst = 0;
    for (const step &s : steps) {
        bool asked = count < 2;
        for (int i = 1; i < count; i++) {
            asked = asked || !strcmp(names[i], s.name);
        }
        int status = asked ? run_apart(s) : 0;
        if (status == 77) {
            return 77;
        }
        worst = status ? 1 : worst;
    }
    return worst;
}
