#!/usr/bin/env python3
"""CuPy's allocator: the logic on a host device with streams of its own, and CuPy's side of it where
CuPy is installed. What happens on a GPU is checked by tests/gpu/check_cupy.py."""

import contextlib
import gc
import pickle
import random
import threading
import unittest

import support
from support import MIB

import cenote
from cenote import BlockState
from cenote.cupy import Allocator


class Stream:
    """As CuPy's: it is destroyed when its object dies."""

    def __init__(self, device, destroyed):
        self.device = device
        self.destroyed = destroyed
        self.ptr = device.create_stream()

    def __del__(self):
        self.device.destroy_stream(self.ptr)
        self.destroyed.append(self.ptr)


class Named:
    """A stream that is only named."""

    def __init__(self, ptr):
        self.ptr = ptr


class AllocatorTest(unittest.TestCase):
    def setUp(self):
        self.device = cenote.Device("host:0", capacity=64 * MIB)
        self.pool = cenote.Pool(self.device)
        self.current = threading.local()
        self.null = Named(0)
        self.destroyed, self.told = [], []
        release = self.pool.release_stream
        self.pool.release_stream = lambda stream: (self.told.append(stream), release(stream))
        self.allocator = Allocator(
            lambda: getattr(self.current, "stream", self.null), pools={0: self.pool}
        )

    def tearDown(self):
        self.current.stream = self.null
        self.allocator = None
        self.pool.close()
        self.device.close()

    @contextlib.contextmanager
    def on(self, stream):
        self.current.stream = stream
        yield
        self.current.stream = self.null

    def new_stream(self):
        return Stream(self.device, self.destroyed)

    def test_a_block_is_freed_in_the_name_of_the_stream_it_was_for(self):
        one, two = self.new_stream(), self.new_stream()
        with self.on(one):
            block = self.allocator.malloc(5 * MIB, 0)
        with self.on(two):
            self.allocator.free(block, 0)
        (free,) = [b for b in self.pool.blocks() if b.address == block]
        self.assertEqual((free.state, free.stream), (BlockState.FREE, one.ptr))

    def test_the_legacy_default_stream_has_one_name(self):
        with self.on(Named(1)):
            self.allocator.free(self.allocator.malloc(5 * MIB, 0), 0)
        self.assertEqual({b.stream for b in self.pool.blocks()}, {0})

    def test_the_per_thread_default_stream_is_refused(self):
        with self.on(Named(2)), self.assertRaisesRegex(cenote.Error, "PER_THREAD_DEFAULT_STREAM"):
            self.allocator.malloc(1, 0)

    def test_a_stream_lives_as_long_as_its_blocks_and_its_idle_memory_is_for_all(self):
        stream = self.new_stream()
        handle = stream.ptr
        with self.on(stream):
            block = self.allocator.malloc(60 * MIB, 0)
        del stream
        other = self.new_stream()
        with self.on(other):
            self.allocator.free(self.allocator.malloc(MIB, 0), 0)
        self.assertEqual((self.told, self.destroyed), ([], []))  # a block is still live
        self.allocator.free(block, 0)
        third = self.new_stream()
        with self.on(third):  # a new stream: now it is looked at
            block = self.allocator.malloc(60 * MIB, 0)
        self.assertEqual((self.told, self.destroyed), ([handle], [handle]))
        self.pool.verify()
        self.allocator.free(block, 0)

    def test_a_stream_that_the_program_holds_stays(self):
        streams = [self.new_stream() for _ in range(3)]
        for stream in streams * 2:
            with self.on(stream):
                self.allocator.free(self.allocator.malloc(MIB, 0), 0)
        self.assertEqual((self.told, self.destroyed), ([], []))

    def test_many_streams_in_turn_do_not_pile_up(self):
        for _ in range(50):
            with self.on(self.new_stream()):
                self.allocator.free(self.allocator.malloc(MIB, 0), 0)
        self.assertGreater(len(self.destroyed), 45)

    def test_arrays_in_cycles_are_collected_before_memory_runs_out(self):
        allocator = self.allocator

        class Array:
            def __init__(self, size):
                self.block = allocator.malloc(size, 0)
                self.me = self

            def __del__(self):
                allocator.free(self.block, 0)

        gc.collect()
        gc.disable()
        try:
            Array(40 * MIB)
            Array(40 * MIB)
        finally:
            gc.enable()
        self.assertEqual(self.pool.stats().blocks, 1)
        gc.collect()
        self.assertEqual(self.pool.stats().blocks, 0)

    def test_running_out_is_told(self):
        with self.assertRaisesRegex(cenote.OutOfMemoryError, "128.00 MiB"):
            self.allocator.malloc(128 * MIB, 0)

    def test_each_device_gets_a_pool_with_the_limit(self):
        allocator = Allocator(lambda: self.null, device="host:{}", limit=8 * MIB)
        self.assertEqual(allocator.pool(1).device.props.ordinal, 1)
        self.assertIs(allocator.pool(1), allocator.pool(1))
        with self.assertRaises(cenote.OutOfMemoryError):
            allocator.malloc(9 * MIB, 0)
        allocator.free(allocator.malloc(MIB, 0), 0)
        for device in (0, 1):
            allocator.pool(device).close()

    def test_threads_with_streams_of_their_own(self):
        failed = []

        def work(seed):
            chance = random.Random(seed)
            live = []
            try:
                with self.on(self.new_stream()):
                    for _ in range(400):
                        if live and chance.random() < 0.5:
                            self.allocator.free(live.pop(chance.randrange(len(live))), 0)
                        elif len(live) < 20:
                            live.append(self.allocator.malloc(chance.randrange(1, MIB // 2), 0))
                for block in live:
                    self.allocator.free(block, 0)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(self.pool.stats().blocks, 0)
        self.pool.verify()


@support.needs("cupy")
class WithCuPy(unittest.TestCase):
    def test_the_error_is_cupys_and_ours(self):
        import cupy
        from cenote.cupy import _errors

        cause = cenote.OutOfMemoryError("no room", -3, "CEN_ERR_DEVICE_MEMORY")
        error = _errors(cupy)(7, cause)
        for kind in (cupy.cuda.memory.OutOfMemoryError, cenote.OutOfMemoryError, MemoryError):
            self.assertIsInstance(error, kind)
        self.assertEqual((str(error), error.status), ("no room", -3))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again)), (cenote.OutOfMemoryError, "no room"))

    def test_enable_and_disable_set_cupys_allocator(self):
        import cupy

        before = cupy.cuda.get_allocator()
        for stream in ("current", "default"):
            cenote.cupy.enable(stream=stream)
            self.assertNotEqual(cupy.cuda.get_allocator(), before)
            cenote.cupy.disable()
            self.assertEqual(cupy.cuda.get_allocator(), before)
        with self.assertRaisesRegex(ValueError, "'mine'"):
            cenote.cupy.enable(stream="mine")
        self.assertEqual(cupy.cuda.get_allocator(), before)


if __name__ == "__main__":
    support.main()
