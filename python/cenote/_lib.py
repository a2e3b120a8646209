"""libcenote.so, found and loaded: prototypes, structures, and statuses turned into exceptions.

The structures and prototypes are those of include/cenote/*.h; tests/python/test_layout.py compares
them with what a C compiler says.
"""

import ctypes
import functools
import os
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_size_t
from ctypes import c_uint, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

#: The interface that this package was written for: the first part of cen_version().
INTERFACE = "0.1"
SONAME = f"libcenote.so.{INTERFACE}"

OK = 0
ERR_INVALID = -1
ERR_HOST_MEMORY = -2
ERR_DEVICE_MEMORY = -3
ERR_UNSUPPORTED = -5
ERR_FORMAT = -17
ERR_NOT_FOUND = -19
ERR_NO_BROKER = -22


class Error(RuntimeError):
    """A call of the library's that failed. `status` is its cen_status, `name` the status's name."""

    def __init__(self, message: str, status: int = 0, name: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.name = name

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (str(self), self.status, self.name)


class OutOfMemoryError(Error, MemoryError):
    """Out of device memory, or of host memory: `status` tells which. The message says how much was
    asked for, how much is held, and where the rest is."""


class HostOptions(ctypes.Structure):
    """cen_host_options."""

    _fields_ = [
        ("size", c_size_t),
        ("devices", c_uint32),
        ("capacity", c_uint64),
        ("granularity", c_uint64),
        ("copy_bytes_per_us", c_uint64),
        ("copy_latency_us", c_uint32),
        ("stream_delay_us", c_uint32),
        ("peer_group", c_uint32),
        ("inline_streams", c_bool),
        ("no_vmm", c_bool),
        ("never_wait", c_bool),
    ]


class DeviceProps(ctypes.Structure):
    """cen_device_props."""

    _fields_ = [
        ("name", c_char * 128),
        ("uuid", c_char * 48),
        ("ordinal", c_int),
        ("total_bytes", c_uint64),
        ("granularity", c_uint64),
        ("vmm", c_bool),
        ("export_fd", c_bool),
        ("rdma", c_bool),
        ("compute_capability", c_uint32),
        ("multiprocessors", c_uint32),
    ]


class PoolOptions(ctypes.Structure):
    """cen_pool_options."""

    _fields_ = [
        ("size", c_size_t),
        ("limit_bytes", c_uint64),
        ("preallocate_bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("driver_share", c_double),
        ("retry", c_void_p),
        ("retry_arg", c_void_p),
        ("clock_us", c_void_p),
        ("clock_arg", c_void_p),
    ]


class PoolStats(ctypes.Structure):
    """cen_pool_stats."""

    _fields_ = [
        ("requested_bytes", c_uint64),
        ("requested_peak_bytes", c_uint64),
        ("allocated_bytes", c_uint64),
        ("allocated_peak_bytes", c_uint64),
        ("reserved_bytes", c_uint64),
        ("reserved_peak_bytes", c_uint64),
        ("private_reserved_bytes", c_uint64),
        ("borrowed_bytes", c_uint64),
        ("blocks", c_uint64),
        ("allocs", c_uint64),
        ("frees", c_uint64),
        ("failures", c_uint64),
        ("pending_blocks", c_uint64),
        ("pending_bytes", c_uint64),
        ("largest_free_bytes", c_uint64),
        ("pages", c_uint64),
        ("segments", c_uint64),
        ("driver_calls", c_uint64),
        ("driver_ns", c_uint64),
        ("driver_handles", c_uint64 * 6),
        ("driver_kind_calls", c_uint64 * 6),
        ("remapped_bytes", c_uint64),
        ("retries", c_uint64),
        ("defragmentations", c_uint64),
        ("moved_bytes", c_uint64),
    ]


class PoolBlockInfo(ctypes.Structure):
    """cen_pool_block_info."""

    _fields_ = [
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("requested_bytes", c_uint64),
        ("stream", c_size_t),
        ("private_id", c_uint64),
        ("state", c_int),
    ]


class TraceOptions(ctypes.Structure):
    """cen_trace_options."""

    _fields_ = [
        ("size", c_size_t),
        ("stacks", c_int),
        ("stack_fn", c_void_p),
        ("stack_arg", c_void_p),
        ("buffer_bytes", c_uint32),
    ]


class TraceStats(ctypes.Structure):
    """cen_trace_stats."""

    _fields_ = [
        ("events", c_uint64),
        ("bytes", c_uint64),
        ("stacks", c_uint64),
        ("lost", c_uint64),
        ("on", c_bool),
    ]


class ReadError(ctypes.Structure):
    """cen_read_error."""

    _fields_ = [("message", c_char * 256), ("offset", c_uint64)]


class ExplainOptions(ctypes.Structure):
    """cen_explain_options."""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("cap_bytes", c_uint64),
        ("device_total_bytes", c_uint64),
    ]


class FrameworksPools(ctypes.Structure):
    """cen_frameworks_pools."""

    _fields_ = [("pools", c_void_p * 64)]


class ShareNotice(ctypes.Structure):
    """cen_share_notice."""

    _fields_ = [
        ("kind", c_int),
        ("export_id", c_uint64),
        ("version", c_uint64),
        ("name", c_char_p),
    ]


#: The notice of cen_share_options.
SHARE_NOTICE = ctypes.CFUNCTYPE(None, c_void_p, POINTER(ShareNotice))


class ShareOptions(ctypes.Structure):
    """cen_share_options."""

    _fields_ = [
        ("size", c_size_t),
        ("socket", c_char_p),
        ("label", c_char_p),
        ("no_broker", c_bool),
        ("timeout_ms", c_uint32),
        ("notice", SHARE_NOTICE),
        ("notice_arg", c_void_p),
    ]


class ShareItem(ctypes.Structure):
    """cen_share_item."""

    _fields_ = [
        ("name", c_char_p),
        ("addr", c_uint64),
        ("bytes", c_uint64),
        ("meta", c_void_p),
        ("meta_bytes", c_size_t),
    ]


class ShareAccess(ctypes.Structure):
    """cen_share_access."""

    _fields_ = [("who", c_int), ("id", c_uint32), ("write", c_bool)]


class ShareExportOptions(ctypes.Structure):
    """cen_share_export_options."""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("access", POINTER(ShareAccess)),
        ("access_count", c_size_t),
        ("keep", c_bool),
        ("keep_older", c_bool),
        ("once", c_bool),
        ("once_ttl_ms", c_uint32),
        ("stream", c_size_t),
        ("synced", c_bool),
    ]


class ShareExportInfo(ctypes.Structure):
    """cen_share_export_info."""

    _fields_ = [("id", c_uint64), ("version", c_uint64), ("token", c_char * 128)]


class ShareViewInfo(ctypes.Structure):
    """cen_share_view_info."""

    _fields_ = [
        ("export_id", c_uint64),
        ("version", c_uint64),
        ("name", c_char_p),
        ("items", c_size_t),
        ("bytes", c_uint64),
        ("set_addr", c_uint64),
        ("set_bytes", c_uint64),
        ("writable", c_bool),
        ("revoked", c_bool),
        ("device_uuid", c_char * 48),
    ]


class ShareClientInfo(ctypes.Structure):
    """cen_share_client_info."""

    _fields_ = [
        ("id", c_uint64),
        ("pid", c_int),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("label", c_char * 64),
        ("container", c_char * 64),
        ("connected", c_bool),
    ]


class ShareSetInfo(ctypes.Structure):
    """cen_share_set_info."""

    _fields_ = [
        ("id", c_uint64),
        ("bytes", c_uint64),
        ("pages", c_uint32),
        ("uid", c_uint32),
        ("publisher", c_uint64),
        ("publisher_pid", c_int),
        ("device_uuid", c_char * 48),
        ("exports", c_uint32),
        ("importers", c_uint32),
    ]


class ShareExportListing(ctypes.Structure):
    """cen_share_export_listing."""

    _fields_ = [
        ("id", c_uint64),
        ("set", c_uint64),
        ("version", c_uint64),
        ("name", c_char * 256),
        ("keep", c_bool),
        ("withdrawn", c_bool),
        ("revoked", c_bool),
        ("written", c_bool),
        ("leases", c_uint32),
    ]


class ShareLeaseInfo(ctypes.Structure):
    """cen_share_lease_info."""

    _fields_ = [("client", c_uint64), ("export_id", c_uint64), ("write", c_bool)]


class ShareList(ctypes.Structure):
    """cen_share_list."""

    _fields_ = [
        ("clients", POINTER(ShareClientInfo)),
        ("client_count", c_size_t),
        ("sets", POINTER(ShareSetInfo)),
        ("set_count", c_size_t),
        ("exports", POINTER(ShareExportListing)),
        ("export_count", c_size_t),
        ("leases", POINTER(ShareLeaseInfo)),
        ("lease_count", c_size_t),
    ]


_stream = c_size_t
_handle = c_void_p
_status = c_int

# name: (result, arguments). A result of _status is one that check() is meant for.
PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "cen_version": (c_char_p, []),
    "cen_status_text": (c_char_p, [c_int]),
    "cen_status_name": (c_char_p, [c_int]),
    "cen_log_last_error": (c_char_p, []),
    "cen_device_open": (_status, [c_char_p, POINTER(_handle)]),
    "cen_device_open_host": (_status, [c_int, POINTER(HostOptions), POINTER(_handle)]),
    "cen_device_close": (None, [_handle]),
    "cen_device_count": (_status, [c_char_p, POINTER(c_int)]),
    "cen_device_get_props": (_status, [_handle, POINTER(DeviceProps)]),
    "cen_device_mem_info": (_status, [_handle, POINTER(c_uint64), POINTER(c_uint64)]),
    "cen_stream_create": (_status, [_handle, c_int, POINTER(_stream)]),
    "cen_stream_destroy": (_status, [_handle, _stream]),
    "cen_stream_sync": (_status, [_handle, _stream]),
    "cen_copy_async": (_status, [_handle, c_uint64, c_uint64, c_size_t, _stream]),
    "cen_fill_async": (_status, [_handle, c_uint64, c_uint8, c_size_t, _stream]),
    "cen_pool_create": (_status, [_handle, POINTER(PoolOptions), POINTER(_handle)]),
    "cen_pool_destroy": (_status, [_handle]),
    "cen_pool_alloc": (_status, [_handle, c_size_t, _stream, POINTER(c_void_p)]),
    "cen_pool_free": (_status, [_handle, c_void_p, _stream]),
    "cen_pool_use": (_status, [_handle, c_void_p, _stream]),
    "cen_pool_stream_release": (_status, [_handle, _stream]),
    "cen_pool_set_limit": (_status, [_handle, c_uint64]),
    "cen_pool_trim": (_status, [_handle, c_uint64, c_bool, POINTER(c_uint64)]),
    "cen_pool_get_stats": (_status, [_handle, POINTER(PoolStats)]),
    "cen_pool_reset_peaks": (_status, [_handle]),
    "cen_pool_list": (_status, [_handle, POINTER(PoolBlockInfo), c_size_t, POINTER(c_size_t)]),
    "cen_pool_verify": (_status, [_handle]),
    "cen_frameworks_malloc": (c_void_p, [POINTER(FrameworksPools), c_size_t, c_int]),
    "cen_frameworks_free": (None, [POINTER(FrameworksPools), c_void_p, c_int]),
    "cen_share_connect": (_status, [POINTER(ShareOptions), POINTER(_handle)]),
    "cen_share_disconnect": (None, [_handle]),
    "cen_share_set_create": (_status, [_handle, _handle, c_uint64, c_uint64, POINTER(_handle)]),
    "cen_share_set_destroy": (_status, [_handle]),
    "cen_share_set_range": (_status, [_handle, POINTER(c_uint64), POINTER(c_uint64)]),
    "cen_share_alloc": (_status, [_handle, c_uint64, POINTER(c_uint64)]),
    "cen_share_free": (_status, [_handle, c_uint64, _stream]),
    "cen_share_export": (
        _status,
        [
            _handle,
            POINTER(ShareItem),
            c_size_t,
            POINTER(ShareExportOptions),
            POINTER(ShareExportInfo),
        ],
    ),
    "cen_share_mark": (_status, [_handle, c_uint64, _stream]),
    "cen_share_withdraw": (_status, [_handle, c_uint64]),
    "cen_share_revoke": (_status, [_handle, c_uint64]),
    "cen_share_open": (
        _status,
        [_handle, _handle, c_char_p, c_uint, c_uint32, POINTER(_handle)],
    ),
    "cen_share_close": (_status, [_handle, _stream]),
    "cen_share_view_get_info": (_status, [_handle, POINTER(ShareViewInfo)]),
    "cen_share_view_item": (_status, [_handle, c_size_t, POINTER(ShareItem)]),
    "cen_share_view_items": (
        _status,
        [_handle, c_size_t, POINTER(ShareItem), c_size_t, POINTER(c_size_t)],
    ),
    "cen_share_view_find": (_status, [_handle, c_char_p, POINTER(ShareItem)]),
    "cen_share_wait": (_status, [_handle, _stream]),
    "cen_share_watch": (_status, [_handle, c_char_p, c_bool]),
    "cen_share_send": (_status, [_handle, c_uint64, c_int, c_uint32]),
    "cen_share_receive": (_status, [_handle, _handle, c_int, c_uint32, POINTER(_handle)]),
    "cen_share_list_read": (_status, [_handle, POINTER(POINTER(ShareList))]),
    "cen_share_list_free": (None, [POINTER(ShareList)]),
    "cen_trace_start": (_status, [c_char_p, POINTER(TraceOptions)]),
    "cen_trace_stop": (_status, []),
    "cen_trace_flush": (_status, []),
    "cen_trace_step": (None, []),
    "cen_trace_mark": (None, [c_char_p, c_bool]),
    "cen_trace_get_stats": (_status, [POINTER(TraceStats)]),
    "cen_snapshot_read": (_status, [c_char_p, POINTER(_handle), POINTER(ReadError)]),
    "cen_snapshot_read_memory": (
        _status,
        [c_char_p, c_char_p, c_size_t, POINTER(_handle), POINTER(ReadError)],
    ),
    "cen_snapshot_free": (None, [_handle]),
    "cen_explain": (_status, [_handle, POINTER(ExplainOptions), POINTER(_handle)]),
    "cen_explain_log": (_status, [c_char_p, c_size_t, POINTER(ExplainOptions), POINTER(_handle)]),
    "cen_explanation_free": (None, [_handle]),
    "cen_explanation_verdict": (c_int, [_handle]),
    "cen_explanation_next": (c_int, [_handle]),
    "cen_verdict_name": (c_char_p, [c_int]),
    "cen_explain_text": (_status, [_handle, POINTER(c_void_p)]),
    "cen_explain_json": (_status, [_handle, POINTER(c_void_p)]),
}


def candidates() -> List[str]:
    """Where the library may be, in the order that it is looked for: $CENOTE_LIBRARY alone if it is
    set, else in the installed package, a checkout's builds, and where the system's loader looks."""
    named = os.environ.get("CENOTE_LIBRARY")
    if named:
        return [named]
    package = Path(__file__).resolve().parent
    files = [package / "lib" / SONAME]
    root = package.parent.parent
    if (root / "include" / "cenote" / "cenote.h").is_file():
        files += [root / build / "libcenote.so" for build in ("build", "build-portable")]
    return [str(file) for file in files if file.is_file()] + [SONAME]


def _open(names: Sequence[str]) -> Tuple[ctypes.CDLL, str]:
    why = ""
    for name in names:
        try:
            return ctypes.CDLL(name), name
        except OSError as error:
            why = why or str(error)
    raise ImportError(
        f"cenote: libcenote.so cannot be loaded ({why}); set CENOTE_LIBRARY to the file, or build it"
    )


@functools.lru_cache(maxsize=None)
def _load() -> Tuple[ctypes.CDLL, str]:
    lib, name = _open(candidates())
    try:
        for function, (result, arguments) in PROTOTYPES.items():
            entry = getattr(lib, function)
            entry.restype = result
            entry.argtypes = arguments
    except AttributeError as error:
        raise ImportError(f"cenote: {name} is no libcenote {INTERFACE}: {error}") from None
    version = lib.cen_version().decode()
    if not version.startswith(INTERFACE + "."):
        raise ImportError(f"cenote: {name} has version {version}, this package needs {INTERFACE}")
    return lib, name


def count_of(what: str, value: Any, least: int = 0) -> int:
    """`value` if it is an int of at least `least` that 64 bits hold; else ValueError naming `what`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**64:
        raise ValueError(f"{what} is {value!r}: expected an int of at least {least}")
    return value


def c_text(what: str, text: Union[str, bytes]) -> bytes:
    """`text` for a C string, which a NUL would cut. Error naming `what`: CEN_ERR_INVALID, there is one."""
    encoded = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    if b"\0" in encoded:
        raise failure(ERR_INVALID, f"cenote: {what} cannot be used: it holds a NUL byte")
    return encoded


def library() -> ctypes.CDLL:
    """The library, loaded at the first call. ImportError: it is not there, or of another version."""
    return _load()[0]


def declare(prototypes: Dict[str, Tuple[Any, List[Any]]]) -> Callable[[str], Any]:
    """What gives the library's function of a name, with the prototype that it has here."""

    @functools.lru_cache(maxsize=None)
    def function(name: str) -> Any:
        entry = getattr(library(), name)
        entry.restype, entry.argtypes = prototypes[name]
        return entry

    return function


def path() -> str:
    """The file that library() loaded."""
    return _load()[1]


def failure(status: int, said: Optional[str] = None) -> Error:
    """The exception for a status: what the library said about it last on this thread (or `said`),
    and the status's text."""
    lib = library()
    line = lib.cen_log_last_error().decode(errors="replace")
    text = lib.cen_status_text(status).decode()
    message = said or line
    kind = OutOfMemoryError if status in (ERR_DEVICE_MEMORY, ERR_HOST_MEMORY) else Error
    return kind(
        f"{message} ({text})" if message else text, status, lib.cen_status_name(status).decode()
    )


def check(status: int, said: Optional[str] = None) -> None:
    """Raises failure(status, said) unless the status is CEN_OK."""
    if status != OK:
        raise failure(status, said)
