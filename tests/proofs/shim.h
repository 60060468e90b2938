/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel that the module's sources use, for cbmc: tests/proofs/run puts this in the
 * place of each <linux/...> header but those of wq.  Any allocation may fail.
 */
#ifndef _WQ_PROOFS_SHIM_H
#define _WQ_PROOFS_SHIM_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s8 __s8;
typedef s16 __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u64 __aligned_u64;
typedef unsigned int gfp_t;
typedef unsigned short umode_t;

#define __user
#define __cold
#define noinline
#define __always_inline	inline
#define __must_check
#define __printf(a, b)

#define U32_MAX		UINT32_MAX
#define U64_MAX		UINT64_MAX
#define S64_MAX		INT64_MAX
#define S64_MIN		INT64_MIN
#define MAX_ERRNO	4095
#define NSEC_PER_SEC	1000000000L
#define NSEC_PER_MSEC	1000000L

#ifndef SZ_4K
#define SZ_4K		4096
#endif

#define BIT(n)		(1UL << (n))
#define BIT_ULL(n)	(1ULL << (n))
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define likely(x)	(x)
#define unlikely(x)	(x)
#define READ_ONCE(x)	(x)
#define WRITE_ONCE(x, v)	((x) = (v))
#define data_race(x)	(x)
#define smp_wmb()
#define smp_rmb()
#define smp_store_mb(x, v)	((x) = (v))
#define smp_store_release(p, v)	(*(p) = (v))
#define smp_load_acquire(p)	(*(p))
#define xchg(p, v)	({ typeof(*(p)) __old = *(p); *(p) = (v); __old; })
#define kcsan_nestable_atomic_begin()
#define kcsan_nestable_atomic_end()
#define prefetch(p)	((void)(p))
#define prefetchw(p)	((void)(p))
#define WARN_ON_ONCE(x)	({ bool __warns = (x); assert(!__warns); __warns; })
#define IS_ENABLED(option)	0
#define KERNEL_VERSION(a, b, c)	(((a) << 16) + ((b) << 8) + (c))
#define LINUX_VERSION_CODE	KERNEL_VERSION(6, 1, 0)

#define min(a, b)	({ typeof(a) __a = (a); typeof(b) __b = (b); __a < __b ? __a : __b; })
#define max(a, b)	({ typeof(a) __a = (a); typeof(b) __b = (b); __a > __b ? __a : __b; })
#define min_t(t, a, b)	min((t)(a), (t)(b))
#define max_t(t, a, b)	max((t)(a), (t)(b))
#define clamp_t(t, v, lo, hi)	min_t(t, max_t(t, v, lo), hi)

#define static_assert(expr, ...)	_Static_assert(expr, "")
#define check_mul_overflow(a, b, d)	__builtin_mul_overflow(a, b, d)
#define check_add_overflow(a, b, d)	__builtin_add_overflow(a, b, d)
#define struct_size(p, member, n)	(sizeof(*(p)) + (n) * sizeof(*(p)->member))
#define offsetofend(type, member)	(offsetof(type, member) + sizeof(((type *)0)->member))
#define container_of(p, type, member)	((type *)((char *)(p) - offsetof(type, member)))

#define EXPORT_SYMBOL_GPL(s)
#define EXPORT_SYMBOL_IF_KUNIT(s)

struct list_head {
	struct list_head *next, *prev;
};

struct rb_node {
	struct rb_node *rb_left, *rb_right;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rcu_head {
	struct rcu_head *next;
};

struct lockdep_map {
	int unused;
};

struct lock_class_key {
	int unused;
};

typedef struct {
	u32 val;
} kuid_t, kgid_t;

static inline void *ERR_PTR(long error)
{
	return (void *)error;
}

static inline long PTR_ERR(const void *p)
{
	return (long)p;
}

static inline bool IS_ERR(const void *p)
{
	return (unsigned long)p >= (unsigned long)-MAX_ERRNO;
}

static inline bool IS_ERR_OR_NULL(const void *p)
{
	return !p || IS_ERR(p);
}

/* The number of the highest bit, from 1 on. */
static inline int fls(u32 x)
{
	int bit = 0;

	for (; x; x >>= 1)
		bit++;
	return bit;
}

bool nondet_bool(void);
u32 nondet_u32(void);
u64 nondet_u64(void);
s64 nondet_s64(void);

#define GFP_KERNEL_ACCOUNT	0
#define __GFP_NOWARN	0
#define __GFP_RETRY_MAYFAIL	0

static inline void *kzalloc(size_t size, gfp_t gfp)
{
	return nondet_bool() ? NULL : calloc(1, size);
}

#define kzalloc_obj(var, gfp)	kzalloc(sizeof(typeof(var)), gfp)
#define kfree(p)		free((void *)(p))
#define kfree_rcu(p, member)	kfree(p)

/* A quotient is any number that is one, which is easier to solve than a division. */
static inline u64 div64_u64_rem(u64 n, u64 d, u64 *rem)
{
	u64 q = nondet_u64(), r = nondet_u64();

	__CPROVER_assume(r < d);
	__CPROVER_assume((unsigned __int128)q * d + r == n);
	*rem = r;
	return q;
}

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (unsigned __int128)a * b >> shift;
}

#endif /* _WQ_PROOFS_SHIM_H */
