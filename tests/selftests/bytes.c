// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which bytes the kernel writes to the caller's memory: exactly the output of the verb, and no
 * uninitialised kernel memory.
 */
#include "wq_test.h"

#define MARK	0x5a	/* in memory that the kernel must not write */
#define DIRT	0xee	/* in memory that an earlier call copied in */

/* ---- structs ---- */

struct out { __u16 off, len; };

#define OUT(type, field) \
	{ offsetof(struct type, field), sizeof(((struct type *)NULL)->field) }

#define KEY_INFO {								\
	OUT(wq_key_op, info.state), OUT(wq_key_op, info.num_requeues),		\
	OUT(wq_key_op, info.failures), OUT(wq_key_op, info.age),		\
	OUT(wq_key_op, info.due), OUT(wq_key_op, info.holder),			\
	OUT(wq_key_op, info.lease), OUT(wq_key_op, info.given_back),		\
	OUT(wq_key_op, info.error), OUT(wq_key_op, info.reason_len),		\
	OUT(wq_key_op, info.reason)						\
}

/* The fields that each verb writes to its struct. It leaves all other bytes. */
static const struct verb {
	const char *name;
	unsigned int nr;
	__u32 size;
	struct out outs[11];
} verbs[] = {
	{ "info", WQ_IOC_INFO, sizeof(struct wq_info),
	  { { offsetof(struct wq_info, version),
	      sizeof(struct wq_info) - offsetof(struct wq_info, version) } } },
	{ "open", WQ_IOC_OPEN, sizeof(struct wq_attrs), { { 0 } } },
	{ "unlink", WQ_IOC_UNLINK, UNLINK_SIZE, { { 0 } } },
	{ "add", WQ_IOC_ADD, sizeof(struct wq_add), { OUT(wq_add, keys.count) } },
	{ "get", WQ_IOC_GET, sizeof(struct wq_get),
	  { OUT(wq_get, keys.size), OUT(wq_get, keys.count) } },
	{ "done", WQ_IOC_DONE, sizeof(struct wq_done),
	  { OUT(wq_done, keys.count), OUT(wq_done, next.count) } },
	{ "touch", WQ_IOC_TOUCH, sizeof(struct wq_add), { OUT(wq_add, keys.count) } },
	{ "stat", WQ_IOC_STAT, sizeof(struct wq_stat),
	  { { offsetof(struct wq_stat, name),
	      sizeof(struct wq_stat) - offsetof(struct wq_stat, name) } } },
	{ "query", KEY_VERB(WQ_DO_QUERY), sizeof(struct wq_key_op), KEY_INFO },
	{ "cancel", KEY_VERB(WQ_DO_CANCEL), sizeof(struct wq_key_op), KEY_INFO },
	{ "forget", KEY_VERB(WQ_DO_FORGET), sizeof(struct wq_key_op), KEY_INFO },
	{ "kick", KEY_VERB(WQ_DO_KICK), sizeof(struct wq_key_op), { OUT(wq_key_op, count) } },
	{ "disable", KEY_VERB(WQ_DO_DISABLE), sizeof(struct wq_key_op),
	  { OUT(wq_key_op, info.state) } },
	{ "enable", KEY_VERB(WQ_DO_ENABLE), sizeof(struct wq_key_op), KEY_INFO },
	{ "last", KEY_VERB(WQ_DO_LAST), sizeof(struct wq_key_op), KEY_INFO },
	{ "list", WQ_IOC_LIST, sizeof(struct wq_list),
	  { OUT(wq_list, keys.size), OUT(wq_list, keys.count), OUT(wq_list, cursor) } },
	{ "report", WQ_IOC_ATTRS, sizeof(struct wq_attrs),
	  { { offsetof(struct wq_attrs, name),
	      offsetof(struct wq_attrs, limiters) - offsetof(struct wq_attrs, name) },
	    { offsetof(struct wq_attrs, lease),
	      sizeof(struct wq_attrs) - offsetof(struct wq_attrs, lease) } } },
	{ "set", WQ_IOC_ATTRS, sizeof(struct wq_attrs), { { 0 } } },
	{ "map", WQ_IOC_MAP, sizeof(struct wq_control), { { 0 } } },
	{ "pause", WQ_IOC_PAUSE, sizeof(struct wq_control), { { 0 } } },
	{ "wait", WQ_IOC_WAIT, sizeof(struct wq_wait), { { 0 } } },
	{ "shutdown", WQ_IOC_SHUTDOWN, sizeof(struct wq_control), { { 0 } } },
};

/* Whether this is the row of WQ_IOC_ATTRS that changes no attribute. */
static bool is_report(const struct verb *v)
{
	return v->nr == WQ_IOC_ATTRS && v->outs[0].len;
}

/* A struct without the field set asks for a report. */
static __u32 shortest(const struct verb *v)
{
	return v->nr == WQ_IOC_ATTRS && !is_report(v) ? offsetof(struct wq_attrs, mode) : 8;
}

struct args {
	union {
		__u32 size;
		struct wq_attrs open;
		struct wq_attrs unlink;
		struct wq_add add;
		struct wq_get get;
		struct wq_done done;
		struct wq_add touch;
		struct wq_key_op ks;
		struct wq_list list;
		struct wq_attrs config;
		struct wq_control control;
		struct wq_wait wait;
		unsigned char bytes[4096];
	};
};

static union one in, to;

/* A call with the key "k" that succeeds on the queue of used_queue(). */
static void fill(struct args *a, const struct verb *v)
{
	struct wq_keys keys = { addr_of(&in), WQ_REC_SIZE(1), 1 };
	struct wq_keys room = { addr_of(&to), sizeof(to), 1 };

	memset(a, MARK, sizeof(*a));
	memset(a, 0, v->size);
	a->size = v->size;
	rec_set(&in, v->nr == WQ_IOC_DONE || v->nr == WQ_IOC_TOUCH ? "h" : "k", 1, 0);
	switch (v->nr) {
	case WQ_IOC_UNLINK:
		strcpy(a->unlink.name, "nosuch");
		break;
	case WQ_IOC_ADD:
	case WQ_IOC_DONE:
	case WQ_IOC_TOUCH:
		a->add.keys = keys;
		break;
	case WQ_IOC_GET:
	case WQ_IOC_LIST:
		a->get.keys = room;
		break;
	case KEY_VERB(WQ_DO_KICK):
		a->ks.op = WQ_DO_KICK;
		a->ks.count = 1;
		break;
	case KEY_VERB(WQ_DO_QUERY):
	case KEY_VERB(WQ_DO_CANCEL):
	case KEY_VERB(WQ_DO_FORGET):
	case KEY_VERB(WQ_DO_DISABLE):
	case KEY_VERB(WQ_DO_ENABLE):
	case KEY_VERB(WQ_DO_LAST):
		a->ks.op = v->nr >> 16;
		a->ks.key = addr_of("k");
		a->ks.key_len = 1;
		break;
	case WQ_IOC_PAUSE:
		a->control.flags = WQ_PAUSE_GETS;
		break;
	case WQ_IOC_WAIT:
		a->wait.key = addr_of("x");
		a->wait.key_len = 1;
		break;
	case WQ_IOC_ATTRS:
		if (is_report(v))
			break;
		a->config.set = WQ_ATTR_MAX_KEYS;
		a->config.max_keys = 65536;
		break;
	}
}

/* 0, or the error.  A file that the verb returns is closed. */
static int call(int q, const struct verb *v, struct args *a)
{
	int ret = verb_of(q, v->nr, a);

	if (ret > 0)
		close(ret);
	return ret < 0 ? ret : 0;
}

/* A private queue with a key that is ready and one that is held. */
static int used_queue(void)
{
	int q = q_private(0);
	struct item it;

	q_add(q, "h");
	q_get(q, &it, 0);
	q_add(q, "k");
	return q;
}

/*
 * How many of its output fields a verb writes that returned this.  After an error an array
 * returns its count, and a get returns it if records could not be written.
 */
static int outs_of(const struct verb *v, int ret)
{
	if (!ret || (ret == -EFAULT && v->nr == WQ_IOC_GET))
		return ARRAY_SIZE(v->outs);
	return v->nr == WQ_IOC_ADD || v->nr == WQ_IOC_DONE || v->nr == WQ_IOC_TOUCH;
}

/* Whether all bytes of the struct but the output fields of the verb are unchanged. */
static bool written_right(const struct verb *v, const struct args *was, const struct args *now,
			  int ret)
{
	struct args expected = *was;

	for (int i = 0; i < outs_of(v, ret); i++)
		memcpy(expected.bytes + v->outs[i].off, now->bytes + v->outs[i].off, v->outs[i].len);
	return equal_bytes("struct", &expected, now, sizeof(expected));
}

TEST(verb_writes_its_output_fields_only)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		int q = verbs[i].nr == WQ_IOC_OPEN ? q_dev(O_RDWR) : used_queue(), ret;
		struct args was, now;

		fill(&was, &verbs[i]);
		now = was;
		ret = call(q, &verbs[i], &now);
		ASSERT_EQ(verbs[i].nr == WQ_IOC_UNLINK ? -ENOENT : 0, ret);
		ASSERT_TRUE(written_right(&verbs[i], &was, &now, ret)) {
			TH_LOG("%s returned %d", verbs[i].name, ret);
		}
		close(q);
	}
}

TEST(failed_verb_writes_no_more)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		for (int how = 0; how < 3; how++) {
			struct args was, now;
			int q = used_queue(), ret;

			fill(&was, &verbs[i]);
			if (how == 0)		/* an unknown flag */
				was.add.flags = 1U << 31;
			else if (how == 1)	/* a bad address, if the struct has one */
				was.add.keys.addr = 0;
			else			/* no such key any more */
				close(q), q = q_private(0);
			now = was;
			ret = call(q, &verbs[i], &now);
			ASSERT_TRUE(written_right(&verbs[i], &was, &now, ret)) {
				TH_LOG("%s %d returned %d", verbs[i].name, how, ret);
			}
			close(q);
		}
	}
}

TEST(struct_of_any_size_is_written_to_its_end_only)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		for (__u32 size = shortest(&verbs[i]); size <= verbs[i].size; size++) {
			int q = verbs[i].nr == WQ_IOC_OPEN ? q_dev(O_RDWR) : used_queue(), ret;
			struct args was, now;

			fill(&was, &verbs[i]);
			was.size = size;
			memset(was.bytes + size, MARK, sizeof(was) - size);
			now = was;
			ret = call(q, &verbs[i], &now);
			ASSERT_TRUE(written_right(&verbs[i], &was, &now, ret)) {
				TH_LOG("%s of %u bytes returned %d", verbs[i].name, size, ret);
			}
			ASSERT_TRUE(all(now.bytes + size, MARK, sizeof(now) - size)) {
				TH_LOG("%s of %u bytes", verbs[i].name, size);
			}
			close(q);
		}
	}
}

TEST(longer_struct_is_written_up_to_the_known_fields)
{
	for (int i = 0; i < ARRAY_SIZE(verbs); i++) {
		int q = verbs[i].nr == WQ_IOC_OPEN ? q_dev(O_RDWR) : used_queue(), ret;
		struct args was, now;

		fill(&was, &verbs[i]);
		was.size = verbs[i].size + 100;
		memset(was.bytes + verbs[i].size, 0, 100);
		now = was;
		ret = call(q, &verbs[i], &now);
		ASSERT_TRUE(written_right(&verbs[i], &was, &now, ret)) {
			TH_LOG("%s returned %d", verbs[i].name, ret);
		}
		close(q);
	}
}

TEST_F(queue, stat_rest_of_a_name_is_zero)
{
	struct wq_stat st;
	int q = q_private(0);

	memset(&st, MARK, sizeof(st));
	st.size = sizeof(st);
	st.flags = 0;
	st.ready_by_priority = 0;
	ASSERT_EQ(0, verb(self->q, WQ_IOC_STAT, &st));
	ASSERT_TRUE(all(st.name + strlen(self->name), 0, sizeof(st.name) - strlen(self->name)));
	memset(st.name, MARK, sizeof(st.name));
	ASSERT_EQ(0, verb(q, WQ_IOC_STAT, &st));
	ASSERT_TRUE(all(st.name, 0, sizeof(st.name)));
	close(q);
}

TEST_F(queue, query_of_a_write_only_file_returns_the_state_only)
{
	static const unsigned int nrs[] = { WQ_DO_FORGET, WQ_DO_CANCEL };
	int writer = q_attach(self->name, O_WRONLY);
	struct item it;

	q_add(self->q, "k");
	q_get(self->q, &it, 0);
	for (int i = 0; i < ARRAY_SIZE(nrs); i++) {
		struct wq_key_op ks;

		ASSERT_EQ(0, q_key_call(writer, nrs[i], "k", 1, &ks));
		ASSERT_EQ(WQ_KEY_PROCESSING, ks.info.state);
		ks.info.state = 0;
		ASSERT_TRUE(all(&ks.info.failures, 0,
				sizeof(ks) - offsetof(struct wq_key_op, info.failures)));
	}
	close(writer);
}

/* ---- arrays ---- */

/* Makes the kernel allocate as much memory as a call with this room does, and fill it. */
static void dirty(int q, __u32 room)
{
	void *dirt = malloc(room);
	struct array a = { .recs = dirt, .used = room, .count = 1 };

	memset(dirt, DIRT, room);
	for (int i = 0; i < 4; i++) {
		q_add_array(q, &a);
		a.count = 1;
	}
	free(dirt);
}

TEST_F(queue, get_pads_records_with_zeros)
{
	unsigned char key[WQ_MAX_KEY];
	struct array got = array_new(2048);

	memset(key, 'k', sizeof(key));
	for (int len = 1; len <= WQ_MAX_KEY; len += len < 40 ? 1 : 123) {
		for (int room = WQ_REC_SIZE(len); room < 2048; room *= 2) {
			struct wq_rec *rec = got.recs;
			__u32 size = WQ_REC_SIZE(len);

			ASSERT_EQ(1, q_addn(self->q, key, len));
			memset(got.recs, MARK, got.room);
			got.room = room;
			dirty(self->q, room);
			ASSERT_EQ(0, q_get_array(self->q, &got, 0, 0));
			got.room = 2048;
			ASSERT_EQ(size, got.used);
			ASSERT_EQ(len, rec->len);
			ASSERT_EQ(0, rec->flags);
			ASSERT_EQ(0, rec->failures);
			ASSERT_EQ(0, rec->delay);
			ASSERT_TRUE(all(rec->key, 'k', len));
			ASSERT_TRUE(all(rec->key + len, 0, size - sizeof(*rec) - len)) {
				TH_LOG("behind a key of %d bytes", len);
			}
			ASSERT_TRUE(all(got.recs + size, MARK, 2048 - size));
			ASSERT_EQ(0, q_donen(self->q, key, len, rec->token));
		}
	}
	free(got.recs);
}

TEST_F(queue, list_pads_records_with_zeros)
{
	unsigned char key[WQ_MAX_KEY];
	struct array got = array_new(2048);

	memset(key, 'k', sizeof(key));
	for (int len = 1; len <= WQ_MAX_KEY; len += len < 40 ? 1 : 123) {
		for (int room = WQ_LIST_REC_SIZE(len); room < 2048; room *= 2) {
			struct wq_list_rec *row = got.recs;
			__u32 size = WQ_LIST_REC_SIZE(len);
			__u64 cursor = 0;

			ASSERT_EQ(1, q_addn(self->q, key, len));
			memset(got.recs, MARK, got.room);
			got.room = room;
			dirty(self->q, room);
			ASSERT_EQ(0, q_list(self->q, &got, 0, &cursor));
			got.room = 2048;
			ASSERT_EQ(size, got.used);
			ASSERT_EQ(len, row->len);
			ASSERT_EQ(0, row->flags);
			ASSERT_EQ(0, row->info.failures);
			ASSERT_EQ(0, row->info.holder);
			ASSERT_EQ(-1, row->info.due);
			ASSERT_TRUE(all(row->key, 'k', len));
			ASSERT_TRUE(all(row->key + len, 0, size - sizeof(*row) - len)) {
				TH_LOG("behind a key of %d bytes", len);
			}
			ASSERT_TRUE(all(got.recs + size, MARK, 2048 - size));
			ASSERT_LT(0, q_key_state(self->q, WQ_DO_CANCEL, key, len));
		}
	}
	free(got.recs);
}

TEST_F(queue, verb_that_returns_no_key_writes_nothing_to_the_array)
{
	struct array a = array_new(4096);
	__u64 cursor = 0;

	memset(a.recs, MARK, a.room);
	dirty(self->q, a.room);
	ASSERT_EQ(-EAGAIN, q_get_array(self->q, &a, 0, 0));
	ASSERT_EQ(-ETIMEDOUT, q_get_array(self->q, &a, 0, MS));
	ASSERT_EQ(0, q_list(self->q, &a, 0, &cursor));
	ASSERT_EQ(0, a.count);
	ASSERT_TRUE(all(a.recs, MARK, a.room));
	/* nor if the key does not fit */
	ASSERT_EQ(1, q_addn(self->q, "0123456789", 10));
	for (a.room = 0; a.room < WQ_REC_SIZE(10); a.room += 8)
		ASSERT_EQ(-EMSGSIZE, q_get_array(self->q, &a, 0, 0));
	for (a.room = 0; a.room < WQ_LIST_REC_SIZE(10); a.room += 8)
		ASSERT_EQ(-EMSGSIZE, q_list(self->q, &a, 0, &cursor));
	ASSERT_TRUE(all(a.recs, MARK, 4096));
	free(a.recs);
}

TEST_F(queue, results_are_written_for_each_key_and_no_further)
{
	enum { MOST = 100 };
	struct array a = array_new(MOST * WQ_REC_SIZE(16));
	__s32 results[MOST + 1];

	for (int n = 1; n <= MOST; n += n < 40 ? 1 : 15) {
		for (int what = 0; what < 3; what++) {
			int ret;

			array_reset(&a);
			for (int i = 0; i < n; i++)
				array_putf(&a, "%d", i);
			memset(results, MARK, sizeof(results));
			a.results = results;
			if (what == 2) {
				ret = q_done_array(self->q, &a);
			} else {
				struct wq_add touch = {
					.size = sizeof(touch), .results = addr_of(results),
					.keys = { addr_of(a.recs), a.used, a.count },
				};

				ret = what ? verb(self->q, WQ_IOC_TOUCH, &touch) :
				      q_add_array(self->q, &a);
			}
			ASSERT_EQ(0, ret);
			ASSERT_TRUE(all(results + n, MARK, sizeof(results) - n * sizeof(*results)));
			for (int i = 0; i < n; i++)
				ASSERT_EQ(what ? 0 : 1, results[i]);
			for (struct item it; !what && !q_get(self->q, &it, 0);)
				;
		}
	}
	free(a.recs);
}

TEST_HARNESS_MAIN
