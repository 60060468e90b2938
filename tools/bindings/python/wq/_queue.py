# SPDX-License-Identifier: LGPL-2.1-only
"""Queues."""
import ctypes
import dataclasses
import errno
import fcntl
import os
import signal
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from . import _abi, _calls, _item, _items, _source
from ._abi import (AddFlag, Attributes, End, Info, KeyInfo, KeyState, LimiterSpec, Order, Pause,
                   QueueInfo, Source, SourceFlag, Stat)
from ._items import Items, Records
from ._item import Item, Loop
from ._lib import (Interrupted, Key, OneProcess, ShutDown, UnknownKey, call, checked, error_of,
                   figures, checked_priority, in_range, key_bytes, key_text, lib, name_bytes,
                   nanoseconds, timeout_ns, until, wait)
from ._limiter import Limiter, specs_of
from ._periodic import NO_SCHEDULE
from ._producer import Producer
from ._source import Watched

# Only tasks need _aio, whose asyncio takes as long to import as all the rest of the package.
if TYPE_CHECKING:
    from . import _aio

Access = Literal["r", "w", "rw"]
_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
_BOTH = Pause.GETS | Pause.ADDS
_NO_FLAGS = AddFlag(0)

_OPEN_TEXTS = {
    errno.ENOENT: "there is no such queue: create=True makes it",
    errno.EEXIST: "the queue exists, or has other attributes: accept=True takes it as it is",
}


_NO_PRIORITIES = {
    errno.EINVAL: "the queue has no priorities, which order=Order.PRIORITY or group_ageing "
                  "makes, or the flags contradict each other",
}


def open(name: str | os.PathLike[str] | None = None, access: Access = "rw", *,  # noqa: A001
         create: bool = False, exclusive: bool = False, accept: bool = False,
         permissions: int = 0o600, max_keys: int = 0, lease: float = 0, max_retries: int = 0,
         limiter: Limiter = (), order: Order = Order.FIFO, order_arg: int = 0, group_limit: int = 0,
         group_ageing: int = 0, max_processing: int = 0, start_rate: float = 0,
         start_burst: int = 0, group_start_rate: float = 0, group_start_burst: int = 0,
         max_defer: float = 0, slack: float = 0, no_map: bool = False) -> "Queue":
    """Open a queue as a new consumer.

    name: the queue's name, or with a slash the path of its file in wqueue; None: a new private
        queue, which ends when its last consumer is closed
    access: "r" to get and list, "w" to add, cancel and shut down, or "rw"
    create: create the queue if there is none. exclusive: fail with FileExistsError if there is one
    permissions: of a new queue, less the umask
    accept: take a queue that exists with its own attributes. Without this, it must have those of
        the following that are not 0, else the call fails with FileExistsError

    max_keys: the number of keys that the queue can hold; 0: 65,536
    lease: seconds for which a consumer can hold a key without Item.touch(); 0: no limit
    max_retries: failures in a row that are retried, before the key is parked; 0: all
    limiter: the delay of a failed key, for example exponential(0.1, 60). The default is 5 ms after
        the first failure, twice as much after each further one, at most 1,000 s, and for all keys
        together at most 10 failures a second after the first 100
    order: which ready key a get takes. order_arg: its number, see wq(4), for example ord("/") of
        Order.DELIMITER. group_limit: keys of a group that are processing at once; 0: no limit.
        group_ageing: the keys of a group have priorities, and this is their order_arg as of
        Order.PRIORITY; 0: they have none
    max_processing: keys of the queue that are processing at once; 0: no limit
    start_rate: keys that can start in a second; 0: no limit. start_burst: keys that can start at
        once after a time without starts; 0: 1
    group_start_rate: as start_rate, for each group of Order.DELIMITER or Order.PREFIX.
        group_start_burst: as start_burst, for that
    max_defer: seconds for which adds with AddFlag.TAKE_LATEST can defer a key; 0: no limit
    slack: seconds by which delays and leases may end late; 0: 50 us
    no_map: a new queue has no map, so that each add of a Producer is a call

    >>> q = open(order=Order.PRIORITY)
    >>> q.add("low"), q.add("high", priority=3)
    (True, True)
    >>> with q.get() as item:
    ...     print(item.text)
    high
    >>> q.close()
    """
    specs = specs_of(limiter)
    attrs = _abi.wq_attrs(
        max_keys=in_range("max_keys", max_keys), lease=nanoseconds(lease),
        slack=nanoseconds(slack), max_defer=nanoseconds(max_defer), order=order,
        order_arg=in_range("order_arg", order_arg),
        group_limit=in_range("group_limit", group_limit),
        group_ageing=in_range("group_ageing", group_ageing),
        max_processing=in_range("max_processing", max_processing),
        start_rate=nanoseconds(start_rate), start_burst=in_range("start_burst", start_burst),
        group_start_rate=nanoseconds(group_start_rate),
        group_start_burst=in_range("group_start_burst", group_start_burst),
        max_retries=in_range("max_retries", max_retries), num_limiters=len(limiter),
        limiters=ctypes.addressof(specs) if limiter else 0,
        flags=(_abi.WQ_OPEN_ACCEPT if accept else 0) | (_abi.WQ_OPEN_NO_MAP if no_map else 0))
    flags = _mode(access)
    if create or exclusive:
        flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
    path = None if name is None else name_bytes(name)
    return Queue(checked(call(lib.wq_open_attr_sized, path, flags, permissions, attrs,
                              ctypes.sizeof(attrs)), _shown(name), _OPEN_TEXTS), name)


def _mode(access: str) -> int:
    if access not in _ACCESS:
        raise ValueError(f"access is {access!r}, and must be 'r', 'w' or 'rw'")
    return _ACCESS[access]


def _shown(name: str | os.PathLike[str] | None) -> str:
    return "a private queue" if name is None else os.fspath(name)


def unlink(name: str | os.PathLike[str]) -> None:
    """Remove the name of a queue. The queue ends when its last consumer is closed."""
    checked(call(lib.wq_unlink, name_bytes(name)), _shown(name),
            {errno.ENOENT: "there is no such queue"})


def info() -> Info:
    """The limits of the kernel's wq."""
    struct = _abi.wq_info()
    checked(call(lib.wq_info_sized, struct, ctypes.sizeof(struct)))
    return figures(Info, struct)


def queues(path: str | os.PathLike[str] | None = None) -> list[QueueInfo]:
    """The queues of a directory of wqueue that the caller can open, by name.

    path: None: the directory in which open() looks up names
    """
    found = ctypes.POINTER(_abi.wq_queue)()
    count = checked(call(lib.wq_queues_sized, None if path is None else name_bytes(path),
                         ctypes.byref(found), ctypes.sizeof(_abi.wq_queue)),
                    None if path is None else os.fspath(path))
    try:
        return sorted((figures(QueueInfo, found[i]) for i in range(count)),
                      key=lambda queue: queue.name)
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)


class Queue(OneProcess):
    """A queue, opened as one consumer.

    The consumer holds each key that it got until the key's run ends, and gives its keys back when
    it is closed. As a context manager, a queue is closed at the end. Threads can share a queue: a
    call that waits lets other threads run. shut_down() wakes such calls, and close() does not.

    A loop over the queue waits for keys until the queue is shut down:

        for item in queue:
            with item:
                deliver(item.text)

    With the inner with, a run that raises is retried with the exception as its reason, as described
    in Item. The loop itself never ends a run as done: an item that the body has not ended is retried
    at the next step or at the end of the loop. So list(queue) loses no key. If the queue is shut
    down, which would drop a retry, this consumer holds the key until it is closed.

    After fork(), a child that uses the queue of its parent is the same consumer: the keys that one of
    them got are given back after both have ended. So the child's first get is a RuntimeWarning. Adds
    in the child are right. open() and open_same() make a consumer of its own, as work() does.

    A key is str, bytes or a path, times are seconds, and a timeout is None to wait without a limit,
    or 0 not to wait. Signal handlers of Python run during a wait, which goes on unless the handler
    raises, so Ctrl-C ends it. If Ctrl-C ends the wait of a loop, the KeyboardInterrupt is an
    Interrupted, which ends a program without a traceback, unless Python is interactive. A key that
    is empty or longer than 1,024 bytes raises ValueError, and any call after close() does. All other
    errors are OSError with the errno of the call, see wq(4):

        BlockingIOError     EAGAIN: nothing is there, and the timeout is 0
        TimeoutError        ETIMEDOUT: nothing came in time
        ShutDown            ESHUTDOWN: the queue is shut down
        Stale               ESTALE: this consumer does not hold the key any more
        UnknownKey          ENOENT: the queue does not know the key; also a KeyError
        PermissionError     EACCES, EPERM: access, or the caller, does not permit the call
        FileNotFoundError, FileExistsError  ENOENT, EEXIST of open()
        KeysFailed          some of several keys failed
        OSError             EHOSTDOWN: adds are paused. EBUSY: the key is disabled. ENOSPC: the
                            queue is full. EIDRM: the queue was unlinked and is empty.
                            ENOLINK: what a source of this consumer watched is gone
    """

    def __init__(self, fd: int, name: str | os.PathLike[str] | None) -> None:
        """Take over a descriptor that is bound to a queue."""
        self._fd = fd
        self._name = name
        self._waiters: _aio.Waiters | None = None
        self._ends = 0                          # calls that ended the waits
        self._producers: set[weakref.ref[Producer]] = set()
        self._reopening: list[None] = []        # an element for each call of reopen()
        self._pid = _item.pid()
        self._mode = fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"descriptor {self._fd}"
        return f"<wq.Queue {_shown(self._name)!r}, {state}>"

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            text = f"{self!r} was not closed"
            self.close()
            warnings.warn(text, ResourceWarning, source=self)

    @property
    def name(self) -> str | None:
        """The name or path by which the queue was opened; None: a private queue."""
        return None if self._name is None else os.fspath(self._name)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._fd < 0

    def fileno(self) -> int:
        """The descriptor, for select and poll: readable if a get would not wait."""
        if self._fd < 0:
            raise ValueError("the queue is closed")
        return self._fd

    def _get_fd(self) -> int:
        """The descriptor, for a get. Warns once in a child of fork()."""
        if self._pid != _item.pid():
            warnings.warn(f"the process {self._pid} opened {self!r}, and a child of it is the same "
                          "consumer: the keys that it gets are given back after both have ended. "
                          "Open the queue in the child", RuntimeWarning, stacklevel=3)
            self._pid = _item.pid()
        return self.fileno()

    def close(self) -> None:
        """Close this consumer. The keys that it holds are given back. Can be called again."""
        fd, self._fd = self._fd, -1
        try:
            for producer in self._living_producers():
                producer.close()
            self._end_waiters("the queue was closed")
        finally:
            if fd >= 0:
                os.close(fd)

    def _living_producers(self) -> list[Producer]:
        # list() of a set is one step: meanwhile no other thread adds a producer.
        refs = list(getattr(self, "_producers", ()))
        return [producer for ref in refs if (producer := ref())]

    def _end_waiters(self, why: str) -> None:
        self._ends += 1
        waiters, self._waiters = self._waiters, None
        if waiters:
            waiters.close(why)

    def open_same(self, access: Access = "rw") -> "Queue":
        """Open the queue, also a private one, as another consumer."""
        fd = self._checked(call(lib.wq_open_same, self.fileno(), _mode(access)))
        return Queue(fd, self._name)

    def reopen(self, timeout: float | None = None) -> bool:
        """Put the new queue of the name in the place of a removed one.

        "wqctl reload" removes each queue and makes it again with its keys, and can do so only if no
        process has the queue open. A consumer calls this if a get raises OSError with EIDRM, and a
        producer if an add raises one with EHOSTDOWN. Until there is a queue of that name the
        descriptor is one of /dev/null. If the call raises, it can be repeated. Items from before
        are no longer held, and tasks of asyncio that wait for a key have ValueError. Any user can
        take a name that is free, and this call does not compare the owners: it has to open the new
        queue with the descriptor of this one. So compare stat().uid with that of the removed queue.
        In a user namespace, all users that it does not map have the number 65534.

        Returns False if the queue was not removed.
        """
        if self._name is None:
            raise ValueError("a private queue has no name")
        result = 0
        self._reopening.append(None)
        try:
            for producer in self._living_producers():
                producer._unmap()
            result = 1
            result = wait(lib.wq_reopen, self.fileno(), name_bytes(self._name), self._mode,
                          until(timeout))
        finally:
            self._reopening.pop()
            if result:
                self._end_waiters("the queue was opened again")
        return self._checked(result) == 1

    def _checked(self, result: int, key: bytes | None = None, texts: dict[int, str] = {}) -> int:
        """The result of a call. Errors name the key, or the queue."""
        if result == -errno.ENOENT and key is not None:
            raise UnknownKey(errno.ENOENT, "the queue does not know the key", key_text(key))
        return checked(result, _shown(self._name) if key is None else key_text(key), texts)

    def _key_call(self, function: str, key: Key) -> int:
        data = key_bytes(key)
        return self._checked(call(getattr(lib, function), self.fileno(), data, len(data)), data)

    # Adds

    def add(self, key: Key, *, after: float | None = None, priority: int = 0,
            flags: AddFlag = _NO_FLAGS) -> bool:
        """Add a key: it needs a run.

        after: seconds until it needs the run. If the key has a pending delay, the earlier time
            applies, unless flags selects another rule. 0 or less: now; but the add counts in
            Stat.retries, as client-go's AddAfter
        priority: in a queue whose keys have priorities, -128 to 127. If the key is added several
            times before its run starts, the highest priority counts

        Returns True if the key is newly dirty or newly delayed, and False if the add was coalesced
        with a run that has not started.

        >>> import pathlib, wq
        >>> q = wq.open()
        >>> q.add("alice"), q.add(b"alice"), q.add(pathlib.Path("/srv/a"), after=1.5)
        (True, False, True)
        >>> q.close()
        """
        data = key_bytes(key)
        if after is None and priority == 0 and flags is _NO_FLAGS:
            result = _calls.one(self.fileno(), _calls.ADD, data)
        else:
            delay, rule = _delay(after, flags)
            result = _calls.one(self.fileno(), _calls.ADD, data, 0, rule,
                                checked_priority(priority), delay)
        if result < 0:
            self._checked(result, data, _NO_PRIORITIES if priority else {})
        return result == 1

    def add_many(self, keys: Iterable[Key], *, after: float | None = None, priority: int = 0,
                 flags: AddFlag = _NO_FLAGS) -> int:
        """Add keys, some 200 in a call. The options are those of add().

        Returns how many keys are newly dirty. Raises KeysFailed if keys failed. The others are
        added. If keys raises, or has an element that can't be a key, that is raised, and the keys
        ahead of it are added. Its cause is a KeysFailed if some of them failed, and the OSError of
        their call if that failed.
        """
        if isinstance(keys, (str, bytes, os.PathLike)):
            raise TypeError("add_many() takes several keys; add() takes one")
        return _items.add_packed(self.fileno(), keys, checked_priority(priority),
                                 *_delay(after, flags))

    def add_rate_limited(self, key: Key) -> bool:
        """Count a failure of a key, and add it after the delay of the queue's limiter.

        Returns as add(). Item.retry() does this for a key that is held.
        """
        return self._key_call("wq_add_rate_limited", key) == 1

    def move_periodic(self, watch: int = -1, clock: int = 0) -> tuple[int, int]:
        """Move pending periodic keys to their due times by the wall clock.

        A worker calls this first, and when the descriptor of periodic_watch() is readable. Returns
        how many keys were moved, and the clock for the next call.
        """
        value = ctypes.c_int64(clock)
        return self._checked(call(lib.wq_periodic_move, self.fileno(), watch, value)), value.value

    def add_periodic(self, key: Key, *, priority: int = 0) -> bool:
        """Add a key with a schedule, such as backup@every=5m, delayed until it is due next.

        Each consumer of the queue calls Item.begin_periodic() before a run. libwq(3) describes
        schedules. Returns whether the key is newly delayed.
        """
        data = key_bytes(key)
        return self._checked(call(lib.wq_periodic_add, self.fileno(), data, len(data),
                                  checked_priority(priority)), data, NO_SCHEDULE) == 1

    def producer(self, keys: int = 1024) -> Producer:
        """A producer that adds keys which still wait without a system call.

        keys: the number of keys that it remembers, up to 2^20. Adds of other keys are calls, and so
            is each add if the queue has no map
        """
        producer = Producer(self, keys)
        self._producers.add(weakref.ref(producer, self._producers.discard))
        producer._map()                 # now, so that reopen() and close() find the map
        return producer

    # Sources

    def attach(self, watched: Watched, *, prefix: str | bytes = "", delay: float = 0,
               scan: bool = False, until_close: bool = False) -> int:
        """Attach a source, which adds a key for each thing that changes.

        watched: what the source watches, for example wq.fs("/srv") or wq.net(wq.NetTable.LINK)
        prefix: is put ahead of each key of the source, at most 31 bytes
        delay: seconds without a further change after which the key is ready
        scan: add the rescan key of all that the source watches
        until_close: the source is detached when this consumer is closed, and a get of this
            consumer raises OSError with ENOLINK when what it watches is gone. Otherwise the source
            lives until it is detached or the queue ends

        Returns the number of the source.

        >>> import wq
        >>> with wq.open() as q:
        ...     number = q.attach(wq.net(wq.NetTable.LINK), scan=True)
        ...     with q.get() as item:
        ...         print(item.text)
        ...     q.detach(number)
        /
        """
        flags = SourceFlag.SCAN if scan else SourceFlag(0)
        if until_close:
            flags |= SourceFlag.WITH_FILE
        return _source.attach(self.fileno(), watched, prefix, delay, flags)

    def sources(self) -> list[Source]:
        """The sources of the queue, by their numbers."""
        return list(_source.sources(self.fileno()))

    def detach(self, number: int) -> None:
        """Detach the source of this number. It adds no key after the call."""
        self._checked(call(lib.wq_detach, self.fileno(), in_range("number", number)), None,
                      {errno.ENOENT: "the queue has no such source"})

    # Gets

    def get(self, timeout: float | None = None) -> Item:
        """Get the next key.

        Raises TimeoutError or, if timeout is 0, BlockingIOError if no key is ready, and ShutDown if
        the queue is shut down and no key is left.

        >>> import wq
        >>> q = wq.open(max_retries=1)
        >>> q.add("bob")
        True
        >>> for _ in range(2):
        ...     try:
        ...         with q.get(timeout=60) as item:
        ...             print(item.failures)
        ...             raise RuntimeError("no such user")
        ...     except RuntimeError:
        ...         pass
        0
        1
        >>> q.query("bob").reason
        'RuntimeError: no such user'
        >>> q.close()
        """
        fd = self._get_fd()
        item: Item | None = None
        getting = _calls.get_one(timeout_ns(timeout))
        try:
            try:
                result = fcntl.ioctl(fd, _calls.GET, getting.getting)
            except OSError as error:
                result = _calls.failed(error)
                if result == -errno.EINTR:
                    result = _calls.wait(fd, _calls.GET, getting.getting)
            if result == 0:
                item = Item(self, getting.first())
        except BaseException:
            # An interrupt must not leave a key without an item, which gives it back.
            rec = getting.first()
            if item is None and rec:
                item = Item(self, rec)
            raise
        _calls.free_one(getting)       # after the last look at it: another thread can have it now
        if item is None:
            raise error_of(-result, _shown(self._name))
        return item

    def get_many(self, most: int = 0, timeout: float | None = None) -> Items:
        """Get the next keys: wait for the first, and take the others that are ready.

        most: the number of keys; 0: as many as fit into 8 KiB

        Raises as get().
        """
        return _items.get(self, most, timeout_ns(timeout))

    def __iter__(self) -> "ItemLoop":
        return ItemLoop(self)

    async def aget(self) -> Item:
        """get() for asyncio. asyncio.timeout() limits the wait."""
        from . import _aio
        while True:
            try:
                return self.get(timeout=0)
            except BlockingIOError:
                pass
            waiters = self._waiters             # which another thread can end
            if not waiters or not waiters.serves():
                self._end_waiters("")
                ends = self._ends
                waiters = self._waiters = _aio.Waiters(self.fileno(), _shown(self._name))
                if self._ends != ends:          # by another thread, which has not seen these
                    self._end_waiters("")
                    continue
            await waiters.wait()

    def aiter(self) -> "AsyncItemLoop":
        """The loop over the queue for asyncio.

        Runs end as in the loop without async, and if the task is canceled in a body with an inner
        with, its key is ready again at once:

            async for item in queue.aiter():
                with item:
                    await deliver(item.text)
        """
        return AsyncItemLoop(self)

    # Keys

    def query(self, key: Key, *, idle: bool = False) -> KeyInfo:
        """The state, failures, holder, times and last run of a key. Raises UnknownKey.

        idle: also of a key that is idle, whose state is 0. The queue forgets idle keys
        """
        data = key_bytes(key)
        struct = _abi.wq_key_info()
        function = lib.wq_query_last_sized if idle else lib.wq_query_info_sized
        self._checked(call(function, self.fileno(), data, len(data), struct,
                           ctypes.sizeof(struct)), data)
        return _key_info(data, struct)

    def __contains__(self, key: Key) -> bool:
        """Whether the queue knows the key, in any state. Takes no key, unlike a loop over the queue."""
        try:
            self.query(key)
        except UnknownKey:
            return False
        return True

    def keys(self, *, since: bool = False, idle: bool = False) -> Iterator[KeyInfo]:
        """The keys of the queue in any state, in no particular order.

        A key that is in the queue from the first step to the last comes once. A key that is added
        or removed meanwhile comes at most once.

        since: KeyInfo.age is the time of time.monotonic_ns() at which the age was 0. Ready keys
            that are sorted by it are in the order in which they became dirty
        idle: also idle keys whose last run is known, as query(); not with since
        """
        if since and idle:
            raise ValueError("since and idle exclude each other")
        yield from self._list(lib.wq_list_since if since else lib.wq_list_idle if idle
                              else lib.wq_list)

    def resting_groups(self) -> Iterator[tuple[bytes, int]]:
        """The names of the groups that rest, each with the ns until the end of its rest.

        See rest_group(). The order is none in particular, as that of keys().
        """
        for info in self._list(lib.wq_list_groups):
            if info.lease >= 0:
                yield info.key, info.lease

    def _list(self, function: Any) -> Iterator[KeyInfo]:
        cursor = ctypes.c_uint64(0)
        while True:
            with Records() as records:
                self._checked(wait(function, self.fileno(), records.raw, 0, cursor))
                found = [_key_info(records.key(view), view.info) for view in records]
            yield from found
            if not cursor.value:
                return

    def done_key(self, key: Key) -> bool:
        """End the run of a key without its item, for example of a key that os.read() returned.

        Returns as Item.done(), and leaves the failures. Raises OSError with ENOENT or EPERM if this
        consumer does not hold the key, and with EINVAL in a queue with leases.
        """
        return self._key_call("wq_done_key", key) == 1

    def touch_key(self, key: Key) -> None:
        """Check that a key is held, without its item. Raises as done_key()."""
        self._key_call("wq_touch_key", key)

    def restore(self, info: KeyInfo) -> None:
        """Enter a key that the queue does not know, in a state that query() or keys() returned.

        A key that was processing is ready. Only the queue's owner and root may do this. Raises
        FileExistsError if the queue knows the key.
        """
        reason = os.fsencode(info.reason)[:_abi.WQ_MAX_REASON]
        struct = _abi.wq_key_info(reason_len=len(reason))
        for field in dataclasses.fields(info):
            if field.name not in ("key", "reason"):
                setattr(struct, field.name, getattr(info, field.name))
        ctypes.memmove(struct.reason, reason, len(reason))
        self._checked(call(lib.wq_restore_sized, self.fileno(), info.key, len(info.key), struct,
                           ctypes.sizeof(struct)), info.key,
                      {errno.EEXIST: "the queue knows the key"})

    def cancel(self, key: Key) -> KeyState:
        """Drop the pending run, the delay and the failures of a key, or a parked key.

        A run in progress goes on, and no other run follows it. Returns the state before. Raises
        UnknownKey.
        """
        return KeyState(self._key_call("wq_cancel", key))

    def forget(self, key: Key) -> None:
        """Reset the failures of a key, also of an unknown one."""
        self._key_call("wq_forget", key)

    def num_requeues(self, key: Key) -> int:
        """The failures of a key as the queue's limiter counts them; 0 for an unknown key."""
        return self._key_call("wq_num_requeues", key)

    def kick(self, key: Key | None = None, *, most: int | None = None) -> int:
        """Make a parked key ready, or the keys that are parked longest, with their failures reset.

        most: without a key, the number of keys at most; None: all that are parked at the time of
            the call

        Returns how many were made ready. Raises UnknownKey if the key is not parked.
        """
        if key is None:
            number = 2 ** 32 - 1 if most is None else in_range("most", most)
            return self._checked(call(lib.wq_kick_many, self.fileno(), number))
        self._key_call("wq_kick", key)
        return 1

    def rest_group(self, key: Key, seconds: float) -> None:
        """Let the group of a key rest: none of its keys is handed out for this time.

        Keys of other groups go on. The queue need not know the key. This time replaces a former
        one, and 0 ends the rest, which also lasts when this process ends.

        Raises OSError with EOPNOTSUPP if the queue has no groups, and with ENOSPC if as many groups
        rest as max_keys.

        >>> import wq
        >>> with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/")) as q:
        ...     q.add_many(["example.com/1", "example.org/1"])
        ...     q.rest_group("example.com/", 60)
        ...     with q.get() as item:
        ...         item.text, q.stat().blocked_by_rest
        2
        ('example.org/1', 1)
        """
        data = key_bytes(key)
        self._checked(call(lib.wq_rest_group, self.fileno(), data, len(data),
                           nanoseconds(seconds)), data)

    def disable(self, key: Key, timeout: float | None = None) -> KeyState:
        """Refuse adds of a key, drop its pending run, and wait for its run in progress.

        Adds fail with EBUSY until enable(), also if the wait fails and after this process ends.
        Only the queue's owner and root may do this. Returns the state before.
        """
        data, limit = key_bytes(key), until(timeout)
        # Without its wait, which a signal would end and a repeated call would not continue.
        state = KeyState(self._checked(call(lib.wq_disable, self.fileno(), data, len(data),
                                            _abi.WQ_NOWAIT), data))
        if KeyState.PROCESSING in state and limit != _abi.WQ_NOWAIT:
            self._end_of(self._wait_fd(data, _abi.WQ_WAIT_RUN), limit)
        return state

    def enable(self, key: Key) -> KeyState:
        """Accept adds of a key that was disabled. Returns the state before. Raises UnknownKey."""
        return KeyState(self._key_call("wq_enable", key))

    def wait_key(self, key: Key, timeout: float | None = None) -> End:
        """Wait until each add of a key before the call has had its full run.

        Returns how the last of these runs ended, and End.NO_RUN if none was pending or in progress.
        Raises OSError with EDEADLK if this consumer holds the key.
        """
        limit = until(timeout)
        return self._end_of(self._wait_fd(key_bytes(key), 0), limit)

    async def await_key(self, key: Key) -> End:
        """wait_key() for asyncio. asyncio.timeout() limits the wait."""
        return await self._aend_of(self._wait_fd(key_bytes(key), 0))

    def _wait_fd(self, key: bytes, flags: int) -> int:
        """A descriptor that is readable when a wait for the key has ended."""
        return self._checked(call(lib.wq_wait_fd, self.fileno(), key, len(key), flags, 0), key)

    def _end_of(self, fd: int, limit: int) -> End:
        try:
            return End(self._checked(wait(lib.wq_wait, fd, limit)))
        finally:
            os.close(fd)

    async def _aend_of(self, fd: int) -> End:
        try:
            from . import _aio
            await _aio.readable(fd)
            return End(self._checked(call(lib.wq_wait, fd, _abi.WQ_NOWAIT)))
        finally:
            os.close(fd)

    # The whole queue

    def attrs(self) -> Attributes:
        """The attributes of the queue."""
        struct, specs = _abi.wq_attrs(), (_abi.wq_limiter_spec * _abi.WQ_MAX_LIMITERS)()
        self._checked(call(lib.wq_attrs_sized, self.fileno(), struct, specs, len(specs),
                           ctypes.sizeof(struct)))
        return figures(Attributes, struct, limiter=tuple(
            figures(LimiterSpec, spec) for spec in specs[:struct.num_limiters]))

    def set_attrs(self, *, max_keys: int | None = None, lease: float | None = None,
                  max_processing: int | None = None, max_retries: int | None = None,
                  limiter: Limiter | None = None, slack: float | None = None,
                  start_rate: float | None = None, start_burst: int | None = None,
                  order_arg: int | None = None, group_limit: int | None = None,
                  group_ageing: int | None = None, max_defer: float | None = None,
                  group_start_rate: float | None = None,
                  group_start_burst: int | None = None) -> None:
        """Change those attributes that are given, as open() takes them. 0 is the default of each.

        A queue that was created without a lease cannot have one. max_defer needs a queue that was
        created with it, or has another order than Order.FIFO. order_arg can be changed if it is the
        ageing of Order.PRIORITY. Else the call raises OSError with EOPNOTSUPP. If the call raises,
        no attribute has changed. Only the queue's owner and root may do this.

        >>> import wq
        >>> q = wq.open()
        >>> q.set_attrs(max_retries=3, limiter=wq.exponential(0.1, 60))
        >>> q.attrs().max_retries
        3
        >>> q.close()
        """
        specs = specs_of(limiter or ())
        struct = _abi.wq_attrs(num_limiters=len(specs),
                               limiters=ctypes.addressof(specs) if limiter else 0)
        for bit, name, value in (
                (_abi.WQ_ATTR_MAX_KEYS, "max_keys", max_keys),
                (_abi.WQ_ATTR_MAX_PROCESSING, "max_processing", max_processing),
                (_abi.WQ_ATTR_MAX_RETRIES, "max_retries", max_retries),
                (_abi.WQ_ATTR_ORDER_ARG, "order_arg", order_arg),
                (_abi.WQ_ATTR_GROUP_LIMIT, "group_limit", group_limit),
                (_abi.WQ_ATTR_GROUP_AGEING, "group_ageing", group_ageing),
                (_abi.WQ_ATTR_START_BURST, "start_burst", start_burst),
                (_abi.WQ_ATTR_GROUP_START_BURST, "group_start_burst", group_start_burst)):
            if value is not None:
                struct.set |= bit
                setattr(struct, name, in_range(name, value))
        # The unit of the kernel's rate is one in 10^9 seconds.
        for bit, name, number in ((_abi.WQ_ATTR_LEASE, "lease", lease),
                                  (_abi.WQ_ATTR_SLACK, "slack", slack),
                                  (_abi.WQ_ATTR_MAX_DEFER, "max_defer", max_defer),
                                  (_abi.WQ_ATTR_START_RATE, "start_rate", start_rate),
                                  (_abi.WQ_ATTR_GROUP_START_RATE, "group_start_rate",
                                   group_start_rate)):
            if number is not None:
                struct.set |= bit
                setattr(struct, name, nanoseconds(number))
        if limiter is not None:
            struct.set |= _abi.WQ_ATTR_LIMITER
        if struct.set:          # 0 is a question for all attributes
            self._checked(call(lib.wq_set_attrs_sized, self.fileno(), struct,
                               ctypes.sizeof(struct)))

    def stat(self) -> Stat:
        """The statistics of the queue, all from one moment."""
        struct = _abi.wq_stat()
        self._checked(call(lib.wq_stat_sized, self.fileno(), struct, ctypes.sizeof(struct), None))
        return figures(Stat, struct)

    def ready_by_priority(self) -> dict[int, int]:
        """The number of ready keys of each priority that has been used."""
        struct, ready = _abi.wq_stat(), (ctypes.c_uint32 * _abi.WQ_PRIORITIES)()
        self._checked(call(lib.wq_stat_sized, self.fileno(), struct, ctypes.sizeof(struct), ready))
        return {priority: count for priority, count in enumerate(ready, _abi.WQ_MIN_PRIORITY)
                if count != _abi.WQ_PRIORITY_UNUSED}

    def pause(self, what: Pause = _BOTH, *, duration: float | None = None) -> None:
        """Pause gets, adds or both, for a duration in seconds or until resume().

        Gets then wait as if no key were ready, and adds fail with EHOSTDOWN. The pause stays when
        the process ends, and a shut down ends it. Only the queue's owner and root may do this.
        """
        # 0 ns would resume.
        time = _abi.WQ_FOREVER if duration is None else max(1, nanoseconds(duration))
        self._checked(call(lib.wq_pause, self.fileno(), what, time))

    def resume(self, what: Pause = _BOTH) -> None:
        """End the pause of gets, adds or both."""
        self._checked(call(lib.wq_resume, self.fileno(), what))

    def shut_down(self) -> None:
        """Refuse adds, and drop delayed keys. Gets return the ready keys, and then raise ShutDown.

        That is final. It needs access "rw" or, for the queue's owner and root, "w".
        """
        self._checked(call(lib.wq_shutdown, self.fileno()))

    def drain(self, timeout: float | None = None) -> None:
        """shut_down(), and wait until no key is ready or processing.

        If the wait raises, the queue is shut down and drains. OSError with ECANCELED: a shut_down()
        ended the drain.
        """
        limit = until(timeout)
        _drained(self._end_of(self._drain_begin(), limit), _shown(self._name))

    async def adrain(self) -> None:
        """drain() for asyncio."""
        _drained(await self._aend_of(self._drain_begin()), _shown(self._name))

    def _drain_begin(self) -> int:
        self._checked(call(lib.wq_drain_begin, self.fileno()))
        return self._checked(call(lib.wq_wait_fd, self.fileno(), None, 0, _abi.WQ_WAIT_DRAIN, 0))

    def unlink(self) -> None:
        """Remove the queue's name. The queue ends when its last consumer is closed."""
        if self._name is None:
            raise ValueError("a private queue has no name")
        unlink(self._name)


class ItemLoop(Loop):
    """The loop over a queue, see Queue."""

    _queue: Queue

    def __iter__(self) -> "ItemLoop":
        return self

    def __next__(self) -> Item:
        self._step()
        try:
            self._item = self._queue.get()
        except ShutDown:
            raise StopIteration from None
        except KeyboardInterrupt as error:
            # At the prompt of an interactive Python, a SystemExit would end it.
            if type(error) is not KeyboardInterrupt or hasattr(sys, "ps1"):
                raise
            raise Interrupted(128 + signal.SIGINT) from error
        return self._item


class AsyncItemLoop(Loop):
    """The loop over a queue for asyncio, see Queue.aiter()."""

    _queue: Queue

    def __aiter__(self) -> "AsyncItemLoop":
        return self

    async def __anext__(self) -> Item:
        self._step()
        try:
            self._item = await self._queue.aget()
        except ShutDown:
            raise StopAsyncIteration from None
        return self._item


def _delay(after: float | None, flags: AddFlag) -> tuple[int, int]:
    """The delay in ns, and the flags of an add."""
    if flags >> 16:         # of a record
        raise error_of(errno.EINVAL)
    if after is None:
        return 0, flags
    return nanoseconds(after), flags | AddFlag.AFTER


def _key_info(key: bytes, struct: _abi.wq_key_info) -> KeyInfo:
    reason = os.fsdecode(bytes(struct.reason[:struct.reason_len]))
    return figures(KeyInfo, struct, key=key, reason=reason)


def _drained(end: End, name: str) -> None:
    if end != End.DONE:
        raise error_of(errno.ECANCELED, name)
