/* What calls of kernels refuse, each with one line that begins with `call` ("softmax"), and shapes
 * of launches. Results are CEN_OK or what was said. */
#ifndef CENI_COMPUTE_CHECK_H
#define CENI_COMPUTE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "cenote/device.h"
#include "cenote/matrix.h"
#include "kernels/operand.h"

cen_status ceni_check_device(const char *call, const cen_device *device);

/* A matrix, of any whole bytes; and one of fp32, fp16 or bf16. */
cen_status ceni_check_matrix(const char *call, const char *name, const cen_matrix *matrix);
cen_status ceni_check_floats(const char *call, const char *name, const cen_matrix *matrix);
/* A matrix of floats with so many rows and columns. */
cen_status ceni_check_shape(const char *call, const char *name, const cen_matrix *matrix,
                            uint64_t rows, uint64_t cols);
/* One column of fp32. */
cen_status ceni_check_column(const char *call, const char *name, const cen_matrix *matrix,
                             uint64_t rows);
/* They overlap nowhere; with `in_place` they may also be the same elements. `b` may be NULL. */
cen_status ceni_check_apart(const char *call, const char *a_name, const cen_matrix *a,
                            const char *b_name, const cen_matrix *b, bool in_place);

ceni_operand ceni_operand_of(const cen_matrix *matrix); /* NULL: one that is not there */

/* Is it of that type, each of its rows at a multiple of 16 bytes, or not there at all? */
bool ceni_in_pieces(const ceni_operand *operand, uint32_t dtype, uint64_t rows);

/* Blocks for `count` things, `each` to a block; at least one, at most `most`. */
uint32_t ceni_blocks(uint64_t count, uint64_t each, uint32_t most);
/* The least power of two that is at least `value`, within [least, most], powers of two. */
uint32_t ceni_power(uint64_t value, uint32_t least, uint32_t most);

enum { CENI_GRID_X_MAX = 0x7FFFFFFF, CENI_GRID_Y_MAX = 65535 };

#endif
