#!/usr/bin/env python3
"""Devices and pools from Python, on the host backend."""

import ctypes
import pickle
import threading
import unittest

import support
from support import MIB

import cenote
from cenote import BlockState, _lib


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.device = cenote.Device("host:0", capacity=64 * MIB)
        self.pool = cenote.Pool(self.device)

    def tearDown(self):
        self.pool.close()
        self.device.close()

    def test_device_says_what_it_is(self):
        props = self.device.props
        self.assertEqual((props.ordinal, props.total_bytes, props.vmm), (0, 64 * MIB, True))
        self.assertEqual(self.device.mem_info().total, 64 * MIB)
        self.assertGreaterEqual(cenote.device_count("host"), 1)

    def test_blocks_hold_what_is_put_in(self):
        stream = self.device.create_stream()
        block = self.pool.alloc(MIB, stream)
        back = ctypes.create_string_buffer(MIB)
        self.device.fill(block, 0x5A, MIB, stream)
        self.device.copy(ctypes.addressof(back), block, MIB, stream)
        self.device.synchronize(stream)
        self.assertEqual(back.raw, b"\x5a" * MIB)
        self.pool.free(block, stream)
        self.pool.release_stream(stream)
        self.device.destroy_stream(stream)

    def test_figures_follow_allocations(self):
        block = self.pool.alloc(5 * MIB)
        stats = self.pool.stats()
        self.assertEqual((stats.blocks, stats.requested_bytes), (1, 5 * MIB))
        self.assertLess(self.device.mem_info().free, 64 * MIB)
        live = [b for b in self.pool.blocks() if b.state is BlockState.LIVE]
        self.assertEqual([(b.address, b.requested_bytes) for b in live], [(block, 5 * MIB)])
        self.assertEqual(sum(b.bytes for b in self.pool.blocks()), stats.reserved_bytes)
        self.pool.free(block)
        self.assertEqual(self.pool.stats().requested_peak_bytes, 5 * MIB)
        self.pool.reset_peaks()
        self.assertEqual(self.pool.stats().requested_peak_bytes, 0)
        self.assertGreaterEqual(self.pool.trim(wait=True), 5 * MIB)
        self.assertEqual(self.device.mem_info().free, 64 * MIB)
        self.pool.verify()

    def test_nothing_is_no_block(self):
        self.assertEqual(self.pool.alloc(0), 0)
        self.pool.free(0)

    def test_running_out_says_how_much_of_what(self):
        held = self.pool.alloc(32 * MIB)
        with self.assertRaises(cenote.OutOfMemoryError) as caught:
            self.pool.alloc(48 * MIB)
        error = caught.exception
        self.assertIsInstance(error, MemoryError)
        self.assertEqual((error.status, error.name), (-3, "CEN_ERR_DEVICE_MEMORY"))
        self.assertIn("48.00 MiB", str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.status), (type(error), str(error), -3))
        self.pool.free(held)

    def test_limit_holds_and_can_be_lifted(self):
        with cenote.Pool(self.device, limit=8 * MIB) as small:
            with self.assertRaises(cenote.OutOfMemoryError):
                small.alloc(16 * MIB)
            small.set_limit(0)
            small.free(small.alloc(16 * MIB))

    def test_wrong_use_is_named(self):
        block = self.pool.alloc(1000)
        self.pool.free(block)
        with self.assertRaisesRegex(cenote.Error, "free already") as caught:
            self.pool.free(block)
        self.assertNotIsInstance(caught.exception, MemoryError)
        with self.assertRaisesRegex(cenote.Error, "no block of this pool"):
            self.pool.free(12345)
        with self.assertRaisesRegex(cenote.Error, "'card:0'"):
            cenote.Device("card:0")

    def test_arguments_that_are_none_are_refused(self):
        for size in (-1, "much", 1.5, True, 2**64):
            with self.assertRaisesRegex(ValueError, "size is"):
                self.pool.alloc(size)
        for sizes in ({"limit": -5}, {"preallocate": -1}):
            with self.assertRaises(ValueError):
                cenote.Pool("host:0", **sizes)
        with self.assertRaisesRegex(ValueError, "device is 0"):
            cenote.Pool(0)

    def test_what_is_closed_says_so(self):
        pool = cenote.Pool("host:0")
        pool.close()
        pool.close()
        self.assertTrue(pool.closed and pool.device.closed)
        with self.assertRaisesRegex(ValueError, "closed"):
            pool.alloc(1)
        with self.assertRaisesRegex(ValueError, "closed"):
            pool.device.mem_info()

    def test_a_pool_that_cannot_be_made_leaves_nothing(self):
        with self.assertRaises(cenote.OutOfMemoryError):
            cenote.Pool(self.device, preallocate=128 * MIB)
        self.assertEqual(self.device.mem_info().free, 64 * MIB)

    def test_capacity_is_for_host_devices(self):
        for name in ("cuda:0", "host:x"):
            with self.assertRaisesRegex(ValueError, name):
                cenote.Device(name, capacity=MIB)

    def test_a_failure_is_told_to_the_thread_it_was_on(self):
        said = {"cen_pool_free": [], "'card'": []}
        gate = threading.Barrier(2)

        def work(words, action):
            for _ in range(50):
                gate.wait()
                try:
                    action()
                except cenote.Error as error:
                    said[words].append(str(error))

        threads = [
            threading.Thread(target=work, args=("cen_pool_free", lambda: self.pool.free(777))),
            threading.Thread(target=work, args=("'card'", lambda: cenote.Device("card"))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for words, lines in said.items():
            self.assertEqual(len([line for line in lines if words in line]), 50)

    def test_an_old_message_is_not_told_again(self):
        with self.assertRaises(cenote.Error):
            self.pool.free(777)
        self.assertEqual(str(_lib.failure(-4)), "not ready")


if __name__ == "__main__":
    support.main()
