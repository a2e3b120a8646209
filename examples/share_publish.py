#!/usr/bin/env python3
"""Publishes an array under a name, and stays until Enter, or until it is killed. `cenote serve` must run.

usage: PYTHONPATH=python examples/share_publish.py [NAME [DEVICE]]     DEVICE: host:0 or, with NumPy, cuda:0

examples/share_read.py reads it, also when this process is killed while it does.
"""

import array
import os
import signal
import sys

import cenote

COUNT = 1 << 20


def numbers():
    try:
        import numpy
    except ImportError:
        return array.array("f", range(COUNT))
    return numpy.arange(COUNT, dtype=numpy.float32)


def stay():
    in_front = sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    if in_front:
        sys.stdin.readline()
    else:  # in the background nobody types for it
        signal.pause()


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "demo"
    device = sys.argv[2] if len(sys.argv) > 2 else "host:0"
    try:
        export = cenote.share(numbers(), name, device=device)
    except cenote.Error as error:
        sys.exit(f"share_publish: {error}")
    print(f"{export.name} version {export.version} is shared by process {os.getpid()}", flush=True)
    try:
        stay()
    except KeyboardInterrupt:
        pass


main()
