#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The sample controller in tools/samples with real interfaces that change, fail and vanish,
# its removal at any moment, and a sample of an ordering policy.
# Prints TAP.  Runs as root on a machine with the module loaded and no other user of it; SAMPLES
# is the directory of the samples' modules, WQCTL the path of wqctl.
#
# busybox serves as ip, insmod and rmmod, because it is one file and starts quickly.
#
# The tests run through their names, and no variable here needs quotes.
# shellcheck disable=SC2317,SC2086
set -u

: "${SAMPLES:?set SAMPLES to the directory of wq_ifwatch.ko and the other samples}"
: "${WQCTL:?set WQCTL to the path of wqctl}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

log=$top/kmsg
churner='' mark='' skip=0 count=0
sample=wq_ifwatch	# the module whose messages count

cp "$SAMPLES"/wq_*.ko "$top/" || exit 1
ip() { busybox ip "$@"; }
# shellcheck disable=SC2120  # succeeds passes them
load() { busybox insmod "$top/wq_ifwatch.ko" "$@"; }
unload() { busybox rmmod wq_ifwatch; }
loaded() { [ -d /sys/module/wq_ifwatch ]; }
users() { cat /sys/module/wq/refcnt; }
# The mount of wqueue is one.
idle=$(users)

# A reader copies the kernel log into a file, because the kernel's buffer is short.  A record
# is a line "LEVEL,NUMBER,MICROSECONDS,FLAGS;TEXT".  If the kernel overwrites records before
# the reader gets them, cat ends with EPIPE and the next one continues with the oldest record.
set -m	# a process group of its own, which is killed as a whole
(while :; do cat; nap 0.1; done) </dev/kmsg >"$log" 2>/dev/null &
reader=$!
set +m
trap 'end_test; kill -- -$reader; rm -rf "$top"' EXIT

# mark: reported() and the like read the log from here
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
	eventually marked
}

# since: the sample's messages since the mark, into texts, and their times in us, into times
since() {
	local line lines
	texts=() times=()
	mapfile -t -s $skip lines <"$log"
	for line in "${lines[@]}"; do
		[[ $line = *";$sample: "* ]] || continue
		texts+=("${line#*;"$sample": }")
		line=${line#*,*,}
		times+=("${line%%,*}")
	done
}
# count_of PATTERN: counts the messages that match, into count
count_of() {
	local text
	count=0
	since
	for text in "${texts[@]}"; do
		# shellcheck disable=SC2053  # a pattern
		[[ $text != $1 ]] || count=$((count + 1))
	done
}
# reported PATTERN: a message matches
reported() { count_of "$1"; [ $count -gt 0 ]; }
# is_now IF STATE: the last message about interface IF reports this state
is_now() {
	local i
	since
	for ((i = ${#texts[@]} - 1; i >= 0; i--)); do
		[[ ${texts[i]} != "$1 is "* ]] || { [ "${texts[i]}" = "$1 is $2" ]; return; }
	done
	return 1
}
# reported_times EXPECTED PATTERN
reported_times() {
	count_of "$2"
	is "messages '$2'" $1 $count
}

churn() { # COMMAND...: in a loop until calm
	(while [ ! -e "$dir/calm" ]; do "$@"; done) 2>/dev/null &
	churner=$!
}
calm() {
	[ -n "$churner" ] || return 0
	: >"$dir/calm"
	wait "$churner"
	rm "$dir/calm"
	churner=
}

setup() { mark; }

explain() { tail -n +$((skip + 1)) "$log" | tail -n 20 | sed 's/^/# log: /'; }

cleanup() {
	local i
	! loaded || unload
	for i in wq_hub wq_deadline; do
		[ ! -d /sys/module/$i ] || busybox rmmod $i
	done
	wq unlink ifwatch
	for i in /sys/class/net/wq-*; do
		[ ! -e "$i" ] || ip link del "${i##*/}"
	done
}

# ---- what it reports

test_load_reports_existing_interfaces() {
	ip link add wq-1 type dummy
	ip link add wq-2 type dummy
	ip link set wq-2 up
	succeeds load
	eventually reported "wq-1 is down"
	eventually reported "wq-2 is up"
	eventually reported "lo is up"
}

test_each_change_of_an_interface_is_reported() {
	succeeds load
	ip link add wq-1 type dummy
	eventually is_now wq-1 down
	ip link set wq-1 up
	eventually is_now wq-1 up
	echo 0 >/sys/class/net/wq-1/carrier
	eventually is_now wq-1 down
	echo 1 >/sys/class/net/wq-1/carrier
	eventually is_now wq-1 up
	ip link set wq-1 down
	eventually is_now wq-1 down
	ip link set wq-1 name wq-2
	eventually is_now wq-2 down
	ip link del wq-2
	eventually is_now wq-2 gone
}

test_other_namespaces_are_ignored() {
	succeeds load
	eventually reported "lo is up"
	mark
	succeeds unshare -n busybox ip link add wq-other type dummy
	ip link add wq-1 type dummy
	eventually reported "wq-1 is down"
	reported_times 0 "lo is *"
	reported_times 0 "wq-other is *"
}

# A write to sysfs changes an interface as ip does, but without a process.
up=0x83 down=0x82	# the flags of a dummy interface
flags() { echo $2 >/sys/class/net/$1/flags; } 2>/dev/null
flap() { # IF...: up and down
	local i
	for i; do flags $i $up; done
	for i; do flags $i $down; done
}
last_of_all() { is_now wq-1 up && is_now wq-2 down && is_now wq-3 up && is_now wq-4 gone; }
test_last_state_is_reported_after_a_storm_of_changes() {
	local i n=0
	succeeds load
	for i in 1 2 3 4; do ip link add wq-$i type dummy; done
	for ((n = 0; n < 50; n++)); do flap wq-1 wq-2 wq-3 wq-4; done
	flags wq-1 $up
	flags wq-3 $up
	ip link del wq-4
	eventually last_of_all
	nap 0.3
	last_of_all || fail "expected the last states to stay, seen a later report"
	count_of "wq-[1-4] is *"
	echo "# some 400 changes of 4 interfaces, $count runs"
}

# ---- failures

test_retry_backoff_doubles_until_given_up() {
	local i last='' gaps=()
	ip link add wq-bad type dummy
	ip link add wq-good type dummy
	succeeds load fail=wq-bad
	eventually reported "wq-bad: given up: *"
	eventually reported "wq-good is down"
	nap 0.5
	since
	for ((i = 0; i < ${#texts[@]}; i++)); do
		[[ ${texts[i]} = "wq-bad fails"* ]] || continue
		[ -z $last ] || gaps+=($((times[i] - last)))
		last=${times[i]}
	done
	echo "# gaps in us: ${gaps[*]}"
	is gaps 5 ${#gaps[@]}
	# the clocks of two CPUs, with which the kernel stamps its log, are up to a tick apart
	for ((i = 0; i < 5; i++)); do
		among "us of gap $i" $(((5000 << i) - 4000)) 60000000 ${gaps[i]}
	done
	reported_times 1 "wq-bad: given up: *"
	reported "wq-bad: given up: -EIO" || reported "wq-bad: given up: -5" ||
		fail "expected to give up with -EIO, seen: ${texts[*]}"
	reported_times 1 "wq-good is *"
}

test_change_after_giving_up_retries_from_the_start() {
	ip link add wq-bad type dummy
	succeeds load fail=wq-bad
	eventually reported "wq-bad: given up: *"
	mark
	ip link del wq-bad
	eventually reported "wq-bad: given up: *"
	nap 0.5
	reported_times 6 "wq-bad fails*"
	reported_times 1 "wq-bad: given up: *"
}

# ---- its end

silent() { # after rmmod: no further message
	local before
	loaded && fail "wq_ifwatch: expected to be unloaded"
	nap 0.1
	since
	before=${#texts[@]}
	nap 0.4
	since
	is "messages after rmmod" $before ${#texts[@]}
	# the queue existed for each event
	reported_times 0 "*: event missed*"
}

test_unload_during_retries() {
	local n tries=() amid=0
	ip link add wq-bad type dummy
	for n in 0 0 1 2 3 4; do
		mark
		succeeds load fail=wq-bad
		[ $n = 0 ] || nap 0.0$n
		succeeds unload
		silent
		# if the last message is a failure, the next retry was pending
		[[ ${#texts[@]} -eq 0 || ${texts[-1]} != "wq-bad fails"* ]] || amid=$((amid + 1))
		count_of "wq-bad fails*"
		tries+=("$count")
	done
	echo "# $amid of 6 removals were during retries, after ${tries[*]} tries"
	among "removals during retries" 1 6 $amid
}

test_unload_during_a_storm_of_changes() {
	local n i
	for i in 1 2 3 4; do ip link add wq-$i type dummy; done
	for n in 1 2 3 4 5; do
		succeeds load fail=wq-1
		churn flap wq-1 wq-2 wq-3 wq-4
		nap 0.2
		succeeds unload
		calm
	done
	reported "wq-2 is up" || fail "expected a report 'wq-2 is up', seen none"
	silent
}

come_and_go() {
	ip link add wq-1 type dummy
	ip link set wq-1 up
	ip link set wq-1 down
	ip link del wq-1
}
test_load_and_unload_20_times_while_interfaces_change() {
	local n before
	before=$(users)
	ip link add wq-bad type dummy
	churn come_and_go
	for ((n = 0; n < 20; n++)); do
		succeeds load fail=wq-bad
		[ $((n % 3)) -eq 0 ] || nap 0.0$((n % 10))
		succeeds unload
	done
	calm
	is "users of wq" "$before" "$(users)"
	silent
}

test_load_holds_a_reference_to_wq() {
	succeeds load
	rmmod wq 2>/dev/null && fail "rmmod wq: expected to fail, seen success"
	[ -c /dev/wq ] || fail "/dev/wq: expected to be a device, seen none"
	ip link add wq-1 type dummy
	eventually reported "wq-1 is down"
	succeeds unload
	is "users of wq" "$idle" "$(users)"
}

# ---- its queue

test_stat_shows_its_queue_and_unlink_and_pause_fail() {
	succeeds load
	eventually reported "lo is up"
	status 0 wq stat ifwatch
	is "mode, max_keys" "0400 65536" "$(sed -n 's/^\(mode\|max_keys\)  *//p' "$out" | paste -sd ' ')"
	status 1 wq unlink ifwatch
	status 1 wq pause ifwatch
	has message "it belongs to a kernel module" "$(<"$err")"
	status 0 wq stat ifwatch
	is gets_paused no "$(sed -n 's/^gets_paused  *//p' "$out")"
	succeeds unload
	status 1 wq stat ifwatch
}

# charged USER: what the user is charged
charged() { setpriv --reuid $1 --regid $1 --clear-groups "$top/wqctl" info | grep -E '^charged_'; }

test_chown_of_its_queue_charges_nobody() {
	local file=/dev/wqueue/ifwatch user root
	cp "$WQCTL" "$top/wqctl"
	chmod 755 "$top" "$top/wqctl"
	chmod 666 /dev/wq
	user=$(charged 65534)
	root=$(charged 0)
	matches charges "charged_queues +0" "$user"
	succeeds load
	eventually reported "lo is up"
	is "charges of root" "$root" "$(charged 0)"
	succeeds chown 65534 $file
	is "owner" 65534 "$(stat -c %u $file)"
	is "charges of the user" "$user" "$(charged 65534)"
	is "charges of root" "$root" "$(charged 0)"
	# the new owner may read it, and the module gives it up as before
	status 0 setpriv --reuid 65534 --regid 65534 --clear-groups "$top/wqctl" stat ifwatch
	succeeds chown 0 $file
	succeeds chown 65534 $file
	succeeds unload
	exists_no $file
	is "charges of the user" "$user" "$(charged 65534)"
	chmod 600 /dev/wq
}

test_unload_while_a_process_holds_a_key_shuts_down_its_queue() {
	succeeds load
	exec 8<>/dev/wq
	succeeds wq bind --fd 8 ifwatch
	"$WQCTL" get --wait --fd 8 >"$dir/key" &
	nap 0.3
	# two workers and this process wait for keys, so the process gets one in the end
	while [ ! -s "$dir/key" ]; do
		ip link add wq-1 type dummy
		ip link del wq-1
	done
	wait $!
	is key wq-1 "$(<"$dir/key")"
	succeeds unload
	status 4 wq get --wait --fd 8
}

test_add_of_keys_that_name_no_interface_is_harmless() {
	succeeds load
	eventually reported "lo is up"
	mark
	succeeds wq add ifwatch "$(printf '%01000d' 0)" 'no/such' '0123456789abcde' '0123456789abcdef' lo
	eventually reported "lo is up"
	eventually reported "no/such is gone"
	eventually reported "0123456789abcde is gone"
	nap 0.2
	reported_times 3 "*"
	succeeds unload
}

test_load_fails_if_the_queue_name_exists() {
	succeeds wq create ifwatch
	# shellcheck disable=SC2119
	load 2>/dev/null && fail "insmod: expected to fail, seen success"
	loaded && fail "wq_ifwatch: expected not to be loaded"
	is "users of wq" "$idle" "$(users)"
	ip link add wq-1 type dummy
	status 0 wq ls -0 ifwatch
	is keys "" "$(<"$out")"
	succeeds wq unlink ifwatch
	succeeds load
	eventually reported "wq-1 is down"
}

# ---- a workqueue of a sample that freezes

test_a_pool_goes_on_after_a_suspend() {
	local sample=wq_hub
	succeeds busybox insmod "$top/wq_hub.ko"
	echo 0 >/sys/module/suspend/parameters/pm_test_delay
	echo freezer >/sys/power/pm_test
	succeeds dd of=/sys/power/state status=none <<<freeze
	echo none >/sys/power/pm_test
	nap 0.1
	succeeds busybox rmmod wq_hub
	eventually reported "* hubs, 0 not released, 0 overlaps, *"
}

# ---- the sample of an ordering policy

# adds WORDS...: writes each of them to the sample's parameter
adds() {
	local words
	for words; do echo "$words" >/sys/module/$sample/parameters/add || return; done
} 2>/dev/null
# runs EXPECTED: all that waits runs, in this order
runs() {
	mark
	echo 1 >/sys/module/$sample/parameters/run
	# a mark of its own, so that all messages of the run are in the log
	echo "$sample: end" >/dev/kmsg
	eventually reported end
	is order "$1 end" "${texts[*]}"
}

test_deadline_runs_the_earliest_deadline_first() {
	local sample=wq_deadline
	succeeds busybox insmod "$top/wq_deadline.ko"
	succeeds adds "1 500000" "2 100000" "3 300000"
	runs "job 2 job 3 job 1"
	# an earlier deadline moves a job that waits, a later one does not
	succeeds adds "1 500000" "2 100000" "3 300000" "1 200000" "2 400000"
	runs "job 2 job 1 job 3"
	adds "16 1" && fail "job 16: expected to fail, seen success"
	adds "1" && fail "a job without a deadline: expected to fail, seen success"
	adds "1 1000" "4 1000"
	succeeds busybox rmmod wq_deadline
	is "users of wq" "$idle" "$(users)"
}

test_kernel_log_has_no_warning() {
	local bad='WARNING:|BUG:|Oops|UBSAN|KASAN|suspicious RCU|refcount_t|waiting for wq-|blocked for more'
	grep -q "$first" "$log" || fail "the copy of the kernel log: expected the first mark in it"
	is "kernel log" '' "$(sed "1,/$first/d" "$log" | grep -aE "$bad")"
}

modprobe dummy numdummies=0 || exit 1
mark
first=$mark
run_tests "$@"
