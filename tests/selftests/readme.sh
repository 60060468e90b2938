#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The README's examples work as printed.  Prints TAP.  Runs as root where the
# module is loaded; SRC is the project, its tools are built in build/tools.
#
# The tests are called by name.
# shellcheck disable=SC2317
set -eu

: "${SRC:?set SRC to the path of the project}"
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT

# example HEADING: the lines of code below that heading; the last block of them
example() {
	awk -v heading="## $1" '
		/^## / { here = $0 == heading; next }
		here && /^    / { block = block substr($0, 5) "\n"; after = 0; next }
		here && NF && block { done = block; block = "" }
		here && !NF && block { block = block "\n" }
		END { printf "%s", block ? block : done }' "$SRC/README.md"
}

shell() {
	example "Use it from a shell" >"$top/shell"
	grep -q 'wqctl create' "$top/shell"
	PATH=$SRC/build/tools:$PATH bash -eux "$top/shell" >"$top/out" 2>&1
	[ "$(grep -c '^deliver to' "$top/out")" = 2 ]
	grep -q '^2 added, 1 coalesced$' "$top/out"
	grep -q '^delayed *1$' "$top/out"
}

leases() {
	local got=cat.jpg ran='resized cat.jpg'
	example "Leases" >"$top/leases"
	grep -q 'wqctl create --lease' "$top/leases"
	PATH=$SRC/build/tools:$PATH bash -eux "$top/leases" >"$top/out" 2>&1
	# what it prints, in that order
	[ "$(grep -xE "$got|$ran|too late" "$top/out" | tr '\n' '|')" = "$got|$ran|too late|" ]
	grep -q "does not hold the key '$got'" "$top/out"
	grep -q '^expired *1$' "$top/out"
	grep -q '^dones *1$' "$top/out"
}

c() {
	make -s -C "$SRC/tools/lib" O="$SRC/build/tools" PREFIX="$top/usr" install >"$top/out"
	example "Use it from C" >"$top/mail.c"
	cd "$top"
	export PKG_CONFIG_PATH=$top/usr/lib/pkgconfig LD_LIBRARY_PATH=$top/usr/lib
	# shellcheck disable=SC2046  # flags
	gcc -Wall -Wextra -o mail mail.c $(pkg-config --cflags --libs libwq)
	[ "$(./mail)" = "deliver to alice" ]
	# as the example leaves it; other tests look at all queues there are
	"$SRC/build/tools/wqctl" unlink mail
}

echo 1..3
n=0 failed=0
for test in shell leases c; do
	n=$((n + 1))
	# not in a condition, which would switch -e off
	set +e
	(set -e; "$test")
	status=$?
	set -e
	if [ $status -eq 0 ]; then
		echo "ok $n the README's $test example works as printed"
	else
		sed 's/^/# /' "$top/out"
		echo "not ok $n the README's $test example works as printed"
		failed=1
	fi
done
exit $failed
