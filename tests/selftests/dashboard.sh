#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The dashboard and the alert rules, by a Prometheus that scrapes the node exporter, which reads what
# wqctl metrics -o wrote about queues in use.  Prints TAP.  Runs as root on a machine with the module
# loaded; WQCTL is the path of wqctl, SRC that of the project, and PROMTOOL that of promtool, beside
# which prometheus and prometheus-node-exporter are.
#
# The tests run through their names.
# shellcheck disable=SC2317
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
: "${PROMTOOL:?set PROMTOOL to the path of promtool}"
eventually_limit=120
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

exporter=127.0.0.1:19100 server=127.0.0.1:19090
programs=() moment=
end() {
	[ ${#programs[@]} -eq 0 ] || kill "${programs[@]}"
	wait
	unlink_queues night-
	rm -rf "$top"
} 2>/dev/null
trap 'end_test; end' EXIT

ask() { busybox wget -qO- "http://$server/api/v1/$1"; } # PATH?QUERY
encoded() { # TEXT: each byte as %XX
	local LC_ALL=C i
	for ((i = 0; i < ${#1}; i++)); do printf '%%%02X' "'${1:i:1}"; done
}
# The numbers that an expression has now; none and a message if the server refuses the expression
values() {
	ask "query?query=$(encoded "$1")${moment:+&time=$moment}" | jq -r '.data.result[].value[1] | select(. != "NaN")'
}
has_values() { [ -n "$(values "$1")" ]; } 2>/dev/null
write_metrics() { wq metrics -o "$top/text/wq.prom"; }

# Two scrapes, with runs between them: a rate needs both.
queues_in_use() {
	succeeds wq create --max-keys 100 night-mail
	succeeds wq create --order groups:/:1 night-builds
	write_metrics
	eventually has_values 'wq_keys{name="night-mail"}'
	succeeds wq add night-mail fails
	status 1 wq run --once --max-retries 0 night-mail -- false {}
	succeeds wq add night-mail alice bob
	succeeds wq run --once -q night-mail -- true {}
	succeeds wq add night-builds a/1 a/2 b/1
	succeeds wq pause --gets night-builds
	write_metrics
	eventually is_scraped
}

# All expressions are evaluated as of this moment, since a scrape on a busy machine may fail.
is_scraped() {
	ask "query?query=$(encoded 'wq_parked_keys == 1 and on (name) ALERTS{alertname="WqKeysGivenUp"}')" |
		jq -er '.data.result[0].value[0]' >"$top/moment"
}

mkdir "$top/text"
cat >"$top/config" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['$SRC/tools/system/prometheus/wq.alerts.yml']
scrape_configs: [{job_name: node, static_configs: [{targets: ['$exporter']}]}]
END
"${PROMTOOL%/*}/prometheus-node-exporter" --web.listen-address="$exporter" \
	--collector.disable-defaults --collector.textfile \
	--collector.textfile.directory="$top/text" 2>"$top/exporter.log" &
programs+=($!)
"${PROMTOOL%/*}/prometheus" --config.file="$top/config" --storage.tsdb.path="$top/data" \
	--web.listen-address="$server" 2>"$top/server.log" &
programs+=($!)
(queues_in_use; exit 0) || { tail -n 5 "$top"/*.log; exit 1; }
moment=$(<"$top/moment")
"$SRC/tools/system/prometheus/dashboard" >"$top/dashboard.json" || exit 1

# The expressions, one a line.  The test's queues stand for all.
# shellcheck disable=SC2016  # Grafana's variables
dashboard() {
	jq -r '.panels[].targets[].expr' "$top/dashboard.json" |
		sed 's/\$__rate_interval/1h/g; s/"\$queue"/"night-.*"/g; s/"\$instance"/".+"/g'
}
rules() { ask rules | jq -r '.data.groups[].rules[].query'; }

# A comparison with bool has a value also if it does not hold.  The server ends the answers at an
# expression that it refuses.
each_has_values() { # EXPRESSION...
	local expr exprs counts urls=()
	mapfile -t exprs < <(printf '%s\n' "$@" | sed -E 's/ (==|[<>]=?) / \1 bool /g')
	for expr in "${exprs[@]}"; do
		urls+=("http://$server/api/v1/query?query=$(encoded "$expr")&time=$moment")
	done
	mapfile -t counts < <(busybox wget -qO- "${urls[@]}" |
		jq '[.data.result[].value[1] | select(. != "NaN")] | length')
	[ ${#counts[@]} -eq $# ] || fail "${exprs[${#counts[@]}]}: refused"
	for expr in "${!exprs[@]}"; do
		is_not "values of ${exprs[expr]}" 0 "${counts[expr]}"
	done
}

test_expressions_of_the_dashboard_have_values() {
	local list
	mapfile -t list < <(dashboard)
	among "expressions" 20 60 ${#list[@]}
	each_has_values "${list[@]}"
}

test_expressions_of_the_alerts_have_values() {
	local list
	mapfile -t list < <(rules)
	is "alerts" "$(grep -c 'alert:' "$SRC/tools/system/prometheus/wq.alerts.yml")" ${#list[@]}
	each_has_values "${list[@]}"
}

# A name inside of a larger expression, too: a part of it could be missing without an error.
test_names_of_metrics_exist() {
	local name list names
	names=$(ask label/__name__/values | jq -r '.data | join(" ")')
	mapfile -t list < <({ dashboard; rules; } | sed 's/"[^"]*"//g' |
		grep -oE '\b(wq|workqueue|node)_\w+' | sort -u)
	among "names" 20 60 ${#list[@]}
	for name in "${list[@]}"; do
		[[ " $names " = *" $name "* ]] || fail "$name: expected a metric of this name, seen none"
	done
}

test_variables_have_the_instance_and_the_queues() {
	local query list
	list=$(jq -r '.templating.list[] | select(.type == "query") | .query' "$top/dashboard.json")
	is "queries" "label_values(wq_keys, instance)
label_values(wq_keys{instance=~\"\$instance\"}, name)" "$list"
	query=$(encoded 'wq_keys')
	is "instances" "$exporter" "$(ask "label/instance/values?match[]=$query" | jq -r '.data[]')"
	has "queues" "night-builds night-mail" \
		"$(ask "label/name/values?match[]=$query" | jq -r '.data | join(" ")')"
}

test_alerts_are_pending_for_queues_in_trouble() {
	local moment='' query='ALERTS{alertname="%s",name="%s"}'
	# shellcheck disable=SC2059  # a format
	for query in "$(printf "$query" WqKeysGivenUp night-mail)" \
		"$(printf "$query" WqGetsPaused night-builds)" \
		"$(printf "$query" WqNoConsumer night-builds)"; do
		eventually has_values "$query"
	done
}

run_tests "$@"
