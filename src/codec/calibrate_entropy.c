/* The threshold of least divergence (Kullback and Leibler's): of the elements cut off at it, from
 * the same in so many levels. It is found among the edges of a grid of 2048 equal bins, over which
 * the histogram's counts are spread evenly. Zeros are told apart from all else by any threshold,
 * so they have no say. */
#include "codec/calibrate.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"

enum { GRID = 2048, NARROWED_MOST = 32 };

/* The share of each grid bin, of a grid that ends at `top`; the share beyond it. */
static double spread(const cen_calibration *c, double top, double amax, double *grid) {
    double width = top / GRID, beyond = 0;
    for (size_t i = 0; i < GRID; i++) {
        grid[i] = 0;
    }
    for (size_t i = 0; i < CENI_CALIBRATE_BINS; i++) {
        double n = (double)c->state.bins[i];
        if (n == 0) {
            continue;
        }
        double low = cen_calibration_edge(i), high = cen_calibration_edge(i + 1);
        high = high < amax ? high : amax;
        if (high <= low || low >= top) { /* amax may be the lower edge of its bin */
            *(top < amax ? &beyond : &grid[GRID - 1]) += n;
            continue;
        }
        double in_all = high - low;
        if (high > top) {
            beyond += n * ((high - top) / in_all);
            high = top;
        }
        size_t first = (size_t)(low / width), last = (size_t)(high / width);
        last = last < GRID ? last : GRID - 1;
        for (size_t g = first; g <= last; g++) {
            double from = (double)g * width, to = (double)(g + 1) * width;
            from = from > low ? from : low;
            to = to < high ? to : high;
            grid[g] += to > from ? n * ((to - from) / in_all) : 0;
        }
    }
    return beyond;
}

/* Of the first `kept` bins. P: what they hold, the last that is not empty with `tail`, all beyond
 * (in an empty one it would be infinitely far from Q, and one element far above the rest would
 * forbid to cut anything); Q: what they hold in `levels` runs of bins, each run spread evenly over
 * those of its bins that are not empty. Both are shares of all: what is cut off is missing in Q,
 * since a Q that made up for it would be next to P where nearly all is cut off. */
static double divergence(const double *grid, uint32_t kept, uint32_t levels, double held,
                         double tail) {
    double sum = 0;
    uint32_t last = kept - 1;
    if (held <= 0) {
        return INFINITY;
    }
    while (grid[last] <= 0) {
        last--;
    }
    for (uint32_t level = 0; level < levels; level++) {
        uint32_t from = (uint32_t)((uint64_t)level * kept / levels);
        uint32_t to = (uint32_t)((uint64_t)(level + 1) * kept / levels), filled = 0;
        double in_level = 0;
        for (uint32_t i = from; i < to; i++) {
            in_level += grid[i];
            filled += grid[i] > 0;
        }
        for (uint32_t i = from; i < to; i++) {
            double p = grid[i] + (i == last ? tail : 0);
            if (grid[i] > 0) {
                sum += p * log(p / (in_level / filled));
            }
        }
    }
    return sum / (held + tail);
}

/* The bins to keep; the first of those that are as good. */
static uint32_t best_of(const double *grid, uint32_t levels, double beyond) {
    double all = beyond, held = 0, least = INFINITY;
    uint32_t best = GRID;
    for (uint32_t i = 0; i < GRID; i++) {
        all += grid[i];
    }
    for (uint32_t kept = 1; kept <= GRID; kept++) {
        held += grid[kept - 1];
        if (kept < levels) {
            continue;
        }
        double tail = kept == GRID ? beyond : all - held;
        double d = divergence(grid, kept, levels, held, tail > 0 ? tail : 0);
        if (d < least) {
            least = d;
            best = kept;
        }
    }
    return best;
}

cen_status ceni_calibration_entropy(const cen_calibration *c, uint32_t levels, float amax,
                                    float *threshold) {
    double *grid = ceni_malloc(GRID * sizeof *grid), top = amax;
    if (!grid) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_calibration_threshold: no memory");
    }
    /* What is far above the rest leaves the rest few bins, and the narrowest threshold may be too
     * wide: then the grid is laid anew below it. */
    for (int i = 0; i < NARROWED_MOST; i++) {
        double beyond = spread(c, top, amax, grid);
        uint32_t best = best_of(grid, levels, beyond);
        top = top * best / GRID;
        if (best > levels) {
            break;
        }
    }
    ceni_free(grid);
    float found = (float)top;
    *threshold = found < amax ? found : amax;
    return CEN_OK;
}
