#!/usr/bin/env python3
"""CUDA graphs and torch.compile under an allocator, and whether the results are PyTorch's to the bit.

Without --part each part runs under PyTorch's allocator and under the one named, each in a process of its own, and the
digests of weights and results are compared; exits with 1 if they differ or a part failed. Parts:
  graph            a training step captured once and replayed 1,000 times, while other blocks come and go beside it
  compile          a training step under torch.compile
  reduce-overhead  the same with torch.compile's CUDA graphs
A part that this machine cannot do, for want of a compiler, is skipped and said so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ALLOCATORS, choose_deterministic, enable, prepare, write_json

PARTS = ("graph", "compile", "reduce-overhead")
WIDTH = 1024


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="run this alone, here")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="those to compare")
    parser.add_argument("--allocator", choices=ALLOCATORS, default="cenote")
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=30, help="compiled steps")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to check the script")
    parser.add_argument("--timeout", type=float, default=200, metavar="SECONDS", help="for one part")
    parser.add_argument("--json", required=True, metavar="FILE", help="where the result goes")
    return parser.parse_args()


def digest(torch, tensors) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def network(torch, device: str):
    nn = torch.nn
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.LayerNorm(4 * WIDTH),
                         nn.Linear(4 * WIDTH, WIDTH)).to(device)


def replay_graph(torch, options: argparse.Namespace) -> list:
    """Captures a step of training, changes its input before each replay, and disturbs what lies beside it."""
    model = network(torch, "cuda")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    data = torch.Generator("cuda").manual_seed(2)
    x = torch.randn(256, WIDTH, generator=data, device="cuda")

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses, beside, sizes = [], [], random.Random(3)
    for number in range(options.replays):
        x.copy_(torch.randn(256, WIDTH, generator=data, device="cuda"))
        graph.replay()
        losses.append(loss.clone())
        beside.append(torch.full((sizes.randrange(1, 4 << 20),), float(number), device="cuda"))
        if len(beside) > 16:
            del beside[sizes.randrange(len(beside))]
        if number % 250 == 249:
            torch.cuda.empty_cache()
    return [torch.stack(losses), *model.parameters()]


def train_compiled(torch, options: argparse.Namespace) -> list:
    """Steps under torch.compile, with two batch sizes in turn."""
    model = network(torch, options.device)
    mode = {"compile": "default", "reduce-overhead": "reduce-overhead"}[options.part]
    compiled = torch.compile(model, mode=mode, dynamic=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator(options.device).manual_seed(2)
    losses = []
    for number in range(options.steps):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn((128, 256)[number % 2], WIDTH, generator=data, device=options.device)
        loss = (compiled(x) - x.flip(1)).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        losses.append(loss.detach().clone())
    return [torch.stack(losses), *model.parameters()]


def run_part(options: argparse.Namespace) -> int:
    prepare(options.allocator, deterministic=True)
    import torch

    if options.part == "graph" and options.device == "cpu":
        write_json(options.json, {"skipped": "a CUDA graph needs a GPU"})
        return 0
    with enable(options.allocator if options.device == "cuda" else "native"):
        choose_deterministic(torch)
        torch.manual_seed(1)
        try:
            results = (replay_graph if options.part == "graph" else train_compiled)(torch, options)
        except RuntimeError as error:
            # Without Triton or a C compiler, torch.compile ends with one of these words.
            if options.part == "graph" or not any(word in str(error) for word in ("TritonMissing", "InvalidCxxCompiler",
                                                                                  "Failed to find C compiler")):
                raise
            write_json(options.json, {"skipped": str(error).strip().split("\n", maxsplit=1)[0]})
            return 0
        write_json(options.json, {"part": options.part, "allocator": options.allocator, "loss": float(results[0][-1]),
                                  "digest": digest(torch, results)})
    return 0


def child(options: argparse.Namespace, part: str, allocator: str, folder: str) -> dict:
    path = Path(folder) / f"{part}-{allocator}.json"
    command = [sys.executable, __file__, "--part", part, "--allocator", allocator, "--json", str(path), "--device",
               options.device, "--replays", str(options.replays), "--steps", str(options.steps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"ended after {options.timeout:.0f} s"}
    if done.returncode or not path.exists():
        return {"error": f"status {done.returncode}: " + "\n".join(done.stderr.rstrip().split("\n")[-12:])}
    return json.loads(path.read_text())


def compare(options: argparse.Namespace) -> int:
    record, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            pair = {way: child(options, part, way, folder) for way in ("native", options.allocator)}
            if any("error" in one for one in pair.values()):
                verdict = "FAILED"
            elif any("skipped" in one for one in pair.values()):
                verdict = "skipped"
            else:
                verdict = "same bits" if len({one["digest"] for one in pair.values()}) == 1 else "DIFFERENT"
            failed |= verdict in ("FAILED", "DIFFERENT")
            record[part] = {"verdict": verdict, **pair}
            write_json(options.json, record)
            print(f"{part}: {verdict}")
            for way, one in pair.items():
                for key in ("error", "skipped"):
                    if key in one:
                        print(f"  {way}: {one[key]}")
    return 1 if failed else 0


def main() -> int:
    options = arguments()
    return run_part(options) if options.part else compare(options)


if __name__ == "__main__":
    sys.exit(main())
