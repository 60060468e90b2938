// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every call of libwq once, on what its header promises.
 */
#include <kselftest_harness.h>

#include <libwq.h>

FIXTURE(libwq) {
	int q;
	char name[WQ_NAME_MAX];
};

FIXTURE_SETUP(libwq)
{
	snprintf(self->name, sizeof(self->name), "selftest-%d", getpid());
	self->q = wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 100);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(libwq)
{
	wq_unlink(self->name);
	close(self->q);
}

TEST_F(libwq, a_key_is_added_got_and_done)
{
	struct wq_item item;

	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_add(self->q, "alice", 5));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_FOREVER));
	ASSERT_EQ(5, item.len);
	ASSERT_STREQ("alice", item.key);
	ASSERT_NE(0, item.token);
	ASSERT_EQ(1, wq_add(self->q, "alice", 5));
	ASSERT_EQ(1, wq_done(self->q, &item));
	ASSERT_EQ(0, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(0, wq_done_key(self->q, "alice", 5));
	ASSERT_EQ(-1, wq_done(self->q, &item));
	ASSERT_EQ(ESTALE, errno);
}

TEST_F(libwq, a_key_has_up_to_1024_bytes)
{
	char key[WQ_MAX_KEY + 1];
	struct wq_item item;

	memset(key, 'x', sizeof(key));
	ASSERT_EQ(1, wq_add(self->q, key, WQ_MAX_KEY));
	ASSERT_EQ(0, wq_get(self->q, &item, 0));
	ASSERT_EQ(WQ_MAX_KEY, item.len);
	ASSERT_EQ(0, memcmp(key, item.key, WQ_MAX_KEY));
	ASSERT_EQ(0, item.key[WQ_MAX_KEY]);
	ASSERT_EQ(-1, wq_add(self->q, key, WQ_MAX_KEY + 1));
	ASSERT_EQ(E2BIG, errno);
	ASSERT_EQ(-1, wq_add(self->q, key, 65536 + 1));
	ASSERT_EQ(E2BIG, errno);
	ASSERT_EQ(-1, wq_add(self->q, key, 0));
	ASSERT_EQ(EINVAL, errno);
}

TEST_F(libwq, a_get_of_nothing_says_why)
{
	struct wq_item item;

	ASSERT_EQ(-1, wq_get(self->q, &item, WQ_NOWAIT));
	ASSERT_EQ(EAGAIN, errno);
	ASSERT_EQ(-1, wq_get(self->q, &item, 1000000));
	ASSERT_EQ(ETIMEDOUT, errno);
	ASSERT_EQ(0, wq_shutdown(self->q));
	ASSERT_EQ(-1, wq_get(self->q, &item, WQ_FOREVER));
	ASSERT_EQ(ESHUTDOWN, errno);
	ASSERT_EQ(-1, wq_add(self->q, "a", 1));
	ASSERT_EQ(ESHUTDOWN, errno);
	ASSERT_EQ(0, wq_drain(self->q));
}

TEST_F(libwq, query_and_cancel_tell_the_state)
{
	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_query(self->q, "a", 1));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, wq_cancel(self->q, "a", 1));
	ASSERT_EQ(-1, wq_query(self->q, "a", 1));
	ASSERT_EQ(ENOENT, errno);
	ASSERT_EQ(-1, wq_cancel(self->q, "a", 1));
	ASSERT_EQ(ENOENT, errno);
}

TEST_F(libwq, stat_and_info_tell_the_figures)
{
	struct wq_info info;
	struct wq_stat st;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_STREQ(self->name, st.name);
	ASSERT_EQ(1, st.ready);
	ASSERT_EQ(100, st.max_keys);
	ASSERT_EQ(0, wq_info(&info));
	ASSERT_EQ(WQ_API_VERSION, info.version);
}

TEST_F(libwq, open_knows_the_flags_of_mq_open)
{
	struct wq_stat st;
	int q;

	q = wq_open(self->name, O_RDWR, 0, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(FD_CLOEXEC, fcntl(q, F_GETFD) & FD_CLOEXEC);
	ASSERT_EQ(-1, wq_open(self->name, O_RDWR | O_CREAT | O_EXCL, 0600, 0));
	ASSERT_EQ(EEXIST, errno);
	ASSERT_EQ(-1, wq_open("selftest-none", O_RDWR, 0, 0));
	ASSERT_EQ(ENOENT, errno);
	ASSERT_EQ(-1, wq_unlink("selftest-none"));
	ASSERT_EQ(ENOENT, errno);
	q = wq_open(self->name, O_WRONLY | O_NONBLOCK, 0, 0);
	ASSERT_LE(0, q);
	ASSERT_EQ(O_NONBLOCK, fcntl(q, F_GETFL) & O_NONBLOCK);
	ASSERT_EQ(-1, wq_query(q, "a", 1));
	ASSERT_EQ(EACCES, errno);
	q = wq_open(NULL, O_RDWR, 0, 5);
	ASSERT_LE(0, q);
	ASSERT_EQ(0, wq_stat(q, &st));
	ASSERT_STREQ("", st.name);
	ASSERT_EQ(5, st.max_keys);
}

TEST_F(libwq, a_batch_travels_in_one_call)
{
	struct wq_batch in = WQ_BATCH_INIT, out = WQ_BATCH_INIT;
	struct wq_view v;
	int n = 0;

	for (char c = 'a'; c < 'e'; c++)
		ASSERT_EQ(0, wq_batch_put(&in, &c, 1, 0));
	ASSERT_EQ(0, wq_batch_put(&in, "a", 1, 0));
	ASSERT_EQ(5, wq_add_batch(self->q, &in));
	while (wq_batch_next(&in, &v)) {
		ASSERT_EQ("abcda"[n], *(const char *)v.key);
		ASSERT_EQ(n < 4, v.result);
		n++;
	}
	ASSERT_EQ(5, n);

	ASSERT_EQ(3, wq_get_batch(self->q, &out, 3, WQ_FOREVER));
	ASSERT_EQ(3, out.count);
	n = 0;
	while (wq_batch_next(&out, &v)) {
		ASSERT_EQ(1, v.len);
		ASSERT_EQ('a' + n++, *(const char *)v.key);
		ASSERT_NE(0, v.token);
	}
	ASSERT_EQ(1, wq_add(self->q, "b", 1));
	ASSERT_EQ(3, wq_done_batch(self->q, &out));
	n = 0;
	while (wq_batch_next(&out, &v))
		ASSERT_EQ(n++ == 1, v.result);
	ASSERT_EQ(3, n);
	wq_batch_reset(&in);
	ASSERT_EQ(0, in.count);
	ASSERT_FALSE(wq_batch_next(&in, &v));
	wq_batch_free(&in);
	wq_batch_free(&out);
}

TEST_F(libwq, a_batch_has_up_to_1_MiB)
{
	struct wq_batch b = WQ_BATCH_INIT;
	int n = WQ_MAX_ARRAY / WQ_REC_SIZE(4);

	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, wq_batch_put(&b, &i, sizeof(i), 0));
	ASSERT_EQ(-1, wq_batch_put(&b, &n, sizeof(n), 0));
	ASSERT_EQ(E2BIG, errno);
	ASSERT_EQ(n, b.count);
	wq_batch_free(&b);
}

TEST_F(libwq, a_batch_that_was_full_can_be_got_into)
{
	struct wq_batch b = WQ_BATCH_INIT;

	ASSERT_EQ(1, wq_add(self->q, "a", 1));
	ASSERT_EQ(1, wq_get_batch(self->q, &b, 900, WQ_NOWAIT));
	while (!wq_batch_put(&b, "b", 1, 0))
		;
	ASSERT_EQ(E2BIG, errno);
	ASSERT_EQ(1, wq_add(self->q, "c", 1));
	ASSERT_EQ(1, wq_get_batch(self->q, &b, 900, WQ_NOWAIT));
	wq_batch_free(&b);
}

TEST_F(libwq, list_walks_over_all_keys)
{
	struct wq_batch b = WQ_BATCH_INIT;
	int seen[50] = { 0 }, ret;
	uint64_t cursor = 0;
	struct wq_view v;

	for (int i = 0; i < 50; i++)
		ASSERT_EQ(1, wq_add(self->q, &i, sizeof(i)));
	do {
		ret = wq_list(self->q, &b, 7, &cursor);
		ASSERT_LE(0, ret);
		ASSERT_GE(7, ret);
		while (wq_batch_next(&b, &v)) {
			ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, v.state);
			seen[*(const int *)v.key]++;
		}
	} while (cursor);
	for (int i = 0; i < 50; i++)
		ASSERT_EQ(1, seen[i]);
	wq_batch_free(&b);
}

TEST_F(libwq, a_key_can_be_added_for_later_alone_and_in_a_batch)
{
	const int64_t hour = 3600LL * 1000000000;
	struct wq_batch b = WQ_BATCH_INIT;
	struct wq_stat st;
	struct wq_view v;

	ASSERT_EQ(1, wq_add_after(self->q, "a", 1, 2 * hour, 0));
	ASSERT_EQ(0, wq_add_after(self->q, "a", 1, 3 * hour, WQ_ADD_TAKE_LATEST));
	ASSERT_EQ(1, wq_add_after(self->q, "b", 1, 0, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(-1, wq_add_after(self->q, "c", 1, hour, 1 << 16));
	ASSERT_EQ(EINVAL, errno);
	ASSERT_EQ(-1, wq_add_after(self->q, "c", 1, hour, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(EINVAL, errno);

	ASSERT_EQ(0, wq_batch_put_after(&b, "a", 1, hour, 0));
	ASSERT_EQ(0, wq_batch_put_after(&b, "d", 1, hour, WQ_ADD_KEEP_FIRST));
	ASSERT_EQ(0, wq_batch_put(&b, "e", 1, 0));
	ASSERT_EQ(3, wq_add_batch(self->q, &b));
	ASSERT_TRUE(wq_batch_next(&b, &v));
	ASSERT_EQ(0, v.result);
	ASSERT_TRUE(wq_batch_next(&b, &v));
	ASSERT_EQ(1, v.result);
	wq_batch_free(&b);

	ASSERT_EQ(0, wq_stat(self->q, &st));
	ASSERT_EQ(2, st.delayed);
	ASSERT_EQ(2, st.ready);
	ASSERT_GE(hour, st.next_due);
	ASSERT_EQ(WQ_KEY_DELAYED, wq_query(self->q, "d", 1));
}

TEST_HARNESS_MAIN
