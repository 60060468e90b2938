// SPDX-License-Identifier: GPL-2.0-only
/* The verbs of /dev/wq: the meaning of a program's bytes, and checks of the output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "exec.h"

#define TOKENS	64

/* The tokens of the last get of each key, and of the get before. */
static __u64 token_last[TOKENS], token_before[TOKENS];

/* ---- the meaning of the bytes ---- */

const char names[NAMES][WQ_NAME_MAX] = {
	"", "fuzz-a", "fuzz-b",
	"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
	"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
	".x", "a/b", "../fuzz", "new\nline", "\xff\xfd\xff", "fuzz-a\0behind", "a b", "%s%n",
	"\"", "-", ":@+",
};

static const __u32 flag_values[] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, WQ_OPEN_SAME, 1U << 16, 1U << 31, ~0U,
};

static const __u32 modes[] = { 0600, 0, 0666, 0200, 0400, 0777, 01000, ~0U };

static const __u32 max_keys_values[] = {
	0, 1, 2, 3, 16, 65536, WQ_MAX_KEYS, WQ_MAX_KEYS + 1, ~0U,
	1U << 24,	/* all keys of a user's quota */
};

static const __s64 leases[] = {
	0, WQ_MIN_LEASE, 2 * WQ_MIN_LEASE, 3600 * SEC, WQ_MIN_LEASE - 1, 1, -1, INT64_MAX,
};

static const __s64 slacks[] = {
	0, 1, WQ_DEFAULT_SLACK, MS, WQ_MAX_SLACK, 0, WQ_MAX_SLACK + 1, -1, INT64_MIN,
};

static const struct { __u32 order, arg, limit, ageing; } orders[] = {
	{ WQ_ORDER_FIFO, 0, 0, 0 }, { WQ_ORDER_PRIORITY, 0, 0, 0 },
	{ WQ_ORDER_PRIORITY, 2, 0, 0 }, { WQ_ORDER_DELIMITER, 'c', 0, 0 },
	{ WQ_ORDER_PREFIX, 1, 1, 0 }, { WQ_ORDER_PRIORITY, 1, 0, 0 },
	{ WQ_ORDER_PRIORITY, 0, 1, 0 }, { WQ_ORDER_PREFIX, WQ_MAX_KEY + 1, 0, 0 },
	{ WQ_ORDER_OTHER, 0, 0, 0 }, { ~0U, ~0U, ~0U, ~0U },
	{ WQ_ORDER_PREFIX, 1, 2, 2 }, { WQ_ORDER_DELIMITER, 'c', 0, WQ_NO_AGEING },
	{ WQ_ORDER_PRIORITY, 0, 0, 2 },
};

static const __s8 levels[] = { 0, 1, -1, WQ_MAX_PRIORITY, WQ_MIN_PRIORITY, 63, 64, -64 };

static const __s64 max_defers[] = { 0, 1, MS, 3600 * SEC, INT64_MAX, -1 };

#define SET_ANY	(WQ_ATTR_MAX_KEYS | WQ_ATTR_LIMITER | WQ_ATTR_LEASE | WQ_ATTR_SLACK)

static const __u32 sets[] = {
	SET_ANY, WQ_ATTR_ORDER, WQ_ATTR_MODE, WQ_ATTR_UID, WQ_ATTR_GID, WQ_ATTR_MAX_KEYS, WQ_ATTR_LIMITER,
	WQ_ATTR_LEASE, WQ_ATTR_SLACK, SET_ANY | WQ_ATTR_MODE | WQ_ATTR_UID | WQ_ATTR_GID,
	WQ_ATTR_MODE | WQ_ATTR_MAX_KEYS, WQ_ATTR_MAX_RETRIES, WQ_ATTR_GROUP_START_BURST << 1,
	~0U, WQ_ATTR_START_RATE | WQ_ATTR_START_BURST,
};

static const __u32 retries_values[] = { 0, 1, 2, WQ_MAX_RETRIES, WQ_MAX_RETRIES + 1, ~0U };

/* The names of limits in the table of attributes. */
#define S64_MAX	INT64_MAX
#define U32_MAX	0xffffffffLL

/* And its orders. */
#define ORDERS_ALL	~0U
#define ORDERS_GROUPS	(1U << WQ_ORDER_DELIMITER | 1U << WQ_ORDER_PREFIX)
#define ORDERS_WITH_ARG	(1U << WQ_ORDER_PRIORITY | ORDERS_GROUPS)

static const struct attr {
	__u32 bit, size, orders;
	size_t field;
	__s64 min, max, initial;
} attrs[] = {
#define VALUE(name, kind, f, member, min, max, initial, orders, ...) \
	{ WQ_ATTR_##name, sizeof(((struct wq_attrs *)0)->f), orders, \
	  offsetof(struct wq_attrs, f), min, max, initial },
#define OTHER(...)
#include "../../module/state/attr_table.h"
};

/* Writes a value at the ends of an attribute's range. Returns the attribute's bit, or 0. */
static __u32 attr_put(struct wq_attrs *args, const struct call *c)
{
	const struct attr *a = &attrs[(c->arg[A_ATTR] - 1) % ARRAY_SIZE(attrs)];
	const __s64 values[] = {
		0, a->min, a->max, a->initial, a->min + 1, a->min - 1,
		(__s64)((__u64)a->max + 1), -1,
	};
	__s64 value = PICK(values, c->arg[A_VALUE]);

	if (!c->arg[A_ATTR])
		return 0;
	memcpy((char *)args + a->field, &value, a->size);
	return a->bit;
}

const __u32 uids[UIDS] = { 0, 1000, 1001, 65534, 1U << 31, ~0U };

static const __u32 counts_of_records[] = {
	1, 2, 3, 16, 17, 0, 5, 15, 33, 64, 300, 4096, 32768, 32769,
};

static const __u32 key_ids[] = { 0, 1, 2, 3, 4, 5, 6, 7, 100, 1000, 20000, 60000 };

static const __u16 key_lens[] = {
	8, 1, 16, 17, 64, 65, 24, 128, 256, 512, 1023, 1024, 0, 1025, 0xffff, 4,
};

static const __s64 delays[] = {
	0, 1, US, 100 * US, MS, 2 * MS, 5 * MS, SEC, 3600 * SEC, -1, INT64_MIN, INT64_MAX,
	INT64_MAX - 1, 1LL << 62,
};

static const __u32 rooms[] = {
	WQ_MAX_OUT, 0, 1, 8, 23, 24, 31, 32, 33, 64, 256, 257, 1048, 1064, WQ_MAX_OUT + 8,
	WQ_MAX_ARRAY, WQ_MAX_ARRAY + 1, ~0U,
};

static const __u32 counts[] = { 0, 1, 2, 3, 16, 17, 64, ~0U, 1U << 31, 5 };

static const __s64 timeouts[] = {
	0, -1, 100 * US, 5 * MS, 1, INT64_MAX, INT64_MIN, SEC,
};

static __u16 outcome_flags(__u8 i)
{
	static const __u16 odd[] = {
		WQ_ADD_AFTER, 0x40, 0x8000, 0xffff, WQ_ADD_AFTER | WQ_ADD_KEEP_FIRST,
		WQ_ADD_AFTER | WQ_ADD_DROP_DELAY, WQ_ADD_AFTER | WQ_ADD_RATE_LIMITED,
		WQ_ADD_AFTER | WQ_ADD_TAKE_LATEST,
	};

	return i < 16 ? i : PICK(odd, i - 16);
}

#define EXP(b, m)	{ .kind = WQ_LIMITER_EXPONENTIAL, .base = (b), .max = (m) }
#define FAST(b, m, k)	{ .kind = WQ_LIMITER_FAST_SLOW, .base = (b), .max = (m), .n = (k) }
#define BUCKET(r, k)	{ .kind = WQ_LIMITER_BUCKET, .rate = (r), .n = (k) }
#define MAX_OF(k)	{ .kind = WQ_LIMITER_MAX_OF, .n = (k) }
#define MAX_WAIT(m)	{ .kind = WQ_LIMITER_MAX_WAIT, .max = (m) }

static const struct {
	__u32 n;
	struct wq_limiter_spec limit[WQ_MAX_LIMITERS + 1];
} limiters[] = {
	{ 0 },
	{ 1, { EXP(MS, 10 * MS) } },
	{ 1, { FAST(100 * US, MS, 2) } },
	{ 1, { BUCKET(WQ_QPS(1000), 2) } },
	{ 3, { MAX_OF(2), EXP(MS, 10 * MS), BUCKET(WQ_QPS(100), 1) } },
	{ 2, { MAX_WAIT(MS), EXP(MS, 10 * MS) } },
	{ 5, { MAX_OF(1), MAX_WAIT(5), MAX_OF(1), MAX_WAIT(MS), EXP(MS, 10 * MS) } },
	{ 6, { MAX_OF(1), MAX_OF(1), MAX_OF(1), MAX_OF(1), MAX_OF(1), EXP(MS, 10 * MS) } },
	{ 16, { MAX_OF(15), [1 ... 15] = EXP(1, 2) } },
	{ 17, { MAX_OF(16), [1 ... 16] = EXP(1, 2) } },
	{ 1, { BUCKET(0, 0) } },
	{ 1, { EXP(0, 0) } },
	{ 1, { EXP(INT64_MAX, INT64_MAX) } },
	{ 1, { BUCKET(INT64_MAX, ~0U) } },
	{ 1, { MAX_OF(0) } },
	{ 1, { MAX_WAIT(MS) } },
	{ 2, { EXP(MS, 10 * MS), EXP(MS, 10 * MS) } },
	{ 4, { MAX_OF(3), EXP(MS, 10 * MS), EXP(-1, 10 * MS), EXP(MS, 10 * MS) } },
	{ 4, { MAX_OF(17), EXP(MS, 10 * MS), EXP(MS, 10 * MS), EXP(MS, 10 * MS) } },
	{ 3, { MAX_OF(2), MAX_WAIT(0), FAST(0, 0, 0) } },
};

/* The size field of a struct: a number, or the right size and a number.  Bytes beyond its end. */
static const struct { __u32 n; bool relative, dirty; } sizes[] = {
	{ 0, true, false }, { 0, false, false }, { 4, false, false }, { 7, false, false },
	{ 8, false, false }, { -8, true, false }, { -4, true, false }, { -1, true, false },
	{ 8, true, false }, { 8, true, true }, { 1, true, true }, { PAGE, false, false },
	{ PAGE, false, true }, { PAGE + 1, false, false }, { 1U << 31, false, false },
	{ ~0U, false, false },
};

/* Letters that differ from poison; some keys have bytes that would break a text. */
static void key_fill(__u8 *to, __u32 id, __u32 len)
{
	static const __u8 hostile[] = "\n\"\\\0\x1b[2J\xff\x7f%n\xc3\xa9\r\t";

	for (__u32 i = 0; i < len; i++)
		to[i] = i >= 4 && id % 16 == 7 ? hostile[i % sizeof(hostile)] :
			'A' + (id >> i % 4 * 4) % 16;
}

static __u32 key_id(const __u8 *key, __u32 len)
{
	__u32 id = 0;

	for (__u32 i = 0; i < len && i < 4; i++)
		id |= (key[i] - 'A') % 16 << i * 4;
	return id % TOKENS;
}

void verbs_reset(void)
{
	memset(token_last, 0, sizeof(token_last));
	memset(token_before, 0, sizeof(token_before));
}

/* Calls a verb with @args of @size bytes, which afterwards are the caller's view. */
__s32 verb(struct task *t, unsigned int cmd, void *args, __u32 size, bool tells)
{
	const struct call *c = t->call;
	char *image = t->image[ARG];
	__u32 usize = sizes[c->arg[A_SIZE]].n, room, n;
	__s32 ret;

	if (sizes[c->arg[A_SIZE]].relative)
		usize += size;
	room = usize < 8 ? 8 : usize > PAGE ? PAGE + 8 : usize;
	n = size < room ? size : room;
	memset(image, sizes[c->arg[A_SIZE]].dirty ? 0x11 : 0, room);
	memcpy(image, args, n);
	memcpy(image, &usize, sizeof(usize));
	/* PTR_SELF for the struct itself has no meaning. */
	t->arg = place(t, ARG, c->arg[A_ARG] == PTR_SELF ? PTR_OK : c->arg[A_ARG], room);

	ret = CALL(t, ioctl(slot_of(c, A_FD), cmd, t->arg.user));

	/* These return a file, or the number of a source. */
	if ((ret > 0 && cmd != WQ_IOC_MAP && cmd != WQ_IOC_WAIT && cmd != WQ_IOC_SOURCE &&
	     cmd != WQ_IOC_OPEN) || (ret < 0 && !error_name(ret)))
		fault(t, "returned %d", ret);
	if (!t->self) {
		spot_check(t, &t->arg, tells ? (usize < size ? usize : size) : 0, "the struct");
		leak_check(t, &t->arg, size, "the struct");
		if (t->arg.seen >= n)
			memcpy(args, t->arg.user, n);
	}
	return ret;
}

/* Whether struct and memory were correct, so that the output can be checked. */
static bool plain(const struct task *t)
{
	return !t->self && t->call->arg[A_SIZE] == 0 && t->call->arg[A_ARG] == PTR_OK;
}

/* ---- records ---- */

static __u64 token_pick(__u8 how, __u32 id, __u64 told)
{
	switch (how) {
	case 1:
		return 0;
	case 2:
		return token_before[id];
	case 3:
		return 0x4142434445464748;
	case 4:
		return told + 1;
	case 5:
		return ~0ULL;
	}
	return told;
}

static struct wq_rec *rec_next(struct wq_rec *rec)
{
	return (void *)((char *)rec + WQ_REC_SIZE(rec->len));
}

/* In a done only the outcomes AFTER and REST have a delay. */
static __s64 delay_pick(const struct call *c, __u16 flags)
{
	return c->op == OP_ADD || flags & (WQ_OUTCOME_AFTER | WQ_OUTCOME_REST) ? PICK(delays, c->arg[A_DELAY]) : 0;
}

static __u32 recs_make(struct task *t, struct wq_rec *rec, __u32 *count)
{
	const struct call *c = t->call;
	__u32 n = PICK(counts_of_records, c->arg[A_N]), id = PICK(key_ids, c->arg[A_KEY]);
	__u16 len = PICK(key_lens, c->arg[A_LEN]);
	char *from = (char *)rec;

	for (*count = 0; *count < n; ++*count) {
		if ((char *)rec - from + WQ_REC_SIZE(len) > area_sizes[KEYS] - PAGE)
			break;
		memset(rec, 0, WQ_REC_SIZE(len));
		rec->len = len;
		rec->flags = outcome_flags(c->arg[*count % 2 ? A_OUTCOME2 : A_OUTCOME]);
		rec->delay = delay_pick(c, rec->flags);
		/* Two levels in turn, so that keys change their order. */
		rec->priority = c->op == OP_ADD && *count % 2 ? PICK(levels, c->arg[A_LEVEL]) : 0;
		key_fill(rec->key, id + *count, len);
		if (c->op != OP_ADD || c->arg[A_TOKEN])
			rec->token = token_pick(c->arg[A_TOKEN], (id + *count) % TOKENS,
						c->op == OP_ADD ? 0 :
						token_last[(id + *count) % TOKENS]);
		rec = rec_next(rec);
	}
	return (char *)rec - from;
}

static __u32 recs_last(struct task *t, struct wq_rec *rec, __u32 *count)
{
	const struct call *c = t->call;

	memcpy(rec, t->last, t->last_size);
	*count = t->last_count;
	for (__u32 i = 0; i < *count; i++, rec = rec_next(rec)) {
		rec->flags = outcome_flags(c->arg[i % 2 ? A_OUTCOME2 : A_OUTCOME]);
		rec->delay = delay_pick(c, rec->flags);
		rec->token = c->op == OP_ADD ? 0 :
			     token_pick(c->arg[A_TOKEN], key_id(rec->key, rec->len), rec->token);
		if (c->op == OP_ADD)
			rec->failures = rec->given_back = rec->priority = 0;
	}
	return t->last_size;
}

/* Breaks an array in one way. */
static void recs_spoil(__u8 how, struct wq_rec *recs, struct wq_keys *keys)
{
	struct wq_rec *last = recs, *middle = recs;

	for (__u32 i = 0; i + 1 < keys->count; i++) {
		last = rec_next(last);
		if (i < keys->count / 2)
			middle = last;
	}
	switch (how) {
	case 1:
		keys->count++;
		break;
	case 2:
		keys->count--;
		break;
	case 3:
		keys->size += 8;
		break;
	case 4:
		keys->size -= 8;
		break;
	case 5:
		keys->size -= 1;
		break;
	case 6:
		keys->size = 0;
		break;
	case 7:
		keys->count = 0;
		break;
	case 8:
		keys->count = ~0U;
		break;
	case 9:
		keys->size = ~0U;
		break;
	case 10:
		keys->size = WQ_MAX_ARRAY + 8;
		break;
	case 11:
		last->len += 8;
		break;
	case 12:
		last->len = 0;
		break;
	case 13:
		recs->len = WQ_MAX_KEY + 1;
		break;
	case 14:
		middle->len = 0xffff;
		break;
	case 15:
		recs->given_back = 1;
		break;
	case 16:
		memset(rec_next(last) - 1, 0x11, (8 - last->len % 8) % 8);
		break;
	case 17:
		middle->delay = 1;
		break;
	case 18:
		/* The next record would begin behind the end. */
		last->len += 8;
		keys->count++;
		break;
	case 19:
		last->len = WQ_MAX_KEY;
		keys->count += 2;
		break;
	}
}

static void results_check(struct task *t, const struct spot *s, __u32 handled, __u32 n,
			  __s32 ret)
{
	__s32 result;

	/* The copy of the struct may have failed. */
	if (ret == -EFAULT && t->call->arg[A_FAIL])
		return;
	/* The call failed before the first key. */
	if (ret < 0 && handled == n)
		handled = 0;
	for (__u32 i = 0; i < n && (i + 1) * sizeof(result) <= s->seen; i++) {
		memcpy(&result, s->user + i * sizeof(result), sizeof(result));
		if (i >= handled && result != 0 && load32(s->image) != (__u32)result)
			fault(t, "result %u: expected no write beyond %u keys, seen %d", i,
			      handled, result);
		if (i < handled && (result > (int)WQ_RESULT_PARKED || (result < 0 && !error_name(result))))
			fault(t, "result %u: expected an errno or a result, seen %d", i, result);
	}
}

/* The array of an add, done or touch. */
static void recs_place(struct task *t, struct wq_keys *keys, struct spot *s)
{
	const struct call *c = t->call;
	struct wq_rec *recs = (void *)t->image[KEYS];
	__u32 count, size, room;

	size = c->arg[A_SOURCE] ? recs_last(t, recs, &count) : recs_make(t, recs, &count);
	memset(t->image[KEYS] + size, 0, PAGE);
	keys->size = size;
	keys->count = count;
	recs_spoil(c->arg[A_BAD], recs, keys);
	room = keys->size > area_sizes[KEYS] - PAGE ? size : keys->size > size ? keys->size : size;
	*s = place(t, KEYS, c->arg[A_KEYS], room);
	keys->addr = (uintptr_t)s->user;
}

/* The array for @n results or marks of @each bytes, or none. */
static __u64 array_place(struct task *t, int area, __u8 where, __u32 n, size_t each, struct spot *s)
{
	size_t len = n * each;

	*s = (struct spot){};
	if (!where)
		return 0;
	if (len > area_sizes[area] - PAGE)
		len = area_sizes[area] - PAGE;
	memset(t->image[area], FILL, len);
	*s = place(t, area, where - 1, len);
	return (uintptr_t)s->user;
}

static __u64 results_place(struct task *t, __u32 n, struct spot *s)
{
	return array_place(t, RESULTS, t->call->arg[A_RESULTS], n, sizeof(__s32), s);
}

static void marks_check(struct task *t, const struct spot *s, __u32 handled)
{
	struct wq_mark mark;

	for (__u32 i = 0; i < handled && (i + 1) * sizeof(mark) <= s->seen; i++) {
		memcpy(&mark, s->user + i * sizeof(mark), sizeof(mark));
		if (mark.counter >= WQ_MAP_COUNTERS && mark.counter != WQ_NO_COUNTER)
			fault(t, "mark %u: counter %u", i, mark.counter);
	}
}

/* ---- the output of get and list ---- */

static struct wq_keys out_place(struct task *t, struct spot *s)
{
	const struct call *c = t->call;
	__u32 room = PICK(rooms, c->arg[A_ROOM]);
	size_t len = room < area_sizes[NEXT] - PAGE ? room : area_sizes[NEXT] - PAGE;

	memset(t->image[NEXT], FILL, len < 16 * KIB ? len : 16 * KIB);
	*s = place(t, NEXT, c->arg[A_NEXT], len);
	return (struct wq_keys){
		.addr = (uintptr_t)s->user, .size = room, .count = PICK(counts, c->arg[A_COUNT]),
	};
}

static void token_note(const struct wq_rec *rec)
{
	__u32 id = key_id(rec->key, rec->len);

	token_before[id] = token_last[id];
	token_last[id] = rec->token;
}

/* @idle: the key may be idle, if its last run is known. */
static void info_check(struct task *t, const struct wq_key_info *info, bool idle)
{
	if (info->state >= WQ_KEY_DISABLED << 1 || (!info->state && !idle))
		fault(t, "state 0x%x", info->state);
	if (info->last_result > WQ_LAST_EXPIRED || info->last_age < 0 || info->last_took < 0 ||
	    (!info->last_result && (info->last_age || info->last_took)))
		fault(t, "last run: %u, %lld, %lld", info->last_result, (long long)info->last_age,
		      (long long)info->last_took);
	if (info->state & WQ_KEY_MINE && !(info->state & WQ_KEY_PROCESSING))
		fault(t, "state 0x%x: mine, but not processing", info->state);
	if (info->reason_len > WQ_MAX_REASON || info->error > WQ_MAX_ERROR ||
	    ((info->error || info->reason_len) && !(info->state & WQ_KEY_PARKED)))
		fault(t, "state 0x%x, error %u, reason of %u bytes", info->state, info->error,
		      info->reason_len);
	if (info->given_back > WQ_MAX_GIVEN_BACK || info->priority < WQ_MIN_PRIORITY ||
	    info->priority > WQ_MAX_PRIORITY)
		fault(t, "given back %u times, priority %d", info->given_back, info->priority);
}

/* A record of a list, whose info has @size bytes. */
static void row_check(struct task *t, const struct wq_list_rec *row, __u32 size, bool idle)
{
	struct wq_key_info info = { 0 };

	memcpy(&info, &row->info, size < sizeof(info) ? size : sizeof(info));
	info_check(t, &info, idle);
	if (!info.state && size == sizeof(info) && !info.last_result)
		fault(t, "an idle key is listed, and its last run is not known");
	for (; size > sizeof(info); size--)
		if (((const char *)&row->info)[size - 1])
			fault(t, "byte %u of an info is not zero", size - 1);
}

/* @rows: bytes of each info, if the records are those of a list. */
static void out_check(struct task *t, const struct spot *s, const struct wq_keys *keys,
		      __u32 most, __u32 rows, bool idle)
{
	__u32 off = 0, size, i;
	__u32 head = rows ? offsetof(struct wq_list_rec, info) + rows : sizeof(struct wq_rec);

	leak_check(t, s, WQ_MAX_OUT, "the records");
	if (keys->size > WQ_MAX_OUT || keys->size > s->len)
		fault(t, "%u bytes of output", keys->size);
	else
		spot_check(t, s, keys->size, "the buffer behind the records");
	if (s->seen < s->len || shared->fault[0])
		return;
	if (most && keys->count > most)
		fault(t, "%u keys instead of %u", keys->count, most);

	for (i = 0; i < keys->count && off + head <= keys->size; i++, off += size) {
		struct wq_rec *rec = (void *)(s->user + off);

		size = head + ((rec->len + 7U) & ~7U);
		if (!rec->len || rec->len > WQ_MAX_KEY || off + size > keys->size || rec->flags) {
			fault(t, "record %u is malformed", i);
			return;
		}
		address_check(t, s->user + off, rows ? offsetof(struct wq_list_rec, info.age) : head,
			      "a record");
		address_check(t, (char *)rec + head, rec->len, "a key");
		for (__u32 b = off + head + rec->len; b < off + size; b++)
			if (s->user[b])
				fault(t, "the padding of record %u is not zero", i);
		if (!rows && !rec->token)
			fault(t, "record %u has no token", i);
		if (!rows && rec->given_back > WQ_MAX_GIVEN_BACK)
			fault(t, "record %u was given back %u times", i, rec->given_back);
		if (rows)
			row_check(t, (struct wq_list_rec *)(s->user + off), rows, idle);
		if (!rows)
			token_note(rec);
	}
	if (i < keys->count || off != keys->size)
		fault(t, "%u records in %u bytes, count %u", i, keys->size, keys->count);
	if (rows || keys->size > sizeof(t->last))
		return;
	memcpy(t->last, s->user, keys->size);
	t->last_size = keys->size;
	t->last_count = keys->count;
}

/* A task without signals must not wait for one. */
static __s64 timeout_pick(const struct call *c)
{
	__s64 timeout = PICK(timeouts, c->arg[A_TIMEOUT]);

	return is_delicate(c) && (timeout < 0 || timeout > 5 * MS) ? 5 * MS : timeout;
}

/* The end of a wait, for a call that may wait. */
static __s64 deadline_pick(const struct task *t, const struct call *c)
{
	__s64 now = now_ns(), deadline;
	const __s64 some[] = { 0, t->deadline, now + MS, now, 1, -1, INT64_MAX, INT64_MIN };

	deadline = PICK(some, c->arg[A_DEADLINE]);
	return is_delicate(c) && deadline > now + 5 * MS ? 0 : deadline;
}

/* A call that did not fill fields of its struct left them as they were. */
static void same_check(struct task *t, const void *now, const void *before, size_t size,
		       const char *what)
{
	for (size_t i = 0; i < size; i++) {
		if (((const char *)now)[i] != ((const char *)before)[i]) {
			fault(t, "byte %zu of %s was written", i, what);
			return;
		}
	}
}

/* The struct of a verb after an error; verb() has set its size. */
static void args_check(struct task *t, const void *now, const void *before, size_t size)
{
	size_t head = sizeof(__u32);

	same_check(t, now + head, before + head, size - head, "the fields of a failed call");
}

/*
 * After a wait.  A signal leaves the end of the wait in the struct, and any other end of a wait
 * removes it.  If a copy was made to fail, the struct can keep its deadline beside the error of the
 * wait: see repeat.c in tests/selftests.
 */
static void wait_check(struct task *t, __s64 timeout, __s64 deadline, __s64 timeout_in,
		       __s64 deadline_in, __s32 ret)
{
	bool waited = ret == 0 || ret == -EAGAIN || ret == -ETIMEDOUT || ret == -ESHUTDOWN ||
		      ret == -EIDRM ||
		      ret == -ECANCELED || ret == -EMSGSIZE;
	bool faulty = ret < 0 && t->call->arg[A_FAIL] && deadline == deadline_in;

	if (timeout != timeout_in)
		fault(t, "timeout %lld is now %lld", (long long)timeout_in, (long long)timeout);
	if (ret == -EINTR) {
		/* A timeout below 0 is for ever, with any deadline. */
		if (deadline < 0 || (timeout_in > 0 && (deadline_in ? deadline != deadline_in :
									!deadline)))
			fault(t, "after a signal: deadline %lld is now %lld",
			      (long long)deadline_in, (long long)deadline);
		t->deadline = deadline;
	} else if (deadline != (waited ? 0 : deadline_in) && ret != -ENOMEM &&
		   ret != -EFAULT && !faulty) {
		fault(t, "after %d: deadline %lld is now %lld", ret, (long long)deadline_in,
		      (long long)deadline);
	}
}

/* After a get, or the get of a done. */
static void get_check(struct task *t, const struct spot *s, const struct wq_keys *keys,
		      const struct wq_keys *in, __s32 ret)
{
	if (ret == 0 && !keys->count)
		fault(t, "neither a key nor an error");
	if (ret == 0)
		out_check(t, s, keys, in->count, 0, false);
	else
		leak_check(t, s, WQ_MAX_OUT, "the records");
	if (ret && ret != -EFAULT)
		same_check(t, keys, in, sizeof(*in), "the buffer's size and count");
}

/* ---- limiters ---- */

/* Changes one number of the first or second limiter. */
static void limits_tweak(struct wq_limiter_spec *limits, __u8 tweak)
{
	static const __s64 odd[] = { 0, 1, -1, INT64_MAX, INT64_MIN };
	struct wq_limiter_spec *l = &limits[tweak / 25];
	__s64 v = odd[tweak % 5];

	switch (tweak / 5 % 5) {
	case 0:
		l->kind = v == 1 ? WQ_LIMITER_OTHER : v;
		break;
	case 1:
		l->n = v;
		break;
	case 2:
		l->base = v;
		break;
	case 3:
		l->max = v;
		break;
	case 4:
		l->rate = v;
		break;
	}
}

/* The limiters of an open or set; the last value stands for those that config reported. */
static bool limits_are_reported(const struct task *t)
{
	return t->call->arg[A_LIMITS] == ARRAY_SIZE(limiters) && t->num_limiters;
}

static struct spot limits_place(struct task *t, __u32 *n, __u64 *addr)
{
	struct wq_limiter_spec *limits = (void *)t->image[LIMITS];
	const struct call *c = t->call;
	struct spot s = {};

	if (limits_are_reported(t)) {
		*n = t->num_limiters;
		memcpy(limits, t->limiters, sizeof(t->limiters));
	} else {
		*n = PICK(limiters, c->arg[A_LIMITS]).n;
		memcpy(limits, PICK(limiters, c->arg[A_LIMITS]).limit, sizeof(limiters[0].limit));
	}
	if (!*n)
		return s;
	if (c->arg[A_TWEAK])
		limits_tweak(limits, c->arg[A_TWEAK]);
	s = place(t, LIMITS, c->arg[A_LIMITS_AT], *n * sizeof(*limits));
	*addr = (uintptr_t)s.user;
	return s;
}

/* ---- the verbs ---- */

__s32 do_bind(struct task *t, const struct call *c)
{
	struct wq_attrs args = { .max_keys = PICK(max_keys_values, c->arg[A_MAX_KEYS]) };
	__u8 name = c->arg[A_NAME];
	struct spot s;
	__s32 ret;

	memcpy(args.name, PICK(names, name), sizeof(args.name));
	args.flags = PICK(flag_values, c->arg[A_FLAGS]);
	args.mode = PICK(modes, c->arg[A_MODE]);
	/* By default a private queue, or a named one that is created if it does not exist. */
	if (name && args.flags <= WQ_OPEN_CREATE)
		args.flags ^= WQ_OPEN_CREATE;
	if (!c->arg[A_MODE] && !name)
		args.mode = 0;
	args.lease = PICK(leases, c->arg[A_LEASE]);
	args.set = c->arg[A_RESERVED];
	args.slack = PICK(slacks, c->arg[A_SLACK]);
	args.max_retries = PICK(retries_values, c->arg[A_RETRIES]);
	args.max_defer = PICK(max_defers, c->arg[A_MAX_DEFER]);
	args.order = PICK(orders, c->arg[A_ORDER]).order;
	args.order_arg = PICK(orders, c->arg[A_ORDER]).arg;
	args.group_limit = PICK(orders, c->arg[A_ORDER]).limit;
	args.group_ageing = PICK(orders, c->arg[A_ORDER]).ageing;
	attr_put(&args, c);
	if (args.flags == WQ_OPEN_SAME)
		args = (struct wq_attrs){
			.flags = WQ_OPEN_SAME, .fd = slot_of(c, A_FD2),
		};
	s = limits_place(t, &args.num_limiters, (__u64 *)&args.limiters);
	/*
	 * Set before the call, because another thread may see its end, and a child may be
	 * killed.
	 */
	if (name)
		__atomic_fetch_or(&shared->named, 1U << name, __ATOMIC_RELAXED);
	ret = verb(t, WQ_IOC_OPEN, &args, sizeof(args), false);
	spot_check(t, &s, 0, "the limiters");
	/* A directory's file gives another file. */
	if (ret > 0)
		slot_set(c->arg[A_FD2], ret);
	return ret < 0 ? ret : 0;
}

/* Attach a source, with its struct or without, list and detach. */
__s32 do_source(struct task *t, const struct call *c)
{
	static const char kinds[][WQ_KIND_MAX] = {
		"fs", "net", "fs", "net", "nosuch", "", "Fs", "fs\0behind",
	};
	__u8 how = c->arg[A_HOW], n = c->arg[A_N];
	struct wq_source_op args = {
		.op = how < 8 ? WQ_SOURCE_ATTACH : how < 11 ? WQ_SOURCE_LIST :
		      how < 14 ? WQ_SOURCE_DETACH : how,
		.id = how < 8 ? 0 : n,
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
	};
	bool fs = false;
	struct spot s = {};
	int dir = -1;
	__s32 ret;

	if (args.op == WQ_SOURCE_ATTACH) {
		memcpy(args.kind, PICK(kinds, how), sizeof(args.kind));
		memcpy(args.prefix, PICK(names, c->arg[A_NAME]), sizeof(args.prefix));
		args.delay = PICK(delays, c->arg[A_DELAY]);
		fs = args.kind[0] == 'f';
	}
	memset(t->image[KEYS], 0, sizeof(struct wq_fs_args));
	if (fs) {
		static const char rules[] = "+[!a-]b\0-*x*\\?\0+/a/**/b*c/";
		struct wq_fs_args fs_args = {
			.flags = n & 3, .events = n & 4 ? WQ_FS_ATTRIB : n & 8 ? ~0U : 0,
			.rules = (uintptr_t)rules, .rules_size = (n >> 4) % (sizeof(rules) + 1),
		};

		dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		fs_args.fd = dir;
		memcpy(t->image[KEYS], &fs_args, sizeof(fs_args));
		args.arg_size = sizeof(fs_args);
	} else if (args.op == WQ_SOURCE_ATTACH) {
		struct wq_net_args net_args = { .tables = n };

		memcpy(t->image[KEYS], &net_args, sizeof(net_args));
		args.arg_size = sizeof(net_args);
	} else if (args.op == WQ_SOURCE_LIST) {
		args.arg_size = 64;
	}
	if (args.arg_size) {
		s = place(t, KEYS, c->arg[A_KEYS], args.arg_size);
		args.arg = (uintptr_t)s.user;
	}
	ret = verb(t, WQ_IOC_SOURCE, &args, sizeof(args), true);
	if (dir >= 0)
		close(dir);
	if (args.op == WQ_SOURCE_LIST)
		leak_check(t, &s, s.len, "the text");
	else
		spot_check(t, &s, 0, "the struct of the kind");
	return ret < 0 ? ret : 0;
}

/* Add and touch, which have the same struct. */
__s32 do_recs(struct task *t, const struct call *c)
{
	struct wq_add args = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };
	struct spot recs, results, marks = {};
	bool add = c->op == OP_ADD;
	__u32 n;
	__s32 ret;

	recs_place(t, &args.keys, &recs);
	n = args.keys.count;
	args.results = results_place(t, n, &results);
	if (add)
		args.marks = array_place(t, MARKS, c->arg[A_MARKS], n, sizeof(struct wq_mark),
					 &marks);
	ret = verb(t, add ? WQ_IOC_ADD : WQ_IOC_TOUCH, &args, sizeof(args), true);
	spot_check(t, &recs, 0, "the keys");
	leak_check(t, &marks, marks.len, "the marks");
	if (plain(t)) {
		if (args.keys.count > n || (ret == 0 && args.keys.count != n))
			fault(t, "%u of %u keys handled", args.keys.count, n);
		results_check(t, &results, args.keys.count, n, ret);
		if (ret == 0)
			marks_check(t, &marks, args.keys.count);
	}
	return ret;
}

__s32 do_get(struct task *t, const struct call *c)
{
	struct spot out;
	struct wq_get args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.keys = out_place(t, &out),
		.timeout = timeout_pick(c),
		.deadline = deadline_pick(t, c),
	};
	const struct wq_get in = args;
	__s32 ret = verb(t, WQ_IOC_GET, &args, sizeof(args), true);

	if (plain(t)) {
		get_check(t, &out, &args.keys, &in.keys, ret);
		wait_check(t, args.timeout, args.deadline, in.timeout, in.deadline, ret);
	}
	return ret;
}

/* Reasons for as many keys as an array may have: none, good ones, bad ones, and bad addresses. */
static __u64 reasons_pick(__u8 how)
{
	static struct wq_reason_rec good[1024], bad[1024];

	for (size_t i = 0; i < ARRAY_SIZE(good) && !bad[i].len; i++) {
		good[i] = (struct wq_reason_rec){ .error = i % (WQ_MAX_ERROR + 1), .len = i % 65 };
		bad[i] = (struct wq_reason_rec){ .error = i % 2 ? ~0U : 0, .len = 65 };
	}
	switch (how) {
	case 0:
		return 0;
	case 1:
		return (uintptr_t)good;
	case 2:
		return (uintptr_t)bad;
	case 3:
		return (uintptr_t)good + 2;
	default:
		return 4;
	}
}

__s32 do_done(struct task *t, const struct call *c)
{
	struct wq_done args = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };
	struct spot recs, results, out = {};
	struct wq_keys in = {};
	__s32 ret;
	__u32 n;

	recs_place(t, &args.keys, &recs);
	n = args.keys.count;
	args.results = results_place(t, n, &results);
	args.reasons = reasons_pick(c->arg[A_REASONS]);
	if (args.flags & WQ_DONE_GET)
		args.next = in = out_place(t, &out);
	if (args.flags & WQ_DONE_GET || c->arg[A_TIMEOUT])
		args.timeout = timeout_pick(c);
	ret = verb(t, WQ_IOC_DONE, &args, sizeof(args), true);
	spot_check(t, &recs, 0, "the keys");
	if (plain(t)) {
		if (args.keys.count > n)
			fault(t, "%u of %u keys handled", args.keys.count, n);
		results_check(t, &results, args.keys.count, n, ret);
		if (args.flags & WQ_DONE_GET)
			get_check(t, &out, &args.next, &in, ret);
	}
	return ret;
}

/* The operation of a call on a key; with flags it may be another one, or an unknown one. */
static __u32 op_of(const struct call *c)
{
	static const __u32 ops[OPS] = {
		[OP_QUERY] = WQ_DO_QUERY, [OP_CANCEL] = WQ_DO_CANCEL, [OP_FORGET] = WQ_DO_FORGET,
		[OP_KICK] = WQ_DO_KICK, [OP_DISABLE] = WQ_DO_DISABLE,
	};

	/* Every second forget is a restore, whose state the flags choose, or a rest. */
	if (c->op == OP_FORGET && c->arg[A_KEY] % 2)
		return c->arg[A_KEY] % 4 == 1 ? WQ_DO_RESTORE : WQ_DO_REST;
	return ops[c->op] ^ PICK(flag_values, c->arg[A_FLAGS]);
}

#define INFO(field)	offsetof(struct wq_key_info, field)
#define RESERVED_COUNT	7	/* and the count */

__s32 do_key(struct task *t, const struct call *c)
{
	/* The field that is not 0, by the value of A_RESERVED. */
	static const __u8 info_fields[] = {
		0, INFO(state), INFO(num_requeues), INFO(failures), INFO(age), INFO(due),
		INFO(holder),
		INFO(lease), INFO(given_back), INFO(priority),
	};
	struct wq_key_op args = {
		.op = op_of(c),
		.key_len = PICK(key_lens, c->arg[A_LEN]),
	};
	struct spot key;
	__s32 ret;

	if (c->arg[A_RESERVED])
		*((__u8 *)&args.info + PICK(info_fields, c->arg[A_RESERVED])) = 1;
	if (c->arg[A_RESERVED] == RESERVED_COUNT)
		args.count = 1;
	/* A state, which can be one that no key has. */
	if (args.op == WQ_DO_RESTORE) {
		args.info.state |= (c->arg[A_FLAGS] * 37 ^ c->arg[A_RESERVED] * 5) & 0x1ff;
		args.info.failures |= !!(args.info.state & WQ_KEY_FAILED);
		args.info.reason_len = c->arg[A_KEY] % 80;
	}
	if (args.op == WQ_DO_REST && !c->arg[A_RESERVED])
		args.info.due = PICK(delays, c->arg[A_FLAGS]);
	key_fill((void *)t->image[KEYS], PICK(key_ids, c->arg[A_KEY]), args.key_len);
	key = place(t, KEYS, c->arg[A_KEYS], args.key_len);
	args.key = (uintptr_t)key.user;
	ret = verb(t, WQ_IOC_KEY, &args, sizeof(args), true);
	spot_check(t, &key, 0, "the key");
	/* A disable of a key that the queue does not know reports no state. */
	if (plain(t) && ret == 0 && args.op != WQ_DO_DISABLE && args.op != WQ_DO_RESTORE &&
	    args.op != WQ_DO_REST)
		info_check(t, &args.info, args.op == WQ_DO_LAST);
	return ret;
}

static __u64 cursor_pick(const struct task *t, __u8 how)
{
	const __u64 odd[] = {
		0, t->cursor, 1, ~0ULL, 1ULL << 63, 1ULL << 32, ~0U, t->cursor + 1,
	};

	return PICK(odd, how);
}

__s32 do_list(struct task *t, const struct call *c)
{
	static const __u32 info_sizes[] = {
		sizeof(struct wq_key_info), 0, WQ_MIN_INFO, sizeof(struct wq_key_info) + 8,
		WQ_MAX_INFO, WQ_MIN_INFO - 8, WQ_MAX_INFO + 8, sizeof(struct wq_key_info) + 1,
	};
	struct spot out;
	struct wq_list args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.keys = out_place(t, &out),
		.cursor = cursor_pick(t, c->arg[A_CURSOR]),
		.info_size = PICK(info_sizes, c->arg[A_CURSOR] / 16),
	};
	const struct wq_list in = args;
	__s32 ret = verb(t, WQ_IOC_LIST, &args, sizeof(args), true);

	if (plain(t)) {
		if (ret == 0 || ret == -EINTR)
			t->cursor = args.cursor;
		if (ret == 0)
			out_check(t, &out, &args.keys, in.keys.count,
				  in.info_size ? in.info_size : WQ_MIN_INFO,
				  in.flags & WQ_LIST_IDLE);
		else
			leak_check(t, &out, WQ_MAX_OUT, "the list");
		if (ret == -EINTR)
			args.cursor = in.cursor;
		if (ret)
			args_check(t, &args, &in, sizeof(in));
	}
	return ret;
}

/* Whether the program may lower a queue's max_keys below the number of its keys. */
static bool may_lower(void)
{
	for (__u32 i = 0; i < shared->prog.n; i++)
		if (shared->prog.call[i].op == OP_SET)
			return true;
	return false;
}

__s32 do_stat(struct task *t, const struct call *c)
{
	__u32 ready_by_priority[WQ_PRIORITIES];
	struct wq_stat st = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.ready_by_priority = (uintptr_t)ready_by_priority,
	};
	__s32 ret = verb(t, WQ_IOC_STAT, &st, sizeof(st), true);
	__u64 at_levels = 0;
	int i;

	if (ret || !plain(t))
		return ret;
	address_check(t, (char *)&st, offsetof(struct wq_stat, next_due), "the statistics");
	if (st.gets != st.processing + st.dones + st.given_back)
		fault(t, "gets %llu, processing %u, dones %llu, given back %llu",
		      (unsigned long long)st.gets, st.processing, (unsigned long long)st.dones,
		      (unsigned long long)st.given_back);
	if (st.depth < st.ready || st.depth > st.ready + st.processing)
		fault(t, "depth %u, ready %u, processing %u", st.depth, st.ready, st.processing);
	if (st.adds + st.given_back !=
	    st.gets + st.canceled + st.merged + st.given_back_failed + st.depth)
		fault(t, "adds %llu, back %llu and %llu, gets %llu, canceled %llu, merged %llu, depth %u",
		      (unsigned long long)st.adds, (unsigned long long)st.given_back,
		      (unsigned long long)st.given_back_failed, (unsigned long long)st.gets,
		      (unsigned long long)st.canceled, (unsigned long long)st.merged, st.depth);
	if (st.parked > st.keys || st.parked_dropped + st.parked > st.parked_total ||
	    (st.parked > st.max_parked && !may_lower()))
		fault(t, "parked %u of %u, in all %llu, dropped %llu", st.parked, st.max_parked,
		      (unsigned long long)st.parked_total,
		      (unsigned long long)st.parked_dropped);
	for (i = 0; i < WQ_PRIORITIES; i++)
		at_levels += ready_by_priority[i] == WQ_PRIORITY_UNUSED ? 0 : ready_by_priority[i];
	if (st.blocked > st.ready || st.ready_groups > st.ready || at_levels > st.ready ||
	    st.blocked != (__u64)st.blocked_by_group + st.blocked_by_ceiling + st.blocked_by_rate +
			  st.blocked_by_rest + st.blocked_by_group_rate)
		fault(t, "ready %u, blocked %u (%u, %u, %u, %u, %u), groups %u, of all levels %llu",
		      st.ready, st.blocked, st.blocked_by_group, st.blocked_by_ceiling,
		      st.blocked_by_rate, st.blocked_by_rest, st.blocked_by_group_rate,
		      st.ready_groups, (unsigned long long)at_levels);
	if (st.next_start < -1 || st.next_group < -1)
		fault(t, "next_start %lld, next_group %lld", (long long)st.next_start,
		      (long long)st.next_group);
	if (st.given_back_failed > st.given_back || st.slack < 0 || st.slack > WQ_MAX_SLACK)
		fault(t, "given back %llu, failed %llu, slack %lld",
		      (unsigned long long)st.given_back,
		      (unsigned long long)st.given_back_failed, (long long)st.slack);
	if (st.gets_resume < -1 || (st.gets_resume >= 0 && !(st.state & WQ_STATE_GETS_PAUSED)) ||
	    st.adds_resume < -1 || (st.adds_resume >= 0 && !(st.state & WQ_STATE_ADDS_PAUSED)) ||
	    (st.state & WQ_STATE_SHUTDOWN &&
	     st.state & (WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED)))
		fault(t, "state 0x%x, gets_resume %lld, adds_resume %lld", st.state,
		      (long long)st.gets_resume, (long long)st.adds_resume);
	if ((st.keys > st.max_keys && !may_lower()) || st.held > st.processing || st.retained > st.failed ||
	    st.failed > st.keys || st.expired > st.given_back || st.flags ||
	    st.ready > st.keys || st.processing > st.keys || st.delayed > st.keys)
		fault(t, "keys %u of %u: ready %u, processing %u, held %u, delayed %u, "
		      "failed %u, retained %u, expired %llu", st.keys, st.max_keys, st.ready,
		      st.processing, st.held, st.delayed, st.failed, st.retained,
		      (unsigned long long)st.expired);
	return ret;
}

__s32 do_info(struct task *t, const struct call *c)
{
	struct wq_info info = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };
	__s32 ret = verb(t, WQ_IOC_INFO, &info, sizeof(info), true);

	if (!ret && plain(t))
		address_check(t, (char *)&info, sizeof(info), "the struct");
	if (!ret && plain(t) && (info.version != WQ_API_VERSION || info.max_key != WQ_MAX_KEY))
		fault(t, "version %u, key %u", info.version, info.max_key);
	return ret;
}

__s32 do_unlink(struct task *t, const struct call *c)
{
	struct wq_attrs args = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };

	memcpy(args.name, PICK(names, c->arg[A_NAME]), sizeof(args.name));
	return verb(t, WQ_IOC_UNLINK, &args, sizeof(args), false);
}

__s32 do_shutdown(struct task *t, const struct call *c)
{
	struct wq_control args = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };

	if (c->arg[A_TIMEOUT])
		args.timeout = PICK(timeouts, c->arg[A_TIMEOUT]);
	return verb(t, WQ_IOC_SHUTDOWN, &args, sizeof(args), false);
}

static void config_check(struct task *t, const struct wq_attrs *args)
{
	__u32 unknown = args->set;

#define VALUE(name, ...)	unknown &= ~WQ_ATTR_##name;
#define OTHER(name, ...)	unknown &= ~WQ_ATTR_##name;
#include "../../module/state/attr_table.h"

	for (size_t i = 0; i < ARRAY_SIZE(attrs); i++) {
		const struct attr *a = &attrs[i];
		__s64 value = 0;

		memcpy(&value, (const char *)args + a->field, a->size);
		if (value ? value < a->min || value > a->max :
			    a->initial && a->orders & 1U << args->order)
			fault(t, "attribute 0x%x is %lld", a->bit, (long long)value);
	}
	if (unknown || args->mode > 0777 || !args->num_limiters ||
	    args->num_limiters > WQ_MAX_LIMITERS)
		fault(t, "set 0x%x, mode 0%o, %u limiters", args->set, args->mode,
		      args->num_limiters);
}

__s32 do_config(struct task *t, const struct call *c)
{
	struct wq_attrs args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.num_limiters = c->arg[A_COUNT] ? PICK(counts, c->arg[A_COUNT]) : WQ_MAX_LIMITERS,
	};
	__u32 room = args.num_limiters < WQ_MAX_LIMITERS ? args.num_limiters : WQ_MAX_LIMITERS;
	size_t each = sizeof(struct wq_limiter_spec), n;
	struct wq_attrs in;
	struct spot s;
	__s32 ret;

	memset(t->image[LIMITS], FILL, room * each);
	s = place(t, LIMITS, c->arg[A_LIMITS_AT], room * each);
	args.limiters = (uintptr_t)s.user;
	in = args;
	ret = verb(t, WQ_IOC_ATTRS, &args, sizeof(args), true);
	leak_check(t, &s, s.len, "the limiters");
	if (!plain(t))
		return ret;
	if (ret) {
		args_check(t, &args, &in, sizeof(in));
		return ret;
	}
	config_check(t, &args);
	n = args.num_limiters < room ? args.num_limiters : room;
	spot_check(t, &s, n * each, "the buffer behind the limiters");
	if (args.num_limiters > room || s.seen < n * each)
		return ret;
	memcpy(t->limiters, s.user, n * each);
	t->num_limiters = t->limiters[0].kind == WQ_LIMITER_OTHER ? 0 : n;
	return ret;
}

__s32 do_set(struct task *t, const struct call *c)
{
	struct wq_attrs args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.set = PICK(sets, c->arg[A_SET]),
		.mode = PICK(modes, c->arg[A_MODE]),
		.uid = PICK(uids, c->arg[A_UID]),
		.gid = PICK(uids, c->arg[A_UID]),
		.max_keys = c->arg[A_MAX_KEYS] ? PICK(max_keys_values, c->arg[A_MAX_KEYS]) : 16,
		.lease = PICK(leases, c->arg[A_LEASE]),
		.slack = c->arg[A_SLACK] ? PICK(slacks, c->arg[A_SLACK]) : WQ_DEFAULT_SLACK,
		.max_retries = PICK(retries_values, c->arg[A_RETRIES]),
	};
	struct spot s = limits_place(t, &args.num_limiters, (__u64 *)&args.limiters);
	__s32 ret;

	args.set |= attr_put(&args, c);
	ret = verb(t, WQ_IOC_ATTRS, &args, sizeof(args), false);
	spot_check(t, &s, 0, "the limiters");
	if (plain(t) && args.set == WQ_ATTR_LIMITER && limits_are_reported(t) && !args.flags &&
	    !c->arg[A_TWEAK] && (ret == -EINVAL || ret == -E2BIG || ret == -ERANGE))
		fault(t, "set does not accept the limiters that config reported: %s",
		      error_name(ret));
	return ret;
}

/* The file that a verb returned goes to a slot, for calls that are not for its kind. */
static void file_keep(const struct call *c, int fd)
{
	if (c->arg[A_FD2])
		slot_set(c->arg[A_FD2], fd);
	else
		close(fd);
}

/* A map, which is mapped in a way that succeeds or fails, and read. */
static void map_use(struct task *t, int fd, __u8 how)
{
	static const int prots[] = {
		PROT_READ, PROT_READ, PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE,
		PROT_READ | PROT_EXEC,
	};
	int prot = PICK(prots, how % 8), shared = how & 8 ? MAP_PRIVATE : MAP_SHARED;
	size_t len = how % 8 == 6 ? 2 * PAGE : PAGE;
	const volatile struct wq_map_page *map;

	map = mmap(NULL, len, prot, shared, fd, how % 8 == 7 ? PAGE : 0);
	if (map == MAP_FAILED)
		return;
	if (prot & PROT_WRITE || how % 8 >= 6)
		fault(t, "mmap of a map succeeded in way %u", how);
	if (!mprotect((void *)map, PAGE, PROT_READ | PROT_WRITE))
		fault(t, "a map became writable");
	if (how % 8 == 1)
		madvise((void *)map, PAGE, MADV_DONTNEED);
	if (prot & PROT_READ && map->reserved[how % 15])
		fault(t, "reserved fields of a map are not 0");
	munmap((void *)map, PAGE);
}

__s32 do_map(struct task *t, const struct call *c)
{
	struct wq_control args = { .flags = PICK(flag_values, c->arg[A_FLAGS]) };
	__s32 fd = verb(t, WQ_IOC_MAP, &args, sizeof(args), false);

	if (fd < 0)
		return fd;
	map_use(t, fd, c->arg[A_HOW]);
	file_keep(c, fd);
	return 0;
}

__s32 do_kick(struct task *t, const struct call *c)
{
	struct wq_key_op args = { .op = op_of(c) };
	struct spot key = {};
	__s32 ret;

	/* One key, or a number of keys, or both, which contradict each other. */
	if (c->arg[A_HOW] % 3) {
		args.key_len = PICK(key_lens, c->arg[A_LEN]);
		key_fill((void *)t->image[KEYS], PICK(key_ids, c->arg[A_KEY]), args.key_len);
		key = place(t, KEYS, c->arg[A_KEYS], args.key_len);
		args.key = (uintptr_t)key.user;
	}
	if (c->arg[A_HOW] % 3 != 1)
		args.count = c->arg[A_COUNT] > 5 ? ~0U : c->arg[A_COUNT];
	ret = verb(t, WQ_IOC_KEY, &args, sizeof(args), true);
	if (key.user)
		spot_check(t, &key, 0, "the key");
	return ret;
}

/* The key of a call, with a length that may be bad. */
static struct spot key_place(struct task *t, const struct call *c, __u32 *len)
{
	*len = PICK(key_lens, c->arg[A_LEN]);
	key_fill((void *)t->image[KEYS], PICK(key_ids, c->arg[A_KEY]), *len);
	return place(t, KEYS, c->arg[A_KEYS], *len);
}

/* The result of a wait, which may come later. */
static void wait_use(struct task *t, int fd)
{
	__u32 end = ~0U;
	ssize_t n;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	n = read(fd, &end, sizeof(end));
	if (n < 0 ? errno != EAGAIN : n != sizeof(end) || end > WQ_END_OF_QUEUE)
		fault(t, "read of a wait: %zd, result %u", n, end);
}

__s32 do_flush(struct task *t, const struct call *c)
{
	struct wq_wait args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.priority = PICK(levels, c->arg[A_LEVEL]),
	};
	struct spot key = {};
	__s32 fd;

	if (!(args.flags & WQ_WAIT_DRAIN) || c->arg[A_TIMEOUT]) {
		key = key_place(t, c, &args.key_len);
		args.key = (uintptr_t)key.user;
	}
	fd = verb(t, WQ_IOC_WAIT, &args, sizeof(args), false);
	if (key.user)
		spot_check(t, &key, 0, "the key");
	if (fd < 0)
		return fd;
	wait_use(t, fd);
	file_keep(c, fd);
	return 0;
}

__s32 do_pause(struct task *t, const struct call *c)
{
	struct wq_control args = {
		.flags = PICK(flag_values, c->arg[A_FLAGS]),
		.timeout = PICK(timeouts, c->arg[A_TIMEOUT]),
	};

	return verb(t, WQ_IOC_PAUSE, &args, sizeof(args), false);
}

/* The ways to read and write. */
enum { RW_PLAIN, RW_EMPTY_FIRST, RW_HERE, RW_NOWAIT, RW_AT, RW_VECTOR_AT, RW_DIRENTS };

/* In one piece, or in two halves behind an empty one at no address. */
static __s32 write_call(struct task *t, int fd, __u8 way, const struct iovec *v)
{
	switch (way) {
	case RW_PLAIN:
		return CALL(t, write(fd, v->iov_base, v->iov_len));
	case RW_HERE:
		return CALL(t, pwritev2(fd, v, 1, -1, 0));
	case RW_NOWAIT:
		return CALL(t, pwritev2(fd, v, 1, -1, RWF_NOWAIT));
	case RW_AT:
		return CALL(t, pwrite(fd, v->iov_base, v->iov_len, 0));
	case RW_VECTOR_AT:
		return CALL(t, pwritev(fd, v + 1, 3, 0));
	}
	return CALL(t, writev(fd, v + 1, 3));
}

static __s32 read_call(struct task *t, int fd, __u8 way, const struct iovec *v)
{
	switch (way) {
	case RW_PLAIN:
		return CALL(t, read(fd, v->iov_base, v->iov_len));
	case RW_HERE:
		return CALL(t, preadv2(fd, v, 1, -1, 0));
	case RW_NOWAIT:
		return CALL(t, preadv2(fd, v, 1, -1, RWF_NOWAIT));
	case RW_AT:
		return CALL(t, pread(fd, v->iov_base, v->iov_len, 0));
	case RW_VECTOR_AT:
		return CALL(t, preadv(fd, v + 1, 3, 0));
	case RW_DIRENTS:
		return CALL(t, syscall(SYS_getdents64, fd, v->iov_base, v->iov_len));
	}
	return CALL(t, readv(fd, v + 1, 3));
}

/* read and write, of one key if the file is bound to a queue. */
__s32 do_rw(struct task *t, const struct call *c)
{
	static const __u32 lens[] = { 16, 4, 64, 300, WQ_MAX_KEY, 0, WQ_MAX_KEY + 1, 9 };
	__u32 len = c->arg[A_LEN] ? PICK(key_lens, c->arg[A_LEN]) :
				    lens[c->arg[A_HOW] / 2 % ARRAY_SIZE(lens)];
	bool is_write = c->arg[A_HOW] % 2;
	__u8 way = c->arg[A_COUNT] ?: c->arg[A_KEY] % 4 == 3 ? RW_EMPTY_FIRST : RW_PLAIN;
	char *image = t->image[NEXT];
	int fd = slot_of(c, A_FD);
	struct iovec v[4];
	struct spot s;
	__s32 ret;

	if (is_write)
		key_fill((__u8 *)image, PICK(key_ids, c->arg[A_KEY]), len);
	else
		memset(image, FILL, len);
	s = place(t, NEXT, c->arg[A_NEXT], len);
	v[0] = (struct iovec){ s.user, len };
	v[1] = (struct iovec){ NULL, 0 };
	v[2] = (struct iovec){ s.user, len / 2 };
	v[3] = (struct iovec){ s.user + len / 2, len - len / 2 };
	if (is_write) {
		ret = write_call(t, fd, way, v);
		if (ret >= 0 && ret != (__s32)len)
			fault(t, "write of %u bytes returned %d", len, ret);
		return ret;
	}
	/* A call that must not be interrupted must not wait. */
	if (is_delicate(c) && way < RW_AT)
		way = RW_NOWAIT;
	ret = read_call(t, fd, way, v);
	if (ret > (__s32)len)
		fault(t, "read of %u bytes returned %d", len, ret);
	if (way == RW_DIRENTS)
		return ret;
	leak_check(t, &s, len, "the key");
	if (ret >= 0) {
		spot_check(t, &s, ret, "the buffer behind the key");
		if (s.user && ret && (size_t)ret <= s.seen)
			address_check(t, s.user, ret, "a key");
	}
	return ret;
}
