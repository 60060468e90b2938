// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of the table from keys to entries.  The suite tests the structure
 * directly, without a queue, and chooses the hashes, so that keys collide as much as a
 * test needs.
 */
#include <kunit/test.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "../include/wq_table.h"
#include "wq_kunit.h"

#define KEYS		8192
#define CHAIN_ENTRIES	(15 * (WQ_SLOTS - 1) + WQ_SLOTS)	/* 16 buckets */

/* A key and what a test expects of it. */
struct model_key {
	struct wq_key *k;
	bool in;
	unsigned int found;
};

struct model {
	struct wq_table t;
	struct rnd_state rnd;
	u32 count;
	struct model_key keys[KEYS];
	struct verdict verdict;
};

static u32 random_below(struct model *m, u32 below)
{
	return prandom_u32_state(&m->rnd) % below;
}

static int table_init(struct kunit *test)
{
	struct model *m = vzalloc(sizeof(*m));

	if (!m)
		return -ENOMEM;
	prandom_seed_state(&m->rnd, 1);
	test->priv = m;
	return wq_table_init(&m->t, GFP_KERNEL);
}

static void table_exit(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	if (!m)
		return;
	wq_table_destroy(&m->t);
	for (n = 0; n < KEYS; n++)
		kfree(m->keys[n].k);
	vfree(m);
}

static int insert(struct model *m, u32 n, u32 hash)
{
	struct model_key *mk = &m->keys[n];
	int ret;

	if (!mk->k) {
		mk->k = kzalloc(sizeof(*mk->k) + sizeof(n), GFP_KERNEL);
		if (!mk->k)
			return -ENOMEM;
		memcpy(mk->k->key, &n, sizeof(n));
		mk->k->entry.len = sizeof(n);
		mk->k->entry.hash = hash;
	}
	ret = wq_table_insert(&m->t, &mk->k->entry, NULL, GFP_KERNEL);
	if (!ret) {
		mk->in = true;
		m->count++;
	}
	return ret;
}

static void take_out(struct model *m, u32 n)
{
	wq_table_remove(&m->t, &m->keys[n].k->entry);
	m->keys[n].in = false;
	m->count--;
}

/* The table must find the key if and only if it is in. */
static void check_key(struct model *m, u32 n)
{
	struct wq_key *k = m->keys[n].k;
	struct wq_entry *e;

	if (!k)
		return;
	e = wq_table_find(&m->t, k->entry.hash, &n, sizeof(n)).entry;
	expect_same(&m->verdict, !!e, m->keys[n].in, "key %u is found", n);
	if (e)
		expect_same(&m->verdict, (long)e, (long)&k->entry, "entry of key %u", n);
}

static void check_insert(struct model *m, u32 n, u32 hash)
{
	expect_same(&m->verdict, insert(m, n, hash), 0, "insert of key %u, hash %#x", n, hash);
}

/* 100,000 steps over keys whose hashes are below @hashes, 0: any. */
static void walk_at_random(struct kunit *test, u32 hashes)
{
	struct model *m = test->priv;
	u32 step, n;

	for (step = 0; step < 100000; step++) {
		/*
		 * Mostly inserts and mostly removals in turns, so that the table grows and
		 * shrinks.
		 */
		bool growing = step / 20000 % 2 == 0;

		n = random_below(m, KEYS);
		if (m->keys[n].in && random_below(m, 8) >= (growing ? 1 : 7))
			continue;
		if (m->keys[n].in)
			take_out(m, n);
		else if (random_below(m, 8) < (growing ? 7 : 1))
			check_insert(m, n, hashes ? random_below(m, hashes) : prandom_u32_state(&m->rnd));
		check_key(m, n);
		check_key(m, random_below(m, KEYS));
	}
	for (n = 0; n < KEYS; n++)
		check_key(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);
	KUNIT_EXPECT_EQ(test, m->t.count, m->count);
}

static void random_steps_agree_with_a_model(struct kunit *test)
{
	walk_at_random(test, 0);
}

static void random_steps_agree_with_a_model_when_hashes_collide(struct kunit *test)
{
	walk_at_random(test, 256);
}

static void keys_of_one_hash_are_found_up_to_the_length_of_a_chain(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < CHAIN_ENTRIES; n++)
		check_insert(m, n, 7);
	KUNIT_EXPECT_EQ(test, insert(m, n, 7), -ENOMEM);
	for (n = 0; n <= CHAIN_ENTRIES; n++)
		check_key(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);

	/* A removal makes room for one key.  Keys of other hashes always had room. */
	take_out(m, 3);
	KUNIT_EXPECT_EQ(test, insert(m, CHAIN_ENTRIES, 7), 0);
	KUNIT_EXPECT_EQ(test, insert(m, 3, 7), -ENOMEM);
	KUNIT_EXPECT_EQ(test, insert(m, CHAIN_ENTRIES + 1, 8), 0);
	for (n = 0; n <= CHAIN_ENTRIES + 1; n++)
		check_key(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);
}

static void buckets_grow_and_go_with_the_keys(struct kunit *test)
{
	struct model *m = test->priv;
	u32 n;

	for (n = 0; n < KEYS; n++)
		check_insert(m, n, prandom_u32_state(&m->rnd));
	KUNIT_EXPECT_GT(test, m->t.buckets, KEYS / 6U);
	for (n = 0; n < KEYS; n++)
		take_out(m, n);
	EXPECT_ALL_SAME(test, &m->verdict);
	KUNIT_EXPECT_EQ(test, m->t.count, 0U);
	KUNIT_EXPECT_EQ(test, m->t.buckets, 1U);
	KUNIT_EXPECT_TRUE(test, m->t.vec.root[0][0] && !m->t.vec.root[0][1]);
}

/* Even keys stay, odd ones come and go between any two steps of the walk. */
static void walk_while_others_move(struct kunit *test, u32 hashes)
{
	struct model *m = test->priv;
	u32 n, i, rounds = 0;
	struct wq_entry *e;
	u64 cursor = 0;

	for (n = 0; n < KEYS / 2; n += 2)
		check_insert(m, n, hashes ? random_below(m, hashes) : prandom_u32_state(&m->rnd));
	do {
		e = wq_table_next(&m->t, &cursor).entry;
		if (e)
			m->keys[*(u32 *)wq_key_of(e)->key].found++;
		/* Grow for a while, then shrink, so that buckets split and merge. */
		for (i = 0; i < 4; i++) {
			n = random_below(m, KEYS / 2) * 2 + 1;
			if (m->keys[n].in && rounds % 1024 >= 512)
				take_out(m, n);
			else if (!m->keys[n].in && rounds % 1024 < 512)
				check_insert(m, n, hashes ? random_below(m, hashes) :
							prandom_u32_state(&m->rnd));
		}
	} while (cursor && ++rounds < 1000000);

	for (n = 0; n < KEYS / 2; n += 2)
		expect_same(&m->verdict, m->keys[n].found, 1, "times that key %u was found", n);
	for (n = 1; n < KEYS; n += 2)
		expect_same(&m->verdict, max(m->keys[n].found, 1U), 1,
			    "times that key %u was found", n);
	EXPECT_ALL_SAME(test, &m->verdict);
	KUNIT_EXPECT_EQ(test, cursor, 0ULL);
}

static void a_walk_finds_a_key_that_stays_once(struct kunit *test)
{
	walk_while_others_move(test, 0);
}

static void a_walk_finds_a_key_that_stays_once_when_hashes_collide(struct kunit *test)
{
	walk_while_others_move(test, 512);
}

static struct kunit_case table_cases[] = {
	KUNIT_CASE(random_steps_agree_with_a_model),
	KUNIT_CASE(random_steps_agree_with_a_model_when_hashes_collide),
	KUNIT_CASE(keys_of_one_hash_are_found_up_to_the_length_of_a_chain),
	KUNIT_CASE(buckets_grow_and_go_with_the_keys),
	KUNIT_CASE(a_walk_finds_a_key_that_stays_once),
	KUNIT_CASE(a_walk_finds_a_key_that_stays_once_when_hashes_collide),
	{}
};

struct kunit_suite wq_table_suite = {
	.name = "wq_table",
	.init = table_init,
	.exit = table_exit,
	.test_cases = table_cases,
};
