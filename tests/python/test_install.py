#!/usr/bin/env python3
"""The package as a wheel lays it down: the component `python` of the build below a copy of it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

import cenote

BUILD = os.environ.get("CENOTE_TEST_BUILD")


@unittest.skipUnless(BUILD and shutil.which("cmake"), "needs cmake, and CENOTE_TEST_BUILD, a build")
class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.package = Path(cls.temporary.name).resolve() / "cenote"
        shutil.copytree(support.PACKAGE / "cenote", cls.package)
        subprocess.run(
            ["cmake", "--install", BUILD, "--component", "python", "--prefix", str(cls.package)],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_python(self, *arguments):
        environment = support.clean_environment(PYTHONPATH=str(self.package.parent))
        del environment["CENOTE_LIBRARY"]
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_the_library_is_found_in_the_package(self):
        program = "import cenote; from cenote import _lib; print(cenote.__version__, _lib.path())"
        expected = f"{cenote.__version__} {self.package / 'lib' / cenote._lib.SONAME}"
        self.assertEqual(self.run_python("-c", program), expected)

    def test_the_command_is_the_binary_and_knows_where_the_rest_is(self):
        command = "import sys; from cenote._command import main; sys.argv[0] = 'cenote'; main()"
        self.assertEqual(self.run_python("-c", command, "--version"), f"cenote {cenote.__version__}")
        (self.package / "bin" / "cenote").rename(self.package / "bin" / "binary")
        stand_in = self.package / "bin" / "cenote"
        stand_in.write_text('#!/bin/sh\necho "$CENOTE_PRELOAD $CENOTE_PYTHON $*"\n')
        stand_in.chmod(0o755)
        told = self.run_python("-c", command, "run", "x")
        stand_in.unlink()
        (self.package / "bin" / "binary").rename(stand_in)
        preload = self.package / "lib" / "libcenote_preload.so"
        self.assertEqual(told, f"{preload} {self.package.parent} run x")

    def test_headers_are_whole(self):
        ours = sorted(p.name for p in (support.ROOT / "include" / "cenote").glob("*.h"))
        theirs = sorted(p.name for p in (self.package / "include" / "cenote").glob("*.h"))
        self.assertEqual(theirs, ours)


if __name__ == "__main__":
    support.main()
