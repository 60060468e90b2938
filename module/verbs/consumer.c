// SPDX-License-Identifier: GPL-2.0-only
/*
 * Consumers: the holders of keys.
 *
 * A consumer holds its entries in two lists: those in wq_consumer.again were given back before.
 * When it ends, it gives all of them back, WQ_BATCH in a hold of the lock.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "state/times.h"
#include "verbs/consumer.h"

void wq_consumer_init(struct wq_consumer *c, struct wq *q)
{
	INIT_LIST_HEAD(&c->held);
	INIT_LIST_HEAD(&c->again);
	refcount_set(&c->refs, 1);
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
EXPORT_SYMBOL_IF_KUNIT(wq_consumer_new);

/* Count an open file as a consumer of @q. */
void wq_consumer_bind(struct wq *q)
{
	struct wq_cs cs;

	wq_lock(&cs, q);
	q->nr_consumers++;
	wq_unlock(&cs);
}
EXPORT_SYMBOL_IF_KUNIT(wq_consumer_bind);

/* Give back up to WQ_BATCH keys of a consumer that ends.  Returns whether it holds no more. */
static bool give_back_some(struct wq_cs *cs, struct wq_consumer *c)
{
	int i;

	wq_assert_locked(cs);
	for (i = 0; i < WQ_BATCH && c->nr_held; i++)
		wq_lose_run(cs, list_empty(&c->again) ?
			    list_last_entry(&c->held, struct wq_entry, link) :
			    list_first_entry(&c->again, struct wq_entry, link),
			    WQ_LAST_GIVEN_BACK);
	return !c->nr_held;
}

/* The memory stays for the sources that count their ends in it: one can end beside its file. */
void wq_consumer_put(struct wq_consumer *c)
{
	if (refcount_dec_and_test(&c->refs))
		kfree(c);
}

/*
 * End a consumer, and give back its keys.  Keys whose run before was lost too come first, by the
 * rules of wq_lose_run().  The others go ahead of all keys or, see wq_requeue(), of their groups,
 * the last one first, so that they are handed out in the order of their gets.
 */
void wq_consumer_end(struct wq_consumer *c)
{
	struct wq *q = c->q;
	struct wq_cs cs;

	while (q) {
		wq_lock(&cs, q);
		if (give_back_some(&cs, c)) {
			q->nr_consumers--;
			/*
			 * Its threads may have been woken for keys or for times that have come,
			 * and died before they looked.
			 */
			if (c->polled) {
				wq_catch_up(&cs);
				cs.wakes.ready += wq_nr_available(&cs);
			}
			wq_unlock(&cs);
			break;
		}
		wq_unlock(&cs);
		cond_resched();
	}
	put_pid(c->pid);
	wq_consumer_put(c);
}
EXPORT_SYMBOL_IF_KUNIT(wq_consumer_end);
