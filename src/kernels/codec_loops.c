#define LOOPS ceni_codec_loops_any
#define RUNS  NULL
#include "kernels/codec_loops_body.h"

const ceni_codec_loops *ceni_codec_loops_here(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &ceni_codec_loops_avx2;
    }
#endif
    return &ceni_codec_loops_any;
}
