"""What share_torch.py and share_inference.py have in common: a broker, figures, and other processes of themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))


@contextlib.contextmanager
def broker():
    """A broker for this process and those that it starts, until the block ends. CENOTE names the command."""
    command = os.environ.get("CENOTE", "cenote")
    with tempfile.TemporaryDirectory() as folder:
        path = os.environ["CENOTE_BROKER"] = os.path.join(folder, "broker.sock")
        process = subprocess.Popen([command, "serve", "--socket", path])
        try:
            while not os.path.exists(path):
                if process.poll() is not None:
                    raise SystemExit(f"{command} serve ended with {process.returncode}")
                time.sleep(0.01)
            yield path
        finally:
            process.terminate()
            process.wait()


def middle(samples):
    """Of a figure: median and spread."""
    ordered = sorted(samples)
    return {"median": ordered[len(ordered) // 2], "spread": [ordered[0], ordered[-1]]}


def figure(what, unit, samples, peer, of_peer, **more):
    return {"what": what, "unit": unit, **middle(samples), "peer": {"name": peer, **middle(of_peer)}, **more}
