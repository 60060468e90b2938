#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# wqctl watch, attach, sources and detach, in a tmpfs, with a network device, and with a channel of BPF
# programs; and the samples of sources.  Prints TAP.  Runs as root on a machine with the module loaded;
# SOURCES is the directory of the modules of sources, WQCTL the path of wqctl, SRC that of the project.
#
# The tests run through their names. The queue's name is one word.
# shellcheck disable=SC2317,SC2086
set -u

: "${SOURCES:?set SOURCES to the directory of wq_fs.ko}"
: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

q=watched
files=$top/files
trap 'end_test; umount "$files"; busybox rmmod wq_fs wq_net wq_bpf; rm -rf "$top"' EXIT
# for a user without rights
chmod 711 "$top"
mkdir "$files" && mount -t tmpfs wq-watch "$files" || exit 1
for kind in fs net bpf; do busybox insmod "$SOURCES/wq_$kind.ko" || exit 1; done

setup() { rm -rf "${files:?}"/* && mkdir "$files/d" && "$WQCTL" create $q; }
cleanup() { "$WQCTL" unlink $q 2>/dev/null; umount "$files/d" 2>/dev/null; busybox ip link del wqwatch 2>/dev/null; :; }

keys() { "$WQCTL" ls -0 $q | sort -z | tr '\0' ' '; }
has_line() { grep -qxF -- "$2" "$1" 2>/dev/null; }
watches() { [ "$("$WQCTL" sources $q 2>/dev/null | grep -c watching)" = "$1" ]; }

test_attach_adds_a_key_for_each_file_that_changes() {
	is "the number of the source" 1 "$("$WQCTL" attach $q "fs:$files/d" | grep -cx '[0-9]*')"
	echo a >"$files/d/one"
	echo a >>"$files/d/one"
	mkdir "$files/d/sub"
	echo a >"$files/d/sub/two"
	is "keys" "one sub/ sub/two " "$(keys)"
}

test_attach_scan_begins_with_the_rescan_key_of_all() {
	succeeds wq attach --scan $q "fs:$files/d" >/dev/null
	is "keys" "/ " "$(keys)"
}

test_attach_only_and_exclude_leave_files_out() {
	succeeds wq attach --only '*.c' --exclude skip $q "fs:$files/d" >/dev/null
	mkdir "$files/d/skip"
	echo a | tee "$files/d/a.c" "$files/d/a.h" "$files/d/skip/b.c" >/dev/null
	is "keys" "a.c " "$(keys)"
}

patterns() { # EXPECTED OPTION...
	local expected=$1
	shift
	"$WQCTL" unlink $q && "$WQCTL" create $q && "$WQCTL" attach "$@" $q "fs:$files/d" >/dev/null
	touch "$files"/d/{x.c,x.h,.x.c.swp,build/x.o,src/{x.c,build/x.o,gen/x.c}}
	is "keys of $*" "$expected" "$(keys)"
}

test_patterns_are_those_of_gitignore() {
	mkdir -p "$files"/d/{build,src/{build,gen}}
	patterns "src/build/x.o src/gen/x.c src/x.c x.c " --only src --only '*.c'
	patterns "src/x.c " --only 'src/*.c'
	patterns ".x.c.swp " --only '*.sw?'
	patterns ".x.c.swp " --only '.*'
	patterns "build/x.o src/build/x.o " --only 'build/*' --only '**/*.o'
	patterns "build/x.o " --only '/build'
	patterns ".x.c.swp src/gen/x.c src/x.c x.c x.h " --exclude build/
	patterns "src/gen/x.c x.c " --only '*.c' --exclude 'src/*.c'
	patterns "src/gen/x.c " --only 'src/**/gen'
}

test_a_pattern_that_can_match_nothing_is_named_with_the_next_step() {
	bad() { reports 2 "$2" wq attach --only good --exclude "$1" $q "fs:$files/d"; }
	bad '*.{c,h}' "write one pattern for each of '*.c', '*.h'"
	bad 'a/{b,c,}/d' "'a/b/d', 'a/c/d', 'a//d'"
	bad '!x' "write '\\!x'"
	bad ./build "write '/build'"
	bad "$files/d/build" "write '/build'"
	bad a//b "'a//b' matches no path"
	bad ../a "'../a' matches no path"
	bad 'x[' "'x[' matches no path"
	bad '[[:alpha:]]' "matches no path"
	bad '' "'' matches no path"
	bad "*$(printf '%0129d' 0)*" "128 between two asterisks"
	succeeds wq attach --only '\!x' --exclude 'a\{b,c}' $q "fs:$files/d" >/dev/null
}

test_events_are_those_of_inotifywait() {
	event() { # EVENTS EXPECTED COMMAND...
		"$WQCTL" unlink $q && "$WQCTL" create $q && echo a >"$files/d/old" && rm -f "$files/d/new"
		"$WQCTL" attach --events "$1" $q "fs:$files/d" >/dev/null
		(cd "$files/d" && eval "$3")
		is "keys of $1" "$2" "$(keys)"
	}
	event modify "old " 'echo b >>old; chmod 700 .; : >new'
	event attrib "old " 'chmod 600 old; mv old new'
	event close_write "new old " ': >new; exec 3>>old 3>&-; chmod 600 old; mkdir -p x'
	event moved_from "old " 'mv old new'
	event moved_to "new " 'mv old new'
	event move "new old " 'mv old new; : >other'
	event create "new " ': >new; rm old'
	event delete "old " ': >new; rm old'
	event delete,create "new old " ': >new; rm old'
	reports 2 "'close' is no event; there are modify, attrib, close_write, moved_from, moved_to, move, create and delete" \
		wq attach --events modify,close $q "fs:$files/d"
	reports 2 "'' is no event" wq attach --events '' $q "fs:$files/d"
	reports 2 "belong to fs" wq attach --events modify $q net
}

test_watch_names_the_mounts_that_it_does_not_watch() {
	mkdir "$files/d/"{a\ b,c,other} "$files/d.not"
	mount -t tmpfs wq-watch "$files/d/a b"
	mount -t tmpfs wq-watch "$files/d.not"
	mount --bind "$files/d/other" "$files/d/c"
	"$WQCTL" watch --print "fs:$files/d" >"$out" 2>"$dir/said" &
	local pid=$!
	changed() { echo a >"$files/d/one"; has_line "$out" one; }
	eventually changed
	kill $pid
	umount "$files/d/a b" "$files/d.not" "$files/d/c"
	is "the messages" "$(printf "wqctl: '%s' is a mount point, and what is mounted there is not watched\n" \
		"$files/d/a b" "$files/d/c")" "$(<"$dir/said")"
}

test_attach_prefix_is_ahead_of_each_key() {
	succeeds wq attach --prefix src: $q "fs:$files/d" >/dev/null
	echo a >"$files/d/one"
	is "keys" "src:one " "$(keys)"
}

test_attach_net_adds_a_key_for_a_link() {
	succeeds wq attach $q net:link >/dev/null
	busybox ip link add wqwatch type dummy
	is "keys" "link/$(cat /sys/class/net/wqwatch/ifindex) " "$(keys)"
}

test_sources_lists_them_and_detach_ends_one() {
	local id
	id=$("$WQCTL" attach $q "fs:$files/d")
	"$WQCTL" attach $q net:neigh >/dev/null
	watches 2 || fail "sources: $("$WQCTL" sources $q)"
	has "the directory" "$files/d" "$("$WQCTL" sources $q)"
	succeeds wq detach $q "$id"
	watches 1 || fail "sources after detach: $("$WQCTL" sources $q)"
	echo a >"$files/d/one"
	is "keys after detach" "" "$(keys)"
	reports 3 "no source $id" wq detach $q "$id"
}

test_sources_show_the_tables_of_a_net_source_and_print_json() {
	"$WQCTL" attach $q net >/dev/null
	"$WQCTL" attach --prefix 'a"' --debounce 2s $q net:route,link >/dev/null
	has "all tables" " link,addr,neigh,route,rule,nexthop,fdb,mdb,vlan,netconf,mroute" "$("$WQCTL" sources $q)"
	has "two tables" " link,route" "$("$WQCTL" sources $q)"
	"$WQCTL" sources --json $q >"$out"
	is "JSON" '["link,addr,neigh,route,rule,nexthop,fdb,mdb,vlan,netconf,mroute",0,"",""] ["link,route",2000000000,"a\"","YSI="]' "$(jq -rc \
		'.[] | select(.state == "watching" and .kind == "net" and .error == 0) |
			[.watches, .delay_ns, .prefix, .prefix_base64]' "$out" | paste -sd ' ')"
	"$WQCTL" detach $q 1 && "$WQCTL" detach $q 2
	status 3 wq sources --json $q
	is "JSON of none" "[]" "$(<"$out")"
}

test_sources_of_a_queue_without_any_exits_with_3() {
	status 3 wq sources $q
}

test_ls_and_metrics_show_that_a_rescan_key_waits_for_room() {
	"$WQCTL" unlink $q
	"$WQCTL" create --max-keys 1 $q
	"$WQCTL" attach $q "fs:$files/d" >/dev/null
	echo a >"$files/d/one"
	has ls " open " "$("$WQCTL" ls)"
	echo a >"$files/d/two"
	has ls " rescan " "$("$WQCTL" ls)"
	has metrics "wq_rescan{name=\"$q\"} 1" "$("$WQCTL" metrics $q)"
	succeeds wq cancel $q one >/dev/null
	keys_are_scanned() { [ "$(keys)" = "/ " ] && [[ $(wq ls) = *" open "* ]]; }
	eventually keys_are_scanned
}
test_sources_reports_a_directory_that_was_removed() {
	"$WQCTL" attach $q "fs:$files/d" >/dev/null
	rmdir "$files/d"
	has "state" removed "$("$WQCTL" sources $q)"
}

test_watch_runs_a_command_for_each_change_and_not_for_its_own() {
	# shellcheck disable=SC2016  # for the worker's shell
	"$WQCTL" watch -q "fs:$files/d" -- sh -c 'echo "$1"; echo x >"$0/own"' "$files/d" {} >"$out" &
	local pid=$!
	changed() { echo a >"$files/d/one"; has_line "$out" one; }
	eventually changed
	kill $pid
	wait $pid
	is status 0 $?
	has_no "output" own "$(<"$out")"
}

test_watch_takes_no_name_for_an_option_and_puts_prefix_ahead() {
	local pid
	cd "$files/d" || exit 1
	"$WQCTL" watch -q --max-retries 0 fs: -- cat >"$out" 2>"$err" &
	pid=$!
	changed() { echo text >--version; has_line "$out" text; }
	eventually changed
	kill $pid
	wait $pid
	is status 0 $?
	cd ..
	"$WQCTL" watch -q --scan --prefix d/ fs:d -- echo key >"$out" &
	pid=$!
	eventually has_line "$out" "key d/"
	echo a >d/--version
	eventually has_line "$out" "key d/--version"
	kill $pid
	wait $pid
	reports 2 "is longer than 31 bytes" wq attach --prefix "$(printf %032d 0)" $q fs:
}

test_watch_escapes_a_prefix_of_up_to_4095_bytes() {
	local pid prefix
	prefix=$(printf '%04095d' 0)
	prefix=${prefix//0/$'\t'}
	"$WQCTL" watch --print --prefix "$prefix" "fs:$files/d" >"$out" 2>"$err" &
	pid=$!
	changed() { echo a >"$files/d/one"; has_line "$out" "${prefix//$'\t'/\\t}one"; }
	eventually changed
	kill $pid
	wait $pid
	is status 0 $?
	reports 2 "is longer than 4095 bytes" wq watch --print --prefix "$prefix." "fs:$files/d"
}

test_watch_of_a_file_sees_it_replaced_and_no_other() {
	local pid name='a[1]*.conf'
	cd "$files/d" || exit 1
	echo 0 >"$name"
	"$WQCTL" watch -q --max-retries 0 "fs:$files/d/$name" -- cat >"$out" 2>"$err" &
	pid=$!
	changed() { echo 1 >"$name"; has_line "$out" 1; }
	eventually changed
	echo 2 >temporary
	mv temporary "$name"
	eventually has_line "$out" 2
	rm "$name"
	echo 3 >a1x.conf
	echo 4 >"$name"
	eventually has_line "$out" 4
	kill $pid
	wait $pid
	has_no "output" 3 "$(<"$out")"
	reports 2 "belong to a directory" wq watch --print --only x "fs:$files/d/$name"
}

test_watch_of_a_file_that_changes_all_the_time_has_runs() {
	local a b
	"$WQCTL" watch --print --debounce 1s --max-defer 1ms "fs:$files/d" >"$out" &
	a=$!
	"$WQCTL" watch --print --debounce 400ms "fs:$files/d" >"$top/bound" &
	b=$!
	changed() { echo a >>"$files/d/one"; [ -s "$out" ] && [ -s "$top/bound" ]; }
	eventually changed
	kill $a $b
	wait $a
	is status 0 $?
	reports 0 "is never ready" wq attach --debounce 1s $q "fs:$files/d"
}

# watching OPTION...: watch in the background, its process is $pid, its messages are in $dir/said
watching() {
	"$WQCTL" watch "$@" >"$out" 2>"$dir/said" &
	pid=$!
	sees_changes() { echo a >"$files/d/one"; has_line "$out" one; }
	eventually sees_changes
}
says() { grep -qF -- "$1" "$dir/said"; }
lines() { grep -cxF -- "$1" "$out"; }
exists_not() { [ ! -e "$1" ]; }
ends_with() { # STATUS
	local got=0
	wait $pid || got=$?
	is status "$1" $got
}

test_watch_ends_with_its_file_system_after_the_keys_that_wait_but_that_of_all() {
	local pid
	mount -t tmpfs wq-watch "$files/d"
	# shellcheck disable=SC2016  # for the command's shell
	"$WQCTL" watch -q --scan "fs:$files/d" -- sh -c 'echo "$1"; until [ -e "$0" ]; do sleep 0.1; done
		[ "$1" != / ]' "$dir/go" >"$out" 2>"$dir/said" &
	pid=$!
	eventually has_line "$out" /
	echo a >"$files/d/one"
	echo a >"$files/d/two"
	umount "$files/d"
	: >"$dir/go"
	ends_with 1
	is "the runs" "/ one two" "$(paste -sd ' ' "$out")"
	is "the messages" "wqctl: 'fs:$files/d' is no longer watched: its file system was unmounted; \
watch ends; start it again with --scan when that is back, or use --follow" "$(<"$dir/said")"
}

test_watch_ends_when_only_keys_are_left_that_failed() {
	local pid
	# shellcheck disable=SC2016  # for the command's shell
	watching "fs:$files/d" -- sh -c 'echo "$1"; exit 1' sh
	rm -r "$files/d"
	ends_with 1
	says "its directory was removed or replaced; watch ends" || fail "messages: $(<"$dir/said")"
	says "1 key gets no further retry" || fail "messages: $(<"$dir/said")"
}

test_watch_print_ends_if_its_directory_is_replaced() {
	local pid
	watching --print "fs:$files/d"
	rm "$files/d/one"
	mv "$files/d" "$files/old"
	kill -0 $pid || fail "watch ended by a rename of its directory"
	mkdir "$files/new"
	mv -T "$files/new" "$files/old"
	ends_with 1
	says "its directory was removed or replaced; watch ends" || fail "messages: $(<"$dir/said")"
}

# follows OPTION...: watch --follow of $files/d, which $gone takes away and $back brings back
follows() {
	local pid
	watching --follow "$@"
	$gone
	eventually says "is no longer watched: $reason; watch waits until it is back"
	$meanwhile
	is "runs of the key of all" 0 "$(lines /)"
	$back
	eventually says "is back, and is watched again"
	eventually has_line "$out" /
	later() { echo a >"$files/d/later"; has_line "$out" later; }
	eventually later
	is "runs of the key of all" 1 "$(lines /)"
	has_no "what runs" meanwhile "$(<"$out")"
	kill $pid
	ends_with 0
}

test_watch_follow_waits_for_the_mount_and_not_for_the_mount_point() {
	local reason="its file system was unmounted"
	takes_away() { umount "$files/d"; }
	meanwhile() { echo a >"$files/d/meanwhile"; nap 2; echo a >"$files/d/meanwhile"; }
	back() { mount -t tmpfs wq-watch "$files/d"; }
	local gone=takes_away meanwhile=meanwhile back=back
	back
	follows --print "fs:$files/d"
	follows "fs:$files/d" -- echo
}

test_watch_follow_waits_for_the_directory() {
	local reason="its directory was removed or replaced"
	takes_away() { rm -r "$files/d"; }
	back() { mkdir "$files/d"; }
	local gone=takes_away meanwhile=: back=back
	follows -j 2 "fs:$files/d" -- echo
	cd "$files" || exit 1
	follows --print fs:d
	cd d || exit 1
	follows --print fs:
}

test_watch_follow_of_a_file_waits_for_its_directory() {
	local pid
	echo a >"$files/d/f.conf"
	"$WQCTL" watch --follow --print "fs:$files/d/f.conf" >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo a >>"$files/d/f.conf"; [ -s "$out" ]; }
	eventually changed
	rm -r "$files/d"
	eventually says "its directory was removed or replaced; watch waits until it is back"
	: >"$out"
	mkdir "$files/d"
	eventually says "is watched again"
	eventually has_line "$out" "$files/d/f.conf"
	kill $pid
	ends_with 0
}

# The writes of kubelet's AtomicWriter, which makes a volume of a ConfigMap or a Secret.
config_map() { # DIRECTORY VERSION TEXT
	local old
	old=$(readlink "$1/..data")
	mkdir "$1/..$2"
	echo "$3" >"$1/..$2/app.conf"
	chmod 644 "$1/..$2/app.conf"
	ln -s "..$2" "$1/..data_tmp"
	mv -T "$1/..data_tmp" "$1/..data"
	[ -L "$1/app.conf" ] || ln -s ..data/app.conf "$1/app.conf"
	[ -z "$old" ] || rm -r "${1:?}/$old"
}

test_watch_follow_sees_each_version_of_a_config_map() {
	local pid print version
	config_map "$files/d" 2026_1 version-0
	"$WQCTL" watch --follow "fs:$files/d/app.conf" -- cat >"$out" 2>"$dir/said" &
	pid=$!
	(cd "$files" && exec "$WQCTL" watch --follow --print fs:d/app.conf) >>"$top/print" 2>"$top/print.said" &
	print=$!
	# a write in place, so that both watch
	changed() { echo version-1 >>"$files/d/app.conf"; has_line "$out" version-1 && [ -s "$top/print" ]; }
	eventually changed
	# A run for the version before can print this one, too.
	moved() { [ "$(grep -c "leads to another place" "$dir/said")" -eq $((version - 1)) ]; }
	for version in 2 3 4; do
		: >"$top/print"
		config_map "$files/d" 2026_$version version-$version
		eventually moved
		eventually has_line "$out" version-$version
		eventually has_line "$top/print" d/app.conf
		is "lines of print" "" "$(grep -vxF d/app.conf "$top/print")"
	done
	# the directory that is watched now
	echo version-5 >"$files/d/app.conf"
	eventually has_line "$out" version-5
	is "messages" "$(for version in 2 3 4; do
		echo "wqctl: 'fs:$files/d/app.conf' is watched again: its path leads to another place"; done)" \
		"$(<"$dir/said")"
	has_no "messages of print" "no longer" "$(<"$top/print.said")"
	kill $pid $print
	ends_with 0
}

test_watch_follow_of_a_file_sees_links_and_directories_replaced() {
	local pid
	mkdir "$files/"{one,two,new}
	echo one >"$files/one/f"
	echo two >"$files/two/g"
	echo new >"$files/new/f"
	ln -s one "$files/current"
	ln -s current/f "$files/link"
	"$WQCTL" watch --follow "fs:$files/link" -- cat >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo first >"$files/one/f"; has_line "$out" first; }
	eventually changed
	ln -s two/g "$files/link.new"
	mv -T "$files/link.new" "$files/link"
	eventually has_line "$out" two
	echo second >"$files/two/g"
	eventually has_line "$out" second
	ln -s current/f "$files/link.new"
	mv -T "$files/link.new" "$files/link"
	eventually says "is watched again"
	mv "$files/one" "$files/old"
	# the path leads nowhere for some time
	nap 2
	mv "$files/new" "$files/one"
	eventually has_line "$out" new
	kill $pid
	ends_with 0
}

test_watch_follow_of_a_file_waits_for_a_directory_that_it_may_not_open() {
	local pid
	mkdir "$files/"{one,two}
	echo one >"$files/one/f"
	echo two >"$files/two/g"
	chown 1234 "$files/two"
	chmod 711 "$files/two"
	ln -s one/f "$files/link"
	setpriv --bounding-set=-dac_override,-dac_read_search "$WQCTL" watch --follow "fs:$files/link" -- cat \
		>"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo first >"$files/one/f"; has_line "$out" first; }
	eventually changed
	ln -s two/g "$files/link.new"
	mv -T "$files/link.new" "$files/link"
	eventually says "is no longer watched: its path leads to another place; watch waits"
	# a look later
	nap 2
	has_no "messages" "watched again" "$(<"$dir/said")"
	rm "$files/two/g"
	chmod 755 "$files/two"
	nap 2
	echo second >"$files/two/g"
	eventually has_line "$out" second
	# the name in that directory, too
	changed() { echo third >"$files/two/g"; has_line "$out" third; }
	eventually changed
	kill $pid
	ends_with 0
}

test_watch_of_a_file_ends_if_its_path_leads_to_another_place() {
	local pid
	config_map "$files/d" 2026_1 version-0
	"$WQCTL" watch "fs:$files/d/app.conf" -- cat >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo version-1 >"$files/d/app.conf"; has_line "$out" version-1; }
	eventually changed
	config_map "$files/d" 2026_2 version-2
	ends_with 1
	says "is no longer watched: " || fail "messages: $(<"$dir/said")"
	mkdir "$files/other"
	echo text >"$files/other/app.conf"
	ln -s d/app.conf "$files/link"
	# else changed() can see the output of the first watch
	: >"$out"
	"$WQCTL" watch --print "fs:$files/link" >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo version-1 >"$files/d/app.conf"; [ -s "$out" ]; }
	eventually changed
	# nothing is removed
	ln -sfn other/app.conf "$files/link"
	ends_with 1
	says "is no longer watched: its path leads to another place; watch ends" || fail "messages: $(<"$dir/said")"
}

test_watch_of_a_file_that_is_a_mount_point_is_refused() {
	local pid
	echo text | tee "$files/source" >"$files/d/app.conf"
	mount --bind "$files/source" "$files/d/app.conf"
	reports 2 "is a mount point" wq watch --print "fs:$files/d/app.conf"
	umount "$files/d/app.conf"
	"$WQCTL" watch --print --follow "fs:$files/d/app.conf" >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo text >"$files/d/app.conf"; [ -s "$out" ]; }
	eventually changed
	mount --bind "$files/source" "$files/d/app.conf"
	eventually says "is no longer watched: its path leads to another place; watch waits"
	: >"$out"
	umount "$files/d/app.conf"
	eventually says "is back, and is watched again"
	eventually has_line "$out" "$files/d/app.conf"
	kill $pid
	ends_with 0
}

test_watch_of_a_file_follows_no_link_that_the_kernel_does_not_follow() {
	local was pid
	was=$(</proc/sys/fs/protected_symlinks)
	echo 1 >/proc/sys/fs/protected_symlinks
	mkdir -m 1777 "$files/shared"
	echo text >"$files/shared/app.conf"
	echo secret >"$files/d/secret"
	"$WQCTL" watch --follow "fs:$files/shared/app.conf" -- cat >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo first >"$files/shared/app.conf"; has_line "$out" first; }
	eventually changed
	rm "$files/shared/app.conf"
	setpriv --reuid 1234 --regid 1234 --clear-groups ln -s "$files/d/secret" "$files/shared/app.conf"
	nap 3
	has_no "messages" "watched" "$(<"$dir/said")"
	rm "$files/shared/app.conf"
	echo third >"$files/shared/app.conf"
	eventually has_line "$out" third
	has_no "output" secret "$(<"$out")"
	kill $pid
	ends_with 0
	echo "$was" >/proc/sys/fs/protected_symlinks
}

test_watch_print_follow_waits_again_if_its_directory_goes_during_the_attach() {
	local pid
	SHIM=detach SHIM_DIR=$files/d LD_PRELOAD=${0%/*}/shim/wqctl_shim.so \
		"${WQCTL_SHARED:-$WQCTL}" watch --print --follow "fs:$files/d" >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo a >"$files/d/one"; has_line "$out" one; }
	eventually changed
	rm -r "$files/d"
	eventually says "watch waits until it is back"
	mkdir "$files/d"
	# by the shim
	eventually exists_not "$files/d"
	has_no "messages" "is watched again" "$(<"$dir/said")"
	mkdir "$files/d"
	eventually says "is back, and is watched again"
	eventually has_line "$out" /
	kill $pid
	ends_with 0
}

test_watch_debounce_batch_runs_once_for_a_burst() {
	local pid i
	# shellcheck disable=SC2016  # for the command's shell
	"$WQCTL" watch -q --debounce 1s --batch all --stdin "fs:$files/d" -- sh -c 'sort | paste -sd " "' >>"$out" &
	pid=$!
	first() { echo a >"$files/d/first"; nap 1; has_line "$out" first; }
	eventually first
	# the last of these changes, too
	nap 3
	: >"$out"
	for i in 1 2 3 4 5 6; do
		echo a >"$files/d/$i"
		nap 0.3
	done
	eventually test -s "$out"
	nap 1.5
	kill $pid
	wait $pid
	is status 0 $?
	is "runs" "1 2 3 4 5 6" "$(<"$out")"
}

test_watch_restart_starts_a_command_and_ends_it_at_each_change() {
	local pid
	# shellcheck disable=SC2016  # for the command's shell
	"$WQCTL" watch --restart --debounce 100ms --kill-after 200ms "fs:$files/d" -- bash -c 'echo "start $$ $#"
		trap "" TERM; [ ! -e "$0/polite" ] || trap "echo polite; exit 0" TERM
		[ ! -e "$0/fails" ] || exit 3
		while :; do sleep 1000 & wait; done' "$files/d" >"$out" 2>"$dir/said" &
	pid=$!
	starts() { [ "$(grep -c "^start [0-9]* 0$" "$out")" -eq "$1" ]; }
	runs() { [ "$(pgrep -c -P "$(pgrep -P $pid)" bash)" = "$1" ]; }
	eventually starts 1
	# that ignores SIGTERM
	echo a >"$files/d/one"
	echo a >"$files/d/two"
	eventually starts 2
	nap 0.5
	runs 1 || fail "expected one command, seen $(pgrep -c -P "$(pgrep -P $pid)" bash)"
	echo a >"$files/d/polite"
	eventually starts 3
	echo a >"$files/d/three"
	eventually starts 4
	eventually has_line "$out" polite
	# a command that ends by itself starts at the next change
	echo a >"$files/d/fails"
	eventually says "'bash' ended: exit 3; it starts again at the next change"
	starts 5 || fail "starts: $(<"$out")"
	rm "$files/d/fails"
	eventually starts 6
	# after a crash, without a change
	kill -9 "$(pgrep -P $pid)"
	eventually starts 7
	runs 1 || fail "expected one command, seen $(pgrep -c -P "$(pgrep -P $pid)" bash)"
	kill $pid
	ends_with 0
	! pgrep -f "$files/d\$" || fail "a command outlives watch"
	reports 2 "--restart can't be combined" wq watch --restart --batch 2 net -- true
}

test_watch_print_escapes_names() {
	"$WQCTL" watch --print "fs:$files/d" >"$out" &
	local pid=$!
	changed() { : >"$files/d/"$'a\nb'; has_line "$out" 'a\nb'; }
	eventually changed
	kill $pid
}

test_watch_print_goes_on_after_a_stop() {
	"$WQCTL" watch --print "fs:$files/d" >"$out" 2>"$err" &
	local pid=$!
	changed() { echo a >"$files/d/$1"; has_line "$out" "$1"; }
	in_state() {
		local stat
		read -r stat <"/proc/$pid/stat" && [[ $stat = *") $1 "* ]]
	}
	eventually changed one
	eventually in_state S
	kill -STOP $pid
	eventually in_state T
	kill -CONT $pid
	eventually changed two
	kill $pid
	succeeds wait $pid
}

test_watch_print_that_is_stopped_at_a_full_pipe_succeeds() {
	local pid name i
	name=$(printf '%0200d' 0)
	mkfifo "$dir/pipe" && exec 5<>"$dir/pipe"
	"$WQCTL" watch --print "fs:$files/d" >"$dir/pipe" 2>"$err" &
	pid=$!
	# until there is a source, and a line for each of more files than a pipe has room for
	blocked() {
		for i in {1..400}; do : >"$files/d/$name.$i"; done
		grep -q pipe_write "/proc/$pid/wchan"
	}
	eventually blocked
	kill $pid
	succeeds wait $pid
	is "what it reports" "" "$(<"$err")"
}

test_watch_leaves_nothing_behind_if_it_is_killed() {
	"$WQCTL" watch --print "fs:$files/d" >"$out" &
	local pid=$!
	changed() { echo a >"$files/d/one"; has_line "$out" one; }
	eventually changed
	kill -9 $pid
	wait $pid
	unused() { [ "$(cat /sys/module/wq_fs/refcnt)" = 0 ]; }
	eventually unused
}

test_attach_bpf_takes_a_channel() {
	succeeds wq attach $q bpf:3 >/dev/null
	has "sources" "channel 3" "$("$WQCTL" sources $q)"
	reports 1 "another source has this channel" wq watch --print bpf:3
	succeeds wq detach $q 1
}

test_a_source_that_watch_can_not_attach_is_no_queue_in_the_message() {
	SHIM=attach LD_PRELOAD=${0%/*}/shim/wqctl_shim.so \
		status 1 "${WQCTL_SHARED:-$WQCTL}" watch --print "fs:$files/d"
	# The queue is found, and has room.
	prints "can't watch 'fs:$files/d': the queues of its owner take as much memory"
	has_no "what it reports" "stat fs:" "$(<"$err")"
}

test_bad_arguments_of_watch_and_attach_are_named() {
	reports 2 "can't open the directory" wq watch --print "fs:$files/none"
	reports 2 "is nothing to watch" wq watch --print nothing:x
	reports 2 "'nothing' is no table of the network; there are link, addr, neigh, route, rule, nexthop, fdb, mdb, vlan, netconf and mroute" wq attach $q net:nothing
	reports 2 "belong to fs" wq attach --children $q net:link
	reports 2 "belong to fs" wq attach --only x $q bpf:1
	reports 2 "is no channel" wq attach $q bpf:256
	reports 2 "is no channel" wq attach $q bpf:
	reports 2 "give either a command to run, or --print" wq watch net:link
	reports 2 "not the number of a source" wq detach $q x
}

test_watch_without_the_right_names_the_right() {
	chmod 666 /dev/wq
	reports 1 CAP_SYS_ADMIN as_user watch --print "fs:$files/d"
	reports 1 CAP_BPF as_user watch --print bpf:1
	chmod 600 /dev/wq
}

test_watch_without_rights_to_the_device_names_a_way_that_works() {
	local way pid
	chown 1234 "$files/d"
	status 1 as_user watch "fs:$files/d" -- echo
	prints "you cannot open /dev/wq"
	way=$(sed -n 's/.*which remains: //p' "$err")
	way=${way//NAME/$q.user}
	cd "$files/d" || exit 1
	PATH=${WQCTL%/*}:$PATH setpriv --reuid 1234 --regid 1234 --clear-groups \
		bash -c "exec 3>&1; ${way/COMMAND/echo}" >"$out" 2>"$dir/said" &
	pid=$!
	changed() { echo a >one; has_line "$out" one; }
	eventually changed
	pkill -P $pid -x wqctl || kill $pid
	wait $pid
	"$WQCTL" unlink $q.user
}

test_a_user_has_as_many_watches_as_user_sources() {
	local limit=/sys/module/wq/parameters/user_sources was i pids=()
	was=$(<$limit)
	chmod 666 /dev/wq
	echo 24 >$limit
	for ((i = 0; i < 24; i++)); do
		as_user watch --print net >/dev/null 2>>"$out" &
		pids+=($!)
	done
	all_watch() { as_user info | grep -qx 'charged_sources  *24'; }
	eventually all_watch
	is "what they print" "" "$(<"$out")"
	reports 1 "you have 24 sources, which is the limit user_sources" as_user watch --print net
	kill "${pids[@]}"
	wait "${pids[@]}"
	echo "$was" >$limit
	chmod 600 /dev/wq
}

test_watch_of_a_user_without_keys_names_user_keys() {
	local limit=/sys/module/wq/parameters/user_keys was pid
	was=$(<$limit)
	chmod 666 /dev/wq
	echo 1 >$limit
	as_user watch --print net >/dev/null 2>>"$out" &
	pid=$!
	watches() { as_user info | grep -qx 'charged_keys  *1'; }
	eventually watches
	reports 1 "has reached user_keys; unlink a queue" as_user watch --print net
	kill $pid
	wait $pid
	echo "$was" >$limit
	chmod 600 /dev/wq
}

# sample NAME ARGUMENT...: runs it, and its output is in $out
sample() {
	PATH=${WQCTL%/*}:$PATH "$@" >"$out" 2>&1 || fail "$1: $(<"$out")"
}
sample_printed() { grep -qxE -- "$1" "$out" || fail "expected the line $1, seen $(<"$out")"; }

test_sample_of_a_tree_makes_the_copy_equal() {
	sample "$SRC/tools/samples/tree.sh" 10 0
	sample_printed "wq: [0-9]+ lines, 10 of these files named, [0-9]+ ms of CPU"
	sample_printed "inotifywait: [0-9]+ lines, [0-9]+ of these files named, [0-9]+ ms of CPU"
	sample_printed "watchman: [0-9]+ lines, 10 of these files named, [0-9]+ ms of CPU"
	sample_printed "the queue: [0-9]+ keys, 15 of them directories, 0 adds failed"
	sample_printed "the copy is equal"
	sample_printed "the copy outlives the tree"
	! pgrep -f "watch --print|inotifywait|watchman" || fail "the sample has left a process"
}

test_sample_of_neighbours_makes_the_copy_equal() {
	sample "$SRC/tools/samples/neighbours.sh" 8 20
	sample_printed "netlink: [0-9]+ neighbours named, ENOBUFS [0-9]+ times, [0-9]+ KB in its buffer"
	sample_printed "wq: 8 keys, 0 adds failed, [0-9]+ KB of memory"
	sample_printed "the copy is equal"
}

test_sample_of_opens_runs_once_for_each_file() {
	sample "$(dirname "$0")/samples/opens" 20000 500 256
	sample_printed "the program saw 20000 opens of 500 files"
	sample_printed "ring buffer of 256 KB: [1-9][0-9]* events dropped"
	sample_printed "wq: 500 runs, 0 of them rescans"
}

run_tests "$@"
