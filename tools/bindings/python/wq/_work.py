# SPDX-License-Identifier: LGPL-2.1-only
"""Worker processes."""
import contextlib
import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from ._item import Item
from ._lib import RestFor, ShutDown, in_range
from ._queue import Access, Queue, open

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Seconds until a worker that died is replaced: the first pause, which doubles up to the longest. A
# worker that has lived for the longest pause is followed by the first pause again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 60.0

# The exit status of a worker after the end of the queue. After any other, another worker follows.
_SHUT_DOWN, _DIED = 0, 1

# The mode of a queue until "wqctl restore" or "wqctl reload" has filled it.
_UNFINISHED = 0o601


def work(fn: Callable[[Item], object], queue: Queue | str | os.PathLike[str], *,
         processes: int | None = None) -> signal.Signals | None:
    """Call fn(item) for each key, in worker processes, until the queue is shut down and empty.

    queue: a name or path, as open() takes it, or a queue of this process. Each worker opens it
        again, and so is a consumer of its own
    processes: the number of workers; None: one for each CPU that this process can use

    A run ends as by "with item": as done if fn returns, by Item.rest() if fn raises RestFor, and by
    Item.retry() if fn raises another exception, which is logged with its traceback as a warning of
    the logger "wq". fn can end the run itself, for
    example by Item.give_up(). In a queue with leases, fn calls Item.touch() in time.

    If a worker dies, the kernel gives its key to another one. A new worker follows after 0.1
    seconds, and after twice as much each time up to a minute, as long as workers die young. So the
    workers also come back if the queue was removed and is made again. A new queue of another owner
    is not used: any user can take a name that is free. In a user namespace, all users that it does
    not map have the number 65534, and count as the same owner.

    SIGTERM lets each worker finish its key. SIGINT, as by Ctrl-C, ends fn by KeyboardInterrupt, and
    its key is ready again at once, with its failures as they were. Both end the call without an
    exception. If this process is killed, each worker finishes its key and ends.

    The workers are made by fork(). So the call has to be made by the main thread, and before the
    process starts other threads.

    Returns the signal that ended the call, and None if the queue was shut down.

    >>> import wq
    >>> with wq.open() as q:
    ...     q.add_many(["alice", "bob"])
    ...     q.shut_down()               # so that the call ends
    ...     wq.work(lambda item: item.touch(), q, processes=2)
    ...     q.stat().dones
    2
    2
    """
    number = len(os.sched_getaffinity(0)) if processes is None else processes
    in_range("processes", number, 1)
    with _opened(queue, "r") as first:  # a wrong name raises here, and not in each worker
        owner = _owner_of(queue if isinstance(queue, Queue) else first)
    parent = os.getpid()                # that of a worker, until this process ends
    with _Signals() as signals:
        pool = _Pool(lambda: _work(fn, queue, owner, parent, signals), number, signals)
        try:
            pool.run()
        finally:
            pool.end()
    return signals.seen[0] if signals.seen else None


def _opened(queue: Queue | str | os.PathLike[str], access: Access) -> Queue:
    """The queue as another consumer. By its name, because a queue can be removed and made again."""
    name = queue._name if isinstance(queue, Queue) else queue
    if name is None:
        assert isinstance(queue, Queue)
        return queue.open_same(access)
    return open(name, access)


def _consumer(queue: Queue | str | os.PathLike[str]) -> Queue:
    """The queue for gets, and for adds if this user may add keys."""
    with contextlib.suppress(PermissionError):
        return _opened(queue, "rw")
    return _opened(queue, "r")


def _owner_of(queue: Queue) -> int:
    """The user ID of the queue's owner.

    A restore creates all queues as root, and gives each one to its owner when it begins to fill
    that one. So until then this raises, as if there were no queue.
    """
    stat = queue.stat()
    if stat.uid == 0 and stat.mode == _UNFINISHED:
        raise FileNotFoundError(errno.ENOENT, "wqctl has not restored the queue yet", queue.name)
    return stat.uid


def _check_owner(queue: Queue, owner: int) -> None:
    """Raise if the queue that has the name now belongs to another user."""
    uid = _owner_of(queue)
    if uid != owner:
        raise PermissionError(
            errno.EPERM, f"the new queue belongs to uid {uid}, not to uid {owner}; remove it, or "
            "call work() again to work on it", queue.name)


class _Signals:
    """Notes SIGINT and SIGTERM until the end of the with statement.

    seen: the signals in the order in which they came
    raising: whether SIGINT raises KeyboardInterrupt in a worker
    """

    def __init__(self) -> None:
        self.seen: list[signal.Signals] = []
        self.raising = False
        self._pipe: tuple[int, ...] = ()
        self._before: list[tuple[int, Any]] = []
        self._wakeup = -1

    def __enter__(self) -> "_Signals":
        with _blocked():
            # Ahead of the handlers, which would stay if this fails.
            self._wakeup = self._open()
            self._before = [(number, signal.signal(number, self._note)) for number in _SIGNALS]
            # With a handler of the caller's, it and not end() could see that a worker has died.
            self._before.append((signal.SIGCHLD, signal.signal(signal.SIGCHLD, signal.SIG_DFL)))
        return self

    def __exit__(self, *_: object) -> None:
        with _blocked():
            signal.set_wakeup_fd(self._wakeup)
            for number, handler in self._before:
                # None: it was not set by Python, which cannot set it again
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self._close()

    def _open(self) -> int:
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        except ValueError:              # not by the main thread
            self._close()
            raise

    def _close(self) -> None:
        for fd in self._pipe:
            os.close(fd)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.seen.append(signal.Signals(number))

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        # The terminal sends one to each process of its group, and work() another one.
        signal.signal(number, signal.SIG_IGN)
        self.seen.append(signal.Signals(number))
        if self.raising:
            raise KeyboardInterrupt

    def call(self, fn: Callable[[Item], object], item: Item) -> None:
        """Call fn(item), which SIGINT ends by KeyboardInterrupt, also one that came before.

        Outside of this call SIGINT only counts as seen. Between a get and "with item", an exception
        would leave the key to the end of the process, which counts as a give-back.
        """
        try:
            self.raising = True
            if signal.SIGINT in self.seen:
                raise KeyboardInterrupt
            fn(item)
        finally:
            self.raising = False

    def in_child(self) -> None:
        """Let SIGINT end a run in this child of fork(), whose signals are blocked."""
        self._close()
        self._open()
        signal.signal(signal.SIGINT, self._interrupt)

    def poll(self, poller: select.poll, seconds: float | None = None) -> dict[int, int]:
        """Wait for a descriptor of the poller or a signal. A signal before the call counts, too.

        Returns the events of each descriptor that has some.
        """
        # fn can have taken it away.
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        poller.register(self._pipe[0], select.POLLIN)
        events = dict(poller.poll(None if seconds is None else max(0, seconds) * 1000))
        with contextlib.suppress(BlockingIOError):
            while os.read(self._pipe[0], 4096):
                pass
        return events


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the with statement."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _report(text: str, error: BaseException | None = None) -> None:
    # Only here, because this takes as long to import as all of the package.
    import logging
    logging.getLogger("wq").warning("%s", text, exc_info=error)


def _work(fn: Callable[[Item], object], queue: Queue | str | os.PathLike[str], owner: int,
          parent: int, signals: _Signals) -> int:
    """The work of a process, a child of parent. Returns its exit status."""
    if os.getppid() != parent:
        return _DIED
    with _consumer(queue) as own:
        _check_owner(own, owner)
        poller = select.poll()
        poller.register(own, select.POLLIN | select.POLLPRI)
        poller.register(os.pidfd_open(parent), select.POLLIN)
        timeout = 0.0
        while not signals.seen and os.getppid() == parent:
            try:
                item = own.get(timeout)
            except (BlockingIOError, TimeoutError):
                # Only a get that can wait reports that the queue was removed.
                removed = signals.poll(poller).get(own.fileno()) == select.POLLPRI
                timeout = 1.0 if removed else 0.0
                continue
            except ShutDown:
                return _SHUT_DOWN
            try:
                with item:
                    signals.call(fn, item)
            except RestFor:
                pass
            except Exception as error:
                _report(f"the run of {item.text!r} failed", error)
            # An idle worker must not hold a key whose run could not be ended.
            del item
    return _DIED


class _Worker:
    """A process of the pool, and those that follow it."""

    def __init__(self) -> None:
        self.pid = 0                    # of the process; 0: there is none
        self.pidfd = -1
        self.pause = 0.0
        self.start: float | None = time.monotonic()     # of the process; None: it is not needed


class _Pool:
    def __init__(self, body: Callable[[], int], number: int, signals: _Signals) -> None:
        self._body = body
        self._signals = signals
        self._workers = [_Worker() for _ in range(number)]

    def _alive(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.pid]

    def run(self) -> None:
        """Start workers until the queue is shut down or a signal comes. Wait for their ends."""
        passed_on = 0
        while True:
            for number in self._signals.seen[passed_on:]:
                self._send(number)
                passed_on += 1
            if not passed_on:
                self._start_due()
            due = [worker.start for worker in self._workers
                   if worker.start is not None and not worker.pid and not passed_on]
            alive = self._alive()
            if not alive and not due:
                return
            poller = select.poll()
            for worker in alive:
                poller.register(worker.pidfd, select.POLLIN)
            self._signals.poll(poller, min(due) - time.monotonic() if due else None)
            for worker in alive:
                self._reap(worker, os.WNOHANG)

    def end(self) -> None:
        """End workers that an error of run() has left."""
        self._send(signal.SIGTERM)
        for worker in self._alive():
            self._reap(worker, 0)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._alive():
            os.kill(worker.pid, number)

    def _start_due(self) -> None:
        for worker in self._workers:
            if not worker.pid and worker.start is not None and worker.start <= time.monotonic():
                worker.start = time.monotonic()
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        _flush()                        # or the child would write it, too
        with _blocked():
            try:
                worker.pid = os.fork()
            except OSError as error:
                self._died(worker, f"cannot start a worker: {error}")
                return
            if not worker.pid:
                _child(self._body, self._signals)
            worker.pidfd = os.pidfd_open(worker.pid)

    def _reap(self, worker: _Worker, flags: int) -> None:
        pid, status = os.waitpid(worker.pid, flags)
        if not pid:
            return
        worker.pid = 0
        if worker.pidfd >= 0:
            os.close(worker.pidfd)
            worker.pidfd = -1
        code = os.waitstatus_to_exitcode(status)
        if code == _SHUT_DOWN:
            worker.start = None
        elif not self._signals.seen:
            self._died(worker, f"worker {pid} ended by signal {-code}" if code < 0
                       else f"worker {pid} ended with status {code}")

    def _died(self, worker: _Worker, text: str) -> None:
        assert worker.start is not None
        now = time.monotonic()
        young = now - worker.start < _LONGEST_PAUSE
        worker.pause = min(max(2 * worker.pause, _FIRST_PAUSE), _LONGEST_PAUSE) \
            if young else _FIRST_PAUSE
        worker.start = now + worker.pause
        _report(f"{text}, and the next starts in {worker.pause:g} s")


def _child(body: Callable[[], int], signals: _Signals) -> NoReturn:
    """Run a worker in a child of fork(), whose signals are blocked."""
    status = _DIED
    try:
        signals.in_child()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        status = body()
    except KeyboardInterrupt:
        pass
    except OSError as error:            # of the queue, with the next step in its text
        _report(f"worker {os.getpid()}: {error}")
    except BaseException as error:      # of fn, and no failure of its key
        _report(f"worker {os.getpid()} ends", error)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            _flush()
        finally:
            # Not as a program ends: what it registered for its end is for the process that did so.
            os._exit(status)


def _flush() -> None:
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
