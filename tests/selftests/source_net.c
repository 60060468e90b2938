// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "net".
 *
 * SOURCES in the environment is the directory of wq_net.ko, which the tests load and remove.  Without
 * it the tests are skipped.
 */
#define _GNU_SOURCE
#include "wq_sources.h"
#include "wq_test.h"

#include <sched.h>
#include <net/if.h>

static int attach_net(int q, __u32 tables)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_net_args args = { .tables = tables };

	return attach_op(q, &op, "net", &args, sizeof(args));
}

FIXTURE(net) {
	int q;
};

FIXTURE_SETUP(net)
{
	if (!getenv("SOURCES"))
		SKIP(return, "SOURCES is not set: the directory of wq_net.ko");
	ASSERT_EQ(0, module_in("wq_net"));
	ASSERT_EQ(0, unshare(CLONE_NEWNET));
	self->q = q_private(100000);
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(net)
{
	if (!getenv("SOURCES"))
		return;
	close(self->q);
	EXPECT_TRUE(EVENTUALLY(module_out("wq_net") != -EBUSY && access("/sys/module/wq_net", F_OK)));
}

TEST_F(net, attach_checks_its_tables)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_net_args args = { .flags = 1 };

	EXPECT_EQ(-EINVAL, attach_net(self->q, 0x10));
	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "net", &args, sizeof(args)));
	EXPECT_EQ(1, attach_net(self->q, 0));
	EXPECT_STREQ("net", first(self->q).kind);
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
	EXPECT_TRUE(next_is(self->q, "/"));
	EXPECT_EQ(ENODEV, first(self->q).error);
	EXPECT_EQ(0, detach(self->q, 1));
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

TEST_HARNESS_MAIN
