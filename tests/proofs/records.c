// SPDX-License-Identifier: GPL-2.0-only
/*
 * The records of an array of keys in the ABI: for all buffers of up to SIZE bytes with any
 * contents, and any number of records, the parser reads only the buffer, and counts whole records,
 * one behind the other, until one does not fit.
 *
 * Source: module/dev/arrays.c
 * Part: /^struct wq_array \{/,/^ \* Copy an array in/
 * Options: --unwind 5
 * Fault: s/size - off < sizeof\(\*rec\) \|\| //
 * Fault: s/size - off < rec_bytes\(rec\)/size < rec_bytes(rec)/
 * Fault: s/off \+= rec_bytes\(rec\)/off += sizeof(*rec)/
 */
#include "shim.h"
#include <uapi/linux/wq.h>

#define WQ_STACK_BYTES	8

struct wq_buf {
	void *mem;
};

struct wq_file;

#include "part.h"

#define SIZE	96

void proof(void)
{
	struct wq_array a = { };
	u32 size = nondet_u32(), most = nondet_u32(), off = 0, n, bytes;

	__CPROVER_assume(size <= SIZE);
	a.recs = malloc(size);
	__CPROVER_assume(a.recs);
	bytes = array_count(&a, size, most);
	assert(bytes <= size && a.count <= most);
	for (n = 0; n < a.count; n++)
		off += rec_bytes(a.recs + off);
	assert(off == bytes);
	if (a.count < most && size - off >= sizeof(struct wq_rec))
		assert(rec_bytes(a.recs + off) > size - off);
}
