#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A source of kind net beside ip monitor and bridge monitor: each line that these print has a key, or the
# rescan key of its table.  The commands are drawn by a seed.  Prints TAP.  Runs as root on a machine
# with the module loaded; SOURCES is the directory of the modules of sources, WQCTL the path of wqctl, SRC
# the path of the project.
#
# The tests run through their names.
# shellcheck disable=SC2317,SC2086
set -u

: "${SOURCES:?set SOURCES to the directory of wq_net.ko}"
: "${WQCTL:?set WQCTL to the path of wqctl}"
: "${SRC:?set SRC to the path of the project}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

q=monitored
[ -n "${MONITOR_NETNS-}" ] || { export MONITOR_NETNS=1; exec unshare -n "$0" "$@"; }
trap 'end_test; busybox rmmod wq_net; rm -rf "$top"' EXIT
busybox insmod "$SOURCES/wq_net.ko" || exit 1
modprobe -qa dummy veth bridge vrf 8021q 2>/dev/null

setup() { "$WQCTL" create --max-keys 100000 $q; }
cleanup() { "$WQCTL" unlink $q 2>/dev/null; }

# Random commands, each with its program and family.  Commands that fail are commands, too.
commands() {
	awk -v n="$1" -v seed="$2" '
	function draw(m) { return int(rand() * m) }
	function pick(list,   words, k) { k = split(list, words, " "); return words[draw(k) + 1] }
	function dev() { return pick("wqm0 wqm1 wqbr wqvrf") }
	BEGIN {
		srand(seed)
		while (n--) {
			h = draw(9) + 1
			d = dev()
			to = "ip -4"
			c = draw(16)
			if (c == 0) s = "link set " d " " pick("up down promisc\\ on promisc\\ off allmulticast\\ on allmulticast\\ off arp\\ off arp\\ on multicast\\ off mtu\\ 1400 mtu\\ 1500")
			else if (c == 1) s = "addr " pick("add del replace") " 10.1.0." h "/24 dev " d
			else if (c == 2) s = "addr replace 10.1.0." h "/24 dev " d " valid_lft " 1000 + draw(9) " preferred_lft " 500
			else if (c == 3) { to = "ip -6"; s = "addr " pick("add del replace") " 2001:db8::" h "/64 dev " d }
			else if (c == 4) s = "route " pick("add append replace del") " 10." 20 + h ".0.0/16 dev " d " metric " draw(3)
			else if (c == 5) s = "route " pick("add append replace del") " default dev " d " metric " draw(4) + 1
			else if (c == 6) { to = "ip -6"; s = "route " pick("add append replace del") " 2001:db8:" h "::/48 dev " d " metric " draw(3) + 1 }
			else if (c == 7) s = "rule " pick("add del") " from 10.30.0." h " table " 100 + h " priority " 1000 + h
			else if (c == 8) { to = "ip -6"; s = "rule " pick("add del") " from 2001:db8::" h " table " 100 + h " priority " 1000 + h }
			else if (c == 9) s = "nexthop " pick("add replace del") " id " h " dev " d
			else if (c == 10) s = "route " pick("replace del") " 10." 50 + h ".0.0/16 nhid " h
			else if (c == 11) s = "neigh " pick("replace del") " 10.1.0." 100 + h " lladdr 02:00:00:00:01:0" h " nud permanent dev " d
			else if (c == 12) s = "link set wqm" draw(2) " " pick("master\\ wqbr nomaster master\\ wqvrf")
			else { to = "bridge"
				if (c == 13) s = "fdb " pick("replace del") " 02:00:00:00:02:0" h " dev " pick("wqm0 wqm1") " master static"
				else if (c == 14) s = "vlan " pick("add del") " dev " pick("wqm0 wqm1") " vid " h
				else s = "mdb " pick("add del") " dev wqbr port " pick("wqm0 wqm1") " grp 239.1.1." h " permanent"
			}
			gsub(/\\ /, " ", s)
			print to ":" s
		}
	}'
}

# The keys of what the monitors printed.  ip prints a name for what has one, and a route without its
# length or its table if these are the usual ones.
keys_of_ip() {
	awk -v family="$1" -v links="$top/links" '
	BEGIN { while ((getline < links) > 0) index_of[$2] = $1 }
	function ifindex(name) { sub(/@.*/, "", name); return name in index_of ? index_of[name] : name }
	function after(word,   i) { for (i = 1; i < NF; i++) if ($i == word) return $(i + 1); return "" }
	{
		gsub(/[\\]/, " ")
		label = $0; sub(/\].*/, "", label); sub(/^\[/, "", label)
		sub(/^\[[A-Z]*\]/, "")
		sub(/^ *[Dd]eleted /, "")
		$0 = $0
	}
	label == "LINK" { sub(/:.*/, "", $1); print "link/" $1 }
	label == "ADDR" { a = $4; sub(/\/.*/, "", a); sub(/:$/, "", $1); print "addr/" $1 "/" a }
	label == "NEIGH" && $1 !~ /^[0-9a-f][0-9a-f]:..:..:..:..:..$/ && $1 != "dev" { print "neigh/" ifindex(after("dev")) "/" $1 }
	label == "RULE" { sub(/:.*/, "", $1); print "rule/" family "/" $1 }
	label == "NEXTHOP" { print "nexthop/" $2 }
	label == "NETCONF" { d = after("dev"); print "netconf/" $1 "/" ifindex(d == "" ? $2 : d) }
	label == "ROUTE" {
		if ($1 ~ /^(local|broadcast|multicast|anycast|unicast|unreachable|blackhole|prohibit)$/) { $1 = ""; $0 = $0; $1 = $1 }
		dst = $1
		if (dst == "default") dst = family == "inet" ? "0.0.0.0/0" : "::/0"
		else if (dst !~ /\//) dst = dst (family == "inet" ? "/32" : "/128")
		t = after("table")
		print "route/" (t == "" ? "main" : t) "/" dst
	}'
}

keys_of_bridge() {
	awk -v links="$top/links" '
	BEGIN { while ((getline < links) > 0) index_of[$2] = $1 }
	function after(word,   i) { for (i = 1; i < NF; i++) if ($i == word) return $(i + 1); return "" }
	{ sub(/^\[[A-Z]*\]/, ""); sub(/^ *[Dd]eleted /, ""); $0 = $0 }
	/^..:..:..:..:..:.. / && after("dev") in index_of { print "fdb/" index_of[after("dev")] "/" $1 }
	/^dev .* grp / { print "mdb/" index_of[$2] }
	'
}

listen() {
	local file=$1
	shift
	"$@" >"$file" 2>&1 &
	monitors+=($!)
}

# Changes for each of the monitors.
some_changes() {
	ip link set lo up && ip link set lo down
	ip addr add 10.255.0.1/32 dev wqm0 && ip addr del 10.255.0.1/32 dev wqm0
	ip -6 rule add priority 9 && ip -6 rule del priority 9
	bridge mdb add dev wqbr port wqm0 grp 239.9.9.9 permanent
	bridge mdb del dev wqbr port wqm0 grp 239.9.9.9 permanent
	# bridge writes its lines about groups when it has one of these.
	bridge fdb replace 02:00:00:00:09:01 dev wqm0 master static
	bridge fdb del 02:00:00:00:09:01 dev wqm0 master
}

all_listen() {
	some_changes
	[ -s "$top/inet" ] && [ -s "$top/inet6" ] && [ -s "$top/link" ] && [ -s "$top/bridge" ]
}

# Each program starts once for the commands of a round, because a start takes long in a guest.
round() {
	local to file
	commands 30 "$1" >"$top/commands"
	for to in "ip -4" "ip -6" bridge; do
		sed -n "s/^$to://p" "$top/commands" >"$top/batch"
		$to -force -batch "$top/batch"
	done >/dev/null 2>&1
	for file in ipv4/conf/wqm0 ipv4/conf/all ipv6/conf/wqm1; do
		echo $(($1 % 2)) >"/proc/sys/net/$file/forwarding"
	done
}

test_each_line_of_ip_monitor_and_bridge_monitor_has_a_key() {
	local monitors=() kind kinds i
	ip link add wqm0 type dummy
	ip link add wqm1 type dummy
	ip link add wqbr type bridge vlan_filtering 1 mcast_snooping 1
	ip link add wqvrf type vrf table 50
	ip link set wqbr up
	ip link set wqm0 up master wqbr
	ip -o link | awk -F '[ :@]+' '{ print $1, $2 }' >"$top/links"
	succeeds wq attach $q net >/dev/null
	listen "$top/inet" ip -4 -o monitor label all
	listen "$top/inet6" ip -6 -o monitor label all
	listen "$top/link" ip -o monitor label link
	listen "$top/bridge" bridge monitor fdb mdb
	eventually all_listen
	for ((i = 1; i <= 20; i++)); do round $i; done
	some_changes
	sleep 1
	kill "${monitors[@]}"
	{
		keys_of_ip inet <"$top/inet"
		keys_of_ip inet6 <"$top/inet6"
		keys_of_ip inet <"$top/link"
		keys_of_bridge <"$top/bridge"
	} | sort -u >"$top/expected"
	"$WQCTL" ls -0 $q | tr '\0' '\n' | sort -u >"$top/keys"
	echo "# $(wc -l <"$top/expected") names were printed, $(wc -l <"$top/keys") keys were added"
	# shellcheck disable=SC2046,SC2005
	echo "# by table:" $(cut -d / -f 1 "$top/expected" | sort | uniq -c | awk '{ print $2, $1 }')
	is "names without a key" "" "$(comm -23 "$top/expected" "$top/keys" | head -20)"
	# wq(4) has its list of keys from the same comment.
	kinds=$(sed -n '/^ \* struct wq_net_args/,/\*\//s/^ \*  - "\([a-z]*\)\/.*/\1/p' \
		"$SRC/include/uapi/linux/wq_source.h")
	[ "$(wc -w <<<"$kinds")" = 11 ] || fail "wq_source.h lists these tables:" $kinds
	for kind in $kinds; do
		case $kind in
		# The monitors print no line that names one.  source_net.c changes multicast routes.
		mroute) ;;
		vlan) grep -q "^vlan/" "$top/keys" || fail "no key of a VLAN" ;;
		*) grep -q "^$kind/" "$top/expected" || fail "no line is about $kind" ;;
		esac
	done
	is "tables that wq_source.h does not list" "" "$(cut -d / -f 1 "$top/keys" | sort -u | grep -vxF "$kinds")"
	is "failed adds" 0 "$("$WQCTL" sources $q | awk 'NR > 1 { print $4 }')"
}

run_tests "$@"
