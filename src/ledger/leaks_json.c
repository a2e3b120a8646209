/* What was never freed, as JSON: docs/formats/ledger.md has the keys. */
#include "ledger/leaks.h"

#include "base/log.h"
#include "base/mem.h"
#include "trace/diagnose_json.h"

static json_t *leak_object(builder *b, cen_ledger_view *v, const ceni_leak *leak) {
    size_t count;
    json_t *object = json_object();
    const cen_frame *frames = cen_ledger_view_stack(v, leak->first->stack, &count);
    set(b, object, "bytes", bytes(leak->bytes));
    set(b, object, "count", bytes(leak->count));
    set(b, object, "device", json_integer(leak->first->device));
    set(b, object, "kind", text(cen_ledger_kind_text((cen_ledger_kind)leak->first->kind)));
    set(b, object, "owner", text(cen_ledger_view_owner(v, leak->first)));
    set(b, object, "oldest_us", json_integer(leak->oldest_us));
    set(b, object, "newest_us", json_integer(leak->newest_us));
    set(b, object, "oldest_step", json_integer(leak->oldest_step));
    set(b, object, "newest_step", json_integer(leak->newest_step));
    set(b, object, "frames", frame_list(b, frames, count));
    return object;
}

static json_t *whole(builder *b, cen_ledger_view *v, const ceni_leaks *leaks) {
    json_t *root = json_object(), *stacks = json_array();
    for (size_t i = 0; i < leaks->count; i++) {
        append(b, stacks, leak_object(b, v, &leaks->at[i]));
    }
    set(b, root, "version", json_integer(1));
    set(b, root, "pid", json_integer(v->info.pid));
    set(b, root, "program", text(v->info.program));
    set(b, root, "writer", text(v->info.writer));
    set(b, root, "closed", json_boolean(v->info.closed));
    set(b, root, "changed_us", json_integer(v->info.changed_us));
    set(b, root, "steps", json_integer(v->info.steps));
    set(b, root, "lost", bytes(v->info.lost));
    set(b, root, "leaked_bytes", bytes(leaks->bytes));
    set(b, root, "leaked_count", bytes(leaks->entries));
    set(b, root, "unjudged_bytes", bytes(leaks->unjudged_bytes));
    set(b, root, "unjudged_count", bytes(leaks->unjudged));
    set(b, root, "stacks", stacks);
    return root;
}

cen_status cen_ledger_leaks_json(cen_ledger_view *v, char **json, uint64_t *leaked) {
    ceni_leaks leaks;
    builder b = {0};
    cen_status status = ceni_leaks_find(v, json, "cen_ledger_leaks_json", &leaks);
    if (status) {
        return status;
    }
    json_t *root = whole(&b, v, &leaks);
    ceni_free(leaks.at);
    char *dumped = b.failed ? NULL : json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    ceni_str out = {0};
    if (dumped) {
        ceni_str_printf(&out, "%s\n", dumped);
    }
    free(dumped);
    char *made = dumped ? ceni_str_take(&out) : NULL;
    if (!made) {
        return ceni_fail(CEN_ERR_HOST_MEMORY, "cen_ledger_leaks_json: no memory");
    }
    *json = made;
    if (leaked) {
        *leaked = leaks.entries;
    }
    return CEN_OK;
}
