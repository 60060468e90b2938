# SPDX-License-Identifier: GPL-2.0-only
# The version of all parts, from its one place: MODULE_VERSION in module/dev/main.c.
# (Not VERSION: a kernel's Makefile has that name for itself.)
WQ_VERSION := $(shell sed -n 's/^MODULE_VERSION("\(.*\)");/\1/p' \
	$(dir $(lastword $(MAKEFILE_LIST)))../../module/dev/main.c)
