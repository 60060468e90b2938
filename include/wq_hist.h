/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Histograms of durations, see struct wq_hist.
 */
#ifndef _WQ_HIST_H
#define _WQ_HIST_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <uapi/linux/wq.h>

static inline void wq_hist_add(struct wq_hist *h, s64 ns)
{
	unsigned int i = 0;
	s64 bound;

	ns = max_t(s64, ns, 0);
	for (bound = 10; i < WQ_HIST_COUNTS - 1 && ns > bound; bound *= 10)
		i++;
	h->counts[i]++;
	h->sum += ns;
}

#endif /* _WQ_HIST_H */
