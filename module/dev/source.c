// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verb of /dev/wq that attaches, lists and detaches sources.
 */
#include <linux/string.h>
#include <linux/uaccess.h>

#include "dev/call.h"
#include "dev/verbs.h"
#include "queue/source.h"

static int list_source(struct wq_call *call, struct wq_source_op *op)
{
	char text[WQ_MAX_SOURCE_TEXT];
	u32 usize = op->size;
	int ret;

	ret = wq_source_next(call->c->q, op, text);
	if (ret)
		return ret;
	op->size = usize;
	/* A producer need not know what others watch. */
	if (!(call->file->f_mode & FMODE_READ))
		text[0] = '\0';
	if (op->arg_size && op->arg_size < sizeof(text))
		text[op->arg_size - 1] = '\0';
	if (op->arg && copy_to_user(u64_to_user_ptr(op->arg), text,
				    min_t(u32, op->arg_size, strlen(text) + 1)))
		return -EFAULT;
	return wq_call_copy_out(call, op);
}

static int check_and_attach(struct wq_call *call, struct wq_source_op *op)
{
	size_t len = strnlen(op->prefix, sizeof(op->prefix));
	int ret;

	if (op->id || op->flags & ~(WQ_SOURCE_WITH_FILE | WQ_SOURCE_SCAN) || op->delay < 0)
		return -EINVAL;
	if (len == sizeof(op->prefix) ||
	    memchr_inv(op->prefix + len, 0, sizeof(op->prefix) - len))
		return -EINVAL;
	ret = wq_source_attach(call->c, op);
	if (ret)
		return ret;
	ret = wq_call_copy_out(call, op);
	if (ret)
		wq_source_detach(call->c->q, op->id, true);
	return ret;
}

int wq_verb_source(struct wq_call *call, void *arg)
{
	struct wq_source_op *op = arg;
	struct wq_source_op may = {
		.size = op->size, .op = op->op, .id = op->id, .arg = op->arg,
		.arg_size = op->arg_size,
	};

	if (op->op > WQ_SOURCE_DETACH || op->uid || op->state || op->error || op->failed_adds ||
	    op->rescans)
		return -EINVAL;
	if (op->op != WQ_SOURCE_LIST && !(call->file->f_mode & FMODE_WRITE))
		return -EACCES;
	if (op->op == WQ_SOURCE_ATTACH)
		return check_and_attach(call, op);
	if (op->op == WQ_SOURCE_DETACH)
		may.arg = may.arg_size = 0;
	if (memcmp(op, &may, sizeof(may)))
		return -EINVAL;
	if (op->op == WQ_SOURCE_LIST)
		return list_source(call, op);
	return wq_source_detach(call->c->q, op->id, wq_call_by_owner(call));
}
