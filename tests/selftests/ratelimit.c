// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limiters, retries and failed keys through /dev/wq. KUnit tests the limiters' arithmetic and the
 * rules of failed keys (tests/kunit/limiter.c, tests/kunit/add_rate_limited.c,
 * tests/kunit/done_with.c).
 *
 * Delays are hours, so that the limiter's delay can be read from the queue's next_due on a machine
 * of any speed.
 */
#include "wq_test.h"

/* In minutes: INT64_MAX ns are 292 years. */
#define FOR_EVER	(290LL * 365 * 24 * 60)

#define RATE_LIMITED	WQ_ADD_RATE_LIMITED
#define TAKE_LATEST	WQ_ADD_TAKE_LATEST

/* Limiters in the form of WQ_IOC_OPEN. */
#define EXPONENTIAL(b, m)	{ .kind = WQ_LIMITER_EXPONENTIAL, .base = (b), .max = (m) }
#define FAST_SLOW(f, s, k)	{ .kind = WQ_LIMITER_FAST_SLOW, .n = (k), .base = (f), .max = (s) }
#define BUCKET(r, k)		{ .kind = WQ_LIMITER_BUCKET, .n = (k), .rate = (r) }
#define MAX_OF(k)		{ .kind = WQ_LIMITER_MAX_OF, .n = (k) }
#define MAX_WAIT(m)		{ .kind = WQ_LIMITER_MAX_WAIT, .max = (m) }

/* One token an hour. */
#define HOURLY(burst)	BUCKET(277778, burst)

static struct wq_attrs opening(const char *name, const struct wq_limiter_spec *limiters, __u32 num)
{
	struct wq_attrs op = {
		.size = sizeof(op), .limiters = addr_of(limiters), .num_limiters = num,
	};

	if (name[0]) {
		strcpy(op.name, name);
		op.flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL;
		op.mode = 0600;
	}
	return op;
}

static int open_limited(const char *name, __u32 max_keys, const struct wq_limiter_spec *limiters)
{
	int fd = q_dev(O_RDWR), num = 0, ret;
	struct wq_attrs op;

	while (limiters[num].kind)
		num++;
	op = opening(name, limiters, num);
	op.max_keys = max_keys;
	ret = verb(fd, WQ_IOC_OPEN, &op);
	if (ret)
		close(fd);
	return ret ?: fd;
}

static int retry(int fd, const char *key)
{
	return q_add_flags(fd, key, 0, RATE_LIMITED);
}

/* Minutes until the next key is due, rounded up, because a test takes less than a minute. */
static __s64 due(int fd)
{
	struct wq_stat st = q_stat(fd);

	return st.delayed ? st.next_due / MINUTE + !!(st.next_due % MINUTE) : 0;
}

/* The minutes that the limiter gives the key, the only one in its queue. */
static __s64 minutes(int fd, const char *key)
{
	int ret = q_add_flags(fd, key, 0, RATE_LIMITED | TAKE_LATEST);

	return ret < 0 ? ret : due(fd);
}

static __s64 at_most_for_ever(__s64 minutes)
{
	return minutes > FOR_EVER ? FOR_EVER : minutes;
}

static int failures(int fd, const char *key)
{
	struct wq_key_op ks;

	return q_key_call(fd, WQ_DO_QUERY, key, strlen(key), &ks) ?: (int)ks.info.failures;
}

static int requeues(int fd, const char *key)
{
	struct wq_key_op ks;

	return q_key_call(fd, WQ_DO_QUERY, key, strlen(key), &ks) ?: (int)ks.info.num_requeues;
}

/* The state before the forget, or -errno. */
static int forget(int fd, const char *key)
{
	return q_key_state(fd, WQ_DO_FORGET, key, strlen(key));
}

/* The failures of the next key, as get returns them, or -errno. */
static int get_failed(int fd, struct item *it, __s64 timeout)
{
	union one one;
	struct array a = { .recs = &one, .room = sizeof(one) };
	int ret = q_get_array(fd, &a, 1, timeout);

	if (ret)
		return ret;
	it->token = one.rec.token;
	it->len = one.rec.len;
	memcpy(it->key, one.rec.key, it->len);
	it->key[it->len] = 0;
	return one.rec.failures;
}

static struct wq_rec *put_done(struct array *a, const struct item *it, __u16 flags, __s64 delay)
{
	struct wq_rec *rec = array_put(a, it->key, it->len, it->token);

	rec->flags = flags;
	rec->delay = delay;
	return rec;
}

/* The key's result or error. */
static int done_with(int fd, const struct item *it, __u16 flags, __s64 delay)
{
	struct array a = array_new(WQ_REC_SIZE(WQ_MAX_KEY));
	__s32 result = 4711;
	int ret;

	put_done(&a, it, flags, delay);
	a.results = &result;
	ret = q_done_array(fd, &a);
	free(a.recs);
	return ret ?: result;
}

static int done_get(int fd, struct array *a, struct array *next, __u32 most, __s64 timeout)
{
	struct wq_done done = {
		.size = sizeof(done),
		.flags = WQ_DONE_GET,
		.keys = { addr_of(a->recs), a->used, a->count },
		.results = addr_of(a->results),
		.next = { addr_of(next->recs), next->room, most },
		.timeout = timeout,
	};
	int ret = verb(fd, WQ_IOC_DONE, &done);
	bool got = !ret || (ret == -EFAULT && done.keys.count == a->count);

	a->count = done.keys.count;
	/* a get that fails with another error than EFAULT leaves these fields */
	next->used = got ? done.next.size : 0;
	next->count = got ? done.next.count : 0;
	return ret;
}

/* Adds a key and gets it; no other key is ready. */
static int hold(int fd, const char *key, struct item *it)
{
	int ret = q_add_flags(fd, key, 0, WQ_ADD_DROP_DELAY);

	if (ret < 0)
		return ret;
	return q_get(fd, it, 0) ?: strcmp(it->key, key) ? -EBADMSG : 0;
}

/* The key fails so often, and is known for that alone then. */
static int keep(int fd, const char *key, int times)
{
	struct item it;
	int ret = 0;

	while (ret >= 0 && times--)
		ret = retry(fd, key);
	return ret < 0 ? ret : hold(fd, key, &it) ?: q_done(fd, &it);
}

/* Gets keys a, b, c, ... that were not in the queue before. */
static int hold_letters(int fd, int n, struct item *its)
{
	for (int i = 0; i < n; i++) {
		int ret = hold(fd, (char[]){ 'a' + i, 0 }, &its[i]);

		if (ret)
			return ret;
	}
	return 0;
}

/* Relations between the statistics that hold in every state. */
static bool balanced(int fd)
{
	struct wq_stat st = q_stat(fd);

	if (!within("retained", 0, st.failed, st.retained) ||
	    !within("failed", 0, st.keys, st.failed) ||
	    !within("ready + processing + retained", 0, st.keys,
		    st.ready + st.processing + st.retained))
		return false;
	/* A delayed key may be ready or processing as well, so keys is no sum then. */
	if (!st.delayed && !st.dropped &&
	    !equal("keys", st.ready + st.processing + st.retained, st.keys))
		return false;
	return conserved(&st);
}

/* A named queue whose keys are retried after 1, 2, 4, ... hours. */
FIXTURE(hours) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(hours)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = open_limited(self->name, 0,
			       (struct wq_limiter_spec[]){ EXPONENTIAL(HOUR, 1000 * HOUR), {} });
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(hours)
{
	EXPECT_TRUE(balanced(self->q));
	q_unlink(self->name);
	close(self->q);
}

/* ---- delays of the limiters ---- */

TEST(limiters_of_each_kind_have_their_delays)
{
	static const struct {
		const char *what;
		struct wq_limiter_spec limiters[6];
		__s64 minutes[4];	/* after each failure of a key */
	} rows[] = {
		{ "exponential", { EXPONENTIAL(HOUR, 7 * HOUR / 2) }, { 60, 120, 210, 210 } },
		{ "base above the maximum", { EXPONENTIAL(HOUR, HOUR / 2) }, { 30, 30, 30, 30 } },
		{ "fast and slow", { FAST_SLOW(HOUR, 5 * HOUR, 2) }, { 60, 60, 300, 300 } },
		{ "always slow", { FAST_SLOW(HOUR, 5 * HOUR, 0) }, { 300, 300, 300, 300 } },
		{ "slow is shorter", { FAST_SLOW(5 * HOUR, HOUR, 1) }, { 300, 60, 60, 60 } },
		{ "bucket", { HOURLY(2) }, { 0, 0, 60, 120 } },
		{ "rate 0", { BUCKET(0, 2) }, { 0, 0, FOR_EVER, FOR_EVER } },
		/* as x/time/rate, whose Reserve can't be granted then */
		{ "burst 0", { BUCKET(WQ_QPS(1000), 0) },
		  { FOR_EVER, FOR_EVER, FOR_EVER, FOR_EVER } },
		/* fast, slow and 2 h, slow and the first debt, and the second debt */
		{ "max_of", { MAX_OF(3), EXPONENTIAL(HOUR, 100 * HOUR), FAST_SLOW(3 * HOUR, SEC, 1),
			      BUCKET(27778, 2) }, { 180, 120, 600, 1200 } },
		{ "max_of one", { MAX_OF(1), EXPONENTIAL(HOUR, HOUR) }, { 60, 60, 60, 60 } },
		{ "max_wait", { MAX_WAIT(3 * HOUR), EXPONENTIAL(HOUR, 100 * HOUR) },
		  { 60, 120, 180, 180 } },
		{ "max_wait of 0", { MAX_WAIT(0), EXPONENTIAL(HOUR, HOUR) }, { 0, 0, 0, 0 } },
		{ "max_wait around max_of",
		  { MAX_WAIT(5 * HOUR), MAX_OF(3), EXPONENTIAL(HOUR, 100 * HOUR),
		    FAST_SLOW(3 * HOUR, SEC, 1), BUCKET(27778, 2) }, { 180, 120, 300, 300 } },
		{ "max_wait around one limiter of a max_of",
		  { MAX_OF(2), MAX_WAIT(2 * HOUR), EXPONENTIAL(HOUR, 100 * HOUR),
		    FAST_SLOW(HOUR / 2, 3 * HOUR, 3) }, { 60, 120, 120, 180 } },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		int q = open_limited("", 0, rows[i].limiters);

		for (int n = 0; n < 4; n++) {
			__s64 seen = at_most_for_ever(minutes(q, "a"));

			EXPECT_EQ(rows[i].minutes[n], seen) {
				TH_LOG("%s: failure %d", rows[i].what, n + 1);
			}
		}
		close(q);
	}
}

/* The other attributes of the shorter struct are not read. */
TEST(limiter_default_is_max_of_exponential_and_bucket)
{
	for (int shorter = 0; shorter < 2; shorter++) {
		struct wq_attrs op = { .size = sizeof(op) };
		int q = q_dev(O_RDWR);

		if (shorter) {
			op.size = offsetof(struct wq_attrs, limiters);
			memset((char *)&op + op.size, 0x5a, sizeof(op) - op.size);
		}
		ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &op));
		/* 5 ms doubled 16 times, and then the maximum of 1000 s */
		for (int i = 0; i < 16; i++)
			minutes(q, "a");
		ASSERT_EQ(6, minutes(q, "a"));
		for (int i = 0; i < 5; i++)
			minutes(q, "a");
		ASSERT_EQ(17, minutes(q, "a"));
		/* a key that is forgotten each time has just the debt: 100 s after 1,100 */
		ASSERT_LE(0, q_cancel(q, "a"));
		for (int i = 0; i < 1077; i++) {
			q_add_flags(q, "b", 0, RATE_LIMITED | TAKE_LATEST);
			forget(q, "b");
		}
		ASSERT_GE(100 * SEC, q_stat(q).next_due);
		ASSERT_LT(60 * SEC, q_stat(q).next_due);
		close(q);
	}
}

/* ---- limiters that are refused ---- */

struct refused {
	int error;
	int num;
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS + 1];
};

static const struct refused refused[] = {
	/* unknown kinds */
	{ -EINVAL, 1, { { .kind = 0 } } },
	{ -EINVAL, 1, { { .kind = 6, .base = 1, .max = 1 } } },
	{ -EINVAL, 1, { { .kind = 0xffffffff } } },
	{ -EINVAL, 3, { MAX_OF(2), EXPONENTIAL(1, 2), { .kind = 6 } } },
	/* numbers out of their range */
	{ -ERANGE, 1, { EXPONENTIAL(-1, 1) } },
	{ -ERANGE, 1, { EXPONENTIAL(1, -1) } },
	{ -ERANGE, 1, { EXPONENTIAL(INT64_MIN, 1) } },
	{ -ERANGE, 1, { FAST_SLOW(-1, 1, 1) } },
	{ -ERANGE, 1, { FAST_SLOW(1, -1, 1) } },
	{ -ERANGE, 2, { MAX_WAIT(-1), EXPONENTIAL(1, 2) } },
	{ -ERANGE, 2, { MAX_WAIT(INT64_MIN), EXPONENTIAL(1, 2) } },
	{ -ERANGE, 1, { BUCKET(1ULL << 63, 1) } },
	{ -ERANGE, 1, { BUCKET(~0ULL, 1) } },
	{ -ERANGE, 1, { BUCKET(1, 10) } },		/* 10^19 ns to fill it */
	{ -ERANGE, 1, { BUCKET(1, 0xffffffff) } },
	{ -ERANGE, 3, { MAX_OF(2), EXPONENTIAL(1, 2), EXPONENTIAL(1, -2) } },
	/* fields that the kind has no use for */
	{ -EINVAL, 1, { { .kind = WQ_LIMITER_EXPONENTIAL, .n = 1, .base = 1, .max = 1 } } },
	{ -EINVAL, 1, { { .kind = WQ_LIMITER_EXPONENTIAL, .rate = 1, .base = 1, .max = 1 } } },
	{ -EINVAL, 1,
	  { { .kind = WQ_LIMITER_FAST_SLOW, .n = 1, .base = 1, .max = 1, .rate = 1 } } },
	{ -EINVAL, 1, { { .kind = WQ_LIMITER_BUCKET, .n = 1, .rate = 1, .base = 1 } } },
	{ -EINVAL, 1, { { .kind = WQ_LIMITER_BUCKET, .n = 1, .rate = 1, .max = 1 } } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_OF, .n = 1, .base = 1 }, EXPONENTIAL(1, 2) } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_OF, .n = 1, .max = 1 }, EXPONENTIAL(1, 2) } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_OF, .n = 1, .rate = 1 }, EXPONENTIAL(1, 2) } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_WAIT, .max = 1, .n = 1 }, EXPONENTIAL(1, 2) } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_WAIT, .max = 1, .base = 1 }, EXPONENTIAL(1, 2) } },
	{ -EINVAL, 2, { { .kind = WQ_LIMITER_MAX_WAIT, .max = 1, .rate = 1 }, EXPONENTIAL(1, 2) } },
	/* fewer limiters than they contain, or more */
	{ -EINVAL, 1, { MAX_OF(0) } },
	{ -EINVAL, 2, { MAX_OF(0), EXPONENTIAL(1, 2) } },
	{ -EINVAL, 1, { MAX_OF(1) } },
	{ -EINVAL, 2, { MAX_OF(2), EXPONENTIAL(1, 2) } },
	{ -EINVAL, 3, { MAX_OF(4), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2) } },
	{ -EINVAL, 1, { MAX_WAIT(1) } },
	{ -EINVAL, 2, { MAX_OF(1), MAX_WAIT(1) } },
	{ -EINVAL, 2, { EXPONENTIAL(1, 2), EXPONENTIAL(1, 2) } },
	{ -EINVAL, 3, { MAX_OF(1), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2) } },
	{ -EINVAL, 3, { MAX_WAIT(1), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2) } },
	/* nested too deep */
	{ -EINVAL, 6, { MAX_WAIT(1), MAX_WAIT(1), MAX_WAIT(1), MAX_WAIT(1), MAX_WAIT(1),
			EXPONENTIAL(1, 2) } },
	{ -EINVAL, 6, { MAX_OF(1), MAX_OF(1), MAX_OF(1), MAX_OF(1), MAX_OF(1),
			EXPONENTIAL(1, 2) } },
	{ -EINVAL, 8, { MAX_OF(3), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), MAX_WAIT(1), MAX_WAIT(1),
			MAX_WAIT(1), MAX_WAIT(1), EXPONENTIAL(1, 2) } },
	/* too many, even if they are at that address */
	{ -E2BIG, 2, { MAX_OF(0xffffffff), EXPONENTIAL(1, 2) } },
	{ -E2BIG, WQ_MAX_LIMITERS + 1, { MAX_OF(WQ_MAX_LIMITERS),
		EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2),
		EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2),
		EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2),
		EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2), EXPONENTIAL(1, 2) } },
};

TEST(open_with_bad_limiters_fails_and_creates_no_queue)
{
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(refused); i++) {
		const struct refused *r = &refused[i];
		struct wq_attrs named = opening("refused", r->limiters, r->num);
		struct wq_attrs private = opening("", r->limiters, r->num);

		ASSERT_EQ(r->error, verb(fd, WQ_IOC_OPEN, &named)) {
			TH_LOG("limiters number %d, the first of kind %u", i, r->limiters[0].kind);
		}
		ASSERT_EQ(-ENOENT, q_unlink("refused"));
		ASSERT_EQ(r->error, verb(fd, WQ_IOC_OPEN, &private));
		ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	}
	ASSERT_EQ(0, q_bind(fd, "", 0, 0, 0));
	ASSERT_EQ(1, q_add(fd, "a"));
}

TEST(open_with_limiters_at_their_bounds_works)
{
	static const struct {
		struct wq_limiter_spec limiters[WQ_MAX_LIMITERS + 1];
		__s64 minutes[2];
	} rows[] = {
		{ { MAX_WAIT(9 * HOUR), MAX_WAIT(4 * HOUR), MAX_WAIT(5 * HOUR), MAX_WAIT(9 * HOUR),
		    EXPONENTIAL(3 * HOUR, 9 * HOUR) }, { 180, 240 } },
		/* depth is that of one, not of all together */
		{ { MAX_OF(5), MAX_WAIT(HOUR), MAX_WAIT(HOUR), EXPONENTIAL(1, 2),
		    MAX_WAIT(HOUR), MAX_WAIT(HOUR), EXPONENTIAL(1, 2),
		    MAX_WAIT(HOUR), MAX_WAIT(HOUR), EXPONENTIAL(1, 2),
		    MAX_WAIT(HOUR), MAX_WAIT(HOUR), EXPONENTIAL(1, 2),
		    MAX_WAIT(2 * HOUR), MAX_WAIT(2 * HOUR), EXPONENTIAL(9 * HOUR, 9 * HOUR) },
		  { 120, 120 } },
		/* a time to fill of 9 * 10^18 ns, and the largest burst at the highest rate */
		{ { BUCKET(1, 9) }, { 0, 0 } },
		{ { BUCKET(INT64_MAX, 0xffffffff) }, { 0, 0 } },
		{ { BUCKET(0, 0xffffffff) }, { 0, 0 } },
		{ { EXPONENTIAL(INT64_MAX, INT64_MAX) }, { FOR_EVER, FOR_EVER } },
		{ { FAST_SLOW(INT64_MAX, INT64_MAX, 0xffffffff) }, { FOR_EVER, FOR_EVER } },
		{ { MAX_WAIT(INT64_MAX), EXPONENTIAL(0, 0) }, { 0, 0 } },
	};
	struct wq_limiter_spec many[WQ_MAX_LIMITERS + 1] = { MAX_OF(WQ_MAX_LIMITERS - 1) };

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		int q = open_limited("", 0, rows[i].limiters);

		ASSERT_LE(0, q);
		for (int n = 0; n < 2; n++) {
			__s64 seen = at_most_for_ever(minutes(q, "a"));

			EXPECT_EQ(rows[i].minutes[n], seen) {
				TH_LOG("limiters number %d: failure %d", i, n + 1);
			}
		}
		close(q);
	}
	for (int i = 1; i < WQ_MAX_LIMITERS; i++)
		many[i] = (struct wq_limiter_spec)EXPONENTIAL(i * HOUR, i * HOUR);
	ASSERT_EQ(15 * 60, minutes(open_limited("", 0, many), "a"));
}

TEST(open_with_limiters_at_a_bad_address_fails_with_EFAULT)
{
	struct wq_limiter_spec *part = edge(sizeof(*part));
	void *bad[] = { NULL, edge(0), edge(sizeof(*part) - 8), (void *)-4096L, part };
	struct wq_limiter_spec whole[] = { MAX_OF(1), EXPONENTIAL(1, 2) };
	int fd = q_dev(O_RDWR);

	*part = whole[0];
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_attrs op = opening("no-limits", bad[i], 2);

		ASSERT_EQ(-EFAULT, verb(fd, WQ_IOC_OPEN, &op));
		ASSERT_EQ(-ENOENT, q_unlink("no-limits"));
		ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	}
	ASSERT_EQ(0, q_bind(fd, "", 0, 0, 0));
}

TEST(open_with_too_many_limiters_fails_with_E2BIG)
{
	static const __u32 num[] = { WQ_MAX_LIMITERS + 1, 1 << 27, 0x80000000, 0xffffffff };
	static const struct wq_limiter_spec one[] = { EXPONENTIAL(1, 2) };
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(num); i++) {
		struct wq_attrs op = opening("", one, num[i]);

		ASSERT_EQ(-E2BIG, verb(fd, WQ_IOC_OPEN, &op));
	}
	ASSERT_EQ(0, q_bind(fd, "", 0, 0, 0));
}

TEST(open_with_an_attribute_that_can_only_be_changed_fails_with_EINVAL)
{
	static const struct wq_attrs bad[] = { { .set = 1 }, { .uid = 1 }, { .gid = 1 } };
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_attrs op = bad[i];

		op.size = sizeof(op);
		EXPECT_EQ(-EINVAL, verb(fd, WQ_IOC_OPEN, &op));
		EXPECT_EQ(-ENOTCONN, q_shutdown(fd));
	}
	ASSERT_EQ(0, q_bind(fd, "", 0, 0, 0));
}

/* Binds files that root opened, as a user without files and privileges. */
static int charge_check(const int *fds, const struct wq_info *info)
{
	struct wq_attrs op;

	if (setresuid(54321, 54321, 54321))
		return 101;
	for (int n = 0; n < 2000; n++) {
		const struct refused *r = &refused[n % ARRAY_SIZE(refused)];

		op = opening(n % 2 ? "refused" : "", r->limiters, r->num);
		op.max_keys = info->user_keys;
		if (verb(fds[0], WQ_IOC_OPEN, &op) != r->error)
			return 102;
	}
	/* all that the user may have, and then nothing more */
	if (q_bind(fds[0], "", 0, 0, info->user_keys))
		return 103;
	return q_bind(fds[1], "", 0, 0, 1) == -ENOSPC ? 0 : 104;
}

TEST(open_with_bad_limiters_charges_no_quota)
{
	int fds[] = { q_dev(O_RDWR), q_dev(O_RDWR) };
	struct wq_info info;
	pid_t pid;

	ASSERT_EQ(0, q_info(fds[0], &info));
	if (info.user_keys > info.max_keys)
		SKIP(return, "a user may have more keys than a queue");
	pid = child();
	if (!pid)
		_exit(charge_check(fds, &info));
	ASSERT_EQ(0, reap(pid));
}

TEST(open_that_attaches_leaves_the_limiter_and_the_lease)
{
	static const struct wq_limiter_spec hour[] = { EXPONENTIAL(HOUR, HOUR) };
	static const struct wq_limiter_spec day[] = { EXPONENTIAL(24 * HOUR, 24 * HOUR) };
	static const struct wq_limiter_spec bad[] = { EXPONENTIAL(-1, 1) };
	struct wq_attrs op = opening("limits-stay", hour, 1);
	int a = q_dev(O_RDWR), b = q_dev(O_RDWR);

	op.lease = HOUR;
	ASSERT_EQ(0, verb(a, WQ_IOC_OPEN, &op));
	op = opening("limits-stay", day, 1);
	op.lease = 24 * HOUR;
	EXPECT_EQ(-EEXIST, verb(b, WQ_IOC_OPEN, &op));
	/* checked, though not used */
	for (int flags = 0; flags <= WQ_OPEN_CREATE; flags += WQ_OPEN_CREATE) {
		op.flags = flags;
		op.limiters = addr_of(bad);
		EXPECT_EQ(-ERANGE, verb(b, WQ_IOC_OPEN, &op));
		op.limiters = 0;
		EXPECT_EQ(-EFAULT, verb(b, WQ_IOC_OPEN, &op));
		EXPECT_EQ(-ENOTCONN, q_shutdown(b));
	}
	/* another one than the queue's, which must be accepted */
	op.limiters = addr_of(day);
	EXPECT_EQ(-EEXIST, verb(b, WQ_IOC_OPEN, &op));
	op.flags |= WQ_OPEN_ACCEPT;
	EXPECT_EQ(0, verb(b, WQ_IOC_OPEN, &op));
	EXPECT_EQ(60, minutes(b, "a"));
	EXPECT_EQ(HOUR, q_stat(a).lease);
	EXPECT_EQ(HOUR, q_stat(b).lease);
	EXPECT_EQ(0, q_unlink("limits-stay"));
}

/* ---- callers that know nothing of all this ---- */

TEST_F(hours, done_with_a_shorter_struct_has_outcomes_and_no_get)
{
	union one one;
	struct wq_done done;
	struct item it;

	ASSERT_EQ(0, hold(self->q, "a", &it));
	q_add(self->q, "b");
	rec_set(&one, "a", 1, it.token)->flags = WQ_OUTCOME_RETRY;
	memset(&done, 0x5a, sizeof(done));
	done.size = offsetof(struct wq_done, next);
	done.flags = 0;
	done.keys = (struct wq_keys){ addr_of(&one), WQ_REC_SIZE(1), 1 };
	done.results = 0;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &done));
	ASSERT_EQ(1, done.keys.count);
	ASSERT_EQ(0x5a5a5a5a5a5a5a5aLL, done.timeout);
	ASSERT_EQ(60, due(self->q));
	ASSERT_EQ(1, q_stat(self->q).ready);
}

/* ---- add ---- */

TEST_F(hours, add_rate_limited_delays_and_counts_a_failure_and_a_retry)
{
	ASSERT_EQ(1, retry(self->q, "a"));
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, q_query(self->q, "a"));
	ASSERT_EQ(60, due(self->q));
	ASSERT_EQ(1, failures(self->q, "a"));
	ASSERT_EQ(1, requeues(self->q, "a"));
	ASSERT_TRUE(counts(self->q, "retries 1, failed 1, retained 0, adds 0"));
}

TEST_F(hours, add_rate_limited_works_with_KEEP_FIRST_and_TAKE_LATEST)
{
	retry(self->q, "a");
	ASSERT_EQ(0, q_add_flags(self->q, "a", 0, RATE_LIMITED | TAKE_LATEST));
	ASSERT_EQ(120, due(self->q));
	q_add_flags(self->q, "b", 3 * HOUR, 0);
	ASSERT_EQ(0, q_add_flags(self->q, "b", 0, RATE_LIMITED | WQ_ADD_KEEP_FIRST));
	ASSERT_EQ(1, failures(self->q, "b"));
	q_cancel(self->q, "a");
	ASSERT_EQ(180, due(self->q));
}

TEST_F(hours, add_rate_limited_array_delays_each_key_by_its_own_failures)
{
	static const int expected[] = { 1, 1, 0, 0 };
	struct array a = array_new(4096);
	__s32 results[ARRAY_SIZE(expected)];

	ASSERT_EQ(0, keep(self->q, "old", 3));
	array_putf(&a, "old")->flags = RATE_LIMITED;
	/* a key counts as often as it is there */
	for (int i = 0; i < 3; i++)
		array_putf(&a, "new")->flags = RATE_LIMITED | TAKE_LATEST;
	a.results = results;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_TRUE(equal_bytes("results", expected, results, sizeof(expected)));
	ASSERT_EQ(4, failures(self->q, "old"));
	ASSERT_EQ(3, failures(self->q, "new"));
	ASSERT_EQ(240, due(self->q));
	q_cancel(self->q, "new");
	ASSERT_EQ(480, due(self->q));
	free(a.recs);
}

TEST_F(hours, add_rate_limited_with_delay_or_DROP_DELAY_fails_with_EINVAL)
{
	static const struct {
		__s64 delay;
		__u16 flags;
	} bad[] = {
		{ 1, RATE_LIMITED }, { -1, RATE_LIMITED }, { INT64_MIN, RATE_LIMITED },
		{ HOUR, RATE_LIMITED | TAKE_LATEST }, { 0, RATE_LIMITED | WQ_ADD_DROP_DELAY },
		{ 0, RATE_LIMITED | TAKE_LATEST | WQ_ADD_KEEP_FIRST },
		{ 0, RATE_LIMITED | TAKE_LATEST | WQ_ADD_DROP_DELAY },
		{ 0, RATE_LIMITED | WQ_ADD_COALESCE }, { 0, 1 << 6 }, { 0, 1 << 15 },
	};
	struct wq_stat before;

	keep(self->q, "a", 1);
	before = q_stat(self->q);
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(-EINVAL, q_add_flags(self->q, "a", bad[i].delay, bad[i].flags)) {
			TH_LOG("flags %#x", bad[i].flags);
		}
		ASSERT_EQ(-EINVAL, q_add_flags(self->q, "b", bad[i].delay, bad[i].flags));
	}
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(1, failures(self->q, "a"));
}

/* ---- get ---- */

/* done accepts a record as get returned it, which for a failed key includes its failures. */
TEST_F(hours, get_returns_the_failures_of_a_key_and_done_accepts_its_array)
{
	struct array a = array_new(4096);

	retry(self->q, "twice");
	retry(self->q, "twice");
	q_add(self->q, "never");
	q_add(self->q, "twice");
	ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(2, a.count);
	ASSERT_EQ(0, rec_at(&a, 0)->failures);
	ASSERT_EQ(2, rec_at(&a, 1)->failures);
	ASSERT_EQ(0, rec_at(&a, 1)->flags);
	ASSERT_EQ(0, rec_at(&a, 1)->delay);
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(2, a.count);
	ASSERT_TRUE(counts(self->q, "held 0, ready 0"));
	free(a.recs);
}

/* ---- done ---- */

#define FAILED_DELAYED	(WQ_KEY_FAILED | WQ_KEY_DELAYED)
#define FAILED_READY	(WQ_KEY_FAILED | WQ_KEY_READY | WQ_KEY_DIRTY)

/* Each outcome of a key that failed twice before, and is added during the run or not. */
TEST_F(hours, done_has_each_outcome_for_a_clean_and_a_dirty_key)
{
	static const struct {
		const char *what;
		__u16 flags;
		__s64 delay;
		int result, state, failures;	/* of a key that is not dirty */
		__s64 minutes;
	} rows[] = {
		{ "none", 0, 0, 0, WQ_KEY_FAILED, 2, 0 },
		{ "FORGET", WQ_OUTCOME_FORGET, 0, 0, -ENOENT, -ENOENT, 0 },
		{ "RETRY", WQ_OUTCOME_RETRY, 0, WQ_RESULT_DELAYED, FAILED_DELAYED, 3, 240 },
		{ "AFTER 3 h", WQ_OUTCOME_AFTER, 3 * HOUR, WQ_RESULT_DELAYED, FAILED_DELAYED,
		  2, 180 },
		{ "AFTER for ever", WQ_OUTCOME_AFTER, INT64_MAX, WQ_RESULT_DELAYED, FAILED_DELAYED,
		  2, FOR_EVER },
		{ "AFTER 0", WQ_OUTCOME_AFTER, 0, WQ_RESULT_READY, FAILED_READY, 2, 0 },
		{ "AFTER < 0", WQ_OUTCOME_AFTER, INT64_MIN, WQ_RESULT_READY, FAILED_READY, 2, 0 },
		{ "AFTER and FORGET", WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET, 3 * HOUR,
		  WQ_RESULT_DELAYED, WQ_KEY_DELAYED, 0, 180 },
	};
	struct item it;

	for (int i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
		int row = i / 2, dirty = i % 2, result = rows[row].result;
		int state = rows[row].state, failed = rows[row].failures;
		const char *what = rows[row].what;

		if (dirty) {
			result |= WQ_RESULT_READY;
			state = (state < 0 ? 0 : state) | WQ_KEY_READY | WQ_KEY_DIRTY;
			failed = failed < 0 ? 0 : failed;
		}
		ASSERT_EQ(0, keep(self->q, "a", 2));
		ASSERT_EQ(0, hold(self->q, "a", &it));
		if (dirty)
			ASSERT_EQ(1, q_add(self->q, "a"));
		EXPECT_TRUE(equal(what, result,
				  done_with(self->q, &it, rows[row].flags, rows[row].delay)));
		EXPECT_TRUE(equal(what, state, q_query(self->q, "a")));
		EXPECT_TRUE(equal(what, failed, failures(self->q, "a")));
		EXPECT_TRUE(equal(what, rows[row].minutes, at_most_for_ever(due(self->q))));
		q_cancel(self->q, "a");
		ASSERT_TRUE(counts(self->q, "keys 0, processing 0, failed 0"));
	}
}

TEST_F(hours, done_array_has_an_outcome_for_each_key)
{
	static const struct {
		int key;		/* number of the key that is held; the last is unknown */
		__u16 flags;
		__s64 delay;
		__s32 result;
	} rows[] = {
		{ 0, 0, 0, 0 },
		{ 1, WQ_OUTCOME_FORGET, 0, 0 },
		{ 2, WQ_OUTCOME_RETRY, 0, WQ_RESULT_DELAYED },
		{ 3, WQ_OUTCOME_AFTER, 5 * HOUR, WQ_RESULT_DELAYED },
		{ 4, WQ_OUTCOME_AFTER, 0, WQ_RESULT_READY },
		{ 5, WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY, 0, -EINVAL },
		{ 6, WQ_OUTCOME_RETRY, 0, WQ_RESULT_READY | WQ_RESULT_DELAYED },
		{ 7, WQ_OUTCOME_RETRY, 0, -ENOENT },
		{ 0, WQ_OUTCOME_RETRY, 0, -ESTALE },
	};
	struct item its[8] = { [7] = { .len = 4, .key = "none" } };
	struct array a = array_new(4096);
	__s32 results[ARRAY_SIZE(rows)];

	ASSERT_EQ(0, hold_letters(self->q, 7, its));
	q_add(self->q, "g");
	for (int i = 0; i < ARRAY_SIZE(rows); i++)
		put_done(&a, &its[rows[i].key], rows[i].flags, rows[i].delay);
	a.results = results;
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(ARRAY_SIZE(rows), a.count);
	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		EXPECT_EQ(rows[i].result, results[i]) {
			TH_LOG("record %d", i);
		}
	}
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "b"));
	ASSERT_EQ(1, failures(self->q, "c"));
	ASSERT_EQ(0, failures(self->q, "d"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "f"));
	ASSERT_TRUE(counts(self->q, "held 1, retries 4"));
	ASSERT_EQ(0, q_done(self->q, &its[5]));
	free(a.recs);
}

TEST_F(hours, done_RETRY_large_array_delays_each_key_by_its_own_failures)
{
	enum { KEYS = 200 };
	struct array a = array_new(1 << 16), got = array_new(1 << 16);
	__s32 results[KEYS];

	/* the key number i failed i % 3 times before */
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < KEYS; i++)
			if (i % 3 > round)
				array_putf(&a, "%03d", i)->flags = RATE_LIMITED;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	array_reset(&a);
	for (int i = 0; i < KEYS; i++)
		array_putf(&a, "%03d", i)->flags = WQ_ADD_DROP_DELAY;
	ASSERT_EQ(0, q_add_array(self->q, &a));

	ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(KEYS, got.count);
	array_reset(&a);
	for (struct wq_rec *rec = got.recs; a.count < KEYS; rec = rec_next(rec)) {
		int i = a.count;

		ASSERT_EQ(i % 3, rec->failures);
		array_put(&a, rec->key, rec->len, rec->token)->flags = WQ_OUTCOME_RETRY;
	}
	a.results = results;
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(KEYS, a.count);
	for (int i = 0; i < KEYS; i++)
		ASSERT_EQ(WQ_RESULT_DELAYED, results[i]);
	for (int n = 0; n < 3; n++) {
		ASSERT_EQ(60 << n, due(self->q));
		for (int i = n; i < KEYS; i += 3) {
			char key[8];

			snprintf(key, sizeof(key), "%03d", i);
			ASSERT_EQ(n + 1, failures(self->q, key));
			ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, q_cancel(self->q, key));
		}
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
	free(a.recs);
	free(got.recs);
}

TEST_F(hours, done_with_contradicting_outcomes_fails_and_leaves_the_key_held)
{
	static const struct {
		__u16 flags;
		__s64 delay;
	} bad[] = {
		{ WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, 0 },
		{ WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, HOUR },
		{ WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY | WQ_OUTCOME_AFTER, HOUR },
		{ 0, 1 }, { 0, -1 }, { WQ_OUTCOME_FORGET, 1 }, { WQ_OUTCOME_RETRY, 1 },
		{ WQ_OUTCOME_RETRY, INT64_MIN }, { 1 << 5, 0 }, { WQ_OUTCOME_RETRY | 1 << 5, 0 },
		{ 1 << 15, 0 }, { WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_RETRY, 0 },
		{ WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_FORGET | WQ_OUTCOME_AFTER, 0 },
		{ WQ_OUTCOME_GIVE_UP | WQ_OUTCOME_AFTER, 1 }, { WQ_OUTCOME_GIVE_UP, 1 },
	};
	struct wq_stat before;
	struct item it;

	ASSERT_EQ(0, keep(self->q, "a", 1));
	ASSERT_EQ(0, hold(self->q, "a", &it));
	before = q_stat(self->q);
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(-EINVAL, done_with(self->q, &it, bad[i].flags, bad[i].delay)) {
			TH_LOG("flags %#x delay %lld", bad[i].flags, bad[i].delay);
		}
	}
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE | WQ_KEY_FAILED, q_query(self->q, "a"));
	ASSERT_EQ(1, failures(self->q, "a"));
	ASSERT_EQ(0, done_with(self->q, &it, WQ_OUTCOME_FORGET, 0));
}

/* ---- done_get ---- */

TEST_F(hours, done_get_returns_the_next_keys)
{
	struct array a = array_new(4096), next = array_new(4096);
	struct item it;
	struct wq_rec *rec;

	ASSERT_EQ(0, hold(self->q, "a", &it));
	retry(self->q, "b");
	q_add(self->q, "b");
	q_add(self->q, "c");
	q_add(self->q, "d");
	put_done(&a, &it, WQ_OUTCOME_RETRY, 0);
	ASSERT_EQ(0, done_get(self->q, &a, &next, 2, 0));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(2, next.count);
	ASSERT_EQ(2 * WQ_REC_SIZE(1), next.used);
	rec = rec_at(&next, 0);
	ASSERT_EQ('b', rec->key[0]);
	ASSERT_EQ(1, rec->failures);
	rec = rec_at(&next, 1);
	ASSERT_EQ('c', rec->key[0]);
	ASSERT_EQ(0, rec->failures);
	ASSERT_TRUE(counts(self->q, "held 2, ready 1"));
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, q_query(self->q, "a"));
	/* they are got as by a get */
	ASSERT_EQ(0, q_donen(self->q, "c", 1, rec->token));
	free(a.recs);
	free(next.recs);
}

TEST_F(hours, done_get_works_in_one_buffer_and_with_an_empty_array)
{
	struct array a = array_new(4096);

	for (int i = 0; i < 100; i++)
		array_putf(&a, "%02d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	array_reset(&a);
	for (int i = 0; i < 100; i += 10) {
		struct array next = a;

		ASSERT_EQ(0, done_get(self->q, &a, &next, 10, FOREVER));
		ASSERT_EQ(i ? 10 : 0, a.count);
		ASSERT_EQ(10, next.count);
		ASSERT_EQ('0' + i / 10, rec_at(&next, 9)->key[0]);
		ASSERT_EQ(i, q_stat(self->q).dones);
		a = next;
	}
	ASSERT_EQ(10, q_stat(self->q).keys);
	free(a.recs);
}

TEST_F(hours, done_get_EFAULT_gives_back_the_next_keys_and_keeps_the_done)
{
	const struct {
		void *next;
		__u32 fit;		/* keys that were got before the error */
	} rows[] = {
		{ NULL, 0 }, { edge(0), 0 }, { (void *)-4096L, 0 }, { edge(WQ_REC_SIZE(1)), 1 },
	};
	struct array a = array_new(4096), next;
	__u64 given_back = 0;
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		ASSERT_EQ(0, hold(self->q, "a", &it));
		q_add(self->q, "b");
		q_add(self->q, "c");
		array_reset(&a);
		put_done(&a, &it, 0, 0);
		next = (struct array){ .recs = rows[i].next, .room = 4096 };
		ASSERT_EQ(-EFAULT, done_get(self->q, &a, &next, 0, 0));
		ASSERT_EQ(1, a.count);
		ASSERT_EQ(rows[i].fit, next.count);
		ASSERT_EQ(rows[i].fit * WQ_REC_SIZE(1), next.used);
		ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
		ASSERT_EQ(rows[i].fit, q_stat(self->q).held);
		given_back += 2 - rows[i].fit;
		ASSERT_EQ(given_back, q_stat(self->q).given_back);
		if (rows[i].fit) {
			ASSERT_EQ('b', rec_at(&next, 0)->key[0]);
			ASSERT_EQ(0, q_donen(self->q, "b", 1, rec_at(&next, 0)->token));
		}
		/* at the head, in their order, and no failure */
		q_add(self->q, "d");
		for (int j = rows[i].fit; j < 3; j++) {
			ASSERT_EQ(0, get_failed(self->q, &it, 0));
			ASSERT_EQ('b' + j, it.key[0]);
			ASSERT_EQ(0, q_done(self->q, &it));
		}
	}
	free(a.recs);
}

TEST_F(hours, done_get_EFAULT_on_the_struct_loses_no_key)
{
	struct array a = array_new(4096), next = array_new(4096);
	struct wq_done done = { .size = sizeof(done), .flags = WQ_DONE_GET };
	struct item it;

	ASSERT_EQ(0, hold(self->q, "a", &it));
	put_done(&a, &it, 0, 0);
	q_add(self->q, "b");
	done.keys = (struct wq_keys){ addr_of(a.recs), a.used, 1 };
	done.next = (struct wq_keys){ addr_of(next.recs), next.room, 0 };
	ASSERT_EQ(-EFAULT, verb(self->q, WQ_IOC_DONE, read_only(&done, sizeof(done))));
	ASSERT_TRUE(counts(self->q, "held 0, ready 1, dones 1"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "b"));
	free(a.recs);
	free(next.recs);
}

TEST_F(hours, done_get_gets_nothing_if_done_fails_without_results)
{
	struct array a = array_new(4096), next = array_new(4096);
	__s32 results[3], expected[] = { WQ_RESULT_DELAYED, -ENOENT, -EINVAL };
	struct item its[2], none = { .len = 4, .key = "none" };

	for (int with = 0; with < 2; with++) {
		ASSERT_EQ(0, hold_letters(self->q, 2, its));
		q_add(self->q, "next");
		array_reset(&a);
		put_done(&a, &its[0], WQ_OUTCOME_AFTER, HOUR);
		put_done(&a, &none, 0, 0);
		put_done(&a, &its[1], WQ_OUTCOME_FORGET | WQ_OUTCOME_RETRY, 0);
		a.results = with ? results : NULL;
		ASSERT_EQ(with ? 0 : -ENOENT, done_get(self->q, &a, &next, 5, with ? 0 : FOREVER));
		ASSERT_EQ(with ? 3 : 1, a.count);
		ASSERT_EQ(with, next.count);
		ASSERT_EQ(1 + with, q_stat(self->q).held);
		ASSERT_EQ(!with, q_stat(self->q).ready);
		ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "b"));
		if (with)
			ASSERT_TRUE(equal_bytes("results", expected, results, sizeof(results)));
		ASSERT_EQ(0, q_done(self->q, &its[1]));
		q_cancel(self->q, "next");
	}
	free(a.recs);
	free(next.recs);
}

/* A done of one key, in shared memory, that a child waits in. */
struct waiting {
	struct wq_done done;
	union one key, next;
};

static struct waiting *waiting_done(const struct item *it, __s64 timeout)
{
	struct waiting *w = shared(sizeof(*w));

	rec_set(&w->key, it->key, it->len, it->token)->flags = WQ_OUTCOME_RETRY;
	w->done = (struct wq_done){
		.size = sizeof(w->done), .flags = WQ_DONE_GET,
		.keys = { addr_of(&w->key), WQ_REC_SIZE(it->len), 1 },
		.next = { addr_of(&w->next), sizeof(w->next), 1 },
		.timeout = timeout,
	};
	return w;
}

/* Sends the signal; a SIGSTOP is followed by SIGCONT. */
static void interrupt(pid_t pid, int sig)
{
	kill(pid, sig);
	if (sig != SIGSTOP)
		return;
	while (proc_state(pid) != 'T')
		sleep_ms(1);
	kill(pid, SIGCONT);
}

TEST_F(hours, done_get_that_a_signal_ends_keeps_the_done)
{
	static const struct {
		int sig, sa_flags;
		__s64 timeout;
		int status;
	} rows[] = {
		{ SIGUSR1, 0, 20 * SEC, EINTR },
		{ SIGUSR1, SA_RESTART, 20 * SEC, EINTR },
		{ SIGSTOP, 0, FOREVER, EINTR },
		{ SIGKILL, 0, FOREVER, 1000 + SIGKILL },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		struct waiting *w;
		struct item it;
		pid_t pid;

		ASSERT_EQ(0, hold(self->q, "a", &it));
		w = waiting_done(&it, rows[i].timeout);
		pid = child();
		if (!pid) {
			handle(SIGUSR1, rows[i].sa_flags);
			_exit(-verb(self->q, WQ_IOC_DONE, &w->done));
		}
		ASSERT_TRUE(asleep(pid));
		interrupt(pid, rows[i].sig);
		ASSERT_EQ(rows[i].status, reap(pid));
		ASSERT_EQ(i + 1, failures(self->q, "a"));
		ASSERT_TRUE(counts(self->q, "processing 0, held 0"));
		ASSERT_EQ(1, w->done.keys.count);
		/* as before */
		ASSERT_EQ(1, w->done.next.count);
		ASSERT_EQ(sizeof(w->next), w->done.next.size);
		/* the rest of the timeout, as after a get */
		if (rows[i].timeout < 0) {
			ASSERT_GT(0, w->done.timeout);
		} else {
			ASSERT_GT(20 * SEC, w->done.timeout);
			ASSERT_LT(5 * SEC, w->done.timeout);
		}
	}
}

TEST_F(hours, done_with_next_or_timeout_without_DONE_GET_fails_with_EINVAL)
{
	union one key, next;
	const struct wq_done bad[] = {
		{ .next.addr = addr_of(&next) }, { .next.size = sizeof(next) }, { .next.count = 1 },
		{ .timeout = 1 }, { .timeout = FOREVER },
	};
	struct wq_stat before;
	struct item it;

	ASSERT_EQ(0, hold(self->q, "a", &it));
	q_add(self->q, "b");
	before = q_stat(self->q);
	rec_set(&key, "a", 1, it.token);
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_done done = bad[i];

		done.size = sizeof(done);
		done.keys = (struct wq_keys){ addr_of(&key), WQ_REC_SIZE(1), 1 };
		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_DONE, &done)) {
			TH_LOG("struct %d", i);
		}
		EXPECT_EQ(0, done.keys.count);
	}
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(0, q_done(self->q, &it));
}

/* ---- query, forget, cancel, list ---- */

TEST(query_requeues_are_the_limiters_and_failures_are_always_counted)
{
	static const struct {
		int requeues;
		struct wq_limiter_spec limiters[6];
	} by[] = {
		{ 3, { EXPONENTIAL(HOUR, HOUR) } },
		{ 3, { FAST_SLOW(HOUR, HOUR, 1) } },
		{ 0, { HOURLY(1) } },
		{ 3, { MAX_OF(2), HOURLY(1), EXPONENTIAL(HOUR, HOUR) } },
		{ 3, { MAX_OF(2), FAST_SLOW(HOUR, HOUR, 1), HOURLY(1) } },
		{ 0, { MAX_OF(2), HOURLY(1), HOURLY(2) } },
		{ 0, { MAX_WAIT(HOUR), HOURLY(1) } },
		{ 3, { MAX_WAIT(HOUR), MAX_OF(2), HOURLY(1), EXPONENTIAL(HOUR, HOUR) } },
	};

	for (int i = 0; i < ARRAY_SIZE(by); i++) {
		int q = open_limited("", 0, by[i].limiters);

		for (int n = 0; n < 3; n++)
			retry(q, "a");
		ASSERT_EQ(by[i].requeues, requeues(q, "a")) {
			TH_LOG("limiters number %d", i);
		}
		ASSERT_EQ(3, failures(q, "a"));
		ASSERT_LE(0, forget(q, "a"));
		ASSERT_EQ(0, requeues(q, "a"));
		ASSERT_EQ(0, failures(q, "a"));
		close(q);
	}
}

/* Both return the state and the failures of before. */
TEST_F(hours, forget_and_cancel_reset_failures_and_return_them)
{
	static const struct {
		__u32 what;
		int delayed, retained;	/* the state after it */
	} rows[] = {
		{ WQ_DO_FORGET, WQ_KEY_DELAYED, -ENOENT }, { WQ_DO_CANCEL, -ENOENT, -ENOENT },
	};

	for (int i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
		bool delayed = i % 2;
		int after = delayed ? rows[i / 2].delayed : rows[i / 2].retained;
		struct wq_key_op ks;

		if (delayed) {
			retry(self->q, "a");
			retry(self->q, "a");
		} else {
			ASSERT_EQ(0, keep(self->q, "a", 2));
		}
		ASSERT_EQ(0, q_key_call(self->q, rows[i / 2].what, "a", 1, &ks));
		EXPECT_EQ(WQ_KEY_FAILED | (delayed ? WQ_KEY_DELAYED : 0), ks.info.state);
		EXPECT_EQ(2, ks.info.failures);
		EXPECT_EQ(2, ks.info.num_requeues);
		EXPECT_EQ(after, q_query(self->q, "a")) {
			TH_LOG("operation %u, delayed %d", rows[i / 2].what, delayed);
		}
		EXPECT_TRUE(counts(self->q, "failed 0, retained 0"));
		/* the next delay is the first again */
		EXPECT_EQ(60, minutes(self->q, "a"));
		q_cancel(self->q, "a");
	}
}

TEST_HARNESS_MAIN
