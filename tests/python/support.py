"""What the tests of the Python package share: the package of this tree, a device without a GPU, and an
exit status that says when nothing could run."""

import importlib.util
import os
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
DATA = ROOT / "tests" / "data"
MIB = 1 << 20

sys.path.insert(0, str(PACKAGE))


def needs(module):
    """Skips a test case where a module is not installed."""
    there = importlib.util.find_spec(module) is not None
    return unittest.skipUnless(there, f"{module} is not installed here")


def clean_environment(**more):
    """This process's environment without what would steer the package, and with `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CENOTE_") and k != "PYTHONPATH"}
    kept["CENOTE_LIBRARY"] = os.environ.get("CENOTE_LIBRARY", "")
    return {**kept, **more}


def main():
    """unittest.main(), but 77 if every test was skipped."""
    program = unittest.main(exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun <= len(result.skipped):  # 3.12 does not count what it skips
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(77)
