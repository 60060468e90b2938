#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The 8 workers of the sample tools/samples/fetch.py, and nginx, which limits the rate of requests.
# Prints TAP.  Runs as root on a machine with the module loaded.  WQCTL is the path of wqctl, SRC that
# of the project, whose libwq is built in build/tools, and PROMTOOL that of promtool, beside which
# nginx is.
#
# Each test has a comment that shows why no delay of a process can make it fail.
#
# The tests run through their names, and no variable here needs quotes.
# shellcheck disable=SC2317,SC2086
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
: "${PROMTOOL:?set PROMTOOL to the path of promtool}"
eventually_limit=120
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

q=web port=8089 log=$top/log server=''
trap 'end_test; [ -z "$server" ] || kill "$server"; wait; rm -rf "$top"' EXIT

# The servers are addresses of this machine.  127.0.0.1 allows 10 requests a second after the first
# 10, 127.0.0.2 one request a minute until the file open exists, and 127.0.0.3 all requests.
mkdir "$top/www"
echo page >"$top/www/page"
cat >"$top/config" <<END
daemon off;
master_process off;
pid $top/pid;
events {}
http {
	log_format line '\$msec \$status \$http_host\$request_uri';
	access_log $log line;
	client_body_temp_path $top/temp;
	proxy_temp_path $top/temp;
	fastcgi_temp_path $top/temp;
	uwsgi_temp_path $top/temp;
	scgi_temp_path $top/temp;
	root $top/www;
	limit_req_status 429;
	limit_req_zone \$http_host zone=steady:1m rate=10r/s;
	limit_req_zone \$closed zone=closed:1m rate=1r/m;
	map \$status \$retry_after { 429 1; default ""; }
	add_header Retry-After \$retry_after always;
	server {
		listen 127.0.0.1:$port;
		limit_req zone=steady burst=9 nodelay;
		try_files /page =404;
	}
	server {
		listen 127.0.0.2:$port;
		set \$closed \$http_host;
		if (-e $top/open) { set \$closed ""; }
		limit_req zone=closed;
		try_files /page =404;
	}
	server {
		listen 127.0.0.3:$port;
		try_files /page =404;
	}
}
END
"${PROMTOOL%/*}/nginx" -c "$top/config" -e "$top/errors" &
server=$!
# nginx writes the file when it listens.
until [ -s "$top/pid" ]; do
	! ended $server || { cat "$top/errors"; exit 1; }
	nap 0.02
done

setup() { : >"$log"; }
explain() { tail -n 60 "$top/errors" "$log" "$dir/said" | sed 's/^/# /'; }
cleanup() { unlink_queues $q; }

# A request that times out on a busy machine would be repeated.
sed 's/^TIMEOUT = 30 /TIMEOUT = 300 /' "$SRC/tools/samples/fetch.py" >"$top/fetch.py"

# pages SERVER N: the keys of N pages
pages() { seq -f "127.0.0.$1:$port/%.0f" "$2"; }
start_sample() {
	LD_LIBRARY_PATH=$SRC/build/tools PYTHONPATH=$SRC/tools/bindings/python \
		PYTHONPYCACHEPREFIX=$top/cache \
		/usr/bin/python3 "$top/fetch.py" --scheme http $q >"$dir/said" 2>&1 &
	sample=$!
}
# The queue of the sample's head
create() { eval "$(sed -n 's/^    wqctl create/wq create/p' "$top/fetch.py")"; }
# Ctrl-C ends the sample, without a traceback.
end_sample() {
	eventually stat_is consumers 8
	kill -INT $sample
	wait $sample
	is "status of the sample" 0 $?
	has_no "output of the sample" Traceback "$(<"$dir/said")"
}
# logged STATUS SERVER N: so many answers at least.  It starts no process, for which a guest is slow.
logged() {
	local status page n=0
	while read -r _ status page; do
		[[ "$status $page" != $1" 127.0.0.$2:"* ]] || n=$((n + 1))
	done <"$log"
	[ $n -ge $3 ]
}
all_done() { [ "$(stats ready processing delayed)" = "0 0 0" ]; }
answers() { awk -v status="$1" '$2 == status { print $3 }' "$log" | sort; }

# In a time T, 1 + 8 T keys start at most.  Each worker can be late with a request for one key that
# started before.  So nginx sees 9 + 8 T requests at most in any T, and allows 10 + 10 T.
test_start_rate_gets_no_429_and_fetches_each_page_once() {
	succeeds create
	succeeds wq set --start-rate 8/s $q
	pages 1 24 | wq add $q
	start_sample
	eventually logged '*' 1 24
	eventually all_done
	is "answers that are not 200" "" "$(awk '$2 != 200' "$log")"
	is "pages" "$(pages 1 24 | sort)" "$(answers 200)"
	end_sample
}

of_two_servers() {
	pages 2 20
	pages 3 4
}

# nginx notes a time that is not later than its answer, and not earlier than the request.  A worker
# that gets 429 begins a rest before its next get.  So the 429 of the same worker are at least as far
# apart as Retry-After, and two of any nine 429 are of the same worker.
test_without_a_start_rate_a_server_rests_for_retry_after_and_each_page_is_fetched() {
	succeeds create
	succeeds wq set --start-rate 0 $q
	of_two_servers | wq add $q
	start_sample
	eventually logged 429 2 12
	# the other server has no rest
	eventually logged 200 3 4
	: >"$top/open"
	eventually all_done
	is "pages" "$(of_two_servers | sort)" "$(answers 200)"
	is "pages that were asked for again within 1 s" "" "$(awk '
		$3 in refused && $1 - refused[$3] < 0.999
		{ delete refused[$3] }
		$2 == 429 { refused[$3] = $1 }' "$log")"
	is "answers 429 within 1 s after the eighth one before" "" "$(awk '
		$2 == 429 { at[++n] = $1; if (n > 8 && $1 - at[n - 8] < 0.999) print }' "$log")"
	is "failures" 0 "$(stats failed)"
	end_sample
}

run_tests "$@"
