/* Property: as fuzz_snapshot's, for cenote's own traces. Most changes of a trace's bytes end at a
 * checksum, so the checksums are made right first; then the bytes are read as they came too.
 * Seeds: tests/fuzz/corpus/trace. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/snapshot_checks.h"
#include "trace/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(uint8_t *data, size_t size) {
    ceni_file_head head;
    ceni_block_head block;
    if (size < sizeof head) {
        return;
    }
    memcpy(&head, data, sizeof head);
    head.check = XXH3_64bits(&head, offsetof(ceni_file_head, check));
    memcpy(data, &head, sizeof head);
    for (size_t at = head.bytes; at < size && size - at >= sizeof block;) {
        memcpy(&block, data + at, sizeof block);
        size_t rest = size - at - sizeof block;
        if (block.length > rest) {
            return;
        }
        block.check = XXH3_64bits_withSeed(data + at + sizeof block, block.length,
                                           XXH3_64bits(&block, offsetof(ceni_block_head, check)));
        memcpy(data + at, &block, sizeof block);
        at += sizeof block + block.length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) {
        return 0;
    }
    if (size) {
        memcpy(copy, data, size);
    }
    seal(copy, size);
    check_bytes(copy, size);
    free(copy);
    check_bytes(data, size);
    return 0;
}
