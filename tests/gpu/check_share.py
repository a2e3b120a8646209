#!/usr/bin/env python3
"""cenote.torch.share, open and share_queues on a GPU: each check runs in a process of its own, with a
broker of its own.

usage: PYTHONPATH=python CENOTE=build-portable/cenote CENOTE_LIBRARY=build-portable/libcenote.so.0.1 \\
       tests/gpu/check_share.py [NAME...]
"""

import gc
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import time

from checks import Skip, check, main, raises

HEAD = "import os, sys, torch, cenote, cenote.torch\n"


class Broker:
    def __enter__(self):
        if "CENOTE" not in os.environ:
            raise Skip("CENOTE does not name the command, which serves")
        self.folder = tempfile.TemporaryDirectory()
        os.environ["CENOTE_BROKER"] = os.path.join(self.folder.name, "sock")
        self.start()
        return self

    def start(self):
        self.process = subprocess.Popen(
            [os.environ["CENOTE"], "serve", "--socket", os.environ["CENOTE_BROKER"]]
        )
        until(lambda: os.path.exists(os.environ["CENOTE_BROKER"]))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        self.kill()
        self.folder.cleanup()


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def program(text, *arguments, head=HEAD):
    """Another process that runs `text`; its stdout is read line by line."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", head + textwrap.dedent(text), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(text, *arguments, **options):
    child = program(text, *arguments, **options)
    out, _ = child.communicate(timeout=240)
    assert child.returncode == 0, (child.returncode, out)
    return out.strip()


def gpu():
    import torch

    if not torch.cuda.is_available():
        raise Skip("no GPU")
    return torch


def leases():
    import cenote

    return len(cenote.connect().list().leases)


def bits(torch, tensor):
    return tensor.contiguous().view(torch.uint8)


@check
def opens_bit_for_bit_in_another_process():
    torch = gpu()
    import cenote.torch

    with Broker():
        torch.manual_seed(1)
        made = {
            name: torch.randint(0, 255, (1 << 20,), dtype=torch.uint8, device="cuda").view(dtype)
            for name, dtype in cenote.torch._share._TYPES.items()
            if dtype is not torch.bool
        }
        made["transposed"] = torch.randn(1000, 700, device="cuda").t()
        made["gaps"] = torch.randn(1000, 700, device="cuda")[:, ::3]
        tied = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
        made.update(tied=tied, tied_too=tied.view(-1)[:100])
        cenote.torch.share(made, "bits")
        with tempfile.NamedTemporaryFile() as file:
            torch.save({k: bits(torch, v).cpu() for k, v in made.items()}, file.name)
            check = """
                want = torch.load(sys.argv[1])
                got = cenote.torch.open("bits")
                assert list(got) == list(want)
                for name, tensor in got.items():
                    assert tensor.is_cuda
                    assert torch.equal(tensor.contiguous().view(torch.uint8).cpu(), want[name]), name
                assert got["tied"].data_ptr() == got["tied_too"].data_ptr()
                assert got["transposed"].stride() == (1, 700)
                print("same")
            """
            for head in (HEAD, HEAD + "cenote.torch.enable()\n"):
                assert said(check, file.name, head=head) == "same"


@check
def shares_from_under_cenotes_allocator():
    torch = gpu()
    import cenote.torch

    cenote.torch.enable()
    with Broker():
        before = torch.cuda.memory_allocated()
        linear = torch.nn.Linear(4096, 4096, device="cuda")
        want = linear.weight.sum().item()
        export = cenote.torch.share(linear, "linear", into=True)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == before, torch.cuda.memory_allocated()
        assert linear.weight.data_ptr() == export.arrays["weight"].data_ptr()
        read = """
            other = torch.nn.Linear(4096, 4096, device="cuda")
            weights = cenote.torch.open("linear")
            weights.load_into(other)
            assert other.weight.data_ptr() == weights["weight"].data_ptr()
            other(torch.ones(2, 4096, device="cuda")).sum().backward()
            print(other.weight.sum().item())
        """
        assert float(said(read)) == want


@check
def orders_readers_behind_the_stream():
    torch = gpu()
    import cenote.torch

    with Broker():
        stream = torch.cuda.Stream()
        for i in range(1, 6):
            reader = program(f"print('up'); t = cenote.torch.open('x@{i}', wait=60); print(int((t != {i}).sum()))")
            assert reader.stdout.readline() == "up\n"
            with torch.cuda.stream(stream):
                tensor = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
                torch.cuda._sleep(500_000_000)
                tensor.fill_(i)
                cenote.torch.share(tensor, "x", keep_older=True)
            assert reader.communicate(timeout=120)[0] == "0\n"


@check
def arrays_for_whatever_reads_the_interface():
    torch = gpu()
    import cenote

    try:
        import numpy as np
    except ImportError:
        raise Skip("no NumPy") from None
    with Broker():
        data = np.arange(1000, dtype=np.float32).reshape(10, 100)
        export = cenote.share({"x": data}, "x", device="cuda:0", access="me+write")
        assert torch.equal(torch.as_tensor(export.arrays["x"], device="cuda").cpu(), torch.from_numpy(data))
        read = """
            view = cenote.open("x", "cuda:0", write=True)
            tensor = torch.as_tensor(view["x"], device="cuda")
            view.close()
            tensor[0, 0] = 99
            torch.cuda.synchronize()
            print(tensor.sum().item() == 499500 + 99)
        """
        assert said(read) == "True"
        assert torch.as_tensor(export.arrays["x"], device="cuda")[0, 0].item() == 99
        for module in ("cupy", "numba.cuda"):
            probe = f"""
                try:
                    import {module} as m
                except ImportError:
                    print("none"); sys.exit()
                view = cenote.open("x", "cuda:0")
                array = m.asarray(view["x"]) if "cupy" in sys.modules else m.as_cuda_array(view["x"]).copy_to_host()
                print(float(array[9, 99]))
            """
            assert said(probe) in ("none", "999.0")


@check
def producer_killed_three_generations():
    torch = gpu()
    import cenote.torch

    with Broker():
        produce = """
            torch.manual_seed(int(sys.argv[1]))
            weights = {f"layer{i}": torch.randn(1 << 20, device="cuda") for i in range(8)}
            cenote.torch.share(weights, "model")
            print(sum(float(w.double().sum()) for w in weights.values()))
            sys.stdin.read()
        """
        total = lambda t: sum(float(w.double().sum()) for w in t.values())
        kept = []
        for generation in range(3):
            producer = program(produce, str(generation))
            want = float(producer.stdout.readline())
            reader = program(
                "t = cenote.torch.open('model'); print('up'); sys.stdin.readline()\n"
                "print(sum(float(w.double().sum()) for w in t.values()))"
            )
            assert reader.stdout.readline() == "up\n"
            tensors = cenote.torch.open("model")
            producer.kill()
            producer.wait()
            out, _ = reader.communicate("\n", timeout=120)
            assert float(out) == want == total(tensors), (generation, out, want)
            kept.append((tensors, want))
        assert [total(t) for t, _ in kept] == [w for _, w in kept]
        tensors = None
        kept.clear()
        gc.collect()
        torch.cuda.synchronize()
        until(lambda: leases() == 0)
        until(lambda: not cenote.connect().list().sets)


@check
def readers_cannot_write():
    torch = gpu()
    import cenote.torch

    with Broker():
        tensor = torch.arange(1 << 20, device="cuda")
        cenote.torch.share(tensor, "closed")
        error = raises(cenote.Error, lambda: cenote.torch.open("closed", write=True))
        assert error.name == "CEN_ERR_PERMISSION", error
        wrote = said(
            """
            t = cenote.torch.open("closed")
            try:
                t.fill_(7)
                torch.cuda.synchronize()
                print("wrote")
            except Exception as error:
                print("refused")
            sys.stdout.flush()
            os._exit(0)
            """
        )
        assert wrote == "refused", wrote
        assert torch.equal(cenote.torch.open("closed"), torch.arange(1 << 20, device="cuda"))


def consume(inbox, outbox):
    import torch

    import cenote.torch

    cenote.torch.share_queues()
    while True:
        got = inbox.get()
        if got is None:
            return
        got += 1
        torch.cuda.synchronize()
        outbox.put(got.double().sum().item())
        del got


def produce(queue, count):
    import torch

    import cenote.torch

    cenote.torch.share_queues()
    for i in range(count):
        queue.put({"a": torch.full((1 << 20,), float(i), device="cuda"), "i": i})


def queues(enable):
    torch = gpu()
    import cenote.torch

    if enable:
        cenote.torch.enable()
    cenote.torch.share_queues()
    spawn = multiprocessing.get_context("spawn")
    with Broker():
        inbox, outbox = spawn.Queue(), spawn.Queue()
        child = spawn.Process(target=consume, args=(inbox, outbox))
        child.start()
        base = torch.zeros(1 << 20, device="cuda")
        view = base[10:]
        place = None
        for i in range(1, 21):
            inbox.put(base)
            assert outbox.get(timeout=120) == i * base.numel()
            assert place in (None, base.data_ptr())
            place = base.data_ptr()
        assert view.data_ptr() == place + 40 and float(view[5]) == 20
        inbox.put(None)
        child.join(120)
        assert child.exitcode == 0
        until(lambda: leases() == 0)
        queue = spawn.Queue()
        child = spawn.Process(target=produce, args=(queue, 50))
        child.start()
        child.join(120)  # it has ended before anything is read
        assert child.exitcode == 0
        for i in range(50):
            got = queue.get(timeout=120)
            assert torch.equal(got["a"], torch.full((1 << 20,), float(i), device="cuda")), i
        del got
        gc.collect()
        torch.cuda.synchronize()
        until(lambda: leases() == 0)


@check
def queues_with_torchs_allocator():
    queues(False)


@check
def queues_with_cenotes_allocator():
    queues(True)


@check
def the_brokers_end_takes_nothing():
    torch = gpu()
    import cenote.torch

    with Broker() as broker:
        cenote.torch.share(torch.arange(1000, device="cuda"), "x")
        there = cenote.torch.open("x")
        heard = []
        cenote.connect().on_notice = heard.append
        broker.kill()
        assert torch.equal(there.cpu(), torch.arange(1000))
        broker.start()
        until(lambda: [n for n in heard if n.kind == cenote.NoticeKind.BROKER_BACK])
        assert said("print(int(cenote.torch.open('x', wait=30).sum()))") == "499500"


@check
def ten_thousand_tensors():
    torch = gpu()
    import cenote.torch

    with Broker():
        weights = {f"model.layers.{i}.weight": torch.full((64, 64), i % 97, dtype=torch.bfloat16, device="cuda") for i in range(10000)}
        begin = time.perf_counter()
        cenote.torch.share(weights, "many")
        torch.cuda.synchronize()
        shared = time.perf_counter() - begin
        read = """
            import time
            torch.zeros(1, device="cuda")
            cenote.connect()
            cenote.torch.open("small")
            for _ in range(3):
                begin = time.perf_counter()
                got = cenote.torch.open("many")
                taken = time.perf_counter() - begin
            assert all(float(got[f"model.layers.{i}.weight"][63, 63]) == i % 97 for i in range(0, 10000, 501))
            print(f"{1e3 * taken:.1f}")
        """
        cenote.torch.share(torch.zeros(1, device="cuda"), "small")
        print(f"shared in {1e3 * shared:.1f} ms, opened in {said(read)} ms")


if __name__ == "__main__":
    main(__file__)
