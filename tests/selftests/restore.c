// SPDX-License-Identifier: GPL-2.0-only
/*
 * WQ_DO_RESTORE: each state of a key that a list can report, restored into another queue, and the
 * states that no key can be in; order, counts, permissions and errors.
 */
#include "wq_users.h"

#define READY		(WQ_KEY_READY | WQ_KEY_DIRTY)
#define RUNNING		WQ_KEY_PROCESSING
#define DIRTY		WQ_KEY_DIRTY
#define DELAYED		WQ_KEY_DELAYED
#define FAILED		WQ_KEY_FAILED
#define PARKED		WQ_KEY_PARKED
#define DISABLED	WQ_KEY_DISABLED
#define REQUEUED	WQ_KEY_REQUEUED

static int q_restore(int fd, const char *key, const struct wq_key_info *info)
{
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_RESTORE, .key = addr_of(key),
		.key_len = strlen(key), .info = *info,
	};

	return verb(fd, WQ_IOC_KEY, &op);
}

static int restore_state(int fd, const char *key, __u32 state)
{
	struct wq_key_info info = { .state = state, .failures = state & FAILED ? 1 : 0 };

	return q_restore(fd, key, &info);
}

static struct wq_key_info info_of(int fd, const char *key)
{
	struct wq_key_op query;

	if (q_key_call(fd, WQ_DO_QUERY, key, strlen(key), &query))
		memset(&query.info, 0, sizeof(query.info));
	return query.info;
}

static int get_text(int fd, char *to)
{
	struct item it;
	int ret = q_get(fd, &it, 0);

	if (!ret)
		snprintf(to, 16, "%.*s", (int)it.len, (const char *)it.key);
	return ret;
}

static const struct wq_attrs levels_and_leases = {
	.order = WQ_ORDER_PRIORITY, .lease = HOUR, .max_defer = HOUR,
};
static const struct wq_attrs groups = {
	.order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
};

static bool has_levels(const struct wq_attrs *attrs)
{
	return attrs->order == WQ_ORDER_PRIORITY || attrs->group_ageing;
}

/* A queue to restore into, with a name of its own. */
struct target {
	int q;
	char name[WQ_NAME_MAX];
};

static int target_open(struct target *t, const struct wq_attrs *attrs)
{
	struct wq_attrs args = *attrs;

	snprintf(t->name, sizeof(t->name), "selftest-%d", getpid());
	strcpy(args.name, t->name);
	args.size = sizeof(args);
	args.flags = WQ_OPEN_CREATE;
	args.mode = 0600;
	args.max_keys = 400;
	t->q = q_dev(O_RDWR);
	return t->q < 0 ? t->q : verb(t->q, WQ_IOC_OPEN, &args);
}

static bool target_close(struct target *t)
{
	struct wq_stat st = q_stat(t->q);

	q_unlink(t->name);
	close(t->q);
	return conserved(&st);
}

FIXTURE(restoring) {
	struct target to;
};

FIXTURE_VARIANT(restoring) {
	struct wq_attrs attrs;
};

FIXTURE_VARIANT_ADD(restoring, fifo) {
};

FIXTURE_VARIANT_ADD(restoring, levels_and_leases) {
	.attrs = levels_and_leases,
};

FIXTURE_VARIANT_ADD(restoring, groups) {
	.attrs = groups,
};

FIXTURE_VARIANT_ADD(restoring, levels_of_groups) {
	.attrs = { .order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_ageing = 2 },
};

FIXTURE_SETUP(restoring)
{
	ASSERT_EQ(0, target_open(&self->to, &variant->attrs));
}

FIXTURE_TEARDOWN(restoring)
{
	EXPECT_TRUE(target_close(&self->to));
}

/* Whether a list can report a key in this state. */
static bool is_state(__u32 state)
{
	__u32 waits = state & (READY | DELAYED);

	if (!state)
		return false;
	if (state & PARKED && !(state & RUNNING) && waits)
		return false;
	if (state & REQUEUED && !(state & WQ_KEY_READY))
		return false;
	return !(state & DISABLED && state & (DELAYED | FAILED | PARKED));
}

/* The state of a key that was restored in this one. */
static __u32 state_after(__u32 state)
{
	if (state & RUNNING)
		return (state & (FAILED | DELAYED | DISABLED)) | READY;
	state &= ~REQUEUED;
	/* A source changed it while it was disabled. */
	if ((state & (DISABLED | READY)) == (DISABLED | WQ_KEY_DIRTY))
		return state;
	return state & READY ? state | READY : state;
}

TEST_F(restoring, every_state_is_as_before_or_fails_with_EINVAL_and_changes_nothing)
{
	const __u32 bits = READY | RUNNING | DELAYED | FAILED | PARKED | DISABLED | REQUEUED;
	bool levels = has_levels(&variant->attrs);
	__u32 state, keys = 0, failed = 0, disabled = 0;
	char key[16];

	for (state = 0; state <= bits; state++) {
		struct wq_key_info in = {
			.state = state, .failures = state & FAILED ? 7 : 0, .given_back = 2,
			.age = HOUR, .due = state & DELAYED ? DAY : -1, .lease = -1,
			.priority = levels ? -100 : 0, .error = 5, .reason_len = 3,
			.reason = "why",
		}, seen;

		if (state & ~bits)
			continue;
		snprintf(key, sizeof(key), "%x/", state);
		if (!is_state(state)) {
			ASSERT_EQ(-EINVAL, q_restore(self->to.q, key, &in));
			ASSERT_EQ(keys, q_stat(self->to.q).keys);
			continue;
		}
		ASSERT_EQ(0, q_restore(self->to.q, key, &in));
		keys++;
		failed += !!(state & FAILED);
		disabled += !!(state & DISABLED);
		seen = info_of(self->to.q, key);
		ASSERT_TRUE(equal(key, state_after(state), seen.state));
		ASSERT_EQ(in.failures, seen.failures);
		ASSERT_EQ(2, seen.given_back);
		if (seen.state & (WQ_KEY_READY | PARKED))
			ASSERT_TRUE(within("age", HOUR, HOUR + MINUTE, seen.age));
		if (seen.state & DELAYED)
			ASSERT_TRUE(within("due", DAY - MINUTE, DAY, seen.due));
		if (levels && seen.state & (WQ_KEY_READY | DELAYED | PARKED))
			ASSERT_EQ(-100, seen.priority);
		if (seen.state & PARKED) {
			ASSERT_EQ(5, seen.error);
			ASSERT_EQ(3, seen.reason_len);
			ASSERT_TRUE(equal_bytes("reason", "why", seen.reason, 3));
		}
		ASSERT_EQ(-EEXIST, q_restore(self->to.q, key, &in));
	}
	ASSERT_LT(20, keys);
	ASSERT_EQ(keys, q_stat(self->to.q).keys);
	ASSERT_EQ(failed, q_stat(self->to.q).failed);
	ASSERT_EQ(disabled, q_stat(self->to.q).disabled);
}

/* Groups take turns, and a list has one time for blocked keys. */
static const struct wq_attrs *const in_order[] = { &(struct wq_attrs){}, &levels_and_leases };

TEST(processing_and_requeued_keys_are_ahead_of_all_in_the_order_of_the_calls)
{
	static const char *const order[] = { "running", "requeued", "again", "ready" };

	for (int i = 0; i < ARRAY_SIZE(in_order); i++) {
		struct target to;
		char got[16];

		ASSERT_EQ(0, target_open(&to, in_order[i]));
		ASSERT_EQ(0, restore_state(to.q, "ready", READY));
		ASSERT_EQ(0, restore_state(to.q, "running", RUNNING));
		ASSERT_EQ(0, restore_state(to.q, "requeued", READY | REQUEUED));
		ASSERT_EQ(0, restore_state(to.q, "again", RUNNING | DIRTY));
		ASSERT_EQ(4, q_stat(to.q).ready);
		for (int n = 0; n < ARRAY_SIZE(order); n++) {
			ASSERT_EQ(0, get_text(to.q, got));
			EXPECT_STREQ(order[n], got);
		}
		EXPECT_TRUE(target_close(&to));
	}
}

TEST(the_next_run_of_a_processing_key_is_at_its_level)
{
	const struct wq_key_info in = { .state = RUNNING, .due = -1, .lease = -1, .priority = 5 };
	struct target to;
	char got[16];

	ASSERT_EQ(0, target_open(&to, &levels_and_leases));
	ASSERT_EQ(0, q_restore(to.q, "a", &in));
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_EQ(5, info_of(to.q, "a").priority);
	EXPECT_TRUE(target_close(&to));
}

TEST(a_kicked_key_is_at_the_level_at_which_it_was_parked)
{
	const struct wq_key_info in = {
		.state = PARKED | FAILED, .failures = 1, .due = -1, .lease = -1, .priority = 5,
	};
	struct wq_key_op kick = { .size = sizeof(kick), .op = WQ_DO_KICK, .count = 1 };
	struct target to;
	char got[16];

	ASSERT_EQ(0, target_open(&to, &levels_and_leases));
	ASSERT_EQ(0, q_restore(to.q, "a", &in));
	EXPECT_EQ(5, info_of(to.q, "a").priority);
	ASSERT_EQ(0, verb(to.q, WQ_IOC_KEY, &kick));
	EXPECT_EQ(1, kick.count);
	EXPECT_EQ(5, info_of(to.q, "a").priority);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_EQ(5, info_of(to.q, "a").priority);
	EXPECT_TRUE(target_close(&to));
}

/* A queue with a ready key of a group, and two of it that are processing. */
static int restore_group(struct target *to, const struct wq_attrs *attrs)
{
	return target_open(to, attrs) ?: restore_state(to->q, "a/3", READY) ?:
	       restore_state(to->q, "a/1", RUNNING) ?: restore_state(to->q, "a/2", RUNNING);
}

/* Runs that the first limit of a queue counts. */
TEST(processing_keys_count_against_a_later_limit_of_their_group)
{
	struct wq_attrs attrs = groups, set = {
		.size = sizeof(set), .set = WQ_ATTR_GROUP_LIMIT, .group_limit = 2,
	};
	struct target to;
	char got[16];

	attrs.group_limit = 0;
	ASSERT_EQ(0, restore_group(&to, &attrs));
	EXPECT_EQ(0, q_stat(to.q).blocked);
	EXPECT_EQ(0, verb(to.q, WQ_IOC_ATTRS, &set));
	/* a/1 and a/2 are ahead, and have the two places. */
	EXPECT_EQ(1, q_stat(to.q).blocked);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/1", got);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/2", got);
	EXPECT_EQ(-EAGAIN, get_text(to.q, got));
	ASSERT_EQ(0, q_done_key(to.q, "a/1"));
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/3", got);
	EXPECT_TRUE(target_close(&to));
}

TEST(processing_keys_count_against_the_limit_of_their_group)
{
	struct target to;
	char got[16];

	ASSERT_EQ(0, restore_group(&to, &groups));
	EXPECT_EQ(2, q_stat(to.q).blocked);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/1", got);
	EXPECT_EQ(-EAGAIN, get_text(to.q, got));
	ASSERT_EQ(0, q_done_key(to.q, "a/1"));
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/3", got);
	EXPECT_TRUE(target_close(&to));
}

TEST(processing_keys_of_a_group_without_a_limit_are_all_ahead)
{
	static const struct wq_attrs unlimited = {
		.order = WQ_ORDER_DELIMITER, .order_arg = '/',
	};
	struct target to;
	char got[16];

	ASSERT_EQ(0, restore_group(&to, &unlimited));
	EXPECT_EQ(3, q_stat(to.q).ready);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/1", got);
	ASSERT_EQ(0, get_text(to.q, got));
	EXPECT_STREQ("a/2", got);
	EXPECT_TRUE(target_close(&to));
}

TEST_F(restoring, the_largest_age_count_error_and_text_are_restored)
{
	const struct wq_key_info in = {
		.state = PARKED, .age = (1LL << 62) - 1, .given_back = WQ_MAX_GIVEN_BACK,
		.error = WQ_MAX_ERROR, .reason_len = WQ_MAX_REASON,
	};
	struct wq_key_info seen;

	ASSERT_EQ(0, q_restore(self->to.q, "k", &in));
	seen = info_of(self->to.q, "k");
	EXPECT_TRUE(within("age", in.age, in.age + MINUTE, seen.age));
	EXPECT_EQ(in.given_back, seen.given_back);
	EXPECT_EQ(in.error, seen.error);
	EXPECT_EQ(in.reason_len, seen.reason_len);
}

/* The queue keeps the entry of the first one. */
TEST_F(restoring, a_key_can_be_restored_again_after_its_run)
{
	struct item it;

	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0, restore_state(self->to.q, "k", READY));
		ASSERT_EQ(0, q_get(self->to.q, &it, 0));
		ASSERT_EQ(0, q_done(self->to.q, &it));
	}
}

TEST(failures_alone_are_not_kept_if_the_limiter_does_not_use_them)
{
	static const struct wq_limiter_spec bucket = {
		.kind = WQ_LIMITER_BUCKET, .n = 1, .rate = WQ_QPS(1),
	};
	const struct wq_attrs attrs = { .limiters = addr_of(&bucket), .num_limiters = 1 };
	struct target to;

	ASSERT_EQ(0, target_open(&to, &attrs));
	ASSERT_EQ(0, restore_state(to.q, "k", FAILED));
	EXPECT_EQ(0, q_stat(to.q).keys);
	EXPECT_TRUE(target_close(&to));
}

TEST_F(restoring, a_delay_that_has_ended_makes_the_key_ready)
{
	struct wq_key_info info = { .state = DELAYED };
	struct item it;

	ASSERT_EQ(0, q_restore(self->to.q, "now", &info));
	EXPECT_EQ(0, q_get(self->to.q, &it, 20 * SEC));
}

TEST_F(restoring, a_getter_that_waits_gets_the_key)
{
	static const __u32 states[] = { READY, RUNNING };
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(states); i++) {
		pid_t pid = child();

		if (!pid)
			_exit(-q_get(self->to.q, &it, 20 * SEC));
		ASSERT_TRUE(asleep(pid));
		ASSERT_EQ(0, restore_state(self->to.q, i ? "running" : "ready", states[i]));
		EXPECT_EQ(0, reap(pid));
	}
}

TEST_F(restoring, an_edge_triggered_poller_wakes_for_room_after_a_restore_has_filled_the_queue)
{
	struct wq_attrs one = { .size = sizeof(one), .set = WQ_ATTR_MAX_KEYS, .max_keys = 1 };
	int ep = epoll_of(self->to.q, EPOLLOUT | EPOLLET);

	ASSERT_EQ(0, verb(self->to.q, WQ_IOC_ATTRS, &one));
	ASSERT_EQ(EPOLLOUT, epoll_events(ep, 0));
	ASSERT_EQ(0, restore_state(self->to.q, "k", READY));
	ASSERT_LT(0, q_cancel(self->to.q, "k"));
	EXPECT_EQ(EPOLLOUT, epoll_events(ep, 0));
	close(ep);
}

TEST_F(restoring, a_restore_works_while_adds_are_paused)
{
	struct wq_control pause = {
		.size = sizeof(pause), .flags = WQ_PAUSE_ADDS, .timeout = FOREVER,
	};

	ASSERT_EQ(0, verb(self->to.q, WQ_IOC_PAUSE, &pause));
	ASSERT_EQ(-EHOSTDOWN, q_add(self->to.q, "k"));
	EXPECT_EQ(0, restore_state(self->to.q, "k", READY));
}

TEST(a_list_since_sorts_the_keys_and_shows_requeued_ones)
{
	for (int i = 0; i < ARRAY_SIZE(in_order); i++) {
		struct array rows = array_new(8192);
		struct wq_list list = {
			.size = sizeof(list), .flags = WQ_LIST_SINCE,
			.info_size = sizeof(struct wq_key_info),
		};
		__s64 since[2] = { 0 };
		struct target to;

		ASSERT_EQ(0, target_open(&to, in_order[i]));
		ASSERT_EQ(1, q_add(to.q, "b"));
		ASSERT_EQ(1, q_add(to.q, "a"));
		ASSERT_EQ(0, restore_state(to.q, "r", READY | REQUEUED));
		list.keys = (struct wq_keys){ addr_of(rows.recs), rows.room, 0 };
		ASSERT_EQ(0, verb(to.q, WQ_IOC_LIST, &list));
		ASSERT_EQ(3, list.keys.count);
		for (int n = 0; n < 3; n++) {
			struct wq_list_rec *row = row_at(&rows, n);

			EXPECT_EQ(row->key[0] == 'r', !!(row->info.state & REQUEUED));
			if (row->key[0] != 'r')
				since[row->key[0] - 'a'] = row->info.age;
		}
		EXPECT_LT(since[1], since[0]);
		EXPECT_TRUE(within("since", 0, now_ns(), since[0]));
		free(rows.recs);
		EXPECT_TRUE(target_close(&to));
	}
}

/* ---- errors ---- */

TEST_F(restoring, restore_fails_with_ERANGE_or_EINVAL_for_a_field_out_of_range)
{
	const struct {
		int error;
		struct wq_key_info info;
	} bad[] = {
		{ -ERANGE, { .state = READY, .age = -1 } },
		{ -ERANGE, { .state = READY, .age = (1LL << 62) } },
		{ -ERANGE, { .state = DELAYED, .due = -1 } },
		{ -ERANGE, { .state = READY, .given_back = WQ_MAX_GIVEN_BACK + 1 } },
		{ -ERANGE, { .state = PARKED, .error = WQ_MAX_ERROR + 1 } },
		{ -ERANGE, { .state = PARKED, .reason_len = WQ_MAX_REASON + 1 } },
		{ has_levels(&variant->attrs) ? -ERANGE : -EINVAL,
		  { .state = READY, .priority = 128 } },
		{ -EINVAL, { .state = READY | FAILED } },
		{ -EINVAL, { .state = READY, .failures = 1 } },
		{ -EINVAL, { .state = READY | WQ_KEY_MINE } },
		{ -EINVAL, { .state = READY | 1U << 31 } },
	};
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ASSERT_TRUE(equal("bad info", bad[i].error, q_restore(self->to.q, "k", &bad[i].info)));
	ASSERT_EQ(0, q_stat(self->to.q).keys);
}

TEST_F(restoring, restore_fails_with_ENOSPC_in_a_full_queue)
{
	char key[16];
	int i;

	for (i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(0, restore_state(self->to.q, key, i % 2 ? READY : DELAYED));
	}
	EXPECT_EQ(-ENOSPC, restore_state(self->to.q, "more", READY));
	EXPECT_EQ(-EEXIST, restore_state(self->to.q, "1", READY));
}

TEST_F(restoring, restore_fails_with_ESHUTDOWN_after_a_shutdown)
{
	struct wq_control args = { .size = sizeof(args) };

	ASSERT_EQ(0, verb(self->to.q, WQ_IOC_SHUTDOWN, &args));
	EXPECT_EQ(-ESHUTDOWN, restore_state(self->to.q, "k", READY));
}

TEST_F(restoring, restore_fails_with_EPERM_for_others_than_the_owner)
{
	pid_t pid;

	ASSERT_EQ(0, chmod(path_of(self->to.name), 0666));
	pid = user(ALICE, GROUP, 0);
	if (!pid)
		_exit(-restore_state(self->to.q, "k", READY));
	EXPECT_EQ(EPERM, reap(pid));
}

TEST_F(restoring, restore_without_write_access_fails_with_EACCES)
{
	int reader = q_open(self->to.name, O_RDONLY, 0, 0, 0);

	ASSERT_LE(0, reader);
	EXPECT_EQ(-EACCES, restore_state(reader, "k", READY));
	close(reader);
}

TEST_HARNESS_MAIN
