// SPDX-License-Identifier: GPL-2.0-only
/*
 * A bucket of the table: for all tags, hashes and numbers of entries.
 *
 *  - The comparison of all tags at once shows each entry whose tag is that of a hash.  The first
 *    entry that it shows has that tag, and none beyond the entries is shown.
 *  - An entry that is appended is the last one, which a removal of the last one returns with its
 *    tag.  The others stay as they are, and so do the flags.
 *
 * Source: module/base/table_bucket.h
 * Options: --unwind 8
 * Fault: s/\(diff - ones\) & ~diff/(diff - ones)/
 * Fault: s/BIT_ULL\(8 \* head_len\(head\)\) - 1/BIT_ULL(8 * head_len(head)) + 1/
 * Fault: s/hash >> 24\)/hash >> 25)/
 * Fault: s/~\(0xffULL << 8 \* i\)/~(0xffULL << 4 * i)/
 * Fault: s/b->head -= WQ_LEN_ONE;\n\treturn bucket_get\(b, bucket_len\(b\)\)/return bucket_get(b, bucket_len(b))/
 */
#include "shim.h"

typedef struct {
	u64 key[2];
} siphash_key_t;

static unsigned int __ffs64(u64 x)
{
	return __builtin_ctzll(x);
}

#include "base/table_bucket.h"

static void prove_match(void)
{
	u64 head = nondet_u64(), m;
	u32 hash = nondet_u32(), i = nondet_u32();
	bool has;

	__CPROVER_assume(head_len(head) <= WQ_SLOTS && i < WQ_SLOTS);
	m = head_match(head, hash);
	has = i < head_len(head) && (u8)(head >> 8 * i) == hash >> 24;
	if (has)
		assert(m & 0x80ULL << 8 * i);
	if (m && __ffs64(m) / 8 == i)
		assert(has);
	assert(!(m >> 8 * head_len(head)));
}

static void prove_append(void)
{
	struct wq_bucket b, was;
	struct slot_content c, last;
	u32 i = nondet_u32();
	struct wq_entry e;

	b.head = nondet_u64();
	was = b;
	e.hash = nondet_u32();
	__CPROVER_assume(bucket_len(&b) < WQ_SLOTS && i < bucket_len(&b));
	bucket_append(&b, slot_content_of(&e));
	assert(bucket_len(&b) == bucket_len(&was) + 1);
	assert(b.head >> (WQ_LEN_SHIFT + 3) == was.head >> (WQ_LEN_SHIFT + 3));
	assert((u8)(b.head >> 8 * i) == (u8)(was.head >> 8 * i) && b.slot[i] == was.slot[i]);
	last = bucket_pop(&b);
	assert(last.entry == &e && last.tag == e.hash >> 24);
	assert(bucket_len(&b) == bucket_len(&was));
	c = bucket_get(&b, i);
	assert(c.tag == (u8)(was.head >> 8 * i) && c.entry == was.slot[i]);
}

void proof(void)
{
	if (nondet_bool())
		prove_match();
	else
		prove_append();
}
