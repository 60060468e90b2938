# SPDX-License-Identifier: LGPL-2.1-only
"""Limiters: how long a key waits after a failure."""
from . import _abi
from ._lib import in_range, nanoseconds

# A limiter, followed by the limiters that it contains.
Limiter = tuple[_abi.wq_limiter_spec, ...]


def exponential(base: float, longest: float) -> Limiter:
    """base seconds after the first failure, twice as much after each further one, up to longest."""
    return (_abi.wq_limiter_spec(kind=_abi.WQ_LIMITER_EXPONENTIAL, base=nanoseconds(base),
                                 max=nanoseconds(longest)),)


def fast_slow(fast: float, slow: float, n: int) -> Limiter:
    """fast seconds after each of the first n failures of a key, slow seconds after the others."""
    return (_abi.wq_limiter_spec(kind=_abi.WQ_LIMITER_FAST_SLOW, n=in_range("n", n),
                                 base=nanoseconds(fast), max=nanoseconds(slow)),)


def bucket(rate: float, burst: int) -> Limiter:
    """A token bucket that all keys share: rate failures a second, and burst of them at once."""
    # The unit of the kernel's rate is one in 10^9 seconds.
    return (_abi.wq_limiter_spec(kind=_abi.WQ_LIMITER_BUCKET, n=in_range("burst", burst),
                                 rate=nanoseconds(rate)),)


def max_of(*limiters: Limiter) -> Limiter:
    """The longest delay of all limiters."""
    head = _abi.wq_limiter_spec(kind=_abi.WQ_LIMITER_MAX_OF, n=len(limiters))
    return sum(limiters, (head,))


def max_wait(limiter: Limiter, longest: float) -> Limiter:
    """The delay of the limiter, at most longest seconds."""
    return (_abi.wq_limiter_spec(kind=_abi.WQ_LIMITER_MAX_WAIT, max=nanoseconds(longest)), *limiter)
