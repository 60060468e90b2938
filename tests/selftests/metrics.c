// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics with several consumers, the list of queues, and the description of a key by list
 * and query.
 *
 * Times are real here, so each time is compared with two readings of the clock.
 * tests/kunit/metrics.c tests them to the nanosecond.
 */
#include "wq_users.h"

#include <pthread.h>
#include <sched.h>


#define READY	(WQ_KEY_READY | WQ_KEY_DIRTY)
#define HELD	WQ_KEY_PROCESSING
#define MINE	(WQ_KEY_PROCESSING | WQ_KEY_MINE)

static __u64 total(struct wq_hist h)
{
	__u64 n = 0;

	for (int i = 0; i < WQ_HIST_COUNTS; i++)
		n += h.counts[i];
	return n;
}

/* Does something with a key: the state from before, or -errno. */
static int key_state(int fd, __u32 what, const char *key, struct wq_key_op *ks)
{
	return q_key_call(fd, what, key, strlen(key), ks) ?: (int)ks->info.state;
}

/* Two looks at the clock, with something between them. */
struct span {
	__s64 from, to;
};

/* Is this the time from something in began to something in now? */
static bool is_age(__s64 age, struct span began, struct span now)
{
	return within("ns", now.from - began.to, now.to - began.from, age);
}

#define TIMED(span, call) ({						\
	(span).from = now_ns();						\
	typeof(call) ret_ = (call);					\
	(span).to = now_ns();						\
	ret_;								\
})

/* ---- processing keys of several consumers ---- */

struct held {
	bool is;
	int fd;
	struct item item;
	struct span got;
};

/* Compares unfinished and longest with bounds from two readings of the clock. */
static bool running_is_right(int q, const struct held *held, int n)
{
	__s64 oldest_from = INT64_MAX, oldest_to = INT64_MAX;
	__u64 least = 0, most = 0, count = 0;
	struct wq_stat st;
	struct span now;

	st = TIMED(now, q_stat(q));
	for (int i = 0; i < n; i++) {
		if (!held[i].is)
			continue;
		count++;
		least += now.from - held[i].got.to;
		most += now.to - held[i].got.from;
		if (held[i].got.from < oldest_from)
			oldest_from = held[i].got.from;
		if (held[i].got.to < oldest_to)
			oldest_to = held[i].got.to;
	}
	return equal("processing", count, st.processing) &&
	       within("unfinished", least, most, st.unfinished) &&
	       (count ? within("longest", now.from - oldest_to, now.to - oldest_from, st.longest) :
		equal("longest", 0, st.longest));
}

#define CONSUMERS	5
#define KEYS		20

TEST_F(queue, stat_unfinished_and_longest_are_exact_after_consumers_die)
{
	struct held held[KEYS] = { 0 };
	int fds[CONSUMERS];

	for (int i = 0; i < CONSUMERS; i++)
		fds[i] = q_attach(self->name, O_RDWR);
	for (int i = 0; i < KEYS; i++) {
		held[i].fd = fds[i % CONSUMERS];
		q_add(self->q, (char[]){ 'a' + i, 0 });
		ASSERT_EQ(0, TIMED(held[i].got, q_get(held[i].fd, &held[i].item, 0)));
		held[i].is = true;
	}
	/* the consumer with the oldest key first, then the others */
	for (int i = 0; i < CONSUMERS; i++) {
		close(fds[i]);
		for (int j = i; j < KEYS; j += CONSUMERS)
			held[j].is = false;
		ASSERT_TRUE(running_is_right(self->q, held, KEYS));
		if (i + 1 == CONSUMERS)
			break;
		ASSERT_EQ(0, q_done(fds[i + 1], &held[i + 1].item));
		held[i + 1].is = false;
		ASSERT_TRUE(running_is_right(self->q, held, KEYS));
	}
	ASSERT_EQ(CONSUMERS - 1, total(q_stat(self->q).works));
	ASSERT_EQ(KEYS - CONSUMERS + 1, q_stat(self->q).ready);
}

TEST_F(queue, stat_give_back_ends_processing_and_keeps_the_age)
{
	struct span added, now, got;
	struct wq_stat before, st;
	struct wq_key_op ks;
	struct item it;
	pid_t pid;

	added.from = now_ns();
	q_add(self->q, "a");
	q_add(self->q, "b");
	added.to = now_ns();
	pid = child();
	if (!pid) {
		int fd = q_attach(self->name, O_RDWR);

		q_get(fd, &it, 0);
		q_get(fd, &it, 0);
		pause();
		_exit(1);
	}
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 2);
	sleep_ms(30);
	before = q_stat(self->q);
	ASSERT_LE(60 * MS, before.unfinished);
	kill(pid, SIGKILL);
	ASSERT_EQ(1000 + SIGKILL, reap(pid));

	st = q_stat(self->q);
	ASSERT_EQ(0, st.processing);
	ASSERT_EQ(0, st.unfinished);
	ASSERT_EQ(0, st.longest);
	ASSERT_EQ(2, st.ready);
	ASSERT_EQ(2, st.depth);
	ASSERT_EQ(0, total(st.works));
	sleep_ms(10);
	ASSERT_EQ(READY, TIMED(now, key_state(self->q, WQ_DO_QUERY, "b", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, added, now));
	sleep_ms(10);
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	st = q_stat(self->q);
	ASSERT_TRUE(is_age(st.waits.sum - before.waits.sum, added, got));
	ASSERT_EQ(3, total(st.waits));
	ASSERT_EQ(1, st.processing);
	sleep_ms(10);
	ASSERT_EQ(MINE, TIMED(now, key_state(self->q, WQ_DO_QUERY, it.key, &ks)));
	ASSERT_TRUE(is_age(ks.info.age, got, now));
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(1, total(q_stat(self->q).works));
}

TEST_F(queue, stat_get_EMSGSIZE_leaves_all_times)
{
	struct array small = array_new(WQ_REC_SIZE(1));
	struct span added, got, now;
	struct wq_stat before, st;
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(1, TIMED(added, q_add(self->q, "a longer key")));
	before = q_stat(self->q);
	sleep_ms(20);
	ASSERT_EQ(-EMSGSIZE, q_get_array(self->q, &small, 0, 0));
	ASSERT_TRUE(same(&before, self->q));
	ASSERT_EQ(READY, TIMED(now, key_state(self->q, WQ_DO_QUERY, "a longer key", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, added, now));
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	st = q_stat(self->q);
	ASSERT_EQ(1, total(st.waits));
	ASSERT_TRUE(is_age(st.waits.sum, added, got));
	free(small.recs);
}

/* It counts as got and given back. Each of the two waits began with the add. */
TEST_F(queue, stat_get_EFAULT_is_no_work)
{
	struct array hole = { .recs = edge(0), .room = 4096 };
	struct span added, failed, got, now;
	struct wq_key_op ks;
	struct wq_stat st;
	struct item it;

	ASSERT_EQ(1, TIMED(added, q_add(self->q, "a")));
	sleep_ms(20);
	ASSERT_EQ(-EFAULT, TIMED(failed, q_get_array(self->q, &hole, 0, 0)));
	st = q_stat(self->q);
	ASSERT_EQ(st.gets, total(st.waits));
	ASSERT_EQ(0, total(st.works));
	ASSERT_EQ(0, st.unfinished);
	ASSERT_EQ(0, st.longest);
	ASSERT_EQ(1, st.depth);
	sleep_ms(20);
	ASSERT_EQ(READY, TIMED(now, key_state(self->q, WQ_DO_QUERY, "a", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, added, now));
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	st = q_stat(self->q);
	ASSERT_EQ(st.gets, total(st.waits));
	ASSERT_TRUE(within("waits.sum", failed.from - added.to + got.from - added.to,
			   failed.to - added.from + got.to - added.from, st.waits.sum));
}

TEST_F(queue, stat_queue_and_work_durations_equal_the_clock)
{
	struct span added, got, done;
	struct wq_stat st;
	struct item it;

	ASSERT_EQ(1, TIMED(added, q_add(self->q, "a")));
	sleep_ms(15);
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	sleep_ms(25);
	ASSERT_EQ(0, TIMED(done, q_done(self->q, &it)));
	st = q_stat(self->q);
	ASSERT_TRUE(is_age(st.waits.sum, added, got));
	ASSERT_TRUE(is_age(st.works.sum, got, done));
	/* of 15 and 25 ms: above 10 */
	for (int i = 0; i < 7; i++)
		ASSERT_EQ(0, st.waits.counts[i] + st.works.counts[i]);
	ASSERT_EQ(1, total(st.waits));
	ASSERT_EQ(1, total(st.works));
}

TEST(stat_of_an_unnamed_queue_has_no_times)
{
	int q = q_private(0);
	struct wq_key_op ks;
	struct wq_stat st;
	struct item it;

	q_add(q, "a");
	q_add(q, "b");
	q_add_after(q, "c", HOUR);
	sleep_ms(2);
	q_get(q, &it, 0);
	sleep_ms(2);
	ASSERT_EQ(MINE, key_state(q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(0, ks.info.age);
	ASSERT_EQ(getpid(), ks.info.holder);
	ASSERT_EQ(READY, key_state(q, WQ_DO_QUERY, "b", &ks));
	ASSERT_EQ(0, ks.info.age);
	ASSERT_EQ(WQ_KEY_DELAYED, key_state(q, WQ_DO_QUERY, "c", &ks));
	ASSERT_LT(HOUR - 60 * SEC, ks.info.due);
	st = q_stat(q);
	ASSERT_EQ(1, st.depth);
	ASSERT_EQ(1, st.processing);
	ASSERT_EQ(0, st.unfinished);
	ASSERT_EQ(0, st.longest);
	ASSERT_EQ(0, q_done(q, &it));
	st = q_stat(q);
	ASSERT_EQ(0, total(st.waits) + total(st.works) + st.waits.sum + st.works.sum);
	close(q);
}

TEST_F(queue, stat_consumers_counts_bound_files)
{
	int unbound = q_dev(O_RDWR), a, b;
	pid_t pid;

	ASSERT_EQ(1, q_stat(self->q).consumers);
	a = q_attach(self->name, O_RDONLY);
	b = q_attach(self->name, O_WRONLY);
	ASSERT_EQ(3, q_stat(self->q).consumers);
	/* a second descriptor is no second open file */
	close(dup(a));
	ASSERT_EQ(3, q_stat(self->q).consumers);
	pid = child();
	if (!pid)
		_exit(q_stat(self->q).consumers);
	ASSERT_EQ(3, reap(pid));
	pid = child();
	if (!pid) {
		q_attach(self->name, O_RDWR);
		_exit(q_stat(self->q).consumers);
	}
	ASSERT_EQ(4, reap(pid));
	ASSERT_EQ(3, q_stat(self->q).consumers);
	close(a);
	close(b);
	close(unbound);
	ASSERT_EQ(1, q_stat(self->q).consumers);
	ASSERT_EQ(0, q_unlink(self->name));
	ASSERT_EQ(1, q_stat(self->q).consumers);
}

#define MANY	20000

/* So many keys of 16 bytes. */
static void put_many(struct array *a)
{
	array_reset(a);
	for (int i = 0; i < MANY; i++)
		array_putf(a, "%016d", i);
}

TEST_F(queue, stat_memory_follows_the_keys)
{
	__u64 empty = q_stat(self->q).memory, full, each;
	struct array a = array_new(MANY * WQ_REC_SIZE(16));
	char key[17];

	put_many(&a);
	ASSERT_EQ(0, q_add_array(self->q, &a));
	full = q_stat(self->q).memory;
	each = (full - empty) / MANY;
	COMMENT("a key of 16 bytes takes %llu bytes\n", each);
	/* key and state, at most 128 bytes with its share of the table */
	ASSERT_LE(KEY_BYTES(16), each);
	ASSERT_GE(128, each);
	for (int i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "%016d", i);
		ASSERT_LT(0, q_cancel(self->q, key));
	}
	ASSERT_EQ(0, q_stat(self->q).keys);
	ASSERT_GE(empty + (full - empty) / 10, q_stat(self->q).memory);
	free(a.recs);
}

TEST_F(queue, stat_memory_includes_the_heap_until_shutdown)
{
	__u64 empty = q_stat(self->q).memory, full, each;
	struct array a = array_new(MANY * WQ_REC_SIZE(16));
	struct wq_rec *rec = a.recs;

	put_many(&a);
	for (int i = 0; i < MANY; i++, rec = rec_next(rec))
		rec->delay = HOUR + i;
	ASSERT_EQ(0, q_add_array(self->q, &a));
	full = q_stat(self->q).memory;
	each = (full - empty) / MANY;
	COMMENT("a delayed key of 16 bytes takes %llu bytes\n", each);
	/* with a slot in the heap */
	ASSERT_LE(KEY_BYTES(16) + sizeof(long), each);
	ASSERT_GE(160, each);
	ASSERT_EQ(0, q_shutdown(self->q));
	ASSERT_EQ(MANY, q_stat(self->q).dropped);
	/* the queue's thread frees the keys */
	ASSERT_EVENTUALLY(!q_stat(self->q).keys);
	ASSERT_GE(empty + (full - empty) / 10, q_stat(self->q).memory);
	free(a.recs);
}

/* ---- query ---- */

TEST_F(queue, query_returns_age_due_and_holder_in_every_state)
{
	struct span added, delayed, got, now;
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(1, TIMED(added, q_add(self->q, "a")));
	sleep_ms(5);
	ASSERT_EQ(READY, TIMED(now, key_state(self->q, WQ_DO_QUERY, "a", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, added, now));
	ASSERT_EQ(-1, ks.info.due);
	ASSERT_EQ(0, ks.info.holder);

	/* ready and delayed */
	ASSERT_EQ(1, TIMED(delayed, q_add_after(self->q, "a", HOUR)));
	sleep_ms(5);
	ASSERT_EQ(READY | WQ_KEY_DELAYED, TIMED(now, key_state(self->q, WQ_DO_QUERY, "a", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, added, now));
	ASSERT_TRUE(is_age(HOUR - ks.info.due, delayed, now));

	/* processing, delayed and then dirty: the age counts from the get */
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	sleep_ms(5);
	ASSERT_EQ(1, q_add(self->q, "a"));
	sleep_ms(5);
	ASSERT_EQ(MINE | WQ_KEY_DIRTY | WQ_KEY_DELAYED,
		  TIMED(now, key_state(self->q, WQ_DO_QUERY, "a", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, got, now));
	ASSERT_TRUE(is_age(HOUR - ks.info.due, delayed, now));
	ASSERT_EQ(getpid(), ks.info.holder);

	/* cancel returns the state before the cancel */
	ASSERT_EQ(MINE | WQ_KEY_DIRTY | WQ_KEY_DELAYED,
		  TIMED(now, key_state(self->q, WQ_DO_CANCEL, "a", &ks)));
	ASSERT_TRUE(is_age(ks.info.age, got, now));
	ASSERT_TRUE(is_age(HOUR - ks.info.due, delayed, now));
	ASSERT_EQ(getpid(), ks.info.holder);
	ASSERT_EQ(MINE, key_state(self->q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(-1, ks.info.due);

	/* delayed alone */
	q_add_after(self->q, "b", HOUR);
	ASSERT_EQ(WQ_KEY_DELAYED, key_state(self->q, WQ_DO_QUERY, "b", &ks));
	ASSERT_EQ(0, ks.info.age);
	ASSERT_EQ(0, ks.info.holder);
	ASSERT_LT(HOUR - 60 * SEC, ks.info.due);
	ASSERT_GE(HOUR, ks.info.due);
}

TEST_F(queue, query_of_a_retained_key_has_no_times)
{
	struct wq_limiter_spec hour = { .kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR };
	struct wq_attrs limited = {
		.size = sizeof(limited), .set = WQ_ATTR_LIMITER, .limiters = addr_of(&hour),
		.num_limiters = 1,
	};
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(0, verb(self->q, WQ_IOC_ATTRS, &limited));
	ASSERT_EQ(1, q_add_flags(self->q, "a", 0, WQ_ADD_RATE_LIMITED));
	ASSERT_EQ(WQ_KEY_DELAYED | WQ_KEY_FAILED, key_state(self->q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(1, ks.info.failures);
	ASSERT_LE(0, q_add_flags(self->q, "a", 0, WQ_ADD_DROP_DELAY));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	ASSERT_EQ(MINE | WQ_KEY_FAILED, key_state(self->q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(getpid(), ks.info.holder);
	ASSERT_EQ(0, q_done(self->q, &it));
	ASSERT_EQ(WQ_KEY_FAILED, key_state(self->q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(0, ks.info.age);
	ASSERT_EQ(-1, ks.info.due);
	ASSERT_EQ(0, ks.info.holder);
	ASSERT_EQ(1, ks.info.failures);
	ASSERT_EQ(1, q_stat(self->q).retained);
	ASSERT_EQ(WQ_KEY_FAILED, q_cancel(self->q, "a"));
}

TEST_F(queue, query_of_a_key_that_was_due_returns_the_time_since_then)
{
	struct span added, now;
	struct wq_key_op ks;

	ASSERT_EQ(1, TIMED(added, q_add_after(self->q, "a", 10 * MS)));
	ASSERT_EVENTUALLY(q_stat(self->q).ready == 1);
	sleep_ms(5);
	ASSERT_EQ(READY, TIMED(now, key_state(self->q, WQ_DO_QUERY, "a", &ks)));
	ASSERT_LE(5 * MS, ks.info.age);
	ASSERT_GE(now.to - added.from - 10 * MS, ks.info.age);
	ASSERT_EQ(-1, ks.info.due);
}

TEST_F(queue, query_cancel_and_forget_with_nonzero_output_fields_fail)
{
	static const unsigned int nrs[] = { WQ_DO_QUERY, WQ_DO_CANCEL, WQ_DO_FORGET };
	static const struct wq_key_op outputs[] = {
		{ .info.age = 1 }, { .info.due = -1 }, { .info.holder = 1 }, { .count = 1 },
	};

	q_add(self->q, "a");
	for (int i = 0; i < ARRAY_SIZE(nrs); i++) {
		for (int n = 0; n < ARRAY_SIZE(outputs); n++) {
			struct wq_key_op bad = outputs[n];

			bad.size = sizeof(bad);
			bad.op = nrs[i];
			bad.key = addr_of("a");
			bad.key_len = 1;
			ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_KEY, &bad)) {
				TH_LOG("operation %u, field %d", nrs[i], n);
			}
		}
	}
	ASSERT_EQ(READY, q_query(self->q, "a"));
}

/* ---- the last run of a key ---- */

/* Whether a key had this last run, and how its state is reported: by LAST, and by QUERY. */
#define EXPECT_LAST(result, fd, key, ended, got) do {				\
	struct wq_key_op ks_;							\
	struct span now_;							\
	__s64 took_;								\
	EXPECT_LE(0, TIMED(now_, key_state(fd, WQ_DO_LAST, key, &ks_)));	\
	EXPECT_EQ(result, ks_.info.last_result);				\
	/* in steps of 2^20 ns */						\
	EXPECT_LE(now_.from - (ended).to, ks_.info.last_age);			\
	EXPECT_GT(now_.to - (ended).from + (1 << 20), ks_.info.last_age);	\
	took_ = (ended).to - (got).from;					\
	EXPECT_GE(took_, ks_.info.last_took);					\
	took_ = (ended).from - (got).to;					\
	EXPECT_LE(took_ - (took_ >> 14), ks_.info.last_took);			\
} while (0)

TEST_F(queue, last_run_has_its_result_its_age_and_its_time)
{
	static const struct {
		__u32 outcome, result;
	} ends[] = {
		{ 0, WQ_LAST_DONE }, { WQ_OUTCOME_FORGET, WQ_LAST_DONE },
		{ WQ_OUTCOME_RETRY, WQ_LAST_FAILED }, { WQ_OUTCOME_AFTER, WQ_LAST_DONE },
		{ WQ_OUTCOME_GIVE_UP, WQ_LAST_GAVE_UP },
	};
	struct span got, ended;
	struct item it;

	for (int i = 0; i < ARRAY_SIZE(ends); i++) {
		ASSERT_LE(0, q_add_flags(self->q, "a", 0, WQ_ADD_DROP_DELAY));
		ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
		sleep_ms(3);
		ASSERT_LE(0, TIMED(ended, q_done_reason(self->q, &it, ends[i].outcome, NULL)));
		sleep_ms(2);
		EXPECT_LAST(ends[i].result, self->q, "a", ended, got);
	}
	ASSERT_EQ(WQ_KEY_PARKED | WQ_KEY_FAILED, q_cancel(self->q, "a"));
}

TEST_F(queue, last_run_of_an_idle_key_is_reported_by_last_and_a_list_that_asks_for_it)
{
	struct array a = array_new(8192);
	struct wq_list list = {
		.size = sizeof(list), .flags = WQ_LIST_IDLE,
		.keys = { addr_of(a.recs), a.room, 0 },
		.info_size = sizeof(struct wq_key_info),
	};
	struct span got, ended;
	struct wq_list_rec *row;
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "idle"));
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	ASSERT_LE(0, TIMED(ended, q_done(self->q, &it)));
	/* The queue has no last run of a key that was canceled before it ran. */
	ASSERT_EQ(1, q_add(self->q, "canceled"));
	ASSERT_EQ(READY, q_cancel(self->q, "canceled"));
	ASSERT_EQ(-ENOENT, key_state(self->q, WQ_DO_LAST, "canceled", &ks));
	ASSERT_EQ(-ENOENT, key_state(self->q, WQ_DO_LAST, "unknown", &ks));

	ASSERT_EQ(-ENOENT, key_state(self->q, WQ_DO_QUERY, "idle", &ks));
	EXPECT_LAST(WQ_LAST_DONE, self->q, "idle", ended, got);
	ASSERT_EQ(0, key_state(self->q, WQ_DO_LAST, "idle", &ks));
	ASSERT_EQ(0, ks.info.age);
	ASSERT_EQ(-1, ks.info.due);
	ASSERT_EQ(0, q_stat(self->q).keys);

	ASSERT_EQ(1, q_add(self->q, "ready"));
	ASSERT_EQ(0, verb(self->q, WQ_IOC_LIST, &list));
	ASSERT_EQ(2, list.keys.count);
	a.count = list.keys.count;
	for (int i = 0; i < 2; i++) {
		row = row_at(&a, i);
		EXPECT_EQ(row->len == 4 ? 0 : READY, row->info.state);
		EXPECT_EQ(row->len == 4 ? WQ_LAST_DONE : WQ_LAST_NONE, row->info.last_result);
	}
	ASSERT_EQ(READY, q_cancel(self->q, "ready"));
	free(a.recs);
}

TEST_F(queue, last_run_that_was_given_back_shows_that_also_while_the_key_waits)
{
	int other = q_attach(self->name, O_RDWR);
	struct span got, ended;
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(1, q_add(self->q, "a"));
	ASSERT_EQ(0, TIMED(got, q_get(other, &it, 0)));
	ASSERT_EQ(HELD, key_state(self->q, WQ_DO_LAST, "a", &ks));
	ASSERT_EQ(WQ_LAST_NONE, ks.info.last_result);
	sleep_ms(2);
	ASSERT_EQ(0, TIMED(ended, close(other)));
	ASSERT_EQ(READY, key_state(self->q, WQ_DO_QUERY, "a", &ks));
	ASSERT_EQ(WQ_LAST_GIVEN_BACK, ks.info.last_result);
	EXPECT_LAST(WQ_LAST_GIVEN_BACK, self->q, "a", ended, got);
	ASSERT_EQ(READY, q_cancel(self->q, "a"));
}

TEST(last_run_is_not_known_in_a_queue_without_a_name)
{
	int q = q_private(0);
	struct wq_key_op ks;
	struct item it;

	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(WQ_RESULT_DELAYED, q_done_reason(q, &it, WQ_OUTCOME_RETRY, NULL));
	ASSERT_LE(0, key_state(q, WQ_DO_LAST, "a", &ks));
	EXPECT_EQ(WQ_LAST_NONE, ks.info.last_result);
	EXPECT_EQ(0, ks.info.last_age);
	EXPECT_EQ(0, ks.info.last_took);
	close(q);
}

TEST_F(queue, list_has_the_infos_of_the_size_that_its_caller_knows)
{
	static const __u32 sizes[] = {
		0, WQ_MIN_INFO, WQ_MIN_INFO + 8, sizeof(struct wq_key_info), WQ_MAX_INFO - 8,
		WQ_MAX_INFO,
	};
	static const __u32 bad[] = { 1, 8, WQ_MIN_INFO - 8, WQ_MIN_INFO + 4, WQ_MAX_INFO + 8, ~7U };
	struct array a = array_new(8192);

	ASSERT_EQ(1, q_add(self->q, "key"));
	ASSERT_EQ(1, q_add_after(self->q, "yek", HOUR));
	for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
		__u32 size = sizes[i] ? sizes[i] : 120;
		__u32 head = offsetof(struct wq_list_rec, info) + size;
		struct wq_list list = {
			.size = sizeof(list), .keys = { addr_of(a.recs), a.room, 0 },
			.info_size = sizes[i],
		};

		memset(a.recs, 0xa5, a.room);
		ASSERT_EQ(0, verb(self->q, WQ_IOC_LIST, &list));
		ASSERT_EQ(2, list.keys.count);
		ASSERT_EQ(2 * (head + 8), list.keys.size);
		for (int n = 0; n < 2; n++) {
			char *rec = (char *)a.recs + n * (head + 8);
			struct wq_list_rec *row = (void *)rec;

			ASSERT_EQ(3, row->len);
			ASSERT_EQ(0, memcmp(rec + head, rec[head] == 'k' ? "key" : "yek", 3));
			ASSERT_EQ(rec[head] == 'k' ? READY : WQ_KEY_DELAYED, row->info.state);
			for (__u32 at = sizeof(struct wq_list_rec); at < head; at++)
				ASSERT_EQ(0, rec[at]);
		}
	}
	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct wq_list list = {
			.size = sizeof(list), .keys = { addr_of(a.recs), a.room, 0 },
			.info_size = bad[i],
		};

		EXPECT_EQ(-EINVAL, verb(self->q, WQ_IOC_LIST, &list)) {
			TH_LOG("%u bytes", bad[i]);
		}
	}
	free(a.recs);
}

/* ---- the holder of a key ---- */

static __u32 holder(int fd, const char *key)
{
	struct wq_key_op ks;
	int ret = key_state(fd, WQ_DO_QUERY, key, &ks);

	return ret < 0 ? ret : ks.info.holder;
}

TEST_F(queue, query_holder_is_the_process_that_opened_the_file)
{
	int inherited = q_attach(self->name, O_RDWR), others;
	struct item it;
	pid_t pid, got;

	q_add(self->q, "parent");
	q_add(self->q, "child");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	pid = child();
	if (!pid) {
		q_get(q_attach(self->name, O_RDWR), &it, 0);
		pause();
		_exit(1);
	}
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 2);
	ASSERT_EQ(getpid(), holder(self->q, "parent"));
	ASSERT_EQ(pid, holder(self->q, "child"));
	/* the same holder through another file */
	others = q_attach(self->name, O_RDONLY);
	ASSERT_EQ(getpid(), holder(others, "parent"));

	/* a process that inherits a file and gets through it is not its opener */
	q_add(self->q, "inherited");
	got = child();
	if (!got)
		_exit(q_get(inherited, &it, 0) ? 1 : 0);
	ASSERT_EQ(0, reap(got));
	ASSERT_EQ(getpid(), holder(self->q, "inherited"));
	kill(pid, SIGKILL);
	reap(pid);
	ASSERT_EQ(0, holder(self->q, "child"));
}

TEST_F(queue, query_holder_is_the_opener_even_if_another_process_bound_the_file)
{
	struct item it;
	int fd = q_dev(O_RDWR);
	pid_t pid;

	/* as a shell does that has the descriptor, by wqctl bind and get */
	q_add(self->q, "a");
	pid = child();
	if (!pid)
		_exit(q_bind(fd, self->name, 0, 0, 0) || q_get(fd, &it, 0));
	ASSERT_EQ(0, reap(pid));
	ASSERT_EQ(getpid(), holder(self->q, "a"));
}

static void *open_and_get(void *name)
{
	struct item it;

	if (q_get(q_attach(name, O_RDWR), &it, 0))
		abort();
	return NULL;
}

TEST_F(queue, query_holder_is_the_process_not_the_thread)
{
	pthread_t thread;

	q_add(self->q, "a");
	ASSERT_EQ(0, pthread_create(&thread, NULL, open_and_get, self->name));
	pthread_join(thread, NULL);
	ASSERT_EQ(getpid(), holder(self->q, "a"));
}

TEST_F(queue, query_holder_of_a_file_that_outlives_its_opener_is_the_opener_or_0)
{
	int *stage = shared(sizeof(*stage));
	pid_t opener;
	__u32 is;

	/* the opener's child keeps the file and gets through it after the opener has exited */
	q_add(self->q, "a");
	opener = child();
	if (!opener) {
		int fd = q_attach(self->name, O_RDWR);
		struct item it;

		if (fork())
			_exit(0);
		if (!EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) >= 1))
			_exit(1);
		q_get(fd, &it, 0);
		(void)EVENTUALLY(__atomic_load_n(stage, __ATOMIC_ACQUIRE) >= 2);
		_exit(0);
	}
	ASSERT_EQ(0, reap(opener));
	__atomic_store_n(stage, 1, __ATOMIC_RELEASE);
	ASSERT_EVENTUALLY(q_stat(self->q).processing == 1);
	is = holder(self->q, "a");
	__atomic_store_n(stage, 2, __ATOMIC_RELEASE);
	/* the opener's number or 0, but no other */
	ASSERT_TRUE(is == 0 || is == opener) {
		TH_LOG("held by %u, opened by %d", is, opener);
	}
}

TEST_F(queue, query_holder_pid_is_of_the_callers_pid_namespace_or_0)
{
	struct item it;
	__u32 *pids = shared(4 * sizeof(*pids));
	pid_t pid;

	q_add(self->q, "outer");
	q_add(self->q, "inner");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	pid = child();
	if (!pid) {
		pid_t inner;

		if (unshare(CLONE_NEWPID))
			_exit(2);
		inner = fork();
		if (!inner) {
			int fd = q_attach(self->name, O_RDWR);

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			q_get(fd, &it, 0);
			pids[0] = holder(fd, "outer");
			pids[1] = holder(fd, "inner");
			__atomic_store_n(&pids[3], 1, __ATOMIC_RELEASE);
			pause();
			_exit(1);
		}
		__atomic_store_n(&pids[2], inner, __ATOMIC_RELEASE);
		_exit(reap(inner) == 1000 + SIGKILL ? 0 : 3);
	}
	/* the child writes pids[2] after fork(), maybe later than the grandchild pids[3] */
	ASSERT_EVENTUALLY((__atomic_load_n(&pids[3], __ATOMIC_ACQUIRE) &&
			   __atomic_load_n(&pids[2], __ATOMIC_ACQUIRE)) || !alive(pid));
	ASSERT_TRUE(alive(pid)) {
		TH_LOG("can't create a pid namespace");
	}
	EXPECT_EQ(0, pids[0]);
	EXPECT_EQ(1, pids[1]);
	EXPECT_EQ(getpid(), holder(self->q, "outer"));
	EXPECT_EQ(pids[2], holder(self->q, "inner"));
	EXPECT_LT(1, pids[2]);
	kill(pids[2], SIGKILL);
	ASSERT_EQ(0, reap(pid));
}

/* ---- list ---- */

/* The record of this key in a queue that one call can list, or NULL. */
static struct wq_list_rec *find_row(int q, struct array *a, const char *key)
{
	struct wq_list_rec *row = a->recs;
	__u64 cursor = 0;

	memset(a->recs, 0xa5, a->room);
	if (q_list(q, a, 0, &cursor) || cursor)
		return NULL;
	for (int i = 0; i < a->count; i++, row = row_next(row))
		if (row->len == strlen(key) && !memcmp(row->key, key, row->len))
			return row;
	return NULL;
}

TEST_F(queue, list_returns_state_age_due_failures_and_holder)
{
	int other = q_attach(self->name, O_RDWR);
	struct span added, got, delayed, now;
	struct array a = array_new(4096);
	struct wq_list_rec *row;
	struct item it;

	/* a retained key, and one of another consumer */
	q_add_flags(self->q, "kept", 0, WQ_ADD_RATE_LIMITED);
	ASSERT_EQ(0, q_get(self->q, &it, 20 * SEC));
	ASSERT_EQ(0, q_done(self->q, &it));
	q_add(self->q, "other");
	ASSERT_EQ(0, q_get(other, &it, 0));
	q_add(self->q, "held");
	ASSERT_EQ(0, TIMED(got, q_get(self->q, &it, 0)));
	ASSERT_EQ(1, q_add(self->q, "held"));
	ASSERT_EQ(1, TIMED(added, q_add(self->q, "ready")));
	ASSERT_EQ(1, TIMED(delayed, q_add_after(self->q, "delayed", HOUR)));
	sleep_ms(5);

	row = TIMED(now, find_row(self->q, &a, "held"));
	ASSERT_NE(NULL, row);
	ASSERT_EQ(5, a.count);
	ASSERT_EQ(MINE | WQ_KEY_DIRTY, row->info.state);
	ASSERT_EQ(getpid(), row->info.holder);
	ASSERT_TRUE(is_age(row->info.age, got, now));
	ASSERT_EQ(-1, row->info.due);
	ASSERT_EQ(0, row->info.failures);
	ASSERT_EQ(0, row->flags);
	/* zeros up to the next row */
	ASSERT_EQ(0, memcmp("held\0\0\0", row->key, 8));

	row = TIMED(now, find_row(self->q, &a, "ready"));
	ASSERT_NE(NULL, row);
	ASSERT_EQ(READY, row->info.state);
	ASSERT_EQ(0, row->info.holder);
	ASSERT_TRUE(is_age(row->info.age, added, now));
	ASSERT_EQ(-1, row->info.due);

	row = TIMED(now, find_row(self->q, &a, "delayed"));
	ASSERT_NE(NULL, row);
	ASSERT_EQ(WQ_KEY_DELAYED, row->info.state);
	ASSERT_EQ(0, row->info.holder);
	ASSERT_EQ(0, row->info.age);
	ASSERT_TRUE(is_age(HOUR - row->info.due, delayed, now));

	row = find_row(self->q, &a, "other");
	ASSERT_NE(NULL, row);
	ASSERT_EQ(HELD, row->info.state);
	ASSERT_EQ(getpid(), row->info.holder);

	row = find_row(self->q, &a, "kept");
	ASSERT_NE(NULL, row);
	ASSERT_EQ(WQ_KEY_FAILED, row->info.state);
	ASSERT_EQ(1, row->info.failures);
	ASSERT_EQ(0, row->info.holder);
	ASSERT_EQ(0, row->info.age);
	ASSERT_EQ(-1, row->info.due);
	ASSERT_EQ(WQ_KEY_FAILED, q_cancel(self->q, "kept"));
	free(a.recs);
}

TEST_F(queue, list_equals_query)
{
	struct array a = array_new(8192);
	struct wq_list_rec *row = a.recs;
	__u64 cursor = 0;
	char key[16];
	struct item it;

	for (int i = 0; i < 60; i++) {
		snprintf(key, sizeof(key), "%d", i);
		if (i % 3)
			q_add(self->q, key);
		if (i % 4 == 1)
			q_add_after(self->q, key, HOUR + i * SEC);
		if (i % 5 == 2 && !q_get(self->q, &it, 0) && i % 2)
			q_done_reason(self->q, &it, WQ_OUTCOME_GIVE_UP, NULL);
	}
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(0, cursor);
	ASSERT_EQ(q_stat(self->q).keys, a.count);
	for (int i = 0; i < a.count; i++, row = row_next(row)) {
		struct wq_key_op ks;

		snprintf(key, sizeof(key), "%.*s", row->len, row->key);
		ASSERT_EQ(row->info.state, key_state(self->q, WQ_DO_QUERY, key, &ks));
		ASSERT_EQ(row->info.holder, ks.info.holder);
		ASSERT_EQ(row->info.failures, ks.info.failures);
		ASSERT_EQ(row->info.last_result, ks.info.last_result);
		ASSERT_EQ(row->info.last_took, ks.info.last_took);
		ASSERT_LE(row->info.last_age, ks.info.last_age);
		ASSERT_LE(row->info.age, ks.info.age);
		ASSERT_EQ(!row->info.age, !ks.info.age);
		ASSERT_LE(ks.info.due, row->info.due);
		ASSERT_EQ(row->info.due == -1, ks.info.due == -1);
	}
	ASSERT_EQ(a.used, (char *)row - (char *)a.recs);
	free(a.recs);
}

TEST_F(queue, list_fails_with_EMSGSIZE_if_the_next_record_does_not_fit)
{
	struct array a = array_new(4096);
	char key[101] = { 0 };
	__u64 cursor = 0;

	memset(key, 'k', 100);
	q_add(self->q, key);
	for (a.room = 0; a.room < WQ_LIST_REC_SIZE(100); a.room += 8) {
		ASSERT_EQ(-EMSGSIZE, q_list(self->q, &a, 0, &cursor)) {
			TH_LOG("%u bytes", a.room);
		}
		ASSERT_EQ(0, a.count);
		ASSERT_EQ(0, cursor);
	}
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(1, a.count);
	ASSERT_EQ(WQ_LIST_REC_SIZE(100), a.used);
	ASSERT_EQ(0, cursor);
	free(a.recs);
}

TEST_F(queue, list_into_small_buffers_returns_every_key_once)
{
	static const int rooms[] = { WQ_LIST_REC_SIZE(WQ_MAX_KEY), WQ_LIST_REC_SIZE(WQ_MAX_KEY) + 40, 5000 };
	char key[WQ_MAX_KEY + 1];

	for (int i = 1; i <= 200; i++) {
		int len = i * 5 + 24;

		memset(key, 'k', len);
		key[len] = 0;
		ASSERT_EQ(1, q_add(self->q, key));
	}
	for (int r = 0; r < ARRAY_SIZE(rooms); r++) {
		struct array a = { .recs = edge(rooms[r]), .room = rooms[r] };
		int seen[WQ_MAX_KEY + 1] = { 0 }, keys = 0;
		__u64 cursor = 0;

		do {
			struct wq_list_rec *row = a.recs;

			ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
			for (int i = 0; i < a.count; i++, row = row_next(row), keys++)
				ASSERT_EQ(1, ++seen[row->len]);
		} while (cursor);
		ASSERT_EQ(200, keys);
	}
}

/* Keys that a thread adds and finishes, each of them once. */
#define TRANSIENT	100000
#define AT_ONCE		2000
#define STAY		500

static int come_and_go_queue;

struct failure {
	int line, ret;
};

static void *come_and_go(void *arg)
{
	struct failure *failure = arg;
	struct array a = array_new(AT_ONCE * WQ_REC_SIZE(8)), got = array_new(8192);
	int q = come_and_go_queue, ret;

	for (int n = 0; n < TRANSIENT; n += AT_ONCE) {
		array_reset(&a);
		for (int i = n; i < n + AT_ONCE; i++)
			array_putf(&a, "x%d", i);
		ret = q_add_array(q, &a);
		if (ret)
			*failure = (struct failure){ __LINE__, ret };
		while (!q_get_array(q, &got, 0, 0)) {
			ret = q_done_array(q, &got);
			if (ret)
				*failure = (struct failure){ __LINE__, ret };
		}
	}
	__atomic_store_n(&come_and_go_queue, -1, __ATOMIC_RELEASE);
	return NULL;
}

TEST_F(queue, list_returns_a_key_once_while_100000_others_come_and_go)
{
	struct failure failure = { 0 };
	int walks = 0, others = 0;
	struct array a = array_new(8192);
	struct item it;
	pthread_t thread;
	char *seen;

	/* a held key and delayed ones */
	q_add(self->q, "held");
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	for (int i = 0; i < STAY; i++) {
		char key[8];

		snprintf(key, sizeof(key), "s%d", i);
		ASSERT_EQ(1, q_add_after(self->q, key, HOUR));
	}
	come_and_go_queue = q_attach(self->name, O_RDWR);
	ASSERT_EQ(0, pthread_create(&thread, NULL, come_and_go, &failure));
	do {
		int stay[STAY] = { 0 }, held = 0;
		__u64 cursor = 0;

		seen = calloc(1, TRANSIENT);
		do {
			struct wq_list_rec *row = a.recs;

			ASSERT_EQ(0, q_list(self->q, &a, 40, &cursor));
			for (int i = 0; i < a.count; i++, row = row_next(row)) {
				/* each row's key is followed by a row or by room */
				char key[16] = { 0 };

				ASSERT_GE(8, row->len);
				memcpy(key, row->key, row->len);
				held += key[0] == 'h';
				others += key[0] == 'x';
				if (key[0] == 's')
					stay[atoi(key + 1)]++;
				else if (key[0] == 'x')
					ASSERT_EQ(1, ++seen[atoi(key + 1)]);
			}
		} while (cursor);
		free(seen);
		ASSERT_EQ(1, held);
		for (int i = 0; i < STAY; i++)
			ASSERT_EQ(1, stay[i]);
		walks++;
	} while (__atomic_load_n(&come_and_go_queue, __ATOMIC_ACQUIRE) >= 0);
	pthread_join(thread, NULL);
	ASSERT_EQ(0, failure.ret) {
		TH_LOG("line %d", failure.line);
	}
	COMMENT("%d walks saw %d of the others\n", walks, others);
	ASSERT_LT(0, others);
	ASSERT_EQ(TRANSIENT + 1, q_stat(self->q).gets);
	free(a.recs);
}

/* ---- the list of queues ---- */

static int listed_to(uid_t uid, gid_t gid, gid_t group, const char *name)
{
	pid_t pid = user(uid, gid, group);

	if (!pid)
		_exit(times_listed(name, NULL));
	return reap(pid);
}

TEST_F(users, queues_are_listed_for_callers_that_may_open_them)
{
	static const struct {
		uid_t uid;
		gid_t gid, group;
		int shift;
	} who[] = {
		{ ALICE, GROUP, 0, 6 },
		{ ALICE, OTHERS, 0, 6 },
		{ BOB, GROUP, 0, 3 },
		{ BOB, OTHERS, GROUP, 3 },
		{ BOB, OTHERS, 0, 0 },
	};

	for (int bits = 0; bits <= 6; bits += 2) {
		for (int i = 0; i < ARRAY_SIZE(who); i++) {
			/* the other two classes have all the rights that this one lacks */
			__u32 mode = (0666 & ~(7 << who[i].shift)) | (bits << who[i].shift);
			pid_t pid = user(ALICE, GROUP, 0);
			struct wq_stat found;

			if (!pid) {
				umask(0);
				_exit(q_open(self->name, O_RDWR, EXCL, mode, 10) < 0);
			}
			ASSERT_EQ(0, reap(pid));
			ASSERT_EQ(!!bits, listed_to(who[i].uid, who[i].gid, who[i].group,
						  self->name)) {
				TH_LOG("user %d mode %#o", i, mode);
			}
			/* root sees all */
			ASSERT_EQ(1, times_listed(self->name, &found));
			ASSERT_EQ(mode, found.mode);
			ASSERT_EQ(ALICE, found.uid);
			ASSERT_EQ(GROUP, found.gid);
			ASSERT_EQ(0, q_unlink(self->name));
		}
	}
}

TEST_HARNESS_MAIN
