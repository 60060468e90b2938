// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many producers and consumers at once.  Shared memory has for every key the number of its
 * adds, whether a consumer processes it, and the number of its adds when its latest run
 * began.
 */
#include "wq_test.h"

#include <pthread.h>

#define KEYS		1000
#define BATCH		64
#define WORKERS		16
#define MILLION		(977 * WORKERS * BATCH)	/* a little more */

struct key {
	unsigned int wanted, covered;
	int busy;
};

struct state {
	struct key key[KEYS];
	unsigned int twice;		/* runs of a key that was processed already, */
	unsigned int twice_key;		/* and the key of the latest of them */
	unsigned int bad;		/* failed calls, */
	int bad_line, bad_ret, bad_count; /* and the latest of them */
	unsigned int runs;
};

struct work {
	struct state *s;
	int q;
	unsigned int adds, batch, seed;
};

static void add_one(unsigned int *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_SEQ_CST);
}

static void ran_twice(struct state *s, unsigned int key)
{
	s->twice_key = key;
	add_one(&s->twice);
}

static void failed_call(struct state *s, int line, int ret, int count)
{
	s->bad_line = line;
	s->bad_ret = ret;
	s->bad_count = count;
	add_one(&s->bad);
}

static void *produce(void *arg)
{
	struct work *w = arg;
	struct array a = array_new(BATCH * WQ_REC_SIZE(8));
	int ret;

	for (unsigned int i = 0; i < w->adds; i += w->batch) {
		array_reset(&a);
		for (unsigned int j = 0; j < w->batch; j++) {
			__u64 key;

			w->seed = w->seed * 1103515245 + 12345;
			key = (w->seed >> 8) % KEYS;
			add_one(&w->s->key[key].wanted);
			array_put(&a, &key, sizeof(key), 0);
		}
		ret = q_add_array(w->q, &a);
		if (ret || a.count != w->batch)
			failed_call(w->s, __LINE__, ret, a.count);
	}
	free(a.recs);
	return NULL;
}

static void *consume(void *arg)
{
	struct work *w = arg;
	struct array a = array_new(BATCH * WQ_REC_SIZE(8));
	struct wq_rec *rec;
	int ret;

	while (!(ret = q_get_array(w->q, &a, w->batch, FOREVER))) {
		unsigned int n = a.count;

		rec = a.recs;
		for (int i = 0; i < n; i++, rec = rec_next(rec)) {
			unsigned int k = *(__u64 *)rec->key % KEYS;
			struct key *key = &w->s->key[k];

			if (__atomic_exchange_n(&key->busy, 1, __ATOMIC_SEQ_CST))
				ran_twice(w->s, k);
			__atomic_store_n(&key->covered,
					 __atomic_load_n(&key->wanted, __ATOMIC_SEQ_CST),
					 __ATOMIC_SEQ_CST);
		}
		rec = a.recs;
		for (int i = 0; i < n; i++, rec = rec_next(rec)) {
			unsigned int k = *(__u64 *)rec->key % KEYS;
			struct key *key = &w->s->key[k];

			if (!__atomic_exchange_n(&key->busy, 0, __ATOMIC_SEQ_CST))
				ran_twice(w->s, k);
		}
		__atomic_fetch_add(&w->s->runs, n, __ATOMIC_SEQ_CST);
		ret = q_done_array(w->q, &a);
		if (ret || a.count != n)
			failed_call(w->s, __LINE__, ret, a.count);
	}
	if (ret != -ESHUTDOWN)
		failed_call(w->s, __LINE__, ret, 0);
	free(a.recs);
	return NULL;
}

/* Runs fn in a process with an open file of its own. */
static pid_t process(void *(*fn)(void *), const char *name, struct work w)
{
	pid_t pid = child();

	if (!pid) {
		w.q = q_attach(name, O_RDWR);
		fn(&w);
		_exit(0);
	}
	return pid;
}

/* Every add is covered by a run that began after it, and the statistics add up. */
static bool all_covered(struct state *s, int q, unsigned int adds)
{
	struct wq_stat st = q_stat(q);
	unsigned int wanted = 0;
	char what[64];

	if (s->bad) {
		COMMENT("line %d: expected success, seen %d (%s), count %d; %u calls failed\n", s->bad_line,
		    s->bad_ret, strerror(-s->bad_ret), s->bad_count, s->bad);
		return false;
	}
	snprintf(what, sizeof(what), "runs at once, at last of key %u", s->twice_key);
	if (!equal(what, 0, s->twice))
		return false;
	for (int i = 0; i < KEYS; i++) {
		wanted += s->key[i].wanted;
		snprintf(what, sizeof(what), "adds of key %d that a later run covers", i);
		if (!equal(what, s->key[i].wanted, s->key[i].covered))
			return false;
		snprintf(what, sizeof(what), "runs of key %d that did not end", i);
		if (!equal(what, 0, s->key[i].busy))
			return false;
	}
	return equal("adds that the test counted", adds, wanted) &&
	       equal("keys after the drain", 0, st.keys) &&
	       equal("ready keys after the drain", 0, st.ready) &&
	       equal("processing keys after the drain", 0, st.processing) &&
	       equal("adds + coalesced", adds, st.adds + st.coalesced) &&
	       equal("gets", st.adds, st.gets) && equal("dones", st.gets, st.dones) &&
	       equal("runs", st.gets, s->runs) && equal("given_back", 0, st.given_back);
}

static bool in_processes(const char *name, int q, struct state *s,
			 unsigned int adds, unsigned int batch)
{
	struct work w = { .s = s, .batch = batch };
	pid_t producer[WORKERS], consumer[WORKERS];
	bool good = true;

	w.adds = adds / WORKERS;
	for (int i = 0; i < WORKERS; i++) {
		w.seed = i * 7919;
		consumer[i] = process(consume, name, w);
		producer[i] = process(produce, name, w);
	}
	for (int i = 0; i < WORKERS; i++)
		good &= equal("status of a producer", 0, reap(producer[i]));
	good &= equal("drain", 0, q_drain(q));
	for (int i = 0; i < WORKERS; i++)
		good &= equal("status of a consumer", 0, reap(consumer[i]));
	return good;
}

TEST_F(queue, stress_add_of_a_million_keys_by_16_processes)
{
	struct state *s = shared(sizeof(*s));

	ASSERT_TRUE(in_processes(self->name, self->q, s, MILLION, BATCH));
	ASSERT_TRUE(all_covered(s, self->q, MILLION));
}

TEST_F(queue, stress_add_of_a_key_per_call_by_16_processes)
{
	struct state *s = shared(sizeof(*s));

	ASSERT_TRUE(in_processes(self->name, self->q, s, 16000, 1));
	ASSERT_TRUE(all_covered(s, self->q, 16000));
}

TEST_F(queue, stress_add_of_a_million_keys_by_16_threads_on_one_file)
{
	struct state *s = shared(sizeof(*s));
	struct work producer[WORKERS], consumer[WORKERS];
	pthread_t threads[2 * WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		consumer[i] = (struct work){ .s = s, .q = self->q, .batch = BATCH };
		producer[i] = (struct work){
			.s = s, .q = self->q, .batch = BATCH,
			.adds = MILLION / WORKERS, .seed = i * 7919,
		};
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, produce, &producer[i]));
		ASSERT_EQ(0, pthread_create(&threads[WORKERS + i], NULL, consume, &consumer[i]));
	}
	for (int i = 0; i < WORKERS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < WORKERS; i++)
		ASSERT_EQ(0, pthread_join(threads[WORKERS + i], NULL));
	ASSERT_TRUE(all_covered(s, self->q, MILLION));
}

TEST_F(queue, stress_give_back_of_consumers_killed_at_any_time)
{
	enum { ROUNDS = 60, N = 4 };
	struct array a = array_new(KEYS * WQ_REC_SIZE(8));
	struct work w = { .s = shared(sizeof(*w.s)), .batch = 8 };
	pid_t pid[N];

	for (int i = 0; i < N; i++)
		pid[i] = process(consume, self->name, w);
	for (int round = 0; round < ROUNDS; round++) {
		array_reset(&a);
		for (__u64 key = 0; key < KEYS; key++)
			array_put(&a, &key, sizeof(key), 0);
		ASSERT_EQ(0, q_add_array(self->q, &a));
		for (int i = 0; i < N; i++) {
			sleep_ms(round % 3);
			kill(pid[i], SIGKILL);
			ASSERT_EQ(1000 + SIGKILL, reap(pid[i]));
			pid[i] = process(consume, self->name, w);
		}
	}
	ASSERT_EQ(0, q_drain(self->q));
	for (int i = 0; i < N; i++)
		ASSERT_EQ(0, reap(pid[i]));
	ASSERT_EQ(0, q_stat(self->q).keys);
	/* every key that was got was done, or given back and got again */
	ASSERT_EQ(q_stat(self->q).gets, q_stat(self->q).dones + q_stat(self->q).given_back);
	ASSERT_EQ(0, w.s->bad);
}

TEST_F(queue, stress_open_and_unlink_of_many_queues)
{
	pid_t pid[8];

	for (int i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = child();
		if (pid[i])
			continue;
		for (int n = 0; n < 150; n++) {
			char name[WQ_NAME_MAX];
			struct item it;
			int q;

			/* four names for eight processes */
			snprintf(name, sizeof(name), "%.40s-%d", self->name, (i + n) % 4);
			q = q_open(name, O_RDWR, WQ_OPEN_CREATE, 0600, 100);
			if (q < 0)
				_exit(1);
			q_addn(q, &n, sizeof(n));
			q_get(q, &it, 0);
			if (n % 3 == 0) {
				int ret = q_unlink(name);

				if (ret && ret != -ENOENT)
					_exit(2);
			}
			if (n % 2)
				close(q);
		}
		_exit(0);
	}
	for (int i = 0; i < ARRAY_SIZE(pid); i++)
		ASSERT_EQ(0, reap(pid[i]));
	for (int i = 0; i < 4; i++) {
		char name[WQ_NAME_MAX];

		snprintf(name, sizeof(name), "%.40s-%d", self->name, i);
		q_unlink(name);
	}
}

TEST_HARNESS_MAIN
