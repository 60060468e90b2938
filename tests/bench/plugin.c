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
 *   warm   misses of an L1 instruction cache that keeps its contents between the marks.  Code
 *          outside of the marks uses it, too: the loop that measures, interrupts, the scheduler.
 *   cold   misses of an L1 instruction cache that is empty at each mark that begins a tag.  They
 *          are the cache lines of code that the operation runs through, unless it runs through
 *          more than the cache has room for.
 *   hold   the longest time, in instructions, for which a lock that a module took kept interrupts
 *          off.  Its address is 0.
 *
 * The instruction caches have 32 KiB, 8 ways and lines of 64 bytes.  They replace the least
 * recently used line of a set, and fetch no line ahead, so a real CPU misses less.  The set is a
 * part of the offset in the page, so virtual and physical addresses have the same one.
 *
 * At its end QEMU writes the file "out" with lines "KIND TAG ADDRESS COUNT".  The kind "times"
 * counts the marks that begin a tag; its address is 0.
 *
 * Arguments: out=FILE, lines=on for the cache lines, which take more time, icache=on for the
 * instruction caches, and holds=on for the holds of locks.  All CPUs have to run in one thread of
 * QEMU, as tools/vm/vm run --plugin does it.
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
	uint64_t warm;		/* misses of the instruction caches */
	uint64_t cold;
};

/* Instructions that run together: a block, or one instruction of a block that has a mark. */
struct code {
	uint64_t addr;
	uint64_t first, last;	/* cache lines */
	uint64_t insns;
};

/* A mark in the code, or with holds=on an instruction that changes whether interrupts are off. */
enum kind { BEGIN, END, OFF, ON, IRET, SYSRET, KINDS };

struct mark {
	enum kind kind;
	int tag;		/* its place in tags */
};

/* The state of a line. */
struct line {
	uint64_t number;	/* address >> LINE_SHIFT; 0: unused */
	uint32_t sharers;	/* a bit for each CPU that has it */
	bool modified;		/* its only sharer stored to it */
};

#define SETS		64
#define WAYS		8

/* An L1 instruction cache. */
struct icache {
	uint64_t line[SETS][WAYS];	/* the numbers of its lines, the last used first */
};

/* The two caches of one CPU. */
struct icaches {
	struct icache warm, cold;
};

static struct place places[1 << PLACE_BITS];
static struct line *lines;	/* NULL: not counted */
static struct icaches *icaches;	/* NULL: not counted */
static struct mark marks[KINDS][TAGS];
static uint32_t tags[TAGS];
static uint64_t times[TAGS];
static int counting[CPUS];	/* the tag between whose marks the CPU is, plus 1; 0: none */
static bool holds;
static uint64_t off[CPUS];	/* instructions since a module took a lock, plus 1; 0: none */
static uint64_t near[CPUS];	/* of the next ones, a cli is that of a lock that a module takes */
static uint64_t longest[TAGS];
static const char *out = "plugin.out";

/* Where Linux for x86-64 has modules, and the most instructions from a call there to the cli. */
#define MODULES		0xffffffffc0000000ULL
#define LOCK_INSNS	16

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
		bool whole;	/* the instruction has no tag */
	} kinds[KINDS] = {
		[BEGIN] = { BENCH_BEGIN, sizeof(BENCH_BEGIN) - 1, false },
		[END] = { BENCH_END, sizeof(BENCH_END) - 1, false },
		[OFF] = { "\xfa", 1, true },			/* cli */
		[ON] = { "\xfb", 1, true },			/* sti */
		[IRET] = { "\x48\xcf", 2, true },
		[SYSRET] = { "\x48\x0f\x07", 3, true },
	};
	const char *data = qemu_plugin_insn_data(insn);
	uint32_t tag;
	int i;

	for (size_t kind = 0; kind < KINDS; kind++) {
		size_t size = kinds[kind].size;

		if (kinds[kind].whole) {
			if (!holds || qemu_plugin_insn_size(insn) != size ||
			    memcmp(data, kinds[kind].bytes, size))
				continue;
			marks[kind][0].kind = kind;
			return &marks[kind][0];
		}
		if (qemu_plugin_insn_size(insn) != size + sizeof(tag) ||
		    memcmp(data, kinds[kind].bytes, size))
			continue;
		memcpy(&tag, data + size, sizeof(tag));
		if (!tag)
			continue;
		i = tag_of(tag);
		marks[kind][i] = (struct mark){ .kind = kind, .tag = i };
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

/* The end of an interrupt, and the way back to a process, turn interrupts on without a sti. */
static void interrupts(unsigned int cpu, enum kind kind)
{
	uint64_t *most = counting[cpu] ? &longest[counting[cpu] - 1] : NULL;

	if (kind == OFF) {
		if (!off[cpu] && near[cpu])
			off[cpu] = 1;
		return;
	}
	if (kind == ON && most && off[cpu] > *most)
		*most = off[cpu];
	off[cpu] = 0;
}

static void hold_code(unsigned int cpu, const struct code *code)
{
	if (off[cpu])
		off[cpu] += code->insns;
	if (code->addr >= MODULES)
		near[cpu] = LOCK_INSNS;
	else
		near[cpu] -= near[cpu] < code->insns ? near[cpu] : code->insns;
}

static void mark_ran(unsigned int cpu, void *data)
{
	const struct mark *m = data;

	if (cpu >= CPUS)
		die("too many CPUs");
	if (m->kind >= OFF) {
		interrupts(cpu, m->kind);
		return;
	}
	counting[cpu] = m->kind == BEGIN ? m->tag + 1 : 0;
	times[m->tag] += m->kind == BEGIN;
	if (icaches && m->kind == BEGIN)
		memset(&icaches[cpu].cold, 0, sizeof(icaches[cpu].cold));
}

/* Fetch a line, and return 1 if the cache did not have it. */
static int fetch(struct icache *cache, uint64_t line)
{
	uint64_t *way = cache->line[line % SETS];
	int i = 0, missed;

	while (i < WAYS && way[i] != line)
		i++;
	missed = i == WAYS;
	memmove(way + 1, way, (i - missed) * sizeof(*way));
	way[0] = line;
	return missed;
}

static void fetch_code(unsigned int cpu, const struct code *code)
{
	struct place *p = counting[cpu] ? place_of(code->addr, counting[cpu]) : NULL;
	uint64_t line;

	for (line = code->first; line <= code->last; line++) {
		int missed = fetch(&icaches[cpu].warm, line);

		if (p) {
			p->warm += missed;
			p->cold += fetch(&icaches[cpu].cold, line);
		}
	}
}

/* Most code never runs between marks, so a place is made when it does. */
static void code_ran(unsigned int cpu, void *data)
{
	const struct code *code = data;

	if (cpu >= CPUS)
		die("too many CPUs");
	if (icaches)
		fetch_code(cpu, code);
	if (holds)
		hold_code(cpu, code);
	if (counting[cpu])
		place_of(code->addr, counting[cpu])->insns += code->insns;
}

/* The argument of the callback of an access: the instruction, and whether it is atomic. */
#define ADDR_BITS	48

static void *pack(uint64_t addr, bool atomic)
{
	return (void *)((uint64_t)atomic << ADDR_BITS | (addr & ((1ULL << ADDR_BITS) - 1)));
}

static bool atomic_in(void *data)
{
	return (uint64_t)data >> ADDR_BITS;
}

static uint64_t addr_in(void *data)
{
	/* The bits above are copies of the highest one, as in the kernel's addresses. */
	return (int64_t)((uint64_t)data << (64 - ADDR_BITS)) >> (64 - ADDR_BITS);
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
	if (qemu_plugin_mem_is_store(info) || atomic_in(data)) {
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

/* The code from one instruction of a block to another one, never freed, as blocks are few. */
static struct code *code_of(const struct qemu_plugin_tb *tb, size_t from, size_t to)
{
	const struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, from);
	const struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, to);
	uint64_t end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
	struct code *code = malloc(sizeof(*code));

	if (!code)
		die("no memory");
	code->addr = qemu_plugin_insn_vaddr(first);
	code->first = code->addr >> LINE_SHIFT;
	code->last = (end - 1) >> LINE_SHIFT;
	code->insns = to - from + 1;
	return code;
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
	if (!marked && n)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, code_ran, QEMU_PLUGIN_CB_NO_REGS,
						     code_of(tb, 0, n - 1));
	for (i = 0; i < n && (marked || lines); i++) {
		insn = qemu_plugin_tb_get_insn(tb, i);
		mark = mark_of(insn);
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark_ran,
							       QEMU_PLUGIN_CB_NO_REGS, mark);
		else if (marked)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, code_ran,
							       QEMU_PLUGIN_CB_NO_REGS,
							       code_of(tb, i, i));
		if (lines)
			qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW,
							 pack(qemu_plugin_insn_vaddr(insn),
							      is_atomic(insn)));
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
	for (tag = 0; tag < TAGS && tags[tag]; tag++) {
		fprintf(f, "times %.4s 0 %" PRIu64 "\n", (const char *)&tags[tag], times[tag]);
		if (holds)
			fprintf(f, "hold %.4s 0 %" PRIu64 "\n", (const char *)&tags[tag],
				longest[tag]);
	}
	for (i = 0; i < 1 << PLACE_BITS; i++) {
		const struct place *p = &places[i];
		const char *name = p->tag ? (const char *)&tags[p->tag - 1] : "";

		if (p->insns)
			fprintf(f, "insns %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
				p->insns);
		if (p->lines)
			fprintf(f, "lines %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
				p->lines);
		if (p->warm)
			fprintf(f, "warm %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr, p->warm);
		if (p->cold)
			fprintf(f, "cold %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr, p->cold);
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
		} else if (!strcmp(argv[i], "icache=on")) {
			icaches = calloc(CPUS, sizeof(*icaches));
		} else if (!strcmp(argv[i], "holds=on")) {
			holds = true;
		} else {
			fprintf(stderr, "plugin: unknown argument %s\n", argv[i]);
			return -1;
		}
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, at_exit, NULL);
	return 0;
}
