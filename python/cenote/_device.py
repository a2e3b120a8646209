"""A device and its streams."""

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import NamedTuple, Optional

from cenote import _lib
from cenote._lib import check, library
from cenote._owned import Handle


class MemoryInfo(NamedTuple):
    """Bytes free now, whoever holds the others, and in all."""

    free: int
    total: int


@dataclass(frozen=True)
class DeviceProps:
    """cen_device_props: what a device is. Sizes are in bytes."""

    name: str
    uuid: str
    ordinal: int
    total_bytes: int
    granularity: int
    vmm: bool
    export_fd: bool
    rdma: bool
    compute_capability: int
    multiprocessors: int


def device_count(backend: str = "cuda") -> int:
    """How many devices a backend ("cuda" or "host") has; 0 without a driver."""
    count = ctypes.c_int()
    check(library().cen_device_count(_lib.c_text("backend", backend), byref(count)))
    return count.value


class Device(Handle):
    """A device: "cuda", "cuda:N", "host" or "host:N". The host backend behaves like a device on any
    machine; each Device of it is a card of its own, with `capacity` bytes (None: as the environment
    says).

    Any thread may use it. It must outlive what was made on it; close() waits for its streams.
    """

    def __init__(self, name: str = "cuda", *, capacity: Optional[int] = None) -> None:
        handle = ctypes.c_void_p()
        if capacity is None:
            check(library().cen_device_open(_lib.c_text("the name", name), byref(handle)))
        else:
            backend, _, ordinal = name.partition(":")
            if backend != "host" or not (ordinal or "0").isdecimal():
                raise ValueError(f"only a host device has a capacity to set, not {name!r}")
            options = _lib.HostOptions(size=ctypes.sizeof(_lib.HostOptions), capacity=capacity)
            check(library().cen_device_open_host(int(ordinal or 0), byref(options), byref(handle)))
        self.name = name
        self._handle = handle.value

    @property
    def _title(self) -> str:
        return f"device {self.name}"

    @property
    def props(self) -> DeviceProps:
        raw = _lib.DeviceProps()
        check(library().cen_device_get_props(self.handle, byref(raw)))
        return DeviceProps(
            name=raw.name.decode(errors="replace"),
            uuid=raw.uuid.decode(),
            ordinal=raw.ordinal,
            total_bytes=raw.total_bytes,
            granularity=raw.granularity,
            vmm=raw.vmm,
            export_fd=raw.export_fd,
            rdma=raw.rdma,
            compute_capability=raw.compute_capability,
            multiprocessors=raw.multiprocessors,
        )

    def mem_info(self) -> MemoryInfo:
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        check(library().cen_device_mem_info(self.handle, byref(free), byref(total)))
        return MemoryInfo(free.value, total.value)

    def create_stream(self, priority: int = 0) -> int:
        """A stream's handle: on CUDA a CUstream. destroy_stream() ends it."""
        stream = ctypes.c_size_t()
        check(library().cen_stream_create(self.handle, priority, byref(stream)))
        return stream.value

    def destroy_stream(self, stream: int) -> None:
        """Work in it finishes. Tell the pools that know it first: Pool.release_stream()."""
        check(library().cen_stream_destroy(self.handle, stream))

    def synchronize(self, stream: int = 0) -> None:
        """Waits for all work in a stream."""
        check(library().cen_stream_sync(self.handle, stream))

    def fill(self, address: int, value: int, size: int, stream: int = 0) -> None:
        """Sets `size` bytes of device memory to `value`, in stream order."""
        check(library().cen_fill_async(self.handle, address, value, size, stream))

    def copy(self, dst: int, src: int, size: int, stream: int = 0) -> None:
        """Copies between device, pinned and pageable memory by address, in stream order; pageable
        memory must stay until the stream got there."""
        check(library().cen_copy_async(self.handle, dst, src, size, stream))

    def close(self) -> None:
        """Waits for its streams, then releases what is left. Once is enough; twice does no harm."""
        if self._handle is not None:
            library().cen_device_close(self._handle)
            self._handle = None

    def __repr__(self) -> str:
        return f"<cenote.Device {self.name}{self._state()}>"
