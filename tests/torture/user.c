// SPDX-License-Identifier: GPL-2.0-only
/*
 * The processes of the torture test. While wq_torture.ko creates, uses and destroys its queues,
 * processes open the queues that are meant for them, use every verb, and are killed, stopped
 * and interrupted at any moment.
 *
 * torture_user SECONDS [PROCESSES [QUEUES]]
 *
 * Keys of this program begin with "u". In queues torture-w-N it uses only these, because the
 * module tracks all of its own keys there. In queues torture-rw-N both use all keys. Queues
 * torture-own-N are made by the processes, which also change their attributes while others use
 * them. Sources watch the files of a directory, in which all processes make and remove files, and
 * the routes of network namespaces, which end with their sources. Without the modules wq_fs and
 * wq_net there are none. Queues are given to other users, and sets of queues are mounted and
 * unmounted.
 *
 * The exit status is 1 if
 *
 *  - a call failed with an unexpected errno, or the statistics of a queue do not add up;
 *  - a key is missing in a queue whose set was unmounted while its file was open;
 *  - a user made a queue in the default set while that was closed;
 *  - at the end a user's charges are not what they were at the start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <libwq.h>
#include <linux/capability.h>
#include <linux/wq_source.h>

#define US		1000LL
#define MS		1000000LL
#define KEYS		64
#define MAX_PROCESSES	64
#define FILES		20	/* that sources watch */
#define CLOSED		"/sys/module/wq/parameters/closed"

/*
 * The users that queues are given to.  They own nothing else on this machine.  The keys of FULL's
 * quota are used up.
 */
enum { ROOT, ALICE = 54301, BOB, CAROL, FULL };
static const uid_t users[] = { ROOT, ALICE, BOB, CAROL, FULL };

#define USERS		(sizeof(users) / sizeof(*users))

/* Shared by all processes. */
static struct {
	unsigned long calls, opened, gets, again, dones, set, mapped, waits, disables, sources, killed, stopped, interrupted;
	unsigned long given, over, sets, networks, closed;
	unsigned long failed;
} *all;

static unsigned int rnd;	/* state of the random numbers, one per process */
static bool any_key;		/* all keys of the queue may be used */
static bool own_queue;		/* the processes made the queue, so they may disable keys */
static bool limited;		/* without the capabilities that exceed quotas and modes */
static const char *queue;	/* its name */
static int dir;			/* what sources watch */
static char set_path[64];	/* where each process mounts sets of its own */

static unsigned int below(unsigned int n)
{
	rnd = rnd * 1103515245 + 12345;
	return (rnd >> 8) % n;
}

static void note(unsigned long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static void bad(const char *what)
{
	note(&all->failed);
	fprintf(stderr, "torture_user: %s: %s: %s\n", queue, what, strerror(errno));
}

/*
 * The result of a call, or -1 if it failed with one of the errnos that may occur. Any other
 * errno is an error.
 */
static int may(const char *what, int ret)
{
	note(&all->calls);
	if (ret >= 0)
		return ret;
	switch (errno) {
	case ESHUTDOWN: case EAGAIN: case ETIMEDOUT: case ENOSPC: case ENOMEM: case ENOENT:
	case ESTALE: case ECANCELED: case EHOSTDOWN: case EIDRM:
		break;
	case EINTR:
		note(&all->interrupted);
		break;
	case EEXIST:	/* an open that asks for attributes which another process changed */
	case EPERM:	/* done without a token, of a key that another consumer holds */
	case EBUSY:	/* add of a key that another process, or the module, has disabled */
		if (any_key)
			break;
		/* fall through */
	default:
		bad(what);
	}
	return -1;
}

static size_t some_key(char *key)
{
	unsigned int n = below(KEYS);

	memset(key, 'u', WQ_MAX_KEY);
	if (any_key && below(2)) {
		/* a key of the module, of its first kind */
		memcpy(key, "K\0\0\0", 4);
		key[1] = n % 5 * 10;
		return 4;
	}
	key[1] = 'A' + n;
	return n % 7 ? 2 + n : WQ_MAX_KEY - n;
}

static long long some_time(long long most)
{
	return most >> below(16);
}

static int some_level(void)
{
	return WQ_MIN_PRIORITY + (int)below(WQ_MAX_PRIORITY - WQ_MIN_PRIORITY + 1);
}

/* Adds that are repeated, by the queue's map. */
static void add_often(int q)
{
	struct wq_producer p;
	char key[WQ_MAX_KEY];
	unsigned int n;
	size_t len;

	if (may("map", wq_producer_init(&p, q, 8)))
		return;
	for (n = 1 + below(20); n; n--) {
		len = some_key(key);
		if (may("mapped add", wq_producer_add(&p, key, len)) >= 0 && below(2))
			may("mapped add again", wq_producer_add(&p, key, len));
	}
	__atomic_fetch_add(&all->mapped, p.coalesced, __ATOMIC_RELAXED);
	wq_producer_free(&p);
}

static void add(int q)
{
	struct wq_items b = WQ_ITEMS_INIT;
	char key[WQ_MAX_KEY];
	unsigned int n;
	size_t len;

	switch (below(6)) {
	case 0:
		len = some_key(key);
		may("add after", wq_add_after(q, key, len, some_time(10 * MS),
					      below(2) ? WQ_ADD_TAKE_LATEST : 0));
		break;
	case 1:
		may("add rate limited", wq_add_rate_limited(q, key, some_key(key)));
		break;
	case 2:
		for (n = 1 + below(40); n; n--) {
			len = some_key(key);
			wq_items_put_after(&b, key, len, below(2) ? some_time(MS) : 0, 0);
		}
		may("add batch", wq_add_many(q, &b));
		wq_items_free(&b);
		break;
	case 3:
		add_often(q);
		break;
	case 4:
		/* refused in a queue without levels */
		len = some_key(key);
		if (wq_add_priority(q, key, len, some_level(), 0, 0) < 0 && errno != EINVAL)
			may("add with a level", -1);
		break;
	default:
		may("add", wq_add(q, key, some_key(key)));
	}
	if (!below(8))
		may("cancel", wq_cancel(q, key, some_key(key)));
	if (!below(8))
		may("forget", wq_forget(q, key, some_key(key)));
}

static void touch(int q, const struct wq_item *it)
{
	union {
		struct wq_rec rec;
		char room[WQ_REC_SIZE(WQ_MAX_KEY)];
	} r = { .rec = { .len = it->len, .token = it->token } };
	struct wq_add args = {
		.size = sizeof(args),
		.keys = { .addr = (uintptr_t)&r, .size = WQ_REC_SIZE(it->len), .count = 1 },
	};

	memcpy(r.rec.key, it->key, it->len);
	may("touch", ioctl(q, WQ_IOC_TOUCH, &args));
}

static void finish(int q, struct wq_item *it)
{
	switch (below(7)) {
	case 4:
		may("give up", wq_done_failed(q, it, WQ_OUTCOME_GIVE_UP, EIO,
					      below(2) ? "torture" : NULL));
		break;
	case 0:
		may("retry", wq_done_with(q, it, 0, WQ_OUTCOME_RETRY));
		break;
	case 1:
		/* refused in a queue without groups */
		if (!below(4) && (wq_done_with(q, it, some_time(2 * MS), WQ_OUTCOME_REST) >= 0 ||
				  errno != EOPNOTSUPP))
			break;
		may("again", wq_done_with(q, it, some_time(2 * MS), WQ_OUTCOME_AFTER));
		break;
	case 2:
		/* refused in a queue with leases */
		if (wq_done_key(q, it->key, it->len) < 0 && errno != EINVAL)
			may("done key", -1);
		break;
	case 3:
		return;		/* close gives it back */
	default:
		may("done", wq_done_with(q, it, 0, below(2) ? WQ_OUTCOME_FORGET : 0));
	}
	note(&all->dones);
}

static void get(int q)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_view v;
	struct wq_item it;

	if (!below(3)) {
		if (may("get batch", wq_get_many(q, &b, 1 + below(10), some_time(5 * MS))) > 0 &&
		    below(4)) {
			while (wq_items_next(&b, &v))
				note(&all->gets);
			may("done batch", wq_done_many(q, &b));
		}
		wq_items_free(&b);
		return;
	}
	if (may("get", wq_get(q, &it, below(4) ? some_time(20 * MS) : WQ_NOWAIT)))
		return;
	note(&all->gets);
	if (it.given_back > 1)
		note(&all->again);
	if (!below(4))
		usleep(some_time(10 * MS) / US);
	if (!below(4))
		touch(q, &it);
	if (!below(3) && may("done and get", wq_done_get(q, &it, 0, below(2) ? WQ_OUTCOME_FORGET : 0,
							some_time(5 * MS))))
		return;
	finish(q, &it);
}

/* Waits for keys, for room or for both, and may be killed with the wake-up. */
static void wait_for_events(int q)
{
	static const short events[] = { POLLIN, POLLOUT, POLLIN | POLLOUT };
	struct pollfd p = { .fd = q, .events = events[below(3)] };
	struct epoll_event ev = { .events = p.events | EPOLLEXCLUSIVE };
	struct wq_stat st;
	int ep;

	if (below(2)) {
		if (may("poll", poll(&p, 1, below(10))) > 0 && p.revents & POLLERR &&
		    may("stat", wq_stat(q, &st)) >= 0 && !(st.state & WQ_STATE_SHUTDOWN))
			bad("POLLERR without a shut down");
		return;
	}
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, q, &ev))
		bad("epoll");
	else
		may("epoll_wait", epoll_wait(ep, &ev, 1, below(10)));
	close(ep);
}

/* The user that the queue is charged to. */
static void look_at_owner(int q)
{
	struct wq_info info = { .size = sizeof(info), .flags = WQ_INFO_OWNER };
	int ret = ioctl(q, WQ_IOC_INFO, &info);

	/* a kernel module's queue, which is charged to nobody */
	if (ret && errno == EPERM && any_key && !own_queue)
		return;
	if (!may("info of the owner", ret) && !info.charged_queues)
		bad("the owner is not charged");
}

static void look(int q)
{
	struct wq_items b = WQ_ITEMS_INIT;
	struct wq_key_info info;
	char key[WQ_MAX_KEY];
	struct wq_queue *list;
	uint64_t cursor = 0;
	struct wq_stat st;
	unsigned long long redo;

	switch (below(6)) {
	case 0:
		if (may("stat", wq_stat(q, &st)))
			break;
		redo = st.adds + st.given_back - st.given_back_failed - st.gets - st.canceled -
		       st.merged - st.ready;
		if (redo > st.processing || st.gets != st.processing + st.dones + st.given_back)
			bad("the statistics do not add up");
		break;
	case 1:
		may("query", wq_query_info(q, key, some_key(key), &info));
		may("requeues", wq_num_requeues(q, key, some_key(key)));
		break;
	case 2:
		do {
			if (may("list", wq_list(q, &b, 32, &cursor)) < 0)
				break;
			wq_items_reset(&b);
		} while (cursor);
		wq_items_free(&b);
		break;
	case 3:
		if (may("queues", wq_queues(NULL, &list)) >= 0)
			free(list);
		break;
	case 4:
		look_at_owner(q);
		break;
	default:
		wait_for_events(q);
	}
}

/* Attributes of a queue of the processes. Delays are short, so that keys return during a run. */
static void some_config(struct wq_attrs *config)
{
	static const struct wq_limiter_spec limiters[] = {
		{ .kind = WQ_LIMITER_MAX_OF, .n = 2 },
		{ .kind = WQ_LIMITER_EXPONENTIAL, .base = 10 * US, .max = 5 * MS },
		{ .kind = WQ_LIMITER_BUCKET, .n = 100, .rate = WQ_QPS(10000) },
	};
	unsigned int first = below(2);

	*config = (struct wq_attrs){
		.mode = 0600,
		.max_keys = 1 + below(2 * KEYS),
		.limiters = (uintptr_t)(limiters + first),
		.num_limiters = first ? 1 : 3,
		.lease = WQ_MIN_LEASE + some_time(20 * MS),
		.slack = 1 + some_time(MS),
		.max_retries = below(4),
		.max_processing = below(2) ? 0 : 1 + below(2 * KEYS),
		.start_rate = below(2) ? 0 : WQ_QPS(10000ULL << below(10)),
		.start_burst = 1 + below(100),
		.group_start_rate = below(2) ? 0 : WQ_QPS(10000ULL << below(10)),
		.group_start_burst = 1 + below(100),
		.max_defer = below(2) ? 0 : 1 + some_time(10 * MS),
		.group_limit = below(4),
		.group_ageing = 1 + below(10),
		.order_arg = below(10),
	};
}

/* Reads and changes attributes while others use the queue. */
static void configure(int q)
{
	struct wq_limiter_spec limiters[WQ_MAX_LIMITERS];
	struct wq_attrs config;
	uint32_t can_change;

	if (may("config", wq_attrs(q, &config, limiters, WQ_MAX_LIMITERS)))
		return;
	can_change = config.set;
	if (!can_change)
		return;		/* a kernel module's */
	if (below(2))
		some_config(&config);
	do
		config.set = can_change & below(1U << 20);
	while (!config.set);
	/* A queue that was made with a lease can be without one. */
	if (config.set & WQ_ATTR_LEASE && !below(4))
		config.lease = 0;
	if (!may("set", wq_set_attrs(q, &config)))
		note(&all->set);
}

/* A pause ends by itself, so that no consumer waits for a process that was killed. */
static void pause_some(int q)
{
	struct wq_attrs config;
	unsigned int what = 1 + below(WQ_PAUSE_GETS | WQ_PAUSE_ADDS);

	if (may("config", wq_attrs(q, &config, NULL, 0)))
		return;
	if (!config.set) {
		/* a kernel module's */
		if (!wq_pause(q, what, MS) || errno != EPERM)
			bad("pause of a queue of a kernel module");
		return;
	}
	may("pause", below(4) ? wq_pause(q, what, 1 + some_time(5 * MS)) : wq_resume(q, what));
}

/* The result of a wait for a key, which may be one that this file holds. */
static int may_wait(const char *what, int ret)
{
	if (ret >= 0 || (errno != EDEADLK && errno != EUSERS))
		return may(what, ret);
	note(&all->calls);
	return -1;
}

/* Waits in the call, or by a descriptor.  If the process is killed, only its end closes that. */
static void flush(int q)
{
	/* The module may end its queue, while processes have it open. */
	static const uint32_t flags[] = { 0, WQ_WAIT_ADD, WQ_WAIT_RUN };
	int last = own_queue ? WQ_END_NO_RUN : WQ_END_OF_QUEUE;
	struct pollfd p = { .events = POLLIN };
	char key[WQ_MAX_KEY];
	size_t len = some_key(key);
	int ret;

	if (below(2)) {
		ret = may_wait("flush", wq_wait_key(q, key, len, below(4) ? some_time(20 * MS) : 0));
		if (ret > last)
			bad("flush of a queue that is in use");
		return;
	}
	p.fd = may_wait("wait fd", wq_wait_fd(q, key, len,
					      flags[below(3)] | below(2) * WQ_WAIT_OWN, 0));
	if (p.fd < 0)
		return;
	note(&all->waits);
	if (may("poll of a wait", poll(&p, 1, below(10))) > 0) {
		ret = wq_wait(p.fd, 0);
		if (ret < 0 || ret > last)
			bad("a wait that has ended");
	} else {
		may("wait", wq_wait(p.fd, some_time(5 * MS)));
	}
	close(p.fd);
}

/* A process that is killed leaves the key disabled, until another process enables it. */
static void disable(int q)
{
	char key[WQ_MAX_KEY];
	size_t len = some_key(key);

	if (!own_queue) {
		if (wq_disable(q, key, len, 0) >= 0 || errno != EPERM)
			bad("disable of a key of a kernel module's queue");
		return;
	}
	may_wait("disable", wq_disable(q, key, len, below(2) ? some_time(5 * MS) : 0));
	if (below(2))
		may("add to a disabled key", wq_add(q, key, len));
	may("enable", wq_enable(q, key, len));
	note(&all->disables);
}

/* A source ends by its detach, or with the file. */
static void watch(int q)
{
	struct wq_fs_args args = { .fd = dir, .flags = below(2) * WQ_FS_CHILDREN };
	struct wq_source_op seen = { .id = 0 }, op = {
		.kind = "fs", .prefix = "u", .flags = WQ_SOURCE_WITH_FILE | below(2) * WQ_SOURCE_SCAN,
		.delay = below(2) * some_time(5 * MS), .arg = (uintptr_t)&args,
		.arg_size = sizeof(args),
	};
	char text[WQ_MAX_SOURCE_TEXT], name[8];
	unsigned int n;
	int fd;

	if (wq_attach(q, &op)) {
		if (errno != EUSERS)
			may("attach", -1);
		return;
	}
	note(&all->sources);
	for (n = below(20); n; n--) {
		snprintf(name, sizeof(name), "%u", below(FILES));
		fd = below(3) ? openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
		if (fd >= 0)
			close(fd);
		else
			unlinkat(dir, name, 0);
	}
	while (!wq_source_next(q, &seen, text, sizeof(text)))
		;
	may("list of sources", -1);
	if (below(2))
		may("detach", wq_detach(q, op.id));
}

/* The result of a call that a user's quota can refuse, also beside a queue's own limits. */
static int may_charge(const char *what, int ret)
{
	if (ret >= 0 || (errno != EUSERS && errno != EDQUOT))
		return may(what, ret);
	note(&all->calls);
	note(&all->over);
	return -1;
}

/* The queue gets another owner, also one whose quota is used up. */
static void give(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), WQ_DIRECTORY "/%s", name);
	if (!may_charge("chown", chown(path, users[below(USERS)], -1)))
		note(&all->given);
}

/* Sources of a network namespace that nobody else has, and that ends when the process leaves it. */
static void watch_network(int q)
{
	struct wq_net_args args = { .tables = 0 };
	int sock, n;

	if (unshare(CLONE_NEWNET)) {
		/* EINVAL: the kernel has no networks */
		if (errno != EINVAL)
			may_charge("unshare", -1);
		return;
	}
	note(&all->networks);
	for (n = 1 + below(20); n; n--) {
		struct wq_source_op op = {
			.kind = "net", .prefix = "u", .flags = below(2) * WQ_SOURCE_SCAN,
			.arg = (uintptr_t)&args, .arg_size = sizeof(args),
		};

		if (!may_charge("attach to a network", wq_attach(q, &op)))
			note(&all->sources);
	}
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock >= 0) {
		struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };

		ioctl(sock, SIOCSIFFLAGS, &lo);
		close(sock);
	}
}

/* Sources of a queue that end with it: of files, and of the set that the queue is in. */
static void watch_more(int q, int set)
{
	struct wq_fs_args args = { .flags = WQ_FS_CHILDREN };
	int n;

	for (n = below(30); n; n--) {
		struct wq_source_op op = {
			.kind = "fs", .prefix = "u/", .arg = (uintptr_t)&args, .arg_size = sizeof(args),
		};

		args.fd = below(2) ? dir : set;
		if (!may_charge("attach", wq_attach(q, &op)))
			note(&all->sources);
	}
}

/* How many keys a queue that nobody else has open takes.  Keys of sources begin with "u/". */
static unsigned int add_some(int q)
{
	unsigned int n, added = 0;
	char key[16];
	int len;

	for (n = below(300); n; n--) {
		len = snprintf(key, sizeof(key), "u%u", n);
		added += may("add to a set", wq_add_after(q, key, len, below(2) * some_time(MS), 0)) >= 0;
	}
	return added;
}

static unsigned int get_all(int q)
{
	/* no delay is longer than the time that a get waits, also if signals come */
	int64_t until = wq_until(100 * MS);
	struct wq_item it;
	unsigned int n = 0;

	for (;;) {
		if (!wq_get(q, &it, until)) {
			n += it.len > 1 && it.key[1] != '/';
			may("done", wq_done(q, &it));
			until = wq_until(100 * MS);
		} else if (errno != EINTR && errno != ENOMEM) {
			return n;
		}
	}
}

/*
 * A set of names that only this process has: its queues end when it is unmounted, or with the
 * process, whose mounts are its own.  A file that is open keeps its queue and the keys.
 */
static void use_set(void)
{
	char path[sizeof(set_path) + 8];
	unsigned int i, added = 0, found;
	int set, q = -1;

	queue = "of a set";
	if (may("mount", mount("wqueue", set_path, "wqueue", 0, "newinstance")))
		return;
	note(&all->sets);
	set = open(set_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (i = 1 + below(8); i; i--) {
		if (q >= 0)
			close(q);
		snprintf(path, sizeof(path), "%s/%u", set_path, i);
		q = wq_open(path, O_RDWR | O_CREAT, 0600, 0);
		if (q < 0) {
			may_charge("open in a set", -1);
			continue;
		}
		watch_more(q, set);
		added = add_some(q);
		if (below(2))
			may_charge("chown in a set", chown(path, users[below(USERS)], -1));
	}
	close(set);
	/* The file of the last one keeps the set, with the keys that nobody has taken. */
	if (q >= 0 && below(2)) {
		if (!umount2(set_path, 0) || errno != EBUSY)
			bad("umount of a set in use");
		if (umount2(set_path, MNT_DETACH))
			bad("lazy umount");
		found = get_all(q);
		if (found != added) {
			fprintf(stderr, "torture_user: %u keys of %u\n", found, added);
			bad("keys of a set that was unmounted");
		}
		close(q);
		return;
	}
	if (q >= 0)
		close(q);
	if (umount2(set_path, below(2) ? MNT_DETACH : 0))
		bad("umount");
}

/* A queue of the processes: opened, or made with random attributes.  NULL: a private one. */
static int open_own(const char *name)
{
	static const uint32_t orders[] = {
		WQ_ORDER_FIFO, WQ_ORDER_PRIORITY, WQ_ORDER_PREFIX, WQ_ORDER_DELIMITER,
	};
	uint32_t order = orders[below(4)];
	struct wq_attrs config;
	struct wq_attrs attr;

	some_config(&config);
	attr = (struct wq_attrs){
		.max_keys = below(2) ? config.max_keys : 0,
		.num_limiters = config.num_limiters,
		.limiters = config.limiters,
		.lease = config.lease, .slack = config.slack,
		.max_retries = below(2) ? config.max_retries : 0,
		.max_defer = config.max_defer,
		.max_processing = config.max_processing,
		.start_rate = config.start_rate,
		.start_burst = below(2) ? config.start_burst : 0,
		.group_start_rate = order == WQ_ORDER_PREFIX || order == WQ_ORDER_DELIMITER ?
				    config.group_start_rate : 0,
		.flags = name && below(4) ? WQ_OPEN_ACCEPT : 0,
		.order = order,
	};
	if (order == WQ_ORDER_PREFIX)
		attr.order_arg = 1 + below(8);
	else if (order == WQ_ORDER_DELIMITER)
		attr.order_arg = 'A' + below(8);
	if (attr.order_arg)
		attr.group_limit = config.group_limit;
	if (attr.order_arg && below(2))
		attr.group_ageing = 1 + below(4);
	return wq_open_attr(name, O_RDWR | O_CREAT, 0600, &attr);
}

/* Waits in poll for a file that another process thread binds while it waits. */
static void poll_unbound(const char *name)
{
	struct wq_attrs args = { .size = sizeof(args) };
	struct pollfd p = { .fd = open(WQ_DEVICE, O_RDWR | O_CLOEXEC), .events = POLLIN | POLLOUT };
	pid_t pid;

	if (p.fd < 0)
		return;
	pid = fork();
	if (!pid) {
		usleep(some_time(5 * MS) / US);
		strncpy(args.name, name, WQ_NAME_MAX - 1);
		_exit(ioctl(p.fd, WQ_IOC_OPEN, &args) != 0);
	}
	may("poll before bind", poll(&p, 1, below(20)));
	close(p.fd);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Calls on a queue that may or may not exist. */
static void use(unsigned int queues)
{
	int q, writer, own = !below(3), private = own && !below(4), n;
	char name[32];

	any_key = own || below(2);
	own_queue = own;
	snprintf(name, sizeof(name), "torture-%s-%u", own ? "own" : any_key ? "rw" : "w",
		 below(queues));
	queue = name;
	if (!below(16))
		poll_unbound(name);
	if (!below(16)) {
		use_set();
		queue = name;
	}
	writer = !any_key || (!own && !below(4));
	/* A worker that waits for ever in a private queue is killed at some time. */
	q = own ? open_own(private ? NULL : name) : wq_open(name, writer ? O_WRONLY : O_RDWR, 0, 0);
	note(&all->calls);
	if (q < 0 && own && errno == EEXIST)
		return;
	/* It was given to another user, the set is closed, or root's quota is used up. */
	if (q < 0 && limited && (errno == EACCES || errno == ENOSPC))
		return;
	if (q < 0) {
		if (errno != ENOENT && errno != ENOMEM && errno != EINTR)
			bad("open");
		usleep(200);
		return;
	}
	note(&all->opened);
	for (n = below(200); n; n--) {
		switch (below(10)) {
		case 0: case 1: case 2: case 3:
			add(q);
			break;
		case 4: case 5: case 6: case 7:
			if (!writer)
				get(q);
			break;
		case 8:
			if (!writer)
				look(q);
			break;
		default:
			if (!private && !below(8))
				configure(q);
			if (!below(20))
				pause_some(q);
			if (!below(2))
				flush(q);
			if (!below(4))
				disable(q);
			if (!below(8))
				watch(q);
			if (own && !below(40))
				watch_network(q);
			if (!private && !below(4))
				give(name);
			if (!below(4))
				may("kick", wq_kick_many(q, below(4) ? 1 + below(4) : UINT32_MAX));
			if (!below(300))
				may("shut down", wq_shutdown(q));
			else if (!below(300))
				may("drain", wq_drain(q, below(2) ? some_time(100 * MS) : WQ_FOREVER));
			else if (own && !private && !below(100))
				may("unlink", wq_unlink(name));
		}
	}
	close(q);
}

/* Root without the capabilities that exceed quotas, and modes of files. */
static void capabilities_drop(void)
{
	const __u32 drop = 1U << CAP_SYS_RESOURCE | 1U << CAP_DAC_OVERRIDE |
			   1U << CAP_DAC_READ_SEARCH;
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, data))
		bad("capget");
	data[0].effective &= ~drop;
	data[0].permitted &= ~drop;
	if (syscall(SYS_capset, &head, data))
		bad("capset");
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void worker(unsigned int seed, unsigned int queues)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, 7000 }, { 0, 7000 } };

	rnd = seed;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
		queue = "all";
		bad("a mount namespace");
		_exit(1);
	}
	limited = below(2);
	if (limited)
		capabilities_drop();
	if (below(2)) {
		sigaction(SIGALRM, &act, NULL);
		setitimer(ITIMER_REAL, &every, NULL);
	}
	for (;;)
		use(queues);
}

/*
 * Write to drop_caches: 2 shrinks all of the kernel's caches, buffers of open files among them, and 4
 * ends its lines in the kernel's log.
 */
static void drop_caches(const char *what)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	if ((fd < 0 || write(fd, what, 1) != 1) && errno != ENOMEM) {
		queue = "all";
		bad("drop_caches");
	}
	if (fd >= 0)
		close(fd);
}

static pid_t begin(unsigned int queues)
{
	unsigned int seed = below(1 << 24) + getpid();
	pid_t pid = fork();

	if (!pid)
		worker(seed, queues);
	return pid;
}

/* The charges of each user. */
static void charges(int dev, struct wq_info info[USERS])
{
	unsigned int i;

	for (i = 0; i < USERS; i++) {
		info[i] = (struct wq_info){ .size = sizeof(info[i]) };
		if (seteuid(users[i]) || ioctl(dev, WQ_IOC_INFO, &info[i]))
			bad("info");
		if (seteuid(0))
			bad("seteuid");
	}
}

static bool is_charged_as(const struct wq_info *a, const struct wq_info *b)
{
	return a->charged_queues == b->charged_queues && a->charged_keys == b->charged_keys &&
	       a->charged_waits == b->charged_waits && a->charged_bytes == b->charged_bytes &&
	       a->charged_sources == b->charged_sources;
}

/* All queues of the processes have ended.  Bytes and sources may end a little later. */
static void check_charges(int dev, const struct wq_info before[USERS])
{
	time_t late = time(NULL) + 20;
	struct wq_info now[USERS];
	unsigned int i;

	for (i = 0; i < USERS; i++) {
		charges(dev, now);
		while (!is_charged_as(&before[i], &now[i]) && time(NULL) < late) {
			usleep(10000);
			charges(dev, now);
		}
		if (is_charged_as(&before[i], &now[i]))
			continue;
		note(&all->failed);
		fprintf(stderr, "torture_user: user %u is charged %u queues, %llu keys, %u waits, %u sources, %llu bytes at the end, and was %u, %llu, %u, %u, %llu\n",
			users[i], now[i].charged_queues, now[i].charged_keys, now[i].charged_waits,
			now[i].charged_sources, now[i].charged_bytes, before[i].charged_queues,
			before[i].charged_keys, before[i].charged_waits, before[i].charged_sources,
			before[i].charged_bytes);
	}
}

/*
 * A private queue of each user, so that the kernel remembers the user until the end.  That of FULL
 * takes all keys of the quota.
 */
static void queues_of_users(int q[USERS], const struct wq_info *limits)
{
	unsigned int i;

	for (i = 0; i < USERS; i++) {
		struct wq_attrs args = {
			.size = sizeof(args), .max_keys = users[i] == FULL ? limits->user_keys : 1,
		};

		q[i] = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);
		if (seteuid(users[i]) || ioctl(q[i], WQ_IOC_OPEN, &args))
			bad("a queue of a user");
		if (seteuid(0))
			bad("seteuid");
	}
}

static void closed_write(const char *value)
{
	int fd = open(CLOSED, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, 1) != 1)
		bad(CLOSED);
	if (fd >= 0)
		close(fd);
}

/* 0 or an errno: a user makes a queue in the default set. */
static int create_as(uid_t uid)
{
	int fd, ret = 0;

	if (seteuid(uid))
		bad("seteuid");
	fd = open(WQ_DIRECTORY "/torture-closed", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		ret = errno;
	if (seteuid(0))
		bad("seteuid");
	if (fd >= 0) {
		close(fd);
		wq_unlink("torture-closed");
	}
	return ret;
}

/* Processes without capabilities make no queues meanwhile. */
static void close_set(void)
{
	int ret;

	queue = "torture-closed";
	closed_write("Y");
	ret = create_as(ALICE);
	if (ret != EACCES && ret != ENOMEM) {
		errno = ret;
		bad("create in a closed set");
	}
	usleep(some_time(20 * MS) / US);
	closed_write("N");
	ret = create_as(ALICE);
	if (ret && ret != ENOMEM) {
		errno = ret;
		bad("create in a set that is open again");
	}
	note(&all->closed);
}

int main(int argc, char **argv)
{
	unsigned int seconds, processes, queues, i;
	char path[] = "/tmp/torture-XXXXXX", name[32];
	pid_t pids[MAX_PROCESSES];
	struct wq_info before[USERS];
	int dev, kept[USERS];
	time_t end;

	if (argc < 2 || argc > 4) {
		fprintf(stderr, "usage: torture_user SECONDS [PROCESSES [QUEUES]]\n");
		return 2;
	}
	seconds = atoi(argv[1]);
	processes = argc > 2 ? atoi(argv[2]) : 4;
	queues = argc > 3 ? atoi(argv[3]) : 3;
	if (!processes || processes > MAX_PROCESSES || !queues) {
		fprintf(stderr, "torture_user: 1 to %d processes, and a queue at least\n",
			MAX_PROCESSES);
		return 2;
	}
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED) {
		perror("torture_user: mmap");
		return 1;
	}
	dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (dir < 0) {
		perror("torture_user: a directory in /tmp");
		return 1;
	}
	snprintf(set_path, sizeof(set_path), "%s-set", path);
	if (mkdir(set_path, 0700)) {
		perror("torture_user: a directory in /tmp");
		return 1;
	}
	rnd = time(NULL);
	drop_caches("4");
	queue = "all";
	dev = open(WQ_DEVICE, O_RDWR | O_CLOEXEC);
	charges(dev, before);
	queues_of_users(kept, &before[0]);
	charges(dev, before);
	for (i = 0; i < processes; i++)
		pids[i] = begin(queues);

	end = time(NULL) + seconds;
	while (time(NULL) < end) {
		usleep(some_time(50 * MS) / US);
		if (!below(10))
			drop_caches("2");
		if (!below(10))
			close_set();
		i = below(processes);
		if (pids[i] < 0) {
			pids[i] = begin(queues);	/* fork() failed without memory */
		} else if (!below(4)) {
			/* A stopped process keeps its keys until their leases, if any, expire. */
			note(&all->stopped);
			kill(pids[i], SIGSTOP);
			usleep(some_time(100 * MS) / US);
			kill(pids[i], SIGCONT);
		} else {
			note(&all->killed);
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
			pids[i] = begin(queues);
		}
	}
	for (i = 0; i < processes; i++) {
		if (pids[i] < 0)
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	for (i = 0; i < queues; i++) {
		snprintf(name, sizeof(name), "torture-own-%u", i);
		wq_unlink(name);
	}
	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		unlinkat(dir, name, 0);
	}
	rmdir(path);
	rmdir(set_path);
	queue = "all";
	check_charges(dev, before);
	printf("processes: %lu calls, %lu failures, %lu files, gets %lu, given back twice %lu, dones %lu, attributes set %lu, adds by a map %lu, descriptors of waits %lu, disables %lu, sources %lu, given to a user %lu, over a quota %lu, sets mounted %lu, networks %lu, closed %lu, killed %lu, stopped %lu, interrupted %lu\n",
	       all->calls, all->failed, all->opened, all->gets, all->again, all->dones, all->set, all->mapped,
	       all->waits, all->disables, all->sources, all->given, all->over, all->sets,
	       all->networks, all->closed, all->killed, all->stopped, all->interrupted);
	return all->failed ? 1 : 0;
}
