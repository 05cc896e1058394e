"""Ends every process that descends from a run, whatever it did to get away: `kill_tree.py MARK GRACE_S`.

A run's first process has MARK (name=value) in its environment and its children inherit it; what cleared its environment is found
below a marked process, what moved to another session or parent by the mark. SIGTERM first, SIGKILL to what is left after GRACE_S.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_POLL_S = 0.02
# A killed process that the kernel holds for longer (a dead network mount) can't be waited for.
_DYING_S = 5.0


def family(mark: bytes, first: int | None = None) -> list[int]:
    """Living processes of the run, this one left out; parents first, so that no shell lives to report its child's death. `first`: its
    first process, if the caller knows it: while that is still in its exec the kernel shows an empty environment."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read(1024)
            state, parent = text[text.rindex(b")") + 2 :].split(b" ", 2)[:2]
            if state in b"ZX":
                continue
            parents[int(name)] = int(parent)
            if int(name) == first:
                marked.add(int(name))
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    marked.add(int(name))
        except OSError:
            continue  # gone since it was listed, or another user's
    grew = bool(marked)
    while grew:
        fresh = {pid for pid, parent in parents.items() if parent in marked and pid not in marked}
        marked |= fresh
        grew = bool(fresh)
    return sorted(marked, key=lambda pid: (_depth(pid, parents), pid))


def _depth(pid: int, parents: dict[int, int]) -> int:
    depth = 0
    while pid in parents and depth < len(parents):
        pid, depth = parents[pid], depth + 1
    return depth


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # already gone, as intended


def end(mark: bytes, grace_s: float, first: int | None = None) -> bool:
    """Whether all are gone. `first` must not have been waited for: its number could be another's."""
    started_s = time.monotonic()
    polite = grace_s > 0
    if polite:
        send(family(mark, first), signal.SIGTERM)
    while members := family(mark, first):
        waited_s = time.monotonic() - started_s
        if not polite or waited_s > grace_s:
            send(members, signal.SIGKILL)
        if waited_s > grace_s + _DYING_S:
            return False
        time.sleep(_POLL_S)
    return True


if __name__ == "__main__":
    sys.exit(0 if end(os.fsencode(sys.argv[1]), float(sys.argv[2])) else 1)
