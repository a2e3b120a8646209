#!/usr/bin/env python3
"""Traces of this process, and explanations of recordings, from Python."""

import os
import tempfile
import threading
import unittest
from pathlib import Path

import support
from support import DATA, MIB

import cenote

OOM = DATA / "traces" / "gpt-oom.pickle.gz"
CAP = int(27.94 * 2**30)


class Explain(unittest.TestCase):
    def test_a_file_and_its_bytes_give_the_same(self):
        file = cenote.explain(OOM, cap=CAP)
        self.assertEqual(file.verdict, "fragmentation")
        self.assertEqual(file.json()["verdict"], "fragmentation")
        self.assertEqual(file.json()["cap_bytes"], CAP)
        self.assertIn(OOM.name, file.text)
        memory = cenote.explain(OOM.read_bytes(), cap=CAP)
        self.assertEqual((memory.verdict, memory.forecast), (file.verdict, file.forecast))
        self.assertEqual(str(memory).replace("<bytes>", OOM.name).split(), file.text.split())

    def test_a_message_in_a_text_is_found(self):
        message = (
            "epoch 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
            "a total capacity of 23.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this "
            "process has 22.00 GiB memory in use. Of the allocated memory 21.00 GiB is allocated by "
            "PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated.\n"
        )
        self.assertEqual(cenote.explain(message.encode()).verdict, "capacity")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "job.log"
            log.write_text(message)
            self.assertEqual(cenote.explain(str(log)).verdict, "capacity")

    def test_a_pipe_is_read_once(self):
        reader, writer = os.pipe()

        def feed():
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(OOM.read_bytes())

        thread = threading.Thread(target=feed, daemon=True)  # one that nobody reads from waits for ever
        thread.start()
        self.assertEqual(cenote.explain(f"/dev/fd/{reader}", cap=CAP).verdict, "fragmentation")
        thread.join()
        os.close(reader)

    def test_sizes_that_are_none_are_refused(self):
        for sizes in ({"cap": -1}, {"cap": 0}, {"cap": 1.5}, {"total": "80"}):
            with self.assertRaises(ValueError):
                cenote.explain(OOM, **sizes)

    def test_what_is_no_recording_is_named(self):
        with self.assertRaisesRegex(cenote.Error, "<bytes>"):
            cenote.explain(b"\x80\x04nonsense")
        with self.assertRaises(cenote.Error):
            cenote.explain(b"")
        with self.assertRaises(FileNotFoundError):
            cenote.explain("/nowhere/at/all")


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "run.trace"

    def tearDown(self):
        self.folder.cleanup()

    def test_what_a_pool_does_is_in_the_file(self):
        cenote.trace.start(self.path, stacks="none")
        with cenote.Device("host:0", capacity=64 * MIB) as device, cenote.Pool(device) as pool:
            blocks = [pool.alloc(MIB) for _ in range(20)]
            with cenote.trace.part("forward"):
                pool.free(blocks.pop())
            cenote.trace.step()
            with self.assertRaises(cenote.OutOfMemoryError):
                pool.alloc(60 * MIB)
            for block in blocks:
                pool.free(block)
        cenote.trace.flush()
        self.assertTrue(cenote.trace.stats().on)
        cenote.trace.stop()
        stats = cenote.trace.stats()
        self.assertFalse(stats.on)
        self.assertGreaterEqual(stats.events, 42)
        self.assertEqual(stats.bytes, self.path.stat().st_size)
        explanation = cenote.explain(self.path)
        self.assertEqual(explanation.verdict, "capacity")
        self.assertEqual(explanation.json()["failed"]["requested_bytes"], 60 * MIB)

    def test_marks_without_a_trace_do_nothing(self):
        cenote.trace.step()
        cenote.trace.mark("nobody")

    def test_wrong_use_is_named(self):
        with self.assertRaisesRegex(ValueError, "'some'"):
            cenote.trace.start(self.path, stacks="some")
        with self.assertRaisesRegex(cenote.Error, "/nowhere"):
            cenote.trace.start("/nowhere/at/all.trace")
        with self.assertRaises(cenote.Error):
            cenote.trace.stop()
        cenote.trace.start(self.path)
        with self.assertRaises(cenote.Error) as caught:
            cenote.trace.start(self.path)
        self.assertEqual(caught.exception.name, "CEN_ERR_BUSY")
        cenote.trace.stop()


if __name__ == "__main__":
    support.main()
