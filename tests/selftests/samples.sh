#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The controller in tools/samples, at work on real interfaces that change, fail
# and vanish, and unloaded amid all of it; each test is a sentence.  Prints TAP.
# Runs as root where the module is loaded and nothing else needs it; SAMPLES is
# the folder of the samples' modules, WQCTL the path of wqctl.
#
# To start a program is what takes time in an emulated CPU, so it's the shell's own
# words where they can, and busybox, which is one file of its own.
#
# The tests are called by name, and nothing here has what a shell would split.
# shellcheck disable=SC2317,SC2086
set -u

: "${SAMPLES:?set SAMPLES to the folder of wq_ifwatch.ko}"
: "${WQCTL:?set WQCTL to the path of wqctl}"
top=$(mktemp -d)
log=$top/kmsg
tests=()
churner='' mark='' skip=0 count=0 reader=''
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'clean; [ -z "$reader" ] || kill -- -$reader; rm -rf "$top"' EXIT

cp "$SAMPLES/wq_ifwatch.ko" "$top/" || exit 1
ip() { busybox ip "$@"; }
load() { busybox insmod "$top/wq_ifwatch.ko" "$@"; }
unload() { busybox rmmod wq_ifwatch; }
loaded() { [ -d /sys/module/wq_ifwatch ]; }
users() { cat /sys/module/wq/refcnt; }

# nap SECONDS: sleep
exec {never}<> <(:)
nap() { read -rt "$1" -u $never; }

# t SENTENCE FUNCTION: a test, in a shell of its own
t() { tests+=("$1"$'\t'"$2"); }

fail() { echo "# $*"; exit 1; }
# is WHAT WANTED GOT
is() { [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"; }

# soon COMMAND...: it comes true within 20 s
soon() {
	local i
	for ((i = 0; i < 400; i++)); do
		"$@" && return
		nap 0.05
	done
	fail "never true: $*"
}

# The kernel's log goes on in a file, for its own buffer is short: a record is a
# line "LEVEL,NUMBER,MICROSECONDS,FLAGS;TEXT".  A reader that was overtaken goes on
# with what is still there.
set -m	# a process group, to be ended as a whole
(while :; do cat; nap 0.1; done) </dev/kmsg >"$log" 2>/dev/null &
reader=$!
set +m

# mark: what said() and its kind read begins here
marked() {
	local i lines
	mapfile -t -s $skip lines <"$log"
	for i in "${!lines[@]}"; do
		[[ ${lines[i]} != *";samples.sh: $mark" ]] || { skip=$((skip + i + 1)); return; }
	done
	return 1
}
mark() {
	mark="mark $EPOCHREALTIME"
	echo "samples.sh: $mark" >/dev/kmsg
	soon marked
}

# since: what the sample said since then, and when: into texts, and times in us
since() {
	local line lines
	texts=() times=()
	mapfile -t -s $skip lines <"$log"
	for line in "${lines[@]}"; do
		[[ $line = *';wq_ifwatch: '* ]] || continue
		texts+=("${line#*;wq_ifwatch: }")
		line=${line#*,*,}
		times+=("${line%%,*}")
	done
}
# times_said PATTERN: into count; said PATTERN: once at least
times_said() {
	local text
	count=0
	since
	for text in "${texts[@]}"; do
		# shellcheck disable=SC2053  # a pattern
		[[ $text != $1 ]] || count=$((count + 1))
	done
}
said() { times_said "$1"; [ $count -gt 0 ]; }
# is_now IF STATE: the last that was said of it
is_now() {
	local i
	since
	for ((i = ${#texts[@]} - 1; i >= 0; i--)); do
		[[ ${texts[i]} != "$1 is "* ]] || { [ "${texts[i]}" = "$1 is $2" ]; return; }
	done
	return 1
}
# said_times WANTED PATTERN
said_times() {
	times_said "$2"
	is "times of '$2'" $1 $count
}

churn() { # COMMAND...: again and again, until calm
	(while [ ! -e "$top/calm" ]; do "$@"; done) 2>/dev/null &
	churner=$!
}
calm() {
	[ -n "$churner" ] || return 0
	: >"$top/calm"
	wait "$churner"
	rm "$top/calm"
	churner=
}

clean() {
	local i
	calm
	! loaded || unload
	for i in /sys/class/net/wq-*; do
		[ ! -e "$i" ] || ip link del "${i##*/}"
	done
}

# ---- what it follows

announces() {
	ip link add wq-1 type dummy
	ip link add wq-2 type dummy
	ip link set wq-2 up
	load || exit 1
	soon said "wq-1 is down"
	soon said "wq-2 is up"
	soon said "lo is up"
}
t "loading it announces the interfaces that are there" announces

changes() {
	load || exit 1
	ip link add wq-1 type dummy
	soon is_now wq-1 down
	ip link set wq-1 up
	soon is_now wq-1 up
	echo 0 >/sys/class/net/wq-1/carrier
	soon is_now wq-1 down
	echo 1 >/sys/class/net/wq-1/carrier
	soon is_now wq-1 up
	ip link set wq-1 down
	soon is_now wq-1 down
	ip link set wq-1 name wq-2
	soon is_now wq-2 down
	ip link del wq-2
	soon is_now wq-2 gone
}
t "an interface that comes, goes up, loses its carrier, goes down, gets a name and goes is each time seen" changes

namespaces() {
	load || exit 1
	soon said "lo is up"
	mark
	unshare -n busybox ip link add wq-other type dummy || exit 1
	ip link add wq-1 type dummy
	soon said "wq-1 is down"
	said_times 0 "lo is *"
	said_times 0 "wq-other is *"
}
t "interfaces of other namespaces are none of its business" namespaces

# A write to sysfs changes an interface as ip does, but without a process.
up=0x83 down=0x82	# the flags of a dummy interface
flags() { echo $2 >/sys/class/net/$1/flags; } 2>/dev/null
flap() { # IF...: up and down
	local i
	for i; do flags $i $up; done
	for i; do flags $i $down; done
}
last_of_all() { is_now wq-1 up && is_now wq-2 down && is_now wq-3 up && is_now wq-4 gone; }
storm() {
	local i n=0
	load || exit 1
	for i in 1 2 3 4; do ip link add wq-$i type dummy; done
	for ((n = 0; n < 50; n++)); do flap wq-1 wq-2 wq-3 wq-4; done
	flags wq-1 $up
	flags wq-3 $up
	ip link del wq-4
	soon last_of_all
	nap 0.3
	last_of_all || fail "it changed its mind"
	times_said "wq-[1-4] is *"
	echo "# some 400 changes of 4 interfaces, $count runs"
}
t "after a storm of changes each interface's last state is the one that was seen last" storm

# ---- failures

gaps() {
	local i last='' gaps=()
	ip link add wq-bad type dummy
	ip link add wq-good type dummy
	load fail=wq-bad || exit 1
	soon said "wq-bad: given up: *"
	soon said "wq-good is down"
	nap 0.5
	since
	for ((i = 0; i < ${#texts[@]}; i++)); do
		[[ ${texts[i]} = "wq-bad fails"* ]] || continue
		[ -z $last ] || gaps+=($((times[i] - last)))
		last=${times[i]}
	done
	echo "# gaps in us: ${gaps[*]}"
	is gaps 5 ${#gaps[@]}
	for ((i = 0; i < 5; i++)); do
		[ ${gaps[i]} -ge $((5000 << i)) ] || fail "gap $i is below $((5000 << i)) us"
	done
	said_times 1 "wq-bad: given up: *"
	said "wq-bad: given up: -EIO" || said "wq-bad: given up: -5" || fail "not for its error"
	said_times 1 "wq-good is *"
}
t "a name that fails is tried 6 times, 5, 10, 20, 40 and 80 ms or more after each other, and given up once" gaps

again() {
	ip link add wq-bad type dummy
	load fail=wq-bad || exit 1
	soon said "wq-bad: given up: *"
	mark
	ip link del wq-bad
	soon said "wq-bad: given up: *"
	nap 0.5
	said_times 6 "wq-bad fails*"
	said_times 1 "wq-bad: given up: *"
}
t "a name that was given up has all its tries again at its next change" again

# ---- its end

silent() { # after its end: no more is said
	local before
	loaded && fail "it is still there"
	nap 0.1
	since
	before=${#texts[@]}
	nap 0.4
	since
	is "said by its end" $before ${#texts[@]}
	# the queue was there for each event
	said_times 0 "*: event missed*"
}

end_in_retries() {
	local n tries=() amid=0
	ip link add wq-bad type dummy
	for n in 0 0 1 2 3 4; do
		mark
		load fail=wq-bad || exit 1
		[ $n = 0 ] || nap 0.0$n
		unload || exit 1
		silent
		# where the last try was not the end of it, the next was pending
		[[ ${#texts[@]} -eq 0 || ${texts[-1]} != "wq-bad fails"* ]] || amid=$((amid + 1))
		times_said "wq-bad fails*"
		tries+=("$count")
	done
	echo "# $amid of 6 ends were amid retries, after ${tries[*]} tries"
	[ $amid -gt 0 ] || fail "not one was"
}
t "it can be unloaded amid the retries" end_in_retries

end_in_storm() {
	local n i
	for i in 1 2 3 4; do ip link add wq-$i type dummy; done
	for n in 1 2 3 4 5; do
		load fail=wq-1 || exit 1
		churn flap wq-1 wq-2 wq-3 wq-4
		nap 0.2
		unload || exit 1
		calm
	done
	said "wq-2 is up" || fail "there was no storm"
	silent
}
t "it can be unloaded amid a storm of changes" end_in_storm

come_and_go() {
	ip link add wq-1 type dummy
	ip link set wq-1 up
	ip link set wq-1 down
	ip link del wq-1
}
cycles() {
	local n before
	before=$(users)
	ip link add wq-bad type dummy
	churn come_and_go
	for ((n = 0; n < 20; n++)); do
		load fail=wq-bad || fail "load $n"
		[ $((n % 3)) -eq 0 ] || nap 0.0$((n % 10))
		unload || fail "unload $n"
	done
	calm
	is "users of wq" "$before" "$(users)"
	silent
}
t "it can be loaded and unloaded 20 times while interfaces come and go" cycles

use_count() {
	load || exit 1
	rmmod wq 2>/dev/null && fail "wq is gone"
	[ -c /dev/wq ] || fail "/dev/wq is gone"
	ip link add wq-1 type dummy
	soon said "wq-1 is down"
	unload || exit 1
	is "users of wq" 0 "$(users)"
}
t "wq.ko stays as long as it is loaded" use_count

# ---- its queue

in_sight() {
	load || exit 1
	soon said "lo is up"
	"$WQCTL" stat ifwatch >"$top/stat" || exit 1
	is figures "0400 65536" "$(sed -n 's/^\(mode\|max_keys\)  *//p' "$top/stat" | paste -sd ' ')"
	"$WQCTL" unlink ifwatch 2>/dev/null && fail "a process could unlink it"
	unload || exit 1
	! "$WQCTL" stat ifwatch 2>/dev/null || fail "its name is still there"
}
t "wqctl stat shows its queue, whose name can't be unlinked and goes with it" in_sight

thief() {
	load || exit 1
	exec 8<>/dev/wq
	"$WQCTL" bind --fd 8 ifwatch || exit 1
	"$WQCTL" get --wait --fd 8 >"$top/key" &
	nap 0.3
	# two of the workers and a process wait for a key; in the end it has one
	while [ ! -s "$top/key" ]; do
		ip link add wq-1 type dummy
		ip link del wq-1
	done
	wait $!
	is key wq-1 "$(<"$top/key")"
	unload || exit 1
	"$WQCTL" get --wait --fd 8 >/dev/null
	is "get after its end" 4 $?
}
t "a process that holds one of its keys does not keep it from going, and finds its queue shut down" thief

strange_keys() {
	load || exit 1
	soon said "lo is up"
	mark
	"$WQCTL" add ifwatch "$(printf '%01000d' 0)" 'no/such' '0123456789abcde' '0123456789abcdef' lo ||
		exit 1
	soon said "lo is up"
	soon said "no/such is gone"
	soon said "0123456789abcde is gone"
	nap 0.2
	said_times 3 "*"
	unload || exit 1
}
t "keys that are no interface's name do no harm" strange_keys

name_taken() {
	"$WQCTL" create ifwatch || exit 1
	load 2>/dev/null && fail "there are two queues of a name"
	loaded && fail "it is there"
	is "users of wq" 0 "$(users)"
	ip link add wq-1 type dummy
	is "keys" "" "$("$WQCTL" list ifwatch)"
	"$WQCTL" unlink ifwatch || exit 1
	load || exit 1
	soon said "wq-1 is down"
}
t "where its queue's name is taken it does not load, and leaves nothing behind" name_taken

clean_log() {
	local bad='WARNING:|BUG:|Oops|UBSAN|KASAN|suspicious RCU|refcount_t|waiting for wq-|blocked for more'
	grep -q "$first" "$log" || fail "the log was not kept"
	! sed "1,/$first/d" "$log" | grep -aE "$bad" | sed 's/^/# /' | grep .
}
t "the kernel's log has no warning of all this" clean_log

# ----

modprobe dummy numdummies=0 || exit 1
mark
first=$mark
failed=0
echo "TAP version 13"
echo "1..${#tests[@]}"
for ((i = 0; i < ${#tests[@]}; i++)); do
	IFS=$'\t' read -r name function <<<"${tests[i]}"
	mark
	began=${EPOCHREALTIME/./}
	if (trap calm EXIT; "$function"); then
		echo "ok $((i + 1)) $name"
	else
		tail -n +$skip "$log" | tail -n 20 | sed 's/^/# log: /'
		echo "not ok $((i + 1)) $name"
		failed=1
	fi
	clean
	echo "# $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
done
exit $failed
