// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "net".
 *
 * SOURCES in the environment is the directory of wq_net.ko, which the tests load and remove.  Without
 * it the tests are skipped.
 */
#define _GNU_SOURCE
#include "wq_memory.h"
#include "wq_sources.h"
#include "wq_test.h"

#include <sched.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <linux/mroute.h>
#include <linux/rtnetlink.h>

static int attach_net(int q, __u32 tables)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_net_args args = { .tables = tables };

	return attach_op(q, &op, "net", &args, sizeof(args));
}

#define ROOM	"nsenter -t 1 -n sysctl -n net.core.rmem_default"

static int set_room_of_sockets(int bytes)
{
	char text[100];

	snprintf(text, sizeof(text), ROOM "=%d >/dev/null", bytes);
	return system(text);
}

FIXTURE(net) {
	int q;
	int room;	/* what the test has to set again, or 0 */
};

FIXTURE_SETUP(net)
{
	if (!getenv("SOURCES"))
		SKIP(return, "SOURCES is not set: the directory of wq_net.ko");
	ASSERT_EQ(0, source_in("wq_net"));
	ASSERT_EQ(0, unshare(CLONE_NEWNET));
	self->q = q_private(100000);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(net)
{
	if (!getenv("SOURCES"))
		return;
	if (self->room)
		EXPECT_EQ(0, set_room_of_sockets(self->room));
	close(self->q);
	EXPECT_TRUE(module_leaves("wq_net"));
}

TEST_F(net, attach_checks_its_tables)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_net_args args = { .flags = 1 };

	EXPECT_EQ(-EINVAL, attach_net(self->q, WQ_NET_ALL + 1));
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "net", &args, sizeof(args)));
	EXPECT_LT(0, attach_net(self->q, 0));
	EXPECT_STREQ("net", first(self->q).kind);
}

/* Each has a struct for itself, and the first one makes the queue in which routes wait. */
TEST_F(net, a_source_is_charged_to_the_cgroup_of_the_queues_maker_with_all_of_its_memory)
{
	enum { SOURCES = 40 };
	long long before, after;
	int q;

	if (!group_new())
		SKIP(return, "no memory controller of cgroup v2");
	q = q_of_group(1000, 0);
	ASSERT_LE(0, q);
	before = present();
	for (int i = 0; i < SOURCES; i++)
		ASSERT_LT(0, attach_net(q, 0));
	after = present();
	COMMENT("%lld bytes\n", after - before);
	EXPECT_LT(SOURCES * 1500LL + (13 << 10), after - before);
	close(q);
	ASSERT_EVENTUALLY(settled() < 128 << 10);
	EXPECT_TRUE(EVENTUALLY(!rmdir(CGROUP)));
}

TEST_F(net, links_addresses_neighbours_and_routes_are_keys)
{
	char key[40];

	ASSERT_LE(1, attach_net(self->q, WQ_NET_LINK));
	command("ip link set lo up");
	EXPECT_TRUE(next_is(self->q, "link/1"));
	EXPECT_EQ(0, detach(self->q, 1));
	drop_all(self->q);

	ASSERT_LE(1, attach_net(self->q, WQ_NET_ADDR));
	command("ip addr add 192.0.2.1/24 dev lo");
	EXPECT_TRUE(next_is(self->q, "addr/1/192.0.2.1"));
	command("ip addr add 2001:db8::1/64 dev lo");
	EXPECT_TRUE(next_is(self->q, "addr/1/2001:db8::1"));
	command("ip addr del 192.0.2.1/24 dev lo");
	EXPECT_TRUE(next_is(self->q, "addr/1/192.0.2.1"));
	EXPECT_EQ(0, detach(self->q, 2));

	ASSERT_LE(1, attach_net(self->q, WQ_NET_ROUTE));
	EXPECT_TRUE(none_is_left(self->q));
	command("ip route add 198.51.100.0/24 dev lo");
	EXPECT_TRUE(next_is(self->q, "route/main/198.51.100.0/24"));
	command("ip route del 198.51.100.0/24 dev lo");
	EXPECT_TRUE(next_is(self->q, "route/main/198.51.100.0/24"));
	command("ip -6 route add 2001:db8:1::/48 dev lo table 100");
	EXPECT_TRUE(next_is(self->q, "route/100/2001:db8:1::/48"));
	EXPECT_EQ(0, detach(self->q, 3));
	drop_all(self->q);

	/* all neighbours of the loopback device have one address */
	command("ip link add wqsource type dummy");
	command("ip link set wqsource up");
	ASSERT_LE(1, attach_net(self->q, WQ_NET_NEIGH));
	snprintf(key, sizeof(key), "neigh/%u/192.0.2.7", if_nametoindex("wqsource"));
	command("ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:01 dev wqsource");
	EXPECT_TRUE(next_is(self->q, key));
	command("ip neigh del 192.0.2.7 dev wqsource");
	EXPECT_TRUE(next_is(self->q, key));
	drop_all(self->q);
	command("ip link del wqsource");
}

TEST_F(net, changes_of_another_network_namespace_are_not_seen)
{
	pid_t pid;

	ASSERT_EQ(1, attach_net(self->q, 0));
	pid = child();
	if (!pid) {
		if (unshare(CLONE_NEWNET))
			_exit(1);
		command("ip link set lo up");
		_exit(0);
	}
	EXPECT_EQ(0, reap(pid));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(net, a_network_namespace_that_ends_ends_its_sources)
{
	pid_t pid = child();

	if (!pid) {
		if (unshare(CLONE_NEWNET))
			_exit(1);
		_exit(attach_net(self->q, WQ_NET_ROUTE | WQ_NET_NEIGH) != 1);
	}
	EXPECT_EQ(0, reap(pid));
	ASSERT_EVENTUALLY(first(self->q).state == WQ_SOURCE_ENDED);
	EXPECT_EQ(ENONET, first(self->q).error);
	EXPECT_TRUE(none_is_left(self->q));
	EXPECT_EQ(0, detach(self->q, 1));
}

TEST_F(net, close_of_many_sources_waits_for_no_grace_period_each)
{
	int files[MANY_SOURCES], n = 0, i;
	__s64 start;
	bool few;

	do {
		many_files(files);
		for (i = 0; i < MANY_SOURCES; i++) {
			struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
			struct wq_net_args args = {};

			op.flags = WQ_SOURCE_WITH_FILE;
			ASSERT_LT(0, attach_op(files[i], &op, "net", &args, sizeof(args)));
		}
		start = now_ns();
		for (i = 0; i < MANY_SOURCES; i++)
			close(files[i]);
		few = is_fewer_grace_periods(now_ns() - start);
		many_files_gone();
	} while (!few && ++n < 3);
	EXPECT_TRUE(few);
}

/* A process in a network namespace of its own, with a source of each queue as often as it can be. */
static pid_t in_net(const int *q, int n, int sources)
{
	pid_t pid = child();

	if (pid)
		return pid;
	if (unshare(CLONE_NEWNET))
		_exit(1);
	for (int i = 0; i < n * sources; i++)
		if (attach_net(q[i % n], 0) < 1)
			_exit(1);
	for (;;)
		pause();
}

/* ns from the end of a namespace until its source has ended */
static __s64 end_net(int q, pid_t pid)
{
	__s64 start = now_ns();
	bool ended;

	kill(pid, SIGKILL);
	reap(pid);
	ended = EVENTUALLY(first(q).state & WQ_SOURCE_ENDED);
	detach(q, first(q).id);
	return ended ? now_ns() - start : 3600 * SEC;
}

TEST_F(net, the_end_of_a_namespace_with_many_sources_does_not_hold_up_the_end_of_another)
{
	int many[MANY_QUEUES], n = 0;
	__s64 alone, beside;
	pid_t first, second;
	struct wq_source_op op;

	do {
		second = in_net(&self->q, 1, 1);
		ASSERT_EVENTUALLY(q_stat(self->q).sources == 1);
		alone = end_net(self->q, second);

		for (int i = 0; i < MANY_QUEUES; i++)
			many[i] = q_private(10);
		first = in_net(many, MANY_QUEUES, WQ_MAX_SOURCES);
		second = in_net(&self->q, 1, 1);
		for (int i = 0; i < MANY_QUEUES; i++)
			ASSERT_EVENTUALLY(q_stat(many[i]).sources == WQ_MAX_SOURCES);
		ASSERT_EVENTUALLY(q_stat(self->q).sources == 1);
		kill(first, SIGKILL);
		reap(first);
		beside = end_net(self->q, second);
		COMMENT("alone %lld us, beside %lld us\n", alone / 1000, beside / 1000);
		/* All sources of the first one learn its end, too. */
		for (int i = 0; i < MANY_QUEUES; i++) {
			for (int id = 0; id < WQ_MAX_SOURCES; id++)
				EXPECT_TRUE(EVENTUALLY(!list_after(many[i], id, &op) &&
						       op.error == ENONET));
			close(many[i]);
		}
	} while (beside >= 4 * alone + SEC && ++n < 3);
	EXPECT_LT(beside, 4 * alone + SEC);
}

/* The notifier of routes belongs to the namespace: it comes and goes with the sources. */
TEST_F(net, sources_of_routes_come_and_go_while_routes_change)
{
	pid_t pid;
	int id;

	command("ip link set lo up");
	pid = child();
	if (!pid) {
		for (;;) {
			command("ip route add 198.51.100.0/24 dev lo");
			command("ip route del 198.51.100.0/24 dev lo");
		}
	}
	for (int i = 0; i < 30; i++) {
		id = attach_net(self->q, WQ_NET_ROUTE);
		ASSERT_LT(0, id);
		if (!(i % 5))
			EXPECT_TRUE(next_is(self->q, "route/main/198.51.100.0/24"));
		ASSERT_LT(0, attach_net(self->q, WQ_NET_ROUTE | WQ_NET_LINK));
		EXPECT_EQ(0, detach(self->q, id));
		EXPECT_EQ(0, detach(self->q, id + 1));
		drop_all(self->q);
	}
	kill(pid, SIGKILL);
	reap(pid);
}

/* More than the namespace's queue of routes holds. */
TEST_F(net, many_routes_that_change_at_a_time_have_a_key_or_the_mark_of_the_table)
{
	char key[64];
	struct item item;
	FILE *ip;
	bool seen[2000] = {}, rescan = false;
	int n = 0;

	command("ip link set lo up");
	ASSERT_EQ(1, attach_net(self->q, WQ_NET_ROUTE));
	ip = popen("ip -batch -", "w");
	ASSERT_NE(NULL, ip);
	for (int i = 0; i < 2000; i++)
		fprintf(ip, "route add 10.%d.%d.0/24 dev lo\n", i / 250, i % 250);
	EXPECT_EQ(0, pclose(ip));
	while (n < 2000 && !rescan) {
		int a, b;

		if (q_get(self->q, &item, 10 * SEC))
			break;
		strcpy(key, item.key);
		q_done(self->q, &item);
		rescan = !strcmp(key, "route/");
		if (sscanf(key, "route/main/10.%d.%d.0/24", &a, &b) == 2 && !seen[a * 250 + b]) {
			seen[a * 250 + b] = true;
			n++;
		}
	}
	if (!rescan)
		EXPECT_EQ(2000, n);
}

/* A device takes its routes along at once, and rtnetlink does not report these. */
TEST_F(net, of_routes_that_go_at_once_each_has_a_key_or_counts_as_failed)
{
	enum { ROUTES = 10000 };
	struct wq_stat st;
	FILE *ip;

	command("ip link add wqroutes type dummy");
	command("ip link set wqroutes up");
	ip = popen("ip -batch -", "w");
	ASSERT_NE(NULL, ip);
	for (int i = 0; i < ROUTES; i++)
		fprintf(ip, "route add 10.%d.%d.0/24 dev wqroutes\n", i / 250, i % 250);
	EXPECT_EQ(0, pclose(ip));
	ASSERT_EQ(1, attach_net(self->q, WQ_NET_ROUTE));
	command("ip link del wqroutes");
	/* The last of them, and the mark, which is the one key that is no route. */
	EXPECT_TRUE(EVENTUALLY((st = q_stat(self->q)).ready - (first(self->q).rescans > 0) +
			       first(self->q).failed_adds >= ROUTES &&
			       !(st.state & WQ_STATE_RESCAN)));
	COMMENT("%u keys, %llu failed, %llu rescan keys\n", st.ready, first(self->q).failed_adds,
		first(self->q).rescans);
	EXPECT_LT(4000, st.ready);
	EXPECT_LT(0, first(self->q).failed_adds);
	EXPECT_LE(WQ_KEY_READY, q_query(self->q, "route/"));
}

static int attach_with_prefix(int q, const char *prefix, __u32 tables)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_net_args args = { .tables = tables };

	strcpy(op.prefix, prefix);
	return attach_op(q, &op, "net", &args, sizeof(args));
}

/* Many of them are passed on in one array, to sources with other tables and other prefixes. */
TEST_F(net, of_routes_that_go_at_once_each_source_has_the_keys_of_its_tables)
{
	enum { ROUTES = 100 };
	int rules = q_private(100), full = q_private(1);
	struct item item;
	char key[64];
	FILE *ip;

	command("ip link add wqroutes type dummy");
	command("ip link set wqroutes up");
	ip = popen("ip -batch -", "w");
	ASSERT_NE(NULL, ip);
	for (int i = 0; i < ROUTES; i++)
		fprintf(ip, "route add 10.0.%d.0/24 dev wqroutes\n", i);
	EXPECT_EQ(0, pclose(ip));
	ASSERT_LT(0, attach_net(self->q, WQ_NET_ROUTE));
	ASSERT_LT(0, attach_with_prefix(self->q, "one:", WQ_NET_ROUTE));
	ASSERT_LT(0, attach_with_prefix(self->q, "the second:", WQ_NET_ROUTE));
	ASSERT_LT(0, attach_with_prefix(rules, "r:", WQ_NET_RULE));
	ASSERT_LT(0, attach_with_prefix(full, "f:", WQ_NET_ROUTE));
	command("ip link del wqroutes");
	for (int i = 0; i < ROUTES; i++) {
		snprintf(key, sizeof(key), "one:route/main/10.0.%d.0/24", i);
		EXPECT_TRUE(EVENTUALLY(q_query(self->q, key) >= WQ_KEY_READY));
		snprintf(key, sizeof(key), "the second:route/main/10.0.%d.0/24", i);
		EXPECT_TRUE(EVENTUALLY(q_query(self->q, key) >= WQ_KEY_READY));
		snprintf(key, sizeof(key), "route/main/10.0.%d.0/24", i);
		EXPECT_TRUE(EVENTUALLY(q_query(self->q, key) >= WQ_KEY_READY));
	}
	while (!q_get(self->q, &item, 0)) {
		const char *route = strstr(item.key, "route/main/10.");
		int i, end = 0;

		if (route && (sscanf(route, "route/main/10.0.%d.0/24%n", &i, &end) != 1 || route[end]))
			EXPECT_STREQ("a key of one of the routes", item.key);
		q_done(self->q, &item);
	}
	command("ip rule add priority 77");
	EXPECT_TRUE(next_is(rules, "r:rule/inet/77"));
	/* One key had room. */
	EXPECT_EQ(0, q_get(full, &item, 5 * SEC));
	EXPECT_EQ(0, strncmp(item.key, "f:route/", 8));
	EXPECT_LE(0, q_done(full, &item));
	EXPECT_TRUE(next_is(full, "f:route/"));
	close(rules);
	close(full);
}

static bool next_is_of_command(int q, const char *run, const char *key)
{
	command(run);
	return next_is(q, key);
}

TEST_F(net, rules_next_hops_bridges_and_settings_are_keys)
{
	char key[40];

	command("ip link add wqsource type dummy");
	command("ip link set wqsource up");
	command("ip link add wqbridge type bridge");
	command("ip link set wqsource master wqbridge");
	ASSERT_EQ(1, attach_net(self->q, WQ_NET_RULE | WQ_NET_NEXTHOP | WQ_NET_FDB | WQ_NET_NETCONF));
	EXPECT_TRUE(next_is_of_command(self->q, "ip rule add priority 77", "rule/inet/77"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip rule del priority 77", "rule/inet/77"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip -6 rule add priority 77", "rule/inet6/77"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip nexthop add id 5 dev wqsource", "nexthop/5"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip nexthop replace id 5 dev wqsource", "nexthop/5"));
	snprintf(key, sizeof(key), "fdb/%u/02:00:00:00:00:07", if_nametoindex("wqsource"));
	EXPECT_TRUE(next_is_of_command(self->q, "bridge fdb add 02:00:00:00:00:07 dev wqsource master static",
				       key));
	EXPECT_TRUE(next_is_of_command(self->q, "bridge fdb del 02:00:00:00:00:07 dev wqsource master", key));
	drop_all(self->q);
	snprintf(key, sizeof(key), "netconf/inet/%u", if_nametoindex("wqsource"));
	EXPECT_TRUE(next_is_of_command(self->q,
				       "echo 1 >/proc/sys/net/ipv4/conf/wqsource/forwarding", key));
	EXPECT_EQ(0, detach(self->q, 1));

	/* Notifiers do not report these changes of links, addresses and routes. */
	ASSERT_EQ(2, attach_net(self->q, WQ_NET_LINK));
	snprintf(key, sizeof(key), "link/%u", if_nametoindex("wqsource"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip link set wqsource promisc on", key));
	EXPECT_EQ(0, detach(self->q, 2));
	drop_all(self->q);
	command("ip addr add 192.0.2.1/24 dev wqsource");
	ASSERT_EQ(3, attach_net(self->q, WQ_NET_ADDR));
	snprintf(key, sizeof(key), "addr/%u/192.0.2.1", if_nametoindex("wqsource"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip addr change 192.0.2.1/24 dev wqsource valid_lft 900 preferred_lft 800",
				       key));
	EXPECT_EQ(0, detach(self->q, 3));
	drop_all(self->q);
	command("ip route add default dev wqsource metric 1");
	ASSERT_EQ(4, attach_net(self->q, WQ_NET_ROUTE));
	EXPECT_TRUE(next_is_of_command(self->q, "ip route add default dev wqsource metric 9",
				       "route/main/0.0.0.0/0"));
	EXPECT_TRUE(next_is_of_command(self->q, "ip route del default dev wqsource metric 9",
				       "route/main/0.0.0.0/0"));
	EXPECT_EQ(0, detach(self->q, 4));
	command("ip link del wqsource");
	command("ip link del wqbridge");
}

/* A message of a neighbour can be of the table fdb, and one of a route of mroute. */
TEST_F(net, a_table_has_keys_as_long_as_any_source_has_the_table)
{
	char key[40];
	int id;

	command("ip link add wqsource type dummy");
	command("ip link set wqsource up");
	snprintf(key, sizeof(key), "neigh/%u/192.0.2.7", if_nametoindex("wqsource"));
	for (int i = 0; i < 3; i++) {
		id = attach_net(self->q, WQ_NET_ROUTE | WQ_NET_NEIGH);
		ASSERT_LT(0, id);
		ASSERT_LT(0, attach_net(self->q, WQ_NET_ROUTE | WQ_NET_FDB | WQ_NET_MROUTE));
		EXPECT_EQ(0, detach(self->q, id));
		drop_all(self->q);
		command("ip route add 198.51.100.0/24 dev wqsource");
		EXPECT_TRUE(EVENTUALLY(q_query(self->q, "route/main/198.51.100.0/24") > 0));
		command("ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:01 dev wqsource");
		EXPECT_EQ(-ENOENT, q_query(self->q, key));
		ASSERT_LT(0, attach_net(self->q, WQ_NET_NEIGH));
		EXPECT_EQ(0, detach(self->q, id + 1));
		command("ip neigh del 192.0.2.7 dev wqsource");
		EXPECT_LT(0, q_query(self->q, key));
		command("ip route del 198.51.100.0/24 dev wqsource");
		EXPECT_EQ(0, detach(self->q, id + 2));
	}
	command("ip link del wqsource");
}

TEST_F(net, a_message_of_a_process_to_a_group_of_rtnetlink_has_no_key)
{
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} m = {
		.head = { .nlmsg_len = sizeof(m), .nlmsg_type = RTM_NEWLINK },
		.link = { .ifi_index = 1 },
	};
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ASSERT_EQ(1, attach_net(self->q, 0));
	EXPECT_EQ(sizeof(m), sendto(fd, &m, sizeof(m), 0, (void *)&to, sizeof(to)));
	EXPECT_TRUE(none_is_left(self->q));
	close(fd);
}

/* The socket of the sources: the one in the namespace that has an address.  0: there is none. */
static unsigned int address_of_sources(void)
{
	unsigned int address = 0, protocol, found = 0;
	FILE *in = fopen("/proc/thread-self/net/netlink", "r");
	char line[200];

	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "%*s %u %u", &protocol, &address) == 2 &&
		    protocol == NETLINK_ROUTE && address)
			found = address;
	if (in)
		fclose(in);
	return found;
}

TEST_F(net, a_process_that_attaches_keeps_its_own_address_of_rtnetlink)
{
	struct sockaddr_nl own = { .nl_family = AF_NETLINK, .nl_pid = getpid() };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ASSERT_EQ(1, attach_net(self->q, 0));
	EXPECT_EQ(0, bind(fd, (void *)&own, sizeof(own)));
	close(fd);
}

TEST_F(net, a_message_of_a_process_to_the_socket_of_the_sources_is_refused)
{
	struct nlmsghdr m = { .nlmsg_len = sizeof(m), .nlmsg_type = NLMSG_NOOP };
	struct sockaddr_nl to = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	ASSERT_EQ(1, attach_net(self->q, 0));
	to.nl_pid = address_of_sources();
	ASSERT_NE(0, to.nl_pid);
	EXPECT_LE(1U << 31, to.nl_pid);
	EXPECT_EQ(-1, sendto(fd, &m, sizeof(m), MSG_DONTWAIT, (void *)&to, sizeof(to)));
	EXPECT_EQ(ECONNREFUSED, errno);
	close(fd);
}

/* The bytes of messages that wait in a new socket, at most.  A namespace does not see the setting. */
static int room_of_sockets(void)
{
	FILE *in = popen(ROOM, "r");
	int bytes = 0;

	if (in) {
		(void)!fscanf(in, "%d", &bytes);
		pclose(in);
	}
	return bytes;
}

/* Send messages to all that listen to links, which are longer than their room.  Never returns. */
static void flood(void)
{
	static struct {
		struct nlmsghdr head;
		char data[8000];
	} m = { .head = { .nlmsg_len = sizeof(m), .nlmsg_type = NLMSG_NOOP } };
	struct sockaddr_nl to = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	for (;;)
		sendto(fd, &m, sizeof(m), 0, (void *)&to, sizeof(to));
}

static void add_rules(int from, int n)
{
	FILE *ip = popen("ip -batch -", "w");

	while (ip && n--)
		fprintf(ip, "rule add priority %d\n", from + n);
	if (!ip || pclose(ip))
		COMMENT("ip rule add failed\n");
}

static int rules_with_key(int q, int from, int n)
{
	char key[40];
	int found = 0;

	while (n--) {
		snprintf(key, sizeof(key), "rule/inet/%d", from + n);
		found += q_query(q, key) > 0;
	}
	return found;
}

/* Messages that the kernel dropped */
static unsigned int drops_of_sources(void)
{
	FILE *in = fopen("/proc/thread-self/net/netlink", "r");
	unsigned int address, drops = 0, n;
	char line[200];

	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "%*s %*u %u %*x %*d %*d %*d %*d %u", &address, &n) == 2 &&
		    address == address_of_sources())
			drops = n;
	if (in)
		fclose(in);
	return drops;
}

/*
 * The socket of the sources reads a message where it was sent, so two have to be sent at a time.  The
 * kernel then drops one of them, and all that come until the module has seen that.
 */
TEST_F_TIMEOUT(net, messages_that_the_kernel_drops_leave_the_marks_of_their_tables, 300)
{
	enum { RULES = 100, ROUNDS = 200 };
	int room = room_of_sockets(), round, named = RULES;
	pid_t senders[2];

	/* There the reader keeps up with the senders. */
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU, on which the kernel drops no message");
	ASSERT_LT(0, room);
	self->room = room;
	ASSERT_EQ(0, set_room_of_sockets(4096));
	EXPECT_EQ(1, attach_net(self->q, 0));
	ASSERT_EQ(0, set_room_of_sockets(room));
	self->room = 0;
	for (int i = 0; i < ARRAY_SIZE(senders); i++) {
		senders[i] = child();
		if (!senders[i])
			flood();
	}
	for (round = 0; round < ROUNDS && named == RULES; round++) {
		int from = 1 + round * RULES;

		drop_all(self->q);
		add_rules(from, RULES);
		EXPECT_TRUE(EVENTUALLY((named = rules_with_key(self->q, from, RULES)) == RULES ||
				       q_query(self->q, "rule/") > 0 || q_query(self->q, "/") > 0));
		sleep_ms(50);
		named = rules_with_key(self->q, from, RULES);
	}
	for (int i = 0; i < ARRAY_SIZE(senders); i++) {
		kill(senders[i], SIGKILL);
		reap(senders[i]);
	}
	COMMENT("%u messages dropped; in round %d, %d of %d rules have a key\n", drops_of_sources(), round,
		named, RULES);
	EXPECT_LT(0, drops_of_sources());
	EXPECT_GT(RULES, named);
	/* The kernel sends again. */
	add_rules(30000, RULES);
	EXPECT_TRUE(EVENTUALLY(rules_with_key(self->q, 30000, RULES) == RULES));
}

/* The kernel's commands for them come from daemons alone. */
TEST_F(net, a_change_of_multicast_routes_leaves_their_mark)
{
	struct vifctl vif = { .vifc_flags = VIFF_USE_IFINDEX };
	struct mfcctl route = { .mfcc_parent = 0 };
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_IGMP), on = 1;

	command("ip link set lo up");
	ASSERT_EQ(1, attach_net(self->q, WQ_NET_MROUTE));
	vif.vifc_lcl_ifindex = if_nametoindex("lo");
	ASSERT_EQ(0, setsockopt(fd, IPPROTO_IP, MRT_INIT, &on, sizeof(on)));
	ASSERT_EQ(0, setsockopt(fd, IPPROTO_IP, MRT_ADD_VIF, &vif, sizeof(vif)));
	inet_pton(AF_INET, "192.0.2.1", &route.mfcc_origin);
	inet_pton(AF_INET, "239.1.1.1", &route.mfcc_mcastgrp);
	ASSERT_EQ(0, setsockopt(fd, IPPROTO_IP, MRT_ADD_MFC, &route, sizeof(route)));
	EXPECT_TRUE(next_is(self->q, "mroute/"));
	close(fd);
}

TEST_F(net, a_full_queue_leaves_the_mark_of_the_table)
{
	int q = q_private(1);

	ASSERT_EQ(1, attach_net(q, WQ_NET_ADDR | WQ_NET_LINK));
	ASSERT_EQ(1, q_add(q, "full"));
	command("ip addr add 192.0.2.1/24 dev lo");
	EXPECT_EQ(WQ_SOURCE_MARKED, first(q).state);
	EXPECT_TRUE(next_is(q, "full"));
	EXPECT_TRUE(next_is(q, "addr/"));
	ASSERT_EQ(1, q_add(q, "full"));
	command("ip addr add 192.0.2.2/24 dev lo");
	command("ip link set lo up");
	EXPECT_TRUE(next_is(q, "full"));
	EXPECT_TRUE(next_is(q, "/"));
	close(q);
}

/*
 * The model: a consumer's copy of the tables, made from keys alone, equals the tables at the end.  For
 * a key the consumer looks at the present table, and takes over what that has of the key.
 */
#define DEVICE	"wqmodel"
#define ROWS	512

struct row {
	char key[64];
	char value[200];
};

struct view {
	int n;
	struct row rows[ROWS];
};

static unsigned long seed;

static unsigned int draw(unsigned int n)
{
	seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return (seed >> 33) % n;
}

/* Append the lines of a command; their field @field, up to a byte of @end, is a part of the key. */
static void dump(struct view *v, const char *what, const char *table, int field, const char *end)
{
	char line[200];
	FILE *in = popen(what, "r");

	while (in && fgets(line, sizeof(line), in) && v->n < ROWS) {
		struct row *row = &v->rows[v->n++];
		char *word = line + strspn(line, " ");

		snprintf(row->value, sizeof(row->value), "%s", line);
		for (int i = 0; i < field; i++) {
			word += strcspn(word, " ");
			word += strspn(word, " ");
		}
		snprintf(row->key, sizeof(row->key), "%s%.*s", table, (int)strcspn(word, end), word);
	}
	if (in)
		pclose(in);
}

static void look(struct view *v)
{
	char table[32];
	unsigned int device = if_nametoindex(DEVICE);

	v->n = 0;
	snprintf(table, sizeof(table), "neigh/%u/", device);
	dump(v, "ip -4 neigh show dev " DEVICE, table, 0, " ");
	snprintf(table, sizeof(table), "addr/%u/", device);
	dump(v, "ip -o -4 addr show dev " DEVICE, table, 3, "/");
	dump(v, "ip -4 route show dev " DEVICE " proto static", "route/main/", 0, " ");
}

static bool is_of(const struct row *row, const char *key, size_t len)
{
	/* A rescan key stands for all that begins with it, and a slash alone for all. */
	return len == 1 || (key[len - 1] == '/' ? !strncmp(row->key, key, len) :
						  !strcmp(row->key, key));
}

static void take_over(struct view *copy, const struct view *now, const char *key, size_t len)
{
	int i, n = 0;

	for (i = 0; i < copy->n; i++)
		if (!is_of(&copy->rows[i], key, len))
			copy->rows[n++] = copy->rows[i];
	copy->n = n;
	for (i = 0; i < now->n && copy->n < ROWS; i++)
		if (is_of(&now->rows[i], key, len))
			copy->rows[copy->n++] = now->rows[i];
}

/* One look is enough for several keys: it comes after their gets. */
static void consume(int q, struct view *copy, struct view *now)
{
	static struct item items[64];
	int n;

	do {
		for (n = 0; n < ARRAY_SIZE(items) && !q_get(q, &items[n], 0);)
			n++;
		if (n)
			look(now);
		for (int i = 0; i < n; i++) {
			take_over(copy, now, items[i].key, items[i].len);
			q_done(q, &items[i]);
		}
	} while (n);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct row *)a)->key, ((const struct row *)b)->key);
}

static bool equal_views(struct view *a, struct view *b)
{
	qsort(a->rows, a->n, sizeof(*a->rows), by_key);
	qsort(b->rows, b->n, sizeof(*b->rows), by_key);
	for (int i = 0; i < a->n || i < b->n; i++) {
		if (i < a->n && i < b->n && !strcmp(a->rows[i].key, b->rows[i].key) &&
		    !strcmp(a->rows[i].value, b->rows[i].value))
			continue;
		COMMENT("%d and %d rows; the first difference is at %s\n", a->n, b->n,
			i < a->n ? a->rows[i].key : b->rows[i].key);
		return false;
	}
	return true;
}

/* Steps that fail, because there is such a row already or none, are steps, too. */
static void random_steps(int n)
{
	FILE *ip = popen("ip -force -batch - >/dev/null 2>&1", "w");

	while (ip && n--) {
		int host = draw(12) + 1;

		switch (draw(6)) {
		case 0 ... 1:
			fprintf(ip, "neigh replace 10.9.0.%d lladdr 02:00:00:00:00:%02x dev %s nud permanent\n",
				host, draw(256), DEVICE);
			break;
		case 2:
			fprintf(ip, "neigh del 10.9.0.%d dev %s\n", host, DEVICE);
			break;
		case 3:
			fprintf(ip, "addr %s 10.8.0.%d/32 dev %s\n", draw(2) ? "add" : "del", host, DEVICE);
			break;
		case 4:
			fprintf(ip, "route replace 10.%d.0.0/16 dev %s proto static metric %d\n", 100 + host,
				DEVICE, draw(3));
			break;
		case 5:
			fprintf(ip, "route del 10.%d.0.0/16 dev %s\n", 100 + host, DEVICE);
			break;
		}
	}
	if (ip)
		pclose(ip);
}

static bool model(unsigned long start, __u32 max_keys)
{
	static struct view copy, now;
	int q = q_private(max_keys);

	seed = start;
	command("ip link add " DEVICE " type dummy");
	command("ip link set " DEVICE " up");
	copy.n = 0;
	if (attach_net(q, 0) != 1)
		return false;
	for (int i = 0; i < 8; i++) {
		random_steps(150);
		if (draw(2))
			consume(q, &copy, &now);
	}
	/* The keys of routes come when their change has ended. */
	for (int quiet = 0; quiet < 5; quiet++) {
		sleep_ms(50);
		if (first(q).state & WQ_SOURCE_MARKED || q_stat(q).ready)
			quiet = 0;
		consume(q, &copy, &now);
	}
	COMMENT("seed %lu: %llu adds failed, %llu rescan keys\n", start, first(q).failed_adds,
		first(q).rescans);
	close(q);
	look(&now);
	command("ip link del " DEVICE);
	return now.n > 5 && equal_views(&copy, &now);
}

TEST_F_TIMEOUT(net, a_copy_made_from_keys_equals_the_tables_after_random_steps, 600)
{
	EXPECT_TRUE(model(1, 1));
	EXPECT_TRUE(model(2, 3));
	EXPECT_TRUE(model(3, 1000));
}

TEST_HARNESS_MAIN
