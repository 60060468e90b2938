# SPDX-License-Identifier: GPL-2.0-only
# wq out of tree.  "make help" tells the targets.

KDIR	?= /lib/modules/$(shell uname -r)/build
PREFIX	?= /usr/local
DESTDIR	?=
O	?= $(CURDIR)/build/tools

# Kbuild's own output folder is not ours.
TOOLS	:= $(MAKE) --no-print-directory O=$(O) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)

.PHONY: all modules tools run shell test check install uninstall clean help

all: modules tools

modules:
	@test -e $(KDIR)/Makefile || { \
		echo "wq: no kernel headers at $(KDIR): install linux-headers-$$(uname -r)," >&2; \
		echo "wq: or say where they are: make KDIR=..." >&2; exit 1; }
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

tools:
	@tools/deps gcc libc6-dev linux-libc-dev pkg-config libjansson-dev uthash-dev
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

check:
	@tests/check

install: all
	$(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR)) modules_install
	$(TOOLS) -C tools/lib install
	$(TOOLS) -C tools/wqctl install
	install -D -m 644 tools/60-wq.rules $(DESTDIR)/usr/lib/udev/rules.d/60-wq.rules
	@test -n "$(DESTDIR)" || { depmod && ldconfig; }
	@echo "wq: installed; now: modprobe wq"

uninstall:
	$(TOOLS) -C tools/lib uninstall
	$(TOOLS) -C tools/wqctl uninstall
	rm -f $(DESTDIR)/usr/lib/udev/rules.d/60-wq.rules
	rm -f $(DESTDIR)/lib/modules/*/extra/wq.ko* $(DESTDIR)/lib/modules/*/updates/wq.ko*
	@test -n "$(DESTDIR)" || { depmod && ldconfig; }

clean:
	rm -rf build
	@test ! -e $(KDIR)/Makefile || $(MAKE) -C $(KDIR) M=$(CURDIR) clean

help:
	@echo "make          build wq.ko for the kernel of KDIR, libwq and wqctl"
	@echo "make run      watch wq work: a mirror of a directory tree, in a virtual machine"
	@echo "make shell    a prompt in that virtual machine, with wq.ko loaded"
	@echo "make test     all tests, in virtual machines"
	@echo "make check    static checks"
	@echo "make install  modules, libwq, wqctl, udev rule (PREFIX, DESTDIR); uninstall"
	@echo "make clean    remove what was built here"
