/* The part of the CUDA driver's ABI that cenote uses, declared here so that building needs no
 * toolkit, and the table of its functions, found at run time.
 *
 * Every entry of the table can be called: one that this driver lacks returns
 * CU_ERROR_NOT_SUPPORTED. The driver is looked for once a process and never unloaded.
 * tests/unit/dev/test_cuda_abi.c holds each declaration against the toolkit's header. */
#ifndef CENI_CUDA_DRIVER_H
#define CENI_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned cu_result; /* enums of the driver have no negative values: unsigned int */
typedef unsigned cu_enum;
typedef int cu_device;
typedef unsigned long long cu_deviceptr;
typedef unsigned long long cu_handle;
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;

typedef struct cu_uuid {
    char bytes[16];
} cu_uuid;

typedef struct cu_ipc_memory {
    char reserved[64];
} cu_ipc_memory;

typedef struct cu_ipc_event {
    char reserved[64];
} cu_ipc_event;

typedef struct cu_location {
    cu_enum type;
    int id;
} cu_location;

typedef struct cu_alloc_prop {
    cu_enum type;
    cu_enum handle_types;
    cu_location location;
    void *win32_meta_data;
    struct {
        unsigned char compression;
        unsigned char rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} cu_alloc_prop;

typedef struct cu_access_desc {
    cu_location location;
    cu_enum flags;
} cu_access_desc;

typedef struct cu_tensor_map {
    _Alignas(128) uint64_t opaque[16];
} cu_tensor_map;

/* CU_MAP_*(X): X(our name without CU_, the driver's name, value). */
#define CU_ERROR_MAP(X)                                                                            \
    X(SUCCESS, CUDA_SUCCESS, 0)                                                                    \
    X(ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1)                                            \
    X(ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                            \
    X(ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED, 3)                                        \
    X(ERROR_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, 4)                                            \
    X(ERROR_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY, 34)                                             \
    X(ERROR_NEWER_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 36)                               \
    X(ERROR_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                                  \
    X(ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101)                                        \
    X(ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE, 200)                                          \
    X(ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)                                      \
    X(ERROR_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED, 208)                                        \
    X(ERROR_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                          \
    X(ERROR_NOT_MAPPED, CUDA_ERROR_NOT_MAPPED, 211)                                                \
    X(ERROR_ECC, CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                \
    X(ERROR_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                             \
    X(ERROR_INVALID_PTX, CUDA_ERROR_INVALID_PTX, 218)                                              \
    X(ERROR_NVLINK, CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                          \
    X(ERROR_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                                  \
    X(ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)                                        \
    X(ERROR_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                                                  \
    X(ERROR_NOT_READY, CUDA_ERROR_NOT_READY, 600)                                                  \
    X(ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                      \
    X(ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                        \
    X(ERROR_PEER_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                     \
    X(ERROR_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                               \
    X(ERROR_ASSERT, CUDA_ERROR_ASSERT, 710)                                                        \
    X(ERROR_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                    \
    X(ERROR_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                            \
    X(ERROR_HARDWARE_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                  \
    X(ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                              \
    X(ERROR_MISALIGNED, CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                        \
    X(ERROR_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                  \
    X(ERROR_INVALID_PC, CUDA_ERROR_INVALID_PC, 718)                                                \
    X(ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719)                                          \
    X(ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, 800)                                          \
    X(ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)                                          \
    X(ERROR_CAPTURE_FIRST, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                             \
    X(ERROR_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                             \
    X(ERROR_CAPTURE_LAST, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)

#define CU_VALUE_MAP(X)                                                                            \
    X(ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                          \
    X(ATTR_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36)                                \
    X(ATTR_MEMORY_BUS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                            \
    X(ATTR_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                        \
    X(ATTR_SHARED_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)             \
    X(ATTR_REGISTERS, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 82)                    \
    X(ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                \
    X(ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                \
    X(ATTR_CONCURRENT_MANAGED, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89)                  \
    X(ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                      \
    X(ATTR_EXPORT_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)        \
    X(ATTR_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                 \
    X(ATTR_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)                                    \
    X(ATTR_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)                                    \
    X(ATTR_HOST_NUMA_VMM, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 141)  \
    X(P2P_RANK, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1)                                       \
    X(ALLOC_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                              \
    X(HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                      \
    X(LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)                                             \
    X(LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST, 2)                                                 \
    X(LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA, 3)                                       \
    X(GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                    \
    X(PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                 \
    X(PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                                 \
    X(PROT_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                      \
    X(STREAM_NO_IMPLICIT, CU_STREAM_NON_BLOCKING, 1)                                               \
    X(EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING, 2)                                                 \
    X(EVENT_FOR_OTHERS, CU_EVENT_INTERPROCESS, 4)                                                  \
    X(IPC_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                      \
    X(RANGE_DMA_BUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                                       \
    X(ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL, 1)                                                      \
    X(HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)                                            \
    X(HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)                                      \
    X(CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0)                                              \
    X(CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                       \
    X(CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                     \
    X(FUNC_SHARED_MAX, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                         \
    X(FUNC_SHARED_PERCENT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9)                  \
    X(TENSOR_FP16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 6)                                             \
    X(TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 9)                                            \
    X(TENSOR_PLAIN, CU_TENSOR_MAP_INTERLEAVE_NONE, 0)                                              \
    X(TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B, 3)                                           \
    X(TENSOR_L2_128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 2)                                        \
    X(TENSOR_FILL_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)                                      \
    X(PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)

enum {
#define CU_ENUM(name, driver_name, value) CU_##name = (value),
    CU_ERROR_MAP(CU_ENUM) CU_VALUE_MAP(CU_ENUM)
#undef CU_ENUM
};

typedef struct ceni_cu {
#define SYM(name, suffix, version, args)            cu_result(*name) args;
#define SYM_AS(member, name, suffix, version, args) cu_result(*member) args;
#include "dev/cuda/syms.def"
} ceni_cu;

/* The driver, initialised; NULL when there is none that can be used, and then *why says so in one
 * line. Any thread. */
const ceni_cu *ceni_cuda_driver(const char **why);

#endif
