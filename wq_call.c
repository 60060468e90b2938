// SPDX-License-Identifier: GPL-2.0-only
/*
 * Common parts of the verbs of /dev/wq: keys on their way in, deadlines.
 */
#include <linux/slab.h>

#include "wq_call.h"
#include "wq_state.h"
#include "wq_wait.h"

/* Copy a key in, and initialize an op for it.  The caller frees @buf, also after an error. */
int wq_key_op_init(const struct wq *q, struct wq_op *op, struct wq_key_buf *buf, u64 key,
		       u32 len)
{
	buf->key = buf->stack;
	if (len > WQ_MAX_KEY)
		return -E2BIG;
	if (len > sizeof(buf->stack))
		buf->key = kmalloc(len, GFP_KERNEL_ACCOUNT);
	if (!buf->key)
		return -ENOMEM;
	if (copy_from_user(buf->key, u64_to_user_ptr(key), len))
		return -EFAULT;
	return wq_op_init(q, op, buf->key, len);
}

/*
 * The end of a wait, for wq_get_wait().  A call that is repeated after
 * a signal has the deadline of the first call.
 */
s64 wq_call_deadline(const struct wq_call *call, s64 timeout, s64 deadline)
{
	if (call->file->f_flags & O_NONBLOCK)
		return 0;
	return timeout > 0 && deadline ? deadline : wq_deadline(timeout);
}

/*
 * The wait of a call ended with @ret: update the caller's struct, @arg.  @deadline is a field
 * of it, or NULL: then @timeout receives the time that was left.
 *
 * After a signal the caller can pass the struct again, and the wait keeps its end.  If no
 * handler runs, the call is restarted and the caller does not notice the signal.  So the
 * timeout stays as it is, and any other end of the wait sets the deadline to 0: otherwise the
 * caller's next waits with the struct would be too short.
 */
int wq_call_wait_ended(const struct wq_call *call, void *arg, s64 end, s64 *timeout,
			   s64 *deadline, int ret)
{
	if (ret == -ERESTARTSYS) {
		/* Without a deadline in the struct, the call must not be restarted. */
		ret = deadline ? -ERESTARTNOHAND : -EINTR;
		if (deadline)
			*deadline = end;
		else
			*timeout = wq_time_left(end);
		return wq_call_copy_out(call, arg) ? -EFAULT : ret;
	}
	if (deadline && *deadline) {
		*deadline = 0;
		/* The error of the wait is more important than a fault now. */
		(void)!wq_call_copy_out(call, arg);
	}
	return ret;
}
