/* The built-in kernels on a GPU: the embedded image, loaded once a device by its first launch. */
#include "dev/cuda/backend.h"

#include "base/log.h"
#include "base/mem.h"
#include "kernels/table.h"

/* Loads the image and finds every kernel in it, so that no later launch has to load code (which
 * might wait for running kernels, or fall into a capture). */
static cu_result load_kernels(ceni_cuda_device *self) {
    const ceni_cu *cu = self->cu;
    size_t count = 0;
    while (ceni_kernels[count].name) {
        count++;
    }
    cu_function *functions = ceni_calloc(count, sizeof(cu_function));
    if (!functions) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    cu_enum mode = ceni_cuda_relax(cu);
    cu_module module = NULL;
    cu_result result = cu->cuModuleLoadData(&module, ceni_kernels_image);
    for (size_t i = 0; result == CU_SUCCESS && i < count; i++) {
        result = cu->cuModuleGetFunction(&functions[i], module, ceni_kernels[i].name);
    }
    ceni_cuda_restore(cu, mode);
    if (result == CU_SUCCESS) {
        self->module = module;
        self->functions = functions;
        return CU_SUCCESS;
    }
    if (module) {
        cu->cuModuleUnload(module);
    }
    ceni_free(functions);
    return result;
}

void ceni_cuda_unload_kernels(ceni_cuda_device *self) {
    if (self->module) {
        self->cu->cuModuleUnload(self->module);
        self->module = NULL;
    }
    ceni_free(self->functions);
    self->functions = NULL;
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
    ceni_cuda_device *self = scope.self;
    if (scope.result == CU_SUCCESS) {
        pthread_mutex_lock(&self->kernels_lock);
        if (!self->functions) {
            scope.result = load_kernels(self);
        }
        pthread_mutex_unlock(&self->kernels_lock);
    }
    if (scope.result == CU_SUCCESS) {
        scope.result = scope.cu->cuLaunchKernel(
            self->functions[kernel - ceni_kernels], shape->grid[0], shape->grid[1], shape->grid[2],
            shape->block[0], shape->block[1], shape->block[2], shape->shared_bytes,
            (cu_stream)stream, (void **)args, NULL);
    }
    return ceni_cuda_leave(&scope, "launching %s", name);
}
