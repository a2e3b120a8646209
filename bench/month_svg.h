/* The picture of bench_month: what is held and what is in use of a device over a month, each way.
 */
#ifndef CENOTE_MONTH_SVG_H
#define CENOTE_MONTH_SVG_H

#include <stdbool.h>
#include <stddef.h>

enum { MONTH_POINTS = 720, MONTH_WAYS = 3 };

/* Shares of the device, hour by hour. */
typedef struct month_series {
    size_t count;
    double live[MONTH_POINTS], reserved[MONTH_POINTS];
} month_series;

extern const char *const month_ways[MONTH_WAYS];

/* False: the file could not be written. The same series give the same file. */
bool month_draw(const char *path, const month_series series[MONTH_WAYS]);

#endif
