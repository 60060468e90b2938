#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The cost of the Python package for the work of user.c, with the same commands and output.

usage: user.py MEASUREMENT N M
"""
import sys
import time
from collections.abc import Callable

import wq


def keys_of(n: int) -> list[bytes]:
    """Keys of 16 bytes."""
    return [b"default/%08x" % i for i in range(n)]


def measure(n: int, m: int, operation: Callable[[bytes], object]) -> None:
    """The operation for each of n keys, and then m times."""
    keys = keys_of(n)
    for key in keys:
        operation(key)
    start = time.monotonic_ns()
    for i in range(m):
        operation(keys[i % n])
    print(f"each {(time.monotonic_ns() - start) / m:.3f}")


def one(n: int, m: int) -> None:
    """add, get and done: three calls."""
    with wq.open() as queue:
        def operation(key: bytes) -> None:
            queue.add(key)
            queue.get(0).done()
        measure(n, m, operation)


def array(n: int, m: int) -> None:
    """The same work in arrays of n keys, m keys in all."""
    keys = keys_of(n)
    with wq.open() as queue:
        start = time.monotonic_ns()
        for _ in range(m // n):
            queue.add_many(keys)
            batch = queue.get_many(n, 0)
            if len(batch) != n:
                raise RuntimeError(f"expected {n} keys, got {len(batch)}")
            batch.done()
        print(f"each {(time.monotonic_ns() - start) / (m // n * n):.3f}")


def repeat(n: int, m: int) -> None:
    """A repeat add of one of n keys that wait."""
    with wq.open() as queue:
        measure(n, m, queue.add)


COMMANDS = {"one": one, "array": array, "repeat": repeat}

if len(sys.argv) != 4 or sys.argv[1] not in COMMANDS:
    sys.exit(__doc__)
COMMANDS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
