/* Who uses a block beside the stream that it was allocated on: lists of streams, each with the last
 * of its epochs to do so. */
#include "base/mem.h"
#include "pool/pool_int.h"

ceni_use *ceni_use_of(ceni_use *uses, const ceni_pstream *stream) {
    while (uses && uses->stream != stream) {
        uses = uses->next;
    }
    return uses;
}

cen_status ceni_use_add(ceni_use **uses, ceni_pstream *stream) {
    if (ceni_use_of(*uses, stream)) {
        return CEN_OK;
    }
    ceni_use *use = ceni_calloc(1, sizeof *use);
    if (!use) {
        return CEN_ERR_HOST_MEMORY;
    }
    use->stream = stream;
    use->next = *uses;
    *uses = use;
    return CEN_OK;
}

ceni_use *ceni_use_take(ceni_use **uses, const ceni_pstream *stream) {
    while (*uses && (*uses)->stream != stream) {
        uses = &(*uses)->next;
    }
    ceni_use *use = *uses;
    if (use) {
        *uses = use->next;
        use->next = NULL;
    }
    return use;
}

void ceni_use_drop(ceni_use **uses, const ceni_pstream *stream) {
    ceni_free(ceni_use_take(uses, stream));
}

void ceni_uses_prune(ceni_use **uses) {
    while (*uses) {
        ceni_use *use = *uses;
        if (!ceni_stream_passed(use->stream, use->epoch)) {
            uses = &use->next;
            continue;
        }
        *uses = use->next;
        ceni_free(use);
    }
}

void ceni_uses_end(ceni_use *uses) {
    for (; uses; uses = uses->next) {
        uses->epoch = ceni_stream_epoch(uses->stream);
    }
}

void ceni_uses_free(ceni_use *uses) {
    while (uses) {
        ceni_use *next = uses->next;
        ceni_free(uses);
        uses = next;
    }
}
