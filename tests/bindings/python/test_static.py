# SPDX-License-Identifier: GPL-2.0-only
"""The Python package without a queue: its layouts, types and builds.

    LD_LIBRARY_PATH=build/tools python3 tests/bindings/python/test_static.py [WORD...]

Prints TAP. WORD: a part of the names of tests.
"""
import contextlib
import ctypes
import datetime
import email.message
import http.server
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.error
import zipfile
import zoneinfo
from typing import Any

TOP = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = TOP / "tools/bindings/python"
GENERATOR = TOP / "tools/bindings/abi"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE))

import tap  # noqa: E402
import wq  # noqa: E402
from wq import _abi  # noqa: E402


def script(path: pathlib.Path) -> Any:
    """A script as a module."""
    loader = importlib.machinery.SourceFileLoader(path.stem, str(path))
    spec = importlib.util.spec_from_loader(path.stem, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        self.dir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def output(self, *command: str | pathlib.Path, path: pathlib.Path = PACKAGE) -> str:
        """The output of a command that succeeds."""
        ran = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             cwd=TOP, env=dict(os.environ, PYTHONPATH=str(path)))
        self.assertEqual(0, ran.returncode, ran.stdout)
        return ran.stdout

    def fails(self, code: str, text: str, path: pathlib.Path = PACKAGE) -> None:
        """Python code that ends with this text."""
        ran = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                             env=dict(os.environ, PYTHONPATH=str(path)))
        self.assertNotEqual(0, ran.returncode)
        self.assertIn(text, ran.stderr)


class Layouts(Case):
    def test_abi_module_is_made_from_the_headers(self) -> None:
        self.assertEqual("", self.output(sys.executable, GENERATOR))

    def test_compiler_has_these_layouts_for_64_and_32_bit(self) -> None:
        # The last is that of arm and most other machines of 32 bit: 64 bits are aligned to 8.
        for model, flags in (("lp64", ["-m64"]), ("i386", ["-m32"]),
                             ("ilp32", ["-m32", "-malign-double"])):
            with self.subTest(model):
                source = self.dir / "asserts.c"
                source.write_text(self.output(sys.executable, GENERATOR, "--asserts", model))
                self.assertGreater(source.read_text().count("offsetof"), 100)
                self.assertEqual("", self.output(
                    "gcc", *flags, "-fsyntax-only", "-Iinclude/uapi", "-Itools/lib", source))

    def test_ctypes_has_these_offsets(self) -> None:
        made = script(GENERATOR)
        headers = made.Headers()
        here = (ctypes.sizeof(ctypes.c_void_p), ctypes.alignment(ctypes.c_uint64))
        model = {sizes: name for name, sizes in made.MODELS.items()}[here]
        for name in made.PY_STRUCTS:
            struct = getattr(_abi, name)
            offsets, size, _ = headers.layout(name, model)
            self.assertEqual(offsets, [getattr(struct, name).offset
                                       for name, _ in struct._fields_])
            self.assertEqual(size, ctypes.sizeof(struct))

    def test_import_refuses_a_struct_of_another_size(self) -> None:
        shutil.copytree(PACKAGE / "wq", self.dir / "wq")
        abi = self.dir / "wq/_abi.py"
        text = abi.read_text()
        abi.write_text(re.sub(r"\(wq_item, \(\d+, \d+, \d+\)\)", "(wq_item, (1, 1, 1))", text))
        self.assertNotEqual(text, abi.read_text())
        self.fails("import wq", "ImportError: wq_item has ", self.dir)

    def test_each_function_of_the_library_is_used_or_a_part_of_another(self) -> None:
        exported = re.findall(r"^\t(wq_\w+);", (TOP / "tools/lib/libwq.map").read_text(), re.M)
        self.assertEqual(sorted(exported), sorted(_abi.FUNCTIONS))
        verbs = {"ADD": ("wq_add", "wq_add_after", "wq_add_priority", "wq_add_many"),
                 "GET": ("wq_get", "wq_get_many"), "TOUCH": ("wq_touch", "wq_touch_many"),
                 "DONE": ("wq_done", "wq_done_with", "wq_done_failed", "wq_done_many",
                          # its second part can wait for ever, while the first has ended the run
                          "wq_done_get", "wq_done_get_many")}
        calls = (PACKAGE / "wq/_calls.py").read_text()
        for verb in verbs:
            self.assertIn(f"_abi.WQ_IOC_{verb}", calls)
        parts = {"wq_open": "wq_open_attr_sized", "wq_query": "wq_query_info_sized",
                 "wq_items_put_done": "wq_items_put", "wq_items_put_after": "wq_items_put",
                 "wq_items_put_priority": "wq_items_put", "wq_wait_key": "wq_wait_fd",
                 "wq_drain": "wq_drain_begin"}
        source = "".join(path.read_text() for path in (PACKAGE / "wq").glob("*.py")
                         if path.name != "_abi.py")
        used = set(re.findall(r"\blib\.(wq_\w+)|\"(wq_\w+)\"", source))
        names = {first or second for first, second in used}
        by_ioctl = {name for names_of in verbs.values() for name in names_of}
        self.assertEqual(set(exported) - set(parts) - by_ioctl, names)
        self.assertLessEqual(set(parts.values()), names)

    def test_each_flag_and_figure_of_the_headers_is_there(self) -> None:
        source = (TOP / "include/uapi/linux/wq.h").read_text()
        sources = (TOP / "include/uapi/linux/wq_source.h").read_text()
        events = re.findall(r"^#define WQ_FS_(\w+)\t+0x", sources, re.M)
        self.assertEqual(events, list(wq.FsEvent.__members__))
        tables = re.findall(r"^#define WQ_NET_(\w+)\t+\(1U", sources, re.M)
        self.assertEqual(tables, list(wq.NetTable.__members__))
        for prefix, cls in (("WQ_ADD_", wq.AddFlag), ("WQ_KEY_", wq.KeyState),
                            ("WQ_STATE_", wq.State), ("WQ_END_", wq.End), ("WQ_ORDER_", wq.Order),
                            ("WQ_LIMITER_", wq.LimiterKind)):
            names = re.findall(rf"^#define {prefix}(\w+)\t", source, re.M)
            self.assertEqual(names, list(cls.__members__))
        body = re.search(r"^struct wq_stat \{(.*?)^\};", source, re.M | re.S)
        assert body
        fields = re.findall(r"(\w+)(?:\[\w+\])?;", body[1])[2:]
        fields.remove("ready_by_priority")
        self.assertEqual(fields, list(wq.Stat.__dataclass_fields__))


class Errors(Case):
    def test_import_without_the_library_names_its_package(self) -> None:
        self.fails("import ctypes\ndef no(*_, **__): raise OSError('no libwq.so.0')\n"
                   "ctypes.CDLL = no\nimport wq", "ImportError: no libwq.so.0; install libwq")

    def test_import_with_an_older_library_names_the_version(self) -> None:
        self.fails("import ctypes\nctypes.CDLL = lambda *_, **__: object()\nimport wq",
                   f"has no wq_until(): install libwq {wq.__version__} or later")


class Periodic(Case):
    """Due times of libwq."""

    VECTORS = TOP / "tests/bindings/periodic.txt"

    def in_zone(self, zone: str) -> None:
        os.environ["TZ"] = zone
        time.tzset()

    def setUp(self) -> None:
        super().setUp()
        zone = os.environ.pop("TZ", None)
        self.addCleanup(time.tzset)
        self.addCleanup(lambda: os.environ.update({"TZ": zone} if zone else {}))
        self.addCleanup(lambda: os.environ.pop("TZ", None))

    def test_keys_are_due_when_the_vectors_say(self) -> None:
        lines = [line.split() for line in self.VECTORS.read_text().splitlines() if line[0] != "#"]
        self.assertGreater(len(lines), 50)
        for zone, key, at, due in lines:
            with self.subTest(zone=zone, key=key, now=at):
                self.in_zone(zone)
                now = datetime.datetime.fromisoformat(at).timestamp()
                if due == "-":
                    self.assertEqual(key, wq.periodic_name(key))
                    with self.assertRaisesRegex(OSError, "no schedule"):
                        wq.periodic_due(key, now)
                    continue
                self.assertEqual(key.rpartition("@")[0], wq.periodic_name(key))
                seen = datetime.datetime.fromtimestamp(round(wq.periodic_due(key, now), 3),
                                                       datetime.timezone.utc)
                self.assertEqual(datetime.datetime.fromisoformat(due), seen)

    def test_zones_agree_with_zoneinfo(self) -> None:
        # A naive time of a gap has the offset of before, and one of a fold is the first, as in C.
        for zone in "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia":
            self.in_zone(zone)
            info = zoneinfo.ZoneInfo(zone)
            for hour in 0, 1, 2, 3, 23:
                due = 1.3e9
                for _ in range(800):
                    day = datetime.datetime.fromtimestamp(due, info).date()
                    days = [day + datetime.timedelta(n) for n in (-1, 0, 1, 2)]
                    next = min(start for d in days if (start := datetime.datetime(
                        d.year, d.month, d.day, hour, 30, tzinfo=info).timestamp()) > due)
                    due = wq.periodic_due(f"k@at={hour:02}:30", due)
                    self.assertEqual(next, due)

    def test_jitter_is_within_its_bounds_and_spread(self) -> None:
        for number in range(50):
            key = f"key{number}@every=1m,jitter=10s"
            due, seen = 1e9, set()
            for step in range(1, 101):
                before, due = due, wq.periodic_due(key, due)
                self.assertLess(before, due)
                late = round(due - (1e9 + 60 * step - 1e9 % 60), 3)
                self.assertTrue(0 <= late <= 10, late)
                self.assertEqual(due, wq.periodic_due(key, due - 1e-3))
                seen.add(int(late))
            self.assertGreater(len(seen), 8)

    def test_due_refuses_times_that_are_not_possible(self) -> None:
        for now in -1e-3, -1e30, 9.2e9, 2.0 ** 64 / 1e9, 1e30:
            with self.subTest(now=now), self.assertRaises(OSError):
                wq.periodic_due("backup@every=5m", now)

    def test_name_of_a_key_with_any_bytes(self) -> None:
        self.assertEqual("a\0\udcff", wq.periodic_name(b"a\0\xff@every=1m"))
        self.assertEqual("a@every=1\0m", wq.periodic_name("a@every=1\0m"))
        self.assertEqual("k" * 1024, wq.periodic_name("k" * 1024))
        self.assertEqual("k" * 1015, wq.periodic_name("k" * 1015 + "@every=1m"))


class Builds(Case):
    def test_import_of_the_package_imports_no_asyncio(self) -> None:
        code = "import sys, wq; print(*({'asyncio', 'wq._aio'} & set(sys.modules)))"
        self.assertEqual("\n", self.output(sys.executable, "-c", code))

    def test_types_are_clean_with_mypy_strict(self) -> None:
        tests = TOP / "tests/bindings/python"
        ran = subprocess.run(
            ["mypy", "--strict", "--scripts-are-modules", "--no-error-summary", "--cache-dir",
             self.dir, PACKAGE / "wq", GENERATOR, *(TOP / "tools/samples").glob("*.py"),
             tests / "test_queue.py", tests / "test_static.py", tests / "tap.py"],
            text=True, stdout=subprocess.PIPE, env=dict(os.environ, MYPYPATH=str(PACKAGE)))
        self.assertEqual(("", 0), (ran.stdout, ran.returncode))

    def test_types_of_wrong_calls_are_errors_of_mypy(self) -> None:
        wrong = ("q.add(7)", "q.add('a', after='1')", "q.get().done() + ''", "wq.open(access='x')",
                 "q.stat().ready = 1", "q.stat().unknown", "async def f():\n    q.aget().done()",
                 "q.set_attrs(limiter=1)", "q.attach('fs')", "q.producer().add(7)")
        for code in wrong:
            source = self.dir / "wrong.py"
            source.write_text(f"import wq\nq = wq.open()\n{code}\n")
            ran = subprocess.run(["mypy", "--cache-dir", self.dir / "cache", "--check-untyped-defs",
                                  source], text=True, stdout=subprocess.PIPE,
                                 env=dict(os.environ, MYPYPATH=str(PACKAGE)))
            self.assertIn("Found 1 error", ran.stdout, code)

    def test_wheel_and_sources_install_into_an_empty_environment(self) -> None:
        self.output(TOP / "tools/pkg/wheel", self.dir)
        wheel, = self.dir.glob("*.whl")
        sources, = self.dir.glob("*.tar.gz")
        text = (TOP / "module/dev/main.c").read_text()
        version = re.search(r'^MODULE_VERSION\("(.*)"\);', text, re.M)
        assert version
        self.assertEqual(f"libwq-{version[1]}-py3-none-any.whl", wheel.name)
        self.assertEqual(f"libwq-{version[1]}.tar.gz", sources.name)
        parts = sorted(f"wq/{path.name}" for path in (PACKAGE / "wq").glob("*.*"))
        with zipfile.ZipFile(wheel) as archive:
            self.assertEqual(parts, sorted(name for name in archive.namelist()
                                           if name.startswith("wq/")))
        with tarfile.open(sources) as tar:
            names = {name.partition("/")[2] for name in tar.getnames()}
        self.assertLessEqual({*parts, "pyproject.toml", "LICENSE"}, names)
        for package in wheel, sources:
            with self.subTest(package.name):
                self.installed(package, version[1])

    def installed(self, package: pathlib.Path, version: str) -> None:
        """Install a package into an environment without others, and use it there."""
        there = self.dir / package.suffix
        self.output(sys.executable, "-m", "venv", there)
        # The environment has no setuptools of its own that can build, so pip gets Debian's.
        env = dict(os.environ, PYTHONPATH="/usr/lib/python3/dist-packages", PIP_NO_INDEX="1",
                   PIP_DISABLE_PIP_VERSION_CHECK="1")
        ran = subprocess.run([there / "bin/python", "-m", "pip", "install", "--no-build-isolation",
                              package], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env=env, cwd=self.dir)
        self.assertEqual(0, ran.returncode, ran.stdout)
        code = ("import sys, wq\n"
                "print(wq.__version__, wq.__file__.startswith(sys.prefix), len(wq.exponential(1, 2)))"
                "\nassert not any('dist-packages' in path for path in sys.path), sys.path\n"
                "wq.open('there/is/no/queue')\n")
        ran = subprocess.run([there / "bin/python", "-c", code], text=True, capture_output=True,
                             cwd=self.dir, env={name: value for name, value in os.environ.items()
                                                if name == "LD_LIBRARY_PATH"})
        self.assertEqual(f"{version} True 1\n", ran.stdout, ran.stderr)
        self.assertIn("FileNotFoundError: [Errno 2] there is no such queue", ran.stderr)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by the path: /STATUS/RETRY-AFTER, /to/URL, or one of those below."""

    def do_GET(self) -> None:
        status, _, rest = self.path[1:].partition("/")
        length = 1
        if status == "to":
            self.send_response(302)
            self.send_header("Location", rest)
        elif status == "slow":
            self.send_response(200)
            length = 1000
        elif status == "short":
            self.send_response(200)
            length = 2
        elif status == "none":
            return
        else:
            self.send_response(int(status), "\x1b[2J")
            if rest:
                self.send_header("Retry-After", rest.replace("_", " "))
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(length if status == "slow" else 1):
                self.wfile.write(b"x")
                time.sleep(0.01)

    def log_message(self, *_: Any) -> None:
        pass


class Fetch(Case):
    """The sample tools/samples/fetch.py without a queue."""

    def setUp(self) -> None:
        self.sample = script(TOP / "tools/samples/fetch.py")
        self.sample.scheme = "http"
        self.enterContext(unittest.mock.patch.dict(os.environ, no_proxy="*"))
        before = signal.signal(signal.SIGALRM, self.sample.late)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.at = f"127.0.0.1:{self.server.server_address[1]}"

    def fetch(self, path: str, server: str = "") -> tuple[str, unittest.mock.Mock]:
        """The output of a run, and its item."""
        item = unittest.mock.Mock(text=f"{server or self.at}/{path}", failures=2)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.sample.fetch(item)
        return out.getvalue(), item

    def rests(self, seconds: float, path: str) -> str:
        """The output of a run whose group rests then."""
        with self.assertRaises(wq.RestFor) as seen, \
                contextlib.redirect_stdout(io.StringIO()) as out:
            self.sample.fetch(unittest.mock.Mock(text=f"{self.at}/{path}"))
        self.assertEqual(seconds, seen.exception.seconds)
        return out.getvalue()

    def failed(self, reason: str, path: str, server: str = "") -> None:
        out, item = self.fetch(path, server)
        self.assertRegex(item.retry.call_args.kwargs["reason"], reason)
        self.assertTrue(out.endswith(", failure 3\n") and out[:-1].isprintable(), out)

    def test_retry_after_is_a_number_or_a_date_by_the_clock_of_the_server(self) -> None:
        for seconds, text in (
                (0, None), (0, ""), (0, "0"), (7, "7"), (7, " 007 "), (315360000, "315360000"),
                (float("inf"), "9" * 5000), (0, "-1"), (0, "1.5"), (0, "1e3"), (0, "\xb2"),
                (0, "soon"), (0, "nan"), (90, "Tue, 01 Jan 2030 00:01:30 GMT"),
                (90, "Tuesday, 01-Jan-30 00:01:30 GMT"), (90, "Tue Jan  1 00:01:30 2030"),
                (0, "Mon, 31 Dec 2029 23:59:59 GMT"), (0, "Tue, 01 Jan 99999 00:00:00 GMT"),
                (0, "Tue, 32 Jan 2030 00:00:00 GMT"),
                (0, "Tue, 01 Jan 2030 00:00:00 +" + "9" * 30)):
            headers = email.message.Message()
            headers["Date"] = "Tue, 01 Jan 2030 00:00:00 GMT"
            if text is not None:
                headers["Retry-After"] = text
            with self.subTest(text):
                answer = urllib.error.HTTPError("", 429, "", headers, None)
                self.assertEqual(seconds, self.sample.retry_after(answer))
                answer.close()
        del headers["Date"]
        # Without a time of the server, by the clock of this machine.
        headers.replace_header("Retry-After", "Thu, 01 Jan 4200 00:00:00 GMT")
        with unittest.mock.patch("time.time", return_value=1e9):
            self.assertEqual(70372022400 - 1e9, self.sample.retry_after(answer))

    def test_fetch_reports_the_size_also_after_a_redirect(self) -> None:
        for path in "200", f"to/http://{self.at}/200", "to//200":
            out, item = self.fetch(path)
            self.assertEqual((f"'{self.at}/{path}' has 1 bytes\n", []), (out, item.mock_calls))

    def test_group_rests_as_long_as_the_server_asks_for_but_an_hour_at_most(self) -> None:
        for path in "429/7", "503/7", "to//429/7":
            self.assertEqual(f"'{self.at}' wants no request for 7 s, and has none for 7 s\n",
                             self.rests(7, path))
        for path in "429/315360000", "503/Fri,_31_Dec_9999_23:59:59_GMT":
            self.assertIn(" s, and has none for 3600 s\n", self.rests(3600, path))

    def test_after_a_redirect_to_a_server_that_asks_for_a_rest_the_key_alone_waits(self) -> None:
        other = self.at.replace("127.0.0.1", "localhost")
        out, item = self.fetch(f"to/http://{other}/429/7")
        self.assertIn(f"'{other}' wants no request for 7 s", out)
        self.assertEqual([unittest.mock.call.retry(after=7)], item.mock_calls)

    def test_all_other_errors_are_failures_with_a_line_without_control_characters(self) -> None:
        self.failed("HTTP Error 429", "429")
        self.failed("HTTP Error 503", "503/soon")
        self.failed("HTTP Error 404", "404/7")
        self.failed("infinite loop", f"to/http://{self.at}/to/")
        self.failed("Remote end closed", "none")
        self.failed("IncompleteRead", "short")
        self.failed("control characters", "a b\n\x1b")
        self.failed("ascii", "\udcff")
        self.failed("Connection refused", "200", "127.0.0.1:1")
        self.failed("nonnumeric port|invalid", "200", "127.0.0.1:x")

    def test_a_server_that_sends_a_byte_now_and_then_times_out(self) -> None:
        self.sample.TIMEOUT = 0.1
        self.failed("timed out", "slow")
        self.assertEqual((0, 0), signal.getitimer(signal.ITIMER_REAL))

    def test_without_a_queue_it_ends_with_a_message(self) -> None:
        ran = subprocess.run([sys.executable, TOP / "tools/samples/fetch.py", "wq-none"], text=True,
                             capture_output=True, env=dict(os.environ, PYTHONPATH=str(PACKAGE)))
        self.assertEqual(1, ran.returncode)
        self.assertRegex(ran.stderr, r"\Afetch.py: .*\n\Z")


if __name__ == "__main__":
    tap.main()
