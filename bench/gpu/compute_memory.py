#!/usr/bin/env python3
"""Memory-bound kernels beside PyTorch's: runs bench_compute, then the same operations with torch.

Runs on one GPU with torch, or on the host without either (tiny sizes; no peer then, which shows that it works). The
figures of bench_compute get torch's as their peer, measured in the same way right after. Writes {"bench_compute": ...}
for tools/bench.py --from.

usage: bench/gpu/compute_memory.py [--build BUILD] [--device cuda:0|host] [--out results.json]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from common import ROOT, write_json

ROUNDS, EACH = 21, 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build whose bench_compute is run")
    parser.add_argument("--device", default="cuda:0", help="as cenote names it")
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    return parser.parse_args()


def torch_or_none(device):
    """torch, where there is a GPU for it; without one the figures have no peer."""
    if not device.startswith("cuda"):
        return None
    try:
        import torch
    except ImportError:
        print("compute_memory.py: no torch here: no peer is measured", file=sys.stderr)
        return None
    return torch


def peers(torch, device):
    """What torch calls each operation: name -> (x, y, row) -> call. Compiled ones are fused by torch itself."""
    f = torch.nn.functional

    def fused(x, y, row):
        compiled = torch.compile(lambda a, b: f.gelu(a + b, approximate="tanh"))
        return lambda: compiled(x, row)

    def backward(x, y, row):
        mean = x.float().mean(1, keepdim=True)
        rstd = (x.float().var(1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        mask = [True, True, True]
        shape = [x.shape[1]]
        return lambda: torch.ops.aten.native_layer_norm_backward(y, x, shape, mean, rstd, row, row, mask)

    return {
        "copy": lambda x, y, row: lambda: y.copy_(x),
        "add": lambda x, y, row: (lambda out: lambda: torch.add(x, y, out=out))(torch.empty_like(x)),
        "relu": lambda x, y, row: lambda: f.relu(x),
        "gelu": lambda x, y, row: lambda: f.gelu(x),
        "bias + gelu, one call each": lambda x, y, row: lambda: f.gelu(x + row, approximate="tanh"),
        "bias + gelu": fused,
        "sum of rows": lambda x, y, row: lambda: x.sum(1, dtype=torch.float32),
        "largest magnitude of rows": lambda x, y, row: lambda: torch.linalg.vector_norm(x, float("inf"), dim=1),
        "softmax": lambda x, y, row: lambda: torch.softmax(x, 1),
        "layer norm": lambda x, y, row: lambda: f.layer_norm(x, [x.shape[1]], row, row),
        "layer norm backward": backward,
        "cast to bf16": lambda x, y, row: lambda: x.to(torch.bfloat16),
        "cast to fp16": lambda x, y, row: lambda: x.to(torch.float16),
        "cast to fp32": lambda x, y, row: lambda: x.to(torch.float32),
        "transpose": lambda x, y, row: lambda: x.t().contiguous(),
    }


def measure(torch, call):
    """Microseconds of one call, of EACH behind each other between two events."""
    samples = []
    for _ in range(3):
        call()
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(EACH):
            call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end) * 1000 / EACH)
    return {"median": statistics.median(samples), "spread": [min(samples), max(samples)]}


def add_peer(torch, device, known, figure):
    found = re.fullmatch(r"(.*), (\w+), (\d+) x (\d+)", figure["what"])
    types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8,
             "fp64": torch.float64}
    make = known.get(found[1])
    if not make:
        return
    dtype, shape = types[found[2]], (int(found[3]), int(found[4]))
    x, y = ((torch.randn(shape, device=device) * 4).to(dtype) for _ in range(2))
    row = torch.randn(shape[1], device=device).to(dtype)
    name = "torch.compile" if found[1] == "bias + gelu" else "PyTorch"
    figure["peer"] = {"name": f"{name} {torch.__version__}", **measure(torch, make(x, y, row))}


def main():
    options = arguments()
    bench = options.build / "bench" / "bench_compute"
    if not bench.is_file():
        sys.exit(f"compute_memory.py: no {bench}: build it, or say --build")
    done = subprocess.run([bench, options.device], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"compute_memory.py: {bench} {options.device} failed with {done.returncode}")
    result = json.loads(done.stdout)
    torch = torch_or_none(options.device)
    if torch:
        known = peers(torch, options.device)
        with torch.inference_mode():
            for figure in result["figures"]:
                add_peer(torch, options.device, known, figure)
                torch.cuda.empty_cache()
    for figure in result["figures"]:
        peer = f"{figure['peer']['median']:10.1f}" if figure.get("peer") else " " * 10
        print(f"{figure['what']:58} {figure['median']:10.1f} us {peer} {figure['floor'] / figure['median'] * 100:6.1f}%")
    write_json(options.out, {"bench_compute": result})


if __name__ == "__main__":
    main()
