# SPDX-License-Identifier: GPL-2.0-only
"""Debian packages of any suite, unpacked into the cache.

apt works with lists and a cache of its own there, so that the system is left as it is.
The mirrors are those of the system's own sources.
"""

import hashlib
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from .jobs import install, lock, run, scratch, step, text_of
from .output import VmError
from .places import CACHE

# Lists that are younger, in seconds, are not read again.
_FRESH = 600
_NO_SECURITY = ("sid", "experimental")
_TARGETS = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
# The packages that a kernel package cannot do without.
_KERNEL_PACKAGES = re.compile(r"linux-(image|binary|modules|headers|kbuild|source)-")


def codename(os_release: str) -> str:
    """The release's name in the text of /etc/os-release."""
    found = re.search(r"^VERSION_CODENAME=[\"']?([^\"'\n]+)", os_release, re.MULTILINE)
    return found[1] if found else "stable"


def sources_list(targets: str, release: str, suite: str) -> list[str]:
    """apt's sources for a suite ("": the system's own ones; several: "experimental sid"), by
    the mirrors that the system's targets name, each as "URI RELEASE COMPONENT"."""
    made = []
    suites = suite.split()
    for target in sorted(set(targets.splitlines())):
        uri, name, component = (target.split() + ["", "", ""])[:3]
        if not re.match(f"({re.escape(release)}|stable)", name) or component != "main":
            continue
        if not suites:
            made.append(f"deb {uri} {name} {component}")
        elif name in (release, "stable"):
            made += [f"deb {uri} {each} main" for each in suites]
        elif name.endswith("-security"):
            made += [f"deb {uri} {each}-security main" for each in suites
                     if "-" not in each and each not in _NO_SECURITY]
    return made


def dependencies(text: str) -> list[str]:
    """The packages that apt-cache depends prints as dependencies of the package asked for."""
    return re.findall(r"^ *Depends: (\S+)$", text, re.MULTILINE)


@dataclass
class View:
    """apt's view of a suite."""

    suite: str
    options: list[str]

    def _cache(self, *words: str) -> str:
        return text_of(["apt-cache", *self.options, *words])

    def version(self, package: str) -> str:
        """The version of a package that there has to be."""
        found = re.search(r"^Version: (.+)$",
                          self._cache("show", "--no-all-versions", package), re.MULTILINE)
        if not found:
            raise VmError(f"the package {package} isn't in this suite; does apt's mirror carry it?")
        return found[1]

    def has(self, package: str) -> bool:
        """Whether the suite has the package."""
        return "Version: " in self._cache("show", package)

    def names(self, prefix: str) -> list[str]:
        """The names of all packages that start like this."""
        return self._cache("pkgnames", prefix).split()

    def depends(self, package: str) -> list[str]:
        """The packages that a package depends on."""
        return dependencies(self._cache("depends", package))

    def unpack(self, folder: Path, *packages: str) -> Path:
        """Unpack packages, and the kernel packages that they depend on, into the folder's
        subfolder root, and return that."""
        words = self._cache("depends", "--recurse", "--no-recommends", "--no-suggests",
                            "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances",
                            *packages).splitlines()
        more = sorted({word for word in words if _KERNEL_PACKAGES.match(word)} - set(packages))
        debs = folder / "deb"
        debs.mkdir(parents=True)
        log = CACHE / "log"

        def megabytes() -> str:
            size = sum(path.stat().st_size for path in debs.rglob("*") if path.is_file())
            return f"{size >> 20} MB so far"

        step("downloading", log, ["apt-get", *self.options, "-q", "download", *packages, *more],
             cwd=debs, progress=megabytes)
        for deb in sorted(debs.glob("*.deb")):
            if run(["dpkg-deb", "-x", deb, folder / "root"]):
                raise VmError(f"{deb.name} can't be unpacked into {folder}; is the disk full?")
        shutil.rmtree(debs)
        return folder / "root"


_views: dict[str, View] = {}


def view(name: str) -> View:
    """apt's view of a suite ("": the system's own ones), with lists that are read once in
    a run of the tool. "SUITE:ARCH": the packages of another architecture."""
    if name in _views:
        return _views[name]
    suite, _, arch = name.partition(":")
    if not shutil.which("apt-get"):
        raise VmError("kernels come from Debian packages, and this system has no apt-get")
    folder = CACHE / "apt" / ((suite.replace(" ", "-") or "system") + (arch and f"-{arch}"))
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    release = codename(Path("/etc/os-release").read_text())
    lines = sources_list(text_of(["apt-get", "indextargets", "--format", _TARGETS,
                                  "Created-By: Packages"]), release, suite)
    if arch:        # the suite itself: its packages are for tests, which need no updates
        releases = (*(suite or release).split(), "stable")
        lines = [line for line in lines if line.split()[2] in releases]
    if not lines:
        raise VmError(f"apt's sources name no mirror of {release}/main to fetch kernels from; "
                      "add it to /etc/apt/sources.list")
    sources = folder / "sources.list"
    sources.write_text("\n".join(lines) + "\n")
    options = []
    for option in (f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/dev/null",
                   f"Dir::State::Lists={folder}/lists",
                   f"Dir::Cache::pkgcache={folder}/pkgcache.bin",
                   f"Dir::Cache::srcpkgcache={folder}/srcpkgcache.bin",
                   "Acquire::Languages=none", "APT::Sandbox::User=root",
                   *([f"APT::Architecture={arch}", f"APT::Architectures={arch}"] if arch else [])):
        options += ["-o", option]
    # several runs may make kernels of one suite at the same time: one reads the lists, and
    # no other run replaces them while they are in use
    with lock(folder / "lock"):
        stamp = folder / "updated"
        if not stamp.exists() or time.time() - stamp.stat().st_mtime > _FRESH \
                or stamp.read_text() != sources.read_text():
            stamp.unlink(missing_ok=True)
            step(f"reading the package list of {suite or release} {arch}".rstrip(), folder / "log",
                 ["apt-get", *options, "-q", "update"])
            stamp.write_text(sources.read_text())
    _views[name] = View(suite, options)
    return _views[name]


def need_packages(suite: str, packages: list[str]) -> Path:
    """A folder of the cache with these packages unpacked, made if need be. The suite "."
    stands for the system's own, and "SUITE:ARCH" for another architecture's."""
    key = hashlib.sha256((" ".join([suite, *packages]) + "\n").encode()).hexdigest()[:12]
    suite = suite.removeprefix(".")
    folder = CACHE / "packages"
    name = suite.replace(":", "-")
    entry = folder / f"{name if name[:1].isalpha() else 'system' + name}-{key}"
    if entry.is_dir():
        return entry
    with lock(folder / "lock"):
        if not entry.is_dir():
            remove_leftovers(folder)
            with scratch(folder / f".new.{os.getpid()}") as new:
                view(suite).unpack(new, *packages).rename(entry)
    return entry


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed run left behind. The caller holds the folder's lock."""
    for path in folder.glob(".new.*"):
        shutil.rmtree(path, ignore_errors=True)


def need_build_tools() -> None:
    """Install what building and unpacking a kernel takes."""
    install("make", "gcc", "libc6-dev", "kmod", "xz-utils", "bc", "bison", "flex", "libelf-dev",
            "libssl-dev", "dwarves", "patch")
