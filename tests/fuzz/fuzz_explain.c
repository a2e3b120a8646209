/* Property: whatever snapshot the reader accepts can be explained, with and without a cap, alone
 * and as a rank beside itself and another: the verdict is one of those documented, the JSON is one
 * object, and text and JSON are made without undefined behaviour. The first byte chooses the cap.
 * Seeds: tests/fuzz/corpus/explain. */
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

static void check(cen_explanation *explanation) {
    char *text, *json;
    require(*cen_verdict_name(cen_explanation_verdict(explanation)));
    require(!cen_explain_text(explanation, &text) && strlen(text));
    require(!cen_explain_json(explanation, &json) && json[0] == '{');
    free(text);
    free(json);
    cen_explanation_free(explanation);
}

/* A snapshot with one block alive, of 4 GiB. */
static const char other[] = "\x80\x04}(\x8c\x0d"
                            "device_traces](](}(\x8c\x06"
                            "action\x8c\x05"
                            "alloc\x8c\x04"
                            "addrK\x00\x8c\x04"
                            "size\x8a\x08\x00\x00\x00\x00\x01\x00\x00\x00\x8c\x06"
                            "streamK\x00uee\x8c\x08"
                            "segments]u.";

static void check_ranks(const cen_snapshot *snapshot, const cen_explain_options *options) {
    cen_snapshot *made;
    require(!cen_snapshot_read_memory("other", other, sizeof other - 1, &made, NULL));
    const cen_snapshot *ranks[] = {snapshot, made, snapshot, made};
    static const char *const names[] = {"rank0", "rank1", "rank2", "rank3"};
    cen_explanation *explanation;
    for (size_t count = 2; count <= 4; count++) {
        if (!cen_explain_ranks(ranks, names, count, options, &explanation)) {
            check(explanation);
        }
    }
    cen_snapshot_free(made);
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
        check(explanation);
        check_ranks(snapshot, &options);
    }
    cen_snapshot_free(snapshot);
    return 0;
}
