/* Property: whatever the bytes, reading a snapshot ends in an error or in a snapshot whose indices
 * and order hold and whose history, replayed from its initial blocks, has exactly the unknown frees
 * that it states; in bounded memory, without undefined behaviour.
 * Seeds: tests/fuzz/corpus/snapshot; -max_len=4096 finds most. */
#include "tests/fuzz/snapshot_checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_bytes(data, size);
    return 0;
}
