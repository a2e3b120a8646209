#!/usr/bin/env python3
"""The layers check sees what it must: each case plants one include in a small tree."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"
TREE = {
    "include/cenote/cenote.h": '#include "cenote/device.h"\n#include "cenote/status.h"\n',
    "include/cenote/status.h": "#include <stdint.h>\n",
    "include/cenote/device.h": '#include "cenote/status.h"\n',
    "src/base/log.h": '#include "cenote/status.h"\n',
    "src/trace/emit.h": '#include "base/log.h"\n',
    "src/trace/read.h": '#include "trace/emit.h"\n',
    "src/plan/plan.h": '#include "base/log.h"\n',
    "src/kernels/table.h": "",
    "src/dev/dev.h": '#include "cenote/device.h"\n#include "trace/emit.h"\n',
    "src/dev/cuda/cuda.h": '#include "dev/dev.h"\n#include <cuda.h>\n',
    "src/dev/host/host.h": '#include "dev/dev.h"\n#include "kernels/table.h"\n',
    "src/pool/pool.h": '#include "dev/dev.h"\n#include "plan/plan.h"\n#include "base/log.h"\n',
    "cli/cmd.h": "",
    "cli/main.c": '#include "cli/cmd.h"\n#include "cenote/cenote.h"\n',
    "bench/bench.h": "",
    "bench/bench_pool.c": '#include "bench/bench.h"\n#include "cenote/device.h"\n',
    "examples/pool.c": '#include "cenote/cenote.h"\n',
    "tests/unit/pool/test_pool.c": '#include "pool/pool.h"\n#include "base/log.h"\n',
    "tests/unit/dev/test_host.c": '#include "dev/host/host.h"\n',
    "tests/conformance/test_streams.c": '#include "dev/dev.h"\n',
}


class Layers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        for path, text in TREE.items():
            self.write(path, text)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def run_tool(self):
        done = subprocess.run([sys.executable, str(TOOL), str(self.root)], capture_output=True, text=True)
        return done.returncode, done.stderr

    def breach(self, path, include, expected):
        """Plants an include as line 2 of a file; the tool must name the place and the reason."""
        self.write(path, f"/* planted */\n#include {include}\n")
        code, errors = self.run_tool()
        self.assertEqual(code, 1, errors)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertTrue(errors.startswith(f"{path}:2: "), errors)
        self.assertIn(expected, errors)

    def test_tree_in_order(self):
        self.assertEqual(self.run_tool(), (0, ""))

    def test_upward(self):
        self.breach("src/base/x.c", '"pool/pool.h"', "base may not include pool")

    def test_public_header_of_a_part_above(self):
        self.breach("src/plan/x.c", '"cenote/device.h"', "plan may not include dev's public header")

    def test_trace_reader_from_a_device(self):
        self.breach("src/dev/x.c", '"trace/read.h"', "dev may not include trace")

    def test_backends_apart(self):
        self.breach("src/dev/host/x.c", '"dev/cuda/cuda.h"', "dev/host may not include dev/cuda")
        (self.root / "src/dev/host/x.c").unlink()
        self.breach("src/dev/cuda/x.c", '"dev/host/host.h"', "dev/cuda may not include dev/host")

    def test_relative_path_is_no_way_round(self):
        self.breach("src/dev/host/x.c", '"../cuda/cuda.h"', "dev/host may not include dev/cuda")

    def test_header_not_there_yet(self):
        self.breach("src/base/x.c", '"pool/generated.h"', "base may not include pool")

    def test_driver_types_outside_the_backend(self):
        self.breach("src/pool/x.c", "<cuda.h>", "belongs in src/dev/cuda")

    def test_inside_from_the_command_line(self):
        self.breach("cli/x.c", '"pool/pool.h"', "cli may not include pool")

    def test_inside_from_a_benchmark_and_an_example(self):
        self.breach("bench/x.c", '"base/log.h"', "bench may not include base")
        (self.root / "bench/x.c").unlink()
        self.breach("examples/x.c", '"base/log.h"', "examples may not include base")

    def test_foreign_type_in_a_public_header(self):
        self.breach("include/cenote/device.h", "<sys/socket.h>", "public headers include only")

    def test_test_of_another_part(self):
        self.breach("tests/unit/plan/x.c", '"pool/pool.h"', "may not include pool")

    def test_unknown_part(self):
        self.write("src/misc/x.c", "")
        code, errors = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("src/misc/x.c:1: in no part", errors)

    def test_public_header_of_no_part(self):
        self.write("include/cenote/nobody.h", "")
        self.breach("src/pool/x.c", '"cenote/nobody.h"', "which part")


if __name__ == "__main__":
    unittest.main()
