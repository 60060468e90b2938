# SPDX-License-Identifier: GPL-2.0-only
"""Kernels: from Debian's packages, from source, or with modules by clang."""

import contextlib
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import apt
from .arch import Arch
from .definition import Definition, Kernel, define, version_key
from .jobs import install, lock, run, scratch, step, text_of
from .output import VmError, say
from .places import CACHE, JOBS, KERNELS

_SBIN = dict(os.environ, PATH=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
# The compiler of Debian 12.
_GCC = "12"
# Header packages expect to be installed below /.
_INSTALLED = r"(?<![a-zA-Z0-9_.])/usr/(?:src|lib)/linux-(?:headers|kbuild)"


def need_kernel(name: str) -> Kernel:
    """The kernel of this name, made first if it is not in the cache."""
    definition = define(name)
    kernel = definition.cached()
    if kernel:
        return kernel
    with lock(definition.folder / "lock"):
        kernel = definition.cached()
        if kernel:
            return kernel
        apt.need_build_tools()
        kernel = {"source": _from_source, "packages": _from_packages,
                  "clang": _from_clang}[definition.origin](definition)
    say(f"the kernel {name} is ready: {kernel.release}")
    return kernel


def need_source(name: str) -> Path:
    """The source that a kernel is made from, without making the kernel."""
    definition = define(name)
    if definition.origin != "source":
        raise VmError(f"the kernel {name} isn't made from source; uml is, for example")
    kernel = definition.cached()
    if kernel and (kernel.kdir / "source").exists():
        return (kernel.kdir / "source").resolve()
    apt.need_build_tools()
    return _source_tree(definition, definition.source)


@dataclass
class _New:
    """A kernel in the making. The caller holds its lock."""

    definition: Definition
    folder: Path                # where it is made
    entry: Path                 # where it goes

    @property
    def kdir(self) -> Path:
        return self.folder / "kdir"

    @property
    def log(self) -> Path:
        return self.definition.folder / "build.log"


@contextlib.contextmanager
def _making(definition: Definition, version: str) -> Iterator[_New]:
    """A folder for a kernel, which gets its final name when the block succeeds."""
    apt.remove_leftovers(definition.folder)
    entry = definition.folder / f"{version}-{definition.hash}"
    with scratch(definition.folder / f".new.{os.getpid()}") as folder:
        new = _New(definition, folder, entry)
        yield new
        if not new.kdir.is_symlink():
            # newer kernels note their own folder's name
            makefile = new.kdir / "Makefile"
            makefile.write_text(makefile.read_text().replace(f"{folder}/", f"{entry}/"))
        folder.rename(entry)


def move_paths(text: bytes, pattern: str, prefix: str) -> bytes:
    """Put a prefix ahead of each path that the pattern matches."""
    return re.sub(pattern.encode(), lambda found: os.fsencode(prefix) + found[0], text)


def _install_clang(definition: Definition) -> None:
    install(*(f"{name}{definition.llvm}" for name in ("clang", "lld", "llvm")))


# --- from source ---------------------------------------------------------------

def _source_tree(definition: Definition, package: str) -> Path:
    """The unpacked, patched source of a package, shared by the kernels that use it."""
    view = _view_of(definition)
    for name in view.depends(package):
        if re.fullmatch(r"linux-source-[0-9.]*", name):
            package = name
            break
    version = view.version(package)
    patches = b"".join((KERNELS / name).read_bytes() for name in definition.patches)
    folder = CACHE / "src"
    tree = folder / f"{package}-{version}-{hashlib.sha256(patches).hexdigest()[:12]}"
    if tree.is_dir():
        return tree
    # one kernel's run unpacks; the runs for others wait for it
    with lock(folder / f"{tree.name}.lock"):
        if tree.is_dir():
            return tree
        with scratch(folder / f".new.{os.getpid()}") as new:
            root = view.unpack(new, package)
            (new / "tree").mkdir()
            step(f"unpacking {package}", CACHE / "log",
                 ["tar", "-C", new / "tree", "--strip-components=1", "-xf",
                  root / f"usr/src/{package}.tar.xz"])
            for name in definition.patches:
                with (KERNELS / name).open("rb") as patch:
                    if run(["patch", "-s", "-d", new / "tree", "-p1"], stdin=patch, stdout=2):
                        raise VmError(f"{name} doesn't fit {package} {version}; adapt it")
            (new / "tree").rename(tree)
    return tree


def lost_options(fragment: str, config: str) -> list[str]:
    """The lines of a fragment that a configuration did not take: kconfig drops in silence
    what it can't have.  The last of two lines for an option counts."""
    have = set(config.splitlines())
    names = {line.partition("=")[0] for line in have if line.startswith("CONFIG_")}
    wanted = dict(line.split("=", 1) for line in fragment.splitlines()
                  if line.startswith("CONFIG_"))
    return [f"{name}={value}" for name, value in wanted.items()
            if (name in names if value == "n" else f"{name}={value}" not in have)]


def _compiled(log: Path) -> str:
    """How much of a build is done, by its log."""
    return f"{log.read_bytes().count(b'  CC ')} files compiled"


def _fragment(definition: Definition) -> str:
    """The changes of the configuration by a definition."""
    return "".join((KERNELS / name).read_text() for name in definition.config)


def _refuse_lost(new: _New) -> None:
    """Fail if a configuration was made without an option that the definition asks for."""
    lost = lost_options(_fragment(new.definition), (new.kdir / ".config").read_text())
    if lost:
        raise VmError(f"the kernel {new.definition.name} can't have: {' '.join(lost)}; "
                      "fix tools/vm/kernels/")


def _from_source(definition: Definition) -> Kernel:
    image, targets = "arch/x86/boot/bzImage", ["bzImage", "modules"]
    if definition.arch == "um":
        image, targets = "linux", ["linux", "modules"]
    tree = _source_tree(definition, definition.source)
    version = text_of(["make", "-s", "-C", tree, "kernelversion"]).strip()
    with _making(definition, version) as new:
        new.log.write_text("")
        fragment = new.folder / "fragment"
        fragment.write_text(_fragment(definition))
        make: list[str | Path] = ["make", "-C", tree, f"O={new.kdir}", f"ARCH={definition.arch}"]
        if definition.llvm:
            _install_clang(definition)
            make.append(f"LLVM={definition.llvm}")
        step(f"configuring the kernel {definition.name}", new.log,
             [*make, f"KCONFIG_ALLCONFIG={fragment}", "alldefconfig"])
        _refuse_lost(new)
        step(f"building the kernel {definition.name} {new.entry.name}, "
             f"about {definition.minutes} minutes on 2 CPUs", new.log,
             [*make, f"-j{JOBS}", *definition.make_args, *targets,
              # the check of exports takes a fifteenth, and the distribution has done it
              "cmd_check_local_export=:"],
             minutes=definition.minutes, progress=lambda: _compiled(new.log))
        shutil.copy(new.kdir / image, new.folder / "kernel")
        shutil.copy(new.kdir / "include/config/kernel.release", new.folder / "release")
        _remove_objects(new.kdir)
    return Kernel(definition, new.entry)


def _remove_objects(kdir: Path) -> None:
    """Modules need the headers and host programs, not the kernel's own objects."""
    for folder, dirs, files in os.walk(kdir):
        dirs[:] = [name for name in dirs if name not in ("scripts", "tools")]
        for name in files:
            if name.endswith((".o", ".a")):
                os.unlink(os.path.join(folder, name))


# --- from Debian's packages ------------------------------------------------------

def release_of(headers: str, depends: list[str]) -> str:
    """The release that a package of headers is for; a meta package depends on it."""
    for name in depends:
        if re.fullmatch(r"linux-headers-[0-9].*(?<!-common)(?<!-common-rt)", name):
            return name.removeprefix("linux-headers-")
    return headers.removeprefix("linux-headers-")


def series_of(release: str) -> str:
    """The part of a release by which the package of its source is named."""
    return re.sub(r"^(\d+\.\d+).*", r"\1", release)


def need_compiler(arch: Arch) -> Path:
    """The folder with an architecture's cross compiler.

    Its packages stay out of the system, because they conflict with gcc-multilib. Binutils and libc
    do not. The compiler looks for them beside itself.
    """
    install(f"binutils-{arch.triplet}", f"libc6-dev-{arch.debian}-cross")
    folder = apt.need_packages(".", [
        f"gcc-{arch.triplet}", f"gcc-{_GCC}-{arch.triplet}", f"cpp-{_GCC}-{arch.triplet}",
        f"libgcc-{_GCC}-dev-{arch.debian}-cross"])
    for target in (Path("/usr") / arch.triplet, *Path("/usr/bin").glob(f"{arch.triplet}-*")):
        with contextlib.suppress(FileExistsError):
            (folder / target.relative_to("/")).symlink_to(target)
    return folder


def cc(name: str) -> str:
    """The compiler of programs for a kernel, with its options."""
    arch = define(name).machine
    prefix = f"{need_compiler(arch)}/usr/bin/{arch.triplet}-" if arch.triplet else ""
    return prefix + arch.cc


def _view_of(definition: Definition) -> apt.View:
    """apt's view of the suite that has the packages of a kernel."""
    return apt.view(definition.suite + (f":{definition.machine.debian}" if definition.foreign
                                        else ""))


def _from_packages(definition: Definition) -> Kernel:
    view = _view_of(definition)
    # the newest package that matches
    matching = [name for name in view.names("linux-headers-")
                if re.fullmatch(definition.headers, name)]
    if not matching:
        raise VmError(f"the suite {definition.suite or 'of this system'} has no package like "
                      f"kernels/{definition.name} asks for: {definition.headers}")
    headers = max(matching, key=version_key)
    release = release_of(headers, view.depends(headers))
    package = f"linux-headers-{release}"
    with _making(definition, view.version(package)) as new:
        (new.folder / "release").write_text(f"{release}\n")
        # the newest headers may be there some days before their kernel is
        image = f"linux-image-{release}"
        has_image = view.has(image)
        view.unpack(new.folder, package, *([image] if has_image else []))
        if has_image:
            _use_image(new, release)
        _use_headers(new, release)
    return Kernel(definition, new.entry)


def unpacked(image: bytes) -> bytes:
    """The kernel in an image that xz has packed: an emulated CPU would unpack it at each boot, for
    2.5 s. Other formats are quick, and QEMU boots no unpacked kernel without the note for PVH."""
    setup = 512 * (1 + image[0x1f1])
    offset, length = struct.unpack_from("<2I", image, 0x248)
    packed = image[setup + offset:][:length]
    if not packed.startswith(b"\xfd7zXZ\0"):
        return image
    kernel = lzma.LZMADecompressor().decompress(packed)
    notes = (struct.pack("<3I4s", 4, size, 18, b"Xen") for size in (4, 8))
    return kernel if any(note in kernel for note in notes) else image


def _use_image(new: _New, release: str) -> None:
    """Set up kernel and modules."""
    root = new.folder / "root"
    base = root / "usr" if (root / "usr/lib/modules").is_dir() else root
    images = [*root.glob("boot/vmlinu[xz]-*"), base / "lib/modules" / release / "vmlinuz"]
    image = next((path for path in images if path.exists()), None)
    if not image:
        raise VmError(f"the package linux-image-{release} holds no kernel where one is expected: "
                      f"{images[-1].relative_to(root)}")
    content = image.read_bytes()
    (new.folder / "kernel").write_bytes(
        unpacked(content) if new.definition.arch == "x86" else content)
    modules = base / "lib/modules" / release
    (new.folder / "modules").symlink_to(modules.relative_to(new.folder))
    if run(["depmod", "-b", base, release], env=_SBIN, stderr=subprocess.DEVNULL):
        raise VmError(f"depmod fails for the modules of {release}; is the disk full?")


def _use_headers(new: _New, release: str) -> None:
    """Set up kdir from unpacked packages of headers."""
    root = new.folder / "root"
    headers = root / "usr/src" / f"linux-headers-{release}"
    if not headers.is_dir():
        raise VmError(f"the package linux-headers-{release} holds no headers of {release}")
    final = new.entry / "root"
    for folder, dirs, files in os.walk(root / "usr"):
        for path in (Path(folder, name) for name in dirs + files):
            if path.is_symlink() and os.readlink(path).startswith("/usr/"):
                target = f"{final}{os.readlink(path)}"
                path.unlink()
                path.symlink_to(target)
    for folder, dirs, files in os.walk(root / "usr/src"):
        dirs[:] = [name for name in dirs if name != "include"]
        for path in (Path(folder, name) for name in files):
            if path.is_symlink():
                continue
            text = path.read_bytes()
            moved = move_paths(text, _INSTALLED, str(final))
            if moved != text:
                path.write_bytes(moved)
    if not new.definition.foreign and _fits_this_machine(root, headers):
        new.kdir.symlink_to(headers.relative_to(new.folder))
    else:
        _prepare_source(new, release, headers)


def _fits_this_machine(root: Path, headers: Path) -> bool:
    """Whether the compiler that the headers name is here and their host programs run."""
    named = re.findall(r"[a-z0-9_-]*gcc-[0-9]+", "".join(
        path.read_text() for path in (headers / ".kernelvariables", headers / "Makefile")
        if path.exists()))
    if not shutil.which(named[0] if named else "gcc"):
        return False
    programs = [path for path in root.glob("usr/lib/linux-kbuild-*/**/*")
                if re.fullmatch("fixdep|modpost.*|objtool", path.name) and path.is_file()
                and os.access(path, os.X_OK)]
    needed = text_of(["ldd", *programs], stderr=subprocess.STDOUT)
    return not re.search("GLIBC.*not found", needed)


def _prepare_source(new: _New, release: str, headers: Path) -> None:
    """Make kdir from the source, with host programs built here. Its configuration is the
    headers', but for what the definition changes and what this compiler can do."""
    definition = new.definition
    tree = _source_tree(definition, f"linux-source-{series_of(release)}")
    new.kdir.mkdir()
    config = new.kdir / ".config"
    config.write_text((headers / ".config").read_text() + _fragment(definition))
    shutil.copy(headers / "Module.symvers", new.kdir)
    make: list[str | Path] = ["-C", tree, f"O={new.kdir}", f"ARCH={definition.arch}",
                              f"KERNELRELEASE={release}", f"-j{JOBS}"]
    if definition.llvm:
        make.append(f"LLVM={definition.llvm}")
    if definition.machine.triplet:
        compiler = need_compiler(definition.machine)
        (new.folder / "compiler").symlink_to(compiler)
        make.append(f"CROSS_COMPILE={compiler}/usr/bin/{definition.machine.triplet}-")
    step(f"preparing {tree.name} to build modules for {release}, about 2 minutes", new.log,
         ["sh", "-c", 'make "$@" olddefconfig && make "$@" modules_prepare', "sh", *make],
         minutes=2)
    _refuse_lost(new)


# --- by clang --------------------------------------------------------------------

def _from_clang(definition: Definition) -> Kernel:
    """The packaged kernel of another definition, and its source prepared by clang: the
    headers of the package hold what gcc can do. If the definition changes the configuration,
    there is no kernel to boot."""
    base = need_kernel(definition.base)
    _install_clang(definition)
    with _making(definition, base.folder.name.rpartition("-")[0]) as new:
        shutil.copy(base.folder / "release", new.folder)
        for name in ("kernel", "modules") if not definition.config else ():
            (new.folder / name).symlink_to(base.folder / name)
        _prepare_source(new, base.release, base.kdir)
    return Kernel(definition, new.entry)
