#!/usr/bin/env python3
"""cenote.numba on a GPU.

usage: PYTHONPATH=python CENOTE_LIBRARY=build-portable/libcenote.so.0.1 tests/gpu/check_numba.py [NAME...]
       check_numba.py --one NAME          that check, in this process
"""

import os
import random
import subprocess
import sys

from checks import Skip, check, main, raises

MIB = 1 << 20
NAP_NS = 100_000


def start(**options):
    from numba import cuda

    if not cuda.is_available():
        raise Skip("Numba finds no GPU")
    import cenote.numba

    cenote.numba.enable(**options)
    return cuda


def manager(cuda):
    return cuda.current_context().memory_manager


def adder(cuda):
    """A kernel: out = array + value, after so many naps."""

    @cuda.jit
    def add(out, array, value, naps):
        for _ in range(naps):
            cuda.nanosleep(NAP_NS)
        at = cuda.grid(1)
        if at < array.size:
            out[at] = array[at] + value

    return add


def random_arrays(cuda, streams, rounds, seed=1):
    """Arrays of random sizes come and go; a kernel reads each one that goes, on one of the streams."""
    import numpy

    add = adder(cuda)
    chance = random.Random(seed)
    live = []
    for round_ in range(rounds):
        if live and chance.random() < 0.45:
            live.pop(chance.randrange(len(live)))
        elif len(live) < 40:
            size = chance.choice([7, 1000, 70_000, 600_000])
            stream = chance.choice(streams)
            source = cuda.to_device(numpy.full(size, round_ % 251, numpy.int32), stream=stream)
            result = cuda.device_array(size, numpy.int32, stream=stream)
            add[(size + 255) // 256, 256, stream](result, source, 1, chance.randrange(3))
            live.append((result, round_ % 251 + 1, stream))  # and source is dropped while it is read
    for result, value, stream in live:
        got = result.copy_to_host(stream=stream)
        stream.synchronize()
        assert (got == value).all(), (got.min(), got.max(), value)


@check
def arrays_keep_their_values_on_two_streams():
    cuda = start()
    streams = [cuda.stream(), cuda.stream()]
    random_arrays(cuda, streams, 1500)
    random_arrays(cuda, [*streams, cuda.default_stream()], 800, seed=2)
    memory = manager(cuda)
    memory.give_back()
    memory.pool.verify()
    assert memory.pool.stats().blocks == 0, memory.pool.stats()


@check
def arrays_keep_their_values_on_the_default_stream():
    cuda = start(stream="default")
    random_arrays(cuda, [cuda.default_stream()], 1500)
    memory = manager(cuda)
    memory.pool.verify()
    assert memory.pool.stats().blocks == 0, memory.pool.stats()


@check
def running_out_is_a_memory_error_of_ours():
    import cenote
    import numpy

    cuda = start(limit=256 * MIB)
    held = cuda.device_array(100 * MIB, numpy.uint8)
    for kind in (cenote.OutOfMemoryError, MemoryError):
        error = raises(kind, lambda: cuda.device_array(300 * MIB, numpy.uint8))
        assert "300.00 MiB" in str(error) and "256.00 MiB" in str(error), error
    for _ in range(20):  # dropped ones wait to be freed, and make way when they are in the way
        cuda.device_array(100 * MIB, numpy.uint8)
    del held
    print(error)


@check
def memory_is_told_and_returns():
    import numpy

    cuda = start()
    context = cuda.current_context()
    free, total = context.get_memory_info()
    assert 0 < free <= total
    array = cuda.device_array(512 * MIB, numpy.uint8)
    assert free - context.get_memory_info().free >= 512 * MIB
    assert manager(cuda).pool.stats().requested_bytes == 512 * MIB
    del array
    manager(cuda).give_back()
    assert manager(cuda).pool.stats().requested_bytes == 0
    manager(cuda).pool.trim(wait=True)
    assert free - context.get_memory_info().free < 64 * MIB


@check
def nothing_is_freed_while_cleanup_is_deferred():
    import numpy

    cuda = start()
    with cuda.defer_cleanup():
        for _ in range(30):
            cuda.device_array(MIB, numpy.uint8)
        assert manager(cuda).pool.stats().blocks == 30
    cuda.device_array(MIB, numpy.uint8)
    assert manager(cuda).pool.stats().blocks == 0


@check
def ipc_is_refused():
    import numpy

    cuda = start()
    array = cuda.device_array(1000, numpy.uint8)
    assert "IPC" in str(raises(NotImplementedError, array.get_ipc_handle))


@check
def a_reset_gives_all_back():
    import numpy

    cuda = start()
    array = cuda.to_device(numpy.arange(1000))
    cuda.current_context().reset()
    del array
    again = cuda.to_device(numpy.arange(1000))
    assert (again.copy_to_host() == numpy.arange(1000)).all()
    assert manager(cuda).pool.stats().blocks == 1


@check
def it_is_too_late_once_a_device_is_used():
    import cenote.numba
    from numba import cuda

    import cenote

    if not cuda.is_available():
        raise Skip("Numba finds no GPU")
    cuda.current_context()
    error = raises(cenote.Error, cenote.numba.enable)
    assert "already" in str(error), error


@check
def the_environment_chooses_it():
    program = (
        "import numpy; from numba import cuda; cuda.to_device(numpy.arange(9));"
        "print(type(cuda.current_context().memory_manager).__module__)"
    )
    environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": "cenote.numba"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    if "CudaSupportError" in done.stderr:
        raise Skip("Numba finds no GPU")
    assert done.stdout.strip() == "cenote.numba", done.stdout + done.stderr


if __name__ == "__main__":
    main(os.path.abspath(__file__))
