/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of a program, and their arguments.  A file that includes this one has defined OP and
 * ARGUMENT before:
 *
 *	OP(name, word, function, weight, arguments)
 *	ARGUMENT(name, word, number of values)
 *
 * verbs.c and calls.c have the tables of values.  A value beyond a table is its last entry.
 * OP_BIND to OP_UNLINK are the verbs.
 */

OP(OPEN, open, do_open, 10, ANY | B(A_FD) | B(A_HOW))
OP(BIND, bind, do_bind, 12,
	VERB | B(A_FD2) | B(A_FLAGS) | B(A_NAME) | B(A_MODE) | B(A_MAX_KEYS) | B(A_LIMITS) |
	B(A_TWEAK) | B(A_LIMITS_AT) | B(A_RESERVED) | B(A_LEASE) | B(A_SLACK) | B(A_MAX_DEFER) |
	B(A_ORDER) | B(A_RETRIES) | B(A_ATTR) | B(A_VALUE))
OP(ADD, add, do_recs, 22, VERB | B(A_FLAGS) | RECS | B(A_MARKS) | B(A_LEVEL))
OP(GET, get, do_get, 20, VERB | B(A_FLAGS) | OUT | B(A_TIMEOUT) | B(A_DEADLINE))
OP(DONE, done, do_done, 20, VERB | B(A_FLAGS) | RECS | OUT | B(A_TIMEOUT) | B(A_REASONS))
OP(TOUCH, touch, do_recs, 6, VERB | B(A_FLAGS) | RECS)
OP(STAT, stat, do_stat, 5, VERB | B(A_FLAGS))
OP(QUERY, query, do_key, 6, VERB | ONE_KEY)
OP(CANCEL, cancel, do_key, 6, VERB | ONE_KEY)
OP(FORGET, forget, do_key, 4, VERB | ONE_KEY)
OP(LIST, list, do_list, 6, VERB | B(A_FLAGS) | OUT | B(A_CURSOR))
OP(INFO, info, do_info, 1, VERB | B(A_FLAGS))
OP(SHUTDOWN, shutdown, do_shutdown, 4, VERB | B(A_FLAGS) | B(A_TIMEOUT) | B(A_DEADLINE))
OP(CONFIG, config, do_config, 4, VERB | B(A_FLAGS) | B(A_LIMITS_AT) | B(A_COUNT))
OP(SET, set, do_set, 6,
	VERB | B(A_FLAGS) | B(A_SET) | B(A_MODE) | B(A_UID) | B(A_MAX_KEYS) | B(A_LIMITS) |
	B(A_TWEAK) | B(A_LIMITS_AT) | B(A_LEASE) | B(A_SLACK) | B(A_RETRIES) | B(A_ATTR) |
	B(A_VALUE))
OP(MAP, map, do_map, 6, VERB | B(A_FD2) | B(A_FLAGS) | B(A_HOW))
OP(PAUSE, pause, do_pause, 5, VERB | B(A_FLAGS) | B(A_TIMEOUT))
OP(KICK, kick, do_kick, 6,
	VERB | B(A_FLAGS) | B(A_KEYS) | B(A_KEY) | B(A_LEN) | B(A_COUNT) | B(A_HOW))
OP(FLUSH, flush, do_flush, 6,
	VERB | B(A_FD2) | B(A_KEYS) | B(A_KEY) | B(A_LEN) | B(A_FLAGS) | B(A_TIMEOUT) | B(A_DEADLINE) |
	B(A_LEVEL))
OP(DISABLE, disable, do_key, 4,
	VERB | B(A_KEYS) | B(A_KEY) | B(A_LEN) | B(A_FLAGS) | B(A_TIMEOUT) | B(A_DEADLINE))
OP(SOURCE, source, do_source, 4,
	VERB | B(A_HOW) | B(A_FLAGS) | B(A_N) | B(A_KEYS) | B(A_NAME) | B(A_DELAY))
OP(UNLINK, unlink, do_unlink, 3, VERB | B(A_FLAGS) | B(A_NAME))
OP(IOCTL, ioctl, do_ioctl, 1, ANY | B(A_FD) | B(A_HOW) | B(A_ARG))
OP(CLOSE, close, do_close, 6, ANY | B(A_FD))
OP(DUP, dup, do_dup, 3, ANY | B(A_FD) | B(A_FD2) | B(A_HOW))
OP(POLL, poll, do_poll, 3, ANY | B(A_FD) | B(A_FD2) | B(A_EVENTS) | B(A_TIMEOUT))
OP(EPOLL, epoll, do_epoll, 4, ANY | B(A_FD) | B(A_HOW) | B(A_EVENTS))
OP(FCNTL, fcntl, do_fcntl, 3, ANY | B(A_FD) | B(A_HOW))
OP(FILE, file, do_file, 1, ANY | B(A_FD) | B(A_HOW))
OP(FDINFO, fdinfo, do_fdinfo, 2, ANY | B(A_FD))
OP(DEBUGFS, debugfs, do_debugfs, 2, ANY | B(A_NAME) | B(A_HOW))
OP(PATH, path, do_path, 5, ANY | B(A_FD) | B(A_HOW) | B(A_NAME))
OP(CHOWN, chown, do_chown, 5, ANY | B(A_FD) | B(A_HOW) | B(A_NAME) | B(A_UID))
OP(MOUNT, mount, do_mount, 5, ANY | B(A_FD) | B(A_HOW) | B(A_NAME))
OP(CLOSED, closed, do_closed, 2, B(A_THREAD) | B(A_HOW))
OP(NETWORK, network, do_network, 2, ANY | B(A_FD) | B(A_HOW))
OP(FORK, fork, NULL, 5, B(A_N) | B(A_HOW))
OP(KILL, kill, do_kill, 4, B(A_HOW))
OP(UID, uid, do_uid, 3, B(A_THREAD) | B(A_HOW))
OP(SLEEP, sleep, do_sleep, 4, B(A_THREAD) | B(A_HOW))
OP(PASS, pass, do_pass, 1, ANY | B(A_FD))
OP(RW, rw, do_rw, 20,
	ANY | B(A_FD) | B(A_HOW) | B(A_KEY) | B(A_LEN) | B(A_NEXT) | B(A_COUNT))

ARGUMENT(THREAD, thread, 2)	/* 1: in the racing thread */
ARGUMENT(FAIL, fail, 64)	/* the allocation or copy that fails */
ARGUMENT(FD, fd, FUZZ_SLOTS)	/* slots, as FD2 */
ARGUMENT(FD2, fd2, FUZZ_SLOTS)
ARGUMENT(HOW, how, 16)	/* one of several calls */
ARGUMENT(ARG, arg, PTR_VALUES)	/* the address of the verb's struct */
ARGUMENT(SIZE, size, 16)	/* the size in the struct */
ARGUMENT(FLAGS, flags, 13)
ARGUMENT(RESERVED, reserved, 10)
ARGUMENT(NAME, name, 16)
ARGUMENT(MODE, mode, 8)
ARGUMENT(MAX_KEYS, max_keys, 10)
ARGUMENT(LIMITS, limits, 21)
ARGUMENT(TWEAK, tweak, 50)
ARGUMENT(LIMITS_AT, limits_at, PTR_VALUES)
ARGUMENT(LEASE, lease, 8)
ARGUMENT(SLACK, slack, 9)
ARGUMENT(MAX_DEFER, max_defer, 6)
ARGUMENT(SET, set, 15)
ARGUMENT(UID, uid, 6)
ARGUMENT(KEYS, keys, PTR_VALUES)	/* the address of the records */
ARGUMENT(SOURCE, source, 2)	/* 0: made up, 1: from the last get */
ARGUMENT(N, n, 14)
ARGUMENT(KEY, key, 12)
ARGUMENT(LEN, len, 16)
ARGUMENT(OUTCOME, outcome, 24)
ARGUMENT(OUTCOME2, outcome2, 24)
ARGUMENT(DELAY, delay, 14)
ARGUMENT(TOKEN, token, 6)
ARGUMENT(BAD, bad, 20)
ARGUMENT(RESULTS, results, PTR_VALUES + 1)
ARGUMENT(NEXT, next, PTR_VALUES)
ARGUMENT(ROOM, room, 18)
ARGUMENT(COUNT, count, 10)
ARGUMENT(TIMEOUT, timeout, 8)
ARGUMENT(DEADLINE, deadline, 8)
ARGUMENT(CURSOR, cursor, 8)
ARGUMENT(EVENTS, events, 8)
ARGUMENT(MARKS, marks, PTR_VALUES + 1)
ARGUMENT(ORDER, order, 13)
ARGUMENT(LEVEL, level, 8)
ARGUMENT(RETRIES, retries, 6)
ARGUMENT(REASONS, reasons, 5)
ARGUMENT(ATTR, attr, 16)	/* an attribute of the table */
ARGUMENT(VALUE, value, 8)	/* its value, at the ends of its range */

#undef OP
#undef ARGUMENT
