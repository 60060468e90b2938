/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last run of a key: when it ended, how long it took and how it ended, in 8 bytes.
 *
 * An entry needs the start of a run only while the run goes on.  Its end and how it ended, as
 * fields, would take 16 bytes more of each entry.  So they are packed into the place of the start
 * when the run has ended:
 *
 *	bits 24 to 63	when the run ended, in WQ_LAST_TICK, modulo 36 years: an age of 18 years or
 *			more counts as 0
 *	bits 9 to 23	how long it took: the first 15 bits of the number of ns,
 *	bits 3 to 8	and how many bits follow them
 *	bits 0 to 2	WQ_LAST_*
 */
#ifndef _WQ_LAST_H
#define _WQ_LAST_H

#include <linux/bitops.h>
#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/wq.h>

#define WQ_LAST_TICK_BITS	20		/* of ns: 1.05 ms */
#define WQ_LAST_TICK		(1LL << WQ_LAST_TICK_BITS)
#define WQ_LAST_END_SHIFT	24
#define WQ_LAST_NS_SHIFT	9
#define WQ_LAST_NS_BITS		15
#define WQ_LAST_MORE_SHIFT	3
#define WQ_LAST_MORE_MASK	63
#define WQ_LAST_RESULT_MASK	7

/* A run that took @ns */
static __always_inline u64 wq_last_pack(u64 ns, s64 end, u32 result)
{
	u32 more = fls64(ns >> WQ_LAST_NS_BITS);

	return (u64)end >> WQ_LAST_TICK_BITS << WQ_LAST_END_SHIFT |
	       ns >> more << WQ_LAST_NS_SHIFT | more << WQ_LAST_MORE_SHIFT | result;
}

static inline u32 wq_last_result(u64 last)
{
	return last & WQ_LAST_RESULT_MASK;
}

/* How long ago it ended, up to WQ_LAST_TICK - 1 too long; 0 if the clock went back since then. */
static inline s64 wq_last_age(u64 last, s64 now)
{
	const u64 years = BIT_ULL(64 - WQ_LAST_END_SHIFT + WQ_LAST_TICK_BITS) - 1;
	u64 age = (now - (last >> WQ_LAST_END_SHIFT << WQ_LAST_TICK_BITS)) & years;

	return age > years / 2 ? 0 : age;
}

/* How long it took, too short by up to 1/16,384. */
static inline s64 wq_last_took(u64 last)
{
	return (last >> WQ_LAST_NS_SHIFT & (BIT(WQ_LAST_NS_BITS) - 1)) <<
	       (last >> WQ_LAST_MORE_SHIFT & WQ_LAST_MORE_MASK);
}

#endif /* _WQ_LAST_H */
