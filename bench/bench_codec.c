/* What encoding and decoding take on the host, on one core, beside memcpy: bytes that are read and
 * written in a second, of a matrix that no cache holds. Encoding by tensor reads the matrix twice,
 * since no element can be encoded before its scale is known, and is counted so. Half of memcpy is
 * what we want, and a report for 5% more time. Time is the processor's of this thread, so
 * that another program costs less of the figures. Lossless BF16 is counted by its own bytes, as its
 * peers are, and its size beside what the entropy of the exponents allows.
 *
 * usage: bench_codec */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "cenote/cenote.h"

enum { ROWS = 4096, COLS = 4096, ROUNDS = 9 };
#define COUNT ((size_t)ROWS * COLS)

static float *floats;   /* of the source, and decoded */
static uint16_t *bf16s; /* the same */
static uint8_t *encoded, *copied;
static const char *separator = "";

static void need(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench_codec: %s failed\n", what);
        exit(1);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static cen_addr address(const void *ptr) {
    return (cen_addr)(uintptr_t)ptr;
}

/* Twelve uniform numbers make a normal one. */
static void make_weights(void) {
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < COUNT; i++) {
        float sum = -6;
        for (int k = 0; k < 6; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (float)(state & 0xFFFFFF) * 0x1p-24f + (float)(state >> 40) * 0x1p-24f;
        }
        floats[i] = sum * 0.02f;
    }
}

static cen_codec_parts room(const cen_codec *codec) {
    cen_codec_parts p = {.values = address(encoded)};
    need(!cen_codec_bound(codec, ROWS, COLS, &p.bytes), "asking for sizes");
    p.scales = p.values + (p.bytes.values + 63) / 64 * 64;
    p.zeros = p.scales + (p.bytes.scales + 63) / 64 * 64;
    p.metadata = p.zeros + (p.bytes.zeros + 63) / 64 * 64;
    return p;
}

static double copy(size_t bytes) {
    double start = seconds();
    memcpy(copied, floats, bytes);
    return 2 * (double)bytes / (seconds() - start) * 1e-9;
}

typedef struct measured {
    double encode[ROUNDS], reported[ROUNDS], decode[ROUNDS], copied[ROUNDS];
} measured;

static void figure(const char *name, const char *what, const char *peer, double *samples,
                   const double *peers, double target) {
    double others[ROUNDS];
    char text[128];
    memcpy(others, peers, sizeof others);
    snprintf(text, sizeof text, "%s, %s", name, what);
    printf("%s\n  ", separator);
    separator = ",";
    bench_figure(stdout, text, "GB/s", bench_measure_of(samples, ROUNDS));
    bench_measure of_peer = bench_measure_of(others, ROUNDS);
    bench_peer(stdout, peer, of_peer);
    printf(", \"target\": %.2f}", target > 0 ? target : of_peer.median / 2);
}

static void measure(const char *name, const cen_codec *codec, cen_dtype dtype) {
    cen_matrix m = {address(dtype == CEN_FP32 ? (void *)floats : (void *)bf16s), ROWS, COLS, COLS,
                    dtype};
    cen_codec_parts p = room(codec);
    cen_codec_sums total;
    measured all;
    double source = (double)COUNT * cen_dtype_bits(dtype) / 8;
    double bytes = source + (double)(p.bytes.values + p.bytes.scales + p.bytes.metadata);
    double encoded_bytes = bytes + (codec->granularity == CEN_CODEC_TENSOR ? source : 0);
    for (int i = -1; i < ROUNDS; i++) {
        int k = i < 0 ? 0 : i;
        double start = seconds();
        need(!cen_codec_encode(codec, &m, &p, NULL, NULL), "encoding");
        all.encode[k] = encoded_bytes / (seconds() - start) * 1e-9;
        start = seconds();
        need(!cen_codec_encode(codec, &m, &p, NULL, &total), "encoding with a report");
        all.reported[k] = encoded_bytes / (seconds() - start) * 1e-9;
        start = seconds();
        cen_matrix to = m;
        to.data = address(copied);
        need(!cen_codec_decode(codec, &p, &to), "decoding");
        all.decode[k] = bytes / (seconds() - start) * 1e-9;
        all.copied[k] = copy(COUNT * 4);
    }
    figure(name, "encode", "memcpy", all.encode, all.copied, 0);
    double target = bench_measure_of(all.encode, ROUNDS).median / 1.05;
    figure(name, "encode with report", "memcpy", all.reported, all.copied, target);
    figure(name, "decode", "memcpy", all.decode, all.copied, 0);
}

static double exponent_bits(void) {
    static size_t counts[256];
    double bits = 0;
    for (size_t i = 0; i < COUNT; i++) {
        counts[bf16s[i] >> 7 & 0xFF]++;
    }
    for (int i = 0; i < 256; i++) {
        double share = (double)counts[i] / COUNT;
        bits -= share > 0 ? share * log2(share) : 0;
    }
    return bits;
}

static void lossless(void) {
    cen_codec codec = {.format = CEN_CODEC_LOSSLESS_BF16};
    cen_matrix m = {address(bf16s), ROWS, COLS, COLS, CEN_BF16}, to = m;
    measured all;
    double bytes = (double)COUNT * 2, share = 0;
    to.data = address(copied);
    for (int i = 0; i < ROUNDS; i++) {
        cen_codec_parts p = room(&codec);
        double start = seconds();
        need(!cen_codec_encode(&codec, &m, &p, NULL, NULL), "encoding without loss");
        all.encode[i] = bytes / (seconds() - start) * 1e-9;
        start = seconds();
        need(!cen_codec_decode(&codec, &p, &to), "decoding without loss");
        all.decode[i] = bytes / (seconds() - start) * 1e-9;
        all.copied[i] = copy(COUNT * 2) / 2;
        share = (double)p.bytes.values / bytes * 100;
    }
    figure("lossless bf16", "encode", "memcpy", all.encode, all.copied, 1.5);
    figure("lossless bf16", "decode", "memcpy", all.decode, all.copied, 1.5);
    printf(",\n  ");
    bench_figure(stdout, "lossless bf16, size of weights", "% of bf16",
                 (bench_measure){share, share, share});
    printf(", \"peer\": null, \"floor\": %.2f, \"floor_reason\": \"sign, mantissa, and the entropy "
           "of the exponents\", \"target\": 68, \"better\": \"less\"}",
           (8 + exponent_bits()) / 16 * 100);
}

static const char about[] =
    "One core of the host, a matrix of 4096 x 4096: bytes read and written in a second, where "
    "memcpy's are the bound of memory and half of them the target. By tensor the matrix is read "
    "twice, and counted so. A report is to take 5% more than encoding without one. Lossless BF16 "
    "is counted by its own bytes.";

int main(void) {
    static const struct {
        const char *name;
        cen_codec codec;
        cen_dtype dtype;
    } cases[] = {
        {"fp32 to bf16", {.format = CEN_CODEC_BF16}, CEN_FP32},
        {"fp32 to fp16", {.format = CEN_CODEC_FP16}, CEN_FP32},
        {"fp32 to fp8_e4m3", {.format = CEN_CODEC_FP8_E4M3}, CEN_FP32},
        {"bf16 to fp8_e4m3 by row",
         {.format = CEN_CODEC_FP8_E4M3, .granularity = CEN_CODEC_ROW},
         CEN_BF16},
        {"fp32 to int8 by row", {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW}, CEN_FP32},
        {"bf16 to int8 by row", {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_ROW}, CEN_BF16},
        {"fp32 to int8 by tensor, asymmetric",
         {.format = CEN_CODEC_INT8, .granularity = CEN_CODEC_TENSOR, .asymmetric = true},
         CEN_FP32},
        {"fp32 to int4 by groups of 32",
         {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 32},
         CEN_FP32},
        {"bf16 to int4 by groups of 128",
         {.format = CEN_CODEC_INT4, .granularity = CEN_CODEC_GROUP, .group = 128},
         CEN_BF16},
        {"bf16 to fp8_e5m2 by row",
         {.format = CEN_CODEC_FP8_E5M2, .granularity = CEN_CODEC_ROW},
         CEN_BF16},
        {"bf16 to 2:4 bf16", {.format = CEN_CODEC_SPARSE_BF16}, CEN_BF16},
        {"fp32 to 2:4 fp16", {.format = CEN_CODEC_SPARSE_FP16}, CEN_FP32},
        {"bf16 to 2:4 int8 by row",
         {.format = CEN_CODEC_SPARSE_INT8, .granularity = CEN_CODEC_ROW},
         CEN_BF16},
    };
    floats = malloc(COUNT * 4);
    bf16s = malloc(COUNT * 2);
    copied = malloc(COUNT * 4);
    encoded = malloc(COUNT * 4 + (1 << 20));
    need(floats && bf16s && copied && encoded, "allocating");
    make_weights();
    cen_codec to_bf16 = {.format = CEN_CODEC_BF16};
    cen_matrix m = {address(floats), ROWS, COLS, COLS, CEN_FP32};
    cen_codec_parts p = {.values = address(bf16s), .bytes.values = COUNT * 2};
    need(!cen_codec_encode(&to_bf16, &m, &p, NULL, NULL), "rounding to bf16");
    memset(encoded, 0, COUNT * 4);
    printf("{\"name\": \"codec\", \"about\": \"%s\", \"figures\": [", about);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        measure(cases[i].name, &cases[i].codec, cases[i].dtype);
    }
    lossless();
    printf("\n]}\n");
    return 0;
}
