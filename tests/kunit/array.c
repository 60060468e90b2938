// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of arrays.  Random steps run on two queues: as arrays on the first one, and key by
 * key on the other one.  Results, order and statistics must be the same.
 */
#include "internals.h"
#include "kunit.h"

#define KEYS		24
#define MOST_KEYS	20		/* of a queue, so some adds fail */
#define MOST		8		/* keys of an array */
#define STEPS		4000

/* A key that both queues have handed out. */
struct twin {
	u64 token;			/* of the first queue */
	struct wq_item item;		/* of the other one */
};

struct rig {
	struct fixture fx;
	struct wq *singles;
	struct rnd_state rnd;
	struct twin held[KEYS];
	unsigned int nr_held;
	u8 names[KEYS];
	struct wq_op ops[MOST];
	struct wq_stat a, b;
};

static int array_init(struct kunit *test)
{
	unsigned int i;
	int ret = fixture_init(test, sizeof(struct rig));
	struct rig *rig = test->priv;

	if (ret)
		return ret;
	for (i = 0; i < KEYS; i++)
		rig->names[i] = 'a' + i;
	prandom_seed_state(&rig->rnd, 1);
	return 0;
}

static void array_exit(struct kunit *test)
{
	struct rig *rig = test->priv;

	if (rig && rig->singles) {
		wq_shutdown(rig->singles);
		queue_destroy(rig->singles);
	}
	fixture_exit(test);
}

static u32 random(struct rig *rig, u32 below)
{
	return prandom_u32_state(&rig->rnd) % below;
}

/* A verb that lacks memory once, and keeps the flags of its attempts. */
static gfp_t gfp_of_attempt[2];

static int lack_memory_once(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
			    struct wq_prealloc *pre, gfp_t gfp)
{
	gfp_of_attempt[!!pre] = gfp;
	return pre ? 0 : -ENOMEM;
}

static void lack_memory(struct kunit *test, gfp_t gfp)
{
	static const struct wq_batch_step step = { .apply = lack_memory_once, .inserts = true };
	struct rig *rig = test->priv;
	struct wq_batch b = { .ops = rig->ops, .n = 1, .gfp = gfp };

	queue_on_clock(test, (struct wq_params){});
	b.q = queue(test);
	KUNIT_ASSERT_EQ(test, wq_op_init(b.q, rig->ops, rig->names, 1), 0);
	KUNIT_EXPECT_EQ(test, wq_batch_apply(&b, &step), 1U);
	KUNIT_EXPECT_EQ(test, rig->ops[0].result, 0);
}

/* The cgroup of a process is charged beyond its limit for an allocation with __GFP_HIGH. */
static void second_attempt_takes_no_reserves_for_a_process(struct kunit *test)
{
	lack_memory(test, GFP_KERNEL);
	KUNIT_EXPECT_FALSE(test, !!(gfp_of_attempt[0] & __GFP_HIGH));
	KUNIT_EXPECT_TRUE(test, !!(gfp_of_attempt[1] & __GFP_HIGH));
	lack_memory(test, GFP_KERNEL_ACCOUNT);
	KUNIT_EXPECT_FALSE(test, !!(gfp_of_attempt[0] & __GFP_HIGH));
	KUNIT_EXPECT_FALSE(test, !!(gfp_of_attempt[1] & __GFP_HIGH));
}

static void add_step(struct kunit *test, struct rig *rig, unsigned int step)
{
	u32 n = 1 + random(rig, MOST), first = random(rig, KEYS), i;
	bool in_order = random(rig, 2);
	u32 flags[MOST], len[MOST], key[MOST];

	for (i = 0; i < n; i++) {
		key[i] = in_order ? (first + i) % KEYS : random(rig, KEYS);
		len[i] = random(rig, 20) > 0;
		flags[i] = random(rig, 12) ? 0 : WQ_ADD_RATE_LIMITED;
		if (!wq_op_init(queue(test), &rig->ops[i], &rig->names[key[i]], len[i]))
			wq_op_set_add(&rig->ops[i], 0, flags[i]);
	}
	wq_add_ops(queue(test), rig->ops, n, false, GFP_KERNEL);
	for (i = 0; i < n; i++) {
		int ret = flags[i] ? wq_add_rate_limited(rig->singles, &rig->names[key[i]], len[i]) :
			  wq_add(rig->singles, &rig->names[key[i]], len[i]);

		ASSERT_SAME(test, rig->ops[i].result, ret, "step %u, add %u", step, i);
	}
}

static void get_step(struct kunit *test, struct rig *rig, unsigned int step)
{
	struct wq_entry *es[MOST];
	struct wq_want want = {
		.head = 16,
		.room = 24 * random(rig, MOST + 1),
		.max = 1 + random(rig, MOST),
		.first = true,
	};
	u32 fit = min(want.max, want.room / 24), i;
	struct wq_cs cs;
	int n;

	wq_lock(&cs, queue(test));
	n = wq_get_entries(&cs, consumer_kernel(queue(test)), &want, es);
	wq_unlock(&cs);
	for (i = 0; i < fit; i++) {
		struct twin *twin = &rig->held[rig->nr_held];

		if (wq_get(rig->singles, &twin->item, 0))
			break;
		ASSERT_SAME(test, n > (int)i, true, "step %u, the array has %d keys", step, n);
		ASSERT_SAME(test, *(u8 *)wq_key_data(es[i]), *(u8 *)twin->item.key,
			    "step %u, get %u", step, i);
		twin->token = es[i]->token;
		rig->nr_held++;
	}
	ASSERT_SAME(test, max(n, 0), i, "step %u, keys of a get", step);
	if (n < 0)
		ASSERT_SAME(test, n == -EAGAIN || !fit, true, "step %u, error %d", step, n);
}

/* Some dones are of a run that has ended already. */
static void done_step(struct kunit *test, struct rig *rig, unsigned int step)
{
	static const u32 outcomes[] = { WQ_OUTCOME_RETRY, WQ_OUTCOME_FORGET, WQ_OUTCOME_AFTER };
	u32 n = min(1 + random(rig, MOST), rig->nr_held), i;
	struct twin twins[MOST];
	u32 outcome[MOST];

	for (i = 0; i < n; i++) {
		u32 k = random(rig, 3) ? 0 : random(rig, rig->nr_held);

		if (i && !random(rig, 16)) {
			twins[i] = twins[i - 1];
		} else {
			twins[i] = rig->held[k];
			rig->nr_held--;
			memmove(&rig->held[k], &rig->held[k + 1],
				(rig->nr_held - k) * sizeof(rig->held[0]));
		}
		outcome[i] = random(rig, 8) ? 0 : outcomes[random(rig, ARRAY_SIZE(outcomes))];
		wq_op_init_token(queue(test), &rig->ops[i], twins[i].item.key, 1, twins[i].token);
		wq_op_set_done(&rig->ops[i], 0, outcome[i]);
	}
	/* The key of an item is part of the entry, which may go. */
	for (i = 0; i < n; i++)
		rig->ops[i].key = &rig->names[*(u8 *)rig->ops[i].key - 'a'];
	wq_done_ops(queue(test), consumer_kernel(queue(test)), rig->ops, n, false, GFP_KERNEL);
	for (i = 0; i < n; i++) {
		int ret = outcome[i] ? wq_done_with(rig->singles, &twins[i].item, 0, outcome[i]) :
			  wq_done(rig->singles, &twins[i].item);

		/* Above 0 it has the state of the key, which the statistics show, too. */
		ASSERT_SAME(test, min(rig->ops[i].result, 0), min(ret, 0), "step %u, done %u", step,
			    i);
	}
}

static void compare(struct kunit *test, struct rig *rig, unsigned int step)
{
	rig->a = *stats(test);
	memset(&rig->b, 0xa5, sizeof(rig->b));
	rig->b.size = sizeof(rig->b);
	rig->b.flags = 0;
	wq_stats(rig->singles, &rig->b);
	memcpy(rig->b.name, rig->a.name, sizeof(rig->a.name));
	/* The hashes of the queues differ, and so do the chains of their tables. */
	rig->b.memory = rig->a.memory;
	if (!memcmp(&rig->a, &rig->b, sizeof(rig->a)))
		return;
#define SAME(field) ASSERT_SAME(test, rig->a.field, rig->b.field, "step %u", step)
	SAME(ready);
	SAME(processing);
	SAME(keys);
	SAME(adds);
	SAME(coalesced);
	SAME(gets);
	SAME(dones);
	SAME(delayed);
	SAME(retries);
	SAME(failed);
	SAME(depth);
	SAME(unfinished);
	SAME(longest);
	SAME(oldest);
#undef SAME
	ASSERT_SAME(test, memcmp(&rig->a, &rig->b, sizeof(rig->a)), 0, "step %u", step);
}

static void run_steps(struct kunit *test, struct wq_params params, const char *name)
{
	struct rig *rig = test->priv;
	unsigned int step;

	params.max_keys = MOST_KEYS;
	params.name = name ? "kunit-arrays" : NULL;
	queue_on_clock(test, params);
	params.name = name;
	params.clock = &rig->fx.clock;
	params.limiter = NULL;
	rig->singles = wq_create(&params);
	KUNIT_ASSERT_FALSE(test, IS_ERR(rig->singles));
	for (step = 0; step < STEPS; step++) {
		switch (random(rig, 8)) {
		case 0 ... 2:
			add_step(test, rig, step);
			break;
		case 3 ... 4:
			get_step(test, rig, step);
			break;
		case 5 ... 6:
			done_step(test, rig, step);
			break;
		default:
			pass(test, random(rig, 3) * 5 * MSEC);
			wq_clock_tick(rig->singles);
		}
		compare(test, rig, step);
	}
}

static void an_array_does_the_same_as_its_keys_one_by_one(struct kunit *test)
{
	run_steps(test, (struct wq_params){}, NULL);
}

static void an_array_keeps_the_same_times_as_its_keys_one_by_one(struct kunit *test)
{
	run_steps(test, (struct wq_params){}, "kunit-singles");
}

static void a_record_has_room_for_whole_words_of_a_key(struct kunit *test)
{
	static const struct {
		u32 room, key;
	} records[] = {
		{ 0, 0 }, { 16, 0 }, { 23, 0 }, { 24, 8 }, { 31, 8 }, { 32, 16 },
		{ 16 + WQ_MAX_KEY, WQ_MAX_KEY }, { U32_MAX, WQ_MAX_KEY },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(records); i++)
		ASSERT_SAME(test, wq_key_room(16, records[i].room), records[i].key, "room %u",
			    records[i].room);
}

/* Entries of former keys are taken by a quicker path. */
static void an_array_of_adds_ends_at_its_last_key(struct kunit *test)
{
	struct rig *rig = test->priv;
	int i;

	queue_on_clock(test, (struct wq_params){});
	for (i = 0; i < 3; i++) {
		char key[] = { rig->names[i], 0 };

		add(test, key);
		run(test, key);
		wq_op_init(queue(test), &rig->ops[i], key, 1);
		rig->ops[i].key = &rig->names[i];
	}
	KUNIT_EXPECT_EQ(test, queue_nr_idle(queue(test)), 3U);
	KUNIT_EXPECT_EQ(test, wq_add_ops(queue(test), rig->ops, 2, true, GFP_KERNEL), 2U);
	KUNIT_EXPECT_EQ(test, query(test, "b"), READY);
	KUNIT_EXPECT_EQ(test, query(test, "c"), 0);
}

/* A done of a key that was added again does not take the quicker path, and the next one does. */
static void an_array_of_dones_ends_at_its_last_key(struct kunit *test)
{
	struct rig *rig = test->priv;
	int i;

	queue_on_clock(test, (struct wq_params){});
	for (i = 0; i < 3; i++) {
		char key[] = { rig->names[i], 0 };

		wq_op_init_token(queue(test), &rig->ops[i], &rig->names[i], 1,
				 add_and_get(test, key).token);
		wq_op_set_done(&rig->ops[i], 0, 0);
	}
	add(test, "a");
	KUNIT_EXPECT_EQ(test, wq_done_ops(queue(test), consumer_kernel(queue(test)), rig->ops, 2,
					  true, GFP_KERNEL), 2U);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	KUNIT_EXPECT_EQ(test, query(test, "b"), 0);
	KUNIT_EXPECT_EQ(test, query(test, "c"), RUNNING);
}

static void an_array_of_dones_keeps_no_idle_entry_of_a_long_key(struct kunit *test)
{
	char long_key[WQ_MAX_IDLE_KEY + 2] = "";
	struct rig *rig = test->priv;

	memset(long_key, 'a', WQ_MAX_IDLE_KEY + 1);
	queue_on_clock(test, (struct wq_params){});
	wq_op_init_token(queue(test), &rig->ops[0], long_key, WQ_MAX_IDLE_KEY + 1,
			 add_and_get(test, long_key).token);
	wq_op_set_done(&rig->ops[0], 0, 0);
	wq_done_ops(queue(test), consumer_kernel(queue(test)), rig->ops, 1, true, GFP_KERNEL);
	KUNIT_EXPECT_EQ(test, rig->ops[0].result, 0);
	KUNIT_EXPECT_EQ(test, queue_nr_idle(queue(test)), 0U);
}

static void an_add_that_was_refused_before_is_not_tried(struct kunit *test)
{
	struct rig *rig = test->priv;
	int i;

	queue_on_clock(test, (struct wq_params){});
	add(test, "a");
	for (i = 0; i < 2; i++)
		wq_op_init(queue(test), &rig->ops[i], &rig->names[0], 1);
	rig->ops[0].result = -EINVAL;
	wq_add_ops(queue(test), rig->ops, 2, false, GFP_KERNEL);
	KUNIT_EXPECT_EQ(test, rig->ops[0].result, -EINVAL);
	KUNIT_EXPECT_EQ(test, rig->ops[1].result, 0);
	KUNIT_EXPECT_EQ(test, stats(test)->coalesced, 1ULL);
}

/* The policy does not reveal its next key, so there must be room for the longest one. */
static void an_array_from_a_policy_ends_when_the_longest_key_might_not_fit(struct kunit *test)
{
	const struct wq_want want = {
		.head = 16,
		.room = 16 + WQ_MAX_KEY + 24,
		.max = 3,
		.first = true,
	};
	struct wq_entry *es[3];
	struct wq_cs cs;
	int n;

	queue_with_policy(test);
	add(test, "a");
	add(test, "b");
	add(test, "c");
	wq_lock(&cs, queue(test));
	n = wq_get_entries(&cs, consumer_kernel(queue(test)), &want, es);
	wq_unlock(&cs);
	KUNIT_EXPECT_EQ(test, n, 2);
	KUNIT_EXPECT_EQ(test, query(test, "c"), READY);
}

static unsigned long files_with_buffers(void)
{
	return shrinker_count(wq_buf_shrinker);
}

static unsigned long shrink(unsigned long files)
{
	return shrinker_scan(wq_buf_shrinker, files);
}

static void the_shrinker_frees_the_buffers_that_no_call_uses(struct kunit *test)
{
	struct wq_bufs *files = kunit_kcalloc(test, 3, sizeof(*files), GFP_KERNEL);
	struct wq_buf in_use, buf;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, files);
	KUNIT_ASSERT_EQ(test, files_with_buffers(), SHRINK_EMPTY);
	for (i = 0; i < 3; i++)
		wq_bufs_init(&files[i]);
	KUNIT_EXPECT_EQ(test, wq_buf_get(&in_use, &files[0], &files[0].in, 100), 0);
	for (i = 1; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, wq_buf_get(&buf, &files[i], &files[i].out, 100), 0);
		wq_buf_put(&buf);
	}
	KUNIT_EXPECT_EQ(test, files_with_buffers(), 3UL);
	KUNIT_EXPECT_EQ(test, shrink(2), 1UL);
	KUNIT_EXPECT_EQ(test, files_with_buffers(), 2UL);
	KUNIT_EXPECT_EQ(test, shrink(8), 1UL);
	KUNIT_EXPECT_EQ(test, shrink(8), 0UL);
	KUNIT_EXPECT_EQ(test, files_with_buffers(), 1UL);
	wq_buf_put(&in_use);
	KUNIT_EXPECT_EQ(test, shrink(1), 1UL);
	KUNIT_EXPECT_EQ(test, shrink(1), SHRINK_STOP);
	KUNIT_EXPECT_EQ(test, files_with_buffers(), SHRINK_EMPTY);
	for (i = 0; i < 3; i++)
		wq_bufs_end(&files[i]);
}

static struct kunit_case array_cases[] = {
	KUNIT_CASE(second_attempt_takes_no_reserves_for_a_process),
	KUNIT_CASE(a_record_has_room_for_whole_words_of_a_key),
	KUNIT_CASE(an_array_of_adds_ends_at_its_last_key),
	KUNIT_CASE(an_array_of_dones_ends_at_its_last_key),
	KUNIT_CASE(an_array_of_dones_keeps_no_idle_entry_of_a_long_key),
	KUNIT_CASE(an_add_that_was_refused_before_is_not_tried),
	KUNIT_CASE(an_array_from_a_policy_ends_when_the_longest_key_might_not_fit),
	KUNIT_CASE(an_array_does_the_same_as_its_keys_one_by_one),
	KUNIT_CASE(an_array_keeps_the_same_times_as_its_keys_one_by_one),
	KUNIT_CASE(the_shrinker_frees_the_buffers_that_no_call_uses),
	{}
};

struct kunit_suite wq_array_suite = {
	.name = "wq_array",
	.init = array_init,
	.exit = array_exit,
	.test_cases = array_cases,
};
