// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keys that a user chooses by the order in which list returns keys: they make no other key fail,
 * and cost other keys no more than a few times the usual.  In a queue whose groups are named by whole
 * keys, the order of list is that of the groups in their table as well.
 */
#include "wq_users.h"

#define LIMIT	300		/* time limit of a test, in s */

enum {
	MANY = 200000,		/* keys whose order the attacker looks at */
	OTHER = 1000,		/* keys of another user */
	LEN = 12,		/* bytes of each key here */
};

/* ---- arrays of keys ---- */

struct key { __u8 bytes[LEN]; };

/* Adds n keys, as many as fit into each call; the number of those that were not newly dirty. */
static int add_keys(int q, const struct key *keys, int n)
{
	enum { BATCH = 512 };
	struct array a = array_new(BATCH * WQ_REC_SIZE(LEN));
	__s32 results[BATCH];
	int bad = 0;

	a.results = results;
	for (int i = 0; i < n;) {
		array_reset(&a);
		for (; i < n && a.count < BATCH; i++)
			array_put(&a, keys[i].bytes, LEN, 0);
		if (q_add_array(q, &a)) {
			bad = n;
			break;
		}
		for (int j = 0; j < a.count; j++)
			bad += results[j] != 1;
	}
	free(a.recs);
	return bad;
}

/* Lists the queue, up to most records a call. Returns the number of keys, at most room. */
static int list_keys(int q, struct key *keys, int room, int most)
{
	struct array a = array_new(WQ_MAX_OUT);
	__u64 cursor = 0;
	int n = 0;

	do {
		struct wq_list_rec *row = a.recs;

		if (q_list(q, &a, most, &cursor))
			return -1;
		for (int i = 0; i < a.count && n < room; i++, row = row_next(row))
			memcpy(keys[n++].bytes, row->key, LEN);
	} while (cursor);
	free(a.recs);
	return n;
}

/* Gets and finishes all keys. */
static int empty(int q)
{
	struct array a = array_new(WQ_MAX_OUT);
	int ret;

	while (!(ret = q_get_array(q, &a, 0, 0)))
		if (q_done_array(q, &a))
			return 1;
	free(a.recs);
	return ret != -EAGAIN || q_stat(q).keys;
}

static void random_keys(struct key *keys, int n)
{
	for (int i = 0; i < n; i++)
		for (int j = 0; j < LEN; j++)
			keys[i].bytes[j] = random();
}

/* Add new keys and cancel them.  The time of the fastest round is in *@least. */
static int cost(int q, const struct key *keys, int n, __s64 *least)
{
	__s64 begun = now_ns();

	for (int i = 0; i < n; i++)
		if (q_addn(q, keys[i].bytes, LEN) != 1)
			return -1;
	for (int i = 0; i < n; i++)
		if (q_key_state(q, WQ_DO_CANCEL, keys[i].bytes, LEN) < 0)
			return -1;
	if (now_ns() - begun < *least)
		*least = now_ns() - begun;
	return 0;
}

/* A queue of root that all users may use; "" is private.  With groups: each key is one. */
static int open_for_all(const char *name, bool groups)
{
	struct wq_attrs op = {
		.size = sizeof(op), .max_keys = 2 * MANY,
		.order = groups ? WQ_ORDER_PREFIX : WQ_ORDER_FIFO, .order_arg = groups ? LEN : 0,
	};
	mode_t mask = umask(0);
	int q = q_dev(O_RDWR), ret;

	if (*name) {
		strcpy(op.name, name);
		op.flags = EXCL;
		op.mode = 0666;
	}
	ret = verb(q, WQ_IOC_OPEN, &op);
	umask(mask);
	if (!ret)
		return q;
	close(q);
	return ret;
}

/* Adds many keys, writes their order in list to an array, and removes them. */
static int find_order(const char *name, struct key *order)
{
	struct key *keys = calloc(MANY, sizeof(*keys));
	int q = q_attach(name, O_RDWR);

	srandom(4711);
	random_keys(keys, MANY);
	CHECK(!add_keys(q, keys, MANY));
	CHECK(list_keys(q, order, MANY, 0) == MANY);
	CHECK(!empty(q));
	return 0;
}

/* The order of many keys of ALICE, or NULL. */
static struct key *learn_order(const char *name)
{
	struct key *order = mmap(NULL, MANY * sizeof(*order), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = user(ALICE, GROUP, 0);

	if (!pid)
		_exit(find_order(name, order));
	return reap(pid) ? NULL : order;
}

/* ALICE adds n keys that are adjacent in the order. */
static int add_adjacent(const char *name, const struct key *order, int n)
{
	pid_t pid = user(ALICE, GROUP, 0);

	if (!pid)
		_exit(add_keys(q_attach(name, O_RDWR), order, n) != 0);
	return reap(pid);
}

/* BOB adds keys of his. Returns how many failed, 200 for more. */
static int adds_that_fail(const char *name)
{
	pid_t pid = user(BOB, OTHERS, 0);

	if (!pid) {
		struct key keys[OTHER];
		int bad;

		srandom(42);
		random_keys(keys, OTHER);
		bad = add_keys(q_attach(name, O_WRONLY), keys, OTHER);
		_exit(bad < 200 ? bad : 200);
	}
	return reap(pid);
}

enum { WINDOWS = 3 };
static const int windows[WINDOWS] = { 90, 400, 3000 };

/*
 * Keys that are adjacent in a table of 200,000 keys can be in one place of a table of a few
 * hundred.  How many adds of BOB fail beside these, for each window, and -1 for another error.
 */
static void failures_beside(const char *name, bool groups, int failures[WINDOWS])
{
	int q = open_for_all(name, groups);
	struct key *order = q < 0 ? NULL : learn_order(name);

	for (int i = 0; i < WINDOWS; i++) {
		int *bad = &failures[i];

		*bad = -1;
		if (!order || add_adjacent(name, order + 777, windows[i]) ||
		    q_stat(q).keys != windows[i])
			continue;
		*bad = adds_that_fail(name);
		if (!*bad && q_stat(q).keys != windows[i] + OTHER)
			*bad = -1;
		if (empty(q))
			*bad = -1;
	}
	close(q);
	q_unlink(name);
}

TEST_F_TIMEOUT(users, keys_adjacent_in_list_order_make_no_other_add_fail, LIMIT)
{
	int failures[WINDOWS];

	failures_beside(self->name, false, failures);
	for (int i = 0; i < WINDOWS; i++) {
		EXPECT_EQ(0, failures[i]) {
			TH_LOG("adds after %d chosen keys", windows[i]);
		}
	}
}

TEST_F_TIMEOUT(users, groups_adjacent_in_list_order_make_no_other_add_fail, LIMIT)
{
	int failures[WINDOWS];

	failures_beside(self->name, true, failures);
	for (int i = 0; i < WINDOWS; i++) {
		EXPECT_EQ(0, failures[i]) {
			TH_LOG("adds after %d chosen groups", windows[i]);
		}
	}
}

/* How many times the usual adds and cancels cost beside chosen keys, in percent; -1: an error. */
static long long slowdown(const char *name, bool groups)
{
	enum { CHOSEN = 3000 };
	int usual = open_for_all("", groups), q = open_for_all(name, groups);
	struct key *fill = calloc(CHOSEN, sizeof(*fill)), keys[OTHER], *order;
	__s64 with = INT64_MAX, without = INT64_MAX;

	srandom(7);
	random_keys(fill, CHOSEN);
	random_keys(keys, OTHER);
	if (usual < 0 || q < 0 || add_keys(usual, fill, CHOSEN))
		return -1;
	order = learn_order(name);
	if (!order || add_adjacent(name, order + 100, CHOSEN) || q_stat(q).keys != CHOSEN)
		return -1;
	/* in alternation, so that another load of the machine slows both */
	for (int round = 0; round < 15; round++)
		if (cost(usual, keys, OTHER, &without) || cost(q, keys, OTHER, &with))
			return -1;
	COMMENT("%d adds and cancels: %lld us, beside chosen keys %lld us\n", OTHER,
		without / 1000, with / 1000);
	close(q);
	close(usual);
	free(fill);
	return 100 * with / without;
}

TEST_F_TIMEOUT(users, keys_adjacent_in_list_order_do_not_slow_other_keys, LIMIT)
{
	long long percent = slowdown(self->name, false);

	ASSERT_LT(0, percent);
	ASSERT_GT(400, percent);
}

TEST_F_TIMEOUT(users, groups_adjacent_in_list_order_do_not_slow_other_groups, LIMIT)
{
	long long percent = slowdown(self->name, true);

	ASSERT_LT(0, percent);
	ASSERT_GT(400, percent);
}

TEST_HARNESS_MAIN
