// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shut down with drain: it waits for all that is ready or processing.
 */
#include "wq_test.h"

TEST_F(queue, drain_of_an_empty_queue_returns_at_once)
{
	struct item it;

	ASSERT_EQ(0, q_drain(self->q));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "a"));
	ASSERT_EQ(-ESHUTDOWN, q_get(self->q, &it, FOREVER));
	ASSERT_EQ(0, q_drain(self->q));
}

TEST_F(queue, drain_waits_for_ready_and_for_processing_keys)
{
	struct item a, b;
	pid_t pid;

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_get(self->q, &a, 0);
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING, q_stat(self->q).state);
	ASSERT_EQ(0, q_done(self->q, &a));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_get(self->q, &b, 0));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_done(self->q, &b));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, drain_waits_for_keys_added_during_processing)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	q_add(self->q, "a");
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(1, q_done(self->q, &it));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_get(self->q, &it, FOREVER));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_wakes_getters_and_add_fails)
{
	struct item it, held;
	pid_t getter, pid;

	q_add(self->q, "held");
	q_get(self->q, &held, 0);
	getter = child();
	if (!getter)
		_exit(-q_get(self->q, &it, FOREVER));
	ASSERT_TRUE(asleep(getter));
	pid = drainer(self->q);
	ASSERT_EQ(ESHUTDOWN, reap(getter));
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "a"));
	ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "held"));
	ASSERT_EQ(0, q_done(self->q, &held));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_end_wakes_every_drainer)
{
	struct item it;
	pid_t pid[3];

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	for (int i = 0; i < 3; i++)
		pid[i] = drainer(self->q);
	for (int i = 0; i < 3; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(0, q_done(self->q, &it));
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, reap(pid[i]));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
}

TEST_F(queue, shutdown_ends_every_drain_with_ECANCELED)
{
	struct item it;
	pid_t pid[3];

	q_add(self->q, "a");
	q_add(self->q, "b");
	q_get(self->q, &it, 0);
	for (int i = 0; i < 3; i++)
		pid[i] = drainer(self->q);
	for (int i = 0; i < 3; i++)
		ASSERT_TRUE(asleep(pid[i]));
	ASSERT_EQ(0, q_shutdown(self->q));
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(ECANCELED, reap(pid[i]));
	ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(1, q_stat(self->q).processing);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_STREQ("b", it.key);
}

TEST_F(queue, drain_after_shutdown_waits)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_shutdown(self->q);
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING, q_stat(self->q).state);
	q_get(self->q, &it, 0);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_ends_at_a_fatal_signal_and_the_shutdown_remains)
{
	static const int signals[] = { SIGKILL, SIGTERM };
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	for (int i = 0; i < ARRAY_SIZE(signals); i++) {
		pid = drainer(self->q);
		ASSERT_TRUE(asleep(pid));
		kill(pid, signals[i]);
		ASSERT_EQ(1000 + signals[i], reap(pid));
		ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(self->q).state);
		ASSERT_EQ(-ESHUTDOWN, q_add(self->q, "b"));
	}
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_of_others_continues_after_a_drainer_is_killed)
{
	struct item it;
	pid_t killed, pid;

	q_add(self->q, "a");
	killed = drainer(self->q);
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(killed));
	ASSERT_TRUE(asleep(pid));
	kill(killed, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(killed));
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING, q_stat(self->q).state);
	q_get(self->q, &it, 0);
	q_done(self->q, &it);
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_continues_after_a_signal_handler)
{
	struct item it;
	pid_t pid;

	q_add(self->q, "a");
	q_get(self->q, &it, 0);
	pid = child();
	if (!pid) {
		handle(SIGUSR1, 0);
		_exit(-q_drain(self->q));
	}
	ASSERT_TRUE(asleep(pid));
	kill(pid, SIGUSR1);
	sleep_ms(20);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	q_done(self->q, &it);
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_waits_for_keys_given_back_by_a_dead_consumer)
{
	struct item it;
	pid_t consumer, pid;

	q_add(self->q, "a");
	consumer = child();
	if (!consumer) {
		q_get(q_attach(self->name, O_RDWR), &it, 0);
		pause();
	}
	ASSERT_TRUE(asleep(consumer));
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	kill(consumer, SIGKILL);
	reap(consumer);
	ASSERT_TRUE(asleep(pid));
	ASSERT_TRUE(alive(pid));
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, cancel_of_the_last_key_ends_the_drain)
{
	pid_t pid;

	q_add(self->q, "a");
	pid = drainer(self->q);
	ASSERT_TRUE(asleep(pid));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(self->q, "a"));
	ASSERT_EQ(0, reap(pid));
}

TEST_F(queue, drain_with_busy_consumers_leaves_no_key)
{
	enum { KEYS = 500 };
	struct array a = array_new(KEYS * 64);
	pid_t pid[4];

	for (int i = 0; i < KEYS; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	for (int i = 0; i < 4; i++) {
		pid[i] = child();
		if (!pid[i]) {
			int q = q_attach(self->name, O_RDWR), ret;
			struct item it;

			while (!(ret = q_get(q, &it, FOREVER))) {
				q_add(q, it.key);
				q_done(q, &it);
			}
			_exit(-ret);
		}
	}
	sleep_ms(50);
	ASSERT_EQ(0, q_drain(self->q));
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_EQ(q_stat(self->q).gets, q_stat(self->q).dones);
	ASSERT_EQ(q_stat(self->q).gets, q_stat(self->q).adds);
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(ESHUTDOWN, reap(pid[i]));
}

TEST_HARNESS_MAIN
