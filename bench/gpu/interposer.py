#!/usr/bin/env python3
"""What cudaMalloc and cudaFree cost a program under `cenote run --pool`, beside the same program bare.

Runs malloc_loop, and malloc_loop_static where it was built, each way in turn. Prints figures as tools/bench.py --from
takes them (docs/formats/bench-results.md): of each run the median of its pairs, and of those the median, lowest and
highest. Exits with 77 where malloc_loop has no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(command: list) -> dict:
    """The median of each figure of one process."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        if done.returncode != 77:
            print(f"interposer: {' '.join(map(str, command))}: status {done.returncode}", file=sys.stderr)
        sys.exit(done.returncode)
    return {figure["what"]: figure["median"] for figure in json.loads(done.stdout)["figures"]}


def measure(values: list) -> dict:
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def compare(program: Path, prefix: list, label: str, repeat: int) -> list:
    runs: dict = {"bare": [], "cenote": []}
    for number in range(repeat):
        for way in ("bare", "cenote") if number % 2 == 0 else ("cenote", "bare"):
            runs[way].append(run([*(prefix if way == "cenote" else []), program]))
    return [{"what": what + label, "unit": "us", **measure([r[what] for r in runs["cenote"]]),
             "peer": {"name": "the same program bare", **measure([r[what] for r in runs["bare"]])}}
            for what in runs["bare"][0]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build that has bench/malloc_loop (build)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (5)")
    parser.add_argument("prefix", nargs="*", help="instead of BUILD/cenote run --pool --, after --")
    options = parser.parse_args()
    prefix = options.prefix or [options.build / "cenote", "run", "--pool", "--"]
    figures = []
    for name, label in (("malloc_loop", ""), ("malloc_loop_static", ", runtime linked statically")):
        program = options.build / "bench" / name
        if program.exists():
            figures += compare(program, prefix, label, options.repeat)
    if not figures:
        print(f"interposer: no {options.build / 'bench' / 'malloc_loop'}: build it first", file=sys.stderr)
        return 1
    print(json.dumps({"bench_interposer": {"name": "interposer", "figures": figures}}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
