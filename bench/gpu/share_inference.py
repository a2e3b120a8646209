#!/usr/bin/env python3
"""Several processes that infer with one copy of the weights, beside a copy for each.

The model is a decoder like Llama 1B with random weights. Each process generates from the same prompt; all outputs, the
tokens and the keys and values of the last layer, have to be the same bit for bit. Memory is what the GPU has less free
than before, less what so many processes take that hold no weights. A copy of its own is read from a file in the page
cache. With a second GPU, a process there reads the first one's weights by peer mapping.

usage: CENOTE=build/cenote CENOTE_LIBRARY=build/libcenote.so.0.1 bench/gpu/share_inference.py [--readers 2,8] [--small]
Prints {"name", "figures", "outputs"}; exits with 1 if outputs differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

import share_common

SIZES = {False: (16, 2048, 32, 8, 8192, 32000), True: (2, 128, 4, 2, 256, 1000)}
TOKENS, PROMPT = 32, 64


def make(small, device):
    """With weights that depend on nothing but the seed."""
    import models
    import torch

    torch.manual_seed(1)
    with torch.device(device):
        model = models.Llama(*SIZES[small]).to(torch.bfloat16)
        return models.initialise(model).eval()


def generate(model, device):
    """A digest of what it says, and seconds."""
    import torch

    tokens = torch.arange(PROMPT, device=device).unsqueeze(0)
    digest, cache = hashlib.sha256(), None
    start = time.perf_counter()
    with torch.inference_mode():
        for _ in range(TOKENS):
            following, cache = model(tokens, cache)
            tokens = following.view(1, 1)
            digest.update(tokens.cpu().numpy().tobytes())
    for part in cache[-1]:
        digest.update(part.contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest(), time.perf_counter() - start


def reader(pipe, way, device, small, file):
    """way: shared, private (from the file), or none, which holds no weights."""
    import cenote.torch
    import models
    import torch

    torch.ones(16, 16, device=device).matmul(torch.ones(16, 16, device=device))
    model, lease = None, None
    if way != "none":
        with torch.device("meta"):
            model = models.Llama(*SIZES[small]).to(torch.bfloat16).eval()
    start = time.perf_counter()
    if way == "private":
        model.load_state_dict(torch.load(file, map_location=device), assign=True)
    elif way == "shared":
        lease = cenote.torch.open("llama", device=device)
        lease.load_into(model)
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    took = time.perf_counter() - start
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    pipe.send(("ready", took))
    if pipe.recv() == "go" and model is not None:
        pipe.send(generate(model, device))
        pipe.recv()


def used(device):
    import torch

    if not device.startswith("cuda"):
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def run(context, way, count, device, small, file, at=None):
    """So many readers at once: bytes that they take with their weights, digests, seconds to open."""
    at = at or device
    before, pipes, processes = used(device), [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=reader, args=(theirs, way, at, small, file))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    opened = [pipe.recv()[1] for pipe in pipes]
    took = used(device) - before
    for pipe in pipes:
        pipe.send("go")
    digests = [pipe.recv()[0] for pipe in pipes] if way != "none" else []
    for pipe in pipes:
        if way != "none":
            pipe.send("end")
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"a reader ended with {process.exitcode}")
    return took, digests, opened


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", default="2,8", help="how many processes at once")
    parser.add_argument("--small", action="store_true", help="a model for a test of this script")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    import torch

    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("share_inference: skipped: there is no GPU", flush=True)
        raise SystemExit(77)
    context = torch.multiprocessing.get_context("spawn")
    figures, outputs = [], {}
    with share_common.broker(), tempfile.TemporaryDirectory() as folder:
        import cenote.torch

        file = Path(folder) / "weights"

        start = used(options.device)
        model = make(options.small, options.device)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        outputs["this process"] = [generate(model, options.device)[0]]
        torch.save(model.state_dict(), file)
        export = cenote.torch.share(model.state_dict(), "llama")
        del model
        copy = used(options.device) - start
        for count in (int(n) for n in options.readers.split(",")):
            bare, _, _ = run(context, "none", count, options.device, options.small, file)
            shared, outputs[f"{count} shared"], opened = run(
                context, "shared", count, options.device, options.small, file)
            private, outputs[f"{count} private"], read = run(
                context, "private", count, options.device, options.small, file)
            gib = 1 << 30
            figures += [
                share_common.figure(
                    f"weights of {count} processes on one GPU", "GiB", [(shared - bare + copy) / gib],
                    "a copy for each", [(private - bare) / gib], floor=weights / gib,
                    floor_reason="one copy of the weights"),
                share_common.figure(
                    f"opening the model in each of {count} processes", "ms", [s * 1000 for s in opened],
                    "reading a copy of its own", [s * 1000 for s in read]),
            ]
        if options.device.startswith("cuda") and torch.cuda.device_count() > 1:
            _, outputs["shared, from a second GPU"], _ = run(
                context, "shared", 1, options.device, options.small, file, at="cuda:1")
        del export
    print(json.dumps({"name": "share_inference", "figures": figures, "outputs": outputs}, indent=1))
    digests = {digest for digests in outputs.values() for digest in digests}
    if len(digests) != 1:
        print(f"share_inference: {len(digests)} different outputs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
