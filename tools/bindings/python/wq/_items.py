# SPDX-License-Identifier: LGPL-2.1-only
"""Arrays of keys for one call."""
import ctypes
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import overload

from . import _abi, _calls
from ._calls import Call
from ._item import Consumer, Item, pauses
from ._lib import (Key, KeysFailed, call, checked, error_of, in_range, key_bytes, key_text, lib,
                   timeout_ns)


class Records:
    """A struct wq_items, which is freed at the end of the with statement."""

    def __init__(self) -> None:
        self.raw = _abi.wq_items()

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, *_: object) -> None:
        lib.wq_items_free(self.raw)

    def __iter__(self) -> Iterator[_abi.wq_view]:
        """The records. Each is valid until the next."""
        view = _abi.wq_view()
        while lib.wq_items_next_sized(self.raw, view, ctypes.sizeof(view)):
            yield view

    def key(self, view: _abi.wq_view) -> bytes:
        """A record's key."""
        return ctypes.string_at(view.key or 0, view.len)

    def failed(self) -> list[tuple[bytes, OSError]]:
        """The keys for which the last call failed, with their errors."""
        return [(key, error_of(-view.result, key_text(key)))
                for view in self if view.result < 0 for key in [self.key(view)]]


def keys_failed(failed: Sequence[tuple[bytes, OSError]]) -> KeysFailed | None:
    """The error of failed keys; None if there are none."""
    if not failed:
        return None
    first = failed[0][1]
    error = KeysFailed(first.errno, f"{len(failed)} keys failed, the first: {first.strerror}",
                       first.filename)
    error.failed = list(failed)
    return error


def raise_failed(failed: Sequence[tuple[bytes, OSError]]) -> None:
    """Raise KeysFailed if there are failed keys."""
    error = keys_failed(failed)
    if error:
        raise error


def add(send: Callable[[_abi.wq_items], int], keys: Iterable[bytes]) -> int:
    """Add keys by send(), as many in a call as a struct wq_items can hold.

    Returns how many are newly dirty.
    """
    new = 0
    failed: list[tuple[bytes, OSError]] = []

    def send_all() -> int:
        checked(send(records.raw))
        failed.extend(records.failed())
        count = sum(view.result == 1 for view in records)
        lib.wq_items_reset(records.raw)
        return count

    with Records() as records:
        for key in keys:
            put = (lib.wq_items_put, records.raw, key, len(key), 0)
            result = call(*put)
            if result == -errno.E2BIG:          # the array is full
                new += send_all()
                result = call(*put)
            checked(result, key_text(key))
        if records.raw.count:
            new += send_all()
    raise_failed(failed)
    return new


def add_packed(fd: int, keys: Iterable[Key], priority: int, delay: int, flags: int) -> int:
    """Add keys, WQ_MAX_OUT bytes of records in a call. Returns how many are newly dirty."""
    new = used = 0
    records: list[bytes] = []
    failed: list[tuple[bytes, OSError]] = []
    room = _abi.WQ_MAX_OUT
    special = flags or priority or delay
    around = _calls.Packer(flags, priority, delay) if special else _calls.PLAIN
    array = _calls.of_many()

    def send_all() -> int:
        sent = records[:]
        records.clear()         # also if this raises
        array.put_records(b"".join(sent), len(sent))
        results = array.send(fd, _calls.ADD)
        if min(results) < 0:
            failed.extend(failed_of(map(_calls.key_of, sent), results))
        return results.count(1)

    try:
        for name in keys:
            key = name if type(name) is bytes else key_bytes(name)
            ahead, behind, size = around[len(key)]
            used += size
            if used > room:
                new += send_all()
                used = size
            records.append(ahead + key + behind)
    except BaseException as error:
        # The keys ahead of one that raises are added, also if Ctrl-C ends the iterable.
        cause: OSError | None = None
        try:
            if records:
                send_all()
        except OSError as refused:
            cause = refused
        cause = cause or keys_failed(failed)
        if cause:
            cause.__cause__ = error.__cause__
            raise error from cause
        raise
    if records:
        new += send_all()
    _calls.free(array)
    raise_failed(failed)
    return new


def failed_of(keys: Iterable[bytes], results: Sequence[int]) -> list[tuple[bytes, OSError]]:
    """The keys that failed, with their errors."""
    if min(results) >= 0:
        return []
    return [(key, error_of(-result, key_text(key)))
            for key, result in zip(keys, results) if result < 0]


class Items(Sequence[Item]):
    """Items that one call got.

    Each item can be ended by itself. As a context manager, it ends the runs of the other
    items: in one call as done if the body ends, and each as Item does if the body raises.

    failed: items from before that were no longer held, see next()

    >>> import wq
    >>> q = wq.open()
    >>> q.add_many(["alice", "bob"])
    2
    >>> with q.get_many() as items:
    ...     for item in items:
    ...         print(item.text)
    alice
    bob
    >>> q.stat().dones
    2
    >>> q.close()
    """

    def __init__(self, queue: Consumer, items: Sequence[Item], records: bytes) -> None:
        self._queue = queue
        self._items = items
        self._records = records         # of the items, with the outcome of a success
        self.failed: list[tuple[bytes, OSError]] = []

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<wq.Items of {len(self)} items>"

    def done(self) -> None:
        """End the runs of all items that are held as successes, in one call.

        Raises KeysFailed if some are no longer held. The other runs have ended.
        """
        self._send(_calls.DONE, _abi.WQ_OUTCOME_FORGET)

    def next(self, most: int = 0, timeout: float | None = None) -> "Items":
        """done(), and Queue.get_many(), in one call.

        If some items are no longer held, the runs of the others have ended, and the attribute
        failed of the new Items has pairs of a key and its error. If the get fails, the runs have
        ended, and it raises as Queue.get_many().
        """
        limit = timeout_ns(timeout)
        ending = _calls.of_many()
        held = self._put(ending, _abi.WQ_OUTCOME_FORGET)
        if not held:
            return get(self._queue, most, limit)
        try:
            following = get(self._queue, most, limit, ending)
        finally:
            results = ending.of_each()
            self._note(held, results, ended=True)
        following.failed = failed_of((item.key for item in held), results)
        _calls.free(ending)
        return following

    def touch(self) -> None:
        """Restart the leases of all items that are held, in one call.

        Raises KeysFailed if some are no longer held.
        """
        self._send(_calls.TOUCH, 0)

    def _send(self, verb: int, outcome: int) -> None:
        array = _calls.of_many()
        held = self._put(array, outcome)
        if held:
            results = array.send(self._queue.fileno(), verb)
            self._note(held, results, ended=verb == _calls.DONE)
            _calls.free(array)
            raise_failed(failed_of((item.key for item in held), results))

    def _put(self, array: Call, outcome: int) -> list[Item]:
        held = [item for item in self._items if item._held]
        if len(held) == len(self._items) and outcome == _abi.WQ_OUTCOME_FORGET:
            array.put_records(self._records, len(held))
        else:
            array.put_all([(item.key, item._field(_calls.TOKEN)) for item in held], outcome)
        return held

    def _note(self, held: Sequence[Item], results: Sequence[int], ended: bool) -> None:
        if ended and min(results) >= 0:
            for item in held:
                item._held = 0
            return
        for item, result in zip(held, results):
            if result == -errno.ESTALE or (ended and result >= 0):
                item._held = 0

    def __enter__(self) -> "Items":
        for item in self._items:
            item.__enter__()
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            left = pauses()
            for item in self._items:
                if item._to_end():
                    item._fail_with(error, left)
        elif any(item._to_end() for item in self._items):
            self.done()


def get(queue: Consumer, most: int, timeout: int, ending: Call | None = None) -> Items:
    """Get keys, see Queue.get_many(). ending: keys whose runs end before, in the same call."""
    items: list[Item] = []
    fd, most = queue._get_fd(), in_range("most", most)
    array = _calls.of_many()
    try:
        if ending:
            result = array.done_get(fd, ending, most, timeout)
        else:
            result = array.get(fd, most, timeout)
        for rec in array.got():
            items.append(Item(queue, rec))
    except BaseException:
        # An interrupt or a lack of memory must not leave a key without an item, which gives it
        # back.
        items += [Item(queue, rec) for rec in array.got()[len(items):]]
        raise
    records = array.got_records()
    _calls.free(array)
    checked(result)
    return Items(queue, items, records)
