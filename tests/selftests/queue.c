// SPDX-License-Identifier: GPL-2.0-only
/*
 * add, get, done, cancel, shutdown: the life of a key, through /dev/wq. tests/kunit/core.c has the
 * rules.
 */
#include "wq_test.h"

TEST_F(queue, a_key_goes_through_all_states_and_the_statistics_count_it)
{
	struct item it, none;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	ASSERT_TRUE(counts(self->q, "ready 1, processing 0, keys 1, adds 1, coalesced 1"));

	ASSERT_EQ(0, q_get(self->q, &it, FOREVER));
	ASSERT_EQ(1, it.len);
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_TRUE(counts(self->q, "ready 0, processing 1, held 1, keys 1, gets 1, dones 0"));

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &none, 0));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));

	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_TRUE(counts(self->q, "ready 0, processing 0, held 0, keys 0"));
	ASSERT_TRUE(counts(self->q, "adds 2, coalesced 2, gets 2, dones 2"));
}

TEST_F(queue, done_of_a_key_that_is_not_held_fails_and_changes_nothing)
{
	int stranger = q_attach(self->name, O_RDWR);
	struct wq_stat before, strangers;
	struct item old, held, other;

	q_add(self->q, "held");
	ASSERT_EQ(0, q_get(self->q, &old, 0));
	ASSERT_EQ(0, q_done(self->q, &old));
	q_add(self->q, "held");
	ASSERT_EQ(0, q_get(self->q, &held, 0));
	ASSERT_NE(0, held.token);
	ASSERT_NE(old.token, held.token);
	q_add(self->q, "other");
	ASSERT_EQ(0, q_get(self->q, &other, 0));
	q_add(self->q, "ready");

	const struct {
		int q;
		const char *key;
		__u64 token;
		int error;
	} rows[] = {
		{ self->q, "ready", 0, -ENOENT },
		{ self->q, "ready", 1, -ESTALE },
		{ self->q, "unknown", 0, -ENOENT },
		{ self->q, "unknown", 1, -ESTALE },
		/* the token of an earlier get, and those of other keys */
		{ self->q, "held", old.token, -ESTALE },
		{ self->q, "held", other.token, -ESTALE },
		{ self->q, "ready", other.token, -ESTALE },
		{ stranger, "held", 0, -EPERM },
		{ stranger, "held", held.token, -ESTALE },
	};

	before = q_stat(self->q);
	strangers = q_stat(stranger);
	ASSERT_EQ(0, strangers.held);
	ASSERT_EQ(WQ_KEY_PROCESSING, q_query(stranger, "held"));
	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		EXPECT_EQ(rows[i].error, q_donen(rows[i].q, rows[i].key, strlen(rows[i].key),
						 rows[i].token)) {
			TH_LOG("row %d: key %s", i, rows[i].key);
		}
	}
	EXPECT_TRUE(same(&before, self->q));
	EXPECT_TRUE(same(&strangers, stranger));
	ASSERT_EQ(0, q_done(self->q, &held));
	/* without a token the key is enough */
	ASSERT_EQ(0, q_done_key(self->q, "other"));
	ASSERT_EQ(-ESTALE, q_done(self->q, &held));
	ASSERT_EQ(-ENOENT, q_done_key(self->q, "other"));
	close(stranger);
}

TEST_F(queue, get_times_out_and_not_early)
{
	struct wq_stat before = q_stat(self->q);
	static const __s64 timeouts[] = { 1, 1 * MS, 80 * MS };
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(timeouts); i++) {
		__s64 start = now_ns();

		ASSERT_EQ(-ETIMEDOUT, q_get(self->q, &it, timeouts[i]));
		ASSERT_LE(timeouts[i], now_ns() - start);
		ASSERT_GT(2 * SEC, now_ns() - start);
	}
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, get_waits_for_an_add)
{
	static const __s64 timeouts[] = { FOREVER, 20 * SEC, INT64_MAX };
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(timeouts); i++) {
		__s64 start = now_ns();
		pid_t pid = child();

		if (!pid)
			_exit(-(q_get(self->q, &it, timeouts[i]) ?: q_done(self->q, &it)));
		ASSERT_TRUE(asleep(pid));
		ASSERT_TRUE(alive(pid));
		ASSERT_EQ(1, q_add(self->q, "a"));
		ASSERT_EQ(0, reap(pid));
		ASSERT_GT(10 * SEC, now_ns() - start);
	}
}

TEST_F(queue, get_continues_after_SIGSTOP_SIGCONT_and_an_ignored_signal)
{
	struct item it;
	pid_t pid = child();

	if (!pid) {
		signal(SIGUSR1, SIG_IGN);
		_exit(-q_get(self->q, &it, FOREVER));
	}
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	kill(pid, SIGCHLD);
	kill(pid, SIGSTOP);
	ASSERT_EVENTUALLY(proc_state(pid) == 'T');
	kill(pid, SIGCONT);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	q_add(self->q, "a");
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, get_with_concurrent_signals_and_adds_loses_no_key)
{
	int *got = shared(sizeof(*got));
	char key[16];
	pid_t pid = child();

	if (!pid) {
		struct item it;
		int ret;

		handle(SIGUSR1, 0);
		*got = 0;
		do {
			ret = q_get(self->q, &it, FOREVER);
			if (!ret) {
				(*got)++;
				q_done(self->q, &it);
			}
		} while (!ret || ret == -EINTR);
		_exit(-ret);
	}
	ASSERT_TRUE(asleep(pid));
	for (int i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "%d", i);
		if (i % 2)
			kill(pid, SIGUSR1);
		ASSERT_EQ(1, q_add(self->q, key));
		if (!(i % 2))
			kill(pid, SIGUSR1);
		if (i % 50 == 0)
			sleep_ms(1);
	}
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(ESHUTDOWN, reap(pid));
	ASSERT_EQ(1000, *got);
	ASSERT_EQ(1000, q_stat(self->q).gets - q_stat(self->q).given_back);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, add_array_wakes_a_getter_for_each_key)
{
	enum { N = 8 };
	struct array a = array_new(4096);
	struct item it;
	pid_t pid[N];

	for (int i = 0; i < N; i++) {
		array_putf(&a, "%d", i);
		pid[i] = child();
		if (!pid[i])
			_exit(-q_get(self->q, &it, FOREVER));
	}
	for (int i = 0; i < N; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(0, q_add_array(self->q, &a));
	for (int i = 0; i < N; i++)
		ASSERT_EQ(0, reap(pid[i]));
	ASSERT_EQ(N, q_stat(self->q).gets);
}

TEST_F(queue, shutdown_get_returns_remaining_keys_then_ESHUTDOWN)
{
	struct array a = array_new(4096);

	for (int i = 0; i < 3; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
	ASSERT_EQ(3, q_stat(self->q).ready);

	ASSERT_EQ(0, q_get_array(self->q, &a, 2, FOREVER));
	ASSERT_EQ(2, a.count);
	ASSERT_EQ(0, q_get_array(self->q, &a, 2, FOREVER));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(-ESHUTDOWN, q_get_array(self->q, &a, 2, FOREVER));
	ASSERT_EQ(0, a.count);
	ASSERT_EQ(-ESHUTDOWN, q_get_array(self->q, &a, 2, 0));
}

TEST_F(queue, add_accepts_keys_of_1_to_1024_bytes)
{
	char key[WQ_MAX_KEY];
	struct item it;

	memset(key, 'x', sizeof(key));
	for (int len = 1; len <= WQ_MAX_KEY; len++)
		ASSERT_EQ(1, q_addn(self->q, key, len));
	for (int len = 1; len <= WQ_MAX_KEY; len++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(len, it.len);
		ASSERT_EQ(0, memcmp(key, it.key, len));
		ASSERT_EQ(0, q_done(self->q, &it));
	}
}

TEST_F(queue, add_ignores_the_padding_behind_a_key)
{
	union one one;
	struct array a = { .recs = rec_set(&one, "abc", 3, 0), .used = WQ_REC_SIZE(3), .count = 1 };

	ASSERT_EQ(1, q_add(self->q, "abc"));
	memset(one.rec.key + 3, 0x5a, 5);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_TRUE(counts(self->q, "coalesced 1, keys 1"));
}

TEST_F(queue, cancel_of_a_dirty_processing_key_drops_the_pending_run)
{
	int stranger = q_attach(self->name, O_RDWR);
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	q_add(self->q, "a");
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DIRTY, q_cancel(stranger, "a"));
	ASSERT_EQ(1, q_stat(self->q).canceled);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
}

TEST_HARNESS_MAIN
