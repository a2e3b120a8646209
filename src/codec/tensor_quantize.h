/* A tensor file made of another: what is planned for each tensor, and how it is written. */
#ifndef CENI_TENSOR_QUANTIZE_H
#define CENI_TENSOR_QUANTIZE_H

#include "cenote/calibrate.h"
#include "codec/tensor_quantized.h"

/* The parts of an encoded tensor in the output, and the texts that are made for one: the names of
 * the parts after the first, and the description's key and value. */
enum { CENI_PARTS = 4, CENI_TEXTS = 5 };

typedef enum ceni_made { CENI_KEPT, CENI_ENCODED, CENI_DECODED, CENI_LEFT_OUT } ceni_made;

typedef struct ceni_quantize_item {
    ceni_made made;
    const char *why; /* CENI_KEPT, CENI_LEFT_OUT */
    cen_quantized q; /* CENI_DECODED: where it is; CENI_ENCODED: codec, type and shape only */
    cen_codec_sizes sizes;
    cen_codec_sums sums;
    float threshold; /* that its scales are cut to; 0: they are not */
    char *texts[CENI_TEXTS];
    uint64_t shapes[CENI_PARTS][CEN_QUANTIZED_RANK];
    size_t first; /* its first tensor in the output */
} ceni_quantize_item;

typedef struct ceni_quantize_job {
    const cen_tensors *in;
    const char *out;
    const cen_quantize_options *options;
    ceni_quantize_item *items; /* of each tensor of `in` */
    size_t count;
    cen_tensor_spec *specs;
    cen_tensor_note *notes;
    size_t spec_count, note_count;
    cen_tensor_writer *writer; /* NULL: it is planned still */
    uint64_t done, total;
} ceni_quantize_job;

/* So many bytes more were read. */
void ceni_quantize_advance(ceni_quantize_job *job, uint64_t bytes);

/* Counts a tensor's elements; then its item's threshold for its codec as it is now, by the options'
 * method. Of zeros or nothing finite, there is none. */
cen_status ceni_quantize_calibrate(ceni_quantize_job *job, const cen_tensor *tensor,
                                   const ceni_quantize_item *item, cen_calibration **calibration);
cen_status ceni_quantize_threshold(const ceni_quantize_job *job, const cen_calibration *calibration,
                                   ceni_quantize_item *item);
/* As cen_codec_encode, with scales that are cut to the item's threshold. */
cen_status ceni_quantize_encode_matrix(const ceni_quantize_item *item, const cen_matrix *matrix,
                                       cen_codec_parts *parts, cen_codec_sums *sums);

/* Encodes a tensor piece by piece: its sums, the lossless format's bytes, and, once there is a
 * writer, its parts in the output. */
cen_status ceni_quantize_encode(ceni_quantize_job *job, const cen_tensor *tensor,
                                ceni_quantize_item *item);
/* Decodes it into the output, or copies it there. */
cen_status ceni_quantize_decode(ceni_quantize_job *job, const cen_tensor *tensor,
                                ceni_quantize_item *item);
cen_status ceni_quantize_copy(ceni_quantize_job *job, const cen_tensor *tensor,
                              ceni_quantize_item *item);

/* Sets what each item becomes: bytes known, budget kept, in one reading of it if that is needed. */
cen_status ceni_quantize_plan(ceni_quantize_job *job);

/* The output's tensors and metadata. */
cen_status ceni_quantize_lay_out(ceni_quantize_job *job);

#endif
