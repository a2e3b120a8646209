"""Traces: what this process's pools and devices did, written to a file as it happens.

One trace is on at a time, for the whole process. `cenote explain`, `replay` and `convert` read the
file, and so does cenote.explain(). Start before the pools are made: what is live when a trace starts
is known only once it is freed.
"""

import contextlib
import ctypes
import os
from ctypes import byref
from dataclasses import dataclass
from typing import Iterator, Union

from cenote import _lib
from cenote._lib import check, library

__all__ = ["Stats", "flush", "mark", "part", "start", "stats", "step", "stop"]

_STACKS = {"none": (0, False), "native": (1, False), "python": (0, True), "all": (1, True)}


@dataclass(frozen=True)
class Stats:
    """cen_trace_stats, of the trace that is on or of the last one."""

    events: int
    bytes: int
    stacks: int
    lost: int
    on: bool


def start(path: Union[str, "os.PathLike[str]"], *, stacks: str = "python") -> None:
    """Starts a trace into `path`. `stacks` kept with each event: "python" (3.11 or later; else
    none), "native" (the C stack), "all" or "none". Error: one is on already, or the file cannot be
    made."""
    if stacks not in _STACKS:
        raise ValueError(f"stacks is one of {', '.join(_STACKS)}, not {stacks!r}")
    native, python = _STACKS[stacks]
    options = _lib.TraceOptions(size=ctypes.sizeof(_lib.TraceOptions), stacks=native)
    frames = getattr(library(), "cen_trace_python_frames", None) if python else None
    if frames is not None:
        options.stack_fn = ctypes.cast(frames, ctypes.c_void_p)
    check(library().cen_trace_start(_lib.c_text("path", os.fsencode(path)), byref(options)))


def stop() -> None:
    """Writes what is gathered and closes the file. Error: none was started, or it had to end."""
    check(library().cen_trace_stop())


def flush() -> None:
    """Appends what the calling thread has gathered to the file."""
    check(library().cen_trace_flush())


def step() -> None:
    """Marks the end of an iteration of the program. Does nothing when no trace is on."""
    library().cen_trace_step()


def mark(name: str, *, end: bool = False) -> None:
    """Marks the begin or the end of a named part of the program."""
    library().cen_trace_mark(_lib.c_text("the name", name), end)


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """mark() at the begin and the end of a `with` block."""
    mark(name)
    try:
        yield
    finally:
        mark(name, end=True)


def stats() -> Stats:
    raw = _lib.TraceStats()
    check(library().cen_trace_get_stats(byref(raw)))
    return Stats(raw.events, raw.bytes, raw.stacks, raw.lost, raw.on)
