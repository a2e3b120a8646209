/* Products whose B is encoded: what is refused, and the job that their kernels decode. */
#include "codec/codec.h"
#include "compute/product.h"

#include "base/log.h"
#include "base/over.h"

static cen_status check_format(const cen_product *p) {
    cen_codec_format format = p->b_codec->format;
    if (p->b.dtype != CEN_BF16 && p->b.dtype != CEN_FP16) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "product: B is encoded, and multiplied as %s; bf16 and fp16 are there",
                         cen_dtype_name(p->b.dtype));
    }
    if (format == CEN_CODEC_FP16 || format == CEN_CODEC_BF16 || format == CEN_CODEC_LOSSLESS_BF16) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "product: B is of codec %s, which no kernel of products decodes",
                         cen_codec_format_name(format));
    }
    uint32_t cols = p->b_codec->block_cols;
    bool power = cols >= CENI_CODED_RUN && !(cols & (cols - 1));
    if (cols > 1 && cols < p->b.cols && !power) {
        return ceni_fail(CEN_ERR_UNSUPPORTED,
                         "product: B has blocks of %u columns; 1, powers of two from 16 on and all "
                         "are there",
                         cols);
    }
    return CEN_OK;
}

/* The parts that a job has, with their bytes. */
static cen_status check_apart(const cen_product *p, const ceni_codec_job *w) {
    uint64_t rows = ceni_over(w->rows, w->unit_rows), units = rows * w->units_across;
    uint64_t scales = w->flags & CENI_CODEC_SCALED ? units : 0;
    uint64_t zeros = w->flags & CENI_CODEC_ASYMMETRIC ? units : 0;
    const struct {
        const char *name;
        uint64_t addr, bytes;
    } parts[] = {{"b_parts.values", w->values, w->rows * w->pitch},
                 {"b_parts.scales", w->scales, scales * sizeof(float)},
                 {"b_parts.zeros", w->zeros, zeros},
                 {"b_parts.metadata", w->metadata, w->rows * w->metadata_pitch}};
    cen_status status = CEN_OK;
    for (size_t i = 0; !status && i < sizeof parts / sizeof *parts; i++) {
        status = parts[i].bytes ? ceni_product_vector("product", parts[i].name, parts[i].addr,
                                                      CEN_UINT8, parts[i].bytes, "D", &p->d)
                                : CEN_OK;
    }
    return status;
}

cen_status ceni_product_weight(const cen_product *p, ceni_codec_job *weight) {
    if (p->b.data) {
        return ceni_fail(CEN_ERR_INVALID,
                         "product: B has both b_codec and b.data; an encoded one is in b_parts");
    }
    cen_status status = check_format(p);
    if (!status) {
        status =
            ceni_codec_job_of_parts(p->b_codec, p->b.rows, p->b.cols, &p->b_parts, "B", weight);
    }
    status = status ? status : ceni_codec_job_aligned(weight);
    return status ? status : check_apart(p, weight);
}

uint8_t ceni_product_weight_wide(const ceni_codec_job *w) {
    bool sparse = (w->flags & CENI_CODEC_SPARSE) != 0;
    uint64_t run = w->kind == CENI_CODEC_INT4 || (sparse && w->kind == CENI_CODEC_INT8) ? 8 : 16;
    return (w->values | w->pitch) % run == 0 &&
                   (!sparse || (w->metadata | w->metadata_pitch) % 4 == 0)
               ? CENI_WIDE_B
               : 0;
}
