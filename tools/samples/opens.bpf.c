// SPDX-License-Identifier: GPL-2.0-only
/*
 * The BPF program of the sample opens.c: the path of each file that a process opens is a key, and, to
 * compare, an event in a ring buffer.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "opens.h"

char LICENSE[] SEC("license") = "GPL";

/* The kernel's file.  libbpf finds the field's place in the kernel's own types. */
struct path;
struct file {
	struct path {
	} f_path;
} __attribute__((preserve_access_index));

/* The module wq_bpf has it, see wq(4). */
extern int wq_bpf_add(__u32 channel, const void *key, __u32 key__sz) __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NUMBERS);
	__type(key, __u32);
	__type(value, __u64);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

static __always_inline __u64 *number(__u32 which)
{
	return bpf_map_lookup_elem(&numbers, &which);
}

SEC("fentry/security_file_open")
int BPF_PROG(opened, struct file *file)
{
	__u64 *pid = number(PID), *opens = number(OPENS), *drops = number(DROPS);
	char key[256];
	long len;

	if (!pid || !opens || !drops || bpf_get_current_pid_tgid() >> 32 != *pid)
		return 0;
	len = bpf_d_path(&file->f_path, key, sizeof(key));
	if (len <= 1 || len > sizeof(key))
		return 0;
	__sync_fetch_and_add(opens, 1);
	wq_bpf_add(CHANNEL, key, len - 1);
	if (bpf_ringbuf_output(&events, key, len, 0))
		__sync_fetch_and_add(drops, 1);
	return 0;
}
