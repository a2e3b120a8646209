/* Compiled with -mavx2 -mfma (CMakeLists.txt). */
#if defined(__x86_64__)
#define LOOPS  ceni_codec_loops_avx2
#define RUNS   (&ceni_codec_runs_avx2)
#define PRUNE  ceni_codec_prune_avx2
#define EXPAND ceni_codec_expand_avx2
#include "kernels/codec_loops_body.h"
#endif
