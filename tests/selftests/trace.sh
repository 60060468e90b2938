#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What tracepoints, debugfs and the tools that stand on them tell, each test a
# sentence.  Prints TAP.  Runs as root where the module is loaded, with tracefs and
# debugfs; WQCTL is the path of wqctl, SRC that of the project.
#
# As in wqctl.sh, to start a program is what takes time in an emulated CPU.
#
# The tests are called by name, and the queue has nothing to quote in its name.
# shellcheck disable=SC2317,SC2086,SC1010
set -u
export LC_ALL=C

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
trace=/sys/kernel/tracing debug=/sys/kernel/debug/wq
q=trace-test.$$
top=$(mktemp -d)
dir=$top/test err=$top/err
tests=()
test='' watchdog=''
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'end_test; rm -rf "$top"' EXIT

mkdir "$dir"

# nap SECONDS: sleep, without a process
exec {never}<> <(:)
nap() { read -rt "$1" -u $never; }

# Not for what goes to the background: $! would be a shell's.
wq() { "$WQCTL" "$@"; }

end_test() {
	[ -z "$test" ] || kill -9 -- "-$test"
	[ -z "$watchdog" ] || kill "$watchdog"
	wq unlink $q
	echo 0 >$trace/events/wq/enable
	test='' watchdog=''
} 2>/dev/null

# t SENTENCE FUNCTION [OPTION...]: a test; it runs in a shell of its own, with a new
# queue $q, made with these options, and an empty folder $dir, for 5 minutes at most.
t() { tests+=("$1"$'\t'"$2"$'\t'"$q ${*:3}"); }

fail() { printf '# %s\n' "$*"; exit 1; }

# is WHAT WANTED GOT
is() { [ "$2" = "$3" ] || fail "$(printf '%s: wanted %q, got %q' "$1" "${2:0:999}" "${3:0:999}")"; }

# among WHAT LEAST MOST GOT
among() {
	[[ $4 =~ ^-?[0-9]+$ && $4 -ge $2 && $4 -le $3 ]] || fail "$1: $4 is not from $2 to $3"
}

# matches WHAT REGEX GOT
matches() { [[ $3 =~ $2 ]] || fail "$(printf '%s: wanted %s, got %q' "$1" "$2" "${3:0:999}")"; }

# soon COMMAND...: it comes true within 20 s
soon() {
	local i
	for ((i = 0; i < 1000; i++)); do
		"$@" && return
		nap 0.02
	done
	fail "never true: $*"
}

# figure NAME: of stat
figure() {
	local name value
	while read -r name value; do
		if [ "$name" = "$1" ]; then echo "$value"; fi
	done < <(wq stat $q)
}
figure_is() { [ "$(figure "$1")" = "$2" ]; }

# Descriptor 7 is a consumer.
consume() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
}

# ---- tracepoints

trace_on() {
	echo 0 >$trace/tracing_on
	echo >$trace/trace
	echo 1 >$trace/events/wq/enable
	echo 1 >$trace/tracing_on
}

# read_events [QUEUE]: its events so far, without their time, into events[]
read_events() {
	local line
	events=()
	# through a pipe: bash seeks in a file, which this one isn't made for
	while IFS= read -r line; do
		case $line in *": wq_"*": queue=${1-$q} "*) events+=("wq_${line#*: wq_}") ;; esac
	done < <(cat $trace/trace)
	events=("${events[@]/queue=${1-$q} /}")
}

# saw NAME REGEX: what the next event has to be; BASH_REMATCH is of the regex
saw() {
	local event=${events[0]-nothing}
	events=("${events[@]:1}")
	[[ $event =~ ^"$1":\ $2$ ]] || fail "$(printf 'wanted %s: %s, saw %q' "$1" "$2" "$event")"
}

saw_all() { [ ${#events[@]} -eq 0 ] || fail "one more: ${events[0]}"; }

events_of_a_run() {
	trace_on
	consume
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
	# it waited since the add during the work
	among "ns of the second wait" 50000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_done 'key=k ns=[0-9]+'
	saw_all
}
t "add, a coalesced add, get and done are an event each, with the times of wait and work" events_of_a_run

events_of_a_delay() {
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
t "a delay is an event, and so is its end: it says how late that was, and an add follows" events_of_a_delay

events_of_a_retry() {
	trace_on
	consume
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
t "a retry is an event that says which failure it is and what the limiter said" events_of_a_retry --limiter exponential:50ms:10s

# Gets N keys of $q by a process of its own, $holder, which is the one that opened the
# file and waits then.
hold() {
	bash -c 'exec 7<>/dev/wq
		"$1" bind --fd 7 "$2" && "$1" get --fd 7 -n "$3" >"$4/held" && exec sleep 600' \
		bash "$WQCTL" $q "$1" "$dir" &
	holder=$!
	soon figure_is processing "$1"
}

events_of_a_death() {
	wq add $q a b c
	hold 2
	trace_on
	kill -9 $holder
	wait $holder 2>/dev/null
	soon figure_is processing 0
	is keys $'a\nb\nc' "$(wq get -n 9 $q)"
	read_events
	saw wq_give_back 'key= keys=2'
	saw wq_get 'key=a ns=([0-9]+)'
	# since it was given back, not since its first add, long ago
	saw wq_get 'key=b ns=[0-9]+'
	saw wq_get 'key=c ns=[0-9]+'
	saw wq_done 'key=a ns=[0-9]+'
}
t "a consumer that is killed gives back its keys: one event says how many" events_of_a_death

events_of_an_expiry() {
	trace_on
	consume
	wq add $q k
	wq get --fd 7 >/dev/null
	soon figure_is expired 1
	is key k "$(wq get $q)"
	read_events
	saw wq_add 'key=k coalesced=0'
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_expire 'key=k ns=([0-9]+)'
	among "ns that it was held" 300000000 20000000000 "${BASH_REMATCH[1]}"
	saw wq_give_back 'key=k keys=1'
	saw wq_get 'key=k ns=[0-9]+'
	saw wq_done 'key=k ns=[0-9]+'
	saw_all
	is expired 1 "$(shows expired_total)"
}
t "the end of a lease is an event that says how long the key was held, and one that gives it back; debugfs counts it" events_of_an_expiry --lease 300ms

events_of_the_end() {
	consume
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
	# refused, and no event
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
t "cancel tells the state that a key was in, shut down what is left and what is dropped" events_of_the_end

events_without_a_name() {
	trace_on
	# bind, add, get: what wqctl has no verb for without a queue's name
	perl -e '
		open(my $f, "+<", "/dev/wq") or die;
		sub verb { ioctl($f, 0xe700 + $_[0], $_[1]) or die "verb $_[0]: $!" }
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
t "a queue without a name is traced too, without times" events_without_a_name

# ---- keys that want to look like something else

printf -v long '%01024d' 7
printf -v high '\xff%.0s' {1..1024}
printf -v lines '\n%.0s' {1..1024}
hostile=($'new\nline' $'a\rb' $'\e[31mred\e[0m' $'\x1b]0;title\x07' 'quo"te' 'single'"'" 'back\slash'
	'back\nslash' $'\xff\xfe\xc3' $'\xa0\xad' $'gr\xc3\xbc\xc3\x9fe' $'\x7f\x01' 'two words'
	'a key=b ns=1' '%s%n%d' "$long" "$high" "$lines")

# plain TEXT: has no byte but printable ASCII
plain() { [[ $1 != *[^\ -~]* ]]; }

# tells SHOWN KEY MOST: the text is plain, MOST bytes at most, and read as a C string it
# is the key, or no short beginning of it
tells() {
	local key=''
	plain "$1" || fail "$(printf 'not plain: %q' "$1")"
	[ ${#1} -le "$3" ] || fail "${#1} bytes: $1"
	eval "key=\$'${1//\'/\\\'}'"
	[[ -n $key && $key = "${2:0:${#key}}" ]] ||
		fail "$(printf '%q is shown as %s' "${2:0:64}" "$1")"
	[[ $key = "$2" || ${#1} -ge 60 ]] || fail "$(printf '%q is cut to %s' "${2:0:64}" "$1")"
}

hostile_trace() {
	local key faults=0
	trace_on
	for key in "${hostile[@]}"; do
		wq add -0 $q < <(printf '%s\0' "$key")
		wq get -0 $q >/dev/null
	done
	read_events
	is events $((3 * ${#hostile[@]})) ${#events[@]}
	for key in "${hostile[@]}"; do
		saw wq_add 'key=(.*) coalesced=0'
		(tells "${BASH_REMATCH[1]}" "$key" 63) || faults=$((faults + 1))
		saw wq_get 'key=(.*) ns=[0-9]+'
		(tells "${BASH_REMATCH[1]}" "$key" 63) || faults=$((faults + 1))
		saw wq_done 'key=(.*) ns=[0-9]+'
	done
	is faults 0 $faults
	# a NUL ends no key
	echo >$trace/trace
	printf 'a\0b' | wq add $q
	read_events
	saw wq_add 'key=a\\(0|000|x00)b coalesced=0'
	saw_all
}
t "whatever bytes a key has, an event shows it in plain ASCII, as a C string, in 63 bytes at most" hostile_trace

hostile_debugfs() {
	local key line faults=0 keys=() text quoted='^[^"]*"(.*)"[^"]*$'
	printf '%s\0' "${hostile[@]}" | wq add -0 $q
	hold 5
	for line in metrics state; do
		text=$(<$debug/$q/$line)
		plain "${text//[$'\n\t']/}" || fail "$(printf '%s is not plain: %q' $line "$text")"
	done
	while IFS= read -r line; do
		# between the first and the last quote
		[[ $line =~ $quoted ]] && keys+=("${BASH_REMATCH[1]}")
	done < <(cat $debug/$q/state)
	is "keys shown" ${#hostile[@]} ${#keys[@]}
	for key in "${!hostile[@]}"; do
		(tells "${keys[key]}" "${hostile[key]}" 256) || faults=$((faults + 1))
	done
	is faults 0 $faults
}
t "whatever bytes a key has, debugfs shows it on a line, in plain ASCII, as a C string, bounded" hostile_debugfs

# ---- debugfs

# shows NAME: its figure in debugfs
shows() {
	local name value
	while read -r name value _; do
		if [ "$name" = "$1" ]; then echo "$value"; fi
	done < <(cat $debug/$q/metrics)
}

debugfs_metrics() {
	local name text
	consume
	wq add $q a b c d
	wq add $q d
	wq get --fd 7 -n 3 >/dev/null
	wq add --after 1h $q later
	nap 0.1
	wq done --fd 7 b
	wq add $q a
	is depth 2 "$(shows depth)"
	is adds_total 5 "$(shows adds_total)"
	is retries_total 1 "$(shows retries_total)"
	# a and c are in work, since 100 ms
	among unfinished 200000000 40000000000 "$(shows unfinished_work_seconds)"
	among longest 100000000 20000000000 "$(shows longest_running_processor_seconds)"
	text=$(<$debug/$q/metrics)
	[[ $text = *queue_duration_seconds*work_duration_seconds* ]] || fail "$text"
	among "work_duration_seconds" 100000000 20000000000 "$(shows work_duration_seconds)"
	for name in ready processing delayed failed kept consumers; do
		is $name "$(figure $name)" "$(shows $name)"
	done
	is modes "400 400" "$(stat -c %a $debug/$q/metrics $debug/$q/state | tr '\n' ' ' | sed 's/ $//')"
}
t "debugfs: metrics has client-go's figures, for root alone" debugfs_metrics

debugfs_state() {
	local text
	wq add $q first second third fourth
	hold 1
	nap 0.1
	consume
	wq get --fd 7 >/dev/null
	wq add $q second
	wq add --after 1h $q later
	wq add --rate-limited $q failing
	text=$(<$debug/$q/state)
	# which process that is: see metrics.c
	matches state '"first" by process [1-9][0-9]*, for [0-9]{9,11} ns' "$text"
	matches state '"second" by process [1-9][0-9]*, for [0-9]+ ns, dirty' "$text"
	matches state '"third"[^"]* [0-9]+ ns' "$text"
	matches state '"fourth"' "$text"
	# of those that are delayed the next one
	matches state '"failing"[^"]*due in 1[0-9]{12} ns, failed 1 times' "$text"
	matches state 'processing: 2.*ready: 2.*delayed: 2' "${text//$'\n'/ }"
	# longest first
	matches order '"first".*"second".*"third".*"fourth"' "${text//$'\n'/ }"
	wq shutdown $q
	matches state 'shut' "$(<$debug/$q/state)"
}
debugfs_given_back() {
	local text
	wq add $q a b c
	hold 2
	nap 0.2
	kill -9 $holder
	wait $holder 2>/dev/null
	soon figure_is processing 0
	text=$(<$debug/$q/state)
	matches state 'processing: 0.*ready: 3, of these given back: 2.*"a".*"b".*"c"' "${text//$'\n'/ }"
	[[ $text != *process\ * ]] || fail "held still: $text"
}
t "debugfs: keys that were given back are ready, and held by nobody" debugfs_given_back

t "debugfs: state names the keys that are held, by whom and for how long, the longest first, and what comes next" debugfs_state --limiter exponential:30m:30m

debugfs_bounded() {
	local text
	for i in {1..600}; do printf '%03d%s\0' $i "${high:0:1021}"; done | wq add -0 $q
	hold 200
	for i in {1..200}; do printf 'later%03d%s\0' $i "${high:0:1000}"; done | wq add -0 --after 1h $q
	text=$(<$debug/$q/state)
	among "bytes of state" 1000 65536 ${#text}
	matches state 'processing: 200.*ready: 400.*delayed: 200' "${text//$'\n'/ }"
	text=$(<$debug/$q/metrics)
	among "bytes of metrics" 500 8192 ${#text}
}
t "debugfs: a state of thousands of long keys is bounded, and says how many there are" debugfs_bounded

debugfs_comes_and_goes() {
	local text
	[ -d $debug/$q ] || fail "no folder"
	wq add $q old
	exec 6<$debug/$q/state
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq unlink $q
	[ ! -e $debug/$q ] || fail "the folder stays"
	# a file that is open still may say what it likes, or that it's gone
	cat <&6 >/dev/null 2>&1
	# the queue lives on while descriptor 7 does
	is key old "$(wq get --fd 7)"
	wq create $q
	[ -d $debug/$q ] || fail "no folder for the new queue"
	is depth 0 "$(shows depth)"
	wq add $q new
	text=$(<$debug/$q/state)
	matches state '"new"' "$text"
	[[ $text != *'"old"'* ]] || fail "the old queue shows in the new one's folder"
	# the end of the old one takes nothing of the new one along
	exec 7>&- 6<&-
	is depth 1 "$(shows depth)"
	wq unlink $q
	[ ! -e $debug/$q ] || fail "the folder stays"
	wq create $q
}
t "debugfs: a queue's folder goes with its name, and comes again with a new queue of that name" debugfs_comes_and_goes

reader() {
	local file text n=0
	while [ ! -e "$dir/stop" ]; do
		for file in "$debug/$q"*/{metrics,state}; do
			text=$(<"$file") && [ -n "$text" ] && n=$((n + 1))
		done
	done 2>/dev/null
	echo $n >"$dir/read.$1"
}

debugfs_churn() {
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
	# that of debugfs itself, where two had one name
	[ "$(dmesg | grep -c 'already present')" -eq 0 ] || fail "$(dmesg | grep 'already present')"
}
t "debugfs: its files may be read in a loop while queues come and go" debugfs_churn

# ---- the tools

with_trace_cmd() {
	local report
	wq add $q before
	env -C "$dir" trace-cmd record -q -e wq -o trace.dat "$WQCTL" add $q $'k\n' >"$err" 2>&1 ||
		fail "record: $(<"$err")"
	report=$(trace-cmd report -q -i "$dir/trace.dat" 2>"$err") || fail "report: $(<"$err")"
	matches report "wq_add: +queue=$q key=k\\\\n coalesced=0" "$report"
}
t "trace-cmd records the events and reports them" with_trace_cmd

# What the histograms of bpftrace's map $1 add up to for this queue
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

with_bpftrace() {
	local bt i
	[ -e $trace/events/wq/wq_get/format ] || fail "no tracepoint"
	: >"$dir/bt"
	"$SRC/tools/wq-latency.bt" >"$dir/bt" 2>"$err" &
	bt=$!
	for ((i = 0; i < 4000; i++)); do
		[[ $(<"$dir/bt") = *Ctrl-C* ]] && break
		kill -0 $bt 2>/dev/null || fail "it ended: $(<"$err")"
		nap 0.05
	done
	for ((i = 0; i < 10; i++)); do
		wq add $q < <(printf '%s\n' {1..50})
		[ $i -ne 5 ] || nap 0.1
		wq get -n 50 $q >/dev/null
	done
	kill -INT $bt
	wait $bt || fail "status $?: $(<"$err")"
	sed 's/^/# /' "$dir/bt"
	is "waits" 500 "$(sum_of wait_ns)"
	is "works" 500 "$(sum_of work_ns)"
	matches histogram '@@@@' "$(<"$dir/bt")"
}
t "tools/wq-latency.bt draws how long keys waited and worked, each of them counted" with_bpftrace

# ----

failed=0
echo "TAP version 13"
echo "1..${#tests[@]}"
for ((i = 0; i < ${#tests[@]}; i++)); do
	IFS=$'\t' read -r name function queue <<<"${tests[i]}"
	left=("$dir"/*)
	[ ! -e "${left[0]}" ] || rm -rf "${dir:?}"/*
	: >"$err"
	wq create $queue
	# In a process group of its own, which ends as a whole.
	set -m
	(set +m; $function) &
	test=$!
	set +m
	(nap 300; kill -9 -- -$test) >/dev/null 2>&1 &
	watchdog=$!
	if wait $test; then
		echo "ok $((i + 1)) $name"
	else
		echo "not ok $((i + 1)) $name"
		failed=1
	fi
	end_test
done
exit $failed
