#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The examples of the README and of tools/doc work as printed.  Each command of a
# console block is run, and its output is compared with the block; only times may
# differ.  The C example is built with warnings as errors, and run with and without
# the device.  Prints TAP.  Runs as root with the module loaded.  SRC is the project,
# its tools are built in build/tools.
#
# The tests are called by name.
# shellcheck disable=SC2317
set -eu

: "${SRC:?set SRC to the path of the project}"
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export PATH=$SRC/build/tools:$PATH

# block LANGUAGE FILE HEADING: the blocks of that language below that heading
block() {
	awk -v fence="\`\`\`$1" -v heading="## $3" '
		/^## / { here = $0 == heading; next }
		here && $0 == fence { code = 1; next }
		/^```/ { code = 0 }
		code' "$SRC/$2"
}

# Times in the output, and the width of their columns, differ from run to run.
normalize() {
	sed -E '/^\$ /!{ s/[0-9]+(\.[0-9]+)? ?(ns|us|ms|s|min|h)( |$)/TIME /g; s/ +/ /g; s/ $//; }'
}

# session FILE HEADING: run the commands of a console block in one shell
session() {
	block console "$1" "$2" >"$top/printed"
	grep -q '^\$ wqctl create' "$top/printed"
	awk '/^\$ / {
		shown = $0
		gsub(/\047/, "\047\\\047\047", shown)
		printf "echo \047%s\047\n%s\n", shown, substr($0, 3)
	}' "$top/printed" >"$top/script"
	bash -u "$top/script" >"$top/seen" 2>&1 </dev/null
	normalize <"$top/printed" >"$top/printed.normal"
	normalize <"$top/seen" >"$top/seen.normal"
	diff -U 100 --label printed --label seen "$top/printed.normal" "$top/seen.normal" >"$top/out"
}

shell() { # the README's shell session prints what it shows
	session README.md "Use it from a shell"
}

leases() { # the session with a lease prints what it shows
	session tools/doc/operations.md "Leases"
}

hostile_key() { # a key that is a shell command is not executed by the README's example
	local run
	run=$(block console README.md "Use it from a shell" | sed -n 's/^\$ \(wqctl run .*sh -c.*\)/\1/p')
	[ -n "$run" ]
	wqctl create mail
	wqctl add mail "\$(touch $top/executed)" "; touch $top/executed" "\"; touch $top/executed; \""
	bash -euc "$run" >"$top/out" 2>&1 || echo "exit status $?, expected 0" >>"$top/out"
	wqctl unlink mail
	[ ! -e "$top/executed" ]
	[ "$(grep -c '^deliver to .*touch' "$top/out")" = 3 ]
}

no_key_in_code() { # no example puts a key into the text of a shell command
	grep -nE "(sh|bash) -[a-z]*c ('[^']*\{\}|\"[^\"]*\{\})" "$SRC/README.md" "$SRC"/tools/doc/*.md \
		"$SRC"/tools/man/*.[1345] "$SRC"/tools/wqctl/*.c >"$top/out" || return 0
	return 1
}

build_c() {
	make -s -C "$SRC/tools/lib" O="$SRC/build/tools" PREFIX="$top/usr" install >"$top/out"
	block c README.md "Use it from C" >"$top/mail.c"
	grep -q wq_open "$top/mail.c"
	cd "$top"
	export PKG_CONFIG_PATH=$top/usr/lib/pkgconfig LD_LIBRARY_PATH=$top/usr/lib
	# shellcheck disable=SC2046  # flags
	gcc -Wall -Wextra -Werror -o mail mail.c $(pkg-config --cflags --libs libwq) >"$top/out" 2>&1
}

# expect_failure STATUS TEXT: the C example exited with 1, and its message starts with TEXT
expect_failure() {
	if [ "$1" -ne 1 ] || [[ $(cat "$top/out") != "$2"* ]]; then
		echo "exit status $1, expected 1 and a message that starts with '$2'" >>"$top/out"
		return 1
	fi
}

c() { # the README's C example builds without warnings and delivers to alice
	build_c
	./mail >"$top/out" 2>&1
	[ "$(cat "$top/out")" = "deliver to alice" ]
	# other tests look at all queues
	wqctl unlink mail
}

c_without_device() { # the README's C example fails with a message if there is no /dev/wq
	local status=0
	build_c
	# shellcheck disable=SC2016  # for the inner shell
	unshare --mount sh -c 'mount -t tmpfs none /dev && exec "$1"' sh "$top/mail" \
		>"$top/out" 2>&1 || status=$?
	expect_failure "$status" "mail: mail: No such device"
}

c_after_shutdown() { # the README's C example fails with a message if its queue is shut down
	local status=0
	build_c
	wqctl create mail
	wqctl shutdown mail
	./mail >"$top/out" 2>&1 || status=$?
	wqctl unlink mail
	expect_failure "$status" "mail: mail: "
}

tests=$(sed -n 's/^\([a-z_]*\)() { # .*/\1/p' "$0")
# shellcheck disable=SC2086  # words
set -- $tests
echo "1..$#"
n=0 failed=0
for test; do
	n=$((n + 1))
	name=$(sed -n "s/^$test() { # //p" "$0")
	: >"$top/out"
	# not in a condition, which would switch -e off
	set +e
	(set -e; "$test")
	status=$?
	set -e
	if [ $status -eq 0 ]; then
		echo "ok $n $name"
	else
		sed 's/^/# /' "$top/out"
		echo "not ok $n $name"
		# other tests look at all queues
		wqctl unlink mail 2>/dev/null || true
		wqctl unlink photos 2>/dev/null || true
		failed=1
	fi
done
exit $failed
