"""The connection, sets and leases beneath cenote.share and cenote.open: the C objects, and who keeps
them. docs/python.md has what a program uses.

Whatever has an address of shared memory keeps the lease or the set that it lies in, which keeps the
connection: memory is never taken from under an array. At the process's end all that is left is left
to the broker, which sees the process die.
"""

import array
import ctypes
import grp
import itertools
import os
import pwd
import threading
from ctypes import byref
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Union

from cenote import _lib
from cenote._device import Device
from cenote._lib import check, library
from cenote._owned import finalized, usable

WRITE = 1
WHO = {"user": 1, "group": 2, "all": 3}
ALIGNMENT = 512

Access = Union[None, str, Iterable[str]]

def milliseconds(what: str, seconds: float) -> int:
    """For an argument in C; at most what 32 bits hold. ValueError names `what`."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds >= 0:
        raise ValueError(f"{what} is {seconds!r}: expected seconds, at least 0")
    return int(min(seconds * 1000, 2**32 - 1))


def _number(entry: str, who: str, named: str) -> int:
    if named.isdecimal() and int(named) < 2**32:
        return int(named)
    try:
        return pwd.getpwnam(named).pw_uid if who == "user" else grp.getgrnam(named).gr_gid
    except KeyError:
        raise ValueError(f"access: {entry!r}: there is no {who} {named!r} here") from None


def access_list(entries: Access) -> List[_lib.ShareAccess]:
    """ "me", "user:NAME", "group:NAME" or "all", with "+write" behind it or not; numbers do, too."""
    listed: List[_lib.ShareAccess] = []
    for entry in [entries] if isinstance(entries, str) else entries or ():
        plain = entry[: -len("+write")] if entry.endswith("+write") else entry
        who, _, named = (f"user:{os.getuid()}" if plain == "me" else plain).partition(":")
        if who not in WHO or (who == "all") != (not named):
            raise ValueError(
                f"access: {entry!r}: expected 'me', 'user:NAME', 'group:NAME' or 'all', and '+write' "
                "behind it to let write"
            )
        number = _number(entry, who, named) if named else 0
        listed.append(_lib.ShareAccess(WHO[who], number, plain != entry))
    return listed


class Connection:
    """A cen_share and the devices that its memory lies on; closed when nothing refers to it."""

    def __init__(self, options: _lib.ShareOptions) -> None:
        self.handle: Optional[int] = None
        self._pid = os.getpid()
        self._options = options  # with the callback, which must outlive the connection
        self._devices: Dict[str, Device] = {}
        self._lock = threading.Lock()
        self.notice_thread = 0
        handle = ctypes.c_void_p()
        check(library().cen_share_connect(byref(options), byref(handle)))
        self.handle = handle.value

    @property
    def here(self) -> bool:
        """Whether C may still be called on it: not in a forked child, nor at the process's end."""
        return self.handle is not None and usable(self._pid)

    def device(self, device: Union[Device, str]) -> Device:
        """A device by its name, opened once; or the caller's own."""
        if isinstance(device, Device):
            return device
        if not isinstance(device, str):
            raise ValueError(f"device is {device!r}: expected a Device or a name such as 'cuda:0'")
        with self._lock:
            if device not in self._devices:
                self._devices[device] = Device(device)
            return self._devices[device]

    def _close(self) -> None:
        handle, self.handle = self.handle, None
        library().cen_share_disconnect(handle)
        for device in self._devices.values():
            device.close()

    def __del__(self) -> None:
        if not self.here:
            return
        self.away(self._close)

    def away(self, function: Callable[[], None]) -> None:
        """Calls it, on another thread if this is the one that hears notices, which must not wait."""
        if threading.get_ident() == self.notice_thread:
            threading.Thread(target=function).start()
        else:
            function()


class Block:
    """A block of a set; freed, on `stream_of()`, when nothing refers to it."""

    __slots__ = ("set", "address", "size", "_stream_of", "__weakref__")

    def __init__(self, owner: "Set", address: int, size: int, stream_of: Callable[[], int]) -> None:
        self.set = owner
        self.address = address
        self.size = size
        self._stream_of = stream_of

    def __del__(self) -> None:
        if self.set.connection.here:
            finalized(library().cen_share_free(self.set.handle, self.address, self._stream_of()))


class Set:
    """Pages that this process made; given up when nothing refers to them, or, with `kept`, together
    with the connection: then what is exported of them stays for others.

    finish: called before, as work may still use blocks that were freed; False: it cannot be waited for.
    """

    __slots__ = (
        "connection",
        "device",
        "handle",
        "address",
        "size",
        "kept",
        "finish",
        "__weakref__",
    )

    def __init__(self, connection: Connection, device: Device, size: int) -> None:
        self.handle: Optional[int] = None
        self.connection = connection
        self.device = device
        self.kept = False
        self.finish: Optional[Callable[[], bool]] = None
        handle = ctypes.c_void_p()
        check(
            library().cen_share_set_create(connection.handle, device.handle, size, 0, byref(handle))
        )
        self.handle = handle.value
        address, held = ctypes.c_uint64(), ctypes.c_uint64()
        check(library().cen_share_set_range(handle, byref(address), byref(held)))
        self.address, self.size = address.value, held.value

    def alloc(self, size: int) -> int:
        address = ctypes.c_uint64()
        check(library().cen_share_alloc(self.handle, size, byref(address)))
        return address.value

    def __del__(self) -> None:
        if self.handle is not None and not self.kept and self.connection.here:
            self.connection.away(self._destroy)

    def _destroy(self) -> None:
        if self.connection.here and (self.finish is None or self.finish()):
            handle, self.handle = self.handle, None
            finalized(library().cen_share_set_destroy(handle))


class Item(NamedTuple):
    """An item as it was exported: what `meta` says is for its readers to know."""

    name: str
    address: int
    size: int
    meta: bytes


class Items(NamedTuple):
    """Items by column: a model has ten thousand."""

    names: List[str]
    addresses: List[int]
    sizes: List[int]
    metas: List[bytes]


_WORDS = ctypes.sizeof(_lib.ShareItem) // 8  # all five fields are words of 8 bytes


def by_column(items: Iterable[Item]) -> Items:
    names, addresses, sizes, metas = map(list, zip(*items))
    return Items(names, addresses, sizes, metas)


def _decoded(names: Iterable[Optional[bytes]]) -> List[str]:
    """Names of C: there is no NUL in one."""
    return b"\0".join([name or b"" for name in names]).decode(errors="surrogateescape").split("\0")


def _columns(raw: Any, count: int) -> Items:
    """What C filled in, by column; each of its items as an object of ctypes would take ten times as long."""
    words = memoryview(raw).cast("B").cast("Q").tolist()
    texts = array.array("Q", words[0::_WORDS])
    names = _decoded((ctypes.c_char_p * count).from_buffer(texts)[:])
    places, sizes = words[3::_WORDS], words[4::_WORDS]
    lowest = min([at for at, size in zip(places, sizes) if size], default=0)
    highest = max([at + size for at, size in zip(places, sizes)])
    block = ctypes.string_at(lowest, highest - lowest) if lowest else b""
    metas = [block[at - lowest : at - lowest + size] if size else b"" for at, size in zip(places, sizes)]
    return Items(names, words[1::_WORDS], words[2::_WORDS], metas)


def _raw(items: Items) -> Any:
    """An array of cen_share_item, with what its pointers point to."""
    count = len(items.names)
    text = "\0".join(items.names).encode(errors="surrogateescape")
    names = text.split(b"\0")
    if len(names) != count:
        raise ValueError("the name of an item has a NUL in it")
    block = ctypes.create_string_buffer(text + b"\0" + b"".join(items.metas))
    begin = ctypes.addressof(block)
    names_at = itertools.accumulate([len(name) + 1 for name in names], initial=begin)
    metas_at = itertools.accumulate(map(len, items.metas), initial=begin + len(text) + 1)
    words = array.array("Q", bytes(8 * _WORDS * count))
    for index, column in enumerate(
        (names_at, items.addresses, items.sizes, metas_at, map(len, items.metas))
    ):
        words[index::_WORDS] = array.array("Q", itertools.islice(column, count))
    raw: Any = (_lib.ShareItem * count).from_buffer(words)
    raw.block = block
    return raw


class Lease:
    """A cen_share_view; closed, on `stream_of()`, when nothing refers to it."""

    __slots__ = ("connection", "device", "_handle", "_stream_of", "__weakref__")

    def __init__(
        self, connection: Connection, device: Device, handle: int, stream_of: Callable[[], int]
    ) -> None:
        self.connection = connection
        self.device = device
        self._handle = handle
        self._stream_of = stream_of

    def info(self) -> _lib.ShareViewInfo:
        info = _lib.ShareViewInfo()
        check(library().cen_share_view_get_info(self._handle, byref(info)))
        return info

    def find(self, name: str) -> Optional[Item]:
        raw = _lib.ShareItem()
        encoded = name.encode(errors="surrogateescape")
        if b"\0" in encoded:
            return None
        status = library().cen_share_view_find(self._handle, encoded, byref(raw))
        if status == _lib.ERR_NOT_FOUND:
            return None
        check(status)
        meta = ctypes.string_at(raw.meta, raw.meta_bytes) if raw.meta_bytes else b""
        return Item(name, raw.addr, raw.bytes, meta)

    def columns(self) -> Items:
        """All items, in the order of their export."""
        count = int(self.info().items)
        raw, got = (_lib.ShareItem * count)(), ctypes.c_size_t()
        check(library().cen_share_view_items(self._handle, 0, raw, count, byref(got)))
        return _columns(raw, count) if count else Items([], [], [], [])

    def items(self) -> List[Item]:
        return list(map(Item, *self.columns()))

    def wait(self, stream: int) -> None:
        check(library().cen_share_wait(self._handle, stream))

    def __del__(self) -> None:
        if self.connection.here:
            finalized(library().cen_share_close(self._handle, self._stream_of()))


def default_stream() -> int:
    return 0


def export(
    connection: Connection,
    items: Items,
    *,
    name: Optional[str] = None,
    access: Sequence[_lib.ShareAccess] = (),
    keep: bool = False,
    keep_older: bool = False,
    once: bool = False,
    once_ttl_ms: int = 0,
    stream: int = 0,
) -> _lib.ShareExportInfo:
    """cen_share_export."""
    raw = _raw(items)
    listed = (_lib.ShareAccess * len(access))(*access)
    options = _lib.ShareExportOptions(
        size=ctypes.sizeof(_lib.ShareExportOptions),
        name=None if name is None else _lib.c_text("the name", name),
        access=listed,
        access_count=len(access),
        keep=keep,
        keep_older=keep_older,
        once=once,
        once_ttl_ms=once_ttl_ms,
        stream=stream,
    )
    info = _lib.ShareExportInfo()
    check(library().cen_share_export(connection.handle, raw, len(raw), byref(options), byref(info)))
    return info


def open_lease(
    connection: Connection,
    device: Device,
    what: str,
    *,
    write: bool = False,
    wait_ms: int = 0,
    stream_of: Callable[[], int] = default_stream,
) -> Lease:
    """cen_share_open."""
    handle = ctypes.c_void_p()
    check(
        library().cen_share_open(
            connection.handle,
            device.handle,
            _lib.c_text("the name", what),
            WRITE if write else 0,
            wait_ms,
            byref(handle),
        )
    )
    return Lease(connection, device, int(handle.value or 0), stream_of)


def receive_lease(connection: Connection, device: Device, socket: int, timeout_ms: int) -> Lease:
    """cen_share_receive."""
    handle = ctypes.c_void_p()
    check(
        library().cen_share_receive(
            connection.handle, device.handle, socket, timeout_ms, byref(handle)
        )
    )
    return Lease(connection, device, int(handle.value or 0), default_stream)


def layout_of_blocks(sizes: Iterable[int]) -> List[int]:
    """Where parts of these sizes begin in one block, and at the end, its size."""
    places, at = [], 0
    for size in sizes:
        places.append(at)
        at += max(1, size) + -max(1, size) % ALIGNMENT
    return [*places, at]


def list_read(connection: Connection) -> Any:
    """The cen_share_list's four arrays, copied."""
    pointer = ctypes.POINTER(_lib.ShareList)()
    check(library().cen_share_list_read(connection.handle, byref(pointer)))
    try:
        raw = pointer.contents
        parts = []
        for entries, count in (
            (raw.clients, raw.client_count),
            (raw.sets, raw.set_count),
            (raw.exports, raw.export_count),
            (raw.leases, raw.lease_count),
        ):
            parts.append([type(entry).from_buffer_copy(entry) for entry in entries[:count]])
        return parts
    finally:
        library().cen_share_list_free(pointer)
