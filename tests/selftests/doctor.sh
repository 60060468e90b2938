#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# wqctl doctor in a machine that has the fault.  Prints TAP.  Runs as root on a machine with the
# module loaded, which the tests remove and load again.
#
#	WQCTL		path of wqctl
#	WQCTL_SHARED	path of wqctl with shared libraries, and of libwq.so beside it: WQCTL
#	WQ_KO		path of wq.ko
#	SRC		path of the project
#	SOURCES		directory of the modules of sources
#	DKMS		path of dkms: bin/dkms beside this file
#
# Most faults are made in a mount namespace.  The tests run through their names, and the faults are
# commands for another shell.
# shellcheck disable=SC2317,SC2016
set -u

: "${WQCTL:?set WQCTL to the path of wqctl}" "${SRC:?set SRC to the path of the project}"
: "${WQ_KO:?set WQ_KO to the path of wq.ko}" "${SOURCES:?set SOURCES to the directory of wq_fs.ko}"
: "${WQCTL_SHARED:=$WQCTL}" "${DKMS:=$(dirname "$(readlink -f "$0")")/bin/dkms}"
# shellcheck source=tests/selftests/harness.sh
. "$(dirname "$0")/harness.sh"

release=$(uname -r)
modules=/lib/modules/$release
parameters=/sys/module/wq/parameters
restrict=/proc/sys/kernel/dmesg_restrict
IFS=: read -r major minor </sys/class/wq/wq/dev
version=$("$WQCTL" --version)
version=${version##* }
for name in user_queues user_keys user_waits user_bytes user_sources; do
	read -r "default_$name" <"$parameters/$name"
done
read -r default_restrict <"$restrict"
export WQCTL WQ_KO DKMS SRC dir modules

# For users without rights.
chmod 755 "$top"

cleanup() {
	local name
	if [ ! -d /sys/module/wq ]; then busybox insmod "$WQ_KO"; fi
	if [ -e "$dir/other-module" ]; then unload && busybox insmod "$WQ_KO"; fi
	[[ $(</proc/mounts) = *" /dev/wqueue wqueue "* ]] || mount -t wqueue wqueue /dev/wqueue
	# the same file, because rmmod would leave another one there
	[ ! -e /dev/wq.kept ] || mv -f /dev/wq.kept /dev/wq
	chown root:root /dev/wq && chmod 600 /dev/wq
	chmod 1777 /dev/wqueue
	for name in user_queues user_keys user_waits user_bytes user_sources; do
		local -n value=default_$name
		echo "$value" >"$parameters/$name"
	done
	echo "$default_restrict" >"$restrict"
	"$WQCTL" unlink doctors 2>/dev/null
}

unload() {
	umount /dev/wqueue
	busybox rmmod wq
}

# load_other SED-SCRIPT: the module with another text in it
load_other() {
	: >"$dir/other-module"
	succeeds unload
	LC_ALL=C sed "$1" "$WQ_KO" >"$dir/wq.ko"
	succeeds busybox insmod "$dir/wq.ko"
	mount -t wqueue wqueue /dev/wqueue
}

cat >"$top/faults" <<'END'
# a machine without modules, with a changed wq.ko, and with one that depmod has seen
no_modules() { mount -t tmpfs none /lib/modules; mkdir "$modules"; }
installed() {
	no_modules
	mkdir "$modules/updates"
	LC_ALL=C sed "${1-}" "$WQ_KO" >"$modules/updates/wq.ko"
}
listed() { installed "$@"; depmod 2>/dev/null; }

# dkms knows the module, as after its add, and a build will fail
dkms_added() {
	no_modules
	mount -t tmpfs none /usr/src
	mount -t tmpfs none /var/lib
	mkdir -p /usr/src/wq-0.1 /var/lib/dkms/wq/0.1
	ln -s /usr/src/wq-0.1 /var/lib/dkms/wq/0.1/source
	printf '%s\n' PACKAGE_NAME=wq PACKAGE_VERSION=0.1 'BUILT_MODULE_NAME[0]=wq' \
		'DEST_MODULE_LOCATION[0]=/updates' 'MAKE[0]=false' >/usr/src/wq-0.1/dkms.conf
	: >/usr/src/wq-0.1/Kbuild
}
# a build for another kernel has failed
dkms_failed_elsewhere() {
	mkdir -p /var/lib/dkms/wq/0.1/build "$modules/build/include"
	echo "DKMS make.log for wq-0.1 for kernel 5.0-a (x86_64)" >/var/lib/dkms/wq/0.1/build/make.log
	: >"$modules/build/Makefile"
}

snapshot() { # FILE: one of the units' snapshots
	mount -t tmpfs none /var/lib
	mkdir /var/lib/wq
	: >"/var/lib/wq/$1"
}

library() { # FILE NAME: a libwq
	mkdir "$dir/lib"
	cp "$1" "$dir/lib/$2"
	ln -s "$2" "$dir/lib/libwq.so.0"
	export LD_LIBRARY_PATH=$dir/lib
}

# the rule that the packages have, without its comment sign and for this group
rule() { # GROUP
	mkdir -p /etc/udev
	mount -t tmpfs none /etc/udev
	mkdir /etc/udev/rules.d
	sed "s/^#KERNEL/KERNEL/; s/GROUP=\"wq\"/GROUP=\"$1\"/" "$SRC/tools/system/udev/60-wq.rules" \
		>/etc/udev/rules.d/60-wq.rules
}

over() { echo "$1" >"$dir/over"; mount --bind "$dir/over" "$2"; }
doctor() { exec "$WQCTL" doctor --json; }
as_user() { # [GROUP]
	group=${1-nogroup}
	doctor() {
		exec setpriv --reuid nobody --regid "$group" --clear-groups "$WQCTL" doctor --json
	}
}
END

in_namespace() { # FAULT COMMANDS
	unshare -m bash -euc '. "$0/faults"; eval "$1"; eval "$2"' "$top" "$1" "$2"
}

# examine STATUS FAULT: makes the fault in a namespace, and asks the doctor
examine() { status "$1" in_namespace "$2" doctor; }

# found CODE TEXT: $out has this fault, nothing before it, and prints this
found() {
	holds '.[-1].code == "'"$1"'" and (.[-1].text | contains("'"$2"'"))' \
		'all(.[:-1][]; .code == "fine")'
}

finds() { # CODE TEXT FAULT
	examine 1 "$3"
	found "$1" "$2"
}

# passes CHECK TEXT FAULT [STATUS]: this is no fault for that check, which prints this
passes() {
	examine "${4-0}" "$3"
	holds 'any(.[]; .check == "'"$1"'" and .code == "fine" and (.text | contains("'"$2"'")))'
}

test_a_machine_without_a_fault_passes() {
	examine 0 ''
	holds 'map(.check) - ["units"] == ["kernel", "module", "version", "use", "device", "names", "directory", "rights", "limits", "library", "crash", "sources"]'
	holds 'all(.code == "fine")'
	status 0 wq doctor
	has "first line" "kernel     fine     $release" "$(<"$out")"
	status 0 wq doctor --json
	is "lines of text" "$(jq length "$out")" "$(wq doctor | wc -l)"
}

test_a_user_without_the_device_passes() {
	examine 0 as_user
	holds 'any(.[]; .text == "you cannot open /dev/wq, and queues with names do not need it")'
	holds 'any(.[]; .check == "limits" and .code == "unknown" and (.text | contains("Permission denied")))'
}

# ---- the kernel, and a module that is there

test_kernel_old() {
	finds kernel-old "wq needs 6.1" 'doctor() { exec setarch --uname-2.6 "$WQCTL" doctor --json; }'
}

test_kernel_crashed() {
	finds kernel-crashed dmesg 'over 4225 /proc/sys/kernel/tainted'
	passes crash "has not crashed" 'over 4097 /proc/sys/kernel/tainted'
}

test_module_not_live() {
	finds module-not-live "state is going" 'over going /sys/module/wq/initstate'
}

test_module_forced() {
	: >"$dir/other-module"
	unload
	succeeds in_namespace listed "modprobe -f wq"
	mount -t wqueue wqueue /dev/wqueue
	finds module-forced "wqctl reload --force" ''
}

# ---- no module

test_no_modules() {
	unload
	finds no-modules CONFIG_MODULES 'mount -t tmpfs none /proc'
}

test_modules_disabled() {
	unload
	finds modules-disabled modules-load.d 'over 1 /proc/sys/kernel/modules_disabled'
}

test_not_installed() {
	unload
	finds not-installed wq-dkms no_modules
}

test_other_kernels() {
	unload
	finds other-kernels "installed for 5.0-a, 5.0-b, and not for the running kernel $release" \
		'no_modules
		mkdir -p /lib/modules/5.0-{a,b}/extra/wq
		touch /lib/modules/5.0-{a,b}/extra/wq/wq.ko'
}

test_headers_missing_dkms_not_built_and_dkms_failed() {
	unload
	status 0 in_namespace dkms_added '
		! "$WQCTL" doctor --json >"$dir/added"
		dkms_failed_elsewhere
		! "$WQCTL" doctor --json >"$dir/another"
		! "$DKMS" build -m wq -v 0.1 -k "${modules##*/}" >&2
		! "$WQCTL" doctor --json >"$dir/failed"'
	cp "$dir/added" "$out"
	found headers-missing "apt install linux-headers-$release"
	cp "$dir/another" "$out"
	found dkms-not-built "dkms autoinstall -k $release"
	cp "$dir/failed" "$out"
	found dkms-failed "see /var/lib/dkms/wq/0.1/build/make.log; then: dkms autoinstall -k $release"
}

test_not_listed() {
	unload
	finds not-listed "depmod && modprobe wq" installed
}

test_wrong_kernel() {
	unload
	local other=${release/#?/5}
	finds wrong-kernel "built for the kernel $other, and $release runs" "listed 's/vermagic=$release /vermagic=$other /'"
}

test_unsigned() {
	unload
	finds unsigned "module.sig_enforce" 'listed; over Y /sys/module/module/parameters/sig_enforce'
	has "the next step" "mokutil --import" "$(<"$out")"
	finds unsigned "(lockdown)" '
		listed
		mount -t securityfs none /sys/kernel/security
		over "none [integrity] confidentiality" /sys/kernel/security/lockdown'
}

test_key_unknown() {
	local signed='
		cp "$modules"/kernel/fs/9p/9p.ko* "$dir"
		no_modules
		mkdir "$modules/updates"
		for ko in "$dir"/9p.ko*; do mv "$ko" "$modules/updates/wq.${ko##*/9p.}"; done
		depmod 2>/dev/null
		over Y /sys/module/module/parameters/sig_enforce'
	unload
	# a module of the kernel's own has a key that the kernel trusts
	passes signature "by 'Build time" "$signed" 1
	finds key-unknown "mokutil --import" "$signed; mount --bind /dev/null /proc/keys"
	examine 1 "$signed; as_user"
	holds 'any(.[]; .check == "signature" and .code == "unknown")'
}

test_refused() {
	unload
	dmesg -C
	finds refused "version magic" "listed 's/ mod_unload / mod_Unload /'
		! modprobe wq 2>/dev/null"
	dmesg -C
}

test_not_loaded() {
	unload
	finds not-loaded "modprobe wq" listed
	# the next command helps
	succeeds in_namespace listed "modprobe wq"
	mount -t wqueue wqueue /dev/wqueue
	examine 0 ''
}

test_build_without_modinfo_is_unknown() {
	unload
	examine 1 'listed; mount --bind /dev/null "$(readlink -f "$(PATH=$PATH:/sbin type -P modinfo)")"'
	holds 'any(.[]; .check == "build" and .code == "unknown")'
	holds '.[-1].code == "not-loaded"'
}

# ---- versions

test_module_replaced() {
	finds module-replaced "wqctl reload" "listed 's/srcversion=[0-9A-F]/srcversion=X/'"
	passes version "$version" listed
}

test_version_differs() {
	load_other "s/\\x00version=$version/\\x00version=9.9/"
	finds version-differs "the module is 9.9, and wqctl $version" ''
}

test_library_differs() {
	local WQCTL=$WQCTL_SHARED
	finds library-differs "$dir/lib/libwq.so.0.0" "library ${WQCTL%/*}/libwq.so.0 libwq.so.0.0"
	rm -r "${dir:?}/lib"
	passes library "$dir/lib/libwq.so.$version" "library ${WQCTL%/*}/libwq.so.0 libwq.so.$version"
}

test_library_broken() {
	local WQCTL=$WQCTL_SHARED
	finds library-broken "apt install --reinstall libwq0" "library /etc/passwd libwq.so.$version"
}

# ---- files

test_no_device() {
	mv /dev/wq /dev/wq.kept
	finds no-device "mknod -m 600 /dev/wq c $major $minor" ''
	finds no-device "--device /dev/wq" 'mount -t tmpfs none /dev'
	# a container
	passes device "queues with names need none" '
		mkdir "$dir/names"
		mount --bind /dev/wqueue "$dir/names"
		mount -t tmpfs none /dev
		mkdir /dev/wqueue
		mount --bind "$dir/names" /dev/wqueue'
}

test_wrong_device() {
	finds wrong-device "mknod -m 600 /dev/wq c $major $minor" 'mount --bind /dev/null /dev/wq'
	finds wrong-device "rm -r /dev/wq" 'over file /dev/wq'
	mv /dev/wq /dev/wq.kept && mknod /dev/wq b "$major" "$minor"
	finds wrong-device "rm -r /dev/wq" ''
}

test_not_mounted() {
	finds not-mounted "mount -t wqueue none /dev/wqueue" 'umount /dev/wqueue'
}

test_mounted_elsewhere() {
	finds mounted-elsewhere "wqctl -C $dir/else where ls" \
		'umount /dev/wqueue; mkdir "$dir/else where"; mount -t wqueue none "$dir/else where"'
	passes names "$dir/else" 'umount /dev/wqueue; mkdir "$dir/else"; mount -t wqueue none "$dir/else"
		doctor() { exec "$WQCTL" -C "$dir/else" doctor --json; }'
}

test_no_access() {
	chmod 700 /dev/wqueue
	finds no-access "mode is 0700, uid 0 and gid 0; root can allow it: chmod 1777 /dev/wqueue" as_user
	chmod 755 /dev/wqueue
	passes directory "and create none" as_user
}

test_no_group() {
	finds no-group "groupadd -r no-such-group" "rule no-such-group"
}

test_rule_not_applied() {
	finds rule-not-applied "udevadm trigger" "rule daemon"
	chmod 660 /dev/wq
	finds rule-not-applied "udevadm trigger" "rule daemon"
	chgrp daemon /dev/wq
	passes rights "you can open" "rule daemon"
	chmod 600 /dev/wq
	finds rule-not-applied "udevadm trigger" "rule daemon"
}

test_not_in_group() {
	chmod 660 /dev/wq
	chgrp daemon /dev/wq
	finds not-in-group "usermod -aG daemon" as_user
	passes rights "you can open" "as_user daemon"
}

# ---- use

at_limit() { # CODE PARAMETER LIMIT
	echo "$3" >"$parameters/$2"
	finds "$1" "of $3; unlink queues" as_user
	has "the parameter" "echo N >$parameters/$2" "$(<"$out")"
	examine 0 ''
	holds 'any(.[]; .text == "none apply: you have CAP_SYS_RESOURCE")'
}

test_limit_queues() {
	chmod 666 /dev/wq
	setpriv --reuid 65534 --regid 65534 --clear-groups "$WQCTL" create doctors || fail create
	echo 2 >"$parameters/user_queues"
	passes limits "queues: 1 of 2" as_user
	at_limit limit-queues user_queues 1
}

test_limit_keys() {
	chmod 666 /dev/wq
	at_limit limit-keys user_keys 65535
	echo 65536 >"$parameters/user_keys"
	passes limits "queues: 0" as_user
}

test_limit_waits() {
	chmod 666 /dev/wq
	at_limit limit-waits user_waits 0
}

test_limit_bytes() {
	chmod 666 /dev/wq
	at_limit limit-bytes user_bytes 262143
}

test_limit_sources() {
	chmod 666 /dev/wq
	at_limit limit-sources user_sources 0
}

test_not_restored() {
	local file
	finds not-restored "systemctl restart wq-restore" "snapshot queues.wq.restoring"
	for file in queues.failed queues.failed.2 reload.wq reload-added.wq; do
		finds not-restored "rm /var/lib/wq/$file" \
			"snapshot $file"
	done
	passes crash "the kernel has not crashed" \
		"snapshot queues.wq"
}

test_what_only_root_can_see_is_unknown_to_others() {
	examine 0 'snapshot queues.wq.restoring; chmod 700 /var/lib/wq; as_user'
	holds 'any(.[]; .check == "snapshots" and .code == "unknown" and (.text | contains("sudo wqctl doctor")))'
	unload
	echo 1 >"$restrict"
	examine 1 'listed; as_user'
	holds '.[-1].code == "not-loaded" and (.[-1].text | contains("sudo wqctl doctor"))'
}

test_queues_that_can_not_be_read_are_unknown() {
	"$WQCTL" create doctors
	# a file for the directory, and none for a queue
	examine 0 'doctor() { ulimit -n 4; exec "$WQCTL" doctor --json; }'
	holds '[.[] | select(.code == "unknown" and (.text | contains("Too many open files"))) | .check] == ["use", "sources"]'
}

test_names_closed() {
	finds names-closed "echo N >$parameters/closed" "over Y $parameters/closed"
	passes crash "the kernel has not crashed" "over N $parameters/closed"
}

test_source_ended() {
	succeeds busybox insmod "$SOURCES/wq_fs.ko"
	mkdir "$dir/watched"
	"$WQCTL" create doctors && "$WQCTL" attach doctors "fs:$dir/watched" >/dev/null
	passes sources "none has ended" ''
	rmdir "$dir/watched"
	finds source-ended "wqctl sources doctors" ''
	# That is no fault for root if the queue is another user's.
	chown nobody /dev/wqueue/doctors
	passes sources "one of the queue 'doctors' of uid $(id -u nobody) has" ''
	examine 1 as_user
	holds '.[-1].code == "source-ended" and (.[-1].text | contains("wqctl sources doctors"))'
	succeeds "$WQCTL" unlink doctors
	succeeds busybox rmmod wq_fs
}

# prints_use TEXT [STATUS]: the check prints this
prints_use() {
	status "${2-0}" wq doctor --json
	holds 'any(.[]; .check == "use" and .code == "fine" and (.text | contains("'"$1"'")))'
}

test_use_names_what_keeps_the_module_loaded() {
	prints_use "nothing uses the module; to unload it: umount /dev/wqueue && modprobe -r wq_bpf wq_fs wq_net wq"
	succeeds busybox insmod "$SOURCES/wq_net.ko"
	"$WQCTL" create doctors && "$WQCTL" attach doctors net >/dev/null
	exec 7<>/dev/wqueue/doctors
	mkdir "$dir/again"
	mount --bind /dev/wqueue "$dir/again"
	prints_use "the queue 'doctors' with a source"
	prints_use "has open the queue doctors"
	prints_use "sees wqueue mounted on $dir/again"
	prints_use "unmount each wqueue, and: modprobe -r wq_bpf wq_fs wq_net wq"
	umount "$dir/again"
	exec 7<&-
	# a queue without a mount
	umount /dev/wqueue
	busybox rmmod wq_net 2>/dev/null && fail "wq_net could be unloaded"
	prints_use "in use: queues that only a mount shows (mount -t wqueue none /dev/wqueue); to unload it" 1
	mount -t wqueue wqueue /dev/wqueue
	succeeds "$WQCTL" unlink doctors
	succeeds busybox rmmod wq_net
	# more than a line
	local n
	for n in {1..99}; do "$WQCTL" create "doctors.$n"; done
	prints_use ", ...; to unload it"
	for n in {1..99}; do "$WQCTL" unlink "doctors.$n"; done
}

# systemd with the project's units.  A doctor looks when all is well, and when a unit has failed.
test_unit_failed() {
	mkdir -p "$dir/units" "$dir/none"
	cp -r "$SRC"/tools/system/systemd/. "$dir/units"
	echo "[Unit]" | tee "$dir/units/sysinit.target" >"$dir/units/basic.target"
	cat >"$dir/units/doctor.service" <<-END
		[Unit]
		DefaultDependencies=no
		Wants=wq-apply.service
		After=wq-apply.service
		SuccessAction=exit-force
		FailureAction=exit-force
		[Service]
		Type=oneshot
		ExecStart=sh $dir/look
	END
	cat >"$dir/look" <<-END
		wqctl doctor --json >$dir/fine
		echo "doctors - - --no-such-option" >/etc/wq.d/a.conf
		systemctl restart wq-apply
		wqctl doctor --json >$dir/failed
	END
	unshare -mpuf bash -euc '
		mount -t proc proc /proc
		mount -t tmpfs none /run
		mount -t tmpfs none /usr/local/bin
		cp "$WQCTL" /usr/local/bin
		mkdir -p /etc/wq.d
		mount -t tmpfs none /etc/wq.d
		echo "doctors - -" >/etc/wq.d/a.conf
		exec env container=unshare SYSTEMD_UNIT_PATH="$dir/units" SYSTEMD_GENERATOR_PATH="$dir/none" \
			/lib/systemd/systemd --system --unit=doctor.service --show-status=no' >"$err" 2>&1
	cp "$dir/fine" "$out" || fail "no output of the doctor" "$(<"$err")"
	holds 'any(.[]; .check == "units" and .code == "fine")'
	cp "$dir/failed" "$out"
	found unit-failed "wq-apply.service has failed"
	has "the next step" "journalctl -b -u wq-apply.service; systemctl restart wq-apply.service" "$(<"$out")"
}

# ---- the tests

test_each_code_has_a_test_and_is_in_the_page() {
	local code page tests seen=0
	page=$(<"$SRC/tools/man/wqctl.1.in")
	page=${page//\\-/-}
	tests=$(<"$0")
	while read -r code; do
		seen=$((seen + 1))
		[[ $tests =~ (finds|found|at_limit)\ $code\  ]] || fail "no test finds $code"
		[[ $page =~ [[:space:]]${code}[,.] ]] || fail "wqctl(1) lacks $code"
	done < <(grep -oE '(fault\(d, |[{] )"[a-z]+-[a-z-]+"' "$SRC/tools/wqctl/doctor.c" | cut -d'"' -f2 | sort -u)
	among "codes" 30 99 "$seen"
}

run_tests "$@"
