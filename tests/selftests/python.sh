#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The Python package: see tests/bindings/python.  Prints TAP.  Runs as root with the module loaded.
# SRC is the project, and libwq is built in build/tools.
set -eu
: "${SRC:?set SRC to the path of the project}"
export LD_LIBRARY_PATH="$SRC/build/tools"
exec /usr/bin/python3 "$SRC/tests/bindings/python/test_queue.py" "$@"
