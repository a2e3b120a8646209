"""The local pool: one device's memory, given out in stream order."""

import ctypes
import enum
from ctypes import byref
from dataclasses import dataclass
from typing import Any, List, Union

from cenote import _lib
from cenote._device import Device
from cenote._lib import check, library
from cenote._owned import Handle


class BlockState(enum.IntEnum):
    """cen_pool_block_state."""

    LIVE = 0
    PENDING = 1  #: freed, a stream still uses it
    FREE = 2
    LOST = 3  #: on borrowed memory whose device was lost


@dataclass(frozen=True)
class Block:
    """A block or a free range of a pool (cen_pool_block_info)."""

    address: int
    bytes: int
    requested_bytes: int
    stream: int
    private_id: int
    state: BlockState


@dataclass(frozen=True)
class PoolStats:
    """cen_pool_stats, in bytes and counts. requested: asked for and live; allocated: the same,
    rounded up to blocks; reserved: held from the driver."""

    requested_bytes: int
    requested_peak_bytes: int
    allocated_bytes: int
    allocated_peak_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    private_reserved_bytes: int
    borrowed_bytes: int
    blocks: int
    allocs: int
    frees: int
    failures: int
    pending_blocks: int
    pending_bytes: int
    largest_free_bytes: int
    pages: int
    segments: int
    driver_calls: int
    driver_ns: int
    remapped_bytes: int
    retries: int
    defragmentations: int
    moved_bytes: int


_STATS = tuple(PoolStats.__dataclass_fields__)


class Pool(Handle):
    """A pool on a device (a Device, which must outlive it, or the name of one that the pool opens and
    closes). `limit`: most bytes to hold of the device; `preallocate`: bytes to reserve at once.

    Addresses are integers. A block freed on a stream is reused at once by later work on that stream;
    another stream gets it behind an event. Any thread may call. Use it with `with`, or close() it:
    close() waits for the work it knows of and gives all memory back, also that of live blocks.
    """

    def __init__(
        self,
        device: Union[Device, str] = "cuda",
        *,
        limit: int = 0,
        preallocate: int = 0,
    ) -> None:
        """ValueError: a size is negative, or `device` is neither a Device nor a name; Error."""
        if not isinstance(device, (Device, str)):
            raise ValueError(f"device is {device!r}: expected a Device or a name such as 'cuda:0'")
        _lib.count_of("limit", limit)
        _lib.count_of("preallocate", preallocate)
        self._owns_device = isinstance(device, str)
        self.device = Device(device) if isinstance(device, str) else device
        options = _lib.PoolOptions(
            size=ctypes.sizeof(_lib.PoolOptions), limit_bytes=limit, preallocate_bytes=preallocate
        )
        handle = ctypes.c_void_p()
        try:
            check(library().cen_pool_create(self.device.handle, byref(options), byref(handle)))
        except BaseException:
            if self._owns_device:
                self.device.close()
            raise
        self._handle = handle.value
        self._alloc = library().cen_pool_alloc
        self._free = library().cen_pool_free

    @property
    def _title(self) -> str:
        return "the pool"

    def alloc(self, size: int, stream: int = 0) -> int:
        """The address of a new block for work on `stream`; 0 for 0 bytes. OutOfMemoryError."""
        _lib.count_of("size", size)
        block = ctypes.c_void_p()
        check(self._alloc(self.handle, size, stream, byref(block)))
        return block.value or 0

    def free(self, address: int, stream: int = 0) -> None:
        """Frees a block for reuse after the work submitted so far to `stream`. 0 is ignored. Error:
        it is no live block of this pool."""
        check(self._free(self.handle, address, stream))

    def use(self, address: int, stream: int) -> None:
        """Says that work submitted to `stream` uses the block: no reuse before it is done."""
        check(library().cen_pool_use(self.handle, address, stream))

    def release_stream(self, stream: int) -> None:
        """Says that a stream is about to be destroyed; its idle memory goes to the others."""
        check(library().cen_pool_stream_release(self.handle, stream))

    def set_limit(self, limit: int) -> None:
        """Sets the most bytes to hold (0: no limit). Holding more already only stops growth."""
        check(library().cen_pool_set_limit(self.handle, limit))

    def trim(self, keep: int = 0, *, wait: bool = False) -> int:
        """Returns idle pages to the driver until at most `keep` bytes are reserved, after waiting for
        pending work if `wait`. Gives the bytes returned."""
        returned = ctypes.c_uint64()
        check(library().cen_pool_trim(self.handle, keep, wait, byref(returned)))
        return returned.value

    def stats(self) -> PoolStats:
        raw: Any = _lib.PoolStats()
        check(library().cen_pool_get_stats(self.handle, byref(raw)))
        return PoolStats(**{name: getattr(raw, name) for name in _STATS})

    def reset_peaks(self) -> None:
        """Sets the peaks in stats() to the current values."""
        check(library().cen_pool_reset_peaks(self.handle))

    def blocks(self) -> List[Block]:
        """Every block and free range now, by address within a segment."""
        count = ctypes.c_size_t()
        check(library().cen_pool_list(self.handle, None, 0, byref(count)))
        while True:
            room = count.value
            infos = (_lib.PoolBlockInfo * room)()
            check(library().cen_pool_list(self.handle, infos, room, byref(count)))
            if count.value <= room:
                break
        return [
            Block(i.addr, i.bytes, i.requested_bytes, i.stream, i.private_id, BlockState(i.state))
            for i in infos[: count.value]
        ]

    def verify(self) -> None:
        """Checks every invariant of the pool. Error: one is broken; the message names it."""
        check(library().cen_pool_verify(self.handle))

    def close(self) -> None:
        """Waits for all uses that the pool knows of and returns everything to the driver."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                check(library().cen_pool_destroy(handle))
            finally:
                if self._owns_device:
                    self.device.close()

    def __repr__(self) -> str:
        return f"<cenote.Pool on {self.device.name}{self._state()}>"
