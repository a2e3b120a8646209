/* Holds the test driver's entries (entries.def, abi.h) against the toolkit's headers, at compile
 * time. Skipped where there is no toolkit. The part that cenote calls itself: test_cuda_abi. */
#include <assert.h>
#include <stddef.h>

#include "tests/driver/abi.h"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
/* The toolkit's header declares functions of the same names, and calls some of them otherwise: what
 * is compared are the types of pointers that cuGetProcAddress gives. */
/* The declarations of older symbols, too. NOLINTNEXTLINE(bugprone-reserved-identifier) */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cudaTypedefs.h>

#define VALUE(name, driver_name, value)                                                            \
    static_assert((unsigned)(CU_##name) == (unsigned)(driver_name), #driver_name);
TD_VALUE_MAP(VALUE)

#define SIZE(ours, theirs)                                                                         \
    static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs);
#define FIELD(ours, our_field, theirs, their_field)                                                \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                    \
                      sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),        \
                  #theirs "." #their_field);

SIZE(cu_pool_props, CUmemPoolProps)
FIELD(cu_pool_props, handle_types, CUmemPoolProps, handleTypes)
FIELD(cu_pool_props, location, CUmemPoolProps, location)
FIELD(cu_pool_props, max_size, CUmemPoolProps, maxSize)
SIZE(cu_array_desc, CUDA_ARRAY_DESCRIPTOR)
FIELD(cu_array_desc, format, CUDA_ARRAY_DESCRIPTOR, Format)
FIELD(cu_array_desc, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels)
SIZE(cu_array3d_desc, CUDA_ARRAY3D_DESCRIPTOR)
FIELD(cu_array3d_desc, format, CUDA_ARRAY3D_DESCRIPTOR, Format)
FIELD(cu_array3d_desc, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags)

/* With our structures named as theirs, each signature must be the toolkit's own type. */
#define cu_uuid           CUuuid
#define cu_alloc_prop     CUmemAllocationProp
#define cu_access_desc    CUmemAccessDesc
#define cu_pool_props     CUmemPoolProps
#define cu_ipc_memory     CUipcMemHandle
#define cu_location       CUmemLocation
#define cu_tensor_map     CUtensorMap
#define cu_array_desc     CUDA_ARRAY_DESCRIPTOR
#define cu_array3d_desc   CUDA_ARRAY3D_DESCRIPTOR
#define cu_edge_data      CUgraphEdgeData
#define cu_context_params CUctxCreateParams
#define cu_affinity       CUexecAffinityParam

#define SYM(name, suffix, version, args)
#define SYM_AS(member, name, suffix, version, args)
#define ENTRY(name, suffix, version, args)                                                         \
    static_assert(__builtin_types_compatible_p(cu_result(*) args, PFN_##name##_v##version),        \
                  #name #suffix);
#define THREAD(name, suffix, thread, version, args, call)                                          \
    static_assert(                                                                                 \
        __builtin_types_compatible_p(cu_result(*) args, PFN_##name##_v##version##thread),          \
        #name #suffix #thread);
#define SAME(name, suffix, target, version, args, call)                                            \
    static_assert(__builtin_types_compatible_p(cu_result(*) args, PFN_##name##_v##version),        \
                  #name #suffix);
#define NARROW(name, version) typedef PFN_##name##_v##version narrow_##name; /* it exists */
#include "tests/driver/entries.def"

int main(void) {
    return 0;
}
#else
int main(void) {
    return 77;
}
#endif
