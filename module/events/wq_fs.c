// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "fs": changes of a directory tree, or of a directory's entries.
 *
 * A source has a mark of fsnotify on the watched directory.  The mark pins the directory's inode,
 * so that fs_source.inode identifies it, and ends with the directory.  For a source of a
 * directory's entries the mark also brings the events.
 *
 * The events of trees come by one mark on the super block (struct fs_tree), which all sources there
 * share.  A change elsewhere on the file system is a bystander's, and should cost it little.  So
 * the marks on the watched directories of trees have the bit WQ_FS_ROOT, which is part of
 * inode.i_fsnotify_mask then.  nearest_root() walks from a changed dentry up to the root of the
 * file system, and looks for the bit.  If it finds one, the sources of the tree that watch this
 * inode get the event, each composes the path for itself, and the walk goes on above.  With one
 * mark for each source, and a path for each before it was compared, the write of a bystander took
 * 28,000 instructions more beside 40 sources.
 *
 * A directory that is removed while it is open keeps its inode.  Its parent has the event of the
 * removal: the mark on the super block sees it, and for a source of a directory's entries a mark on
 * the parent does.  That mark stays with the parent if the directory is moved.  Then the source
 * ends when the last user of the removed directory lets go of it.
 *
 * No dentry and no mount is held, so a file system can be unmounted: fsnotify frees the marks then,
 * and fs_freeing_mark() ends the source.  For the same reason nothing holds a reference to a mark,
 * because the last references let the inode and the super block go.  fs_hook.mark is cleared
 * before.
 *
 * An event names a dentry, or a directory and a name in it.  The path from the watched directory to
 * it is read from the dcache, as the dcache does for d_path: under RCU, repeated if a rename came
 * in between (rename_lock), the second time with that lock.  The parents of a dentry cannot go away
 * before the grace period of RCU.  The lock is one of the whole machine, so a path that is longer
 * than PATH_MAX is not looked up.  The walk of nearest_root() looks at up to WQ_FS_WALK directories
 * without the lock, and at up to WQ_FS_DEPTH with it.  If a changed directory is deeper than
 * WQ_FS_WALK, each source of the tree gets the rescan key of all that it watches.
 *
 * Events come from tasks that hold locks of the file system.  The handler does not wait for memory,
 * and takes no locks but rename_lock, the spinlocks of an inode and a dentry, those of wq, and
 * those of dput(), which fsnotify calls in this context, too.
 *
 * Lifetime: each mark has a group of its own (struct fs_hook).  The group has a reference of the
 * source or tree and one of the mark, and fs_source or fs_tree is freed with the group.
 * fs_source.s is NULL from fs_unhook() on.  It is used under RCU, and fs_free() comes a grace
 * period later.  Neither of the two waits for fsnotify, which frees marks by a work item of its
 * own, after one of its grace periods for all of them.
 *
 *  - A source of a tree is in fs_tree.sources from its attach until its directory or the source
 *    itself ends.  It is used under RCU.  It counts in fs_tree.users until fs_unhook().
 *  - A tree is in fs_trees, where an attach finds it, until its last user or the super block ends.
 *    Two attaches at a time can make two trees of a super block.  The second one is dropped.
 *
 * fs_lock protects both, and fs_hook.mark.  Its holds are short, but for the look-up of a tree
 * among those with the same hash.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/seqlock.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <linux/wait_bit.h>
#include <linux/wq_source.h>

#include "base/compat.h"
#include "events/pattern.h"

#define WQ_FS_NAMES	(WQ_FS_MOVED_FROM | WQ_FS_MOVED_TO | WQ_FS_CREATE | WQ_FS_DELETE)
#define WQ_FS_ANCESTORS	16	/* generations of processes that are looked at */
#define WQ_FS_WALK	65536	/* directories that are looked at for an event */
#define WQ_FS_DEPTH	2048	/* directories that are looked at with rename_lock */
/* In the mask of a mark on the root of a tree.  No event and no other watcher has this bit. */
#define WQ_FS_ROOT	FS_Q_OVERFLOW

static_assert(WQ_FS_MODIFY == FS_MODIFY && WQ_FS_ATTRIB == FS_ATTRIB &&
	      WQ_FS_CLOSE_WRITE == FS_CLOSE_WRITE && WQ_FS_MOVED_FROM == FS_MOVED_FROM &&
	      WQ_FS_MOVED_TO == FS_MOVED_TO && WQ_FS_CREATE == FS_CREATE &&
	      WQ_FS_DELETE == FS_DELETE);

/**
 * struct fs_hook - a group of fsnotify and its mark
 * @group: the group
 * @mark: L: the mark; NULL: there is none yet, or fsnotify has freed it
 */
struct fs_hook {
	struct fsnotify_group *group;
	struct fsnotify_mark *mark;
};

/**
 * struct fs_tree - the mark on a super block
 * @hook: the mark and its group, with which the tree is freed
 * @sb: the super block, while @link is in fs_trees
 * @link: L: in fs_trees
 * @users: L: sources that were attached and not unhooked
 * @sources: L: sources whose directory exists; read under RCU
 */
struct fs_tree {
	struct fs_hook hook;
	const struct super_block *sb;
	struct hlist_node link;
	u32 users;
	struct hlist_head sources;
};

/**
 * struct fs_source - a source
 * @s: the source of wq; NULL from fs_unhook() on, see the head of this file
 * @root: the mark on the directory and its group, with which the source is freed
 * @above: L: the mark of the same group on the directory's parent, or NULL
 * @tree: the tree, or NULL: the source is one of the directory's entries
 * @link: L: in fs_tree.sources
 * @inode: the watched directory, until its mark is freed
 * @ended: the directory is gone
 * @events: WQ_FS_MODIFY and so on
 * @prefix: of each key, as wq_source_prefix() returns it
 * @prefix_len: its length
 * @owner: the process whose changes are left out, or NULL
 * @has_only: there are rules WQ_FS_ONLY
 * @rules_size: bytes of @rules
 * @rules: strings
 *
 * Legend: L: protected by fs_lock.
 */
struct fs_source {
	struct wq_source *s;
	struct fs_hook root;
	struct fsnotify_mark *above;
	struct fs_tree *tree;
	struct hlist_node link;
	const struct inode *inode;
	bool ended;
	u32 events;
	const char *prefix;
	size_t prefix_len;
	struct pid *owner;
	bool has_only;
	u32 rules_size;
	char rules[];
};

/**
 * struct fs_event - what an event is about
 * @mask: FS_*
 * @d: the dentry, or that of the directory of @name; NULL: unknown
 * @name: a name in @d, or NULL
 * @lost: the file has lost the name of @d, and its others are unknown
 */
struct fs_event {
	u32 mask;
	bool lost;
	const struct dentry *d;
	const struct qstr *name;
};

static DEFINE_SPINLOCK(fs_lock);
static DEFINE_HASHTABLE(fs_trees, 8);

/* Groups that are not freed yet. */
static atomic_t fs_groups;

static const struct fsnotify_ops tree_ops;

/* How a look-up of a path ended. */
enum path_result {
	PATH_FOUND,
	PATH_CUT,	/* too long for a key: the path of the nearest directory above that fits */
	PATH_OUTSIDE,	/* not below the directory */
	PATH_UNKNOWN,	/* longer than PATH_MAX, or not connected to the root */
};

/**
 * struct fs_path - a path, which grows towards its front
 * @start: its first byte in @buf
 * @end: behind its last one
 * @room: the first byte that it may use, behind the prefix
 * @bytes: of all names that were looked at, each with a slash
 * @skip: names are left out until @bytes is this
 * @full: a name did not fit
 * @buf: if a slash is to follow the path, a byte is kept free for it
 */
struct fs_path {
	u32 start;
	u32 end;
	u32 room;
	u32 bytes;
	u32 skip;
	bool full;
	char buf[WQ_MAX_KEY];
};

/* Put a name ahead of the path.  Returns false if a rename changes it, or the path is too long. */
static bool path_prepend(struct fs_path *p, const struct qstr *name)
{
	/* Pairs with the release in the dcache, where a name is replaced. */
	const char *from = smp_load_acquire(&name->name);
	u32 i, len = READ_ONCE(name->len), slash = p->start < p->end;
	bool skip = p->bytes < p->skip;
	char *to;

	p->bytes += len + 1;
	if (len > NAME_MAX || p->bytes > PATH_MAX)
		return false;
	p->full |= !skip && p->start - p->room < len + slash;
	if (skip || p->full)
		return true;
	if (slash)
		p->buf[--p->start] = '/';
	p->start -= len;
	to = p->buf + p->start;
	/* The name ends with a NUL, but its length may be that of another name. */
	for (i = 0; i < len; i++) {
		to[i] = READ_ONCE(from[i]);
		if (!to[i])
			return false;
	}
	return true;
}

/*
 * Whether a walk that ended at @d has not come to the root of the file system.  An NFS that is
 * mounted by several of its directories has as many roots, and a directory that a source watches
 * may be above another root.  So the end at any root but s_root is unknown.
 */
static bool is_unconnected(const struct dentry *d)
{
	return d != d->d_sb->s_root;
}

/* Prepend the names from @name in @d, or from @d, up to the watched directory. */
static enum path_result path_walk(struct fs_path *p, const struct fs_source *src,
				  const struct dentry *d, const struct qstr *name)
{
	const struct dentry *parent;

	if (name && !path_prepend(p, name))
		return PATH_UNKNOWN;
	for (; READ_ONCE(d->d_inode) != src->inode; d = parent) {
		parent = READ_ONCE(d->d_parent);
		if (d == parent)
			return is_unconnected(d) ? PATH_UNKNOWN : PATH_OUTSIDE;
		/* A name that is torn is looked up again, because rename_lock has changed. */
		if (!path_prepend(p, &d->d_name))
			return PATH_UNKNOWN;
	}
	return PATH_FOUND;
}

static void path_init(struct fs_path *p, u32 prefix_len, bool slash, u32 skip)
{
	p->start = p->end = WQ_MAX_KEY - slash;
	p->room = prefix_len;
	p->bytes = 0;
	p->skip = skip;
	p->full = false;
}

static enum path_result path_once(struct fs_path *p, const struct fs_source *src,
				  const struct dentry *d, const struct qstr *name, bool slash)
{
	enum path_result result;
	u32 skip = 0;

	for (;;) {
		path_init(p, src->prefix_len, slash || skip, skip);
		result = path_walk(p, src, d, name);
		if (result != PATH_FOUND)
			return result;
		if (!p->full)
			return skip ? PATH_CUT : PATH_FOUND;
		/* If a rename has made it longer, it is looked up again. */
		if (skip)
			return PATH_UNKNOWN;
		/* Leave out the last names, until the rest fits with a slash. */
		skip = p->bytes + src->prefix_len - WQ_MAX_KEY;
	}
}

/* The path of @d, or of @name in the directory @d.  @slash: room for a slash behind it */
static enum path_result path_of(struct fs_path *p, const struct fs_source *src,
				const struct dentry *d, const struct qstr *name, bool slash)
{
	unsigned int seq = read_seqbegin(&rename_lock);
	enum path_result result = path_once(p, src, d, name, slash);

	if (read_seqretry(&rename_lock, seq)) {
		read_seqlock_excl(&rename_lock);
		result = path_once(p, src, d, name, slash);
		read_sequnlock_excl(&rename_lock);
	}
	return result;
}

/*
 * Whether the directory of an event compares names without their case: all directories of a file
 * system such as vfat, and those of ext4 and f2fs that are casefold.
 */
static bool folds(const struct fs_event *ev)
{
	const struct dentry *dir = ev->name ? ev->d : READ_ONCE(ev->d->d_parent);
	const struct inode *inode = READ_ONCE(dir->d_inode);

	return inode && (IS_CASEFOLDED(inode) || (READ_ONCE(dir->d_flags) & DCACHE_OP_COMPARE &&
						  !wq_sb_has_encoding(inode->i_sb)));
}

/* Whether the rules let the path of an event pass.  @cut: it is that of a directory above it */
static bool passes(const struct fs_source *src, const struct fs_event *ev, const char *path,
		   u32 len, bool cut)
{
	bool is_dir = ev->mask & FS_ISDIR || cut, fold = folds(ev), only = !src->has_only;
	/* The key stands for all below it, too. */
	bool whole = (is_dir && ev->name) || cut;
	enum pattern_result result;
	const char *rule;

	for (rule = src->rules; rule < src->rules + src->rules_size; rule += strlen(rule) + 1) {
		result = pattern_match(rule + 1, path, len, is_dir, fold);
		if (rule[0] == WQ_FS_ONLY)
			only |= result == PATTERN_MATCH || (whole && result == PATTERN_ABOVE);
		else if (result == PATTERN_MATCH)
			return false;
	}
	return only;
}

/* Add the key of a path.  @whole: with all below it */
static void add_path(struct wq_source *s, char *key, u32 len, u32 prefix_len, bool whole)
{
	u32 dir;

	if (whole)
		key[len++] = '/';
	for (dir = len; dir > prefix_len && key[dir - 1] != '/'; dir--)
		;
	wq_source_add(s, key, len, dir > prefix_len ? dir : 0);
}

/* A rescan key for the directory of a path that is not exact. */
static void rescan_path(struct wq_source *s, char *key, u32 len, u32 prefix_len)
{
	key[len] = '/';
	wq_source_rescan(s, key, len > prefix_len ? len + 1 : 0);
}

/* Whether the event is by the process that attached the source, or by a descendant. */
static bool is_own(const struct fs_source *src)
{
	const struct task_struct *task = current;
	int i;

	for (i = 0; i <= WQ_FS_ANCESTORS && task->pid > 1; i++) {
		if (task_tgid((struct task_struct *)task) == src->owner)
			return true;
		task = rcu_dereference(task->real_parent);
	}
	return false;
}

/* Add the key of an event, under RCU. */
static noinline_for_stack void add_event(const struct fs_source *src, const struct fs_event *ev)
{
	struct wq_source *s = READ_ONCE(src->s);
	bool is_dir = ev->mask & FS_ISDIR, cut;
	enum path_result result;
	struct fs_path p __uninitialized;
	char *key;

	if (!s || READ_ONCE(src->ended) || !(ev->mask & src->events) || (src->owner && is_own(src)))
		return;
	result = ev->d ? path_of(&p, src, ev->d, ev->name, is_dir && ev->name) : PATH_UNKNOWN;
	if (result == PATH_OUTSIDE)
		return;
	/* The caller that attached the source may have no right to read the directories below. */
	if (!src->tree && result != PATH_UNKNOWN && memchr(p.buf + p.start, '/', p.end - p.start))
		return;
	if (result == PATH_UNKNOWN || ev->lost) {
		wq_source_rescan(s, NULL, 0);
		return;
	}
	cut = result == PATH_CUT;
	if (src->rules_size && !passes(src, ev, p.buf + p.start, p.end - p.start, cut))
		return;
	if (p.start == p.end && !cut) {
		p.buf[--p.start] = '.';
		is_dir = false;
	}
	p.start -= src->prefix_len;
	key = p.buf + p.start;
	if (src->prefix_len)
		memcpy(key, src->prefix, src->prefix_len);
	if (cut)
		rescan_path(s, key, p.end - p.start, src->prefix_len);
	else
		add_path(s, key, p.end - p.start, src->prefix_len, is_dir && ev->name);
}

/*
 * Of @d and the directories above it, the nearest one that a source of a tree watches; or NULL.
 * @left: how many of them are looked at, at most; receives what is left of it, 0: the walk has not
 *	come to its end
 */
static const struct dentry *root_walk(const struct dentry *d, bool *unknown, u32 *left)
{
	const struct dentry *parent;
	const struct inode *inode;

	for (; *left; d = parent, --*left) {
		inode = READ_ONCE(d->d_inode);
		if (inode && READ_ONCE(inode->i_fsnotify_mask) & WQ_FS_ROOT)
			return d;
		parent = READ_ONCE(d->d_parent);
		if (d == parent) {
			*unknown = is_unconnected(d);
			break;
		}
	}
	return NULL;
}

/*
 * The task that changes a file pays for the depth of its directory, without a lock.  If a walk that
 * is longer than a path were unknown, any user could leave marks for the sources of all by a deep
 * directory.  But the walk cannot be preempted on some kernels, so that a directory below more than
 * WQ_FS_WALK others leaves these marks.
 *
 * A rename during the walk can hide a source, so the walk is repeated with rename_lock, which is
 * one of the whole machine.  If the directory is too deep for that, the first walk counts: for a
 * source that it has missed, the rename has events of its own.
 */
static const struct dentry *nearest_root(const struct dentry *d, bool *unknown, u32 *left)
{
	unsigned int seq = read_seqbegin(&rename_lock);
	u32 before = *left, locked_left = WQ_FS_DEPTH;
	const struct dentry *root = root_walk(d, unknown, left), *locked_root;
	bool locked_unknown = false;

	if (!*left)
		*unknown = true;
	if (!read_seqretry(&rename_lock, seq) || before - *left >= WQ_FS_DEPTH)
		return root;
	read_seqlock_excl(&rename_lock);
	locked_root = root_walk(d, &locked_unknown, &locked_left);
	read_sequnlock_excl(&rename_lock);
	if (!locked_left)
		return root;
	*unknown = locked_unknown;
	return locked_root;
}

/*
 * Hand an event to the sources that watch the changed object, under RCU.  A rename between the
 * steps of the walk is no loss: it has events of its own, which come after it, for its old and new
 * name.
 */
static void tree_event(const struct fs_tree *tree, const struct fs_event *ev)
{
	const struct dentry *d = ev->d, *root;
	const struct fs_source *src;
	bool unknown = !d;
	u32 left = WQ_FS_WALK;

	while (d) {
		root = nearest_root(d, &unknown, &left);
		if (!root)
			break;
		hlist_for_each_entry_rcu(src, &tree->sources, link)
			if (src->inode == READ_ONCE(root->d_inode))
				add_event(src, ev);
		d = READ_ONCE(root->d_parent);
		if (d == root) {
			unknown = is_unconnected(d);
			break;
		}
	}
	if (unknown)
		hlist_for_each_entry_rcu(src, &tree->sources, link)
			add_event(src, &(struct fs_event){ .mask = ev->mask });
}

/* Whether a dentry has the name that a file has by O_TMPFILE. */
static bool is_tmpfile(const struct dentry *d)
{
	char name[24];
	u32 len = scnprintf(name, sizeof(name), "#%llu", (unsigned long long)d->d_inode->i_ino);

	return d->d_name.len == len && !memcmp(d->d_name.name, name, len);
}

/* In 6.1, ext4 and f2fs do not hash the dentry by which a file of such a directory was made. */
static bool is_in_casefold(const struct dentry *d)
{
	return IS_CASEFOLDED(d_inode(READ_ONCE(d->d_parent)));
}

/* Whether an unhashed dentry has the name of its file.  inotify reports this name, too. */
static bool name_holds(const struct dentry *d)
{
	/* That of a name that was removed or replaced cannot be mounted on. */
	return is_in_casefold(d) && !cant_mount(d) && !is_tmpfile(d);
}

/*
 * Whether an unhashed dentry of a file with 0 links has lost its name by a removal.  Such a name
 * cannot be mounted on, but for one that was removed with its directory, as in debugfs.
 * Only a file system that checks names again takes one out of the cache that is not removed.
 */
static bool is_removed(const struct dentry *d)
{
	return cant_mount(d) || IS_DEADDIR(d_inode(READ_ONCE(d->d_parent))) ||
	       !(READ_ONCE(d->d_flags) & DCACHE_OP_REVALIDATE);
}

/* event_of() for an unhashed dentry, which the caller holds. */
static bool event_of_unhashed(struct fs_event *ev, struct dentry *d, struct dentry **alias)
{
	struct inode *inode = d_inode(d);
	bool is_one;
	u32 nlink;

	if (!inode)
		return false;
	nlink = READ_ONCE(inode->i_nlink);
	is_one = nlink <= 1 && !S_ISDIR(inode->i_mode);
	if (is_one)
		*alias = d_find_alias(inode);
	/*
	 * The removal of the last name has a key of its own.  0 links alone do not show it: a
	 * server of FUSE may report them for each file, also for one with other names, and take a
	 * name out of the cache.
	 */
	if (!nlink && !*alias && (is_removed(d) || is_tmpfile(d) || is_in_casefold(d)))
		return false;
	ev->d = *alias ?: d;
	ev->lost = !*alias && !(is_one && name_holds(d));
	return true;
}

/*
 * Fill @ev.  Returns false if the event is about nothing that has a name.  The caller puts @alias
 * after it has used @ev.
 */
static bool event_of(struct fs_event *ev, u32 mask, const void *data, int data_type,
		     struct inode *dir, const struct qstr *name, struct dentry **alias)
{
	struct dentry *d = fsnotify_data_dentry(data, data_type);

	ev->mask = mask;
	ev->lost = false;
	ev->name = NULL;
	if (d && !(mask & WQ_FS_NAMES)) {
		ev->d = d;
		return !d_unhashed(d) || IS_ROOT(d) || event_of_unhashed(ev, d, alias);
	}
	if (dir && name) {
		ev->d = *alias = d_find_any_alias(dir);
		ev->name = name;
		return true;
	}
	/* The number of links has changed, of a file whose names have events of their own. */
	if (mask & (WQ_FS_NAMES | WQ_FS_ATTRIB))
		return false;
	/* kernfs, whose files have one name */
	ev->d = *alias = d_find_any_alias(fsnotify_data_inode(data, data_type));
	return true;
}

/* The watched directory is gone. */
static void fs_end(struct fs_source *src, int error)
{
	struct wq_source *s;

	WRITE_ONCE(src->ended, true);
	rcu_read_lock();
	s = READ_ONCE(src->s);
	if (s)
		wq_source_end(s, error);
	rcu_read_unlock();
}

/* The directory that an event reports as gone, removed or replaced by a rename; or NULL */
static const struct inode *gone_dir(u32 mask, const void *data, int data_type)
{
	const struct inode *inode;

	if (!(mask & FS_ISDIR) || !(mask & (FS_DELETE | FS_ATTRIB)))
		return NULL;
	inode = fsnotify_data_inode(data, data_type);
	return inode && (mask & FS_DELETE || READ_ONCE(inode->i_flags) & S_DEAD) ? inode : NULL;
}

/* End the sources that watch @gone. */
static void tree_gone(const struct fs_tree *tree, const struct inode *gone)
{
	struct fs_source *src;

	if (!(READ_ONCE(gone->i_fsnotify_mask) & WQ_FS_ROOT))
		return;
	rcu_read_lock();
	hlist_for_each_entry_rcu(src, &tree->sources, link)
		if (src->inode == gone && !READ_ONCE(src->ended))
			fs_end(src, ENOENT);
	rcu_read_unlock();
}

/* The group is that of a source, or that of a tree. */
static int fs_handle_event(struct fsnotify_group *group, u32 mask, const void *data, int data_type,
			   struct inode *dir, const struct qstr *name, u32 cookie,
			   struct fsnotify_iter_info *iter_info)
{
	struct fs_source *src = group->ops == &tree_ops ? NULL : group->private;
	const struct inode *gone = gone_dir(mask, data, data_type);
	struct dentry *alias = NULL;
	struct fs_event ev;

	if (src && gone == src->inode && !READ_ONCE(src->ended)) {
		fs_end(src, ENOENT);
		return 0;
	}
	if (!src && gone)
		tree_gone(group->private, gone);
	/* FS_DELETE_SELF and FS_UNMOUNT are not among them.  A tree has a mark for its events. */
	if (!(mask & WQ_FS_DEFAULT) || (src && src->tree))
		return 0;
	/* The mark on the parent is for the removal of the watched directory alone. */
	if (src && mask & WQ_FS_NAMES && dir != src->inode)
		return 0;
	rcu_read_lock();
	if (!event_of(&ev, mask, data, data_type, dir, name, &alias))
		;
	else if (src)
		add_event(src, &ev);
	else
		tree_event(group->private, &ev);
	rcu_read_unlock();
	/* fsnotify itself puts dentries in this context, so this may be the last reference. */
	if (alias)
		dput(alias);
	return 0;
}

/* The mark on a directory ends, by fs_unhook() or with the directory or the super block. */
static void fs_freeing_mark(struct fsnotify_mark *mark, struct fsnotify_group *group)
{
	struct fs_source *src = group->private;
	bool above;

	spin_lock(&fs_lock);
	above = mark == src->above;
	if (above) {
		src->above = NULL;
	} else {
		src->root.mark = NULL;
		hlist_del_init_rcu(&src->link);
	}
	spin_unlock(&fs_lock);
	/*
	 * The mark on the directory pins its inode until this function returns.  From then on
	 * src->inode may be another inode's address.  The last unmount drops s_active to 0 before
	 * anything else.  The links show nothing: a server of FUSE may report 0 for each directory.
	 */
	if (!above)
		fs_end(src, atomic_read(&src->inode->i_sb->s_active) ? ENOENT : ENODEV);
}

/* The mark on a super block ends.  Those on its inodes have ended before, or end, too. */
static void tree_freeing_mark(struct fsnotify_mark *mark, struct fsnotify_group *group)
{
	struct fs_tree *tree = group->private;

	spin_lock(&fs_lock);
	tree->hook.mark = NULL;
	/* From now on tree->sb may be another super block's address. */
	hlist_del_init(&tree->link);
	spin_unlock(&fs_lock);
}

static void fs_free_mark(struct fsnotify_mark *mark)
{
	kfree(mark);
}

static void source_free(struct fs_source *src)
{
	put_pid(src->owner);
	kfree(src);
}

static void group_freed(void)
{
	if (atomic_dec_and_test(&fs_groups))
		wake_up_var(&fs_groups);
}

static void fs_free_group(struct fsnotify_group *group)
{
	source_free(group->private);
	group_freed();
}

static void tree_free_group(struct fsnotify_group *group)
{
	kfree(group->private);
	group_freed();
}

static const struct fsnotify_ops fs_ops = {
	.handle_event = fs_handle_event,
	.freeing_mark = fs_freeing_mark,
	.free_mark = fs_free_mark,
	.free_group_priv = fs_free_group,
};

static const struct fsnotify_ops tree_ops = {
	.handle_event = fs_handle_event,
	.freeing_mark = tree_freeing_mark,
	.free_mark = fs_free_mark,
	.free_group_priv = tree_free_group,
};

/* @private is freed with the group, if this succeeds. */
static int hook_init(struct fs_hook *hook, const struct fsnotify_ops *ops, void *private)
{
	hook->group = fsnotify_alloc_group(ops, 0);
	if (IS_ERR(hook->group))
		return PTR_ERR(hook->group);
	hook->group->private = private;
	atomic_inc(&fs_groups);
	return 0;
}

static void mark_set(struct fsnotify_mark **slot, struct fsnotify_mark *mark)
{
	spin_lock(&fs_lock);
	*slot = mark;
	spin_unlock(&fs_lock);
}

/*
 * Add a mark to a group and to @slot, on @inode or, if that is NULL, on @sb.  The caller holds
 * these meanwhile.
 */
static int mark_add(struct fsnotify_group *group, struct fsnotify_mark **slot, u32 mask,
		    struct inode *inode, struct super_block *sb)
{
	struct fsnotify_mark *mark = kzalloc_obj(*mark, WQ_SOURCE_GFP);
	int ret;

	if (!mark)
		return -ENOMEM;
	fsnotify_init_mark(mark, group);
	mark->mask = mask;
	/* It may be freed as soon as it is added. */
	mark_set(slot, mark);
	ret = inode ? fsnotify_add_inode_mark(mark, inode, 0) : wq_add_sb_mark(mark, sb);
	if (ret)
		mark_set(slot, NULL);
	/* From here on the group and the inode or super block hold it. */
	fsnotify_put_mark(mark);
	return ret;
}

/* Destroy the mark of a slot, unless fsnotify is about to. */
static void mark_end(struct fsnotify_group *group, struct fsnotify_mark **slot)
{
	struct fsnotify_mark *mark;

	spin_lock(&fs_lock);
	mark = *slot;
	/* It is cleared before fsnotify's last reference goes. */
	if (mark)
		refcount_inc(&mark->refcnt);
	spin_unlock(&fs_lock);
	if (!mark)
		return;
	fsnotify_destroy_mark(mark, group);
	fsnotify_put_mark(mark);
}

static struct fs_tree *tree_new(struct super_block *sb)
{
	struct fs_tree *tree = kzalloc_obj(*tree, WQ_SOURCE_GFP);
	int ret;

	if (!tree)
		return ERR_PTR(-ENOMEM);
	tree->sb = sb;
	ret = hook_init(&tree->hook, &tree_ops, tree);
	if (ret) {
		kfree(tree);
		return ERR_PTR(ret);
	}
	ret = mark_add(tree->hook.group, &tree->hook.mark, WQ_FS_DEFAULT, NULL, sb);
	if (ret) {
		fsnotify_put_group(tree->hook.group);
		return ERR_PTR(ret);
	}
	return tree;
}

static void tree_end(struct fs_tree *tree)
{
	mark_end(tree->hook.group, &tree->hook.mark);
	fsnotify_put_group(tree->hook.group);
}

/* Count a user of the tree of @sb.  If there is none, @new becomes it, or NULL is returned. */
static struct fs_tree *tree_find(struct super_block *sb, struct fs_tree *new)
{
	struct fs_tree *tree;

	spin_lock(&fs_lock);
	hash_for_each_possible(fs_trees, tree, link, (unsigned long)sb)
		if (tree->sb == sb)
			goto found;
	tree = new;
	if (tree)
		hash_add(fs_trees, &tree->link, (unsigned long)sb);
found:
	if (tree)
		tree->users++;
	spin_unlock(&fs_lock);
	return tree;
}

/* The caller holds @sb meanwhile. */
static struct fs_tree *tree_get(struct super_block *sb)
{
	struct fs_tree *tree = tree_find(sb, NULL), *new;

	if (tree)
		return tree;
	new = tree_new(sb);
	if (IS_ERR(new))
		return new;
	tree = tree_find(sb, new);
	if (tree != new)
		tree_end(new);
	return tree;
}

static void tree_put(struct fs_tree *tree)
{
	bool last;

	spin_lock(&fs_lock);
	last = !--tree->users;
	if (last)
		hlist_del_init(&tree->link);
	spin_unlock(&fs_lock);
	if (last)
		tree_end(tree);
}

/* No event for the source begins when this returns. */
static void source_unhook(struct fs_source *src)
{
	WRITE_ONCE(src->s, NULL);
	spin_lock(&fs_lock);
	hlist_del_init_rcu(&src->link);
	spin_unlock(&fs_lock);
	mark_end(src->root.group, &src->above);
	mark_end(src->root.group, &src->root.mark);
	if (src->tree)
		tree_put(src->tree);
}

/* Begin to watch.  If it fails, the caller calls source_unhook(). */
static int source_begin(struct fs_source *src, struct dentry *dir)
{
	struct inode *inode = d_inode(dir);
	u32 mask = FS_DELETE_SELF | FS_UNMOUNT;
	struct dentry *parent;
	int ret;

	if (src->tree) {
		mask |= WQ_FS_ROOT;
		spin_lock(&fs_lock);
		hlist_add_head_rcu(&src->link, &src->tree->sources);
		spin_unlock(&fs_lock);
	} else {
		mask |= src->events | FS_EVENT_ON_CHILD | FS_ATTRIB;
	}
	ret = mark_add(src->root.group, &src->root.mark, mask, inode, NULL);
	if (!ret && !src->tree && !IS_ROOT(dir)) {
		parent = dget_parent(dir);
		ret = mark_add(src->root.group, &src->above, FS_DELETE, d_inode(parent), NULL);
		dput(parent);
	}
	/*
	 * A directory that was removed causes no event any more.  If this look misses a removal
	 * that is in progress, no change is lost, so it needs no barrier: the caller holds a
	 * reference to the directory's dentry until the mark is in place.  When the last one
	 * goes, fsnotify finds the mark by its own locks and frees it, which ends the source.
	 */
	if (!ret && READ_ONCE(inode->i_flags) & S_DEAD)
		ret = -ENOENT;
	return ret;
}

static int check_rules(struct fs_source *src)
{
	const char *rule, *end = src->rules + src->rules_size;
	u32 n = 0, inner = 0, deep = 0;

	if (src->rules_size && end[-1])
		return -EINVAL;
	for (rule = src->rules; rule < end; rule += strlen(rule) + 1) {
		if (rule[0] != WQ_FS_ONLY && rule[0] != WQ_FS_EXCLUDE)
			return -EINVAL;
		if (!pattern_is_valid(rule + 1))
			return -EINVAL;
		src->has_only |= rule[0] == WQ_FS_ONLY;
		inner += pattern_inner(rule + 1);
		deep += pattern_deep(rule + 1);
		if (++n > WQ_FS_MAX_RULES || inner > WQ_FS_MAX_INNER || deep > WQ_FS_MAX_DEEP)
			return -E2BIG;
	}
	return 0;
}

static struct fs_source *source_new(struct wq_source *s, const struct wq_fs_args *args)
{
	struct mem_cgroup *memcg;
	struct fs_source *src;
	int ret;

	if (args->rules_size > WQ_FS_MAX_RULES_SIZE)
		return ERR_PTR(-E2BIG);
	src = kzalloc(struct_size(src, rules, args->rules_size), WQ_SOURCE_GFP);
	if (!src)
		return ERR_PTR(-ENOMEM);
	src->s = s;
	src->events = args->events ?: WQ_FS_DEFAULT;
	src->prefix = wq_source_prefix(s, &src->prefix_len);
	src->rules_size = args->rules_size;
	/* A page fault reads the caller's file, which is not charged to the maker of the queue. */
	memcg = set_active_memcg(NULL);
	ret = copy_from_user(src->rules, u64_to_user_ptr(args->rules), args->rules_size) ?
	      -EFAULT : 0;
	set_active_memcg(memcg);
	ret = ret ?: check_rules(src);
	if (ret) {
		kfree(src);
		return ERR_PTR(ret);
	}
	if (args->flags & WQ_FS_NOT_OWN)
		src->owner = get_pid(task_tgid(current));
	return src;
}

/* Whether the caller may watch. */
static int may_watch(const struct wq_fs_args *args, const struct file *file)
{
	const struct inode *inode = file_inode(file);

	if (!S_ISDIR(inode->i_mode))
		return -ENOTDIR;
	if (args->flags & WQ_FS_CHILDREN)
		return file->f_mode & FMODE_READ ? 0 : -EBADF;
	return ns_capable(inode->i_sb->s_user_ns, CAP_SYS_ADMIN) ? 0 : -EPERM;
}

static void describe(struct wq_source *s, const struct file *file)
{
	char *buf = kmalloc(PATH_MAX, WQ_SOURCE_GFP), *text;

	if (!buf)
		return;
	text = d_path(&file->f_path, buf, PATH_MAX);
	if (!IS_ERR(text))
		wq_source_describe(s, text);
	kfree(buf);
}

static int attach_file(struct wq_source *s, const struct wq_fs_args *args, struct file *file)
{
	struct fs_source *src;
	struct fs_tree *tree;
	int ret = may_watch(args, file);

	if (ret)
		return ret;
	src = source_new(s, args);
	if (IS_ERR(src))
		return PTR_ERR(src);
	src->inode = file_inode(file);
	ret = hook_init(&src->root, &fs_ops, src);
	if (ret) {
		source_free(src);
		return ret;
	}
	if (!(args->flags & WQ_FS_CHILDREN)) {
		tree = tree_get(file_inode(file)->i_sb);
		ret = PTR_ERR_OR_ZERO(tree);
		src->tree = ret ? NULL : tree;
	}
	ret = ret ?: source_begin(src, file->f_path.dentry);
	if (ret) {
		source_unhook(src);
		/* Events in progress use @s. */
		synchronize_rcu();
		fsnotify_put_group(src->root.group);
		return ret;
	}
	wq_source_set_private(s, src);
	describe(s, file);
	return 0;
}

static int fs_attach(struct wq_source *s, const void *arg)
{
	const struct wq_fs_args *args = arg;
	struct file *file;
	int ret;

	if (args->flags & ~(WQ_FS_CHILDREN | WQ_FS_NOT_OWN) || args->events & ~WQ_FS_DEFAULT ||
	    args->reserved || args->reserved2)
		return -EINVAL;
	file = fget_raw(args->fd);
	if (!file)
		return -EBADF;
	ret = attach_file(s, args, file);
	fput(file);
	return ret;
}

static void fs_unhook(struct wq_source *s)
{
	source_unhook(wq_source_private(s));
}

static void fs_free(struct wq_source *s)
{
	struct fs_source *src = wq_source_private(s);

	fsnotify_put_group(src->root.group);
}

static struct wq_source_kind wq_fs_kind = {
	.name = "fs",
	.owner = THIS_MODULE,
	.args_size = sizeof(struct wq_fs_args),
	.args_min = offsetofend(struct wq_fs_args, fd),
	.attach = fs_attach,
	.unhook = fs_unhook,
	.free = fs_free,
};

static int __init wq_fs_init(void)
{
	return wq_source_register(&wq_fs_kind);
}
module_init(wq_fs_init);

static void __exit wq_fs_exit(void)
{
	wq_source_unregister(&wq_fs_kind);
	/* fsnotify frees marks and groups a while after they were destroyed. */
	fsnotify_wait_marks_destroyed();
	wait_var_event(&fs_groups, !atomic_read(&fs_groups));
	/* The worker of fsnotify may still be about to return from fs_free_group(). */
	fsnotify_wait_marks_destroyed();
}
module_exit(wq_fs_exit);

MODULE_DESCRIPTION("wq: changes of files as keys");
MODULE_LICENSE("GPL");
MODULE_ALIAS_WQ_SOURCE("fs");
