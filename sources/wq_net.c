// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "net": links, addresses, neighbours and routes of a network namespace.
 *
 * The module has one notifier for each of links, addresses and neighbours.  A notifier finds the
 * sources of the namespace in a list, which wq_net_lock protects and which is read under RCU.  It
 * is a mutex, because attaching registers a notifier of routes, which sleeps.
 *
 * Most notifiers are called after the change, so a consumer that looks sees it.  Notifiers of
 * routes are called before the change in some cases, so their keys wait in a queue of the module's
 * own, and a work item passes them on when each change that was in progress has ended: IPv4 routes
 * change under the RTNL, IPv6 routes with softirqs disabled, which a grace period of RCU waits for.
 *
 * A source has no reference to its namespace.  The exit of the namespace ends the source.
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

#include "wq_compat.h"

#define WQ_NET_TEXT	96	/* bytes of a key without the prefix, at most */
#define WQ_NET_BATCH	32	/* routes that are passed on at a time */

/**
 * struct net_source - a source
 * @s: the source of wq
 * @net: its namespace; NULL: that has ended
 * @tables: WQ_NET_*
 * @link: in net_sources.list of @net
 * @fib: notifier of routes
 * @live: the notifier is registered: before, it lists the routes that there are
 * @routes: keys of routes that wait until their change has ended; NULL without routes
 * @lost: 1: a key of a route could not be added to @routes.  No bool: xchg() of a byte does not exist
 *	on some machines
 * @pass_on: passes the keys of @routes on
 */
struct net_source {
	struct wq_source *s;
	struct net *net;
	u32 tables;
	struct list_head link;
	struct notifier_block fib;
	bool live;
	struct wq *routes;
	u32 lost;
	struct work_struct pass_on;
};

struct net_sources {
	struct list_head list;
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

static DEFINE_MUTEX(wq_net_lock);
static unsigned int wq_net_id;

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

/* Add the key of a change to all sources of its namespace.  @address: NULL for a link */
static void add(const struct net_device *dev, const struct net_table *table, int family,
		const void *address)
{
	struct net_sources *sources = net_generic(dev_net(dev), wq_net_id);
	struct net_source *src;
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT] __uninitialized;
	char *text = buf + WQ_SOURCE_PREFIX_MAX, *end;

	/*
	 * Pairs with the barrier in net_attach(): either this change sees the source, or a dump after
	 * the attach sees the change.
	 */
	smp_mb();
	if (list_empty(&sources->list))
		return;
	end = put_number(put_name(text, table), dev->ifindex);
	if (address) {
		*end++ = '/';
		end = put_address(end, family, address);
	}
	rcu_read_lock();
	list_for_each_entry_rcu(src, &sources->list, link)
		if (src->tables & table->bit)
			add_to(src, table, text, end - text);
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
	struct net_source *src = container_of(nb, struct net_source, fib);
	char text[WQ_NET_TEXT];
	size_t len;

	/*
	 * The notifier is registered after it has seen all routes that there are.  The barrier pairs
	 * with that in net_attach(), as in add().
	 */
	smp_mb();
	if (!READ_ONCE(src->live))
		return NOTIFY_DONE;
	if (event != FIB_EVENT_ENTRY_REPLACE && event != FIB_EVENT_ENTRY_APPEND &&
	    event != FIB_EVENT_ENTRY_ADD && event != FIB_EVENT_ENTRY_DEL)
		return NOTIFY_DONE;
	len = route_text(info, text);
	if (!len)
		return NOTIFY_DONE;
	if (wq_add(src->routes, text, len) < 0)
		/* Pairs with xchg() in pass_on_routes(), which queue_work() orders. */
		WRITE_ONCE(src->lost, 1);
	queue_work(system_unbound_wq, &src->pass_on);
	return NOTIFY_DONE;
}

/* Each change of a route whose notifier was called has ended when this returns. */
static void wait_for_changes(void)
{
	rtnl_lock();
	rtnl_unlock();
	synchronize_rcu();
}

static void pass_on_routes(struct work_struct *work)
{
	struct net_source *src = container_of(work, struct net_source, pass_on);
	struct wq_item items[WQ_NET_BATCH];
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT], *text = buf + WQ_SOURCE_PREFIX_MAX;
	size_t prefix_len;
	unsigned int n, i;
	const char *key;
	bool lost;

	do {
		lost = xchg(&src->lost, 0);
		for (n = 0; n < WQ_NET_BATCH && !wq_get(src->routes, &items[n], 0); n++)
			;
		if (n || lost)
			wait_for_changes();
		for (i = 0; i < n; i++) {
			memcpy(text, items[i].key, items[i].len);
			add_to(src, &routes, text, items[i].len);
			wq_done(src->routes, &items[i]);
		}
		if (lost) {
			put_name(text, &routes);
			key = put_prefix(src, text, &prefix_len);
			wq_source_rescan(src->s, key, prefix_len + routes.len);
		}
	} while (n || lost);
}

static int watch_routes(struct net_source *src)
{
	/* Charged as the source is. */
	static const struct wq_params params = { .account = true };
	int ret;

	src->routes = wq_create(&params);
	if (IS_ERR(src->routes)) {
		ret = PTR_ERR(src->routes);
		src->routes = NULL;
		return ret;
	}
	src->fib.notifier_call = on_route;
	ret = register_fib_notifier(src->net, &src->fib, NULL, NULL);
	if (!ret)
		WRITE_ONCE(src->live, true);
	return ret;
}

static int net_attach(struct wq_source *s, const void *arg)
{
	const struct wq_net_args *args = arg;
	struct net_sources *sources;
	struct net_source *src;
	int ret = 0;

	if (args->flags || args->tables & ~WQ_NET_ALL)
		return -EINVAL;
	src = kzalloc_obj(*src, GFP_KERNEL_ACCOUNT);
	if (!src)
		return -ENOMEM;
	src->s = s;
	src->tables = args->tables ?: WQ_NET_ALL;
	src->net = current->nsproxy->net_ns;
	INIT_WORK(&src->pass_on, pass_on_routes);
	wq_source_set_private(s, src);

	mutex_lock(&wq_net_lock);
	sources = net_generic(src->net, wq_net_id);
	if (src->tables & WQ_NET_ROUTE)
		ret = watch_routes(src);
	if (!ret)
		list_add_tail_rcu(&src->link, &sources->list);
	mutex_unlock(&wq_net_lock);
	/* Pairs with those in add() and on_route(): the caller dumps tables that no lock protects. */
	smp_mb();
	if (ret) {
		if (src->routes)
			wq_destroy(src->routes);
		kfree(src);
	}
	return ret;
}

/* No event comes for the source when the next grace period has ended. */
static void unwatch(struct net_source *src)
{
	lockdep_assert_held(&wq_net_lock);
	list_del_rcu(&src->link);
	if (src->live)
		unregister_fib_notifier(src->net, &src->fib);
	src->net = NULL;
}

static void net_detach(struct wq_source *s)
{
	struct net_source *src = wq_source_private(s);

	mutex_lock(&wq_net_lock);
	if (src->net)
		unwatch(src);
	mutex_unlock(&wq_net_lock);
	synchronize_rcu();
	cancel_work_sync(&src->pass_on);
	if (src->routes)
		wq_destroy(src->routes);
	kfree(src);
}

static int __net_init wq_net_ns_init(struct net *net)
{
	struct net_sources *sources = net_generic(net, wq_net_id);

	INIT_LIST_HEAD(&sources->list);
	return 0;
}

static void __net_exit wq_net_ns_exit(struct net *net)
{
	struct net_sources *sources = net_generic(net, wq_net_id);
	struct net_source *src, *next;

	mutex_lock(&wq_net_lock);
	list_for_each_entry_safe(src, next, &sources->list, link) {
		unwatch(src);
		wq_source_end(src->s, ENODEV);
	}
	mutex_unlock(&wq_net_lock);
}

static struct pernet_operations wq_net_ops = {
	.init = wq_net_ns_init,
	.exit = wq_net_ns_exit,
	.id = &wq_net_id,
	.size = sizeof(struct net_sources),
};

static struct wq_source_kind wq_net_kind = {
	.name = "net",
	.owner = THIS_MODULE,
	.args_size = sizeof(struct wq_net_args),
	.attach = net_attach,
	.detach = net_detach,
};

static struct notifier_block link_nb = { .notifier_call = on_link };
static struct notifier_block addr_nb = { .notifier_call = on_addr };
static struct notifier_block neigh_nb = { .notifier_call = on_neigh };

static int __init wq_net_init(void)
{
	int ret;

	ret = register_pernet_subsys(&wq_net_ops);
	if (ret)
		return ret;
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
	return ret;
}
module_init(wq_net_init);

static void __exit wq_net_exit(void)
{
	wq_source_unregister(&wq_net_kind);
	unregister_netevent_notifier(&neigh_nb);
#if IS_ENABLED(CONFIG_IPV6)
	unregister_inet6addr_notifier(&addr6_nb);
#endif
	unregister_inetaddr_notifier(&addr_nb);
	unregister_netdevice_notifier(&link_nb);
	unregister_pernet_subsys(&wq_net_ops);
}
module_exit(wq_net_exit);

MODULE_DESCRIPTION("wq: links, addresses, neighbours and routes as keys");
MODULE_LICENSE("GPL");
MODULE_ALIAS_WQ_SOURCE("net");
