"""cenote: a GPU memory runtime. A thin face over libcenote.so; docs/python.md is the guide.

Device and Pool are cenote's own pool from Python; `trace` records what a process does; explain says
why memory ran out. cenote.torch, cenote.cupy and cenote.numba put the pool behind those frameworks.
"""

from cenote import trace
from cenote._device import Device, DeviceProps, MemoryInfo, device_count
from cenote._explain import Explanation, explain
from cenote._lib import Error, OutOfMemoryError, library
from cenote._pool import Block, BlockState, Pool, PoolStats

__all__ = [
    "Block",
    "BlockState",
    "Device",
    "DeviceProps",
    "Error",
    "Explanation",
    "MemoryInfo",
    "OutOfMemoryError",
    "Pool",
    "PoolStats",
    "__version__",
    "device_count",
    "explain",
    "trace",
]

__version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":  # the library's, loaded when it is first needed
        return str(library().cen_version().decode())
    raise AttributeError(f"module 'cenote' has no attribute {name!r}")
