#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Sample of 8 workers that fetch pages, as fast as the servers allow.

    wqctl create --order groups:/ --start-rate 20/s --limiter exponential:1s:1h --max-retries 9 web
    wqctl add web example.com/1 example.com/2 example.org/1
    fetch.py web

A key is a URL without its scheme, so the group of a key is its server. The start rate limits the
requests of all workers together. If a server answers with status 429 or 503 and a time in
Retry-After, its group rests: workers get none of its keys before the time, and go on with other
servers. All other errors are failures: the queue retries the key after a delay that grows, and
parks it after the last retry. Ctrl-C ends the workers.
"""
import argparse
import contextlib
import datetime
import email.utils
import http.client
import signal
import sys
import urllib.error
import urllib.parse
import urllib.request
from types import FrameType

import wq

WORKERS = 8
TIMEOUT = 30            # seconds for a whole request, with redirects and the body
LONGEST = 3600          # seconds of a rest, after which the server is asked again
scheme = "https"


def time_of(date: str) -> float:
    # HTTP has three forms of a date, one of them without a zone. All are in GMT.
    return email.utils.parsedate_to_datetime(date).replace(tzinfo=datetime.timezone.utc).timestamp()


def retry_after(answer: urllib.error.HTTPError) -> float:
    """The seconds for which the server wants no request; 0: it names none that make sense."""
    try:
        text = answer.headers["Retry-After"].strip()
        if text.isdecimal():
            return float(text)
        # By the server's clock, because this machine's can differ.
        now = answer.headers.get("Date", email.utils.formatdate())
        return max(0, time_of(text) - time_of(now))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return 0


def late(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"timed out after {TIMEOUT} s")


def size_of(url: str) -> int:
    """Fetch a page. A redirect is a further request, which the start rate does not count."""
    size = 0
    # The timeout of urlopen() is for each step, and a slow server can take many steps.
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            while piece := answer.read(65536):
                size += len(piece)
            # A read of a part does not raise this itself.
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return size


def fail(item: wq.Item, error: Exception) -> None:
    # repr(), because keys and answers can have control characters.
    print(f"{item.text!r}: {error!r}, failure {item.failures + 1}", flush=True)
    item.retry(reason=str(error))


def fetch(item: wq.Item) -> None:
    url = f"{scheme}://{item.text}"
    try:
        size = size_of(url)
    except urllib.error.HTTPError as answer:
        with answer:
            seconds = retry_after(answer) if answer.code in (429, 503) else 0
        if not seconds:
            fail(item, answer)
            return
        server, rest = urllib.parse.urlsplit(answer.url).netloc, min(seconds, LONGEST)
        print(f"{server!r} wants no request for {seconds:g} s, and has none for {rest:g} s",
              flush=True)
        if server == urllib.parse.urlsplit(url).netloc:
            raise wq.RestFor(rest)
        # A redirect led to a server that is not this group's.
        item.retry(after=rest)
    except (OSError, ValueError, http.client.HTTPException) as error:
        fail(item, error)
    else:
        print(f"{item.text!r} has {size} bytes", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fetch the URLs that are the keys of a queue.")
    parser.add_argument("--scheme", choices=["http", "https"], default=scheme)
    parser.add_argument("queue")
    arguments = parser.parse_args()
    scheme = arguments.scheme
    signal.signal(signal.SIGALRM, late)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            wq.work(fetch, arguments.queue, processes=WORKERS)
    except OSError as error:
        sys.exit(f"fetch.py: {error}")
