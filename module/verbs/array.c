// SPDX-License-Identifier: GPL-2.0-only
/*
 * Verbs on arrays of keys: up to WQ_BATCH of them in one hold of the lock.
 */
#include "verbs/array.h"
#include "verbs/steps.h"

/*
 * Entries that follow each other in a list, to be moved to the end of another list as a whole.  An
 * array mostly has its keys in the order of a list.  To move them one by one takes longer, with the
 * checks of lists.
 */
struct wq_span {
	struct wq_entry *first;		/* NULL: there are none */
	struct wq_entry *last;
};

static void span_move(struct wq_span *s, struct list_head *to)
{
	if (s->first)
		list_bulk_move_tail(to, &s->first->link, &s->last->link);
	s->first = NULL;
}

/* Append an entry.  If it does not follow the last one, those before it move to @to. */
static void span_append(struct wq_span *s, struct wq_entry *e,
			struct list_head *to)
{
	if (!s->first || s->last->link.next != &e->link) {
		span_move(s, to);
		s->first = e;
	}
	s->last = e;
}

/* Adds without delay and flags, of keys whose entries are idle, until the queue is full. */
static unsigned int add_idle(struct wq_cs *cs, struct wq_batch *b, struct wq_op *ops,
			     unsigned int n)
{
	struct wq_peek peek = b->peek;
	struct wq_span span = {};
	struct wq *q = cs->q;
	unsigned int i;

	wq_assert_locked(cs);
	if (q->no_adds || q->policy || wq_nr_keys(q) >= q->max_keys)
		return 0;
	n = min(n, q->max_keys - wq_nr_keys(q) - 1);
	for (i = 0; i < n; i++, peek = WQ_SEEN_NOTHING) {
		struct wq_op *op = &ops[i];
		struct wq_entry *e;

		if (op->result < 0 || !wq_is_plain(op))
			break;
		e = wq_lookup_op(cs, op, &peek);
		if (!e || e->state != ENTRY_IDLE) {
			b->peek = (struct wq_peek){ e, q->table.seq };
			goto out;
		}
		wq_entry_set_state(e, ENTRY_DIRTY);
		if (q->timed)
			wq_times_of(e)->since = wq_now(cs);
		wq_trace_add(q, e, false);
		span_append(&span, e, &q->fifo);
		op->result = 1;
	}
	if (i)
		b->peek = WQ_SEEN_NOTHING;
out:
	span_move(&span, &q->fifo);
	q->nr_idle -= i;
	q->nr_fifo += i;
	q->adds += i;
	cs->wakes.ready += i;
	return i;
}

/*
 * Add up to WQ_BATCH keys, by the rules of wq_batch_apply().  Adds without the lock come first.
 * The first op that needs the lock, and all ops behind it, are in one critical section.
 */
unsigned int wq_add_ops(struct wq *q, struct wq_op *ops, unsigned int n, bool stop, gfp_t gfp)
{
	static const struct wq_batch_step step = {
		.apply = wq_batch_add_one,
		.frequent = add_idle,
		.inserts = true,
	};
	struct wq_batch b __uninitialized;
	unsigned int i;

	b.reclaimed = false;
	if (n > 1)
		wq_prefetch_keys(q, ops, n);
	for (i = 0; i < n; i++) {
		if (ops[i].result < 0 && stop)
			return i;
		if (ops[i].result < 0)
			continue;
		if (!wq_try_coalesce(q, ops[i].hash, ops[i].key, ops[i].len,
				     wq_is_plain(&ops[i]), &b.peek))
			break;
		ops[i].result = 0;
	}
	if (i == n)
		return n;
	b.q = q;
	b.c = NULL;
	b.ops = ops + i;
	b.n = n - i;
	b.stop = stop;
	b.gfp = gfp;
	return i + wq_batch_apply(&b, &step);
}
EXPORT_SYMBOL_IF_KUNIT(wq_add_ops);

static int done_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		    struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e;
	int ret;

	wq_assert_locked(cs);
	if (cs->q->leased) {
		ret = wq_lookup_leased(cs, b->c, op, &e);
		if (ret)
			return ret;
	} else {
		e = wq_lookup_run(cs, op);
	}
	return wq_entry_done(cs, b->c, e, op, pre, gfp);
}

/* Dones without an outcome, by token, of keys that need no other run and become idle. */
static unsigned int done_to_idle(struct wq_cs *cs, struct wq_batch *b, struct wq_op *ops,
				 unsigned int n)
{
	struct wq_consumer *c = b->c;
	struct wq_span span = {};
	struct wq *q = cs->q;
	unsigned int i;

	wq_assert_locked(cs);
	if (q->policy || q->releases || q->leased || c->read || q->nr_idle >= q->max_idle)
		return 0;
	n = min(n, q->max_idle - q->nr_idle);
	for (i = 0; i < n; i++) {
		struct wq_op *op = &ops[i];
		struct wq_entry *e;

		if (op->result < 0 || !wq_is_plain(op) || !wq_token_index(op->token) ||
		    op->len > WQ_MAX_IDLE_KEY)
			break;
		/* As wq_lookup_run(), which a token without an index would need. */
		e = wq_run_find(&q->runs, op->token);
		if (!e || !wq_key_equals(e, op->key, op->len))
			break;
		if (e->state != ENTRY_PROCESSING || e->failures || e->waited || e->disabled ||
		    e->given_back || wq_check_held(c, e, op->token))
			break;
		wq_count_done(cs, e, 0);
		wq_end_run(cs, e);
		wq_entry_set_state(e, ENTRY_IDLE);
		span_append(&span, e, &q->idle);
		op->result = 0;
	}
	if (!i)
		return 0;
	wq_running_del(q, c);
	span_move(&span, &q->idle);
	c->nr_held -= i;
	wq_running_add(q, c);
	q->nr_processing -= i;
	q->nr_idle += i;
	return i;
}

/* End the runs of up to WQ_BATCH keys, by the rules of wq_batch_apply(). */
unsigned int wq_done_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n,
			 bool stop, gfp_t gfp)
{
	static const struct wq_batch_step step = {
		.apply = done_one,
		.frequent = done_to_idle,
	};
	struct wq_batch b = { .q = q, .c = c, .ops = ops, .n = n, .stop = stop, .gfp = gfp };

	return wq_batch_apply(&b, &step);
}
EXPORT_SYMBOL_IF_KUNIT(wq_done_ops);

static int touch_one(struct wq_cs *cs, struct wq_batch *b, struct wq_op *op,
		     struct wq_prealloc *pre, gfp_t gfp)
{
	struct wq_entry *e;
	int ret = 0;

	wq_assert_locked(cs);
	if (cs->q->leased)
		ret = wq_lookup_leased(cs, b->c, op, &e);
	else
		e = wq_lookup_run(cs, op);
	if (ret)
		return ret;
	ret = wq_check_held(b->c, e, op->token);
	/* A key that was got while the queue had no leases has none to restart. */
	if (!ret && cs->q->leased && wq_lease_end(e) >= 0)
		wq_renew_lease(cs, e);
	return ret;
}

/* Restart the leases of up to WQ_BATCH keys, by the rules of wq_batch_apply(). */
unsigned int wq_touch_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops,
			  unsigned int n, bool stop)
{
	static const struct wq_batch_step step = { .apply = touch_one };
	struct wq_batch b = { .q = q, .c = c, .ops = ops, .n = n, .stop = stop, .gfp = GFP_NOWAIT };

	return wq_batch_apply(&b, &step);
}
EXPORT_SYMBOL_IF_KUNIT(wq_touch_ops);

/* Give back up to WQ_BATCH keys.  A key that @c does not hold with its token is skipped. */
void wq_give_back_ops(struct wq *q, struct wq_consumer *c, struct wq_op *ops, unsigned int n)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	/* An entry is requeued ahead of the ones requeued before, so start with the last. */
	while (n--) {
		struct wq_entry *e = wq_lookup_run(&cs, &ops[n]);

		if (!wq_check_held(c, e, ops[n].token))
			wq_give_back_entry(&cs, e);
	}
	wq_unlock(&cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_give_back_ops);

/*
 * Whether the last run of the next key was given back.  If a policy does not reveal the key, the
 * answer is no.
 */
bool wq_next_given_back(struct wq_cs *cs)
{
	struct wq_entry *e;

	wq_assert_locked(cs);
	if (wq_next_hidden(cs->q))
		return false;
	e = wq_next(cs->q);
	/* An array also ends ahead of keys that wq_get_behind() would have to look at. */
	return e && (e->given_back || wq_first_waits(cs->q));
}
EXPORT_SYMBOL_IF_KUNIT(wq_next_given_back);

/*
 * wq_get_entries() for entries at the head of wq.fifo, up to the first one that needs more than
 * this.  They move to the consumer's list as a whole, see struct wq_span.
 */
static unsigned int get_fifo(struct wq_cs *cs, struct wq_consumer *c,
			     const struct wq_want *want, struct wq_entry **es)
{
	struct wq *q = cs->q;
	bool small = q->table.count < WQ_SMALL_TABLE;
	u32 room = want->room, n = 0, size;
	struct wq_entry *e;
	LIST_HEAD(taken);

	wq_assert_locked(cs);
	if (q->policy || q->nr_requeued || q->gated)
		return 0;
	list_for_each_entry(e, &q->fifo, link) {
		size = wq_rec_bytes(want->head, e->len);
		if (n == want->max || size > room || e->given_back)
			break;
		if (!small && !list_is_last(&e->link, &q->fifo))
			wq_prefetch_next(q, list_next_entry(e, link));
		room -= size;
		wq_start_run(cs, c, e);
		wq_count_get(q, e);
		es[n++] = e;
	}
	if (!n)
		return 0;
	list_cut_before(&taken, &q->fifo, &e->link);
	list_splice_tail(&taken, &c->held);
	q->nr_fifo -= n;
	wq_count_held(cs, c, n);
	return n;
}

/**
 * wq_get_entries() - hand entries out to a consumer
 * @cs: the critical section
 * @c: the consumer
 * @want: how many, and what there is room for
 * @es: receives the entries
 *
 * A key whose last run was given back is taken alone: the key may be the reason, and the keys of
 * the same call would be given back with it again and again.
 *
 * Return: the number of entries; below 0: none, with the error of wq_get_one().
 */
int wq_get_entries(struct wq_cs *cs, struct wq_consumer *c, const struct wq_want *want,
		   struct wq_entry **es)
{
	u32 room = want->room, n = get_fifo(cs, c, want, es);
	bool first = want->first;
	int ret = 0;

	wq_assert_locked(cs);
	if (n)
		return n;
	while (n < want->max && (first || !wq_next_given_back(cs))) {
		ret = wq_get_one(cs, c, wq_key_room(want->head, room), first, &es[n]);
		if (ret)
			break;
		room -= wq_rec_bytes(want->head, es[n]->len);
		first = false;
		if (es[n++]->given_back)
			break;
	}
	return n ?: ret;
}
EXPORT_SYMBOL_IF_KUNIT(wq_get_entries);
