#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What wqctl promises, each test a sentence.  Prints TAP.  Runs as root where
# the module is loaded; WQCTL is the path of wqctl, SRC that of the project.
# WQ_LS_KEYS (100000) is how many keys stay in the queue whose keys are listed while
# others come and go, and WQ_LIMIT (180) how many seconds a test may take.
#
# To start a program is what takes time in an emulated CPU, so the shell's own
# words do what they can, and who waits looks for what is waited for.
#
# The tests are called by name, the queue has nothing to quote in its name, wq done
# is no end of a loop, and some expansions are for the inner shell.
# shellcheck disable=SC2317,SC2086,SC1010,SC2016,SC1003
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
: "${WQ_LS_KEYS:=100000}" "${WQ_LIMIT:=180}"
q=wqctl-test.$$
top=$(mktemp -d)
dir=$top/test out=$top/out err=$top/err
tests=()
test='' watchdog='' queue=''
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'queue=$q; end_test; rm -rf "$top"' EXIT

# A command that reads from $gate waits until the test lets one through.
gate=$top/gate
mkdir "$dir"
mkfifo "$gate"
exec 9<>"$gate"
let_through() { echo >&9; }

# nap SECONDS: sleep, without a process
exec {never}<> <(:)
nap() { read -rt "$1" -u $never; }

# Not for what goes to the background: $! would be a shell's.
wq() { "$WQCTL" "$@"; }

end_test() {
	[ -z "$test" ] || kill -9 -- "-$test"
	[ -z "$watchdog" ] || kill "$watchdog"
	[ -z "$queue" ] || wq unlink $q
	[ ! -S "$top/tmux" ] || tmux -S "$top/tmux" kill-server
	test='' watchdog='' queue=''
} 2>/dev/null

# t SENTENCE FUNCTION [OPTION...]: a test; it runs in a shell of its own, with a new
# queue $q, made with these options, and an empty folder $dir, for $WQ_LIMIT seconds at
# most.
# no_q: without that queue.
t() { tests+=("$1"$'\t'"$2"$'\t'"$q ${*:3}"); }
no_q() { tests+=("$1"$'\t'"$2"); }

# is WHAT WANTED GOT
is() { [ "$2" = "$3" ] || { printf '# %s: wanted %q, got %q\n' "$1" "${2:0:999}" "${3:0:999}"; exit 1; }; }

# The last status' standard error, as comments
show_err() { [ ! -s "$err" ] || sed 's/^/# /' "$err"; }

# status WANTED COMMAND...
status() {
	local want=$1 got=0
	shift
	"$@" >"$out" 2>"$err" || got=$?
	[ $got -eq "$want" ] || {
		printf '# %s: wanted status %d, got %d\n' "$*" "$want" $got
		show_err
		exit 1
	}
}

# says TEXT: the last status' standard error has it
said() { [[ $(<"$err") = *"$1"* ]]; } 2>/dev/null
says() { said "$1" || { echo "# not said: $1"; show_err; exit 1; }; }

# Commands whose standard output can't be written
full() { "$@" >/dev/full; }
closed() { "$@" >&8; }

# figures NAME... [--fd N]: figures of stat, in the order asked for
figures() {
	local name value queue=$q found=()
	local -A of
	if [ "${*: -2:1}" = --fd ]; then queue="--fd ${*: -1}"; fi
	while read -r name value; do of[$name]=$value; done < <(wq stat $queue)
	for name; do
		[ "$name" != --fd ] || break
		found+=("${of[$name]-}")
	done
	echo "${found[*]}"
}
figure_is() { [ "$(figures "$1")" = "$2" ]; }

# soon COMMAND...: it comes true within 10 s
soon() {
	local i
	for ((i = 0; i < 500; i++)); do
		"$@" && return
		nap 0.02
	done
	echo "# never true: $*"
	exit 1
}

# lines FILE: its lines in one; file_has FILE N: at least N of them
lines() { local l; mapfile -t l <"$1"; echo "${l[*]}"; }
file_has() { local l; [ -e "$1" ] && mapfile -t l <"$1" && [ ${#l[@]} -ge "$2" ]; }

# words: those of standard input, with one blank between
words() { local w; read -rd '' -a w; echo "${w[*]}"; }

gone() { ! kill -0 "$1" 2>/dev/null; }
asleep() { # PID: a wqctl that waits
	local stat
	read -r stat <"/proc/$1/stat" && [[ $stat = *"(wqctl) S "* ]]
}

# ---- create, unlink

create_options() {
	(umask 077; wq create -m 0640 -n 2 $q) || exit 1
	status 0 wq add -v $q a b a
	says "2 added, 1 coalesced"
	status 1 wq add $q a c
	says "the queue is full"
	is "mode, max_keys, ready" "0640 2 2" "$(figures mode max_keys ready)"
	status 0 wq unlink $q
}
no_q "create -m sets the mode, whatever the umask, and -n how many keys there may be; add says how many it added, and that the queue is full" create_options

create_limiter() { # SPEC NS KEY...: fails the keys in a queue with this limiter; the first waits NS
	local due
	status 0 wq create --limiter "$1" $q
	status 0 wq add --rate-limited $q "${@:3}"
	due=$(figures next_due_ns)
	# a machine may be slow: by a minute, but not by an hour
	is "$1: due" $2 $((${due/-/0} <= $2 && ${due/-/0} > $2 - 60000000000 ? $2 : ${due/-/0}))
	status 0 wq unlink $q
}
create_limiters() {
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
no_q "create --limiter: a key that failed waits as it says; of a list the longest delay counts, at most max-wait" create_limiters

create_defaults() {
	local name delayed
	status 0 wq create --limiter default-item $q
	status 0 wq add --rate-limited $q {1..400}
	soon figure_is ready 400
	for name in '' '--limiter default-controller'; do
		status 0 wq unlink $q
		status 0 wq create $name $q
		status 0 wq add --rate-limited $q {1..400}
		delayed=$(figures delayed)
		[ "$delayed" -gt 100 ] || { echo "# $name: only $delayed of 400 wait"; exit 1; }
	done
	status 0 wq unlink $q
}
no_q "default-item has no bucket; default-controller has, and is what a queue has without --limiter" create_defaults

bad_limiter() { # SPEC TEXT
	status 2 wq create --limiter "$1" $q
	says "--limiter: "
	says "$2"
	says "for instance "
}
create_bad_limiters() {
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
	bad_limiter "$(printf 'bucket:1:1,%.0s' {1..15})default-item" "16 limiters are too many; the maximum is 15"
	bad_limiter "max-wait:1s,$(printf 'bucket:1:1,%.0s' {1..14})default-item" "the maximum is 14 and a max-wait"
	status 1 wq create --limiter bucket:0.000000001:4000000000 $q
	says "a bucket must not take 292 years or more to fill"
	status 1 wq create --limiter default-item -n 4294967295 $q
	says "-n 4294967295 is out of range; the maximum is"
	status 1 wq stat $q
}
no_q "create --limiter names the part that is wrong, and shows how it is written" create_bad_limiters

create_lease() {
	local time
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q held ready
	wq get --fd 7 >/dev/null
	is "lease, expired" "7200000000000 0" "$(figures lease_ns expired)"
	status 0 wq show --json $q held
	holds '.lease_ns > 7000e9 and .lease_ns < 7200e9'
	status 0 wq show --json $q ready
	holds 'has("lease_ns") and .lease_ns == null'
	is show "lease 1h59m" "$(wq show $q held | tail -n 1 | words)"
	is show "lease -" "$(wq show $q ready | tail -n 1 | words)"
	for time in 0 999us 999999ns -1 soon ''; do
		status 2 wq create --lease "$time" $q.b
		says "--lease: "
	done
	status 0 wq create --lease 1ms $q.b
	status 0 wq stat --json $q.b
	holds '.lease_ns == 1000000'
	wq unlink $q.b
}
t "create --lease gives a queue leases, 1ms at least; stat tells how long they are, show what is left of a key's" create_lease --lease 2h

create_fails() {
	local name
	status 1 wq create $q
	says "the queue exists; use it, or remove it first: wqctl unlink $q"
	for name in .hidden a/b "$(printf '%064d' 0)"; do
		status 1 wq create "$name"
		says "can't be a queue's name"
	done
}
t "create fails where the queue exists, or its name is bad, and says which are good" create_fails

no_queue() {
	local c
	for c in "add no.such k" "get no.such" "stat no.such" "run no.such -- true" "unlink no.such"; do
		# shellcheck disable=SC2086
		status 1 wq $c
		says "there is no queue of that name"
	done
}
no_q "a queue that is not there is said to be not there" no_queue

unlink_many() {
	status 0 wq create $q
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	says "20000 added"
	"$WQCTL" unlink $q &
	soon gone $!
	wait $!
	is status 0 $?
	status 1 wq stat $q
}
no_q "a queue with 20,000 keys is unlinked at once" unlink_many

# ---- add

add_lines() {
	local keys
	printf 'one\n\ntwo words\nlast' | wq add $q
	is keys $'one\ntwo words\nlast' "$(wq get -n 9 $q)"
	printf 'a\nb\0c\0' | wq add -0 $q
	mapfile -d '' -t keys < <(wq get -0 -n 9 $q)
	is "keys with NUL" $'a\nb c' "${keys[*]}"
}
add_after() {
	status 0 wq add --after 2h $q later
	is "delayed, ready" "1 0" "$(figures delayed ready)"
	status 0 wq query $q later
	is state delayed "$(<"$out")"
	status 3 wq get $q
	status 0 wq add --after 50ms $q sooner
	is key sooner "$(wq get -t 20s $q)"
	is "delayed, retries" "1 2" "$(figures delayed retries)"
	local due
	due=$(figures next_due_ns)
	is "due in about 2 h" 1 $((due > 7000000000000 && due <= 7200000000000))
	status 0 wq cancel $q later
	is "was, due" "delayed -" "$(<"$out") $(figures next_due_ns)"
	local time
	for time in soon '' . 1.5.s -1 '5 s' 1e3 3d 2562048h; do
		status 2 wq add --after "$time" $q k
		says "'$time' is not a time; for instance"
	done
	for time in 30m 1800 1800.00s .5h 1800000ms 1800000000us 1800000000000ns; do
		status 0 wq add --after "$time" $q k
		due=$(figures next_due_ns)
		[ "$time $((due > 1700000000000 && due <= 1800000000000))" = "$time 1" ] ||
			{ echo "# $time is $due ns"; exit 1; }
		status 0 wq cancel $q k
	done
	# it is rounded up: to no delay it would be no retry
	status 0 wq add --after 0.1ns $q k
	is retries 10 "$(figures retries)"
}
t "add --after adds later, by a time as people write it; stat shows how many are delayed and when the next is due" add_after

add_rate_limited() {
	status 0 wq add -v --rate-limited $q k < <(:)
	says "1 added, 0 coalesced"
	status 0 wq query $q k
	is query $'delayed,failed\nfailures 1' "$(<"$out")"
	status 0 wq add --rate-limited $q < <(echo k)
	is query $'delayed,failed\nfailures 2' "$(wq query $q k)"
	[[ "$(wq ls $q)" = *$'\n'"delayed,failed "* ]] || exit 1
	is "failed, retained, retries" "1 0 2" "$(figures failed retained retries)"
	is cancel delayed,failed "$(wq cancel $q k)"
	is "keys, failed" "0 0" "$(figures keys failed)"
	status 2 wq add --rate-limited --after 1s $q k
	says "--rate-limited can't be combined with --after"
}
t "add --rate-limited counts a failure, which query, ls and stat show, until cancel drops it" add_rate_limited --limiter exponential:1h:1h

t "add reads lines, leaves out empty ones, takes a last one without newline; with -0 keys may have newlines" add_lines

add_many() {
	status 0 wq add -v $q < <(printf '%s\n' {1..20000})
	says "20000 added, 0 coalesced"
	[ "$(wq get -n 30000 $q)" = "$(printf '%s\n' {1..20000})" ]
}
t "20,000 lines come out in the order they went in" add_many

add_long() {
	local longest
	printf -v longest '%01024d' 0
	status 1 wq add $q < <(echo "$longest"; echo "${longest}0"; echo after)
	says "line 2 of standard input is longer"
	is keys "$longest" "$(wq get -n 9 $q)"
	status 1 wq add $q < <(printf '%0200000d' 0)
	says "line 1 of standard input is longer"
}
t "a key of 1,024 bytes passes; a line longer than that is named, and the keys before it are added" add_long

add_at_once() {
	exec 8> >("$WQCTL" add $q)
	local add=$!
	echo one >&8
	is key one "$(wq get -t 10 $q)"
	exec 8>&-
	wait $add
	is status 0 $?
}
t "a line from a slow pipe is added at once, not when the pipe ends" add_at_once

# ---- get

get_wait() {
	"$WQCTL" get --wait $q >"$dir/key" &
	soon asleep $!
	wq add $q late
	wait $!
	is key late "$(lines "$dir/key")"
}
t "get --wait waits for a key" get_wait

get_is_done() {
	wq add $q k
	wq get $q >/dev/null
	is "processing, dones" "0 1" "$(figures processing dones)"
	status 3 wq get $q
	status 3 wq get -t 0.05 $q
}
t "get QUEUE is done with the key it printed; from an empty queue it exits with 3" get_is_done

get_full() {
	wq add $q k
	status 1 full wq get $q
	says "the keys go back"
	status 1 full wq ls $q
	status 1 full wq ls --json $q
	says "can't write to standard output"
	exec 8> >(:)
	wait $!
	status 141 closed wq get $q
	is key k "$(wq get $q)"
}
t "output that can't be written is an error, and a key goes back, also where a pipe is closed" get_full

# ---- --fd

fd_closed() {
	wq add $q k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	is key k "$(wq get --fd 7)"
	is "ready, held" "0 1" "$(figures ready held --fd 7)"
	exec 7>&-
	is key k "$(wq get $q)"
}
t "a key held by a descriptor goes back when that is closed" fd_closed

fd_done() {
	exec 7<>/dev/wq 6<>/dev/wq
	wq bind --fd 7 $q
	wq bind --fd 6 $q
	wq add --fd 7 a b
	is key a "$(wq get --fd 7)"
	is state "processing,mine" "$(wq query --fd 7 a)"
	wq add $q a
	is state "processing,dirty" "$(wq query $q a)"
	status 1 wq done --fd 6 a
	says "another consumer holds it"
	status 0 wq done --fd 7 a
	is state ready "$(wq query $q a)"
	status 1 wq done --fd 7 a
	says "does not hold the key 'a'"
}
t "get --fd holds a key until done --fd, of this descriptor alone; one added meanwhile is ready again then" fd_done

fd_outcome() {
	local k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q retry after both
	wq get -n 3 --fd 7 >/dev/null
	status 0 wq done --fd 7 --retry retry
	is query $'delayed,failed\nfailures 1' "$(wq query $q retry)"
	status 0 wq done --fd 7 --after 2h after
	is query delayed "$(wq query $q after)"
	status 0 wq add --rate-limited $q both
	is query $'processing,delayed,failed,mine\nfailures 1' "$(wq query --fd 7 both)"
	status 0 wq done --fd 7 --forget --after 2h both
	is query delayed "$(wq query $q both)"
	for k in --forget '--after 1s'; do
		status 2 wq done --fd 7 --retry $k k
		says "--retry can't be combined with"
	done
}
t "done --retry counts a failure and has the key again as the limiter says, --after when you say, and --forget beside it forgets failures" fd_outcome --limiter exponential:1h:1h

fd_kept() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add --rate-limited $q k
	is key k "$(wq get -t 20 --fd 7)"
	status 0 wq done --fd 7 k
	is query $'failed\nfailures 1' "$(wq query $q k)"
	is "failed, retained, keys" "1 1 1" "$(figures failed retained keys)"
	wq add $q k
	is query $'ready,failed\nfailures 1' "$(wq query $q k)"
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --forget k
	status 3 wq query $q k
	is "failed, retained, keys" "0 0 0" "$(figures failed retained keys)"
}
t "a key that failed is known after done, until done --forget" fd_kept --limiter fast-slow:1ms:1h:1

fd_shut() {
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q a b c
	wq get -n 3 --fd 7 >/dev/null
	wq shutdown $q
	status 4 wq done --fd 7 --retry a
	says "the key 'a' is done, but it does not run again"
	status 4 wq done --fd 7 --after 1s b
	status 0 wq done --fd 7 --forget c
	is "processing, keys, dropped" "0 0 2" "$(figures processing keys dropped)"
}
t "done --retry and --after in a queue that is shut down say that the key does not come again, and exit with 4" fd_shut

fd_wrong() {
	exec 7<>/dev/wq
	status 1 wq get --fd 7
	says "bind it first"
	status 1 wq get --fd 63
	says "is not open"
	status 1 wq get --fd 0 </dev/null
	says "is not /dev/wq; open it first: exec 0<>/dev/wq"
	status 0 wq bind --fd 7
	wq add --fd 7 x
	is key x "$(wq get --fd 7)"
	status 1 wq bind --fd 7 $q
	says "already has a queue"
}
no_q "a descriptor that is no queue is said to be none; bind makes it a private one, and a second bind fails" fd_wrong

lease_ends() {
	exec 7<>/dev/wq 6<>/dev/wq
	wq bind --fd 7 $q
	wq bind --fd 6 $q
	wq add $q slow other
	is key slow "$(wq get --fd 6)"
	exec 6>&-
	is key slow "$(wq get --fd 7)"
	is key slow "$(soon figure_is expired 1; wq get $q)"
	status 1 wq done --fd 7 slow
	says "descriptor 7 does not hold the key 'slow': nobody got it, it is done already, or its lease expired"
	is "expired, given back, failed, dones" "1 2 0 1" "$(figures expired given_back failed dones)"
	is metrics "wq_expired_total{name=\"$q\"} 1" "$(wq metrics $q | grep ^wq_expired_total)"
	is left other "$(wq get -n 9 $q)"
}
t "a key that a descriptor holds for longer than the lease is ready again, ahead of the others, and counts as expired, not as failed" lease_ends --lease 300ms

touch_it() {
	# age and what is left make up the lease, of a key that was touched later more
	local lease='.age_ns + .lease_ns | . > 3599e9 and . < 3601e9' more='.age_ns + .lease_ns > 3602e9'
	exec 7<>/dev/wq 6<>/dev/wq
	wq bind --fd 7 $q
	wq bind --fd 6 $q
	wq add $q a b
	wq get -n 2 --fd 7 >/dev/null
	nap 3
	status 0 wq show --json $q a
	holds "$lease"
	status 0 wq touch --fd 7 a
	status 0 wq show --json $q a
	holds "$more"
	status 0 wq show --json $q b
	holds "$lease"
	status 1 wq touch --fd 6 b
	says "descriptor 6 does not hold the key 'b': another consumer holds it"
	status 1 wq touch --fd 7 none b
	says "descriptor 7 does not hold the key 'none': nobody got it"
	status 0 wq show --json $q b
	holds "$more"
	status 2 wq touch --fd 7
	status 2 wq touch a
	says "give --fd N"
}
t "touch --fd begins the lease of a key anew, and says which keys the descriptor does not hold" touch_it --lease 1h

# ---- query, cancel, forget

cancel_it() {
	wq add $q a b
	is state ready "$(wq cancel $q a)"
	status 3 wq cancel $q a
	status 3 wq query $q a
	says "has no key 'a'"
	is keys b "$(wq get -n 9 $q)"
}
t "cancel drops a key and tells its state; both it and query exit with 3 where the key is not known" cancel_it

forget_them() {
	wq add --rate-limited $q a b
	wq add --rate-limited $q b
	status 0 wq forget $q a unknown b
	is "a, b" "delayed delayed" "$(wq query $q a) $(wq query $q b)"
	is "failed, delayed" "0 2" "$(figures failed delayed)"
	wq add --rate-limited $q b
	is b $'delayed,failed\nfailures 1' "$(wq query $q b)"
	status 1 wq forget $q ''
	says "a key has 1 to 1024 bytes"
	status 2 wq forget $q
	says "a key is missing"
}
t "forget drops the count of failures, not the delay; a key that is not known has none" forget_them --limiter exponential:1h:1h

# ---- ls, show, stat

# holds FILTER: jq's, true of the last status' output
holds() {
	jq -e "$1" <"$out" >"$dir/holds" || { echo "# not so: $1, in: $(head -c 2000 "$out")"; exit 1; }
}

# row KEY: the line of ls for it
row() { wq ls $q | while read -r line; do [[ $line != *"  $1" ]] || echo "$line"; done; }

ls_keys() {
	local got line
	local -A seen
	wq add $q < <(printf '%s\n' {1..1000})
	mapfile -t got < <(wq ls $q)
	is head "STATE AGE DUE FAILURES HOLDER KEY" "$(words <<<"${got[0]}")"
	for line in "${got[@]:1}"; do
		[ "${line%% *}" = ready ] || exit 1
		seen[${line##* }]=1
	done
	is "keys, different ones" "1000 1000" "$((${#got[@]} - 1)) ${#seen[@]}"
	[ "${seen[1]}${seen[1000]}" = 11 ]
}
t "ls QUEUE tells 1,000 keys, each once" ls_keys

# hold_key: a worker, $pid, holds the next key until let_go, or the test's end
hold_key() {
	"$WQCTL" run -q $q -- sh -c "echo \$PPID >$dir/worker; read -r _ <$gate" 2>/dev/null &
	run=$!
	trap let_go EXIT
	soon file_has "$dir/worker" 1
	read -r pid <"$dir/worker"
}
let_go() {
	trap - EXIT
	# once more kills what runs
	while kill $run 2>/dev/null; do nap 0.1; done
	wait $run 2>/dev/null || true
}

ls_columns() {
	local pid run
	wq add $q held
	hold_key
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q again
	wq get --fd 7 >/dev/null
	wq add $q again ready
	wq add --after 2h $q later
	wq add --rate-limited $q failed
	wq add --rate-limited $q failed
	[[ $(row held) =~ ^processing\ +[0-9.]+[mu]?s\ +-\ +0\ +$pid\  ]] || exit 1
	[[ $(row again) =~ ^processing,dirty\ +[0-9.]+[mu]?s\ +-\ +0\ +[0-9]+\  ]] || exit 1
	[[ $(row ready) =~ ^ready\ +[0-9.]+[mu]?s\ +-\ +0\ +-\  ]] || exit 1
	[[ $(row later) =~ ^delayed\ +-\ +1h59m\ +0\ +-\  ]] || exit 1
	[[ $(row failed) =~ ^delayed,failed\ +-\ +[0-9]+m[0-9]+s\ +2\ +-\  ]] || exit 1
	[[ $(wq ls --fd 7) = *$'\n'processing,dirty,mine* ]] || exit 1
	status 0 wq ls --json $q
	holds '[.[].key] | sort == ["again", "failed", "held", "later", "ready"]'
	holds '.[] | select(.key == "held") | .holder == "process" and .pid == '$pid
	holds 'all(.[]; (.state[0] == "processing") == (.holder != null) and (.holder == null) == (.pid == null))'
	holds '.[] | select(.key == "again") | .state == ["processing", "dirty"]'
	holds 'all(.[]; (.age_ns == null) == (.state[0] == "delayed") and (.due_ns == null) == (.state[0] != "delayed"))'
	holds 'all(.[] | .age_ns | numbers; . > 0 and . < 60e9)'
	holds '.[] | select(.key == "later") | .due_ns > 7100e9 and .due_ns <= 7200e9'
	holds '[.[] | select(.failures > 0) | [.key, .failures]] == [["failed", 2]]'
	let_go
}
t "ls QUEUE tells of each key its state, age, due time, failures and holder; --json the same" ls_columns --limiter exponential:5m:1h

ls_no_name() {
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
no_q "a queue without a name has no times: null, not 0; ls --json of an empty one is an empty array" ls_no_name

ls_many() {
	local i before after moved=0
	wq add $q < <(seq -f 's%.0f' "$WQ_LS_KEYS")
	(
		for ((i = 0; ; i++)); do
			wq add $q < <(printf "x$i-%d\n" {1..20000})
			printf "x$i-%d\n" {1..20000} | xargs -n 20000 "$WQCTL" cancel $q
		done
	) >/dev/null 2>&1 &
	# more often where the machine is so busy that nothing moved meanwhile
	for ((i = 0; i < 10 || (moved == 0 && i < 100); i++)); do
		before=$(figures adds canceled)
		wq ls -0 $q >"$dir/keys"
		after=$(figures adds canceled)
		is "steady keys, told twice" "$WQ_LS_KEYS 0" "$(tr '\0' '\n' <"$dir/keys" |
			awk '/^s/ { n++; if (seen[$0]++) twice++ } END { print n, twice + 0 }')"
		[ "$before" = "$after" ] || moved=$((moved + 1))
	done
	is "others came and went" 1 $((moved > 0))
	kill $!
	echo "# $(($(figures adds) - WQ_LS_KEYS)) came meanwhile, $(figures canceled) went"
}
t "ls -0 of $WQ_LS_KEYS keys tells each once while others come and go" ls_many -n $((WQ_LS_KEYS + 100000))

ls_queues() {
	local line head
	wq add $q a b c
	wq get $q >/dev/null
	wq add --after 1h $q later
	wq create -m 0640 $q.zz
	wq shutdown $q.zz
	status 0 wq ls
	mapfile -t line <"$out"
	is head "NAME OWNER GROUP MODE STATE READY PROCESSING DELAYED KEYS" "$(words <<<"${line[0]}")"
	[[ $(<"$out") =~ $'\n'"$q "\ +root\ +root\ +0600\ +open\ +2\ +0\ +1\ +3$'\n' ]] || exit 1
	[[ $(<"$out") =~ $'\n'"$q.zz "\ +root\ +root\ +0640\ +shutdown\ +0\ +0\ +0\ +0($|$'\n') ]] || exit 1
	head=${line[0]%% READY*}
	for line in "${line[@]}"; do
		is "aligned" ' ' "${line:${#head}:1}"
	done
	status 0 wq ls --json
	holds '[.[].name] | sort == . and unique == .'
	holds '.[] | select(.name == "'$q'") | [.uid, .mode, .shutdown, .ready, .delayed, .keys] == [0, "0600", false, 2, 1, 3]'
	holds '.[] | select(.name == "'$q'.zz") | [.mode, .shutdown] == ["0640", true]'
	wq unlink $q.zz
	status 2 wq ls -0
	status 2 wq ls -0 --json $q
	status 2 wq ls $q extra
}
t "ls tells all queues by name: owner, group, mode, state and keys, in columns; --json the same" ls_queues

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$WQCTL" "$@"; }

ls_allowed() {
	trap 'chmod 600 /dev/wq; wq unlink $q.w; wq unlink $q.r' EXIT
	chmod 666 /dev/wq
	wq create -m 602 $q.w
	wq create -m 604 $q.r
	wq add $q.w k
	status 0 as_nobody ls --json
	holds '[.[].name | select(startswith("'$q'"))] == ["'$q'.r", "'$q'.w"]'
	status 1 as_nobody ls $q.w
	says "the queue has mode 0602 and uid 0, gid 0, which allow you only to write"
	status 0 as_nobody stat --json $q.w
	holds '.ready == 1'
	status 0 as_nobody metrics $q.r $q.w
	status 1 as_nobody metrics $q $q.w no.such
	says "can't read the statistics of the queue '$q': the queue's mode allows you neither to read nor to write; root can see its mode and owner: sudo wqctl stat $q"
	says "can't read the statistics of the queue 'no.such': there is no queue of that name"
	[[ $(<"$out") = *"{name=\"$q.w\"} 1"* && $(<"$out") != *"\"$q\""* ]]
}
t "ls leaves out queues that you may not open; to add is enough for stat and metrics, which skips what it can't read with a message" ls_allowed

# Keys that mean harm, each as in a C string
hostile=('new\nline' '\r\n' '"quoted\047 \\' 'tab\tand\001\033[2J\033]0;title\007' '\377\376'
	'cut \343\201' '\302\233\062J' 'turned \342\200\256' 'wide \346\274\242\345\255\227'
	'e\314\201' '{}' '  ' '# HELP' '\360\237\246\212' '\355\240\200' 'key",\n"x":"')
add_hostile() {
	local k
	for k in "${hostile[@]}"; do printf '%b\0' "$k"; done | wq add -0 $q || exit 1
	printf 'a\0nul\n%01024d' 7 | wq add $q || exit 1
}

hostile_keys() {
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
	        print("#", what, [k for k in got if k not in want], [k for k in want if k not in got])
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
t "keys with newlines, quotes, escape sequences, invalid UTF-8, wide characters, 1,024 bytes: ls, --json and -0 tell each as it was, and none reaches the terminal raw" hostile_keys

show_it() {
	local key=$'a\n\e[2J' pid run
	wq add --rate-limited $q k
	wq add --rate-limited $q k
	wq add $q k
	hold_key
	wq add $q k
	status 0 wq show $q k
	[[ $(words <"$out") =~ ^key\ k\ state\ processing,dirty,delayed,failed\ age\ [0-9.]+[mu]?s\ due\ [0-9]+m[0-9]+s\ failures\ 2\ requeues\ 2\ holder\ $pid\ lease\ -$ ]] ||
		{ echo "# $(<"$out")"; exit 1; }
	status 0 wq show --json $q k
	holds '.key == "k" and .key_base64 == "aw==" and .state == ["processing", "dirty", "delayed", "failed"]'
	holds '.failures == 2 and .requeues == 2 and .holder == "process" and .pid == '$pid
	let_go
	holds '.age_ns > 0 and .age_ns < 60e9 and .due_ns > 200e9 and .due_ns <= 300e9'
	wq add -0 $q < <(printf '%s' "$key")
	status 0 wq show $q "$key"
	is key 'key a\n\033[2J' "$(head -n 1 "$out" | tr -s ' ')"
	status 0 wq show --json $q "$key"
	holds '.key == null and (.key_base64 | @base64d) == "a\n\u001b[2J"'
	status 3 wq show $q other
	says "has no key 'other'"
	status 2 wq show $q
	status 1 wq show $q ''
	says "a key has 1 to"
}
t "show tells all of one key: state, age, due time, failures, requeues and holder; exit status 3 where there is none" show_it --limiter exponential:5m:1h

stat_json() {
	local f
	exec 7<>/dev/wq
	wq bind --fd 7 $q
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
		"$(figures depth consumers queue_duration_count work_duration_count)"
	for f in memory unfinished_ns longest_ns queue_duration_mean_ns work_duration_mean_ns; do
		[ "$(figures $f)" -gt 0 ] || { echo "# no $f"; exit 1; }
	done
}
t "stat has the figures, depth, memory, consumers and durations among them; --json each bucket" stat_json

# ---- metrics

metrics_format() {
	local name
	wq create $q.b
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q a b c a
	wq get $q >/dev/null
	is key b "$(wq get --fd 7)"
	wq add --after 1h $q later
	status 0 wq metrics
	is said '' "$(<"$err")"
	cp "$out" "$dir/all"
	status 0 "${PROMTOOL:-promtool}" check metrics <"$dir/all"
	is promtool '' "$(<"$out")$(<"$err")"
	for name in workqueue_{depth,adds_total,queue_duration_seconds,work_duration_seconds} \
		workqueue_{unfinished_work_seconds,longest_running_processor_seconds,retries_total} \
		wq_expired_total \
		wq_{delayed,processing,keys,max_keys,memory_bytes,consumers,failed_keys,retained_keys} \
		wq_{coalesced,given_back,canceled,dropped}_total; do
		is "TYPE lines of $name" 1 "$(grep -c "^# TYPE $name " "$dir/all")"
		is "HELP lines of $name" 1 "$(grep -c "^# HELP $name ." "$dir/all")"
		is "samples of $name" 2 "$(grep -Ec "^$name(_count)?\{name=\"$q(\.b)?\"\} [0-9.]+$" "$dir/all")"
	done
	wq unlink $q.b
}
t "metrics prints client-go's names and wq's own for each queue, in a form that promtool has nothing to say against" metrics_format

metrics_figures() {
	local k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	for k in a b c; do
		wq add $q $k
		wq get $q >/dev/null
	done
	wq add $q held ready held
	wq get --fd 7 >/dev/null
	wq add $q held
	wq add --after 1h $q later
	wq metrics $q $q >"$dir/metrics" || exit 1
	status 0 wq stat --json $q
	python3 -IS - "$dir/metrics" "$out" $q <<-'END' || exit 1
	import itertools, json, sys
	m = [line.rsplit(" ", 1) for line in open(sys.argv[1]) if line[0] != "#"]
	assert len(dict(m)) == len(m), "a sample stands there twice"
	m = {k: v.strip() for k, v in m}
	st = json.load(open(sys.argv[2]))
	name = 'name="%s"' % sys.argv[3]
	def same(what, want):
	    got = m.pop(what + "{" + name + "}")
	    if got != want:
	        print("#", what, "wanted", want, "got", got)
	        sys.exit(1)
	for what, figure in ("workqueue_depth", "depth"), ("workqueue_adds_total", "adds"), (
	        "workqueue_retries_total", "retries"), ("wq_expired_total", "expired"):
	    same(what, str(st[figure]))
	for figure in "processing", "delayed", "keys", "max_keys", "consumers":
	    same("wq_" + figure, str(st[figure]))
	for figure in "coalesced", "given_back", "canceled", "dropped":
	    same("wq_" + figure + "_total", str(st[figure]))
	for figure in "failed", "retained":
	    same("wq_" + figure + "_keys", str(st[figure]))
	same("wq_memory_bytes", str(st["memory"]))
	assert [st[f] for f in ("depth", "adds", "retries", "processing", "delayed", "keys",
	    "coalesced", "consumers")] == [2, 6, 1, 1, 1, 3, 1, 1], st
	bounds = ["1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1", "10", "+Inf"]
	for figure, count in ("queue_duration", 4), ("work_duration", 3):
	    what, h = "workqueue_%s_seconds" % figure, st[figure]
	    assert h["count"] == count, h
	    same(what + "_count", str(count))
	    same(what + "_sum", "%d.%09d" % divmod(h["sum_ns"], 10 ** 9))
	    for le, n in zip(bounds, itertools.accumulate(b["count"] for b in h["buckets"])):
	        got = m.pop('%s_bucket{%s,le="%s"}' % (what, name, le))
	        assert got == str(n), (what, le, n, got)
	for what, figure in ("unfinished_work", "unfinished_ns"), ("longest_running_processor", "longest_ns"):
	    got = m.pop("workqueue_%s_seconds{%s}" % (what, name))
	    assert len(got.split(".")[1]) == 9, got
	    assert 0 < int(got.replace(".", "")) <= st[figure] < 60e9, (got, st[figure])
	assert not m, m
	END
}
t "metrics tells the same as stat, sums and bounds to the nanosecond, buckets cumulative, and each queue once" metrics_figures

metrics_file() {
	local f=$dir/wq.prom inode
	wq create $q.b
	umask 022
	status 0 wq metrics -o "$f"
	is "out, mode" "0 644" "$(stat -c %s "$out") $(stat -c %a "$f")"
	status 0 "${PROMTOOL:-promtool}" check metrics <"$f"
	exec 8<"$f"
	inode=$(stat -c %i "$f")
	status 0 wq metrics -o "$f" $q
	[ "$inode" != "$(stat -c %i "$f")" ] || { echo "# was not replaced"; exit 1; }
	grep -q "\"$q.b\"" <&8 || { echo "# was written over"; exit 1; }
	is files wq.prom "$(ls -A "$dir")"
	status 1 wq metrics -o /dev/null $q
	says "is not a regular file"
	[ -c /dev/null ] || exit 1
	status 1 wq metrics -o "$dir/none/wq.prom"
	says "No such file"

	mkdir "$dir/full"
	mount -t tmpfs -o size=4k,nr_inodes=9 tmpfs "$dir/full" || exit 1
	trap 'umount "$dir/full"' EXIT
	echo old >"$dir/full/wq.prom"
	status 1 wq metrics -o "$dir/full/wq.prom"
	says "No space left"
	is "file, files" "old wq.prom" "$(<"$dir/full/wq.prom") $(ls -A "$dir/full")"
	wq unlink $q.b
}
t "metrics -o replaces the file as a whole: who has the old one open reads that to its end, and where the disk is full it stays" metrics_file

metrics_gone() {
	cat >"$dir/shim.c" <<-END
	#include <linux/wq.h>
	#include <string.h>
	#include <sys/syscall.h>
	#include <unistd.h>
	/* Each queue NAME.x goes as soon as it was listed. */
	int ioctl(int fd, unsigned long nr, void *arg)
	{
		struct wq_queues *qs = arg;
		int ret = syscall(SYS_ioctl, fd, nr, arg);
		for (unsigned int i = 0; nr == WQ_IOC_QUEUES && i < qs->count; i++) {
			char *name = ((struct wq_queue *)qs->addr)[i].name;
			if (strstr(name, ".x"))
				strcpy(name, "gone");
		}
		return ret;
	}
	END
	gcc -shared -fPIC -I"$SRC/include/uapi" -o "$dir/shim.so" "$dir/shim.c" || exit 1
	wq create $q.x
	status 0 env LD_PRELOAD="$dir/shim.so" "$WQCTL" metrics
	is said '' "$(<"$err")"
	[[ $(<"$out") = *"\"$q\""* && $(<"$out") != *gone* && $(<"$out") != *"$q.x"* ]] || exit 1
	wq unlink $q.x
}
t "metrics says nothing of a queue that goes meanwhile, and leaves it out" metrics_gone

# ---- top

# in_tmux COMMAND...: runs it on a terminal of 100 x 30, after a line "before"
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
	LC_ALL=C.UTF-8 tmux -S "$top/tmux" -f /dev/null -u new-session -d -x 100 -y 30 \
		"LC_ALL=C.UTF-8 sh '$dir/session'" || exit 1
	# to the end of this test; it has no other clients
	tmux -S "$top/tmux" set -g status off
}
press() { tmux -S "$top/tmux" send-keys "$@"; }
screen() { tmux -S "$top/tmux" -u capture-pane -p; }
# shows REGEX: the screen does, as one text
shows() { local s; s=$(screen) && [[ $s =~ $1 ]]; }
shows_no() { local s; s=$(screen) && ! [[ $s =~ $1 ]]; }
# sees REGEX, sees_no REGEX: soon
sees() { soon_screen shows "$1"; }
sees_no() { soon_screen shows_no "$1"; }
soon_screen() {
	local i
	for ((i = 0; i < 100; i++)); do
		"$@" && return
		nap 0.1
	done
	echo "# never: $*, but:"
	screen | sed 's/^/# /'
	exit 1
}

top_queues() {
	wq create $q.b
	exec 7<>/dev/wq
	wq bind --fd 7 $q.b
	wq add $q 1 2 3 4 5
	wq add $q.b held a b
	wq get --fd 7 >/dev/null
	wq add --after 1h $q.b c d e
	in_tmux "$WQCTL" top -d 0.2
	sees "QUEUE +ADDS/S +DONES/S +DEPTH +PROC +DELAYED +OLDEST +WAIT50 +WAIT99 +WORK50 +WORK99"
	sees "$q +0 +0 +5 +0 +0 +- +- +- +- +-.*$q.b +0 +0 +2 +1 +3 +[0-9.]+[mu]?s +- +- +- +-"
	shows "2 queues, depth 7, processing 1, delayed 3; by DEPTH" || exit 1
	press Right
	sees "by PROC.*$q\.b .*$q "
	press r
	sees "by PROC, reversed.*$q .*$q\.b "
	press r Left Left Left Left
	sees "by QUEUE.*$q .*$q\.b "
	press Left
	sees "by WORK99"
	wq create $q.c
	sees "3 queues.*$q\.c "
	wq unlink $q.c
	sees "2 queues"
	sees_no "$q\.c"
	press q
	sees "^before"$'\n'"after 0"
	soon file_has "$dir/tty-after" 1
	is "terminal's settings" "$(<"$dir/tty")" "$(<"$dir/tty-after")"
	wq unlink $q.b
}
t "top shows each queue's figures; arrows choose the column to sort by, queues come and go, and q ends with the terminal as it was" top_queues

top_rates() {
	(
		while :; do
			wq add $q a b c
			wq get -n 3 $q
		done
	) >/dev/null 2>&1 &
	in_tmux "$WQCTL" top -d 1
	sees "$q +[1-9][0-9.]* +[1-9][0-9.]* +[0-9]+ +[0-9]+ +0 +[^ ]+ +<[0-9]+[mun]?s +<[0-9]+[mun]?s +<[0-9]+[mun]?s +<[0-9]+[mun]?s"
	kill $!
	sees "$q +0 +0 +[0-9]+ +0 +0 +- +- +- +- +-"
}
t "top shows adds and dones a second, and percentiles of the last interval alone" top_rates

top_keys() {
	wq create --lease 30s $q.b
	local pid run
	wq add $q held
	hold_key
	wq add $q ready
	wq add --after 2h $q later
	in_tmux "$WQCTL" top -d 0.2
	sees "by DEPTH.*$q .*$q\.b "
	press Enter
	sees "STATE +AGE +DUE +FAILURES +HOLDER +KEY"$'\n'"processing +[0-9.]+[mu]?s +- +0 +$pid +held *"$'\n'"ready +[0-9.]+[mu]?s +- +0 +- +ready *"$'\n'"delayed +- +1h59m +0 +- +later"
	wq add $q more
	sees "ready +[0-9.]+[mu]?s +- +0 +- +more"
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
t "top: Enter shows the keys of the selected queue, those held first; they come and go; a queue that goes is said to be gone" top_keys

top_hostile() {
	local i line
	add_hostile
	in_tmux "$WQCTL" top -d 0.2 $q
	sees 'new\\nline'
	shows '  "quoted. \\\\' || exit 1
	shows '  \\377\\376' || exit 1
	shows '  tab\\tand\\001\\033\[2J\\033\]0;title\\a' || exit 1
	shows $'  wide \346\274\242\345\255\227' || exit 1
	shows '  \\302\\2332J' || exit 1
	# each line is a key, and the footer where it belongs
	mapfile -t line < <(screen)
	for ((i = 4; i < 4 + ${#hostile[@]} + 2; i++)); do
		[[ ${line[i]} = "ready  "* ]] || { echo "# line $i: ${line[i]}"; exit 1; }
	done
	[[ ${line[29]} = "q back"* ]] || exit 1
	press q
	sees "^before"$'\n'"after 0"
}
t "top shows hostile keys escaped, one a line" top_hostile

top_sizes() {
	local size line
	wq add $q {1..40}
	in_tmux "$WQCTL" top -d 0.2
	sees "$q "
	for size in "60 10" "12 4" "3 2" "1 1" "200 60"; do
		tmux -S "$top/tmux" resize-window -x ${size% *} -y ${size#* }
		nap 0.3
		press Enter Down NPage
		nap 0.3
		press Up q
	done
	sees "by DEPTH.*$q "
	tmux -S "$top/tmux" resize-window -x 80 -y 24
	sees "WORK99"
	tmux -S "$top/tmux" resize-window -x 60 -y 10
	sees_no "WORK99"
	mapfile -t line < <(screen)
	[[ ${line[9]} = "q quit"* && ${line[2]} = "${q:0:10}"* && ${line[1]} = *WAIT50 ]] || { printf '# %s\n' "${line[@]}"; exit 1; }
	press Enter
	sees "STATE.*ready"
	press NPage NPage NPage NPage NPage NPage NPage NPage
	mapfile -t line < <(screen)
	[[ ${line[9]} = "q back"* && ${line[8]} = "ready "* ]] || { printf '# %s\n' "${line[@]}"; exit 1; }
	press q q
	sees "after 0"
}
t "top fits any terminal, however small, also while its size changes" top_sizes

top_killed() {
	in_tmux "$WQCTL" top -d 0.2
	sees "$q "
	press C-c
	sees "^before"$'\n'"after "
	soon file_has "$dir/tty-after" 1
	is "terminal's settings" "$(<"$dir/tty")" "$(<"$dir/tty-after")"
}
t "top leaves the terminal as it was also after Ctrl-C" top_killed

top_batch() {
	status 1 wq top
	says "top needs a terminal"
	status 1 wq top --batch no.such
	says "there is no queue of that name"
	status 2 wq top -d 0 $q
	wq add $q a b
	status 0 wq top --batch -d 0.1 -n 2
	is "frames" 2 "$(grep -Ec "^$q +0 +0 +2 +0 +0 +- +- +- +- +-$" "$out")"
	status 0 wq top -b -d 0.1 -n 1 $q
	is keys 2 "$(grep -Ec '^ready .*  [ab]$' "$out")"
}
t "top without a terminal says so; --batch prints frames of queues, or of a queue's keys" top_batch

# ---- shutdown

shut() {
	wq add $q a
	status 0 wq shutdown $q
	status 4 wq add $q b
	is key a "$(wq get $q)"
	status 4 wq get --wait $q
}
t "after shutdown add exits with 4, and get too once the queue is empty" shut

drain() {
	wq add $q a
	"$WQCTL" shutdown --drain $q 2>"$err" &
	soon figure_is draining yes
	wq shutdown $q
	wait $!
	is status 1 $?
	says "a shutdown without --drain"
	"$WQCTL" shutdown --drain $q &
	soon figure_is draining yes
	gone $! && { echo "# did not wait"; exit 1; }
	wq get $q >/dev/null
	wait $!
	is status 0 $?
}
t "shutdown --drain waits for the last key; a plain shutdown ends that wait, and it exits with 1" drain

# ---- run

run_all() {
	local k seen=()
	wq add $q {1..8}
	wq shutdown $q
	status 0 wq run -j 4 $q -- sh -c 'echo "$1" >>'"$dir/ran" sh
	for k in $(lines "$dir/ran"); do seen[$k]+=x; done
	is keys "1 2 3 4 5 6 7 8" "${!seen[*]}"
	is runs "x x x x x x x x" "${seen[*]}"
	says "8 runs, 0 retries, 0 given up, in "
}
t "run runs the command for each key, until the queue is shut down and empty" run_all

run_words() {
	wq add $q k
	is out "1k 2 k+k" "$(wq run --once -q $q -- echo '1{}' 2 '{}+{}')"
	wq add $q 'two words'
	is out "<-n><two words>" "$(wq run --once -q $q printf '<%s>' -n)"
}
t "run replaces each {} by the key; where there is none it appends the key, and leaves the command's options alone" run_words

run_fails() {
	wq add $q bad good
	status 0 wq run $q -- sh -c "echo {} >>$dir/ran
		[ {} = bad ] || exit 0
		[ -e $dir/again ] || { : >$dir/again; exit 7; }
		'$WQCTL' shutdown $q"
	is order "bad good bad" "$(lines "$dir/ran")"
	says "key 'bad': exit status 7; retry 1 of 5"
	says "3 runs, 1 retries, 0 given up, in "
	is "keys, retries" "0 1" "$(figures keys retries)"
}
t "a key whose command fails runs again behind the others, until it succeeds; then run exits with 0" run_fails

run_backoff() {
	local t i wait=50000
	wq add $q k
	status 0 wq run --once -q $q -- bash -c '
		echo "${EPOCHREALTIME/[.,]}" >>"$1"
		mapfile -t times <"$1"
		[ ${#times[@]} -ge 4 ]' bash "$dir/ran"
	mapfile -t t <"$dir/ran"
	is runs 4 ${#t[@]}
	for i in 1 2 3; do
		((t[i] - t[i - 1] >= wait)) || {
			echo "# retry $i came $((t[i] - t[i - 1])) us after the run before it"
			exit 1
		}
		wait=$((wait * 2))
	done
	is said '' "$(<"$err")"
}
t "each failure of a key doubles the time to its next run, by exponential:50ms:10s; with -q run says nothing of it" run_backoff --limiter exponential:50ms:10s

run_gives_up() {
	local n
	for n in 0 1 2; do
		rm -f "$dir/ran"
		wq add $q k
		status 1 wq run --once -q --max-retries $n $q -- sh -c "echo >>$dir/ran; exit 7"
		says "key 'k': exit status 7; given up after $n retr"
		is runs $((n + 1)) "$(wc -l <"$dir/ran")"
		is "keys, failed" "0 0" "$(figures keys failed)"
	done
	wq add $q k good
	status 1 wq run --once $q -- sh -c '[ "$1" = good ] || kill -9 $$' sh
	says "key 'k': killed by signal 9 (Killed); retry 5 of 5"
	says "key 'k': killed by signal 9 (Killed); given up after 5 retries"
	says "7 runs, 5 retries, 1 given up, in "
	status 2 wq run --max-retries -1 $q true
	says "not a number"
}
t "a key that fails once more after --max-retries (5 unless told otherwise) is given up, which is told even with -q; it is forgotten, and run exits with 1" run_gives_up --limiter exponential:1ms:1ms

run_failed_before() {
	wq add --rate-limited $q k
	wq add --rate-limited $q k
	status 1 wq run --once --max-retries 3 $q -- false
	says "retry 3 of 3"
	says "2 runs, 1 retries, 1 given up"
}
t "failures from before the run count" run_failed_before --limiter exponential:1ms:1ms

run_once() {
	wq add $q a b
	status 0 wq run --once $q -- true
	is keys 0 "$(figures keys)"
	wq add --after 2h $q later
	wq add $q a bad b
	status 0 wq run -j 2 --once $q -- sh -c "echo {} >>$dir/ran
		[ {} != bad ] || [ -e $dir/again ] || { : >$dir/again; exit 7; }"
	is ran "4 bad" "$(wc -l <"$dir/ran") $(tail -n 1 "$dir/ran")"
	is "left, state" "1 delayed" "$(figures keys) $(wq query $q later)"
}
t "run --once waits for what is retried, not for what was added for later, and exits with 0 where all succeeded in the end" run_once --limiter fast-slow:300ms:1ms:1

run_once_kept() {
	wq add --rate-limited $q k
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq get -t 20 --fd 7 >/dev/null
	wq done --fd 7 k
	is "failed, retained" "1 1" "$(figures failed retained)"
	status 0 wq run --once $q -- true
	says "0 runs"
}
t "run --once does not wait for a key that failed and has nothing to do" run_once_kept --limiter exponential:1ms:1ms

run_retry_dropped() {
	wq add $q k good
	"$WQCTL" run $q -- test good = 2>"$err" &
	soon figure_is delayed 1
	soon figure_is dones 2
	wq shutdown $q
	wait $!
	is status 1 $?
	says "dropped 1 key that waited for a retry, because the queue is shut down"
	says "2 runs, 1 retries, 0 given up, 1 dropped, in "
}
t "a key whose retry a shutdown drops is told, and run exits with 1" run_retry_dropped --limiter exponential:1h:1h

run_retry_left() {
	wq add $q k
	"$WQCTL" run $q -- false 2>"$err" &
	soon figure_is delayed 1
	kill -TERM $!
	wait $!
	is status 0 $?
	is query $'delayed,failed\nfailures 1' "$(wq query $q k)"
}
t "SIGTERM leaves a key that waits for its retry in the queue, and is no failure" run_retry_left --limiter exponential:1h:1h

# A wqctl whose memory runs out: each done fails twice before it holds, and a worker
# can't fork at first.
no_memory() { LD_PRELOAD=$dir/shim.so "$WQCTL" "$@"; }

run_no_memory() {
	cat >"$dir/shim.c" <<-END
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <errno.h>
	#include <linux/wq.h>
	#include <sys/syscall.h>
	#include <sys/types.h>
	#include <unistd.h>
	int ioctl(int fd, unsigned long nr, void *arg)
	{
		static int n;
		if (nr != WQ_IOC_DONE || n++ % 3 == 2)
			return syscall(SYS_ioctl, fd, nr, arg);
		errno = ENOMEM;
		return -1;
	}
	pid_t fork(void)
	{
		static int n;
		if (n++ != 1)
			return ((pid_t (*)(void))dlsym(RTLD_NEXT, "fork"))();
		errno = EAGAIN;
		return -1;
	}
	END
	gcc -shared -fPIC -I"$SRC/include/uapi" \
		-o "$dir/shim.so" "$dir/shim.c" -ldl || exit 1
	wq add $q bad good
	status 0 no_memory run --once $q -- sh -c "echo {} >>$dir/ran"
	is ran "bad good" "$(lines "$dir/ran")"
	says "can't fork: Resource temporarily unavailable; trying again"
	says "2 runs, 0 retries"
	is "keys, dones, given back" "0 2 0" "$(figures keys dones given_back)"
	wq add $q bad
	status 0 no_memory run --once $q -- sh -c "[ -e $dir/again ] || { : >$dir/again; exit 1; }"
	says "2 runs, 1 retries"
	is "keys, dones, given back" "0 4 0" "$(figures keys dones given_back)"
}
t "where memory is short run waits and tries again: no key is lost, run twice or taken for a failure" run_no_memory

run_nul() {
	printf 'a\0b' | wq add $q
	[[ "$(wq ls $q)" = *'  a\000b' ]] || exit 1
	status 1 wq run --once $q -- touch "$dir/never"
	says "key 'a\\000b': dropped, because an argument of a command can't have a NUL"
	is keys 0 "$(figures keys)"
	[ ! -e "$dir/never" ]
}
t "run reports and drops a key with a NUL" run_nul

run_no_command() {
	wq add $q k
	status 1 wq run -j 3 $q -- no-such-command
	says "can't run 'no-such-command'"
	is state ready "$(wq query $q k)"
	wq shutdown $q
	status 1 wq run $q -- sh -c 'exit 127'
	says "exit status 127; dropped, because the queue is shut down"
}
t "run leaves the key where the command does not exist; a command's own exit status 127 is a failure" run_no_command

run_no_command_at_once() {
	wq add $q sh
	"$WQCTL" run -j 2 -q $q -- {} -c ": >$dir/begun; read -r _ <$gate" 2>"$err" &
	soon test -e "$dir/begun"
	wq add $q no-such-command
	soon said "can't run 'no-such-command'"
	let_through
	wait $!
	is status 1 $?
	is left no-such-command "$(wq get -n 9 $q)"
}
t "a command that can't be run ends run, and what succeeds meanwhile is done" run_no_command_at_once

run_worker_killed() {
	wq add $q k
	"$WQCTL" run -j 1 $q -- sh -c "echo \$PPID >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; }" 2>"$err" &
	local run=$! worker
	soon test -e "$dir/again"
	read -r worker <"$dir/ran"
	kill -9 "$worker"
	soon file_has "$dir/ran" 2
	wq shutdown $q
	wait $run
	is status 0 $?
	says "was killed by signal 9; its key goes back to the queue, a new worker starts"
	is "keys, given back" "0 1" "$(figures keys given_back)"
}
t "a worker that is killed is reported and replaced, and its key runs again" run_worker_killed

run_not_twice() {
	local run worker
	wq add $q k
	cat >"$dir/work" <<-END
	if [ ! -e $dir/child ]; then
		# A child of the command, which is not the worker's child.
		(echo \$PPID >$dir/worker; echo \$BASHPID >$dir/child; read -r <$gate)
	fi
	# It may still be on its way out, but it gets no further.
	for ((i = 0; i < 100; i++)); do
		read -r stat </proc/\$(<$dir/child)/stat && [[ \$stat != *') '[ZX]* ]] || break
		read -rt 0.01 <&$never
	done
	[ \$i -lt 100 ] || : >$dir/twice
	: >$dir/checked
	END
	"$WQCTL" run -j 2 -q $q -- bash "$dir/work" 2>/dev/null &
	run=$!
	soon file_has "$dir/child" 1
	read -r worker <"$dir/worker"
	kill -9 "$worker"
	soon test -e "$dir/checked"
	wq shutdown $q
	wait $run
	[ ! -e "$dir/twice" ]
}
t "a killed worker's key runs again only once its command's children are gone" run_not_twice

run_term() {
	wq add $q 1 2 3
	"$WQCTL" run $q -- sh -c "echo start {} >>$dir/ran; read -r _ <$gate; echo end {} >>$dir/ran" \
		2>"$err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	soon said "no more commands start"
	let_through
	wait $run
	is status 0 $?
	is ran "start 1 end 1" "$(lines "$dir/ran")"
	is left $'2\n3' "$(wq get -n 9 $q)"
	says "1 runs, 0 retries, 0 given up"
}
t "SIGTERM lets the running command end and starts no more" run_term

run_term_twice() {
	wq add $q k
	"$WQCTL" run $q -- sh -c "echo >>$dir/ran; read -r _ <$gate" 2>"$err" &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -TERM $run
	soon said "send the signal again"
	kill -TERM $run
	wait $run
	is status 1 $?
	is key k "$(wq get -t 5 $q)"
}
t "a second SIGTERM kills the command, and the key goes back" run_term_twice

idle() { # PID N: a wqctl run whose N workers wait
	local w n=0
	for w in $(<"/proc/$1/task/$1/children"); do
		asleep "$w" && n=$((n + 1))
	done
	asleep "$1" && [ $n -eq "$2" ]
}

run_idle() {
	local run
	(trap '' HUP; exec "$WQCTL" run -j 8 $q -- sh -c ": >$dir/ran") 2>/dev/null &
	run=$!
	soon idle $run 8
	kill -HUP $run
	wq add $q k
	soon test -e "$dir/ran"
	soon idle $run 8
	kill -TERM $run
	wait $run
	is status 0 $?
}
t "SIGTERM ends workers that wait for a key; a SIGHUP that was ignored before, as by nohup, does not" run_idle

run_parent_killed() {
	wq add $q 1 2
	"$WQCTL" run $q -- sh -c "echo {} >>$dir/ran; read -r _ <$gate; echo end >>$dir/ran" 2>/dev/null &
	local run=$!
	soon file_has "$dir/ran" 1
	kill -9 $run
	wait $run 2>/dev/null
	let_through
	soon file_has "$dir/ran" 2
	soon figure_is processing 0
	is "ran, left" "1 end 2" "$(lines "$dir/ran") $(wq get -n 9 $q)"
}
t "workers whose parent is killed end after the command that they run" run_parent_killed

run_one_at_a_time() {
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
			[[ $busy != *$key* ]] || { echo "# $key runs twice at once"; exit 1; }
			busy+=$key begun=$((begun + 1))
		else
			busy=${busy/$key/}
		fi
	done <"$dir/ran"
	[ $begun -ge 6 ]
}
t "run never runs a key twice at once, however often it is added" run_one_at_a_time

run_lease() {
	wq add $q k
	status 0 wq run -j 2 --once $q -- sh -c "echo >>$dir/ran; exec sleep 5"
	is "runs, expired, dones" "1 0 1" "$(wc -l <"$dir/ran") $(figures expired dones)"
	says "1 runs, 0 retries, 0 given up, in "
}
t "a command that takes longer than the lease is run once: its key is touched" run_lease --lease 2s

# over PID: it ended, buried or not
over() {
	local stat
	! read -r stat <"/proc/$1/stat" || [[ $stat = *") Z "* ]]
} 2>/dev/null

run_stopped() {
	local second run worker command child
	"$WQCTL" run -q $q -- sh -c "[ {} = k ] || { : >$dir/goes-on; exit; }
		echo \$PPID \$\$ >$dir/first
		sh -c 'echo \$\$ >$dir/child; read -r _ <$gate'
		: >$dir/survived" 2>"$err" &
	run=$!
	wq add $q k
	soon file_has "$dir/child" 1
	read -r worker command <"$dir/first"
	read -r child <"$dir/child"
	kill -STOP -- $run -"$worker"
	"$WQCTL" run --once $q -- sh -c "echo {} >>$dir/second; read -r _ <$gate" 2>"$dir/err" &
	second=$!
	soon file_has "$dir/second" 1
	is "expired, processing" "1 1" "$(figures expired processing)"
	# the worker alone: what it has to end stands still
	kill -CONT $run "$worker"
	soon said "key 'k': its lease expired, because wqctl was stopped or could not touch it in time, and it runs again; wqctl terminates its command"
	soon gone "$command"
	soon gone "$child"
	is processing 1 "$(figures processing)"
	let_through
	wait $second
	is status 0 $?
	is "runs elsewhere, expired, dones, failed, keys" "k 1 1 0 0" \
		"$(lines "$dir/second") $(figures expired dones failed keys)"
	wq add $q more
	soon test -e "$dir/goes-on"
	wq shutdown $q
	wait $run
	is status 0 $?
	[ ! -e "$dir/survived" ]
}
t "a wqctl run that is stopped for longer than the lease loses its key to another one; continued, it says so, ends the command with all that this started, and goes on" run_stopped --lease 2s

run_stopped_outcome() {
	local run worker command
	wq add $q k
	"$WQCTL" run --once --max-retries 0 $q -- sh -c "echo \$PPID \$\$ >>$dir/ran
		[ -e $dir/again ] || { : >$dir/again; read -r _ <$gate; exit 7; }" 2>"$err" &
	run=$!
	soon file_has "$dir/ran" 1
	read -r worker command <"$dir/ran"
	kill -STOP "$worker"
	soon figure_is expired 1
	let_through
	soon over "$command"
	kill -CONT "$worker"
	wait $run
	is status 0 $?
	says "and it runs again; wqctl ignores the outcome of its command"
	says "1 runs, 0 retries, 0 given up, 1 expired, in "
	is "runs, dones, failed, keys" "2 1 0 0" "$(wc -l <"$dir/ran") $(figures dones failed keys)"
}
t "a command that ends after its key's lease has no outcome: it neither succeeded nor failed" run_stopped_outcome --lease 1s

# ---- the command line

usage() {
	status 2 wq nonsense
	status 2 wq get
	status 2 wq done $q k
	says "give --fd N"
	status 2 wq get -t never $q
	status 2 wq create -m 888 $q
	status 2 wq run $q
	status 2 wq get $q extra
}
no_q "a wrong command line exits with 2 and says what is wrong" usage

help() {
	local c all
	all=$(wq --help) || exit 1
	for c in create unlink add get touch done forget bind query cancel ls show stat top metrics \
		info shutdown run; do
		[[ $all = *$'\n'"  $c "* ]] || { echo "# --help leaves out $c"; exit 1; }
		status 0 wq $c --help
	done
	status 0 wq info
	[[ $(<"$out") = *' limiter metrics lease'*'max_key      1024 bytes'* ]]
}
no_q "--help names each command, and each has a --help; info tells the longest key, and that there are limiters and leases" help

# ---- advice, and what is dropped

no_queue_advice() {
	local c
	for c in "add no.such k" "get no.such" "bind --fd 7 no.such" "run no.such -- true"; do
		exec 7<>/dev/wq
		status 1 wq $c
		says "create it first: wqctl create no.such"
	done
	for c in "unlink no.such" "stat no.such" "ls no.such" "show no.such k" "query no.such k" \
		"cancel no.such k" "forget no.such k" "shutdown no.such" "metrics no.such" \
		"top --batch no.such"; do
		status 1 wq $c
		says "there is no queue of that name; wqctl ls lists the queues"
		if said "wqctl create"; then echo "# $c advises to create it"; exit 1; fi
	done
}
no_q "a missing queue: commands that fill or process it advise to create it, the others do not" no_queue_advice

denied_advice() {
	trap 'chmod 600 /dev/wq' EXIT
	status 1 as_nobody stat $q
	says "you cannot open /dev/wq; use sudo"
	chmod 666 /dev/wq
	status 1 as_nobody stat $q
	says "sudo wqctl stat $q"
	status 0 wq stat $q
	status 1 as_nobody unlink $q
	says "only the queue's owner and root may do that"
	status 0 wq stat $q
	wq create -m 604 $q.r
	status 1 as_nobody add $q.r k
	says "the queue has mode 0604 and uid 0, gid 0, which allow you only to read"
	wq unlink $q.r
}
t "a denied command names the mode, or a command that shows it to root" denied_advice

unlink_drops() {
	status 0 wq unlink $q
	is said '' "$(<"$err")"
	wq create $q
	wq add $q a b c
	wq add --after 1h $q later
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq get --fd 7 >/dev/null
	status 0 wq unlink $q
	says "unlinked '$q' with 2 ready, 1 processing and 1 delayed keys; 1 open file still uses it, and keys that are left when it is closed are dropped"
	is left $'b\nc' "$(wq get -n 9 --fd 7)"
	exec 7>&-
	wq create $q
	wq add $q a
	status 0 wq unlink $q
	says "with 1 ready, 0 processing and 0 delayed keys; they are dropped"
}
t "unlink prints which keys are dropped, and whether at once or when the last open file is closed" unlink_drops

shutdown_drops() {
	wq add --after 1h $q a b
	wq add $q ready
	status 0 wq shutdown $q
	says "dropped 2 delayed keys or retries"
	status 0 wq shutdown $q
	is said '' "$(<"$err")"
}
t "shutdown prints how many delayed keys it dropped, if any" shutdown_drops

drain_drops() {
	wq add --after 1h $q a
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	wq add $q k
	wq get --fd 7 >/dev/null
	"$WQCTL" shutdown --drain $q 2>"$dir/drain" &
	soon figure_is draining yes
	status 4 wq done --fd 7 --retry k
	wait $!
	is status 0 $?
	is said "wqctl: dropped 2 delayed keys or retries" "$(<"$dir/drain")"
}
t "shutdown --drain counts retries that come while it waits, too" drain_drops

no_command() {
	status 0 wq
	is "lists the queues" "$(wq ls)" "$(<"$out")"
	says "wqctl --help lists the commands"
	status 2 wq --json
}
t "wqctl without a command lists the queues" no_command

info_usage() {
	trap 'chmod 600 /dev/wq; wq unlink $q.b' EXIT
	chmod 666 /dev/wq
	status 0 as_nobody info
	[[ $(<"$out") =~ user_queues\ +[0-9]+\ \(you\ have\ 0\) ]] || exit 1
	status 0 as_nobody create -n 70 $q.b
	wq add $q.b k
	status 0 as_nobody info
	[[ $(<"$out") =~ user_queues\ +[0-9]+\ \(you\ have\ 1\) ]] || exit 1
	[[ $(<"$out") =~ user_keys\ +[0-9]+\ \(your\ queues\ may\ hold\ 70\) ]] || exit 1
}
t "info shows the part of the limits that the user's queues use: the sum of max_keys, not the keys" info_usage

run_argument() {
	status 0 wq add $q -- "\$(touch $dir/executed)" '-n'
	status 0 wq run --once $q -- sh -c 'printf "%s;" "$1" >>'"$dir/ran" sh {}
	is ran "\$(touch $dir/executed);-n;" "$(<"$dir/ran")"
	[ ! -e "$dir/executed" ]
	exec 7<>/dev/wq
	wq bind --fd 7 $q
	status 0 wq add --fd 7 -- -n
	wq get --fd 7 >/dev/null
	status 0 wq done --fd 7 --forget -- -n
}
t "run: a key that is passed as an argument of its own is not executed by the command's shell; -- ends the options before a key" run_argument

# ----

failed=0
echo "TAP version 13"
echo "1..${#tests[@]}"
for ((i = 0; i < ${#tests[@]}; i++)); do
	IFS=$'\t' read -r name function queue <<<"${tests[i]}"
	left=("$dir"/*)
	[ ! -e "${left[0]}" ] || rm -rf "${dir:?}"/*
	: >"$out"
	: >"$err"
	[ -z "$queue" ] || wq create $queue
	# In a process group of its own, which ends as a whole.
	set -m
	(set +m; $function) &
	test=$!
	set +m
	(nap "$WQ_LIMIT"; kill -9 -- -$test) >/dev/null 2>&1 &
	watchdog=$!
	if wait $test; then
		echo "ok $((i + 1)) $name"
	else
		echo "not ok $((i + 1)) $name"
		failed=1 queue=$q
		for name in $q.{b,c,r,w,x,zz}; do wq unlink "$name" 2>/dev/null; done
	fi
	end_test
done
exit $failed
