# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the parts of tools/vm that neither build nor boot anything.

    tests/vm/run, or with names: tests/vm/run test_vm.Guests
"""

import contextlib
import io
import lzma
import os
import pty
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import zlib
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "tools/vm"))

from wqvm import apt, arch, build, cli, definition, guest, initramfs, jobs, modules  # noqa: E402
from wqvm.output import FAILED, VmError, about  # noqa: E402


class Definitions(unittest.TestCase):
    def test_all_of_the_project_are_read(self) -> None:
        for name in definition.names():
            made = definition.define(name)
            self.assertRegex(made.hash, "^[0-9a-f]{12}$", name)
            self.assertTrue(made.about, name)
            self.assertEqual(made.foreign, made.arch not in ("x86", "um"), name)

    def test_fields_lists_and_comments(self) -> None:
        made = definition.parse("x", '# a comment\nabout="two words" # more\nfrom=source\n'
                                'config="a b"\tminutes=8\nmake_args="A=1\n\tB=2"\n')
        self.assertEqual("two words", made.about)
        self.assertEqual("source", made.origin)
        self.assertEqual(["a", "b"], made.config)
        self.assertEqual(["A=1", "B=2"], made.make_args)
        self.assertEqual(8, made.minutes)

    def test_defaults(self) -> None:
        made = definition.parse("x", "from=packages")
        self.assertEqual(("x86", "", [], 5),
                         (made.arch, made.suite, made.patches, made.minutes))

    def test_nothing_is_executed(self) -> None:
        self.assertEqual("$(date)", definition.parse("x", "from=clang about='$(date)'").about)

    def test_gdb_gets_the_sections_of_each_module(self) -> None:
        self.assertEqual(
            "set confirm off\n"
            "add-symbol-file /b/wq.ko -s .text 0x10 -s .data 0x20\n"
            "add-symbol-file /b/a-b.ko -s .text 0x30\n"
            "target remote /t/gdb\n",
            guest.gdb_commands("wq .text 0x10\na_b .text 0x30\nwq .data 0x20\n", Path("/t/gdb"),
                               Path("/nix/vmlinux"), [Path("/b/wq.ko"), Path("/b/a-b.ko")]))

    def test_refused(self) -> None:
        for text in ("from=source\nfor x in y; do :; done", "from=source colour=red", "from=nowhere",
                     "about=x", "from=source minutes=many",
                     "from=packages arch=sparc", "from=source about='open"):
            with self.subTest(text), self.assertRaisesRegex(VmError, "kernels/x"):
                definition.parse("x", text)

    def test_unknown_name_lists_the_names(self) -> None:
        with self.assertRaisesRegex(VmError, "no kernel \"nix\".* stock .*uml"):
            definition.define("nix")

    def test_hash_is_that_of_the_concatenated_files(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "k").write_text("from=source config=a.config patches=b.patch\n")
            (folder / "a.config").write_text("CONFIG_A=y\n")
            (folder / "b.patch").write_text("x")
            before = definition.define("k", folder).hash
            sha = subprocess.run("cat k a.config b.patch | sha256sum", shell=True, cwd=folder,
                                 capture_output=True, text=True, check=True).stdout
            self.assertEqual(sha[:12], before)
            (folder / "a.config").write_text("CONFIG_A=n\n")
            self.assertNotEqual(before, definition.define("k", folder).hash)
            (folder / "b.patch").unlink()
            with self.assertRaisesRegex(VmError, "k names b.patch"):
                definition.define("k", folder)

    def test_module_flags(self) -> None:
        def flags(text: str) -> str:
            return " ".join(definition.parse("x", text).make_flags())
        self.assertEqual("CONFIG_DEBUG_INFO_BTF_MODULES=", flags("from=packages"))
        self.assertEqual("ARCH=um", flags("from=source arch=um"))
        self.assertEqual("ARCH=arm64 CONFIG_DEBUG_INFO_BTF_MODULES=",
                         flags("from=packages arch=arm64"))
        self.assertEqual("CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_FTRACE_MCOUNT_USE_OBJTOOL= LLVM=-19",
                         flags("from=clang llvm=-19"))


    def test_modules_for_another_architecture_have_a_cross_compiler(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            made = definition.Kernel(definition.parse("x", "from=packages arch=s390"), Path(name))
            self.assertNotIn("CROSS_COMPILE", " ".join(made.make_flags()))
            Path(name, "compiler").mkdir()
            self.assertIn(f"CROSS_COMPILE={name}/compiler/usr/bin/s390x-linux-gnu-",
                          made.make_flags())


class Versions(unittest.TestCase):
    def test_order(self) -> None:
        ordered = ["6.1.9-1", "6.1.10-1~bpo", "6.1.10-1", "6.1.10-1a", "6.1.10-1+a", "6.1.10-2", "6.12.1", "7.3"]
        self.assertEqual(ordered, sorted(reversed(ordered), key=definition.version_key))

    def test_newest_cached_kernel(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            made = definition.parse("k", "from=packages")
            made.hash = "abc"
            folder = Path(name)
            for entry in ("6.1.9-abc", "6.1.10-abc", "6.1.11-other", ".new.12-abc"):
                (folder / entry).mkdir()
            with unittest.mock.patch.object(definition.Definition, "folder", folder):
                found = made.cached()
            assert found
            self.assertEqual("6.1.10-abc", found.folder.name)


class Packages(unittest.TestCase):
    TARGETS = ("http://m/debian/ bookworm main\nhttp://m/debian/ bookworm main\n"
               "http://m/debian/ bookworm contrib\nhttp://m/debian/ bookworm-updates main\n"
               "http://m/security/ bookworm-security main\nhttp://o/other/ jammy main\n")

    def test_sources_of_the_system(self) -> None:
        self.assertEqual(["deb http://m/debian/ bookworm main",
                          "deb http://m/debian/ bookworm-updates main",
                          "deb http://m/security/ bookworm-security main"],
                         apt.sources_list(self.TARGETS, "bookworm", ""))

    def test_sources_of_a_suite(self) -> None:
        self.assertEqual(["deb http://m/debian/ trixie main",
                          "deb http://m/security/ trixie-security main"],
                         apt.sources_list(self.TARGETS, "bookworm", "trixie"))

    def test_backports_have_no_security_suite(self) -> None:
        self.assertEqual(["deb http://m/debian/ bookworm-backports main"],
                         apt.sources_list(self.TARGETS, "bookworm", "bookworm-backports"))

    def test_sid_has_no_security_suite(self) -> None:
        self.assertEqual(["deb http://m/debian/ sid main"],
                         apt.sources_list(self.TARGETS, "bookworm", "sid"))

    def test_sources_of_several_suites(self) -> None:
        self.assertEqual(["deb http://m/debian/ experimental main", "deb http://m/debian/ sid main"],
                         apt.sources_list(self.TARGETS, "bookworm", "experimental sid"))

    def test_no_mirror(self) -> None:
        self.assertEqual([], apt.sources_list("http://o/other/ jammy main\n", "bookworm", ""))
        self.assertEqual([], apt.sources_list("", "bookworm", "trixie"))

    def test_codename(self) -> None:
        self.assertEqual("bookworm", apt.codename("NAME=x\nVERSION_CODENAME=bookworm\n"))
        self.assertEqual("stable", apt.codename("NAME=x\n"))

    def test_release_of_headers(self) -> None:
        text = ("linux-headers-amd64\n  Depends: linux-headers-6.1.0-42-amd64\n"
                "  Depends: linux-headers-6.1.0-42-common\n  Recommends: x\n")
        depends = apt.dependencies(text)
        self.assertEqual("6.1.0-42-amd64", build.release_of("linux-headers-amd64", depends))
        self.assertEqual("7.3.4+deb13-amd64",
                         build.release_of("linux-headers-7.3.4+deb13-amd64", ["gcc-14"]))
        self.assertEqual("6.1.0-42-686-pae", build.release_of(
            "linux-headers-686-pae", ["linux-headers-6.1.0-42-common", "linux-headers-6.1.0-42-686-pae"]))

    def test_series_of_a_release(self) -> None:
        for release in ("7.3.4+deb13-amd64", "7.3-amd64", "7.3-rc7-amd64"):
            self.assertEqual("7.3", build.series_of(release))

    def test_paths_of_headers_move(self) -> None:
        text = b"include /usr/src/linux-headers-6.1-common/M\nx=/a/usr/lib/linux-kbuild-6.1 /usr/lib/x"
        self.assertEqual(b"include /c/root/usr/src/linux-headers-6.1-common/M\n"
                         b"x=/a/usr/lib/linux-kbuild-6.1 /usr/lib/x",
                         build.move_paths(text, build._INSTALLED, "/c/root"))


class Images(unittest.TestCase):
    @staticmethod
    def packed(kernel: bytes, pack: Callable[[bytes], bytes]) -> bytes:
        """An image, by the fields of Linux' boot protocol."""
        image = bytearray(512 * 3 + 16)
        image[0x1f1] = 2
        struct.pack_into("<2I", image, 0x248, 16, len(pack(kernel)))
        return bytes(image) + pack(kernel) + b"what follows"

    def test_a_kernel_is_unpacked_if_it_is_slow_to_unpack_and_can_be_booted(self) -> None:
        kernel = b"\x7fELF" + struct.pack("<3I4sQ", 4, 8, 18, b"Xen", 1 << 24)
        self.assertEqual(kernel, build.unpacked(self.packed(kernel, lzma.compress)))
        for other in (self.packed(kernel[:-12], lzma.compress), self.packed(kernel, zlib.compress)):
            self.assertIs(other, build.unpacked(other))


class Configuration(unittest.TestCase):
    def test_what_kconfig_dropped_is_found(self) -> None:
        have = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_N=16\nCONFIG_LONG=y\n"
        self.assertEqual([], build.lost_options("# c\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_N=16\n", have))
        self.assertEqual(["CONFIG_A=n", "CONFIG_B=y", "CONFIG_C=y", "CONFIG_N=1", "CONFIG_LON=y"],
                         build.lost_options("CONFIG_A=n\nCONFIG_B=y\nCONFIG_C=y\nCONFIG_N=1\n"
                                            "CONFIG_LON=y\nCONFIG_LONGER=n\n", have))


class Arguments(unittest.TestCase):
    def test_defaults(self) -> None:
        self.assertEqual(guest.Request(command=["true"]), cli.parse_run("run", ["--", "true"]))

    def test_all_options(self) -> None:
        request = cli.parse_run("run", [
            "--kernel", "uml", "--smp", "3", "--cpu", "cx16=off", "--icount", "--mem", "512", "--share",
            "/x", "--module", "a.ko", "--module", "b.ko", "--no-module", "--no-leak-check", "--append",
            "a=1 b", "--timeout", "9", "--verbose", "--plugin", "p.so,a=1", "--", "--smp", "7"])
        self.assertEqual(guest.Request(
            kernel="uml", smp="3", cpu="cx16=off", icount=True, mem="512", share="/x",
            modules=["a.ko", "b.ko"], own_module=False, leak_check=False, append="a=1 b", timeout="9",
            verbose=True, plugin="p.so,a=1", command=["--smp", "7"]), request)

    def test_refused(self) -> None:
        cases: list[tuple[list[str], str]] = [
            (["--smp"], "--smp needs a value"), (["--nix", "--", "x"], "--nix"),
            (["true"], "a command goes after --"), ([], "no command"),
            (["--module"], "--module needs a value"), (["--"], "no command")]
        for arguments, why in cases:
            with self.subTest(arguments), self.assertRaisesRegex(VmError, why):
                cli.parse_run("run", arguments)

    def test_a_shell_needs_no_command(self) -> None:
        self.assertTrue(cli.parse_run("shell", ["--smp", "1"]).shell)

    def test_time_limits(self) -> None:
        self.assertEqual([600, 1.5, 600, 7200, 0],
                         [guest.seconds_of(text) for text in ("600", "1.5", "10m", "2h", "0")])
        for text in ("", "x", "-1", "5 s", "1e3"):
            with self.subTest(text), self.assertRaisesRegex(VmError, "--timeout"):
                guest.seconds_of(text)

    def test_exit_statuses(self) -> None:
        cases: list[tuple[list[str], int]] = [
            ([], 0), (["help"], 0), (["run", "--help"], 0), (["nix"], FAILED), (["run"], FAILED),
            (["packages", "sid"], 2), (["kdir", "nix"], FAILED)]
        for arguments, status in cases:
            done = subprocess.run([TOP / "tools/vm/vm", *arguments], capture_output=True, check=False)
            self.assertEqual(status, done.returncode, arguments)
            self.assertEqual(status == 0, bool(done.stdout), arguments)
            self.assertEqual(status != 0, bool(done.stderr), arguments)


class Guests(unittest.TestCase):
    SPLAT = guest.splat_pattern((TOP / "tools/vm/splat").read_text())

    def judge(self, final: str, console: str = "", limit: str | None = None) -> tuple[int, str]:
        return guest.judge(final, console, self.SPLAT, limit)

    def test_only_ok_passes(self) -> None:
        self.assertEqual((0, ""), self.judge("ok 0"))
        self.assertEqual((3, ""), self.judge("ok 3", "all well\n"))
        for final in ("", "ok", "ok x", "ok 0 ", "oops"):
            with self.subTest(final):
                self.assertEqual((FAILED, "it ended without a result"), self.judge(final))

    def test_a_report_fails_a_run_that_is_ok(self) -> None:
        for line in ("WARNING: CPU: 0", "BUG: sleeping", "UBSAN: shift", "BUG: KASAN: x",
                     "suspicious RCU usage", "unreferenced object 0x"):
            with self.subTest(line):
                self.assertEqual(f"[ 1.0] {line}", self.judge("ok 0", f"a\n[ 1.0] {line}\r\nb\n")[1])
        self.assertEqual("", self.judge("ok 0", "a WARNING without a colon\n")[1])

    def test_why_a_guest_failed(self) -> None:
        self.assertEqual((FAILED, "can't load x"), self.judge("fail can't load x", "BUG: y", "5"))
        self.assertEqual((FAILED, "no end within 5 s (--timeout)"), self.judge("", "BUG: y", "5"))
        self.assertEqual((FAILED, "BUG: y"), self.judge("", "wq: z\nBUG: y"))
        self.assertEqual((FAILED, "wq: z"), self.judge("", "a\nwq: z"))

    def boots(self, *guests: tuple[str, str], name: str = "stock", kvm: bool = False,
              out: str = "") -> int:
        """How often vm run boots if its guests end with these status lines and logs, after this
        output of the command."""
        booted = 0

        def run(self: guest._Guest) -> None:
            nonlocal booted
            (self.tmp / "result/status").write_text(guests[booted][0])
            (self.tmp / "console").write_text(guests[booted][1])
            (self.tmp / "result/out").write_text(out)
            booted += 1

        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()), \
                unittest.mock.patch.multiple(guest, need_kernel=unittest.mock.DEFAULT, install=print,
                                             pack=lambda *_: b"", kvm_works=lambda: kvm) as fakes, \
                contextlib.redirect_stdout(io.StringIO()), \
                unittest.mock.patch.object(guest, "SRC", Path(folder)), \
                unittest.mock.patch.object(guest._Guest, "run", run):
            fakes["need_kernel"].return_value = unittest.mock.Mock(
                definition=definition.define(name), release="6", modules=None)
            with contextlib.suppress(VmError):
                guest.run_guest(guest.Request(own_module=False, share=folder, command=["true"]))
        return booted

    def test_a_stall_before_init_boots_once_more(self) -> None:
        stall = "[ 22.8] Kernel panic - not syncing: RCU Stall\n"
        self.assertEqual(2, self.boots(("", stall), ("ok 0", "")))
        self.assertEqual(2, self.boots(("", stall), ("", stall), ("ok 0", "")))
        self.assertEqual(1, self.boots(("start\n", stall), ("ok 0", "")))
        self.assertEqual(1, self.boots(("", "Kernel panic - not syncing: Oops\n"), ("ok 0", "")))
        self.assertEqual(1, self.boots(("", stall), ("ok 0", ""), kvm=True))
        self.assertEqual(1, self.boots(("", stall), ("ok 0", ""), name="uml"))

    # The lines of a log of 6.1 that matter.  The int3 is gone: "66 90" is a NOP.
    INT3 = """\
[    9.101452] wq: loading out-of-tree module taints kernel.
[   31.093098] int3: 0000 [#1] PREEMPT SMP NOPTI
[   31.093101] CPU: 1 PID: 311 Comm: cgroup Tainted: G           OE      6.1.0-56-amd64 #1
[   31.093110] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009)
[   31.093115] RIP: 0010:__mod_timer+0x1c3/0x370
[   31.093140] Code: 41 89 c4 85 c0 75 09 83 e3 01 0f 85 54 ff ff ff 41 8b 4f 20 66 <90> f7 c1 00 00
[   31.093144] RSP: 0018:ffffaf1600013e00 EFLAGS: 00000046
[   31.093150] RAX: 0000000000000000 RBX: 0000000000000000 RCX: 0000000000280003
[   31.093190] Call Trace:
[   31.093200]  wq_add+0x60/0x90 [wq]
[   31.093300] ---[ end trace 0000000000000000 ]---
[   31.093310] RIP: 0010:__mod_timer+0x1c3/0x370
[   31.093400] Kernel panic - not syncing: Fatal exception
"""
    OOPS = """\
[   31.093090] BUG: kernel NULL pointer dereference, address: 0000000000000010
[   31.093092] #PF: supervisor write access in kernel mode
[   31.093098] Oops: 0002 [#1] PREEMPT SMP NOPTI
[   31.093101] CPU: 1 PID: 311 Comm: cgroup Tainted: G           OE      6.1.0-56-amd64 #1
[   31.093115] RIP: 0010:wq_get_one+0x1c3/0x370 [wq]
[   31.093140] Code: 41 89 c4 85 c0 75 09 83 e3 01 0f 85 54 ff ff ff 41 8b 4f 20 66 <90> f7 c1 00 00
[   31.093144] RSP: 0018:ffffaf1600013e00 EFLAGS: 00010246
[   31.093190] Call Trace:
[   31.093400] Kernel panic - not syncing: Fatal exception
"""

    def test_only_a_crash_that_shows_a_broken_CPU_boots_once_more(self) -> None:
        in_kernel = self.OOPS.replace("wq_get_one+0x1c3/0x370 [wq]", "__list_add+0x1c3/0x370")
        broken = [
            self.INT3, self.INT3.replace("\n", "\r\n"),
            self.INT3.replace("] int3: 0000", "] Oops: int3: 0000"),
            in_kernel.replace("00010246", "00018246"), in_kernel.replace("00010246", "00010244"),
            in_kernel.replace("00010246", "ffff888003a12346"),
        ]
        sound = [
            self.OOPS, in_kernel, "",
            # in a module, or nowhere, with all other signs
            self.OOPS.replace("00010246", "00018246"),
            self.OOPS.replace("Oops: 0002", "int3: 0000"),
            self.INT3.replace("+0x1c3/0x370\n", "+0x1c3/0x370 [wq]\n", 1),
            self.INT3.replace("__mod_timer+0x1c3/0x370", "0xffffffffc0a01234", 1),
            # an int3 in the code: a jump behind the end of a function
            self.INT3.replace("66 <90>", "cc <cc>"),
            # what came first may be the cause
            "[   30.1] BUG: KASAN: slab-use-after-free in wq_get_one+0x1/0x2 [wq]\n" + self.INT3,
            "[   30.1] WARNING: CPU: 0 PID: 1 at wq_core.c:1 wq_get_one+0x1/0x2 [wq]\n" + self.INT3,
            # the flags of another oops, and of the process
            self.OOPS + self.INT3.replace("[#1]", "[#2]"),
            in_kernel.replace("Call Trace:", "Call Trace:\n RSP: 002b:00007ffc EFLAGS: 00018246"),
        ]
        for log in broken:
            with self.subTest(log):
                self.assertEqual(2, self.boots(("start\n", log), ("ok 0", "")))
        for log in sound:
            with self.subTest(log):
                self.assertEqual(1, self.boots(("start\n", log), ("ok 0", "")))
        self.assertEqual(2, self.boots(("start\n", self.INT3), ("", self.INT3), ("ok 0", "")))
        self.assertEqual(1, self.boots(("start\n", self.INT3), ("ok 0", ""), kvm=True))
        self.assertEqual(1, self.boots(("start\n", self.INT3), ("ok 0", ""), name="uml"))
        self.assertEqual(1, self.boots(("start\n", self.INT3), ("ok 0", ""),
                                       out="ok 1 a\nnot ok 2 b\n"))

    def test_qemu(self) -> None:
        def command(request: guest.Request, kvm: bool = False, name: str = "x86") -> str:
            return " ".join(guest.qemu_arguments(request, arch.ARCHES[name], Path("/k"), Path("/t"),
                                                 Path("/a,b"), kvm))
        cpu = "-cpu max,la57=off,erms=off,fsrm=off"
        text = command(guest.Request(smp="4", mem="512", cpu="cx16=off", append="x=1 y"))
        self.assertIn(f"-accel tcg,thread=multi {cpu},cx16=off -smp 4 -m 512", text)
        self.assertIn("path=/a,,b,security_model=none,multidevs=remap", text)
        self.assertIn("path=/,security_model=none,readonly=on", text)
        self.assertIn("random.trust_cpu=on x=1 y", text)
        self.assertNotIn("chardev", text)
        self.assertIn(f"-icount shift=0,sleep=off -accel tcg,thread=single {cpu} -smp 1",
                      command(guest.Request(smp="4", icount=True), kvm=True))
        self.assertIn("-accel kvm -cpu host -smp 2", command(guest.Request(), kvm=True))
        self.assertIn(f"-accel tcg,thread=single {cpu} -plugin file=p.so,a=1 -smp 2",
                      command(guest.Request(plugin="p.so,a=1"), kvm=True))
        self.assertIn("-serial chardev:tty", command(guest.Request(shell=True)))
        self.assertIn("-append console=ttyS0 mitigations=off init_on_alloc=0 no_timer_check ", text)
        text = command(guest.Request(), name="s390")
        for word in ("-machine s390-ccw-virtio ", "virtio-9p-ccw,fsdev=root", "console=ttysclp0 "):
            self.assertIn(word, text)
        self.assertNotIn("no_timer_check", text)

    def test_qemu_of_the_backports_emulates_on_debian_12(self) -> None:
        def program(request: guest.Request, kvm: bool = False, release: str = "bookworm",
                    name: str = "x86") -> str:
            with unittest.mock.patch.object(guest, "codename", return_value=release), \
                    unittest.mock.patch.object(guest, "install"), \
                    unittest.mock.patch.object(guest, "need_packages", side_effect=needed):
                return guest.qemu_program(request, arch.ARCHES[name], kvm)[0]

        needed: list[object] = [Path("/r")]
        self.assertEqual("/r/usr/bin/qemu-system-s390x", program(guest.Request(), name="s390"))
        own = "qemu-system-x86_64"
        self.assertEqual(f"/r/usr/bin/{own}", program(guest.Request()))
        self.assertEqual(own, program(guest.Request(), kvm=True))
        self.assertEqual(own, program(guest.Request(), release="trixie"))
        self.assertEqual(own, program(guest.Request(icount=True)))
        self.assertEqual(own, program(guest.Request(plugin="p.so")))
        needed = [VmError("no network")]
        with contextlib.redirect_stderr(io.StringIO()) as text:
            self.assertEqual(own, program(guest.Request()))
        self.assertIn("no network", text.getvalue())
        # Debian 12's own QEMU for other architectures is not tried
        with self.assertRaisesRegex(VmError, "no network"):
            program(guest.Request(), name="s390")

    def test_the_firmware_of_a_machine_comes_with_its_qemu(self) -> None:
        with unittest.mock.patch.object(guest, "codename", return_value="bookworm"), \
                unittest.mock.patch.object(guest, "install"), \
                unittest.mock.patch.object(guest, "need_packages", return_value=Path("/r")) as need:
            guest.qemu_program(guest.Request(), arch.ARCHES["riscv"], False)
        self.assertIn("opensbi", need.call_args.args[1])

    def test_a_guest_of_another_architecture_has_no_shell(self) -> None:
        kernel = definition.Kernel(definition.parse("x", "from=packages arch=arm64"), Path("/nix"))
        request = guest.Request(shell=True, own_module=False, kernel="x")
        with unittest.mock.patch.object(guest, "need_kernel", return_value=kernel), \
                unittest.mock.patch.object(definition.Kernel, "image", Path("/nix/kernel")), \
                self.assertRaisesRegex(VmError, "a shell needs"):
            guest.run_guest(request)

    def test_user_mode_linux(self) -> None:
        words = guest.uml_command(guest.Request(mem="512", append="time-travel=inf-cpu"), Path("/k"),
                                  Path("/t"), smp=False)
        self.assertEqual("/k", words[0])
        for word in ("mem=512M", "con1=fd:3,fd:4", "ssl3=null,fd:7", "time-travel=inf-cpu"):
            self.assertIn(word, words)

    def test_each_user_mode_linux_has_a_cpu_while_there_are_some(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as guests, \
                unittest.mock.patch.object(guest, "CACHE", Path(folder)), \
                unittest.mock.patch("os.sched_getaffinity", return_value={3, 5}):
            with contextlib.ExitStack() as first:
                self.assertEqual({3}, guest.claim_cpu(first))
                self.assertEqual({5}, guest.claim_cpu(guests))
                self.assertEqual({3, 5}, guest.claim_cpu(guests))
            self.assertEqual({3}, guest.claim_cpu(guests))

    def test_user_mode_linux_with_several_CPUs(self) -> None:
        def words(smp: bool) -> list[str]:
            return guest.uml_command(guest.Request(smp="4"), Path("/k"), Path("/t"), smp)
        self.assertLessEqual({"ncpus=4", "seccomp=on"}, set(words(smp=True)))
        self.assertEqual(["seccomp=auto"], [word for word in words(smp=False)
                                            if word.startswith(("ncpus=", "seccomp="))])


class Init(unittest.TestCase):
    """Functions of a guest's first process, with a /proc and commands of the test."""

    KTHREAD = 0x200000

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.proc = Path(folder.name)

    def process(self, pid: int, name: str, state: str = "S", flags: int = 0x400000) -> None:
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) {state} 1 0 0 0 -1 {flags} 100 0\n")

    def run_init(self, script: str) -> subprocess.CompletedProcess[str]:
        start = """
            init=$1 dir=$2
            set -- functions
            . "$init"
            proc=$dir
            die() {
                echo "died: $*"
                exit 9
            }
        """
        return subprocess.run(["sh", "-c", start + script, "sh", TOP / "tools/vm/init", self.proc],
                              capture_output=True, text=True, check=False)

    def test_kernel_threads_and_init_are_not_selected(self) -> None:
        self.process(1, "init")
        self.process(2, "kthreadd", flags=self.KTHREAD | 0x8040)
        self.process(17, "kworker/0:1-wq", "I", flags=self.KTHREAD | 0x4208060)
        self.process(100, "sleep")
        self.process(101, ") Z 1 (", "D")
        self.process(102, "gone", "Z", flags=0x40c)
        (self.proc / "103").mkdir()
        done = self.run_init('select_processes "$proc"/[0-9]*/stat "$proc"/103/stat')
        self.assertEqual("", done.stderr)
        self.assertEqual(["100 (sleep) S", "101 () Z 1 () D", "102 (gone) Z"], done.stdout.splitlines())

    def test_init_waits_for_the_end_of_killed_processes(self) -> None:
        self.process(1, "init")
        for pid in (100, 101, 102):
            self.process(pid, "sleep")
        done = self.run_init("""
            kill() { echo "kill $*"; }
            # a process ends at each sleep
            sleep() {
                echo "sleep $1"
                set -- "$proc"/10?
                rm -r "$1"
            }
            end_processes
            echo ended""")
        self.assertEqual(["kill -9 -1"] + ["sleep 0.1"] * 3 + ["ended"], done.stdout.splitlines())

    def test_a_process_that_does_not_end_is_named(self) -> None:
        self.process(1, "init")
        self.process(100, "stuck", "D")
        self.process(200, "other")
        done = self.run_init("""
            kill() { :; }
            sleep() { echo; }
            end_processes""")
        self.assertEqual(9, done.returncode)
        self.assertEqual("died: 10 s after SIGKILL there are still processes: 100 (stuck) D,200 (other) S",
                         done.stdout.strip())
        self.assertEqual(99, done.stdout.count("\n") - 1)


class Initramfs(unittest.TestCase):
    def test_cpio_reads_the_archive(self) -> None:
        data = initramfs.newc([initramfs.folder("d"), initramfs.program("d/p", b"hello"),
                               ("d/\xe4 b", stat.S_IFREG | 0o644, b"")])
        fields = [int(data[6 + 8 * i:14 + 8 * i], 16) for i in range(13)]
        self.assertEqual(b"070701", data[:6])
        self.assertEqual((stat.S_IFDIR | 0o755, 2, 0, 2), (fields[1], fields[4], fields[6], fields[11]))
        self.assertEqual(0, len(data) % 4)
        self.assertEqual(b"d\0", data[110:112])
        second = 112
        self.assertEqual(b"070701", data[second:second + 6])
        self.assertEqual(5, int(data[second + 54:second + 62], 16))
        self.assertEqual(b"d/p\0\0\0hello\0\0\0" b"070701", data[second + 110:second + 110 + 20])
        self.assertIn(b"TRAILER!!!\0", data)

    def test_boot_modules(self) -> None:
        config = "CONFIG_VIRTIO_PCI=y\nCONFIG_9P_FS=m\nCONFIG_OVERLAY_FS=m\n# CONFIG_NET_9P_VIRTIO=m\n"
        self.assertEqual(["9p", "overlay"], initramfs.boot_modules(config))

    def test_modules_in_the_order_of_modprobe(self) -> None:
        self.assertEqual(["/a.ko", "/b.ko.xz", "/c.ko"], initramfs.insmod_order(
            "insmod /a.ko \nbuiltin x\ninsmod /b.ko.xz \ninsmod /a.ko \ninsmod /c.ko \n"))

    def test_variables_survive_a_shell(self) -> None:
        value = "it's \"$(x)\" \\ a\nb"
        done = subprocess.run(["sh", "-c", initramfs.assignments({"v": value}) + 'printf %s "$v"'],
                              capture_output=True, text=True, check=True)
        self.assertEqual(value, done.stdout)


class Sources(unittest.TestCase):
    def test_links_follow_the_sources(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            src = Path(name).resolve()
            built = src / "build/k"
            built.mkdir(parents=True)
            (src / "sub").mkdir()
            for file in ("Kbuild", "a.c", "b.c", "sub/c.h", "README.md", "build/no.c"):
                (src / file).touch()
            (src / ".git").mkdir()
            (src / ".git/x.c").touch()
            modules.link_sources(src, built)
            found = sorted(str(path.relative_to(built)) for path in built.rglob("*") if path.is_symlink())
            self.assertEqual(["Kbuild", "a.c", "b.c", "sub/c.h"], found)
            (built / "a.o").touch()
            (built / "b.o").touch()
            (src / "b.c").unlink()
            modules.link_sources(src, built)
            self.assertEqual(["Kbuild", "a.c", "a.o"], sorted(p.name for p in built.iterdir() if not p.is_dir()))

    def test_make_runs_only_after_a_change(self) -> None:
        runs, status = 0, 0

        def make(*_: object, **__: object) -> int:
            nonlocal runs
            runs += 1
            (built / "a.o").write_text("made")
            return status

        def made(*command: str) -> bool:
            before = runs
            self.assertEqual(status, modules.make_once(built, command))
            return runs > before

        with tempfile.TemporaryDirectory() as tmp, \
                unittest.mock.patch.object(modules, "run", make):
            built, source = Path(tmp, "built"), Path(tmp, "a.c")
            built.mkdir()
            source.touch()
            (built / "a.c").symlink_to(source)
            self.assertTrue(made("make"))
            self.assertFalse(made("make"))
            source.write_text("int a;")
            self.assertTrue(made("make"))
            (built / "a.o").unlink()
            self.assertTrue(made("make"))
            (built / "a.o").write_text("something else")
            self.assertTrue(made("make"))
            (built / "b.c").symlink_to(source)
            self.assertTrue(made("make"))
            self.assertTrue(made("make", "W=1"))
            self.assertFalse(made("make", "W=1"))
            with unittest.mock.patch.dict(os.environ, KCFLAGS="-g"):
                self.assertTrue(made("make", "W=1"))
            status = 2
            self.assertTrue(made("make"))
            self.assertTrue(made("make"))
            status = 0
            self.assertTrue(made("make"))
            self.assertFalse(made("make"))


class Jobs(unittest.TestCase):
    def setUp(self) -> None:
        # A background job of a shell, and nohup, start with signals ignored.
        for signum in jobs.SIGNALS:
            self.addCleanup(signal.signal, signum, signal.signal(signum, signal.SIG_DFL))

    def test_status(self) -> None:
        self.assertEqual(3, jobs.run(["sh", "-c", "exit 3"]))

    def test_a_missing_program_is_named(self) -> None:
        with self.assertRaisesRegex(VmError, "can't run /nix/program"):
            jobs.run(["/nix/program"])

    def test_what_a_job_started_ends_with_it(self) -> None:
        with jobs.job(["sh", "-c", "trap '' TERM; sleep 99 & echo $!; wait; sleep 99"],
                      stdout=subprocess.PIPE) as child:
            assert child.child.stdout
            sleeper = int(child.child.stdout.readline())
            started = time.monotonic()
        child.child.stdout.close()
        self.assertLess(time.monotonic() - started, 5)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.runs(sleeper):
            time.sleep(0.05)
        self.assertFalse(self.runs(sleeper))

    @staticmethod
    def runs(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    def test_a_failed_step_shows_the_end_of_its_log(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            log = Path(name, "log")
            log.write_text("of an earlier step\n")
            text = io.StringIO()
            with contextlib.redirect_stderr(text), self.assertRaisesRegex(VmError, f"{log}$"):
                jobs.step("trying", log, ["sh", "-c", "seq 30; exit 1"])
            with contextlib.redirect_stderr(text), self.assertRaises(VmError):
                jobs.step("again", log, ["sh", "-c", "echo last; exit 1"])
        self.assertTrue(text.getvalue().endswith(f"wq: again (log: {log})\nwq: last\n"))
        self.assertIn(f"wq: trying (log: {log})", text.getvalue())
        self.assertIn("wq: 30", text.getvalue())
        self.assertNotIn("wq: 15\n", text.getvalue())
        self.assertNotIn("earlier", text.getvalue())

    def test_a_long_step_reports(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            text = io.StringIO()
            saved, jobs.REPORT_EVERY = jobs.REPORT_EVERY, 0.05
            try:
                with contextlib.redirect_stderr(text):
                    jobs.step("waiting, long", Path(name, "log"), ["sleep", "0.3"], minutes=2,
                              progress=lambda: "5 files")
            finally:
                jobs.REPORT_EVERY = saved
        self.assertIn("still waiting: 0 s of usually 2 min, 5 files", text.getvalue())

    def test_scratch_folders_go(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            with self.assertRaises(KeyError), jobs.scratch(Path(name, "a/b")) as folder:
                (folder / "file").touch()
                raise KeyError
            self.assertFalse(Path(name, "a/b").exists())
            with jobs.scratch(Path(name, "c")) as folder:
                folder.rename(Path(name, "kept"))
            self.assertTrue(Path(name, "kept").exists())

    def test_a_signal_ends_the_child_and_cleans_up(self) -> None:
        script = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                  "from pathlib import Path\n"
                  "from wqvm import jobs\n"
                  "jobs.catch_signals()\n"
                  "try:\n"
                  "    with jobs.scratch(Path(sys.argv[2])):\n"
                  "        with jobs.job(['sleep', '99']) as child:\n"
                  "            print(child.child.pid, flush=True)\n"
                  "            child.wait(99)\n"
                  "except jobs.Stopped as stopped:\n"
                  "    sys.exit(stopped.status)\n")
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as name:
                tool = subprocess.Popen([sys.executable, "-B", "-c", script, TOP / "tools/vm", f"{name}/s"],
                                        stdout=subprocess.PIPE)
                assert tool.stdout
                sleeper = int(tool.stdout.readline())
                tool.stdout.close()
                self.assertTrue(Path(name, "s").exists())
                tool.send_signal(signum)
                self.assertEqual(128 + signum, tool.wait(10))
                self.assertFalse(Path(name, "s").exists())
                self.assertFalse(self.runs(sleeper))

    def test_a_signal_waits_while_a_child_is_half_started(self) -> None:
        saved = {signum: signal.getsignal(signum) for signum in jobs.SIGNALS}
        reached = False
        try:
            jobs.catch_signals()
            with self.assertRaises(jobs.Stopped) as stopped:
                with jobs._signals.held():
                    os.kill(os.getpid(), signal.SIGHUP)
                    reached = True
            self.assertEqual(128 + signal.SIGHUP, stopped.exception.status)
        finally:
            for signum, handler in saved.items():
                signal.signal(signum, handler)
        self.assertTrue(reached)

    def test_an_ignored_signal_stays_ignored(self) -> None:
        saved = {signum: signal.getsignal(signum) for signum in jobs.SIGNALS}
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            jobs.catch_signals()
            self.assertEqual(signal.SIG_IGN, signal.getsignal(signal.SIGINT))
            self.assertNotEqual(saved[signal.SIGTERM], signal.getsignal(signal.SIGTERM))
        finally:
            for signum, handler in saved.items():
                signal.signal(signum, handler)

    def test_output_is_copied_until_nobody_reads_it(self) -> None:
        reader, writer = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(b"abc" * 1000)
            file.seek(0)
            self.assertTrue(jobs.copy_new(file, writer))
            self.assertEqual(b"abc" * 1000, os.read(reader, 9999))
            os.close(reader)
            self.assertTrue(jobs.copy_new(file, writer))
            file.seek(0)
            self.assertFalse(jobs.copy_new(file, writer))
        os.close(writer)

    def test_a_lock_excludes(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "sub/lock")
            with jobs.lock(path):
                self.assertNotEqual(0, subprocess.run(["flock", "-s", "-n", path, "true"], check=False).returncode)
            self.assertEqual(0, subprocess.run(["flock", "-n", path, "true"], check=False).returncode)


class Terminal(unittest.TestCase):
    def test_settings_come_back(self) -> None:
        import termios
        _, ours = pty.openpty()
        saved = os.dup(0)
        os.dup2(ours, 0)
        try:
            before = termios.tcgetattr(0)
            with self.assertRaises(KeyError), guest._raw_terminal(True):
                self.assertNotEqual(before, termios.tcgetattr(0))
                raise KeyError
            self.assertEqual(before, termios.tcgetattr(0))
        finally:
            os.dup2(saved, 0)
            os.close(saved)


class Output(unittest.TestCase):
    def test_durations(self) -> None:
        self.assertEqual(["45 s", "2 min", "10 min"], [about(s) for s in (45, 100, 600)])


if __name__ == "__main__":
    unittest.main()
