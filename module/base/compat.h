/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replacements for interfaces that some kernels since 6.1 do not have.  The rest of wq is
 * written for the newest spelling.  If a macro shows whether an interface is there, the
 * macro is tested and not the version, because stable kernels carry backports.
 */
#ifndef _WQ_COMPAT_H
#define _WQ_COMPAT_H

#include <linux/atomic.h>	/* for 6.1's <linux/shrinker.h> */
#include <linux/export.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/version.h>

/*
 * Whether two addresses of a page can have different contents in the data cache.  Came with 6.9;
 * before, an architecture that has such caches aligned shared memory to more than a page.  ARM does
 * so for all CPUs, although from ARMv7 on none has such caches, so it is asked for the CPU.
 */
#if KERNEL_VERSION(6, 9, 0) <= LINUX_VERSION_CODE
#include <linux/cacheinfo.h>
#elif defined(CONFIG_ARM)
#include <asm/cachetype.h>
#define cpu_dcache_is_aliasing()	(cache_is_vivt() || cache_is_vipt_aliasing())
#else
#include <asm/shmparam.h>
#define cpu_dcache_is_aliasing()	(SHMLBA > PAGE_SIZE)
#endif

#ifndef kmalloc_obj
#define kmalloc_obj(VAR, GFP)	kmalloc(sizeof(typeof(VAR)), GFP)
#define kzalloc_obj(VAR, GFP)	kzalloc(sizeof(typeof(VAR)), GFP)
#endif

/* Came with 6.9, and with backports to older kernels. */
#ifndef __uninitialized
#if __has_attribute(__uninitialized__)
#define __uninitialized	__attribute__((__uninitialized__))
#else
#define __uninitialized
#endif
#endif

/* Before 6.12 the header is <asm/unaligned.h>. */
#if KERNEL_VERSION(6, 12, 0) <= LINUX_VERSION_CODE
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif

/* 6.13 replaced hrtimer_init() by hrtimer_setup(). */
static inline void wq_hrtimer_setup(struct hrtimer *timer,
				    enum hrtimer_restart (*fn)(struct hrtimer *timer),
				    clockid_t clock, enum hrtimer_mode mode)
{
#if KERNEL_VERSION(6, 13, 0) > LINUX_VERSION_CODE
	hrtimer_init(timer, clock, mode);
	timer->function = fn;
#else
	hrtimer_setup(timer, fn, clock, mode);
#endif
}

/* Since 6.3, vm_flags must not be written directly. */
static inline void wq_vm_flags_mod(struct vm_area_struct *vma, unsigned long set,
				   unsigned long clear)
{
#if KERNEL_VERSION(6, 3, 0) > LINUX_VERSION_CODE
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#else
	vm_flags_mod(vma, set, clear);
#endif
}

/*
 * Inodes and mounts.  Since 6.3 a mount has a struct mnt_idmap in place of a user namespace, and
 * since 6.2 the access list of a dentry is set.
 */
#if KERNEL_VERSION(6, 3, 0) > LINUX_VERSION_CODE
#define mnt_idmap	user_namespace

static inline struct user_namespace *user_namespace(const struct vfsmount *mnt)
{
	return mnt_user_ns(mnt);
}
#endif

#if KERNEL_VERSION(6, 2, 0) > LINUX_VERSION_CODE
#define WQ_ACL_OWNER		struct inode
#define wq_acl_inode(owner)	(owner)
#ifdef CONFIG_FS_POSIX_ACL
#define WQ_ACL_XATTR		&posix_acl_access_xattr_handler,
#else
#define WQ_ACL_XATTR
#endif
#define wq_acl_chmod(idmap, dentry) \
	posix_acl_chmod(idmap, d_inode(dentry), d_inode(dentry)->i_mode)
#else
#define WQ_ACL_OWNER		struct dentry
#define wq_acl_inode(owner)	d_inode(owner)
#define WQ_ACL_XATTR
#define wq_acl_chmod(idmap, dentry) \
	posix_acl_chmod(idmap, dentry, d_inode(dentry)->i_mode)
#endif

/* 6.6 replaced writes of an inode's times by functions. */
#if KERNEL_VERSION(6, 6, 0) > LINUX_VERSION_CODE
static inline void wq_inode_set_ctime(struct inode *inode)
{
	inode->i_ctime = current_time(inode);
}
#else
static inline void wq_inode_set_ctime(struct inode *inode)
{
	inode_set_ctime_current(inode);
}
#endif
#if KERNEL_VERSION(6, 7, 0) > LINUX_VERSION_CODE
static inline void simple_inode_init_ts(struct inode *inode)
{
	wq_inode_set_ctime(inode);
	inode->i_atime = inode->i_ctime;
	inode->i_mtime = inode->i_ctime;
}
#endif

/* 6.16 replaced lookup_one_len(), which also checked a permission. */
static inline struct dentry *wq_lookup_noperm(const char *name, struct dentry *dir)
{
#if KERNEL_VERSION(6, 16, 0) > LINUX_VERSION_CODE
	return lookup_one_len(name, dir, strlen(name));
#else
	return lookup_noperm(&QSTR(name), dir);
#endif
}

/* In 6.19 pinned dentries got a flag of their own, and vfs_create() other arguments. */
static inline int wq_vfs_create(struct mnt_idmap *idmap, struct dentry *dentry, umode_t mode)
{
#if KERNEL_VERSION(6, 19, 0) > LINUX_VERSION_CODE
	return vfs_create(idmap, d_inode(dentry->d_parent), dentry, mode, true);
#else
	return vfs_create(idmap, dentry, mode, NULL);
#endif
}

#if KERNEL_VERSION(6, 19, 0) > LINUX_VERSION_CODE
static inline void d_make_persistent(struct dentry *dentry, struct inode *inode)
{
	d_instantiate(dentry, inode);
	dget(dentry);
}
#define wq_kill_pinned_super(sb)	kill_litter_super(sb)
#else
#define wq_kill_pinned_super(sb)	kill_anon_super(sb)
#endif

/* 7.3 removed the argument that create is exclusive. */
#if KERNEL_VERSION(7, 3, 0) > LINUX_VERSION_CODE
#define WQ_CREATE_MODE(mode)	umode_t (mode), bool excl
#else
#define WQ_CREATE_MODE(mode)	umode_t (mode)
#endif

typedef unsigned long wq_shrink_fn(struct shrinker *s, struct shrink_control *sc);

/* 6.7 replaced register_shrinker() by shrinker_alloc() and shrinker_register(). */
static inline struct shrinker *wq_shrinker_new(wq_shrink_fn *count, wq_shrink_fn *scan,
					       const char *name)
{
#if KERNEL_VERSION(6, 7, 0) > LINUX_VERSION_CODE
	struct shrinker *s = kzalloc_obj(*s, GFP_KERNEL);

	if (!s)
		return NULL;
	s->count_objects = count;
	s->scan_objects = scan;
	s->seeks = DEFAULT_SEEKS;
	if (register_shrinker(s, "%s", name)) {
		kfree(s);
		return NULL;
	}
#else
	struct shrinker *s = shrinker_alloc(0, "%s", name);

	if (!s)
		return NULL;
	s->count_objects = count;
	s->scan_objects = scan;
	shrinker_register(s);
#endif
	return s;
}

static inline void wq_shrinker_end(struct shrinker *s)
{
#if KERNEL_VERSION(6, 7, 0) > LINUX_VERSION_CODE
	unregister_shrinker(s);
	kfree(s);
#else
	shrinker_free(s);
#endif
}

/* <kunit/visibility.h> came with 6.2. */
#if KERNEL_VERSION(6, 2, 0) <= LINUX_VERSION_CODE
#include <kunit/visibility.h>
#endif
#if defined(WQ_KUNIT) || (IS_ENABLED(CONFIG_KUNIT) && !defined(EXPORT_SYMBOL_IF_KUNIT))
/* Also for tests/kunit/run-smp, which builds a KUnit for a kernel that has none. */
#undef EXPORT_SYMBOL_IF_KUNIT
#define EXPORT_SYMBOL_IF_KUNIT(sym)	EXPORT_SYMBOL_NS(sym, WQ_KUNIT_NS)
#elif !defined(EXPORT_SYMBOL_IF_KUNIT)
#define EXPORT_SYMBOL_IF_KUNIT(sym)
#endif

#if IS_ENABLED(CONFIG_KUNIT) || defined(WQ_KUNIT)
/* The namespace of these exports.  Since 6.13 it is a string. */
#if KERNEL_VERSION(6, 13, 0) > LINUX_VERSION_CODE
#define WQ_KUNIT_NS	EXPORTED_FOR_KUNIT_TESTING
#else
#define WQ_KUNIT_NS	"EXPORTED_FOR_KUNIT_TESTING"
#endif

/* 6.14 made it possible to initialize suites without a run. */
#if KERNEL_VERSION(6, 14, 0) > LINUX_VERSION_CODE
#define wq_kunit_suites_init(suites, n)	__kunit_test_suites_init(suites, n)
#else
#define wq_kunit_suites_init(suites, n)	__kunit_test_suites_init(suites, n, true)
#endif
#endif

/* Since 7.3 a workqueue is WQ_UNBOUND or WQ_PERCPU, which came with 6.17 and was the default. */
#if KERNEL_VERSION(6, 17, 0) > LINUX_VERSION_CODE
#define WQ_PERCPU	0
#endif

/* Before 6.10 it takes the list of marks.  A macro, as only one file knows fsnotify. */
#if KERNEL_VERSION(6, 10, 0) <= LINUX_VERSION_CODE
#define wq_add_sb_mark(mark, sb)	fsnotify_add_mark(mark, sb, FSNOTIFY_OBJ_TYPE_SB, 0)
#else
#define wq_add_sb_mark(mark, sb)	\
	fsnotify_add_mark(mark, &(sb)->s_fsnotify_marks, FSNOTIFY_OBJ_TYPE_SB, 0, NULL)
#endif

/* A macro, as only one file knows super blocks. */
#if IS_ENABLED(CONFIG_UNICODE)
#define wq_sb_has_encoding(sb)	(!!(sb)->s_encoding)
#else
#define wq_sb_has_encoding(sb)	((void)(sb), false)
#endif

/* Functions for BPF programs.  The attribute came with 6.3, the macros of the set with 6.9. */
#ifdef CONFIG_BPF_SYSCALL
#include <linux/btf.h>
#include <linux/btf_ids.h>
#ifndef __bpf_kfunc
#define __bpf_kfunc	noinline
#endif
#ifndef BTF_KFUNCS_START
#define BTF_SET8_KFUNCS		0
#define BTF_KFUNCS_START(name)	BTF_SET8_START(name)
#define BTF_KFUNCS_END(name)	BTF_SET8_END(name)
#endif
#endif

#endif /* _WQ_COMPAT_H */
