# SPDX-License-Identifier: LGPL-2.1-only
"""libwq, loaded by ctypes: calls, errors, and keys and times as libwq takes them."""
import ctypes
import dataclasses
import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

from . import _abi

Key = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Figures = TypeVar("_Figures")

_SONAME = "libwq.so.0"

# Times beyond 140 years mean the same to every queue, and 64 bits of ns hold them.
_LONGEST = 2.0 ** 62 / 1e9

_MAX_KEY = _abi.WQ_MAX_KEY


def _load() -> ctypes.CDLL:
    model = (ctypes.sizeof(ctypes.c_void_p), ctypes.alignment(ctypes.c_uint64))
    for struct, sizes in _abi.SIZES:
        wanted = dict(zip(_abi.MODELS, sizes)).get(model)
        if ctypes.sizeof(struct) != wanted:
            raise ImportError(f"{struct.__name__} has {ctypes.sizeof(struct)} bytes in Python, and "
                              f"{wanted} in libwq: the package does not fit this machine")
    try:
        lib = ctypes.CDLL(_SONAME, use_errno=True)
    except OSError as error:
        raise ImportError(f"{error}; install libwq (Debian: libwq0)") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise ImportError(f"{_SONAME} has no {name}(): install libwq {_abi.VERSION} or "
                              "later") from None
        function.restype, function.argtypes = result, arguments
    return lib


lib: Any = _load()


class ShutDown(BrokenPipeError):
    """The queue is shut down (ESHUTDOWN): it takes no keys, or has none left."""


class Stale(OSError):
    """The consumer no longer holds the key (ESTALE).

    The run has ended already, or the lease has expired. Then another consumer may have the key, and
    the work must stop.
    """


class UnknownKey(OSError, KeyError):
    """The queue does not know the key (ENOENT)."""


class RestFor(Exception):
    """For the body of "with item" and the function of work(): end the run by Item.rest(seconds).

    This is no failure. If the group cannot rest, because the queue has no groups or too many rest,
    the key alone waits.
    """

    def __init__(self, seconds: float) -> None:
        nanoseconds(seconds)            # raises now what it would raise at the end of the run
        super().__init__(f"the group is to rest for {seconds:g} s")
        self.seconds = seconds


class KeysFailed(OSError):
    """Some of several keys failed.

    failed: pairs of a key and its error. The calls for the other keys succeeded. errno is that of
    the first error.
    """

    failed: list[tuple[bytes, OSError]]


class Interrupted(SystemExit, KeyboardInterrupt):
    """Ctrl-C during the wait of a loop over a queue.

    A program that does not catch this KeyboardInterrupt ends with the status 130, and without a
    traceback.
    """


_CLASSES: dict[int, type[OSError]] = {errno.ESHUTDOWN: ShutDown, errno.ESTALE: Stale}

# For errors whose usual text is about something else.
_TEXTS = {
    errno.EAGAIN: "nothing is there yet, and the timeout is 0",
    errno.ESHUTDOWN: "the queue is shut down",
    errno.ESTALE: "the key is no longer held: its run ended, or its lease expired",
    errno.EHOSTDOWN: "adds are paused: resume() continues them",
    errno.EBUSY: "the key is disabled: enable() accepts it again",
    errno.ENOSPC: "the queue is full, or its user has as many queues or keys as are allowed",
    errno.EIDRM: "the queue was unlinked, and no key is left: open it again",
    errno.ENOLINK: "what a source of this file watched is gone, and no key is left",
    errno.ENODEV: "there is no /dev/wq: load the module, modprobe wq",
    errno.ENOTTY: "this is not a queue",
    errno.EDEADLK: "this consumer holds the key, and would wait for itself",
    errno.EUSERS: "the user has as many waits as are allowed",
    errno.ECANCELED: "a shut_down() ended the drain",
    errno.ETIMEDOUT: "nothing came in time",
}


def error_of(code: int, what: str | None = None, texts: dict[int, str] = {}) -> OSError:
    """The exception of an errno. what: the queue or the key that it is about."""
    text = texts.get(code) or _TEXTS.get(code) or os.strerror(code)
    return _CLASSES.get(code, OSError)(code, text, what)


def call(function: Callable[..., int], *arguments: object) -> int:
    """Call libwq. Returns the result, or -errno.

    The thread's errno of ctypes stays as it is. So a signal handler that calls libwq, too, can run
    between the call and the look at its errno.
    """
    before = ctypes.get_errno()
    result = function(*arguments)
    code = ctypes.get_errno()
    ctypes.set_errno(before)
    return result if result >= 0 else -code


def wait(function: Callable[..., int], *arguments: object) -> int:
    """call() that goes on after a signal, unless Python's handler of the signal raises."""
    while True:
        result = call(function, *arguments)
        if result != -errno.EINTR:
            return result


def checked(result: int, what: str | None = None, texts: dict[int, str] = {}) -> int:
    """The result of a call, or its error as an exception."""
    if result < 0:
        raise error_of(-result, what, texts)
    return result


class OneProcess:
    """An object that is neither copied nor pickled, because its descriptor is that of one object."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: give another process "
                        "the queue's name or the key, and let it open the queue")


def key_bytes(key: Key) -> bytes:
    """A key as bytes: text in UTF-8, a path as the file system has it."""
    if isinstance(key, bytes):
        data = key
    elif isinstance(key, str):
        data = key.encode("utf-8", "surrogateescape")
    elif isinstance(key, os.PathLike):
        data = os.fsencode(key)
    else:
        raise TypeError(f"a key is str, bytes or a path, not {type(key).__name__}")
    if not 0 < len(data) <= _MAX_KEY:
        check_length(len(data))
    return data


def check_length(size: int) -> None:
    """The length of a key."""
    if not size:
        raise ValueError("the key is empty: a key has 1 byte at least")
    if size > _MAX_KEY:
        raise ValueError(f"the key has {size} bytes: a key has at most {_MAX_KEY}")


def name_bytes(name: str | bytes | os.PathLike[str]) -> bytes:
    """A name or a path as libwq takes it."""
    data = os.fsencode(name)
    if b"\0" in data:
        raise ValueError("the name has a NUL byte")
    return data


def key_text(key: bytes) -> str:
    """A key as text. Bytes that are not UTF-8 become surrogates, which key_bytes() undoes."""
    return key.decode("utf-8", "surrogateescape")


def in_range(what: str, value: int, least: int = 0, most: int = 2 ** 32 - 1) -> int:
    """A number, which ctypes would cut to the bits of its field."""
    if not least <= value <= most:
        raise ValueError(f"{what} is {value}, and must be {least} to {most}")
    return value


def checked_priority(priority: int) -> int:
    """A priority of a queue with Order.PRIORITY."""
    return in_range("priority", priority, _abi.WQ_MIN_PRIORITY, _abi.WQ_MAX_PRIORITY)


def nanoseconds(seconds: float) -> int:
    """A time for libwq."""
    if seconds != seconds:
        raise ValueError("a time cannot be NaN")
    return round(max(-_LONGEST, min(seconds, _LONGEST)) * 1e9)


def timeout_ns(timeout: float | None) -> int:
    """The timeout of a get by ioctl, which the kernel keeps over signals."""
    if timeout is None:
        return _abi.WQ_FOREVER
    if timeout < 0:
        raise ValueError("a timeout is not negative; None waits without a limit")
    return max(1, nanoseconds(timeout)) if timeout else _abi.WQ_NOWAIT


def until(timeout: float | None) -> int:
    """The timeout of a wait, which a repeated call does not prolong."""
    if timeout is None:
        return _abi.WQ_FOREVER
    if timeout < 0:
        raise ValueError("a timeout is not negative; None waits without a limit")
    if timeout == 0:
        return _abi.WQ_NOWAIT
    return int(lib.wq_until(max(1, nanoseconds(timeout))))


def figures(cls: type[_Figures], struct: ctypes.Structure, **others: object) -> _Figures:
    """A dataclass of _abi with the fields of a struct; others: fields that differ from it."""
    dataclass: Any = cls
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(dataclass):
        if field.name in others:
            fields[field.name] = others[field.name]
            continue
        value = getattr(struct, field.name)
        make: Any = field.type
        if isinstance(value, bytes):
            value = os.fsdecode(value)
        elif isinstance(value, ctypes.Array):
            value = tuple(value)
        elif isinstance(value, ctypes.Structure):
            value = figures(make, value)
        elif make is not int:
            value = make(value)
        fields[field.name] = value
    return cls(**fields)
