/* Calibrations as files; docs/formats/calibration.md has the layout. */
#include "codec/calibrate.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's integers are little-endian");

static const char magic[8] = "cencalib";
enum { VERSION = 1 };

typedef struct head {
    char magic[8];
    uint32_t version, axis;
    uint64_t channels, count, nan, infinite, zeros;
    float min, max; /* 0 without finite elements */
    uint32_t first, bins;
} head;

typedef struct channel {
    uint64_t nan, infinite, zeros;
    double sum, sum2;
    float min, max;
} channel;

_Static_assert(sizeof(head) == 72 && sizeof(channel) == 48, "as the file has them");

/* ---- writing ---- */

/* The bins from the first to the last that is not empty. */
static void bounds(const ceni_calibrate_state *s, uint32_t *first, uint32_t *count) {
    uint32_t low = 0, high = CENI_CALIBRATE_BINS;
    while (low < high && !s->bins[low]) {
        low++;
    }
    while (high > low && !s->bins[high - 1]) {
        high--;
    }
    *count = high - low;
    *first = *count ? low : 0;
}

static uint8_t *put(uint8_t *at, const void *from, size_t size) {
    memcpy(at, from, size);
    return at + size;
}

static uint8_t *image_of(const cen_calibration *c, size_t *size) {
    const ceni_calibrate_state *s = &c->state;
    head h = {.version = VERSION,
              .axis = c->axis,
              .channels = c->channel_count,
              .count = s->count,
              .nan = s->nan,
              .infinite = s->infinite,
              .zeros = s->zeros,
              .min = ceni_calibration_least(s->least),
              .max = ceni_calibration_most(s->most)};
    memcpy(h.magic, magic, sizeof h.magic);
    bounds(s, &h.first, &h.bins);
    *size =
        sizeof h + h.bins * sizeof *s->bins + c->channel_count * sizeof(channel) + sizeof(uint64_t);
    uint8_t *image = ceni_malloc(*size), *at = image;
    if (!image) {
        return NULL;
    }
    at = put(at, &h, sizeof h);
    at = put(at, s->bins + h.first, h.bins * sizeof *s->bins);
    for (uint64_t i = 0; i < c->channel_count; i++) {
        const ceni_calibrate_channel *from = &c->channels[i];
        channel one = {from->nan,
                       from->infinite,
                       from->zeros,
                       from->sum,
                       from->sum2,
                       ceni_calibration_least(from->least),
                       ceni_calibration_most(from->most)};
        at = put(at, &one, sizeof one);
    }
    uint64_t sum = XXH3_64bits(image, (size_t)(at - image));
    (void)put(at, &sum, sizeof sum);
    return image;
}

cen_status cen_calibration_save(const cen_calibration *c, const char *path) {
    size_t size;
    if (!c || !path) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_save: %s is NULL",
                         c ? "path" : "calibration");
    }
    uint8_t *image = image_of(c, &size);
    if (!image) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for %zu bytes", path, size);
    }
    cen_status status = ceni_file_replace(path, image, size);
    ceni_free(image);
    return status;
}

/* ---- reading ---- */

/* Least and largest of `finite` elements as keys; false: they cannot be. */
static bool keys_of(uint64_t finite, float min, float max, uint32_t *least, uint32_t *most) {
    *least = *most = 0;
    if (!finite) {
        return !ceni_float_bits(min) && !ceni_float_bits(max);
    }
    *least = ~ceni_calibrate_key(ceni_float_bits(min));
    *most = ceni_calibrate_key(ceni_float_bits(max));
    return isfinite(min) && isfinite(max) && ~*least <= *most;
}

static const char *check_bins(const head *h, const ceni_calibrate_state *s) {
    uint64_t sum = 0, finite = h->count - h->nan - h->infinite;
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        if (__builtin_add_overflow(sum, s->bins[i], &sum)) {
            return "the bins hold more than 64 bits count";
        }
    }
    if (h->zeros > finite || sum != finite - h->zeros) {
        return "the bins and the counts do not add up to the elements";
    }
    cen_calibration_stats stats = ceni_calibration_stats_of(s);
    uint32_t last = h->bins ? h->first + h->bins - 1 : 0;
    if (h->bins && (!s->bins[h->first] || !s->bins[last] ||
                    ceni_float_bits(stats.amax) >> CENI_CALIBRATE_SHIFT != last)) {
        return "the bins do not go from the first that is filled to that of the largest size";
    }
    return !h->bins && (h->first || stats.amax > 0) ? "there is a largest size, and no bins" : NULL;
}

/* What is wrong with the head, for a file of `size` bytes; NULL: nothing. */
static const char *check_head(const head *h, size_t size, ceni_calibrate_state *s) {
    uint64_t channel_bytes, bytes;
    if (h->version != VERSION) {
        return "of a version that is not known";
    }
    if (h->axis > CEN_CHANNELS_COLUMNS ||
        (h->axis ? !h->channels || h->channels > (uint64_t)1 << 32 : h->channels)) {
        return "channels of no kind";
    }
    if (h->first > CENI_CALIBRATE_BINS || h->bins > CENI_CALIBRATE_BINS - h->first) {
        return "bins beyond the last";
    }
    if (__builtin_mul_overflow(h->channels, sizeof(channel), &channel_bytes) ||
        __builtin_add_overflow(channel_bytes,
                               sizeof *h + h->bins * sizeof *s->bins + sizeof(uint64_t), &bytes) ||
        bytes != size) {
        return "its length is not that of its channels and bins";
    }
    if (h->nan > h->count || h->infinite > h->count - h->nan ||
        !keys_of(h->count - h->nan - h->infinite, h->min, h->max, &s->least, &s->most)) {
        return "more that is not finite than elements, or a least element over the largest";
    }
    if (h->channels && h->count % h->channels) {
        return "channels that are not equally long";
    }
    s->count = h->count;
    s->nan = h->nan;
    s->infinite = h->infinite;
    s->zeros = h->zeros;
    return NULL;
}

static const char *check_channels(const head *h, const uint8_t *at, cen_calibration *c) {
    uint64_t nan = 0, infinite = 0, zeros = 0, each = h->channels ? h->count / h->channels : 0;
    uint32_t least = 0, most = 0;
    for (uint64_t i = 0; i < h->channels; i++, at += sizeof(channel)) {
        channel one;
        ceni_calibrate_channel *to = &c->channels[i];
        memcpy(&one, at, sizeof one);
        if (one.nan > each || one.infinite > each - one.nan ||
            one.zeros > each - one.nan - one.infinite ||
            !keys_of(each - one.nan - one.infinite, one.min, one.max, &to->least, &to->most) ||
            !isfinite(one.sum) || !(one.sum2 >= 0) || !isfinite(one.sum2)) {
            return "a channel that cannot be";
        }
        to->nan = one.nan;
        to->infinite = one.infinite;
        to->zeros = one.zeros;
        to->sum = one.sum;
        to->sum2 = one.sum2;
        nan += one.nan;
        infinite += one.infinite;
        zeros += one.zeros;
        least = to->least > least ? to->least : least;
        most = to->most > most ? to->most : most;
    }
    const ceni_calibrate_state *s = &c->state;
    bool all = nan == s->nan && infinite == s->infinite && zeros == s->zeros && least == s->least &&
               most == s->most;
    return h->channels && !all ? "the channels do not add up to the whole" : NULL;
}

/* The calibration of a checked length and sum; *wrong says what is wrong with the rest. */
static cen_calibration *make(const uint8_t *at, size_t size, const char **wrong) {
    head h;
    memcpy(&h, at, sizeof h);
    cen_calibration *c = ceni_calloc(1, sizeof *c);
    if (!c || (*wrong = check_head(&h, size, &c->state))) {
        cen_calibration_free(c);
        return NULL;
    }
    c->axis = (cen_channels)h.axis;
    c->channel_count = h.channels;
    c->channels = h.channels ? ceni_calloc(h.channels, sizeof *c->channels) : NULL;
    if (h.channels && !c->channels) {
        cen_calibration_free(c);
        return NULL;
    }
    size_t bin_bytes = h.bins * sizeof *c->state.bins;
    memcpy(c->state.bins + h.first, at + sizeof h, bin_bytes);
    *wrong = check_bins(&h, &c->state);
    *wrong = *wrong ? *wrong : check_channels(&h, at + sizeof h + bin_bytes, c);
    if (*wrong) {
        cen_calibration_free(c);
        return NULL;
    }
    return c;
}

cen_status cen_calibration_load_memory(const char *name, const void *bytes, size_t size,
                                       cen_calibration **calibration) {
    const uint8_t *at = bytes;
    const char *wrong = NULL;
    uint64_t sum;
    if (!name || (!bytes && size) || !calibration) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_load_memory: %s is NULL",
                         !name            ? "name"
                         : !bytes && size ? "bytes"
                                          : "calibration");
    }
    if (size < sizeof magic || memcmp(at, magic, sizeof magic) != 0) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: no calibration: it does not begin with '%.8s'", name,
                         magic);
    }
    if (size < sizeof(head) + sizeof sum) {
        return ceni_fail(CEN_ERR_TRUNCATED, "%s: ends after %zu bytes, within its head", name,
                         size);
    }
    memcpy(&sum, at + size - sizeof sum, sizeof sum);
    if (sum != XXH3_64bits(at, size - sizeof sum)) {
        return ceni_fail(CEN_ERR_FORMAT, "%s: its checksum is wrong: it is damaged or cut off",
                         name);
    }
    cen_calibration *c = make(at, size, &wrong);
    if (!c) {
        return wrong ? ceni_fail(CEN_ERR_FORMAT, "%s: %s", name, wrong)
                     : ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for a calibration", name);
    }
    *calibration = c;
    return CEN_OK;
}

cen_status cen_calibration_load(const char *path, cen_calibration **calibration) {
    if (!path || !calibration) {
        return ceni_fail(CEN_ERR_INVALID, "cen_calibration_load: %s is NULL",
                         path ? "calibration" : "path");
    }
    int fd = -1;
    struct stat st;
    cen_status status = ceni_file_open(path, &fd, &st);
    if (status) {
        return status;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *bytes = ceni_malloc(size);
    status = bytes ? ceni_file_read_at(path, fd, 0, size, bytes)
                   : ceni_fail(CEN_ERR_HOST_MEMORY, "%s: no memory for its %zu bytes", path, size);
    close(fd);
    if (!status) {
        status = cen_calibration_load_memory(path, bytes, size, calibration);
    }
    ceni_free(bytes);
    return status;
}
