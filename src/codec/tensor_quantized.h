/* Quantised tensors in a file: the names of their parts, and their descriptions. */
#ifndef CENI_TENSOR_QUANTIZED_H
#define CENI_TENSOR_QUANTIZED_H

#include "cenote/quantize.h"

#define CENI_QUANTIZED_KEY "cenote.quantized:" /* before a tensor's name: its description's key */
#define CENI_SCALES_END    ".scale"
#define CENI_ZEROS_END     ".zero_point"
#define CENI_METADATA_END  ".sparse"

/* Bytes of the source in memory at a time, or one row. */
#define CENI_ROWS_BYTES ((uint64_t)4 << 20)

/* Of a codec whose parts of several rows are those of each row, one after another; lossless, which
 * is encoded at once, too. */
bool ceni_quantized_fits(const cen_codec *codec);

/* Rows to be had at a time, of those that there are; all of the lossless format. */
uint64_t ceni_quantized_rows(const cen_codec *codec, uint64_t rows, uint64_t cols);

/* The type and the shape of the part `values`, which has `bytes` bytes. */
const char *ceni_quantized_type(cen_codec_format format);
void ceni_quantized_shape(const cen_quantized *quantized, uint64_t bytes, uint32_t *rank,
                          uint64_t shape[CEN_QUANTIZED_RANK]);

/* `name` between two texts, to be freed with ceni_free; NULL: no memory. */
char *ceni_quantized_text(const char *before, const char *name, const char *end);

/* The description of a tensor, to be freed with ceni_free; NULL: no memory. */
char *ceni_quantized_describe(const cen_quantized *quantized);

/* Rows and columns of the matrix that a tensor is. */
void ceni_quantized_matrix(const cen_tensor *tensor, uint64_t *rows, uint64_t *cols);

#endif
