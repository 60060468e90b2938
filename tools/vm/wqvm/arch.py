# SPDX-License-Identifier: GPL-2.0-only
"""The differences between the architectures that guests in QEMU have."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arch:
    """An architecture: its names in Debian, its compiler and its machine in QEMU."""

    debian: str
    triplet: str                # of its cross compiler; empty: the host's compiler
    cc: str                     # what compiles programs, behind the path of the triplet
    package: str                # of QEMU
    qemu: str
    machine: str
    cpu: str                    # without KVM
    console: str
    bus: str = "pci"            # of virtio's devices
    append: str = ""            # kernel arguments
    kvm: bool = False           # whether the host may run its code
    firmware: str = ""          # its package, if QEMU's own packages have none


# erms, fsrm: an emulated CPU executes the fast string instructions byte by byte. Without them
# kernel and programs copy by words, and starts of programs take a quarter less of the host's CPU.
_X86_CPU = "max,la57=off,erms=off,fsrm=off"
# no_timer_check: on a busy host the kernel can miss the timer's interrupts while it counts them,
# and stop with "IO-APIC + timer doesn't work!".
_X86_APPEND = "no_timer_check"

# By the kernel's names.
ARCHES = {
    # The machine is q35, whose ACPI tables list the interrupt of each PCI slot. In those of QEMU's
    # default machine, a method computes the list in a loop, once for each device. With PREEMPT_RT
    # and lockdep in a busy emulated CPU the loop takes more than 30 s. Then the kernel aborts it,
    # and the device has no interrupt.
    "x86": Arch("amd64", "", "gcc", "qemu-system-x86", "qemu-system-x86_64", "q35", _X86_CPU,
                "ttyS0", append=_X86_APPEND, kvm=True),
    # A 32-bit kernel warns of several CPUs that are an AMD of 1999.
    "i386": Arch("i386", "", "gcc -m32", "qemu-system-x86", "qemu-system-x86_64", "q35",
                 f"{_X86_CPU},vendor=GenuineIntel", "ttyS0", append=_X86_APPEND, kvm=True),
    # The CPU has pages of 4, 16 and 64 KiB, and runs 32-bit programs.
    "arm64": Arch("arm64", "aarch64-linux-gnu", "gcc", "qemu-system-arm", "qemu-system-aarch64",
                  "virt", "cortex-a76", "ttyAMA0"),
    # Without highmem the registers of PCI are where a kernel without LPAE can map them.
    "arm": Arch("armhf", "arm-linux-gnueabihf", "gcc", "qemu-system-arm", "qemu-system-arm",
                "virt,highmem=off", "cortex-a15", "ttyAMA0"),
    "riscv": Arch("riscv64", "riscv64-linux-gnu", "gcc", "qemu-system-riscv", "qemu-system-riscv64",
                  "virt", "rv64", "ttyS0", firmware="opensbi"),
    "s390": Arch("s390x", "s390x-linux-gnu", "gcc", "qemu-system-s390x", "qemu-system-s390x",
                 "s390-ccw-virtio", "max", "ttysclp0", bus="ccw"),
}
