// SPDX-License-Identifier: LGPL-2.1-only
/*
 * libwq: producers.  A producer is a table of keys with their marks, which has a bounded size and no other memory than
 * that of long keys.  A key is in one of SLOT_TRIES slots from its hash on.  If all of them have
 * other keys that still wait, it replaces one of them, which costs a later call and nothing else.
 * The hash has no secret for the same reason: chosen keys cause calls, as without a producer.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#define SLOT_TRIES	4
#define SLOT_KEY	48		/* bytes of a key that need no further memory */
#define MAX_SLOTS	(1U << 20)

struct wq_slot {
	uint32_t value;			/* of the counter, before the add */
	uint32_t generation;		/* of the map, before the add */
	uint32_t counter;
	uint32_t len;			/* of the key; 0: the slot is empty */
	union {
		char key[SLOT_KEY];
		char *long_key;
	};
};

static uint64_t load64(const void *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/* The last 8 bytes of a key, or all of a shorter one. */
static uint64_t key_tail(const char *key, size_t len)
{
	uint64_t x = 0;

	if (len >= sizeof(x))
		return load64(key + len - sizeof(x));
	memcpy(&x, key, len);
	return x;
}

/* The upper bits are those that are used. */
static inline uint64_t key_hash(const char *key, size_t len)
{
	const uint64_t odd = 0x9e3779b97f4a7c15;
	uint64_t h = len;
	size_t i;

	for (i = 0; i + sizeof(h) < len; i += sizeof(h)) {
		h = (h ^ load64(key + i)) * odd;
		h = h << 5 | h >> 59;
	}
	return (h ^ key_tail(key, len)) * odd;
}

static inline struct wq_slot *slot_at(const struct wq_producer *p, uint64_t hash, uint32_t try)
{
	return &p->slots[((hash >> p->shift) + try) & p->mask];
}

/* slot_has() of a key that memcmp() would take longer for: 8 to SLOT_KEY bytes. */
static inline bool slot_has_short(const struct wq_slot *s, const char *key, size_t len)
{
	size_t i;

	if (s->len != len)
		return false;
	for (i = 0; i + sizeof(uint64_t) < len; i += sizeof(uint64_t))
		if (load64(s->key + i) != load64(key + i))
			return false;
	return load64(s->key + len - sizeof(uint64_t)) == load64(key + len - sizeof(uint64_t));
}

static bool slot_has(const struct wq_slot *s, const char *key, size_t len)
{
	return s->len == len && !memcmp(len > SLOT_KEY ? s->long_key : s->key, key, len);
}

/* Whether the key in a slot has been dirty since it was added. */
static inline bool slot_waits(const struct wq_producer *p, const struct wq_slot *s)
{
	const struct wq_map_page *page = p->page;

	/*
	 * The counter comes first: if it has wrapped before this load, the generation has
	 * changed before the next one.
	 */
	return __atomic_load_n(&page->counters[s->counter], __ATOMIC_ACQUIRE) == s->value &&
	       __atomic_load_n(&page->generation, __ATOMIC_RELAXED) == s->generation;
}

/* An add of the key in a slot.  Returns whether it needs no call. */
static inline bool slot_add(struct wq_producer *p, const struct wq_slot *s)
{
	/*
	 * Pairs with the barrier in wq_counters_move() of the kernel: if the counter has not
	 * changed, the run that follows sees what the caller stored.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!slot_waits(p, s))
		return false;
	p->coalesced++;
	return true;
}

/* The slot that has a key, or NULL. */
static struct wq_slot *slot_find(const struct wq_producer *p, const char *key, size_t len)
{
	uint64_t hash;
	uint32_t i;

	/* The length of an empty slot is 0. */
	if (!p->page || len - 1 >= WQ_MAX_KEY)
		return NULL;
	hash = key_hash(key, len);
	for (i = 0; i < SLOT_TRIES; i++)
		if (slot_has(slot_at(p, hash, i), key, len))
			return slot_at(p, hash, i);
	return NULL;
}

/* A first look, for a key of usual length in its first slot: it needs few instructions. */
static inline bool producer_waits_short(struct wq_producer *p, const char *key, size_t len)
{
	const struct wq_slot *s;

	if (!p->page || len - sizeof(uint64_t) > SLOT_KEY - sizeof(uint64_t))
		return false;
	s = slot_at(p, key_hash(key, len), 0);
	return slot_has_short(s, key, len) && slot_add(p, s);
}

static bool producer_waits_any(struct wq_producer *p, const char *key, size_t len)
{
	const struct wq_slot *s = slot_find(p, key, len);

	return s && slot_add(p, s);
}

bool wq_producer_waits(struct wq_producer *p, const void *key, size_t len)
{
	return producer_waits_short(p, key, len) || producer_waits_any(p, key, len);
}

/* The slot for a key that was added: its own, or one that is free, or any of those it may have. */
static struct wq_slot *slot_for(struct wq_producer *p, const char *key, size_t len)
{
	struct wq_slot *s = slot_find(p, key, len);
	uint64_t hash = key_hash(key, len);
	uint32_t i;

	if (s)
		return s;
	for (i = 0; i < SLOT_TRIES; i++) {
		s = slot_at(p, hash, i);
		if (!s->len || !slot_waits(p, s))
			return s;
	}
	return slot_at(p, hash, p->turn++ % SLOT_TRIES);
}

static void slot_clear(struct wq_slot *s)
{
	if (s->len > SLOT_KEY)
		free(s->long_key);
	s->len = 0;
}

/* Remember a key that was added.  @generation was read before the add. */
static void producer_note(struct wq_producer *p, const char *key, size_t len, uint32_t generation,
			  const struct wq_mark *mark)
{
	struct wq_slot *s;
	char *to;

	if (!generation || mark->counter >= WQ_MAP_COUNTERS)
		return;
	s = slot_for(p, key, len);
	if (!slot_has(s, key, len)) {
		slot_clear(s);
		to = s->key;
		if (len > SLOT_KEY) {
			to = malloc(len);
			if (!to)
				return;
			s->long_key = to;
		}
		memcpy(to, key, len);
		s->len = len;
	}
	s->counter = mark->counter;
	s->value = mark->value;
	s->generation = generation;
}

static uint32_t producer_generation(const struct wq_producer *p)
{
	return p->page ? __atomic_load_n(&p->page->generation, __ATOMIC_ACQUIRE) : 0;
}

/* Not inlined, so that most adds without a call do not pay for the record. */
__attribute__((noinline))
static int producer_call(struct wq_producer *p, const void *key, size_t len)
{
	struct wq_mark mark = { .counter = WQ_NO_COUNTER };
	uint32_t generation;
	union rec_buf buf;
	struct wq_keys keys = { .addr = addr(&buf), .count = 1 };
	int32_t result = 0;

	if (producer_waits_any(p, key, len))
		return 0;
	if (rec_fill(&buf.rec, key, len, 0))
		return -1;
	keys.size = WQ_REC_SIZE(len);
	generation = producer_generation(p);
	if (keys_add_marked(p->q, &keys, &result, p->page ? &mark : NULL) < 0)
		return -1;
	if (result < 0) {
		errno = -result;
		return -1;
	}
	producer_note(p, key, len, generation, &mark);
	return result;
}

int wq_producer_add(struct wq_producer *p, const void *key, size_t len)
{
	return producer_waits_short(p, key, len) ? 0 : producer_call(p, key, len);
}

static int producer_alloc_marks(struct wq_producer *p, uint32_t count)
{
	struct wq_mark *marks;

	if (count <= p->marks_room)
		return 0;
	marks = realloc(p->marks, count * sizeof(*marks));
	if (!marks)
		return -1;
	p->marks = marks;
	p->marks_room = count;
	return 0;
}

int wq_producer_add_many(struct wq_producer *p, struct wq_items *b)
{
	uint32_t generation = producer_generation(p), i, offset;
	struct wq_rec *rec;
	int ret;

	/* Without memory for marks, the next adds of the keys are calls. */
	if (!p->page || producer_alloc_marks(p, b->count))
		return wq__add_items(p->q, b, NULL);
	ret = wq__add_items(p->q, b, p->marks);
	if (ret <= 0)
		return ret;
	items_for_each(b, i, offset, rec)
		if (i < (uint32_t)ret && b->results[i] >= 0)
			producer_note(p, (const char *)rec->key, rec->len, generation, &p->marks[i]);
	return ret;
}

/* Map the map of @q.  Returns NULL without an error if it has none. */
static const struct wq_map_page *map_page(int q, bool *has)
{
	struct wq_control arg = { .size = sizeof(arg) };
	int fd = ioctl(q, WQ_IOC_MAP, &arg);
	void *page;

	*has = fd >= 0;
	if (!*has)
		return NULL;
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	close_keeping_errno(fd);
	return page == MAP_FAILED ? NULL : page;
}

int wq_producer_init(struct wq_producer *p, int q, unsigned int keys)
{
	uint32_t slots = SLOT_TRIES, bits = 2;
	bool has;

	memset(p, 0, sizeof(*p));
	p->q = q;
	p->page = map_page(q, &has);
	/* An older kernel returns ENOTTY, and so does a file that is not a wq. */
	if (!p->page)
		return has || (errno != EOPNOTSUPP && errno != ENOTTY) ? -1 : 0;

	if (!keys)
		keys = 1024;
	while (slots < keys && slots < MAX_SLOTS) {
		slots *= 2;
		bits++;
	}
	p->mask = slots - 1;
	p->shift = 64 - bits;
	p->slots = calloc(slots, sizeof(*p->slots));
	if (!p->slots) {
		wq_producer_free(p);
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

void wq_producer_free(struct wq_producer *p)
{
	uint32_t i;

	if (p->page)
		munmap((void *)p->page, sysconf(_SC_PAGESIZE));
	for (i = 0; p->slots && i <= p->mask; i++)
		slot_clear(&p->slots[i]);
	free(p->slots);
	free(p->marks);
	memset(p, 0, sizeof(*p));
	p->q = -1;
}
