# SPDX-License-Identifier: GPL-2.0-only
"""Child processes, temporary folders and locks.  None of them outlives the tool.

A signal raises Stopped in the main thread, so that each finally clause on the way out
runs: the guest ends, temporary folders go, the terminal gets its settings back. A long
child is a session of its own, and one signal to its process group reaches all that it
started. Nothing else is ever signalled.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, IO

from .output import VmError, about, say
from .places import HERE

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How long a child may take to end after SIGTERM.
GRACE = 1.0
# A step that takes longer than this prints that it is still at work.
REPORT_EVERY = 30.0


class Stopped(BaseException):
    """A signal ends the tool. No handler of Exception may swallow it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.status = 128 + signum


class _Signals:
    """Delivers signals as Stopped, but not while a child is half started."""

    def __init__(self) -> None:
        self.depth = 0
        self.pending = 0

    def handle(self, signum: int, _frame: Any) -> None:
        # a second signal would interrupt the cleaning up
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        if self.depth:
            self.pending = signum
        else:
            raise Stopped(signum)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
        if self.pending and not self.depth:
            signum, self.pending = self.pending, 0
            raise Stopped(signum)


_signals = _Signals()


def catch_signals() -> None:
    """Turn the signals that end a program into Stopped; a signal that the caller ignores
    stays ignored, as for a shell's background job."""
    for signum in SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, _signals.handle)


class Job:
    """A child with a session of its own. It is reaped only by end(), so that its number
    still means this child and its process group when they are signalled."""

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        options.setdefault("stdin", subprocess.DEVNULL)
        try:
            self.child = subprocess.Popen([str(word) for word in command],
                                          start_new_session=True, **options)
        except OSError as error:
            raise VmError(f"can't run {command[0]}: {error.strerror}; "
                          "is its package installed?") from error
        self.pidfd = os.pidfd_open(self.child.pid)

    def wait(self, seconds: float) -> int | None:
        """Wait that long at most; return the child's status, or None if it still runs."""
        if not select.select([self.pidfd], [], [], seconds)[0]:
            return None
        end = os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
        assert end
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def signal(self, signum: int) -> None:
        """Signal the child and all of its process group."""
        os.killpg(self.child.pid, signum)

    def end(self) -> None:
        """End the child, and what it may have left of its process group."""
        if self.wait(0) is None:
            self.signal(signal.SIGTERM)
            self.wait(GRACE)
        self.signal(signal.SIGKILL)
        self.child.wait()
        os.close(self.pidfd)


@contextlib.contextmanager
def job(command: Sequence[str | Path], **options: Any) -> Iterator[Job]:
    """A child that has ended when the block is left, by an exception too."""
    child = None
    try:
        with _signals.held():
            child = Job(command, **options)
        yield child
    finally:
        if child:
            with _signals.held():
                child.end()


def run(command: Sequence[str | Path], **options: Any) -> int:
    """Run a child to its end and return its status."""
    with job(command, **options) as child:
        while (status := child.wait(3600)) is None:
            pass
        return status


def text_of(command: Sequence[str | Path], **options: Any) -> str:
    """The standard output of a short command; a failure gives what it printed before."""
    options.setdefault("stderr", subprocess.DEVNULL)
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=False, **options)
    printed: str = done.stdout
    return printed


def install(*packages: str) -> None:
    """Install the missing ones of these Debian packages, or fail."""
    # not a session of its own: sudo asks for a password on the terminal
    child = None
    try:
        with _signals.held():
            child = subprocess.Popen([HERE.parent / "make/deps", *packages], stdin=subprocess.DEVNULL)
        status = child.wait()
    except Stopped:
        if child:
            child.terminate()
            child.wait()
        raise
    if status:
        raise VmError(f"needs the packages {' '.join(packages)}; the message above "
                      "has the reason why they could not be installed")


def _last_lines(path: Path, offset: int, count: int) -> list[str]:
    with path.open(errors="replace") as file:
        file.seek(offset)
        return file.read().splitlines()[-count:]


def step(text: str, log: Path, command: Sequence[str | Path], *, minutes: float = 0,
         progress: Callable[[], str] | None = None, **options: Any) -> None:
    """Run a command whose output goes to a log. Print what it is for and where the log is,
    and twice a minute how long it has been at it."""
    say(f"{text} (log: {log})")
    started = time.monotonic()
    usual = f" of usually {about(minutes * 60)}" if minutes else ""
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("ab"))
        # the output of earlier steps is before this
        offset = out.tell()
        child = stack.enter_context(job(command, stdout=out, stderr=subprocess.STDOUT, **options))
        while (status := child.wait(REPORT_EVERY)) is None:
            done = f", {progress()}" if progress else ""
            say(f"  still {text.split(',')[0]}: {about(time.monotonic() - started)}{usual}{done}")
    if status:
        for line in _last_lines(log, offset, 15):
            say(line)
        raise VmError(f"failed: {text}; the log's end is above, all of it is in {log}")


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Exclude other runs of the tool; the lock ends with the block or with the tool."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _removed_later(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        with _signals.held():
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """A new folder that is removed with the block, unless it was renamed meanwhile."""
    with _removed_later(path):
        path.mkdir(parents=True)
        yield path


@contextlib.contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A new folder in TMPDIR that is removed with the block."""
    with contextlib.ExitStack() as stack:
        with _signals.held():
            path = stack.enter_context(_removed_later(Path(tempfile.mkdtemp(prefix=prefix))))
        yield path


def copy_new(source: IO[bytes], target: int) -> bool:
    """Copy what a growing file has gained to a file descriptor. False: nobody reads it any
    more."""
    while data := source.read(1 << 16):
        try:
            while data:
                data = data[os.write(target, data):]
        except BrokenPipeError:
            return False
    return True
