#!/usr/bin/env python3
"""cenote profile on a GPU, under the installed ncu: three programs whose bounds are known, the counts
behind the figures, a recording judged afterwards, and sampled devices.

usage: CENOTE=build-portable/cenote tests/gpu/check_profile.py [NAME...]

The programs are those of tests/gpu/profile, which a portable build puts beside cenote where there is
nvcc.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from checks import Skip, check, main

LAUNCHES = 3


def cenote():
    if "CENOTE" not in os.environ:
        raise Skip("CENOTE does not name the command")
    return Path(os.environ["CENOTE"]).resolve()


def program(name):
    path = cenote().parent / "tests" / "gpu" / "profile" / name
    if not path.exists():
        raise Skip(f"{path} is not there: it is built where there is nvcc")
    done = subprocess.run([path], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    assert done.returncode == 0, (done.returncode, done.stderr)
    return path


def report(*words):
    """The JSON of a run; its program has to succeed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        done = subprocess.run(
            [cenote(), "profile", "--json", "-o", out, *words], capture_output=True, text=True, check=False
        )
        if done.returncode in (1, 125) and "no profile" in done.stderr:
            raise Skip(done.stderr.strip())
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return json.loads(out.read_text())


def kernel(name, profile):
    if profile["source"] != "ncu":
        raise Skip(f"ncu does not count here: {profile['why']}")
    rows = [row for row in profile["kernels"] if name in row["kernel"]]
    assert len(rows) == 1, profile
    print(json.dumps(rows[0]))
    assert rows[0]["launches"] == LAUNCHES, rows[0]["launches"]
    return rows[0]


def profiled(name):
    return kernel(name, report("--kernel", name, "--", program(name)))


def near(got, expected, share=0.01):
    assert got is not None and abs(got - expected) <= share * expected, (got, expected)


@check
def strided_copy_is_uncoalesced():
    row = profiled("strided_copy")
    assert row["bound"] == "memory-bound at DRAM", row["reason"]
    assert row["load_bytes_per_sector"] <= 8, row["load_bytes_per_sector"]
    assert "uncoalesced loads" in row["advice"], row["advice"]
    assert row["l2_hit_low"]
    # Each load moves a sector of its own, at the least.
    assert row["dram_bytes"] >= LAUNCHES * (1 << 23) * 32, row["dram_bytes"]


@check
def naive_product_waits_for_l1():
    row = profiled("naive_product")
    assert row["bound"] in ("memory-bound at L1 or shared memory", "latency-bound"), row["bound"]
    near(row["fp32_operations"], LAUNCHES * 2 * 2048**3)
    assert row["l2_hit"] > 0.8, row["l2_hit"]


@check
def tuned_product_is_bound_by_arithmetic():
    row = profiled("tuned_product")
    assert row["bound"] == "compute-bound", row["bound"]
    near(row["fp32_operations"], LAUNCHES * 2 * 4096**3)
    assert row["bank_ratio"] < 1.2, row["bank_ratio"]
    assert row["tensor_operations"] == 0, row["tensor_operations"]


@check
def every_figure_is_known():
    missing = profiled("tuned_product")["missing"]
    assert not missing, missing


@check
def a_recording_is_judged_the_same():
    path = program("strided_copy")
    command = subprocess.run(
        [cenote(), "profile", "--print-command", "--kernel", "strided_copy", "--", path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        recording = Path(folder) / "kernels.csv"
        if not recording.exists():
            raise Skip(f"ncu recorded nothing: {done.stdout}{done.stderr}")
        if "ERR_NVGPUCTRPERM" in recording.read_text(errors="replace"):
            raise Skip("ncu may not count")
        row = kernel("strided_copy", report("--csv", recording))
    assert row["bound"] == "memory-bound at DRAM", row["reason"]


@check
def the_exit_status_is_the_programs():
    program("strided_copy")
    done = subprocess.run(
        [cenote(), "profile", "--", "sh", "-c", f"{program('strided_copy')}; exit 9"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 9, done


@check
def devices_are_sampled():
    path = program("tuned_product")
    profile = report("--sample", "--", "sh", "-c", f"for i in 1 2 3 4 5 6; do {path}; done")
    assert profile["source"] == "gpm"
    busy = max(device["most"]["sm"] or 0 for device in profile["devices"])
    print(json.dumps([{k: d[k] for k in ("name", "mean", "most")} for d in profile["devices"]]))
    assert 0 < busy <= 1, busy


if __name__ == "__main__":
    main(__file__)
