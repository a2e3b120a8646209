#!/usr/bin/env python3
"""What noting a block with its Python stack costs, by depth: cen_ledger_stack_here, cen_ledger_add and _remove.

The stacks are as a training loop's: a wrapper and a call of each module's, then its forward, in a file of its own. The
peer is the same block noted without its stack. Prints {"name", "figures"} (docs/formats/bench-results.md).

usage: bench/bench_stacks.py [BUILD]   the build that is measured (build)
"""

import ctypes
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPTHS = 10, 25, 50
SAMPLES, ROUNDS = 41, 2000
SWEPT = 1 << 20
TARGET, THREAD_TARGET = 1.0, 0.3
PLACES = 16


class LedgerOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("writer", ctypes.c_char_p), ("stacks", ctypes.c_int),
                ("stack_fn", ctypes.c_void_p), ("stack_arg", ctypes.c_void_p), ("events", ctypes.c_uint32)]


class Probe:
    """The C side, with a ledger in memory as cenote.torch has it."""

    def __init__(self, build):
        library = ctypes.CDLL(build / "libcenote.so", mode=ctypes.RTLD_GLOBAL)
        probe = ctypes.CDLL(build / "bench" / "stacks_probe.so")
        options = LedgerOptions(size=ctypes.sizeof(LedgerOptions), writer=b"bench")
        options.stack_fn = ctypes.cast(library.cen_trace_python_frames, ctypes.c_void_p)
        self.ledger = ctypes.c_void_p()
        if library.cen_ledger_create(None, ctypes.byref(options), ctypes.byref(self.ledger)):
            raise SystemExit("bench_stacks: no ledger")
        self.notes, self.thread = probe.probe_notes, probe.probe_thread
        self.notes.restype = self.thread.restype = ctypes.c_double
        self.notes.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_bool]
        self.thread.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_bool]


class Module:
    def __init__(self, forward, inner):
        self.forward, self.inner = forward, inner

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(self, *args, **kwargs)

    __call__ = _wrapped_call_impl


def forward_of(number):
    """A function in a file of its own."""
    path = f"/usr/lib/python3/site-packages/transformers/models/mixture/modeling_mixture_{number}.py"
    names = {}
    exec(compile("\n" * number + "def forward(self, measure):\n    return self.inner(measure)\n", path, "exec"), names)
    return names["forward"]


def frames_here():
    frame, count = sys._getframe(1), 0
    while frame:
        frame, count = frame.f_back, count + 1
    return count


def at_depth(depth, measure):
    """Calls measure() as the innermost of so many frames."""
    levels = (depth - frames_here() - 1) // 3
    rest = (depth - frames_here() - 1) % 3
    call = measure
    for number in range(levels):
        call = Module(forward_of(number), call if number else lambda measure: measure())
    if rest:
        inner = call
        call = (lambda measure: inner(measure)) if rest == 1 else (lambda measure: (lambda: inner(measure))())
    return call(measure) if levels else measure()


def figure(what, samples, peer, target):
    def measure(values):
        return {"median": statistics.median(values) / 1e3, "spread": [min(values) / 1e3, max(values) / 1e3]}
    bound = {"target": target} if target else {}
    without = {"name": "noted without its stack", **measure(peer)}
    return {"what": what, "unit": "us", **measure(samples), "peer": without, **bound}


def repeated(function, count):
    return [function() for _ in range(count)]


def both(one):
    """A function that gives samples of a block with its stack and of one without; the stack was seen before."""
    def samples():
        one(True)
        return repeated(lambda: one(True), SAMPLES), repeated(lambda: one(False), SAMPLES)
    return samples


def same_place(probe, swept):
    rounds = ROUNDS // 20 if swept else ROUNDS
    return both(lambda with_stack: probe.notes(probe.ledger, rounds, swept, with_stack))


def places_in_turn(probe):
    """A block from each of a number of lines, over and over."""
    lines = "".join(f"    taken += notes(ledger, 1, 0, with_stack)  # {i}\n" for i in range(PLACES))
    names = {"notes": probe.notes, "ledger": probe.ledger}
    exec(f"def places(with_stack):\n    taken = 0\n{lines}    return taken / {PLACES}\n", names)
    places = names["places"]
    return both(lambda with_stack: statistics.median(repeated(lambda: places(with_stack), ROUNDS // 20)))


def main():
    if sys.version_info < (3, 11):
        sys.exit(77)
    probe = Probe(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build")
    figures = []
    for depth in DEPTHS:
        for measure, how in ((same_place(probe, 0), "one place"), (places_in_turn(probe), f"{PLACES} places in turn"),
                             (same_place(probe, SWEPT), "after 1 MiB was swept")):
            samples, peer = at_depth(depth, measure)
            figures.append(figure(f"a block noted and removed, {depth} frames, {how}", samples, peer,
                                  TARGET if depth <= 25 else None))
    plain = repeated(lambda: probe.notes(probe.ledger, ROUNDS, 0, False), SAMPLES)
    for known, how in ((True, "a thread that Python knows"), (False, "a thread that Python does not know")):
        samples = repeated(lambda known=known: probe.thread(probe.ledger, ROUNDS, known), SAMPLES)
        figures.append(figure(f"a block noted and removed, no frames, {how}", samples, plain, THREAD_TARGET))
    print(json.dumps({"name": "stacks", "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
