#define LOOPS ceni_codec_loops_any
#include "kernels/codec_loops_body.h"

const ceni_codec_loops *ceni_codec_loops_here(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return &ceni_codec_loops_avx2;
    }
#endif
    return &ceni_codec_loops_any;
}
