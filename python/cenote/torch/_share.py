"""Tensors shared between processes, by name or token: cenote.torch.share and cenote.torch.open."""

import ctypes
import functools
import operator
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from cenote import _share, _share_core as core
from cenote._device import Device
from cenote._lib import ERR_FORMAT, ERR_UNSUPPORTED, Error, check, failure, library
from cenote._share_core import Items
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


def _kind_of(name: str, meta: bytes, size: int) -> _Kind:
    layout = parse(name, meta, size)
    try:
        return _kind(layout)
    except ValueError as error:
        raise failure(ERR_UNSUPPORTED, f"cenote: shared item {name!r}: {error}") from None


def _overlapping(items: Items) -> Dict[str, Tuple[int, int]]:
    """Where the bytes of items that overlap begin and end, by name; the others are not there."""
    ends = map(operator.add, items.addresses, items.sizes)
    if all(map(operator.le, ends, items.addresses[1:])):  # as they mostly are
        return {}
    found: Dict[str, Tuple[int, int]] = {}
    run: List[str] = []
    begin = end = 0
    for address, size, name in [*sorted(zip(items.addresses, items.sizes, items.names)), (2**64, 0, "")]:
        if address >= end:
            if len(run) > 1:  # of several types, maybe
                found.update(dict.fromkeys(run, (begin - begin % _GRAIN, end)))
            run, begin = [], address
        run.append(name)
        end = max(end, address + size)
    return found


def tensors_over(items: Items, device: torch.device, keeper: object) -> Dict[str, torch.Tensor]:
    """Tensors of items, without a copy. Items that overlap become tensors of one storage."""
    overlapping = _overlapping(items)
    storages: Dict[Tuple[int, int], torch.UntypedStorage] = {}
    kinds: Dict[Tuple[bytes, int], Tuple[Any, ...]] = {}
    made: Dict[str, torch.Tensor] = {}
    for name, address, size, meta in zip(*items):
        try:
            new, itemsize, shape, strides = kinds[meta, size]
        except KeyError:
            dtype, itemsize, shape, strides = _kind_of(name, meta, size)
            # new() of a tensor that is there is the fastest way to one more.
            new = torch.empty(0, dtype=dtype, device=device).new
            kinds[meta, size] = new, itemsize, shape, strides
        if name not in overlapping:
            storage, offset = storage_over(address, size, device, keeper), 0
        else:
            begin, end = span = overlapping[name]
            if span not in storages:
                storages[span] = storage_over(begin, end - begin, device, keeper)
            storage = storages[span]
            offset, odd = divmod(address - begin, itemsize)
            if odd:
                raise failure(ERR_FORMAT, f"cenote: shared item {name!r} overlaps another askew")
        made[name] = new().set_(storage, offset, shape, strides)
    return made


# ---- publishing ----


class _Spot(NamedTuple):
    """Where a tensor's elements lie now: what is copied, and what it is called by its readers."""

    address: int
    extent: int
    name: str
    meta: bytes
    tensor: torch.Tensor  # contiguous, or without gaps


@functools.lru_cache(maxsize=4096)
def _dense(dtype: torch.dtype, shape: Tuple[int, ...], strides: Tuple[int, ...]) -> Tuple[int, bytes]:
    """Bytes from the first element to the end of the last, and the meta; (-1, b"") with gaps between them."""
    size = Layout(_NAMES[dtype], ()).itemsize
    count, in_order = 1, True
    for n, stride in zip(reversed(shape), reversed(strides)):
        in_order = in_order and (n == 1 or stride == count)
        count *= n
    if not count or in_order:
        return size * count, Layout(_NAMES[dtype], tuple(shape)).meta()
    extent = size * (1 + sum((n - 1) * s for n, s in zip(shape, strides)))
    if extent > size * count:
        return -1, b""
    return extent, Layout(_NAMES[dtype], tuple(shape), tuple(s * size for s in strides)).meta()


def _spot(name: str, tensor: torch.Tensor) -> _Spot:
    """ValueError names the tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name!r} is a {type(tensor).__name__}: expected a tensor")
    dtype = tensor.dtype
    if tensor.layout != torch.strided or tensor.is_nested or dtype not in _NAMES:
        raise ValueError(f"tensor {name!r} ({tensor.layout}, {dtype}) cannot be shared")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    extent, meta = _dense(dtype, tensor.shape, tensor.stride())
    if extent < 0:
        tensor = tensor.detach().contiguous()
        extent, meta = _dense(dtype, tensor.shape, tensor.stride())
    return _Spot(tensor.data_ptr(), extent, name, meta, tensor)


class _Run(NamedTuple):
    """Bytes that are copied as they are: the tensors in them overlap, as tied weights do."""

    first: int  # of its spots, by number
    address: int
    end: int
    spots: List[int]


def _runs(spots: Sequence[_Spot]) -> List[_Run]:
    """In the order of their first spots."""
    runs: List[_Run] = []
    addresses = [spot.address for spot in spots]
    end = 0
    for number in sorted(range(len(spots)), key=addresses.__getitem__):
        address, extent = spots[number][:2]
        if extent and address < end:
            run, end = runs[-1], max(end, address + extent)
            runs[-1] = _Run(min(run.first, number), run.address, end, [*run.spots, number])
        elif extent:
            end = address + extent
            runs.append(_Run(number, address, end, [number]))
    runs += [_Run(number, 0, 0, [number]) for number, spot in enumerate(spots) if not spot.extent]
    return sorted(runs)


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
    copy, handle, host = library().cen_copy_async, target.handle, device.type == "cpu"
    for run, place in zip(runs, places):
        size = run.end - run.address
        if host:
            ctypes.memmove(place, run.address, size)
        elif size:
            status = copy(handle, place, run.address, size, stream)
            if status:
                check(status)


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
    spots = [_spot(key, tensor) for key, tensor in named.items()]
    runs = _runs(spots)
    # Each run keeps its place within a grain, so that what was aligned in it stays so.
    begins = [run.address % _GRAIN for run in runs]
    *offsets, total = core.layout_of_blocks(b + run.end - run.address for b, run in zip(begins, runs))
    memory = core.Set(via._connection, target, total)
    base = memory.alloc(total)
    places = [base + offset + begin for offset, begin in zip(offsets, begins)]
    stream = current_stream(device)
    _copy(target, device, runs, places, stream)
    addresses = [0] * len(spots)
    for run, place in zip(runs, places):
        for number in run.spots:
            addresses[number] = place + (spots[number].address - run.address if run.end else 0)
    items = Items(
        list(named), addresses, [max(1, spot.extent) for spot in spots], [spot.meta for spot in spots]
    )
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
    export._see = functools.partial(tensors_over, items, device)
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
    wait for the name, and for a broker that is not there. Work of the current stream is ordered behind the publisher's.

    cenote.Error: CEN_ERR_NOT_FOUND, CEN_ERR_PERMISSION, CEN_ERR_UNSUPPORTED.
    """
    if connection is None:
        via, wait_ms = _share.connect_within(wait)
    else:
        via, wait_ms = connection, 0 if wait is None else core.milliseconds("wait", wait)
    lease, place = _lease(via, _torch_device(device), what, write, wait_ms)
    wait_for(lease, place)
    tensors = tensors_over(lease.columns(), place, lease)
    if list(tensors) == [""]:
        return tensors[""]
    return Tensors(tensors, lease.info())
