// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "net": links, addresses, neighbours, routes and other tables of a network
 * namespace.
 *
 * Each change of these tables that the kernel reports by rtnetlink has a key: a namespace with
 * sources has a socket in the groups of rtnetlink, net_ns.sock, and on_message() reads a message
 * where it was sent.  So no message waits in the socket.  If the kernel drops one, because there is
 * no memory, the rescan keys of all tables follow.
 *
 * rtnetlink is silent about some changes, such as routes that go with their device.  For these the
 * module has notifiers of links, IPv4 and IPv6 addresses, and neighbours, and a namespace has one
 * of routes for all of its sources, net_ns.fib, because to unregister it takes a grace period.  A
 * notifier finds the sources of the namespace by net_ns.watch, which is read under RCU.  If a
 * change has both, its key is added twice.
 *
 * Links, addresses and neighbours have changed when they are reported, so a consumer that looks
 * sees it.  Other changes are reported before they happen in some cases.  Their keys wait in a
 * queue of the namespace, and a work item passes them on when each change that was in progress has
 * ended.  Tables change under the RTNL, or with softirqs disabled, which a grace period of RCU
 * waits for.  There are two such queues: new keys go to the one while the other one is emptied.  A
 * user chooses how many routes change at a time, so the queues have a limit.  If a key finds no
 * room, the rescan key of its table stands for it.
 *
 * Lifetimes.  A source has no reference to its namespace:
 *
 *  - struct net_ns lives as long as the namespace, until the last of the kernel's events for it.
 *  - struct net_watch belongs to the sources of the namespace, and outlives it.  The first source
 *    makes it.  It leaves net_ns.watch with the last source, or when the namespace ends.  The last
 *    source frees the net_watch, a grace period after that source was unhooked.
 *  - net_ns.sock is opened by the first source, and net_ns.fib is registered by the first source of
 *    routes.  Neither holds the namespace.  After the last source that needs one of them, a work
 *    item of the namespace ends it, and holds the namespace meanwhile.  If the namespace ends
 *    before, its end closes the socket, which takes no grace period.  net_ns.fib stays registered:
 *    it does nothing without sources, and ends with the namespace's chain of notifiers.  To
 *    unregister it would take a grace period, for which the ends of other namespaces would wait.
 *
 * The end of a namespace takes a constant time, because one thread of the kernel ends all
 * namespaces: it unlinks net_ns.watch, and a work item ends the sources.
 *
 * Locks: wq_net_lock protects the lists of sources and the links between the structs.  It is a raw
 * spinlock, because a task that its cgroup throttles can hold any other lock for long, and the ends
 * of namespaces would wait for it.  net_ns.lock serializes the begin and end of net_ns.sock and
 * net_ns.fib.
 */
#include <linux/if_bridge.h>
#include <linux/inetdevice.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/netconf.h>
#include <linux/netdevice.h>
#include <linux/netlink.h>
#include <linux/nexthop.h>
#include <linux/nsproxy.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/wq.h>
#include <linux/wq_source.h>
#include <net/addrconf.h>
#include <net/fib_rules.h>
#include <net/fib_notifier.h>
#include <net/ip6_fib.h>
#include <net/ip_fib.h>
#include <net/neighbour.h>
#include <net/net_namespace.h>
#include <net/netevent.h>
#include <net/netlink.h>
#include <net/netns/generic.h>
#include <net/sock.h>

#include "base/compat.h"

#define WQ_NET_TEXT	96	/* bytes of a key without the prefix, at most */
#define WQ_NET_TABLES	11	/* kinds of keys */
#define WQ_NET_LATER	4096	/* keys that wait to be passed on, at most */
#define WQ_NET_PASSED	16	/* keys that are passed on at once, at most */

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
 * @lock: protects @sock and @live
 * @sock: a socket in the groups of rtnetlink, or NULL
 * @fib: notifier of routes
 * @live: @fib is registered: before, it lists the routes that there are
 * @overrun: the kernel dropped a message
 * @tidy: ends @sock and @fib if no source needs them, and ends an overrun; holds @net
 */
struct net_ns {
	struct net *net;
	struct net_watch __rcu *watch;
	struct mutex lock;
	struct socket *sock;
	struct notifier_block fib;
	bool live;
	bool overrun;
	struct work_struct tidy;
};

/**
 * struct net_passed - a key on its way from a queue of net_watch.queues to the sources
 * @table: its table
 * @len: its length
 * @buf: its text, and ahead of it room for a prefix
 */
struct net_passed {
	const struct net_table *table;
	u32 len;
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT];
};

/**
 * struct net_watch - the sources of a namespace
 * @ns: N: the namespace; NULL: it has ended
 * @sources: N: the sources, which are read under RCU
 * @nr: N: how many they are
 * @nr_of: N: how many of them have each table
 * @tables: N: the tables that any of them has, which is read without the lock
 * @begun: N: a settle() has ended
 * @settled: N: those of @tables for which a settle() has ended
 * @queues: keys that wait until their change has ended; constant once @later is set
 * @later: the one of @queues that new keys go to, which is read under RCU; NULL: there is none yet
 * @lost: keys of each table that were lost, see lose()
 * @passed: used by @pass_on, made with @queues
 * @pass_on: passes the keys of @queues on
 * @ended: ends the sources after the end of the namespace
 *
 * Legend: N: protected by wq_net_lock.
 */
struct net_watch {
	struct net_ns *ns;
	struct list_head sources;
	u32 nr;
	u32 nr_of[WQ_NET_TABLES];
	u32 tables;
	bool begun;
	u32 settled;
	struct wq *queues[2];
	struct wq __rcu *later;
	atomic_t lost[WQ_NET_TABLES];
	struct net_passed *passed;
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
	char name[12];
};

/* In the order of their bits. */
#define NET_TABLE(bit, name)	{ bit, sizeof(name) - 1, name }
static const struct net_table net_tables[WQ_NET_TABLES] = {
	NET_TABLE(WQ_NET_LINK, "link/"),
	NET_TABLE(WQ_NET_ADDR, "addr/"),
	NET_TABLE(WQ_NET_NEIGH, "neigh/"),
	NET_TABLE(WQ_NET_ROUTE, "route/"),
	NET_TABLE(WQ_NET_RULE, "rule/"),
	NET_TABLE(WQ_NET_NEXTHOP, "nexthop/"),
	NET_TABLE(WQ_NET_FDB, "fdb/"),
	NET_TABLE(WQ_NET_MDB, "mdb/"),
	NET_TABLE(WQ_NET_VLAN, "vlan/"),
	NET_TABLE(WQ_NET_NETCONF, "netconf/"),
	NET_TABLE(WQ_NET_MROUTE, "mroute/"),
};

static_assert(ARRAY_SIZE(net_tables) == ilog2(WQ_NET_ALL + 1));

#define TABLE_OF(bit)	(&net_tables[ilog2(bit)])
#define AT_ONCE		(WQ_NET_LINK | WQ_NET_ADDR | WQ_NET_NEIGH)	/* reported after changes */

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

/*
 * Whether a source of the namespace has one of these tables.  A change asks this before it makes
 * the key's text, because most changes of a busy namespace can be of tables that no source has.
 */
static bool watches(const struct net_ns *ns, u32 tables)
{
	const struct net_watch *w;
	bool any;

	/*
	 * Pairs with the barrier in net_attach(): either this change sees the source, or a dump
	 * after the attach sees the change.
	 */
	smp_mb();
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	any = w && READ_ONCE(w->tables) & tables;
	rcu_read_unlock();
	return any;
}

/* Add the key of a change to all sources of its namespace.  @address: NULL for a link */
static void add(const struct net_device *dev, const struct net_table *table, int family,
		const void *address)
{
	struct net_ns *ns = net_generic(dev_net(dev), wq_net_id);
	const struct net_watch *w;
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT] __uninitialized;
	char *text = buf + WQ_SOURCE_PREFIX_MAX, *end;

	if (!watches(ns, table->bit))
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

	add(dev, TABLE_OF(WQ_NET_LINK), 0, NULL);
	return NOTIFY_DONE;
}

static int on_addr(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct in_ifaddr *ifa = info;

	add(ifa->ifa_dev->dev, TABLE_OF(WQ_NET_ADDR), AF_INET, &ifa->ifa_local);
	return NOTIFY_DONE;
}

#if IS_ENABLED(CONFIG_IPV6)
static int on_addr6(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct inet6_ifaddr *ifa = info;

	add(ifa->idev->dev, TABLE_OF(WQ_NET_ADDR), AF_INET6, &ifa->addr);
	return NOTIFY_DONE;
}

static struct notifier_block addr6_nb = { .notifier_call = on_addr6 };
#endif

static int on_neigh(struct notifier_block *nb, unsigned long event, void *info)
{
	const struct neighbour *n = info;

	if (event == NETEVENT_NEIGH_UPDATE &&
	    (n->tbl->family == AF_INET || n->tbl->family == AF_INET6))
		add(n->dev, TABLE_OF(WQ_NET_NEIGH), n->tbl->family, n->primary_key);
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

	to += sprintf(to, "route/%s/", table_name(id, number));
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

/* A key of a table could not be kept, or messages that may be of it were dropped.  Under RCU. */
static void lose(struct net_watch *w, const struct net_table *table)
{
	atomic_inc(&w->lost[table - net_tables]);
	/* Orders it before pass_on_keys(). */
	queue_work(wq_net_wq, &w->pass_on);
}

/* Add a key when the change in progress has ended.  Under RCU. */
static void add_later(struct net_watch *w, const struct net_table *table, const char *text,
		      size_t len)
{
	struct wq *queue = rcu_dereference(w->later);

	if (!queue)
		return;
	if (wq_add(queue, text, len) < 0)
		lose(w, table);
	else
		queue_work(wq_net_wq, &w->pass_on);
}

static int on_route(struct notifier_block *nb, unsigned long event, void *info)
{
	struct net_ns *ns = container_of(nb, struct net_ns, fib);
	char text[WQ_NET_TEXT];
	struct net_watch *w;
	size_t len;

	/* The notifier is registered after it has seen all routes that there are. */
	if (!READ_ONCE(ns->live) || !watches(ns, WQ_NET_ROUTE))
		return NOTIFY_DONE;
	if (event != FIB_EVENT_ENTRY_REPLACE && event != FIB_EVENT_ENTRY_APPEND &&
	    event != FIB_EVENT_ENTRY_ADD && event != FIB_EVENT_ENTRY_DEL)
		return NOTIFY_DONE;
	len = route_text(info, text);
	if (!len)
		return NOTIFY_DONE;
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	if (w)
		add_later(w, TABLE_OF(WQ_NET_ROUTE), text, len);
	rcu_read_unlock();
	return NOTIFY_DONE;
}

static const void *attr_of(const struct nlmsghdr *n, int head, int type, int size)
{
	const struct nlattr *attr = nlmsg_find_attr(n, head, type);

	return attr && nla_len(attr) >= size ? nla_data(attr) : NULL;
}

static u32 number_of(const struct nlmsghdr *n, int head, int type, u32 otherwise)
{
	const u32 *number = attr_of(n, head, type, sizeof(*number));

	return number ? get_unaligned(number) : otherwise;
}

static int address_size(int family)
{
	return family == AF_INET ? sizeof(struct in_addr) :
	       family == AF_INET6 ? sizeof(struct in6_addr) : 0;
}

/*
 * Each of the following writes the rest of a key behind the name of its table, which it may change.
 * It returns the end, or @to if the message does not name a thing: the table's rescan key.
 */
static char *put_index(char *to, u32 index, int family, const void *address)
{
	char *end = put_number(to, index);

	if (!address)
		return to;
	*end++ = '/';
	return put_address(end, family, address);
}

static char *put_addr_msg(char *to, const struct nlmsghdr *n)
{
	const struct ifaddrmsg *m = nlmsg_data(n);
	int size = address_size(m->ifa_family);

	if (!size)
		return to;
	return put_index(to, m->ifa_index, m->ifa_family,
			 attr_of(n, sizeof(*m), IFA_LOCAL, size) ?:
			 attr_of(n, sizeof(*m), IFA_ADDRESS, size));
}

static char *put_neigh_msg(char *to, const struct nlmsghdr *n, const struct net_table **table)
{
	const struct ndmsg *m = nlmsg_data(n);
	int size = address_size(m->ndm_family);
	const void *mac;

	if (size)
		return put_index(to, m->ndm_ifindex, m->ndm_family,
				 attr_of(n, sizeof(*m), NDA_DST, size));
	*table = TABLE_OF(WQ_NET_FDB);
	to = to - TABLE_OF(WQ_NET_NEIGH)->len + (*table)->len;
	mac = attr_of(n, sizeof(*m), NDA_LLADDR, ETH_ALEN);
	return mac ? to + sprintf(to, "%d/%pM", m->ndm_ifindex, mac) : to;
}

static char *put_route_msg(char *to, const struct nlmsghdr *n, const struct net_table **table)
{
	static const struct in6_addr any;
	const struct rtmsg *m = nlmsg_data(n);
	int size = address_size(m->rtm_family);

	if (size)
		return put_route(to - (*table)->len,
				 number_of(n, sizeof(*m), RTA_TABLE, m->rtm_table), m->rtm_family,
				 attr_of(n, sizeof(*m), RTA_DST, size) ?: &any, m->rtm_dst_len);
	if (m->rtm_family != RTNL_FAMILY_IPMR && m->rtm_family != RTNL_FAMILY_IP6MR)
		return to;
	*table = TABLE_OF(WQ_NET_MROUTE);
	return to - TABLE_OF(WQ_NET_ROUTE)->len + (*table)->len;
}

static char *put_rule_msg(char *to, const struct nlmsghdr *n)
{
	const struct fib_rule_hdr *m = nlmsg_data(n);

	if (!address_size(m->family))
		return to;
	return to + sprintf(to, "%s/%u", m->family == AF_INET ? "inet" : "inet6",
			    number_of(n, sizeof(*m), FRA_PRIORITY, 0));
}

static char *put_netconf_msg(char *to, const struct nlmsghdr *n)
{
	const struct netconfmsg *m = nlmsg_data(n);
	int index = number_of(n, sizeof(*m), NETCONFA_IFINDEX, 0);

	if (!address_size(m->ncm_family))
		return to;
	to += sprintf(to, "%s/", m->ncm_family == AF_INET ? "inet" : "inet6");
	if (index == NETCONFA_IFINDEX_ALL)
		return to + sprintf(to, "all");
	if (index == NETCONFA_IFINDEX_DEFAULT)
		return to + sprintf(to, "default");
	return put_number(to, index);
}

/* The messages of rtnetlink that have keys. */
static const struct net_message {
	u16 type;		/* RTM_NEW*: RTM_DEL* is the next */
	u16 size;		/* of its struct */
	u32 bit;
	u32 other;		/* a further table that the message can be of */
} net_messages[] = {
	{ RTM_NEWLINK, sizeof(struct ifinfomsg), WQ_NET_LINK },
	{ RTM_NEWADDR, sizeof(struct ifaddrmsg), WQ_NET_ADDR },
	{ RTM_NEWNEIGH, sizeof(struct ndmsg), WQ_NET_NEIGH, WQ_NET_FDB },
	{ RTM_NEWROUTE, sizeof(struct rtmsg), WQ_NET_ROUTE, WQ_NET_MROUTE },
	{ RTM_NEWRULE, sizeof(struct fib_rule_hdr), WQ_NET_RULE },
	{ RTM_NEWNEXTHOP, sizeof(struct nhmsg), WQ_NET_NEXTHOP },
	{ RTM_NEWNEXTHOPBUCKET, sizeof(struct nhmsg), WQ_NET_NEXTHOP },
	{ RTM_NEWMDB, sizeof(struct br_port_msg), WQ_NET_MDB },
	{ RTM_NEWVLAN, sizeof(struct br_vlan_msg), WQ_NET_VLAN },
	{ RTM_NEWNETCONF, sizeof(struct netconfmsg), WQ_NET_NETCONF },
};

/* NULL: the message has no key. */
static const struct net_message *message_of(const struct nlmsghdr *n)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(net_messages); i++)
		if ((n->nlmsg_type & ~1) == net_messages[i].type)
			return nlmsg_len(n) < net_messages[i].size ? NULL : &net_messages[i];
	return NULL;
}

/* The key of a message and its table.  @end: receives the end of the key */
static const struct net_table *put_message(char *text, char **end, const struct nlmsghdr *n,
					   const struct net_message *m)
{
	const struct net_table *table = TABLE_OF(m->bit);
	char *to = text + table->len;

	switch (table->bit) {
	case WQ_NET_LINK:
		to = put_number(to, ((const struct ifinfomsg *)nlmsg_data(n))->ifi_index);
		break;
	case WQ_NET_ADDR:
		to = put_addr_msg(to, n);
		break;
	case WQ_NET_NEIGH:
		to = put_neigh_msg(to, n, &table);
		break;
	case WQ_NET_ROUTE:
		to = put_route_msg(to, n, &table);
		break;
	case WQ_NET_RULE:
		to = put_rule_msg(to, n);
		break;
	case WQ_NET_NEXTHOP:
		to = put_number(to, number_of(n, sizeof(struct nhmsg), NHA_ID, 0));
		break;
	case WQ_NET_MDB:
		to = put_number(to, ((const struct br_port_msg *)nlmsg_data(n))->ifindex);
		break;
	case WQ_NET_VLAN:
		to = put_number(to, ((const struct br_vlan_msg *)nlmsg_data(n))->ifindex);
		break;
	case WQ_NET_NETCONF:
		to = put_netconf_msg(to, n);
		break;
	}
	memcpy(text, table->name, table->len);
	*end = to;
	return table;
}

static void add_message(struct net_ns *ns, const struct nlmsghdr *n)
{
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT], *text = buf + WQ_SOURCE_PREFIX_MAX, *end;
	const struct net_message *m = message_of(n);
	const struct net_table *table;
	struct net_watch *w;

	if (!m || !watches(ns, m->bit | m->other))
		return;
	table = put_message(text, &end, n, m);
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	if (w && table->bit & AT_ONCE)
		add_to_all(w, table, text, end - text);
	else if (w && READ_ONCE(w->tables) & table->bit)
		add_later(w, table, text, end - text);
	rcu_read_unlock();
}

/* The socket has messages, where they were sent: from any context but hard interrupt. */
static void on_message(struct sock *sk)
{
	const struct nlmsghdr *n;
	struct sk_buff *skb;
	int left;

	while ((skb = skb_dequeue(&sk->sk_receive_queue))) {
		left = skb->len;
		/* A process can send messages to the groups, too. */
		if (!NETLINK_CB(skb).portid)
			nlmsg_for_each_msg(n, nlmsg_hdr(skb), skb->len, left)
				add_message(sk->sk_user_data, n);
		consume_skb(skb);
	}
}

/* Begin @tidy.  The caller knows that the namespace has not been freed. */
static void begin_tidy(struct net_ns *ns)
{
	struct net *net = maybe_get_net(ns->net);

	if (net && !queue_work(wq_net_wq, &ns->tidy))
		put_net(net);
}

/* The kernel dropped a message, and drops each further one until see_to_overrun(). */
static void on_overrun(struct sock *sk)
{
	struct net_ns *ns = sk->sk_user_data;

	WRITE_ONCE(ns->overrun, true);
	/* Pairs with the barrier in tidy(). */
	smp_mb();
	/*
	 * Without sources, the tidy() of the last one closes the socket or, if a new source has
	 * come, sees @overrun.  wq_net_exit() needs that no work item begins any more when a grace
	 * period has passed since the last source.
	 */
	rcu_read_lock();
	if (rcu_access_pointer(ns->watch))
		begin_tidy(ns);
	rcu_read_unlock();
}

static int set_option(struct socket *sock, int option, int value)
{
	return sock->ops->setsockopt(sock, SOL_NETLINK, option, KERNEL_SOCKPTR(&value),
				     sizeof(value));
}

/*
 * A socket without an address gets nothing.  The kernel's choice would be the id of the process,
 * which the process may want for a socket of its own.  The addresses from 2^31 to 3 * 2^30 are
 * among those that the kernel draws from if that is taken.
 *
 * A process with CAP_NET_ADMIN could send to the address.  The release of the socket does not wait
 * for such a sender, so on_message() could still run when the module is removed.  Connected to
 * the kernel, the socket refuses messages of others.
 */
static int bind_to_kernel(struct socket *sock)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK }, kernel = self;
	int ret;

	/* The type of the address differs between kernels. */
	do {
		self.nl_pid = 1U << 31 | get_random_u32() >> 2;
		ret = kernel_bind(sock, (void *)&self, sizeof(self));
	} while (ret == -EADDRINUSE);
	return ret ?: kernel_connect(sock, (void *)&kernel, sizeof(kernel), 0);
}

static int join(struct socket *sock)
{
	static const int groups[] = {
		RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_MROUTE,
		RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_MROUTE,
		RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_IFINFO, RTNLGRP_IPV6_RULE, RTNLGRP_IPV4_NETCONF,
		RTNLGRP_IPV6_NETCONF, RTNLGRP_MDB, RTNLGRP_MPLS_ROUTE, RTNLGRP_MPLS_NETCONF,
		RTNLGRP_NEXTHOP, RTNLGRP_BRVLAN,
	};
	int i, ret = 0;

	for (i = 0; !ret && i < ARRAY_SIZE(groups); i++)
		ret = set_option(sock, NETLINK_ADD_MEMBERSHIP, groups[i]);
	return ret;
}

/* Receive messages, with ns->lock held. */
static int listen(struct net_ns *ns)
{
	struct socket *sock;
	int ret;

	lockdep_assert_held(&ns->lock);
	if (ns->sock)
		return 0;
	ret = sock_create_kern(ns->net, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, &sock);
	if (ret)
		return ret;
	ret = bind_to_kernel(sock);
	sock->sk->sk_user_data = ns;
	sock->sk->sk_data_ready = on_message;
	sock->sk->sk_error_report = on_overrun;
	ret = ret ?: join(sock);
	if (ret)
		sock_release(sock);
	else
		ns->sock = sock;
	return ret;
}

/* Leave marks for the keys that were lost before the changes in progress have ended. */
static void pass_on_lost(struct net_watch *w, const u32 *lost)
{
	char buf[WQ_SOURCE_PREFIX_MAX + WQ_NET_TEXT], *text = buf + WQ_SOURCE_PREFIX_MAX;
	const struct net_source *src;
	size_t prefix_len;
	const char *key;
	u32 i;

	rcu_read_lock();
	list_for_each_entry_rcu(src, &w->sources, link) {
		for (i = 0; i < WQ_NET_TABLES; i++) {
			if (!lost[i] || !(src->tables & net_tables[i].bit))
				continue;
			put_name(text, &net_tables[i]);
			key = put_prefix(src, text, &prefix_len);
			wq_source_lose(src->s, key, prefix_len + net_tables[i].len, lost[i]);
		}
	}
	rcu_read_unlock();
}

static const struct net_table *table_of(const char *text)
{
	u32 i;

	for (i = 0; i < WQ_NET_TABLES - 1; i++)
		if (!memcmp(text, net_tables[i].name, net_tables[i].len))
			break;
	return &net_tables[i];
}

/* Take up to WQ_NET_PASSED keys from a queue.  Returns how many they are. */
static u32 take_keys(struct net_passed *keys, struct wq *queue)
{
	struct wq_item item;
	char *text;
	u32 n;

	for (n = 0; n < WQ_NET_PASSED && !wq_get(queue, &item, 0); n++) {
		text = keys[n].buf + WQ_SOURCE_PREFIX_MAX;
		memcpy(text, item.key, item.len);
		keys[n].len = item.len;
		keys[n].table = table_of(text);
		wq_done(queue, &item);
	}
	return n;
}

/* Add the keys of the source's tables to its queue. */
static void add_taken(const struct net_source *src, struct net_passed *keys, u32 n)
{
	struct wq_source_key adds[WQ_NET_PASSED];
	size_t prefix_len;
	const char *key;
	u32 i, m = 0;

	for (i = 0; i < n; i++) {
		if (!(src->tables & keys[i].table->bit))
			continue;
		key = put_prefix(src, keys[i].buf + WQ_SOURCE_PREFIX_MAX, &prefix_len);
		adds[m++] = (struct wq_source_key){
			.key = key,
			.len = prefix_len + keys[i].len,
			.dir = prefix_len + keys[i].table->len,
		};
	}
	wq_source_add_many(src->s, adds, m);
}

/*
 * Pass on the keys of a queue that gets no more.  Returns how many they were.  They are added in
 * arrays: in a queue with many keys, the look-up of a key waits for its memory otherwise.
 */
static u32 pass_on_queue(struct net_watch *w, struct wq *queue)
{
	const struct net_source *src;
	u32 n, all = 0;

	/* Without sources nobody needs the rest, and net_free() waits. */
	while (!list_empty(&w->sources) && (n = take_keys(w->passed, queue))) {
		rcu_read_lock();
		/* 16 adds for each source of the namespace. */
		list_for_each_entry_rcu(src, &w->sources, link)
			add_taken(src, w->passed, n);
		rcu_read_unlock();
		all += n;
		cond_resched();
	}
	return all;
}

static void pass_on_keys(struct work_struct *work)
{
	struct net_watch *w = container_of(work, struct net_watch, pass_on);
	u32 i, n, lost[WQ_NET_TABLES];
	struct wq *queue;

	if (!rcu_access_pointer(w->later))
		return;
	do {
		/* A change under the RTNL that has a key in the queue has ended. */
		rtnl_lock();
		queue = rcu_dereference_protected(w->later, true);
		rcu_assign_pointer(w->later, w->queues[queue == w->queues[0]]);
		for (i = 0, n = 0; i < WQ_NET_TABLES; i++) {
			lost[i] = atomic_xchg(&w->lost[i], 0);
			n |= lost[i];
		}
		rtnl_unlock();
		/* Any other one, too, and no add to the queue is in progress. */
		synchronize_rcu();
		if (n)
			pass_on_lost(w, lost);
		n |= pass_on_queue(w, queue);
	} while (n && !list_empty(&w->sources));
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

/*
 * Let the kernel send again.  A mark stands for the messages that it dropped.
 *
 * A read of the socket would let it send only if no message was in the socket, and on_message() may
 * be about to take one.  The option does so in any case.  While it is set, the kernel drops
 * messages without a report, so the marks come after that.
 */
static void see_to_overrun(struct net_ns *ns)
{
	struct net_watch *w;
	u32 i;

	WRITE_ONCE(ns->overrun, false);
	/*
	 * The option lets the kernel report the next overrun.  If the store came after that
	 * report, it would erase it, and the kernel would make no further one.  Pairs with the
	 * test_and_set_bit() of the kernel ahead of on_overrun().
	 */
	smp_mb();
	set_option(ns->sock, NETLINK_NO_ENOBUFS, 1);
	set_option(ns->sock, NETLINK_NO_ENOBUFS, 0);
	rcu_read_lock();
	w = rcu_dereference(ns->watch);
	for (i = 0; w && i < WQ_NET_TABLES; i++)
		lose(w, &net_tables[i]);
	rcu_read_unlock();
}

static void tidy(struct work_struct *work)
{
	struct net_ns *ns = container_of(work, struct net_ns, tidy);
	struct net *net = ns->net;

	mutex_lock(&ns->lock);
	/* A source that comes from now on waits for the lock. */
	if (ns->live && !watches(ns, WQ_NET_ROUTE)) {
		WRITE_ONCE(ns->live, false);
		unregister_fib_notifier(net, &ns->fib);
	}
	if (ns->sock && !rcu_access_pointer(ns->watch)) {
		sock_release(ns->sock);
		ns->sock = NULL;
		WRITE_ONCE(ns->overrun, false);
	}
	/* Pairs with the barrier in on_overrun(), which may have missed a new source. */
	smp_mb();
	if (ns->sock && READ_ONCE(ns->overrun))
		see_to_overrun(ns);
	mutex_unlock(&ns->lock);
	put_net(net);
}

static int make_queues(struct net_watch *w)
{
	/* Charged as the source that makes them. */
	const struct wq_params params = { .max_keys = WQ_NET_LATER, .account = true };
	struct wq *queue;
	u32 i;

	if (!w->passed)
		w->passed = kmalloc_array(WQ_NET_PASSED, sizeof(*w->passed), WQ_SOURCE_GFP);
	if (!w->passed)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(w->queues); i++) {
		if (w->queues[i])
			continue;
		queue = wq_create(&params);
		if (IS_ERR(queue))
			return PTR_ERR(queue);
		w->queues[i] = queue;
	}
	rcu_assign_pointer(w->later, w->queues[0]);
	return 0;
}

/* Let all changes of these tables have keys from now on.  The caller has a source in @w. */
static int begin(struct net_ns *ns, struct net_watch *w, u32 tables)
{
	int ret = 0;

	lockdep_assert_held(&ns->lock);
	if (!rcu_access_pointer(w->later))
		ret = make_queues(w);
	ret = ret ?: listen(ns);
	if (!ret && tables & WQ_NET_ROUTE && !ns->live) {
		ret = register_fib_notifier(ns->net, &ns->fib, NULL, NULL);
		if (!ret)
			WRITE_ONCE(ns->live, true);
	}
	return ret;
}

/*
 * A change whose report came before begin() may still be in progress.  Wait for its end, so that
 * the caller's dump sees it.  Each caller waits for itself, until the wait of one has ended.  The
 * lock of the namespace is not held, so no attach waits for the waits of others.  The caller's own
 * source is counted, so no other one clears its bits of settled.
 */
static void settle(struct net_watch *w, u32 tables)
{
	/* After the end of the wait.  Pairs with the barrier in net_attach(). */
	if (READ_ONCE(w->begun) && !(tables & ~AT_ONCE & ~READ_ONCE(w->settled)))
		return;
	rtnl_lock();
	rtnl_unlock();
	synchronize_rcu();
	raw_spin_lock(&wq_net_lock);
	WRITE_ONCE(w->begun, true);
	WRITE_ONCE(w->settled, w->settled | tables);
	raw_spin_unlock(&wq_net_lock);
}

static struct net_watch *watch_new(struct net_ns *ns)
{
	struct net_watch *w = kzalloc_obj(*w, WQ_SOURCE_GFP);

	if (!w)
		return NULL;
	w->ns = ns;
	INIT_LIST_HEAD(&w->sources);
	INIT_WORK(&w->pass_on, pass_on_keys);
	INIT_WORK(&w->ended, end_sources);
	return w;
}

/* Count the tables of a source that comes (1) or goes (-1). */
static void count_tables(struct net_watch *w, u32 tables, int by)
{
	u32 i, all = 0;

	lockdep_assert_held(&wq_net_lock);
	for (i = 0; i < WQ_NET_TABLES; i++) {
		if (tables & net_tables[i].bit)
			w->nr_of[i] += by;
		if (w->nr_of[i])
			all |= net_tables[i].bit;
	}
	WRITE_ONCE(w->tables, all);
	WRITE_ONCE(w->settled, w->settled & all);
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
	count_tables(w, src->tables, 1);
	list_add_tail_rcu(&src->link, &w->sources);
	raw_spin_unlock(&wq_net_lock);
}

/* Take a source out.  Returns the namespace if tidy() may have something to end, held. */
static struct net *watch_del(struct net_source *src)
{
	struct net_watch *w = src->watch;
	struct net *net = NULL;
	struct net_ns *ns;

	raw_spin_lock(&wq_net_lock);
	ns = w->ns;
	list_del_rcu(&src->link);
	src->last = !--w->nr;
	count_tables(w, src->tables, -1);
	if (ns && src->last)
		RCU_INIT_POINTER(ns->watch, NULL);
	if (ns && (src->last || !(w->tables & WQ_NET_ROUTE)))
		net = maybe_get_net(ns->net);
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
	if (!queue_work(wq_net_wq, &ns->tidy))
		put_net(net);
}

static void net_free(struct wq_source *s)
{
	struct net_source *src = wq_source_private(s);
	struct net_watch *w = src->watch;
	u32 i;

	if (src->last) {
		cancel_work_sync(&w->ended);
		cancel_work_sync(&w->pass_on);
		for (i = 0; i < ARRAY_SIZE(w->queues); i++)
			if (w->queues[i])
				wq_destroy(w->queues[i]);
		kfree(w->passed);
		kfree(w);
	}
	kfree(src);
}

static void describe(struct wq_source *s, u32 tables)
{
	char text[WQ_NET_TABLES * sizeof(net_tables[0].name)];
	u32 i, len = 0;

	for (i = 0; i < WQ_NET_TABLES; i++)
		if (tables & net_tables[i].bit)
			len += scnprintf(text + len, sizeof(text) - len, "%s%.*s", len ? "," : "",
					 net_tables[i].len - 1, net_tables[i].name);
	wq_source_describe(s, text);
}

static int net_attach(struct wq_source *s, const void *arg)
{
	struct net_ns *ns = net_generic(current->nsproxy->net_ns, wq_net_id);
	const struct wq_net_args *args = arg;
	struct net_watch *spare;
	struct net_source *src;
	int ret;

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
	ret = mutex_lock_killable(&ns->lock);
	if (!ret) {
		ret = begin(ns, src->watch, src->tables);
		mutex_unlock(&ns->lock);
	}
	if (!ret)
		settle(src->watch, src->tables);
	/*
	 * The caller dumps tables without a lock.  Pairs with the barrier in watches(), and with
	 * the grace period of the settle() that has ended.
	 */
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
	mutex_init(&ns->lock);
	ns->fib.notifier_call = on_route;
	INIT_WORK(&ns->tidy, tidy);
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
	/* The holders of the lock hold the namespace. */
	if (ns->sock)
		sock_release(ns->sock);
	/*
	 * If the module is removed, no notifier may stay.  If the namespace ended with its last
	 * source, tidy() has not run.
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
	.args_min = offsetofend(struct wq_net_args, tables),
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
	/*
	 * All sources have gone, and then a grace period has passed.  Each work item was begun
	 * under RCU for a source, or by the source.
	 */
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

MODULE_DESCRIPTION("wq: links, addresses, routes and other tables of the network as keys");
MODULE_LICENSE("GPL");
MODULE_ALIAS_WQ_SOURCE("net");
