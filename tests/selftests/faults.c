// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every verb of /dev/wq, with each of its allocations and each copy from and to the caller
 * failing in turn, by the kernel's fail-nth. Before that, all allocations that cannot wait fail at
 * once, which only a call without a wait may report. After each fault:
 *
 * - the statistics of the queue add up;
 * - no key is lost, and no key is there that was not added;
 * - a call that failed changed nothing, unless only the copy to the caller failed;
 * - the repeated call succeeds and leaves the same keys as without a fault.
 *
 * Needs a kernel with FAILSLAB, FAIL_PAGE_ALLOC and FAULT_INJECTION_USERCOPY.
 */
#include "wq_faults.h"
#include "wq_sources.h"

#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define USER		54301		/* owns nothing on this machine */
#define SET		"/tmp/faults-set"	/* where the tests mount sets of their own */
#define CLOSED		"/sys/module/wq/parameters/closed"
#define USER_QUEUES	"/sys/module/wq/parameters/user_queues"

/* The state of a test before its call. */
struct world {
	int dev;		/* open, not bound */
	int q;			/* a named queue with a lease */
	int other;		/* a second consumer of it */
	int watch;		/* lists the keys before the call, which needs buffers of its own */
	int made;		/* the file that the call opened */
	int sources;		/* that the queue has */
	char name[WQ_NAME_MAX];
	char new_name[WQ_NAME_MAX];	/* for a queue that the call makes */
	struct array keys;
	struct array out;
	__s32 results[512];
	__s64 deadline;		/* of a wait that ended */
	struct wq_info charged;	/* root's charges when the test began */
	bool mounted;		/* a set on SET */
};

/* The keys of a queue. */
struct row {
	char key[24];		/* its first bytes */
	__u32 len, state, failures;
	int level;
};

struct dump {
	int n;
	struct row rows[4096];
};

FIXTURE(faults) {
	struct dump before, end, now;
};

FIXTURE_VARIANT(faults) {
	void (*setup)(struct world *w);
	int (*call)(struct world *w);
	int again;		/* error that the repeated call may return after EFAULT */
	bool counts;		/* the repeated call counts a second failure */
	bool tail;		/* without memory for its delay, a key that failed is ready */
	__u32 order, order_arg, limit;	/* as in struct wq_attrs */
};

static void world_new(struct world *w, __u32 order, __u32 order_arg, __u32 limit)
{
	/* no delay and no lease ends during a test */
	static const struct wq_limiter_spec hours = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = 3600 * SEC, .max = 7200 * SEC,
	};
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL, .mode = 0600,
		.max_keys = 20000, .limiters = addr_of(&hours), .num_limiters = 1,
		.lease = 3600 * SEC, .order = order, .order_arg = order_arg, .group_limit = limit,
	};

	memset(w, 0, sizeof(*w));
	snprintf(w->name, sizeof(w->name), "faults-%d", getpid());
	snprintf(w->new_name, sizeof(w->new_name), "faults-new-%d", getpid());
	strcpy(op.name, w->name);
	w->made = -1;
	w->dev = q_dev(O_RDWR);
	w->q = q_dev(O_RDWR);
	if (w->dev < 0 || w->q < 0 || verb(w->q, WQ_IOC_OPEN, &op))
		abort();
	w->other = q_attach(w->name, O_RDWR);
	w->watch = q_attach(w->name, O_RDONLY);
	/* sources of the test before may end later */
	if (!EVENTUALLY(!q_info(w->dev, &w->charged) && !w->charged.charged_sources))
		abort();
	w->keys = array_new(512 * WQ_REC_SIZE(128));
	w->out = array_new(16384);
}

static void world_end(struct world *w)
{
	q_unlink(w->name);
	q_unlink(w->new_name);
	close(w->dev);
	close(w->q);
	close(w->other);
	close(w->watch);
	if (w->made >= 0)
		close(w->made);
	free(w->keys.recs);
	free(w->out.recs);
	if (w->mounted)
		umount2(SET, MNT_DETACH);
	put(CLOSED, "N");
	put(USER_QUEUES, "256");
	module_out("wq_fs");
}

/* ---- the keys of the queue ---- */

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(((struct row *)0)->key)) ?:
	       (int)((struct row *)a)->len - (int)((struct row *)b)->len;
}

static void dump_of(int fd, struct dump *d)
{
	struct array a = array_new(WQ_MAX_OUT);
	__u64 cursor = 0;

	memset(d, 0, sizeof(*d));
	do {
		if (q_list(fd, &a, 0, &cursor) || d->n + a.count > 4096)
			abort();
		for (__u32 i = 0; i < a.count; i++) {
			struct wq_list_rec *row = row_at(&a, i);
			struct row *to = &d->rows[d->n++];

			memcpy(to->key, row->key, row->len < 24 ? row->len : 24);
			to->len = row->len;
			to->state = row->info.state;
			to->failures = row->info.failures;
			to->level = row->info.priority;
		}
	} while (cursor);
	qsort(d->rows, d->n, sizeof(d->rows[0]), by_key);
	free(a.recs);
}

/* How many keys that failed are ready and not delayed, which makes them delayed. */
static int dump_fallbacks(struct dump *d)
{
	int n = 0;

	for (int i = 0; i < d->n; i++) {
		if (d->rows[i].state != (WQ_KEY_READY | WQ_KEY_DIRTY | WQ_KEY_FAILED))
			continue;
		d->rows[i].state = WQ_KEY_DELAYED | WQ_KEY_FAILED;
		n++;
	}
	return n;
}

static bool dump_same(const struct dump *a, const struct dump *b, bool counts)
{
	for (int i = 0; i < a->n && i < b->n; i++) {
		const struct row *seen = &a->rows[i], *expected = &b->rows[i];

		if (!by_key(seen, expected) && seen->state == expected->state &&
		    seen->level == expected->level &&
		    (counts || seen->failures == expected->failures))
			continue;
		COMMENT("expected key %.24s state %#x failures %u level %d, seen key %.24s state %#x failures %u level %d\n",
		    expected->key, expected->state, expected->failures, expected->level,
		    seen->key, seen->state, seen->failures, seen->level);
		return false;
	}
	return equal("keys", b->n, a->n);
}

static bool adds_up(struct world *w)
{
	struct wq_stat st = q_stat(w->q);
	struct wq_source_op op = { .id = 0 };
	int sources = 0;

	while (!list_after(w->q, op.id, &op))
		sources++;
	return conserved(&st) && equal("sources", w->sources, sources);
}

/* ---- setups ---- */

static void put_keys(struct world *w, int n, const char *format)
{
	array_reset(&w->keys);
	for (int i = 0; i < n; i++)
		array_putf(&w->keys, format, i);
}

static void must(int ret)
{
	if (ret < 0) {
		fprintf(stderr, "faults: a setup failed: %s\n", strerror(-ret));
		abort();
	}
}

static int error_of(int ret)
{
	return ret < 0 ? ret : 0;
}

static void no_keys(struct world *w)
{
	(void)w;
}

/* A file of a directory, for a source. */
static void a_directory(struct world *w)
{
	int ret = source_in("wq_fs");

	must(ret == -EEXIST ? 0 : ret);
	w->made = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(w->made);
}

static int call_attach(struct world *w)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_fs_args args = {
		.fd = w->made, .rules = addr_of("-.git\0-*.o"), .rules_size = 11,
	};
	int ret = attach_op(w->q, &op, "fs", &args, sizeof(args));

	w->sources += ret > 0;
	return error_of(ret);
}

static void a_source(struct world *w)
{
	a_directory(w);
	must(call_attach(w));
}

static int call_sources(struct world *w)
{
	struct wq_source_op op = op_of(WQ_SOURCE_LIST);
	char text[WQ_MAX_SOURCE_TEXT];

	op.arg = addr_of(text);
	op.arg_size = sizeof(text);
	return verb(w->q, WQ_IOC_SOURCE, &op);
}

static int call_detach(struct world *w)
{
	int ret = detach(w->q, 1);

	/* The copy to the caller may fail when the source has ended. */
	if (!ret || first(w->q).id != 1)
		w->sources = 0;
	return ret;
}

static void one_key(struct world *w)
{
	put_keys(w, 1, "key %d");
}

static void put_long_key(struct array *a)
{
	char key[WQ_MAX_KEY];

	memset(key, 'k', sizeof(key));
	array_put(a, key, sizeof(key), 0);
}

static void one_long_key(struct world *w)
{
	array_reset(&w->keys);
	put_long_key(&w->keys);
}

static void forty_keys(struct world *w)
{
	put_keys(w, 40, "key %d");
	w->keys.results = w->results;
}

static void large_array(struct world *w)
{
	put_keys(w, 70, "%0128d");
}

/* So many keys that the table grows during the call. */
static void keys_onto_many(struct world *w)
{
	put_keys(w, 380, "many %d");
	must(q_add_array(w->q, &w->keys));
	put_keys(w, 70, "key %d");
}

static void each_with(struct world *w, __u16 flags, __s64 delay)
{
	struct wq_rec *rec = w->keys.recs;

	for (__u32 i = 0; i < w->keys.count; i++, rec = rec_next(rec)) {
		rec->flags = flags;
		rec->delay = delay;
	}
}

/* Each key at a level of its own, from this one on. */
static void each_at_level(struct world *w, int first, int step)
{
	struct wq_rec *rec = w->keys.recs;

	for (__u32 i = 0; i < w->keys.count; i++, rec = rec_next(rec))
		rec->priority = first + (int)i * step;
}

/* An add of n keys, all with this priority. */
static void add_keys(struct world *w, int first, int n, int priority)
{
	struct array a = array_new(4096);

	for (int i = first; i < first + n; i++)
		array_putf(&a, "key %d", i)->priority = priority;
	must(q_add_array(w->q, &a));
	free(a.recs);
}

static void one_delayed(struct world *w)
{
	one_key(w);
	each_with(w, 0, HOUR);
}

static void many_delayed(struct world *w)
{
	put_keys(w, 70, "key %d");
	each_with(w, 0, HOUR);
}

static void rate_limited(struct world *w)
{
	forty_keys(w);
	each_with(w, WQ_ADD_RATE_LIMITED, 0);
}

static void rate_limited_keys(struct world *w)
{
	rate_limited(w);
	must(q_add_array(w->q, &w->keys));
}

static void ready_keys(struct world *w)
{
	forty_keys(w);
	must(q_add_array(w->q, &w->keys));
}

/* Ten keys can be processing, as many as call_get_ten() takes. */
static void ready_keys_at_a_ceiling(struct world *w)
{
	struct wq_attrs set = {
		.size = sizeof(set), .set = WQ_ATTR_MAX_PROCESSING, .max_processing = 10,
	};

	ready_keys(w);
	must(verb(w->q, WQ_IOC_ATTRS, &set));
}

/* Ten keys can start, as many as call_get_ten() takes. */
static void ready_keys_with_ten_tokens(struct world *w)
{
	struct wq_attrs set = {
		.size = sizeof(set), .set = WQ_ATTR_START_RATE | WQ_ATTR_START_BURST,
		.start_rate = 10, .start_burst = 10,
	};

	ready_keys(w);
	must(verb(w->q, WQ_IOC_ATTRS, &set));
}

/* Ten keys of the group, which has all keys, can start. */
static void ready_keys_of_a_group_with_ten_tokens(struct world *w)
{
	struct wq_attrs set = {
		.size = sizeof(set), .set = WQ_ATTR_GROUP_START_RATE | WQ_ATTR_GROUP_START_BURST,
		.group_start_rate = 10, .group_start_burst = 10,
	};

	ready_keys(w);
	must(verb(w->q, WQ_IOC_ATTRS, &set));
}

static void a_ready_long_key(struct world *w)
{
	one_long_key(w);
	must(q_add_array(w->q, &w->keys));
}

static void short_and_long_keys(struct world *w)
{
	put_keys(w, 40, "key %d");
	put_long_key(&w->keys);
}

/* The file's last read took a key, and others are ready. */
static void one_read_before_others(struct world *w)
{
	char buf[64];

	ready_keys(w);
	if (read(w->q, buf, sizeof(buf)) < 0)
		abort();
}

/* A key is held, and the next one is long. */
static void one_held_before_a_long_key(struct world *w)
{
	struct array next = array_new(4096);

	one_key(w);
	must(q_add_array(w->q, &w->keys));
	must(q_get_array(w->q, &w->keys, 1, 0));
	put_long_key(&next);
	must(q_add_array(w->q, &next));
	free(next.recs);
}

/* Forty keys: twenty are processing, and ten of the twenty are dirty as well. */
static void held_keys(struct world *w)
{
	ready_keys(w);
	must(q_get_array(w->q, &w->keys, 20, 0));
	add_keys(w, 0, 10, 0);
}

static void keys_to_held_ones(struct world *w)
{
	held_keys(w);
	forty_keys(w);
}

static void held_for_retry(struct world *w)
{
	held_keys(w);
	each_with(w, WQ_OUTCOME_RETRY, 0);
}

static void held_for_later(struct world *w)
{
	held_keys(w);
	each_with(w, WQ_OUTCOME_AFTER | WQ_OUTCOME_FORGET, HOUR);
}

static void held_to_give_up(struct world *w)
{
	held_keys(w);
	each_with(w, WQ_OUTCOME_GIVE_UP, 0);
}

/* Ten are parked, and thirty are ready. */
static void parked_keys(struct world *w)
{
	held_to_give_up(w);
	must(q_done_array(w->q, &w->keys));
}

/* Each add has a delay, which needs memory. */
static void adds_to_parked_keys(struct world *w)
{
	parked_keys(w);
	forty_keys(w);
	each_with(w, 0, HOUR);
}

static void a_failed_long_key(struct world *w)
{
	one_long_key(w);
	each_with(w, WQ_ADD_RATE_LIMITED, 0);
	must(q_add_array(w->q, &w->keys));
}

static void keys_of_levels(struct world *w)
{
	forty_keys(w);
	each_at_level(w, WQ_MIN_PRIORITY, 1);
}

static void delayed_keys_of_levels(struct world *w)
{
	keys_of_levels(w);
	each_with(w, 0, HOUR);
}

static void ready_keys_of_levels(struct world *w)
{
	keys_of_levels(w);
	must(q_add_array(w->q, &w->keys));
}

/* The keys are ready at their levels.  Delayed adds come at the levels of other keys. */
static void delays_of_ready_keys_of_levels(struct world *w)
{
	ready_keys_of_levels(w);
	each_with(w, 0, HOUR);
	each_at_level(w, WQ_MAX_PRIORITY, -1);
}

/* Twenty keys are processing at their levels, and ten of them were added at higher ones. */
static void levels_held_for_retry(struct world *w)
{
	ready_keys_of_levels(w);
	must(q_get_array(w->q, &w->keys, 20, 0));
	add_keys(w, 30, 10, WQ_MAX_PRIORITY);
	each_with(w, WQ_OUTCOME_RETRY, 0);
}

/* ---- calls ---- */

/* The first error among the results, or that of the call. */
static int first_error(struct world *w, int ret)
{
	for (__u32 i = 0; !ret && w->keys.results && i < w->keys.count; i++)
		if (w->results[i] < 0)
			ret = w->results[i];
	return ret;
}

static int call_add(struct world *w)
{
	__u32 count = w->keys.count;
	int ret = first_error(w, q_add_array(w->q, &w->keys));

	w->keys.count = count;
	return ret;
}

/* Each key by a write. */
static int call_write(struct world *w)
{
	struct wq_rec *rec = w->keys.recs;

	for (__u32 i = 0; i < w->keys.count; i++, rec = rec_next(rec))
		if (write(w->q, rec->key, rec->len) < 0)
			return -errno;
	return 0;
}

/* A call that may not wait for memory fails with EAGAIN, and io_uring repeats it. */
static int nowait_errno(void)
{
	return errno == ENOMEM ? -EIO : -errno;
}

static int call_write_nowait(struct world *w)
{
	struct wq_rec *rec = w->keys.recs;
	struct iovec from;

	for (__u32 i = 0; i < w->keys.count; i++, rec = rec_next(rec)) {
		from = (struct iovec){ rec->key, rec->len };
		if (pwritev2(w->q, &from, 1, -1, RWF_NOWAIT) < 0)
			return nowait_errno();
	}
	return 0;
}

static int call_read_nowait(struct world *w)
{
	struct iovec to = { w->out.recs, WQ_MAX_KEY };

	return preadv2(w->q, &to, 1, -1, RWF_NOWAIT) < 0 ? nowait_errno() : 0;
}

static int call_read(struct world *w)
{
	/* if a fault lost the key, the repeated call must not wait for it */
	fcntl(w->q, F_SETFL, O_NONBLOCK);
	return read(w->q, w->out.recs, WQ_MAX_KEY) < 0 ? -errno : 0;
}

static int call_readv(struct world *w)
{
	struct iovec to[] = { { w->out.recs, 3 }, { (char *)w->out.recs + 8, WQ_MAX_KEY } };

	fcntl(w->q, F_SETFL, O_NONBLOCK);
	return readv(w->q, to, 2) < 0 ? -errno : 0;
}

static int call_done(struct world *w)
{
	__u32 count = w->keys.count;
	int ret = first_error(w, q_done_array(w->q, &w->keys));

	w->keys.count = count;
	return ret;
}

/* Without memory for the text, a key is parked without it. */
static int call_give_up(struct world *w)
{
	static struct wq_reason_rec reasons[64] = { { .error = EIO, .len = 1, .text = "x" } };
	struct wq_done args = {
		.size = sizeof(args), .keys = { addr_of(w->keys.recs), w->keys.used, w->keys.count },
		.results = addr_of(w->results), .reasons = addr_of(reasons),
	};

	return first_error(w, verb(w->q, WQ_IOC_DONE, &args));
}

static int call_kick(struct world *w)
{
	struct wq_key_op args = { .size = sizeof(args), .op = WQ_DO_KICK, .count = 0xffffffff };

	return verb(w->q, WQ_IOC_KEY, &args);
}

static int call_kick_one(struct world *w)
{
	return error_of(q_key_state(w->q, WQ_DO_KICK, "key 10", 6));
}

/*
 * Waits that have expired before they begin.  The call sets the deadline to 0, and a fault then
 * leaves it as it is.
 */
static int expired(struct world *w, int ret, __s64 deadline)
{
	w->deadline = deadline;
	return ret == -ETIMEDOUT ? 0 : ret ?: -EPROTO;
}

static int call_get_late(struct world *w)
{
	struct wq_get get = {
		.size = sizeof(get), .keys = { addr_of(w->out.recs), w->out.room, 1 },
		.timeout = HOUR, .deadline = 1,
	};
	int ret = verb(w->q, WQ_IOC_GET, &get);

	return expired(w, ret, get.deadline);
}

static int call_touch(struct world *w)
{
	struct wq_add touch = {
		.size = sizeof(touch),
		.keys = { addr_of(w->keys.recs), w->keys.used, w->keys.count },
		.results = addr_of(w->keys.results),
	};

	return first_error(w, verb(w->q, WQ_IOC_TOUCH, &touch));
}

static int call_get(struct world *w)
{
	return q_get_array(w->q, &w->out, 10, 0);
}

/* A get that failed before has kept no place and no token. */
static int call_get_ten(struct world *w)
{
	int ret = call_get(w);

	return ret ?: w->out.count == 10 ? 0 : -EBADMSG;
}

static int call_get_one(struct world *w)
{
	return q_get_array(w->q, &w->out, 1, 0);
}

static int call_get_all(struct world *w)
{
	return q_get_array(w->q, &w->out, 0, 0);
}

/* Five of them by the consumer that is to end. */
static void held_by_the_other(struct world *w)
{
	ready_keys(w);
	must(q_get_array(w->other, &w->out, 5, 0));
}

/*
 * The other consumer holds ten keys whose run before was given back.  One of them was added
 * during the run as well.
 */
static void held_again_by_the_other(struct world *w)
{
	int first = q_attach(w->name, O_RDWR);

	put_keys(w, 10, "key %d");
	must(q_add_array(w->q, &w->keys));
	must(q_get_array(first, &w->out, 0, 0));
	close(first);
	must(q_get_array(w->other, &w->out, 0, 0));
	must(q_add(w->q, "key 9"));
}

static int done_get(struct world *w, __u32 most)
{
	struct wq_done done = {
		.size = sizeof(done), .flags = WQ_DONE_GET,
		.keys = { addr_of(w->keys.recs), w->keys.used, w->keys.count },
		.results = addr_of(w->results),
		.next = { addr_of(w->out.recs), w->out.room, most },
	};

	return verb(w->q, WQ_IOC_DONE, &done);
}

static int call_done_get(struct world *w)
{
	return done_get(w, 0);
}

static int call_done_get_one(struct world *w)
{
	return done_get(w, 1);
}

static int key_call(struct world *w, unsigned long nr)
{
	struct wq_rec *rec = w->keys.recs;

	return error_of(q_key_state(w->q, nr, rec->key, rec->len));
}

static int call_stat_levels(struct world *w)
{
	__u32 ready_by_priority[WQ_PRIORITIES];
	struct wq_stat st = { .size = sizeof(st), .ready_by_priority = addr_of(ready_by_priority) };

	return verb(w->q, WQ_IOC_STAT, &st);
}

static int call_query(struct world *w)
{
	return key_call(w, WQ_DO_QUERY);
}

static int call_cancel(struct world *w)
{
	return key_call(w, WQ_DO_CANCEL);
}

static int call_forget(struct world *w)
{
	return key_call(w, WQ_DO_FORGET);
}

static int call_list(struct world *w)
{
	__u64 cursor = 0;
	int ret;

	do
		ret = q_list(w->q, &w->out, 0, &cursor);
	while (!ret && cursor);
	return ret;
}

static int call_stat(struct world *w)
{
	struct wq_stat st = { .size = sizeof(st) };

	return verb(w->q, WQ_IOC_STAT, &st);
}

static int call_info(struct world *w)
{
	struct wq_info info;

	return q_info(w->dev, &info);
}

static int call_open_device(struct world *w)
{
	int fd = q_dev(O_RDWR);

	if (fd >= 0)
		w->made = fd;
	return fd < 0 ? fd : 0;
}

/* A queue that was made in spite of a fault takes a key.  A fault happens once, so not in both adds. */
static int takes_a_key(int q)
{
	return q_add(q, "key") < 0 && q_add(q, "key") < 0 ? -EBADMSG : 0;
}

static int call_open_private(struct world *w)
{
	return q_bind(w->dev, "", 0, 0, 0) ?: takes_a_key(w->dev);
}

static int call_open_limited(struct world *w)
{
	struct wq_limiter_spec limits[] = {
		{ .kind = WQ_LIMITER_MAX_WAIT, .max = SEC },
		{ .kind = WQ_LIMITER_MAX_OF, .n = 3 },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = MS, .max = SEC },
		{ .kind = WQ_LIMITER_BUCKET, .n = 10, .rate = WQ_QPS(10) },
		{ .kind = WQ_LIMITER_FAST_SLOW, .n = 3, .base = MS, .max = SEC },
	};
	struct wq_attrs op = {
		.size = sizeof(op), .limiters = addr_of(limits), .num_limiters = 5, .lease = SEC,
	};

	return verb(w->dev, WQ_IOC_OPEN, &op);
}

static int call_open_levels(struct world *w)
{
	struct wq_attrs op = { .size = sizeof(op), .order = WQ_ORDER_PRIORITY };

	return verb(w->dev, WQ_IOC_OPEN, &op);
}

static int call_open_groups(struct world *w)
{
	struct wq_attrs op = {
		.size = sizeof(op), .order = WQ_ORDER_DELIMITER, .order_arg = '/', .group_limit = 1,
	};

	return verb(w->dev, WQ_IOC_OPEN, &op);
}

static int call_open_create(struct world *w)
{
	return q_bind(w->dev, w->new_name, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0) ?:
	       takes_a_key(w->dev);
}

static int call_open_attach(struct world *w)
{
	return q_bind(w->dev, w->name, 0, 0, 0);
}

static const struct wq_limiter_spec three_limiters[] = {
	{ .kind = WQ_LIMITER_MAX_OF, .n = 2 },
	{ .kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = HOUR },
	{ .kind = WQ_LIMITER_BUCKET, .n = 10, .rate = WQ_QPS(10) },
};

static int call_open_accept(struct world *w)
{
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE | WQ_OPEN_ACCEPT, .mode = 0600,
		.limiters = addr_of(three_limiters), .num_limiters = 3, .lease = SEC,
		.slack = MS, .max_keys = 5,
	};

	strcpy(op.name, w->name);
	return verb(w->dev, WQ_IOC_OPEN, &op);
}

/* The limiters of an open are compared with those of the queue. */
static int call_open_same(struct world *w)
{
	static const struct wq_limiter_spec hours = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = HOUR, .max = 2 * HOUR,
	};
	struct wq_attrs op = {
		.size = sizeof(op), .flags = WQ_OPEN_CREATE, .limiters = addr_of(&hours),
		.num_limiters = 1, .lease = HOUR, .max_keys = 20000,
	};

	strcpy(op.name, w->name);
	return verb(w->dev, WQ_IOC_OPEN, &op);
}

/* 0, or the error of a call that returns a file. */
static int closed(int fd)
{
	if (fd >= 0)
		close(fd);
	return error_of(fd);
}

/* The first call of a queue allocates the map, and each call a file. */
static int call_map(struct world *w)
{
	struct wq_control args = { .size = sizeof(args) };

	return closed(verb(w->q, WQ_IOC_MAP, &args));
}

static int call_add_marked(struct world *w)
{
	static struct wq_mark marks[512];
	struct wq_add add = {
		.size = sizeof(add),
		.keys = { addr_of(w->keys.recs), w->keys.used, w->keys.count },
		.results = addr_of(w->keys.results), .marks = addr_of(marks),
	};

	return first_error(w, verb(w->q, WQ_IOC_ADD, &add));
}

static void keys_of_a_map(struct world *w)
{
	forty_keys(w);
	call_map(w);
}

static int call_config(struct world *w)
{
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS];
	struct wq_attrs config = {
		.size = sizeof(config), .limiters = addr_of(limiters),
		.num_limiters = WQ_MAX_LIMITERS,
	};

	return verb(w->q, WQ_IOC_ATTRS, &config);
}

/* All attributes or none are set; max_keys and the limiter show it. */
static int call_set(struct world *w)
{
	struct wq_attrs set = {
		.size = sizeof(set),
		.set = WQ_ATTR_MAX_KEYS | WQ_ATTR_LIMITER |
		       WQ_ATTR_LEASE | WQ_ATTR_SLACK | WQ_ATTR_MAX_PROCESSING |
		       WQ_ATTR_START_RATE,
		.max_keys = 30000, .max_processing = 3, .start_rate = 4, .limiters = addr_of(three_limiters),
		.num_limiters = 3, .lease = 2 * HOUR, .slack = MS,
	};
	struct wq_attrs now = { .size = sizeof(now) };
	int ret = verb(w->q, WQ_IOC_ATTRS, &set), n;

	/* After the fault was hit, because it happens once. */
	do
		n = verb(w->q, WQ_IOC_ATTRS, &now);
	while (n == -EFAULT);
	if (n || now.max_keys != (ret ? 20000 : 30000) || now.num_limiters != (ret ? 1 : 3) ||
	    now.lease != (ret ? HOUR : 2 * HOUR) || now.max_processing != (ret ? 0 : 3) ||
	    now.start_rate != (ret ? 0 : 4)) {
		COMMENT("set returned %d: max_keys %u, limiters %u, lease %lld, max_processing %u, start_rate %llu\n",
			ret, now.max_keys, now.num_limiters, (long long)now.lease,
			now.max_processing, (unsigned long long)now.start_rate);
		return -EBADMSG;
	}
	return ret;
}

static int call_set_default_limiter(struct world *w)
{
	struct wq_attrs set = { .size = sizeof(set), .set = WQ_ATTR_LIMITER };

	return verb(w->q, WQ_IOC_ATTRS, &set);
}

static int call_unlink(struct world *w)
{
	struct wq_attrs un = { .size = sizeof(un) };

	strcpy(un.name, w->name);
	return verb(w->dev, WQ_IOC_UNLINK, &un);
}

/* The statistics by a call that no fault hits, because a fault happens once. */
static struct wq_stat stat_after(int q)
{
	struct wq_stat st;

	do
		st = q_stat(q);
	while (st.state == ~0U);
	return st;
}

static int call_pause(struct world *w)
{
	struct wq_control p = { .size = sizeof(p), .flags = WQ_PAUSE_GETS, .timeout = HOUR };
	int ret = verb(w->q, WQ_IOC_PAUSE, &p);
	bool paused;

	paused = stat_after(w->q).state & WQ_STATE_GETS_PAUSED;
	if (paused != !ret) {
		COMMENT("pause returned %d, and gets are %spaused\n", ret, paused ? "" : "not ");
		return -EBADMSG;
	}
	return ret;
}

/* A wait ends with its file. */
static int call_wait(struct world *w)
{
	int ret = closed(q_wait(w->q, "longer", 0));

	return stat_after(w->q).waiters ? -EBADMSG : ret;
}

static int call_wait_add(struct world *w)
{
	static char key[WQ_MAX_KEY] = "k";
	struct wq_wait args = {
		.size = sizeof(args), .flags = WQ_WAIT_ADD, .key = addr_of(key),
		.key_len = sizeof(key),
	};
	int fd = verb(w->q, WQ_IOC_WAIT, &args);

	if (fd >= 0 && stat_after(w->q).waiters != 1)
		return -EBADMSG;
	return closed(fd);
}

static int call_disable(struct world *w)
{
	static char key[WQ_MAX_KEY] = "k";

	return error_of(q_key_state(w->q, WQ_DO_DISABLE, key, sizeof(key)));
}

static int call_restore(struct world *w)
{
	static char key[WQ_MAX_KEY] = "k";
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_RESTORE, .key = addr_of(key),
		.key_len = sizeof(key), .info = { .state = WQ_KEY_DELAYED, .due = HOUR },
	};

	return verb(w->q, WQ_IOC_KEY, &op);
}

/* The group is new, and a repeated call finds it. */
static int call_rest(struct world *w)
{
	static char key[WQ_MAX_KEY] = "group";
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_REST, .key = addr_of(key),
		.key_len = sizeof(key), .info.due = HOUR,
	};

	return verb(w->q, WQ_IOC_KEY, &op);
}

static int call_restore_parked(struct world *w)
{
	struct wq_key_op op = {
		.size = sizeof(op), .op = WQ_DO_RESTORE, .key = addr_of("k"), .key_len = 1,
		.info = { .state = WQ_KEY_PARKED, .reason_len = 1 },
	};

	return verb(w->q, WQ_IOC_KEY, &op);
}

/* The effect happens also if the wait does not begin. */
static int call_wait_drain(struct world *w)
{
	return q_end(w->q, WQ_SHUTDOWN_DRAIN) ?: closed(q_wait(w->q, NULL, WQ_WAIT_DRAIN));
}

/* ---- owners, and sets of names ---- */

/*
 * Repeat a call of a check until the fault has hit it or not: a fault happens once.  The system
 * call changes this thread alone.
 */
static void become(uid_t uid)
{
	while (syscall(SYS_setresuid, -1, uid, -1))
		;
}

static struct wq_info charges_of(struct world *w, uid_t uid)
{
	struct wq_info info = {};

	become(uid);
	while (q_info(w->dev, &info) == -EFAULT)
		;
	become(0);
	return info;
}

/* Whether the user is charged for a queue of the test. */
static bool is_charged(const char *user, const struct wq_info *before, const struct wq_info *now,
		       int queues)
{
	__s64 keys = now->charged_keys - before->charged_keys;

	if (now->charged_queues == before->charged_queues + queues && keys == queues * 20000LL &&
	    now->charged_sources == before->charged_sources)
		return true;
	COMMENT("%s: expected %d queues more, seen %lld with %lld keys, and %lld sources\n", user,
		queues, (long long)now->charged_queues - before->charged_queues, (long long)keys,
		(long long)now->charged_sources - before->charged_sources);
	return false;
}

/* Whether the owner of the queue is this user.  Bytes of a queue that has ended go after a while. */
static bool is_of(struct world *w, uid_t uid)
{
	struct wq_info owner = { .size = sizeof(owner), .flags = WQ_INFO_OWNER }, now;

	while (verb(w->q, WQ_IOC_INFO, &owner) == -EFAULT)
		;
	now = charges_of(w, uid);
	return owner.charged_queues == now.charged_queues && owner.charged_bytes == now.charged_bytes;
}

/* The owner is charged: the whole charge has moved, or nothing. */
static int call_chown(struct world *w)
{
	struct wq_info none = {}, now;
	int ret = chown(path_of(w->name), USER, -1) ? -errno : 0;
	bool moved = !ret;
	struct stat st;

	while (stat(path_of(w->name), &st))
		;
	now = charges_of(w, 0);
	if (!is_charged("root", &w->charged, &now, -moved))
		return -EBADMSG;
	now = charges_of(w, USER);
	if (!is_charged("the user", &none, &now, moved) || st.st_uid != (moved ? USER : 0))
		return -EBADMSG;
	return EVENTUALLY(is_of(w, st.st_uid)) ? ret : -EBADMSG;
}

/* Root exceeds them. */
static void beyond_the_limits(struct world *w)
{
	ready_keys(w);
	put(USER_QUEUES, "0");
}

static int call_info_owner(struct world *w)
{
	struct wq_info info = { .size = sizeof(info), .flags = WQ_INFO_OWNER };
	int ret = verb(w->q, WQ_IOC_INFO, &info);

	return ret ?: info.charged_queues && info.charged_keys >= 20000 ? 0 : -EBADMSG;
}

static void a_closed_set(struct world *w)
{
	(void)w;
	put(CLOSED, "Y");
}

/* A user makes a queue, which the closed set refuses. */
static int call_open_closed(struct world *w)
{
	int ret;

	become(USER);
	ret = q_bind(w->dev, w->new_name, WQ_OPEN_CREATE | WQ_OPEN_EXCL, 0600, 0);
	become(0);
	if (!access(path_of(w->new_name), F_OK))
		return -EBADMSG;
	return ret == -EACCES ? 0 : ret ?: -EPROTO;
}

static int call_mount(struct world *w)
{
	int ret = mount("wqueue", SET, "wqueue", 0, "newinstance,keys=5") ? -errno : 0;

	w->mounted |= !ret;
	return ret;
}

static void no_set(struct world *w)
{
	(void)w;
	mkdir(SET, 0755);
}

/* A set with a queue that has keys and a source. */
static void a_set(struct world *w)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_fs_args args = {};
	int q;

	no_set(w);
	a_directory(w);
	must(mount("wqueue", SET, "wqueue", 0, "newinstance,keys=20000") ? -errno : 0);
	w->mounted = true;
	q = open(SET "/q", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(q);
	put_keys(w, 40, "key %d");
	must(q_add_array(q, &w->keys));
	args.fd = w->made;
	must(attach_op(q, &op, "fs", &args, sizeof(args)));
	close(q);
}

/* All charges end with the set.  The source's end may come later. */
static int call_umount(struct world *w)
{
	struct wq_info now = charges_of(w, 0);
	int ret;

	now.charged_sources--;
	if (!is_charged("root", &w->charged, &now, 1))
		return -EBADMSG;
	ret = umount2(SET, 0) ? -errno : 0;
	w->mounted = ret;
	if (ret)
		return ret;
	if (!EVENTUALLY(charges_of(w, 0).charged_sources == w->charged.charged_sources))
		return -EBADMSG;
	now = charges_of(w, 0);
	return is_charged("root", &w->charged, &now, 0) ? 0 : -EBADMSG;
}

static int call_shutdown(struct world *w)
{
	return q_shutdown(w->q);
}

static int call_drain(struct world *w)
{
	return q_drain(w->q);
}

static int call_poll(struct world *w)
{
	struct pollfd p[2] = { { .fd = w->q, .events = POLLIN }, { .fd = w->other } };

	return poll(p, 2, 0) < 0 ? -errno : 0;
}

/* A file that is polled before it is bound. */
static int call_bind_polled(struct world *w)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };
	int ep = epoll_create1(0), ret = -errno;

	if (ep < 0)
		return ret;
	ret = epoll_ctl(ep, EPOLL_CTL_ADD, w->dev, &ev) ? -errno : 0;
	ret = ret ?: q_bind(w->dev, w->name, 0, 0, 0);
	if (!ret)
		ret = epoll_wait(ep, &ev, 1, 0) < 0 ? -errno : 0;
	/* The repeated call opens and binds another file. */
	if (ret) {
		close(w->dev);
		w->dev = open(WQ_DEVICE, O_RDWR);
		if (w->dev < 0)
			w->dev = q_dev(O_RDWR);
	}
	close(ep);
	return ret;
}

static int call_epoll(struct world *w)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), ret = -errno;

	if (ep < 0)
		return ret;
	ret = epoll_ctl(ep, EPOLL_CTL_ADD, w->q, &ev) || epoll_wait(ep, &ev, 1, 0) < 0 ?
		-errno : 0;
	close(ep);
	return ret;
}

static int read_text(const char *path)
{
	char text[1024];
	int fd, ret;

	fd = open(path, O_RDONLY);
	if (fd < 0)
		return -errno;
	ret = read(fd, text, sizeof(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static int call_fdinfo(struct world *w)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", w->q);
	return read_text(path);
}

static int call_metrics(struct world *w)
{
	char path[sizeof(DEBUGFS) + WQ_NAME_MAX + 16];

	snprintf(path, sizeof(path), DEBUGFS "wq/%s/metrics", w->name);
	return read_text(path);
}

/* The release of a consumer can't fail. */
static int call_close(struct world *w)
{
	close(w->other);
	w->other = -1;
	return 0;
}

#define CALL(name) FIXTURE_VARIANT_ADD(faults, name)

CALL(open_of_the_device) { .setup = no_keys, .call = call_open_device };
CALL(open_of_a_private_queue) { .setup = no_keys, .call = call_open_private };
CALL(open_with_limiters_and_a_lease) { .setup = no_keys, .call = call_open_limited };
CALL(open_of_a_new_name) { .setup = no_keys, .call = call_open_create };
CALL(open_of_a_name) { .setup = no_keys, .call = call_open_attach };
CALL(open_with_other_attributes_and_ACCEPT) { .setup = no_keys, .call = call_open_accept };
CALL(open_with_the_attributes_of_the_queue) { .setup = no_keys, .call = call_open_same };
CALL(open_of_a_polled_file) { .setup = ready_keys, .call = call_bind_polled };
CALL(config) { .setup = rate_limited_keys, .call = call_config };
CALL(set_of_all_attributes) { .setup = rate_limited_keys, .call = call_set };
CALL(set_of_the_default_limiter) { .setup = rate_limited_keys, .call = call_set_default_limiter };
CALL(unlink) { .setup = no_keys, .call = call_unlink };
CALL(info) { .setup = no_keys, .call = call_info };
CALL(add_of_one_key) { .setup = one_key, .call = call_add };
CALL(add_of_the_longest_key) { .setup = one_long_key, .call = call_add };
CALL(add_with_results) { .setup = forty_keys, .call = call_add };
CALL(add_with_marks) { .setup = keys_of_a_map, .call = call_add_marked };
CALL(map) { .setup = no_keys, .call = call_map };
CALL(add_without_results) { .setup = large_array, .call = call_add };
CALL(add_that_grows_the_table) { .setup = keys_onto_many, .call = call_add };
CALL(add_of_ready_keys) { .setup = ready_keys, .call = call_add };
CALL(add_of_processing_keys) { .setup = keys_to_held_ones, .call = call_add };
CALL(add_of_a_first_delayed_key) { .setup = one_delayed, .call = call_add };
CALL(add_of_delayed_keys) { .setup = many_delayed, .call = call_add };
CALL(add_rate_limited) { .setup = rate_limited, .call = call_add, .counts = true };
CALL(write_of_keys) { .setup = short_and_long_keys, .call = call_write };
/* Its allocation is the first one, so that no page that a slab needs meanwhile hides it. */
CALL(write_of_the_longest_key) { .setup = one_long_key, .call = call_write };
CALL(write_of_the_longest_key_without_a_wait) { .setup = one_long_key, .call = call_write_nowait };
CALL(read_of_a_long_key_without_a_wait) { .setup = a_ready_long_key, .call = call_read_nowait };
CALL(read_of_a_long_key) { .setup = a_ready_long_key, .call = call_read };
/* The run of the key before ends in any case. */
CALL(read_after_a_read) { .setup = one_read_before_others, .call = call_read, .again = -ESTALE };
CALL(readv_after_a_read) { .setup = one_read_before_others, .call = call_readv, .again = -ESTALE };
CALL(get_of_some) { .setup = ready_keys, .call = call_get };
CALL(get_of_some_at_a_ceiling) { .setup = ready_keys_at_a_ceiling, .call = call_get_ten };
CALL(get_of_some_at_a_start_rate) { .setup = ready_keys_with_ten_tokens, .call = call_get_ten };
CALL(get_of_all) { .setup = ready_keys, .call = call_get_all };
CALL(get_of_the_longest_key) { .setup = a_ready_long_key, .call = call_get };
CALL(get_of_one_long_key) { .setup = a_ready_long_key, .call = call_get_one };
CALL(done) { .setup = held_keys, .call = call_done, .again = -ESTALE };
CALL(done_retry) { .setup = held_for_retry, .call = call_done, .again = -ESTALE };
CALL(done_after) { .setup = held_for_later, .call = call_done, .again = -ESTALE };
CALL(done_get) { .setup = held_keys, .call = call_done_get, .again = -ESTALE };
CALL(done_get_of_one_long_key) {
	.setup = one_held_before_a_long_key, .call = call_done_get_one, .again = -ESTALE,
};
CALL(touch) { .setup = held_keys, .call = call_touch };
CALL(query) { .setup = a_ready_long_key, .call = call_query };
CALL(cancel) { .setup = a_ready_long_key, .call = call_cancel, .again = -ENOENT };
CALL(cancel_of_a_failed_key) { .setup = a_failed_long_key, .call = call_cancel, .again = -ENOENT };
CALL(forget) { .setup = a_failed_long_key, .call = call_forget };
CALL(list) { .setup = held_for_retry, .call = call_list };
CALL(stat) { .setup = held_keys, .call = call_stat };
CALL(give_up) { .setup = held_to_give_up, .call = call_give_up, .again = -ESTALE };
CALL(kick) { .setup = parked_keys, .call = call_kick };
CALL(kick_of_one_key) { .setup = parked_keys, .call = call_kick_one, .again = -ENOENT };
CALL(add_to_parked_keys) { .setup = adds_to_parked_keys, .call = call_add };
CALL(pause) { .setup = many_delayed, .call = call_pause };
CALL(wait) { .setup = no_keys, .call = call_wait };
CALL(wait_add) { .setup = no_keys, .call = call_wait_add };
CALL(disable) { .setup = no_keys, .call = call_disable };
CALL(restore) { .setup = no_keys, .call = call_restore, .again = -EEXIST };
CALL(restore_parked) { .setup = no_keys, .call = call_restore_parked, .again = -EEXIST };
CALL(shutdown) { .setup = many_delayed, .call = call_shutdown };
CALL(drain) { .setup = no_keys, .call = call_drain };
CALL(poll) { .setup = ready_keys, .call = call_poll };
CALL(epoll) { .setup = ready_keys, .call = call_epoll };
CALL(fdinfo) { .setup = held_keys, .call = call_fdinfo };
CALL(metrics_in_debugfs) { .setup = held_keys, .call = call_metrics };
CALL(close) { .setup = held_by_the_other, .call = call_close };
CALL(close_of_the_second_consumer_that_loses_its_keys) {
	.setup = held_again_by_the_other, .call = call_close, .tail = true,
};

CALL(get_that_times_out) { .setup = no_keys, .call = call_get_late };
CALL(wait_for_a_drain) { .setup = held_keys, .call = call_wait_drain };

#define LEVELS .order = WQ_ORDER_PRIORITY
CALL(stat_of_levels) { .setup = ready_keys_of_levels, .call = call_stat_levels, LEVELS };
CALL(open_of_a_queue_with_levels) { .setup = no_keys, .call = call_open_levels };
CALL(add_with_levels) { .setup = keys_of_levels, .call = call_add, LEVELS };
CALL(add_with_levels_and_delays) { .setup = delayed_keys_of_levels, .call = call_add, LEVELS };
CALL(add_with_delays_of_ready_keys_with_levels) {
	.setup = delays_of_ready_keys_of_levels, .call = call_add, LEVELS,
};
CALL(get_of_some_with_levels) { .setup = ready_keys_of_levels, .call = call_get, LEVELS };
CALL(done_retry_with_levels) {
	.setup = levels_held_for_retry, .call = call_done, .again = -ESTALE, LEVELS,
};
CALL(done_get_with_levels) {
	.setup = levels_held_for_retry, .call = call_done_get, .again = -ESTALE, LEVELS,
};
CALL(list_with_levels) { .setup = levels_held_for_retry, .call = call_list, LEVELS };
CALL(close_of_the_second_consumer_with_levels) {
	.setup = held_again_by_the_other, .call = call_close, .tail = true, LEVELS,
};

/* Each short key has a group of its own, so a new key needs memory for both. */
#define GROUPS .order = WQ_ORDER_PREFIX, .order_arg = 24, .limit = 1
CALL(open_of_a_queue_with_groups) { .setup = no_keys, .call = call_open_groups };
CALL(add_of_a_new_group) { .setup = one_key, .call = call_add, GROUPS };
CALL(add_of_the_longest_group) {
	.setup = one_long_key, .call = call_add, .order = WQ_ORDER_DELIMITER, .order_arg = '/',
};
CALL(add_of_new_groups) { .setup = forty_keys, .call = call_add, GROUPS };
CALL(add_of_keys_of_one_group) {
	.setup = forty_keys, .call = call_add, .order = WQ_ORDER_PREFIX, .order_arg = 3, .limit = 1,
};
CALL(add_that_grows_both_tables) { .setup = keys_onto_many, .call = call_add, GROUPS };
CALL(add_rate_limited_with_groups) {
	.setup = rate_limited, .call = call_add, .counts = true, GROUPS,
};
CALL(write_with_groups) { .setup = short_and_long_keys, .call = call_write, GROUPS };
CALL(get_of_some_with_groups) { .setup = ready_keys, .call = call_get, GROUPS };
CALL(get_of_a_group_with_a_limit) {
	.setup = ready_keys, .call = call_get, .order = WQ_ORDER_PREFIX, .order_arg = 3, .limit = 2,
};
CALL(get_of_a_group_with_a_start_rate) {
	.setup = ready_keys_of_a_group_with_ten_tokens, .call = call_get_ten,
	.order = WQ_ORDER_PREFIX, .order_arg = 3,
};
CALL(read_after_a_read_with_a_limit) {
	.setup = one_read_before_others, .call = call_read,
	.again = -ESTALE, .order = WQ_ORDER_PREFIX, .order_arg = 3, .limit = 1,
};
CALL(done_retry_with_groups) {
	.setup = held_for_retry, .call = call_done, .again = -ESTALE, GROUPS,
};
CALL(done_get_with_groups) { .setup = held_keys, .call = call_done_get, .again = -ESTALE, GROUPS };
CALL(list_with_groups) { .setup = held_for_retry, .call = call_list, GROUPS };
CALL(cancel_of_the_last_key_of_a_group) {
	.setup = a_ready_long_key, .call = call_cancel, .again = -ENOENT, GROUPS,
};
CALL(wait_add_with_groups) { .setup = no_keys, .call = call_wait_add, GROUPS };
CALL(disable_with_groups) { .setup = no_keys, .call = call_disable, GROUPS };
CALL(restore_with_groups) { .setup = no_keys, .call = call_restore, .again = -EEXIST, GROUPS };
CALL(rest) { .setup = no_keys, .call = call_rest, GROUPS };
CALL(close_with_groups) { .setup = held_by_the_other, .call = call_close, GROUPS };
CALL(close_of_the_second_consumer_with_groups) {
	.setup = held_again_by_the_other, .call = call_close, .tail = true, GROUPS,
};

CALL(attach) { .setup = a_directory, .call = call_attach };
CALL(sources) { .setup = a_source, .call = call_sources };
CALL(detach) { .setup = a_source, .call = call_detach, .again = -ENOENT };

CALL(chown_of_the_file) { .setup = ready_keys, .call = call_chown };
CALL(chown_beyond_the_limits) { .setup = beyond_the_limits, .call = call_chown };
CALL(info_of_the_owner) { .setup = ready_keys, .call = call_info_owner };
CALL(open_of_a_new_name_in_a_closed_set) { .setup = a_closed_set, .call = call_open_closed };
CALL(mount_of_a_set) { .setup = no_set, .call = call_mount };
CALL(umount_of_a_set_with_keys_and_a_source) { .setup = a_set, .call = call_umount };

FIXTURE_SETUP(faults)
{
	fail_on_demand();
}

FIXTURE_TEARDOWN(faults)
{
	inject(0);
}

TEST_F_TIMEOUT(faults, verb_survives_failure_of_each_allocation_and_copy, 600)
{
	struct world w;
	int ret, first, n, fallbacks = 0;
	bool fired;

	world_new(&w, variant->order, variant->order_arg, variant->limit);
	variant->setup(&w);
	ASSERT_EQ(0, variant->call(&w));
	dump_of(w.q, &self->end);
	world_end(&w);

	for (n = 0;; n++) {
		world_new(&w, variant->order, variant->order_arg, variant->limit);
		variant->setup(&w);
		dump_of(w.watch, &self->before);
		if (!n)
			starve(true);
		inject(n);
		ret = variant->call(&w);
		fired = injected();
		if (!n)
			starve(false);
		if (!fired)
			ASSERT_EQ(0, w.deadline);
		ASSERT_TRUE(adds_up(&w)) TH_LOG("fault %d: statistics", n);
		dump_of(w.q, &self->now);
		if (variant->tail && fired) {
			int more = dump_fallbacks(&self->now);

			if (n)
				fallbacks += more;
		}
		if (!fired || !ret) {
			/* no fault, or one that the call survived */
			ASSERT_EQ(0, ret);
			ASSERT_TRUE(dump_same(&self->now, &self->end, false))
				TH_LOG("fault %d: success, but other keys", n);
		} else {
			ASSERT_TRUE((n && (ret == -ENOMEM || ret == -EFAULT)) || ret == -EAGAIN)
				TH_LOG("fault %d: %s", n, strerror(-ret));
			/* no key was lost, unless the call removes keys */
			if (!variant->again)
				ASSERT_LE(self->before.n, self->now.n);
			first = ret;
			ret = variant->call(&w);
			ASSERT_TRUE(!ret || (first == -EFAULT && ret == variant->again))
				TH_LOG("fault %d: repeated call: %s", n, strerror(-ret));
			dump_of(w.q, &self->now);
			ASSERT_TRUE(dump_same(&self->now, &self->end, variant->counts && first == -EFAULT))
				TH_LOG("fault %d: repeated call: other keys", n);
			ASSERT_TRUE(adds_up(&w));
		}
		world_end(&w);
		if (!fired)
			break;
		/* if there is no end, the injection does not work */
		ASSERT_GT(1000, n);
	}
	if (variant->tail) {
		TH_LOG("keys that were ready because their delay had no memory: %d", fallbacks);
		ASSERT_LT(0, fallbacks);
	}
	TH_LOG("faults injected: %d", n - 1);
}

TEST_HARNESS_MAIN
