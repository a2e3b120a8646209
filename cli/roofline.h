/* What `cenote roofline` prints: text for people, and JSON. */
#ifndef CENOTE_CLI_ROOFLINE_H
#define CENOTE_CLI_ROOFLINE_H

#include "cenote/roofline.h"

void roofline_print(const cen_work *work, const cen_roofline_result *result);
int roofline_print_json(const cen_work *work, const cen_roofline_result *result);

#endif
