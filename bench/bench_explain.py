#!/usr/bin/env python3
"""What `cenote explain` takes for a snapshot of 60,000 events and for a pickle of 1 GB, beside Python's pickle.load.

Both files are grown from a recorded one by tools/grow_snapshot.py; the peer only loads what explain also diagnoses.
Prints {"name", "figures"} (docs/formats/bench-results.md). Each run is a process of its own: time is from its start to
its end for cenote and around pickle.load for the peer, memory the most that was resident.

usage: bench/bench_explain.py [PICKLE_BYTES]   SIZE of the large one, as grow_snapshot.py takes it (1G)
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CENOTE = ROOT / "build" / "cenote"
TRACES = ROOT / "tests" / "data" / "traces"
SMALL_SEED, LARGE_SEED = TRACES / "deferred.pickle.gz", TRACES / "gpt-oom.pickle.gz"
EVENTS = 60000
LOAD = "import pickle, sys, time; f = open(sys.argv[1], 'rb'); t = time.monotonic(); pickle.load(f); " \
       "print(time.monotonic() - t); sys.stdout.flush(); import os; os._exit(0)"


def grow(seed, path, size):
    """Writes a grown snapshot and returns how many events it has."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "grow_snapshot.py", seed, path, size],
                          capture_output=True, text=True, check=True)
    made, part, recorded = map(int, re.search(r"(\d+) repetitions of (\d+) events and (\d+) recorded", done.stdout).groups())
    return made * part + recorded


def grow_to_events(path, wanted):
    """A snapshot of about as many events: by the bytes that an event took at another size."""
    size = 8 << 20
    events = grow(SMALL_SEED, path, str(size))
    for _ in range(4):
        if abs(events - wanted) < wanted * 0.1:
            break
        size = max(int(size * wanted / events), 1 << 20)
        events = grow(SMALL_SEED, path, str(size))
    return events


def run(command):
    """(seconds, most resident bytes, standard output) of one process."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"bench_explain: {command[0]} failed")
        out.seek(0)
        return seconds, usage.ru_maxrss * 1024, out.read()


def measure(samples):
    return {"median": statistics.median(samples), "spread": [min(samples), max(samples)]}


def read_time(path):
    """What reading the file costs, from the page cache."""
    buffer, times = bytearray(1 << 20), []
    for _ in range(5):
        start = time.monotonic()
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        times.append(time.monotonic() - start)
    return min(times)


def compare(path, rounds):
    """Runs both in turn; ((time, peer's), (memory, peer's)) as measures."""
    own, peer = [], []
    for _ in range(rounds):
        own.append(run([CENOTE, "explain", path])[:2])
        _, resident, out = run([sys.executable, "-c", LOAD, path])
        peer.append((float(out), resident))
    return [(measure([s[i] for s in own]), measure([s[i] for s in peer])) for i in (0, 1)]


def figure(what, unit, scale, own, peer, target, floor=None):
    def scaled(m):
        return {"median": m["median"] / scale, "spread": [value / scale for value in m["spread"]]}
    bound = {"floor": floor / scale, "floor_reason": "reading the file from the page cache"} if floor else {}
    return {"what": what, "unit": unit, **scaled(own), "peer": {"name": "Python's pickle.load", **scaled(peer)}, **bound,
            "target": target}


def main():
    large = sys.argv[1] if len(sys.argv) > 1 else "1G"
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "grown.pickle")
        events = grow_to_events(path, EVENTS)
        (seconds, peer), _ = compare(path, 15)
        figures.append(figure(f"explain a snapshot of {round(events, -3):,} events", "ms", 1e-3, seconds, peer, 200,
                              read_time(path)))
        grow(LARGE_SEED, path, large)
        size = os.path.getsize(path)
        (seconds, peer), (resident, peer_resident) = compare(path, 5)
        name = f"explain a pickle of {size / (1 << 30):.2g} GiB"
        figures.append(figure(name, "s", 1, seconds, peer, 3, read_time(path)))
        figures.append(figure(f"{name}, most memory", "GB", 1e9, resident, peer_resident, 2))
    print(json.dumps({"name": "explain", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
