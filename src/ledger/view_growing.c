/* Stacks that hold more step after step, from the samples of their holdings. */
#include "ledger/view.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_LEAST 4

static int by_value(const void *left, const void *right) {
    uint64_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return (a > b) - (a < b);
}

/* What it held after each of the latest steps, the oldest first; before its first step it held
 * nothing, which is a sample too. Samples that were not put down saw what is held now. */
static size_t samples_of(const ceni_ledger_holding *h, uint32_t steps,
                         uint64_t samples[CENI_LEDGER_SAMPLES + 1]) {
    size_t count = 0;
    uint32_t from = steps > CENI_LEDGER_SAMPLES ? steps - CENI_LEDGER_SAMPLES : 0;
    if (h->first >= from) {
        from = h->first;
        samples[count++] = 0;
    }
    for (uint32_t step = from; step < steps; step++) {
        samples[count++] =
            step < h->sampled ? h->samples[step % CENI_LEDGER_SAMPLES] : h->live_bytes;
    }
    return count;
}

/* Fills the growth of a holding; false: it does not grow. */
static bool grows(const ceni_ledger_holding *h, uint32_t steps, unsigned least,
                  cen_ledger_growth *growth) {
    uint64_t samples[CENI_LEDGER_SAMPLES + 1], more[CENI_LEDGER_SAMPLES];
    size_t count = samples_of(h, steps, samples), up = 0;
    for (size_t i = 1; i < count; i++) {
        if (samples[i] < samples[i - 1]) {
            return false;
        }
        up = samples[i] > samples[i - 1] ? up + 1 : 0;
    }
    if (up < least || !h->live_count) {
        return false;
    }
    for (size_t i = 0; i < up; i++) {
        more[i] = samples[count - up + i] - samples[count - up + i - 1];
    }
    qsort(more, up, sizeof *more, by_value);
    *growth = (cen_ledger_growth){.stack = h->stack,
                                  .device = h->device,
                                  .live_bytes = h->live_bytes,
                                  .live_count = h->live_count,
                                  .step_bytes = more[up / 2],
                                  .steps = (uint32_t)up};
    return true;
}

size_t cen_ledger_view_growing(const cen_ledger_view *v, unsigned steps, cen_ledger_growth *growing,
                               size_t capacity) {
    size_t count = 0;
    steps = steps < STEPS_LEAST ? STEPS_LEAST : steps;
    steps = steps < CENI_LEDGER_SAMPLES ? steps : CENI_LEDGER_SAMPLES - 1;
    for (size_t i = 0; i < v->file.holding_count; i++) {
        cen_ledger_growth one;
        if (!grows(&v->file.holdings[i], v->info.steps, steps, &one)) {
            continue;
        }
        size_t at = count < capacity ? count++ : capacity;
        for (; at && growing[at - 1].step_bytes < one.step_bytes; at--) {
            if (at < capacity) {
                growing[at] = growing[at - 1];
            }
        }
        if (at < capacity) {
            growing[at] = one;
        }
    }
    return count;
}
