/* What `cenote tile` prints: text for people, and JSON. */
#ifndef CENOTE_CLI_TILE_H
#define CENOTE_CLI_TILE_H

#include "cenote/roofline.h"

void tile_print(const cen_tile_request *request, const cen_tile_map *map);
int tile_print_json(const cen_tile_request *request, const cen_tile_map *map);

#endif
