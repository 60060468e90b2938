// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parked keys through /dev/wq: retries, the outcome GIVE_UP, reasons, kick, list and errors.
 * tests/kunit/park.c has the rules that need a clock.
 */
#include "wq_users.h"

#define PARKED	WQ_KEY_PARKED
#define FAILED	WQ_KEY_FAILED
#define ALL	0xffffffffU

static struct wq_key_op kick_args(const char *key, __u32 count)
{
	return (struct wq_key_op){
		.size = sizeof(struct wq_key_op), .op = WQ_DO_KICK, .key = addr_of(key),
		.key_len = key ? strlen(key) : 0, .count = count,
	};
}

/* Return: how many keys were made ready, or -errno. */
static int q_kick(int fd, const char *key, __u32 count)
{
	struct wq_key_op args = kick_args(key, count);

	return verb(fd, WQ_IOC_KEY, &args) ?: (int)args.count;
}

/* Add, get and give up a key. */
static int park(int fd, const char *key, __u32 error, const char *text)
{
	struct wq_reason_rec reason = reason_of(error, text);
	struct item it;
	int ret = q_add(fd, key);

	if (ret < 0)
		return ret;
	return q_get(fd, &it, 0) ?: q_done_reason(fd, &it, WQ_OUTCOME_GIVE_UP, &reason);
}

static int retry(int fd)
{
	struct item it;

	return q_get(fd, &it, 20 * SEC) ?: q_done_reason(fd, &it, WQ_OUTCOME_RETRY, NULL);
}

static struct wq_key_info info_of(int fd, const char *key)
{
	struct wq_key_op query;

	q_key_call(fd, WQ_DO_QUERY, key, strlen(key), &query);
	return query.info;
}

static bool has_reason(int fd, const char *key, __u32 error, const char *text)
{
	struct wq_key_info info = info_of(fd, key);

	return equal("error", error, info.error) &&
	       equal("reason_len", strlen(text), info.reason_len) &&
	       equal_bytes("reason", text, info.reason, info.reason_len) &&
	       all(info.reason + info.reason_len, 0, WQ_MAX_REASON - info.reason_len);
}

/* A queue of up to 12 keys.  3 of them may be parked, and failed keys are ready at once. */
FIXTURE(parking) {
	int q;
	char name[WQ_NAME_MAX];
};

static struct wq_limiter_spec no_delay = { .kind = WQ_LIMITER_EXPONENTIAL };

static struct wq_attrs open_args(const char *name, __u32 retries)
{
	struct wq_attrs args = {
		.size = sizeof(args), .flags = WQ_OPEN_CREATE, .mode = 0600, .max_keys = 12,
		.limiters = addr_of(&no_delay), .num_limiters = 1, .max_retries = retries,
	};

	strcpy(args.name, name);
	return args;
}

FIXTURE_SETUP(parking)
{
	struct wq_attrs args;

	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	args = open_args(self->name, 2);
	self->q = q_dev(O_RDWR);
	ASSERT_LE(0, self->q);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_OPEN, &args));
}

FIXTURE_TEARDOWN(parking)
{
	struct wq_stat st = q_stat(self->q);

	EXPECT_TRUE(conserved(&st));
	q_unlink(self->name);
	close(self->q);
}

/* ---- what parks a key ---- */

TEST_F(queue, give_up_parks_the_key_also_without_a_number_of_retries)
{
	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", EIO, "no answer"));
	EXPECT_EQ(PARKED | FAILED, q_query(self->q, "a"));
	EXPECT_TRUE(has_reason(self->q, "a", EIO, "no answer"));
	EXPECT_LE(0, info_of(self->q, "a").age);
}

TEST_F(parking, fdinfo_has_the_number_of_parked_keys)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->q);
	EXPECT_EQ(-1, read_field(path, "wq-parked:"));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, i ? "a" : "b", 0, ""));
	EXPECT_EQ(2, read_field(path, "wq-parked:"));
}

TEST_F(parking, key_whose_consumers_are_killed_again_and_again_is_parked_with_that_reason)
{
	char key[8];
	int i;

	ASSERT_EQ(1, q_add(self->q, "a"));
	for (i = 0; i < 4; i++) {
		pid_t pid = child();

		if (!pid) {
			int q = q_attach(self->name, O_RDWR);

			if (read(q, key, sizeof(key)) == 1)
				kill(getpid(), SIGKILL);
			_exit(1);
		}
		ASSERT_EQ(1000 + SIGKILL, reap(pid));
		ASSERT_EVENTUALLY(q_stat(self->q).given_back == i + 1);
	}
	EXPECT_EQ(PARKED | FAILED, q_query(self->q, "a"));
	EXPECT_TRUE(has_reason(self->q, "a", EOWNERDEAD,
			       "its consumers died or lost their leases 4 times in a row"));
}

/* ---- reasons ---- */

TEST_F(parking, reason_of_a_retry_is_kept_if_the_retry_parks_the_key)
{
	struct wq_reason_rec reason = reason_of(ETIMEDOUT, "too slow");
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
		EXPECT_EQ(i < 2 ? WQ_RESULT_READY : WQ_RESULT_PARKED,
			  q_done_reason(self->q, &it, WQ_OUTCOME_RETRY, &reason));
	}
	EXPECT_EQ(PARKED | FAILED, q_query(self->q, "a"));
	EXPECT_EQ(3, info_of(self->q, "a").failures);
	EXPECT_TRUE(has_reason(self->q, "a", ETIMEDOUT, "too slow"));
	EXPECT_TRUE(counts(self->q, "parked 1, max_parked 3, parked_total 1, keys 1, ready 0"));
}

TEST_F(parking, reason_has_up_to_64_bytes_of_any_value)
{
	struct wq_reason_rec reason = { .error = WQ_MAX_ERROR, .len = WQ_MAX_REASON };
	struct wq_key_info info;
	struct item it;
	int i;

	for (i = 0; i < WQ_MAX_REASON; i++)
		reason.text[i] = 200 + i;
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(WQ_RESULT_PARKED, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, &reason));
	info = info_of(self->q, "a");
	EXPECT_EQ(WQ_MAX_ERROR, info.error);
	EXPECT_EQ(WQ_MAX_REASON, info.reason_len);
	EXPECT_TRUE(equal_bytes("reason", reason.text, info.reason, WQ_MAX_REASON));
}

TEST_F(parking, done_with_a_reason_out_of_range_fails_with_ERANGE_and_the_key_is_still_held)
{
	struct wq_reason_rec error = { .error = WQ_MAX_ERROR + 1 };
	struct wq_reason_rec length = { .len = WQ_MAX_REASON + 1 };
	struct wq_stat before;
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	before = q_stat(self->q);
	EXPECT_EQ(-ERANGE, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, &error));
	EXPECT_EQ(-ERANGE, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, &length));
	EXPECT_EQ(-ERANGE, q_done_reason(self->q, &it, 0, &length));
	EXPECT_TRUE(same(&before, self->q));
	EXPECT_EQ(0, q_done(self->q, &it));
}

TEST_F(parking, done_of_an_array_has_a_reason_for_each_key)
{
	static const char * const keys[] = { "a", "b", "c" };
	struct array a = array_new(4096);
	struct wq_reason_rec reasons[3] = {
		reason_of(EIO, "first"), reason_of(0, ""), reason_of(0, "third"),
	};
	__s32 results[3];
	struct wq_done args = {
		.size = sizeof(args), .results = addr_of(results), .reasons = addr_of(reasons),
	};
	struct item it;
	int i;

	for (i = 0; i < 3; i++) {
		ASSERT_EQ(1, q_add(self->q, keys[i]));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		array_put(&a, it.key, it.len, it.token)->flags = i == 1 ? 0 : WQ_OUTCOME_GIVE_UP;
	}
	args.keys = (struct wq_keys){ addr_of(a.recs), a.used, a.count };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &args));
	EXPECT_EQ(3, args.keys.count);
	EXPECT_EQ(WQ_RESULT_PARKED, results[0]);
	EXPECT_EQ(0, results[1]);
	EXPECT_EQ(WQ_RESULT_PARKED, results[2]);
	EXPECT_TRUE(has_reason(self->q, "a", EIO, "first"));
	EXPECT_EQ(-ENOENT, q_query(self->q, "b"));
	EXPECT_TRUE(has_reason(self->q, "c", 0, "third"));
	free(a.recs);
}

TEST_F(parking, done_of_an_empty_key_with_a_bad_reason_fails_with_EINVAL_and_the_next_key_is_done)
{
	struct array a = array_new(4096);
	struct wq_reason_rec reasons[2] = { { .error = WQ_MAX_ERROR + 1 }, reason_of(0, "") };
	__s32 results[2];
	struct wq_done args = {
		.size = sizeof(args), .results = addr_of(results), .reasons = addr_of(reasons),
	};
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	array_put(&a, "", 0, it.token);
	array_put(&a, it.key, it.len, it.token);
	args.keys = (struct wq_keys){ addr_of(a.recs), a.used, a.count };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &args));
	EXPECT_EQ(2, args.keys.count);
	EXPECT_EQ(-EINVAL, results[0]);
	EXPECT_EQ(0, results[1]);
	free(a.recs);
}

/* The second of three reasons can't be read, or the second of three results not be written. */
TEST_F(parking, done_with_reasons_at_a_bad_address_fails_with_EFAULT_after_the_keys_before)
{
	static const char * const keys[] = { "a", "b", "c" };
	struct wq_reason_rec good[3] = {}, *bad = edge(sizeof(*bad));
	__s32 results[3], *bad_result = edge(sizeof(*bad_result));
	struct wq_done calls[] = {
		{ .reasons = addr_of(bad) },
		{ .reasons = addr_of(bad), .results = addr_of(results) },
		{ .reasons = addr_of(good), .results = addr_of(bad_result) },
	};

	*bad = reason_of(EIO, "first");
	for (int n = 0; n < ARRAY_SIZE(calls); n++) {
		struct array a = array_new(4096);
		struct wq_done args = calls[n];
		struct item it;
		int i;

		for (i = 0; i < 3; i++) {
			ASSERT_EQ(1, q_add(self->q, keys[i]));
			ASSERT_EQ(0, q_get(self->q, &it, 0));
			array_put(&a, it.key, it.len, it.token)->flags = WQ_OUTCOME_GIVE_UP;
		}
		args.size = sizeof(args);
		args.keys = (struct wq_keys){ addr_of(a.recs), a.used, a.count };
		EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_DONE, &args));
		EXPECT_EQ(1, args.keys.count);
		EXPECT_TRUE(counts(self->q, "parked 1, held 2"));
		EXPECT_EQ(0, q_done_key(self->q, "b"));
		EXPECT_EQ(0, q_done_key(self->q, "c"));
		EXPECT_LT(0, q_cancel(self->q, "a"));
		free(a.recs);
	}
}

TEST_F(parking, done_with_reasons_stops_at_the_first_error_without_results)
{
	struct array a = array_new(4096);
	struct wq_reason_rec reasons[2] = { reason_of(EIO, "a"), reason_of(EIO, "b") };
	struct wq_done args = { .size = sizeof(args), .reasons = addr_of(reasons) };
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	array_put(&a, "unknown", 7, 0)->flags = WQ_OUTCOME_GIVE_UP;
	array_put(&a, it.key, it.len, it.token)->flags = WQ_OUTCOME_GIVE_UP;
	args.keys = (struct wq_keys){ addr_of(a.recs), a.used, a.count };
	EXPECT_EQ(-ENOENT, verb(self->q, WQ_IOC_DONE, &args));
	EXPECT_EQ(0, args.keys.count);
	EXPECT_EQ(1, q_stat(self->q).held);
	free(a.recs);
}

TEST_F(parking, done_with_reasons_at_an_odd_address_fails_with_EINVAL)
{
	struct wq_reason_rec reason = reason_of(EIO, "text");
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(-EINVAL, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP,
					 (void *)((char *)&reason + 2)));
	EXPECT_EQ(1, q_stat(self->q).held);
}

TEST_F(parking, done_with_reasons_gets_the_next_key)
{
	struct wq_reason_rec reason = reason_of(EIO, "text");
	union one one, next;
	struct wq_done args = {
		.size = sizeof(args), .flags = WQ_DONE_GET, .reasons = addr_of(&reason),
		.next = { addr_of(&next), sizeof(next), 1 },
	};
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	rec_set(&one, it.key, it.len, it.token)->flags = WQ_OUTCOME_GIVE_UP;
	args.keys = (struct wq_keys){ addr_of(&one), WQ_REC_SIZE(it.len), 1 };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_DONE, &args));
	EXPECT_EQ('b', next.rec.key[0]);
	EXPECT_TRUE(has_reason(self->q, "a", EIO, "text"));
}

TEST_F(parking, list_shows_parked_keys_with_their_reasons)
{
	struct array a = array_new(8192);
	struct wq_list_rec *row;
	__u64 cursor = 0;

	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", EIO, "no answer"));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	row = row_at(&a, 0);
	EXPECT_EQ(PARKED | FAILED, row->info.state);
	EXPECT_EQ(EIO, row->info.error);
	EXPECT_EQ(9, row->info.reason_len);
	EXPECT_TRUE(equal_bytes("reason", "no answer", row->info.reason, 9));
	EXPECT_EQ('a', row->key[0]);
	free(a.recs);
}

TEST_F(parking, writer_does_not_see_the_reason)
{
	struct wq_key_op query;
	int w;

	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", EIO, "no answer"));
	w = q_attach(self->name, O_WRONLY);
	ASSERT_LE(0, w);
	ASSERT_EQ(0, q_key_call(w, WQ_DO_FORGET, "a", 1, &query));
	EXPECT_EQ(PARKED | FAILED, query.info.state);
	EXPECT_EQ(0, query.info.error);
	EXPECT_EQ(0, query.info.reason_len);
	EXPECT_TRUE(all(query.info.reason, 0, WQ_MAX_REASON));
	close(w);
}

/* ---- what ends the parking ---- */

/* A kick, and a write of the key. */
TEST_F(parking, kick_makes_the_key_ready_with_its_failures_reset_and_wakes_a_poller)
{
	struct item it;

	for (int write_it = 0; write_it < 2; write_it++) {
		int ep;

		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", EIO, "text"));
		ep = epoll_of(self->q, EPOLLIN | EPOLLET);
		EXPECT_EQ(0, epoll_events(ep, 0));
		EXPECT_EQ(1, write_it ? write(self->q, "a", 1) : q_kick(self->q, "a", 0));
		EXPECT_EQ(EPOLLIN, epoll_events(ep, 20000));
		EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
		EXPECT_TRUE(counts(self->q, "kicked 1, parked 0"));
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		EXPECT_EQ(0, q_done(self->q, &it));
		EXPECT_EQ(-ENOENT, q_query(self->q, "a"));
		close(ep);
	}
}

TEST_F(parking, kick_of_a_number_of_keys_takes_those_that_are_parked_longest)
{
	struct item it;

	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", 0, ""));
	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "b", 0, ""));
	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "c", 0, ""));
	EXPECT_EQ(2, q_kick(self->q, NULL, 2));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ('a', it.key[0]);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ('b', it.key[0]);
	EXPECT_EQ(1, q_kick(self->q, NULL, ALL));
	EXPECT_EQ(0, q_kick(self->q, NULL, ALL));
}

/* The call handles some at a time. */
TEST_F(queue, kick_makes_each_of_100_parked_keys_ready)
{
	char key[8];

	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, key, 0, ""));
	}
	EXPECT_EQ(100, q_kick(self->q, NULL, ALL));
	EXPECT_TRUE(counts(self->q, "ready 100, parked 0"));
}

TEST_F(parking, oldest_parked_key_makes_room_for_the_next_and_wakes_a_poller_for_room)
{
	struct wq_reason_rec reason = reason_of(0, "");
	char key[2] = "a";
	struct item it;
	int ep;

	for (int i = 0; i < 3; i++, key[0]++)
		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, key, 0, ""));
	for (int i = 3; i < 12; i++, key[0]++)
		ASSERT_EQ(1, q_add(self->q, key));
	ASSERT_EQ(-ENOSPC, q_add(self->q, "full"));
	ep = epoll_of(self->q, EPOLLOUT | EPOLLET);
	EXPECT_EQ(0, epoll_events(ep, 0));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(WQ_RESULT_PARKED, q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, &reason));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 20000));
	EXPECT_EQ(-ENOENT, q_query(self->q, "a"));
	EXPECT_TRUE(counts(self->q, "parked_dropped 1, parked 3"));
	close(ep);
}

TEST_F(parking, keys_beyond_a_lower_bound_are_dropped_two_for_each_key_that_is_parked)
{
	struct wq_attrs config = {
		.size = sizeof(config), .set = WQ_ATTR_MAX_KEYS, .max_keys = 40,
	};
	char key[2] = "a";

	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	for (int i = 0; i < 6; i++, key[0]++)
		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, key, 0, ""));
	config.max_keys = 12;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	EXPECT_EQ(6, q_stat(self->q).parked);
	for (int parked = 5; parked >= 3; parked--, key[0]++) {
		ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, key, 0, ""));
		EXPECT_EQ(parked, q_stat(self->q).parked);
	}
	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, key, 0, ""));
	EXPECT_EQ(3, q_stat(self->q).parked);
	EXPECT_EQ(PARKED | FAILED, q_query(self->q, key));
	EXPECT_EQ(-ENOENT, q_query(self->q, "f"));
}

/* ---- errors of kick ---- */

TEST_F(parking, kick_of_bad_arguments_fails_and_the_key_stays_parked)
{
	const struct {
		int error;
		struct wq_key_op op;
	} bad[] = {
		{ -EINVAL, kick_args(NULL, 0) },
		{ -EINVAL, kick_args("a", 1) },
		{ -EINVAL, kick_args("", 1) },
		{ -EINVAL, { .key = addr_of("a"), .key_len = 1, .info.state = 1 } },
		{ -E2BIG, { .key = addr_of("a"), .key_len = WQ_MAX_KEY + 1 } },
		{ -E2BIG, { .key = addr_of("a"), .key_len = ALL } },
		{ -EFAULT, { .key = addr_of(edge(0)), .key_len = 1 } },
		{ -ENOENT, kick_args("ready", 0) },
		{ -ENOENT, kick_args("unknown", 0) },
	};

	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", 0, ""));
	ASSERT_EQ(1, q_add(self->q, "ready"));
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_key_op op = bad[i].op;

		op.size = sizeof(op);
		op.op = WQ_DO_KICK;
		EXPECT_EQ(bad[i].error, verb(self->q, WQ_IOC_KEY, &op)) {
			TH_LOG("struct %d", i);
		}
	}
	EXPECT_TRUE(counts(self->q, "parked 1, kicked 0, ready 1"));
}

TEST_F(parking, kick_after_a_shutdown_fails_with_ESHUTDOWN_and_parked_keys_stay)
{
	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", EIO, "text"));
	ASSERT_EQ(0, q_drain(self->q));
	EXPECT_EQ(-ESHUTDOWN, q_kick(self->q, "a", 0));
	EXPECT_EQ(-ESHUTDOWN, q_kick(self->q, NULL, ALL));
	EXPECT_TRUE(has_reason(self->q, "a", EIO, "text"));
	EXPECT_EQ(1, q_stat(self->q).parked);
}

TEST_F(parking, kick_fails_with_EFAULT_if_the_struct_can_not_be_written_and_the_keys_are_ready)
{
	struct wq_key_op args = kick_args(NULL, ALL);

	ASSERT_EQ(WQ_RESULT_PARKED, park(self->q, "a", 0, ""));
	EXPECT_EQ(-EFAULT, verb(self->q, WQ_IOC_KEY, read_only(&args, sizeof(args))));
	EXPECT_EQ(1, q_stat(self->q).ready);
}

/* ---- attributes ---- */

TEST_F(parking, retries_are_an_attribute_of_the_queue)
{
	struct wq_attrs config = { .size = sizeof(config) };
	struct wq_attrs args = open_args(self->name, 3);
	int fd = q_dev(O_RDWR);

	EXPECT_EQ(-EEXIST, verb(fd, WQ_IOC_OPEN, &args));
	args.max_retries = 2;
	EXPECT_EQ(0, verb(fd, WQ_IOC_OPEN, &args));
	close(fd);
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	EXPECT_EQ(2, config.max_retries);
	EXPECT_TRUE(config.set & WQ_ATTR_MAX_RETRIES);

	config = (struct wq_attrs){ .size = sizeof(config), .set = WQ_ATTR_MAX_RETRIES };
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	ASSERT_EQ(1, q_add(self->q, "a"));
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(WQ_RESULT_READY, retry(self->q));
	config.max_retries = 1;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	EXPECT_EQ(WQ_RESULT_PARKED, retry(self->q));
}

TEST_F(parking, retries_above_the_limit_fail_with_ERANGE)
{
	struct wq_attrs config = {
		.size = sizeof(config), .set = WQ_ATTR_MAX_RETRIES, .max_retries = WQ_MAX_RETRIES + 1,
	};
	struct wq_attrs args = open_args(self->name, WQ_MAX_RETRIES + 1);
	int fd = q_dev(O_RDWR);

	EXPECT_EQ(-ERANGE, verb(self->q, WQ_IOC_ATTRS, &config));
	EXPECT_EQ(-ERANGE, verb(fd, WQ_IOC_OPEN, &args));
	config.max_retries = WQ_MAX_RETRIES;
	EXPECT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &config));
	close(fd);
}

TEST_HARNESS_MAIN
