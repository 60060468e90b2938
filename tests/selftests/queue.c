// SPDX-License-Identifier: GPL-2.0-only
/* add, get, done, cancel, shutdown: the life of a key, through /dev/wq. */
#include "wq_test.h"

TEST_F(queue, add_of_a_new_key_returns_1)
{
	struct wq_stat st;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(1, q_add(self->q, "b"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	st = q_stat(self->q);
	ASSERT_EQ(2, st.adds);
	ASSERT_EQ(0, st.coalesced);
	ASSERT_EQ(2, st.ready);
	ASSERT_EQ(2, st.keys);
}

TEST_F(queue, add_of_a_dirty_key_is_coalesced)
{
	struct wq_stat st;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	st = q_stat(self->q);
	ASSERT_EQ(1, st.adds);
	ASSERT_EQ(2, st.coalesced);
	ASSERT_EQ(1, st.ready);
	ASSERT_EQ(1, st.keys);
}

TEST_F(queue, add_coalesced_leaves_the_key_in_its_place)
{
	struct item it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("b", it.key);
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
}

TEST_F(queue, get_makes_the_key_processing_and_not_dirty)
{
	struct item it;
	struct wq_stat st;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_get(self->q, &it, FOREVER));
	ASSERT_EQ(1, it.len);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	st = q_stat(self->q);
	ASSERT_EQ(0, st.ready);
	ASSERT_EQ(1, st.processing);
	ASSERT_EQ(1, st.held);
	ASSERT_EQ(1, st.keys);
	ASSERT_EQ(1, st.gets);
	ASSERT_EQ(0, st.dones);
}

TEST_F(queue, done_removes_the_key)
{
	struct item it;
	struct wq_stat st;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	st = q_stat(self->q);
	ASSERT_EQ(0, st.ready);
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(0, st.held);
	ASSERT_EQ(0, st.keys);
	ASSERT_EQ(1, st.dones);
}

TEST_F(queue, add_during_processing_hands_the_key_out_once_more)
{
	struct item it, none;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	ASSERT_EQ(0, q_add(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(0, q_stat(self->q).ready);
	ASSERT_EQ(-EAGAIN, q_get(self->q, &none, 0));

	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "a"));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	ASSERT_EQ(2, q_stat(self->q).adds);
	ASSERT_EQ(2, q_stat(self->q).coalesced);
	ASSERT_EQ(2, q_stat(self->q).gets);
}

TEST_F(queue, done_of_a_dirty_key_puts_it_at_the_tail)
{
	struct item a, it;

	q_add(self->q, "a");
	q_get(self->q, &a, 0);
	q_add(self->q, "a");
	q_add(self->q, "b");
	ASSERT_EQ(1, q_done(self->q, &a));
	q_get(self->q, &it, 0);
	ASSERT_STREQ("b", it.key);
	q_get(self->q, &it, 0);
	ASSERT_STREQ("a", it.key);
}

TEST_F(queue, get_returns_keys_in_the_order_of_add)
{
	struct item it;
	char key[16];

	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "key-%d", i * 7919 % 10000);
		ASSERT_EQ(1, q_add(self->q, key));
	}
	ASSERT_EQ(10000, q_stat(self->q).ready);
	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "key-%d", i * 7919 % 10000);
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_STREQ(key, it.key);
		ASSERT_EQ(0, q_done(self->q, &it));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, get_returns_a_unique_token_that_is_not_0)
{
	struct item it;
	__u64 last = 0;

	for (int i = 0; i < 100; i++) {
		q_add(self->q, "a");
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_NE(0, it.token);
		ASSERT_NE(last, it.token);
		last = it.token;
		ASSERT_EQ(0, q_done(self->q, &it));
	}
}

TEST_F(queue, done_of_a_ready_key_fails_and_changes_nothing)
{
	struct wq_stat before;

	q_add(self->q, "ready");
	before = q_stat(self->q);
	ASSERT_EQ(-ENOENT, q_done_key(self->q, "ready"));
	ASSERT_EQ(-ENOENT, q_done_key(self->q, "unknown"));
	ASSERT_EQ(-ESTALE, q_donen(self->q, "ready", 5, 1));
	ASSERT_EQ(-ESTALE, q_donen(self->q, "unknown", 7, 1));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "ready"));
}

TEST_F(queue, done_twice_fails_and_changes_nothing)
{
	struct wq_stat before;
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, q_done(self->q, &it));
	before = q_stat(self->q);
	ASSERT_EQ(-ESTALE, q_done(self->q, &it));
	ASSERT_EQ(-ENOENT, q_done_key(self->q, "a"));
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, done_by_another_consumer_fails_and_changes_nothing)
{
	int stranger = q_attach(self->name, O_RDWR);
	struct wq_stat before, strangers;
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	before = q_stat(self->q);
	strangers = q_stat(stranger);
	ASSERT_EQ(0, strangers.held);
	ASSERT_EQ(WQ_KEY_PROCESSING, q_query(stranger, "a"));
	ASSERT_EQ(-EPERM, q_done_key(stranger, "a"));
	ASSERT_EQ(-ESTALE, q_done(stranger, &it));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_TRUE(same(&strangers, stranger));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(queue, done_with_the_token_of_an_earlier_get_fails_with_ESTALE)
{
	struct item old, new;
	struct wq_stat before;

	q_add(self->q, "a");
	q_get(self->q, &old, 0);
	q_done(self->q, &old);
	q_add(self->q, "a");
	q_get(self->q, &new, 0);
	before = q_stat(self->q);
	ASSERT_EQ(-ESTALE, q_done(self->q, &old));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(0, q_done(self->q, &new));
}

TEST_F(queue, done_with_the_token_of_another_key_fails_with_ESTALE)
{
	struct item a, b;
	struct wq_stat before;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_get(self->q, &a, 0);
	q_get(self->q, &b, 0);
	before = q_stat(self->q);
	ASSERT_EQ(-ESTALE, q_donen(self->q, "a", 1, b.token));
	ASSERT_EQ(-ESTALE, q_donen(self->q, "c", 1, b.token));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_EQ(0, q_done(self->q, &b));
}

TEST_F(queue, done_without_a_token_uses_the_key)
{
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, q_done_key(self->q, "a"));
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, get_with_timeout_0_fails_with_EAGAIN)
{
	struct wq_stat before = q_stat(self->q);
	struct item it;

	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, get_on_an_O_NONBLOCK_file_does_not_wait)
{
	int q = q_attach(self->name, O_RDWR | O_NONBLOCK);
	struct item it;

	ASSERT_EQ(-EAGAIN, q_get(q, &it, FOREVER));
	ASSERT_EQ(-EAGAIN, q_get(q, &it, 10 * SEC));
	q_add(q, "a");
	ASSERT_EQ(0, q_get(q, &it, FOREVER));
	ASSERT_EQ(0, fcntl(self->q, F_SETFL, O_NONBLOCK));
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, FOREVER));
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

TEST_F(queue, get_with_a_timeout_near_the_maximum_waits)
{
	struct item it;
	pid_t pid = child();

	if (!pid)
		_exit(-q_get(self->q, &it, INT64_MAX));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, get_with_a_timeout_returns_at_add)
{
	__s64 start = now_ns();
	struct item it;
	pid_t pid = child();

	if (!pid)
		_exit(-q_get(self->q, &it, 20 * SEC));
	ASSERT_TRUE(asleep(pid));
	q_add(self->q, "a");
	ASSERT_EQ(0, reap(pid));
	ASSERT_GT(10 * SEC, now_ns() - start);
}

TEST_F(queue, get_fails_with_EINTR_after_a_signal_handler)
{
	static const int flags[] = { 0, SA_RESTART };
	struct wq_stat before = q_stat(self->q);
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(flags); i++) {
		pid_t pid = child();

		if (!pid) {
			handle(SIGUSR1, flags[i]);
			_exit(-q_get(self->q, &it, FOREVER));
		}
		ASSERT_TRUE(asleep(pid));
		kill(pid, SIGUSR1);
		ASSERT_EQ(EINTR, reap(pid));
	}
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, get_EINTR_leaves_the_timeout_and_sets_the_deadline)
{
	struct wq_get *get = shared(sizeof(*get));
	__s64 begun = now_ns();
	union one one;
	pid_t pid;

	get->size = sizeof(*get);
	get->keys = (struct wq_keys){ addr_of(&one), sizeof(one), 1 };
	get->timeout = 20 * SEC;
	pid = child();
	if (!pid) {
		handle(SIGUSR1, 0);
		_exit(-verb(self->q, WQ_IOC_GET, get));
	}
	ASSERT_TRUE(asleep(pid));
	sleep_ms(100);
	kill(pid, SIGUSR1);
	ASSERT_EQ(EINTR, reap(pid));
	ASSERT_EQ(20 * SEC, get->timeout);
	ASSERT_LE(begun + 20 * SEC, get->deadline);
	ASSERT_GE(now_ns() + 20 * SEC - 100 * MS, get->deadline);
}

TEST_F(queue, get_EINTR_leaves_an_infinite_timeout)
{
	struct wq_get *get = shared(sizeof(*get));
	union one one;
	pid_t pid;

	get->size = sizeof(*get);
	get->keys = (struct wq_keys){ addr_of(&one), sizeof(one), 1 };
	get->timeout = FOREVER;
	pid = child();
	if (!pid) {
		handle(SIGUSR1, 0);
		_exit(-verb(self->q, WQ_IOC_GET, get));
	}
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	ASSERT_EQ(EINTR, reap(pid));
	ASSERT_EQ(FOREVER, get->timeout);
	ASSERT_EQ(INT64_MAX, get->deadline);
}

TEST_F(queue, get_continues_after_SIGSTOP_and_SIGCONT)
{
	struct item it;
	pid_t pid = child();

	if (!pid)
		_exit(-q_get(self->q, &it, FOREVER));
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGSTOP);
	while (proc_state(pid) != 'T')
		sleep_ms(1);
	kill(pid, SIGCONT);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	q_add(self->q, "a");
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, get_timeout_includes_SIGSTOP)
{
	__s64 *took = shared(sizeof(*took));
	struct item it;
	pid_t pid = child();

	if (!pid) {
		__s64 start = now_ns();
		int ret = q_get(self->q, &it, 1200 * MS);

		*took = now_ns() - start;
		_exit(-ret);
	}
	sleep_ms(900);
	kill(pid, SIGSTOP);
	while (proc_state(pid) != 'T')
		sleep_ms(1);
	kill(pid, SIGCONT);
	ASSERT_EQ(ETIMEDOUT, reap(pid));
	ASSERT_LE(1200 * MS, *took);
	ASSERT_GT(1900 * MS, *took);
}

TEST_F(queue, get_continues_after_an_ignored_signal)
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
	ASSERT_TRUE(asleep(pid));
	q_add(self->q, "a");
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, get_ends_at_a_fatal_signal)
{
	static const int signals[] = { SIGKILL, SIGTERM };
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(signals); i++) {
		pid_t pid = child();

		if (!pid)
			_exit(-q_get(self->q, &it, FOREVER));
		ASSERT_TRUE(asleep(pid));
		kill(pid, signals[i]);
		ASSERT_EQ(1000 + signals[i], reap(pid));
	}
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

TEST_F(queue, add_wakes_one_getter)
{
	struct item it;
	int waiting = 0;
	pid_t pid[4];

	for (int i = 0; i < 4; i++) {
		pid[i] = child();
		if (!pid[i])
			_exit(-q_get(self->q, &it, FOREVER));
	}
	for (int i = 0; i < 4; i++)
		ASSERT_TRUE(asleep(pid[i]));
	q_add(self->q, "a");
	waitpid(-1, NULL, 0);
	sleep_ms(20);
	for (int i = 0; i < 4; i++)
		waiting += alive(pid[i]) && asleep(pid[i]);
	ASSERT_EQ(3, waiting);
	ASSERT_EQ(1, q_stat(self->q).gets);
}

TEST_F(queue, adds_for_each_getter_wake_them_all)
{
	enum { N = 16 };
	struct item *item = shared(N * sizeof(*item));
	char key[16];
	pid_t pid[N];

	for (int i = 0; i < N; i++) {
		pid[i] = child();
		if (!pid[i])
			_exit(-q_get(self->q, &item[i], FOREVER));
	}
	for (int i = 0; i < N; i++)
		ASSERT_TRUE(asleep(pid[i]));
	for (int i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "%d", i);
		ASSERT_EQ(1, q_add(self->q, key));
	}
	for (int i = 0; i < N; i++)
		ASSERT_EQ(0, reap(pid[i]));
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < i; j++)
			ASSERT_STRNE(item[i].key, item[j].key);
	}
	ASSERT_EQ(N, q_stat(self->q).processing);
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

TEST_F(queue, get_killed_during_add_does_not_lose_the_key)
{
	for (int i = 0; i < 40; i++) {
		struct item it;
		pid_t first, second;

		first = child();
		if (!first)
			_exit(-q_get(q_attach(self->name, O_RDWR), &it, FOREVER));
		ASSERT_TRUE(asleep(first));
		second = child();
		if (!second) {
			int q = q_attach(self->name, O_RDWR);

			_exit(-(q_get(q, &it, FOREVER) ?: q_done(q, &it)));
		}
		ASSERT_TRUE(asleep(second));
		if (i % 2)
			kill(first, SIGKILL);
		q_add(self->q, "a");
		if (!(i % 2))
			kill(first, SIGKILL);
		reap(first);
		ASSERT_EQ(0, reap(second));
		ASSERT_EQ(0, q_stat(self->q).keys);
	}
}

TEST_F(queue, done_of_a_dirty_key_wakes_a_getter)
{
	struct item a, it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &a, 0);
	pid = child();
	if (!pid)
		_exit(-(q_get(self->q, &it, FOREVER) ?: strcmp(it.key, "a")));
	ASSERT_TRUE(asleep(pid));
	q_add(self->q, "a");
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(1, q_done(self->q, &a));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, shutdown_wakes_every_getter)
{
	struct item it;
	pid_t pid[4];

	for (int i = 0; i < 4; i++) {
		pid[i] = child();
		if (!pid[i])
			_exit(-q_get(self->q, &it, i % 2 ? FOREVER : 20 * SEC));
	}
	for (int i = 0; i < 4; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(ESHUTDOWN, reap(pid[i]));
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

TEST_F(queue, shutdown_get_returns_keys_or_ESHUTDOWN_but_not_both)
{
	struct array a = array_new(4096);

	for (int i = 0; i < 30; i++) {
		int q = q_private(0);
		int *got = shared(sizeof(*got));
		pid_t pid = child();

		if (!pid) {
			int ret;

			*got = 0;
			do {
				memset(a.recs, 0x5a, a.room);
				ret = q_get_array(q, &a, 4, FOREVER);
				*got += ret ? 0 : a.count;
			} while (!ret);
			if (a.count || *(char *)a.recs != 0x5a)
				_exit(1);
			_exit(-ret);
		}
		q_add(q, "a");
		q_add(q, "b");
		q_shutdown(q);
		ASSERT_EQ(ESHUTDOWN, reap(pid));
		ASSERT_EQ(2, *got);
		ASSERT_EQ(2, q_stat(q).processing);
		munmap(got, sizeof(*got));
		close(q);
	}
}

TEST_F(queue, shutdown_add_fails_with_ESHUTDOWN_and_changes_nothing)
{
	struct wq_stat before;
	struct item it;

	q_add(self->q, "processing");
	q_add(self->q, "ready");
	q_get(self->q, &it, 0);
	ASSERT_STREQ("processing", it.key);
	q_shutdown(self->q);
	before = q_stat(self->q);
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "new"));
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "ready"));
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "processing"));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "processing"));
	ASSERT_EQ(0, q_done(self->q, &it));
}

TEST_F(queue, shutdown_hands_out_a_key_that_was_dirty_while_processing)
{
	struct item it, none;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	q_add(self->q, "a");
	q_shutdown(self->q);
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &none, 0));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("a", it.key);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
}

TEST_F(queue, shutdown_may_be_repeated)
{
	struct wq_stat before;

	q_add(self->q, "a");
	ASSERT_EQ(0, q_shutdown(self->q));
	before = q_stat(self->q);
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_TRUE(same(&before, self->q));
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

TEST_F(queue, keys_are_compared_bytewise)
{
	static const struct {
		const char *key;
		size_t len;
	} keys[] = {
		{ "\0", 1 }, { "\0\0", 2 }, { "\0\0\0\0\0\0\0\0", 8 }, { "a", 1 }, { "a\0", 2 },
		{ "ab", 2 }, { "a\0b", 3 }, { "a\0c", 3 }, { "abcdefgh", 8 }, { "abcdefg", 7 },
		{ "abcdefgh\0", 9 }, { "A", 1 }, { "\xff", 1 }, { "\xff\xff", 2 },
	};
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(keys); i++)
		ASSERT_EQ(1, q_addn(self->q, keys[i].key, keys[i].len));
	for (int i = 0; i < ARRAY_SIZE(keys); i++)
		ASSERT_EQ(0, q_addn(self->q, keys[i].key, keys[i].len));
	for (int i = 0; i < ARRAY_SIZE(keys); i++) {
		ASSERT_EQ(0, q_get(self->q, &it, 0));
		ASSERT_EQ(keys[i].len, it.len);
		ASSERT_EQ(0, memcmp(keys[i].key, it.key, it.len));
	}
}

TEST_F(queue, add_ignores_the_padding_behind_a_key)
{
	union one one;
	struct array a = { .recs = rec_set(&one, "abc", 3, 0), .used = WQ_REC_SIZE(3), .count = 1 };

	ASSERT_EQ(1, q_add(self->q, "abc"));
	memset(one.rec.key + 3, 0x5a, 5);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(1, q_stat(self->q).coalesced);
	ASSERT_EQ(1, q_stat(self->q).keys);
}

/* ---- cancel, query ---- */

TEST_F(queue, cancel_of_a_ready_key_drops_it)
{
	struct item it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_add(self->q, "c");
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "b"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "b"));
	ASSERT_EQ(1, q_stat(self->q).canceled);
	ASSERT_EQ(2, q_stat(self->q).keys);
	q_get(self->q, &it, 0);
	ASSERT_STREQ("a", it.key);
	q_get(self->q, &it, 0);
	ASSERT_STREQ("c", it.key);
	ASSERT_EQ(-EAGAIN, q_get(self->q, &it, 0));
}

TEST_F(queue, cancel_of_a_processing_key_leaves_it_processing)
{
	struct wq_stat before;
	struct item it;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	before = q_stat(self->q);
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_cancel(self->q, "a"));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "a"));
	ASSERT_EQ(before.processing, q_stat(self->q).processing);
	ASSERT_EQ(0, q_stat(self->q).canceled);
	ASSERT_EQ(0, q_done(self->q, &it));
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

TEST_F(queue, cancel_of_an_unknown_key_fails_with_ENOENT)
{
	struct wq_stat before = q_stat(self->q);

	ASSERT_EQ(-ENOENT, q_cancel(self->q, "a"));
	ASSERT_EQ(-ENOENT, q_query(self->q, "a"));
	ASSERT_TRUE(same(&before, self->q));
}

TEST_F(queue, cancel_works_after_shutdown)
{
	struct item it;

	q_add(self->q, "a");
	q_shutdown(self->q);
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "a"));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
}

TEST_F(queue, add_of_a_canceled_key_works)
{
	struct item it;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_cancel(self->q, "a");
	ASSERT_EQ(1, q_add(self->q, "a"));
	q_get(self->q, &it, 0);
	ASSERT_STREQ("b", it.key);
	q_get(self->q, &it, 0);
	ASSERT_STREQ("a", it.key);
}

TEST_F(queue, get_leaves_the_timeout_after_success_and_ETIMEDOUT)
{
	struct wq_get get = { .size = sizeof(get), .timeout = 20 * MS };
	__u64 buf[256];

	get.keys = (struct wq_keys){ .addr = (uintptr_t)buf, .size = sizeof(buf), .count = 1 };
	ASSERT_EQ(-ETIMEDOUT, verb(self->q, WQ_IOC_GET, &get));
	ASSERT_EQ(20 * MS, get.timeout);
	ASSERT_EQ(1, get.keys.count);
	ASSERT_EQ(sizeof(buf), get.keys.size);

	q_add(self->q, "a");
	ASSERT_EQ(0, verb(self->q, WQ_IOC_GET, &get));
	ASSERT_EQ(20 * MS, get.timeout);
}

TEST_HARNESS_MAIN
