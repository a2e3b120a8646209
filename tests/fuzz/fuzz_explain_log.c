/* Property: whatever the text, looking for an out-of-memory message in it ends in an error or in an
 * explanation with a documented verdict whose text and JSON can be made. Sizes in the text may be
 * anything. Seeds: tests/fuzz/corpus/explain_log. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cenote/explain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cen_explain_options options = {.size = sizeof options, .name = "fuzz"};
    cen_explanation *explanation;
    if (cen_explain_log((const char *)data, size, &options, &explanation)) {
        return 0;
    }
    char *text = NULL, *json = NULL;
    if (!*cen_verdict_name(cen_explanation_verdict(explanation)) ||
        cen_explain_text(explanation, &text) || cen_explain_json(explanation, &json)) {
        abort();
    }
    free(text);
    free(json);
    cen_explanation_free(explanation);
    return 0;
}
