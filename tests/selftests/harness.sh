# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# The harness of the script tests.  A script sources this file, defines functions
# test_NAME, and calls run_tests "$@": all tests in the order of the file, or those
# named.  The output is TAP; a test that fails prints what it expected and what it saw.
#
# Each test runs in a shell of its own, with an empty directory $dir, for $time_limit
# seconds at most.  When it ends, its processes are killed.  A script may define three
# functions, which run in the script's own shell:
#
#	setup	before each test
#	explain	after a test that failed, before cleanup
#	cleanup	after each test, and when the script is interrupted
#
# Starting a program is slow in an emulated CPU, so the helpers use shell builtins.
#
# If the module is not loaded, and the machine is no guest of tools/vm, no test runs: see wq_guest.h.
#
# The functions run through their names, and the tests use the variables.
# shellcheck disable=SC2317,SC2034

if [ ! -e /sys/module/wq ] && [ ! -e /run/wq/ko ]; then
	name=${0##*/}
	echo "$name: the module wq is not loaded; run the test in a guest:" \
		"tools/vm/vm run --smp 2 -- build/tests/run $name" >&2
	exit 2
fi

: "${time_limit:=300}" "${eventually_limit:=20}"
top=$(mktemp -d)
dir=$top out=$top/out err=$top/err
test_pid='' watchdog=''
setup() { :; }
explain() { :; }
cleanup() { :; }

# nap SECONDS: sleep without a process
exec {never}<> <(:)
nap() { ! read -rt "$1" -u "$never"; }	# a timeout is its success: nap can be a test's last command

# ---- expectations: each ends the test when it does not hold

fail() { printf '# %s\n' "${@//$'\n'/$'\n# '}"; exit 1; }

# expected WHAT EXPECTED SEEN: fails with both, quoted and cut to 999 bytes
expected() { fail "$(printf '%s: expected %q, seen %q' "$1" "${2:0:999}" "${3:0:999}")"; }

# is WHAT EXPECTED SEEN: equal texts
is() { [ "$2" = "$3" ] || expected "$@"; }

# is_not WHAT UNEXPECTED SEEN
is_not() { [ "$2" != "$3" ] || fail "$(printf '%s: expected anything but %q' "$1" "${2:0:999}")"; }

# among WHAT LEAST MOST SEEN: a number in this range
among() {
	[[ $4 =~ ^-?[0-9]+$ && $4 -ge $2 && $4 -le $3 ]] || fail "$1: expected $2 to $3, seen '$4'"
}

# matches WHAT REGEX SEEN
matches() {
	[[ $3 =~ $2 ]] ||
		fail "$(printf '%s: expected a match of %s, seen %q' "$1" "$2" "${3:0:999}")"
}

# has WHAT TEXT SEEN, has_no WHAT TEXT SEEN: TEXT is, or is not, part of SEEN
has() { [[ $3 = *"$2"* ]] || fail "$(printf '%s: expected %q in %q' "$1" "$2" "${3:0:999}")"; }
has_no() { [[ $3 != *"$2"* ]] || fail "$(printf '%s: expected no %q in %q' "$1" "$2" "${3:0:999}")"; }

exists() { [ -e "$1" ] || fail "$1: expected to exist"; }
exists_no() { [ ! -e "$1" ] || fail "$1: expected not to exist"; }

# status EXPECTED COMMAND...: the exit status; standard output is then in $out and standard
# error in $err
status() {
	local want=$1 got=0
	shift
	"$@" >"$out" 2>"$err" || got=$?
	[ $got -eq "$want" ] || fail "$*: expected exit status $want, seen $got" "$(<"$err")"
}

# reports STATUS TEXT COMMAND...: the exit status, and a text in standard error
reports() {
	status "$1" "${@:3}"
	prints "$2"
}

# succeeds COMMAND...: as status 0, without a change of $out and $err
succeeds() {
	local got=0
	"$@" || got=$?
	[ $got -eq 0 ] || fail "$*: expected exit status 0, seen $got"
}

# prints TEXT: standard error ($err) contains TEXT; printed TEXT: the condition alone
printed() { [[ $(<"$err") = *"$1"* ]]; } 2>/dev/null
prints() { printed "$1" || fail "$(printf 'standard error: expected %q in it, seen:' "$1")" "$(<"$err")"; }

# holds FILTER...: each of jq's filters is true for $out.  jq is slow to start in an emulated CPU,
# so one jq evaluates all filters of a test when that ends, each for $out as it was.
holds() {
	local filter text
	IFS= read -rd '' text <"$out"
	[ -n "$text" ] || fail "expected $1, seen no output"
	for filter; do
		printf '%s\0' "$filter" >>"$top/filters"
		printf '%s\0' "$text" >>"$top/texts"
	done
}

all_hold() {
	local filters texts results i program=
	mapfile -d '' filters <"$top/filters"
	mapfile -d '' texts <"$top/texts"
	for i in "${!filters[@]}"; do
		program+="(\$ARGS.positional[$i] | try (fromjson | [${filters[i]}][-1]) catch .),"
	done
	[ ${#filters[@]} -gt 0 ] || return 0
	mapfile -t results < <(jq -nc "${program%,}" --args "${texts[@]}" 2>&1)
	for i in "${!filters[@]}"; do
		[ "${results[i]-}" = true ] ||
			fail "expected ${filters[i]}, seen ${results[i]-nothing}, for ${texts[i]:0:2000}"
	done
}

# eventually COMMAND...: COMMAND succeeds within $eventually_limit seconds
eventually() {
	local end=$((${EPOCHREALTIME/[.,]/} + eventually_limit * 1000000))
	until "$@"; do
		[ "${EPOCHREALTIME/[.,]/}" -lt $end ] ||
			fail "$*: expected to succeed within $eventually_limit s, seen no success"
		nap 0.02
	done
}

# ---- wqctl

# Not for the background: $! would be a shell's.
wq() { "$WQCTL" "$@"; }

# as_user ARGUMENT...: wq by a user without rights
as_user() { setpriv --reuid 1234 --regid 1234 --clear-groups "$WQCTL" "$@"; }

# stats NAME... [--fd N]: these statistics of $q, or of descriptor N, on a line
stats() {
	local name value queue=${q-} found=()
	local -A of
	if [ "${*: -2:1}" = --fd ]; then queue="--fd ${*: -1}"; fi
	# shellcheck disable=SC2086  # an option and its value
	wq stat $queue >"$top/stat"
	while read -r name value; do of[$name]=$value; done <"$top/stat"
	for name; do
		[ "$name" != --fd ] || break
		found+=("${of[$name]-no $name}")
	done
	echo "${found[*]}"
}
stat_is() { [ "$(stats "$1")" = "$2" ]; }

# queue [OPTION...]: creates the test's queue $q; unlink it in cleanup
queue() { succeeds wq create "${q:?}" "$@"; }

# consumer FD...: an open file of $q
consumer() {
	local fd
	for fd; do
		eval "exec $fd<>/dev/wq"
		succeeds wq bind --fd "$fd" "$q"
	done
}

# unlink_queues PREFIX: all queues with a name that begins so
unlink_queues() {
	local file
	for file in /dev/wqueue/"$1"*; do
		[ ! -e "$file" ] || wq unlink "${file##*/}"
	done
} 2>/dev/null

# ---- processes

# gone PID: no such process; ended PID: not even a zombie counts
gone() { ! kill -0 "$1" 2>/dev/null; }
ended() {
	local stat
	! read -r stat <"/proc/$1/stat" || [[ $stat = *") Z "* ]]
} 2>/dev/null

# Whether a process of this group still runs.  A process whose parent died may stay a
# zombie until init reaps it.
group_runs() { # GROUP
	local stat rest
	for stat in /proc/[0-9]*/stat; do
		read -r rest <"$stat" || continue
		rest=${rest##*) }
		# shellcheck disable=SC2086  # state, parent, group
		set -- "$1" $rest
		[ "$4" != "$1" ] || [[ $2 = [ZX] ]] || return 0
	done
	return 1
} 2>/dev/null

# ---- the run

end_test() {
	local i
	if [ -n "$watchdog" ]; then
		kill "$watchdog"
		wait "$watchdog"
	fi
	if [ -n "$test_pid" ] && kill -9 -- "-$test_pid"; then
		for ((i = 0; i < 500; i++)); do
			group_runs "$test_pid" || break
			nap 0.02
		done
	fi
	cleanup
	test_pid='' watchdog=''
} 2>/dev/null

# Runs test_$1: 0 if it passed
run_test() {
	local began=${EPOCHREALTIME/[.,]/} status=0 file
	for file in out err filters texts; do : >"$top/$file"; done
	setup
	set -m	# a process group of its own, which is killed as a whole
	(set +m; "test_$1" && all_hold) &
	test_pid=$!
	set +m
	(
		nap "$time_limit"
		echo "# expected to end within $time_limit s, seen running"
		kill -9 -- -$test_pid 2>/dev/null
	) &
	watchdog=$!
	{ wait $test_pid; } 2>/dev/null || status=$?
	[ $status -le 1 ] || [ $status -eq 137 ] || echo "# its last command ended with status $status"
	[ $status -eq 0 ] || explain
	end_test
	echo "# $1: $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
	return $status
}

trap 'exit 130' INT
trap 'exit 143' TERM
trap 'end_test; rm -rf "$top"' EXIT

run_tests() { # [NAME...]
	local line name number=0 failed=0 tests=() defined
	if [ $# -gt 0 ]; then
		tests=("$@")
	else
		while IFS= read -r line; do
			[[ ! $line =~ ^test_([A-Za-z0-9_]+)\(\) ]] || tests+=("${BASH_REMATCH[1]}")
		done <"$0"
		mapfile -t defined < <(compgen -A function test_)
		[ ${#tests[@]} -eq ${#defined[@]} ] || {
			echo "Bail out! $0 has ${#tests[@]} tests of ${#defined[@]} names"
			exit 1
		}
	fi
	echo "TAP version 13"
	echo "1..${#tests[@]}"
	seq -f "$top/%.0f" ${#tests[@]} | xargs mkdir
	for name in "${tests[@]}"; do
		number=$((number + 1)) dir=$top/$number
		if run_test "$name"; then
			echo "ok $number $name"
		else
			echo "not ok $number $name"
			failed=1
		fi
	done
	exit $failed
}

# A script that defines one of them again would have expectations that never fail.
mapfile -t fixed < <(compgen -A function | grep -vxE 'setup|explain|cleanup')
readonly -f "${fixed[@]}"
unset fixed
