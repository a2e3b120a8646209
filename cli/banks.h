/* What `cenote banks` prints: text for people, and JSON. */
#ifndef CENOTE_CLI_BANKS_H
#define CENOTE_CLI_BANKS_H

#include "cenote/roofline.h"

typedef struct banks_report {
    cen_banks_tile tile;
    cen_banks_result result;
    cen_banks_remedy remedy; /* looked for only if there is a conflict */
} banks_report;

extern const char *const banks_walks[4]; /* the words of --access, by cen_walk */

void banks_print(const banks_report *report);
int banks_print_json(const banks_report *report);

#endif
