# SPDX-License-Identifier: GPL-2.0-only
"""The Python package in a machine with the module loaded.

    LD_LIBRARY_PATH=build/tools python3 tests/bindings/python/test_queue.py [WORD...]

Prints TAP. WORD: a part of the names of tests.
"""
import asyncio
import contextlib
import copy
import dataclasses
import doctest
import errno
import functools
import gc
import os
import pathlib
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

TOP = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = pathlib.Path(os.environ.get("WQ_PYTHON", TOP / "tools/bindings/python"))
sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE))

import tap  # noqa: E402
import wq  # noqa: E402
import wq._aio  # noqa: E402
import wq._calls  # noqa: E402
import wq._items  # noqa: E402
import wq._item  # noqa: E402
import wq._queue  # noqa: E402
import wq._work  # noqa: E402

LONG = 60.0             # seconds until a wait that must end is given up
FAST = wq.exponential(0.001, 0.001)
SOURCES = pathlib.Path(os.environ.get("SOURCES", TOP / "build/stock/module/events"))


@contextlib.contextmanager
def kinds_of_sources() -> Iterator[None]:
    """Load the kinds of sources, which the kernel would look for among its own modules."""
    added = [f"wq_{kind}" for kind in ("fs", "net", "bpf")
             if not os.path.exists(f"/sys/module/wq_{kind}")]
    for module in added:
        subprocess.run(["insmod", SOURCES / f"{module}.ko"], check=True)
    try:
        yield
    finally:
        for module in added:
            subprocess.run(["rmmod", module], check=True)


class Case(unittest.TestCase):
    """A test with a private queue. Exceptions in __del__ and dropped objects are failures."""

    def setUp(self) -> None:
        warnings.simplefilter("error", ResourceWarning)
        self.lost: list[str] = []
        sys.unraisablehook = lambda seen: self.lost.append(repr(seen.exc_value))
        self.q = wq.open(limiter=FAST)

    def tearDown(self) -> None:
        self.q.close()
        gc.collect()
        sys.unraisablehook = sys.__unraisablehook__
        self.assertEqual([], self.lost)

    @contextlib.contextmanager
    def raises(self, cls: type[OSError], code: int, text: str = "") -> Iterator[None]:
        """The body raises this class, with this errno and text."""
        with self.assertRaises(cls) as seen:
            yield
        self.assertEqual(code, seen.exception.errno)
        self.assertIn(text, str(seen.exception))

    def named(self, name: str, **options: Any) -> wq.Queue:
        """A new queue with a name, which the end of the test unlinks."""
        q = wq.open(name, create=True, **options)
        self.addCleanup(q.unlink)
        return q

    def add(self, *keys: wq.Key) -> None:
        for key in keys:
            self.assertTrue(self.q.add(key))

    def is_empty(self) -> None:
        with self.raises(BlockingIOError, errno.EAGAIN):
            self.q.get(timeout=0)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs this Python with the package, and that a failing test kills."""
    with subprocess.Popen([sys.executable, *arguments], text=True, cwd=TOP,
                          env=dict(os.environ, PYTHONPATH=str(PACKAGE)), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def python(code: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A process that runs code with the package."""
    return started("-c", f"import sys, wq\n{code}")


# The numbers of ioctl and ppoll, by the machine and the bits of this Python.
SLEEPERS = {("x86_64", 64): ("16", "271"), ("x86_64", 32): ("54", "309", "414"),
            ("i686", 32): ("54", "309", "414"), ("aarch64", 64): ("29", "73")}


def waits(pid: int) -> bool:
    """Whether the process, which runs this Python, sleeps in an ioctl or in ppoll."""
    text = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()
    return text[0] in SLEEPERS[os.uname().machine, sys.maxsize.bit_length() + 1]


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("expected to become true, seen false")
        time.sleep(0.01)


def in_a_loop(test: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """The test as the main task of an event loop."""
    @functools.wraps(test)
    def run(self: Any) -> None:
        asyncio.run(test(self))
    return run


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Keys(Case):
    def test_str_bytes_and_paths_keep_every_byte(self) -> None:
        raw = bytes(range(256)) * 4
        keys: list[tuple[wq.Key, bytes]] = [
            ("Müller", "Müller".encode()), (raw, raw), (b"\0", b"\0"),
            (pathlib.Path("/srv/a b"), b"/srv/a b"), (os.fsdecode(b"/srv/\xff"), b"/srv/\xff")]
        for key, data in keys:
            self.add(key)
            with self.q.get() as item:
                self.assertEqual(data, item.key)
                self.assertEqual(data, item.text.encode("utf-8", "surrogateescape"))
        self.add(b"/srv/\xff")
        with self.q.get() as item:
            self.assertEqual(pathlib.Path(os.fsdecode(b"/srv/\xff")), item.path)

    def test_empty_long_and_other_keys_raise_before_the_call(self) -> None:
        for key, cls, text in (("", ValueError, "empty"), ("ä" * 513, ValueError, "1026 bytes"),
                               (7, TypeError, "not int"), (None, TypeError, "not NoneType")):
            for call in (self.q.add, self.q.query, self.q.cancel, self.q.kick, self.q.wait_key):
                if call == self.q.kick and key is None:
                    continue
                with self.subTest(key=key, call=call), self.assertRaisesRegex(cls, text):
                    call(key)  # type: ignore[operator]
        with self.assertRaisesRegex(ValueError, "empty"):
            self.q.add_many(["", "a"])
        for one in "abc", b"abc", pathlib.Path("/a"):
            with self.subTest(one=one), self.assertRaisesRegex(TypeError, "add.. takes one"):
                self.q.add_many(one)  # type: ignore[arg-type]
        self.assertEqual(0, self.q.stat().keys)

    def test_patterns_of_fs_are_several(self) -> None:
        for wrong in ({"only": "src"}, {"exclude": b"x"}):
            with self.assertRaisesRegex(TypeError, "several patterns"):
                wq.fs("/", **wrong)  # type: ignore[arg-type]

    def test_unknown_access_raises(self) -> None:
        with self.assertRaisesRegex(ValueError, "access is 'r[+]', and must be 'r', 'w' or 'rw'"):
            wq.open(access="r+")  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "access is ''"):
            self.q.open_same("")  # type: ignore[arg-type]


class Adds(Case):
    def test_add_returns_whether_the_key_is_newly_dirty(self) -> None:
        self.assertIs(True, self.q.add("a"))
        self.assertIs(False, self.q.add("a"))
        self.assertEqual((1, 1, 0), (self.q.stat().adds, self.q.stat().coalesced,
                                     self.q.stat().retries))

    def test_add_after_makes_the_key_ready_after_the_time(self) -> None:
        start = time.monotonic()
        self.assertTrue(self.q.add("a", after=0.2))
        info = self.q.query("a")
        self.assertEqual(wq.KeyState.DELAYED, info.state)
        self.assertTrue(0 < info.due <= 200_000_000, info.due)
        self.is_empty()
        with self.q.get(timeout=LONG):
            self.assertGreaterEqual(time.monotonic() - start, 0.2)
        self.assertEqual(1, self.q.stat().retries)

    def test_add_after_0_is_ready_and_counts_as_a_retry(self) -> None:
        self.assertTrue(self.q.add("a", after=0))
        self.q.get(timeout=0).done()
        self.assertEqual(1, self.q.stat().retries)

    def test_add_after_any_number_of_seconds(self) -> None:
        for number, after in enumerate((1e300, float("inf"), 2 ** 80, 10 ** 9)):
            self.assertTrue(self.q.add(f"key {number}", after=after))
            self.assertGreaterEqual(self.q.query(f"key {number}").due, 10 ** 17)
        self.assertTrue(self.q.add("past", after=float("-inf")))
        self.q.get(timeout=0).done()
        with self.assertRaises(ValueError):
            self.q.add("a", after=float("nan"))

    def test_flags_select_the_rule_of_a_pending_delay(self) -> None:
        def due(after: float, flags: wq.AddFlag = wq.AddFlag(0)) -> int:
            self.q.add("a", after=after, flags=flags)
            return self.q.query("a").due // 1_000_000_000

        self.assertEqual(499, due(500))
        self.assertEqual(299, due(300))
        self.assertEqual(299, due(500))
        self.assertEqual(299, due(100, wq.AddFlag.KEEP_FIRST))
        self.assertEqual(799, due(800, wq.AddFlag.TAKE_LATEST))
        self.q.add("a", flags=wq.AddFlag.DROP_DELAY)
        self.assertEqual(-1, self.q.query("a").due)
        with self.raises(OSError, errno.EINVAL):
            self.q.add("b", after=1, flags=wq.AddFlag.DROP_DELAY)

    def test_priority_decides_and_needs_a_queue_with_priorities(self) -> None:
        with wq.open(order=wq.Order.PRIORITY, order_arg=1) as q:
            for key, level in (("low", -128), ("mid", 0), ("high", 127)):
                q.add(key, priority=level)
            q.add("mid", priority=5)
            self.assertEqual({-128: 1, 0: 0, 5: 1, 127: 1}, q.ready_by_priority())
            seen = []
            for _ in range(3):
                with q.get(timeout=0) as item:
                    seen.append((item.text, item.priority))
            self.assertEqual([("high", 127), ("mid", 5), ("low", -128)], seen)
            for level in (-129, 128, 2 ** 32):
                with self.assertRaisesRegex(ValueError, "-128 to 127"):
                    q.add("x", priority=level)
                with self.assertRaisesRegex(ValueError, "-128 to 127"):
                    q.add_many(["x"], priority=level)
        with self.raises(OSError, errno.EINVAL, "Order.PRIORITY"):
            self.q.add("x", priority=1)

    def test_group_ageing_gives_the_keys_of_a_group_priorities(self) -> None:
        with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/"), group_ageing=wq.NO_AGEING) as q:
            for key, level in (("a/low", -1), ("a/high", 127), ("b/mid", 3)):
                q.add(key, priority=level)
            self.assertEqual({-1: 1, 3: 1, 127: 1}, q.ready_by_priority())
            for key in ("a/high", "b/mid", "a/low"):
                with q.get(timeout=0) as item:
                    self.assertEqual(key, item.text)

    def test_add_many_takes_more_keys_than_one_call(self) -> None:
        keys = 30_000           # of 64 bytes with their records: 2 arrays
        self.assertEqual(keys, self.q.add_many(f"{n:040}" for n in range(keys)))
        self.assertEqual(0, self.q.add_many(f"{n:040}" for n in range(100)))
        self.assertEqual((keys, 100), (self.q.stat().ready, self.q.stat().coalesced))
        self.assertEqual(0, self.q.add_many([]))

    def test_add_many_has_the_options_of_add(self) -> None:
        with wq.open(order=wq.Order.PRIORITY) as q:
            self.assertEqual(2, q.add_many(["a", "b"], priority=3, after=100))
            self.assertEqual((3, 99), (q.query("b").priority, q.query("b").due // 10 ** 9))

    def test_add_many_names_the_keys_that_failed_and_adds_the_others(self) -> None:
        with wq.open(max_keys=2) as q:
            with self.assertRaisesRegex(wq.KeysFailed, "2 keys failed, .*full.*'c'") as seen:
                q.add_many(["a", "b", "c", "a", "d"])
            self.assertEqual([b"c", b"d"], [key for key, _ in seen.exception.failed])
            self.assertEqual(errno.ENOSPC, seen.exception.errno)
            self.assertEqual({b"a", b"b"}, {info.key for info in q.keys()})

    def test_add_many_adds_the_keys_ahead_of_one_that_raises(self) -> None:
        def keys(cls: type[BaseException] = LookupError, names: str = "ab") -> Iterator[str]:
            yield from names
            raise cls

        with self.assertRaises(LookupError) as seen:
            self.q.add_many(keys())
        self.assertIsNone(seen.exception.__cause__)
        for cls, name in (KeyboardInterrupt, "i"), (SystemExit, "x"):
            with self.assertRaises(cls):
                self.q.add_many(keys(cls, name))
            self.assertIn(name, self.q)
            self.q.cancel(name)
        with self.assertRaises(ValueError):
            self.q.add_many(["c", "", "d"])
        self.assertEqual({b"a", b"b", b"c"}, {info.key for info in self.q.keys()})
        with wq.open(max_keys=1) as q:
            with self.assertRaises(LookupError) as seen:
                q.add_many(keys())
            cause = seen.exception.__cause__
            assert isinstance(cause, wq.KeysFailed)
            self.assertEqual([b"b"], [key for key, _ in cause.failed])

    def test_add_many_whose_call_fails_too_raises_the_error_of_the_keys(self) -> None:
        first = OSError("the first cause")

        def keys() -> Iterator[str]:
            yield "a"
            raise LookupError from first

        with wq.open(max_keys=1) as q, q.open_same("r") as reader:
            q.add("x")
            for adder in q, reader:
                with self.assertRaises(LookupError) as seen:
                    adder.add_many(keys())
                cause = seen.exception.__cause__
                assert isinstance(cause, OSError)
                self.assertEqual(adder is q, isinstance(cause, wq.KeysFailed))
                self.assertIs(first, cause.__cause__)

    def test_add_rate_limited_counts_a_failure(self) -> None:
        self.q.add_rate_limited("a")
        with self.q.get(timeout=LONG) as item:
            self.assertEqual(1, item.failures)
            self.assertEqual(1, self.q.num_requeues("a"))
            item.forget()
            self.assertTrue(item.held)
            self.assertEqual(0, self.q.num_requeues("a"))

    def test_add_to_a_full_paused_or_shut_down_queue_names_the_cause(self) -> None:
        with wq.open(max_keys=1) as q:
            q.add("a")
            with self.raises(OSError, errno.ENOSPC, "full"):
                q.add("b")
            q.pause(wq.Pause.ADDS)
            with self.raises(OSError, errno.EHOSTDOWN, "adds are paused"):
                q.add("a")
            q.shut_down()
            with self.raises(wq.ShutDown, errno.ESHUTDOWN, "shut down"):
                q.add("a")


class Runs(Case):
    def test_move_periodic_moves_a_key_to_its_due_time(self) -> None:
        watch = wq.periodic_watch()
        self.addCleanup(os.close, watch)
        self.q.add("a@every=1h", after=5000)
        self.q.add("b", after=5000)
        moved, clock = self.q.move_periodic(watch)
        self.assertEqual(1, moved)
        self.assertLess(abs(clock + time.monotonic_ns() - time.time_ns()), 10**9)
        self.assertLessEqual(self.q.query("a@every=1h").due, 3600 * 10**9)
        self.assertGreater(self.q.query("b").due, 4000 * 10**9)
        self.assertEqual((0, 0), (self.q.move_periodic(watch, clock)[0],
                                  len(select.select([watch], [], [], 0)[0])))

    def test_last_run_of_a_key_also_of_an_idle_one(self) -> None:
        with self.named("py-last", limiter=FAST) as q:
            q.add("a")
            self.assertEqual((wq.LastResult.NONE, 0), (q.query("a").last_result,
                                                       q.query("a").last_age))
            item = q.get()
            time.sleep(0.01)
            item.give_up("broken")
            info = q.query("a")
            self.assertIs(wq.LastResult.GAVE_UP, info.last_result)
            self.assertTrue(9_900_000 < info.last_took < 60 * 10**9, info)
            self.assertTrue(0 <= info.last_age < 60 * 10**9, info)
            q.kick("a")
            q.get().done()
            with self.raises(wq.UnknownKey, errno.ENOENT):
                q.query("a")
            info = q.query("a", idle=True)
            self.assertEqual((0, wq.LastResult.DONE), (info.state, info.last_result))
            self.assertEqual([], list(q.keys()))
            self.assertEqual([(b"a", info.last_took)],
                             [(one.key, one.last_took) for one in q.keys(idle=True)])
            with self.raises(wq.UnknownKey, errno.ENOENT):
                q.query("b", idle=True)
            # The state that was reported can be restored, but not the last run.
            q.add("p")
            q.get().give_up("broken")
            info = q.query("p")
            q.cancel("p")
            with self.named("py-last-copy") as copy:
                copy.restore(info)
                self.assertIs(wq.LastResult.NONE, copy.query("p").last_result)

    def test_body_that_ends_is_done_and_resets_the_failures(self) -> None:
        self.add("a")
        self.q.get().retry()
        with self.q.get(timeout=LONG) as item:
            self.assertEqual(1, item.failures)
        self.assertFalse(item.held)
        with self.raises(wq.UnknownKey, errno.ENOENT):
            self.q.query("a")
        self.assertEqual((2, 0), (self.q.stat().dones, self.q.stat().failed))

    def test_item_of_a_raising_body_comes_back_with_its_failure_count(self) -> None:
        self.add("a")
        for failures in range(4):
            with self.assertRaisesRegex(RuntimeError, "^no luck$"):
                with self.q.get(timeout=LONG) as item:
                    self.assertEqual(failures, item.failures)
                    raise RuntimeError("no luck")
        self.assertEqual(4, self.q.query("a").failures)

    def test_run_that_fails_while_memory_is_short_is_retried_later(self) -> None:
        calls, real = wq._calls, wq._calls.done_failed
        results = [-errno.ENOMEM] * 2

        def done_failed(*args: Any) -> int:
            return results.pop() if results else real(*args)

        self.add("a")
        with unittest.mock.patch.object(calls, "done_failed", done_failed):
            with self.assertRaises(LookupError), self.q.get() as item:
                raise LookupError
        self.assertFalse(item.held)
        self.assertEqual(1, self.q.query("a").failures)
        with unittest.mock.patch.object(calls, "done_failed", lambda *_: -errno.ENOMEM), \
                unittest.mock.patch.object(wq._item, "_PAUSES", (0,)):
            with self.assertWarnsRegex(RuntimeWarning, "not enough memory .* b'a'") as seen:
                with self.assertRaises(LookupError), self.q.get(timeout=LONG) as item:
                    raise LookupError
        self.assertEqual(__file__, seen.filename)
        self.assertTrue(item.held)
        item.done()

    def test_runs_of_several_items_share_the_tries_while_memory_is_short(self) -> None:
        self.q.add_many(["a", "b", "c"])
        calls = unittest.mock.Mock(return_value=-errno.ENOMEM)
        with unittest.mock.patch.object(wq._calls, "done_failed", calls), \
                unittest.mock.patch.object(wq._item, "_PAUSES", (0, 0)):
            with self.assertWarnsRegex(RuntimeWarning, "not enough memory") as seen:
                with self.assertRaises(LookupError), self.q.get_many() as items:
                    raise LookupError
        self.assertEqual(__file__, seen.filename)
        self.assertEqual(3 + 2, calls.call_count)
        items.done()

    def test_key_that_fails_too_often_is_parked_with_the_exception(self) -> None:
        text = "x" + "ä" * 40
        with wq.open(max_retries=1, limiter=FAST) as q:
            q.add("a")
            for _ in range(2):
                with contextlib.suppress(OSError):
                    with q.get(timeout=LONG):
                        raise PermissionError(errno.EACCES, text)
            info = q.query("a")
            self.assertEqual((wq.KeyState.PARKED | wq.KeyState.FAILED, errno.EACCES),
                             (info.state, info.error))
            # 64 bytes, without half a character
            self.assertEqual("PermissionError: [Errno 13] x" + "ä" * 17, info.reason)
            self.assertEqual(1, q.kick("a"))
            with q.get(timeout=0) as item:
                self.assertEqual(0, item.failures)

    def test_exception_without_a_text_or_errno_ends_the_run(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise AttributeError

        # OSError takes any first argument as the errno
        for error, reason in ((Mute(), "Mute"),
                              (OSError("disk", "full"), "OSError: [Errno disk] full")):
            with self.subTest(reason), wq.open(max_retries=1, limiter=FAST) as q:
                q.add("a")
                for _ in range(2):
                    with self.assertRaises(type(error)) as seen, q.get(timeout=LONG):
                        raise error
                    self.assertIs(error, seen.exception)
                self.assertEqual((reason, 0), (q.query("a").reason, q.query("a").error))

    def test_park_keeps_the_reason_and_kick_makes_ready(self) -> None:
        self.add("a", "b")
        for error in (5, 99999):
            self.assertEqual(wq.Result.PARKED, self.q.get().give_up("broken disk", error=error))
        self.assertEqual(("broken disk", 5), (self.q.query("a").reason, self.q.query("a").error))
        self.assertEqual(0, self.q.query("b").error)
        self.assertEqual(2, self.q.kick())
        self.assertEqual(2, self.q.stat().ready)
        with self.raises(wq.UnknownKey, errno.ENOENT):
            self.q.kick("a")

    def test_interrupted_body_makes_the_key_ready_again_without_a_failure(self) -> None:
        for cls in (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            self.q.add("a")
            with self.assertRaises(cls):
                with self.q.get(timeout=0):
                    raise cls
            self.assertEqual((wq.KeyState.READY | wq.KeyState.DIRTY, 0),
                             (self.q.query("a").state, self.q.query("a").failures))

    def test_interrupted_body_loses_no_key_of_a_queue_that_is_shut_down(self) -> None:
        self.add("a")
        with self.q.open_same() as other:
            with self.assertRaises(KeyboardInterrupt):
                with other.get() as item:
                    self.q.shut_down()
                    raise KeyboardInterrupt
            self.assertTrue(item.held)
        with self.q.get(timeout=0) as item:
            self.assertEqual(b"a", item.key)

    def test_item_that_the_body_ended_stays_as_it_is(self) -> None:
        self.add("a", "b", "c")
        with self.q.get() as item:
            self.assertEqual(wq.Result.DELAYED, item.retry(after=100))
        with self.q.get() as item:
            item.give_up("x")
        with self.assertRaises(RuntimeError):
            with self.q.get() as item:
                item.done()
                raise RuntimeError
        stat = self.q.stat()
        self.assertEqual((1, 1, 0, 3), (stat.delayed, stat.parked, stat.failures, stat.dones))

    def test_retry_after_a_time_is_no_failure(self) -> None:
        self.add("a")
        item = self.q.get()
        for wrong in ({"reason": "x"}, {"error": 1}):
            with self.assertRaisesRegex(ValueError, "no failure"):
                item.retry(1, **wrong)  # type: ignore[arg-type]
        self.assertEqual(wq.Result.READY, item.retry(after=0))
        with self.q.get(timeout=0) as item:
            self.assertEqual(0, item.failures)

    def test_done_reports_an_add_during_the_run(self) -> None:
        self.add("a")
        with self.q.get() as item:
            self.q.add("a")
            self.assertIs(True, item.done())
        self.assertIs(False, self.q.get().done())

    def test_done_can_keep_the_failures(self) -> None:
        self.add("a")
        self.q.get().retry()
        self.q.get(timeout=LONG).done(keep_failures=True)
        self.assertEqual(1, self.q.query("a").failures)

    def test_second_end_raises_stale_and_ends_no_other_run(self) -> None:
        self.add("a")
        item = self.q.get()
        item.done()
        self.add("a")
        with self.q.get() as second:
            ends: list[Callable[[], object]] = [item.done, item.retry, item.touch,
                                                lambda: item.give_up("x")]
            for end in ends:
                with self.raises(wq.Stale, errno.ESTALE, "no longer held"):
                    end()
            second.touch()

    def test_dropped_item_warns_and_gives_its_key_back(self) -> None:
        self.add("a")
        self.q.get(timeout=0)
        self.assertEqual(1, len(self.lost))
        self.assertRegex(self.lost.pop(), "ResourceWarning.*b'a'.* was dropped during its run")
        with self.q.get(timeout=0) as item:
            self.assertEqual(0, item.failures)

    def test_child_of_fork_does_not_end_the_run_of_its_parent(self) -> None:
        self.add("a")
        with self.q.get() as item:
            pid = os.fork()
            if not pid:
                try:
                    item.__exit__(None, None, None)
                    item.__exit__(RuntimeError, RuntimeError(), None)
                    item.__del__()
                finally:
                    os._exit(0)
            self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            self.assertEqual(1, self.q.stat().held)
            item.touch()

    def test_child_of_fork_cannot_enter_an_item(self) -> None:
        self.add("a")
        item = self.q.get()
        pid = os.fork()
        if not pid:
            try:
                with item:
                    pass
            except RuntimeError as error:
                os._exit(3 if "get keys in the child" in str(error) else 4)
            os._exit(5)
        self.assertEqual(3, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        item.done()
        self.assertEqual(1, self.q.stat().dones)

    def test_first_get_in_a_child_of_fork_warns(self) -> None:
        def warnings_of(call: Callable[[], object]) -> list[str]:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                call()
            return [str(one.message) for one in seen if one.category is RuntimeWarning]

        def step() -> None:
            loop = iter(self.q)
            next(loop).done()

        gets: list[Callable[[], object]] = [
            lambda: self.q.get(timeout=0).done(), lambda: self.q.get_many(1, timeout=0).done(),
            step]
        for get in gets:
            self.q.add_many(["a", "b", "c"])
            self.assertEqual([], warnings_of(get))
            pid = os.fork()
            if not pid:
                status = 1
                try:
                    self.assertEqual([], warnings_of(lambda: self.q.add("e")))
                    text, = warnings_of(get)
                    self.assertIn(f"the process {os.getppid()} opened <wq.Queue", text)
                    self.assertEqual([], warnings_of(get))
                    with self.q.open_same() as own:
                        self.assertEqual([], warnings_of(lambda: own.get(timeout=0).done()))
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            self.assertEqual(0, self.q.stat().ready)

    def test_queue_and_item_are_not_copied(self) -> None:
        copies: list[Callable[[object], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
        self.add("a")
        with self.q.get() as item:
            for thing in self.q, item, self.q.producer():
                for call in copies:
                    with self.subTest(thing=thing, call=call), self.assertRaisesRegex(
                            TypeError, "cannot be copied or pickled: give another process"):
                        call(thing)

    def test_lost_lease_raises_stale(self) -> None:
        with wq.open(lease=1) as q, q.open_same() as other:
            q.add("a")
            item = q.get()
            with other.get(timeout=LONG) as second:
                self.assertEqual(1, second.given_back)
                with self.raises(wq.Stale, errno.ESTALE):
                    with item:
                        pass
                self.assertFalse(item.held)
                second.touch()

    def test_lost_lease_does_not_hide_the_exception_of_the_body(self) -> None:
        with wq.open(lease=1) as q, q.open_same() as other:
            q.add("a")
            with self.assertRaisesRegex(RuntimeError, "the cause"):
                with q.get():
                    with other.get(timeout=LONG):
                        raise RuntimeError("the cause")

    def test_touch_restarts_the_lease(self) -> None:
        with wq.open(lease=100) as q:
            q.add("a")
            with q.get() as item:
                time.sleep(1.1)
                before = q.query("a").lease
                item.touch()
                self.assertGreater(q.query("a").lease, before)


class Periodic(Case):
    KEY = "backup@every=1d"

    def delayed(self, key: str = KEY) -> None:
        self.assertEqual(wq.KeyState.DELAYED, self.q.query(key).state)
        self.assertLessEqual(self.q.query(key).due, 86400 * 10**9)

    def test_key_is_delayed_until_it_is_due(self) -> None:
        self.assertTrue(self.q.add_periodic(self.KEY))
        self.delayed()
        self.assertFalse(self.q.add_periodic(self.KEY))
        with self.raises(OSError, errno.EINVAL, "no schedule"):
            self.q.add_periodic("backup")

    def test_key_that_was_begun_is_due_again_however_its_run_ends(self) -> None:
        self.q.close()
        self.q = wq.open(limiter=FAST, max_retries=2)
        ends: list[Callable[[wq.Item], object]] = [
            lambda item: item.done(), lambda item: item.retry(after=86400.0),
            lambda item: item.give_up("broken")]
        for end in ends:
            self.add(self.KEY)
            item = self.q.get(0)
            self.assertTrue(item.begin_periodic())
            end(item)
            self.delayed()
            self.assertEqual(0, self.q.query(self.KEY).failures)
        self.add(self.KEY)
        for _ in range(3):
            item = self.q.get(LONG)
            self.assertTrue(item.begin_periodic())
            item.retry()
        self.delayed()

    def test_cancel_ends_the_period_also_during_a_run(self) -> None:
        self.add(self.KEY)
        item = self.q.get(0)
        self.assertTrue(item.begin_periodic())
        self.q.cancel(self.KEY)
        item.done()
        self.assertNotIn(self.KEY, self.q)

    def test_consumer_that_dies_leaves_the_period(self) -> None:
        self.add(self.KEY)
        with self.q.open_same() as other:
            lost = other.get(0)
            self.assertTrue(lost.begin_periodic())
        item = self.q.get(0)
        self.assertTrue(item.begin_periodic())
        item.done()
        self.delayed()

    def test_key_without_a_schedule_is_not_added(self) -> None:
        self.add("backup")
        item = self.q.get(0)
        self.assertTrue(item.begin_periodic())
        item.done()
        self.assertNotIn("backup", self.q)

    def test_late_run_is_left_out_with_skip_alone(self) -> None:
        hour = (time.localtime().tm_hour + 12) % 24
        for words, begins in ((",skip", False), ("", True)):
            key = f"k@every=1d,at={hour:02}:00{words}"
            self.add(key)
            item = self.q.get(0)
            self.assertIs(begins, item.begin_periodic())
            # It still has its delay, so the next run has another reason.
            item.retry(after=0.0)
            item = self.q.get(LONG)
            self.assertTrue(item.begin_periodic())
            item.done()
            self.delayed(key)

    def test_begin_after_a_shut_down_or_a_disable_has_no_next_run(self) -> None:
        self.add(self.KEY, "b@every=1s")
        first, second = self.q.get(0), self.q.get(0)
        self.q.disable(self.KEY, timeout=0)
        self.assertTrue(first.begin_periodic())
        self.q.shut_down()
        self.assertTrue(second.begin_periodic())
        first.done()
        second.done()
        self.assertEqual(0, self.q.stat().delayed)

    def test_begin_during_a_pause_raises(self) -> None:
        self.add(self.KEY)
        item = self.q.get(0)
        self.q.pause(wq.Pause.ADDS)
        with self.raises(OSError, errno.EHOSTDOWN):
            item.begin_periodic()
        item.retry()

    def test_next_run_keeps_the_priority_of_the_run(self) -> None:
        self.q.close()
        self.q = wq.open(order=wq.Order.PRIORITY)
        self.q.add(self.KEY, priority=7)
        item = self.q.get(0)
        self.assertTrue(item.begin_periodic())
        item.done()
        self.assertEqual(7, self.q.query(self.KEY).priority)


class Gets(Case):
    def test_get_without_a_key_raises_the_errors_of_python(self) -> None:
        self.is_empty()
        start = time.monotonic()
        with self.raises(TimeoutError, errno.ETIMEDOUT, "in time"):
            self.q.get(timeout=0.2)
        self.assertGreaterEqual(time.monotonic() - start, 0.2)
        with self.assertRaisesRegex(ValueError, "negative"):
            self.q.get(timeout=-1)
        with self.assertRaisesRegex(ValueError, "negative"):
            self.q.get_many(timeout=-1)

    def test_get_lets_other_threads_run(self) -> None:
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(self.q.get().done()))
                   for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(4):
            self.q.add(str(number))
        for thread in threads:
            thread.join(LONG)
        self.assertEqual([False] * 4, seen)

    def test_ctrl_c_ends_get_and_the_key_goes_to_the_next(self) -> None:
        with self.named("python-int") as q:
            with python('wq.open("python-int").get()') as process:
                eventually(lambda: waits(process.pid))
                process.send_signal(signal.SIGINT)
                _, text = process.communicate(timeout=LONG)
            self.assertEqual(-signal.SIGINT, process.returncode)
            self.assertTrue(text.rstrip().endswith("KeyboardInterrupt"), text)
            q.add("a")
            q.get(timeout=0).done()

    def test_ctrl_c_ends_wait_key_and_drain(self) -> None:
        with self.named("python-int") as q:
            q.add("held")
            with q.get():
                for code in ('q.wait_key("held")', "q.drain()"):
                    with python(f'q = wq.open("python-int")\n{code}') as process:
                        eventually(lambda: q.stat().consumers == 2 and waits(process.pid))
                        process.send_signal(signal.SIGINT)
                        text = process.communicate(timeout=LONG)[1]
                    self.assertTrue(text.rstrip().endswith("KeyboardInterrupt"), (code, text))

    def test_ctrl_c_ends_a_loop_without_a_traceback(self) -> None:
        loop = "for item in q: item.done()"
        caught = f"try:\n  {loop}\nexcept KeyboardInterrupt: print('caught')"
        prompt = f"sys.ps1 = '>'\n{loop}"
        with self.named("python-int") as q:
            for code, status, out, err in ((loop, 130, "", ""), (caught, 0, "caught\n", ""),
                                           (prompt, -signal.SIGINT, "", "KeyboardInterrupt")):
                with self.subTest(code), python(f'q = wq.open("python-int")\n{code}') as process:
                    eventually(lambda: q.stat().consumers == 2 and waits(process.pid))
                    process.send_signal(signal.SIGINT)
                    output = process.communicate(timeout=LONG)
                    self.assertEqual((status, out, err), (process.returncode, output[0],
                                                          output[1][-18:].strip()))

    def test_signal_handlers_run_and_the_wait_goes_on_with_its_timeout(self) -> None:
        calls = []

        def handler(*_: object) -> None:
            calls.append(1)
            # a call that fails has its own errno
            with contextlib.suppress(wq.UnknownKey):
                self.q.query("unknown")

        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            with self.raises(TimeoutError, errno.ETIMEDOUT):
                self.q.get(timeout=1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertTrue(1 <= time.monotonic() - start < 1.9, time.monotonic() - start)
        self.assertGreaterEqual(len(calls), 3)

    def test_signal_handler_can_shut_down(self) -> None:
        old = signal.signal(signal.SIGALRM, lambda *_: self.q.shut_down())
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        self.add("a")
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        seen = []
        for item in self.q:
            with item:
                seen.append(item.text)
        self.assertEqual(["a"], seen)
        with self.raises(wq.ShutDown, errno.ESHUTDOWN):
            self.q.get()
        self.assertTrue(issubclass(wq.ShutDown, BrokenPipeError))

    def interrupted_at_each_step(self, get: Callable[[], Any]) -> int:
        """Interrupt a get at each step of the package's code. Returns how often it had a key."""
        had = 0
        for last in range(2000):
            left = last

            def trace(frame: Any, event: str, _: object) -> Any:
                nonlocal left
                frame.f_trace_opcodes = "/wq/_" in frame.f_code.co_filename
                if event == "opcode":
                    left -= 1
                    if left < 0:
                        raise KeyboardInterrupt
                return trace

            self.q.add("a")
            before = self.q.stat().gets
            sys.settrace(trace)
            try:
                item = get()
            except KeyboardInterrupt:
                sys.settrace(None)
            else:
                sys.settrace(None)
                item.done()
                self.assertEqual(0, self.q.stat().held)
                return had
            had += self.q.stat().gets - before
            self.assertEqual((1, 0), (self.q.stat().ready, self.q.stat().held), f"step {last}")
        self.fail("the get had no end")

    def test_interrupt_between_get_and_body_loses_no_key(self) -> None:
        for get in (lambda: self.q.get(timeout=0), lambda: self.q.get_many(timeout=0)):
            self.assertGreater(self.interrupted_at_each_step(get), 10)
            self.assertTrue(all("dropped" in text for text in self.lost), self.lost)
            self.lost.clear()

    def test_oserror_of_a_signal_handler_ends_get_as_it_is(self) -> None:
        def handler(*_: object) -> None:
            raise OSError(errno.EAGAIN, "of the handler")

        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with self.raises(BlockingIOError, errno.EAGAIN, "of the handler"):
            self.q.get(timeout=LONG)

    def test_threads_share_a_queue_and_get_their_own_keys(self) -> None:
        keys = [f"{i:0{1 + i % 40}}" for i in range(2000)]
        seen: list[list[str]] = [[] for _ in range(8)]

        def work(mine: list[str]) -> None:
            with contextlib.suppress(wq.ShutDown):
                while True:
                    if len(mine) % 3:
                        with self.q.get() as item:
                            mine.append(item.text)
                    else:
                        with self.q.get_many(3) as items:
                            mine.extend(item.text for item in items)

        old = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, old)
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=work, args=(mine,)) for mine in seen]
        for thread in threads:
            thread.start()
        for at in range(0, len(keys), 10):
            self.q.add(keys[at])
            self.q.add_many(keys[at + 1:at + 10])
        self.q.shut_down()
        for thread in threads:
            thread.join(LONG)
        self.assertEqual(sorted(set(keys)), sorted(key for mine in seen for key in mine))
        self.assertEqual(0, self.q.stat().held)

    def test_key_of_a_killed_process_is_given_to_the_next(self) -> None:
        with self.named("python-kill") as q:
            q.add("a")
            with python('item = wq.open("python-kill").get(); print(item.text, flush=True)\n'
                        'sys.stdin.read()') as process:
                assert process.stdout
                self.assertEqual("a\n", process.stdout.readline())
                with self.raises(BlockingIOError, errno.EAGAIN):
                    q.get(timeout=0)
                process.kill()
                with q.get(timeout=LONG) as item:
                    self.assertEqual((b"a", 1, 0), (item.key, item.given_back, item.failures))

    def test_close_gives_keys_back(self) -> None:
        self.add("a")
        other = self.q.open_same()
        item = other.get()
        other.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            item.done()
        with self.q.get(timeout=0) as second:
            self.assertEqual(1, second.given_back)

    def test_poll_reports_a_queue_with_keys(self) -> None:
        self.assertEqual(([], [], []), select.select([self.q], [], [], 0))
        self.add("a")
        self.assertEqual(([self.q], [], []), select.select([self.q], [], [], 0))


class Loops(Case):
    def test_step_retries_an_item_that_the_body_did_not_end(self) -> None:
        self.add("a", "b")
        items = iter(self.q)
        first = next(items)
        with self.assertWarnsRegex(RuntimeWarning, "b'a', which is retried: write 'with item:'"):
            second = next(items)
        self.assertEqual((False, True), (first.held, second.held))
        self.assertEqual((1, 1, 1), (self.q.stat().held, self.q.query("a").failures,
                                     self.q.stat().retries))
        second.done()
        with next(items) as again:
            self.assertEqual((b"a", 1), (again.key, again.failures))
        self.assertEqual(0, self.q.stat().keys)

    def test_step_parks_with_the_reason(self) -> None:
        with wq.open(max_retries=1, limiter=FAST) as q, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            q.add("a")
            items = iter(q)
            next(items), next(items)
            q.add("b")
            with next(items):
                self.assertIn("did not end the run", q.query("a").reason)

    def test_list_of_a_queue_loses_no_key(self) -> None:
        with self.named("python-list") as q:
            q.add_many(["a", "b"])
            q.shut_down()
            with wq.open("python-list") as worker, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.assertEqual(["a", "b"], [item.text for item in list(worker)])
            self.assertEqual((0, 2, 0), (q.stat().dones, q.stat().ready, q.stat().dropped))
            for item in q:
                with item:
                    pass
            self.assertEqual(2, q.stat().dones)

    def test_interrupted_step_loses_no_key(self) -> None:
        self.add("a")
        items = iter(self.q)
        next(items).done()
        old = signal.signal(signal.SIGALRM, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with self.assertRaises(KeyboardInterrupt):
            next(items)
        self.assertEqual((1, 0, 0), (self.q.stat().dones, self.q.stat().held, self.q.stat().keys))

    def test_step_goes_on_after_a_signal_handler(self) -> None:
        old = signal.signal(signal.SIGALRM, lambda *_: self.q.add("b"))
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        items = iter(self.q)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with next(items) as item:
            self.assertEqual(b"b", item.key)

    def test_loop_that_an_exception_ends_retries_the_item(self) -> None:
        self.add("a")
        for failures in range(3):
            with self.assertRaisesRegex(RuntimeError, "no luck"):
                for item in self.q:
                    self.assertEqual(failures, item.failures)
                    raise RuntimeError("no luck")
            self.assertEqual(failures + 1, self.q.stat().failures)

    def test_loop_that_break_ends_retries_the_item_unless_it_ended(self) -> None:
        self.add("a")
        for item in self.q:
            break
        self.assertEqual(1, self.q.query("a").failures)
        for item in self.q:
            item.done()
            break
        self.assertEqual(0, self.q.stat().keys)

    def test_inner_with_retries_with_the_reason(self) -> None:
        with wq.open(max_retries=1, limiter=FAST) as q:
            q.add("a")
            runs = 0
            for item in q:
                runs += 1
                try:
                    with item:
                        raise LookupError("no such user")
                except LookupError:
                    if runs == 2:
                        q.shut_down()
            self.assertEqual((2, "LookupError: no such user"), (runs, q.query("a").reason))

    def test_loop_ends_when_the_queue_is_shut_down_and_empty(self) -> None:
        self.add("a", "b")
        self.q.shut_down()
        seen = []
        for item in self.q:
            with item:
                seen.append(item.text)
        self.assertEqual((["a", "b"], 2), (seen, self.q.stat().dones))


class Many(Case):
    def test_next_that_fails_before_its_call_ends_no_run(self) -> None:
        self.add("a", "b")
        items = self.q.get_many()
        with self.assertRaises(ValueError):
            items.next(most=-1)
        self.assertEqual([True, True], [item.held for item in items])
        items.done()
        self.assertEqual(2, self.q.stat().dones)

    def test_body_that_ends_is_done_in_one_call(self) -> None:
        self.add("a", "b", "c")
        with self.q.get_many() as items:
            self.assertEqual([b"a", b"b", b"c"], [item.key for item in items])
            self.assertEqual((3, b"c", 2), (len(items), items[-1].key, len(items[:2])))
            items[1].retry(after=100)
        stat = self.q.stat()
        self.assertEqual((3, 1, 0, 0), (stat.dones, stat.delayed, stat.held, stat.failures))
        self.assertFalse(any(item.held for item in items))

    def test_most_limits_the_number(self) -> None:
        self.add("a", "b", "c")
        with self.q.get_many(2) as items:
            self.assertEqual(2, len(items))
        self.assertEqual(1, self.q.stat().ready)

    def test_raising_body_retries_the_items_that_are_held(self) -> None:
        self.add("a", "b", "c")
        with self.assertRaises(RuntimeError):
            with self.q.get_many() as items:
                items[0].done()
                raise RuntimeError("no luck")
        self.assertEqual((3, 2), (self.q.stat().dones, self.q.stat().failures))
        with self.q.get_many(timeout=LONG) as items:
            self.assertEqual(1, items[0].failures)

    def test_lost_keys_are_named_and_the_others_are_done(self) -> None:
        with wq.open(lease=1) as q, q.open_same() as other:
            q.add_many(["a", "b"])
            items = q.get_many()
            with other.get(timeout=LONG) as second:
                key = second.key
                for call in (items.touch, items.done):
                    try:
                        call()
                    except wq.KeysFailed as error:
                        self.assertIn(key, [failed for failed, _ in error.failed])
                        self.assertIsInstance(error.failed[0][1], wq.Stale)
                        break
                else:
                    self.fail("expected KeysFailed, seen none")

    def test_next_ends_the_runs_and_gets_in_one_call(self) -> None:
        self.add("a", "b", "c")
        items = self.q.get_many(2)
        items[0].retry(after=100)
        with items.next(timeout=0) as following:
            self.assertEqual([b"c"], [item.key for item in following])
            self.assertEqual(([], 2), (following.failed, self.q.stat().dones))
            self.assertFalse(any(item.held for item in items))
        for timeout, cls in ((0, BlockingIOError), (0.05, TimeoutError)):
            self.add(f"last {timeout}")
            items = self.q.get_many()
            with self.assertRaises(cls):
                items.next(timeout=timeout)
            self.assertFalse(items[0].held)
        self.assertEqual((5, 0), (self.q.stat().dones, self.q.stat().held))

    def test_next_names_the_keys_that_were_lost(self) -> None:
        with wq.open(lease=1) as q, q.open_same() as other:
            q.add("a")
            items = q.get_many()
            with other.get(timeout=LONG):
                q.add("b")
                following = items.next()
                self.assertEqual([b"b"], [item.key for item in following])
                (key, error), = following.failed
                self.assertEqual(b"a", key)
                self.assertIsInstance(error, wq.Stale)
                following.done()

    def test_next_waits_on_after_a_signal_handler(self) -> None:
        self.add("a")
        items = self.q.get_many()
        old = signal.signal(signal.SIGALRM, lambda *_: self.q.add("b"))
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with items.next(timeout=LONG) as following:
            self.assertEqual((b"b", []), (following[0].key, following.failed))

    def test_touch_restarts_all_leases(self) -> None:
        with wq.open(lease=100) as q:
            q.add_many(["a", "b"])
            with q.get_many() as items:
                time.sleep(1.1)
                before = max(q.query("a").lease, q.query("b").lease)
                items.touch()
                self.assertGreater(min(q.query("a").lease, q.query("b").lease), before)

    def test_interrupt_while_items_are_made_loses_no_key(self) -> None:
        self.add("a", "b", "c")
        made = []

        def interrupted(*arguments: Any) -> wq.Item:
            made.append(1)
            if len(made) == 2:
                raise KeyboardInterrupt
            return wq.Item(*arguments)

        with unittest.mock.patch.object(wq._items, "Item", interrupted), \
                self.assertRaises(KeyboardInterrupt):
            self.q.get_many()
        gc.collect()
        self.assertEqual(3, len(self.lost))
        self.lost.clear()
        self.assertEqual((3, 0), (self.q.stat().ready, self.q.stat().held))


class Producers(Case):
    def test_child_of_fork_closes_a_producer_that_another_thread_was_in(self) -> None:
        p, held, go_on = self.q.producer(), threading.Event(), threading.Event()

        def hold() -> None:
            with p._lock:
                held.set()
                go_on.wait(LONG)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(LONG)
        pid = os.fork()
        if not pid:
            signal.alarm(int(LONG))
            self.q.close()
            os._exit(0)
        try:
            self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        finally:
            go_on.set()
            thread.join()
        self.assertTrue(p.add("a"))

    def test_add_of_a_key_that_waits_needs_no_call(self) -> None:
        with self.q.producer() as p:
            self.assertFalse(p.waits("a"))
            self.assertEqual((True, False, False), (p.add("a"), p.add("a"), p.add(b"a")))
            self.assertTrue(p.waits("a"))
            self.assertEqual((1, 0, 3), (self.q.stat().adds, self.q.stat().coalesced, p.coalesced))
            with self.q.get():
                self.assertFalse(p.waits("a"))
                self.assertTrue(p.add("a"))
            self.assertEqual(2, self.q.stat().adds)

    def test_add_many_calls_for_the_keys_that_do_not_wait(self) -> None:
        with self.q.producer(keys=4096) as p:
            keys = [f"{n:040}" for n in range(1000)]
            self.assertEqual(1000, p.add_many(keys))
            self.assertEqual(1, p.add_many([*keys, "new"]))
            # a key whose slots others have is a call
            self.assertGreater(p.coalesced, 900)
            self.assertEqual(1001, self.q.stat().adds)
            with wq.open(max_keys=1) as q, q.producer() as small:
                with self.assertRaisesRegex(wq.KeysFailed, "1 keys failed, .*full.*'b'"):
                    small.add_many(["a", "b"])

    def test_queue_without_a_map_takes_a_call_for_each_add(self) -> None:
        with wq.open(no_map=True) as q, q.producer() as p:
            self.assertEqual((True, False), (p.add("a"), p.add("a")))
            self.assertFalse(p.waits("a"))
            self.assertEqual((1, 0), (q.stat().coalesced, p.coalesced))

    def test_errors_are_those_of_the_queue(self) -> None:
        with self.q.open_same("r") as reader, self.raises(PermissionError, errno.EACCES):
            reader.producer()
        with self.q.producer() as p:
            methods: list[Callable[[str], object]] = [p.add, p.waits, lambda key: p.add_many([key])]
            for key in ("", "x" * 1025):
                for method in methods:
                    with self.assertRaises(ValueError):
                        method(key)
            self.q.shut_down()
            with self.raises(wq.ShutDown, errno.ESHUTDOWN):
                p.add("a")
        for number in (-1, 2 ** 32):
            with self.assertRaisesRegex(ValueError, "keys is"):
                self.q.producer(number)

    def test_closed_producer_or_queue_raises_and_frees_the_map(self) -> None:
        def maps() -> int:
            return pathlib.Path("/proc/self/maps").read_text().count("wq")

        before = maps()
        p = self.q.producer()
        p.add("a")
        self.assertEqual(before + 1, maps())
        p.close()
        p.close()
        self.assertEqual((before, False, 0), (maps(), self.q.closed, p.coalesced))
        with self.assertRaisesRegex(ValueError, "producer is closed"):
            p.add("a")
        p = self.q.producer()
        self.q.producer()               # is freed when it is dropped
        gc.collect()
        self.assertEqual(before + 1, maps())
        self.q.close()
        self.assertEqual(before, maps())
        for call in (p.add, p.waits):
            with self.assertRaisesRegex(ValueError, "closed"):
                call("a")

    def test_threads_share_a_producer_and_no_add_is_lost(self) -> None:
        keys, rounds = 8, 300
        wanted = [0] * keys
        seen = [0] * keys
        with self.q.producer() as p, self.q.open_same() as worker:
            def produce() -> None:
                for number in range(rounds):
                    key = number % keys
                    wanted[key] += 1
                    p.add(str(key))

            def work() -> None:
                for item in worker:
                    with item:
                        seen[int(item.text)] = wanted[int(item.text)]

            inside: list[int] = []
            overlaps: list[int] = []
            real = wq._lib.lib.wq_producer_add

            def one_at_a_time(*arguments: object) -> int:
                overlaps.extend(inside)
                inside.append(1)
                time.sleep(0)           # another thread's turn
                result = real(*arguments)
                inside.pop()
                return int(result)

            consumer = threading.Thread(target=work)
            producers = [threading.Thread(target=produce) for _ in range(4)]
            with unittest.mock.patch.object(wq._lib.lib, "wq_producer_add", one_at_a_time):
                for thread in (consumer, *producers):
                    thread.start()
                for thread in producers:
                    thread.join(LONG)
            self.assertEqual([], overlaps)
            self.q.drain(LONG)
            consumer.join(LONG)
            self.assertEqual(4 * rounds, self.q.stat().adds + self.q.stat().coalesced + p.coalesced)
        self.assertEqual(wanted, seen)

    def test_signal_handler_can_add_during_an_add(self) -> None:
        # A handler runs after the first call of each function, with the lock held.
        with python("import pathlib, signal\nlib = wq._lib.lib\nq = wq.open()\np = q.producer()\n"
                    "def after_next(name):\n"
                    "  real = getattr(lib, name)\n"
                    "  def call(*arguments):\n"
                    "    setattr(lib, name, real)\n"
                    "    result = real(*arguments)\n"
                    "    signal.raise_signal(signal.SIGUSR1)\n"
                    "    return result\n"
                    "  setattr(lib, name, call)\n"
                    "signal.signal(signal.SIGUSR1, lambda *_: p.add('b'))\n"
                    "for name in 'wq_producer_add', 'wq_producer_init':\n"
                    "  p._unmap()           # as reopen() does\n"
                    "  after_next(name)\n"
                    "  p.add('a')\n"
                    "maps = pathlib.Path('/proc/self/maps').read_text()\n"
                    "print(q.stat().adds, q.stat().coalesced, maps.count('[wq_map]'))") as process:
            out, err = process.communicate(timeout=LONG)
        self.assertEqual(("2 2 1\n", ""), (out, err))

    def test_producer_follows_a_queue_that_is_opened_again(self) -> None:
        q = wq.open("python-again", create=True)
        with q, q.producer() as p:
            p.add("a")
            self.assertTrue(p.waits("a"))
            q.unlink()
            with self.named("python-again") as new:
                queues = wq.info().charged_queues
                self.assertTrue(q.reopen())
                # the map would keep the removed queue
                self.assertEqual(queues - 1, wq.info().charged_queues)
                self.assertFalse(p.waits("a"))
                self.assertTrue(p.add("a"))
                self.assertTrue(p.waits("a"))
                new.get().done()
                self.assertFalse(p.waits("a"))
                self.assertEqual((0, 2), (new.stat().ready, p.coalesced))

    def test_producer_can_be_made_during_reopen(self) -> None:
        made: list[wq.Producer] = []
        real = wq.Producer._unmap

        def unmap(producer: wq.Producer) -> None:
            if not made:
                made.append(q.producer())       # as another thread
            real(producer)

        with wq.open("python-again", create=True) as q, q.producer():
            self.addCleanup(q.unlink)
            with unittest.mock.patch.object(wq.Producer, "_unmap", unmap):
                self.assertFalse(q.reopen(timeout=0))

    def test_producer_that_adds_during_reopen_does_not_map_the_removed_queue(self) -> None:
        real = wq._lib.lib.wq_reopen
        with wq.open("python-again", create=True) as q, q.producer() as p:
            def reopen(*arguments: object) -> int:
                p.add("b")                      # as another thread
                p.add_many(["b", "c"])
                self.assertFalse(p.waits("b"))
                return int(real(*arguments))

            p.add("a")
            q.unlink()
            with self.named("python-again") as new:
                queues = wq.info().charged_queues
                with unittest.mock.patch.object(wq._lib.lib, "wq_reopen", reopen):
                    self.assertTrue(q.reopen())
                self.assertEqual(queues - 1, wq.info().charged_queues)
                self.assertTrue(p.add("a"))
                self.assertTrue(p.waits("a"))
                new.get().done()
                self.assertFalse(p.waits("a"))
                self.assertTrue(p.add("a"))


class Sources(Case):
    def test_source_of_a_tree_adds_the_paths_that_change(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            (top / "sub").mkdir()
            (top / "skip").mkdir()
            number = self.q.attach(wq.fs(top, exclude=["skip", "*~"]), prefix="t/")
            (top / "sub/a").write_text("x")
            (top / "sub/a~").write_text("x")
            (top / "skip/b").write_text("x")
            with self.q.get_many(timeout=LONG) as items:
                self.assertEqual(["t/sub/a"], [item.text for item in items])
            source, = self.q.sources()
            self.assertEqual((number, "fs", "t/", 0, name, 0, 0),
                             (source.id, source.kind, source.prefix, source.delay, source.watches,
                              source.state, source.error))
            self.q.detach(number)
            (top / "sub/c").write_text("x")
            self.assertEqual([], self.q.sources())
            self.is_empty()

    def test_options_reach_the_kernel(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            (top / "sub").mkdir()
            cases: list[tuple[wq.Watched, list[str]]] = [
                (wq.fs(top, children=True), ["a", "b.c"]),
                (wq.fs(top, events=wq.FsEvent.DELETE), []),
                (wq.fs(top, own=False), []),
                (wq.fs(top, only=["sub"]), ["sub/d"]),
                (wq.fs(top, only=["?.c"]), ["b.c"])]
            for watched, keys in cases:
                with self.subTest(watched), wq.open() as q:
                    q.attach(watched)
                    for path in ("a", "b.c", "sub/d"):
                        (top / path).write_text(path)
                    found = {info.key.decode() for info in q.keys()}
                    self.assertEqual(set(keys), found)
                for path in ("a", "b.c", "sub/d"):
                    (top / path).unlink()

    def test_scan_delay_and_close(self) -> None:
        watched = wq.net(wq.NetTable.LINK | wq.NetTable.ADDR)
        with self.q.open_same() as other:
            other.attach(watched, scan=True, delay=100, until_close=True)
            source, = self.q.sources()
            self.assertEqual((100 * 10 ** 9, wq.SourceFlag.SCAN | wq.SourceFlag.WITH_FILE),
                             (source.delay, source.flags))
            eventually(lambda: [b"/"] == [info.key for info in self.q.keys()])
        self.assertEqual([], self.q.sources())

    def test_channel_of_bpf_programs_has_one_source(self) -> None:
        number = self.q.attach(wq.bpf(7))
        with self.raises(OSError, errno.EBUSY, "another source"):
            self.q.attach(wq.bpf(7))
        self.assertEqual(["bpf"], [source.kind for source in self.q.sources()])
        self.q.detach(number)
        self.q.attach(wq.bpf(7))

    def test_wrong_sources_raise(self) -> None:
        with self.assertRaisesRegex(ValueError, "channel is 256"):
            wq.bpf(256)
        with self.assertRaisesRegex(ValueError, "NUL"):
            wq.fs("/", exclude=["a\0b"])
        with self.assertRaisesRegex(ValueError, "at most 31"):
            self.q.attach(wq.net(), prefix="x" * 32)
        with self.assertRaises(FileNotFoundError):
            self.q.attach(wq.fs("/nowhere"))
        with self.raises(OSError, errno.ENOENT, "no such source"):
            self.q.detach(5)
        with self.q.open_same("r") as reader, self.raises(PermissionError, errno.EACCES):
            reader.attach(wq.net())

    def test_user_without_the_right_reads_that_it_is_missing(self) -> None:
        with python("import os\nwith wq.open() as q:\n    os.setresuid(1000, 1000, 1000)\n"
                    "    q.attach(wq.net())\n    q.attach(wq.fs('/'))") as process:
            text = process.communicate(timeout=LONG)[1]
        self.assertTrue(text.endswith("PermissionError: [Errno 1] the right to watch this is "
                                      "missing, see wq(4): '/'\n"), text)


class Looks(Case):
    def test_stat_has_each_figure_of_the_kernel(self) -> None:
        with self.named("python-stat", max_keys=99, lease=7, permissions=0o640) as q:
            q.add_many(["a", "b", "a"])
            q.get().done()
            stat = q.stat()
        self.assertEqual(("python-stat", 0, 0o640, 99, 7 * 10 ** 9, wq.State(0)),
                         (stat.name, stat.uid, stat.mode, stat.max_keys, stat.lease, stat.state))
        self.assertEqual((2, 1, 1, 1, 1, 1, 1),
                         (stat.adds, stat.coalesced, stat.gets, stat.dones, stat.ready,
                          stat.keys, stat.consumers))
        self.assertEqual((1, 11, 1), (sum(stat.waits.counts), len(stat.works.counts),
                                      sum(stat.works.counts)))
        self.assertGreater(stat.waits.sum, 0)
        self.assertGreater(stat.oldest, 0)
        with self.assertRaises(AttributeError):
            stat.ready = 5  # type: ignore[misc]

    def test_keys_come_once_each_with_their_states(self) -> None:
        self.q.add_many(f"key {n}" for n in range(2000))
        self.q.add("later", after=100)
        with self.q.get() as item:
            seen = {info.key: info.state for info in self.q.keys()}
            self.assertEqual(2001, len(seen))
            self.assertEqual(2001, sum(1 for _ in self.q.keys()))
            self.assertEqual(wq.KeyState.DELAYED, seen[b"later"])
            self.assertIn(wq.KeyState.MINE, seen[item.key])

    def test_keys_since_are_sorted_by_when_they_became_dirty(self) -> None:
        with self.named("python-since") as q:
            keys = [b"%d" % n for n in range(20)]
            for key in keys:
                q.add(key)
            now = time.monotonic_ns()
            found = sorted(q.keys(since=True), key=lambda info: info.age)
            self.assertEqual(keys, [info.key for info in found])
            self.assertTrue(0 < now - found[-1].age < LONG * 10 ** 9)

    def test_key_of_a_read_ends_without_an_item(self) -> None:
        self.add("a", "b")
        self.q.touch_key(os.read(self.q.fileno(), 1024))
        self.q.add("a")
        self.assertTrue(self.q.done_key("a"))
        item = self.q.get()
        self.assertFalse(self.q.done_key(item.key))
        with self.raises(wq.Stale, errno.ESTALE):
            item.done()
        os.read(self.q.fileno(), 1024)
        for call in (self.q.done_key, self.q.touch_key):
            with self.raises(wq.UnknownKey, errno.ENOENT):
                call("x")
        with wq.open(lease=100) as q:
            q.add("a")
            with q.get(), self.raises(OSError, errno.EINVAL):
                q.done_key("a")

    def test_in_looks_for_a_key_and_takes_none(self) -> None:
        self.q.add_many(["a", "b"])
        self.q.add("later", after=100)
        self.assertIn("a", self.q)
        self.assertIn(b"later", self.q)
        self.assertNotIn("x", self.q)
        with self.assertRaises(TypeError):
            print(1 in self.q)  # type: ignore[operator]
        with self.q.get() as item:
            self.assertEqual("a", item.text)
            self.assertIn("a", self.q)
        self.assertNotIn("a", self.q)
        with self.q.get_many(10) as items:
            self.assertEqual([b"b"], [item.key for item in items])

    def test_query_of_an_unknown_key_is_a_key_error(self) -> None:
        calls: list[Callable[[str], object]] = [self.q.query, self.q.cancel, self.q.enable]
        for call in calls:
            with self.raises(wq.UnknownKey, errno.ENOENT, "does not know the key: 'x'"):
                call("x")
        with self.assertRaises(KeyError):
            self.q.query("x")
        self.assertEqual(0, self.q.num_requeues("x"))
        self.q.forget("x")

    def test_info_and_queues(self) -> None:
        info = wq.info()
        self.assertEqual((1024, 1), (info.max_key, info.version))
        before = info.charged_queues
        with self.named("python-b"), self.named("python-a") as a:
            a.add("x")
            found = {queue.name: queue for queue in wq.queues() if queue.name.startswith("python-")}
            self.assertEqual(["python-a", "python-b"], list(found))
            self.assertEqual((1, 0, 1), (found["python-a"].ready, found["python-b"].ready,
                                         found["python-a"].consumers))
            self.assertEqual(before + 2, wq.info().charged_queues)
        with self.raises(OSError, errno.ENODEV):
            wq.queues("/tmp")


class Controls(Case):
    def test_pause_holds_gets_until_resume_or_its_time(self) -> None:
        self.add("a")
        self.q.pause(wq.Pause.GETS)
        self.is_empty()
        self.assertEqual(wq.State.GETS_PAUSED, self.q.stat().state)
        self.add("b")
        self.q.resume()
        self.q.get(timeout=0).done()
        self.q.pause(duration=0.1)
        with self.raises(OSError, errno.EHOSTDOWN):
            self.q.add("c")
        self.q.get(timeout=LONG).done()

    def test_cancel_drops_the_run(self) -> None:
        self.add("a")
        self.assertEqual(wq.KeyState.READY | wq.KeyState.DIRTY, self.q.cancel("a"))
        self.is_empty()

    def test_kick_makes_the_longest_parked_ready(self) -> None:
        self.add("a", "b", "c")
        for _ in range(3):
            self.q.get().give_up("x")
        self.assertEqual(2, self.q.kick(most=2))
        self.assertEqual((2, 1), (self.q.stat().ready, self.q.stat().parked))
        self.assertEqual(1, self.q.kick())

    def test_disable_refuses_adds_until_enable(self) -> None:
        self.add("a")
        self.q.disable("a")
        with self.raises(OSError, errno.EBUSY, "enable()"):
            self.q.add("a")
        self.assertEqual(wq.KeyState.DISABLED, self.q.enable("a"))
        self.add("a")
        with self.q.open_same() as other, self.q.get():
            with self.raises(TimeoutError, errno.ETIMEDOUT):
                other.disable("a", timeout=0.1)
            self.assertIn(wq.KeyState.PROCESSING, other.disable("a", timeout=0))

    def test_wait_key_waits_for_the_run_and_returns_its_end(self) -> None:
        self.assertEqual(wq.End.NO_RUN, self.q.wait_key("a"))
        for body, end in ((lambda item: item.done(), wq.End.DONE),
                          (lambda item: item.retry(), wq.End.FAILED),
                          (lambda item: item.give_up("x"), wq.End.GAVE_UP)):
            self.q.add("a")
            item = self.q.get(timeout=LONG)
            with self.raises(OSError, errno.EDEADLK, "wait for itself"):
                self.q.wait_key("a")
            with self.q.open_same() as other:
                with self.raises(BlockingIOError, errno.EAGAIN):
                    other.wait_key("a", timeout=0)
                timer = threading.Timer(0.1, body, [item])
                timer.start()
                self.assertEqual(end, other.wait_key("a", timeout=LONG))
                timer.join()
            self.q.cancel("a") if self.q.stat().keys else None

    def test_drain_waits_for_the_holders(self) -> None:
        self.add("a")
        item = self.q.get()
        with self.q.open_same() as other:
            for timeout, cls, code in ((0, BlockingIOError, errno.EAGAIN),
                                       (0.1, TimeoutError, errno.ETIMEDOUT)):
                with self.raises(cls, code):
                    other.drain(timeout)
            self.assertEqual(wq.State.SHUTDOWN | wq.State.DRAINING, other.stat().state)
            timer = threading.Timer(0.1, item.done)
            timer.start()
            other.drain(LONG)
            timer.join()
            self.assertEqual(1, other.stat().dones)

    def test_shut_down_ends_a_drain(self) -> None:
        self.add("a")
        with self.q.get(), self.q.open_same() as other:
            timer = threading.Timer(0.1, self.q.shut_down)
            timer.start()
            with self.raises(OSError, errno.ECANCELED, "ended the drain"):
                other.drain(LONG)
            timer.join()


    def test_config_reports_what_open_and_set_took(self) -> None:
        limiter = wq.max_of(wq.exponential(2, 100), wq.max_wait(wq.bucket(0.5, 7), 5))
        with self.named("python-set", permissions=0o640, max_keys=99, lease=7, slack=0.5,
                     max_defer=3, order=wq.Order.PRIORITY, order_arg=wq.NO_AGEING, max_retries=4,
                     max_processing=6, start_rate=7.5, start_burst=8, limiter=limiter) as q:
            before = q.attrs()
            self.assertEqual(wq.Attributes(
                limiter=limiter, name="python-set", mode=0o640, uid=0, gid=0, max_keys=99,
                lease=7 * 10 ** 9, slack=5 * 10 ** 8, max_defer=3 * 10 ** 9,
                order=wq.Order.PRIORITY,
                order_arg=wq.NO_AGEING, group_limit=0, group_ageing=0, max_retries=4,
                max_processing=6, start_rate=75 * 10 ** 8, start_burst=8, group_start_rate=0,
                group_start_burst=0), before)
            q.set_attrs()
            self.assertEqual(before, q.attrs())
            changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
                ({"max_keys": 5}, {"max_keys": 5}), ({"max_retries": 0}, {"max_retries": 0}),
                ({"max_processing": 0}, {"max_processing": 0}),
                ({"start_burst": 5}, {"start_burst": 5}),
                ({"start_rate": 0.25}, {"start_rate": 25 * 10 ** 7}),
                ({"lease": 2.5}, {"lease": 25 * 10 ** 8}),
                ({"slack": 0.25}, {"slack": 25 * 10 ** 7}),
                ({"max_defer": 0.5}, {"max_defer": 5 * 10 ** 8}),
                ({"order_arg": 7}, {"order_arg": 7}),
                ({"limiter": wq.fast_slow(1, 2, 3)}, {"limiter": wq.fast_slow(1, 2, 3)})]
            for change, seen in changes:
                q.set_attrs(**change)
                before = dataclasses.replace(before, **seen)
                self.assertEqual(before, q.attrs())
            q.set_attrs(limiter=())
            self.assertEqual(wq.max_of(wq.exponential(0.005, 1000), wq.bucket(10, 100)),
                             q.attrs().limiter)

    def test_set_that_fails_changes_nothing(self) -> None:
        before = self.q.attrs()
        refused: list[dict[str, Any]] = [
            {"lease": 3}, {"max_defer": 3}, {"order_arg": 3}, {"group_limit": 3},
            {"group_ageing": 3}, {"group_start_rate": 3}]
        for fixed in refused:
            with self.raises(OSError, errno.EOPNOTSUPP):
                self.q.set_attrs(max_keys=5, **fixed)
        with self.raises(OSError, errno.ERANGE):
            self.q.set_attrs(max_keys=5, slack=1e6)
        for number in (-1, 2 ** 32):
            with self.assertRaisesRegex(ValueError, "max_retries is"):
                self.q.set_attrs(max_keys=5, max_retries=number)
        self.assertEqual(before, self.q.attrs())

    def test_restored_keys_have_their_states_and_order(self) -> None:
        def states(q: wq.Queue) -> dict[bytes, wq.KeyInfo]:
            return {info.key: dataclasses.replace(
                info, age=0, due=-(-info.due // 10 ** 9), lease=0, holder=0)
                for info in q.keys()}

        self.add("runs", "late", "parked", "failed", "ready")
        with self.q.open_same() as worker:
            item = worker.get()
            worker.get().retry(after=100)
            worker.get().give_up("broken disk", error=5)
            worker.get().retry(after=0)
            with wq.open(limiter=FAST) as to:
                for info in self.q.keys():
                    to.restore(info)
                with self.raises(FileExistsError, errno.EEXIST, "knows the key"):
                    to.restore(info)
                before, after = states(self.q), states(to)
                for key in (b"late", b"parked", b"ready"):
                    self.assertEqual(before[key], after[key])
                raw = os.fsdecode(b"any \xff byte" + bytes(range(200, 254)))
                to.restore(dataclasses.replace(before[b"parked"], key=b"raw", reason=raw))
                self.assertEqual(raw[:64], to.query("raw").reason)
                with to.get(timeout=0) as first:
                    self.assertEqual(b"runs", first.key)
            item.done()

    def test_reopen_takes_the_new_queue_of_a_removed_one(self) -> None:
        with wq.open("python-again", create=True) as q:
            self.assertFalse(q.reopen(timeout=0))
            q.add("a")
            item = q.get()
            q.unlink()
            with self.raises(TimeoutError, errno.ETIMEDOUT):
                q.reopen(timeout=0.05)
            with self.raises(OSError, errno.ENOTTY):
                q.stat()
            with self.named("python-again") as new:
                new.add("b")
                self.assertTrue(q.reopen())
                with self.raises(wq.Stale, errno.ESTALE):
                    item.done()
                with q.get(timeout=0) as item:
                    self.assertEqual(b"b", item.key)
            with q.open_same("r") as reader, self.assertRaises(PermissionError):
                reader.add("c")
        with self.assertRaisesRegex(ValueError, "no name"):
            self.q.reopen()

    def test_reopen_keeps_the_access(self) -> None:
        with wq.open("python-again", create=True) as q, wq.open("python-again", "r") as reader:
            q.unlink()
            with self.named("python-again"):
                self.assertTrue(reader.reopen())
                with self.raises(PermissionError, errno.EACCES):
                    reader.add("a")


class Opens(Case):
    def test_errors_name_the_next_step(self) -> None:
        with self.raises(FileNotFoundError, errno.ENOENT, "create=True"):
            wq.open("python-none")
        with self.named("python-open", max_retries=3):
            with self.raises(FileExistsError, errno.EEXIST, "accept=True"):
                wq.open("python-open", exclusive=True)
            with self.raises(FileExistsError, errno.EEXIST, "accept=True"):
                wq.open("python-open", max_retries=4)
            wq.open("python-open", max_retries=4, accept=True).close()
            wq.open(pathlib.Path("/dev/wqueue/python-open")).close()
        for name in ("", "a\0b", "x" * 64):
            with self.subTest(name), self.assertRaises((OSError, ValueError)):
                wq.open(name, create=True)
        with self.raises(OSError, errno.ENOTTY, "not a queue"):
            wq.open("/etc/passwd")
        with self.raises(FileNotFoundError, errno.ENOENT, "no such queue"):
            wq.unlink("python-none")
        with self.assertRaisesRegex(ValueError, "no name"):
            self.q.unlink()

    def test_access_limits_the_calls(self) -> None:
        with self.q.open_same("r") as reader, self.q.open_same("w") as writer:
            writer.add("a")
            with self.raises(PermissionError, errno.EACCES):
                reader.add("a")
            with self.raises(PermissionError, errno.EACCES):
                writer.get(timeout=0)
            reader.get(timeout=0).done()

    def test_attributes_and_limiters_reach_the_kernel(self) -> None:
        wanted = (
            (wq.exponential(2, 3), [2, 3, 3]),
            (wq.fast_slow(5, 50, 1), [5, 50, 50]),
            (wq.bucket(0.1, 1), [0, 10, 20]),
            (wq.max_of(wq.exponential(2, 100), wq.bucket(0.1, 1)), [2, 10, 20]),
            (wq.max_wait(wq.exponential(2, 100), 5), [2, 4, 5]))
        for limiter, delays in wanted:
            with wq.open(limiter=limiter, slack=0.5) as q:
                seen = []
                for number in range(len(delays)):
                    # a key of its own for the bucket, failures of one key for the others
                    key = str(number) if delays == [0, 10, 20] else "a"
                    q.add_rate_limited(key)
                    try:
                        due = q.query(key).due
                    except wq.UnknownKey:
                        due = -1
                    seen.append(max(0, -(-due // 10 ** 9)))
                    q.cancel(key) if key != "a" else q.add(key, flags=wq.AddFlag.DROP_DELAY)
                    if key == "a":
                        q.get(timeout=0).done(keep_failures=True)
                self.assertEqual(delays, seen)
                self.assertEqual(5 * 10 ** 8, q.stat().slack)
        with self.raises(OSError, errno.ERANGE):
            wq.open(lease=1e-9)
        with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/"), group_limit=1) as q:
            q.add_many(["a/1", "a/2", "b/1"])
            with q.get(timeout=0) as one, q.get(timeout=0) as two:
                self.assertEqual(["a/1", "b/1"], [one.text, two.text])
                self.assertEqual((1, 1), (q.stat().blocked, q.stat().blocked_by_group))
        with wq.open(max_processing=1) as q:
            q.add_many(["a", "b"])
            with q.get(timeout=0):
                self.assertEqual((1, 1), (q.stat().blocked, q.stat().blocked_by_ceiling))
                with self.raises(BlockingIOError, errno.EAGAIN):
                    q.get(timeout=0)
                q.set_attrs(max_processing=2)
                with q.get(timeout=0) as two:
                    self.assertEqual("b", two.text)
        with wq.open(start_rate=1 / 86400) as q:
            q.add_many(["a", "b"])
            with q.get(timeout=0):
                pass
            self.assertEqual((1, 1), (q.stat().blocked, q.stat().blocked_by_rate))
            self.assertGreater(q.stat().next_start, 86000 * 10 ** 9)
            with self.raises(BlockingIOError, errno.EAGAIN):
                q.get(timeout=0)
            q.set_attrs(start_rate=0)
            with q.get(timeout=0) as two:
                self.assertEqual("b", two.text)

    def test_start_rate_of_groups_holds_back_each_group(self) -> None:
        with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/"), group_start_rate=1 / 86400,
                     group_start_burst=1) as q:
            self.assertEqual((11574, 1), (q.attrs().group_start_rate, q.attrs().group_start_burst))
            q.add_many(["a/1", "a/2", "b/1"])
            for text in ("a/1", "b/1"):
                with q.get(timeout=0) as item:
                    self.assertEqual(text, item.text)
            self.assertEqual((1, 1), (q.stat().blocked, q.stat().blocked_by_group_rate))
            q.set_attrs(group_start_rate=0, group_start_burst=2)
            with q.get(timeout=0) as item:
                self.assertEqual("a/2", item.text)

    def test_the_limit_of_groups_can_change_while_keys_are_processing(self) -> None:
        with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/")) as q:
            q.add_many(["a/1", "a/2", "a/3"])
            with q.get(timeout=0), q.get(timeout=0):
                q.set_attrs(group_limit=1)
                self.assertEqual(1, q.stat().blocked_by_group)
                q.set_attrs(group_limit=3)
                with q.get(timeout=0) as three:
                    self.assertEqual("a/3", three.text)

    def test_rest_holds_back_the_keys_of_a_group(self) -> None:
        with wq.open(order=wq.Order.DELIMITER, order_arg=ord("/")) as q:
            q.add_many(["a/1", "a/2", "b/1"])
            self.assertEqual(wq.Result.DELAYED, q.get(timeout=0).rest(3600))
            self.assertEqual((1, 1), (q.stat().blocked, q.stat().blocked_by_rest))
            self.assertGreater(q.stat().next_group, 3500 * 10 ** 9)
            with self.assertRaises(wq.RestFor), q.get(timeout=0) as item:
                self.assertEqual("b/1", item.text)
                raise wq.RestFor(3600)
            self.assertEqual((2, 2), (q.stat().resting_groups, q.stat().delayed))
            ends = dict(q.resting_groups())
            self.assertEqual({b"a/", b"b/"}, set(ends))
            self.assertTrue(all(3500 < end / 10 ** 9 <= 3600 for end in ends.values()))
            self.assertEqual(0, q.stat().failures)
            q.rest_group("a/", 0)
            with q.get(timeout=0) as two:
                self.assertEqual("a/2", two.text)
        with wq.open() as q:
            q.add("a")
            with self.raises(OSError, errno.EOPNOTSUPP):
                q.rest_group("a", 1)
            with self.raises(OSError, errno.EOPNOTSUPP):
                list(q.resting_groups())
            self.assertRaises(ValueError, wq.RestFor, float("nan"))
            with self.assertRaises(wq.RestFor), q.get(timeout=0):
                raise wq.RestFor(3600)
            self.assertEqual((1, 0), (q.stat().delayed, q.stat().failures))

    def test_numbers_beyond_their_fields_raise(self) -> None:
        for number in (-1, 2 ** 32 + 1):
            calls: list[Callable[[], object]] = [
                lambda: wq.open(max_keys=number), lambda: wq.open(max_retries=number),
                lambda: wq.open(group_limit=number), lambda: wq.open(order_arg=number),
                lambda: wq.open(max_processing=number),
                lambda: wq.open(start_rate=1, start_burst=number),
                lambda: wq.fast_slow(1, 1, number), lambda: wq.bucket(1, number),
                lambda: self.q.get_many(number), lambda: self.q.kick(most=number)]
            for call in calls:
                with self.assertRaisesRegex(ValueError, f"is {number}, and must be 0 to"):
                    call()

    def test_closed_queue_raises_value_error(self) -> None:
        self.q.close()
        self.q.close()
        self.assertTrue(self.q.closed)
        calls: list[Callable[[], object]] = [
            self.q.get, self.q.stat, self.q.fileno, self.q.shut_down, self.q.get_many,
            lambda: self.q.add("a"), lambda: list(self.q.keys())]
        for call in calls:
            with self.assertRaisesRegex(ValueError, "closed"):
                call()
        with self.assertRaisesRegex(ValueError, "closed"):
            next(iter(self.q))

    def test_queue_that_is_not_closed_warns(self) -> None:
        before = descriptors()
        wq.open()
        self.assertRegex(self.lost.pop(), "ResourceWarning.*private queue.* was not closed")
        self.assertEqual(before, descriptors())

    def test_missing_module_names_modprobe(self) -> None:
        code = "import wq\ntry:\n    wq.open('x')\nexcept OSError as error:\n    print(error)"
        said = subprocess.run(
            ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh",
             sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(PACKAGE)), text=True,
            capture_output=True)
        self.assertEqual("[Errno 19] there is no /dev/wq: load the module, modprobe wq: 'x'\n",
                         said.stdout, said.stderr)

    def test_close_that_is_interrupted_closes_the_descriptor(self) -> None:
        self.add("a")
        before = descriptors()
        with self.q.open_same() as other, other.producer():
            item = other.get()
            with unittest.mock.patch.object(wq.Producer, "close", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    other.close()
            self.assertEqual(before, descriptors())
            self.assertEqual((1, 0), (self.q.stat().ready, self.q.stat().held))
        self.assertTrue(item.held)      # as far as it knows

    def test_unlinked_and_empty_queue_raises(self) -> None:
        with wq.open("python-gone", create=True) as q:
            q.unlink()
            with self.raises(OSError, errno.EIDRM, "unlinked"):
                q.get(timeout=LONG)

    def test_step_in_a_queue_that_was_unlinked_raises(self) -> None:
        with wq.open("python-gone", create=True) as q:
            q.add("a")
            items = iter(q)
            item = next(items)
            q.unlink()
            item.done()
            with self.raises(OSError, errno.EIDRM, "unlinked"):
                next(items)
            self.assertEqual((False, 1), (item.held, q.stat().dones))


class Asyncio(Case):
    @in_a_loop
    async def test_100_tasks_get_each_key_once(self) -> None:
        seen: list[str] = []

        async def worker() -> None:
            async for item in self.q.aiter():
                with item:
                    await asyncio.sleep(0)
                    seen.append(item.text)

        workers = [asyncio.create_task(worker()) for _ in range(100)]
        await asyncio.sleep(0)
        for n in range(1000):
            self.q.add(str(n))
            if n % 50 == 0:
                await asyncio.sleep(0.01)
        await self.q.adrain()
        await asyncio.wait_for(asyncio.gather(*workers), LONG)
        self.assertEqual(sorted(map(str, range(1000))), sorted(seen))
        self.assertEqual((1000, 0), (self.q.stat().dones, self.q.stat().held))

    @in_a_loop
    async def test_one_key_wakes_one_task(self) -> None:
        tasks = [asyncio.create_task(self.q.aget()) for _ in range(10)]
        await asyncio.sleep(0.05)
        with unittest.mock.patch.object(self.q, "get", wraps=self.q.get) as get:
            self.q.add("a")
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED,
                                               timeout=LONG)
            await asyncio.sleep(0.05)
        # The loop can turn once more before the first task has taken the key.
        self.assertLessEqual(get.call_count, 2)
        self.assertEqual((1, 9), (len(done), sum(not task.done() for task in pending)))
        done.pop().result().done()
        for n in range(9):
            self.q.add(str(n))
        for item in await asyncio.wait_for(asyncio.gather(*pending), LONG):
            item.done()

    @in_a_loop
    async def test_canceled_task_takes_no_key(self) -> None:
        for n in range(100):
            first, second = (asyncio.create_task(self.q.aget()) for _ in range(2))
            await asyncio.sleep(0)
            self.q.add("a")
            for _ in range(n % 4):          # as many turns of the loop
                await asyncio.sleep(0)
            got_it = first.done()
            first.cancel()
            item = await (first if got_it else asyncio.wait_for(second, LONG))
            item.done()
            second.cancel()
            await asyncio.wait([first, second])
            self.assertEqual((n + 1, 0), (self.q.stat().dones, self.q.stat().keys))

    @in_a_loop
    async def test_canceled_body_makes_the_key_ready_again_without_a_failure(self) -> None:
        async def worker() -> None:
            async for item in self.q.aiter():
                with item:
                    await asyncio.sleep(LONG)

        self.q.add("a")
        task = asyncio.create_task(worker())
        while not self.q.stat().held:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        self.assertEqual((1, 0), (self.q.stat().ready, self.q.stat().failures))

    @in_a_loop
    async def test_loop_that_an_exception_ends_retries_the_item_at_once(self) -> None:
        self.q.add("a")
        with self.assertRaises(RuntimeError):
            async for _ in self.q.aiter():
                raise RuntimeError
        self.assertEqual((0, 1), (self.q.stat().held, self.q.stat().failures))
        async for item in self.q.aiter():
            with item:
                self.assertEqual(1, item.failures)
            self.q.shut_down()
        self.assertEqual(0, self.q.stat().keys)

    @in_a_loop
    async def test_step_retries_an_item_that_the_body_did_not_end(self) -> None:
        self.q.add("a")
        with self.assertWarnsRegex(RuntimeWarning, "b'a', which is retried"):
            async for item in self.q.aiter():
                if item.failures:
                    item.done()
                    self.q.shut_down()
        self.assertEqual((1, 0), (self.q.stat().retries, self.q.stat().keys))

    def test_timeout_of_asyncio_ends_aget(self) -> None:
        async def all_of_it() -> None:
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self.q.aget()

        asyncio.run(all_of_it())
        asyncio.run(all_of_it())        # another event loop can wait for the queue afterwards

    def test_task_of_a_closed_event_loop_does_not_block_another_loop(self) -> None:
        async def other() -> None:
            task = asyncio.create_task(self.q.aget())
            await asyncio.sleep(0)
            self.q.add("a")
            (await asyncio.wait_for(task, LONG)).done()

        loop = asyncio.new_event_loop()
        left: Any = loop.create_task(self.q.aget())
        left._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        asyncio.run(other())

    @in_a_loop
    async def test_tasks_of_two_event_loops_need_two_consumers(self) -> None:
        async def other() -> None:
            with self.assertRaisesRegex(RuntimeError, "open_same"):
                await self.q.aget()

        task = asyncio.create_task(self.q.aget())
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: asyncio.run(other()))
        task.cancel()

    @in_a_loop
    async def test_close_and_the_end_of_an_unlinked_queue_end_the_waits(self) -> None:
        with wq.open("python-aio", create=True) as q:
            tasks = [asyncio.create_task(q.aget()) for _ in range(3)]
            await asyncio.sleep(0)
            q.unlink()
            for seen in await asyncio.wait_for(
                    asyncio.gather(*tasks, return_exceptions=True), LONG):
                self.assertIsInstance(seen, OSError)
                self.assertEqual(errno.EIDRM, getattr(seen, "errno"))
        task = asyncio.create_task(self.q.aget())
        await asyncio.sleep(0)
        self.q.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            await asyncio.wait_for(task, LONG)

    @contextlib.contextmanager
    def loop_of_another_thread(self, debug: bool) -> Iterator[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.set_debug(debug)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(LONG)
            loop.close()

    def test_close_and_reopen_by_another_thread_end_the_waits(self) -> None:
        for debug, again in ((False, False), (True, False), (True, True)):
            before = descriptors()
            with self.subTest(debug=debug, again=again), \
                    self.loop_of_another_thread(debug) as loop, \
                    wq.open("python-again", create=True) as q:
                q.add("a")
                item = q.get()          # while a key is held, unlink() does not end the wait
                task = asyncio.run_coroutine_threadsafe(q.aget(), loop)
                eventually(lambda: q._waiters and q._waiters._tasks)
                q.unlink()
                if again:
                    with self.named("python-again"):
                        self.assertTrue(q.reopen())
                    with self.raises(wq.Stale, errno.ESTALE):
                        item.done()
                else:
                    q.close()
                with self.assertRaisesRegex(ValueError, "queue was"):
                    task.result(LONG)
            self.assertEqual(before, descriptors())

    # Between the look at the queue and the begin of the wait.
    @in_a_loop
    async def test_close_as_a_wait_begins_ends_it(self) -> None:
        make = wq._aio.Waiters

        def closed(*arguments: Any) -> wq._aio.Waiters:
            waiters = make(*arguments)
            self.q.close()
            return waiters
        with unittest.mock.patch.object(wq._aio, "Waiters", closed):
            with self.assertRaisesRegex(ValueError, "closed"):
                await asyncio.wait_for(self.q.aget(), LONG)

    @in_a_loop
    async def test_end_of_what_a_source_watches_ends_the_waits(self) -> None:
        with tempfile.TemporaryDirectory() as name, self.q.open_same() as other:
            top = pathlib.Path(name, "watched")
            top.mkdir()
            other.attach(wq.fs(top), until_close=True)
            tasks = [asyncio.create_task(other.aget()) for _ in range(3)]
            await asyncio.sleep(0)
            top.rmdir()
            for seen in await asyncio.wait_for(
                    asyncio.gather(*tasks, return_exceptions=True), LONG):
                self.assertIsInstance(seen, OSError)
                self.assertEqual(errno.ENOLINK, getattr(seen, "errno"))

    @in_a_loop
    async def test_adrain_waits_for_the_holders(self) -> None:
        self.q.add("a")
        item = self.q.get()
        with self.q.open_same() as other:
            task = asyncio.create_task(other.adrain())
            await asyncio.sleep(0.05)
            self.assertFalse(task.done())
            item.done()
            await asyncio.wait_for(task, LONG)

    @in_a_loop
    async def test_reopen_ends_the_waits_and_a_new_wait_sees_the_new_queue(self) -> None:
        with wq.open("python-again", create=True) as q:
            task = asyncio.create_task(q.aget())
            await asyncio.sleep(0)
            q.unlink()
            with self.named("python-again") as new:
                self.assertTrue(await asyncio.to_thread(q.reopen))
                with self.assertRaises((OSError, ValueError)):
                    await asyncio.wait_for(task, LONG)
                task = asyncio.create_task(q.aget())
                await asyncio.sleep(0)
                new.add("a")
                (await asyncio.wait_for(task, LONG)).done()

    @in_a_loop
    async def test_await_key_returns_the_end_of_the_run(self) -> None:
        self.q.add("a")
        item = self.q.get()
        with self.q.open_same() as other:
            task = asyncio.create_task(other.await_key("a"))
            await asyncio.sleep(0.05)
            self.assertFalse(task.done())
            item.give_up("x")
            self.assertEqual(wq.End.GAVE_UP, await asyncio.wait_for(task, LONG))
            self.assertEqual(wq.End.NO_RUN, await other.await_key("b"))

    def test_10000_canceled_gets_leave_no_descriptor(self) -> None:
        async def all_of_it() -> int:
            before = descriptors()
            for _ in range(100):
                tasks = [asyncio.create_task(self.q.aget()) for _ in range(100)]
                await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            # the queue's own epoll
            self.assertEqual(before + 1, descriptors())
            self.q.add("a")
            (await self.q.aget()).done()
            self.q.close()
            return before

        outside = descriptors()
        inside = asyncio.run(all_of_it())
        self.assertEqual(outside - 1, descriptors())
        self.assertGreater(inside, 0)

    def test_gets_that_time_out_leave_no_descriptor(self) -> None:
        before = descriptors()
        for _ in range(1000):
            with contextlib.suppress(OSError):
                self.q.get(timeout=0)
            with contextlib.suppress(OSError):
                self.q.get(timeout=1e-6)
            with contextlib.suppress(OSError):
                self.q.wait_key("x", timeout=0)
        self.assertEqual(before, descriptors())


class Workers(Case):
    """wq.work() in a process of its own, with a queue of this name."""

    NAME = "python-work"

    def setUp(self) -> None:
        super().setUp()
        self.q.close()
        self.q = self.named(self.NAME, limiter=FAST, max_retries=1)
        self.dir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def workers(self, body: str, processes: int = 1) -> contextlib.AbstractContextManager[
            subprocess.Popen[str]]:
        """A process that works with fn(item) of this body. Prints what the call returns."""
        return python("import os, pathlib, signal, time\n"
                      f"def fn(item):\n  {body}\n"
                      f"print(wq.work(fn, {self.NAME!r}, processes={processes}))")

    @property
    def hold(self) -> str:
        """The body of a function that returns when go() was called."""
        return f"while not os.path.exists({str(self.dir / 'go')!r}): time.sleep(0.001)"

    def go(self) -> None:
        (self.dir / "go").touch()

    def holders(self) -> set[int]:
        return {info.holder for info in self.q.keys() if wq.KeyState.PROCESSING in info.state}

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=LONG)
        return process.returncode, out, err

    def test_each_process_is_a_consumer_until_the_shut_down(self) -> None:
        with self.workers(self.hold, processes=3) as process:
            self.add(*(str(n) for n in range(5)))
            eventually(lambda: len(self.holders()) == 3)
            self.assertNotIn(process.pid, self.holders())
            self.assertEqual((3, 4), (self.q.stat().processing, self.q.stat().consumers))
            self.q.shut_down()
            self.go()
            self.assertEqual((0, "None\n", ""), self.ended(process))
        self.assertEqual(5, self.q.stat().dones)

    def test_worker_begins_a_periodic_key(self) -> None:
        key = "k@every=1d"
        with self.workers("print(item.begin_periodic(), flush=True)") as process:
            self.add(key)
            eventually(lambda: self.q.query(key).state == wq.KeyState.DELAYED)
            self.q.shut_down()
            self.assertEqual((0, "True\nNone\n", ""), self.ended(process))

    def test_default_is_a_process_for_each_cpu(self) -> None:
        cpus = len(os.sched_getaffinity(0))
        with python(f"print(wq.work(print, {self.NAME!r}))") as process:
            eventually(lambda: self.q.stat().consumers == 1 + cpus)
            self.q.shut_down()
            self.assertEqual((0, "None\n", ""), self.ended(process))

    def test_raising_function_is_logged_and_retried_by_the_rules_of_the_queue(self) -> None:
        with self.workers("raise LookupError('no such user')") as process:
            self.add("bob")
            eventually(lambda: self.q.stat().parked)
            self.q.shut_down()
            status, out, err = self.ended(process)
        self.assertEqual((0, "None\n"), (status, out))
        self.assertEqual(2, err.count("the run of 'bob' failed\nTraceback"), err)
        self.assertEqual(2, err.count("\nLookupError: no such user\n"), err)
        info = self.q.query("bob")
        self.assertEqual(("LookupError: no such user", 2), (info.reason, info.failures))

    def test_idle_worker_holds_no_key_whose_run_it_could_not_end(self) -> None:
        # the first run fails, and the second shuts down
        with python("import errno, wq._work\n"
                    "wq._calls.done_failed = lambda *_: -errno.ENOMEM\n"
                    "wq._item._PAUSES = ()\nruns = []\n"
                    "def fn(item):\n  runs.append(item.key)\n"
                    "  if len(runs) < 2: raise LookupError\n"
                    f"  with wq.open({self.NAME!r}) as q: q.shut_down()\n"
                    f"print(wq.work(fn, {self.NAME!r}, processes=1))") as process:
            self.add("a")
            status, out, err = self.ended(process)
        self.assertEqual((0, "None\n"), (status, out))
        self.assertIn("not enough memory", err)
        self.assertEqual((2, 0), (self.q.stat().gets, self.q.stat().keys))

    def test_function_can_end_the_run_itself(self) -> None:
        with self.workers("item.give_up('never')") as process:
            self.add("bob")
            eventually(lambda: self.q.stat().parked)
            self.q.shut_down()
            self.assertEqual((0, "None\n", ""), self.ended(process))
        self.assertEqual("never", self.q.query("bob").reason)

    def test_lost_lease_ends_no_worker(self) -> None:
        with self.named("python-lease", lease=0.2) as q:
            with python("import time\ndef fn(item):\n while not item.given_back:\n"
                        "  item.touch()\n  time.sleep(1)\n"
                        "print(wq.work(fn, 'python-lease', processes=2))") as process:
                q.add("a")
                eventually(lambda: q.stat().dones == 1)
                q.shut_down()
                status, out, err = self.ended(process)
            self.assertEqual((0, "None\n"), (status, out))
            self.assertIn("wq._lib.Stale:", err)
            self.assertNotIn("starts in", err)

    def test_dead_worker_is_replaced_after_a_pause_that_grows(self) -> None:
        with self.workers("os.kill(os.getpid(), signal.SIGKILL) if item.text == 'kill' else None") \
                as process:
            for number in range(3):
                self.add("kill")
                eventually(lambda: self.q.stat().given_back == number + 1)
                self.q.cancel("kill")
            self.add("last")
            eventually(lambda: self.q.stat().dones == 1)
            self.q.shut_down()
            status, out, err = self.ended(process)
        self.assertEqual((0, "None\n"), (status, out))
        pauses = [line.split("ended by signal 9, and the next starts in ")[1]
                  for line in err.splitlines()]
        self.assertEqual(["0.1 s", "0.2 s", "0.4 s"], pauses[:3])

    def test_workers_take_the_new_queue_of_a_removed_one(self) -> None:
        with self.workers("pass") as process:
            self.add("a")
            eventually(lambda: self.q.stat().dones == 1)
            self.q.unlink()
            with wq.open(self.NAME, create=True) as new:
                new.add("a")
                eventually(lambda: new.stat().dones == 1)
                new.shut_down()
                status, out, err = self.ended(process)
        self.assertEqual((0, "None\n"), (status, out))
        self.assertIn("the queue was unlinked", err)
        self.assertNotIn("Traceback", err)

    def reports(self, process: subprocess.Popen[str]) -> Callable[[str], bool]:
        """Whether the workers have reported a text, without a wait."""
        assert process.stderr is not None
        fd, seen = process.stderr.fileno(), bytearray()
        os.set_blocking(fd, False)

        def reported(text: str) -> bool:
            with contextlib.suppress(BlockingIOError):
                seen.extend(os.read(fd, 4096))
            return text.encode() in seen

        return reported

    def test_workers_do_not_take_the_new_queue_of_another_owner(self) -> None:
        with self.workers("pass") as process:
            reported = self.reports(process)
            self.add("a")
            eventually(lambda: self.q.stat().dones == 1)
            self.q.unlink()
            os.seteuid(65534)
            try:
                new = wq.open(self.NAME, create=True)
            finally:
                os.seteuid(0)
            with new:
                new.add("a")
                refused = "the new queue belongs to uid 65534, not to uid 0; remove it"
                try:
                    eventually(lambda: reported(refused) or new.stat().gets)
                finally:
                    process.terminate()
                    process.wait()
                self.assertEqual((0, 1), (new.stat().gets, new.stat().ready))

    def test_workers_wait_for_the_owner_of_a_restored_queue(self) -> None:
        path = f"/dev/wqueue/{self.NAME}"
        os.chown(path, 65534, 65534)
        with self.workers("pass") as process:
            reported = self.reports(process)
            self.add("a")
            eventually(lambda: self.q.stat().dones == 1)
            self.q.unlink()
            # As wqctl reload, which gives a queue to its owner when it begins to fill it.
            before = os.umask(0)
            try:
                new = wq.open(self.NAME, create=True, permissions=0o601)
            finally:
                os.umask(before)
            with new:
                new.add("a")
                try:
                    eventually(lambda: reported("wqctl has not restored the queue yet") or
                               reported("remove it"))
                    self.assertFalse(reported("remove it"))
                    os.chown(path, 65534, 65534)
                    os.chmod(path, 0o600)
                    eventually(lambda: new.stat().dones == 1)
                finally:
                    process.terminate()
                    process.wait()

    def test_work_on_a_queue_that_is_being_restored_fails(self) -> None:
        os.chmod(f"/dev/wqueue/{self.NAME}", 0o601)
        with self.raises(FileNotFoundError, errno.ENOENT, "not restored"):
            wq.work(print, self.NAME, processes=1)

    def test_worker_whose_parent_died_before_it_began_ends(self) -> None:
        with python("import os, signal, time, wq._work\n"
                    "parent, body = os.getpid(), wq._work._child\n"
                    "def child(*args):\n"
                    "  print(os.getpid(), flush=True)\n"
                    "  os.kill(parent, signal.SIGKILL)\n"
                    "  while os.getppid() == parent: time.sleep(0.001)\n"
                    "  body(*args)\n"
                    "wq._work._child = child\n"
                    f"wq.work(print, {self.NAME!r}, processes=1)") as process:
            assert process.stdout is not None
            worker = int(process.stdout.readline())
            process.wait()

            def has_ended() -> bool:
                try:
                    # The first process does not reap it everywhere.
                    return "\nState:\tZ" in pathlib.Path(f"/proc/{worker}/status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    return True

            try:
                eventually(has_ended)
            except AssertionError:
                os.kill(worker, signal.SIGKILL)
                raise

    def test_sigterm_lets_each_worker_finish_its_key(self) -> None:
        with self.workers(self.hold, processes=2) as process:
            self.add("a", "b", "c")
            eventually(lambda: self.q.stat().processing == 2)
            # As systemd and timeout do it, also to the workers.
            for pid in (process.pid, *self.holders(), process.pid):
                os.kill(pid, signal.SIGTERM)
            self.go()
            self.assertEqual((0, f"{signal.SIGTERM}\n", ""), self.ended(process))
        stat = self.q.stat()
        self.assertEqual((2, 1, 0), (stat.dones, stat.ready, stat.given_back))

    def test_sigint_gives_the_keys_back_at_once_without_a_traceback(self) -> None:
        for to_the_group in False, True:
            with self.subTest(to_the_group), self.workers(self.hold, processes=2) as process:
                self.q.add_many(["a", "b"])
                eventually(lambda: self.q.stat().processing == 2)
                pids = self.holders() if to_the_group else set()
                # A terminal sends them at once. A worker that ended first would be one that died.
                for pid in (process.pid, *pids):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGINT)
                self.assertEqual((0, f"{signal.SIGINT}\n", ""), self.ended(process))
            stat = self.q.stat()
            self.assertEqual((2, 0, 0), (stat.ready, stat.failed, stat.given_back))

    def test_sigint_between_get_and_function_gives_the_key_back(self) -> None:
        with python("import os, pathlib, signal\nget = wq.Queue.get\n"
                    "def interrupted(*args):\n  item = get(*args)\n"
                    "  os.kill(os.getpid(), signal.SIGINT)\n"
                    f"  pathlib.Path({str(self.dir / 'got')!r}).touch()\n  return item\n"
                    "wq.Queue.get = interrupted\n"
                    f"print(wq.work(print, {self.NAME!r}, processes=1))") as process:
            self.add("a")
            eventually((self.dir / "got").exists)
            process.send_signal(signal.SIGINT)
            self.assertEqual(0, self.ended(process)[0])
        stat = self.q.stat()
        self.assertEqual((1, 0, 0), (stat.ready, stat.failed, stat.given_back))

    def test_signals_end_idle_workers(self) -> None:
        for number in signal.SIGTERM, signal.SIGINT:
            with self.subTest(number), self.workers("pass", processes=2) as process:
                eventually(lambda: self.q.stat().consumers == 3)
                process.send_signal(number)
                self.assertEqual((0, f"{number}\n", ""), self.ended(process))

    def test_handlers_of_signals_are_set_again(self) -> None:
        self.q.shut_down()
        with python("import signal\nsignal.signal(signal.SIGTERM, print)\n"
                    f"wq.work(print, {self.NAME!r}, processes=2)\n"
                    "for name in 'SIGTERM', 'SIGINT', 'SIGCHLD':\n"
                    " print(signal.getsignal(getattr(signal, name)))\n"
                    "print(signal.set_wakeup_fd(-1), signal.pthread_sigmask(0, []))") as process:
            status, out, err = self.ended(process)
        self.assertEqual((0, ""), (status, err))
        self.assertRegex(out, "^<built-in function print>\n<built-in .*default_int_handler>\n"
                              "((Handlers.)?SIG_DFL|0)\n-1 set[(][)]\n$")

    def test_call_that_cannot_make_a_pipe_leaves_the_handlers(self) -> None:
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGCHLD
        before = [(number, signal.getsignal(number)) for number in numbers]
        for number, handler in before:
            self.addCleanup(signal.signal, number, handler)
        with unittest.mock.patch.object(os, "pipe2", side_effect=OSError(errno.EMFILE, "full")):
            with self.raises(OSError, errno.EMFILE):
                wq.work(print, self.NAME)
        self.assertEqual(before, [(number, signal.getsignal(number)) for number in numbers])
        self.assertEqual(-1, signal.set_wakeup_fd(-1))

    def test_call_by_another_thread_raises_and_leaves_no_descriptor(self) -> None:
        def call() -> None:
            try:
                wq.work(print, self.NAME)
            except ValueError as error:
                seen.append(error)

        seen: list[ValueError] = []
        before = descriptors()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join(LONG)
        self.assertRegex(str(seen), "main thread")
        self.assertEqual(before, descriptors())

    def test_wait_for_signals_ends_once_for_each_and_misses_none(self) -> None:
        old = signal.signal(signal.SIGALRM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        with wq._work._Signals() as signals:
            poller = select.poll()
            for number in signal.SIGALRM, signal.SIGTERM:
                signal.set_wakeup_fd(signals._pipe[1])
                os.kill(os.getpid(), number)    # before the wait
                signal.set_wakeup_fd(-1)        # as asyncio in the function
                start = time.monotonic()
                signals.poll(poller, LONG)
                self.assertLess(time.monotonic() - start, LONG)
                self.assertEqual([], poller.poll(0))
            self.assertEqual([signal.SIGTERM], signals.seen)

    def test_workers_end_after_a_kill_of_their_parent(self) -> None:
        with self.workers(self.hold, processes=2) as process:
            self.add("a")
            eventually(lambda: self.q.stat().processing == 1 and self.q.stat().consumers == 3)
            process.kill()
            process.wait(LONG)
            eventually(lambda: self.q.stat().consumers == 2)
            self.go()
            eventually(lambda: self.q.stat().consumers == 1)
        self.assertEqual(1, self.q.stat().dones)

    def test_workers_open_a_private_queue_again(self) -> None:
        # c can start before the run of a or b that added it has ended.
        with python("import time\nq = wq.open()\nq.add_many(['a', 'b'])\n"
                    "def fn(item):\n"
                    " if item.text != 'c': return q.add('c')\n"
                    " while q.stat().dones < 2: time.sleep(0.01)\n"
                    " q.shut_down()\n"
                    "print(wq.work(fn, q, processes=2), q.stat().dones >= 3, q.stat().held)") \
                as process:
            self.assertEqual((0, "None True 0\n", ""), self.ended(process))

    def test_wrong_arguments_raise_in_the_caller(self) -> None:
        with self.raises(FileNotFoundError, errno.ENOENT, "no such queue"):
            wq.work(print, "python-none")
        for number in 0, -1:
            with self.assertRaisesRegex(ValueError, "processes is"):
                wq.work(print, self.NAME, processes=number)


class Examples(Case):
    def test_sample_delivers_and_parks(self) -> None:
        sample = str(TOP / "tools/samples/mail.py")
        env = dict(os.environ, PYTHONPATH=str(PACKAGE))
        self.addCleanup(wq.unlink, "mail")
        self.assertLessEqual(len(pathlib.Path(sample).read_text().splitlines()), 30)
        names = ["alice", "bob", "nobody", "alice"]
        added = subprocess.run([sys.executable, sample, *names], env=env, check=True, text=True,
                               capture_output=True)
        self.assertEqual("3 added\n", added.stdout)
        with started(sample) as worker:
            assert worker.stdout
            lines = sorted(worker.stdout.readline() for _ in range(6))
            with wq.open("mail") as q:
                eventually(lambda: q.stat().parked)
                self.assertEqual("LookupError: no such user", q.query("nobody").reason)
            eventually(lambda: waits(worker.pid))
            worker.send_signal(signal.SIGINT)
            self.assertEqual("", worker.communicate(timeout=LONG)[1])
        self.assertEqual(["deliver to alice\n", "deliver to bob\n"] +
                         [f"nobody: no such user, failure {n}\n" for n in range(1, 5)], lines)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               _: object) -> unittest.TestSuite:
    """The docstrings' examples, too."""
    for module in (wq, wq._queue, wq._item, wq._items, wq._producer, wq._work):
        tests.addTest(doctest.DocTestSuite(module))
    return tests


if __name__ == "__main__":
    with kinds_of_sources():
        tap.main()
