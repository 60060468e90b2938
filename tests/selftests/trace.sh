#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Tracepoints, the tools that use them, and hostile keys and the directory in debugfs.  debugfs.c
# tests the other files of debugfs.  Prints TAP.  Runs as root on a machine with the module loaded,
# tracefs and debugfs; WQCTL is the path of wqctl, SRC that of the project.
#
# The tests run through their names, and the queue's name needs no quotes.
# shellcheck disable=SC2317,SC2086,SC1010
set -u
export LC_ALL=C

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
trace=/sys/kernel/tracing debug=/sys/kernel/debug/wq
q=trace-test.$$
# Without it, a change of the events patches the scheduler.  Emulated CPUs have hung in that.
echo 0 >$trace/options/record-cmd
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

cleanup() {
	echo 0 >$trace/events/wq/enable
	unlink_queues $q
}

# ---- tracepoints

trace_on() {
	echo 0 >$trace/tracing_on
	echo >$trace/trace
	echo 1 >$trace/events/wq/enable
	echo 1 >$trace/tracing_on
}

# read_events [QUEUE]: the queue's events so far, without their times, into events[]
read_events() {
	local line
	events=()
	# through a pipe, because bash seeks in files and tracefs does not support that
	while IFS= read -r line; do
		case $line in *": wq_"*": queue=${1-$q} "*) events+=("wq_${line#*: wq_}") ;; esac
	done < <(cat $trace/trace)
	events=("${events[@]/queue=${1-$q} /}")
}

# saw NAME REGEX: the next event has this name and these fields, in BASH_REMATCH.  A level that
# REGEX does not have is 0.
saw() {
	local event=${events[0]-nothing}
	events=("${events[@]:1}")
	[[ $event =~ ^"$1":\ $2(\ priority=0)?$ ]] || fail "$(printf 'event: expected %s: %s, seen %q' "$1" "$2" "$event")"
}

saw_all() { [ ${#events[@]} -eq 0 ] || fail "expected no further event, seen ${events[0]}"; }

test_trace_add_get_done() {
	queue
	trace_on
	consumer 7
	wq add $q k
	wq add $q k
	nap 0.05
	wq get --fd 7 >/dev/null
	wq add $q k
	nap 0.05
	wq done --fd 7 k
	wq get --fd 7 >/dev/null
	wq done --fd 7 k
	read_events
	saw wq_add 'key=k coalesced=0'
	saw wq_add 'key=k coalesced=1'
	saw wq_get 'key=k ns=([0-9]+)'
	among "ns of the wait" 50000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_add 'key=k coalesced=0'
	saw wq_done 'key=k ns=([0-9]+)'
	among "ns of the work" 50000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_get 'key=k ns=([0-9]+)'
	# the key waited since the add during processing
	among "ns of the second wait" 50000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_done 'key=k ns=[0-9]+'
	saw_all
}

test_trace_add_after() {
	queue
	trace_on
	wq add --after 2h $q later
	wq add --after 300ms $q k
	is key k "$(wq get -t 20 $q)"
	read_events
	saw wq_delay 'key=later ns=7200000000000'
	saw wq_delay 'key=k ns=300000000'
	saw wq_due 'key=k ns=([0-9]+)'
	among "ns that it was late" 0 20000000000 "${BASH_REMATCH[1]}"
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_done 'key=k ns=[0-9]+'
	saw_all
}

test_trace_rate_limited() {
	queue --limiter exponential:50ms:10s
	trace_on
	consumer 7
	wq add --rate-limited $q k
	is key k "$(wq get -t 20 --fd 7)"
	wq done --fd 7 --retry k
	is key k "$(wq get -t 20 --fd 7)"
	read_events
	saw wq_retry 'key=k failures=1 delay=50000000'
	saw wq_delay 'key=k ns=50000000'
	saw wq_due 'key=k ns=[0-9]+'
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_retry 'key=k failures=2 delay=100000000'
	saw wq_delay 'key=k ns=100000000'
	saw wq_done 'key=k ns=[0-9]+'
	saw wq_due 'key=k ns=[0-9]+'
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=[0-9]+'
	saw_all
}

# hold N: a process of its own, $holder, opens the file, gets N keys of $q and waits
hold() {
	bash -c 'exec 7<>/dev/wq
		"$1" bind --fd 7 "$2" && "$1" get --fd 7 -n "$3" >"$4/held" && exec sleep 600' \
		bash "$WQCTL" $q "$1" "$dir" &
	holder=$!
	eventually stat_is processing "$1"
}

test_trace_give_back_of_a_killed_consumer() {
	queue
	wq add $q a b c
	hold 2
	trace_on
	kill -9 $holder
	wait $holder 2>/dev/null
	eventually stat_is processing 0
	is keys $'a\nb\nc' "$(wq get -n 9 $q)"
	read_events
	saw wq_give_back 'key=b ns=[0-9]+'
	saw wq_give_back 'key=a ns=[0-9]+'
	saw wq_get 'key=a ns=([0-9]+)'
	# the wait began when the key was given back, not at its first add
	# a key that was given back is handed out alone
	saw wq_done 'key=a ns=[0-9]+'
	saw wq_get 'key=b ns=[0-9]+'
	saw wq_done 'key=b ns=[0-9]+'
	saw wq_get 'key=c ns=[0-9]+'
	saw wq_done 'key=c ns=[0-9]+'
}

# The key that was processing is ready after a restore, and has been added.
test_trace_restore() {
	queue
	consumer 7
	wq add $q k
	wq get --fd 7 >/dev/null
	wq save -o "$dir/snapshot" $q
	exec 7<&-
	wq unlink $q 2>/dev/null
	trace_on
	succeeds wq restore "$dir/snapshot"
	read_events
	# of the new queue, and of the time in which it is filled
	saw wq_pause 'what=0x3 ns=600000000000'
	saw wq_pause 'what=0x3 ns=10000000000'
	saw wq_add 'key=k coalesced=0'
	saw wq_resume 'what=0x1 ready=1'
	saw wq_resume 'what=0x2 ready=1'
	saw_all
}

test_trace_lease_expired() {
	queue --lease 300ms
	trace_on
	consumer 7
	wq add $q k
	wq get --token --fd 7 >/dev/null
	eventually stat_is expired 1
	is key k "$(wq get $q)"
	read_events
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_expire 'key=k ns=([0-9]+)'
	among "ns that it was held" 300000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_give_back 'key=k ns=([0-9]+)'
	among "ns that it was held" 300000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_done 'key=k ns=[0-9]+'
	saw_all
	is expired 1 "$(metric expired_total)"
}

# The level of an add is that of the wait, of a get, done and expire that of the run, and of a
# delay that of the delayed adds.
test_trace_levels() {
	queue --order priority --lease 300ms
	trace_on
	consumer 7
	wq add --priority=-5 $q k
	wq add --priority 7 $q k
	wq add --priority 3 $q k
	wq add --after 1h --priority 9 $q k
	wq add --after 2h --priority 1 $q k
	wq get --token --fd 7 >/dev/null
	wq add --priority=-2 $q k
	eventually stat_is expired 1
	is key k "$(wq get $q)"
	wq add --after 1ms --priority=-32 $q late
	is key late "$(wq get -t 20 $q)"
	read_events
	saw wq_add 'key=k coalesced=0 priority=-5'
	saw wq_add 'key=k coalesced=1 priority=7'
	saw wq_add 'key=k coalesced=1 priority=7'
	saw wq_delay 'key=k ns=3600000000000 priority=9'
	saw wq_delay 'key=k ns=7200000000000 priority=9'
	saw wq_get 'key=k ns=[0-9]+ priority=7'
	saw wq_add 'key=k coalesced=0 priority=-2'
	saw wq_expire 'key=k ns=[0-9]+ priority=7'
	saw wq_give_back 'key=k ns=[0-9]+ priority=7'
	saw wq_get 'key=k ns=[0-9]+ priority=7'
	saw wq_done 'key=k ns=[0-9]+ priority=7'
	saw wq_delay 'key=late ns=1000000 priority=-32'
	saw wq_due 'key=late ns=[0-9]+ priority=-32'
	saw wq_add 'key=late coalesced=0 priority=-32'
	saw wq_get 'key=late ns=[0-9]+ priority=-32'
	saw wq_done 'key=late ns=[0-9]+ priority=-32'
	saw_all
}

# A group has no priority, and what lies ahead of its entry is not one.
test_trace_rest_of_a_group_with_priorities_and_a_start_rate() {
	queue --order groups:/,priority --group-start-rate 1/h --group-start-burst 2
	local i
	wq add --priority 7 $q a/1
	wq get $q >/dev/null
	trace_on
	for i in 1 2 3; do
		wq rest $q a/ ${i}h
	done
	wq rest $q a/ 0
	read_events
	for i in 1 2 3; do
		saw wq_rest "key=a/ ns=$((i * 3600000000000))"
	done
	saw wq_rest 'key=a/ ns=0'
	saw_all
}

test_trace_cancel_and_shutdown() {
	queue
	consumer 7
	wq add $q a b held
	wq get --fd 7 -n 1 >/dev/null
	wq add --after 1h $q later
	wq add --after 1h $q b
	trace_on
	wq cancel $q b >/dev/null
	wq cancel $q a >/dev/null
	wq add --after 1h $q once more
	wq shutdown $q
	wq shutdown $q
	# fails without an event
	wq add $q refused 2>/dev/null
	read_events
	saw wq_cancel 'key=b state=0xd'
	saw wq_cancel 'key=a state=0x2'
	saw wq_delay 'key=once ns=3600000000000'
	saw wq_delay 'key=more ns=3600000000000'
	saw wq_shutdown 'drain=0 ready=1 dropped=3'
	saw wq_shutdown 'drain=0 ready=1 dropped=0'
	saw_all
	trace_on
	wq get $q >/dev/null
	wq done --fd 7 a
	wq shutdown --drain $q
	read_events
	saw wq_get 'key=held ns=[0-9]+'
	saw wq_done 'key=held ns=[0-9]+'
	saw wq_done 'key=a ns=[0-9]+'
	saw wq_shutdown 'drain=1 ready=0 dropped=0'
	saw_all
}

test_trace_disable_enable_and_the_end_of_a_flush() {
	queue
	wq add $q a
	trace_on
	wq add --wait -t 30s $q a &
	eventually stat_is waiters 1
	wq disable $q a
	wait $! || [ $? = 5 ] || fail "add --wait: status $?"
	# an add that is refused, and an enable of a key that is not disabled, are no events
	wq add $q a 2>/dev/null
	wq enable $q a
	wq enable $q a 2>/dev/null
	read_events
	saw wq_add 'key=a coalesced=1'
	saw wq_disable 'key=a state=0x5'
	saw wq_wait_end 'key=a result=3'
	saw wq_enable 'key=a failures=0'
	saw_all
}

test_trace_pause_and_resume() {
	queue
	wq add $q a
	trace_on
	wq pause --gets $q
	wq pause --adds --for 1h $q
	# a resume of what is not paused, and an add that is refused, are no events
	wq add $q b 2>/dev/null
	wq resume --gets $q
	wq resume --gets $q
	wq shutdown $q
	read_events
	saw wq_pause 'what=0x1 ns=-1'
	saw wq_pause 'what=0x2 ns=3600000000000'
	saw wq_resume 'what=0x1 ready=1'
	saw wq_shutdown 'drain=0 ready=1 dropped=0'
	saw wq_resume 'what=0x2 ready=1'
	saw_all
}

test_trace_park_and_kick() {
	queue --max-keys 4
	consumer 7
	trace_on
	wq add $q a b
	wq get --fd 7 >/dev/null
	wq done --fd 7 --give-up --reason 'no disk' a
	wq get --fd 7 >/dev/null
	wq done --fd 7 --give-up b
	wq kick $q b
	read_events
	saw wq_add 'key=a coalesced=0'
	saw wq_add 'key=b coalesced=0'
	saw wq_get 'key=a ns=[0-9]+'
	saw wq_done 'key=a ns=[0-9]+'
	saw wq_parked 'key=a failures=1 error=0 reason=no disk'
	saw wq_get 'key=b ns=[0-9]+'
	saw wq_done 'key=b ns=[0-9]+'
	saw wq_parked_drop 'key=a failures=1'
	saw wq_forget 'key=a failures=1'
	saw wq_parked 'key=b failures=1 error=0 reason='
	saw wq_kick 'key=b failures=1'
	saw wq_forget 'key=b failures=1'
	saw wq_add 'key=b coalesced=0'
	saw_all
}

test_trace_unnamed_queue() {
	queue
	trace_on
	# wqctl can't add to and get from an unnamed queue in one process
	perl -e '
		open(my $f, "+<", "/dev/wq") or die;
		sub verb { ioctl($f, 0xe800 + $_[0], $_[1]) or die "verb $_[0]: $!" }
		my $open = pack("LL a64 LL QLL", 96, 0, "", 0, 0, 0, 0, 0);
		verb(1, $open);
		my $rec = pack("SSLQq a8", 1, 0, 0, 0, 0, "k");
		my $out = "\0" x 64;
		my $add = pack("LL P LL Q", 32, 0, $rec, 32, 1, 0);
		verb(3, $add);
		my $get = pack("LL P LL q", 32, 0, $out, 64, 1, 0);
		verb(4, $get);
		my $done = pack("LL P LL Q QLL q", 56, 0, $out, 32, 1, 0, 0, 0, 0, 0);
		verb(5, $done);' || fail "perl"
	read_events ''
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=0'
	saw wq_done 'key=k ns=0'
	saw_all
}

# ---- hostile keys

printf -v long '%01024d' 7
printf -v high '\xff%.0s' {1..1024}
printf -v lines '\n%.0s' {1..1024}
hostile=($'new\nline' $'a\rb' $'\e[31mred\e[0m' $'\x1b]0;title\x07' 'quo"te' 'single'"'" 'back\slash'
	'back\nslash' $'\xff\xfe\xc3' $'\xa0\xad' $'gr\xc3\xbc\xc3\x9fe' $'\x7f\x01' 'two words'
	'a key=b ns=1' '%s%n%d' "$long" "$high" "$lines")

# plain TEXT: printable ASCII only
plain() { [[ $1 != *[^\ -~]* ]]; }

# shows_key SHOWN KEY MOST: SHOWN is plain, has MOST bytes at most, and as a C string it is
# KEY or at least the first 60 bytes
shows_key() {
	local key=''
	plain "$1" || fail "$(printf 'expected printable ASCII, seen %q' "$1")"
	among "bytes of $1" 0 "$3" ${#1}
	eval "key=\$'${1//\'/\\\'}'"
	[[ -n $key && $key = "${2:0:${#key}}" ]] ||
		fail "$(printf 'key: expected %q, seen %s' "${2:0:64}" "$1")"
	[[ $key = "$2" || ${#1} -ge 60 ]] ||
		fail "$(printf 'key: expected 60 bytes of %q, seen %s' "${2:0:64}" "$1")"
}

test_trace_hostile_keys_are_escaped_and_bounded() {
	queue
	local key
	trace_on
	for key in "${hostile[@]}"; do
		wq add -0 $q < <(printf '%s\0' "$key")
		wq get -0 $q >/dev/null
	done
	read_events
	is events $((3 * ${#hostile[@]})) ${#events[@]}
	for key in "${hostile[@]}"; do
		saw wq_add 'key=(.*) coalesced=0'
		shows_key "${BASH_REMATCH[1]}" "$key" 63
		saw wq_get 'key=(.*) ns=[0-9]+'
		shows_key "${BASH_REMATCH[1]}" "$key" 63
		saw wq_done 'key=(.*) ns=[0-9]+'
	done
	# a NUL does not end the key
	echo >$trace/trace
	printf 'a\0b' | wq add $q
	read_events
	saw wq_add 'key=a\\(0|000|x00)b coalesced=0'
	saw_all
}

test_debugfs_hostile_keys_are_escaped_and_bounded() {
	shown_queue
	local key line keys=() text quoted='^[^"]*"(.*)"[^"]*$'
	printf '%s\0' "${hostile[@]}" | wq add -0 $q
	hold 5
	for line in metrics state; do
		text=$(<$debug/$q/$line)
		plain "${text//[$'\n\t']/}" ||
			fail "$(printf '%s: expected printable ASCII, seen %q' $line "$text")"
	done
	while IFS= read -r line; do
		# between the first and the last quote
		[[ $line =~ $quoted ]] && keys+=("${BASH_REMATCH[1]}")
	done < <(cat $debug/$q/state)
	is "keys shown" ${#hostile[@]} ${#keys[@]}
	for key in "${!hostile[@]}"; do
		shows_key "${keys[key]}" "${hostile[key]}" 256
	done
}

# ---- debugfs

# The queue's directory is made and removed a little after the call that creates or unlinks
# the queue.
shown() { [ -e $debug/$q/state ]; }
hidden() { [ ! -e $debug/$q ]; }
shown_queue() { queue; eventually shown; }

# metric NAME: its value in debugfs
metric() {
	local name value
	while read -r name value _; do
		if [ "$name" = "$1" ]; then echo "$value"; fi
	done < <(cat $debug/$q/metrics)
}

test_debugfs_directory_follows_the_queue_name() {
	shown_queue
	local text
	wq add $q old
	exec 6<$debug/$q/state
	consumer 7
	wq unlink $q
	eventually hidden
	# debugfs fails reads of an open file after its removal, so no freed queue is read
	status 1 cat <&6
	prints "Input/output error"
	# the queue exists until descriptor 7 is closed
	is key old "$(wq get --fd 7)"
	wq create $q
	eventually shown
	is depth 0 "$(metric depth)"
	wq add $q new
	text=$(<$debug/$q/state)
	matches state '"new"' "$text"
	has_no state '"old"' "$text"
	# the release of the old queue leaves the directory of the new queue
	exec 7>&- 6<&-
	is depth 1 "$(metric depth)"
	wq unlink $q
	eventually hidden
	wq create $q
}

reader() {
	local file text n=0
	while [ ! -e "$dir/stop" ]; do
		for file in "$debug/$q"*/{metrics,state}; do
			text=$(<"$file") && [ -n "$text" ] && n=$((n + 1))
		done
	done 2>/dev/null
	echo $n >"$dir/read.$1"
}

test_debugfs_reads_during_create_and_unlink() {
	queue
	local i n readers=()
	reader 1 &
	readers+=($!)
	reader 2 &
	readers+=($!)
	for ((i = 0; i < 12; i++)); do
		wq create $q-$((i % 3))
		wq add $q-$((i % 3)) a b c
		wq get $q-$((i % 3)) >/dev/null
		wq unlink $q-$((i % 3))
	done
	: >"$dir/stop"
	wait "${readers[@]}"
	for i in 1 2; do
		read -r n <"$dir/read.$i"
		among "files read" 10 1000000 "$n"
	done
	# debugfs reports a second directory of one name
	is "kernel log" '' "$(dmesg | grep 'already present')"
}

# ---- the tools

test_trace_cmd_records_and_reports_events() {
	queue
	local report
	wq add $q before
	# not by "trace-cmd record": a command may end before its recorders read
	trace-cmd start -e wq >"$err" 2>&1 || fail "trace-cmd start:" "$(<"$err")"
	wq add $q $'k\n'
	trace-cmd stop
	trace-cmd extract -o "$dir/trace.dat" >"$err" 2>&1 || fail "trace-cmd extract:" "$(<"$err")"
	echo 0 >$trace/events/wq/enable
	echo 1 >$trace/tracing_on
	report=$(trace-cmd report -q -i "$dir/trace.dat" 2>"$err") || fail "trace-cmd report: expected exit status 0, seen:" "$(<"$err")"
	matches report "wq_add: +queue=$q key=k\\\\n coalesced=0" "$report"
}

# sum_of MAP: the sum of the histogram of this queue in bpftrace's MAP
sum_of() {
	local line in='' sum=0 count='[])] +([0-9]+) +\|'
	while IFS= read -r line; do
		case $line in
		@*) in=''; if [ "$line" = "@$1[$q]: " ] || [ "$line" = "@$1[$q]:" ]; then in=1; fi ;;
		*'|'*'|') [[ -n $in && $line =~ $count ]] && sum=$((sum + BASH_REMATCH[1])) ;;
		esac
	done <"$dir/bt"
	echo $sum
}

# interrupted PID: sends SIGINT, unless the process has ended, and waits for the end for 8 s.  A
# second signal would end bpftrace before it has printed its maps.
interrupted() {
	local i
	ended "$1" || kill -INT "$1"
	for ((i = 0; i < 80; i++)); do
		! ended "$1" || return 0
		nap 0.1
	done
	return 1
}

test_bpftrace_latency_histograms_count_each_key() {
	queue
	local bt i
	exists $trace/events/wq/wq_get/format
	: >"$dir/bt"
	"$SRC/tools/system/bpftrace/wq-latency.bt" >"$dir/bt" 2>"$err" &
	bt=$!
	for ((i = 0; i < 4000; i++)); do
		[[ $(<"$dir/bt") = *Ctrl-C* ]] && break
		kill -0 $bt 2>/dev/null || fail "wq-latency.bt: expected to run, seen to end:" "$(<"$err")"
		nap 0.05
	done
	has "banner of bpftrace" Ctrl-C "$(<"$dir/bt")"
	for ((i = 0; i < 10; i++)); do
		wq add $q < <(printf '%s\n' {1..50})
		[ $i -ne 5 ] || nap 0.1
		wq get -n 50 $q >/dev/null
	done
	# again, because bpftrace prints its banner before it handles the signal
	eventually interrupted $bt
	wait $bt || fail "wq-latency.bt: expected exit status 0, seen $?:" "$(<"$err")"
	sed 's/^/# /' "$dir/bt"
	is "waits" 500 "$(sum_of wait_ns)"
	is "works" 500 "$(sum_of work_ns)"
	matches histogram '@@@@' "$(<"$dir/bt")"
}

run_tests "$@"
