#!/usr/bin/env python3
"""Reads the array that examples/share_publish.py publishes, without a copy, and holds it until Enter.

usage: PYTHONPATH=python examples/share_read.py [NAME [SECONDS]]     SECONDS: how long instead of until Enter

Kill the publisher meanwhile: the array stays, and `cenote holders` shows who has it.
"""

import sys
import time

import cenote


def heard(notice):
    if notice.kind is cenote.NoticeKind.PUBLISHER_GONE:
        print("its publisher has ended; the array is still here", flush=True)


def total(numbers):
    return int(numbers.sum(dtype=float) if hasattr(numbers, "sum") else sum(numbers))


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "demo"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        share = cenote.Share(on_notice=heard)
        numbers = share.open(name, "host:0", wait=60).array
    except cenote.Error as error:
        sys.exit(f"share_read: {error}")
    print(f"{name}: {len(numbers)} numbers, their sum is {total(numbers)}", flush=True)
    try:
        sys.stdin.readline() if seconds is None else time.sleep(seconds)
    except KeyboardInterrupt:
        pass
    print(f"still {len(numbers)} numbers, their sum is {total(numbers)}")


main()
