/* Holds what the interposer says of the driver's ABI (preload/abi.h, preload/hooks.def) against the
 * toolkit's headers, at compile time: layouts, numbers, and that each name has a signature of the
 * version that cuGetProcAddress is asked for. Skipped where there is no toolkit. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "preload/abi.h"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
/* The earlier signatures too; the name is the toolkit's. */
#define __CUDA_API_VERSION_INTERNAL /* NOLINT(bugprone-reserved-identifier) */
#include <cuda.h>
#include <cudaTypedefs.h>

#define VALUE(ours, theirs) static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
VALUE(PL_SUCCESS, CUDA_SUCCESS);
VALUE(PL_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
VALUE(PL_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
VALUE(PL_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
VALUE(PL_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
VALUE(PL_POOL_RESERVED_NOW, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
VALUE(PL_POOL_USED_NOW, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
VALUE(PL_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
VALUE(PL_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
VALUE(PL_PER_THREAD, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
VALUE(PL_LEGACY, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
VALUE(PL_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
VALUE(PL_ARRAY_CUBEMAP, CUDA_ARRAY3D_CUBEMAP);
VALUE(PL_ARRAY_LAYERED, CUDA_ARRAY3D_LAYERED);
VALUE(PL_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE);
VALUE(PL_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING);

#define FIELD(ours, our_field, theirs, their_field)                                                \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                    \
                      sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),        \
                  #theirs "." #their_field)
#define SIZE(ours, theirs)                                                                         \
    static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)

FIELD(pl_page_prop, location.type, CUmemAllocationProp, location.type);
FIELD(pl_page_prop, location.id, CUmemAllocationProp, location.id);
FIELD(pl_pool_prop, location.type, CUmemPoolProps, location.type);
FIELD(pl_pool_prop, location.id, CUmemPoolProps, location.id);
SIZE(pl_access, CUmemAccessDesc);
FIELD(pl_access, flags, CUmemAccessDesc, flags);
SIZE(pl_array_desc, CUDA_ARRAY_DESCRIPTOR);
FIELD(pl_array_desc, height, CUDA_ARRAY_DESCRIPTOR, Height);
FIELD(pl_array_desc, format, CUDA_ARRAY_DESCRIPTOR, Format);
FIELD(pl_array_desc, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SIZE(pl_array3d_desc, CUDA_ARRAY3D_DESCRIPTOR);
FIELD(pl_array3d_desc, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
FIELD(pl_array3d_desc, format, CUDA_ARRAY3D_DESCRIPTOR, Format);
FIELD(pl_array3d_desc, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
FIELD(pl_external_desc, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size);
SIZE(pl_ipc, CUipcMemHandle);
SIZE(pl_uuid, CUuuid);

/* Handles of theirs are plain pointers of ours, so signatures as wholes are of other types; what is
 * checked is that there is one of this version. */
#define KIND_0(type)             (void)sizeof(type)
#define KIND_PL_LEGACY(type)     (void)sizeof(type)
#define KIND_PL_PER_THREAD(type) (void)sizeof(type##_ptsz)

static void look_up_names(void) {
#define HOOK(symbol, plain, version, streams, parameters, arguments)                               \
    KIND_##streams(PFN_##plain##_v##version);
#include "preload/hooks.def"
}

int main(void) {
    look_up_names();
    /* Pointers, which are no constants for every compiler. */
    bool streams = PL_STREAM_LEGACY == (pl_ptr)CU_STREAM_LEGACY &&
                   PL_STREAM_PER_THREAD == (pl_ptr)CU_STREAM_PER_THREAD;
    return streams ? 0 : 1;
}
#else
int main(void) {
    return 77;
}
#endif
