#!/usr/bin/env python3
"""Random shapes for some minutes under one allocator: is every byte still what was written, and is memory flat?

Blocks of 512 bytes to 1 GiB come and go on three streams. Each is filled with a number of its own, handed to other
streams now and then, and looked through when it goes: a block given out twice, or too early, shows there. In between, a
small network of random shape takes a step, whose loss is compared with the same step in float64 on the CPU.
Memory is flat if what is held, and the process's own memory, were no larger in the last quarter than in the second,
but for 5 %. Exits with 1 if a result was wrong, or under cenote if memory grew; another allocator's growth is reported.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from common import ALLOCATORS, enable, prepare, size, write_json

GROWTH = 1.05
STREAMS = 3
CHECK_EVERY, STEP_EVERY = 64, 200  # blocks


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="cenote")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--bytes", type=size, default=None, help="of blocks at once (20GiB; 64MiB on the CPU)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to check the script")
    parser.add_argument("--json", required=True, metavar="FILE", help="where the result goes")
    return parser.parse_args()


class Soak:
    def __init__(self, options: argparse.Namespace, torch):
        self.torch, self.device, self.gpu = torch, torch.device(options.device), options.device == "cuda"
        self.most = options.bytes or ((20 << 30) if self.gpu else (64 << 20))
        self.random = random.Random(options.seed)
        self.streams = [torch.cuda.Stream() if self.gpu else None for _ in range(STREAMS)]
        self.live: list[tuple] = []  # (tensor, its number, its stream)
        self.held = self.blocks = self.steps = 0
        self.wrong = [torch.zeros((), dtype=torch.int64, device=self.device) for _ in range(STREAMS)]
        self.bad: list[str] = []
        self.samples: list[tuple] = []  # (seconds, bytes held, the process's own memory)
        if self.gpu:
            torch.cuda.synchronize()

    def add(self) -> None:
        largest = min(30.0, (self.most // 8).bit_length() - 1)
        count = int(2 ** self.random.uniform(9, largest)) // 4
        number, stream = self.random.randrange(1 << 30), self.random.randrange(STREAMS)
        with self.torch.cuda.stream(self.streams[stream]):
            tensor = self.torch.empty(count, dtype=self.torch.int32, device=self.device).fill_(number)
        self.live.append((tensor, number, stream))
        self.held += 4 * count
        self.blocks += 1

    def remove(self) -> None:
        """Looks a block through, on its own stream or on another, and lets it go at once: nothing waits for the GPU."""
        tensor, number, stream = self.live.pop(self.random.randrange(len(self.live)))
        reader = self.random.randrange(STREAMS)
        if self.gpu and reader != stream:
            self.streams[reader].wait_stream(self.streams[stream])
            tensor.record_stream(self.streams[reader])
        with self.torch.cuda.stream(self.streams[reader]):
            self.wrong[reader] += (tensor != number).sum()
        self.held -= 4 * tensor.numel()

    def step(self) -> None:
        """A step of a small network, beside the same in float64 on the CPU."""
        torch = self.torch
        rows, inputs, inner = (self.random.randint(8, most) for most in (2048, 256, 1024))
        data = torch.Generator().manual_seed(self.random.randrange(1 << 30))
        x, up, down = (torch.randn(shape, generator=data, dtype=torch.float64) / shape[0] ** 0.5
                       for shape in ((rows, inputs), (inputs, inner), (inner, 1)))
        losses, slopes = [], []
        for device, kind in ((torch.device("cpu"), torch.float64), (self.device, torch.float32)):
            a = up.to(device, kind).detach().requires_grad_()
            loss = (torch.tanh(x.to(device, kind) @ a) @ down.to(device, kind)).square().sum()
            loss.backward()
            losses.append(loss.item())
            slopes.append(a.grad.double().cpu())
        self.steps += 1
        slope = (slopes[0] - slopes[1]).norm() / slopes[0].norm()
        if not (abs(losses[0] - losses[1]) <= 1e-3 * abs(losses[0]) and slope <= 1e-3):
            self.bad.append(f"step {self.steps}: loss {losses[1]} for {losses[0]}, gradient apart by {slope:.1e}")

    def sample(self, seconds: float) -> None:
        reserved = self.torch.cuda.memory_reserved() if self.gpu else 0
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.samples.append((seconds, reserved, resident))

    def check(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()
        count = sum(int(wrong) for wrong in self.wrong)
        if count:
            self.bad.append(f"by block {self.blocks}: {count} numbers not as written")
            for wrong in self.wrong:
                wrong.zero_()

    def run(self, seconds: float) -> None:
        start = time.monotonic()
        while (now := time.monotonic() - start) < seconds and len(self.bad) < 10:
            self.add()
            while self.held > self.most or (self.live and self.random.random() < 0.3):
                self.remove()
            if self.blocks % CHECK_EVERY == 0:
                self.check()
                self.sample(now)
            if self.blocks % STEP_EVERY == 0:
                self.step()
        while self.live:
            self.remove()
        self.check()


def growth(samples: list, seconds: float, column: int) -> float | None:
    """The most of the last quarter over the most of the second; None where there is nothing to compare."""
    def most(first, last):
        return max((s[column] for s in samples if first * seconds <= s[0] < last * seconds), default=0)
    before, after = most(0.25, 0.5), most(0.75, 1)
    return after / before if before and after else None


def main() -> int:
    options = arguments()
    prepare(options.allocator)
    import torch

    with enable(options.allocator if options.device == "cuda" else "native"):
        soak = Soak(options, torch)
        soak.run(options.minutes * 60)
    ends = {"held": growth(soak.samples, options.minutes * 60, 1), "process": growth(soak.samples, options.minutes * 60, 2)}
    flat = all(ratio is None or ratio <= GROWTH for ratio in ends.values())
    write_json(options.json, {"allocator": options.allocator, "device": options.device, "seed": options.seed,
                              "minutes": options.minutes, "blocks": soak.blocks, "steps": soak.steps, "wrong": soak.bad,
                              "growth": ends, "flat": flat, "most_held": max((s[1] for s in soak.samples), default=0),
                              "samples": soak.samples})
    print(f"{options.allocator}: {soak.blocks} blocks, {soak.steps} steps, {len(soak.bad)} wrong, "
          f"memory {'flat' if flat else 'grew'}: {ends}")
    for line in soak.bad:
        print(line)
    return 1 if soak.bad or (not flat and options.allocator in ("cenote", "mempool")) else 0


if __name__ == "__main__":
    sys.exit(main())
