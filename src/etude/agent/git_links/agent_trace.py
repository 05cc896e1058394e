"""Agent Trace records (agent-trace.dev, version 0.1.0, RFC of January 2026): which lines of a revision which session wrote.

A session is named by a URN, not by a path: a record may be pushed to others. The specification's schema asks for a version
of two numbers while all its examples have three; this writes "0.1.0", as the examples do. `content_hash` is SHA-256 of the
range's lines without trailing blanks, 16 hex digits.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import UTC, datetime
from typing import Any, Callable, Mapping, Sequence
from urllib.parse import quote, unquote

import etude
from etude.agent.git_links.written import Span, WrittenLines

VERSION = "0.1.0"
URN = "urn:etude:session:"
_NAMESPACE = uuid.UUID("6f6b1d0c-6a0b-5f0e-9a52-7d3c1d6f8e11")  # of our own: ids of records are made, not drawn

Record = dict[str, Any]


def make_record(
    commit: str, at_unix_s: float, spans: Mapping[str, Sequence[Span]], sessions: Sequence[WrittenLines]
) -> Record:
    """The record of a commit. Its id depends on commit and spans alone: made again, it is the same."""
    files = [
        {"path": path, "conversations": _conversations(found, sessions)}
        for path, found in sorted(spans.items())
        if found
    ]
    identity = json.dumps([commit, files], sort_keys=True)
    return {
        "version": VERSION,
        "id": str(uuid.uuid5(_NAMESPACE, identity)),
        "timestamp": datetime.fromtimestamp(at_unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "vcs": {"type": "git", "revision": commit},
        "tool": {"name": "etude", "version": etude.__version__},
        "files": files,
        "metadata": {"etude": {"harness": {s.session_id: s.harness for s in sessions if s.harness}}},
    }


def session_url(session_id: str) -> str:
    """The URN of a session."""
    return URN + quote(session_id, safe="")


def session_of(conversation: Mapping[str, Any]) -> str:
    """The session a conversation of a record names; an empty string if it is not one of ours."""
    url = conversation.get("url", "")
    return unquote(url.removeprefix(URN)) if url.startswith(URN) else ""


def sessions_in(record: Record) -> dict[str, int]:
    """Sessions that a record names, each with how many lines it wrote."""
    counts: dict[str, int] = {}
    for _, conversation in conversations(record):
        lines = sum(found["end_line"] - found["start_line"] + 1 for found in conversation["ranges"])
        name = session_of(conversation)
        counts[name] = counts.get(name, 0) + lines
    return counts


def conversations(record: Record) -> list[tuple[str, dict[str, Any]]]:
    """Every conversation of a record with its file."""
    return [(file["path"], found) for file in record["files"] for found in file["conversations"]]


def without_session(record: Record, session_id: str) -> Record | None:
    """The record without one session; None if nothing is left."""
    return _filtered(record, lambda name: name != session_id)


def only_session(record: Record, session_id: str) -> Record | None:
    """The record with one session alone; None if it does not name it."""
    return _filtered(record, lambda name: name == session_id)


def _filtered(record: Record, wanted: Callable[[str], bool]) -> Record | None:
    files = []
    for file in record["files"]:
        kept = [found for found in file["conversations"] if wanted(session_of(found))]
        files += [{**file, "conversations": kept}] if kept else []
    harness = record.get("metadata", {}).get("etude", {}).get("harness", {})
    metadata = {"etude": {"harness": {name: value for name, value in harness.items() if wanted(name)}}}
    return {**record, "files": files, "metadata": metadata} if files else None


def content_hash(text: str) -> str:
    """Hash of a range's text, lines joined by newlines."""
    bare = "\n".join(line.rstrip() for line in text.split("\n"))
    return "sha256:" + hashlib.sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _conversations(spans: Sequence[Span], sessions: Sequence[WrittenLines]) -> list[dict[str, Any]]:
    policies = {session.session_id: session.policy for session in sessions}
    names = list(dict.fromkeys(span.session_id for span in spans))
    return [
        {
            "url": session_url(name),
            "contributor": {"type": "ai", **({"model_id": policies[name][:250]} if policies.get(name) else {})},
            "ranges": [
                {"start_line": s.start_line, "end_line": s.end_line, "content_hash": content_hash(s.text)}
                for s in spans
                if s.session_id == name
            ],
        }
        for name in names
    ]
