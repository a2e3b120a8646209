/* The driver's own stream-ordered pool (cuMemAllocAsync and cuMemFreeAsync) as a peer, found with
 * dlopen. Its release threshold is raised, so that it stays warm, as a pool in use would be. */
#ifndef CENOTE_BENCH_ASYNC_H
#define CENOTE_BENCH_ASYNC_H

#include "bench/bench.h"

/* The default pool of CUDA device `ordinal`, on a stream of its own in the primary context, which
 * becomes current on this thread. NULL: it worked; else why not. */
const char *peer_async_open(int ordinal, bench_allocator *allocator);
/* Another user of an open one, which outlives it: on its stream, or on a stream of its own. */
bool peer_async_copy(const bench_allocator *from, bool own_stream, bench_allocator *allocator);
/* Waits for its stream; that of peer_async_open also trims the pool and lets go of the context. */
void peer_async_close(bench_allocator *allocator);

#endif
