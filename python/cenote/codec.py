"""Arrays in fewer bits, with an account of what that cost: docs/codecs.md has the formats to the bit.

    import cenote.codec

    encoded = cenote.codec.encode(weights, format="int4", group=64)
    encoded.values, encoded.scales, encoded.report.sqnr_db
    back = cenote.codec.decode(encoded)

Arrays are NumPy's or torch's tensors, of one dimension or more, and what is made is of the same kind. The
first dimension is a matrix's rows, the rest its columns; one dimension is one row. A tensor on a GPU
stays there: work is enqueued on the stream that is current, and nothing waits but the report.
"""

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from cenote import _codec
from cenote._arrays import Rows, matrix_of, place_of, sides_of
from cenote._codec import GRANULARITIES, OVERFLOWS, function
from cenote._lib import c_text, check, count_of

__all__ = ["Codec", "Encoded", "Report", "decode", "encode"]

_PARTS = ("values", "scales", "zeros", "metadata")
_SCALED = ("int8", "int4", "2:4_int8", "fp8_e4m3", "fp8_e5m2")
#: What elements of `values` are kept in; not named: as the format.
_VALUES = {"int4": "byte", "2:4_fp16": "fp16", "2:4_bf16": "bf16", "2:4_int8": "int8"}
_VALUES["lossless_bf16"] = "byte"


@dataclass(frozen=True)
class Codec:
    """cen_codec: a format, and which elements share a scale."""

    format: str
    granularity: str
    group: int = 0
    block: Tuple[int, int] = (0, 0)
    overflow: str = "default"
    asymmetric: bool = False
    refuse_dense: bool = False


@dataclass(frozen=True)
class Report:
    """cen_codec_report: what encoding cost."""

    largest: float
    max_error: float
    mean_error: float
    mse: float
    sqnr_db: float
    cosine: float
    nan: int
    infinite: int
    saturated: int
    overflowed: int
    underflowed: int
    count: int


class Encoded:
    """An encoded array: its `codec`, and the `shape` and `dtype` ("fp32", "fp16" or "bf16") of what it
    was made of.

    `values`, and where the codec has them `scales` (float32), `zeros` (int8) and `metadata`, else None,
    are arrays of two dimensions, with a row for each row of the matrix, or row of units. NumPy has no BF16
    and no 8-bit floats, and torch few unsigned types: such elements are integers of as many bits there.
    INT4 is two to a byte.
    """

    def __init__(
        self,
        codec: Codec,
        shape: Tuple[int, ...],
        dtype: str,
        values: Any,
        scales: Any = None,
        zeros: Any = None,
        metadata: Any = None,
    ) -> None:
        self.codec, self.shape, self.dtype = codec, shape, dtype
        self.values, self.scales, self.zeros, self.metadata = values, scales, zeros, metadata
        self._sums: Any = None
        self._report: Optional[Report] = None

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        place = place_of(self.values, "values")
        parts = (getattr(self, name) for name in _PARTS)
        return sum(place.nbytes(part) for part in parts if part is not None)

    @property
    def report(self) -> Optional[Report]:
        """What encoding cost; None if it was not asked for. Of a tensor on a GPU the first call waits
        for its stream."""
        if self._sums is not None:
            sums = self._sums
            if not isinstance(sums, _codec.Sums):
                sums = _codec.Sums(*place_of(sums, "sums").sums(sums))
            raw = _codec.Report()
            function("cen_codec_report_of")(byref(sums), byref(raw))
            fields: Dict[str, Any] = {name: getattr(raw, name) for name, *_ in raw._fields_}
            self._report, self._sums = Report(**fields), None
        return self._report

    def __repr__(self) -> str:
        sides = " x ".join(map(str, self.shape))
        return f"<cenote.codec.Encoded {self.codec.format} of {sides} {self.dtype}>"


def _raw(codec: Codec, scales_given: bool) -> _codec.Codec:
    """ValueError names what is no word; the library says the rest."""
    number = ctypes.c_int()
    if not isinstance(codec.format, str):
        raise ValueError(f"format is {codec.format!r}: expected a name, such as 'int8'")
    for name, value, words in (
        ("granularity", codec.granularity, GRANULARITIES),
        ("overflow", codec.overflow, OVERFLOWS),
    ):
        if value not in words:
            raise ValueError(f"{name} is {value!r}: expected one of {', '.join(words)}")
    if not isinstance(codec.block, (tuple, list)) or len(codec.block) != 2:
        raise ValueError(f"block is {codec.block!r}: expected rows and columns")
    down, across = codec.block
    for name, count in (("group", codec.group), ("block's rows", down), ("block's columns", across)):
        if count_of(name, count) >= 2**32:
            raise ValueError(f"{name} is {count}: expected less than 2**32")
    check(function("cen_codec_format_find")(c_text("format", codec.format), byref(number)))
    return _codec.Codec(
        number.value,
        GRANULARITIES[codec.granularity],
        codec.group,
        down,
        across,
        OVERFLOWS[codec.overflow],
        codec.asymmetric,
        codec.refuse_dense,
        scales_given,
    )


def _bound(raw: _codec.Codec, shape: Tuple[int, int]) -> _codec.Sizes:
    sizes = _codec.Sizes()
    check(function("cen_codec_bound")(byref(raw), *shape, byref(sizes)))
    return sizes


def _units(codec: Codec, shape: Tuple[int, int]) -> Tuple[int, int]:
    """Rows and columns of scales."""
    rows, cols = shape
    if not rows or not cols:
        return 0, 0
    down, across = {
        "tensor": (rows, cols),
        "row": (1, cols),
        "column": (rows, 1),
        "group": (1, codec.group),
        "block": codec.block,
    }[codec.granularity]
    return -(-rows // down), -(-cols // across)


def _given(place: Any, array: Any, name: str, kind: str, shape: Tuple[int, int]) -> Any:
    if not place.owns(array):
        raise ValueError(f"{name} is no array like the others: expected {place}")
    count = shape[0] * shape[1]
    if not place.is_packed(array, kind) or place.size(array) != count:
        raise ValueError(
            f"{name} is of {array.dtype} and shape {tuple(array.shape)}: expected {count} contiguous "
            f"elements, {kind}, for units of {shape[0]} x {shape[1]}"
        )
    return array


def _parts(place: Any, encoded: Encoded, sizes: _codec.Sizes) -> _codec.Parts:
    parts = _codec.Parts(bytes=sizes)
    for name in _PARTS:
        if getattr(sizes, name):
            setattr(parts, name, place.address(getattr(encoded, name)))
    return parts


def _room(place: Any, codec: Codec, shape: Tuple[int, int], sizes: _codec.Sizes) -> Tuple[Any, Any]:
    """Arrays for values and metadata."""
    kind = _VALUES.get(codec.format, codec.format)
    width = {"fp16": 2, "bf16": 2}.get(kind, 1)
    flat = codec.format == "lossless_bf16"
    across = 0 if flat or not shape[0] else sizes.values // shape[0] // width
    values = place.empty(kind, (sizes.values,) if flat else (shape[0], across))
    if not codec.format.startswith("2:4"):
        return values, None
    word = 4 if codec.format == "2:4_int8" else 2
    words = sizes.metadata // shape[0] // word if shape[0] else 0
    return values, place.empty(f"word{8 * word}", (shape[0], words))


def _chosen(format: str, granularity: Optional[str], group: int, block: Tuple[int, int]) -> str:
    if granularity is not None:
        return granularity
    if group or block != (0, 0):
        return "group" if group else "block"
    return "row" if format in _SCALED else "unscaled"


def encode(
    array: Any,
    *,
    format: str = "int8",
    granularity: Optional[str] = None,
    group: int = 0,
    block: Tuple[int, int] = (0, 0),
    overflow: str = "default",
    asymmetric: bool = False,
    refuse_dense: bool = False,
    scales: Any = None,
    zeros: Any = None,
    report: bool = True,
    copy: bool = False,
) -> Encoded:
    """Encodes a NumPy array or torch tensor, float32, float16 or bfloat16, of one dimension or more:
    the first is a matrix's rows, the rest its columns, and one dimension is one row.

    It is read where it lies, if the elements of a row are neighbours in their order, however far rows are
    apart. Other strides are a ValueError, or copied if `copy` is True. On a GPU the work is enqueued on torch's
    current stream of the tensor's device.

    `format`: a name of docs/codecs.md. `granularity`: "unscaled", "tensor", "row", "column", "group" (with
    `group`: 32, 64 or 128) or "block" (with `block`: rows and columns); if not given, what `group` or
    `block` says, else a scale each row where the format may have scales. `overflow`: "default",
    "saturate" or "nonfinite".

    `scales` (float32), and `zeros` (int8) of an asymmetric codec, are used as they are, in place of
    being made, one a unit: a calibrated threshold / Q clips. They become the result's.

    `report=False` is faster. cenote.Error: what the library refuses, such as scales that are not finite.
    """
    place = place_of(array, "array")
    codec = Codec(
        format, _chosen(format, granularity, group, block), group, block, overflow, asymmetric, refuse_dense
    )
    raw = _raw(codec, scales is not None)
    array, rows = matrix_of(place, array, "array", copy)
    if (zeros is not None) != (scales is not None and asymmetric):
        raise ValueError("zeros are given with the scales of an asymmetric codec, and only then")
    sizes = _bound(raw, rows.shape)
    values, metadata = _room(place, codec, rows.shape, sizes)
    encoded = Encoded(codec, tuple(array.shape), rows.dtype, values, metadata=metadata)
    if raw.granularity:
        units = _units(codec, rows.shape)
        given = scales is not None
        encoded.scales = (
            _given(place, scales, "scales", "fp32", units) if given else place.empty("fp32", units)
        )
        if asymmetric:
            encoded.zeros = (
                _given(place, zeros, "zeros", "int8", units) if given else place.empty("int8", units)
            )
    _encode(place, raw, array, rows, encoded, sizes, report)
    return encoded


def _encode(
    place: Any,
    raw: _codec.Codec,
    array: Any,
    rows: Rows,
    encoded: Encoded,
    sizes: _codec.Sizes,
    report: bool,
) -> None:
    matrix, parts = rows.at(place.address(array)), _parts(place, encoded, sizes)
    if place.device is not None:
        # Thirteen fields of eight bytes, a row.
        sums = place.empty("sum", (rows.shape[0], 13)) if report else None
        to = place.address(sums) if sums is not None else 0
        call = function("cen_codec_encode_async")
        check(call(place.device.handle, byref(raw), byref(matrix), byref(parts), to, place.stream))
        encoded._sums = sums
        return
    total = _codec.Sums()
    call = function("cen_codec_encode")
    check(call(byref(raw), byref(matrix), byref(parts), None, byref(total) if report else None))
    if encoded.codec.format == "lossless_bf16":
        encoded.values = encoded.values[: parts.bytes.values]
    encoded._sums = total if report else None


def decode(encoded: Encoded, *, dtype: Optional[str] = None, out: Any = None) -> Any:
    """The decoded array, as a new one of `dtype` ("fp32", "fp16", "bf16"; None: that of the source), or
    in `out`: of the encoded one's shape and kind, with strides as encode() takes them. In NumPy "bf16"
    needs ml_dtypes. On a GPU the work is enqueued on torch's current stream.

    cenote.Error: the parts are not what encoding gives, as far as that can be told.
    """
    return Decoding(encoded, dtype, out).run()


class Decoding:
    """decode(), prepared once for arrays that stay where they are, as bench/gpu/product.py needs it."""

    def __init__(self, encoded: Encoded, dtype: Optional[str], out: Any) -> None:
        self._place = place = place_of(encoded.values, "encoded.values")
        self._raw, self._parts = parts_of(place, encoded)
        if out is None:
            kind = encoded.dtype if dtype is None else dtype
            if kind not in ("fp32", "fp16", "bf16"):
                raise ValueError(f"dtype is {kind!r}: expected fp32, fp16 or bf16")
            out = place.matrix(kind, encoded.shape)
        elif dtype is not None:
            raise ValueError("dtype is that of out, where there is one")
        elif not place.owns(out) or tuple(out.shape) != tuple(encoded.shape) or not place.writable(out):
            raise ValueError(f"out is no array for it: expected {place}, to be written, of {encoded.shape}")
        self._encoded = encoded  # whose parts must stay
        self._out, rows = matrix_of(place, out, "out", False)
        self._matrix = rows.at(place.address(out))

    def run(self) -> Any:
        """What decode() gives."""
        place, raw, parts, matrix = self._place, byref(self._raw), byref(self._parts), byref(self._matrix)
        if place.device is None:
            check(function("cen_codec_decode")(raw, parts, matrix))
        else:
            call = function("cen_codec_decode_async")
            check(call(place.device.handle, raw, parts, matrix, place.stream))
        return self._out


def parts_of(place: Any, encoded: Encoded) -> Tuple[_codec.Codec, _codec.Parts]:
    """What the library is told of an encoded array, which may be anybody's. ValueError: as far as Python can
    tell it is none of this place."""
    raw = _raw(encoded.codec, False)
    sizes = _bound(raw, encoded_sides(encoded))
    if encoded.codec.format == "lossless_bf16":
        sizes.values = place.nbytes(encoded.values)
    _check_parts(place, encoded, sizes)
    return raw, _parts(place, encoded, sizes)


def encoded_sides(encoded: Encoded) -> Tuple[int, int]:
    """Rows and columns of the matrix."""
    if not isinstance(encoded.shape, (tuple, list)) or not encoded.shape:
        raise ValueError(f"encoded.shape is {encoded.shape!r}: expected one dimension or more")
    for side in encoded.shape:
        count_of("a side of encoded.shape", side)
    rows, cols = sides_of(encoded.shape)
    return rows, count_of("the product of the sides of encoded.shape after the first", cols)


def _check_parts(place: Any, encoded: Encoded, sizes: _codec.Sizes) -> None:
    """ValueError: a part that is not there, elsewhere, with gaps, or too small."""
    for name in _PARTS:
        part, needed = getattr(encoded, name), getattr(sizes, name)
        if not needed:
            continue
        if part is None or not place.owns(part):
            raise ValueError(f"encoded.{name} is no array like encoded.values: expected {place}")
        if not place.is_contiguous(part) or place.nbytes(part) < needed:
            raise ValueError(f"encoded.{name} has not {needed} contiguous bytes")
