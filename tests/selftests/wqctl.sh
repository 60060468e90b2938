#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What wqctl promises, each test a sentence.  Prints TAP.  Runs as root where
# the module is loaded; WQCTL is the path of wqctl.
# The tests are called by name, the queue has nothing to quote in its name, wq done
# is no end of a loop, and some expansions are for the inner shell.
# shellcheck disable=SC2317,SC2086,SC1010,SC2016
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}"
q=wqctl-test.$$
dir=$(mktemp -d)
tests=()
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'wq unlink $q >/dev/null 2>&1; wq unlink $q.2 >/dev/null 2>&1; rm -rf "$dir"' EXIT

# Not for what goes to the background: $! would be a shell's.
wq() { "$WQCTL" "$@"; }

# t SENTENCE FUNCTION: a test; it runs in a shell of its own, with a new queue
# $q and an empty folder $dir
t() { tests+=("$1"$'\t'"$2"); }

# is WHAT WANTED GOT
is() { [ "$2" = "$3" ] || { printf '# %s: wanted %q, got %q\n' "$1" "$2" "$3"; exit 1; }; }

# status WANTED COMMAND...
status() {
	local want=$1 got=0
	shift
	"$@" >"$dir/out" 2>"$dir/err" || got=$?
	[ $got -eq "$want" ] || {
		printf '# %s: wanted status %d, got %d\n' "$*" "$want" $got
		sed 's/^/# /' "$dir/err"
		exit 1
	}
}

# says TEXT: the last status' standard error has it
says() {
	grep -qF -- "$1" "$dir/err" || { echo "# not said: $1"; sed 's/^/# /' "$dir/err"; exit 1; }
}

# figure NAME [QUEUE]: a figure of stat
figure() { wq stat "${2:-$q}" | sed -n "s/^$1  *//p"; }

# soon COMMAND...: it comes true within 10 s
soon() {
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" && return
		sleep 0.05
	done
	echo "# never true: $*"
	exit 1
}

file_has() { [ -e "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ]; }
gone() { ! kill -0 "$1" 2>/dev/null; }
figure_is() { [ "$(figure "$1")" = "$2" ]; }

# ---- create, unlink

create_mode() {
	(umask 077; wq create -m 0640 $q.2) || exit 1
	local got
	got=$(figure mode $q.2)
	wq unlink $q.2
	is mode 0640 "$got"
}
t "create -m sets the mode, whatever the umask" create_mode

create_max() {
	wq create -n 2 $q.2 || exit 1
	status 0 wq add $q.2 a b
	status 1 wq add $q.2 a c
	says "as many keys as it may"
	is ready 2 "$(figure ready $q.2)"
	status 0 wq unlink $q.2
}
t "create -n sets how many keys there may be, and add says that the queue is full" create_max

create_twice() { status 1 wq create $q; says "there is a queue of that name"; }
t "create of a queue that exists fails" create_twice

bad_name() {
	status 1 wq create .hidden
	says "can't be a queue's name"
	status 1 wq create a/b
	status 1 wq create "$(printf '%064d' 0)"
}
t "create refuses a bad name and says which are good" bad_name

no_queue() {
	local c
	for c in "add no.such k" "get no.such" "stat no.such" "run no.such -- true" "unlink no.such"; do
		# shellcheck disable=SC2086
		status 1 wq $c
		says "there is no queue of that name"
	done
}
t "a queue that is not there is said to be not there" no_queue

# ---- add

add_counts() {
	status 0 wq add -v $q a b a
	says "2 added, 1 coalesced"
}
t "add -v says how many keys were added and how many coalesced" add_counts

add_lines() {
	printf 'one\n\ntwo words\nlast' | wq add $q
	is keys $'one\ntwo words\nlast' "$(wq get -n 9 $q)"
}
t "add without keys reads lines, leaves out empty ones, and takes a last one without newline" add_lines

add_nul() {
	printf 'a\nb\0c\0' | wq add -0 $q
	is keys 'a.b,c,' "$(wq get -0 -n 9 $q | tr '\n\0' '.,')"
}
t "add -0 and get -0 pass keys with newlines" add_nul

add_many() {
	seq 60000 | wq add -v $q 2>"$dir/err" || exit 1
	says "60000 added, 0 coalesced"
	is order "$(seq 60000 | cksum)" "$(wq get -n 70000 $q | cksum)"
}
t "60,000 lines come out in the order they went in" add_many

add_long() {
	status 1 wq add $q < <(echo good; printf '%01025d\n' 0; echo after)
	says "line 2 of standard input is longer"
	is keys good "$(wq get -n 9 $q)"
	status 1 wq add $q < <(head -c 200000 /dev/zero | tr '\0' x)
	says "line 1 of standard input is longer"
}
t "a line longer than a key may be is named, and the keys before it are added" add_long

add_longest() {
	local key
	key=$(printf '%01024d' 0)
	status 0 wq add $q "$key"
	is key "$key" "$(wq get $q)"
}
t "a key of 1,024 bytes passes" add_longest

add_at_once() {
	mkfifo "$dir/fifo"
	wq add $q <"$dir/fifo" &
	exec 8>"$dir/fifo"
	echo one >&8
	is key one "$(wq get -t 10 $q 8>&-)"
	exec 8>&-
	wait $!
	is status 0 $?
}
t "a line from a slow pipe is added at once, not when the pipe ends" add_at_once

# ---- get

get_empty() { status 3 wq get $q; status 3 wq get -t 0.05 $q; }
t "get from an empty queue exits with 3" get_empty

get_wait() {
	(sleep 0.3; wq add $q late) &
	is key late "$(wq get --wait $q)"
}
t "get --wait waits for a key" get_wait

get_is_done() {
	wq add $q k
	wq get $q >/dev/null
	is "processing, dones" "0 1" "$(figure processing) $(figure dones)"
}
t "get QUEUE is done with the key it printed" get_is_done

get_full() {
	wq add $q k
	status 1 bash -c "'$WQCTL' get $q >/dev/full"
	says "the keys go back"
	is key k "$(wq get $q)"
}
t "a key that can't be written goes back" get_full

get_pipe() {
	wq add $q k
	(sleep 0.3; wq get $q) | true
	is key k "$(wq get $q)"
}
t "a key for a closed pipe goes back" get_pipe

get_killed() {
	wq add $q k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	is key k "$(wq get --fd 7)"
	is ready 0 "$(figure ready)"
	exec 7>&-
	is key k "$(wq get $q)"
}
t "a key held by a descriptor goes back when that is closed" get_killed

# ---- --fd

fd_done() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add --fd 7 a b
	is key a "$(wq get --fd 7)"
	is state "processing,mine" "$(wq query --fd 7 a)"
	is state processing "$(wq query $q a)"
	status 0 wq done --fd 7 a
	status 1 wq done --fd 7 a
	says "does not hold the key 'a'"
	is held 0 "$(wq stat --fd 7 | sed -n 's/^held *//p')"
}
t "get --fd holds the key until done --fd, by then done fails" fd_done

fd_stranger() {
	wq add $q a
	exec 7<>/dev/wq 6<>/dev/wq
	wq bind --fd 7 $q
	wq bind --fd 6 $q
	wq get --fd 7 >/dev/null
	status 1 wq done --fd 6 a
	says "another consumer does"
	status 0 wq done --fd 7 a
}
t "done of a key that another descriptor holds fails" fd_stranger

fd_private() {
	exec 7<>/dev/wq
	status 0 wq bind --fd 7
	wq add --fd 7 x
	is key x "$(wq get --fd 7)"
	status 1 wq bind --fd 7 $q
	says "has a queue already"
}
t "bind without QUEUE makes a private queue, and a second bind fails" fd_private

fd_wrong() {
	exec 7<>/dev/wq
	status 1 wq get --fd 7
	says "bind it first"
	status 1 wq get --fd 63
	says "is not open"
	status 1 wq get --fd 0 </dev/null
	says "is not a wq"
}
t "a descriptor that is no queue is said to be none" fd_wrong

fd_again() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q a
	wq get --fd 7 >/dev/null
	wq add $q a
	is state processing,dirty "$(wq query $q a)"
	wq done --fd 7 a
	is state ready "$(wq query $q a)"
}
t "a key added during the work is ready again after done" fd_again

# ---- query, cancel, list, stat, info, shutdown

query_none() { status 3 wq query $q k; says "has no key 'k'"; }
t "query of an unknown key exits with 3" query_none

cancel_it() {
	wq add $q a b
	is state ready "$(wq cancel $q a)"
	status 3 wq cancel $q a
	is keys b "$(wq get -n 9 $q)"
}
t "cancel drops a key and tells its state" cancel_it

list_them() {
	seq 3000 | wq add $q
	is list "$(seq 3000 | sed 's/$/\tready/' | sort | cksum)" "$(wq list $q | sort | cksum)"
}
t "list tells 3,000 keys, each once" list_them

list_escapes() {
	printf 'a\tb\\\377\n\0' | wq add -0 $q
	is list 'a\tb\\\377\n	ready' "$(LC_ALL=C wq list $q)"
	is raw '6109625cff0a00' "$(wq list -0 $q | od -An -tx1 | tr -d ' \n')"
}
t "list escapes what is not text, and -0 does not" list_escapes

stat_json() {
	wq add $q a b a
	wq get $q >/dev/null
	wq stat --json $q >"$dir/json" || exit 1
	local f
	for f in "\"name\": \"$q\"" '"ready": 1' '"adds": 2' '"coalesced": 1' '"gets": 1' \
		 '"dones": 1' '"shutdown": false' '"mode": "0600"'; do
		grep -qF "$f" "$dir/json" || { echo "# no $f"; sed 's/^/# /' "$dir/json"; exit 1; }
	done
}
t "stat --json has the figures" stat_json

info_max() { wq info | grep -qx 'max_key      1024 bytes'; }
t "info tells the longest key" info_max

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
	"$WQCTL" shutdown --drain $q &
	soon figure_is draining yes
	gone $! && { echo "# did not wait"; exit 1; }
	wq get $q >/dev/null
	wait $!
	is status 0 $?
}
t "shutdown --drain waits for the last key" drain

drain_ended() {
	wq add $q a
	"$WQCTL" shutdown --drain $q 2>"$dir/err" &
	soon figure_is draining yes
	wq shutdown $q
	wait $!
	is status 1 $?
	says "another shutdown"
}
t "a plain shutdown ends a drain, which exits with 1" drain_ended

# ---- run

run_all() {
	seq 20 | wq add $q
	wq shutdown $q
	status 0 wq run -j 4 $q -- sh -c 'echo "$1" >>'"$dir/ran" sh
	is keys "$(seq 20)" "$(sort -n "$dir/ran")"
	says "20 runs, 0 failed"
}
t "run runs the command for each key, until the queue is shut down and empty" run_all

run_braces() {
	wq add $q k
	wq shutdown $q
	is out "1k 2 k+k" "$(wq run -q $q -- echo '1{}' 2 '{}+{}')"
}
t "run replaces each {} by the key" run_braces

run_append() {
	wq add $q 'two words'
	wq shutdown $q
	is out "<-n><two words>" "$(wq run -q $q printf '<%s>' -n)"
}
t "run appends the key where there is no {}, and leaves the command's options alone" run_append

run_fails() {
	wq add $q k
	status 1 timeout 20 "$WQCTL" run $q -- sh -c \
		"echo >>$dir/n; [ \$(wc -l <$dir/n) -lt 3 ] && exit 7; '$WQCTL' shutdown $q"
	is runs 3 "$(wc -l <"$dir/n")"
	says "key 'k': exit status 7; added again"
	says "3 runs, 2 failed"
	is keys 0 "$(figure keys)"
}
t "a key whose command fails is added again, until it succeeds; run exits with 1" run_fails

run_tail() {
	wq add $q bad good
	status 1 timeout 20 "$WQCTL" run $q -- sh -c \
		"echo {} >>$dir/ran; [ {} = good ] || { [ \$(wc -l <$dir/ran) -ge 3 ] && '$WQCTL' shutdown $q; }"
	is order "bad good bad" "$(paste -sd' ' "$dir/ran")"
}
t "a key that failed goes to the tail" run_tail

run_once() {
	wq add $q a bad b
	status 1 timeout 20 "$WQCTL" run --once -j 2 $q -- sh -c "echo {} >>$dir/ran; [ {} != bad ]"
	is ran "a b bad" "$(sort "$dir/ran" | paste -sd' ')"
	is left bad "$(wq get -n 9 $q)"
	says "1 keys are back in the queue"
}
t "run --once runs each key once, and keeps those that failed in the queue" run_once

run_once_ok() {
	seq 5 | wq add $q
	status 0 timeout 20 "$WQCTL" run --once $q -- true
	is keys 0 "$(figure keys)"
}
t "run --once exits with 0 where all succeeded" run_once_ok

run_nul() {
	printf 'a\0b' >"$dir/key"
	cat >"$dir/nul.py" <<-PY
	import fcntl, os, struct, ctypes
	fd = os.open("/dev/wq", os.O_RDWR)
	fcntl.ioctl(fd, 0xe701, struct.pack("<II64sII", 80, 0, b"$q", 0, 0))
	rec = ctypes.create_string_buffer(struct.pack("<HHIQq8s", 3, 0, 0, 0, 0, b"a\\0b"), 32)
	fcntl.ioctl(fd, 0xe703, struct.pack("<IIQIIQ", 32, 0, ctypes.addressof(rec), 32, 1, 0))
	PY
	python3 "$dir/nul.py" || exit 1
	is list 'a\000b	ready' "$(wq list $q)"
	status 1 timeout 20 "$WQCTL" run --once $q -- touch "$dir/never"
	says "key 'a\\000b': a NUL can't be in an argument; dropped"
	is keys 0 "$(figure keys)"
	[ ! -e "$dir/never" ]
}
t "run reports and drops a key with a NUL" run_nul

run_no_command() {
	wq add $q k
	status 1 timeout 20 "$WQCTL" run -j 3 $q -- no-such-command
	says "can't run 'no-such-command'"
	is key k "$(wq get $q)"
}
t "run ends where the command does not exist, and leaves the key" run_no_command

run_127() {
	wq add $q k
	wq shutdown $q
	status 1 timeout 20 "$WQCTL" run $q -- sh -c 'exit 127'
	says "exit status 127; dropped, as the queue is shut down"
}
t "run takes a command's own exit status 127 for a failure" run_127

run_worker_killed() {
	wq add $q k
	"$WQCTL" run -j 1 $q -- sh -c "echo \$PPID >>$dir/ran; [ \$(wc -l <$dir/ran) -ge 2 ] || { sleep 100; :; }" \
		2>"$dir/err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -9 "$(head -1 "$dir/ran")"
	soon file_has "$dir/ran" 2
	wq shutdown $q
	wait $run
	is status 0 $?
	says "was killed by signal 9; its key goes back to the queue, a new worker starts"
	is "keys, given back" "0 1" "$(figure keys) $(figure given_back)"
}
t "a worker that is killed is reported and replaced, and its key runs again" run_worker_killed

run_not_twice() {
	wq add $q k
	cat >"$dir/work" <<-END
	echo \$PPID >>$dir/ran
	if mkdir $dir/first; then
		# A child of the command, which is not the worker's child.
		(while :; do echo >>$dir/beats; sleep 0.01; done)
	fi
	beats=\$(wc -l <$dir/beats)
	sleep 0.3
	[ \$beats = \$(wc -l <$dir/beats) ] || touch $dir/twice
	touch $dir/checked
	END
	"$WQCTL" run -j 2 -q $q -- bash "$dir/work" 2>/dev/null &
	local run=$!
	soon file_has "$dir/beats" 5
	kill -9 "$(head -1 "$dir/ran")"
	soon test -e "$dir/checked"
	wq shutdown $q
	wait $run
	[ ! -e "$dir/twice" ]
}
t "a killed worker's key runs again only once its command's children are gone" run_not_twice

run_term() {
	seq 3 | wq add $q
	"$WQCTL" run $q -- sh -c "echo start {} >>$dir/ran; sleep 1; echo end {} >>$dir/ran" 2>"$dir/err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	wait $run
	is status 0 $?
	is ran "start 1,end 1" "$(paste -sd, "$dir/ran")"
	is left "2 3" "$(wq get -n 9 $q | paste -sd' ')"
	says "1 runs, 0 failed"
}
t "SIGTERM lets the running command end and starts no more" run_term

run_term_twice() {
	wq add $q k
	"$WQCTL" run $q -- sh -c "echo >>$dir/ran; sleep 100; :" 2>"$dir/err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	soon grep -q 'once more' "$dir/err"
	kill -TERM $run
	wait $run
	is status 1 $?
	is key k "$(wq get -t 5 $q)"
}
t "a second SIGTERM kills the command, and the key goes back" run_term_twice

run_idle_term() {
	"$WQCTL" run -j 8 $q -- true 2>/dev/null &
	local run=$!
	sleep 0.5
	kill -TERM $run
	soon gone $run
	wait $run
	is status 0 $?
}
t "SIGTERM ends workers that wait for a key" run_idle_term

run_parent_killed() {
	seq 2 | wq add $q
	"$WQCTL" run $q -- sh -c "echo {} >>$dir/ran; sleep 0.5; echo end >>$dir/ran" 2>/dev/null &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -9 $run
	wait $run 2>/dev/null
	soon file_has "$dir/ran" 2
	soon figure_is processing 0
	is "ran, left" "1 end 2" "$(paste -sd' ' "$dir/ran") $(wq get -n 9 $q)"
}
t "workers whose parent is killed end after the command that they run" run_parent_killed

run_one_at_a_time() {
	"$WQCTL" run -q -j 4 $q -- sh -c \
		"mkdir $dir/k.{} || echo {} >>$dir/twice; echo >>$dir/ran; sleep 0.05; rmdir $dir/k.{}" &
	local run=$! i
	for i in 1 2 3 4 5 6; do
		wq add $q a b c
		sleep 0.1
	done
	wq shutdown $q
	wait $run
	is status 0 $?
	[ ! -e "$dir/twice" ] || exit 1
	file_has "$dir/ran" 6
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
	status 2 wq create -m 888 $q.2
	status 2 wq run $q
	status 2 wq get $q extra
}
t "a wrong command line exits with 2 and says what is wrong" usage

help() {
	local c
	status 0 wq --help
	for c in create unlink add get done bind query cancel list stat info shutdown run; do
		grep -q "^  $c " <(wq --help) || { echo "# --help leaves out $c"; exit 1; }
		status 0 wq $c --help
	done
}
t "--help names each command, and each has a --help" help

stdout_full() {
	wq add $q k
	status 1 bash -c "'$WQCTL' list $q >/dev/full"
	says "can't write to standard output"
}
t "output that can't be written is an error" stdout_full

# ----

failed=0
echo "TAP version 13"
echo "1..${#tests[@]}"
for ((i = 0; i < ${#tests[@]}; i++)); do
	IFS=$'\t' read -r name function <<<"${tests[i]}"
	rm -rf "${dir:?}"/*
	wq unlink $q >/dev/null 2>&1
	if wq create $q && (trap 'jobs -p | xargs -r kill -9 2>/dev/null' EXIT; $function); then
		echo "ok $((i + 1)) $name"
	else
		echo "not ok $((i + 1)) $name"
		failed=1
	fi
done
exit $failed
