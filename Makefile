# SPDX-License-Identifier: GPL-2.0-only
# wq out of tree.  "make help" lists the targets.

# Neither make nor Kbuild can build there.
ifneq ($(words $(CURDIR))$(findstring :,$(CURDIR)),1)
$(error wq: the path of this directory has a blank or a colon: move it. It is '$(CURDIR)')
endif

include tools/make/version.mk

KDIR	?= /lib/modules/$(shell uname -r)/build
PREFIX	?= /usr/local
DESTDIR	?=
override DESTDIR := $(abspath $(DESTDIR))
O	?= $(CURDIR)/build/tools
MANDIR	?= $(PREFIX)/share/man
UDEVDIR	?= $(PREFIX)/lib/udev/rules.d
UNITDIR	?= $(PREFIX)/lib/systemd/system
UNITS	:= $(patsubst tools/system/systemd/%,%,$(filter-out %.d,$(wildcard $(addprefix \
	tools/system/systemd/,* */*))))
SHAREDIR ?= $(PREFIX)/share/wq
DOCDIR	?= $(PREFIX)/share/doc/wq

# Kbuild exports an O of its own, so each call names ours.  The calls have a +, by which make knows
# that they can use its job server.
TOOLS	:= $(MAKE) --no-print-directory O=$(O) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)

# The release of the kernel in KDIR.  If KDIR is gone, its name has to do.
RELEASE	= $(or $(shell sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h 2>/dev/null),$(patsubst /lib/modules/%/build,%,$(KDIR)))
MODDIR	= $(DESTDIR)/lib/modules/$(RELEASE)/updates
MODULES	:= wq.ko $(patsubst %.c,%.ko,$(wildcard module/events/*.c))
# For the build of other modules: see tools/doc/kernel-module.md.
DEVDIR	= $(DESTDIR)/lib/modules/$(RELEASE)/wq
# A distribution's headers come without its signing key, so signing would fail.
SIG_KEY	= $(shell sed -n 's/^CONFIG_MODULE_SIG_KEY="\(.*\)"/\1/p' $(KDIR)/.config)
NO_KEY	= $(if $(filter pkcs11:%,$(SIG_KEY))$(wildcard $(SIG_KEY) \
	$(addprefix $(KDIR)/,$(SIG_KEY))),,CONFIG_MODULE_SIG_ALL=)
MAN	:= $(wildcard tools/man/*.[1345])
SAMPLES	:= $(wildcard $(addprefix tools/samples/*.,c h go py sh))
# Documents and the files that they link to. All keep their places.
DOCS	:= README.md CHANGELOG.md $(wildcard tools/doc/*.md tools/doc/litmus/*) tools/lib/libwq.h \
	include/linux/wq.h include/uapi/linux/wq.h
# They make man pages from the headers and the comments in the sources, and print their names.
MAKE_MAN := $(wildcard tools/man/pages tools/man/kernel-api)

DKMSDIR	:= /usr/src/wq-$(WQ_VERSION)
LICENCES := $(wildcard COPYING* LICENSES)
MODULE_FILES := Kbuild $(wildcard wq_*.c) include module $(LICENCES)
DIST	:= wq-$(WQ_VERSION)
DIST_FILES := $(MODULE_FILES) Makefile README.md CHANGELOG.md tests tools $(wildcard .ci .gitignore .editorconfig .clang-format)

.PHONY: FORCE all modules tools run shell test quick test-long test-packaging test-go test-etcd cluster matrix torture test-torture model litmus proofs kunit kunit-smp patch mutants fuzz test-fuzz \
	check bench headers may-install install uninstall install-tools uninstall-tools dkms-tree \
	dkms-install dkms-uninstall dist specs deb deb-etcd wheel clean help

all: modules tools

headers:
	@test -e $(KDIR)/Makefile || { \
		echo "wq: no kernel headers at $(KDIR): install linux-headers-$$(uname -r)," >&2; \
		echo "wq: or name their directory: make KDIR=..." >&2; exit 1; }

# The kernel's compiler, unless the caller names one.
COMPILER = $(if $(LLVM)$(filter command environment,$(origin CC)),,tools/make/compiler $(KDIR))

modules: headers
	args=$$($(COMPILER)) && $(MAKE) -C $(KDIR) M=$(CURDIR) $(MODARGS) $$args modules

tools:
	@tools/make/deps gcc libc6-dev linux-libc-dev pkg-config libjansson-dev libncurses-dev
	+$(TOOLS) -C tools/lib
	+$(TOOLS) -C tools/wqctl
	+$(TOOLS) -C tools/samples/mirror

# Without the headers of the running kernel: for the kernel that the tests run in.
compile_commands.json: FORCE
	@tools/make/deps python3
	@if test -e $(KDIR)/Makefile; then \
		$(MAKE) -s modules && tools/make/compile-commands $(KDIR) . >$@.new; \
	else \
		tools/vm/vm build stock >/dev/null && \
		tools/make/compile-commands $$(tools/vm/vm kdir stock) build/stock >$@.new; \
	fi && mv $@.new $@

FORCE:

run:
	@tools/samples/mirror/run

shell:
	@$(MAKE) -s --no-print-directory tools
	@tools/man/pages $(O)/man >/dev/null
	@PATH=$(O):$$PATH tools/vm/vm shell

test:
	@tests/run

test-long:
	@tests/run long

quick:
	@tests/run quick

kunit:
	@tests/kunit/run $(if $(T),'$(T)')

kunit-smp:
	@tests/kunit/run-smp $(if $(T),'$(T)')

patch:
	@tests/patch/upstream $(T)

# N=1000 T='wq_delay.c' SEED=1 QUICK=1
mutants:
	@tests/mutants/run $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED)) $(if $(QUICK),--quick) $(T)

test-fuzz:
	@tests/fuzz/run --replay

fuzz:
	@tests/fuzz/run --minutes $(or $(MINUTES),10)

matrix:
	@tests/matrix

check:
	@tests/static/run

model:
	@tests/model/run

litmus:
	@tests/static/litmus

proofs:
	@tests/proofs/run

test-packaging:
	@tests/packaging

test-go:
	@tests/bindings/go

test-etcd:
	@tests/etcd/run

cluster:
	@tests/etcd/run --long $$(($(or $(MINUTES),10) * 60)) $(SEED)

bench:
	@tests/bench/run

torture:
	@tests/torture/run

test-torture:
	@tests/torture/run --ci

# "make uninstall" removes all that "make install" creates, and nothing else, so a change
# of the list below needs the same change of the other.  The KUnit suites are not
# installed.
install: MODARGS = CONFIG_KUNIT=
install: may-install all
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR)) \
		INSTALL_MOD_DIR=updates DEPMOD=true $(NO_KEY) modules_install
	tools/pkg/kernel-dev install Module.symvers $(DEVDIR)
	@test -n "$(DESTDIR)" || depmod $(RELEASE)
	$(MAKE) --no-print-directory install-tools
	@echo "wq: installed for the kernel $(RELEASE). Load the module: modprobe wq"

uninstall: may-install uninstall-tools
	rm -f $(foreach ko,$(MODULES),$(MODDIR)/$(ko) $(addprefix $(MODDIR)/$(ko).,gz xz zst))
	test ! -d $(MODDIR)/module/events || \
		rmdir -p --ignore-fail-on-non-empty $(MODDIR)/module/events
	tools/pkg/kernel-dev remove $(DEVDIR)
	@test -n "$(DESTDIR)" || test ! -d $(MODDIR)/.. || depmod $(RELEASE)

may-install:
	@test -n "$(DESTDIR)" || test "$$(id -u)" -eq 0 || { \
		echo "wq: make $(MAKECMDGOALS) changes the system: run it with sudo," >&2; \
		echo "wq: or name another directory: make $(MAKECMDGOALS) DESTDIR=..." >&2; exit 1; }

install-tools:
	@tools/make/deps python3
	+$(TOOLS) -C tools/lib install
	+$(TOOLS) -C tools/wqctl install
	install -D -m 644 tools/system/udev/60-wq.rules $(DESTDIR)$(UDEVDIR)/60-wq.rules
	for unit in $(UNITS); do install -D -m 644 tools/system/systemd/$$unit \
		$(DESTDIR)$(UNITDIR)/$$unit || exit; done
	for page in $(MAN); do \
		install -D -m 644 -t $(DESTDIR)$(MANDIR)/man$${page##*.} $$page || exit; done
	for maker in $(MAKE_MAN); do pages=$$($$maker $(O)/man) && for page in $$pages; do \
		install -D -m 644 -t $(DESTDIR)$(MANDIR)/man$${page##*.} $(O)/man/$$page || exit; \
	done || exit; done
	install -D -m 755 -t $(DESTDIR)$(SHAREDIR) tools/system/bpftrace/wq-latency.bt
	tools/system/prometheus/dashboard >$(O)/wq.dashboard.json
	install -D -m 644 -t $(DESTDIR)$(SHAREDIR) tools/system/prometheus/wq.alerts.yml $(O)/wq.dashboard.json
	install -D -m 644 -t $(DESTDIR)$(SHAREDIR)/samples $(SAMPLES)
	sed -n '/^```make$$/,/^```$$/{//!p}' tools/doc/kernel-module.md \
		>$(DESTDIR)$(SHAREDIR)/samples/Makefile
	for file in $(DOCS); do install -D -m 644 $$file $(DESTDIR)$(DOCDIR)/$$file || exit; done
	ln -sfrn $(DESTDIR)$(SHAREDIR)/samples $(DESTDIR)$(DOCDIR)/tools/samples
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig

uninstall-tools:
	+$(TOOLS) -C tools/lib uninstall
	+$(TOOLS) -C tools/wqctl uninstall
	rm -f $(DESTDIR)$(UDEVDIR)/60-wq.rules $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	for page in $(MAN); do \
		rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/} || exit; done
	for maker in $(MAKE_MAN); do pages=$$($$maker --list) && for page in $$pages; do \
		rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$$page || exit; done || exit; done
	rm -rf $(DESTDIR)$(SHAREDIR) $(DESTDIR)$(DOCDIR)
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig

# The module's source tree for dkms.
dkms-tree:
	install -d $(DESTDIR)$(DKMSDIR)
	cp -r --no-preserve=mode,ownership --parents $(MODULE_FILES) $(DESTDIR)$(DKMSDIR)
	sed 's/#MODULE_VERSION#/$(WQ_VERSION)/' tools/pkg/dkms.conf >$(DESTDIR)$(DKMSDIR)/dkms.conf
	install -m 755 tools/pkg/kernel-dev $(DESTDIR)$(DKMSDIR)

dkms-install: headers dkms-uninstall
	@$(MAKE) -s --no-print-directory dkms-tree
	dkms add wq/$(WQ_VERSION)
	dkms install wq/$(WQ_VERSION) -k $(RELEASE)
	@echo "wq: installed for the kernel $(RELEASE). Load the module: modprobe wq"

dkms-uninstall:
	@test "$$(id -u)" -eq 0 || { \
		echo "wq: dkms changes the system: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
	@! dpkg-query -S $(DKMSDIR)/dkms.conf 2>/dev/null || { \
		echo "wq: the package wq-dkms owns $(DKMSDIR): apt-get purge wq-dkms" >&2; exit 1; }
	@command -v dkms >/dev/null || tools/make/deps dkms
	@test -z "$$(dkms status wq/$(WQ_VERSION))" || dkms remove wq/$(WQ_VERSION) --all
	rm -rf $(DKMSDIR)

# The sources in their present state, with changes that are not committed.
dist:
	@mkdir -p build
	tar -caf build/$(DIST).tar.xz --transform='s,^,$(DIST)/,rSh' --exclude-from=.gitignore \
		--sort=name --owner=0 --group=0 --numeric-owner $(DIST_FILES)

# Packages of other systems, as specs beside the sources that they build.
specs: dist
	@rm -rf build/specs && mkdir build/specs
	@cp build/$(DIST).tar.xz build/specs
	@sum=$$(sha256sum <build/$(DIST).tar.xz) && for spec in tools/pkg/specs/*; do \
		sed "s/@VERSION@/$(WQ_VERSION)/g; s/@SHA256@/$${sum%% *}/" $$spec \
			>build/specs/$$(basename $$spec .in) || exit; done

deb:
	@tools/pkg/deb $(WQ_VERSION)

deb-etcd:
	@tools/etcd/deb $(WQ_VERSION)

wheel:
	@tools/pkg/wheel && ls build/wheel/libwq-*

# Kbuild's outputs in a module's directories.  clean removes them without Kbuild, because
# the kernel headers may have been removed since the build.
KBUILD_OUTPUTS := *.o *.ko *.ko.* wq*.mod *.mod.c *.a *.i *.s *.lst *.su *.dwo *.gcno *.ll *.usyms \
	*.symtypes .*.cmd .*.d .*.tmp .tmp_* modules.order Module.symvers

clean:
	rm -rf build compile_commands.json
	@find . \( -name .git -o -path ./build \) -prune -o -type f \
		\( -false $(foreach name,$(KBUILD_OUTPUTS),-o -name '$(name)') \) -exec rm -f {} +

help:
	@echo "Build:"
	@echo "  make                  wq.ko for the kernel in KDIR, libwq and wqctl"
	@echo "  make compile_commands.json"
	@echo "                        the commands of the compiler, for editors and clangd"
	@echo "  make clean            remove all that was built"
	@echo
	@echo "Try it in a virtual machine:"
	@echo "  make run              a demonstration: mirror a directory tree"
	@echo "  make shell            a shell with wq.ko loaded"
	@echo
	@echo "Install (PREFIX=/usr/local, DESTDIR=, KDIR=/lib/modules/RELEASE/build):"
	@echo "  make install          the module, its headers and Module.symvers for the build of"
	@echo "                        other modules, and all of install-tools"
	@echo "  make install-tools    libwq, wqctl, documents, bash completion, udev rule, samples"
	@echo "  make dkms-install     the module by dkms, which rebuilds it for later kernels"
	@echo "  make uninstall, uninstall-tools, dkms-uninstall"
	@echo "                        remove what the target of that name installed"
	@echo "  make deb              Debian packages, in build/deb"
	@echo "  make deb-etcd         the Debian package wq-etcd, in build/deb-etcd"
	@echo "  make wheel            the Python package as a wheel and as sources, in build/wheel"
	@echo "  make specs            specs for Fedora, Arch and Kubernetes, in build/specs"
	@echo "  make dist             the sources as build/$(DIST).tar.xz"
	@echo
	@echo "Test:"
	@echo "  make test             the module and its tools, in virtual machines"
	@echo "  make test-long        KUnit under KASAN, lockdep and kmemleak, failing memory, months of"
	@echo "                        virtual time, the sources of keys, the dashboard, and Python"
	@echo "  make quick            the quick KUnit cases and C selftests, half a minute after an edit"
	@echo "  make kunit            the quick KUnit cases, in half a minute"
	@echo "  make kunit T=wq_get   the KUnit suites that match a pattern; T='wq_get.*signal*': some cases"
	@echo "  make kunit-smp        the quick KUnit cases on 2 CPUs, in the distribution's kernel"
	@echo "  make patch            wq as patches for a kernel's tree, in build/patch, and checked there"
	@echo "  make mutants          put N=1000 small faults into the module (T='wq_delay.c'), and count"
	@echo "                        the faults that the quick KUnit cases or the selftests notice"
	@echo "  make check            static checks"
	@echo "  make test-packaging   install, dkms, packages and specs (needs root)"
	@echo "  make test-go          the Go packages and samples, and client-go's own tests"
	@echo "  make test-etcd        wq-etcd: unit tests, and a minute of the faults of make cluster"
	@echo "  make cluster          wq-etcd: kill and cut off members and servers for MINUTES=10,"
	@echo "                        with three seeds or SEED=1 (an hour)"
	@echo "  make model            compare wq with a model: all short sequences, long random ones"
	@echo "  make litmus           check the memory ordering with herd7 and the kernel's model"
	@echo "  make proofs           check code with cbmc, for all inputs up to a bound, and the protocol"
	@echo "                        of the verbs with spin, in all of its states"
	@echo "  make fuzz             fuzz /dev/wq under all checkers for MINUTES=10"
	@echo "  make test-fuzz        replay the inputs that fuzzing has kept (1 minute)"
	@echo "  make torture          all operations at once under all checkers, MINUTES=5 a kernel"
	@echo "  make test-torture     the same on two kernels, 1 minute each"
	@echo "  make matrix           build with gcc and clang, and test, for several kernels"
	@echo "                        (more than an hour)"
	@echo
	@echo "Measure:"
	@echo "  make bench            the cost of wq beside client-go's workqueue and queue_work()"
