#!/usr/bin/env python3
"""Runs the benchmarks of the release build and files what they measured.

Each build/bench/bench_NAME prints {"name", "figures"}; machine, driver, commit and date are added, and
the result goes to bench/results/<machine>/NAME.json (docs/formats/bench-results.md). CENOTE_MACHINE
names the machine; without it the folder is `local`, which git ignores and the page leaves out.

usage: tools/bench.py [NAME...]
"""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def output_of(*command):
    """The first line that a command prints; empty if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        return ""
    lines = done.stdout.split("\n")
    return lines[0].strip()


def main():
    machine = os.environ.get("CENOTE_MACHINE", "local")
    programs = sorted(p for p in (ROOT / "build" / "bench").glob("bench_*") if os.access(p, os.X_OK))
    if sys.argv[1:]:
        programs = [p for p in programs if p.name[len("bench_"):] in sys.argv[1:]]
    if not programs:
        print("no benchmarks built: bench/bench_*.c is where they belong")
        return 0
    about = {
        "machine": machine,
        "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "none",
        "commit": output_of("git", "describe", "--always", "--dirty") or "unknown",
        "date": datetime.date.today().isoformat(),
    }
    failed = False
    for program in programs:
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if done.returncode == 77:
            print(f"{program.name}: skipped, not possible on this machine")
            continue
        if done.returncode != 0:
            print(f"{program.name}: failed with {done.returncode}", file=sys.stderr)
            failed = True
            continue
        result = json.loads(done.stdout)
        path = ROOT / "bench" / "results" / machine / f"{result['name']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"name": result["name"], **about, "figures": result["figures"]}
        path.write_text(json.dumps(record, indent=2) + "\n")
        print(path.relative_to(ROOT))
    if machine != "local":
        subprocess.run([sys.executable, ROOT / "tools" / "make_benchmarks.py"], check=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
