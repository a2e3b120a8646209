"""cenote beneath PyTorch: its pools in the place of torch's caching allocator.

    import cenote.torch
    cenote.torch.enable()          # before the GPU is first used

From then on torch's memory comes from cenote's pool, one a device: idle memory is mapped to where it
is wanted instead of being held in holes, and what torch.cuda says of memory (memory_stats,
memory_summary, memory snapshots, peaks, memory fractions, empty_cache) is said of it. Streams,
record_stream, CUDA graphs, torch.compile and mempools work as they do with torch's own allocator.
When memory runs out, torch.OutOfMemoryError says why in the words of `cenote explain`.

cenote.torch.share and open let processes have tensors in common, share_queues makes queues do so; that
needs no enable().

`with cenote.torch.pool():` puts cenote beneath a torch.cuda.MemPool instead, where torch caches above
it. docs/python.md has the rest.
"""

import atexit
import contextlib
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64, c_void_p
from typing import Any, Dict, Iterator, Optional, Union

import torch

from cenote import _lib
from cenote.torch._build import BuildError, shim
from cenote.torch._queues import share_memory_, share_queues
from cenote.torch._share import Tensors, open, share

__all__ = [
    "BuildError",
    "Tensors",
    "enable",
    "enabled",
    "open",
    "pool",
    "pool_stats",
    "share",
    "share_memory_",
    "share_queues",
    "step",
]

#: Blocks from this size on are noted with the Python stack that asked for them: stacks="large".
LARGE_BYTES = 1 << 20

_STACKS = {"none": 2**64 - 1, "large": LARGE_BYTES, "all": 1}

_shim: Optional[ctypes.CDLL] = None
_enabled = False


def _load() -> ctypes.CDLL:
    global _shim
    if _shim is None:
        _lib.library()
        lib = ctypes.CDLL(shim())
        lib.cenote_torch_enable.restype = c_char_p
        lib.cenote_torch_enable.argtypes = [c_uint64, c_uint64, c_char_p]
        lib.cenote_torch_pool.restype = c_void_p
        lib.cenote_torch_pool.argtypes = [c_int, POINTER(c_char_p)]
        lib.cenote_torch_step.restype = None
        lib.cenote_torch_step.argtypes = []
        _shim = lib
    return _shim


def _ledger_path() -> Optional[bytes]:
    """Where `cenote run` and `cenote holders` look for it; None: it stays within the process."""
    folder = ctypes.create_string_buffer(4096)
    if _lib.library().cen_ledger_dir(folder, c_uint64(len(folder))):
        return None
    return os.path.join(folder.value, b"%d-torch.ledger" % os.getpid())


def _forget(path: bytes) -> None:
    """A ledger is of no use once its process has ended well, but to `cenote run`, which removes it."""
    if not os.path.basename(os.path.dirname(path)).startswith(b"run-"):
        with contextlib.suppress(OSError):
            os.unlink(path)


def enable(
    limit: Optional[int] = None, stacks: str = "large", trace: Optional[Union[str, os.PathLike[str]]] = None
) -> None:
    """Puts cenote in the place of torch's CUDA allocator, for the process.

    limit: the most that it may hold of each device, in bytes; None: all there is.
    torch.cuda.set_per_process_memory_fraction sets the same later.
    stacks: which blocks are noted with the Python line that asked for them, for the words of an
    out-of-memory error and for leaks: "large" (1 MiB and more), "all" or "none".
    trace: a file that the pool's history is written to, for `cenote explain` and `replay`.

    RuntimeError: CUDA is initialised already (in a notebook, restart the kernel), another allocator
    was set before, or an argument is wrong; BuildError: the shim cannot be built here. Called again
    it does nothing. Call it from the main thread.
    """
    global _enabled
    if _enabled:
        return
    if stacks not in _STACKS:
        raise RuntimeError(f"cenote.torch.enable: stacks={stacks!r}: expected one of {sorted(_STACKS)}")
    if limit is not None and limit <= 0:
        raise RuntimeError(f"cenote.torch.enable: limit={limit}: expected bytes, more than 0")
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "cenote.torch.enable: CUDA is initialised already: call it before the first use of the "
            "GPU; in a notebook, restart the kernel"
        )
    lib = _load()
    path = None if stacks == "none" else _ledger_path()
    error = lib.cenote_torch_enable(limit or 0, _STACKS[stacks], path)
    if error:
        raise RuntimeError(f"cenote.torch.enable: {error.decode(errors='replace')}")
    _enabled = True
    if path:
        atexit.register(_forget, path)
    if trace is not None:
        _start_trace(_lib.c_text("trace", os.fsencode(trace)))


def _start_trace(path: bytes) -> None:
    library = _lib.library()
    options = _lib.TraceOptions(size=ctypes.sizeof(_lib.TraceOptions))
    options.stack_fn = ctypes.cast(library.cen_trace_python_frames, c_void_p)
    _lib.check(library.cen_trace_start(path, byref(options)))
    atexit.register(library.cen_trace_stop)


def enabled() -> bool:
    """Whether enable() was called."""
    return _enabled


def step() -> None:
    """Marks the end of an iteration, for traces, `cenote run --watch` and leak reports."""
    if _enabled:
        _load().cenote_torch_step()
    else:
        _lib.library().cen_trace_step()


def pool_stats(device: Optional[int] = None) -> Dict[str, Any]:
    """The figures of the pool behind a device (the current one if none is given): the fields of
    cen_pool_stats, bytes and counts."""
    if not _enabled:
        raise RuntimeError("cenote.torch.pool_stats: call cenote.torch.enable() first")
    index = torch.cuda.current_device() if device is None else int(device)
    error = c_char_p()
    handle = _load().cenote_torch_pool(index, byref(error))
    if not handle:
        raise RuntimeError((error.value or b"").decode(errors="replace"))
    stats = _lib.PoolStats()
    _lib.check(_lib.library().cen_pool_get_stats(handle, byref(stats)))
    values = {name: getattr(stats, name) for name, *_ in stats._fields_}
    return {k: list(v) if isinstance(v, ctypes.Array) else v for k, v in values.items()}


@contextlib.contextmanager
def pool(device: Optional[Union[int, str, "torch.device"]] = None) -> Iterator["torch.cuda.MemPool"]:
    """A context in which this thread's tensors come from a torch.cuda.MemPool over cenote's pool.

    torch caches above it: its segments are cenote's blocks, and what torch gives back is used for
    others. Works beside torch's own allocator and after CUDA was initialised, with the versions of
    torch that enable() takes. The value is the MemPool; torch keeps its memory as long as that lives.
    """
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        shim(), "cenote_torch_beneath_alloc", "cenote_torch_beneath_free"
    )
    _load()
    mempool = torch.cuda.MemPool(allocator.allocator())
    # The MemPool refers to the allocator, which has to outlive it.
    mempool._cenote_allocator = allocator
    with torch.cuda.use_mem_pool(mempool, device):
        yield mempool
