/* What the callers of kernels share: arguments are checked here, once, before anything is launched.
 */
#ifndef CENI_COMPUTE_COMPUTE_H
#define CENI_COMPUTE_COMPUTE_H

#include "cenote/matrix.h"

#include <stdbool.h>

/* Is it a matrix? `name` is what the failure calls it. `bytes`: from its first byte to its last; 0
 * if it is empty. CEN_ERR_INVALID: NULL, a type of less than a byte or none, a stride shorter than
 * a row, more bytes than addresses, no memory, or memory that is not aligned to the element. */
cen_status ceni_matrix_check(const cen_matrix *matrix, const char *name, uint64_t *bytes);

/* Do they share a byte that lies between their first and their last? Columns of one matrix side by
 * side do not; other rows that pass between each other's are taken to. */
bool ceni_matrix_overlap(const cen_matrix *a, const cen_matrix *b);

#endif
