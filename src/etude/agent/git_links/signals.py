"""Local signals of what a session was worth: off until asked for, kept on this machine, texts without secrets.

kept       which share of the lines a session wrote is still there: after 5 minutes, at a commit, after 7 days. There is no
           daemon: a moment is measured by the first `collect` after it, and `age_s` says when that was
follow_up  the class of each later message of the user (rules, see follow_up.py), with its text redacted and cut
latency    seconds from a message of the user's to the agent's answer, and to its first turn
rejected   edits that the user undid, calls that the user denied
"""

from __future__ import annotations

import fcntl
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Literal, Sequence

from etude.agent.git_links.home import read_entries, read_header, session_files
from etude.agent.git_links.written import written_lines
from etude.core.files import replace_file
from etude.core.redact.redaction import redact
from etude.core.trace.change import line_hash, split
from etude.core.trace.entry import Entry, SessionHeader

# The class of a message that followed an agent's work, by rules over its words. Rules, not a model: the first that
# fits decides, English only, and what fits none is "other". The share of each class says more than any one message.


FollowUp = Literal["rejection", "correction", "approval", "question", "continuation", "other"]

RULES: tuple[tuple[FollowUp, re.Pattern[str]], ...] = (
    (
        "rejection",
        re.compile(
            r"\b(?:undo|revert|roll(?:ed)? ?back|put (?:it|that) back|discard|throw (?:it|that) away|stop doing)\b",
            re.I,
        ),
    ),
    (
        "correction",
        re.compile(
            r"^\s*(?:no|nope|wrong|not)\b|\b(?:still (?:fails?|broken|not|wrong|the same)|does(?:n't| not) work|did(?:n't| not) work|"
            r"not what i|that(?:'s| is) (?:wrong|not)|you (?:forgot|missed|broke|should have|didn't)|instead of|should (?:have|be)|"
            r"shouldn't|wrong file|again, (?:but|without))\b",
            re.I,
        ),
    ),
    (
        "approval",
        re.compile(
            r"\b(?:thanks?|thank you|perfect|great|nice|lgtm|looks good|well done|works now|ship it|commit (?:it|this))\b",
            re.I,
        ),
    ),
    ("question", re.compile(r"\?\s*$|^\s*(?:why|what|how|where|when|who|which|can you explain|explain)\b", re.I)),
    (
        "continuation",
        re.compile(r"^\s*(?:continue|go on|go ahead|yes|ok(?:ay)?|next|now|also|and|then|please)\b", re.I),
    ),
)


def follow_up(text: str) -> FollowUp:
    """The class of a message."""
    for name, pattern in RULES:
        if pattern.search(text):
            return name
    return "other"


FOLDER = "signals"
MOMENTS_S = {"5min": 300.0, "7days": 7 * 86400.0}
# Enough of a message to see what it was about; the whole of it is in the session.
TEXT_CHARS = 200

Row = dict[str, Any]


@dataclass(frozen=True)
class SignalStore:
    """The signals of one folder of sessions: a switch and an append-only file."""

    home: Path

    @property
    def file(self) -> Path:
        return self.home / FOLDER / "signals.jsonl"

    @property
    def _switch(self) -> Path:
        return self.home / FOLDER / "on"

    @property
    def on(self) -> bool:
        return self._switch.exists()

    def turn(self, on: bool) -> None:
        """Switch collecting on or off; what was collected stays until it is forgotten."""
        if on:
            self._switch.parent.mkdir(parents=True, exist_ok=True)
            self._switch.touch()
        else:
            self._switch.unlink(missing_ok=True)

    def rows(self) -> list[Row]:
        """All signals, oldest first; a line torn by a kill is left out."""
        data = self.file.read_bytes() if self.file.exists() else b""
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def collect(self, now_unix_s: float, workspace: Path | None = None) -> list[Row]:
        """Measure what is due and not yet known, and append it; the new rows. Nothing is measured while switched off. `workspace`: of
        the sessions that worked in this folder alone."""
        if not self.on:
            return []
        with open(self.file, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two sessions that end together must not both measure
            known = {_key(row) for row in self.rows()}
            fresh = [row for row in self._due(now_unix_s, workspace) if _key(row) not in known]
            file.write(b"".join(json.dumps(row).encode() + b"\n" for row in fresh))
        return fresh

    def add(self, row: Row) -> None:
        """A signal that is measured elsewhere (lines kept at a commit). Nothing while switched off, or if it is known."""
        if self.on and _key(row) not in {_key(known) for known in self.rows()}:
            with open(self.file, "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(json.dumps(row).encode() + b"\n")

    def forget(self, session_id: str) -> int:
        """Remove a session's signals; how many there were."""
        rows = self.rows()
        kept = [row for row in rows if row["session_id"] != session_id]
        if len(kept) != len(rows):
            replace_file(self.file, b"".join(json.dumps(row).encode() + b"\n" for row in kept))
        return len(rows) - len(kept)

    def _due(self, now_unix_s: float, workspace: Path | None) -> Iterator[Row]:
        for path in session_files(self.home):
            if workspace is not None and read_header(path).facts.get("workspace") != str(workspace):
                continue
            header, entries = read_entries(path)
            if not any(entry.type == "end" for entry in entries):
                continue  # still going on
            yield from _talk(header, entries)
            ended_unix_s = header.created_unix_s + max((entry.at_s for entry in entries), default=0.0)
            age_s = now_unix_s - ended_unix_s
            for moment, after_s in MOMENTS_S.items():
                if age_s >= after_s and (row := _kept(header, entries, moment, age_s)) is not None:
                    yield row


def kept_row(header: SessionHeader, moment: str, age_s: float, lines: int, kept: int, commit: str = "") -> Row:
    """How many of a session's lines stand at a moment."""
    number = commit or moment
    row = {**_base(header), "kind": "kept", "n": number, "moment": moment, "age_s": round(age_s, 1)}
    return {**row, "lines": lines, "kept": kept, "share": round(kept / lines, 4)}


def _kept(header: SessionHeader, entries: Sequence[Entry], moment: str, age_s: float) -> Row | None:
    """None if the session wrote nothing, or its folder is gone."""
    root = Path(header.facts.get("workspace") or "")
    wrote = written_lines(header, entries)
    if not wrote.count or not header.facts.get("workspace") or not root.is_dir():
        return None
    kept = 0
    for path, hashes in wrote.lines.items():
        file = root / path
        there = {line_hash(line) for line in split(file.read_text(errors="replace"))} if file.is_file() else set()
        kept += sum(known in there for known in hashes)
    return kept_row(header, moment, age_s, wrote.count, kept)


def _talk(header: SessionHeader, entries: Sequence[Entry]) -> Iterator[Row]:
    """Follow-up messages, latency and rejected edits of a session that is over."""
    base = _base(header)
    asked = [e for e in entries if e.type == "message" and e.data["role"] == "user" and not e.data.get("summary")]
    for number, entry in enumerate(asked[1:], 1):
        text, _ = redact(entry.data["text"])
        yield {
            **base,
            "kind": "follow_up",
            "n": number,
            "class": follow_up(entry.data["text"]),
            "text": text[:TEXT_CHARS],
        }
    for number, (entry, until) in enumerate(zip(asked, [*asked[1:], None], strict=True)):
        answers = [
            e for e in entries if e.type == "completion" and e.id > entry.id and (until is None or e.id < until.id)
        ]
        if answers:
            first_s, all_s = (round(answer.at_s - entry.at_s, 3) for answer in (answers[0], answers[-1]))
            yield {**base, "kind": "latency", "n": number, "first_s": first_s, "all_s": all_s, "turns": len(answers)}
    undone = sum(len(e.data["edits"]) for e in entries if e.type == "undo" and e.data["by"] == "user")
    denied = sum(e.type == "approval" and e.data["decision"] == "denied" and e.data["by"] == "user" for e in entries)
    edits = sum(entry.type == "edit" for entry in entries)
    yield {**base, "kind": "rejected", "n": 0, "edits": edits, "edits_undone": undone, "calls_denied": denied}


def _base(header: SessionHeader) -> Row:
    """What every signal names: sessions are compared by who answered, and with which effort."""
    return {"session_id": header.session_id, "policy": header.policy, "effort": header.effort}


def _key(row: Row) -> tuple[str, str, str]:
    return row["session_id"], row["kind"], str(row["n"])
