/* Encoding and decoding in this process's memory. */
#include "codec/codec.h"

#include <string.h>

#include "base/log.h"

_Static_assert(sizeof(cen_codec_sums) == sizeof(ceni_codec_sums), "two names of one struct");

static cen_status encode_units(ceni_codec_job *job, ceni_codec_sums *rows, ceni_codec_sums *total) {
    uint64_t row = 0;
    if (job->flags & CENI_CODEC_SCALED) {
        job->flags |= CENI_CODEC_OWN_SCALES;
    }
    if (!ceni_codec_encode_host(job, rows, total, &row)) {
        return ceni_fail(CEN_ERR_INVALID,
                         "row %llu of source has more than two nonzeros of four, and "
                         "codec.refuse_dense is set",
                         (unsigned long long)row);
    }
    return CEN_OK;
}

cen_status cen_codec_encode(const cen_codec *codec, const cen_matrix *source,
                            cen_codec_parts *parts, cen_codec_sums *rows, cen_codec_sums *total) {
    ceni_codec_job job;
    ceni_codec_sums sum = {0};
    cen_codec_sizes sizes;
    cen_status status = ceni_codec_job_make(codec, source, parts, true, &job);
    status = status ? status : cen_codec_bound(codec, source->rows, source->cols, &sizes);
    if (status) {
        return status;
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16) {
        status = ceni_lossless_encode(source, parts, &sizes.values, rows, total);
    } else {
        if (rows && !source->cols) {
            memset(rows, 0, source->rows * sizeof *rows);
        }
        status = encode_units(&job, (ceni_codec_sums *)rows, total ? &sum : NULL);
        if (total && !status) {
            memcpy(total, &sum, sizeof sum);
        }
    }
    if (!status) {
        parts->bytes = sizes;
    }
    return status;
}

cen_status cen_codec_decode(const cen_codec *codec, const cen_codec_parts *parts,
                            const cen_matrix *to) {
    ceni_codec_job job;
    uint64_t row = 0;
    cen_status status = ceni_codec_job_make(codec, to, parts, false, &job);
    if (status) {
        return status;
    }
    if (codec->format == CEN_CODEC_LOSSLESS_BF16) {
        return ceni_lossless_decode(parts, to);
    }
    if (!ceni_codec_decode_host(&job, true, &row)) {
        return ceni_fail(CEN_ERR_FORMAT, "parts.metadata: row %llu has indices that do not rise",
                         (unsigned long long)row);
    }
    return CEN_OK;
}
