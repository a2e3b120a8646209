#!/usr/bin/env python3
"""Tensors shared between processes: CPU tensors on the host backend, over a broker that the test starts.
tests/gpu/check_share.py does the same on a GPU."""

import copy
import gc
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import support
from support import until

try:
    import torch

    WHY = ""
except ImportError as error:
    torch = None
    WHY = f"torch cannot be imported here: {error}"

if torch is not None:
    import cenote
    import cenote.torch
    from cenote.torch import _queues


def model():
    torch.manual_seed(5)
    made = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False))
    made[1].weight = made[0].weight
    made.register_buffer("count", torch.tensor(3))
    return made


class Writer:
    """An argument of a process that keeps a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


def add_one(writer, queue):
    """Runs in a child: writes to what it got, and sends something of its own."""
    import cenote.torch

    cenote.torch.share_queues(cpu=True)
    writer.tensor += 1
    own = torch.full((4,), 9.0)
    queue.put({"own": own, "tail": own[2:]})


def echo(inbox, outbox):
    """Runs in a child: says what it gets until None comes."""
    kept = []
    while True:
        got = inbox.get()
        if got is None:
            return
        kept.append(got)
        outbox.put((type(got).__name__, got.dtype, tuple(got.shape), got.stride(), got.requires_grad, got.tolist()))


def produce_and_end(queue):
    import cenote.torch

    cenote.torch.share_queues(cpu=True)
    for i in range(20):
        queue.put(torch.full((1000,), float(i)))


@unittest.skipUnless(torch is not None, WHY)
class TorchShare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = support.Broker()
        os.environ["PYTHONPATH"] = str(support.PACKAGE)
        cls.cache = tempfile.TemporaryDirectory()
        os.environ.setdefault("CENOTE_CACHE", cls.cache.name)

    @classmethod
    def tearDownClass(cls):
        gc.collect()
        cls.broker.close()
        cls.cache.cleanup()

    def said(self, program, *arguments):
        head = "import sys, torch, cenote, cenote.torch\n"
        done = subprocess.run(
            [sys.executable, "-u", "-c", head + textwrap.dedent(program), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def leases(self):
        return len(cenote.connect().list().leases)

    # ---- by name ----

    def test_a_tensor_of_every_type(self):
        for name, dtype in sorted(cenote.torch._share._TYPES.items()):
            with self.subTest(name):
                tensor = torch.arange(32, dtype=torch.uint8).view(dtype).reshape(-1, 1)
                with cenote.torch.share(tensor, "one") as export:
                    there = cenote.torch.open("one", "cpu")
                    self.assertEqual((there.dtype, there.shape), (tensor.dtype, tensor.shape))
                    for bits in (there, export.array):
                        self.assertTrue(torch.equal(bits.view(torch.uint8), tensor.view(torch.uint8)))

    def test_layouts(self):
        base = torch.arange(24.0).reshape(2, 3, 4)
        given = {
            "whole": base,
            "permuted": base.permute(2, 0, 1),
            "gaps": base[:, :, ::2],
            "expanded": torch.ones(1).expand(1000),
            "scalar": torch.tensor(5),
            "empty": torch.empty(0, 3),
            "conj": torch.tensor([1 + 2j]).conj(),
            "apart": torch.zeros(3),
        }
        with cenote.torch.share(given, "layouts"):
            there = cenote.torch.open("layouts")
            self.assertEqual(list(there), list(there))
            for name, tensor in given.items():
                self.assertTrue(torch.equal(there[name], tensor), name)
            self.assertEqual(there["permuted"].stride(), given["permuted"].stride())
            self.assertEqual(there["expanded"].stride(), (0,))
            self.assertTrue(there["gaps"].is_contiguous())
            storages = lambda *names: {there[n].untyped_storage().data_ptr() for n in names}
            self.assertEqual(len(storages("whole", "permuted")), 1)
            self.assertEqual(len(storages("whole", "gaps", "apart", "scalar")), 4)
            self.assertEqual(there["apart"].untyped_storage().nbytes(), 12)

    def test_ten_thousand(self):
        shapes = [(3,), (4, 2), (), (1, 5)]
        types = [torch.float32, torch.bfloat16, torch.int64, torch.uint8]
        given = {f"\u00e4{i}": torch.full(shapes[i % 4], i % 200, dtype=types[i // 4 % 4]) for i in range(10000)}
        given["tied"] = given["\u00e477"]
        given["part"] = given["\u00e476"][1:]
        with cenote.torch.share(given, "many") as export:
            there = cenote.torch.open("many")
            for seen in (there, export.arrays):
                self.assertEqual(list(seen), list(given))
                for name, tensor in given.items():
                    self.assertEqual(seen[name].dtype, tensor.dtype, name)
                    self.assertTrue(torch.equal(seen[name], tensor), name)
            places = {t.untyped_storage().data_ptr(): t for t in there.values()}
            self.assertEqual(len(places), 10000)
            self.assertEqual(there["tied"].data_ptr(), there["\u00e477"].data_ptr())
            self.assertEqual(
                there["part"].untyped_storage().data_ptr(), there["\u00e476"].untyped_storage().data_ptr()
            )

    def test_tensors_have_storages_of_their_own(self):
        given = {"a": torch.ones(1000), "b": torch.zeros(5, dtype=torch.int64), "c": torch.ones(3)}
        with cenote.torch.share(given, "own") as export:
            there = cenote.torch.open("own")
            for seen in (there, export.arrays):
                for name, tensor in seen.items():
                    self.assertEqual(tensor.storage_offset(), 0)
                    self.assertEqual(tensor.untyped_storage().nbytes(), tensor.nbytes)
            file = io.BytesIO()
            torch.save(dict(there), file)  # refuses storages that are read as two types
            self.assertLess(len(file.getvalue()), 10000)
            file.seek(0)
            again = torch.load(file)
            for name, tensor in given.items():
                self.assertTrue(torch.equal(again[name], tensor), name)
            self.assertEqual(copy.deepcopy(there["c"]).untyped_storage().nbytes(), 12)

    def test_views_of_other_types_stay_where_they_were(self):
        raw = torch.zeros(64, dtype=torch.uint8)
        given = {"bytes": raw[1:40], "floats": raw[4:20].view(torch.float32)}
        with cenote.torch.share(given, "mixed", access="me+write"):
            there = cenote.torch.open("mixed", write=True)
            there["floats"][0] = 1.0
            self.assertEqual(there["bytes"][3:7].tolist(), [0, 0, 128, 63])

    def test_a_module_and_tied_weights(self):
        given = model()
        with cenote.torch.share(given, "model"):
            there = cenote.torch.open("model")
            self.assertIsInstance(there, cenote.torch.Tensors)
            self.assertEqual((there.name, there.version), ("model", 1))
            self.assertEqual(there["0.weight"].data_ptr(), there["1.weight"].data_ptr())
            other = model()
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.zero_()
            there.load_into(other)
            self.assertIs(other[0].weight, other[1].weight)
            self.assertEqual(other[0].weight.data_ptr(), there["0.weight"].data_ptr())
            self.assertTrue(other[0].weight.requires_grad)
            x = torch.ones(1, 8)
            self.assertTrue(torch.equal(other(x), given(x)))

    def test_into_leaves_no_second_copy(self):
        given = model()
        before = given(torch.ones(1, 8)).detach()
        with cenote.torch.share(given, "model", into=True, access="me+write") as export:
            self.assertEqual(given[0].weight.data_ptr(), export.arrays["0.weight"].data_ptr())
            self.assertEqual(given[1].weight.data_ptr(), export.arrays["0.weight"].data_ptr())
            self.assertTrue(torch.equal(given(torch.ones(1, 8)), before))
            self.said("cenote.torch.open('model', write=True)['count'].fill_(77)")
            self.assertEqual(int(given.count), 77)
        self.assertTrue(torch.equal(given(torch.ones(1, 8)), before))  # still there

    def test_a_publisher_that_ends_leaves_what_is_open(self):
        publisher = subprocess.Popen(
            [sys.executable, "-u", "-c", "import sys, torch, cenote.torch\ncenote.torch.share("
             "torch.arange(1000), 'mortal')\nprint('up')\nsys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(publisher.stdout.readline(), b"up\n")
        there = cenote.torch.open("mortal")
        publisher.kill()
        publisher.communicate()
        self.assertTrue(torch.equal(there, torch.arange(1000)))

    def test_the_lease_ends_with_the_last_storage(self):
        with cenote.torch.share({"a": torch.ones(3), "b": torch.ones(3)}, "two"):
            there = cenote.torch.open("two")
            kept = there["b"][1:]
            del there
            gc.collect()
            self.assertEqual((self.leases(), kept.tolist()), (1, [1.0, 1.0]))
            del kept
            self.assertTrue(until(lambda: self.leases() == 0))

    def test_writing_to_what_is_read_only_is_a_fault(self):
        with cenote.torch.share(torch.zeros(3), "closed"):
            program = "t = cenote.torch.open('closed'); print('up', flush=True); t.fill_(1)"
            head = "import torch, cenote.torch\n"
            done = subprocess.run([sys.executable, "-c", head + program], stdout=subprocess.PIPE)
            self.assertEqual((done.stdout, done.returncode), (b"up\n", -11))

    def test_what_cannot_be_shared_is_named(self):
        for bad in ({}, {"x": 5}, torch.ones(2, 2).to_sparse(), torch.empty(2, device="meta")):
            self.assertRaises(ValueError, cenote.torch.share, bad, "bad")
        with self.assertRaisesRegex(ValueError, "'a' on cpu, 'b' on meta"):
            cenote.torch.share({"a": torch.ones(1), "b": torch.ones(1, device="meta")}, "bad")

    def test_numpys_arrays_are_read_as_tensors(self):
        with cenote.share({"x": bytearray(b"abc")}, "bytes"):
            self.assertEqual(cenote.torch.open("bytes")["x"].tolist(), [97, 98, 99])

    # ---- by queue ----

    def queue_processes(self):
        try:
            cenote.torch.share_queues(cpu=True)
        except cenote.torch.BuildError as error:
            self.skipTest(f"the shim cannot be built here: {str(error).splitlines()[0]}")
        return multiprocessing.get_context("spawn")

    def test_queues_carry_what_torch_does(self):
        spawn = self.queue_processes()
        inbox, outbox = spawn.Queue(), spawn.Queue()
        child = spawn.Process(target=echo, args=(inbox, outbox))
        child.start()
        base = torch.arange(24.0).reshape(4, 6)
        parameter = torch.nn.Parameter(torch.ones(3))
        sent = [
            base,
            base[1:, ::2],
            base.t(),
            torch.zeros(0, 4),
            torch.tensor(7, dtype=torch.bfloat16),
            parameter,
            torch.ones(2).requires_grad_(),
            torch.tensor([1 + 2j]).conj(),
        ]
        for tensor in sent:
            inbox.put(tensor)
        for tensor in sent:
            expected = (type(tensor).__name__, tensor.dtype, tuple(tensor.shape), tensor.stride())
            got = outbox.get(timeout=60)
            self.assertEqual(got, (*expected, tensor.requires_grad, tensor.tolist()))
        inbox.put(None)
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        self.assertTrue(until(lambda: self.leases() == 0))

    def test_memory_is_one_and_all_views_follow(self):
        spawn = self.queue_processes()
        queue = spawn.Queue()
        base = torch.zeros(6)
        view = base[3:]
        child = spawn.Process(target=add_one, args=(Writer(view), queue))
        child.start()
        got = queue.get(timeout=60)
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        self.assertEqual((base.tolist(), view.tolist()), ([0, 0, 0, 1, 1, 1], [1, 1, 1]))
        self.assertEqual((got["own"].tolist(), got["tail"].tolist()), ([9] * 4, [9] * 2))
        got["own"][3] = 1
        self.assertEqual(got["tail"].tolist(), [9, 1])
        self.assertIs(got["own"].untyped_storage(), got["tail"].untyped_storage())
        with self.assertRaisesRegex(RuntimeError, "clone"):
            multiprocessing.reduction.ForkingPickler.dumps(got["own"])

    def test_the_sender_may_end_at_once(self):
        spawn = self.queue_processes()
        queue = spawn.Queue()
        child = spawn.Process(target=produce_and_end, args=(queue,))
        child.start()
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        for i in range(20):
            self.assertEqual(queue.get(timeout=60).tolist(), [float(i)] * 1000)
        self.assertTrue(until(lambda: not self.share_sets()))

    def share_sets(self):
        gc.collect()
        mine = os.getpid()
        return [s for s in cenote.connect().list().sets if s.publisher_pid != mine]

    def test_one_moving_and_no_copy_after(self):
        self.queue_processes()
        tensor = torch.arange(10)
        self.assertIs(cenote.torch.share_memory_(tensor), tensor)
        place = tensor.data_ptr()
        dumps, loads = multiprocessing.reduction.ForkingPickler.dumps, multiprocessing.reduction.ForkingPickler.loads
        first, second = bytes(dumps(tensor)), bytes(dumps(tensor[2:]))
        self.assertEqual(tensor.data_ptr(), place)
        again = loads(first)  # the sender may be the receiver
        self.assertTrue(torch.equal(again, tensor))
        kept = loads(second)
        again[2] = 99
        self.assertEqual(int(kept[0]), 99)
        self.assertEqual(int(tensor[2]), 99)
        del again, kept
        self.assertTrue(until(lambda: self.leases() == 0))  # what is open may be opened again
        with self.assertRaises(cenote.Error):
            loads(first)

    def test_what_is_dropped_is_used_again(self):
        self.queue_processes()
        dumps, loads = multiprocessing.reduction.ForkingPickler.dumps, multiprocessing.reduction.ForkingPickler.loads
        size = 48 << 20  # two do not fit into a set
        for i in range(6):
            tensor = torch.full((size,), i, dtype=torch.uint8)
            data = bytes(dumps(tensor))
            del tensor
            got = loads(data)
            self.assertEqual(int(got[-1]), i)
            del got
            held = lambda: sum(s.bytes for s in cenote.connect().list().sets)
            self.assertTrue(until(lambda: held() <= 2 * _queues.SET_BYTES), held())

    def test_sets_go_with_what_was_in_them(self):
        self.queue_processes()
        dumps, loads = multiprocessing.reduction.ForkingPickler.dumps, multiprocessing.reduction.ForkingPickler.loads
        held = lambda: sum(s.bytes for s in cenote.connect().list().sets)
        tensors = [torch.ones(_queues.SET_BYTES, dtype=torch.uint8) for _ in range(3)]
        data = [bytes(dumps(tensor)) for tensor in tensors]
        self.assertGreaterEqual(held(), 3 * _queues.SET_BYTES)
        del tensors
        got = [loads(one) for one in data]  # the parcels hold it until here, and these now
        self.assertEqual([int(one[-1]) for one in got], [1] * 3)
        del got
        self.assertTrue(until(lambda: held() <= _queues.SET_BYTES), held())

    def test_results_of_autograd_are_refused(self):
        self.queue_processes()
        with self.assertRaisesRegex(RuntimeError, "detach"):
            multiprocessing.reduction.ForkingPickler.dumps(torch.ones(1, requires_grad=True) * 2)

    def test_the_shim_needs_a_compiler_and_says_so(self):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "CENOTE_CACHE": cache, "CXX": "/nowhere/c++"}
            program = "import cenote.torch\ntry: cenote.torch.share_queues()\nexcept cenote.torch.BuildError as e: print(e)"
            done = subprocess.run(
                [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
            )
        self.assertIn("no C++ compiler: /nowhere/c++", done.stdout)


if __name__ == "__main__":
    support.main()
