// SPDX-License-Identifier: GPL-2.0-only
/* wq: the ordering policies of the KUnit suites. */
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/string.h>

#include "policy.h"

static struct policy *called(void *order)
{
	struct policy *p = order;

	p->irqs_were_on |= !irqs_disabled();
	return p;
}

static struct policy *pushed(void *order, struct wq_entry *e)
{
	struct policy *p = called(order);
	const void *key;
	size_t len;
	u32 number;

	key = wq_entry_key(e, &len);
	p->no_key |= !key != !len;
	if (p->pushed_at) {
		memcpy(&number, key, sizeof(number));
		p->pushed_at[number] = ktime_get_ns();
	}
	p->pushes++;
	p->len++;
	return p;
}

static void count_touch(void *order, struct wq_entry *e)
{
	called(order)->touches++;
}

static void move_to_front(void *order, struct wq_entry *e)
{
	struct policy *p = called(order);

	p->touches++;
	list_move(&e->link, &p->list);
}

static void push_last(void *order, struct wq_entry *e)
{
	list_add_tail(&e->link, &pushed(order, e)->list);
}

static void push_first(void *order, struct wq_entry *e)
{
	list_add(&e->link, &pushed(order, e)->list);
}

static unsigned int count_keys(void *order)
{
	return called(order)->len;
}

static void remove_key(void *order, struct wq_entry *e)
{
	struct policy *p = called(order);

	p->removes++;
	p->len--;
	list_del(&e->link);
}

static struct wq_entry *pop_first(void *order)
{
	struct policy *p = called(order);
	struct wq_entry *e = list_first_entry_or_null(&p->list, struct wq_entry, link);

	p->pops++;
	if (!e) {
		p->popped_empty = true;
		return NULL;
	}
	p->len--;
	list_del(&e->link);
	return e;
}

/* The entry's node shares memory with the lease's list. */
static bool bytes_less(struct rb_node *a, const struct rb_node *b)
{
	const void *x, *y;
	size_t n, m;
	int cmp;

	x = wq_entry_key(rb_entry(a, struct wq_entry, node), &n);
	y = wq_entry_key(rb_entry(b, struct wq_entry, node), &m);
	cmp = memcmp(x, y, min(n, m));
	return cmp ? cmp < 0 : n < m;
}

static void tree_push(void *order, struct wq_entry *e)
{
	rb_add(&e->node, &pushed(order, e)->tree, bytes_less);
}

static void tree_remove(void *order, struct wq_entry *e)
{
	struct policy *p = called(order);

	p->removes++;
	p->len--;
	rb_erase(&e->node, &p->tree);
}

static struct wq_entry *tree_pop(void *order)
{
	struct policy *p = called(order);
	struct rb_node *first = rb_first(&p->tree);

	p->pops++;
	p->len--;
	rb_erase(first, &p->tree);
	return rb_entry(first, struct wq_entry, node);
}

static unsigned int limited_len(void *order)
{
	struct policy *p = called(order);

	return min(p->len, p->limit - p->out);
}

static unsigned int limited_blocked(void *order)
{
	return called(order)->len - limited_len(order);
}

static struct wq_entry *limited_peek(void *order)
{
	struct policy *p = called(order);

	p->bad |= !limited_len(order);
	p->peeks++;
	return list_first_entry(&p->list, struct wq_entry, link);
}

static struct wq_entry *limited_pop(void *order)
{
	struct policy *p = called(order);

	p->bad |= !limited_len(order);
	p->out++;
	return pop_first(order);
}

static void limited_release(void *order, struct wq_entry *e)
{
	struct policy *p = called(order);

	p->bad |= !p->out;
	p->out--;
	p->releases++;
}

const struct wq_policy_ops policy_fifo = {
	.touch = count_touch, .push = push_last, .len = count_keys, .pop = pop_first,
	.remove = remove_key,
};

const struct wq_policy_ops policy_lifo = {
	.touch = count_touch, .push = push_first, .len = count_keys, .pop = pop_first,
	.remove = remove_key,
};

const struct wq_policy_ops policy_touched_first = {
	.touch = move_to_front, .push = push_last, .len = count_keys, .pop = pop_first,
	.remove = remove_key,
};

const struct wq_policy_ops policy_by_bytes = {
	.touch = count_touch, .push = tree_push, .len = count_keys, .pop = tree_pop,
	.remove = tree_remove,
};

const struct wq_policy_ops policy_limited = {
	.push = push_last, .len = limited_len, .pop = limited_pop, .remove = remove_key,
	.peek = limited_peek, .release = limited_release, .blocked = limited_blocked,
};
