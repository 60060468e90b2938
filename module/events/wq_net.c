// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "net": links, addresses, neighbours and routes of a network namespace.
 *
 * The module has notifiers of links, IPv4 and IPv6 addresses, and neighbours.  A notifier finds the
 * sources of the namespace by net_ns.watch, which is read under RCU.
 *
 * Notifiers of routes belong to a namespace, and each end of one takes a grace period.  So a
 * namespace has one for all of its sources of routes, net_ns.fib.
 *
 * Most notifiers are called after the change, so a consumer that looks sees it.  Notifiers of
 * routes are called before the change in some cases, so their keys wait in a queue of the
 * namespace, and a work item passes them on when each change that was in progress has ended: IPv4
 * routes change under the RTNL, IPv6 routes with softirqs disabled, which a grace period of RCU
 * waits for.  A user chooses how many routes change at a time, so the queue is small.  If a key
 * finds no room, a rescan key stands for all routes.
 *
 * Lifetimes.  A source has no reference to its namespace:
 *
 *  - struct net_ns lives as long as the namespace, until the last of the kernel's events for it.
 *  - struct net_watch belongs to the sources of the namespace, and outlives it.  The first source
 *    makes it.  It leaves net_ns.watch with the last source, or when the namespace ends.  The last
 *    source frees the net_watch, a grace period after that source was unhooked.
 *  - net_ns.fib is registered by the first source of routes.  After the last one, a work item of
 *    the namespace unregisters it, and holds the namespace meanwhile.  If the namespace ends
 *    before, it stays registered: it does nothing without sources, and ends with the namespace's
 *    chain of notifiers.  To unregister it would take a grace period, for which the ends of other
 *    namespaces would wait.
 *
 * The end of a namespace takes a constant time, because one thread of the kernel ends all
 * namespaces: it unlinks net_ns.watch, and a work item ends the sources.
 *
 * Locks: wq_net_lock protects the lists of sources and the links between the structs.  It is a raw
 * spinlock, because a task that its cgroup throttles can hold any other lock for long, and the ends
 * of namespaces would wait for it.  net_ns.fib_lock serializes the registration of net_ns.fib.
 */
#include <linux/inetdevice.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/wq.h>
#include <linux/wq_source.h>
#include <net/addrconf.h>
#include <net/fib_notifier.h>
#include <net/ip6_fib.h>
#include <net/ip_fib.h>
#include <net/neighbour.h>
#include <net/net_namespace.h>
#include <net/netevent.h>
#include <net/netns/generic.h>

#include "base/compat.h"

#define WQ_NET_TEXT	96	/* bytes of a key without the prefix, at most */
#define WQ_NET_BATCH	32	/* routes that are passed on at a time */
#define WQ_NET_ROUTES	512	/* routes that wait to be passed on, at most */

/**
 * struct net_source - a source
 * @s: the source of wq
 * @watch: that of its namespace
 * @tables: WQ_NET_*
 * @link: N: in net_watch.sources, which is read under RCU
 * @last: no other source was left when it was unhooked
 */
struct net_source {
	struct wq_source *s;
	struct net_watch *watch;
	u32 tables;
	struct list_head link;
	bool last;
};

/**
 * struct net_ns - a network namespace
 * @net: the namespace
 * @watch: N: its sources, which are read under RCU; NULL: it has none
 * @nr_routes: N: sources of routes
 * @fib_lock: protects @live
 * @fib: notifier of routes
 * @live: @fib is registered: before, it lists the routes that there are
 * @unlive: unregisters @fib if there is no source of routes; holds @net
 */
struct net_ns {
	struct net *net;
	struct net_watch __rcu *watch;
	u32 nr_routes;
	struct mutex fib_lock;
	struct notifier_block fib;
	bool live;
	struct work_struct unlive;
};

/**
 * struct net_watch - the sources of a namespace
 * @ns: N: the namespace; NULL: it has ended
 * @sources: N: the sources, which are read under RCU
 * @nr: N: how many they are
 * @routes: keys of routes that wait until their change has ended; NULL until the first source of
 *	routes, then constant
 * @lost: bit 0: a key of a route could not be added to @routes
 * @pass_on: passes the keys of @routes on
 * @ended: ends the sources after the end of the namespace
 *
 * Legend: N: protected by wq_net_lock.
 */
struct net_watch {
	struct net_ns *ns;
	struct list_head sources;
	u32 nr;
	struct wq *routes;
	unsigned long lost;
	struct work_struct pass_on;
	struct work_struct ended;
};

/**
 * struct net_table - a kind of keys
 * @bit: WQ_NET_*
 * @len: length of @name
 * @name: what its keys begin with: its rescan key
 */
struct net_table {
	u32 bit;
	u32 len;
	char name[8];
};

#define NET_TABLE(bit, name)	{ bit, sizeof(name) - 1, name }
static const struct net_table links = NET_TABLE(WQ_NET_LINK, "link/");
static const struct net_table addrs = NET_TABLE(WQ_NET_ADDR, "addr/");
static const struct net_table neighs = NET_TABLE(WQ_NET_NEIGH, "neigh/");
static const struct net_table routes = NET_TABLE(WQ_NET_ROUTE, "route/");

static DEFINE_RAW_SPINLOCK(wq_net_lock);
static unsigned int wq_net_id;
static struct workqueue_struct *wq_net_wq;
static bool wq_net_unloading;

/*
 * snprintf() would take 1,100 of the 1,600 instructions that the key of a neighbour costs, so most
 * parts of a key are written without it.  Each function returns the end of what it has written,
 * without a NUL.
 */
static char *put_name(char *to, const struct net_table *table)
{
	memcpy(to, table->name, sizeof(table->name));
	return to + table->len;
}

static char *put_number(char *to, u32 n)
{
	char digits[10] __uninitialized;
	int i = 0;

	for (; n >= 10; n /= 10)
		digits[i++] = '0' + n % 10;
	*to++ = '0' + n;
	while (i)
		*to++ = digits[--i];
	return to;
}

static char *put_address(char *to, int family, const void *address)
{
	const u8 *byte = address;
	int i;

	if (family == AF_INET6)
		return to + sprintf(to, "%pI6c", address);
	for (i = 0; i < 4; i++) {
		u32 n = byte[i], tens = n / 10;

		if (tens >= 10)
			*to++ = '0' + tens / 10;
		if (tens)
			*to++ = '0' + tens % 10;
		*to++ = '0' + n % 10;
		*to++ = '.';
	}
	return to - 1;
}

/* Put the prefix into the room ahead of @text.  Returns the start of the key. */
static char *put_prefix(const struct net_source *src, char *text, size_t *prefix_len)
{
	const char *prefix = wq_source_prefix(src->s, prefix_len);

	return *prefix_len ? memcpy(text - *prefix_len, prefix, *prefix_len) : text;
}

static void add_to(const struct net_source *src, const struct net_table *table, char *text,
		   size_t len)
{
	size_t prefix_len;
	const char *key = put_prefix(src, text, &prefix_len);

	wq_source_add(src->s, key, prefix_len + len, prefix_len + table->len);
}

/* Under RCU.  @text has room for a prefix ahead of it. */
static void add_to_all(const struct net_watch *w, const struct net_table *table, char *text,
		       size_t len)
{
	const struct net_source *src;

	list_for_each_entry_rcu(src, &w->sources, link)
		if (src->tables & table->bit)
			add_to(src, table, text, len);
}

/* Add the key of a change to all sources of its namespace.  @address: NULL for a link */
static void add(const struct net_device *dev, const struct net_table *table, int family,
		const void *address)
{
	struct net_ns *ns = net_generic(dev_net(dev), wq_net_id);
	const struct net_watch *w;
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT] __uninitialized;
	char *text = buf + WQ_SOURCE_PREFIX_MAX, *end;

	/*
	 * Pairs with the barrier in net_attach(): either this change sees the source, or a dump
	 * after the attach sees the change.
	 */
	smp_mb();
	if (!rcu_access_pointer(ns->watch))
		return;
	end = put_number(put_name(text, table), dev->ifindex);
	if (address) {
		*end++ = '/';
		end = put_address(end, family, address);
	}
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	if (w)
		add_to_all(w, table, text, end - text);
	rcu_read_unlock();
}

static int on_link(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct net_device *dev = netdev_notifier_info_to_dev(info);

	add(dev, &links, 0, NULL);
	return NOTIFY_DONE;
}

static int on_addr(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct in_ifaddr *ifa = info;

	add(ifa->ifa_dev->dev, &addrs, AF_INET, &ifa->ifa_local);
	return NOTIFY_DONE;
}

#if IS_ENABLED(CONFIG_IPV6)
static int on_addr6(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct inet6_ifaddr *ifa = info;

	add(ifa->idev->dev, &addrs, AF_INET6, &ifa->addr);
	return NOTIFY_DONE;
}

static struct notifier_block addr6_nb = { .notifier_call = on_addr6 };
#endif

static int on_neigh(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct neighbour *n = info;

	if (event == NETEVENT_NEIGH_UPDATE &&
	    (n->tbl->family == AF_INET || n->tbl->family == AF_INET6))
		add(n->dev, &neighs, n->tbl->family, n->primary_key);
	return NOTIFY_DONE;
}

static const char *table_name(u32 id, char number[12])
{
	switch (id) {
	case RT_TABLE_DEFAULT:
		return "default";
	case RT_TABLE_MAIN:
		return "main";
	case RT_TABLE_LOCAL:
		return "local";
	}
	snprintf(number, 12, "%u", id);
	return number;
}

static char *put_route(char *to, u32 id, int family, const void *dst, u32 dst_len)
{
	char number[12];

	to += sprintf(to, "%s%s/", routes.name, table_name(id, number));
	to = put_address(to, family, dst);
	return to + sprintf(to, "/%u", dst_len);
}

/* The key of a route; its length, or 0 if it is none. */
static size_t route_text(const struct fib_notifier_info *info, char text[WQ_NET_TEXT])
{
	if (info->family == AF_INET) {
		const struct fib_entry_notifier_info *r = container_of(info, typeof(*r), info);
		__be32 dst = htonl(r->dst);

		return put_route(text, r->tb_id, AF_INET, &dst, r->dst_len) - text;
	}
#if IS_ENABLED(CONFIG_IPV6)
	if (info->family == AF_INET6) {
		const struct fib6_entry_notifier_info *r = container_of(info, typeof(*r), info);

		return put_route(text, r->rt->fib6_table->tb6_id, AF_INET6,
				 &r->rt->fib6_dst.addr, r->rt->fib6_dst.plen) - text;
	}
#endif
	return 0;
}

static int on_route(struct notifier_block *nb, unsigned long event, void *info)
{
	struct net_ns *ns = container_of(nb, struct net_ns, fib);
	char text[WQ_NET_TEXT];
	struct net_watch *w;
	struct wq *queue;
	size_t len;

	/*
	 * The notifier is registered after it has seen all routes that there are.  The barrier
	 * pairs with that in net_attach(), as in add().
	 */
	smp_mb();
	if (!READ_ONCE(ns->live) || !rcu_access_pointer(ns->watch))
		return NOTIFY_DONE;
	if (event != FIB_EVENT_ENTRY_REPLACE && event != FIB_EVENT_ENTRY_APPEND &&
	    event != FIB_EVENT_ENTRY_ADD && event != FIB_EVENT_ENTRY_DEL)
		return NOTIFY_DONE;
	len = route_text(info, text);
	if (!len)
		return NOTIFY_DONE;
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	/* Pairs with smp_store_release() in watch_routes(): the queue is complete. */
	queue = w ? smp_load_acquire(&w->routes) : NULL;
	if (queue) {
		if (wq_add(queue, text, len) < 0)
			/* queue_work() orders it before pass_on_routes(). */
			set_bit(0, &w->lost);
		queue_work(wq_net_wq, &w->pass_on);
	}
	rcu_read_unlock();
	return NOTIFY_DONE;
}

/* Each change of a route whose notifier was called has ended when this returns. */
static void wait_for_changes(void)
{
	rtnl_lock();
	rtnl_unlock();
	synchronize_rcu();
}

static void rescan_routes(const struct net_watch *w, char *text)
{
	const struct net_source *src;
	size_t prefix_len;
	const char *key;

	rcu_read_lock();
	list_for_each_entry_rcu(src, &w->sources, link) {
		if (!(src->tables & WQ_NET_ROUTE))
			continue;
		put_name(text, &routes);
		key = put_prefix(src, text, &prefix_len);
		wq_source_rescan(src->s, key, prefix_len + routes.len);
	}
	rcu_read_unlock();
}

static void pass_on_routes(struct work_struct *work)
{
	struct net_watch *w = container_of(work, struct net_watch, pass_on);
	struct wq_item items[WQ_NET_BATCH];
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT], *text = buf + WQ_SOURCE_PREFIX_MAX;
	unsigned int n, i;
	bool lost;

	do {
		lost = test_and_clear_bit(0, &w->lost);
		for (n = 0; n < WQ_NET_BATCH && !wq_get(w->routes, &items[n], 0); n++)
			;
		if (n || lost)
			wait_for_changes();
		for (i = 0; i < n; i++) {
			memcpy(text, items[i].key, items[i].len);
			rcu_read_lock();
			add_to_all(w, &routes, text, items[i].len);
			rcu_read_unlock();
			wq_done(w->routes, &items[i]);
		}
		if (lost)
			rescan_routes(w, text);
		/* Without sources nobody needs the rest, and net_free() waits. */
	} while ((n || lost) && !list_empty(&w->sources));
}

/* The namespace has ended. */
static void end_sources(struct work_struct *work)
{
	const struct net_watch *w = container_of(work, struct net_watch, ended);
	const struct net_source *src;

	rcu_read_lock();
	list_for_each_entry_rcu(src, &w->sources, link)
		wq_source_end(src->s, ENONET);
	rcu_read_unlock();
}

static void unlive(struct work_struct *work)
{
	struct net_ns *ns = container_of(work, struct net_ns, unlive);
	struct net *net = ns->net;

	mutex_lock(&ns->fib_lock);
	/* A source that comes from now on waits for the lock. */
	if (ns->live && !READ_ONCE(ns->nr_routes)) {
		WRITE_ONCE(ns->live, false);
		unregister_fib_notifier(net, &ns->fib);
	}
	mutex_unlock(&ns->fib_lock);
	put_net(net);
}

/* The caller has a source of routes in @w, and holds the namespace. */
static int watch_routes(struct net_ns *ns, struct net_watch *w)
{
	/* Charged as the source that makes it. */
	const struct wq_params params = { .max_keys = WQ_NET_ROUTES, .account = true };
	struct wq *queue;
	bool missed;
	int ret = 0;

	mutex_lock(&ns->fib_lock);
	missed = !w->routes;
	if (missed) {
		queue = wq_create(&params);
		ret = PTR_ERR_OR_ZERO(queue);
		if (!ret)
			/* Pairs with smp_load_acquire() in on_route(). */
			smp_store_release(&w->routes, queue);
	}
	if (!ret && !ns->live) {
		missed = true;
		ret = register_fib_notifier(ns->net, &ns->fib, NULL, NULL);
		if (!ret)
			WRITE_ONCE(ns->live, true);
	}
	/*
	 * A change may have called its notifiers before that, and comes after them.  The caller's
	 * dump must see it.
	 */
	if (!ret && missed)
		wait_for_changes();
	mutex_unlock(&ns->fib_lock);
	return ret;
}

static struct net_watch *watch_new(struct net_ns *ns)
{
	struct net_watch *w = kzalloc_obj(*w, WQ_SOURCE_GFP);

	if (!w)
		return NULL;
	w->ns = ns;
	INIT_LIST_HEAD(&w->sources);
	INIT_WORK(&w->pass_on, pass_on_routes);
	INIT_WORK(&w->ended, end_sources);
	return w;
}

/* Add a source to those of the namespace, which are @spare if there are none. */
static void watch_add(struct net_ns *ns, struct net_source *src, struct net_watch **spare)
{
	struct net_watch *w;

	raw_spin_lock(&wq_net_lock);
	w = rcu_dereference_protected(ns->watch, lockdep_is_held(&wq_net_lock));
	if (!w) {
		w = *spare;
		*spare = NULL;
		rcu_assign_pointer(ns->watch, w);
	}
	src->watch = w;
	w->nr++;
	if (src->tables & WQ_NET_ROUTE)
		WRITE_ONCE(ns->nr_routes, ns->nr_routes + 1);
	list_add_tail_rcu(&src->link, &w->sources);
	raw_spin_unlock(&wq_net_lock);
}

/* Take a source out.  Returns the namespace if it has no source of routes any more, held. */
static struct net *watch_del(struct net_source *src)
{
	struct net_watch *w = src->watch;
	struct net *net = NULL;
	struct net_ns *ns;

	raw_spin_lock(&wq_net_lock);
	ns = w->ns;
	list_del_rcu(&src->link);
	src->last = !--w->nr;
	if (ns && src->last)
		RCU_INIT_POINTER(ns->watch, NULL);
	if (ns && src->tables & WQ_NET_ROUTE) {
		WRITE_ONCE(ns->nr_routes, ns->nr_routes - 1);
		if (!ns->nr_routes)
			net = maybe_get_net(ns->net);
	}
	raw_spin_unlock(&wq_net_lock);
	return net;
}

static void net_unhook(struct wq_source *s)
{
	struct net *net = watch_del(wq_source_private(s));
	struct net_ns *ns;

	if (!net)
		return;
	ns = net_generic(net, wq_net_id);
	if (!queue_work(wq_net_wq, &ns->unlive))
		put_net(net);
}

static void net_free(struct wq_source *s)
{
	struct net_source *src = wq_source_private(s);
	struct net_watch *w = src->watch;

	if (src->last) {
		cancel_work_sync(&w->ended);
		cancel_work_sync(&w->pass_on);
		if (w->routes)
			wq_destroy(w->routes);
		kfree(w);
	}
	kfree(src);
}

static void describe(struct wq_source *s, u32 tables)
{
	static const struct net_table *const all[] = { &links, &addrs, &neighs, &routes };
	char text[ARRAY_SIZE(all) * sizeof(all[0]->name)];
	u32 i, len = 0;

	for (i = 0; i < ARRAY_SIZE(all); i++)
		if (tables & all[i]->bit)
			len += scnprintf(text + len, sizeof(text) - len, "%s%.*s", len ? "," : "",
					 all[i]->len - 1, all[i]->name);
	wq_source_describe(s, text);
}

static int net_attach(struct wq_source *s, const void *arg)
{
	struct net_ns *ns = net_generic(current->nsproxy->net_ns, wq_net_id);
	const struct wq_net_args *args = arg;
	struct net_watch *spare;
	struct net_source *src;
	int ret = 0;

	if (args->flags || args->tables & ~WQ_NET_ALL)
		return -EINVAL;
	src = kzalloc_obj(*src, WQ_SOURCE_GFP);
	spare = watch_new(ns);
	if (!src || !spare) {
		kfree(spare);
		kfree(src);
		return -ENOMEM;
	}
	src->s = s;
	src->tables = args->tables ?: WQ_NET_ALL;
	wq_source_set_private(s, src);
	describe(s, src->tables);
	watch_add(ns, src, &spare);
	kfree(spare);
	if (src->tables & WQ_NET_ROUTE)
		ret = watch_routes(ns, src->watch);
	/* Pairs with those in add() and on_route(): the caller dumps tables without a lock. */
	smp_mb();
	if (ret) {
		net_unhook(s);
		synchronize_rcu();
		net_free(s);
	}
	return ret;
}

static int __net_init wq_net_ns_init(struct net *net)
{
	struct net_ns *ns = net_generic(net, wq_net_id);

	ns->net = net;
	mutex_init(&ns->fib_lock);
	ns->fib.notifier_call = on_route;
	INIT_WORK(&ns->unlive, unlive);
	return 0;
}

static void __net_exit wq_net_ns_exit(struct net *net)
{
	struct net_ns *ns = net_generic(net, wq_net_id);
	struct net_watch *w;

	/* Under RCU its last source does not free it. */
	rcu_read_lock();
	raw_spin_lock(&wq_net_lock);
	w = rcu_dereference_protected(ns->watch, lockdep_is_held(&wq_net_lock));
	if (w)
		w->ns = NULL;
	RCU_INIT_POINTER(ns->watch, NULL);
	raw_spin_unlock(&wq_net_lock);
	if (w)
		queue_work(wq_net_wq, &w->ended);
	rcu_read_unlock();
	/*
	 * If the module is removed, no notifier may stay.  No namespace has sources then, so this
	 * one ended with its last source, a moment ago.
	 */
	if (wq_net_unloading && ns->live)
		unregister_fib_notifier(net, &ns->fib);
}

static struct pernet_operations wq_net_ops = {
	.init = wq_net_ns_init,
	.exit = wq_net_ns_exit,
	.id = &wq_net_id,
	.size = sizeof(struct net_ns),
};

static struct wq_source_kind wq_net_kind = {
	.name = "net",
	.owner = THIS_MODULE,
	.args_size = sizeof(struct wq_net_args),
	.attach = net_attach,
	.unhook = net_unhook,
	.free = net_free,
};

static struct notifier_block link_nb = { .notifier_call = on_link };
static struct notifier_block addr_nb = { .notifier_call = on_addr };
static struct notifier_block neigh_nb = { .notifier_call = on_neigh };

static int __init wq_net_init(void)
{
	int ret;

	wq_net_wq = alloc_workqueue("wq_net", WQ_UNBOUND, 0);
	if (!wq_net_wq)
		return -ENOMEM;
	ret = register_pernet_subsys(&wq_net_ops);
	if (ret)
		goto no_net;
	ret = register_netdevice_notifier(&link_nb);
	if (ret)
		goto no_link;
	ret = register_inetaddr_notifier(&addr_nb);
	if (ret)
		goto no_addr;
#if IS_ENABLED(CONFIG_IPV6)
	ret = register_inet6addr_notifier(&addr6_nb);
	if (ret)
		goto no_addr6;
#endif
	ret = register_netevent_notifier(&neigh_nb);
	if (ret)
		goto no_neigh;
	ret = wq_source_register(&wq_net_kind);
	if (!ret)
		return 0;

	unregister_netevent_notifier(&neigh_nb);
no_neigh:
#if IS_ENABLED(CONFIG_IPV6)
	unregister_inet6addr_notifier(&addr6_nb);
no_addr6:
#endif
	unregister_inetaddr_notifier(&addr_nb);
no_addr:
	unregister_netdevice_notifier(&link_nb);
no_link:
	unregister_pernet_subsys(&wq_net_ops);
no_net:
	destroy_workqueue(wq_net_wq);
	return ret;
}
module_init(wq_net_init);

static void __exit wq_net_exit(void)
{
	wq_source_unregister(&wq_net_kind);
	/* Until here items come from sources alone, and from ends of namespaces that have some. */
	drain_workqueue(wq_net_wq);
	unregister_netevent_notifier(&neigh_nb);
#if IS_ENABLED(CONFIG_IPV6)
	unregister_inet6addr_notifier(&addr6_nb);
#endif
	unregister_inetaddr_notifier(&addr_nb);
	unregister_netdevice_notifier(&link_nb);
	wq_net_unloading = true;
	unregister_pernet_subsys(&wq_net_ops);
	destroy_workqueue(wq_net_wq);
}
module_exit(wq_net_exit);

MODULE_DESCRIPTION("wq: links, addresses, neighbours and routes as keys");
MODULE_LICENSE("GPL");
MODULE_ALIAS_WQ_SOURCE("net");
