// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "bpf": keys of BPF programs, which call the functions of this module (kfuncs).
 *
 * A source has a channel, which is a number.  The functions find it in wq_channels, which is read
 * under RCU.
 *
 * wq_add() may be called from an interrupt.  So wherever interrupts are enabled, a program may call
 * it, too: an interrupt could come there and do the same.  A program that runs in NMI or with
 * interrupts disabled may have interrupted the holder of any lock, and so may each program on
 * PREEMPT_RT, where locks are held with interrupts enabled.  Its key waits in a ring of this CPU,
 * and an irq_work passes it on, which is soon after.
 *
 * The ring (struct wq_bpf_ring): programs put slots into it, with interrupts disabled or in NMI, on
 * its own CPU alone.  A program that another one interrupts has taken its slot before, by a cmpxchg
 * of head.  The irq_work runs on the same CPU, and never in the middle of such a program, so all
 * slots below head are filled then.  Programs that interrupt the irq_work only see a tail that is
 * too low.  If the ring is full or the key too long, the program sets the bit of the channel in
 * lost, and the irq_work leaves a mark at the source.  So while its source exists, a key is lost
 * only if the function returns -EDEADLK.
 *
 * A slot has a channel, and no pointer, so it keeps no source.  If another source has got the
 * channel meanwhile, this source gets the key.  That is harmless, because a key is a request to
 * look.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/capability.h>
#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/wq.h>
#include <linux/wq_source.h>

#include <asm/local.h>

#include "base/compat.h"
#include "events/wq_bpf.h"

#define WQ_BPF_SLOTS	32U	/* a power of 2 */

/**
 * struct wq_bpf_event - a call of a program
 * @channel: of the source
 * @len: length of the key
 * @priority: level
 * @delay: ns
 */
struct wq_bpf_event {
	u32 channel;
	u32 len;
	int priority;
	s64 delay;
};

struct wq_bpf_slot {
	struct wq_bpf_event event;
	u8 key[WQ_BPF_MAX_KEY];
};

/**
 * struct wq_bpf_ring - events of a CPU that wait for the irq_work, see above
 * @head: number of the next slot to fill
 * @tail: number of the next slot to pass on, written by the irq_work alone
 * @lost: channels that get a mark
 * @work: passes the slots on
 * @passing: the task that @work runs in or has interrupted, while it runs
 * @level: the interrupt context of @work, while it runs
 * @slots: slot number N is slots[N % WQ_BPF_SLOTS]
 */
struct wq_bpf_ring {
	local_t head;
	unsigned long tail;
	DECLARE_BITMAP(lost, WQ_BPF_CHANNELS);
	struct irq_work work;
	const struct task_struct *passing;
	unsigned char level;
	struct wq_bpf_slot slots[WQ_BPF_SLOTS];
};

static struct wq_source __rcu *wq_channels[WQ_BPF_CHANNELS];
static struct wq_bpf_ring __percpu *wq_rings;

static void add_whole(struct wq_source *s, const struct wq_bpf_event *e, const void *key,
		      size_t len)
{
	/* Most keys have neither, and wq_source_add() takes half of the instructions. */
	if (e->priority || e->delay)
		wq_source_add_priority(s, key, len, 0, e->priority, e->delay);
	else
		wq_source_add(s, key, len, 0);
}

/*
 * The key can be in a map that processes write to meanwhile.  A queue reads a key several times: to
 * hash it, to compare it and to store it.  So the queue gets a copy, which does not change.  It is
 * on the stack, because a program can interrupt another one on the same CPU in any context.
 */
static noinline void add_copy(struct wq_source *s, const struct wq_bpf_event *e, const void *key,
			      const char *prefix, size_t n)
{
	u8 buf[WQ_BPF_MAX_KEY] __uninitialized;

	if (n)
		memcpy(buf, prefix, n);
	memcpy(buf + n, key, e->len);
	add_whole(s, e, buf, n + e->len);
}

/* Add a key to its source.  If it is too long with the prefix of the source, leave a mark. */
static void add(struct wq_source *s, const struct wq_bpf_event *e, const void *key)
{
	const char *prefix;
	size_t n;

	prefix = wq_source_prefix(s, &n);
	if (e->len > WQ_BPF_MAX_KEY - n)
		wq_source_rescan(s, NULL, 0);
	else
		add_copy(s, e, key, prefix, n);
}

/* A free slot of this CPU, or NULL.  Interrupts are disabled, but an NMI can come in between. */
static struct wq_bpf_slot *take_slot(struct wq_bpf_ring *ring)
{
	long head;

	do {
		head = local_read(&ring->head);
		/* The irq_work writes it on this CPU, and so not meanwhile. */
		if (head - READ_ONCE(ring->tail) >= WQ_BPF_SLOTS)
			return NULL;
	} while (local_cmpxchg(&ring->head, head, head + 1) != head);
	return &ring->slots[head % WQ_BPF_SLOTS];
}

/* From any context. */
static void add_later(const struct wq_bpf_event *e, const void *key)
{
	struct wq_bpf_ring *ring;
	struct wq_bpf_slot *slot;
	unsigned long flags;

	local_irq_save(flags);
	ring = this_cpu_ptr(wq_rings);
	slot = e->len <= WQ_BPF_MAX_KEY ? take_slot(ring) : NULL;
	if (slot) {
		slot->event = *e;
		memcpy(slot->key, key, e->len);
	} else {
		set_bit(e->channel, ring->lost);
	}
	irq_work_queue(&ring->work);
	local_irq_restore(flags);
}

/*
 * Whether this program runs because the irq_work adds a key: it traces a tracepoint of wq, or a
 * function that an add calls.  Its own key would let the irq_work run again, which would let the
 * program run again, and so for ever.  It runs in the task and in the interrupt context of the
 * irq_work then, where may_add_now() is false.  A program that interrupts the irq_work runs in
 * another context.
 */
static bool is_own_doing(void)
{
	/* If the task moves meanwhile, another task passes the keys of this ring on. */
	const struct wq_bpf_ring *ring = raw_cpu_ptr(wq_rings);

	/* Another CPU may write it meanwhile, but not the address of this task. */
	return READ_ONCE(ring->passing) == current &&
	       READ_ONCE(ring->level) == interrupt_context_level();
}

static void pass_on(struct irq_work *work)
{
	struct wq_bpf_ring *ring = container_of(work, struct wq_bpf_ring, work);
	/* A program that comes later queues the work again. */
	unsigned long end = local_read(&ring->head);
	struct wq_source *s;
	u32 channel;

	WRITE_ONCE(ring->level, interrupt_context_level());
	WRITE_ONCE(ring->passing, current);
	rcu_read_lock();
	while (ring->tail != end) {
		const struct wq_bpf_slot *slot = &ring->slots[ring->tail % WQ_BPF_SLOTS];

		s = rcu_dereference(wq_channels[slot->event.channel]);
		if (s)
			add(s, &slot->event, slot->key);
		/* A program that interrupts this fills the slot again once it sees the new tail. */
		smp_store_release(&ring->tail, ring->tail + 1);
	}
	for_each_set_bit(channel, ring->lost, WQ_BPF_CHANNELS) {
		clear_bit(channel, ring->lost);
		s = rcu_dereference(wq_channels[channel]);
		if (s)
			wq_source_rescan(s, NULL, 0);
	}
	rcu_read_unlock();
	WRITE_ONCE(ring->passing, NULL);
}

static bool may_add_now(void)
{
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && !in_nmi() && !irqs_disabled();
}

static int event(const struct wq_bpf_event *e, const void *key)
{
	struct wq_source *s;
	int ret = 0;

	if (!e->len)
		return -EINVAL;
	rcu_read_lock();
	s = e->channel < WQ_BPF_CHANNELS ? rcu_dereference(wq_channels[e->channel]) : NULL;
	if (!s)
		ret = -ENOENT;
	else if (may_add_now())
		add(s, e, key);
	else if (is_own_doing())
		ret = -EDEADLK;
	else
		add_later(e, key);
	rcu_read_unlock();
	return ret;
}

/**
 * wq_bpf_add() - a BPF program adds a key
 * @channel: of the source, see struct wq_bpf_args
 * @key: the key, compared bytewise
 * @key__sz: its length
 *
 * Context: any, also NMI.
 *
 * Return: 0: the key is added, or the rescan key will be; -ENOENT: no source has this channel;
 * -EINVAL: the key is empty; -EDEADLK: the program runs because a key of a program is added.
 */
__bpf_kfunc int wq_bpf_add(u32 channel, const void *key, u32 key__sz)
{
	const struct wq_bpf_event e = { .channel = channel, .len = key__sz };

	return event(&e, key);
}

/**
 * wq_bpf_add_priority() - a BPF program adds a key with a level and a delay
 * @channel: as for wq_bpf_add()
 * @key: as for wq_bpf_add()
 * @key__sz: as for wq_bpf_add()
 * @priority: level, see wq_add_priority(); 0 in a queue without levels
 * @delay: ns, or 0.  The delay of the source counts if it is larger
 *
 * Context: any, also NMI.
 *
 * Return: as for wq_bpf_add().
 */
__bpf_kfunc int wq_bpf_add_priority(u32 channel, const void *key, u32 key__sz, int priority,
				    s64 delay)
{
	const struct wq_bpf_event e = {
		.channel = channel, .len = key__sz, .priority = priority, .delay = delay,
	};

	return event(&e, key);
}

#ifdef WQ_BTF_TYPES
/*
 * The types of the functions: the verifier reads them as BTF in the module.  The kernel's build
 * makes that if it has the whole kernel at hand.  Headers alone are not enough, so the types are
 * written here, as they would be there: their numbers continue those of the kernel that
 * module/events/btf-base reads.  The set of functions has numbers of these types in place of what
 * resolve_btfids fills in.
 */
#define INFO(kind, n)	((kind) << 24 | (n))
#define INT(text, enc, bytes) { \
	.t = { NAME(text), INFO(BTF_KIND_INT, 0), { bytes } }, .bits = (enc) << 24 | (bytes) * 8, \
}
/* Offsets of names and numbers of types continue those of the kernel. */
#define NAME(field)	(WQ_BTF_STRINGS + (u32)offsetof(struct wq_btf_names, field))
enum { U32 = WQ_BTF_TYPES, S32, S64, VOID_CONST, KEY, ADD_PROTO, ADD, PRIORITY_PROTO, PRIORITY };

struct wq_btf_names {
	char u32[sizeof("unsigned int")];
	char s32[sizeof("int")];
	char s64[sizeof("long long int")];
	char channel[sizeof("channel")];
	char key[sizeof("key")];
	char key__sz[sizeof("key__sz")];
	char priority[sizeof("priority")];
	char delay[sizeof("delay")];
	char add[sizeof("wq_bpf_add")];
	char add_priority[sizeof("wq_bpf_add_priority")];
} __aligned(4);

struct wq_btf_int {
	struct btf_type t;
	u32 bits;
};

struct wq_btf_types {
	struct wq_btf_int u32, s32, s64;
	struct btf_type void_const, key;
	struct btf_type add_proto;
	struct btf_param add_params[3];
	struct btf_type add;
	struct btf_type priority_proto;
	struct btf_param priority_params[5];
	struct btf_type priority;
};

static const struct {
	struct btf_header header;
	struct wq_btf_types types;
	struct wq_btf_names names;
} wq_btf __used __section(".BTF") = {
	.header = {
		.magic = BTF_MAGIC,
		.version = BTF_VERSION,
		.hdr_len = sizeof(struct btf_header),
		.type_len = sizeof(struct wq_btf_types),
		.str_off = sizeof(struct wq_btf_types),
		.str_len = sizeof(struct wq_btf_names),
	},
	.types = {
		.u32 = INT(u32, 0, 4),
		.s32 = INT(s32, BTF_INT_SIGNED, 4),
		.s64 = INT(s64, BTF_INT_SIGNED, 8),
		.void_const = { .info = INFO(BTF_KIND_CONST, 0) },
		.key = { .info = INFO(BTF_KIND_PTR, 0), .type = VOID_CONST },
		.add_proto = { .info = INFO(BTF_KIND_FUNC_PROTO, 3), .type = S32 },
		.add_params = {
			{ NAME(channel), U32 }, { NAME(key), KEY }, { NAME(key__sz), U32 },
		},
		.add = { NAME(add), INFO(BTF_KIND_FUNC, 0), { ADD_PROTO } },
		.priority_proto = { .info = INFO(BTF_KIND_FUNC_PROTO, 5), .type = S32 },
		.priority_params = {
			{ NAME(channel), U32 }, { NAME(key), KEY }, { NAME(key__sz), U32 },
			{ NAME(priority), S32 }, { NAME(delay), S64 },
		},
		.priority = { NAME(add_priority), INFO(BTF_KIND_FUNC, 0), { PRIORITY_PROTO } },
	},
	.names = {
		"unsigned int", "int", "long long int", "channel", "key", "key__sz", "priority",
		"delay", "wq_bpf_add", "wq_bpf_add_priority",
	},
};

/* As struct btf_id_set8, whose pairs have no fixed number. */
static const struct {
	u32 cnt;
	u32 flags;
	struct {
		u32 id;
		u32 flags;
	} pairs[2];
} wq_bpf_set = {
	.cnt = 2,
	.flags = BTF_SET8_KFUNCS,
	.pairs = { { ADD }, { PRIORITY } },
};
#define WQ_BPF_SET	((struct btf_id_set8 *)&wq_bpf_set)
#else
BTF_KFUNCS_START(wq_bpf_set)
BTF_ID_FLAGS(func, wq_bpf_add)
BTF_ID_FLAGS(func, wq_bpf_add_priority)
BTF_KFUNCS_END(wq_bpf_set)
#define WQ_BPF_SET	(&wq_bpf_set)
#endif

static const struct btf_kfunc_id_set wq_bpf_kfuncs = {
	.owner = THIS_MODULE,
	.set = WQ_BPF_SET,
};

static int bpf_attach(struct wq_source *s, const void *arg)
{
	const struct wq_bpf_args *args = arg;
	char text[32];

	if (args->flags || args->channel >= WQ_BPF_CHANNELS)
		return -EINVAL;
	if (!bpf_capable())
		return -EPERM;
	snprintf(text, sizeof(text), "channel %u", args->channel);
	wq_source_describe(s, text);
	wq_source_set_private(s, &wq_channels[args->channel]);
	/* Pairs with rcu_dereference(). */
	return cmpxchg(&wq_channels[args->channel], NULL, RCU_INITIALIZER(s)) ? -EBUSY : 0;
}

static void bpf_unhook(struct wq_source *s)
{
	struct wq_source __rcu **channel = wq_source_private(s);

	RCU_INIT_POINTER(*channel, NULL);
}

static struct wq_source_kind wq_bpf_kind = {
	.name = "bpf",
	.owner = THIS_MODULE,
	.args_size = sizeof(struct wq_bpf_args),
	.args_min = offsetofend(struct wq_bpf_args, channel),
	.attach = bpf_attach,
	.unhook = bpf_unhook,
};

/* The kernel forgets a module's kfuncs with its types. */
static int register_kfuncs(void)
{
	static const enum bpf_prog_type types[] = {
		BPF_PROG_TYPE_TRACING, BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP,
		BPF_PROG_TYPE_SYSCALL,
	};
	int i, ret = 0;

	for (i = 0; i < ARRAY_SIZE(types) && !ret; i++)
		ret = register_btf_kfunc_id_set(types[i], &wq_bpf_kfuncs);
	return ret;
}

static int __init wq_bpf_init(void)
{
	int cpu, ret;

	wq_rings = alloc_percpu(struct wq_bpf_ring);
	if (!wq_rings)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		init_irq_work(&per_cpu_ptr(wq_rings, cpu)->work, pass_on);
	ret = register_kfuncs() ?: wq_source_register(&wq_bpf_kind);
	if (ret)
		free_percpu(wq_rings);
	return ret;
}
module_init(wq_bpf_init);

/* No program is left: each of them holds the module, and so does each source. */
static void __exit wq_bpf_exit(void)
{
	int cpu;

	wq_source_unregister(&wq_bpf_kind);
	for_each_possible_cpu(cpu)
		irq_work_sync(&per_cpu_ptr(wq_rings, cpu)->work);
	free_percpu(wq_rings);
}
module_exit(wq_bpf_exit);

MODULE_DESCRIPTION("wq: keys of BPF programs");
MODULE_LICENSE("GPL");
MODULE_ALIAS_WQ_SOURCE("bpf");
