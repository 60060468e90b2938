#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Sample of a reconciler: a flood of updates of neighbours, and a worker that takes 100 ms for each.
#
#	sudo tools/samples/neighbours.sh [NEIGHBOURS [UPDATES]]
#
# It makes 500 NEIGHBOURS of a network device of its own, and changes each of them by 20 UPDATES.  The
# worker keeps a copy of the table of neighbours.  A listener to netlink, ip monitor, is stopped during
# the flood.
set -eu

neighbours=${1:-500} updates=${2:-20}
dir=$(mktemp -d) queue=sample-neighbours.$$ device=wqneigh monitor=

cleanup() {
	[ -z "$monitor" ] || kill -KILL "$monitor"
	wqctl unlink "$queue" 2>/dev/null || true
	ip link del "$device" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir "$dir/copy"
ip link add "$device" type dummy
ip link set "$device" up

# The worker handles a key such as neigh/7/10.99.0.1: the copy gets the present state.
cat >"$dir/worker" <<'EOF'
sleep 0.1
now=$(ip neigh show dev "$2" to "${3##*/}")
if [ -n "$now" ]; then echo "$now" >"$1/copy/${3##*/}"; else rm -f "$1/copy/${3##*/}"; fi
EOF

update=1
while [ $update -le "$updates" ]; do
	n=1
	while [ $n -le "$neighbours" ]; do
		printf 'neigh replace 10.99.%d.%d lladdr 02:00:00:%02x:%02x:%02x dev %s nud permanent\n' \
			$((n / 250)) $((n % 250 + 1)) $((n % 256)) $((update / 256)) $((update % 256)) "$device"
		n=$((n + 1))
	done
	update=$((update + 1))
done >"$dir/flood"

wqctl create "$queue" --max-keys 100000
wqctl attach "$queue" net:neigh >/dev/null
ip monitor neigh >"$dir/events" 2>"$dir/errors" &
monitor=$!
sleep 1
kill -STOP "$monitor"
ip -batch "$dir/flood"
buffer=$(awk -v pid="$monitor" '$3 == pid { print int($5 / 1024) }' /proc/net/netlink)
kill -CONT "$monitor"
sleep 1

echo "$neighbours neighbours, $updates updates of each"
echo "netlink: $(awk '{ print $1 }' "$dir/events" | grep '^10\.99\.' | sort -u | wc -l) neighbours named, ENOBUFS $(
	grep -c 'No buffer space' "$dir/errors" || true) times, $buffer KB in its buffer"
echo "wq: $(wqctl ls -0 "$queue" | tr -cd '\0' | wc -c) keys, $(
	wqctl sources "$queue" | awk 'NR > 1 { print $4 }') adds failed, $(
	wqctl stat --json "$queue" | sed -n 's/.*"memory": *\([0-9]*\).*/\1/p' |
		awk '{ print int($1 / 1024) }') KB of memory"
wqctl run -q --once -j 4 "$queue" -- sh "$dir/worker" "$dir" "$device" {}
ip neigh show dev "$device" to 10.99.0.0/16 | sort >"$dir/table"
cat "$dir"/copy/10.99.* | sort | diff - "$dir/table"
echo "the copy is equal"
