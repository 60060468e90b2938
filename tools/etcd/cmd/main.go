// SPDX-License-Identifier: GPL-2.0-only

// Command wq-etcd shares a queue of keys between machines, over etcd. See tools/doc/etcd.md for its
// guarantees.
package main

import "wq.example/wq-etcd"

func main() { wqetcd.Main() }
