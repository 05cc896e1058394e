"""A runner that is another user than its commands, and that counts them and tells them apart by groups: for gVisor's kernel.

That kernel lets a process of the same user kill process 1, does not bound a user's processes by a limit, and has no subreapers. So the runner
stays root by its real number, without a capability, and is the commands' user in effect: it may signal them and owns what they own; they may not
signal it. A control group of that kernel bounds all commands; others, in a hierarchy that bounds nothing, say whose an orphan is.
"""

from __future__ import annotations

import errno
import os

from etude.sandbox.inside import root, tree
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from etude.sandbox.inside.ground import SandboxPaths

# Where the hierarchies are mounted: folders of the root. Not one in another: a group below a full one stops the gVisor of 2022 for good.
COUNTED, SUPERVISED = "/opt/etude/groups/counted", "/opt/etude/groups/supervised"
NEEDS = ("CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")  # until `settle` is done
_COMMANDS, _SUPERVISORS = f"{COUNTED}/commands", f"{SUPERVISED}/supervisors"
_ITS_OWN = ("/proc/1/fd", "/proc/1/fdinfo", "/proc/1/task")  # that kernel lets anybody open what is open elsewhere
_USER = root.INSIDE_UID
_SETPCAP = 1 << 8
# A burst of forks was seen this far above the limit before the first was refused; what stays of it must not bar the next command.
_OVERSHOT = 2


def settle(pids: int, place: SandboxPaths) -> None:
    """Become that runner, but for the capabilities: the caller drops them. Raises OSError."""
    for kind, folder in (("pids", COUNTED), ("job", SUPERVISED)):
        sys_.mount("none", folder, "cgroup", 0, kind)
    for folder in (_COMMANDS, _SUPERVISORS):
        os.mkdir(folder, 0o755)
    with open(f"{_COMMANDS}/pids.max", "w") as file:
        file.write(str(pids))
    entrance = os.open(f"{_COMMANDS}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    number = os.open(f"{_COMMANDS}/pids.current", os.O_RDONLY | os.O_CLOEXEC)
    for folder in _ITS_OWN:
        sys_.mount("none", folder, "tmpfs", sys_.MS_RDONLY, "mode=000")
    os.setgroups([])
    os.setresgid(0, _USER, 0)
    os.setresuid(0, _USER, 0)
    sys_.hold_capabilities(_SETPCAP)  # what is needed to give up the rest

    def become() -> None:
        os.write(entrance, b"0")
        os.setresgid(_USER, _USER, _USER)
        os.setresuid(_USER, _USER, _USER)

    def require_process() -> None:
        if int(os.pread(number, 32, 0)) >= pids + _OVERSHOT:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    place.confine, place.require_process, place.gather = become, require_process, _gather
    tree.foster()


def _gather() -> None:
    """In a supervisor: whatever it starts, and nothing else, is in a group of its number. Root's folders want root in effect."""
    os.setresuid(_USER, 0, 0)
    try:
        for name in os.listdir(_SUPERVISORS):
            if name.isdigit():
                _remove(f"{_SUPERVISORS}/{name}")
        own = f"{_SUPERVISORS}/{os.getpid()}"
        os.mkdir(own, 0o755)
        with open(f"{own}/cgroup.procs", "w") as file:
            file.write("0")
    finally:
        os.setresuid(0, _USER, 0)


def _remove(group: str) -> None:
    try:
        os.rmdir(group)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.ENOENT):  # somebody is in it, or another was quicker
            raise
