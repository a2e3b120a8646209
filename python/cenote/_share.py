"""Memory shared between processes, by name or token: cenote.share and cenote.open."""

import atexit
import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from cenote import _lib, _share_core as core
from cenote._device import Device
from cenote._lib import check, library
from cenote._owned import Closing
from cenote._share_core import Access, Item, Items
from cenote._share_layout import Memory, Source
from cenote._share_objects import Export, Listing, Notice, NoticeKind, View, is_host, seen


def _program() -> str:
    """The script that runs; "" for C's idea of it, which is the interpreter."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return "" if name in ("-c", "-m") else name


class Share(Closing):
    """A connection to the broker (`cenote serve`), for options that cenote.connect() has not: its
    `socket`; the `label` that `cenote holders` shows (the script's name); no `broker` at all, which leaves Export.send() and
    receive(); seconds to wait for an answer; `on_notice`, called with each Notice on a thread of the
    connection's, where it may do anything but close the last that refers to it.

    Any thread may use it. close() ends it once no array of its memory is left. In a forked child it
    cannot be used: make another.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        *,
        label: Optional[str] = None,
        broker: bool = True,
        timeout: float = 5.0,
        on_notice: Optional[Callable[[Notice], None]] = None,
    ) -> None:
        self.on_notice = on_notice
        self._core: Optional[core.Connection] = None
        self._exports: Dict[int, Export] = {}
        self._watchers: Dict[str, Callable[[Notice], None]] = {}
        self._parcels: Dict[int, core.Set] = {}
        self._exporting = 0
        self._idle: Set[int] = set()
        self._lock = threading.RLock()
        said = _program() if label is None else label
        options = _lib.ShareOptions(
            size=ctypes.sizeof(_lib.ShareOptions),
            socket=None if socket is None else _lib.c_text("socket", os.fsencode(socket)),
            label=_lib.c_text("label", said.encode(errors="replace")) or None,
            no_broker=not broker,
            timeout_ms=max(1, core.milliseconds("timeout", timeout)),
            notice=_notices(weakref.ref(self)),
        )
        self._core = core.Connection(options)

    @property
    def handle(self) -> int:
        """The address of the cen_share, for calls that this class does not have."""
        return int(self._connection.handle or 0)

    @property
    def _connection(self) -> core.Connection:
        if self._core is None:
            raise ValueError("the connection is closed")
        return self._core

    @property
    def closed(self) -> bool:
        return self._core is None

    @property
    def open_here(self) -> bool:
        """Whether it may be used: not closed, not inherited by fork."""
        return self._core is not None and self._core.here

    # ---- publishing ----

    def share(
        self,
        arrays: Any,
        name: Optional[str] = None,
        *,
        device: Union[Device, str] = "host:0",
        access: Access = None,
        keep: bool = False,
        keep_older: bool = False,
        once: bool = False,
        once_ttl: float = 60.0,
        stream: int = 0,
    ) -> Export:
        """Copies an array, or a dict of arrays by name, into shared memory of `device`, and makes it
        known under `name` (a further version, if there is one) or, without a name, by its token alone.

        Arrays are NumPy's, buffers, or, for CUDA, what has a __cuda_array_interface__ and was made by
        work on `stream`; they are copied on it, and readers are ordered behind that.

        access: who may open it beside this user: "user:NAME", "group:NAME" or "all", or several; with
        "+write" behind it also to write, which "me+write" lets this user. keep: it stays when this process ends. keep_older: older
        versions are not withdrawn. once: the first who opens it has it alone; `once_ttl` is how many
        seconds one that nobody opens outlives this process.

        ValueError: an array cannot be shared; Error; OutOfMemoryError.
        """
        named = arrays if isinstance(arrays, Mapping) else {"": arrays}
        sources = {key: Source(key, array) for key, array in named.items()}
        if not sources:
            raise ValueError("arrays is empty: expected at least one")
        target = self._connection.device(device)
        places = core.layout_of_blocks(source.layout.extent for source in sources.values())
        memory = core.Set(self._connection, target, places[-1])
        base = memory.alloc(places[-1])
        spots = {
            key: Memory(base + at, source.layout.extent, source.layout, True, memory)
            for (key, source), at in zip(sources.items(), places)
        }
        _fill(target, sources, spots, stream)
        items = [
            Item(key, spot.address, max(1, spot.size), spot.layout.meta())
            for key, spot in spots.items()
        ]
        export = self._export(
            memory,
            core.by_column(items),
            name,
            access=core.access_list(access),
            keep=keep,
            keep_older=keep_older,
            once=once,
            once_ttl_ms=core.milliseconds("once_ttl", once_ttl) if once else 0,
            stream=stream,
        )
        export._see = lambda _: {key: seen(target, spot, stream) for key, spot in spots.items()}
        return export

    def _export(
        self, memory: core.Set, items: Items, name: Optional[str], **options: Any
    ) -> Export:
        """Exports items of a set, which the Export then keeps."""
        memory.kept = bool(options.get("keep") or options.get("once"))
        with self._publishing():
            export = Export(self, memory, core.export(self._connection, items, name=name, **options), name)
            with self._lock:
                older = [] if name is None or options.get("keep_older") else self._named(name)
                for one in older:
                    self._leave(one)
                if export.id not in self._idle:  # a parcel may have been read already
                    self._exports[export.id] = export
        return export

    def _named(self, name: str) -> List[Export]:
        return [export for export in self._exports.values() if export.name == name]

    def _parcel(
        self, block: core.Block, item: Item, access: List[_lib.ShareAccess], stream: int
    ) -> str:
        """The token of an item that goes to whoever opens it first. The block's set stays until it was
        closed there."""
        with self._publishing():
            items = core.by_column([item])
            info = core.export(self._connection, items, access=access, once=True, stream=stream)
            with self._lock:
                if info.id not in self._idle:
                    self._parcels[int(info.id)] = block.set
        return str(info.token.decode())

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        """What ends meanwhile is noted in _idle."""
        with self._lock:
            self._exporting += 1
        try:
            yield
        finally:
            with self._lock:
                self._exporting -= 1
                if not self._exporting:
                    self._idle.clear()

    def _leave(self, export: Export) -> None:
        """The program is done with it, and others are not: what is kept stays until nobody has it open
        nor can open it."""
        with self._lock:
            memory = export._set
            if self._exports.pop(export.id, None) is not None and memory is not None and memory.kept:
                self._parcels[export.id] = memory

    def _forget(self, export: Export) -> None:
        with self._lock:
            self._exports.pop(export.id, None)

    def withdraw(self, what: Union[str, int, Export]) -> None:
        """Export.withdraw() for exports of this user's: all versions of a name, or the one that
        "name@version" or an id says."""
        self._take_back(what, library().cen_share_withdraw, lambda e: bool(e.withdrawn))

    def revoke(self, what: Union[str, int, Export]) -> None:
        """Export.revoke(), in the same way; of a name also versions that are withdrawn already."""
        self._take_back(what, library().cen_share_revoke, lambda e: bool(e.revoked))

    def _take_back(
        self,
        what: Union[str, int, Export],
        call: Callable[[Any, int], int],
        done: Callable[[Any], bool],
    ) -> None:
        if isinstance(what, Export):
            what = what.id
        if isinstance(what, int):
            check(call(self.handle, _lib.count_of("what", what, 1)))
            return
        for number in self._versions(what, done):
            status = call(self.handle, number)
            if status != _lib.ERR_NOT_FOUND:  # else it ended meanwhile
                check(status)

    def _versions(self, what: str, done: Callable[[Any], bool]) -> List[int]:
        name, at, version = what.rpartition("@")
        wanted = int(version) if at and version.isdecimal() else 0
        name = name if wanted else what
        found = [
            int(e.id)
            for e in self.list().exports
            if e.name.decode(errors="surrogateescape") == name
            and not done(e)
            and wanted in (0, e.version)
        ]
        if not found:
            raise _lib.failure(_lib.ERR_NOT_FOUND, f"cenote: nothing is shared as {what!r}")
        return found

    # ---- reading ----

    def open(
        self,
        what: str,
        device: Union[None, Device, str] = None,
        *,
        write: bool = False,
        wait: Optional[float] = None,
        stream: int = 0,
    ) -> View:
        """Opens what is shared under a name (the newest version), "name@version" or a token.

        device: where it is to be seen: the one that it lies on or, on CUDA, a peer. None: the host
        backend, else the first CUDA device that reaches it. wait: seconds to wait until the name is
        shared, and until a broker that is gone is back. stream: later work on it is behind the publisher's.

        Error: CEN_ERR_NOT_FOUND, CEN_ERR_PERMISSION, CEN_ERR_UNSUPPORTED.
        """
        wait_ms = 0 if wait is None else core.milliseconds("wait", wait)
        return self._open(what, device, write, wait_ms, stream)

    def _open(
        self, what: str, device: Union[None, Device, str], write: bool, wait_ms: int, stream: int
    ) -> View:
        if not isinstance(what, str):
            raise ValueError(f"what is {what!r}: expected a name or a token")
        lease = self._open_on(device, what, write, wait_ms)
        lease.wait(stream)
        if is_host(lease.device):
            lease.device.synchronize(stream)  # arrays are read without a stream
        return View(lease, stream)

    def _open_on(
        self, device: Union[None, Device, str], what: str, write: bool, wait_ms: int
    ) -> core.Lease:
        connection = self._connection
        if device is not None:
            target = connection.device(device)
            return core.open_lease(connection, target, what, write=write, wait_ms=wait_ms)
        refused: Optional[_lib.Error] = None
        for name in _everywhere():
            target = connection.device(name)
            try:
                return core.open_lease(connection, target, what, write=write, wait_ms=wait_ms)
            except _lib.Error as error:
                if error.status != _lib.ERR_UNSUPPORTED:
                    raise
                refused = refused or error
        assert refused is not None
        raise refused

    def receive(
        self, socket: Any, device: Union[Device, str] = "host:0", timeout: float = 5.0
    ) -> View:
        """Takes what the process at the other end of a Unix socket sends with Export.send()."""
        connection = self._connection
        target = connection.device(device)
        lease = core.receive_lease(
            connection, target, socket.fileno(), core.milliseconds("timeout", timeout)
        )
        return View(lease, 0)

    # ---- hearing and looking ----

    def watch(self, name: str, callback: Optional[Callable[[Notice], None]]) -> None:
        """Calls callback(notice) on a thread of the connection's when `name` has a new version; None
        ends that."""
        encoded = _lib.c_text("the name", name)
        with self._lock:
            if callback is None:
                self._watchers.pop(name, None)
            else:
                self._watchers[name] = callback
        check(library().cen_share_watch(self.handle, encoded, callback is not None))

    def list(self) -> Listing:
        """What the broker holds: `cenote holders` prints the same."""
        return Listing(*core.list_read(self._connection))

    def _heard(self, notice: Notice) -> None:
        if self._core is not None:
            self._core.notice_thread = threading.get_ident()
        if notice.kind is NoticeKind.IDLE:
            with self._lock:
                if self._exporting:
                    self._idle.add(notice.export_id)
                gone = self._exports.pop(notice.export_id, None)
                parcel = self._parcels.pop(notice.export_id, None)
            if parcel is not None:
                parcel.kept = False
            del parcel
            if gone is not None:
                gone._end()
        for callback in (
            self.on_notice,
            self._watchers.get(notice.name) if notice.kind is NoticeKind.NEW_VERSION else None,
        ):
            if callback is not None:
                callback(notice)

    def close(self) -> None:
        """Withdraws what is not kept, and ends the connection once no array of its memory is left."""
        with self._lock:
            exports = list(self._exports.values())
        for export in exports:
            export.close()
        with self._lock:  # the broker has what is kept; parcels of queues keep the connection
            self._exports = {}
            self._parcels = {id: memory for id, memory in self._parcels.items() if not memory.kept}
        self._core = None

    def __repr__(self) -> str:
        return f"<cenote.Share{self._state()}>"


def _notices(of: "weakref.ref[Share]") -> Any:
    """The C callback of a connection."""

    def notice(_arg: Any, raw: Any) -> None:
        share = of()
        said = raw.contents
        if share is not None:
            name = (said.name or b"").decode(errors="surrogateescape")
            share._heard(Notice(NoticeKind(said.kind), int(said.export_id), int(said.version), name))

    return _lib.SHARE_NOTICE(notice)


def _everywhere() -> Iterator[str]:
    yield "host:0"
    count = ctypes.c_int()
    if not library().cen_device_count(b"cuda", ctypes.byref(count)):
        for index in range(count.value):
            yield f"cuda:{index}"


def _fill(
    device: Device, sources: Mapping[str, Source], spots: Mapping[str, Memory], stream: int
) -> None:
    """Copies each array to its place."""
    pageable = []  # host memory that the device reads
    for key, source in sources.items():
        spot = spots[key]
        if not source.layout.count:
            continue
        if source.device_address is not None:
            device.copy(spot.address, source.device_address, spot.size, stream)
        elif is_host(device):
            source.put(spot)
        else:
            address, kept = source.host_copy()
            pageable.append(kept)
            device.copy(spot.address, address, spot.size, stream)
    if pageable:
        device.synchronize(stream)


RETRY_MIN, RETRY_MAX = 0.1, 2.0  # seconds between looks for a broker

_default: Optional[Share] = None
_default_lock = threading.Lock()


def _connected() -> Share:
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = Share()
        return _default


def connect(wait: Optional[float] = None) -> Share:
    """The connection that the functions of this package use: made at the first call, and again in a
    forked child. $CENOTE_BROKER names the broker's socket.

    wait: seconds for which it is tried again, after 0.1 s and then at doubled intervals up to 2 s, while
    no broker listens there; the logger "cenote" has a warning of it.
    """
    end = time.monotonic() + (0 if wait is None else core.milliseconds("wait", wait) / 1000)
    pause = RETRY_MIN
    while True:
        try:
            return _connected()
        except _lib.Error as error:
            left = end - time.monotonic()
            if error.status != _lib.ERR_NO_BROKER or left <= 0:
                raise
            if pause == RETRY_MIN:
                logging.getLogger("cenote").warning("%s; trying again for %.1f s", error, left)
        time.sleep(min(pause, left))
        pause = min(2 * pause, RETRY_MAX)


def connect_within(wait: Optional[float]) -> Tuple[Share, int]:
    """The connection, and how many milliseconds of `wait` are left."""
    begin = time.monotonic()
    share = connect(wait)
    left = 0 if wait is None else wait - (time.monotonic() - begin)
    return share, core.milliseconds("wait", max(0, left))


def _after_fork() -> None:
    global _default, _default_lock
    _default = None
    _default_lock = threading.Lock()


def _at_exit() -> None:
    """Closes what nothing uses any more; the rest ends with the process."""
    global _default
    _default = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def share(arrays: Any, name: Optional[str] = None, **options: Any) -> Export:
    """Share.share() on the default connection."""
    return connect().share(arrays, name, **options)


def open(  # noqa: A001
    what: str,
    device: Union[None, Device, str] = None,
    *,
    write: bool = False,
    wait: Optional[float] = None,
    stream: int = 0,
) -> View:
    """Share.open() on the default connection, for whose broker it waits, too."""
    via, wait_ms = connect_within(wait)
    return via._open(what, device, write, wait_ms, stream)


def withdraw(what: Union[str, int, Export]) -> None:
    """Share.withdraw() on the default connection."""
    connect().withdraw(what)


def revoke(what: Union[str, int, Export]) -> None:
    """Share.revoke() on the default connection."""
    connect().revoke(what)


def watch(name: str, callback: Optional[Callable[[Notice], None]]) -> None:
    """Share.watch() on the default connection."""
    connect().watch(name, callback)
