#!/usr/bin/env python3
"""An independent reference for `cenote replay`: plain best fit over pages of one size.

A recorded history is placed as follows. Requests, rounded up to 512 bytes, go to one of two ranges of addresses:
below 1 MiB, or from there on. Each range is filled best fit (the smallest hole, at the lowest address among equals;
else at its end, together with a hole that ends there), and neighbouring holes join. A page of a range in which
anything lies must be backed: by itself if it still is from before, else by the page that has been idle longest, taken
from wherever it is (a remap), else by a new one. Pages never go back. Streams are ignored: a block can be used again
once its free has completed. Nothing is known ahead.

What it gives is a first-order bound of what a placement can reach at a page size, and the price: remaps, at COST_US
each. It shares no code with the pool.

usage: tools/placement_oracle.py [--json] SNAPSHOT...
"""

import bisect
import gzip
import json
import pickle
import sys
from collections import OrderedDict, namedtuple
from pathlib import Path

COST_US = 65  # unmap, map and access for one page: docs/design.md, "Decided", 3
PAGES_MIB = (2, 8, 32)
UNIT = 512
LARGE = 1 << 20

Call = namedtuple("Call", "allocates key size time_us")
Row = namedtuple("Row", "page_bytes utilization remaps_second_half driver_seconds_second_half recorded_seconds_second_half")


def calls_of(snapshot):
    """Yields (device, calls) for each device with a history; blocks older than it are allocated first."""
    for device, trace in enumerate(snapshot["device_traces"]):
        if not trace:
            continue
        before = {}
        for segment in snapshot["segments"]:
            if segment["device"] == device:
                before.update((block["address"], block["requested_size"]) for block in segment["blocks"]
                              if block["state"].startswith("active"))
        made = [e for e in trace if e["action"] in ("alloc", "free_completed")]
        for event in reversed(made):
            if event["action"] == "alloc":
                before.pop(event["addr"], None)
            else:
                before[event["addr"]] = event["size"]
        start = trace[0]["time_us"]
        calls = [Call(True, addr, size, start) for addr, size in before.items()]
        calls += [Call(e["action"] == "alloc", e["addr"], e["size"], e["time_us"]) for e in made]
        yield device, calls


class Backing:
    """The pages of a device, each known by where it is mapped: (range, number)."""

    def __init__(self, page_bytes):
        self.page_bytes = page_bytes
        self.users = {}
        self.idle = OrderedDict()
        self.made = self.remaps = 0

    def numbers(self, start, size):
        return range(start // self.page_bytes, (start + size - 1) // self.page_bytes + 1)

    def enter(self, where, start, size):
        for number in self.numbers(start, size):
            place = (where, number)
            self.users[place] = self.users.get(place, 0) + 1
            if self.users[place] > 1:
                continue
            if place in self.idle:
                self.idle.pop(place)
            elif self.idle:
                self.idle.popitem(last=False)
                self.remaps += 1
            else:
                self.made += 1

    def leave(self, where, start, size):
        for number in self.numbers(start, size):
            place = (where, number)
            self.users[place] -= 1
            if not self.users[place]:
                del self.users[place]
                self.idle[place] = None


class Range:
    """Holes of one range of addresses, by size and by both of their ends."""

    def __init__(self):
        self.holes, self.ends, self.sizes = {}, {}, []  # start -> size, end -> start, sorted (size, start)
        self.top = 0

    def add(self, start, size):
        self.holes[start] = size
        self.ends[start + size] = start
        bisect.insort(self.sizes, (size, start))

    def drop(self, start):
        size = self.holes.pop(start)
        del self.ends[start + size]
        del self.sizes[bisect.bisect_left(self.sizes, (size, start))]
        return size

    def place(self, size):
        at = bisect.bisect_left(self.sizes, (size, -1))
        if at < len(self.sizes):
            start = self.sizes[at][1]
            rest = self.drop(start) - size
            if rest:
                self.add(start + size, rest)
            return start
        start = self.ends.get(self.top, self.top)
        if start < self.top:
            self.drop(start)
        self.top = start + size
        return start

    def release(self, start, size):
        if start + size in self.holes:
            size += self.drop(start + size)
        if start in self.ends:
            before = self.ends[start]
            size += self.drop(before)
            start = before
        self.add(start, size)


def place(calls, page_bytes):
    """Places a history and returns its Row."""
    backing, ranges, blocks = Backing(page_bytes), (Range(), Range()), {}
    live = peak = remaps_before = 0
    middle = len(calls) // 2
    for number, call in enumerate(calls):
        if number == middle:
            remaps_before = backing.remaps
        if not call.size:
            continue
        if call.allocates:
            size = -(-call.size // UNIT) * UNIT
            which = int(size >= LARGE)
            start = ranges[which].place(size)
            backing.enter(which, start, size)
            blocks[call.key] = (which, start, size, call.size)
            live += call.size
            peak = max(peak, live)
        elif call.key in blocks:
            which, start, size, requested = blocks.pop(call.key)
            backing.leave(which, start, size)
            ranges[which].release(start, size)
            live -= requested
    remaps = backing.remaps - remaps_before
    return Row(page_bytes, peak / (backing.made * page_bytes), remaps, remaps * COST_US / 1e6,
               (calls[-1].time_us - calls[middle].time_us) / 1e6)


def load(path):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
        return pickle.load(file)


def rows_of(path):
    """{device: [Row of each page size]}"""
    return {device: [place(calls, mib << 20) for mib in PAGES_MIB] for device, calls in calls_of(load(path))}


def main():
    paths = [a for a in sys.argv[1:] if a != "--json"]
    if not paths:
        print(__doc__.split("\n\n")[-1].strip(), file=sys.stderr)
        return 2
    results = {path: rows_of(path) for path in paths}
    if "--json" in sys.argv[1:]:
        print(json.dumps({path: {device: [row._asdict() for row in rows] for device, rows in devices.items()}
                          for path, devices in results.items()}, indent=2))
        return 0
    for path, devices in results.items():
        for device, rows in devices.items():
            for row in rows:
                share = row.driver_seconds_second_half / row.recorded_seconds_second_half
                print(f"{Path(path).name:32s} device {device}  pages of {row.page_bytes >> 20:2d} MiB  utilisation "
                      f"{row.utilization:.3f}  second half: {row.remaps_second_half:6d} remaps, "
                      f"{row.driver_seconds_second_half:.3f} s, {share:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
