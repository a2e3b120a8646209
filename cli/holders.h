/* What `cenote holders` prints: text for people, and JSON. */
#ifndef CENOTE_CLI_HOLDERS_H
#define CENOTE_CLI_HOLDERS_H

#include "cenote/holders.h"
#include "cli/sharing.h"

/* Text of 80 columns; of one device, or of all (NULL). */
void holders_print(const cen_holders *holders, const cen_holder_device *only);
/* holders: NULL where there is no GPU's driver. False: memory ran out, and nothing was printed. */
bool holders_print_json(const cen_holders *holders, const cen_holder_device *only,
                        const sharing *shared);

#endif
