"""What owns something of the library's, and gives it up: by close(), at the end of a `with`, or when
nothing refers to it any more."""

import atexit
import os
from types import TracebackType
from typing import Optional, Type, TypeVar

from cenote import _lib

_Closing = TypeVar("_Closing", bound="Closing")

_ending = False


@atexit.register
def _end() -> None:
    global _ending
    _ending = True


def usable(pid: int) -> bool:
    """Whether what the process `pid` made may still be given up one by one: it is this process, and not
    at its end, where the rest goes by itself."""
    return pid == os.getpid() and not _ending


def finalized(status: int) -> None:
    """What a finaliser's call gave: Python prints what is raised. A broker that is gone hears of it
    when it is back."""
    if status != _lib.ERR_NO_BROKER:
        _lib.check(status)


class Closing:
    """With close(), which may be called twice, a context manager."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        raise NotImplementedError

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _state(self) -> str:
        """The end of its repr()."""
        return " closed" if self.closed else ""


class Handle(Closing):
    """What is one object of the library's, at `handle` until it is closed."""

    _handle: Optional[int] = None

    @property
    def _title(self) -> str:
        raise NotImplementedError

    @property
    def handle(self) -> int:
        """The address of the object in C, for calls that this class does not have."""
        if self._handle is None:
            raise ValueError(f"{self._title} is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None
