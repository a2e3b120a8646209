"""What sharing gives a program: exports, views and notices. cenote._share makes them."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

from cenote import _lib, _share_core as core
from cenote._device import Device
from cenote._lib import check, library
from cenote._owned import Closing
from cenote._share_core import Item
from cenote._share_layout import DeviceArray, Memory, host_array, parse

if TYPE_CHECKING:
    from cenote._share import Share


class NoticeKind(enum.IntEnum):
    """cen_share_notice_kind."""

    NEW_VERSION = 1  #: a name that is watched or open here has a newer version
    REVOKED = 2  #: give the views of the export up: they may not be used any more
    IDLE = 3  #: nobody has the export, which was withdrawn, open any more
    PUBLISHER_GONE = 4  #: it died; views stay valid
    BROKER_GONE = 5  #: memory stays; the connection looks for it again
    BROKER_BACK = 6  #: and told it again what this process holds


@dataclass(frozen=True)
class Notice:
    """What the broker tells. `export_id` and `version` are 0, and `name` is "", where none is meant."""

    kind: NoticeKind
    export_id: int
    version: int
    name: str


class Listing(NamedTuple):
    """What the broker holds that this user may see, each as cen_share_list has it."""

    clients: List[_lib.ShareClientInfo]
    sets: List[_lib.ShareSetInfo]
    exports: List[_lib.ShareExportListing]
    leases: List[_lib.ShareLeaseInfo]


def is_host(device: Device) -> bool:
    return device.name.partition(":")[0] == "host"


def seen(device: Device, memory: Memory, stream: int) -> Any:
    return host_array(memory) if is_host(device) else DeviceArray(memory, stream)


class Export(Closing):
    """What was shared: `name`, `version`, `id`, the `token` that opens it too, and `arrays`, which are
    the shared memory itself, by name.

    It is there for others until close() or withdraw(), until a newer version of its name is shared
    here, or until the process ends; with keep, until it is withdrawn. Its memory stays here as long as
    one of its arrays does, and there as long as it is open.
    """

    def __init__(
        self, share: "Share", memory: core.Set, info: _lib.ShareExportInfo, name: Optional[str]
    ) -> None:
        self._share = share
        self._set: Optional[core.Set] = memory
        self.id = int(info.id)
        self.version = int(info.version)
        self.token = info.token.decode()
        self.name = name
        self._see: Optional[Callable[[core.Set], Dict[str, Any]]] = None  # what makes the arrays
        self._arrays: Dict[str, Any] = {}

    @property
    def arrays(self) -> Dict[str, Any]:
        """Made when they are first asked for: most who share many have their own."""
        see, memory = self._see, self._set
        if see is not None and memory is not None:
            self._arrays, self._see = see(memory), None
        return self._arrays

    @property
    def array(self) -> Any:
        """The array, where it is one without a name."""
        return self.arrays[""]

    @property
    def closed(self) -> bool:
        return self._set is None

    def mark(self, stream: int = 0) -> None:
        """Says that the contents are being written anew: who opens it, or waits, from now on is behind
        the work submitted so far to `stream`."""
        check(library().cen_share_mark(self._share.handle, self.id, stream))

    def send(self, socket: Any, timeout: float = 5.0) -> None:
        """Hands it to the process at the other end of a Unix socket, which calls Share.receive(); no
        broker is needed for that."""
        status = library().cen_share_send(
            self._share.handle, self.id, socket.fileno(), core.milliseconds("timeout", timeout)
        )
        check(status)

    def withdraw(self) -> None:
        """Nobody can open it from now on; those who have it open keep it."""
        check(library().cen_share_withdraw(self._share.handle, self.id))
        self._end()

    def revoke(self) -> None:
        """Withdraws it, and tells those who have it open to close it."""
        check(library().cen_share_revoke(self._share.handle, self.id))
        self._end()

    def _end(self) -> None:
        """It was withdrawn: its memory goes with the last array of it."""
        if self._set is not None:
            self._set.kept = False
        self._drop()

    def _drop(self) -> None:
        self._share._forget(self)
        self._set = self._see = None
        self._arrays = {}

    def close(self) -> None:
        """Withdraws it unless it was shared with keep or once. Arrays that the program still has stay
        valid."""
        if self._set is not None:
            if self._set.kept:
                self._share._leave(self)
            elif self._share.open_here:
                status = library().cen_share_withdraw(self._share.handle, self.id)
                # Somebody else may have withdrawn it; a broker that is gone hears of it when it is back.
                if status not in (_lib.ERR_NOT_FOUND, _lib.ERR_NO_BROKER):
                    check(status)
            self._drop()

    def __repr__(self) -> str:
        return f"<cenote.Export {self.name or self.id} version {self.version}{self._state()}>"


class View(Closing, Mapping[str, Any]):
    """What was opened: arrays by name, without a copy. On the host NumPy's (read-only ones, unless it
    was opened to write), on CUDA a DeviceArray.

    close() gives it up; the memory stays, and counts as open, as long as an array of it does.
    """

    def __init__(self, lease: core.Lease, stream: int) -> None:
        self._lease: Optional[core.Lease] = lease
        self._stream = stream
        info = lease.info()
        self.id = int(info.export_id)
        self.version = int(info.version)
        self.name = (info.name or b"").decode(errors="surrogateescape")
        self.bytes = int(info.bytes)
        self.writable = bool(info.writable)
        self.device_uuid = info.device_uuid.decode()
        self._count = int(info.items)

    @property
    def _open(self) -> core.Lease:
        if self._lease is None:
            raise ValueError("the view is closed")
        return self._lease

    @property
    def closed(self) -> bool:
        return self._lease is None

    @property
    def revoked(self) -> bool:
        """Whether its publisher wants it closed."""
        return bool(self._open.info().revoked)

    def item(self, name: str) -> Item:
        """The item as it was exported, for publishers whose meta is of another format. Its memory is
        there until close()."""
        found = self._open.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def items_raw(self) -> List[Item]:
        """All items, in the order of their export."""
        return self._open.items()

    @property
    def array(self) -> Any:
        """The array, where it is one without a name."""
        return self[""]

    def wait(self, stream: int = 0) -> None:
        """Orders later work of `stream` behind what the publisher had submitted when it shared this, or
        at its latest Export.mark()."""
        self._open.wait(stream)

    def close(self) -> None:
        self._lease = None

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        lease = self._open
        item = self.item(name)
        layout = parse(name, item.meta, item.size)
        memory = Memory(item.address, item.size, layout, self.writable, lease)
        return seen(lease.device, memory, self._stream)

    def __iter__(self) -> Iterator[str]:
        return iter([item.name for item in self._open.items()])

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<cenote.View {self.name or self.id} version {self.version}{self._state()}>"
