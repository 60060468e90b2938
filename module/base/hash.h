/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hash of keys.
 *
 * A queue that processes may open uses SipHash: a user chooses keys there, and can list them in the
 * order of their hashes.  In a queue of a kernel module that no process can open, keys of up to
 * WQ_PAIR_MAX bytes have a pair-multiply-shift hash (M. Thorup, "High Speed Hashing for Integers
 * and Strings", arXiv 1504.06804, section 3.3).  For a key of 16 bytes it takes a third of
 * SipHash's instructions.  It is strongly universal: two different keys that are chosen without
 * knowledge of the secret have equal hashes with a probability of 2^-32.  The secret can be
 * computed from a few hashes, which is not so with SipHash.  An attacker with the secret can make
 * operations slower and nothing else, and the table bounds the cost of equal hashes.
 *
 * The hash of words x[0], x[1], ... of 32 bits is the upper half of
 *
 *	c + l * len + (p[0] + x[1]) * (p[1] + x[0]) + (p[2] + x[3]) * (p[3] + x[2]) + ...
 *
 * where c, l and p are random numbers of 64 bits.  Its bits are mixed.  The last 8 bytes of the
 * key are read as a whole, and may overlap the words before them.
 */
#ifndef _WQ_HASH_H
#define _WQ_HASH_H

#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/types.h>

#include "base/compat.h"
#include "base/entry.h"

#define WQ_PAIR_MAX	64	/* bytes of a key, at most */

struct wq_hash {
	bool pairs;		/* keys up to WQ_PAIR_MAX have the pair-multiply-shift hash */
	u64 c, l, p[WQ_PAIR_MAX / sizeof(u32)];
	hsiphash_key_t sip;
};

static inline void wq_hash_init(struct wq_hash *h)
{
	get_random_bytes(h, sizeof(*h));
	h->pairs = false;
}

/*
 * Mix the bits of a hash.  Different hashes stay different.  Without it, keys in an arithmetic
 * progression have hashes in such a progression, and of 100 tables with 100,000 numbers as keys,
 * one has chains of up to 150 keys, while the others have up to 25.
 */
static inline u32 wq_hash_mix(u32 hash)
{
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	return hash ^ hash >> 13;
}

/* The product for two words, the halves of @x. */
static inline u64 wq_hash_pair(const u64 *p, u64 x)
{
	return (p[0] + (x >> 32)) * (p[1] + (u32)x);
}

/* The hash of a key of 1 byte or more. */
static inline u32 wq_hash(const struct wq_hash *h, const void *key, size_t len)
{
	const u64 *p = h->p;
	u64 sum;
	size_t i;

	if (!h->pairs || len > WQ_PAIR_MAX)
		return hsiphash(key, len, &h->sip);
	sum = h->c + h->l * len;
	for (i = 0; i + sizeof(u64) < len; i += sizeof(u64), p += 2)
		sum += wq_hash_pair(p, get_unaligned((const u64 *)(key + i)));
	return wq_hash_mix((sum + wq_hash_pair(p, wq_key_tail(key, len))) >> 32);
}

#endif /* _WQ_HASH_H */
