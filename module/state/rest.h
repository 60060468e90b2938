/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups that rest, see state/rest.c.
 */
#ifndef _WQ_REST_H
#define _WQ_REST_H

#include "state/lock.h"

int wq_check_rest(struct wq_cs *cs, struct wq_group *g, s64 delay);
void wq_rest(struct wq_cs *cs, struct wq_group *g, s64 delay);
void wq_offer_group(struct wq_cs *cs);
bool wq_change_groups(struct wq_cs *cs);

#endif /* _WQ_REST_H */
