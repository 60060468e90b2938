// SPDX-License-Identifier: GPL-2.0-only
// tools/etcd/build builds without modules, from the distribution's packages. This file lets Go
// resolve import paths that have a version.
module wq.example/wq-etcd

go 1.21
