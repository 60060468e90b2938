# SPDX-License-Identifier: GPL-2.0-only
# wq out of tree.  "make help" tells the targets.

include tools/version.mk

KDIR	?= /lib/modules/$(shell uname -r)/build
PREFIX	?= /usr/local
DESTDIR	?=
override DESTDIR := $(abspath $(DESTDIR))
O	?= $(CURDIR)/build/tools
MANDIR	?= $(PREFIX)/share/man
UDEVDIR	?= $(PREFIX)/lib/udev/rules.d

# Kbuild's own output folder is not ours.
TOOLS	:= $(MAKE) --no-print-directory O=$(O) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)

# The kernel that KDIR is of; where that is gone, as its name says.
RELEASE	= $(or $(shell sed -n 's/.*UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h 2>/dev/null),$(patsubst /lib/modules/%/build,%,$(KDIR)))
MODDIR	= $(DESTDIR)/lib/modules/$(RELEASE)/updates
# A distribution's headers come without its key, and signing would fail with a fuss.
SIG_KEY	= $(shell sed -n 's/^CONFIG_MODULE_SIG_KEY="\(.*\)"/\1/p' $(KDIR)/.config)
NO_KEY	= $(if $(filter pkcs11:%,$(SIG_KEY))$(wildcard $(SIG_KEY) \
	$(addprefix $(KDIR)/,$(SIG_KEY))),,CONFIG_MODULE_SIG_ALL=)
MAN	:= $(wildcard tools/man/*.[1345])

DKMSDIR	:= /usr/src/wq-$(WQ_VERSION)
LICENCES := $(wildcard COPYING* LICENSES)
MODULE_FILES := Kbuild $(wildcard wq_*.[ch]) include $(LICENCES)
DIST	:= wq-$(WQ_VERSION)
DIST_FILES := $(MODULE_FILES) Makefile README.md tests tools $(wildcard .ci .gitignore)

.PHONY: all modules tools run shell test test-packaging matrix torture test-torture model fuzz test-fuzz \
	check bench headers may-install install uninstall install-tools uninstall-tools dkms-tree \
	dkms-install dkms-uninstall dist deb clean help

all: modules tools

headers:
	@test -e $(KDIR)/Makefile || { \
		echo "wq: no kernel headers at $(KDIR): install linux-headers-$$(uname -r)," >&2; \
		echo "wq: or say where they are: make KDIR=..." >&2; exit 1; }

modules: headers
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(MODARGS) modules

tools:
	@tools/deps gcc libc6-dev linux-libc-dev pkg-config libjansson-dev libncurses-dev uthash-dev
	$(TOOLS) -C tools/lib
	$(TOOLS) -C tools/wqctl
	$(TOOLS) -C tools/mirror

run:
	@tools/run

shell:
	@$(MAKE) -s --no-print-directory tools
	@PATH=$(O):$$PATH tools/vm/vm shell

test:
	@tests/run

test-fuzz:
	@tests/fuzz/run --replay

fuzz:
	@tests/fuzz/run --minutes $(or $(MINUTES),10)

matrix:
	@tests/matrix

check:
	@tests/check

model:
	@tests/model/run

test-packaging:
	@tests/packaging

bench:
	@tests/bench/run

torture:
	@tests/torture

test-torture:
	@tests/torture --ci

# What install puts somewhere, uninstall takes away again, and nothing else: keep the
# two alike.  The KUnit suites are not for use.
install: MODARGS = CONFIG_KUNIT=
install: may-install all
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR)) \
		INSTALL_MOD_DIR=updates DEPMOD=true $(NO_KEY) modules_install
	@test -n "$(DESTDIR)" || depmod $(RELEASE)
	$(MAKE) --no-print-directory install-tools
	@echo "wq: installed for the kernel $(RELEASE); now: modprobe wq"

uninstall: may-install uninstall-tools
	rm -f $(MODDIR)/wq.ko $(addprefix $(MODDIR)/wq.ko.,gz xz zst)
	@test -n "$(DESTDIR)" || test ! -d $(MODDIR)/.. || depmod $(RELEASE)

may-install:
	@test -n "$(DESTDIR)" || test "$$(id -u)" -eq 0 || { \
		echo "wq: $(MAKECMDGOALS) writes to the system: run it by sudo," >&2; \
		echo "wq: or work in a folder: make $(MAKECMDGOALS) DESTDIR=..." >&2; exit 1; }

install-tools:
	$(TOOLS) -C tools/lib install
	$(TOOLS) -C tools/wqctl install
	install -D -m 644 tools/60-wq.rules $(DESTDIR)$(UDEVDIR)/60-wq.rules
	for page in $(MAN); do \
		install -D -m 644 -t $(DESTDIR)$(MANDIR)/man$${page##*.} $$page || exit; done
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig

uninstall-tools:
	$(TOOLS) -C tools/lib uninstall
	$(TOOLS) -C tools/wqctl uninstall
	rm -f $(DESTDIR)$(UDEVDIR)/60-wq.rules
	for page in $(MAN); do \
		rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/} || exit; done
	@test -n "$(DESTDIR)" || test "$$(id -u)" -ne 0 || ldconfig

# The module's source for dkms.
dkms-tree:
	install -d $(DESTDIR)$(DKMSDIR)
	cp -r --no-preserve=mode,ownership --parents $(MODULE_FILES) $(DESTDIR)$(DKMSDIR)
	sed 's/#MODULE_VERSION#/$(WQ_VERSION)/' tools/pkg/dkms.conf >$(DESTDIR)$(DKMSDIR)/dkms.conf

dkms-install: headers dkms-uninstall
	@$(MAKE) -s --no-print-directory dkms-tree
	dkms add wq/$(WQ_VERSION)
	dkms install wq/$(WQ_VERSION) -k $(RELEASE)
	@echo "wq: installed for the kernel $(RELEASE); now: modprobe wq"

dkms-uninstall:
	@test "$$(id -u)" -eq 0 || { \
		echo "wq: dkms works on the system: sudo make $(MAKECMDGOALS)" >&2; exit 1; }
	@! dpkg-query -S $(DKMSDIR)/dkms.conf 2>/dev/null || { \
		echo "wq: that is the package's: apt-get purge wq-dkms" >&2; exit 1; }
	@command -v dkms >/dev/null || tools/deps dkms
	@test -z "$$(dkms status wq/$(WQ_VERSION))" || dkms remove wq/$(WQ_VERSION) --all
	rm -rf $(DKMSDIR)

# The sources as they are here, committed or not.
dist:
	@mkdir -p build
	tar -caf build/$(DIST).tar.xz --transform='s,^,$(DIST)/,rSh' --exclude-from=.gitignore \
		--sort=name --owner=0 --group=0 --numeric-owner $(DIST_FILES)

deb:
	@tools/pkg/deb $(WQ_VERSION)

# What Kbuild leaves in a module's folders, so that no kernel headers are needed: they may
# be gone since the build.
KBUILD_OUTPUTS := *.o *.ko *.ko.* *.mod *.mod.c *.a *.i *.s *.lst *.su *.dwo *.gcno *.ll *.usyms \
	*.symtypes .*.cmd .*.d .*.tmp .tmp_* modules.order Module.symvers

clean:
	rm -rf build
	@find . \( -name .git -o -path ./build \) -prune -o -type f \
		\( -false $(foreach name,$(KBUILD_OUTPUTS),-o -name '$(name)') \) -exec rm -f {} +

help:
	@echo "make          build wq.ko for the kernel of KDIR, libwq and wqctl"
	@echo "make run      watch wq work: a mirror of a directory tree, in a virtual machine"
	@echo "make shell    a prompt in that virtual machine, with wq.ko loaded"
	@echo "make test     all tests, in virtual machines"
	@echo "make fuzz     fuzz /dev/wq for MINUTES=10 in a kernel with every checker"
	@echo "make test-fuzz  run the inputs that were kept from that, a minute"
	@echo "make torture  everything at once, under all checkers (MINUTES=5 for each kernel)"
	@echo "make test-torture  two kernels of that, a minute each"
	@echo "make matrix   builds by gcc and clang, and tests, for a range of kernels (30 minutes)"
	@echo "make check    static checks"
	@echo "make model    wq beside a model of it: all short sequences, long random ones"
	@echo "make bench    what wq costs, beside client-go's workqueue and queue_work()"
	@echo "make install  module, libwq, wqctl, man pages, completion, udev rule (PREFIX,"
	@echo "              DESTDIR, KDIR); uninstall takes away what install put there"
	@echo "make install-tools  the same without the module; uninstall-tools"
	@echo "make dkms-install   the module by dkms, which builds it for later kernels too;"
	@echo "              dkms-uninstall"
	@echo "make deb      Debian packages, in build/deb"
	@echo "make dist     the sources as build/$(DIST).tar.xz"
	@echo "make test-packaging  tests of the above (root)"
	@echo "make clean    remove what was built here"
