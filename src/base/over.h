/* Division of counts that rounds up: how many pieces there are of something, the last one smaller.
 */
#ifndef CENI_OVER_H
#define CENI_OVER_H

#include <stdint.h>

/* count / by, rounded up; no sum of the two, which could wrap. `by` is not 0. */
static inline uint64_t ceni_over(uint64_t count, uint64_t by) {
    return count / by + (count % by != 0);
}

#endif
