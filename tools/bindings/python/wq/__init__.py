# SPDX-License-Identifier: LGPL-2.1-only
"""Keyed work queues in the Linux kernel.

A queue holds keys: strings of bytes that name work. Producers add keys. Consumers get one key at a
time, do the work, and end the run. Adds of a key that waits are merged into one run, and a key has
at most one consumer. Failed keys come back with growing delays, and the keys of a consumer that
dies go to another one. A run can happen twice, so the work must be idempotent. See wq(4).

>>> import wq
>>> with wq.open() as q:                # wq.open("mail", create=True) for a queue with a name
...     q.add("alice"), q.add("bob"), q.add("alice")
...     q.shut_down()                   # so that the loop ends
...     for item in q:
...         with item:
...             print("deliver to", item.text)
(True, True, False)
deliver to alice
deliver to bob

work() calls a function for each key, in several processes.

The package adds, gets and ends runs by the ioctls of wq(4), and calls libwq for the rest. Queue,
Item and open() describe the calls and their errors.
"""
from ._abi import (VERSION as __version__, WQ_NO_AGEING as NO_AGEING, AddFlag, Attributes, End,
                   FsEvent, Histogram, Info, KeyInfo, KeyState, LastResult, LimiterKind,
                   LimiterSpec, NetTable, Order, Pause, QueueInfo, Result, Source, SourceFlag,
                   SourceState, Stat, State)
from ._items import Items
from ._item import Item
from ._lib import Interrupted, KeysFailed, Key, RestFor, ShutDown, Stale, UnknownKey
from ._limiter import Limiter, bucket, exponential, fast_slow, max_of, max_wait
from ._periodic import periodic_due, periodic_name, periodic_watch
from ._producer import Producer
from ._queue import Access, Queue, info, open, queues, unlink
from ._source import Watched, bpf, fs, net
from ._work import work

__all__ = [
    "Access", "AddFlag", "Attributes", "End", "FsEvent", "Histogram", "Info", "Interrupted", "Item",
    "Items", "Key", "KeyInfo", "KeyState", "KeysFailed", "LastResult", "Limiter", "LimiterKind",
    "LimiterSpec", "NO_AGEING", "NetTable", "Order", "Pause", "Producer", "Queue", "QueueInfo",
    "RestFor", "Result", "ShutDown", "Source", "SourceFlag", "SourceState", "Stale", "Stat", "State",
    "UnknownKey", "Watched", "__version__", "bpf", "bucket", "exponential", "fast_slow", "fs", "info",
    "max_of", "max_wait", "net", "open", "periodic_due", "periodic_name", "periodic_watch", "queues",
    "unlink", "work",
]
