# SPDX-License-Identifier: LGPL-2.1-only
"""The verbs of wq(4) that have keys, by ioctl on the kernel's records."""
import ctypes
import errno
import os
from collections.abc import Iterable
from fcntl import ioctl
from struct import Struct

from . import _abi
from ._lib import check_length, checked

# _IOC_NONE is 1 on these machines, and 0 on the others.
_NONE = 1 << 29 if os.uname().machine.startswith(("alpha", "mips", "ppc", "sparc")) else 0
ADD, GET, DONE, TOUCH = (verb | _NONE for verb in (_abi.WQ_IOC_ADD, _abi.WQ_IOC_GET,
                                                   _abi.WQ_IOC_DONE, _abi.WQ_IOC_TOUCH))

_ADD = Struct(_abi.WQ_ADD_TO_RESULTS)   # also of touch and done: the other fields are 0
_GET = Struct(_abi.WQ_GET)
_DONE = Struct(_abi.WQ_DONE)
_REC = Struct(_abi.WQ_REC)
_REASON = Struct(_abi.WQ_REASON_REC)
_KEYS = Struct(_abi.WQ_KEYS)
_TIMEOUT = Struct("=q")
# The fields that differ from call to call: size and count of the keys, and the times of a get.
_COUNTS = Struct("=II")
_COUNTS_AT = _abi.WQ_GET_KEYS_AT + _KEYS.size - _COUNTS.size
_WAIT = Struct("=IIqq")

# Fields of a record.
FAILURES, GIVEN_BACK, PRIORITY, TOKEN = map(_abi.WQ_REC_FIELDS.index, (
    "failures", "given_back", "priority", "token"))

_KEY_AT = _REC.size
# A record with its key and the padding up to 8 bytes.
_SHORTEST, _LONGEST = (_KEY_AT + -(-size // 8) * 8 for size in (1, _abi.WQ_MAX_KEY))
_MOST = _abi.WQ_MAX_OUT // _SHORTEST            # keys of a call
_RESULT = Struct("=i")
_AT = _MOST * _RESULT.size                      # the records are behind their results
_FIRST_KEY = _AT + _KEY_AT
_LEN, _FLAGS = _abi.WQ_REC_LEN_AT // 2, _abi.WQ_REC_FLAGS_AT // 2
_FIRST_TOKEN = (_AT + _abi.WQ_REC_TOKEN_AT) // 8
_FORGET = _abi.WQ_OUTCOME_FORGET
UNHANDLED = -2 ** 31                            # the result of a key that the kernel did not reach
_NO_RESULTS = _RESULT.pack(UNHANDLED) * _MOST


class _Layouts(dict[int, Struct]):
    """A record, by the length of its key."""

    def __init__(self, rec: str) -> None:
        self._rec = rec

    def __missing__(self, size: int) -> Struct:
        layout = self[size] = Struct(f"{self._rec}{size}s{-size % 8}x")
        return layout


class Packer(dict[int, tuple[bytes, bytes, int]]):
    """The bytes ahead of a key and behind it in a record to add, and the record's size, by the
    length of the key."""

    def __init__(self, flags: int, priority: int, delay: int) -> None:
        self._fields = (flags, 0, 0, priority, 0, delay)

    def __missing__(self, size: int) -> tuple[bytes, bytes, int]:
        check_length(size)
        padding = bytes(-size % 8)
        around = (_REC.pack(size, *self._fields), padding, _KEY_AT + size + len(padding))
        self[size] = around
        return around


PLAIN = Packer(0, 0, 0)
_full = _Layouts(_abi.WQ_REC)
_short = _Layouts(_abi.WQ_REC_SHORT)            # len, flags, token and key


class Call:
    """The structs of the verbs, and memory for the results and records that they point to.

    ioctl() copies a struct of up to 1,024 bytes, and then lets other threads run during the call.
    The kernel writes the records to their address. A bytearray with a memoryview cannot be
    resized, so it stays where it is.
    """

    __slots__ = ("add", "getting", "done", "memory", "results", "words", "halves", "address",
                 "records", "used", "count", "answer", "keys_at")

    def __init__(self, room: int) -> None:
        self.memory = bytearray(_AT + room + _REASON.size)
        self.results = memoryview(self.memory)[:_AT].cast("i")
        self.words = memoryview(self.memory)[:_AT + _KEY_AT].cast("Q")
        self.halves = memoryview(self.memory)[_AT:_AT + room].cast("H")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.records = self.address + _AT
        self.add = bytearray(_ADD.size)
        _ADD.pack_into(self.add, 0, _ADD.size, 0, self.records, 0, 0, self.address)
        self.getting = bytearray(_GET.size)
        _GET.pack_into(self.getting, 0, _GET.size, 0, self.records, 0, 0, 0, 0)
        self.done = bytearray(_DONE.size)
        self.used = self.count = self.keys_at = 0
        self.answer = self.getting      # where the kernel counts the records of a get

    def put_records(self, records: bytes, count: int) -> None:
        """Put packed records. The kernel has reached none of them yet."""
        self.memory[:_AT] = _NO_RESULTS
        self.used, self.count = len(records), count
        self.memory[_AT:_AT + self.used] = records

    def put_all(self, keys: Iterable[tuple[bytes, int]], flags: int) -> None:
        """Put the keys and tokens of one get, which have room, as put_records()."""
        memory, at = self.memory, _AT
        memory[:_AT] = _NO_RESULTS
        for key, token in keys:
            size = len(key)
            layout = _short[size]
            layout.pack_into(memory, at, size, flags, token, key)
            at += layout.size
            self.count += 1
        self.used = at - _AT

    def send(self, fd: int, verb: int) -> list[int]:
        """Add, end or touch the keys that were put. Returns a result or -errno for each.

        Raises if the call fails before it reaches a key.
        """
        _COUNTS.pack_into(self.add, _COUNTS_AT, self.used, self.count)
        result = send(fd, verb, self.add)
        each = self.of_each()
        if result < 0:
            if each[0] == UNHANDLED:
                checked(result)
            each = [result if one == UNHANDLED else one for one in each]
        return each

    def of_each(self) -> list[int]:
        """The results of the keys that were put."""
        each: list[int] = self.results[:self.count].tolist()
        return each

    def get(self, fd: int, most: int, timeout: int) -> int:
        """Get keys into the records. Returns 0 or -errno. timeout: ns, negative: none"""
        self.answer, self.keys_at = self.getting, _abi.WQ_GET_KEYS_AT
        _WAIT.pack_into(self.getting, _COUNTS_AT, _abi.WQ_MAX_OUT, most, timeout, 0)
        return wait(fd, GET, self.getting)

    def done_get(self, fd: int, done: "Call", most: int, timeout: int) -> int:
        """End the runs of the keys that were put into done, and get keys into the records.

        Returns 0 or -errno. done.of_each() has the results of the runs.
        """
        self.answer, self.keys_at = self.done, _abi.WQ_DONE_NEXT_AT
        _DONE.pack_into(self.done, 0, _DONE.size, _abi.WQ_DONE_GET, done.records, done.used,
                        done.count, done.address, self.records, _abi.WQ_MAX_OUT, most, timeout, 0)
        result = send(fd, DONE, self.done)
        if result == -errno.EINTR:      # the runs have ended already
            left: int = _TIMEOUT.unpack_from(self.done, _abi.WQ_DONE_TIMEOUT_AT)[0]
            result = self.get(fd, most, left or 1)      # 0 would not wait, and is another error
        return result

    def got_records(self) -> bytes:
        """The records of a get; none if it failed or has not begun."""
        if not self.words[_FIRST_TOKEN]:
            return b""
        used = _KEYS.unpack_from(self.answer, self.keys_at)[1]
        return bytes(self.memory[_AT:_AT + used])

    def got(self) -> list[bytes]:
        """The records of a get without padding; none if it failed or has not begun.

        got_records() returns them with the outcome of a success from then on.
        """
        data, at = self.got_records(), 0
        found: list[bytes] = []
        if not data:
            return found
        count = _KEYS.unpack_from(self.answer, self.keys_at)[2]
        halves = self.halves
        for _ in range(count):
            half = at >> 1
            end = at + _KEY_AT + halves[half + _LEN]
            halves[half + _FLAGS] = _FORGET
            found.append(data[at:end])
            at = end + 7 & -8
        return found

    def first(self) -> bytes:
        """The record of a get of one key; b"" as long as there is none."""
        if not self.words[_FIRST_TOKEN]:
            return b""
        return bytes(self.memory[_AT:_FIRST_KEY + self.halves[_LEN]])


fields = _REC.unpack_from       # of a record
KEY = slice(_KEY_AT, None)


def key_of(record: bytes) -> bytes:
    """The key of a record with its padding."""
    size: int = _REC.unpack_from(record)[0]
    return record[_KEY_AT:_KEY_AT + size]


# Calls that are not in use. Threads and signal handlers take them, which pop() and append() permit.
_of_one: list[Call] = []
_of_many: list[Call] = []


def of_many() -> Call:
    """A call for an array of keys. Give it back with free()."""
    try:
        call = _of_many.pop()
    except IndexError:
        return Call(_abi.WQ_MAX_OUT)
    call.used = call.count = 0
    call.words[_FIRST_TOKEN] = 0        # so that got() has none
    return call


def free(call: Call) -> None:
    """Keep a call of of_many() for others. Without it, the call's memory is freed."""
    _of_many.append(call)


def get_one(timeout: int) -> Call:
    """A call whose struct in getting is ready for one key. Give it back with free_one()."""
    try:
        call = _of_one.pop()
    except IndexError:
        call = Call(_LONGEST)
    call.words[_FIRST_TOKEN] = 0        # so that first() has no token
    _WAIT.pack_into(call.getting, _COUNTS_AT, _LONGEST, 1, timeout, 0)
    return call


def free_one(call: Call) -> None:
    """Keep a call of get_one() for others."""
    _of_one.append(call)


def send(fd: int, verb: int, arg: bytearray) -> int:
    """A call. Returns its result, or -errno."""
    try:
        return ioctl(fd, verb, arg)
    except OSError as error:
        return failed(error)


def failed(error: OSError) -> int:
    """-errno of an ioctl() that raised in the caller. An error of a signal handler goes on."""
    trace = error.__traceback__
    if error.errno is None or (trace and trace.tb_next):        # the handler has a frame of its own
        raise error
    return -error.errno


def wait(fd: int, verb: int, arg: bytearray) -> int:
    """send() that goes on after a signal, unless Python's handler of the signal raises.

    The kernel notes in a struct wq_get when the wait ends, so signals do not prolong it.
    """
    while True:
        result = send(fd, verb, arg)
        if result != -errno.EINTR:
            return result


def one(fd: int, verb: int, key: bytes, token: int = 0, flags: int = 0, priority: int = 0,
        delay: int = 0) -> int:
    """Add, end or touch a key. Returns its result, or -errno."""
    try:
        call = _of_one.pop()
    except IndexError:
        call = Call(_LONGEST)
    size = len(key)
    if priority or delay:
        layout = _full[size]
        layout.pack_into(call.memory, _AT, size, flags, 0, 0, priority, token, delay, key)
    else:
        layout = _short[size]
        layout.pack_into(call.memory, _AT, size, flags, token, key)
    _COUNTS.pack_into(call.add, _COUNTS_AT, layout.size, 1)
    try:
        result = ioctl(fd, verb, call.add) or call.results[0]
    except OSError as error:
        result = failed(error)
    _of_one.append(call)
    return result


def back(fd: int, verb: int, rec: bytes, flags: int) -> int:
    """End or touch a key by the record of its get. Returns its result, or -errno."""
    try:
        call = _of_one.pop()
    except IndexError:
        call = Call(_LONGEST)
    size = len(rec)
    call.memory[_AT:_AT + size] = rec
    call.halves[_FLAGS] = flags
    _COUNTS.pack_into(call.add, _COUNTS_AT, size + 7 & -8, 1)
    try:
        result = ioctl(fd, verb, call.add) or call.results[0]
    except OSError as error:
        result = failed(error)
    _of_one.append(call)
    return result


def done_failed(fd: int, key: bytes, token: int, outcome: int, error: int, text: bytes) -> int:
    """End a run as a failure with an errno and up to WQ_MAX_REASON bytes. Returns as one()."""
    call = Call(_LONGEST)
    call.put_all([(key, token)], outcome)
    reason = _AT + _LONGEST
    _REASON.pack_into(call.memory, reason, error, len(text), text)
    _DONE.pack_into(call.done, 0, _DONE.size, 0, call.records, call.used, 1, call.address, 0, 0, 0,
                    0, call.address + reason)
    return send(fd, DONE, call.done) or call.results[0]
