# SPDX-License-Identifier: GPL-2.0-only
"""The folders that the tool reads and writes, from the environment."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
KERNELS = HERE / "kernels"

# The project whose modules are built. It may be a copy of the one that HERE lies in.
SRC = Path(os.environ.get("WQ_SRC") or HERE.parent.parent)


def _cache() -> Path:
    if os.environ.get("WQ_CACHE"):
        return Path(os.environ["WQ_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "wq")


CACHE = _cache()
JOBS = len(os.sched_getaffinity(0))

# Settings of a calling make or of the user would change how a kernel is built.
for _name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARCH", "CROSS_COMPILE", "KBUILD_OUTPUT",
              "KCONFIG_CONFIG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)
