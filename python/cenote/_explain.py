"""Why memory ran out, or would."""

import ctypes
import json
import os
import stat
from ctypes import byref
from typing import Any, Dict, Optional, Union

from cenote import _lib
from cenote._lib import check, library


class Explanation:
    """The verdict on a recording. `verdict` is one of "healthy", "capacity", "fragmentation",
    "stranded-stream", "stranded-pool", "leak" and "outside"; `forecast` is the verdict that the next
    step meets if the growth seen goes on ("" if there is nothing to tell from); `text` is for people,
    json() for programs (docs/explain.md has its keys)."""

    def __init__(self, verdict: str, forecast: str, text: str, json_text: str) -> None:
        self.verdict = verdict
        self.forecast = forecast
        self.text = text
        self.json_text = json_text

    def json(self) -> Dict[str, Any]:
        parsed: Dict[str, Any] = json.loads(self.json_text)
        return parsed

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<cenote.Explanation {self.verdict}>"


def _given(function: Any, handle: int) -> str:
    text = ctypes.c_void_p()
    check(function(handle, byref(text)))
    try:
        return ctypes.string_at(text.value or 0).decode(errors="replace")
    finally:
        _c_free(text)


_c_free = ctypes.CDLL(None).free  # what malloc of the same C library gave
_c_free.argtypes = [ctypes.c_void_p]
_c_free.restype = None


def _taken(handle: ctypes.c_void_p) -> Explanation:
    lib = library()
    assert handle.value is not None
    try:
        return Explanation(
            lib.cen_verdict_name(lib.cen_explanation_verdict(handle)).decode(),
            lib.cen_verdict_name(lib.cen_explanation_next(handle)).decode(),
            _given(lib.cen_explain_text, handle.value),
            _given(lib.cen_explain_json, handle.value),
        )
    finally:
        lib.cen_explanation_free(handle)


def _text_of(source: Union[str, "os.PathLike[str]", bytes]) -> Optional[bytes]:
    """The whole of a text; None for what the library reads by itself: a binary file, and a pipe,
    which can be read only once."""
    if isinstance(source, bytes):
        return None if _is_binary(source) else source
    if not stat.S_ISREG(os.stat(source).st_mode):
        return None
    with open(source, "rb") as file:
        head = file.read(2)
        return None if _is_binary(head) else head + file.read()


def _is_binary(data: bytes) -> bool:
    """Whether it is a pickle or compressed; a text begins with neither."""
    return data[:1] == b"\x80" or data[:2] == b"\x1f\x8b"


def explain(
    source: Union[str, "os.PathLike[str]", bytes],
    cap: Optional[int] = None,
    *,
    total: Optional[int] = None,
) -> Explanation:
    """Explains a recording: the path of a file, or its bytes. It may be a memory snapshot of PyTorch's
    (torch.cuda.memory._dump_snapshot), a trace of cenote's, a log of RMM's, or any text with PyTorch's
    "CUDA out of memory" message in it.

    `cap`: the framework's own limit, in bytes; `total`: the device's memory, where the recording does
    not tell. Error: it is none of these; the message names the place. ValueError: a size below 1.
    """
    for what, size in (("cap", cap), ("total", total)):
        if size is not None:
            _lib.count_of(what, size, 1)
    lib = library()
    name = "<bytes>" if isinstance(source, bytes) else os.path.basename(os.fsdecode(source))
    options = _lib.ExplainOptions(
        size=ctypes.sizeof(_lib.ExplainOptions),
        name=os.fsencode(name),
        cap_bytes=cap or 0,
        device_total_bytes=total or 0,
    )
    explanation, snapshot, error = ctypes.c_void_p(), ctypes.c_void_p(), _lib.ReadError()
    text = _text_of(source)
    status = _lib.ERR_NOT_FOUND
    if text is not None:
        status = lib.cen_explain_log(text, len(text), byref(options), byref(explanation))
    if status != _lib.ERR_NOT_FOUND:
        check(status)
        return _taken(explanation)
    if isinstance(source, bytes):
        status = lib.cen_snapshot_read_memory(
            b"<bytes>", source, len(source), byref(snapshot), byref(error)
        )
    else:
        status = lib.cen_snapshot_read(os.fsencode(source), byref(snapshot), byref(error))
    check(status, error.message.decode(errors="replace"))
    try:
        check(lib.cen_explain(snapshot, byref(options), byref(explanation)))
        return _taken(explanation)
    finally:
        lib.cen_snapshot_free(snapshot)
