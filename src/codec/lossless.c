/* BF16 without loss. Weights use few exponents: those become zstd frames of literals without a
 * search for repeats, since there are none worth their time; signs and mantissas stay as they are.
 * The layout is in docs/codecs.md. Chunks stand alone, so that a bad one says so and goes no
 * further. */
#include "codec/codec.h"

#include <string.h>

/* For the parameter that keeps zstd's Huffman coding while it looks for no repeats; its number in
 * the shared library has been the same since 1.3.8. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/over.h"
#include "codec/huffman.h"
#include "kernels/codec_loops.h"

enum { CHUNK = CENI_HUFFMAN_COUNT, HEADER = 16, RAW = CHUNK }; /* a size of RAW: stored as it is */
static const uint8_t magic[8] = {'c', 'e', 'n', 'L', 'B', '1', 17, 0};

uint64_t ceni_lossless_bound(uint64_t elements) {
    uint64_t chunks = ceni_over(elements, CHUNK);
    return elements ? HEADER + 4 * chunks + 2 * elements : 0;
}

/* Little-endian, wherever they lie. */
static void put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t get32(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* A matrix as one row of elements, in pieces that lie together. */
typedef struct cursor {
    const cen_matrix *matrix;
    uint64_t row, col;
} cursor;

static uint16_t *piece(cursor *c, uint64_t most, uint64_t *n) {
    const cen_matrix *m = c->matrix;
    uint16_t *at = (uint16_t *)(uintptr_t)m->data + c->row * m->stride + c->col;
    uint64_t left = m->cols - c->col;
    *n = left < most ? left : most;
    c->col += *n;
    if (c->col == m->cols) {
        c->row++;
        c->col = 0;
    }
    return at;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- encoding ---- */

static ZSTD_CCtx *make_encoder(void) {
    static const struct {
        ZSTD_cParameter name;
        int value;
    } settings[] = {{ZSTD_c_strategy, ZSTD_fast},
                    {ZSTD_c_targetLength, 1 << 17}, /* steps past all there is to compare */
                    {ZSTD_c_minMatch, 7},
                    {ZSTD_c_hashLog, 6},
                    {ZSTD_c_chainLog, 6},
                    {ZSTD_c_windowLog, 17},
                    {ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman}};
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    for (size_t i = 0; zstd && i < sizeof settings / sizeof *settings; i++) {
        if (ZSTD_isError(ZSTD_CCtx_setParameter(zstd, settings[i].name, settings[i].value))) {
            ZSTD_freeCCtx(zstd);
            return NULL;
        }
    }
    return zstd;
}

/* What codes chunks, and room for one on its way. */
typedef struct coder {
    ZSTD_CCtx *zstd;
    uint8_t exponents[CHUNK], coded[CENI_HUFFMAN_ROOM];
} coder;

/* The chunk's size in the stream; RAW where coding does not make it smaller. libzstd codes what is
 * shorter, or has exponents that few weights have. */
static uint32_t encode_chunk(coder *c, size_t n, uint8_t *to, size_t room) {
    size_t size = n == CENI_HUFFMAN_COUNT ? ceni_huffman_encode(c->exponents, c->coded) : 0;
    if (size && size < n) {
        memcpy(to, c->coded, size);
        return (uint32_t)size;
    }
    size = size ? size : ZSTD_compress2(c->zstd, to, room, c->exponents, n);
    if (ZSTD_isError(size) || size >= n) {
        memcpy(to, c->exponents, n);
        return RAW;
    }
    return (uint32_t)size;
}

static uint64_t encode_all(coder *c, const cen_matrix *source, uint8_t *to) {
    const ceni_codec_loops *loops = ceni_codec_loops_here();
    uint64_t count = source->rows * source->cols, chunks = ceni_over(count, CHUNK);
    uint8_t *sizes = to + HEADER, *rest = sizes + 4 * chunks, *out = rest + count;
    const uint8_t *end = to + ceni_lossless_bound(count);
    cursor at = {source, 0, 0};
    memcpy(to, magic, sizeof magic);
    put32(to + 8, (uint32_t)count);
    put32(to + 12, (uint32_t)(count >> 32));
    for (uint64_t k = 0, left = count; left; k++) {
        size_t n = (size_t)least(left, CHUNK);
        for (uint64_t done = 0, got; done < n; done += got) {
            const uint16_t *from = piece(&at, n - done, &got);
            loops->split(from, (size_t)got, c->exponents + done, rest + done);
        }
        uint32_t size = encode_chunk(c, n, out, (size_t)(end - out));
        put32(sizes + 4 * k, size);
        out += size == RAW ? n : size;
        rest += n;
        left -= n;
    }
    return (uint64_t)(out - to);
}

static void sum_rows(const cen_matrix *source, cen_codec_sums *rows, cen_codec_sums *total) {
    const ceni_codec_loops *loops = ceni_codec_loops_here();
    float x[CENI_CODEC_TILE], one[CENI_CODEC_TILE];
    cen_codec_sums all = {0};
    for (size_t i = 0; i < CENI_CODEC_TILE; i++) {
        one[i] = 1.0f;
    }
    cursor at = {source, 0, 0};
    for (uint64_t row = 0; row < source->rows; row++) {
        ceni_codec_sums sums = {0};
        for (uint64_t left = source->cols, n; left; left -= n) {
            const uint16_t *from = piece(&at, least(left, CENI_CODEC_TILE), &n);
            loops->load_bf16(from, (size_t)n, x);
            loops->sums(x, one, x, (size_t)n, 0x1.FFFFFEp127f, &sums);
        }
        ceni_codec_sums_add((ceni_codec_sums *)&all, &sums);
        if (rows) {
            memcpy(&rows[row], &sums, sizeof sums);
        }
    }
    if (total) {
        *total = all;
    }
}

cen_status ceni_lossless_encode(const cen_matrix *source, const cen_codec_parts *parts,
                                uint64_t *bytes, cen_codec_sums *rows, cen_codec_sums *total) {
    *bytes = 0;
    if (source->rows && source->cols) {
        ZSTD_CCtx *zstd = make_encoder();
        coder *c = ceni_malloc(sizeof *c);
        if (zstd && c) {
            c->zstd = zstd;
            *bytes = encode_all(c, source, (uint8_t *)(uintptr_t)parts->values);
        }
        ZSTD_freeCCtx(zstd);
        ceni_free(c);
        if (!*bytes) {
            return ceni_fail(CEN_ERR_HOST_MEMORY, "no memory to encode bf16 losslessly");
        }
    }
    if (rows || total) {
        sum_rows(source, rows, total);
    }
    return CEN_OK;
}

/* ---- decoding ---- */

/* The stream's chunks have sizes that end where it does. */
static cen_status check_stream(const uint8_t *from, uint64_t size, uint64_t count) {
    uint64_t chunks = ceni_over(count, CHUNK), end = HEADER + 4 * chunks + count;
    if (size < HEADER || size < end) {
        return ceni_fail(
            CEN_ERR_TRUNCATED, "parts.values has %llu bytes; %llu elements take more than %llu",
            (unsigned long long)size, (unsigned long long)count, (unsigned long long)end);
    }
    if (memcmp(from, magic, sizeof magic)) {
        return ceni_fail(CEN_ERR_FORMAT, "parts.values is not lossless bf16: it begins otherwise");
    }
    uint64_t stored = get32(from + 8) | (uint64_t)get32(from + 12) << 32;
    if (stored != count) {
        return ceni_fail(CEN_ERR_FORMAT, "parts.values has %llu elements; `to` takes %llu",
                         (unsigned long long)stored, (unsigned long long)count);
    }
    for (uint64_t k = 0; k < chunks; k++) {
        uint32_t chunk = get32(from + HEADER + 4 * k);
        uint64_t n = least(count - k * CHUNK, CHUNK), bytes = chunk == RAW ? n : chunk;
        if (chunk > RAW || !chunk || bytes > n || bytes > size - end) {
            return ceni_fail(CEN_ERR_FORMAT, "parts.values: chunk %llu has a size of %u",
                             (unsigned long long)k, chunk);
        }
        end += bytes;
    }
    if (end != size) {
        return ceni_fail(CEN_ERR_FORMAT, "parts.values has %llu bytes behind its end",
                         (unsigned long long)(size - end));
    }
    return CEN_OK;
}

static cen_status decode_all(ZSTD_DCtx *zstd, const uint8_t *from, const cen_matrix *to,
                             uint8_t *scratch) {
    const ceni_codec_loops *loops = ceni_codec_loops_here();
    uint64_t count = to->rows * to->cols, chunks = ceni_over(count, CHUNK);
    const uint8_t *rest = from + HEADER + 4 * chunks, *in = rest + count;
    cursor at = {to, 0, 0};
    for (uint64_t k = 0; k < chunks; k++) {
        uint32_t size = get32(from + HEADER + 4 * k);
        size_t n = (size_t)least(count - k * CHUNK, CHUNK);
        const uint8_t *exponents = size == RAW ? in : scratch;
        if (size != RAW && ZSTD_decompressDCtx(zstd, scratch, n, in, size) != n) {
            return ceni_fail(CEN_ERR_FORMAT, "parts.values: chunk %llu does not decode",
                             (unsigned long long)k);
        }
        for (uint64_t done = 0, got; done < n; done += got) {
            uint16_t *out = piece(&at, n - done, &got);
            loops->join(exponents + done, rest + done, (size_t)got, out);
        }
        in += size == RAW ? n : size;
        rest += n;
    }
    return CEN_OK;
}

cen_status ceni_lossless_decode(const cen_codec_parts *parts, const cen_matrix *to) {
    const uint8_t *from = (const uint8_t *)(uintptr_t)parts->values;
    if (!to->rows || !to->cols) {
        return CEN_OK;
    }
    cen_status status = check_stream(from, parts->bytes.values, to->rows * to->cols);
    if (status) {
        return status;
    }
    ZSTD_DCtx *zstd = ZSTD_createDCtx();
    uint8_t *scratch = ceni_malloc(CHUNK);
    status = zstd && scratch ? decode_all(zstd, from, to, scratch)
                             : ceni_fail(CEN_ERR_HOST_MEMORY, "no memory to decode bf16");
    ZSTD_freeDCtx(zstd);
    ceni_free(scratch);
    return status;
}
