# SPDX-License-Identifier: LGPL-2.1-only
"""Limiters: how long a key waits after a failure."""
from ctypes import Array

from . import _abi
from ._abi import LimiterKind, LimiterSpec
from ._lib import in_range, nanoseconds

# A limiter, followed by the limiters that it contains.
Limiter = tuple[LimiterSpec, ...]


def _one(kind: LimiterKind, *, n: int = 0, base: float = 0, longest: float = 0,
         rate: float = 0) -> Limiter:
    # The unit of the kernel's rate is one in 10^9 seconds.
    return (LimiterSpec(kind, n, nanoseconds(base), nanoseconds(longest), nanoseconds(rate)),)


def exponential(base: float, longest: float) -> Limiter:
    """base seconds after the first failure, twice as much after each further one, up to longest."""
    return _one(LimiterKind.EXPONENTIAL, base=base, longest=longest)


def fast_slow(fast: float, slow: float, n: int) -> Limiter:
    """fast seconds after each of the first n failures of a key, slow seconds after the others."""
    return _one(LimiterKind.FAST_SLOW, n=in_range("n", n), base=fast, longest=slow)


def bucket(rate: float, burst: int) -> Limiter:
    """A token bucket that all keys share: rate failures a second, and burst of them at once."""
    return _one(LimiterKind.BUCKET, n=in_range("burst", burst), rate=rate)


def max_of(*limiters: Limiter) -> Limiter:
    """The longest delay of all limiters."""
    return sum(limiters, _one(LimiterKind.MAX_OF, n=len(limiters)))


def max_wait(limiter: Limiter, longest: float) -> Limiter:
    """The delay of the limiter, at most longest seconds."""
    return _one(LimiterKind.MAX_WAIT, longest=longest) + limiter


def specs_of(limiter: Limiter) -> Array[_abi.wq_limiter_spec]:
    """The parts of a limiter for libwq."""
    return (_abi.wq_limiter_spec * len(limiter))(
        *(_abi.wq_limiter_spec(spec.kind, spec.n, spec.base, spec.max, spec.rate)
          for spec in limiter))
