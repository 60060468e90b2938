/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Marks in measured code, in wq_bench.ko and in user.c: plugin.c counts what a CPU does
 * between a begin and an end. A mark is a no-op with a tag of four characters in its address
 * field, so a plugin of QEMU finds it by its bytes and needs no symbols. Compilers emit these
 * no-ops with a zero there.
 */
#ifndef _WQ_BENCH_MARKS_H
#define _WQ_BENCH_MARKS_H

/* For instance BENCH_TAG('a', 'd', 'd', '1'). No character is 0. */
#define BENCH_TAG(a, b, c, d)	((a) | (b) << 8 | (c) << 16 | (d) << 24)

/* The bytes of a mark before its tag. */
#define BENCH_BEGIN	"\x66\x0f\x1f\x84\x00"
#define BENCH_END	"\x0f\x1f\x84\x00"

/* The tag is a constant. */
static __always_inline void bench_begin(unsigned int tag)
{
#ifdef __x86_64__
	asm volatile("nopw %c0(%%rax,%%rax,1)" : : "i" (tag) : "memory");
#endif
}

static __always_inline void bench_end(unsigned int tag)
{
#ifdef __x86_64__
	asm volatile("nopl %c0(%%rax,%%rax,1)" : : "i" (tag) : "memory");
#endif
}

#endif /* _WQ_BENCH_MARKS_H */
