/* The part of the driver's ABI that programs use beside cenote itself (src/dev/cuda/driver.h):
 * types and numbers of the test driver's other entries. test_driver_abi.c holds all of it against
 * the toolkit's header. */
#ifndef TESTS_DRIVER_ABI_H
#define TESTS_DRIVER_ABI_H

#include <stdint.h>

#include "dev/cuda/driver.h"

typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct CUarray_st *cu_array;
typedef struct CUlib_st *cu_library;
typedef struct CUkern_st *cu_kernel;
typedef struct CUgraphNode_st *cu_graph_node;
typedef struct CUgraphEdgeData_st cu_edge_data; /* seen as pointers that stay NULL */
typedef struct CUctxCreateParams_st cu_context_params;
typedef struct CUexecAffinityParam_st cu_affinity;

typedef struct cu_pool_props {
    cu_enum type;
    cu_enum handle_types;
    cu_location location;
    void *win32_security_attributes;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} cu_pool_props;

typedef struct cu_array_desc {
    size_t width, height;
    cu_enum format;
    unsigned channels;
} cu_array_desc;

typedef struct cu_array3d_desc {
    size_t width, height, depth;
    cu_enum format;
    unsigned channels;
    unsigned flags;
} cu_array3d_desc;

#define TD_VALUE_MAP(X)                                                                            \
    X(ERROR_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                       \
    X(ERROR_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                       \
    X(ERROR_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                           \
    X(ERROR_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                     \
    X(ERROR_ILLEGAL_STATE, CUDA_ERROR_ILLEGAL_STATE, 401)                                          \
    X(ERROR_FILE_NOT_FOUND, CUDA_ERROR_FILE_NOT_FOUND, 301)                                        \
    X(ERROR_PEER_NOT_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705)                             \
    X(ERROR_PRIMARY_ACTIVE, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708)                                \
    X(ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN, 999)                                                      \
    X(ATTR_MAX_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)                              \
    X(ATTR_WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10)                                           \
    X(ATTR_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                         \
    X(ATTR_MANAGED, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                        \
    X(ATTR_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                 \
    X(P2P_ACCESS, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)                                     \
    X(PROC_ADDRESS_PER_THREAD, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, 2)                   \
    X(PROC_ADDRESS_FOUND, CU_GET_PROC_ADDRESS_SUCCESS, 0)                                          \
    X(PROC_ADDRESS_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                             \
    X(PROC_ADDRESS_TOO_OLD, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)                         \
    X(CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                          \
    X(CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                \
    X(CAPTURE_MODE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                 \
    X(ATTACH_HOST, CU_MEM_ATTACH_HOST, 2)                                                          \
    X(MEMORY_HOST, CU_MEMORYTYPE_HOST, 1)                                                          \
    X(MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE, 2)                                                      \
    X(POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                            \
    X(POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                    \
    X(POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                      \
    X(POINTER_HOST, CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                          \
    X(POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                         \
    X(POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                     \
    X(POINTER_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                    \
    X(POINTER_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                           \
    X(POINTER_MAPPED, CU_POINTER_ATTRIBUTE_MAPPED, 13)                                             \
    X(POINTER_POOL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                                       \
    X(POOL_FOLLOW_EVENTS, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1)                      \
    X(POOL_OPPORTUNISTIC, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 2)                            \
    X(POOL_INTERNAL, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 3)                         \
    X(POOL_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4)                                        \
    X(POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5)                                      \
    X(POOL_RESERVED_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 6)                                    \
    X(POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)                                              \
    X(POOL_USED_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8)                                            \
    X(FORMAT_UINT8, CU_AD_FORMAT_UNSIGNED_INT8, 1)                                                 \
    X(FORMAT_UINT16, CU_AD_FORMAT_UNSIGNED_INT16, 2)                                               \
    X(FORMAT_UINT32, CU_AD_FORMAT_UNSIGNED_INT32, 3)                                               \
    X(FORMAT_SINT8, CU_AD_FORMAT_SIGNED_INT8, 8)                                                   \
    X(FORMAT_SINT16, CU_AD_FORMAT_SIGNED_INT16, 9)                                                 \
    X(FORMAT_SINT32, CU_AD_FORMAT_SIGNED_INT32, 10)                                                \
    X(FORMAT_HALF, CU_AD_FORMAT_HALF, 16)                                                          \
    X(FORMAT_FLOAT, CU_AD_FORMAT_FLOAT, 32)

enum {
#define TD_ENUM(name, driver_name, value) CU_##name = (value),
    TD_VALUE_MAP(TD_ENUM)
#undef TD_ENUM
};

/* The two streams that have a number instead of a handle. */
#define CU_STREAM_LEGACY     ((cu_stream)(uintptr_t)1)
#define CU_STREAM_PER_THREAD ((cu_stream)(uintptr_t)2)

#endif
