/* The frame is as RFC 8878 has it: one block, whose literals are four streams of Huffman codes, and
 * no sequences. A code's length follows from how often its symbol is in a quarter of the block, as
 * counting all takes a third of the time and makes less than a thousandth of difference; every
 * symbol between the least and the largest has a code, whether it is there or not. */
#include "codec/huffman.h"

#include <stdbool.h>
#include <string.h>

enum {
    COUNT = CENI_HUFFMAN_COUNT,
    STREAM = COUNT / 4,
    MOST_BITS = 11,    /* of a code, as zstd has it */
    LAST_SYMBOL = 128, /* that weights of four bits each can say */
    SYMBOLS = LAST_SYMBOL + 1,
    FRAME = 9,
    BLOCK = 3,
    LITERALS = 5,
    JUMPS = 6 /* bytes of their headers */
};

typedef struct code {
    uint16_t bits;
    uint16_t length; /* 0: none */
} code;

typedef struct range {
    bool zero;
    uint8_t least, largest; /* but for 0 */
} range;

static range range_of(const uint8_t *symbols) {
    uint8_t zero = 0, less = 255, largest = 0;
    for (size_t i = 0; i < COUNT; i++) {
        uint8_t below = (uint8_t)(symbols[i] - 1);
        zero |= symbols[i] == 0;
        less = below < less ? below : less;
        largest = symbols[i] > largest ? symbols[i] : largest;
    }
    return (range){zero, (uint8_t)(less + 1), largest};
}

/* 0 for those that have no code. */
static void count_of(const uint8_t *symbols, range r, uint32_t counts[SYMBOLS]) {
    uint32_t some[4][256] = {{0}};
    for (size_t i = 0; i < COUNT; i += 16) {
        for (size_t k = 0; k < 4; k++) {
            some[k][symbols[i + k]]++;
        }
    }
    for (size_t s = 0; s < SYMBOLS; s++) {
        bool coded = s ? s >= r.least && s <= r.largest : r.zero;
        counts[s] = coded ? some[0][s] + some[1][s] + some[2][s] + some[3][s] + 1 : 0;
    }
}

/* What a code of that length takes of all there are. */
static uint32_t share(uint32_t length) {
    return 1u << (MOST_BITS - length);
}

/* Of the symbols whose codes can be longer, that with the least count. */
static size_t rarest(const uint32_t counts[SYMBOLS], const code codes[SYMBOLS]) {
    size_t found = SYMBOLS;
    for (size_t s = 0; s < SYMBOLS; s++) {
        if (counts[s] && codes[s].length < MOST_BITS &&
            (found == SYMBOLS || counts[s] < counts[found])) {
            found = s;
        }
    }
    return found;
}

/* Of those whose codes can be shorter by what is left, that which gains the most for it. */
static size_t worthiest(const uint32_t counts[SYMBOLS], const code codes[SYMBOLS], uint32_t left) {
    size_t found = SYMBOLS;
    for (size_t s = 0; s < SYMBOLS; s++) {
        if (counts[s] && share(codes[s].length) <= left &&
            (found == SYMBOLS || (uint64_t)counts[s] * share(codes[found].length) >
                                     (uint64_t)counts[found] * share(codes[s].length))) {
            found = s;
        }
    }
    return found;
}

/* Lengths that use up all codes. Each is at first the least for which a symbol's share of codes is
 * no more than its share of symbols. */
static void set_lengths(const uint32_t counts[SYMBOLS], code codes[SYMBOLS]) {
    uint32_t all = 0, used = 0, whole = share(0);
    for (size_t s = 0; s < SYMBOLS; s++) {
        all += counts[s];
    }
    for (size_t s = 0; s < SYMBOLS; s++) {
        uint32_t length = 0;
        while (counts[s] && length < MOST_BITS && (uint64_t)counts[s] << length < all) {
            length++;
        }
        codes[s].length = (uint16_t)length;
        used += counts[s] ? share(length) : 0;
    }
    while (used > whole) {
        code *c = &codes[rarest(counts, codes)];
        used -= share(c->length) / 2;
        c->length++;
    }
    while (used < whole) {
        code *c = &codes[worthiest(counts, codes, whole - used)];
        used += share(c->length);
        c->length--;
    }
}

/* Codes of a length follow each other in the symbols' order, the longest first. The longest. */
static uint32_t set_codes(code codes[SYMBOLS]) {
    uint32_t longest = 0, next = 0;
    for (uint32_t length = MOST_BITS; length; length--) {
        for (size_t s = 0; s < SYMBOLS; s++) {
            if (codes[s].length == length) {
                longest = longest ? longest : length;
                codes[s].bits = (uint16_t)next++;
            }
        }
        next >>= 1;
    }
    return longest;
}

/* Four bits a symbol, but for the last, whose weight makes up the sum. */
static size_t put_weights(const code codes[SYMBOLS], uint32_t longest, size_t last, uint8_t *to) {
    size_t bytes = (last + 1) / 2;
    to[0] = (uint8_t)(127 + last);
    memset(to + 1, 0, bytes);
    for (size_t s = 0; s < last; s++) {
        uint32_t weight = codes[s].length ? longest + 1 - codes[s].length : 0;
        to[1 + s / 2] |= (uint8_t)(s % 2 ? weight : weight << 4);
    }
    return 1 + bytes;
}

static void put(uint8_t *to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* From the last symbol to the first, and a bit that ends it; may write eight bytes more. */
static size_t put_stream(const uint8_t *symbols, const code codes[SYMBOLS], uint8_t *to) {
    uint64_t bits = 0;
    uint32_t length = 0;
    uint8_t *at = to;
    for (size_t i = STREAM; i; i -= 4) {
        for (size_t k = 1; k <= 4; k++) {
            code c = codes[symbols[i - k]];
            bits |= (uint64_t)c.bits << length;
            length += c.length;
        }
        put(at, bits, 8);
        at += length / 8;
        bits >>= length & ~7u;
        length &= 7;
    }
    bits |= (uint64_t)1 << length;
    put(at, bits, 8);
    return (size_t)(at - to) + 1 + length / 8;
}

size_t ceni_huffman_encode(const uint8_t *symbols, uint8_t *to) {
    range r = range_of(symbols);
    uint32_t counts[SYMBOLS];
    code codes[SYMBOLS] = {{0}};
    if (r.largest > LAST_SYMBOL || !r.largest || (!r.zero && r.least == r.largest)) {
        return 0;
    }
    count_of(symbols, r, counts);
    set_lengths(counts, codes);
    uint32_t longest = set_codes(codes);
    uint8_t *block = to + FRAME, *literals = block + BLOCK, *tree = literals + LITERALS;
    uint8_t *jumps = tree + put_weights(codes, longest, r.largest, tree), *at = jumps + JUMPS;
    for (size_t k = 0; k < 4; k++) {
        size_t size = put_stream(symbols + k * STREAM, codes, at);
        if (k < 3) {
            put(jumps + 2 * k, size, 2);
        }
        at += size;
    }
    /* Of one segment, with its size in four bytes; the last block, compressed; four streams, with
     * sizes of 18 bits. */
    put(to, 0xFD2FB528u, 4);
    to[4] = 2 << 6 | 1 << 5;
    put(to + 5, COUNT, 4);
    put(literals, 2 | 3 << 2 | (uint64_t)COUNT << 4 | (uint64_t)(at - tree) << 22, LITERALS);
    *at++ = 0; /* sequences */
    put(block, 1 | 2 << 1 | (uint64_t)(at - literals) << 3, BLOCK);
    return (size_t)(at - to);
}
