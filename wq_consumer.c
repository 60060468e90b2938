// SPDX-License-Identifier: GPL-2.0-only
/*
 * Consumers: the holders of keys.
 *
 * A consumer holds its entries in two lists.  When it ends, the entries in
 * wq_consumer.again, whose run before was given back too, are handled one by one, WQ_BATCH
 * in a hold.  All others are given back in constant time: wq_consumer.held is spliced to the
 * head of wq.requeued, and the consumer is marked dead.  The state of these entries is out
 * of date then, see wq_state.c.
 */
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "wq_consumer.h"
#include "wq_times.h"

void wq_consumer_init(struct wq_consumer *c, struct wq *q)
{
	INIT_LIST_HEAD(&c->held);
	INIT_LIST_HEAD(&c->again);
	c->q = q;
}

/* A consumer of the current process, without a queue yet. */
struct wq_consumer *wq_consumer_new(void)
{
	struct wq_consumer *c = kzalloc_obj(*c, GFP_KERNEL_ACCOUNT);

	if (c) {
		wq_consumer_init(c, NULL);
		c->pid = get_pid(task_tgid(current));
	}
	return c;
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_new);

/* Count an open file as a consumer of @q. */
void wq_consumer_bind(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	q->nr_consumers++;
	wq_unlock(&cs);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_bind);

/*
 * End up to WQ_BATCH runs of @c whose run before was lost too.  Returns whether no such run is
 * left.
 */
static bool wq_lose_again(struct wq_cs *cs, struct wq_consumer *c)
{
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH && !list_empty(&c->again); i++)
		wq_lose_run(cs, list_first_entry(&c->again, struct wq_entry, link));
	return list_empty(&c->again);
}

/*
 * End a consumer, and give back its keys.  Keys whose run before was lost too come first, by
 * the rules of wq_lose_run().  All others then go ahead of all keys at once, in the order of
 * their gets.
 */
void wq_consumer_end(struct wq_consumer *c)
{
	struct pid *pid = c->pid;
	struct wq *q = c->q;
	struct wq_cs cs;
	unsigned int n;

	if (!q) {
		put_pid(pid);
		kfree(c);
		return;
	}
	for (;;) {
		wq_lock(&cs, q);
		if (wq_lose_again(&cs, c))
			break;
		wq_unlock(&cs);
		cond_resched();
	}
	n = c->nr_held;
	wq_running_del(q, c);
	c->dead = true;
	c->pid = NULL;
	list_splice(&c->held, &q->requeued);
	q->nr_consumers--;
	q->starts -= c->starts;
	q->nr_processing -= n;
	q->nr_requeued += n;
	cs.nr_ready += n;
	q->given_back += n;
	q->merged += c->nr_dirty;
	if (n)
		trace_wq_give_back(q, NULL, n);
	/* Its process may have died between the wake-up of an exclusive poller and the get. */
	if (c->polled && wq_nr_available(q))
		cs.nr_ready++;
	wq_unlock(&cs);
	put_pid(pid);

	/* Otherwise wq_fixup_orphan() of its last entry frees it. */
	if (!n)
		kfree(c);
}
WQ_EXPORT_FOR_KUNIT(wq_consumer_end);
