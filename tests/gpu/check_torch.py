#!/usr/bin/env python3
"""cenote.torch on a GPU: each check runs in a process of its own, with cenote enabled before CUDA.

usage: PYTHONPATH=python CENOTE_LIBRARY=build-portable/libcenote.so.0.1 tests/gpu/check_torch.py [NAME...]

With CENOTE naming the command, snapshots are read by it too.
"""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from checks import Skip, check, main, raises


def start(**options):
    import torch

    import cenote.torch

    cenote.torch.enable(**options)
    return torch


def two_devices(torch):
    if torch.cuda.device_count() < 2:
        raise Skip("one GPU only")


@check
def allocates_and_frees():
    torch = start()
    assert torch.cuda.memory_allocated() == 0
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    assert torch.cuda.memory_allocated() == 4 << 20, torch.cuda.memory_allocated()
    assert torch.cuda.memory_reserved() >= 4 << 20
    y = (x * 2).cpu()
    assert torch.equal(y, torch.arange(1 << 20, dtype=torch.float32) * 2)
    del x
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() >= 8 << 20
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.empty(0, device="cuda").data_ptr() == 0


@check
def statistics_and_summary():
    torch = start()
    keep = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 513, 3 << 20, 700 << 20)]
    stats = torch.cuda.memory_stats()
    requested = 1 + 513 + (3 << 20) + (700 << 20)
    assert stats["requested_bytes.all.current"] == requested
    assert stats["requested_bytes.small_pool.current"] == 514
    assert stats["allocated_bytes.all.current"] == 512 + 1024 + (703 << 20)
    assert stats["allocation.all.current"] == 4
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
    assert "cenote" not in torch.cuda.memory_summary()[:40]
    assert torch.cuda.get_allocator_backend() is not None
    del keep
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.freed"] == 0


@check
def snapshot_has_torchs_schema():
    torch = start()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    gone = torch.empty(9 << 20, dtype=torch.uint8, device="cuda")
    del gone
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(file)
        with open(file, "rb") as f:
            snapshot = pickle.load(f)
        from torch.cuda import _memory_viz

        assert _memory_viz.segsum(snapshot)
        assert _memory_viz.trace_plot(snapshot)
        binary = os.environ.get("CENOTE")
        if binary:
            subprocess.run([binary, "explain", file], check=True, stdout=subprocess.DEVNULL)
    actions = [e["action"] for e in snapshot["device_traces"][0]]
    assert actions == ["alloc", "alloc", "free_requested", "free_completed"], actions
    frames = snapshot["device_traces"][0][0]["frames"]
    assert any(f["filename"].endswith("check_torch.py") for f in frames), frames[:4]
    live = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert [b["requested_size"] for b in live] == [5 << 20], live
    assert any(f["filename"].endswith("check_torch.py") for f in live[0]["frames"])
    for s in snapshot["segments"]:
        assert s["total_size"] == sum(b["size"] for b in s["blocks"])
    assert kept.numel()


@check
def streams_do_not_mix():
    torch = start()
    streams = [torch.cuda.Stream() for _ in range(4)]
    generator = torch.Generator().manual_seed(1)
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    queue = []
    for i in range(3000):
        s = streams[i % 4]
        with torch.cuda.stream(s):
            n = int(torch.randint(1, 1 << 20, (), generator=generator))
            x = torch.full((n,), i, device="cuda", dtype=torch.int32)
            if i % 7 == 0:
                torch.cuda._sleep(20000)
            queue.append((x, i, s, torch.cuda.Event()))
            queue[-1][3].record(s)
        if len(queue) > 12:
            y, value, made, event = queue.pop(int(torch.randint(0, len(queue), (), generator=generator)))
            user = streams[(i + 1) % 4]
            with torch.cuda.stream(user):
                user.wait_event(event)
                bad = (y != value).sum()
                y.record_stream(user)
                bad.record_stream(torch.cuda.default_stream())
                torch.cuda.default_stream().wait_stream(user)
            wrong += bad
            del y
    torch.cuda.synchronize()
    assert wrong.item() == 0, wrong.item()


@check
def graph_replays():
    torch = start()
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    x = torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=graph.pool()):
        z = model(x) + 1
    churn = []
    for i in range(1000):
        x.copy_(torch.randn(64, 512, device="cuda"))
        graph.replay()
        if i % 50 == 0:
            churn = [torch.empty((i % 97 + 1) << 18, device="cuda").fill_(float("nan")) for _ in range(3)]
            expected = model(x)
            assert torch.equal(y, expected), i
            other.replay()
            assert torch.equal(z, expected + 1), i
    del churn, graph, other, y, z
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@check
def compiles_reduce_overhead():
    torch = start()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
    step = torch.compile(model, mode="reduce-overhead")
    for i in range(12):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(32, 256, device="cuda")
        out = step(x)
        loss = out.square().mean()
        loss.backward()
        expected = model(x).square().mean()
        assert torch.allclose(loss, expected, rtol=1e-3), (i, loss.item(), expected.item())
        for p in model.parameters():
            p.grad = None


@check
def compiles_default():
    torch = start()

    def f(x):
        return (x.sin() * x.cos()).sum(dim=1)

    x = torch.randn(1000, 1000, device="cuda")
    assert torch.allclose(torch.compile(f)(x), f(x), atol=1e-3)


@check
def cudnn_benchmark():
    torch = start()
    torch.backends.cudnn.benchmark = True
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    x = torch.randn(8, 16, 64, 64, device="cuda", requires_grad=True)
    conv(x).sum().backward()
    torch.cuda.synchronize()


@check
def out_of_memory_says_why():
    torch = start(limit=1 << 30)
    kept = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for _ in range(9)]
    text = str(raises(torch.OutOfMemoryError, lambda: torch.empty(400 << 20, dtype=torch.uint8, device="cuda")))
    assert text.startswith("CUDA out of memory. Tried to allocate 400.00 MiB"), text
    assert "CAPACITY" in text and "check_torch.py" in text, text
    print(text)
    del kept
    assert torch.empty(900 << 20, dtype=torch.uint8, device="cuda").numel()
    assert torch.cuda.memory_stats()["num_ooms"] == 1


@check
def memory_fraction():
    torch = start()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.01)
    raises(torch.OutOfMemoryError, lambda: torch.empty(int(total * 0.011), dtype=torch.uint8, device="cuda"))
    assert torch.empty(int(total * 0.008), dtype=torch.uint8, device="cuda").numel()
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda").numel()


@check
def mempools():
    torch = start()
    mempool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(mempool):
        x = torch.full((1 << 20,), 3.0, device="cuda")
    y = torch.full((1 << 20,), 4.0, device="cuda")
    assert mempool.use_count() == 1, mempool.use_count()
    segments = mempool.snapshot()
    assert sum(s["allocated_size"] for s in segments) >= 4 << 20, segments
    assert (x.sum() + y.sum()).item() == 7 * (1 << 20)
    del x
    del mempool
    torch.cuda.empty_cache()
    assert y.sum().item() == 4 * (1 << 20)


@check
def beneath_a_mempool():
    import torch

    import cenote.torch

    torch.empty(1, device="cuda")  # CUDA is in use already, and torch's own allocator stays
    with cenote.torch.pool() as mempool:
        x = torch.randn(1 << 22, device="cuda")
        del x
        x = torch.ones(1 << 22, device="cuda")
    assert x.sum().item() == 1 << 22
    assert mempool.snapshot()
    assert not cenote.torch.enabled()


@check
def foreign_mempool_is_left_alone():
    torch = start()
    source = """
    #include <cuda_runtime_api.h>
    #include <sys/types.h>
    extern "C" { int calls;
    void *own_alloc(ssize_t size, int device, cudaStream_t) { void *p = 0; calls++; cudaMalloc(&p, size); return p; }
    void own_free(void *p, ssize_t, int, cudaStream_t) { cudaFree(p); } int own_calls() { return calls; } }
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "own.cpp"
        file.write_text(source)
        target = str(file.with_suffix(".so"))
        subprocess.run(["g++", "-shared", "-fPIC", "-I/usr/local/cuda/include", str(file), "-o", target,
                        "-L/usr/local/cuda/lib64", "-lcudart"], check=True)
        import ctypes

        own = ctypes.CDLL(target)
        allocator = torch.cuda.memory.CUDAPluggableAllocator(target, "own_alloc", "own_free")
        mempool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(mempool):
            x = torch.ones(1 << 22, device="cuda")
        y = torch.ones(1 << 22, device="cuda")
        assert own.own_calls() == 1, own.own_calls()
        assert (x + y).sum().item() == 2 << 22
        x.record_stream(torch.cuda.Stream())
        del x, mempool
        torch.cuda.synchronize()


@check
def refuses_after_initialisation():
    import torch

    import cenote.torch

    torch.empty(1, device="cuda")
    assert "restart the kernel" in str(raises(RuntimeError, cenote.torch.enable))


@check
def sharing_is_refused_by_name():
    torch = start()
    x = torch.ones(10, device="cuda")
    error = str(raises(RuntimeError, x.untyped_storage()._share_cuda_))
    assert "cenote" in error and "another process" in error, error


@check
def forked_children_are_safe():
    torch = start()
    x = torch.ones(1 << 20, device="cuda")
    child = os.fork()
    if child == 0:
        del x
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert x.sum().item() == 1 << 20


@check
def spawned_children_work():
    code = "import torch, cenote.torch; cenote.torch.enable(); print(torch.ones(7, device='cuda').sum().item())"
    start()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7.0", done


@check
def many_threads():
    torch = start()
    errors = []

    def work(seed):
        try:
            g = torch.Generator().manual_seed(seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for i in range(500):
                    n = int(torch.randint(1, 1 << 18, (), generator=g))
                    x = torch.full((n,), seed, device="cuda", dtype=torch.int32)
                    if i % 100 == 0:
                        assert (x == seed).all().item()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors


@check
def trains_like_native():
    code = """
import os, sys, torch
if sys.argv[1] == "cenote":
    import cenote.torch; cenote.torch.enable()
torch.manual_seed(0); torch.use_deterministic_algorithms(True)
m = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.ReLU(), torch.nn.Linear(700, 10)).cuda()
o = torch.optim.AdamW(m.parameters())
for i in range(30):
    x = torch.randn(100 + 7 * i, 300, device="cuda")
    loss = m(x).logsumexp(1).mean(); loss.backward(); o.step(); o.zero_grad()
print(loss.item().hex(), [p.double().sum().item().hex() for p in m.parameters()])
"""
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    outputs = [subprocess.run([sys.executable, "-c", code, way], capture_output=True, text=True,
                              check=True, env=env).stdout for way in ("native", "cenote")]
    assert outputs[0] == outputs[1], outputs


@check
def observers_and_annotations():
    torch = start(limit=256 << 20)
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a))
    raises(torch.OutOfMemoryError, lambda: torch.empty(1 << 30, device="cuda"))
    assert len(seen) == 1 and seen[0][1] == 4 << 30, seen


@check
def peers_copy_and_reach():
    torch = start()
    two_devices(torch)
    a = torch.randn(2048, 2048, device="cuda:0")
    b = a.to("cuda:1")
    assert torch.equal(a.cpu(), b.cpu())
    c = torch.empty(2048, 2048, device="cuda:1")
    c.t().copy_(a)  # a copy by a kernel that reaches over
    assert torch.equal(c.t().cpu(), a.cpu())
    assert torch.cuda.memory_allocated(1) == 32 << 20


@check
def data_parallel_with_nccl():
    import torch

    two_devices(torch)
    script = """
import os, torch, cenote.torch
cenote.torch.enable()
import torch.distributed as dist
rank = int(os.environ["RANK"]); torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_ids=[rank])
o = torch.optim.SGD(m.parameters(), lr=0.01)
torch.manual_seed(rank)
for i in range(20):
    m(torch.randn(64 + i, 1024, device="cuda")).square().mean().backward(); o.step(); o.zero_grad()
s = torch.stack([p.double().sum() for p in m.parameters()]); t = s.clone()
dist.all_reduce(t); assert torch.allclose(t, 2 * s), (t, s)
dist.destroy_process_group(); print("done")
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ddp.py"
        file.write_text(script)
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                               "--standalone", str(file)], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.count("done") == 2, done.stdout + done.stderr[-3000:]


@check
def pairs_are_printed():
    """What a pair of calls costs, for the reader: nothing is asserted."""
    torch = start()
    for n in (512, 1 << 20, 64 << 20):
        for _ in range(2):
            begun = time.perf_counter()
            for _ in range(20000):
                torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(n))
            spent = (time.perf_counter() - begun) / 20000
        print(f"{n}: {spent * 1e6:.2f} us a pair from Python")


if __name__ == "__main__":
    main(os.path.abspath(__file__))
