# SPDX-License-Identifier: LGPL-2.1-only
"""The ABI of libwq. The script tools/bindings/abi made this file."""
from ctypes import (Array, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int16, c_int32,
                    c_int64, c_size_t, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

VERSION = "0.1"

WQ_API_VERSION = 1
WQ_MAX_KEY = 1024
WQ_MAX_ARRAY = 1048576
WQ_MAX_OUT = 8192
WQ_MAX_KEYS = 33554432
WQ_DEFAULT_KEYS = 65536
WQ_NAME_MAX = 64
WQ_MAX_LIMITERS = 16
WQ_MAX_NESTED = 4
WQ_MIN_LEASE = 1000000
WQ_MAX_GIVEN_BACK = 63
WQ_DEFAULT_SLACK = 50000
WQ_DEFAULT_START_BURST = 1
WQ_MAX_SLACK = 1000000000
WQ_MAP_COUNTERS = 1008
WQ_MAX_RETRIES = 65535
WQ_MAX_REASON = 64
WQ_MAX_ERROR = 4095
WQ_OUTCOME_FORGET = 1
WQ_OUTCOME_RETRY = 2
WQ_OUTCOME_AFTER = 4
WQ_OUTCOME_GIVE_UP = 8
WQ_OUTCOME_REST = 16
WQ_INFO_OWNER = 1
WQ_OPEN_CREATE = 1
WQ_OPEN_EXCL = 2
WQ_OPEN_ACCEPT = 4
WQ_OPEN_NO_MAP = 8
WQ_OPEN_SAME = 16
WQ_MIN_PRIORITY = -128
WQ_MAX_PRIORITY = 127
WQ_PRIORITIES = 256
WQ_DEFAULT_AGEING = 16
WQ_NO_AGEING = 1
WQ_MAX_AGEING = 65536
WQ_ATTR_MODE = 1
WQ_ATTR_UID = 2
WQ_ATTR_GID = 4
WQ_ATTR_MAX_KEYS = 8
WQ_ATTR_LIMITER = 16
WQ_ATTR_LEASE = 32
WQ_ATTR_SLACK = 64
WQ_ATTR_MAX_RETRIES = 128
WQ_ATTR_MAX_DEFER = 256
WQ_ATTR_ORDER = 512
WQ_ATTR_ORDER_ARG = 1024
WQ_ATTR_GROUP_LIMIT = 2048
WQ_ATTR_MAX_PROCESSING = 4096
WQ_ATTR_START_RATE = 8192
WQ_ATTR_START_BURST = 16384
WQ_ATTR_GROUP_START_RATE = 32768
WQ_ATTR_GROUP_START_BURST = 65536
WQ_ATTR_GROUP_AGEING = 131072
WQ_DONE_GET = 1
WQ_HELD_BY_KERNEL = 4294967295
WQ_DO_QUERY = 0
WQ_DO_CANCEL = 1
WQ_DO_FORGET = 2
WQ_DO_KICK = 3
WQ_DO_DISABLE = 4
WQ_DO_ENABLE = 5
WQ_DO_RESTORE = 6
WQ_DO_LAST = 7
WQ_DO_REST = 8
WQ_LIST_SINCE = 1
WQ_LIST_IDLE = 2
WQ_LIST_GROUPS = 4
WQ_MIN_INFO = 120
WQ_MAX_INFO = 1024
WQ_HIST_COUNTS = 11
WQ_PRIORITY_UNUSED = 4294967295
WQ_SHUTDOWN_DRAIN = 1
WQ_WAIT_RUN = 1
WQ_WAIT_DRAIN = 2
WQ_WAIT_ADD = 4
WQ_WAIT_OWN = 8
WQ_NO_COUNTER = 4294967295
WQ_IOC_MAGIC = 232
WQ_KIND_MAX = 16
WQ_SOURCE_PREFIX_MAX = 32
WQ_MAX_SOURCES = 64
WQ_MAX_SOURCE_TEXT = 256
WQ_SOURCE_ATTACH = 0
WQ_SOURCE_LIST = 1
WQ_SOURCE_DETACH = 2
WQ_FS_CHILDREN = 1
WQ_FS_NOT_OWN = 2
WQ_FS_DEFAULT = 974
WQ_FS_ONLY = 43
WQ_FS_EXCLUDE = 45
WQ_FS_MAX_RULES = 32
WQ_FS_MAX_RULES_SIZE = 4096
WQ_FS_MAX_INNER = 128
WQ_FS_MAX_DEEP = 32
WQ_NET_ALL = 2047
WQ_BPF_CHANNELS = 256
WQ_BPF_MAX_KEY = 512
WQ_NOWAIT = 0
WQ_FOREVER = -1

# The verbs without the bits of _IOC_NONE, and structs of the kernel as the module struct has them.
WQ_IOC_INFO = 0xe800
WQ_IOC_OPEN = 0xe801
WQ_IOC_UNLINK = 0xe802
WQ_IOC_ADD = 0xe803
WQ_IOC_GET = 0xe804
WQ_IOC_DONE = 0xe805
WQ_IOC_TOUCH = 0xe806
WQ_IOC_KEY = 0xe807
WQ_IOC_WAIT = 0xe808
WQ_IOC_LIST = 0xe809
WQ_IOC_STAT = 0xe80a
WQ_IOC_ATTRS = 0xe80b
WQ_IOC_PAUSE = 0xe80c
WQ_IOC_SHUTDOWN = 0xe80d
WQ_IOC_MAP = 0xe80e
WQ_IOC_SOURCE = 0xe80f
WQ_REC = "=HHHBbQq"
WQ_KEYS = "=QII"
WQ_ADD = "=IIQIIQQ"
WQ_GET = "=IIQIIqq"
WQ_REASON_REC = "=II64s"
WQ_DONE = "=IIQIIQQIIqQ"
WQ_ADD_TO_RESULTS = "=IIQIIQ"
WQ_REC_SHORT = "=HH2x1x1xQ8x"
WQ_REC_FIELDS = ('len', 'flags', 'failures', 'given_back', 'priority', 'token', 'delay')
WQ_REC_LEN_AT = 0
WQ_REC_FLAGS_AT = 2
WQ_REC_TOKEN_AT = 8
WQ_GET_KEYS_AT = 8
WQ_DONE_NEXT_AT = 32
WQ_DONE_TIMEOUT_AT = 48


class AddFlag(IntFlag):
    """The rule of an add whose key is delayed already, or waits for its run."""

    KEEP_FIRST = 1  # with a delay: the pending time applies
    TAKE_LATEST = 2  # the new delay applies, see wq_attrs.max_defer
    DROP_DELAY = 4  # without a delay: drop the pending one
    COALESCE = 32  # with a delay: one pending run is enough
    RATE_LIMITED = 8
    AFTER = 16


class Result(IntFlag):
    """How a key continues after its run ended; 0: it is idle."""

    READY = 1  # the key is ready again
    DELAYED = 2  # RETRY, AFTER or REST: the key is delayed
    PARKED = 4  # RETRY or GIVE_UP: the key is parked


class KeyState(IntFlag):
    """The states of a key, several of them at once."""

    READY = 1  # dirty, and waits to be handed out
    PROCESSING = 2  # handed out and not done
    DIRTY = 4  # needs a run; with PROCESSING: another run
    DELAYED = 8  # becomes dirty at a later time
    MINE = 16  # PROCESSING, and this file holds the key
    FAILED = 32  # has failures that were not forgotten
    PARKED = 64  # given up; if PROCESSING: parked after the run
    DISABLED = 128  # adds fail with EBUSY, see WQ_DO_DISABLE
    REQUEUED = 256  # READY ahead of all others, see WQ_LIST_SINCE


class State(IntFlag):
    """The states of a queue, several of them at once."""

    SHUTDOWN = 1  # the queue is shut down
    DRAINING = 2  # the queue drains
    NO_MAP = 4  # the queue has no map, see WQ_IOC_MAP
    GETS_PAUSED = 8  # gets are paused, see WQ_IOC_PAUSE
    ADDS_PAUSED = 16  # adds are paused
    UNLINKED = 32  # the queue was unlinked
    RESCAN = 64  # a source has a key that found no room
    SOURCE_ENDED = 128  # what a source watched is gone


class Pause(IntFlag):
    """The sides of a queue that can be paused."""

    GETS = 1  # no key is handed out
    ADDS = 2  # adds fail with EHOSTDOWN


class End(IntEnum):
    """How a wait ended."""

    DONE = 0  # the run was done and did not fail, or the drain ended
    FAILED = 1  # the run ended with RETRY, or counted as failed
    GAVE_UP = 2  # the run failed, and its consumer gave the key up
    CANCELED = 3  # the run was dropped; or a shut down ended the drain
    NO_RUN = 4  # no run was pending or in progress
    OF_QUEUE = 5  # the queue ended first


class LastResult(IntEnum):
    """How the last run of a key ended."""

    NONE = 0  # no run has ended, or nothing is known of it
    DONE = 1  # by done, and it did not fail
    FAILED = 2  # by done with RETRY
    GAVE_UP = 3  # by done with GIVE_UP, or by its last failure
    GIVEN_BACK = 4  # its consumer died or closed the file
    EXPIRED = 5  # its lease expired


class Order(IntEnum):
    """Which ready key a get takes."""

    FIFO = 0  # the key that has been ready for longest
    PRIORITY = 1  # a key of the highest priority, see wq_rec.priority
    DELIMITER = 2  # groups in turn: keys up to a delimiter byte
    PREFIX = 3  # groups in turn: the first bytes of keys
    OTHER = 4  # a kernel module's own; WQ_IOC_ATTRS reports it alone


class LimiterKind(IntEnum):
    """The rule of a part of a limiter."""

    EXPONENTIAL = 1  # base * 2^(earlier failures of the key), at most max
    FAST_SLOW = 2  # base for the key's first n failures, then max
    BUCKET = 3  # a token bucket that all keys share
    MAX_OF = 4  # the longest delay of the next n limiters
    MAX_WAIT = 5  # the delay of the limiter that follows, at most max
    OTHER = 6  # a kernel module's own; WQ_IOC_ATTRS reports it alone


class SourceFlag(IntFlag):
    """How a source was attached."""

    WITH_FILE = 1  # the source belongs to this open file
    SCAN = 2  # add the rescan key of all that it watches


class SourceState(IntFlag):
    """The states of a source, several of them at once."""

    MARKED = 1  # a rescan key waits for room
    ENDED = 2  # see wq_source_op.error


class FsEvent(IntFlag):
    """Changes in a file system."""

    MODIFY = 2  # a file was written to or truncated
    ATTRIB = 4  # metadata changed: mode, owner, times, xattr
    CLOSE_WRITE = 8  # a file that was open for writing was closed
    MOVED_FROM = 64  # an old name of a rename
    MOVED_TO = 128  # a new name of a rename
    CREATE = 256  # a name was made: file, directory, link, node
    DELETE = 512  # a name was removed


class NetTable(IntFlag):
    """Tables of a network namespace."""

    LINK = 1
    ADDR = 2
    NEIGH = 4
    ROUTE = 8
    RULE = 16
    NEXTHOP = 32
    FDB = 64
    MDB = 128
    VLAN = 256
    NETCONF = 512
    MROUTE = 1024


class wq_item(Structure):
    """struct wq_item"""

    _fields_ = [
        ("key", c_char * 1025),
        ("len", c_size_t),
        ("token", c_uint64),
        ("failures", c_uint32),
        ("given_back", c_uint16),
        ("priority", c_int16),
        ("reserved", c_uint64 * 4),
    ]
    key: bytes
    len: int
    token: int
    failures: int
    given_back: int
    priority: int
    reserved: Array[c_uint64]


class wq_hist(Structure):
    """struct wq_hist"""

    _fields_ = [
        ("sum", c_uint64),
        ("counts", c_uint64 * 11),
    ]
    sum: int
    counts: Array[c_uint64]


class wq_stat(Structure):
    """struct wq_stat"""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char * 64),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("mode", c_uint32),
        ("state", c_uint32),
        ("ready", c_uint32),
        ("processing", c_uint32),
        ("held", c_uint32),
        ("keys", c_uint32),
        ("max_keys", c_uint32),
        ("delayed", c_uint32),
        ("adds", c_uint64),
        ("coalesced", c_uint64),
        ("gets", c_uint64),
        ("dones", c_uint64),
        ("given_back", c_uint64),
        ("canceled", c_uint64),
        ("merged", c_uint64),
        ("next_due", c_int64),
        ("retries", c_uint64),
        ("dropped", c_uint64),
        ("failed", c_uint32),
        ("retained", c_uint32),
        ("memory", c_uint64),
        ("depth", c_uint32),
        ("consumers", c_uint32),
        ("unfinished", c_uint64),
        ("longest", c_uint64),
        ("waits", wq_hist),
        ("works", wq_hist),
        ("lease", c_int64),
        ("expired", c_uint64),
        ("given_back_failed", c_uint64),
        ("slack", c_int64),
        ("gets_resume", c_int64),
        ("adds_resume", c_int64),
        ("failures", c_uint64),
        ("oldest", c_int64),
        ("parked", c_uint32),
        ("max_parked", c_uint32),
        ("parked_total", c_uint64),
        ("parked_dropped", c_uint64),
        ("kicked", c_uint64),
        ("disabled", c_uint32),
        ("waiters", c_uint32),
        ("blocked", c_uint32),
        ("ready_groups", c_uint32),
        ("ready_by_priority", c_uint64),
        ("sources", c_uint32),
        ("ended_sources", c_uint32),
        ("blocked_by_group", c_uint32),
        ("blocked_by_ceiling", c_uint32),
        ("blocked_by_rate", c_uint32),
        ("blocked_by_rest", c_uint32),
        ("next_start", c_int64),
        ("resting_groups", c_uint32),
        ("blocked_by_group_rate", c_uint32),
        ("next_group", c_int64),
        ("resumes", c_uint64),
    ]
    size: int
    flags: int
    name: bytes
    uid: int
    gid: int
    mode: int
    state: int
    ready: int
    processing: int
    held: int
    keys: int
    max_keys: int
    delayed: int
    adds: int
    coalesced: int
    gets: int
    dones: int
    given_back: int
    canceled: int
    merged: int
    next_due: int
    retries: int
    dropped: int
    failed: int
    retained: int
    memory: int
    depth: int
    consumers: int
    unfinished: int
    longest: int
    waits: wq_hist
    works: wq_hist
    lease: int
    expired: int
    given_back_failed: int
    slack: int
    gets_resume: int
    adds_resume: int
    failures: int
    oldest: int
    parked: int
    max_parked: int
    parked_total: int
    parked_dropped: int
    kicked: int
    disabled: int
    waiters: int
    blocked: int
    ready_groups: int
    ready_by_priority: int
    sources: int
    ended_sources: int
    blocked_by_group: int
    blocked_by_ceiling: int
    blocked_by_rate: int
    blocked_by_rest: int
    next_start: int
    resting_groups: int
    blocked_by_group_rate: int
    next_group: int
    resumes: int


class wq_key_info(Structure):
    """struct wq_key_info"""

    _fields_ = [
        ("state", c_uint32),
        ("failures", c_uint32),
        ("num_requeues", c_uint32),
        ("holder", c_uint32),
        ("age", c_int64),
        ("due", c_int64),
        ("lease", c_int64),
        ("given_back", c_uint32),
        ("priority", c_int32),
        ("error", c_uint32),
        ("reason_len", c_uint32),
        ("reason", c_uint8 * 64),
        ("last_result", c_uint32),
        ("last_reserved", c_uint32),
        ("last_age", c_int64),
        ("last_took", c_int64),
    ]
    state: int
    failures: int
    num_requeues: int
    holder: int
    age: int
    due: int
    lease: int
    given_back: int
    priority: int
    error: int
    reason_len: int
    reason: Array[c_uint8]
    last_result: int
    last_reserved: int
    last_age: int
    last_took: int


class wq_view(Structure):
    """struct wq_view"""

    _fields_ = [
        ("key", c_void_p),
        ("len", c_size_t),
        ("token", c_uint64),
        ("result", c_int),
        ("info", wq_key_info),
    ]
    key: int | None
    len: int
    token: int
    result: int
    info: wq_key_info


class wq_items(Structure):
    """struct wq_items"""

    _fields_ = [
        ("count", c_uint32),
        ("used", c_uint32),
        ("room", c_uint32),
        ("results_room", c_uint32),
        ("next", c_uint32),
        ("index", c_uint32),
        ("listed", c_bool),
        ("got", c_bool),
        ("recs", c_void_p),
        ("results", POINTER(c_int32)),
        ("reserved", c_uint64 * 4),
    ]
    count: int
    used: int
    room: int
    results_room: int
    next: int
    index: int
    listed: bool
    got: bool
    recs: int | None
    results: Any
    reserved: Array[c_uint64]


class wq_info(Structure):
    """struct wq_info"""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("version", c_uint32),
        ("max_key", c_uint32),
        ("max_array", c_uint32),
        ("max_keys", c_uint32),
        ("user_queues", c_uint32),
        ("charged_queues", c_uint32),
        ("user_keys", c_uint64),
        ("charged_keys", c_uint64),
        ("user_waits", c_uint32),
        ("charged_waits", c_uint32),
        ("user_bytes", c_uint64),
        ("charged_bytes", c_uint64),
        ("user_sources", c_uint32),
        ("charged_sources", c_uint32),
    ]
    size: int
    flags: int
    version: int
    max_key: int
    max_array: int
    max_keys: int
    user_queues: int
    charged_queues: int
    user_keys: int
    charged_keys: int
    user_waits: int
    charged_waits: int
    user_bytes: int
    charged_bytes: int
    user_sources: int
    charged_sources: int


class wq_limiter_spec(Structure):
    """struct wq_limiter_spec"""

    _fields_ = [
        ("kind", c_uint32),
        ("n", c_uint32),
        ("base", c_int64),
        ("max", c_int64),
        ("rate", c_uint64),
    ]
    kind: int
    n: int
    base: int
    max: int
    rate: int


class wq_attrs(Structure):
    """struct wq_attrs"""

    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char * 64),
        ("set", c_uint32),
        ("mode", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("max_keys", c_uint32),
        ("num_limiters", c_uint32),
        ("limiters", c_uint64),
        ("lease", c_int64),
        ("slack", c_int64),
        ("max_defer", c_int64),
        ("order", c_uint32),
        ("order_arg", c_uint32),
        ("group_limit", c_uint32),
        ("max_retries", c_uint32),
        ("fd", c_uint32),
        ("max_processing", c_uint32),
        ("start_rate", c_uint64),
        ("start_burst", c_uint32),
        ("group_start_burst", c_uint32),
        ("group_start_rate", c_uint64),
        ("group_ageing", c_uint32),
        ("reserved", c_uint32),
    ]
    size: int
    flags: int
    name: bytes
    set: int
    mode: int
    uid: int
    gid: int
    max_keys: int
    num_limiters: int
    limiters: int
    lease: int
    slack: int
    max_defer: int
    order: int
    order_arg: int
    group_limit: int
    max_retries: int
    fd: int
    max_processing: int
    start_rate: int
    start_burst: int
    group_start_burst: int
    group_start_rate: int
    group_ageing: int
    reserved: int


class wq_queue(Structure):
    """struct wq_queue"""

    _fields_ = [
        ("name", c_char * 64),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("mode", c_uint32),
        ("state", c_uint32),
        ("ready", c_uint32),
        ("processing", c_uint32),
        ("delayed", c_uint32),
        ("keys", c_uint32),
        ("consumers", c_uint32),
        ("parked", c_uint32),
        ("blocked", c_uint32),
        ("ready_groups", c_uint32),
        ("oldest", c_int64),
    ]
    name: bytes
    uid: int
    gid: int
    mode: int
    state: int
    ready: int
    processing: int
    delayed: int
    keys: int
    consumers: int
    parked: int
    blocked: int
    ready_groups: int
    oldest: int


class wq_source_op(Structure):
    """struct wq_source_op"""

    _fields_ = [
        ("size", c_uint32),
        ("op", c_uint32),
        ("id", c_uint32),
        ("flags", c_uint32),
        ("kind", c_char * 16),
        ("prefix", c_char * 32),
        ("delay", c_int64),
        ("arg", c_uint64),
        ("arg_size", c_uint32),
        ("uid", c_uint32),
        ("state", c_uint32),
        ("error", c_int32),
        ("failed_adds", c_uint64),
        ("rescans", c_uint64),
    ]
    size: int
    op: int
    id: int
    flags: int
    kind: bytes
    prefix: bytes
    delay: int
    arg: int
    arg_size: int
    uid: int
    state: int
    error: int
    failed_adds: int
    rescans: int


class wq_fs_args(Structure):
    """struct wq_fs_args"""

    _fields_ = [
        ("fd", c_int32),
        ("flags", c_uint32),
        ("events", c_uint32),
        ("reserved", c_uint32),
        ("rules", c_uint64),
        ("rules_size", c_uint32),
        ("reserved2", c_uint32),
    ]
    fd: int
    flags: int
    events: int
    reserved: int
    rules: int
    rules_size: int
    reserved2: int


class wq_net_args(Structure):
    """struct wq_net_args"""

    _fields_ = [
        ("tables", c_uint32),
        ("flags", c_uint32),
    ]
    tables: int
    flags: int


class wq_bpf_args(Structure):
    """struct wq_bpf_args"""

    _fields_ = [
        ("channel", c_uint32),
        ("flags", c_uint32),
    ]
    channel: int
    flags: int


class wq_producer(Structure):
    """struct wq_producer"""

    _fields_ = [
        ("coalesced", c_uint64),
        ("page", c_void_p),
        ("slots", c_void_p),
        ("marks", c_void_p),
        ("marks_room", c_uint32),
        ("mask", c_uint32),
        ("shift", c_uint32),
        ("turn", c_uint32),
        ("q", c_int),
        ("reserved", c_uint64 * 4),
    ]
    coalesced: int
    page: int | None
    slots: int | None
    marks: int | None
    marks_room: int
    mask: int
    shift: int
    turn: int
    q: int
    reserved: Array[c_uint64]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of durations: up to 10 ns, up to 100 ns, and so on up to 10 s, and longer ones.
    Times are ns.

    sum: the sum of all durations, ns, modulo 2^64
    counts: the number of durations in each range
    """

    sum: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stat:
    """The statistics of a queue, all from one moment. Times are ns.

    name: the queue's name, empty for a private queue
    uid: the queue's owner, as a number of the caller's user namespace
    gid: the queue's group, as a number of the caller's user namespace
    mode: permission bits
    state: State
    ready: number of ready keys
    processing: number of keys in processing
    held: how many of these this file holds
    keys: number of keys in any state. Delayed keys that a shut down dropped count here and in
        failed until the queue's thread has freed them
    max_keys: the limit of keys
    delayed: number of delayed keys
    adds: adds that made a key newly dirty, at once or when a delay ended, and kicks
    coalesced: adds of a key that was dirty. Adds that the queue's map answered are not calls, so
        only their producers can count them
    gets: keys that were handed out
    dones: runs that ended with done
    given_back: runs that ended because the consumer ended, the lease expired, or the key could not
        be written to the getter's buffer or its process was being killed
    canceled: runs that were dropped before they started: by cancel, disable or the end of the queue
    merged: keys that were given back, ahead of all others, and were dirty too, so that two runs
        became one. In the queue of a kernel module, also keys that were dirty when their run
        failed, if adds join a retry there
    next_due: ns until the first delayed key needs a run, 0: now; -1 if no key is delayed
    retries: adds with a delay, WQ_ADD_AFTER or WQ_ADD_RATE_LIMITED, also if they park the key;
        dones with RETRY, AFTER or REST and runs in given_back_failed, if the key was added again
    dropped: delayed keys that a shut down dropped, and retries after it or of disabled keys
    failed: number of keys with failures that were not forgotten
    retained: how many of the failed keys are in no other state. Such a key counts in keys until its
        failures are reset by forget or it is canceled
    memory: bytes of memory for the queue, its keys, the hash table, and the heap of delayed keys
    depth: number of dirty keys: ready, or dirty while processing (client-go's depth)
    consumers: number of open files that are bound to the queue
    unfinished: ns since their get, summed over all keys in processing, modulo 2^64. This field,
        longest, waits and works are 0 in a queue without a name, which records no times
    longest: ns since the get of the key that is processing longest
    waits: durations from dirty to handed out
    works: durations from handed out to done
    lease: the queue's lease, ns; 0: none
    expired: how many runs in given_back ended because their lease expired
    given_back_failed: how many runs in given_back counted as a failure of their key, because the
        key's run before was given back too
    slack: the queue's slack, ns; 0: the queue of a kernel module, which has none
    gets_resume: ns until gets resume by themselves, 0: now; -1 if they are not paused, or stay
        paused until WQ_IOC_PAUSE resumes them
    adds_resume: as gets_resume, of adds
    failures: how many in retries counted as a failure: WQ_ADD_RATE_LIMITED, done with RETRY, and
        given_back_failed. The others are delays
    oldest: ns since the ready key that became ready first became dirty: how long keys have been
        waiting for a consumer. A key that was given back counts only if it is the next of these
        keys, although others can be older. -1 if no key is ready, in a queue without a name, and if
        the ordering policy of a kernel module does not report it
    parked: number of parked keys. A key that is parked after its run counts from then on. In the
        queue of a kernel module, also embedded entries, to which max_parked does not apply
    max_parked: the limit of parked: a quarter of max_keys, 1 at least
    parked_total: how often a key was parked
    parked_dropped: parked keys that were dropped because parked was at its limit
    kicked: keys that WQ_DO_KICK made ready, or that it kept from being parked
    disabled: number of disabled keys
    waiters: number of waits for keys and embedded entries, see WQ_IOC_WAIT
    blocked: ready keys that gets can have only later: the sum of blocked_by_group,
        blocked_by_ceiling, blocked_by_rate, blocked_by_rest and blocked_by_group_rate
    ready_groups: in a queue with groups: number of groups with ready keys. A key that was given
        back and is ahead of all others counts neither here nor in ready_by_priority
    sources: number of sources that are attached, see <linux/wq_source.h>
    ended_sources: how many of them have ended, because what they watched is gone
    blocked_by_group: ready keys beyond the limits of their groups, see wq_attrs.group_limit. A
        kernel module's own order can block keys, too
    blocked_by_ceiling: other ready keys, beyond wq_attrs.max_processing
    blocked_by_rate: other ready keys, which wait for a token of wq_attrs.start_rate
    blocked_by_rest: ready keys of groups that rest, see WQ_DO_REST
    next_start: ns until there is a token; 0: there is one; -1: the queue has no start rate
    resting_groups: number of groups that rest, with or without keys
    blocked_by_group_rate: ready keys that wait for a token of wq_attrs.group_start_rate
    next_group: ns until the first group has what it waits for, 0: now; -1: no group waits for a
        time, or that time never comes. A group waits for the end of its rest, for a token of
        wq_attrs.group_start_rate or, without keys, until its bucket is full
    resumes: how often a pause of gets or of adds has ended, by a call, by its time or by a shut
        down. If it has not changed, and gets and adds are paused, they were paused the whole time
    """

    name: str
    uid: int
    gid: int
    mode: int
    state: State
    ready: int
    processing: int
    held: int
    keys: int
    max_keys: int
    delayed: int
    adds: int
    coalesced: int
    gets: int
    dones: int
    given_back: int
    canceled: int
    merged: int
    next_due: int
    retries: int
    dropped: int
    failed: int
    retained: int
    memory: int
    depth: int
    consumers: int
    unfinished: int
    longest: int
    waits: Histogram
    works: Histogram
    lease: int
    expired: int
    given_back_failed: int
    slack: int
    gets_resume: int
    adds_resume: int
    failures: int
    oldest: int
    parked: int
    max_parked: int
    parked_total: int
    parked_dropped: int
    kicked: int
    disabled: int
    waiters: int
    blocked: int
    ready_groups: int
    sources: int
    ended_sources: int
    blocked_by_group: int
    blocked_by_ceiling: int
    blocked_by_rate: int
    blocked_by_rest: int
    next_start: int
    resting_groups: int
    blocked_by_group_rate: int
    next_group: int
    resumes: int


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The state of a key. Times are ns.

    key: the key
    state: KeyState
    failures: how often the key failed since its failures were last forgotten, 2^32 - 1 above
        524,286. An idle key loses its failures if the queue's limiter does not use them.
    num_requeues: the failures as the queue's limiter counts them (client-go's NumRequeues); 0 if
        the limiter does not count by key, for example a bucket
    holder: PROCESSING: the process that opened the file which holds the key, as a number of the
        caller's pid namespace. WQ_HELD_BY_KERNEL if a kernel consumer holds the key. 0 if the
        namespace does not have the process, if the process has ended, and in all other states
    age: ns since the key was handed out if it is PROCESSING, else since it became DIRTY or PARKED;
        0 in all other states, and in a queue without a name, which records no times. A key that was
        given back and not added again is DIRTY since before the run that was lost.
    due: DELAYED: ns until the key needs a run, 0: now; -1 in all other states
    lease: PROCESSING: ns until the lease expires, 0: now; -1: no lease, and in all other states
    given_back: how many runs of the key in a row were given back, up to now; see wq_rec.given_back.
        A done resets it. A cancel resets it unless the key is PROCESSING
    priority: in a queue whose keys have priorities: PROCESSING: the priority of the run. PARKED
        alone: that of its last run. DIRTY alone: the priority at which the key waits. DELAYED
        alone: the priority of the delayed adds. 0 in all other states and queues
    error: PARKED and not PROCESSING: the errno of the run that failed, or 0. EOWNERDEAD: the key
        was given back too often. 0 in all other states
    reason: a text for people: why the run failed, as its consumer passed it, any bytes. The bytes
        behind it are 0
    last_result: how the last run of the key ended, LastResult. WQ_LAST_NONE if the key is
        PROCESSING, was not handed out since it is in this queue, or was handed out to a get that
        failed. A queue without a name records no times, and has WQ_LAST_NONE for all keys
    last_age: ns since that run ended, up to 1.05 ms too long; 0 with WQ_LAST_NONE
    last_took: ns that it took, up to 1/16,384 too short; 0 with WQ_LAST_NONE
    """

    key: bytes
    state: KeyState
    failures: int
    num_requeues: int
    holder: int
    age: int
    due: int
    lease: int
    given_back: int
    priority: int
    error: int
    reason: str
    last_result: LastResult
    last_age: int
    last_took: int


@dataclass(frozen=True, slots=True)
class Info:
    """The limits of the kernel's wq. Times are ns.

    version: out, WQ_API_VERSION
    max_key: out, the kernel's WQ_MAX_KEY
    max_array: out, the kernel's WQ_MAX_ARRAY
    max_keys: out, the kernel's WQ_MAX_KEYS
    user_queues: out, how many queues a user may have
    charged_queues: out, how many queues the user has, also private and unlinked ones that are open
    user_keys: out, the limit on the sum of max_keys of all queues of a user
    charged_keys: out, that sum, however many keys the queues hold
    user_waits: out, how many waits a user may have, see WQ_IOC_WAIT
    charged_waits: out, how many waits the user has
    user_bytes: out, how many bytes of memory the queues of a user and their keys may take. Queues
        that a process with CAP_SYS_RESOURCE created do not count until another user than root is
        their owner
    charged_bytes: out, how many they take, and up to 768 KiB more for each queue
    user_sources: out, how many sources a user may have, see WQ_IOC_SOURCE
    charged_sources: out, how many sources the user has
    """

    version: int
    max_key: int
    max_array: int
    max_keys: int
    user_queues: int
    charged_queues: int
    user_keys: int
    charged_keys: int
    user_waits: int
    charged_waits: int
    user_bytes: int
    charged_bytes: int
    user_sources: int
    charged_sources: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue in a directory of wqueue. Fields without a text are those of Stat. Times are ns.

    consumers: number of open files, without that of wq_queues()
    """

    name: str
    uid: int
    gid: int
    mode: int
    state: State
    ready: int
    processing: int
    delayed: int
    keys: int
    consumers: int
    parked: int
    blocked: int
    ready_groups: int
    oldest: int


@dataclass(frozen=True, slots=True)
class LimiterSpec:
    """A part of a limiter. Times are ns.

    kind: LimiterKind
    n: FAST_SLOW: number of fast failures. BUCKET: capacity in tokens; a new bucket is full. MAX_OF:
        number of limiters, 1 or more
    base: EXPONENTIAL: delay after the first failure. FAST_SLOW: the fast delay. ns, not negative
    max: EXPONENTIAL and MAX_WAIT: the longest delay. FAST_SLOW: the slow delay. ns, not negative
    rate: BUCKET: tokens per 10^9 seconds, WQ_QPS(n) for n tokens a second. Below 2^63, and the
        bucket must fill up in less than 2^63 ns. Each failure takes a token. If there is none, the
        bucket goes into debt and the key waits until the debt is paid. With rate 0 no token is ever
        added, and a key that finds none waits forever. With n 0 each failed key waits forever.
    """

    kind: LimiterKind
    n: int
    base: int
    max: int
    rate: int


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a queue, which open() describes. Times are ns.

    limiter: the parts of the limiter
    start_rate: starts in 10^9 seconds
    group_start_rate: starts of each group in 10^9 seconds
    """

    limiter: tuple[LimiterSpec, ...]
    name: str
    mode: int
    uid: int
    gid: int
    max_keys: int
    lease: int
    slack: int
    max_defer: int
    order: Order
    order_arg: int
    group_limit: int
    max_retries: int
    max_processing: int
    start_rate: int
    start_burst: int
    group_start_burst: int
    group_start_rate: int
    group_ageing: int


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a queue, see Queue.attach(). Times are ns.

    watches: a text for people, such as the path of the directory
    id: its number, which no other source of the queue has had
    kind: fs, net or bpf
    prefix: what is put ahead of each key
    delay: how long a change waits for further ones
    uid: the user that attached it
    error: an errno if it has ended, else 0
    rescans: how many rescan keys were added for marks
    """

    watches: str
    id: int
    flags: SourceFlag
    kind: str
    prefix: str
    delay: int
    uid: int
    state: SourceState
    error: int
    failed_adds: int
    rescans: int


# Data models: bytes of a pointer, and the alignment of 64 bits in a struct.
MODELS = ((8, 8), (4, 4), (4, 8))

# The size of each struct in these models.
SIZES = (
    (wq_item, (1088, 1080, 1080)),
    (wq_hist, (96, 96, 96)),
    (wq_stat, (600, 600, 600)),
    (wq_key_info, (144, 144, 144)),
    (wq_view, (176, 164, 168)),
    (wq_items, (80, 68, 72)),
    (wq_info, (80, 80, 80)),
    (wq_limiter_spec, (32, 32, 32)),
    (wq_attrs, (184, 184, 184)),
    (wq_queue, (120, 120, 120)),
    (wq_source_op, (112, 112, 112)),
    (wq_fs_args, (32, 32, 32)),
    (wq_net_args, (8, 8, 8)),
    (wq_bpf_args, (8, 8, 8)),
    (wq_producer, (88, 72, 72)),
)

# The type of the result and the types of the arguments.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "wq_until": (c_int64, [c_int64]),
    "wq_open": (c_int, [c_char_p, c_int, c_uint, c_uint]),
    "wq_open_same": (c_int, [c_int, c_int]),
    "wq_open_attr_sized": (c_int, [c_char_p, c_int, c_uint, POINTER(wq_attrs), c_size_t]),
    "wq_unlink": (c_int, [c_char_p]),
    "wq_reopen": (c_int, [c_int, c_char_p, c_int, c_int64]),
    "wq_attrs_sized": (c_int, [c_int, POINTER(wq_attrs), POINTER(wq_limiter_spec), c_uint,
        c_size_t]),
    "wq_set_attrs_sized": (c_int, [c_int, POINTER(wq_attrs), c_size_t]),
    "wq_add": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_add_after": (c_int, [c_int, c_void_p, c_size_t, c_int64, c_uint]),
    "wq_add_priority": (c_int, [c_int, c_void_p, c_size_t, c_int, c_int64, c_uint]),
    "wq_add_rate_limited": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_forget": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_num_requeues": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_get": (c_int, [c_int, POINTER(wq_item), c_int64]),
    "wq_touch": (c_int, [c_int, POINTER(wq_item)]),
    "wq_touch_key": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_done": (c_int, [c_int, POINTER(wq_item)]),
    "wq_done_key": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_done_with": (c_int, [c_int, POINTER(wq_item), c_int64, c_uint]),
    "wq_done_failed": (c_int, [c_int, POINTER(wq_item), c_uint, c_int, c_char_p]),
    "wq_rest_group": (c_int, [c_int, c_void_p, c_size_t, c_int64]),
    "wq_kick": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_kick_many": (c_int, [c_int, c_uint32]),
    "wq_done_get": (c_int, [c_int, POINTER(wq_item), c_int64, c_uint, c_int64]),
    "wq_query": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_query_info_sized": (c_int, [c_int, c_void_p, c_size_t, POINTER(wq_key_info), c_size_t]),
    "wq_query_last_sized": (c_int, [c_int, c_void_p, c_size_t, POINTER(wq_key_info), c_size_t]),
    "wq_cancel": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_wait_key": (c_int, [c_int, c_void_p, c_size_t, c_int64]),
    "wq_wait_fd": (c_int, [c_int, c_void_p, c_size_t, c_uint32, c_int]),
    "wq_wait": (c_int, [c_int, c_int64]),
    "wq_disable": (c_int, [c_int, c_void_p, c_size_t, c_int64]),
    "wq_enable": (c_int, [c_int, c_void_p, c_size_t]),
    "wq_restore_sized": (c_int, [c_int, c_void_p, c_size_t, POINTER(wq_key_info), c_size_t]),
    "wq_attach": (c_int, [c_int, POINTER(wq_source_op)]),
    "wq_source_next": (c_int, [c_int, POINTER(wq_source_op), c_char_p, c_size_t]),
    "wq_detach": (c_int, [c_int, c_uint32]),
    "wq_pause": (c_int, [c_int, c_uint32, c_int64]),
    "wq_resume": (c_int, [c_int, c_uint32]),
    "wq_shutdown": (c_int, [c_int]),
    "wq_drain_begin": (c_int, [c_int]),
    "wq_drain": (c_int, [c_int, c_int64]),
    "wq_stat_sized": (c_int, [c_int, POINTER(wq_stat), c_size_t, POINTER(c_uint32)]),
    "wq_info_sized": (c_int, [POINTER(wq_info), c_size_t]),
    "wq_queues_sized": (c_int, [c_char_p, POINTER(POINTER(wq_queue)), c_size_t]),
    "wq_items_put": (c_int, [POINTER(wq_items), c_void_p, c_size_t, c_uint64]),
    "wq_items_put_after": (c_int, [POINTER(wq_items), c_void_p, c_size_t, c_int64, c_uint]),
    "wq_items_put_priority": (c_int, [POINTER(wq_items), c_void_p, c_size_t, c_int, c_int64,
        c_uint]),
    "wq_items_put_done": (c_int, [POINTER(wq_items), c_void_p, c_size_t, c_uint64, c_int64,
        c_uint]),
    "wq_items_reset": (None, [POINTER(wq_items)]),
    "wq_items_free": (None, [POINTER(wq_items)]),
    "wq_items_next_sized": (c_bool, [POINTER(wq_items), POINTER(wq_view), c_size_t]),
    "wq_add_many": (c_int, [c_int, POINTER(wq_items)]),
    "wq_done_many": (c_int, [c_int, POINTER(wq_items)]),
    "wq_touch_many": (c_int, [c_int, POINTER(wq_items)]),
    "wq_get_many": (c_int, [c_int, POINTER(wq_items), c_uint, c_int64]),
    "wq_done_get_many": (c_int, [c_int, POINTER(wq_items), POINTER(wq_items), c_uint, c_int64]),
    "wq_list": (c_int, [c_int, POINTER(wq_items), c_uint, POINTER(c_uint64)]),
    "wq_list_since": (c_int, [c_int, POINTER(wq_items), c_uint, POINTER(c_uint64)]),
    "wq_list_idle": (c_int, [c_int, POINTER(wq_items), c_uint, POINTER(c_uint64)]),
    "wq_list_groups": (c_int, [c_int, POINTER(wq_items), c_uint, POINTER(c_uint64)]),
    "wq_producer_init": (c_int, [POINTER(wq_producer), c_int, c_uint]),
    "wq_producer_free": (None, [POINTER(wq_producer)]),
    "wq_producer_waits": (c_bool, [POINTER(wq_producer), c_void_p, c_size_t]),
    "wq_producer_add": (c_int, [POINTER(wq_producer), c_void_p, c_size_t]),
    "wq_producer_add_many": (c_int, [POINTER(wq_producer), POINTER(wq_items)]),
    "wq_periodic_name": (c_size_t, [c_void_p, c_size_t]),
    "wq_periodic_due": (c_int64, [c_void_p, c_size_t, c_int64]),
    "wq_periodic_add": (c_int, [c_int, c_void_p, c_size_t, c_int]),
    "wq_periodic_begin": (c_int, [c_int, POINTER(wq_item)]),
    "wq_periodic_watch": (c_int, []),
    "wq_periodic_move": (c_int, [c_int, c_int, POINTER(c_int64)]),
}
