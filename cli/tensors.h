/* What the commands on tensor files share. */
#ifndef CENOTE_CLI_TENSORS_H
#define CENOTE_CLI_TENSORS_H

#include <jansson.h>

#include "cli/cmd.h"
#include "cenote/quantize.h"

/* Opens a tensor file or an index whose descriptions of quantised tensors hold; what the library
 * warns of is printed to stderr, and on failure its reason. Returns whether it is open. */
bool tensors_open(const char *command, const char *path, cen_tensors **tensors);

/* A tensor's name, or a text of the metadata, with '?' for control characters; the text of the
 * call before the last is gone. */
const char *tensors_text(const char *text);

/* "[64, 128]"; the text of the call before the last is gone. */
const char *tensors_shape(const uint64_t *shape, uint32_t rank);
json_t *tensors_shape_json(const uint64_t *shape, uint32_t rank);

/* A number that JSON holds, else the text "inf" or "-inf"; null if it is none. */
json_t *tensors_real(double value);

/* Prints text, and spaces up to `width` columns. */
void tensors_put(const char *text, int width);

/* cenote compare: a row for each name that is in A, in B or in both. */
typedef enum compare_kind {
    COMPARE_SAME,
    COMPARE_WITHIN, /* different, but within what was allowed */
    COMPARE_DIFFERS,
    COMPARE_SHAPE, /* not of the same shape */
    COMPARE_TYPES, /* of types that cannot be compared */
    COMPARE_ONLY_A,
    COMPARE_ONLY_B
} compare_kind;

typedef struct compare_row {
    const cen_tensor *a, *b;  /* NULL: it is not there */
    cen_quantized decoded[2]; /* how a and b are quantised; rank 0: it is not */
    compare_kind kind;
    cen_tensor_difference difference; /* SAME, WITHIN and DIFFERS */
} compare_row;

typedef struct compare_result {
    const char *name_a, *name_b;
    compare_row *rows;
    size_t count;
    bool same;
} compare_result;

/* The shape of A's tensor (side 0) or B's, or of what it decodes to; NULL: it is not there. */
const uint64_t *compare_shape(const compare_row *row, int side, uint32_t *rank);

/* The worst first: `top` rows of those that differ. */
void compare_print(const compare_result *result, size_t top);
int compare_print_json(const compare_result *result);

/* cenote quantize: what became of the tensors. */
typedef struct quantize_result {
    char in[CLI_NAME], out[CLI_NAME];
    const cen_codec *codec; /* NULL: decoded */
    const char *calibrate;  /* how thresholds were found; NULL: there are none */
    cen_quantize_row *rows;
    size_t count;
    uint64_t file_before, file_after; /* bytes of the files */
} quantize_result;

/* The worst first: `top` rows of those that were encoded. */
void quantize_print(const quantize_result *result, size_t top);
int quantize_print_json(const quantize_result *result);

#endif
