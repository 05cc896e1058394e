"""Fresh knowledge: questions mined from recorded sessions, after the FreshBench of the Composer 2 report (appendix B).

An agent that had to search or to read another file before it could edit did not know something. The question is which text it was asked
and what it looked for; the answer is the span of what it found that then stood in its edit, and neither in the text that it replaced nor
in the question. The report has an agent check each answer; here a span must have been used, which is all that files can tell.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Session

LEAST_CHARACTERS, LEAST_WORDS = 10, 3  # a shorter span is a name that any answer may hold by chance
MOST_CHARACTERS = 4_000  # of a found text that are compared: the time grows with the square
CHANGED = ("new", "new_string", "replacement", "content")  # what an editing tool calls the text that it writes …
REPLACED = ("old", "old_string", "original")  # … and the text that it takes away
WORD = re.compile(r"\w+|[^\w\s]")
PLACE = re.compile(r"([^\s:]+):\d+[: ](.*)")  # how a search names the line it found


@dataclass(frozen=True)
class KnowledgeQuestion:
    """`request` is the session's, `looked_for` the search or the file that showed the `answer`."""

    session: str
    request: str
    looked_for: str
    answer: str

    def prompt(self) -> str:
        """A document that a base model goes on with: a space, then the answer (most vocabularies begin words with their space)."""
        return f"Task: {self.request.strip()}\n\nLooked up: {self.looked_for}\nFound and used:"


@dataclass(frozen=True)
class _FreshName:
    """One line that was found, and its file ("" where unknown)."""

    looked_for: str
    path: str
    line: str


def knowledge_questions(sessions: Iterable[Session], count: int, seed: int) -> list[KnowledgeQuestion]:
    """At most `count`, drawn by `seed`; of sessions that found the same in answer to the same, one."""
    unique: dict[tuple[str, str, str], KnowledgeQuestion] = {}
    for session in sessions:
        for question in mine_questions(session):
            unique.setdefault((question.request, question.looked_for, question.answer), question)
    ordered = [unique[key] for key in sorted(unique)]
    return ordered if len(ordered) <= count else random.Random(seed).sample(ordered, count)


def mine_questions(session: Session) -> Iterator[KnowledgeQuestion]:
    """One question for each edit that went through and used what was found before it; none of a session that was judged a failure."""
    if any(entry.data.get("score", 1.0) < 1.0 for entry in session.of("verdict")):
        return
    request = next((e.data["text"] for e in session.of("message") if e.data.get("role") == "user"), "")
    results = {e.data["call_id"]: e.data for e in session.of("tool_result")}
    found: list[_FreshName] = []
    known = [
        request
    ]  # what the session has shown without being searched for: its request, and all that edits took away
    for entry in session.of("completion"):
        for call in _message(entry).calls:
            result = results.get(call.id)
            if result is None or result.get("failed"):
                continue
            if _argument(call.arguments, CHANGED) is None:
                found += _looked(call, result["text"])
                continue
            known.append(_argument(call.arguments, REPLACED) or "")
            if best := _used(call, known, found):
                yield KnowledgeQuestion(session.header.session_id, request, *best)


def _message(entry: Entry) -> Message:
    return Message.from_json(entry.data["message"])


def _argument(arguments: dict[str, object], names: Iterable[str]) -> str | None:
    """The first of these that is text."""
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)


def _looked(call: ToolCall, text: str) -> Iterator[_FreshName]:
    """The lines that a call gave which names a file or a search."""
    asked = next((value for value in call.arguments.values() if isinstance(value, str) and value), "")
    read = "" if "pattern" in call.arguments else str(call.arguments.get("path", ""))
    for line in dict.fromkeys(text[:MOST_CHARACTERS].splitlines()) if asked else ():
        place = PLACE.match(line)
        yield _FreshName(f"{call.name} {asked}", *(place.groups() if place else (read, line)))


def _used(call: ToolCall, known: list[str], found: list[_FreshName]) -> tuple[str, str] | None:
    """(looked for, longest span) of what was found outside the edited file and occurs in the edit alone."""
    new = _argument(call.arguments, CHANGED) or ""
    spans = [
        (looked.looked_for, span)
        for looked in found
        if looked.path != call.arguments.get("path")
        for span in _common_spans(looked.line, new)
        if not any(span in text for text in (*known, looked.looked_for))
    ]
    return max(spans, key=lambda pair: len(pair[1]), default=None)


def _common_spans(line: str, new: str) -> Iterator[str]:
    """What a line shares with a line of the edit, word for word; long enough to be no accident."""
    ours = list(WORD.finditer(line))
    for other in new.splitlines():
        theirs = WORD.findall(other)
        match = SequenceMatcher(None, [word.group() for word in ours], theirs, autojunk=False).find_longest_match()
        if match.size >= LEAST_WORDS:
            span = line[ours[match.a].start() : ours[match.a + match.size - 1].end()]
            if len(span) >= LEAST_CHARACTERS:
                yield span
