#!/usr/bin/env python3
"""The benchmarks page: made from results, checked against them, and honest about what it refuses."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "make_benchmarks.py"
RESULT = {
    "name": "pool", "machine": "m1", "driver": "580.1", "commit": "abc1234", "date": "2026-01-02",
    "figures": [{
        "what": "alloc + free", "unit": "us", "median": 0.5, "spread": [0.4, 0.6],
        "peer": {"name": "other", "median": 1.0, "spread": [0.9, 1.1]},
        "floor": 0.1, "floor_reason": "a lock", "target": 0.4,
    }],
}


class Benchmarks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.result = copy.deepcopy(RESULT)

    def tearDown(self):
        self.folder.cleanup()

    def run_tool(self, *arguments):
        path = self.root / "bench" / "results" / "m1" / "pool.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.result))
        return subprocess.run([sys.executable, str(TOOL), *arguments, str(self.root)],
                              capture_output=True, text=True)

    def refused(self, why):
        done = self.run_tool()
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench/results/m1/pool.json: ", done.stderr)
        self.assertIn(why, done.stderr)

    def test_page(self):
        self.assertEqual(self.run_tool("--check").returncode, 1)
        self.assertEqual(self.run_tool().returncode, 0)
        self.assertEqual(self.run_tool("--check").returncode, 0)
        page = (self.root / "docs" / "benchmarks.md").read_text()
        self.assertIn("| alloc + free, us | 0.5 [0.4, 0.6] | other: 1 [0.9, 1.1] | 2.00 x as good | "
                      "0.1: a lock | 0.4 |", page)
        self.result["figures"][0]["median"] = 0.55
        self.assertEqual(self.run_tool("--check").returncode, 1)

    def test_further_peers(self):
        self.result["figures"][0]["also"] = [{"name": "third", "median": 2, "spread": [2, 2]}]
        self.run_tool()
        self.assertIn("| other: 1 [0.9, 1.1]; third: 2 | 2.00 x as good |",
                      (self.root / "docs" / "benchmarks.md").read_text())
        del self.result["figures"][0]["also"][0]["name"]
        self.refused("also without a peer or a name")

    def test_more_is_better(self):
        self.result["figures"][0]["unit"] = "GB/s"
        self.run_tool()
        self.assertIn("2.00 x worse", (self.root / "docs" / "benchmarks.md").read_text())

    def test_about(self):
        self.result["about"] = "What was run. " * 20
        self.assertEqual(self.run_tool().returncode, 0)
        page = (self.root / "docs" / "benchmarks.md").read_text()
        self.assertIn("2026-01-02.\n\nWhat was run. What", page)
        self.assertLessEqual(max(len(line) for line in page.split("\n") if "What was run" in line), 120)
        self.result["about"] = 3
        self.refused("about is no text")

    def test_no_peer(self):
        del self.result["figures"][0]["peer"], self.result["figures"][0]["floor"]
        self.refused("neither a peer nor a floor")

    def test_floor_without_reason(self):
        del self.result["figures"][0]["floor_reason"]
        self.refused("floor_reason")

    def test_median_outside_spread(self):
        self.result["figures"][0]["median"] = 7
        self.refused("outside the spread")

    def test_dirty_tree(self):
        self.result["commit"] = "abc1234-dirty"
        self.refused("uncommitted")

    def test_wrong_folder(self):
        self.result["machine"] = "m2"
        self.refused("folder")


if __name__ == "__main__":
    unittest.main()
