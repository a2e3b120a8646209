#!/usr/bin/env python3
"""Runs the benchmarks of the release build and files what they measured.

Each build/bench/bench_NAME and bench/bench_NAME.py prints {"name", "figures"}; machine, driver, commit and date are
added, and the result goes to bench/results/<machine>/<name>.json (docs/formats/bench-results.md). CENOTE_MACHINE names
the machine, "auto" by its GPU or processor; without it the folder is `local`, which git ignores and the page leaves out.
--from files what tools/gpu_run.sh or a runner of bench/gpu/ brought back instead, with CENOTE_MACHINE and CENOTE_DRIVER
saying where from.

usage: tools/bench.py [NAME...]
       tools/bench.py --from RESULTS.json
"""

import datetime
import json
import os
import re
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


def machine_name():
    """By GPU, else by processor: lower case, dashes."""
    name = output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not name:
        models = re.findall(r"^model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        name = models[0] if models else os.uname().machine
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def measurements(names):
    """Runs the benchmarks, by name if there are any, and yields what they print; None for one that failed."""
    built = [p for p in (ROOT / "build" / "bench").glob("bench_*") if os.access(p, os.X_OK)]
    programs = sorted(built + list((ROOT / "bench").glob("bench_*.py")), key=lambda p: p.stem)
    for program in programs:
        if names and program.stem[len("bench_"):] not in names:
            continue
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if done.returncode == 77:
            print(f"{program.name}: skipped, not possible on this machine")
        elif done.returncode != 0:
            print(f"{program.name}: failed with {done.returncode}", file=sys.stderr)
            yield None
        else:
            yield json.loads(done.stdout)


def add_peers(results, peers):
    """Puts what peers' programs measured of the same things beside the figures of the pool."""
    for figure in (f for r in results if r["name"] == "pool" for f in r["figures"]):
        for peer in peers:
            names = {figure["what"], figure["what"].removesuffix(", 1 thread")}
            for other in (f for f in peer["figures"] if f["what"] in names):
                figure.setdefault("also", []).append(
                    {"name": peer["peer"], "median": other["median"], "spread": other["spread"]})


def main():
    machine = os.environ.get("CENOTE_MACHINE", "local")
    machine = machine_name() if machine == "auto" else machine
    about = {
        "machine": machine,
        "driver": os.environ.get("CENOTE_DRIVER") or
                  output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "none",
        "commit": output_of("git", "describe", "--always", "--dirty") or "unknown",
        "date": datetime.date.today().isoformat(),
    }
    if sys.argv[1:2] == ["--from"]:
        brought = json.loads(Path(sys.argv[2]).read_text())
        results = [r for name, r in sorted(brought.items()) if name.startswith("bench_")]
        add_peers(results, [r for name, r in sorted(brought.items()) if name in ("peer_rmm", "peer_torch")])
    else:
        results = measurements(sys.argv[1:])
    failed = False
    for result in results:
        if result is None:
            failed = True
            continue
        path = ROOT / "bench" / "results" / machine / f"{result['name']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = {"about": result["about"]} if "about" in result else {}
        record = {"name": result["name"], **about, **text, "figures": result["figures"]}
        path.write_text(json.dumps(record, indent=2) + "\n")
        print(path.relative_to(ROOT))
    if machine != "local":
        subprocess.run([sys.executable, ROOT / "tools" / "make_benchmarks.py"], check=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
