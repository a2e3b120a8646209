#!/usr/bin/env python3
"""Opening tensors of another process: cenote.torch.share and open beside torch.multiprocessing.

A reader, a process of its own, times how it opens what comes: for torch, rebuilding tensors from a message that has
been received already, for cenote, cenote.torch.open. Contents are checked after each timing.

usage: CENOTE=build/cenote CENOTE_LIBRARY=build/libcenote.so.0.1 bench/gpu/share_torch.py [--device cpu] [--runs N]
Prints {"name", "figures"} as docs/formats/bench-results.md has them.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import time

import share_common

TENSORS = 10000
NEXT = 50
EACH = 128  # floats of a small tensor
LARGE = 5 << 20  # floats of one with an allocation of its own


def value(i):
    return float(i % 1000 + 1)


def check(tensors):
    """Each is filled with its own number."""
    for i, tensor in enumerate(tensors):
        assert tensor[0].item() == value(i) and tensor[-1].item() == value(i), f"tensor {i} holds others"


def timed(call):
    start = time.perf_counter()
    result = call()
    return (time.perf_counter() - start) * 1e6, result


def reader(pipe, device):
    """Answers each order with microseconds: those of the first and the others, or of all."""
    import cenote.torch
    import torch

    if device == "cuda":
        torch.ones(1, device=device)
    torch.multiprocessing.set_sharing_strategy("file_system")
    while True:
        what, argument = pipe.recv()
        if what == "end":
            return
        times, opened = [], []
        if what == "torch":
            messages = [pipe.recv_bytes() for _ in range(argument)]
            for message in messages:
                us, tensor = timed(lambda message=message: pickle.loads(message))
                times.append(us)
                opened += tensor if isinstance(tensor, list) else [tensor]
        else:
            for name in argument:
                us, got = timed(lambda name=name: cenote.torch.open(name, device=device))
                times.append(us)
                opened += got.values() if isinstance(got, dict) else [got]
        check(opened)
        del opened
        if what == "torch":
            del tensor
        else:
            del got
        pipe.send(times)


def by_torch(pipe, objects):
    """Sends them as a queue of torch.multiprocessing would; the reader's times."""
    from multiprocessing.reduction import ForkingPickler

    pipe.send(("torch", len(objects)))
    for thing in objects:
        pipe.send_bytes(bytes(ForkingPickler.dumps(thing)))
    return pipe.recv()


def by_cenote(pipe, names):
    pipe.send(("cenote", names))
    return pipe.recv()


def measure(pipe, device, runs):
    import cenote.torch
    import torch

    def tensor(i, size):
        return torch.full((size,), value(i), device=device)

    first, later, all_of = ([], []), ([], []), ([], [])
    for run in range(runs):
        large = [tensor(i, LARGE) for i in range(NEXT)]
        times = by_torch(pipe, large)
        first[1].append(times[0])
        later[1].append(share_common.middle(times[1:])["median"])
        # Each is a set of its own, and has to be mapped.
        shared = [cenote.torch.share(t, f"large-{run}-{i}") for i, t in enumerate(large)]
        times = by_cenote(pipe, [f"large-{run}-{i}" for i in range(NEXT)])
        first[0].append(times[0])
        later[0].append(share_common.middle(times[1:])["median"])
        del large, shared
        small = [tensor(i, EACH) for i in range(TENSORS)]
        all_of[1].append(by_torch(pipe, [small])[0] / 1000)
        shared = cenote.torch.share({f"tensor.{i}": t for i, t in enumerate(small)}, f"small-{run}")
        all_of[0].append(by_cenote(pipe, [f"small-{run}"])[0] / 1000)
        del small, shared
    peer = "torch.multiprocessing"
    return [
        share_common.figure("open a tensor of 20 MiB, the first", "us", first[0], peer, first[1]),
        share_common.figure("open a tensor of 20 MiB, each of further ones", "us", later[0], peer, later[1]),
        share_common.figure("open 10,000 tensors", "ms", all_of[0], peer, all_of[1]),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    import torch

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.device == "cuda" and not torch.cuda.is_available():
        print("share_torch: skipped: there is no GPU", flush=True)
        raise SystemExit(77)
    torch.multiprocessing.set_sharing_strategy("file_system")
    context = torch.multiprocessing.get_context("spawn")
    with share_common.broker():
        ours, theirs = context.Pipe()
        process = context.Process(target=reader, args=(theirs, options.device))
        process.start()
        theirs.close()
        figures = measure(ours, options.device, options.runs)
        ours.send(("end", None))
        process.join()
    print(json.dumps({"name": "share_torch", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
