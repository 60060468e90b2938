// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verb of /dev/wq that lists keys, and groups that wait for a time.
 */
#include <linux/once.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/siphash.h>
#include <linux/time_namespace.h>

#include "dev/call.h"
#include "dev/verbs.h"
#include "state/state.h"
#include "verbs/key.h"

/* CLOCK_MONOTONIC of the caller's time namespace minus that of the host, ns. */
static s64 clock_offset(void)
{
	struct timespec64 ts = {};

	timens_add_monotonic(&ts);
	return timespec64_to_ns(&ts);
}

/* The entry at or behind *@place, as wq_walk().  With WQ_LIST_IDLE, it can be idle. */
static struct wq_entry *walk(struct wq_cs *cs, u32 flags, u64 *place)
{
	wq_assert_locked(cs);
	return flags & WQ_LIST_IDLE ? wq_table_next(&cs->q->table, place) : wq_walk(cs, place);
}

/* An entry whose delay a shut down dropped counts as unknown. */
static bool is_listed(struct wq_out *out, u32 flags, struct wq_entry *e)
{
	return wq_key_bits(out->c->q, out->c, e) ||
	       (flags & WQ_LIST_IDLE && wq_key_has_last(out->c->q, e));
}

/*
 * Append a record with the key of @e.  The struct wq_key_info of the caller can be shorter or
 * longer than that of the kernel.  Returns 0; -EMSGSIZE: there is no room.
 */
static int put_rec(struct wq_out *out, const struct wq_list_rec *rec, struct wq_entry *e)
{
	void *to = out->recs + out->used;

	if (out->count == out->max || e->len > wq_key_room(out->head, out->room - out->used))
		return -EMSGSIZE;
	memcpy(to, rec, min_t(u32, out->head, sizeof(*rec)));
	if (out->head > sizeof(*rec))
		memset(to + sizeof(*rec), 0, out->head - sizeof(*rec));
	out->used += wq_rec_set_key(to, out->head, e);
	out->count++;
	return 0;
}

/* list_batch() for groups. */
static int list_groups(struct wq_out *out, u64 *place)
{
	struct wq *q = out->c->q;
	struct wq_list_rec rec;
	struct wq_group_wait wait;
	struct wq_entry *e;
	struct wq_cs cs;
	int i, ret = 0;
	u64 next;

	wq_lock(&cs, q);
	for (i = 0; i < WQ_BATCH; i++, *place = next) {
		next = *place;
		e = wq_groups_next(q->policy_data, &next, &wait);
		if (e && wait.until) {
			rec = (struct wq_list_rec){ .len = e->len };
			rec.info.due = max_t(s64, 0, wait.until - wq_now(&cs));
			rec.info.lease = wait.rest ? max_t(s64, 0, wait.rest - wq_now(&cs)) : -1;
			rec.info.num_requeues = wait.tokens;
			ret = put_rec(out, &rec, e);
			if (ret)
				break;
		}
		if (!e) {
			*place = next;
			break;
		}
	}
	wq_unlock(&cs);
	return ret;
}

/*
 * Append keys from *@place on, WQ_BATCH at most, to @out.  Returns -EMSGSIZE if there is no room
 * for the next key; *@place is still that of the key then.
 */
static int list_batch(struct wq_out *out, u32 flags, u64 *place)
{
	s64 offset = clock_offset();
	struct wq *q = out->c->q;
	struct wq_list_rec rec;
	struct wq_entry *e;
	struct wq_cs cs;
	int i, ret = 0;
	u64 next;

	wq_lock(&cs, q);
	for (i = 0; i < WQ_BATCH; i++) {
		next = *place;
		e = walk(&cs, flags, &next);
		if (e && is_listed(out, flags, e)) {
			rec = (struct wq_list_rec){ .len = e->len };
			wq_key_info(&cs, out->c, e, &rec.info);
			if (flags & WQ_LIST_SINCE) {
				rec.info.age = wq_now(&cs) - rec.info.age + offset;
				if (e->state & ENTRY_REQUEUED)
					rec.info.state |= WQ_KEY_REQUEUED;
			}
			ret = put_rec(out, &rec, e);
			if (ret)
				break;
		}
		*place = next;
		if (!e)
			break;
	}
	wq_unlock(&cs);
	return ret;
}

/*
 * A place in the table contains the hash of a key, which must not leave the kernel: with it, keys
 * that collide can be chosen.  So a cursor is the place, encrypted by a Feistel network of four
 * rounds of SipHash.  0, the start and the end, remains 0.
 */
static u64 cursor_encrypt(u64 place, const siphash_key_t *key)
{
	u32 left = place >> 32, right = place;

	for (u32 i = 0; i < 4; i++) {
		swap(left, right);
		right ^= siphash_2u32(left, i, key);
	}
	return (u64)left << 32 | right;
}

static u64 cursor_decrypt(u64 cursor, const siphash_key_t *key)
{
	u32 left = cursor >> 32, right = cursor;

	for (u32 i = 4; i-- > 0;) {
		right ^= siphash_2u32(left, i, key);
		swap(left, right);
	}
	return (u64)left << 32 | right;
}

static const siphash_key_t *cursor_key(void)
{
	static siphash_key_t key __read_mostly;

	get_random_once(&key, sizeof(key));
	return &key;
}

static u64 cursor_of_place(u64 place)
{
	return cursor_encrypt(place, cursor_key()) ^ cursor_encrypt(0, cursor_key());
}

static u64 place_of_cursor(u64 cursor)
{
	return cursor_decrypt(cursor ^ cursor_encrypt(0, cursor_key()), cursor_key());
}

/* Bytes of a record ahead of its key, as the caller's header has them; 0: info_size is bad. */
static u32 head_of_list(const struct wq_list *args)
{
	u32 size = args->info_size ?: WQ_MIN_INFO;

	if (size % sizeof(u64) || size < WQ_MIN_INFO || size > WQ_MAX_INFO)
		return 0;
	return offsetof(struct wq_list_rec, info) + size;
}

int wq_verb_list(struct wq_call *call, void *arg)
{
	struct wq_list *args = arg;
	u32 head = head_of_list(args);
	u64 place = place_of_cursor(args->cursor);
	bool groups = args->flags == WQ_LIST_GROUPS;
	struct wq_out out __uninitialized;
	int ret;

	if ((args->flags & ~(WQ_LIST_SINCE | WQ_LIST_IDLE) && !groups) || args->reserved || !head)
		return -EINVAL;
	if (groups && !call->c->q->grouped)
		return -EOPNOTSUPP;
	ret = wq_out_init(&out, call, &args->keys, head) ?:
		wq_out_extend(&out);
	if (ret)
		return ret;

	do {
		ret = groups ? list_groups(&out, &place) : list_batch(&out, args->flags, &place);
		cond_resched();
	} while (!ret && place && !signal_pending(current));

	if (out.count)
		ret = 0;
	else if (!ret && place)
		ret = -ERESTARTNOHAND;	/* a signal is pending */
	if (!ret && copy_to_user(u64_to_user_ptr(args->keys.addr), out.recs, out.used))
		ret = -EFAULT;
	if (!ret) {
		args->keys.size = out.used;
		args->keys.count = out.count;
		args->cursor = cursor_of_place(place);
	} else if (ret == -ERESTARTNOHAND) {
		args->cursor = cursor_of_place(place);
		if (wq_call_copy_out(call, args))
			ret = -EFAULT;
	}
	wq_out_free(&out);
	return ret;
}
