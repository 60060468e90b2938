# SPDX-License-Identifier: LGPL-2.1-only
"""Keys that a consumer holds."""
import contextlib
import ctypes
import errno
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol

from . import _abi, _calls
from ._abi import Result
from ._calls import DONE, KEY, TOKEN, TOUCH, fields
from ._lib import OneProcess, RestFor, call, checked, key_text, lib, nanoseconds

_READY = int(Result.READY)
_FORGET = _abi.WQ_OUTCOME_FORGET

LEFT = "the loop was left during the run"
NOT_ENDED = "the body of the loop did not end the run"

# Seconds between the tries to end a run while memory is short.
_PAUSES = tuple(0.01 * 2 ** n for n in range(6))

_pid = os.getpid()


def _forked() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_forked)


def pid() -> int:
    """os.getpid() without a system call."""
    return _pid


class Consumer(Protocol):
    """The part of a queue that its items use."""

    def fileno(self) -> int: ...

    def _get_fd(self) -> int: ...

    @property
    def closed(self) -> bool: ...


def pauses() -> Iterator[float]:
    """The pauses between the tries to end one run, or several."""
    return iter(_PAUSES)


def reason_of(error: BaseException) -> tuple[str, int]:
    """The reason and the errno that a parked key keeps of an exception."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:                   # of the class of a body
        text = ""
    code = error.errno if isinstance(error, OSError) else None
    return f"{name}: {text}" if text else name, code if isinstance(code, int) else 0


class Item(OneProcess):
    """A key that this consumer holds, from the get to the end of its run.

    As a context manager, an item ends its run: as done if the body ends, and by retry() with the
    exception as the reason if the body raises. An item that the body has ended stays as it is. If
    KeyboardInterrupt, SystemExit or the cancellation of a task ends the body, the key did not fail:
    it is ready again at once, with its failures as they were. The exception goes on. If memory is
    short, the end of a body that raises can take up to a second, in which an event loop waits, too.

    >>> import wq
    >>> q = wq.open()
    >>> q.add("alice")
    True
    >>> with q.get() as item:
    ...     print(item.key, item.text, item.failures)
    b'alice' alice 0
    >>> q.close()

    If the queue has a lease, work that takes longer calls touch() in time. Each call that ends a
    run raises Stale if this consumer does not hold the key any more.
    """

    __slots__ = ("_queue", "_rec", "_held")

    def __init__(self, queue: Consumer, rec: bytes) -> None:
        self._queue = queue
        self._rec = rec         # as the kernel has written it
        # The process that has to end the run, 0 after its end. __del__ needs all the others.
        self._held = _pid

    def _field(self, number: int) -> int:
        field: int = fields(self._rec)[number]
        return field

    @property
    def key(self) -> bytes:
        """The key."""
        return self._rec[KEY]

    @property
    def text(self) -> str:
        """The key as text. Bytes that are not UTF-8 are surrogates, as in names of files."""
        return key_text(self.key)

    @property
    def path(self) -> pathlib.Path:
        """The key as a path."""
        return pathlib.Path(os.fsdecode(self.key))

    @property
    def failures(self) -> int:
        """How often the key has failed since its last success, at most 65,535."""
        return self._field(_calls.FAILURES)

    @property
    def given_back(self) -> int:
        """How many runs of the key in a row were given back: their consumers ended or lost their
        leases."""
        return self._field(_calls.GIVEN_BACK)

    @property
    def priority(self) -> int:
        """The priority of the run; 0 in a queue without priorities."""
        return self._field(_calls.PRIORITY)

    @property
    def held(self) -> bool:
        """Whether the run has not ended, as far as this object knows: see touch()."""
        return self._held != 0

    def __repr__(self) -> str:
        return f"<wq.Item {self.key!r}{'' if self.held else ', ended'}>"

    def touch(self) -> None:
        """Restart the key's lease. Raises Stale if the key is no longer held.

        In a queue without leases, only check that the key is held.
        """
        self._check(_calls.back(self._queue.fileno(), TOUCH, self._rec, 0))

    def done(self, *, keep_failures: bool = False) -> bool:
        """End the run as a success, which resets the key's failures.

        keep_failures: leave the failures, as client-go's Done does without Forget.

        Returns whether the key is ready again, because it was added during the run.
        """
        result = _calls.back(self._queue.fileno(), DONE, self._rec,
                             0 if keep_failures else _FORGET)
        if result < 0:
            self._check(result)
        self._held = 0
        return result & _READY != 0

    def retry(self, after: float | None = None, *, reason: str = "", error: int = 0) -> Result:
        """End the run as a failure. The key runs again after the delay of the queue's limiter.

        If the key failed more often in a row than the queue's max_retries, it is parked with the
        first 64 bytes of the reason, and with error, an errno.

        after: seconds. The key runs again after this time. That is no failure, so it has no reason.

        Returns Result.READY, DELAYED or PARKED, READY and DELAYED together if the key was added
        during the run, and 0 if the queue is shut down or the key disabled: then it does not run
        again.
        """
        if after is None:
            return self._fail(_abi.WQ_OUTCOME_RETRY, reason, error)
        if reason or error:
            raise ValueError("a retry after a time of the caller's is no failure: give no reason")
        return Result(self._end(_abi.WQ_OUTCOME_AFTER, nanoseconds(after)))

    def rest(self, seconds: float) -> Result:
        """End the run, and let the group of its key rest: none of its keys is handed out meanwhile.

        The key runs again after this time, and that is no failure. This is for a consumer which has
        learned that the group cannot be processed before, as by HTTP status 429 with Retry-After.
        See Queue.rest_group(), whose errors it has.

        Returns as retry() with a time.
        """
        return Result(self._end(_abi.WQ_OUTCOME_REST, nanoseconds(seconds)))

    def give_up(self, reason: str, *, error: int = 0) -> Result:
        """End the run as a failure that must not be retried: park the key.

        The key stays in the queue with the first 64 bytes of the reason, and with error, an errno.
        An add or Queue.kick() makes it ready again, and Queue.cancel() drops it.

        Returns Result.PARKED, or READY if the key was added during the run.
        """
        return self._fail(_abi.WQ_OUTCOME_GIVE_UP, reason, error)

    def begin_periodic(self) -> bool:
        """Add a periodic key once more, delayed until it is due next. The run goes on.

        The key has its next run then, also if this one fails or its consumer dies. A key without a
        schedule is not added, and neither is one that is disabled or whose queue is shut down.

        Returns whether to run the key: False if its schedule has skip and the run is late. If this
        raises, the key has its next run by retry() alone.

        >>> import wq
        >>> with wq.open() as q:
        ...     q.add("backup@every=1d")
        ...     item = q.get()
        ...     with item:
        ...         if item.begin_periodic():
        ...             print("back up", wq.periodic_name(item.key))
        ...     q.query(item.key).state
        True
        back up backup
        <KeyState.DELAYED: 8>
        """
        item = _abi.wq_item(key=self.key, len=len(self.key), token=self._field(TOKEN),
                            failures=self.failures, given_back=self.given_back,
                            priority=self.priority)
        return checked(call(lib.wq_periodic_begin, self._queue.fileno(), item), self.text) == 1

    def forget(self) -> None:
        """Reset the key's failures. The run goes on."""
        checked(call(lib.wq_forget, self._queue.fileno(), self.key, len(self.key)), self.text)

    def _check(self, result: int) -> int:
        if result == -errno.ESTALE:
            self._held = 0
        return checked(result, self.text)

    def _ended(self, result: int) -> int:
        if result < 0:
            self._check(result)
        self._held = 0
        return result

    def _end(self, outcome: int, delay: int = 0) -> int:
        return self._ended(_calls.one(self._queue.fileno(), DONE, self.key, self._field(TOKEN),
                                      outcome, 0, delay))

    def _fail(self, outcome: int, reason: str, error: int) -> Result:
        # Not half a character at the end.
        text = reason.encode("utf-8", "replace")[:_abi.WQ_MAX_REASON].decode("utf-8", "ignore")
        error = error if 0 <= error <= _abi.WQ_MAX_ERROR else 0
        return Result(self._ended(_calls.done_failed(
            self._queue.fileno(), self.key, self._field(TOKEN), outcome, error,
            text.encode())))

    def _fail_with(self, error: BaseException, left: Iterator[float]) -> None:
        """End a run that an exception ended. An error of this call would hide the exception."""
        self._try_to_end(lambda: self._fail_by(error), left)

    def _fail_by(self, error: BaseException) -> None:
        if isinstance(error, RestFor):
            try:
                self.rest(error.seconds)
            except OSError as refused:
                if refused.errno not in (errno.EOPNOTSUPP, errno.ENOSPC):
                    raise
                self.retry(error.seconds)
        elif isinstance(error, Exception):
            reason, code = reason_of(error)
            self.retry(reason=reason, error=code)
        else:
            self._give_back()

    def _try_to_end(self, end: Callable[[], object], left: Iterator[float]) -> None:
        """Call end(), and again after each pause that is left if memory is short.

        No other error is reported.
        """
        while True:
            try:
                end()
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    return
            else:
                return
            pause = next(left, None)
            if pause is None:
                break
            time.sleep(pause)
        # The line is the one that left the body.
        warnings.warn(f"there was not enough memory to end the run of {self.key!r}, which is held "
                      "until its object is dropped", RuntimeWarning, stacklevel=4)

    def _give_back(self) -> None:
        """Make the key ready again, with its failures as they were.

        A queue that is shut down would drop the key, so this consumer keeps it until close().
        """
        if not self._is_shut_down():
            self._end(_abi.WQ_OUTCOME_AFTER)

    def _is_shut_down(self) -> bool:
        stat = _abi.wq_stat()
        checked(call(lib.wq_stat_sized, self._queue.fileno(), stat, ctypes.sizeof(stat), None))
        return bool(stat.state & _abi.State.SHUTDOWN)

    def _to_end(self) -> bool:
        """Whether this object has to end the run. A child of fork() must not end its parent's."""
        return self._held == _pid and not self._queue.closed

    def __enter__(self) -> "Item":
        if self._held and self._held != _pid:
            raise RuntimeError(f"the process {self._held} got the key {self.text!r}, and a "
                               "child of it cannot end the run: get keys in the child")
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self._to_end():
            return
        if error is None:
            self.done()
        else:
            self._fail_with(error, pauses())

    def _leave(self, reason: str) -> None:
        """Retry an item that its loop left. As _give_back(), keep it if the queue is shut down."""
        if self._to_end():
            self._try_to_end(lambda: self._is_shut_down() or self.retry(reason=reason), pauses())

    def __del__(self) -> None:
        # Nobody can end the run any more.
        try:
            held = self._held
        except AttributeError:          # an interrupt ended __init__(), and another item is made
            return
        if held and self._to_end():
            text = f"{self!r} was dropped during its run"
            with contextlib.suppress(OSError):
                self._give_back()
            warnings.warn(text, ResourceWarning, source=self)


class Loop:
    """The steps of a loop over a queue. Each retries an item whose run the body did not end.

    This is no generator, because the end of a loop closes an asynchronous generator only later.
    """

    def __init__(self, queue: Consumer) -> None:
        self._queue = queue
        self._item: Item | None = None

    def _step(self) -> None:
        item, self._item = self._item, None
        if item is not None and item._to_end():
            item._leave(NOT_ENDED)
            warnings.warn(f"{NOT_ENDED} of {item.key!r}, which is retried: write 'with item:'",
                          RuntimeWarning, stacklevel=3)

    def __del__(self) -> None:
        if self._item is not None:
            self._item._leave(LEFT)
