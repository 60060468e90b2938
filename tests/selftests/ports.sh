#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The samples that do with wq what parts of the kernel do: each makes its own load, is unloaded at
# any moment, and counts what must not be.  Prints TAP.  Runs as root on a machine with the module
# loaded; SAMPLES is the directory of the samples' modules.
#
# The tests run through their names.
# shellcheck disable=SC2317
set -u

: "${SAMPLES:?set SAMPLES to the directory of wq_hub.ko and the other samples}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

ports=(wq_hub wq_linkwatch wq_probe wq_reconnect)

load() { succeeds busybox insmod "$SAMPLES/$1.ko"; }
unload() { succeeds busybox rmmod "$1"; }

cleanup() {
	local port
	for port in "${ports[@]}"; do
		[ ! -d "/sys/module/$port" ] || busybox rmmod "$port"
	done
}

# logged NAME N: its last messages
logged() { busybox dmesg | sed -n "s/.*\] $1: //p" | tail -n "$2"; }

# works NAME MESSAGES REGEX: unloaded early and late, its last messages match
works() {
	local seconds
	for seconds in 0.01 0.1 0.5 2; do
		load "$1"
		nap "$seconds"
		unload "$1"
		matches "$1 after $seconds s" "$3" "$(logged "$1" "$2")"
	done
	# the last time there was work
	has_no "$1" ", 0 changes handled" "$(logged "$1" "$2")"
}

test_hubs_are_released_and_their_runs_do_not_overlap() {
	works wq_hub 1 '^[0-9]+ hubs, 0 not released, 0 overlaps, [0-9]+ changes handled$'
}

test_reports_of_links_are_true() {
	works wq_linkwatch 1 '^[0-9]+ changes, [0-9]+ reports, 0 wrong$'
}

test_devices_whose_supplier_came_are_bound() {
	works wq_probe 2 '^0 devices are not bound'
}

test_hosts_reconnect_within_their_own_limits() {
	works wq_reconnect 1 '^[0-9]+ connects, [0-9]+ given up, 0 wrong$'
	matches "connects" '[1-9][0-9]* connects' "$(logged wq_reconnect 1)"
}

test_all_at_once() {
	local port users
	users=$(</sys/module/wq/refcnt)
	for port in "${ports[@]}"; do load "$port"; done
	nap 1
	for port in "${ports[@]}"; do unload "$port"; done
	is "users of wq" "$users" "$(</sys/module/wq/refcnt)"
}

run_tests "$@"
