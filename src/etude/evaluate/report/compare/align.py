"""Aligns two sessions of one task step by step: what both did, where they part, where they meet again. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from etude.core.trace.entry import Entry

Kind = Literal["same", "other answer", "differs", "only a", "only b"]


@dataclass(frozen=True)
class AlignedStep:
    """One turn: what was said, the calls, and what they came back with."""

    number: int  # of the turn, from 1
    text: str
    calls: tuple[tuple[str, str], ...]  # (name, arguments as JSON)
    results: tuple[tuple[str, bool], ...]  # (text, failed)

    @property
    def signature(self) -> tuple[Any, ...]:
        """Equal where both did the same; in a turn with calls the text does not count."""
        return self.calls or (self.text,)

    @property
    def kind(self) -> tuple[str, ...]:
        """Equal where both used the same tools."""
        return tuple(name for name, _ in self.calls) or ("says",)


@dataclass(frozen=True)
class AlignedRow:
    """A step of A next to one of B."""

    kind: Kind
    a: AlignedStep | None
    b: AlignedStep | None


def steps_of(entries: Sequence[Entry]) -> list[AlignedStep]:
    """The turns of a session; a summary is the turn that wrote it."""
    found: list[AlignedStep] = []
    for entry in entries:
        if entry.type == "completion":
            message = entry.data.get("message") or {}
            calls = tuple(
                (call["name"], json.dumps(call["arguments"], sort_keys=True)) for call in message.get("calls", [])
            )
            found.append(AlignedStep(len(found) + 1, message.get("text", ""), calls, ()))
        elif entry.type == "tool_result" and found:
            last = found[-1]
            results = (*last.results, (entry.data["text"], bool(entry.data["failed"])))
            found[-1] = AlignedStep(last.number, last.text, last.calls, results)
    return found


def align(a: Sequence[AlignedStep], b: Sequence[AlignedStep]) -> list[AlignedRow]:
    """Every step once, in order on both sides. Equal steps meet first; between them steps with the same tools do."""
    rows: list[AlignedRow] = []
    for tag, a0, a1, b0, b1 in _blocks([s.signature for s in a], [s.signature for s in b]):
        if tag == "equal":
            pairs = zip(a[a0:a1], b[b0:b1], strict=True)
            rows += [AlignedRow("same" if x.results == y.results else "other answer", x, y) for x, y in pairs]
        else:
            rows += _between(a[a0:a1], b[b0:b1])
    return rows


def parts_at(rows: Sequence[AlignedRow]) -> int | None:
    """The first row in which the two do something else; None if they never do."""
    return next((n for n, row in enumerate(rows) if row.kind not in ("same", "other answer")), None)


def _between(a: Sequence[AlignedStep], b: Sequence[AlignedStep]) -> list[AlignedRow]:
    rows: list[AlignedRow] = []
    for tag, a0, a1, b0, b1 in _blocks([s.kind for s in a], [s.kind for s in b]):
        if tag == "equal":
            rows += [AlignedRow("differs", x, y) for x, y in zip(a[a0:a1], b[b0:b1], strict=True)]
            continue
        rows += [AlignedRow("only a", x, None) for x in a[a0:a1]]
        rows += [AlignedRow("only b", None, y) for y in b[b0:b1]]
    return rows


def _blocks(a: Sequence[Any], b: Sequence[Any]) -> Sequence[tuple[str, int, int, int, int]]:
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
