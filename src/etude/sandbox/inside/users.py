"""Who is who inside: one user, or a range of 65,536 whose first is root in there and none of whom is anybody outside.

A process can't map a range for itself: the kernel wants somebody outside of the new user namespace who has a right to every id. For root
that is a helper forked before root is given up, for anyone else newuidmap and newgidmap, which go by /etc/subuid and /etc/subgid.
The zygote of ranges is mapped to all of them, by their numbers outside, and gives each sandbox its own; as a user of the host it is nobody.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os

from etude.sandbox.inside import root
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

SIZE = 1 << 16
# What root inside may do to its own users, files and ports: chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service.
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
_ANSWER_BYTES = 512


class Helper:
    """A process that stays outside and maps this one. `ranges`: `uids` and `gids` as [first, number]; `tools` null for root."""

    def __init__(self, ranges: dict[str, Any]) -> None:
        self._ranges = ranges
        entered, self._entered = os.pipe()
        self._answer, answer = os.pipe()
        whom = os.getpid()
        if os.fork() == 0:
            os.close(self._entered)
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # its own children are its own business
            try:
                _map(whom, ranges, os.read(entered, _ANSWER_BYTES).split())
                os.write(answer, b"mapped")
            except (OSError, ValueError) as error:
                os.write(answer, f"uid range: {error}".encode()[:_ANSWER_BYTES])
            os._exit(0)
        os.close(entered)
        os.close(answer)

    def map(self, uid: int, gid: int) -> None:
        """After this process, which was these outside, has entered its new user namespace. Raises OSError."""
        os.write(self._entered, b"%d %d" % (uid, gid))
        said = os.read(self._answer, _ANSWER_BYTES)
        os.close(self._entered)
        os.close(self._answer)
        if said != b"mapped":
            raise OSError(said.decode() or "uid range: the helper died")
        if self._ranges["tools"] is not None:  # see `_map`
            first = self._ranges["gids"][0]
            os.setresgid(first, first, first)
            sys_.prctl(sys_.PR_SET_DUMPABLE, 1)


def why_no_ranges(ranges: dict[str, Any] | None) -> str:
    """Found by doing: a child is mapped to all of them. "" where that works."""
    if ranges is None:
        return "no subordinate ids: give this user 65536 in /etc/subuid and /etc/subgid and install newuidmap (package uidmap)"
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            helper, uid, gid = Helper(ranges), os.getuid(), os.getgid()
            sys_.unshare(sys_.CLONE_NEWUSER)
            helper.map(uid, gid)
        except OSError as error:
            os.write(writer, str(error).encode()[:_ANSWER_BYTES])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        return file.read().decode()


def _map(pid: int, ranges: dict[str, Any], own: list[bytes]) -> None:
    """All of the range by its own numbers; beside it the process' own ids. Only newgidmap gets no own gid: it would forbid setgroups then."""
    for index, (kind, name) in enumerate((("uids", "uid_map"), ("gids", "gid_map"))):
        first, number = ranges[kind]
        line, range_line = [root.INSIDE_UID, int(own[index]), 1], [first, first, number]
        if ranges["tools"] is None:
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(" ".join(map(str, line)) + "\n" + " ".join(map(str, range_line)))
        else:
            _run([ranges["tools"][index], str(pid), *map(str, (line if index == 0 else []) + range_line)])


def _run(argv: list[str]) -> None:
    """Its words go where the zygote's went: nowhere. So the status must do."""
    status = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)[1])
    if status:
        raise OSError(f"{' '.join(argv)} ended with {status}: is the range in /etc/subuid and /etc/subgid?")


def give_range(pid: int, uid: int, gid: int) -> None:
    """Map a child in a fresh user namespace: 0 and up inside are `uid` and up here. Raises OSError."""
    for name, first in (("uid_map", uid), ("gid_map", gid)):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(f"0 {first} {SIZE}")


def become_root_inside() -> None:
    """The first of the range; capabilities over the own user namespace stay."""
    os.setresgid(0, 0, 0)
    os.setgroups([])
    os.setresuid(0, 0, 0)
    sys_.prctl(sys_.PR_SET_DUMPABLE, 1)  # lost by setresuid, and needed until the cell is closed
