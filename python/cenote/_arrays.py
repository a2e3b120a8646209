"""NumPy's arrays and torch's tensors as matrices in memory: what cenote.codec, cenote.calibrate and
cenote.compute read and make. Neither is imported here: who passes an array has done so."""

import math
import sys
import threading
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from cenote._codec import Matrix
from cenote._device import Device
from cenote._product import DTYPES

#: What each kind of element is in NumPy, which has no 8-bit floats and no BF16, and in torch, whose
#: unsigned types are few.
_NUMPY = {"fp32": "float32", "fp16": "float16", "bf16": "uint16", "int8": "int8", "byte": "uint8"}
_NUMPY.update({"int32": "int32", "fp8_e4m3": "uint8", "fp8_e5m2": "uint8", "word16": "uint16", "word32": "uint32"})
_TORCH = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "byte": "uint8"}
_TORCH.update({"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"})
_TORCH.update({"word16": "int16", "word32": "int32", "sum": "int64", "int32": "int32"})
#: And of what a matrix may be.
_SOURCES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "int32": "int32"}
FLOATS = ("fp32", "fp16", "bf16")

_devices: Dict[str, Device] = {}
_lock = threading.Lock()


def sides_of(shape: Sequence[int], first: int = 1) -> Tuple[int, int]:
    """Rows and columns of an array of this shape: its first dimension, or the `first` of them, and all
    that follow as one. One dimension is one row."""
    if len(shape) == 1:
        return 1, shape[0]
    return math.prod(shape[:first]), math.prod(shape[first:])


def _step(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The one stride with which all elements are reached in order; 0: there is none."""
    step, count = 1, 1
    for side, stride in zip(reversed(shape), reversed(strides)):
        if side == 1:
            continue
        if count == 1:
            step = stride
        elif stride != step * count:
            return 0
        count *= side
    return step


class Rows(NamedTuple):
    """A matrix: its elements' type, and strides in elements."""

    dtype: str
    shape: Tuple[int, int]
    strides: Tuple[int, int]
    plain: bool = True  # memory holds what the array says

    @classmethod
    def of(cls, dtype: str, shape: Sequence[int], strides: Sequence[int], first: int = 1) -> "Rows":
        """Of an array, as sides_of() has it. Strides are 0 where dimensions do not merge."""
        cut = 0 if len(shape) == 1 else first
        down, across = _step(shape[:cut], strides[:cut]), _step(shape[cut:], strides[cut:])
        return cls(dtype, sides_of(shape, first), (down, across))

    def fits(self) -> bool:
        """Elements of a row are neighbours, and rows follow each other."""
        (rows, cols), (down, across) = self.shape, self.strides
        near, apart = across == 1 or cols == 1, down >= cols or rows == 1
        return not rows or not cols or (self.plain and near and apart)

    def at(self, address: int) -> Matrix:
        rows, cols = self.shape
        stride = self.strides[0] if rows > 1 and cols else cols
        return Matrix(address, rows, cols, stride, DTYPES[self.dtype])


class Numpy:
    """NumPy's, in this process's memory."""

    device: Optional[Device] = None

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def owns(self, array: Any) -> bool:
        return isinstance(array, self._numpy.ndarray)

    def __str__(self) -> str:
        return "a NumPy array"

    def empty(self, kind: str, shape: Tuple[int, ...]) -> Any:
        return self._numpy.empty(shape, _NUMPY[kind])

    def matrix(self, kind: str, shape: Tuple[int, ...]) -> Any:
        """What a decoded matrix goes to. NumPy has BF16 where ml_dtypes is."""
        if kind != "bf16":
            return self.empty(kind, shape)
        try:
            import ml_dtypes
        except ImportError:
            raise ValueError('dtype "bf16" needs ml_dtypes: NumPy has no BF16') from None
        return self._numpy.empty(shape, ml_dtypes.bfloat16)

    def rows(self, array: Any, name: str, first: int = 1, kinds: Sequence[str] = FLOATS) -> Rows:
        kind = _SOURCES.get(array.dtype.name if array.dtype.isnative else "")
        if kind is None or kind not in kinds or not array.ndim:
            raise _no_matrix(name, array, kinds)
        size = array.itemsize
        if any(stride % size for stride in array.strides):
            return Rows(kind, sides_of(array.shape, first), (0, 0))
        return Rows.of(kind, array.shape, [stride // size for stride in array.strides], first)

    def packed(self, array: Any) -> Any:
        return self._numpy.ascontiguousarray(array)

    def is_packed(self, array: Any, kind: str) -> bool:
        right = array.dtype.name == _NUMPY[kind] and array.dtype.isnative
        return bool(right and self.is_contiguous(array))

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.flags.c_contiguous)

    def writable(self, array: Any) -> bool:
        return bool(array.flags.writeable)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def size(self, array: Any) -> int:
        return int(array.size)

    def nbytes(self, array: Any) -> int:
        return int(array.nbytes)


class Torch:
    """torch's, on the CPU or on a GPU, where work goes to the stream that is current."""

    def __init__(self, torch: Any, where: Any) -> None:
        self._torch, self._where = torch, where
        self.device: Optional[Device] = None
        if where.type == "cuda":
            self.device = _opened(f"cuda:{where.index}")
        elif where.type != "cpu":
            raise ValueError(f"a tensor on {where} cannot be used: expected cuda or cpu")

    @property
    def stream(self) -> int:
        """Torch's current one, of a GPU."""
        return int(self._torch.cuda.current_stream(self._where).cuda_stream)

    def owns(self, array: Any) -> bool:
        return isinstance(array, self._torch.Tensor) and bool(array.device == self._where)

    def __str__(self) -> str:
        return f"a tensor on {self._where}"

    def empty(self, kind: str, shape: Tuple[int, ...]) -> Any:
        name = _TORCH[kind]
        if not hasattr(self._torch, name):
            raise ValueError(f"torch {self._torch.__version__} has no type {name}")
        return self._torch.empty(shape, dtype=getattr(self._torch, name), device=self._where)

    def matrix(self, kind: str, shape: Tuple[int, ...]) -> Any:
        return self.empty(kind, shape)

    def rows(self, array: Any, name: str, first: int = 1, kinds: Sequence[str] = FLOATS) -> Rows:
        kind = _SOURCES.get(str(array.dtype).rpartition(".")[2])
        if kind is None or kind not in kinds or not array.dim() or array.layout != self._torch.strided:
            raise _no_matrix(name, array, kinds)
        shape = tuple(array.shape)
        return Rows.of(kind, shape, array.stride(), first)._replace(plain=not array.is_neg())

    def packed(self, array: Any) -> Any:
        return array.resolve_neg().contiguous()

    def is_packed(self, array: Any, kind: str) -> bool:
        name = str(array.dtype).rpartition(".")[2]
        return name == _TORCH[kind] and self.is_contiguous(array)

    def is_contiguous(self, array: Any) -> bool:
        return bool(array.is_contiguous() and not array.is_neg())

    def writable(self, array: Any) -> bool:
        return True

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def size(self, array: Any) -> int:
        return int(array.numel())

    def nbytes(self, array: Any) -> int:
        return int(array.numel() * array.element_size())

    def sums(self, rows: Any) -> Tuple[Any, ...]:
        """The fields of cen_codec_sums over all rows of a device's, for which it waits."""
        counts = rows[:, :6].sum(0).tolist()
        values = rows[:, 6:].contiguous().view(self._torch.float64)
        most = values[:, :2].max(0).values.tolist() if len(rows) else [0.0, 0.0]
        return (*counts, *most, *values[:, 2:].sum(0).tolist())


def _no_matrix(name: str, array: Any, kinds: Sequence[str]) -> ValueError:
    *others, last = [source for source, kind in _SOURCES.items() if kind in kinds]
    wanted = f"{', '.join(others)} or {last}" if others else last
    return ValueError(
        f"{name} is of {array.dtype} and shape {tuple(array.shape)}: expected {wanted} in one "
        "dimension or more"
    )


def _opened(name: str) -> Device:
    with _lock:
        if name not in _devices:
            _devices[name] = Device(name)
        return _devices[name]


def place_of(array: Any, name: str) -> Any:
    """The Numpy or Torch that an array is of."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return Torch(torch, array.device)
    if numpy is not None and isinstance(array, numpy.ndarray):
        return Numpy(numpy)
    raise ValueError(f"{name} is a {type(array).__name__}: expected a NumPy array or a torch tensor")


def matrix_of(
    place: Any, array: Any, name: str, copy: bool, first: int = 1, kinds: Sequence[str] = FLOATS
) -> Tuple[Any, Rows]:
    """The array, or a copy of it if that is asked for and needed, and how it lies; as sides_of() has it."""
    rows: Rows = place.rows(array, name, first, kinds)
    if not rows.fits():
        if not copy:
            raise ValueError(
                f"{name} of shape {tuple(array.shape)} has strides that no matrix has: elements of a row "
                "must be neighbours in order, and rows must not overlap; copy=True makes a copy"
            )
        array = place.packed(array)
        rows = place.rows(array, name, first, kinds)
    return array, rows
