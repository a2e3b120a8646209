// Tensor maps as src/dev/cuda/kernel.c makes them, for what tries the copy engine.
#ifndef CENI_TESTS_GPU_MAPS_CUH
#define CENI_TESTS_GPU_MAPS_CUH

#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "common.cuh"
#include "kernels/wgmma.cuh"

using product::tensor_map;

enum { BOX_COLS = 64, ROWS = 128 };

// A driver function of CUDA 12.0.
static void *driver_function(const char *name) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    require(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
    return function;
}

static tensor_map need_map(CUresult result, const CUtensorMap &made) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "encoding a tensor map: %d\n", (int)result);
        exit(1);
    }
    tensor_map map;
    memcpy(&map, &made, sizeof map);
    return map;
}

// A matrix.
static tensor_map map_of(const uint16_t *data, uint64_t rows, uint64_t cols, uint32_t box_rows, uint64_t stride = 0) {
    CUtensorMap made;
    const cuuint64_t sizes[2] = {cols, rows}, strides[1] = {(stride ? stride : cols) * 2};
    const cuuint32_t box[2] = {BOX_COLS, box_rows}, steps[2] = {1, 1};
    CUresult result = ((decltype(&cuTensorMapEncodeTiled))driver_function("cuTensorMapEncodeTiled"))(
        &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)data, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return need_map(result, made);
}

// What a convolution has along one side of its images.
struct side {
    int size, filter, stride, dilation, pad;

    int windows() const {
        return (size + 2 * pad - (filter - 1) * dilation - 1) / stride + 1;
    }

    int first(int window) const {
        return window * stride - pad;
    }
};

// Images of `channels`, of whose windows a box has 128 x 64 channels.
struct images {
    int count, channels;
    side y, x;

    // As src/dev/cuda/kernel.c describes them, with what src/compute/product_plan.c asks for.
    tensor_map map(const uint16_t *data) const {
        CUtensorMap made;
        const cuuint64_t pixel = (cuuint64_t)channels * 2, row = pixel * x.size;
        const cuuint64_t sizes[4] = {(cuuint64_t)channels, (cuuint64_t)x.size, (cuuint64_t)y.size, (cuuint64_t)count};
        const cuuint64_t strides[3] = {pixel, row, row * y.size};
        const int low[2] = {-x.pad, -y.pad};
        const int high[2] = {x.pad - (x.filter - 1) * x.dilation, y.pad - (y.filter - 1) * y.dilation};
        const cuuint32_t steps[4] = {1, (cuuint32_t)x.stride, (cuuint32_t)y.stride, 1};
        CUresult result = ((decltype(&cuTensorMapEncodeIm2col))driver_function("cuTensorMapEncodeIm2col"))(
            &made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)data, sizes, strides, low, high, BOX_COLS, ROWS, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        return need_map(result, made);
    }

    // The pixel under tap (down, right) of a window, counted through all images; -1: it is in none.
    int pixel(int window, int down, int right) const {
        int each = y.windows() * x.windows(), image = window / each, at = window % each;
        int py = y.first(at / x.windows()) + down * y.dilation, px = x.first(at % x.windows()) + right * x.dilation;
        bool inside = image < count && py >= 0 && px >= 0 && py < y.size && px < x.size;
        return inside ? (image * y.size + py) * x.size + px : -1;
    }
};

#endif
