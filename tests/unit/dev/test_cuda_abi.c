/* Holds our declarations of the driver's ABI (src/dev/cuda/driver.h, syms.def) against the
 * toolkit's headers, at compile time: layouts, numbers, and for each function its signature in the
 * version that we ask for. Skipped where there is no toolkit. */
#include <assert.h>
#include <stddef.h>

#include "dev/cuda/driver.h"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>

#define VALUE(name, driver_name, value)                                                            \
    static_assert((unsigned)(CU_##name) == (unsigned)(driver_name), #driver_name);
CU_ERROR_MAP(VALUE)
CU_VALUE_MAP(VALUE)

#define FIELD(ours, our_field, theirs, their_field)                                                \
    static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                    \
                      sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),        \
                  #theirs "." #their_field);
#define SIZE(ours, theirs)                                                                         \
    static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs);

SIZE(cu_uuid, CUuuid)
SIZE(cu_location, CUmemLocation)
FIELD(cu_location, type, CUmemLocation, type)
FIELD(cu_location, id, CUmemLocation, id)
SIZE(cu_alloc_prop, CUmemAllocationProp)
FIELD(cu_alloc_prop, type, CUmemAllocationProp, type)
FIELD(cu_alloc_prop, handle_types, CUmemAllocationProp, requestedHandleTypes)
FIELD(cu_alloc_prop, location, CUmemAllocationProp, location)
FIELD(cu_alloc_prop, win32_meta_data, CUmemAllocationProp, win32HandleMetaData)
FIELD(cu_alloc_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType)
FIELD(cu_alloc_prop, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
FIELD(cu_alloc_prop, flags.usage, CUmemAllocationProp, allocFlags.usage)
FIELD(cu_alloc_prop, flags.reserved, CUmemAllocationProp, allocFlags.reserved)
SIZE(cu_access_desc, CUmemAccessDesc)
SIZE(cu_tensor_map, CUtensorMap)
FIELD(cu_access_desc, location, CUmemAccessDesc, location)
FIELD(cu_access_desc, flags, CUmemAccessDesc, flags)
SIZE(cu_ipc_memory, CUipcMemHandle)
SIZE(cu_ipc_event, CUipcEventHandle)

/* With our structures named as theirs, each signature must be the toolkit's own type. */
#define cu_uuid        CUuuid
#define cu_alloc_prop  CUmemAllocationProp
#define cu_access_desc CUmemAccessDesc
#define cu_ipc_memory  CUipcMemHandle
#define cu_ipc_event   CUipcEventHandle
#define cu_tensor_map  CUtensorMap
#define cu_location    CUmemLocation
#define SYM(name, suffix, version, args)                                                           \
    static_assert(__builtin_types_compatible_p(cu_result(*) args, PFN_##name##_v##version),        \
                  #name #suffix);
#define SYM_AS(member, name, suffix, version, args)                                                \
    static_assert(__builtin_types_compatible_p(cu_result(*) args, PFN_##name##_v##version),        \
                  #name #suffix);
#include "dev/cuda/syms.def"

/* The symbol that a suffix names is the one that the headers give the plain name. */
#define SYM(name, suffix, version, args)                                                           \
    static_assert(__builtin_types_compatible_p(__typeof__(&name##suffix), cu_result(*) args),      \
                  #name #suffix);
#define SYM_AS(member, name, suffix, version, args)                                                \
    static_assert(__builtin_types_compatible_p(__typeof__(&name##suffix), cu_result(*) args),      \
                  #name #suffix);
#include "dev/cuda/syms.def"

int main(void) {
    return 0;
}
#else
int main(void) {
    return 77;
}
#endif
