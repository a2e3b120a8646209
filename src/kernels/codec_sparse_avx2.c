/* 2:4 of floats, and of 16-bit floats straight from those of the same type. Compiled with -mavx2
 * -mfma (CMakeLists.txt). A quarter of a vector, or half of one of 128 bits, is a group. */
#if defined(__x86_64__)
#include "kernels/codec_runs.h"
#include "kernels/codec_vectors.h"

enum { STEP = CENI_CODEC_STEP };

/* The nibble for each set of kept elements (bit i: the i-th); under two, the canonical pair. */
#define SETS(of)                                                                                   \
    of(0xE), of(0xC), of(0xD), of(0x4), of(0xE), of(0x8), of(0x9), of(0xE), of(0xE), of(0xC),      \
        of(0xD), of(0xE), of(0xE), of(0xE), of(0xE), of(0xE)
#define NIBBLE(nibble) nibble
/* Of two sets, the first's bits below the second's. */
#define WITH(of, high)                                                                             \
    of(0xE, high), of(0xC, high), of(0xD, high), of(0x4, high), of(0xE, high), of(0x8, high),      \
        of(0x9, high), of(0xE, high), of(0xE, high), of(0xC, high), of(0xD, high), of(0xE, high),  \
        of(0xE, high), of(0xE, high), of(0xE, high), of(0xE, high)
#define TWO_SETS(of)                                                                               \
    WITH(of, 0xE), WITH(of, 0xC), WITH(of, 0xD), WITH(of, 0x4), WITH(of, 0xE), WITH(of, 0x8),      \
        WITH(of, 0x9), WITH(of, 0xE), WITH(of, 0xE), WITH(of, 0xC), WITH(of, 0xD), WITH(of, 0xE),  \
        WITH(of, 0xE), WITH(of, 0xE), WITH(of, 0xE), WITH(of, 0xE)

/* The bytes of word i, and those of a nibble's two words. */
#define WORD(i)      ((2 * (i)) | (2 * (i) + 1) << 8)
#define KEPT(nibble) ((uint32_t)WORD((nibble)&3) | (uint32_t)WORD((nibble) >> 2) << 16)
/* For each nibble where a group's four words come from; 0x80: from nowhere. */
#define FROM(nibble, i)                                                                            \
    ((uint64_t)((i) == (nibble) >> 2  ? WORD(1)                                                    \
                : (i) == ((nibble)&3) ? WORD(0)                                                    \
                                      : 0x8080)                                                    \
     << 16 * (i))
#define PLACES(nibble) (FROM(nibble, 0) | FROM(nibble, 1) | FROM(nibble, 2) | FROM(nibble, 3))
#define NIBBLES(of)                                                                                \
    of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(10), of(11), of(12),  \
        of(13), of(14), of(15)

/* The second's are the upper half of 16 bytes. */
#define KEPT_TWO(low, high) (KEPT(low) | (uint64_t)(KEPT(high) + 0x08080808u) << 32)

static const uint64_t kept_words[256] = {TWO_SETS(KEPT_TWO)};
static const uint64_t places[16] = {NIBBLES(PLACES)};

/* ---- floats ---- */

#define BYTES(i)     (0x03020100ull + 0x04040404ull * (i))
#define PAIR(nibble) (BYTES((nibble)&3) | BYTES((nibble) >> 2) << 32)

static const uint64_t kept_floats[16] = {SETS(PAIR)};
static const uint8_t set_nibbles[16] = {SETS(NIBBLE)};

/* As `beaten` below, of floats; `turn` and `first` say how far. */
#define FLOATS_BEATEN(size, turn, first)                                                           \
    _mm256_cmpgt_epi32(_mm256_shuffle_epi32(size, turn), _mm256_sub_epi32(size, first))

VECTOR_INLINE void prune_group(__m128 x, uint32_t set, float *kept, uint8_t *nibble) {
    __m128i from = _mm_loadl_epi64((const __m128i_u *)&kept_floats[set]);
    _mm_storel_epi64((__m128i_u *)kept, _mm_shuffle_epi8(_mm_castps_si128(x), from));
    *nibble = set_nibbles[set];
}

/* Sets of two groups' nonzero and kept elements, four bits each. */
VECTOR_INLINE uint32_t sets_of(__m256 x, uint32_t *nonzero) {
    __m256i size = v_size(_mm256_castps_si256(x)), one = v_all(1), none = _mm256_setzero_si256();
    __m256i next = FLOATS_BEATEN(size, 0x39, _mm256_blend_epi32(none, one, 0x88));
    __m256i after = FLOATS_BEATEN(size, 0x4E, _mm256_blend_epi32(none, one, 0xCC));
    __m256i before = _mm256_shuffle_epi32(next, 0x93); /* see `kept` below */
    __m256i rank = _mm256_sub_epi32(_mm256_add_epi32(next, after), before);
    __m256i some = _mm256_cmpgt_epi32(size, none);
    __m256i kept = _mm256_and_si256(some, _mm256_cmpgt_epi32(rank, _mm256_set1_epi32(-1)));
    *nonzero = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(some));
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(kept));
}

/* Sets of more than two. */
#define DENSE 0xE880u

bool ceni_codec_prune_avx2(const float *x, size_t n, float *kept, uint8_t *nibbles) {
    uint32_t dense = 0;
    for (size_t g = 0, groups = (n + 3) / 4; g < groups; g += 2) {
        bool two = g + 1 < groups;
        v_fetch(x + 4 * g, CENI_CODEC_AHEAD);
        __m128 low = _mm_loadu_ps(x + 4 * g);
        __m128 high = two ? _mm_loadu_ps(x + 4 * g + 4) : _mm_setzero_ps();
        uint32_t nonzero, sets = sets_of(_mm256_set_m128(high, low), &nonzero);
        dense |= DENSE >> (nonzero & 15) | DENSE >> (nonzero >> 4);
        prune_group(low, sets & 15, kept + 2 * g, nibbles + g);
        if (two) {
            prune_group(high, sets >> 4, kept + 2 * g + 2, nibbles + g + 1);
        }
    }
    return !(dense & 1);
}

/* Where float i of a group comes from; 0x80: from nowhere. */
#define FLOAT_FROM(nibble, i)                                                                      \
    ((i) == (nibble) >> 2 ? BYTES(1ull) : (i) == ((nibble)&3) ? BYTES(0ull) : 0x80808080ull)
#define FLOAT_PLACES(nibble)                                                                       \
    {                                                                                              \
        FLOAT_FROM(nibble, 0) | FLOAT_FROM(nibble, 1) << 32,                                       \
            FLOAT_FROM(nibble, 2) | FLOAT_FROM(nibble, 3) << 32                                    \
    }

static const uint64_t float_places[16][2] = {NIBBLES(FLOAT_PLACES)};

void ceni_codec_expand_avx2(const float *kept, const uint8_t *nibbles, size_t groups, float *all) {
    for (size_t g = 0; g < groups; g++) {
        __m128i from = _mm_loadu_si128((const __m128i_u *)float_places[nibbles[g]]);
        __m128i two = _mm_loadl_epi64((const __m128i_u *)(kept + 2 * g));
        _mm_storeu_si128((__m128i_u *)(all + 4 * g), _mm_shuffle_epi8(two, from));
    }
}

/* ---- encoding ---- */

/* Each word's place takes what is `by` words further in its group. */
VECTOR_INLINE __m256i turned(__m256i words, int by) {
    uint64_t from = 0x0706050403020100u;
    from = from >> 16 * by | from << 16 * (4 - by);
    __m128i both = _mm_set_epi64x((int64_t)(from + 0x0808080808080808u), (int64_t)from);
    return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(both));
}

/* -1 where that is larger, or as large and comes first. */
VECTOR_INLINE __m256i beaten(__m256i size, int by) {
    __m256i first = _mm256_set1_epi64x((int64_t)(0x0001000100010001u << 16 * (4 - by)));
    return _mm256_cmpgt_epi16(turned(size, by), _mm256_sub_epi16(size, first));
}

/* -1 where a word is kept, which fewer than two beat. Whom the next one does not beat, beats it: of
 * the third comparison the first has the opposite. */
VECTOR_INLINE __m256i kept(__m256i size) {
    __m256i next = beaten(size, 1);
    __m256i rank = _mm256_sub_epi16(_mm256_add_epi16(next, beaten(size, 2)), turned(next, 3));
    __m256i some = _mm256_cmpgt_epi16(size, _mm256_setzero_si256());
    return _mm256_and_si256(some, _mm256_cmpgt_epi16(rank, _mm256_set1_epi16(-1)));
}

/* The kept words of two groups, in the low half. */
VECTOR_INLINE __m128i compact(__m128i words, uint32_t sets) {
    __m128i from = _mm_loadl_epi64((const __m128i_u *)&kept_words[sets & 255]);
    return _mm_shuffle_epi8(words, from);
}

VECTOR_INLINE __m128i compact_four(__m256i words, uint32_t sets) {
    return _mm_unpacklo_epi64(compact(_mm256_castsi256_si128(words), sets),
                              compact(_mm256_extracti128_si256(words, 1), sets >> 8));
}

/* Two nibbles in a byte, of two sets. */
VECTOR_INLINE uint32_t nibbles_of(uint32_t sets) {
    __m128i table = _mm_setr_epi8(SETS(NIBBLE)), low = _mm_set1_epi8(15);
    __m128i all = _mm_cvtsi32_si128((int)sets);
    __m128i even = _mm_shuffle_epi8(table, _mm_and_si128(all, low));
    __m128i odd = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(all, 4), low));
    return (uint32_t)_mm_cvtsi128_si32(_mm_or_si128(even, _mm_slli_epi16(odd, 4)));
}

/* Every NaN as 0x7FFF; `infinite` is infinity. */
VECTOR_INLINE __m256i one_nan(__m256i words, __m256i size, int16_t infinite) {
    __m256i nan = _mm256_cmpgt_epi16(size, _mm256_set1_epi16(infinite));
    return v_pick(nan, _mm256_set1_epi16(0x7FFF), words);
}

void ceni_codec_encode_sparse_avx2(const ceni_codec_run *run, uint8_t *metadata) {
    const uint16_t *from = (const uint16_t *)run->matrix;
    uint16_t *to = (uint16_t *)run->values;
    __m256i mask = _mm256_set1_epi16(0x7FFF);
    for (size_t i = 0; i < run->n; i += STEP) {
        __m256i a = _mm256_loadu_si256((const __m256i_u *)(from + i));
        __m256i b = _mm256_loadu_si256((const __m256i_u *)(from + i + 16));
        __m256i a_size = _mm256_and_si256(a, mask), b_size = _mm256_and_si256(b, mask);
        v_fetch(from + i, run->ahead);
        __m256i bytes = _mm256_packs_epi16(kept(a_size), kept(b_size));
        uint32_t sets = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xD8));
        uint32_t nibbles = nibbles_of(sets);
        memcpy(metadata + i / 8, &nibbles, sizeof nibbles);
        a = one_nan(a, a_size, run->infinite);
        b = one_nan(b, b_size, run->infinite);
        _mm_storeu_si128((__m128i_u *)(to + i / 2), compact_four(a, sets));
        _mm_storeu_si128((__m128i_u *)(to + i / 2 + 8), compact_four(b, sets >> 16));
    }
}

/* ---- decoding ---- */

/* Two groups of four kept words, in the low half, and of two nibbles. */
VECTOR_INLINE __m128i expand(__m128i words, uint32_t nibbles) {
    __m128i from =
        _mm_set_epi64x((int64_t)places[nibbles >> 4 & 15], (int64_t)places[nibbles & 15]);
    return _mm_shuffle_epi8(words, _mm_add_epi8(from, _mm_set_epi64x(0x0404040404040404, 0)));
}

VECTOR_INLINE void expand_four(uint16_t *to, __m128i words, uint32_t nibbles) {
    _mm_storeu_si128((__m128i_u *)to, expand(words, nibbles));
    _mm_storeu_si128((__m128i_u *)(to + 8), expand(_mm_srli_si128(words, 8), nibbles >> 8));
}

/* Whether each of eight nibbles has a second index above its first. */
VECTOR_INLINE bool rise(uint32_t nibbles) {
    __m128i both = _mm_cvtsi32_si128((int)nibbles);
    __m128i all = _mm_unpacklo_epi8(_mm_and_si128(both, _mm_set1_epi8(15)),
                                    _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15)));
    __m128i first = _mm_and_si128(all, _mm_set1_epi8(3));
    __m128i second = _mm_and_si128(_mm_srli_epi16(all, 2), _mm_set1_epi8(3));
    return (_mm_movemask_epi8(_mm_cmpgt_epi8(second, first)) & 0xFF) == 0xFF;
}

bool ceni_codec_decode_sparse_avx2(const ceni_codec_run *run, const uint8_t *metadata) {
    const uint16_t *from = (const uint16_t *)run->values;
    uint16_t *to = (uint16_t *)run->matrix;
    bool rising = true;
    for (size_t i = 0; i < run->n; i += STEP) {
        uint32_t nibbles;
        memcpy(&nibbles, metadata + i / 8, sizeof nibbles);
        rising = rise(nibbles) && rising;
        v_fetch(from + i / 2, CENI_CODEC_AHEAD);
        __m256i words = _mm256_loadu_si256((const __m256i_u *)(from + i / 2));
        __m256i size = _mm256_and_si256(words, _mm256_set1_epi16(0x7FFF));
        words = one_nan(words, size, run->infinite);
        expand_four(to + i, _mm256_castsi256_si128(words), nibbles);
        expand_four(to + i + 16, _mm256_extracti128_si256(words, 1), nibbles >> 16);
    }
    return rising;
}
#endif
