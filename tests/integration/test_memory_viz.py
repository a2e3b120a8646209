#!/usr/bin/env python3
"""What PyTorch's own reader of snapshots makes of those that cenote writes.

Runs torch/cuda/_memory_viz.py, from an installed torch or as named by CENOTE_MEMORY_VIZ, on each
recording and on what `cenote convert` makes of it: its reports have to be the same. Exits with 77
where there is neither.

usage: test_memory_viz.py CENOTE DATA
"""

import gzip
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path


def find():
    """The file with PyTorch's reader, or None."""
    named = os.environ.get("CENOTE_MEMORY_VIZ")
    if named:
        return named
    spec = importlib.util.find_spec("torch")  # looks, and runs nothing
    if not spec or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "cuda/_memory_viz.py"
    return str(path) if path.exists() else None


def load(path):
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convert(cenote, source, target):
    subprocess.run([cenote, "convert", source, "-o", target], check=True)


def read(path):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
        return pickle.load(file)


def in_order(data):
    """cenote sorts segments by address."""
    data["segments"].sort(key=lambda segment: (segment["device"], segment["address"]))
    return data


def compare(viz, name, ours, theirs):
    """Each report of the module, with the flame graphs as the lines that they are drawn from."""
    reports = {
        "stats": viz.segsum,
        "trace": viz.trace,
        "segments": lambda data: viz.segments(data, format_flamegraph=str),
        "memory": lambda data: viz.memory(data, format_flamegraph=str),
    }
    for report, make in reports.items():
        if make(ours) != make(theirs):
            sys.exit(f"{name}: {report} differs from that of the recording")
    for plot in (viz.trace_plot, viz.segment_plot):
        if "snapshot.pickle" not in plot(ours):
            sys.exit(f"{name}: {plot.__name__} made nothing")


def run_commands(path, snapshot):
    """As a user runs it."""
    for command in ("stats", "trace"):
        done = subprocess.run([sys.executable, path, command, str(snapshot)], capture_output=True, text=True)
        if done.returncode or not done.stdout:
            sys.exit(f"{snapshot}: {command}: {done.stderr}")
    for command in ("trace_plot", "segment_plot"):
        page = snapshot.with_suffix(".html")
        subprocess.run([sys.executable, path, command, str(snapshot), "-o", str(page)], check=True)
        page.unlink()


def main():
    cenote, data = sys.argv[1:]
    path = find()
    if not path:
        print("skipped: torch is not installed, and CENOTE_MEMORY_VIZ does not name its _memory_viz.py")
        sys.exit(77)
    viz = load(path)
    recordings = sorted(Path(data).glob("traces/*.pickle.gz"))
    with tempfile.TemporaryDirectory() as folder:
        for recording in recordings:
            target = Path(folder) / recording.with_suffix("").name
            convert(cenote, recording, target)
            compare(viz, recording.name, read(target), in_order(read(recording)))
            if recording.stat().st_size < 10000:
                run_commands(path, target)
        log = Path(folder) / "rmm.pickle"  # a history without segments, and a failure without free bytes
        convert(cenote, Path(data) / "logs/rmm.csv", log)
        run_commands(path, log)
    print(f"{len(recordings)} recordings: every report is the same")


if __name__ == "__main__":
    main()
