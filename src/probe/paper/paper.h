/* What the files of the judgement on paper share. */
#ifndef CENI_PAPER_H
#define CENI_PAPER_H

#include "cenote/roofline.h"

/* Banks, of tiles and accesses that were checked (banks.c, banks_search.c). */
cen_bank_access ceni_banks_count(const uint32_t *offsets, uint32_t lanes, uint32_t bytes);
uint64_t ceni_banks_accesses(const cen_banks_tile *tile);
cen_bank_access ceni_banks_access(const cen_banks_tile *tile, uint64_t index);
cen_banks_remedy ceni_banks_search(const cen_banks_tile *tile);

#endif
