# SPDX-License-Identifier: LGPL-2.1-only
"""Periodic keys, which end with @ and a schedule."""
import errno
import time

from ._lib import Key, call, checked, key_bytes, key_text, lib

NO_SCHEDULE = {errno.EINVAL: "the key has no schedule, such as @every=5m, see libwq(3)"}


def periodic_name(key: Key) -> str:
    """The part of a key ahead of its schedule, and the key if it has none."""
    data = key_bytes(key)
    return key_text(data[:lib.wq_periodic_name(data, len(data))])


def periodic_watch() -> int:
    """A descriptor that is readable after a set of the clock or a suspend, for move_periodic()."""
    return checked(call(lib.wq_periodic_watch), "periodic_watch")


def periodic_due(key: Key, now: float | None = None) -> float:
    """The first time after now, by default time.time(), at which a key is due. In seconds, as now.

    Raises OSError with EINVAL if the key has no schedule. libwq(3) describes schedules.

    >>> import wq
    >>> wq.periodic_due("backup@every=5m", 1000.0)
    1200.0
    """
    data = key_bytes(key)
    # A float has less digits than ns, and a due time that is passed back must not be due again.
    # ctypes would cut a number of more than 64 bits.
    ns = time.time_ns() if now is None else max(-1, min(round(now * 1e6) * 1000, 2 ** 63 - 1))
    return checked(call(lib.wq_periodic_due, data, len(data), ns), key_text(data),
                   NO_SCHEDULE) / 1e9
