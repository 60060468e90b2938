/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For the tests that kill processes at random points of random verbs.
 *
 * Each key or file that a test makes has a number, and a row of a ledger in shared memory. A worker
 * writes each step before and after the call. If the worker is killed between the two, the step
 * may have taken effect or not. All other steps must have.
 *
 * From the environment: KILL_SECONDS is the length of each test, 3 by default, but a test ends when
 * it has used all numbers. With KILL_COUNT, each test ends after that many kills instead.
 */
#ifndef WQ_KILL_H
#define WQ_KILL_H

/* Only a fault of the module takes as long, on a busy host too. */
#define EVENTUALLY_LIMIT	(5 * MINUTE)

#include "wq_test.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum {
	WORKERS	= 6,
	KEYS	= 1 << 22,
	MOST	= 24,		/* keys in one call */
};

enum step { NONE, ADDING, ADDED, ENDING, ENDED };

struct ledger {
	__u32 next;		/* number */
	__u32 allowed;		/* numbers so far */
	__u32 errors;
	bool draining;		/* the queue is shut down, and the first two workers drain it */
	__u64 calls;
	__u32 file[WORKERS];	/* by worker: grows with each open file that it uses */
	__u32 dying[WORKERS];	/* by worker: it is being killed */
	__u8 step[KEYS];	/* by number */
};

static struct ledger *ledger;
static __u32 room;		/* numbers of this test, or of this part of it */
static long seconds, count;	/* the length of the test */
static unsigned int seed;
static __s64 begun;		/* of the test */
static int self_number;		/* which worker this process is */

static inline unsigned int chance(unsigned int n)
{
	return rand_r(&seed) % n;
}

static inline void wrong(const char *what, int ret)
{
	fprintf(stderr, "kill: %s: %s\n", what, strerror(ret < 0 ? -ret : 0));
	__atomic_fetch_add(&ledger->errors, 1, __ATOMIC_RELAXED);
}

static inline int open_queue(const char *name)
{
	int q = q_attach(name, O_RDWR);

	if (q < 0)
		wrong("open", q);
	return q;
}

static inline __s64 now_us(void)
{
	return (now_ns() - begun) / 1000;
}

/* Before the file of a worker is closed, or after the worker was killed. */
static inline void file_ends(int number)
{
	__atomic_add_fetch(&ledger->file[number], 1, __ATOMIC_SEQ_CST);
}

/* Numbers of new keys or files. Returns the first of them, or room if there is none. */
static inline __u32 new_numbers(__u32 n)
{
	if (__atomic_load_n(&ledger->next, __ATOMIC_RELAXED) <
	    __atomic_load_n(&ledger->allowed, __ATOMIC_RELAXED))
		return __atomic_fetch_add(&ledger->next, n, __ATOMIC_RELAXED);
	sleep_ms(1);
	return room;
}

static inline __u8 step_of(__u32 key)
{
	return __atomic_load_n(&ledger->step[key], __ATOMIC_SEQ_CST);
}

/* ---- processes that are killed ---- */

struct crew {
	void (*work)(const char *name);
	bool (*enough)(const struct crew *crew);	/* the test has seen what it needs */
	const char *name;	/* of the queue */
	int q;
	bool drains;		/* half of the kills come after the begin of a drain */
	bool stops_some;	/* it stops and continues processes as well */
	bool stopped[WORKERS];
	pid_t pids[WORKERS];
	__u32 kills, stops;
	__u32 old;		/* numbers that were taken before the crew ran */
	__s64 until;
};

static inline void crew_start(struct crew *crew, int i)
{
	fflush(NULL);
	chance(2);	/* a different seed for each process */
	crew->pids[i] = child();
	if (crew->pids[i] < 0) {
		wrong("fork", -errno);
		crew->pids[i] = 0;
		return;
	}
	if (crew->pids[i])
		return;
	setpriority(PRIO_PROCESS, 0, 0);
	self_number = i;
	crew->work(crew->name);
}

static inline void crew_kill(struct crew *crew, int i)
{
	int ret;

	if (!crew->pids[i])
		return;
	__atomic_store_n(&ledger->dying[i], 1, __ATOMIC_SEQ_CST);
	kill(crew->pids[i], SIGKILL);
	ret = reap(crew->pids[i]);
	if (ret != 1000 + SIGKILL)
		wrong("the end of a process", ret);
	file_ends(i);
	__atomic_store_n(&ledger->dying[i], 0, __ATOMIC_SEQ_CST);
	crew->pids[i] = 0;
	crew->stopped[i] = false;
	crew->kills++;
}

/* Two of the processes are never stopped. */
static inline bool crew_stop(struct crew *crew, int i)
{
	if (!crew->stops_some || !crew->pids[i] || i <= 1 || !chance(3))
		return false;
	kill(crew->pids[i], crew->stopped[i] ? SIGCONT : SIGSTOP);
	crew->stopped[i] = !crew->stopped[i];
	crew->stops += crew->stopped[i];
	return true;
}

/* The second half of a test begins when the first half has seen enough. */
static inline void begin_drain(struct crew *crew)
{
	if (count ? crew->kills <= count / 2 :
		    now_ns() < crew->until - seconds * SEC / 2 || !crew->enough(crew))
		return;
	ledger->draining = true;
	crew->until = now_ns() + seconds * SEC / 2;
}

/*
 * Whether the test goes on: on a busy host until it has seen enough. With KILL_COUNT, the numbers
 * are spread over the kills, because the ledger has a row for each number.
 */
static inline bool goes_on(struct crew *crew)
{
	if (crew->drains && !ledger->draining)
		begin_drain(crew);
	ledger->allowed = ledger->draining ? 0 : !count ? room :
			  (room - WORKERS * MOST) * (crew->kills + 1LL) / (count + 1);
	if (count)
		return crew->kills < count;
	return ledger->next < room && (now_ns() < crew->until || crew->drains != ledger->draining ||
				       !crew->enough(crew));
}

static inline void crew_run(struct crew *crew, __s64 length)
{
	crew->until = now_ns() + length;
	crew->old = ledger->next;
	/* Ahead of the workers, which use all CPUs. */
	setpriority(PRIO_PROCESS, 0, -10);
	while (goes_on(crew)) {
		int i = chance(WORKERS);

		if (crew_stop(crew, i)) {
			sleep_ms(chance(10));
			continue;
		}
		crew_kill(crew, i);
		crew_start(crew, i);
		usleep(chance(5000));
	}
	for (int i = 0; i < WORKERS; i++)
		crew_kill(crew, i);
}

static inline bool ledger_new(__u32 size)
{
	const char *s = getenv("KILL_SECONDS"), *n = getenv("KILL_COUNT");

	seconds = s ? atol(s) : 3;
	count = n ? atol(n) : 0;
	room = size;
	begun = now_ns();
	seed = begun;
	COMMENT("seed %u\n", seed);
	ledger = shared(sizeof(*ledger));
	return ledger != MAP_FAILED;
}

/* Creates a queue, whose keys are soon tried again. */
static inline int queue_new(char name[WQ_NAME_MAX], struct wq_attrs *op)
{
	struct wq_limiter_spec soon = {
		.kind = WQ_LIMITER_EXPONENTIAL, .base = MS, .max = 20 * MS,
	};
	int q = q_dev(O_RDWR);

	snprintf(name, WQ_NAME_MAX, "kill-%d", getpid());
	strcpy(op->name, name);
	op->size = sizeof(*op);
	op->flags = WQ_OPEN_CREATE | WQ_OPEN_EXCL;
	op->mode = 0600;
	op->limiters = addr_of(&soon);
	op->num_limiters = 1;
	return q < 0 ? q : verb(q, WQ_IOC_OPEN, op) ?: q;
}

#endif /* WQ_KILL_H */
