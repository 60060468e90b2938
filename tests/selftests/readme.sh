#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The examples of the README and of tools/doc work as printed.  Each command of a
# console block is run, and its output is compared with the block; only times may
# differ.  The C example is built with warnings as errors, and run with and without
# the device.  Prints TAP.  Runs as root with the module loaded.  SRC is the project,
# its tools are built in build/tools, and SOURCES is the directory of the modules of sources.
#
# The tests run through their names, and some text is for an inner shell.
# shellcheck disable=SC2317,SC2016
set -u

: "${SRC:?set SRC to the path of the project}" "${SOURCES:?set SOURCES to the directory of wq_fs.ko}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"
export PATH=$SRC/build/tools:$PATH

# Other tests look at all queues.
cleanup() {
	umount /srv /usr/local/bin /backup
	busybox rmmod wq_fs
	wqctl unlink builds
	wqctl unlink deliveries
	wqctl unlink hook
	wqctl unlink hooks
	wqctl unlink index
	wqctl unlink jobs
	wqctl unlink mail
	wqctl unlink mirrors
	wqctl unlink photos
	wqctl unlink report
	wqctl unlink thumbnails
} 2>/dev/null

explain() { sed 's/^/# /' "$out"; }

# block LANGUAGE FILE HEADING: the blocks of that language below that heading.  "LANGUAGE N" is the Nth
block() {
	awk -v language="$1" -v heading="## $3" '
		BEGIN { split(language, part, " "); fence = "```" part[1] }
		/^## / { here = $0 == heading; next }
		here && $0 == fence { code = ++n == part[2] || !part[2]; next }
		/^```/ { code = 0 }
		code' "$SRC/$2"
}

# Times in the output, and the width of their columns, differ from run to run.
normalize() {
	sed -E '/^\$ /!{ s/[0-9]+(\.[0-9]+)? ?(ns|us|ms|s|min|h)( |$)/TIME /g; s/ +/ /g; s/ $//; }'
}

# session FILE HEADING [LANGUAGE]: run the commands of a console block in one shell
session() {
	block "${3-console}" "$1" "$2" >"$dir/printed"
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

# How each block of code of the operations page is tested: by a function, which gets the name of its
# section, and the text in $block; or elsewhere, with the reason.
declare -A recipes=(
	["Secure Boot: console"]="elsewhere: no guest has Secure Boot; tests/packaging compares the messages"
	["Containers: console"]=shows
	["Containers: console 2"]="elsewhere: it needs crun and a root that is mounted; tests/packaging runs it"
	["Attributes: console"]=shows
	["Order and longest deferral: sh"]=defers
	["Periodic keys: sh"]=is_due
	["Keys that are processing at once: sh"]=limits
	["Keys that start in a time: sh"]=starts_at_a_rate
	["Keys that start in a time: sh 2"]=groups_start_at_a_rate
	["A service that asks for a rest: sh"]=rests
	["Leases: console"]=shows
	["Keys that fail for ever: console"]=shows
	["Pause: console"]=shows
	["Wait for a key, and disable a key: sh"]=waits
	["Run a command as a service: ini"]=sets_run
	["Jobs of other tools: sh"]=builds_once
	["Jobs of other tools: sh 2"]=restarts
	["Jobs of other tools: console"]=shows
	["Jobs of other tools: console 2"]=shows
	["Watch as a service: ini"]=watches
)
operations=tools/doc/operations.md

shows() { session "$operations" "$1" "$language"; }

# as_printed STATUS...: each line of the block, which exits so
as_printed() {
	local line
	while IFS= read -ru 4 line; do
		[ "${line:0:1}" != "#" ] || continue
		status "$1" bash -uc "$line"
		shift
	done 4<<<"$block"
	is "lines that are left" 0 $#
}

defers() {
	as_printed 0 0
	wqctl show --json index docs >"$out"
	holds '.state == ["delayed"] and .due_ns > 0 and .due_ns <= 10000000000'
	is max_defer_ns 300000000000 "$(q=index WQCTL=wqctl stats max_defer_ns)"
}

# The last command does not end by itself.
rests() {
	local worker all=$block
	program deliver "echo \$1 >>$dir/ran; case \$1 in example.com/*) exit 75; esac"
	block=$(sed '$d' <<<"$all")
	as_printed 0 0
	PATH=/usr/local/bin:$PATH bash -uc "exec $(sed -n '$p' <<<"$all")" &
	worker=$!
	eventually ran 2
	kill "$worker"
	wait "$worker"
	is runs "example.com/1 example.org/1" "$(paste -sd ' ' "$dir/ran")"
	wqctl groups deliveries >"$out"
	matches "the rest" '1 +0 +0 +1 +[1-5][0-9]\.?[0-9]*s +example.com/|1 +1 +0 +1 +[1-5][0-9]\.?[0-9]*s +example.com/' "$(<"$out")"
	umount /srv /usr/local/bin
}

limits() {
	as_printed 0 0
	is max_processing 5 "$(q=report WQCTL=wqctl stats max_processing)"
}

is_due() {
	wqctl create jobs
	as_printed 0 0 0
	wqctl ls --due jobs >"$out"
	has poll "poll@every=5m,jitter=30s" "$(<"$out")"
	has report "report@at=03:00" "$(<"$out")"
}

starts_at_a_rate() {
	as_printed 0 0
	is start_rate "50 20" "$(q=hook WQCTL=wqctl stats start_rate start_burst)"
}

groups_start_at_a_rate() {
	as_printed 0
	is group_start_rate "100 20" \
		"$(q=hooks WQCTL=wqctl stats group_start_rate group_start_burst)"
}

# The second command finds no run, as the first one has waited for it.
waits() {
	local worker
	wqctl create builds
	wqctl run -q builds -- true &
	worker=$!
	as_printed 0 3 0 0
	kill "$worker"
	wait "$worker"
}

# Words of a unit that systemd does not know
unknown() {
	printf '%s\n' "$1" "[Service]" ExecStart=/bin/true >"$dir/recipe.service"
	systemd-analyze verify --man=no "$dir/recipe.service" 2>&1 | grep -i "recipe.service.*\(unknown\|fail\|invalid\|ignor\)"
}

# systemd splits the variable into words of the command.
sets_run() {
	local run
	is unknown "" "$(unknown "$block")"
	run=$(sed -n 's/^Environment="WQ_RUN=\(.*\)"$/\1/p' <<<"$block")
	is_not "the options" "" "$run"
	wqctl create mail
	wqctl add mail alice
	# shellcheck disable=SC2086 # options
	status 0 wqctl run --once $run mail -- true
}

# program NAME TEXT: a program in /usr/local/bin, and an empty /srv that can be watched
program() {
	busybox insmod "$SOURCES/wq_fs.ko" 2>/dev/null
	mount -t tmpfs none /srv
	mount -t tmpfs none /usr/local/bin
	printf '#!/bin/sh\n%s\n' "$2" >/usr/local/bin/"$1"
	chmod +x /usr/local/bin/"$1"
	: >"$dir/ran"
}

ran() { [ "$(grep -c . "$dir/ran")" -ge "$1" ]; }

builds_once() {
	local worker file
	program make "echo \$2: \$(sort | paste -sd ' ') >>$dir/ran"
	PATH=/usr/local/bin:$PATH bash -uc "exec $block" &
	worker=$!
	changes() { : >/srv/first.c; nap 1; ran 1; }
	eventually changes
	nap 2
	: >"$dir/ran"
	for file in a.c b.c c.h d.c; do : >"/srv/$file"; done
	eventually ran 1
	nap 1
	is "builds" "/srv: a.c b.c d.c" "$(<"$dir/ran")"
	kill "$worker"
	wait "$worker"
	is status 0 $?
	umount /srv /usr/local/bin
}

restarts() {
	local worker
	program server "echo start >>$dir/ran; exec sleep 1000"
	bash -uc "exec $block" &
	worker=$!
	eventually ran 1
	touch /srv/file
	eventually ran 2
	kill "$worker"
	wait "$worker"
	is status 0 $?
	umount /srv /usr/local/bin
}

watches() {
	local command worker
	is unknown "" "$(unknown "$(grep -v ^ExecStart= <<<"$block")")"
	command=$(sed -n 's/^ExecStart=//p' <<<"$block")
	is_not "the command" "" "$command"
	program backup "echo \"\$1\" >>$dir/ran"
	bash -uc "exec $command" &
	worker=$!
	eventually grep -qx /srv/ "$dir/ran"
	echo text >/srv/file
	eventually grep -qx /srv/file "$dir/ran"
	kill "$worker"
	wait "$worker"
	is status 0 $?
	umount /srv /usr/local/bin
}

# Each block of the operations page: SECTION: LANGUAGE, and a number if it is not the first one of both
blocks_of_operations() {
	awk '/^## / { section = substr($0, 4) }
		/^```/ && !code { n = ++seen[section, $0]
			print section ": " substr($0, 4) (n > 1 ? " " n : ""); code = 1; next }
		/^```/ { code = 0 }' "$SRC/$operations"
}

test_each_recipe_of_operations_works_as_printed_or_has_a_reason() {
	local recipe name language block found
	found=$(blocks_of_operations | sort)
	is "blocks without a language" "" "$(grep -E ': ( [0-9]+)?$' <<<"$found")"
	is "recipes without a block" "" "$(printf '%s\n' "${!recipes[@]}" | grep -vxF "$found")"
	while IFS= read -ru 3 recipe; do
		name=${recipe%: *} language=${recipe##*: }
		[[ $language = *' '* ]] || language+=" 1"
		block=$(block "$language" "$operations" "$name")
		case ${recipes[$recipe]-} in
		elsewhere:*) ;;
		'') fail "$recipe: expected a function or a reason in recipes" ;;
		*) "${recipes[$recipe]}" "$name" || fail "$recipe: expected to work as printed" "$(<"$out")" ;;
		esac
		echo "# $recipe: ${recipes[$recipe]-}" | sed 's/\(: elsewhere\):.*/\1/'
	done 3<<<"$found"
}

# With rsync itself, the copy follows files, directories and names that look like options.
test_watch_example_keeps_a_copy_equal_for_any_name() {
	local command worker
	command=$(sed -n '/^    sudo wqctl watch/,/[^\\]$/p' "$SRC/README.md" | sed 's/^ *sudo//')
	has "the command" "rsync " "$command"
	program none ''
	rm /usr/local/bin/none
	mkdir -p /backup /srv/dir/sub /srv/gone
	mount -t tmpfs none /backup
	touch /srv/dir/sub/file /srv/gone/file
	bash -uc "exec $command" 2>"$err" &
	worker=$!
	equal() { diff -r /srv /backup >"$out" 2>&1; }
	eventually equal
	(cd /srv && touch -- -n --help 'a b' $'new\nline' x:y '*' && mkdir -p -- -d/e &&
		touch -- -d/e/f && rm -r dir/sub/file gone && mv dir moved)
	eventually equal
	exists "/backup/moved/sub"
	kill "$worker"
	wait "$worker"
	is status 0 $?
	umount /srv /backup /usr/local/bin
}

test_a_service_that_stops_waits_90_s_at_most_for_its_commands() {
	is "its time" TimeoutStopSec=90s "$(grep ^TimeoutStopSec "$SRC/tools/system/systemd/wq-run@.service")"
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

test_selftests_refuse_a_machine_without_the_module() {
	local test
	for test in queue libwq load readme.sh; do
		[ -e "${0%/*}/$test" ] || test=faults/$test
		reports 2 "${test##*/}: the module wq is not loaded; run the test in a guest: tools/vm/vm run" \
			unshare --mount sh -c 'mount -t tmpfs none /sys/module && mount -t tmpfs none /run && "$1"' \
			sh "$(readlink -f "${0%/*}/$test")"
	done
}

run_tests "$@"
