"""What lies in a shared item: its type, shape and strides, as its meta says, and arrays over it.

The meta is compact JSON in UTF-8 (docs/python.md, "What an item's meta says"):

    {"dtype":"<f4","shape":[2,3]}                       elements in C order
    {"dtype":"bfloat16","shape":[2,3],"strides":[2,4]}  in bytes, as NumPy counts them

It may come from another user, so it is read as such: what it claims must lie within the item.
"""

import ctypes
import functools
import json
import re
import sys
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from cenote import _lib

META_MAX = 1024
_DIMENSIONS = 64
_LARGEST = 2**63 - 1

#: Types that NumPy has no name for, and their bytes. NumPy sees them as raw bytes (V1, V2).
NAMED_TYPES: Dict[str, int] = {
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}

_TYPESTR = re.compile(r"[<>|=]?([biufcmMSUV])([0-9]{1,9})(\[[0-9]{0,9}[A-Za-z]{1,2}\])?")

# Formats of memoryview that are the same everywhere, by the typestr of their elements.
_FORMATS = {
    "|b1": "?",
    "|i1": "b",
    "|u1": "B",
    "<i2": "h",
    "<u2": "H",
    "<i4": "i",
    "<u4": "I",
    "<i8": "q",
    "<u8": "Q",
    "<f4": "f",
    "<f8": "d",
}
_TYPESTRS = {**{code: typestr for typestr, code in _FORMATS.items()}, "c": "|S1", "l": "<i8", "L": "<u8"}


def _itemsize(dtype: str) -> int:
    """Bytes of an element; 0 if the type is not one that may be shared."""
    if dtype in NAMED_TYPES:
        return NAMED_TYPES[dtype]
    match = _TYPESTR.fullmatch(dtype)
    if match is None or (match[3] and match[1] not in "mM"):
        return 0
    return int(match[2]) * (4 if match[1] == "U" else 1)


@dataclass(frozen=True)
class Layout:
    """The elements of an item. `strides` are in bytes; None: C order without gaps."""

    dtype: str
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]] = None

    @functools.cached_property
    def itemsize(self) -> int:
        return _itemsize(self.dtype)

    @functools.cached_property
    def count(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    @functools.cached_property
    def extent(self) -> int:
        """Bytes from the first element to the end of the last."""
        if self.count == 0:
            return 0
        if self.strides is None:
            return self.count * self.itemsize
        return self.itemsize + sum((n - 1) * s for n, s in zip(self.shape, self.strides))

    @property
    def typestr(self) -> str:
        """For the array interfaces, which know no other types."""
        return f"|V{self.itemsize}" if self.dtype in NAMED_TYPES else self.dtype

    def meta(self) -> bytes:
        said: Dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.strides is not None:
            said["strides"] = list(self.strides)
        return json.dumps(said, separators=(",", ":")).encode()


def _numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _DIMENSIONS
        and all(type(n) is int and 0 <= n <= _LARGEST for n in value)
    )


@functools.lru_cache(maxsize=4096)  # the parts of a model are of few kinds
def _parsed(meta: bytes) -> Layout:
    """ValueError says what is wrong with it."""
    try:
        said = json.loads(meta)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(said, dict) or not isinstance(said.get("dtype"), str):
        raise ValueError('it is no object with a "dtype"')
    dtype: str = said["dtype"]
    shape: Any = said.get("shape")
    strides: Any = said.get("strides")
    if not _itemsize(dtype):
        raise ValueError(f"its dtype is {dtype[:40]!r}")
    if not _numbers(shape):
        raise ValueError('its "shape" is no list of sizes')
    if strides is not None and (not _numbers(strides) or len(strides) != len(shape)):
        raise ValueError('its "strides" are no list of steps, one for each dimension')
    return Layout(dtype, tuple(shape), None if strides is None else tuple(strides))


def parse(name: str, meta: bytes, size: int) -> Layout:
    """The layout of an item of `size` bytes; without a meta, its bytes. Error (CEN_ERR_FORMAT): the
    meta is malformed, or its elements do not fit."""
    if not meta:
        return Layout("|u1", (size,))
    try:
        layout = _parsed(meta)
        if layout.extent > size:
            raise ValueError(f"its elements take {layout.extent} bytes of {size}")
    except ValueError as error:
        raise _lib.failure(_lib.ERR_FORMAT, f"cenote: shared item {name!r}: meta: {error}") from None
    return layout


class Memory:
    """Bytes at an address, and what keeps them there. NumPy makes arrays of it without a copy."""

    __slots__ = ("address", "size", "layout", "writable", "keeper", "__weakref__")

    def __init__(self, address: int, size: int, layout: Layout, writable: bool, keeper: object) -> None:
        self.address = address
        self.size = size
        self.layout = layout
        self.writable = writable
        self.keeper = keeper

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {
            "version": 3,
            "typestr": self.layout.typestr,
            "shape": self.layout.shape,
            "strides": self.layout.strides,
            "data": (self.address, not self.writable),
        }


class DeviceArray:
    """An array on a CUDA device, for what reads __cuda_array_interface__: CuPy, Numba, torch.

    The interface's flag for read-only memory stays unset, since torch takes nothing else; the mapping
    refuses writes. `dtype` is NumPy's typestr, or a name such as "bfloat16".
    """

    __slots__ = ("_memory", "_stream")

    def __init__(self, memory: Memory, stream: int) -> None:
        self._memory = memory
        self._stream = stream or 1  # 1 is what the interface calls the default stream

    @property
    def dtype(self) -> str:
        return self._memory.layout.dtype

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._memory.layout.shape

    @property
    def address(self) -> int:
        return self._memory.address

    @property
    def nbytes(self) -> int:
        return self._memory.layout.count * self._memory.layout.itemsize

    @property
    def writable(self) -> bool:
        return self._memory.writable

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        layout = self._memory.layout
        return {
            "version": 3,
            "typestr": layout.typestr,
            "shape": layout.shape,
            "strides": layout.strides,
            "data": (self._memory.address if layout.count else 0, False),
            "stream": self._stream,
        }

    def __repr__(self) -> str:
        return f"<cenote.DeviceArray {self.dtype} {self.shape} at {self.address:#x}>"


def _numpy() -> Any:
    """NumPy, if the program has it."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def host_array(memory: Memory) -> Any:
    """A NumPy array over it; without NumPy, a memoryview."""
    numpy = _numpy()
    layout = memory.layout
    if numpy is not None:
        return numpy.asarray(memory)
    code = _FORMATS.get(layout.typestr.replace("=", "<"))
    if code is None or layout.strides is not None or sys.byteorder != "little":
        raise _lib.failure(
            _lib.ERR_UNSUPPORTED, f"cenote: elements of type {layout.dtype} need NumPy to be seen here"
        )
    buffer: Any = (ctypes.c_uint8 * layout.extent).from_address(memory.address)
    buffer.keeper = memory.keeper
    view: Any = memoryview(buffer)
    if layout.count:
        view = view.cast("B").cast(code, list(layout.shape))
    return view if memory.writable else view.toreadonly()


class Source:
    """An array of the program's that is to be shared: where it lies, or how it is copied."""

    __slots__ = ("layout", "device_address", "device_stream", "_array", "_is_numpy")

    def __init__(self, name: str, array: Any) -> None:
        """ValueError names the array."""
        self.device_address: Optional[int] = None
        self.device_stream = 0
        self._array = array
        self._is_numpy = False
        if hasattr(array, "__cuda_array_interface__"):
            self._from_device(name, array.__cuda_array_interface__)
        elif hasattr(array, "__array_interface__") and _numpy() is not None:
            self._from_numpy(name)
        else:
            self._from_buffer(name)

    def _from_device(self, name: str, said: Dict[str, Any]) -> None:
        layout = Layout(said["typestr"], tuple(said["shape"]), said.get("strides"))
        if not layout.itemsize:
            raise ValueError(f"array {name!r} has elements of type {said['typestr']}")
        if layout.strides is not None and layout.extent != layout.count * layout.itemsize:
            raise ValueError(f"array {name!r} has gaps between its elements: share a contiguous copy")
        self.layout = layout
        self.device_address = said["data"][0]
        self.device_stream = said.get("stream") or 0

    def _from_numpy(self, name: str) -> None:
        self._array = _numpy().asarray(self._array)
        dtype = self._array.dtype
        if dtype.hasobject or dtype.fields or dtype.subdtype or not _itemsize(dtype.str):
            if dtype.name not in NAMED_TYPES:
                raise ValueError(f"array {name!r} has elements of type {dtype}, which cannot be shared")
        kind = dtype.name if dtype.name in NAMED_TYPES else dtype.str
        self.layout = Layout(kind, self._array.shape)
        self._is_numpy = True

    def _from_buffer(self, name: str) -> None:
        try:
            view = memoryview(self._array)
        except TypeError:
            raise ValueError(
                f"array {name!r} is a {type(self._array).__name__}: expected an array or a buffer"
            ) from None
        typestr = _TYPESTRS.get(view.format.lstrip("@"))
        if typestr is None or sys.byteorder != "little":
            raise ValueError(f"array {name!r} has elements of format {view.format!r}")
        self.layout = Layout(typestr, tuple(view.shape or ()))
        self._array = view

    def host_copy(self) -> Tuple[int, Any]:
        """The address of the elements in C order, and what keeps them there."""
        if self._is_numpy:
            array = _numpy().ascontiguousarray(self._array)
            return array.ctypes.data, array
        buffer = ctypes.create_string_buffer(self._array.tobytes(), self.layout.extent)
        return ctypes.addressof(buffer), buffer

    def put(self, memory: Memory) -> None:
        """Copies the elements to host memory that this process can write."""
        if not self.layout.count:
            return
        if self._is_numpy:
            host_array(memory)[...] = self._array.view(memory_dtype(memory))
        else:
            ctypes.memmove(memory.address, self._array.tobytes(), self.layout.extent)


def memory_dtype(memory: Memory) -> Any:
    """NumPy's dtype of the elements there."""
    return _numpy().dtype(memory.layout.typestr)
