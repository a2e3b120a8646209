/* Calibration: which range of numbers a codec should keep, from batches seen one after another.
 *
 * A calibration holds a histogram of magnitudes of fixed size (1 MiB), whose bins are the upper 18
 * bits of an FP32 without its sign: 512 an octave, over all finite numbers; counts are of 64 bits.
 * Beside it are counts, the least and the largest element, and, if channels are wanted, the same of
 * each with its moments. One pass over each batch; nothing of a batch is kept. Two calibrations
 * merge into that of all they saw: bit for bit, save for moments, which are sums of doubles.
 * docs/calibration.md says how thresholds are found.
 *
 * Sources are FP32, FP16 or BF16. Functions may be called from any thread; one calibration may be
 * used by several at once as long as none of them changes it. */
#ifndef CENOTE_CALIBRATE_H
#define CENOTE_CALIBRATE_H

#include <stddef.h>
#include <stdint.h>

#include "cenote/codec.h"
#include "cenote/device.h"
#include "cenote/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cen_calibration cen_calibration;

/* What the channels of a batch are. Every batch has as many. */
typedef enum cen_channels {
    CEN_CHANNELS_NONE = 0,
    CEN_CHANNELS_ROWS = 1,
    CEN_CHANNELS_COLUMNS = 2
} cen_channels;

/* min and max are of the finite elements; both 0 if there are none. amax: the larger size. */
typedef struct cen_calibration_stats {
    uint64_t count; /* elements, all of them */
    uint64_t nan, infinite, zeros;
    float min, max, amax;
} cen_calibration_stats;

typedef struct cen_calibration_channel {
    cen_calibration_stats stats;
    double sum, sum2; /* of the finite elements and of their squares */
} cen_calibration_channel;

/* An empty calibration. `count`: channels of each batch, 1 to 2^32; 0 with CEN_CHANNELS_NONE.
 * Release it with cen_calibration_free, which ignores NULL. CEN_ERR_INVALID, CEN_ERR_HOST_MEMORY.
 */
CEN_API cen_status cen_calibration_create(cen_channels channels, uint64_t count,
                                          cen_calibration **calibration);
CEN_API void cen_calibration_free(cen_calibration *calibration);

/* Adds a batch in this process's memory. CEN_ERR_INVALID: an argument, or not as many channels.
 * CEN_ERR_LIMIT: more than 2^64 - 1 elements in all. */
CEN_API cen_status cen_calibration_add(cen_calibration *calibration, const cen_matrix *batch);

/* The same on a device, into `state`: cen_calibration_bytes of its memory, aligned to 8 bytes. It
 * is cleared first, gets any number of batches in stream order without the host waiting, and then
 * collected: added to the calibration, which waits for the stream. What was collected is not
 * cleared. CEN_ERR_UNSUPPORTED: the library has no CUDA kernels. */
CEN_API cen_status cen_calibration_bytes(const cen_calibration *calibration, uint64_t *bytes);
CEN_API cen_status cen_calibration_clear_async(cen_device *device,
                                               const cen_calibration *calibration, cen_addr state,
                                               cen_stream stream);
CEN_API cen_status cen_calibration_add_async(cen_device *device, const cen_calibration *calibration,
                                             cen_addr state, const cen_matrix *batch,
                                             cen_stream stream);
CEN_API cen_status cen_calibration_collect(cen_device *device, cen_calibration *calibration,
                                           cen_addr state, cen_stream stream);

/* Adds what `from` saw to `to`. CEN_ERR_INVALID: their channels differ, or they are one.
 * CEN_ERR_LIMIT: as cen_calibration_add; nothing is changed then. */
CEN_API cen_status cen_calibration_merge(cen_calibration *to, const cen_calibration *from);

/* What its channels are and how many, as it was made or loaded. CEN_ERR_INVALID: an argument is
 * NULL. */
CEN_API cen_status cen_calibration_get_channels(const cen_calibration *calibration,
                                                cen_channels *channels, uint64_t *count);
/* Of all elements. CEN_ERR_INVALID: an argument is NULL. */
CEN_API cen_status cen_calibration_get_stats(const cen_calibration *calibration,
                                             cen_calibration_stats *stats);
/* Channel `index`, from 0. CEN_ERR_INVALID: there are not so many, or an argument is NULL. */
CEN_API cen_status cen_calibration_get_channel(const cen_calibration *calibration, uint64_t index,
                                               cen_calibration_channel *channel);
/* The bins and their number; bin i counts sizes from cen_calibration_edge(i) to below
 * cen_calibration_edge(i + 1), without zeros. Valid until the calibration changes. NULL and 0 of
 * NULL. */
CEN_API const uint64_t *cen_calibration_bins(const cen_calibration *calibration, size_t *count);
CEN_API float cen_calibration_edge(size_t bin);

/* How a threshold is found: the size above which elements are cut off. */
typedef enum cen_threshold {
    CEN_THRESHOLD_MAX = 0,        /* the largest size: nothing is cut off */
    CEN_THRESHOLD_PERCENTILE = 1, /* the first size whose share of elements is reached */
    CEN_THRESHOLD_ENTROPY = 2,    /* the least divergence of the cut and levelled histogram */
    CEN_THRESHOLD_MSE = 3         /* the least squared error of the codec's levels */
} cen_threshold;

/* The threshold of all elements, which is amax for the codec: its scale is amax / Q, as in codec.h,
 * to be given to it by scales_given.
 * `percentile`: in percent, over 0 to 100, such as 99.99; used by its method alone. `codec`: of
 * INT8 or INT4, and for MSE of FP8, not asymmetric; used by entropy and MSE, which assume INT8 for
 * NULL. 0 if all elements are 0. CEN_ERR_NOT_FOUND: no element was finite. CEN_ERR_INVALID,
 * CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_calibration_threshold(const cen_calibration *calibration, cen_threshold how,
                                             double percentile, const cen_codec *codec,
                                             float *amax);

/* A channel that holds more than a threshold, and its element of the largest size. */
typedef struct cen_outlier {
    uint64_t channel;
    float value;
} cen_outlier;

/* The channels whose largest size is over `threshold`, the largest first, then by number: up to
 * `room` of them into `outliers` (NULL with a room of 0), and how many there are. To keep them in
 * 16 bits, the others are encoded with an amax of `rest`, their largest size (NULL: not wanted).
 * CEN_ERR_INVALID: an argument, or there are no channels. */
CEN_API cen_status cen_calibration_outliers(const cen_calibration *calibration, float threshold,
                                            cen_outlier *outliers, uint64_t room, uint64_t *count,
                                            float *rest);

/* Factors that move outliers of x into w, where the product is over the channels of both (Xiao and
 * others: "SmoothQuant", 2023): x is divided by scales[i], w multiplied with it. scales[i] =
 * max|x_i|^alpha / max|w_i|^(1 - alpha), 1 where either is 0, and kept to 2^-64..2^64. `alpha`: 0
 * to 1. `scales` has one for each channel. CEN_ERR_INVALID: an argument, or their numbers of
 * channels differ. */
CEN_API cen_status cen_calibration_smooth(const cen_calibration *x, const cen_calibration *w,
                                          double alpha, float *scales);

/* Files of a calibration (docs/formats/calibration.md). Saving replaces the file at once or not at
 * all. Loading believes nothing: CEN_ERR_FORMAT, CEN_ERR_TRUNCATED, and the log says where, calling
 * it by its path, or by `name`. CEN_ERR_INVALID: an argument is NULL; CEN_ERR_NOT_FOUND: there is
 * no such file; CEN_ERR_IO: also what is no plain file; CEN_ERR_HOST_MEMORY. */
CEN_API cen_status cen_calibration_save(const cen_calibration *calibration, const char *path);
CEN_API cen_status cen_calibration_load(const char *path, cen_calibration **calibration);
CEN_API cen_status cen_calibration_load_memory(const char *name, const void *bytes, size_t size,
                                               cen_calibration **calibration);

#ifdef __cplusplus
}
#endif
#endif
