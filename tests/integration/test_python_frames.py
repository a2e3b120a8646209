#!/usr/bin/env python3
"""cen_trace_python_frames, from a thread that holds the interpreter's lock and one that does not.

usage: test_python_frames.py LIBCENOTE
"""

import ctypes
import sys


class Frame(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("function", ctypes.c_char_p), ("line", ctypes.c_uint32)]


CAPACITY = 64


def load(kind, path):
    function = kind(path).cen_trace_python_frames
    function.argtypes = [ctypes.c_void_p, ctypes.POINTER(Frame), ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    return function


def frames(function, capacity=CAPACITY):
    array = (Frame * CAPACITY)()
    count = function(None, array, capacity)
    return [(f.file.decode(), f.function.decode(), f.line) for f in array[:count]]


class Loop:
    def turn(self, function):
        return frames(function), sys._getframe().f_lineno

    def verwöhnt(self, function):
        return frames(function)


def through_c(function):
    """Frames on both sides of a function of C's."""
    return sorted([1, 2], key=lambda _: kept.append(frames(function)) or 0) and kept[-1]


kept = []


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def main():
    if sys.version_info < (3, 11):
        print("Python 3.11 or later is needed")
        sys.exit(77)
    held = load(ctypes.PyDLL, sys.argv[1])  # calls without giving up the lock
    for _ in range(3):
        got, line = Loop().turn(held)
        names = [function for _, function, _ in got]
        if names != ["frames", "Loop.turn", "main", "<module>"]:
            fail(f"the functions are {names}")
        if any(file != __file__ for file, _, _ in got) or got[1][2] != line:
            fail(f"Loop.turn is in line {line} of {__file__}, not at {got[1]}")
    names = [function for _, function, _ in through_c(held)]
    if names != ["frames", "through_c.<locals>.<lambda>", "through_c", "main", "<module>"]:
        fail(f"through C the functions are {names}")
    if Loop().verwöhnt(held)[1][1] not in ("Loop.verwöhnt", "?"):
        fail("a name that is not ASCII is wrong")
    if len(frames(held, 2)) != 2:
        fail("more frames than there is room for")
    released = load(ctypes.CDLL, sys.argv[1])  # gives it up for the call
    got = frames(released)
    if sys.version_info >= (3, 14):
        if got:
            fail("frames without the lock")
    elif [function for _, function, _ in got] != ["frames", "main", "<module>"]:
        fail(f"without the lock the frames are {got}")
    try:  # an exception on its way is left alone
        try:
            raise KeyError("kept")
        finally:
            frames(held)
    except KeyError:
        pass
    count = sys.getrefcount(main.__code__)
    for _ in range(1000):
        frames(held)
    if sys.getrefcount(main.__code__) > count + 10:
        fail("references to code objects pile up")


main()
