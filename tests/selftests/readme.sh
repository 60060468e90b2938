#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The examples of the README and of tools/doc work as printed.  Each command of a
# console block is run, and its output is compared with the block; only times may
# differ.  The C example is built with warnings as errors, and run with and without
# the device.  Prints TAP.  Runs as root with the module loaded.  SRC is the project,
# its tools are built in build/tools.
#
# The tests run through their names.
# shellcheck disable=SC2317
set -u

: "${SRC:?set SRC to the path of the project}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"
export PATH=$SRC/build/tools:$PATH

# Other tests look at all queues.
cleanup() {
	wqctl unlink mail
	wqctl unlink mirrors
	wqctl unlink photos
	wqctl unlink thumbnails
} 2>/dev/null

explain() { sed 's/^/# /' "$out"; }

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
	block console "$1" "$2" >"$dir/printed"
	grep -q '^\$ wqctl create' "$dir/printed"
	awk '/^\$ / {
		shown = $0
		gsub(/\047/, "\047\\\047\047", shown)
		printf "echo \047%s\047\n%s\n", shown, substr($0, 3)
	}' "$dir/printed" >"$dir/script"
	bash -u "$dir/script" >"$dir/seen" 2>&1 </dev/null
	normalize <"$dir/printed" >"$dir/printed.normal"
	normalize <"$dir/seen" >"$dir/seen.normal"
	diff -U 100 --label printed --label seen "$dir/printed.normal" "$dir/seen.normal" >"$out"
}

test_shell_session_prints_what_it_shows() {
	set -e
	session README.md "Use it from a shell"
}

test_lease_session_prints_what_it_shows() {
	set -e
	session tools/doc/operations.md "Leases"
}

test_pause_session_prints_what_it_shows() {
	set -e
	session tools/doc/operations.md "Pause"
}

test_attribute_session_prints_what_it_shows() {
	set -e
	session tools/doc/operations.md "Attributes"
}

test_shell_example_does_not_execute_a_key() {
	set -e
	local run
	run=$(block console README.md "Use it from a shell" | sed -n 's/^\$ \(wqctl run .*sh -c.*\)/\1/p')
	[ -n "$run" ]
	wqctl create mail
	wqctl add mail "\$(touch $dir/executed)" "; touch $dir/executed" "\"; touch $dir/executed; \""
	succeeds bash -euc "$run" >"$out" 2>&1
	exists_no "$dir/executed"
	is "lines of deliveries" 3 "$(grep -c '^deliver to .*touch' "$out")"
}

test_no_example_puts_a_key_into_a_shell_command() {
	set -e
	grep -nE "(sh|bash) -[a-z]*c ('[^']*\{\}|\"[^\"]*\{\})" "$SRC/README.md" "$SRC"/tools/doc/*.md \
		"$SRC"/tools/man/*.in "$SRC"/tools/wqctl/*.c >"$out" || return 0
	return 1
}

# Once for all tests.
build_c() {
	mkdir -p "$top/c"
	cd "$top/c"
	export PKG_CONFIG_PATH=$PWD/usr/lib/pkgconfig LD_LIBRARY_PATH=$PWD/usr/lib
	[ ! -x mail ] || return 0
	make -s -C "$SRC/tools/lib" O="$SRC/build/tools" PREFIX="$PWD/usr" install >"$out"
	block c README.md "Use it from C" >mail.c
	grep -q wq_open mail.c
	# shellcheck disable=SC2046  # flags
	gcc -Wall -Wextra -Werror -o mail mail.c $(pkg-config --cflags --libs libwq) >"$out" 2>&1
}

# expect_failure TEXT COMMAND...: it exits with 1, and its message starts with TEXT
expect_failure() {
	status 1 "${@:2}"
	is "start of the message" "$1" "$(head -c ${#1} "$err")"
}

test_c_example_builds_without_warnings_and_delivers() {
	set -e
	build_c
	succeeds ./mail >"$out" 2>&1
	is output "deliver to alice" "$(<"$out")"
}

test_c_example_without_device_fails_with_a_message() {
	set -e
	build_c
	# shellcheck disable=SC2016  # for the inner shell
	expect_failure "mail: mail: No such device" \
		unshare --mount sh -c 'mount -t tmpfs none /dev && exec "$1"' sh "$PWD/mail"
}

test_c_example_after_shutdown_fails_with_a_message() {
	set -e
	build_c
	wqctl create mail
	wqctl shutdown mail
	expect_failure "mail: mail: " ./mail
}

run_tests "$@"
