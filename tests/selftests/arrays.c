// SPDX-License-Identifier: GPL-2.0-only
/* Arrays of keys: a result for each key, the count, and EFAULT at every place of an array. */
#include "wq_test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <linux/userfaultfd.h>

#define N	5		/* keys of an array here */

/* An array of the keys a, b, c, ... */
static struct array letters(int n)
{
	struct array a = array_new(1 << 16);

	for (int i = 0; i < n; i++)
		array_putf(&a, "%c", 'a' + i);
	return a;
}

/* As letters(), but record i and all after it are in unmapped memory. */
static struct array letters_till(int n, int i)
{
	struct array from = letters(n), a = from;

	a.recs = edge(i * WQ_REC_SIZE(1));
	memcpy(a.recs, from.recs, i * WQ_REC_SIZE(1));
	free(from.recs);
	return a;
}

/* ---- an array that ends in unmapped memory, at each multiple of 8 bytes ---- */

#define CUT_KEYS	13

/* Keys of 1 byte, of 5 to 64, and of up to 300 bytes. */
static struct array keys_of_lengths(int kind)
{
	struct array a = array_new(1 << 14);
	char key[WQ_MAX_KEY];

	for (int i = 0; i < CUT_KEYS; i++) {
		int len = kind == 0 ? 1 : kind == 1 ? 5 + i * 37 % 60 : 1 + i * 131 % 300;

		memset(key, 'x', len);
		key[0] = 'a' + i;
		array_put(&a, key, len, 0);
	}
	return a;
}

/* Whether exactly the first @n keys of an array took part in an add or in a done. */
static bool first_keys(int q, struct array *a, int n, bool are_there)
{
	for (int i = 0; i < CUT_KEYS; i++) {
		const struct wq_rec *rec = rec_at(a, i);
		bool is_there = q_key_state(q, WQ_DO_QUERY, rec->key, rec->len) >= 0;

		if (is_there != ((i < n) == are_there))
			return false;
	}
	return true;
}

/*
 * Call a verb with an array whose first @good bytes are mapped, and no others.  Returns whether
 * exactly the whole records in these bytes were handled.
 */
static bool handles_whole_records(int (*verb)(int q, struct array *a), int kind, __u32 good)
{
	struct array keys = keys_of_lengths(kind), whole = keys_of_lengths(kind), a;
	size_t page = sysconf(_SC_PAGESIZE);
	__s32 results[CUT_KEYS];
	int q = q_private(0), ret, n = 0;
	bool right = true;

	if (verb != q_add_array) {
		q_add_array(q, &keys);
		right = !q_get_array(q, &whole, 0, 0) && whole.count == CUT_KEYS;
	}
	while ((char *)rec_next(rec_at(&whole, n)) <= (char *)whole.recs + good)
		n++;
	memset(results, 9, sizeof(results));
	a = whole;
	a.recs = memcpy(edge(good), whole.recs, good);
	a.results = good % 16 ? results : NULL;
	ret = verb(q, &a);
	right = right && ret == -EFAULT && a.count == n;
	for (int i = 0; i < CUT_KEYS && a.results; i++)
		right = right && (results[i] != 0x09090909) == (i < n);
	if (verb != q_touch_array)
		right = right && first_keys(q, &whole, n, verb == q_add_array);
	if (!right)
		COMMENT("%u of %u bytes: returned %d, count %u, expected %d\n", good, whole.used, ret,
			a.count, n);
	close(q);
	munmap((void *)((uintptr_t)a.recs & -page), (good + page - 1) / page * page + page);
	free(keys.recs);
	free(whole.recs);
	return right;
}

static bool handles_whole_records_up_to_any_place(int (*verb)(int q, struct array *a))
{
	static const int step[] = { 8, 24, 56 };
	bool right = true;

	for (int kind = 0; kind < ARRAY_SIZE(step); kind++) {
		struct array a = keys_of_lengths(kind);

		for (__u32 good = 0; good < a.used; good += step[kind])
			right = handles_whole_records(verb, kind, good) && right;
		free(a.recs);
	}
	return right;
}

TEST(add_EFAULT_at_any_8_bytes_adds_exactly_the_whole_keys_before_it)
{
	ASSERT_TRUE(handles_whole_records_up_to_any_place(q_add_array));
}

TEST(touch_EFAULT_at_any_8_bytes_touches_exactly_the_whole_keys_before_it)
{
	ASSERT_TRUE(handles_whole_records_up_to_any_place(q_touch_array));
}

TEST(done_EFAULT_at_any_8_bytes_ends_exactly_the_whole_runs_before_it)
{
	ASSERT_TRUE(handles_whole_records_up_to_any_place(q_done_array));
}

/* ---- add ---- */

TEST_F(queue, add_array_returns_the_result_of_each_key)
{
	struct array a = array_new(4096);
	__s32 results[6] = { 9, 9, 9, 9, 9, 9 };

	q_add(self->q, "old");
	array_putf(&a, "new");
	array_putf(&a, "old");
	array_putf(&a, "new");
	array_putf(&a, "last");
	a.results = results;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(4, a.count);
	ASSERT_EQ(1, results[0]);
	ASSERT_EQ(0, results[1]);
	ASSERT_EQ(0, results[2]);
	ASSERT_EQ(1, results[3]);
	ASSERT_EQ(9, results[4]);
	ASSERT_EQ(3, q_stat(self->q).adds);
	ASSERT_EQ(2, q_stat(self->q).coalesced);
}

TEST_F(queue, add_with_results_processes_all_keys)
{
	int q = q_private(2);
	struct array a = letters(N);
	__s32 results[N];

	ASSERT_EQ(1, q_add(q, "d"));
	a.results = results;
	ASSERT_EQ(0, q_add_array(q, &a));
	ASSERT_EQ(N, a.count);
	ASSERT_EQ(1, results[0]);
	ASSERT_EQ(-ENOSPC, results[1]);
	ASSERT_EQ(-ENOSPC, results[2]);
	ASSERT_EQ(0, results[3]);
	ASSERT_EQ(-ENOSPC, results[4]);
	ASSERT_EQ(2, q_stat(q).keys);
}

TEST_F(queue, add_without_results_stops_at_the_first_error)
{
	int q = q_private(2);
	struct array a = letters(N);

	ASSERT_EQ(1, q_add(q, "d"));
	ASSERT_EQ(-ENOSPC, q_add_array(q, &a));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(2, q_stat(q).adds);
	ASSERT_EQ(0, q_stat(q).coalesced);
	ASSERT_EQ(-ENOENT, q_query(q, "b"));
}

TEST_F(queue, add_without_results_stops_at_a_bad_key_length)
{
	static const struct {
		int len, error;
	} bad[] = { { 0, -EINVAL }, { WQ_MAX_KEY + 1, -E2BIG }, { 65535, -E2BIG } };
	char *key = calloc(1, 65536);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct array a = letters(2);
		int q = q_private(0);

		a.recs = realloc(a.recs, a.room = 1 << 18);
		array_put(&a, key, bad[i].len, 0);
		array_putf(&a, "z");
		ASSERT_EQ(bad[i].error, q_add_array(q, &a));
		ASSERT_EQ(2, a.count);
		ASSERT_EQ(2, q_stat(q).adds);
		ASSERT_EQ(2, q_stat(q).ready);
		close(q);
	}
}

TEST_F(queue, add_after_shutdown_fails_with_ESHUTDOWN_per_key_or_at_once)
{
	struct array a = letters(N);
	__s32 results[N] = { 0 };

	q_shutdown(self->q);
	ASSERT_EQ(-ESHUTDOWN, q_add_array(self->q, &a));
	ASSERT_EQ(0, a.count);
	a = letters(N);
	a.results = results;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(N, a.count);
	for (int i = 0; i < N; i++)
		ASSERT_EQ(-ESHUTDOWN, results[i]);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

TEST_F(queue, add_EFAULT_at_any_record_keeps_the_keys_before_it)
{
	for (int i = 0; i < N; i++) {
		int q = q_private(0);
		struct array a = letters_till(N, i);
		__s32 results[N] = { 9, 9, 9, 9, 9 };

		if (i % 2)
			a.results = results;
		ASSERT_EQ(-EFAULT, q_add_array(q, &a));
		ASSERT_EQ(i, a.count);
		ASSERT_EQ(i, q_stat(q).adds);
		ASSERT_EQ(i, q_stat(q).ready);
		close(q);
	}
}

TEST_F(queue, add_EFAULT_within_a_key_is_an_error_of_its_record)
{
	static const int cuts[] = { 8, 16, 24, 512, 1024 };

	for (int i = 0; i < ARRAY_SIZE(cuts); i++) {
		struct array whole = array_new(4096), a;
		int q = q_private(0);
		char key[WQ_MAX_KEY] = "k";

		array_putf(&whole, "a");
		array_put(&whole, key, sizeof(key), 0);
		a = whole;
		a.recs = edge(WQ_REC_SIZE(1) + cuts[i]);
		memcpy(a.recs, whole.recs, WQ_REC_SIZE(1) + cuts[i]);
		ASSERT_EQ(-EFAULT, q_add_array(q, &a));
		ASSERT_EQ(1, a.count);
		ASSERT_EQ(1, q_stat(q).adds);
		ASSERT_EQ(1, q_stat(q).keys);
		close(q);
	}
}

TEST_F(queue, add_EFAULT_at_any_result_returns_the_right_count)
{
	for (int i = 0; i < N; i++) {
		int q = q_private(0);
		struct array a = letters(N);

		a.results = edge(i * sizeof(__s32));
		ASSERT_EQ(-EFAULT, q_add_array(q, &a));
		ASSERT_EQ(i, a.count);
		ASSERT_EQ(a.count, q_stat(q).adds);
		for (int j = 0; j < i; j++)
			ASSERT_EQ(1, a.results[j]);
		close(q);
	}
}

TEST_F(queue, add_fails_with_EINVAL_if_records_do_not_fill_their_buffer)
{
	static const struct {
		int size, count;	/* more than the array has */
	} bad[] = {
		{ 8, 0 }, { 1, 0 }, { -1, 0 }, { -8, 0 }, { -24, 0 }, { -32, 0 }, { 0, 1 },
		{ 0, -1 }, { 0, -N }, { 32, 0 }, { 0, 1000000 }, { -N * 32, 0 },
	};

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		for (int with = 0; with < 2; with++) {
			__s32 *results = with ? calloc(2000000, sizeof(*results)) : NULL;
			struct array a = letters(N);
			int q = q_private(0);

			a.used += bad[i].size;
			a.count += bad[i].count;
			a.results = results;
			ASSERT_EQ(-EINVAL, q_add_array(q, &a)) {
				TH_LOG("size %+d count %+d", bad[i].size, bad[i].count);
			}
			ASSERT_GE(N, a.count);
			ASSERT_EQ(a.count, q_stat(q).adds);
			close(q);
			free(results);
		}
	}
}

TEST_F(queue, add_array_has_1_MiB_at_most)
{
	struct array a = array_new(WQ_MAX_ARRAY + 64);
	const int n = WQ_MAX_ARRAY / 32;

	for (int i = 0; i < n; i++)
		array_putf(&a, "%08x", i);
	ASSERT_EQ(WQ_MAX_ARRAY, a.used);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(n, a.count);
	ASSERT_EQ(n, q_stat(self->q).ready);

	array_putf(&a, "%08x", n);
	ASSERT_EQ(-E2BIG, q_add_array(self->q, &a));
	ASSERT_EQ(0, a.count);
	ASSERT_EQ(-ENOENT, q_query(self->q, "00008000"));
	ASSERT_EQ(-E2BIG, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(n, q_stat(self->q).ready);
	ASSERT_EQ(0, q_stat(self->q).coalesced);

	for (int i = 0; i < n;) {
		struct array got = array_new(WQ_MAX_ARRAY);
		struct wq_rec *rec = got.recs;

		ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
		for (int j = 0; j < got.count; j++, i++, rec = rec_next(rec)) {
			char key[9];

			snprintf(key, sizeof(key), "%08x", i);
			ASSERT_EQ(0, memcmp(key, rec->key, 8));
		}
		free(got.recs);
	}
	a.used = WQ_MAX_ARRAY;
	a.count = n;
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(n, a.count);
	ASSERT_EQ(0, q_stat(self->q).keys);
}

/* ---- get ---- */

TEST_F(queue, get_returns_available_keys_up_to_count)
{
	struct array a = letters(N), got = array_new(4096);

	q_add_array(self->q, &a);
	ASSERT_EQ(0, q_get_array(self->q, &got, 2, 0));
	ASSERT_EQ(2, got.count);
	ASSERT_EQ(2 * WQ_REC_SIZE(1), got.used);
	ASSERT_EQ('b', rec_at(&got, 1)->key[0]);
	ASSERT_EQ(0, q_get_array(self->q, &got, 100, FOREVER));
	ASSERT_EQ(3, got.count);
	ASSERT_EQ(-EAGAIN, q_get_array(self->q, &got, 100, 0));
	ASSERT_EQ(0, got.count);
}

TEST_F(queue, get_count_0_returns_as_many_keys_as_fit)
{
	struct array a = letters(N), got = array_new(3 * WQ_REC_SIZE(1) + 8);

	q_add_array(self->q, &a);
	ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(3, got.count);
	ASSERT_EQ(3 * WQ_REC_SIZE(1), got.used);
	ASSERT_EQ(2, q_stat(self->q).ready);
	ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(2, got.count);
	ASSERT_EQ('d', rec_at(&got, 0)->key[0]);
}

TEST_F(queue, get_and_list_return_8_KiB_at_most)
{
	struct array a = array_new(1 << 16), got = array_new(WQ_MAX_ARRAY);
	__u64 cursor = 0;

	for (int i = 0; i < 300; i++)
		array_putf(&a, "%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	ASSERT_EQ(0, q_list(self->q, &got, 0, &cursor));
	ASSERT_GE(WQ_MAX_OUT, got.used);
	ASSERT_LT(WQ_MAX_OUT - WQ_LIST_REC_SIZE(3), got.used);
	ASSERT_NE(0, cursor);
	ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(WQ_MAX_OUT / 32, got.count);
	ASSERT_EQ(WQ_MAX_OUT, got.used);
	ASSERT_EQ(0, q_get_array(self->q, &got, 1000, 0));
	ASSERT_EQ(300 - WQ_MAX_OUT / 32, got.count);
}

TEST_F(queue, get_writes_its_records_and_nothing_behind_them)
{
	struct array got = array_new(4096);
	struct wq_rec *rec = got.recs;

	q_add(self->q, "abc");
	memset(got.recs, 0x5a, got.room);
	ASSERT_EQ(0, q_get_array(self->q, &got, 1, 0));
	ASSERT_EQ(3, rec->len);
	ASSERT_EQ(0, rec->flags);
	ASSERT_EQ(0, rec->failures);
	ASSERT_EQ(0, rec->given_back);
	ASSERT_EQ(0, rec->delay);
	ASSERT_NE(0, rec->token);
	ASSERT_EQ(0, memcmp("abc\0\0\0\0\0\x5a", rec->key, 9));
}

TEST_F(queue, get_fails_with_EMSGSIZE_and_leaves_a_key_that_does_not_fit)
{
	struct wq_stat before;
	struct array got = array_new(4096);
	char key[100] = "long";

	ASSERT_EQ(1, q_addn(self->q, key, sizeof(key)));
	q_add(self->q, "short");
	before = q_stat(self->q);
	for (got.room = 0; got.room < WQ_REC_SIZE(sizeof(key)); got.room += 8) {
		ASSERT_EQ(-EMSGSIZE, q_get_array(self->q, &got, 0, FOREVER));
		ASSERT_EQ(0, got.count);
		ASSERT_TRUE(same(&before, self->q));
	}
	ASSERT_EQ(0, q_get_array(self->q, &got, 0, FOREVER));
	ASSERT_EQ(1, got.count);
	ASSERT_EQ(sizeof(key), rec_at(&got, 0)->len);
}

TEST_F(queue, get_array_ends_before_a_key_that_does_not_fit)
{
	struct array got = array_new(128);
	char key[200] = "long";

	q_add(self->q, "a");
	q_addn(self->q, key, sizeof(key));
	q_add(self->q, "b");
	ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(1, got.count);
	ASSERT_EQ(-EMSGSIZE, q_get_array(self->q, &got, 0, 0));
	ASSERT_EQ(2, q_stat(self->q).ready);
}

TEST_F(queue, get_EFAULT_at_any_record_keeps_the_keys_that_it_counts)
{
	for (int i = 0; i < N; i++) {
		struct array a = letters(N), got = { .recs = edge(i * WQ_REC_SIZE(1)), .room = 4096 };
		int q = q_private(0), n;
		struct item it;

		q_add_array(q, &a);
		ASSERT_EQ(-EFAULT, q_get_array(q, &got, 0, 0));
		n = got.count;
		/* some machines copy up to two records less than they could write */
		ASSERT_GE(i, n);
		ASSERT_LE(i - 2, n);
#if defined(__x86_64__) || defined(__i386__)
		ASSERT_EQ(i, n);
#endif
		ASSERT_EQ(n * WQ_REC_SIZE(1), got.used);
		ASSERT_EQ(n, q_stat(q).held);
		ASSERT_EQ(N - n, q_stat(q).ready);
		ASSERT_EQ(n, q_stat(q).gets - q_stat(q).given_back);
		for (int j = 0; j < n; j++)
			ASSERT_EQ('a' + j, rec_at(&got, j)->key[0]);
		ASSERT_EQ(0, q_get(q, &it, 0));
		ASSERT_EQ('a' + n, it.key[0]);
		close(q);
	}
}

/* ---- done ---- */

TEST_F(queue, done_array_returns_the_result_of_each_key)
{
	struct array a = letters(3);
	__s32 results[5] = { 9, 9, 9, 9, 9 };

	q_add_array(self->q, &a);
	q_get_array(self->q, &a, 0, 0);
	q_add(self->q, "b");
	rec_at(&a, 2)->token++;
	array_putf(&a, "x");
	a.results = results;
	ASSERT_EQ(0, q_done_array(self->q, &a));
	ASSERT_EQ(4, a.count);
	ASSERT_EQ(0, results[0]);
	ASSERT_EQ(1, results[1]);
	ASSERT_EQ(-ESTALE, results[2]);
	ASSERT_EQ(-ENOENT, results[3]);
	ASSERT_EQ(9, results[4]);
	ASSERT_EQ(1, q_stat(self->q).ready);
	ASSERT_EQ(1, q_stat(self->q).held);
}

TEST_F(queue, done_without_results_stops_at_the_first_error)
{
	struct array a = letters(N);

	q_add_array(self->q, &a);
	q_get_array(self->q, &a, 0, 0);
	rec_at(&a, 2)->token++;
	ASSERT_EQ(-ESTALE, q_done_array(self->q, &a));
	ASSERT_EQ(2, a.count);
	ASSERT_EQ(3, q_stat(self->q).held);
	ASSERT_EQ(2, q_stat(self->q).dones);
}

TEST_F(queue, done_EFAULT_at_any_record_keeps_the_keys_before_it)
{
	for (int i = 0; i < N; i++) {
		struct array a = letters(N), all = letters(N);
		int q = q_private(0);

		q_add_array(q, &a);
		q_get_array(q, &a, 0, 0);
		all.recs = edge(i * WQ_REC_SIZE(1));
		memcpy(all.recs, a.recs, i * WQ_REC_SIZE(1));
		ASSERT_EQ(-EFAULT, q_done_array(q, &all));
		ASSERT_EQ(i, all.count);
		ASSERT_EQ(i, q_stat(q).dones);
		ASSERT_EQ(N - i, q_stat(q).held);
		close(q);
	}
}

TEST_F(queue, done_EFAULT_at_any_result_returns_the_right_count)
{
	for (int i = 0; i < N; i++) {
		struct array a = letters(N);
		int q = q_private(0);

		q_add_array(q, &a);
		q_get_array(q, &a, 0, 0);
		a.results = edge(i * sizeof(__s32));
		ASSERT_EQ(-EFAULT, q_done_array(q, &a));
		ASSERT_EQ(i, a.count);
		ASSERT_EQ(a.count, q_stat(q).dones);
		ASSERT_EQ(N - a.count, q_stat(q).held);
		for (int j = 0; j < i; j++)
			ASSERT_EQ(0, a.results[j]);
		close(q);
	}
}

TEST_F(queue, done_fails_with_EINVAL_if_records_do_not_fill_their_buffer)
{
	static const int more[] = { 8, -8, -32, 32 };

	for (int i = 0; i < ARRAY_SIZE(more); i++) {
		struct array a = letters(N);
		int q = q_private(0);

		q_add_array(q, &a);
		q_get_array(q, &a, 0, 0);
		a.used += more[i];
		ASSERT_EQ(-EINVAL, q_done_array(q, &a));
		ASSERT_GE(N, a.count);
		ASSERT_EQ(a.count, q_stat(q).dones);
		ASSERT_EQ(N - a.count, q_stat(q).held);
		close(q);
	}
}

/* ---- list ---- */

/* The table is in the order of hashes, so cursors that rise would reveal the hashes. */
TEST_F(queue, cursors_of_list_do_not_reveal_the_order_of_the_table)
{
	enum { KEYS = 64 };
	struct array a = array_new(WQ_MAX_OUT);
	__u64 cursor = 0, last = 0;
	int rising = 0, n = 0;

	for (int i = 0; i < KEYS; i++)
		ASSERT_EQ(1, q_addn(self->q, &i, sizeof(i)));
	do {
		last = cursor;
		ASSERT_EQ(0, q_list(self->q, &a, 1, &cursor));
		n += a.count;
		rising += cursor > last;
	} while (cursor);
	free(a.recs);
	EXPECT_EQ(KEYS, n);
	EXPECT_GT(KEYS * 3 / 4, rising);
}

TEST_F(queue, list_of_an_empty_queue_is_empty)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;

	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(0, a.count);
	ASSERT_EQ(0, a.used);
	ASSERT_EQ(0, cursor);
}

/* Lists the keys "s0", "s1", ... into seen; returns keys, or -errno. */
static int list_all(int q, int *seen, int most)
{
	struct array a = array_new(8192);
	int keys = 0, ret;
	__u64 cursor = 0;

	do {
		struct wq_list_rec *row = a.recs;

		ret = q_list(q, &a, most, &cursor);
		if (ret || (most && a.count > most))
			return ret ?: -EBADMSG;
		for (int i = 0; i < a.count; i++, keys++, row = row_next(row)) {
			row->key[row->len] = 0;
			seen[atoi((char *)row->key + 1)]++;
		}
	} while (cursor);
	free(a.recs);
	return keys;
}

TEST_F(queue, list_returns_every_key_once)
{
	static const int most[] = { 1, 7, 64, 0 };
	struct array a = array_new(1 << 18);

	for (int i = 0; i < 3000; i++)
		array_putf(&a, "s%d", i);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	for (int i = 0; i < ARRAY_SIZE(most); i++) {
		struct wq_stat before = q_stat(self->q);
		int seen[3000] = { 0 };

		ASSERT_EQ(3000, list_all(self->q, seen, most[i]));
		for (int j = 0; j < 3000; j++)
			ASSERT_EQ(1, seen[j]);
		ASSERT_TRUE(same(&before, self->q));
	}
}

TEST_F(queue, list_EFAULT_changes_nothing)
{
	struct array a = letters(N), got = { .recs = edge(0), .room = 4096 };
	struct wq_stat before;
	__u64 cursor = 0;

	q_add_array(self->q, &a);
	before = q_stat(self->q);
	ASSERT_EQ(-EFAULT, q_list(self->q, &got, 0, &cursor));
	ASSERT_EQ(0, got.count);
	ASSERT_TRUE(same(&before, self->q));
}

/* ---- the buffer that a file keeps for its arrays ---- */

struct adding {
	int q, ret;
	struct array a;
};

static void *add_it(void *arg)
{
	struct adding *add = arg;

	add->ret = q_add_array(add->q, &add->a);
	return NULL;
}

/* An array of 4096 bytes. */
static struct array page_of_keys(char c)
{
	struct array a = array_new(4096);

	for (int i = 0; i < 4096 / WQ_REC_SIZE(4); i++)
		array_putf(&a, "%c%03d", c, i);
	return a;
}

/*
 * The copy of an array stops in its middle, at a page that is not there yet.  Meanwhile the file
 * is idle, which frees its buffer if no call uses it, and another array is added.
 */
TEST_F(queue, add_that_copies_its_array_keeps_its_buffer_from_other_calls)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct array first = page_of_keys('a'), second = page_of_keys('b');
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = {
		.range = { addr_of(pages + page), page }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	char *rest = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_copy copy = {
		.dst = addr_of(pages + page), .src = addr_of(rest), .len = page,
	};
	struct adding add = { .q = self->q, .a = first };
	struct pollfd p = { .fd = self->q, .events = POLLIN };
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffd_msg msg;
	pthread_t thread;

	add.a.recs = memcpy(pages + page - 2048, first.recs, 2048);
	memcpy(rest, (char *)first.recs + 2048, 2048);
	ASSERT_LE(0, uffd);
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_API, &api));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));
	ASSERT_EQ(0, pthread_create(&thread, NULL, add_it, &add));
	ASSERT_EQ(sizeof(msg), read(uffd, &msg, sizeof(msg)));

	ASSERT_EQ(0, poll(&p, 1, 0));
	ASSERT_EQ(0, q_add_array(self->q, &second));
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_COPY, &copy));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, add.ret);
	EXPECT_EQ(first.count, add.a.count);
	for (__u32 i = 0; i < first.count; i++) {
		char key[8];

		snprintf(key, sizeof(key), "a%03d", i);
		ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, key));
		key[0] = 'b';
		ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, key));
	}
	EXPECT_EQ(first.count + second.count, q_stat(self->q).keys);
	close(uffd);
	free(first.recs);
	free(second.recs);
}

TEST_HARNESS_MAIN
