/* A zstd frame of Huffman codes alone, made without libzstd, which decodes it. Internal to the
 * codec: exponents are coded so, where their alphabet allows. */
#ifndef CENI_CODEC_HUFFMAN_H
#define CENI_CODEC_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

enum {
    CENI_HUFFMAN_COUNT = 1 << 17, /* symbols of a frame: zstd's largest block */
    CENI_HUFFMAN_ROOM = CENI_HUFFMAN_COUNT * 11 / 8 + 128
};

/* CENI_HUFFMAN_COUNT symbols into `to`, which has CENI_HUFFMAN_ROOM bytes. The frame's size, which
 * may be more than that of the symbols; 0: one is above 128, or there is only one. Any thread. */
size_t ceni_huffman_encode(const uint8_t *symbols, uint8_t *to);

#endif
