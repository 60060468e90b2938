/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Entries: the states of a key, and the memory of an entry, see base/entry.c.
 */
#ifndef _WQ_ENTRY_H
#define _WQ_ENTRY_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/container_of.h>
#include <linux/err.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/prefetch.h>
#include <linux/rcupdate.h>
#include <linux/string.h>
#include <linux/wq.h>

#include "base/compat.h"
#include "base/mem.h"

/* wq_entry.state; state/state.h has the diagram */
#define ENTRY_DIRTY		BIT(0)	/* needs a run */
#define ENTRY_PROCESSING	BIT(1)	/* a consumer holds it */
#define ENTRY_REQUEUED		BIT(2)	/* with DIRTY: in wq.requeued, not in the policy */
#define ENTRY_DELAYED		BIT(3)	/* in the heap; combines with each of the above */
#define ENTRY_RETAINED		BIT(4)	/* alone: needs no run, its failures are remembered */
#define ENTRY_IDLE		BIT(5)	/* alone: in wq.idle, for the key's next add */
#define ENTRY_PARKED		BIT(6)	/* alone: is parked; with PROCESSING: after the run */

/* The bit fields of struct wq_entry are wide enough. */
#define WQ_MAX_FAILURES	(BIT(19) - 1)	/* this many failures, or more */
static_assert(WQ_MAX_KEYS <= 1 << 25);	/* heap */
static_assert(WQ_MAX_KEY < 1 << 11);	/* len */
static_assert(WQ_MAX_GIVEN_BACK < 1 << 6);	/* given_back */
static_assert(WQ_MAX_RETRIES < WQ_MAX_FAILURES);
static_assert(MAX_ERRNO < 1 << 25);		/* heap */
static_assert(!IS_ENABLED(CONFIG_64BIT) || sizeof(struct wq_entry) == 48);

struct wq_group;

/* An entry together with its key. */
struct wq_key {
	struct wq_entry entry;
	u8 key[];
};

/* The lease of an entry, see base/lease.c. */
struct wq_lease {
	struct list_head link;	/* in wq.leases while the lease runs; see also levels.c */
	s64 end;		/* ns on the queue's clock */
};

/* The data of an entry that the order or @max_defer of its queue uses. */
struct wq_rank {
	s64 limit;		/* while it is delayed: the latest end of the delay, if any */
	union {
		struct list_head ready;	/* while the policy has it: by the time it became ready */
		bool counted;	/* groups: while it is handed out, it has one of the places */
	};
	union {
		/* in a queue with levels, see order/priority.c */
		struct {
			s8 pending;	/* of the run that the entry waits for */
			s8 delayed;	/* of the pending delay */
			s8 held;	/* of the list that has the entry, or of its run */
		};
		/* in a queue of groups without levels, see order/groups.c */
		struct wq_group *group;
		u64 space;
	};
};

/* Why a key is parked: a text, which not each parked key has. */
struct wq_reason {
	u8 len;
	char text[WQ_MAX_REASON];
};

/*
 * The memory ahead of an entry, all of it for a struct wq_embedded_ordered.  Otherwise its size is
 * in wq.prefix:
 *  - all of this in queues of groups with levels
 *  - else @rank, @lease and @times in queues whose order or @max_defer uses @rank
 *  - else @lease and @times in queues that were created with a lease
 *  - else @times in queues that keep times
 *  - else nothing
 */
struct wq_prefix {
	union {
		struct wq_group *group;
		u64 space;
	};
	struct wq_rank rank;
	struct wq_lease lease;
	struct wq_times times;
};

#define WQ_PREFIX_LEVELED	sizeof(struct wq_prefix)
#define WQ_PREFIX_ORDER	(sizeof(struct wq_prefix) - offsetof(struct wq_prefix, rank))
#define WQ_PREFIX_LEASE	(sizeof(struct wq_prefix) - offsetof(struct wq_prefix, lease))
#define WQ_PREFIX_TIMES	sizeof(struct wq_times)
static_assert(sizeof(struct wq_prefix) == offsetofend(struct wq_prefix, times));
static_assert(offsetof(struct wq_embedded, entry) == offsetofend(struct wq_embedded, times));
static_assert(offsetof(struct wq_embedded_ordered, entry.times) ==
	      offsetof(struct wq_prefix, times));

/*
 * wq_entry.word.  Adds read it without the lock, see wq_try_coalesce(), so the lock's holder
 * writes it as a whole.
 */
union wq_word {
	struct {
		u32 heap : 25;
		u32 state : 7;
	};
	u32 all;
};

static inline u32 wq_word_of(u32 state, u32 heap)
{
	union wq_word word = { { .heap = heap, .state = state } };

	return word.all;
}

static inline u32 wq_word_state(u32 word)
{
	union wq_word w = { .all = word };

	return w.state;
}

static inline void wq_entry_set_state(struct wq_entry *e, u32 state)
{
	WRITE_ONCE(e->word, wq_word_of(state, e->heap));
}

/* With a full barrier after it. */
static inline void wq_entry_set_state_mb(struct wq_entry *e, u32 state)
{
	/* Pairs with the barrier in wq_try_coalesce(). */
	smp_store_mb(e->word, wq_word_of(state, e->heap));
}

static inline void wq_entry_set_heap(struct wq_entry *e, u32 heap)
{
	WRITE_ONCE(e->word, wq_word_of(e->state, heap));
}

/* The error of a parked entry.  It is not delayed, so the index in the heap is free for that. */
static inline u32 wq_entry_error(const struct wq_entry *e)
{
	return e->heap;
}

static inline void wq_entry_set_error(struct wq_entry *e, u32 error)
{
	wq_entry_set_heap(e, error);
}

/*
 * Whether a source has added the key of a disabled entry, so that it needs a run once it is
 * enabled.  The entry is neither delayed nor parked, so the index in the heap is free for that.
 */
static inline bool wq_entry_deferred(const struct wq_entry *e)
{
	return e->disabled && e->heap;
}

/* The entry is disabled. */
static inline void wq_entry_set_deferred(struct wq_entry *e, bool deferred)
{
	wq_entry_set_heap(e, deferred);
}

static inline struct wq_key *wq_key_of(struct wq_entry *e)
{
	return container_of(e, struct wq_key, entry);
}

/*
 * Whether an entry is part of an object, see api/embedded.c.  Such an entry has no key, and is in
 * no table.
 */
static inline bool wq_is_embedded(const struct wq_entry *e)
{
	return !e->len;
}

static inline struct wq_embedded *wq_embedded_of(struct wq_entry *e)
{
	return container_of(e, struct wq_embedded, entry);
}

/* The bytes of an entry's key; NULL: it is embedded. */
static inline const void *wq_key_data(struct wq_entry *e)
{
	return wq_is_embedded(e) ? NULL : wq_key_of(e)->key;
}

/* Failures of an entry's key; U32_MAX if they are more than the entry can count. */
static inline u32 wq_failures(const struct wq_entry *e)
{
	return e->failures == WQ_MAX_FAILURES ? U32_MAX : e->failures;
}

/* The entry, which may be embedded, is one of a queue that keeps times. */
static inline struct wq_times *wq_times_of(struct wq_entry *e)
{
	return (struct wq_times *)e - 1;
}

/* The entry is one of a queue that was created with a lease. */
static inline struct wq_lease *wq_lease_of(struct wq_entry *e)
{
	return &container_of(wq_times_of(e), struct wq_prefix, times)->lease;
}

static inline struct wq_entry *wq_leased_entry(struct wq_lease *l)
{
	return (struct wq_entry *)(container_of(l, struct wq_prefix, lease) + 1);
}

/* The entry is one of a queue that uses its rank. */
static inline struct wq_rank *wq_rank_of(const struct wq_entry *e)
{
	return &container_of(wq_times_of((struct wq_entry *)e), struct wq_prefix, times)->rank;
}

/* The entry is one of a queue of groups with levels. */
static inline struct wq_group **wq_leveled_group(const struct wq_entry *e)
{
	return &container_of(wq_times_of((struct wq_entry *)e), struct wq_prefix, times)->group;
}

static inline struct wq_entry *wq_ranked_entry(struct wq_rank *r)
{
	return (struct wq_entry *)(container_of(r, struct wq_prefix, rank) + 1);
}

/*
 * Prefetch an entry and its rank, which are in up to three cache lines.  The orders have the gain.
 * Always inline, as all functions that only prefetch: otherwise the compiler may drop the call as
 * one without effects.
 */
static __always_inline void wq_rank_prefetch(const struct wq_entry *e)
{
	prefetchw(wq_rank_of(e));
	prefetchw(e);
	prefetch(&e->hash);
}

/*
 * Entries come in sizes, numbered from 0.  A size has room for prefix and key: WQ_MIN_ROOM times a
 * power of two, or 3/4 of that, but at most WQ_MAX_ROOM bytes.  In one queue, keys up to
 * WQ_MIN_ROOM bytes have entries of the same size.
 */
#define WQ_MIN_ROOM	16
#define WQ_MAX_ROOM	(WQ_MAX_KEY + WQ_PREFIX_LEVELED)
#define WQ_SIZES	14

/* The most memory of an entry. */
#define WQ_MAX_KEY_BYTES	(sizeof(struct wq_key) + WQ_MAX_ROOM)

static inline u32 wq_room_of_size(u32 size)
{
	u32 room = WQ_MIN_ROOM << (size + 1) / 2;

	return min_t(u32, size % 2 ? room / 4 * 3 : room, WQ_MAX_ROOM);
}

/* The smallest size that has room for a prefix and a key. */
static inline u32 wq_key_size(u32 prefix, u32 len)
{
	u32 needs = prefix + max_t(u32, WQ_MIN_ROOM, len), order;

	/* Most keys are short. */
	if (needs == WQ_MIN_ROOM)
		return 0;
	order = order_base_2(needs);
	return 2 * (order - ilog2(WQ_MIN_ROOM)) - (needs <= 3U << order >> 2);
}

/* Memory of an entry in bytes. */
static inline u32 wq_key_bytes(u32 prefix, u32 len)
{
	return sizeof(struct wq_key) + wq_room_of_size(wq_key_size(prefix, len));
}

/* Copy a key.  memcpy() is a call, which costs more than a key of 8 to 16 bytes. */
static inline void wq_key_copy(u8 *to, const u8 *key, u32 len)
{
	if (len < sizeof(u64) || len > 2 * sizeof(u64)) {
		memcpy(to, key, len);
		return;
	}
	put_unaligned(get_unaligned((const u64 *)key), (u64 *)to);
	put_unaligned(get_unaligned((const u64 *)(key + len - sizeof(u64))),
		      (u64 *)(to + len - sizeof(u64)));
}

/* The rest of the prefix is set with the state that uses it. */
static inline void wq_prefix_init(struct wq_entry *e, u32 prefix)
{
	if (prefix >= WQ_PREFIX_LEASE)
		INIT_LIST_HEAD(&wq_lease_of(e)->link);
	if (prefix >= WQ_PREFIX_ORDER)
		wq_rank_of(e)->space = 0;
}

static inline void wq_key_init(struct wq_key *k, u32 prefix, u32 hash, const void *key,
			       u32 len)
{
	struct wq_entry *e = &k->entry;

	/*
	 * In place of a memset(), which is slow where the CPU has no fast string instructions.
	 * The union is set when the entry enters a list, and the times when it becomes dirty and
	 * is handed out.
	 */
	e->token = 0;
	e->hash = hash;
	e->seq = 0;
	e->given_back = 0;
	WRITE_ONCE(e->word, 0);
	e->failures = 0;
	e->waited = 0;
	e->disabled = 0;
	e->len = len;
	wq_key_copy(k->key, key, len);
	wq_prefix_init(e, prefix);
}

/* The last 8 bytes of a key, or all of a shorter one; different for different keys of a length. */
static inline u64 wq_key_tail(const u8 *key, size_t len)
{
	if (len >= sizeof(u64))
		return get_unaligned((const u64 *)(key + len - sizeof(u64)));
	if (len >= sizeof(u32))
		return get_unaligned((const u32 *)key) |
		       (u64)get_unaligned((const u32 *)(key + len - sizeof(u32))) << 32;
	return key[0] | key[len / 2] << 8 | key[len - 1] << 16;
}

/*
 * Whether an entry has this key, of 1 byte or more.  memcmp() is a call, which costs more than a
 * short key, and look-ups would have to save registers for it.
 */
static __always_inline bool wq_key_equals(const struct wq_entry *e, const void *key, u32 len)
{
	const u8 *a = container_of(e, struct wq_key, entry)->key, *b = key;
	u32 i;

	if (e->len != len)
		return false;
	for (i = 0; i + sizeof(u64) < len; i += sizeof(u64))
		if (get_unaligned((const u64 *)(a + i)) != get_unaligned((const u64 *)(b + i)))
			return false;
	return wq_key_tail(a, len) == wq_key_tail(b, len);
}

struct wq_key *wq_key_alloc(const struct wq_mem *m, u32 prefix, u32 len, gfp_t gfp);
void wq_key_free(struct wq_key *k, u32 prefix);
void wq_entries_free(struct wq_entry *e, u32 prefix);
void wq_entries_free_rcu(struct wq_entry *e, u32 prefix);
size_t wq_bytes_text(char *to, size_t size, const void *key, size_t key_len);

/* The key of an entry, for texts.  An embedded one has none, and its length is 0. */
static inline const void *wq_shown_key(struct wq_entry *e)
{
	return wq_key_data(e) ?: e;
}

static inline size_t wq_key_text(char *to, size_t size, struct wq_entry *e)
{
	return wq_bytes_text(to, size, wq_shown_key(e), e->len);
}

int wq_entry_init(void);
void wq_entry_exit(void);

#endif /* _WQ_ENTRY_H */
