// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs: their text, generation and mutation.
 *
 * The text of a call is a line with its name and the arguments that are not 0. A blank line
 * ends a program; the comment above a program is its title.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define B(arg)		(1ULL << (arg))
#define ANY		(B(A_THREAD) | B(A_FAIL))
#define VERB		(ANY | B(A_FD) | B(A_ARG) | B(A_SIZE))
#define RECS		(B(A_KEYS) | B(A_SOURCE) | B(A_N) | B(A_KEY) | B(A_LEN) | B(A_OUTCOME) | \
			 B(A_OUTCOME2) | B(A_DELAY) | B(A_TOKEN) | B(A_BAD) | B(A_RESULTS))
#define OUT		(B(A_NEXT) | B(A_ROOM) | B(A_COUNT))
#define ONE_KEY		(B(A_KEYS) | B(A_KEY) | B(A_LEN) | B(A_FLAGS) | B(A_RESERVED))

const struct op_info op_info[OPS] = {
#define OP(name, word, function, weight, args)	{ #word, weight, args },
#define ARGUMENT(...)
#include "table.h"
};

const struct arg_info arg_info[ARGS] = {
#define OP(...)
#define ARGUMENT(name, word, values)	{ #word, values },
#include "table.h"
};

/* ---- random numbers: splitmix64 ---- */

static __u64 random_state;

void fuzz_seed(__u64 seed)
{
	random_state = seed;
}

__u64 fuzz_random(void)
{
	__u64 x = random_state += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

__u32 fuzz_below(__u32 n)
{
	return (fuzz_random() >> 32) * n >> 32;
}

static bool one_in(__u32 n)
{
	return !fuzz_below(n);
}

/* ---- generation and mutation ---- */

static __u8 arg_random(enum arg a)
{
	__u8 v = fuzz_below(arg_info[a].values);

	/* Thousands of keys take long, so few programs have them. */
	return a == A_N && v > 10 && !one_in(16) ? v - 8 : v;
}

static enum op op_random(void)
{
	static __u32 sum;
	__u32 i, at;

	if (!sum)
		for (i = 0; i < OPS; i++)
			sum += op_info[i].weight;
	at = fuzz_below(sum);
	for (i = 0; at >= op_info[i].weight; i++)
		at -= op_info[i].weight;
	return i;
}

/* Most arguments stay correct, because otherwise no call would succeed. */
static struct call call_make(enum op op)
{
	struct call c = { .op = op };
	__u32 odds = 4 + fuzz_below(16);

	for (enum arg a = A_FD; a < ARGS; a++)
		if (op_info[op].args & B(a) && one_in(odds))
			c.arg[a] = arg_random(a);
	if (op_info[op].args & B(A_THREAD) && one_in(8))
		c.arg[A_THREAD] = 1;
	if (op_info[op].args & B(A_FAIL) && one_in(16))
		c.arg[A_FAIL] = 1 + fuzz_below(6);
	/* Few names and keys, so that calls use the same ones. */
	if (op_info[op].args & B(A_NAME) && one_in(2))
		c.arg[A_NAME] = fuzz_below(3);
	if (op_info[op].args & B(A_KEY) && one_in(2))
		c.arg[A_KEY] = fuzz_below(4);
	if ((op == OP_DONE || op == OP_TOUCH) && one_in(2))
		c.arg[A_SOURCE] = 1;
	if (op_info[op].args & B(A_BAD) && one_in(4))
		c.arg[A_BAD] = arg_random(A_BAD);
	if (op == OP_DEBUGFS)
		c.arg[A_NAME] = 1 + fuzz_below(2);
	return c;
}

static void prog_insert(struct prog *p, __u32 i, struct call c)
{
	if (p->n == FUZZ_CALLS)
		return;
	memmove(&p->call[i + 1], &p->call[i], (p->n - i) * sizeof(c));
	p->call[i] = c;
	p->n++;
}

void prog_remove(struct prog *p, __u32 i)
{
	p->n--;
	memmove(&p->call[i], &p->call[i + 1], (p->n - i) * sizeof(p->call[0]));
}

static void prog_append(struct prog *p, struct call c)
{
	prog_insert(p, p->n, c);
}

/* A child gets keys by a file of its own or by its parent's, and is killed. */
static void plot_killed(struct prog *p, __u8 name)
{
	struct call child = { .op = OP_FORK };
	struct call open = { .op = OP_OPEN, .arg[A_FD] = 2 };
	struct call bind = { .op = OP_BIND, .arg[A_FD] = 2, .arg[A_NAME] = name };
	struct call get = call_make(OP_GET), kill = { .op = OP_KILL };
	bool own = name && one_in(2);

	child.arg[A_HOW] = one_in(3) ? arg_random(A_HOW) : 5;
	child.arg[A_N] = own ? 2 : 0;
	get.arg[A_FD] = own ? 2 : 0;
	get.arg[A_THREAD] = 0;
	prog_append(p, child);
	if (own) {
		prog_append(p, open);
		prog_append(p, bind);
	}
	prog_append(p, get);
	if (one_in(2))
		prog_append(p, call_make(op_random()));
	kill.arg[A_HOW] = one_in(3) ? arg_random(A_HOW) : 0;
	prog_append(p, kill);
}

/* Polls a file before and while it is bound. */
static void plot_unbound(struct prog *p, __u8 name)
{
	struct call open = { .op = OP_OPEN, .arg[A_FD] = 3 };
	struct call epoll = { .op = OP_EPOLL, .arg[A_FD] = 3 };
	struct call bind = { .op = OP_BIND, .arg[A_FD] = 3, .arg[A_NAME] = name };
	struct call poll = { .op = OP_POLL, .arg[A_FD] = 3, .arg[A_TIMEOUT] = 1 };

	epoll.arg[A_EVENTS] = arg_random(A_EVENTS);
	prog_append(p, open);
	prog_append(p, epoll);
	bind.arg[A_THREAD] = one_in(2);
	poll.arg[A_THREAD] = !bind.arg[A_THREAD];
	prog_append(p, poll);
	prog_append(p, bind);
	epoll.arg[A_HOW] = 4;
	prog_append(p, epoll);
}

/* A second user of the queue, in the racing thread or in all that follows. */
static void plot_user(struct prog *p, __u8 name)
{
	struct call uid = { .op = OP_UID, .arg[A_HOW] = 1 + fuzz_below(2) };
	struct call open = { .op = OP_OPEN, .arg[A_FD] = 1 };
	struct call bind = { .op = OP_BIND, .arg[A_FD] = 1, .arg[A_NAME] = name };

	uid.arg[A_THREAD] = open.arg[A_THREAD] = bind.arg[A_THREAD] = one_in(2);
	prog_append(p, uid);
	prog_append(p, open);
	prog_append(p, bind);
}

/* Reads and writes with bad addresses and few bytes, of a file of each kind. */
static void plot_buffer(struct prog *p, __u8 name)
{
	static const struct call kinds[] = {
		{ .op = OP_PATH, .arg = { [A_FD] = 3, [A_HOW] = 15 } },
		{ .op = OP_PATH, .arg = { [A_FD] = 3, [A_HOW] = 4 } },
		{ .op = OP_PATH, .arg = { [A_FD] = 3, [A_HOW] = 2 } },
		{ .op = OP_OPEN, .arg = { [A_FD] = 3 } },
		{ .op = OP_FLUSH, .arg = { [A_FD2] = 3 } },
		{ .op = OP_MAP, .arg = { [A_FD2] = 3 } },
		/* the last one: of no name, the directory */
		{ .op = OP_PATH, .arg = { [A_FD] = 3, [A_HOW] = 1 } },
	};
	__u32 kind = fuzz_below(ARRAY_SIZE(kinds)), n = 1 + fuzz_below(4);
	struct call file = kinds[kind], rw;

	if (file.op == OP_PATH && kind < ARRAY_SIZE(kinds) - 1)
		file.arg[A_NAME] = name ?: 1;
	prog_append(p, file);
	while (n--) {
		rw = (struct call){ .op = OP_RW, .arg = { [A_FD] = 3 } };
		rw.arg[A_HOW] = arg_random(A_HOW);
		rw.arg[A_LEN] = arg_random(A_LEN);
		rw.arg[A_COUNT] = arg_random(A_COUNT);
		rw.arg[A_NEXT] = one_in(2) ? PTR_NULL : arg_random(A_NEXT);
		prog_append(p, rw);
	}
}

/* One or two files of a queue, and calls on them. */
void prog_make(struct prog *p)
{
	static void (*const plots[])(struct prog *p, __u8 name) = {
		plot_killed, plot_unbound, plot_user, plot_buffer,
	};
	__u32 n = 2 + fuzz_below(10), files = 1 + one_in(3), i;
	__u8 name = files > 1 ? 1 : fuzz_below(2);

	p->n = 0;
	for (i = 0; i < files; i++) {
		struct call open = { .op = OP_OPEN }, bind = call_make(OP_BIND);

		open.arg[A_FD] = bind.arg[A_FD] = i;
		bind.arg[A_NAME] = name;
		bind.arg[A_FAIL] = 0;
		if (one_in(2))
			memset(&bind.arg[A_ARG], 0, A_NAME - A_ARG);
		/* So that other users may open the queue. */
		if (one_in(2))
			bind.arg[A_MODE] = 2;
		prog_append(p, open);
		prog_append(p, bind);
	}
	for (i = 0; i < n; i++) {
		if (one_in(12))
			plots[fuzz_below(ARRAY_SIZE(plots))](p, name);
		prog_append(p, call_make(op_random()));
	}
}

static void call_tweak(struct call *c)
{
	__u64 args = op_info[c->op].args;
	__u32 skip = fuzz_below(__builtin_popcountll(args));

	while (skip--)
		args &= args - 1;

	enum arg a = __builtin_ctzll(args);

	if (a == A_FAIL && !one_in(4))
		c->arg[a] = c->arg[a] ? c->arg[a] - 1 : 1 + fuzz_below(4);
	else
		c->arg[a] = one_in(3) ? 0 : arg_random(a);
}

/* Appends the end of @other to the beginning of @p. */
static void prog_splice(struct prog *p, const struct prog *other)
{
	__u32 head = fuzz_below(p->n + 1), from = fuzz_below(other->n), i;

	p->n = head;
	for (i = from; i < other->n && p->n < FUZZ_CALLS; i++)
		p->call[p->n++] = other->call[i];
}

static void prog_mutate_once(struct prog *p, const struct prog *other)
{
	__u32 i = fuzz_below(p->n), j = fuzz_below(p->n);
	struct call c;

	switch (fuzz_below(20)) {
	case 0 ... 8:
		call_tweak(&p->call[i]);
		break;
	case 9 ... 12:
		prog_insert(p, fuzz_below(p->n + 1), call_make(op_random()));
		break;
	case 13:
		prog_insert(p, fuzz_below(p->n + 1), p->call[i]);
		break;
	case 14 ... 15:
		if (p->n > 1)
			prog_remove(p, i);
		break;
	case 16:
		c = p->call[i];
		p->call[i] = p->call[j];
		p->call[j] = c;
		break;
	case 17:
		prog_insert(p, j, other->call[fuzz_below(other->n)]);
		break;
	case 18:
		prog_splice(p, other);
		break;
	case 19:
		/* the calls from here on race */
		for (; i < p->n; i++)
			if (op_info[p->call[i].op].args & B(A_THREAD) && one_in(2))
				p->call[i].arg[A_THREAD] ^= 1;
		break;
	}
}

void prog_mutate(struct prog *p, const struct prog *other)
{
	do {
		prog_mutate_once(p, other);
	} while (!one_in(2) || !p->n);
}

/* ---- text ---- */

int call_print(char *s, size_t size, const struct call *c)
{
	int n = snprintf(s, size, "%s", op_info[c->op].word);

	for (enum arg a = 0; a < ARGS; a++)
		if (c->arg[a] && op_info[c->op].args & B(a))
			n += snprintf(s + n, size - n, " %s=%u", arg_info[a].word, c->arg[a]);
	return n;
}

void prog_print(FILE *f, const struct prog *p)
{
	char line[512];

	for (__u32 i = 0; i < p->n; i++) {
		call_print(line, sizeof(line), &p->call[i]);
		fprintf(f, "%s\n", line);
	}
}

static bool call_read(struct call *c, char *line)
{
	char *word = strtok(line, " \t\n"), *eq;
	enum arg a;

	*c = (struct call){};
	for (c->op = 0; c->op < OPS; c->op++)
		if (!strcmp(word, op_info[c->op].word))
			break;
	if (c->op == OPS)
		return false;
	while ((word = strtok(NULL, " \t\n"))) {
		eq = strchr(word, '=');
		if (!eq)
			return false;
		*eq = '\0';
		for (a = 0; a < ARGS; a++)
			if (!strcmp(word, arg_info[a].word))
				break;
		if (a == ARGS || !(op_info[c->op].args & B(a)))
			return false;
		c->arg[a] = strtoul(eq + 1, NULL, 10);
		if (c->arg[a] >= arg_info[a].values)
			return false;
	}
	return true;
}

bool prog_read(FILE *f, struct prog *p, char *title, size_t size)
{
	char line[512], copy[512];

	p->n = 0;
	title[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#') {
			if (!p->n && line[1] == ' ')
				snprintf(title, size, "%s", line + 2);
			continue;
		}
		if (!line[strspn(line, " \t")]) {
			if (p->n)
				return true;
			continue;
		}
		strcpy(copy, line);
		if (p->n == FUZZ_CALLS || !call_read(&p->call[p->n++], copy)) {
			fprintf(stderr, "fuzz: in \"%s\": this is no call: %s\n", title, line);
			exit(2);
		}
	}
	return p->n;
}
