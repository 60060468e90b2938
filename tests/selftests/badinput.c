// SPDX-License-Identifier: GPL-2.0-only
/* Bad input: each call fails with its errno and changes nothing. */
#include "wq_test.h"

#include <sys/param.h>

/* WQ_IOC_ATTRS that reports. */
#define REPORT		(WQ_IOC_ATTRS | 0x10000)

#define ANY_OP	15	/* the bits of WQ_DO_*, which stand where others have flags */

/* Every verb that needs a queue, in an order in which all succeed; then the others. */
static const struct {
	unsigned int nr;
	__u32 known;		/* flags that the verb knows */
	__u32 more;		/* flags that contradict these */
} verbs[] = {
	{ WQ_IOC_ADD, 0, 0 }, { KEY_VERB(WQ_DO_QUERY), ANY_OP, 0 },
	{ WQ_IOC_LIST, WQ_LIST_SINCE | WQ_LIST_IDLE, WQ_LIST_GROUPS }, { WQ_IOC_STAT, 0, 0 },
	{ REPORT, 0, 0 },
	{ WQ_IOC_ATTRS, 0, 0 }, { WQ_IOC_PAUSE, WQ_PAUSE_GETS | WQ_PAUSE_ADDS, 0 },
	{ KEY_VERB(WQ_DO_KICK), ANY_OP, 0 },
	{ WQ_IOC_WAIT, WQ_WAIT_OWN, WQ_WAIT_RUN | WQ_WAIT_DRAIN | WQ_WAIT_ADD },
	{ KEY_VERB(WQ_DO_ENABLE), ANY_OP, 0 }, { WQ_IOC_GET, 0, 0 }, { WQ_IOC_TOUCH, 0, 0 },
	{ WQ_IOC_DONE, WQ_DONE_GET, 0 }, { WQ_IOC_ADD, 0, 0 },
	{ KEY_VERB(WQ_DO_FORGET), ANY_OP, 0 }, { KEY_VERB(WQ_DO_CANCEL), ANY_OP, 0 },
	{ KEY_VERB(WQ_DO_DISABLE), ANY_OP, 0 }, { WQ_IOC_MAP, 0, 0 },
	{ WQ_IOC_SHUTDOWN, WQ_SHUTDOWN_DRAIN, 0 },
	{ WQ_IOC_INFO, WQ_INFO_OWNER, 0 }, { WQ_IOC_UNLINK, 0, 0 },
	{ WQ_IOC_OPEN, WQ_OPEN_CREATE | WQ_OPEN_EXCL,
	  WQ_OPEN_ACCEPT | WQ_OPEN_NO_MAP | WQ_OPEN_SAME },
};

#define NEED_A_QUEUE	(ARRAY_SIZE(verbs) - 3)

struct args {
	union {
		__u32 size;
		struct {
			__u32 same_size;
			__u32 flags;
		};
		struct wq_info info;
		struct wq_attrs open;
		struct wq_attrs unlink;
		struct wq_add add;
		struct wq_get get;
		struct wq_done done;
		struct wq_stat stat;
		struct wq_key_op ks;
		struct wq_list list;
		struct wq_attrs config;
		struct wq_control control;
		struct wq_wait wait;
		char bytes[4096];
	};
};

static union one in, out;

/* A correct call, with the key "k". */
static struct args good(unsigned int nr)
{
	struct args a = { .size = 0 };
	struct wq_keys keys = { addr_of(rec_set(&in, "k", 1, 0)), WQ_REC_SIZE(1), 1 };
	struct wq_keys room = { addr_of(&out), sizeof(out), 1 };

	switch (nr) {
	case WQ_IOC_INFO:
		a.size = sizeof(a.info);
		break;
	case WQ_IOC_OPEN:
		a.size = sizeof(a.open);
		break;
	case WQ_IOC_UNLINK:
		a.size = UNLINK_SIZE;
		strcpy(a.unlink.name, "nosuch");
		break;
	case WQ_IOC_ADD:
	case WQ_IOC_TOUCH:
		a.size = sizeof(a.add);
		a.add.keys = keys;
		break;
	case WQ_IOC_GET:
		a.size = sizeof(a.get);
		a.get.keys = room;
		break;
	case WQ_IOC_DONE:
		a.size = sizeof(a.done);
		a.done.keys = keys;
		break;
	case WQ_IOC_STAT:
		a.size = sizeof(a.stat);
		break;
	case REPORT:
		a.size = sizeof(a.config);
		break;
	case WQ_IOC_ATTRS:
		/* the default, so that nothing changes */
		a.size = sizeof(a.config);
		a.config.set = WQ_ATTR_MAX_KEYS;
		a.config.max_keys = 65536;
		break;
	case KEY_VERB(WQ_DO_KICK):
		a.size = sizeof(a.ks);
		a.ks.op = WQ_DO_KICK;
		a.ks.count = 1;
		break;
	case KEY_VERB(WQ_DO_QUERY):
	case KEY_VERB(WQ_DO_FORGET):
	case KEY_VERB(WQ_DO_CANCEL):
	case KEY_VERB(WQ_DO_DISABLE):
	case KEY_VERB(WQ_DO_ENABLE):
		a.size = sizeof(a.ks);
		a.ks.op = nr >> 16;
		a.ks.key = addr_of("k");
		a.ks.key_len = 1;
		break;
	case WQ_IOC_LIST:
		a.size = sizeof(a.list);
		a.list.keys = room;
		break;
	case WQ_IOC_PAUSE:
		/* a resume, so that nothing changes */
		a.size = sizeof(a.control);
		a.control.flags = WQ_PAUSE_GETS;
		break;
	case WQ_IOC_WAIT:
		a.size = sizeof(a.wait);
		a.wait.key = addr_of("x");
		a.wait.key_len = 1;
		break;
	case WQ_IOC_SHUTDOWN:
	case WQ_IOC_MAP:
		a.size = sizeof(a.control);
		break;
	}
	return a;
}

/* A queue with a ready, a held and a held and dirty key. */
FIXTURE(used) {
	int q, unbound;
	struct wq_stat before;
};

FIXTURE_SETUP(used)
{
	struct item it;

	self->unbound = q_dev(O_RDWR);
	self->q = q_private(0);
	ASSERT_LE(0, self->q);
	q_add(self->q, "held");
	q_add(self->q, "dirty");
	q_get(self->q, &it, 0);
	q_get(self->q, &it, 0);
	q_add(self->q, "dirty");
	q_add(self->q, "k");
	self->before = q_stat(self->q);
	ASSERT_EQ(2, self->before.held);
}

/* No bad call changed anything. */
FIXTURE_TEARDOWN(used)
{
	EXPECT_TRUE(same(&self->before, self->q));
	EXPECT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_query(self->q, "k"));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, q_query(self->q, "held"));
	EXPECT_EQ(WQ_KEY_PROCESSING | WQ_KEY_DIRTY | WQ_KEY_MINE, q_query(self->q, "dirty"));
	EXPECT_EQ(-ENOTCONN, q_shutdown(self->unbound));
	close(self->unbound);
	close(self->q);
}

/* ---- the errors that are common to all verbs ---- */

/* Open needs a file without a queue. */
#define FILE_OF(nr)	((nr) == WQ_IOC_OPEN ? self->unbound : self->q)

/* Whether the call fails with this error and does not write its struct. */
static bool fails_with(int error, int fd, unsigned int nr, struct args *a)
{
	struct args was = *a;
	char what[64];

	snprintf(what, sizeof(what), "verb %#x, size %u", nr, a->size);
	return equal(what, error, verb_of(fd, nr, a)) && equal_bytes(what, &was, a, sizeof(was));
}

TEST_F(used, fails_with_EFAULT_if_the_struct_can_not_be_read)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = verbs[i].nr;
		struct args a = good(nr);
		size_t part = (a.size - 1) & ~7;
		void *bad[] = {
			NULL, edge(0), (void *)-4096L, memcpy(edge(8), &a, 8),
			memcpy(edge(part), &a, part),
		};

		for (int j = 0; j < ARRAY_SIZE(bad); j++) {
			EXPECT_EQ(-EFAULT, verb_of(FILE_OF(nr), nr, bad[j])) {
				TH_LOG("verb %#x, address %d", nr, j);
			}
		}
	}
}

TEST_F(used, fails_with_EINVAL_for_a_size_below_8)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = verbs[i].nr;
		struct args a = good(nr);

		for (a.size = 0; a.size < 8; a.size++)
			EXPECT_TRUE(fails_with(-EINVAL, FILE_OF(nr), nr, &a));
	}
}

TEST_F(used, fails_with_E2BIG_for_a_size_above_a_page)
{
	const __u32 page = sysconf(_SC_PAGESIZE);
	const __u32 sizes[] = { page + 1, page + 8, 2 * page, 4 * page, 0x7fffffff, 0xffffffff };
	/* zeros follow, which a smaller size would allow */
	struct args *wide = calloc(4, page);

	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = verbs[i].nr;

		for (int j = 0; j < ARRAY_SIZE(sizes); j++) {
			*wide = good(nr);
			wide->size = sizes[j];
			EXPECT_TRUE(fails_with(-E2BIG, FILE_OF(nr), nr, wide));
		}
	}
	free(wide);
}

TEST_F(used, fails_with_E2BIG_for_a_byte_beyond_the_kernels_struct)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = verbs[i].nr;
		__u32 known = good(nr).size;

		/* the first byte, some behind it, and the last one of the struct and of a page */
		for (__u32 at = known; at < 4096; at += at == known ? 7 : 501) {
			struct args a = good(nr);

			a.bytes[at] = 1;
			a.size = at + 1;
			EXPECT_TRUE(fails_with(-E2BIG, FILE_OF(nr), nr, &a));
			a.size = 4096;
			EXPECT_TRUE(fails_with(-E2BIG, FILE_OF(nr), nr, &a));
		}
	}
}

TEST_F(used, fails_with_EINVAL_for_an_unknown_flag)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = verbs[i].nr;

		for (int bit = 0; bit < 32; bit++) {
			struct args alone = good(nr), beside = good(nr);

			if ((verbs[i].known | verbs[i].more) & 1U << bit)
				continue;
			alone.flags = 1U << bit;
			EXPECT_EQ(-EINVAL, verb_of(FILE_OF(nr), nr, &alone)) {
				TH_LOG("verb %#x, bit %d", nr, bit);
			}
			/* the known flags need a good buffer, or a name */
			beside.flags = 1U << bit | verbs[i].known;
			if (nr == WQ_IOC_DONE)
				beside.done.next = good(WQ_IOC_GET).get.keys;
			if (nr == WQ_IOC_OPEN)
				strcpy(beside.open.name, "new");
			EXPECT_EQ(-EINVAL, verb_of(FILE_OF(nr), nr, &beside)) {
				TH_LOG("verb %#x, bit %d beside %#x", nr, bit, verbs[i].known);
			}
		}
	}
}

TEST_F(used, unknown_ioctl_fails_with_ENOTTY)
{
	struct args a = good(WQ_IOC_ADD), was = a;
	const unsigned int nrs[] = {
		_IO(WQ_IOC_MAGIC, 0x40), _IO(WQ_IOC_MAGIC, 0xfe), _IO(WQ_IOC_MAGIC, 0xff),
		_IO(WQ_IOC_MAGIC + 1, 0x03), _IO('T', 0x03), 0x03,
		_IOWR(WQ_IOC_MAGIC, 0x40, struct wq_add), 0xffffffff,
		_IOC(_IOC_WRITE, WQ_IOC_MAGIC, _IOC_NR(WQ_IOC_ADD), sizeof(struct wq_add)),
	};

	for (int i = 0; i < ARRAY_SIZE(nrs); i++)
		EXPECT_EQ(-ENOTTY, verb(self->q, nrs[i], &a));
	/* the number of a verb with another size or type */
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		unsigned int nr = _IOC_NR(verbs[i].nr);

		EXPECT_EQ(-ENOTTY, verb(self->q, _IOWR(WQ_IOC_MAGIC, nr, int), &a));
		EXPECT_EQ(-ENOTTY, verb(self->q, _IO('T', nr), &a));
		EXPECT_EQ(-ENOTTY, verb(self->q, _IO(WQ_IOC_MAGIC, nr + 0x40), &a));
	}
	EXPECT_TRUE(equal_bytes("the struct", &was, &a, sizeof(a)));
}

TEST(verbs_except_info_open_and_unlink_fail_with_ENOTCONN_without_a_queue)
{
	int fd = q_dev(O_RDWR);
	struct args a;

	for (int i = 0; i < NEED_A_QUEUE; i++) {
		a = good(verbs[i].nr);
		ASSERT_EQ(-ENOTCONN, verb_of(fd, verbs[i].nr, &a));
	}
	a = good(WQ_IOC_INFO);
	ASSERT_EQ(0, verb(fd, WQ_IOC_INFO, &a));
	a = good(WQ_IOC_UNLINK);
	ASSERT_EQ(-ENOENT, verb(fd, WQ_IOC_UNLINK, &a));
	a = good(WQ_IOC_OPEN);
	ASSERT_EQ(0, verb(fd, WQ_IOC_OPEN, &a));
	ASSERT_EQ(1, q_add(fd, "a"));
}

TEST_F(used, open_of_a_bound_file_fails_with_EISCONN)
{
	ASSERT_EQ(-EISCONN, q_bind(self->q, "", 0, 0, 0));
	ASSERT_EQ(-EISCONN, q_bind(self->q, "other", WQ_OPEN_CREATE, 0600, 0));
	ASSERT_EQ(-ENOENT, q_unlink("other"));
}

TEST(longer_struct_with_zeros_past_the_known_fields_works)
{
	static const unsigned int more[] = { 0, 1, 8, 64, 1024, 4096 /* up to a page */ };

	for (int j = 0; j < ARRAY_SIZE(more); j++) {
		int q = q_dev(O_RDWR);
		struct args a = good(WQ_IOC_OPEN);

		a.size = MIN(a.size + more[j], sizeof(a));
		ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &a));
		a = good(WQ_IOC_INFO);
		a.size = MIN(a.size + more[j], sizeof(a));
		ASSERT_EQ(0, verb(q, WQ_IOC_INFO, &a));
		ASSERT_EQ(WQ_API_VERSION, a.info.version);
		for (int i = 0; i < NEED_A_QUEUE; i++) {
			unsigned int known = good(verbs[i].nr).size;
			int ret;

			a = good(verbs[i].nr);
			a.size = MIN(a.size + more[j], sizeof(a));
			ret = verb_of(q, verbs[i].nr, &a);
			ASSERT_LE(0, ret) {
				TH_LOG("verb %#x %u longer", verbs[i].nr, more[j]);
			}
			if (ret)
				close(ret);
			for (unsigned int k = known; k < MIN(known + more[j], sizeof(a)); k++)
				ASSERT_EQ(0, a.bytes[k]);
		}
		ASSERT_TRUE(counts(q, "adds 2, dones 1, canceled 1"));
		ASSERT_EQ(WQ_STATE_SHUTDOWN, q_stat(q).state);
		close(q);
	}
}

TEST(shorter_struct_is_extended_by_zeros_and_not_overrun)
{
	int q = q_dev(O_RDWR);
	struct args a;

	memset(&a, 0x5a, sizeof(a));
	a.size = offsetof(struct wq_attrs, name);
	a.flags = 0;
	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &a));
	ASSERT_STREQ("", q_stat(q).name);

	/* no results: the call itself returns the error */
	a = good(WQ_IOC_ADD);
	a.add.results = 1;
	a.size = offsetof(struct wq_add, results);
	ASSERT_EQ(0, verb(q, WQ_IOC_ADD, &a));
	ASSERT_EQ(1, a.add.results);
	ASSERT_EQ(1, q_stat(q).adds);

	/* no timeout: the call does not wait */
	a = good(WQ_IOC_GET);
	a.get.timeout = FOREVER;
	a.size = offsetof(struct wq_get, timeout);
	ASSERT_EQ(0, verb(q, WQ_IOC_GET, &a));
	ASSERT_EQ(1, a.get.keys.count);
	ASSERT_EQ(-EAGAIN, verb(q, WQ_IOC_GET, &a));
	ASSERT_EQ(FOREVER, a.get.timeout);

	a = good(WQ_IOC_STAT);
	memset(&a.stat.name, 0x5a, sizeof(a) - offsetof(struct wq_stat, name));
	a.size = offsetof(struct wq_stat, adds);
	ASSERT_EQ(0, verb(q, WQ_IOC_STAT, &a));
	ASSERT_EQ(1, a.stat.processing);
	ASSERT_EQ(0x5a5a5a5a5a5a5a5aULL, a.stat.adds);

	memset(&a, 0x5a, sizeof(a));
	a.size = offsetof(struct wq_info, max_key);
	a.flags = 0;
	ASSERT_EQ(0, verb(q, WQ_IOC_INFO, &a));
	ASSERT_EQ(WQ_API_VERSION, a.info.version);
	ASSERT_EQ(0x5a5a5a5a, a.info.max_key);
}

/* As built programs pass them: the sizes of the structs before fields were added to them. */
TEST(struct_without_the_fields_that_were_added_later_works)
{
	struct wq_attrs open = { .size = 112, .lease = HOUR };
	struct wq_get get = { .size = 32, .keys = { addr_of(&out), sizeof(out), 1 } };
	struct wq_key_op query = { .size = 64, .key = addr_of("k"), .key_len = 1 };
	struct wq_control sd = { .size = 8, .flags = WQ_SHUTDOWN_DRAIN };
	struct wq_stat st = { .size = offsetof(struct wq_stat, given_back_failed) };
	int q = q_dev(O_RDWR);

	open.slack = WQ_MAX_SLACK + 1;
	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &open));
	ASSERT_EQ(HOUR, q_stat(q).lease);
	ASSERT_EQ(WQ_DEFAULT_SLACK, q_stat(q).slack);

	ASSERT_EQ(1, q_add(q, "k"));
	get.deadline = -1;
	ASSERT_EQ(0, verb(q, WQ_IOC_GET, &get));
	ASSERT_EQ(1, get.keys.count);
	ASSERT_EQ(-1, get.deadline);

	query.info.given_back = 0x5a5a5a5a;
	ASSERT_EQ(0, verb(q, WQ_IOC_KEY, &query));
	ASSERT_EQ(WQ_KEY_PROCESSING | WQ_KEY_MINE, query.info.state);
	ASSERT_EQ(0x5a5a5a5a, query.info.given_back);

	st.given_back_failed = 0x5a5a5a5a5a5a5a5aULL;
	ASSERT_EQ(0, verb(q, WQ_IOC_STAT, &st));
	ASSERT_EQ(HOUR, st.lease);
	ASSERT_EQ(0x5a5a5a5a5a5a5a5aULL, st.given_back_failed);

	sd.timeout = -1;
	ASSERT_EQ(0, verb(q, WQ_IOC_SHUTDOWN, &sd));
	ASSERT_EQ(WQ_STATE_SHUTDOWN | WQ_STATE_DRAINING, q_stat(q).state);
	close(q);
}

/* ---- single verbs ---- */

TEST_F(used, get_with_a_negative_deadline_fails_with_EINVAL)
{
	static const __s64 bad[] = { -1, INT64_MIN };

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		struct args a = good(WQ_IOC_GET);

		a.get.deadline = bad[i];
		ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_GET, &a));
		ASSERT_EQ(bad[i], a.get.deadline);
		ASSERT_EQ(1, a.get.keys.count);
		ASSERT_EQ(sizeof(out), a.get.keys.size);
	}
}

TEST(open_with_a_negative_max_defer_fails_with_ERANGE)
{
	struct wq_attrs open = { .size = sizeof(open), .max_defer = -1 };
	int q = q_dev(O_RDWR);

	ASSERT_EQ(-ERANGE, verb(q, WQ_IOC_OPEN, &open));
	open.max_defer = INT64_MIN;
	ASSERT_EQ(-ERANGE, verb(q, WQ_IOC_OPEN, &open));
	open.max_defer = INT64_MAX;
	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &open));
}

TEST(open_with_a_nonzero_reserved_field_fails_with_EINVAL)
{
	struct wq_attrs open = { .size = sizeof(open), .reserved = 1 };

	ASSERT_EQ(-EINVAL, verb(q_dev(O_RDWR), WQ_IOC_OPEN, &open));
}

TEST(open_with_a_start_rate_of_groups_and_without_groups_fails_with_EINVAL)
{
	struct wq_attrs open = { .size = sizeof(open), .group_start_rate = 1 };

	ASSERT_EQ(-EINVAL, verb(q_dev(O_RDWR), WQ_IOC_OPEN, &open));
	open = (struct wq_attrs){ .size = sizeof(open), .group_start_burst = 1 };
	ASSERT_EQ(-EINVAL, verb(q_dev(O_RDWR), WQ_IOC_OPEN, &open));
	open = (struct wq_attrs){
		.size = sizeof(open), .order = WQ_ORDER_PREFIX, .order_arg = 1,
		.group_start_rate = 1, .group_start_burst = ~0U,
	};
	ASSERT_EQ(-ERANGE, verb(q_dev(O_RDWR), WQ_IOC_OPEN, &open));
}

TEST(open_with_a_slack_out_of_range_fails_with_ERANGE)
{
	static const __s64 bad[] = { -1, INT64_MIN, WQ_MAX_SLACK + 1LL, INT64_MAX };
	struct wq_attrs open = { .size = sizeof(open) };
	int q = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		open.slack = bad[i];
		ASSERT_EQ(-ERANGE, verb(q, WQ_IOC_OPEN, &open));
		ASSERT_EQ(-ENOTCONN, q_shutdown(q));
	}
	open.slack = WQ_MAX_SLACK;
	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &open));
	ASSERT_EQ(WQ_MAX_SLACK, q_stat(q).slack);
}

TEST_F(used, nonzero_reserved_field_of_a_record_fails_with_EINVAL)
{
	/* done and touch accept a record as get returned it, with failures */
	static const struct {
		unsigned int nr;
		struct wq_rec rec;
	} rows[] = {
		{ WQ_IOC_ADD, { .flags = 64 } },
		{ WQ_IOC_ADD, { .failures = 1 } },
		{ WQ_IOC_ADD, { .token = 1 } },
		{ WQ_IOC_ADD, { .given_back = 1 } },
		{ WQ_IOC_DONE, { .flags = 32 } },
		{ WQ_IOC_DONE, { .delay = 1 } },
		{ WQ_IOC_DONE, { .delay = INT64_MIN } },
		{ WQ_IOC_TOUCH, { .flags = 1 } },
		{ WQ_IOC_TOUCH, { .flags = 1 << 15 } },
		{ WQ_IOC_TOUCH, { .delay = 1 } },
		{ WQ_IOC_TOUCH, { .delay = INT64_MIN } },
	};

	for (int i = 0; i < ARRAY_SIZE(rows); i++) {
		struct args a = good(rows[i].nr);

		/* the file holds the key */
		rec_set(&in, "held", 4, 0);
		in.rec.flags = rows[i].rec.flags;
		in.rec.failures = rows[i].rec.failures;
		in.rec.given_back = rows[i].rec.given_back;
		in.rec.token = rows[i].rec.token;
		in.rec.delay = rows[i].rec.delay;
		EXPECT_EQ(-EINVAL, verb(self->q, rows[i].nr, &a)) {
			TH_LOG("row %d", i);
		}
		EXPECT_EQ(0, a.add.keys.count);
	}
}

TEST_F(used, touch_with_marks_fails_with_EINVAL)
{
	struct args a = good(WQ_IOC_TOUCH);
	struct wq_mark mark;
	__s32 result = 4711;

	a.add.results = addr_of(&result);
	a.add.marks = addr_of(&mark);
	ASSERT_EQ(-EINVAL, verb(self->q, WQ_IOC_TOUCH, &a));
	ASSERT_EQ(4711, result);
}

TEST(bad_record_fails_in_its_result_and_the_others_succeed)
{
	struct array a = array_new(8192);
	char key[WQ_MAX_KEY + 1] = "long";
	__s32 results[5] = { 9, 9, 9, 9, 9 };
	int q = q_private(0);

	array_putf(&a, "a");
	array_putf(&a, "b")->flags = 64;
	array_put(&a, "", 0, 0);
	array_put(&a, key, sizeof(key), 0);
	array_putf(&a, "c");
	a.results = results;
	ASSERT_EQ(0, q_add_array(q, &a));
	ASSERT_EQ(5, a.count);
	ASSERT_EQ(1, results[0]);
	ASSERT_EQ(-EINVAL, results[1]);
	ASSERT_EQ(-EINVAL, results[2]);
	ASSERT_EQ(-E2BIG, results[3]);
	ASSERT_EQ(1, results[4]);
	ASSERT_EQ(2, q_stat(q).keys);
}

TEST_F(used, bad_key_length_fails_with_EINVAL_in_every_verb)
{
	static const unsigned int nrs[] = { WQ_IOC_ADD, WQ_IOC_DONE, WQ_IOC_TOUCH };
	static const __u32 ops[] = { WQ_DO_QUERY, WQ_DO_CANCEL, WQ_DO_FORGET };
	static const struct {
		__u32 len;
		int error;
	} bad[] = {
		{ 0, -EINVAL }, { WQ_MAX_KEY + 1, -E2BIG }, { 65535, -E2BIG },
		{ 65536, -E2BIG }, { 0x80000000, -E2BIG }, { 0xffffffff, -E2BIG },
	};
	char *key = calloc(1, 65536), *rec = calloc(1, 1 << 17);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		for (int j = 0; j < ARRAY_SIZE(ops); j++) {
			EXPECT_EQ(bad[i].error, q_key_state(self->q, ops[j], key, bad[i].len)) {
				TH_LOG("operation %u, length %u", ops[j], bad[i].len);
			}
		}
		for (int j = 0; j < ARRAY_SIZE(nrs) && bad[i].len <= 65535; j++) {
			struct args a = good(nrs[j]);

			rec_set(rec, key, bad[i].len, 0);
			a.add.keys = (struct wq_keys){ addr_of(rec), WQ_REC_SIZE(bad[i].len), 1 };
			EXPECT_EQ(bad[i].error, verb(self->q, nrs[j], &a)) {
				TH_LOG("verb %#x, length %u", nrs[j], bad[i].len);
			}
			EXPECT_EQ(0, a.add.keys.count);
		}
	}
	for (int j = 0; j < ARRAY_SIZE(ops); j++)
		EXPECT_EQ(-EFAULT, q_key_state(self->q, ops[j], edge(8), 9));
	free(key);
	free(rec);
}

/* The verbs with an array, whose struct begins as that of add. */
static const unsigned int arrays[] = {
	WQ_IOC_ADD, WQ_IOC_DONE, WQ_IOC_TOUCH, WQ_IOC_LIST, WQ_IOC_GET,
};

TEST_F(used, array_at_a_bad_address_fails_with_EFAULT)
{
	static const __u64 bad[] = { 0, 4096, 0x8000000000000000ULL, (__u64)-4096 };

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		/* a get gives the key back, which the statistics show */
		for (int j = 0; arrays[j] != WQ_IOC_GET; j++) {
			struct args a = good(arrays[j]);

			a.add.keys.addr = bad[i];
			EXPECT_EQ(-EFAULT, verb(self->q, arrays[j], &a)) {
				TH_LOG("verb %#x, address %#llx", arrays[j], bad[i]);
			}
			EXPECT_EQ(arrays[j] == WQ_IOC_LIST, a.add.keys.count);
		}
	}
}

TEST_F(used, array_that_is_too_long_fails_with_E2BIG)
{
	static const __u32 sizes[] = { WQ_MAX_ARRAY + 8, 0x80000000, 0xfffffff8 };

	for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (int j = 0; j < ARRAY_SIZE(arrays); j++) {
			struct args a = good(arrays[j]);

			a.add.keys.size = sizes[i];
			EXPECT_EQ(-E2BIG, verb(self->q, arrays[j], &a)) {
				TH_LOG("verb %#x, size %#x", arrays[j], sizes[i]);
			}
		}
	}
}

TEST(open_with_a_number_out_of_range_fails_with_ERANGE_and_creates_no_queue)
{
	static const struct {
		__u32 mode, max_keys;
	} bad[] = {
		{ 0600, WQ_MAX_KEYS + 1 }, { 0600, 0xffffffff }, { 01600, 0 },
		{ 0200600, 0 }, { 0xffffffff, 0 },
	};
	int fd = q_dev(O_RDWR);

	for (int i = 0; i < ARRAY_SIZE(bad); i++) {
		ASSERT_EQ(-ERANGE, q_bind(fd, "range", WQ_OPEN_CREATE, bad[i].mode,
					  bad[i].max_keys));
		ASSERT_EQ(-ENOENT, q_unlink("range"));
		ASSERT_EQ(-ENOTCONN, q_shutdown(fd));
	}
	ASSERT_EQ(-ERANGE, q_bind(fd, "", 0, 0, WQ_MAX_KEYS + 1));
	ASSERT_EQ(0, q_bind(fd, "", 0, 0, 1));
}

TEST_F(used, mmap_fails)
{
	ASSERT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->q, 0));
}

/* ---- a queue that is full ---- */

TEST(add_to_a_full_queue_fails_for_a_new_key_and_coalesces_a_dirty_key)
{
	int q = q_private(3);
	struct wq_stat before;
	struct item it;

	ASSERT_EQ(3, q_stat(q).max_keys);
	q_add(q, "a");
	q_add(q, "b");
	q_add(q, "c");
	before = q_stat(q);
	ASSERT_EQ(-ENOSPC, q_add(q, "d"));
	ASSERT_EQ(-ENOENT, q_query(q, "d"));
	ASSERT_TRUE(same(&before, q));
	ASSERT_EQ(0, q_add(q, "a"));

	/* a key counts in every state, and needs no room to become dirty */
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_EQ(-ENOSPC, q_add(q, "d"));
	ASSERT_EQ(1, q_add(q, "a"));
	ASSERT_EQ(1, q_done(q, &it));
	ASSERT_EQ(-ENOSPC, q_add(q, "d"));
	ASSERT_EQ(0, q_get(q, &it, 0));
	ASSERT_STREQ("b", it.key);
	ASSERT_EQ(0, q_done(q, &it));
	ASSERT_EQ(1, q_add(q, "d"));
	ASSERT_EQ(-ENOSPC, q_add(q, "e"));
	ASSERT_EQ(WQ_KEY_READY | WQ_KEY_DIRTY, q_cancel(q, "c"));
	ASSERT_EQ(1, q_add(q, "e"));
	ASSERT_EQ(3, q_stat(q).keys);
}

/* ---- random input ---- */

static __u64 random_state = 88172645463325252ULL;

static __u64 random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

TEST(bad_input_causes_no_kernel_warning)
{
	char *place = edge(8192);
	int q = q_private(100);

	/* the script that runs the guest fails if the kernel log has a warning */
	fcntl(q, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 30000; i++) {
		unsigned int nr = verbs[random64() % (NEED_A_QUEUE - 1)].nr;
		struct args a = good(nr);
		__u32 *words = (__u32 *)&a, known = a.size;

		for (int n = random64() % 4; n; n--) {
			__u32 word = random64() >> random64() % 64;

			words[random64() % (known / 4)] = word;
		}
		/* the kernel must not write to the test's own memory */
		if (nr == WQ_IOC_GET || nr == WQ_IOC_LIST)
			a.get.keys.addr = addr_of(place);
		if ((nr & 0xffff) == WQ_IOC_ATTRS)
			a.config.limiters = addr_of(place);
		if (nr == WQ_IOC_ADD || nr == WQ_IOC_DONE || nr == WQ_IOC_TOUCH)
			a.add.results = random64() % 2 ? addr_of(place) : 0;
		/* random records, before unmapped memory */
		if (random64() % 2 && known == sizeof(a.add)) {
			int size = random64() % 512 & ~7;

			for (int j = 0; j < size; j++)
				place[8192 - size + j] = random64() % 3 ? 0 : random64();
			a.add.keys.addr = addr_of(place + 8192 - size);
			a.add.keys.size = random64() % 4 ? size : random64();
		}
		if (random64() % 64)
			verb_of(q, nr, &a);
		else
			verb(q, (unsigned int)random64(), &a);
	}
	/* A disabled key may be held, too. */
	ASSERT_LE(q_stat(q).ready + q_stat(q).processing, q_stat(q).keys);
	ASSERT_GE(q_stat(q).ready + q_stat(q).processing + q_stat(q).disabled, q_stat(q).keys);
	ASSERT_GE(100, q_stat(q).keys);
}

TEST_HARNESS_MAIN
