"""Checks on a GPU, each in a process of its own: what they share.

A file of checks marks functions with @check and ends with main(__file__). It prints "ok NAME",
"skip NAME: reason" or "FAIL NAME" with its output; exit status 1 if one failed.
"""

import subprocess
import sys

CHECKS = {}


class Skip(Exception):
    """A check that cannot run here, and why."""


def check(function):
    CHECKS[function.__name__] = function
    return function


def raises(kind, function):
    """The exception of that kind that `function` must raise."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def run_one(name):
    try:
        CHECKS[name]()
    except Skip as reason:
        print(reason)
        sys.exit(77)


def run_all(file, names):
    failed = 0
    for name in names:
        command = [sys.executable, "-X", "faulthandler", file, "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode == 77:
            print(f"skip {name}: {done.stdout.strip()}", flush=True)
        elif done.returncode:
            failed += 1
            print(f"FAIL {name}: exit status {done.returncode}\n{done.stdout[-2500:]}\n{done.stderr[-2500:]}", flush=True)
        else:
            print(f"ok {name} {done.stdout.strip()[:1500]}", flush=True)
    return 1 if failed else 0


def main(file):
    if sys.argv[1:2] == ["--one"]:
        run_one(sys.argv[2])
    else:
        sys.exit(run_all(file, sys.argv[1:] or list(CHECKS)))
