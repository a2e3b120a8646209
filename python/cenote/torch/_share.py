"""Tensors shared between processes, by name or token: cenote.torch.share and cenote.torch.open."""

import ctypes
import functools
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from cenote import _share, _share_core as core
from cenote._device import Device
from cenote._lib import Error
from cenote._lib import ERR_FORMAT, ERR_UNSUPPORTED, failure
from cenote._share_core import Item
from cenote._share_layout import NAMED_TYPES, Layout, parse
from cenote._share_objects import Export

_TYPES: Dict[str, torch.dtype] = {
    "|b1": torch.bool,
    "|u1": torch.uint8,
    "|i1": torch.int8,
    "<i2": torch.int16,
    "<i4": torch.int32,
    "<i8": torch.int64,
    "<f2": torch.float16,
    "<f4": torch.float32,
    "<f8": torch.float64,
    "<c8": torch.complex64,
    "<c16": torch.complex128,
    **{f"<u{n}": getattr(torch, f"uint{n * 8}") for n in (2, 4, 8) if hasattr(torch, f"uint{n * 8}")},
    **{name: getattr(torch, name) for name in NAMED_TYPES if hasattr(torch, name)},
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}

#: Where a storage begins is a multiple of this, so that tensors in it are aligned as they were.
_GRAIN = 512


def device_name(device: torch.device) -> str:
    """What cenote calls a device of torch's."""
    if device.type == "cpu":
        return "host:0"
    if device.type != "cuda":
        raise ValueError(f"tensors on {device} cannot be shared: expected cuda or cpu")
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def current_stream(device: torch.device) -> int:
    """The current stream of this thread on a device, as cenote knows it."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0


def storage_over(address: int, size: int, device: torch.device, keeper: object) -> torch.UntypedStorage:
    """A storage of memory that `keeper` keeps, which lives as long as the storage."""
    storage = torch._C._construct_storage_from_data_pointer(address, device, size)
    storage._cenote = keeper  # torch keeps the attributes of a storage as long as any tensor of it
    return storage


class _Kind(NamedTuple):
    """A layout in torch's words: strides in elements."""

    dtype: torch.dtype
    itemsize: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]


@functools.lru_cache(maxsize=4096)  # the parts of a model are of few kinds
def _kind(layout: Layout) -> _Kind:
    """ValueError says what torch has not."""
    dtype, size = _TYPES.get(layout.dtype), layout.itemsize
    if dtype is None:
        raise ValueError(f"torch {torch.__version__} has no type {layout.dtype}")
    if layout.strides is None:
        strides, step = [], 1
        for n in reversed(layout.shape):
            strides.append(step)
            step *= max(1, n)
        return _Kind(dtype, size, layout.shape, tuple(reversed(strides)))
    if any(s % size for s in layout.strides):
        raise ValueError(f"strides {layout.strides} are no multiples of its elements' {size} bytes")
    return _Kind(dtype, size, layout.shape, tuple(s // size for s in layout.strides))


def _kinds(items: Sequence[Item]) -> List[_Kind]:
    kinds = []
    for item in items:
        layout = parse(item.name, item.meta, item.size)
        try:
            kinds.append(_kind(layout))
        except ValueError as error:
            raise failure(ERR_UNSUPPORTED, f"cenote: shared item {item.name!r}: {error}") from None
    return kinds


def tensors_over(
    items: Sequence[Item], device: torch.device, keeper: object
) -> Dict[str, torch.Tensor]:
    """Tensors of items, without a copy. Items that overlap become tensors of one storage."""
    kinds = _kinds(items)
    order = sorted(range(len(items)), key=[item.address for item in items].__getitem__)
    # Making one of a tensor that is there is faster than torch.empty.
    types = {kind.dtype for kind in kinds}
    empties = {dtype: torch.empty(0, dtype=dtype, device=device).new_empty for dtype in types}
    made: Dict[str, torch.Tensor] = dict.fromkeys([item.name for item in items])  # in their order
    at = 0
    while at < len(order):
        _, begin, size, _ = items[order[at]]
        end, upto = begin + size, at + 1
        while upto < len(order) and items[order[upto]].address < end:
            end = max(end, items[order[upto]].address + items[order[upto]].size)
            upto += 1
        if upto > at + 1:  # of several types, maybe
            begin -= begin % _GRAIN
        storage = storage_over(begin, end - begin, device, keeper)
        for index in order[at:upto]:
            dtype, itemsize, shape, strides = kinds[index]
            offset, odd = divmod(items[index].address - begin, itemsize)
            if odd:
                raise failure(
                    ERR_FORMAT, f"cenote: shared item {items[index].name!r} overlaps another askew"
                )
            made[items[index].name] = empties[dtype](0).set_(storage, offset, shape, strides)
        at = upto
    return made


# ---- publishing ----


class _Spot(NamedTuple):
    """Where a tensor's elements lie now: what is copied, and what it is called by its readers."""

    name: str
    tensor: torch.Tensor  # contiguous, or without gaps
    address: int
    extent: int
    layout: Layout


def _spot(name: str, tensor: torch.Tensor) -> _Spot:
    """ValueError names the tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name!r} is a {type(tensor).__name__}: expected a tensor")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.dtype not in _NAMES:
        raise ValueError(f"tensor {name!r} ({tensor.layout}, {tensor.dtype}) cannot be shared")
    dense = tensor.detach().resolve_conj().resolve_neg()
    size, count = dense.element_size(), dense.numel()
    extent = size * (1 + sum((n - 1) * s for n, s in zip(dense.shape, dense.stride()))) if count else 0
    if extent > size * count:
        dense, extent = dense.contiguous(), size * count
    strides = None if dense.is_contiguous() else tuple(s * size for s in dense.stride())
    layout = Layout(_NAMES[dense.dtype], tuple(dense.shape), strides)
    return _Spot(name, dense, dense.data_ptr(), extent, layout)


class _Run(NamedTuple):
    """Bytes that are copied as they are: the tensors in them overlap, as tied weights do."""

    address: int
    size: int
    spots: List[_Spot]


def _runs(spots: Iterable[_Spot]) -> List[_Run]:
    runs: List[_Run] = []
    for spot in sorted(spots, key=lambda s: (s.extent == 0, s.address)):
        last = runs[-1] if runs else None
        if last is not None and spot.extent and spot.address < last.address + last.size:
            size = max(last.size, spot.address + spot.extent - last.address)
            runs[-1] = _Run(last.address, size, [*last.spots, spot])
        else:
            runs.append(_Run(spot.address, spot.extent, [spot]))
    return runs


def _named(what: Any) -> Mapping[str, torch.Tensor]:
    if isinstance(what, torch.nn.Module):
        named: Mapping[str, torch.Tensor] = what.state_dict(keep_vars=True)
    elif isinstance(what, Mapping):
        named = what
    else:
        named = {"": what}
    if not named:
        raise ValueError("there is no tensor in what is to be shared")
    return named


def _device_of(named: Mapping[str, torch.Tensor]) -> torch.device:
    devices: Dict[torch.device, str] = {}
    for name, tensor in named.items():
        if isinstance(tensor, torch.Tensor):
            devices.setdefault(tensor.device, name)
    if len(devices) > 1:
        said = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise ValueError(f"an export lies on one device: {said}")
    return next(iter(devices), torch.device("cpu"))


def _copy(target: Device, device: torch.device, runs: List[_Run], places: List[int], stream: int) -> None:
    for run, place in zip(runs, places):
        if not run.size:
            continue
        if device.type == "cpu":
            ctypes.memmove(place, run.address, run.size)
        else:
            target.copy(place, run.address, run.size, stream)


def share(
    what: Union[torch.Tensor, Mapping[str, torch.Tensor], torch.nn.Module],
    name: Optional[str] = None,
    *,
    access: core.Access = None,
    keep: bool = False,
    keep_older: bool = False,
    once: bool = False,
    into: bool = False,
    connection: Optional[_share.Share] = None,
) -> Export:
    """Copies a tensor, a dict of tensors (a state_dict) or a module's state_dict into shared memory of
    the device that they are on, once, and makes it known under `name`, or by its token alone.

    Tensors that overlap, as tied weights do, overlap for readers too. One with gaps between its
    elements becomes contiguous. CPU tensors go to the host backend. The copies are work of the current
    stream; readers are ordered behind it.

    into: the given tensors, or the module's, are then moved onto the shared memory, so that theirs can
    go. Other tensors that view the same memory do not follow: cenote.torch.share_memory_ does that.
    `arrays` of the Export are tensors of the shared memory. access, keep, keep_older, once:
    as for cenote.Share.share. connection: another than cenote.connect().

    ValueError: what is given cannot be shared; cenote.Error; cenote.OutOfMemoryError.
    """
    named = _named(what)
    device = _device_of(named)
    via = _share.connect() if connection is None else connection
    target = via._connection.device(device_name(device))
    listed = core.access_list(access)
    spots = {key: _spot(key, tensor) for key, tensor in named.items()}
    runs = _runs(spots.values())
    # Each run keeps its place within a grain, so that what was aligned in it stays so.
    begins = [run.address % _GRAIN if run.size else 0 for run in runs]
    *offsets, total = core.layout_of_blocks(b + run.size for b, run in zip(begins, runs))
    memory = core.Set(via._connection, target, total)
    base = memory.alloc(total)
    places = [base + offset + begin for offset, begin in zip(offsets, begins)]
    stream = current_stream(device)
    _copy(target, device, runs, places, stream)
    at = {
        spot.name: place + spot.address - run.address
        for run, place in zip(runs, places)
        for spot in run.spots
    }
    items = [Item(s.name, at[s.name], max(1, s.extent), s.layout.meta()) for s in spots.values()]
    export = via._export(
        memory,
        items,
        name,
        access=listed,
        keep=keep,
        keep_older=keep_older,
        once=once,
        stream=stream,
    )
    export.arrays = tensors_over(items, device, memory)
    if into:
        _replace(named, export.arrays, device)
    return export


def _replace(
    named: Mapping[str, torch.Tensor], by: Mapping[str, torch.Tensor], device: torch.device
) -> None:
    for key, tensor in named.items():
        if device.type == "cuda":  # its memory is read until the copy is done
            tensor.data.record_stream(torch.cuda.current_stream(device))
        tensor.data = by[key]


# ---- reading ----


class Tensors(Dict[str, torch.Tensor]):
    """Tensors of an export by name, and what it is: `name`, `version`, `id`."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], info: Any) -> None:
        super().__init__(tensors)
        self.name = (info.name or b"").decode(errors="surrogateescape")
        self.version = int(info.version)
        self.id = int(info.export_id)

    def load_into(self, module: torch.nn.Module, strict: bool = True) -> Any:
        """Makes them the module's parameters and buffers, without a copy. Parameters that the module
        has in two places stay one. The answer is load_state_dict's."""
        places: Dict[int, List[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            places.setdefault(id(parameter), []).append(name)
        answer = module.load_state_dict(self, strict=strict, assign=True)
        for first, *others in places.values():
            for other in others:
                path, _, leaf = other.rpartition(".")
                setattr(module.get_submodule(path), leaf, module.get_parameter(first))
        return answer


def _torch_device(device: Union[None, int, str, torch.device]) -> Optional[torch.device]:
    if device is None:
        return None
    given = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if given.type == "cuda" and given.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return given


def _lease(
    via: _share.Share, device: Optional[torch.device], what: str, write: bool, wait_ms: int
) -> Tuple[core.Lease, torch.device]:
    """The lease, on the device asked for; else on the current GPU, else on the host."""
    places = [device] if device is not None else [torch.device("cpu")]
    if device is None and torch.cuda.is_available():
        places.insert(0, torch.device("cuda", torch.cuda.current_device()))
    while True:
        place = places.pop(0)
        try:
            lease = core.open_lease(
                via._connection,
                via._connection.device(device_name(place)),
                what,
                write=write,
                wait_ms=wait_ms,
                stream_of=lambda: current_stream(place),
            )
            return lease, place
        except Error as error:
            if error.status != ERR_UNSUPPORTED or not places:
                raise


def wait_for(lease: core.Lease, device: torch.device) -> None:
    """Orders the current stream behind the publisher's work; the CPU has no stream but this thread."""
    stream = current_stream(device)
    lease.wait(stream)
    if device.type == "cpu":
        lease.device.synchronize(stream)


def open(  # noqa: A001
    what: str,
    device: Union[None, int, str, torch.device] = None,
    *,
    write: bool = False,
    wait: Optional[float] = None,
    connection: Optional[_share.Share] = None,
) -> Any:
    """Opens what is shared under a name (the newest version), "name@version" or a token: a tensor, or
    Tensors, a dict by name. Nothing is copied.

    torch knows no read-only tensors; the mapping is read-only unless `write` was asked for and granted.
    What writes to it then fails: on the host with a signal, on CUDA with an error that ends the use of
    the GPU in this process.

    The memory stays, and counts as open, until the last storage of it is gone and the work submitted by
    then to the current stream is done. device: None: the current GPU, else the CPU. wait: seconds to
    wait for the name. Work of the current stream is ordered behind the publisher's.

    cenote.Error: CEN_ERR_NOT_FOUND, CEN_ERR_PERMISSION, CEN_ERR_UNSUPPORTED.
    """
    via = _share.connect() if connection is None else connection
    wait_ms = 0 if wait is None else core.milliseconds("wait", wait)
    lease, place = _lease(via, _torch_device(device), what, write, wait_ms)
    wait_for(lease, place)
    tensors = tensors_over(lease.items(), place, lease)
    if list(tensors) == [""]:
        return tensors[""]
    return Tensors(tensors, lease.info())
