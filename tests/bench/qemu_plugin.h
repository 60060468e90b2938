/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of QEMU's plugin interface that plugin.c needs, in version 1, which Debian 12's QEMU
 * 7.2 has. No package of Debian 12 has QEMU's own header.
 */
#ifndef _QEMU_PLUGIN_H
#define _QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum { QEMU_PLUGIN_CB_NO_REGS };
enum { QEMU_PLUGIN_MEM_RW = 3 };

typedef void (*tb_fn)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*exec_fn)(unsigned int cpu, void *data);
typedef void (*mem_fn)(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t addr, void *data);
typedef void (*exit_fn)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, tb_fn fn);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, exec_fn fn, int flags,
					  void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_fn fn, int flags,
					    void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, mem_fn fn, int flags, int rw,
				      void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_fn fn, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);

#endif /* _QEMU_PLUGIN_H */
