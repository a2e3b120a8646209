// The same for matrices of whole octets that are aligned, in formats and units that are known when
// compiled: no kernel asks its job what it is to do. A batch of finite elements, which most are,
// takes short ways; what a batch may hold else takes those of codec_codes.cuh.
#pragma once

#include "kernels/codec_tally.cuh"

namespace codec {

// ONE: of a row or of all, and made before, or none. Those of BLOCK and COLUMN are made before,
// too.
enum units { ONE, ROW, GROUP, BLOCK, COLUMN };

template <uint32_t OF, bool ZEROS, units BY, cen_dtype SOURCE> struct form {
    static constexpr uint32_t KIND = OF, DTYPE = SOURCE;
    static constexpr bool ASYM = ZEROS, WIDE = SOURCE == CEN_FP32;
    static constexpr units UNITS = BY;
    static constexpr bool CAST = OF <= CENI_CODEC_BF16, INT = OF > CENI_CODEC_E5M2;
    static constexpr bool OWN = BY == ROW || BY == GROUP;
    // INT whose unit is known to hold what is coded: only what is not finite is to be cut.
    static constexpr bool FITS = INT && OWN;
    static constexpr unsigned BITS = CAST ? 16 : OF == CENI_CODEC_INT4 ? 4 : 8;
    static constexpr int COUNT = WIDE ? CENI_CODEC_BATCH_WIDE : CENI_CODEC_BATCH;
};

// A job whose constants the compiler knows.
template <class F> __device__ __forceinline__ ceni_codec_job narrowed(const ceni_codec_job &all) {
    ceni_codec_job job = all;
    uint32_t scaled = F::CAST                     ? 0
                      : F::INT || F::UNITS != ONE ? CENI_CODEC_SCALED
                                                  : all.flags & CENI_CODEC_SCALED;
    job.kind = F::KIND;
    job.flags = scaled | (F::ASYM ? CENI_CODEC_ASYMMETRIC : 0) |
                (F::CAST ? 0 : CENI_CODEC_SATURATING) | (F::OWN ? CENI_CODEC_OWN_SCALES : 0);
    job.dtype = F::DTYPE;
    if (F::INT) {
        job.high = F::KIND == CENI_CODEC_INT8 ? 127 : 7;
        job.low = -job.high - F::ASYM;
    }
    return job;
}

// A scale whose products are known to be no larger than a float.
struct calm_scale {
    scale one;

    __device__ const scale &at(int) const {
        return one;
    }
    __device__ bool tame() const {
        return true;
    }
};

// Of a thread's octets: one for all, or each its own.
template <class F> struct scales_of {
    static constexpr int COUNT = F::UNITS == GROUP || F::UNITS == BLOCK ? F::COUNT : 1;
    scale of[COUNT];

    __device__ const scale &at(int i) const {
        return of[COUNT == 1 ? 0 : i];
    }
};

// Where a thread's octets are: `step` apart, from `octet` of the row on, `left` of them from there
// to its end (or fewer than 0). The row's elements lie at `from`, its codes at `to`.
struct span {
    uint64_t from, to;
    uint32_t row;
    int octet, step, left;

    __device__ bool has(int i) const {
        return i * step < left;
    }
    __device__ void advance(int by) {
        octet += by;
        left -= by;
    }
};

__device__ __forceinline__ span span_of(const ceni_codec_job &job, uint32_t row, int octet) {
    span at = {place(job, row, 0), job.values + row * job.pitch,   row, octet,
               (int)job.team,      (int)(job.cols / EIGHT) - octet};
    return at;
}

template <class F> __device__ __forceinline__ uint64_t source_of(const span &at, int i) {
    return at.from + (uint64_t)(uint32_t)(at.octet + i * at.step) * (F::WIDE ? 32 : 16);
}

template <class F> __device__ __forceinline__ void fetch_span(const span &at, raw<F::WIDE> v[]) {
#pragma unroll
    for (int i = 0; i < F::COUNT; i++) {
        v[i] = {};
        if (at.has(i)) {
            fetch_whole<F::WIDE>(source_of<F>(at, i), v[i]);
        }
    }
}

template <class F>
__device__ __forceinline__ void store_octet(const span &at, int i, const uint32_t w[4]) {
    uint64_t to = at.to + (uint64_t)(uint32_t)(at.octet + i * at.step) * F::BITS;
    if (!at.has(i)) {
        return;
    }
    if (F::BITS == 16) {
        *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
    } else if (F::BITS == 8) {
        *(uint2 *)to = make_uint2(w[0], w[1]);
    } else {
        *(uint32_t *)to = w[0];
    }
}

} // namespace codec
