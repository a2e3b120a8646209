#!/usr/bin/env python3
"""What `cenote replay` says of each recorded history, beside the recorded allocator and an oracle's plain best fit.

For each history: utilisation, and the modelled driver time of its second half as a share of that half. The peers are
the allocator that was recorded and, from tools/placement_oracle.py, best fit over pages of one size. Replaying is
deterministic; the runs behind a figure confirm that. Prints {"name", "figures"} (docs/formats/bench-results.md).

usage: bench/bench_replay.py
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import placement_oracle as oracle  # noqa: E402: where it lies is only known now

CENOTE = ROOT / "build" / "cenote"
RUNS = 3
UTILIZATION, DRIVER_PERCENT = 0.985, 1  # what we want to reach; 0.95 at 2% is the least


def replay(path):
    """{device: [outcome of each run]}"""
    devices = {}
    for _ in range(RUNS):
        done = subprocess.run([CENOTE, "replay", path, "--json"], capture_output=True, text=True, check=True)
        for outcome in json.loads(done.stdout)["devices"]:
            devices.setdefault(outcome["device"], []).append(outcome)
    return devices


def measure(values):
    values = sorted(values)
    return {"median": values[len(values) // 2], "spread": [values[0], values[-1]]}


def percent(seconds, whole):
    return 100 * seconds / whole if whole > 0 else 0


def rows(path, rounds, placed):
    """The two figures of a device's history, and whether they beat pages of 32 MiB in both."""
    utilization = measure([r["cenote"]["utilization"] for r in rounds])
    driver = measure([percent(r["cenote"]["driver_seconds_second_half"], r["recorded_seconds_second_half"])
                      for r in rounds])
    fits = [(f"best fit, {row.page_bytes >> 20} MiB pages", row.utilization,
             percent(row.driver_seconds_second_half, row.recorded_seconds_second_half)) for row in placed]
    name = path.name.removesuffix(".pickle.gz") + (f", device {rounds[0]['device']}" if rounds[0]["device"] else "")
    figures = [
        {"what": f"utilisation, {name}", "unit": "x", **utilization,
         "peer": {"name": "as recorded", **measure([rounds[0]["recorded"]["utilization"]])},
         "also": [{"name": who, **measure([value])} for who, value, _ in fits],
         "floor": 1, "floor_reason": "all that is reserved is in use", "target": UTILIZATION},
        {"what": f"driver time in the second half, {name}", "unit": "%", "better": "less", **driver,
         "peer": {"name": fits[-1][0], **measure([fits[-1][2]])},
         "also": [{"name": who, **measure([value])} for who, _, value in fits[:-1]], "target": DRIVER_PERCENT},
    ]
    better = utilization["median"] >= fits[-1][1] and driver["median"] <= fits[-1][2]
    least = utilization["median"] >= 0.95 and driver["median"] <= 2
    return figures, better, least


def count(what, values, target):
    number = sum(values)
    return {"what": what, "unit": "histories", "better": "more", **measure([number]), "peer": None, "floor": len(values),
            "floor_reason": "all of them", "target": target}


def main():
    figures, better, least = [], [], []
    for path in sorted((ROOT / "tests" / "data" / "traces").glob("*.pickle.gz")):
        placed = oracle.rows_of(path)
        for device, rounds in sorted(replay(path).items()):
            added, beats, reaches = rows(path, rounds, placed[device])
            figures += added
            better.append(beats)
            least.append(reaches)
    figures.insert(0, count("histories at utilisation 0.95 or more for 2% or less", least, len(least)))
    figures.insert(1, count("histories no worse than best fit over 32 MiB pages in both", better, (len(better) + 1) // 2))
    print(json.dumps({"name": "replay", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
