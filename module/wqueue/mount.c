// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqueue, the file system of queues: each file is a queue.
 *
 * Names, permissions, listing, ACLs and labels are those of the VFS.  A queue is a named pipe to
 * it (S_IFIFO): programs that walk trees of files do not open it, it has no data to truncate, and
 * a file system that is mounted read-only does not keep processes from adding keys.
 *
 * Each mount is a set of names, and a set is a super block.  The default set is that of /dev/wq and
 * of kernel modules' queues.  A mount in the initial user namespace is one of the default set,
 * unless it asks for a new instance.  A mount in another user namespace is always a new set, owned
 * by that namespace.
 *
 * Lifetimes:
 *
 *  - An inode has a reference to its queue, and drops it when it is evicted.  All paths to a queue
 *    are pinned dentries, as in tmpfs, until it is unlinked or its set ends.
 *  - An open file has a path, which keeps the inode.  So the owner and the mode of a queue can
 *    be read from its inode in each call of a process.  The file of /dev/wq has a path in a mount
 *    of the kernel's, which exists while such files are open.
 *  - A set ends with its last mount, and all of its queues end with it.  The default set does not
 *    end while it has queues: each of them counts as a user of the super block (s_active).
 *  - A super block pins the module.  So the module stays while a set is mounted or the default set
 *    has a queue.
 *  - The queues of a set that ends lose their names with s_umount held, which sync(2) of the whole
 *    machine waits for.  They end in wq_kill_sb() when the lock is free, in the task that unmounts.
 *
 * Locks: the lock of the set's directory (i_rwsem) serializes create and unlink, and protects
 * wq_set.nr_queues.  As in all file systems, a task that its cgroup throttles while it holds that
 * lock holds up other creators, but no opens of queues that exist.  So a call of WQ_IOC_OPEN makes
 * its queue before it takes the lock.  Order: i_rwsem, wq.lock.
 */
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/fs_struct.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/security.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/user_namespace.h>
#include <linux/xattr.h>

#include "queue/queue.h"
#include "ratelimit.h"
#include "state/lock.h"
#include "wqueue/mount.h"
#include "wqueue/name.h"

#include "base/compat.h"

/**
 * struct wq_set - a set of names
 * @max_keys: what a queue without wq_attrs.max_keys gets; 0: WQ_DEFAULT_KEYS
 * @max_queues: the most queues; 0: no limit but the users' quotas
 * @nr_queues: number of queues
 * @ends: the set ends: wq_evict_inode() adds the queues to @ending
 * @ending: queues whose inode is gone, with its reference.  Tasks that end marks of inotify or
 *	rules of Landlock on a queue may drop the last references of inodes at the same time as the
 *	task that ends the set, which waits for them
 */
struct wq_set {
	u32 max_keys;
	u32 max_queues;
	u32 nr_queues;
	bool ends;
	struct llist_head ending;
};

/*
 * wqctl reload closes the default set while it removes queues and makes them again, so that no user
 * takes a name meanwhile.  A create that begins after an unlink sees a store ahead of the unlink,
 * because both hold the lock of the directory.
 */
static bool closed;
module_param(closed, bool, 0644);
MODULE_PARM_DESC(closed, "only root can create queues in the default set (default: N)");

static struct wq_set wq_default;
static struct file_system_type wq_fs_type;
static const struct file_operations *wq_queue_fops, *wq_dir_fops;

/* The kernel's mount of the default set, while it has users. */
static struct vfsmount *wq_default_mnt;
static int wq_default_users;

static struct wq_set *set_of(const struct inode *inode)
{
	return inode->i_sb->s_fs_info;
}

#ifdef CONFIG_FS_POSIX_ACL
#define WQ_MAX_ACL	64	/* entries */

/* Access lists are kept in the inode's cache, which nothing but a change replaces. */
static int wq_set_acl(struct mnt_idmap *idmap, WQ_ACL_OWNER *owner, struct posix_acl *acl, int type)
{
	struct inode *inode = wq_acl_inode(owner);
	int ret;

	if (type != ACL_TYPE_ACCESS)
		return acl ? -EOPNOTSUPP : 0;
	/* Its memory is a part of WQ_FILE_BYTES, and no cgroup is charged for it. */
	if (acl && acl->a_count > WQ_MAX_ACL)
		return -ENOSPC;
	if (acl) {
		ret = posix_acl_update_mode(idmap, inode, &inode->i_mode, &acl);
		if (ret)
			return ret;
	}
	wq_inode_set_ctime(inode);
	set_cached_acl(inode, type, acl);
	return 0;
}
#else
#define wq_set_acl	NULL
#endif

/* Charge the new owner of a queue, before anything changes. */
static int charge_owner(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	const struct user_namespace *ns = inode->i_sb->s_user_ns;
	struct wq *q = inode->i_private;
	int ret;

	/* A directory has no queue. */
	if (!q || !q->of_process || !(attr->ia_valid & ATTR_UID))
		return 0;
	ret = setattr_prepare(idmap, dentry, attr);
	if (ret || !i_uid_needs_update(idmap, attr, inode))
		return ret;
	return wq_give(q, from_vfsuid(idmap, i_user_ns(inode), attr->ia_vfsuid), ns);
}

/* The caller holds the lock of the inode, so the owner and the charged user change together. */
static int wq_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	int ret = charge_owner(idmap, dentry, attr) ?: simple_setattr(idmap, dentry, attr);

	if (!ret && attr->ia_valid & ATTR_MODE)
		ret = wq_acl_chmod(idmap, dentry);
	return ret;
}

/* The module that the label belongs to stores it, if there is one. */
static int label_set(const struct xattr_handler *handler, struct mnt_idmap *idmap,
		     struct dentry *dentry, struct inode *inode, const char *name,
		     const void *value, size_t size, int flags)
{
	return -EAGAIN;
}

static const struct xattr_handler wq_label = {
	.prefix = XATTR_SECURITY_PREFIX,
	.set = label_set,
};

static const struct xattr_handler *wq_xattrs[] = { &wq_label, WQ_ACL_XATTR NULL };

static const struct inode_operations wq_queue_iops = {
	.setattr = wq_setattr,
	.set_acl = wq_set_acl,
};

static struct inode *inode_new(struct super_block *sb)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	simple_inode_init_ts(inode);
	cache_no_acl(inode);
	return inode;
}

/* Add a queue to its set.  The inode takes over a reference to it. */
static void set_insert(struct inode *dir, struct dentry *dentry, struct inode *inode, struct wq *q)
{
	bool is_default = set_of(dir) == &wq_default;

	inode->i_op = &wq_queue_iops;
	inode->i_fop = wq_queue_fops;
	inode->i_private = q;
	set_of(dir)->nr_queues++;
	if (is_default)
		atomic_inc(&dir->i_sb->s_active);
	wq_name_show(q, is_default);
	simple_inode_init_ts(dir);
	d_make_persistent(dentry, inode);
}

static void set_remove(struct inode *dir, struct dentry *dentry)
{
	struct wq *q = d_inode(dentry)->i_private;

	wq_name_unlinked(q);
	set_of(dir)->nr_queues--;
	simple_unlink(dir, dentry);
	/* Not the last user: the caller has a mount. */
	if (set_of(dir) == &wq_default)
		deactivate_super(dir->i_sb);
}

static int wq_dir_create(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry,
			 WQ_CREATE_MODE(mode))
{
	struct wq_attrs plain = { .size = sizeof(plain) };
	struct wq_set *set = set_of(dir);
	struct wq *q = dentry->d_fsdata;	/* of WQ_IOC_OPEN, or NULL */
	struct inode *inode;
	int ret;

	if (dentry->d_name.len >= WQ_NAME_MAX)
		return -ENAMETOOLONG;
	ret = wq_name_check(dentry->d_name.name);
	if (ret)
		return ret;
	if (set == &wq_default && READ_ONCE(closed) && !capable(CAP_DAC_OVERRIDE))
		return -EACCES;
	if (set->nr_queues >= (READ_ONCE(set->max_queues) ?: U32_MAX))
		return -ENOSPC;
	inode = inode_new(dir->i_sb);
	if (!inode)
		return -ENOMEM;
	if (!q) {
		strscpy(plain.name, dentry->d_name.name, sizeof(plain.name));
		q = wq_create_for_caller(&plain, READ_ONCE(set->max_keys), NULL);
		if (IS_ERR(q)) {
			iput(inode);
			return PTR_ERR(q);
		}
	}
	/* The VFS leaves the umask to file systems with ACLs. */
	inode_init_owner(idmap, inode, dir, S_IFIFO | (mode & 0777 & ~current_umask()));
	set_insert(dir, dentry, inode, q);
	return 0;
}

static int wq_dir_unlink(struct inode *dir, struct dentry *dentry)
{
	struct wq *q = d_inode(dentry)->i_private;

	/* That of a kernel module is not the processes'. */
	if (!q->of_process)
		return -EPERM;
	set_remove(dir, dentry);
	return 0;
}

static const struct inode_operations wq_dir_iops = {
	.lookup = simple_lookup,
	.create = wq_dir_create,
	.unlink = wq_dir_unlink,
	.setattr = wq_setattr,
	.set_acl = wq_set_acl,
};

/*
 * Names, for the kernel and for WQ_IOC_OPEN
 */

/* The dentry of a queue that exists, or NULL. */
static struct dentry *set_find(struct dentry *dir, const char *name)
{
	struct qstr q = QSTR_INIT(name, strlen(name));
	struct dentry *dentry;

	q.hash = full_name_hash(dir, q.name, q.len);
	dentry = d_lookup(dir, &q);
	if (dentry && d_really_is_positive(dentry))
		return dentry;
	dput(dentry);
	return NULL;
}

/*
 * Add *@made to a set.  Returns its dentry, and *@made is NULL.  If another task has added a queue
 * of that name meanwhile, it returns that queue's dentry.  On error it returns an ERR_PTR.
 */
static struct dentry *set_create(const struct path *dir, const struct wq_attrs *args,
				 struct wq **made)
{
	struct inode *inode = d_inode(dir->dentry);
	struct dentry *dentry;
	int ret;

	ret = mnt_want_write(dir->mnt);
	if (ret)
		return ERR_PTR(ret);
	inode_lock_nested(inode, I_MUTEX_PARENT);
	dentry = wq_lookup_noperm(args->name, dir->dentry);
	if (!IS_ERR(dentry) && d_really_is_negative(dentry)) {
		/* wq_dir_create() reads it with the lock held. */
		dentry->d_fsdata = *made;
		/* open(2) asks this hook and vfs_create() does not.  It asks for a regular file. */
		ret = security_path_mknod(dir, dentry, S_IFREG | args->mode, 0) ?:
			wq_vfs_create(mnt_idmap(dir->mnt), dentry, args->mode);
		dentry->d_fsdata = NULL;
		if (!ret)
			*made = NULL;
	}
	inode_unlock(inode);
	mnt_drop_write(dir->mnt);
	if (ret) {
		dput(dentry);
		return ERR_PTR(ret);
	}
	return dentry;
}

/* Whether the caller may open a queue that exists, and it has the attributes asked for. */
static int check_found(const struct path *dir, struct dentry *dentry, const struct wq_attrs *args,
		       struct wq_limiter *limiter, fmode_t fmode)
{
	struct inode *inode = d_inode(dentry);
	int ret;

	if (args->flags & WQ_OPEN_EXCL)
		return -EEXIST;
	ret = inode_permission(mnt_idmap(dir->mnt), inode, (fmode & FMODE_READ ? MAY_READ : 0) |
			       (fmode & FMODE_WRITE ? MAY_WRITE : 0));
	if (ret || args->flags & WQ_OPEN_ACCEPT)
		return ret;
	return wq_differs_from_asked(inode->i_private, args, limiter) ? -EEXIST : 0;
}

/**
 * wq_mount_open() - open or create a queue with attributes
 * @dir: the directory of a set
 * @args: arguments of WQ_IOC_OPEN, checked, with a name
 * @limiter: limiter of a new queue, NULL: the default one; taken over even on error
 * @fmode: what the process wants to do
 * @to: receives a path with references
 *
 * Return: 1 if it made the queue, 0 if there was one, or an error of WQ_IOC_OPEN.
 */
int wq_mount_open(const struct path *dir, const struct wq_attrs *args, struct wq_limiter *limiter,
		  fmode_t fmode, struct path *to)
{
	struct inode *inode = d_inode(dir->dentry);
	struct wq *made = NULL;
	struct dentry *dentry;
	bool found = true;
	int ret;

	ret = inode_permission(mnt_idmap(dir->mnt), inode, MAY_EXEC);
	dentry = ret ? NULL : set_find(dir->dentry, args->name);
	if (!ret && !dentry && !(args->flags & WQ_OPEN_CREATE))
		ret = -ENOENT;
	if (!ret && !dentry) {
		made = wq_create_for_caller(args, READ_ONCE(set_of(inode)->max_keys), limiter);
		if (IS_ERR(made))
			return PTR_ERR(made);
		/* From here on the queue has it. */
		limiter = made->limiter;
		dentry = set_create(dir, args, &made);
		ret = PTR_ERR_OR_ZERO(dentry);
		found = made;
	}
	if (!ret && found)
		ret = check_found(dir, dentry, args, args->num_limiters ? limiter : NULL, fmode);
	if (!ret)
		*to = (struct path){ .mnt = mntget(dir->mnt), .dentry = dget(dentry) };
	if (!IS_ERR(dentry))
		dput(dentry);
	if (made)
		wq_put(made);
	else if (found)
		wq_limiter_drop(limiter);
	return ret ?: !found;
}

/* Remove a queue that wq_mount_open() has made, unless another task has opened it since then. */
void wq_mount_undo(const struct path *path)
{
	struct dentry *root = path->mnt->mnt_sb->s_root;
	struct wq *q = wq_mount_queue(path);
	struct wq_cs cs;
	bool used;

	inode_lock_nested(d_inode(root), I_MUTEX_PARENT);
	wq_lock(&cs, q);
	used = q->nr_consumers || wq_nr_keys(q);
	wq_unlock(&cs);
	if (!used && !d_unhashed(path->dentry)) {
		set_remove(d_inode(root), path->dentry);
		d_delete(path->dentry);
	}
	inode_unlock(d_inode(root));
}

static int default_dir(struct path *dir)
{
	int ret = simple_pin_fs(&wq_fs_type, &wq_default_mnt, &wq_default_users);

	if (!ret)
		*dir = (struct path){ .mnt = wq_default_mnt, .dentry = wq_default_mnt->mnt_root };
	return ret;
}

static void default_put(void)
{
	simple_release_fs(&wq_default_mnt, &wq_default_users);
}

/* wq_mount_open() in the default set. Return: 0, or an error. */
int wq_mount_open_default(const struct wq_attrs *args, struct wq_limiter *limiter, fmode_t fmode,
			  struct path *to)
{
	struct path dir;
	int ret = default_dir(&dir);

	if (ret) {
		wq_limiter_drop(limiter);
		return ret;
	}
	ret = wq_mount_open(&dir, args, limiter, fmode, to);
	if (ret < 0)
		default_put();
	return min(ret, 0);
}

/* Another file gets the path of a file. */
void wq_mount_path_get(const struct path *path)
{
	path_get(path);
	/* The other file is a user, too, so this call cannot fail. */
	if (path->mnt == READ_ONCE(wq_default_mnt))
		simple_pin_fs(&wq_fs_type, &wq_default_mnt, &wq_default_users);
}

void wq_mount_path_put(const struct path *path)
{
	/* It cannot change meanwhile if it is equal, because the path's file is a user. */
	bool is_default = path->mnt == READ_ONCE(wq_default_mnt);

	path_put(path);
	if (is_default)
		default_put();
}

/* Unlink a name of the default set for a process. */
int wq_mount_unlink(const char *name)
{
	struct inode *dir, *inode = NULL;
	struct dentry *dentry;
	struct path path;
	int ret = default_dir(&path);

	if (ret)
		return ret;
	ret = mnt_want_write(path.mnt);
	if (ret)
		goto put;
	dir = d_inode(path.dentry);
	inode_lock_nested(dir, I_MUTEX_PARENT);
	dentry = set_find(path.dentry, name);
	ret = -ENOENT;
	if (dentry) {
		/* The queue may end with its inode, which takes long. */
		inode = d_inode(dentry);
		ihold(inode);
		/* unlink(2) asks this hook and vfs_unlink() does not. */
		ret = security_path_unlink(&path, dentry) ?:
			vfs_unlink(mnt_idmap(path.mnt), dir, dentry, NULL);
	}
	inode_unlock(dir);
	dput(dentry);
	iput(inode);
	mnt_drop_write(path.mnt);
put:
	default_put();
	return ret;
}

/*
 * Publish a queue of a kernel module: with a mode it is a file in the default set; with a name
 * alone it is shown in debugfs.
 */
int wq_mount_publish(struct wq *q, umode_t mode)
{
	struct dentry *dentry;
	struct inode *inode;
	struct path path;
	int ret = 0;

	if (!mode) {
		if (q->name[0])
			wq_name_show(q, false);
		return 0;
	}
	ret = default_dir(&path);
	if (ret)
		return ret;
	ret = down_write_killable(&d_inode(path.dentry)->i_rwsem);
	if (ret) {
		default_put();
		return ret;
	}
	dentry = wq_lookup_noperm(q->name, path.dentry);
	inode = IS_ERR(dentry) ? NULL : inode_new(path.dentry->d_sb);
	if (IS_ERR(dentry)) {
		ret = PTR_ERR(dentry);
	} else if (d_really_is_positive(dentry)) {
		ret = -EEXIST;
	} else if (!inode) {
		ret = -ENOMEM;
	} else {
		inode->i_mode = S_IFIFO | mode;
		set_insert(d_inode(path.dentry), dentry, inode, wq_ref(q));
		q->published = true;
		inode = NULL;
	}
	inode_unlock(d_inode(path.dentry));
	iput(inode);
	if (!IS_ERR(dentry))
		dput(dentry);
	/* If it is published, the queue is a user, so that wq_mount_withdraw() cannot fail. */
	if (ret)
		default_put();
	return ret;
}

/* Undo wq_mount_publish(). */
void wq_mount_withdraw(struct wq *q)
{
	struct dentry *root, *dentry;

	if (!q->published) {
		wq_name_hide(q);
		return;
	}
	root = wq_default_mnt->mnt_root;
	inode_lock(d_inode(root));
	dentry = set_find(root, q->name);
	set_remove(d_inode(root), dentry);
	d_delete(dentry);
	inode_unlock(d_inode(root));
	dput(dentry);
	default_put();
}

/*
 * Super blocks and mounts
 */

static void wq_evict_inode(struct inode *inode)
{
	struct wq *q = inode->i_private;

	clear_inode(inode);
	if (!q)
		return;
	/* If the set ends, it was not unlinked. */
	wq_name_hide(q);
	if (READ_ONCE(set_of(inode)->ends))
		llist_add(&q->ending, &set_of(inode)->ending);
	else
		wq_put(q);
}

static int wq_statfs(struct dentry *dentry, struct kstatfs *st)
{
	int ret = simple_statfs(dentry, st);

	st->f_namelen = WQ_NAME_MAX - 1;
	return ret;
}

/* A remount or a chmod can come in between, so the options need not be of one moment. */
static int wq_show_options(struct seq_file *m, struct dentry *root)
{
	const struct inode *dir = d_inode(root->d_sb->s_root);
	struct user_namespace *ns = root->d_sb->s_user_ns;
	const struct wq_set *set = set_of(d_inode(root));
	uid_t uid = from_kuid_munged(ns, READ_ONCE(dir->i_uid));
	gid_t gid = from_kgid_munged(ns, READ_ONCE(dir->i_gid));
	u32 max_keys = READ_ONCE(set->max_keys), max_queues = READ_ONCE(set->max_queues);

	seq_printf(m, ",mode=%o", READ_ONCE(dir->i_mode) & 07777);
	if (uid)
		seq_printf(m, ",uid=%u", uid);
	if (gid)
		seq_printf(m, ",gid=%u", gid);
	if (max_keys)
		seq_printf(m, ",keys=%u", max_keys);
	if (max_queues)
		seq_printf(m, ",queues=%u", max_queues);
	return 0;
}

static const struct super_operations wq_super_ops = {
	.evict_inode = wq_evict_inode,
	.statfs = wq_statfs,
	.show_options = wq_show_options,
};

enum { OPT_KEYS, OPT_QUEUES, OPT_UID, OPT_GID, OPT_MODE, OPT_NEW };

static const struct fs_parameter_spec wq_parameters[] = {
	fsparam_u32("keys", OPT_KEYS),
	fsparam_u32("queues", OPT_QUEUES),
	fsparam_u32("uid", OPT_UID),
	fsparam_u32("gid", OPT_GID),
	fsparam_u32oct("mode", OPT_MODE),
	fsparam_flag("newinstance", OPT_NEW),
	{}
};

/* The options of a mount: those in @given, bits of OPT_*. */
struct wq_mount_options {
	u32 given;
	u32 max_keys;
	u32 max_queues;
	kuid_t uid;
	kgid_t gid;
	umode_t mode;
};

static int wq_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct fs_parse_result result;
	struct wq_mount_options *o = fc->fs_private;
	int opt = fs_parse(fc, wq_parameters, param, &result);
	u32 value = result.uint_32;

	switch (opt) {
	case OPT_KEYS:
		if (!value || value > WQ_MAX_KEYS)
			return invalf(fc, "wqueue: keys is not 1 to %u", WQ_MAX_KEYS);
		o->max_keys = value;
		break;
	case OPT_QUEUES:
		o->max_queues = value;
		break;
	case OPT_UID:
		o->uid = make_kuid(current_user_ns(), value);
		if (!kuid_has_mapping(fc->user_ns, o->uid))
			return invalf(fc, "wqueue: there is no uid %u", value);
		break;
	case OPT_GID:
		o->gid = make_kgid(current_user_ns(), value);
		if (!kgid_has_mapping(fc->user_ns, o->gid))
			return invalf(fc, "wqueue: there is no gid %u", value);
		break;
	case OPT_MODE:
		if (value & ~01777)
			return invalf(fc, "wqueue: mode is not 0 to 01777");
		o->mode = value;
		break;
	case OPT_NEW:
		break;
	default:
		return opt;
	}
	o->given |= BIT(opt);
	return 0;
}

/*
 * Apply options to a set: the last mount or remount of a set counts.
 *
 * The caller holds s_umount, which sync(2) waits for.  So this does not wait for the lock of the
 * directory: a reader holds it while it writes to its memory, which can take for ever.  Each option
 * is one store, so a chmod at the same time comes before or after it.
 */
static void options_apply(struct super_block *sb, const struct wq_mount_options *o)
{
	struct inode *dir = d_inode(sb->s_root);
	struct wq_set *set = sb->s_fs_info;

	if (o->given & BIT(OPT_KEYS))
		WRITE_ONCE(set->max_keys, o->max_keys);
	if (o->given & BIT(OPT_QUEUES))
		WRITE_ONCE(set->max_queues, o->max_queues);
	/* Permission checks and wq_show_options() read them without the lock. */
	if (o->given & BIT(OPT_UID))
		WRITE_ONCE(dir->i_uid, o->uid);
	if (o->given & BIT(OPT_GID))
		WRITE_ONCE(dir->i_gid, o->gid);
	if (o->given & BIT(OPT_MODE))
		WRITE_ONCE(dir->i_mode, S_IFDIR | o->mode);
}

static int wq_fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct wq_set *set = sb->s_fs_info;
	struct inode *dir;

	*set = (struct wq_set){};
	init_llist_head(&set->ending);
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_magic = WQUEUE_MAGIC;
	sb->s_op = &wq_super_ops;
	sb->s_xattr = wq_xattrs;
	sb->s_time_gran = 1;
	sb->s_flags |= SB_POSIXACL;
	sb->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	/* As procfs does: above overlayfs, a queue would be an ordinary pipe, without an error. */
	sb->s_stack_depth = FILESYSTEM_MAX_STACK_DEPTH;
	dir = inode_new(sb);
	if (!dir)
		return -ENOMEM;
	dir->i_mode = S_IFDIR | 01777;
	dir->i_op = &wq_dir_iops;
	dir->i_fop = wq_dir_fops;
	set_nlink(dir, 2);
	/* Any process can be the first user of the default set, which is root's. */
	if (set != &wq_default) {
		dir->i_uid = current_fsuid();
		dir->i_gid = current_fsgid();
	}
	sb->s_root = d_make_root(dir);
	if (!sb->s_root)
		return -ENOMEM;
	options_apply(sb, fc->fs_private);
	return 0;
}

static int wq_get_tree(struct fs_context *fc)
{
	const struct wq_mount_options *o = fc->fs_private;
	int ret;

	if (o->given & BIT(OPT_NEW) || fc->user_ns != &init_user_ns) {
		fc->s_fs_info = kzalloc_obj(struct wq_set, GFP_KERNEL_ACCOUNT);
		return fc->s_fs_info ? get_tree_nodev(fc, wq_fill_super) : -ENOMEM;
	}
	fc->global = true;
	ret = get_tree_keyed(fc, wq_fill_super, &wq_default);
	if (!ret)
		options_apply(fc->root->d_sb, o);
	return ret;
}

static int wq_reconfigure(struct fs_context *fc)
{
	options_apply(fc->root->d_sb, fc->fs_private);
	return 0;
}

static void wq_free_fc(struct fs_context *fc)
{
	if (fc->s_fs_info != &wq_default)
		kfree(fc->s_fs_info);
	kfree(fc->fs_private);
}

static const struct fs_context_operations wq_context_ops = {
	.free = wq_free_fc,
	.parse_param = wq_parse_param,
	.get_tree = wq_get_tree,
	.reconfigure = wq_reconfigure,
};

static int wq_init_fs_context(struct fs_context *fc)
{
	fc->fs_private = kzalloc_obj(struct wq_mount_options, GFP_KERNEL_ACCOUNT);
	if (!fc->fs_private)
		return -ENOMEM;
	/* The kernel's mount is made by the first user, whose namespace can be any. */
	if (fc->sb_flags & SB_KERNMOUNT) {
		put_user_ns(fc->user_ns);
		fc->user_ns = get_user_ns(&init_user_ns);
	}
	fc->ops = &wq_context_ops;
	return 0;
}

static void wq_kill_sb(struct super_block *sb)
{
	struct wq_set *set = sb->s_fs_info;
	struct wq *q, *next;

	/* The default set has no queue any more, and the next mount may use the struct at once. */
	if (set == &wq_default) {
		wq_kill_pinned_super(sb);
		return;
	}
	WRITE_ONCE(set->ends, true);
	/* Releases s_umount. */
	wq_kill_pinned_super(sb);
	llist_for_each_entry_safe(q, next, llist_del_all(&set->ending), ending)
		wq_put(q);
	kfree(set);
}

static struct file_system_type wq_fs_type = {
	.owner = THIS_MODULE,
	.name = "wqueue",
	.init_fs_context = wq_init_fs_context,
	.parameters = wq_parameters,
	.kill_sb = wq_kill_sb,
	.fs_flags = FS_USERNS_MOUNT,
};
MODULE_ALIAS_FS("wqueue");

/* @queue: operations of a queue's file, @dir: of a directory.  They are above this file. */
int wq_mount_init(const struct file_operations *queue, const struct file_operations *dir)
{
	wq_queue_fops = queue;
	wq_dir_fops = dir;
	return register_filesystem(&wq_fs_type);
}

/* No set exists any more: each of them pinned the module. */
void wq_mount_exit(void)
{
	unregister_filesystem(&wq_fs_type);
}
