#!/usr/bin/env python3
"""The runner of the workloads in PyTorch, without PyTorch: what it runs, what survives it, and the figures it makes."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "bench" / "gpu"
sys.path.insert(0, str(GPU))
sys.path.insert(0, str(ROOT / "tools"))

import figures  # noqa: E402
import make_benchmarks  # noqa: E402

GIB = 1 << 30

# Stands in for the interpreter with torch: it is called as workload.py is.
STAND_IN = """#!/usr/bin/env python3
import json, pathlib, sys
at = lambda name: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None
name, way, cap = sys.argv[2], at("--allocator"), at("--cap")
if not sys.stdin.readline():
    sys.exit(0)
with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
    print(name, way, cap, file=calls)
if name == "vit" and way == "cenote":
    sys.exit("a stand-in's failure")
asked = 10 << 30
held = {"native": 14, "expandable": 12, "cenote": 11}[way] << 30
oom = bool(cap) and way == "native"
pathlib.Path(at("--json")).write_text(json.dumps({
    "workload": name, "allocator": way, "device": "cuda", "cap": int(cap) if cap else None, "finished": not oom,
    "oom": oom, "error": None, "died_at": "step 4 of 12" if oom else None, "warm_up": 2, "steps": 10,
    "warm_up_s": [1, 1], "step_s": [0.1] * (1 if oom else 10), "results": [1.0, 2.0], "measured_s": 1.0,
    "step_ms": {"median": 100, "p10": 90, "p90": 110}, "peak_requested": asked, "peak_reserved": held,
    "utilisation": asked / held}))
"""


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.stand_in, self.out = self.folder / "python", self.folder / "results.json"
        self.stand_in.write_text(STAND_IN)
        self.stand_in.chmod(0o755)

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, str(GPU / "run_workloads.py"), "--python", str(self.stand_in), "--out",
                               str(self.out), *arguments], capture_output=True, text=True)

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def by_name(self):
        record = json.loads(self.out.read_text())["bench_workloads"]
        return {figure["what"]: figure for figure in record["figures"]}

    def test_figures(self):
        done = self.run_tool("--workloads", "moe,streams")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = self.by_name()
        used = found["moe, utilisation"]
        self.assertAlmostEqual(used["median"], 100 * 10 / 11)
        self.assertAlmostEqual(used["peer"]["median"], 100 * 10 / 14)
        self.assertEqual(used["also"][0]["name"], figures.PEERS["expandable"])
        self.assertEqual(found["moe, most memory held"]["floor"], 10)
        steps = found["moe, cap of 10.20 GiB, steps done of 12"]
        self.assertEqual((steps["median"], steps["peer"]["median"], steps["better"]), (12, 3, "more"))
        self.assertIn("out of memory at step 4 of 12", done.stdout)

    def test_order_is_rotated_and_the_cap_follows_the_native_run(self):
        self.run_tool("--workloads", "moe,streams")
        self.assertEqual(self.calls()[:6], [f"{name} {way} None" for name, ways in (
            ("moe", ("native", "expandable", "cenote")), ("streams", ("expandable", "cenote", "native"))) for way in ways])
        self.assertEqual({call.split()[2] for call in self.calls()[6:]}, {str(int(10 * GIB * 1.02))})

    def test_a_failure_is_told_and_run_again(self):
        done = self.run_tool("--workloads", "vit,moe", "--kinds", "plain")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a stand-in's failure", done.stdout)
        self.assertNotIn("vit, utilisation", self.by_name())
        self.assertIn("moe, utilisation", self.by_name())
        before = len(self.calls())
        self.run_tool("--workloads", "vit,moe", "--kinds", "plain")
        self.assertEqual(self.calls()[before:], ["vit cenote None"])

    def test_no_time(self):
        done = self.run_tool("--workloads", "moe", "--budget", "5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not run: plain moe native: no time left", done.stdout)

    def test_the_page_takes_them(self):
        self.run_tool("--workloads", "moe")
        record = json.loads(self.out.read_text())["bench_workloads"]
        path = self.folder / "bench" / "results" / "m1" / "workloads.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({**record, "machine": "m1", "driver": "1", "commit": "a", "date": "2026-01-02"}))
        page = make_benchmarks.page(self.folder)
        self.assertIn("| moe, a step, ms | 100 | PyTorch's allocator: 100; ", page)
        self.assertIn("Each workload of bench/gpu/", page)


class Agreement(unittest.TestCase):
    def test(self):
        def compare(a, b):
            return figures.agreement({"results": a}, {"results": b})
        self.assertEqual(compare([1.0, 2.0], [1.0, 2.0, 3.0]), "same bits")
        self.assertEqual(compare([1.0, 2.0], [1.0, 2.002]), "to 1e-03")
        self.assertEqual(compare([1.0, float("nan")], [1.0, float("nan")]), "NaN")
        self.assertEqual(compare([], [1.0]), "-")


if __name__ == "__main__":
    unittest.main()
