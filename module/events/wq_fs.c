// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "fs": changes of a directory tree, or of a directory's entries.
 *
 * A source is a group of fsnotify with its marks: one on the super block for a tree, and one on the
 * watched directory.  The latter pins the inode of the directory, so that fs_source.inode
 * identifies it, and ends with the directory.  No dentry and no mount is held, so a file system can
 * be unmounted: fsnotify frees the marks then, and fs_freeing_mark() ends the source.  For the same
 * reason the source holds no reference to its marks, because their last references let the inode
 * and the super block go.
 *
 * An event names a dentry, or a directory and a name in it.  The path from the watched directory to
 * it is read from the dcache, as the dcache does for d_path: under RCU, repeated if a rename came
 * in between (rename_lock), the second time with that lock.  The parents of a dentry cannot go away
 * before the grace period of RCU.  The lock is one of the whole machine, so a path that is longer
 * than PATH_MAX is not looked up.
 *
 * Events come from tasks that hold locks of the file system.  The handler does not wait for memory,
 * and takes no locks but rename_lock, the spinlocks of an inode and a dentry, and those of wq.
 *
 * Lifetime: the group has a reference of the source and one of each mark, and fs_source is freed
 * with the group.  fs_source.s is NULL from fs_unhook() on.  It is used under RCU, and fs_free()
 * comes a grace period later.  Neither of the two waits for fsnotify, which frees marks by a work
 * item of its own, after one of its grace periods for all of them.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/module.h>
#include <linux/pid.h>
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

static_assert(WQ_FS_MODIFY == FS_MODIFY && WQ_FS_ATTRIB == FS_ATTRIB &&
	      WQ_FS_CLOSE_WRITE == FS_CLOSE_WRITE && WQ_FS_MOVED_FROM == FS_MOVED_FROM &&
	      WQ_FS_MOVED_TO == FS_MOVED_TO && WQ_FS_CREATE == FS_CREATE &&
	      WQ_FS_DELETE == FS_DELETE);

/**
 * struct fs_source - a source
 * @s: the source of wq; NULL from fs_unhook() on, see the head of this file
 * @group: its group
 * @inode: the watched directory, while @root exists
 * @ended: @root or @tree is gone
 * @lock: protects @root and @tree
 * @root: the mark on the directory; NULL: fsnotify has freed it
 * @tree: the mark on the super block, or NULL
 * @owner: the process whose changes are left out, or NULL
 * @has_only: there are rules WQ_FS_ONLY
 * @rules_size: bytes of @rules
 * @rules: strings
 */
struct fs_source {
	struct wq_source *s;
	struct fsnotify_group *group;
	const struct inode *inode;
	bool ended;
	spinlock_t lock;
	struct fsnotify_mark *root;
	struct fsnotify_mark *tree;
	struct pid *owner;
	bool has_only;
	u32 rules_size;
	char rules[];
};

/* Groups that are not freed yet. */
static atomic_t fs_groups;

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
			return d == d->d_sb->s_root ? PATH_OUTSIDE : PATH_UNKNOWN;
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
				  const struct dentry *d, const struct qstr *name, u32 prefix_len,
				  bool slash)
{
	enum path_result result;

	path_init(p, prefix_len, slash, 0);
	result = path_walk(p, src, d, name);
	if (result != PATH_FOUND || !p->full)
		return result;
	/* Leave out the last names, until the rest fits with a slash. */
	path_init(p, prefix_len, true, p->bytes + prefix_len - WQ_MAX_KEY);
	result = path_walk(p, src, d, name);
	if (result != PATH_FOUND)
		return result;
	/* If a rename has made it longer, it is looked up again. */
	return p->full ? PATH_UNKNOWN : PATH_CUT;
}

/* The path of @d, or of @name in the directory @d.  @slash: room for a slash behind it */
static enum path_result path_of(struct fs_path *p, const struct fs_source *src,
				const struct dentry *d, const struct qstr *name, u32 prefix_len,
				bool slash)
{
	unsigned int seq = read_seqbegin(&rename_lock);
	enum path_result result = path_once(p, src, d, name, prefix_len, slash);

	if (read_seqretry(&rename_lock, seq)) {
		read_seqlock_excl(&rename_lock);
		result = path_once(p, src, d, name, prefix_len, slash);
		read_sequnlock_excl(&rename_lock);
	}
	return result;
}

/* Whether the rules let a path pass.  @whole: its key stands for all below it, too */
static bool passes(const struct fs_source *src, const char *path, u32 len, bool is_dir, bool whole)
{
	bool only = !src->has_only;
	enum pattern_result result;
	const char *rule;

	for (rule = src->rules; rule < src->rules + src->rules_size; rule += strlen(rule) + 1) {
		result = pattern_match(rule + 1, path, len, is_dir);
		if (rule[0] == WQ_FS_ONLY)
			only |= result == PATTERN_MATCH || (whole && result == PATTERN_ABOVE);
		else if (result == PATTERN_MATCH)
			return false;
	}
	return only;
}

/* Add the key of a path.  @whole: with all below it */
static void add_path(struct wq_source *s, struct fs_path *p, bool whole)
{
	u32 dir, len = p->end - p->start;
	size_t prefix_len;
	const char *prefix = wq_source_prefix(s, &prefix_len);
	char *key = p->buf + p->start - prefix_len;

	for (dir = len; dir && p->buf[p->start + dir - 1] != '/'; dir--)
		;
	dir = dir ? prefix_len + dir : 0;
	len += prefix_len;
	memcpy(key, prefix, prefix_len);
	if (whole) {
		key[len++] = '/';
		dir = len;
	}
	wq_source_add(s, key, len, dir);
}

/* A rescan key for the directory of a path that is not exact. */
static void rescan_path(struct wq_source *s, struct fs_path *p)
{
	u32 len = p->end - p->start;
	size_t prefix_len;
	const char *prefix = wq_source_prefix(s, &prefix_len);
	char *key = p->buf + p->start - prefix_len;

	if (!len) {
		wq_source_rescan(s, NULL, 0);
		return;
	}
	memcpy(key, prefix, prefix_len);
	key[prefix_len + len] = '/';
	wq_source_rescan(s, key, prefix_len + len + 1);
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

/* Add the key of an event, under RCU.  @name: in the directory @d; or NULL */
static noinline_for_stack void add_event(const struct fs_source *src, const struct dentry *d,
					 const struct qstr *name, u32 mask)
{
	struct wq_source *s = READ_ONCE(src->s);
	bool is_dir = mask & FS_ISDIR, gone, rescan;
	const struct inode *inode;
	enum path_result result;
	struct fs_path p __uninitialized;
	size_t prefix_len;

	if (!s || READ_ONCE(src->ended) || (src->owner && is_own(src)))
		return;
	wq_source_prefix(s, &prefix_len);
	/*
	 * A file that was opened and then removed has no name.  But file systems can also drop a
	 * dentry that has one.
	 */
	gone = !name && d_unhashed(d) && !IS_ROOT(d);
	inode = gone ? d_inode_rcu(d) : NULL;
	/* A removal may be in progress.  It has a key of its own, for the name. */
	if (inode && !READ_ONCE(inode->i_nlink))
		return;
	if (gone)
		d = READ_ONCE(d->d_parent);
	result = path_of(&p, src, d, name, prefix_len, gone || (is_dir && name));
	if (result == PATH_OUTSIDE)
		return;
	if (result == PATH_UNKNOWN) {
		wq_source_rescan(s, NULL, 0);
		return;
	}
	rescan = result == PATH_CUT || gone;
	if (!passes(src, p.buf + p.start, p.end - p.start, is_dir || rescan,
		    (is_dir && name) || rescan))
		return;
	if (rescan) {
		rescan_path(s, &p);
		return;
	}
	if (p.start == p.end) {
		p.buf[--p.start] = '.';
		is_dir = false;
	}
	add_path(s, &p, is_dir && name);
}

static int fs_handle_event(struct fsnotify_group *group, u32 mask, const void *data, int data_type,
			   struct inode *dir, const struct qstr *name, u32 cookie,
			   struct fsnotify_iter_info *iter_info)
{
	struct fs_source *src = group->private;
	struct dentry *alias = NULL, *d;

	if (mask & WQ_FS_NAMES) {
		/* The caller holds the directory's dentry, so dput() does not drop the last. */
		d = alias = dir && name ? d_find_any_alias(dir) : NULL;
	} else {
		name = NULL;
		d = mask & WQ_FS_DEFAULT ? fsnotify_data_dentry(data, data_type) : NULL;
	}
	if (d) {
		rcu_read_lock();
		add_event(src, d, name, mask);
		rcu_read_unlock();
	}
	dput(alias);
	return 0;
}

/* A mark ends, by fs_unhook(), or because the directory or the super block does. */
static void fs_freeing_mark(struct fsnotify_mark *mark, struct fsnotify_group *group)
{
	struct fs_source *src = group->private;
	struct wq_source *s;
	int error = ENODEV;

	spin_lock(&src->lock);
	/*
	 * The mark on the directory pins its inode until this function returns.  If a removal is
	 * why the mark ends, the removal has set i_nlink before.
	 */
	if (mark == src->root && !READ_ONCE(src->inode->i_nlink))
		error = ENOENT;
	if (mark == src->root)
		src->root = NULL;
	if (mark == src->tree)
		src->tree = NULL;
	spin_unlock(&src->lock);
	/* From now on src->inode may be another inode's address. */
	WRITE_ONCE(src->ended, true);
	rcu_read_lock();
	s = READ_ONCE(src->s);
	if (s)
		wq_source_end(s, error);
	rcu_read_unlock();
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

static void fs_free_group(struct fsnotify_group *group)
{
	source_free(group->private);
	if (atomic_dec_and_test(&fs_groups))
		wake_up_var(&fs_groups);
}

static const struct fsnotify_ops fs_ops = {
	.handle_event = fs_handle_event,
	.freeing_mark = fs_freeing_mark,
	.free_mark = fs_free_mark,
	.free_group_priv = fs_free_group,
};

static struct fsnotify_mark *mark_new(struct fs_source *src, u32 mask)
{
	struct fsnotify_mark *mark = kzalloc_obj(*mark, WQ_SOURCE_GFP);

	if (mark) {
		fsnotify_init_mark(mark, src->group);
		mark->mask = mask;
	}
	return mark;
}

/* Destroy the mark that @slot points to, unless fsnotify is about to. */
static void mark_end(struct fs_source *src, struct fsnotify_mark **slot)
{
	struct fsnotify_mark *mark;

	spin_lock(&src->lock);
	mark = *slot;
	/* fs_freeing_mark() comes before fsnotify's last reference goes. */
	if (mark)
		refcount_inc(&mark->refcnt);
	spin_unlock(&src->lock);
	if (!mark)
		return;
	fsnotify_destroy_mark(mark, src->group);
	fsnotify_put_mark(mark);
}

/* No event for the source begins when this returns. */
static void marks_end(struct fs_source *src)
{
	WRITE_ONCE(src->s, NULL);
	mark_end(src, &src->tree);
	mark_end(src, &src->root);
}

/* fs_freeing_mark() may run as soon as the mark is added. */
static void mark_set(struct fs_source *src, struct fsnotify_mark **slot,
		     struct fsnotify_mark *mark)
{
	spin_lock(&src->lock);
	*slot = mark;
	spin_unlock(&src->lock);
}

static int marks_add(struct fs_source *src, struct inode *inode, u32 events, bool tree)
{
	u32 mask = FS_DELETE_SELF | FS_UNMOUNT | (tree ? 0 : events | FS_EVENT_ON_CHILD);
	struct fsnotify_mark *root, *mark;
	int ret;

	root = mark_new(src, mask);
	if (!root)
		return -ENOMEM;
	mark_set(src, &src->root, root);
	ret = fsnotify_add_inode_mark(root, inode, 0);
	if (ret) {
		mark_set(src, &src->root, NULL);
		fsnotify_put_mark(root);
		return ret;
	}
	if (tree) {
		mark = mark_new(src, events);
		ret = mark ? 0 : -ENOMEM;
		mark_set(src, &src->tree, mark);
		if (mark)
			ret = wq_add_sb_mark(mark, inode->i_sb);
		if (ret)
			mark_set(src, &src->tree, NULL);
		if (mark)
			fsnotify_put_mark(mark);
	}
	/* From here on the group and the inode hold it. */
	fsnotify_put_mark(root);
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
	u32 n = 0, inner = 0;

	if (src->rules_size && end[-1])
		return -EINVAL;
	for (rule = src->rules; rule < end; rule += strlen(rule) + 1) {
		if (rule[0] != WQ_FS_ONLY && rule[0] != WQ_FS_EXCLUDE)
			return -EINVAL;
		if (!pattern_is_valid(rule + 1))
			return -EINVAL;
		src->has_only |= rule[0] == WQ_FS_ONLY;
		inner += pattern_inner(rule + 1);
		if (++n > WQ_FS_MAX_RULES || inner > WQ_FS_MAX_INNER)
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
	spin_lock_init(&src->lock);
	src->s = s;
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
	int ret = may_watch(args, file);

	if (ret)
		return ret;
	src = source_new(s, args);
	if (IS_ERR(src))
		return PTR_ERR(src);
	src->inode = file_inode(file);
	src->group = fsnotify_alloc_group(&fs_ops, 0);
	if (IS_ERR(src->group)) {
		ret = PTR_ERR(src->group);
		source_free(src);
		return ret;
	}
	src->group->private = src;
	atomic_inc(&fs_groups);
	ret = marks_add(src, file_inode(file), args->events ?: WQ_FS_DEFAULT,
			!(args->flags & WQ_FS_CHILDREN));
	if (ret) {
		marks_end(src);
		/* Events in progress use @s. */
		synchronize_rcu();
		fsnotify_put_group(src->group);
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
	marks_end(wq_source_private(s));
}

static void fs_free(struct wq_source *s)
{
	struct fs_source *src = wq_source_private(s);

	fsnotify_put_group(src->group);
}

static struct wq_source_kind wq_fs_kind = {
	.name = "fs",
	.owner = THIS_MODULE,
	.args_size = sizeof(struct wq_fs_args),
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
