# SPDX-License-Identifier: LGPL-2.1-only
"""Producers that repeat adds."""
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from . import _abi, _item, _items
from ._lib import Key, OneProcess, call, checked, in_range, key_bytes, key_text, lib


class Opened(Protocol):
    """The part of a queue that its producers use."""

    def fileno(self) -> int: ...

    @property
    def _reopening(self) -> Sequence[object]: ...


class Producer(OneProcess):
    """A producer that knows by the queue's map which of its keys still wait for their run.

    An add of such a key makes no system call, and all that the program stored before it is visible
    to the run. Threads can share a producer. A signal handler can add by it, but not close it or
    reopen its queue. A child of fork() makes one of its own: another thread of the parent can have
    been in a call. As a context manager, it is closed at the end, and so it is by Queue.close(). See
    Queue.producer().

    >>> import wq
    >>> with wq.open() as q, q.producer() as p:
    ...     p.add("alice"), p.add("alice"), p.coalesced
    (True, False, 1)
    """

    def __init__(self, queue: Opened, keys: int) -> None:
        self._queue = queue
        self._keys = in_range("keys", keys)
        # libwq's struct is for one thread at a time. A signal handler can run between two calls of
        # the thread that has the lock, and add, too.
        self._lock = threading.RLock()
        self._pid = _item.pid()
        self._raw: _abi.wq_producer | None = None
        self._coalesced = 0
        self._closed = False

    def _map(self) -> None:
        with self._lock:
            self._mapped()

    def _mapped(self) -> _abi.wq_producer:
        """libwq's struct. After Queue.reopen() it is made again. The caller holds the lock.

        During Queue.reopen() it is one without a map, which would be that of the removed queue.
        """
        fd = self._queue.fileno()
        if self._closed:
            raise ValueError("the producer is closed")
        if self._raw is None:
            if self._queue._reopening:
                return _abi.wq_producer(q=fd)
            raw = _abi.wq_producer()
            checked(call(lib.wq_producer_init, raw, fd, self._keys))
            if self._raw is None:
                self._raw = raw
            else:                               # a signal handler was faster
                lib.wq_producer_free(raw)
        return self._raw

    def _unmap(self) -> None:
        """Forget the keys, and the map, which keeps the queue."""
        # In a child of fork(), a thread of the parent can have the lock for ever.
        if not self._lock.acquire(blocking=self._pid == _item.pid()):
            self._raw = None
            return
        try:
            raw, self._raw = self._raw, None
            if raw is not None:
                self._coalesced += raw.coalesced
                lib.wq_producer_free(raw)
        finally:
            self._lock.release()

    def add(self, key: Key) -> bool:
        """Queue.add() without options, and without a call if the key still waits."""
        data = key_bytes(key)
        with self._lock:
            return checked(call(lib.wq_producer_add, self._mapped(), data, len(data)),
                           key_text(data)) == 1

    def waits(self, key: Key) -> bool:
        """Add a key if that needs no call.

        Returns True if the key still waits for its run: then the add is done. Returns False if the
        key has to be added in another way, for example with a priority.
        """
        data = key_bytes(key)
        with self._lock:
            return bool(lib.wq_producer_waits(self._mapped(), data, len(data)))

    def add_many(self, keys: Iterable[Key]) -> int:
        """Queue.add_many() without options, for the keys that do not wait any more.

        If keys raises, or has an element that can't be a key, no key is added.
        """
        others = [data for data in map(key_bytes, keys) if not self.waits(data)]
        with self._lock:
            raw = self._mapped()
            return _items.add(lambda records: call(lib.wq_producer_add_many, raw, records), others)

    @property
    def coalesced(self) -> int:
        """The number of adds that needed no call. Stat.coalesced does not count them."""
        with self._lock:
            return self._coalesced + (self._raw.coalesced if self._raw else 0)

    def close(self) -> None:
        """Forget the keys. The queue stays open. Can be called again."""
        self._closed = True
        self._unmap()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_raw", None) is not None:
            self.close()
