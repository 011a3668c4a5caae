"""The system calls that a sandboxed command cannot make, as a classic BPF program.

A deny-list: the namespaces confine the command, and this filter refuses system calls that have
been used to escape from them. Used by `bubblewrap.py`, which passes the program by descriptor.
"""

from __future__ import annotations

import platform
import struct
from functools import cache

EPERM, ENOSYS = 1, 38
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENT_OFFSET = 0, 4, 16  # offsets in struct seccomp_data

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
X32 = 0x40000000

# name: (x86_64, aarch64); -1 where there is none
REFUSED = {
    # the mount table
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    # other namespaces
    "unshare": (272, 97), "setns": (308, 268),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116), "quotactl": (179, 60),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "userfaultfd": (323, 282),
    "iopl": (172, -1), "ioperm": (173, -1),
    # keys of the user's session, files by handle
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
}  # fmt: skip
# Reported as missing, so that programs fall back to calls that can be filtered by arguments.
REPORTED_MISSING = {
    "clone3": (435, 435), "openat2": (437, 437),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
CLONE, IOCTL = (56, 220), (16, 29)
# name: (x86_64, aarch64, argument with the mode). A file of the user with the set-uid bit would let
# other users of the machine act as the user; the host keeps the bit, whatever the mount options.
WITH_MODE = {
    "chmod": (90, -1, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2), "open": (2, -1, 2), "openat": (257, 56, 3), "creat": (85, -1, 1),
    "mknod": (133, -1, 1), "mknodat": (259, 33, 2),
}  # fmt: skip
SET_UID = 0o4000
CREATE_FLAGS = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
SOCKETS = ((41, 198), (53, 199))  # socket, socketpair
NEW_NAMESPACE = 0x7E020000  # NEWUSER NEWPID NEWNET NEWIPC NEWUTS NEWCGROUP NEWNS
TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
SOCKET_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK; VSOCK ignores namespaces


class UnknownMachine(Exception):
    """There is no table of system calls for this machine."""


@cache
def build_filter(machine: str = "") -> bytes:
    """The program for this machine; UnknownMachine if there is none."""
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise UnknownMachine(f"the sandbox has no table of system calls for {machine}")
    architecture, column = ARCHITECTURES[machine]
    code = [
        _load(ARCHITECTURE_OFFSET),
        _jump(JUMP_EQUAL, architecture, 1, 0),
        _refuse(EPERM),  # 32-bit programs have other numbers: refuse all their calls
        _load(NUMBER_OFFSET),
    ]
    if machine == "x86_64":
        code += [_jump(JUMP_GREATER_EQUAL, X32, 0, 1), _refuse(EPERM)]
    for calls, error in ((REFUSED, EPERM), (REPORTED_MISSING, ENOSYS)):
        for numbers in calls.values():
            if numbers[column] >= 0:
                code += [_jump(JUMP_EQUAL, numbers[column], 0, 1), _refuse(error)]
    no_namespace = [_jump(JUMP_ANY_BIT, NEW_NAMESPACE, 0, 1), _refuse(EPERM)]
    code += _check_argument(CLONE[column], 0, no_namespace)
    injecting = [[_jump(JUMP_EQUAL, r, 0, 1), _refuse(EPERM)] for r in TERMINAL_INJECTION]
    code += _check_argument(IOCTL[column], 1, [step for pair in injecting for step in pair])
    for call, (*columns, argument) in WITH_MODE.items():
        if columns[column] >= 0:
            code += _check_mode(columns[column], argument, has_flags=call.startswith("open"))
    known = [[_jump(JUMP_EQUAL, family, 0, 1), _return(ALLOW)] for family in SOCKET_FAMILIES]
    for numbers in SOCKETS:
        steps = [step for pair in known for step in pair]
        code += _check_argument(numbers[column], 0, [*steps, _refuse(EPERM)])
    return b"".join([*code, _return(ALLOW)])


def _check_argument(number: int, argument: int, steps: list[bytes]) -> list[bytes]:
    """For this call only, `steps` check the low word of an argument; otherwise it is allowed."""
    inner = [_load(ARGUMENT_OFFSET + 8 * argument), *steps, _return(ALLOW)]
    return [_jump(JUMP_EQUAL, number, 0, len(inner)), *inner]


def _check_mode(number: int, argument: int, *, has_flags: bool) -> list[bytes]:
    """Refuse this call if its mode has the set-uid bit. The argument before the mode has the flags
    of `open`: without O_CREAT the mode has no meaning."""
    steps = [_jump(JUMP_ANY_BIT, SET_UID, 0, 1), _refuse(EPERM)]
    if not has_flags:
        return _check_argument(number, argument, steps)
    creates = [_jump(JUMP_ANY_BIT, CREATE_FLAGS, 0, 3), _load(ARGUMENT_OFFSET + 8 * argument)]
    return _check_argument(number, argument - 1, [*creates, *steps])


def _load(offset: int) -> bytes:
    return struct.pack("<HBBI", LOAD_WORD, 0, 0, offset)


def _jump(kind: int, value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("<HBBI", kind, then, otherwise, value)


def _return(value: int) -> bytes:
    return struct.pack("<HBBI", RETURN, 0, 0, value)


def _refuse(error: int) -> bytes:
    return _return(REFUSE | error)
