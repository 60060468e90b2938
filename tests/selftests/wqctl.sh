#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# wqctl's behaviour.  Prints TAP.  Runs as root on a machine with the module loaded.
#
#	WQCTL		path of wqctl
#	WQCTL_SHARED	path of wqctl with shared libraries: WQCTL
#	WQ_KO		path of wq.ko
#	SOURCES		directory of wq_fs.ko
#	SRC		path of the project
#	PROMTOOL	Prometheus' promtool, otherwise from PATH
#	WQ_LIMIT	seconds that a test may take: 180
#
# The tests run through their names, the queue's name needs no quotes, wq done ends no loop,
# and some expansions are for an inner shell.
# shellcheck disable=SC2317,SC2086,SC1010,SC2016,SC1003
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
: "${SOURCES:?set SOURCES to the directory of wq_fs.ko}"
: "${WQCTL_SHARED:=$WQCTL}" "${WQ_LIMIT:=180}" "${WQ_KO:?set WQ_KO to the path of wq.ko}"
time_limit=$WQ_LIMIT
q=wqctl.$$
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

# A command that reads from $gate waits until the test calls let_through.
gate=$top/gate
mkfifo "$gate"
exec 9<>"$gate"
let_through() { echo >&9; }

cleanup() {
	local mount=$dir/full process i
	[ ! -e "$dir/clock" ] || restore_clock
	# a command whose worker was killed may wait for a line of a later test
	for process in /proc/[0-9]*; do
		[ ! "$process/fd/0" -ef $gate ] || kill -9 "${process#/proc/}"
	done
	[ ! -S "$top/tmux" ] || tmux -S "$top/tmux" kill-server
	[ ! -e "$dir/device-for-all" ] || chmod 600 /dev/wq
	[ ! -d "$mount" ] || umount "$mount"
	[ ! -e "$dir/mounted" ] || umount "$dir/mounted"
	[ ! -e "$dir/file" ] || umount /dev/wqueue/$q.r 2>/dev/null
	unlink_queues $q
	# a source is freed some time after the last file of its queue is closed
	for ((i = 0; i < 100; i++)); do
		[ -d /sys/module/wq_fs ] || break
		busybox rmmod wq_fs 2>/dev/null || nap 0.05
	done
	[ ! -d /sys/module/wq_fs ] || echo "# wq_fs can't be unloaded"
	[ ! -d "$dir/bin" ] || end_reload
	# a test that was killed may have left a line in it
	while read -rt 0 -u 9; do read -r -u 9; done
}

# A test of wqctl reload can end before the module and the queues are back.
end_reload() {
	[ -d /sys/module/wq ] || busybox insmod "$WQ_KO"
	[[ $(</proc/mounts) = *" /dev/wqueue wqueue "* ]] || mount -t wqueue wqueue /dev/wqueue
	unlink_queues $q
	mount -o remount,uid=0,gid=0,mode=1777,queues=0 /dev/wqueue
	echo N >/sys/module/wq/parameters/closed
	chmod 600 /dev/wq
	rm -f /var/lib/wq/reload{,-added}.wq "$top/stolen"
}

device_for_all() {
	: >"$dir/device-for-all"
	chmod 666 /dev/wq
}

# Commands with a standard output that can't be written
full() { "$@" >/dev/full; }
closed() { "$@" >&8; }

# state QUEUE KEY: the states of the key, and those of these numbers that are not 0
state() {
	"$WQCTL" show "$@" |
		sed -nE 's/^state +//p; s/^(failures|given_back|priority) +([^ 0].*)/\1 \2/p'
}

# with_shim FAULT ARGUMENT...: wqctl with a fault of wqctl_shim.c
with_shim() {
	SHIM=$1 LD_PRELOAD=${0%/*}/shim/wqctl_shim.so "$WQCTL_SHARED" "${@:2}"
}

# lines FILE: its lines in one; file_has FILE N: at least N lines
lines() { local l; mapfile -t l <"$1"; echo "${l[*]}"; }
file_has() { local l; [ -e "$1" ] && mapfile -t l <"$1" && [ ${#l[@]} -ge "$2" ]; }

# words: the words of standard input, with a blank between
words() { local w; read -rd '' -a w; echo "${w[*]}"; }

asleep() { # PID: a wqctl that waits
	local stat
	read -r stat <"/proc/$1/stat" && [[ $stat = *"(wqctl) S "* ]]
}

# ---- create, unlink

test_create_sets_mode_and_max_keys() {
	(umask 077; succeeds wq create -m 0640 -n 2 $q) || exit 1
	reports 0 "2 added, 1 coalesced" wq add -v $q a b a
	reports 1 "the queue is full" wq add $q a c
	is "mode, max_keys, ready" "0640 2 2" "$(stats mode max_keys ready)"
}

create_limiter() { # SPEC NS KEY...: fails the keys in a queue with this limiter; the first waits NS
	local due
	status 0 wq create --limiter "$1" $q
	status 0 wq add --rate-limited $q "${@:3}"
	due=$(stats next_due_ns)
	# the machine may be slow by a minute, but not by an hour
	among "$1: due" $(($2 - 59999999999)) $2 "$due"
	status 0 wq unlink $q
}
test_create_limiter_sets_the_delay_of_failed_keys() {
	local hour=3600000000000
	create_limiter exponential:1h:3h $hour k
	create_limiter exponential:90m:90m $((hour * 3 / 2)) k
	create_limiter fast-slow:1h:2h:1 $hour k
	create_limiter fast-slow:1h:2h:0 $((hour * 2)) k
	create_limiter bucket:0.0005:1 2000000000000 a b
	create_limiter bucket:.000000001:1 1000000000000000000 a b
	create_limiter exponential:1h:1h,fast-slow:2h:3h:1,bucket:10:100 $((hour * 2)) k
	create_limiter exponential:2h:2h,max-wait:90m,default-item $((hour * 3 / 2)) k
	create_limiter exponential:2h:2h,"$(printf 'bucket:1:1,%.0s' {1..13})"max-wait:1h $hour k
}

test_create_without_limiter_uses_default_controller() {
	local name
	status 0 wq create --limiter default-item $q
	status 0 wq add --rate-limited $q {1..400}
	eventually stat_is ready 400
	for name in '' '--limiter default-controller'; do
		status 0 wq unlink $q
		status 0 wq create $name $q
		status 0 wq add --rate-limited $q {1..400}
		among "delayed keys of 400 $name" 101 400 "$(stats delayed)"
	done
}

bad_limiter() { # SPEC TEXT
	reports 2 "--limiter: " wq create --limiter "$1" $q
	prints "$2"
	prints "for instance "
}
test_create_bad_limiter_names_the_wrong_part() {
	bad_limiter '' "a part of the list is empty"
	bad_limiter exponential:5ms:1s, "a part of the list is empty"
	bad_limiter linear:1s "there is no limiter 'linear'; use exponential,"
	bad_limiter exponential "'exponential' lacks BASE; its syntax is exponential:BASE:MAX"
	bad_limiter exponential:5ms "'exponential' lacks MAX"
	bad_limiter bucket:10:100,fast-slow:1s:2s "'fast-slow' lacks N"
	bad_limiter exponential:5ms:1s:2s "'2s' is one parameter too many for 'exponential'"
	bad_limiter default-item:1s "'1s' is one parameter too many for 'default-item'"
	bad_limiter exponential:soon:1s "BASE 'soon' of 'exponential:BASE:MAX' is not a time"
	bad_limiter exponential:5ms:-1s "MAX '-1s' of"
	bad_limiter exponential:10s:1s "MAX of 'exponential:BASE:MAX' is below BASE"
	bad_limiter exponential:1ms:300000000h "MAX '300000000h' of"
	bad_limiter max-wait:,default-item "T '' of 'max-wait:T' is not a time"
	bad_limiter bucket:ten:1 "QPS 'ten' of 'bucket:QPS:BURST' is not a number"
	bad_limiter bucket:10000000000:1 "QPS '10000000000' of 'bucket:QPS:BURST' is not a number, or it is too large"
	bad_limiter bucket:0.0000000001:1 "has more than 9 digits after the point"
	bad_limiter bucket:1:0.5 "BURST '0.5' of 'bucket:QPS:BURST' is not a whole number from 0 to 4294967295"
	bad_limiter fast-slow:1s:2s:4294967296 "N '4294967296' of"
	bad_limiter max-wait:1s "max-wait needs another limiter, whose delay it limits"
	bad_limiter max-wait:1s,default-item,max-wait:2s "can't be given twice"
	bad_limiter "$(printf 'bucket:1:1,%.0s' {1..15})default-item" "16 limiters are more than the maximum of 15"
	bad_limiter "max-wait:1s,$(printf 'bucket:1:1,%.0s' {1..14})default-item" "15 limiters are more than the maximum of 14 and a max-wait"
	status 1 wq create --limiter bucket:0.000000001:4000000000 $q
	prints "a bucket must not take 292 years or more to fill"
	status 2 wq create --limiter default-item -n 33554433 $q
	prints "--max-keys: '33554433' is not a number from 1 to 33554432"
	status 1 wq stat $q
}

test_create_lease_appears_in_stat_and_show() {
	queue --lease 2h
	local time
	consumer 7
	wq add $q held ready
	wq get --token --fd 7 >/dev/null
	is "lease, expired" "7200000000000 0" "$(stats lease_ns expired)"
	status 0 wq show --json $q held
	holds '.lease_ns > 7000e9 and .lease_ns < 7200e9'
	status 0 wq show --json $q ready
	holds 'has("lease_ns") and .lease_ns == null'
	is show "lease 1h59m" "$(wq show $q held | grep ^lease | words)"
	is show "lease -" "$(wq show $q ready | grep ^lease | words)"
	for time in 0 999us 999999ns -1 soon ''; do
		reports 2 "--lease: " wq create --lease "$time" $q.b
	done
	status 0 wq create --lease 1ms $q.b
	status 0 wq stat --json $q.b
	holds '.lease_ns == 1000000'
}

test_levels_choose_the_next_key() {
	queue --order priority:100
	is order priority:100 "$(stats order)"
	wq add $q middle
	wq add --priority -3 $q low
	wq add --priority 9 $q high
	matches head "PRIORITY" "$(wq ls $q | head -n 1)"
	status 0 wq ls --json $q
	holds '[.[] | [.key, .priority]] | sort == [["high", 9], ["low", -3], ["middle", 0]]'
	wq add --priority 12 $q low
	is keys "low high middle" "$(wq get -n 9 $q | words)"
	status 2 wq add --priority 128 $q k
	wq create --order priority:strict $q.s
	is order priority:strict "$(wq stat $q.s | sed -n 's/^order *//p')"
	reports 1 "its order is priority:strict, not priority:16" wq create --order priority $q.s
	wq unlink $q.s
	reports 2 "AGEING is from 2 to 65536, or strict" wq create --order priority:1 $q.s
	reports 1 "the queue exists" wq create --order fifo $q
}

test_levels_choose_the_next_key_of_a_group() {
	queue --order groups:/:2,priority
	is order groups:/:2,priority:16 "$(stats order)"
	wq add $q a/1 b/1
	wq add --priority -3 $q b/low
	wq add --priority 9 $q a/high
	wq add --priority 5 $q b/high
	matches head "PRIORITY" "$(wq ls $q | head -n 1)"
	consumer 7
	because 0 behind b/low
	because 0 ready a/high
	exec 7>&-
	is "levels" "ready_by_priority 9:1 5:1 0:2 -3:1" "$(wq stat $q | grep ready_by_priority | words)"
	status 0 wq stat --json $q
	holds '.ready_groups == 2 and .map == false and .ready_by_priority[0] == {"priority": 9, "ready": 1}'
	is keys "a/high b/high a/1 b/1 b/low" "$(wq get -n 9 $q | words)"
	wq create --order prefix:2,priority:strict $q.s
	is order prefix:2,priority:strict "$(wq stat $q.s | sed -n 's/^order *//p')"
	reports 1 "its order is prefix:2,priority:strict, not prefix:2" wq create --order prefix:2 $q.s
	wq unlink $q.s
	reports 2 "AGEING is from 2 to 65536, or strict" wq create --order groups:/,priority:1 $q.s
	local bad
	for bad in groups:/,fifo "prefix:2," groups:0x,priority groups:,priority prefix:2,priorityx; do
		reports 2 "only priority can follow a comma" wq create --order $bad $q.s
	done
	for bad in groups:/,priority: prefix:4,priority:2:3 groups:/:1,priority:65537; do
		reports 2 "AGEING is from 2 to 65536, or strict" wq create --order $bad $q.s
	done
}

test_take_latest_defers_a_key_up_to_max_defer() {
	queue --max-defer 1h
	is max_defer_ns 3600000000000 "$(stats max_defer_ns)"
	wq add --after 30m $q k
	wq add --after 40m --take-latest $q k
	status 0 wq ls --json $q
	holds '.[0].due_ns > 2300e9 and .[0].due_ns <= 2400e9'
	wq add --after 2h --take-latest $q k
	status 0 wq ls --json $q
	holds '.[0].due_ns > 3500e9 and .[0].due_ns <= 3600e9'
	reports 2 "--take-latest and --coalesce need --after" wq add --take-latest $q k
	status 2 wq create --max-defer 0 $q.b
	status 1 wq create --max-defer 2h $q
	prints "its max-defer is 1h, not 2h; use it as it is with --accept, or change it with wqctl set"
	status 0 wq set --max-defer 2h $q
	is max_defer_ns 7200000000000 "$(stats max_defer_ns)"
	status 0 wq set --max-defer 0 $q
	is max_defer_ns - "$(stats max_defer_ns)"
	# a restored queue can have one again
	status 0 wq save -o "$dir/snapshot" $q
	wq unlink $q
	status 0 wq restore "$dir/snapshot"
	is max_defer_ns - "$(stats max_defer_ns)"
	status 0 wq set --max-defer 3h $q
	is max_defer_ns 10800000000000 "$(stats max_defer_ns)"
	wq create $q.b
	reports 1 "it has the order fifo and was created without --max-defer, so its keys have no room for that; to make it again: wqctl pause $q.b && wqctl save -o FILE $q.b && wqctl unlink $q.b" \
		wq set --max-defer 1h $q.b
	wq unlink $q.b
}

test_set_changes_the_ageing_of_priorities_and_the_limit_of_groups() {
	queue --order groups:/:1
	wq add $q a/1 a/2 a/3
	status 0 wq set --order groups:/:2 -n 9 $q
	is "order, max_keys" "groups:/:2 9" "$(stats order max_keys)"
	consumer 7
	is "keys of two places" "a/1 a/2 1" "$(wq get --fd 7) $(wq get --fd 7) $(stats blocked)"
	status 0 wq set --order groups:/ $q
	is "order, blocked" "groups:/ 0" "$(stats order blocked)"
	exec 7>&-
	status 0 wq set --order groups:/ $q
	reports 1 "can't change the queue '$q': its order is fixed at its creation, as is the DELIMITER or BYTES of its groups, and whether the keys of a group have priorities; to make it again: wqctl pause $q && wqctl save -o FILE $q && wqctl unlink $q, then create it with this option, and add its keys by wqctl restore --merge FILE" \
		wq set --order groups:-:2 -n 8 $q
	reports 1 "its order is fixed at its creation" wq set --order fifo $q
	is "order, max_keys" "groups:/ 9" "$(stats order max_keys)"
	reports 2 "a queue has one of the orders" wq set --order lifo $q
	# the commands of the message
	wq add $q b/1
	status 0 wq pause $q
	status 0 wq save -o "$dir/snapshot" $q
	wq unlink $q
	wq create --order priority $q
	status 0 wq restore --merge "$dir/snapshot"
	is "keys, ready" "4 4" "$(stats keys ready)"
	status 0 wq set --order priority:strict $q
	is order priority:strict "$(stats order)"
	status 0 wq set --order priority $q
	is order priority:16 "$(stats order)"
	reports 1 "its order is priority:16, not priority:7; use it as it is with --accept, or change it with wqctl set" \
		wq create --order priority:7 $q
	reports 1 "its order is priority:16, not prefix:7; use it as it is with --accept, or remove it first" \
		wq create --order prefix:7 $q
}

test_apply_changes_the_limit_of_groups_and_names_why_an_order_stays() {
	queue --order groups:/:1
	echo "$q - - --order groups:/:3" >"$dir/conf"
	status 0 wq apply "$dir/conf"
	is "standard output" "changed $q: its order is groups:/:1, not groups:/:3" "$(<"$out")"
	is order groups:/:3 "$(stats order)"
	status 0 wq apply "$dir/conf"
	is "standard output of a repeated apply" '' "$(<"$out")"
	echo "$q - - --order prefix:3" >"$dir/conf"
	reports 1 "conf:1: the queue '$q' exists, and its order is groups:/:3, not prefix:3; its order is fixed at its creation" \
		wq apply "$dir/conf"
}

test_create_slack_and_limiter_appear_in_stat() {
	local spec time
	for spec in exponential:5ms:1000s,bucket:10:100 exponential:1h:2h,max-wait:90m \
		fast-slow:1500us:90m:3,bucket:0.000000001:7,exponential:0s:999ns bucket:2.5:1; do
		status 0 wq create --limiter $spec $q
		is limiter $spec "$(stats limiter)"
		status 0 wq create --accept --limiter "$(stats limiter)" $q
		status 0 wq unlink $q
	done
	status 0 wq create $q
	is "limiter, slack, lease" "exponential:5ms:1000s,bucket:10:100 50000 -" \
		"$(stats limiter slack_ns lease_ns)"
	status 0 wq unlink $q
	status 0 wq create --slack 2ms $q
	status 0 wq stat --json $q
	holds '.slack_ns == 2000000 and .limiter == "exponential:5ms:1000s,bucket:10:100"'
	for time in 0 -1 1.1s soon; do
		reports 2 "--slack: " wq create --slack "$time" $q.b
	done
}

test_create_names_each_attribute_that_an_existing_queue_lacks() {
	queue --max-keys 5 --lease 30s --limiter default-item
	status 1 wq create --max-keys 5 --lease 30s --limiter exponential:1ms:1000s $q
	prints "the queue exists; use it, or remove it first: wqctl unlink $q"
	status 1 wq create --max-keys 6 $q
	prints "the queue exists, and its max-keys is 5, not 6; use it as it is with --accept, or change it with wqctl set"
	status 1 wq create --lease 1m --slack 1ms --limiter bucket:1:1 $q
	prints "its limiter is exponential:1ms:1000s, not bucket:1:1, and its lease is 30s, not 1m, and its slack is 50us, not 1ms;"
	status 0 wq create --accept --max-keys 6 --lease 1m $q
	is "max_keys, lease" "5 30000000000" "$(stats max_keys lease_ns)"
	status 0 wq create --accept --max-keys 6 $q.b
	is max_keys 6 "$(q=$q.b stats max_keys)"
	status 1 wq create --lease 1m $q.b
	prints "its lease is none, not 1m; use it as it is with --accept, or remove it first: wqctl unlink $q.b"
}

# ---- set

test_set_changes_the_attributes_that_are_given() {
	queue --lease 30s
	status 0 wq set --lease 1m $q
	is "lease, slack, max_keys, mode" "60000000000 50000 65536 0600" \
		"$(stats lease_ns slack_ns max_keys mode)"
	status 0 wq set -m 640 -n 7 --slack 1s --limiter bucket:0.001:1 --owner nobody --group 12 $q
	is "all" "60000000000 1000000000 7 0640 bucket:0.001:1 $(id -u nobody) 12" \
		"$(stats lease_ns slack_ns max_keys mode limiter uid gid)"
	status 0 wq set --lease 0 --owner 0 $q
	is "lease, uid" "- 0" "$(stats lease_ns uid)"
	status 0 wq set --lease 10s $q
	is lease 10000000000 "$(stats lease_ns)"
	wq add --rate-limited $q a b
	is "delayed in a bucket of 1" "1 1" "$(stats ready delayed)"
	consumer 7
	status 0 wq set -n 9 --fd 7
	is max_keys 9 "$(stats max_keys)"
}

test_set_of_the_owner_reports_an_owner_who_is_over_a_limit() {
	local limit
	limit=$(cat /sys/module/wq/parameters/user_keys)
	queue -n 7
	echo 6 >/sys/module/wq/parameters/user_keys
	reports 0 "the owner of the queue '$q' is over the limit of keys: 7 of 6" \
		wq set --owner nobody $q
	echo 7 >/sys/module/wq/parameters/user_keys
	status 0 wq set --owner 0 $q
	status 0 wq set --owner nobody $q
	is "messages of a set within the limits" "" "$(<"$err")"
	echo "$limit" >/sys/module/wq/parameters/user_keys
}

test_set_of_owner_group_and_mode_lets_no_group_in_meanwhile_and_fails_as_a_whole() {
	queue -m 640
	status 1 with_shim chown set -m 660 --group 12 $q
	is "mode at the chown" "its mode was 0600" "$(head -n 1 "$err")"
	prints "only root may change the owner"
	is "mode, gid" "0640 0" "$(stats mode gid)"
	status 0 wq set -m 660 --group 12 $q
	is "mode, gid" "0660 12" "$(stats mode gid)"
}

test_set_fails_and_changes_nothing() {
	queue
	device_for_all
	reports 1 "it was created without a lease" wq set --lease 1m -n 5 $q
	is max_keys 65536 "$(stats max_keys)"
	reports 2 "--max-keys: '33554433' is not a number from 1 to 33554432" wq set -n 33554433 $q
	status 0 wq set -m 666 $q
	reports 1 "only the queue's owner and root may do that" as_nobody set -n 5 $q
	status 0 wq set --owner nobody $q
	status 0 as_nobody set -n 5 $q
	reports 1 "only root may change the owner" as_nobody set --owner root $q
	reports 1 "only root may change the owner" as_nobody set --group 12345 $q
	is "max_keys, uid" "5 $(id -u nobody)" "$(stats max_keys uid)"
	exec 7<>/dev/wq
	wq bind --fd 7
	reports 1 "a private queue has none" wq set -m 600 --fd 7
	reports 2 "an attribute is missing" wq set $q
	status 2 wq set --owner no.such.user $q
	status 2 wq set --group 12x $q
	status 2 wq set --lease 1us $q
	reports 1 "there is no queue of that name" wq set -n 5 no.such
}

test_create_fails_if_the_queue_exists_or_its_name_is_invalid() {
	queue
	local name
	reports 1 "the queue exists; use it, or remove it first: wqctl unlink $q" wq create $q
	reports 1 "there is no such file; the path of a queue is in a mount of wqueue" wq create a/b
	for name in .hidden "$(printf '%064d' 0)"; do
		reports 2 "can't be a queue's name" wq create "$name"
		status 1 wq ls "$name"
	done
}

test_unlink_of_20000_keys_returns_at_once() {
	status 0 wq create $q
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	prints "20000 added"
	"$WQCTL" unlink $q &
	eventually gone $!
	wait $!
	is status 0 $?
	status 1 wq stat $q
}

# ---- apply

# config LINE...: the lines of $dir/conf
config() { printf '%s\n' "$@" >"$dir/conf"; }

# A child that leaves by exit() sets the position of the file back, and the lines are read again.
test_apply_ends_after_wrong_lines_and_applies_each_good_line_once() {
	config "$q.x - - --leese 3s" "$q - - -n 5" "$q.x - - --leese 3s" '# a comment' "$q.y - 9" "$q.z"
	status 1 timeout 60 "$WQCTL" apply "$dir/conf"
	is "standard output" "created $q" "$(<"$out")"
	is "wrong options" 2 "$(grep -c "unrecognized option '--leese'" "$err")"
	prints "conf:5: '9' is not a mode"
	prints "conf:6: '$q.z' is not all"
	is max_keys 5 "$(stats max_keys)"
	config "$q - - -n 5"
	status 0 wq apply "$dir/conf"
	is "standard output of a repeated apply" '' "$(<"$out")"
}

test_apply_bounds_a_file_and_its_lines() {
	local longest
	printf -v longest '%04096d' 0
	config "#$longest" "$q - -" "$q - - $longest"
	reports 1 "conf:3: the line has more than 4096 bytes" wq apply "$dir/conf"
	status 0 wq unlink $q
	{ echo "$q - -"; yes '#' | head -c 1048577; } >"$dir/conf"
	reports 1 "it has more than 1 MiB" wq apply "$dir/conf"
	reports 1 "it has more than 1 MiB" wq apply /dev/zero
	printf "%s - -\n%s.x - 060\0 -\n" $q $q >"$dir/conf"
	reports 1 "it has a NUL byte" wq apply "$dir/conf"
	reports 1 "can't read $dir: Is a directory" wq apply "$dir"
	status 1 wq stat $q
}

test_apply_fails_if_it_may_not_read_the_directory() {
	unshare -m sh -c '
		mount -t tmpfs -o mode=755 none /etc
		"$0" apply || exit 11
		mkdir -m 700 /etc/wq.d
		"$0" apply || exit 12
		setpriv --reuid 65534 --regid 65534 --clear-groups "$0" apply' "$WQCTL" 2>"$err"
	is status 1 $?
	prints "can't read the directory /etc/wq.d"
}

test_apply_leaves_the_queue_of_another_owner_as_it_is() {
	local owner line
	owner=$(id -u nobody)
	queue -m 666
	status 0 wq set --owner nobody --group 12 $q
	for line in "$q - 600 -n 7" "$q root 600" "$q daemon:daemon 666"; do
		config "$line"
		reports 1 "the queue '$q' is left as it is, because it belongs to uid $owner" \
			wq apply --dry-run "$dir/conf"
		reports 1 "then remove it: wqctl unlink $q" wq apply "$dir/conf"
		is "standard output for $line" '' "$(<"$out")"
		is "uid, gid, mode, max_keys" "$owner 12 0666 65536" "$(stats uid gid mode max_keys)"
	done
	config "$q - -"
	status 0 wq unlink $q
	status 0 wq apply "$dir/conf"
	is "uid, gid, mode" "0 0 0600" "$(stats uid gid mode)"
}

test_apply_changes_the_queue_of_the_owner_or_caller_and_reports_its_open_files() {
	local owner
	owner=$(id -u nobody)
	queue -m 666
	consumer 7
	config "$q nobody:12 640"
	status 0 wq apply --dry-run "$dir/conf"
	is "uid, mode" "0 0666" "$(stats uid mode)"
	reports 0 "the access of files that are open does not change, and the queue '$q' has 1 of them" \
		wq apply "$dir/conf"
	is "uid, gid, mode" "$owner 12 0640" "$(stats uid gid mode)"
	exec 7>&-
	config "$q nobody:13 660 -n 9"
	status 0 wq apply "$dir/conf"
	is "standard error" '' "$(<"$err")"
	is "uid, gid, mode, max_keys" "$owner 13 0660 9" "$(stats uid gid mode max_keys)"
}

test_apply_reports_the_owner_and_the_group_that_the_queue_has_then() {
	queue -m 600
	config "$q -:12 600"
	status 0 wq apply "$dir/conf"
	is "standard output" "changed $q: owner 0:12, not 0:0" "$(<"$out")"
	config "$q 7001 600"
	status 0 wq apply "$dir/conf"
	is "standard output" "changed $q: owner 7001:12, not 0:12" "$(<"$out")"
}

test_apply_reports_a_line_whose_process_is_killed() {
	config "$q - 600"
	SHIM_KILL=1 status 1 with_shim kill apply "$dir/conf"
	prints "conf:1: signal 9 ended the process of the line"
}

# ---- add

test_add_waits_for_a_non_blocking_standard_input() {
	queue
	mkfifo "$dir/in"
	exec 6<>"$dir/in"
	exec 5<"$dir/in"
	exec 7>"$dir/in" 6>&-
	# for all that share the open file
	python3 -c 'import os; os.set_blocking(0, False)' <&5
	"$WQCTL" add $q <&5 7>&- 2>"$err" &
	eventually asleep $!
	echo a >&7
	eventually stat_is ready 1
	echo b >&7
	exec 7>&-
	wait $!
	is "status, ready" "0 2" "$? $(stats ready)"
}

test_add_reports_an_error_of_standard_input_as_one() {
	queue
	reports 1 "can't read keys from standard input: Is a directory" wq add $q </
}

test_add_reads_lines_and_with_null_keys_with_newlines() {
	queue
	local keys
	printf 'one\n\ntwo words\nlast' | wq add $q
	is keys $'one\ntwo words\nlast' "$(wq get -n 9 $q)"
	printf 'a\nb\0c\0' | wq add -0 $q
	mapfile -d '' -t keys < <(wq get -0 -n 9 $q)
	is "keys with NUL" $'a\nb c' "${keys[*]}"
}
test_add_after_delays_a_key_by_any_unit_of_time() {
	queue
	status 0 wq add --after 2h $q later
	is "delayed, ready" "1 0" "$(stats delayed ready)"
	status 0 wq show $q later
	is state delayed "$(state $q later)"
	status 3 wq get $q
	status 0 wq add --after 50ms $q sooner
	is key sooner "$(wq get -t 20s $q)"
	is "delayed, retries" "1 2" "$(stats delayed retries)"
	local due
	due=$(stats next_due_ns)
	among "due in about 2 h" 7000000000001 7200000000000 "$due"
	status 0 wq cancel $q later
	is "was, due" "delayed -" "$(<"$out") $(stats next_due_ns)"
	local time
	for time in soon '' . 1.5.s -1 '5 s' 1e3 3y; do
		reports 2 "'$time' is not a time; for instance" wq add --after "$time" $q k
	done
	reports 2 "'2562048h' is too long; the maximum is 106751d" wq add --after 2562048h $q k
	for time in 30m 1800 1800.00s .5h 1800000ms 1800000000us 1800000000000ns; do
		status 0 wq add --after "$time" $q k
		due=$(stats next_due_ns)
		among "ns of $time" 1700000000001 1800000000000 "$due"
		status 0 wq cancel $q k
	done
	# as client-go's AddAfter, also without a delay; an add without --after is no retry
	is retries 9 "$(stats retries)"
	status 0 wq add --after 0 $q k
	status 0 wq add $q k
	is retries 10 "$(stats retries)"
}

test_add_rate_limited_counts_a_failure_until_cancel() {
	queue --limiter exponential:1h:1h
	status 0 wq add -v --rate-limited $q k < <(:)
	prints "1 added, 0 coalesced"
	is query $'delayed,failed\nfailures 1' "$(state $q k)"
	status 0 wq add --rate-limited $q < <(echo k)
	is query $'delayed,failed\nfailures 2' "$(state $q k)"
	has ls $'\n'"delayed,failed " "$(wq ls $q)"
	is "failed, retained, retries" "1 0 2" "$(stats failed retained retries)"
	is cancel delayed,failed "$(wq cancel $q k)"
	is "keys, failed" "0 0" "$(stats keys failed)"
	status 2 wq add --rate-limited --after 1s $q k
	prints "--rate-limited can't be combined with --after"
}


test_add_get_of_20000_keys_keep_their_order() {
	queue
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	prints "20000 added, 0 coalesced"
	printf '%s\n' {1..20000} >"$dir/added"
	wq get -n 30000 $q >"$dir/got"
	status 0 diff "$dir/added" "$dir/got"
}

# Adds the line a twice by one wqctl; it has added the first before it reads the second.
add_a_twice() {
	local adder
	mkfifo "$dir/lines"
	wq add -v $q <"$dir/lines" 2>"$dir/added" &
	adder=$!
	exec 7>"$dir/lines"
	echo a >&7
	eventually stat_is ready 1
	echo a >&7
	exec 7>&-
	wait $adder
	rm "$dir/lines"
	is "standard error" "1 added, 1 coalesced" "$(<"$dir/added")"
}

test_add_of_a_line_that_still_waits_needs_no_call() {
	queue
	add_a_twice
	is "map, coalesced" "yes 0" "$(stats map coalesced)"
}

test_add_without_a_map_calls_for_each_line() {
	queue --no-map
	add_a_twice
	is "map, coalesced" "no 1" "$(stats map coalesced)"
	status 0 wq stat --json $q
	holds '.map == false'
	status 1 wq create --no-map $q
	status 0 wq unlink $q
	status 0 wq create $q
	status 1 wq create --no-map $q
	status 0 wq create --accept --no-map $q
	is map yes "$(stats map)"
}

test_add_leaves_out_a_line_longer_than_1024_bytes_or_refused_and_goes_on() {
	queue -n 3
	local longest
	printf -v longest '%01024d' 0
	status 1 wq add $q < <(echo "$longest"; echo "${longest}0"; echo after)
	prints "line 2 of standard input is longer"
	is keys "$longest"$'\n'after "$(wq get -n 9 $q)"
	status 1 wq add $q < <(printf '%0200000d\n' 0; echo after; printf %02000d 0)
	prints "line 1 of standard input is longer"
	prints "2 lines of standard input were refused or too long"
	is keys after "$(wq get -n 9 $q)"
	wq disable $q no >/dev/null
	status 1 wq add $q < <(printf '%s\n' no a no b c)
	prints "a key is disabled"
	prints "the queue is full"
	is keys $'a\nb' "$(wq get -n 9 $q)"
	wq shutdown $q
	status 4 wq add $q < <(echo late)
}

test_add_from_a_slow_pipe_adds_each_line_at_once() {
	queue
	exec 8> >("$WQCTL" add $q)
	local add=$!
	echo one >&8
	is key one "$(wq get -t 10 $q)"
	exec 8>&-
	wait $add
	is status 0 $?
}

# ---- get

test_get_wait_waits_for_a_key() {
	queue
	"$WQCTL" get --wait $q >"$dir/key" &
	eventually asleep $!
	wq add $q late
	wait $!
	is key late "$(lines "$dir/key")"
}

test_get_escapes_what_a_terminal_would_obey_and_reports_a_pause() {
	queue
	printf 'a\033]b' | wq add $q
	script -qec "'$WQCTL' get $q" /dev/null </dev/null >"$out"
	is output $'a\\033]b\r' "$(<"$out")"
	wq pause --gets $q
	reports 3 "gets are paused" wq get $q
}

test_get_is_done_with_its_key_and_exits_3_if_empty() {
	queue
	wq add $q k
	wq get $q >/dev/null
	is "processing, dones" "0 1" "$(stats processing dones)"
	status 3 wq get $q
	status 3 wq get -t 0.05 $q
}

test_get_json_prints_an_object_for_each_key() {
	queue --lease 1m --order priority
	local line
	wq add --priority -7 $q low
	printf 'a\n\0' | wq add -0 --priority 9 $q
	consumer 7
	status 0 wq get --json -n 2 --fd 7
	mapfile -t line <"$out"
	is lines 2 ${#line[@]}
	printf '[%s, %s]' "${line[@]}" >"$out"
	holds 'map([.key, (.key_base64 | @base64d), .failures, .given_back, .priority]) ==
		[[null, "a\n", 0, 0, 9], ["low", "low", 0, 0, -7]]'
	status 0 wq done --fd 7 --token "$(jq -r '.[1].token' "$out")" low
	exec 7<&-
	status 0 wq get --json $q
	holds '[.token, .given_back] == [null, 1]'
	status 2 wq get --json -0 $q
}

test_get_gives_the_key_back_if_output_fails() {
	queue
	wq add $q k
	reports 1 "the keys go back" full wq get $q
	status 1 full wq ls $q
	reports 1 "can't write to standard output" full wq ls --json $q
	exec 8> >(:)
	wait $!
	status 141 closed wq get $q
	is key k "$(wq get $q)"
}

# ---- --fd

test_done_fd_needs_the_descriptor_that_holds_the_key() {
	queue
	consumer 7 6
	wq add --fd 7 a b
	is key a "$(wq get --fd 7)"
	is state "processing,mine" "$(state --fd 7 a)"
	wq add $q a
	is state "processing,dirty" "$(state $q a)"
	reports 1 "another consumer holds it" wq done --fd 6 a
	status 0 wq done --fd 7 a
	is state ready "$(state $q a)"
	reports 1 "does not hold the key 'a'" wq done --fd 7 a
}

test_done_retry_after_and_forget_set_the_outcome() {
	queue --limiter exponential:1h:1h
	local k
	consumer 7
	wq add $q retry after both
	wq get -n 3 --fd 7 >/dev/null
	status 0 wq done --fd 7 --retry retry
	is query $'delayed,failed\nfailures 1' "$(state $q retry)"
	status 0 wq done --fd 7 --after 2h after
	is query delayed "$(state $q after)"
	status 0 wq add --rate-limited $q both
	is query $'processing,delayed,failed,mine\nfailures 1' "$(state --fd 7 both)"
	status 0 wq done --fd 7 --forget --after 2h both
	is query delayed "$(state $q both)"
	for k in --forget '--after 1s'; do
		reports 2 "--retry can't be combined with" wq done --fd 7 --retry $k k
	done
}

test_done_retry_and_done_after_exit_4_after_shutdown() {
	queue
	consumer 7
	wq add $q a b c
	wq get -n 3 --fd 7 >/dev/null
	wq shutdown $q
	reports 4 "the key 'a' is done, but it does not run again" wq done --fd 7 --retry a
	status 4 wq done --fd 7 --after 1s b
	status 0 wq done --fd 7 --forget c
	is "processing, keys, dropped" "0 0 2" "$(stats processing keys dropped)"
}

test_bind_fails_for_a_wrong_or_bound_descriptor() {
	exec 7<>/dev/wq
	reports 1 "bind it first" wq get --fd 7
	reports 1 "is not open" wq get --fd 63
	status 1 wq get --fd 0 </dev/null
	prints "is not /dev/wq; open it first: exec 0<>/dev/wq"
	status 0 wq bind --fd 7
	wq add --fd 7 x
	is key x "$(wq get --fd 7)"
	reports 1 "already has a queue" wq bind --fd 7 $q
}

# got FD: gets the next key of descriptor FD as $key, and its $token
got() {
	local line
	line=$(wq get --token -t 20s --fd "$1")
	token=${line%% *} key=${line#* }
}

test_done_and_touch_need_the_token_in_a_queue_with_leases() {
	queue --lease 1h
	local token key old
	consumer 7 6
	wq add $q 'a key' b
	status 1 wq get --fd 7
	prints "was created with a lease, so that done and touch need the token of a key; get it with --token"
	is "ready, gets" "2 0" "$(stats ready gets)"
	got 7
	is key 'a key' "$key"
	status 1 wq done --fd 7 "$key"
	prints "can't end the run of the key 'a key': the queue was created with a lease, so the key's token is needed; wqctl get --token prints it"
	status 1 wq touch --fd 7 "$key"
	prints "can't touch the key 'a key': the queue was created with a lease"
	status 1 wq done --fd 6 --token $token "$key"
	status 1 wq done --fd 7 --token $((token + 1)) "$key"
	status 0 wq touch --fd 7 --token $token "$key"
	old=$token
	wq add $q "$key"
	status 0 wq done --fd 7 --token $token "$key"
	got 7
	got 7
	is key 'a key' "$key"
	status 1 wq done --fd 7 --token $old "$key"
	prints "descriptor 7 does not hold the key 'a key': it is done already, or its lease expired"
	is "held, dones" "2 1" "$(stats held dones --fd 7)"
	status 0 wq done --fd 7 --token $token "$key"
	reports 2 "--token belongs to one key" wq done --fd 7 --token $token a b
	status 2 wq done --fd 7 --token 0 a
	reports 2 "--token needs --fd" wq get --token $q
	wq add -0 $q < <(printf 'x\ny')
	is key 'x\ny' "$(wq get -0 --token --fd 7 | { IFS= read -rd '' line; printf '%q' "${line#* }"; } |
		sed "s/^\$'//; s/'$//")"
}

# given_back KEY...: the keys, which fd 6 gets, are given back
give_back() {
	consumer 6
	is keys "$*" "$(wq get -t 20s -n $# --fd 6 | words)"
	exec 6>&-
}

test_key_given_back_twice_fails_and_appears_everywhere() {
	queue --limiter exponential:1h:1h
	wq add $q poison
	give_back poison
	is query $'ready\ngiven_back 1' "$(state $q poison)"
	give_back poison
	wq add $q other
	is query $'delayed,failed\nfailures 1\ngiven_back 2' "$(state $q poison)"
	is "given back, failed, retries, delayed" "2 1 1 1" \
		"$(stats given_back given_back_failed retries delayed)"
	matches ls "^delayed,failed +- +[0-9]+m[0-9]+s +1 +2 +- " "$(row poison)"
	matches ls "^ready +[0-9.]+[mu]?s +- +0 +0 +- " "$(row other)"
	status 0 wq ls --json $q
	holds '[.[] | [.key, .given_back]] | sort == [["other", 0], ["poison", 2]]'
	is show "given_back 2" "$(wq show $q poison | grep ^given_back | words)"
	status 0 wq show --json $q poison
	holds '.given_back == 2 and .failures == 1'
	is metrics "wq_given_back_failed_total{name=\"$q\"} 1" \
		"$(wq metrics $q | grep ^wq_given_back_failed_total)"
	status 0 wq top -b -d 0.1 -n 1 $q
	matches top "GB_FAILED +PARKED +PAUSED"$'\n'"$q .* 1 +0 +-"$'\n'"STATE .* GIVEN_BACK +HOLDER +KEY  2 given back, 1 failed"$'\n' "$(<"$out")"
	matches top "delayed,failed +- +[0-9]+m[0-9]+s +1 +2 +- +poison" "$(<"$out")"
	wq add $q poison
	is keys "other poison" "$(wq get -n 9 $q | words)"
	is query delayed "$(state $q poison)"
}

test_touch_restarts_the_lease() {
	queue --lease 1h
	# The age and the rest of the lease add up to the lease, or to more after a touch.
	local lease='.age_ns + .lease_ns | . > 3599.5e9 and . < 3600.5e9' more='.age_ns + .lease_ns > 3600.9e9'
	local token key
	consumer 7
	wq add $q b a
	got 7
	got 7
	is key a "$key"
	nap 1
	status 0 wq show --json $q a
	holds "$lease"
	status 0 wq touch --fd 7 --token $token a
	status 0 wq show --json $q a
	holds "$more"
	status 0 wq show --json $q b
	holds "$lease"
	status 2 wq touch --fd 7
	reports 2 "give --fd N" wq touch a
}

test_touch_without_leases_checks_that_the_descriptor_holds_the_key() {
	queue
	consumer 7 6
	wq add $q b
	wq get --fd 7 >/dev/null
	status 0 wq touch --fd 7 b
	status 1 wq touch --fd 6 b
	prints "descriptor 6 does not hold the key 'b': another consumer holds it"
	reports 1 "descriptor 7 does not hold the key 'none': nobody got it" wq touch --fd 7 none b
}

# ---- cancel, forget

test_cancel_drops_a_key_and_prints_its_state() {
	queue
	wq add $q a b
	is state ready "$(wq cancel $q a)"
	status 3 wq cancel $q a
	reports 3 "has no key 'a'" wq show $q a
	is keys b "$(wq get -n 9 $q)"
}

test_forget_resets_failures_and_leaves_the_delay() {
	queue --limiter exponential:1h:1h
	wq add --rate-limited $q a b
	wq add --rate-limited $q b
	status 0 wq forget $q a unknown b
	is "a, b" "delayed delayed" "$(state $q a) $(state $q b)"
	is "failed, delayed" "0 2" "$(stats failed delayed)"
	wq add --rate-limited $q b
	is b $'delayed,failed\nfailures 1' "$(state $q b)"
	reports 2 "a key has 1 to 1024 bytes" wq forget $q ''
	reports 2 "a key is missing" wq forget $q
}

# ---- ls, show, stat

# row KEY: the line of ls that describes KEY
row() { wq ls $q | while read -r line; do [[ $line != *"  $1" ]] || echo "$line"; done; }

# because STATUS CODE [KEY]: wqctl why gives this reason, and no other
because() {
	status "$1" wq why --json $q ${3-}
	holds 'map(.code) == ["'$2'"]'
}

test_why_prints_why_a_key_does_not_run() {
	queue --max-retries 1 --limiter exponential:2h:2h
	because 3 not-added k
	wq add $q k
	because 0 no-consumer k
	consumer 7
	because 0 ready k
	wq add $q l
	because 0 behind l
	holds '.[0].text | startswith("it is ready, behind 1 other key; running now: 0")'
	wq pause --gets --for 1h $q
	because 0 gets-paused k
	holds '.[0].text | test("for another (1h00m|59m[0-9]+s); to end that: wqctl resume")'
	wq resume $q
	wq get --fd 7 >/dev/null
	because 0 processing k
	holds '.[0].text | test("^it runs now for [0-9.]+m?s, by [0-9]+\\(wqctl.sh\\)$")'
	wq add $q k
	because 0 processing k
	holds '.[0].text | endswith("it was added meanwhile, and runs again after that")'
	wq done --fd 7 k
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --retry l
	because 0 delayed l
	holds '.[0].text | startswith("it failed 1 time, and is ready again in 1h59m")'
	wq add --after 1h $q later
	because 0 delayed later
	status 0 wq disable $q off
	because 0 disabled off
	wq pause --adds $q
	because 3 adds-paused other
	wq resume $q
	# given up
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --give-up k
	because 0 parked k
	holds '.[0].text | contains("to run it again: wqctl kick")'
	exec 7<&-
	status 2 wq why $q ''
	status 2 wq why $q "$(printf '%01025d' 0)"
}

test_why_names_the_end_of_a_lease_and_the_group_that_is_at_its_limit() {
	queue --order groups:/:1 --lease 1h
	consumer 7
	wq add $q a/1 a/2 b/1
	wq get --token --fd 7 >/dev/null
	because 0 processing a/1
	holds '.[0].text | test("; its lease ends in (1h00m|59m[0-9]+s)$")'
	because 0 group-limit a/2
	holds '.[0].text == "its group \u0027a/\u0027 has 1 key in processing, which is the limit"'
	because 0 ready b/1
	wq get --token --fd 7 >/dev/null
	because 0 group-limit
}

test_why_names_the_ceiling_and_set_raises_it() {
	queue --max-processing 1
	consumer 7
	wq add $q a b
	wq get --fd 7 >/dev/null
	because 0 max-processing b
	holds '.[0].text | startswith("1 key in processing, as many as max-processing allows; to change that: wqctl set --max-processing N ")'
	because 0 max-processing
	holds '.[0].text | startswith("1 ready key waits for the end of a run: 1 is in processing, ")'
	is blocked "1 0 1" "$(stats blocked blocked_by_group blocked_by_ceiling)"
	status 2 wq set --max-processing x $q
	status 0 wq set --max-processing 2 $q
	is max_processing 2 "$(stats max_processing)"
	because 0 ready b
	status 0 wq set --max-processing 0 $q
	is max_processing - "$(stats max_processing)"
}

test_why_names_the_start_rate_and_set_changes_it() {
	queue --start-rate 1/h
	consumer 7
	wq add $q a b
	wq get --fd 7 >/dev/null
	because 0 start-rate b
	holds '.[0].text | test("^it is ready, and the next key starts in .*, as start-rate allows 0.000277778 in a second; to change that: wqctl set --start-rate RATE ")'
	because 0 start-rate
	holds '.[0].text | startswith("1 ready key waits: the next key starts in ")'
	is blocked "1 0 0 1" "$(stats blocked blocked_by_group blocked_by_ceiling blocked_by_rate)"
	is start_rate "0.000277778 1" "$(stats start_rate start_burst)"
	status 0 wq set --start-rate 100/s --start-burst 20 $q
	is start_rate "100 20" "$(stats start_rate start_burst)"
	status 0 wq set --start-rate 0 $q
	is start_rate "- -" "$(stats start_rate next_start_ns)"
	because 0 ready b
}

test_rest_holds_back_a_group_and_why_and_groups_show_it() {
	queue --order groups:/
	consumer 7
	wq add $q a/1 a/2 b/1
	status 0 wq rest $q a/ 1h
	is blocked "3 2 2 1" "$(stats ready blocked blocked_by_rest resting_groups)"
	because 0 rest a/2
	holds '.[0].text | test("^its group \u0027a/\u0027 rests for another (1h00m|59m[0-9]+s), as a consumer asked for; to end that: wqctl rest .* a/ 0$")'
	because 0 ready b/1
	status 0 wq groups --json $q
	holds 'map([.group, .ready, .blocked, .rest_ns != null]) == [["a/", 2, 2, true], ["b/", 1, 0, false]]'
	status 0 wq groups $q
	matches groups " +2 +2 +0 +0 +(1h00m|59m[0-9]+s)  a/" "$(<"$out")"
	status 0 wq get --fd 7
	is key b/1 "$(<"$out")"
	status 0 wq done --fd 7 --rest 2h b/1
	is query delayed "$(state $q b/1)"
	status 0 wq why --json $q
	holds 'map(.code) == ["rest", "delayed"]'
	holds '.[0].text | startswith("2 ready keys wait for the end of the rest of their groups; see wqctl groups ")'
	status 0 wq rest $q a/1 0
	status 0 wq get $q
	is key a/1 "$(<"$out")"
	reports 2 "is not a time" wq rest $q a/ soon
	reports 2 "--rest can't be combined with" wq done --fd 7 --rest 1s --retry b/1
}

test_why_names_the_start_rate_of_a_group_and_set_changes_it() {
	queue --order groups:/ --group-start-rate 1/h
	consumer 7
	wq add $q a/1 a/2 b/1
	wq get -n 2 --fd 7 >/dev/null
	because 0 group-start-rate a/2
	holds '.[0].text | test("^its group \u0027a/\u0027 starts its next key in .*, as group-start-rate allows 0.000277778 in a second; to change that: wqctl set --group-start-rate RATE ")'
	because 0 group-start-rate
	is blocked "1 1 0" "$(stats blocked blocked_by_group_rate blocked_by_rate)"
	is group_start_rate "0.000277778 1" "$(stats group_start_rate group_start_burst)"
	status 0 wq set --group-start-rate 100/s --group-start-burst 20 $q
	is group_start_rate "100 20" "$(stats group_start_rate group_start_burst)"
	status 0 wq save -o "$dir/s" $q
	wq unlink $q 2>/dev/null
	status 0 wq restore "$dir/s"
	is group_start_rate "100 20" "$(stats group_start_rate group_start_burst)"
	status 0 wq set --group-start-rate 0 $q
	is group_start_rate "-" "$(stats group_start_rate)"
	wq unlink $q 2>/dev/null
	queue
	reports 1 "has no groups, which a queue gets when it is created" wq set --group-start-rate 1 $q
	wq unlink $q 2>/dev/null
	reports 1 "has no groups" wq create --group-start-rate 1 $q
}

test_rest_of_a_queue_without_groups_fails() {
	queue
	reports 1 "has no groups, which a queue gets when it is created" wq rest $q a 1s
}

test_rests_are_saved_and_restored() {
	queue --order groups:/
	wq add $q a/1 b/1
	wq rest $q a/ 1h
	wq rest $q $'n\n' 2h
	status 0 wq save -o "$dir/s" $q
	is rests 'key resting due="a/" key resting due="n\012"' \
		"$(sed -nE '/^key resting/s/=[0-9.]+s /=/p' "$dir/s" | words)"
	wq unlink $q 2>/dev/null
	status 0 wq restore "$dir/s"
	is blocked "2 1 2" "$(stats ready blocked_by_rest resting_groups)"
	status 0 wq groups --json $q
	holds 'map(.rest_ns) | length == 3 and (map(select(. != null and . > 3500e9)) | length == 2)'
}

test_run_rest_status_lets_the_group_of_a_key_rest() {
	queue --order groups:/ --limiter exponential:1h:1h
	wq add $q a/1 a/2 b/1
	status 0 wq run -q --once --rest-status 75 --rest-for 300ms $q -- sh -c '
		echo "$1" >>"$0"; [ "$1" != a/1 ] || [ -e "$0.once" ] || { : >"$0.once"; exit 75; }' "$dir/ran"
	is ran "a/1 b/1 a/2 a/1" "$(words <"$dir/ran")"
	is failures 0 "$(stats failures)"
	# the time as the last line of standard error, and no time
	wq add $q a/1 b/1
	status 1 wq run --once --max-retries 0 --rest-status 75 $q -- sh -c '
		[ "$1" = b/1 ] || [ -e "$0.twice" ] || { : >"$0.twice"; echo 50ms >&2; exit 75; }
		[ "$1" != b/1 ] || { echo soon >&2; exit 75; }' "$dir/ran"
	prints "its last line of standard error is 'soon', and no time above 0 such as 30s: its keys failed"
	is "parked, failures" "1 0" "$(stats parked failures)"
	reports 2 "--rest-for needs --rest-status" wq run --rest-for 1s $q -- true
}

test_run_rest_status_reads_the_time_of_the_last_line_once() {
	queue --order groups:/
	wq add $q a/1
	status 0 wq run -q --once --max-retries 0 --rest-status 75 $q -- sh -c '
		[ ! -e "$0" ] || exit 0; : >"$0"; printf "50ms \t\r\n" >&2; exit 75' "$dir/ran"
	is "failures, keys" "0 0" "$(stats failures keys)"
	local line
	for line in 0 0s ' ' '' '\033[1s'; do
		wq add $q a/1 b/1
		status 1 wq run -q --once --batch all --max-retries 0 --rest-status 75 $q -- \
			sh -c 'printf "$0\n" >&2; exit 75' "$line"
		is "parked" 2 "$(stats parked)"
		[ "$(grep -c 'no time above 0' "$err")" = 1 ] || fail "expected one message, seen" "$(<"$err")"
		wq cancel $q a/1 b/1 >/dev/null
	done
	wq add $q a/1
	status 1 wq run -q --once --max-retries 0 --rest-status 75 $q -- \
		sh -c 'printf "\033[1s\n" >&2; exit 75'
	prints "its last line of standard error is '\\033[1s', and no time above 0"
	wq kick $q a/1 >/dev/null
	"$WQCTL" run -q --rest-status 75 $q -- sh -c 'echo 99999999999999h >&2; exit 75' 2>/dev/null &
	eventually has_rest
	kill $!
	wait $!
	status 0 wq groups --json $q
	holds 'map(.rest_ns) | . == map(select(. > 3600e9 and . <= 86400e9))'
}
has_rest() { [ "$(stats resting_groups)" = 1 ]; }

test_run_rest_status_is_not_for_keys_of_which_the_command_wrote() {
	queue --order groups:/
	wq add $q a/1 b/1
	status 1 wq run -q --once --batch all --max-retries 0 --outcome-fd 3 --rest-status 75 \
		--rest-for 50ms $q -- sh -c '[ ! -e "$0" ] || exit 0; : >"$0"; echo "retry a/1" >&3; exit 75' "$dir/ran"
	is "parked, keys" "1 1" "$(stats parked keys)"
	is "state" "parked,failed failures 1" "$(state $q a/1 | words)"
}

test_run_outcome_fd_rest_of_no_time_is_a_failure() {
	queue --order groups:/
	wq add $q a/1
	status 1 wq run -q --once --max-retries 0 --outcome-fd 3 $q -- sh -c 'echo "rest 0 $1" >&3' sh
	prints "the command wrote 'rest 0 a/1' to descriptor 3, and the time of a rest is above 0, so the key failed"
	is "parked" 1 "$(stats parked)"
}

test_run_reports_a_key_that_a_shut_down_drops_instead_of_its_rest() {
	local outcome
	for outcome in 'exit 75' 'echo "after 1h $1" >&3' 'echo "rest 1h $1" >&3'; do
		queue --order groups:/
		wq add $q a/1
		status 1 wq run --outcome-fd 3 --rest-status 75 --rest-for 1h $q -- \
			sh -c '"$0" shutdown "$WQ_QUEUE"; '"$outcome" "$WQCTL"
		prints "key 'a/1': dropped, because the queue was shut down, or the key disabled"
		prints ", 1 dropped"
		wq unlink $q
	done
}

test_run_counts_the_retries_that_a_shut_down_drops_after_a_rest() {
	queue --limiter fast-slow:1ms:1h:1
	wq add $q a
	"$WQCTL" run --rest-status 75 --rest-for 1ms $q -- sh -c '[ "$1" = a ] || exit 1
		echo >>"$0"; [ "$(wc -l <"$0")" != 1 ] || exit 1; [ "$(wc -l <"$0")" != 2 ] || exit 75' \
		"$dir/ran" 2>"$err" &
	eventually file_has "$dir/ran" 3
	wq add $q b
	eventually has_failed 3
	wq shutdown $q 2>/dev/null
	wait $!
	is status 1 $?
	prints "the queue has no groups; its keys wait without their groups"
	prints "dropped 1 key that waited for a retry, because the queue is shut down"
}
has_failed() { [ "$(stats failures delayed)" = "$1 1" ]; }

test_run_once_waits_for_its_own_rests() {
	queue
	wq add $q a
	status 0 wq run -q --once --rest-status 75 --rest-for 300ms $q -- sh -c '
		echo >>"$0"; [ "$(wc -l <"$0")" != 1 ] || exit 75' "$dir/ran"
	is runs 2 "$(wc -l <"$dir/ran")"
	wq unlink $q
	# a rest of another, and a delay
	queue --order groups:/
	wq rest $q z/ 1h
	wq add --after 1h $q d/1
	wq add $q a/1
	status 0 wq run -q --once --rest-status 75 --rest-for 100ms $q -- sh -c '
		echo >>"$0"; [ "$(wc -l <"$0")" != 3 ] || exit 75' "$dir/ran"
	is runs 4 "$(wc -l <"$dir/ran")"
	is "delayed, resting" "1 1" "$(stats delayed resting_groups)"
}

test_restore_goes_on_without_rests_and_keeps_longer_ones() {
	queue --order groups:/
	wq add $q a/1 b/1
	wq rest $q a/ 1h
	wq rest $q b/ 1h
	status 0 wq save -o "$dir/s" $q
	wq rest $q a/ 10h
	wq rest $q b/ 1m
	status 0 wq restore --merge "$dir/s"
	status 0 wq groups --json $q
	holds 'map(.rest_ns > 3500e9) == [true, true]' 'map(.rest_ns > 35000e9) == [true, false]'
	wq unlink $q 2>/dev/null
	queue --order groups:/ --max-keys 2
	wq rest $q y/ 1h
	status 0 wq restore --merge "$dir/s"
	prints "1 of the groups of the queue '$q' can't rest again: as many of the queue's groups rest as --max-keys allows"
	is "ready, resting" "2 2" "$(stats ready resting_groups)"
}

test_why_names_rests_beside_other_reasons_and_quotes_keys() {
	queue --order groups:/ --max-retries 1
	consumer 7
	wq add $q -- a/1 b/1 "c d/1" "e'/1" -x
	status 0 wq rest $q a/ 1h
	status 0 wq why --json $q
	holds 'map(.code) == ["ready", "rest"]' '.[0].text | startswith("4 keys ready for the next gets")'
	holds '.[1].text | startswith("1 of 5 ready keys waits for the end of the rest of its group; see wqctl groups ")'
	wq rest $q "c d/" 1h
	wq rest $q "e'/" 1h
	status 0 wq why --json $q "e'/1"
	holds '.[0].text | test("^its group .* rests for another [^;]*, as a consumer asked for$")'
	status 0 wq why --json $q "c d/1"
	holds '.[0].text | endswith(" '"'c d/'"' 0")'
	wq cancel $q b/1 >/dev/null
	wq disable $q -- -x >/dev/null
	status 0 wq why --json $q -- -x
	holds '.[0].text | endswith("wqctl enable '$q' -- -x")'
}

test_top_shows_keys_of_groups_that_rest_as_blocked() {
	queue --order groups:/
	wq add $q a/1 a/2 b/1
	wq rest $q a/ 1h
	status 0 wq top -b -d 0.1 -n 1 $q
	matches groups $'\n'"ready by group \(2\):  a/ 2 \(2 blocked\)  b/ 1"$'\n' "$(<"$out")"
}

test_run_outcome_fd_rest_lets_the_group_of_a_key_rest() {
	queue --order groups:/
	wq add $q a/1 a/2
	"$WQCTL" run -q --outcome-fd 3 $q -- sh -c 'echo "rest 1h $1" >&3' sh &
	eventually is_resting
	kill $!
	wait $!
	is "ready, delayed" "1 1" "$(stats ready delayed)"
}
is_resting() { [ "$(stats blocked_by_rest)" = 1 ]; }

test_a_start_rate_is_a_number_in_a_second_minute_or_hour() {
	local rate
	for rate in x 1/d -1 1/ 1e3 0.0000000001 9223372037 '' 0; do
		status 2 wq create --start-rate "$rate" $q
	done
	for rate in 0 4294967296 -1 x; do
		status 2 wq create --start-rate 1 --start-burst "$rate" $q
	done
	queue --start-rate 30/m --start-burst 4294967295
	is start_rate "0.5 4294967295" "$(stats start_rate start_burst)"
	reports 1 "its start-rate is 0.5, not 0.4" wq create --start-rate 0.4 $q
}

test_why_prints_why_the_keys_of_a_queue_do_not_run() {
	queue --max-keys 4
	because 0 empty
	wq add $q a b
	because 0 no-consumer
	wq add --after 1h $q c
	status 0 wq disable $q off
	status 0 wq why --json $q
	holds 'map(.code) == ["full", "no-consumer", "delayed", "disabled"]'
	is "lines" 4 "$(wq why $q | wc -l)"
	wq shutdown $q
	status 0 wq why --json $q
	holds '.[0].code == "shut-down"'
}

# hold_key: a worker, $pid, holds the next key until let_go or the end of the test
hold_key() {
	"$WQCTL" run -q $q -- sh -c "echo \$PPID >$dir/worker; read -r _ <$gate" 2>/dev/null &
	run=$!
	eventually file_has "$dir/worker" 1
	read -r pid <"$dir/worker"
}
let_go() {
	# a second SIGTERM kills the running command
	until ended $run; do kill $run 2>/dev/null; nap 0.1; done
	wait $run 2>/dev/null || true
}

test_ls_describes_each_key_in_columns_and_json() {
	queue --limiter exponential:5m:1h
	local pid run
	wq add $q held
	hold_key
	consumer 7
	wq add $q again
	wq get --fd 7 >/dev/null
	wq add $q again ready
	wq add --after 2h $q later
	wq add --rate-limited $q failed
	wq add --rate-limited $q failed
	is head "STATE AGE DUE FAILURES GIVEN_BACK HOLDER KEY" "$(wq ls $q | head -n 1 | words)"
	matches held "^processing +[0-9.]+[mu]?s +- +0 +0 +$pid\(wqctl\) " "$(row held)"
	matches again "^processing,dirty +[0-9.]+[mu]?s +- +0 +0 +[0-9]+\(.*\) " "$(row again)"
	matches ready "^ready +[0-9.]+[mu]?s +- +0 +0 +- " "$(row ready)"
	matches later "^delayed +- +1h59m +0 +0 +- " "$(row later)"
	matches failed "^delayed,failed +- +[0-9]+m[0-9]+s +2 +0 +- " "$(row failed)"
	has "ls --fd" $'\n'processing,dirty,mine "$(wq ls --fd 7)"
	status 0 wq ls --json $q
	holds '[.[].key] | sort == ["again", "failed", "held", "later", "ready"]'
	holds '.[] | select(.key == "held") | .holder == "process" and .command == "wqctl" and .pid == '$pid
	holds 'all(.[]; (.state[0] == "processing") == (.holder != null) and (.holder == null) == (.pid == null))'
	holds '.[] | select(.key == "again") | .state == ["processing", "dirty"]'
	holds 'all(.[]; (.age_ns == null) == (.state[0] == "delayed") and (.due_ns == null) == (.state[0] != "delayed"))'
	holds 'all(.[] | .age_ns | numbers; . > 0 and . < 60e9)'
	holds '.[] | select(.key == "later") | .due_ns > 7100e9 and .due_ns <= 7200e9'
	holds '[.[] | select(.failures > 0) | [.key, .failures]] == [["failed", 2]]'
	let_go
}

test_ls_and_stat_of_an_unnamed_queue_have_null_times() {
	exec 7<>/dev/wq
	wq bind --fd 7
	status 0 wq ls --json --fd 7
	holds '. == []'
	wq add --fd 7 k
	status 0 wq ls --json --fd 7
	holds '.[0] | .key == "k" and .state == ["ready"] and .age_ns == null'
	status 0 wq stat --json --fd 7
	holds 'has("queue_duration") and .queue_duration == null and .longest_ns == null and .consumers == 1'
}

# The kernel's list proves it for 100000 keys, in metrics.c.
test_ls_prints_each_key_once_during_add_and_cancel() {
	queue -n 40000
	local i before after moved=0
	wq add $q < <(seq -f 's%.0f' 20000)
	(
		while :; do
			wq add $q < <(seq -f 'x%.0f' 5000)
			seq -f 'x%.0f' 5000 | xargs -n 5000 "$WQCTL" cancel $q
		done
	) >/dev/null 2>&1 &
	# On a busy machine nothing may move during a single ls.
	for ((i = 0; i < 3 || (moved == 0 && i < 100); i++)); do
		before=$(stats adds canceled)
		wq ls -0 $q >"$dir/keys"
		after=$(stats adds canceled)
		is "keys that stayed, printed twice" "20000 0" "$(tr '\0' '\n' <"$dir/keys" |
			awk '/^s/ { n++; if (seen[$0]++) twice++ } END { print n, twice + 0 }')"
		[ "$before" = "$after" ] || moved=$((moved + 1))
	done
	is_not "times that other keys came or went during ls" 0 $moved
	kill $!
}

test_ls_prints_each_queue() {
	queue
	local line head
	wq add $q a b c
	wq get $q >/dev/null
	wq add --after 1h $q later
	wq create -m 0640 $q.zz
	wq shutdown $q.zz
	status 0 wq ls
	mapfile -t line <"$out"
	is head "NAME OWNER GROUP MODE STATE READY PROCESSING DELAYED PARKED KEYS CONSUMERS OLDEST" "$(words <<<"${line[0]}")"
	matches ls $'\n'"$q +root +root +0600 +open +2 +0 +1 +0 +3 +0 +[0-9.]+[mu]?s"$'\n' "$(<"$out")"
	matches ls $'\n'"$q\.zz +root +root +0640 +shutdown +0 +0 +0 +0 +0 +0 +-("$'\n'"|$)" "$(<"$out")"
	head=${line[0]%% READY*}
	for line in "${line[@]}"; do
		is "column READY in '$line'" ' ' "${line:${#head}:1}"
	done
	has_no ls BLOCKED "$(<"$out")"
	wq create --order groups:/:1 $q.groups
	wq add $q.groups a/1 a/2
	status 0 wq ls
	matches blocked "READY +BLOCKED .*"$'\n'"$q\.groups +root +root +0600 +open +2 +1 +0 " "$(<"$out")"
	status 0 wq ls --json
	holds '.[] | select(.name == "'$q'.groups") | [.ready, .blocked, .ready_groups] == [2, 1, 1]'
	wq unlink $q.groups
	holds '[.[].name] | sort == . and unique == .'
	holds '.[] | select(.name == "'$q'") | [.uid, .mode, .shutdown, .ready, .delayed, .parked, .keys, .consumers, .oldest_ns > 0] == [0, "0600", false, 2, 1, 0, 3, 0, true]'
	holds '.[] | select(.name == "'$q'.zz") | [.mode, .shutdown, .oldest_ns] == ["0640", true, null]'
	wq unlink $q.zz
	status 2 wq ls -0
	status 2 wq ls -0 --json $q
	status 2 wq ls $q extra
}

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$WQCTL" "$@"; }

test_ls_stat_and_metrics_respect_the_mode() {
	queue
	device_for_all
	wq create -m 602 $q.w
	wq create -m 604 $q.r
	wq add $q.w k
	status 0 as_nobody ls --json
	holds '[.[].name | select(startswith("'$q'"))] == ["'$q'.r", "'$q'.w"]'
	status 1 as_nobody ls $q.w
	prints "the queue has mode 0602 and uid 0, gid 0, which allow you only to write"
	status 0 as_nobody stat --json $q.w
	holds '.ready == 1'
	status 0 as_nobody metrics $q.r $q.w
	status 1 as_nobody metrics $q $q.w no.such
	prints "can't read the statistics of the queue '$q': the queue has mode 0600 and uid 0, gid 0, which allow you neither to read nor to write"
	prints "can't read the statistics of the queue 'no.such': there is no queue of that name"
	has metrics "{name=\"$q.w\"} 1" "$(<"$out")"
	has_no metrics "\"$q\"" "$(<"$out")"
}

# Keys that would break a terminal or a parser, each as in a C string
hostile=('new\nline' '\r\n' '"quoted\047 \\' 'tab\tand\001\033[2J\033]0;title\007' '\377\376'
	'cut \343\201' '\302\233\062J' 'turned \342\200\256' 'wide \346\274\242\345\255\227'
	'e\314\201' '{}' '  ' '# HELP' '\360\237\246\212' '\355\240\200' 'key",\n"x":"')
add_hostile() {
	local k
	for k in "${hostile[@]}"; do printf '%b\0' "$k"; done | succeeds wq add -0 $q || exit 1
	printf 'a\0nul\n%01024d' 7 | succeeds wq add $q || exit 1
}

test_ls_escapes_hostile_keys_without_loss() {
	queue
	local locale
	add_hostile
	wq ls -0 $q >"$dir/raw"
	status 0 wq ls --json $q
	cp "$out" "$dir/json"
	for locale in C C.UTF-8; do LC_ALL=$locale wq ls $q >"$dir/$locale"; done
	python3 -IS - "$dir" "${hostile[@]}" <<-'END' || exit 1
	import base64, codecs, json, re, sys, unicodedata
	dir = sys.argv[1]
	unescape = lambda b: codecs.escape_decode(b)[0]
	want = sorted([unescape(k.encode()) for k in sys.argv[2:]] + [b"a\0nul", b"0" * 1023 + b"7"])
	def same(what, got):
	    if sorted(got) != want:
	        print("#", what, "expected", [k for k in want if k not in got],
	              "seen", [k for k in got if k not in want])
	        sys.exit(1)
	raw = open(dir + "/json", "rb").read()
	assert not re.search(rb"[^ -~\n]", raw), "JSON that is not plain ASCII"
	rows = json.loads(raw)
	same("base64", [base64.b64decode(r["key_base64"]) for r in rows])
	for r in rows:
	    key = base64.b64decode(r["key_base64"])
	    try:
	        text = key.decode()
	    except UnicodeDecodeError:
	        text = None
	    if text and any(unicodedata.category(c) == "Cc" for c in text):
	        text = None
	    assert r["key"] == text, (key, r["key"])
	keys = open(dir + "/raw", "rb").read().replace(b"a\0nul\0", b"a\1nul\0").split(b"\0")
	same("-0", [b"a\0nul" if k == b"a\1nul" else k for k in keys[:-1]])
	for locale in "C", "C.UTF-8":
	    text = open(dir + "/" + locale, "rb").read()
	    lines = text.split(b"\n")[1:-1]
	    at = text.index(b"KEY")
	    same(locale, [unescape(line[at:]) for line in lines])
	    if locale == "C":
	        assert not re.search(rb"[^ -~\n]", text), "not plain ASCII"
	    else:
	        for c in text.decode():
	            assert c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs"), hex(ord(c))
	        assert "wide \u6f22\u5b57" in text.decode()
	END
}

test_show_describes_one_key() {
	queue --limiter exponential:5m:1h
	local key=$'a\n\e[2J' pid run
	wq add --rate-limited $q k
	wq add --rate-limited $q k
	wq add $q k
	hold_key
	wq add $q k
	status 0 wq show $q k
	matches show "^key k state processing,dirty,delayed,failed age [0-9.]+[mu]?s due [0-9]+m[0-9]+s failures 2 num_requeues 2 given_back 0 priority 0 holder $pid\(wqctl\) lease - error - reason - last run -$" "$(words <"$out")"
	status 0 wq show --json $q k
	holds '.key == "k" and .key_base64 == "aw==" and .state == ["processing", "dirty", "delayed", "failed"]'
	holds '.failures == 2 and .num_requeues == 2 and .holder == "process" and .pid == '$pid
	let_go
	holds '.age_ns > 0 and .age_ns < 60e9 and .due_ns > 200e9 and .due_ns <= 300e9'
	wq add -0 $q < <(printf '%s' "$key")
	status 0 wq show $q "$key"
	is key 'key a\n\033[2J' "$(head -n 1 "$out" | tr -s ' ')"
	status 0 wq show --json $q "$key"
	holds '.key == null and (.key_base64 | @base64d) == "a\n\u001b[2J"'
	reports 3 "has no key 'other'" wq show $q other
	status 2 wq show $q
	reports 2 "a key has 1 to" wq show $q ''
}

test_show_and_ls_last_have_the_last_run_of_a_key_also_of_an_idle_one() {
	local last worker
	queue --limiter exponential:1h:1h
	wq add $q k
	status 0 wq show $q k
	has new "last run -" "$(words <"$out")"
	status 0 wq show --json $q k
	holds '.last_result == null and .last_age_ns == null and .last_took_ns == null'
	"$WQCTL" run -q $q -- sh -c 'sleep 0.2; exit 1' &
	worker=$!
	delayed() { [[ $(state $q k) = delayed,failed* ]]; }
	eventually delayed
	kill $worker
	wait $worker
	status 0 wq show --json $q k
	holds '.state == ["delayed", "failed"] and .last_result == "failed" and .last_took_ns >= 199e6'
	holds '.last_took_ns < 60e9 and .last_age_ns >= 0 and .last_age_ns < 60e9'
	# with another result, of a key that is idle then
	wq add $q idle
	is "key" idle "$(wq get $q)"
	reports 3 "has no key 'idle'; it only remembers how the key's last run ended" wq show $q idle
	reports 3 "has no key 'idle'" wq show --json $q idle
	wq show --json $q idle >"$out" 2>&-
	holds '.state == ["idle"] and .last_result == "done" and .age_ns == null'
	last="$(wq show $q idle 2>&- | grep ^last | words)"
	matches "last run" "^last run [0-9.]+[mun]?s ago, took [0-9.]+[mun]?s, done$" "$last"
	is "keys of the queue" k "$(wq ls -0 $q | tr '\0' ' ' | words)"
	status 0 wq ls --last $q
	is head "ENDED TOOK RESULT STATE KEY" "$(words <<<"$(sed -n 1p "$out")")"
	matches first "^ +[0-9.]+[mun]?s +[0-9.]+[mun]?s done +idle +idle$" "$(sed -n 2p "$out")"
	matches second "^ +[0-9.]+[mun]?s +[0-9.]+[mun]?s failed +delayed,failed +k$" "$(sed -n 3p "$out")"
	is lines 3 "$(wc -l <"$out")"
	status 0 wq ls --last --json $q
	is "results" "done failed" "$(jq -r '.[].last_result' "$out" | sort | words)"
	reports 2 "--last can't be combined" wq ls --last -0 $q
	reports 2 "--due can't be combined" wq ls --last --due $q
	reports 2 "--last lists keys of a queue" wq ls --last
}

test_stat_prints_all_statistics_in_columns_and_json() {
	queue
	local f
	consumer 7
	wq add $q a b c a
	wq get $q >/dev/null
	is key b "$(wq get --fd 7)"
	wq add $q b
	status 0 wq stat --json $q
	holds '[.name, .mode, .shutdown, .draining] == ["'$q'", "0600", false, false]'
	holds '[.ready, .processing, .depth, .keys] == [1, 1, 2, 2]'
	holds '[.adds, .coalesced, .gets, .dones, .merged, .failed, .retained] == [4, 1, 2, 1, 0, 0, 0]'
	holds '.consumers == 1 and .memory > 0 and .unfinished_ns > 0 and .unfinished_ns <= .longest_ns and .longest_ns < 60e9'
	holds '[.work_duration.buckets[].up_to_ns] == [10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, null]'
	holds 'all(.queue_duration, .work_duration; .count == ([.buckets[].count] | add))'
	holds '.expired == 0 and has("lease_ns") and .lease_ns == null'
	holds '[.queue_duration.count, .work_duration.count] == [2, 1]'
	holds '.work_duration | .mean_ns == .sum_ns and .sum_ns > 0'
	is "depth, consumers, counts" "2 1 2 1" \
		"$(stats depth consumers queue_duration_count work_duration_count)"
	for f in memory unfinished_ns longest_ns queue_duration_mean_ns work_duration_mean_ns; do
		among $f 1 1000000000000 "$(stats $f)"
	done
}

# ---- metrics

test_metrics_pass_promtool() {
	queue
	wq create $q.b
	wq create --order priority $q.levels
	wq add --priority 31 $q.levels a
	consumer 7
	wq add $q a b c a
	wq get $q >/dev/null
	is key b "$(wq get --fd 7)"
	wq add --after 1h $q later
	status 0 wq metrics
	is "standard error" '' "$(<"$err")"
	cp "$out" "$dir/all"
	status 0 "${PROMTOOL:-promtool}" check metrics <"$dir/all"
	is "promtool's findings" '' "$(<"$out")$(<"$err")"
	is "metrics without one TYPE and HELP, and with other samples of one queue" '' "$(awk -v q="$q" '
		/^# TYPE / { type[$3]++ }
		/^# HELP [^ ]+ ./ { help[$3]++ }
		/^[^#]/ { split($1, part, /[{",}]/); name = part[1] }
		/^[^#]/ && !(name in type) { sub(/_(bucket|sum|count)$/, "", name) }
		/^[^#]/ { samples[name, part[3]]++; type[name] += 0 }
		END { for (name in type)
			if (type[name] != 1 || help[name] != 1 ||
			    samples[name, q] != samples[name, q ".b"]) print name }' "$dir/all")"
}

test_metrics_equal_stat() {
	queue
	local k
	consumer 7
	for k in a b c; do
		wq add $q $k
		wq get $q >/dev/null
	done
	wq add $q held ready held
	wq get --fd 7 >/dev/null
	wq add $q held
	wq add --after 1h $q later
	succeeds wq metrics $q $q >"$dir/metrics"
	status 0 wq stat --json $q
	python3 -IS - "$dir/metrics" "$out" $q "$SRC/module/queue/metrics.h" <<-'END' || exit 1
	import itertools, json, re, sys
	m = [line.rsplit(" ", 1) for line in open(sys.argv[1]) if line[0] != "#"]
	assert len(dict(m)) == len(m), "a sample is there twice: %s" % sorted(k for k, _ in m)
	m = {k: v.strip() for k, v in m}
	st = json.load(open(sys.argv[2]))
	name = 'name="%s"' % sys.argv[3]
	def same(what, want):
	    got = m.pop(what + "{" + name + "}")
	    if got != want:
	        print("#", what, "expected", want, "seen", got)
	        sys.exit(1)
	table = open(sys.argv[4]).read()
	rows = re.findall(r'^(?:VALUE\((\w+), (\w+)|OTHER\((\w+), (\w+)|FLAG\((\w+)).*?'
	    r'(NULL|"[^"]*"),\s+(NULL|"[^"]*"),\s+(?:NULL|".*?")\)$', table, re.M | re.S)
	for field, kind, other, other_kind, flag, shown, metric in rows:
	    kind = kind or other_kind or "GAUGE"
	    if metric != "NULL" and kind in ("COUNTER", "GAUGE", "GROUPS"):
	        same(metric.strip('"'), str(int(st[shown.strip('"') if shown != "NULL" else field] or 0)))
	assert len(rows) == len(re.findall(r"^(?:VALUE|OTHER|FLAG)\(", table, re.M)) > 40
	assert st["ready_groups"] is None and st["ready_by_priority"] is None, st
	same("wq_lease_seconds", "0.000000000")
	same("wq_slack_seconds", "0.000050000")
	labels = "".join(',%s="%s"' % p for p in (("max_keys", st["max_keys"]),
	    ("limiter", st["limiter"]), ("order", "fifo"), ("max_retries", 0), ("lease", "none"),
	    ("slack", "50us"), ("max_processing", 0),
	    ("start_rate", "none"), ("start_burst", 1), ("group_start_rate", "none"),
	    ("group_start_burst", 0), ("max_defer", "none")))
	assert m.pop("wq_queue_info{" + name + labels + "}") == "1"
	assert [st[f] for f in ("depth", "adds", "retries", "processing", "delayed", "keys",
	    "coalesced", "consumers")] == [2, 6, 1, 1, 1, 3, 1, 1], st
	bounds = ["1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10", "+Inf"]
	for field, count in ("queue_duration", 4), ("work_duration", 3):
	    what, h = "workqueue_%s_seconds" % field, st[field]
	    assert h["count"] == count, h
	    same(what + "_count", str(count))
	    same(what + "_sum", "%d.%09d" % divmod(h["sum_ns"], 10 ** 9))
	    for le, n in zip(bounds, itertools.accumulate(b["count"] for b in h["buckets"])):
	        got = m.pop('%s_bucket{%s,le="%s"}' % (what, name, le))
	        assert got == str(n), (what, le, n, got)
	for what, field in ("workqueue_unfinished_work", "unfinished_ns"), (
	        "workqueue_longest_running_processor", "longest_ns"), ("wq_oldest", "oldest_ns"):
	    got = m.pop("%s_seconds{%s}" % (what, name))
	    assert len(got.split(".")[1]) == 9, got
	    assert 0 < int(got.replace(".", "")) <= st[field] < 60e9, (got, st[field])
	assert not m, "unexpected samples: %s" % m
	END
}

test_stat_and_metrics_show_ready_keys_by_level() {
	queue --order priority
	is "no level" - "$(stats ready_by_priority)"
	is "samples" '' "$(wq metrics $q | grep "^wq_priority_ready_keys")"
	wq add --priority 31 $q a
	wq add --priority 31 $q b
	wq add --priority -128 $q c
	wq add --priority 4 $q d
	wq get $q >/dev/null
	wq cancel $q d >/dev/null
	is "levels" "ready_by_priority 31:1 -128:1" "$(wq stat $q | grep ready_by_priority | words)"
	status 0 wq stat --json $q
	holds '.ready_by_priority == [{"priority": 31, "ready": 1}, {"priority": -128, "ready": 1}]'
	# a level that had a key keeps its sample
	is "samples" "priority=\"-128\"} 1 priority=\"4\"} 0 priority=\"31\"} 1" \
		"$(wq metrics $q | sed -n "s/^wq_priority_ready_keys{name=\"$q\",//p" | words)"
}

test_metrics_replace_the_output_file_atomically() {
	queue
	local f=$dir/wq.prom inode
	wq create $q.b
	umask 022
	status 0 wq metrics -o "$f"
	is "out, mode" "0 644" "$(stat -c %s "$out") $(stat -c %a "$f")"
	is file "$(wq metrics)" "$(<"$f")"
	exec 8<"$f"
	inode=$(stat -c %i "$f")
	status 0 wq metrics -o "$f" $q
	is_not "inode of the new file" "$inode" "$(stat -c %i "$f")"
	has "the old file, still open" "\"$q.b\"" "$(cat <&8)"
	is files wq.prom "$(ls -A "$dir")"
	reports 1 "is not a regular file" wq metrics -o /dev/null $q
	is "type of /dev/null" "character special file" "$(stat -c %F /dev/null)"
	reports 1 "is left out: the label of another one is '$q', too" wq metrics $q $q /dev/wqueue/$q
	is "samples" 1 "$(grep -c "^workqueue_depth" "$out")"
	reports 1 "No such file" wq metrics -o "$dir/none/wq.prom"

	mkdir "$dir/full"
	succeeds mount -t tmpfs -o size=4k,nr_inodes=9 tmpfs "$dir/full"
	echo old >"$dir/full/wq.prom"
	reports 1 "No space left" wq metrics -o "$dir/full/wq.prom"
	is "file, files" "old wq.prom" "$(<"$dir/full/wq.prom") $(ls -A "$dir/full")"
}

test_metrics_skip_a_queue_that_unlink_removed_meanwhile() {
	queue
	wq create $q.x
	status 0 with_shim unlink metrics
	is "standard error" '' "$(<"$err")"
	has metrics "\"$q\"" "$(<"$out")"
	has_no metrics '"gone"' "$(<"$out")"
	has_no metrics "$q.x" "$(<"$out")"
}

# ---- save, restore

# content: the lines of a snapshot on standard input, without times and the last line
content() { sed -E 's/ (age|due)=[0-9.]+s//; /^(boot|end) /d; /^paused /s/ [0-9.]+s$//'; }

save_queues() { # queues of each order, with keys in each state; descriptors 5 and 6 hold keys
	status 0 wq create -m 0640 -n 100 --order priority:8 --max-retries 3 --lease 1h \
		--max-processing 9 --start-rate 99999/h --start-burst 77 $q.a
	status 0 wq create --order groups:/:1,priority:8 --max-defer 3s --slack 1ms $q.b
	status 0 wq create --no-map --limiter exponential:1h:3h,max-wait:2h $q.c
	exec 5<>/dev/wq 6<>/dev/wq
	succeeds wq bind --fd 5 $q.a
	succeeds wq bind --fd 6 $q.c
	succeeds wq add --priority 7 $q.a running
	succeeds wq get --token --fd 5
	succeeds wq add --priority 5 $q.a high
	succeeds wq add --priority -5 $q.a low
	succeeds wq add --after 2h --priority 3 $q.a later
	succeeds wq add --priority 4 $q.b y/high
	succeeds wq add $q.b x/2 x/1 y/1 $'new\nline \303\244 "\\'
	succeeds wq add $q.c parked failed
	succeeds wq get --fd 6
	succeeds wq done --fd 6 --give-up --reason $'it said "\t"' parked
	succeeds wq get --fd 6
	succeeds wq done --fd 6 --retry failed
	succeeds wq disable $q.c disabled
	local k
	# one call each: keys of one call have one time
	for k in k{9..1}; do succeeds wq add $q.c $k; done
	succeeds wq pause --gets --for 2h $q.b
	succeeds wq pause --adds $q.c
} >/dev/null

unlink_saved() {
	succeeds wq unlink $q.a
	succeeds wq unlink $q.b
	succeeds wq unlink $q.c
	exec 5>&- 6>&-
} 2>/dev/null

test_restore_makes_all_states_attributes_and_pauses_again_in_their_order() {
	local once twice
	save_queues
	status 0 wq save -o "$dir/s" $q.c $q.a $q.b
	unlink_saved
	is "mode" 600 "$(stat -c %a "$dir/s")"
	status 0 wq restore -v "$dir/s"
	is "standard output" "3 queues, 21 keys" "$(<"$out")"
	status 0 wq save $q.a $q.b $q.c
	# what was processing is ready, ahead of all
	once=$(content <"$dir/s" | sed 's/^key processing /key ready,requeued /')
	twice=$(content <"$out")
	is "snapshot" "$once" "$twice"
	has "a" 'key ready,requeued priority=7 "running"' "$twice"
	has "c" 'key parked failures=1 reason="it said \042\011\042" "parked"' "$twice"
	has "b" 'key ready priority=4 "y/high"' "$twice"
	has "b" '"new\012line \303\244 \042\134"' "$twice"
	is "order" "k9 k8 k7 k6 k5 k4 k3 k2 k1" \
		"$(sed -n 's/^key ready "\(k.\)"$/\1/p' <<<"$twice" | words)"
	status 0 wq save -o "$dir/t" $q.a $q.b $q.c
	unlink_saved
	status 0 wq restore <"$dir/t"
	status 0 wq save $q.a $q.b $q.c
	is "third snapshot" "$twice" "$(content <"$out")"
	succeeds wq resume $q.c
	q=$q.a
	status 0 wq get $q
	is "first key" running "$(<"$out")"
}

test_save_and_restore_of_a_queue_with_more_keys_than_its_lowered_limit() {
	local limit once
	for limit in 1 9; do
		queue -n 10
		succeeds wq add $q {1..7}
		succeeds wq add --after 1h $q later
		consumer 7
		succeeds wq add $q bad
		is key 1 "$(wq get --fd 7)"
		succeeds wq done --give-up --fd 7 1
		exec 7>&-
		succeeds wq set -n $limit $q
		status 0 wq save -o "$dir/s" $q
		succeeds wq unlink $q
		status 0 wq restore "$dir/s"
		is "keys, max_keys, ready, parked" "9 $limit 7 1" "$(stats keys max_keys ready parked)"
		once=$(content <"$dir/s")
		status 0 wq save $q
		is "snapshot of the limit $limit" "$once" "$(content <"$out")"
		reports 1 "the queue is full" wq add $q new
		is keys "2 3 4 5 6 7 bad" "$(wq get -n 9 $q | words)"
		succeeds wq unlink $q
	done
}

test_restore_refuses_a_snapshot_that_is_truncated_changed_or_newer_and_names_the_line() {
	local lines n
	save_queues
	status 0 wq save -o "$dir/s" $q.a $q.b $q.c
	unlink_saved
	lines=$(wc -l <"$dir/s")
	for ((n = 0; n < lines; n += 16)); do
		head -n $n "$dir/s" >"$dir/t"
		status 1 wq restore "$dir/t"
	done
	prints "line $((n - 16)): the snapshot is truncated"
	for ((n = 2; n < lines; n += 16)); do
		sed "${n}s/[a-z]/Z/" "$dir/s" >"$dir/t"
		reports 1 "line $n: " wq restore "$dir/t"
	done
	sed '1s/1/2/' "$dir/s" >"$dir/t"
	reports 1 "line 1: this wqctl can't read this version" wq restore "$dir/t"
	(cat "$dir/s"; echo more) >"$dir/t"
	status 1 wq restore "$dir/t"
	printf 'wq-snapshot 1\n\0' >"$dir/t"
	status 1 wq restore "$dir/t"
	status 1 wq restore /dev/null
	is "queues" "" "$(wq ls | grep "^$q" || true)"
	status 0 wq restore "$dir/s"
}

test_restore_gives_a_queue_its_owner_group_and_mode() {
	succeeds wq create -m 640 $q
	succeeds wq set --owner nobody --group 12 $q
	succeeds wq add $q a b
	status 0 wq save -o "$dir/s" $q
	wq unlink $q 2>/dev/null
	status 0 wq restore "$dir/s"
	is "uid, gid, mode, ready" "$(id -u nobody) 12 0640 2" "$(stats uid gid mode ready)"
}

# snapshots FILE: for each line of standard input a snapshot FILE.N of a queue, a key and this line,
# with a last line that is right
snapshots() {
	python3 -c '
import sys
queue, file = sys.argv[1:]
for n, line in enumerate(sys.stdin.buffer, 1):
    head = f"wq-snapshot 1\nqueue {queue}\nattr mode 0600\n"
    text, total = head.encode() + b"key ready \"ok\"\n" + line, 0xcbf29ce484222325
    for byte in text:
        total = (total ^ byte) * 0x100000001b3 & 2**64 - 1
    with open(f"{file}.{n}", "wb") as f:
        f.write(text + b"end %d %016x\n" % (text.count(b"\n"), total))' $q "$1"
}

test_restore_refuses_hostile_lines_with_the_right_checksum() {
	local n
	snapshots "$dir/t" <<-'END'
	key ready "a
	key ready a
	key ready ""
	key ready "a" b
	key ready "\400"
	key ready
	key none "a"
	key ready failures=-1 "a"
	key ready failures=99999999999999999999 "a"
	key ready age=300y "a"
	key ready due=1s "a"
	key delayed "a"
	key idle "a"
	key ready reason="a
	key ready =1 "a"
	attr max-keys 5
	queue ../a/
	queue a b
	paused gets never
	nonsense
	key ready,parked "parked"
	END
	for ((n = 1; n <= 20; n++)); do
		reports 1 "line 5: " wq restore "$dir/t.$n"
	done
	reports 1 "line 5: the kernel refuses it" wq restore "$dir/t.21"
	is "queues" "" "$(wq ls | grep "^$q" || true)"
}

test_restore_of_a_queue_that_exists_fails_or_merges_as_adds_do() {
	succeeds wq create $q
	succeeds wq add $q a b
	succeeds wq add --after 1h $q c
	status 0 wq save -o "$dir/s" $q
	reports 1 "exists; add the keys to it with --merge" wq restore "$dir/s"
	succeeds wq cancel $q a >/dev/null
	status 0 wq restore --merge "$dir/s"
	is "ready, delayed, keys" "2 1 3" "$(stats ready delayed keys)"
	is "paused" "no" "$(stats gets_paused)"
}

test_save_that_is_killed_leaves_no_pause_and_the_old_file() {
	local i pid
	succeeds wq create -n 200000 $q
	seq 20000 | succeeds wq add $q
	echo old >"$dir/s"
	for i in 0 0.02 0.05 0.1; do
		# a function would be a shell of its own, whose death ends no save
		"$WQCTL" save -o "$dir/s" $q &
		pid=$!
		nap $i
		kill -9 $pid 2>/dev/null
		wait $pid 2>/dev/null
		[ "$(head -c 3 "$dir/s")" = old ] || tail -n 1 "$dir/s" | grep -q '^end 20' ||
			fail "a part of a snapshot"
	done
	eventually add_succeeds
	rm -f "$dir"/s*
	SHIM_KILL=1 with_shim kill save -o "$dir/s" $q 2>/dev/null
	is "files" "" "$(ls -A "$dir")"
	eventually add_succeeds
	# a signal that can be handled ends the pause, too
	for i in 0 0.05 0.2; do
		"$WQCTL" save -o "$dir/s" $q 2>/dev/null &
		pid=$!
		nap $i
		kill $pid 2>/dev/null
		wait $pid
		among "status" 0 143 $?
		succeeds wq add $q more
		has_no "files" .tmp "$(ls -A "$dir")"
	done
	status 0 wq save -o "$dir/s" $q
	is "pauses" "0" "$(wq ls | grep -c "^$q.*paused")"
}
add_succeeds() { wq add $q more 2>/dev/null; }

test_restore_that_is_killed_can_be_merged() {
	local i pid
	succeeds wq create -n 200000 $q
	seq 10000 | succeeds wq add $q
	status 0 wq save -o "$dir/s" $q
	for i in 0.03 0.1 0.2; do
		wq unlink $q 2>/dev/null
		"$WQCTL" restore "$dir/s" &
		pid=$!
		nap $i
		kill -9 $pid 2>/dev/null
		wait $pid 2>/dev/null
		status 0 wq restore --merge "$dir/s"
		is "ready" 10000 "$(stats ready)"
	done
}

test_save_to_a_full_disk_keeps_the_old_file() {
	succeeds wq create $q
	seq 1000 | succeeds wq add $q
	mkdir "$dir/full"
	succeeds mount -t tmpfs -o size=8k,nr_inodes=9 tmpfs "$dir/full"
	echo old >"$dir/full/s"
	reports 1 "No space left" wq save -o "$dir/full/s" $q
	is "file, files" "old s" "$(<"$dir/full/s") $(ls -A "$dir/full")"
	status 1 full wq save $q
	is "ready, a pause" "1000 0" "$(stats ready) $(wq ls | grep -c "^$q.*paused")"
	reports 1 "it is not a regular file" wq save -o /dev/null $q
}

test_save_keeps_a_pause_that_was_there() {
	succeeds wq create $q
	succeeds wq pause --gets $q
	succeeds wq pause --adds --for 1h $q
	status 0 wq save -o "$dir/s" $q
	has "snapshot" "paused gets forever" "$(<"$dir/s")"
	is "gets_resume_ns" - "$(stats gets_resume_ns)"
	among "adds_resume_ns" 3000000000000 3600000000000 "$(stats adds_resume_ns)"
}

# ---- reload

# fake_kmod BEFORE-UNLOAD AFTER-LOAD: modprobe and modinfo for wqctl reload, which run these
# commands when the queues have no names, and when the new module is loaded.
fake_kmod() {
	mkdir "$dir/bin"
	cat >"$dir/bin/modprobe" <<-END
		#!/bin/bash
		as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$WQCTL" "\$@"; }
		if [ \$1 = -r ]; then
			[ "\${*: -1}" = wq ] || exit 0
			$1
			exec busybox rmmod wq
		fi
		busybox insmod "$WQ_KO" "\${@:2}" || exit
		chmod 666 /dev/wq	# as by a rule of udev
		$2
		exit 0
	END
	printf '#!/bin/sh\necho "$2"\n' >"$dir/bin/modinfo"
	chmod +x "$dir/bin"/*
}

reload() { PATH=$dir/bin:$PATH "$WQCTL" reload --force "$@"; }

# A user takes the name of the queue.
steal="as_nobody create $q 2>>$top/stolen && echo stolen >>$top/stolen"

test_reload_lets_no_user_take_the_name_of_a_queue() {
	queue -m 640 -n 5
	wq add $q a b
	device_for_all
	fake_kmod "$steal" "$steal"
	status 0 reload
	is "keys" "a b" "$(wq get -n 9 $q | words)"
	is "uid, mode, max_keys" "0 0640 5" "$(stats uid mode max_keys)"
	has_no "what the user did" stolen "$(<"$top/stolen")"
	is "attempts" 2 "$(grep -c "can't create the queue" "$top/stolen")"
	exists_no /var/lib/wq/reload.wq
	status 0 as_nobody create $q.new
}

# As if the kernel had loaded the module for a mount of the user.
test_reload_gives_no_keys_to_a_queue_of_another_owner_or_mode() {
	queue
	wq create -m 640 $q.b
	wq create $q.c
	wq add $q a
	wq add $q.b b
	wq add $q.c c
	fake_kmod : "echo N >/sys/module/wq/parameters/closed
		$steal
		'$WQCTL' create -m 604 $q.b"
	reports 1 "the queue '$q' exists and belongs to user" reload
	prints "the queue '$q.b' exists with group 0 and mode 0604, not group 0 and mode 0640"
	prints "wqctl restore --merge /var/lib/wq/reload.wq"
	has "what the user did" stolen "$(<"$top/stolen")"
	is "keys of the user's queue" 0 "$(stats keys)"
	is "keys of the queue with another mode" 0 "$(q=$q.b stats keys)"
	is "keys of another queue" c "$(wq get $q.c)"
	has "the file" '"a"' "$(</var/lib/wq/reload.wq)"
	is "keys in the file of queues that were restored" "" "$(grep '"c"' /var/lib/wq/reload.wq)"
	reports 1 "an earlier reload was interrupted" reload
	status 0 as_nobody create $q.new
}

test_reload_reports_that_its_file_can_not_be_removed() {
	local file=/var/lib/wq/reload.wq
	queue
	wq add $q key
	fake_kmod : "mount --bind $file $file"
	status 1 reload
	umount $file
	prints "all queues are restored; do not restore them again, and remove the file"
	is key key "$(wq get $q)"
	rm $file
}

test_reload_refuses_to_run_while_keys_are_in_the_file_of_an_earlier_one() {
	local file=/var/lib/wq/reload-added.wq
	queue
	fake_kmod : :
	mkdir -p /var/lib/wq
	: >$file
	reports 1 "an earlier reload has left keys in a file" reload
	prints "wqctl restore --merge $file && rm $file"
	exists $file
}

test_reload_leaves_names_to_root_while_queues_are_missing() {
	local file=/var/lib/wq/reload.wq closed=/sys/module/wq/parameters/closed
	queue
	wq add $q key
	fake_kmod : "sed -i s/key/kez/ $file"
	reports 1 "only root can create queues; then: wqctl restore --merge $file && rm $file && echo N >$closed" reload
	reports 1 "can't create the queue" as_nobody create $q
	sed -i s/kez/key/ $file
	status 0 wq restore --merge $file
	echo N >$closed
	is key key "$(wq get $q)"
	status 0 as_nobody create $q.new
}

test_reload_keeps_the_parameters_and_the_options_of_the_mount() {
	local parameters=/sys/module/wq/parameters keys waits
	keys=$(<$parameters/user_keys)
	waits=$(<$parameters/user_waits)
	queue
	fake_kmod : "echo old >$dir/loaded; cat $parameters/user_keys >>$dir/loaded"
	echo $((keys + 1)) >$parameters/user_keys
	succeeds mount -o remount,uid=54301,gid=54401,mode=1755,queues=77 /dev/wqueue
	status 0 reload
	is "standard error" "" "$(grep -v "replaced the module" "$err")"
	is "user_keys of the new module at its load" "old $keys" "$(lines "$dir/loaded")"
	is "user_keys, user_waits" "$((keys + 1)) $waits" \
		"$(<$parameters/user_keys) $(<$parameters/user_waits)"
	is "closed" N "$(<$parameters/closed)"
	is "owner, group, mode" "54301 54401 1755" "$(stat -c '%u %g %a' /dev/wqueue)"
	has "options" ",uid=54301,gid=54401,queues=77 " "$(</proc/mounts)"
	echo $keys >$parameters/user_keys
}

test_reload_raises_the_limit_of_open_files_or_names_it() {
	local i
	for i in {1..12}; do
		queue
		wq add $q key$i
		q=wqctl.$$.$i
	done
	q=wqctl.$$
	fake_kmod : :
	reports 1 "reload opens a file for each queue, and the limit of open files is 12; raise it" \
		env "PATH=$dir/bin:$PATH" prlimit --nofile=12:12 "$WQCTL" reload --force
	is "keys of the first and the last queue" "1 1" "$(stats keys) $(q=$q.11 stats keys)"
	status 0 env "PATH=$dir/bin:$PATH" prlimit --nofile=12:4096 "$WQCTL" reload --force
	is "keys of the first and the last queue" "key1 key12" "$(wq get $q) $(wq get $q.11)"
}

test_reload_of_a_queue_whose_sort_takes_longer_than_a_pause_renews_it() {
	queue
	# some 11,000 comparisons
	seq 2000 | succeeds wq add $q
	fake_kmod : :
	PATH=$dir/bin:$PATH status 0 with_shim sorting reload --force
	is keys 2000 "$(stats keys)"
}

# paused: how many queues of the test are
paused() { wq ls | grep -c "^$q.*paused"; }

# reloads_with FAULT ARGUMENT...: with the fault, and what reload has to do is in $err
reloads_with() { PATH=$dir/bin:$PATH with_shim $1 reload "${@:2}"; }

test_reload_whose_disk_takes_longer_than_a_pause_replaces_the_module() {
	queue
	wq add $q a b
	fake_kmod : :
	status 0 reloads_with disk --force
	is keys "a b" "$(wq get -n 9 $q | words)"
	exists_no /var/lib/wq/reload.wq
}

test_reload_that_can_not_sync_its_directory_leaves_no_file() {
	queue
	wq add $q a b
	fake_kmod : :
	status 1 reloads_with dirs --force
	prints "may be the old file after a crash"
	exists_no /var/lib/wq/reload.wq
	is "pauses, keys" "0 2" "$(paused) $(stats keys)"
	status 0 reload
	is keys "a b" "$(wq get -n 9 $q | words)"
}

# The queue has a source.  cleanup unloads its module.
with_source() {
	busybox insmod "$SOURCES/wq_fs.ko" || fail "can't load wq_fs.ko"
	succeeds wq attach $q fs:"$dir"
}

test_reload_without_force_ends_no_source() {
	queue
	wq add $q a
	fake_kmod : :
	with_source
	status 1 env "PATH=$dir/bin:$PATH" "$WQCTL" reload
	prints "the queue '$q' has a source, which a reload would end: "
	prints "detach it first, or use --force"
	is "sources, keys, pauses" "1 1 0" "$(stats sources keys) $(paused)"
	exists_no /var/lib/wq/reload.wq
}

# The reload fails, as wq_fs stays loaded.
test_reload_with_force_names_the_sources_that_it_ends() {
	queue
	fake_kmod : :
	with_source
	status 1 reload
	prints "the queue '$q' has a source, which the reload will end: "
	is sources 0 "$(stats sources)"
}

# interfered FAULT MESSAGE: the reload fails, and $q.x and the queues before and behind it have
# all of their keys.
interfered() {
	local n
	for n in a x y; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n $n 1
		[ $1 != taken ] || succeeds wq shutdown $q.$n
	done
	fake_kmod : :
	SHIM_QUEUE=$q.y status 1 reloads_with $1 --force
	prints "$2"
	has_no "messages" "was not added" "$(<"$err")"
	exists_no /var/lib/wq/reload.wq
	is closed N "$(</sys/module/wq/parameters/closed)"
	for n in a y; do
		is "keys of $q.$n" "1 $n" "$(wq get -n 9 $q.$n | sort | words)"
	done
}

test_reload_loses_no_key_that_is_added_after_the_save() {
	interfered added "the pause of the queue '$q.x' ended early"
	is keys "1 late x" "$(wq get -n 9 $q.x | sort | words)"
}

# The queue was paused for ever before, and is resumed.
test_reload_loses_no_key_of_a_queue_that_was_paused_for_ever() {
	succeeds wq create $q.x
	succeeds wq add $q.x x 1
	succeeds wq pause $q.x
	fake_kmod : :
	status 1 reloads_with added --force
	succeeds wq resume $q.x
	is keys "1 late x" "$(wq get -n 9 $q.x | sort | words)"
}

test_reload_loses_no_key_that_is_added_right_before_the_unlink() {
	interfered last "the pause of the queue '$q.x' ended early"
	is keys "1 late x" "$(wq get -n 9 $q.x | sort | words)"
}

test_reload_comes_back_if_a_consumer_takes_a_key_after_the_save() {
	interfered taken "can't remove the queue '$q.x': a consumer took a key after it was saved"
	is "keys" 2 "$(q=$q.x stats keys)"
}

test_reload_names_the_queue_whose_pause_ended() {
	interfered other "the pause of the queue '$q.y' ended early"
	has_no "messages" "'$q.x'" "$(<"$err")"
	is keys "1 x" "$(wq get -n 9 $q.x | sort | words)"
}

# in_use WHAT MESSAGE: a process has only WHAT of the queue, and reload names it and changes nothing
in_use() {
	local process
	queue
	wq add $q a
	fake_kmod : :
	python3 -IS - $1 /dev/wqueue/$q "$dir/ready" <<-'END' &
	import ctypes, fcntl, mmap, os, sys, time
	queue = os.open(sys.argv[2], os.O_RDWR)
	if sys.argv[1] == "wait":
	    key = ctypes.create_string_buffer(b"a", 1)
	    arg = (24).to_bytes(4, "little") + bytes(4)
	    arg += ctypes.addressof(key).to_bytes(8, "little") + (1).to_bytes(4, "little") + bytes(4)
	    fd = fcntl.ioctl(queue, 0xe808, bytearray(arg))
	else:
	    fd = fcntl.ioctl(queue, 0xe80e, bytearray((16).to_bytes(4, "little") + bytes(12)))
	if sys.argv[1] == "mapping":
	    page = mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
	    os.close(fd)
	os.close(queue)
	os.close(os.open(sys.argv[3], os.O_CREAT | os.O_WRONLY))
	time.sleep(600)
	END
	process=$!
	eventually test -e "$dir/ready"
	status 1 env "PATH=$dir/bin:$PATH" "$WQCTL" reload
	prints "process $process (python3) $2"
	prints "nothing was changed"
	kill $process
}

test_reload_names_a_process_with_a_wait() { in_use wait "has open the queue $q"; }
test_reload_names_a_process_with_the_file_of_a_map() { in_use map "has the map of a queue"; }
test_reload_names_a_process_with_a_mapping() { in_use mapping "has the map of a queue"; }

test_reload_names_what_can_hold_the_lock_of_the_state() {
	mkdir -p /var/lib/wq
	fake_kmod : :
	reports 1 "another wqctl reload, save --boot or restore --boot is at work" \
		env "PATH=$dir/bin:$PATH" flock /var/lib/wq "$WQCTL" reload --force
}

# ---- top

# in_tmux COMMAND...: runs it in a terminal of 100 x 30, after a line "before"
in_tmux() {
	printf '%q ' "$@" >"$dir/command"
	cat >"$dir/session" <<-END
	trap : INT
	echo before
	stty -a >"$dir/tty"
	. "$dir/command"
	echo "after \$?"
	stty -a >"$dir/tty-after"
	read -r _ <$gate
	END
	LC_ALL=C.UTF-8 succeeds tmux -S "$top/tmux" -f /dev/null -u new-session -d -x 132 -y 30 \
		"LC_ALL=C.UTF-8 sh '$dir/session'"
	tmux -S "$top/tmux" set -g status off
}
press() { tmux -S "$top/tmux" send-keys "$@"; }
screen() { tmux -S "$top/tmux" -u capture-pane -p; }
# shows REGEX: the screen, as a text, matches; sees REGEX: eventually
shows() { local s; s=$(screen) && [[ $s =~ $1 ]]; }
shows_no() { local s; s=$(screen) && ! [[ $s =~ $1 ]]; }
sees() { eventually_screen shows "$1"; }
sees_no() { eventually_screen shows_no "$1"; }
# sees_lines {N REGEX}...: eventually these lines match, all on one screen
shows_lines() {
	local lines
	mapfile -t lines < <(screen)
	while [ $# -gt 0 ]; do
		[[ ${lines[$1]-} =~ $2 ]] || return
		shift 2
	done
}
sees_lines() { eventually_screen shows_lines "$@"; }
eventually_screen() {
	local i
	for ((i = 0; i < 100; i++)); do
		"$@" && return
		nap 0.1
	done
	fail "expected a screen that $*, seen:" "$(screen)"
}

test_top_sorts_queues_by_any_column() {
	queue
	wq create $q.b
	exec 7<>/dev/wq
	wq bind --fd 7 $q.b
	wq add $q 1 2 3 4 5
	wq add $q.b held a b
	wq get --fd 7 >/dev/null
	wq add --after 1h $q.b c d e
	in_tmux "$WQCTL" top -d 0.2
	sees "QUEUE +ADDS/S +DONES/S +DEPTH +PROC +DELAYED +CONS +OLDEST +LONGEST +WAIT50 +WAIT99 +WORK50 +WORK99 +BLOCKED +GB_FAILED +PARKED +PAUSED"
	sees "$q +0 +0 +5 +0 +0 +0 +[0-9.]+[mu]?s +- +- +- +- +-.*$q.b +0 +0 +2 +1 +3 +1 +[0-9.]+[mu]?s +[0-9.]+[mu]?s +- +- +- +-"
	has screen "2 queues, depth 7, processing 1, delayed 3; by DEPTH" "$(screen)"
	press Right
	sees "by PROC.*$q\.b .*$q "
	press r
	sees "by PROC, reversed.*$q .*$q\.b "
	press r Left Left Left Left
	sees "by QUEUE.*$q .*$q\.b "
	press Left
	sees "by PAUSED"
	press Left
	sees "by PARKED"
	press Left
	sees "by GB_FAILED"
	wq create $q.c
	sees "3 queues.*$q\.c "
	wq unlink $q.c
	sees "2 queues"
	sees_no "$q\.c"
	press q
	sees "^before"$'\n'"after 0"
	eventually file_has "$dir/tty-after" 1
	is "terminal's settings" "$(<"$dir/tty")" "$(<"$dir/tty-after")"
}

test_top_shows_rates_of_the_last_interval() {
	queue
	(
		while :; do
			wq add $q a b c
			wq get -n 3 $q
		done
	) >/dev/null 2>&1 &
	in_tmux "$WQCTL" top -d 0.5
	sees "$q +[1-9][0-9.]* +[1-9][0-9.]* +[0-9]+ +[0-9]+ +0 +[0-9]+ +[^ ]+ +[^ ]+ +[0-9.]+[mun]?s +[0-9.]+[mun]?s +[0-9.]+[mun]?s +[0-9.]+[mun]?s"
	kill $!
	sees "$q +0 +0 +[0-9]+ +0 +0 +0 +[^ ]+ +- +- +- +- +- +0"
}

test_top_enter_shows_the_keys_of_a_queue() {
	queue
	wq create --lease 30s $q.b
	local pid run
	wq add $q held
	hold_key
	wq add $q ready
	wq add --after 2h $q later
	in_tmux "$WQCTL" top -d 0.2
	sees "by DEPTH.*$q .*$q\.b "
	press Enter
	sees "STATE +AGE +DUE +FAILURES +GIVEN_BACK +HOLDER +KEY"$'\n'"processing +[0-9.]+[mu]?s +- +0 +0 +$pid\(wqctl\) +held *"$'\n'"ready +[0-9.]+[mu]?s +- +0 +0 +- +ready *"$'\n'"delayed +- +1h59m +0 +0 +- +later"
	wq add $q more
	sees "ready +[0-9.]+[mu]?s +- +0 +0 +- +more"
	wq cancel $q later >/dev/null
	sees_no later
	press q
	sees "$q .*$q\.b "
	press Down Enter
	sees "QUEUE.*$q\.b .*STATE.*KEY  lease 30.0s, 0 expired"
	wq unlink $q.b
	sees "the queue $q\.b is gone"
	press Escape
	sees "by DEPTH"
	press Escape
	sees "after 0"
	let_go
}

test_top_shows_ready_keys_by_priority_and_by_group() {
	queue --order priority
	wq add --priority 31 $q a
	wq add --priority 31 $q b
	wq add --priority -32 $q c
	wq create --order groups:/:1 $q.g
	wq add $q.g a/1 a/2 a/3 b/1 b/2 $'c\n/1' "$(printf 'l%.0s' {1..40})/1"
	status 0 wq top -b -d 0.1 -n 1
	matches blocked "$q\.g .* 3 +0 +0 +-"$'\n' "$(<"$out")"
	status 0 wq top -b -d 0.1 -n 1 $q
	matches levels $'\n'"ready by priority: 31:2 -32:1"$'\n'"STATE +AGE +DUE +FAILURES +GIVEN_BACK PRIORITY +HOLDER +KEY"$'\n' "$(<"$out")"
	matches keys $'\n'"ready +[0-9.]+[mu]?s +- +0 +0 +-32 +-  c" "$(<"$out")"
	wq create --order priority $q.e
	status 0 wq top -b -d 0.1 -n 1 $q.e
	matches "no key" $'\n'"ready by priority: none"$'\n'"STATE " "$(<"$out")"
	# a key that was given back is ready, and at no level
	wq add $q.e back
	exec 8<>/dev/wq
	wq bind --fd 8 $q.e
	wq get --fd 8 >/dev/null
	exec 8>&-
	status 0 wq top -b -d 0.1 -n 1 $q.e
	matches "given back" $'\n'"ready by priority: none"$'\n'"STATE .* back" "$(<"$out")"
	status 0 wq top -b -d 0.1 -n 1 $q.g
	matches groups $'\n'"ready by group \(4\):  a/ 3 \(2 blocked\)  b/ 2 \(1 blocked\)  c.n/ 1  l{30}~ 1"$'\n'"STATE " "$(<"$out")"
	wq create --order groups:/ $q.m
	seq -f 'g/%g' 3000 | wq add $q.m
	status 0 wq top -b -d 0.1 -n 1 $q.m
	matches "the first keys" $'\n'"ready by group \(1\), of the keys below:  g/ 2048"$'\n'"STATE .*\(2048 of 3000\)" "$(<"$out")"
}

test_top_escapes_hostile_keys() {
	queue
	local i line text
	add_hostile
	in_tmux "$WQCTL" top -d 0.2 $q
	sees 'new\\nline'
	text=$(screen)
	matches screen '  "quoted. \\\\' "$text"
	has screen '  \377\376' "$text"
	has screen '  tab\tand\001\033[2J\033]0;title\a' "$text"
	has screen $'  wide \346\274\242\345\255\227' "$text"
	has screen '  \302\2332J' "$text"
	# each key takes a line, and the footer is the last line
	mapfile -t line < <(screen)
	for ((i = 4; i < 4 + ${#hostile[@]} + 2; i++)); do
		matches "line $i" "^ready  " "${line[i]}"
	done
	matches "line 29" "^q back" "${line[29]}"
	press q
	sees "^before"$'\n'"after 0"
}

test_top_fits_a_terminal_of_any_size() {
	queue
	local size
	wq add $q {1..40}
	in_tmux "$WQCTL" top -d 0.2
	sees "$q "
	for size in "12 4" "1 1" "200 60"; do
		tmux -S "$top/tmux" resize-window -x ${size% *} -y ${size#* }
		nap 0.2
		press Enter Down NPage
		nap 0.2
		press Up q
	done
	sees "by DEPTH.*$q "
	tmux -S "$top/tmux" resize-window -x 97 -y 24
	sees "WORK99"
	tmux -S "$top/tmux" resize-window -x 60 -y 10
	sees_no "WORK99"
	sees_lines 9 "^q quit" 2 "^${q:0:10}" 1 '[A-Z] >$'
	press Enter
	sees "STATE.*ready"
	press NPage NPage NPage NPage NPage NPage NPage NPage
	sees_lines 9 "^q back" 8 "^ready "
	press q q
	sees "after 0"
}

test_top_restores_the_terminal_after_ctrl_c() {
	queue
	in_tmux "$WQCTL" top -d 0.2
	sees "$q "
	press C-c
	sees "^before"$'\n'"after "
	eventually file_has "$dir/tty-after" 1
	is "terminal's settings" "$(<"$dir/tty")" "$(<"$dir/tty-after")"
}

test_top_batch_prints_frames_without_a_terminal() {
	queue
	reports 1 "top needs a terminal" wq top
	reports 1 "there is no queue of that name" wq top --batch no.such
	status 2 wq top -d 0 $q
	wq add $q a b
	status 0 wq top --batch -d 0.1 -n 2
	is "frames" 2 "$(grep -Ec "^$q +0 +0 +2 +0 +0 +0 +[0-9.]+[mu]?s +- +- +- +- +- +0 +0 +0 +-$" "$out")"
	status 0 wq top -b -d 0.1 -n 1 $q
	is keys 2 "$(grep -Ec '^ready .*  [ab]$' "$out")"
}

test_stat_and_ls_fail_if_memory_is_short() {
	queue
	reports 1 "not enough memory" with_shim json stat $q
	is "output of stat" "" "$(<"$out")"
	reports 1 "not enough memory" with_shim json stat --json $q
	has_no "output of stat --json" '"' "$(<"$out")"
	reports 1 "not enough memory" with_shim json info
	reports 1 "not enough memory" with_shim json ls --json
	status 0 wq stat $q
}

test_top_takes_the_path_of_a_queue() {
	local path
	queue
	wq add $q a b
	# The second path is longer than any name.
	for path in /dev/wqueue/$q "/dev/wqueue/$(printf './%.0s' {1..40})$q"; do
		status 0 wq top -b -d 0.1 -n 2 "$path"
		has_no "frames of $path" "is gone" "$(<"$out")"
		is "statistics of $path" 2 "$(grep -Ec "^$q +0 +0 +2 " "$out")"
		is "keys of $path" 4 "$(grep -Ec '^ready .*  [ab]$' "$out")"
	done
}

# ---- pause, resume

test_pause_refuses_adds_and_gets_until_resume() {
	queue
	wq add $q a
	status 0 wq pause $q
	is "paused" "yes yes" "$(stats gets_paused adds_paused)"
	status 3 wq get $q
	for key in a b; do
		status 1 wq add $q $key
		prints "adds are paused; the queue's owner ends that by: wqctl resume $q"
	done
	status 0 wq resume --gets $q
	is "paused" "no yes" "$(stats gets_paused adds_paused)"
	is key a "$(wq get $q)"
	status 1 wq add $q b
	status 0 wq resume $q
	status 0 wq resume $q
	is "paused" "no no" "$(stats gets_paused adds_paused)"
	status 0 wq add $q b
	is key b "$(wq get $q)"
}

test_pause_changes_only_what_it_names() {
	queue
	status 0 wq pause --gets $q
	status 0 wq add $q a
	status 3 wq get $q
	status 0 wq pause --adds $q
	is "paused" "yes yes" "$(stats gets_paused adds_paused)"
	status 0 wq resume --adds $q
	status 0 wq add $q b
	is "paused" "yes no" "$(stats gets_paused adds_paused)"
	consumer 7
	status 0 wq resume --fd 7
	is keys "a b" "$(wq get -n 2 $q | words)"
}

test_pause_for_a_time_ends_by_itself() {
	queue
	status 0 wq pause --adds --for 1h $q
	among adds_resume_ns 1 3600000000000 "$(stats adds_resume_ns)"
	is gets_resume_ns - "$(stats gets_resume_ns)"
	status 0 wq pause --gets --adds --for 10ms $q
	eventually "$WQCTL" add $q a 2>/dev/null
	is key a "$(wq get --wait $q)"
	is "paused" "no no" "$(stats gets_paused adds_paused)"
	reports 2 "--for: '0' is too short" wq pause --for 0 $q
}

test_get_reports_that_gets_are_paused() {
	queue
	wq pause --gets $q
	status 3 wq get -t 10ms $q
	prints "the get waits: gets of the queue '$q' are paused; the queue's owner ends that by: wqctl resume $q"
	status 0 wq shutdown $q
	status 0 wq run $q true
}

test_pause_is_shown_by_ls_metrics_and_top() {
	queue
	wq pause --gets $q
	wq ls >"$out"
	matches ls $'\n'"$q +root +root +0600 +gets-paused +0 +0 +0 +0 +0 +0 +-("$'\n'"|$)" "$(<"$out")"
	wq pause $q
	wq ls >"$out"
	matches ls $'\n'"$q +root +root +0600 +paused +0 +0 +0 +0 +0 +0 +-("$'\n'"|$)" "$(<"$out")"
	wq resume --gets $q
	wq ls >"$out"
	matches ls $'\n'"$q +root +root +0600 +adds-paused +0 +0 +0 +0 +0 +0 +-("$'\n'"|$)" "$(<"$out")"
	status 0 wq ls --json
	holds '.[] | select(.name == "'$q'") | [.gets_paused, .adds_paused] == [false, true]'
	status 0 wq stat --json $q
	holds '[.gets_paused, .gets_resume_ns, .adds_paused, .adds_resume_ns] == [false, null, true, null]'
	is metrics "wq_gets_paused{name=\"$q\"} 0 wq_adds_paused{name=\"$q\"} 1" \
		"$(wq metrics $q | grep '^wq_.*_paused' | words)"
	status 0 wq top -b -d 0.1 -n 1 $q
	matches top "1 queue, depth 0, processing 0, delayed 0, 1 paused; by DEPTH" "$(<"$out")"
	matches top "$q .* adds"$'\n' "$(<"$out")"
}

test_wait_exits_with_the_end_of_the_run() {
	queue
	reports 3 "no run is pending or in progress" wq wait $q a
	wq add $q a b c
	reports 6 "the run has not ended yet" wq wait -t 0 $q a
	status 6 wq wait -t 5ms $q a
	wq wait $q a &
	eventually stat_is waiters 1
	is key a "$(wq get $q)"
	wait $! || fail "wait: status $?"
	consumer 7
	is key b "$(wq get --fd 7)"
	status 1 wq wait --fd 7 -t 1ms b
	(status 1 wq wait $q b && prints "the key 'b': the run failed") &
	eventually stat_is waiters 1
	wq done --retry --fd 7 b
	wait $! || fail "wait of a run that fails: status $?"
	(status 5 wq wait $q c && prints "the key 'c': the run was canceled") &
	eventually stat_is waiters 1
	wq cancel $q c
	wait $! || fail "wait of a run that is canceled: status $?"
}

# A failure counts most, else the first that is not a success, in the order of the keys.
test_wait_of_several_keys_exits_with_a_failure_or_the_first_other_end() {
	local got
	queue
	consumer 7
	wq add $q mine failed late
	is key mine "$(wq get --fd 7)"	# a wait for it by 7 is a failure
	status 3 wq wait -t 0 $q none late
	status 6 wq wait -t 0 $q late none
	status 3 wq wait -t 0 $q none none
	status 1 wq wait --fd 7 -t 0 none mine
	status 1 wq wait --fd 7 -t 0 mine late none
	status 1 wq wait --fd 7 -t 0 late mine
	is key failed "$(wq get --fd 7)"
	wq wait $q none failed 2>"$err" &
	eventually stat_is waiters 1
	wq done --retry --fd 7 failed
	got=0
	wait $! || got=$?
	is "none, failed" 1 $got
	wq wait $q mine none 2>"$err" &
	eventually stat_is waiters 1
	wq done --fd 7 mine
	got=0
	wait $! || got=$?
	is "done, none" 3 $got
	is key late "$(wq get --fd 7)"
	wq wait $q none late 2>"$err" &
	eventually stat_is waiters 1
	wq done --fd 7 late
	got=0
	wait $! || got=$?
	is "none, done" 3 $got
}

test_add_wait_exits_with_the_end_of_its_run() {
	queue
	wq run $q -- sh -c '[ "$1" != bad ]' sh {} &
	status 0 wq add --wait $q good other
	reports 1 "the key 'bad': the run failed" wq add --wait $q bad
	status 1 wq add --wait $q good bad
	status 2 wq add --wait $q </dev/null
	prints "--wait needs a KEY"
	reports 2 "--timeout needs --wait" wq add -t 1s $q a
	reports 2 "can't be combined with --after" wq add --wait --after 1s $q a
	status 1 wq add --wait --priority 1 $q a
	prints "the queue '$q' was created without priorities"
	wq pause --gets $q
	status 6 wq add --wait -t 5ms $q good
}

test_disable_refuses_adds_until_enable() {
	queue
	wq add $q a
	status 0 wq disable $q a b
	is states "ready idle" "$(words <"$out")"
	reports 1 "a key is disabled" wq add $q a
	reports 1 "the key 'a' is disabled" wq add --wait $q a
	is query disabled "$(state $q a)"
	is "disabled, keys" "2 2" "$(stats disabled keys)"
	status 0 wq ls --json $q
	holds '[.[] | .state] == [["disabled"], ["disabled"]]'
	is metrics "wq_disabled_keys{name=\"$q\"} 2 wq_waiters{name=\"$q\"} 0" \
		"$(wq metrics $q | grep -E '^wq_(disabled_keys|waiters)' | words)"
	status 0 wq enable $q a
	is states disabled "$(<"$out")"
	status 0 wq add $q a
	status 3 wq enable $q nosuch
	status 0 wq enable $q a
	is "disabled, keys" "1 2" "$(stats disabled keys)"
}

test_disable_waits_for_the_run_in_progress() {
	queue
	wq add $q a
	consumer 7
	wq get --fd 7
	reports 6 "the run has not ended yet" wq disable -t 5ms $q a
	status 0 wq disable -t 0 $q a
	is states "processing,disabled" "$(<"$out")"
	wq disable $q a >"$dir/states" &
	asleep $!
	wq done --fd 7 a
	wait $! || fail "disable: status $?"
	is query disabled "$(state $q a)"
}

test_pause_and_disable_are_for_the_owner() {
	device_for_all
	queue -m 666
	local args
	for args in "pause $q" "disable $q a"; do
		reports 1 "only the queue's owner and root may do that" as_nobody $args
	done
	is "paused, disabled" "no no 0" "$(stats gets_paused adds_paused disabled)"
	wq disable $q a >/dev/null
	wq pause $q
	for args in "resume $q" "enable $q a"; do status 1 as_nobody $args; done
	is "paused, disabled" "yes yes 1" "$(stats gets_paused adds_paused disabled)"
}

test_pause_of_a_queue_that_is_shut_down_exits_4() {
	queue
	wq add $q a
	wq pause $q
	wq shutdown $q
	is "paused" "no no" "$(stats gets_paused adds_paused)"
	reports 4 "the queue is shut down" wq pause $q
	status 0 wq resume $q
	is key a "$(wq get $q)"
}

test_run_reports_that_gets_are_paused_and_waits() {
	queue
	wq pause --gets $q
	wq add $q a b
	"$WQCTL" run --once $q -- sh -c 'echo "$1" >>'"$dir/ran" sh 2>"$err" &
	eventually printed "no command starts: gets are paused"
	gone $! && fail "run: expected to wait, seen to end"
	[ ! -e "$dir/ran" ] || fail "run: expected no run, seen one"
	wq resume $q
	wait $! || fail "run: expected 0, seen $?"
	is keys "a b" "$(sort "$dir/ran" | words)"
}

# ---- shutdown

test_shutdown_add_and_empty_get_exit_4() {
	queue
	wq add $q a
	status 0 wq shutdown $q
	status 4 wq add $q b
	is key a "$(wq get $q)"
	status 4 wq get --wait $q
}

test_shutdown_drain_waits_for_the_last_key() {
	queue
	wq add $q a
	"$WQCTL" shutdown --drain $q 2>"$err" &
	eventually stat_is draining yes
	wq shutdown $q
	wait $!
	is status 1 $?
	prints "a shutdown without --drain"
	"$WQCTL" shutdown --drain $q &
	eventually stat_is draining yes
	gone $! && fail "shutdown --drain: expected to wait, seen to end"
	wq get $q >/dev/null
	wait $!
	is status 0 $?
}

test_shutdown_drain_timeout_ends_the_wait_and_the_queue_still_drains() {
	queue
	consumer 7
	wq add $q a b
	wq get --fd 7 >/dev/null
	status 1 wq shutdown --drain --timeout 0 $q
	prints "the queue '$q' is shut down, and drains: 1 ready and 1 processing keys are left; wait again: wqctl shutdown --drain $q"
	is draining yes "$(stats draining)"
	reports 1 "1 ready and 1 processing keys are left" wq shutdown --drain -t 50ms $q
	is key b "$(wq get $q)"
	# while the queue drains, the key can come back
	status 3 wq get $q
	status 0 wq done --fd 7 a
	status 4 wq get --wait $q
	status 0 wq shutdown --drain --timeout 0 $q
	reports 2 "--timeout needs --drain" wq shutdown --timeout 1s $q
}

test_shutdown_needs_more_than_write_permission() {
	queue -m 602
	device_for_all
	wq create -m 606 $q.rw
	status 1 as_nobody shutdown $q
	prints "can't shut down the queue '$q': write permission alone does not allow it"
	is shutdown no "$(stats shutdown)"
	status 0 as_nobody shutdown $q.rw
	status 0 wq shutdown $q
}

# ---- run

test_run_waits_in_a_drain_for_a_key_that_another_consumer_holds() {
	queue
	local run drain
	consumer 7
	wq add $q k
	wq get --fd 7 >/dev/null
	# descriptor 7 is the other consumer, which these must not keep
	"$WQCTL" run -j 2 $q -- sh -c "echo {} >>$dir/ran" 2>"$err" 7>&- &
	run=$!
	eventually idle $run 2
	"$WQCTL" shutdown --drain $q 7>&- &
	drain=$!
	eventually stat_is draining yes
	nap 0.2
	gone $run && fail "run: expected to wait for the key, seen to end"
	eventually idle $run 2
	exec 7>&-
	wait $drain
	is "status of the drain" 0 $?
	wait $run
	is status 0 $?
	is "ran, given back, keys" "k 1 0" "$(lines "$dir/ran") $(stats given_back keys)"
}

test_run_of_a_killed_worker_goes_on_after_a_shutdown() {
	queue
	local run worker
	wq add $q k
	"$WQCTL" run -j 2 $q -- sh -c "echo \$PPID >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; }" 2>"$err" &
	run=$!
	eventually test -e "$dir/again"
	wq shutdown $q
	# the idle worker leaves, and the other one holds the key
	eventually has_workers $run 1
	read -r worker <"$dir/ran"
	kill -9 "$worker"
	wait $run
	is status 0 $?
	is "runs, keys" "2 0" "$(wc -l <"$dir/ran") $(stats keys)"
	prints "its key goes back to the queue"
}

test_run_processes_every_key_until_shutdown() {
	queue
	local k seen=()
	wq add $q {1..8}
	wq shutdown $q
	status 0 wq run -j 4 $q -- sh -c 'echo "$1" >>'"$dir/ran" sh
	for k in $(lines "$dir/ran"); do seen[k]+=x; done
	is keys "1 2 3 4 5 6 7 8" "${!seen[*]}"
	is runs "x x x x x x x x" "${seen[*]}"
	prints "8 runs, 0 retries, 0 given up, in "
}

test_run_replaces_braces_or_appends_the_key() {
	queue
	wq add $q k
	is out "1k 2 k+k" "$(wq run --once -q $q -- echo '1{}' 2 '{}+{}')"
	wq add $q 'two words'
	is out "<-n><two words>" "$(wq run --once -q $q printf '<%s>' -n)"
}

test_run_retries_a_failed_key() {
	queue
	wq add $q bad good
	status 0 wq run $q -- sh -c "echo {} >>$dir/ran
		[ {} = bad ] || exit 0
		[ -e $dir/again ] || { : >$dir/again; exit 7; }
		'$WQCTL' shutdown $q"
	is order "bad good bad" "$(lines "$dir/ran")"
	prints "key 'bad': exit status 7; retry 1 of 18"
	prints "3 runs, 1 retry, 0 given up, in "
	is "keys, retries" "0 1" "$(stats keys retries)"
}

# Descriptor 1 or 2 would be that of a queue, where each message is an add.
test_closed_standard_streams_get_no_queue() {
	queue
	"$WQCTL" add -v $q good 2>&-
	is keys good "$(wq ls -0 $q | tr -d '\0')"
	"$WQCTL" run --once $q -- sh -c 'echo done >&2' 2>&-
	is keys 0 "$(stats keys)"
	wq add $q k
	"$WQCTL" get $q >&- 2>/dev/null
	is "a key that was not written" k "$(wq ls -0 $q | tr -d '\0')"
	"$WQCTL" add $q <&- 2>"$err" && fail "add without standard input"
	has "standard error" "can't read keys from standard input: it is closed" "$(<"$err")"
	is keys 1 "$(stats keys)"
}

test_command_of_run_does_not_wait_for_its_own_key() {
	queue
	wq add $q k
	status 1 wq run --once --max-retries 0 $q -- sh -c '"$WQCTL" wait "$WQ_QUEUE" "$WQ_KEY"; exit $?'
	prints "wqctl run started this command for the key 'k', so a wait for its run would not end"
	wq cancel $q k >"$out"
	wq add $q k other
	status 0 wq cancel $q other
	status 1 wq run --once --max-retries 0 $q -- "$WQCTL" add --wait $q {}
	prints "a wait for its run would not end"
}

test_run_refuses_to_move_keys_to_its_own_queue() {
	queue
	reports 2 "--failed-to needs another queue" wq run --failed-to $q $q -- false
}

test_create_accepts_no_queue_that_is_shut_down() {
	queue
	status 0 wq create --accept $q
	wq shutdown $q
	status 1 wq create --accept $q
	prints "it is shut down, which is final; remove it first: wqctl unlink $q"
}

test_create_accepts_no_queue_of_another_user_than_root() {
	queue -m 666
	status 0 as_nobody create --accept $q
	status 0 wq set --owner 12 $q
	reports 1 "it belongs to uid 12, which is neither you nor root" wq create --accept $q
	status 1 as_nobody create --accept $q
	status 0 wq set --owner nobody $q
	status 0 as_nobody create --accept $q
}

test_create_names_the_directory_that_denies_it() {
	chmod 755 /dev/wqueue
	status 1 as_nobody create $q
	chmod 1777 /dev/wqueue
	prints "only some users can create queues in /dev/wqueue; see its mode (ls -ld /dev/wqueue)"
}

test_unknown_command_gets_a_suggestion() {
	reports 2 "there is no command 'creat'; did you mean 'create'?" wq creat $q
	reports 2 "did you mean 'ls'?" wq list
	reports 2 "there is no command 'xyzzy'; wqctl --help lists the commands" wq xyzzy
	status 0 wq help
	is "help" "$(wq --help)" "$(<"$out")"
	status 0 wq help add
	is "help add" "$(wq add --help)" "$(<"$out")"
}

test_run_gives_up_after_max_retries() {
	queue --limiter exponential:1ms:1ms
	local n
	for n in 0 1; do
		rm -f "$dir/ran"
		wq add $q k
		status 1 wq run --once -q --max-retries $n $q -- sh -c "echo >>$dir/ran; exit 7"
		prints "key 'k': exit status 7; given up after $n retr"
		is runs $((n + 1)) "$(wc -l <"$dir/ran")"
		is "keys, failed, parked" "1 1 1" "$(stats keys failed parked)"
	done
	wq add $q k good
	status 1 wq run --once $q -- sh -c '[ "$1" = good ] || kill -9 $$' sh
	prints "key 'k': killed by signal 9 (Killed); retry 18 of 18"
	prints "key 'k': killed by signal 9 (Killed); given up after 18 retries, and parked"
	prints "20 runs, 18 retries, 1 given up, in "
	reports 2 "not a number" wq run --max-retries -1 $q true
}

test_run_gives_up_a_key_that_kills_its_worker() {
	queue --limiter exponential:1ms:1ms
	wq add $q k
	# shellcheck disable=SC2016  # for the command
	status 1 wq run --once -q --max-retries 0 $q -- sh -c "echo >>$dir/ran"'; kill -9 $PPID'
	prints "key 'k': it ended 2 workers in a row; given up after 1 retry, and parked"
	is "runs" 2 "$(wc -l <"$dir/ran")"
	is "parked" 1 "$(stats parked)"
}

done_is() { [ "$(stats dones)" = "$1" ]; }

test_run_exits_when_its_queue_is_removed() {
	local run
	queue
	"$WQCTL" run -j 2 $q true 2>"$err" &
	run=$!
	wq add $q a
	eventually done_is 1
	wq unlink $q
	wait $run
	is status 1 $?
	prints "the queue '$q' was removed; with --follow, run goes on with a new one of that name"
	is messages 1 "$(grep -c "was removed" "$err")"
}

test_run_follows_the_name_of_its_queue() {
	local run
	queue
	"$WQCTL" run -j 2 --follow $q -- sh -c 'echo "$1" >>'"$dir/ran" sh 2>"$err" &
	run=$!
	wq add $q a
	eventually file_has "$dir/ran" 1
	wq unlink $q
	eventually printed "the queue '$q' was removed; waiting for a new one"
	queue --lease 2s
	wq add $q b
	eventually file_has "$dir/ran" 2
	prints "there is a new queue '$q'"
	wq shutdown --drain $q
	wait $run
	is status 0 $?
	is keys "a b" "$(words <"$dir/ran")"
	prints "2 runs, "
}

test_run_follow_ends_if_a_mount_keeps_the_removed_queue() {
	queue
	: >"$dir/mounted"
	mount --bind /dev/wqueue/$q "$dir/mounted"
	"$WQCTL" run --follow "$dir/mounted" -- sh -c ": >$dir/ran" 2>"$err" &
	wq add $q a
	eventually done_is 1
	wq unlink $q
	wait $!
	is status 1 $?
	prints "there can be no new queue '$dir/mounted': its file is mounted, and the mount keeps the removed queue"
	among messages 2 4 "$(wc -l <"$err")"
}

# follow_foreign QUEUE OPTION...: the queue is removed, and a user takes its name
follow_foreign() {
	local run owner
	owner=$(id -u nobody)
	"$WQCTL" run -j 2 --follow "${@:2}" $q -- sh -c 'echo "$1" >>'"$dir/ran; false" sh 2>"$err" &
	run=$!
	wq add $q a
	eventually file_has "$dir/ran" 1
	status 0 wq unlink $1
	status 0 as_nobody create $1
	status 0 as_nobody add $1 stranger
	[ $1 = $q ] || status 0 wq unlink $q
	[ $1 = $q ] || queue
	eventually printed "the new queue '$1' belongs to uid $owner, not to uid 0"
	is messages 1 "$(grep -c "belongs to uid" "$err")"
	is "keys of the user's queue" 1 "$(q=$1 stats ready)"
	status 0 wq unlink $1
	status 0 wq create $1
	wq add $q b
	eventually file_has "$dir/ran" 2
	kill $run
	wait $run
	is keys "a b" "$(words <"$dir/ran")"
}

test_run_follow_takes_no_key_of_a_queue_of_another_owner() {
	queue
	follow_foreign $q --max-retries 0
}

# wqctl reload makes all queues first, which belong to root until it fills them.
test_run_follow_waits_for_the_owner_of_a_restored_queue() {
	local run
	queue
	chown nobody /dev/wqueue/$q
	"$WQCTL" run --follow --owner nobody $q -- sh -c 'echo "$1" >>'"$dir/ran" sh 2>"$err" &
	run=$!
	wq add $q a
	eventually done_is 1
	wq unlink $q
	wq create -m 601 $q
	# a foreign queue is reported after a second
	nap 2
	chown nobody /dev/wqueue/$q
	chmod 600 /dev/wqueue/$q
	wq add $q b
	eventually done_is 1
	kill $run
	wait $run
	has_no messages "belongs to uid" "$(<"$err")"
}

test_run_takes_no_key_of_a_queue_that_a_restore_gives_to_another_owner() {
	local run
	queue -m 601
	"$WQCTL" run $q -- sh -c 'echo "$1" >>'"$dir/ran" sh 2>"$err" &
	run=$!
	eventually printed "the queue '$q' is being restored, and run waits"
	chown nobody /dev/wqueue/$q
	chmod 600 /dev/wqueue/$q
	wq add $q a
	wait $run
	is status 1 $?
	prints "the queue '$q' belongs to uid $(id -u nobody)"
	is ready 1 "$(stats ready)"
}

test_run_follow_adds_no_failed_key_to_a_queue_of_another_owner() {
	queue
	wq create $q.failed
	follow_foreign $q.failed --max-retries 0 --failed-to $q.failed
}

test_run_follow_reports_a_queue_of_another_owner_beside_that_of_failed_to() {
	queue
	wq create $q.failed
	follow_foreign $q --max-retries 0 --failed-to $q.failed
}

test_run_parks_a_key_if_the_queue_of_failed_to_was_removed() {
	local run
	queue
	wq create $q.failed
	"$WQCTL" run --max-retries 0 --failed-to $q.failed $q -- false 2>"$err" &
	run=$!
	wq add $q a
	eventually printed "given up after 0 retries, and moved"
	wq unlink $q.failed
	wq add $q b
	eventually printed "can't add the key 'b' to the queue '$q.failed': it was removed; it is parked"
	# without --follow, also if there is a new one
	wq create $q.failed
	wq add $q c
	eventually printed "can't add the key 'c'"
	kill $run
	wait $run
	is "parked, moved" "2 0" "$(stats parked) $(q=$q.failed stats keys)"
}

test_run_follow_moves_a_key_to_the_next_queue_of_failed_to() {
	local run
	queue
	wq create $q.failed
	"$WQCTL" run --follow --max-retries 0 --failed-to $q.failed $q -- false 2>"$err" &
	run=$!
	wq add $q a
	eventually printed "key 'a': exit status 1; given up after 0 retries, and moved"
	wq unlink $q.failed
	wq add $q b
	eventually printed "can't add the key 'b' to the queue '$q.failed': it was removed; it is parked"
	wq create $q.failed
	wq add $q c
	eventually printed "key 'c': exit status 1; given up after 0 retries, and moved"
	wq unlink $q.failed
	status 0 as_nobody create $q.failed
	wq add $q d
	eventually printed "can't add the key 'd' to the queue '$q.failed': the new one belongs to another user; it is parked"
	prints "the new queue '$q.failed' belongs to uid"
	is "parked, moved" "2 0" "$(stats parked) $(q=$q.failed stats keys)"
	wq unlink $q.failed
	wq create $q.failed
	wq add $q e
	eventually printed "key 'e': exit status 1; given up after 0 retries, and moved"
	is "parked, moved" "2 1" "$(stats parked) $(q=$q.failed stats keys)"
	# a second one is reported, too; status has emptied the file of messages
	wq unlink $q.failed
	status 0 as_nobody create $q.failed
	wq add $q f
	eventually printed "can't add the key 'f'"
	prints "the new queue '$q.failed' belongs to uid"
	kill $run
	wait $run
	is status 0 $?
}

test_run_follow_names_the_queue_of_failed_to_that_it_waits_for() {
	local run
	queue
	wq create $q.failed
	"$WQCTL" run --follow --max-retries 0 --failed-to $q.failed $q -- false 2>"$err" &
	run=$!
	wq add $q a
	eventually printed "and moved"
	wq unlink $q.failed
	wq unlink $q
	queue
	eventually printed "the queue '$q.failed' of --failed-to was removed; waiting for a new one"
	wq create $q.failed
	eventually printed "there is a new queue '$q.failed'"
	wq add $q b
	eventually printed "key 'b': exit status 1; given up after 0 retries, and moved"
	kill $run
	wait $run
	: >"$dir/mounted"
	mount --bind /dev/wqueue/$q.failed "$dir/mounted"
	"$WQCTL" run --follow --max-retries 0 --failed-to "$dir/mounted" $q -- false 2>"$err" &
	run=$!
	wq add $q c
	eventually printed "and moved"
	wq unlink $q.failed
	wq unlink $q
	queue
	wait $run
	is status 1 $?
	prints "there can be no new queue '$dir/mounted': its file is mounted"
}

test_run_follow_waits_for_descriptors() {
	local run worker workers
	queue
	"$WQCTL" run -j 2 --follow $q -- sh -c 'echo $PPID >>'"$dir/ran; read -r _ <$gate" 2>"$err" &
	run=$!
	wq add $q a b
	eventually file_has "$dir/ran" 2
	mapfile -t workers <"$dir/ran"
	for worker in "${workers[@]}"; do prlimit --pid "$worker" --nofile=3:1024; done
	wq unlink $q
	echo >$gate
	echo >$gate
	eventually printed "the queue '$q' was removed"
	queue
	wq add $q c
	eventually printed "can't open the queue '$q': Too many open files; trying again"
	# for the other worker
	nap 1
	for worker in "${workers[@]}"; do prlimit --pid "$worker" --nofile=1024; done
	eventually file_has "$dir/ran" 3
	echo >$gate
	eventually done_is 1
	kill $run
	wait $run
	is "status, messages" "0 1" "$? $(grep -c "Too many" "$err")"
}

test_run_touches_the_key_of_a_long_command_while_nobody_reads_standard_error() {
	queue --lease 1500ms
	local run
	mkfifo "$dir/errors"
	exec {errors}<>"$dir/errors"
	wq add $q k
	"$WQCTL" run -q --once $q -- sh -c "echo >>$dir/ran; head -c 300000 /dev/zero | tr '\0' x >&2" \
		2>"$dir/errors" {errors}>&- &
	run=$!
	nap 4
	is "runs, expired" "1 0" "$(wc -l <"$dir/ran") $(stats expired)"
	head -c 300000 <&"$errors" >/dev/null
	wait $run
	is status 0 $?
	is "runs, expired, dones" "1 0 1" "$(wc -l <"$dir/ran") $(stats expired dones)"
	exec {errors}>&-
}

test_run_parks_with_the_exit_status_and_the_last_line_of_standard_error() {
	queue --limiter exponential:1ms:1ms
	wq add $q k
	status 1 wq run --once --max-retries 0 $q -- sh -c 'printf "first\nGer\303\244t\033\n\n" >&2; exit 3'
	prints "first"
	prints "key 'k': exit status 3; given up after 0 retries, and parked"
	status 0 wq show --json $q k
	holds '.state == ["parked", "failed"] and .error == null and .reason == "exit 3: Ger\\303\\244t\\033"'
	status 0 env LC_ALL=C.UTF-8 "$WQCTL" show $q k
	has "reason" 'exit 3: Gerät\033' "$(<"$out")"
	wq add $q cut
	status 1 wq run --once --max-retries 0 $q -- sh -c \
		'printf "%055d\303\244" 0 >&2; exit 3'
	status 0 wq show --json $q cut
	holds ".reason == \"exit 3: $(printf %055d 0)\""
	# a child that is left behind does not hold up the run
	status 0 wq kick $q k
	status 1 wq run --once -q --max-retries 0 $q -- \
		sh -c 'sleep 1000 & echo $! >$0; echo late >&2; kill -15 $$' "$dir/left"
	kill "$(cat "$dir/left")"
	status 0 wq show --json $q k
	holds '.reason == "signal 15: late"'
	# without a text
	status 0 wq kick $q k
	status 1 wq run --once -q --max-retries 0 $q -- false
	status 0 wq show --json $q k
	holds '.reason == "exit 1"'
}

test_run_parks_when_the_queue_has_no_more_retries() {
	queue --limiter exponential:1ms:1ms --max-retries 2
	wq add $q k
	status 1 wq run --once $q -- sh -c 'echo full >&2; false'
	prints "retry 1 of 2"
	prints "given up after 2 retries, and parked"
	prints "3 runs, 2 retries, 1 given up"
	status 0 wq show --json $q k
	holds '.failures == 3 and .reason == "exit 1: full"'
}

test_run_moves_given_up_keys_with_failed_to() {
	queue --limiter exponential:1ms:1ms
	wq create $q.dead
	wq add $q k
	status 1 wq run --once --max-retries 1 --failed-to $q.dead $q -- false
	prints "given up after 1 retry, and moved"
	is keys 0 "$(stats keys)"
	is key k "$(wq get $q.dead)"
	# the queue's own retries do not park it
	wq set --max-retries 1 $q
	wq add $q k
	reports 1 "given up after 1 retry, and moved" wq run --once --failed-to $q.dead $q -- false
	is "keys, parked" "0 0" "$(stats keys parked_total)"
	is key k "$(wq get $q.dead)"
	wq set --max-retries 0 $q
	# a wait reports that the run failed
	"$WQCTL" run -q --max-retries 0 --failed-to $q.dead $q -- false &
	reports 1 "the key 'k': the run failed, and the key was given up" wq add --wait -t 10s $q k
	kill $!
	wait $! || true
	is key k "$(wq get $q.dead)"
	wq shutdown $q.dead
	wq add $q k
	status 1 wq run --once -q --max-retries 0 --failed-to $q.dead $q -- false
	prints "can't add the key 'k' to the queue '$q.dead'"
	is parked 1 "$(stats parked)"
	status 1 wq run --once --failed-to $q.none $q -- true
	prints "can't open the queue '$q.none' of --failed-to"
}

# ---- kick

park() { # REASON KEY...
	consumer 5
	wq add $q "${@:2}"
	wq get --fd 5 -n 9 >/dev/null
	wq done --fd 5 --give-up --reason "$1" -- "${@:2}"
	exec 5>&-
}

test_kick_makes_parked_keys_ready() {
	queue
	park 'no disk' a
	park '' b c
	is state parked,failed "$(state $q a | head -n 1)"
	status 0 wq ls --parked $q
	matches row '^ *[0-9.]+[mu]?s +1 - +a: no disk$' "$(grep ': ' "$out" | tail -n 1)"
	is rows 4 "$(wc -l <"$out")"
	status 0 wq ls --parked --json $q
	holds 'length == 3 and all(.[]; .state == ["parked", "failed"])'
	holds '[.[] | select(.reason)] | .[0].key == "a" and .[0].reason == "no disk"'
	status 0 wq ls --json
	holds '.[] | select(.name == "'$q'") | .parked == 3'
	status 0 wq top -b -d 0.1 -n 1
	matches top "$q .* 3 +-"$'\n' "$(<"$out")"$'\n'
	status 0 wq kick $q a
	is state ready "$(state $q a)"
	reports 3 "the key 'a' is not parked" wq kick $q a other
	prints "the key 'other' is not parked"
	status 0 wq kick --count 1 $q
	is kicked 1 "$(<"$out")"
	status 0 wq kick --all $q
	is kicked 1 "$(<"$out")"
	status 3 wq kick --all $q
	is "parked, kicked, parked_total" "0 3 3" "$(stats parked kicked parked_total)"
	status 2 wq kick $q
	status 2 wq kick --all $q a
	wq cancel $q a b c >/dev/null
	park '' d
	is parked 1 "$(stats parked)"
	wq shutdown $q
	status 4 wq kick $q d
	status 4 wq kick --all $q
}

test_retries_are_an_attribute() {
	wq create --max-retries 3 --max-keys 40 $q
	is "max_retries, max_parked" "3 10" "$(stats max_retries max_parked)"
	reports 1 "its max-retries is 3, not 4" wq create --max-retries 4 $q
	status 0 wq set --max-retries 0 $q
	is max_retries - "$(stats max_retries)"
	status 2 wq set --max-retries 65536 $q
	status 2 wq create --max-retries 0 $q
	status 2 wq done --fd 5 --give-up --retry k
	status 2 wq done --fd 5 --give-up --forget --reason x k
	status 2 wq done --fd 5 --reason x k
}

test_run_counts_earlier_failures() {
	queue --limiter exponential:1ms:1ms
	wq add --rate-limited $q k
	wq add --rate-limited $q k
	reports 1 "retry 3 of 3" wq run --once --max-retries 3 $q -- false
	prints "2 runs, 1 retry, 1 given up"
}

test_run_once_waits_for_retries_but_not_for_delayed_keys() {
	queue --limiter fast-slow:300ms:1ms:1
	wq add $q a b
	status 0 wq run --once $q -- true
	is keys 0 "$(stats keys)"
	wq add --after 2h $q later
	wq add $q a bad b
	status 0 wq run -j 2 --once $q -- sh -c "echo {} >>$dir/ran
		[ {} != bad ] || [ -e $dir/again ] || { : >$dir/again; exit 7; }"
	is ran "4 bad" "$(wc -l <"$dir/ran") $(tail -n 1 "$dir/ran")"
	is "left, state" "1 delayed" "$(stats keys) $(state $q later)"
}

test_run_once_does_not_wait_for_a_retained_key() {
	queue --limiter exponential:1ms:1ms
	wq add --rate-limited $q k
	consumer 7
	wq get -t 20 --fd 7 >/dev/null
	wq done --fd 7 k
	is "failed, retained" "1 1" "$(stats failed retained)"
	reports 0 "0 runs" wq run --once $q -- true
}

test_run_reports_retries_that_shutdown_dropped() {
	queue --limiter exponential:1h:1h
	wq add $q k good
	"$WQCTL" run $q -- test good = 2>"$err" &
	eventually stat_is delayed 1
	eventually stat_is dones 2
	wq shutdown $q
	wait $!
	is status 1 $?
	prints "dropped 1 key that waited for a retry, because the queue is shut down"
	prints "2 runs, 1 retry, 0 given up, 1 dropped, in "
}

test_run_sigterm_leaves_a_pending_retry() {
	queue --limiter exponential:1h:1h
	wq add $q k
	"$WQCTL" run $q -- false 2>"$err" &
	eventually stat_is delayed 1
	kill -TERM $!
	wait $!
	is status 0 $?
	is query $'delayed,failed\nfailures 1' "$(state $q k)"
}

test_run_without_memory_tries_again() {
	queue
	wq add $q bad good
	status 0 with_shim memory run --once $q -- sh -c "echo {} >>$dir/ran"
	is ran "bad good" "$(lines "$dir/ran")"
	prints "can't fork: Resource temporarily unavailable; trying again"
	prints "2 runs, 0 retries"
	is "keys, dones, given back" "0 2 0" "$(stats keys dones given_back)"
	wq add $q bad
	status 0 with_shim memory run --once $q -- sh -c "[ -e $dir/again ] || { : >$dir/again; exit 1; }"
	prints "2 runs, 1 retry"
	is "keys, dones, given back" "0 4 0" "$(stats keys dones given_back)"
}

test_run_drops_a_key_with_a_nul() {
	queue
	printf 'a\0b' | wq add $q
	has ls '  a\000b' "$(wq ls $q)"
	status 1 wq run --once $q -- touch "$dir/never"
	prints "key 'a\\000b': dropped, because an argument of a command can't have a NUL"
	is keys 0 "$(stats keys)"
	exists_no "$dir/never"
}

is_ready() { # KEY
	[[ $(state $q "$1") == ready* ]]
}

test_run_of_a_missing_command_leaves_the_key() {
	queue
	wq add $q k
	reports 1 "can't run 'no-such-command'" wq run -j 3 $q -- no-such-command
	# two of the workers may have given the key back, so that it is delayed for 5 ms
	eventually is_ready k
	wq shutdown $q
	status 1 wq run $q -- sh -c 'exit 127'
	prints "exit status 127; dropped, because the queue is shut down"
}

test_run_of_a_missing_command_ends_after_the_running_commands() {
	queue
	wq add $q k
	printf '#!/bin/sh\n: >%s\nread -r _ <%s\n' "$dir/begun" "$gate" >"$dir/job"
	chmod +x "$dir/job"
	"$WQCTL" run -j 2 -q $q -- "$dir/job" 2>"$err" &
	eventually test -e "$dir/begun"
	rm "$dir/job"
	wq add $q left
	eventually printed "can't run '$dir/job': No such file or directory"
	let_through
	wait $!
	is status 1 $?
	# two workers may have given the key back, so that it is delayed
	eventually is_ready left
}

test_run_of_a_command_that_one_key_lacks_parks_that_key() {
	queue
	printf '#!/bin/sh\n' >"$dir/good"
	chmod +x "$dir/good"
	wq add $q lacking good
	status 1 wq run --once --max-retries 0 $q -- "$dir/{}"
	prints "key 'lacking': can't run '$dir/{}': No such file or directory; given up after 0 retries"
	is "keys, parked" "1 1" "$(stats keys parked)"
	status 0 wq show --json $q lacking
	holds '.reason == "can\u0027t run it: No such file or directory"'
	# as during a deploy
	exec 8>>"$dir/good"
	wq add $q good
	"$WQCTL" run --once $q -- "$dir/good" 2>"$err" 8>&- &
	eventually printed "Text file busy; retry 1 of 18"
	exec 8>&-
	wait $!
	is "status, keys" "0 1" "$? $(stats keys)"
}

test_run_gives_a_key_back_if_it_can_not_fork_for_long() {
	queue
	wq add $q k
	# by both workers, one after the other
	status 0 with_shim fork run --once -j 2 $q -- sh -c "echo {} >>$dir/ran"
	is "ran, given back, failed" "k 0 0" "$(lines "$dir/ran") $(stats given_back failed)"
	wq add $q last
	wq shutdown $q
	status 0 with_shim fork run $q -- sh -c "echo {} >>$dir/ran"
	is "ran, dropped" "k last 0" "$(lines "$dir/ran") $(stats dropped)"
}

test_run_gives_keys_back_if_the_machine_can_not_exec() {
	local option
	for option in "" "--batch 2" "--stdin"; do
		queue
		wq add $q a b
		mkdir "$dir/once"
		# by the status of the command, a failure that is not retried
		SHIM_DIR=$dir/once status 0 \
			with_shim exec run --once --max-retries 0 $option $q -- true
		prints "can't run 'true': Resource temporarily unavailable; its keys go back to the queue, and wqctl tries again"
		exists_no "$dir/once"
		is "failed, parked, keys" "0 0 0" "$(stats failed parked keys)"
		wq unlink $q
	done
}

test_run_replaces_a_killed_worker() {
	queue
	wq add $q k
	"$WQCTL" run -j 1 $q -- sh -c "echo \$PPID >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; }" 2>"$err" &
	local run=$! worker
	eventually test -e "$dir/again"
	read -r worker <"$dir/ran"
	kill -9 "$worker"
	eventually file_has "$dir/ran" 2
	wq shutdown $q
	wait $run
	is status 0 $?
	prints "was killed by signal 9; its key goes back to the queue, a new worker starts"
	is "keys, given back" "0 1" "$(stats keys given_back)"
}

test_run_replaces_a_killed_worker_once_it_can_fork() {
	queue
	wq add $q k
	status 0 with_shim clone run --once -q $q -- sh -c \
		"[ -e $dir/again ] || { : >$dir/again; kill -9 \$PPID; read -r _ <$gate; }"
	is keys 0 "$(stats keys)"
	is "messages" 1 "$(grep -c "can't fork a worker: .*; trying again" "$err")"
}

test_run_by_root_for_the_queue_of_a_user_needs_owner() {
	local nobody command="echo \$1 >>$dir/ran"
	nobody=$(id -u nobody)
	status 0 as_nobody create $q
	status 0 as_nobody add $q k
	local queue_of_root=$q.b
	wq create -m 666 $queue_of_root
	reports 1 "the queue '$q' belongs to uid $nobody, which is neither root nor given by --owner" \
		wq run --once $q -- sh -c "$command" sh
	reports 1 "wqctl run --owner $nobody; " wq run --once --owner daemon $q -- sh -c "$command" sh
	reports 1 "the queue '$q' belongs to uid $nobody" wq run --once --failed-to $q $queue_of_root -- true
	reports 2 "--owner: 'no.such.user' is not the name or number" wq run --once --owner no.such.user $q -- true
	reports 2 "--owner: '1x' is not the name or number" wq run --once --owner 1x $q -- true
	exists_no "$dir/ran"
	is ready 1 "$(stats ready)"
	status 0 wq run --once --owner nobody --failed-to $q $queue_of_root -- true
	status 0 wq run --once --owner $nobody $q -- sh -c "$command" sh
	is keys k "$(<"$dir/ran")"
	status 0 as_nobody run --once $q -- true
	status 0 as_nobody run --once --owner nobody $queue_of_root -- true
}

# replace_foreign QUEUE OPTION...: the queue is removed, a user takes its name, and a worker is killed
replace_foreign() {
	local run worker owner
	owner=$(id -u nobody)
	rm -f "$dir/ran"
	queue
	wq create $q.failed
	wq add $q a
	"$WQCTL" run -j 1 "${@:2}" $q -- sh -c "echo \$PPID >>$dir/ran; read -r _ <$gate" 2>"$err" &
	run=$!
	eventually file_has "$dir/ran" 1
	status 0 wq unlink $1
	status 0 as_nobody create $1
	status 0 as_nobody add $1 stranger
	read -r worker <"$dir/ran"
	kill -9 "$worker"
	wait $run
	is status 1 $?
	prints "the new queue '$1' belongs to uid $owner, not to uid 0"
	is "keys of the user's queue" 1 "$(q=$1 stats ready)"
	is runs 1 "$(wc -l <"$dir/ran")"
	unlink_queues $q
}

test_run_of_a_killed_worker_takes_no_key_of_a_queue_of_another_owner() {
	replace_foreign $q
	replace_foreign $q --follow
}

test_run_of_a_killed_worker_adds_no_failed_key_to_a_queue_of_another_owner() {
	replace_foreign $q.failed --failed-to $q.failed
}

# child_of_killed_worker COMMAND...: runs the file that is appended in a process below its own
child_of_killed_worker() {
	local run worker
	rm -f "$dir"/{child,checked,twice}
	queue
	wq add $q k
	cat >"$dir/work" <<-END
	if [ ! -e $dir/child ]; then
		# a child of the command, not of the worker
		(echo \$BASHPID >$dir/child; read -r <$gate)
	fi
	# The killed child may still be exiting, but it executes nothing more.
	for ((i = 0; i < 100; i++)); do
		read -r stat </proc/\$(<$dir/child)/stat && [[ \$stat != *') '[ZX]* ]] || break
		read -rt 0.01 <&$never
	done
	[ \$i -lt 100 ] || : >$dir/twice
	: >$dir/checked
	END
	"$WQCTL" run -j 1 -q $q -- "$@" "$dir/work" 2>/dev/null &
	run=$!
	eventually file_has "$dir/child" 1
	read -r worker <"/proc/$run/task/$run/children"
	kill -9 $worker
	eventually test -e "$dir/checked"
	wq shutdown $q
	wait $run
	exists_no "$dir/twice"
	unlink_queues $q
}

test_run_after_a_killed_worker_waits_for_its_child_processes() {
	child_of_killed_worker bash
}

test_run_of_a_killed_worker_kills_the_process_groups_of_its_command() {
	child_of_killed_worker timeout 600 bash
	child_of_killed_worker bash -c 'set -m; bash "$0" & wait'
}

test_run_gives_its_command_no_descriptor_of_the_queue() {
	queue
	wq add $q k
	status 0 wq run --once -q $q -- sh -c 'cat /proc/self/fdinfo/*; : {}'
	has_no "descriptors" wq-queue "$(<"$out")"
	wq add $q k
	(ulimit -Sn 64; status 0 wq run --once -q -j 40 $q -- sh -c "ulimit -Sn >$dir/limit") || exit 1
	is "limit of open files" 64 "$(<"$dir/limit")"
}

test_run_copies_standard_error_of_a_process_that_its_command_left_behind() {
	queue
	wq add $q k
	status 0 wq run --once -q $q -- sh -c \
		"(trap '' HUP; read -r _ <$gate; echo late >&2; echo later >&2; : >$dir/survived) >/dev/null &"
	let_through
	eventually test -e "$dir/survived"
	eventually printed later
	prints late
}

test_run_ends_while_a_process_that_its_command_left_behind_fills_standard_error() {
	queue
	local run stat errors
	mkfifo "$dir/errors"
	exec {errors}<>"$dir/errors"
	wq add $q k
	"$WQCTL" run --once -q $q -- sh -c "yes >&2 & echo \$! >$dir/left; read -r _ <$gate" \
		2>"$dir/errors" {errors}>&- &
	run=$!
	eventually file_has "$dir/left" 1
	yes_waits() { read -r stat <"/proc/$(<"$dir/left")/stat" && [[ $stat = *"(yes) S "* ]]; }
	eventually yes_waits
	# a reader that is slower than the writer
	while read -rN 1024 -u $errors; do nap 0.01; done &
	let_through
	eventually stat_is dones 1
	wait $run
	is status 0 $?
	kill "$(<"$dir/left")"
}

test_run_of_a_killed_worker_does_not_wait_for_a_daemon_of_its_command() {
	queue
	local run worker
	wq add $q k
	"$WQCTL" run -j 1 $q -- bash -c "
		[ ! -e $dir/worker ] || { : >$dir/again; exit; }
		setsid sh -c 'echo \$\$ >$dir/daemon; exec sleep 1000' &
		until [ -s $dir/daemon ]; do read -rt 0.01 <&$never; done
		echo \$PPID >$dir/worker; read -r _ <$gate" 2>"$err" &
	run=$!
	eventually file_has "$dir/worker" 1
	kill -9 "$(<"$dir/worker")"
	eventually test -e "$dir/again"
	succeeds kill "$(<"$dir/daemon")"
	kill $run
	wait $run
	is status 0 $?
}

test_run_that_a_signal_stops_exits_0_unless_fail_on_park_is_given() {
	local option want=0 ended
	queue
	for option in -q --fail-on-give-up; do
		wq add $q k
		"$WQCTL" run $option --max-retries 0 $q -- sh -c "[ {} = last ] || exit 3; : >$dir/ran" \
			2>"$err" &
		wq add $q last
		eventually test -e "$dir/ran"
		kill $!
		wait $!
		ended=$?
		is "status, parked" "$want 1" "$ended $(stats parked)"
		wq cancel $q k >"$out"
		rm "$dir/ran"
		want=1
	done
	prints "2 runs, 0 retries, 1 given up"
}

test_run_whose_standard_output_ended_ends_and_parks_no_key() {
	queue
	wq add $q {1..20}
	"$WQCTL" run --max-retries 0 $q -- echo 2>"$err" | head -n 1 >"$out"
	is output 1 "$(<"$out")"
	prints "nobody reads standard output any more; run ends, and the key goes back to the queue"
	is parked 0 "$(stats parked)"
	among keys 18 19 "$(stats keys)"
}

test_run_goes_on_if_nobody_reads_standard_error() {
	queue
	local got=0 errors reader
	mkfifo "$dir/errors"
	exec {reader}<>"$dir/errors"
	exec {errors}>"$dir/errors"
	exec {reader}>&-
	wq add $q a b
	"$WQCTL" run --once $q -- sh -c "echo {} >&2; [ -e $dir/ran ] || false >$dir/ran" 2>&$errors || got=$?
	is "status, dones, given back" "0 3 0" "$got $(stats dones given_back)"
	# the command itself gets the signal
	wq add $q k
	status 1 wq run --once --max-retries 0 $q -- sh -c 'kill -PIPE $$'
	prints "killed by signal 13"
}

# on_terminal COMMAND: a shell command whose terminal is a new one, with its output in $out
on_terminal() { script -qec "$1" /dev/null </dev/null >"$out"; }

test_run_gives_its_command_the_terminal_with_tty_alone() {
	local group owner
	queue
	wq add $q k
	on_terminal "'$WQCTL' run --once --max-retries 0 $q -- sh -c 'echo >/dev/tty'"
	has "output" "given up after 0 retries" "$(<"$out")"
	wq add $q k
	on_terminal "'$WQCTL' run --once --tty $q -- sh -c 'stty -a >$dir/stty; ps -o pgid=,tpgid= -p \$\$ >$dir/ids'
		ps -o pgid=,tpgid= -p \$\$ >$dir/after"
	has "stty" speed "$(<"$dir/stty")"
	read -r group owner <"$dir/ids"
	is "the process group of the terminal" "$group" "$owner"
	read -r group owner <"$dir/after"
	is "that after run" "$group" "$owner"
	reports 2 "--tty needs -j 1" wq run --tty -j 2 $q true
}

test_run_with_tty_stops_and_goes_on_with_its_command() {
	queue
	wq add $q k
	echo "echo begun; read -r line; echo \"\$line\" >$dir/ran" >"$dir/work"
	in_tmux bash --norc -i
	press "'$WQCTL' run -q --once --tty $q -- sh $dir/work" Enter
	sees begun
	press C-z
	sees Stopped
	press "fg" Enter
	eventually stat_is processing 1
	press "a line" Enter
	eventually file_has "$dir/ran" 1
	is "line" "a line" "$(<"$dir/ran")"
	press exit Enter
}

# A process that ignores SIGTERM, and the whole session, ends by SIGKILL.
test_run_timeout_ends_a_command_and_its_session_and_fails_its_key() {
	queue --limiter exponential:1ms:1ms
	wq add $q k
	status 1 wq run --once --max-retries 1 --timeout 2s $q -- \
		sh -c 'trap "echo got TERM >&2; exit 0" TERM; setsid sleep 1001 & echo $! >$0; sleep 1000' "$dir/daemon"
	prints "key 'k': timed out after 2s; retry 1 of 1"
	prints "key 'k': timed out after 2s; given up after 1 retry, and parked"
	status 0 wq show --json $q k
	holds '.reason == "timed out: got TERM"'
	succeeds kill "$(<"$dir/daemon")"
	wq add $q k
	status 1 wq run --once --max-retries 0 --timeout 2s --kill-after 200ms $q -- \
		bash -c 'trap "" TERM; set -m; sleep 1002 & echo $! >$0; while :; do sleep 1000; done' "$dir/job"
	prints "timed out after 2s; given up"
	ended "$(<"$dir/job")" || fail "a job of the command that timed out still runs"
	# before the command has begun
	wq add $q k
	reports 1 "timed out after 1us; given up" wq run --once --max-retries 0 --timeout 1us $q -- sh -c 'sleep 1000'
	# in time
	wq add $q k
	status 0 wq run --once -q --timeout 100s $q -- true
	reports 2 "--timeout needs a time above 0" wq run --timeout 0 $q -- true
}

# ---- periodic keys

test_add_every_and_at_delay_a_key_until_it_is_due() {
	local day=86400000000000 at option
	queue
	reports 0 "1 added, 0 coalesced" wq add -v --every 1h $q backup
	reports 0 "0 added, 1 coalesced" wq add -v --every 60m $q backup
	is state delayed "$(state $q backup@every=1h)"
	among due 0 $((day / 24)) "$(wq show --json $q backup@every=1h | jq .due_ns)"
	at=$(TZ=Asia/Kolkata date -d '+12 hours' +%H:%M)
	TZ=Asia/Kolkata status 0 wq add --at $at $q report
	among due $((day / 2 - 120000000000)) $((day / 2)) "$(wq show --json $q report@at=$at | jq .due_ns)"
	printf '%s\n' a b | status 0 wq add --every 1d --at 03:00 --jitter 90s --skip-late $q
	is "keys" 2 "$(wq ls -0 $q | tr '\0' '\n' | grep -cx '[ab]@every=24h,at=03:00,jitter=90s,skip')"
	for option in --after=1s --rate-limited --wait; do
		reports 2 "--every and --at can't be combined" wq add --every 1m $option $q a
	done
	reports 2 "--jitter and --skip-late need --every or --at" wq add --jitter 1s $q a
	for option in --every=1500ms --every=1001d "--every=2d --at=03:00" --at=3:00 --at=24:00 \
		"--every=1m --jitter=1m"; do
		reports 2 "--every is a time of whole seconds from 1s to 1000d" wq add $option $q a
	done
	reports 2 "the minimum is 1s" wq add --every 0 $q a
	reports 1 "a key has 1 to 1024 bytes" wq add --every 1m $q "$(printf %01020d 0)"
	printf '%s\n' c "$(printf %01015d 0)" "$(printf %01016d 0)" d >"$dir/lines"
	reports 1 "line 3 of standard input is longer than the maximum of 1015 bytes, and is left out" \
		wq add --every 60s $q <"$dir/lines"
	is "keys of the stream" 3 "$(wq ls -0 $q | tr '\0' '\n' | grep -cE '^(c|d|0{1015})@every=1m$')"
}

test_ls_due_has_delayed_keys_in_order_with_their_local_time() {
	local at
	queue
	wq add $q ready
	wq add --after 2h $q late
	wq add --after 50m $q $'ear\nly'
	at=$(TZ=Asia/Kolkata date -d '+2 hours' '+%Y-%m-%d %H')
	TZ=Asia/Kolkata status 0 wq ls --due $q
	is head "DUE LEFT KEY" "$(words <<<"$(sed -n 1p "$out")")"
	has first '49m' "$(sed -n 2p "$out")"
	has first 'ear\nly' "$(sed -n 2p "$out")"
	matches late "^$at:..:.. \+0530 +1h59m  late$" "$(sed -n 3p "$out")"
	is "column of the head" "$(sed -n '1s/KEY//p' "$out" | wc -c)" "$(sed -n '3s/late//p' "$out" | wc -c)"
	is lines 3 "$(wc -l <"$out")"
	reports 2 "--due can't be combined" wq ls --due --json $q
	reports 2 "--due lists keys of a queue" wq ls --due
}

# In us.
uptime() { local up; read -r up _ </proc/uptime; echo $((10#${up/./} * 10000)); }

# Set the clock, by seconds since 1970, until the test ends.
set_clock() {
	[ -e "$dir/clock" ] || echo $((${EPOCHREALTIME/[.,]/} - $(uptime))) >"$dir/clock"
	date -u -s "@$1" >/dev/null
}

restore_clock() {
	local us=$(($(<"$dir/clock") + $(uptime)))
	date -u -s "@$((us / 1000000)).$(printf %06d $((us % 1000000)))" >/dev/null
}

test_run_periodic_follows_the_wall_clock_when_it_is_set() {
	local worker began ahead left
	queue
	began=$(date +%s)
	# due in 2 to 3 hours
	ahead=$((began / 3600 * 3600 + 3 * 3600))
	wq add --at "$(date -d "@$ahead" +%H:%M)" $q k
	wq add --every 1000d $q far
	"$WQCTL" run -q --periodic $q -- sh -c 'echo "$1" >>$0' "$dir/ran" {} &
	worker=$!
	# run itself, and its worker
	working() { [ "$(wq ls --json | jq -r ".[] | select(.name == \"$q\") | .consumers")" = 2 ]; }
	eventually working
	set_clock $((ahead - 1))
	eventually file_has "$dir/ran" 1
	# set back: the key is due later, and not early
	set_clock $began
	left() { wq show --json $q "k@at=$(date -d "@$ahead" +%H:%M)" | jq '.due_ns / 1e9 | round'; }
	eventually_left() { left=$(left); [ "$left" -ge $((ahead - began - 60)) ] && [ "$left" -le $((ahead - began + 60)) ]; }
	eventually eventually_left
	kill $worker
	wait $worker
	is runs k "$(words <"$dir/ran")"
}

# watches PID: it follows the clock
watches() { [[ $(ls -l "/proc/$1/fd") = *timerfd* ]]; }

# ticks PID: 10 ms each that it ran
ticks() { local stat; read -r -a stat <"/proc/$1/stat"; echo $((stat[13] + stat[14])); }

# left_at_most KEY SECONDS: the key is due by then
left_at_most() { [ "$(wq show --json $q "$1" | jq '.due_ns / 1e9 | floor')" -le "$2" ]; }

test_run_periodic_follow_waits_for_a_queue_that_is_gone_and_moves_its_keys() {
	local worker before
	queue
	"$WQCTL" run -q --follow --periodic $q -- true &
	worker=$!
	eventually watches $worker
	succeeds wq unlink $q
	set_clock $(($(date +%s) + 7200))
	before=$(ticks $worker)
	nap 2
	among "ticks in 2 s" 0 60 $(($(ticks $worker) - before))
	# so that it finds the key in the new queue
	kill -STOP $worker
	queue
	wq add --after 10h $q k@every=1h
	kill -CONT $worker
	eventually left_at_most k@every=1h 3600
	kill $worker
	wait $worker
}

test_run_periodic_reports_once_that_keys_are_not_moved() {
	local worker
	queue
	wq add --after 10h $q k@every=1h
	wq pause --adds $q
	"$WQCTL" run --periodic $q -- true 2>"$err" &
	worker=$!
	eventually printed "can't move periodic keys to their due times yet: adds are paused"
	# longer than until two more tries
	nap 2.5
	is messages 1 "$(grep -c "can't move" "$err")"
	wq resume $q
	eventually left_at_most k@every=1h 3600
	kill $worker
	wait $worker
}

test_run_touches_by_the_lease_that_the_queue_has_now() {
	local name pids=()
	one_is_done() { wq stat "$1" | grep -qx 'dones  *1'; }
	queue --lease 10m
	succeeds wq create --lease 10m $q.b
	succeeds wq set --lease 0 $q.b
	for name in $q $q.b; do
		"$WQCTL" run $name -- sh -c "[ {} = early ] || read -r _ <$gate" &
		pids+=($!)
		wq add $name early
		eventually one_is_done $name
	done
	for name in $q $q.b; do
		succeeds wq set --lease 12s $name
		wq add $name late
	done
	# The age and the rest of the lease add up to more than the lease after a touch.
	touched() { wq show --json "$1" late | jq -e '.lease_ns != null and .age_ns + .lease_ns > 13e9' >/dev/null; }
	eventually touched $q
	eventually touched $q.b
	is expired "0 0" "$(wq stat --json $q | jq .expired) $(wq stat --json $q.b | jq .expired)"
	kill "${pids[@]}"
	printf '\n\n' >$gate
	wait "${pids[@]}"
}

test_run_periodic_reports_that_it_can_not_follow_the_clock() {
	local worker
	queue
	wq add --after 10h $q k@every=1h
	SHIM=signals LD_PRELOAD=${0%/*}/shim/wqctl_shim.so \
		"$WQCTL_SHARED" run --periodic $q -- true 2>"$err" &
	worker=$!
	eventually printed "can't follow the wall clock: Too many open files"
	eventually left_at_most k@every=1h 3600
	succeeds wq add --wait $q plain
	! watches $worker || fail "expected no timer file"
	kill $worker
	wait $worker
	is messages 1 "$(grep -c "can't follow" "$err")"
}

test_run_periodic_runs_a_key_when_it_is_due_and_passes_its_name() {
	local worker
	queue
	wq add --every 1s $q 'a b'
	"$WQCTL" run -q --periodic $q -- sh -c 'echo "$1|$WQ_KEY" >>$0' "$dir/ran" {} &
	worker=$!
	eventually file_has "$dir/ran" 3
	kill $worker
	wait $worker
	is "a run" "a b|a b@every=1s" "$(head -n 1 "$dir/ran")"
	status 0 wq cancel $q 'a b@every=1s'
	wq add $q k@every=1d plain
	status 0 wq run -q --once --periodic --batch all $q -- sh -c 'printf "%s\n" "$@" >$0' "$dir/batch"
	is names "k plain" "$(sort "$dir/batch" | words)"
	reports 3 "no key 'plain'" wq show $q plain
	# two schedules, and a line about both
	wq add $q k@every=1d k@every=2d
	status 0 wq run -q --once --periodic --batch all --max-retries 0 --outcome-fd 3 $q -- \
		sh -c 'echo "done k" >&3; exit 1'
	is "delayed" 2 "$(stats delayed)"
}

# Two workers, and a command that takes longer than the period
test_run_periodic_has_one_run_at_a_time_and_one_for_all_that_it_missed() {
	local worker
	queue
	wq add --every 1s $q k
	"$WQCTL" run -q --periodic -j 2 $q -- sh -c 'echo begin >>$0; sleep 2.5; echo end >>$0' "$dir/ran" &
	worker=$!
	eventually file_has "$dir/ran" 6
	is lines "begin end begin end begin end" "$(head -n 6 "$dir/ran" | words)"
	kill $worker
	wait $worker
	status 0 wq cancel $q k@every=1s
}

test_run_periodic_key_that_fails_is_retried_and_then_waits_until_it_is_due() {
	queue --limiter exponential:1ms:1ms
	wq add $q k@every=1d
	status 1 wq run --once --periodic --max-retries 1 $q -- sh -c 'exit 3'
	prints "exit status 3; retry 1 of 1"
	prints "exit status 3; given up after 1 retry, until it is due again"
	is state delayed "$(state $q k@every=1d)"
	wq set --max-retries 2 $q
	wq add $q k@every=1d
	status 1 wq run --once --periodic $q -- sh -c 'exit 3'
	prints "exit status 3; retry 2 of 2"
	prints "exit status 3; given up after 2 retries, until it is due again"
	is state delayed "$(state $q k@every=1d)"
}

test_run_periodic_key_stays_after_a_crash_a_pause_and_not_after_a_cancel() {
	queue
	wq add $q k@every=1d
	status 0 wq run -q --once --periodic $q -- \
		sh -c '[ ! -e $0 ] || exit 0; >$0; kill -9 $PPID; sleep 1000' "$dir/crashed"
	exists "$dir/crashed"
	is "state after a crash" delayed "$(state $q k@every=1d)"
	wq add $q k@every=1d
	status 1 wq run -q --once --periodic --max-retries 0 $q -- sh -c 'kill -9 $PPID'
	prints "it ended 2 workers in a row; given up after 1 retry, until it is due again"
	is "state after two crashes" delayed "$(state $q k@every=1d)"
	wq cancel $q k@every=1d >"$out"
	wq add $q k@every=1d
	wq pause --adds $q
	status 0 wq run -q --once --periodic $q -- true
	is "state after a pause" delayed "$(state $q k@every=1d)"
	wq resume $q
	wq add $q k@every=1d
	wq pause --adds $q
	status 1 wq run -q --once --periodic --max-retries 1 $q -- false
	prints "exit status 1; given up, until it is due again"
	is "state after failures in a pause" delayed "$(state $q k@every=1d)"
	wq resume $q
	wq add $q k@every=1d
	status 0 wq run -q --once --periodic $q -- sh -c '"$0" cancel $1 k@every=1d' "$WQCTL" $q
	reports 3 "no key 'k@every=1d'" wq show $q k@every=1d
}

test_run_periodic_leaves_a_late_run_out_with_skip_late() {
	local hour
	hour=$(date -d '+12 hours' +%H)
	queue
	wq add $q k@at=$hour:00,skip k@at=$hour:00
	status 0 wq run -q --once --periodic $q -- sh -c 'echo ran >>$0' "$dir/ran"
	is runs 1 "$(wc -l <"$dir/ran")"
	is delayed 2 "$(stats delayed)"
}

# As after a boot: the time that passes before the restore counts.
test_restore_keeps_the_time_at_which_a_periodic_key_is_due() {
	local before due
	queue
	wq add $q k@every=1d
	status 0 wq run -q --once --periodic $q -- true
	wq add --after 1h $q plain
	due() { echo $(($(date +%s%N) + $(wq show --json $q "$1" | jq .due_ns))); }
	before=$(due k@every=1d)
	status 0 wq save -o "$dir/saved" $q
	nap 3
	wq unlink $q
	status 0 wq restore "$dir/saved"
	among "ns by which it is later" -1000000000 2000000000 $(($(due k@every=1d) - before))
	wq unlink $q
	# an endless delay of a user's breaks no snapshot
	queue
	wq add --after 106751d $q k@every=1h
	status 0 wq save -o "$dir/saved" $q
	status 0 wq ls --due $q
	has "the end" 2262-04-11 "$(<"$out")"
	wq unlink $q
	status 0 wq restore "$dir/saved"
	wq unlink $q
	snapshots "$dir/t" <<<'key delayed due=10h at=1s "k@every=1d"'
	status 0 wq restore "$dir/t.1"
	eventually stat_is ready 2
}

test_run_timeout_ends_a_command_whose_output_nobody_reads() {
	local worker
	mkfifo "$dir/pipe"
	exec 7<>"$dir/pipe"
	queue
	wq add $q k
	"$WQCTL" run --once -q --max-retries 0 --timeout 1s $q -- sh -c 'echo $$ >$0; exec yes >&2' "$dir/pid" 2>&7 &
	worker=$!
	eventually file_has "$dir/pid" 1
	eventually ended "$(<"$dir/pid")"
	stat_is processing 1 || fail "expected the key to be held until its output is written"
	cat <&7 >"$dir/output" &
	wait $worker
	is status 1 $?
	kill $!
	status 0 wq show --json $q k
	holds '.reason | startswith("timed out: y")'
}

test_run_reports_a_failure_to_the_journal_with_its_queue_and_key() {
	local journal=/run/systemd/journal/socket stream
	queue
	mkdir -p ${journal%/*}
	python3 -c '
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s, open(sys.argv[2], "wb") as f:
    s.bind(sys.argv[1])
    f.write(s.recv(65536))' $journal "$dir/journal" &
	eventually test -S $journal
	wq add $q $'a\nb'
	: >"$err"
	stream=$(stat -c %d:%i "$err")
	JOURNAL_STREAM=$stream "$WQCTL" run -q --once --max-retries 0 $q -- sh -c 'exit 3' 2>"$err"
	wait $!
	rm $journal
	is "standard error" "" "$(<"$err")"
	is message "PRIORITY=4 SYSLOG_IDENTIFIER=wqctl WQ_QUEUE=$q WQ_KEY=a\nb MESSAGE=key 'a\nb': exit status 3; given up after 0 retries, and parked" \
		"$(words <"$dir/journal")"
	# the standard error of another process, and no journal
	wq kick --all $q >"$out"
	JOURNAL_STREAM=1:2 reports 1 "wqctl: key 'a\nb': exit status 3" wq run -q --once --max-retries 0 $q -- sh -c 'exit 3'
	wq kick --all $q >"$out"
	JOURNAL_STREAM=$stream reports 1 "wqctl: key 'a\nb': exit status 3" \
		wq run -q --once --max-retries 0 $q -- sh -c 'exit 3'
}

# writes N: a command whose lines of standard output come in two parts
writes() {
	printf '%s\n' "printf \"\$1-a\"; read -r _ <$gate; echo; echo \"\$1-b\""
}

test_run_output_group_keeps_the_output_of_commands_apart() {
	local option run
	queue
	for option in '' --output=group; do
		wq add $q 1 2
		"$WQCTL" run -q -j 2 --once $option $q -- sh -c "echo >>$dir/began; $(writes)" sh {} >"$out" &
		run=$!
		eventually file_has "$dir/began" 2
		is "output of commands that run" "" "$(<"$out")"
		let_through
		let_through
		wait $run
		is status 0 $?
		is "lines" "1-a 1-b 2-a 2-b" "$(sort "$out" | words)"
		matches "groups" '^(.)-a .-b (.)-a .-b$' "$(lines "$out")"
		is "second line of the first group" "${BASH_REMATCH[1]}-b" "$(sed -n 2p "$out")"
		rm "$dir/began"
	done
	# standard output first, however much
	wq add $q k
	status 0 wq run -q --once --output group $q -- sh -c 'echo e >&2; seq 30000; echo e >&2'
	is "lines of output" 30000 "$(wc -l <"$out")"
	is "the last one" 30000 "$(tail -n 1 "$out")"
	is "errors" "e e" "$(lines "$err")"
	# more than is kept
	wq add $q k
	is "bytes" 20000000 "$(wq run -q --once --output group $q -- sh -c 'head -c 20000000 /dev/zero' | wc -c)"
	reports 2 "--output is either group or line" wq run --output lines $q -- true
	reports 2 "can't be combined with --output" wq run --tty --tag $q -- true
}

test_run_output_line_and_tag_write_whole_lines() {
	local run
	queue
	wq add $q 1 $'two\twords'
	"$WQCTL" run -q -j 2 --once --tag --output line $q -- sh -c "$(writes)" sh {} >"$out" &
	run=$!
	let_through
	eventually file_has "$out" 2
	let_through
	wait $run
	is status 0 $?
	is "lines" $'1\t1-a\n1\t1-b\ntwo\\twords\ttwo\twords-a\ntwo\\twords\ttwo\twords-b' "$(sort "$out")"
	# as it is without a tag; a line without an end gets one if it has a tag
	wq add $q k
	status 0 wq run -q --once --output line $q -- printf 'x\ny:%s'
	is "output" $'x\ny:k' "$(<"$out")"
	is "bytes" 5 "$(wc -c <"$out")"
	wq add $q k
	status 0 wq run -q --once --tag $q -- sh -c 'printf "x\ny"; echo e >&2'
	is "output" $'k\tx\nk\ty' "$(<"$out")"
	is "bytes" 8 "$(wc -c <"$out")"
	is "errors" $'k\te' "$(<"$err")"
	# longer than a line that is kept
	wq add $q k
	status 0 wq run -q --once --output line $q -- sh -c 'head -c 200000 /dev/zero | tr "\0" x; echo'
	is "bytes" 200001 "$(wc -c <"$out")"
}

test_run_of_a_worker_that_was_killed_while_it_wrote_lets_the_others_write() {
	local run reader
	queue
	mkfifo "$dir/reader"
	exec {reader}<>"$dir/reader"
	wq add $q big
	"$WQCTL" run -q -j 2 --output group $q -- sh -c '[ $1 = small ] || [ -e $0 ] || { echo $PPID >$0
		head -c 200000 /dev/zero | tr "\0" x; }' "$dir/worker" {} >"$dir/reader" {reader}>&- 2>"$err" &
	run=$!
	# it writes, and a pipe does not have room for all of it
	read -rN 1 -u $reader
	wq add $q small
	eventually stat_is processing 2
	kill -9 "$(<"$dir/worker")"
	cat <&$reader >/dev/null &
	eventually stat_is dones 2
	kill $run
	wait $run
	is status 0 $?
}

test_run_output_group_ends_and_gives_the_key_back_if_nobody_reads_it() {
	queue
	wq add $q {1..20}
	"$WQCTL" run -j 4 $q -- sh -c 'seq 100000' 2>"$err" | head -n 1 >"$out"
	prints "nobody reads standard output any more; run ends"
	is parked 0 "$(stats parked)"
	among keys 16 20 "$(stats keys)"
}

test_run_output_group_ends_and_gives_the_key_back_if_it_can_not_be_written() {
	local run pipe
	queue
	wq add $q k
	status 1 full "$WQCTL" run --output group $q -- echo
	prints "can't write the output of commands: No space left on device; run ends, and the key goes back to the queue"
	is "keys, parked" "1 0" "$(stats keys parked)"
	# a full pipe that another process made non-blocking
	mkfifo "$dir/pipe"
	exec {pipe}<>"$dir/pipe"
	/usr/bin/python3 -c 'import os, sys; os.set_blocking(1, False); os.execv(sys.argv[1], sys.argv[1:])' \
		"$WQCTL" run -q --once --output group $q -- sh -c 'seq 100000' >"$dir/pipe" 2>"$err" {pipe}>&- &
	run=$!
	# the pipe is full
	eventually asleep $run
	timeout 60 head -n 100000 <&$pipe >"$out"
	wait $run
	is status 0 $?
	is "lines" 100000 "$(wc -l <"$out")"
}

test_run_job_log_has_a_line_for_each_run_and_can_be_renamed() {
	queue --limiter exponential:1ms:1ms
	wq add $q $'a\tb'
	status 1 wq run --once -q --max-retries 1 --job-log "$dir/log" $q -- sh -c 'exit 3'
	mv "$dir/log" "$dir/log.1"
	# while a worker uses it
	wq add $q first second
	status 0 wq run --once -q --job-log "$dir/log" $q -- \
		sh -c '[ "$1" = first ] || mv "$0" "$0.2"' "$dir/log" {}
	is "key" first "$(cut -f 4 "$dir/log.2")"
	is "key" second "$(cut -f 4 "$dir/log")"
	rm "$dir/log"
	wq add $q k
	status 1 wq run --once -q --max-retries 0 --timeout 100ms --job-log "$dir/log" $q -- sh -c 'sleep 1000'
	wq add $q k
	status 1 wq run --once -q --max-retries 0 --job-log "$dir/log" $q -- sh -c 'kill -9 $$'
	wq add $q k
	status 0 wq run --once -q --job-log "$dir/log" $q -- true
	is "status and key" $'3\ta\\tb\n3\ta\\tb' "$(cut -f 3,4 "$dir/log.1")"
	is "status and key" $'timed out\tk\nsignal 9\tk\n0\tk' "$(cut -f 3,4 "$dir/log")"
	matches "a line" '^[0-9]{10,}\.[0-9]{3}'$'\t''[0-9]+\.[0-9]{3}'$'\t' "$(head -n 1 "$dir/log")"
	among "seconds" 0 1 $(($(date +%s) - $(head -n 1 "$dir/log.1" | cut -d. -f 1) > 100))
	reports 1 "can't write to the job log '$dir/none/log': No such file" \
		wq run --job-log "$dir/none/log" $q -- true
}

test_run_job_log_is_a_file_that_is_safe_for_root() {
	queue
	refuses() { reports 1 "can't write to the job log '$1': $2" wq run --once --job-log "$1" $q -- true; }
	mkfifo "$dir/fifo"
	refuses "$dir/fifo" "no process reads this FIFO"
	: >"$dir/file"
	ln -s file "$dir/link"
	refuses "$dir/link" "root writes to no log that is a symbolic link"
	ln "$dir/file" "$dir/second"
	refuses "$dir/file" "root writes to no file that has several hard links"
	rm "$dir/second"
	chown 1000 "$dir/file"
	refuses "$dir/file" "root writes to no log of another user"
	refuses /dev/full "No space left on device"
	status 0 wq run -q --once --job-log /dev/stderr $q -- true
	is "bytes of a file that was refused" 0 "$(wc -c <"$dir/file")"
	wq add $q k
	status 0 wq run -q --once --job-log /dev/stderr $q -- true
	matches "line" $'\t0\tk$' "$(<"$err")"
}

test_run_batch_gives_keys_to_one_command_as_xargs() {
	queue
	wq add $q a 'b c' d
	status 0 wq run --once --batch all $q -- printf '<%s>'
	is "output" "<a><b c><d>" "$(<"$out")"
	prints "3 runs, 0 retries"
	is "keys, dones" "0 3" "$(stats keys dones)"
	wq add $q 1 2 3
	status 0 wq run -q --once --batch 2 $q -- sh -c 'echo "$*; $WQ_KEY"' sh first {} '{}{}' last
	is "output" $'first 1 2 {}{} last; \nfirst 3 {}{} last; 3' "$(<"$out")"
	# more bytes than arguments can have
	wq add $q < <(seq -f "$(printf %0200d 0)%.0f" 2000)
	status 0 wq run -q --once --batch all $q -- sh -c 'echo $#' sh
	among "commands" 3 9 "$(wc -l <"$out")"
	is "keys" 2000 "$(($(paste -sd + "$out")))"
	reports 2 "--tag can't be combined with --batch" wq run --tag --batch 2 $q -- true
	reports 2 "--batch: '0' is not a number from 1 to 65536" wq run --batch 0 $q -- true
}

test_run_batch_retries_all_keys_of_a_command_that_fails() {
	queue --limiter exponential:1ms:1ms
	wq add $q a b c
	status 1 wq run --once --batch all --max-retries 0 --job-log "$dir/log" $q -- sh -c 'echo broken >&2; exit 3'
	is "parked" 3 "$(stats parked)"
	status 0 wq show --json $q b
	holds '.reason == "exit 3: broken"'
	is "log" $'3\ta\n3\tb\n3\tc' "$(cut -f 3,4 "$dir/log")"
	status 0 wq kick --all $q
	status 0 wq run --once --batch all $q -- sh -c "[ -e $dir/again ] || { : >$dir/again; exit 1; }"
	prints "key 'c': exit status 1; retry 1 of 18"
	prints "6 runs, 3 retries, 0 given up"
}

test_run_stdin_has_the_keys_in_lines_or_ended_by_nul() {
	queue
	wq add $q a 'b c'
	status 0 wq run -q --once --batch all --stdin $q -- sh -c 'cat; echo $#' sh {}
	is "output" $'a\nb c\n1' "$(<"$out")"
	printf 'a\nb\0c\0' | wq add -0 $q
	status 1 wq run --once --batch all --stdin $q -- cat
	is "output" c "$(<"$out")"
	prints "key 'a\\nb': the key has a newline, and --stdin or --outcome-fd without --null has lines; given up"
	status 0 wq kick --all $q
	status 0 wq run -q --once --stdin -0 $q -- cat
	is "output" $'a\nb;' "$(tr '\0' ';' <"$out")"
	# all of a large batch
	wq add $q < <(seq 20000)
	status 0 wq run -q --once --batch all --stdin $q -- sh -c 'sort -n | md5sum'
	is "keys" "$(seq 20000 | md5sum)" "$(<"$out")"
	reports 2 "--tty can't be combined with --stdin" wq run --tty --stdin $q -- true
	reports 2 "--null needs --stdin or --outcome-fd" wq run -0 $q -- true
}

test_run_outcome_fd_ends_each_key_as_the_command_wrote() {
	queue --limiter exponential:1ms:1ms
	wq add $q good bad 'up now' later silent
	status 1 wq run --once --batch all --max-retries 0 --job-log "$dir/log" --outcome-fd 3 $q -- sh -c '
		echo "give-up up now" >&3; echo "after 1h later" >&3; echo "done silent2" >&3; echo "retry good" >&3
		echo "done good" >&3; echo "retry bad" >&3; echo last >&2'
	prints "the command wrote 'done silent2' to descriptor 3"
	is "parked, delayed, keys" "2 1 3" "$(stats parked delayed keys)"
	status 0 wq show --json $q 'up now'
	holds '.reason == "reported as given up: last"'
	status 0 wq show --json $q bad
	holds '.reason == "reported as failed: last"'
	status 0 wq show --json $q later
	holds '.failures == 0 and .due_ns > 3500000000000'
	is "log" $'0\tgood\nreported as failed\tbad\nreported as given up\tup now\nreported for later\tlater\n0\tsilent' \
		"$(cut -f 3,4 "$dir/log")"
	wq cancel $q later bad 'up now' >/dev/null
	# a command that fails, but for what it has done
	wq add $q a b
	status 1 wq run --once --batch all --max-retries 0 --outcome-fd 3 $q -- sh -c 'echo "done a" >&3; exit 7'
	is "parked" 1 "$(stats parked)"
	status 0 wq show --json $q b
	holds '.reason == "exit 7"'
	wq cancel $q b >/dev/null
	# one key, and lines that end with NUL
	printf 'a\nb\0' | wq add -0 $q
	status 1 wq run -q --once -0 --outcome-fd 9 $q -- sh -c 'printf "give-up %s\0" "$1" >&9' sh
	is "parked" 1 "$(stats parked)"
	reports 2 "not a number from 3 to 9" wq run --outcome-fd 2 $q -- true
}

test_run_outcome_fd_reads_whole_lines_and_all_of_them() {
	queue --limiter exponential:1ms:1ms
	# a command that was killed while it wrote "done 123"
	wq add $q 12 123
	status 1 wq run --once --batch all --max-retries 0 --outcome-fd 3 $q -- \
		sh -c 'printf "done 123\ndone 12" >&3; exit 1'
	prints "the last line that the command wrote to descriptor 3 has no end, and is ignored"
	is "parked" 12 "$(wq ls -0 $q | tr -d '\0')"
	wq cancel $q 12 >/dev/null
	# lines that are empty, or have a NUL, end nothing
	wq add $q a b
	status 1 wq run --once --batch all --max-retries 0 --outcome-fd 3 $q -- \
		sh -c 'printf "\n\ndone b\0c\n\0\0\nretry a\n" >&3'
	prints "the command wrote '' to descriptor 3"
	is "parked" a "$(wq ls -0 $q | tr -d '\0')"
	wq cancel $q a >/dev/null
	wq add $q a b
	status 1 wq run -q -0 --once --batch all --max-retries 0 --outcome-fd 3 $q -- \
		sh -c 'printf "\0\0retry b\0" >&3'
	is "parked" b "$(wq ls -0 $q | tr -d '\0')"
}

test_run_outcome_fd_without_null_gives_up_a_key_with_a_newline() {
	queue
	printf 'a\ndone b\0b\0' | wq add -0 $q
	status 1 wq run --once --batch all --max-retries 0 --outcome-fd 3 $q -- \
		sh -c 'for key; do echo "retry $key" >&3; done' sh
	prints "key 'a\\ndone b': the key has a newline, and --stdin or --outcome-fd without --null has lines; given up"
	prints "key 'b': reported as failed; given up"
	is "parked" 2 "$(stats parked)"
}

test_run_gives_keys_back_whose_outcomes_it_can_not_keep() {
	local run
	queue
	# more than is kept
	wq add $q a b
	"$WQCTL" run -q --batch all --outcome-fd 3 $q -- sh -c "[ ! -e $dir/again ] || exit 0; : >$dir/again
		yes retry a | head -c 18000000 >&3; exit 0" 2>"$err" &
	run=$!
	eventually stat_is dones 4
	kill $run
	wait $run
	is status 0 $?
	prints "can't keep all that the command wrote to descriptor 3"
	is "keys, failed" "0 0" "$(stats keys failed)"
	# one key, and no pipe at first
	wq add $q k
	status 0 with_shim pipe run --once --outcome-fd 3 $q -- sh -c "echo >>$dir/ran; echo done k >&3"
	prints "can't make a pipe for --outcome-fd: Too many open files; trying again"
	is "runs" 1 "$(wc -l <"$dir/ran")"
}

test_run_batch_of_a_killed_worker_goes_back_as_a_whole() {
	queue
	local run
	wq add $q a b
	"$WQCTL" run -q --batch all $q -- sh -c "[ -e $dir/again ] || { : >$dir/again; kill -9 \$PPID; }
		echo \$* >>$dir/ran" sh 2>"$err" &
	run=$!
	eventually stat_is dones 2
	kill $run
	wait $run
	is "runs, given back" "a b 2" "$(tail -n 1 "$dir/ran") $(stats given_back)"
}

test_run_batch_touches_all_of_its_keys() {
	queue --lease 1s
	wq add $q < <(seq 300)
	status 0 wq run -q --once --batch all $q -- sh -c 'sleep 3'
	is "dones, expired" "300 0" "$(stats dones expired)"
}

test_run_batch_that_was_stopped_ends_its_command_and_gives_the_keys_back() {
	local run worker
	queue --lease 1s
	wq add $q a b
	"$WQCTL" run --batch all $q -- sh -c "echo \$* >>$dir/ran; [ -e $dir/again ] || { : >$dir/again; sleep 1000; }" sh 2>"$err" &
	run=$!
	eventually file_has "$dir/ran" 1
	worker=$(<"/proc/$run/task/$run/children")
	kill -STOP $worker
	eventually stat_is expired 2
	kill -CONT $worker
	eventually stat_is dones 2
	prints "key 'a': its lease expired"
	prints "key 'b': its lease expired"
	kill $run
	wait $run
	is "keys" 0 "$(stats keys)"
}

test_run_sigterm_finishes_the_running_command() {
	queue
	wq add $q 1 2 3
	"$WQCTL" run $q -- sh -c "echo start {} >>$dir/ran; read -r _ <$gate; echo end {} >>$dir/ran" \
		2>"$err" &
	local run=$!
	eventually file_has "$dir/ran" 1
	kill -TERM $run
	eventually printed "no more commands start"
	let_through
	wait $run
	is status 0 $?
	is ran "start 1 end 1" "$(lines "$dir/ran")"
	is left $'2\n3' "$(wq get -n 9 $q)"
	prints "1 run, 0 retries, 0 given up"
}

test_run_second_sigterm_kills_the_command() {
	queue
	wq add $q k
	"$WQCTL" run $q -- sh -c "echo >>$dir/ran; read -r _ <$gate" 2>"$err" &
	local run=$!
	eventually file_has "$dir/ran" 1
	kill -TERM $run
	eventually printed "send the signal again"
	nap 1.1
	kill -TERM $run
	wait $run
	is status 1 $?
	is key k "$(wq get -t 5 $q)"
}

test_run_that_timeout_ends_lets_its_commands_finish() {
	local run
	queue
	wq add $q k other
	timeout 2 "$WQCTL" run $q -- sh -c "echo start >>$dir/ran; read -r _ <$gate; echo end >>$dir/ran" 2>"$err" &
	run=$!
	eventually printed "no more commands start"
	# the second signal
	nap 0.5
	let_through
	wait $run
	is status 124 $?
	is ran "start end" "$(lines "$dir/ran")"
	is key other "$(wq get -n 9 $q)"
}

test_run_takes_a_signal_of_a_process_that_goes_on_sending() {
	local run i
	queue
	wq add $q k
	"$WQCTL" run $q -- sh -c "echo >>$dir/ran; read -r _ <$gate" 2>"$err" &
	run=$!
	eventually file_has "$dir/ran" 1
	for ((i = 0; i < 20; i++)); do
		kill -TERM $run
		nap 0.3
		! printed "killed the commands" || break
	done
	[ $i -lt 20 ] || let_through
	wait $run
	is status 1 $?
	prints "killed the commands; their keys are back in the queue"
}

test_run_follow_waits_for_its_queues_and_a_signal_ends_that() {
	local run
	"$WQCTL" run --follow --failed-to $q.failed --max-retries 0 $q -- false 2>"$err" &
	run=$!
	eventually printed "there is no queue '$q' yet, and run waits for it; create it: wqctl create $q"
	queue
	wq add $q k
	eventually printed "there is no queue '$q.failed' yet"
	wq create $q.failed
	added() { [ "$(wq ls -0 $q.failed | tr -d '\0')" = k ]; }
	eventually added
	kill $run
	wait $run
	is status 0 $?
	wq unlink $q
	# else the text of the first run can be seen, and the signal comes before the exec
	: >"$err"
	"$WQCTL" run --follow $q -- true 2>"$err" &
	run=$!
	eventually printed "there is no queue '$q' yet"
	kill $run
	wait $run
	is "status after a signal" 0 $?
	reports 1 "create it first: wqctl create $q" wq run $q -- true
	reports 1 "there is no queue of that name" wq run --follow --once $q -- true
}

test_run_follow_that_waits_for_its_queue_outlives_a_child_of_its_shell() {
	local run
	bash -c 'read -r _ <"$1" & exec "$2" run -q --follow "$3" -- true' sh "$gate" "$WQCTL" $q 2>"$err" &
	run=$!
	eventually printed "there is no queue '$q' yet"
	let_through
	no_child() { [ -z "$(<"/proc/$run/task/$run/children")" ]; }
	eventually no_child
	queue
	wq add $q k
	eventually stat_is dones 1
	kill $run
	wait $run
	is status 0 $?
}

test_run_and_watch_refuse_options_without_an_effect() {
	local option
	for option in --timeout=1s --job-log=log --output=line --tag; do
		reports 2 "--print can't be combined with --timeout, --job-log, --output or --tag" \
			wq watch --print $option net
	done
	reports 2 "--restart can't be combined with" wq watch --restart --job-log log net -- true
	reports 2 "--kill-after needs --timeout or --restart" wq watch --kill-after 1s net -- true
	reports 2 "--kill-after needs --timeout: " wq run --kill-after 1s $q -- true
}

# A worker without --follow is named, and one with it goes on in the module that stays loaded.
test_reload_that_fails_ends_no_worker() {
	local stays follows
	queue
	"$WQCTL" run -q $q -- sh -c "echo {} >>$dir/stays" 2>"$dir/stays.said" &
	stays=$!
	eventually idle $stays 1
	fake_kmod "exit 1" :
	status 1 env PATH="$dir/bin:$PATH" "$WQCTL" reload --quiet
	prints "has open the queue $q"
	wq add $q 1
	eventually stat_is dones 1
	kill $stays
	wait $stays
	is "status of a worker without --follow" 0 $?
	"$WQCTL" run -q --follow $q -- sh -c "echo {} >>$dir/follows" 2>"$dir/follows.said" &
	follows=$!
	eventually idle $follows 1
	wq add $q 2
	eventually file_has "$dir/follows" 1
	status 1 env PATH="$dir/bin:$PATH" "$WQCTL" reload
	prints "the queues are back in the module that was loaded"
	wq add $q 3
	eventually file_has "$dir/follows" 2
	kill $follows
	wait $follows
	is "status of a worker with --follow" 0 $?
	is "keys" "2 3" "$(lines "$dir/follows")"
	is "messages" "" "$(cat "$dir/stays.said" "$dir/follows.said")"
}

idle() { # PID N: wqctl run, process PID, and its N workers wait
	local w n=0
	for w in $(<"/proc/$1/task/$1/children"); do
		asleep "$w" && n=$((n + 1))
	done
	asleep "$1" && [ $n -eq "$2" ]
}

has_workers() { # PID N: wqctl run, process PID, has N workers
	local w
	read -ra w <"/proc/$1/task/$1/children"
	[ ${#w[@]} -eq "$2" ]
}

test_run_sigterm_ends_idle_workers_and_sighup_stays_ignored() {
	queue
	local run
	(trap '' HUP; exec "$WQCTL" run -j 8 $q -- sh -c ": >$dir/ran") 2>/dev/null &
	run=$!
	eventually idle $run 8
	kill -HUP $run
	wq add $q k
	eventually test -e "$dir/ran"
	eventually idle $run 8
	kill -TERM $run
	wait $run
	is status 0 $?
}

test_run_workers_end_after_their_killed_parent() {
	queue
	wq add $q 1 2
	"$WQCTL" run $q -- sh -c "echo {} >>$dir/ran; read -r _ <$gate; echo end >>$dir/ran" 2>/dev/null &
	local run=$!
	eventually file_has "$dir/ran" 1
	kill -9 $run
	wait $run 2>/dev/null
	let_through
	eventually file_has "$dir/ran" 2
	eventually stat_is processing 0
	is "ran, left" "1 end 2" "$(lines "$dir/ran") $(wq get -n 9 $q)"
}

test_run_never_runs_a_key_twice_at_once() {
	queue
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
			has_no "keys that run" "$key" "$busy"
			busy+=$key begun=$((begun + 1))
		else
			busy=${busy/$key/}
		fi
	done <"$dir/ran"
	among "runs" 6 36 $begun
}

test_run_that_was_stopped_ends_the_command_of_its_expired_key() {
	queue --lease 2s
	local second run worker command child
	"$WQCTL" run -q $q -- sh -c "[ {} = k ] || { : >$dir/goes-on; exit; }
		echo \$PPID \$\$ >$dir/first
		sh -c 'echo \$\$ >$dir/child; read -r _ <$gate'
		: >$dir/survived" 2>"$err" &
	run=$!
	wq add $q k
	eventually file_has "$dir/child" 1
	read -r worker command <"$dir/first"
	read -r child <"$dir/child"
	kill -STOP -- $run -"$worker"
	"$WQCTL" run --once $q -- sh -c "echo {} >>$dir/second; read -r _ <$gate" 2>"$dir/err" &
	second=$!
	eventually file_has "$dir/second" 1
	is "expired, processing" "1 1" "$(stats expired processing)"
	# only the worker continues: the command that it has to kill stays stopped
	kill -CONT $run "$worker"
	eventually printed "key 'k': its lease expired, because wqctl was stopped or could not touch it in time, and it runs again; wqctl terminates its command"
	eventually gone "$command"
	eventually gone "$child"
	is processing 1 "$(stats processing)"
	let_through
	wait $second
	is status 0 $?
	is "runs elsewhere, expired, dones, failed, keys" "k 1 1 0 0" \
		"$(lines "$dir/second") $(stats expired dones failed keys)"
	wq add $q more
	eventually test -e "$dir/goes-on"
	wq shutdown $q
	wait $run
	is status 0 $?
	exists_no "$dir/survived"
}

test_run_discards_the_outcome_of_an_expired_key() {
	queue --lease 1s
	local run worker command
	wq add $q k
	"$WQCTL" run --once --max-retries 0 $q -- sh -c "echo \$PPID \$\$ >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; exit 7; }" 2>"$err" &
	run=$!
	eventually file_has "$dir/ran" 1
	read -r worker command <"$dir/ran"
	kill -STOP "$worker"
	eventually stat_is expired 1
	let_through
	eventually ended "$command"
	kill -CONT "$worker"
	wait $run
	is status 0 $?
	prints "and it runs again; wqctl ignores the outcome of its command"
	prints "1 run, 0 retries, 0 given up, 1 expired, in "
	is "runs, dones, failed, keys" "2 1 0 0" "$(wc -l <"$dir/ran") $(stats dones failed keys)"
}

# ---- the command line

test_usage_errors_exit_2() {
	status 2 wq nonsense
	status 2 wq get
	reports 2 "give --fd N" wq done $q k
	status 2 wq get -t never $q
	status 2 wq create -m 888 $q
	status 2 wq run $q
	status 2 wq get $q extra
}

test_help_lists_every_command() {
	local c all
	status 0 wq --help
	all=$(<"$out")
	for c in create set unlink add get touch done forget bind cancel ls show stat top metrics \
		info shutdown run; do
		has --help $'\n'"  $c " "$all"
		status 0 wq $c --help
	done
	status 0 wq info
	matches info 'max_key +1024.*user_waits.*user_sources +128.*charged_sources +0' "$(<"$out")"
}

# ---- advice, and dropped keys

test_missing_queue_advice_names_create_or_ls() {
	local c
	for c in "add no.such k" "get no.such" "bind --fd 7 no.such" "run no.such -- true"; do
		exec 7<>/dev/wq
		status 1 wq $c
		prints "there is no queue of that name; create it first: wqctl create no.such"
	done
	for c in "unlink no.such" "stat no.such" "ls no.such" "show no.such k" \
		"cancel no.such k" "forget no.such k" "shutdown no.such" "metrics no.such" \
		"top --batch no.such"; do
		reports 1 "there is no queue of that name; wqctl ls lists the queues" wq $c
		has_no "advice of $c" "wqctl create" "$(<"$err")"
	done
}

test_errors_name_their_cause_by_the_command_and_the_queue() {
	local bytes who words
	queue
	ln -s /dev/wqueue/$q "$dir/link"
	wq create -m 604 $q.r
	wq create -m 602 -n 1 $q.w
	wq add $q.w only
	status 0 as_nobody create $q.nobody
	: >"$dir/file"
	mount --bind /dev/wqueue/$q /dev/wqueue/$q.r
	while IFS='|' read -r who words text; do
		reports 1 "$text" $who $words
	done <<-END
	wq|unlink $q.r|something is mounted on the queue's file
	wq|unlink $dir/link|it is a symbolic link; give the path of the queue's file
	wq|unlink $dir/file|is not a queue's file in wqueue
	wq|add $q.w other|the queue is full
	as_nobody|stat $q|the queue has mode 0600 and uid 0, gid 0, which allow you neither to read nor to write
	as_nobody|get $q.w|the queue has mode 0602 and uid 0, gid 0, which allow you only to write
	as_nobody|run $q.w true|which allow you only to write
	as_nobody|unlink $q|only the queue's owner and root may do that
	END
	umount /dev/wqueue/$q.r
	reports 1 "which allow you only to read" as_nobody run $q.r true
	exists "$dir/link"
	succeeds wq stat $q >/dev/null
	chmod 755 /dev/wqueue
	status 1 as_nobody unlink $q.nobody
	chmod 700 /dev/wqueue
	prints "you may not remove names of its directory; see the directory's mode: ls -ld /dev/wqueue"
	status 1 as_nobody stat $q.nobody
	chmod 1777 /dev/wqueue
	prints "you may not search its directory"
	bytes=$(</sys/module/wq/parameters/user_bytes)
	echo 1 >/sys/module/wq/parameters/user_bytes
	status 1 as_nobody add $q.nobody {1..9999}
	cp "$err" "$dir/add"
	device_for_all
	status 1 as_nobody create $q.more
	echo "$bytes" >/sys/module/wq/parameters/user_bytes
	prints "your queues would take more memory than user_bytes allows"
	has add "the queues of its owner take as much memory as user_bytes allows" "$(<"$dir/add")"
}

# swapped AT ARGUMENT...: wqctl, while $dir/link changes from /dev/wqueue to $dir/other
swapped() {
	local got=0
	mkdir -p "$dir/other"
	echo text >"$dir/other/$q"
	ln -sfn /dev/wqueue "$dir/link"
	ln -sfn "$dir/other" "$dir/next"
	SHIM_AT=$1 SHIM_DIR=$dir with_shim swap "${@:2}" || got=$?
	exists_no "$dir/next"
	return $got
}

# The directory of the path belongs to a user, and root uses the path.
test_a_path_whose_directory_changes_meanwhile_reaches_no_file_beyond_wqueue() {
	queue
	succeeds wq add $q key
	status 0 swapped 1 stat "$dir/link/$q"
	status 0 swapped 1 get "$dir/link/$q"
	is key key "$(<"$out")"
	# the open is the first look, and the unlink the second
	status 0 swapped 2 unlink "$dir/link/$q"
	is "file" text "$(<"$dir/other/$q")"
	exists_no /dev/wqueue/$q
	# and with attributes, by which the queue is made
	status 0 swapped 1 create "$dir/link/$q"
	exists /dev/wqueue/$q
	succeeds wq unlink $q 2>/dev/null
}

test_a_queue_can_be_opened_by_a_link_and_by_a_mount_of_its_file() {
	queue
	ln -s /dev/wqueue/$q "$dir/link"
	: >"$dir/mounted"
	mount --bind /dev/wqueue/$q "$dir/mounted"
	succeeds wq add "$dir/link" one
	succeeds wq add "$dir/mounted" two
	is keys "one two" "$(wq get "$dir/mounted") $(wq get "$dir/link")"
	status 1 wq unlink "$dir/mounted"
	prints "something is mounted on the queue's file"
	umount "$dir/mounted"
	exists /dev/wqueue/$q
	status 1 wq stat "$dir/mounted"
	prints "is not a queue's file in wqueue"
}

test_options_of_attributes_are_given_once_and_an_order_is_one() {
	reports 2 "--order is given twice" wq create --order fifo --order priority $q
	reports 2 "a queue has one of the orders fifo" wq create --order priority,groups $q
	echo "$q - - --order a" >"$dir/t.conf"
	status 1 wq apply "$dir/t.conf"
	prints "t.conf:1: --order: a queue has one of the orders"
	is "lines" 1 "$(wc -l <"$err")"
}

test_an_abbreviated_directory_option_keeps_the_command() {
	status 2 wq --dir /dev/wqueue nonsense
	status 2 wq -C/dev/wqueue nonsense
	queue
	status 0 wq --direc=/dev/wqueue add $q k
	is ready 1 "$(stats ready)"
}

test_unlink_prints_the_keys_that_it_drops() {
	queue
	status 0 wq unlink $q
	is "standard error" '' "$(<"$err")"
	wq create $q
	wq add $q a b c
	wq add --after 1h $q later
	consumer 7
	wq get --fd 7 >/dev/null
	status 0 wq unlink $q
	prints "unlinked '$q' with 2 ready, 1 processing and 1 delayed keys; 1 open file still uses it, and keys that are left when it is closed are dropped"
	is left $'b\nc' "$(wq get -n 9 --fd 7)"
	exec 7>&-
	wq create $q
	wq add $q a
	reports 0 "with 1 ready, 0 processing and 0 delayed keys; they are dropped" wq unlink $q
}

test_shutdown_prints_the_delayed_keys_that_it_drops() {
	queue
	wq add --after 1h $q a b
	wq add $q ready
	reports 0 "dropped 2 delayed keys or retries" wq shutdown $q
	status 0 wq shutdown $q
	is "standard error" '' "$(<"$err")"
}

test_shutdown_drain_counts_retries_that_it_drops() {
	queue
	wq add --after 1h $q a
	consumer 7
	wq add $q k
	wq get --fd 7 >/dev/null
	"$WQCTL" shutdown --drain $q 2>"$dir/drain" &
	eventually stat_is draining yes
	status 4 wq done --fd 7 --retry k
	wait $!
	is status 0 $?
	is "standard error" "wqctl: dropped 2 delayed keys or retries" "$(<"$dir/drain")"
}

test_no_command_lists_the_queues() {
	queue
	status 0 wq
	is "lists the queues" "$(wq ls)" "$(<"$out")"
	prints "wqctl --help lists the commands"
	status 2 wq --json
}

test_info_shows_the_used_quota() {
	queue
	device_for_all
	status 0 as_nobody info
	matches info 'charged_queues +0' "$(<"$out")"
	status 0 as_nobody create -n 70 $q.b
	wq add $q.b k
	status 0 as_nobody info
	matches info 'charged_queues +1' "$(<"$out")"
	matches info 'charged_keys +70' "$(<"$out")"
	status 0 as_nobody info --json
	holds '.charged_queues == 1 and .charged_keys == 70 and .user_queues == 256'
}

test_messages_escape_what_a_terminal_would_obey() {
	local c
	local -x LC_ALL=C.UTF-8
	for c in "ls $(printf '\33')[31mx" "add $(printf 'q\u200b') k" "create --order=$(printf '\33') q" \
		"ls --$(printf '\33')[31m" "$(printf '\33')[31m" "create --lease=$(printf '\33') q"; do
		# shellcheck disable=SC2086  # words
		wq $c >"$out" 2>"$err" && fail "$c: expected an error"
		has_no "message" "$(printf '\33')" "$(<"$err")"
		has_no "message" "$(printf '\u200b')" "$(<"$err")"
	done
}

test_two_keys_never_look_equal() {
	local -x LC_ALL=C.UTF-8
	queue
	wq add $q "$(printf 'a\u200bb')" ab "$(printf 'e\u0301')" "$(printf '\u00e9')"
	is "names" 4 "$(wq ls $q | tail -n +2 | awk '{ print $NF }' | sort -u | wc -l)"
	has key 'a\342\200\213b' "$(wq ls $q)"
}

test_times_have_several_units() {
	local t
	while read -r t ns; do
		wq create --lease "$t" $q
		is "$t" "$ns" "$(stats lease_ns)"
		wq unlink $q
	done <<-END
	1h30m 5400000000000
	2d 172800000000000
	3min 180000000000
	1d2h3m4s5ms 93784005000000
	1.5 1500000000
	END
	for t in 1h30 30m1 1y m 1..5s 1h-2m ''; do
		reports 2 "is not a time" wq create --lease "$t" $q
	done
	reports 2 "is too long; the maximum is 106751d" wq create --lease 200000d $q
	reports 2 "is too long a time" wq create --limiter exponential:1s:999999d $q
}

test_run_does_not_execute_a_key() {
	queue
	status 0 wq add $q -- "\$(touch $dir/executed)" '-n'
	status 0 wq run --once $q -- sh -c 'printf "%s;" "$1" >>'"$dir/ran" sh {}
	is ran "\$(touch $dir/executed);-n;" "$(<"$dir/ran")"
	exists_no "$dir/executed"
	consumer 7
	status 0 wq add --fd 7 -- -n
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --forget -- -n
}

test_groups_counts_the_keys_of_each_group() {
	status 0 wq create --order groups:/:1 $q
	status 0 wq add $q b/1 a/1 a/2 a/3 single $'b/\n'
	status 0 wq add --after 1h $q b/later
	consumer 7
	succeeds wq get --fd 7
	succeeds wq get --fd 7
	status 0 wq groups $q
	is "groups" "READY BLOCKED PROCESSING DELAYED RESTS GROUP 2 2 1 0 - a/ 1 1 1 1 - b/ 1 0 0 0 - single" "$(words <"$out")"
	status 0 wq groups --json $q
	holds 'length == 3'
	holds '.[0] == {"group": "a/", "group_base64": "YS8=", "ready": 2, "blocked": 2, "processing": 1, "delayed": 0, "rest_ns": null}'
	is "of the same descriptor" "$(wq groups $q)" "$(wq groups --fd 7)"
}

# as the kernel counts them, also after a consumer's end, whose key still counts for the limit
test_groups_shows_which_keys_wait_for_the_limit() {
	status 0 wq create --order groups:/:2 $q
	status 0 wq add $q a/1 a/2 a/3 a/4 b/1 b/2 c/1
	status 0 wq groups $q
	is "groups" "READY BLOCKED PROCESSING DELAYED RESTS GROUP 4 2 0 0 - a/ 2 0 0 0 - b/ 1 0 0 0 - c/" "$(words <"$out")"
	is blocked "2 3" "$(stats blocked ready_groups)"
	is metrics "wq_blocked_keys{name=\"$q\"} 2 wq_ready_groups{name=\"$q\"} 3" \
		"$(wq metrics $q | grep -E '^wq_(blocked_keys|ready_groups)' | words)"
	consumer 7
	is keys "a/1 b/1" "$(wq get --fd 7 -n 2 | words)"
	exec 7>&-
	eventually stat_is processing 0
	is blocked "2 3" "$(stats blocked ready_groups)"
	status 0 wq groups $q
	is "groups" "READY BLOCKED PROCESSING DELAYED RESTS GROUP 4 2 0 0 - a/ 2 0 0 0 - b/ 1 0 0 0 - c/" "$(words <"$out")"
	is keys "a/1 b/1" "$(wq get -n 2 $q | words)"
	is blocked "1 3" "$(stats blocked ready_groups)"
	status 0 wq groups $q
	is "groups" "READY BLOCKED PROCESSING DELAYED RESTS GROUP 3 1 0 0 - a/ 1 0 0 0 - b/ 1 0 0 0 - c/" "$(words <"$out")"
}
test_groups_of_a_prefix_are_its_bytes() {
	status 0 wq create --order prefix:2 $q
	status 0 wq groups --json $q
	is "no groups" '[]' "$(<"$out")"
	status 0 wq add $q abc abd a
	status 0 wq groups $q
	is "groups" "READY BLOCKED PROCESSING DELAYED RESTS GROUP 2 0 0 0 - ab 1 0 0 0 - a" "$(words <"$out")"
}

test_groups_of_a_queue_without_groups_fails() {
	queue
	reports 1 "the queue '$q' has no groups" wq groups $q
	prints "wqctl create --order"
	status 1 wq groups no-such-queue
}

run_tests "$@"
