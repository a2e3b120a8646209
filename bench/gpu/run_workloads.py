#!/usr/bin/env python3
"""Measures the workloads under PyTorch's allocator, the same with expandable segments, and cenote.

Each run is a process of its own and has the GPU to itself; only the next one's import of torch goes on beside it. The
order of the allocators changes from workload to workload. Then the same runs under a cap, a little above what the
workload's tensors ask for in its native run. With --largest, instead: the largest batch that trains under a cap.

The results are written after each run. A file that is there already is continued: what it has is run again
only where it failed, so that a second call does what the first had no time for. tools/bench.py --from files the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import FURTHER, WAYS, WORKLOADS, size, write_json
from figures import ABOUT, figures, outcome, table

HERE = Path(__file__).resolve().parent
LEAST = 20  # seconds that must be left of the budget for another run


def listed(known: tuple):
    def parse(text: str) -> list:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return names
    return parse


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=listed(WORKLOADS + FURTHER), default=list(WORKLOADS), metavar="A,B")
    parser.add_argument("--allocators", type=listed(WAYS), default=list(WAYS), metavar="A,B")
    parser.add_argument("--kinds", type=listed(("plain", "capped")), default=["plain", "capped"], metavar="A,B")
    parser.add_argument("--largest", type=listed(WORKLOADS), metavar="A,B", help="the largest batch of these, instead")
    parser.add_argument("--largest-cap", type=size, default=size("24GiB"), metavar="BYTES")
    parser.add_argument("--cap-factor", type=float, default=1.02, help="the cap over what tensors ask for (1.02)")
    parser.add_argument("--repeat", type=int, default=1, metavar="R", help="plain runs of each")
    parser.add_argument("--budget", type=float, default=570, metavar="SECONDS", help="for everything (570)")
    parser.add_argument("--timeout", type=float, default=90, metavar="SECONDS", help="for one run (90)")
    parser.add_argument("--out", type=Path, default=Path("results.json"), metavar="FILE")
    parser.add_argument("--steps", type=int, help="instead of each workload's own")
    parser.add_argument("--warm-up", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to check the scripts")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    return parser.parse_args()


def plan(options: argparse.Namespace) -> list:
    """(kind, workload, allocator, repeat) of all runs, in order."""
    ways = options.allocators

    def rotated(kind, names, repeat):
        return [(kind, name, ways[(place + i + repeat) % len(ways)], repeat)
                for i, name in enumerate(names) for place in range(len(ways))]

    if options.largest:
        return rotated("largest", options.largest, 0)
    jobs = []
    if "plain" in options.kinds:
        jobs += [job for repeat in range(options.repeat) for job in rotated("plain", options.workloads, repeat)]
    if "capped" in options.kinds:
        jobs += rotated("capped", options.workloads, 0)
    return jobs


class Child:
    """A process that has imported torch, or is about to, and waits to be let go."""

    def __init__(self, job: tuple, cap: int | None, options: argparse.Namespace, folder: Path):
        self.job, self.cap = job, cap
        kind, workload, way, repeat = job
        stem = folder / f"{kind}-{workload}-{way}-{repeat}"
        self.json, self.log = stem.with_suffix(".json"), stem.with_suffix(".log")
        command = [options.python, str(HERE / "workload.py"), workload, "--allocator", way, "--json", str(self.json),
                   "--seed", str(options.seed), "--device", options.device, "--gated"]
        command += ["--cap", str(cap)] if cap else []
        command += ["--largest"] if kind == "largest" else []
        command += ["--steps", str(options.steps)] if options.steps else []
        command += ["--warm-up", str(options.warm_up)] if options.warm_up is not None else []
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
                                            text=True)

    def finish(self, timeout: float) -> dict:
        """Lets it go and waits; what it recorded, whatever became of it."""
        start = time.monotonic()
        error = None
        try:
            self.process.communicate("go\n", timeout=timeout)
        except subprocess.TimeoutExpired:
            self.abandon()
            error = f"ended after {timeout:.0f} s"
        except BrokenPipeError:
            self.process.wait()
        kind, workload, way, repeat = self.job
        run = {"workload": workload, "allocator": way, "cap": self.cap}
        if self.json.exists():
            run = json.loads(self.json.read_text())
        # Out of memory ends with 0: another status after it is a crash on the way out.
        if self.process.returncode and not error and (run.get("oom") or not run.get("error")):
            said = self.log.read_text(errors="replace").split("\n")
            error = f"status {self.process.returncode}: " + "\n".join(said[-15:])
        if error:
            run |= {"finished": False, "oom": False, "error": error}
        return {"kind": kind, "repeat": repeat, **run, "process_s": time.monotonic() - start}

    def abandon(self) -> None:
        self.process.kill()
        self.process.wait()


class Runner:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        before = json.loads(options.out.read_text())["runs"] if options.out.exists() else []
        self.runs = [r for r in before if r.get("finished") or r.get("oom")]
        self.deadline = time.monotonic() + options.budget
        have = {(r["kind"], r["workload"], r["allocator"], r["repeat"]) for r in self.runs}
        self.jobs = [job for job in plan(options) if job not in have]
        self.skipped: list[tuple] = []

    def cap(self, job: tuple) -> int | None:
        """The cap of a job that has one; None also while the native run that it follows from is missing."""
        if job[0] == "largest":
            return self.options.largest_cap
        for run in self.runs:
            if (run["kind"], run["workload"], run["allocator"]) == ("plain", job[1], "native") and run.get("peak_requested"):
                return int(run["peak_requested"] * self.options.cap_factor)
        return None

    def start_next(self) -> Child | None:
        """Starts the first job if all it needs is known."""
        if not self.jobs:
            return None
        cap = None if self.jobs[0][0] == "plain" else self.cap(self.jobs[0])
        if cap is None and self.jobs[0][0] == "capped":
            return None
        return Child(self.jobs.pop(0), cap, self.options, self.folder)

    def save(self) -> None:
        found = figures(self.runs)
        record = {"bench_workloads": {"name": "workloads", "about": ABOUT, "figures": found}} if found else {}
        write_json(self.options.out, {**record, "runs": self.runs})

    def run(self) -> None:
        child = None
        while self.jobs or child:
            left = self.deadline - time.monotonic()
            if left < LEAST:
                break
            child = child or self.start_next()
            if not child:
                self.skipped.append(self.jobs.pop(0))
                continue
            following = self.start_next()
            run = child.finish(min(self.options.timeout, left))
            self.runs.append(run)
            self.save()
            print(f"{run['kind']} {run['workload']} {run['allocator']}: {outcome(run)}, {run['process_s']:.1f} s",
                  flush=True)
            child = following
        if child:
            child.abandon()
            self.jobs.insert(0, child.job)


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options, Path(folder))
        runner.run()
    print(f"\n{table(runner.runs)}\n")
    for run in runner.runs:
        if run.get("error") and not run.get("oom"):
            print(f"{run['kind']} {run['workload']} {run['allocator']}: {run['error'].rstrip()}\n")
    for what, jobs in (("no cap known, as the native run is missing", runner.skipped), ("no time left", runner.jobs)):
        for kind, workload, way, _ in jobs:
            print(f"not run: {kind} {workload} {way}: {what}")
    failed = any(not run.get("finished") and not run.get("oom") for run in runner.runs)
    return 1 if failed or runner.skipped or runner.jobs else 0


if __name__ == "__main__":
    sys.exit(main())
