"""`etude session diff`: where two sessions part, and their turns side by side."""

from __future__ import annotations

import shutil
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.fidelity import compare_harnesses
from etude.cli.session.places import File, find_session

if TYPE_CHECKING:
    from etude.core.trace.entry import Entry
    from etude.core.trace.session import Session

# Narrower columns than this are unreadable; wider than the terminal is left to it.
LEAST_COLUMN = 30


Harness = Annotated[
    bool,
    typer.Option(
        "--harness",
        help="Compare the recorded harnesses instead of the turns; exit 1 if a policy could see a difference.",
    ),
]


def diff(first: File, second: File, harness: Harness = False, json: Json = False) -> Answer:
    """Print the first difference between two sessions (except times) and their turns next to each other; exit 1 if they differ."""
    if harness:
        return compare_harnesses(first, second)
    from etude.agent.harness.replay import compare
    from etude.core.trace.reader import read_session

    sessions = [read_session(find_session(file)) for file in (first, second)]
    difference = compare(*sessions)
    turns = [turn_rows(session) for session in sessions]
    pairs = [{"equal": a == b, "first": a, "second": b} for a, b in zip_longest(*turns)]
    description = difference.describe("first", "second") if difference else None
    document = {"equal": difference is None, "difference": description, "turns": pairs}
    text = [f"first difference: {description}" if difference else "equal, times aside", *_columns(pairs)]
    return Answer(document, "\n".join(text), int(difference is not None))


def turn_rows(session: Session) -> list[dict[str, Any]]:
    """Each turn as what was said, which calls were made, and how they went."""
    rows: list[dict[str, Any]] = []
    for entry in session.entries:
        if entry.type == "completion":
            message = entry.data.get("message") or {}
            calls = [{"name": call["name"], "arguments": call["arguments"]} for call in message.get("calls", [])]
            rows.append({"text": message.get("text", ""), "calls": calls, "results": []})
        elif entry.type == "tool_result" and rows:
            rows[-1]["results"].append({"failed": entry.data["failed"], "text": entry.data["text"]})
        elif entry.type in ("message", "summary", "end") and _spoken(entry):
            rows.append({"text": _spoken(entry), "calls": [], "results": []})
    return rows


def _spoken(entry: Entry) -> str:
    if entry.type == "end":
        return f"end: {entry.data['reason']}"
    return f"{entry.data.get('role', entry.type)}: {entry.data['text']}"


def _columns(pairs: list[dict[str, Any]]) -> list[str]:
    width = max(LEAST_COLUMN, (shutil.get_terminal_size().columns - 5) // 2)
    lines = []
    for pair in pairs:
        mark = "=" if pair["equal"] else "≠"
        for a, b in zip_longest(_cells(pair["first"], width), _cells(pair["second"], width), fillvalue=""):
            lines.append(f"{a:{width}} {mark} {b}".rstrip())
    return lines


def _cells(row: dict[str, Any] | None, width: int) -> list[str]:
    """A turn's lines in one column; a session that has ended shows nothing."""
    from etude.cli.session.transcript import clean

    if row is None:
        return []
    description = [row["text"].split("\n")[0]] if row["text"] else []
    description += [f"→ {call['name']} {call['arguments']!r}" for call in row["calls"]]
    description += [f"{'✗' if found['failed'] else '←'} {found['text'].split(chr(10))[0]}" for found in row["results"]]
    cells = [clean(line) for line in description] or [""]
    return [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell in cells]
