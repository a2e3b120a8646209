// Accesses to global memory of 16 and 8 bytes at once. Written as such, since a compiler that knows the
// words as floats takes a store of four of them apart.
#ifndef CENI_KERNELS_VECTOR_CUH
#define CENI_KERNELS_VECTOR_CUH

#include <stdint.h>

namespace cen_vector {

__device__ __forceinline__ uint4 load_16(uint64_t at) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

// The same of what is read once, which leaves the first cache to what is read again.
__device__ __forceinline__ uint4 load_16_once(uint64_t at) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

__device__ __forceinline__ uint2 load_8(uint64_t at) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ void store_16(uint64_t at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ __forceinline__ void store_8(uint64_t at, uint2 v) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
}

} // namespace cen_vector

#endif
