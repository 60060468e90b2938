// SPDX-License-Identifier: GPL-2.0-only
/*
 * The order of levels for processes: WQ_ORDER_PRIORITY and wq_rec.priority.
 */
#include "wq_test.h"

#define AGEING	1000	/* of most tests, which make fewer gets */

static int open_order(const char *name, __u32 flags, __u32 order, __u32 arg, __u32 limit)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = flags, .mode = *name ? 0600 : 0, .order = order,
		.order_arg = arg, .group_limit = limit,
	};
	int fd = q_dev(O_RDWR), ret;

	strcpy(op.name, name);
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

static int add(int q, const char *key, int level)
{
	return q_add_level(q, key, level, 0, 0);
}

/* The level that query reports, or an error below WQ_MIN_PRIORITY. */
static int level_of(int q, const char *key)
{
	struct wq_key_op ks = {
		.size = sizeof(ks), .key = addr_of(key), .key_len = strlen(key),
	};
	int ret = verb(q, WQ_IOC_KEY, &ks);

	return ret ? ret - 1000 : ks.info.priority;
}

static int get(int q, union one *one)
{
	struct wq_get args = { .size = sizeof(args), .keys = { addr_of(one), sizeof(*one), 1 } };

	return verb(q, WQ_IOC_GET, &args);
}

/* The next key is this one, at this level; it is done. */
static bool runs(int q, const char *key, int level)
{
	struct wq_done args = { .size = sizeof(args) };
	union one one;
	struct wq_rec *rec = &one.rec;

	if (!equal("get", 0, get(q, &one)))
		return false;
	if (rec->len != strlen(key) || memcmp(rec->key, key, rec->len)) {
		printf("# expected the key %s, got %.*s\n", key, rec->len, (char *)rec->key);
		return false;
	}
	if (!equal("priority of get", level, rec->priority) ||
	    !equal("priority of query", level, level_of(q, key)))
		return false;
	/* the record as get wrote it */
	args.keys = (struct wq_keys){ addr_of(rec), WQ_REC_SIZE(rec->len), 1 };
	return equal("done", 0, verb(q, WQ_IOC_DONE, &args));
}

FIXTURE(priority) {
	char name[WQ_NAME_MAX];
	int q;
};

FIXTURE_SETUP(priority)
{
	snprintf(self->name, sizeof(self->name), "priority-%d", getpid());
	self->q = open_order(self->name, WQ_OPEN_CREATE | WQ_OPEN_EXCL, WQ_ORDER_PRIORITY, AGEING,
			     0);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(priority)
{
	close(self->q);
	q_unlink(self->name);
}

/* An add that begins a wait.  The descriptor, or the error. */
static int flush_add(int q, const char *key, int level)
{
	return q_wait_at(q, key, WQ_WAIT_ADD, level);
}

/* ---- the order ---- */

TEST_F(priority, array_is_returned_in_the_order_of_levels)
{
	struct array a = array_new(65536);
	struct wq_rec *rec;

	for (int i = 0; i < 40; i++) {
		rec = array_putf(&a, "k%02d", i);
		rec->priority = i % 4 - 2;
	}
	ASSERT_EQ(0, q_add_array(self->q, &a));
	array_reset(&a);
	ASSERT_EQ(0, q_get_array(self->q, &a, 64, 0));
	ASSERT_EQ(40, a.count);
	for (int i = 0; i < 40; i++) {
		char key[8];

		rec = rec_at(&a, i);
		snprintf(key, sizeof(key), "k%02d", i % 10 * 4 + 3 - i / 10);
		ASSERT_EQ(1 - i / 10, rec->priority);
		ASSERT_EQ(0, memcmp(rec->key, key, 3)) {
			TH_LOG("key %d is %.3s instead of %s", i, (char *)rec->key, key);
		}
	}
	/* done and touch ignore the levels */
	rec_at(&a, 0)->priority = 99;
	ASSERT_EQ(0, q_touch_array(self->q, &a));
	ASSERT_EQ(0, q_done_array(self->q, &a));
}

TEST_F(priority, write_adds_at_level_0_and_read_returns_the_highest_level)
{
	char key[16];

	ASSERT_EQ(1, add(self->q, "low", -1));
	ASSERT_EQ(5, write(self->q, "plain", 5));
	ASSERT_EQ(1, add(self->q, "high", 1));
	ASSERT_EQ(3, write(self->q, "low", 3));		/* which raises it */
	ASSERT_EQ(4, read(self->q, key, sizeof(key)));
	EXPECT_EQ(0, memcmp(key, "high", 4));
	ASSERT_EQ(5, read(self->q, key, sizeof(key)));
	EXPECT_EQ(0, memcmp(key, "plain", 5));
	ASSERT_EQ(3, read(self->q, key, sizeof(key)));
	EXPECT_EQ(0, memcmp(key, "low", 3));
	EXPECT_EQ(0, level_of(self->q, "low"));
	ASSERT_EQ(0, read(self->q, key, 0));
}

/* ---- list, stat ---- */

TEST_F(priority, list_reports_levels)
{
	struct array a = array_new(65536);
	struct wq_list_rec *row;
	__u64 cursor = 0;

	ASSERT_EQ(1, add(self->q, "a", -7));
	ASSERT_EQ(1, q_add_level(self->q, "b", 9, HOUR, 0));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(2, a.count);
	row = row_at(&a, 0);
	for (int i = 0; i < 2; i++, row = row_next(row))
		EXPECT_EQ(row->key[0] == 'a' ? -7 : 9, row->info.priority);
}

TEST_F(priority, stat_counts_the_ready_keys_of_levels)
{
	__u32 figures[WQ_PRIORITIES];
	struct wq_stat st;

	ASSERT_EQ(1, add(self->q, "a", WQ_MIN_PRIORITY));
	ASSERT_EQ(1, add(self->q, "b", WQ_MAX_PRIORITY));
	ASSERT_EQ(1, add(self->q, "c", WQ_MAX_PRIORITY));
	ASSERT_EQ(1, add(self->q, "d", 1));
	ASSERT_EQ(WQ_KEY_DIRTY | WQ_KEY_READY, q_cancel(self->q, "d"));
	st = q_stat_levels(self->q, figures);
	EXPECT_EQ(3, st.ready);
	EXPECT_EQ((uintptr_t)figures, st.ready_by_priority);
	for (int i = 0; i < WQ_PRIORITIES; i++)
		EXPECT_EQ(i == 0 ? 1 : i == WQ_PRIORITIES - 1 ? 2 : i == 1 - WQ_MIN_PRIORITY ? 0 :
			  WQ_PRIORITY_UNUSED, figures[i]);
	st = (struct wq_stat){ .size = sizeof(st), .ready_by_priority = 8 };
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_STAT, &st));
}

/* ---- bad input ---- */

TEST_F(priority, add_with_a_level_fails_with_EINVAL_in_a_queue_without_levels)
{
	int q = q_private(0);

	EXPECT_EQ(-EINVAL, add(q, "a", 1));
	EXPECT_EQ(-EINVAL, add(q, "a", 99));
	EXPECT_EQ(0, q_stat(q).keys);
	EXPECT_EQ(1, add(q, "a", 0));
	EXPECT_TRUE(runs(q, "a", 0));
	close(q);
}

TEST_F(priority, open_with_an_order_out_of_range_fails_and_creates_no_queue)
{
	static const struct { __u32 order, arg, limit; int err; } bad[] = {
		{ WQ_ORDER_FIFO, 1, 0, -EINVAL },
		{ WQ_ORDER_FIFO, '/', 0, -EINVAL },
		{ WQ_ORDER_FIFO, 0, 1, -EINVAL },
		{ WQ_ORDER_PRIORITY, 0, 1, -EINVAL },
		{ WQ_ORDER_PRIORITY, WQ_MAX_AGEING + 1, 0, -ERANGE },
		{ WQ_ORDER_DELIMITER, 256, 0, -ERANGE },
		{ WQ_ORDER_PREFIX, 0, 0, -ERANGE },
		{ WQ_ORDER_PREFIX, WQ_MAX_KEY + 1, 0, -ERANGE },
		{ WQ_ORDER_OTHER, 0, 0, -EINVAL },
		{ 0xffffffff, 0, 0, -EINVAL },
	};
	char name[WQ_NAME_MAX];

	snprintf(name, sizeof(name), "order-%d", getpid());
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(bad[i].err, open_order(name, WQ_OPEN_CREATE, bad[i].order, bad[i].arg,
						 bad[i].limit)) {
			TH_LOG("order %u, arg %u, limit %u", bad[i].order, bad[i].arg,
			       bad[i].limit);
		}
		EXPECT_EQ(-ENOENT, q_unlink(name));
	}
}

TEST_F(priority, open_that_asks_for_another_order_fails_with_EEXIST)
{
	int q;

	EXPECT_EQ(-EEXIST, open_order(self->name, 0, WQ_ORDER_PRIORITY, AGEING + 1, 0));
	for (int i = 0; i < 3; i++) {
		q = open_order(self->name, i == 2 ? WQ_OPEN_ACCEPT : 0,
			       i ? WQ_ORDER_PRIORITY : WQ_ORDER_FIFO, i == 2 ? AGEING + 1 : 0, 0);
		ASSERT_LE(0, q);
		close(q);
	}
	q = open_order(self->name, 0, WQ_ORDER_PRIORITY, AGEING, 0);
	ASSERT_LE(0, q);
	close(q);
	q_unlink(self->name);
	q = q_open(self->name, O_RDWR, WQ_OPEN_CREATE, 0600, 0);
	ASSERT_LE(0, q);
	EXPECT_EQ(-EEXIST, open_order(self->name, 0, WQ_ORDER_PRIORITY, 0, 0));
	close(q);
}

TEST_F(priority, config_reports_the_order_and_set_ignores_it)
{
	struct wq_attrs c = { .size = sizeof(c) };

	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &c));
	EXPECT_EQ(WQ_ORDER_PRIORITY, c.order);
	EXPECT_EQ(AGEING, c.order_arg);
	EXPECT_EQ(0, c.group_limit);
	EXPECT_EQ(0, c.max_retries);
	c.set = WQ_ATTR_MAX_KEYS;
	c.order = WQ_ORDER_FIFO;
	c.order_arg = 3;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &c));
	c = (struct wq_attrs){ .size = sizeof(c) };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &c));
	EXPECT_EQ(WQ_ORDER_PRIORITY, c.order);
	EXPECT_EQ(AGEING, c.order_arg);
	/* the default, as a figure */
	close(self->q);
	q_unlink(self->name);
	self->q = open_order(self->name, WQ_OPEN_CREATE, WQ_ORDER_PRIORITY, 0, 0);
	c = (struct wq_attrs){ .size = sizeof(c) };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &c));
	EXPECT_EQ(WQ_DEFAULT_AGEING, c.order_arg);
}

TEST_F(priority, map_fails_with_EOPNOTSUPP)
{
	struct wq_control map = { .size = sizeof(map) };

	EXPECT_EQ(-EOPNOTSUPP, verb(self->q, WQ_IOC_MAP, &map));
	EXPECT_TRUE(q_stat(self->q).state & WQ_STATE_NO_MAP);
}

/* ---- priorities in groups ---- */

TEST(level_of_a_key_counts_in_its_group_only)
{
	struct wq_attrs op = {
		.size = sizeof(op), .order = WQ_ORDER_DELIMITER, .order_arg = '/',
		.group_ageing = AGEING,
	};
	static const char *const order[] = { "a/high", "b/low", "a/mid", "a/low" };
	__u32 used[WQ_PRIORITIES];
	struct item item;
	struct wq_stat st;
	int q = q_dev(O_RDWR);

	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &op));
	ASSERT_EQ(1, add(q, "a/low", -128));
	ASSERT_EQ(1, add(q, "b/low", -128));
	ASSERT_EQ(1, add(q, "a/mid", -1));
	ASSERT_EQ(1, add(q, "a/high", 127));
	ASSERT_EQ(0, add(q, "a/mid", 5));
	EXPECT_EQ(5, level_of(q, "a/mid"));
	st = q_stat_levels(q, used);
	EXPECT_EQ(2, used[0]);
	EXPECT_EQ(0, used[-1 - WQ_MIN_PRIORITY]);
	EXPECT_EQ(WQ_PRIORITY_UNUSED, used[-WQ_MIN_PRIORITY]);
	EXPECT_EQ(2, st.ready_groups);
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, q_get(q, &item, 0));
		EXPECT_STREQ(order[i], item.key);
		ASSERT_EQ(0, q_done(q, &item));
	}
	close(q);
}

/* ---- a wait ---- */

TEST_F(priority, add_that_begins_a_wait_has_a_level)
{
	struct wq_stat before;
	int fd;

	ASSERT_EQ(1, add(self->q, "a", 0));
	fd = flush_add(self->q, "b", 5);
	ASSERT_LE(0, fd);
	EXPECT_EQ(5, level_of(self->q, "b"));
	close(fd);
	fd = flush_add(self->q, "a", WQ_MAX_PRIORITY);
	ASSERT_LE(0, fd);
	close(fd);
	before = q_stat(self->q);
	EXPECT_EQ(-ERANGE, flush_add(self->q, "c", WQ_MAX_PRIORITY + 1));
	EXPECT_EQ(-ERANGE, flush_add(self->q, "c", WQ_MIN_PRIORITY - 1));
	EXPECT_EQ(-ERANGE, flush_add(self->q, "c", INT32_MAX));
	EXPECT_TRUE(same(&before, self->q));
	EXPECT_TRUE(runs(self->q, "a", WQ_MAX_PRIORITY));
	EXPECT_TRUE(runs(self->q, "b", 5));
}

TEST_HARNESS_MAIN
