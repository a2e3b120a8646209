"""CuPy on cenote's pool: cenote.cupy.enable().

Which stream an allocation is for. CuPy's allocator interface has no stream; what CuPy means is the
current stream of the calling thread (cupy.cuda.get_current_stream()), as its own pool does. So
enable() reads it at each allocation, and a block is freed in the name of the stream that it was
allocated for, whatever is current when its last array dies. An array used on another stream is the
program's to order, as it is with CuPy's own pool.

The pool may record an event on a stream long after the last block on it was freed, so a stream must
not be destroyed before the pool is told. CuPy destroys a stream when its object dies. So the object
of each stream that was allocated for is kept, until nothing else refers to it and none of its blocks
is live; then the pool is told, and the object let go. That is looked at when a new stream turns up.
"""

import ctypes
import gc
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from cenote import _lib
from cenote._device import Device
from cenote._pool import Pool

_LEGACY_DEFAULT = 1  # cudaStreamLegacy: 0 by another name
_PER_THREAD_DEFAULT = 2  # cudaStreamPerThread: another stream in each thread

_before: List[Any] = []  # the allocators that enable() replaced


READINGS = ("current", "default")

_Maker = Callable[[int, _lib.OutOfMemoryError], Exception]


def _handle(stream: Any) -> int:
    """What a stream of CuPy's is called in the pool."""
    handle = int(stream.ptr)
    if handle == _PER_THREAD_DEFAULT:
        raise _lib.Error(
            "cenote.cupy: the per-thread default stream is another one in each thread, and has no name "
            "of its own: use cupy.cuda.Stream(), or unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"
        )
    return 0 if handle == _LEGACY_DEFAULT else handle


class _Stream:
    """A stream that blocks were allocated for, and the object that keeps it from being destroyed."""

    __slots__ = ("handle", "keeper")

    def __init__(self, handle: int, keeper: object) -> None:
        self.handle = handle
        self.keeper = keeper


class _Table:
    """The pool of one device, the streams that it knows and the blocks that are live."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.streams: Dict[int, _Stream] = {}
        self.blocks: Dict[int, _Stream] = {}

    def stream_of(self, keeper: Any) -> _Stream:
        handle = _handle(keeper)
        stream = self.streams.get(handle)
        if stream is None:
            self.let_go()
            stream = self.streams.setdefault(handle, _Stream(handle, keeper))
        return stream

    def let_go(self) -> None:
        """Tells the pool of streams that nobody but this table refers to, and forgets them."""
        busy = {stream.handle for stream in list(self.blocks.values())}
        for stream in list(self.streams.values()):
            # Two references: the attribute, and the argument of getrefcount.
            if stream.handle and stream.handle not in busy and sys.getrefcount(stream.keeper) <= 2:
                if self.streams.pop(stream.handle, None):  # else another thread does it
                    self.pool.release_stream(stream.handle)


class Allocator:
    """What enable() puts behind CuPy: a pool for each device, made at the first allocation there.

    `current_stream` gives the stream that the calling thread allocates for, as an object with the
    handle in `ptr`; `device` is the name of a device with {} for its number.
    """

    def __init__(
        self,
        current_stream: Callable[[], Any],
        *,
        device: str = "cuda:{}",
        pools: Optional[Mapping[int, Pool]] = None,
        limit: Optional[int] = None,
    ) -> None:
        self._current_stream = current_stream
        self._device = device
        self._limit = limit or 0
        self._tables = {number: _Table(pool) for number, pool in (pools or {}).items()}

    def pool(self, device: int = 0) -> Pool:
        """The pool of a device, made if there is none yet."""
        return self._table(device).pool

    def _table(self, device: int) -> _Table:
        table = self._tables.get(device)
        if table is None:
            pool = Pool(self._device.format(device), limit=self._limit)
            table = self._tables.setdefault(device, _Table(pool))
            if table.pool is not pool:  # another thread was faster
                pool.close()
        return table

    def malloc(self, size: int, device: int) -> int:
        """As CuPy's PythonFunctionAllocator calls it. cenote.OutOfMemoryError."""
        table = self._table(device)
        keeper = self._current_stream()
        stream = table.stream_of(keeper)
        try:
            address = table.pool.alloc(size, stream.handle)
        except _lib.OutOfMemoryError:
            gc.collect()  # arrays in cycles hold memory, too
            address = table.pool.alloc(size, stream.handle)
        table.blocks[address] = stream
        return address

    def free(self, address: int, device: int) -> None:
        """As CuPy's PythonFunctionAllocator calls it: from any thread, at any time."""
        table = self._tables[device]
        table.pool.free(address, table.blocks.pop(address).handle)


def _errors(cupy: Any) -> _Maker:
    """Makes an exception that is CuPy's OutOfMemoryError as well as cenote's."""
    theirs: Any = cupy.cuda.memory.OutOfMemoryError

    class OutOfMemoryError(_lib.OutOfMemoryError, theirs):  # type: ignore[misc]
        def __init__(self, message: str, status: int = 0, name: str = "", size: int = 0) -> None:
            _lib.Error.__init__(self, message, status, name)
            self._size, self._total, self._limit = size, -1, 0

        def __reduce__(self) -> Tuple[Any, ...]:  # the class is made at run time: pickle the base
            return _lib.OutOfMemoryError, (str(self), self.status, self.name)

    def made(size: int, error: _lib.OutOfMemoryError) -> Exception:
        return OutOfMemoryError(str(error), error.status, error.name, size)

    return made


def _current(cupy: Any, allocator: Allocator, made: _Maker) -> Callable[[int], Any]:
    """CuPy's allocation function for enable(stream="current")."""

    def malloc(size: int, device: int) -> int:
        try:
            return allocator.malloc(size, device)
        except _lib.OutOfMemoryError as error:
            raise made(size, error) from None

    function: Callable[[int], Any] = cupy.cuda.PythonFunctionAllocator(
        malloc, allocator.free
    ).malloc
    return function


def _default(cupy: Any, allocator: Allocator, made: _Maker) -> Callable[[int], Any]:
    """The same for enable(stream="default"): no Python between CuPy and the pool, until it fails."""
    table = _lib.FrameworksPools()
    lib = _lib.library()
    functions = cupy.cuda.CFunctionAllocator(
        ctypes.addressof(table),
        ctypes.cast(lib.cen_frameworks_malloc, ctypes.c_void_p).value,
        ctypes.cast(lib.cen_frameworks_free, ctypes.c_void_p).value,
        (table, allocator),
    )
    malloc: Callable[[int], Any] = functions.malloc

    def checked(size: int) -> Any:
        pointer = malloc(size)
        if pointer.ptr or not size:
            return pointer
        _handle(cupy.cuda.get_current_stream())  # refuses the per-thread default stream
        device = cupy.cuda.runtime.getDevice()
        pool = allocator.pool(device)
        table.pools[device] = pool.handle
        gc.collect()  # arrays in cycles hold memory, too
        try:  # CuPy takes NULL for an address: ask in a way that says why
            pool.free(pool.alloc(size))
        except _lib.OutOfMemoryError as error:
            raise made(size, error) from None
        pointer = malloc(size)
        if not pointer.ptr:
            raise made(size, _lib.OutOfMemoryError(f"cenote.cupy: no room for {size} bytes"))
        return pointer

    return checked


def enable(
    pools: Optional[Mapping[int, Pool]] = None,
    limit: Optional[int] = None,
    *,
    stream: str = "current",
) -> Allocator:
    """Puts cenote's pool behind CuPy's arrays, for all threads.

    `pools`: pools to use, by device number; another device gets one of its own at its first
    allocation, which holds at most `limit` bytes. `stream`: "current", as this module says above; or
    "default", only for programs whose work is all on the default stream: that is faster by the time
    that Python takes to look. Arrays made before stay where they are. When memory runs out, what is
    raised is a cupy.cuda.memory.OutOfMemoryError, a cenote.OutOfMemoryError and a MemoryError in one.
    """
    import cupy

    if stream not in READINGS:
        raise ValueError(f"stream is one of {', '.join(READINGS)}, not {stream!r}")
    allocator = Allocator(cupy.cuda.get_current_stream, pools=pools, limit=limit)
    function = (_current if stream == "current" else _default)(cupy, allocator, _errors(cupy))
    _before.append(cupy.cuda.get_allocator())
    cupy.cuda.set_allocator(function)
    return allocator


def disable() -> None:
    """Puts back the allocator that the last enable() replaced. Arrays on the pool stay valid."""
    import cupy

    if _before:
        cupy.cuda.set_allocator(_before.pop())
