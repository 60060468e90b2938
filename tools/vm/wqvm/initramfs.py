# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs of a guest: busybox, init, modules, and the command to run."""

import lzma
import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .definition import Kernel
from .jobs import text_of
from .output import VmError
from .places import HERE

# The modules that mount the host's files, by the option that makes them modules. The
# package's list of built-in modules is not complete, the configuration is.
_BOOT_MODULES = {"VIRTIO_PCI": "virtio_pci", "NET_9P_VIRTIO": "9pnet_virtio", "9P_FS": "9p",
                 "OVERLAY_FS": "overlay"}

# A member: its path, its mode with the type, its content.
Member = tuple[str, int, bytes]


def newc(members: Iterable[Member]) -> bytes:
    """A cpio archive in the format that the kernel unpacks. Folders come before their
    files."""
    archive = bytearray()

    def pad() -> None:
        archive.extend(bytes(-len(archive) % 4))

    for inode, (path, mode, content) in enumerate([*members, ("TRAILER!!!", 0, b"")], 1):
        name = os.fsencode(path) + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
        archive += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        pad()
        archive += content
        pad()
    return bytes(archive)


def folder(path: str) -> Member:
    """A folder in an archive."""
    return path, stat.S_IFDIR | 0o755, b""


def program(path: str, content: bytes) -> Member:
    """An executable file in an archive."""
    return path, stat.S_IFREG | 0o755, content


def boot_modules(config: str) -> list[str]:
    """The modules that a kernel of this configuration needs to mount the host's files."""
    lines = set(config.splitlines())
    return [module for option, module in _BOOT_MODULES.items() if f"CONFIG_{option}=m" in lines]


def insmod_order(text: str) -> list[str]:
    """The files of modprobe --show-depends, each once."""
    return list(dict.fromkeys(re.findall(r"^insmod (\S+)", text, re.MULTILINE)))


def _kernel_modules(kernel: Kernel) -> list[Member]:
    if not kernel.modules:
        return []
    wanted = boot_modules((kernel.kdir / ".config").read_text())
    environment = dict(os.environ, PATH=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    files = insmod_order(text_of(
        ["modprobe", "-d", kernel.modules.parents[2], "-S", kernel.release, "--show-depends", "-a",
         *wanted], env=environment)) if wanted else []
    if wanted and not files:
        raise VmError(f"modprobe finds none of {' '.join(wanted)} for {kernel.release}; remove "
                      f"{kernel.folder} to have the kernel fetched again")
    members = []
    for number, file in enumerate(map(Path, files), 10):
        content = file.read_bytes()
        if file.suffix == ".xz":
            content = lzma.decompress(content)
        members.append((f"wq/boot/{number}-{file.name.removesuffix('.xz')}",
                        stat.S_IFREG | 0o644, content))
    return members


def assignments(values: Mapping[str, object]) -> str:
    """Variables for the guest's shell."""
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def pack(kernel: Kernel, modules: Sequence[Path], values: Mapping[str, object], share: Path,
         command: Sequence[str], busybox: Path) -> bytes:
    """The archive: what init finds in /wq is in the folder wq."""
    init = (HERE / "init").read_bytes()
    run = f"cd {shlex.quote(str(share))} && exec {shlex.join(command)}\n"
    members = [folder(path) for path in ("bin", "dev", "wq", "wq/boot", "wq/ko")]
    members += [program("bin/busybox", busybox.read_bytes()),
                program("init", init), program("wq/init", init)]
    members += _kernel_modules(kernel)
    members += [(f"wq/ko/{number}_{ko.name}", stat.S_IFREG | 0o644, ko.read_bytes())
                for number, ko in enumerate(modules, 10)]
    members += [(f"wq/{name}", stat.S_IFREG | 0o644, content) for name, content in (
        ("env", os.fsencode(assignments(values))), ("cmd", os.fsencode(run)),
        ("bashrc", (HERE / "bashrc").read_bytes()))]
    return newc(members)
