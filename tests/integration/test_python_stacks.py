#!/usr/bin/env python3
"""Stacks of a ledger are right where code objects come, go, and lie where others did.

usage: test_python_stacks.py LIBCENOTE
"""

import ctypes
import itertools
import sys

ROUNDS = 20
DEPTH = 100


class Frame(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("function", ctypes.c_char_p), ("line", ctypes.c_uint32)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("writer", ctypes.c_char_p), ("stacks", ctypes.c_int),
                ("stack_fn", ctypes.c_void_p), ("stack_arg", ctypes.c_void_p), ("events", ctypes.c_uint32)]


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


class Ledger:
    """A ledger in memory, asked by a thread that holds the interpreter's lock or one that does not."""

    def __init__(self, path, kind):
        self.library = kind(path)
        self.library.cen_ledger_view_stack.restype = ctypes.POINTER(Frame)
        options = Options(size=ctypes.sizeof(Options))
        options.stack_fn = ctypes.cast(self.library.cen_trace_python_frames, ctypes.c_void_p)
        self.handle = ctypes.c_void_p()
        if self.library.cen_ledger_create(None, ctypes.byref(options), ctypes.byref(self.handle)):
            fail("a ledger cannot be made")

    def here(self):
        """To be called with no frame of its own: the function of C's, with its arguments bound."""
        function, argument, skip = self.library.cen_ledger_stack_here, self.handle, ctypes.c_uint(0)
        function.restype = ctypes.c_uint32
        return function, argument, skip

    def stacks(self, ids):
        view, count = ctypes.c_void_p(), ctypes.c_size_t()
        if self.library.cen_ledger_look(self.handle, ctypes.byref(view)):
            fail("the ledger cannot be read")
        named = {}
        for number in set(ids):
            frames = self.library.cen_ledger_view_stack(view, ctypes.c_uint32(number), ctypes.byref(count))
            named[number] = [(f.file.decode(), f.function.decode(), f.line) for f in frames[:count.value]]
        self.library.cen_ledger_view_free(view)
        return named


def function_of(file, name, first, blank):
    """A new function in line `first` + 1 that calls `blank` + 1 lines below."""
    text = "\n" * first + f"def {name}(call, ledger, skip):\n" + "\n" * blank + "    return call(ledger, skip)\n"
    names = {}
    exec(compile(text, file, "exec"), names)
    return names[name]


def check_new_code(ledger):
    """All that makes functions differ is varied, in such a way that the code objects are of one size."""
    kinds = list(itertools.product(range(2), range(9), range(3), range(3)))

    def function_of_kind(cell, name, first, blank):
        return function_of(f"<cell {cell}>", f"f{name}", first, blank)

    call, handle, skip = ledger.here()
    got, places, again = [], set(), 0
    for number in range(ROUNDS * len(kinds)):
        kind = kinds[number * 7 % len(kinds)]
        function = function_of_kind(*kind)
        again += id(function.__code__) in places
        places.add(id(function.__code__))
        got.append((kind, function(call, handle, skip)))
        del function  # and its names, which nobody else has
    if sys.version_info < (3, 14) and again < len(got) // 10:
        fail(f"only {again} code objects lay where others did: nothing is tested")
    named = ledger.stacks(number for _, number in got)
    for (cell, name, first, blank), number in got:
        expected = (f"<cell {cell}>", f"f{name}", first + blank + 2)
        if named[number][0] != expected:
            fail(f"{expected} is {named[number][0]} in the ledger")
        if [function for _, function, _ in named[number][1:]] != ["check_new_code", "main", "<module>"]:
            fail(f"the frames are {named[number]}")
    lines = {kind[:2] + (kind[2] + kind[3],) for kind in kinds}
    if len(named) != len(lines):
        fail(f"{len(lines)} stacks are {len(named)} in the ledger")


def check_lines(ledger):
    """Places of one function, and how it was called."""
    call, handle, skip = ledger.here()

    def ask(turn):
        if turn:
            return call(handle, skip), sys._getframe().f_lineno
        return call(handle, skip), sys._getframe().f_lineno

    got = []
    for turn in (0, 1, 0, 1):
        got.append((ask(turn), sys._getframe().f_lineno))
        got.append((ask(turn), sys._getframe().f_lineno))
    named = ledger.stacks(number for (number, _), _ in got)
    for (number, line), outer in got:
        if [line for _, _, line in named[number][:2]] != [line, outer]:
            fail(f"lines {line} and {outer} are {named[number][:2]}")
    if len(named) != 4:
        fail(f"4 stacks are {len(named)} in the ledger")


def check_depth(ledger):
    """Beneath the frames that are kept, nothing tells stacks apart."""
    call, handle, skip = ledger.here()

    def down(depth):
        return down(depth - 1) if depth else call(handle, skip)

    deep, deeper, shallow = down(DEPTH), down(DEPTH + 1), down(3)
    named = ledger.stacks([deep, deeper, shallow])
    if deep != deeper or len(named[deep]) != 64 or [f for _, f, _ in named[shallow]][4:] != [
            "check_depth", "main", "<module>"]:
        fail(f"deep stacks are {deep}, {deeper} and {named}")


def check_late_name(ledger):
    """A name that is not ASCII may be known late, and is told from then on."""
    call, handle, skip = ledger.here()
    function = function_of("<cell 1>", "f", 0, 0)
    function.__code__ = function.__code__.replace(co_qualname="".join(["verw", "öhnt"]))
    as_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8
    as_utf8.restype, as_utf8.argtypes = ctypes.c_char_p, [ctypes.py_object]
    got = []
    for turn in range(4):
        if turn == 2:
            as_utf8(function.__code__.co_qualname)
        got.append(function(call, handle, skip))
    named = ledger.stacks(got)
    if [named[n][0][1] for n in got] not in (["?", "?", "verwöhnt", "verwöhnt"], ["verwöhnt"] * 4):
        fail(f"a name that is known late is {named}")


def main():
    if sys.version_info < (3, 11):
        print("Python 3.11 or later is needed")
        sys.exit(77)
    kinds = [ctypes.PyDLL, ctypes.CDLL] if sys.version_info < (3, 14) else [ctypes.PyDLL]
    for kind in kinds:
        ledger = Ledger(sys.argv[1], kind)
        for check in check_new_code, check_lines, check_depth, check_late_name:
            check(ledger)


main()
