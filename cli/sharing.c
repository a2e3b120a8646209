/* Asking the broker, and the text of it: the sets by device, each with its exports and who has them
 * open. A set's bytes are counted once, however many have it open. */
#include "cli/sharing.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int by_client(const void *a, const void *b) {
    const cen_share_client_info *x = a, *y = b;
    return COMPARE(x->id, y->id);
}

static int by_set(const void *a, const void *b) {
    const cen_share_export_listing *x = a, *y = b;
    return x->set != y->set ? COMPARE(x->set, y->set) : COMPARE(x->id, y->id);
}

static int by_export(const void *a, const void *b) {
    const cen_share_lease_info *x = a, *y = b;
    return x->export_id != y->export_id ? COMPARE(x->export_id, y->export_id)
                                        : COMPARE(x->client, y->client);
}

/* NULL: memory ran out. */
static void *sorted(const void *items, size_t count, size_t size,
                    int (*compare)(const void *, const void *)) {
    void *copy = malloc(count ? count * size : 1);
    if (copy && count) {
        memcpy(copy, items, count * size);
        qsort(copy, count, size, compare);
    }
    return copy;
}

static cen_status sort(sharing *s) {
    const cen_share_list *list = s->list;
    s->clients = sorted(list->clients, list->client_count, sizeof *s->clients, by_client);
    s->exports = sorted(list->exports, list->export_count, sizeof *s->exports, by_set);
    s->leases = sorted(list->leases, list->lease_count, sizeof *s->leases, by_export);
    return s->clients && s->exports && s->leases ? CEN_OK : CEN_ERR_HOST_MEMORY;
}

cen_status sharing_read(const char *socket, const char *label, sharing *s) {
    *s = (sharing){0};
    cen_share_options options = {.size = sizeof options, .socket = socket, .label = label};
    cen_status status = cen_share_connect(&options, &s->share);
    if (status == CEN_ERR_NO_BROKER && !socket) {
        return CEN_OK;
    }
    if (!status) {
        status = cen_share_list_read(s->share, &s->list);
    }
    if (!status) {
        status = sort(s);
    }
    if (status) {
        sharing_free(s);
    }
    return status;
}

void sharing_free(sharing *s) {
    free(s->clients);
    free(s->exports);
    free(s->leases);
    cen_share_list_free(s->list);
    cen_share_disconnect(s->share);
    *s = (sharing){0};
}

const cen_share_client_info *sharing_client(const sharing *s, uint64_t id) {
    cen_share_client_info key = {.id = id};
    return bsearch(&key, s->clients, s->list->client_count, sizeof key, by_client);
}

static uint64_t set_of(const void *items, size_t index) {
    return ((const cen_share_export_listing *)items)[index].set;
}

static uint64_t export_of(const void *items, size_t index) {
    return ((const cen_share_lease_info *)items)[index].export_id;
}

/* The first of the items that have this key, which lie side by side, and how many they are. */
static size_t find_run(const void *items, size_t total,
                       uint64_t (*key_of)(const void *items, size_t index), uint64_t key,
                       size_t *count) {
    size_t low = 0, high = total;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (key_of(items, middle) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t end = low;
    while (end < total && key_of(items, end) == key) {
        end++;
    }
    *count = end - low;
    return low;
}

const cen_share_export_listing *sharing_exports(const sharing *s, uint64_t set, size_t *count) {
    return s->exports + find_run(s->exports, s->list->export_count, set_of, set, count);
}

const cen_share_lease_info *sharing_leases(const sharing *s, uint64_t export_id, size_t *count) {
    return s->leases + find_run(s->leases, s->list->lease_count, export_of, export_id, count);
}

const char *sharing_user(uint32_t uid, char name[SHARING_USER]) {
    struct passwd entry, *found = NULL;
    char buffer[4096];
    if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) || !found) {
        snprintf(name, SHARING_USER, "%" PRIu32, uid);
    } else {
        snprintf(name, SHARING_USER, "%s", found->pw_name);
    }
    return name;
}

static bool shown(const cen_share_set_info *set, const char *uuid) {
    return !uuid || !strcmp(set->device_uuid, uuid);
}

/* A label is what a client says of itself. */
static void put_label(const cen_share_client_info *client) {
    char label[sizeof client->label];
    snprintf(label, sizeof label, "%s", client->label);
    cli_one_line(label);
    fputs(label, stdout);
}

static void put_client(const sharing *s, uint64_t id) {
    const cen_share_client_info *client = sharing_client(s, id);
    if (!client) {
        printf("a process that is not listed");
        return;
    }
    if (client->pid) {
        printf("pid %d", client->pid);
    } else {
        printf("a process of another PID namespace");
    }
    if (*client->label) {
        printf(" ");
        put_label(client);
    }
    if (*client->container) {
        printf(" (container %s)", client->container);
    }
    if (!client->connected) {
        printf(" (its socket is closed, it lives)");
    }
}

static void put_export(const sharing *s, const cen_share_export_listing *export) {
    printf("      ");
    if (*export->name) {
        printf("%s@%" PRIu64 "  ", export->name, export->version);
    }
    printf("#%" PRIx64 "%s%s%s\n", export->id, export->keep ? ", kept" : "",
           export->withdrawn && !export->revoked ? ", withdrawn" : "",
           export->revoked ? ", revoked" : "");
    size_t count;
    const cen_share_lease_info *leases = sharing_leases(s, export->id, &count);
    for (size_t i = 0; i < count; i++) {
        printf("        open %sby ", leases[i].write ? "for writing " : "");
        put_client(s, leases[i].client);
        printf("\n");
    }
    if (!count) {
        printf("        open by nobody\n");
    }
}

static void put_set(const sharing *s, const cen_share_set_info *set) {
    char user[SHARING_USER], size[CLI_SIZE];
    printf("  %10s on %s, of %s: ", cli_size_text(size, set->bytes), set->device_uuid,
           sharing_user(set->uid, user));
    if (set->publisher) {
        printf("published by ");
        put_client(s, set->publisher);
    } else if (set->publisher_pid) {
        printf("an orphan, its publisher (pid %d) ended or gave it up", set->publisher_pid);
    } else {
        printf("an orphan, its publisher ended or gave it up");
    }
    printf("\n");
    size_t count;
    const cen_share_export_listing *exports = sharing_exports(s, set->id, &count);
    for (size_t i = 0; i < count; i++) {
        put_export(s, &exports[i]);
    }
}

void sharing_print(const sharing *s, const char *uuid) {
    const cen_share_list *list = s->list;
    uint64_t bytes = 0;
    size_t sets = 0;
    for (size_t i = 0; i < list->set_count; i++) {
        if (shown(&list->sets[i], uuid)) {
            bytes += list->sets[i].bytes;
            sets++;
        }
    }
    char size[CLI_SIZE];
    printf("Shared through the broker: %s in %zu set%s\n", cli_size_text(size, bytes), sets,
           sets == 1 ? "" : "s");
    for (size_t i = 0; i < list->set_count; i++) {
        if (shown(&list->sets[i], uuid)) {
            put_set(s, &list->sets[i]);
        }
    }
}
