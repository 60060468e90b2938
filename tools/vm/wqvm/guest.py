# SPDX-License-Identifier: GPL-2.0-only
"""Guests: boot a kernel on the host's files, run a command there, and judge the end.

The guest's half is ../init. A guest has passed only when init wrote "ok STATUS" on a
channel of its own and the kernel's log is clean; any other end is a failure.
"""

import contextlib
import fcntl
import os
import re
import resource
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .apt import codename, need_packages
from .arch import Arch
from .build import need_kernel
from .definition import Kernel
from .initramfs import pack
from .jobs import Job, copy_new, install, job, run, temporary
from .modules import build_modules
from .output import FAILED, VmError, say
from .places import CACHE, HERE, SRC

# How often output is passed on, in seconds.
_POLL = 0.1


@dataclass
class Request:
    """The options of vm run and vm shell."""

    shell: bool = False
    kernel: str = "stock"
    smp: str = "2"
    cpu: str = ""
    icount: bool = False
    plugin: str = ""
    mem: str = "1024"
    share: str = ""
    modules: list[str] = field(default_factory=list)
    own_module: bool = True
    leak_check: bool = True
    gdb: bool = False
    append: str = ""
    timeout: str = "600"
    verbose: bool = False
    command: list[str] = field(default_factory=list)


def seconds_of(text: str) -> float:
    """A time limit as timeout(1) takes it: a number, perhaps with s, m, h or d; 0: none."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([smhd]?)", text)
    if not found:
        raise VmError(f"--timeout {text}: expected a number of seconds, or e.g. 10m")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def splat_pattern(text: str) -> re.Pattern[str]:
    """The regular expression in the file splat."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return re.compile("|".join(lines))


def first_match(pattern: re.Pattern[str], log: str) -> str | None:
    """The first line of a log that matches."""
    return next((line.rstrip("\r") for line in log.split("\n") if pattern.search(line)), None)


def judge(final: str, console: str, splat: re.Pattern[str], limit: str | None) -> tuple[int, str]:
    """The command's status and why the guest failed ("" if it did not), from the last line
    of its channel, the kernel's log, and the time limit if that has passed."""
    report = first_match(splat, console)
    ok = re.fullmatch(r"ok (\d+)", final)
    if ok:
        return int(ok[1]), report or ""
    if final.startswith("fail "):
        return FAILED, final.removeprefix("fail ")
    if limit:
        return FAILED, f"no end within {limit} s (--timeout)"
    return FAILED, (report or first_match(re.compile("^wq: "), console)
                    or "it ended without a result")


def lost_timer(status: str, console: str) -> bool:
    """Whether an emulated CPU lost its timer while the kernel booted, before any module of wq.

    Seen in CI, and once in some 130 boots of four CPUs by QEMU 10.0.2: one CPU is idle, the timer
    that ends a sleep of the RCU thread never comes there, and 21 s later another CPU reports the
    stall.
    @status: what init wrote on its channel, which it opens before it loads a module.
    """
    return not status and "Kernel panic - not syncing: RCU Stall" in console


# An x86 CPU saves flags in which bit 1 is set, and the bits 3, 5, 15 and 22 to 63 are not.
_FIXED_FLAGS = 0xffffffffffc0802a
_FIXED_VALUE = 0x2
# A function of the kernel itself: one of a module has the module's name behind it.
_IN_KERNEL = re.compile(r"RIP: 0010:[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+$")
# They are the first lines of an oops.
_OF_AN_OOPS = re.compile(r"BUG: (unable to handle|kernel NULL pointer)")


def broken_cpu(console: str, splat: re.Pattern[str]) -> bool:
    """Whether an emulated CPU crashed the kernel as no code can.

    The first report is an oops in a function of the kernel, not of a module, with one of two signs:

    - An int3 was executed, but the memory before the instruction pointer has none (0xcc). To patch
      its code the kernel writes an int3 and replaces it. Another CPU still had the translation.
      Seen in QEMU 8.0; an int3 that is in the code fails the run.
    - The saved flags have bits that no CPU sets, or lack the bit that each CPU sets.
    """
    lines = [line.rstrip("\r") for line in console.split("\n")]
    first = next((n for n, line in enumerate(lines)
                  if re.search(r": [0-9a-f]{4} \[#1\]", line)), None)
    if first is None or any(splat.search(line) and not _OF_AN_OOPS.search(line)
                            for line in lines[:first]):
        return False
    end = next((n for n, line in enumerate(lines[first + 1:], first + 1)
                if "Call Trace:" in line or "[#2]" in line), len(lines))
    oops = lines[first:end]
    place = next((line for line in oops if "RIP: " in line), "")
    if not _IN_KERNEL.search(place):
        return False
    text = "\n".join(oops)
    flags = re.search(r"EFLAGS: ([0-9a-f]+)", text)
    code = re.search(r"Code: .*\b([0-9a-f]{2}) <[0-9a-f]{2}>", text)
    return bool(flags and int(flags[1], 16) & _FIXED_FLAGS != _FIXED_VALUE
                or code and code[1] != "cc" and "int3: 0000" in lines[first])


def gdb_commands(sections: str, socket: Path, vmlinux: Path, modules: Sequence[Path]) -> str:
    """A script for gdb: the guest, and the symbols of the kernel and of the modules where they are.
    @sections: a line "MODULE SECTION ADDRESS" for each section, of the guest's /sys/module."""
    lines = [f"file {vmlinux}"] if vmlinux.exists() else []
    for module in modules:
        found = [words[1:] for words in map(str.split, sections.splitlines())
                 if words[0] == module.stem.replace("-", "_")]
        lines.append(" ".join([f"add-symbol-file {module}",
                               *(f"-s {name} {address}" for name, address in found)]))
    return "\n".join(["set confirm off", *lines, f"target remote {socket}", ""])


def kvm_works() -> bool:
    """Whether QEMU can use KVM: the device may be there and yet run no stock guest."""
    try:
        if not re.search(r"^flags.*\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text(),
                         re.MULTILINE):
            return False
        os.close(os.open("/dev/kvm", os.O_RDWR))
    except OSError:
        return False
    return True


def kernel_arguments(append: str) -> list[str]:
    """The arguments of each guest's kernel: an oops, a warning or a hang ends the guest.

    A KUnit case may take 300 s, and the task that waits for it would count as hung after 120 s.
    """
    return ["rdinit=/init", "panic=-1", "oops=panic", "panic_on_warn=1", "softlockup_panic=1",
            "sysctl.kernel.hung_task_panic=1", "sysctl.kernel.hung_task_timeout_secs=300",
            "sysctl.kernel.panic_on_rcu_stall=1", "random.trust_cpu=on", *append.split()]


def uml_command(request: Request, kernel: Path, tmp: Path, smp: bool) -> list[str]:
    """User-mode Linux; its serial lines end in our file descriptors 3 to 7.

    From 6.16 on it can run processes by seccomp, which halves the time of the quick selftests. Older
    ones run them by ptrace, and ignore the option. Several CPUs need seccomp: with ptrace, only the
    thread that started a process can run it.
    """
    cpus = [f"ncpus={request.smp}", "seccomp=on"] if smp else ["seccomp=auto"]
    return [str(kernel), f"mem={request.mem}M", f"initrd={tmp}/initramfs", f"uml_dir={tmp}",
            "umid=uml", *cpus, "con=null", "con0=null,fd:1", "con1=fd:3,fd:4", "console=tty0",
            "ssl=null", "ssl1=null,fd:5", "ssl2=null,fd:6", "ssl3=null,fd:7",
            *kernel_arguments(request.append)]


def claim_cpu(stack: contextlib.ExitStack) -> set[int]:
    """The CPU for a User-mode Linux with one CPU: one that no other guest has, else any.

    The guest's kernel and its processes run in turns. On two CPUs each turn wakes the other one: the
    selftest names takes 10 s there, and 3 s on one CPU.
    """
    cpus = os.sched_getaffinity(0)
    for cpu in sorted(cpus):
        file = stack.enter_context((CACHE / f"cpu-{cpu}").open("ab"))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return {cpu}
    return cpus


def qemu_program(request: Request, arch: Arch, kvm: bool) -> list[str]:
    """QEMU, as the start of a command.

    Debian 12 has QEMU 7.2. Version 10, of its backports, needs the same libraries and emulates a
    quarter faster. A run that counts instructions keeps to the system's QEMU, because the recorded
    counts are of its CPU.
    """
    # its libraries are those of all QEMUs of the backports
    install("qemu-system-x86")
    system = [arch.qemu]
    packages = [arch.package, *arch.firmware.split()]
    if kvm or request.icount or request.plugin or \
            codename(Path("/etc/os-release").read_text()) != "bookworm":
        install(*packages)
        return system
    try:
        usr = need_packages("bookworm-backports", [*packages, "qemu-system-common",
                                                   "qemu-system-data"]) / "usr"
    except VmError as error:
        if arch.package != "qemu-system-x86":
            raise
        say(f"the newer QEMU of Debian's backports is missing, so guests are slower: {error}")
        return system
    return [f"{usr}/bin/{arch.qemu}", "-L", f"{usr}/share/qemu", "-L", "/usr/share/seabios"]


def qemu_arguments(request: Request, arch: Arch, kernel: Path, tmp: Path, share: Path,
                   kvm: bool) -> list[str]:
    """A machine of QEMU, with the host's files and our folders by 9p."""
    smp = request.smp
    cpu = arch.cpu + (f",{request.cpu}" if request.cpu else "")
    if request.icount:
        smp = "1"
        machine = ["-icount", "shift=0,sleep=off", "-accel", "tcg,thread=single", "-cpu", cpu]
    elif request.plugin:
        # a CPU that spins lets another one run at once, also on a busy host
        machine = ["-accel", "tcg,thread=single", "-cpu", cpu]
    elif kvm:
        machine = ["-accel", "kvm", "-cpu", "host"]
    else:
        machine = ["-accel", "tcg,thread=multi", "-cpu", cpu]
    if request.gdb:
        machine += ["-gdb", f"unix:{tmp}/gdb,server=on,wait=off"]
    if request.plugin:
        machine += ["-plugin", f"file={request.plugin}"]
    serial = ["-serial", f"file:{tmp}/console"]
    if request.shell:
        serial += ["-chardev", "stdio,id=tty,signal=off", "-serial", "chardev:tty"]
    files = []
    for tag, path, options in (("root", "/", ",readonly=on,multidevs=remap"),
                               ("share", str(share), ",multidevs=remap"),
                               ("result", f"{tmp}/result", "")):
        files += ["-fsdev", f"local,id={tag},path={path.replace(',', ',,')},"
                            f"security_model=none{options}",
                  "-device", f"virtio-9p-{arch.bus},fsdev={tag},mount_tag={tag}"]
    return ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", arch.machine, *machine, "-smp", smp, "-m", request.mem, *serial,
            "-kernel", str(kernel), "-initrd", f"{tmp}/initramfs", "-append",
            # Debian's kernels clear all memory, which takes time and hides what nobody initialized.
            " ".join([f"console={arch.console}", "mitigations=off", "init_on_alloc=0",
                      *arch.append.split(), *(["nokaslr"] if request.gdb else []),
                      *kernel_arguments(request.append)]),
            *files]


def _without_debug(module: Path, tmp: Path, triplet: str) -> Path:
    """A copy without what only a debugger reads: 0.6 MB of 10, which a guest copies and searches."""
    copy = tmp / module.name
    strip = f"{triplet}-strip" if triplet else "strip"
    if run([strip, "--strip-debug", "-o", copy, module]):
        raise VmError(f"strip can't copy {module}")
    return copy


@contextlib.contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """The guest's shell handles keys such as Ctrl-C, so that the host's terminal must not."""
    if not wanted or not os.isatty(0):
        yield
        return
    settings = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)


def _terminal_size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(0)
    except OSError:
        return 24, 80
    # some terminals don't know their size
    return size.lines or 24, size.columns or 80


class _Guest:
    """A guest under way, and the files that it writes."""

    def __init__(self, request: Request, kernel: Kernel, modules: Sequence[Path], tmp: Path,
                 share: Path) -> None:
        self.request, self.kernel, self.tmp, self.share = request, kernel, tmp, share
        self.modules = modules
        self.timed_out = False
        (tmp / "result").mkdir()
        for name in ("console", "qemu.log", "result/out", "result/err", "result/status"):
            (tmp / name).touch()

    def _boot(self, stack: contextlib.ExitStack) -> Job:
        """Start the guest, which ends with the stack."""
        assert self.kernel.image
        shell = self.request.shell

        def numbered(number: int) -> int:
            # above the numbers that User-mode Linux's channels have
            number = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 20)
            stack.callback(os.close, number)
            return number

        def opened(path: Path | str, mode: str = "ab") -> int:
            with open(path, mode) as file:
                return numbered(file.fileno())

        def limit_core() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        keyboard = numbered(0) if shell else opened(os.devnull, "rb")
        screen = numbered(1) if shell else opened(os.devnull)
        if self.kernel.definition.arch != "um":
            arch = self.kernel.definition.machine
            kvm = arch.kvm and kvm_works()
            return stack.enter_context(job(
                [*qemu_program(self.request, arch, kvm),
                 *qemu_arguments(self.request, arch, self.kernel.image, self.tmp, self.share, kvm)],
                stdin=keyboard, stdout=screen, stderr=opened(self.tmp / "qemu.log"),
                preexec_fn=limit_core))

        channels = [keyboard, screen,
                    *(opened(self.tmp / "result" / name) for name in ("out", "err", "status"))]

        cpus = os.sched_getaffinity(0) if self.kernel.smp else claim_cpu(stack)

        def place_channels() -> None:
            limit_core()
            os.sched_setaffinity(0, cpus)
            for wanted, number in enumerate(channels, 3):
                os.dup2(number, wanted)

        console = opened(self.tmp / "console")
        return stack.enter_context(job(
            uml_command(self.request, self.kernel.image, self.tmp, self.kernel.smp), stdout=console,
            stderr=console, close_fds=False, preexec_fn=place_channels,
            env=dict(os.environ, TMPDIR=str(self.tmp))))

    def run(self) -> None:
        """Boot, and pass the output on until the guest has ended."""
        limit = 0.0 if self.request.shell else seconds_of(self.request.timeout)
        deadline = time.monotonic() + limit if limit else None
        with contextlib.ExitStack() as stack:
            guest = self._boot(stack)
            pumps = [(stack.enter_context((self.tmp / name).open("rb")), target)
                     for name, target in self._outputs()]
            ended = False
            waits_for_gdb = self.request.gdb
            while not ended:
                ended = guest.wait(_POLL) is not None
                if waits_for_gdb and (self.tmp / "result/sections").exists():
                    waits_for_gdb = False
                    self._offer_gdb()
                pumps = [pump for pump in pumps if copy_new(*pump)]
                if deadline and not ended and time.monotonic() > deadline:
                    self.timed_out = ended = True

    def _offer_gdb(self) -> None:
        script = SRC / "build/vm" / f"gdb-{os.getpid()}"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(gdb_commands((self.tmp / "result/sections").read_text(), self.tmp / "gdb",
                                       self.kernel.kdir / "vmlinux", self.modules))
        # a shell's terminal is raw
        say(f"in another terminal: gdb -x {script}\r")

    def _outputs(self) -> list[tuple[str, int]]:
        outputs = [("result/out", 1), ("result/err", 2)]
        if self.request.verbose:
            outputs.append(("console", 2))
        return outputs

    def verdict(self) -> int:
        """The command's exit status; the guest's failure is this tool's."""
        console = (self.tmp / "console").read_text(errors="replace")
        lines = (self.tmp / "result/status").read_text(errors="replace").splitlines() or [""]
        status, why = judge(lines[-1].strip("\r"), console,
                            splat_pattern((HERE / "splat").read_text()),
                            self.request.timeout if self.timed_out else None)
        if why:
            self._failed(why, console)
        return status

    def emulator_failed(self) -> str:
        """How the emulator failed, so that the guest is to boot again; "" if it did not."""
        if self.kernel.definition.arch == "um" or kvm_works():
            return ""
        console = (self.tmp / "console").read_text(errors="replace")
        if lost_timer((self.tmp / "result/status").read_text(errors="replace"), console):
            return "lost its timer while the kernel booted (RCU stall)"
        # A failure that the command has reported stays one, and a shell is not repeated.
        said = (self.tmp / "result/out").read_text(errors="replace")
        if not self.request.shell and not re.search(r"^ *not ok ", said, re.MULTILINE) and \
                broken_cpu(console, splat_pattern((HERE / "splat").read_text())):
            return f"crashed the kernel (its log: {self._keep_log(console)[0]})"
        return ""

    def _keep_log(self, console: str) -> tuple[Path, str]:
        log = f"{self.kernel.definition.name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        kept = SRC / "build/vm" / log
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(kept.parent, os.W_OK):
            kept = CACHE / log      # the project may be read-only
        text = console + (self.tmp / "qemu.log").read_text(errors="replace")
        kept.write_text(text)
        return kept, text

    def _failed(self, why: str, console: str) -> None:
        name = self.kernel.definition.name
        kept, text = self._keep_log(console)
        lines = text.replace("\r", "").splitlines()
        # a report's first lines have the cause; its end, with all registers, has none
        first = lines.index(why) if why in lines else max(len(lines) - 30, 0)
        for line in lines[first:first + 30]:
            print(line, file=sys.stderr)
        say(f"the guest ({name}, {self.kernel.release}) failed: {why}")
        raise VmError(f"its kernel log: {kept}")


def _shared_folder(name: str) -> Path:
    if not os.path.isdir(name):
        raise VmError(f"--share: there's no folder {name}")
    share = Path(name).resolve()
    if share == Path("/"):
        raise VmError("--share /: the guest must not write to all of the host")
    return share


def run_guest(request: Request) -> int:
    """Run the request's command, or a shell, in a guest; return the exit status."""
    share = _shared_folder(request.share or str(SRC))
    if not request.shell:
        seconds_of(request.timeout)
    modules = [Path(name) for name in request.modules]
    if request.own_module:
        kernel, built = build_modules(request.kernel)
        modules.insert(0, built / "wq.ko")
    else:
        kernel = need_kernel(request.kernel)
    for ko in modules:
        if not os.access(ko, os.R_OK):
            raise VmError(f"there's no module {ko}")
    if not kernel.image:
        raise VmError(f"{request.kernel} ({kernel.release}) is only to build against: there is no "
                      "kernel of that version and configuration to boot")
    if request.gdb and kernel.definition.arch == "um":
        raise VmError("--gdb is for QEMU's guests; a User-mode Linux is a process of the host")
    if request.shell:
        # a convenience: the shell works without
        with contextlib.suppress(VmError):
            install("bash-completion", "man-db")
    busybox, root = Path("/bin/busybox"), ""
    if kernel.definition.foreign:
        if request.shell:
            raise VmError(f"a shell needs the host's programs; {request.kernel} can't run them")
        # of Debian 13, which has all of the architectures
        files = need_packages(f"trixie:{kernel.definition.machine.debian}",
                              ["bash-static", "busybox-static"])
        busybox, root = files / "usr/bin/busybox", str(files)
    else:
        install("busybox-static")
    if kernel.definition.arch != "um":
        install("kmod")

    rows, columns = _terminal_size()
    values = {
        "name": request.kernel, "arch": kernel.definition.arch,
        "mode": "shell" if request.shell else "run", "leak_check": int(request.leak_check),
        "gdb": int(request.gdb),
        "rows": rows, "cols": columns, "share": share, "src": SRC.resolve(),
        "modules": kernel.modules or "", "root": root, "term": os.environ.get("TERM") or "dumb",
        "path": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin" +
                (":/run/wq/bin" if root else ""),
    }
    again = True
    while True:
        with temporary("wq-vm.") as tmp:
            guest = _Guest(request, kernel, modules, tmp, share)
            packed = [_without_debug(module, tmp, kernel.definition.machine.triplet)
                      for module in modules]
            (tmp / "initramfs").write_bytes(pack(kernel, packed, values, share, request.command,
                                                 busybox))
            with _raw_terminal(request.shell):
                guest.run()
            how = guest.emulator_failed() if again else ""
            if not how:
                return guest.verdict()
        again = False
        say(f"an emulated CPU {how}; the guest runs once more")
