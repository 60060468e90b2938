// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources of kind "bpf": BPF programs that add keys, see struct wq_bpf_args.
 *
 * The programs are written as instructions here, so that no compiler for them is needed.  SOURCES in
 * the environment is the directory of wq_bpf.ko.  Without it the tests are skipped.
 */
#define _GNU_SOURCE
#include "wq_sources.h"
#include "wq_test.h"
#include "wq_users.h"

#include <sched.h>
#include <sys/mman.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>

#define CHANNEL	7
#define BATCH	40	/* more than the ring of a CPU has */

/*
 * It is called with interrupts disabled, and by few: the emulator has hung when code was patched that
 * another CPU ran, as that of the scheduler.
 */
#define WITHOUT_INTERRUPTS	"set_cpus_allowed_common"

struct program {
	struct bpf_insn insns[2048];
	int n;
};

static void insn(struct program *p, __u8 code, __u8 dst, __u8 src, __s16 off, __s32 imm)
{
	p->insns[p->n++] = (struct bpf_insn){ code, dst, src, off, imm };
}

/* Put a key on the stack; returns where. */
static int put_key(struct program *p, const char *key, int len)
{
	int size = len ?: 1;	/* the stack has no empty part */

	for (int i = 0; i < size; i++)
		insn(p, BPF_ST | BPF_MEM | BPF_B, BPF_REG_10, 0, i - size, key[i]);
	return -size;
}

/* The types of the kernel and of wq_bpf; a call of a function of wq_bpf needs the latter open. */
static struct btf *kernel_types, *module_types;
static int fds[2];

FIXTURE(bpf) {
	int q;
};

static int q_of(void)
{
	return q_private(1000);
}

FIXTURE_SETUP(bpf)
{
	struct bpf_btf_info info;
	__u32 id = 0, size;
	char name[64];

	if (!getenv("SOURCES"))
		SKIP(return, "SOURCES is not set: the directory of wq_bpf.ko");
	ASSERT_EQ(0, source_in("wq_bpf"));
	kernel_types = btf__load_vmlinux_btf();
	ASSERT_NE(NULL, kernel_types);
	module_types = btf__load_module_btf("wq_bpf", kernel_types);
	ASSERT_NE(NULL, module_types);
	while (!bpf_btf_get_next_id(id, &id)) {
		int fd = bpf_btf_get_fd_by_id(id);

		memset(&info, 0, sizeof(info));
		info.name = addr_of(name);
		info.name_len = sizeof(name);
		size = sizeof(info);
		ASSERT_EQ(0, bpf_obj_get_info_by_fd(fd, &info, &size));
		if (strcmp(name, "wq_bpf"))
			close(fd);
		else
			fds[1] = fd;
	}
	ASSERT_LT(0, fds[1]);
	self->q = q_of();
	ASSERT_LE(0, self->q);
}

FIXTURE_TEARDOWN(bpf)
{
	if (!getenv("SOURCES"))
		return;
	close(self->q);
	close(fds[1]);
	btf__free(module_types);
	btf__free(kernel_types);
	EXPECT_TRUE(module_leaves("wq_bpf"));
}

static int attach_channel(int q, __u32 channel, const char *prefix)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_bpf_args args = { .channel = channel };

	strcpy(op.prefix, prefix);
	return attach_op(q, &op, "bpf", &args, sizeof(args));
}

/* Call wq_bpf_add(), or wq_bpf_add_priority() if it has a level or a delay. */
static void call(struct program *p, __u32 channel, const char *key, int len, int priority, int delay)
{
	const char *name = priority || delay ? "wq_bpf_add_priority" : "wq_bpf_add";
	int at = put_key(p, key, len);

	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, channel);
	insn(p, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0);
	insn(p, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, at);
	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, len);
	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_4, 0, 0, priority);
	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_5, 0, 0, delay);
	insn(p, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 1,
	     btf__find_by_name_kind(module_types, name, BTF_KIND_FUNC));
}

/* Load a program.  If it is of type tracing, it runs ahead of the function @to. */
static int load(struct program *p, enum bpf_prog_type type, const char *to)
{
	static char log[65536];
	struct bpf_prog_load_opts opts = {
		.sz = sizeof(opts), .fd_array = fds, .log_buf = log, .log_size = sizeof(log),
	};
	int fd;

	if (type == BPF_PROG_TYPE_SYSCALL)
		opts.prog_flags = BPF_F_SLEEPABLE;
	if (to) {
		opts.expected_attach_type = BPF_TRACE_FENTRY;
		opts.attach_btf_id = btf__find_by_name_kind(kernel_types, to, BTF_KIND_FUNC);
		insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
	}
	insn(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	log[0] = '\0';
	fd = bpf_prog_load(type, "wq_test", "GPL", p->insns, p->n, &opts);
	if (fd < 0)
		COMMENT("the program was not loaded: %s\n%s\n", strerror(errno), log);
	return fd;
}

/* Run a program; its result. */
static int run(int fd, enum bpf_prog_type type)
{
	char packet[64] = "";
	struct bpf_test_run_opts opts = { .sz = sizeof(opts) };

	if (type != BPF_PROG_TYPE_SYSCALL) {
		opts.data_in = packet;
		opts.data_size_in = sizeof(packet);
	}
	if (bpf_prog_test_run_opts(fd, &opts))
		return -errno;
	return opts.retval;
}

/* A program that makes one call runs once; its result. */
static int call_once(enum bpf_prog_type type, __u32 channel, const char *key, int priority,
		     int delay)
{
	struct program p = { .n = 0 };
	int fd, ret;

	call(&p, channel, key, strlen(key), priority, delay);
	fd = load(&p, type, NULL);
	ret = fd < 0 ? -errno : run(fd, type);
	close(fd);
	return ret;
}

/* Attach a tracing program until the returned file is closed. */
static int trace(const char *to, const char * const keys[], int n)
{
	struct program p = { .n = 0 };
	int fd, link;

	for (int i = 0; i < n; i++)
		call(&p, CHANNEL, keys[i], strlen(keys[i]), 0, 0);
	fd = load(&p, BPF_PROG_TYPE_TRACING, to);
	if (fd < 0)
		return -1;
	link = bpf_raw_tracepoint_open(NULL, fd);
	close(fd);
	return link;
}

static void run_on(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* The kernel calls WITHOUT_INTERRUPTS. */
static void without_interrupts(void)
{
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	run_on(0);
	sched_setaffinity(0, sizeof(all), &all);
}

TEST_F(bpf, program_of_each_type_adds_a_key)
{
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "syscall", 0, 0));
	EXPECT_TRUE(next_is(self->q, "syscall"));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SCHED_CLS, CHANNEL, "tc", 0, 0));
	EXPECT_TRUE(next_is(self->q, "tc"));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_XDP, CHANNEL, "xdp", 0, 0));
	EXPECT_TRUE(next_is(self->q, "xdp"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(bpf, keys_begin_with_the_prefix_and_have_any_bytes)
{
	struct program p = { .n = 0 };
	struct item it;
	int fd;

	ASSERT_EQ(1, attach_channel(self->q, 0, "pid "));
	call(&p, 0, "a\0b", 3, 0, 0);
	fd = load(&p, BPF_PROG_TYPE_SYSCALL, NULL);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, run(fd, BPF_PROG_TYPE_SYSCALL));
	ASSERT_EQ(0, q_get(self->q, &it, 0));
	EXPECT_EQ(7, it.len);
	EXPECT_EQ(0, memcmp(it.key, "pid a\0b", 7));
	close(fd);
}

TEST_F(bpf, program_adds_with_a_level)
{
	struct wq_attrs levels = { .size = sizeof(levels), .order = WQ_ORDER_PRIORITY };
	int q = q_dev(O_RDWR);

	ASSERT_EQ(0, verb(q, WQ_IOC_OPEN, &levels));
	ASSERT_EQ(1, attach_channel(q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "low", -1, 0));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "high", 2, 0));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "middle", 0, 0));
	EXPECT_TRUE(next_is(q, "high"));
	EXPECT_TRUE(next_is(q, "middle"));
	EXPECT_TRUE(next_is(q, "low"));
	close(q);
	/* without levels it is refused, and the mark comes */
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "high", 2, 0));
	EXPECT_TRUE(next_is(self->q, "/"));
	EXPECT_TRUE(none_is_left(self->q));
}

TEST_F(bpf, program_adds_with_a_delay)
{
	struct wq_stat st;

	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "later", 0, SEC));
	st = q_stat(self->q);
	EXPECT_EQ(1, st.delayed);
	EXPECT_EQ(0, st.ready);
	EXPECT_TRUE(next_is(self->q, "later"));
}

TEST_F(bpf, program_with_interrupts_disabled_adds_a_key)
{
	static const char * const keys[] = { "affinity" };
	int link;

	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	link = trace(WITHOUT_INTERRUPTS, keys, 1);
	ASSERT_LE(0, link);
	without_interrupts();
	EXPECT_TRUE(next_is(self->q, "affinity"));
	EXPECT_TRUE(none_is_left(self->q));
	close(link);
}

TEST_F(bpf, program_in_NMI_adds_a_key)
{
	static const char * const keys[] = { "nmi" };
	int link;

	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	link = trace("nmi_cpu_backtrace_handler", keys, 1);
	ASSERT_LE(0, link);
	/* each other CPU shows its stack, and it does so in NMI */
	ASSERT_EQ(0, write_file("/proc/sysrq-trigger", "l"));
	EXPECT_TRUE(next_is(self->q, "nmi"));
	close(link);
}

TEST_F(bpf, more_keys_than_the_ring_has_leave_a_mark)
{
	static char text[BATCH][8];
	const char *keys[BATCH];
	struct item it;
	bool mark = false;
	int link;

	for (int i = 0; i < BATCH; i++) {
		snprintf(text[i], sizeof(text[i]), "k%d", i);
		keys[i] = text[i];
	}
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	link = trace(WITHOUT_INTERRUPTS, keys, BATCH);
	ASSERT_LE(0, link);
	without_interrupts();
	close(link);
	ASSERT_TRUE(EVENTUALLY(!(first(self->q).state & WQ_SOURCE_MARKED) && first(self->q).rescans));
	while (!q_get(self->q, &it, 0)) {
		mark |= !strcmp(it.key, "/");
		q_done(self->q, &it);
	}
	EXPECT_TRUE(mark);
}

/* Call wq_bpf_add() with 8 bytes of a map, which processes can write to. */
static void call_with_map(struct program *p, __u32 channel, int map)
{
	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, channel);
	insn(p, BPF_LD | BPF_DW | BPF_IMM, BPF_REG_2, BPF_PSEUDO_MAP_VALUE, 0, map);
	insn(p, 0, 0, 0, 0, 0);
	insn(p, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, 8);
	insn(p, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 1,
	     btf__find_by_name_kind(module_types, "wq_bpf_add", BTF_KIND_FUNC));
}

static bool all_differ(struct array *a)
{
	for (int i = 0; i < a->count; i++)
		for (int j = 0; j < i; j++)
			if (!memcmp(rec_at(a, i)->key, rec_at(a, j)->key, 8))
				return false;
	return true;
}

TEST_F(bpf, key_that_a_process_writes_to_meanwhile_is_held_once)
{
	struct bpf_map_create_opts opts = { .sz = sizeof(opts), .map_flags = BPF_F_MMAPABLE };
	int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "wq_test", 4, 8, 1, &opts), fd;
	struct array a = array_new(65536);
	struct program p = { .n = 0 };
	volatile __u64 *key;
	bool differ = true;
	pid_t pid;

	ASSERT_LE(0, map);
	key = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	ASSERT_NE(MAP_FAILED, key);
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	for (int i = 0; i < 32; i++)
		call_with_map(&p, CHANNEL, map);
	fd = load(&p, BPF_PROG_TYPE_SYSCALL, NULL);
	ASSERT_LE(0, fd);
	pid = child();
	run_on(pid ? 0 : 1);
	while (!pid) {
		*key = 1;
		*key = 2;
	}
	for (int i = 0; i < 1000 && differ; i++) {
		ASSERT_EQ(0, run(fd, BPF_PROG_TYPE_SYSCALL));
		ASSERT_EQ(0, q_get_array(self->q, &a, 0, 0));
		differ = all_differ(&a);
		ASSERT_EQ(0, q_done_array(self->q, &a));
	}
	EXPECT_TRUE(differ);
	kill(pid, SIGKILL);
	reap(pid);
	close(fd);
	close(map);
	free(a.recs);
}

/*
 * It is called for each add that fails.  So the key of the program would let it run again, for ever
 * and with interrupts disabled.
 */
TEST_F(bpf, program_that_runs_because_of_its_own_key_adds_no_other)
{
	static const char * const keys[] = { "k" };
	int q = q_private(1), link;

	ASSERT_EQ(1, attach_channel(q, CHANNEL, ""));
	ASSERT_EQ(1, q_add(q, "full"));
	link = trace("queue_delayed_work_on", keys, 1);
	ASSERT_LE(0, link);
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "j", 0, 0));
	sleep_ms(100);
	/* Others of the machine call it, too. */
	EXPECT_TRUE(within("failed", 2, 500, first(q).failed_adds));
	close(link);
	close(q);
}

TEST_F(bpf, key_that_is_too_long_leaves_a_mark)
{
	static char key[511];
	static const char * const keys[] = { key };
	int link;

	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, "prefix"));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, key, 0, 0));
	EXPECT_TRUE(next_is(self->q, "prefix/"));
	EXPECT_TRUE(none_is_left(self->q));
	/* and by the ring */
	link = trace(WITHOUT_INTERRUPTS, keys, 1);
	ASSERT_LE(0, link);
	without_interrupts();
	EXPECT_TRUE(next_is(self->q, "prefix/"));
	close(link);
}

TEST_F(bpf, full_queue_leaves_a_mark_that_is_added_when_there_is_room)
{
	int q = q_private(1);

	ASSERT_EQ(1, attach_channel(q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "one", 0, 0));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "two", 0, 0));
	EXPECT_EQ(WQ_SOURCE_MARKED, first(q).state);
	EXPECT_EQ(1, first(q).failed_adds);
	EXPECT_TRUE(next_is(q, "one"));
	EXPECT_TRUE(next_is(q, "/"));
	close(q);
}

TEST_F(bpf, program_gets_an_error_without_a_source_or_a_key)
{
	EXPECT_EQ(-ENOENT, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "k", 0, 0));
	EXPECT_EQ(-ENOENT, call_once(BPF_PROG_TYPE_SYSCALL, WQ_BPF_CHANNELS, "k", 0, 0));
	EXPECT_EQ(-ENOENT, call_once(BPF_PROG_TYPE_SYSCALL, -1, "k", 0, 0));
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	EXPECT_EQ(0, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "k", 0, 0));
	EXPECT_EQ(0, detach(self->q, 1));
	EXPECT_EQ(-ENOENT, call_once(BPF_PROG_TYPE_SYSCALL, CHANNEL, "k", 0, 0));
}

TEST_F(bpf, empty_key_is_refused)
{
	struct program p = { .n = 0 };
	int fd;

	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	call(&p, CHANNEL, "x", 0, 0, 0);
	fd = load(&p, BPF_PROG_TYPE_SYSCALL, NULL);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EINVAL, run(fd, BPF_PROG_TYPE_SYSCALL));
	close(fd);
}

TEST_F(bpf, attach_checks_its_arguments)
{
	struct wq_source_op op = op_of(WQ_SOURCE_ATTACH);
	struct wq_bpf_args args = { .flags = 1 };
	int other = q_of();

	EXPECT_EQ(-EINVAL, attach_op(self->q, &op, "bpf", &args, sizeof(args)));
	EXPECT_EQ(-EINVAL, attach_channel(self->q, WQ_BPF_CHANNELS, ""));
	EXPECT_LT(0, attach_channel(self->q, WQ_BPF_CHANNELS - 1, ""));
	EXPECT_EQ(-EBUSY, attach_channel(other, WQ_BPF_CHANNELS - 1, ""));
	close(other);
}

TEST_F(bpf, attach_needs_CAP_BPF)
{
	pid_t pid = child();

	if (!pid)
		_exit(setresuid(BOB, BOB, BOB) ||
		      attach_channel(self->q, CHANNEL, "") != -EPERM);
	ASSERT_EQ(0, reap(pid));
	EXPECT_LT(0, attach_channel(self->q, CHANNEL, ""));
}

TEST_F(bpf, program_and_source_keep_the_module)
{
	static const char * const keys[] = { "affinity" };
	int link = trace(WITHOUT_INTERRUPTS, keys, 1);

	ASSERT_LE(0, link);
	EXPECT_EQ(-EAGAIN, module_out("wq_bpf"));
	ASSERT_EQ(1, attach_channel(self->q, CHANNEL, ""));
	close(link);
	usleep(10000);
	EXPECT_EQ(-EAGAIN, module_out("wq_bpf"));
}

TEST_F(bpf, sources_come_and_go_under_a_program)
{
	static const char * const keys[] = { "one", "two", "three" };
	int link = trace(WITHOUT_INTERRUPTS, keys, 3), id, n = 0;
	time_t end = time(NULL) + 2;
	struct item it;
	pid_t pids[2];

	ASSERT_LE(0, link);
	for (int i = 0; i < 2; i++) {
		pids[i] = child();
		while (!pids[i])
			without_interrupts();
	}
	while (time(NULL) < end) {
		id = attach_channel(self->q, CHANNEL, "");
		ASSERT_LT(0, id);
		while (!q_get(self->q, &it, 10 * MS)) {
			n++;
			q_done(self->q, &it);
			if (n % 100 == 0)
				break;
		}
		ASSERT_EQ(0, detach(self->q, id));
	}
	for (int i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		reap(pids[i]);
	}
	close(link);
	EXPECT_LT(0, n);
}

TEST_HARNESS_MAIN
