// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attributes of a queue: config reports them, set changes all that it is asked for or nothing.
 * Permissions, the quota of keys, and what a change means for keys that are in the queue.
 */
#include "wq_users.h"

#define ALL_SET	(WQ_ATTR_MAX_KEYS | WQ_ATTR_LIMITER | \
		 WQ_ATTR_LEASE | WQ_ATTR_SLACK | WQ_ATTR_MAX_RETRIES | WQ_ATTR_MAX_PROCESSING | \
		 WQ_ATTR_START_RATE | WQ_ATTR_START_BURST | WQ_ATTR_MAX_DEFER)

/* Attributes that need more than each queue has. */
#define SOME_SET	(WQ_ATTR_LEASE | WQ_ATTR_MAX_DEFER)

#define OF_RATES	(WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST)
#define OF_ORDERS	(WQ_ATTR_ORDER | WQ_ATTR_ORDER_ARG | WQ_ATTR_GROUP_LIMIT | \
			 WQ_ATTR_GROUP_AGEING | OF_RATES)

#define EXPONENTIAL(b, m)	{ .kind = WQ_LIMITER_EXPONENTIAL, .base = (b), .max = (m) }
#define FAST_SLOW(f, s, num)	\
	{ .kind = WQ_LIMITER_FAST_SLOW, .n = (num), .base = (f), .max = (s) }
#define BUCKET(qps, num)	{ .kind = WQ_LIMITER_BUCKET, .n = (num), .rate = WQ_QPS(qps) }
#define MAX_OF(num)		{ .kind = WQ_LIMITER_MAX_OF, .n = (num) }
#define MAX_WAIT(m)		{ .kind = WQ_LIMITER_MAX_WAIT, .max = (m) }

/* client-go's default for controllers */
static const struct wq_limiter_spec default_limiter[] = {
	MAX_OF(2), EXPONENTIAL(5 * MS, 1000 * SEC), BUCKET(10, 100),
};

static const struct wq_limiter_spec nested[] = {
	MAX_WAIT(5 * MINUTE), MAX_OF(3), FAST_SLOW(MS, SEC, 7), MAX_WAIT(HOUR), BUCKET(3, 4),
	EXPONENTIAL(2 * MS, 3 * SEC),
};

static const struct wq_limiter_spec hourly[] = { EXPONENTIAL(HOUR, DAY) };

/* All attributes of a queue. */
struct attributes {
	struct wq_attrs c;
	struct wq_limiter_spec limiter[WQ_MAX_LIMITERS];
};

static int q_config(int fd, struct attributes *a)
{
	memset(a, 0, sizeof(*a));
	a->c.size = sizeof(a->c);
	a->c.limiters = addr_of(a->limiter);
	a->c.num_limiters = WQ_MAX_LIMITERS;
	return verb(fd, WQ_IOC_ATTRS, &a->c);
}

static struct attributes attributes(int fd)
{
	struct attributes a;

	if (q_config(fd, &a))
		memset(&a, 0xff, sizeof(a));
	a.c.limiters = 0;	/* which is an address */
	return a;
}

static bool is_same(const struct attributes *before, int fd)
{
	struct attributes now = attributes(fd);

	return equal_bytes("attributes", before, &now, sizeof(now));
}

static bool is_limiter(const struct attributes *a, const struct wq_limiter_spec *specs, __u32 n)
{
	return equal("limiters", n, a->c.num_limiters) &&
	       equal_bytes("limiters", specs, a->limiter, n * sizeof(*specs));
}

static int q_set(int fd, struct wq_attrs c)
{
	struct wq_attrs was;
	int ret;

	c.size = sizeof(c);
	was = c;
	ret = verb(fd, WQ_IOC_ATTRS, &c);
	/* set only reads the struct */
	return equal_bytes("wq_attrs", &was, &c, sizeof(c)) ? ret : -EBADMSG;
}

static int set_max_keys(int fd, __u32 max_keys)
{
	return q_set(fd, (struct wq_attrs){ .set = WQ_ATTR_MAX_KEYS, .max_keys = max_keys });
}

static int set_lease(int fd, __s64 lease)
{
	return q_set(fd, (struct wq_attrs){ .set = WQ_ATTR_LEASE, .lease = lease });
}

static int set_limiter(int fd, const struct wq_limiter_spec *limiters, __u32 n)
{
	return q_set(fd, (struct wq_attrs){
		.set = WQ_ATTR_LIMITER, .limiters = addr_of(limiters), .num_limiters = n,
	});
}

static int open_as_asked(const char *name, struct wq_attrs op)
{
	int fd = q_dev(O_RDWR), ret;

	op.size = sizeof(op);
	if (name[0]) {
		strcpy(op.name, name);
		op.flags |= CREATE;
		op.mode = op.mode ?: 0600;
	}
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* ---- config ---- */

TEST_F(users, config_reports_the_defaults)
{
	int q = q_open(self->name, O_RDWR, EXCL, 0640, 0);
	struct attributes a = attributes(q);

	ASSERT_EQ(sizeof(struct wq_attrs), a.c.size);
	ASSERT_EQ(0, a.c.flags);
	/* a queue that was created without one of these can have none */
	ASSERT_EQ(ALL_SET & ~SOME_SET, a.c.set);
	ASSERT_EQ(0640, a.c.mode);
	ASSERT_EQ(geteuid(), a.c.uid);
	ASSERT_EQ(getegid(), a.c.gid);
	ASSERT_EQ(65536, a.c.max_keys);
	ASSERT_EQ(0, a.c.lease);
	ASSERT_EQ(WQ_DEFAULT_SLACK, a.c.slack);
	ASSERT_EQ(0, a.c.max_defer);
	ASSERT_EQ(0, a.c.max_processing);
	ASSERT_EQ(0, a.c.start_rate);
	ASSERT_EQ(WQ_DEFAULT_START_BURST, a.c.start_burst);
	ASSERT_TRUE(is_limiter(&a, default_limiter, ARRAY_SIZE(default_limiter)));
}

TEST_F(users, config_reports_what_open_asked_for)
{
	int q = open_as_asked(self->name, (struct wq_attrs){
		.mode = 0604, .max_keys = 77, .lease = 3 * SEC, .slack = 5 * MS,
		.max_defer = 7 * MS, .max_processing = 9, .start_rate = 11, .start_burst = 13,
		.limiters = addr_of(nested), .num_limiters = ARRAY_SIZE(nested),
	});
	struct attributes a;

	ASSERT_LE(0, q);
	a = attributes(q);
	ASSERT_EQ(ALL_SET, a.c.set);
	ASSERT_STREQ(self->name, a.c.name);
	ASSERT_EQ(0604, a.c.mode);
	ASSERT_EQ(77, a.c.max_keys);
	ASSERT_EQ(3 * SEC, a.c.lease);
	ASSERT_EQ(5 * MS, a.c.slack);
	ASSERT_EQ(5 * MS, q_stat(q).slack);
	ASSERT_EQ(7 * MS, a.c.max_defer);
	ASSERT_EQ(9, a.c.max_processing);
	ASSERT_EQ(11, a.c.start_rate);
	ASSERT_EQ(13, a.c.start_burst);
	ASSERT_TRUE(is_limiter(&a, nested, ARRAY_SIZE(nested)));
	/* each file that may add or get can read the attributes */
	ASSERT_TRUE(is_same(&a, q_attach(self->name, O_RDONLY)));
	ASSERT_TRUE(is_same(&a, q_attach(self->name, O_WRONLY)));
}

TEST(config_of_a_private_queue_reports_no_permissions_to_set)
{
	struct attributes a = attributes(q_private(5));

	ASSERT_EQ(ALL_SET & ~SOME_SET, a.c.set);
	ASSERT_EQ(0, a.c.mode);
	ASSERT_EQ(5, a.c.max_keys);
	a = attributes(q_open_lease("", 0, SEC));
	ASSERT_EQ(ALL_SET & ~WQ_ATTR_MAX_DEFER, a.c.set);
}

TEST(config_writes_at_most_num_limiters_elements)
{
	int q = open_as_asked("", (struct wq_attrs){
		.limiters = addr_of(nested), .num_limiters = ARRAY_SIZE(nested),
	});
	struct wq_limiter_spec to[WQ_MAX_LIMITERS];

	for (__u32 room = 0; room <= WQ_MAX_LIMITERS + 1; room++) {
		struct wq_attrs c = {
			.size = sizeof(c), .limiters = addr_of(to), .num_limiters = room,
		};
		__u32 n = room < ARRAY_SIZE(nested) ? room : ARRAY_SIZE(nested);

		memset(to, 0x5a, sizeof(to));
		ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &c));
		ASSERT_EQ(ARRAY_SIZE(nested), c.num_limiters);
		ASSERT_TRUE(equal_bytes("limiters", nested, to, n * sizeof(*to)));
		ASSERT_TRUE(all(to + n, 0x5a, sizeof(to) - n * sizeof(*to)));
	}
}

TEST(config_and_set_agree_on_each_limiter)
{
	static const struct {
		struct wq_limiter_spec limiter[WQ_MAX_LIMITERS];
		__u32 n;
	} some[] = {
		{ { EXPONENTIAL(0, 0) }, 1 },
		{ { EXPONENTIAL(1, 0x7fffffffffffffff) }, 1 },
		{ { FAST_SLOW(3, 4, 0xffffffff) }, 1 },
		{ { BUCKET(0, 0) }, 1 },
		{ { BUCKET(0, 12) }, 1 },
		{ { { .kind = WQ_LIMITER_BUCKET, .n = 9, .rate = 7 } }, 1 },
		{ { MAX_OF(1), BUCKET(1, 2) }, 2 },
		{ { MAX_WAIT(0), MAX_WAIT(1), MAX_WAIT(2), MAX_WAIT(3), BUCKET(1, 2) }, 5 },
		{ { MAX_OF(2), MAX_OF(2), BUCKET(1, 2), BUCKET(3, 4), MAX_WAIT(9),
		    EXPONENTIAL(5, 6) }, 6 },
		{ { MAX_OF(15), BUCKET(1, 1), BUCKET(2, 2), BUCKET(3, 3), BUCKET(4, 4),
		    BUCKET(5, 5), BUCKET(6, 6), BUCKET(7, 7), BUCKET(8, 8), BUCKET(9, 9),
		    BUCKET(10, 10), BUCKET(11, 11), BUCKET(12, 12), BUCKET(13, 13),
		    BUCKET(14, 14), BUCKET(15, 15) }, 16 },
	};
	int q = q_private(0);

	for (int i = 0; i < ARRAY_SIZE(some); i++) {
		struct attributes a;

		ASSERT_EQ(0, set_limiter(q, some[i].limiter, some[i].n)) {
			TH_LOG("limiter %d", i);
		}
		a = attributes(q);
		ASSERT_TRUE(is_limiter(&a, some[i].limiter, some[i].n)) {
			TH_LOG("limiter %d", i);
		}
	}
	/* none: the default */
	ASSERT_EQ(0, set_limiter(q, NULL, 0));
	struct attributes a = attributes(q);

	ASSERT_TRUE(is_limiter(&a, default_limiter, ARRAY_SIZE(default_limiter)));
}

TEST(report_fails_with_EINVAL_and_EFAULT_and_writes_nothing)
{
	struct wq_limiter_spec *to = edge(2 * sizeof(*to));
	int q = q_private(0);
	struct wq_attrs c = {
		.size = sizeof(c), .limiters = addr_of(to), .num_limiters = WQ_MAX_LIMITERS,
		.mode = 1, .uid = 2, .gid = 3, .max_keys = 4, .lease = 5, .slack = 6,
	}, was;

	was = c;
	/* the default limiter has three elements */
	ASSERT_EQ(-EFAULT, verb(q, WQ_IOC_ATTRS, &c));
	ASSERT_TRUE(equal_bytes("wq_attrs", &was, &c, sizeof(c)));
	c.num_limiters = was.num_limiters = 2;
	for (int bit = 0; bit < 32; bit++) {
		c.flags = was.flags = 1U << bit;
		ASSERT_EQ(-EINVAL, verb(q, WQ_IOC_ATTRS, &c));
		ASSERT_TRUE(equal_bytes("wq_attrs", &was, &c, sizeof(c)));
	}
	c.flags = 0;
	ASSERT_EQ(0, verb(q, WQ_IOC_ATTRS, &c));
	ASSERT_EQ(3, c.num_limiters);
	/* a struct that can't be written */
	c = (struct wq_attrs){ .size = sizeof(c) };
	ASSERT_EQ(-EFAULT, verb(q, WQ_IOC_ATTRS, read_only(&c, sizeof(c))));
}

/* ---- set ---- */

TEST_F(users, set_changes_each_attribute_alone)
{
	int q = open_as_asked(self->name, (struct wq_attrs){ .lease = SEC, .max_defer = SEC });
	/* the fields of other attributes are ignored, so they may hold anything */
	struct wq_attrs c = {
		.mode = 0xffff, .uid = -1, .gid = -1, .max_keys = 0xffffffff,
		.limiters = 1, .num_limiters = 0xffffffff, .lease = -1, .slack = -1,
		.order = 77, .order_arg = 0xffffffff, .max_defer = -1,
	}, x;
	struct attributes a = attributes(q);

#define SET_ALONE(bit, field, value) do {				\
	x = c;								\
	x.set = (bit);							\
	x.field = (value);						\
	ASSERT_EQ(0, q_set(q, x));					\
	a.c.field = (value);						\
	ASSERT_TRUE(is_same(&a, q));					\
} while (0)
	SET_ALONE(WQ_ATTR_MAX_KEYS, max_keys, 1);
	SET_ALONE(WQ_ATTR_MAX_KEYS, max_keys, WQ_MAX_KEYS);
	SET_ALONE(WQ_ATTR_LEASE, lease, WQ_MIN_LEASE);
	SET_ALONE(WQ_ATTR_LEASE, lease, 0);
	SET_ALONE(WQ_ATTR_LEASE, lease, HOUR);
	SET_ALONE(WQ_ATTR_MAX_DEFER, max_defer, 0);
	SET_ALONE(WQ_ATTR_MAX_DEFER, max_defer, INT64_MAX);
	SET_ALONE(WQ_ATTR_SLACK, slack, 1);
	SET_ALONE(WQ_ATTR_SLACK, slack, WQ_MAX_SLACK);
	SET_ALONE(WQ_ATTR_MAX_RETRIES, max_retries, WQ_MAX_RETRIES);
	SET_ALONE(WQ_ATTR_MAX_RETRIES, max_retries, 0);
	SET_ALONE(WQ_ATTR_START_RATE, start_rate, INT64_MAX);
	SET_ALONE(WQ_ATTR_START_BURST, start_burst, ~0U);
	SET_ALONE(WQ_ATTR_START_BURST, start_burst, 1);
	SET_ALONE(WQ_ATTR_START_RATE, start_rate, 1);
	SET_ALONE(WQ_ATTR_START_RATE, start_rate, 0);
	x = c;
	x.set = WQ_ATTR_LIMITER;
	x.limiters = addr_of(hourly);
	x.num_limiters = 1;
	ASSERT_EQ(0, q_set(q, x));
	a.c.num_limiters = 1;
	memset(a.limiter, 0, sizeof(a.limiter));
	memcpy(a.limiter, hourly, sizeof(hourly));
	ASSERT_TRUE(is_same(&a, q));
	/* stat agrees */
	ASSERT_EQ(WQ_MAX_KEYS, q_stat(q).max_keys);
	ASSERT_EQ(HOUR, q_stat(q).lease);
	ASSERT_EQ(WQ_MAX_SLACK, q_stat(q).slack);
}

/* Good values for all attributes. */
static struct wq_attrs good(void)
{
	return (struct wq_attrs){
		.set = ALL_SET, .max_keys = 123,
		.limiters = addr_of(nested), .num_limiters = ARRAY_SIZE(nested),
		.lease = 2 * SEC, .slack = 3 * MS, .max_processing = 4, .max_defer = SEC,
		.start_rate = WQ_QPS(5), .start_burst = 6,
	};
}

TEST_F(users, set_fails_and_changes_nothing_if_one_attribute_is_bad)
{
	static const struct wq_limiter_spec bad_kind[] = { { .kind = WQ_LIMITER_OTHER } };
	static const struct wq_limiter_spec bad_range[] = { EXPONENTIAL(-1, 1) };
	static const struct wq_limiter_spec large[] = { MAX_OF(17) };
	/* of a queue without a lease and groups */
	static const __u32 never[] = {
		WQ_ATTR_LEASE, WQ_ATTR_MAX_DEFER, WQ_ATTR_GROUP_LIMIT, WQ_ATTR_GROUP_START_RATE,
		WQ_ATTR_GROUP_START_BURST, WQ_ATTR_GROUP_AGEING,
	};
	int q = open_as_asked(self->name, (struct wq_attrs){ .lease = SEC, .max_defer = SEC });
	int unleased = q_private(0);
	struct attributes a = attributes(q), b = attributes(unleased);
	struct wq_attrs c;

#define BAD(error, field, value) do {					\
	c = good();							\
	c.field = (value);						\
	EXPECT_EQ(error, q_set(q, c));					\
	EXPECT_TRUE(is_same(&a, q)) {					\
		TH_LOG(#field " " #value);				\
	}								\
} while (0)
	for (int bit = 0; bit < 32; bit++) {
		BAD(-EINVAL, flags, 1U << bit);
		if (!((ALL_SET | OF_ORDERS) & 1U << bit))
			BAD(-EINVAL, set, ALL_SET | 1U << bit);
	}
	BAD(-EINVAL, max_keys, 0);
	BAD(-EINVAL, slack, 0);
	BAD(-EINVAL, start_burst, 0);
	BAD(-EINVAL, reserved, 1);
	BAD(-EINVAL, limiters, addr_of(bad_kind));
	BAD(-EOPNOTSUPP, set, ALL_SET | WQ_ATTR_ORDER);
	BAD(-EOPNOTSUPP, set, ALL_SET | WQ_ATTR_ORDER_ARG);
	BAD(-ERANGE, max_defer, -1);
	BAD(-ERANGE, max_keys, WQ_MAX_KEYS + 1);
	BAD(-ERANGE, lease, 1);
	BAD(-ERANGE, lease, WQ_MIN_LEASE - 1);
	BAD(-ERANGE, lease, -1);
	BAD(-ERANGE, slack, -1);
	BAD(-ERANGE, slack, WQ_MAX_SLACK + 1);
	BAD(-ERANGE, max_retries, WQ_MAX_RETRIES + 1);
	BAD(-ERANGE, start_rate, 1ULL << 63);
	BAD(-E2BIG, num_limiters, WQ_MAX_LIMITERS + 1);
	BAD(-EINVAL, num_limiters, ARRAY_SIZE(nested) - 1);
	BAD(-EFAULT, limiters, 8);
	c = good();
	c.limiters = addr_of(bad_range);
	c.num_limiters = 1;
	EXPECT_EQ(-ERANGE, q_set(q, c));
	c.limiters = addr_of(large);
	EXPECT_EQ(-E2BIG, q_set(q, c));
	EXPECT_TRUE(is_same(&a, q));

	/* a queue without leases can't have one, and chmod and chown change a file */
	c = good();
	c.group_limit = c.group_start_rate = c.group_start_burst = c.group_ageing = 1;
	for (int i = 0; i < ARRAY_SIZE(never); i++) {
		c.set = WQ_ATTR_MAX_KEYS | never[i];
		EXPECT_EQ(-EOPNOTSUPP, q_set(unleased, c)) {
			TH_LOG("0x%x", never[i]);
		}
	}
	for (int bit = WQ_ATTR_MODE; bit <= WQ_ATTR_GID; bit <<= 1) {
		c.set = WQ_ATTR_MAX_KEYS | bit;
		EXPECT_EQ(-EINVAL, q_set(unleased, c));
		EXPECT_EQ(-EINVAL, q_set(q, c));
	}
	EXPECT_TRUE(is_same(&a, q));
	EXPECT_TRUE(is_same(&b, unleased));
	c.set = WQ_ATTR_MAX_KEYS | WQ_ATTR_LEASE | WQ_ATTR_MAX_DEFER | WQ_ATTR_GROUP_LIMIT;
	c.lease = c.max_defer = c.group_limit = 0;
	EXPECT_EQ(0, q_set(unleased, c));
	EXPECT_EQ(123, attributes(unleased).c.max_keys);

	EXPECT_EQ(0, q_set(q, good()));
	EXPECT_EQ(123, attributes(q).c.max_keys);
}

/* The figures of an order can change, and the order can't. */
TEST(set_changes_the_ageing_of_levels_and_the_limit_of_groups)
{
	static const struct {
		__u32 order, arg, more, ageing;
	} orders[] = {
		{ WQ_ORDER_FIFO, 0, 0, 0 },
		{ WQ_ORDER_PRIORITY, 5, WQ_ATTR_MAX_DEFER | WQ_ATTR_ORDER_ARG, 0 },
		{ WQ_ORDER_DELIMITER, '/', WQ_ATTR_MAX_DEFER | WQ_ATTR_GROUP_LIMIT | OF_RATES, 0 },
		{ WQ_ORDER_PREFIX, 5, WQ_ATTR_MAX_DEFER | WQ_ATTR_GROUP_LIMIT | OF_RATES, 0 },
		{ WQ_ORDER_PREFIX, 5, WQ_ATTR_MAX_DEFER | WQ_ATTR_GROUP_LIMIT | OF_RATES |
				      WQ_ATTR_GROUP_AGEING, 4 },
	};

	for (int i = 0; i < ARRAY_SIZE(orders); i++) {
		int q = open_as_asked("", (struct wq_attrs){
			.order = orders[i].order, .order_arg = orders[i].arg,
			.group_ageing = orders[i].ageing,
		});
		struct wq_attrs levels = { .set = WQ_ATTR_GROUP_AGEING, .group_ageing = 9 };
		struct attributes a = attributes(q);

		EXPECT_EQ((ALL_SET & ~SOME_SET) | orders[i].more, a.c.set);
		for (__u32 bit = WQ_ATTR_MAX_DEFER; bit <= WQ_ATTR_GROUP_LIMIT; bit <<= 1) {
			struct wq_attrs c = {
				.set = bit, .max_defer = HOUR, .order = orders[i].order,
				.order_arg = 9, .group_limit = 7,
			};

			EXPECT_EQ(bit & orders[i].more ? 0 : -EOPNOTSUPP, q_set(q, c)) {
				TH_LOG("order %d, bit 0x%x", i, bit);
			}
		}
		a = attributes(q);
		EXPECT_EQ(orders[i].order, a.c.order);
		EXPECT_EQ(orders[i].more & WQ_ATTR_ORDER_ARG ? 9 : orders[i].arg, a.c.order_arg);
		EXPECT_EQ(orders[i].more & WQ_ATTR_GROUP_LIMIT ? 7 : 0, a.c.group_limit);
		EXPECT_EQ(orders[i].more ? HOUR : 0, a.c.max_defer);
		/* whether there are levels can't change */
		EXPECT_EQ(orders[i].ageing ? 0 : -EOPNOTSUPP, q_set(q, levels));
		EXPECT_EQ(orders[i].ageing ? 9 : 0, attributes(q).c.group_ageing);
		levels.group_ageing = 0;
		EXPECT_EQ(orders[i].ageing ? -EOPNOTSUPP : 0, q_set(q, levels));
		close(q);
	}
}

/* ---- permissions ---- */

static int set_as(uid_t uid, gid_t gid, gid_t group, int q, struct wq_attrs c)
{
	pid_t pid = user(uid, gid, group);

	if (!pid)
		_exit(-q_set(q, c));
	return -reap(pid);
}

TEST_F(users, set_is_for_the_owner_and_root)
{
	struct wq_attrs slack = { .set = WQ_ATTR_SLACK, .slack = 7 };
	struct attributes a;
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	q = q_attach(self->name, O_RDWR);
	a = attributes(q);
	EXPECT_EQ(-EPERM, set_as(BOB, GROUP, 0, q, slack));
	EXPECT_TRUE(is_same(&a, q));
	EXPECT_EQ(0, set_as(ALICE, OTHERS, 0, q, slack));
	EXPECT_EQ(7, attributes(q).c.slack);
	slack.slack = 8;
	EXPECT_EQ(0, set_as(0, 0, 0, q, slack));
	EXPECT_EQ(8, attributes(q).c.slack);
}

/* chown of the queue's file. */
static int chown_as(uid_t uid, gid_t gid, gid_t group, const char *name, uid_t owner, gid_t owning)
{
	pid_t pid = user(uid, gid, group);

	if (!pid)
		_exit(chown(path_of(name), owner, owning) ? errno : 0);
	return -reap(pid);
}

TEST_F(users, chown_makes_a_new_owner_and_needs_CAP_CHOWN)
{
	struct wq_attrs slack = { .set = WQ_ATTR_SLACK, .slack = 9 };
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0600));
	q = q_attach(self->name, O_RDWR);
	EXPECT_EQ(-EPERM, chown_as(ALICE, GROUP, 0, self->name, BOB, -1));
	EXPECT_EQ(ALICE, q_stat(q).uid);
	EXPECT_EQ(0, chown_as(0, 0, 0, self->name, BOB, -1));
	EXPECT_EQ(BOB, q_stat(q).uid);
	/* the new owner has the rights of the former one */
	EXPECT_EQ(-EPERM, set_as(ALICE, GROUP, 0, q, slack));
	EXPECT_EQ(0, set_as(BOB, OTHERS, 0, q, slack));
}

TEST_F(users, chown_of_the_group_needs_membership_or_CAP_CHOWN)
{
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0060));
	q = q_attach(self->name, O_RDWR);
	EXPECT_EQ(-EPERM, chown_as(ALICE, GROUP, 0, self->name, -1, OTHERS));
	EXPECT_EQ(GROUP, q_stat(q).gid);
	EXPECT_EQ(0, chown_as(ALICE, GROUP, OTHERS, self->name, -1, OTHERS));
	EXPECT_EQ(OTHERS, q_stat(q).gid);
	EXPECT_EQ(-EPERM, chown_as(ALICE, GROUP, OTHERS, self->name, -1, 0));
	EXPECT_EQ(0, chown_as(0, 0, 0, self->name, -1, 0));
	EXPECT_EQ(0, q_stat(q).gid);
}

TEST_F(users, chmod_applies_to_later_opens)
{
	int *bound = shared(sizeof(*bound));
	pid_t pid;
	int q;

	ASSERT_EQ(0, create_as(ALICE, GROUP, self->name, 0666));
	q = q_attach(self->name, O_RDWR);
	pid = user(BOB, OTHERS, 0);
	if (!pid) {
		int fd = q_attach(self->name, O_RDWR);

		__atomic_store_n(bound, fd < 0 ? -1 : 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(bound, __ATOMIC_ACQUIRE) != 2)
			sleep_ms(1);
		/* a file that is bound keeps its access, a new one is checked */
		_exit(q_add(fd, "k") != 1 || q_attach(self->name, O_RDONLY) != -EACCES);
	}
	ASSERT_EVENTUALLY(__atomic_load_n(bound, __ATOMIC_ACQUIRE) == 1);
	EXPECT_EQ(0, chmod(path_of(self->name), 0));
	EXPECT_EQ(0, q_stat(q).mode);
	__atomic_store_n(bound, 2, __ATOMIC_RELEASE);
	EXPECT_EQ(0, reap(pid));
	pid = user(ALICE, GROUP, 0);
	if (!pid)
		_exit(chmod(path_of(self->name), 0004) != 0);
	EXPECT_EQ(0, reap(pid));
	pid = user(BOB, OTHERS, 0);
	if (!pid)
		_exit(q_attach(self->name, O_RDONLY) < 0 ||
		      q_attach(self->name, O_RDWR) != -EACCES);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(1, times_listed(self->name, NULL));
}

/* ---- max_keys ---- */

TEST(set_of_max_keys_below_the_keys_keeps_them_and_refuses_new_ones)
{
	int q = q_private(4);
	struct item it;

	for (char key[] = "a"; key[0] <= 'd'; key[0]++)
		ASSERT_EQ(1, q_add(q, key));
	ASSERT_EQ(-ENOSPC, q_add(q, "e"));
	ASSERT_EQ(0, set_max_keys(q, 2));
	ASSERT_EQ(4, q_stat(q).keys);
	ASSERT_EQ(0, q_add(q, "a"));
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(-ENOSPC, q_add(q, "e"));
		ASSERT_EQ(0, q_get(q, &it, 0));
		ASSERT_EQ(0, q_done(q, &it));
	}
	ASSERT_EQ(-ENOSPC, q_add(q, "e"));
	ASSERT_EQ(0, set_max_keys(q, 3));
	ASSERT_EQ(1, q_add(q, "e"));
	ASSERT_EQ(-ENOSPC, q_add(q, "f"));
	ASSERT_EQ(0, set_max_keys(q, 1000));
	ASSERT_EQ(1, q_add(q, "f"));
}

/* ---- the quota ---- */

#define USER_KEYS	"/sys/module/wq/parameters/user_keys"

/* Users of these cases alone: a process that another case killed may still end, with its queues. */
enum { DAVE = 54311, ERIN };

FIXTURE(quota) {
	char keys[24];
	struct stat device;
};

FIXTURE_SETUP(quota)
{
	snprintf(self->keys, sizeof(self->keys), "%lld", read_number(USER_KEYS));
	ASSERT_EQ(0, stat(WQ_DEVICE, &self->device));
	ASSERT_EQ(0, chmod(WQ_DEVICE, 0666));
	ASSERT_EQ(0, write_file(USER_KEYS, "1000"));
}

FIXTURE_TEARDOWN(quota)
{
	write_file(USER_KEYS, self->keys);
	chmod(WQ_DEVICE, self->device.st_mode & 07777);
}

static long long charged_keys(void)
{
	struct wq_info info;
	int fd = q_dev(O_RDWR);

	if (q_info(fd, &info))
		return -1;
	close(fd);
	return info.charged_keys;
}

/* As a user without privileges, whose limit is 1000 keys. */
static int charge_sets(void)
{
	int a = q_private(100), b = q_private(200);
	struct attributes was;

	CHECK(charged_keys() == 300);
	CHECK(!set_max_keys(a, 800));
	CHECK(charged_keys() == 1000);
	was = attributes(a);
	CHECK(set_max_keys(a, 801) == -ENOSPC);
	/* all or nothing */
	CHECK(q_set(a, (struct wq_attrs){ .set = WQ_ATTR_MAX_KEYS | WQ_ATTR_SLACK,
					   .max_keys = 801, .slack = 1 }) == -ENOSPC);
	CHECK(is_same(&was, a));
	CHECK(set_max_keys(b, 201) == -ENOSPC);
	CHECK(q_private(1) == -ENOSPC);
	CHECK(!set_max_keys(a, 800));
	CHECK(!set_max_keys(a, 1));
	CHECK(charged_keys() == 201);
	CHECK(!set_max_keys(b, 999));
	CHECK(charged_keys() == 1000);
	/* what a queue is charged for is uncharged when it ends */
	close(b);
	CHECK(charged_keys() == 1);
	close(a);
	CHECK(charged_keys() == 0);
	return 0;
}

TEST_F(quota, set_of_max_keys_charges_and_uncharges_the_quota)
{
	pid_t pid = user(DAVE, OTHERS, 0);

	if (!pid)
		_exit(charge_sets());
	ASSERT_EQ(0, reap(pid));
}

/* As a user with CAP_SYS_RESOURCE, whose limit is 1000 keys. */
static int set_beyond_the_quota(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	int q = q_private(900);

	CHECK(!set_max_keys(q, 5000));
	CHECK(equal("charged keys", 5000, charged_keys()));
	/* a smaller one is accepted, although it is above the quota as well */
	CHECK(!set_max_keys(q, 4000));
	CHECK(equal("charged keys", 4000, charged_keys()));
	CHECK(!syscall(SYS_capset, &head, none));
	CHECK(equal("set", -ENOSPC, set_max_keys(q, 4001)));
	CHECK(!set_max_keys(q, 3000));
	CHECK(equal("charged keys", 3000, charged_keys()));
	CHECK(!q_set(q, (struct wq_attrs){ .set = WQ_ATTR_LIMITER }));
	close(q);
	CHECK(equal("charged keys", 0, charged_keys()));
	return 0;
}

TEST_F(quota, set_of_max_keys_beyond_the_quota_needs_CAP_SYS_RESOURCE)
{
	pid_t pid = capable(DAVE, CAP_SYS_RESOURCE);

	if (!pid)
		_exit(set_beyond_the_quota());
	ASSERT_EQ(0, reap(pid));
}

/* A queue is charged to its owner, also after a change of the owner. */
TEST_F(quota, set_of_max_keys_charges_the_owner)
{
	int q, fd = q_dev(O_RDWR), hers = q_dev(O_RDWR);
	long long *others = shared(sizeof(*others));
	char name[WQ_NAME_MAX];
	pid_t pid;

	snprintf(name, sizeof(name), "selftest-%d", getpid());
	pid = user(ERIN, OTHERS, 0);
	/* she has a queue, so that her quota could be charged */
	if (!pid)
		_exit(q_bind(hers, "", 0, 0, 5) || (*others = charged_keys()) < 5);
	ASSERT_EQ(0, reap(pid));
	pid = user(DAVE, OTHERS, 0);
	if (!pid)
		_exit(-q_bind(fd, name, EXCL, 0600, 10));
	ASSERT_EQ(0, reap(pid));
	q = q_attach(name, O_RDWR);
	ASSERT_EQ(0, chown(path_of(name), ERIN, -1));
	/* with the 5 of her other queue */
	EXPECT_EQ(-ENOSPC, set_as(ERIN, OTHERS, 0, q, (struct wq_attrs){
		.set = WQ_ATTR_MAX_KEYS, .max_keys = 996 }));
	EXPECT_EQ(0, set_as(ERIN, OTHERS, 0, q, (struct wq_attrs){
		.set = WQ_ATTR_MAX_KEYS, .max_keys = 900 }));
	/* no change is accepted, although the queue is above the quota now */
	ASSERT_EQ(0, write_file(USER_KEYS, "10"));
	EXPECT_EQ(0, set_as(ERIN, OTHERS, 0, q, (struct wq_attrs){
		.set = WQ_ATTR_MAX_KEYS, .max_keys = 900 }));
	pid = user(DAVE, OTHERS, 0);
	if (!pid)
		_exit(charged_keys() != 0);
	EXPECT_EQ(0, reap(pid));
	pid = user(ERIN, OTHERS, 0);
	if (!pid)
		_exit(charged_keys() != *others + 900);
	EXPECT_EQ(0, reap(pid));
	EXPECT_EQ(0, q_unlink(name));
	close(hers);
}

static int set_often(int q, unsigned int seed)
{
	for (int i = 0; i < 2000; i++) {
		__u32 n = 1 + rand_r(&seed) % 400;
		int ret = set_max_keys(q, n);

		if (ret && ret != -ENOSPC)
			return 1;
	}
	return 0;
}

static int concurrent_sets(void)
{
	enum { QUEUES = 3, PROCS = 6 };
	int q[QUEUES], sum = 0;
	pid_t pid[PROCS];

	for (int i = 0; i < QUEUES; i++)
		q[i] = q_private(10);
	for (int i = 0; i < PROCS; i++) {
		pid[i] = child();
		if (!pid[i])
			_exit(set_often(q[i % QUEUES], i + 1));
	}
	for (int i = 0; i < PROCS; i++)
		CHECK(!reap(pid[i]));
	for (int i = 0; i < QUEUES; i++)
		sum += attributes(q[i]).c.max_keys;
	CHECK(equal("charged keys", sum, charged_keys()));
	CHECK(sum <= 1000);
	for (int i = 0; i < QUEUES; i++)
		close(q[i]);
	CHECK(equal("charged keys", 0, charged_keys()));
	return 0;
}

TEST_F(quota, set_of_max_keys_by_several_processes_charges_the_sum)
{
	pid_t pid = user(DAVE, OTHERS, 0);

	if (!pid)
		_exit(concurrent_sets());
	ASSERT_EQ(0, reap(pid));
}

/* ---- the limiter ---- */

static struct wq_key_info info_of(int q, const char *key)
{
	struct wq_key_op query;

	if (q_key_call(q, WQ_DO_QUERY, key, strlen(key), &query))
		memset(&query, 0xff, sizeof(query));
	return query.info;
}

static int fail(int q, const char *key)
{
	return q_add_flags(q, key, 0, WQ_ADD_RATE_LIMITED);
}

/* Runs the key once, and lets it fail. */
static int run_and_fail(int q)
{
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };
	int ret = q_get_array(q, &a, 1, 0);

	if (ret)
		return ret;
	one.rec.flags = WQ_OUTCOME_RETRY;
	return q_done_array(q, &a);
}

TEST(set_of_the_limiter_keeps_failures_and_pending_delays)
{
	static const struct wq_limiter_spec none[] = { EXPONENTIAL(0, 0) };
	static const struct wq_limiter_spec slow[] = { FAST_SLOW(HOUR, DAY, 3) };
	int q = open_as_asked("", (struct wq_attrs){
		.limiters = addr_of(none), .num_limiters = 1,
	});

	for (int i = 0; i < 3; i++) {
		ASSERT_LE(0, fail(q, "a"));
		if (i < 2)
			ASSERT_EQ(0, run_and_fail(q));
	}
	ASSERT_EQ(5, info_of(q, "a").failures);
	ASSERT_EQ(1, q_add_after(q, "later", 2 * DAY));
	ASSERT_EQ(0, set_limiter(q, slow, 1));
	ASSERT_EQ(5, info_of(q, "a").failures);
	ASSERT_EQ(5, info_of(q, "a").num_requeues);
	ASSERT_TRUE(within("due", 2 * DAY - HOUR, 2 * DAY, info_of(q, "later").due));
	/* the sixth failure is slow, another key's first is fast */
	ASSERT_EQ(0, run_and_fail(q));
	ASSERT_EQ(6, info_of(q, "a").failures);
	ASSERT_TRUE(within("due", DAY - HOUR, DAY, info_of(q, "a").due));
	ASSERT_EQ(1, fail(q, "b"));
	ASSERT_TRUE(within("due", HOUR - MINUTE, HOUR, info_of(q, "b").due));
	/* the pending delay is the former limiter's */
	ASSERT_EQ(0, set_limiter(q, none, 1));
	ASSERT_TRUE(within("due", DAY - HOUR, DAY, info_of(q, "a").due));
}

TEST(set_of_the_limiter_keeps_idle_keys_with_failures)
{
	static const struct wq_limiter_spec none[] = { EXPONENTIAL(0, 0) };
	static const struct wq_limiter_spec bucket[] = { BUCKET(1000, 1000) };
	struct array a = array_new(4096);
	int q = open_as_asked("", (struct wq_attrs){
		.limiters = addr_of(none), .num_limiters = 1,
	});
	__u64 cursor = 0;
	struct item it;

	ASSERT_EQ(1, fail(q, "a"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(1, q_stat(q).retained);
	ASSERT_EQ(0, set_limiter(q, bucket, 1));
	/* it counts, so it is listed and can be forgotten, although a bucket does not use it */
	ASSERT_TRUE(counts(q, "retained 1, keys 1"));
	ASSERT_EQ(WQ_KEY_FAILED, q_query(q, "a"));
	ASSERT_EQ(0, q_list(q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(WQ_KEY_FAILED, q_key_state(q, WQ_DO_FORGET, "a", 1));
	ASSERT_TRUE(counts(q, "keys 0, failed 0"));
	/* the bucket retains no failures */
	ASSERT_EQ(1, fail(q, "b"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(0, q_stat(q).keys);
}

static int set_limiters(int q, int rounds)
{
	for (int i = 0; i < rounds; i++)
		if (i % 2 ? set_limiter(q, nested, ARRAY_SIZE(nested)) : set_limiter(q, NULL, 0))
			return 1;
	return 0;
}

TEST(set_of_the_limiter_while_keys_fail)
{
	int q = q_private(0);
	pid_t pid = child();

	if (!pid)
		_exit(set_limiters(q, 1000));
	for (int i = 0; alive(pid); i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i % 100);
		ASSERT_LE(0, fail(q, key));
		info_of(q, key);
		if (i % 7 == 0)
			q_key_state(q, WQ_DO_FORGET, key, strlen(key));
	}
	ASSERT_EQ(0, reap(pid));
}

/* ---- the lease ---- */

static __s64 lease_of(int q, const char *key)
{
	return info_of(q, key).lease;
}

TEST(set_of_the_lease_leaves_running_leases_as_they_are)
{
	int q = q_open_lease("", 0, HOUR);
	struct item a, b, c;

	q_add(q, "a");
	q_add(q, "b");
	q_add(q, "c");
	ASSERT_EQ(0, q_get(q, &a, 0));
	ASSERT_EQ(0, set_lease(q, DAY));
	ASSERT_TRUE(within("lease", HOUR - MINUTE, HOUR, lease_of(q, "a")));
	ASSERT_EQ(0, q_get(q, &b, 0));
	ASSERT_TRUE(within("lease", DAY - HOUR, DAY, lease_of(q, "b")));
	/* a touch applies the new lease */
	ASSERT_EQ(0, q_touch(q, &a));
	ASSERT_TRUE(within("lease", DAY - HOUR, DAY, lease_of(q, "a")));

	/* no lease ends before one that ran at the change */
	ASSERT_EQ(0, set_lease(q, 20 * MS));
	ASSERT_EQ(0, q_get(q, &c, 0));
	ASSERT_TRUE(within("lease", DAY - HOUR, DAY, lease_of(q, "c")));
	ASSERT_EQ(0, q_done(q, &b));
	ASSERT_EQ(0, q_done(q, &c));
	/* the own former end does not count */
	ASSERT_EQ(0, q_touch(q, &a));
	ASSERT_TRUE(within("lease", 0, 20 * MS, lease_of(q, "a")) ||
		    q_stat(q).expired == 1);
	ASSERT_EVENTUALLY(q_stat(q).expired == 1);
	ASSERT_EQ(-ESTALE, q_done(q, &a));
	ASSERT_EQ(0, q_stat(q).processing);
}

TEST(set_of_the_lease_to_0_ends_leases_with_the_next_touch)
{
	int q = q_open_lease("", 0, HOUR);
	struct item a, b;

	q_add(q, "a");
	q_add(q, "b");
	ASSERT_EQ(0, q_get(q, &a, 0));
	ASSERT_EQ(0, set_lease(q, 0));
	ASSERT_EQ(0, q_stat(q).lease);
	ASSERT_TRUE(within("lease", HOUR - MINUTE, HOUR, lease_of(q, "a")));
	ASSERT_EQ(0, q_get(q, &b, 0));
	ASSERT_EQ(-1, lease_of(q, "b"));
	ASSERT_EQ(0, q_touch(q, &a));
	ASSERT_EQ(-1, lease_of(q, "a"));
	/* a key without a lease has none to restart */
	ASSERT_EQ(0, set_lease(q, HOUR));
	ASSERT_EQ(0, q_touch(q, &b));
	ASSERT_EQ(-1, lease_of(q, "b"));
	ASSERT_EQ(0, q_done(q, &a));
	ASSERT_EQ(0, q_done(q, &b));
	q_add(q, "c");
	ASSERT_EQ(0, q_get(q, &a, 0));
	ASSERT_TRUE(within("lease", HOUR - MINUTE, HOUR, lease_of(q, "c")));
}

TEST(set_of_the_lease_before_an_expiry_keeps_its_time)
{
	int q = q_open_lease("", 0, 200 * MS);
	__s64 start = now_ns();
	struct item it;

	q_add(q, "a");
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(0, set_lease(q, DAY));
	/* a waiter of another consumer gets it when the lease expires */
	ASSERT_EQ(0, q_get(q, &it, 15 * SEC));
	ASSERT_STREQ("a", it.key);
	ASSERT_LE(200 * MS, now_ns() - start);
	ASSERT_TRUE(within("lease", DAY - HOUR, DAY, lease_of(q, "a")));
}

TEST_HARNESS_MAIN
