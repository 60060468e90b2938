# SPDX-License-Identifier: LGPL-2.1-only
"""Sources, which add a key for each thing that changes."""
import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import _abi
from ._abi import FsEvent, NetTable, Source, SourceFlag
from ._lib import call, checked, figures, in_range, lib, name_bytes, nanoseconds

Name = str | os.PathLike[str]
_Args = _abi.wq_fs_args | _abi.wq_net_args | _abi.wq_bpf_args

_TEXTS = {
    errno.ENOENT: "there is no such kind of sources, or what it watches was removed",
    errno.EPERM: "the right to watch this is missing, see wq(4)",
    errno.EBUSY: "another source has this channel",
    errno.EUSERS: "the queue has as many sources as are allowed",
}


@dataclass(frozen=True)
class Watched:
    """The result of fs(), net() and bpf(), for Queue.attach()."""

    kind: str
    number: int = 0                     # tables, or a channel
    directory: Name = ""
    flags: int = 0
    events: FsEvent = FsEvent(0)
    rules: bytes = b""

    @contextlib.contextmanager
    def _args(self) -> Iterator[_Args]:
        """The struct for libwq, which is valid in the body."""
        if self.kind == "net":
            yield _abi.wq_net_args(tables=self.number)
        elif self.kind == "bpf":
            yield _abi.wq_bpf_args(channel=self.number)
        else:
            rules = ctypes.create_string_buffer(self.rules)
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield _abi.wq_fs_args(fd=fd, flags=self.flags, events=self.events,
                                      rules=ctypes.addressof(rules) if self.rules else 0,
                                      rules_size=len(self.rules))
            finally:
                os.close(fd)


def fs(directory: Name, *, children: bool = False, own: bool = True,
       events: FsEvent = FsEvent(0), only: Iterable[Name] = (),
       exclude: Iterable[Name] = ()) -> Watched:
    """Watch a directory and all below it, by one mark on its file system.

    A key is a path relative to the directory: "a/b" has changed. "a/b/" is a rescan key: anything
    below a/b may have changed. "/" stands for all of it. The caller needs CAP_SYS_ADMIN, see wq(4).

    children: watch the directory and its entries, not the tree. It is enough then that the caller
        can read the directory
    own: False leaves out changes by this process and its descendants
    events: which changes; 0: all
    only, exclude: patterns of paths that are watched alone, or left out, see wq(4)
    """
    if any(isinstance(patterns, (str, bytes, os.PathLike)) for patterns in (only, exclude)):
        raise TypeError("only and exclude take several patterns, such as [pattern]")
    rules = b"".join(bytes([kind]) + name_bytes(pattern) + b"\0"
                     for kind, patterns in ((_abi.WQ_FS_ONLY, only), (_abi.WQ_FS_EXCLUDE, exclude))
                     for pattern in patterns)
    flags = (_abi.WQ_FS_CHILDREN if children else 0) | (0 if own else _abi.WQ_FS_NOT_OWN)
    return Watched("fs", directory=directory, flags=flags, events=events, rules=rules)


def net(tables: NetTable = NetTable(0)) -> Watched:
    """Watch tables of the network namespace, 0: all of them.

    Keys are for example "link/2", "addr/2/192.0.2.1" and "route/main/192.0.2.0/24", see wq(4).
    """
    return Watched("net", tables)


def bpf(channel: int) -> Watched:
    """Let BPF programs add keys, to the channel of this number."""
    return Watched("bpf", in_range("channel", channel, 0, _abi.WQ_BPF_CHANNELS - 1))


def attach(fd: int, watched: Watched, prefix: str | bytes, delay: float,
           flags: SourceFlag) -> int:
    """Attach a source, see Queue.attach()."""
    ahead = name_bytes(prefix)
    if len(ahead) >= _abi.WQ_SOURCE_PREFIX_MAX:
        raise ValueError(f"the prefix has {len(ahead)} bytes: a prefix has at most "
                         f"{_abi.WQ_SOURCE_PREFIX_MAX - 1}")
    op = _abi.wq_source_op(kind=watched.kind.encode(), prefix=ahead, delay=nanoseconds(delay),
                           flags=flags)
    with watched._args() as args:
        op.arg, op.arg_size = ctypes.addressof(args), ctypes.sizeof(args)
        checked(call(lib.wq_attach, fd, op), str(watched.directory) or watched.kind, _TEXTS)
    return op.id


def sources(fd: int) -> Iterator[Source]:
    """The sources of a queue, see Queue.sources()."""
    op = _abi.wq_source_op()
    text = ctypes.create_string_buffer(_abi.WQ_MAX_SOURCE_TEXT)
    while True:
        result = call(lib.wq_source_next, fd, op, text, len(text))
        if result == -errno.ENOENT:
            return
        checked(result)
        yield figures(Source, op, watches=os.fsdecode(text.value))
