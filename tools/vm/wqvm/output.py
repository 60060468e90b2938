# SPDX-License-Identifier: GPL-2.0-only
"""Messages, and the error that ends the tool."""

import sys

# The status of this tool's own failures. A command in the guest rarely ends with it.
FAILED = 125


class VmError(Exception):
    """A failure with a message that names the cause and the next step."""


def say(text: str) -> None:
    """Print a line of progress on standard error, where it can't mix with results."""
    print(f"wq: {text}", file=sys.stderr, flush=True)


def about(seconds: float) -> str:
    """A duration for people: 45 s, 3 min."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
