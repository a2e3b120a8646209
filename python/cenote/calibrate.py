"""How far a codec's scales should reach, from batches seen one after another: docs/calibration.md.

    import cenote.calibrate

    seen = cenote.calibrate.Calibration()
    for batch in batches:
        seen.add(layer_input(batch))
    amax = seen.threshold("entropy")
    scales = numpy.array([[cenote.calibrate.scale(amax)]], "float32")
    encoded = cenote.codec.encode(x, granularity="tensor", scales=scales)

Batches are NumPy's arrays or torch's tensors in the host's memory. Nothing of them is kept but counts.
"""

import ctypes
import os
from ctypes import byref
from dataclasses import dataclass
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from cenote import _calibrate, _codec
from cenote._arrays import matrix_of, place_of
from cenote._calibrate import THRESHOLDS, function
from cenote._lib import c_text, check, count_of
from cenote._owned import Handle

__all__ = ["Calibration", "Channel", "Outlier", "Stats", "scale"]

#: Q of docs/codecs.md: what the threshold becomes.
_LARGEST = {"int8": 127, "2:4_int8": 127, "int4": 7, "fp8_e4m3": 448, "fp8_e5m2": 57344}
_FLT_MAX = float.fromhex("0x1.fffffep127")


@dataclass(frozen=True)
class Stats:
    """cen_calibration_stats: `min`, `max` and `amax`, the larger size, are of the finite elements."""

    count: int
    nan: int
    infinite: int
    zeros: int
    min: float
    max: float
    amax: float


@dataclass(frozen=True)
class Channel:
    """cen_calibration_channel: `sum` and `sum2` are of the finite elements and of their squares."""

    stats: Stats
    sum: float
    sum2: float


class Outlier(NamedTuple):
    """A channel that holds more than a threshold, and its element of the largest size."""

    channel: int
    value: float


def _stats(raw: _calibrate.Stats) -> Stats:
    return Stats(**{name: getattr(raw, name) for name, *_ in raw._fields_})


class Calibration(Handle):
    """Counts of what was added, 1 MiB of them, and beside it the same of each channel, where there are
    any: `rows` or `columns` says how many, and that each batch has as many.

    Batches have one dimension or more. Channels that are rows are the first of them, channels that are
    columns the last; one dimension is one row.

    Any thread may use it, several at once as long as none of them adds to it.
    """

    def __init__(self, *, rows: int = 0, columns: int = 0) -> None:
        count_of("rows", rows)
        count_of("columns", columns)
        if rows and columns:
            raise ValueError("channels are rows or columns, not both")
        kind = "rows" if rows else "columns" if columns else "none"
        handle = ctypes.c_void_p()
        make = function("cen_calibration_create")
        check(make(_calibrate.CHANNELS[kind], rows or columns, byref(handle)))
        self._handle = handle.value
        self._free = function("cen_calibration_free")

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Calibration":
        """What save() wrote. cenote.Error: it is not there, or is no such file."""
        handle = ctypes.c_void_p()
        check(function("cen_calibration_load")(c_text("path", os.fspath(path)), byref(handle)))
        made = cls.__new__(cls)
        made._handle, made._free = handle.value, function("cen_calibration_free")
        return made

    @property
    def _title(self) -> str:
        return "calibration"

    def add(self, batch: Any, *, copy: bool = False) -> None:
        """Adds an array or tensor as cenote.codec.encode() takes it, with its `copy`; without channels any
        dimensions may merge."""
        place = place_of(batch, "batch")
        if place.device is not None:
            raise ValueError(f"batch is {place}: Python calibrates in the host's memory, batch.cpu()")
        batch, rows = matrix_of(place, batch, "batch", copy, self._first(place, batch))
        matrix = rows.at(place.address(batch))
        check(function("cen_calibration_add")(self.handle, byref(matrix)))

    def _first(self, place: Any, batch: Any) -> int:
        """How many dimensions of a batch are rows."""
        kind, count = ctypes.c_int(), ctypes.c_uint64()
        check(function("cen_calibration_get_channels")(self.handle, byref(kind), byref(count)))
        if kind.value == _calibrate.CHANNELS["columns"]:
            return max(int(batch.ndim) - 1, 1)
        if kind.value == _calibrate.CHANNELS["rows"]:
            return 1
        fitting = (first for first in range(1, batch.ndim) if place.rows(batch, "batch", first).fits())
        return next(fitting, 1)

    def merge(self, other: "Calibration") -> None:
        """Adds what `other`, of the same channels, saw: as if it had been added here."""
        check(function("cen_calibration_merge")(self.handle, other.handle))

    @property
    def stats(self) -> Stats:
        raw = _calibrate.Stats()
        check(function("cen_calibration_get_stats")(self.handle, byref(raw)))
        return _stats(raw)

    def channel(self, index: int) -> Channel:
        """One channel, from 0. cenote.Error: there are not so many."""
        raw = _calibrate.Channel()
        get = function("cen_calibration_get_channel")
        check(get(self.handle, count_of("index", index), byref(raw)))
        return Channel(_stats(raw.stats), raw.sum, raw.sum2)

    def threshold(
        self, method: str = "max", *, percentile: float = 99.99, format: str = "int8"
    ) -> float:
        """The size above which elements are cut off, 0 if all are 0: by "max", which cuts none,
        "percentile", "entropy" or "mse". The last two are for the levels of `format`: int8 or int4, and
        for mse fp8_e4m3 or fp8_e5m2. cenote.Error: no element was finite."""
        if method not in THRESHOLDS:
            raise ValueError(f"method is {method!r}: expected one of {', '.join(THRESHOLDS)}")
        codec, amax = _codec.Codec(granularity=_codec.GRANULARITIES["tensor"]), ctypes.c_float()
        number = ctypes.c_int()
        check(_codec.function("cen_codec_format_find")(c_text("format", format), byref(number)))
        codec.format = number.value
        find = function("cen_calibration_threshold")
        check(find(self.handle, THRESHOLDS[method], percentile, byref(codec), byref(amax)))
        return amax.value

    def outliers(self, threshold: float, *, most: Optional[int] = None) -> Tuple[List[Outlier], float]:
        """The channels that hold more than `threshold`, the largest first, `most` of them at most; and
        the largest size in all others, which is amax for these."""
        find = function("cen_calibration_outliers")
        count, rest = ctypes.c_uint64(), ctypes.c_float()
        check(find(self.handle, threshold, None, 0, byref(count), byref(rest)))
        room = count.value if most is None else min(count.value, count_of("most", most))
        found = (_calibrate.Outlier * room)()
        check(find(self.handle, threshold, found, room, byref(count), byref(rest)))
        return [Outlier(one.channel, one.value) for one in found], rest.value

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Replaces the file at once or not at all: docs/formats/calibration.md."""
        check(function("cen_calibration_save")(self.handle, c_text("path", os.fspath(path))))

    def close(self) -> None:
        """Frees it; twice does no harm."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._free(handle)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        held = "" if self.closed else f" of {self.stats.count} elements"
        return f"<cenote.calibrate.Calibration{held}{self._state()}>"


def scale(amax: float, format: str = "int8") -> float:
    """The scale of a threshold: amax / Q as a float of 32 bits, and at least 2^-126."""
    if format not in _LARGEST:
        raise ValueError(f"format is {format!r}: expected one of {', '.join(_LARGEST)}")
    if not 0 <= amax <= _FLT_MAX:
        raise ValueError(f"amax is {amax!r}: expected a finite number of 32 bits, from 0 up")
    return max(ctypes.c_float(amax / _LARGEST[format]).value, 2.0**-126)
