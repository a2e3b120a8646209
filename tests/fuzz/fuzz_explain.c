/* Property: whatever snapshot the reader accepts can be explained, with and without a cap: the
 * verdict is one of those documented, the JSON is one object, and text and JSON are made without
 * undefined behaviour. The first byte chooses the cap. Seeds: tests/fuzz/corpus/explain. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/explain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_snapshot *snapshot;
    if (!size || cen_snapshot_read_memory("fuzz", data + 1, size - 1, &snapshot, NULL)) {
        return 0;
    }
    cen_explain_options options = {.size = sizeof options, .name = "fuzz"};
    options.cap_bytes = data[0] ? (uint64_t)1 << (data[0] & 63) : 0;
    options.device_total_bytes = data[0] & 64 ? (uint64_t)1 << (data[0] & 31) : 0;
    cen_explanation *explanation;
    if (!cen_explain(snapshot, &options, &explanation)) {
        char *text, *json;
        require(*cen_verdict_name(cen_explanation_verdict(explanation)));
        require(!cen_explain_text(explanation, &text) && strlen(text));
        require(!cen_explain_json(explanation, &json) && json[0] == '{');
        free(text);
        free(json);
        cen_explanation_free(explanation);
    }
    cen_snapshot_free(snapshot);
    return 0;
}
