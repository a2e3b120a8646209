/* Encoding and decoding in this process's memory. */
#include "codec/codec.h"

#include <float.h>
#include <string.h>

#include "base/log.h"

_Static_assert(sizeof(cen_codec_sums) == sizeof(ceni_codec_sums), "two names of one struct");

/* Those of all units, which the caller gave. */
static cen_status check_given(const ceni_codec_job *job, const cen_codec_sizes *sizes) {
    const uint8_t *scales = (const uint8_t *)(uintptr_t)job->scales;
    const int8_t *zeros = (const int8_t *)(uintptr_t)job->zeros;
    for (uint64_t unit = 0; unit < sizes->scales / sizeof(float); unit++) {
        float s;
        memcpy(&s, scales + unit * sizeof s, sizeof s);
        if (!(s >= 0x1p-126f && s <= FLT_MAX)) {
            return ceni_fail(CEN_ERR_INVALID,
                             "parts.scales: that of unit %llu is %g; a given one is finite and at "
                             "least 2^-126",
                             (unsigned long long)unit, (double)s);
        }
    }
    for (uint64_t unit = 0; unit < sizes->zeros; unit++) {
        if (zeros[unit] < job->low || zeros[unit] > job->high) {
            return ceni_fail(CEN_ERR_INVALID,
                             "parts.zeros: that of unit %llu is %d; a given one is "
                             "%d to %d",
                             (unsigned long long)unit, zeros[unit], (int)job->low, (int)job->high);
        }
    }
    return CEN_OK;
}

static cen_status encode_units(ceni_codec_job *job, ceni_codec_sums *rows, ceni_codec_sums *total) {
    uint64_t row = 0;
    if ((job->flags & CENI_CODEC_SCALED) && !(job->flags & CENI_CODEC_GIVEN_SCALES)) {
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
    if (!status && codec->scales_given) {
        status = check_given(&job, &sizes);
    }
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
