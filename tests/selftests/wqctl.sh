#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What wqctl promises, each test a sentence.  Prints TAP.  Runs as root where
# the module is loaded; WQCTL is the path of wqctl, SRC that of the project.
#
# To start a program is what takes time in an emulated CPU, so the shell's own
# words do what they can, and who waits looks for what is waited for.
#
# The tests are called by name, the queue has nothing to quote in its name, wq done
# is no end of a loop, and some expansions are for the inner shell.
# shellcheck disable=SC2317,SC2086,SC1010,SC2016
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
q=wqctl-test.$$
top=$(mktemp -d)
dir=$top/test out=$top/out err=$top/err
tests=()
test='' watchdog='' queue=''
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'queue=$q; end_test; rm -rf "$top"' EXIT

# A command that reads from $gate waits until the test lets one through.
gate=$top/gate
mkdir "$dir"
mkfifo "$gate"
exec 9<>"$gate"
let_through() { echo >&9; }

# nap SECONDS: sleep, without a process
exec {never}<> <(:)
nap() { read -rt "$1" -u $never; }

# Not for what goes to the background: $! would be a shell's.
wq() { "$WQCTL" "$@"; }

end_test() {
	[ -z "$test" ] || kill -9 -- "-$test"
	[ -z "$watchdog" ] || kill "$watchdog"
	[ -z "$queue" ] || wq unlink $q
	test='' watchdog='' queue=''
} 2>/dev/null

# t SENTENCE FUNCTION [OPTION...]: a test; it runs in a shell of its own, with a new
# queue $q, made with these options, and an empty folder $dir, for a minute at most.
# no_q: without that queue.
t() { tests+=("$1"$'\t'"$2"$'\t'"$q ${*:3}"); }
no_q() { tests+=("$1"$'\t'"$2"); }

# is WHAT WANTED GOT
is() { [ "$2" = "$3" ] || { printf '# %s: wanted %q, got %q\n' "$1" "${2:0:999}" "${3:0:999}"; exit 1; }; }

# The last status' standard error, as comments
show_err() { [ ! -s "$err" ] || sed 's/^/# /' "$err"; }

# status WANTED COMMAND...
status() {
	local want=$1 got=0
	shift
	"$@" >"$out" 2>"$err" || got=$?
	[ $got -eq "$want" ] || {
		printf '# %s: wanted status %d, got %d\n' "$*" "$want" $got
		show_err
		exit 1
	}
}

# says TEXT: the last status' standard error has it
said() { [[ $(<"$err") = *"$1"* ]]; } 2>/dev/null
says() { said "$1" || { echo "# not said: $1"; show_err; exit 1; }; }

# Commands whose standard output can't be written
full() { "$@" >/dev/full; }
closed() { "$@" >&8; }

# figures NAME... [--fd N]: figures of stat, in the order asked for
figures() {
	local name value queue=$q found=()
	local -A of
	if [ "${*: -2:1}" = --fd ]; then queue="--fd ${*: -1}"; fi
	while read -r name value; do of[$name]=$value; done < <(wq stat $queue)
	for name; do
		[ "$name" != --fd ] || break
		found+=("${of[$name]-}")
	done
	echo "${found[*]}"
}
figure_is() { [ "$(figures "$1")" = "$2" ]; }

# soon COMMAND...: it comes true within 10 s
soon() {
	local i
	for ((i = 0; i < 500; i++)); do
		"$@" && return
		nap 0.02
	done
	echo "# never true: $*"
	exit 1
}

# lines FILE: its lines in one; file_has FILE N: at least N of them
lines() { local l; mapfile -t l <"$1"; echo "${l[*]}"; }
file_has() { local l; [ -e "$1" ] && mapfile -t l <"$1" && [ ${#l[@]} -ge "$2" ]; }

gone() { ! kill -0 "$1" 2>/dev/null; }
asleep() { # PID: a wqctl that waits
	local stat
	read -r stat <"/proc/$1/stat" && [[ $stat = *"(wqctl) S "* ]]
}

# ---- create, unlink

create_options() {
	(umask 077; wq create -m 0640 -n 2 $q) || exit 1
	status 0 wq add -v $q a b a
	says "2 added, 1 coalesced"
	status 1 wq add $q a c
	says "as many keys as it may"
	is "mode, max_keys, ready" "0640 2 2" "$(figures mode max_keys ready)"
	status 0 wq unlink $q
}
no_q "create -m sets the mode, whatever the umask, and -n how many keys there may be; add says how many it added, and that the queue is full" create_options

create_limiter() { # SPEC NS KEY...: fails the keys in a queue with this limiter; the first waits NS
	local due
	status 0 wq create --limiter "$1" $q
	status 0 wq add --rate-limited $q "${@:3}"
	due=$(figures next_due_ns)
	# a machine may be slow: by a minute, but not by an hour
	is "$1: due" $2 $((${due/-/0} <= $2 && ${due/-/0} > $2 - 60000000000 ? $2 : ${due/-/0}))
	status 0 wq unlink $q
}
create_limiters() {
	local hour=3600000000000
	create_limiter exponential:1h:3h $hour k
	create_limiter exponential:2h:1.5h $((hour * 3 / 2)) k
	create_limiter fast-slow:1h:2h:1 $hour k
	create_limiter fast-slow:1h:2h:0 $((hour * 2)) k
	create_limiter bucket:0.0005:1 2000000000000 a b
	create_limiter bucket:.000000001:1 1000000000000000000 a b
	create_limiter exponential:1h:1h,fast-slow:2h:3h:1,bucket:10:100 $((hour * 2)) k
	create_limiter exponential:2h:2h,max-wait:90m,default-item $((hour * 3 / 2)) k
	create_limiter exponential:2h:2h,"$(printf 'bucket:1:1,%.0s' {1..13})"max-wait:1h $hour k
}
no_q "create --limiter: a key that failed waits as it says; of a list the longest delay counts, at most max-wait" create_limiters

create_defaults() {
	local name delayed
	status 0 wq create --limiter default-item $q
	status 0 wq add --rate-limited $q {1..400}
	soon figure_is ready 400
	for name in '' '--limiter default-controller'; do
		status 0 wq unlink $q
		status 0 wq create $name $q
		status 0 wq add --rate-limited $q {1..400}
		delayed=$(figures delayed)
		[ "$delayed" -gt 100 ] || { echo "# $name: only $delayed of 400 wait"; exit 1; }
	done
	status 0 wq unlink $q
}
no_q "default-item has no bucket; default-controller has, and is what a queue has without --limiter" create_defaults

bad_limiter() { # SPEC TEXT
	status 2 wq create --limiter "$1" $q
	says "--limiter: "
	says "$2"
	says "for instance "
}
create_bad_limiters() {
	bad_limiter '' "a part of the list is empty"
	bad_limiter exponential:5ms:1s, "a part of the list is empty"
	bad_limiter linear:1s "there is no limiter 'linear'; there are exponential,"
	bad_limiter exponential "'exponential' lacks BASE: it is written exponential:BASE:MAX"
	bad_limiter exponential:5ms "'exponential' lacks MAX"
	bad_limiter bucket:10:100,fast-slow:1s:2s "'fast-slow' lacks N"
	bad_limiter exponential:5ms:1s:2s "'2s' is too much for 'exponential'"
	bad_limiter default-item:1s "'1s' is too much for 'default-item'"
	bad_limiter exponential:soon:1s "BASE 'soon' of 'exponential:BASE:MAX' is not a time"
	bad_limiter exponential:5ms:-1s "MAX '-1s' of"
	bad_limiter exponential:1ms:300000000h "MAX '300000000h' of"
	bad_limiter max-wait:,default-item "T '' of 'max-wait:T' is not a time"
	bad_limiter bucket:ten:1 "QPS 'ten' of 'bucket:QPS:BURST' is not a number"
	bad_limiter bucket:10000000000:1 "QPS '10000000000' of 'bucket:QPS:BURST' is not a number, or too large"
	bad_limiter bucket:0.0000000001:1 "has more than 9 digits behind the point"
	bad_limiter bucket:1:0.5 "BURST '0.5' of 'bucket:QPS:BURST' is not a whole number from 0 to 4294967295"
	bad_limiter fast-slow:1s:2s:4294967296 "N '4294967296' of"
	bad_limiter max-wait:1s "max-wait needs a limiter that it bounds"
	bad_limiter max-wait:1s,default-item,max-wait:2s "can't stand there twice"
	bad_limiter "$(printf 'bucket:1:1,%.0s' {1..15})default-item" "16 limiters are more than fit: a list of 15 is the longest"
	bad_limiter "max-wait:1s,$(printf 'bucket:1:1,%.0s' {1..14})default-item" "a list of 14 and a max-wait is the longest"
	status 1 wq create --limiter bucket:0.000000001:4000000000 $q
	says "a bucket must not take 292 years or more to fill"
	status 1 wq create --limiter default-item -n 4294967295 $q
	says "-n 4294967295 is out of range; it may be up to"
	status 1 wq stat $q
}
no_q "create --limiter names the part that is wrong, and shows how it is written" create_bad_limiters

create_fails() {
	local name
	status 1 wq create $q
	says "there is a queue of that name"
	for name in .hidden a/b "$(printf '%064d' 0)"; do
		status 1 wq create "$name"
		says "can't be a queue's name"
	done
}
t "create fails where the queue exists, or its name is bad, and says which are good" create_fails

no_queue() {
	local c
	for c in "add no.such k" "get no.such" "stat no.such" "run no.such -- true" "unlink no.such"; do
		# shellcheck disable=SC2086
		status 1 wq $c
		says "there is no queue of that name"
	done
}
no_q "a queue that is not there is said to be not there" no_queue

unlink_many() {
	status 0 wq create $q
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	says "20000 added"
	"$WQCTL" unlink $q &
	soon gone $!
	wait $!
	is status 0 $?
	status 1 wq stat $q
}
no_q "a queue with 20,000 keys is unlinked at once" unlink_many

# ---- add

add_lines() {
	local keys
	printf 'one\n\ntwo words\nlast' | wq add $q
	is keys $'one\ntwo words\nlast' "$(wq get -n 9 $q)"
	printf 'a\nb\0c\0' | wq add -0 $q
	mapfile -d '' -t keys < <(wq get -0 -n 9 $q)
	is "keys with NUL" $'a\nb c' "${keys[*]}"
}
add_after() {
	status 0 wq add --after 2h $q later
	is "delayed, ready" "1 0" "$(figures delayed ready)"
	status 0 wq query $q later
	is state delayed "$(<"$out")"
	status 3 wq get $q
	status 0 wq add --after 50ms $q sooner
	is key sooner "$(wq get -t 20s $q)"
	is "delayed, retries" "1 2" "$(figures delayed retries)"
	local due
	due=$(figures next_due_ns)
	is "due in about 2 h" 1 $((due > 7000000000000 && due <= 7200000000000))
	status 0 wq cancel $q later
	is "was, due" "delayed -" "$(<"$out") $(figures next_due_ns)"
	local time
	for time in soon '' . 1.5.s -1 '5 s' 1e3 3d 2562048h; do
		status 2 wq add --after "$time" $q k
		says "'$time' is not a time; for instance"
	done
	for time in 30m 1800 1800.00s .5h 1800000ms 1800000000us 1800000000000ns; do
		status 0 wq add --after "$time" $q k
		due=$(figures next_due_ns)
		[ "$time $((due > 1700000000000 && due <= 1800000000000))" = "$time 1" ] ||
			{ echo "# $time is $due ns"; exit 1; }
		status 0 wq cancel $q k
	done
	# it is rounded up: to no delay it would be no retry
	status 0 wq add --after 0.1ns $q k
	is retries 10 "$(figures retries)"
}
t "add --after adds later, by a time as people write it; stat shows how many are delayed and when the next is due" add_after

add_rate_limited() {
	status 0 wq add -v --rate-limited $q k < <(:)
	says "1 added, 0 coalesced"
	status 0 wq query $q k
	is query $'delayed,failed\nfailures 1' "$(<"$out")"
	status 0 wq add --rate-limited $q < <(echo k)
	is query $'delayed,failed\nfailures 2' "$(wq query $q k)"
	is list $'k\tdelayed,failed' "$(wq list $q)"
	is "failed, kept, retries" "1 0 2" "$(figures failed kept retries)"
	is cancel delayed,failed "$(wq cancel $q k)"
	is "keys, failed" "0 0" "$(figures keys failed)"
	status 2 wq add --rate-limited --after 1s $q k
	says "either the queue's limiter says when, or you do"
}
t "add --rate-limited counts a failure, which query, list and stat show, until cancel drops it" add_rate_limited --limiter exponential:1h:1h

t "add reads lines, leaves out empty ones, takes a last one without newline; with -0 keys may have newlines" add_lines

add_many() {
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	says "20000 added, 0 coalesced"
	[ "$(wq get -n 30000 $q)" = "$(printf '%s\n' {1..20000})" ]
}
t "20,000 lines come out in the order they went in" add_many

add_long() {
	local longest
	printf -v longest '%01024d' 0
	status 1 wq add $q < <(echo "$longest"; echo "${longest}0"; echo after)
	says "line 2 of standard input is longer"
	is keys "$longest" "$(wq get -n 9 $q)"
	status 1 wq add $q < <(printf '%0200000d' 0)
	says "line 1 of standard input is longer"
}
t "a key of 1,024 bytes passes; a line longer than that is named, and the keys before it are added" add_long

add_at_once() {
	exec 8> >("$WQCTL" add $q)
	local add=$!
	echo one >&8
	is key one "$(wq get -t 10 $q)"
	exec 8>&-
	wait $add
	is status 0 $?
}
t "a line from a slow pipe is added at once, not when the pipe ends" add_at_once

# ---- get

get_wait() {
	"$WQCTL" get --wait $q >"$dir/key" &
	soon asleep $!
	wq add $q late
	wait $!
	is key late "$(lines "$dir/key")"
}
t "get --wait waits for a key" get_wait

get_is_done() {
	wq add $q k
	wq get $q >/dev/null
	is "processing, dones" "0 1" "$(figures processing dones)"
	status 3 wq get $q
	status 3 wq get -t 0.05 $q
}
t "get QUEUE is done with the key it printed; from an empty queue it exits with 3" get_is_done

get_full() {
	wq add $q k
	status 1 full wq get $q
	says "the keys go back"
	status 1 full wq list $q
	says "can't write to standard output"
	exec 8> >(:)
	wait $!
	status 141 closed wq get $q
	is key k "$(wq get $q)"
}
t "output that can't be written is an error, and a key goes back, also where a pipe is closed" get_full

# ---- --fd

fd_closed() {
	wq add $q k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	is key k "$(wq get --fd 7)"
	is "ready, held" "0 1" "$(figures ready held --fd 7)"
	exec 7>&-
	is key k "$(wq get $q)"
}
t "a key held by a descriptor goes back when that is closed" fd_closed

fd_done() {
	exec 7<>/dev/wq 6<>/dev/wq
	wq bind --fd 7 $q
	wq bind --fd 6 $q
	wq add --fd 7 a b
	is key a "$(wq get --fd 7)"
	is state "processing,mine" "$(wq query --fd 7 a)"
	wq add $q a
	is state "processing,dirty" "$(wq query $q a)"
	status 1 wq done --fd 6 a
	says "another consumer does"
	status 0 wq done --fd 7 a
	is state ready "$(wq query $q a)"
	status 1 wq done --fd 7 a
	says "does not hold the key 'a'"
}
t "get --fd holds a key until done --fd, of this descriptor alone; one added meanwhile is ready again then" fd_done

fd_outcome() {
	local k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q retry after both
	wq get -n 3 --fd 7 >/dev/null
	status 0 wq done --fd 7 --retry retry
	is query $'delayed,failed\nfailures 1' "$(wq query $q retry)"
	status 0 wq done --fd 7 --after 2h after
	is query delayed "$(wq query $q after)"
	status 0 wq add --rate-limited $q both
	is query $'processing,delayed,failed,mine\nfailures 1' "$(wq query --fd 7 both)"
	status 0 wq done --fd 7 --forget --after 2h both
	is query delayed "$(wq query $q both)"
	for k in --forget '--after 1s'; do
		status 2 wq done --fd 7 --retry $k k
		says "--retry counts a failure"
	done
}
t "done --retry counts a failure and has the key again as the limiter says, --after when you say, and --forget beside it forgets failures" fd_outcome --limiter exponential:1h:1h

fd_kept() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add --rate-limited $q k
	is key k "$(wq get -t 20 --fd 7)"
	status 0 wq done --fd 7 k
	is query $'failed\nfailures 1' "$(wq query $q k)"
	is "failed, kept, keys" "1 1 1" "$(figures failed kept keys)"
	wq add $q k
	is query $'ready,failed\nfailures 1' "$(wq query $q k)"
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --forget k
	status 3 wq query $q k
	is "failed, kept, keys" "0 0 0" "$(figures failed kept keys)"
}
t "a key that failed is known after done, until done --forget" fd_kept --limiter fast-slow:1ms:1h:1

fd_shut() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q a b c
	wq get -n 3 --fd 7 >/dev/null
	wq shutdown $q
	status 4 wq done --fd 7 --retry a
	says "the key 'a' is done and does not come again"
	status 4 wq done --fd 7 --after 1s b
	status 0 wq done --fd 7 --forget c
	is "processing, keys, dropped" "0 0 2" "$(figures processing keys dropped)"
}
t "done --retry and --after in a queue that is shut down say that the key does not come again, and exit with 4" fd_shut

fd_wrong() {
	exec 7<>/dev/wq
	status 1 wq get --fd 7
	says "bind it first"
	status 1 wq get --fd 63
	says "is not open"
	status 1 wq get --fd 0 </dev/null
	says "is not a wq"
	status 0 wq bind --fd 7
	wq add --fd 7 x
	is key x "$(wq get --fd 7)"
	status 1 wq bind --fd 7 $q
	says "has a queue already"
}
no_q "a descriptor that is no queue is said to be none; bind makes it a private one, and a second bind fails" fd_wrong

# ---- query, cancel, list, stat, info, shutdown

cancel_it() {
	wq add $q a b
	is state ready "$(wq cancel $q a)"
	status 3 wq cancel $q a
	status 3 wq query $q a
	says "has no key 'a'"
	is keys b "$(wq get -n 9 $q)"
}
t "cancel drops a key and tells its state; both it and query exit with 3 where the key is not known" cancel_it

forget_them() {
	wq add --rate-limited $q a b
	wq add --rate-limited $q b
	status 0 wq forget $q a unknown b
	is "a, b" "delayed delayed" "$(wq query $q a) $(wq query $q b)"
	is "failed, delayed" "0 2" "$(figures failed delayed)"
	wq add --rate-limited $q b
	is b $'delayed,failed\nfailures 1' "$(wq query $q b)"
	status 1 wq forget $q ''
	says "a key has 1 to 1024 bytes"
	status 2 wq forget $q
	says "which key?"
}
t "forget drops the count of failures, not the delay; a key that is not known has none" forget_them --limiter exponential:1h:1h

list_them() {
	local got line
	local -A seen
	wq add $q < <(printf '%s\n' {1..1000})
	mapfile -t got < <(wq list $q)
	for line in "${got[@]}"; do
		[ "${line#*$'\t'}" = ready ] || exit 1
		seen[${line%%$'\t'*}]=1
	done
	is "keys, different ones" "1000 1000" "${#got[@]} ${#seen[@]}"
	[ "${seen[1]}${seen[1000]}" = 11 ]
}
t "list tells 1,000 keys, each once" list_them

list_escapes() {
	local raw
	printf 'a\tb\\\377\n\0' | wq add -0 $q
	is list 'a\tb\\\377\n	ready' "$(LC_ALL=C wq list $q)"
	mapfile -d '' -t raw < <(wq list -0 $q)
	is raw $'a\tb\\\377\n' "${raw[*]}"
}
t "list escapes what is not text, and -0 does not" list_escapes

stat_json() {
	local f
	wq add $q a b a
	wq get $q >/dev/null
	status 0 wq stat --json $q
	for f in "\"name\": \"$q\"" '"ready": 1' '"adds": 2' '"coalesced": 1' '"gets": 1' \
		 '"dones": 1' '"merged": 0' '"failed": 0' '"kept": 0' '"shutdown": false' '"mode": "0600"'; do
		[[ $(<"$out") = *"$f"* ]] || { echo "# no $f in: $(<"$out")"; exit 1; }
	done
}
t "stat --json has the figures" stat_json

shut() {
	wq add $q a
	status 0 wq shutdown $q
	status 4 wq add $q b
	is key a "$(wq get $q)"
	status 4 wq get --wait $q
}
t "after shutdown add exits with 4, and get too once the queue is empty" shut

drain() {
	wq add $q a
	"$WQCTL" shutdown --drain $q 2>"$err" &
	soon figure_is draining yes
	wq shutdown $q
	wait $!
	is status 1 $?
	says "another shutdown"
	"$WQCTL" shutdown --drain $q &
	soon figure_is draining yes
	gone $! && { echo "# did not wait"; exit 1; }
	wq get $q >/dev/null
	wait $!
	is status 0 $?
}
t "shutdown --drain waits for the last key; a plain shutdown ends that wait, and it exits with 1" drain

# ---- run

run_all() {
	local k seen=()
	wq add $q {1..8}
	wq shutdown $q
	status 0 wq run -j 4 $q -- sh -c 'echo "$1" >>'"$dir/ran" sh
	for k in $(lines "$dir/ran"); do seen[$k]+=x; done
	is keys "1 2 3 4 5 6 7 8" "${!seen[*]}"
	is runs "x x x x x x x x" "${seen[*]}"
	says "8 runs, 0 retries, 0 given up, in "
}
t "run runs the command for each key, until the queue is shut down and empty" run_all

run_words() {
	wq add $q k
	is out "1k 2 k+k" "$(wq run --once -q $q -- echo '1{}' 2 '{}+{}')"
	wq add $q 'two words'
	is out "<-n><two words>" "$(wq run --once -q $q printf '<%s>' -n)"
}
t "run replaces each {} by the key; where there is none it appends the key, and leaves the command's options alone" run_words

run_fails() {
	wq add $q bad good
	status 0 wq run $q -- sh -c "echo {} >>$dir/ran
		[ {} = bad ] || exit 0
		[ -e $dir/again ] || { : >$dir/again; exit 7; }
		'$WQCTL' shutdown $q"
	is order "bad good bad" "$(lines "$dir/ran")"
	says "key 'bad': exit status 7; retry 1 of 5"
	says "3 runs, 1 retries, 0 given up, in "
	is "keys, retries" "0 1" "$(figures keys retries)"
}
t "a key whose command fails runs again behind the others, until it succeeds; then run exits with 0" run_fails

run_backoff() {
	local t i wait=50000
	wq add $q k
	status 0 wq run --once -q $q -- bash -c '
		echo "${EPOCHREALTIME/[.,]}" >>"$1"
		mapfile -t times <"$1"
		[ ${#times[@]} -ge 4 ]' bash "$dir/ran"
	mapfile -t t <"$dir/ran"
	is runs 4 ${#t[@]}
	for i in 1 2 3; do
		((t[i] - t[i - 1] >= wait)) || {
			echo "# retry $i came $((t[i] - t[i - 1])) us after the run before it"
			exit 1
		}
		wait=$((wait * 2))
	done
	is said '' "$(<"$err")"
}
t "each failure of a key doubles the time to its next run, by exponential:50ms:10s; with -q run says nothing of it" run_backoff --limiter exponential:50ms:10s

run_gives_up() {
	local n
	for n in 0 1 2; do
		rm -f "$dir/ran"
		wq add $q k
		status 1 wq run --once -q --max-retries $n $q -- sh -c "echo >>$dir/ran; exit 7"
		says "key 'k': exit status 7; given up after $n retr"
		is runs $((n + 1)) "$(wc -l <"$dir/ran")"
		is "keys, failed" "0 0" "$(figures keys failed)"
	done
	wq add $q k good
	status 1 wq run --once $q -- sh -c '[ "$1" = good ] || kill -9 $$' sh
	says "key 'k': killed by signal 9 (Killed); retry 5 of 5"
	says "key 'k': killed by signal 9 (Killed); given up after 5 retries"
	says "7 runs, 5 retries, 1 given up, in "
	status 2 wq run --max-retries -1 $q true
	says "not a number"
}
t "a key that fails once more after --max-retries (5 unless told otherwise) is given up, which is told even with -q; it is forgotten, and run exits with 1" run_gives_up --limiter exponential:1ms:1ms

run_failed_before() {
	wq add --rate-limited $q k
	wq add --rate-limited $q k
	status 1 wq run --once --max-retries 3 $q -- false
	says "retry 3 of 3"
	says "2 runs, 1 retries, 1 given up"
}
t "failures from before the run count" run_failed_before --limiter exponential:1ms:1ms

run_once() {
	wq add $q a b
	status 0 wq run --once $q -- true
	is keys 0 "$(figures keys)"
	wq add --after 2h $q later
	wq add $q a bad b
	status 0 wq run -j 2 --once $q -- sh -c "echo {} >>$dir/ran
		[ {} != bad ] || [ -e $dir/again ] || { : >$dir/again; exit 7; }"
	is ran "4 bad" "$(wc -l <"$dir/ran") $(tail -n 1 "$dir/ran")"
	is "left, state" "1 delayed" "$(figures keys) $(wq query $q later)"
}
t "run --once waits for what is retried, not for what was added for later, and exits with 0 where all succeeded in the end" run_once --limiter fast-slow:300ms:1ms:1

run_once_kept() {
	wq add --rate-limited $q k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq get -t 20 --fd 7 >/dev/null
	wq done --fd 7 k
	is "failed, kept" "1 1" "$(figures failed kept)"
	status 0 wq run --once $q -- true
	says "0 runs"
}
t "run --once does not wait for a key that failed and has nothing to do" run_once_kept --limiter exponential:1ms:1ms

run_retry_dropped() {
	wq add $q k good
	"$WQCTL" run $q -- test good = 2>"$err" &
	soon figure_is delayed 1
	soon figure_is dones 2
	wq shutdown $q
	wait $!
	is status 1 $?
	says "1 keys that waited for a retry were dropped, as the queue is shut down"
	says "2 runs, 1 retries, 0 given up, 1 dropped, in "
}
t "a key whose retry a shutdown drops is told, and run exits with 1" run_retry_dropped --limiter exponential:1h:1h

run_retry_left() {
	wq add $q k
	"$WQCTL" run $q -- false 2>"$err" &
	soon figure_is delayed 1
	kill -TERM $!
	wait $!
	is status 0 $?
	is query $'delayed,failed\nfailures 1' "$(wq query $q k)"
}
t "SIGTERM leaves a key that waits for its retry in the queue, and is no failure" run_retry_left --limiter exponential:1h:1h

# A wqctl whose memory runs out: each done fails twice before it holds, and a worker
# can't fork at first.
no_memory() { LD_PRELOAD=$dir/shim.so "$WQCTL" "$@"; }

run_no_memory() {
	cat >"$dir/shim.c" <<-END
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <errno.h>
	#include <linux/wq.h>
	#include <sys/syscall.h>
	#include <sys/types.h>
	#include <unistd.h>
	int ioctl(int fd, unsigned long nr, void *arg)
	{
		static int n;
		if (nr != WQ_IOC_DONE || n++ % 3 == 2)
			return syscall(SYS_ioctl, fd, nr, arg);
		errno = ENOMEM;
		return -1;
	}
	pid_t fork(void)
	{
		static int n;
		if (n++ != 1)
			return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
		errno = EAGAIN;
		return -1;
	}
	END
	gcc -shared -fPIC -I"$SRC/include/uapi" \
		-o "$dir/shim.so" "$dir/shim.c" -ldl || exit 1
	wq add $q bad good
	status 0 no_memory run --once $q -- sh -c "echo {} >>$dir/ran"
	is ran "bad good" "$(lines "$dir/ran")"
	says "can't fork: Resource temporarily unavailable; trying again"
	says "2 runs, 0 retries"
	is "keys, dones, given back" "0 2 0" "$(figures keys dones given_back)"
	wq add $q bad
	status 0 no_memory run --once $q -- sh -c "[ -e $dir/again ] || { : >$dir/again; exit 1; }"
	says "2 runs, 1 retries"
	is "keys, dones, given back" "0 4 0" "$(figures keys dones given_back)"
}
t "where memory is short run waits and tries again: no key is lost, run twice or taken for a failure" run_no_memory

run_nul() {
	printf 'a\0b' | wq add $q
	is list 'a\000b	ready' "$(wq list $q)"
	status 1 wq run --once $q -- touch "$dir/never"
	says "key 'a\\000b': a NUL can't be in an argument; dropped"
	is keys 0 "$(figures keys)"
	[ ! -e "$dir/never" ]
}
t "run reports and drops a key with a NUL" run_nul

run_no_command() {
	wq add $q k
	status 1 wq run -j 3 $q -- no-such-command
	says "can't run 'no-such-command'"
	is state ready "$(wq query $q k)"
	wq shutdown $q
	status 1 wq run $q -- sh -c 'exit 127'
	says "exit status 127; dropped, as the queue is shut down"
}
t "run leaves the key where the command does not exist; a command's own exit status 127 is a failure" run_no_command

run_no_command_at_once() {
	wq add $q sh
	"$WQCTL" run -j 2 -q $q -- {} -c ": >$dir/begun; read -r _ <$gate" 2>"$err" &
	soon test -e "$dir/begun"
	wq add $q no-such-command
	soon said "can't run 'no-such-command'"
	let_through
	wait $!
	is status 1 $?
	is left no-such-command "$(wq get -n 9 $q)"
}
t "a command that can't be run ends run, and what succeeds meanwhile is done" run_no_command_at_once

run_worker_killed() {
	wq add $q k
	"$WQCTL" run -j 1 $q -- sh -c "echo \$PPID >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; }" 2>"$err" &
	local run=$! worker
	soon test -e "$dir/again"
	read -r worker <"$dir/ran"
	kill -9 "$worker"
	soon file_has "$dir/ran" 2
	wq shutdown $q
	wait $run
	is status 0 $?
	says "was killed by signal 9; its key goes back to the queue, a new worker starts"
	is "keys, given back" "0 1" "$(figures keys given_back)"
}
t "a worker that is killed is reported and replaced, and its key runs again" run_worker_killed

run_not_twice() {
	local run worker
	wq add $q k
	cat >"$dir/work" <<-END
	if [ ! -e $dir/child ]; then
		# A child of the command, which is not the worker's child.
		(echo \$PPID >$dir/worker; echo \$BASHPID >$dir/child; read -r <$gate)
	fi
	# It may still be on its way out, but it gets no further.
	for ((i = 0; i < 100; i++)); do
		read -r stat </proc/\$(<$dir/child)/stat && [[ \$stat != *') '[ZX]* ]] || break
		read -rt 0.01 <&$never
	done
	[ \$i -lt 100 ] || : >$dir/twice
	: >$dir/checked
	END
	"$WQCTL" run -j 2 -q $q -- bash "$dir/work" 2>/dev/null &
	run=$!
	soon file_has "$dir/child" 1
	read -r worker <"$dir/worker"
	kill -9 "$worker"
	soon test -e "$dir/checked"
	wq shutdown $q
	wait $run
	[ ! -e "$dir/twice" ]
}
t "a killed worker's key runs again only once its command's children are gone" run_not_twice

run_term() {
	wq add $q 1 2 3
	"$WQCTL" run $q -- sh -c "echo start {} >>$dir/ran; read -r _ <$gate; echo end {} >>$dir/ran" \
		2>"$err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	soon said "no more commands start"
	let_through
	wait $run
	is status 0 $?
	is ran "start 1 end 1" "$(lines "$dir/ran")"
	is left $'2\n3' "$(wq get -n 9 $q)"
	says "1 runs, 0 retries, 0 given up"
}
t "SIGTERM lets the running command end and starts no more" run_term

run_term_twice() {
	wq add $q k
	"$WQCTL" run $q -- sh -c "echo >>$dir/ran; read -r _ <$gate" 2>"$err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	soon said "once more"
	kill -TERM $run
	wait $run
	is status 1 $?
	is key k "$(wq get -t 5 $q)"
}
t "a second SIGTERM kills the command, and the key goes back" run_term_twice

idle() { # PID N: a wqctl run whose N workers wait
	local w n=0
	for w in $(<"/proc/$1/task/$1/children"); do
		asleep "$w" && n=$((n + 1))
	done
	asleep "$1" && [ $n -eq "$2" ]
}

run_idle() {
	local run
	(trap '' HUP; exec "$WQCTL" run -j 8 $q -- sh -c ": >$dir/ran") 2>/dev/null &
	run=$!
	soon idle $run 8
	kill -HUP $run
	wq add $q k
	soon test -e "$dir/ran"
	soon idle $run 8
	kill -TERM $run
	wait $run
	is status 0 $?
}
t "SIGTERM ends workers that wait for a key; a SIGHUP that was ignored before, as by nohup, does not" run_idle

run_parent_killed() {
	wq add $q 1 2
	"$WQCTL" run $q -- sh -c "echo {} >>$dir/ran; read -r _ <$gate; echo end >>$dir/ran" 2>/dev/null &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -9 $run
	wait $run 2>/dev/null
	let_through
	soon file_has "$dir/ran" 2
	soon figure_is processing 0
	is "ran, left" "1 end 2" "$(lines "$dir/ran") $(wq get -n 9 $q)"
}
t "workers whose parent is killed end after the command that they run" run_parent_killed

run_one_at_a_time() {
	local run what key i busy='' begun=0
	"$WQCTL" run -q -j 4 $q -- sh -c "echo begin {} >>$dir/ran
		n=0; while [ \$n -lt 500 ]; do n=\$((n + 1)); done
		echo end {} >>$dir/ran" &
	run=$!
	wq add $q < <(for i in {1..12}; do printf '%s\n' a b c; nap 0.1; done)
	wq shutdown $q
	wait $run
	is status 0 $?
	while read -r what key; do
		if [ "$what" = begin ]; then
			[[ $busy != *$key* ]] || { echo "# $key runs twice at once"; exit 1; }
			busy+=$key begun=$((begun + 1))
		else
			busy=${busy/$key/}
		fi
	done <"$dir/ran"
	[ $begun -ge 6 ]
}
t "run never runs a key twice at once, however often it is added" run_one_at_a_time

# ---- the command line

usage() {
	status 2 wq
	status 2 wq nonsense
	status 2 wq get
	status 2 wq done $q k
	says "Give --fd N"
	status 2 wq get -t never $q
	status 2 wq create -m 888 $q
	status 2 wq run $q
	status 2 wq get $q extra
}
no_q "a wrong command line exits with 2 and says what is wrong" usage

help() {
	local c all
	all=$(wq --help) || exit 1
	for c in create unlink add get done forget bind query cancel list stat info shutdown run; do
		[[ $all = *$'\n'"  $c "* ]] || { echo "# --help leaves out $c"; exit 1; }
		status 0 wq $c --help
	done
	status 0 wq info
	[[ $(<"$out") = *' limit'*'max_key      1024 bytes'* ]]
}
no_q "--help names each command, and each has a --help; info tells the longest key, and that there are limiters" help

# ----

failed=0
echo "TAP version 13"
echo "1..${#tests[@]}"
for ((i = 0; i < ${#tests[@]}; i++)); do
	IFS=$'\t' read -r name function queue <<<"${tests[i]}"
	left=("$dir"/*)
	[ ! -e "${left[0]}" ] || rm -rf "${dir:?}"/*
	: >"$out"
	: >"$err"
	[ -z "$queue" ] || wq create $queue
	# In a process group of its own, which ends as a whole.
	set -m
	(set +m; $function) &
	test=$!
	set +m
	(nap 60; kill -9 -- -$test) >/dev/null 2>&1 &
	watchdog=$!
	if wait $test; then
		echo "ok $((i + 1)) $name"
	else
		echo "not ok $((i + 1)) $name"
		failed=1 queue=$q
	fi
	end_test
done
exit $failed
