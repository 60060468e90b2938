#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# wqctl save and restore when something is against them: kills, other users, hostile files, many
# queues.  wqctl.sh has the tests of what a snapshot contains.  Prints TAP.  Runs as root on a machine
# with the module loaded.
#
#	WQCTL		path of wqctl
#	WQCTL_SHARED	path of wqctl with shared libraries, for the faults of wqctl_shim.c
#	WQ_LIMIT	seconds that a test may take: 180
#
# The tests run through their names, and the queue's name needs no quotes.
# shellcheck disable=SC2317,SC2086
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${WQCTL_SHARED:=$WQCTL}" "${WQ_LIMIT:=180}"
time_limit=$WQ_LIMIT
q=snapshot.$$
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

cleanup() {
	local place
	for place in "$dir"/new*line "$dir"/l*/l*/q /proc/sys/kernel/random/boot_id; do
		! mountpoint -q "$place" || umount "$place"
	done
	unlink_all
} 2>/dev/null

# with_shim FAULT ARGUMENT...: wqctl with a fault of wqctl_shim.c
with_shim() {
	SHIM=$1 LD_PRELOAD=${0%/*}/shim/wqctl_shim.so "$WQCTL_SHARED" "${@:2}"
}

# killed_at N ARGUMENT...: wqctl, which is killed before its N-th call that changes something
killed_at() {
	SHIM_KILL=$1 LD_PRELOAD=${0%/*}/shim/wqctl_shim.so "$WQCTL_SHARED" "${@:2}"
} >"$out" 2>"$err"

# content: the lines of a snapshot on standard input, without times, pauses and the last line
content() { sed -E 's/ (age|due)=[0-9.]+s//; /^(end|boot|paused) /d'; }

# snapshot PROGRAM: prints a snapshot of the lines that the program prints in Python, by "line"
snapshot() {
	python3 -c '
import sys
lines = ["wq-snapshot 1"]
line = lines.append
q = sys.argv[1]
exec(sys.argv[2])
text = "".join(l + "\n" for l in lines).encode()
total = 0xcbf29ce484222325
for byte in text:
    total = (total ^ byte) * 0x100000001b3 & 2**64 - 1
sys.stdout.buffer.write(text + b"end %d %016x\n" % (len(lines), total))' $q "$1"
}

# of_nobody QUEUE: the queue belongs to nobody from now on
of_nobody() { succeeds wq set --owner nobody "$1"; }

# keys_of QUEUE...: how many keys they have
keys_of() {
	local queue
	for queue; do wq stat "$queue" | sed -n 's/^keys *//p'; done | words
}

# words: the words of standard input, with a blank between
words() { local w; read -rd '' -a w; echo "${w[*]}"; }

unlink_all() { rm -f /dev/wqueue/$q*; }

# files_of_state: the names of the files in $dir/state
files_of_state() { (cd "$dir/state" && echo *); }

# at_another_boot COMMAND...
at_another_boot() {
	echo 00000000-0000-0000-0000-000000000000 >"$dir/id"
	succeeds mount --bind "$dir/id" /proc/sys/kernel/random/boot_id
	"$@"
	succeeds umount /proc/sys/kernel/random/boot_id
}

# ---- size

# A limiter that is freed memory has other figures, or the kernel can't read it.
test_restore_of_1000_queues_gives_each_the_limiters_of_its_own() {
	snapshot '
for n in range(1001, 2001):
    line(f"queue {q}.{n}")
    line("attr mode 0600")
    line(f"attr limiter exponential:7ms:9s,bucket:2:{n},fast-slow:1ms:7m:{n},max-wait:9h")
' >"$dir/s"
	MALLOC_PERTURB_=85 status 0 wq restore "$dir/s"
	status 0 wq save
	is "limiters" "$(sed -n '/^queue/{p;n;n;p}' "$dir/s")" \
		"$(sed -n "/^queue $q/p; /^attr limiter.*,max-wait/p" "$out")"
}

# All lines are right but the last one, so restore has to look at all of them.
test_restore_needs_no_memory_for_the_keys_of_a_snapshot() {
	{
		printf '%s\n' "wq-snapshot 1" "queue $q" "attr mode 0600"
		seq -f 'key ready "%01000.0f"' 8000
		echo "end 8003 0000000000000000"
	} >"$dir/s"
	(ulimit -v 7000; status 1 "$WQCTL" restore "$dir/s") || exit 1
	prints "line 8004: the checksum differs"
}

test_restore_refuses_a_line_of_megabytes_and_names_it() {
	head -c 9000000 /dev/zero | tr '\0' 1 >"$dir/long"
	(echo -n "wq-snapshot "; cat "$dir/long") >"$dir/s"
	reports 1 "line 1: the line is too long" wq restore "$dir/s"
	(echo "wq-snapshot 1"; cat "$dir/long") >"$dir/s"
	reports 1 "line 2: the line is too long" wq restore "$dir/s"
	reports 1 "line 1: the line is too long" wq restore /dev/zero
	(echo "wq-snapshot 1"; yes) 2>/dev/null | status 1 wq restore
	prints "line 2: a queue is expected"
}

test_restore_reads_a_pipe() {
	succeeds wq create $q
	seq 3000 | succeeds wq add $q
	status 0 wq save -o "$dir/s" $q
	unlink_all
	mkfifo "$dir/pipe"
	(exec >"$dir/pipe" && cat "$dir/s") &
	status 0 wq restore -v "$dir/pipe"
	is "standard output" "1 queue, 3000 keys" "$(<"$out")"
	is "ready" 3000 "$(stats ready)"
}

test_restore_refuses_text_behind_the_last_line_and_a_change_of_a_key() {
	succeeds wq create $q
	succeeds wq add $q key
	status 0 wq save -o "$dir/s" $q
	unlink_all
	(cat "$dir/s"; cat "$dir/s") >"$dir/t"
	reports 1 "the snapshot goes on behind its last line" wq restore "$dir/t"
	sed 's/"key"/"kex"/' "$dir/s" >"$dir/t"
	reports 1 "line $(wc -l <"$dir/s"): the checksum differs" wq restore "$dir/t"
	exists_no /dev/wqueue/$q
}

# ---- paths

test_save_stores_the_whole_path_of_a_queue_without_links() {
	local long
	long=$dir/$(printf 'l%.0s' {1..100})/$(printf 'l%.0s' {1..100})/q
	mkdir -p "$long"
	succeeds mount -t wqueue none "$long"
	ln -s "$long" "$dir/link"
	succeeds wq create $q.1
	succeeds wq create $q.2
	succeeds wq add $q.1 one
	succeeds wq add $q.2 two
	cd "$dir/link" || exit 1
	status 0 wq save -o "$dir/s" ./$q.1 ../q/$q.2 "$long/$q.1"
	cd / || exit 1
	is "queues" "queue $long/$q.1 queue $long/$q.2" "$(grep ^queue "$dir/s" | words)"
	unlink_all
	status 0 wq restore "$dir/s"
	is "keys" "one two" "$(wq get $q.1) $(wq get $q.2)"
}

test_save_of_a_path_that_a_line_cannot_have_fails_and_saves_the_rest() {
	local place=$dir/new$'\n'line
	mkdir "$place"
	succeeds mount -t wqueue none "$place"
	succeeds wq create $q
	echo old >"$dir/s"
	reports 1 "its path has a control character" wq save -o "$dir/s" "$place/$q"
	is "file" old "$(<"$dir/s")"
	reports 1 "its path has a control character" wq save -o "$dir/s" "$place/$q" $q
	is "queues" "queue $q" "$(grep ^queue "$dir/s")"
}

test_restore_refuses_a_name_that_save_cannot_write() {
	local name
	for name in ./a a/b .a "a b" /a/../b /a//b /a/./b /a/ "/$(printf 'l%.0s' {1..64})" "$(printf 'l%.0s' {1..64})"; do
		printf 'wq-snapshot 1\nqueue %s\n' "$name" >"$dir/s"
		reports 1 "line 2: the name of a queue is wrong" wq restore "$dir/s"
	done
}

# ---- other users

interfering() { # FAULT MESSAGE: the queue $q.x is left out, and two others are saved
	local n
	for n in a x y; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n $n
	done
	of_nobody $q.x
	status 1 with_shim $1 save -o "$dir/s"
	prints "can't save the queue '$q.x': $2"
	is "queues" "queue $q.a queue $q.y" "$(grep "^queue $q" "$dir/s" | words)"
	is "pauses" 0 "$(wq ls | grep -c "^$q.*paused")"
	unlink_all
	status 0 wq restore --merge "$dir/s"
}

test_save_leaves_out_a_queue_whose_owner_resumes_it() { interfering resume "its pause ended"; }
test_save_ends_the_pause_of_gets_of_a_queue_whose_owner_resumes_adds() { interfering adds "its pause ended"; }
test_save_leaves_out_a_queue_that_is_resumed_and_paused_again() { interfering blink "its pause ended"; }
test_save_leaves_out_a_queue_that_is_removed_and_made_again() { interfering again "it was removed"; }

# Users see each other's queues that they may only add to.
test_save_of_a_user_reports_a_queue_that_they_can_not_read() {
	succeeds wq create -m 622 $q.a
	of_nobody $q.a
	succeeds as_user create $q.b
	succeeds as_user add $q.b key
	status 1 as_user save $q.a $q.b
	prints "can't save the queue '$q.a': the queue has mode 0622"
	is "queues" "queue $q.b" "$(grep ^queue "$out" | words)"
	status 1 as_user save
	prints "can't save the queue '$q.a': the queue has mode 0622"
	is "queues" "queue $q.b" "$(grep "^queue $q" "$out" | words)"
}

test_restore_of_a_user_reports_a_queue_that_they_can_not_open() {
	succeeds wq create -m 600 $q
	succeeds wq add $q key
	status 0 wq save -o "$dir/s" $q
	chmod 755 "$top" "$dir"
	chmod 644 "$dir/s"
	status 1 as_user restore --merge "$dir/s"
	prints "the queue '$q': the queue has mode 0600"
}

test_save_names_another_save_as_what_can_end_its_pause() {
	interfering resume "its pause ended before all keys were read, by the end of another wqctl save"
}

# The tools read the numbers of a queue only to show them.
test_a_queue_that_can_not_be_opened_keeps_save_and_metrics_from_no_other() {
	local n
	for n in a x y; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n $n
	done
	status 1 with_shim open save -o "$dir/s"
	prints "can't save the queue '$q.x'"
	is "queues" "queue $q.a queue $q.y" "$(grep "^queue $q" "$dir/s" | words)"
	status 1 with_shim open metrics
	prints "can't read the statistics of the queue '$q.x'"
	is "queues" 2 "$(grep -c "^wq_queue_info.*$q" "$out")"
	status 0 with_shim open top --batch -n 1
	has "top" "$q.y" "$(<"$out")"
}

test_save_of_all_leaves_out_what_the_caller_may_not_open() {
	succeeds wq create -m 0600 $q.a
	succeeds wq create -m 0606 $q.b
	succeeds wq set --owner nobody $q.b
	status 0 setpriv --reuid 65534 --regid 65534 --clear-groups "$WQCTL" save
	is "queues" "queue $q.b" "$(grep "^queue $q" "$out")"
}

test_save_leaves_out_queues_beyond_max_user_bytes_but_those_of_root() {
	local n
	for n in a b root; do
		succeeds wq create $q.$n
		# 4 bytes in the file for each byte
		printf '\1%d\0' {1..50} | succeeds wq add -0 $q.$n
	done
	of_nobody $q.a
	of_nobody $q.b
	status 1 wq save -o "$dir/s" --max-user-bytes 4000 $q.a $q.b $q.root
	prints "can't save the queue '$q.b': the queues of its owner would take more than --max-user-bytes"
	is "queues" "queue $q.a queue $q.root" "$(grep ^queue "$dir/s" | words)"
	status 0 wq save -o "$dir/s" --max-user-bytes 8000 $q.a $q.b $q.root
}

# Half of the range of a time is the largest age that the kernel takes, and the age grows.
test_save_of_a_key_with_the_largest_age_can_be_restored() {
	snapshot '
for n in "ab":
    line(f"queue {q}.{n}")
    line("attr mode 0600")
    line("key ready age=4611686018.427387903s \"1\"")
' >"$dir/s"
	status 0 wq restore "$dir/s"
	status 0 wq save -o "$dir/t" $q.a $q.b
	unlink_all
	status 0 wq restore "$dir/t"
	is "keys" "1 1" "$(keys_of $q.a $q.b)"
}

test_restore_takes_a_larger_age_than_the_kernel_does() {
	snapshot '
line(f"queue {q}")
line("attr mode 0600")
line("key ready age=9000000000s \"1\"")
' >"$dir/s"
	status 0 wq restore "$dir/s"
	is "ready" 1 "$(stats ready)"
}

test_save_leaves_out_a_queue_that_restore_would_refuse_and_saves_the_rest() {
	local n
	for n in a x y; do succeeds wq create $q.$n; done
	status 1 with_shim lease save -o "$dir/s" $q.a $q.x $q.y
	prints "can't save the queue '$q.x': wqctl restore would refuse what the kernel reports of it"
	unlink_all
	status 0 wq restore "$dir/s"
	exists_no /dev/wqueue/$q.x
	exists /dev/wqueue/$q.y
}

test_save_of_a_queue_whose_sort_takes_longer_than_a_pause_saves_it() {
	succeeds wq create $q
	succeeds wq add $q 1 2 3
	status 0 with_shim slow save -o "$dir/s" $q
	is "keys" 3 "$(grep -c ^key "$dir/s")"
}

test_save_of_no_queue_keeps_the_file_and_of_some_replaces_it() {
	succeeds wq create $q
	echo old >"$dir/s"
	reports 1 "there is no queue of that name" wq save -o "$dir/s" $q.none
	is "file" old "$(<"$dir/s")"
	reports 1 "there is no queue of that name" wq save -o "$dir/s" $q.none $q
	is "queues" "queue $q" "$(grep ^queue "$dir/s")"
}

test_merge_refuses_a_queue_of_another_owner_group_or_mode_and_restores_the_rest() {
	local n
	for n in a group mode owner z; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n key
	done
	status 0 wq save -o "$dir/s" $q.a $q.group $q.mode $q.owner $q.z
	unlink_all
	for n in group mode owner; do succeeds wq create $q.$n; done
	of_nobody $q.owner
	succeeds wq set -m 0602 $q.mode
	succeeds wq set --group 12 $q.group
	status 1 wq restore -v --merge "$dir/s"
	prints "the queue '$q.owner' exists and belongs to user $(id -u nobody), not 0 as in the snapshot"
	prints "wqctl unlink $q.owner"
	prints "the queue '$q.mode' exists with group 0 and mode 0602, not group 0 and mode 0600"
	prints "wqctl set --group 0 -m 0600 $q.group"
	is "standard output" "2 queues, 2 keys" "$(<"$out")"
	is "keys" "1 0 0 0 1" "$(keys_of $q.{a,group,mode,owner,z})"
}

test_restore_names_an_owner_that_is_beyond_a_limit_and_restores_all() {
	local limit
	limit=$(cat /sys/module/wq/parameters/user_keys)
	succeeds wq create -n 4 $q.1
	succeeds wq create -n 4 $q.2
	succeeds wq add $q.1 a
	succeeds wq add $q.2 b
	of_nobody $q.1
	of_nobody $q.2
	succeeds wq save -o "$dir/saved" $q.1 $q.2
	unlink_all
	echo 7 >/sys/module/wq/parameters/user_keys
	status 0 wq restore "$dir/saved"
	prints "the owner of the queue '$q.2' is over the limit of keys: 8 of 7"
	prints "all queues are restored; do not restore them again"
	is "keys" "1 1" "$(keys_of $q.1 $q.2)"
	# the unit shows it
	unlink_all
	mkdir "$dir/state"
	mv "$dir/saved" "$dir/state/reload.wq"
	status 1 wq restore --boot "$dir/state"
	echo "$limit" >/sys/module/wq/parameters/user_keys
	is "keys" "1 1" "$(keys_of $q.1 $q.2)"
}

test_restore_reports_each_owner_that_is_beyond_a_limit_once() {
	local limit n
	limit=$(cat /sys/module/wq/parameters/user_keys)
	snapshot '
for n in range(8):
    line(f"queue {q}.{n}")
    line("attr mode 0600")
    line(f"attr owner {7001 + n % 2}")
    line("attr max-keys 4")
' >"$dir/s"
	echo 7 >/sys/module/wq/parameters/user_keys
	status 0 wq restore "$dir/s"
	echo "$limit" >/sys/module/wq/parameters/user_keys
	is "messages" 2 "$(grep -c "is over the limit" "$err")"
}

test_merge_takes_no_queue_of_another_owner_for_an_unfinished_one_without_keys() {
	snapshot '
line(f"queue {q}")
line("attr mode 0601")
line("attr owner 7001")
' >"$dir/s"
	succeeds wq create $q
	of_nobody $q
	reports 1 "exists and belongs to user $(id -u nobody), not 7001" wq restore --merge "$dir/s"
}

# Root's own queue, which chmod has given a mode that has no meaning for it
test_merge_gives_no_queue_that_exists_to_another_owner_whatever_its_mode() {
	local mode
	snapshot '
line(f"queue {q}")
line("attr mode 0600")
line("attr owner 7001")
line("key ready \"theirs\"")
' >"$dir/s"
	succeeds wq create $q
	for mode in 0700 0601; do
		succeeds wq set -m $mode $q
		# with 0601 a queue without keys is one that a killed restore has made
		succeeds wq add $q mine
		reports 1 "exists and belongs to user 0, not 7001" wq restore --merge "$dir/s"
		is "mode, owner, keys" "${mode#0} 0 1" "$(stat -c "%a %u" /dev/wqueue/$q) $(keys_of $q)"
	done
	succeeds wq set -m 0700 $q
	is key mine "$(wq get $q)"
	reports 1 "exists and belongs to user 0, not 7001" wq restore --merge "$dir/s"
}

test_a_command_in_a_message_has_the_name_of_a_queue_for_no_option() {
	snapshot 'line(f"queue --{q}"); line("attr mode 0600")' >"$dir/s"
	status 0 wq restore "$dir/s"
	status 1 wq restore "$dir/s"
	prints "wqctl unlink -- --$q"
	reports 1 "wqctl unlink -- --$q" wq create -- --$q
	wq unlink -- --$q
}

test_restore_leaves_nothing_of_a_queue_that_the_kernel_refuses_and_restores_the_rest() {
	snapshot '
for n in "abcd":
    line(f"queue {q}.{n}")
    line("attr mode 0600")
    if n == "d":
        line("attr limiter specs;99,0,0,0,0")
    line("key ready \"1\"")
    line("key ready,parked \"2\"" if n == "b" else "key ready \"2\"")
' >"$dir/s"
	reports 1 "line 9: the kernel refuses it for the queue '$q.b'" wq restore -v "$dir/s"
	prints "line 14: can't create the queue '$q.d': this kernel's wq refuses its attributes"
	is "standard output" "2 queues, 4 keys" "$(<"$out")"
	exists_no /dev/wqueue/$q.b
}

# ---- kills

test_restore_leaves_no_queue_that_it_made_and_can_not_open() {
	local n
	for n in a x y; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n $n
	done
	status 0 wq save -o "$dir/s" $q.a $q.x $q.y
	unlink_all
	status 1 with_shim open restore --merge "$dir/s"
	prints "can't open the queue '$q.x'"
	exists_no /dev/wqueue/$q.x
	is "keys" "1 1" "$(keys_of $q.a $q.y)"
}

make_queues() { # two queues with much that a restore has to set
	succeeds wq create -m 0640 --order priority $q.a
	succeeds wq add --priority 5 $q.a 1 2
	succeeds wq add --after 9h $q.a later
	succeeds wq set --owner nobody --group 12 $q.a
	succeeds wq create --limiter bucket:1:1 -n 100 $q.b
	succeeds wq add $q.b 3
	succeeds wq pause --adds $q.b
	succeeds wq shutdown $q.b
} >/dev/null

# A kill at each call, then a save as at shutdown, every other time a reboot, and a restore.  Every
# other snapshot is that of a reload.
test_restore_boot_that_is_killed_at_any_call_and_a_save_lose_no_key() {
	local n got want file
	make_queues
	at_another_boot status 0 wq save -o "$dir/s" $q.a $q.b
	unlink_all
	want=$(content <"$dir/s")
	mkdir "$dir/state"
	for ((n = 1; ; n++)); do
		file=queues.wq
		if [ $((n % 2)) = 0 ]; then file=reload.wq; fi
		cp "$dir/s" "$dir/state/$file"
		got=0
		killed_at $n restore --boot "$dir/state" || got=$?
		[ $got -ne 0 ] || break
		is "status" 137 $got
		status 0 wq save --boot -o "$dir/state"
		# the same boot: it goes on
		if [ $((n % 4)) -lt 2 ]; then unlink_all; fi
		status 0 wq restore --boot "$dir/state"
		wq save $q.a $q.b >"$dir/t"
		# a pause of the killed restore may go on for 10 s
		is "$file after a kill at call $n" "$want" "$(content <"$dir/t")"
		matches "files" '^(queues.wq.restored(.2)?( |$))*\*?$' "$(files_of_state)"
		unlink_all
		rm "$dir"/state/*
	done
	# that the calls of both queues were among them
	[ $n -gt 20 ] || fail "only $n calls"
}

test_restore_that_is_killed_at_any_call_goes_on_with_merge() {
	local n got want
	make_queues
	status 0 wq save -o "$dir/s" $q.a $q.b
	want=$(content <"$dir/s")
	for ((n = 2; ; n += 4)); do
		unlink_all
		got=0
		killed_at $n restore "$dir/s" || got=$?
		[ $got -ne 0 ] || break
		status 0 wq restore --merge "$dir/s"
		wq save $q.a $q.b >"$dir/t"
		is "after a kill at call $n" "$want" "$(content <"$dir/t")"
	done
}

# The last queue by name, and the largest one of the user with the most keys, come last.
test_restore_makes_all_queues_and_then_fills_those_of_users_with_many_keys_last() {
	local n got=137 seen
	snapshot '
for name, uid, keys in ("a", 7001, 8), ("b", 7001, 1), ("c", 7002, 6), ("d", 0, 12):
    line(f"queue {q}.{name}")
    line("attr mode 0600")
    line(f"attr owner {uid}")
    for n in range(keys):
        line(f"key ready \"{n:02}\"")
' >"$dir/s"
	: >"$dir/seen"
	for ((n = 4; got == 137; n += 3)); do
		unlink_all
		got=0
		killed_at $n restore "$dir/s" || got=$?
		exists /dev/wqueue/$q.a
		[ -e /dev/wqueue/$q.d ] || continue
		seen=$(keys_of $q.{d,c,b,a})
		matches "keys" '^([0-9]+ 0 0 0|12 [0-6] 0 0|12 6 [01] 0|12 6 1 [0-8])$' "$seen"
		echo "$seen" >>"$dir/seen"
	done
	is "status" 0 $got
	is "keys" "12 6 1 8" "$seen"
	# that the kills were before, in and behind each of them
	for seen in "0 0 0 0" "12 0 0 0" "12 6 0 0" "12 6 1 0"; do
		has "states" "$seen" "$(<"$dir/seen")"
	done
	# a restore that goes on finds nothing but its own queues
	unlink_all
	killed_at 12 restore "$dir/s"
	status 0 wq restore --merge "$dir/s"
	is "keys" "12 6 1 8" "$(keys_of $q.{d,c,b,a})"
	is "owners" "7001 7001 7002 0" "$(stat -c %u /dev/wqueue/$q.{a,b,c,d} | words)"
	is "pauses" 0 "$(wq ls | grep -c "^$q.*paused")"
}

test_save_boot_keeps_a_snapshot_whose_restore_was_killed() {
	mkdir "$dir/state"
	make_queues
	status 0 wq save --boot -o "$dir/state"
	cp "$dir/state/queues.wq" "$dir/s"
	unlink_all
	killed_at 12 restore --boot "$dir/state"
	exists /dev/wqueue/$q.a
	status 0 wq save --boot -o "$dir/state"
	succeeds cmp "$dir/s" "$dir/state/queues.wq.restoring"
}

# Afterwards the keys of both are in the kernel, and in files for the next boot after a power cut.
test_restore_boot_enters_all_snapshots_that_were_set_aside() {
	mkdir "$dir/state"
	succeeds wq create $q.a
	succeeds wq add $q.a old both
	status 0 wq save -o "$dir/state/queues.wq.restoring" $q.a
	unlink_all
	succeeds wq create $q.a
	succeeds wq add --after 9h $q.a both
	succeeds wq add $q.a new
	status 0 wq save -o "$dir/state/queues.wq" $q.a
	unlink_all
	status 0 wq restore --boot "$dir/state"
	is "keys" 3 "$(keys_of $q.a)"
	is "files" "queues.wq.restored queues.wq.restored.2" "$(files_of_state)"
	unlink_all
	status 0 wq restore --boot "$dir/state"
	is "keys" 3 "$(keys_of $q.a)"
	status 0 wq save --boot -o "$dir/state"
	is "files" queues.wq "$(files_of_state)"
}

test_restore_boot_ends_a_snapshot_also_if_another_can_not_be_read() {
	mkdir -p "$dir/state/queues.wq.restoring"
	succeeds wq create $q
	at_another_boot status 0 wq save -o "$dir/state/queues.wq" $q
	unlink_all
	status 1 wq restore --boot "$dir/state"
	exists /dev/wqueue/$q
	is "files" "queues.wq.restored.2 queues.wq.restoring" "$(files_of_state)"
	status 0 wq save --boot -o "$dir/state"
	is "files" "queues.wq queues.wq.restoring" "$(files_of_state)"
}

# Then a power cut loses the keys of the queue that the save has left out.
test_save_boot_that_leaves_a_queue_out_keeps_it_of_a_restored_snapshot() {
	local n
	mkdir "$dir/state"
	for n in a x y; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n "key of $n"
	done
	status 0 wq save -o "$dir/state/queues.wq.restored" $q.a $q.x $q.y
	succeeds wq unlink $q.y 2>/dev/null
	of_nobody $q.x
	status 1 with_shim resume save --boot -o "$dir/state"
	prints "can't save the queue '$q.x'"
	is "files" "queues.wq queues.wq.restored" "$(files_of_state)"
	is "queues" "queue $q.x" "$(grep ^queue "$dir/state/queues.wq.restored")"
	unlink_all
	at_another_boot status 0 wq restore --boot "$dir/state"
	is "keys" "key of a, key of x" "$(wq get $q.a), $(wq get $q.x)"
	exists_no /dev/wqueue/$q.y
}

# As systemd does when the time of the unit has passed.
test_save_boot_that_is_stopped_has_the_queues_of_users_with_few_keys_and_keeps_the_others() {
	local n
	mkdir "$dir/state"
	for n in a.x b c; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n "$n 1"
	done
	succeeds wq add $q.a.x "a.x 2"
	of_nobody $q.a.x
	succeeds wq set --owner 7001 $q.c
	status 0 wq save --boot -o "$dir/state"
	is "queues" "queue $q.b queue $q.c queue $q.a.x" "$(grep "^queue $q" "$dir/state/queues.wq" | words)"
	cp "$dir/state/queues.wq" "$dir/s"
	succeeds wq add $q.b "b 2"
	status 1 with_shim stop save --boot -o "$dir/state"
	prints "a signal ended the save"
	prints "/queues.wq' has the queues that could be saved"
	has_no "messages" "can't save" "$(<"$err")"
	is "queues" "queue $q.b queue $q.c" "$(grep "^queue $q" "$dir/state/queues.wq" | words)"
	is "files" "queues.wq queues.wq.restored" "$(files_of_state)"
	is "queues" "queue $q.a.x" "$(grep ^queue "$dir/state/queues.wq.restored")"
	unlink_all
	at_another_boot status 0 wq restore --boot "$dir/state"
	is "keys" "2 2 1" "$(keys_of $q.{a.x,b,c})"
	# the next one that is whole replaces both
	status 0 wq save --boot -o "$dir/state"
	is "files" queues.wq "$(files_of_state)"
	# a save that has no queue changes nothing
	cp "$dir/state/queues.wq" "$dir/s"
	unlink_all
	succeeds wq create $q.x
	status 1 with_shim stop save --boot -o "$dir/state"
	is "files" queues.wq "$(files_of_state)"
	succeeds cmp "$dir/s" "$dir/state/queues.wq"
	# a save of an operator that is stopped changes nothing either
	succeeds wq create $q.a
	echo old >"$dir/t"
	status 1 with_shim stop save -o "$dir/t" $q.a $q.x
	is "file" old "$(<"$dir/t")"
}

test_restore_takes_queues_in_any_order_but_none_twice() {
	snapshot '
for n in "cab":
    line(f"queue {q}.{n}")
    line("attr mode 0600")
    line(f"key ready \"{n}\"")
' >"$dir/s"
	status 0 wq restore "$dir/s"
	is "keys" "a b c" "$(wq get $q.a) $(wq get $q.b) $(wq get $q.c)"
	snapshot '
for n in "aba":
    line(f"queue {q}.{n}")
    line("attr mode 0600")
' >"$dir/s"
	reports 1 "line 6: the snapshot has a queue of this name already" wq restore --merge "$dir/s"
}

test_restore_boot_keeps_the_snapshot_until_the_next_save_for_a_power_cut() {
	mkdir "$dir/state"
	make_queues
	status 0 wq save --boot -o "$dir/state"
	unlink_all
	status 0 wq restore --boot "$dir/state"
	is "files" queues.wq.restored "$(files_of_state)"
	unlink_all
	status 0 wq restore -v --boot "$dir/state"
	is "files" queues.wq.restored "$(files_of_state)"
	exists /dev/wqueue/$q.b
	status 0 wq save --boot -o "$dir/state"
	is "files" queues.wq "$(files_of_state)"
}

test_save_boot_sets_aside_a_snapshot_that_this_boot_has_not_restored() {
	mkdir "$dir/state"
	succeeds wq create $q
	succeeds wq add $q key
	at_another_boot status 0 wq save --boot -o "$dir/state"
	unlink_all
	status 0 wq save --boot -o "$dir/state"
	is "files" "queues.wq queues.wq.restoring" "$(files_of_state)"
	status 0 wq save --boot -o "$dir/state"
	status 0 wq restore --boot "$dir/state"
	is "ready" 1 "$(stats ready)"
}

test_save_boot_removes_what_killed_saves_have_left() {
	mkdir "$dir/state"
	succeeds wq create $q
	killed_at 2 save --boot -o "$dir/state"
	is "files" "" "$(ls -A "$dir/state")"
	# of a file system in which each file has a name
	touch "$dir"/state/{queues.wq,reload.wq,queues.failed.2,queues.wq.restored}.tmp-abcdef
	status 0 wq save --boot -o "$dir/state"
	is "files" queues.wq "$(files_of_state)"
	touch "$dir"/state/{reload.wq,reload.failed}.tmp-abcdef
	at_another_boot status 0 wq restore --boot "$dir/state"
	is "files" queues.wq.restored "$(files_of_state)"
}

# The second name that a save gives to the last one is no other snapshot.
test_restore_boot_enters_the_snapshot_that_a_killed_save_has_linked_once() {
	mkdir "$dir/state"
	succeeds wq create $q
	succeeds wq add $q key
	status 0 wq save --boot -o "$dir/state"
	killed_at 2 save --boot -o "$dir/state"
	killed_at 2 save --boot -o "$dir/state"
	is "files" "queues.wq queues.wq.restored" "$(files_of_state)"
	unlink_all
	at_another_boot status 0 wq restore -v --boot "$dir/state"
	is "restores" 1 "$(grep -c "1 key" "$out")"
	is "files, ready" "queues.wq.restored 1" "$(files_of_state) $(stats ready)"
}

test_save_boot_keeps_the_copies_of_an_operator() {
	mkdir "$dir/state"
	succeeds wq create $q
	touch "$dir"/state/queues.wq.{backup,before}
	status 0 wq save --boot -o "$dir/state"
	is "files" "queues.wq queues.wq.backup queues.wq.before" "$(files_of_state)"
}

test_restore_boot_in_a_running_system_runs_no_key_again() {
	local n
	mkdir "$dir/state"
	for n in a b; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n key
	done
	status 0 wq save --boot -o "$dir/state"
	is "key" key "$(wq get $q.a)"
	succeeds wq unlink $q.b 2>/dev/null
	# as wq-apply.service does after the module was replaced
	succeeds wq create $q.b
	status 0 wq restore --boot "$dir/state"
	prints "the queue '$q.a' is left as it is: the snapshot is of this boot"
	is "keys" "0 1" "$(keys_of $q.a $q.b)"
}

test_restore_boot_keeps_what_it_could_not_restore_in_a_file_of_its_own() {
	local n
	mkdir "$dir/state"
	for n in a b c; do
		succeeds wq create $q.$n
		succeeds wq add $q.$n "key of $n"
	done
	status 0 wq save --boot -o "$dir/state"
	unlink_all
	succeeds wq create $q.b
	of_nobody $q.b
	status 1 wq restore --boot "$dir/state"
	prints "wqctl restore --merge $dir/state/queues.failed"
	is "files" "queues.failed queues.wq.restored" "$(files_of_state)"
	is "keys" "0 1" "$(keys_of $q.b $q.c)"
	is "queues" "queue $q.b" "$(grep ^queue "$dir/state/queues.failed")"
	succeeds wq unlink $q.b 2>/dev/null
	status 0 wq restore --merge "$dir/state/queues.failed"
	is "key" "key of b" "$(wq get $q.b)"

	# a damaged snapshot is kept as a whole, beside the other
	status 0 wq save --boot -o "$dir/state"
	sed -i 's/key of/key ov/' "$dir/state/queues.wq"
	echo rubbish >"$dir/state/reload.wq"
	status 1 wq restore --boot "$dir/state"
	prints "reload.wq': line 1: this is not a snapshot"
	prints "queues.wq.restoring': line "
	is "files" "queues.failed queues.failed.2 reload.failed" "$(files_of_state)"
}

test_restore_boot_removes_the_snapshot_of_a_reload_when_it_is_whole() {
	mkdir "$dir/state"
	succeeds wq create $q
	succeeds wq add $q key
	status 0 wq save -o "$dir/state/reload.wq" $q
	unlink_all
	status 0 wq restore --boot "$dir/state"
	is "files, ready" "* 1" "$(files_of_state) $(stats ready)"
}

run_tests "$@"
