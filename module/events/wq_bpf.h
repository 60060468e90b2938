/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions for BPF programs, which declare them themselves. */
#ifndef _WQ_BPF_H
#define _WQ_BPF_H

#include <linux/types.h>

int wq_bpf_add(u32 channel, const void *key, u32 key__sz);
int wq_bpf_add_priority(u32 channel, const void *key, u32 key__sz, int priority, s64 delay);

#endif /* _WQ_BPF_H */
