# SPDX-License-Identifier: LGPL-2.1-only
"""Tasks of asyncio that wait for a queue."""
import asyncio
import contextlib
import ctypes
import errno
import select

from . import _abi
from ._lib import call, error_of, lib


class Waiters:
    """Tasks of one event loop that wait for a key, in the order in which they came.

    An epoll of its own watches the queue, because the loop's reader does not report EPOLLPRI, the
    end of an unlinked queue or of a source. While the queue is readable, each turn of the loop wakes one task. A
    task takes its key after it woke up, so a task that is cancelled before takes none.
    """

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Future[None], None] = {}
        self._why: str | None = None            # of close()
        self._epoll = select.epoll()
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLPRI)

    def serves(self) -> bool:
        """Whether a task of this loop can wait. Raises RuntimeError if another loop's tasks do."""
        loop = asyncio.get_running_loop()
        if self._tasks and self._loop is not loop and not self._loop.is_closed():
            raise RuntimeError("tasks of another event loop wait for this queue: open_same() makes "
                               "a consumer of this loop's own")
        return self._loop is loop

    async def wait(self) -> None:
        """Wait until the queue can have a key."""
        if self._why is not None:
            raise ValueError(self._why)
        woken = self._loop.create_future()
        if not self._tasks:
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        self._tasks[woken] = None
        try:
            await woken
        finally:
            self._leave(woken)

    def _leave(self, woken: asyncio.Future[None]) -> None:
        if woken in self._tasks:
            del self._tasks[woken]
            if not self._tasks:
                self._loop.remove_reader(self._epoll.fileno())

    def _ready(self) -> None:
        events = self._epoll.poll(0, 1)
        if events and not events[0][1] & ~select.EPOLLPRI:
            self._fail(error_of(self._reason(), self._name))
        elif events:
            woken = next(iter(self._tasks))
            self._leave(woken)
            if not woken.done():
                woken.set_result(None)

    def _reason(self) -> int:
        """Why no key comes any more."""
        struct = _abi.wq_stat()
        call(lib.wq_stat_sized, self._fd, struct, ctypes.sizeof(struct), None)
        ended = struct.ended_sources and not struct.state & _abi.State.UNLINKED
        return errno.ENOLINK if ended else errno.EIDRM

    def _fail(self, error: Exception) -> None:
        for woken in list(self._tasks):
            self._leave(woken)
            if not woken.done():
                woken.set_exception(error)

    def close(self, why: str) -> None:
        """End all waits, with ValueError and this text. Any thread can call this."""
        if self._loop.is_running() and asyncio._get_running_loop() is not self._loop:
            # The end of a future does not wake the loop, which is another thread's.
            with contextlib.suppress(RuntimeError):     # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._end, why)
                return
        self._end(why)

    def _end(self, why: str) -> None:
        self._why = why
        if self._loop.is_closed():
            self._tasks.clear()
        self._fail(ValueError(why))
        self._epoll.close()


async def readable(fd: int) -> None:
    """Wait until a descriptor is readable, which no other task waits for."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
