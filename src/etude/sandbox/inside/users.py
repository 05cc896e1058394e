"""Who is who inside: one user, or a range of 65,536 whose first is root in there and none of whom is anybody outside.

A process can't map a range for itself: the kernel wants somebody outside of the new user namespace who has a right to every id. For root
that is a helper forked before root is given up, for anyone else newuidmap and newgidmap, which go by /etc/subuid and /etc/subgid.
The zygote of ranges is mapped to all of them, by their numbers outside, and gives each sandbox its own; on the host it is the overflow user.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os
import struct
from _socket import AF_UNIX, CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket, socketpair

from etude.sandbox.inside import idmapped, root
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

SIZE = 1 << 16
# What root inside may do to its own users, files and ports: chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service.
CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
_ANSWER_BYTES = 512


class UserRange:
    """What process 1 must know to live with a range: the store of layers as its users see it, or -1 and why there is none."""

    def __init__(self, store: int, storeless: str = "") -> None:
        self._store = store
        self._storeless = storeless or "only root can show a store of layers to a range"

    def close(self) -> None:
        if self._store >= 0:
            os.close(self._store)
            self._store = -1

    def settle(self, layered: bool) -> None:
        """Become root inside; with layers, have them belong to it. Raises OSError, Storeless."""
        become_root_inside()
        if not layered:
            self.close()
        elif self._store < 0:
            raise Storeless(f"uid_mode='range' over layers: {self._storeless}; take uid_mode='single'")
        else:
            idmapped.attach(self._store, f"{root.STORE}/0")  # forks, which the others are for, are refused with ranges
            self._store = -1


class Storeless(Exception):
    """Layers can't be shown to a range here."""


class Helper:
    """A process that stays outside and maps this one. `ranges`: `uids` and `gids` as [first, number]; `tools` null for root. As root's it
    stays for as long as this one and lends it the `store` of layers, each time as another range of users sees it."""

    def __init__(self, ranges: dict[str, Any], store: str | None = None) -> None:
        self._ranges = ranges
        self._lends = store is not None and ranges["tools"] is None
        mine, its = socketpair(AF_UNIX, SOCK_SEQPACKET)
        whom = os.getpid()
        if os.fork() == 0:
            line = os.dup2(
                its.detach(), 3
            )  # of all that is open here only this: who waits for the end of another one must see it
            os.closerange(4, os.sysconf("SC_OPEN_MAX"))
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # its own children are its own business
            _stay_outside(socket(fileno=line), whom, ranges, store if self._lends else None)
            os._exit(0)
        its.close()
        self._line = mine

    def map(self, uid: int, gid: int) -> None:
        """After this process, which was these outside, has entered its new user namespace. Raises OSError."""
        self._line.send(b"%d %d" % (uid, gid))
        said = self._line.recv(_ANSWER_BYTES)
        if said != b"done":
            raise OSError(said.decode() or "uid range: the helper died")
        if self._ranges["tools"] is not None:  # see `_map`
            first = self._ranges["gids"][0]
            os.setresgid(first, first, first)
            sys_.prctl(sys_.PR_SET_DUMPABLE, 1)

    def lend(self, uid: int, gid: int) -> int:
        """The store's mount, in which all files belong to these; -1 where none can be lent. Raises OSError."""
        if not self._lends:
            return -1
        self._line.send(b"%d %d" % (uid, gid))
        said, rights, _, _ = self._line.recvmsg(_ANSWER_BYTES, CMSG_SPACE(4), MSG_CMSG_CLOEXEC)
        for level, kind, sent in rights:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                return struct.unpack("i", sent[:4])[0]
        raise OSError(said.decode() or "the helper of ranges died")

    def disown(self) -> None:
        """In a forked sandbox: what speaks with root is the zygote's."""
        self._line.close()


def _stay_outside(line: socket, whom: int, ranges: dict[str, Any], store: str | None) -> None:
    owner = line.recv(_ANSWER_BYTES).split()
    try:
        _map(whom, ranges, owner)
        line.send(b"done")
        while store is not None and (asked := line.recv(_ANSWER_BYTES)):
            uid, gid = map(int, asked.split())
            try:
                tree = idmapped.tree(store, (int(owner[0]), uid), (int(owner[1]), gid))
            except OSError as error:
                line.send(f"idmapped mount of {store}: {error}".encode()[:_ANSWER_BYTES])
                continue
            line.sendmsg([b"done"], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", tree))])
            os.close(tree)
    except (OSError, ValueError) as error:
        line.send(f"uid range: {error}".encode()[:_ANSWER_BYTES])


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
    """The range by its own numbers, and the process' own ids. Only newgidmap gets no own gid: it would forbid setgroups then."""
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
