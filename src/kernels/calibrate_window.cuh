// A block's bins in shared memory, as many octaves of them as fit below twice the largest of what
// it sees first, and elements as they come: words of 32 bits, of one or two. So that lanes do not
// wait for each other, they have copies of these bins, 32 for BF16, of whose bins only each fourth
// is used, and else 8. A copy's counts cannot overflow: it sees an eighth at most of what one of a
// device's multiprocessors does.
//
// On either side of these bins is one for all that lies beyond, which is not read: every element
// is counted with few instructions and no branch. A step of some words then asks once whether any
// was beyond; these are gone through one by one, and go to the bins in global memory. A zero
// is not beyond. So the choice changes the time and not the counts.
#ifndef CENI_KERNELS_CALIBRATE_WINDOW_CUH
#define CENI_KERNELS_CALIBRATE_WINDOW_CUH

#include <stdint.h>

#include "cenote/dtype.h"
#include "kernels/calibrate.h"

namespace calibrate {

constexpr int WARP = CENI_CALIBRATE_LANES, RUN = CENI_CALIBRATE_RUN;
constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu, INFINITE = 0x7F800000u, EACH = 0x00010001u;
constexpr unsigned ALL = 0xFFFFFFFFu;

using word = unsigned long long;

// Of a dtype: elements in a word, and words in a lane's eight neighbours.
template <uint32_t dtype> constexpr int in_word = dtype == CEN_FP32 ? 1 : 2;
template <uint32_t dtype> constexpr int in_run = RUN / in_word<dtype>;

__device__ ceni_calibrate_state *state_of(const ceni_calibrate_job &job) {
    return (ceni_calibrate_state *)job.state;
}

__device__ uint32_t bits_of(uint32_t dtype, uint16_t half) {
    if (dtype == CEN_BF16) {
        return (uint32_t)half << 16;
    }
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return __float_as_uint(value);
}

// One of a word's elements, as a float.
template <uint32_t dtype> __device__ uint32_t element(uint32_t w, int which) {
    if (dtype == CEN_FP32) {
        return w;
    }
    if (dtype == CEN_BF16) {
        return which ? w & 0xFFFF0000u : w << 16;
    }
    return bits_of(dtype, (uint16_t)(which ? w >> 16 : w));
}

template <uint32_t dtype>
__device__ uint64_t place(const ceni_calibrate_job &job, uint64_t row, uint64_t col) {
    return job.matrix + (row * job.stride + col) * (4 / in_word<dtype>);
}

template <uint32_t dtype> __device__ uint32_t load(uint64_t at) {
    return dtype == CEN_FP32 ? *(const uint32_t *)at : bits_of(dtype, *(const uint16_t *)at);
}

__device__ uint32_t half_at(uint64_t at) {
    return *(const uint16_t *)at;
}

// Eight neighbours, wherever they lie.
template <uint32_t dtype> struct run { uint32_t w[in_run<dtype>]; };

template <uint32_t dtype> __device__ run<dtype> fetch(uint64_t at) {
    run<dtype> r;
#pragma unroll
    for (int k = 0; k < in_run<dtype>; k++, at += 4) {
        r.w[k] = dtype == CEN_FP32 ? *(const uint32_t *)at : half_at(at) | half_at(at + 2) << 16;
    }
    return r;
}

// ---- bins ----

extern __shared__ uint32_t calibrate_window[];

// What a thread has seen in the window, words as they lie: where a word has two elements, the
// extremes of either. Nothing yet: infinities.
template <uint32_t dtype> struct inside {
    uint32_t least, most, zeros; // zeros of both, or where these are told apart a half of each
};

template <uint32_t dtype> __device__ inside<dtype> nothing() {
    return dtype == CEN_FP32   ? inside<dtype>{INFINITE, ~MAGNITUDE | INFINITE, 0}
           : dtype == CEN_FP16 ? inside<dtype>{0x7C007C00u, 0xFC00FC00u, 0}
                               : inside<dtype>{0x7F807F80u, 0xFF80FF80u, 0};
}

// Of these the least and the most: NaN if there is one.
template <uint32_t dtype> __device__ void extremes(uint32_t w, uint32_t &least, uint32_t &most) {
    if (dtype == CEN_FP32) {
        asm("min.NaN.f32 %0, %0, %1;" : "+r"(least) : "r"(w));
        asm("max.NaN.f32 %0, %0, %1;" : "+r"(most) : "r"(w));
    } else if (dtype == CEN_FP16) {
        asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(least) : "r"(w));
        asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(most) : "r"(w));
    } else {
        asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(least) : "r"(w));
        asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(w));
    }
}

template <uint32_t dtype> class window {
  public:
    // Bins are so many bits of a float; copies of one lie side by side.
    static constexpr bool BRAIN = dtype == CEN_BF16;
    static constexpr int SHIFT = BRAIN ? 16 : CENI_CALIBRATE_SHIFT;
    static constexpr uint32_t COPIES = BRAIN ? 32 : 8;

    __device__ window(const ceni_calibrate_job &job, uint32_t low)
        : job(job), low(low), end(low + (job.octaves << 23)),
          copy((uint32_t)__cvta_generic_to_shared(calibrate_window) + threadIdx.x % COPIES * 4) {
    }

    // Counts n words, two elements of which are told apart or not. False if any is neither 0 nor
    // within the window: of this step only zeros are in `to` then.
    template <bool apart, int n>
    __device__ bool add(const uint32_t (&w)[n], inside<dtype> &to) const {
        uint32_t least = to.least, most = to.most, small = BRAIN ? 0x80008000u : ALL;
        to.zeros += apart && in_word<dtype> == 2 ? n * EACH : n * in_word<dtype>;
#pragma unroll
        for (int k = 0; k < n; k++) {
            extremes<dtype>(w[k], least, most);
            add_zeros<apart>(w[k], to.zeros);
            add_word(w[k], small);
        }
        if (beyond(least, most, small)) {
            return false;
        }
        to.least = least;
        to.most = most;
        return true;
    }

    // An element, as a float, that is not counted yet.
    __device__ void add_one(uint32_t bits) const {
        uint32_t size = bits & MAGNITUDE;
        if (size - low < end - low) {
            increment(copy + ((size - low >> SHIFT) + 1) * COPIES * 4);
        } else {
            add_beyond(bits);
        }
    }

    // One that is counted, but not if it is beyond the window.
    __device__ void add_beyond(uint32_t bits) const {
        uint32_t size = bits & MAGNITUDE;
        if (size && size < INFINITE && size - low >= end - low) {
            put(size, 1);
        }
    }

    // What is in the window to global memory. By whole blocks.
    __device__ void close() const {
        uint32_t bins = end - low >> SHIFT;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < bins; i += blockDim.x) {
            uint32_t count = 0;
            for (uint32_t c = 0; c < COPIES; c++) { // each lane begins with another bank
                count += calibrate_window[(i + 1) * COPIES + (c + threadIdx.x) % COPIES];
            }
            put(low + (i << SHIFT), count);
        }
    }

  private:
    __device__ static void increment(uint32_t at) {
        asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at) : "memory");
    }

    __device__ void put(uint32_t size, uint32_t count) const {
        if (count) {
            atomicAdd((word *)&state_of(job)->bins[size >> CENI_CALIBRATE_SHIFT], (word)count);
        }
    }

    template <bool apart> __device__ static void add_zeros(uint32_t w, uint32_t &zeros) {
        if (dtype == CEN_FP32) {
            zeros -= min(w & MAGNITUDE, 1u);
        } else if (apart) {
            zeros -= __vminu2(w & 0x7FFF7FFFu, EACH);
        } else {
            zeros = (uint32_t)__dp2a_lo((int)__vminu2(w & 0x7FFF7FFFu, EACH), 0xFFFF, (int)zeros);
        }
    }

    // To the bins, of which the first and the last are for what is beyond. `small`: one less than
    // the least that is not 0; of BF16's, so that halves do not borrow, 0x8000 less either, the
    // most, as that of 0 is negative.
    __device__ void add_word(uint32_t w, uint32_t &small) const {
        if constexpr (BRAIN) {
            uint32_t size = w & 0x7FFF7FFFu, minus = ((1 - (low >> SHIFT)) & 0xFFFFu) * EACH;
            uint32_t last = ((end - low >> SHIFT) + 1) * EACH;
            uint32_t bin = __viaddmin_s16x2_relu(size, minus, last);
            increment(__dp2a_lo(bin, COPIES * 4, copy));
            increment(__dp2a_lo(bin, COPIES * 4 << 8, copy));
            small = __vmaxs2(small, 0x80008000u - size);
        } else {
            add_float(element<dtype>(w, 0), small);
            if (in_word<dtype> == 2) {
                add_float(element<dtype>(w, 1), small);
            }
        }
    }

    __device__ void add_float(uint32_t bits, uint32_t &small) const {
        uint32_t size = bits & MAGNITUDE, each = 1u << SHIFT;
        int bin = __viaddmin_s32_relu((int)size, (int)(each - low), (int)(end - low + each));
        increment(((uint32_t)bin >> SHIFT) * (COPIES * 4) + copy);
        small = min(small, size - 1);
    }

    __device__ bool beyond(uint32_t least, uint32_t most, uint32_t small) const {
        if (dtype == CEN_FP32) {
            return max(least & MAGNITUDE, most & MAGNITUDE) >= end || small < low - 1;
        }
        uint32_t size = __vmaxu2(least & 0x7FFF7FFFu, most & 0x7FFF7FFFu);
        if (dtype == CEN_FP16) {
            return bits_of(dtype, (uint16_t)max(size & 0xFFFFu, size >> 16)) >= end ||
                   small < low - 1;
        }
        uint32_t last = (end >> SHIFT) * EACH - EACH, limit = 0x80008000u - (low >> SHIFT) * EACH;
        return __vmaxu2(size, last) != last || __vmaxs2(small, limit) != limit;
    }

    const ceni_calibrate_job &job;
    const uint32_t low, end; // magnitudes
    const uint32_t copy;     // where this lane's first bin is
};

} // namespace calibrate

#endif
