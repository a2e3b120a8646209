#!/usr/bin/env python3
"""Times RMM's pool from Python: pairs of four sizes and the mixed pattern of bench/pattern.h.

Each step includes the interpreter's time for it, which is measured with an allocator that does
nothing and printed beside ("overhead"). Prints {"peer", "figures"}; exits with 77 without RMM.
"""

import json
import statistics
import sys
import time

MASK = (1 << 64) - 1
SEED, SLOTS, STEPS, CHUNK = 0x9E3779B97F4A7C15, 256, 200000, 10000
SIZES = [(512, "512 B"), (64 << 10, "64 KiB"), (2 << 20, "2 MiB"), (64 << 20, "64 MiB")]


class Pattern:
    """The rule of bench/pattern.h."""

    def __init__(self):
        self.state = SEED

    def next(self):
        x = self.state
        x ^= (x << 13) & MASK
        x ^= x >> 7
        x ^= (x << 17) & MASK
        self.state = x
        return x

    def slot(self):
        return (self.next() >> 33) % SLOTS

    def size(self):
        r = self.next() >> 16
        octave = 512 << (r % 17)
        return octave + (octave * ((r >> 8) & 1023) >> 10)


class Nothing:
    """An allocator that does nothing."""

    def allocate(self, size):
        return size

    def deallocate(self, address, size):
        pass


def figure(what, samples, overhead):
    return {"what": what, "unit": "ns", "median": statistics.median(samples),
            "spread": [min(samples), max(samples)], "overhead": statistics.median(overhead)}


def pairs(pool, size):
    samples = []
    for _ in range(22):
        start = time.perf_counter_ns()
        for _ in range(1000):
            pool.deallocate(pool.allocate(size), size)
        samples.append((time.perf_counter_ns() - start) / 1000)
    return samples[1:]


def pattern(pool):
    random = Pattern()
    sizes = [random.size() for _ in range(SLOTS)]
    steps = [(random.slot(), random.size()) for _ in range(STEPS)]
    blocks = [pool.allocate(size) for size in sizes]
    samples = []
    for first in range(0, STEPS, CHUNK):
        start = time.perf_counter_ns()
        for slot, size in steps[first:first + CHUNK]:
            pool.deallocate(blocks[slot], sizes[slot])
            blocks[slot] = pool.allocate(size)
            sizes[slot] = size
        samples.append((time.perf_counter_ns() - start) / CHUNK)
    for block, size in zip(blocks, sizes):
        pool.deallocate(block, size)
    return samples


def main():
    try:
        import rmm
    except ImportError as error:
        print(f"peer_rmm: skipped: {error}", file=sys.stderr)
        sys.exit(77)
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=4 << 30)
    figures = [figure(f"alloc + free, {name}", pairs(pool, size), pairs(Nothing(), size)) for size, name in SIZES]
    figures.append(figure("mixed pattern, a pair", pattern(pool), pattern(Nothing())))
    print(json.dumps({"peer": f"rmm {rmm.__version__}", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
