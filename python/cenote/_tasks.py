"""Products and convolutions of arrays, each prepared once for arrays that stay where they are: what
cenote.compute runs, and bench/gpu/product.py again and again."""

import ctypes
from typing import Any, List, Optional, Sequence, Tuple, Union

from cenote import _product
from cenote._arrays import FLOATS, matrix_of, place_of
from cenote._codec import Matrix
from cenote._lib import c_text, count_of
from cenote._product import ACTIVATIONS, DTYPES
from cenote.codec import Encoded, encoded_sides, parts_of

_INPUTS = (*FLOATS, "int8")
_OUTPUTS = (*FLOATS, "int32")
_KINDS = {number: name for name, number in DTYPES.items()}


def _owned(place: Any, array: Any, name: str, first: str) -> None:
    if not place.owns(array):
        raise ValueError(f"{name} is no array like {first}: expected {place}")


def _number(activation: Optional[str]) -> int:
    name = "none" if activation is None else activation
    if name not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}: expected None or one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class Task:
    """What the library is told, `raw`, of arrays at `place`; `out` gets the result."""

    raw: Union[_product.Product, _product.Conv]

    def __init__(self, place: Any) -> None:
        self.place, self.out = place, None
        self._kept: List[Any] = []  # whose addresses are in raw

    def run(self) -> Any:
        """`out`. On a GPU the work is enqueued on torch's current stream."""
        if self.place.device is None:
            _product.run_on_host(self.raw)
        else:
            _product.run(self.place.device, self.raw, self.place.stream)
        return self.out

    def kernels(self) -> List[str]:
        """Names of the kernels of a GPU that can do it, the one that would be taken first."""
        return _product.kernels(self.place.device, self.raw)

    def take(self, kernel: Optional[str]) -> None:
        """The kernel of a GPU; None: the first."""
        self.raw.kernel = None if kernel is None else c_text("kernel", kernel)

    def _keep(self, array: Any) -> int:
        self._kept.append(array)
        return int(self.place.address(array))

    def _sized(self, array: Any, name: str, kinds: Sequence[str], count: int, copy: bool) -> Tuple[int, int]:
        """Address and type of an array without gaps, of any shape that has so many elements."""
        array, rows = matrix_of(self.place, array, name, copy, 0, kinds)
        if rows.shape[1] != count:
            raise ValueError(f"{name} is of shape {tuple(array.shape)}: expected {count} elements")
        return self._keep(array), DTYPES[rows.dtype]

    def _set_bias(self, bias: Any, count: int, first: str, copy: bool) -> None:
        if bias is not None:
            _owned(self.place, bias, "bias", first)
            self.raw.bias, self.raw.bias_dtype = self._sized(bias, "bias", FLOATS, count, copy)

    def _to_be_written(self, out: Any, first: str) -> None:
        _owned(self.place, out, "out", first)
        if not self.place.writable(out):
            raise ValueError("out is read-only: expected an array to be written")


class ProductTask(Task):
    """Of a and b, into `out`, or into a new array of `dtype`; what is done to the result is set apart."""

    raw: _product.Product

    def __init__(
        self,
        a: Any,
        b: Any,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        alpha: float = 1.0,
        dtype: Optional[str] = None,
        out: Any = None,
        copy: bool = False,
    ) -> None:
        super().__init__(place_of(a, "a"))
        self._copy = copy
        self.raw = raw = _product.Product(alpha=alpha)
        raw.a, turned = self._operand(a, "a")
        raw.transpose_a = turned != bool(transpose_a)
        if isinstance(b, Encoded):
            turned = self._encoded(b)
        else:
            _owned(self.place, b, "b", "a")
            raw.b, turned = self._operand(b, "b")
        raw.transpose_b = turned != bool(transpose_b)
        if out is None:
            out = self.place.matrix(self._kind(dtype), (self._rows(), self._cols()))
        elif dtype is not None:
            raise ValueError("dtype is that of out, where there is one")
        self._to_be_written(out, "a")
        self.out, raw.d = out, self._matrix(out, "out", False)

    def add(
        self,
        *,
        bias: Any = None,
        activation: Optional[str] = None,
        residual: Any = None,
        c: Any = None,
        beta: float = 1.0,
        row_scale: Any = None,
        col_scale: Any = None,
    ) -> None:
        """What is done to the result."""
        raw, copy = self.raw, self._copy
        raw.activation = _number(activation)
        self._set_bias(bias, raw.d.cols, "a", copy)
        if c is not None:
            _owned(self.place, c, "c", "a")
            raw.c, raw.beta = self._matrix(c, "c", copy), beta
        if residual is not None:
            _owned(self.place, residual, "residual", "a")
            raw.residual = self._matrix(residual, "residual", copy)
        for name, array, count in (
            ("row_scale", row_scale, raw.d.rows),
            ("col_scale", col_scale, raw.d.cols),
        ):
            if array is not None:
                _owned(self.place, array, name, "a")
                setattr(raw, name, self._sized(array, name, ("fp32",), count, copy)[0])

    def _rows(self) -> int:
        return int(self.raw.a.cols if self.raw.transpose_a else self.raw.a.rows)

    def _cols(self) -> int:
        return int(self.raw.b.rows if self.raw.transpose_b else self.raw.b.cols)

    def _kind(self, dtype: Optional[str]) -> str:
        """What comes out."""
        if dtype is None:
            kind = _KINDS[self.raw.a.dtype]
            return "int32" if kind == "int8" else kind
        if dtype not in _OUTPUTS:
            raise ValueError(f"dtype is {dtype!r}: expected one of {', '.join(_OUTPUTS)}")
        return dtype

    def _matrix(self, array: Any, name: str, copy: bool) -> Matrix:
        """Of two dimensions, as it lies."""
        if array.ndim != 2:
            raise ValueError(f"{name} is of shape {tuple(array.shape)}: expected rows and columns")
        array, rows = matrix_of(self.place, array, name, copy, 1, (*_INPUTS, "int32"))
        return rows.at(self._keep(array))

    def _operand(self, array: Any, name: str) -> Tuple[Matrix, bool]:
        """As it lies, or transposed, if its columns and not its rows are what lies together."""
        if array.ndim == 2:
            rows = self.place.rows(array, name, 1, _INPUTS)
            turned = rows._replace(shape=rows.shape[::-1], strides=rows.strides[::-1])
            if turned.fits() and not rows.fits():
                return turned.at(self._keep(array)), True
        return self._matrix(array, name, self._copy), False

    def _encoded(self, b: Encoded) -> bool:
        _owned(self.place, b.values, "b.values", "a")
        codec, parts = parts_of(self.place, b)
        rows, cols = encoded_sides(b)
        self._kept.append(b)
        self.raw.b = Matrix(0, rows, cols, cols, self.raw.a.dtype)
        self.raw.b_codec, self.raw.b_parts = ctypes.pointer(codec), parts
        return False


class ConvTask(Task):
    """Of images and filters whose channels lie last, without gaps."""

    raw: _product.Conv

    def __init__(
        self,
        input: Any,
        weight: Any,
        *,
        bias: Any = None,
        activation: Optional[str] = None,
        residual: Any = None,
        stride: Union[int, Sequence[int]] = 1,
        padding: Union[int, Sequence[int]] = 0,
        dilation: Union[int, Sequence[int]] = 1,
        out: Any = None,
        copy: bool = False,
    ) -> None:
        super().__init__(place_of(input, "input"))
        self.raw = raw = _product.Conv(activation=_number(activation))
        raw.stride, raw.padding = _pair("stride", stride, 1), _pair("padding", padding, 0)
        raw.dilation = _pair("dilation", dilation, 1)
        _owned(self.place, weight, "weight", "input")
        raw.images, raw.height, raw.width, raw.channels = _four(input, "input")
        raw.filters, raw.filter_height, raw.filter_width, channels = _four(weight, "weight")
        if channels != raw.channels:
            raise ValueError(f"weight has {channels} channels, input {raw.channels}")
        raw.input, raw.dtype = self._sized(input, "input", FLOATS, self.place.size(input), copy)
        kind = _KINDS[raw.dtype]
        raw.weight = self._sized(weight, "weight", (kind,), self.place.size(weight), copy)[0]
        shape = (raw.images, *_product.output_sides(raw), raw.filters)
        out = self.place.matrix(kind, shape) if out is None else out
        self._to_be_written(out, "input")
        self.out, raw.output = out, self._like(out, "out", shape, kind, False)
        if residual is not None:
            _owned(self.place, residual, "residual", "input")
            raw.residual = self._like(residual, "residual", shape, kind, copy)
        self._set_bias(bias, raw.filters, "input", copy)

    def _like(self, array: Any, name: str, shape: Tuple[int, ...], kind: str, copy: bool) -> int:
        """The address of an array of this shape and type."""
        if tuple(array.shape) != shape:
            raise ValueError(f"{name} is of shape {tuple(array.shape)}: expected {shape}")
        return self._sized(array, name, (kind,), self.place.size(array), copy)[0]


def _side(name: str, value: Any, least: int = 0) -> int:
    if count_of(name, value, least) >= 2**32:
        raise ValueError(f"{name} is {value}: expected less than 2**32")
    return int(value)


def _pair(name: str, value: Any, least: int) -> Tuple[int, int]:
    """Of rows and columns: one number for both, or two."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{name} is {value!r}: expected a number, or one of rows and one of columns")
    return _side(name, both[0], least), _side(name, both[1], least)


def _four(array: Any, name: str) -> Tuple[int, ...]:
    if array.ndim != 4:
        raise ValueError(f"{name} is of shape {tuple(array.shape)}: expected four dimensions, channels last")
    return tuple(_side(f"a side of {name}", side) for side in array.shape)
