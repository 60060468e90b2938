// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sleep of all waits, waits of gets, and poll.  base/wait_end.c ends waits for runs.  The head
 * of state/lock.c argues why no wake-up is lost.
 */
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "state/times.h"
#include "verbs/sleep.h"

/*
 * Wake a task that waits for a key.  From Linux 6.7 on, the wake-up of a frozen task succeeds, and
 * the task runs at its thaw.  That may be much later, and others run: the freezer of cgroup v1
 * freezes some tasks.  So such a wake-up goes to the next task, too.
 */
static int wake_getter(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	const struct task_struct *task = entry->private;
	int woken;

	/* When the task runs, it may exit at once, and RCU keeps its struct. */
	rcu_read_lock();
	woken = autoremove_wake_function(entry, mode, flags, key);
	/* If it thaws meanwhile, one task more than needed looks. */
	if (woken && READ_ONCE(task->__state) & TASK_FROZEN)
		woken = 0;
	rcu_read_unlock();
	return woken;
}

/**
 * wq_sleep() - sleep until something has happened
 * @head: what is woken when it may have happened
 * @how: the state of the sleeping task, and whether a wake-up is for one task
 * @deadline: as for all waits, see verbs/sleep.h; not 0
 * @look: looks whether it has happened, after the task has added itself to @head; returns -EAGAIN
 *	if it has not
 * @arg: argument of @look
 *
 * Return: the last result of @look if it is not -EAGAIN; else -ETIMEDOUT, or -ERESTARTSYS: a signal
 * ended the sleep.
 */
int wq_sleep(struct wait_queue_head *head, struct wq_sleep how, s64 deadline,
	     int (*look)(void *arg), void *arg)
{
	ktime_t expires = ns_to_ktime(deadline);
	bool expired = false;
	int ret;
	DEFINE_WAIT(wait);

	if (how.exclusive)
		wait.func = wake_getter;
	for (;;) {
		if (how.exclusive)
			prepare_to_wait_exclusive(head, &wait, how.state);
		else
			prepare_to_wait(head, &wait, how.state);
		ret = look(arg);
		if (ret != -EAGAIN)
			break;
		if (expired)
			ret = -ETIMEDOUT;
		else if (signal_pending_state(how.state, current))
			ret = -ERESTARTSYS;
		if (ret != -EAGAIN)
			break;
		expired = !schedule_hrtimeout_range(deadline == S64_MAX ? NULL : &expires,
						    current->timer_slack_ns, HRTIMER_MODE_ABS);
	}
	finish_wait(head, &wait);
	return ret;
}

/* A get of @c has found no key, and may wait.  Returns -EAGAIN or, if none comes, -ESHUTDOWN. */
int wq_found_none(struct wq_cs *cs, const struct wq_consumer *c)
{
	struct wq *q = cs->q;

	wq_assert_locked(cs);
	wq_watch_starts(q);
	return q->shut && !wq_waits_for_others(q, c) && !wq_nr_ready(q) ? -ESHUTDOWN : -EAGAIN;
}

struct wq_get_wait {
	struct wq *q;
	const struct wq_consumer *c;
	int (*get)(struct wq_cs *cs, void *arg);
	void *arg;
};

/* -EAGAIN, or why a get waits in vain, see the head of state/lock.c.  @c: NULL or its consumer */
static int look_in_vain(struct wq *q, const struct wq_consumer *c)
{
	struct wq_cs cs;
	u8 watched;
	int ret;

	if (!c || !c->pid)
		return -EAGAIN;
	/* Holds of the lock change other bits at any time. */
	watched = data_race(READ_ONCE(q->watched));
	/* Each of these is set before the getters are woken, which look once more. */
	if (!(watched & (WQ_WATCH_UNLINKED | WQ_WATCH_ENDED)))
		return -EAGAIN;
	wq_lock(&cs, q);
	ret = wq_in_vain(q, c);
	wq_unlock(&cs);
	return ret ?: -EAGAIN;
}

/*
 * A get has found no key.  Groups whose rest ends without keys make none ready, so more of them
 * than a hold handles can hide a key that is due.  A get that is to wait handles @all of them.
 * Returns whether to look again.
 */
bool wq_look_behind_groups(struct wq *q, bool all)
{
	/* Holds of the lock change other bits at any time.  An old value is one of a moment ago. */
	if (!(data_race(READ_ONCE(q->watched)) & WQ_WATCH_GROUPS))
		return false;
	while (wq_catch_up_some(q) && all && !signal_pending(current))
		;
	return true;
}

static int try_get(struct wq *q, const struct wq_consumer *c, bool all,
		   int (*get)(struct wq_cs *cs, void *arg), void *arg)
{
	int ret = wq_try_get(q, c, get, arg);

	if (ret == -EAGAIN && wq_look_behind_groups(q, all))
		ret = wq_try_get(q, c, get, arg);
	return ret;
}

static int get_look(void *arg)
{
	const struct wq_get_wait *g = arg;
	int ret;

	/* The signal may end or stop the task, so it takes no key. */
	if (signal_pending(current))
		return -ERESTARTSYS;
	ret = try_get(g->q, g->c, true, g->get, g->arg);
	return ret == -EAGAIN ? look_in_vain(g->q, g->c) : ret;
}

/*
 * Whether a get of @c freezes.  A process must not keep the machine from suspending, nor notice
 * that it was suspended.  NULL: a thread of a controller.
 */
static bool get_freezes(const struct wq *q, const struct wq_consumer *c)
{
	return c ? !!c->pid : q->freezable;
}

int wq_get_slow(struct wq *q, const struct wq_consumer *c, s64 deadline,
		       int (*get)(struct wq_cs *cs, void *arg), void *arg)
{
	struct wq_get_wait g = { .q = q, .c = c, .get = get, .arg = arg };
	struct wq_sleep how = {
		.state = TASK_INTERRUPTIBLE | (get_freezes(q, c) ? TASK_FREEZABLE : 0),
		.exclusive = true,
	};
	struct wq_cs cs;
	int ret;

	ret = wq_sleep(&q->getters, how, deadline, get_look, &g);

	/*
	 * A waker may have chosen this getter after its last look.  So this getter tries once more
	 * in spite of the timeout.  After a signal it takes no key, but handles times that have
	 * come, as the timer may have chosen it.  If keys are ready after that, this getter wakes
	 * the next one.
	 */
	if (ret == -ETIMEDOUT) {
		int last = wq_try_get(q, c, get, arg);

		if (last != -EAGAIN)
			ret = last;
	}
	if (ret == -ERESTARTSYS) {
		wq_lock(&cs, q);
		wq_catch_up(&cs);
		wq_unlock(&cs);
	}
	wq_pass_on(q, 1);
	return ret;
}

struct wq_fence_wait {
	struct wq *q;
	const struct wq_fence *f;
};

static int fence_look(void *arg)
{
	const struct wq_fence_wait *w = arg;
	int ret = wq_fence_result(w->f);

	if (ret != WQ_NOT_ENDED)
		return ret;
	/* If more times have come, the timer wakes wq.overdue once more. */
	wq_catch_up_some(w->q);
	ret = wq_fence_result(w->f);
	return ret == WQ_NOT_ENDED ? -EAGAIN : ret;
}

/**
 * wq_fence_sleep() - wait until that has ended for which a fence stands
 * @q: the queue
 * @f: the fence, to which the caller has a reference
 * @how: how the task sleeps
 * @deadline: as for all waits, see verbs/sleep.h
 *
 * In a queue of a process a run can end by a lease that expires, for which no thread looks: the
 * timer wakes wq.overdue, and this task handles the times.
 *
 * Return: WQ_END_*; -EAGAIN: @deadline is 0; -ETIMEDOUT; -ERESTARTSYS.
 */
int wq_fence_sleep(struct wq *q, struct wq_fence *f, struct wq_sleep how, s64 deadline)
{
	struct wq_fence_wait w = { .q = q, .f = f };
	wait_queue_entry_t entry;
	int ret;

	if (!deadline)
		return fence_look(&w);
	init_waitqueue_entry(&entry, current);
	add_wait_queue(&q->overdue, &entry);
	ret = wq_sleep(&f->waiters, how, deadline, fence_look, &w);
	remove_wait_queue(&q->overdue, &entry);
	return ret;
}

/* Whether that has ended for which a fence stands, for poll. */
bool wq_fence_poll(struct wq *q, struct wq_fence *f, struct file *file, poll_table *wait)
{
	struct wq_fence_wait w = { .q = q, .f = f };

	/* The poller is added before the look at the result, see wq_fences_wake(). */
	poll_wait(file, &f->waiters, wait);
	poll_wait(file, &q->overdue, wait);
	return fence_look(&w) != -EAGAIN;
}

/**
 * wq_get_wait() - wait for keys
 * @q: the queue
 * @c: the consumer; NULL: the caller knows that it holds no key
 * @deadline: as for all waits, see verbs/sleep.h
 * @get: called in a critical section until it returns something else than -EAGAIN
 * @arg: argument of @get
 *
 * Return: the result of @get, or an error of wq_get().
 */
int wq_get_wait(struct wq *q, const struct wq_consumer *c, s64 deadline,
		int (*get)(struct wq_cs *cs, void *arg), void *arg)
{
	int ret = try_get(q, c, false, get, arg);

	return ret != -EAGAIN || !deadline ? ret : wq_get_slow(q, c, deadline, get, arg);
}
EXPORT_SYMBOL_IF_KUNIT(wq_get_wait);

/* Whether a read, which first ends the run of the last key, makes that key ready. */
static bool read_is_dirty(const struct wq_consumer *c)
{
	return c->read && c->read->state & ENTRY_DIRTY;
}

static bool read_waits(const struct wq *q, const struct wq_consumer *c)
{
	return q->grouped && wq_group_waits(wq_groups_of(q->policy_data, c->read));
}

/*
 * Whether a key may be available to a read only because it first ends the run of the last key:
 * that one if it is dirty, or a blocked one.  Above a ceiling that was lowered, it makes no room,
 * without a token the key does not start, and a key whose group waits for a time waits with it.
 */
static bool read_makes_ready(struct wq_cs *cs, const struct wq_consumer *c)
{
	struct wq *q = cs->q;
	s64 now = wq_start_time(cs);

	wq_assert_locked(cs);
	return c->read && ((read_is_dirty(c) && !read_waits(q, c)) ||
			   wq_nr_blocked(q, now) > wq_blocked_by_time(q)) &&
	       wq_can_start(q, q->nr_processing - 1, now);
}

/* The events that poll reports to consumer @c. */
__poll_t wq_poll_mask(struct wq *q, struct wq_consumer *c)
{
	__poll_t mask = 0;
	struct wq_cs cs;

	wq_look_behind_groups(q, false);
	wq_lock(&cs, q);
	if (!c->polled) {
		c->polled = true;
		q->polled_reads += !!c->read;
	}
	wq_catch_up(&cs);
	/* If its group has no token, the read has to wait for the next one. */
	if (c->read)
		cs.wakes.ready += wq_settle(&cs, c->read);
	wq_watch_starts(q);
	if (wq_nr_available(&cs) || read_makes_ready(&cs, c))
		mask |= wq_gets_paused(q) ? 0 : EPOLLIN | EPOLLRDNORM;
	else if (q->shut && !wq_waits_for_others(q, c) && !wq_nr_ready(q) && !read_is_dirty(c))
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	if (wq_in_vain(q, c))
		mask |= EPOLLPRI;
	if (!q->shut) {
		if (wq_has_bytes(&cs) && wq_has_room(q))
			mask |= EPOLLOUT | EPOLLWRNORM;
		else
			q->watched |= WQ_WATCH_ROOM;
	}
	wq_unlock(&cs);
	return mask;
}
EXPORT_SYMBOL_IF_KUNIT(wq_poll_mask);

/*
 * wq_poll_mask() for a poller that waits for room.  If the bytes of the queue's user are used up,
 * the first such poll takes back what the user's queues can do without, as an add does.  May sleep.
 */
__poll_t wq_poll_room(struct wq *q, struct wq_consumer *c)
{
	/* An old value leads to one attempt more, or leaves it to the wake-up. */
	bool awaited = !data_race(list_empty(&q->lacks_bytes.entry));
	__poll_t mask = wq_poll_mask(q, c);
	const struct wq_user *user = NULL;
	struct wq_cs cs;

	if (mask & EPOLLOUT || awaited)
		return mask;
	wq_lock(&cs, q);
	if (!q->no_adds && wq_nr_keys(q) < q->max_keys && wq_lacks_bytes(q))
		user = q->user;
	wq_unlock(&cs);
	if (!user)
		return mask;
	wq_user_reclaim(user);
	return wq_poll_mask(q, c);
}
