"""Numba on cenote's pool: an External Memory Management plug-in.

    NUMBA_CUDA_MEMORY_MANAGER=cenote.numba python program.py

or cenote.numba.enable() before the first use of a device.

Which stream an allocation is for. The interface has no stream, and neither has Numba's own contract:
it frees with cuMemFree, which waits for the device, so a program may use an array on any stream, drop
it at once, and use a new one on any other. Two readings are offered.
- "any" (the default) keeps that contract. Freed blocks are gathered, by Numba's own measure of how
  many (NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT, _RATIO); then the context is synchronised once, and all
  go back to the pool, idle for every stream. They go back too when memory runs out.
- "default" is for programs that use one stream, the default one: a block is freed at once, for reuse
  by later work on that stream, and nothing waits. Of blocking streams too it is not enough that they
  wait for the default stream's work: a block may go from one of them to another with none between.
"""

import contextlib
import ctypes
import gc
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Iterator, Optional, Tuple

from numba import cuda
from numba.core import config
from numba.cuda.cudadrv import driver

from cenote import _lib
from cenote._pool import Pool

READINGS = ("any", "default")


def _pointer(address: int) -> Any:
    """An address as this Numba passes them: a type of cuda-bindings', or of ctypes'."""
    if getattr(driver, "USE_NV_BINDING", True):
        return driver.binding.CUdeviceptr(address)
    return ctypes.c_uint64(address)


def _finalizer(manager: "CenoteMemoryManager", pool: Pool, block: Tuple[int, int]) -> Callable[[], None]:
    """Gives a block back, if its pool is still there when its array is not."""
    of = weakref.ref(manager)

    def free() -> None:
        manager = of()
        if manager is not None and not pool.closed:
            manager.take_back(block)

    return free


class CenoteMemoryManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Device memory from a pool of cenote's, one for each context; pinned memory as in Numba."""

    #: Which stream allocations are for: one of READINGS. enable() sets it.
    stream = "any"
    #: Most bytes that each pool may hold of its device; 0: no limit.
    limit = 0
    #: The name of a device, with {} for its number.
    device = "cuda:{}"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pool: Optional[Pool] = None
        self._lock = threading.RLock()
        self._gathered: Deque[Tuple[int, int]] = deque()  # address and size of freed blocks
        self._deferred = 0

    @property
    def interface_version(self) -> int:
        return 1

    @property
    def pool(self) -> Pool:
        """The context's pool, made when it is first needed."""
        with self._lock:
            if self._pool is None:
                name = self.device.format(self.context.device.id)
                self._pool = Pool(name, limit=self.limit)
            return self._pool

    def initialize(self) -> None:
        """Numba calls it whenever the context becomes current; the pool is made later."""

    def memalloc(self, size: int) -> Any:
        """A MemoryPointer. cenote.OutOfMemoryError, which is a MemoryError."""
        pool = self.pool
        try:
            address = pool.alloc(size)
        except _lib.OutOfMemoryError:
            gc.collect()  # arrays in cycles hold memory, too
            self.give_back()
            address = pool.alloc(size)
        return cuda.MemoryPointer(
            weakref.proxy(self.context),
            _pointer(address),
            size,
            finalizer=_finalizer(self, pool, (address, size)),
        )

    def take_back(self, block: Tuple[int, int]) -> None:
        """A block whose array is gone."""
        if self.stream == "default":
            self.pool.free(block[0])
            return
        self._gathered.append(block)
        if not self._deferred and self._gathered_much():
            self.give_back()

    def _gathered_much(self) -> bool:
        if len(self._gathered) > config.CUDA_DEALLOCS_COUNT:
            return True
        total = self.limit or self.pool.device.props.total_bytes
        gathered = sum(size for _, size in list(self._gathered))
        return bool(gathered > total * config.CUDA_DEALLOCS_RATIO)

    def give_back(self) -> None:
        """Waits for the context's work once, then frees what was gathered. Does nothing within
        defer_cleanup()."""
        if self._deferred or not self._gathered:
            return
        with self._lock:  # who is out of memory waits until another thread's blocks are free
            blocks = []
            with contextlib.suppress(IndexError):
                while True:
                    blocks.append(self._gathered.popleft())
            try:
                self._synchronize()
            except BaseException:
                self._gathered.extend(blocks)
                raise
            for address, _ in blocks:
                self.pool.free(address)

    def _synchronize(self) -> None:
        """Arrays die in any thread: the context need not be current in this one."""
        self.context.push()
        try:
            self.context.synchronize()
        finally:
            self.context.pop()

    def get_ipc_handle(self, memory: Any) -> Any:
        raise NotImplementedError(
            "cenote.numba: memory of a pool has no CUDA IPC handle (its pages are mapped one by one)"
        )

    def get_memory_info(self) -> Any:
        """Bytes that can be allocated (free on the device, and idle in the pool), and the device's."""
        free, total = self.pool.device.mem_info()
        stats = self.pool.stats()
        idle = stats.reserved_bytes - stats.allocated_bytes
        if self.limit:
            free = min(free, max(self.limit - stats.reserved_bytes, 0))
        return cuda.MemoryInfo(free=free + idle, total=total)

    def reset(self) -> None:
        """Gives all memory back; arrays that are still there have lost theirs."""
        super().reset()
        with self._lock:
            self._gathered.clear()
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Within it nothing is freed, and so nothing waits."""
        with super().defer_cleanup():
            self._deferred += 1
            try:
                yield
            finally:
                self._deferred -= 1


_numba_memory_manager = CenoteMemoryManager  # what NUMBA_CUDA_MEMORY_MANAGER=cenote.numba looks for


def enable(stream: str = "any", limit: Optional[int] = None) -> None:
    """Makes Numba take device memory from cenote's pool. Before the first use of a device: a context
    keeps the manager that it was made with (cenote.Error if there is one already).

    `stream`: "any" or "default", as this module says above; `limit`: most bytes to hold of a device.
    """
    if stream not in READINGS:
        raise ValueError(f"stream is one of {', '.join(READINGS)}, not {stream!r}")
    if any(device.primary_context for device in driver.driver.devices.values()):
        raise _lib.Error("cenote.numba: Numba has used a device already: enable it before")
    CenoteMemoryManager.stream = stream
    CenoteMemoryManager.limit = limit or 0
    cuda.set_memory_manager(CenoteMemoryManager)
