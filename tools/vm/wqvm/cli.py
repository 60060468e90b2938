# SPDX-License-Identifier: GPL-2.0-only
"""The command line: subcommands, their help, and their options."""

import shutil
import sys
from collections.abc import Callable, Sequence

from .apt import need_packages
from .build import cc, need_kernel, need_source
from .definition import define, names
from .guest import Request, run_guest
from .jobs import Stopped, catch_signals
from .modules import build_modules
from .output import FAILED, VmError, say
from .places import CACHE

USAGE = """\
usage: vm run [OPTION...] -- CMD...   run CMD in a guest with wq.ko loaded
       vm shell [OPTION...]           a prompt in the same guest
       vm build NAME [MAKE-ARG...]    build the modules for a kernel
       vm kdir NAME                   print a folder to build modules against
       vm kflags NAME                 print the make variables that go with it
       vm cc NAME                     print the compiler of programs for a kernel
       vm source NAME                 print the source that a kernel is made from
       vm kernels                     list the kernels
       vm packages SUITE PACKAGE...   unpack Debian packages into the cache
       vm clean                       remove the cache of kernels
Each has --help. Environment: WQ_CACHE (the cache), WQ_SRC (the project).
"""

_RUN = """\
usage: vm run [OPTION...] -- CMD...
       vm shell [OPTION...]

Boot a guest, load wq.ko, and run CMD as root (or a prompt) in the shared
folder. CMD's output and exit status become ours. Status 125: the kernel, the
guest or this tool failed (panic, warning, lockdep, leak, timeout, ...); the
kernel log is then kept under build/vm/.

  --kernel NAME      which kernel, see vm kernels (default: stock)
  --smp N            CPUs (default: 2; of User-mode Linux, uml-smp has several)
  --cpu FLAGS        more of what QEMU emulates, e.g. cx16=off (not with KVM)
  --icount           one CPU with a clock that counts its instructions, as ns: for
                     costs that depend on no machine (QEMU only, without KVM)
  --plugin FILE,ARGS a plugin of QEMU, with its arguments; the CPUs run in turn, in
                     one thread (QEMU only, without KVM)
  --mem MB           memory (default: 1024)
  --share DIR        the folder that the guest may write (default: the project)
  --module FILE.ko   load this too, after wq.ko; may be repeated
  --no-module        don't build and load wq.ko
  --gdb              name a script by which gdb attaches to the guest, with the symbols
                     of the modules (QEMU only)
  --no-leak-check    don't wait 6 s for kmemleak at the end
  --append ARGS      more kernel arguments, e.g. time-travel=inf-cpu
  --timeout SECONDS  give up (default: 600; a shell has no limit)
  --verbose          show the kernel log as it comes
"""

HELP = {
    "run": _RUN,
    "shell": _RUN,
    "kdir": "usage: vm kdir NAME     print a folder to build modules against (make KDIR=)\n",
    "kflags": "usage: vm kflags NAME   print the make variables that this kernel's modules need\n",
    "cc": "usage: vm cc NAME       print the compiler of programs for this kernel, with its options\n",
    "source": "usage: vm source NAME   print the folder of a kernel's source, unpacked first "
              "if need be\n",
    "build": """\
usage: vm build NAME [MAKE-ARGUMENT...]
Build the project's modules into build/NAME and print that folder.
""",
    "kernels": "usage: vm kernels       list the kernels: version, purpose, whether in the cache\n",
    "packages": """\
usage: vm packages SUITE PACKAGE...
Unpack these packages of Debian's SUITE (.: this system's own; .:i386: of another
architecture) into the cache, not what they depend on, and print that folder.
""",
    "clean": f"usage: vm clean         remove the cache of kernels ({CACHE})\n",
}

_VALUES = {"--kernel": "kernel", "--smp": "smp", "--cpu": "cpu", "--plugin": "plugin",
           "--mem": "mem", "--share": "share", "--append": "append", "--timeout": "timeout"}
_SWITCHES = {"--icount": ("icount", True), "--no-module": ("own_module", False),
             "--no-leak-check": ("leak_check", False), "--verbose": ("verbose", True),
             "--gdb": ("gdb", True)}


class UsageError(Exception):
    """A command line that lacks something; the text is the help to show."""


def parse_run(mode: str, arguments: Sequence[str]) -> Request:
    """The options of vm run and vm shell."""
    request = Request(shell=mode == "shell")
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option == "--":
            break
        if option in _SWITCHES:
            setattr(request, *_SWITCHES[option])
        elif option in _VALUES or option == "--module":
            if not rest:
                raise VmError(f"{option} needs a value; see vm {mode} --help")
            if option == "--module":
                request.modules.append(rest.pop(0))
            else:
                setattr(request, _VALUES[option], rest.pop(0))
        else:
            raise VmError(f"unknown option {option}; see vm {mode} --help "
                          "(a command goes after --)")
    request.command = rest
    if not request.shell and not rest:
        raise VmError("no command; see vm run --help")
    return request


def _name(arguments: Sequence[str]) -> str:
    return arguments[0] if arguments else ""


def _kernels(_arguments: Sequence[str]) -> int:
    for name in names():
        definition = define(name)
        kernel = definition.cached()
        state = kernel.release if kernel else "not in the cache"
        print(f"{name:<16} {state:<20} {definition.about}")
    return 0


def _kdir(arguments: Sequence[str]) -> int:
    print(need_kernel(_name(arguments)).kdir)
    return 0


def _kflags(arguments: Sequence[str]) -> int:
    print(" ".join(need_kernel(_name(arguments)).make_flags()))
    return 0


def _cc(arguments: Sequence[str]) -> int:
    print(cc(_name(arguments)))
    return 0


def _source(arguments: Sequence[str]) -> int:
    print(need_source(_name(arguments)))
    return 0


def _build(arguments: Sequence[str]) -> int:
    print(build_modules(_name(arguments), arguments[1:])[1])
    return 0


def _packages(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        raise UsageError(HELP["packages"])
    print(need_packages(arguments[0], list(arguments[1:])))
    return 0


def _clean(_arguments: Sequence[str]) -> int:
    say(f"removing {CACHE}")
    shutil.rmtree(CACHE, ignore_errors=not CACHE.exists())
    return 0


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": lambda arguments: run_guest(parse_run("run", arguments)),
    "shell": lambda arguments: run_guest(parse_run("shell", arguments)),
    "build": _build, "kdir": _kdir, "kflags": _kflags, "cc": _cc, "source": _source,
    "kernels": _kernels, "packages": _packages, "clean": _clean,
}


def _dispatch(arguments: list[str]) -> int:
    command = arguments.pop(0) if arguments else ""
    if command in ("", "-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return 0
    if arguments[:1] == ["--help"]:
        sys.stdout.write(HELP.get(command, USAGE))
        return 0
    if command not in _COMMANDS:
        sys.stderr.write(USAGE)
        raise VmError(f"unknown subcommand {command}")
    return _COMMANDS[command](arguments)


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand and return the exit status."""
    catch_signals()
    try:
        return _dispatch(list(arguments))
    except Stopped as stopped:
        return stopped.status
    except UsageError as usage:
        sys.stderr.write(str(usage))
        return 2
    except VmError as error:
        say(str(error))
        return FAILED
    except BrokenPipeError:
        # nobody reads the answer; Python must not try to flush it again
        sys.stdout = None  # type: ignore[assignment]
        return FAILED
    except OSError as error:
        say(f"{error.filename or 'a system call'}: {error.strerror}; no guest has run, or its "
            "result is lost")
        return FAILED
