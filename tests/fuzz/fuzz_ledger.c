/* Property: any bytes are read as a ledger or refused; what was read is in bounds, and everything
 * that can be asked of it has an answer. As a recording, fuzz_snapshot's property holds of it.
 * Seeds: tests/fuzz/corpus/ledger. */
#include "ledger/view.h"
#include "tests/fuzz/snapshot_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(cen_ledger_view *view) {
    size_t count, frames;
    const cen_ledger_entry *entries = cen_ledger_view_entries(view, &count);
    for (size_t i = 0; i < count; i++) {
        require(entries[i].kind < CEN_LEDGER_KINDS && entries[i].device < CEN_LEDGER_DEVICES);
        require(*cen_ledger_view_owner(view, &entries[i]));
        const cen_frame *frame = cen_ledger_view_stack(view, entries[i].stack, &frames);
        require(!frames == !frame);
        for (size_t k = 0; k < frames; k++) {
            require(strlen(frame[k].file) + strlen(frame[k].function) < SIZE_MAX);
        }
    }
}

static void check_texts(cen_ledger_view *view) {
    char *text = NULL, *json = NULL;
    uint64_t in_text = 0, in_json = 0;
    require(!cen_ledger_leaks_text(view, 3, &text, &in_text));
    require(!cen_ledger_leaks_json(view, &json, &in_json));
    require(in_text == in_json);
    size_t column = 0;
    for (const char *at = text; *at; at++) {
        column = *at == '\n' ? 0 : column + ((*at & 0xc0) != 0x80);
        require(column <= 80);
    }
    free(text);
    free(json);
}

static void check_growing(const cen_ledger_view *view) {
    cen_ledger_growth growing[4];
    size_t count = cen_ledger_view_growing(view, 4, growing, 4);
    require(count <= 4);
    for (size_t i = 0; i < count; i++) {
        require(growing[i].steps >= 4 && growing[i].live_count);
        require(!i || growing[i - 1].step_bytes >= growing[i].step_bytes);
    }
}

static void check_then(cen_ledger_view *view) {
    for (unsigned device = 0; device < CEN_LEDGER_DEVICES; device++) {
        for (int moment = CEN_LEDGER_FAILURE; moment <= CEN_LEDGER_PEAK; moment++) {
            const cen_ledger_entry *then = NULL;
            size_t count = 0;
            cen_status status =
                cen_ledger_view_then(view, (cen_ledger_moment)moment, device, &then, &count);
            require(status == CEN_ERR_NOT_FOUND || !status);
            for (size_t i = 0; i < count; i++) {
                require(then[i].kind < CEN_LEDGER_KINDS && then[i].device < CEN_LEDGER_DEVICES);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_ledger_view *view = NULL;
    cen_read_error error = {0};
    cen_status status = ceni_ledger_read_memory("input", data, size, &view, &error);
    require(!status || *error.message);
    if (!status) {
        size_t count;
        check_entries(view);
        check_texts(view);
        check_growing(view);
        check_then(view);
        (void)cen_ledger_view_failures(view, &count);
        require(count <= 64);
        cen_ledger_view_free(view);
    }
    if (ceni_ledger_looks(data, size)) {
        check_bytes(data, size);
    }
    return 0;
}
