/* Modules and libraries: any image is one, and takes memory of the card. A function is a kernel of
 * cenote's table, found by its name, and its launch runs the host twin in stream order. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/table.h"
#include "tests/driver/td.h"

typedef struct td_module {
    td_context *context; /* NULL: a library's, without a context */
    td_range memory;
} td_module;

static ceni_map live;

/* A module of a context that has ended has lost its memory already. */
static void drop(td_module *module) {
    if (module->context) {
        td_range_drop(module->context->card, module->memory);
    }
    ceni_map_remove(&live, (uintptr_t)module, NULL);
    ceni_free(module);
}

static cu_result load(td_context *context, const void *image, void **module) {
    TD_NEED(module && image);
    if (context) {
        TD_TRY(td_forbid_capture(context));
    }
    uint64_t size = td_mib_setting("CENOTE_TEST_DRIVER_MODULE_MIB", 4);
    td_module *made = ceni_calloc(1, sizeof *made);
    if (!made) {
        return CU_ERROR_OUT_OF_MEMORY;
    }
    made->context = context;
    pthread_mutex_lock(&td_lock);
    cu_result result =
        context && size ? td_range_take(context->card, size, &made->memory) : CU_SUCCESS;
    if (result == CU_SUCCESS && ceni_map_put(&live, (uintptr_t)made, 1)) {
        if (context) {
            td_range_drop(context->card, made->memory);
        }
        result = CU_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&td_lock);
    if (result == CU_SUCCESS) {
        *module = made;
    } else {
        ceni_free(made);
    }
    return result;
}

static cu_result unload(const void *module) {
    pthread_mutex_lock(&td_lock);
    bool known = ceni_map_get(&live, (uintptr_t)module);
    if (known) {
        drop((td_module *)(uintptr_t)module);
    }
    pthread_mutex_unlock(&td_lock);
    return known ? CU_SUCCESS : CU_ERROR_INVALID_HANDLE;
}

void td_modules_end_context(const td_context *context) {
    for (size_t i = 0; i < live.capacity; i++) {
        td_module *m = live.slots[i].used ? (td_module *)(uintptr_t)live.slots[i].key : NULL;
        if (m && m->context == context) {
            td_range_drop(context->card, m->memory);
            m->memory = (td_range){0};
            m->context = NULL;
        }
    }
}

static cu_result find_kernel(const void *module, const char *name, void **function) {
    TD_NEED(name && function);
    pthread_mutex_lock(&td_lock);
    bool known = ceni_map_get(&live, (uintptr_t)module);
    pthread_mutex_unlock(&td_lock);
    if (!known) {
        return CU_ERROR_INVALID_HANDLE;
    }
    const ceni_kernel *kernel = ceni_kernel_find(name);
    if (!kernel) {
        return CU_ERROR_NOT_FOUND;
    }
    *function = (void *)(uintptr_t)kernel;
    return CU_SUCCESS;
}

cu_result cuModuleLoadData(cu_module *module, const void *image) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    return load(context, image, (void **)module);
}

cu_result cuModuleLoadDataEx(cu_module *module, const void *image, unsigned count, cu_enum *options,
                             void **values) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    return load(context, image, (void **)module);
}

cu_result cuModuleLoad(cu_module *module, const char *path) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(path);
    FILE *file = fopen(path, "re");
    if (!file) {
        return CU_ERROR_FILE_NOT_FOUND;
    }
    fclose(file);
    return load(context, path, (void **)module);
}

cu_result cuModuleUnload(cu_module module) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    return unload(module);
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    return find_kernel(module, name, (void **)function);
}

cu_result cuLibraryLoadData(cu_library *library, const void *image, cu_enum *jit_options,
                            void **jit_values, unsigned jit_count, cu_enum *options, void **values,
                            unsigned count) {
    td_context *context = NULL;
    TD_TRY(td_enter(__func__));
    if (td_current(&context) != CU_SUCCESS) {
        context = NULL;
    }
    return load(context, image, (void **)library);
}

cu_result cuLibraryUnload(cu_library library) {
    TD_TRY(td_enter(__func__));
    return unload(library);
}

cu_result cuLibraryGetKernel(cu_kernel *kernel, cu_library library, const char *name) {
    TD_TRY(td_enter(__func__));
    return find_kernel(library, name, (void **)kernel);
}

cu_result cuKernelGetFunction(cu_function *function, cu_kernel kernel) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(function && kernel);
    *function = (cu_function)kernel;
    return CU_SUCCESS;
}

/* As of a card with 227 KiB for a block. */
cu_result cuFuncSetAttribute(cu_function function, cu_enum attribute, int value) {
    td_context *context;
    TD_TRY(td_enter_context(__func__, &context));
    TD_NEED(function && value >= 0);
    TD_NEED((attribute == CU_FUNC_SHARED_MAX && value <= 227 << 10) ||
            (attribute == CU_FUNC_SHARED_PERCENT && value <= 100));
    return CU_SUCCESS;
}

/* What the driver's documentation demands of the arguments; the map is none, as twins read memory
 * themselves. */
cu_result cuTensorMapEncodeTiled(cu_tensor_map *map, cu_enum type, uint32_t rank, void *base,
                                 const uint64_t *sizes, const uint64_t *strides,
                                 const uint32_t *box, const uint32_t *steps, cu_enum interleave,
                                 cu_enum swizzle, cu_enum l2_promotion, cu_enum fill) {
    TD_TRY(td_enter(__func__));
    TD_NEED(map && (uintptr_t)map % 64 == 0 && (uintptr_t)base % 16 == 0);
    TD_NEED(type == CU_TENSOR_FP16 || type == CU_TENSOR_BF16);
    TD_NEED(rank == 2 && sizes && strides && box && steps);
    TD_NEED(interleave == CU_TENSOR_PLAIN && swizzle == CU_TENSOR_SWIZZLE_128);
    TD_NEED(l2_promotion == CU_TENSOR_L2_128 && fill == CU_TENSOR_FILL_ZERO);
    TD_NEED(strides[0] % 16 == 0 && strides[0] < UINT64_C(1) << 40 && strides[0] >= sizes[0] * 2);
    for (int i = 0; i < 2; i++) {
        TD_NEED(sizes[i] && sizes[i] <= UINT64_C(1) << 32 && box[i] && box[i] <= 256);
        TD_NEED(steps[i] == 1);
    }
    TD_NEED(box[0] * 2 <= 128 && box[0] * 2 % 16 == 0);
    memset(map, 0, sizeof *map);
    return CU_SUCCESS;
}

cu_result cuTensorMapEncodeIm2col(cu_tensor_map *map, cu_enum type, uint32_t rank, void *base,
                                  const uint64_t *sizes, const uint64_t *strides, const int *low,
                                  const int *high, uint32_t channels, uint32_t pixels,
                                  const uint32_t *steps, cu_enum interleave, cu_enum swizzle,
                                  cu_enum l2_promotion, cu_enum fill) {
    TD_TRY(td_enter(__func__));
    TD_NEED(map && (uintptr_t)map % 64 == 0 && (uintptr_t)base % 16 == 0);
    TD_NEED(type == CU_TENSOR_FP16 || type == CU_TENSOR_BF16);
    TD_NEED(rank == 4 && sizes && strides && low && high && steps);
    TD_NEED(interleave == CU_TENSOR_PLAIN && swizzle == CU_TENSOR_SWIZZLE_128);
    TD_NEED(l2_promotion == CU_TENSOR_L2_128 && fill == CU_TENSOR_FILL_ZERO);
    for (int i = 0; i < 4; i++) {
        TD_NEED(sizes[i] && sizes[i] <= UINT64_C(1) << 32 && steps[i] && steps[i] <= 8);
    }
    for (int i = 0; i < 3; i++) {
        TD_NEED(strides[i] % 16 == 0 && strides[i] < UINT64_C(1) << 40);
        TD_NEED(strides[i] >= (i ? strides[i - 1] : 2) * sizes[i]);
    }
    for (int i = 0; i < 2; i++) { /* the rectangle is not empty */
        TD_NEED(low[i] >= -128 && low[i] <= 127 && high[i] >= -128 && high[i] <= 127);
        TD_NEED((int64_t)sizes[i + 1] + high[i] > low[i]);
    }
    TD_NEED(channels && channels * 2 <= 128 && channels * 2 % 16 == 0);
    TD_NEED(pixels && pixels <= 1024);
    memset(map, 0, sizeof *map);
    return CU_SUCCESS;
}

cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, cu_stream stream, void **args, void **extra) {
    td_context *context;
    td_stream *s;
    TD_TRY(td_enter_context(__func__, &context));
    const ceni_kernel *kernel = ceni_kernels;
    while (kernel->name && (const void *)kernel != (const void *)function) {
        kernel++;
    }
    if (!kernel->name) {
        return CU_ERROR_INVALID_HANDLE;
    }
    TD_NEED(grid_x && grid_y && grid_z && block_x && block_y && block_z && !extra);
    TD_NEED(args || !kernel->arg_count);
    TD_TRY(td_stream_for_work(context, stream, &s));
    const cen_launch shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    return td_result(ceni_backend_host.launch(s->context->card->device, kernel->name, &shape, args,
                                              kernel->arg_count, s->host));
}
