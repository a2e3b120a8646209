#!/usr/bin/env python3
"""Numba's memory manager, as an installed Numba knows it, over a host device: no GPU is needed, since
the manager asks the context only to be current and to wait. On a GPU: tests/gpu/check_numba.py."""

import gc
import unittest

import support
from support import MIB

import cenote


class Card:
    id = 0


class Context:
    """What the manager uses of Numba's Context."""

    def __init__(self):
        self.device = Card()
        self.calls = []

    def push(self):
        self.calls.append("push")

    def synchronize(self):
        self.calls.append("synchronize")

    def pop(self):
        self.calls.append("pop")


WAITED = ["push", "synchronize", "pop"]


@support.needs("numba")
class Numba(unittest.TestCase):
    def setUp(self):
        from cenote import numba as face

        class Manager(face.CenoteMemoryManager):
            device = "host:{}"
            limit = 64 * MIB

        self.face, self.Manager = face, Manager
        self.context = Context()
        self.manager = Manager(context=self.context)
        self.manager.initialize()

    def tearDown(self):
        gc.collect()
        self.manager.reset()

    def blocks(self):
        return self.manager.pool.stats().blocks

    def test_memory_is_a_pointer_of_numbas(self):
        from numba import cuda

        memory = self.manager.memalloc(1000)
        self.assertIsInstance(memory, cuda.MemoryPointer)
        self.assertEqual((memory.size, memory.is_managed), (1000, True))
        address = memory.device_pointer_value
        live = [b.address for b in self.manager.pool.blocks() if b.requested_bytes == 1000]
        self.assertEqual(live, [address])
        self.assertEqual(memory.view(16, 48).device_pointer_value, address + 16)

    def test_freed_blocks_are_gathered_behind_one_wait(self):
        for _ in range(10):
            self.manager.memalloc(1000)
        self.assertEqual((self.blocks(), self.context.calls), (10, []))
        self.manager.memalloc(1000)
        self.assertEqual((self.blocks(), self.context.calls), (0, WAITED))

    def test_freed_bytes_are_gathered_up_to_a_share(self):
        self.manager.memalloc(14 * MIB)  # 0.2 of the limit are 12.8 MiB
        self.assertEqual((self.blocks(), self.context.calls), (0, WAITED))

    def test_one_stream_needs_no_wait(self):
        self.Manager.stream = "default"
        self.manager.memalloc(1000)
        self.assertEqual((self.blocks(), self.context.calls), (0, []))

    def test_nothing_is_freed_while_cleanup_is_deferred(self):
        with self.manager.defer_cleanup():
            for _ in range(30):
                self.manager.memalloc(MIB)
            self.manager.give_back()
            self.assertEqual((self.blocks(), self.context.calls), (30, []))
        self.manager.memalloc(1000)
        self.assertEqual((self.blocks(), self.context.calls), (0, WAITED))

    def test_gathered_blocks_serve_when_memory_runs_out(self):
        with self.manager.defer_cleanup():
            held = self.manager.memalloc(40 * MIB)
            del held
        self.assertEqual(self.blocks(), 1)
        memory = self.manager.memalloc(40 * MIB)
        self.assertEqual((self.blocks(), self.context.calls), (1, WAITED))
        with self.assertRaises(cenote.OutOfMemoryError):
            self.manager.memalloc(40 * MIB)
        del memory

    def test_a_wait_that_fails_frees_nothing(self):
        self.manager.memalloc(1000)

        def fail():
            raise RuntimeError("stream is capturing")

        self.context.synchronize = fail
        with self.assertRaisesRegex(RuntimeError, "capturing"):
            self.manager.give_back()
        self.assertEqual((self.blocks(), self.context.calls), (1, ["push", "pop"]))
        del self.context.synchronize
        self.manager.give_back()
        self.assertEqual(self.blocks(), 0)

    def test_memory_info_counts_idle_memory_as_free(self):
        free, total = self.manager.get_memory_info()
        self.assertEqual(free, 64 * MIB)
        memory = self.manager.memalloc(20 * MIB)
        self.assertLessEqual(self.manager.get_memory_info().free, 44 * MIB)
        del memory
        self.manager.give_back()
        self.assertEqual(self.manager.get_memory_info(), (free, total))

    def test_arrays_may_outlive_a_reset(self):
        memory = self.manager.memalloc(1000)
        pool = self.manager.pool
        self.manager.reset()
        self.assertTrue(pool.closed)
        del memory
        self.assertIsNot(self.manager.pool, pool)
        self.assertEqual(self.blocks(), 0)

    def test_ipc_is_refused_by_name(self):
        with self.assertRaisesRegex(NotImplementedError, "IPC"):
            self.manager.get_ipc_handle(self.manager.memalloc(1000))

    def test_numba_takes_the_manager(self):
        from numba.cuda.cudadrv import driver

        before = driver._memory_manager
        try:
            self.face.enable(stream="default", limit=MIB)
            self.assertIs(driver._memory_manager, self.face._numba_memory_manager)
            self.assertEqual(self.face.CenoteMemoryManager.limit, MIB)
            with self.assertRaisesRegex(ValueError, "'mine'"):
                self.face.enable(stream="mine")
        finally:
            driver._memory_manager = before
            self.face.CenoteMemoryManager.stream, self.face.CenoteMemoryManager.limit = "any", 0


if __name__ == "__main__":
    support.main()
