// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entries: their memory, and their keys as text.
 *
 * An entry and its key are one allocation: 64 bytes for a key of up to 16, which is a cache
 * line of most CPUs.  Caches by size have sizes that kmalloc() does not have, and keep other
 * kernel objects apart from memory that users fill.
 */
#include <linux/export.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string_helpers.h>

#include "base/compat.h"
#include "base/entry.h"

static struct kmem_cache *key_caches[WQ_SIZES];

/* Out of line, so that wq_key_alloc() saves fewer registers for a queue without a cgroup. */
static noinline void *key_alloc_charged(const struct wq_mem *m, struct kmem_cache *cache, gfp_t gfp)
{
	return wq_mem_alloc(m, gfp, kmem_cache_alloc(cache, gfp));
}

/*
 * Memory for an entry, @prefix bytes ahead of it, and a key of @len bytes; wq_key_init() makes it
 * an entry.
 */
struct wq_key *wq_key_alloc(const struct wq_mem *m, u32 prefix, u32 len, gfp_t gfp)
{
	struct kmem_cache *cache = key_caches[wq_key_size(prefix, len)];
	void *mem = unlikely(m->memcg) ? key_alloc_charged(m, cache, gfp) :
					 kmem_cache_alloc(cache, gfp);

	return mem ? mem + prefix : NULL;
}

void wq_key_free(struct wq_key *k, u32 prefix)
{
	kmem_cache_free(key_caches[wq_key_size(prefix, k->entry.len)], (void *)k - prefix);
}

/* Free entries that no look-up can find any more, chained by next_freed. */
void wq_entries_free(struct wq_entry *e, u32 prefix)
{
	while (e) {
		struct wq_entry *next = e->next_freed;

		wq_key_free(wq_key_of(e), prefix);
		e = next;
	}
}

static void free_plain_rcu(struct rcu_head *rcu)
{
	wq_entries_free(container_of(rcu, struct wq_entry, rcu), 0);
}

static void free_timed_rcu(struct rcu_head *rcu)
{
	wq_entries_free(container_of(rcu, struct wq_entry, rcu), WQ_PREFIX_TIMES);
}

static void free_leased_rcu(struct rcu_head *rcu)
{
	wq_entries_free(container_of(rcu, struct wq_entry, rcu), WQ_PREFIX_LEASE);
}

static void free_ordered_rcu(struct rcu_head *rcu)
{
	wq_entries_free(container_of(rcu, struct wq_entry, rcu), WQ_PREFIX_ORDER);
}

static void free_leveled_rcu(struct rcu_head *rcu)
{
	wq_entries_free(container_of(rcu, struct wq_entry, rcu), WQ_PREFIX_LEVELED);
}

/*
 * Free entries that were in a table, chained by next_freed, after the look-ups without the lock
 * that may still read them, see wq_table_peek().
 */
void wq_entries_free_rcu(struct wq_entry *e, u32 prefix)
{
	call_rcu(&e->rcu, !prefix ? free_plain_rcu :
		 prefix == WQ_PREFIX_TIMES ? free_timed_rcu :
		 prefix == WQ_PREFIX_LEASE ? free_leased_rcu :
		 prefix == WQ_PREFIX_ORDER ? free_ordered_rcu : free_leveled_rcu);
}

/**
 * wq_entry_key() - the key of an entry, for an ordering policy
 * @entry: the entry
 * @len: receives the key's length in bytes
 *
 * Context: any; the queue's lock is held.
 *
 * Return: the key, valid as long as the entry is in the policy; NULL: the entry is embedded.
 */
const void *wq_entry_key(struct wq_entry *entry, size_t *len)
{
	*len = entry->len;
	return wq_key_data(entry);
}
EXPORT_SYMBOL_GPL(wq_entry_key);

/**
 * wq_bytes_text() - a key for people, escaped as in a C string
 * @to: the text's buffer
 * @size: size of @to in bytes; the text ends with the last byte that fits whole
 * @key: the key, or an embedded entry
 * @key_len: its length in bytes; 0: an embedded entry
 *
 * printk's %*pE does not fit: it prints Latin-1 as it is, and neither backslash nor
 * quote is escaped.  An embedded entry is shown by its address, which %p hashes.
 *
 * Context: any.
 *
 * Return: length of the text without its NUL.
 */
size_t wq_bytes_text(char *to, size_t size, const void *key, size_t key_len)
{
	size_t len = 0, i;
	char one[4];
	int n;

	if (!key_len)
		return scnprintf(to, size, "embedded:%p", key);
	for (i = 0; i < key_len; i++) {
		n = string_escape_mem((const char *)key + i, 1, one, sizeof(one),
				      ESCAPE_ANY | ESCAPE_NAP | ESCAPE_APPEND, "\"\\");
		if (len + n >= size)
			break;
		memcpy(to + len, one, n);
		len += n;
	}
	to[len] = '\0';
	return len;
}
EXPORT_SYMBOL_IF_KUNIT(wq_bytes_text);

void wq_entry_exit(void)
{
	unsigned int i;

	/* Entries that wq_entries_free_rcu() has yet to free. */
	rcu_barrier();
	for (i = 0; i < WQ_SIZES; i++)
		kmem_cache_destroy(key_caches[i]);
}

int __init wq_entry_init(void)
{
	unsigned int i;
	char name[24];
	u32 room;

	for (i = 0; i < WQ_SIZES; i++) {
		room = wq_room_of_size(i);
		snprintf(name, sizeof(name), "wq_key-%u", room);
		/* A usercopy region keeps the cache from being merged with others. */
		key_caches[i] = kmem_cache_create_usercopy(name, sizeof(struct wq_key) + room, 0, 0,
							   offsetof(struct wq_key, key), room,
							   NULL);
		if (!key_caches[i]) {
			wq_entry_exit();
			return -ENOMEM;
		}
	}
	return 0;
}
