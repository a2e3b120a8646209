/* What processes share, as the broker tells it: to look for in `cenote revoke`, to print in `cenote
 * holders`, as text and JSON. */
#ifndef CENOTE_CLI_SHARING_H
#define CENOTE_CLI_SHARING_H

#include <jansson.h>

#include "cenote/share.h"

typedef struct sharing {
    cen_share *share;
    cen_share_list *list; /* NULL: there is no broker */
    /* Of the list, sorted: by client, by set and export, by export. */
    cen_share_client_info *clients;
    cen_share_export_listing *exports;
    cen_share_lease_info *leases;
} sharing;

/* Asks the broker at `socket` (NULL: the usual one), which lists this process as `label` meanwhile.
 * CEN_OK with list NULL: none listens at the usual place; at a place that was named it is
 * CEN_ERR_NO_BROKER. */
cen_status sharing_read(const char *socket, const char *label, sharing *s);
void sharing_free(sharing *s);

/* NULL: it ended between two looks. */
const cen_share_client_info *sharing_client(const sharing *s, uint64_t id);
/* The exports of a set, the leases of an export: the first of `count`. */
const cen_share_export_listing *sharing_exports(const sharing *s, uint64_t set, size_t *count);
const cen_share_lease_info *sharing_leases(const sharing *s, uint64_t export_id, size_t *count);

/* Text of 80 columns, as far as names allow. uuid: only the sets of that device; NULL: all. */
void sharing_print(const sharing *s, const char *uuid);
/* NULL: memory ran out. json null where there is no broker. */
json_t *sharing_json(const sharing *s, const char *uuid);

/* The name of a user; its number where it has none. `name` holds it, and is returned. */
#define SHARING_USER 64
const char *sharing_user(uint32_t uid, char name[SHARING_USER]);

#endif
