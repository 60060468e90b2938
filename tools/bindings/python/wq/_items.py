# SPDX-License-Identifier: LGPL-2.1-only
"""Arrays of keys for one call."""
import ctypes
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import overload

from . import _abi
from ._item import Consumer, Item
from ._lib import KeysFailed, call, checked, error_of, in_range, key_text, lib, until, wait


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


def raise_failed(failed: Sequence[tuple[bytes, OSError]]) -> None:
    """Raise KeysFailed if there are failed keys."""
    if failed:
        first = failed[0][1]
        error = KeysFailed(first.errno, f"{len(failed)} keys failed, the first: {first.strerror}",
                           first.filename)
        error.failed = list(failed)
        raise error


def add(send: Callable[[_abi.wq_items], int], keys: Iterable[bytes], priority: int = 0,
        delay: int = 0, flags: int = 0) -> int:
    """Add keys, as many in a call of send() as an array can hold.

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
            put = (lib.wq_items_put_priority, records.raw, key, len(key), priority, delay, flags)
            result = call(*put)
            if result == -errno.E2BIG:          # the array is full
                new += send_all()
                result = call(*put)
            checked(result, key_text(key))
        if records.raw.count:
            new += send_all()
    raise_failed(failed)
    return new


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

    def __init__(self, queue: Consumer, items: Sequence[Item]) -> None:
        self._queue = queue
        self._items = items
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
        with Records() as records:
            held = self._put(records, _abi.WQ_OUTCOME_FORGET)
            if held:
                checked(call(lib.wq_done_many, self._queue.fileno(), records.raw))
                self._after(records, held, ended=True)

    def next(self, most: int = 0, timeout: float | None = None) -> "Items":
        """done(), and Queue.get_many(), in one call.

        If some items are no longer held, the runs of the others have ended, and the attribute
        failed of the new Items has pairs of a key and its error. If the get fails, the runs have
        ended, and it raises as Queue.get_many().
        """
        limit = until(timeout)
        with Records() as done:
            held = self._put(done, _abi.WQ_OUTCOME_FORGET)
            if not held:
                return get(self._queue, most, limit)
            try:
                following = get(self._queue, most, limit, done)
            finally:
                self._note(done, held, ended=True)
            following.failed = done.failed()
            return following

    def touch(self) -> None:
        """Restart the leases of all items that are held, in one call.

        Raises KeysFailed if some are no longer held.
        """
        with Records() as records:
            held = self._put(records, 0)
            if held:
                checked(call(lib.wq_touch_many, self._queue.fileno(), records.raw))
                self._after(records, held, ended=False)

    def _put(self, records: Records, outcome: int) -> list[Item]:
        held = [item for item in self._items if item.held]
        for item in held:
            checked(call(lib.wq_items_put_done, records.raw, item.key, item._raw.len,
                         item._raw.token, 0, outcome))
        return held

    def _note(self, records: Records, held: Sequence[Item], ended: bool) -> None:
        for view, item in zip(records, held):
            if view.result == -errno.ESTALE or (ended and view.result >= 0):
                item._held = False

    def _after(self, records: Records, held: Sequence[Item], ended: bool) -> None:
        self._note(records, held, ended)
        raise_failed(records.failed())

    def __enter__(self) -> "Items":
        for item in self._items:
            item.__enter__()
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is not None:
            for item in self._items:
                item.__exit__(cls, error, trace)
        elif any(item._to_end() for item in self._items):
            self.done()


def get(queue: Consumer, most: int, timeout: int, done: Records | None = None) -> Items:
    """Get keys, see Queue.get_many(). done: keys whose runs end before, in the same call."""
    items: list[Item] = []
    fd, most = queue.fileno(), in_range("most", most)
    with Records() as records:
        try:
            result = -errno.EINTR
            if done:
                result = call(lib.wq_done_get_many, fd, done.raw, records.raw, most, timeout)
            if result == -errno.EINTR:          # the runs have ended already
                result = wait(lib.wq_get_many, fd, records.raw, most, timeout)
            checked(result)
            for view in records:
                items.append(Item._of_view(queue, view))
        except BaseException:
            # An interrupt or a lack of memory must not leave a key without an item, which gives it
            # back.
            for _ in records:
                pass            # to the first record again
            items += [Item._of_view(queue, view) for view in islice(records, len(items), None)]
            raise
    return Items(queue, items)
