"""The seccomp filter as classic BPF, assembled here for x86_64 and aarch64 (nothing else covers AF_VSOCK or keyrings).

Everything not named is allowed. Refused with EPERM: kernel doors that namespaces do not cover (keyrings, bpf, io_uring,
userfaultfd, perf, kexec, modules, the mount interface, ptrace and its kin, handles), memory that no limit here counts (memfd,
System V queues, System V segments of more than a page), socket families other than UNIX, INET,
INET6 and route netlink, and whatever would make the runner (process 1, which may be the same user) slow or unable: a command could else
turn its own failure into a fault of ours. clone3 says ENOSYS so that libraries fall back to clone, whose flags a filter can read.
"""

from __future__ import annotations

import errno
import struct

from etude.sandbox.inside.syscalls import CLONE_NEWUSER, MACHINE

# name: (x86_64, aarch64); None where the call does not exist.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "setns": (308, 268),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "msgget": (68, 186), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "syslog": (103, 116), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "vhangup": (153, 58),
    "sethostname": (170, 161), "setdomainname": (171, 162), "fanotify_init": (300, 262),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None), "ustat": (136, None),
}  # fmt: skip
# Refused as well where no namespace backs the filter (see `keeper`): what Landlock does not mediate.
ALONE: dict[str, tuple[int | None, int | None]] = {
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "fchown": (93, 55), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463), "file_setattr": (469, 469),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "inotify_add_watch": (254, 27), "setpriority": (141, 140), "ioprio_set": (251, 30), "process_mrelease": (448, 448),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    "shmget": (29, 194), "semget": (64, 190), "shmat": (30, 196), "mq_open": (240, 180),
}  # fmt: skip
_ARCH = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NUMBERS = {
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "prlimit64": (302, 261),
    "utimensat": (280, 88),
}
# What reaches for another process by its number, the first argument.
_REACHING: dict[str, tuple[int, int]] = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}  # fmt: skip
# What sets a priority of the processor or of the disk -> the first argument that means one process: PRIO_PROCESS, IOPRIO_WHO_PROCESS.
_PRIORITIES = {"setpriority": 0, "ioprio_set": 1}
# Where a mode says whether a device is meant: call -> which argument. A device 0:0 needs no privilege, and is how layers hide files.
_MAKING: dict[str, tuple[tuple[int | None, int | None], int]] = {"mknod": ((133, None), 1), "mknodat": ((259, 33), 2)}
_KIND_OF_FILE, _CHARACTERS, _BLOCKS = 0o170000, 0o020000, 0o060000
_X32_BIT = 0x40000000

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_OFFSET_NR, _OFFSET_ARCH, _OFFSET_ARG0, _OFFSET_ARG1, _OFFSET_ARG2 = 0, 4, 16, 24, 32
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _NETLINK_ROUTE = 16, 0
_RUNNER = 1
_UNIX, _STREAM, _SEQPACKET, _KIND_MASK = 1, 1, 5, 0xF

_SEGMENT_BYTES = (
    4096  # PostgreSQL's lock is one of 56; a namespace has 4,096 segments at most, so all of them are 16 MiB
)

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, k


def program(machine: str = MACHINE, *, alone: bool = False) -> bytes:
    """The filter as an array of sock_filter. Raises KeyError for an architecture without a table."""
    column, arch = _ARCH[machine]
    number = {name: pair[column] for name, pair in _NUMBERS.items()}
    deny = _ERRNO | errno.EPERM
    code: list[Instruction] = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JEQ, 1, 0, arch),
        (_RET, 0, 0, _KILL),
        (_LOAD, 0, 0, _OFFSET_NR),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    for pair in (DENIED | ALONE if alone else DENIED).values():
        if (call := pair[column]) is not None:
            code += [(_JEQ, 0, 1, call), (_RET, 0, 0, deny)]
    code += [(_JEQ, 0, 1, number["clone3"]), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    for call in (number["clone"], number["unshare"]):
        code += _after(call, _no_user_namespace(deny))
    for pair, argument in _MAKING.values():
        if (call := pair[column]) is not None:
            code += _after(call, _no_device(argument, deny))
    if alone:
        for call, rule in _rules_alone(deny).items():
            code += _after(number[call], rule)
    else:
        for pair in _REACHING.values():
            code += _after(pair[column], _not_the_runner(deny))
        for call, one_process in _PRIORITIES.items():
            code += _after(number[call], _priority_of_another(one_process, deny))
        code += _after(number["shmget"], _small_segment(deny))
        for call in (number["socket"], number["socketpair"]):
            code += _after(call, _families(deny))
    code.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _after(call: int, rule: list[Instruction]) -> list[Instruction]:
    """The rule for one call; any other jumps over it."""
    return [(_JEQ, 0, len(rule), call), *rule]


def _no_user_namespace(deny: int) -> list[Instruction]:
    """After `nr == clone` or `unshare`."""
    return [(_LOAD, 0, 0, _OFFSET_ARG0), (_JSET, 0, 1, CLONE_NEWUSER), (_RET, 0, 0, deny), (_RET, 0, 0, _ALLOW)]


def _no_device(argument: int, deny: int) -> list[Instruction]:
    """After `nr == mknod`: pipes, sockets and files may be made."""
    return [
        (_LOAD, 0, 0, _OFFSET_ARG0 + 8 * argument),
        (_AND, 0, 0, _KIND_OF_FILE),
        (_JEQ, 1, 0, _CHARACTERS),
        (_JEQ, 0, 1, _BLOCKS),
        (_RET, 0, 0, deny),
        (_RET, 0, 0, _ALLOW),
    ]


def _not_the_runner(deny: int) -> list[Instruction]:
    """After a call that names a process."""
    return [(_LOAD, 0, 0, _OFFSET_ARG0), (_JEQ, 0, 1, _RUNNER), (_RET, 0, 0, deny), (_RET, 0, 0, _ALLOW)]


def _priority_of_another(one_process: int, deny: int) -> list[Instruction]:
    """After a call that sets a priority: of one process that is not the runner; a group's or a user's processes would include it."""
    return [
        (_LOAD, 0, 0, _OFFSET_ARG0),
        (_JEQ, 1, 0, one_process),
        (_RET, 0, 0, deny),
        (_LOAD, 0, 0, _OFFSET_ARG1),
        *_not_the_runner(deny)[1:],
    ]


def _small_segment(deny: int) -> list[Instruction]:
    """After `nr == shmget`: only what no limit needs to count."""
    return [
        (_LOAD, 0, 0, _OFFSET_ARG1 + 4),
        (_JEQ, 0, 3, 0),
        (_LOAD, 0, 0, _OFFSET_ARG1),
        (_JGE, 1, 0, _SEGMENT_BYTES + 1),
        (_RET, 0, 0, _ALLOW),
        (_RET, 0, 0, deny),
    ]


def _families(deny: int) -> list[Instruction]:
    """After `nr == socket`: allow the listed families, netlink for routes only, refuse all others."""
    code: list[Instruction] = [(_LOAD, 0, 0, _OFFSET_ARG0)]
    for family in _FAMILIES:
        code += [(_JEQ, 0, 1, family), (_RET, 0, 0, _ALLOW)]
    code += [(_JEQ, 0, 3, _NETLINK), (_LOAD, 0, 0, _OFFSET_ARG2), (_JEQ, 0, 1, _NETLINK_ROUTE), (_RET, 0, 0, _ALLOW)]
    return [*code, (_RET, 0, 0, deny)]


def _rules_alone(deny: int) -> dict[str, list[Instruction]]:
    """No socket but connected UNIX pairs (a datagram one could be connected again); limits of oneself; times of an open file."""
    zero: list[Instruction] = [(_JEQ, 0, 1, 0), (_RET, 0, 0, _ALLOW), (_RET, 0, 0, deny)]
    return {
        "socket": [(_RET, 0, 0, deny)],
        "socketpair": [
            (_LOAD, 0, 0, _OFFSET_ARG0),
            (_JEQ, 0, 4, _UNIX),
            (_LOAD, 0, 0, _OFFSET_ARG1),
            (_AND, 0, 0, _KIND_MASK),
            (_JEQ, 2, 0, _STREAM),
            (_JEQ, 1, 0, _SEQPACKET),
            (_RET, 0, 0, deny),
            (_RET, 0, 0, _ALLOW),
        ],
        "prlimit64": [(_LOAD, 0, 0, _OFFSET_ARG0), *zero],
        "utimensat": [
            (_LOAD, 0, 0, _OFFSET_ARG1),
            (_JEQ, 1, 0, 0),
            (_RET, 0, 0, deny),
            (_LOAD, 0, 0, _OFFSET_ARG1 + 4),
            *zero,
        ],
    }
