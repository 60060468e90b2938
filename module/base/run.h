/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs in progress: from the token of a get to the entry that the get handed out.
 *
 * A token is the number of the get, and below it the index of a place in the queue's array of
 * runs.  A done or touch with a token finds the entry by that index, so it neither hashes the
 * key nor reads the table.  The index is an index and no address, because tokens of processes
 * come from outside: any value leads to a place of the array.  The place has an entry only
 * while the entry is held, and only the token of the present run is equal to wq_entry.token.
 * So a token that is out of date or forged leads to no entry.
 *
 * A queue has 255 places, 2 KiB.  If all of them are taken, a get hands its key
 * out with index 0, and its done finds the entry in the table.
 *
 * Why not an index of each entry: that takes 8 bytes of each ready key, or an allocator of
 * wq's own.  Why not a place in the consumer: a consumer may hold any number of keys, and all
 * callers of the kernel API are one consumer.
 *
 * The caller serializes.
 */
#ifndef _WQ_RUN_H
#define _WQ_RUN_H

#include <linux/bits.h>
#include <linux/random.h>
#include <linux/types.h>

#include "base/entry.h"

#define WQ_RUN_BITS	8
#define WQ_RUN_PLACES	BIT(WQ_RUN_BITS)

/*
 * Places 1 and up are used.  A free place has the index of the next free place, shifted left
 * by one, and bit 0 is set, which no address of an entry has.  Place 0 is always free.
 */
struct wq_runs {
	u64 first;			/* where the numbers of gets began */
	u64 last;			/* number of the last get */
	u32 free;			/* index of the first free place; 0: all are taken */
	unsigned long place[WQ_RUN_PLACES];
};

#define WQ_RUN_FREE	1UL

/*
 * A descriptor can get another queue (wq_reopen() of libwq), and a consumer can have a token of
 * the queue before.  So the numbers begin at random: another queue has hardly the same ones.  They
 * leave room for 2^55 gets.
 */
static inline void wq_runs_init(struct wq_runs *r)
{
	unsigned long i;

	r->first = get_random_u64() >> (WQ_RUN_BITS + 1);
	r->last = r->first;
	r->free = 1;
	for (i = 0; i < WQ_RUN_PLACES; i++)
		r->place[i] = (i + 1) % WQ_RUN_PLACES << 1 | WQ_RUN_FREE;
}

/* The index that a token has; 0: none, so the entry has to be looked up by its key. */
static inline u32 wq_token_index(u64 token)
{
	return token & (WQ_RUN_PLACES - 1);
}

/* The number of the get that a token is of. */
static inline u64 wq_token_run(u64 token)
{
	return token >> WQ_RUN_BITS;
}

/* An entry is handed out. */
static inline void wq_run_start(struct wq_runs *r, struct wq_entry *e)
{
	u32 i = r->free;

	if (likely(i)) {
		r->free = r->place[i] >> 1;
		r->place[i] = (unsigned long)e;
	}
	e->token = ++r->last << WQ_RUN_BITS | i;
}

/* The run of an entry ends. */
static inline void wq_run_end(struct wq_runs *r, const struct wq_entry *e)
{
	u32 i = wq_token_index(e->token);

	if (likely(i)) {
		r->place[i] = (unsigned long)r->free << 1 | WQ_RUN_FREE;
		r->free = i;
	}
}

/* The entry that the get with this token handed out, if it is still held and has a place. */
static inline struct wq_entry *wq_run_find(const struct wq_runs *r, u64 token)
{
	unsigned long place = r->place[wq_token_index(token)];
	struct wq_entry *e = (struct wq_entry *)place;

	if (place & WQ_RUN_FREE || e->token != token)
		return NULL;
	return e;
}

#endif /* _WQ_RUN_H */
