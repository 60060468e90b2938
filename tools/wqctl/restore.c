// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl restore: make queues and their keys again from a snapshot, see format.h.
 *
 * The whole snapshot is checked before anything changes.  Then all queues that do not exist are
 * made, so that no user can take a name while the keys of others are entered.  Then each queue is
 * filled by itself, in the order of turn.h: if that fails, it is named, and the others are filled.
 *
 * The states of a queue, by what its file shows:
 *
 *	no file				nothing is restored
 *	MODE_UNFINISHED			none or some of its keys are there; it is paused
 *	the mode of the snapshot	all is there
 *
 * The mode is changed last, so a restore that was killed goes on where it stopped, with all
 * attributes.  Until then only the queue's owner and the restore's user can open the queue.  The
 * pause ends by itself if wqctl is killed.
 * A queue with another owner, group or mode than the snapshot's is left alone: its keys would be
 * given to others.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attr.h"
#include "look.h"
#include "restore.h"
#include "turn.h"

/* Keys between two looks at the time. */
#define PAGE	512

/* How long a queue that was made is paused if nothing fills it. */
#define MADE_TIME	(600 * NSEC_PER_SEC)

/**
 * struct target - a queue that is filled
 * @q: its descriptor
 * @own: this restore, or one that was killed, has made it
 * @created: this restore has made it
 * @has_file: it has a file in wqueue, so that it can have MODE_UNFINISHED
 * @hold: its pause, if it is @own
 * @cfg: its attributes
 * @rests: the groups that rested before a merge
 * @no_room: how many groups of the snapshot can't rest, as too many rest
 */
struct target {
	int q;
	bool own, created, has_file, priorities;
	struct hold hold;
	struct wq_attrs cfg;
	struct groups rests;
	uint32_t no_room;
};

/* Messages */

static int no_queue(const struct restore *r, const struct part *p, const struct snapshot_queue *q,
		    const char *what)
{
	struct args one = { .command = "restore", .queue = q->name, .fd = -1 };

	if (errno == ENOSPC) {
		message("can't restore '%s': line %zu: can't %s the queue '%s': it has max_keys keys, or its owner's queues would exceed a limit; compare wqctl stat %s%s and wqctl info, and raise the limit: wqctl set -n, or /sys/module/wq/parameters",
			r->s.path, p->line, what, q->name, end_of_options(q->name), q->name);
		return FAILED;
	}
	/* The name was checked. */
	if (errno == EINVAL || errno == ERANGE || errno == E2BIG) {
		message("can't restore '%s': line %zu: can't %s the queue '%s': this kernel's wq refuses its attributes: %s; create the queue with other attributes, and add the keys with --merge: wqctl create %s%s",
			r->s.path, p->line, what, q->name, strerror(errno),
			end_of_options(q->name), q->name);
		return FAILED;
	}
	complain(&one, "can't restore '%s': line %zu: can't %s the queue '%s'", r->s.path, p->line,
		 what, q->name);
	return FAILED;
}

static int not_restored(const struct restore *r, const struct part *p,
			const struct snapshot_queue *q)
{
	if (r->s.wrong)
		message("can't restore '%s': line %zu: %s", r->s.path, r->s.line, r->s.wrong);
	else if (errno == EIDRM)
		message("can't restore '%s': line %zu: the queue '%s' was removed meanwhile; try again with --merge",
			r->s.path, p->line, q->name);
	else if (errno == EINVAL || errno == ERANGE)
		message("can't restore '%s': line %zu: the kernel refuses it for the queue '%s': %s",
			r->s.path, r->s.line, q->name, strerror(errno));
	else
		return no_queue(r, p, q, "fill");
	return FAILED;
}

/* Keys */

/* A key that the queue knows already is added as a producer would. */
static int merge_key(int q, const struct parsed *k)
{
	const struct wq_key_info *i = &k->info;
	int ret = 0;

	if (i->state & (WQ_KEY_PROCESSING | WQ_KEY_READY | WQ_KEY_DIRTY))
		ret = wq_add_priority(q, k->key, k->len, i->priority, 0, 0);
	if (ret >= 0 && i->state & WQ_KEY_DELAYED)
		ret = wq_add_priority(q, k->key, k->len, i->priority, i->due, 0);
	/* While adds are paused, a key that waits for a run already needs no add. */
	if (ret < 0 && errno == EHOSTDOWN) {
		ret = wq_query(q, k->key, k->len);
		if (ret >= 0 && !(ret & (WQ_KEY_DIRTY | WQ_KEY_DELAYED)))
			ret = -1;
		errno = EHOSTDOWN;
	}
	/* A disabled key stays disabled. */
	return ret < 0 && errno != EBUSY ? -1 : 0;
}

/* The pause is to keep consumers away, and ends early if the owner wants that. */
static int renew_hold(struct target *t)
{
	struct wq_stat st;

	if (!t->own || !t->hold.what || !hold_renew(&t->hold))
		return 0;
	if (errno != ESTALE || wq_stat(t->q, &st))
		return -1;
	if (st.state & WQ_STATE_UNLINKED) {
		errno = EIDRM;
		return -1;
	}
	return hold_begin(&t->hold, t->q, &st);
}

/* Let a group rest.  Its keys matter more, so they are restored if it can't. */
static int restore_rest(struct target *t, const struct parsed *k)
{
	/* A merge can be into a queue without groups, and keeps the longer rest. */
	if (!t->own && (!has_groups(&t->cfg) ||
			groups_wait(&t->rests, &t->cfg, k->key, k->len).rest >= k->info.due))
		return 0;
	if (!wq_rest_group(t->q, k->key, k->len, k->info.due))
		return 0;
	if (errno != ENOSPC)
		return -1;
	t->no_room++;
	return 0;
}

/* Enter a key.  A queue that was shut down takes no key, but may have this one. */
static int restore_key(struct target *t, const struct parsed *k)
{
	if (k->info.state & SNAPSHOT_RESTS)
		return restore_rest(t, k);
	if (!wq_restore(t->q, k->key, k->len, &k->info))
		return 0;
	/* An earlier restore has entered it. */
	if (errno == EEXIST && t->own)
		return 0;
	if (errno == EEXIST)
		return merge_key(t->q, k);
	if (errno != ESHUTDOWN || wq_query(t->q, k->key, k->len) >= 0)
		return errno == ESHUTDOWN ? 0 : -1;
	errno = ESHUTDOWN;
	return -1;
}

static int restore_keys(struct restore *r, const struct snapshot_queue *sq, const struct part *p,
			struct target *t)
{
	struct parsed k;
	uint32_t i;

	for (i = 0; i < p->keys; i++) {
		if (!snapshot_key(&r->s, &k))
			return -1;
		if (!t->priorities)
			k.info.priority = 0;
		if (restore_key(t, &k))
			return -1;
		if (i % PAGE)
			continue;
		if (renew_hold(t))
			return -1;
		progress("%s: %u of %u keys restored", sq->name, i, p->keys);
	}
	if (t->no_room)
		message("%u of the groups of the queue '%s' can't rest again: " NO_MORE_RESTS,
			t->no_room, sq->name);
	return 0;
}

/* Queues */

/*
 * Before the keys: the owner, whose processes can't open the queue otherwise, and a lease or a
 * max_defer of 0.  A new queue can have them only if it is made with one, so it has the shortest
 * until then.
 */
static int begin_attrs(const struct snapshot_queue *sq, int q)
{
	struct wq_attrs none = {
		.set = (sq->attrs.lease ? 0 : sq->attrs.set & WQ_ATTR_LEASE) |
		       (sq->attrs.max_defer ? 0 : sq->attrs.set & WQ_ATTR_MAX_DEFER),
	}, file = sq->attrs, is;

	if (none.set && wq_set_attrs(q, &none))
		return -1;
	if (wq_attrs(q, &is, NULL, 0))
		return -1;
	file.set = 0;
	if (is.uid != file.uid && sq->attrs.set & WQ_ATTR_UID)
		file.set |= WQ_ATTR_UID;
	if (is.gid != file.gid && sq->attrs.set & WQ_ATTR_GID)
		file.set |= WQ_ATTR_GID;
	return file.set ? attr_set_file(q, &file) : 0;
}

/* The attributes that a new queue can't have at first. */
static int finish_attrs(const struct snapshot_queue *sq, int q)
{
	struct wq_attrs attrs = sq->attrs, is;

	if (wq_attrs(q, &is, NULL, 0))
		return -1;
	attrs.set = 0;
	if (sq->attrs.set & WQ_ATTR_MAX_KEYS && is.max_keys != attrs.max_keys)
		attrs.set |= WQ_ATTR_MAX_KEYS;
	attrs.limiters = attrs.num_limiters = 0;
	return attrs.set ? wq_set_attrs(q, &attrs) : 0;
}

/* Begin the pauses of the snapshot, and shut down as it was. */
static int finish_state(const struct snapshot_queue *sq, struct target *t)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (sq->paused[i] && wq_pause(t->q, 1U << i, sq->paused[i]))
			return -1;
	t->hold.what = (sq->paused[0] ? 0 : WQ_PAUSE_GETS) | (sq->paused[1] ? 0 : WQ_PAUSE_ADDS);
	if (!sq->shut)
		return 0;
	t->hold.what = 0;
	return sq->draining ? wq_drain_begin(t->q) : wq_shutdown(t->q);
}

/* All is there: the mode shows it. */
static int finish(const struct snapshot_queue *sq, struct target *t)
{
	struct wq_attrs mode = { .set = WQ_ATTR_MODE, .mode = sq->attrs.mode };
	struct wq_stat st;

	if (wq_stat(t->q, &st))
		return -1;
	if (st.state & WQ_STATE_UNLINKED) {
		errno = EIDRM;
		return -1;
	}
	if (!(st.state & WQ_STATE_SHUTDOWN) && (finish_attrs(sq, t->q) || finish_state(sq, t)))
		return -1;
	if (t->has_file && attr_set_file(t->q, &mode))
		return -1;
	/* If that fails, the owner has ended the pause, or it ends by itself. */
	if (t->hold.what)
		hold_end(&t->hold);
	return 0;
}

static int fill(struct restore *r, const struct snapshot_queue *sq, const struct part *p,
		struct target *t)
{
	struct wq_stat st;
	int ret = 0;

	if (wq_stat(t->q, &st) || wq_attrs(t->q, &t->cfg, NULL, 0))
		return -1;
	t->priorities = has_priorities(&t->cfg);
	if (!t->own) {
		if (st.resting_groups && !groups_add_waits(t->q, &t->rests, &t->cfg))
			ret = -1;
		ret = ret ?: restore_keys(r, sq, p, t);
		groups_free(&t->rests);
		return ret;
	}
	/* A restore that was killed right before its end. */
	if (st.state & WQ_STATE_SHUTDOWN)
		return finish(sq, t);
	/* finish_state() begins the pauses of the snapshot, so none from before matters. */
	st.state &= ~(WQ_STATE_GETS_PAUSED | WQ_STATE_ADDS_PAUSED);
	return hold_begin(&t->hold, t->q, &st) || begin_attrs(sq, t->q) ||
	       restore_keys(r, sq, p, t) || finish(sq, t) ? -1 : 0;
}

/* Whether the queue has a file in wqueue, and so a mode that can be changed. */
static bool has_file(const char *name)
{
	return strchr(name, '/') || is_wqueue(names_dir());
}

/* Create a queue that has room for all keys. */
static int create_queue(struct snapshot_queue *sq, const struct part *p, struct target *t)
{
	struct wq_attrs attrs = sq->attrs;

	attrs.set = attrs.uid = attrs.gid = 0;
	attrs.limiters = (uintptr_t)sq->specs;
	attrs.flags = sq->no_map ? WQ_OPEN_NO_MAP : 0;
	/* It may have had more after a change. */
	if (attrs.max_keys < p->keys)
		attrs.max_keys = p->keys;
	if (sq->attrs.set & WQ_ATTR_LEASE && !attrs.lease)
		attrs.lease = WQ_MIN_LEASE;
	if (sq->attrs.set & WQ_ATTR_MAX_DEFER && !attrs.max_defer)
		attrs.max_defer = 1;
	t->q = wq_open_attr(sq->name, O_RDWR | O_CREAT | O_EXCL,
			    t->has_file ? MODE_UNFINISHED : sq->attrs.mode, &attrs);
	t->own = t->created = t->q >= 0;
	return t->q < 0 ? -1 : 0;
}

static uint32_t owner_of(const struct snapshot_queue *sq)
{
	return sq->attrs.set & WQ_ATTR_UID ? sq->attrs.uid : geteuid();
}

/*
 * Whether a restore, which may have been killed, has made the queue.  It gets its owner before its
 * keys, so a queue of the restore's user that has keys is not given to another user.
 */
static bool is_unfinished(const struct snapshot_queue *sq, const struct wq_stat *st)
{
	return (st->mode & 07777) == MODE_UNFINISHED &&
	       (st->uid == owner_of(sq) || (st->uid == geteuid() && !st->keys));
}

/*
 * Whether the keys may get into a queue that exists.  A save that found the queue unfinished does
 * not know its mode.  If that queue has no keys, its owner may still have been the restore's user.
 */
static bool is_expected(const struct restore *r, const struct part *p,
			const struct snapshot_queue *sq, const struct wq_stat *st)
{
	uint32_t uid = owner_of(sq);
	uint32_t gid = sq->attrs.set & WQ_ATTR_GID ? sq->attrs.gid : st->gid;

	if (sq->attrs.mode == MODE_UNFINISHED &&
	    (p->keys ? st->uid == uid && st->gid == gid : st->uid == uid || uid == geteuid()))
		return true;
	if (st->uid != uid)
		message("can't restore '%s': line %zu: the queue '%s' exists and belongs to user %u, not %u as in the snapshot, so that user would get the keys; remove the queue, and try again: wqctl unlink %s%s",
			r->s.path, p->line, sq->name, st->uid, uid, end_of_options(sq->name), sq->name);
	else if (st->gid != gid || (st->mode & 07777) != sq->attrs.mode)
		message("can't restore '%s': line %zu: the queue '%s' exists with group %u and mode %04o, not group %u and mode %04o as in the snapshot, so others may get the keys; change the queue, and try again: wqctl set --group %u -m %04o %s%s",
			r->s.path, p->line, sq->name, st->gid, st->mode & 07777, gid,
			sq->attrs.mode, gid, sq->attrs.mode, end_of_options(sq->name), sq->name);
	else
		return true;
	return false;
}

/*
 * Remove a queue that was made and can't be filled.  It still belongs to the restore's user, so no
 * other queue has its name.
 */
static void remove_made(const struct part *p)
{
	int err = errno;

	if (p->made)
		wq_unlink(p->name);
	errno = err;
}

/* Open a queue, if it exists, to fill it, to go on with it or to merge into it. */
static int open_queue(const struct restore *r, const struct part *p,
		      const struct snapshot_queue *sq, struct target *t)
{
	struct wq_stat st;

	t->q = wq_open(sq->name, O_RDWR, 0, 0);
	if (t->q < 0 && errno == ENOENT)
		return DONE;
	if (t->q < 0) {
		remove_made(p);
		return no_queue(r, p, sq, "open");
	}
	if (wq_stat(t->q, &st))
		return no_queue(r, p, sq, "read the statistics of");
	t->own = t->has_file && is_unfinished(sq, &st);
	t->created = t->own && p->made;
	if (t->own || (r->merge && is_expected(r, p, sq, &st)))
		return DONE;
	errno = EEXIST;
	return r->merge ? FAILED : no_queue(r, p, sq, "create");
}

/*
 * Remove a queue that was made in vain, unless its name is another one's by now.  Its owner could
 * replace it after the look at it, so the owner is the restore's user again before that.
 */
static void remove_created(const struct snapshot_queue *sq, const struct target *t)
{
	struct wq_attrs mine = { .set = WQ_ATTR_UID, .uid = geteuid() };
	struct wq_stat st;
	int err = errno;

	if (t->created && !wq_stat(t->q, &st) &&
	    (st.uid == mine.uid || !attr_set_file(t->q, &mine)) &&
	    !wq_stat(t->q, &st) && !(st.state & WQ_STATE_UNLINKED))
		wq_unlink(sq->name);
	errno = err;
}

static bool is_held(const struct restore *r, const char *name)
{
	size_t i;

	for (i = 0; i < r->num; i++)
		if (!strcmp(r->list[i].name, name))
			return !r->list[i].taken;
	return false;
}

/*
 * A queue is restored also if its owner then has more than the limits allow.  Root has no limits.
 * An owner is reported once.
 */
static void look_at_owner(struct restore *r, const struct snapshot_queue *sq, const struct target *t)
{
	uint32_t uid = sq->attrs.set & WQ_ATTR_UID ? sq->attrs.uid : 0, *beyond;
	size_t i;

	for (i = 0; i < r->num_beyond; i++)
		if (r->beyond[i] == uid)
			return;
	if (!uid || !report_owner_limits(sq->name, t->q))
		return;
	beyond = reallocarray(r->beyond, r->num_beyond + 1, sizeof(*beyond));
	if (!beyond)
		return;
	r->beyond = beyond;
	r->beyond[r->num_beyond++] = uid;
}

/* Whether a queue has had a key since it was made. */
static bool was_used(const struct target *t)
{
	struct wq_stat st;

	return t->q >= 0 && !t->own && !wq_stat(t->q, &st) && st.adds;
}

/*
 * Make a queue, if none has its name, which is then taken.  Only the restore's user can open it,
 * and it is paused.  restore_part() reports an error.  Return the queue's owner.
 */
static uint32_t make_queue(struct restore *r, struct part *p)
{
	struct snapshot_queue sq;
	struct target t = { .q = -1 };

	if (!snapshot_queue(&r->s, p, &sq))
		return 0;
	t.has_file = has_file(sq.name);
	if (!t.has_file || is_held(r, sq.name) || create_queue(&sq, p, &t))
		return owner_of(&sq);
	p->made = true;
	wq_pause(t.q, WQ_PAUSE_GETS | WQ_PAUSE_ADDS, MADE_TIME);
	close(t.q);
	return owner_of(&sq);
}

static int restore_part(struct restore *r, const struct part *p)
{
	struct snapshot_queue sq;
	struct target t = { .q = -1 };
	int ret = DONE;

	if (!snapshot_queue(&r->s, p, &sq)) {
		remove_made(p);
		return not_restored(r, p, &sq);
	}
	/* It still has its keys. */
	if (is_held(r, sq.name))
		return DONE;
	t.has_file = has_file(sq.name);
	ret = r->merge || p->made ? open_queue(r, p, &sq, &t) : DONE;
	if (!ret && r->running && was_used(&t)) {
		message("the queue '%s' is left as it is: the snapshot is of this boot, and its keys may have run; to add them all the same, call wqctl restore --merge with queues.wq.restored before the next save",
			sq.name);
		close(t.q);
		return DONE;
	}
	if (!ret && t.q < 0 && create_queue(&sq, p, &t))
		ret = no_queue(r, p, &sq, "create");
	if (!ret && fill(r, &sq, p, &t)) {
		remove_created(&sq, &t);
		ret = not_restored(r, p, &sq);
	}
	if (!ret)
		look_at_owner(r, &sq, &t);
	if (t.q >= 0)
		close(t.q);
	r->queues += !ret;
	r->keys += ret ? 0 : p->keys;
	return ret;
}

bool check_new(struct restore *r)
{
	struct snapshot_queue sq;
	const struct part *p;
	bool good = true;
	int q;

	for (p = r->s.parts; p < r->s.parts + r->s.num; p++) {
		if (!snapshot_queue(&r->s, p, &sq)) {
			not_restored(r, p, &sq);
			return false;
		}
		q = open_either(sq.name);
		if (q < 0 && errno == ENOENT)
			continue;
		if (q < 0 && errno != EACCES) {
			no_queue(r, p, &sq, "open");
			return false;
		}
		if (q >= 0)
			close(q);
		message("can't restore '%s': line %zu: the queue '%s' exists; add the keys to it with --merge, or remove it first: wqctl unlink %s%s",
			r->s.path, p->line, sq.name, end_of_options(sq.name), sq.name);
		good = false;
	}
	return good;
}

void restore_end(struct restore *r)
{
	snapshot_close(&r->s);
	free(r->beyond);
}

int restore_all(struct restore *r)
{
	struct turn *turns = calloc(r->s.num + 1, sizeof(*turns));
	struct part *p;
	int ret = DONE;
	size_t i;

	for (p = r->s.parts; !turns && p < r->s.parts + r->s.num; p++)
		p->left = true;
	if (!turns) {
		message("not enough memory");
		return FAILED;
	}
	umask(0);
	for (i = 0; i < r->s.num; i++) {
		p = &r->s.parts[i];
		turns[i] = (struct turn){
			.index = i, .uid = make_queue(r, p), .keys = p->keys,
		};
	}
	turns_sort(turns, r->s.num);
	for (i = 0; i < r->s.num; i++) {
		p = &r->s.parts[turns[i].index];
		p->left = restore_part(r, p);
		if (p->left)
			ret = FAILED;
	}
	free(turns);
	progress_end();
	return ret;
}

/* The queues that were not restored */

static int put_left(void *arg, struct out *o)
{
	struct snapshot *s = arg;
	const struct part *p;
	size_t i, len;
	char *line;

	for (p = s->parts; p < s->parts + s->num; p++) {
		if (!p->left)
			continue;
		line = snapshot_seek(s, p) ? snapshot_line(s, &len) : NULL;
		for (i = 0; line; line = snapshot_line(s, &len)) {
			out_line(o, line, len);
			if (++i == p->lines)
				break;
		}
		if (!line) {
			message("can't read '%s': line %zu: %s", s->path, s->line, s->wrong);
			o->queues = 0;
			return FAILED;
		}
		o->queues++;
	}
	return DONE;
}

int restore_write_left(struct snapshot *s, const char *path)
{
	return snapshot_write(path, put_left, s, NULL);
}

int restore_held(const struct held *list, size_t num, const char *path)
{
	struct restore r = { .merge = true, .list = list, .num = num };
	int ret = FAILED;

	if (snapshot_open(&r.s, path) == OPENED) {
		ret = restore_all(&r);
		if (ret)
			restore_write_left(&r.s, path);
	}
	restore_end(&r);
	return ret;
}
