# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2154  # out: set by the script that reads this
# The common functions of the scripts that run tests in guests.  A script sets out, the
# folder of its results, and runs in the project's folder.

# The C selftests that a developer runs after each edit, in User-mode Linux: those that take up to
# 4 s, and do not need the module for themselves.  The quick KUnit cases have the rules of map.
# faults/source is source without the case that needs ext4.
# shellcheck disable=SC2034  # for tests/run and tests/mutants/run
quick_tests=(access arrays badbuf badinput bytes config debugfs delay drain errors faults/source
	files flush groups libwq limits metrics mount names park pause poll priority queue
	ratelimit readwrite repeat restore start unbound uring woken)

say() { echo "wq: $*" >&2; }

need_test_tools() { # KERNEL-OR-NOTHING: to be built, too
	# with what tools/vm needs to build kernels, so that it installs nothing in between
	tools/make/deps gcc libc6-dev gcc-multilib perl python3 make busybox-static qemu-system-x86 \
		kmod xz-utils jq tmux bpftrace trace-cmd bc bison flex libelf-dev libssl-dev dwarves \
		patch liburing-dev libbpf-dev clang iproute2 inotify-tools watchman procps systemd rsync
	# beside the unpacking of a source, which takes one CPU
	{
		get_prometheus
		get_nginx
		get_dkms
		[ -z "$1" ] || tools/vm/vm build "$1" >/dev/null
	} &
	kernel=$(tools/vm/vm source uml)
	wait $!
}

build_selftests() {
	make -s --no-print-directory tools
	make -s --no-print-directory -C tools/wqctl O="$PWD/build/tools" static
	make -s -j "$(nproc)" --no-print-directory -C tests/selftests O="$out" \
		KSELFTEST="$kernel/tools/testing/selftests"
}

# Prometheus' programs, without the servers that its packages would start.  They are copied from
# the cache, as the guest may not see that.
get_prometheus() {
	local program root
	if [ -x "$out/bin/promtool" ] && [ -x "$out/bin/prometheus-node-exporter" ]; then return; fi
	root=$(tools/vm/vm packages . prometheus prometheus-node-exporter)
	mkdir -p "$out/bin"
	for program in prometheus prometheus-node-exporter promtool; do
		cp "$root/usr/bin/$program" "$out/bin/.new"
		mv "$out/bin/.new" "$out/bin/$program"
	done
}

# nginx without the unit that its package would start.
get_nginx() {
	[ -x "$out/bin/nginx" ] ||
		install -D "$(tools/vm/vm packages . nginx)/usr/sbin/nginx" "$out/bin/nginx"
}

# dkms is one script, whose package depends on a kernel's headers.
get_dkms() {
	[ -x "$out/bin/dkms" ] ||
		install -D "$(tools/vm/vm packages . dkms)/usr/sbin/dkms" "$out/bin/dkms"
}

# Runs KUnit cases in a guest: all, all but the comparison with the model, or the quick ones.  Prints
# "PASSED FAILED SKIPPED".  The kernel's own kunit.py reads the results of each suite.
run_suites() { # KERNEL FOLDER-OF-SUITES DIR all|most|quick VM-OPTION...
	local guest=0 sum good bad skipped
	rm -rf "$3"
	mkdir -p "$3"
	# by default failslab does not fail allocations that may sleep
	# shellcheck disable=SC2016  # for the guest's shell
	tools/vm/vm run --kernel "$1" "${@:5}" -- bash -c '
		failslab=/sys/kernel/debug/failslab/ignore-gfp-wait
		[ ! -e $failslab ] || echo N >$failslab
		suites=("$1"/wq_kunit*.ko) quick=()
		[ "$3" = all ] || suites=("$1/wq_kunit.ko")
		[ "$3" != quick ] || quick=(quick=1)
		for ko in "${suites[@]}"; do insmod "$ko" "${quick[@]}"; done
		for suite in /sys/kernel/debug/kunit/wq*; do
			cat "$suite/results" >"$2/${suite##*/}"
		done
		for ko in "${suites[@]}"; do
			ko=${ko##*/}
			rmmod "${ko%.ko}"
		done' guest "$2" "$3" "$4" >&2 || guest=$?
	# The parser takes half a second to start, so it gets all suites at once.
	{
		printf 'KTAP version 1\n1..%d\n' "$(find "$3" -type f | wc -l)"
		find "$3" -type f -exec awk 'FNR > 2 { if (/^(not )?ok 1 /) sub(1, ++n); print }' {} +
	} >"$3.ktap"
	python3 "$kernel/tools/testing/kunit/kunit.py" parse --json="$3.json" "$3.ktap" >&2 || true
	sum=$(python3 -c '
import collections, json, re, sys

# 6.1 keeps a short log of each case, so that the line of a case that prints much can be
# missing.  The totals below count every case.
totals = re.findall(r"^# Totals: pass:\d+ fail:(\d+) skip:\d+", open(sys.argv[2]).read(), re.M)
found = collections.Counter()
def count(group):
    found.update(case["status"] for case in group.get("test_cases", []))
    for sub in group.get("sub_groups", []):
        count(sub)

count(json.load(open(sys.argv[1])))
passed, skipped = found["PASS"], found["SKIP"]
failed = max(found.total() - passed - skipped, sum(map(int, totals)))
print(passed, failed, skipped)' "$3.json" "$3.ktap") || sum="0 1 0"
	read -r good bad skipped <<<"$sum"
	# a guest that failed or ran no case is a failure, even if no case failed
	if [ "$bad" -eq 0 ] && { [ $guest -ne 0 ] || [ "$good" -eq 0 ]; }; then bad=1; fi
	echo "$good $bad $skipped"
}

# Prints "PASSED FAILED SKIPPED".  TAP::Harness, perl's own, reads the results; a file
# whose plan doesn't hold counts as a failure.
sum_tap() { # FILE...
	perl -MTAP::Harness -e '
		my $all = TAP::Harness->new({
			exec => ["cat"], stdout => \*STDERR, errors => 1, failures => 1 })->runtests(@ARGV);
		my $skipped = $all->skipped;
		print $all->passed - $skipped, " ", $all->failed + $all->parse_errors, " $skipped\n";
		' "$@" || echo "0 1 0"
}
