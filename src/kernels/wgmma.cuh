// What kernels on Hopper's tensor cores are made of: mbarriers, boxes that the copy engine (TMA)
// brings, wgmma, and how it finds what they brought. For machine code of sm_90a alone;
// tests/gpu/hopper.cu tries each of these apart.
#ifndef CENI_KERNELS_WGMMA_CUH
#define CENI_KERNELS_WGMMA_CUH

#include "kernels/product.cuh"

namespace product {

struct __align__(128) tensor_map {
    uint64_t words[16];
};

enum { BOX_BYTES = 64 * 128 }; // of what lies across the sum

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// What ordinary stores wrote to shared memory is there for the tensor cores and the copy engine.
__device__ __forceinline__ void stores_seen_by_engines() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Waits for the phase of that parity to end.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile("{\n"
                     ".reg .pred ended;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, ended;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

// The same barrier of the pair's other block. It says that something has been read, so that nothing
// written before has to be seen there, which a wider scope would wait for.
__device__ __forceinline__ void barrier_arrive_other(uint32_t barrier, uint32_t other) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(barrier),
                 "r"(other)
                 : "memory");
}

__device__ __forceinline__ uint32_t pair_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of both blocks.
__device__ __forceinline__ void pair_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// To the same place of both blocks, and told to the same barrier of both.
__device__ __forceinline__ void copy_box_to_both(uint32_t to, const tensor_map *map, uint32_t col,
                                                 uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(barrier), "h"((uint16_t)3)
                 : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const tensor_map *map, uint32_t col,
                                         uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}

// As many pixels as the map says, of 64 channels, from a place of the rectangle that they walk over;
// all are then moved by `right` and `down`.
__device__ __forceinline__ void copy_pixels(uint32_t to, const tensor_map *map, uint32_t channel,
                                            int32_t x, int32_t y, uint32_t image, uint32_t right,
                                            uint32_t down, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 ::"r"(to), "l"(map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(barrier),
                 "h"((uint16_t)right), "h"((uint16_t)down)
                 : "memory");
}

// A box goes out, 16 rows of 128 bytes as they are brought in; what lies outside of the matrix is
// left. The thread's boxes of one commit are a group.
__device__ __forceinline__ void store_box(const tensor_map *map, uint32_t from, uint32_t col,
                                          uint32_t row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(col), "r"(row), "r"(from)
        : "memory");
}

__device__ __forceinline__ void boxes_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until shared memory has been read for all but the last N groups of this thread.
template <int N> __device__ __forceinline__ void boxes_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Four matrices of 8 rows of 16 bytes, whose addresses are each eight lanes' in turn. A lane has of
// each two halves of row lane / 4, from column lane % 4 * 2 on.
__device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&v)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t at, uint32_t (&v)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void store_shared_16(uint32_t at, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

// The line of an address on its way, near or to L2 alone.
__device__ __forceinline__ void prefetch_near(uint64_t at) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(at));
}

__device__ __forceinline__ void prefetch_far(uint64_t at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// How wgmma finds an operand: its address, and strides in units of 16 bytes. Along the sum: 8 rows
// are 1 KiB. Across it: 8 steps are 1 KiB, and the next 64 rows or columns are the next box.
template <bool ALONG> __device__ __forceinline__ uint64_t describe(uint32_t shared) {
    const uint64_t leading = ALONG ? 1 : BOX_BYTES / 16, stride = 1024 / 16, swizzle_128 = 1;
    return (uint64_t)(shared >> 4 & 0x3fff) | leading << 16 | stride << 32 | swizzle_128 << 62;
}

// What is added to a description to go 16 steps further.
template <bool ALONG> __device__ constexpr uint32_t step_16() {
    return (ALONG ? 16 * 2 : 16 * 128) / 16;
}

// The second of two warpgroups waits until the first has said that it may go on, each time once.
__device__ __forceinline__ void group_goes_on() {
    asm volatile("barrier.cta.arrive.aligned 2, 256;" ::: "memory");
}

__device__ __forceinline__ void group_waits() {
    asm volatile("barrier.cta.sync.aligned 2, 256;" ::: "memory");
}

struct wgmma_bf16 {};
struct wgmma_fp16 {};

#define CENI_EIGHT(i)                                                                              \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CENI_SUMS_32(i) CENI_EIGHT(i), CENI_EIGHT(i + 8), CENI_EIGHT(i + 16), CENI_EIGHT(i + 24)
#define CENI_ALL_32  CENI_SUMS_32(0)
#define CENI_ALL_64  CENI_ALL_32, CENI_SUMS_32(32)
#define CENI_ALL_128 CENI_ALL_64, CENI_SUMS_32(64), CENI_SUMS_32(96)
#define CENI_NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CENI_NAMES_64 \
    CENI_NAMES_32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CENI_NAMES_128 \
    CENI_NAMES_64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// d = a b, or d + a b if `add` is not 0, of 64 rows and a sum of 16; a and b are described, and turned
// where they do not lie along the sum.
#define CENI_WGMMA_OF(type, name, cols, count, a_, b_, add_, turn_a, turn_b)                       \
    template <int TURN_A, int TURN_B>                                                              \
    __device__ __forceinline__ void wgmma(wgmma_##type, float (&d)[count], uint64_t a, uint64_t b, \
                                          uint32_t add) {                                          \
        asm volatile("{\n"                                                                         \
                     ".reg .pred add;\n"                                                           \
                     "setp.ne.b32 add, " add_ ", 0;\n"                                             \
                     "wgmma.mma_async.sync.aligned.m64n" cols "k16.f32." name "." name             \
                     " {" CENI_NAMES_##count "}, " a_ ", " b_ ", add, 1, 1, " turn_a ", " turn_b   \
                     ";\n"                                                                         \
                     "}"                                                                           \
                     : CENI_ALL_##count                                                            \
                     : "l"(a), "l"(b), "r"(add), "n"(TURN_A), "n"(TURN_B));                        \
    }
CENI_WGMMA_OF(bf16, "bf16", "256", 128, "%128", "%129", "%130", "%131", "%132")
CENI_WGMMA_OF(fp16, "f16", "256", 128, "%128", "%129", "%130", "%131", "%132")
CENI_WGMMA_OF(bf16, "bf16", "128", 64, "%64", "%65", "%66", "%67", "%68")
CENI_WGMMA_OF(fp16, "f16", "128", 64, "%64", "%65", "%66", "%67", "%68")
CENI_WGMMA_OF(bf16, "bf16", "64", 32, "%32", "%33", "%34", "%35", "%36")
CENI_WGMMA_OF(fp16, "f16", "64", 32, "%32", "%33", "%34", "%35", "%36")
#undef CENI_WGMMA_OF
#undef CENI_NAMES_128
#undef CENI_NAMES_64
#undef CENI_NAMES_32
#undef CENI_ALL_128
#undef CENI_ALL_64
#undef CENI_ALL_32
#undef CENI_SUMS_32
#undef CENI_EIGHT

__device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// The ring: which stage is next, and the parity of its phase.
template <int STAGES> struct ring {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ void skip(uint32_t count) {
        uint32_t to = stage + count;
        stage = to % STAGES;
        parity ^= to / STAGES & 1;
    }
};

#endif

} // namespace product

#endif
