/* Tensor files: safetensors, read and written with every count of theirs checked.
 *
 * A file is read with pread, never mapped: who cuts it off while it is read ends no program. What
 * a header says is compared with the file's size before memory is asked for; names that are there
 * twice, bytes that belong to no tensor or to two, and counts that wrap are refused. A model in
 * several files is read through its index (a path that ends in ".index.json") as if it were one.
 * docs/tensors.md has the rules. Sizes are in bytes, offsets from 0.
 *
 * What is open is immutable: any number of threads may read from it. */
#ifndef CENOTE_TENSOR_H
#define CENOTE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cenote/dtype.h"
#include "cenote/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The types of safetensors in its own order: spelling, bits of an element, cen_dtype (0: there is
 * none, the bytes are kept as they are). */
#define CEN_TENSOR_TYPE_MAP(X)                                                                     \
    X("BOOL", 8, CEN_BOOL)                                                                         \
    X("F4", 4, 0)                                                                                  \
    X("F6_E2M3", 6, 0)                                                                             \
    X("F6_E3M2", 6, 0)                                                                             \
    X("U8", 8, CEN_UINT8)                                                                          \
    X("I8", 8, CEN_INT8)                                                                           \
    X("F8_E5M2", 8, CEN_FP8_E5M2)                                                                  \
    X("F8_E4M3", 8, CEN_FP8_E4M3)                                                                  \
    X("F8_E8M0", 8, 0)                                                                             \
    X("F8_E4M3FNUZ", 8, 0)                                                                         \
    X("F8_E5M2FNUZ", 8, 0)                                                                         \
    X("I16", 16, CEN_INT16)                                                                        \
    X("U16", 16, CEN_UINT16)                                                                       \
    X("F16", 16, CEN_FP16)                                                                         \
    X("BF16", 16, CEN_BF16)                                                                        \
    X("I32", 32, CEN_INT32)                                                                        \
    X("U32", 32, CEN_UINT32)                                                                       \
    X("F32", 32, CEN_FP32)                                                                         \
    X("C64", 64, 0)                                                                                \
    X("F64", 64, CEN_FP64)                                                                         \
    X("I64", 64, CEN_INT64)                                                                        \
    X("U64", 64, CEN_UINT64)

/* The spelling of a type in a tensor file, such as "BF16"; NULL if it has none there. Any thread.
 */
CEN_API const char *cen_tensor_type(cen_dtype dtype);

/* A header may be this long, and no longer, by safetensors' own rule. */
#define CEN_TENSOR_HEADER_MAX 100000000u

/* One tensor of an open file. Text and shape are the file's, until it is closed. Elements lie row
 * by row, little-endian, at any address: they are not aligned to their size. */
typedef struct cen_tensor {
    const char *name; /* UTF-8; may hold control characters, and may be "" */
    const char *type; /* as the file spells it: "F32", "F8_E8M0" */
    cen_dtype dtype;  /* 0: cenote has none for it; bytes are all that there is */
    uint32_t bits;    /* of an element */
    uint32_t shard;   /* the file that it lies in; 0 unless there are several */
    uint32_t rank;
    const uint64_t *shape; /* of `rank` numbers; rank 0: one element */
    uint64_t count;        /* elements */
    uint64_t offset;       /* of its first byte in its file */
    uint64_t bytes;
} cen_tensor;

/* An entry of a file's metadata. */
typedef struct cen_tensor_note {
    const char *key, *value;
} cen_tensor_note;

typedef struct cen_tensors cen_tensors;

/* Opens a tensor file, or all files of an index. CEN_ERR_NOT_FOUND: there is no such file;
 * CEN_ERR_IO; CEN_ERR_FORMAT: a rule is broken, the log says which and where; CEN_ERR_TRUNCATED:
 * the file is shorter than its header says; CEN_ERR_HOST_MEMORY. Any thread. */
CEN_API cen_status cen_tensors_open(const char *path, cen_tensors **tensors);
/* NULL is ignored. No other thread may be reading. */
CEN_API void cen_tensors_close(cen_tensors *tensors);

/* Tensors, in the order of their bytes; of several files, one file after the other. NULL: there
 * are not as many. */
CEN_API size_t cen_tensors_count(const cen_tensors *tensors);
CEN_API const cen_tensor *cen_tensors_get(const cen_tensors *tensors, size_t index);
/* The tensor of a name; NULL: there is none. */
CEN_API const cen_tensor *cen_tensors_find(const cen_tensors *tensors, const char *name);

/* The metadata, by key. Of several files: what any of them says, and the first of those that say
 * something of the same key. */
CEN_API size_t cen_tensors_note_count(const cen_tensors *tensors);
CEN_API const cen_tensor_note *cen_tensors_get_note(const cen_tensors *tensors, size_t index);
/* The value of a key; NULL: there is none. */
CEN_API const char *cen_tensors_find_note(const cen_tensors *tensors, const char *key);

/* The files that are read. */
typedef struct cen_tensor_shard {
    const char *path;
    uint64_t bytes;        /* of the whole file */
    uint64_t header_bytes; /* of its header, with the 8 bytes that say how long it is */
} cen_tensor_shard;
CEN_API size_t cen_tensors_shard_count(const cen_tensors *tensors);
CEN_API const cen_tensor_shard *cen_tensors_get_shard(const cen_tensors *tensors, size_t index);

/* Whether `path` names one of the files that are read, the index too, by whatever name: a writer
 * that replaced it would take its own input away. */
CEN_API bool cen_tensors_reads(const cen_tensors *tensors, const char *path);

/* Copies `bytes` bytes of a tensor, from its byte `offset` on, to `to`, which needs no alignment.
 * CEN_ERR_INVALID: beyond its end; CEN_ERR_TRUNCATED: the file was cut off since it was opened;
 * CEN_ERR_IO. Any thread. */
CEN_API cen_status cen_tensors_read(const cen_tensors *tensors, const cen_tensor *tensor,
                                    uint64_t offset, uint64_t bytes, void *to);

/* Copies `count` elements of a tensor, from element `first` on, to `to` as doubles: exactly, save
 * for integers of 64 bits, which are rounded beyond 2^53. false and true are 0 and 1.
 * CEN_ERR_UNSUPPORTED: it has no dtype; otherwise as cen_tensors_read. Any thread. */
CEN_API cen_status cen_tensors_values(const cen_tensors *tensors, const cen_tensor *tensor,
                                      uint64_t first, uint64_t count, double *to);

/* What a tensor's elements are like. All but the counts are of its finite elements, and 0 if it has
 * none. */
typedef struct cen_tensor_stats {
    uint64_t count, nan, infinite, zeros;
    double min, max, mean, absmax;
    double std; /* the root of the mean squared distance from the mean */
} cen_tensor_stats;

/* Reads a tensor once, in pieces; twice if squares of its elements are beyond a double's range.
 * CEN_ERR_HOST_MEMORY, and as cen_tensors_values. Any thread. */
CEN_API cen_status cen_tensors_stats(const cen_tensors *tensors, const cen_tensor *tensor,
                                     cen_tensor_stats *stats);

/* How far a tensor is from another. The figures below `nonfinite` are over the elements that are
 * finite on both sides; a, b: the elements of the first and the second. If any is finite in the
 * first only, the errors are infinite, sqnr_db is -infinity and cosine 0, as in the report of a
 * codec in which an element overflowed. */
typedef struct cen_tensor_difference {
    uint64_t count;
    uint64_t different; /* elements that are not equal; two NaNs are, and so are 0 and -0 */
    bool numeric; /* false: the type has no dtype. `different` counts bytes, what follows is 0 */
    uint64_t nonfinite; /* of `different`, such as are NaN or infinite on one side or both */
    double max_error;   /* the largest |a - b| */
    double mse;         /* the mean of (a - b)^2 */
    double sqnr_db;     /* 10 log10(sum of a^2 / sum of (a - b)^2); infinite if there is no error */
    double cosine;      /* of a and b; 1 if both are zero, 0 if one is */
} cen_tensor_difference;

/* Compares two tensors of as many elements, whatever their types, as doubles; integers of 64 bits,
 * if both are, to the last bit. A tensor that its file describes as quantised is decoded first
 * (docs/formats/quantized.md). CEN_ERR_INVALID: not as many elements;
 * CEN_ERR_UNSUPPORTED: no dtype, and not the same type; CEN_ERR_FORMAT: a description that is off;
 * CEN_ERR_HOST_MEMORY, and as cen_tensors_read. Any thread. */
CEN_API cen_status cen_tensors_compare(const cen_tensors *a, const cen_tensor *of_a,
                                       const cen_tensors *b, const cen_tensor *of_b,
                                       cen_tensor_difference *difference);

/* What a tensor of a file to be written is. */
typedef struct cen_tensor_spec {
    const char *name; /* UTF-8, not "__metadata__" */
    const char *type; /* one of CEN_TENSOR_TYPE_MAP */
    uint32_t rank;
    const uint64_t *shape;
} cen_tensor_spec;

typedef struct cen_tensor_writer cen_tensor_writer;

/* Begins a file of these tensors and this metadata; nothing that is passed needs to stay. The file
 * appears under its name with cen_tensor_writer_finish, whole: until then its bytes are in a file
 * of the same folder that has no name, so that a process that is killed leaves nothing; where the
 * file system has no such files, in ".cenote-PID-N.part", which may be removed then. What was there
 * before stays as it is until then, and is then replaced; one who has it open still reads it.
 * CEN_ERR_INVALID: an argument is NULL, no such type, a shape of too many bytes, a tensor that does
 * not fill its last byte, a name or key that is there twice or is no UTF-8, or a path that is there
 * and is no plain file, that ends in ".index.json", or that is a symbolic link to nothing;
 * CEN_ERR_IO: also a disk without the room; CEN_ERR_HOST_MEMORY. A writer is used by one thread at
 * a time. */
CEN_API cen_status cen_tensor_writer_open(const char *path, const cen_tensor_spec *specs,
                                          size_t count, const cen_tensor_note *notes,
                                          size_t note_count, cen_tensor_writer **writer);

/* Appends bytes to the tensor specs[index]. Tensors may be written in any order, and in turns.
 * CEN_ERR_INVALID: more bytes than it has. CEN_ERR_IO; after it, and after a failed finish, only
 * cen_tensor_writer_drop is of use. No signal (SIGXFSZ) reaches the program for it. */
CEN_API cen_status cen_tensor_writer_put(cen_tensor_writer *writer, size_t index, const void *data,
                                         uint64_t bytes);

/* What the finished file takes, header and all. */
CEN_API uint64_t cen_tensor_writer_bytes(const cen_tensor_writer *writer);

/* Gives the file its name: its bytes are on the disk before its name is, and its name is when this
 * returns. The writer is gone in any case; on failure the file is as it was before, or absent
 * (unless it is the last step that failed, to have the folder written: the log says so).
 * CEN_ERR_INVALID: a tensor is not complete; CEN_ERR_IO. */
CEN_API cen_status cen_tensor_writer_finish(cen_tensor_writer *writer);
/* Gives it up: nothing is left of it. NULL is ignored. */
CEN_API void cen_tensor_writer_drop(cen_tensor_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
