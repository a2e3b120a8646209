"""Tensors in queues, pipes and arguments of processes: cenote in the place of torch's reducers.

A tensor that is sent has its storage's memory moved into a set of this process once, as torch does
with CPU tensors. Each sending is a parcel: an export that the receiver alone opens. What a parcel
holds stays until it is opened and closed again, so the sender may drop the tensor, or end.
"""

import ctypes
import os
import threading
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch
from torch.multiprocessing import reductions

from cenote import _lib, _share, _share_core as core
from cenote._share_core import Item
from cenote.torch import _build
from cenote.torch._share import current_stream, device_name, storage_over, wait_for

#: Sets are at least so large; a larger storage gets one of its own.
SET_BYTES = 64 << 20

_taken: Set[str] = set()  # types of devices
_lock = threading.RLock()
_move: Optional[Callable[[int, int], None]] = None

# The live storages that lie in shared memory, by where: who gets one twice gets the same.
_storages: "weakref.WeakValueDictionary[Tuple[str, int, int], torch.UntypedStorage]"
_storages = weakref.WeakValueDictionary()


def _finished(device: torch.device) -> bool:
    """Waits for all work of a device, unless a graph is being captured."""
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            return False
        torch.cuda.synchronize(device)
    return True


class _Arena:
    """The sets of one device that storages are moved to. One without a block goes, but for the newest."""

    def __init__(self, connection: core.Connection, device: torch.device) -> None:
        self.connection = connection
        self._device = device
        self._sets: List["weakref.ref[core.Set]"] = []
        self._newest: Optional[core.Set] = None

    def _new(self, size: int) -> core.Set:
        target = self.connection.device(device_name(self._device))
        made = core.Set(self.connection, target, max(size, SET_BYTES))
        device = self._device
        made.finish = lambda: _finished(device)
        self._sets = [ref for ref in self._sets if ref() is not None] + [weakref.ref(made)]
        if size <= SET_BYTES:
            self._newest = made
        return made

    def alloc(self, size: int) -> core.Block:
        device = self._device
        for ref in reversed(self._sets):
            one = ref()
            if one is None or one.size < size:
                continue
            try:
                return core.Block(one, one.alloc(size), size, lambda: current_stream(device))
            except _lib.OutOfMemoryError:
                continue  # it is full
        one = self._new(size)
        return core.Block(one, one.alloc(size), size, lambda: current_stream(device))


_arenas: Dict[torch.device, _Arena] = {}


def _forked() -> None:
    global _lock
    _lock = threading.RLock()
    _arenas.clear()
    _storages.clear()


os.register_at_fork(after_in_child=_forked)


def _arena(connection: core.Connection, device: torch.device) -> _Arena:
    arena = _arenas.get(device)
    if arena is None or arena.connection is not connection:
        arena = _arenas[device] = _Arena(connection, device)
    return arena


def _mover() -> Callable[[int, int], None]:
    global _move
    if _move is None:
        _lib.library()
        function = ctypes.CDLL(_build.shim(_build.STORAGE)).cenote_torch_storage_move
        function.restype = None
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        _move = function
    return _move


def _block_of(storage: torch.UntypedStorage) -> Optional[core.Block]:
    """The block that a storage lies in; None: it is torch's. RuntimeError: it is another process's."""
    keeper = getattr(storage, "_cenote", None)
    if isinstance(keeper, core.Block) and keeper.address == storage.data_ptr():
        return keeper if keeper.set.connection.here else None
    if isinstance(keeper, (core.Lease, core.Set)):
        raise RuntimeError(
            "cenote.torch: the tensor lies in memory that was received, or that cenote.torch.share made: "
            "send a clone() of it, or the name that it is shared under"
        )
    return None


def _moved(storage: torch.UntypedStorage, connection: core.Connection) -> core.Block:
    """Sees to it that the storage lies in a block."""
    with _lock:
        block = _block_of(storage)
        if block is not None:
            return block
        move, device, size = _mover(), storage.device, storage.nbytes()
        block = _arena(connection, device).alloc(size)
        old = storage.data_ptr()
        if device.type == "cpu":
            ctypes.memmove(block.address, old, size)
        else:
            stream = torch.cuda.current_stream(device)
            block.set.device.copy(block.address, old, size, int(stream.cuda_stream))
            # The old memory goes when the copy has read it, also if it is another stream's.
            torch.empty(0, dtype=torch.uint8, device=device).set_(storage).record_stream(stream)
        move(storage._cdata, block.address)
        storage._cenote = block
        _storages[str(device), block.address, size] = storage
        return block


def share_memory_(tensor: torch.Tensor) -> torch.Tensor:
    """Moves a tensor's storage into shared memory, if it is not there yet; all tensors of the storage
    follow. The first sending does the same, on the thread that pickles.

    cenote.torch.BuildError; cenote.Error; cenote.OutOfMemoryError: there is no room beside the original.
    """
    storage = tensor.untyped_storage()
    if storage.nbytes():
        _moved(storage, _share.connect()._connection)
    return tensor


# ---- sending ----


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    device = storage.device
    if device.type not in _taken:
        return reductions.reduce_storage(storage)
    size = storage.nbytes()
    if not size:
        return _empty_storage, (str(device),)
    share = _share.connect()
    block = _moved(storage, share._connection)
    token = share._parcel(
        block,
        Item("", block.address, size, b""),
        core.access_list("me+write"),
        current_stream(device),
    )
    return _open_storage, (token, size, str(device))


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    plain = tensor.layout == torch.strided and not tensor.is_nested
    if not plain or tensor.device.type not in _taken:
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "cenote.torch: the tensor is the result of work that autograd records, which does not cross "
            "processes: send its detach()"
        )
    reductions.check_serializing_named_tensor(tensor)
    torch.utils.hooks.warn_if_has_hooks(tensor)
    said = (tensor.storage_offset(), tuple(tensor.size()), tensor.stride())
    bits = (tensor.requires_grad, tensor.is_conj(), tensor.is_neg())
    return _open_tensor, (type(tensor), tensor.untyped_storage(), tensor.dtype, said, bits)


# ---- receiving ----


def _empty_storage(device: str) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=device)


def _open_storage(token: str, size: int, device: str) -> torch.UntypedStorage:
    place = torch.device(device)
    connection = _share.connect()._connection
    lease = core.open_lease(
        connection,
        connection.device(device_name(place)),
        token,
        write=True,
        stream_of=lambda: current_stream(place),
    )
    wait_for(lease, place)
    (item,) = lease.items()
    if item.size != size:
        raise _lib.failure(_lib.ERR_FORMAT, f"cenote: a parcel has {item.size} bytes: expected {size}")
    with _lock:
        storage = _storages.get((device, item.address, size))
        if storage is None:
            storage = storage_over(item.address, size, place, lease)
            _storages[device, item.address, size] = storage
    return storage


def _open_tensor(
    kind: Any, storage: torch.UntypedStorage, dtype: torch.dtype, said: Any, bits: Any
) -> torch.Tensor:
    requires_grad, conj, neg = bits
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *said)
    tensor = tensor.conj() if conj else tensor
    tensor = torch._neg_view(tensor) if neg else tensor
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def share_queues(cpu: bool = False) -> None:
    """From now on, CUDA tensors in queues, pipes and arguments of (torch.)multiprocessing travel by
    cenote, with its allocator beneath torch or without; with `cpu`, CPU tensors too, through the host
    backend.

    At the first sending a tensor's memory is moved into shared memory, and all tensors that view it
    with it; it is not copied again. The receiver's tensors are of the same memory and may be written. The
    sender may drop what it sent, or end. Work of the receiver's current stream is ordered behind that of
    the sender's, which for a multiprocessing.Queue is its feeder thread's: the default stream.

    Each message is received once. What is never received stays until this process ends, and a minute
    after. A tensor that was received is sent on as a clone(). Each process that sends calls this; who
    only receives need not. cenote.torch.BuildError: the shim cannot be built here.
    """
    _mover()
    _taken.update(("cuda", "cpu") if cpu else ("cuda",))
    for kind in (torch.Tensor, torch.nn.Parameter, *torch._tensor_classes):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
