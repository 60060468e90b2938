// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin of QEMU (TCG) that counts between the marks of bench_marks.h, separately for each tag
 * and each address of code:
 *
 *   insns  instructions
 *   lines  accesses to cache lines that have to come from another CPU: loads of a line that
 *          another CPU stored to last, and stores to a line that another CPU has.  The model is
 *          MESI with caches of any size.  It knows the accesses between marks alone, so
 *          interrupts and the scheduler do not change the result.
 *
 * At its end QEMU writes the file "out" with lines "KIND TAG ADDRESS COUNT".  The kind "times"
 * counts the marks that begin a tag; its address is 0.
 *
 * Arguments: out=FILE, and lines=on for the cache lines, which take more time.  All CPUs have to
 * run in one thread of QEMU, as tools/vm/vm run --plugin does it.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_marks.h"
#include "qemu_plugin.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int qemu_plugin_version = 1;

/* --- Places in the code, and their counters ------------------------------------------ */

#define TAGS		32
#define CPUS		32
#define PLACE_BITS	18
#define LINE_BITS	22
#define LINE_SHIFT	6	/* cache lines of 64 bytes */

/* Counts between the marks of a tag, of an instruction, or of a block that starts there. */
struct place {
	uint64_t addr;
	int tag;		/* plus 1; 0: unused */
	uint64_t insns;		/* that ran */
	uint64_t lines;		/* from another CPU */
};

/* A mark in the code. */
struct mark {
	bool begin;
	int tag;		/* its place in tags */
};

/* The state of a line. */
struct line {
	uint64_t number;	/* address >> LINE_SHIFT; 0: unused */
	uint32_t sharers;	/* a bit for each CPU that has it */
	bool modified;		/* its only sharer stored to it */
};

static struct place places[1 << PLACE_BITS];
static struct line *lines;	/* NULL: not counted */
static struct mark marks[2][TAGS];
static uint32_t tags[TAGS];
static uint64_t times[TAGS];
static int counting[CPUS];	/* the tag between whose marks the CPU is, plus 1; 0: none */
static const char *out = "plugin.out";

static void die(const char *why)
{
	fprintf(stderr, "plugin: %s\n", why);
	abort();
}

static uint64_t mix(uint64_t x, int bits)
{
	return x * 0x9e3779b97f4a7c15ULL >> (64 - bits);
}

static struct place *place_of(uint64_t addr, int tag)
{
	uint64_t h = mix(addr + tag, PLACE_BITS), tries = 0;
	struct place *p;

	for (;; h = (h + 1) & ((1 << PLACE_BITS) - 1)) {
		p = &places[h];
		if (!p->tag || (p->addr == addr && p->tag == tag))
			break;
		if (++tries == 1 << PLACE_BITS)
			die("more code than the table has room for");
	}
	p->addr = addr;
	p->tag = tag;
	return p;
}

static int tag_of(uint32_t tag)
{
	for (int i = 0; i < TAGS; i++) {
		if (!tags[i])
			tags[i] = tag;
		if (tags[i] == tag)
			return i;
	}
	die("more tags than the table has room for");
	return 0;
}

/* The mark that this instruction is, or NULL. */
static struct mark *mark_of(const struct qemu_plugin_insn *insn)
{
	static const struct {
		const char *bytes;
		size_t size;
		bool begin;
	} kinds[] = {
		{ BENCH_BEGIN, sizeof(BENCH_BEGIN) - 1, true },
		{ BENCH_END, sizeof(BENCH_END) - 1, false },
	};
	const char *data = qemu_plugin_insn_data(insn);
	uint32_t tag;
	int i;

	for (size_t kind = 0; kind < 2; kind++) {
		size_t size = kinds[kind].size;

		if (qemu_plugin_insn_size(insn) != size + sizeof(tag) ||
		    memcmp(data, kinds[kind].bytes, size))
			continue;
		memcpy(&tag, data + size, sizeof(tag));
		if (!tag)
			continue;
		i = tag_of(tag);
		marks[kind][i] = (struct mark){ .begin = kinds[kind].begin, .tag = i };
		return &marks[kind][i];
	}
	return NULL;
}

/*
 * Whether the instruction is atomic: with a lock prefix, or an xchg.  QEMU reports a load and a
 * store, but a CPU takes the line over once.
 */
static bool is_atomic(const struct qemu_plugin_insn *insn)
{
	const unsigned char *data = qemu_plugin_insn_data(insn);
	size_t size = qemu_plugin_insn_size(insn), i = 0;

	/* Prefixes: segments, sizes of operands and addresses, REX. */
	while (i < size && ((data[i] & 0xe7) == 0x26 || (data[i] & 0xfc) == 0x64 ||
			    (data[i] & 0xf0) == 0x40))
		i++;
	return i < size && (data[i] == 0xf0 || (data[i] & 0xfe) == 0x86);
}

/* --- What the guest does ------------------------------------------------------------- */

static void mark_ran(unsigned int cpu, void *data)
{
	const struct mark *m = data;

	if (cpu >= CPUS)
		die("too many CPUs");
	counting[cpu] = m->begin ? m->tag + 1 : 0;
	times[m->tag] += m->begin;
}

/*
 * The argument of a callback: an address, and either a number of instructions, or whether the
 * instruction is atomic.  Most code never runs between marks, so a place is made when it does.
 */
#define ADDR_BITS	48

static void *pack(uint64_t addr, uint64_t more)
{
	return (void *)(more << ADDR_BITS | (addr & ((1ULL << ADDR_BITS) - 1)));
}

static uint64_t more_in(void *data)
{
	return (uint64_t)data >> ADDR_BITS;
}

static uint64_t addr_in(void *data)
{
	/* The bits above are copies of the highest one, as in the kernel's addresses. */
	return (int64_t)((uint64_t)data << (64 - ADDR_BITS)) >> (64 - ADDR_BITS);
}

static void code_ran(unsigned int cpu, void *data)
{
	if (counting[cpu])
		place_of(addr_in(data), counting[cpu])->insns += more_in(data);
}

static struct line *line_of(uint64_t number)
{
	uint64_t h = mix(number, LINE_BITS), tries = 0;

	for (; lines[h].number && lines[h].number != number; h = (h + 1) & ((1 << LINE_BITS) - 1))
		if (++tries == 1 << LINE_BITS)
			die("more lines than the table has room for");
	lines[h].number = number;
	return &lines[h];
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t addr, void *data)
{
	uint32_t me = 1u << cpu;
	struct line *l;
	bool taken;

	if (!counting[cpu])
		return;
	l = line_of(addr >> LINE_SHIFT);
	if (qemu_plugin_mem_is_store(info) || more_in(data)) {
		taken = l->sharers & ~me;
		l->sharers = me;
		l->modified = true;
	} else {
		taken = l->modified && !(l->sharers & me);
		if (taken)
			l->modified = false;
		l->sharers |= me;
	}
	if (taken)
		place_of(addr_in(data), counting[cpu])->lines++;
}

/*
 * A block is counted as a whole at its start.  A block with a mark in it is counted by the
 * instruction, as the mark changes what the rest of the block counts for.
 */
static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i;
	struct qemu_plugin_insn *insn;
	struct mark *mark;
	bool marked = false;

	(void)id;
	for (i = 0; i < n; i++)
		marked |= !!mark_of(qemu_plugin_tb_get_insn(tb, i));
	if (!marked && n) {
		insn = qemu_plugin_tb_get_insn(tb, 0);
		qemu_plugin_register_vcpu_tb_exec_cb(tb, code_ran, QEMU_PLUGIN_CB_NO_REGS,
						     pack(qemu_plugin_insn_vaddr(insn), n));
	}
	for (i = 0; i < n && (marked || lines); i++) {
		uint64_t addr;

		insn = qemu_plugin_tb_get_insn(tb, i);
		addr = qemu_plugin_insn_vaddr(insn);
		mark = mark_of(insn);
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark_ran,
							       QEMU_PLUGIN_CB_NO_REGS, mark);
		else if (marked)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, code_ran,
							       QEMU_PLUGIN_CB_NO_REGS,
							       pack(addr, 1));
		if (lines)
			qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW,
							 pack(addr, is_atomic(insn)));
	}
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
	FILE *f = fopen(out, "w");
	size_t i;
	int tag;

	(void)id;
	(void)data;
	if (!f) {
		perror(out);
		return;
	}
	for (tag = 0; tag < TAGS && tags[tag]; tag++)
		fprintf(f, "times %.4s 0 %" PRIu64 "\n", (const char *)&tags[tag], times[tag]);
	for (i = 0; i < 1 << PLACE_BITS; i++) {
		const struct place *p = &places[i];
		const char *name = p->tag ? (const char *)&tags[p->tag - 1] : "";

		if (p->insns)
			fprintf(f, "insns %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
				p->insns);
		if (p->lines)
			fprintf(f, "lines %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
				p->lines);
	}
	if (fclose(f))
		perror(out);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4)) {
			out = strdup(argv[i] + 4);
		} else if (!strcmp(argv[i], "lines=on")) {
			lines = calloc(1 << LINE_BITS, sizeof(*lines));
		} else {
			fprintf(stderr, "plugin: unknown argument %s\n", argv[i]);
			return -1;
		}
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
