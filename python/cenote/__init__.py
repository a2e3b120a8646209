"""cenote: a GPU memory runtime. A thin face over libcenote.so; docs/python.md is the guide.

Device and Pool are cenote's own pool from Python; share and open let processes have arrays in common;
`codec` keeps arrays in fewer bits, `calibrate` finds how far their scales reach, `compute` multiplies
them; `trace` records what a process does; explain says why memory ran out. cenote.torch, cenote.cupy and
cenote.numba put the pool behind those frameworks.
"""

from cenote import calibrate, codec, compute, trace
from cenote._device import Device, DeviceProps, MemoryInfo, device_count
from cenote._explain import Explanation, explain
from cenote._lib import Error, OutOfMemoryError, library
from cenote._pool import Block, BlockState, Pool, PoolStats
from cenote._share import Share, connect, open, revoke, share, watch, withdraw
from cenote._share_layout import DeviceArray
from cenote._share_objects import Export, Notice, NoticeKind, View

__all__ = [
    "Block",
    "BlockState",
    "Device",
    "DeviceArray",
    "DeviceProps",
    "Error",
    "Explanation",
    "Export",
    "MemoryInfo",
    "Notice",
    "NoticeKind",
    "OutOfMemoryError",
    "Pool",
    "PoolStats",
    "Share",
    "View",
    "__version__",
    "calibrate",
    "codec",
    "compute",
    "connect",
    "device_count",
    "explain",
    "open",
    "revoke",
    "share",
    "trace",
    "watch",
    "withdraw",
]

__version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":  # the library's, loaded when it is first needed
        return str(library().cen_version().decode())
    raise AttributeError(f"module 'cenote' has no attribute {name!r}")
