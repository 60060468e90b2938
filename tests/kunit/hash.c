// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the hash of keys.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/prandom.h>
#include <linux/slab.h>

#include "base/hash.h"
#include "base/table.h"
#include "internals.h"
#include "kunit.h"

#define KEYS	20000
#define BUCKETS	(KEYS / 5)		/* entries for each bucket just before a split: 5 to 10 */
#define SECRETS	20

/* The hash by its definition: the words of a key, one by one. */
static u32 pairs_by_definition(const struct wq_hash *h, const u8 *key, size_t len)
{
	u8 padded[8 * WQ_PAIR_MAX] = {};
	u64 sum = h->c + h->l * len;
	u32 x[2], hash;
	size_t i, at;

	memcpy(padded, key, len);
	if (len < 8) {
		/* Keys below 8 bytes have words of their own, see wq_key_tail(). */
		u64 tail = wq_key_tail(key, len);

		x[0] = tail;
		x[1] = tail >> 32;
		sum += (h->p[0] + x[1]) * (h->p[1] + x[0]);
	}
	for (i = 0; len >= 8 && i < DIV_ROUND_UP(len, 8); i++) {
		u64 v;

		at = min(8 * i, len - 8);
		memcpy(&v, padded + at, sizeof(v));
		x[0] = v;
		x[1] = v >> 32;
		sum += (h->p[2 * i] + x[1]) * (h->p[2 * i + 1] + x[0]);
	}
	hash = sum >> 32;
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	return hash ^ hash >> 13;
}

static void the_hash_is_as_defined_at_each_length(struct kunit *test)
{
	u8 *key = kunit_kzalloc(test, WQ_MAX_KEY, GFP_KERNEL);
	struct wq_hash h;
	size_t len;

	KUNIT_ASSERT_NOT_NULL(test, key);
	get_random_bytes(key, WQ_MAX_KEY);
	wq_hash_init(&h);
	for (len = 1; len <= WQ_MAX_KEY; len++) {
		h.pairs = false;
		ASSERT_SAME(test, wq_hash(&h, key, len), hsiphash(key, len, &h.sip),
			    "length %zu", len);
		h.pairs = true;
		ASSERT_SAME(test, wq_hash(&h, key, len), len > WQ_PAIR_MAX ?
			    hsiphash(key, len, &h.sip) : pairs_by_definition(&h, key, len),
			    "length %zu", len);
	}
}

/* A byte that the hash did not use would make pairs of keys with equal hashes. */
static void each_byte_of_a_key_changes_its_hash(struct kunit *test)
{
	u32 i, bit, equal = 0, of = 0;
	u8 key[WQ_PAIR_MAX];
	struct wq_hash h;
	size_t len;

	wq_hash_init(&h);
	h.pairs = true;
	get_random_bytes(key, sizeof(key));
	for (len = 1; len <= WQ_PAIR_MAX; len++) {
		u32 hash = wq_hash(&h, key, len);

		for (i = 0; i < len; i++) {
			for (bit = 0; bit < 8; bit++) {
				key[i] ^= BIT(bit);
				equal += wq_hash(&h, key, len) == hash;
				key[i] ^= BIT(bit);
				of++;
			}
		}
		equal += len > 1 && wq_hash(&h, key, len - 1) == hash;
	}
	/* Each pair is equal with a probability of 2^-32. */
	KUNIT_EXPECT_LE(test, equal, 1U);
	KUNIT_EXPECT_EQ(test, of, 8U * WQ_PAIR_MAX * (WQ_PAIR_MAX + 1) / 2);
}

static void keys_of_zeros_have_different_hashes_at_each_length(struct kunit *test)
{
	u32 hashes[WQ_PAIR_MAX + 1], equal = 0, i, k;
	u8 key[WQ_PAIR_MAX] = {};
	struct wq_hash h;

	wq_hash_init(&h);
	h.pairs = true;
	for (i = 1; i <= WQ_PAIR_MAX; i++) {
		hashes[i] = wq_hash(&h, key, i);
		for (k = 1; k < i; k++)
			equal += hashes[i] == hashes[k];
	}
	KUNIT_EXPECT_LE(test, equal, 1U);
}

/* Sets of keys that differ in few bits, or are in an arithmetic progression. */
static size_t key_of_set(u32 set, u32 i, u8 *key)
{
	u64 v[2] = { i, 0 };

	switch (set) {
	case 0:
		memcpy(key, v, 4);
		return 4;
	case 1:
		break;
	case 2:
		v[0] = i * 4096ULL;
		break;
	case 3:
		v[0] = 0xffff888000000000ULL + i * 192ULL;
		break;
	case 4:
		v[0] = (u64)i << 32;
		break;
	case 5:
		v[0] = (u64)(i >> 10) << 32 | (i & 1023);
		break;
	case 6:
		memcpy(key, v, 16);
		return 16;
	default:
		return scnprintf(key, WQ_PAIR_MAX, "default/web-%u", i);
	}
	memcpy(key, v, 8);
	return 8;
}

#define SETS	8

/*
 * For keys that were not chosen, a chain of the table is as long as with a random hash: at most
 * 31 entries.  The probability of a longer one in all of these tables is 4e-4.
 */
static void regular_keys_have_short_chains(struct kunit *test)
{
	u16 *chain = kunit_kcalloc(test, BUCKETS, sizeof(*chain), GFP_KERNEL);
	u32 set, secret, i, mask = roundup_pow_of_two(BUCKETS) - 1, longest = 0;
	struct wq_hash h;

	KUNIT_ASSERT_NOT_NULL(test, chain);
	for (set = 0; set < SETS; set++) {
		for (secret = 0; secret < SECRETS; secret++) {
			wq_hash_init(&h);
			h.pairs = true;
			memset(chain, 0, BUCKETS * sizeof(*chain));
			for (i = 0; i < KEYS; i++) {
				u8 key[WQ_PAIR_MAX];
				u32 hash = wq_hash(&h, key, key_of_set(set, i, key)), b;

				b = (hash & mask) < BUCKETS ? hash & mask : hash & (mask >> 1);
				longest = max_t(u32, longest, ++chain[b]);
			}
			ASSERT_SAME(test, longest > 31, 0, "longest %u, set %u", longest, set);
		}
		cond_resched();
	}
}

static void a_queue_that_processes_may_open_uses_siphash(struct kunit *test)
{
	struct wq_params params = { .name = "kunit-hash", .mode = 0600 };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	KUNIT_EXPECT_FALSE(test, q->hash.pairs);
	queue_destroy(q);
	/* As module/wqueue/name.c makes the queue of a process. */
	q = wq_alloc(&(struct wq_params){}, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, q);
	KUNIT_EXPECT_FALSE(test, q->hash.pairs);
	wq_put(q);
}

static void a_queue_that_no_process_can_open_uses_pairs(struct kunit *test)
{
	struct wq_params params = { .name = "kunit-hash" };
	struct wq *q = wq_create(&params);

	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	KUNIT_EXPECT_TRUE(test, q->hash.pairs);
	queue_destroy(q);
	q = wq_create(NULL);
	KUNIT_ASSERT_FALSE(test, IS_ERR(q));
	KUNIT_EXPECT_TRUE(test, q->hash.pairs);
	queue_destroy(q);
}

static struct kunit_case hash_cases[] = {
	KUNIT_CASE(the_hash_is_as_defined_at_each_length),
	KUNIT_CASE(each_byte_of_a_key_changes_its_hash),
	KUNIT_CASE(keys_of_zeros_have_different_hashes_at_each_length),
	KUNIT_CASE(regular_keys_have_short_chains),
	KUNIT_CASE(a_queue_that_processes_may_open_uses_siphash),
	KUNIT_CASE(a_queue_that_no_process_can_open_uses_pairs),
	{}
};

struct kunit_suite wq_hash_suite = {
	.name = "wq_hash",
	.test_cases = hash_cases,
};
