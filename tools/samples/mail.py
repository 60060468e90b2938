#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Sample of a worker that retries: "mail.py alice bob" adds names, "mail.py" delivers to each.

Ctrl-C ends the worker.
"""
import contextlib
import sys

import wq


def deliver(name: str) -> None:
    """The work, which can fail."""
    if name == "nobody":
        raise LookupError("no such user")
    print(f"deliver to {name}", flush=True)


with (contextlib.suppress(KeyboardInterrupt),
      wq.open("mail", create=True, max_retries=3, limiter=wq.exponential(0.01, 60)) as queue):
    if sys.argv[1:]:
        print(f"{queue.add_many(sys.argv[1:])} added")
        sys.exit()
    for item in queue:
        try:
            with item:
                deliver(item.text)
        except LookupError as error:
            print(f"{item.text}: {error}, failure {item.failures + 1}", flush=True)
