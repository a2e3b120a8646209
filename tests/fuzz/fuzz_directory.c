/* Property: a directory that passes the check of a reader names only what lies in its set, and can
 * be read in every part; text that reads as a token is written back as that text. Seeds:
 * tests/fuzz/corpus/directory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/directory.h"
#include "ipc/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SET_BYTES ((uint64_t)1 << 30)

static void require(bool holds) {
    if (!holds) {
        abort();
    }
}

static void try_directory(const void *data, size_t size) {
    ceni_directory d;
    if (ceni_directory_open(data, size, SET_BYTES, &d)) {
        return;
    }
    uint64_t bytes = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < d.count; i++) {
        cen_share_item item;
        size_t found = d.count;
        ceni_directory_item(&d, i, 0, &item);
        require(item.addr <= SET_BYTES && item.bytes <= SET_BYTES - item.addr);
        require(ceni_directory_find(&d, item.name, &found) && found == i);
        for (size_t k = 0; k < item.meta_bytes; k++) {
            sum += ((const uint8_t *)item.meta)[k];
        }
        bytes += item.bytes;
    }
    require(bytes == d.bytes && sum < UINT32_MAX);
}

static void try_token(const uint8_t *data, size_t size) {
    char *text = malloc(size + 9), again[CEN_SHARE_TOKEN_SIZE];
    ceni_token token;
    if (!text) {
        return;
    }
    memcpy(text, "cenote1.", 8);
    memcpy(text + 8, data, size);
    text[8 + size] = 0;
    for (int skip = 0; skip <= 8; skip += 8) { /* with the prefix, and as it is */
        if (!ceni_token_read(text + skip, &token)) {
            ceni_token_write(&token, again);
            require(!strcmp(again, text + skip));
        }
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t *aligned = malloc(size + 8);
    if (aligned) {
        memcpy(aligned, data, size);
        try_directory(aligned, size);
        free(aligned);
    }
    try_token(data, size);
    return 0;
}
