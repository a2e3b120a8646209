/* The built-in kernels on a GPU: the embedded image, loaded once a device by its first launch. */
#include "dev/cuda/backend.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/table.h"

enum { SHARED_ALWAYS = 48 << 10 }; /* what a block may have without being asked for */

/* Kernels that measure the first-level cache have as much of it as there can be; others share it
 * with shared memory as the driver sees fit. */
static cu_result give_l1(const ceni_cu *cu, const char *name, cu_function function) {
    return !strcmp(name, "cen_chase") || !strcmp(name, "cen_read_l1")
               ? cu->cuFuncSetAttribute(function, CU_FUNC_SHARED_PERCENT, 0)
               : CU_SUCCESS;
}

/* Loads the image and finds every kernel in it, so that no later launch has to load code (which
 * might wait for running kernels, or fall into a capture). */
static cu_result load_kernels(ceni_cuda_device *self) {
    const ceni_cu *cu = self->cu;
    size_t count = 0;
    while (ceni_kernels[count].name) {
        count++;
    }
    cu_function *functions = ceni_calloc(count, sizeof(cu_function));
    uint32_t *shared_most = ceni_calloc(count, sizeof *shared_most);
    if (!functions || !shared_most) {
        ceni_free(functions);
        ceni_free(shared_most);
        return CU_ERROR_OUT_OF_MEMORY;
    }
    cu_enum mode = ceni_cuda_relax(cu);
    cu_module module = NULL;
    cu_result result = cu->cuModuleLoadData(&module, ceni_kernels_image);
    for (size_t i = 0; result == CU_SUCCESS && i < count; i++) {
        result = cu->cuModuleGetFunction(&functions[i], module, ceni_kernels[i].name);
        result = result ? result : give_l1(cu, ceni_kernels[i].name, functions[i]);
        shared_most[i] = SHARED_ALWAYS;
    }
    ceni_cuda_restore(cu, mode);
    if (result == CU_SUCCESS) {
        self->module = module;
        self->functions = functions;
        self->shared_most = shared_most;
        return CU_SUCCESS;
    }
    if (module) {
        cu->cuModuleUnload(module);
    }
    ceni_free(functions);
    ceni_free(shared_most);
    return result;
}

void ceni_cuda_unload_kernels(ceni_cuda_device *self) {
    if (self->module) {
        self->cu->cuModuleUnload(self->module);
        self->module = NULL;
    }
    ceni_free(self->functions);
    ceni_free(self->shared_most);
    self->functions = NULL;
    self->shared_most = NULL;
}

/* The function, which may be launched with so much shared memory from now on: never less, as
 * another thread may be about to launch it with more. */
static cu_result get_function(ceni_cuda_device *self, size_t index, uint32_t shared_bytes,
                              cu_function *function) {
    cu_result result = CU_SUCCESS;
    pthread_mutex_lock(&self->kernels_lock);
    if (!self->functions) {
        result = load_kernels(self);
    }
    if (result == CU_SUCCESS) {
        *function = self->functions[index];
        if (shared_bytes > self->shared_most[index]) {
            result = self->cu->cuFuncSetAttribute(*function, CU_FUNC_SHARED_MAX, (int)shared_bytes);
            self->shared_most[index] =
                result == CU_SUCCESS ? shared_bytes : self->shared_most[index];
        }
    }
    pthread_mutex_unlock(&self->kernels_lock);
    return result;
}

cen_status ceni_cuda_launch(cen_device *device, const char *name, const cen_launch *shape,
                            void *const *args, size_t arg_count, cen_stream stream) {
    const ceni_kernel *kernel = ceni_kernel_find(name);
    if (!kernel) {
        return ceni_fail(CEN_ERR_NOT_FOUND, "cuda:%d: no kernel named %s", device->ordinal, name);
    }
    if (arg_count != kernel->arg_count) {
        return ceni_fail(CEN_ERR_INVALID, "cuda:%d: the kernel %s takes %zu arguments, not %zu",
                         device->ordinal, name, kernel->arg_count, arg_count);
    }
    if (!ceni_kernels_image) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "cuda:%d: this library was built without CUDA kernels", device->ordinal);
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    cu_function function = NULL;
    if (scope.result == CU_SUCCESS) {
        scope.result = get_function(scope.self, (size_t)(kernel - ceni_kernels),
                                    shape->shared_bytes, &function);
    }
    if (scope.result == CU_SUCCESS) {
        scope.result =
            scope.cu->cuLaunchKernel(function, shape->grid[0], shape->grid[1], shape->grid[2],
                                     shape->block[0], shape->block[1], shape->block[2],
                                     shape->shared_bytes, (cu_stream)stream, (void **)args, NULL);
    }
    return ceni_cuda_leave(&scope, "launching %s", name);
}

_Static_assert(sizeof(ceni_tensor_map) == sizeof(cu_tensor_map), "the driver's");

static cen_status need_boxes(const cen_device *device, cen_dtype dtype) {
    if (device->compute_capability < 90 || (dtype != CEN_FP16 && dtype != CEN_BF16)) {
        return ceni_fail(CEN_ERR_UNSUPPORTED, "cuda:%d: boxes of %s are not copied by this device",
                         device->ordinal, cen_dtype_name(dtype));
    }
    return CEN_OK;
}

static cu_enum element_type(cen_dtype dtype) {
    return dtype == CEN_FP16 ? CU_TENSOR_FP16 : CU_TENSOR_BF16;
}

cen_status ceni_cuda_tensor_map(cen_device *device, const ceni_tiled *tiled, ceni_tensor_map *map) {
    cen_status status = need_boxes(device, tiled->dtype);
    if (status) {
        return status;
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        cu_tensor_map made;
        const uint64_t sizes[2] = {tiled->cols, tiled->rows}, strides[1] = {tiled->stride};
        const uint32_t box[2] = {tiled->box_cols, tiled->box_rows}, steps[2] = {1, 1};
        scope.result = scope.cu->cuTensorMapEncodeTiled(
            &made, element_type(tiled->dtype), 2, (void *)(uintptr_t)tiled->data, sizes, strides,
            box, steps, CU_TENSOR_PLAIN, CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_128,
            CU_TENSOR_FILL_ZERO);
        if (scope.result == CU_SUCCESS) {
            memcpy(map, &made, sizeof made);
        }
    }
    return ceni_cuda_leave(&scope, "describing a matrix of %llu x %llu to the copy engine",
                           (unsigned long long)tiled->rows, (unsigned long long)tiled->cols);
}

/* The driver's order is channels, x, y, images, and of the corners x, y. */
cen_status ceni_cuda_pixel_map(cen_device *device, const ceni_pixels *pixels,
                               ceni_tensor_map *map) {
    cen_status status = need_boxes(device, pixels->dtype);
    if (status) {
        return status;
    }
    ceni_cuda_scope scope = ceni_cuda_enter(device);
    if (scope.result == CU_SUCCESS) {
        cu_tensor_map made;
        const uint64_t pixel = (uint64_t)pixels->channels * 2, row = pixel * pixels->width;
        const uint64_t sizes[4] = {pixels->channels, pixels->width, pixels->height, pixels->images};
        const uint64_t strides[3] = {pixel, row, row * pixels->height};
        const uint32_t steps[4] = {1, pixels->steps[0], pixels->steps[1], 1};
        scope.result = scope.cu->cuTensorMapEncodeIm2col(
            &made, element_type(pixels->dtype), 4, (void *)(uintptr_t)pixels->data, sizes, strides,
            pixels->low, pixels->high, 64, pixels->pixels, steps, CU_TENSOR_PLAIN,
            CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_128, CU_TENSOR_FILL_ZERO);
        if (scope.result == CU_SUCCESS) {
            memcpy(map, &made, sizeof made);
        }
    }
    return ceni_cuda_leave(&scope, "describing %u images of %u x %u x %u to the copy engine",
                           pixels->images, pixels->height, pixels->width, pixels->channels);
}
