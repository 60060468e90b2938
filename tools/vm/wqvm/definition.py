# SPDX-License-Identifier: GPL-2.0-only
"""Kernel definitions: the files in kernels/, and the kernels that are in the cache.

A definition has the syntax of shell assignments (name=value, quotes, # comments), but
nothing in it is executed. Its variables are the fields of Definition. The cache holds
one folder for each complete kernel:

    kernels/NAME/VERSION-HASH/  release  kernel  kdir/  [modules] [compiler]

HASH covers the definition and the files that it names, so that a changed definition is
another kernel. The folder is made under another name and renamed when it is complete.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from .arch import ARCHES, Arch
from .output import VmError
from .places import CACHE, KERNELS

_LISTS = ("config", "patches", "make_args")
_WORDS = ("about", "origin", "suite", "headers", "source", "arch", "base", "llvm")


@dataclass
class Definition:
    """How a kernel is made."""

    name: str
    about: str = ""
    origin: str = ""            # the definition's "from": packages, source or clang
    suite: str = ""             # Debian's, or several; empty: this system's
    headers: str = ""           # packages: a regular expression for the headers' package
    source: str = ""            # source: its package
    arch: str = "x86"
    config: list[str] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    make_args: list[str] = field(default_factory=list)
    minutes: int = 5            # what a build takes on 2 idle CPUs
    base: str = ""              # clang: the kernel whose modules clang builds; config changes it
    llvm: str = ""              # clang: the suffix of its programs, e.g. -19
    hash: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the cache that has the kernels of this name."""
        return CACHE / "kernels" / self.name

    @property
    def machine(self) -> Arch:
        """The machine that runs the kernel; User-mode Linux runs on the host."""
        return ARCHES.get(self.arch, ARCHES["x86"])

    @property
    def foreign(self) -> bool:
        """Whether the kernel runs no programs of the host."""
        return self.machine.debian != "amd64"

    def cached(self) -> "Kernel | None":
        """The newest complete kernel of this definition in the cache."""
        found = [path for path in self.folder.glob(f"*-{self.hash}")
                 if not path.name.startswith(".")]
        if not found:
            return None
        return Kernel(self, max(found, key=lambda path: version_key(path.name)))

    def make_flags(self) -> list[str]:
        """The make variables that modules for this kernel need."""
        flags = [] if self.arch == "x86" else [f"ARCH={self.arch}"]
        if self.arch != "um":
            # without the kernel's vmlinux, BTF for modules is only a warning each time
            flags.append("CONFIG_DEBUG_INFO_BTF_MODULES=")
        if self.origin == "clang":
            # a kernel that gcc built looks for calls where objtool, for clang, left nops
            flags.append("CONFIG_FTRACE_MCOUNT_USE_OBJTOOL=")
        if self.llvm:
            flags.append(f"LLVM={self.llvm}")
        return flags


@dataclass
class Kernel:
    """A complete kernel in the cache."""

    definition: Definition
    folder: Path

    @property
    def release(self) -> str:
        """The output of uname -r under this kernel."""
        return (self.folder / "release").read_text().strip()

    @property
    def kdir(self) -> Path:
        """The folder to build modules against."""
        return self.folder / "kdir"

    @property
    def image(self) -> Path | None:
        """The program to boot, if there is one."""
        path = self.folder / "kernel"
        return path if path.exists() else None

    def make_flags(self) -> list[str]:
        """The make variables that modules for this kernel need."""
        flags = self.definition.make_flags()
        compiler = self.folder / "compiler"
        if compiler.exists():
            flags.append(f"CROSS_COMPILE={compiler}/usr/bin/{self.definition.machine.triplet}-")
        # where module/events/Kbuild finds the kernel's types
        return [*flags, f"WQ_BTF={self.image}"] if self.image else flags

    @property
    def smp(self) -> bool:
        """Whether this User-mode Linux can have several CPUs."""
        return "CONFIG_SMP=y" in (self.kdir / ".config").read_text().splitlines()

    @property
    def modules(self) -> Path | None:
        """The kernel's own modules, if it has any."""
        path = self.folder / "modules"
        return path.resolve() if path.exists() else None


def version_key(text: str) -> list[tuple[int, ...] | int]:
    """A sort key that orders names as Debian orders versions: numbers by their value, and
    a tilde before everything, even the end."""
    key: list[tuple[int, ...] | int] = []
    for i, part in enumerate(re.split(r"(\d+)", text)):
        if i % 2:
            key.append(int(part))
        else:
            key.append(tuple(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256
                             for c in part) + (0,))
    return key


def parse(name: str, text: str) -> Definition:
    """Read a definition, without its hash."""
    made = Definition(name)
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise VmError(f"kernels/{name} can't be read: {error}") from error
    for word in words:
        key, equals, value = word.partition("=")
        key = {"from": "origin"}.get(key, key)
        if equals and key in _LISTS:
            setattr(made, key, value.split())
        elif equals and key in _WORDS:
            setattr(made, key, value)
        elif equals and key == "minutes" and value.isdecimal():
            made.minutes = int(value)
        else:
            raise VmError(f"kernels/{name} has \"{word}\"; expected: the fields of Definition in "
                          "tools/vm/wqvm/definition.py, as name=value")
    if made.origin not in ("packages", "source", "clang"):
        raise VmError(f"kernels/{name} needs from=packages, from=source or from=clang")
    if made.arch != "um" and made.arch not in ARCHES:
        raise VmError(f"kernels/{name} has arch={made.arch}; expected: um or one of "
                      f"{' '.join(ARCHES)}")
    return made


def names(folder: Path = KERNELS) -> list[str]:
    """The names of all definitions."""
    found = [path.name for path in folder.iterdir()
             if path.is_file() and path.suffix not in (".config", ".patch")]
    return sorted(found, key=version_key)


def define(name: str, folder: Path = KERNELS) -> Definition:
    """The definition of this name."""
    if name not in names(folder):
        raise VmError(f"there's no kernel \"{name}\"; the names are: {' '.join(names(folder))}")
    made = parse(name, (folder / name).read_text())
    digest = hashlib.sha256()
    for file in [name, *made.base.split(), *made.config, *made.patches]:
        try:
            digest.update((folder / file).read_bytes())
        except FileNotFoundError as error:
            raise VmError(f"kernels/{name} names {file}, which is not in {folder}") from error
    made.hash = digest.hexdigest()[:12]
    return made
