#!/usr/bin/env python3
"""cenote.cupy on a GPU.

usage: PYTHONPATH=python CENOTE_LIBRARY=build-portable/libcenote.so.0.1 tests/gpu/check_cupy.py [NAME...]
       check_cupy.py --one NAME          that check, in this process
"""

import gc
import os
import random
import threading

from checks import Skip, check, main, raises

MIB = 1 << 20
CYCLES = 20_000_000  # of a kernel that keeps a stream busy: about 10 ms


def start(**options):
    import cupy

    import cenote.cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise Skip(str(error)) from None
    return cupy, cenote.cupy.enable(**options)


def busy(cupy, stream, cycles=CYCLES):
    """Keeps a stream busy, without memory."""
    kernel = cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) '
        "{ long long from = clock64(); while (clock64() - from < n) { } }",
        "spin",
    )
    with stream:
        kernel((1,), (1,), (cycles,))


def random_arrays(cupy, streams, rounds, seed=1):
    """Arrays of random sizes come and go on each stream; those that stay keep their values."""
    chance = random.Random(seed)
    live = []
    for round_ in range(rounds):
        number = chance.randrange(len(streams))
        with streams[number]:
            if live and chance.random() < 0.45:
                where = chance.randrange(len(live))
                live[where] = live[-1]
                live.pop()
            elif len(live) < 60:
                size = chance.choice([7, 1000, 70_000, 600_000, 5_000_000])
                value = round_ % 251
                source = cupy.full(size, value, dtype=cupy.int32)
                live.append((source + 1, value + 1, number))  # and source is freed at once
        if round_ % 97 == 0:
            busy(cupy, streams[chance.randrange(len(streams))], CYCLES // 10)
    for array, value, number in live:
        with streams[number]:
            low, high = int(array.min()), int(array.max())
        assert low == high == value, (low, high, value)


@check
def arrays_keep_their_values_on_two_streams():
    cupy, allocator = start()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    random_arrays(cupy, streams, 2000)
    random_arrays(cupy, [*streams, cupy.cuda.Stream.null], 2000, seed=2)
    pool = allocator.pool(0)
    pool.verify()
    assert pool.stats().blocks == 0, pool.stats()


@check
def a_block_that_is_still_read_is_not_given_to_another_stream():
    cupy, allocator = start(limit=256 * MIB)
    one, two = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    size = 150 * MIB  # two do not fit: the second can only have the first one's memory
    for _ in range(5):
        with one:
            source = cupy.full(size // 4, 7, dtype=cupy.int32)
            result = cupy.zeros(1000, dtype=cupy.int32)
            one.synchronize()
            busy(cupy, one)
            result[:] = source[:1000]
            del source
        with two:
            other = cupy.full(size // 4, 9, dtype=cupy.int32)
            two.synchronize()
            del other
        one.synchronize()
        assert int(result.min()) == int(result.max()) == 7
    allocator.pool(0).verify()


@check
def threads_with_streams_of_their_own():
    cupy, allocator = start()
    failed = []

    def work(seed):
        try:
            random_arrays(cupy, [cupy.cuda.Stream(non_blocking=True)], 600, seed)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    gc.collect()
    allocator.pool(0).verify()
    assert allocator.pool(0).stats().blocks == 0


@check
def streams_come_and_go():
    cupy, allocator = start(limit=512 * MIB)
    for round_ in range(300):
        with cupy.cuda.Stream(non_blocking=round_ % 2 == 0):
            array = cupy.full(8 * MIB, round_ % 100, dtype=cupy.uint8)
            assert int(array.max()) == round_ % 100
            del array
    with cupy.cuda.Stream() as stream:  # what the others left idle is there for this one
        cupy.zeros(400 * MIB, dtype=cupy.uint8)
        stream.synchronize()
    allocator.pool(0).verify()


def running_out(stream):
    import cenote

    cupy, allocator = start(limit=256 * MIB, stream=stream)
    held = cupy.zeros(100 * MIB, dtype=cupy.uint8)
    for kind in (cupy.cuda.memory.OutOfMemoryError, cenote.OutOfMemoryError, MemoryError):
        error = raises(kind, lambda: cupy.zeros(300 * MIB, dtype=cupy.uint8))
        assert "300.00 MiB" in str(error) and "256.00 MiB" in str(error), error
    assert int(held.max()) == 0
    cycle = [cupy.zeros(100 * MIB, dtype=cupy.uint8)]
    cycle.append(cycle)
    del cycle
    cupy.zeros(120 * MIB, dtype=cupy.uint8)  # fits once the cycle is collected
    print(error)


@check
def running_out_is_an_error_of_cupys_and_ours():
    running_out("current")


@check
def running_out_on_the_default_stream():
    running_out("default")


@check
def memory_returns():
    cupy, allocator = start()
    cupy.zeros(1, dtype=cupy.uint8).max()  # contexts and modules first
    pool = allocator.pool(0)
    pool.trim(wait=True)
    before, total = cupy.cuda.runtime.memGetInfo()
    assert pool.device.mem_info().total == total
    array = cupy.ones(512 * MIB, dtype=cupy.uint8)
    assert int(array.min()) == 1
    assert pool.stats().requested_bytes >= 512 * MIB
    assert before - cupy.cuda.runtime.memGetInfo()[0] >= 512 * MIB
    del array
    assert pool.stats().requested_bytes == 0
    pool.trim(wait=True)
    after = cupy.cuda.runtime.memGetInfo()[0]
    assert before - after < 64 * MIB, (before, after)


@check
def one_stream_without_python_between():
    cupy, allocator = start(stream="default")
    random_arrays(cupy, [cupy.cuda.Stream.null], 3000)
    pool = allocator.pool(0)
    pool.verify()
    assert pool.stats().allocs > 1000 and pool.stats().blocks == 0, pool.stats()
    assert cupy.zeros(0).size == 0


@check
def arrays_stay_valid_when_disabled():
    import cenote.cupy

    cupy, allocator = start()
    array = cupy.arange(MIB, dtype=cupy.int64)
    cenote.cupy.disable()
    other = cupy.arange(MIB, dtype=cupy.int64)
    assert allocator.pool(0).stats().blocks == 1
    assert bool((array == other).all())
    del array
    assert allocator.pool(0).stats().blocks == 0


@check
def the_per_thread_default_stream_is_refused():
    import cenote

    for stream in ("default", "current"):
        cupy, _ = start(stream=stream)
        with cupy.cuda.Stream.ptds:
            error = raises(cenote.Error, lambda: cupy.zeros(MIB))
        assert "PER_THREAD_DEFAULT_STREAM" in str(error), error


@check
def each_device_has_a_pool():
    cupy, allocator = start(limit=256 * MIB)
    if cupy.cuda.runtime.getDeviceCount() < 2:
        raise Skip("one GPU only")
    arrays = []
    for number in range(2):
        with cupy.cuda.Device(number):
            arrays.append(cupy.full(MIB, number, dtype=cupy.uint8))
    for number, array in enumerate(arrays):
        with cupy.cuda.Device(number):
            assert int(array.max()) == number
        assert allocator.pool(number).stats().blocks == 1
    with cupy.cuda.Device(1):  # freed under another current device
        arrays.clear()
    assert [allocator.pool(number).stats().blocks for number in range(2)] == [0, 0]


if __name__ == "__main__":
    main(os.path.abspath(__file__))
