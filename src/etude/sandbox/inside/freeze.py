"""Every process but the runner is stopped, so that files can be copied as they are at one moment; later all go on.

Promise: what a program inside had stopped itself stays stopped when the others go on.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - as in `runner`
import os
import time

from etude.sandbox.inside import files, tree

_PATIENCE_S = 5.0
_STEP_S = 0.0002
_BORROWED_S = 0.01  # a parent that waits this long in the kernel, with a stopped child, waits for that child (vfork)
_STILL = b"TtZX"


class Freezer:
    def __init__(self) -> None:
        self._asleep: set[int] = set()  # stopped before we came
        self._frozen = False

    def set(self, frozen: bool) -> None:
        """Returns when all stand still, or go on. Raises Refused where one doesn't stop; then all go on."""
        if frozen and not self._frozen:
            self._asleep = {pid for pid in tree.living() if _states(pid) <= set(b"Tt")}
            self._frozen = True
            self._stop()
        elif not frozen and self._frozen:
            self._go_on()

    def _stop(self) -> None:
        began_s = time.monotonic()
        tree.kill(-1, _signal.SIGSTOP)
        before: set[int] | None = None
        while True:
            living = tree.living()
            waited_s = time.monotonic() - began_s
            moving = _moving(living, waited_s > _BORROWED_S)
            if not moving and living == before:  # a second look: what was being forked during the first one is in it
                return
            before = None if moving else living
            for pid in moving:
                tree.kill(pid, _signal.SIGSTOP)
            if waited_s > _PATIENCE_S:
                self._go_on()
                raise files.FileRequestError("InfraError", f"process {min(moving)} did not stop within {_PATIENCE_S} s")
            if moving:
                time.sleep(_STEP_S)

    def _go_on(self) -> None:
        self._frozen = False
        for pid in tree.living() - self._asleep:
            tree.kill(pid, _signal.SIGCONT)
        self._asleep = set()


def _moving(pids: set[int], borrowing: bool) -> set[int]:
    states = {pid: _states(pid) for pid in pids}
    moving = {pid for pid, found in states.items() if not found <= set(_STILL)}
    if moving and borrowing:
        parent_of = tree.parents()
        lenders = {parent_of[pid] for pid in pids - moving if pid in parent_of}
        moving -= {pid for pid in moving & lenders if states[pid] <= set(_STILL + b"D")}
    return moving


def _states(pid: int) -> set[int]:
    """Of all its threads, as letters of /proc; empty for one that is gone."""
    found: set[int] = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", "rb", buffering=0) as file:
                text = file.read(1024)
            found.add(text[text.rindex(b")") + 2])
    except (OSError, ValueError):
        return found  # a thread ended, or all did: what was seen of the rest counts
    return found
