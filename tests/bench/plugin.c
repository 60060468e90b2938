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
 * Arguments: out=FILE, and lines=on for the cache lines, which take more time.  Counters have no
 * lock: a figure is exact if two CPUs are never between marks at once.
 */
#include <inttypes.h>
#include <pthread.h>
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
#define PLACE_BITS	20
#define LINE_BITS	22
#define LINE_SHIFT	6	/* cache lines of 64 bytes */

struct count {
	uint64_t insns;		/* that ran */
	uint64_t lines;		/* from another CPU */
};

/* Code at an address: an instruction, or a block of some that run one after the other. */
struct place {
	uint64_t addr;
	unsigned int insns;
	bool used;
	struct count *count;	/* for each tag; NULL until the first */
};

/* A mark in the code. */
struct mark {
	bool begin;
	int tag;
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
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
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

static struct place *place_of(uint64_t addr, unsigned int insns)
{
	uint64_t h = mix(addr + insns, PLACE_BITS), tries = 0;
	struct place *p;

	for (;; h = (h + 1) & ((1 << PLACE_BITS) - 1)) {
		p = &places[h];
		if (!p->used || (p->addr == addr && p->insns == insns))
			break;
		if (++tries == 1 << PLACE_BITS)
			die("more code than the table has room for");
	}
	p->addr = addr;
	p->insns = insns;
	p->used = true;
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

/* --- What the guest does ------------------------------------------------------------- */

static void mark_ran(unsigned int cpu, void *data)
{
	const struct mark *m = data;

	if (cpu >= CPUS)
		die("too many CPUs");
	counting[cpu] = m->begin ? m->tag + 1 : 0;
	times[m->tag] += m->begin;
}

static struct count *count_of(struct place *p, unsigned int cpu)
{
	if (!p->count)
		p->count = calloc(TAGS, sizeof(*p->count));
	if (!p->count)
		die("no memory");
	return &p->count[counting[cpu] - 1];
}

static void place_ran(unsigned int cpu, void *data)
{
	struct place *p = data;

	if (counting[cpu])
		count_of(p, cpu)->insns += p->insns;
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
	struct place *p = data;
	struct line *l;
	bool taken;

	if (!counting[cpu])
		return;
	pthread_mutex_lock(&lines_lock);
	l = line_of(addr >> LINE_SHIFT);
	if (qemu_plugin_mem_is_store(info)) {
		taken = l->sharers & ~me;
		l->sharers = me;
		l->modified = true;
	} else {
		taken = l->modified && !(l->sharers & me);
		if (taken)
			l->modified = false;
		l->sharers |= me;
	}
	count_of(p, cpu)->lines += taken;
	pthread_mutex_unlock(&lines_lock);
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
	pthread_mutex_lock(&places_lock);
	for (i = 0; i < n; i++)
		marked |= !!mark_of(qemu_plugin_tb_get_insn(tb, i));
	if (!marked && n) {
		insn = qemu_plugin_tb_get_insn(tb, 0);
		qemu_plugin_register_vcpu_tb_exec_cb(tb, place_ran, QEMU_PLUGIN_CB_NO_REGS,
						     place_of(qemu_plugin_insn_vaddr(insn), n));
	}
	for (i = 0; i < n && (marked || lines); i++) {
		struct place *p;

		insn = qemu_plugin_tb_get_insn(tb, i);
		mark = mark_of(insn);
		if (mark) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark_ran,
							       QEMU_PLUGIN_CB_NO_REGS, mark);
			continue;
		}
		p = place_of(qemu_plugin_insn_vaddr(insn), 1);
		if (marked)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, place_ran,
							       QEMU_PLUGIN_CB_NO_REGS, p);
		if (lines)
			qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS,
							 QEMU_PLUGIN_MEM_RW, p);
	}
	pthread_mutex_unlock(&places_lock);
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
		const char *name = (const char *)&tags[tag];

		fprintf(f, "times %.4s 0 %" PRIu64 "\n", name, times[tag]);
		for (i = 0; i < 1 << PLACE_BITS; i++) {
			const struct place *p = &places[i];

			if (p->count && p->count[tag].insns)
				fprintf(f, "insns %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
					p->count[tag].insns);
			if (p->count && p->count[tag].lines)
				fprintf(f, "lines %.4s %" PRIx64 " %" PRIu64 "\n", name, p->addr,
					p->count[tag].lines);
		}
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
