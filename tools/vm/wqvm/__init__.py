# SPDX-License-Identifier: GPL-2.0-only
"""Kernels for wq's modules to be built for, and guests to run them in.

A guest is the host's own file system under another kernel: read-only below an overlay that
is thrown away, but for one shared folder. A guest of another architecture has busybox and bash of
Debian in place of the host's files.

Why not virtme-ng? It boots a kernel on the host's files, too, and would replace guest.py and
initramfs.py, a quarter of this package. The reasons for a tool of its own:

- Debian 12, on which all tests run, has no package of it (Debian 13 has 1.35).
- It runs guests in QEMU only. wq's KUnit suites, its fault injection and its virtual time
  need User-mode Linux: every checker, and no emulated CPU. The suites' guest starts in a
  second there, a stock kernel in an emulated CPU in 8 s.
- Many CI machines have no usable /dev/kvm. This tool looks for the CPU's flag and opens the
  device before it relies on KVM, and emulates the CPU otherwise.
- It passes on the command's exit status. Here a run has passed only if init wrote so on a
  channel of its own, after it removed the modules, scanned for leaks and found the kernel
  neither tainted nor lockdep switched off.
- Most of this package fetches and builds the kernels: of two Debian releases and their
  backports, and with KASAN, lockdep, KCSAN or PREEMPT_RT from source.

The modules, in the order of use:

    output, places      messages and errors, folders, the environment
    jobs                child processes, locks and temporary folders, with their ends
    arch                the differences between architectures
    definition          kernels/*, and the kernels that are in the cache
    apt                 packages of any of Debian's suites
    build               kernels from packages, from source, by clang
    modules             the project's modules for a kernel
    initramfs, guest    a guest's first files; boot, pass on the output, judge
    cli                 the command line
"""
