"""The data of a stand-alone page of a run: the board's own answers, packed, and as many attempts in full as there is room for.

The document: {"still": JSON of {"run", "whole", "attempts"}, "packed": {answer: base64 of gzip}}; an answer is named as the board's
address of it (`curves`, `rollouts`, `rollout/12`).
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.events.finite import without_nan
from etude.evaluate.report.board import machines
from etude.evaluate.report.board.attempt import UNREADABLE, AttemptReader
from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.curves import MetricHistory
from etude.evaluate.report.board.index import AttemptIndex
from etude.evaluate.report.settings import ReportSettings


@dataclass
class PageData:
    """`problems`: what could not be read, by name, with the reason."""

    still: dict[str, Any]
    packed: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def document(self) -> str:
        """As the page holds it: JSON in a script element, which nothing in it can end."""
        return json.dumps({"still": json.dumps(self.still), "packed": self.packed}).replace("<", "\\u003c")


def read_page_data(run: Path, settings: ReportSettings) -> PageData:
    """Reads the run's files, and keeps the index next to them."""
    index = AttemptIndex(run)
    index.refresh()
    history = MetricHistory(run, index.problems)
    history.refresh()
    audit = machines.audit(index)
    whole = _whole(index, _flagged(index, audit["rows"]), settings)
    answers = {
        "curves": history.read(),
        "fleet": machines.fleet(index),
        "weights": machines.weights(index),
        "audit": audit,
    }
    packed = {name: pack(as_json(answer)) for name, answer in answers.items()}
    rows = Columns.unpack(index.pack()).pack()  # of one generation: the same files give the same bytes
    packed |= {"rollouts": pack(rows)} | whole
    problems = index.problems.found | audit["problems"]
    return PageData({"run": run.name, "whole": len(whole), "attempts": len(index)}, packed, problems)


def pack(data: bytes) -> str:
    """base64 of gzip; the same bytes give the same text."""
    return b64encode(gzip.compress(data, mtime=0)).decode()


def _whole(index: AttemptIndex, flagged: list[int], settings: ReportSettings) -> dict[str, str]:
    """Attempts in full until their number or the room is used up. One too large for what is left ends it."""
    attempts, found = AttemptReader(index), dict[str, str]()
    room = int(settings.rollout_mb * 1e6)
    for row in index.choose_attempts(flagged):
        if len(found) >= settings.rollouts:
            break
        try:
            text = pack(as_json(attempts.read(row)))
        except UNREADABLE as error:
            index.problems.record(f"attempt {row}", f"{type(error).__name__}: {error}")
            continue
        if len(text) > room:
            break
        room -= len(text)
        found[f"rollout/{row}"] = text
    return found


def _flagged(index: AttemptIndex, rows: Iterable[dict[str, Any]]) -> list[int]:
    """The attempts that an auditor flagged: the cheat desk links to them."""
    keys = {
        (str(row.get("key")), str(row.get("task_id")), int(row.get("attempt", -1))) for row in rows if row.get("flags")
    }
    return index.rows_of(keys) if keys else []


def as_json(value: Any) -> bytes:
    """Without blanks; a number that is not finite is null."""
    return json.dumps(without_nan(value), allow_nan=False, separators=(",", ":")).encode()
