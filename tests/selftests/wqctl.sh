#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What wqctl promises, each test a sentence.  Prints TAP.  Runs as root where
# the module is loaded; WQCTL is the path of wqctl.
#
# To start a program is what takes time in an emulated CPU, so the shell's own
# words do what they can, and who waits looks for what is waited for.
#
# The tests are called by name, the queue has nothing to quote in its name, wq done
# is no end of a loop, and some expansions are for the inner shell.
# shellcheck disable=SC2317,SC2086,SC1010,SC2016
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}"
q=wqctl-test.$$
top=$(mktemp -d)
dir=$top/test out=$top/out err=$top/err
tests=()
test='' watchdog='' queue=''
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'queue=q; end_test; rm -rf "$top"' EXIT

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

# t SENTENCE FUNCTION: a test; it runs in a shell of its own, with a new queue
# $q and an empty folder $dir, for a minute at most.  no_q: without that queue.
t() { tests+=("$1"$'\t'"$2"$'\tq'); }
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
	status 2 wq add --after soon $q k
	says "not a time"
}
t "add --after adds later; stat shows how many are delayed and when the next is due" add_after

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
		 '"dones": 1' '"merged": 0' '"shutdown": false' '"mode": "0600"'; do
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
	says "8 runs, 0 failed"
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
	status 1 wq run $q -- sh -c "echo {} >>$dir/ran
		[ {} = bad ] || exit 0
		[ -e $dir/again ] || { : >$dir/again; exit 7; }
		'$WQCTL' shutdown $q"
	is order "bad good bad" "$(lines "$dir/ran")"
	says "key 'bad': exit status 7; added again"
	says "3 runs, 1 failed"
	is keys 0 "$(figures keys)"
}
t "a key whose command fails is added again, at the tail, until it succeeds; run exits with 1" run_fails

run_once() {
	wq add $q a b
	status 0 wq run --once $q -- true
	is keys 0 "$(figures keys)"
	wq add $q a bad b
	status 1 wq run --once $q -- sh -c "echo {} >>$dir/ran; [ {} != bad ]"
	is ran "a bad b" "$(lines "$dir/ran")"
	says "1 keys are back in the queue"
	is left bad "$(wq get -n 9 $q)"
}
t "run --once runs each key once, keeps those that failed in the queue, and exits with 0 where none did" run_once

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
	says "1 runs, 0 failed"
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
	for c in create unlink add get done bind query cancel list stat info shutdown run; do
		[[ $all = *$'\n'"  $c "* ]] || { echo "# --help leaves out $c"; exit 1; }
		status 0 wq $c --help
	done
	status 0 wq info
	[[ $(<"$out") = *'max_key      1024 bytes'* ]]
}
no_q "--help names each command, and each has a --help; info tells the longest key" help

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
	[ -z "$queue" ] || wq create $q
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
		failed=1 queue=q
	fi
	end_test
done
exit $failed
