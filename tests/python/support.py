"""What the tests of the Python package share: the package of this tree, a device without a GPU, and an
exit status that says when nothing could run."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
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


class Broker:
    """`cenote serve` of the build under test, with a socket of its own; this process, and those that it
    starts, find it by $CENOTE_BROKER."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.folder.name, "broker.sock")
        os.environ["CENOTE_BROKER"] = self.socket
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [command(), "serve", "--socket", self.socket],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        until(lambda: os.path.exists(self.socket) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise RuntimeError(f"cenote serve ended: {self.process.stderr.read().decode()}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def close(self):
        self.kill()
        os.environ.pop("CENOTE_BROKER", None)
        self.folder.cleanup()


def command():
    """The binary of the build under test."""
    build = os.environ.get("CENOTE_TEST_BUILD")
    return os.environ.get("CENOTE") or str(Path(build or ROOT / "build") / "cenote")


def holders():
    """What `cenote holders` prints, of the broker that $CENOTE_BROKER names."""
    done = subprocess.run([command(), "holders"], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def until(true, seconds=30.0):
    """Waits until true() is; what it is then."""
    end = time.monotonic() + seconds
    while not (answer := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer


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
