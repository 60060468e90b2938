/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * wq: sources, a part of the interface of /dev/wq.
 *
 * A source adds a key to a queue when something changes.  Its kind is what it watches: "fs" a file
 * system, "net" a network namespace, "bpf" a channel for BPF programs.  The kernel module wq_KIND
 * has the kind, and is loaded by the first attach.  Events have no queue of their own that could
 * overflow: a key that waits for its run stands for all events of what it names.  So the memory
 * that a source takes is bounded by what can change, and not by how often it changes.
 *
 * A key of a source is a path of names with slashes between them, after the source's prefix:
 *
 *  - A key without a slash at its end names one thing.  A change of this thing was seen.
 *  - A key with a slash at its end is a rescan key.  Any change may have happened to what the key
 *    without the slash names, and to all that is below it: to all whose key begins with this key.
 *    The prefix and a single slash stand for all that the source watches.
 *
 * A consumer looks at the present state of what a key names, because the key has no word on the
 * change itself.  The thing that the key names may be gone.  For a rescan key the consumer compares
 * its own view with the present state, for the key without its slash and for all below it: it
 * handles what exists, and forgets what it knows and what exists no more.
 *
 * No change is lost.  If a key cannot be added, the source keeps a mark, which is the rescan key of
 * the directory or table that the key is in.  If the mark is set already, it becomes the nearest
 * rescan key that stands for both.  So one mark for each source is enough.  The mark is added as
 * soon as the queue accepts it, without a further event:
 *
 *  - If the queue is full (max_keys) or adds are paused, the source tries again at most about 10 ms
 *    after that ends.
 *  - If there is no memory, or the queue's user has reached user_bytes, the source tries again,
 *    after 10 ms at first and after 1 s at most.
 *  - If the key would be longer than WQ_MAX_KEY, the mark is the nearest directory above that fits.
 *
 * If the key of a change, or a rescan key, is disabled, no mark is needed: the queue remembers the
 * change, and the key is ready once it is enabled, without the source's delay.  A cancel or another
 * disable drops that, see WQ_DO_DISABLE.  If a run of the disabled key was given back, the change
 * is a part of that run.
 *
 * A change that happens before the attach returns may have no key.  So the consumer attaches the
 * source first, and then looks at all that it watches.  WQ_SOURCE_SCAN adds the rescan key for
 * that.
 *
 * A source ends by itself if what it watches is gone: the file system is unmounted, the directory
 * is removed or replaced by a rename, the namespace ends.  A source keeps none of these from
 * ending, and does not keep its queue either.  A source that has ended adds no key, and its mark is
 * dropped: the end is no change, and a consumer of a rescan key would find that nothing exists any
 * more.  Keys that were added before stay.  The end is reported until the source is detached:
 *
 *  - WQ_SOURCE_LIST reports WQ_SOURCE_ENDED and the reason.
 *  - WQ_IOC_STAT counts it in wq_stat.ended_sources, and sets WQ_STATE_SOURCE_ENDED.
 *  - If the source was attached with WQ_SOURCE_WITH_FILE, gets and reads of this file that may wait
 *    fail with ENOLINK once no key is ready, processing or delayed, and poll reports EPOLLPRI.  It
 *    is enough that one of several sources of the file has ended.  Gets of other files go on: other
 *    sources and processes can add keys, and the right to attach a source is no right to end the
 *    gets of others.
 */
#ifndef _UAPI_LINUX_WQ_SOURCE_H
#define _UAPI_LINUX_WQ_SOURCE_H

#include <linux/wq.h>

#define WQ_KIND_MAX		16	/* bytes of a kind's name and its NUL */
#define WQ_SOURCE_PREFIX_MAX	32	/* bytes of a source's prefix and its NUL */
#define WQ_MAX_SOURCES		64	/* sources of a queue, at most */
#define WQ_MAX_SOURCE_TEXT	256	/* bytes of the text that LIST returns, and its NUL */

/* wq_source_op.op */
#define WQ_SOURCE_ATTACH	0	/* attach a source */
#define WQ_SOURCE_LIST		1	/* describe the next source */
#define WQ_SOURCE_DETACH	2	/* end a source */

/* wq_source_op.flags of ATTACH, which LIST reports */
#define WQ_SOURCE_WITH_FILE	(1U << 0)	/* the source belongs to this open file */
#define WQ_SOURCE_SCAN		(1U << 1)	/* add the rescan key of all that it watches */

/* wq_source_op.state, of LIST */
#define WQ_SOURCE_MARKED	(1U << 0)	/* a rescan key waits for room */
#define WQ_SOURCE_ENDED		(1U << 1)	/* see wq_source_op.error */

/**
 * struct wq_source_op - WQ_IOC_SOURCE: attach, list or detach a source of the file's queue
 * @size: sizeof(struct wq_source_op)
 * @op: WQ_SOURCE_ATTACH, WQ_SOURCE_LIST or WQ_SOURCE_DETACH
 * @id: ATTACH: must be 0; out, the source's number, which is never 0 and which no other source of
 *	the queue has.  The numbers count up, and start again after 2^32 attaches.  LIST: in, an id;
 *	out, that of the source with the lowest id above it, so a caller starts at 0 and repeats the
 *	call until it fails with ENOENT.  DETACH: in, the source
 * @flags: ATTACH: WQ_SOURCE_WITH_FILE and WQ_SOURCE_SCAN.  LIST: must be 0; out, those of ATTACH.
 *	DETACH: must be 0
 * @kind: ATTACH: in, the kind: lowercase letters and digits, filled up with zeros.  LIST: must be
 *	0; out, the kind.  DETACH: must be 0
 * @prefix: as @kind, but any bytes.  It is put ahead of each key of the source, so that several
 *	sources of a queue can be distinguished.  The first NUL ends it, and it may be empty
 * @delay: ATTACH: in, ns; 0: a change makes its key ready at once.  Above 0: the key becomes ready
 *	after this time without a further change, at the latest after the queue's max_defer: the
 *	adds have this delay and WQ_ADD_TAKE_LATEST.  LIST: must be 0; out.  DETACH: must be 0
 * @arg: ATTACH: in, address of the kind's struct: struct wq_fs_args, struct wq_net_args or struct
 *	wq_bpf_args.  LIST: in, address of a buffer that receives a text for people, with its NUL:
 *	what the source watches, for "fs" the path of its directory when it was attached, for
 *	"net" the names of its tables with commas between them.  The text is a string of any bytes.
 *	If it is too long, its end is left out.  If the file is not open for reading, it is empty.
 *	0: no text.  DETACH: must be 0
 * @arg_size: ATTACH: bytes of that struct, at least those of its first field.  It is extensible as
 *	all structs of wq are: what is missing counts as zeros, and what is beyond the kernel's
 *	struct must be zero.  LIST: bytes of the buffer.  DETACH: must be 0
 * @uid: must be 0.  LIST: out, the user that attached the source, in the caller's user namespace
 * @state: must be 0.  LIST: out, WQ_SOURCE_MARKED and WQ_SOURCE_ENDED
 * @error: must be 0.  LIST: out, why the source ended, an errno: ENODEV: the file system was
 *	unmounted; ENOENT: the directory was removed or replaced; ENONET: the network namespace
 *	ended; 0: it has not ended
 * @failed_adds: must be 0.  LIST: out, how many adds failed.  Each of them left a mark
 * @rescans: must be 0.  LIST: out, how many rescan keys were added for marks
 *
 * A source belongs to the queue: it lives until it is detached or the queue ends, also if the
 * process that attached it ends.  With WQ_SOURCE_WITH_FILE it belongs to the open file: it is
 * detached when the last reference to the file is closed, and gets of the file report its end.
 *
 * ATTACH needs write access.  Moreover it needs the rights that the kind asks for, see its struct:
 * the rights to watch these things by other means, because keys show names.  DETACH needs write
 * access, and the caller is the user that attached the source or the queue's owner, or has
 * CAP_FOWNER.  LIST needs read or write access.
 *
 * The user that attaches a source is charged for it until it ends, also if the queue is another
 * user's.
 * wq_info.user_sources limits the sources of a user.
 *
 * When DETACH returns, the source adds no further key.  A mark that was not added is dropped.  Keys
 * that were added stay.
 *
 * Errors of WQ_IOC_SOURCE:
 *  EINVAL     - @op is unknown, @flags has an unknown bit, or a field that must be 0 is not
 *             - ATTACH: @kind is not a name, @delay is negative, @arg_size is too small, or the
 *               kind refuses its struct
 *  EACCES     the file is not open for writing, and @op is not LIST
 *  EPERM      - ATTACH: the caller lacks a right that the kind asks for
 *             - DETACH: the caller is neither the source's nor the queue's owner, and lacks
 *               CAP_FOWNER
 *  ENOENT     - ATTACH: there is no such kind, also after its module was asked for
 *             - LIST: no source has a larger id
 *             - DETACH: the queue has no such source
 *  EUSERS     - ATTACH: the queue has WQ_MAX_SOURCES sources
 *             - ATTACH: the user has user_sources sources, see struct wq_info; CAP_SYS_RESOURCE
 *               overrides it
 *  E2BIG      ATTACH: @arg_size is above the size of a page, or a byte beyond the kernel's struct
 *             is not zero
 *  EFAULT     the struct or @arg can't be read or written.  After ATTACH, no source is attached
 *  ESHUTDOWN  ATTACH: the queue is shut down
 *  ENOMEM     there is not enough memory
 *  and those of the kind, see its struct
 */
struct wq_source_op {
	__u32 size;
	__u32 op;
	__u32 id;
	__u32 flags;
	char kind[WQ_KIND_MAX];
	char prefix[WQ_SOURCE_PREFIX_MAX];
	__s64 delay;
	__aligned_u64 arg;
	__u32 arg_size;
	__u32 uid;
	__u32 state;
	__s32 error;
	__aligned_u64 failed_adds;
	__aligned_u64 rescans;
};

/* wq_fs_args.flags */
#define WQ_FS_CHILDREN	(1U << 0)	/* the directory and its entries, not the tree */
#define WQ_FS_NOT_OWN	(1U << 1)	/* leave out changes by the caller and its descendants */

/* The events of wq_fs_args.events, with the values of inotify's IN_* */
#define WQ_FS_MODIFY		0x00000002	/* a file was written to or truncated */
#define WQ_FS_ATTRIB		0x00000004	/* metadata changed: mode, owner, times, xattr */
#define WQ_FS_CLOSE_WRITE	0x00000008	/* a file that was open for writing was closed */
#define WQ_FS_MOVED_FROM	0x00000040	/* an old name of a rename */
#define WQ_FS_MOVED_TO		0x00000080	/* a new name of a rename */
#define WQ_FS_CREATE		0x00000100	/* a name was made: file, directory, link, node */
#define WQ_FS_DELETE		0x00000200	/* a name was removed */

/* wq_fs_args.events 0 */
#define WQ_FS_DEFAULT (WQ_FS_MODIFY | WQ_FS_ATTRIB | WQ_FS_CLOSE_WRITE | WQ_FS_MOVED_FROM | \
		       WQ_FS_MOVED_TO | WQ_FS_CREATE | WQ_FS_DELETE)

/* The first byte of a rule in wq_fs_args.rules */
#define WQ_FS_ONLY	'+'	/* leave out all that no ONLY rule matches */
#define WQ_FS_EXCLUDE	'-'	/* leave out what the pattern matches */

#define WQ_FS_MAX_RULES		32	/* rules of a source, at most */
#define WQ_FS_MAX_RULES_SIZE	4096	/* bytes of all rules, at most */
#define WQ_FS_MAX_INNER		128	/* bytes between two asterisks of a name, of all rules */
#define WQ_FS_MAX_DEEP		32	/* names behind a name ** but the next one, of all rules */

/**
 * struct wq_fs_args - what a source of kind "fs" watches
 * @fd: an open file, which is a directory.  O_PATH is enough without WQ_FS_CHILDREN
 * @flags: WQ_FS_*
 * @events: WQ_FS_MODIFY and so on; 0: WQ_FS_DEFAULT, all of them
 * @reserved: must be 0
 * @rules: address of rules, or 0.  A rule is WQ_FS_ONLY or WQ_FS_EXCLUDE, a pattern, and a NUL
 * @rules_size: bytes of all rules
 * @reserved2: must be 0
 *
 * Without WQ_FS_CHILDREN, the source watches the directory and all below it on this file system, by
 * a mark on the super block, which all sources of the file system share.  The cost does not depend
 * on the number of directories.  The cost of a change outside of all watched directories does not
 * depend on the number of sources.  The directory can be the root of the file system or
 * any other one.  A mount point below the directory is not followed: a bind mount of the watched
 * directory shows a consumer what the keys stand for, if something is mounted on one of them.
 *
 * Keys are paths relative to the directory, of any bytes but NUL:
 *
 *  - "a/b": a file changed, was made, removed or linked.  If it has several hard links, the key
 *    is the name by which it was opened, and the other names have no key, as for inotify.  So a
 *    write by a name outside of the directory has none.  If the name was removed meanwhile, and
 *    the file has one name, the key is that, unless the kernel's cache of names has lost it.  Or
 *    the metadata of a directory changed.
 *  - "a/b/": the directory a/b came or went: mkdir, rmdir, and both names of a rename.  It is a
 *    rescan key, because all that is below has changed its name.
 *  - ".": the metadata of the watched directory changed.
 *  - "/": all of the directory.  The name of what has changed is not known: for instance, a process
 *    wrote to an open file whose name was removed, and the file has other names.
 *
 * A write to a mapping and a write by libaio have no event of their own.  WQ_FS_CLOSE_WRITE stands
 * for them: it comes when an open file has no descriptor and no mapping any more.  So a key follows
 * the last change of a file's content.
 *
 * In a directory that compares names without their case, a name is spelled as in the look-up that
 * brought it to the kernel's cache.  So a file can have several keys in the course of time, and
 * each of them names it.  Kernel 6.1 does not follow a file of a casefold directory of ext4 or f2fs
 * from its making to the first close, if it is renamed meanwhile and nobody else has it in use.
 * inotify does not follow it either.
 *
 * Changes through each mount of the file system are seen.  For a file system that is a stack, such
 * as overlayfs, a source sees the changes that are made through this very file system: changes of a
 * lower or upper directory beside it have no key.  Changes that a network file system's server
 * makes have none, as for inotify.  Files of sysfs and cgroup v2 have keys for the changes that the
 * kernel reports to inotify, for instance of cgroup.events.
 *
 * If a file system reports 0 links for the watched directory, as some servers of FUSE do, the
 * kernel takes the directory for removed when it leaves the cache of names.  Then the source ends,
 * as the watch of inotify does.
 *
 * A path of 4,096 bytes or more, relative to the directory, is not looked up: the mark of all ("/")
 * stands for changes there.
 *
 * A pattern is one of gitignore(5), for paths relative to the directory:
 *
 *  - "*" stands for any bytes but a slash, "?" for one, "[a-c]" for one of these and "[!a-c]" for
 *    one of the others.  After a backslash, a byte stands for itself.
 *  - A pattern without a slash, but for one at its end, matches at any depth.  Each other pattern
 *    matches from the directory on: "src/?.c" and "/build".
 *  - "x/" matches directories alone.
 *  - "**" as a name stands for any number of directories, and as the last name for all below.
 *  - A pattern that matches a directory matches all below it, too.
 *  - In a directory that compares names without their case, such as one of vfat or a casefold one
 *    of ext4, patterns ignore the case of ASCII letters.
 *
 * These points differ from gitignore(5):
 *
 *  - "!" at the beginning makes no exception from other patterns.  It is a byte of a name, as "#".
 *  - There are no classes with names, such as "[[:alpha:]]".
 *  - A pattern that can match no path is refused: with a name that is empty, "." or "..", with a
 *    class or an escape that has no end, or with an empty class.
 *
 * A path is left out if a pattern of an EXCLUDE rule matches it.  If there are ONLY rules, a path
 * is also left out if none of their patterns matches it.  But a rescan key of a directory passes if
 * one of these patterns can match something below.
 *
 * WQ_FS_NOT_OWN leaves out changes by the process that attached, and by its descendants up to 16
 * generations.  A process whose parent has ended is no descendant any more.
 *
 * Rights: CAP_SYS_ADMIN in the user namespace that owns the file system, as for fanotify's mark of
 * a file system.  With WQ_FS_CHILDREN: @fd is open for reading, as for inotify.  Security modules
 * decide about the capability, and with WQ_FS_CHILDREN about the open for reading.  They do not
 * decide about the watch: the kernel does not export the hook that inotify and fanotify ask.
 *
 * Errors, beside those of WQ_IOC_SOURCE:
 *  EBADF      @fd is not an open file; or WQ_FS_CHILDREN is set, and @fd is not open for reading
 *  ENOTDIR    @fd is not a directory
 *  EPERM      CAP_SYS_ADMIN is missing
 *  EINVAL     an unknown flag or event, or a rule that is none, or whose pattern can match nothing
 *  E2BIG      there are more than WQ_FS_MAX_RULES rules, WQ_FS_MAX_RULES_SIZE bytes,
 *             WQ_FS_MAX_INNER bytes between two asterisks of a name, such as 2 in "*ab*", or
 *             WQ_FS_MAX_DEEP names behind a name **, such as 2 in a pattern of **, a, b and c
 *  EFAULT     @rules can't be read
 *  ENOENT     the directory was removed
 */
struct wq_fs_args {
	__s32 fd;
	__u32 flags;
	__u32 events;
	__u32 reserved;
	__aligned_u64 rules;
	__u32 rules_size;
	__u32 reserved2;
};

/* wq_net_args.tables */
#define WQ_NET_LINK	(1U << 0)
#define WQ_NET_ADDR	(1U << 1)
#define WQ_NET_NEIGH	(1U << 2)
#define WQ_NET_ROUTE	(1U << 3)
#define WQ_NET_RULE	(1U << 4)
#define WQ_NET_NEXTHOP	(1U << 5)
#define WQ_NET_FDB	(1U << 6)
#define WQ_NET_MDB	(1U << 7)
#define WQ_NET_VLAN	(1U << 8)
#define WQ_NET_NETCONF	(1U << 9)
#define WQ_NET_MROUTE	(1U << 10)
#define WQ_NET_ALL	((1U << 11) - 1)

/**
 * struct wq_net_args - what a source of kind "net" watches
 * @tables: WQ_NET_*; 0: all of them
 * @flags: must be 0
 *
 * It watches the network namespace of the caller.  Keys, and the mark of each table:
 *
 *  - "link/2": the network device with this index.  Mark: "link/"
 *  - "addr/2/192.0.2.1", "addr/2/2001:db8::1": an address of a device.  Mark: "addr/"
 *  - "neigh/2/192.0.2.1": a neighbour, of ARP or of IPv6's discovery.  Mark: "neigh/"
 *  - "route/main/192.0.2.0/24", "route/100/2001:db8::/32": a route, by its table and its
 *    destination.  The tables 253 to 255 have the names default, main and local.  If several routes
 *    have these, the key stands for all of them.  Mark: "route/"
 *  - "rule/inet/32766", "rule/inet6/100": the rules of routing of a family and a priority.  Mark:
 *    "rule/"
 *  - "nexthop/7": a next hop or a group of them, by its id.  Routes that use it have no key.  Mark:
 *    "nexthop/"
 *  - "fdb/2/02:00:00:00:00:01": an entry of the forwarding table of a bridge port or of a VXLAN.
 *    Mark: "fdb/"
 *  - "mdb/2": the multicast groups of a bridge.  Mark: "mdb/"
 *  - "vlan/2": the VLANs of a bridge or of a bridge port.  Mark: "vlan/"
 *  - "netconf/inet/2", "netconf/inet6/all": forwarding, rp_filter and other settings of a device,
 *    of all or of new ones (default).  Mark: "netconf/"
 *  - "mroute/": the multicast routes, for which there are no other keys
 *
 * IPv6 addresses are written as in RFC 5952.  All changes that rtnetlink reports to ip-monitor(8)
 * and bridge(8) monitor have a key: also flags, promiscuous mode, lifetimes of addresses, the end
 * of duplicate address detection, and routes that are not the best one.  These do not: prefixes of
 * router advertisements, ids of namespaces, the statistics of links, and the multicast and anycast
 * addresses that newer kernels than 6.1 report.  Routes of other families than IPv4 and IPv6 leave
 * the mark "route/".  Moreover some changes have a key which rtnetlink does not report: IPv4 routes
 * that go with their device or address, and changes of the state of neighbours.
 *
 * Keys of changes other than of links, addresses and neighbours come when each change in progress
 * has ended, some 20 ms later.  If more than 4,096 of these keys come meanwhile, the mark of the
 * table stands for the others, and they count as adds that failed.
 *
 * Rights: none beyond write access to the queue, as for the groups of rtnetlink.  Security modules
 * do not decide about the watch: the socket in these groups is one of the kernel.
 *
 * Errors, beside those of WQ_IOC_SOURCE:
 *  EINVAL     @tables has an unknown bit, or @flags is not 0
 *  EBUSY      @tables has WQ_NET_ROUTE, and routes changed during each of the kernel's five
 *             attempts to read them all.  The caller may try again
 */
struct wq_net_args {
	__u32 tables;
	__u32 flags;
};

#define WQ_BPF_CHANNELS	256	/* channels of BPF programs */
#define WQ_BPF_MAX_KEY	512	/* bytes of a key of a BPF program, with the source's prefix */

/**
 * struct wq_bpf_args - what a source of kind "bpf" watches
 * @channel: number below WQ_BPF_CHANNELS, by which BPF programs name the source
 * @flags: must be 0
 *
 * The source adds the keys that BPF programs add to its channel.  Programs of types tracing, tc
 * classifier, XDP and syscall call these functions of the module:
 *
 *	int wq_bpf_add(u32 channel, const void *key, u32 key__sz);
 *	int wq_bpf_add_priority(u32 channel, const void *key, u32 key__sz, int priority,
 *				s64 delay);
 *
 * A key has any bytes.  The source puts its prefix ahead of them.  The priority @priority counts in
 * a queue with priorities, and must be 0 in others.  @delay is in ns, and may be 0.  The delay of
 * the source counts if it is larger.
 *
 * Programs may call the functions in any context, also in NMI.  Where interrupts are disabled, and
 * on kernels with PREEMPT_RT, the key comes a little later: it waits in a ring of 32 keys of this
 * CPU until interrupts are enabled.
 *
 * The functions return 0 if the key was added, or if a mark stands for it.  The mark is always that
 * of all ("/").  A key that is longer than WQ_BPF_MAX_KEY leaves it, too.  They return -ENOENT if
 * no source has the channel, and -EINVAL for an empty key.
 *
 * A program can run because a key of a BPF program, its own or another one's, is added from the
 * ring: it traces a tracepoint of wq, a wake-up or an allocation of memory.  Then the functions
 * return -EDEADLK, and the event has neither key nor mark.  Otherwise the program could run for
 * ever.
 *
 * The module must have been loaded when a program is loaded, and stays as long as the program.
 *
 * Rights: CAP_BPF, as for the programs.
 *
 * Errors, beside those of WQ_IOC_SOURCE:
 *  EINVAL     @channel is not below WQ_BPF_CHANNELS, or @flags is not 0
 *  EPERM      CAP_BPF is missing
 *  EBUSY      another source has the channel
 */
struct wq_bpf_args {
	__u32 channel;
	__u32 flags;
};

#define WQ_IOC_SOURCE	_IO(WQ_IOC_MAGIC, 0x0f)

#endif /* _UAPI_LINUX_WQ_SOURCE_H */
