// SPDX-License-Identifier: GPL-2.0-only
/*
 * wq: KUnit suite of tokens: done and touch find an entry by the token of its get, and no token
 * that is out of date, forged or of another consumer leads to an entry.
 */
#include "base/run.h"
#include "internals.h"
#include "kunit.h"

/* More keys than a queue has places for runs in progress. */
#define MANY	(WQ_RUN_PLACES + 50)

struct token_fixture {
	struct fixture base;
	struct wq_consumer *a, *b;	/* open files */
};

static int token_init(struct kunit *test)
{
	struct token_fixture *fx;
	int ret = fixture_init(test, sizeof(struct token_fixture));

	if (ret)
		return ret;
	fx = test->priv;
	queue_on_clock(test, (struct wq_params){});
	fx->a = consumer_open(queue(test));
	fx->b = consumer_open(queue(test));
	return fx->a && fx->b ? 0 : -ENOMEM;
}

static void token_exit(struct kunit *test)
{
	struct token_fixture *fx = test->priv;

	if (fx && fx->a)
		consumer_close(fx->a);
	if (fx && fx->b)
		consumer_close(fx->b);
	fixture_exit(test);
}

static struct wq_consumer *file_a(struct kunit *test)
{
	return ((struct token_fixture *)test->priv)->a;
}

static struct wq_consumer *file_b(struct kunit *test)
{
	return ((struct token_fixture *)test->priv)->b;
}

/* Gets the next key, which must be @key, and returns the token. */
static u64 file_get(struct kunit *test, struct wq_consumer *c, const char *key)
{
	u8 buf[32];
	struct consumer_got got = { .key = buf, .size = sizeof(buf) };

	KUNIT_ASSERT_EQ(test, consumer_get(c, &got), 0);
	KUNIT_ASSERT_EQ(test, got.len, strlen(key));
	KUNIT_ASSERT_EQ(test, memcmp(buf, key, got.len), 0);
	return got.token;
}

static u64 file_add_and_get(struct kunit *test, struct wq_consumer *c, const char *key)
{
	add(test, key);
	return file_get(test, c, key);
}

static int file_done(struct wq_consumer *c, const char *key, u64 token)
{
	return consumer_done(c, key, strlen(key), token, 0, 0);
}

static int file_touch(struct wq_consumer *c, const char *key, u64 token)
{
	return consumer_touch(c, key, strlen(key), token);
}

/* Done and touch with this key and token fail with -ESTALE and change nothing. */
static void expect_stale(struct kunit *test, struct wq_consumer *c, const char *key, u64 token)
{
	EXPECT_REFUSED(test, file_done(c, key, token), -ESTALE);
	EXPECT_REFUSED(test, file_touch(c, key, token), -ESTALE);
}

static void done_with_the_token_needs_the_key_of_the_get(struct kunit *test)
{
	u64 a = file_add_and_get(test, file_a(test), "a");
	u64 b = file_add_and_get(test, file_a(test), "b");

	expect_stale(test, file_a(test), "a", b);
	expect_stale(test, file_a(test), "b", a);
	expect_stale(test, file_a(test), "unknown", a);
	expect_stale(test, file_a(test), "aa", a);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "a", a), 0);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "b", b), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

static void a_token_of_another_file_is_stale(struct kunit *test)
{
	u64 a = file_add_and_get(test, file_a(test), "a");
	u64 b = file_add_and_get(test, file_b(test), "b");
	struct wq_item item = add_and_get(test, "kernel");

	expect_stale(test, file_b(test), "a", a);
	expect_stale(test, file_a(test), "b", b);
	expect_stale(test, file_a(test), "kernel", item.token);
	item.token = a;
	EXPECT_REFUSED(test, done(test, &item), -ESTALE);
	EXPECT_REFUSED(test, touch(test, &item), -ESTALE);
	KUNIT_EXPECT_EQ(test, stats(test)->processing, 3U);
}

/* The places of tokens are reused at once. */
static void a_token_is_stale_after_done(struct kunit *test)
{
	u64 old = file_add_and_get(test, file_a(test), "a"), other, again;

	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "a", old), 0);
	expect_stale(test, file_a(test), "a", old);
	other = file_add_and_get(test, file_a(test), "b");
	KUNIT_EXPECT_EQ(test, wq_token_index(other), wq_token_index(old));
	expect_stale(test, file_a(test), "a", old);
	expect_stale(test, file_a(test), "b", old);
	again = file_add_and_get(test, file_a(test), "a");
	expect_stale(test, file_a(test), "a", old);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "a", again), 0);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "b", other), 0);
}

static void a_token_is_stale_after_a_give_back(struct kunit *test)
{
	u64 old = file_add_and_get(test, file_a(test), "a"), new;

	consumer_give_back(file_a(test), "a", 1, old + 1);
	consumer_give_back(file_a(test), "b", 1, old);
	KUNIT_EXPECT_EQ(test, query(test, "a"), WQ_KEY_PROCESSING);
	consumer_give_back(file_a(test), "a", 1, old);
	KUNIT_EXPECT_EQ(test, query(test, "a"), READY);
	expect_stale(test, file_a(test), "a", old);
	new = file_get(test, file_a(test), "a");
	expect_stale(test, file_a(test), "a", old);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "a", new), 0);
}

/* The end of a consumer frees the places of its keys. */
static void a_token_of_a_dead_file_is_stale(struct kunit *test)
{
	struct token_fixture *fx = test->priv;
	u64 a = file_add_and_get(test, fx->a, "a"), b = file_add_and_get(test, fx->a, "b"), new;

	consumer_close(fx->a);
	fx->a = NULL;
	expect_stale(test, fx->b, "a", a);
	KUNIT_EXPECT_EQ(test, stats(test)->ready, 2U);
	new = file_get(test, fx->b, "a");
	expect_stale(test, fx->b, "a", a);
	KUNIT_EXPECT_EQ(test, file_done(fx->b, "a", new), 0);
	new = file_get(test, fx->b, "b");
	expect_stale(test, fx->b, "b", b);
	KUNIT_EXPECT_EQ(test, file_done(fx->b, "b", new), 0);
	KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
}

/* Each index, with numbers around that of a get. */
static void no_forged_token_leads_to_a_key(struct kunit *test)
{
	u64 token = file_add_and_get(test, file_a(test), "a"), forged;
	struct wq_item item = add_and_get(test, "kernel");
	u64 real = item.token;
	int i, k;

	remember(test);
	for (k = -2; k <= 2; k++) {
		for (i = 0; i < WQ_RUN_PLACES; i++) {
			forged = ((token >> WQ_RUN_BITS) + k) << WQ_RUN_BITS | i;
			if (!forged || forged == token)
				continue;
			ASSERT_SAME(test, file_done(file_a(test), "a", forged), -ESTALE,
				    "token %llx, forged %llx", token, forged);
			ASSERT_SAME(test, file_done(file_a(test), "kernel", forged), -ESTALE,
				    "token %llx, forged %llx", token, forged);
			if (forged == real)
				continue;
			item.token = forged;
			ASSERT_SAME(test, done(test, &item), -ESTALE,
				    "token %llx, forged %llx", real, forged);
		}
	}
	for (i = 0; i < 64; i++) {
		ASSERT_SAME(test, file_done(file_a(test), "a", BIT_ULL(i) ^ token), -ESTALE,
			    "bit %d", i);
		ASSERT_SAME(test, file_touch(file_a(test), "a", BIT_ULL(i) ^ token), -ESTALE,
			    "bit %d", i);
	}
	ASSERT_SAME(test, file_done(file_a(test), "a", U64_MAX), -ESTALE, "all bits");
	EXPECT_UNCHANGED(test);
	KUNIT_EXPECT_EQ(test, file_done(file_a(test), "a", token), 0);
	item.token = real;
	KUNIT_EXPECT_EQ(test, done(test, &item), 0);
}

/* Ends MANY runs by their tokens, in an order in which places are taken and released mixed. */
static void files_end_many(struct kunit *test, u64 *token)
{
	u32 i, key, old;

	for (i = 0; i < MANY; i++) {
		key = i * 7 % MANY;
		old = i ? (i - 1) * 7 % MANY : key;
		ASSERT_SAME(test, consumer_done(file_a(test), &key, sizeof(key), token[key] ^
						BIT_ULL(40), 0, 0), -ESTALE, "key %u", key);
		ASSERT_SAME(test, consumer_done(file_a(test), &key, sizeof(key), token[key], 0, 0),
			    0, "key %u", key);
		ASSERT_SAME(test, consumer_done(file_a(test), &old, sizeof(old), token[old], 0, 0),
			    -ESTALE, "key %u", old);
	}
}

static void more_runs_than_places_end_by_their_tokens(struct kunit *test)
{
	u64 *token = kunit_kcalloc(test, MANY, sizeof(*token), GFP_KERNEL);
	struct consumer_got got = {};
	u32 i, round, without;

	static_assert(MANY % 7);
	KUNIT_ASSERT_NOT_NULL(test, token);
	for (round = 0; round < 3; round++) {
		without = 0;
		for (i = 0; i < MANY; i++) {
			ASSERT_SAME(test, add_number(test, i), 1, "key %u", i);
			ASSERT_SAME(test, consumer_get(file_a(test), &got), 0, "key %u", i);
			token[i] = got.token;
			without += !wq_token_index(token[i]);
		}
		/* Each round finds all places free, and place 0 is not used. */
		ASSERT_SAME(test, without, MANY - (WQ_RUN_PLACES - 1), "round %u", round);
		KUNIT_EXPECT_EQ(test, stats(test)->processing, (u32)MANY);
		files_end_many(test, token);
		KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	}
	KUNIT_EXPECT_EQ(test, stats(test)->dones, 3ULL * MANY);
}

static void more_items_than_places_end_by_their_tokens(struct kunit *test)
{
	struct wq_item *item = kunit_kcalloc(test, MANY, sizeof(*item), GFP_KERNEL), old;
	u32 i, round;

	KUNIT_ASSERT_NOT_NULL(test, item);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < MANY; i++) {
			ASSERT_SAME(test, add_number(test, i), 1, "key %u", i);
			ASSERT_SAME(test, get_number(test, &item[i]), i, "key %u", i);
		}
		for (i = 0; i < MANY; i++) {
			old = item[i * 7 % MANY];
			ASSERT_SAME(test, touch(test, &old), 0, "key %u", i);
			ASSERT_SAME(test, done(test, &old), 0, "key %u", i);
			ASSERT_SAME(test, done(test, &old), -ESTALE, "key %u", i);
		}
		KUNIT_EXPECT_EQ(test, stats(test)->keys, 0U);
	}
}

/* All places belong to a consumer's keys, and are free again when it has ended. */
static void a_dead_file_returns_its_places(struct kunit *test)
{
	struct token_fixture *fx = test->priv;
	struct consumer_got got = {};
	u32 i;

	for (i = 0; i < MANY; i++) {
		add_number(test, i);
		ASSERT_SAME(test, consumer_get(fx->a, &got), 0, "key %u", i);
	}
	consumer_close(fx->a);
	fx->a = NULL;
	for (i = 0; i < MANY; i++) {
		ASSERT_SAME(test, consumer_get(fx->b, &got), 0, "key %u", i);
		/* The file that died had all places, and its keys come in the order of its gets. */
		ASSERT_SAME(test, !wq_token_index(got.token), i >= WQ_RUN_PLACES - 1, "key %u", i);
		ASSERT_SAME(test, consumer_touch(fx->b, &i, sizeof(i), got.token), 0, "key %u", i);
	}
	consumer_close(fx->b);
	fx->b = NULL;
	for (i = 0; i < MANY; i++) {
		struct wq_item item;

		/* The keys were given back twice in a row, so each is delayed by the limiter. */
		while (get_number(test, &item) == -EAGAIN)
			pass(test, HOUR);
		ASSERT_SAME(test, !!wq_token_index(item.token), 1, "key %u", i);
		ASSERT_SAME(test, done(test, &item), 0, "key %u", i);
	}
}

static struct kunit_case token_cases[] = {
	KUNIT_CASE(done_with_the_token_needs_the_key_of_the_get),
	KUNIT_CASE(a_token_of_another_file_is_stale),
	KUNIT_CASE(a_token_is_stale_after_done),
	KUNIT_CASE(a_token_is_stale_after_a_give_back),
	KUNIT_CASE(a_token_of_a_dead_file_is_stale),
	KUNIT_CASE(no_forged_token_leads_to_a_key),
	KUNIT_CASE(more_runs_than_places_end_by_their_tokens),
	KUNIT_CASE(more_items_than_places_end_by_their_tokens),
	KUNIT_CASE(a_dead_file_returns_its_places),
	{}
};

struct kunit_suite wq_token_suite = {
	.name = "wq_token",
	.init = token_init,
	.exit = token_exit,
	.test_cases = token_cases,
};
