// SPDX-License-Identifier: GPL-2.0-only
/* The checks of an op for callers that are not frequent, see state/op.h. */
#include "state/op.h"

/* Initialize an op for a key.  If the key's length is bad, sets op->result and returns it. */
int wq_op_init(const struct wq *q, struct wq_op *op, const void *key, size_t len)
{
	return __wq_op_init(q, op, key, len);
}
WQ_EXPORT_FOR_KUNIT(wq_op_init);

/* __wq_op_set_done() for callers that are not frequent. */
int wq_op_set_done(struct wq_op *op, s64 delay, u32 outcome)
{
	return __wq_op_set_done(op, delay, outcome);
}
WQ_EXPORT_FOR_KUNIT(wq_op_set_done);
