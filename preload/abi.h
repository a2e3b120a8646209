/* The part of the CUDA driver's ABI that the interposer sees, declared here so that building needs
 * no toolkit. Handles are opaque; what is only passed on is a plain pointer. */
#ifndef CENI_PRELOAD_ABI_H
#define CENI_PRELOAD_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned pl_result; /* enums of the driver have no negative values: unsigned int */
typedef unsigned pl_enum;
typedef int pl_device;
typedef unsigned long long pl_addr;
typedef unsigned pl_addr_v1; /* of the first ABI, from before CUDA 3.2 */
typedef unsigned long long pl_page;
typedef unsigned long long pl_flags;
typedef void *pl_ptr; /* contexts, streams, modules, graphs, pools, arrays */

#define PL_STREAM_LEGACY     ((pl_ptr)(uintptr_t)1) /* CU_STREAM_LEGACY */
#define PL_STREAM_PER_THREAD ((pl_ptr)(uintptr_t)2) /* CU_STREAM_PER_THREAD */

enum {
    PL_SUCCESS = 0,
    PL_INVALID_VALUE = 1,
    PL_OUT_OF_MEMORY = 2,
    PL_NO_DEVICE = 100,
    PL_NOT_SUPPORTED = 801,

    PL_POOL_RESERVED_NOW = 5,   /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    PL_POOL_USED_NOW = 7,       /* CU_MEMPOOL_ATTR_USED_MEM_CURRENT */
    PL_LOCATION_DEVICE = 1,     /* CU_MEM_LOCATION_TYPE_DEVICE */
    PL_STREAM_NON_BLOCKING = 1, /* CU_STREAM_NON_BLOCKING */
    PL_PER_THREAD = 2,          /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
    PL_LEGACY = 1,              /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
    PL_ACCESS_READ_WRITE = 3,   /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
    PL_ARRAY_CUBEMAP = 4,       /* CUDA_ARRAY3D_CUBEMAP */
    PL_ARRAY_LAYERED = 1,       /* CUDA_ARRAY3D_LAYERED */
    PL_ARRAY_SPARSE = 0x40,     /* CUDA_ARRAY3D_SPARSE: no memory of its own */
    PL_ARRAY_DEFERRED = 0x80    /* CUDA_ARRAY3D_DEFERRED_MAPPING: the same */
};

typedef struct pl_location {
    pl_enum type;
    int id;
} pl_location;

typedef struct pl_page_prop { /* the beginning of CUmemAllocationProp */
    pl_enum type, handle_types;
    pl_location location;
} pl_page_prop;

typedef struct pl_pool_prop { /* the beginning of CUmemPoolProps */
    pl_enum type, handle_types;
    pl_location location;
} pl_pool_prop;

typedef struct pl_access {
    pl_location location;
    pl_enum flags;
} pl_access;

typedef struct pl_array_desc {
    size_t width, height;
    pl_enum format;
    unsigned channels;
} pl_array_desc;

typedef struct pl_array_desc_v1 {
    unsigned width, height;
    pl_enum format;
    unsigned channels;
} pl_array_desc_v1;

typedef struct pl_array3d_desc {
    size_t width, height, depth;
    pl_enum format;
    unsigned channels, flags;
} pl_array3d_desc;

typedef struct pl_array3d_desc_v1 {
    unsigned width, height, depth;
    pl_enum format;
    unsigned channels, flags;
} pl_array3d_desc_v1;

typedef struct pl_external_desc { /* the beginning of CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
    pl_enum type;
    union {
        int fd;
        void *pointers[2];
    } handle;
    unsigned long long size;
} pl_external_desc;

typedef struct pl_ipc {
    char reserved[64];
} pl_ipc;

typedef struct pl_uuid {
    unsigned char bytes[16];
} pl_uuid;

#endif
