"""Hints for what was forgotten: to-dos left open at the end, files read again that had not changed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from etude.agent.metrics import facts as fact
from etude.agent.metrics.of_session import todos_of
from etude.core.trace.session import Session
from etude.rl.hints.hint import Hint
from etude.rl.hints.turns import AnsweredCall, turns_of


def unfinished_todos(session: Session) -> Iterator[Hint]:
    """One, for the turn that ended the work, if to-dos were open then. A session that was cut off has none: no turn ended it."""
    turns, still = list(turns_of(session)), todos_of(session).open
    if not turns or not still:
        return
    last = turns[-1]
    if last.message.problem is None and (
        not last.message.calls or any(one.name == "done" for one in last.message.calls)
    ):
        items = "; ".join(still)
        yield Hint(
            last.entry,
            "unfinished_todos",
            f"Reminder: To-dos still open: {items}. Finish or cancel them before you end.",
        )


def repeated_read(session: Session) -> Iterator[Hint]:
    """One for each turn that read a file again with the same arguments, the file not changed since (`docs/counters.md`, repeated_reads)."""
    shown: dict[str, set[str]] = {}  # path -> read calls answered since it last changed
    for turn in turns_of(session):
        again: list[str] = []
        for one in turn.calls:
            if fact.kind(one.call.name) == "shell":
                shown.clear()  # it may have changed any file
            again += _read(one, shown)
            for path in fact.paths_edited(one.call, one.facts):
                shown.pop(path, None)
        if again:
            files = ", ".join(dict.fromkeys(again))
            yield Hint(turn.entry, "repeated_read", f"Reminder: You have read {files} already and it has not changed.")


def _read(one: AnsweredCall, shown: dict[str, set[str]]) -> list[str]:
    """The files that the call showed, if all of them were shown by the same call before."""
    key = json.dumps([one.call.name, one.call.arguments], sort_keys=True, default=str)
    paths = () if one.failed else fact.paths_read(one.call, one.reads)
    known = bool(paths) and all(key in shown.get(path, ()) for path in paths)
    for path in paths:
        shown.setdefault(path, set()).add(key)
    return list(paths) if known else []
