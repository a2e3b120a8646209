/* What the files of mixed precision share. */
#ifndef CENI_CODEC_PRECISION_H
#define CENI_CODEC_PRECISION_H

#include "cenote/precision.h"
#include "kernels/precision.h"

/* A state's address: not 0, aligned. */
cen_status ceni_precision_place(cen_device *device, const char *name, cen_addr addr,
                                uint64_t alignment);
/* A matrix of FP32, FP16 or BF16. */
cen_status ceni_precision_matrix(const cen_matrix *matrix, const char *name);
/* A launch of as many blocks as there are pieces of work, but no more than keep the device busy.
 */
cen_status ceni_precision_launch(cen_device *device, const char *kernel, void *job, uint64_t blocks,
                                 cen_stream stream);

#endif
