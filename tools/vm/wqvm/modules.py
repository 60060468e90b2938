# SPDX-License-Identifier: GPL-2.0-only
"""The project's modules, built for a kernel.

The sources are linked into build/NAME, so that the objects of several kernels stay apart
and out of the source tree.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .build import need_kernel
from .definition import Kernel
from .jobs import lock, run
from .output import VmError
from .places import JOBS, SRC


def is_source(name: str) -> bool:
    """Whether Kbuild reads a file of this name."""
    return name in ("Kbuild", "Makefile", "btf-base") or name.endswith((".c", ".h", ".S"))


def link_sources(src: Path, built: Path) -> None:
    """Link the sources into a folder. A source that is gone takes its object along."""
    for folder, dirs, files in os.walk(src):
        dirs[:] = [name for name in dirs
                   if name != ".git" and Path(folder, name) != src / "build"]
        target = built / Path(folder).relative_to(src)
        for name in filter(is_source, files):
            source, link = Path(folder, name), target / name
            if source.is_symlink():
                continue
            target.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink() or os.readlink(link) != str(source):
                link.unlink(missing_ok=True)
                link.symlink_to(source)
    for folder, _, files in os.walk(built):
        for link in (Path(folder, name) for name in files):
            if link.is_symlink() and not link.exists():
                link.unlink()
                if link.suffix == ".c":
                    link.with_suffix(".o").unlink(missing_ok=True)


def _times(built: Path, sources: bool) -> list[str]:
    """The times and sizes of the sources in a folder, which are links, or of what was made."""
    found = []
    for folder, _, files in os.walk(built):
        for path in (Path(folder, name) for name in files if name not in (".lock", ".made")):
            if path.is_symlink() == sources:
                stat = path.stat()
                found.append(f"{path} {stat.st_mtime_ns} {stat.st_size}")
    return sorted(found)


def make_once(built: Path, command: Sequence[str | Path]) -> int:
    """Run make unless nothing in the folder has changed since the same command succeeded.

    Kbuild starts 250 processes to find that it has nothing to do, which costs as much as the boot
    of a guest.
    """
    record = built / ".made"
    of_make = sorted(f"{name}={value}" for name, value in os.environ.items()
                     if re.match("ARCH|CONFIG_|CROSS_|KBUILD_|KC|LLVM", name))
    before = [*map(str, command), *of_make, *_times(built, sources=True)]
    if record.exists() and \
            record.read_text() == "\n".join([*before, *_times(built, sources=False)]):
        return 0
    record.unlink(missing_ok=True)
    # A source that changes meanwhile has another time in the next run.
    status = run(command, stdout=2)
    if not status:
        record.write_text("\n".join([*before, *_times(built, sources=False)]))
    return status


def build_modules(name: str, arguments: Sequence[str] = ()) -> tuple[Kernel, Path]:
    """Build the modules for a kernel; return it, and the folder that they are in."""
    kernel = need_kernel(name)
    if not (SRC / "Kbuild").exists():
        raise VmError(f"no modules to build: there's no {SRC}/Kbuild; is WQ_SRC right?")
    built = SRC / "build" / name
    with lock(built / ".lock"):
        link_sources(SRC, built)
        status = make_once(built, ["make", "-s", "-C", kernel.kdir, *kernel.make_flags(),
                                   f"M={built}", f"-j{JOBS}", "CONFIG_SAMPLE_WQ=m", "modules",
                                   *arguments])
    if status:
        raise VmError(f"the modules don't build for {name} ({kernel.release}); the compiler's "
                      "message is above")
    return kernel, built
